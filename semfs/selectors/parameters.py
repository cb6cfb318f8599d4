"""The parameters of `SemFS` that other modules need, as a protocol."""

from __future__ import annotations

from typing import Any, Protocol

from semfs.selectors.rules.parameters import RuleParameters


class MethodParameters(RuleParameters, Protocol):
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
    max_iter: int
    tol: float
    n_inner: int
    step: str | float
    s_init: Any
