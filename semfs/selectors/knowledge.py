"""What is known besides labeled samples: descriptions of unseen classes, unlabeled samples.

Each of them becomes a problem of the paper's form, "separate these classes", that the selected
features must solve as well, and a sentence for ``knowledge_`` that states what was done.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import AttributesLike, Float64, Indices, Mask, Matrix
from semfs.arrays import batches, draw_rows
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import LEFT_OUT, UNLABELED, Labels
from semfs.method.batches import (
    OffsetMatrix,
    Pairs,
    correct_by,
    is_corrected,
    mean_offsets,
    pair_labels,
    uncorrected_rows,
)
from semfs.method.class_means import unseen_class_problem
from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.method.quadratic import Quadratic
from semfs.rows import MemoryRows, in_memory
from semfs.selectors.clusters import (
    DEFAULT_SIZES,
    SampleSizes,
    cluster_unlabeled,
)
from semfs.validation import ParameterError, refuse_nonfinite

if TYPE_CHECKING:
    from semfs.method.batches import CorrectedRows
    from semfs.selectors.inputs.unlabeled import UnlabeledStream
    from semfs.selectors.parameters import MethodParameters

#: Fewer unlabeled samples are not clustered.
FEWEST_TO_CLUSTER = 10
#: Penalty of the problem of separating clusters, in units of that of the seen classes. Chosen
#: on six splits of each data set (docs/knowledge.md), with means of clusters as targets.
CLUSTER_PENALTY = 0.1
#: Unlabeled samples per cluster with which the seen classes weigh as much as the clusters. With
#: more samples they weigh less. Chosen on six splits, confirmed on ten.
EQUAL_SAMPLES = 5.0
#: Unlabeled samples are taken to be on another scale than the seen ones if a typical feature
#: varies that many times as much or as little, or has a mean so many standard deviations away:
#: also samples of other classes differ less than that, in half of all features.
OTHER_SPREAD = 10.0
OTHER_OFFSET = 3.0
FEWEST_FEATURES_TO_COMPARE = 5
#: Samples in memory that are assigned to clusters at once, without a copy of all of them.
ASSIGNED_AT_ONCE = 4096
#: The seen classes weigh at least this much of the clusters, however many samples there are.
#: A panel must serve the labeled classes, too: without a floor they weighed .04 in a file of
#: 381 unlabeled cells. With more, seen classes are separated better and unseen ones worse: .25
#: was a little worse on unseen classes than no floor, .1 lost most of the gain on seen ones
#: (docs/default.md).
SEEN_FLOOR = 0.15
#: Numbers outside this range lose digits when float32 is squared.
FLOAT32_RANGE = (1e-12, 1e12)


@dataclass(frozen=True)
class UnlabeledClasses:
    """Clusters of the unlabeled samples, and the problem of separating them."""

    labels: Indices  # (n,) cluster of each sample, -1 where it is ignored
    n_clusters: int = 0
    problem: Quadratic | None = None
    #: Weight of the problem next to that of the seen classes.
    weight: float = 0.0
    #: Why the samples are not used; empty if they are.
    not_used: str = ""
    n_ignored: int = 0  # samples far from all others

    def sentence(self, n_samples: int, others: str, n_other_problems: int) -> str:
        """Return what was done with the samples, for ``knowledge_``.

        ``others`` names the classes of the other problems, which have a weight of 1 each.
        """
        if self.not_used:
            return f"{n_samples} unlabeled samples: not used: {self.not_used}"
        share = self.weight / (self.weight + n_other_problems)
        text = (
            f"{n_samples} unlabeled samples: grouped into {self.n_clusters} clusters, which "
            f"carry {100 * share:.0f} % of the weight; {others} carry {100 * (1 - share):.0f} %"
        )
        if self.n_ignored:
            text += f"; {self.n_ignored} ignored, because they are far from all others"
        return text


def further_knowledge(
    selector: MethodParameters,
    objective: Objective,
    table: AttributeTable,
    unlabeled: MemoryRows | UnlabeledStream | None,
) -> tuple[dict[str, Any], list[Quadratic]]:
    """Return fitted attributes that state what else is known, and the problems it makes.

    ``objective`` and ``table`` are those of the seen classes.
    """
    direct = selector.solver == "direct"
    # the alternating solver has one objective, and no place for another
    if unlabeled is not None and not direct:
        raise ValueError('Unlabeled samples need solver="direct".')
    n_seen = len(table.classes)
    described = "" if selector.attributes is None else f", {len(table.names)} attributes"
    notes = {"seen classes": f"used: {n_seen} classes{described}"}
    others = f"the {n_seen} seen classes"
    problems = []

    unseen = unseen_descriptions(selector.attributes, selector.target_attributes, table)
    r2 = float("nan")
    if unseen is not None and direct:
        problem, r2, note = unseen_class_problem(objective, table.values, unseen.values)
        n_unseen = len(unseen.classes)
        notes["unseen classes"] = f"{n_unseen} described, {note}"
        if problem is not None:
            problems.append(problem)
            others = f"the {n_seen} seen and {n_unseen} described classes"
        elif not isinstance(selector.target_attributes, str):
            warnings.warn(f"target_attributes was {note}.", stacklevel=5)

    found = UnlabeledClasses(np.zeros(0, dtype=np.intp))
    if unlabeled is not None:
        n_samples = _number_of(unlabeled)
        n_new_classes = _number_of_clusters(selector.n_new_classes, unseen)
        found = _unlabeled_classes(objective, unlabeled, n_samples, n_new_classes)
        notes["unlabeled samples"] = found.sentence(n_samples, others, 1 + len(problems))
        if found.problem is not None:
            problems.append(found.problem)
    attributes = {
        "knowledge_": notes,
        "new_table_": unseen,
        "target_r2_": r2,
        "n_new_classes_": found.n_clusters,
        "unlabeled_labels_": found.labels,
    }
    return attributes, problems


def _number_of_clusters(n_new_classes: int | str, unseen: AttributeTable | None) -> int | str:
    """The number of clusters to find, or "auto"; "table" counts described unseen classes."""
    if n_new_classes != "table":
        return n_new_classes
    n_described = 0 if unseen is None else len(unseen.classes)
    if n_described < 2:
        raise ParameterError(
            "n_new_classes",
            f'is "table", but the table describes {n_described} unseen classes. Describe two '
            'or more, or choose "auto" or a number.',
        )
    return n_described


def unseen_descriptions(
    attributes: AttributesLike | AttributeTable | None,
    target_attributes: AttributesLike | AttributeTable | str | None,
    seen: AttributeTable,
) -> AttributeTable | None:
    """Return the descriptions of the unseen classes, or None.

    ``target_attributes`` is "table" for the rows of ``attributes``, None, or a separate table,
    which must describe at least two unseen classes.
    """
    if target_attributes is None or attributes is None:
        return None
    # a word refers to the table that describes the seen classes
    separate = not isinstance(target_attributes, str)
    table = as_attribute_table(target_attributes if separate else attributes)
    table = table.columns_of(seen, "target_attributes")
    known = set(seen.classes.tolist())
    unseen = [i for i, label in enumerate(table.classes.tolist()) if label not in known]
    # there is nothing to separate one class from
    if separate and len(unseen) < 2:
        raise ValueError(
            f"target_attributes has {len(unseen)} unseen classes; give two or more."
        )
    if not unseen:
        return None
    return AttributeTable(table.values[unseen], table.classes[unseen], seen.names)


def _number_of(unlabeled: MemoryRows | UnlabeledStream) -> int:
    """Number of unlabeled samples; of samples in memory without those of weight 0."""
    if not in_memory(unlabeled):
        return unlabeled.labels.n_unlabeled
    if unlabeled.weights is None:
        return int(unlabeled.X.shape[0])
    return int(np.count_nonzero(unlabeled.weights))


def _unlabeled_classes(
    objective: Objective,
    unlabeled: MemoryRows | UnlabeledStream,
    n_samples: int,
    n_new_classes: int | str,
) -> UnlabeledClasses:
    """Cluster the unlabeled samples, and make the problem of separating the clusters."""
    seen = objective.moments.rows
    needed = FEWEST_TO_CLUSTER
    if n_new_classes != "auto":
        needed = max(needed, int(n_new_classes))
    reason = ""
    if in_memory(unlabeled) and not in_memory(uncorrected_rows(objective.moments)):
        reason = "the samples of the seen classes are not in memory"
    # K-means would make a cluster of each sample
    if n_samples < needed:
        reason = f"{n_samples} are too few to cluster. Give at least {needed} or none"
    if reason:
        warnings.warn(f"Unlabeled samples were not used: {reason}.", stacklevel=6)
        n_all = unlabeled.X.shape[0] if in_memory(unlabeled) else n_samples
        return UnlabeledClasses(np.full(n_all, UNLABELED), not_used=reason)

    if in_memory(unlabeled):
        moments, labels = _clusters_in_memory(seen, unlabeled, n_new_classes)
    else:
        moments, labels = _streamed_clusters(seen, unlabeled, n_new_classes)
    _warn_of_other_scale(objective.moments, moments)
    n_clusters = len(moments.classes)
    problem = _separate_clusters(moments, objective)
    # q is the scatter of the targets, the means of the clusters
    if problem.q <= 0.0:
        reason = "they do not differ, so that there are no clusters to separate"
        return UnlabeledClasses(labels, not_used=reason)
    n_ignored = 0
    if len(labels):
        n_ignored = n_samples - int(np.count_nonzero(labels >= 0))
    # only the ratio counts: the seen classes keep a weight of 1
    weight = 1.0 / _weight_of_seen(n_samples - n_ignored, n_clusters)
    with np.errstate(over="ignore", invalid="ignore"):
        # q is J without features: divided by it, problems of any unit are comparable
        factor = weight * objective.q / problem.q
    if not np.isfinite(factor):
        reason = "they differ too little, next to the labeled ones, for floating point"
        return UnlabeledClasses(labels, not_used=reason)
    problem = problem.scaled_by(factor)
    return UnlabeledClasses(labels, n_clusters, problem, weight, n_ignored=n_ignored)


def _warn_of_other_scale(seen: Moments, unlabeled: Moments) -> None:
    """Warn if unlabeled samples look as if they had not been scaled as the seen ones were."""
    varying = np.flatnonzero((seen.scatter_diag > 0) & (unlabeled.scatter_diag > 0))
    if len(varying) < FEWEST_FEATURES_TO_COMPARE:
        return
    spread_seen = np.sqrt(seen.scatter_diag[varying] / seen.total)
    spread = np.sqrt(unlabeled.scatter_diag[varying] / unlabeled.total)
    # medians: single features of other classes may differ by any amount
    ratio = float(np.median(spread / spread_seen))
    offset = float(np.median(np.abs(unlabeled.mean - seen.mean)[varying] / spread_seen))
    if 1.0 / OTHER_SPREAD < ratio < OTHER_SPREAD and offset < OTHER_OFFSET:
        return
    found = f"their features vary {ratio:.2g} times as much as those of the labeled samples"
    if offset >= OTHER_OFFSET:
        found += f" and are {offset:.2g} standard deviations away from them"
    warnings.warn(
        f"The unlabeled samples seem to be on another scale: typically {found}. Treat both "
        "alike; a pipeline transforms X_unlabeled as X only with "
        'transform_input=["X_unlabeled"].',
        stacklevel=7,
    )


def _weight_of_seen(n_samples: int, n_clusters: int) -> float:
    """Weight of the seen classes next to that of clusters of so many samples, at most 1."""
    return max(SEEN_FLOOR, min(1.0, EQUAL_SAMPLES * n_clusters / n_samples))


def _separate_clusters(moments: Moments, objective: Objective) -> Quadratic:
    """The problem of separating clusters, whose targets are their means."""
    M = moments.means - moments.mean
    # The weight of the problem does not depend on the unit of its targets, but squares of
    # products X'M might overflow. Division by a power of two changes no digit.
    largest = float(np.abs(M).max())
    M = np.ldexp(M, -np.frexp(largest)[1])
    # J depends on the targets T (K, r) through T T' alone: K columns instead of d
    # M M' = V Λ V', and T = V √Λ has the same product
    squares, vectors = np.linalg.eigh(M @ M.T)
    targets = vectors * np.sqrt(np.maximum(squares, 0.0))
    return Objective.from_moments(
        moments,
        targets,
        alpha=objective.alpha,
        gamma=CLUSTER_PENALTY * objective.penalty,
        penalty_scale=objective.penalty_scale,
        fit_intercept=True,
    ).quadratic()


def _clusters_in_memory(
    seen: MemoryRows | CorrectedRows,
    unlabeled: MemoryRows,
    n_new_classes: int | str,
    sizes: SampleSizes = DEFAULT_SIZES,
) -> tuple[Moments, Indices]:
    """Moments of the clusters, and the cluster of each sample, -1 if it is ignored.

    The codes of unlabeled samples are their batches, whose means are removed.
    """
    X = unlabeled.X
    weights = unlabeled.weights
    labels = np.full(X.shape[0], UNLABELED, dtype=np.intp)
    is_used = np.ones(X.shape[0], dtype=bool) if weights is None else weights > 0
    batch_of, offsets = _batches_in_memory(unlabeled, is_used)
    n_batches = 1 if offsets is None else len(offsets)
    corrected: Matrix | OffsetMatrix = X
    if offsets is not None:
        corrected = OffsetMatrix(X, batch_of, offsets)
    present: Mask | None = getattr(unlabeled, "present", None)
    # the samples that a fit to a file would draw, so that both find the same clusters
    drawn = draw_rows(is_used, sizes.clustered)
    X_seen, codes_seen = _drawn(seen, sizes.components)
    X_drawn = _take(corrected, drawn)
    if present is not None:  # clusters cannot differ in features that are not there
        X_seen = _features_of(X_seen, present)
        X_drawn = _features_of(X_drawn, present)
    X_seen, X_drawn = _alike(X_seen, X_drawn)
    clusters, found = cluster_unlabeled(
        X_seen,
        codes_seen,
        X_drawn,
        n_new_classes,
        sizes,
    )
    labels[drawn] = np.where(found >= 0, found, UNLABELED)
    # the other samples join the clusters that were found in the drawn ones
    is_used[drawn] = False
    others = np.flatnonzero(is_used)
    for rows in batches(len(others), ASSIGNED_AT_ONCE):
        block = corrected[others[rows]]
        if present is not None:
            block = _features_of(block, present)
        found = clusters.assign(block)
        labels[others[rows]] = np.where(found >= 0, found, UNLABELED)
    clustered = np.flatnonzero(labels >= 0)
    n_clusters = int(labels.max()) + 1
    codes = labels[clustered]
    pairs = None
    if offsets is not None:
        pairs, codes = _pairs_of(codes, batch_of[clustered], n_clusters, n_batches)
    moments = Moments.from_checked(
        _take(X, clustered),
        codes,
        np.arange(n_clusters if pairs is None else len(pairs.class_of)),
        None if weights is None else weights[clustered],
    )
    if pairs is not None and offsets is not None:
        moments = correct_by(moments, pairs, offsets)
    return moments, labels


def _batches_in_memory(unlabeled: MemoryRows, is_used: Mask) -> tuple[Indices, Float64 | None]:
    """The batch (n,) of each unlabeled sample, and the offsets (B, d); None of one batch."""
    used = np.flatnonzero(is_used)
    names, found = np.unique(unlabeled.codes[used], return_inverse=True)
    batch_of = np.zeros(len(is_used), dtype=np.intp)
    batch_of[used] = found
    if len(names) < 2:
        return batch_of, None
    weights = None if unlabeled.weights is None else unlabeled.weights[used]
    X_used = _take(unlabeled.X, used)
    moments = Moments.from_checked(X_used, found, np.arange(len(names)), weights)
    return batch_of, mean_offsets(moments)


def _drawn(
    seen: MemoryRows | CorrectedRows, most: int
) -> tuple[Matrix | OffsetMatrix, Indices]:
    """At most this many random samples of the seen classes, and their codes."""
    weights = seen.weights
    is_used = np.ones(len(seen.codes), dtype=bool)
    if weights is not None:  # samples of weight 0 must not matter
        is_used = np.asarray(weights) > 0
    rows = draw_rows(is_used, most)
    X = seen.samples() if is_corrected(seen) else seen.X
    return _take(X, rows), seen.codes[rows]


def _features_of(X: Matrix | OffsetMatrix, present: Mask) -> Any:
    """Some of the features of X, by a mask (d,)."""
    features = np.flatnonzero(present)
    if isinstance(X, OffsetMatrix):
        return OffsetMatrix(X.X[:, features], X.batch_of, X.offsets[:, features])
    return X[:, features]


def _alike(*matrices: Matrix | OffsetMatrix) -> list[Any]:
    """The matrices, all of them with offsets (which may be 0) if one has some."""
    if not any(isinstance(X, OffsetMatrix) for X in matrices):
        return list(matrices)
    out = []
    for X in matrices:
        if not isinstance(X, OffsetMatrix):
            X = OffsetMatrix(
                X,
                np.zeros(X.shape[0], np.intp),
                np.zeros((1, X.shape[1])),
            )
        out.append(X)
    return out


def _pairs_of(
    clusters: Indices, batches: Indices, n_clusters: int, n_batches: int
) -> tuple[Pairs, Indices]:
    """The pairs (cluster, batch) of samples, and the code (n,) of each sample's pair."""
    # one number per pair: its quotient by n_batches is the cluster, its remainder the batch
    numbers, codes = np.unique(clusters * n_batches + batches, return_inverse=True)
    pairs = Pairs(
        np.arange(n_clusters),
        np.arange(n_batches),
        numbers // n_batches,
        numbers % n_batches,
    )
    return pairs, codes


