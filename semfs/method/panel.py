"""Forward selection under the rules of a panel: groups, a budget, demands on the whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.demands import Demands, feasible_panel
from semfs.method.forward import forward_selection
from semfs.method.groups import GroupSearch
from semfs.method.prefetch import TIE_EPS
from semfs.method.quadratic import Monitor, Quadratic, Relaxed
from semfs.method.rules import KeepFeasible, Rule
from semfs.method.search import Search

#: Features of the best gains that are looked at whatever they cost, at least.
N_BEST = 8
#: The same as a share of the number of units, if there is one besides the budget: gain per
#: cost alone would then leave money unused. (Measured with 50 features of human lung, CUB and
#: made-up data: half as many more of the best lower J by 1 to 6 %, all of them by no more.)
BEST_SHARE = 0.5
#: Features that a rule keeps out, whose Gram columns are fetched with the first batch all the
#: same, to say what the rule costs. They widen that batch, but need no further pass.
N_FREED = 64
#: Selected groups up to which each is left out in turn: one search each.
MOST_LEFT_OUT = 64
#: Makes a rule for one search; rules remember what was selected.
RuleMaker = Callable[[], Rule]


@dataclass(frozen=True, eq=False)
class Panel:
    """The rules of a panel. A unit is a feature, or a group of features.

    Attributes
    ----------
    n_units : int or None
        Units to select; None for as many as the demands allow.
    unit_of : ndarray of shape (d,) or None
        The unit of each feature, counted from 0; None if each is one by itself.
    costs : ndarray of shape (U,) or None
        Costs of units; units are also selected by their gain per cost.
    demands : Demands or None
        What the panel must satisfy as a whole.
    feasible : mask of shape (U,) or None
        A panel that satisfies the demands.
    relaxed : mapping of str to Panel
        By the name of a rule, the panel without it.
    freed : mask of shape (d,) or None
        In a panel without a rule, the features that only this rule keeps out.
    leaves_out : bool
        Whether to say what the panel is without each of its groups.
    """

    n_units: int | None
    unit_of: Indices | None = None
    costs: Float64 | None = None
    demands: Demands | None = None
    feasible: Mask | None = None
    relaxed: Mapping[str, Panel] = field(default_factory=dict)
    freed: Mask | None = None
    leaves_out: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether the number of features is all that the panel asks for."""
        return self.demands is None and self.unit_of is None

    def most_features(self, d: int) -> int:
        """Return a number of features that no panel exceeds."""
        if self.n_units is not None:
            return min(self.n_units, d)
        demands = self.demands
        assert demands is not None
        # The cheapest units by each limit alone: no panel within it has more.
        most = d
        for usage, limit in zip(demands.usage, demands.most):
            cheapest = np.sort(usage[demands.available | demands.forced])
            most = min(most, int((np.cumsum(cheapest) <= limit).sum()))
        return most

    def restricted_to(self, features: Indices, units: Indices) -> Panel:
        """Return the same rules for some features (m,), which are those of some units."""
        demands = self.demands
        if demands is not None:
            demands = replace(
                demands,
                available=demands.available[units],
                forced=demands.forced[units],
                usage=demands.usage[:, units],
                supply=demands.supply[:, units],
            )
        unit_of = None
        if self.unit_of is not None:
            # Units are sorted, so that a unit's new number is its place among them.
            unit_of = np.searchsorted(units, self.unit_of[features])
        costs = None if self.costs is None else self.costs[units]
        return Panel(self.n_units, unit_of, costs, demands)

    def of_size(self, n_units: int) -> Panel:
        """Return the same rules for a given number of units."""
        demands = self.demands
        if demands is not None:
            demands = replace(demands, count=n_units)
        return replace(self, n_units=n_units, demands=demands)


