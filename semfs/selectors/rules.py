"""Rules of a panel as users state them: from parameters to `Panel`, and to sentences.

Which features may be selected at all is the matter of `Candidates`; here are the rules that
concern the panel as a whole: groups, markers per class, a budget, the signal of each class.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp

from semfs._typing import FeaturesLike, Float64, Indices, Label, Mask
from semfs.attributes import AttributeTable
from semfs.method.class_means import MeanModel
from semfs.method.demands import (
    Demands,
    cheapest_panel,
    feasible_panel,
    shortfalls,
)
from semfs.method.markers import class_markers, within_deviation
from semfs.method.moments import Moments
from semfs.method.panel import Panel
from semfs.method.quadratic import Solution
from semfs.rows import Preprocessing
from semfs.validation import (
    ParameterError,
    ParameterTypeError,
    check_number,
    did_you_mean,
    listed,
    resolve_features,
)

#: Rules that concern the panel as a whole, and need solver="direct".
PANEL_RULES = ("min_per_class", "groups", "budget", "capacity")


class RuleParameters(Protocol):
    """The parameters of `SemFS` that rules are made of."""

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
    """Raise if rules contradict each other, or the solver."""
    if params.n_features_to_select is None and params.budget is None:
        message = (
            "may be None only with a budget. Give a number of features, or a budget. To have "
            "the number chosen, use SemFSCV."
        )
        raise ParameterError("n_features_to_select", message)
    if (params.costs is None) != (params.budget is None):
        given = "costs" if params.budget is None else "budget"
        missing = "budget" if params.budget is None else "costs"
        raise ParameterError(given, f"needs {missing}: give both of them, or neither.")
    low = params.min_level
    high = params.max_level
    if low is not None and high is not None and low > high:
        raise ParameterError("min_level", f"is {low:g}, above max_level={high:g}.")
    active = [name for name in PANEL_RULES if _is_set(getattr(params, name))]
    if active and params.solver != "direct":
        raise ParameterError(active[0], 'needs solver="direct".')
    # A swap looks at two features only; it could break a rule about the whole panel.
    if active and params.n_swaps:
        message = (
            f"exchanges features one by one, which {active[0]} does not allow. Set it to 0."
        )
        raise ParameterError("n_swaps", message)


def _is_set(value: object) -> bool:
    """Whether a rule is on: neither None nor 0."""
    return value is not None and not (isinstance(value, int) and value == 0)


# ---- what a class shows ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ClassLevels:
    """Class means in the units of the data, those of unseen classes predicted."""

    classes: list[Label]  # seen ones first
    n_seen: int
    means: Float64  # (C, d)
    deviation: Float64  # (d,) within classes

    @classmethod
    def of(
        cls,
        moments: Moments,
        preprocessing: Preprocessing,
        table: AttributeTable | None = None,
        unseen: AttributeTable | None = None,
    ) -> ClassLevels:
        """Return the levels of the seen classes, and of the unseen ones if they are given."""
        means = moments.means
        classes = moments.classes.tolist()
        if table is not None and unseen is not None:
            model = MeanModel.fit(table.values, moments.means)
            means = np.vstack([means, model.predict(unseen.values)])
            classes = [*classes, *unseen.classes.tolist()]
        deviation = within_deviation(moments)
        if preprocessing.scale is not None:
            # Preprocessing multiplied features by their scale; dividing by it gives the units
            # of the data. A feature that was multiplied by 0 has no unit to restore.
            scale = np.asarray(preprocessing.scale, dtype=np.float64)
            unit = np.where(scale > 0.0, scale, 1.0)
            means = means / unit
            deviation = deviation / unit
        return cls(classes, len(moments.classes), means, deviation)

    def markers(self, features: Indices | None = None) -> Mask:
        """Return which features (C, d) mark which class; of some features (C, k)."""
        if features is None:
            return class_markers(self.means, self.deviation)
        return class_markers(self.means[:, features], self.deviation[features])

    def highest(self) -> Float64:
        """Return the largest class mean of each feature (d,)."""
        return np.asarray(self.means.max(axis=0))


def outside_levels(
    params: RuleParameters,
    levels: ClassLevels,
) -> dict[str, Indices]:
    """Return the features that min_level and max_level rule out, by the rule."""
    found = {}
    # The largest class mean decides: below the window a feature is detected in no class,
    # above it one class alone may be more than the instrument can measure.
    highest = levels.highest()
    if params.min_level is not None:
        found["min_level"] = np.flatnonzero(highest < params.min_level)
    if params.max_level is not None:
        found["max_level"] = np.flatnonzero(highest > params.max_level)
    return found


# ---- parameters in all their forms ----------------------------------------------------


def group_units(
    groups: Any,
    d: int,
    names: Sequence[str] | None,
) -> tuple[Indices, list[Any]]:
    """Return the unit (d,) of each feature, counted from 0, and the labels of the units.

    ``groups`` are d labels, or a mapping or pandas Series from names of features to labels.
    Features without a label (None, NaN, an empty text, or not in the mapping) are units by
    themselves.

    Examples
    --------
    >>> group_units(["a", "b", "a", None], 4, None)
    (array([0, 1, 0, 2]), ['a', 'b', 'x3'])
    """
    labels = _values_of_features("groups", groups, d, names, missing=None)
    units: dict[Hashable, int] = {}
    unit_of = np.empty(d, dtype=np.intp)
    shown = []
    for j, label in enumerate(labels):
        # NaN is the only label that differs from itself.
        alone = label is None or label != label or label == ""
        # Tagged, because a label may be a number that is also the index of a feature.
        key: Hashable = ("feature", j) if alone else ("group", label)
        if key not in units:
            units[key] = len(units)
            shown.append(_name(j, names) if alone else label)
        unit_of[j] = units[key]
    return unit_of, shown


def feature_costs(
    costs: Any,
    d: int,
    names: Sequence[str] | None,
) -> Float64:
    """Return the cost (d,) of each feature, from d numbers or a mapping from names."""
    values = _values_of_features("costs", costs, d, names, missing=np.nan)
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterTypeError("costs", "must be numbers.") from error
    unknown = np.flatnonzero(np.isnan(found))
    if unknown.size:
        shown = listed([_name(int(j), names) for j in unknown])
        raise ParameterError("costs", f"has no cost of {unknown.size} features: {shown}.")
    wrong = np.flatnonzero(~np.isfinite(found) | (found < 0.0))
    if wrong.size:
        first = int(wrong[0])
        message = f"must be 0 or more, got {found[first]:g} for {_name(first, names)!r}."
        raise ParameterError("costs", message)
    return found


def _values_of_features(
    parameter: str,
    values: Any,
    d: int,
    names: Sequence[str] | None,
    *,
    missing: Any,
) -> list[Any]:
    """One value per feature, from d values in order, or by name from a mapping or Series."""
    if isinstance(values, str):
        raise ParameterTypeError(parameter, f"must be one value per feature, got {values!r}.")
    if not isinstance(values, Mapping) and hasattr(values, "index") and hasattr(values, "iloc"):
        index = [str(name) for name in values.index]
        # A Series is read by name if its index names features, else in order: pandas
        # numbers the rows of a Series that was given no index.
        known = {str(name) for name in (() if names is None else names)}
        if not known.isdisjoint(index):
            values = dict(zip(index, values.tolist()))
    if isinstance(values, Mapping):
        found = [missing] * d
        for name, value in values.items():
            for j in resolve_features(parameter, [name], names, d).tolist():
                found[j] = value
        return found
    array = np.asarray(values, dtype=object)
    if array.shape != (d,):
        message = f"must have one value for each of the {d} features, got shape {array.shape}."
        raise ParameterError(parameter, message)
    return list(array)


def class_capacity(capacity: Any, classes: list[Label]) -> Float64:
    """Return the capacity (C,) of each class, infinite where a mapping has none."""
    if not isinstance(capacity, Mapping):
        check_number("capacity", capacity, at_least=0.0)
        return np.full(len(classes), float(capacity))
    unknown = [label for label in capacity if label not in classes]
    if unknown:
        hint = did_you_mean(unknown[0], classes) or f". Classes: {listed(classes)}."
        raise ParameterError("capacity", f": class {unknown[0]!r} is not known{hint}")
    for value in capacity.values():
        check_number("capacity", value, at_least=0.0)
    return np.array([float(capacity.get(label, np.inf)) for label in classes])


def _name(feature: int, names: Sequence[str] | None) -> str:
    return f"x{feature}" if names is None else str(names[feature])


# ---- from parameters to a panel -------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PanelRules:
    """The rules of a fit: what the search is given, and what is said about them."""

    panel: Panel | None  # None without rules
    levels: ClassLevels
    ruled_out: Mapping[str, Indices]  # features, by the rule
    forced: Indices
    names: Sequence[str] | None
    costs: Float64 | None = None  # (U,)
    budget: float | None = None
    capacity: Float64 | None = None  # (C,)
    min_per_class: int = 0
    # unseen classes without enough markers
    not_marked: Sequence[Label] = ()

    def sentences(self, solution: Solution) -> list[str]:
        """Return what each rule ruled out, or led to, and what it cost in J."""
        selected = solution.s > 0.0
        texts = [self._mask_sentence(name, solution) for name in self.ruled_out]
        if len(self.forced):
            shown = listed([_name(int(j), self.names) for j in self.forced])
            texts.append(self._with_cost("include", f"{shown} entered first", solution))
        if self.panel is None:
            return texts
        if self.min_per_class:
            texts.append(self._with_cost("min_per_class", self._coverage(selected), solution))
        if self.panel.unit_of is not None:
            n_groups = len(np.unique(self.panel.unit_of[selected]))
            text = f"{n_groups} groups of {int(selected.sum())} features were selected"
            texts.append(self._with_cost("groups", text, solution))
        if self.costs is not None:
            units = self._units(selected)
            spent = float(self.costs[units].sum())
            text = f"{spent:g} of {self.budget:g} spent on {len(units)} features"
            texts.append(self._with_cost("budget", text, solution))
        if self.capacity is not None:
            text = self._fullest(selected)
            texts.append(self._with_cost("capacity", text, solution))
        return texts

    def _units(self, selected: Mask) -> Indices:
        """Units of the selected features."""
        assert self.panel is not None
        unit_of = self.panel.unit_of
        if unit_of is None:
            return np.flatnonzero(selected)
        return np.unique(unit_of[selected])

    def _mask_sentence(self, rule: str, solution: Solution) -> str:
        """How many features a rule keeps out, and what the best of them would add."""
        features = self.ruled_out[rule]
        text = f"{rule}: {len(features)} features ruled out"
        # If the features left are constant, none enters, and J has no course.
        nothing_selected = len(solution.objective) == 0
        if not len(features) or solution.next_gains is None or nothing_selected:
            return f"{text}."
        # The gain of a feature next to the panel: how far J would fall if it entered now.
        gains = solution.next_gains[features]
        best = int(np.argmax(gains))
        J = float(solution.objective[-1])
        share = gains[best] / max(J, np.finfo(float).tiny)
        name = _name(int(features[best]), self.names)
        return f"{text}; {name} would now lower J most, by {share:.2%}."

    def _with_cost(self, rule: str, text: str, solution: Solution) -> str:
        """A sentence about a rule, and what the rule cost in J."""
        if rule not in solution.relaxed:
            return f"{rule}: {text}."
        J = float(solution.objective[-1])
        start = float(solution.objective_start)
        # J without the rule, found among the features whose Gram columns are at hand. A full
        # search could only find less, so the increase below is the least that the rule cost.
        without = start - solution.relaxed[rule]
        if not without < J * (1.0 - 1e-9):
            return f"{rule}: {text}; it cost nothing in J."
        if without <= 1e-9 * J:
            # what is left of it is rounding: there is no share of it
            return f"{rule}: {text}; it raises J from about 0 to {J:.4g}."
        share = (J - without) / without
        return f"{rule}: {text}; it raises J by {share:.2%} or more, to {J:.4g}."

    def _coverage(self, selected: Mask) -> str:
        """The fewest markers of a class, and unseen classes that lack them."""
        counts = self.levels.markers(np.flatnonzero(selected)).sum(axis=1)
        fewest = int(counts[: self.levels.n_seen].min())
        text = f"every seen class has {fewest} markers or more ({self.min_per_class} asked for)"
        if not self.not_marked:
            return text
        shown = listed(self.not_marked)
        return f"{text}; by their predicted means too few features mark {shown}"

    def _fullest(self, selected: Mask) -> str:
        """The class whose capacity is used most."""
        assert self.capacity is not None
        used = self.levels.means[:, selected].sum(axis=1)
        # A capacity of 0 is used up by nothing at all: 0/0 counts as 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(np.isfinite(self.capacity), used / self.capacity, 0.0)
        fullest = int(np.argmax(np.nan_to_num(shares)))
        label = self.levels.classes[fullest]
        return f"class {label!r} uses most, {used[fullest]:.4g} of {self.capacity[fullest]:.4g}"


def panel_rules(
    params: RuleParameters,
    levels: ClassLevels,
    allowed: Mask,
    constant: Mask,
    forced: Indices,
    ruled_out: Mapping[str, Indices],
    names: Sequence[str] | None,
) -> PanelRules:
    """Return the rules of a fit; demands that no panel satisfies are refused.

    Parameters
    ----------
    params : RuleParameters
    levels : ClassLevels of C classes
    allowed, constant : masks of shape (d,)
        Features that may be selected, and those of one value, which may only be selected as
        part of a group.
    forced : array of int
        Features that are selected in any case.
    ruled_out : mapping
        Features that other rules keep out, by the rule.
    names : sequence of d names, optional
    """
    d = len(allowed)
    rules = PanelRules(None, levels, ruled_out, forced, names, budget=params.budget)
    active = [name for name in PANEL_RULES if _is_set(getattr(params, name))]
    if not active:
        if len(forced):
            # Features that are included need no rule, only the panel to compare with.
            k = min(params._n_wanted(d), d)
            panel = Panel(k, relaxed={"include": Panel(k)})
            rules = replace(rules, panel=panel)
        return rules
    maker = _PanelMaker(params, levels, allowed, constant, forced, names)
    return maker.rules(rules)


class _PanelMaker:
    """Turns parameters into a `Panel`: groups into units, all else into demands on units."""

    def __init__(
        self,
        params: RuleParameters,
        levels: ClassLevels,
        allowed: Mask,
        constant: Mask,
        forced: Indices,
        names: Sequence[str] | None,
    ) -> None:
        """Find the units, and which of them may or must be in the panel."""
        self.params = params
        self.levels = levels
        self.names = names
        d = len(allowed)
        self.unit_of: Indices | None = None
        self.labels: Sequence[Any] | None = names
        unit_of = np.arange(d)
        if params.groups is not None:
            unit_of, self.labels = group_units(params.groups, d, names)
            # otherwise each feature is a group by itself
            if len(self.labels) < d:
                self.unit_of = unit_of
        self.n_units = int(unit_of.max()) + 1
        # The indicator matrix (d, U) of the units: a product with it sums over each unit.
        columns = (np.ones(d), (np.arange(d), unit_of))
        self._sum = sp.csr_array(columns, shape=(d, self.n_units))
        forced_mask = np.zeros(d, dtype=bool)
        forced_mask[forced] = True
        self.forced = self.per_unit(forced_mask[None])[0] > 0.0
        # an excluded feature keeps its whole group out
        is_out = ~allowed & ~constant
        is_candidate = allowed & ~constant
        has_candidate = self.per_unit(is_candidate[None])[0] > 0.0
        has_excluded = self.per_unit(is_out[None])[0] > 0.0
        self.available = has_candidate & ~has_excluded
        self.available |= self.forced
        self.count = self._count(d)

    def per_unit(self, values: Any) -> Float64:
        """Sum values (r, d) of features over the features of each unit, (r, U)."""
        values = np.asarray(values, dtype=np.float64)
        return values if self.unit_of is None else np.asarray(values @ self._sum)

    def _count(self, d: int) -> int | None:
        """The number of units asked for: at most what there is, at least what is forced."""
        if self.params.n_features_to_select is None:
            return None
        k = self.params._n_wanted(self.n_units)
        n_available = int(self.available.sum())
        what = "features" if self.unit_of is None else "groups"
        if k > n_available:
            message = f"is {k}, but the rules leave {n_available} {what} to select from."
            raise ParameterError("n_features_to_select", message)
        n_forced = int(self.forced.sum())
        if n_forced > k:
            message = f"has {n_forced} {what}, more than n_features_to_select={k}."
            raise ParameterError("include", message)
        return k

    def rules(self, rules: PanelRules) -> PanelRules:
        """Return the rules with their panel."""
        params = self.params
        usage: list[Float64] = []
        limits: list[float] = []
        if params.budget is not None:
            costs = self._unit_costs()
            usage.append(costs)
            limits.append(float(params.budget))
            rules = replace(rules, costs=costs)
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
                raise self._refusal(demands, n_budget)
            self._check_not_empty(demands, n_budget)
        panel = Panel(
            n_units=self.count,
            unit_of=self.unit_of,
            costs=rules.costs,
            demands=demands if feasible is not None else None,
            feasible=feasible,
        )
        relaxed = self._relaxed(panel, n_budget, rules)
        return replace(rules, panel=replace(panel, relaxed=relaxed))

    def _check_not_empty(self, demands: Demands, n_budget: int) -> None:
        """Raise if every unit alone exceeds a limit: without a number, none is a panel too."""
        is_empty = self.count is None and not self.forced.any() and not len(demands.needs)
        if not is_empty:
            return
        if not self.available.any():
            message = "is None, but the rules leave nothing to select from."
            raise ParameterError("n_features_to_select", message)
        fits = (demands.usage <= demands.limits[:, None]).all(axis=0)
        if (fits & self.available).any():
            return
        if n_budget:
            cheapest = float(demands.usage[0, self.available].min())
            if cheapest > demands.limits[0]:
                limit = f"{demands.limits[0]:g}"
                message = f"of {limit} buys nothing: the cheapest feature costs {cheapest:g}."
                raise ParameterError("budget", message)
        raise ParameterError("capacity", "is below the signal of every feature.")

    def _unit_costs(self) -> Float64:
        """Cost (U,) of each unit: of its features, or by the label of its group."""
        d = self._sum.shape[0]
        costs = self.params.costs
        # A price list may name groups: then the group has one price, not one per feature.
        if self.unit_of is not None and isinstance(costs, Mapping):
            assert self.labels is not None
            labels = [str(label) for label in self.labels]
            by_label = {str(label): value for label, value in costs.items()}
            if set(by_label) & set(labels):
                return feature_costs(by_label, self.n_units, labels)
        return self.per_unit(feature_costs(costs, d, self.names)[None])[0]

    def _signal(self) -> Float64:
        """Expected signal (C, U) of each unit in each class."""
        means = self.levels.means.copy()
        n_seen = self.levels.n_seen
        # A negative signal would make room for others, which no instrument does.
        low = means[:n_seen].min(axis=0)
        negative = np.flatnonzero(low < 0.0)
        if negative.size:
            first = int(negative[0])
            message = (
                f"needs signals of 0 or more, but the mean of {_name(first, self.names)!r} in "
                f"a class is {low[first]:.3g}. Pass data that are not centered."
            )
            raise ParameterError("capacity", message)
        means[n_seen:] = np.maximum(means[n_seen:], 0.0)  # predicted
        return self.per_unit(means)

    def _with_quota(
        self, demands: Demands, rules: PanelRules, m: int
    ) -> tuple[Demands, PanelRules]:
        """Demand m markers of each class; of unseen classes as many as there can be."""
        supply = self.per_unit(self.levels.markers())
        reachable = supply[:, self.available].sum(axis=1)
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
        """Give up the needs of unseen classes, whose means are predictions."""
        n_seen = self.levels.n_seen
        rules = replace(rules, not_marked=self.levels.classes[n_seen:])
        supply = demands.supply[:n_seen]
        return replace(demands, supply=supply, needs=demands.needs[:n_seen]), rules

    # ---- without one rule --------------------------------------------------------------

    def _relaxed(
        self,
        panel: Panel,
        n_budget: int,
        rules: PanelRules,
    ) -> dict[str, Panel]:
        """The panel without each rule in turn, as far as that is a panel."""
        found: dict[str, Panel] = {}
        demands = panel.demands
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

    # ---- refusals ----------------------------------------------------------------------

    def _refusal(self, demands: Demands, n_budget: int) -> ParameterError:
        """Why no panel satisfies the demands, and the nearest that some panel does."""
        what = "features" if self.unit_of is None else "groups"
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
            return self._refuse_limits(limits_only, n_budget, what)
        return self._refuse_quota(demands, m, what)

    def _refuse_limits(
        self,
        demands: Demands,
        n_budget: int,
        what: str,
    ) -> ParameterError:
        """The budget or the capacity is too small for the number of units."""
        is_budget = np.arange(len(demands.limits)) < n_budget
        # At a price of −1 each the cheapest panel is the one of the most units.
        most = cheapest_panel(replace(demands, count=None), -np.ones(self.n_units))
        n_most = None if most is None else int(most.sum())
        wanted = "the included features" if self.count is None else f"{self.count} {what}"
        without_capacity = demands.without(usage=~is_budget)
        if n_budget and feasible_panel(without_capacity) is None:
            no_limit = demands.without(usage=np.ones(len(demands.limits), dtype=bool))
            # The first limit is the budget, so its usage are the costs.
            cheapest = cheapest_panel(no_limit, demands.usage[0])
            cost = 0.0 if cheapest is None else float(demands.usage[0][cheapest].sum())
            message = (
                f"of {self.params.budget:g} does not buy {wanted}: they cost {cost:g} or more."
            )
            return ParameterError("budget", f"{message} {_buys(n_most, what)}")
        # Only classes with a finite capacity have a limit, in their order.
        capacity = class_capacity(self.params.capacity, self.levels.classes)
        limited = np.flatnonzero(np.isfinite(capacity))
        alone = [
            self.levels.classes[c]
            for place, c in enumerate(limited.tolist())
            if self._too_small(demands, n_budget + place)
        ]
        of = f"of {listed(alone)} " if alone else ""
        message = f"{of}has no room for {wanted}. {_buys(n_most, what)}"
        return ParameterError("capacity", message)

    def _too_small(self, demands: Demands, row: int) -> bool:
        """Whether the units that use least of one limit exceed it."""
        usage = demands.usage[row]
        fixed = float(usage[demands.forced].sum())
        # No panel uses less than the forced units and the smallest of the others.
        free = np.sort(usage[demands.available & ~demands.forced])
        n_free = 0 if self.count is None else self.count - int(demands.forced.sum())
        return fixed + float(free[:n_free].sum()) > float(demands.most[row])

    def _refuse_quota(
        self,
        demands: Demands,
        m: int,
        what: str,
    ) -> ParameterError:
        """Markers of all classes do not go together with the number, budget or capacity."""
        lacking = shortfalls(demands)
        shown = ""
        if lacking is not None:
            reached = demands.needs - lacking
            short = np.flatnonzero(lacking > 0.0)
            texts = [f"{self.levels.classes[c]} ({reached[c]:g})" for c in short]
            shown = f" At best these classes have fewer: {listed(texts)}."
        largest = 0
        for fewer in range(m - 1, 0, -1):
            reduced = replace(demands, needs=np.minimum(demands.needs, fewer))
            if feasible_panel(reduced) is not None:
                largest = fewer
                break
        # At a price of 1 each the cheapest panel is the smallest that meets all needs.
        enough = cheapest_panel(replace(demands, count=None), np.ones(self.n_units))
        remedy = _at_most(largest)
        if enough is not None and self.count is not None and int(enough.sum()) > self.count:
            n_enough = int(enough.sum())
            remedy = f"{remedy} Or select {n_enough} {what}."
        of = f"{self.count} {what}" if self.count is not None else "what the budget buys"
        message = f"is {m}: {of} cannot hold so many markers of every class.{shown} {remedy}"
        return ParameterError("min_per_class", message)


def _at_most(number: int) -> str:
    return f"It can be at most {number}."


def _buys(n_most: int | None, what: str) -> str:
    """How many units are possible."""
    if n_most is None:
        return "No panel at all is possible: include less."
    return f"At most {n_most} {what} are possible."
