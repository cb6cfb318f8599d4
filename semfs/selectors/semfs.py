"""SemFS: the scikit-learn selector.

What `fit` does, in the order of the types that it makes: the user's data are understood as a
`FitInput` and summed up to `TrainingData` (both in inputs/). A `Problem` (problem.py) is made
of parameters and sums. Its solution becomes an `Outcome` (outcome.py), which translates it back
to the features and units of the user, and that a `Fitted` (fitted.py), whose fields become the
fitted attributes of the selector.

`LinearSelector` (linear.py) has the parameters shared with `SemFSCV`, and explanations.
`PredictingSelector` (predicting.py) has predictions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Self

from sklearn.utils import Tags

from semfs._typing import ArrayLike, DataLike, LabelsLike, Matrix
from semfs.attributes import align_attributes
from semfs.constraints import Above, AtLeast, OneOf, WholeNumber
from semfs.labels import UNLABELED, Labels, warn_of_similar_labels
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
from semfs.selectors.training_checks import warn_of_unmeasured
from semfs.validation import ParameterError, check_option

#: Algorithm 1 as the paper states it: ``SemFS(50, attributes=A, **AS_PUBLISHED)``. It differs
#: from the defaults in its solver and in its settings; with ``"solver": "direct"``, the paper's
#: Eq. 4 is solved with the settings of the paper.
#: alpha and gamma are the paper's. The paper fixes neither s_init, step nor n_inner: those are
#: our choice. max_iter and tol are left to you: with this step, J falls by less than the
#: default tol in round 1, and tol=0 gives all rounds.
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
    """Select the features that separate classes that nobody has labeled yet.

    SemFS uses labeled samples of *seen* classes to select features that predict the
    *attributes* (descriptions) of a class. An unseen class is a new combination of the same
    attributes. The objective is that of Wang et al., "Zero-shot Feature Selection via
    Transferring Supervised Knowledge"::

        J(W, s) = ‖Y_s − X S W‖² + alpha ‖Y_s − X̄ S W‖² + gamma ‖W‖²,   S = diag(s)

    where s (d,) is the selection, W (d, m) holds the coefficients, Y_s (n, m) holds the
    attributes of each sample's class, and X̄ (n, d) is X with each sample replaced by the mean
    of its class. J depends on the data only through G = X'X + alpha X̄'X̄ (d, d) and the
    products of X and X̄ with Y_s. Labels as further targets (``label_weight``), descriptions of
    unseen classes and clusters of unlabeled samples add terms of the same form. Below, J is the
    sum of all these terms. After `fit`, `predict` assigns samples to seen or unseen classes by
    the class means.

    In the shapes below, n, d, k, m, C and B are the numbers of samples, features, selected
    features, attributes, seen classes and batches.

    Parameters
    ----------
    n_features_to_select : int, float or None, default=50
        Number of features to select. A value below 1 is the share of all features to select (at
        least one feature is selected). If the number exceeds the number of features, all
        features are selected and a warning is issued. If ``groups`` are given, it is the number
        of groups. None selects as many features as the ``budget`` allows.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        Class descriptions. A pandas frame must be indexed by class label, and a polars frame
        must hold the labels in its first column. A mapping assigns a vector to each label. Row
        r of an array describes the class with the integer label r. If None, the targets are the
        class labels themselves, as one indicator per class.
    alpha : float, default=1.0
        Weight of the second term of J, the paper's center-characteristic loss. It has the
        effect of dividing the scatter within classes by 1 + alpha, relative to the scatter
        between classes. 0 leaves the term out (the paper's SemFS/c).
    gamma : float, default=2.0
        Ridge penalty, in units set by ``penalty_scale``. Small values favor features that
        complement each other, and large values favor features that are strong individually.
    penalty_scale : {"weighted", "gram", "none"}, default="weighted"
        The unit of ``gamma``. Let g be the diagonal of G. "gram" multiplies ``gamma`` by the
        mean of g, and "weighted" multiplies it by Σg²/Σg, the mean of g weighted by g. With
        either option, the ranking does not depend on the scale of X or on the number of
        samples. The two factors are equal for standardized features. If variances differ,
        "weighted" gives the larger factor. "none" uses ``gamma`` unchanged.
    fit_intercept : bool, default=True
        Whether to center X and the attributes.
    class_weight : "balanced", mapping or None, default="balanced"
        Weight of each class. "balanced" gives the same weight to every class, and None gives
        the same weight to every sample. The weights apply to the class means. In the scatter
        within classes, all samples have the same weight, apart from ``sample_weight``.
    label_weight : float, default=1.0
        Weight of the class labels as targets in addition to the attributes. With 1, labels and
        attributes have the same spread. Labels separate seen classes that have the same
        description. 0 corresponds to the paper's method. If no ``attributes`` are given, this
        parameter has no effect.
    max_correlation : float or None, default=0.95
        With ``solver="direct"``, a feature is skipped if the absolute value of its correlation
        with a selected feature, over the samples of the seen classes, exceeds this value.
        Features in ``include`` are never skipped. If no other features are left, skipped
        features are selected after all. With None, no feature is skipped.
    target_attributes : "table", like `attributes`, or None, default="table"
        Descriptions of unseen classes, as a table with the same columns as ``attributes``.
        "table" uses the rows of ``attributes`` whose class is not in y. With
        ``solver="direct"``, kernel ridge regression predicts the means of these classes from
        their descriptions, and features are also selected to separate these means. The
        descriptions are not used if there are fewer than 8 seen classes, or if such predictions
        fail for seen classes that are left out one at a time (``target_r2_`` below 0.02).
        ``knowledge_`` shows whether they were used. None ignores descriptions of unseen
        classes.
    n_new_classes : int, "auto" or "table", default="auto"
        Number of classes expected among the unlabeled samples, if `fit` is given any. "auto"
        uses the smallest number for which the variance within clusters is no larger than in
        K-means on the seen samples with one cluster per seen class. "table" uses the number of
        described unseen classes, which is appropriate if you know that the unlabeled samples
        belong to these classes.
    include : sequence of int or str, optional
        Features that are selected before all others. Each entry is an index or a string. A
        string can be a name, a pattern such as ``"re:^MT-"``, the path of a file with one name
        per line, or several names separated by commas. The label of a group (see ``groups``)
        stands for all features of the group, unless a feature has that name.
    exclude : sequence of int or str, optional
        Features that are never selected. Specify them as in ``include``.
    missing_values : {"error", "class-mean"}, default="error"
        How to handle NaN in X. "error" raises an error. "class-mean" replaces a missing value
        by the mean of the observed values in its class. Replaced values add no scatter, so the
        scatter of a feature within classes is divided by the share of samples in which the
        feature was observed. Each feature needs an observed value in every class. In unlabeled
        samples, a missing value is replaced by the mean of the feature over these samples.
        "class-mean" needs dense data that fit into memory. In new samples, `predict` and
        `transform` replace missing values by the mean of the feature over the training samples
        (``fill_values_``).
    candidates : sequence of int or str, optional
        If given, only these features and those in ``include`` can be selected. Specify them as
        in ``include``. The parameters from ``candidates`` to ``capacity`` are the rules of a
        panel. The parameters from ``min_per_class`` to ``capacity`` need ``solver="direct"``.
    min_per_class : int, default=0
        Minimum number of selected features that mark each class. A feature marks a class if its
        mean in the class exceeds its mean over the other classes by at least one standard
        deviation within classes, and if at most one class has a higher mean. The rule also
        applies to unseen classes with descriptions, whose means are predicted. If there are too
        few features that mark an unseen class, a smaller number is accepted for this class.
    groups : array-like of shape (d,), mapping or Series, optional
        The group label of each feature. The features of a group are selected together, and
        ``n_features_to_select`` is the number of groups. A mapping assigns a group label to
        each feature name. A feature without a label forms a group of its own. If groups are
        given, ``max_correlation`` is ignored.
    costs : array-like of shape (d,), mapping or Series, optional
        Nonnegative cost of each feature. Without a ``budget``, costs do not affect the
        selection; they are only reported. A mapping can give the cost of each feature by name,
        and the cost of a group is then the sum over its features. Alternatively, a mapping can
        give the cost of each whole group by its label.
    budget : float, optional
        Limit on the sum of the costs of the selected features. If
        ``n_features_to_select=None``, the budget determines how many features are selected.
    min_level, max_level : float, optional
        Limits for the largest class mean of a feature. Features whose largest class mean is
        outside these limits are not selected. The limits apply to the means as measured, even
        if ``batch`` is given. For example, use them for imaging assays, which cannot measure
        genes that are expressed too weakly or too strongly.
    capacity : float or mapping from class to float, optional
        Upper limit, in each class, for the sum of the means of the selected features, as
        measured. Set it if the signals of all probes share one image.
    verbose : int, default=0
        If positive, print one line per feature ("direct") or per round ("alternating").
    solver : {"direct", "alternating"}, default="direct"
        "direct" solves the paper's 0/1 problem (Eq. 4) by forward selection. Without rules and
        swaps, its ranking is nested: the first j features are the selection of size j.
        "alternating" is the paper's Algorithm 1, kept as a reference.
    max_iter : int, default=20
        Maximum number of rounds of the "alternating" solver.
    tol : float, default=1e-4
        The "alternating" solver stops when a round lowers J by less than this fraction. With
        the settings of `AS_PUBLISHED`, it often stops after the first round, although J has
        hardly decreased. 0 runs all rounds.
    n_inner : int, default=1
        Number of projected gradient steps in each round of the "alternating" solver.
    step : {"lipschitz", "exact"} or float, default="lipschitz"
        Step length of the "alternating" solver. "lipschitz" uses 1/λ_max of the Hessian, and
        "exact" uses the minimizer along the gradient. A number is a fixed length, which is
        halved as long as J would increase.
    s_init : array-like of shape (d,), optional
        Starting point s of the "alternating" solver. By default, all entries are 1.
    n_swaps : int, default=0
        Number of exchanges of a selected feature for another feature that are tried after the
        "direct" solver. Exchanges that lower J are kept.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Importance of each feature; larger is better. With "alternating", it is s. With
        "direct", the score of a selected feature is the decrease of J when the feature was
        added. The score of any other feature is the decrease of J if it were added next.
        Constant and excluded features have the score ``-inf``. A feature is constant if it
        varies neither in the samples of the seen classes nor in the clusters of unlabeled
        samples.
    order_ : ndarray of shape (d,)
        Feature indices, best first. Constant features come after all others, and excluded
        features come last.
    ranking_ : ndarray of shape (d,)
        Position of each feature; 1 is the best.
    support_ : ndarray of shape (d,)
        Whether a feature is selected.
    rules_ : list of str
        One sentence for each rule of the panel (``include``, ``exclude``, and ``candidates`` to
        ``capacity``). It states what the rule excluded or required, and how much lower J would
        be without the rule.
    coverage_ : pandas.Series
        Number of selected features that mark each class, as defined for ``min_per_class``.
    marks_ : ndarray of shape (C, k)
        Whether each selected feature (column) marks each class (row). If ``min_per_class`` or
        ``capacity`` is set, rows of unseen classes follow the rows of the seen classes.
    selection_ : ndarray of shape (d,)
        The vector s of the paper. Its entries are 0 or 1 for "direct", and nonnegative for
        "alternating".
    coef_ : ndarray of shape (d, m)
        The coefficients W, one column for each attribute of the given table. Features that
        "direct" did not select have rows of zeros.
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
        Class means of the selected features, after the offsets of batches are removed.
    measured_means_ : ndarray of shape (C, k)
        Class means of the selected features as measured, with the offsets of batches. If there
        were no batches, they are equal to ``class_means_``.
    within_ : ndarray of shape (k, k)
        Covariance of the selected features within classes. For a feature that is constant in
        the seen classes, it is the variance within the clusters of unlabeled samples, if it
        varies there.
    knowledge_ : dict from str to str
        For each source of information, whether it was used, and if not, why. Sources are the
        seen classes, descriptions of unseen classes, and unlabeled samples. Further entries
        list seen classes that have the same description, and near copies that were skipped.
    unused_ : list of str
        The sources in ``knowledge_`` that were not used.
    skipped_ : dict from int to int
        For each feature that was skipped as a near copy, the selected feature that it
        duplicates.
    new_table_ : AttributeTable or None
        Descriptions of the unseen classes, or None if there are none.
    target_r2_ : float
        Share of the spread of class means that is predicted from descriptions when seen classes
        are left out one at a time. It is at most 1. If there are no descriptions of unseen
        classes, it is NaN.
    n_new_classes_ : int
        Number of clusters of unlabeled samples.
    unlabeled_labels_ : ndarray of shape (n_unlabeled,)
        Cluster of each unlabeled sample. Unlabeled samples in X come first, in their original
        order and without samples of weight 0. Samples in ``X_unlabeled`` follow. For Dask
        arrays, it is empty.
    preprocessing_ : dict
        How the data were prepared before the fit: the ``layer`` of AnnData, ``normalize`` of
        `semfs.rows.open_blocks` and the ``scale`` of features. The same steps are applied to
        files and AnnData objects that are later passed to `predict` and `transform`.
    bias_ : float
        The amount by which the scores of seen classes are lowered when seen and unseen classes
        compete. It is computed when it is first needed. Each third of the seen classes in turn
        is treated as unseen, and the bias with the largest harmonic mean of the accuracies on
        seen and unseen classes is used.
    calibration_sample_ : dict
        The selected features of at most 20 samples of each seen class, on which predictions are
        calibrated. To obtain them, files are read once more. The dict is empty after
        `fit_moments`, and for Dask data, iterables of blocks and more than 2 GiB of samples.
        Predictions are then calibrated on samples drawn from a normal distribution for each
        class, and ``unknown_rate`` is less exact.
    batches_ : ndarray of shape (B,)
        Batches whose offsets were removed. It is empty if there was at most one batch.
    batch_offsets_ : ndarray of shape (B, k)
        Offset of each batch in each selected feature.
    fill_values_ : ndarray of shape (k,)
        Values that replace missing values of the selected features in new samples. If the fit
        did not fill missing values, it is empty, and missing values in new samples raise an
        error.
    n_features_in_ : int
        Number of features d.
    feature_names_in_ : ndarray of shape (d,)
        Names of the features. It is defined only if X has feature names.
    attribute_names_in_ : ndarray of shape (m,)
        Names of the attributes.

    Notes
    -----
    SemFS needs only class counts, class means and the scatter matrix (see `Moments`), so
    `partial_fit` and `fit_moments` give the same result as `fit`. If X is in memory, "direct"
    never forms the d × d matrix, and sparse X stays sparse. With
    ``sklearn.set_config(array_api_dispatch=True)``, sums over PyTorch and CuPy arrays are
    computed on their device. The solver runs on the host, and results are copied back to the
    device.

    Values of X and of the attributes may be as large as 1e100 and as small as 1e-100. float32
    data above 1e15 or below 1e-15 are converted to float64.

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
            Samples of the seen classes. AnnData, memory-mapped arrays, files (given by their
            path) and iterables of (X, y) blocks are read in blocks (see
            `semfs.rows.open_blocks`). Sums over Dask arrays and frames are computed where the
            data are stored. Nonnumeric columns of a frame are ignored, with a warning.
        y : array-like of shape (n,)
            Class labels, which must all have the same hashable type, or the name of the column
            that holds them. Omit y if X is an iterable of (X, y) blocks. None, NaN, NA and -1
            mark unlabeled samples, but -1 is a class if ``attributes`` describes it.
        sample_weight : array-like of shape (n,), optional
            Sample weights. Labeled and unlabeled samples of weight 0 are ignored.
        X_unlabeled : array-like or sparse matrix of shape (n_unlabeled, d), optional
            Additional unlabeled samples, in any form that is accepted for X. If X and
            X_unlabeled have feature names and the samples fit into memory, features are matched
            by name. If features are missing from X_unlabeled, a warning lists them, and only
            the labeled samples determine whether they are selected. If the samples do not fit
            into memory, a random part of them is clustered, and all others are assigned to
            these clusters.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, such as its donor, plate or site, or the name of the column
            that holds the batches. Each batch can shift each feature by an offset, and SemFS
            removes these offsets. For labeled samples, the offsets are estimated by the
            additive model class + batch. For unlabeled samples, they are the means of the
            batches. X itself is not changed.
        batch_unlabeled : array-like of shape (n_unlabeled,) or str, optional
            Batch of each sample in ``X_unlabeled``. It is required if ``batch`` and
            ``X_unlabeled`` are given.

        Examples
        --------
        In this example, one feature has high values only in the samples of one donor:

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
        """Select features as `fit` does, but from sums over the samples of the seen classes.

        Parameters
        ----------
        moments : Moments
            Counts, means and scatter matrix of the seen classes.
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
        """Discard what `partial_fit` has collected."""
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
        """Add samples to those of earlier calls and select features on all samples.

        New classes can appear in any call. No features are selected until there are samples of
        two classes. `fit` discards the samples of earlier calls of `partial_fit`.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Samples, as in `fit`.
        y : array-like of shape (n,)
            Class labels, as in `fit`. Every sample needs a label.
        sample_weight : array-like of shape (n,), optional
            Sample weights.
        batch : array-like of shape (n,) or str, optional
            Batches of the samples, as in `fit`. Give batches in every call or in none.
        """
        collected: Moments | None = getattr(self, "moments_", None)
        with self._all_or_nothing():
            self._check_parameters()
            if self.missing_values != "error":
                # gaps are filled with class means, which later samples would change
                message = 'is "class-mean", which needs all samples at once. Use fit.'
                raise ParameterError("missing_values", message)
            # the first call decides on the number of features and their names
            first = collected is None
            fit_input = FitInput.from_user(self, X, y, sample_weight, reset=first, batch=batch)
            had_batches = getattr(self, "moments_have_batches_", False)
            if not first and fit_input.batched != had_batches:
                raise ValueError("partial_fit needs batch either in every call or in no call.")
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
            # Sums are of all calls. Classes and batches may be confounded (not separable) so
            # far; later samples can resolve this.
            # A source has the samples of one call only, which do not stand for the others.
            data = replace(data, moments=moments, source=None).corrected(refuse=False)
            if (data.moments.counts > 0).sum() > 1:
                self._fit_data(data, y)
        return self

    @with_callbacks
    def _fit_input(self, fit_input: FitInput, y: Any = None) -> Self:
        """Sum up the samples and fit to the sums.

        `fit` calls this, and `SemFSCV` for its last fit, with the input that it has understood
        itself. The decorator is needed for the latter: the outermost one ends the callbacks.
        """
        set_features(self, fit_input.n_features, fit_input.feature_names)
        data = fit_input.summed(self._sum_options(fit_input.n_features))
        return self._fit_data(data.corrected(), y)

    def _fit_data(self, data: TrainingData, y: Any = None) -> Self:
        """Build the problem, solve it, and set all fitted attributes."""
        names = getattr(self, "feature_names_in_", None)
        problem = Problem.from_data(self, data, names)
        warn_of_similar_labels(problem.moments.classes.tolist())
        # callbacks begin only now, because the problem knows the number of steps
        context = self._init_callback_context(max_subtasks=problem.n_steps)
        context.call_on_fit_task_begin(estimator=self, X=data.X, y=y)
        monitor = self._monitor(context, problem, data.X, y)
        fitted = Outcome(problem, problem.solve(monitor)).fitted()
        self.__dict__.pop("rules_", None)  # of an earlier fit
        self._set_fitted(fitted, data.X)
        warn_of_unmeasured(problem.moments, data.X, fitted.selected, names)
        self._remember(problem.moments)
        self._warn_if_too_many(problem.candidates.n_selectable)
        context.call_on_fit_task_end(
            estimator=self, X=data.X, y=y, reconstruction_attributes=fitted.all_attributes
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
                "unlabeled. Leave these samples out, or use fit(X, y)."
            )

    def _monitor(
        self,
        context: CallbackContext,
        problem: Problem,
        X: Matrix | None,
        y: Any,
    ) -> Monitor | None:
        """Return what the solver calls after each step, for callbacks and `verbose`.

        None if there are no callbacks and nothing is printed.
        """
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
            """Report a step. Return True if the solver should stop."""
            if self.verbose:
                added = "" if feature is None else f"  + {self._name_of(feature)}"
                print(f"[SemFS] {step:>{width}}/{n_steps}  J = {J:.6g}{added}")
            if not has_callbacks:
                return False
            # One task per step. The solver owns the loop, so a task is announced when it is
            # done: its duration says nothing.
            name = "feature" if self.solver == "direct" else "iteration"
            task = context.subcontext(task_name=name)

            def fitted_attributes() -> dict[str, Any]:
                """Return the fitted attributes after this step, if a callback asks."""
                return Outcome(problem, solution()).fitted().all_attributes()

            task.call_on_fit_task_begin(estimator=self, X=X, y=y)
            return task.call_on_fit_task_end(
                estimator=self,
                X=X,
                y=y,
                reconstruction_attributes=fitted_attributes,
            )

        return monitor

    def _check_parameters(self) -> None:
        """Raise if a parameter is invalid, or if parameters contradict each other."""
        super()._check_parameters()
        check_rules(self)
        name = "target_attributes"
        if isinstance(self.target_attributes, str):
            check_option(name, self.target_attributes, ("table",))
        elif self.target_attributes is not None:
            if self.attributes is None:
                raise ParameterError(name, "needs attributes with the same columns.")
            if self.solver != "direct":
                raise ParameterError(name, 'needs solver="direct".')
        # Algorithm 1 solves for all features at once: without a penalty the linear system is
        # singular if features are dependent. The direct solver never selects such a feature.
        if self.solver == "alternating" and self.gamma == 0:
            raise ParameterError("gamma", 'must be positive with solver="alternating".')
