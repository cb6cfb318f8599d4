"""What is known besides labeled samples: descriptions of unseen classes, unlabeled samples.

Each of them becomes a problem of the paper's form, "separate these classes", that the selected
features must solve as well, and a sentence for ``knowledge_`` that states what was done.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import AttributesLike, Indices, Mask, Matrix
from semfs.arrays import batches, draw_rows
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import UNLABELED
from semfs.method.class_means import unseen_class_problem
from semfs.method.moments import Moments
from semfs.method.objective import Objective, Quadratic
from semfs.rows import MemoryRows, in_memory
from semfs.selectors.clusters import (
    DEFAULT_SIZES,
    SampleSizes,
    cluster_unlabeled,
)
from semfs.validation import ParameterError

if TYPE_CHECKING:
    from semfs.selectors.inputs import UnlabeledStream
    from semfs.selectors.problem import MethodParameters

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
#: 381 unlabeled cells. Of 0, .25, .5 and 1 the unseen classes are separated best with .25, and
#: seen ones better than with 0 (prototype, mean of eight data sets).
SEEN_FLOOR = 0.25
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
            f"{n_samples} unlabeled samples: grouped into {self.n_clusters} new classes, which "
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
    if in_memory(unlabeled) and not in_memory(seen):
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
    weight = 1.0 / _weight_of_seen(n_samples - n_ignored, n_clusters)
    problem = problem.scaled_by(weight * objective.q / problem.q)
    return UnlabeledClasses(labels, n_clusters, problem, weight, n_ignored=n_ignored)


def _warn_of_other_scale(seen: Moments, unlabeled: Moments) -> None:
    """Warn if unlabeled samples look as if they had not been scaled as the seen ones were."""
    varying = np.flatnonzero((seen.scatter_diag > 0) & (unlabeled.scatter_diag > 0))
    if len(varying) < FEWEST_FEATURES_TO_COMPARE:
        return
    spread_seen = np.sqrt(seen.scatter_diag[varying] / seen.total)
    spread = np.sqrt(unlabeled.scatter_diag[varying] / unlabeled.total)
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
    seen: MemoryRows,
    unlabeled: MemoryRows,
    n_new_classes: int | str,
    sizes: SampleSizes = DEFAULT_SIZES,
) -> tuple[Moments, Indices]:
    """Moments of the clusters, and the cluster of each sample, -1 if it is ignored."""
    X = unlabeled.X
    weights = unlabeled.weights
    labels = np.full(X.shape[0], UNLABELED, dtype=np.intp)
    present: Mask | None = getattr(unlabeled, "present", None)
    if present is not None:  # clusters cannot differ in features that are not there
        X = X[:, np.flatnonzero(present)]
        seen = replace(seen, X=seen.X[:, np.flatnonzero(present)])
    is_used = np.ones(X.shape[0], dtype=bool) if weights is None else weights > 0
    # the samples that a fit to a file would draw, so that both find the same clusters
    drawn = draw_rows(is_used, sizes.clustered)
    X_seen, codes_seen = _drawn(seen, sizes.components)
    clusters, found = cluster_unlabeled(
        X_seen, codes_seen, _take(X, drawn), n_new_classes, sizes
    )
    labels[drawn] = np.where(found >= 0, found, UNLABELED)
    is_used[drawn] = False
    others = np.flatnonzero(is_used)
    for rows in batches(len(others), ASSIGNED_AT_ONCE):
        found = clusters.assign(X[others[rows]])
        labels[others[rows]] = np.where(found >= 0, found, UNLABELED)
    clustered = np.flatnonzero(labels >= 0)
    moments = Moments.from_checked(
        _take(unlabeled.X, clustered),
        labels[clustered],
        np.arange(labels.max() + 1),
        None if weights is None else weights[clustered],
    )
    return moments, labels


def _drawn(seen: MemoryRows, most: int) -> tuple[Matrix, Indices]:
    """At most this many random samples of the seen classes, and their codes."""
    rows = draw_rows(np.ones(seen.n_rows, dtype=bool), most)
    return _take(seen.X, rows), seen.codes[rows]


def _take(X: Matrix, samples: Indices) -> Matrix:
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
    # in memory such data are converted to float64; a file is not
    smallest, largest = FLOAT32_RANGE
    if X.dtype == np.float32 and size and not smallest < size < largest:
        raise ValueError(
            f"The unlabeled samples have numbers as large as {size:.0e}, whose squares lose "
            "digits in float32. Rescale X, for example to unit variance."
        )
    if unlabeled.seen is None:  # the samples of the seen classes are in memory
        X_seen, codes_seen = _drawn(seen, sizes.components)
    else:
        X_seen, labels_seen = unlabeled.seen.sample(sizes.components, labeled=True)
        codes_seen = labels_seen.sorted().codes
    clusters, _ = cluster_unlabeled(X_seen, codes_seen, X, n_new_classes, sizes)
    named = rows.assign(clusters)
    moments = Moments.from_sums(*named.sums(**unlabeled.options)).without_empty_classes()
    if named.labels is None:  # the labels are on the workers of a Dask cluster
        return moments, np.zeros(0, dtype=np.intp)
    codes = named.labels.codes[unlabeled.labels.codes == UNLABELED]
    # clusters that no sample joined were dropped, and the others count on
    labels = np.searchsorted(moments.classes, codes)
    labels[codes < 0] = UNLABELED
    return moments, labels