def _take(X: Any, samples: Indices) -> Any:
    """Return some rows of X, without a copy if these are all."""
    return X if len(samples) == X.shape[0] else X[samples]


def _streamed_clusters(
    seen: Any,  # row source of the seen classes
    unlabeled: UnlabeledStream,
    n_new_classes: int | str,
    sizes: SampleSizes = DEFAULT_SIZES,
) -> tuple[Moments, Indices]:
    """The same beyond memory: clusters of a sample, and moments of all samples of each."""
    rows = unlabeled.rows
    X, _ = rows.sample(sizes.clustered, labeled=False)
    size = float(abs(X).max())
    if not np.isfinite(size):
        refuse_nonfinite(X, "The unlabeled samples")
    # in memory such data are converted to float64; a file is not
    smallest, largest = FLOAT32_RANGE
    if X.dtype == np.float32 and size and not smallest < size < largest:
        raise ValueError(
            f"The unlabeled samples have numbers as large as {size:.0e}, whose squares lose "
            "digits in float32. Rescale X, for example to unit variance."
        )
    batches_of_rows = rows.batches
    offsets = None if batches_of_rows is None else _streamed_offsets(rows)
    if batches_of_rows is not None and offsets is not None:
        # the batches of the samples drawn: `sample` draws the same rows of the same mask
        X = OffsetMatrix(X, _sampled_batches(rows, X.shape[0]), offsets)
    X_seen, codes_seen = _seen_sample(seen, unlabeled, sizes.components)
    X_seen, X = _alike(X_seen, X)
    clusters, _ = cluster_unlabeled(X_seen, codes_seen, X, n_new_classes, sizes)
    if offsets is not None:
        clusters = clusters.with_batches(offsets)
    named = rows.assign(clusters)
    if batches_of_rows is not None and offsets is not None:
        moments = _corrected_clusters(
            named,
            batches_of_rows,
            offsets,
            unlabeled.options,
        )
    else:
        sums = named.sums(**unlabeled.options)
        moments = Moments.from_sums(*sums).without_empty_classes()
    if named.labels is None:  # the labels are on the workers of a Dask cluster
        return moments, np.zeros(0, dtype=np.intp)
    codes = named.labels.codes[unlabeled.labels.codes == UNLABELED]
    # clusters that no sample joined were dropped, and the others count on
    labels = np.searchsorted(moments.classes, codes)
    labels[codes < 0] = UNLABELED
    return moments, labels


