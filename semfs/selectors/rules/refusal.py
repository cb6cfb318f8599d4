"""Errors for rules that no panel satisfies, with a rule to change and by how much."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from semfs._typing import Mask
from semfs.method.demands import (
    Demands,
    cheapest_panel,
    feasible_panel,
    largest_number,
    shortfalls,
    smallest_stretch,
)
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.selectors.rules.feature_values import class_capacity
from semfs.selectors.rules.parameters import RuleParameters
from semfs.validation import ParameterError, listed


@dataclass(frozen=True, eq=False)
class Refusal:
    """Why no panel satisfies the demands, and similar demands that some panel satisfies."""

    params: RuleParameters
    levels: ClassLevels
    demands: Demands
    n_budget: int  # so many of the limits, the first ones, are budgets
    what: str  # what is counted: "features" or "groups"

    def error(self) -> ParameterError:
        """Return the error, which names the reason and the parameter to change."""
        demands = self.demands
        m = int(self.params.min_per_class)
        reachable = demands.supply[:, demands.available].sum(axis=1)
        too_few = np.flatnonzero(reachable < demands.needs)
        # From the simplest reason to the most involved: too few markers at all, limits that
        # are too tight without any markers, and only then markers and limits together.
        if too_few.size:
            classes = self.levels.classes
            shown = listed([f"{classes[c]} ({reachable[c]:g})" for c in too_few])
            largest = int(reachable.min())
            message = f"is {m}, but fewer features mark these classes: {shown}."
            return ParameterError("min_per_class", f"{message} {_at_most(largest)}")
        limits_only = demands.without(supply=True)
        if feasible_panel(limits_only) is None:
            return self._of_limits(limits_only)
        return self._of_quota(m)

    def _of_limits(self, demands: Demands) -> ParameterError:
        """Return the error if budget or capacity is too small for the number of units."""
        is_budget = np.arange(len(demands.limits)) < self.n_budget
        possible = self._possible()
        wanted = "the included features"
        if demands.count is not None:
            wanted = _counted(demands.count, self.what)
        without_capacity = demands.without(usage=~is_budget)
        if self.n_budget and feasible_panel(without_capacity) is None:
            no_limit = demands.without(usage=np.ones(len(demands.limits), dtype=bool))
            # The first limit is the budget, so its usage are the costs.
            cheapest = cheapest_panel(no_limit, demands.usage[0])
            cost = 0.0 if cheapest is None else float(demands.usage[0][cheapest].sum())
            least = _rounded_up(cost)
            message = (
                f"of {self.params.budget:g} is too small for {wanted}, which cost at least "
                f"{least}."
            )
            return ParameterError("budget", f"{message} {possible}".rstrip())
        # Only classes with a finite capacity have a limit, in their order.
        capacity = class_capacity(self.params.capacity, self.levels.classes)
        limited = np.flatnonzero(np.isfinite(capacity))
        alone = [
            self.levels.classes[c]
            for place, c in enumerate(limited.tolist())
            if _too_small(demands, self.n_budget + place)
        ]
        of = f"of class {listed(alone)} " if len(alone) == 1 else ""
        if len(alone) > 1:
            of = f"of the classes {listed(alone)} "
        message = f"{of}is too small for {wanted}. {self._enough(~is_budget)}"
        return ParameterError("capacity", f"{message}{possible}".rstrip())

    def _possible(self) -> str:
        """Return in words how many units the limits allow, or "" if that is unknown."""
        used = self.demands.usage[:, self.demands.forced].sum(axis=1)
        if (used > self.demands.most).any():
            return (
                "The included features alone exceed this limit. Include "
                "fewer features, or raise the limit."
            )
        n_most = largest_number(self.demands)
        if n_most is None:
            return ""
        if n_most == 0:
            return f"None of the {self.what} fits within the limit."
        verb = "is" if n_most == 1 else "are"
        return f"At most {_counted(n_most, self.what)} {verb} possible."

    def _enough(self, stretched: Mask) -> str:
        """Return in words the nearest sufficient capacity, or "" if that is unknown."""
        factor = smallest_stretch(self.demands, stretched)
        if factor is None:
            return ""
        capacity = self.params.capacity
        if isinstance(capacity, Mapping):
            return f"{_rounded_up(factor)} times as much would suffice. "
        return f"{_rounded_up(factor * float(capacity))} would suffice. "

    def _of_quota(self, m: int) -> ParameterError:
        """Return the error if markers of all classes do not fit number, budget or capacity."""
        demands = self.demands
        count = demands.count
        lacking = shortfalls(demands)
        shown = ""
        if lacking is not None:
            reached = demands.needs - lacking
            short = np.flatnonzero(lacking > 0.0)
            texts = [f"{self.levels.classes[c]} ({reached[c]:g})" for c in short]
            shown = f" Even at best, these classes have fewer: {listed(texts)}."
        largest = 0
        for fewer in range(m - 1, 0, -1):
            reduced = replace(demands, needs=np.minimum(demands.needs, fewer))
            if feasible_panel(reduced) is not None:
                largest = fewer
                break
        # At a price of 1 each the cheapest panel is the smallest that meets all needs.
        enough = cheapest_panel(replace(demands, count=None), np.ones(len(demands.available)))
        remedy = _at_most(largest)
        if enough is not None and count is not None and int(enough.sum()) > count:
            remedy = f"{remedy} Or select {_counted(int(enough.sum()), self.what)}."
        elif self.n_budget:
            remedy += self._dearer()
        of = _counted(count, self.what) if count is not None else "what the budget buys"
        message = (
            f"is {m}, but {of} cannot hold that many markers of every class.{shown} {remedy}"
        )
        return ParameterError("min_per_class", message)

    def _dearer(self) -> str:
        """Return in words the smallest budget that satisfies all demands."""
        demands = self.demands
        is_budget = np.arange(len(demands.limits)) < self.n_budget
        cheapest = cheapest_panel(demands.without(usage=is_budget), demands.usage[0])
        if cheapest is None:
            return ""
        cost = float(demands.usage[0][cheapest].sum())
        return f" Or raise the budget to {_rounded_up(cost)}."


def _too_small(demands: Demands, row: int) -> bool:
    """Return whether even the units that use least of a limit exceed it."""
    usage = demands.usage[row]
    fixed = float(usage[demands.forced].sum())
    # No panel uses less than the forced units and the smallest of the others.
    free = np.sort(usage[demands.available & ~demands.forced])
    n_free = 0 if demands.count is None else demands.count - int(demands.forced.sum())
    return fixed + float(free[:n_free].sum()) > float(demands.most[row])


def _at_most(number: int) -> str:
    return f"It can be at most {number}." if number else "Set it to 0, or relax other rules."


def _counted(n: int, what: str) -> str:
    """Return a number of features or groups in words: "1 feature", "2 features"."""
    return f"{n} {what}" if n != 1 else f"{n} {what.removesuffix('s')}"


def _rounded_up(value: float) -> str:
    """Round a value up to four digits, so that the result can be used as a limit."""
    digits = 3 - math.floor(math.log10(value)) if value > 0.0 else 0
    return f"{math.ceil(value * 10.0**digits * (1.0 - 1e-12)) / 10.0**digits:.10g}"
