"""The parameters that define rules, and checks for contradictions."""

from __future__ import annotations

from typing import Any, Protocol

from semfs._typing import FeaturesLike
from semfs.validation import ParameterError

#: Parameters that state rules of a panel, besides features to include or to leave out.
RULE_PARAMETERS = (
    "min_per_class",
    "groups",
    "costs",
    "budget",
    "min_level",
    "max_level",
    "capacity",
)
#: Rules that concern the panel as a whole, and need solver="direct".
PANEL_RULES = ("min_per_class", "groups", "budget", "capacity")


class RuleParameters(Protocol):
    """The parameters of `SemFS` that define rules."""

    n_features_to_select: Any
    include: FeaturesLike | None
    exclude: FeaturesLike | None
    candidates: FeaturesLike | None
    min_per_class: int
    groups: Any
    costs: Any
    budget: float | None
    min_level: float | None
    max_level: float | None
    capacity: Any
    solver: str
    n_swaps: int

    def _n_wanted(self, d: int) -> int: ...


def check_rules(params: RuleParameters) -> None:
    """Raise if rules contradict each other, or if the solver does not support them."""
    if params.n_features_to_select is None and params.budget is None:
        message = (
            "may be None only with a budget. Give a number of features, or a budget. To have "
            "the number chosen, use SemFSCV."
        )
        raise ParameterError("n_features_to_select", message)
    # Prices without a budget are only shown.
    if params.costs is None and params.budget is not None:
        raise ParameterError("budget", "needs the price of each feature (costs).")
    low = params.min_level
    high = params.max_level
    if low is not None and high is not None and low > high:
        raise ParameterError("min_level", f"is {low:g}, above max_level={high:g}.")
    active = [name for name in PANEL_RULES if is_set(getattr(params, name))]
    if active and params.solver != "direct":
        raise ParameterError(active[0], 'needs solver="direct".')
    # A swap looks at two features only; it could break a rule about the whole panel.
    if active and params.n_swaps:
        message = (
            f"exchanges single features, which is not possible with {active[0]}. Set it to 0."
        )
        raise ParameterError("n_swaps", message)


def is_set(value: object) -> bool:
    """Return whether a rule is set, which means that it is neither None nor 0."""
    return value is not None and not (isinstance(value, int) and value == 0)
