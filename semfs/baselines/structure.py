"""The alternating steps of FSASL: codes, neighbour probabilities, embedding, weights.

Rows of Z are the projected samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from semfs.baselines.codes import codes_as_released, exact_codes
from semfs.baselines.fitting import gram_matrix
from semfs.baselines.graph import mean_distance, nearest_neighbors, neighbor_graph

__all__ = [
    "Structure",
    "StructureOptions",
    "learn_structure",
    "neighbor_probabilities",
    "neighborhood_scale",
    "project_to_simplex",
    "row_sparse_ridge",
    "smallest_eigenvectors",
    "structure_laplacian",
]

DENSE_LIMIT = 4000  # samples up to which the n × n Laplacian is formed densely
EIGH_LIMIT = 1000  # samples up to which it is decomposed in full
IRLS_ROUNDS = 10
IRLS_EPS = 2.2e-16

Matrix = Any  # ndarray or scipy sparse array


@dataclass(frozen=True)
class StructureOptions:
    """Parameters of `learn_structure`, named as in `semfs.baselines.FSASL`."""

    n_components: int
    n_neighbors: int
    lambda2: float
    lambda3: float
    ratio: float
    max_iter: int
    released: bool  # stop the inner lassos where the released program does
    adaptive: bool  # estimate μ anew in every round
    candidates: int | None
    patience: int | None  # rounds with the same k features before stopping
    k: int


@dataclass(frozen=True)
class Structure:
    """Result of `learn_structure`: weights W (d, c), objective after each round, last μ."""

    W: np.ndarray
    objective: np.ndarray
    mu: float


def learn_structure(
    X: np.ndarray,
    options: StructureOptions,
    rng: np.random.RandomState,
    report: Callable[[str], None],
) -> Structure:
    """Alternate codes, neighbour probabilities, embedding and weights.

    The order of the steps, and what is different in the first round, is the released
    program's: see `semfs.baselines.FSASL`.
    """
    p = options.n_neighbors
    squared, index = nearest_neighbors(X, p + 1)
    mu = neighborhood_scale(squared, p)
    solve_weights = row_sparse_ridge(X, options.lambda3)
    Z, S, objective = X, None, []
    selected, unchanged = np.empty(0, dtype=np.intp), 0
    for t in range(options.max_iter):
        if t > 0 or options.max_iter < 5:
            S = _codes(Z, options)
        if t == 0:
            width = mean_distance(X, rng)
            P = neighbor_graph(squared[:, :p], index[:, :p], width or None)
        else:
            near, index = nearest_neighbors(Z, p + 1)
            mu = neighborhood_scale(near, p) if options.adaptive else mu
            P = neighbor_probabilities(near[:, :p], index[:, :p], mu)
        L = structure_laplacian(S, P, options.lambda2)
        W = solve_weights(smallest_eigenvectors(L, options.n_components))
        Z = np.asarray(X @ W.astype(X.dtype), dtype=np.float64)
        objective.append(_objective(Z, L, S, P, W, mu, options))
        report(f"objective {objective[-1]:.6g}")
        top = np.sort(np.argsort(-np.linalg.norm(W, axis=1), kind="stable")[: options.k])
        unchanged = unchanged + 1 if np.array_equal(top, selected) else 0
        selected = top
        if options.patience is not None and unchanged >= options.patience:
            break
    return Structure(W, np.array(objective), mu)


def _codes(Z: np.ndarray, options: StructureOptions) -> Matrix:
    if options.released:
        return codes_as_released(Z, options.ratio)
    return exact_codes(Z, options.ratio, options.candidates)


def _objective(
    Z: np.ndarray,
    L: Matrix,
    S: Matrix | None,
    P: sp.csr_array,
    W: np.ndarray,
    mu: float,
    options: StructureOptions,
) -> float:
    """Return the value printed by the released program (not the paper's objective)."""
    P_bar = 0.5 * (P + P.T)
    value = np.vdot(Z, L @ Z) + options.lambda2 * mu * (P_bar.data**2).sum()
    if S is not None:
        value += options.ratio * np.abs(S).sum()
    return float(value + options.lambda3 * np.linalg.norm(W, axis=1).sum())


def neighborhood_scale(squared: np.ndarray, p: int) -> float:
    """Return μ from the squared distances (n, ≥ p+1) to the nearest other rows.

    The mean over rows of ``½ (p d_(p+1) - Σ_{r≤p} d_(r))``, with which exactly p
    neighbours would have a positive probability.
    """
    last = squared[:, min(p, squared.shape[1] - 1)]
    return float(np.mean(0.5 * (p * last - squared[:, :p].sum(axis=1))))


def neighbor_probabilities(
    squared: np.ndarray, index: np.ndarray, scale: float
) -> sp.csr_array:
    """Return P (n, n): each row a distribution over its p nearest rows."""
    n, p = index.shape
    scale = max(scale, 1e-12 * squared.max(), 1e-300)  # μ = 0 when all neighbours are equal
    weights = project_to_simplex(-squared / (2.0 * scale))
    rows = np.repeat(np.arange(n), p)
    return sp.csr_array((weights.ravel(), (rows, index.ravel())), shape=(n, n))


def project_to_simplex(V: np.ndarray) -> np.ndarray:
    """Return the nearest point of the probability simplex to each row of V (n, p).

    Examples
    --------
    >>> project_to_simplex(np.array([[0.5, 0.2, -0.1]])).round(6)
    array([[0.633333, 0.333333, 0.033333]])
    """
    ordered = -np.sort(-V, axis=1)
    tau = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, V.shape[1] + 1)
    last = V.shape[1] - 1 - np.argmax((ordered > tau)[:, ::-1], axis=1)
    return np.maximum(V - tau[np.arange(len(V)), last][:, None], 0.0)


