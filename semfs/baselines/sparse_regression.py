"""Lasso and group lasso for many outputs at once, on a Gram matrix."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh

__all__ = ["SparseFit", "duality_gap", "sparse_regression"]

CHECK_EVERY = 10  # steps between two computations of the duality gap
SMALLEST_SET = 64  # rows of the first set that is solved


@dataclass(frozen=True)
class SparseFit:
    """Coefficients W (d, c), residual correlations XᵀR (d, c), gaps relative to ½‖t‖²."""

    W: np.ndarray
    correlations: np.ndarray
    gap: np.ndarray
    n_iter: int


def sparse_regression(
    G: np.ndarray,
    Q: np.ndarray,
    t_squared: np.ndarray,
    lam: float,
    *,
    penalty: str,
    tol: float,
    max_iter: int,
    W: np.ndarray | None = None,
    report: Callable[[str], None] = lambda note: None,
) -> SparseFit:
    """Minimise ``½‖T - XW‖² + lam·Ω(W)``.

    ``Ω`` is the sum of absolute values ("l1") or of row norms ("l21"). Accelerated proximal
    gradient steps (FISTA, with restarts) on a set of rows: those in use by any column, and
    those that violate optimality most. The set grows until the duality gap of the whole
    problem is small enough. Unlike coordinate descent this works on all outputs in one
    matrix product, serves both penalties, and bears strongly correlated features.

    Parameters
    ----------
    G : ndarray of shape (d, d)
        XᵀX; no zero on its diagonal.
    Q : ndarray of shape (d, c)
        XᵀT.
    t_squared : ndarray of shape (c,)
        Squared norms of the columns of T.
    tol : float
        Stop when the duality gap is at most ``tol · ½‖t‖²``, for each column (l1) or in
        all (l21).
    max_iter : int
        Most steps on one set of rows.
    W : ndarray of shape (d, c), optional
        Starting point.
    report : callable
        Called with a line of text after every ten steps.
    """
    W = np.zeros_like(Q) if W is None else W.astype(Q.dtype)
    d, size, n_iter, last = len(W), SMALLEST_SET, 0, np.inf
    rows = np.empty(0, dtype=np.intp)
    while True:
        used = np.flatnonzero(W.any(axis=1))
        GW = G[used].T @ W[used]
        gap = duality_gap(W, GW, Q, t_squared, lam, penalty)
        worst = float(gap.max())
        if worst <= tol or len(rows) == d:
            return SparseFit(W, Q - GW, gap, n_iter)
        size = max(2 * len(used), size if worst < 0.5 * last else 2 * size)
        rows = np.arange(d) if 2 * size > d else _most_violated(Q - GW, used, size)
        whole, last = len(rows) == d, worst
        found, steps = _proximal_gradient(
            G if whole else G[np.ix_(rows, rows)],
            Q[rows],
            t_squared,
            lam,
            penalty=penalty,
            tol=tol if whole else max(0.3 * tol, 0.1 * worst),
            max_iter=max_iter,
            W=W[rows],
            report=report,
        )
        W = np.zeros_like(W)
        W[rows] = found
        n_iter += steps


def _most_violated(correlations: np.ndarray, used: np.ndarray, size: int) -> np.ndarray:
    """Return sorted indices of ``size`` rows: the used ones, then by largest correlation."""
    priority = np.abs(correlations).max(axis=1)
    priority[used] = np.inf
    return np.sort(np.argsort(-priority, kind="stable")[:size])


def _proximal_gradient(
    G: np.ndarray,
    Q: np.ndarray,
    t_squared: np.ndarray,
    lam: float,
    *,
    penalty: str,
    tol: float,
    max_iter: int,
    W: np.ndarray,
    report: Callable[[str], None],
) -> tuple[np.ndarray, int]:
    """Return the minimiser (d, c) from a start W, and the number of steps."""
    step = (1.0 / _majorizer(G))[:, None].astype(G.dtype)
    GW = G @ W
    V, GV = W, GW
    momentum = np.ones(Q.shape[1])
    for n_iter in range(1, max_iter + 1):
        new = _shrink(V - step * (GV - Q), lam * step, penalty)
        G_new = G @ new
        # restart where the last step points against the momentum
        against = np.einsum("ij,ij->j", V - new, new - W)
        if penalty == "l21":
            against[:] = against.sum()  # the columns are one problem
        momentum[against > 0] = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        beta = ((momentum - 1.0) / following).astype(G.dtype)
        V, GV = new + beta * (new - W), G_new + beta * (G_new - GW)
        W, GW, momentum = new, G_new, following
        if n_iter % CHECK_EVERY == 0:
            gap = float(duality_gap(W, GW, Q, t_squared, lam, penalty).max())
            report(f"{len(W)} features, relative gap {gap:.1e}")
            if gap <= tol:
                break
    return W, n_iter


def _majorizer(G: np.ndarray) -> np.ndarray:
    """Return D (d,) with G ≼ diag(D): ``D_i = λ_max(G scaled to unit diagonal) · G_ii``.

    Steps in proportion to 1/G_ii make raw columns of very different scale converge as
    standardised ones do.
    """
    scale = np.sqrt(np.diag(G))
    unit = G / scale / scale[:, None]
    d = len(G)
    if d <= 500:
        top = scipy.linalg.eigh(unit, eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
        return top * scale**2
    start = np.random.RandomState(0).uniform(0.5, 1.0, d)
    top = eigsh(unit, 1, which="LA", v0=start, tol=1e-3, return_eigenvectors=False)[0]
    return 1.02 * top * scale**2  # Lanczos approaches the top from below


def _shrink(V: np.ndarray, threshold: np.ndarray, penalty: str) -> np.ndarray:
    """Return the proximal point of the penalty, with one threshold per row."""
    if penalty == "l1":
        return V - np.clip(V, -threshold, threshold)
    norms = np.linalg.norm(V, axis=1, keepdims=True)
    return V * np.maximum(1.0 - threshold / np.maximum(norms, np.finfo(V.dtype).tiny), 0.0)


def duality_gap(
    W: np.ndarray,
    GW: np.ndarray,
    Q: np.ndarray,
    t_squared: np.ndarray,
    lam: float,
    penalty: str,
) -> np.ndarray:
    """Return the gap relative to ½‖t‖²: (c,) for "l1", (1,) for "l21".

    The dual point is the residual R, scaled until ``XᵀR`` is feasible.
    """
    wq = np.einsum("ij,ij->j", W, Q, dtype=np.float64)
    residual = t_squared - 2.0 * wq + np.einsum("ij,ij->j", W, GW, dtype=np.float64)
    along = t_squared - wq  # rᵀt
    if penalty == "l1":
        size = np.abs(W).sum(axis=0, dtype=np.float64)
        largest = np.abs(Q - GW).max(axis=0)
    else:
        size = np.array([np.linalg.norm(W, axis=1).sum(dtype=np.float64)])
        largest = np.array([np.linalg.norm(Q - GW, axis=1).max()])
        residual, along = residual.sum(keepdims=True), along.sum(keepdims=True)
        t_squared = t_squared.sum(keepdims=True)
    feasible = np.minimum(1.0, lam / np.maximum(largest, 1e-300))
    primal = 0.5 * residual + lam * size
    dual = feasible * along - 0.5 * feasible**2 * residual
    return (primal - dual) / np.maximum(0.5 * t_squared, 1e-300)
