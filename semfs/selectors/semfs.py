"""SemFS: the scikit-learn selector. Parameters in, moments, solver, fitted attributes out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks

from semfs.attributes import AttributeTable, align_attributes
from semfs.attributes.targets import target_objective
from semfs.method.joint import solve_jointly
from semfs.method.moments import Moments
from semfs.method.objective import Objective, reduce_rank
from semfs.method.solvers import STEP_RULES, Solution, solve_alternating, solve_direct
from semfs.rows.devices import like
from semfs.selectors.base import check_n_features_to_select
from semfs.selectors.prediction import PredictingSelector
from semfs.selectors.training import (
    TrainingData,
    refuse_unlabeled,
    rows_beyond_memory,
    streamed,
    training_data,
)
from semfs.selectors.unlabeled import UNLABELED, Reconstruction
from semfs.validation import (
    check_integer,
    check_number,
    check_option,
    class_weights,
    feature_indices,
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


class SemFS(CallbackSupportMixin, PredictingSelector):
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
    gamma : float, default=10.0
        Ridge penalty, in units set by `penalty_scale`. Small values choose features that
        complement each other, large ones the strongest each by itself.
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
    label_weight : float, default=0.0
        Weight β of the class labels as further targets: [A, √β I]. A little of it separates
        seen classes that the attributes describe alike; 0 is the paper's method.
    target_attributes : like `attributes`, optional
        Descriptions of the classes to come, in the same columns. The means of these classes
        are predicted from their descriptions and must be told apart as well. Not used, with
        a warning, if descriptions predict too little of the seen classes' means (see
        ``target_r2_``). Rows of seen classes are ignored.
    unlabeled_weight : float, default=1.0
        Weight of reconstructing all rows, if `fit` is given unlabelled ones (label -1, or
        ``X_unlabeled``), relative to the attributes. Without unlabelled rows nothing changes.
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
    target_r2_ : float
        With `target_attributes`: share of the spread of class means that descriptions
        predict for classes left out, at most 1.
    target_used_ : bool
        Whether that was enough for `target_attributes` to be used.
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
    array(['x0', 'x3', 'x4', 'x5'], dtype=object)
    >>> selector.transform(X[y >= 4]).shape  # columns for classes it never saw
    (199, 4)
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        attributes: Any = None,
        *,
        alpha: float = 1.0,
        gamma: float = 10.0,
        penalty_scale: str = "gram",
        solver: str = "direct",
        fit_intercept: bool = True,
        class_weight: Any = None,
        label_weight: float = 0.0,
        target_attributes: Any = None,
        unlabeled_weight: float = 1.0,
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
        self.label_weight = label_weight
        self.target_attributes = target_attributes
        self.unlabeled_weight = unlabeled_weight
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
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_unlabeled: Any = None
    ) -> SemFS:
        """Choose features on the seen classes.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Rows of the seen classes. Data beyond memory are read in blocks: a memmap; the path
            of a ``.npy``, ``.npz``, CSV, Parquet, Feather, Zarr, HDF5 or ``.h5ad`` file; an
            iterable of (X, y) blocks; see `semfs.rows.open_blocks` for options. Dask arrays
            and frames are summed up where they are.
        y : array-like of shape (n,)
            Their class labels, of any one hashable type; or the name of the column that holds
            them. Not for (X, y) blocks. The label -1 marks unlabelled rows, unless
            `attributes` describes a class -1; so do None, NaN and NA.
        sample_weight : array-like of shape (n,), optional
            Row weights.
        X_unlabeled : array-like or sparse matrix of shape (n_unlabeled, d), optional
            More unlabelled rows; X must be in memory.

        Returns
        -------
        self : SemFS
            The fitted selector.
        """
        with self._all_or_nothing():
            self._check_parameters()
            rows = rows_beyond_memory(X, y, sample_weight)
            if rows is None:
                data = training_data(self, X, y, sample_weight, X_unlabeled=X_unlabeled)
            elif X_unlabeled is None:
                data = streamed(self, rows)
            else:
                raise ValueError("X_unlabeled needs X in memory. Load X, or leave it out.")
            self.__dict__.pop("moments_", None)
            self._fit_from(data, y)
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
        refuse_unlabeled(self, moments.classes)
        weights = class_weights(self.class_weight, moments.classes, moments.counts)
        if weights is not None:
            moments = moments.reweighted(dict(zip(moments.classes.tolist(), weights)))
        with self._all_or_nothing():
            self.n_features_in_ = moments.n_features
            for name in ("moments_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return self._fit_from(TrainingData(None, moments, None))

    @with_callbacks
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> SemFS:
        """Add rows to those of earlier calls and choose features on all of them.

        New classes may appear at any time; until there are two, the selector only collects.
        `fit` forgets what was collected.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Rows of the seen classes; also files and whatever else `fit` accepts.
        y : array-like of shape (n,)
            Their class labels, or the name of the column that holds them.
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
            self._check_parameters()
            rows = rows_beyond_memory(X, y, sample_weight)
            if rows is None:
                data = training_data(self, X, y, sample_weight, reset=collected is None)
            else:
                before = None if collected is None else collected.n_features
                data = streamed(self, rows, n_features=before)
            if data.unlabeled is not None:
                raise ValueError(
                    f"partial_fit takes labelled rows only, found the label {UNLABELED}. Drop "
                    "those rows, or collect all rows and use fit."
                )
            align_attributes(self.attributes, data.moments.classes)  # refuse before adding
            moments = data.moments.own() if collected is None else collected + data.moments
            self.moments_ = moments
            if (moments.counts > 0).sum() > 1:
                self._fit_from(TrainingData(data.X, moments, None), y)
        return self

    def _fit_from(self, data: TrainingData, y: Any = None) -> SemFS:
        """Solve and set all fitted attributes."""
        X, moments = data.X, data.moments.without_empty_classes()
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
        further = self._further_objectives(objective, table, data.unlabeled)
        constant, include, exclude = self._restrictions(moments)
        n_steps = self.n_features_to_select if self.solver == "direct" else self.max_iter
        n_steps = min(n_steps, moments.n_features) if self.solver == "direct" else n_steps
        context = self._init_callback_context(max_subtasks=n_steps)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def fitted(solution: Solution) -> dict[str, Any]:
            attributes = self._coefficients(solution, basis, table, moments)
            return attributes | self._ranking(solution, constant, include, exclude)

        monitor = self._monitor(context, n_steps, fitted, X, y)
        solution = self._solve([objective, *further], constant, include, exclude, monitor)
        results = fitted(solution)
        self.classes_ = moments.classes
        self.class_table_ = table
        self._remember(moments)
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
        """Attributes (C, r) in a basis (m, r) of their row space; None is the unit basis.

        With `label_weight` the basis is that of [A, √β I], and its first m rows are returned.
        """
        if self.attributes is None:
            return table.values, None
        A = table.values
        if self.label_weight:
            A = np.hstack([A, np.sqrt(self.label_weight) * np.eye(len(A))])
        if self.fit_intercept:
            A = A - moments.counts @ A / moments.total
        targets, basis = reduce_rank(A)
        return targets, basis[: table.values.shape[1]]

    def _further_objectives(
        self, objective: Objective, table: AttributeTable, unlabeled: Moments | None
    ) -> list[Objective]:
        """What else the features should do well, each with its weight."""
        for name in ("target_r2_", "target_used_"):
            self.__dict__.pop(name, None)
        found: list[Objective] = []
        if unlabeled is not None and self.unlabeled_weight:
            loss = Reconstruction.of_rows(
                objective.moments, unlabeled, gamma=self.gamma, penalty_scale=self.penalty_scale
            )
            found.append(loss.weighing(self.unlabeled_weight * objective.q / loss.q))
        if self.target_attributes is not None:
            target, self.target_r2_ = target_objective(objective, table, self.target_attributes)
            self.target_used_ = target is not None
            found += [] if target is None else [target]
        if found and (self.solver != "direct" or self.n_swaps):
            raise ValueError(
                'target_attributes and unlabelled rows need solver="direct" and n_swaps=0.'
            )
        return found

    def _solve(
        self,
        objectives: list[Objective],
        constant: np.ndarray,
        include: np.ndarray,
        exclude: np.ndarray,
        monitor: Callable[..., bool] | None,
    ) -> Solution:
        objective = objectives[0]
        left_out = constant.copy()
        left_out[exclude] = True
        left_out[include] = False
        if len(objectives) > 1:
            return solve_jointly(
                objectives,
                min(self.n_features_to_select, objective.n_features),
                candidates=~left_out,
                include=include,
                monitor=monitor,
            )
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
        check_number("label_weight", self.label_weight, at_least=0.0)
        check_number("unlabeled_weight", self.unlabeled_weight, at_least=0.0)
        check_number("tol", self.tol, at_least=0.0)
        check_integer("max_iter", self.max_iter, 1)
        check_integer("n_inner", self.n_inner, 1)
        check_integer("n_swaps", self.n_swaps, 0)
        if self.target_attributes is not None and self.attributes is None:
            raise ValueError(
                "target_attributes needs attributes: descriptions of the seen classes in the "
                "same columns."
            )
        if self.solver == "alternating" and self.gamma == 0:
            raise ValueError(
                'gamma must be positive with solver="alternating": with gamma=0 every s '
                "gives the same J."
            )

    def _restrictions(self, moments: Moments) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Constant columns (mask), and indices of included and excluded features."""
        names = getattr(self, "feature_names_in_", None)
        d = moments.n_features
        include = feature_indices("include", self.include, d, names)
        exclude = feature_indices("exclude", self.exclude, d, names)
        both = np.intersect1d(include, exclude)
        if both.size:
            raise ValueError(f"{self._name_of(both[0])!r} is in include and in exclude.")
        if len(include) > self.n_features_to_select:
            raise ValueError(
                f"include has {len(include)} features, more than "
                f"n_features_to_select={self.n_features_to_select}."
            )
        if len(exclude) == d:
            raise ValueError("exclude holds every feature: nothing is left to select.")
        return moments.constant(), include, exclude
