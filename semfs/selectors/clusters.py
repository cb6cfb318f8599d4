"""Clusters of unlabeled samples, which `SemFS` treats as unseen classes.

All steps work in the leading principal components of seen and unlabeled samples together:

1. *Distance.* Directions in which samples of the same seen class differ say little about other
   classes. The space is whitened by the covariance within the seen classes if this clearly
   helps K-means to find seen classes that were held out.
2. *Number.* Unless it is given, it is the smallest number of clusters that are as narrow as
   clusters of the seen samples, with one cluster per seen class.
3. *Clusters.* K-means, with the best of several starts.

Samples are sorted before anything is drawn at random, so that their order does not matter.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.arrays import batches, quiet_overflow
from semfs.labels import LEFT_OUT
from semfs.method.batches import OffsetMatrix
from semfs.selectors.cluster_space import (
    BATCH,
    helpful_whitening,
    principal_directions,
    projected,
    projected_in_batches,
    unit_of,
)
from semfs.selectors.kmeans import N_STARTS, N_STARTS_JUDGE, kmeans
from semfs.validation import refuse_nonfinite

#: At most this many seen classes judge distance and number: many samples of 40 classes say more
#: about the width of a class than a few samples of all of them.
MOST_CLASSES = 40
#: Clusters have at least this many samples on average.
FEWEST_PER_CLUSTER = 5
#: A sample is ignored if it is this many times as far from the center as the median sample:
#: it would be a cluster by itself, and its squares would drown all others.
FARTHEST = 100.0
#: Samples this many times as far away as the seen ones are in another unit.
OTHER_UNIT = 1e6


@dataclass(frozen=True)
class SampleSizes:
    """How many samples are used at most in each step. They are a fixed random choice."""

    components: int = 2000  # of either kind, for principal components and the distance
    number: int = 2000  # unlabeled ones, for the number of clusters
    clustered: int = 20_000  # unlabeled ones; the others join the nearest cluster


DEFAULT_SIZES = SampleSizes()
#: Unlabeled samples that are clustered; the others join the nearest cluster.
LARGEST_SAMPLE = DEFAULT_SIZES.clustered


@dataclass(frozen=True)
class Clusters:
    """Centers of clusters in a space to which samples are projected."""

    centers: Float64  # (K, p)
    directions: Float64  # (d, p) of the projection Z = X @ directions - offset
    offset: Float64  # (p,)
    radius: float  # samples farther from the origin of Z are ignored
    whitened: bool  # whether distances take account of the scatter within the seen classes
    #: (B, p), what to subtract from Z of a sample of each batch; None if there are no batches
    batch_offsets: Float64 | None = None

    def assign(self, X: Matrix, batches: Indices | None = None) -> Indices:
        """Return the nearest cluster (n,) of samples X (n, d), or LEFT_OUT if it is far."""
        return self.nearest(self.project(X), batches)

    def with_batches(self, offsets: Float64) -> "Clusters":
        """Return the clusters for samples from which offsets (B, d) must be removed."""
        return replace(self, batch_offsets=offsets @ self.directions)

    def project(self, X: Matrix, columns: slice = slice(None)) -> Float64:
        """Return what some columns X (n, g) of the samples contribute to X @ directions."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = projected(X, self.directions[columns])
        if not isinstance(X, OffsetMatrix) and not np.isfinite(products).all():
            refuse_nonfinite(X, "The unlabeled samples")
        return products

    def nearest(self, products: Float64, batches: Indices | None = None) -> Indices:
        """Return the nearest cluster (n,), given X @ directions (n, p) and batches (n,)."""
        # finite samples whose products overflow are far from all others
        is_far: Mask = np.any(~np.isfinite(products), axis=1)
        Z = np.where(is_far[:, None], 0.0, products) - self.offset
        if batches is not None and self.batch_offsets is not None:
            Z -= self.batch_offsets[batches]
        # |z - c|² without |z|², which is the same for all clusters c
        distances = (self.centers**2).sum(axis=1) - 2.0 * Z @ self.centers.T
        labels = np.argmin(distances, axis=1)
        is_far |= np.linalg.norm(Z, axis=1) > self.radius
        labels[is_far] = LEFT_OUT
        return labels


