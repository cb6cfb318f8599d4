"""Forward selection under the rules of a panel: groups, a budget, demands on the whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.demands import Demands, feasible_panel
from semfs.method.groups import GroupSearch
from semfs.method.quadratic import Monitor, Quadratic
from semfs.method.rules import KeepFeasible, Rule
from semfs.method.search import Search, grow

#: Features of the best gains that are looked at whatever they cost.
N_BEST = 8
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
    """

    n_units: int | None
    unit_of: Indices | None = None
    costs: Float64 | None = None
    demands: Demands | None = None
    feasible: Mask | None = None
    relaxed: Mapping[str, Panel] = field(default_factory=dict)

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

    Selecting by gain per cost alone can be arbitrarily bad: a little for next to nothing comes
    before a lot that is dear. So features are also selected by gain alone, among those whose
    columns are at hand and the best few of all.
    """
    # Rules remember what was selected, so each search makes new ones.
    makers = (rules, copies)
    search = _new_search(quadratics, caches, panel, allowed, forced, makers, panel.costs)
    grow(search, monitor)
    if panel.costs is None:
        return search
    at_hand = _at_hand(search, allowed, forced, panel.unit_of)
    other = _new_search(quadratics, caches, panel, at_hand, forced, makers, None)
    grow(other)
    if sum(other.decreases) <= sum(search.decreases):
        return search
    other.allowed = allowed  # the ranking is of all features
    return other


def _at_hand(
    search: Search,
    allowed: Mask,
    forced: Mask,
    unit_of: Indices | None,
) -> Mask:
    """Features (d,) whose columns were fetched, after those of the best first gains are."""
    # With nothing selected R = B and δ_j = G_jj + γ: the first gains ‖B_j‖²/(G_jj + γ)
    # need no column of G.
    first = np.zeros(len(allowed))
    for quadratic in search.quadratics:
        squares = np.einsum("ij,ij->i", quadratic.B, quadratic.B)
        pivots = np.maximum(quadratic.diag + quadratic.gamma, np.finfo(float).tiny)
        first += squares / pivots
    first = np.where(allowed, first, -1.0)
    best = np.argsort(-first, kind="stable")[:N_BEST]
    if unit_of is not None:
        # The gain of a group needs the columns of all its features.
        best = np.flatnonzero(np.isin(unit_of, unit_of[best]))
    found = np.zeros(len(allowed), dtype=bool)
    for cache in search.caches:
        cache.fetch(best.tolist())
        if search.copies is not None:
            search.copies.find(best.tolist())
        found[cache.features] = True
    return (found & allowed) | forced


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


def relaxed_decreases(
    search: Search, panel: Panel, rules: Sequence[RuleMaker] = ()
) -> dict[str, float]:
    """Return how far J falls without each rule in turn, at least.

    Only features whose Gram columns are at hand are selected, so it costs no pass over the
    data and next to no time.
    """
    found = {}
    # A search among fewer features finds no more than one among all: a lower bound.
    features = np.sort(np.array(search.caches[0].features, dtype=np.intp))
    features = features[(search.allowed | search.forced)[features]]
    is_copy = (search.copy_of >= 0) & ~search.is_selected
    features = features[~is_copy[features]]
    quadratics = [
        _restricted(quadratic, cache, features)
        for quadratic, cache in zip(search.quadratics, search.caches)
    ]
    caches = [ColumnCache(quadratic.columns) for quadratic in quadratics]
    for name, other in panel.relaxed.items():
        units = features
        if other.unit_of is not None:
            units = np.unique(other.unit_of[features])
        small = other.restricted_to(features, units)
        # Without a budget nothing would end the search; as many units as it bought do.
        if name == "budget" and small.n_units is None:
            small = small.of_size(search.n_selected_units)
        if small.n_units is not None:
            small = replace(small, n_units=min(small.n_units, len(units)))
        if small.demands is not None:
            small = replace(small, feasible=feasible_panel(small.demands))
            # The few features at hand may hold no panel; then nothing is said of the rule.
            if small.feasible is None:
                continue
        allowed = np.ones(len(features), dtype=bool)
        forced = search.required[features]
        if name == "include":
            forced = np.zeros_like(forced)
        best = select_panel(quadratics, caches, small, allowed, forced)
        found[name] = float(sum(best.decreases))
    return found


def _restricted(
    quadratic: Quadratic,
    cache: ColumnCache,
    features: Indices,
) -> Quadratic:
    """The same J for some features (m,), whose Gram columns are at hand."""
    G = cache.stacked(features.tolist())[features]

    def columns(places: Indices) -> Float64:
        return G[:, places]

    return replace(
        quadratic,
        B=quadratic.B[features],
        diag=quadratic.diag[features],
        columns=columns,
        estimate=None,
    )
