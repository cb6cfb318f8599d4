"""The space in which samples are clustered: principal components, sometimes whitened."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.sparse.linalg import LinearOperator, svds
from sklearn.covariance import shrunk_covariance
from sklearn.decomposition import PCA
from threadpoolctl import threadpool_limits

from semfs._typing import Float64, Indices, Matrix
from semfs.arrays import batches
from semfs.evaluation import normalized_mutual_info
from semfs.method.batches import OffsetMatrix, stacked_offset_matrices
from semfs.selectors.kmeans import N_STARTS_JUDGE, kmeans

#: Principal components to cluster in.
N_COMPONENTS = 32
#: Power iterations of the randomized PCA; with 4 the leading 32 components of real data agree
#: with those of the exact one to a few digits.
N_POWER_ITERATIONS = 4
#: Times that the seen classes are cut into halves to judge the distance.
N_HALVES = 3
#: Fewer seen classes cannot be cut into two halves of two classes.
FEWEST_CLASSES_TO_JUDGE = 4
#: Samples that are projected at once, or whose distances are computed.
BATCH = 1024


def projected(X: Matrix, directions: Float64) -> Float64:
    """Return X @ directions in float64, multiplied in the precision of X."""
    return np.asarray(X @ directions.astype(X.dtype), dtype=np.float64)


def unit_of(X: Matrix, directions: Float64, offset: Float64) -> float:
    """Return the power of two next to the largest coordinate of X (n, d), or 1 for zeros.

    Division by a power of two is exact.
    """
    largest = float(np.abs(projected(X, directions) - offset).max())
    exponent = np.frexp(largest)[1]
    return float(np.ldexp(1.0, exponent)) if largest > 0.0 else 1.0


def projected_in_batches(X: Matrix, samples: Indices, directions: Float64) -> Float64:
    """Return X[samples] @ directions (n, p) without a copy of all samples."""
    Z = np.empty((len(samples), directions.shape[1]))
    for rows in batches(len(samples), BATCH):
        Z[rows] = projected(X[samples[rows]], directions)
    return Z


def principal_directions(X_seen: Any, X_unlabeled: Any) -> tuple[Float64, Float64]:
    """Return the leading principal directions (d, p) of all samples, and their mean (p,)."""
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
    """Return the same for sparse samples minus batch offsets, without making them dense.

    As in scikit-learn's PCA of sparse data, ARPACK needs only products with the matrix.
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


def helpful_whitening(Z: Float64, codes: Indices, rng: np.random.Generator) -> Float64 | None:
    """Return the whitening (p, p) by the scatter within seen classes, or None if it is no help.

    The whitening is learned on one half of the classes, and judged by how well K-means finds
    the classes of the other half. The mean gain over several halves must exceed the standard
    deviation of the gains, not the standard error, because the halves overlap and more of them
    do not make the mean more certain. The condition holds on aPascal, where whitening helps,
    but hardly on cells and texts, where it hurts or changes little.
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
    """Return how much better K-means finds classes after whitening by the scatter of others."""
    whitening = _within_class_whitening(*_samples_of(Z, codes, learn))
    if whitening is None:
        return 0.0
    Z_judge, judge_codes = _samples_of(Z, codes, judge)
    plain = _agreement(Z_judge, judge_codes)
    return _agreement(Z_judge @ whitening, judge_codes) - plain


def _samples_of(Z: Float64, codes: Indices, classes: Indices) -> tuple[Float64, Indices]:
    """Return the samples of some classes, and their classes numbered from 0."""
    rows = np.isin(codes, classes)
    return Z[rows], np.unique(codes[rows], return_inverse=True)[1]


def _within_class_whitening(Z: Float64, codes: Indices) -> Float64 | None:
    """Return the inverse square root (p, p) of the covariance within classes, shrunk by half.

    The result is None if all samples of each class are equal, for example if each class has one
    sample.
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
    """Return the NMI of the classes and as many clusters."""
    model = kmeans(Z, codes.max() + 1, N_STARTS_JUDGE)
    return normalized_mutual_info(codes, model.labels_)
