"""The methods of the comparison by name, how any selector becomes a ranking, its scores.

A method is a selector class with parameters; ``module:Name`` brings in your own. Its ranking
is read by this rule (`ranking_of`): ``order_`` (feature indices, best first), else
``ranking_`` if it has no ties (1 is best), else ``scores_`` or ``feature_importances_``
(larger is better). A selector with none of these is fitted again for every number of
features, set through its parameter ``n_features_to_select``, ``k`` or ``max_features``.
"""

import importlib
import itertools
import os
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_selection import SelectKBest
from sklearn.utils import check_random_state, get_tags

from semfs import baselines
from semfs.baselines.mcfs import mean_distance
from semfs.datasets import ZeroShotDataset
from semfs.evaluation import cluster_scores, starting_rows
from semfs.selectors.semfs import AS_PUBLISHED, SemFS
from semfs.system import memory_limit
from semfs.validation import did_you_mean

#: The grid on which the paper tunes every parameter of its baselines.
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
FAST_GRID = (0.1, 1.0, 10.0)

# From these sizes on a method runs with options that bound its cost; results record them.
WKNN_FULL_BATCH = 1000
WKNN_BATCH = 512
FSASL_SAMPLES = 500
MCFS_NARROW_ROWS = 1000
MOST_COMPONENTS = 50
DENSE_SHARE = 1 / 16  # of the memory: workers and their copies share it

Params = dict[str, Any]
Scores = dict[int, dict[str, tuple[float, float]]]  # k -> metric -> mean and sd


@dataclass(frozen=True, eq=False)
class Case:
    """Seen rows X (n, d) with labels y, class table, and the unseen rows to be told apart."""

    X: Any
    y: np.ndarray
    attributes: Any
    X_unseen: Any
    y_unseen: np.ndarray
    feature_names: np.ndarray

    @classmethod
    def of(cls, data: ZeroShotDataset) -> Self:
        """Return the case of a data set with its split."""
        X, y, X_unseen, y_unseen = data.split()
        return cls(X, y, data.attributes, X_unseen, y_unseen, data.feature_names)

    def names(self, features: np.ndarray) -> list[str]:
        """Return the names of features given by index."""
        return [str(name) for name in self.feature_names[features]]

    def sample(self, rows: np.ndarray) -> Self:
        """Return the case with these seen rows only, in their order in the data."""
        rows = np.sort(rows)
        return replace(self, X=self.X[rows], y=self.y[rows])

    def with_ratio(self, ratio: float, seed: int) -> Self:
        """Return the case with a random share of each seen class, at least two rows of each."""
        if ratio >= 1.0:
            return self
        rng = np.random.RandomState(seed)
        classes = [np.flatnonzero(self.y == label) for label in np.unique(self.y)]
        sizes = [max(2, int(np.ceil(ratio * len(rows) - 1e-9))) for rows in classes]
        kept = [rng.permutation(rows)[:size] for rows, size in zip(classes, sizes)]
        return self.sample(np.concatenate(kept))


def scaling_data(n: int, d: int, seed: int, n_classes: int = 20) -> Case:
    """Return n seen rows of d features made from class attributes plus noise, in float32."""
    rng = np.random.RandomState(seed)
    A = (rng.uniform(size=(n_classes, 50)) < 0.3).astype(np.float64)
    mixing = rng.standard_normal((50, d)) * (rng.uniform(size=d) < 0.2)
    y = np.arange(n) % n_classes
    X = (A[y] @ mixing + 2.0 * rng.standard_normal((n, d))).astype(np.float32)
    names = np.array([f"x{j}" for j in range(d)], dtype=object)
    return Case(X, y, dict(enumerate(A)), X[:0], y[:0], names)


@dataclass(frozen=True)
class Size:
    """What parameters may depend on: rows and classes of the seen part, and haste."""

    n_samples: int
    n_classes: int
    fast: bool = False
    dense_bytes: int = 0  # of the seen rows as an array, if they are none


@dataclass(frozen=True)
class Method:
    """A selector with a name, parameters, and the grid on which an oracle tunes it.

    ``params(size)`` and ``grid(size)`` return JSON values; ``attributes`` says whether it is
    supervised by the class descriptions (True), by class labels (False), or by neither.
    """

    name: str
    label: str
    selector: Any
    params: Callable[[Size], Params] = lambda size: {}
    grid: Callable[[Size], list[Params]] = lambda size: []
    attributes: bool | None = None

    def takes(self, params: Iterable[str]) -> bool:
        """Whether the selector has all these parameters."""
        return set(params) <= set(_instance(self.selector).get_params(deep=False))

    def takes_sparse(self) -> bool:
        """Whether the selector says that it can be fitted to sparse rows."""
        return bool(get_tags(_instance(self.selector)).input_tags.sparse)

    def fits(self, size: Size) -> bool:
        """Whether the rows, if they must be made dense, are small enough for this machine."""
        return self.takes_sparse() or size.dense_bytes <= DENSE_SHARE * memory_limit()


