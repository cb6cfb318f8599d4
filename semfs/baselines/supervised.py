"""Linear baselines that use labels or class attributes: LassoSelector, L20ALM."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_random_state

from semfs.baselines.alm import AlmResult, AlmState, RidgeSystem, alternate, keep_top_rows
from semfs.baselines.fitting import (
    break_ties,
    gram_matrix,
    last_if_constant,
)
from semfs.baselines.sparse_regression import SparseFit, sparse_regression
from semfs.baselines.supervision import (
    LinearProblem,
    SupervisedSelector,
    TargetSpace,
    linear_problem,
)
from semfs.progress import Progress
from semfs.selectors.base import constant_columns
from semfs.validation import check_integer, check_number, check_option

__all__ = ["L20ALM", "LassoSelector"]

LARGEST_BLOCKS = 2**25  # numbers in an array of n rows for several k side by side
MANY_COEFFICIENTS = 1_000_000  # entries of W above which a looser tolerance must do


class LassoSelector(SupervisedSelector):
    """LASSO (Tibshirani 1996) for several outputs; features ranked by coefficient rows.

    ::

        min_W  ½‖T - XW‖² + lam · Ω(W),    score_i = ‖w_i‖

    with ``T = A[y]`` (class attributes, or one-hot labels) and ``Ω`` the sum of absolute
    values (``penalty="l1"``, outputs independent) or of row norms (``"l21"``, the group
    lasso). The loss has no factor 1/n: scikit-learn's ``alpha`` is ``lam / n``.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Does not change the scores.
    attributes : None, DataFrame, mapping or array, default=None
        One row of numbers per class, see :func:`semfs.attributes.align_attributes`. None
        takes the labels themselves, one-hot.
    lam : float, default=1.0
    penalty : {"l1", "l21"}, default="l1"
    fit_intercept : bool, default=True
        Centre X and T.
    standardize : bool, default=True
        Divide columns by their standard deviation. On raw features with a small ``lam``
        the largest coefficients sit on nearly constant columns.
    row_norm : {"l2", "l1", "max"}, default="l2"
        How a row of W is turned into a score.
    scale_scores : bool, default=False
        Multiply scores by the standard deviation of the column when ``standardize`` is
        False.
    tol : float or None, default=None
        Duality gap relative to ``½‖t‖²`` at which to stop. None is 1e-12, or 1e-4 when W has
        over 10⁶ entries (enough to rank; 1e-12 would take hours).
    max_iter : int, default=10_000
    verbose : bool or int, default=0

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Row norms of W in standardised units; ``-inf`` for constant columns. Zero rows have
        tiny negative scores that rank them by ``max_j |x_iᵀ r_j|``, the penalty at which
        they would enter.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.
    coef_ : ndarray of shape (d, m)
        W for raw X.
    intercept_ : ndarray of shape (m,)
    gap_ : float
        Largest relative duality gap reached.
    n_iter_ : int
    classes_ : ndarray of shape (C,)

    Notes
    -----
    Reference numbers are SLEP's ``LeastR``: ``fit_intercept=False, standardize=False``.
    Intercept and standardisation are on by default because every other column is at the
    mercy of its units. With fewer than ``n_features_to_select``
    non-zero rows the rest is filled by residual correlation, with a warning, never by
    column index. Solved by FISTA on XᵀX for all outputs at once: scikit-learn's coordinate
    descent has no Gram form for "l21" and is slower for hundreds of outputs.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from semfs.baselines import LassoSelector
    >>> X, y = load_iris(return_X_y=True)
    >>> LassoSelector(2, lam=10.0).fit(X, y).get_support()
    array([False, False,  True,  True])
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        attributes: Any = None,
        lam: float = 1.0,
        penalty: str = "l1",
        fit_intercept: bool = True,
        standardize: bool = True,
        row_norm: str = "l2",
        scale_scores: bool = False,
        tol: float | None = None,
        max_iter: int = 10_000,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes
        self.lam = lam
        self.penalty = penalty
        self.fit_intercept = fit_intercept
        self.standardize = standardize
        self.row_norm = row_norm
        self.scale_scores = scale_scores
        self.tol = tol
        self.max_iter = max_iter
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> LassoSelector:
        """Rank the features of X (n, d) for labels y (n,)."""
        with self._all_or_nothing():
            X, codes, T = self._check_supervision(X, y)
            self._check_parameters()
            problem, G, Q = self._moments(X, T, codes)
            self._store(problem, self._solve(problem, G, Q))
        return self

    def path(self, X: Any, y: Any, lams: Iterable[float]) -> list[LassoSelector]:
        """Return one fitted selector per value of ``lam``, in the order given.

        XᵀX is computed once, and each solution starts the next smaller ``lam``.
        """
        checked = clone(self)
        X, codes, T = checked._check_supervision(X, y)
        checked._check_parameters()
        problem, G, Q = self._moments(X, T, codes)
        fitted: dict[float, LassoSelector] = {}
        lams, W = list(lams), None
        for lam in sorted(set(lams), reverse=True):
            selector = self._fitted_copy(checked, lam=lam)
            selector._check_parameters()
            fit = selector._solve(problem, G, Q, W)
            selector._store(problem, fit)
            fitted[lam], W = selector, fit.W
        return [fitted[lam] for lam in lams]

    def _moments(
        self, X: np.ndarray, T: np.ndarray, codes: np.ndarray
    ) -> tuple[LinearProblem, np.ndarray, np.ndarray]:
        """Return the scaled problem, XᵀX and XᵀT."""
        # X is centred with an intercept: then only centred targets matter
        origin = T.mean(axis=0) if self.fit_intercept else np.zeros(T.shape[1])
        space = TargetSpace(origin)
        if self.penalty == "l21":  # rows of W count by their length only
            space = TargetSpace.of(T, codes, origin)
        problem = linear_problem(
            "LassoSelector", X, T, space, center=self.fit_intercept, scale=self.standardize
        )
        G = gram_matrix(problem.X)
        Q = np.asarray(problem.X.T @ problem.T, dtype=np.float64)
        if self._tolerance(Q) >= 1e-5:  # float32 is good enough for that
            G, Q = G.astype(X.dtype), Q.astype(X.dtype)
        return problem, G, Q

    def _tolerance(self, Q: np.ndarray) -> float:
        if self.tol is not None:
            return self.tol
        return 1e-12 if Q.size <= MANY_COEFFICIENTS else 1e-4

    def _solve(
        self, problem: LinearProblem, G: np.ndarray, Q: np.ndarray, W: np.ndarray | None = None
    ) -> SparseFit:
        t_squared = (problem.T.astype(np.float64) ** 2).sum(axis=0)
        with Progress("LassoSelector", None, self.verbose) as progress:
            return sparse_regression(
                G,
                Q,
                t_squared,
                self.lam,
                penalty=self.penalty,
                tol=self._tolerance(Q),
                max_iter=self.max_iter,
                W=W,
                report=progress.step,
            )

    def _store(self, problem: LinearProblem, fit: SparseFit) -> None:
        W = np.asarray(fit.W, dtype=np.float64)
        order = {"l2": 2, "l1": 1, "max": np.inf}[self.row_norm]
        scores = np.linalg.norm(W, ord=order, axis=1)
        self._warn_if_few(int(np.count_nonzero(scores)), len(scores))
        if self.scale_scores and not self.standardize:
            scores = scores * problem.std
        scores = break_ties(scores, np.abs(fit.correlations).max(axis=1))
        coef = W / problem.scale[:, None]
        self.coef_ = problem.spread(coef)
        self.intercept_ = problem.intercept(np.zeros(coef.shape[1]), coef)
        self.gap_ = float(fit.gap.max())
        self.n_iter_ = fit.n_iter
        if self.gap_ > 1e-3:
            warnings.warn(
                f"LassoSelector stopped after {fit.n_iter} iterations at a relative duality "
                f"gap of {self.gap_:.1e}. Raise max_iter or lam.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self._set_ranking(last_if_constant(scores, problem.constant))

    def _warn_if_few(self, n_nonzero: int, d: int) -> None:
        wanted = min(self.n_features_to_select, d)
        if n_nonzero < wanted:
            warnings.warn(
                f"Only {n_nonzero} features have a non-zero coefficient at lam={self.lam:g}; "
                f"the other {wanted - n_nonzero} are ranked by residual correlation. "
                "Lower lam for more.",
                UserWarning,
                stacklevel=4,
            )

    def _check_parameters(self) -> None:
        check_option("penalty", self.penalty, ("l1", "l21"))
        check_option("row_norm", self.row_norm, ("l2", "l1", "max"))
        check_number("lam", self.lam, above=0)
        if self.tol is not None:
            check_number("tol", self.tol, at_least=0)
        check_integer("max_iter", self.max_iter, 1)


class L20ALM(SupervisedSelector):
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
    verbose : bool or int, default=0

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
    The iterations are those of the public program. Differences: the zero start and
    standardisation (with its random start and raw features a constant column keeps its
    random row for ever and wins the contest: it selects pixels that are always 0); the
    stopping rule; constant columns left out; a d × d factor when n ≥ d, computed once (the
    original always inverts n × n); a ranking inside and outside the selected set (the
    original returns an unordered set). The factor, V and W are float64; arrays of n rows
    keep the dtype of X, and in float32 the iterations end when the penalty passes 1e6,
    where the multipliers are lost to rounding.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from semfs.baselines import L20ALM
    >>> X, y = load_iris(return_X_y=True)
    >>> L20ALM(2).fit(X, y).get_support()
    array([False,  True, False,  True])
    """

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
        verbose: int = 0,
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
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> L20ALM:
        """Choose the features of X (n, d) for labels y (n,)."""
        with self._all_or_nothing():
            X, codes, T = self._check_supervision(X, y)
            self._check_parameters()
            problem, system = self._prepare(X, T, codes)
            start = self._start(problem, system)
            (result,) = self._solve(problem, system, [start], [self.n_features_to_select])
            self._store(problem, result, constant_columns(X))
        return self

    def path(
        self, X: Any, y: Any, ks: Iterable[int], *, warm_start: bool = False
    ) -> list[L20ALM]:
        """Return one fitted selector per number of features k, in the order given.

        The same as separate fits, but the factorisation is shared and the iterations for
        all k run side by side, which makes ten of them nearly as quick as one.

        With ``warm_start`` each k, in ascending order, starts from V and E of the one
        before; the answer then differs from a separate fit (the problem is not convex) and
        is as often worse as better. Multipliers start at 0 with the penalty: they have
        grown along with it, and kept beside a small penalty they make the iterations
        diverge.
        """
        checked = clone(self)
        X, codes, T = checked._check_supervision(X, y)
        checked._check_parameters()
        problem, system = self._prepare(X, T, codes)
        ks = list(ks)
        fitted = {k: self._fitted_copy(checked, n_features_to_select=k) for k in sorted(ks)}
        for selector in fitted.values():
            check_integer("n_features_to_select", selector.n_features_to_select, 1)
        solve = self._solve_in_turn if warm_start else self._solve_side_by_side
        for selector, result in zip(fitted.values(), solve(problem, system, fitted)):
            selector._store(problem, result, constant_columns(X))
        return [fitted[k] for k in ks]

    def _solve_in_turn(
        self, problem: LinearProblem, system: RidgeSystem, fitted: dict[int, L20ALM]
    ) -> Iterator[AlmResult]:
        state: AlmState | None = None
        for k, selector in fitted.items():
            state = selector._start(problem, system) if state is None else state
            (result,) = self._solve(problem, system, [state], [k])
            state = result.state
            yield result

    def _solve_side_by_side(
        self, problem: LinearProblem, system: RidgeSystem, fitted: dict[int, L20ALM]
    ) -> Iterator[AlmResult]:
        ks = list(fitted)
        width = max(1, LARGEST_BLOCKS // problem.T.size)
        for first in range(0, len(ks), width):
            some = ks[first : first + width]
            starts = [fitted[k]._start(problem, system) for k in some]
            yield from self._solve(problem, system, starts, some)

    def _prepare(
        self, X: np.ndarray, T: np.ndarray, codes: np.ndarray
    ) -> tuple[LinearProblem, RidgeSystem]:
        given = not isinstance(self.init, str)
        if given or self.init == "random":  # a start in the columns as they are
            space = TargetSpace(np.zeros(T.shape[1]))
        else:  # every step looks at rows by their length only
            space = TargetSpace.of(T, codes, T.mean(axis=0))
        problem = linear_problem(
            "L20ALM", X, T, space, center=True, scale=self.standardize, keep_all=given
        )
        return problem, RidgeSystem(problem.X)

    def _start(self, problem: LinearProblem, system: RidgeSystem) -> AlmState:
        X, T = problem.X, problem.T
        V, E = np.zeros((X.shape[1], T.shape[1])), np.zeros_like(T)
        if isinstance(self.init, str):
            if self.init == "ridge":
                W, XW = system.solve(V, E, T - T.mean(axis=0))
                V = keep_top_rows(W, self.n_features_to_select)[0]
                E = XW + T.mean(axis=0) - T
            elif self.init == "random":
                rng = check_random_state(self.random_state)
                V, E = rng.uniform(size=V.shape), rng.uniform(size=E.shape).astype(E.dtype)
        else:
            V, E = self._given_start(V.shape, E.shape, E.dtype)
        return AlmState(V, E)

    def _given_start(
        self, V_shape: tuple[int, ...], E_shape: tuple[int, ...], dtype: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        V, E = (np.array(part, dtype=np.float64) for part in self.init)
        if V.shape != V_shape or E.shape != E_shape:
            raise ValueError(
                f"init must be (V0, E0) of shapes {V_shape} and {E_shape} (features × outputs, "
                f"samples × outputs); got {V.shape} and {E.shape}."
            )
        return V, E.astype(dtype)

    def _solve(
        self,
        problem: LinearProblem,
        system: RidgeSystem,
        starts: list[AlmState],
        ks: list[int],
    ) -> list[AlmResult]:
        with Progress("L20ALM", self.max_iter, self.verbose) as progress:
            return alternate(
                problem.T,
                system,
                starts,
                ks=ks,
                mu=self.mu,
                rho=self.rho,
                max_iter=self.max_iter,
                tol=self.tol,
                report=progress.step,
            )

    def _store(self, problem: LinearProblem, result: AlmResult, constant: np.ndarray) -> None:
        V = result.state.V
        # rows of V belong to scaled columns: ‖v_i / scale‖ · std = ‖v_i‖ when standardised
        scores = np.linalg.norm(V, axis=1) * problem.std / problem.scale
        scores = break_ties(scores, result.row_norms)
        coef = V / problem.scale[:, None]
        self.coef_ = problem.spread(coef)
        b = np.asarray(result.b, dtype=np.float64)
        self.center_intercept_ = problem.space.origin + problem.space.coefficients(b)
        self.intercept_ = problem.intercept(b, coef)
        self.objective_ = result.objective
        self.n_iter_ = len(result.objective)
        self._set_ranking(last_if_constant(scores, constant))

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
