"""L20ALM: exactly k features with an unsquared loss, by an augmented Lagrangian."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import clone
from sklearn.utils import check_array, check_random_state

from semfs._typing import (
    ArrayLike,
    AttributesLike,
    Float64,
    Floats,
    Indices,
    LabelsLike,
    Matrix,
    RandomState,
)
from semfs.baselines.base import Baseline, Training, break_ties, standardize_columns
from semfs.constraints import Above, AtLeast, WholeNumber

#: Largest penalty μ, as in the original program.
LARGEST_MU = 1e10
#: Iterations without a change of the support before stopping.
PATIENCE = 20


@dataclass(eq=False, repr=False, kw_only=True)
class L20ALM(Baseline):
    """Select exactly k features by an augmented Lagrangian (Cai, Nie and Huang, IJCAI 2013).

    ::

        min_{W,b}  Σ_i ‖W'x_i + b - t_i‖    s.t.  W has k = n_features_to_select non-zero rows

    The loss is robust (not squared). The constraint on the number of nonzero rows is exact, so
    the problem is not convex. The selections for different k are not nested, so each k needs
    its own solution (see `path`).

    Parameters
    ----------
    n_features_to_select, attributes, random_state
        Common parameters; see `semfs.baselines`.
    mu, rho : float, default=1.0, 1.1
        Initial penalty of the augmented Lagrangian, and the factor by which it grows in each
        iteration.
    max_iter : int, default=150
        Maximum number of iterations.
    tol : float, default=1e-4
        Stop when the selection has not changed for 20 iterations and the relative difference
        between W and V is at most this value. 0 runs all iterations.
    init : {"zero", "ridge", "random"} or pair of arrays (V0, E0), default="zero"
        Starting point of V (d, m) and E (n, m). "ridge" starts from the unconstrained ridge
        fit. "random" starts from uniform numbers in [0, 1], as the original does. If a pair is
        given, constant columns are not left out.
    standardize : bool, default=True
        Whether to divide columns by their standard deviation. Columns are always centered.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        ``‖v_i‖ · std_i`` for the k selected features. All other features have tiny negative
        scores that rank them by their row norms in the last unconstrained step.
    coef_, intercept_ : ndarray of shape (d, m), (m,)
        The coefficients V, with k nonzero rows, and the intercept b, in the units of X before
        standardization. Predictions are ``X @ coef_ + intercept_``.
    objective_ : ndarray of shape (n_rounds,)
        ``Σ_i ‖V'x_i + b - t_i‖`` after each iteration.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> L20ALM(2).fit(X, y).get_support()
    array([False,  True, False,  True])
    """

    attributes: AttributesLike | None = None
    mu: float = 1.0
    rho: float = 1.1
    max_iter: int = 150
    tol: float = 1e-4
    init: str | tuple[ArrayLike, ArrayLike] = "zero"
    standardize: bool = True
    random_state: RandomState = 0

    _supervised = True
    _constraints = {
        "mu": Above(0),
        "rho": AtLeast(1),
        "max_iter": WholeNumber(1),
        "tol": AtLeast(0),
    }

    def path(self, X: ArrayLike | Matrix, y: LabelsLike, ks: Iterable[int]) -> list[Self]:
        """Return one fitted selector per number of features k.

        The columns are scaled and the ridge system is factorized only once for all k.
        """
        path = []
        prepared: _Prepared | None = None
        for k in ks:
            selector = clone(self).set_params(n_features_to_select=k)
            selector._prepared = prepared
            selector.fit(X, y)
            prepared = selector._prepared
            # A fitted selector keeps no training data.
            del selector._prepared
            path.append(selector)
        return path

    def _scores(self, data: Training) -> Float64:
        """Return the row norms of V times the standard deviations of the columns."""
        if not isinstance(self.init, str):  # a start in all columns, as they are
            data = replace(data, constant=np.zeros_like(data.constant))
        prepared = getattr(self, "_prepared", None)
        if prepared is None:
            prepared = _Prepared.of(data, self.standardize)
        if hasattr(self, "_prepared"):  # `path` hands it to the next k
            self._prepared = prepared
        system = prepared.system
        V, b, norms = self._iterate(data.T, system)
        self.coef_, self.intercept_ = data.raw(V, b, prepared.offset, prepared.scale)
        self.n_iter_ = len(self.objective_)
        # rows of V belong to scaled columns: ‖v_i / scale‖ · std = ‖v_i‖ when standardized
        std = 1.0 if self.standardize else system.X.std(axis=0)
        return break_ties(np.linalg.norm(V, axis=1) * std, norms)

    def _iterate(self, T: Float64, system: RidgeSystem) -> tuple[Float64, Float64, Float64]:
        """Return V (d, m), b (m,) and the row norms (d,) of the last unconstrained step.

        V and E are auxiliary variables with the constraints ``V = W`` and ``E = XW + 1bᵀ - T``.
        L and S are the multipliers of these constraints, divided by μ. XV and XL are updated
        together with V and L, without a pass over X.
        """
        X = system.X
        k = self._n_wanted(X.shape[1])
        mu = self.mu
        V, E = self._start(T, system)
        XV = _sparse_product(X, V)
        L = np.zeros_like(V)
        S = np.zeros_like(E)
        XL = np.zeros_like(E)
        support = np.empty(0, dtype=np.intp)
        unchanged = 0
        objective = []
        for _ in range(self.max_iter):
            # W and b: a ridge problem
            R = T + E - S
            b = R.mean(axis=0)
            W, XW = system.solve(V - L, XV - XL, R - b)
            # V: the k largest rows
            H = W + L
            last_support = support
            V, support, norms = keep_top_rows(H, k)
            XV = _sparse_product(X, V)
            # E: rows shortened by 1/μ
            U = XW + (b - T) + S
            lengths = np.maximum(np.linalg.norm(U, axis=1), np.finfo(np.float64).tiny)
            E = np.maximum(0.0, 1.0 - 1.0 / mu / lengths)[:, None] * U
            # multipliers, in units of the next μ
            next_mu = min(LARGEST_MU, self.rho * mu)
            L = (mu / next_mu) * (H - V)
            XL = (mu / next_mu) * (XW + XL - XV)
            S = (mu / next_mu) * (U - E)
            mu = next_mu
            objective.append(np.linalg.norm(XV + (b - T), axis=1).sum())
            unchanged = unchanged + 1 if np.array_equal(support, last_support) else 0
            is_feasible = np.abs(W - V).max() <= self.tol * np.abs(W).max()
            if self.tol > 0 and is_feasible and unchanged >= PATIENCE:
                break
        self.objective_ = np.array(objective)
        return V, b, norms

    def _start(self, T: Float64, system: RidgeSystem) -> tuple[Float64, Float64]:
        """Return the starting point of V (d, m) and E (n, m)."""
        V = np.zeros((system.X.shape[1], T.shape[1]))
        E = np.zeros(T.shape)
        if not isinstance(self.init, str):
            return self._given_start(V, E)
        if self.init == "zero":
            return V, E
        if self.init == "ridge":
            mean = T.mean(axis=0)
            W, XW = system.solve(V, E, T - mean)
            V, _, _ = keep_top_rows(W, self._n_wanted(len(W)))
            return V, XW + mean - T
        if self.init == "random":
            rng = check_random_state(self.random_state)
            return rng.uniform(size=V.shape), rng.uniform(size=E.shape)
        return self._given_start(V, E)

    def _given_start(self, V: Float64, E: Float64) -> tuple[Float64, Float64]:
        """Return the two arrays in ``init`` if they have the shapes of V and E, else raise."""
        given = self.init if isinstance(self.init, (tuple, list)) else ()
        start = [check_array(part, dtype=np.float64, input_name="init") for part in given]
        if [part.shape for part in start] != [V.shape, E.shape]:
            raise ValueError(
                "init must be 'zero', 'ridge', 'random', or a pair of arrays (V0, E0) of "
                f"shapes {V.shape} and {E.shape}; got {self.init!r}."
            )
        return start[0], start[1]


class RidgeSystem:
    """Minimizes ``‖R - XW‖² + ‖W - B‖²`` over W for many R and B, with one factorization.

    Because the penalty μ multiplies both terms, the matrix ``I + XᵀX`` is the same for every μ
    and k. If there are few samples, ``I + XXᵀ`` is factorized instead.
    """

    def __init__(self, X: Floats) -> None:
        n, d = X.shape
        # Work of one step: n² with the small matrix, d² + nd with the other.
        self.small = n**2 < d**2 + n * d
        self.X = np.asfortranarray(X)  # by columns, of which the iterations take some
        K = X @ X.T if self.small else X.T @ X
        K[np.diag_indices_from(K)] += 1.0
        self.factor = cho_factor(K, overwrite_a=True, check_finite=False)

    def solve(self, B: Float64, XB: Float64, R: Float64) -> tuple[Float64, Float64]:
        """Return W and XW, given B (d, m), XB and R (n, m)."""
        if self.small:  # R - XW = (I + XXᵀ)⁻¹ (R - XB) gives W = B + Xᵀ(R - XW)
            residual = cho_solve(self.factor, R - XB, overwrite_b=True, check_finite=False)
            return B + self.X.T @ residual, R - residual
        W = cho_solve(self.factor, B + self.X.T @ R, overwrite_b=True, check_finite=False)
        return W, self.X @ W


@dataclass(frozen=True, eq=False)
class _Prepared:
    """Everything that does not depend on k: the scaled columns and their ridge system."""

    system: RidgeSystem
    offset: Float64
    scale: Float64

    @classmethod
    def of(cls, data: Training, standardize: bool) -> Self:
        """Scale the columns that vary, and factorize."""
        X, offset, scale = standardize_columns(
            data.varying.astype(np.float64), scale=standardize
        )
        return cls(RidgeSystem(X), offset, scale)


def keep_top_rows(H: Float64, k: int) -> tuple[Float64, Indices, Float64]:
    """Return H with all but its k largest rows 0, their sorted indices, and all norms."""
    norms = np.linalg.norm(H, axis=1)
    top = np.sort(np.argsort(-norms, kind="stable")[:k])
    V = np.zeros_like(H)
    V[top] = H[top]
    return V, top, norms


def _sparse_product(X: Floats, V: Float64) -> Float64:
    """Return XV (n, c) from the non-zero rows of V."""
    used = np.flatnonzero(V.any(axis=1))
    return X[:, used] @ V[used]