def find_method(name: Any) -> Method:
    """Return a method by name, or a selector of the user's: an object, or ``module:Name``."""
    if not isinstance(name, str):
        name, selector = type(name).__name__, name
    elif name in METHODS:
        return METHODS[name]
    else:
        selector = _import(name)
    if not hasattr(selector, "fit") or not hasattr(selector, "get_params"):
        raise ValueError(f"{name} is no scikit-learn selector: it has no fit and get_params.")
    method = Method(name, name.rpartition(":")[2], selector)
    return replace(method, attributes=method.takes(["attributes"]) or None)


def _import(name: str) -> Any:
    module_name, _, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; workers get the same path
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        why = f" ({error})." if module_name else did_you_mean(name, METHODS) or "."
        raise ValueError(
            f"There is no method {name!r}{why} Known: {', '.join(METHODS)}; or give your "
            "own as module:Selector, the module in this directory or installed."
        ) from error


def _grid(*names: str, **fixed: float) -> Callable[[Size], list[Params]]:
    """The paper's grid of these parameters; in haste a coarse one, all equal."""
    full = [dict(zip(names, values)) for values in itertools.product(GRID, repeat=len(names))]
    fast = [dict.fromkeys(names, value) for value in FAST_GRID]
    return lambda size: [point | fixed for point in (fast if size.fast else full)]


def _mcfs(size: Size) -> Params:
    return {"n_components": min(size.n_classes, MOST_COMPONENTS)}


def _mcfs_grid(size: Size) -> list[Params]:
    """Heat widths in units of the automatic one (1 is that one), and binary weights."""
    widths = _grid("heat_width_factor")(size)
    # With a narrow kernel the graph all but falls apart, and iterative eigensolvers do not
    # converge; then a sample of the rows, small enough for a dense one, must do.
    for point in widths:
        if point["heat_width_factor"] < 1.0 and size.n_samples > MCFS_NARROW_ROWS:
            point["max_rows"] = MCFS_NARROW_ROWS
    return [*widths, {"weight": "binary"}]


def _fsasl(size: Size) -> Params:
    params = _mcfs(size) | {"n_iter_no_change": 3}
    params |= {"max_samples": FSASL_SAMPLES} if size.n_samples > FSASL_SAMPLES else {}
    return params | ({"max_iter": 6} if size.fast else {})


def _wknn(size: Size) -> Params:
    params: Params = {"max_iter": 100} if size.fast else {}
    return params | ({"batch_size": WKNN_BATCH} if size.n_samples > WKNN_FULL_BATCH else {})


def _lasso(size: Size) -> Params:
    return {"tol": 1e-4, "max_iter": 1000}


_wknn_grid = _grid("lambda1", lambda0=0.0, lambda2=0.0)


def _ours(name: str, label: str, attributes: bool = True, **params: Any) -> Method:
    return Method(name, label, SemFS, lambda size: dict(params), attributes=attributes)


METHODS: dict[str, Method] = {
    method.name: method
    for method in [
        Method("random", "Random", baselines.RandomSelector),
        Method("variance", "Variance", baselines.VarianceSelector),
        Method("anova", "ANOVA F", SelectKBest, attributes=False),
        Method("markers", "Markers per class", baselines.Markers, attributes=False),
        Method("mcfs", "MCFS", baselines.MCFS, _mcfs, _mcfs_grid),
        Method("fsasl", "FSASL", baselines.FSASL, _fsasl, _grid("lambda2", "lambda3")),
        Method("lasso", "LASSO", baselines.LassoSelector, _lasso, _grid("lam"), False),
        Method("l20alm", "L20ALM", baselines.L20ALM, grid=_grid("mu"), attributes=False),
        Method("wknn", "WkNN", baselines.WkNN, _wknn, _wknn_grid, False),
        _ours("semfs", "SemFS", target_attributes=None),
        _ours("semfs-described", "SemFS, new classes described"),
        _ours("semfs-c", "SemFS/c", alpha=0.0, target_attributes=None),
        _ours("semfs-labels", "SemFS (labels)", attributes=False),
        _ours("semfs-published", "SemFS as published", **AS_PUBLISHED),
        _ours("semfs-alternating", "SemFS alternating", solver="alternating"),
    ]
}


