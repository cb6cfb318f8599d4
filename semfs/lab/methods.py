"""The methods of the comparison by name, and how any selector becomes a ranking.

A method is a selector class with parameters; ``module:Name`` brings in your own. Its ranking
is read by this rule (`ranking_of`): ``order_`` (feature indices, best first), else
``ranking_`` if it has no ties (1 is best), else ``scores_`` or ``feature_importances_``
(larger is better). A selector with none of these is fitted again for every number of
features, set through its parameter ``n_features_to_select``, ``k`` or ``max_features``.
"""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.utils import check_random_state

from semfs.baselines import (
    FSASL,
    L20ALM,
    MCFS,
    LassoSelector,
    RandomSelector,
    VarianceSelector,
    WkNN,
)
from semfs.baselines.graph import mean_distance
from semfs.method.moments import Moments
from semfs.selectors.semfs import AS_PUBLISHED, SemFS

__all__ = ["METHODS", "Method", "Size", "find_method", "rank", "ranking_of"]

#: The grid on which the paper tunes every parameter of its baselines.
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
FAST_GRID = (0.1, 1.0, 10.0)

# From these sizes on a method runs with the options that bound its cost. They are recorded
# with the results.
WKNN_FULL_BATCH = 1000
WKNN_BATCH = 512
FSASL_SAMPLES = 500
MCFS_NARROW_ROWS = 1000
MOST_COMPONENTS = 50

Params = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """What parameters may depend on: rows and classes of the seen part, and haste."""

    n_samples: int
    n_classes: int
    fast: bool = False

    @property
    def grid(self) -> tuple[float, ...]:
        return FAST_GRID if self.fast else GRID

    @property
    def n_components(self) -> int:
        """Number of clusters that unsupervised methods are told."""
        return min(self.n_classes, MOST_COMPONENTS)


@dataclass(frozen=True)
class Method:
    """A selector with a name, parameters, and the grid on which an oracle tunes it.

    ``params(size)`` and ``grid(size)`` return JSON values; ``attributes`` says whether it is
    supervised by the class descriptions (True), by class labels (False), or by neither.
    """

    name: str
    label: str
    selector: Any
    params: Callable[[Size], Params] = field(default=lambda size: {})
    grid: Callable[[Size], list[Params]] = field(default=lambda size: [])
    attributes: bool | None = None

    def takes(self, params: Iterable[str]) -> bool:
        """Whether the selector has all these parameters."""
        return set(params) <= set(_parameters(self.selector))


def find_method(name: str) -> Method:
    """Return a method by name, or the selector of the user's module: ``module:Name``.

    Examples
    --------
    >>> find_method("mcfs").label
    'MCFS'
    >>> find_method("sklearn.feature_selection:SelectKBest").label
    'SelectKBest'
    """
    if name in METHODS:
        return METHODS[name]
    if ":" not in name:
        known = ", ".join(METHODS)
        raise ValueError(
            f"There is no method {name!r}. Known: {known}; or give your own as module:Selector."
        )
    selector = _import(name)
    takes = _parameters(selector)
    return Method(
        name, name.rpartition(":")[2], selector, attributes="attributes" in takes or None
    )


def _import(name: str) -> Any:
    module_name, _, attribute = name.partition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; workers get the same path
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"Cannot import the method {name!r}: {error}. Give it as module:Selector, the "
            "module in this directory or installed."
        ) from error
    if not hasattr(found, "fit") or not hasattr(found, "get_params"):
        raise ValueError(
            f"The method {name!r} is not a scikit-learn selector: it has no fit and "
            "get_params. Derive it from BaseEstimator and SelectorMixin."
        )
    return found


def _parameters(selector: Any) -> Iterable[str]:
    names = getattr(selector, "_get_param_names", None) if isinstance(selector, type) else None
    return names() if names is not None else selector.get_params(deep=False)


# ---- parameters ------------------------------------------------------------------------------


def _mcfs(size: Size) -> Params:
    return {"n_components": size.n_components}