def cluster_unlabeled(
    X_seen: Matrix,
    codes: Indices,
    X_unlabeled: Matrix,
    n_clusters: int | str = "auto",
    sizes: SampleSizes = DEFAULT_SIZES,
) -> tuple[Clusters, Indices]:
    """Cluster unlabeled samples (n_unlabeled, d), given samples (n, d) of seen classes (n,).

    ``n_clusters`` is a number, or "auto" to derive it from the width of seen classes. Return
    the clusters, and the cluster of each unlabeled sample (LEFT_OUT if it is far from all
    others).
    """
    rng = np.random.default_rng(0)
    key = rng.standard_normal((X_seen.shape[1], 1))
    seen = _sorted_samples(X_seen, key)
    unlabeled = _sorted_samples(X_unlabeled, key)
    few_seen = _draw(seen, sizes.components, rng)
    # before anything is learned: a far sample would be the first component
    near = _near(X_seen[few_seen], X_unlabeled)
    unlabeled = unlabeled[near[unlabeled]]
    few_unlabeled = _draw(unlabeled, sizes.components, rng)
    directions, offset = principal_directions(X_seen[few_seen], X_unlabeled[few_unlabeled])

    # distances near 1 in any unit of X: their fourth powers are squares of widths
    unit = unit_of(X_seen[few_seen], directions, offset)
    directions = directions / unit
    offset = offset / unit

    few_seen = _of_fewer_classes(seen, codes, few_seen, sizes.components, rng)
    Z_seen = projected(X_seen[few_seen], directions) - offset
    # numbered from 0 among the classes that were drawn
    seen_codes = np.unique(codes[few_seen], return_inverse=True)[1]
    clustered = _draw(unlabeled, sizes.clustered, rng)
    # several threads of K-means would add up centers in an order that changes from run to run
    with threadpool_limits(1, user_api="openmp"):
        whitening = helpful_whitening(Z_seen, seen_codes, rng)
        if whitening is not None:
            directions = directions @ whitening
            offset = offset @ whitening
            Z_seen = Z_seen @ whitening
        Z = projected_in_batches(X_unlabeled, clustered, directions) - offset
        if n_clusters == "auto":
            judged = Z[_draw(np.arange(len(Z)), sizes.number, rng)]
            n_clusters = _matching_number(Z_seen, seen_codes.max() + 1, judged)
        model = kmeans(Z, int(n_clusters), N_STARTS)

    # clusters that lost all samples are dropped
    used, cluster_of = np.unique(model.labels_, return_inverse=True)
    typical = float(np.median(np.linalg.norm(Z, axis=1)))
    radius = FARTHEST * typical if typical > 0.0 else np.inf
    clusters = Clusters(
        model.cluster_centers_[used],
        directions,
        offset,
        radius,
        whitening is not None,
    )
    labels = np.full(X_unlabeled.shape[0], LEFT_OUT, dtype=np.intp)
    labels[clustered] = cluster_of
    # samples that were not drawn join the nearest cluster
    others = np.setdiff1d(unlabeled, clustered)
    labels[others] = clusters.nearest(projected_in_batches(X_unlabeled, others, directions))
    return clusters, labels


# ---- which samples ---------------------------------------------------------------------


def _sorted_samples(X: Matrix, key: Float64) -> Indices:
    """Return the positions (n,) of samples, sorted by a random linear combination (d, 1)."""
    return np.argsort(projected(X, key).ravel(), kind="stable")


def _draw(samples: Indices, most: int, rng: np.random.Generator) -> Indices:
    """Return at most ``most`` samples: all in their order, or some in random order."""
    if len(samples) <= most:
        return samples
    return rng.permutation(samples)[:most]


def _near(X_seen: Matrix, X: Matrix) -> Mask:
    """Return which samples X (n, d) are not far from all others, by the distance from the mean.

    Raise if most samples are so far from the seen samples that they must be in another unit.
    """
    center = np.asarray(X_seen.mean(axis=0, dtype=np.float64)).ravel()
    distances = _distances(X, center)
    typical_seen = float(np.median(_distances(X_seen, center)))
    typical = float(np.median(distances))
    if typical_seen > 0.0 and not typical <= OTHER_UNIT * typical_seen:
        raise ValueError(
            "The values of the unlabeled samples are far larger than those of X. "
            "Pass both in the same units."
        )
    limit = FARTHEST * max(typical, typical_seen)
    return distances <= limit if limit > 0.0 else np.ones(len(distances), dtype=bool)


@quiet_overflow
def _distances(X: Matrix, center: Float64) -> Float64:
    """Return the distances (n,) of samples X (n, d) from the center (d,)."""
    distances = np.empty(X.shape[0])
    for rows in batches(X.shape[0], BATCH):
        part: Any = X[rows]
        if not isinstance(part, np.ndarray):
            part = part.toarray()
        distances[rows] = np.linalg.norm(part - center, axis=1)
    return distances


def _of_fewer_classes(
    seen: Indices,
    codes: Indices,
    drawn: Indices,
    most: int,
    rng: np.random.Generator,
) -> Indices:
    """Return samples of at most MOST_CLASSES random classes."""
    classes = np.unique(codes)
    if len(classes) <= MOST_CLASSES:
        return drawn
    chosen = rng.permutation(classes)[:MOST_CLASSES]
    return _draw(seen[np.isin(codes[seen], chosen)], most, rng)


# ---- the clusters ----------------------------------------------------------------------


def _matching_number(Z_seen: Float64, n_seen: int, Z: Float64) -> int:
    """Return the smallest number of clusters of Z that are as narrow as those of seen samples.

    The number is found by bisection on a logarithmic scale, to within an eighth of it. Widths
    are considered equal if they differ by no more than one standard error.
    """
    seen_width, seen_error = _width(Z_seen, n_seen)
    low = 1  # clusters that are too wide
    high = max(2, len(Z) // FEWEST_PER_CLUSTER)
    while high - low > max(1, low // 8):
        if high > 2 * low:
            middle = int(np.sqrt(low * high))
        else:
            middle = (low + high) // 2
        middle = max(middle, low + 1)
        width, error = _width(Z, middle)
        if width <= seen_width + np.hypot(error, seen_error):
            high = middle
        else:
            low = middle
    return max(2, high)


def _width(Z: Float64, k: int) -> tuple[float, float]:
    """Return the mean squared distance to the centers of k clusters, and its standard error."""
    n = len(Z)
    if k >= n:
        return 0.0, 0.0
    model = kmeans(Z, k, N_STARTS_JUDGE)
    squares = ((Z - model.cluster_centers_[model.labels_]) ** 2).sum(axis=1)
    # k centers were fitted to the samples
    return float(squares.sum() / (n - k)), float(squares.std() * np.sqrt(n) / (n - k))
