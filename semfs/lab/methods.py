"""The methods of a comparison by name. ``module:Name`` adds your own.

`compared_method` defines a method, `grids` has default parameters and grids, and `fitting` gets
lists of features from a selector.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectKBest

from semfs import baselines
from semfs._typing import LabelsLike, Matrix
from semfs.lab.compared_method import Method, Params, Size
from semfs.lab.grids import (
    FixedParams,
    PaperGrid,
    fsasl_params,
    l20alm_params,
    lasso_params,
    mcfs_grid,
    mcfs_params,
    wknn_params,
)
from semfs.lab.hvg import HighlyVariableGenes
from semfs.selectors.semfs import AS_PUBLISHED, SemFS
from semfs.validation import ParameterError, did_you_mean


def find_method(name: str | BaseEstimator | Method) -> Method:
    """Return the method for a name, ``module:Name`` or selector."""
    if isinstance(name, Method):
        return name
    if not isinstance(name, str):
        return _user_method(type(name).__name__, name)
    name = OTHER_NAMES.get(name, name)
    if name in METHODS:
        return METHODS[name]
    return _user_method(name, _import_selector(name))


def _user_method(
    name: str,
    selector: BaseEstimator | type[BaseEstimator],
) -> Method:
    """Make a method of a user's selector, which gets class descriptions if it takes them."""
    if not hasattr(selector, "fit"):
        raise ValueError(f"{name} is not a scikit-learn selector: it has no method fit.")
    if not hasattr(selector, "get_params"):
        raise ValueError(
            f"{name} is not a scikit-learn selector: it has no method get_params. "
            "Let the class inherit from sklearn.base.BaseEstimator."
        )
    # Whether it records an objective is known after a fit only.
    method = Method(name, name.rpartition(":")[2], selector, has_objective=None)
    return replace(method, attributes=method.takes(["attributes"]) or None)


def _import_selector(name: str) -> type[BaseEstimator]:
    """Import the object ``module:Name``. The module may be in the working directory."""
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
            f"{', '.join(METHODS)}. For your own selector, give "
            "module:Selector, with a module in this directory or an "
            "installed one."
        ) from error
    return found


