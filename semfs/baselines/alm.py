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
    """Outcome of `alternate`."""

    state: AlmState
    b: np.ndarray  # (c,), intercept for centred data
    row_norms: np.ndarray  # (d,), of H in the last iteration: ranks the features left out
    objective: np.ndarray  # Σ_i ‖x̃_i V + b - t_i‖ after each iteration
    converged: bool


class RidgeSystem:
    """Minimise ``‖R - XW‖² + ‖W - B‖²`` over W for many R and B; factorised once.

    The penalty μ multiplies both terms, so the matrix ``I + XᵀX`` is the same in every
    iteration, for every μ and k. With fewer samples than features ``I + XXᵀ`` is factorised
    instead. The factor is always float64: the condition number reaches n·d. So is X, unless
    it is large: rounding in the first iterations decides which of many local solutions is
    reached (and with n < d it is multiplied by the largest singular value of X).
    X is kept by columns, which the iterations pick out.
    """

    def __init__(self, X: np.ndarray) -> None:
        n, d = X.shape
        self.small = n < d
        exact = self.small or X.size <= LARGEST_FLOAT64
        self.X = np.asfortranarray(X, dtype=np.float64 if exact else X.dtype)
        K = gram_matrix(self.X.T if self.small else self.X)
        K[np.diag_indices_from(K)] += 1.0
        self.factor = cho_factor(K, overwrite_a=True, check_finite=False)

    def solve(
        self, B: np.ndarray, XB: np.ndarray, R: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return W (d, c) in float64 and XW (n, c), from B (d, c), XB and R (n, c).

        One pass over X when n < d, where the residual ``R - XW = (I + XXᵀ)⁻¹ (R - XB)``
        gives W as ``B + Xᵀ(R - XW)``; two passes otherwise.
        """
        if self.small:
            residual = cho_solve(self.factor, R - XB, overwrite_b=True, check_finite=False)
            return B + self.X.T @ residual, R - residual
        W = cho_solve(self.factor, B + self.X.T @ R, overwrite_b=True, check_finite=False)
        return W, self.X @ W.astype(self.X.dtype)


def alternate(
    T: np.ndarray,
    system: RidgeSystem,
    start: AlmState,
    *,
    k: int,
    mu: float,
    rho: float,
    max_iter: int,
    tol: float,
    report: Callable[[str], None],
) -> AlmResult:
    """Run the iterations for targets T (n, c) on the centred X (n, d) of ``system``.

    V carries the row-sparsity constraint ``V = W``, E the loss ``E = XW + 1bᵀ - T``. Their
    multipliers are kept divided by μ (``L``, ``S``), which float32 can hold for any μ.
    Stops early (``tol > 0``) when the support has not changed for 20 iterations and
    ``max|W - V| ≤ tol · max|W|``. Arrays of n rows keep the dtype of X.
    """
    X = system.X
    T = T.astype(X.dtype, copy=False)
    V, E = start.V, start.E.astype(X.dtype, copy=False)
    L, S = np.zeros_like(V), np.zeros_like(E)
    XV, XL = X @ V.astype(X.dtype), np.zeros_like(E)
    largest = LARGEST_MU if X.dtype == np.float64 else LARGEST_MU_FLOAT32
    support, unchanged, converged = np.empty(0, dtype=np.intp), 0, False
    objective: list[float] = []
    for _ in range(max_iter):
        R = T + E - S
        b = R.mean(axis=0)
        W, XW = system.solve(V - L, XV - XL, R - b)
        H = W + L
        V, top, row_norms = keep_top_rows(H, k)
        XV = X[:, top] @ V[top].astype(X.dtype)
        U = XW + (b - T) + S
        E = _shrink_rows(U, 1.0 / mu)
        previous, mu = mu, min(LARGEST_MU, rho * mu)
        L = (previous / mu) * (H - V)
        XL = (previous / mu) * (XW + XL - XV)  # follows L without a pass over X
        S = (previous / mu) * (U - E)
        residuals = _row_norms(XV + (b - T))
        objective.append(float(residuals.sum(dtype=np.float64)))
        unchanged = unchanged + 1 if np.array_equal(top, support) else 0
        support = top
        gap = float(np.abs(W - V).max() / max(np.abs(W).max(), 1e-300))
        report(f"objective {objective[-1]:.6g}, |W-V| {gap:.1e}")
        converged = unchanged >= PATIENCE and gap <= tol
        if (converged and tol > 0) or mu > largest:
            break
    return AlmResult(AlmState(V, E), b, row_norms, np.array(objective), converged)


def keep_top_rows(H: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return H with all but its k largest rows set to 0, their sorted indices, all norms."""
    norms = _row_norms(H)
    top = np.sort(np.argsort(-norms, kind="stable")[:k])
    V = np.zeros_like(H)
    V[top] = H[top]
    return V, top, norms


def _shrink_rows(U: np.ndarray, amount: float) -> np.ndarray:
    """Return U with each row shortened by ``amount``, to 0 if it is shorter."""
    norms = np.maximum(_row_norms(U), np.finfo(U.dtype).tiny)
    return np.maximum(0.0, 1.0 - amount / norms)[:, None] * U


def _row_norms(M: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("ij,ij->i", M, M))
