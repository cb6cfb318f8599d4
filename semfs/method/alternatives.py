"""What a panel would be without one of its rules, or without one of its groups.

These are searches among the features whose Gram columns a fit has computed, so they need no
pass over the data. They say what a rule costs, and a group is worth, and are made only if
somebody asks: each takes about as long as the steps of the fit itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from semfs._typing import Indices, Mask
from semfs.arrays import quiet_overflow
from semfs.method.demands import feasible_panel
from semfs.method.panel import Panel
from semfs.method.panel_search import search_among
from semfs.method.quadratic import Relaxed
from semfs.method.search import Search
from semfs.method.small_problem import SmallProblem

#: Selected groups up to which each is left out in turn: one search each.
MOST_LEFT_OUT = 64


@dataclass(frozen=True, eq=False)
class Relaxation:
    """A panel to be found without one of the rules, among the features at hand."""

    problem: SmallProblem
    freed: Mask  # (m,), features that only this rule keeps out

    @quiet_overflow
    def solve(self) -> Relaxed:
        """Return the panel that is found. More features at hand could only be better."""
        best = search_among(self.problem)
        entered = np.array(best.selected, dtype=np.intp)
        return Relaxed(
            decrease=float(sum(best.decreases)),
            features=self.problem.features[entered],
            freed=self.problem.features[entered[self.freed[entered]]],
        )


def without_each_rule(search: Search, panel: Panel) -> Callable[[], Mapping[str, Relaxed]]:
    """Return a function that finds the panel without each rule in turn, by the rule."""
    # What a search needs is collected now, because the Gram columns do not outlive the fit.
    relaxations = {}
    if search.selected:
        found = {name: _relaxation(search, panel, name) for name in panel.relaxed}
        relaxations = {name: one for name, one in found.items() if one is not None}

    def solve() -> Mapping[str, Relaxed]:
        return {name: relaxation.solve() for name, relaxation in relaxations.items()}

    return solve


def _relaxation(search: Search, panel: Panel, name: str) -> Relaxation | None:
    """The panel without a rule; None if what was selected is no panel then."""
    other = panel.relaxed[name]
    freed = np.zeros_like(search.allowed) if other.freed is None else other.freed
    features = _at_hand(search, freed, other.unit_of)
    # Without a budget nothing would end the search; as many units as it bought do.
    if name == "budget" and other.n_units is None:
        other = other.of_size(search.n_selected_units)
    forced = search.required
    if name == "include":
        forced = np.zeros_like(forced)
    problem = SmallProblem.of(search, other, features, forced)
    demands = problem.panel.demands
    selected = problem.panel.feasible
    # What was selected is a panel without the rule, too, unless a monitor ended the search.
    if demands is not None and selected is not None and not demands.met_by(selected):
        return None
    return Relaxation(problem, freed[features])


def without_each_group(search: Search, panel: Panel) -> Callable[[], Mapping[int, float]]:
    """Return a function that finds how far J falls without each selected group in turn.

    Only features at hand can take its place, so J may fall further. Groups whose place nothing
    at hand can take under the rules are left out.
    """
    unit_of = panel.unit_of
    if unit_of is None or not 0 < search.n_selected_units <= MOST_LEFT_OUT:
        return dict
    features = _at_hand(search, np.zeros_like(search.allowed), unit_of)
    problem = SmallProblem.of(search, panel, features, search.required)
    selected = list(dict.fromkeys(unit_of[search.selected].tolist()))
    units = unit_of[features]

    @quiet_overflow
    def solve() -> Mapping[int, float]:
        found = {}
        for unit in selected:
            decrease = _decrease_without(problem, np.flatnonzero(units != unit))
            if decrease is not None:
                found[unit] = decrease
        return found

    return solve


def _decrease_without(problem: SmallProblem, others: Indices) -> float | None:
    """How far J falls with some of the features only; None if they hold no panel."""
    if not len(others):
        return None
    n_units = problem.panel.n_units
    if n_units is not None and n_units > len(problem.panel.units_of(others)):
        return None
    fewer = problem.among(others)
    panel = fewer.panel
    if panel.demands is not None:
        feasible = feasible_panel(panel.demands)
        if feasible is None:
            return None
        # the search keeps a way open to this panel
        fewer = replace(fewer, panel=replace(panel, feasible=feasible))
    best = search_among(fewer)
    return float(sum(best.decreases)) if best.selected else None


def _at_hand(search: Search, freed: Mask, unit_of: Indices | None) -> Indices:
    """Features that may be selected, or are freed, and whose Gram entries are at hand."""
    allowed = search.allowed | search.forced | freed
    if unit_of is not None:
        # Of a group one of whose features is kept out, none may be selected.
        allowed &= np.bincount(unit_of[~allowed], minlength=len(allowed))[unit_of] == 0
    # a near copy would only be selected after everything else
    is_copy = (search.copy_of >= 0) & ~search.is_selected & ~freed
    features = search.at_hand()
    return features[(allowed & ~is_copy)[features]]
