"""What a greedy search may select next, so that the panel satisfies all demands in the end.

A rule is asked before each step and told after it. It holds a search to `Demands` on the whole
panel, so that it never ends in a corner that another panel would have avoided.
`KeepWithinLimit` is the rule of a single limit such as a budget, and `KeepFeasible` that of any
demands.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np

from semfs._typing import Indices, Mask
from semfs.method.demands import Coverage, Demands, feasible_panel
from semfs.method.known_panel import KnownPanel

#: Questions in one step of a search whether a unit leaves a way to the end. After them the
#: search only takes what is known to do so.
QUESTIONS_PER_STEP = 4
#: They are decided exactly if there are at most so many units: a decision takes 5 to 50 ms,
#: and with more units some other one is nearly as good.
FEW_UNITS = 64


class Rule(Protocol):
    """What a search asks before each step, and tells after it."""

    def allowed(self) -> Mask:
        """Return the features (d,) that necessary conditions do not rule out."""

    def permits(self, feature: int) -> bool:
        """Whether the unit of a feature leaves a way to a panel that satisfies the demands."""

    def entered(self, feature: int) -> None:
        """Update the rule after a feature of the panel was selected."""

    def among(self, features: Indices, *, quick: bool = False) -> Rule:
        """Return the rule for what is left to select, among some features (m,).

        A ``quick`` rule may refuse more, which takes less time.
        """


def rule_of(demands: Demands, panel: Mask, unit_of: Indices | None = None) -> Rule:
    """Return the rule that keeps a search to some demands, which a panel (U,) satisfies."""
    if len(demands.limits) == 1 and not len(demands.needs):
        return KeepWithinLimit(demands, unit_of)
    return KeepFeasible(demands, panel, unit_of)


class KeepWithinLimit:
    """Allow what leaves enough of a single limit for the remaining units of a panel.

    This is exact: the remaining units can be selected if and only if the cheapest of them do
    not exceed the limit.
    """

    def __init__(self, demands: Demands, unit_of: Indices | None = None) -> None:
        """Start without features; ``unit_of`` (d,) is the unit of each feature."""
        self.demands = demands
        self.unit_of = unit_of
        self.chosen = np.zeros(len(demands.available), dtype=bool)
        self._usage = demands.usage[0]
        #: Units that may still be selected (U,); of forced ones nobody asks.
        self._left = demands.available & ~demands.forced
        n_free = 0
        if demands.count is not None:
            n_free = demands.count - int(demands.forced.sum())
        # The cheapest units that may remain, as many as are still to be selected, dearest last.
        order = demands.by_effort
        self._cheapest: list[int] = order[self._left[order]][:n_free].tolist()
        # Of the limit, what forced units and all but the last of the cheapest ones leave.
        self._room = float(demands.most[0]) - float(self._usage[demands.forced].sum())
        self._room -= float(self._usage[self._cheapest[:-1]].sum())
        # No unit that is left uses more.
        self._highest = np.inf
        self._has_forced = bool(demands.forced.any())

    def allowed(self) -> Mask:
        """Return the features (d,) whose units leave a way to a panel within the limit."""
        room = self._room
        if self._cheapest:
            # The last of the cheapest fits, also if rounding says otherwise, because the panel
            # did before the last step.
            room = max(room, float(self._usage[self._cheapest[-1]]))
        if room < self._highest:
            self._left &= self._usage <= room
            self._highest = room
        units = self._left | self.demands.forced if self._has_forced else self._left
        return units if self.unit_of is None else units[self.unit_of]

    def permits(self, feature: int) -> bool:
        """Whether the unit of a feature leaves a way to a panel within the limit."""
        unit = feature if self.unit_of is None else int(self.unit_of[feature])
        self.allowed()
        return bool(self._left[unit] or self.demands.forced[unit])

    def entered(self, feature: int) -> None:
        """Update the rule after a feature of the panel was selected."""
        unit = feature if self.unit_of is None else int(self.unit_of[feature])
        if self.chosen[unit]:
            return
        self.chosen[unit] = True
        if self.demands.forced[unit]:
            return  # its cost is set aside from the start
        self._left[unit] = False
        if unit in self._cheapest[:-1]:
            self._cheapest.remove(unit)  # its cost is set aside, too
            return
        self._room -= float(self._usage[unit])
        if self._cheapest:
            # the dearest of the cheapest units gives way, and the one before it is the last
            self._cheapest.pop()
            if self._cheapest:
                self._room += float(self._usage[self._cheapest[-1]])

    def among(self, features: Indices, *, quick: bool = False) -> KeepWithinLimit:
        """Return the rule for what is left to select, among some features (m,).

        It is for features that are units by themselves.
        """
        demands = self.demands
        waiting = demands.forced & ~self.chosen
        # The cheapest units go along: the few features alone may exceed the limit.
        others = waiting.copy()
        others[self._cheapest] = True
        others[features] = False
        units = np.concatenate([features, np.flatnonzero(others)])
        n_left = None
        if demands.count is not None:
            n_left = demands.count - int(self.chosen.sum())
        rest = replace(
            demands,
            available=self._left[units],
            forced=waiting[units],
            count=n_left,
            usage=demands.usage[:, units],
            limits=demands.limits - self._usage[self.chosen].sum(),
            supply=demands.supply[:, units],
        )
        return KeepWithinLimit(rest, np.arange(len(features)))


class KeepFeasible:
    """Allow what leaves a way to a panel that satisfies all demands.

    At every step the rule keeps one such panel with all units selected so far. A unit that is
    in it may be selected. So may one that can take the place of another one in it. Otherwise a
    panel with it is looked for. Where that is decided exactly and the answer is no, the unit is
    out for good, and so are all units that use no less and bring no more.
    """

    def __init__(
        self,
        demands: Demands,
        panel: Mask,
        unit_of: Indices | None = None,
        *,
        questions: int = QUESTIONS_PER_STEP,
    ) -> None:
        """Start without features.

        ``panel`` (U,) satisfies the demands; ``unit_of`` (d,) is the unit of each feature, by
        default each is one by itself. At most so many ``questions`` are asked in one step.
        """
        self.questions = questions
        self.demands = demands
        self.known = KnownPanel(demands, panel)
        self.unit_of = unit_of
        self.chosen = np.zeros(len(panel), dtype=bool)
        #: Units (U,) that are not chosen and not ruled out for good.
        self.left = demands.available | demands.forced
        self._n_chosen = 0
        # What the chosen units use (r,), the most that one unit uses, and what is still needed.
        self._used = np.zeros(len(demands.limits))
        self._most_used = demands.usage.max(axis=1, initial=0.0, where=self.left)
        self._wanted = np.maximum(demands.needs, 0.0)
        # How much of it each unit covers; found when slots become scarce.
        self._coverage: Coverage | None = None
        # in the present step: panels that were looked for, and units that were refused
        self._n_questions = 0
        self._refused: set[int] = set()
        self._mask: Mask | None = None  # of units, while nothing changes

    def _unit(self, feature: int) -> int:
        return feature if self.unit_of is None else int(self.unit_of[feature])

    def allowed(self) -> Mask:
        """Return the features (d,) that necessary conditions do not rule out."""
        if self._mask is None:
            self._drop_what_leaves_too_few_slots()
            self._drop_what_exceeds_a_limit()
            self._mask = self.left
            if 0 < self.questions <= self._n_questions:
                self._mask = self.left & self.known.members_to_be()
        return self._mask if self.unit_of is None else self._mask[self.unit_of]

    def _drop_what_leaves_too_few_slots(self) -> None:
        """Rule out units after which the slots left could not, at best, meet all needs."""
        demands = self.demands
        if demands.count is None:
            return
        n_missing = float(self._wanted.sum())
        n_slots = demands.count - self._n_chosen - 1
        if n_missing <= n_slots:
            return
        # After this unit n_slots remain, each of which covers at most `most` of what is
        # missing. So a unit must leave no more than n_slots · most; this is necessary, not
        # sufficient, because one unit may cover what another one does.
        if self._coverage is None:
            self._coverage = Coverage(demands.supply, self._wanted)
        covered = self._coverage.covered
        most = covered.max(initial=0.0, where=self.left)
        self.left &= n_missing - covered <= n_slots * most

    def _drop_what_exceeds_a_limit(self) -> None:
        """Rule out units that use more than is left of a limit."""
        if not len(self._used):
            return
        room = self.demands.most - self._used
        for row in np.flatnonzero(self._most_used > room).tolist():
            self.left &= self.demands.usage[row] <= room[row]

    def among(self, features: Indices, *, quick: bool = False) -> Rule:
        """Return the rule for what is left to select, among some features (m,).

        It is for features that are units by themselves. A search under it predicts which Gram
        columns will be needed.
        """
        demands = self.demands
        # The known panel goes along: the few features alone may hold no panel at all.
        waiting = self.known.is_member & ~self.chosen
        others = waiting.copy()
        others[features] = False
        units = np.concatenate([features, np.flatnonzero(others)])
        rest = Demands(
            available=self.left[units],
            forced=(demands.forced & ~self.chosen)[units],
            count=None if demands.count is None else demands.count - self._n_chosen,
            usage=demands.usage[:, units],
            limits=demands.limits - self._used,
            supply=demands.supply[:, units],
            needs=self._wanted,
        )
        questions = 0 if quick else self.questions
        unit_of = np.arange(len(features))
        return KeepFeasible(rest, waiting[units], unit_of, questions=questions)

    def permits(self, feature: int) -> bool:
        """Whether the unit of a feature leaves a way to a panel that satisfies the demands."""
        unit = self._unit(feature)
        if self.known.is_member[unit]:
            return True
        # A search that lacks a Gram column fetches it and asks again. The answers stay the
        # same, or what was fetched before would decide.
        if unit in self._refused:
            return False
        is_permitted = self.known.take(unit) or self._has_a_panel(unit)
        if not is_permitted:
            self._refused.add(unit)
        return is_permitted

    def _has_a_panel(self, unit: int) -> bool:
        """Look for a panel with a unit, if not too many were looked for in this step."""
        if self._n_questions >= self.questions:
            return False
        self._n_questions += 1
        self._mask = None
        wanted = self.chosen.copy()
        wanted[unit] = True
        is_exact = len(self.chosen) <= FEW_UNITS
        found = feasible_panel(self.demands, wanted, exact=is_exact)
        if found is None:
            if is_exact:
                self.left &= ~self._no_better_than(unit)
            return False
        self.known.replace(found, self.chosen)
        return True

    def _no_better_than(self, unit: int) -> Mask:
        """Units (U,) that use no less than a unit and bring no more: it would do for them."""
        demands = self.demands
        # In a feasible panel with a worse unit, `unit` could take its place. So if no panel
        # holds `unit`, none holds the worse one.
        no_less = (demands.usage >= demands.usage[:, [unit]]).all(axis=0)
        no_more = (demands.supply <= demands.supply[:, [unit]]).all(axis=0)
        worse: Mask = no_less & no_more & ~demands.forced
        return worse

    def entered(self, feature: int) -> None:
        """Update the rule after a feature of the panel was selected."""
        unit = self._unit(feature)
        if not self.chosen[unit]:
            self.chosen[unit] = True
            self.left[unit] = False
            self._n_chosen += 1
            self._used = self._used + self.demands.usage[:, unit]
            supply = self.demands.supply[:, unit]
            self._wanted = np.maximum(self._wanted - supply, 0.0)
            if self._coverage is not None:
                self._coverage.add(unit)
            self.known.fix(unit)
        self._n_questions = 0
        self._refused = set()
        self._mask = None
