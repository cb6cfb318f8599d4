"""The methods of a comparison by name, and how any selector becomes lists of features.

A method is a selector class with parameters; ``module:Name`` brings in your own. The features
of a fitted selector are read by this rule (`ranking_of`): ``order_`` (feature indices, best
first), else ``ranking_`` if it has no ties (1 is best), else ``scores_`` or
``feature_importances_`` (larger is better). A selector with none of these is fitted again for
every number of features, set through its parameter ``n_features_to_select``, ``k`` or
``max_features``.
"""

from __future__ import annotations

import importlib
import itertools
import os
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, clone
from sklearn.feature_selection import SelectKBest
from sklearn.utils import check_random_state, get_tags

from semfs import baselines
from semfs._typing import Indices, LabelsLike, Matrix
from semfs.baselines.mcfs import mean_distance
from semfs.lab.hvg import HighlyVariableGenes
from semfs.lab.splits import SplitData
from semfs.labels import encode_labels
from semfs.selectors.semfs import AS_PUBLISHED, SemFS
from semfs.system import memory_limit
from semfs.validation import did_you_mean

#: The grid on which the paper tunes every parameter of its baselines, and that of `--fast`.
GRID = (0.01, 0.1, 1.0, 10.0, 100.0)
FAST_GRID = (0.1, 1.0, 10.0)

# Above these numbers of samples a method runs with options that bound its cost; results
# record them. Chosen so that a grid point takes minutes, not hours, on two cores.
WKNN_FULL_BATCH = 1000
WKNN_BATCH = 512
FSASL_SAMPLES = 500
MCFS_NARROW_SAMPLES = 1000
L20ALM_SAMPLES = 2000

#: Most eigenvectors of MCFS and FSASL; the paper takes as many as there are classes.
MOST_COMPONENTS = 50

#: Share of the memory that one dense copy of the samples may take: every worker process has
#: one, and methods make copies.
DENSE_SHARE = 1 / 16

#: Parameters of a selector, as JSON values.
Params: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """What default parameters may depend on.

    Parameters
    ----------
    n_samples, n_classes : int
        Of the seen part of a split.
    fast : bool
        Whether this is a quick trial (`--fast`).
    dense_bytes : int
        Size of the seen samples as a dense array if they are sparse, else 0.
    """

    n_samples: int
    n_classes: int
    fast: bool = False
    dense_bytes: int = 0


def no_params(size: Size) -> Params:
    """Return no parameters: the selector's defaults."""
    return {}


def no_grid(size: Size) -> list[Params]:
    """Return no grid points: the method is not tuned."""
    return []


@dataclass(frozen=True)
class Method:
    """A selector with a name, parameters, and the grid on which an oracle tunes it.

    Parameters
    ----------
    name, label : str
        On the command line, and in tables and figures.
    selector : class or instance
        A scikit-learn selector.
    params, grid : callable
        ``params(size)`` and ``grid(size)`` return JSON values.
    attributes : bool or None
        Whether it is supervised by the class descriptions (True), by class labels (False), or
        by neither (None).
    uses_unlabeled : bool
        Whether ``fit`` gets unlabeled samples of the unseen classes.
    has_objective : bool or None
        Whether it has ``objective_`` after ``fit``; None: not known.
    """

    name: str
    label: str
    selector: BaseEstimator | type[BaseEstimator]
    params: Callable[[Size], Params] = no_params
    grid: Callable[[Size], list[Params]] = no_grid
    attributes: bool | None = None
    uses_unlabeled: bool = False
    has_objective: bool | None = False

    def new_selector(self) -> BaseEstimator:
        """Return an unfitted selector."""
        if not isinstance(self.selector, type):
            return clone(self.selector)
        selector = self.selector()
        # Some print their progress by default (fastcan); it would stand between the scores.
        if selector.get_params(deep=False).get("verbose") == 1:
            selector.set_params(verbose=0)
        return selector

    def takes(self, params: Iterable[str]) -> bool:
        """Whether the selector has all these parameters."""
        return set(params) <= set(self.new_selector().get_params(deep=False))

    def takes_sparse(self) -> bool:
        """Whether the selector says that it can be fitted to sparse samples."""
        return bool(get_tags(self.new_selector()).input_tags.sparse)

    def fits_in_memory(self, size: Size) -> bool:
        """Whether samples that must be made dense are small enough for this machine."""
        return self.takes_sparse() or size.dense_bytes <= DENSE_SHARE * memory_limit()


# ---- methods by name -------------------------------------------------------------------------


def find_method(name: str | BaseEstimator | Method) -> Method:
    """Return a method by name, of a selector, or by ``module:Name``."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        return _user_method(type(name).__name__, name)
    if name in METHODS:
        return METHODS[name]
    return _user_method(name, _import_selector(name))


def _user_method(
    name: str,
    selector: BaseEstimator | type[BaseEstimator],
) -> Method:
    """The method of a user's selector, which gets class descriptions if it takes them."""
    if not hasattr(selector, "fit") or not hasattr(selector, "get_params"):
        raise ValueError(
            f"{name} is not a scikit-learn selector: it has no methods fit and get_params."
        )
    # Whether it records an objective is known after a fit only.
    method = Method(name, name.rpartition(":")[2], selector, has_objective=None)
    return replace(method, attributes=method.takes(["attributes"]) or None)


