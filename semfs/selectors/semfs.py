"""SemFS: the scikit-learn selector. Parameters in, moments, solver, fitted attributes out."""

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from mmap import ACCESS_COPY, mmap
from typing import Any, Self

import numpy as np
from sklearn.callback import CallbackContext, CallbackSupportMixin, with_callbacks

from semfs.attributes import AttributeTable, align_attributes, constant_attributes
from semfs.method.alternating import STEP_RULES, solve_alternating
from semfs.method.direct import forward_selection, likely_features
from semfs.method.moments import Moments
from semfs.method.objective import SAFE_RELATIVE_PENALTY, Objective, Solution, reduce_rank
from semfs.rows import open_blocks, unlabeled_source
from semfs.rows.device import like
from semfs.selectors import training
from semfs.selectors.base import LinearSelector, validated
from semfs.selectors.new_classes import further_knowledge
from semfs.selectors.training import UNLABELED, Candidates, TrainingData, Units, describes
from semfs.validation import check_option, class_weights

#: Share of the variance of X beyond which one column is named: its unit may be another.
MOST_VARIANCE = 0.95
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


@dataclass(eq=False, repr=False, kw_only=True)
class SemFS(CallbackSupportMixin, LinearSelector):
    """Select the features that tell apart classes nobody has labeled yet.

    Features are chosen on labeled *seen* classes so that they predict the *attributes*
    (descriptions) of a class, of which unseen classes are other combinations. The objective
    is that of Wang et al., "Zero-shot Feature Selection via Transferring Supervised
    Knowledge"::

        J(W, s) = ‖Y_s − X S W‖² + alpha ‖Y_s − X̄ S W‖² + gamma ‖W‖²,   S = diag(s)

    with Y_s the attribute row of each row's class and X̄ the class means.

    Parameters
    ----------
    n_features_to_select : int or float, default=50
        Number of features to keep, or their share (below 1; at least one is kept). More
        than there are: a warning, and all are kept.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        Class descriptions: a pandas frame indexed by class label (or a polars frame whose
        first column holds the labels), a mapping from label to vector, or an array whose
        row r belongs to the integer label r. None uses the class labels themselves as
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
        Whether to center X and the attributes.
    class_weight : "balanced", mapping or None, default="balanced"
        What a row of each class counts for when classes are told apart: "balanced" lets every
        class count the same, None every row. The scatter within classes is that of all rows.
    label_weight : float, default=0.0
        Weight β of the class labels as further targets: [A, √β I]. A little of it separates
        seen classes that the attributes describe alike; 0 is the paper's method.
    target_attributes : "table", like `attributes`, or None, default="table"
        Descriptions of the classes to come: "table" are the rows of `attributes` whose class
        is not in y; or a table of the same columns. Their predicted means must be told apart
        as well, by "direct". Not used if descriptions predict nothing of seen classes left
        out, or if these are fewer than 8 (see ``knowledge_``). None switches it off.
    n_new_classes : int or "auto", default="auto"
        Number of classes expected among unlabeled rows, if `fit` is given some; "auto" makes
        clusters of them as narrow as clusters of the seen rows are.
    include, exclude : sequence of int or str, optional
        Features, by index or by name, that are chosen before all others or never.
    max_iter, n_inner : int, default=20 and 1
        Rounds of "alternating", and projected gradient steps in each.
    tol : float, default=1e-4
        "alternating" stops when a round lowers J by less than this fraction.
    step : {"lipschitz", "exact"} or float, default="lipschitz"
        Step length of "alternating": 1/λ_max of the Hessian, the minimizer along the
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
    order_, ranking_, support_ : ndarrays of shape (d,)
        Feature indices, best first (constant columns last, then excluded ones); the position
        of each feature, 1 is best; and whether it is selected.
    selection_ : ndarray of shape (d,)
        s of the paper: 0/1 for "direct", non-negative for "alternating".
    coef_, intercept_ : ndarray of shape (d, m) and (m,)
        W, in the attributes of the table given, and the intercept of the prediction; zero
        rows for features that "direct" did not choose.
    objective_, n_iter_ : ndarray of one value per step, and int
        J after each added feature ("direct") or round ("alternating"), and their number.
    classes_, class_table_ : ndarray of shape (C,) and AttributeTable
        Seen classes and their descriptions.
    class_means_, within_ : ndarray of shape (C, k) and (k, k)
        Means of the selected features, and their covariance within classes.
    knowledge_ : dict of str
        What was used, what was not, and why: ``"seen classes"``, and ``"unseen classes"`` and
        ``"unlabeled samples"`` where there were any.
    new_table_, target_r2_ : AttributeTable or None, and float
        The descriptions of the classes to come, and the share of the spread of class means
        that descriptions predict for classes left out, at most 1; nan without any.
    n_new_classes_, unlabeled_labels_ : int and ndarray of shape (n_unlabeled,)
        Number of clusters of unlabeled rows, and the cluster of each: those of X in their
        order, then those of ``X_unlabeled``. Empty for Dask arrays.
    n_features_in_, feature_names_in_, attribute_names_in_
        Number and names of features (if X has names) and names of the attributes.

    Notes
    -----
    Only class counts, class means and the scatter matrix are needed (see `Moments`), so
    `partial_fit` and `fit_moments` give the same answer as `fit`. With X in memory "direct"
    never forms the d × d matrix; sparse X stays sparse. With
    ``sklearn.set_config(array_api_dispatch=True)`` torch or CuPy arrays are summed up on
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

    solver: str = "direct"
    max_iter: int = 20
    tol: float = 1e-4
    n_inner: int = 1
    step: str | float = "lipschitz"
    s_init: Any = None
    n_swaps: int = 0

    _words = {"solver": ("direct", "alternating"), "penalty_scale": ("gram", "none")}
    _words |= {"step": STEP_RULES, "n_new_classes": ("auto",)}
    _whole = {"max_iter": 1, "n_inner": 1, "n_swaps": 0, "n_new_classes": 2}
    _above = {"step": 0.0}
    _at_least = dict.fromkeys(("alpha", "gamma", "label_weight", "tol"), 0.0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_unlabeled: Any = None
    ) -> Self:
        """Choose features on the seen classes.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Rows of the seen classes; or AnnData, a memmap, the path of a file, an iterable of
            (X, y) blocks, which are read in blocks (see `semfs.rows.open_blocks`), or Dask
            arrays and frames, which are summed up where they are.
        y : array-like of shape (n,)
            Their class labels, of any one hashable type; or the name of the column that holds
            them. Not for (X, y) blocks. -1 (unless `attributes` describes a class -1), None,
            NaN and NA mark unlabeled rows.
        sample_weight : array-like of shape (n,), optional
            Row weights.
        X_unlabeled : array-like or sparse matrix of shape (n_unlabeled, d), optional
            More unlabeled rows, or where they are: as X. Beyond memory, clusters are found
            in a sample and all rows assigned to them.
        """
        with self._all_or_nothing():
            data = self._data(X, y, sample_weight, X_unlabeled=X_unlabeled)
            self.__dict__.pop("moments_", None)
            return self._fit_from(data, y)

    @with_callbacks
    def fit_moments(self, moments: Moments) -> Self:
        """Choose features from moments of the seen classes, as `fit` does from their rows."""
        self._check_parameters()
        if not isinstance(moments, Moments):
            raise TypeError(f"fit_moments needs Moments, got {type(moments).__name__}.")
        if UNLABELED in moments.classes.tolist() and not describes(self.attributes, UNLABELED):
            raise ValueError(  # sums cannot be taken apart again
                f"some rows have the label {UNLABELED}, which means unlabeled, and were summed"
                " up with others. Mark them by None or NaN, or pass labels and rows apart."
            )
        with self._all_or_nothing():
            self.n_features_in_ = moments.n_features
            for name in ("moments_", "feature_names_in_"):
                self.__dict__.pop(name, None)
            return self._fit_from(TrainingData(None, moments, None))

    @with_callbacks
    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Add rows to those of earlier calls and choose features on all of them.

        X, y and sample_weight are as in `fit`, which forgets what was collected. New classes
        may appear at any time; until there are two, the selector only collects.
        """
        collected: Moments | None = getattr(self, "moments_", None)
        with self._all_or_nothing():
            data = self._data(X, y, sample_weight, reset=collected is None)
            if data.unlabeled is not None:
                raise ValueError(
                    "partial_fit takes labeled rows only. Drop the others, or use fit."
                )
            align_attributes(self.attributes, data.moments.classes)  # refuse before adding
            moments = data.moments.copy() if collected is None else collected + data.moments
            self.moments_ = moments
            if (moments.counts > 0).sum() > 1:
                self._fit_from(TrainingData(data.X, moments, None), y)
        return self

    def _data(
        self, X: Any, y: Any, sample_weight: Any, X_unlabeled: Any = None, reset: bool = True
    ) -> TrainingData:
        """Moments of rows wherever they are, and rows without a label."""
        self._check_parameters()
        rows = training.rows_beyond_memory(X, y, sample_weight, self.attributes)
        apart = unlabeled_source(X_unlabeled)
        here = X_unlabeled if apart is None else None
        if rows is not None and not reset and (d := rows.n_features) != self.n_features_in_:
            raise ValueError(f"X has {d} features, those before had {self.n_features_in_}.")
        if rows is not None and rows.fits_in_memory:
            (X, y, sample_weight), rows = training.loaded(rows), None
        source, direct = apart if rows is None else rows, self.solver == "direct"
        options = {
            "n_select": self._n_wanted(source.n_features) if source and direct else None,
            "precise": self.penalty_scale != "gram" or self.gamma < SAFE_RELATIVE_PENALTY,
            "verbose": self.verbose,
        }
        if rows is None:
            data = self._training_data(X, y, sample_weight, X_unlabeled=here, reset=reset)
        else:
            alone = (
                direct and X_unlabeled is None and not getattr(rows.labels, "n_unlabeled", 1)
            )
            sums, again = rows.sums(**options, foretell=self._foretold if alone else None)
            if UNLABELED in sums.position and not describes(self.attributes, UNLABELED):
                rows = rows.labeled().mask_label(UNLABELED)  # marks came with the blocks
                sums, again = rows.sums(**options)
            data = TrainingData(None, Moments.from_sums(sums, again), None)
            self.n_features_in_ = rows.n_features
            self.__dict__.pop("feature_names_in_", None)
            if rows.feature_names is not None:
                self.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)
            if here is not None:
                here = validated(self, here, "X_unlabeled", accept_sparse="csr", reset=False)
                apart = open_blocks(here, np.full(here.shape[0], np.nan))
            if sums.unlabeled:
                data = data.with_streamed(rows, rows, options)
        if apart is None:
            return data
        names = getattr(self, "feature_names_in_", None)
        own, d = apart.feature_names, self.n_features_in_
        if apart.n_features != d or not (own is None or names is None or [*own] == [*names]):
            raise ValueError(
                f"X_unlabeled has {apart.n_features} columns that are not the {d} of X in "
                "their order. Give both the same columns."
            )
        return data.with_streamed(apart, rows, options)

    def _foretold(self, sums: Any, rows: Any) -> np.ndarray | None:
        """Features whose Gram columns a fit will ask for, told by the sums of some rows."""
        moments = Moments.from_sums(sums, rows).without_empty_classes()
        with warnings.catch_warnings(), suppress(ValueError):  # the fit itself will tell
            warnings.simplefilter("ignore")
            table = align_attributes(self.attributes, moments.classes)
            objective = self._objective(moments, self._targets(table, self.label_weight)[0])
            limits = Candidates.of(moments, self.include, self.exclude, rows.feature_names)
            more = further_knowledge(self, objective, table, Units(), None)[1]
            k = min(self._n_wanted(moments.n_features), moments.n_features)
            own = limits.candidates, limits.include
            return likely_features([objective.quadratic(), *more], k, *own)
        return None

    def _fit_from(self, data: TrainingData, y: Any = None) -> Self:
        """Solve and set all fitted attributes."""
        X, given = data.X, data.moments.without_empty_classes()
        training.check_two_classes(given)
        own_table = align_attributes(self.attributes, given.classes)
        if self.attributes is not None:
            _warn_of_constants(own_table)
        units = Units.of(given, own_table, data.unlabeled)
        moments, table = units.moments(given), units.table(own_table)
        params = units.params(self)
        targets, basis = self._targets(table, params["label_weight"])
        objective = self._objective(moments, targets, gamma=params["gamma"])
        limits = Candidates.of(
            moments, self.include, self.exclude, getattr(self, "feature_names_in_", None)
        )
        k = self._n_wanted(moments.n_features)
        limits.check(k)
        self._warn_of_units(np.where(limits.candidates, moments.scatter_diag, 0.0))
        unlabeled = units.rows(data.unlabeled)
        knowledge, further = further_knowledge(self, objective, table, units, unlabeled)
        n_steps = min(k, moments.n_features) if self.solver == "direct" else self.max_iter
        context = self._init_callback_context(max_subtasks=n_steps)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        def fitted(solution: Solution) -> dict[str, Any]:
            found = self._coefficients(solution, basis, table, objective)
            found |= self._ranking(solution, limits)
            found |= _class_moments(objective, solution, found["support_"])
            return units.undone(found, direct=self.solver == "direct")

        monitor = self._monitor(context, n_steps, fitted, X, y)
        solution = self._solve(objective, further, limits, monitor, params["step"])
        results = fitted(solution) | knowledge
        self.classes_ = given.classes
        self.class_table_ = own_table
        self._remember(given)
        for name, value in results.items():
            setattr(self, name, like(value, X) if isinstance(value, np.ndarray) else value)
        self._warn_if_too_many(moments.n_features - len(limits.exclude))
        made = {"estimator": self, "reconstruction_attributes": lambda: results}
        context.call_on_fit_task_end(X=X, y=y, **made)
        return self

    def _warn_of_units(self, scatter: np.ndarray) -> None:
        """Name a column with almost all of the variance (d,)."""
        share = scatter / max(float(scatter.sum()), np.finfo(float).tiny)
        largest = int(np.argmax(share))
        if np.count_nonzero(share) > 2 and share[largest] > MOST_VARIANCE:
            warnings.warn(
                f"{self._name_of(largest)} has {share[largest]:.0%} of the variance of X and "
                "outweighs the others. If it is no measurement, exclude it; if columns have "
                "different units, scale X first, for example with StandardScaler.",
                stacklevel=5,
            )

    def _targets(
        self, table: AttributeTable, label_weight: float
    ) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Targets (C, r), and the basis (m, r) they are in; labels need neither."""
        A = table.values
        if self.attributes is None:
            return None, None
        if label_weight:
            A = np.hstack([A, np.sqrt(label_weight) * np.eye(len(A))])
        A, basis = reduce_rank(A - A.mean(axis=0) if self.fit_intercept else A)
        return A, basis[: table.values.shape[1]]

    def _objective(self, moments: Moments, targets: Any, **changes: Any) -> Objective:
        """J of the seen classes, with some parameters changed."""
        names = ("alpha", "gamma", "penalty_scale", "fit_intercept")
        own = {name: getattr(self, name) for name in names} | changes
        weights = class_weights(self.class_weight, moments.classes, moments.counts)
        return Objective.from_moments(moments, targets, class_weight=weights, **own)

    def _solve(
        self, objective: Objective, more: list, limits: Candidates, monitor: Any, step: Any
    ) -> Solution:
        d = objective.n_features
        if self.solver == "direct":
            return forward_selection(
                [objective.quadratic(), *more],
                min(self._n_wanted(d), d),
                candidates=limits.candidates,
                include=limits.include,
                n_swaps=self.n_swaps,
                monitor=monitor,
            )
        s = np.ones(d) if self.s_init is None else np.array(self.s_init, dtype=np.float64)
        if s.shape != (d,) or not np.isfinite(s).all() or (s < 0).any():
            raise ValueError(f"s_init must hold {d} non-negative numbers, got shape {s.shape}.")
        return solve_alternating(
            objective,
            max_iter=self.max_iter,
            tol=self.tol,
            n_inner=self.n_inner,
            step=step,
            s_init=np.where(limits.candidates, s, 0.0),  # where s starts at 0 it stays there
            monitor=monitor,
        )

    def _coefficients(
        self, solution: Solution, basis: Any, table: AttributeTable, objective: Objective
    ) -> dict[str, Any]:
        used, V = np.flatnonzero(solution.s), solution.V
        V = V if basis is None else V @ basis.T  # back to the columns of the table
        # most of W is zero, and takes no memory (numpy would ask for huge pages)
        pages = mmap(-1, 8 * len(solution.s) * V.shape[1], access=ACCESS_COPY)
        W, intercept = np.frombuffer(pages).reshape(-1, V.shape[1]), np.zeros(V.shape[1])
        W[used] = V
        if self.fit_intercept:
            average = objective.shares @ table.values / objective.shares.sum()
            intercept = average - (objective.mean * solution.s)[used] @ V
        return {
            "selection_": solution.s,
            "coef_": W,
            "intercept_": intercept,
            "objective_": solution.objective,
            "n_iter_": len(solution.objective),
        }

    def _ranking(self, solution: Solution, limits: Candidates) -> dict[str, Any]:
        """Scores and order; forced features first, constant ones last, then forbidden ones."""
        scores = solution.scores
        found = (scores[limits.candidates], solution.V, solution.objective)
        if not all(np.isfinite(values).all() for values in found):
            raise ValueError(f"scores overflow. {training.RESCALE}")
        if len(found[0]) > 1 and (np.diff(solution.order) > 0).all() and not np.ptp(found[0]):
            warnings.warn(
                "all features score alike and stay in the order of the columns: the classes do "
                "not differ in them, or a penalty, weight or step drowns what they differ in.",
                stacklevel=5,
            )
        group = np.where(limits.constant, 2, 1)
        group[limits.include] = 0
        group[limits.exclude] = 3
        order = solution.order[np.argsort(group[solution.order], kind="stable")]
        scores = np.where(group >= 2, -np.inf, scores)
        return self._ranking_attributes(scores, order, len(scores) - len(limits.exclude))

    def _monitor(
        self, context: CallbackContext, n_steps: int, fitted: Callable, X: Any, y: Any
    ) -> Callable[..., bool] | None:
        """What the solver calls after each step: callbacks and `verbose` lines."""
        watched = bool(getattr(self, "_skl_callbacks", []))
        if not watched and not self.verbose:
            return None

        def monitor(step: int, J: float, feature: int | None, solution: Callable) -> bool:
            if self.verbose:
                added = "" if feature is None else f"  + {self._name_of(feature)}"
                print(f"[SemFS] {step:>{len(str(n_steps))}}/{n_steps}  J = {J:.6g}{added}")
            if not watched:
                return False
            # One task per step. The solver owns the loop, so a task is announced when done.
            name = "feature" if self.solver == "direct" else "iteration"
            task = context.subcontext(task_name=name)
            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            made = {"estimator": self, "reconstruction_attributes": lambda: fitted(solution())}
            return task.call_on_fit_task_end(X=X, y=y, **made)

        return monitor

    def _check_parameters(self) -> None:
        super()._check_parameters()
        self._check_n_features_to_select()
        if isinstance(self.target_attributes, str):
            check_option("target_attributes", self.target_attributes, ("table",))
        elif self.target_attributes is not None:
            if self.attributes is None:
                raise ValueError("target_attributes needs attributes, with the same columns.")
            if self.solver != "direct":
                raise ValueError('target_attributes needs solver="direct".')
        if self.solver == "alternating" and self.gamma == 0:
            raise ValueError('gamma must be positive with solver="alternating".')


def _warn_of_constants(table: AttributeTable) -> None:
    """Name attributes that teach nothing; of no, partly, yes only if more than half do so."""
    names = constant_attributes(table)
    usual = len(table.names) / 2 if np.isin(table.values, (0.0, 0.5, 1.0)).all() else 0
    if len(names) > usual:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        warnings.warn(
            f"{len(names)} of {len(table.names)} attributes are the same for all seen "
            f"classes and teach nothing: {shown}.",
            stacklevel=5,
        )


def _class_moments(
    objective: Objective, solution: Solution, support: np.ndarray
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
