"""Nearest-neighbour graphs and their spectral embedding."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

__all__ = ["mean_distance", "nearest_neighbors", "neighbor_graph", "spectral_embedding"]

ROWS_FOR_WIDTH = 3000  # rows used to estimate the mean distance, as in the original
DENSE_LIMIT = 3000  # rows up to which the eigendecomposition is dense, and exact
LANCZOS_RESTARTS = 300  # of some 40 products each
SMALLEST_WEIGHT = 1e-200  # a heat weight that underflows stays an edge, if a weak one


def nearest_neighbors(X: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return distances and indices (n, p) of the p nearest other rows of X, nearest first.

    Equal distances go to the lower index, as in the original program (hence a few spare
    neighbours are fetched). A row is never its own neighbour.
    """
    n = X.shape[0]
    p = min(p, n - 1)
    finder = NearestNeighbors(n_neighbors=min(n - 1, p + 10), algorithm="brute").fit(X)
    distance, index = finder.kneighbors()
    distance = np.asarray(distance, dtype=np.float64)
    order = np.lexsort((index, distance), axis=1)[:, :p]
    return np.take_along_axis(distance, order, 1), np.take_along_axis(index, order, 1)


def mean_distance(X: np.ndarray, rng: np.random.RandomState) -> float:
    """Return the mean of all n² distances between rows, or those of 3,000 drawn by ``rng``."""
    if X.shape[0] > ROWS_FOR_WIDTH:
        X = X[rng.choice(X.shape[0], ROWS_FOR_WIDTH, replace=False)]
    return float(euclidean_distances(X).mean(dtype=np.float64))


def neighbor_graph(
    distance: np.ndarray, index: np.ndarray, width: float | None = None
) -> sp.csr_array:
    """Return the symmetric union graph W (n, n) of neighbour lists (n, p).

    Weights are 1, or ``exp(-distance² / (2 width²))`` when a heat ``width`` is given.
    """
    n, p = index.shape
    weights = np.ones(distance.shape)
    if width is not None:
        weights = np.maximum(np.exp(-((distance / width) ** 2) / 2.0), SMALLEST_WEIGHT)
    rows = np.repeat(np.arange(n), p)
    W = sp.csr_array((weights.ravel(), (rows, index.ravel())), shape=(n, n))
    return W.maximum(W.T).tocsr()


def spectral_embedding(W: sp.csr_array, n_components: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the smoothest non-trivial solutions y (n, K) of ``(D - W) y = λ D y``.

    Also their eigenvalues (K,) of ``D^-1/2 W D^-1/2``, largest first. K is ``n_components``,
    or less if W (symmetric, an edge in every row) has fewer. With q components of the graph
    the eigenvalue 1 has multiplicity q and any rotation of its eigenvectors is as good. It is
    fixed here: indicators of the components, largest first, made orthogonal to the constant
    and to each other in that order.
    """
    n = W.shape[0]
    n_components = min(n_components, n - 1)
    root = np.sqrt(W.sum(axis=1))
    scale = sp.diags_array(1.0 / root)
    N = sp.csr_array(scale @ W @ scale)
    V, first = _eigenvectors_of_one(W, root, n_components)
    if V.shape[1] > 1:
        warnings.warn(
            f"The neighbour graph falls into {V.shape[1]} components: the first "
            f"{first.shape[1]} coordinates only tell components apart. Raise n_neighbors (or "
            "heat_width, if you set it) for a connected graph.",
            UserWarning,
            stacklevel=3,
        )
    values, rest = np.empty(0), np.empty((n, 0))
    n_rest = min(n_components - first.shape[1], n - V.shape[1])
    if n_rest > 0:
        values, rest = _next_eigenvectors(N.maximum(N.T), V, n_rest)
    values = np.concatenate([np.ones(first.shape[1]), values[::-1]])
    keep = np.abs(values) >= 1e-6
    return np.hstack([first, rest[:, ::-1]])[:, keep] / root[:, None], values[keep]


def _eigenvectors_of_one(
    W: sp.csr_array, root: np.ndarray, n_vectors: int
) -> tuple[sp.csr_array, np.ndarray]:
    """Return the eigenvectors of eigenvalue 1: all q, sparse, and up to ``n_vectors`` to use.

    The former are the unit vectors D^1/2 1_component, the largest component first. The
    latter, at most q - 1, are orthonormal and orthogonal to D^1/2 1.
    """
    q, labels = connected_components(W, directed=False)  # numbered by their first row
    labels = np.argsort(np.argsort(-np.bincount(labels), kind="stable"))[labels]
    mass = np.sqrt(np.bincount(labels, weights=root**2))
    V = sp.csr_array((root / mass[labels], (np.arange(len(labels)), labels)))
    n_vectors = min(n_vectors, q - 1)
    basis, _ = np.linalg.qr(np.column_stack([mass, np.eye(q, n_vectors)]))
    return V, V @ basis[:, 1:]


def _next_eigenvectors(
    N: sp.csr_array, V: sp.csr_array, n_vectors: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues of N, ascending, with eigenvectors orthogonal to V.

    ``N - 2VVᵀ`` moves the eigenvalues 1 of V to -1, the far end of the spectrum.
    """
    n = N.shape[0]
    if n <= DENSE_LIMIT or n_vectors > n // 4:
        dense = N.toarray() - 2.0 * (V @ V.T).toarray()
        return scipy.linalg.eigh(dense, subset_by_index=[n - n_vectors, n - 1])
    deflated = LinearOperator(
        N.shape, lambda x: N @ x - 2.0 * (V @ (V.T @ x)), dtype=np.float64
    )
    start = np.random.RandomState(0).uniform(-1, 1, n)
    size = {"ncv": min(n - 1, max(2 * n_vectors + 1, 40)), "maxiter": LANCZOS_RESTARTS}
    try:
        values, U = eigsh(deflated, n_vectors, which="LA", v0=start, tol=1e-8, **size)
    except ArpackNoConvergence as error:
        values, U = error.eigenvalues, error.eigenvectors
        warnings.warn(
            f"Only {len(values)} of {n_vectors} eigenvectors of the neighbour graph were "
            "found: its pieces hang together by very little. Raise n_neighbors or heat_width, "
            "lower n_components, or pass at most 3,000 rows.",
            UserWarning,
            stacklevel=4,
        )
    ascending = np.argsort(values)
    return values[ascending], U[:, ascending]
