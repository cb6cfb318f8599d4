"""How any selector becomes lists of features.

The features of a fitted selector are read by this rule (`ranking_of`): ``order_`` (feature
indices, best first), else ``ranking_`` if it has no ties (1 is best), else ``scores_`` or
``feature_importances_`` (larger is better). A selector with none of these is fitted again for
every number of features, set through its parameter ``n_features_to_select``, ``k`` or
``max_features``.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence, Sized
from dataclasses import replace

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.utils import check_random_state

from semfs import baselines
from semfs._typing import Indices
from semfs.baselines.mcfs import mean_distance
from semfs.lab.compared_method import Method, Params
from semfs.lab.splits import SplitData
from semfs.labels import encode_labels
from semfs.selectors.semfs import SemFS
from semfs.validation import ParameterError

#: What selectors call their number of features.
SIZE_PARAMETERS = ("n_features_to_select", "k", "max_features")


def prepare(
    method: Method,
    params: Params,
    split: SplitData,
    ks: Sequence[int],
    seed: int = 0,
) -> tuple[BaseEstimator, SplitData]:
    """Return an unfitted selector for up to max(ks) features, and the samples to fit it to.

    Two entries of ``params`` are not parameters of selectors. ``max_rows`` limits the fit to a
    random subset of the seen samples. ``heat_width_factor`` is the heat width of MCFS as a
    multiple of the automatic width.
    """
    params = dict(params)
    selector = _set_size(method.new_selector(), max(ks))
    # Before rows are drawn: labels become the same numbers for every sample of rows.
    split = _samples_for(method, selector, split)
    max_samples = params.pop("max_rows", None)
    if max_samples is not None and max_samples < len(split.y):
        shuffled = np.random.RandomState(seed).permutation(len(split.y))
        split = split.keep_samples(shuffled[:max_samples])
    factor = params.pop("heat_width_factor", None)
    if factor is not None:
        # The automatic width of MCFS is the mean distance between samples.
        params["heat_width"] = factor * mean_distance(split.X, check_random_state(0))
    # What a selector takes besides X and y, unless its user has set it. Descriptions are
    # offered only if the experiment does not ask for labels as targets.
    offered = {"random_state": seed, "feature_names": split.feature_names}
    if method.attributes:
        offered["attributes"] = split.attributes
    defaults = selector.get_params(deep=False)
    for name, value in offered.items():
        if name in defaults and defaults[name] is None:
            params.setdefault(name, value)
    return selector.set_params(**params), split


def _samples_for(
    method: Method,
    selector: BaseEstimator,
    split: SplitData,
) -> SplitData:
    """Return the samples in a form that the selector takes: dense, with labels as numbers."""
    if sparse.issparse(split.X) and not method.takes_sparse():
        split = replace(split, X=sparse.csr_array(split.X).toarray())
    # Many selectors of other packages compute with y. Class descriptions are found by label,
    # so selectors that take them get the labels.
    is_ours = type(selector).__module__.startswith("semfs.")
    is_numeric = np.issubdtype(split.y.dtype, np.number)
    if not is_ours and not is_numeric and not method.attributes:
        split = replace(split, y=encode_labels(split.y)[1])
    return split


def fit_selector(
    selector: BaseEstimator,
    split: SplitData,
    ks: Sequence[int],
    uses_unlabeled: bool = False,
) -> tuple[dict[int, Indices], BaseEstimator]:
    """Fit a selector to the seen samples.

    Returns
    -------
    features_by_k : dict
        Indices of the selected features for each k, best first if the selector ranks them.
    selector : the fitted selector
    """
    if isinstance(selector, baselines.L20ALM):
        # Its selections are not nested; each solution starts from the one before.
        path = selector.path(split.X, split.y, ks)
        return {k: fitted.order_[:k] for k, fitted in zip(ks, path)}, path[-1]
    with warnings.catch_warnings():
        # Warnings of columns or attributes that are constant in a split.
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        if uses_unlabeled:
            selector.fit(split.X, split.y, X_unlabeled=split.X_unlabeled)
        else:
            selector.fit(split.X, split.y)
        order = ranking_of(selector, split.X.shape[1])
        if isinstance(selector, SemFS) and selector.min_per_class:
            return _panels_of_each_size(selector, split, ks, uses_unlabeled), selector
        if order is None:
            return {k: _selected(selector, split, k) for k in ks}, selector
    # A panel may have fewer features than were asked for.
    return {k: order[:k] for k in ks if k <= len(order)}, selector


def _panels_of_each_size(
    selector: SemFS, split: SplitData, ks: Sequence[int], uses_unlabeled: bool
) -> dict[int, Indices]:
    """The features for each k that the rules allow; ``selector`` is fitted for the largest.

    The panel of k features is not the first k of a larger one, whose places for markers may
    all be its last ones.
    """
    unlabeled = split.X_unlabeled if uses_unlabeled else None
    found = {max(ks): np.asarray(selector.order_)[: max(ks)]}
    for k in ks:
        if k in found:
            continue
        try:
            fitted = _set_size(clone(selector), k)
            fitted.fit(split.X, split.y, X_unlabeled=unlabeled)
        except ParameterError:
            continue  # so few features cannot satisfy the rules: no score at this k
        found[k] = np.asarray(fitted.order_)[:k]
    return dict(sorted(found.items()))


def _selected(
    selector: BaseEstimator,
    split: SplitData,
    k: int,
) -> Indices:
    """Return the features of a selector that does not rank them, fitted again for k of them."""
    fitted = _set_size(clone(selector), k).fit(split.X, split.y)
    features = np.flatnonzero(fitted.get_support())
    if len(features) != k:
        raise ValueError(
            f"{type(selector).__name__} selected {len(features)} features "
            f"when {k} were asked for, and has no order_, ranking_ or "
            "scores_ to rank them by."
        )
    return features


def ranking_of(selector: BaseEstimator, n_features: int | None = None) -> Indices | None:
    """Return the feature indices of a fitted selector, best first, if it ranks them all.

    If ``n_features``, the number of features in the fit, is given, rankings of other features
    and scores without any order raise an error.
    """
    if hasattr(selector, "order_"):
        order = np.asarray(selector.order_)
        _check_order(selector, order, n_features)
        return order
    # RFE gives all selected features rank 1: with ties the order within them is unknown.
    ranking = getattr(selector, "ranking_", None)
    if ranking is not None:
        _check_length(selector, "ranking_", ranking, n_features)
        if len(np.unique(ranking)) < len(ranking):
            return None
        return np.argsort(ranking, kind="stable")
    for name in ("scores_", "feature_importances_"):
        scores = getattr(selector, name, None)
        if scores is not None and np.ndim(scores) == 1:
            scores = np.asarray(scores, dtype=np.float64)
            _check_length(selector, name, scores, n_features)
            if not np.isfinite(scores).any():
                raise ValueError(
                    f"{type(selector).__name__}: {name} has no finite "
                    "value, so the features cannot be ranked. Check the "
                    "computations in fit, for example for a division by "
                    "zero."
                )
            # SelectKBest gives constant columns NaN; they come last.
            finite = np.where(np.isnan(scores), -np.inf, scores)
            return np.argsort(-finite, kind="stable")
    return None


def _check_length(
    selector: BaseEstimator, name: str, values: Sized, n_features: int | None
) -> None:
    """Raise unless an attribute of a fitted selector has one value for each feature."""
    if n_features is not None and len(values) != n_features:
        raise ValueError(
            f"{type(selector).__name__}: {name} has {len(values)} values, "
            f"but the selector was fitted to {n_features} features. Store "
            "one value for each column of X."
        )


def _check_order(selector: BaseEstimator, order: Indices, n_features: int | None) -> None:
    """Raise unless an order holds indices of different features."""
    if n_features is None:
        return
    is_distinct = len(np.unique(order)) == len(order)
    is_index = np.issubdtype(order.dtype, np.integer)
    if not (is_distinct and is_index and np.isin(order, np.arange(n_features)).all()):
        raise ValueError(
            f"{type(selector).__name__}: order_ must hold different column "
            f"numbers of X, from 0 to {n_features - 1}, best first."
        )


def _set_size(selector: BaseEstimator, k: int) -> BaseEstimator:
    """Set the number of features, whatever the parameter is called."""
    parameters = selector.get_params(deep=False)
    for name in SIZE_PARAMETERS:
        if name in parameters:
            return selector.set_params(**{name: int(k)})
    return selector