def select_panel(
    quadratics: Sequence[Quadratic],
    caches: Sequence[ColumnCache],
    panel: Panel,
    allowed: Mask,
    forced: Mask,
    rules: Sequence[RuleMaker] = (),
    monitor: Monitor | None = None,
    copies: NearCopies | None = None,
) -> Search:
    """Return the search that found the best panel; of a budget the better one of two.

    Selecting by gain per cost alone can be arbitrarily bad: a cheap feature of little gain
    comes before an expensive one of large gain. So features are also selected by gain alone,
    among those that were selected by gain per cost and those of largest gain. The answer
    depends on the problem alone, and not on which Gram columns were fetched.
    """
    # Rules remember what was selected, so each search makes new ones.
    makers = (rules, copies)
    search = _new_search(quadratics, caches, panel, allowed, forced, makers, panel.costs)
    freed = _best_freed(search, panel)
    search.prefetch_too(freed)
    if panel.costs is None:
        forward_selection(search, monitor)
        return search
    best = _best_alone(search, panel)
    search.prefetch_too(np.union1d(best, freed))
    forward_selection(search, monitor)
    if len(search.selected) < search.n_select and search.best(search.gains()) is not None:
        return search  # the monitor ended it
    among = search.is_selected | forced
    among[best] = True
    # Gains that are equal up to rounding are ties, and of ties the first search wins.
    enough = sum(search.decreases) * (1.0 + TIE_EPS * search.eps)
    if not rules and _decrease_among(search, panel, among) <= enough:
        return search
    fewer = _panel_among(panel, search.is_selected, among)
    other = _new_search(quadratics, caches, fewer, among, forced, makers, None)
    forward_selection(other)
    if sum(other.decreases) <= enough:
        return search
    other.allowed = allowed  # the ranking is of all features
    return other


def _panel_among(panel: Panel, selected: Mask, among: Mask) -> Panel:
    """The same rules among a few features (d,); what was selected shows that they can be met.

    Otherwise a search among the few could rely on others, and end with too few of them.
    """
    if panel.demands is None:
        return panel
    if panel.unit_of is not None:
        n_units = len(panel.demands.available)
        selected = np.bincount(panel.unit_of[selected], minlength=n_units) > 0
        among = np.bincount(panel.unit_of[~among], minlength=n_units) == 0
    demands = replace(panel.demands, available=panel.demands.available & among)
    return replace(panel, demands=demands, feasible=selected)


def _decrease_among(search: Search, panel: Panel, among: Mask) -> float:
    """How far J falls if features are selected by gain alone, among a few (d,) of them."""
    # A search on a problem of the few features alone takes next to no time.
    features = np.flatnonzero(among)
    units = features if panel.unit_of is None else np.unique(panel.unit_of[features])
    small = replace(panel.restricted_to(features, units), costs=None)
    if small.n_units is not None:
        small = replace(small, n_units=min(small.n_units, len(units)))
    if small.demands is not None:
        # what was selected is a panel that satisfies the demands
        selected = search.is_selected[features]
        chosen = selected
        if small.unit_of is not None:
            chosen = np.bincount(small.unit_of[selected], minlength=len(units)) > 0
        small = replace(small, feasible=chosen)
    quadratics = [
        _restricted(quadratic, cache, features)
        for quadratic, cache in zip(search.quadratics, search.caches)
    ]
    caches = [ColumnCache(quadratic.columns) for quadratic in quadratics]
    allowed = np.ones(len(features), dtype=bool)
    copies = None if search.copies is None else _CopiesAmong(search.copies, features)
    required = search.required[features]
    found = select_panel(quadratics, caches, small, allowed, required, copies=copies)
    return sum(found.decreases)


class _CopiesAmong(NearCopies):
    """Near copies among some features (m,), which are counted from 0."""

    def __init__(self, copies: NearCopies, features: Indices) -> None:
        self.max_correlation = copies.max_correlation
        self._all = copies
        self._features = features

    def find(self, features: Iterable[int]) -> None:
        """Find near copies of some features."""
        self._all.find(self._features[list(features)].tolist())

    def of(self, feature: int) -> Indices:
        """Return the near copies of a feature."""
        copies = self._all.of(int(self._features[feature]))
        return np.flatnonzero(np.isin(self._features, copies))