def _import_selector(name: str) -> type[BaseEstimator]:
    """The object that ``module:Name`` names; the module may be in the working directory."""
    module_name, _, attribute = name.rpartition(":")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())  # as `python -m` does; workers get the same path
    try:
        found: type[BaseEstimator] = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        if module_name:
            reason = f" ({error})."
        else:
            reason = did_you_mean(name, METHODS) or "."
        raise ValueError(
            f"There is no method {name!r}{reason} Known: "
            f"{', '.join(METHODS)}; or give your own as module:Selector, "
            "the module in this directory or installed."
        ) from error
    return found


class PanelSelector(BaseEstimator):
    """Selects a given list of features, such as a panel that can be bought.

    Parameters
    ----------
    features : sequence of str
        Names, best first.
    feature_names : array of shape (d,), optional
        Names of the columns of X.
    """

    def __init__(
        self,
        features: Sequence[str] = (),
        feature_names: Sequence[str] | None = None,
    ) -> None:
        self.features = features
        self.feature_names = feature_names

    def fit(self, X: Matrix, y: LabelsLike | None = None) -> Self:
        """Look up the features among the columns of X (n, d); y is ignored."""
        names = self.feature_names
        if names is None:
            names = [f"x{j}" for j in range(X.shape[1])]
        position = {str(name): j for j, name in enumerate(names)}
        missing = [name for name in self.features if name not in position]
        if missing:
            hint = did_you_mean(missing[0], position) or "."
            raise ValueError(
                f"{len(missing)} of {len(self.features)} features of the "
                "panel are not in the data, the first is "
                f"{missing[0]!r}{hint} Leave them out of the panel."
            )
        self.order_ = np.array([position[name] for name in self.features], dtype=np.intp)
        return self


def panel_method(label: str, features: Sequence[str]) -> Method:
    """Return the method that selects the features of a given list, best first.

    It is compared at the numbers of features that the list has.
    """
    return Method(label, label, PanelSelector(list(features)))


# ---- default parameters and grids ------------------------------------------------------------


@dataclass(frozen=True)
class PaperGrid:
    """The paper's grid of some parameters; for a quick trial a coarse one, all equal."""

    names: tuple[str, ...]
    fixed: tuple[tuple[str, float], ...] = ()

    def __call__(self, size: Size) -> list[Params]:
        """Return the grid points."""
        if size.fast:
            points = [dict.fromkeys(self.names, value) for value in FAST_GRID]
        else:
            values = itertools.product(GRID, repeat=len(self.names))
            points = [dict(zip(self.names, value)) for value in values]
        return [point | dict(self.fixed) for point in points]


def _mcfs_params(size: Size) -> Params:
    return {"n_components": min(size.n_classes, MOST_COMPONENTS)}


def _mcfs_grid(size: Size) -> list[Params]:
    """Heat widths in units of the automatic one (1 is that one), and binary weights."""
    points = PaperGrid(("heat_width_factor",))(size)
    # With a narrow kernel the graph nearly falls into parts, and iterative eigensolvers do
    # not converge. A sample of the rows, small enough for a dense solver, is used instead.
    for point in points:
        if point["heat_width_factor"] < 1.0 and size.n_samples > MCFS_NARROW_SAMPLES:
            point["max_rows"] = MCFS_NARROW_SAMPLES
    return [*points, {"weight": "binary"}]


def _fsasl_params(size: Size) -> Params:
    params = _mcfs_params(size)
    params["n_iter_no_change"] = 3  # rounds with the same selection, then it stops
    # Its time grows with n³.
    if size.n_samples > FSASL_SAMPLES:
        params["max_samples"] = FSASL_SAMPLES
    if size.fast:
        params["max_iter"] = 6  # instead of 20
    return params


def _l20alm_params(size: Size) -> Params:
    # Each of 150 iterations, for every k, multiplies X by a matrix with a column per class
    # three times: minutes for 9,000 samples of 4,000 features in 150 classes.
    if size.n_samples > L20ALM_SAMPLES:
        return {"max_rows": L20ALM_SAMPLES}
    return {}


def _wknn_params(size: Size) -> Params:
    params: Params = {}
    if size.fast:
        params["max_iter"] = 100
    # The kernel of a full batch has n² entries.
    if size.n_samples > WKNN_FULL_BATCH:
        params["batch_size"] = WKNN_BATCH
    return params


def _lasso_params(size: Size) -> Params:
    # The tolerance that the selector itself takes for large problems; its default for
    # small ones, 1e-12, costs many more steps.
    return {"tol": 1e-4, "max_iter": 1000}