@dataclass(frozen=True)
class Ranking:
    """The indices of the features for each k, best first, and who chose them."""

    by_k: Mapping[int, np.ndarray]
    selector: Any
    seconds: float = 0.0


def rank(method: Method, params: Any, case: Case, ks: Sequence[int], seed: int = 0) -> Ranking:
    """Fit a method to the seen rows of a case and return its ranking.

    Two parameters are our own: ``max_rows`` fits on a random sample of the rows,
    ``heat_width_factor`` gives MCFS's heat width in units of the automatic one.
    """
    params = dict(params)
    selector = _with_size(_instance(method.selector), max(ks))
    if sparse.issparse(case.X) and not method.takes_sparse():
        case = replace(case, X=case.X.toarray())
    if (max_rows := params.pop("max_rows", len(case.y))) < len(case.y):
        case = case.sample(np.random.RandomState(seed).permutation(len(case.y))[:max_rows])
    if (factor := params.pop("heat_width_factor", None)) is not None:
        params["heat_width"] = factor * mean_distance(case.X, check_random_state(0))
    takes = selector.get_params(deep=False)
    if method.attributes and takes.get("attributes", case) is None:
        params["attributes"] = case.attributes
    if takes.get("random_state", 0) is None:
        params["random_state"] = seed
    start = time.perf_counter()
    by_k, fitted = _fit(selector.set_params(**params), case, ks)
    return Ranking(by_k, fitted, time.perf_counter() - start)


def _fit(selector: Any, case: Case, ks: Sequence[int]) -> tuple[dict[int, np.ndarray], Any]:
    """Fit a selector; one without a ranking, or whose choices are not nested, for each k."""
    if isinstance(selector, baselines.L20ALM):  # each solution starts from the one before
        fitted = selector.path(case.X, case.y, ks)
        return {k: one.order_[:k] for k, one in zip(ks, fitted)}, fitted[-1]
    with warnings.catch_warnings():  # of columns or attributes that are constant in a split
        warnings.simplefilter("ignore", UserWarning)
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)
        selector.fit(case.X, case.y)
    if (order := ranking_of(selector)) is not None:
        return {k: order[:k] for k in ks}, selector
    by_k = {}
    for k in ks:
        support = _with_size(clone(selector), k).fit(case.X, case.y).get_support()
        by_k[k] = np.flatnonzero(support)
        if len(by_k[k]) != k:
            raise ValueError(
                f"{type(selector).__name__} chose {len(by_k[k])} features when {k} were asked "
                "for, and has no order_, ranking_ or scores_ to rank them by."
            )
    return by_k, selector


def ranking_of(selector: Any) -> np.ndarray | None:
    """Return the feature indices of a fitted selector, best first, if it ranks them all."""
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


def scores(case: Case, ranking: Ranking, n_repeats: int, seed: int) -> Scores:
    """Return mean and sd of ACC and NMI over K-means runs on the unseen rows, for each k.

    The Random baseline has its own random features in each run.
    """
    if not len(case.y_unseen):
        return {}
    starts = starting_rows(len(case.y_unseen), len(np.unique(case.y_unseen)), n_repeats, seed)
    orders = []
    if isinstance(ranking.selector, baselines.RandomSelector):
        for number in range(1000 * seed, 1000 * seed + n_repeats):
            selector = clone(ranking.selector).set_params(random_state=number)
            orders.append(selector.fit(case.X).order_)
    found: Scores = {}
    for k, features in ranking.by_k.items():
        chosen = [(o[:k], starts[[i]]) for i, o in enumerate(orders)] or [(features, starts)]
        X, y = case.X_unseen, case.y_unseen
        runs = np.hstack([cluster_scores(X[:, own], y, starts=at) for own, at in chosen])
        means, sds = runs.mean(axis=1), runs.std(axis=1, ddof=int(n_repeats > 1))
        found[int(k)] = dict(zip(("acc", "nmi"), zip(means.tolist(), sds.tolist())))
    return found


def _instance(selector: Any) -> Any:
    return selector() if isinstance(selector, type) else clone(selector)


def _with_size(selector: Any, k: int) -> Any:
    takes = selector.get_params(deep=False)
    names = [name for name in ("n_features_to_select", "k", "max_features") if name in takes]
    return selector.set_params(**dict.fromkeys(names[:1], int(k)))