def _seen_sample(
    seen: Any, unlabeled: UnlabeledStream, n: int
) -> tuple[Matrix | OffsetMatrix, Indices]:
    """At most n samples of the seen classes beyond memory, all in memory, and their classes."""
    if unlabeled.seen is None:  # the samples of the seen classes are in memory
        return _drawn(seen, n)
    X, labels = unlabeled.seen.sample(n, labeled=True)
    if not is_corrected(seen):
        return X, labels.sorted().codes
    # the labels are pairs (class, batch), in another order than in the moments
    place = {pair: i for i, pair in enumerate(seen.uncorrected.classes)}
    pair_of = np.array([place.get(pair, 0) for pair in labels.classes])[labels.codes]
    corrected = OffsetMatrix(X, seen.pairs.batch_of[pair_of], seen.offsets)
    return corrected, seen.pairs.class_of[pair_of]


def _streamed_offsets(rows: Any) -> Float64 | None:
    """Means (B, d) of the batches of unlabeled samples about their mean, in one pass.

    Zero for batches without unlabeled samples; None if only one batch has some.
    """
    labels = rows.labels
    batches = rows.batches
    # batches in place of labels: their means are class means
    codes = np.where(labels.codes == UNLABELED, batches.codes, LEFT_OUT)
    named = rows.with_labels(Labels(list(range(len(batches.classes))), codes))
    totals = named.accumulate(matrix=False, precise=False)
    if len(totals.classes) < 2:
        return None
    offsets = np.zeros((len(batches.classes), rows.n_features))
    offsets[totals.classes] = totals.means - totals.mean
    return offsets


def _sampled_batches(rows: Any, n: int) -> Indices:
    """The batches (n,) of the n unlabeled samples that `sample` of a source has drawn."""
    drawn = draw_rows(rows.labels.codes == UNLABELED, n)
    return rows.batches.codes[drawn]


def _corrected_clusters(
    named: Any,
    batches: Labels,
    offsets: Float64,
    options: dict[str, Any],
) -> Moments:
    """Moments of clusters of samples beyond memory, offsets (B, d) of batches removed."""
    paired = named.with_labels(pair_labels(named.labels, batches))
    found = Moments.from_sums(*paired.sums(**options)).without_empty_classes()
    # clusters without samples are dropped, offsets of batches stay where they are
    place = {batch: b for b, batch in enumerate(batches.classes)}
    clusters, class_of = np.unique([c for c, _ in found.classes], return_inverse=True)
    batch_of = np.array([place[batch] for _, batch in found.classes], dtype=np.intp)
    pairs = Pairs(clusters, batches.class_array(), class_of, batch_of)
    return correct_by(found, pairs, offsets)
