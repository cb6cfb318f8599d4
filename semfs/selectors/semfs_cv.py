"""SemFSCV: choose parameters and the number of features by clustering held-out seen classes."""

from __future__ import annotations

import numbers
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from semfs._typing import ArrayLike, DataLike, Float64, Indices, LabelsLike, Mask, Matrix
from semfs.attributes import AttributeTable, align_attributes
from semfs.constraints import FeatureCount, WholeNumber
from semfs.evaluation import ClassKFold, cluster_scores
from semfs.labels import object_array
from semfs.method.moments import Moments
from semfs.selectors.callbacks import CallbackContext, CallbackSupportMixin, with_callbacks
from semfs.selectors.clusters import LARGEST_SAMPLE
from semfs.selectors.folds import ClassFolds
from semfs.selectors.inputs.fit_input import FitInput
from semfs.selectors.linear import LinearSelector
from semfs.selectors.ranking import FIT_STATE
from semfs.selectors.rules.feature_values import unit_costs
from semfs.selectors.rules.parameters import RULE_PARAMETERS
from semfs.selectors.semfs import SemFS
from semfs.selectors.training_checks import check_two_classes
from semfs.validation import ParameterError, check_integer

#: Fewest classes that make folds; folds of fewer say more about chance than about settings.
FEWEST_CLASSES_TO_SEARCH = 6
#: Features that enter the search within folds, at least.
FOLD_CANDIDATES = 384
#: Features that enter the search within folds, for each one that is selected.
FOLD_CANDIDATES_PER_FEATURE = 5
#: Numbers of features that "auto" compares.
AUTO_STEPS = (5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500)
#: Largest number of features for "auto", unless `max_features` says otherwise.
AUTO_MOST = 100
#: Share of the fall of J that "auto" asks for where there are too few classes for folds.
AUTO_SHARE = 0.9
#: Parameters of SemFS that are the same in all folds, and cannot be chosen there.
NOT_IN_FOLDS = {
    "n_features_to_select",
    "attributes",
    "include",
    "exclude",
    "missing_values",
    "candidates",
    *RULE_PARAMETERS,
    "verbose",
    "target_attributes",
    "n_new_classes",
}

Split = tuple[Mask, Mask]  # masks (C,) of training and test classes
Fold = tuple[Mask, list[Indices]]  # test classes, the features each setting selected
Setting = dict[str, Any]  # values of some parameters of SemFS


