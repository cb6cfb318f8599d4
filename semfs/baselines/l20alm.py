"""L20ALM: exactly k features under an unsquared loss, by an augmented Lagrangian."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from sklearn.base import clone
from sklearn.utils import check_random_state

from semfs.baselines.base import (
    Baseline,
    LinearProblem,
    Training,
    break_ties,
    column_std,
    gram_matrix,
)
from semfs.validation import check_integer, check_number, check_option

__all__ = ["L20ALM", "AugmentedLagrangian", "RidgeSystem", "keep_top_rows"]

LARGEST_MU = 1e10
LARGEST_MU_FLOAT32 = 1e6  # beyond it float32 loses the multipliers
LARGEST_FLOAT64 = 2**23  # entries of X up to which float32 data are iterated in float64
LARGEST_BLOCKS = 2**25  # numbers in an array of n rows for several k side by side
PATIENCE = 20  # iterations without a change of the support before stopping


class L20ALM(Baseline):
    """Exactly k features by an augmented Lagrangian (Cai, Nie and Huang, IJCAI 2013).

    ::

        min_{W,b}  Σ_i ‖W'x_i + b - t_i‖    s.t.  W has k = n_features_to_select non-zero rows

    a robust (unsquared) loss under an exact row-sparsity constraint; not convex. Supports
    for different k are not nested: solve again for each (:meth:`path` does so quickly).

    Parameters
    ----------
    n_features_to_select : int, default=50
    attributes : None, DataFrame, mapping or array, default=None
        One row of numbers per class, see :func:`semfs.attributes.align_attributes`. None
        takes the labels themselves, one-hot.
    mu : float, default=1.0
        First penalty of the augmented Lagrangian.
    rho : float, default=1.1
        Factor by which it grows per iteration, up to 1e10.
    max_iter : int, default=150
    tol : float, default=1e-4
        Stop when the support has not changed for 20 iterations and
        ``max|W - V| ≤ tol · max|W|``. 0 runs all iterations.
    init : {"zero", "ridge", "random"} or pair of arrays (V0, E0), default="zero"
        Start of V (d, m) and E (n, m). "ridge" starts from the unconstrained ridge fit;
        "random" is the original's uniform [0, 1]. With a pair all columns take part, also
        constant ones, exactly as in the original.
    standardize : bool, default=True
        Divide columns by their standard deviation (they are centred in any case).
    random_state : int, RandomState or None, default=0
        For ``init="random"``.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        ``‖v_i‖ · std_i`` for the k selected features; tiny negative scores rank the others
        by their row of the last unconstrained step; ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.
    coef_ : ndarray of shape (d, m)
        V for raw X, with k non-zero rows.
    intercept_ : ndarray of shape (m,)
        For raw X: predictions are ``X @ coef_ + intercept_``.
    center_intercept_ : ndarray of shape (m,)
        The model's b, which belongs to centred X.
    objective_ : ndarray of shape (n_steps,)
        ``Σ_i ‖V'x_i + b - t_i‖`` after each iteration.
    n_iter_ : int
    classes_ : ndarray of shape (C,)

    Notes
    -----
    The iterations are those of the public program; what differs, and why, is on the page on
    the comparison methods. Its random start on raw features selects constant columns.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from semfs.baselines import L20ALM
    >>> X, y = load_iris(return_X_y=True)
    >>> L20ALM(2).fit(X, y).get_support()
    array([False,  True, False,  True])
    """

    _supervised = True

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        attributes: Any = None,
        mu: float = 1.0,
        rho: float = 1.1,
        max_iter: int = 150,
        tol: float = 1e-4,
        init: Any = "zero",
        standardize: bool = True,
        random_state: Any = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes
        self.mu = mu
        self.rho = rho
        self.max_iter = max_iter
        self.tol = tol
        self.init = init
        self.standardize = standardize
        self.random_state = random_state

    @property
    def _unit_free(self) -> bool:  # type: ignore[override]
        return bool(self.standardize)

    def path(self, X: Any, y: Any, ks: Iterable[int]) -> list[L20ALM]:
        """Return one fitted selector per number of features k, in the order given.

        The same as separate fits, but the factorisation is shared and the iterations for
        all k run side by side, which makes ten of them nearly as quick as one.
        """
        first, ks = clone(self), list(ks)
        with first._breakdown_explained():
            data = first._training(X, y)
            fitted = {k: copy.copy(first).set_params(n_features_to_select=k) for k in ks}
            for k in fitted:
                check_integer("n_features_to_select", k, 1)
            for selector, scores in first._solve(data, list(fitted.values())):
                selector._rank(scores, data)
        return [fitted[k] for k in ks]

    def _scores(self, data: Training) -> np.ndarray:
        ((_, scores),) = self._solve(data, [self])
        return scores

    def _solve(
        self, data: Training, selectors: list[L20ALM]
    ) -> Iterator[tuple[L20ALM, np.ndarray]]:
        """Yield each selector, which differ in k only, with its scores."""
        if not isinstance(self.init, str):  # a start in all columns, as they are
            data = replace(data, constant=np.zeros_like(data.constant))
        problem = LinearProblem.of(data, center=True, scale=self.standardize)
        system = RidgeSystem(problem.X)
        width = max(1, LARGEST_BLOCKS // problem.T.size)
        for some in (selectors[i : i + width] for i in range(0, len(selectors), width)):
            starts = [selector._start(problem, system) for selector in some]
            ks = [selector.n_features_to_select for selector in some]
            lagrangian = AugmentedLagrangian(system, problem.T, starts, ks, self.mu)
            runs = lagrangian.minimize(self.rho, self.max_iter, self.tol)
            for selector, run in zip(some, runs):
                yield selector, selector._store(problem, run)

    def _start(self, problem: LinearProblem, system: RidgeSystem) -> tuple[Any, Any]:
        """Return V (d, m) and E (n, m)."""
        T = problem.T
        V, E = np.zeros((problem.X.shape[1], T.shape[1])), np.zeros_like(T)
        if self.init == "zero":
            return V, E
        if self.init == "ridge":
            W, XW = system.solve(V, E, T - T.mean(axis=0))
            return keep_top_rows(W, self.n_features_to_select)[0], XW + T.mean(axis=0) - T
        if self.init == "random":
            rng = check_random_state(self.random_state)
            return rng.uniform(size=V.shape), rng.uniform(size=E.shape)
        V0, E0 = (np.array(part, dtype=np.float64) for part in self.init)
        if V0.shape != V.shape or E0.shape != E.shape:
            raise ValueError(
                f"init must be (V0, E0) of shapes {V.shape} and {E.shape} (features × outputs, "
                f"samples × outputs); got {V0.shape} and {E0.shape}."
            )
        return V0, E0

    def _store(self, problem: LinearProblem, run: Run) -> np.ndarray:
        b = np.asarray(run.b, dtype=np.float64)
        self.coef_, self.intercept_ = problem.raw(run.V, b)
        self.center_intercept_ = b
        self.objective_ = np.array(run.objective)
        self.n_iter_ = len(run.objective)
        norms = np.linalg.norm(run.V, axis=1)
        # rows of V belong to scaled columns: ‖v_i / scale‖ · std = ‖v_i‖ when standardised
        scores = norms if self.standardize else norms * column_std(problem.X)
        return break_ties(scores, run.row_norms)

    def _check_parameters(self) -> None:
        if isinstance(self.init, str):
            check_option("init", self.init, ("zero", "ridge", "random"))
        elif not (isinstance(self.init, (tuple, list)) and len(self.init) == 2):
            raise ValueError(
                "init must be one of 'zero', 'ridge', 'random', or a pair of arrays "
                f"(V0, E0); got {self.init!r}."
            )
        check_number("mu", self.mu, above=0)
        check_number("rho", self.rho, at_least=1)
        check_number("tol", self.tol, at_least=0)
        check_integer("max_iter", self.max_iter, 1)


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
        """Return W in float64 and XW, from B (d, …), XB and R (n, …).

        One pass over X when n is small, where the residual ``R - XW = (I + XXᵀ)⁻¹ (R - XB)``
        gives W as ``B + Xᵀ(R - XW)``; two passes otherwise.
        """
        shapes = B.shape, R.shape
        B, XB, R = (M.reshape(len(M), -1) for M in (B, XB, R))
        if self.small:
            residual = cho_solve(self.factor, R - XB, overwrite_b=True, check_finite=False)
            W, XW = B + self.X.T @ residual, R - residual
        else:
            right = B + self.X.T @ R
            W = cho_solve(self.factor, right, overwrite_b=True, check_finite=False)
            XW = self.X @ W.astype(self.X.dtype)
        return W.reshape(shapes[0]), XW.reshape(shapes[1])


class Run:
    """What the iterations for one k have come to."""

    V: np.ndarray  # (d, c), with k non-zero rows
    b: np.ndarray  # (c,), for centred data
    row_norms: np.ndarray  # (d,), rank the features left out

    def __init__(self, k: int) -> None:
        self.k = k
        self.support = np.empty(0, dtype=np.intp)
        self.unchanged = 0  # iterations for which the support has been the same
        self.objective: list[float] = []  # Σ_i ‖x̃_i V + b - t_i‖ after each iteration


class AugmentedLagrangian:
    """Where the iterations for several k stand, run side by side on the X of a system.

    V carries the row-sparsity constraint ``V = W``, E the loss ``E = XW + 1bᵀ - T``. Their
    multipliers are kept divided by μ (``L``, ``S``), which float32 can hold for any μ; XV and
    XL follow V and L without a pass over X. Blocks are (d, K, c) or (n, K, c), the middle
    axis that of k: a pass over X for ten of them costs little more than for one. Those of n
    rows have the dtype of X.
    """

    def __init__(
        self,
        system: RidgeSystem,
        T: np.ndarray,
        starts: list[tuple[np.ndarray, np.ndarray]],
        ks: list[int],
        mu: float,
    ) -> None:
        dtype = system.X.dtype
        self.system, self.mu = system, mu
        self.T = T.astype(dtype, copy=False)[:, None]
        self.V = np.stack([V for V, _ in starts], axis=1)
        self.XV = np.stack([_sparse_product(system.X, V) for V, _ in starts], axis=1)
        self.E = np.stack([E for _, E in starts], axis=1).astype(dtype, copy=False)
        self.L, self.S, self.XL = (np.zeros_like(M) for M in (self.V, self.E, self.E))
        self.runs = [Run(k) for k in ks]

    def minimize(self, rho: float, max_iter: int, tol: float) -> list[Run]:
        """Iterate; with ``tol > 0`` each k stops when its support has settled."""
        runs = self.runs
        exact = self.system.X.dtype == np.float64
        for _ in range(max_iter):
            gaps = self.step(rho)
            if self.mu > (LARGEST_MU if exact else LARGEST_MU_FLOAT32):
                break
            settled = [run.unchanged >= PATIENCE for run in self.runs] & (gaps <= tol)
            if tol > 0 and settled.any():
                self._keep(~settled)
            if not self.runs:
                break
        return runs

    def step(self, rho: float) -> np.ndarray:
        """Iterate once, μ growing by ``rho``; return ``max|W - V| / max|W|`` for each k."""
        R = self.T + self.E - self.S
        b = R.mean(axis=0)
        W, XW = self.system.solve(self.V - self.L, self.XV - self.XL, R - b)
        H = W + self.L
        V, XV = np.zeros_like(H), np.empty_like(XW)
        for j, run in enumerate(self.runs):
            V[:, j], support, run.row_norms = keep_top_rows(H[:, j], run.k)
            XV[:, j] = _sparse_product(self.system.X, V[:, j])
            same = np.array_equal(support, run.support)
            run.unchanged, run.support = run.unchanged + 1 if same else 0, support
        U = XW + (b - self.T) + self.S
        E = _shrink_rows(U, 1.0 / self.mu)
        previous, self.mu = self.mu, min(LARGEST_MU, rho * self.mu)
        self.L = (previous / self.mu) * (H - V)
        self.XL = (previous / self.mu) * (XW + self.XL - XV)
        self.S = (previous / self.mu) * (U - E)
        self.V, self.XV, self.E = V, XV, E
        objective = _row_norms(XV + (b - self.T)).sum(axis=0, dtype=np.float64)
        for j, run in enumerate(self.runs):
            run.V, run.b = V[:, j], b[j]
            run.objective.append(float(objective[j]))
        return np.abs(W - V).max(axis=(0, 2)) / np.maximum(np.abs(W).max(axis=(0, 2)), 1e-300)

    def _keep(self, going: np.ndarray) -> None:
        """Go on with some of the k only."""
        self.runs = [run for run, goes in zip(self.runs, going) if goes]
        for name in ("V", "XV", "E", "L", "XL", "S"):
            setattr(self, name, getattr(self, name)[:, going])


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
