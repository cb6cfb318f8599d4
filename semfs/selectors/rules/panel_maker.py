"""Makes the `Panel` for the search from the parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import Float64, Indices, Mask
from semfs.feature_names import feature_name
from semfs.method.demands import Demands, feasible_panel
from semfs.method.panel import Panel
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.selectors.rules.feature_values import (
    class_capacity,
    group_units,
    unit_costs,
)
from semfs.selectors.rules.panel_rules import PanelRules
from semfs.selectors.rules.parameters import PANEL_RULES, RuleParameters, is_set
from semfs.selectors.rules.refusal import Refusal
from semfs.validation import ParameterError, counted, listed


def panel_rules(
    params: RuleParameters,
    levels: ClassLevels,
    constant: Mask,
    forced: Indices,
    ruled_out: Mapping[str, Indices],
    names: Sequence[str] | None,
) -> PanelRules:
    """Return the rules of a fit. Raise if no panel satisfies them.

    Parameters
    ----------
    params : RuleParameters
    levels : ClassLevels of C classes
    constant : mask of shape (d,)
        Constant features, which may be selected only as part of a group.
    forced : array of int
        Features that must be selected.
    ruled_out : mapping
        Features that other rules exclude, by rule.
    names : sequence of d names, optional
    """
    d = len(constant)
    rules = PanelRules(None, levels, ruled_out, forced, names, budget=params.budget)
    is_forced = np.zeros(d, dtype=bool)
    is_forced[forced] = True
    # Features may be included although a rule keeps them out.
    excluded = {rule: _mask(features, d) & ~is_forced for rule, features in ruled_out.items()}
    active = [name for name in PANEL_RULES if is_set(getattr(params, name))]
    if active:
        maker = _PanelMaker(params, levels, constant, excluded, is_forced, names)
        return maker.rules(rules)
    # Features that are included or kept out need no rule, only the panel to compare with.
    k = min(params._n_wanted(d), d)
    relaxed = {}
    for rule in excluded:
        relaxed[rule] = Panel(k, freed=_freed(excluded, rule) & ~constant)
    if len(forced):
        relaxed["include"] = Panel(k)
    if relaxed:
        rules = replace(rules, panel=Panel(k, relaxed=relaxed))
    return rules


def _mask(features: Indices, d: int) -> Mask:
    """Return a mask (d,) of some features."""
    mask = np.zeros(d, dtype=bool)
    mask[features] = True
    return mask


def _union(excluded: Mapping[str, Mask], d: int) -> Mask:
    """Return the features (d,) that at least one of the rules excludes."""
    found = np.zeros(d, dtype=bool)
    for features in excluded.values():
        found |= features
    return found


def _freed(excluded: Mapping[str, Mask], rule: str) -> Mask:
    """Return the features (d,) that only this rule excludes."""
    others = {name: features for name, features in excluded.items() if name != rule}
    return excluded[rule] & ~_union(others, len(excluded[rule]))


class _PanelMaker:
    """Makes a `Panel`: groups become units, and other parameters become demands on units."""

    def __init__(
        self,
        params: RuleParameters,
        levels: ClassLevels,
        constant: Mask,
        excluded: Mapping[str, Mask],
        forced: Mask,
        names: Sequence[str] | None,
    ) -> None:
        """Find the units, and which of them may or must be in the panel.

        ``constant`` (d,) are constant features, ``excluded`` (d,) are those that each of the
        other rules excludes, and ``forced`` (d,) are included features.
        """
        self.params = params
        self.levels = levels
        self.names = names
        self.varying = ~constant
        self.excluded = excluded
        d = len(constant)
        self.unit_of: Indices | None = None
        self.labels: Sequence[Any] | None = names
        unit_of = np.arange(d)
        if params.groups is not None:
            unit_of, self.labels = group_units(params.groups, d, names)
            # otherwise each feature is a group by itself
            if len(self.labels) < d:
                self.unit_of = unit_of
        self.n_units = int(unit_of.max()) + 1
        if self.unit_of is not None:
            # The indicator matrix (d, U) of the units: a product with it sums over each unit.
            columns = (np.ones(d), (np.arange(d), unit_of))
            self._sum = sp.csr_array(columns, shape=(d, self.n_units))
        self.forced = self._holds(forced)
        is_out = _union(excluded, d)
        self.is_out = is_out
        self.available = self._available(is_out)
        self._check_forced_groups(unit_of, forced, is_out)
        #: Costs (U,); NaN for units without a price, since those out of reach need none.
        self.costs: Float64 | None = None
        if params.budget is not None:
            prices = unit_costs(params.groups, params.costs, d, names)
            self._check_prices(prices, unit_of)
            of_units = len(prices) == self.n_units
            self.costs = prices if of_units else self.per_unit(prices[None])[0]
        self.count = self._count(d)

    def _holds(self, features: Mask) -> Mask:
        """Return the units (U,) that contain at least one of some features (d,)."""
        if self.unit_of is None:
            return features
        return np.asarray(self.per_unit(features[None])[0] > 0.0)

    def _available(self, is_out: Mask) -> Mask:
        """Return the units (U,) that may be in the panel if some features (d,) are excluded."""
        # An excluded feature keeps its whole group out, also if it has one value only.
        has_candidate = self._holds(self.varying & ~is_out)
        return (has_candidate & ~self._holds(is_out)) | self.forced

    def _check_forced_groups(self, unit_of: Indices, forced: Mask, is_out: Mask) -> None:
        """Raise if a feature is included but another feature of its group is excluded."""
        broken = np.flatnonzero(is_out & self.forced[unit_of])
        if not broken.size:
            return
        out = int(broken[0])
        included = int(np.flatnonzero(forced & (unit_of == unit_of[out]))[0])
        shown = [f"x{j}" if self.names is None else str(self.names[j]) for j in (included, out)]
        message = (
            f"has feature {shown[0]!r}, which is in a group with {shown[1]!r}, but the rules "
            f"keep {shown[1]!r} out. Include or exclude the whole group."
        )
        raise ParameterError("include", message)

    def _check_prices(self, prices: Float64, unit_of: Indices) -> None:
        """Raise if a feature (d,), or a group (U,), that may be selected has no price."""
        of_groups = self.unit_of is not None and len(prices) == self.n_units
        is_open = self.available if of_groups else self.available[unit_of]
        unpriced = np.flatnonzero(np.isnan(prices) & is_open).tolist()
        if not unpriced:
            return
        what = "groups" if of_groups else "features"
        if of_groups:
            assert self.labels is not None
            unpriced_names = [str(self.labels[unit]) for unit in unpriced]
        else:
            unpriced_names = [feature_name(j, self.names) for j in unpriced]
        message = (
            f"has no price for {len(unpriced)} of the "
            f"{int(is_open.sum())} {what} that may be selected: "
            f"{listed(unpriced_names)}. Give prices, or restrict "
            f"candidates to the priced {what}."
        )
        raise ParameterError("costs", message)

    def per_unit(self, values: Any) -> Float64:
        """Sum values (r, d) over the features of each unit, to shape (r, U)."""
        values = np.asarray(values, dtype=np.float64)
        return values if self.unit_of is None else np.asarray(values @ self._sum)

    def _count(self, d: int) -> int | None:
        """Return the number of units to select: at most all, and at least the forced ones."""
        if self.params.n_features_to_select is None:
            return None
        k = self.params._n_wanted(self.n_units)
        n_available = int(self.available.sum())
        what = "feature" if self.unit_of is None else "group"
        if k > n_available:
            left = counted(n_available, what)
            message = f"is {k}, but the rules leave {left} to select from."
            message += self._kept_out()
            raise ParameterError("n_features_to_select", message)
        n_forced = int(self.forced.sum())
        if n_forced > k:
            message = f"has {n_forced} {what}, more than n_features_to_select={k}."
            raise ParameterError("include", message)
        return k

    def _kept_out(self) -> str:
        """Return in words which groups one excluded feature keeps out, with the remedy."""
        if self.unit_of is None:
            return ""
        assert self.labels is not None
        # groups that would be available if they consisted of their other features
        others = self._holds(self.varying & ~self.is_out)
        partly = np.flatnonzero(others & self._holds(self.is_out) & ~self.forced)
        if not len(partly):
            return ""
        group = int(partly[0])
        excluded = self.is_out & (self.unit_of == group)
        feature = feature_name(int(np.flatnonzero(excluded)[0]), self.names)
        return (
            " One excluded feature keeps out its whole group, which concerns "
            f"{counted(len(partly), 'group')}, such as "
            f"{str(self.labels[group])!r} for {feature!r}. To leave out only the "
            "features themselves, remove them from the data (--drop NAME on the "
            "command line, drop=[name] for files in Python)."
        )

    def rules(self, rules: PanelRules) -> PanelRules:
        """Return the rules with their panel."""
        params = self.params
        usage: list[Float64] = []
        limits: list[float] = []
        if self.costs is not None:
            budget = float(params.budget or 0.0)
            # Units without a price are not available. A price above the budget, because
            # solvers of integer programs want finite numbers.
            usage.append(np.where(np.isnan(self.costs), 2.0 * budget + 1.0, self.costs))
            limits.append(budget)
            rules = replace(rules, costs=self.costs)
        n_budget = len(limits)
        if params.capacity is not None:
            capacity = class_capacity(params.capacity, self.levels.classes)
            rules = replace(rules, capacity=capacity)
            signal = self._signal()
            for c in np.flatnonzero(np.isfinite(capacity)).tolist():
                usage.append(signal[c])
                limits.append(float(capacity[c]))
        demands = Demands(
            available=self.available,
            forced=self.forced,
            count=self.count,
            usage=np.array(usage).reshape(len(limits), self.n_units),
            limits=np.array(limits),
            supply=np.zeros((0, self.n_units)),
            needs=np.zeros(0),
        )
        m = int(params.min_per_class)
        feasible = None
        if m:
            demands, rules = self._with_quota(demands, rules, m)
        if len(demands.limits) or len(demands.needs):
            feasible = feasible_panel(demands)
            # Predictions of unseen classes are a wish; samples of seen ones are a demand.
            if feasible is None and len(demands.needs) > self.levels.n_seen:
                demands, rules = self._without_unseen(demands, rules)
                feasible = feasible_panel(demands)
            if feasible is None:
                what = "features" if self.unit_of is None else "groups"
                raise Refusal(params, self.levels, demands, n_budget, what).error()
            self._check_not_empty(demands, n_budget)
        panel = Panel(
            n_units=self.count,
            unit_of=self.unit_of,
            costs=usage[0] if n_budget else None,
            demands=demands if feasible is not None else None,
            feasible=feasible,
        )
        relaxed = self._relaxed(panel, n_budget, rules)
        panel = replace(panel, relaxed=relaxed)
        return replace(rules, panel=panel, labels=self.labels)

    def _check_not_empty(self, demands: Demands, n_budget: int) -> None:
        """Raise if every single unit exceeds a limit, since an empty panel is no answer."""
        is_empty = self.count is None and not self.forced.any() and not len(demands.needs)
        if not is_empty:
            return
        if not self.available.any():
            message = "is None, but the rules leave no feature to select from."
            raise ParameterError("n_features_to_select", message)
        fits = (demands.usage <= demands.limits[:, None]).all(axis=0)
        if (fits & self.available).any():
            return
        if n_budget:
            cheapest = float(demands.usage[0, self.available].min())
            if cheapest > demands.limits[0]:
                limit = f"{demands.limits[0]:g}"
                of_what = "feature" if self.unit_of is None else "group"
                message = f"of {limit} is too small: the cheapest {of_what} costs {cheapest:g}."
                raise ParameterError("budget", message)
        raise ParameterError("capacity", self._no_capacity(demands, n_budget))

    def _no_capacity(self, demands: Demands, n_budget: int) -> str:
        """Return a message that names the unit, class and value that are nearest to fit."""
        capacity = class_capacity(self.params.capacity, self.levels.classes)
        limited = np.flatnonzero(np.isfinite(capacity))
        units = np.flatnonzero(self.available)
        signal = demands.usage[n_budget:, units]
        excess = signal - demands.limits[n_budget:, None]
        place = int(excess.max(axis=0).argmin())
        row = int(excess[:, place].argmax())
        what = "feature" if self.unit_of is None else "group"
        label = self.levels.classes[int(limited[row])]
        return (
            f"is smaller than the signal of every {what}. In class "
            f"{label!r}, the capacity is "
            f"{demands.limits[n_budget + row]:g}, but the closest {what} "
            f"has a signal of {signal[row, place]:.4g}. Raise the "
            "capacity."
        )

    def _signal(self) -> Float64:
        """Return the expected signal (C, U) of each unit in each class."""
        means = self.levels.measured.copy()
        n_seen = self.levels.n_seen
        # A negative signal would make room for others, which no instrument does.
        low = means[:n_seen].min(axis=0)
        negative = np.flatnonzero(low < 0.0)
        if negative.size:
            first = int(negative[0])
            name = feature_name(first, self.names)
            message = (
                f"needs signals of 0 or more, but the mean of {name!r} in "
                f"a class is {low[first]:.3g}. Pass data that are not centered."
            )
            raise ParameterError("capacity", message)
        means[n_seen:] = np.maximum(means[n_seen:], 0.0)  # predicted
        return self.per_unit(means)

    def _with_quota(
        self, demands: Demands, rules: PanelRules, m: int
    ) -> tuple[Demands, PanelRules]:
        """Demand m markers of each class, or fewer of unseen classes if there are fewer."""
        supply = self.per_unit(self.levels.markers())
        reachable = supply @ self.available.astype(np.float64)
        needs = np.full(len(supply), float(m))
        n_seen = self.levels.n_seen
        # More markers than there are cannot be demanded; for seen classes that is refused
        # later, for unseen ones it is noted.
        needs[n_seen:] = np.minimum(needs[n_seen:], reachable[n_seen:])
        short = np.flatnonzero(needs < m)
        classes = [self.levels.classes[c] for c in short.tolist()]
        rules = replace(rules, min_per_class=m, not_marked=classes)
        return replace(demands, supply=supply, needs=needs), rules

    def _without_unseen(
        self, demands: Demands, rules: PanelRules
    ) -> tuple[Demands, PanelRules]:
        """Drop the demands of unseen classes, whose means are only predicted."""
        n_seen = self.levels.n_seen
        rules = replace(rules, not_marked=self.levels.classes[n_seen:])
        supply = demands.supply[:n_seen]
        return replace(demands, supply=supply, needs=demands.needs[:n_seen]), rules

    def _relaxed(
        self,
        panel: Panel,
        n_budget: int,
        rules: PanelRules,
    ) -> dict[str, Panel]:
        """Return the panel without each rule in turn, unless there is none."""
        found: dict[str, Panel] = {}
        demands = panel.demands
        for rule in self.excluded:
            found[rule] = self._without_exclusion(panel, rule)
        if self.forced.any():
            free = None
            if demands is not None:
                free = replace(demands, forced=np.zeros_like(self.forced))
            found["include"] = replace(panel, demands=free)
        if demands is None:
            return found
        is_budget = np.arange(len(demands.limits)) < n_budget
        if len(demands.needs):
            found["min_per_class"] = replace(panel, demands=demands.without(supply=True))
        if n_budget:
            others = demands.without(usage=is_budget)
            found["budget"] = replace(panel, demands=others, costs=None)
        if rules.capacity is not None:
            found["capacity"] = replace(panel, demands=demands.without(usage=~is_budget))
        return found

    def _without_exclusion(self, panel: Panel, rule: str) -> Panel:
        """Return the panel without a rule that excludes features."""
        d = len(self.varying)
        others = {name: mask for name, mask in self.excluded.items() if name != rule}
        available = self._available(_union(others, d))
        if self.costs is not None:
            # Without the rule, features that have no price could not be bought either.
            available &= ~np.isnan(self.costs)
        new = available & ~self.available
        # A group enters with all its features, also those of one value.
        freed = new if self.unit_of is None else new[self.unit_of]
        demands = panel.demands
        if demands is not None:
            demands = replace(demands, available=available)
        return replace(panel, demands=demands, freed=freed)