def _mcfs_grid(size: Size) -> list[Params]:
    """Heat widths in units of the automatic one (1 is that one), and binary weights.

    With a narrow kernel the graph all but falls apart, and iterative eigensolvers do not
    converge; then a sample of the rows, small enough for a dense one, must do.
    """
    widths: list[Params] = [{} if g == 1.0 else {"heat_width_factor": g} for g in size.grid]
    for g, point in zip(size.grid, widths):
        if g < 1.0 and size.n_samples > MCFS_NARROW_ROWS:
            point["max_rows"] = MCFS_NARROW_ROWS
    return [_mcfs(size) | point for point in [*widths, {"weight": "binary"}]]


def _fsasl(size: Size) -> Params:
    params: Params = {"n_components": size.n_components, "n_iter_no_change": 3}
    if size.n_samples > FSASL_SAMPLES:
        params["max_samples"] = FSASL_SAMPLES
    return params | ({"max_iter": 6} if size.fast else {})


def _fsasl_grid(size: Size) -> list[Params]:
    pairs = [(a, b) for a in size.grid for b in size.grid if a == b or not size.fast]
    return [_fsasl(size) | ({} if a == b == 1.0 else _lambdas(a, b)) for a, b in pairs]


def _lambdas(lambda2: float, lambda3: float) -> Params:
    return {"lambda2": lambda2, "lambda3": lambda3}


def _lasso(size: Size) -> Params:
    return {"tol": 1e-4, "max_iter": 1000}


def _lasso_grid(size: Size) -> list[Params]:
    return [_lasso(size) | ({} if g == 1.0 else {"lam": g}) for g in size.grid]


def _l20alm_grid(size: Size) -> list[Params]:
    return [{} if g == 1.0 else {"mu": g} for g in size.grid]


def _wknn(size: Size) -> Params:
    params: Params = {"max_iter": 100} if size.fast else {}
    return params | ({"batch_size": WKNN_BATCH} if size.n_samples > WKNN_FULL_BATCH else {})


def _wknn_grid(size: Size) -> list[Params]:
    return [_wknn(size) | {"lambda0": 0.0, "lambda1": g, "lambda2": 0.0} for g in size.grid]


def _fixed(**params: Any) -> Callable[[Size], Params]:
    return lambda size: dict(params)


METHODS: dict[str, Method] = {
    method.name: method
    for method in [
        Method("random", "Random", RandomSelector),
        Method("variance", "Variance", VarianceSelector),
        Method("anova", "ANOVA F", SelectKBest, attributes=False),
        Method("mcfs", "MCFS", MCFS, _mcfs, _mcfs_grid),
        Method("fsasl", "FSASL", FSASL, _fsasl, _fsasl_grid),
        Method("lasso", "LASSO", LassoSelector, _lasso, _lasso_grid, False),
        Method("l20alm", "L20ALM", L20ALM, grid=_l20alm_grid, attributes=False),
        Method("wknn", "WkNN", WkNN, _wknn, _wknn_grid, False),
        Method("semfs", "SemFS", SemFS, attributes=True),
        Method("semfs-c", "SemFS/c", SemFS, _fixed(alpha=0.0), attributes=True),
        Method("semfs-labels", "SemFS (labels)", SemFS, attributes=False),
        Method(
            "semfs-published",
            "SemFS as published",
            SemFS,
            _fixed(**AS_PUBLISHED),
            attributes=True,
        ),
        Method(
            "semfs-alternating",
            "SemFS alternating",
            SemFS,
            _fixed(solver="alternating"),
            attributes=True,
        ),
    ]
}


# ---- fitting ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Ranking:
    """The features for each k: prefixes of one order, or one order for each k."""

    order: np.ndarray
    by_k: Mapping[int, np.ndarray]
    selector: Any

    def features(self, k: int) -> np.ndarray:
        """Return the indices of the k features, best first."""
        return self.by_k.get(k, self.order)[:k]


