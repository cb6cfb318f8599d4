"""SemFS: the scikit-learn selector. Parameters in, moments, solver, fitted attributes out."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks

from semfs.attributes import (
    AttributeTable,
    align_attributes,
    as_attribute_table,
    constant_attributes,
)
from semfs.attributes.targets import classes_to_come, target_problem
from semfs.method.alternating import STEP_RULES, solve_alternating
from semfs.method.direct import forward_selection
from semfs.method.moments import Moments
from semfs.method.objective import (
    SAFE_RELATIVE_PENALTY,
    Objective,
    Quadratic,
    Solution,
    reduce_rank,
)
from semfs.rows import Plain, Rows, as_plain
from semfs.rows.devices import as_numpy, like
from semfs.selectors.base import LinearSelector, check_n_features_to_select, validated
from semfs.selectors.new_classes import find_new_classes, too_few
from semfs.selectors.training import (
    FeatureLimits,
    TrainingData,
    check_labelled,
    check_two_classes,
    rows_beyond_memory,
    split_labels,
)
from semfs.validation import (
    check_integer,
    check_number,
    check_option,
    check_weights,
    class_weights,
)

__all__ = ["AS_PUBLISHED", "SemFS"]

#: The penalty of clusters of unlabelled rows, whose means are targets, in units of gamma.
NEW_CLASS_PENALTY = 0.1
#: Seen classes weigh as much as new ones of so many rows each, and less next to more rows.
EQUAL_ROWS = 3.0

#: Algorithm 1 as the paper states it: ``SemFS(50, attributes=A, **AS_PUBLISHED)``.
#: The paper fixes neither the start, the step nor the number of inner steps; these are ours.
AS_PUBLISHED: dict[str, Any] = {
    "solver": "alternating",
    "alpha": 1.0,
    "gamma": 0.1,
    "penalty_scale": "none",
    "fit_intercept": False,
    "class_weight": None,
    "target_attributes": None,
    "n_inner": 1,
    "step": "lipschitz",
    "s_init": None,
}


class SemFS(CallbackSupportMixin, LinearSelector):
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
        row r belongs to the integer label r. Rows of classes that y does not have describe
        classes to come (`target_attributes`). None uses the class labels themselves as
        targets, one indicator per class.
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
    class_weight : "balanced", mapping or None, default="balanced"
        What a row of each class counts for when classes are told apart: "balanced" lets every
        class count the same, None every row. The scatter within classes is that of all rows.
    label_weight : float, default=0.0
        Weight β of the class labels as further targets: [A, √β I]. A little of it separates
        seen classes that the attributes describe alike; 0 is the paper's method.
    target_attributes : "table", like `attributes`, or None, default="table"
        Descriptions of the classes to come: "table" are the rows of `attributes` whose class
        is not in y; or a table of the same columns. The means of these classes are predicted
        from their descriptions and must be told apart as well, by "direct". Not used if
        descriptions predict nothing of the means of seen classes left out, or if there are
        fewer than 8 of those (see ``knowledge_``). None switches it off.
    n_new_classes : int or "auto", default="auto"
        Number of classes expected among unlabelled rows, if `fit` is given some; "auto" makes
        clusters of them as narrow as clusters of the seen rows are.
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
    class_means_ : ndarray of shape (C, k)
        Their means of the selected features.
    within_ : ndarray of shape (k, k)
        The covariance of the selected features within classes.
    knowledge_ : dict of str
        What was used, and why not: of ``"seen classes"``, ``"classes to come"`` and
        ``"unlabelled rows"`` where there were any.
    new_table_ : AttributeTable or None
        The descriptions of the classes to come.
    target_r2_ : float
        Share of the spread of class means that descriptions predict for classes left out, at
        most 1; nan if nothing was to be predicted.
    n_new_classes_ : int
        Number of clusters of unlabelled rows; 0 without them.
    unlabeled_labels_ : ndarray of shape (n_unlabeled,)
        The cluster of each unlabelled row: those of X in their order, then those of
        ``X_unlabeled``.
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
        class_weight: Any = "balanced",
        label_weight: float = 0.0,
        target_attributes: Any = "table",
        n_new_classes: int | str = "auto",
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
        self.n_new_classes = n_new_classes
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
            them. Not for (X, y) blocks. -1 (unless `attributes` describes a class -1), None,
            NaN and NA mark unlabelled rows.
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
                data = self._training_data(X, y, sample_weight, X_unlabeled=X_unlabeled)
            else:
                data = self._streamed_data(rows, X_unlabeled=X_unlabeled)
            self.__dict__.pop("moments_", None)
            self._fit_from(data, y)
            return self

    @with_callbacks
    def fit_moments(self, moments: Moments) -> SemFS:
        """Choose features from moments instead of rows; the answer is the same.

        Parameters
        ----------
        moments : Moments
            Moments of the seen classes.

        Returns
        -------
        self : SemFS
            The fitted selector.
        """
        self._check_parameters()
        check_n_features_to_select(self.n_features_to_select)
        if not isinstance(moments, Moments):
            raise TypeError(f"fit_moments needs Moments, got {type(moments).__name__}.")
        check_labelled(moments.classes, self.attributes)
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
        collected: Moments | None = getattr(self, "moments_", None)
        with self._all_or_nothing():
            self._check_parameters()
            rows = rows_beyond_memory(X, y, sample_weight)
            if rows is None:
                data = self._training_data(X, y, sample_weight, reset=collected is None)
            else:
                data = self._streamed_data(rows, reset=collected is None)
            if data.unlabeled is not None:
                raise ValueError(
                    "partial_fit takes labelled rows only, found some without a label. Drop "
                    "those rows, or collect all rows and use fit."
                )
            align_attributes(self.attributes, data.moments.classes)  # refuse before adding
            moments = data.moments.own() if collected is None else collected + data.moments
            self.moments_ = moments
            if (moments.counts > 0).sum() > 1:
                self._fit_from(TrainingData(data.X, moments, None), y)
        return self

    def _training_data(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        X_unlabeled: Any = None,
        reset: bool = True,
    ) -> TrainingData:
        """Validate rows in memory; finiteness shows in the moments."""
        X = as_plain(X, y)
        y, sample_weight = as_numpy(X.y), as_numpy(sample_weight)
        y, hidden = split_labels(y, self.attributes)
        X, classes, codes = self._check_training_data(
            replace(X, y=y), y, accept_sparse=True, ensure_all_finite=False, reset=reset
        )
        if X_unlabeled is not None:
            types = [np.float64, np.float32]
            X_unlabeled = validated(
                self, X_unlabeled, accept_sparse="csr", dtype=types, reset=False
            )
        assert classes is not None
        assert codes is not None
        return TrainingData.of_rows(
            X,
            codes,
            classes,
            check_weights(sample_weight, X.shape[0]),
            hidden=hidden,
            X_unlabeled=X_unlabeled,
        )

    def _streamed_data(
        self, rows: Any, *, X_unlabeled: Any = None, reset: bool = True
    ) -> TrainingData:
        """Moments of rows that stay on disk or on a cluster, or are loaded if there are few."""
        check_n_features_to_select(self.n_features_to_select)
        if not reset and rows.n_features != self.n_features_in_:
            raise ValueError(
                f"X has {rows.n_features} features, those before had {self.n_features_in_}."
            )
        if self.attributes is not None:
            rows = rows.matched(as_attribute_table(self.attributes).classes.tolist())
        if rows.fits:
            X, y, weights = rows.load()
            X = Plain(X, y, rows.feature_names)
            data = replace(self._training_data(X, y, weights, X_unlabeled=X_unlabeled), X=None)
        elif X_unlabeled is not None:
            raise ValueError("X_unlabeled needs X in memory. Load X, or leave it out.")
        else:
            direct = self.solver == "direct"
            sums = rows.sums(
                n_select=min(self.n_features_to_select, rows.n_features) if direct else None,
                precise=self.penalty_scale != "gram" or self.gamma < SAFE_RELATIVE_PENALTY,
                verbose=self.verbose,
            )
            moments = Moments.from_sums(*sums)
            check_labelled(moments.classes, self.attributes)
            data = TrainingData(None, moments, None)
        self.n_features_in_ = rows.n_features
        self.__dict__.pop("feature_names_in_", None)
        if rows.feature_names is not None:
            self.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)
        return data

    def _fit_from(self, data: TrainingData, y: Any = None) -> SemFS:
        """Solve and set all fitted attributes."""
        X, moments = data.X, data.moments.without_empty_classes()
        check_two_classes(moments)
        table = align_attributes(self.attributes, moments.classes)
        self._warn_of_constant_attributes(table)
        objective, basis = self._objective(table, moments)
        limits = self._limits(moments)
        knowledge = self._further_knowledge(objective, table, data.unlabeled)
        n_steps = self.max_iter
        if self.solver == "direct":
            n_steps = min(self.n_features_to_select, moments.n_features)
        context = self._init_callback_context(max_subtasks=n_steps)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def fitted(solution: Solution) -> dict[str, Any]:
            attributes = self._coefficients(solution, basis, table, objective)
            return attributes | self._ranking(solution, limits)

        monitor = self._monitor(context, n_steps, fitted, X, y)
        solution = self._solve(objective, knowledge.pop("problems"), limits, monitor)
        results = fitted(solution)
        results |= knowledge | self._class_moments(objective, solution, results["support_"])
        self.classes_ = moments.classes
        self.class_table_ = table
        self._remember(moments)
        for name, value in results.items():
            setattr(self, name, like(value, X) if isinstance(value, np.ndarray) else value)
        self._warn_if_too_many(moments.n_features - len(limits.exclude))
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=lambda: results
        )
        return self

    def _warn_of_constant_attributes(self, table: AttributeTable) -> None:
        """Name attributes that teach nothing; of 0 and 1 only if more than half do so."""
        names = [] if self.attributes is None else constant_attributes(table)
        usual = len(table.names) / 2 if np.isin(table.values, (0.0, 1.0)).all() else 0
        if len(names) > usual:
            shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
            warnings.warn(
                f"{len(names)} of {len(table.names)} attributes are the same for all seen "
                f"classes and teach nothing: {shown}.",
                UserWarning,
                stacklevel=5,
            )

    # ---- what is solved ------------------------------------------------------------------

    def _objective(
        self, table: AttributeTable, moments: Moments
    ) -> tuple[Objective, np.ndarray | None]:
        """J of the seen classes, and the basis (m, r) of its targets; None is the unit basis.

        With `label_weight` the targets are [A, √β I]; the basis has the rows of A.
        """
        A, basis = table.values, None
        if self.attributes is not None:
            if self.label_weight:
                A = np.hstack([A, np.sqrt(self.label_weight) * np.eye(len(A))])
            if self.fit_intercept:
                A = A - A.mean(axis=0)
            A, basis = reduce_rank(A)
            basis = basis[: table.values.shape[1]]
        objective = Objective.from_moments(
            moments,
            A,
            class_weight=class_weights(self.class_weight, moments.classes, moments.counts),
            alpha=self.alpha,
            gamma=self.gamma,
            penalty_scale=self.penalty_scale,
            fit_intercept=self.fit_intercept,
        )
        return objective, basis

    def _further_knowledge(
        self, objective: Objective, table: AttributeTable, unlabeled: Rows | None
    ) -> dict[str, Any]:
        """Fitted attributes that tell what else is known, and the ``problems`` it makes."""
        counts = f"{len(table.classes)} classes"
        described = "" if self.attributes is None else f", {table.values.shape[1]} attributes"
        said = {"seen classes": f"used: {counts}{described}"}
        new = classes_to_come(self.attributes, self.target_attributes, table)
        out: dict[str, Any] = {"new_table_": new, "target_r2_": float("nan")}
        problems = []
        if new is not None and self.solver == "direct":
            problem, out["target_r2_"], note = target_problem(objective, table, new)
            said["classes to come"] = f"{len(new.classes)} described, {note}"
            problems += [] if problem is None else [problem]
            if problem is None and not isinstance(self.target_attributes, str):
                warnings.warn(f"target_attributes was {note}.", UserWarning, stacklevel=5)
        out |= {"n_new_classes_": 0, "unlabeled_labels_": np.zeros(0, dtype=np.intp)}
        if unlabeled is not None:
            labels, problem, note = self._new_classes(objective, unlabeled)
            said["unlabelled rows"] = f"{unlabeled.X.shape[0]} rows, {note}"
            out |= {"n_new_classes_": int(labels.max(initial=-1)) + 1}
            out["unlabeled_labels_"] = labels
            problems += [] if problem is None else [problem]
        return out | {"knowledge_": said, "problems": problems}

    def _new_classes(
        self, objective: Objective, unlabeled: Rows
    ) -> tuple[np.ndarray, Quadratic | None, str]:
        """Clusters of unlabelled rows, and the problem of telling them apart by their means."""
        seen = objective.moments.rows
        if self.solver != "direct":
            raise ValueError('unlabelled rows need solver="direct".')
        note = too_few(unlabeled.X.shape[0], self.n_new_classes)
        if note or not isinstance(seen, Rows):
            note = note or "not used: the seen rows are not in memory"
            warnings.warn(f"unlabelled rows were {note}.", UserWarning, stacklevel=6)
            return np.full(unlabeled.X.shape[0], -1), None, note
        found = find_new_classes(seen.X, seen.codes, unlabeled.X, self.n_new_classes)
        classes, labels = np.unique(found.assign(unlabeled.X), return_inverse=True)
        own = Moments.from_checked(
            unlabeled.X, labels, np.arange(len(classes)), unlabeled.weights
        ).without_empty_classes()
        problem = Objective.from_moments(
            own,
            reduce_rank(own.means - own.mean)[0],
            alpha=self.alpha,
            gamma=NEW_CLASS_PENALTY * self.gamma,
            penalty_scale=self.penalty_scale,
            fit_intercept=True,
        ).quadratic()
        share = min(1.0, EQUAL_ROWS * len(classes) / len(labels))
        weight = objective.q / max(share * problem.q, np.finfo(float).tiny)
        where = "in a metric of the seen classes" if found.metric else "as they are"
        note = f"used: {len(classes)} clusters {where}, seen classes weigh {share:.2f} of them"
        return labels, problem.weighing(weight) if problem.q > 0 else None, note

    def _solve(
        self,
        objective: Objective,
        further: list[Quadratic],
        limits: FeatureLimits,
        monitor: Callable[..., bool] | None,
    ) -> Solution:
        if self.solver == "direct":
            return forward_selection(
                [objective.quadratic(), *further],
                min(self.n_features_to_select, objective.n_features),
                candidates=limits.candidates,
                include=limits.include,
                n_swaps=self.n_swaps,
                monitor=monitor,
            )
        # where s starts at 0 it stays there
        s_init = np.where(limits.candidates, self._start(objective.n_features), 0.0)
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
        objective: Objective,
    ) -> dict[str, Any]:
        W = solution.W
        if basis is not None:  # back to the columns of the table, where W is not zero
            W = np.zeros((len(solution.s), len(basis)))
            used = np.flatnonzero(solution.s)
            W[used] = solution.W[used] @ basis.T
        intercept = np.zeros(W.shape[1])
        if self.fit_intercept:
            average = objective.shares @ table.values / objective.shares.sum()
            intercept = average - (objective.mean * solution.s) @ W
        return {
            "selection_": solution.s,
            "coef_": W,
            "intercept_": intercept,
            "objective_": solution.objective,
            "n_iter_": len(solution.objective),
        }

    def _class_moments(
        self, objective: Objective, solution: Solution, support: np.ndarray
    ) -> dict[str, Any]:
        """Means and covariance of the selected features, which predictions are made from."""
        moments, chosen = objective.moments, np.flatnonzero(support)
        gram = solution.gram
        if gram is not None:  # that of the features that entered, which are nearly always these
            place = {j: i for i, j in enumerate(solution.order[: len(gram)].tolist())}
            own = [place.get(j, -1) for j in chosen.tolist()]
            gram = None if -1 in own else gram[np.ix_(own, own)]
        within = objective.within(chosen, gram)
        return {"class_means_": moments.means[:, chosen], "within_": within / moments.total}

    def _ranking(self, solution: Solution, limits: FeatureLimits) -> dict[str, Any]:
        """Scores and order; forced features first, constant ones last, then forbidden ones."""
        if not (
            np.isfinite(solution.scores[limits.candidates]).all()
            and np.isfinite(solution.W).all()
            and np.isfinite(solution.objective).all()
        ):
            raise ValueError(
                "scores overflow: numbers in X, attributes or parameters are too large or too "
                "small to be multiplied. Rescale them, for example to unit variance."
            )
        group = np.where(limits.constant, 2, 1)
        group[limits.include] = 0
        group[limits.exclude] = 3
        scores = np.where(group >= 2, -np.inf, solution.scores)
        order = solution.order[np.argsort(group[solution.order], kind="stable")]
        return self._ranking_attributes(scores, order, len(scores) - len(limits.exclude))

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
        check_number("tol", self.tol, at_least=0.0)
        check_integer("max_iter", self.max_iter, 1)
        check_integer("n_inner", self.n_inner, 1)
        check_integer("n_swaps", self.n_swaps, 0)
        if self.n_new_classes != "auto":
            if isinstance(self.n_new_classes, str):
                check_option("n_new_classes", self.n_new_classes, ("auto",))
            check_integer("n_new_classes", self.n_new_classes, 2)
        if isinstance(self.target_attributes, str):
            check_option("target_attributes", self.target_attributes, ("table",))
        elif self.target_attributes is not None:
            if self.attributes is None:
                raise ValueError(
                    "target_attributes needs attributes: descriptions of the seen classes in "
                    "the same columns."
                )
            if self.solver != "direct":
                raise ValueError('target_attributes needs solver="direct".')
        if self.solver == "alternating" and self.gamma == 0:
            raise ValueError(
                'gamma must be positive with solver="alternating": with gamma=0 every s '
                "gives the same J."
            )

    def _limits(self, moments: Moments) -> FeatureLimits:
        names = getattr(self, "feature_names_in_", None)
        limits = FeatureLimits.of(moments, self.include, self.exclude, names)
        both = np.intersect1d(limits.include, limits.exclude)
        if both.size:
            raise ValueError(f"{self._name_of(both[0])!r} is in include and in exclude.")
        if len(limits.include) > self.n_features_to_select:
            raise ValueError(
                f"include has {len(limits.include)} features, more than "
                f"n_features_to_select={self.n_features_to_select}."
            )
        if len(limits.exclude) == moments.n_features:
            raise ValueError("exclude holds every feature: nothing is left to select.")
        return limits
