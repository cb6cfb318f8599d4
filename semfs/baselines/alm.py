"""Augmented Lagrangian iterations of L20ALM."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from semfs.baselines.fitting import gram_matrix

__all__ = ["AlmResult", "AlmState", "RidgeSystem", "alternate", "keep_top_rows"]

LARGEST_MU = 1e10
LARGEST_MU_FLOAT32 = 1e6  # beyond it float32 loses the multipliers
LARGEST_FLOAT64 = 2**23  # entries of X up to which float32 data are iterated in float64
PATIENCE = 20  # iterations without a change of the support before stopping


@dataclass(frozen=True)
class AlmState:
    """Where the iterations start: the sparse coefficients and the residuals."""

    V: np.ndarray  # (d, c), at most k non-zero rows
    E: np.ndarray  # (n, c)


@dataclass(frozen=True)
class AlmResult:
    """Outcome of `alternate` for one k."""

    state: AlmState
    b: np.ndarray  # (c,), intercept for centred data
    row_norms: np.ndarray  # (d,), of H in the last iteration: ranks the features left out
    objective: np.ndarray  # Σ_i ‖x̃_i V + b - t_i‖ after each iteration
    converged: bool


class RidgeSystem:
    """Minimise ``‖R - XW‖² + ‖W - B‖²`` over W for many R and B; factorised once.

    The penalty μ multiplies both terms, so the matrix ``I + XᵀX`` is the same in every
    iteration, for every μ and k. With few samples ``I + XXᵀ`` is factorised instead. The
    factor is always float64: the condition number reaches n·d. So is X, unless it is large:
    rounding in the first iterations decides which of many local solutions is reached (and
    with n < d it is multiplied by the largest singular value of X). X is kept by columns,
    which the iterations pick out.
    """

    def __init__(self, X: np.ndarray) -> None:
        n, d = X.shape
        exact = n < d or X.size <= LARGEST_FLOAT64
        self.small = exact and n**2 < d**2 + n * d  # which of the two makes quicker steps
        self.X = np.asfortranarray(X, dtype=np.float64 if exact else X.dtype)
        K = gram_matrix(self.X.T if self.small else self.X)
        K[np.diag_indices_from(K)] += 1.0
        self.factor = cho_factor(K, overwrite_a=True, check_finite=False)

    def solve(
        self, B: np.ndarray, XB: np.ndarray, R: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return W (d, c) in float64 and XW (n, c), from B (d, c), XB and R (n, c).

        One pass over X when n is small, where the residual ``R - XW = (I + XXᵀ)⁻¹ (R - XB)``
        gives W as ``B + Xᵀ(R - XW)``; two passes otherwise.
        """
        if self.small:
            residual = cho_solve(self.factor, R - XB, overwrite_b=True, check_finite=False)
            return B + self.X.T @ residual, R - residual
        W = cho_solve(self.factor, B + self.X.T @ R, overwrite_b=True, check_finite=False)
        return W, self.X @ W.astype(self.X.dtype)

    def solve_blocks(
        self, B: np.ndarray, XB: np.ndarray, R: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The same for K problems side by side: B (d, K, c), XB and R (n, K, c)."""
        columns = R.shape[1] * R.shape[2]
        W, XW = self.solve(*(M.reshape(len(M), columns) for M in (B, XB, R)))
        return W.reshape(B.shape), XW.reshape(R.shape)


def alternate(
    T: np.ndarray,
    system: RidgeSystem,
    starts: list[AlmState],
    *,
    ks: list[int],
    mu: float,
    rho: float,
    max_iter: int,
    tol: float,
    report: Callable[[str], None],
) -> list[AlmResult]:
    """Run the iterations for targets T (n, c) on the centred X (n, d) of ``system``.

    All numbers of features ``ks`` run side by side, each from its own start: a pass over X
    for ten of them costs little more than for one.

    V carries the row-sparsity constraint ``V = W``, E the loss ``E = XW + 1bᵀ - T``. Their
    multipliers are kept divided by μ (``L``, ``S``), which float32 can hold for any μ.
    Stops early (``tol > 0``) when the support has not changed for 20 iterations and
    ``max|W - V| ≤ tol · max|W|``. Arrays of n rows keep the dtype of X.
    """
    X = system.X
    T = T.astype(X.dtype, copy=False)[:, None]  # (n, 1, c); the middle axis is that of ks
    V = np.stack([start.V for start in starts], axis=1)
    E = np.stack([start.E for start in starts], axis=1).astype(X.dtype, copy=False)
    XV = np.stack([_sparse_product(X, start.V) for start in starts], axis=1)
    L, S, XL = np.zeros_like(V), np.zeros_like(E), np.zeros_like(E)
    largest = LARGEST_MU if X.dtype == np.float64 else LARGEST_MU_FLOAT32
    runs = [_Run(k) for k in ks]
    running = list(runs)
    for _ in range(max_iter):
        R = T + E - S
        b = R.mean(axis=0)
        W, XW = system.solve_blocks(V - L, XV - XL, R - b)
        H = W + L
        V, XV = np.zeros_like(H), np.empty_like(XW)
        for j, run in enumerate(running):
            run.V, top, run.row_norms = keep_top_rows(H[:, j], run.k)
            V[:, j], XV[:, j] = run.V, _sparse_product(X, run.V)
            run.follow(top)
        U = XW + (b - T) + S
        E = _shrink_rows(U, 1.0 / mu)
        previous, mu = mu, min(LARGEST_MU, rho * mu)
        L = (previous / mu) * (H - V)
        XL = (previous / mu) * (XW + XL - XV)  # follows L without a pass over X
        S = (previous / mu) * (U - E)
        objective = _row_norms(XV + (b - T)).sum(axis=0, dtype=np.float64)
        gaps = _largest(W - V) / np.maximum(_largest(W), 1e-300)
        for j, run in enumerate(running):
            run.b, run.E = b[j], E[:, j]
            run.objective.append(float(objective[j]))
            run.converged = run.unchanged >= PATIENCE and gaps[j] <= tol
        report(f"objective {objective[-1]:.6g}, |W-V| {gaps.max():.1e}")
        if mu > largest:
            break
        if tol > 0 and any(run.converged for run in running):
            going = [j for j, run in enumerate(running) if not run.converged]
            running = [running[j] for j in going]
            V, XV, E, L, XL, S = (M[:, going] for M in (V, XV, E, L, XL, S))
            if not running:
                break
    return [run.result() for run in runs]


class _Run:
    """What is remembered of the iterations for one k."""

    V: np.ndarray
    E: np.ndarray
    b: np.ndarray
    row_norms: np.ndarray

    def __init__(self, k: int) -> None:
        self.k = k
        self.support = np.empty(0, dtype=np.intp)
        self.unchanged = 0
        self.objective: list[float] = []
        self.converged = False

    def follow(self, support: np.ndarray) -> None:
        """Count for how long the support has not changed."""
        self.unchanged = self.unchanged + 1 if np.array_equal(support, self.support) else 0
        self.support = support

    def result(self) -> AlmResult:
        state = AlmState(self.V, np.array(self.E))
        objective = np.array(self.objective)
        return AlmResult(state, self.b, self.row_norms, objective, self.converged)


def keep_top_rows(H: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return H with all but its k largest rows set to 0, their sorted indices, all norms."""
    norms = _row_norms(H)
    top = np.sort(np.argsort(-norms, kind="stable")[:k])
    V = np.zeros_like(H)
    V[top] = H[top]
    return V, top, norms


def _sparse_product(X: np.ndarray, V: np.ndarray) -> np.ndarray:
    """Return XV (n, c) in the dtype of X, from the non-zero rows of V."""
    used = np.flatnonzero(V.any(axis=1))
    return X[:, used] @ V[used].astype(X.dtype)


def _shrink_rows(U: np.ndarray, amount: float) -> np.ndarray:
    """Return U with each row shortened by ``amount``, to 0 if it is shorter."""
    norms = np.maximum(_row_norms(U), np.finfo(U.dtype).tiny)
    return np.maximum(0.0, 1.0 - amount / norms)[..., None] * U


def _row_norms(M: np.ndarray) -> np.ndarray:
    """Return the lengths along the last axis."""
    return np.sqrt(np.einsum("...j,...j->...", M, M))


def _largest(M: np.ndarray) -> np.ndarray:
    """Return the largest size in each block of M (d, K, c)."""
    return np.maximum(M.max(axis=(0, 2)), -M.min(axis=(0, 2)))
