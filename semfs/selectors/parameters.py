"""The parameters of `SemFS`, as the modules that it calls see them."""

from __future__ import annotations

from typing import Any, Protocol


class MethodParameters(Protocol):
    """The parameters of `SemFS` that a problem depends on."""

    attributes: Any
    alpha: float
    gamma: float
    penalty_scale: str
    fit_intercept: bool
    class_weight: Any
    label_weight: float
    max_correlation: float | None
    target_attributes: Any
    n_new_classes: int | str
    n_features_to_select: Any
    include: Any
    exclude: Any
    candidates: Any
    min_per_class: int
    groups: Any
    costs: Any
    budget: float | None
    min_level: float | None
    max_level: float | None
    capacity: Any
    solver: str
    max_iter: int
    tol: float
    n_inner: int
    step: str | float
    s_init: Any
    n_swaps: int

    def _n_wanted(self, d: int) -> int: ...
