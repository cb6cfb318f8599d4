"""Clusters of unlabeled samples, which the selected features must separate."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.labels import UNLABELED
from semfs.method.batches import uncorrected_rows
from semfs.method.markers import within_deviation
from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.method.quadratic import Quadratic
from semfs.rows import in_memory
from semfs.selectors.cluster_groups import group_averages, ward_groups
from semfs.selectors.cluster_moments import (
    SummedClusters,
    clusters_beyond_memory,
    clusters_in_memory,
)
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows, UnlabeledStream
from semfs.selectors.prediction import LEAST_SPREAD
from semfs.selectors.unlabeled_scale import warn_of_other_scale
from semfs.validation import warn_user

#: Fewer unlabeled samples are not clustered.
FEWEST_TO_CLUSTER = 10
#: Penalty of the problem of separating clusters, in units of that of the seen classes. Chosen
#: on six splits of each data set (docs/knowledge.md), with means of clusters as targets.
CLUSTER_PENALTY = 0.1
#: α of the problem of separating clusters. A positive α makes light of the scatter within
#: classes. K-means has made the scatter within clusters small already, on all features: on a
#: few of them it must be small, too, so it counts in full.
CLUSTER_ALPHA = 0.0
#: If there are clusters, the penalties of all other problems are multiplied by this. The
#: clusters decide most of the selection. Of the others we want features that complement it, and
#: under a large penalty, features that repeat selected ones still have a gain.
PENALTY_OF_OTHERS = 0.7
#: Unlabeled samples per cluster with which the seen classes weigh as much as the clusters. With
#: more samples they weigh less. Chosen together with `CLUSTER_ALPHA`, `PENALTY_OF_OTHERS` and
#: `SEEN_FLOOR`, and compared with the settings before on ten fresh splits (docs/default.md).
EQUAL_SAMPLES = 13.0
#: How many groups of clusters there are for each cluster. The means of groups are targets
#: beside those of clusters: the number of clusters is estimated, and if it is too large, the
#: clusters of a class are of one group. With 1, every cluster is its own group.
GROUPS_PER_CLUSTER = 0.5
#: The seen classes weigh at least this much of the clusters, however many samples there are.
#: A panel must serve the labeled classes, too: without a floor they weighed .04 in a file of
#: 381 unlabeled cells. With more, seen classes are separated better and unseen ones worse
#: (docs/default.md).
SEEN_FLOOR = 0.2
#: A larger share of the weight is most of it.
MOST_OF_WEIGHT = 0.5


@dataclass(frozen=True, eq=False)
class UnlabeledClasses:
    """The clusters of the unlabeled samples, and the problem of separating them."""

    n_samples: int  # those of weight 0 not counted
    labels: Indices  # (n,) cluster of each sample, -1 where it is ignored
    n_clusters: int = 0
    problem: Quadratic | None = None
    weight: float = 0.0  # of the problem, next to that of the seen classes
    penalty_of_others: float = 1.0  # factor of the penalties of all other problems
    why_not_used: str = ""  # empty if the samples are used
    n_ignored: int = 0  # samples far from all others
    moments: Moments | None = None  # of the clusters, if they are used
    is_off_scale: bool = False  # whether a warning said so of the typical feature

    def vary_in(self, features: Mask) -> Mask:
        """Return which features of a mask (d,) are not constant in the clustered samples."""
        if self.moments is None:
            return np.zeros_like(features)
        return features & ~self.moments.constant()

    def variances(self, features: Indices) -> Float64:
        """Return the variance (k,) of some features within clusters, which may not be 0.

        A feature may have one value in each cluster. Its standard deviation is then taken to be
        a small share of that over all samples.
        """
        assert self.moments is not None
        within = within_deviation(self.moments, features)
        variance = self.moments.scatter_diag[features] / self.moments.total
        overall = np.sqrt(variance)
        return np.maximum(within, LEAST_SPREAD * overall) ** 2

    def sentence(self, others: str, n_other_problems: int) -> str:
        """Return a sentence on the use of the samples, for ``knowledge_``.

        ``others`` names the classes of the other problems, each of which has weight 1.
        """
        if self.why_not_used:
            return f"{self.n_samples} samples, not used: {self.why_not_used}"
        share = self.weight / (self.weight + n_other_problems)
        text = (
            f"{self.n_samples} samples, grouped into {self.n_clusters} clusters, "
            f"which carry {100 * share:.0f} % of the weight; {others} carry "
            f"{100 * (1 - share):.0f} %"
        )
        if share > MOST_OF_WEIGHT:
            text += ", so the selection mainly serves the clusters"
        if self.n_ignored:
            text += f"; {self.n_ignored} ignored because they are far from all others"
        return text


def unlabeled_classes(
    objective: Objective,
    unlabeled: UnlabeledRows | UnlabeledStream,
    n_clusters: int | str,
) -> UnlabeledClasses:
    """Cluster the unlabeled samples, and make the problem of separating the clusters.

    ``objective`` is that of the seen classes, and ``n_clusters`` may be "auto".
    """
    n_samples = unlabeled.n_used
    reason = _why_not_clustered(objective, unlabeled, n_clusters)
    if reason:
        warn_user(f"Unlabeled samples were not used: {reason}.")
        return UnlabeledClasses(
            n_samples, np.full(unlabeled.n_labels, UNLABELED), why_not_used=reason
        )

    seen = objective.moments.rows
    if isinstance(unlabeled, UnlabeledStream):
        found = clusters_beyond_memory(seen, unlabeled, n_clusters)
    else:
        found = clusters_in_memory(seen, unlabeled, n_clusters)
    labels = found.labels
    is_off = warn_of_other_scale(objective.moments, found.moments)

    n_found = len(found.centers)
    problem = _separate_clusters(found, objective)
    # q is the scatter of the targets, the means of the clusters
    if problem.q <= 0.0:
        reason = "they are all equal, so there are no clusters"
        return UnlabeledClasses(n_samples, labels, why_not_used=reason)
    # labels of samples on a Dask cluster stay there: none are ignored, as far as is known
    n_ignored = n_samples - int(np.count_nonzero(labels >= 0)) if len(labels) else 0
    # only the ratio counts: the seen classes keep a weight of 1
    weight = 1.0 / weight_of_seen(n_samples - n_ignored, n_found)
    with np.errstate(over="ignore", invalid="ignore"):
        # q is J without features: divided by it, problems of any unit are comparable
        factor = weight * objective.q / problem.q
    if not np.isfinite(factor):
        reason = "they differ too little compared with the labeled samples"
        return UnlabeledClasses(n_samples, labels, why_not_used=reason)
    return UnlabeledClasses(
        n_samples,
        labels,
        n_found,
        problem.scaled_by(factor),
        weight,
        PENALTY_OF_OTHERS,
        n_ignored=n_ignored,
        moments=found.moments,
        is_off_scale=is_off,
    )


def _why_not_clustered(
    objective: Objective,
    unlabeled: UnlabeledRows | UnlabeledStream,
    n_clusters: int | str,
) -> str:
    """Return why the samples cannot be clustered, or "" if they can."""
    needed = FEWEST_TO_CLUSTER
    if n_clusters != "auto":
        needed = max(needed, int(n_clusters))
    # K-means would make a cluster of each sample
    if unlabeled.n_used < needed:
        return (
            f"{unlabeled.n_used} samples are too few to cluster. Pass at least {needed} or none"
        )
    seen_in_memory = in_memory(uncorrected_rows(objective.moments))
    if not isinstance(unlabeled, UnlabeledStream) and not seen_in_memory:
        return "the samples of the seen classes are not in memory"
    return ""


def weight_of_seen(n_samples: int, n_clusters: int) -> float:
    """Return the weight of the seen classes relative to the clusters, at most 1."""
    return max(SEEN_FLOOR, min(1.0, EQUAL_SAMPLES * n_clusters / n_samples))


def _separate_clusters(found: SummedClusters, objective: Objective) -> Quadratic:
    """Return the problem of separating clusters.

    The targets of a cluster are its mean and the mean of its group, which separates it from
    other clusters and its group from other groups.
    """
    moments = found.moments
    M = moments.means - moments.mean
    # The weight of the problem does not depend on the unit of its targets, but squares of
    # products X'M might overflow. Division by a power of two changes no digit.
    largest = float(np.abs(M).max())
    M = np.ldexp(M, -np.frexp(largest)[1])
    products = M @ M.T
    n_groups = max(1, round(GROUPS_PER_CLUSTER * len(M)))
    group_of = ward_groups(found.centers, moments.counts, n_groups)
    P = group_averages(group_of, moments.counts)
    # J depends on the targets T = [M, P M] through T T' alone: K columns instead of 2 d
    # T T' = V Λ V', and V √Λ has the same product
    squares, vectors = np.linalg.eigh(products + P @ products @ P.T)
    targets = vectors * np.sqrt(np.maximum(squares, 0.0))
    return Objective.from_moments(
        moments,
        targets,
        alpha=CLUSTER_ALPHA,
        gamma=CLUSTER_PENALTY * objective.penalty,
        penalty_scale=objective.penalty_scale,
        fit_intercept=True,
    ).quadratic()
