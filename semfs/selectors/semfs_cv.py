"""SemFSCV: parameters and number of features chosen by clustering held-out seen classes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import scipy.sparse as sp
from sklearn.model_selection import ParameterGrid
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from semfs.attributes import AttributeTable, align_attributes
from semfs.evaluation import ClassKFold, cluster_scores
from semfs.labels import object_array
from semfs.method.moments import Moments
from semfs.rows import Plain
from semfs.selectors import training
from semfs.selectors.base import LinearSelector
from semfs.selectors.clusters import LARGEST_SAMPLE
from semfs.selectors.folds import ClassFolds
from semfs.selectors.semfs import SemFS
from semfs.selectors.training import Units
from semfs.validation import check_integer

FEWEST_CLASSES = 6  # folds of fewer say more about chance than about settings
N_CANDIDATES = 384  # features that enter the search within folds
AUTO_STEPS = (5, 10, 15, 20, 30, 40, 50, 75, 100, 150, 200, 300, 500)
AUTO_SHARE = 0.9  # of the fall of J, for "auto" with few classes
# Parameters of SemFS that are the same in all folds, and cannot be chosen there.
NOT_IN_FOLDS = {"n_features_to_select", "attributes", "include", "exclude", "verbose"}
NOT_IN_FOLDS |= {"target_attributes", "n_new_classes"}

Split = tuple[np.ndarray, np.ndarray]  # masks (C,) of training and test classes
Fold = tuple[np.ndarray, list[np.ndarray]]  # test classes, the features each setting chose


@dataclass(eq=False, repr=False, kw_only=True)
class SemFSCV(LinearSelector):
    """SemFS with parameters chosen on held-out seen classes.

    Whole classes are held out in turn. Features are chosen on the other classes, and the
    held-out rows are clustered by them, as unseen classes will be. The setting that separates
    held-out classes best is refitted on all seen classes.

    Parameters
    ----------
    n_features_to_select : int, float or "auto", default=50
        "auto" takes the fewest features whose score is within one standard error, paired over
        the folds, of the best, up to `max_features`; see ``curve_``.
    attributes : DataFrame, mapping, array of shape (L, m) or None, default=None
        As in `SemFS`.
    param_grid : mapping or list of mappings, optional
        Parameters of `SemFS` and their values, as for scikit-learn's ``GridSearchCV``. By
        default up to 24 settings: gamma 1, 10, 100; with and without intercept; attributes
        alone and with labels; classes weighted by their rows or equally. A setting of the
        default grid must be ahead of the parameters given here by more than one standard
        error over the folds, otherwise these are kept.
    cv : int or splitter, default=5
        Number of class folds (fewer if there are not two classes for each), or a splitter
        over classes such as `semfs.evaluation.ClassShuffleSplit`.
    n_repeats : int, default=5
        K-means runs per fold, setting and number of features.
    max_features : int, optional
        Largest number of features for "auto"; by default 100.
    alpha, gamma, penalty_scale, fit_intercept, class_weight, label_weight, include, exclude
        As in `SemFS`; values of what is not in the grid.
    target_attributes, n_new_classes
        As in `SemFS`, for the final fit only.
    random_state : int, RandomState or None, default=0
        Of the folds and of the starts of K-means.
    verbose : int, default=0
        Print a line per setting.

    Attributes
    ----------
    best_params_, best_score_ : dict and float
        The setting chosen, and its mean score on held-out classes; nan without folds.
    best_estimator_ : SemFS
        Refitted on all seen classes. Its fitted attributes are also those of this object.
    cv_results_ : dict of arrays
        As in ``GridSearchCV``: params, param_*, split*_test_score, mean_test_score,
        std_test_score, rank_test_score. Empty without folds.
    curve_ : dict of arrays
        "n_features", "mean", "se": score of the chosen setting against the number of
        features, and the standard error of its lag behind the best. Without folds "mean" is
        the share of the fall of J and "se" is 0.
    n_features_, n_splits_ : int
        Number of features kept, and of folds; 0 with fewer than six seen classes, which keep
        the parameters given here.

    Notes
    -----
    A score is the mean of ACC and NMI of K-means on the held-out classes. Within folds only
    384 features of largest first gain, or five times as many as are chosen, are searched.

    Examples
    --------
    >>> from semfs.datasets import load_sample
    >>> X, y, _, _ = (data := load_sample("blood")).split()
    >>> selector = SemFSCV(10, data.attributes, param_grid={"gamma": [0.1, 1.0]}).fit(X, y)
    >>> sorted(selector.best_params_), selector.transform(X).shape[1]
    (['gamma'], 10)
    """

    param_grid: Any = None
    cv: Any = 5
    n_repeats: int = 5
    max_features: int | None = None
    random_state: Any = 0

    _whole = {"n_repeats": 1, "max_features": 1}

    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, X_unlabeled: Any = None
    ) -> Self:
        """Choose a setting on held-out classes, then features on all seen classes.

        All parameters are as in `SemFS.fit`. Beyond memory, settings are chosen on up to 20,000
        random rows. Rows without a label take part in the final fit only.
        """
        with self._all_or_nothing():
            self._check_parameters()
            self._check_n_features_to_select()
            rows = training.rows_beyond_memory(X, y, sample_weight, self.attributes)
            if rows is not None and rows.fits_in_memory:
                X, y, sample_weight = training.loaded(rows)
            few = X, y, sample_weight
            if rows is not None and not rows.fits_in_memory:
                X, y, sample_weight = rows, None, None
                X_few, y_few = rows.labeled().sample(LARGEST_SAMPLE, labeled=True)
                few = Plain(X_few, y_few, rows.feature_names), y_few, None
            moments = self._training_data(*few).moments.without_empty_classes()
            training.check_two_classes(moments)
            table = align_attributes(self.attributes, moments.classes)
            units = Units.of(moments, table)
            settings = self._settings(moments.counts, table)
            for params in ({}, *settings):
                self._semfs(1, params)._check_parameters()
            moments = units.moments(moments)
            ks = self._numbers_of_features(moments.n_features)
            splits = self._splits(moments)
            params, k = settings[0] if len(settings) == 1 else self._own(settings[0]), ks[-1]
            if splits:
                # many small matrices: threads would spend their time waiting for each other
                with threadpool_limits(1, user_api="blas"):
                    semfs = [self._semfs(k, params) for params in settings]
                    semfs = [one.set_params(**units.params(one)) for one in semfs]
                    trains, most = [train for train, _ in splits], max(N_CANDIDATES, 5 * k)
                    names = getattr(self, "feature_names_in_", None)
                    folds = ClassFolds(moments, units.table(table), semfs, trains, names, most)
                    chosen = [(test, folds.paths(train)) for train, test in splits]
                    params, k = self._choose(moments, settings, chosen, ks)
            final = self._semfs(k, params).fit(X, y, sample_weight, X_unlabeled)
            if not splits:
                self._set_curve(final, ks)
            self._adopt(final, params)
        return self

    def _semfs(self, k: int, params: Mapping[str, Any]) -> SemFS:
        """A SemFS with our parameters, those of a setting on top."""
        shared = SemFS().get_params().keys() & self.get_params(deep=False).keys()
        own = {name: getattr(self, name) for name in shared}
        own |= {"n_features_to_select": k, "verbose": 0}
        return SemFS(**(own | dict(params)))

    def _settings(self, counts: np.ndarray, table: AttributeTable) -> list[dict[str, Any]]:
        if self.param_grid is not None:
            found = list(ParameterGrid(self.param_grid))
            known = SemFS().get_params().keys() - NOT_IN_FOLDS
            for name in {name for params in found for name in params} - known:
                raise ValueError(
                    f"param_grid has {name!r}, which is no parameter to choose. Known: "
                    f'{", ".join(sorted(known))}; and n_features_to_select="auto".'
                )
            if not found:
                raise ValueError("param_grid is empty. Give values to choose from, or None.")
            return found
        grid: dict[str, Any] = {"gamma": (1.0, 10.0, 100.0), "fit_intercept": (True, False)}
        if self.attributes is not None:
            spread = float(table.values.var(axis=0).sum())
            # as much weight on labels as on attributes, three times over
            grid["label_weight"] = (0.0, 3.0 * spread / (1.0 - 1.0 / len(counts)))
        if np.ptp(counts) > 0:
            grid["class_weight"] = (None, "balanced")
        return list(ParameterGrid(grid))

    def _numbers_of_features(self, d: int) -> list[int]:
        """The numbers of features to score, ascending; the last is the largest allowed."""
        if self.n_features_to_select != "auto":
            k = min(self._n_wanted(d), d)
            return sorted({max(1, k // 2), k})
        largest = min(100 if self.max_features is None else self.max_features, d)
        return sorted({*(k for k in AUTO_STEPS if k < largest), largest})

    def _splits(self, moments: Moments) -> list[Split]:
        """The folds; none if there are too few classes."""
        if (C := len(moments.classes)) < FEWEST_CLASSES:
            return []
        splitter, codes, found = self.cv, moments.rows.codes, []
        if not hasattr(splitter, "split"):
            check_integer("cv", self.cv, 2)
            folds = min(int(self.cv), C // 2)
            splitter = ClassKFold(folds, shuffle=True, random_state=self.random_state)
        for rows, rows_out in splitter.split(codes, codes):
            train, test = (np.isin(np.arange(C), codes[some]) for some in (rows, rows_out))
            if (train & test).any() or not (train.any() and test.any()):
                raise ValueError(
                    "cv must hold out whole classes, some of them. Use ClassKFold or "
                    "ClassShuffleSplit of semfs.evaluation."
                )
            found.append((train, test))
        return found

    def _choose(
        self, moments: Moments, settings: list[dict[str, Any]], folds: list[Fold], ks: list[int]
    ) -> tuple[dict[str, Any], int]:
        """Score all settings on all folds; return the best one and the number of features."""
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        scores = np.empty((len(settings), len(folds), len(ks)))
        features = np.unique(np.concatenate([path for _, paths in folds for path in paths]))
        X, codes = moments.rows.X, moments.rows.codes
        # all columns that clustering will ask for, in one pass over X
        columns = X[:, features].toarray() if sp.issparse(X) else np.take(X, features, axis=1)
        for f, (test, paths) in enumerate(folds):
            rows = np.flatnonzero(test[codes])
            X, known = columns[rows], dict[bytes, float]()  # equal questions are asked once
            for i, k in np.ndindex(len(settings), len(ks)):
                chosen = np.searchsorted(features, np.sort(paths[i][: ks[k]]))
                if chosen.tobytes() not in known:
                    some = np.take(X, chosen, axis=1)
                    found = cluster_scores(some, codes[rows], self.n_repeats, seed)
                    known[chosen.tobytes()] = float(np.mean(found))
                scores[i, f, k] = known[chosen.tobytes()]
        for score, params in zip(scores, settings) if self.verbose else ():
            print(f"[SemFSCV] {score.mean():.4f}  {params}")
        by_fold = scores.mean(axis=2)
        best = self._best(by_fold, settings)
        self.cv_results_ = _results(settings, by_fold)
        self.best_score_ = float(by_fold[best].mean())
        mean = scores[best].mean(axis=0)
        # some folds are harder than others, whatever the number: compare within folds
        lag = scores[best][:, [int(np.argmax(mean))]] - scores[best]
        error = lag.std(axis=0, ddof=int(len(folds) > 1)) / np.sqrt(len(folds))
        self.curve_ = {"n_features": np.array(ks), "mean": mean, "se": error}
        self.n_splits_ = len(folds)
        if self.n_features_to_select != "auto":
            return settings[best], ks[-1]
        return settings[best], ks[int(np.argmax(lag.mean(axis=0) <= error))]

    def _best(self, by_fold: np.ndarray, settings: list[dict[str, Any]]) -> int:
        """The setting of the highest mean score; of the default grid only if it is clear."""
        # Folds are few and noisy: it replaces our own parameters only if it is ahead of them by
        # more than one standard error, paired over folds.
        best = int(np.argmax(by_fold.mean(axis=1)))
        own = [i for i, params in enumerate(settings) if params == self._own(params)]
        if self.param_grid is not None or not own:
            return best
        lead = by_fold[best] - by_fold[own[0]]
        clear = lead.mean() > lead.std(ddof=int(len(lead) > 1)) / np.sqrt(len(lead))
        return best if clear else own[0]

    def _own(self, names: Iterable[str]) -> dict[str, Any]:  # our or SemFS's values of these
        own = self._semfs(1, {}).get_params()
        return {name: own[name] for name in names}

    def _set_curve(self, fitted: SemFS, ks: list[int]) -> None:
        """Record the curve of gains; with "auto" keep what brings most of the fall of J."""
        gains = np.maximum(fitted.scores_[fitted.order_[: ks[-1]]], 0.0)
        share = np.cumsum(gains) / max(float(gains.sum()), np.finfo(float).tiny)
        mean = share[np.minimum(np.array(ks), len(share)) - 1]
        self.curve_ = {"n_features": np.array(ks), "mean": mean, "se": np.zeros(len(ks))}
        self.cv_results_, self.best_score_, self.n_splits_ = {}, float("nan"), 0
        if self.n_features_to_select == "auto":
            fitted.n_features_to_select = ks[int(np.argmax(mean >= AUTO_SHARE))]
            before = np.flatnonzero(fitted.support_)
            fitted.support_ = fitted.ranking_ <= fitted.n_features_to_select
            kept = fitted.support_[before]
            fitted.class_means_ = fitted.class_means_[:, kept]
            fitted.within_ = fitted.within_[np.ix_(kept, kept)]

    def _adopt(self, final: SemFS, params: dict[str, Any]) -> None:
        """Behave as the refitted selector from here on."""
        self.__dict__.pop("feature_names_in_", None)
        for name, value in vars(final).items():
            if name.endswith("_") or name == "_evidence":
                setattr(self, name, value)
        self.best_estimator_, self.best_params_ = final, params
        self.n_features_ = int(final.get_support().sum())

    def _check_n_features_to_select(self) -> None:
        k = self.n_features_to_select
        if isinstance(k, str) and k != "auto":
            raise ValueError(f'n_features_to_select must be a number or "auto", got {k!r}.')
        if k != "auto":
            super()._check_n_features_to_select()


def _results(settings: list[dict[str, Any]], by_fold: np.ndarray) -> dict[str, Any]:
    """`cv_results_` as GridSearchCV has it."""
    out: dict[str, Any] = {"params": settings}
    for name in sorted({name for params in settings for name in params}):
        out[f"param_{name}"] = object_array([params.get(name) for params in settings])
    out |= {f"split{f}_test_score": scores for f, scores in enumerate(by_fold.T)}
    mean = by_fold.mean(axis=1)
    out["mean_test_score"], out["std_test_score"] = mean, by_fold.std(axis=1)
    out["rank_test_score"] = 1 + np.array([(mean > value).sum() for value in mean])
    return out