def _best_alone(search: Search, panel: Panel) -> Indices:
    """The features that may be selected whose gains are the largest with nothing selected."""
    demands = panel.demands
    gains = np.where(search.allowed, search.gains(), -1.0)
    if demands is not None:
        affordable = np.asarray((demands.usage <= demands.most[:, None]).all(axis=0))
        if panel.unit_of is not None:
            affordable = affordable[panel.unit_of]
        gains[~affordable] = -1.0
    n_best = N_BEST
    if panel.n_units is not None:
        n_best = max(N_BEST, int(BEST_SHARE * panel.n_units))
    best = np.argsort(-gains, kind="stable")[:n_best]
    best = best[gains[best] >= 0.0]
    if panel.unit_of is not None:
        # A group enters with all its features.
        best = np.flatnonzero(np.isin(panel.unit_of, panel.unit_of[best]))
    return best[search.allowed[best]]


def _new_search(
    quadratics: Sequence[Quadratic],
    caches: Sequence[ColumnCache],
    panel: Panel,
    allowed: Mask,
    forced: Mask,
    makers: tuple[Sequence[RuleMaker], NearCopies | None],
    costs: Float64 | None,
) -> Search:
    """A search with nothing selected, and rules that know it; groups may have near copies."""
    rule_makers, copies = makers
    rules = [make() for make in rule_makers]
    if panel.demands is not None and panel.feasible is not None:
        rules.append(KeepFeasible(panel.demands, panel.feasible, panel.unit_of))
    if panel.unit_of is not None:
        return GroupSearch(
            quadratics,
            caches,
            panel.n_units,
            allowed,
            forced,
            panel.unit_of,
            rules,
            costs,
        )
    n_select = panel.most_features(len(allowed))
    return Search(quadratics, caches, n_select, allowed, forced, copies, rules, costs)


def _best_freed(search: Search, panel: Panel) -> Indices:
    """Of the features that rules keep out, a few whose gains are the largest at the start."""
    found = np.zeros(0, dtype=np.intp)
    gains = search.gains()
    for other in panel.relaxed.values():
        if other.freed is None:
            continue
        features = np.flatnonzero(other.freed)
        if len(features) > N_FREED:
            features = _first_units(features, gains, other.unit_of)
        found = np.union1d(found, features)
    return found


def _first_units(
    features: Indices,
    gains: Float64,
    unit_of: Indices | None,
) -> Indices:
    """About `N_FREED` of many features: those of the largest gains, in whole groups."""
    if unit_of is None:
        by_gain = np.argsort(-gains[features], kind="stable")
        return features[by_gain[:N_FREED]]
    _, unit = np.unique(unit_of[features], return_inverse=True)
    sizes = np.bincount(unit)
    by_gain = np.argsort(-np.bincount(unit, gains[features]), kind="stable")
    n_units = int((np.cumsum(sizes[by_gain]) <= N_FREED).sum())
    # A group larger than that is looked at nevertheless, if it is the best.
    return features[np.isin(unit, by_gain[: max(n_units, 1)])]


def relaxed_panels(search: Search, panel: Panel) -> dict[str, Relaxed]:
    """Return how far J falls without each rule in turn, at least.

    Only features whose Gram columns were computed already can be selected, so this costs no
    pass over the data and hardly any time.
    """
    if not search.selected:
        return {}
    found = {name: _without_rule(search, panel, name) for name in panel.relaxed}
    return {name: relaxed for name, relaxed in found.items() if relaxed is not None}


