"""SemFS: the scikit-learn selector. Parameters in, moments, solver, fitted attributes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs.attributes import AttributeTable, align_attributes, as_attribute_table
from semfs.moments import Moments
from semfs.objective import SAFE_RELATIVE_PENALTY, Objective, reduce_rank
from semfs.rows import SourceRows, as_source
from semfs.rows.devices import (
    as_numpy,
    check_same_namespace,
    floating_dtypes,
    is_foreign,
    like,
    predict_linear,
    spread_columns,
)
from semfs.selector import RankingSelector, check_n_features_to_select
from semfs.solvers import STEP_RULES, Solution, solve_alternating, solve_direct
from semfs.validation import (
    check_integer,
    check_number,
    check_option,
    check_weights,
    label_array,
)

__all__ = ["AS_PUBLISHED", "SemFS"]

#: Algorithm 1 as the paper states it: ``SemFS(50, attributes=A, **AS_PUBLISHED)``.
#: The paper fixes neither the start, the step nor the number of inner steps; these are ours.
AS_PUBLISHED: dict[str, Any] = {
    "solver": "alternating",
    "alpha": 1.0,
    "gamma": 0.1,
    "penalty_scale": "none",
    "fit_intercept": False,
    "class_weight": None,
    "n_inner": 1,
    "step": "lipschitz",
    "s_init": None,
}


class SemFS(CallbackSupportMixin, RankingSelector):
    """Select the features that tell apart classes nobody has labelled yet.

    Features are chosen on labelled *seen* classes so that they predict the *attributes*
    (descriptions) of a class. What predicts the attributes of seen classes also separates
    unseen classes, which are other combinations of the same attributes. The objective is
    that of Wang et al., "Zero-shot Feature Selection via Transferring Supervised
    Knowledge"::

        J(W, s) = ‖Y_s − X S W‖² + alpha ‖Y_s − X̄ S W‖² + gamma ‖W‖²,   S = diag(s)

    with Y_s the attribute row of each row's class and X̄ the class means.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Number of features to keep. More than there are: a warning, and all are kept.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        Class descriptions: a pandas frame indexed by class label (or a polars frame whose
        first column holds the labels), a mapping from label to vector, or an array whose
        row r belongs to the integer label r. Rows of other classes are ignored. None uses
        the class labels themselves as targets, one indicator per class.
    alpha : float, default=1.0
        Weight of the center-characteristic loss; it shrinks the within-class scatter by
        1/(1 + alpha). 0 is the paper's SemFS/c.
    gamma : float, default=1.0
        Ridge penalty, in units set by `penalty_scale`.
    penalty_scale : {"gram", "none"}, default="gram"
        "gram" multiplies `gamma` by tr(G)/d, which makes the ranking independent of the
        scale of X and of the number of rows. "none" takes `gamma` as it stands.
    solver : {"direct", "alternating"}, default="direct"
        "direct" solves the paper's 0/1 problem (Eq. 4) by forward selection; its ranking is
        nested: the first j features are the answer for j. "alternating" is the paper's
        Algorithm 1, kept as a reference.
    fit_intercept : bool, default=True
        Whether to centre X and the attributes.
    class_weight : "balanced", mapping or None, default=None
        Weight of each class; "balanced" lets every class count the same.
    include, exclude : sequence of int or str, optional
        Features, by index or by name, that are chosen before all others or never.
    max_iter : int, default=20
        Rounds of "alternating".
    tol : float, default=1e-4
        "alternating" stops when a round lowers J by less than this fraction.
    n_inner : int, default=1
        Projected gradient steps per round of "alternating".
    step : {"lipschitz", "exact"} or float, default="lipschitz"
        Step length of "alternating": 1/λ_max of the Hessian, the minimiser along the
        gradient, or a fixed length (halved while J would rise).
    s_init : array-like of shape (d,), optional
        Start of "alternating"; by default all ones.
    n_swaps : int, default=0
        After "direct": at most this many exchanges of a chosen feature for another one,
        while J falls.
    verbose : int, default=0
        Print a line per feature ("direct") or round ("alternating").

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Importance, larger is better: s for "alternating"; for "direct" the decrease of J
        when the feature entered, or for features beyond the ranking their next gain.
        ``-inf`` for constant and excluded columns.
    order_ : ndarray of shape (d,)
        Feature indices, best first. Constant columns come last, then excluded ones.
    ranking_ : ndarray of shape (d,)
        Position of each feature, 1 is best.
    support_ : ndarray of bool of shape (d,)
        The selected features.
    selection_ : ndarray of shape (d,)
        s of the paper: 0/1 for "direct", non-negative for "alternating".
    coef_ : ndarray of shape (d, m)
        W, in the attributes of the table given; zero rows for features that "direct" did
        not choose.
    intercept_ : ndarray of shape (m,)
        Intercept of the attribute prediction.
    objective_ : ndarray of shape (n_steps,)
        J after each added feature ("direct") or round ("alternating").
    n_iter_ : int
        Number of features added or rounds run.
    classes_ : ndarray of shape (C,)
        Seen classes.
    class_table_ : AttributeTable
        Their descriptions.
    n_features_in_, feature_names_in_, attribute_names_in_
        Number and names of features (if X has names) and names of the attributes.

    Notes
    -----
    Only class counts, class means and the scatter matrix are needed (see `Moments`), so
    `partial_fit` and `fit_moments` give the same answer as `fit`. With X in memory "direct"
    reads a few Gram columns at a time and never forms the d × d matrix; sparse X stays
    sparse. Products of float32 data are taken in float32 and added up in float64, except
    when `gamma` is so small that rounding would drown it; the solvers work in float64.

    With ``sklearn.set_config(array_api_dispatch=True)`` torch or CuPy arrays are summed up on
    their device; the solver works on the host, and results return to the device.

    Examples
    --------
    >>> from sklearn.datasets import make_classification
    >>> X, y = make_classification(
    ...     600, 20, n_informative=6, n_redundant=0, n_classes=6, shuffle=False, random_state=0
    ... )
    >>> table = {c: [c % 2, c // 2] for c in range(6)}  # a description of each class
    >>> selector = SemFS(4, attributes=table).fit(X[y < 4], y[y < 4])
    >>> selector.get_feature_names_out()
    array(['x0', 'x1', 'x4', 'x5'], dtype=object)
    >>> selector.transform(X[y >= 4]).shape  # columns for classes it never saw
    (199, 4)
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        attributes: Any = None,
        *,
        alpha: float = 1.0,
        gamma: float = 1.0,
        penalty_scale: str = "gram",
        solver: str = "direct",
        fit_intercept: bool = True,
        class_weight: Any = None,
        include: Any = None,
        exclude: Any = None,
        max_iter: int = 20,
        tol: float = 1e-4,
        n_inner: int = 1,
        step: str | float = "lipschitz",
        s_init: Any = None,
        n_swaps: int = 0,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes
        self.alpha = alpha
        self.gamma = gamma
        self.penalty_scale = penalty_scale
        self.solver = solver
        self.fit_intercept = fit_intercept
        self.class_weight = class_weight
        self.include = include
        self.exclude = exclude
        self.max_iter = max_iter
        self.tol = tol
        self.n_inner = n_inner
        self.step = step
        self.s_init = s_init
        self.n_swaps = n_swaps
        self.verbose = verbose

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.array_api_support = True
        return tags

    # ---- fitting ----------------------------------------------------------------------

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> SemFS:
        """Choose features on the seen classes.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Rows of the seen classes. Data beyond memory are read in blocks: a memmap; the path
            of a ``.npy``, Parquet, Zarr, HDF5 or ``.h5ad`` file; an iterable of (X, y) blocks;
            see `semfs.rows.open_blocks` for options. Dask arrays and frames are summed up
            where they are.
        y : array-like of shape (n,)
            Their class labels, of any one hashable type; or the name of the column that holds
            them. Not for (X, y) blocks.
        sample_weight : array-like of shape (n,), optional
            Row weights.

        Returns
        -------
        self : SemFS
            The fitted selector.
        """
        with self._all_or_nothing():
            self._check_parameters()
            rows = _beyond_memory(X, y, sample_weight)
            if rows is None:
                X, moments = self._moments_of(X, y, sample_weight, reset=True)
            else:
                X, moments = None, self._moments_of_rows(rows)
            self.__dict__.pop("moments_", None)
            self._fit_from(moments, X, y)
            if rows is not None:
                rows.finished()
            return self

    @with_callbacks
    def fit_moments(self, moments: Moments) -> SemFS:
        """Choose features from moments instead of rows; the answer is the same.

        Parameters
        ----------
        moments : Moments
            Moments of the seen classes. `class_weight` needs moments that still hold their
            rows (`Moments.from_data`).

        Returns
        -------
        self : SemFS
            The fitted selector.
        """
        self._check_parameters()
        check_n_features_to_select(self.n_features_to_select)
        if not isinstance(moments, Moments):
            raise TypeError(f"fit_moments needs Moments, got {type(moments).__name__}.")
        weights = self._class_weights(moments.classes, moments.counts)
        if weights is not None:
            moments = moments.reweighted(dict(zip(moments.classes.tolist(), weights)))
        with self._all_or_nothing():
            self.n_features_in_ = moments.n_features
            for name in ("moments_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return self._fit_from(moments)

    @with_callbacks
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SemFS:
        """Add rows to those of earlier calls and choose features on all of them.

        New classes may appear at any time; until there are two, the selector only collects.
        `fit` forgets what was collected.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Rows of the seen classes.
        y : array-like of shape (n,)
            Their class labels.
        sample_weight : array-like of shape (n,), optional
            Row weights.

        Returns
        -------
        self : SemFS
            The selector, fitted once two classes have been seen.
        """
        if isinstance(self.class_weight, str):
            raise ValueError(
                'class_weight="balanced" needs all labels at once and does not work with '
                "partial_fit. Pass a mapping class -> weight."
            )
        collected: Moments | None = getattr(self, "moments_", None)
        with self._all_or_nothing():
            X, moments = self._moments_of(X, y, sample_weight, reset=collected is None)
            align_attributes(self.attributes, moments.classes)  # refuse before adding
            moments = moments.own() if collected is None else collected + moments
            self.moments_ = moments
            if (moments.counts > 0).sum() > 1:
                self._fit_from(moments, X, y)
        return self

    def _moments_of(
        self, X: Any, y: Any, sample_weight: Any, *, reset: bool
    ) -> tuple[Any, Moments]:
        """Validated X and its moments; finiteness shows in them, which saves a pass over X."""
        self._check_parameters()
        y, sample_weight = as_numpy(y), as_numpy(sample_weight)
        X, classes, codes = self._check_training_data(
            X, y, accept_sparse=True, ensure_all_finite=False, reset=reset
        )
        assert classes is not None
        assert codes is not None
        weights = self._row_weights(codes, classes, check_weights(sample_weight, X.shape[0]))
        return X, Moments.from_checked(X, codes, classes, weights)

    def _moments_of_rows(self, rows: Any) -> Moments:
        """Moments of rows that stay on disk or on a cluster, or are loaded if there are few."""
        check_n_features_to_select(self.n_features_to_select)
        if rows.fits:
            moments = self._moments_of(*rows.load(), reset=True)[1]
        else:
            if self.class_weight is not None:
                balanced = isinstance(self.class_weight, str)
                rows = rows.weighted(self._class_factors, balanced=balanced)
            direct = self.solver == "direct"
            sums = rows.sums(
                n_select=min(self.n_features_to_select, rows.n_features) if direct else None,
                precise=self.penalty_scale != "gram" or self.gamma < SAFE_RELATIVE_PENALTY,
                verbose=self.verbose,
            )
            moments = Moments.from_sums(*sums)
        self.n_features_in_ = rows.n_features
        self.__dict__.pop("feature_names_in_", None)
        if rows.feature_names is not None:
            self.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)
        return moments

    def _class_factors(self, totals: dict[Any, float]) -> dict[Any, float] | None:
        """Weight of each class, from the total weight of its rows unless it is given."""
        if isinstance(self.class_weight, Mapping):
            totals = dict.fromkeys(self.class_weight, 1.0)
        counts = np.array(list(totals.values()))
        weights = self._class_weights(label_array(list(totals)), counts)
        return None if weights is None else dict(zip(totals, weights.tolist()))

    def _fit_from(self, moments: Moments, X: Any = None, y: Any = None) -> SemFS:
        """Solve and set all fitted attributes."""
        moments = moments.without_empty_classes()
        if len(moments.classes) < 2:
            raise ValueError(
                f"y has only one class ({moments.classes.tolist()[0]!r}). SemFS compares "
                "classes: pass rows of at least two."
            )
        table = align_attributes(self.attributes, moments.classes)
        targets, basis = self._targets(table, moments)
        objective = Objective.from_moments(
            moments,
            targets,
            alpha=self.alpha,
            gamma=self.gamma,
            penalty_scale=self.penalty_scale,
            fit_intercept=self.fit_intercept,
        )
        constant, include, exclude = self._restrictions(moments)
        n_steps = self.n_features_to_select if self.solver == "direct" else self.max_iter
        n_steps = min(n_steps, moments.n_features) if self.solver == "direct" else n_steps
        context = self._init_callback_context(max_subtasks=n_steps)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def fitted(solution: Solution) -> dict[str, Any]:
            attributes = self._coefficients(solution, basis, table, moments)
            return attributes | self._ranking(solution, constant, include, exclude)

        solution = self._solve(
            objective, constant, include, exclude, self._monitor(context, n_steps, fitted, X, y)
        )
        results = fitted(solution)
        self.classes_ = moments.classes
        self.class_table_ = table
        for name, value in results.items():
            setattr(self, name, like(value, X) if isinstance(value, np.ndarray) else value)
        self._warn_if_too_many(moments.n_features - len(exclude))
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: results
        )
        return self

    def _targets(
        self, table: AttributeTable, moments: Moments
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Attributes (C, r) in a basis (m, r) of their row space; None is the unit basis."""
        if self.attributes is None:
            return table.values, None
        A = table.values
        if self.fit_intercept:
            A = A - moments.counts @ A / moments.total
        return reduce_rank(A)

    def _solve(
        self,
        objective: Objective,
        constant: np.ndarray,
        include: np.ndarray,
        exclude: np.ndarray,
        monitor: Callable[..., bool] | None,
    ) -> Solution:
        left_out = constant.copy()
        left_out[exclude] = True
        left_out[include] = False
        if self.solver == "direct":
            return solve_direct(
                objective,
                min(self.n_features_to_select, objective.n_features),
                candidates=~left_out,
                include=include,
                n_swaps=self.n_swaps,
                monitor=monitor,
            )
        s_init = self._start(objective.n_features)
        s_init[left_out] = 0.0  # where s starts at 0 it stays there
        return solve_alternating(
            objective,
            max_iter=self.max_iter,
            tol=self.tol,
            n_inner=self.n_inner,
            step=self.step,
            s_init=s_init,
            monitor=monitor,
        )

    def _start(self, d: int) -> np.ndarray:
        if self.s_init is None:
            return np.ones(d)
        s = np.array(self.s_init, dtype=np.float64)
        if s.shape != (d,) or not np.isfinite(s).all() or (s < 0).any():
            raise ValueError(f"s_init must hold {d} non-negative numbers, got shape {s.shape}.")
        return s

    def _coefficients(
        self,
        solution: Solution,
        basis: np.ndarray | None,
        table: AttributeTable,
        moments: Moments,
    ) -> dict[str, Any]:
        W = solution.W
        if basis is not None:  # back to the columns of the table, where W is not zero
            W = np.zeros((len(solution.s), len(basis)))
            used = np.flatnonzero(solution.s)
            W[used] = solution.W[used] @ basis.T
        intercept = np.zeros(W.shape[1])
        if self.fit_intercept:
            mean_attributes = moments.counts @ table.values / moments.total
            intercept = mean_attributes - (moments.mean * solution.s) @ W
        return {
            "selection_": solution.s,
            "coef_": W,
            "intercept_": intercept,
            "objective_": solution.objective,
            "n_iter_": len(solution.objective),
        }

    def _ranking(
        self, solution: Solution, constant: np.ndarray, include: np.ndarray, exclude: np.ndarray
    ) -> dict[str, Any]:
        """Scores and order; forced features first, constant ones last, then forbidden ones."""
        d = len(solution.scores)
        group = np.where(constant, 2, 1)
        group[include] = 0
        group[exclude] = 3
        scores = np.where(group >= 2, -np.inf, solution.scores)
        order = solution.order[np.argsort(group[solution.order], kind="stable")]
        return self._ranking_attributes(scores, order, d - len(exclude))

    def _monitor(
        self,
        context: CallbackContext,
        n_steps: int,
        fitted: Callable[[Solution], dict[str, Any]],
        X: Any,
        y: Any,
    ) -> Callable[..., bool] | None:
        """What the solver calls after each step: callbacks and `verbose` lines."""
        watched = bool(getattr(self, "_skl_callbacks", []))
        if not watched and not self.verbose:
            return None
        name = "feature" if self.solver == "direct" else "iteration"

        def monitor(step: int, J: float, feature: int | None, solution: Callable) -> bool:
            if self.verbose:
                self._print_step(step, n_steps, J, feature)
            if not watched:
                return False
            # One task per step. The solver owns the loop, so a task is announced when done.
            task = context.subcontext(task_name=name)
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            return task.call_on_fit_task_end(
                estimator=self,
                X=X,
                y=y,
                reconstruction_attributes=lambda: fitted(solution()),
            )

        return monitor

    def _print_step(self, step: int, n_steps: int, J: float, feature: int | None) -> None:
        added = "" if feature is None else f"  + {self._name_of(feature)}"
        print(f"[SemFS] {step:>{len(str(n_steps))}}/{n_steps}  J = {J:.6g}{added}")

    def _name_of(self, feature: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"x{feature}" if names is None else str(names[feature])

    @property
    def attribute_names_in_(self) -> np.ndarray:
        """Names (m,) of the attributes of the table given."""
        return self.class_table_.names

    # ---- using a fitted selector --------------------------------------------------------

    def predict_attributes(self, X: Any) -> np.ndarray:
        """Predict the attributes (n, m) of each row of X (n, d).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with all the features seen in `fit`; only the selected ones are read.

        Returns
        -------
        attributes : ndarray of shape (n, m)
            In the columns of the table given.
        """
        check_is_fitted(self)
        return self._attributes_of(X, "predict_attributes")

    def _attributes_of(self, X: Any, method: str) -> Any:
        check_same_namespace(X, self, attribute="coef_", method=method)
        types = floating_dtypes(X) or [np.float64, np.float32]
        X = validate_data(self, X, accept_sparse="csr", dtype=types, reset=False)
        coef, s, intercept = map(as_numpy, (self.coef_, self.selection_, self.intercept_))
        used = np.flatnonzero(s)
        W = s[used, None] * coef[used]
        if is_foreign(X):
            return predict_linear(X, used, W, intercept)
        picked = X[:, used]
        out = picked @ W if sp.issparse(X) else picked.astype(np.float64, copy=False) @ W
        return out + intercept

    def predict(self, X: Any, class_table: Any = None) -> np.ndarray:
        """Return the class whose description is nearest to each row's predicted attributes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with all the features seen in `fit`.
        class_table : like `attributes`, optional
            Descriptions to choose among, for example those of unseen classes. By default
            those of the seen classes.

        Returns
        -------
        labels : ndarray of shape (n,)
            Class labels.
        """
        check_is_fitted(self)
        predicted = as_numpy(self._attributes_of(X, "predict"))
        table = self.class_table_ if class_table is None else as_attribute_table(class_table)
        if table.values.shape[1] != self.coef_.shape[1]:
            raise ValueError(
                f"class_table has {table.values.shape[1]} attributes, but the selector was "
                f"fitted with {self.coef_.shape[1]}. Use the same columns in the same order."
            )
        return like(table.classes[pairwise_distances_argmin(predicted, table.values)], X)

    def inverse_transform(self, X: Any) -> Any:
        """Put the selected columns back in their places, zeros elsewhere.

        Parameters
        ----------
        X : array-like of shape (n, k)
            Selected columns.

        Returns
        -------
        X_original : array-like of shape (n, d)
            All columns.
        """
        if floating_dtypes(X) is None:
            return super().inverse_transform(X)
        return spread_columns(X, self.get_support())

    def _transform(self, X: Any) -> Any:
        check_same_namespace(X, self, attribute="support_", method="transform")
        return super()._transform(X)

    # ---- checking ------------------------------------------------------------------------

    def _check_parameters(self) -> None:
        check_option("solver", self.solver, ("direct", "alternating"))
        check_option("penalty_scale", self.penalty_scale, ("gram", "none"))
        if isinstance(self.step, str):
            check_option("step", self.step, STEP_RULES)
        else:
            check_number("step", self.step, above=0.0)
        check_number("alpha", self.alpha, at_least=0.0)
        check_number("gamma", self.gamma, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_integer("max_iter", self.max_iter, 1)
        check_integer("n_inner", self.n_inner, 1)
        check_integer("n_swaps", self.n_swaps, 0)
        if self.solver == "alternating" and self.gamma == 0:
            raise ValueError(
                'gamma must be positive with solver="alternating": with gamma=0 every s '
                "gives the same J."
            )

    def _class_weights(self, classes: np.ndarray, counts: np.ndarray) -> np.ndarray | None:
        """Weight (C,) of each class, or None if all are 1."""
        if self.class_weight is None:
            return None
        if isinstance(self.class_weight, str):
            check_option("class_weight", self.class_weight, ("balanced",))
            return counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1e-300))
        if not isinstance(self.class_weight, Mapping):
            raise TypeError(
                'class_weight must be None, "balanced" or a mapping class -> weight, got '
                f"{type(self.class_weight).__name__}."
            )
        weights = np.array([float(self.class_weight.get(c, 1.0)) for c in classes.tolist()])
        if not np.isfinite(weights).all() or (weights < 0).any():
            raise ValueError("class_weight must hold non-negative finite numbers.")
        return weights

    def _row_weights(
        self, codes: np.ndarray, classes: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray | None:
        counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
        class_weights = self._class_weights(classes, counts)
        if class_weights is None:
            return weights
        return class_weights[codes] * (1.0 if weights is None else weights)

    def _restrictions(self, moments: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Constant columns (mask), and indices of included and excluded features."""
        include = self._feature_indices("include", self.include)
        exclude = self._feature_indices("exclude", self.exclude)
        both = np.intersect1d(include, exclude)
        if both.size:
            raise ValueError(f"{self._name_of(both[0])!r} is in include and in exclude.")
        if len(include) > self.n_features_to_select:
            raise ValueError(
                f"include has {len(include)} features, more than "
                f"n_features_to_select={self.n_features_to_select}."
            )
        if len(exclude) == moments.n_features:
            raise ValueError("exclude holds every feature: nothing is left to select.")
        return moments.constant(), include, exclude

    def _feature_indices(self, parameter: str, features: Any) -> np.ndarray:
        if features is None:
            return np.zeros(0, dtype=np.intp)
        if isinstance(features, str):
            raise TypeError(f"{parameter} must be a list of features, got {features!r}.")
        found = [self._feature_index(parameter, f) for f in features]
        return np.array(list(dict.fromkeys(found)), dtype=np.intp)

    def _feature_index(self, parameter: str, feature: Any) -> int:
        d = self.n_features_in_
        if isinstance(feature, str):
            names = [str(name) for name in getattr(self, "feature_names_in_", [])]
            if feature not in names:
                hint = "X has no feature names; use indices" if not names else "check spelling"
                raise ValueError(f"{parameter}: no feature named {feature!r} in X ({hint}).")
            return names.index(feature)
        if not isinstance(feature, (int, np.integer)) or isinstance(feature, bool):
            raise TypeError(f"{parameter} must hold indices or names, got {feature!r}.")
        if not -d <= int(feature) < d:
            raise ValueError(f"{parameter}: index {feature} is out of range for {d} features.")
        return int(feature) % d


def _beyond_memory(X: Any, y: Any, sample_weight: Any) -> Any:
    """Data that must not be held whole, as rows to pass over; None for arrays and frames."""
    if hasattr(X, "of_classes"):  # rows already, on a cluster
        return X
    if hasattr(X, "__dask_graph__"):
        from semfs.rows.cluster import dask_rows

        return dask_rows(X, y, sample_weight)
    source = as_source(X, y, sample_weight)
    return None if source is None else SourceRows(source)