class PanelSelector(BaseEstimator):
    """Select a given list of features, such as a commercial panel.

    Parameters
    ----------
    features : sequence of str
        Names of the features, best first.
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
        """Look up the features among the columns of X; y is ignored."""
        names = self.feature_names
        if names is None:
            names = [f"x{j}" for j in range(X.shape[1])]
        position = {str(name): j for j, name in enumerate(names)}
        missing = [name for name in self.features if name not in position]
        if missing:
            hint = did_you_mean(missing[0], position) or "."
            raise ValueError(
                f"{len(missing)} of {len(self.features)} features of the "
                "panel are not in the data, for example "
                f"{missing[0]!r}{hint} Leave them out of the panel."
            )
        self.order_ = np.array([position[name] for name in self.features], dtype=np.intp)
        return self


def panel_method(label: str, features: Sequence[str]) -> Method:
    """Return the method that selects the features of a given list, best first.

    The method is compared only at numbers of features that do not exceed the length of the
    list.
    """
    return Method(label, label, PanelSelector(list(features)))


def with_rules(
    methods: Sequence[Method], rules: Mapping[str, Any]
) -> tuple[list[Method], list[str]]:
    """Return the methods with panel rules for SemFS, and the labels of the methods with rules.

    Rules are not supported by other selectors or by "semfs-alternating", which solves a
    different problem.

    Examples
    --------
    >>> found, ruled = with_rules([METHODS["random"], METHODS["semfs"]], {"min_per_class": 2})
    >>> ruled, found[1].params(Size(9, 3))["min_per_class"]
    (['SemFS'], 2)
    """
    if not rules:
        return list(methods), []
    found = []
    ruled = []
    for method in methods:
        if _takes_rules(method):
            method = replace(method, params=_Ruled(method.params, tuple(rules.items())))
            ruled.append(method.label)
        found.append(method)
    if not ruled:
        name = next(iter(rules))
        raise ParameterError(name, "is a rule of SemFS, but SemFS is not among the methods.")
    return found, ruled


def _takes_rules(method: Method) -> bool:
    """Whether a method is SemFS with the direct solver."""
    selector = method.new_selector()
    params = {**selector.get_params(deep=False), **method.params(Size(1, 1))}
    return isinstance(selector, SemFS) and params["solver"] == "direct"


@dataclass(frozen=True)
class _Ruled:
    """Parameters of a method with rules of a panel; a class, because workers receive it."""

    params: Callable[[Size], Params]
    rules: tuple[tuple[str, Any], ...]

    def __call__(self, size: Size) -> Params:
        """Return the parameters for a size of the data."""
        return {**self.params(size), **dict(self.rules)}


def _semfs(
    name: str,
    label: str,
    attributes: bool = True,
    **params: Any,
) -> Method:
    """Return a variant of SemFS."""
    fixed = FixedParams(tuple(params.items()))
    return Method(
        name,
        label,
        SemFS,
        fixed,
        attributes=attributes,
        has_objective=True,
    )


def _variants() -> list[Method]:
    """Return SemFS, and SemFS with other knowledge, settings and solvers."""
    return [
        _semfs("semfs", "SemFS", target_attributes=None),
        _semfs("semfs-described", "SemFS, unseen classes described"),
        replace(_semfs("semfs-unlabeled", "SemFS, unlabeled samples"), uses_unlabeled=True),
        _semfs(
            "semfs-attributes",
            "SemFS (attributes alone)",
            target_attributes=None,
            label_weight=0.0,
        ),
        _semfs("semfs-c", "SemFS/c", alpha=0.0, target_attributes=None),
        _semfs("semfs-labels", "SemFS (labels)", attributes=False),
        _semfs("semfs-published", "SemFS as published", **AS_PUBLISHED),
        _semfs(
            "semfs-eq4",
            "SemFS as published, direct solver",
            **{**AS_PUBLISHED, "solver": "direct"},
        ),
        _semfs("semfs-alternating", "SemFS alternating", solver="alternating"),
    ]


def _methods() -> list[Method]:
    """Return the methods, in the order of lists and messages."""
    return [
        Method("random", "Random", baselines.RandomSelector),
        Method("variance", "Variance", baselines.VarianceSelector),
        Method("hvg", "Highly variable genes", HighlyVariableGenes),
        Method("anova", "ANOVA F", SelectKBest, attributes=False),
        Method("markers", "Markers per class", baselines.Markers, attributes=False),
        Method(
            "between",
            "Between-class variance",
            baselines.BetweenClassSelector,
            attributes=False,
        ),
        Method("mcfs", "MCFS", baselines.MCFS, mcfs_params, mcfs_grid),
        Method(
            "fsasl",
            "FSASL",
            baselines.FSASL,
            fsasl_params,
            PaperGrid(("lambda2", "lambda3")),
            has_objective=True,
        ),
        Method(
            "lasso",
            "LASSO",
            baselines.LassoSelector,
            lasso_params,
            PaperGrid(("lam",)),
            attributes=False,
        ),
        Method(
            "l20alm",
            "L20ALM",
            baselines.L20ALM,
            l20alm_params,
            PaperGrid(("mu",)),
            attributes=False,
            has_objective=True,
        ),
        Method(
            "wknn",
            "WkNN",
            baselines.WkNN,
            wknn_params,
            PaperGrid(("lambda1",), (("lambda0", 0.0), ("lambda2", 0.0))),
            attributes=False,
            has_objective=True,
        ),
        *_variants(),
    ]


#: What scanpy calls the methods that it has, too.
OTHER_NAMES = {"rank_genes_groups": "markers", "highly_variable_genes": "hvg"}

METHODS: dict[str, Method] = {method.name: method for method in _methods()}
