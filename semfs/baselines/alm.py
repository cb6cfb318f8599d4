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
PATIENCE = 20  # iterations without a change of the support before stopping


@dataclass(frozen=True)
class AlmState:
    """Variables carried from one iteration (or one k) to the next."""

    V: np.ndarray  # (d, c), at most k non-zero rows
    E: np.ndarray  # (n, c), residuals
    Lambda: np.ndarray  # (d, c), multipliers of V = W
    Sigma: np.ndarray  # (n, c), multipliers of E = XW + 1bᵀ - T

    def without_multipliers(self) -> AlmState:
        """Return a start at the same V and E."""
        return AlmState(self.V, self.E, np.zeros_like(self.V), np.zeros_like(self.E))


@dataclass(frozen=True)
class AlmResult:
    """Outcome of `alternate`."""

    state: AlmState
    b: np.ndarray  # (c,), intercept for centred data
    row_norms: np.ndarray  # (d,), of H in the last iteration: ranks the features left out
    objective: np.ndarray  # Σ_i ‖x̃_i V + b - t_i‖ after each iteration
    converged: bool


class RidgeSystem:
    """Solve ``(I + X̃ᵀX̃) W = B`` for many B; factorised once (μ cancels, 4.2).

    With fewer samples than features an n × n matrix is factorised instead (Woodbury).
    The factor is float64 even for float32 data: the condition number reaches n·d.
    """

    def __init__(self, X: np.ndarray) -> None:
        self.X = X
        n, d = X.shape
        self.small = n < d
        K = gram_matrix(X.T if self.small else X)
        K[np.diag_indices_from(K)] += 1.0
        self.factor = cho_factor(K, overwrite_a=True, check_finite=False)

    def solve(self, B: np.ndarray) -> np.ndarray:
        """Return W (d, c) in float64."""
        if not self.small:
            return cho_solve(self.factor, B, check_finite=False)
        inner = cho_solve(self.factor, self.X @ B, check_finite=False)
        return B - self.X.T @ inner


def alternate(
    X: np.ndarray,
    T: np.ndarray,
    system: RidgeSystem,
    state: AlmState,
    *,
    k: int,
    mu: float,
    rho: float,
    max_iter: int,
    tol: float,
    report: Callable[[str], None],
) -> AlmResult:
    """Run the iterations for centred X (n, d) and targets T (n, c).

    Stops early (``tol > 0``) when the support has not changed for 20 iterations and
    ``max|W - V| ≤ tol · max|W|``. Arrays of n rows keep the dtype of X.
    """
    V, E, Lambda, Sigma = state.V, state.E, state.Lambda, state.Sigma
    largest = LARGEST_MU if X.dtype == np.float64 else LARGEST_MU_FLOAT32
    support, unchanged, converged = np.empty(0, dtype=np.intp), 0, False
    objective: list[float] = []
    for _ in range(max_iter):
        R = T + E - Sigma / mu
        b = R.mean(axis=0)
        W = system.solve(V - Lambda / mu + X.T @ R)
        H = W + Lambda / mu
        V, top, row_norms = keep_top_rows(H, k)
        F = X @ W.astype(X.dtype)
        F += b - T
        E = _shrink_rows(F + Sigma / mu, 1.0 / mu)
        Lambda = Lambda + mu * (W - V)
        Sigma = Sigma + mu * (F - E)
        mu = min(LARGEST_MU, rho * mu)
        fit = X[:, top] @ V[top].astype(X.dtype) + b - T
        objective.append(float(np.linalg.norm(fit, axis=1).sum(dtype=np.float64)))
        unchanged = unchanged + 1 if np.array_equal(top, support) else 0
        support = top
        gap = float(np.abs(W - V).max() / max(np.abs(W).max(), 1e-300))
        report(f"objective {objective[-1]:.6g}, |W-V| {gap:.1e}")
        converged = unchanged >= PATIENCE and gap <= tol
        if (converged and tol > 0) or mu > largest:
            break
    return AlmResult(
        AlmState(V, E, Lambda, Sigma), b, row_norms, np.array(objective), converged
    )


def keep_top_rows(H: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return H with all but its k largest rows set to 0, their sorted indices, all norms."""
    norms = np.linalg.norm(H, axis=1)
    top = np.sort(np.argsort(-norms, kind="stable")[:k])
    V = np.zeros_like(H)
    V[top] = H[top]
    return V, top, norms


def _shrink_rows(U: np.ndarray, amount: float) -> np.ndarray:
    """Return U with each row shortened by ``amount``, to 0 if it is shorter."""
    norms = np.linalg.norm(U, axis=1, keepdims=True)
    factor = np.maximum(0.0, 1.0 - amount / np.maximum(norms, np.finfo(U.dtype).tiny))
    return factor * U
