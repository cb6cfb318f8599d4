"""A method of a comparison: a selector with a name, parameters and a grid."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

from sklearn.base import BaseEstimator, clone
from sklearn.utils import get_tags

from semfs.system import memory_limit

#: Share of the memory that one dense copy of the samples may take: every worker process has
#: one, and methods make copies.
DENSE_SHARE = 1 / 16

#: Parameters of a selector, as JSON values.
Params: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Size:
    """Properties of a problem on which default parameters can depend.

    Parameters
    ----------
    n_samples, n_classes : int
        Numbers of samples and classes of the seen part of a split.
    fast : bool
        Whether this is a quick trial (`--fast`).
    dense_bytes : int
        Size of the seen samples as a dense array if they are sparse, otherwise 0.
    """

    n_samples: int
    n_classes: int
    fast: bool = False
    dense_bytes: int = 0


def no_params(size: Size) -> Params:
    """Return no parameters, which means the defaults of the selector."""
    return {}


def no_grid(size: Size) -> list[Params]:
    """Return no grid points, which means that the method is not tuned."""
    return []


@dataclass(frozen=True)
class Method:
    """A selector with a name, parameters, and the grid on which an oracle tunes it.

    Parameters
    ----------
    name, label : str
        Names on the command line and in tables and figures.
    selector : class or instance
        A scikit-learn selector.
    params, grid : callable
        ``params(size)`` and ``grid(size)`` return JSON values.
    attributes : bool or None
        Whether the method is supervised by class descriptions (True), by class labels (False),
        or by neither (None).
    uses_unlabeled : bool
        Whether ``fit`` gets unlabeled samples of the unseen classes.
    has_objective : bool or None
        Whether the fitted selector has ``objective_``, or None if this is unknown.
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
        """Return whether the selector has all these parameters."""
        return set(params) <= set(self.new_selector().get_params(deep=False))

    def takes_sparse(self) -> bool:
        """Return whether the selector says that it can be fitted to sparse samples."""
        return bool(get_tags(self.new_selector()).input_tags.sparse)

    def fits_in_memory(self, size: Size) -> bool:
        """Return whether samples that must be made dense are small enough for this machine."""
        return self.takes_sparse() or size.dense_bytes <= DENSE_SHARE * memory_limit()