def structure_laplacian(S: Matrix | None, P: sp.csr_array, lambda2: float) -> Matrix:
    """Return ``L = (I-S)(I-S)ᵀ + λ2 (diag(P̄1) - P̄)``, dense for a moderate n."""
    n = P.shape[0]
    P_bar = 0.5 * (P + P.T)
    L = lambda2 * (sp.diags_array(np.asarray(P_bar.sum(axis=1)).ravel()) - P_bar)
    if n <= DENSE_LIMIT or isinstance(S, np.ndarray):
        L = L.toarray()
        if S is not None:
            M = np.eye(n) - (S if isinstance(S, np.ndarray) else S.toarray())
            L += M @ M.T
        return L
    if S is not None:
        M = sp.csr_array(sp.eye_array(n) - S)
        L = L + M @ M.T
    return sp.csr_array(L)


def smallest_eigenvectors(L: Matrix, c: int) -> np.ndarray:
    """Return eigenvectors (n, c) of the c smallest eigenvalues of L (n, n)."""
    n = L.shape[0]
    if n <= EIGH_LIMIT or (not sp.issparse(L) and c > n // 10):
        L = L.toarray() if sp.issparse(L) else L
        return scipy.linalg.eigh(L, subset_by_index=[0, c - 1])[1]
    start = np.random.RandomState(0).uniform(-1, 1, n)
    if not sp.issparse(L):
        return _by_shift_invert(L, c, start)
    # A sparse factor would fill in: neighbours of neighbours soon reach everybody. Lanczos
    # at the lower end needs a wide basis because these eigenvalues crowd near 0.
    ncv = min(n - 1, max(4 * c, 100))
    try:
        return eigsh(L, c, which="SA", v0=start, ncv=ncv, tol=1e-5, maxiter=300)[1]
    except ArpackNoConvergence as error:
        if error.eigenvectors.shape[1] > 0:
            return error.eigenvectors
        raise


def _by_shift_invert(L: np.ndarray, c: int, start: np.ndarray) -> np.ndarray:
    """Return the c smallest eigenvectors of a dense L by Lanczos on ``(L + shift)⁻¹``."""
    shift = 1e-4 * float(np.trace(L)) / len(L)
    K = L + shift * np.eye(len(L))
    factor = scipy.linalg.cho_factor(K, overwrite_a=True, check_finite=False)
    inverse = LinearOperator(
        L.shape,
        dtype=np.float64,
        matvec=lambda x: scipy.linalg.cho_solve(factor, x, check_finite=False),
    )
    values, Q = eigsh(inverse, c, which="LA", v0=start, ncv=min(len(L) - 1, 3 * c + 20))
    return Q[:, np.argsort(-values, kind="stable")]


def row_sparse_ridge(X: np.ndarray, r: float) -> Callable[[np.ndarray], np.ndarray]:
    """Return a solver T ↦ W (d, c) of ``‖T - XW‖² + r‖W‖_{2,1}``.

    Ten reweighted ridge solves from equal weights, each with one Cholesky factor: of the
    d × d Gram matrix, or by Woodbury of an n × n matrix when n < d.
    """
    n, d = X.shape
    G = gram_matrix(X) if n >= d else np.empty((0, 0))

    def solve(T: np.ndarray) -> np.ndarray:
        XtT = np.asarray(X.T @ T.astype(X.dtype), dtype=np.float64)
        delta = np.ones(d)
        for _ in range(IRLS_ROUNDS):
            W = _ridge(G, XtT, r * delta) if n >= d else _dual_ridge(X, T, r * delta)
            delta = 1.0 / (2.0 * np.sqrt((W**2).sum(axis=1) + IRLS_EPS))
        return W

    return solve


def _ridge(G: np.ndarray, XtT: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Return (G + diag(penalty))⁻¹ XᵀT."""
    K = np.array(G, order="F")
    K[np.diag_indices_from(K)] += penalty
    return scipy.linalg.solve(K, XtT, assume_a="pos", overwrite_a=True, check_finite=False)


def _dual_ridge(X: np.ndarray, T: np.ndarray, penalty: np.ndarray) -> np.ndarray:
    """Return the same W as R Xᵀ (I + X R Xᵀ)⁻¹ T with R = diag(1/penalty)."""
    root = np.sqrt(1.0 / penalty).astype(X.dtype)
    XR = X * root
    K = np.array(XR @ XR.T, dtype=np.float64, order="F")  # numpy computes one half only
    K[np.diag_indices_from(K)] += 1.0
    dual = scipy.linalg.solve(K, T, assume_a="pos", overwrite_a=True, check_finite=False)
    return np.asarray(root[:, None] * (XR.T @ dual.astype(X.dtype)), dtype=np.float64)
