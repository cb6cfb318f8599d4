"""Nearest-neighbour graphs and their spectral embedding."""

from __future__ import annotations

import warnings

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.csgraph import connected_components, dijkstra
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh, lobpcg, splu
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors

__all__ = ["mean_distance", "nearest_neighbors", "neighbor_graph", "spectral_embedding"]

ROWS_FOR_WIDTH = 3000  # rows used to estimate the mean distance, as in the original
DENSE_LIMIT = 1000  # up to this size a dense eigendecomposition is quicker and exact
FACTOR_LIMIT = 20_000  # up to this size I - N may be factorised if Lanczos is too slow
LANCZOS_RESTARTS = 60  # of some 40 products each: plenty where Lanczos is the right tool
SMALLEST_WEIGHT = 1e-200  # a heat weight that underflows stays an edge, if a weak one
SMALLEST_COUPLING = 1e-12  # step probability below which two pieces count as separate


def nearest_neighbors(X: np.ndarray, p: int) -> tuple[np.ndarray, np.ndarray]:
    """Return squared distances and indices (n, p) of the p nearest other rows of X.

    Nearest first; equal distances go to the lower index, as in the original program
    (hence a few spare neighbours are fetched). A row is never its own neighbour.
    """
    n = X.shape[0]
    p = min(p, n - 1)
    spare = min(n - 1, p + 10)
    finder = NearestNeighbors(n_neighbors=spare, algorithm="brute").fit(X)
    distance, index = finder.kneighbors()
    squared = np.asarray(distance, dtype=np.float64) ** 2
    order = np.lexsort((index, squared), axis=1)[:, :p]
    return np.take_along_axis(squared, order, 1), np.take_along_axis(index, order, 1)


def mean_distance(X: np.ndarray, rng: np.random.RandomState) -> float:
    """Return the mean of all n² Euclidean distances between rows, zeros included.

    Above 3,000 rows it is estimated on 3,000 of them, drawn by ``rng``.
    """
    if X.shape[0] > ROWS_FOR_WIDTH:
        X = X[rng.choice(X.shape[0], ROWS_FOR_WIDTH, replace=False)]
    return float(euclidean_distances(X).mean(dtype=np.float64))


def neighbor_graph(
    squared: np.ndarray, index: np.ndarray, width: float | None = None
) -> sp.csr_array:
    """Return the symmetric union graph W (n, n) of neighbour lists (n, p).

    Weights are 1, or ``exp(-distance² / (2 width²))`` when a heat ``width`` is given.
    """
    n, p = index.shape
    weights = np.ones(squared.shape)
    if width is not None:
        weights = np.maximum(np.exp(-squared / (2.0 * width**2)), SMALLEST_WEIGHT)
    rows = np.repeat(np.arange(n), p)
    W = sp.csr_array((weights.ravel(), (rows, index.ravel())), shape=(n, n))
    return W.maximum(W.T).tocsr()


