"""Clusters of unlabeled samples, which `SemFS` takes for classes of their own.

Steps, all in the leading principal components of seen and unlabeled samples together:

1. *Distance.* Directions in which samples of one seen class differ anyway say little about
   other classes. The space is whitened by the covariance within the seen classes if it clearly
   helps K-means to find seen classes that were held out.
2. *Number.* Unless it is given, it is the smallest number of clusters that are as narrow as
   clusters of the seen samples, one for each seen class, are.
3. *Clusters.* K-means, the best of several starts.

Samples are sorted before anything is drawn at random, so that their order does not matter.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.covariance import shrunk_covariance
from sklearn.decomposition import PCA
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.arrays import batches, quiet_overflow
from semfs.evaluation import normalized_mutual_info
from semfs.labels import LEFT_OUT
from semfs.method.batches import OffsetMatrix, stacked_offset_matrices
from semfs.validation import refuse_nonfinite

#: Principal components to cluster in.
N_COMPONENTS = 32
#: Power iterations of the randomized PCA; with 4 the leading 32 components of real data agree
#: with those of the exact one to a few digits.
N_POWER_ITERATIONS = 4
#: Starts of K-means: for the clusters themselves, and to judge a distance or a number.
N_STARTS = 10
N_STARTS_JUDGE = 3
#: With many clusters there are fewer starts, of at most this many points in all: one start of
#: 300 clusters takes as long as ten of 30, and starts differ less in what they find.
MOST_STARTING_POINTS = 300
#: From this number of clusters on, k-means++ draws one point at a time and not the best of
#: several, which would take most of the time.
MANY_CLUSTERS = 50
#: Times that the seen classes are cut into halves to judge the distance.
N_HALVES = 3
#: At most this many seen classes judge distance and number: many samples of 40 classes say more
#: about the width of a class than a few samples of all of them.
MOST_CLASSES = 40
#: Fewer seen classes cannot be cut into two halves of two classes.
FEWEST_CLASSES_TO_JUDGE = 4
#: Clusters have at least this many samples on average.
FEWEST_PER_CLUSTER = 5
#: A sample is ignored if it is this many times as far from the center as the median sample:
#: it would be a cluster by itself, and its squares would drown all others.
FARTHEST = 100.0
#: Samples this many times as far away as the seen ones are in another unit.
OTHER_UNIT = 1e6
#: Samples whose distances from the center are computed at once.
BATCH = 1024


@dataclass(frozen=True)
class SampleSizes:
    """At most this many samples take part in a step: a fixed random choice of them."""

    components: int = 2000  # of either kind, for principal components and the distance
    number: int = 2000  # unlabeled ones, for the number of clusters
    clustered: int = 20_000  # unlabeled ones; the others join the nearest cluster


DEFAULT_SIZES = SampleSizes()
#: Unlabeled samples that are clustered; the others join the nearest cluster.
LARGEST_SAMPLE = DEFAULT_SIZES.clustered


@dataclass(frozen=True)
class Clusters:
    """Centers of clusters in a space that samples are projected to."""

    centers: Float64  # (K, p)
    directions: Float64  # (d, p) of the projection Z = X @ directions - offset
    offset: Float64  # (p,)
    radius: float  # samples farther from the origin of Z are ignored
    whitened: bool  # whether distances take account of the scatter within the seen classes
    #: (B, p), what to subtract from Z of a sample of each batch; None if there are no batches
    batch_offsets: Float64 | None = None

    def assign(self, X: Matrix, batches: Indices | None = None) -> Indices:
        """Return the nearest cluster (n,) of samples X (n, d), LEFT_OUT if it is far away."""
        return self.nearest(self.project(X), batches)

    def with_batches(self, offsets: Float64) -> "Clusters":
        """Return the clusters for samples from which offsets (B, d) must be removed."""
        return replace(self, batch_offsets=offsets @ self.directions)

    def project(self, X: Matrix, columns: slice = slice(None)) -> Float64:
        """Return what some columns X (n, g) of the samples contribute to X @ directions."""
        with np.errstate(over="ignore", invalid="ignore"):
            products = _project(X, self.directions[columns])
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

    ``n_clusters`` is a number, or "auto" for one that follows from the width of seen classes.
    Returns the clusters, and that of each unlabeled sample, LEFT_OUT if it is far from others.
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
    directions, offset = _principal_directions(X_seen[few_seen], X_unlabeled[few_unlabeled])

    # distances near 1 in any unit of X: their fourth powers are squares of widths
    unit = _unit_of(X_seen[few_seen], directions, offset)
    directions = directions / unit
    offset = offset / unit

    few_seen = _of_fewer_classes(seen, codes, few_seen, sizes.components, rng)
    Z_seen = _project(X_seen[few_seen], directions) - offset
    # numbered from 0 among the classes that were drawn
    seen_codes = np.unique(codes[few_seen], return_inverse=True)[1]
    clustered = _draw(unlabeled, sizes.clustered, rng)
    # several threads of K-means would add up centers in an order that changes from run to run
    with threadpool_limits(1, user_api="openmp"):
        whitening = _helpful_whitening(Z_seen, seen_codes, rng)
        if whitening is not None:
            directions = directions @ whitening
            offset = offset @ whitening
            Z_seen = Z_seen @ whitening
        Z = _project_in_batches(X_unlabeled, clustered, directions) - offset
        if n_clusters == "auto":
            judged = Z[_draw(np.arange(len(Z)), sizes.number, rng)]
            n_clusters = _matching_number(Z_seen, seen_codes.max() + 1, judged)
        model = _kmeans(Z, int(n_clusters), N_STARTS)

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
    labels[others] = clusters.nearest(_project_in_batches(X_unlabeled, others, directions))
    return clusters, labels


# ---- which samples ---------------------------------------------------------------------


def _sorted_samples(X: Matrix, key: Float64) -> Indices:
    """Positions (n,) of the samples, sorted by their product with a random vector (d, 1)."""
    return np.argsort(_project(X, key).ravel(), kind="stable")


def _draw(samples: Indices, most: int, rng: np.random.Generator) -> Indices:
    """Return at most ``most`` of the samples: all in their order, or some in random order."""
    if len(samples) <= most:
        return samples
    return rng.permutation(samples)[:most]


def _near(X_seen: Matrix, X: Matrix) -> Mask:
    """Which samples X (n, d) are not far away from all others, by their distance from the mean.

    Raises if most of them are so far from the seen samples that they must be in another unit.
    """
    center = np.asarray(X_seen.mean(axis=0, dtype=np.float64)).ravel()
    distances = _distances(X, center)
    typical_seen = float(np.median(_distances(X_seen, center)))
    typical = float(np.median(distances))
    if typical_seen > 0.0 and not typical <= OTHER_UNIT * typical_seen:
        raise ValueError(
            "The values of the unlabeled samples are far larger than those of X. "
            "Give both in the same unit."
        )
    limit = FARTHEST * max(typical, typical_seen)
    return distances <= limit if limit > 0.0 else np.ones(len(distances), dtype=bool)


@quiet_overflow
def _distances(X: Matrix, center: Float64) -> Float64:
    """Distances (n,) of samples X (n, d) from the center (d,)."""
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
    """Return samples of at most MOST_CLASSES classes; if there are no more, those drawn."""
    classes = np.unique(codes)
    if len(classes) <= MOST_CLASSES:
        return drawn
    chosen = rng.permutation(classes)[:MOST_CLASSES]
    return _draw(seen[np.isin(codes[seen], chosen)], most, rng)


# ---- the space -------------------------------------------------------------------------


def _project(X: Matrix, directions: Float64) -> Float64:
    """Return X @ directions in float64, multiplied in the precision of X."""
    return np.asarray(X @ directions.astype(X.dtype), dtype=np.float64)


def _unit_of(X: Matrix, directions: Float64, offset: Float64) -> float:
    """The power of two next to the largest coordinate of X (n, d), 1 if all are zero.

    Division by a power of two changes no digit.
    """
    largest = float(np.abs(_project(X, directions) - offset).max())
    exponent = np.frexp(largest)[1]
    return float(np.ldexp(1.0, exponent)) if largest > 0.0 else 1.0


def _project_in_batches(X: Matrix, samples: Indices, directions: Float64) -> Float64:
    """Return X[samples] @ directions (n, p) without a copy of all samples."""
    Z = np.empty((len(samples), directions.shape[1]))
    for rows in batches(len(samples), BATCH):
        Z[rows] = _project(X[samples[rows]], directions)
    return Z


def _principal_directions(X_seen: Any, X_unlabeled: Any) -> tuple[Float64, Float64]:
    """Leading principal directions (d, p) of all samples, and the image (p,) of their mean."""
    X: Any
    if isinstance(X_seen, OffsetMatrix):
        corrected = stacked_offset_matrices([X_seen, X_unlabeled])
        if corrected.sparse and min(corrected.shape) > N_COMPONENTS:
            return _sparse_principal_directions(corrected)
        X = corrected.toarray()
    elif sp.issparse(X_seen):
        X = sp.vstack([X_seen, sp.csr_array(X_unlabeled)], format="csr")
    else:
        others: Any = X_unlabeled
        X = np.concatenate([X_seen, others.toarray() if sp.issparse(others) else others])
    n, d = X.shape
    p = min(N_COMPONENTS, d, n - 1)
    if sp.issparse(X) and p >= min(n, d):
        X = X.toarray()  # which is small, and ARPACK finds fewer components than there are
    model = PCA(p, svd_solver="auto", iterated_power=N_POWER_ITERATIONS, random_state=0)
    # Threads slow its many small factorizations down. Shares of a variance of 0 are not finite.
    with (
        threadpool_limits(1, user_api="blas"),
        np.errstate(invalid="ignore", divide="ignore"),
    ):
        model.fit(X)
    directions = model.components_.T.astype(np.float64)
    return directions, model.mean_ @ directions


def _sparse_principal_directions(X: OffsetMatrix) -> tuple[Float64, Float64]:
    """The same of sparse samples minus their batches' offsets, which stay sparse.

    As in scikit-learn's PCA of sparse data: ARPACK needs only products with the matrix.
    """
    n, d = X.shape
    mean = X.mean()

    def product(v: Float64) -> Float64:
        v = v.reshape(d, -1)
        return X @ v - mean @ v

    def transposed_product(v: Float64) -> Float64:
        v = v.reshape(n, -1)
        return X.transposed_product(v) - np.outer(mean, v.sum(axis=0))

    operator = LinearOperator(
        (n, d),
        matvec=product,
        rmatvec=transposed_product,
        matmat=product,
        rmatmat=transposed_product,
        dtype=np.float64,
    )
    # as scikit-learn starts ARPACK, so that the answer is always the same
    start = np.random.RandomState(0).uniform(-1.0, 1.0, min(n, d))
    with threadpool_limits(1, user_api="blas"):
        _, _, components = svds(operator, k=min(N_COMPONENTS, d, n - 1), v0=start)
    directions = components[::-1].T  # ARPACK's are in ascending order
    return directions, mean @ directions


def _helpful_whitening(Z: Float64, codes: Indices, rng: np.random.Generator) -> Float64 | None:
    """The whitening (p, p) by the scatter within the seen classes, or None if it does not help.

    It is learned on one half of the classes, and judged by how well K-means finds the classes
    of the other half. Its mean gain must exceed the standard deviation of the gains: halves
    overlap, so that more of them do not make the mean more certain. That is so on aPascal,
    where whitening helps, and hardly on cells and texts, where it hurts or does nothing.
    """
    n_classes = codes.max() + 1
    if n_classes < FEWEST_CLASSES_TO_JUDGE:
        return None
    gains = []
    for _ in range(N_HALVES):
        first, second = np.array_split(rng.permutation(n_classes), 2)
        gains.append(_gain_of_whitening(Z, codes, first, second))
        gains.append(_gain_of_whitening(Z, codes, second, first))
    if np.mean(gains) <= np.std(gains, ddof=1):
        return None
    return _within_class_whitening(Z, codes)


def _gain_of_whitening(Z: Float64, codes: Indices, learn: Indices, judge: Indices) -> float:
    """How much better K-means finds classes after whitening by the scatter within others."""
    whitening = _within_class_whitening(*_samples_of(Z, codes, learn))
    if whitening is None:
        return 0.0
    Z_judge, judge_codes = _samples_of(Z, codes, judge)
    plain = _agreement(Z_judge, judge_codes)
    return _agreement(Z_judge @ whitening, judge_codes) - plain


def _samples_of(Z: Float64, codes: Indices, classes: Indices) -> tuple[Float64, Indices]:
    """Samples of some classes, and their classes numbered from 0."""
    rows = np.isin(codes, classes)
    return Z[rows], np.unique(codes[rows], return_inverse=True)[1]


def _within_class_whitening(Z: Float64, codes: Indices) -> Float64 | None:
    """Inverse square root (p, p) of the covariance within classes, half way to spherical.

    None if the samples of each class are all the same, as classes of one sample are.
    """
    counts = np.bincount(codes)
    means = np.zeros((len(counts), Z.shape[1]))
    np.add.at(means, codes, Z)
    means /= counts[:, None]
    residuals = Z - means[codes]
    if np.abs(residuals).max() <= 1e-9 * np.abs(Z).max():
        return None
    # a few samples per class leave small eigenvalues uncertain
    covariance = shrunk_covariance(residuals.T @ residuals / len(Z), shrinkage=0.5)
    values, vectors = np.linalg.eigh(covariance)
    return (vectors / np.sqrt(values)) @ vectors.T


def _agreement(Z: Float64, codes: Indices) -> float:
    """Normalized mutual information of the classes and as many clusters."""
    model = _kmeans(Z, codes.max() + 1, N_STARTS_JUDGE)
    return normalized_mutual_info(codes, model.labels_)


# ---- the clusters ----------------------------------------------------------------------


def _matching_number(Z_seen: Float64, n_seen: int, Z: Float64) -> int:
    """The smallest number of clusters of Z that are as narrow as those of the seen samples.

    Bisection on a logarithmic scale, to an eighth of the number. Widths are the same if they
    differ by no more than one standard error.
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
    """Mean squared distance from the centers of k clusters, and its standard error."""
    n = len(Z)
    if k >= n:
        return 0.0, 0.0
    model = _kmeans(Z, k, N_STARTS_JUDGE)
    squares = ((Z - model.cluster_centers_[model.labels_]) ** 2).sum(axis=1)
    # k centers were fitted to the samples
    return float(squares.sum() / (n - k)), float(squares.std() * np.sqrt(n) / (n - k))


def _kmeans(Z: Float64, k: int, n_starts: int) -> KMeans:
    """K-means with k clusters, or with as many as there are samples."""
    n_starts = max(1, min(n_starts, MOST_STARTING_POINTS // k))
    init = _plain_starts if k >= MANY_CLUSTERS else "k-means++"
    model = KMeans(min(k, len(Z)), init=init, n_init=n_starts, random_state=0)
    with warnings.catch_warnings():
        # fewer different samples than clusters: empty clusters are dropped afterward
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(Z)


def _plain_starts(Z: Float64, k: int, random_state: np.random.RandomState) -> Float64:
    """Starting points (k, p) of k-means++, each drawn once."""
    centers: Float64 = kmeans_plusplus(Z, k, random_state=random_state, n_local_trials=1)[0]
    return centers
