"""Demands on a panel as a whole, and whether any panel satisfies them.

Demands are the number of units, upper limits (a budget, a capacity) and lower limits (markers
of a class). A simple construction often finds a panel at once. Otherwise integer programming
decides exactly whether there is one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import scipy.sparse as sp
from scipy.optimize import Bounds, LinearConstraint, milp

from semfs._typing import Float64, Indices, Mask

#: Sums of costs or signals may exceed a limit by this share of it: rounding.
ROUNDING = 1e-9
#: Seconds after which a decision is given up. None that we met took one.
LONGEST_DECISION = 60.0
#: The status of scipy's `milp` that says so.
TIME_LIMIT = 1
#: Units beyond those needed that are looked at before all of them are.
SPARE_UNITS = 8
#: With more units integer programming takes long, the square of their number: as few as these,
#: of each kind and of all, are looked at before all of them are.
MANY_UNITS = 1000
#: Seconds, and share of the answer, within which the nearest limits are looked for: they are
#: advice in a message, and any limits that some panel keeps are good advice.
LONGEST_ADVICE = 10.0
ADVICE_GAP = 0.01


@dataclass(frozen=True, eq=False)
class Demands:
    """Demands on a panel of units. A unit is a feature or a group of features.

    Attributes
    ----------
    available, forced : masks of shape (U,)
        Units that may be in the panel, and units that must be in it.
    count : int or None
        The number of units. None if any number is allowed.
    usage : ndarray of shape (r, U)
        What a unit uses of each limit, such as its cost or its signal in a class.
    limits : ndarray of shape (r,)
        The largest total usage allowed.
    supply : ndarray of shape (s, U)
        What a unit supplies, such as a marker of a class.
    needs : ndarray of shape (s,)
        The smallest total supply required.
    """

    available: Mask
    forced: Mask
    count: int | None
    usage: Float64
    limits: Float64
    supply: Float64
    needs: Float64

    @cached_property
    def most(self) -> Float64:
        """The limits (r,), with a tolerance for rounding."""
        return self.limits + ROUNDING * np.abs(self.limits)

    def met_by(self, units: Mask) -> bool:
        """Return whether a panel satisfies all demands."""
        if self.count is not None and int(units.sum()) != self.count:
            return False
        used = self.usage[:, units].sum(axis=1)
        brought = self.supply[:, units].sum(axis=1)
        inside = not (units & ~(self.available | self.forced)).any()
        complete = bool(units[self.forced].all())
        enough = bool((brought >= self.needs).all())
        affordable = bool((used <= self.most).all())
        return inside and complete and enough and affordable

    @cached_property
    def effort(self) -> Float64:
        """Return the share of the limits that each unit (U,) uses, summed over the limits."""
        # Shares of the limits: costs and signals have different units and cannot be added.
        unit = np.where(self.limits > 0.0, self.limits, 1.0)
        return (self.usage / unit[:, None]).sum(axis=0)

    @cached_property
    def by_effort(self) -> Indices:
        """Return the units (U,) in the order of their effort."""
        return np.argsort(self.effort, kind="stable")

    @cached_property
    def by_pattern(self) -> tuple[Indices, Indices]:
        """Return the units that supply anything, pattern by pattern, and where each begins.

        Units of one pattern are in the order of their effort. For each unit in that order, the
        second array has the place of the first unit of its pattern.
        """
        needed = self.by_effort[self.supply_pattern[self.by_effort] > 0]
        order = needed[np.argsort(self.supply_pattern[needed], kind="stable")]
        patterns = self.supply_pattern[order]
        return order, np.searchsorted(patterns, patterns)

    @cached_property
    def supply_pattern(self) -> Indices:
        """Return a number (U,) per unit, equal for units with equal supply; 0 for none."""
        # different columns of small numbers have different products with random weights
        weights = np.random.default_rng(0).random(len(self.needs))
        products = weights @ self.supply
        out = np.zeros(len(products), dtype=np.intp)
        marked = np.flatnonzero(products)
        _, numbers = np.unique(products[marked], return_inverse=True)
        out[marked] = numbers + 1
        return out

    def without(
        self,
        *,
        usage: Mask | None = None,
        supply: bool = False,
    ) -> Demands:
        """Return the demands without some of the limits (r,), or without any needs."""
        kept = np.ones(len(self.limits), dtype=bool) if usage is None else ~usage
        n_needs = 0 if supply else len(self.needs)
        return replace(
            self,
            usage=self.usage[kept],
            limits=self.limits[kept],
            supply=self.supply[:n_needs],
            needs=self.needs[:n_needs],
        )


class Coverage:
    """How much of what is missing each unit covers, while units enter a panel.

    ``supply`` (s, U) is what the units bring to each need, in whole numbers, and ``missing``
    (s,) what is still needed.
    """

    def __init__(self, supply: Float64, missing: Float64) -> None:
        self.wanted = np.maximum(missing, 0.0)
        #: How much of the missing supply each unit (U,) covers.
        self.covered = np.minimum(supply, self.wanted[:, None]).sum(axis=0)
        self._supply = supply
        self._largest = supply.max(axis=1, initial=0.0)

    @property
    def is_missing(self) -> bool:
        """Whether anything is missing."""
        return bool(self.wanted.any())

    def add(self, unit: int) -> None:
        """Let a unit enter the panel."""
        if not self.is_missing:
            return
        before = self.wanted
        self.wanted = np.maximum(before - self._supply[:, unit], 0.0)
        # As long as more is wanted than any unit brings, units cover as much as before.
        changed = self.wanted < np.minimum(before, self._largest)
        for need in np.flatnonzero(changed).tolist():
            supply = self._supply[need]
            self.covered -= np.minimum(supply, before[need])
            self.covered += np.minimum(supply, self.wanted[need])


def feasible_panel(
    demands: Demands,
    chosen: Mask | None = None,
    *,
    exact: bool = True,
    seconds: float = LONGEST_DECISION,
) -> Mask | None:
    """Return a panel (U,) that satisfies all demands and holds the given units, or None.

    A simple construction is tried first, then integer programming with a few units of each
    kind, then with all units. The answer None is exact. If ``exact`` is false, only the simple
    construction is tried. Raise if a program is not decided within ``seconds``.

    Examples
    --------
    >>> cost, marks = np.array([[3.0, 2.0, 1.0]]), np.array([[1.0, 1.0, 0.0]])
    >>> anything, nothing = np.ones(3, dtype=bool), np.zeros(3, dtype=bool)
    >>> demands = Demands(anything, nothing, 2, cost, np.array([3.0]), marks, np.array([1.0]))
    >>> feasible_panel(demands)
    array([False,  True,  True])
    """
    kept = demands.forced.copy() if chosen is None else demands.forced | chosen
    free = np.flatnonzero(demands.available & ~kept)
    pool = _pool(demands, kept, free)
    found = _by_need(demands, kept, free if pool is None else pool)
    if found is not None or not exact:
        return found
    if pool is not None:
        found = _solve(demands, kept, pool, seconds)
        if found is not None or len(demands.limits) <= 1:
            # with one limit the cheapest of each kind are all that matters
            return found
    if len(free) > MANY_UNITS:
        # Parts of units are allowed here: if even they do not do, units do not.
        if _solve(demands, kept, free, seconds, parts=True) is None:
            return None
        cheap = _least(demands, kept, free, demands.effort)
        found = _solve(demands, kept, cheap, seconds)
        if found is not None:
            return found
    return _solve(demands, kept, free, seconds)


def _pool(demands: Demands, kept: Mask, free: Indices) -> Indices | None:
    """Return the cheapest free units of each kind and overall, or None if these are nearly all.

    Units with the same supply are of one kind. With at most one limit, some panel consists of
    these units if there is any panel, because a unit can be exchanged for a cheaper one of its
    kind.
    """
    n_fill = 0 if demands.count is None else max(demands.count - int(kept.sum()), 0)
    n_each = int(demands.needs.max(initial=0.0))
    # A pool that is not much smaller than all units would save no time.
    if len(free) <= 4 * (n_fill + n_each + SPARE_UNITS):
        return None
    is_free = np.zeros(len(kept), dtype=bool)
    is_free[free] = True
    by_effort = demands.by_effort[is_free[demands.by_effort]]
    in_pool = np.zeros(len(kept), dtype=bool)
    in_pool[by_effort[: n_fill + SPARE_UNITS]] = True
    if n_each:
        # For one pattern no panel needs more units than the largest need.
        units, starts = demands.by_pattern
        free_here = is_free[units]
        n_before = np.cumsum(free_here) - free_here
        rank = n_before - n_before[starts]
        in_pool[units[free_here & (rank < n_each)]] = True
    return np.flatnonzero(in_pool)


def _first_of_each(patterns: Indices, n: int) -> Indices:
    """Return the positions of the first n units of each pattern."""
    order = np.argsort(patterns, kind="stable")
    ordered = patterns[order]
    # In sorted order a pattern is one run; its start is the first place of its number.
    starts = np.searchsorted(ordered, ordered)
    return order[np.arange(len(order)) - starts < n]


def _least(
    demands: Demands,
    kept: Mask,
    free: Indices,
    price: Float64,
) -> Indices:
    """Return about MANY_UNITS free units with the lowest prices, of each kind and overall."""
    if len(free) <= MANY_UNITS:
        return free
    n_fill = 0 if demands.count is None else max(demands.count - int(kept.sum()), 0)
    n_each = int(demands.needs.max(initial=0.0))
    by_price = free[np.argsort(price[free], kind="stable")]
    found = [by_price[: max(n_fill, MANY_UNITS // 2)]]
    if n_each:
        needed = by_price[demands.supply_pattern[by_price] > 0]
        found.append(needed[_first_of_each(demands.supply_pattern[needed], n_each)])
    return np.unique(np.concatenate(found))


def _by_need(demands: Demands, kept: Mask, pool: Indices) -> Mask | None:
    """Build a panel of units that are needed most and use least. Return None if this fails."""
    panel = kept.copy()
    missing = demands.needs - demands.supply[:, kept].sum(axis=1)
    effort = demands.effort[pool]
    scale = max(float(effort.max(initial=0.0)), np.finfo(float).tiny)
    # Markers are counted in whole numbers and this is at most 1/2: effort decides only between
    # units that cover equally much.
    penalty = 0.5 * effort / scale
    coverage = Coverage(demands.supply[:, pool], missing)
    taken: list[int] = []
    most_taken = len(pool)
    if demands.count is not None:
        most_taken = min(most_taken, demands.count - int(kept.sum()))
    while coverage.is_missing:
        n_left = most_taken - len(taken)
        if n_left <= 0:
            return None
        best = int(np.argmax(coverage.covered - penalty))
        # No unit covers more than this one, now or later.
        if coverage.wanted.sum() > n_left * max(coverage.covered[best], 0.0):
            return None
        taken.append(best)
        coverage.add(best)
        coverage.covered[best] = -np.inf
    panel[pool[taken]] = True
    if demands.count is not None:
        n_left = demands.count - int(panel.sum())
        free = np.ones(len(pool), dtype=bool)
        free[taken] = False
        rest = pool[free]
        if not 0 <= n_left <= len(rest):
            return None
        by_effort = np.argsort(effort[free], kind="stable")
        panel[rest[by_effort[:n_left]]] = True
    return panel if demands.met_by(panel) else None


def _solve(
    demands: Demands, kept: Mask, pool: Indices, seconds: float, *, parts: bool = False
) -> Mask | None:
    """Find a panel of the kept units and some of the pool, by integer programming (HiGHS).

    With ``parts``, fractions of units are allowed, which is decided much faster.
    """
    room = demands.most - demands.usage[:, kept].sum(axis=1)
    missing = demands.needs - demands.supply[:, kept].sum(axis=1)
    n_left = None if demands.count is None else demands.count - int(kept.sum())
    if (room < 0.0).any() or (n_left is not None and not 0 <= n_left <= len(pool)):
        return None
    panel = kept.copy()
    if not len(pool) or n_left == 0:
        return panel if (missing <= 0.0).all() else None
    needed = missing > 0.0
    # The whole pool together would not do: no need to ask the solver.
    if (demands.supply[needed][:, pool].sum(axis=1) < missing[needed]).any():
        return None
    constraints = []
    if n_left is not None:
        constraints.append(LinearConstraint(np.ones((1, len(pool))), n_left, n_left))
    if len(room):
        usage = demands.usage[:, pool]
        constraints.append(LinearConstraint(sp.csr_array(usage), -np.inf, room))
    if needed.any():
        supply = sp.csr_array(demands.supply[needed][:, pool])
        constraints.append(LinearConstraint(supply, missing[needed], np.inf))
    if not constraints:
        return panel
    answer = milp(
        demands.effort[pool],
        constraints=constraints,
        integrality=np.zeros(len(pool)) if parts else np.ones(len(pool)),
        bounds=Bounds(0.0, 1.0),
        # any panel will do: the first that is found ends the search
        options={"time_limit": seconds, "mip_rel_gap": 1e6},
    )
    if answer.x is None:
        if answer.status == TIME_LIMIT:
            raise ValueError(
                f"could not determine within {seconds:.0f} seconds "
                "whether the rules of the panel can be met. Relax a "
                "rule, or reduce the features to select from "
                "(candidates)."
            )
        return None
    panel[pool] = answer.x > 0.5
    return panel


# ---- what would be feasible -----------------------------------------------------------


def cheapest_panel(demands: Demands, price: Float64) -> Mask | None:
    """Return the panel (U,) with the smallest sum of prices (U,) that satisfies all demands.

    With limits and more than a thousand units, there may be a slightly cheaper panel.
    """
    found = _optimum(demands, price, may_lack=False)
    return None if found is None else found[0]


def largest_number(demands: Demands) -> int | None:
    """Return how many units the limits allow at most, including forced ones.

    None if this is unknown, as with several limits and many units.
    """
    used = demands.usage[:, demands.forced].sum(axis=1)
    room = demands.most - used
    free = np.flatnonzero(demands.available & ~demands.forced)
    n_forced = int(demands.forced.sum())
    if len(room) == 1:
        # The units that use least first: no others leave room for more of them.
        in_use = np.cumsum(np.sort(demands.usage[0, free]))
        return n_forced + int((in_use <= room[0]).sum())
    if len(free) > MANY_UNITS:
        return None
    alone = replace(demands.without(supply=True), count=None)
    most = cheapest_panel(alone, -np.ones(len(demands.available)))
    return None if most is None else int(most.sum())


def shortfalls(demands: Demands) -> Float64 | None:
    """Return the smallest possible shortfalls (s,) of the needs, in total.

    None if the other demands cannot be satisfied, or if there are several limits and many
    units.
    """
    if len(demands.limits) > 1 and len(demands.available) > MANY_UNITS:
        return None
    free_of_charge = np.zeros(len(demands.available))
    found = _optimum(demands, free_of_charge, may_lack=True)
    return None if found is None else found[1]


def _optimum(
    demands: Demands, price: Float64, *, may_lack: bool
) -> tuple[Mask, Float64] | None:
    """Return the panel of the lowest price, and its shortfalls (s,), which add to the price."""
    # With x in {0, 1} for the units and z ≥ 0 for what is lacking of the needs:
    # minimize   price'x + [may_lack] 1'z
    # subject to usage x ≤ most,  supply x + z ≥ needs,  n_least ≤ 1'x ≤ n_most,
    # x = 1 for forced units, and z = 0 unless it may lack.
    units = _units_at_least(demands, price)
    n_units = len(units)
    n_needs = len(demands.needs)
    rows = [
        demands.usage[:, units],
        demands.supply[:, units],
        np.ones((1, n_units)),
    ]
    lacks = [
        np.zeros((len(demands.limits), n_needs)),
        np.eye(n_needs),
        np.zeros((1, n_needs)),
    ]
    n_least = 0 if demands.count is None else demands.count
    n_most = n_units if demands.count is None else demands.count
    no_least = np.full(len(demands.limits), -np.inf)
    low = np.concatenate([no_least, demands.needs, [n_least]])
    no_most = np.full(n_needs, np.inf)
    high = np.concatenate([demands.most, no_most, [n_most]])
    matrix = sp.csr_array(np.hstack([np.vstack(rows), np.vstack(lacks)]))
    answer = milp(
        np.concatenate([price[units], np.full(n_needs, float(may_lack))]),
        constraints=LinearConstraint(matrix, low, high),
        integrality=np.concatenate([np.ones(n_units), np.zeros(n_needs)]),
        bounds=Bounds(
            np.concatenate([demands.forced[units].astype(float), np.zeros(n_needs)]),
            np.concatenate(
                [
                    np.ones(n_units),
                    np.full(n_needs, np.inf if may_lack else 0.0),
                ]
            ),
        ),
        options={"time_limit": LONGEST_DECISION},
    )
    if answer.x is None:
        return None
    panel = np.zeros(len(demands.available), dtype=bool)
    panel[units] = answer.x[:n_units] > 0.5
    return panel, np.round(answer.x[n_units:], 6)


def _units_at_least(demands: Demands, price: Float64) -> Indices:
    """Return forced units and as many units of low price and effort as can be considered."""
    free = np.flatnonzero(demands.available & ~demands.forced)
    found = [np.flatnonzero(demands.forced), _least(demands, demands.forced, free, price)]
    if len(demands.limits):
        found.append(_least(demands, demands.forced, free, demands.effort))
    return np.unique(np.concatenate(found))


def smallest_stretch(demands: Demands, stretched: Mask) -> float | None:
    """Return a factor of some limits (r,) with which a panel satisfies all demands.

    It is the smallest such factor, to within 1 %. None if none was found.

    Examples
    --------
    >>> anything, nothing = np.ones(3, dtype=bool), np.zeros(3, dtype=bool)
    >>> use, none = np.array([[3.0, 2.0, 1.0]]), np.zeros((0, 3))
    >>> demands = Demands(anything, nothing, 2, use, np.array([2.0]), none, np.zeros(0))
    >>> round(smallest_stretch(demands, np.array([True])), 6)
    1.5
    """
    # With x in {0, 1} for the units and the factor t ≥ 0:
    # minimize   t
    # subject to usage x − t·limit ≤ 0 for stretched limits, usage x ≤ most for the others,
    # supply x ≥ needs,  1'x = count,  x = 1 for forced units.
    units = _units_at_least(demands, demands.effort)
    n_units = len(units)
    if (demands.limits[stretched] <= 0.0).any():
        return None  # nothing times a factor stays nothing
    rows = np.vstack([demands.usage, demands.supply, np.ones((1, len(demands.available)))])
    factor = np.zeros((len(rows), 1))
    factor[: len(stretched), 0] = np.where(stretched, -demands.limits, 0.0)
    n_least = 0 if demands.count is None else demands.count
    n_most = n_units if demands.count is None else demands.count
    no_least = np.full(len(demands.limits), -np.inf)
    low = np.concatenate([no_least, demands.needs, [n_least]])
    no_most = np.full(len(demands.needs), np.inf)
    high = np.concatenate([np.where(stretched, 0.0, demands.most), no_most, [n_most]])
    answer = milp(
        np.append(np.zeros(n_units), 1.0),
        constraints=LinearConstraint(
            sp.csr_array(np.hstack([rows[:, units], factor])), low, high
        ),
        integrality=np.append(np.ones(n_units), 0.0),
        bounds=Bounds(
            np.append(demands.forced[units].astype(float), 0.0),
            np.append(np.ones(n_units), np.inf),
        ),
        options={"time_limit": LONGEST_ADVICE, "mip_rel_gap": ADVICE_GAP},
    )
    if answer.x is None:
        return None
    # What the units really use, because the solver's factor is rounded.
    found = units[answer.x[:n_units] > 0.5]
    used = demands.usage[stretched][:, found].sum(axis=1)
    return float((used / demands.limits[stretched]).max(initial=0.0))