@dataclass(eq=False, repr=False, kw_only=True)
class SemFSCV(CallbackSupportMixin, LinearSelector):
    """SemFS with parameters that are chosen by cross-validation on held-out seen classes.

    In each fold, some of the seen classes are held out as if they were unseen. SemFS selects
    features on the other classes, and K-means clusters the held-out samples on these features.
    The setting that best separates the held-out classes is refitted on all seen classes.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=50
        Number or share of features to select, as in `SemFS`. "auto" uses the smallest number of
        features, up to ``max_features``, whose score is within one standard error of the best
        score. The standard error is computed from the paired differences over the folds. See
        ``curve_``.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        As in `SemFS`.
    alpha : float, default=1.0
        As in `SemFS`, unless it is in the grid.
    gamma : float, default=2.0
        As in `SemFS`, unless it is in the grid.
    penalty_scale : {"weighted", "gram", "none"}, default="weighted"
        As in `SemFS`, unless it is in the grid.
    fit_intercept : bool, default=True
        As in `SemFS`, unless it is in the grid.
    class_weight : "balanced", mapping or None, default="balanced"
        As in `SemFS`, unless it is in the grid.
    label_weight : float, default=1.0
        As in `SemFS`, unless it is in the grid.
    max_correlation : float or None, default=0.95
        As in `SemFS`, unless it is in the grid.
    target_attributes : "table", like `attributes`, or None, default="table"
        As in `SemFS`, for the final fit only.
    n_new_classes : int, "auto" or "table", default="auto"
        As in `SemFS`, for the final fit only.
    include : sequence of int or str, optional
        As in `SemFS`.
    exclude : sequence of int or str, optional
        As in `SemFS`.
    missing_values : {"error", "class-mean"}, default="error"
        As in `SemFS`.
    candidates : sequence of int or str, optional
        As in `SemFS`.
    min_per_class : int, default=0
        As in `SemFS`, for the final fit only.
    groups : array-like of shape (d,), mapping or Series, optional
        As in `SemFS`, for the final fit only.
    costs, budget : optional
        As in `SemFS`, for the final fit only. If ``n_features_to_select`` is None, the number
        of features in each fold is the budget divided by the mean cost.
    min_level, max_level : float, optional
        As in `SemFS`.
    capacity : float or mapping, optional
        As in `SemFS`, for the final fit only.
    verbose : int, default=0
        If positive, print one line per setting.
    param_grid : mapping or list of mappings, optional
        Parameters of `SemFS` and the values to try, as in scikit-learn's ``GridSearchCV``. The
        default grid has up to 24 settings. They combine gamma of 0.2, 2 or 20, an intercept or
        none, attributes alone or with labels of the same weight, and classes weighted equally
        or by their number of samples. A setting of the default grid is used only if its score
        exceeds the score of the parameters passed to SemFSCV by more than one standard error
        over the folds. Otherwise, the parameters passed to SemFSCV are kept.
    cv : int or splitter, default=5
        Number of folds of the classes, a splitter of classes such as
        `semfs.evaluation.ClassShuffleSplit`, or an iterable of pairs of training and test
        indices. The number of folds is reduced if necessary, so that each fold has at least two
        classes.
    n_repeats : int, default=5
        Number of K-means runs per fold, setting and number of features.
    max_features : int, optional
        Largest number of features that "auto" considers. The default is 100.
    random_state : int, RandomState or None, default=0
        Seed of the folds and of the K-means starting points.

    Attributes
    ----------
    best_params_ : dict
        The parameters that were chosen.
    best_score_ : float
        Mean score of ``best_params_`` on held-out classes. It is NaN if there are no folds.
    best_estimator_ : SemFS
        The selector that was refitted on all seen classes. Its fitted attributes are also
        available as attributes of SemFSCV.
    cv_results_ : dict of arrays
        Results as in ``GridSearchCV``, with the keys params, param_*, split*_test_score,
        mean_test_score, std_test_score and rank_test_score. It is empty if there are no folds.
    curve_ : dict of arrays
        For each number of features ("n_features"), the mean score of the chosen setting
        ("mean") and the standard error of its difference from the best score ("se"). If there
        are no folds, "mean" is the share of the total decrease of J, and "se" is 0.
    n_features_ : int
        Number of selected features.
    n_splits_ : int
        Number of folds. If there are fewer than six seen classes, it is 0, and the parameters
        passed to SemFSCV are used.

    Notes
    -----
    A score is the mean of the accuracy (ACC) and NMI of K-means on the held-out classes. In
    each fold, the search considers only the features that decrease J most when they are added
    first. It considers 384 of these features, or 5 per feature to select if that is more.

    Examples
    --------
    >>> from semfs.datasets import load_sample
    >>> X, y, _, _ = (data := load_sample("lining")).split()
    >>> selector = SemFSCV(10, data.attributes, param_grid={"gamma": [0.1, 1.0]}).fit(X, y)
    >>> sorted(selector.best_params_), selector.transform(X).shape[1]
    (['gamma'], 10)
    """

    param_grid: Any = None
    cv: Any = 5
    n_repeats: int = 5
    max_features: int | None = None
    random_state: Any = 0

    _constraints = {
        "n_features_to_select": FeatureCount(auto=True, none=True),
        "n_repeats": WholeNumber(1),
        "max_features": WholeNumber(1),
    }

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
        """Choose a setting on held-out classes, then select features on all seen classes.

        If the data do not fit into memory, the setting is chosen on up to 20,000 random
        samples.

        Parameters
        ----------
        X : array-like, frame or sparse matrix of shape (n, d)
            Samples, as in `SemFS.fit`.
        y : array-like of shape (n,)
            Class labels, as in `SemFS.fit`.
        sample_weight : array-like of shape (n,), optional
            Sample weights, as in `SemFS.fit`.
        X_unlabeled : array-like or sparse matrix of shape (n_unlabeled, d), optional
            Unlabeled samples, as in `SemFS.fit`. They are used only in the final fit.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, as in `SemFS.fit`. In each fold, offsets are estimated from
            the training classes only, and the held-out samples are clustered without a
            correction.
        batch_unlabeled : array-like of shape (n_unlabeled,) or str, optional
            Batch of each sample of `X_unlabeled`.
        """
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
            moments = fit_input.sample(LARGEST_SAMPLE).without_empty_classes()
            check_two_classes(moments)
            table = align_attributes(self.attributes, moments.classes)
            settings = self._settings(moments.counts, table)
            # values that SemFS refuses are refused now, not after hours of folds
            for params in ({}, *settings):
                self._semfs(1, params)._check_parameters()
            splits = self._splits(moments)
            context = self._init_callback_context(max_subtasks=len(splits) + 1)
            context.call_on_fit_task_begin(estimator=self, X=X, y=y)
            params, k = self._search(moments, table, settings, splits, context)
            final = self._semfs(k, params)
            if self.n_features_to_select is None:  # the budget decides
                final.n_features_to_select = None
            task = context.subcontext(task_name="refit")
            with task.propagate_callback_context(final):
                task.call_on_fit_task_begin(estimator=self, X=X, y=y)
                final._fit_input(fit_input, y)
                task.call_on_fit_task_end(estimator=self, X=X, y=y)
            if not splits:
                self._keep_most_of_the_fall(final)
            self._adopt(final, params)
            context.call_on_fit_task_end(
                estimator=self, X=X, y=y, reconstruction_attributes=self._fit_state
            )
        return self

    # ---- settings --------------------------------------------------------------------

    def _semfs(self, k: int, params: Mapping[str, Any]) -> SemFS:
        """Return a SemFS with the parameters of this object, replaced by those of a setting."""
        shared = SemFS().get_params().keys() & self.get_params(deep=False).keys()
        values = {name: getattr(self, name) for name in shared}
        values["n_features_to_select"] = k
        # lines of every fit in every fold would bury those of the settings
        values["verbose"] = 0
        values.update(params)
        return SemFS(**values)

    def _current_params(self, names: Iterable[str]) -> Setting:
        """Return the values of these parameters in this object, or the defaults of SemFS."""
        current = self._semfs(1, {}).get_params()
        return {name: current[name] for name in names}

    def _settings(self, counts: Float64, table: AttributeTable) -> list[Setting]:
        """Return the settings to compare, from the given grid or the default one."""
        if self.param_grid is None:
            return self._default_settings(counts)
        settings = list(ParameterGrid(self.param_grid))
        known = SemFS().get_params().keys() - NOT_IN_FOLDS
        unknown = {name for params in settings for name in params} - known
        if unknown:
            raise ParameterError(
                "param_grid",
                f"has {min(unknown)!r}, which SemFSCV cannot set. Known: "
                f'{", ".join(sorted(known))}; and n_features_to_select="auto".',
            )
        if not settings:
            message = "is empty. Give the values to choose from, or use None."
            raise ParameterError("param_grid", message)
        return settings

    def _default_settings(self, counts: Float64) -> list[Setting]:
        """Return the default grid without settings that are equivalent for these classes."""
        grid: dict[str, Any] = {
            "gamma": (0.2, 2.0, 20.0),
            "fit_intercept": (True, False),
        }
        # without attributes labels are the only targets, whatever they weigh
        if self.attributes is not None:
            grid["label_weight"] = (0.0, 1.0)
        # classes of one size weigh the same in both ways
        if np.ptp(counts) > 0:
            grid["class_weight"] = (None, "balanced")
        return list(ParameterGrid(grid))

    def _numbers_of_features(self, d: int) -> list[int]:
        """Return the numbers of features to score, ascending, up to the largest allowed."""
        if self.n_features_to_select != "auto":
            k = min(self._n_wanted(d), d)
            if self.n_features_to_select is None:
                k = self._n_bought(d)
            # settings are compared by their mean over sizes: half the size steadies it
            return sorted({max(1, k // 2), k})
        most = AUTO_MOST if self.max_features is None else self.max_features
        largest = min(most, d)
        return sorted({*(k for k in AUTO_STEPS if k < largest), largest})

    def _n_bought(self, d: int) -> int:
        """Return the number of features that the budget buys at their mean cost."""
        names = getattr(self, "feature_names_in_", None)
        prices = unit_costs(self.groups, self.costs, d, names)
        # Features that cannot be selected may have no price.
        n_priced = d * (1.0 - np.isnan(prices).mean())
        mean = float(np.nansum(prices)) / max(n_priced, 1.0)
        # features that cost nothing are all bought
        n_bought = d if mean <= 0.0 else int(float(self.budget or 0.0) / mean)
        return max(1, min(n_bought, AUTO_MOST, d))

    # ---- folds -----------------------------------------------------------------------

    def _splits(self, moments: Moments) -> list[Split]:
        """Return the folds, or none if there are too few classes."""
        C = len(moments.classes)
        if C < FEWEST_CLASSES_TO_SEARCH:
            return []
        codes = moments.rows.codes
        splits = self.cv
        if isinstance(splits, numbers.Integral):
            # one held-out class alone could not be separated from anything
            n_folds = min(int(splits), C // 2)
            splits = ClassKFold(n_folds, shuffle=True, random_state=self.random_state)
        if hasattr(splits, "split"):
            # splitters over classes look at y only, so codes can stand for X
            splits = splits.split(codes, codes)
        found = []
        for rows, rows_out in splits:
            train = np.isin(np.arange(C), codes[rows])
            test = np.isin(np.arange(C), codes[rows_out])
            if (train & test).any() or not (train.any() and test.any()):
                raise ParameterError(
                    "cv",
                    "must hold out whole classes, but not all of them. Use ClassKFold or "
                    "ClassShuffleSplit of semfs.evaluation.",
                )
            found.append((train, test))
        return found

    def _search(
        self,
        moments: Moments,
        table: AttributeTable,
        settings: list[Setting],
        splits: list[Split],
        context: CallbackContext,
    ) -> tuple[Setting, int]:
        """Return the setting and the number of features with the best score on the folds."""
        ks = self._numbers_of_features(moments.n_features)
        k = ks[-1]
        if not splits:
            # nothing can be compared: several settings give way to the current one
            if len(settings) == 1:
                return settings[0], k
            return self._current_params(settings[0]), k
        # many small matrices: threads would spend their time waiting for each other
        with threadpool_limits(1, user_api="blas"):
            selectors = [self._semfs(k, params) for params in settings]
            trains = [train for train, _ in splits]
            names = getattr(self, "feature_names_in_", None)
            n_candidates = max(FOLD_CANDIDATES, FOLD_CANDIDATES_PER_FEATURE * k)
            folds = ClassFolds(moments, table, selectors, trains, names, n_candidates)
            selected = [(test, folds.paths(train)) for train, test in splits]
            scores = self._scores(moments, settings, selected, ks, context)
        return self._choose(scores, settings, ks)

    def _scores(
        self,
        moments: Moments,
        settings: list[Setting],
        folds: list[Fold],
        ks: list[int],
        context: CallbackContext,
    ) -> Float64:
        """Return the scores of all settings on all folds, for each number of features.

        The shape is (settings, folds, numbers). A callback may stop the search after a fold.
        """
        # one seed for all: settings differ by their features, not by K-means starts
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        scores = np.empty((len(settings), len(folds), len(ks)))
        all_paths = [path for _, paths in folds for path in paths]
        features = np.unique(np.concatenate(all_paths))
        codes = moments.rows.codes
        weights = moments.rows.weights
        # samples of weight 0 must not matter
        is_used = np.ones(len(codes), dtype=bool) if weights is None else weights > 0
        # all columns that clustering will ask for, in one pass over X
        columns = _columns(moments.rows.X, features)
        for f, (test, paths) in enumerate(folds):
            task = context.subcontext(task_name="fold")
            task.call_on_fit_task_begin(estimator=self)
            rows = np.flatnonzero(test[codes] & is_used)
            X = columns[rows]
            known: dict[bytes, float] = {}  # equal questions are asked once
            for i, j in np.ndindex(len(settings), len(ks)):
                # sorted: the same features in another order are the same question
                places = np.searchsorted(features, np.sort(paths[i][: ks[j]]))
                key = places.tobytes()
                if key not in known:
                    Z = np.take(X, places, axis=1)
                    found = cluster_scores(Z, codes[rows], self.n_repeats, seed)
                    known[key] = float(np.mean(found))
                scores[i, f, j] = known[key]
            if task.call_on_fit_task_end(estimator=self):
                return scores[:, : f + 1]
        return scores

    def _choose(
        self, scores: Float64, settings: list[Setting], ks: list[int]
    ) -> tuple[Setting, int]:
        """Return the best setting and the number of features, and record the results."""
        if self.verbose:
            for score, params in zip(scores, settings):
                print(f"[SemFSCV] {score.mean():.4f}  {params}")
        by_fold = scores.mean(axis=2)
        best = self._best(by_fold, settings)
        n_folds = by_fold.shape[1]
        self.cv_results_ = _results(settings, by_fold)
        self.best_score_ = float(by_fold[best].mean())
        mean = scores[best].mean(axis=0)
        # some folds are harder than others, whatever the number: compare within folds
        lag = scores[best][:, [int(np.argmax(mean))]] - scores[best]
        # a callback may have left one fold, of which ddof=1 would make nan
        error = lag.std(axis=0, ddof=int(n_folds > 1)) / np.sqrt(n_folds)
        self.curve_ = {"n_features": np.array(ks), "mean": mean, "se": error}
        self.n_splits_ = n_folds
        if self.n_features_to_select != "auto":
            return settings[best], ks[-1]
        # numbers ascend, and argmax finds the first that is close enough
        close = lag.mean(axis=0) <= error
        return settings[best], ks[int(np.argmax(close))]

    def _best(self, by_fold: Float64, settings: list[Setting]) -> int:
        """Return the setting with the highest mean score, but see below for the default grid.

        Because folds are few and noisy, a setting of the default grid replaces the parameters
        of this object only if its score is higher by more than one standard error of the paired
        differences.
        """
        best = int(np.argmax(by_fold.mean(axis=1)))
        if self.param_grid is not None:
            return best
        current = self._current_params(settings[0])
        same = [i for i, params in enumerate(settings) if params == current]
        # parameters that are not in the grid have no score to be compared with
        if not same:
            return best
        lead = by_fold[best] - by_fold[same[0]]
        error = lead.std(ddof=int(len(lead) > 1)) / np.sqrt(len(lead))
        return best if lead.mean() > error else same[0]

    # ---- the final fit ---------------------------------------------------------------

    def _keep_most_of_the_fall(self, final: SemFS) -> None:
        """Without folds, record the curve of gains; "auto" keeps most of the total gain."""
        ks = self._numbers_of_features(final.n_features_in_)
        fitted = final._get_fitted()
        gains = np.maximum(fitted.scores[fitted.order[: ks[-1]]], 0.0)
        # features without any gain make the share 0, not 0/0
        total = max(float(gains.sum()), np.finfo(float).tiny)
        share = np.cumsum(gains) / total
        mean = share[np.minimum(np.array(ks), len(share)) - 1]
        self.curve_ = {
            "n_features": np.array(ks),
            "mean": mean,
            "se": np.zeros(len(ks)),
        }
        self.cv_results_ = {}
        self.best_score_ = float("nan")
        self.n_splits_ = 0
        if self.n_features_to_select == "auto":
            k = ks[int(np.argmax(mean >= AUTO_SHARE))]
            final.n_features_to_select = k
            final._set_fitted(fitted.top(k), final.coef_)

    def _adopt(self, final: SemFS, params: Setting) -> None:
        """Copy the fitted attributes of the refitted selector to this object."""
        # names of an earlier fit must not outlive a fit to data without names
        self.__dict__.pop("feature_names_in_", None)
        self.__dict__.pop("rules_", None)  # they are found anew when they are read
        for name, value in vars(final).items():
            if name.endswith("_") or name in FIT_STATE:
                setattr(self, name, value)
        self.best_estimator_ = final
        self.best_params_ = params
        self.n_features_ = int(final.get_support().sum())

    def _check_parameters(self) -> None:
        """Raise if parameters contradict each other, or `cv` makes no folds."""
        super()._check_parameters()
        if self.n_features_to_select is None and self.budget is None:
            message = "may be None only with a budget. Give a number of features, or a budget."
            raise ParameterError("n_features_to_select", message)
        for name in ("groups", "budget"):
            if self.n_features_to_select == "auto" and getattr(self, name) is not None:
                message = f'"auto" cannot be combined with {name}. Give a number.'
                raise ParameterError("n_features_to_select", f": {message}")
        # text is iterable, too, but never a list of splits
        is_splits = hasattr(self.cv, "split") or isinstance(self.cv, Iterable)
        if isinstance(self.cv, str) or not is_splits:
            check_integer("cv", self.cv, 2)


def _columns(X: Matrix, features: Indices) -> Float64:
    """Return some columns of X as a dense matrix."""
    columns: Any = X[:, features]
    return columns.toarray() if sp.issparse(X) else columns


def _results(settings: list[Setting], by_fold: Float64) -> dict[str, Any]:
    """Return `cv_results_` in the layout of GridSearchCV, from scores (settings, folds)."""
    out: dict[str, Any] = {"params": settings}
    for name in sorted({name for params in settings for name in params}):
        out[f"param_{name}"] = object_array([params.get(name) for params in settings])
    for f, scores in enumerate(by_fold.T):
        out[f"split{f}_test_score"] = scores
    mean = by_fold.mean(axis=1)
    out["mean_test_score"] = mean
    out["std_test_score"] = by_fold.std(axis=1)
    # equal scores share the better rank, as in GridSearchCV
    out["rank_test_score"] = 1 + np.array([(mean > value).sum() for value in mean])
    return out