def rank(
    method: Method,
    params: Mapping[str, Any],
    X: Any,
    y: np.ndarray,
    attributes: Any,
    ks: Sequence[int],
    *,
    seed: int = 0,
    moments: Moments | None = None,
) -> Ranking:
    """Fit a method on the seen rows X (n, d), y (n,) and return its ranking.

    ``attributes`` is the class table for methods supervised by it, else None; ``moments`` of
    the same rows, if given, save SemFS a pass over X. Two parameters are our own:
    ``max_rows`` fits on a random sample of the rows, ``heat_width_factor`` gives MCFS's heat
    width in units of the automatic one.
    """
    params = dict(params)
    max_rows = params.pop("max_rows", None)
    if max_rows is not None and max_rows < X.shape[0]:
        rows = np.random.RandomState(seed).permutation(X.shape[0])[:max_rows]
        X, y = X[np.sort(rows)], y[np.sort(rows)]
    factor = params.pop("heat_width_factor", None)
    if factor is not None:
        params["heat_width"] = factor * mean_distance(X, check_random_state(0))
    selector = _with_size(_instance(method.selector), max(ks))
    takes = selector.get_params(deep=False)
    if attributes is not None and "attributes" in takes:
        params["attributes"] = attributes
    if takes.get("random_state", 0) is None:
        params["random_state"] = seed
    selector.set_params(**params)
    if isinstance(selector, SemFS) and moments is not None:
        selector.fit_moments(moments)
    elif isinstance(selector, L20ALM):  # not nested: one solution per k, warm-started
        fitted = selector.path(X, y, ks)
        by_k = {k: one.order_ for k, one in zip(ks, fitted)}
        return Ranking(fitted[-1].order_, by_k, fitted[-1])
    else:
        with warnings.catch_warnings():  # SelectKBest complains of constant columns
            warnings.filterwarnings("ignore", r"Features .* are constant", UserWarning)
            warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
            selector.fit(X, y)
    order = ranking_of(selector)
    if order is not None:
        return Ranking(order, {}, selector)
    return _refitted(selector, X, y, ks)


def ranking_of(selector: Any) -> np.ndarray | None:
    """Return the feature indices of a fitted selector, best first, if it ranks them all.

    Examples
    --------
    >>> class Scored:
    ...     scores_ = np.array([0.5, np.nan, 2.0])
    >>> ranking_of(Scored())
    array([2, 0, 1])
    """
    if hasattr(selector, "order_"):
        return np.asarray(selector.order_)
    ranking = getattr(selector, "ranking_", None)
    if ranking is not None and len(np.unique(ranking)) == len(ranking):
        return np.argsort(ranking, kind="stable")
    for name in ("scores_", "feature_importances_"):
        scores = getattr(selector, name, None)
        if ranking is None and scores is not None and np.ndim(scores) == 1:
            scores = np.asarray(scores, dtype=np.float64)
            return np.argsort(-np.where(np.isnan(scores), -np.inf, scores), kind="stable")
    return None


def _refitted(selector: Any, X: Any, y: np.ndarray, ks: Sequence[int]) -> Ranking:
    """One fit per k; the features of a fit have no order but that of the columns."""
    by_k = {}
    for k in ks:
        support = _with_size(clone(selector), k).fit(X, y).get_support()
        by_k[k] = np.flatnonzero(support)
        if len(by_k[k]) != k:
            raise ValueError(
                f"{type(selector).__name__} chose {len(by_k[k])} features when {k} were asked "
                "for, and has no order_, ranking_, scores_ or feature_importances_ to rank "
                "them by."
            )
    return Ranking(by_k[max(ks)], by_k, selector)


def _instance(selector: Any) -> Any:
    if not isinstance(selector, type):
        return clone(selector)
    try:
        return selector()
    except TypeError as error:
        raise ValueError(
            f"{selector.__name__} cannot be made without arguments: {error}. Name a ready-made "
            "object instead, such as my_module:my_selector."
        ) from error


def _with_size(selector: Any, k: int) -> Any:
    takes = selector.get_params(deep=False)
    for name in ("n_features_to_select", "k", "max_features"):
        if name in takes:
            return selector.set_params(**{name: int(k)})
    return selector
