"""LASSO and group lasso for many outputs at once, solved on the Gram matrix."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.linalg
from scipy.sparse.linalg import eigsh
from sklearn.exceptions import ConvergenceWarning

from semfs._typing import AttributesLike, Float64, Floats
from semfs.baselines.base import Baseline, Training, break_ties, standardize_columns
from semfs.constraints import Above, AtLeast, OneOf, WholeNumber
from semfs.validation import warn_user

#: Entries of W above which a looser tolerance must do; a fit then takes minutes.
MANY_COEFFICIENTS = 1_000_000
TIGHT_TOL = 1e-12
LOOSE_TOL = 1e-4
#: Tolerance from which on the 7 digits of float32 are enough.
FLOAT32_TOL = 1e-5
#: Relative duality gap above which a fit is reported as not converged.
LARGE_GAP = 1e-3
#: Steps between two computations of the duality gap.
CHECK_EVERY = 10
#: Features up to which the largest eigenvalue is computed exactly.
DENSE_EIGENVALUE = 500


@dataclass(eq=False, repr=False, kw_only=True)
class LassoSelector(Baseline):
    """Rank features by the coefficients of a multi-output LASSO (Tibshirani 1996).

    ::

        min_W  ½‖T - XW‖² + lam · Ω(W),    score_i = ‖w_i‖

    Here ``T = A[y]`` holds class attributes or one-hot labels. ``Ω`` is the sum of absolute
    values (``penalty="l1"``, with which the outputs are independent) or of row norms
    (``penalty="l21"``, the group lasso). The loss has no factor 1/n, so ``lam`` is n times
    scikit-learn's ``alpha``.

    Parameters
    ----------
    n_features_to_select, attributes
        Common parameters; see `semfs.baselines`.
    lam : float, default=1.0
        Weight of the penalty.
    penalty : {"l1", "l21"}, default="l1"
        The penalty ``Ω``, as described above.
    fit_intercept, standardize : bool, default=True
        Whether to center X and T, and whether to divide columns by their standard deviation.
    tol : float or None, default=None
        Relative duality gap at which to stop. None means 1e-12, or 1e-4 if X has more than 10⁶
        entries.
    max_iter : int, default=10_000
        Maximum number of iterations.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Row norms of W for standardized columns. Features whose coefficients are all zero have
        tiny negative scores that rank them by ``max_j |x_iᵀ r_j|``, the penalty below which
        they would become nonzero.
    coef_, intercept_ : ndarray of shape (d, m), (m,)
        Coefficients and intercept for X before standardization.
    gap_ : float
        Relative duality gap when the solver stopped. It is the largest gap over all outputs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> LassoSelector(2, lam=10.0).fit(X, y).get_support()
    array([False, False,  True,  True])
    """

    attributes: AttributesLike | None = None
    lam: float = 1.0
    penalty: str = "l1"
    fit_intercept: bool = True
    standardize: bool = True
    tol: float | None = None
    max_iter: int = 10_000

    _supervised = True
    _constraints = {
        "penalty": OneOf("l1", "l21"),
        "lam": Above(0),
        "max_iter": WholeNumber(1),
        "tol": AtLeast(0),
    }

    def _scores(self, data: Training) -> Floats:
        """Return the row norms of W, and tiny negative scores for zero rows."""
        X, offset, scale = standardize_columns(
            data.varying.astype(np.float64), center=self.fit_intercept, scale=self.standardize
        )
        T = data.T
        mean = np.zeros(T.shape[1])
        if self.fit_intercept:  # X is centered: then only centered targets matter
            mean = T.mean(axis=0)
            T = T - mean
        G = X.T @ X
        Q = X.T @ T
        tol = self.tol
        if tol is None:
            tol = TIGHT_TOL if Q.size <= MANY_COEFFICIENTS else LOOSE_TOL
        if tol >= FLOAT32_TOL:
            G = G.astype(data.X.dtype)
            Q = Q.astype(data.X.dtype)
        regression = SparseRegression(G, Q, (T**2).sum(axis=0), self.lam, self.penalty)
        W, self.n_iter_ = regression.solve(tol, self.max_iter)
        self.coef_, self.intercept_ = data.raw(W, mean, offset, scale)
        XtR = Q - G @ W
        self.gap_ = float(regression.gap(W, XtR).max())
        if not np.isfinite(self.gap_):
            raise ValueError(self._breakdown("found no finite duality gap"))
        scores = np.linalg.norm(W, axis=1)
        self._warn(scores)
        return break_ties(scores, np.abs(XtR).max(axis=1))

    def _warn(self, scores: Float64) -> None:
        """Warn if the fit has not converged, or if fewer features than wanted are nonzero."""
        if self.gap_ > LARGE_GAP:
            message = (
                f"LassoSelector stopped after {self.n_iter_} iterations at a relative duality "
                f"gap of {self.gap_:.1e}. Raise max_iter or lam."
            )
            warn_user(ConvergenceWarning(message))
        n_nonzero = np.count_nonzero(scores)
        if n_nonzero < min(self._n_wanted(len(scores)), len(scores)):
            warn_user(
                f"Only {n_nonzero} features have a nonzero coefficient at "
                f"lam={self.lam:g}; the others are ranked by residual "
                "correlation. For more nonzero coefficients, lower lam."
            )


@dataclass(frozen=True)
class SparseRegression:
    """Minimizes ``½‖T - XW‖² + lam·Ω(W)``, given the products XᵀX and XᵀT."""

    G: Floats  # (d, d), XᵀX
    Q: Floats  # (d, c), XᵀT
    t_squared: Float64  # (c,), squared norms of the columns of T
    lam: float
    penalty: str

    def solve(self, tol: float, max_iter: int) -> tuple[Float64, int]:
        """Return W (d, c) in float64, and the number of steps of FISTA with restarts.

        Unlike coordinate descent, FISTA updates all outputs in one matrix product, works for
        both penalties, and tolerates strongly correlated features.
        """
        G = self.G
        Q = self.Q
        step = (1.0 / majorizer(G))[:, None].astype(G.dtype)
        W = np.zeros_like(Q)  # the iterate
        V = W  # the point beyond it at which the gradient is taken
        GW = W
        GV = W
        momentum = np.ones(Q.shape[1])
        for n_iter in range(1, max_iter + 1):
            new = self._shrink(V - step * (GV - Q), self.lam * step)
            G_new = G @ new
            # Restart the momentum of an output where the step points against it.
            against = np.einsum("ij,ij->j", V - new, new - W)
            if self.penalty == "l21":
                against[:] = against.sum()  # the columns are one problem
            momentum[against > 0] = 1.0
            following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
            beta = ((momentum - 1.0) / following).astype(G.dtype)
            V = new + beta * (new - W)
            GV = G_new + beta * (G_new - GW)
            W = new
            GW = G_new
            momentum = following
            if n_iter % CHECK_EVERY == 0 and not self.gap(W, Q - GW).max() > tol:
                break
        return np.asarray(W, dtype=np.float64), n_iter

    def gap(self, W: Floats, XtR: Floats) -> Float64:
        """Return the duality gap relative to ½‖t‖²: (c,) for "l1", (1,) for "l21".

        The dual point is the residual R, scaled so that ``XᵀR`` (d, c) is feasible.
        """
        t_squared = self.t_squared
        along = t_squared - np.einsum("ij,ij->j", W, self.Q, dtype=np.float64)  # rᵀt
        residual = along - np.einsum("ij,ij->j", W, XtR, dtype=np.float64)  # ‖r‖²
        if self.penalty == "l21":  # the columns are one problem
            rows = np.linalg.norm(W, axis=1, keepdims=True)
            XtR_rows = np.linalg.norm(XtR, axis=1, keepdims=True)
            residual = residual.sum(keepdims=True)
            along = along.sum(keepdims=True)
            t_squared = t_squared.sum(keepdims=True)
        else:
            rows = np.abs(W)
            XtR_rows = np.abs(XtR)
        size = rows.sum(axis=0, dtype=np.float64)
        largest = XtR_rows.max(axis=0)
        feasible = np.minimum(1.0, self.lam / np.maximum(largest, 1e-300))
        primal = 0.5 * residual + self.lam * size
        dual = feasible * along - 0.5 * feasible**2 * residual
        return (primal - dual) / np.maximum(0.5 * t_squared, 1e-300)

    def _shrink(self, V: Floats, threshold: Floats) -> Floats:
        """Apply the proximal operator of the penalty, with one threshold per row."""
        if self.penalty == "l1":
            return V - np.clip(V, -threshold, threshold)
        norms = np.linalg.norm(V, axis=1, keepdims=True)
        norms = np.maximum(norms, np.finfo(V.dtype).tiny)
        return V * np.maximum(1.0 - threshold / norms, 0.0)


def majorizer(G: Floats) -> Floats:
    """Return D (d,) with G ≼ diag(D): ``D_i = λ_max(G scaled to unit diagonal) · G_ii``."""
    scale = np.sqrt(np.where(np.diag(G) > 0, np.diag(G), 1.0))  # 0: lost to underflow
    unit = G / scale / scale[:, None]
    d = len(G)
    if d <= DENSE_EIGENVALUE:
        top = scipy.linalg.eigh(unit, eigvals_only=True, subset_by_index=[d - 1, d - 1])[0]
    else:  # Lanczos approaches the largest eigenvalue from below: add 2 %
        start = np.linspace(0.5, 1.0, d)
        top = 1.02 * eigsh(unit, 1, v0=start, tol=1e-3, return_eigenvectors=False)[0]
    return top * scale**2