def _without_rule(
    search: Search,
    panel: Panel,
    name: str,
) -> Relaxed | None:
    """What is found without a rule among the features at hand; None if they hold no panel."""
    other = panel.relaxed[name]
    freed = np.zeros_like(search.allowed) if other.freed is None else other.freed
    # A search among fewer features finds no more than one among all: a lower bound.
    features = _at_hand(search, freed, other.unit_of)
    quadratics = [
        _restricted(quadratic, cache, features)
        for quadratic, cache in zip(search.quadratics, search.caches)
    ]
    caches = [ColumnCache(quadratic.columns) for quadratic in quadratics]
    units = features if other.unit_of is None else np.unique(other.unit_of[features])
    small = other.restricted_to(features, units)
    # Without a budget nothing would end the search; as many units as it bought do.
    if name == "budget" and small.n_units is None:
        small = small.of_size(search.n_selected_units)
    if small.n_units is not None:
        small = replace(small, n_units=min(small.n_units, len(units)))
    if small.demands is not None:
        # What was selected is a panel without the rule, too.
        selected = search.is_selected[features]
        if small.unit_of is not None:
            selected = np.bincount(small.unit_of[selected], minlength=len(units)) > 0
        assert small.demands is not None
        if not small.demands.met_by(selected):  # a monitor may have ended the search
            return None
        small = replace(small, feasible=selected)
    allowed = np.ones(len(features), dtype=bool)
    forced = search.required[features]
    if name == "include":
        forced = np.zeros_like(forced)
    copies = None if search.copies is None else _CopiesAmong(search.copies, features)
    best = select_panel(quadratics, caches, small, allowed, forced, copies=copies)
    entered = features[np.array(best.selected, dtype=np.intp)]
    return Relaxed(float(sum(best.decreases)), entered)


def left_out_decreases(search: Search, panel: Panel) -> dict[int, float]:
    """Return how far J falls without each selected group in turn, by the group.

    Only features whose Gram columns were computed already can take its place, so J may fall
    further. Groups whose place nothing at hand can take under the rules are left out.
    """
    unit_of = panel.unit_of
    if unit_of is None or search.n_selected_units > MOST_LEFT_OUT:
        return {}
    at_hand = _at_hand(search, np.zeros_like(search.allowed), unit_of)
    found = {}
    for unit in dict.fromkeys(unit_of[search.selected].tolist()):
        features = at_hand[unit_of[at_hand] != unit]
        if not len(features):
            continue
        units = np.unique(unit_of[features])
        small = panel.restricted_to(features, units)
        if small.n_units is not None and small.n_units > len(units):
            continue
        if small.demands is not None:
            small = replace(small, feasible=feasible_panel(small.demands))
            if small.feasible is None:
                continue
        quadratics = [
            _restricted(quadratic, cache, features)
            for quadratic, cache in zip(search.quadratics, search.caches)
        ]
        caches = [ColumnCache(quadratic.columns) for quadratic in quadratics]
        allowed = np.ones(len(features), dtype=bool)
        best = select_panel(quadratics, caches, small, allowed, search.required[features])
        if best.selected:
            found[unit] = float(sum(best.decreases))
    return found


def _at_hand(
    search: Search,
    freed: Mask,
    unit_of: Indices | None,
) -> Indices:
    """Features that may be selected, or are freed, and whose Gram columns were computed."""
    allowed = search.allowed | search.forced | freed
    if unit_of is not None:
        # Of a group one of whose features is kept out, none may be selected.
        allowed &= np.bincount(unit_of[~allowed], minlength=len(allowed))[unit_of] == 0
    is_copy = (search.copy_of >= 0) & ~search.is_selected & ~freed
    features = np.sort(np.array(search.caches[0].features, dtype=np.intp))
    return features[(allowed & ~is_copy)[features]]


def _restricted(
    quadratic: Quadratic,
    cache: ColumnCache,
    features: Indices,
) -> Quadratic:
    """Return the same J for some features (m,), whose Gram columns are at hand."""
    G = cache.among(features)

    def columns(places: Indices) -> Float64:
        return G[:, places]

    return replace(
        quadratic,
        B=quadratic.B[features],
        diag=quadratic.diag[features],
        columns=columns,
        estimate=None,
    )
