"""LASSO and group lasso for many outputs at once, on a Gram matrix."""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh
from sklearn.exceptions import ConvergenceWarning

from semfs.baselines.base import Baseline, Training, break_ties, standardize_columns

MANY_COEFFICIENTS = 1_000_000  # entries of W above which a looser tolerance must do
CHECK_EVERY = 10  # steps between two computations of the duality gap


@dataclass(eq=False, repr=False, kw_only=True)
class LassoSelector(Baseline):
    """LASSO (Tibshirani 1996) for several outputs; features ranked by coefficient rows.

    ::

        min_W  ½‖T - XW‖² + lam · Ω(W),    score_i = ‖w_i‖

    with ``T = A[y]`` (class attributes, or one-hot labels) and ``Ω`` the sum of absolute
    values (``penalty="l1"``, outputs independent) or of row norms (``"l21"``, the group
    lasso). The loss has no factor 1/n: scikit-learn's ``alpha`` is ``lam / n``.

    Parameters
    ----------
    n_features_to_select, attributes
        As of all methods (see `semfs.baselines`).
    lam : float, default=1.0
    penalty : {"l1", "l21"}, default="l1"
    fit_intercept, standardize : bool, default=True
        Center X and T; divide columns by their standard deviation.
    tol : float or None, default=None
        Relative duality gap at which to stop. None is 1e-12, or 1e-4 for over 10⁶ entries.
    max_iter : int, default=10_000

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Row norms of W in standardized units; tiny negative scores rank zero rows by
        ``max_j |x_iᵀ r_j|``, the penalty at which they would enter.
    coef_, intercept_ : ndarray of shape (d, m), (m,)
        For raw X.
    gap_ : float
        Largest relative duality gap reached.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LassoSelector(2, lam=10.0).fit(X, y).get_support()
    array([False, False,  True,  True])
    """

    attributes: Any = None
    lam: float = 1.0
    penalty: str = "l1"
    fit_intercept: bool = True
    standardize: bool = True
    tol: float | None = None
    max_iter: int = 10_000

    _supervised = True
    _words = {"penalty": ("l1", "l21")}
    _whole = {"max_iter": 1}
    _at_least = {"tol": 0}
    _above = {"lam": 0}

    def _scores(self, data: Training) -> np.ndarray:
        X = data.varying.astype(np.float64)
        X, *scaling = standardize_columns(X, center=self.fit_intercept, scale=self.standardize)
        # X is centered with an intercept: then only centered targets matter
        mean = data.T.mean(axis=0) if self.fit_intercept else np.zeros(data.table.shape[1])
        T = data.T - mean
        G, Q, tol = X.T @ X, X.T @ T, self.tol
        if tol is None:
            tol = 1e-12 if Q.size <= MANY_COEFFICIENTS else 1e-4
        if tol >= 1e-5:  # float32 is good enough for that
            G, Q = G.astype(data.X.dtype), Q.astype(data.X.dtype)
        regression = SparseRegression(G, Q, (T**2).sum(axis=0), self.lam, self.penalty)
        W, self.n_iter_ = regression.solve(tol, self.max_iter)
        self.coef_, self.intercept_ = data.raw(W, mean, *scaling)
        XtR = Q - G @ W
        self.gap_ = float(regression.gap(W, XtR).max())
        if not np.isfinite(self.gap_):
            raise ValueError(self._breakdown("found no finite duality gap"))
        scores = np.linalg.norm(W, axis=1)
        n_nonzero = np.count_nonzero(scores)
        if self.gap_ > 1e-3:
            message = f"LassoSelector stopped after {self.n_iter_} iterations at a relative "
            message += f"duality gap of {self.gap_:.1e}. Raise max_iter or lam."
            warnings.warn(message, ConvergenceWarning, stacklevel=3)
        if n_nonzero < min(self._n_wanted(len(scores)), len(scores)):
            message = f"Only {n_nonzero} features have a non-zero coefficient at "
            message += f"lam={self.lam:g}; the others are ranked by residual correlation. "
            message += "Lower lam for more."
            warnings.warn(message, stacklevel=3)
        return break_ties(scores, np.abs(XtR).max(axis=1))