def spectral_embedding(
    W: sp.csr_array, n_components: int, random_state: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the smoothest non-trivial solutions of ``(D - W) y = λ D y``.

    Parameters
    ----------
    W : sparse array of shape (n, n)
        Symmetric non-negative weights without self-loops; every row has an edge.
    n_components : int
        Number K of coordinates wanted; fewer come back if W has fewer.

    Returns
    -------
    embedding : ndarray of shape (n, K)
        ``embedding.T @ D @ embedding = I``, every column D-orthogonal to the constant.
    eigenvalues : ndarray of shape (K,)
        Of the normalised weights ``D^-1/2 W D^-1/2``, largest first.

    Notes
    -----
    With q components the eigenvalue 1 has multiplicity q and any rotation of its
    eigenvectors is as good. The rotation is fixed here: indicators of the components,
    largest first (ties by lowest row), made orthogonal to the constant and to each other
    in that order. The original keeps what its eigensolver happens to return. Pieces that
    are coupled by no more than rounding, as with a narrow heat kernel, count as components.
    """
    n_components = min(n_components, W.shape[0] - 1)
    root = np.sqrt(np.asarray(W.sum(axis=1)).ravel())
    s = 1.0 / root
    N = sp.csr_array(sp.diags_array(s) @ W @ sp.diags_array(s))
    N = N.maximum(N.T)
    labels, q = _components_by_size(W)
    if q > 1:
        warnings.warn(
            f"The neighbour graph falls into {q} components: the first "
            f"{min(q - 1, n_components)} coordinates only tell components apart. Raise "
            "n_neighbors (or heat_width, if you set it) for a connected graph.",
            UserWarning,
            stacklevel=3,
        )
    V = _component_vectors(labels, q, root)
    first = _indicator_block(labels, q, root, min(n_components, q - 1))
    rest, values = _next_eigenvectors(N, V, n_components - first.shape[1], random_state)
    values = np.concatenate([np.ones(first.shape[1]), values])
    U = np.hstack([first, rest])
    keep = np.abs(values) >= 1e-6
    return s[:, None] * U[:, keep], values[keep]


def _components_by_size(W: sp.csr_array) -> tuple[np.ndarray, int]:
    """Return component labels (n,), 0 for the largest, and their number.

    Think of a random walk on W whose steps of probability below 1e-12 never happen (the
    eigenvalues of pieces coupled by less cannot be told from 1; the original draws the same
    line). A component is what the walk cannot leave, with the rows from which it gets there,
    each on its most probable way.
    """
    n = W.shape[0]
    steps = W.tocoo()
    probability = steps.data / np.asarray(W.sum(axis=1)).ravel()[steps.row]
    likely = probability >= SMALLEST_COUPLING
    start, end, probability = steps.row[likely], steps.col[likely], probability[likely]
    walk = sp.csr_array((probability, (start, end)), shape=(n, n))
    _, part = connected_components(walk, connection="strong")
    leaves = np.zeros(n, dtype=bool)  # of a part: the walk can get out
    leaves[part[start[part[start] != part[end]]]] = True
    ends, first = np.unique(np.where(leaves[part], n, part), return_index=True)
    first = np.sort(first[ends < n])  # the lowest row of each component
    # costs of the way back, with a trifle for certain steps: 0 would be no edge
    backwards = sp.csr_array((1e-9 - np.log(probability), (end, start)), shape=(n, n))
    _, _, source = dijkstra(backwards, indices=first, min_only=True, return_predecessors=True)
    labels = np.searchsorted(first, source)
    sizes = np.bincount(labels, minlength=len(first))
    # components are numbered by first row, so a stable sort breaks ties by lowest row
    position = np.empty(len(first), dtype=np.intp)
    position[np.argsort(-sizes, kind="stable")] = np.arange(len(first))
    return position[labels], len(first)


def _component_vectors(labels: np.ndarray, q: int, root: np.ndarray) -> sp.csr_array:
    """Return the unit vectors D^1/2 1_component, one sparse column (n, q) each."""
    norms = np.sqrt(np.bincount(labels, weights=root**2, minlength=q))
    n = len(labels)
    return sp.csr_array((root / norms[labels], (np.arange(n), labels)), shape=(n, q))


def _indicator_block(
    labels: np.ndarray, q: int, root: np.ndarray, n_vectors: int
) -> np.ndarray:
    """Return ``n_vectors`` (≤ q-1) orthonormal eigenvectors of eigenvalue 1, none constant.

    Everything happens in the q-dimensional space of component indicators.
    """
    mass = np.sqrt(np.bincount(labels, weights=root**2, minlength=q))
    trivial = mass / np.linalg.norm(mass)
    basis, _ = np.linalg.qr(np.column_stack([trivial, np.eye(q, n_vectors)]))
    coefficients = basis[:, 1 : n_vectors + 1]
    return coefficients[labels] * (root / mass[labels])[:, None]


def _next_eigenvectors(
    N: sp.csr_array, V: sp.csr_array, n_vectors: int, random_state: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return eigenvectors of the largest eigenvalues of N orthogonal to V, and the values.

    ``N - 2VVᵀ`` moves the eigenvalues 1 of V to -1, the far end of the spectrum.
    """
    n = N.shape[0]
    n_vectors = min(n_vectors, n - V.shape[1])
    if n_vectors < 1:
        return np.empty((n, 0)), np.empty(0)
    if n <= DENSE_LIMIT or n_vectors > n // 4:
        dense = N.toarray() - 2.0 * (V @ V.T).toarray()
        values, U = scipy.linalg.eigh(dense, subset_by_index=[n - n_vectors, n - 1])
        return U[:, ::-1], values[::-1]
    start = np.random.RandomState(random_state).uniform(-1, 1, n)
    deflated = LinearOperator(
        N.shape,
        dtype=np.float64,
        matvec=lambda x: N @ x - 2.0 * (V @ (V.T @ x)),
        matmat=lambda X: N @ X - 2.0 * (V @ (V.T @ X)),
    )
    values, U = _lanczos(deflated, n_vectors, start)
    if len(values) < n_vectors and n <= FACTOR_LIMIT:
        values, U = _shift_invert(N, V, n_vectors, start)
    if len(values) < n_vectors:
        values, U = _approximate(deflated, n_vectors, start)
    order = np.argsort(-values, kind="stable")
    return U[:, order], values[order]


def _lanczos(
    operator: LinearOperator, n_vectors: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest eigenvalues and vectors, or fewer where Lanczos is too slow."""
    n = operator.shape[0]
    ncv = min(n - 1, max(2 * n_vectors + 1, 40))
    try:
        return eigsh(
            operator,
            n_vectors,
            which="LA",
            v0=start,
            ncv=ncv,
            tol=1e-8,
            maxiter=LANCZOS_RESTARTS,
        )
    except ArpackNoConvergence as error:
        return error.eigenvalues, error.eigenvectors


def _shift_invert(
    N: sp.csr_array, V: sp.csr_array, n_vectors: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The same by Lanczos on ``((1 + 1e-6) I - N)⁻¹``, which pulls crowded values apart.

    V spans an invariant subspace, so it is simply projected out.
    """
    shifted = sp.csc_array((1.0 + 1e-6) * sp.eye_array(N.shape[0]) - N)
    factor = splu(  # symmetric and diagonally dominant: no pivoting
        shifted,
        permc_spec="MMD_AT_PLUS_A",
        diag_pivot_thresh=0.0,
        options={"SymmetricMode": True},
    )

    def solve(x: np.ndarray) -> np.ndarray:
        x = factor.solve(x - V @ (V.T @ x))
        return x - V @ (V.T @ x)

    inverse = LinearOperator(N.shape, dtype=np.float64, matvec=solve)
    values, U = _lanczos(inverse, n_vectors, start)
    return 1.0 + 1e-6 - 1.0 / values, U


def _approximate(
    operator: LinearOperator, n_vectors: int, start: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Return the best approximation that a bounded number of LOBPCG steps gives."""
    block = np.random.RandomState(0).uniform(-1, 1, (len(start), n_vectors))
    block[:, 0] = start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ours below says more
        values, U = lobpcg(operator, block, largest=True, tol=1e-6, maxiter=200)
    residual = np.linalg.norm(operator @ U - U * values, axis=0).max()
    if residual > 1e-4:
        warnings.warn(
            f"The {n_vectors} eigenvectors of the neighbour graph are approximate (residual "
            f"{residual:.1e}): its pieces hang together by very little. Raise n_neighbors or "
            "heat_width, or lower n_components.",
            UserWarning,
            stacklevel=5,
        )
    return values, U
