"""SemFS: the scikit-learn selector.

A fit turns parameters and data into a `Problem` (problem.py), solves it, puts the `Outcome`
(outcome.py) into the user's terms, a `Fitted` (fitted.py), and copies that to its attributes.
Parameters shared with `SemFSCV` and explanations are in `LinearSelector` (linear.py),
predictions in `NamingSelector` (naming.py).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.utils import Tags

from semfs._typing import ArrayLike, DataLike, LabelsLike, Matrix
from semfs.attributes import align_attributes
from semfs.constraints import Above, AtLeast, OneOf, WholeNumber
from semfs.labels import UNLABELED, Labels
from semfs.method.alternating import STEP_RULES
from semfs.method.moments import Moments
from semfs.method.quadratic import Monitor, Solution
from semfs.selectors.callbacks import CallbackContext, CallbackSupportMixin, with_callbacks
from semfs.selectors.inputs.features import set_features
from semfs.selectors.inputs.fit_input import FitInput, described_classes
from semfs.selectors.inputs.training_data import TrainingData
from semfs.selectors.linear import LinearSelector
from semfs.selectors.outcome import Outcome
from semfs.selectors.problem import Problem
from semfs.selectors.rules.parameters import check_rules
from semfs.validation import ParameterError, check_option

#: Algorithm 1 as the paper states it: ``SemFS(50, attributes=A, **AS_PUBLISHED)``.
#: alpha and gamma are the paper's. It fixes neither s_init, step nor n_inner: those values are
#: our choice. With this step, J falls by less than tol in round 1; tol=0 gives all rounds.
#: To change a parameter: ``SemFS(50, attributes=A, **{**AS_PUBLISHED, "alpha": 0})``.
AS_PUBLISHED: dict[str, Any] = {
    "solver": "alternating",
    "alpha": 1.0,
    "gamma": 0.1,
    "penalty_scale": "none",
    "fit_intercept": False,
    "class_weight": None,
    "label_weight": 0.0,
    "max_correlation": None,
    "target_attributes": None,
    "missing_values": "error",
    "n_inner": 1,
    "step": "lipschitz",
    "s_init": None,
    "min_per_class": 0,
}


@dataclass(eq=False, repr=False, kw_only=True)
class SemFS(CallbackSupportMixin, LinearSelector):
    """Select the features that separate classes nobody has labeled yet.

    Features are selected on labeled *seen* classes so that they predict the *attributes*
    (descriptions) of a class. An unseen class is a new combination of the same attributes. The
    objective is that of Wang et al., "Zero-shot Feature Selection via Transferring Supervised
    Knowledge"::

        J(W, s) = ‖Y_s − X S W‖² + alpha ‖Y_s − X̄ S W‖² + gamma ‖W‖²,   S = diag(s)

    with s (d,) the selection, W (d, m) the coefficients, Y_s (n, m) the attributes of each
    sample's class, and X̄ (n, d) the samples, each replaced by the mean of its class. J depends
    on the data through G (d, d), the Gram matrix of X and X̄ together, and their products with
    Y_s. Unlabeled samples are clustered, and the features must separate the clusters as well.
    A fitted selector also classifies samples, by the means of its classes (`predict`).

    In the shapes below n is the number of samples, d of features, k of selected features, m of
    attributes, C of seen classes and B of batches.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=50
        Number of features to keep, or their share (below 1; at least one is kept). If it is
        larger than the number of features, all are kept and a warning is issued. With `groups`
        it counts groups. None selects as many features as the `budget` allows.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        Class descriptions: a pandas frame indexed by class label (or a polars frame whose
        first column holds the labels), a mapping from label to vector, or an array whose
        row r belongs to the integer label r. None uses the class labels themselves as
        targets, one indicator per class.
    alpha : float, default=1.0
        Weight of the second term of J, the paper's center-characteristic loss. In effect it
        reduces the scatter within classes to 1/(1 + alpha) of its size, next to that between
        classes. 0 leaves the term out (the paper's SemFS/c).
    gamma : float, default=2.0
        Ridge penalty, in units set by `penalty_scale`. Small values select features that
        complement each other; large values select those that are strongest by themselves.
    penalty_scale : {"weighted", "gram", "none"}, default="weighted"
        "weighted" multiplies `gamma` by Σg²/Σg, the mean diagonal g of G weighted by itself,
        and "gram" by the plain mean tr(G)/d: the ranking does not depend on the scale of X and
        the number of samples. For standardized columns both are the same; where variances
        differ the first is larger. "none" takes `gamma` as it stands.
    fit_intercept : bool, default=True
        Whether to center X and the attributes.
    class_weight : "balanced", mapping or None, default="balanced"
        Weight of each class. "balanced" gives the same weight to every class, None to every
        sample. It concerns the class means; in the scatter within classes every sample counts
        the same.
    label_weight : float, default=1.0
        Weight of the class labels as further targets, relative to the attributes: with 1, the
        spread of both sets of targets is the same. They separate seen classes that the
        attributes describe alike; 0 is the paper's method. Without `attributes` it has no
        effect.
    max_correlation : float or None, default=0.95
        With ``solver="direct"``, a feature is skipped if its correlation with a selected one,
        over the samples of the seen classes, exceeds this in absolute value. Features of
        `include` are not skipped, and if nothing else is left, skipped ones are selected after
        all. None skips nothing.
    target_attributes : "table", like `attributes`, or None, default="table"
        Descriptions of unseen classes: "table" are the rows of `attributes` whose class is not
        in y; or a table of the same columns. With ``solver="direct"``, features are also
        selected to separate the means of these classes, which kernel ridge regression predicts
        from the descriptions. They are not used if such predictions fail for seen classes that
        are left out one at a time (``target_r2_`` below .02), or if there are fewer than 8 seen
        classes (see ``knowledge_``). None switches it off.
    n_new_classes : int, "auto" or "table", default="auto"
        Number of classes expected among unlabeled samples, if `fit` is given some. "auto"
        is the smallest number for which the variance within clusters is no larger than in
        K-means on the seen samples with one cluster per seen class. "table" is the number of
        described unseen classes: choose it if you know that the unlabeled samples are of these
        classes.
    include : sequence of int or str, optional
        Features that are selected before all others: by index, or by text, which is a name, a
        pattern ``"re:^MT-"``, the path of a file with a name per line, or names joined by
        commas. The name of a group of `groups` means its features, unless a feature has it.
    exclude : sequence of int or str, optional
        Features that are never selected, named as in `include`.
    missing_values : {"error", "class-mean"}, default="error"
        What to do about NaN in X: refuse it, or fill a gap with the mean of the values of its
        class. Class means are then those of the values observed. Filled gaps have no scatter,
        so the scatter of a feature within classes is divided by the share of samples in which
        it was observed. A feature needs a value in each class. Gaps of unlabeled samples are
        filled with the mean of the feature among them. This needs dense data in memory, or
        files that fit into it; `predict` needs complete samples.
    candidates : sequence of int or str, optional
        Only these features may be selected, and those of `include`; named as there. This and
        the next parameters down to `capacity` are the rules of a panel; those from
        `min_per_class` on need ``solver="direct"``.
    min_per_class : int, default=0
        Each class is marked by at least this many selected features. A feature marks a class if
        the mean of the class exceeds the mean over the other classes by a standard deviation
        within classes, and is one of the two highest. Unseen classes with descriptions count as
        well, by predicted means; fewer markers are accepted if too few features mark them.
    groups : array-like of shape (d,), mapping or Series, optional
        Labels: features of one label are selected together, and `n_features_to_select` counts
        groups. A mapping gives the label of each feature name. A feature without a label is a
        group by itself. `max_correlation` is ignored with groups.
    costs : array-like of shape (d,), mapping or Series, optional
        Cost of each feature, 0 or more; or a mapping from names of features, or of groups:
        then it is the price of the whole group. With prices of features, a group costs their
        sum.
    budget : float, optional
        Limit on the sum of the costs of the selected features. With
        ``n_features_to_select=None``, it decides how many features are selected.
    min_level, max_level : float, optional
        Limits for the largest class mean of a feature: features whose largest mean is outside
        are not selected. Imaging assays lose genes that are too weak or too strong.
    capacity : float or mapping from class to float, optional
        For each class, the means of the selected features add up to at most this, as where
        the signals of all probes share one image.
    verbose : int, default=0
        If positive, print a line per feature ("direct") or round ("alternating").
    solver : {"direct", "alternating"}, default="direct"
        "direct" solves the paper's 0/1 problem (Eq. 4) by forward selection; without rules and
        swaps its ranking is nested: the first j features are the answer for j. "alternating"
        is the paper's Algorithm 1, kept as a reference.
    max_iter : int, default=20
        Largest number of rounds of "alternating".
    tol : float, default=1e-4
        "alternating" stops when a round lowers J by less than this fraction. With the paper's
        step (`AS_PUBLISHED`) that is often round 1, although J has hardly fallen; 0 runs all
        rounds.
    n_inner : int, default=1
        Projected gradient steps in each round of "alternating".
    step : {"lipschitz", "exact"} or float, default="lipschitz"
        Step length of "alternating": 1/λ_max of the Hessian, the minimizer along the
        gradient, or a fixed length. A fixed length is halved while J would rise.
    s_init : array-like of shape (d,), optional
        Start of "alternating"; by default all ones.
    n_swaps : int, default=0
        After "direct", make at most this many exchanges of a selected feature for another
        one, while J falls.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Importance, larger is better: s for "alternating"; for "direct" the decrease of J
        when the feature entered, or, for features that were not selected, what J would fall
        by if they entered next.
        ``-inf`` for constant and excluded columns.
    order_ : ndarray of shape (d,)
        Feature indices, best first; constant columns and then excluded ones at the end.
    ranking_ : ndarray of shape (d,)
        Position of each feature, 1 is best.
    support_ : ndarray of shape (d,)
        Whether a feature is selected.
    rules_ : list of str
        What the rules of the panel (`include` and `exclude`, `candidates` to `capacity`) ruled
        out or led to, and how much better the fit would be without each: how much lower J.
    coverage_ : pandas.Series
        Number of selected features that mark each class, as `min_per_class` counts them.
    marks_ : ndarray of shape (C, k)
        Which selected features mark which class; rows of unseen classes follow those of the
        seen ones if `min_per_class` or `capacity` is set.
    selection_ : ndarray of shape (d,)
        s of the paper: 0/1 for "direct", non-negative for "alternating".
    coef_ : ndarray of shape (d, m)
        W, in the attributes of the table given; zero rows for features that "direct" did not
        select.
    intercept_ : ndarray of shape (m,)
        Intercept of the prediction of the attributes.
    objective_ : ndarray of shape (n_steps,)
        J after each added feature ("direct") or round ("alternating").
    n_iter_ : int
        Number of added features or rounds.
    classes_ : ndarray of shape (C,)
        Seen classes.
    class_table_ : AttributeTable
        Descriptions of the seen classes.
    class_means_ : ndarray of shape (C, k)
        Class means of the selected features.
    within_ : ndarray of shape (k, k)
        Covariance of the selected features within classes.
    knowledge_ : dict from str to str
        Each source of information, whether it was used, and if not, why: the seen classes,
        and unseen classes and unlabeled samples where there were any. Also seen classes that
        are described alike, and near copies that were skipped.
    skipped_ : dict from int to int
        Features that were skipped as near copies, and the selected feature that each copies.
    new_table_ : AttributeTable or None
        Descriptions of the unseen classes, None if there are none.
    target_r2_ : float
        Share of the spread of class means that descriptions predict for left-out seen classes,
        at most 1; nan without descriptions of unseen classes.
    n_new_classes_ : int
        Number of clusters of unlabeled samples.
    unlabeled_labels_ : ndarray of shape (n_unlabeled,)
        Cluster of each unlabeled sample: those of X in their order, without those of weight
        0, then those of ``X_unlabeled``. Empty for Dask arrays.
    preprocessing_ : dict
        What was done to the data before the fit: the ``layer`` of AnnData, ``normalize`` of
        `semfs.rows.open_blocks` and the ``scale`` of features. It is applied to files and
        AnnData objects that are passed to `predict` and `transform` later.
    bias_ : float
        The amount by which the scores of seen classes are lowered if unseen classes compete.
        It is computed when it is first needed. Seen classes are treated as unseen in turn,
        and the bias with the largest harmonic mean of both accuracies is used.
    calibration_sample_ : dict
        Selected features of at most 20 samples of each seen class, by which predictions are
        calibrated; empty if there were no samples, as in `fit_moments`. Then samples drawn
        from the normal distribution of each class are used instead.
    batches_ : ndarray of shape (B,)
        Batches whose offsets were removed; empty if there were none, or only one.
    batch_offsets_ : ndarray of shape (B, k)
        Their offsets in the selected features.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features, if X has names.
    attribute_names_in_ : ndarray of shape (m,)
        Names of the attributes.

    Notes
    -----
    Only class counts, class means and the scatter matrix are needed (see `Moments`), so
    `partial_fit` and `fit_moments` give the same answer as `fit`. With X in memory "direct"
    never forms the d × d matrix; sparse X stays sparse. With
    ``sklearn.set_config(array_api_dispatch=True)`` torch or CuPy arrays are summed up on
    their device; the solver works on the host, and results return to the device.

    Numbers of X and of the attributes may be as large as 1e100 and as small as 1e-100; float32
    data beyond 1e15, or below 1e-15, are taken as float64.

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
    >>> selector.transform(X[y >= 4]).shape  # samples of unseen classes
    (199, 4)
    """

    solver: str = "direct"
    max_iter: int = 20
    tol: float = 1e-4
    n_inner: int = 1
    step: str | float = "lipschitz"
    s_init: ArrayLike | None = None
    n_swaps: int = 0

    _constraints = {
        "solver": OneOf("direct", "alternating"),
        "max_iter": WholeNumber(1),
        "tol": AtLeast(0),
        "n_inner": WholeNumber(1),
        "step": OneOf(*STEP_RULES) | Above(0),
        "n_swaps": WholeNumber(0),
    }

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.array_api_support = True
        return tags

    @with_callbacks
    def fit(
        self,
        X: DataLike,
        y: LabelsLike | str | None = None,
        sample_weight: ArrayLike | None = None,
        X_unlabeled: DataLike = None,
        batch: LabelsLike | str | None = None,
        batch_unlabeled: LabelsLike | str | None = None,
    ) -> Self:
        """Select features on the seen classes.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Samples of the seen classes; or AnnData, a memmap, the path of a file, an iterable
            of (X, y) blocks, which are read in blocks (see `semfs.rows.open_blocks`), or Dask
            arrays and frames, which are summed up where they are. Columns of a frame that hold
            no numbers are ignored, with a warning.
        y : array-like of shape (n,)
            Their class labels, of any one hashable type; or the name of the column that holds
            them. Not for (X, y) blocks. -1 (unless `attributes` describes a class -1), None,
            NaN and NA mark unlabeled samples.
        sample_weight : array-like of shape (n,), optional
            Sample weights. Samples of weight 0 are ignored, unlabeled ones too.
        X_unlabeled : array-like or sparse matrix of shape (n_unlabeled, d), optional
            More unlabeled samples, in any form that X may have. Features are found by name
            where both have names, unless the samples are beyond memory. Features that
            X_unlabeled lacks are named in a warning and judged by the labeled samples alone.
            Beyond memory, clusters are found in a sample of them and all are assigned to these.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, such as its donor, plate or site; or the name of the column
            that holds it. Batches shift the features by offsets, which are removed: those of
            labeled samples by the additive model class + batch, those of unlabeled samples by
            the means of their batches. X itself is not changed.
        batch_unlabeled : array-like of shape (n_unlabeled,) or str, optional
            Batch of each sample of `X_unlabeled`; needed if `batch` is given as well.

        Examples
        --------
        A column that is high in the samples of one donor only:

        >>> import numpy as np
        >>> rng = np.random.default_rng(0)
        >>> y, donor = np.repeat([0, 1], 100), np.tile([0, 0, 0, 1], 50)
        >>> donor[y == 1] = 1 - donor[y == 1]  # most samples of a class are of one donor
        >>> X = rng.normal(size=(200, 5))
        >>> X[:, 0] += y
        >>> X[:, 3] += 9 * donor
        >>> SemFS(1).fit(X, y).get_support(indices=True)
        array([3])
        >>> SemFS(1).fit(X, y, batch=donor).get_support(indices=True)
        array([0])
        """
        # a fit that fails leaves the selector as it was
        with self._all_or_nothing():
            self._check_parameters()
            fit_input = FitInput.from_user(
                self,
                X,
                y,
                sample_weight,
                X_unlabeled,
                batch=batch,
                batch_unlabeled=batch_unlabeled,
            )
            fit_input.warn_of_missing_labels()
            self._forget_collected()
            return self._fit_input(fit_input, y)

    @with_callbacks
    def fit_moments(self, moments: Moments) -> Self:
        """Select features from moments of the seen classes, as `fit` does from samples.

        Parameters
        ----------
        moments : Moments
            Sums over the samples of the seen classes.
        """
        self._check_parameters()
        if not isinstance(moments, Moments):
            raise TypeError(f"fit_moments needs Moments, got {type(moments).__name__}.")
        self._refuse_unlabeled_class(moments)
        with self._all_or_nothing():
            set_features(self, moments.n_features, None)
            self._forget_collected()
            return self._fit_data(TrainingData(moments))

    def _forget_collected(self) -> None:
        """Forget what `partial_fit` has collected."""
        self.__dict__.pop("moments_", None)
        self.__dict__.pop("moments_have_batches_", None)

    @with_callbacks
    def partial_fit(
        self,
        X: DataLike,
        y: LabelsLike | str | None,
        sample_weight: ArrayLike | None = None,
        batch: LabelsLike | str | None = None,
    ) -> Self:
        """Add samples to those of earlier calls and select features on all of them.

        New classes may appear at any time; until there are two, the selector only collects.
        `fit` forgets what was collected.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Samples, as in `fit`.
        y : array-like of shape (n,)
            Their labels, as in `fit`; every sample needs one.
        sample_weight : array-like of shape (n,), optional
            Sample weights.
        batch : array-like of shape (n,) or str, optional
            Batches of the samples, as in `fit`; in every call or in none.
        """
        collected: Moments | None = getattr(self, "moments_", None)
        with self._all_or_nothing():
            self._check_parameters()
            if self.missing_values != "error":
                # gaps are filled with class means, which later samples would change
                message = 'is "class-mean", which needs all samples at once. Use fit.'
                raise ParameterError("missing_values", message)
            first = collected is None
            fit_input = FitInput.from_user(self, X, y, sample_weight, reset=first, batch=batch)
            had_batches = getattr(self, "moments_have_batches_", False)
            if not first and fit_input.batched != had_batches:
                raise ValueError("partial_fit needs batch either in every call or in none.")
            data = fit_input.summed(self._sum_options(fit_input.n_features))
            if data.unlabeled is not None:
                raise ValueError(
                    "partial_fit takes only labeled samples. Drop the unlabeled ones, or use "
                    "fit."
                )
            # classes without a description are refused before their samples are added
            align_attributes(self.attributes, data.classes)
            if collected is None:
                # a copy, because the caller may fill the same array for the next call
                moments = data.moments.copy()
            else:
                moments = collected + data.moments
            self.moments_ = moments
            self.moments_have_batches_ = fit_input.batched
            # classes and batches may be confounded so far; later samples can resolve this
            data = replace(data, moments=moments).corrected(refuse=False)
            if (data.moments.counts > 0).sum() > 1:
                self._fit_data(data, y)
        return self

    @with_callbacks
    def _fit_input(self, fit_input: FitInput, y: Any = None) -> Self:
        """Fit to what `fit` was handed; `SemFSCV` calls it for the refit with its own input.

        The decorator then ends the callbacks that were passed on to the refitted selector.
        """
        set_features(self, fit_input.n_features, fit_input.feature_names)
        data = fit_input.summed(self._sum_options(fit_input.n_features))
        return self._fit_data(data.corrected(), y)

    def _fit_data(self, data: TrainingData, y: Any = None) -> Self:
        """Build the problem, solve it, and set all fitted attributes."""
        names = getattr(self, "feature_names_in_", None)
        problem = Problem.from_data(self, data, names)
        # callbacks begin only now, because the problem knows the number of steps
        context = self._init_callback_context(max_subtasks=problem.n_steps)
        context.call_on_fit_task_begin(estimator=self, X=data.X, y=y)
        monitor = self._monitor(context, problem, data.X, y)
        fitted = Outcome(problem, problem.solve(monitor)).fitted()
        self._set_fitted(fitted, data.X)
        self._remember(problem.moments)
        self._warn_if_too_many(problem.candidates.n_selectable)
        context.call_on_fit_task_end(
            estimator=self, X=data.X, y=y, reconstruction_attributes=fitted.attributes
        )
        return self

    def _refuse_unlabeled_class(self, moments: Moments) -> None:
        """Raise if unlabeled samples were summed up as a class of their own."""
        described = described_classes(self.attributes)
        labels = Labels.of(moments.classes)
        if labels.mark_unlabeled(described).n_unlabeled:
            # their sum does not say which clusters they form
            raise ValueError(
                f"the moments include samples with the label {UNLABELED}, which means "
                "unlabeled. "
                "Leave these samples out, or use fit(X, y)."
            )

    def _monitor(
        self,
        context: CallbackContext,
        problem: Problem,
        X: Matrix | None,
        y: Any,
    ) -> Monitor | None:
        """What the solver calls after each step: callbacks and `verbose` lines."""
        has_callbacks = bool(getattr(self, "_skl_callbacks", []))
        if not has_callbacks and not self.verbose:
            return None
        n_steps = problem.n_steps
        width = len(str(n_steps))

        def monitor(
            step: int,
            J: float,
            feature: int | None,
            solution: Callable[[], Solution],
        ) -> bool:
            """Report a step; True asks the solver to stop."""
            if self.verbose:
                added = "" if feature is None else f"  + {self._name_of(feature)}"
                print(f"[SemFS] {step:>{width}}/{n_steps}  J = {J:.6g}{added}")
            if not has_callbacks:
                return False
            # One task per step. The solver owns the loop, so a task is announced when done.
            name = "feature" if self.solver == "direct" else "iteration"
            task = context.subcontext(task_name=name)

            def fitted_attributes() -> dict[str, Any]:
                """Fitted attributes after this step, computed if a callback asks."""
                return Outcome(problem, solution()).fitted().attributes()

            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            return task.call_on_fit_task_end(
                estimator=self,
                X=X,
                y=y,
                reconstruction_attributes=fitted_attributes,
            )

        return monitor

    def _check_parameters(self) -> None:
        """Raise if a parameter has no meaning, by itself or next to others."""
        super()._check_parameters()
        check_rules(self)
        name = "target_attributes"
        if isinstance(self.target_attributes, str):
            check_option(name, self.target_attributes, ("table",))
        elif self.target_attributes is not None:
            if self.attributes is None:
                raise ParameterError(name, "needs attributes, with the same columns.")
            if self.solver != "direct":
                raise ParameterError(name, 'needs solver="direct".')
        # its linear systems are singular without a penalty if features are dependent
        if self.solver == "alternating" and self.gamma == 0:
            raise ParameterError("gamma", 'must be positive with solver="alternating".')