@dataclass(frozen=True)
class SparseRegression:
    """Minimize ``½‖T - XW‖² + lam·Ω(W)``, by moments."""

    G: np.ndarray  # (d, d), XᵀX
    Q: np.ndarray  # (d, c), XᵀT
    t_squared: np.ndarray  # (c,), squared norms of the columns of T
    lam: float
    penalty: str

    def solve(self, tol: float, max_iter: int) -> tuple[np.ndarray, int]:
        """Return W (d, c) in float64, and the number of steps of FISTA with restarts.

        Unlike coordinate descent it works on all outputs in one matrix product, serves both
        penalties, and bears strongly correlated features.
        """
        G, Q = self.G, self.Q
        step = (1.0 / majorizer(G))[:, None].astype(G.dtype)
        W = GW = V = GV = np.zeros_like(Q)
        momentum = np.ones(Q.shape[1])
        for n_iter in range(1, max_iter + 1):
            new = self._shrink(V - step * (GV - Q), self.lam * step)
            G_new = G @ new
            # restart where the last step points against the momentum
            against = np.einsum("ij,ij->j", V - new, new - W)
            if self.penalty == "l21":
                against[:] = against.sum()  # the columns are one problem
            momentum[against > 0] = 1.0
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            beta = ((momentum - 1.0) / following).astype(G.dtype)
            V, GV = new + beta * (new - W), G_new + beta * (G_new - GW)
            W, GW, momentum = new, G_new, following
            if n_iter % CHECK_EVERY == 0 and not self.gap(W, Q - GW).max() > tol:
                break
        return np.asarray(W, dtype=np.float64), n_iter

    def gap(self, W: np.ndarray, XtR: np.ndarray) -> np.ndarray:
        """Return the duality gap relative to ½‖t‖²: (c,) for "l1", (1,) for "l21".

        The dual point is the residual R, scaled until ``XᵀR`` (d, c) is feasible.
        """
        t_squared = self.t_squared
        along = t_squared - np.einsum("ij,ij->j", W, self.Q, dtype=np.float64)  # rᵀt
        residual = along - np.einsum("ij,ij->j", W, XtR, dtype=np.float64)
        rows, XtR_rows = np.abs(W), np.abs(XtR)
        if self.penalty == "l21":  # the columns are one problem
            rows, XtR_rows = (np.linalg.norm(v, axis=1, keepdims=True) for v in (W, XtR))
            sums = residual, along, t_squared
            residual, along, t_squared = (v.sum(keepdims=True) for v in sums)
        size, largest = rows.sum(axis=0, dtype=np.float64), XtR_rows.max(axis=0)
        feasible = np.minimum(1.0, self.lam / np.maximum(largest, 1e-300))
        primal = 0.5 * residual + self.lam * size
        dual = feasible * along - 0.5 * feasible**2 * residual
        return (primal - dual) / np.maximum(0.5 * t_squared, 1e-300)

    def _shrink(self, V: np.ndarray, threshold: np.ndarray) -> np.ndarray:
        """Return the proximal point of the penalty, with one threshold per row."""
        if self.penalty == "l1":
            return V - np.clip(V, -threshold, threshold)
        norms = np.linalg.norm(V, axis=1, keepdims=True)
        return V * np.maximum(1.0 - threshold / np.maximum(norms, np.finfo(V.dtype).tiny), 0.0)


def majorizer(G: np.ndarray) -> np.ndarray:
    """Return D (d,) with G ≼ diag(D): ``D_i = λ_max(G scaled to unit diagonal) · G_ii``."""
    scale = np.sqrt(np.where(np.diag(G) > 0, np.diag(G), 1.0))  # 0: lost to underflow
    unit, d = G / scale / scale[:, None], len(G)
    if d <= 500:
        top = scipy.linalg.eigh(unit, eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
    else:  # Lanczos approaches the top from below
        start = np.linspace(0.5, 1.0, d)
        top = 1.02 * eigsh(unit, 1, v0=start, tol=1e-3, return_eigenvectors=False)[0]
    return top * scale**2
