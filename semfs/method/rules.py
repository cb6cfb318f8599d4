"""What a greedy search may select next, so that the panel satisfies all demands in the end.

`KeepFeasible` is asked before each step and told after it. It holds a search to `Demands` on
the whole panel, so that it never ends in a corner that another panel would have avoided.
"""

from __future__ import annotations

import numpy as np

from semfs._typing import Indices, Mask
from semfs.method.demands import Demands, feasible_panel
from semfs.method.known_panel import KnownPanel

#: Questions in one step of a search whether a unit leaves a way to the end. After them the
#: search only takes what is known to do so.
QUESTIONS_PER_STEP = 4
#: They are decided exactly if there are at most so many units: a decision takes 5 to 50 ms,
#: and with more units some other one is nearly as good.
FEW_UNITS = 64


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
    ) -> None:
        """Start without features.

        ``panel`` (U,) satisfies the demands; ``unit_of`` (d,) is the unit of each feature, by
        default each is one by itself.
        """
        self.demands = demands
        self.known = KnownPanel(demands, panel)
        self.unit_of = unit_of
        self.chosen = np.zeros(len(panel), dtype=bool)
        #: Units (U,) that are not chosen and not ruled out for good.
        self.left = demands.available | demands.forced
        self._n_chosen = 0
        # What the chosen units use (r,), the most that one unit uses, and what is still
        # needed (s,).
        self._used = np.zeros(len(demands.limits))
        self._most_used = demands.usage.max(axis=1, initial=0.0, where=self.left)
        self._missing = np.maximum(demands.needs, 0.0)
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
            if self._n_questions >= QUESTIONS_PER_STEP:
                self._mask = self.left & self.known.members_to_be()
        return self._mask if self.unit_of is None else self._mask[self.unit_of]

    def _drop_what_leaves_too_few_slots(self) -> None:
        """Rule out units after which the slots left could not, at best, meet all needs."""
        demands = self.demands
        if demands.count is None:
            return
        n_missing = self._missing.sum()
        n_slots = demands.count - self._n_chosen - 1
        if n_missing <= n_slots:
            return
        # After this unit n_slots remain, each of which covers at most `most` of what is
        # missing. So a unit must leave no more than n_slots · most; this is necessary, not
        # sufficient, because one unit may cover what another one does.
        needed = self._missing > 0.0
        wanted = self._missing[needed, None]
        covered = np.minimum(demands.supply[needed], wanted).sum(axis=0)
        most = covered.max(initial=0.0, where=self.left)
        self.left &= n_missing - covered <= n_slots * most

    def _drop_what_exceeds_a_limit(self) -> None:
        """Rule out units that use more than is left of a limit."""
        room = self.demands.most - self._used
        for row in np.flatnonzero(self._most_used > room).tolist():
            self.left &= self.demands.usage[row] <= room[row]

    def among(self, features: Indices) -> KeepFeasible:
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
            needs=self._missing,
        )
        return KeepFeasible(rest, waiting[units], np.arange(len(features)))

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
        if self._n_questions >= QUESTIONS_PER_STEP:
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
            self._missing = np.maximum(self._missing - self.demands.supply[:, unit], 0.0)
            self.known.fix(unit)
        self._n_questions = 0
        self._refused = set()
        self._mask = None