@dataclass(frozen=True)
class FixedParams:
    """Parameters that do not depend on the size of the problem."""

    params: tuple[tuple[str, Any], ...]

    def __call__(self, size: Size) -> Params:
        """Return the parameters."""
        return dict(self.params)


def _semfs(
    name: str,
    label: str,
    attributes: bool = True,
    **params: Any,
) -> Method:
    """A variant of SemFS."""
    fixed = FixedParams(tuple(params.items()))
    return Method(
        name,
        label,
        SemFS,
        fixed,
        attributes=attributes,
        has_objective=True,
    )


def _methods() -> list[Method]:
    """The methods, in the order of lists and messages."""
    return [
        Method("random", "Random", baselines.RandomSelector),
        Method("variance", "Variance", baselines.VarianceSelector),
        Method("hvg", "Highly variable genes", HighlyVariableGenes),
        Method("anova", "ANOVA F", SelectKBest, attributes=False),
        Method("markers", "Markers per class", baselines.Markers, attributes=False),
        Method("mcfs", "MCFS", baselines.MCFS, _mcfs_params, _mcfs_grid),
        Method(
            "fsasl",
            "FSASL",
            baselines.FSASL,
            _fsasl_params,
            PaperGrid(("lambda2", "lambda3")),
            has_objective=True,
        ),
        Method(
            "lasso",
            "LASSO",
            baselines.LassoSelector,
            _lasso_params,
            PaperGrid(("lam",)),
            attributes=False,
        ),
        Method(
            "l20alm",
            "L20ALM",
            baselines.L20ALM,
            _l20alm_params,
            PaperGrid(("mu",)),
            attributes=False,
            has_objective=True,
        ),
        Method(
            "wknn",
            "WkNN",
            baselines.WkNN,
            _wknn_params,
            PaperGrid(("lambda1",), (("lambda0", 0.0), ("lambda2", 0.0))),
            attributes=False,
            has_objective=True,
        ),
        _semfs("semfs", "SemFS", target_attributes=None),
        _semfs("semfs-described", "SemFS, unseen classes described"),
        replace(_semfs("semfs-unlabeled", "SemFS, unlabeled samples"), uses_unlabeled=True),
        _semfs("semfs-c", "SemFS/c", alpha=0.0, target_attributes=None),
        _semfs("semfs-labels", "SemFS (labels)", attributes=False),
        _semfs("semfs-published", "SemFS as published", **AS_PUBLISHED),
        _semfs("semfs-alternating", "SemFS alternating", solver="alternating"),
    ]


METHODS: dict[str, Method] = {method.name: method for method in _methods()}


# ---- fitting ---------------------------------------------------------------------------------


def prepare(
    method: Method,
    params: Params,
    split: SplitData,
    ks: Sequence[int],
    seed: int = 0,
) -> tuple[BaseEstimator, SplitData]:
    """Return an unfitted selector for up to max(ks) features, and the samples it can take.

    Two of ``params`` are not parameters of selectors: ``max_rows`` takes a random sample of
    the seen samples, ``heat_width_factor`` gives MCFS's heat width in units of the automatic
    one.
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
    """The samples in a form that the selector takes: dense, with labels as numbers."""
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
        order = ranking_of(selector)
        if order is None:
            return {k: _selected(selector, split, k) for k in ks}, selector
    # A panel may have fewer features than were asked for.
    return {k: order[:k] for k in ks if k <= len(order)}, selector


def _selected(
    selector: BaseEstimator,
    split: SplitData,
    k: int,
) -> Indices:
    """The features of a selector that does not rank them, fitted again for k of them."""
    fitted = _set_size(clone(selector), k).fit(split.X, split.y)
    features = np.flatnonzero(fitted.get_support())
    if len(features) != k:
        raise ValueError(
            f"{type(selector).__name__} selected {len(features)} features "
            f"when {k} were asked for, and has no order_, ranking_ or "
            "scores_ to rank them by."
        )
    return features


def ranking_of(selector: BaseEstimator) -> Indices | None:
    """Return the feature indices of a fitted selector, best first, if it ranks them all."""
    if hasattr(selector, "order_"):
        return np.asarray(selector.order_)
    # RFE gives all selected features rank 1: with ties the order within them is unknown.
    ranking = getattr(selector, "ranking_", None)
    if ranking is not None:
        if len(np.unique(ranking)) < len(ranking):
            return None
        return np.argsort(ranking, kind="stable")
    for name in ("scores_", "feature_importances_"):
        scores = getattr(selector, name, None)
        if scores is not None and np.ndim(scores) == 1:
            scores = np.asarray(scores, dtype=np.float64)
            # SelectKBest gives constant columns NaN; they come last.
            finite = np.where(np.isnan(scores), -np.inf, scores)
            return np.argsort(-finite, kind="stable")
    return None


def _set_size(selector: BaseEstimator, k: int) -> BaseEstimator:
    """Set the number of features, whatever the parameter is called."""
    parameters = selector.get_params(deep=False)
    for name in ("n_features_to_select", "k", "max_features"):
        if name in parameters:
            return selector.set_params(**{name: int(k)})
    return selector
