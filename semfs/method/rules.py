"""Rules of a panel: what a greedy search may select next.

A `Rule` is asked before each step and told after it. `KeepFeasible` holds a search to `Demands`
on the whole panel, so that it never ends in a corner that another panel would have avoided.
"""

from __future__ import annotations

import numpy as np

from semfs._typing import Indices, Mask
from semfs.method.demands import Demands, feasible_panel

#: Questions in one step of a search whether a unit leaves a way to the end. After them the
#: search only takes what is known to do so.
QUESTIONS_PER_STEP = 4
#: They are decided exactly if there are at most so many units: a decision takes 5 to 50 ms,
#: and with more units some other one is nearly as good.
FEW_UNITS = 64


class Rule:
    """What a search may select next; the rule that allows everything."""

    #: A soft rule gives way in a step in which it would leave nothing to select.
    soft = False

    def allowed(self) -> Mask | None:
        """Return the features (d,) that may be selected next, or None if all may."""
        return None

    def permits(self, feature: int) -> bool:
        """Return whether a feature that is allowed may really be selected next."""
        return True

    def entered(self, feature: int) -> None:
        """Update the rule after a feature was selected."""

    def among(self, features: Indices) -> Rule | None:
        """Return the rule, from here on, for a search among some features (m,), or None.

        Such a search predicts which Gram columns will be needed.
        """
        return None


class KeepFeasible(Rule):
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
        self.panel = panel.copy()
        self.unit_of = unit_of
        self.chosen = np.zeros(len(panel), dtype=bool)
        self.open = demands.available | demands.forced
        # What the chosen units use (r,) and bring (s,), and the most that one unit uses.
        self._used = np.zeros(len(demands.limits))
        self._brought = np.zeros(len(demands.needs))
        self._most_used = demands.usage[:, self.open].max(axis=1, initial=0.0)
        # in the present step: panels that were looked for, and units that were refused
        self._n_questions = 0
        self._refused: set[int] = set()
        self._mask: Mask | None = None  # of units, while nothing changes

    def _unit(self, feature: int) -> int:
        return feature if self.unit_of is None else int(self.unit_of[feature])

    def allowed(self) -> Mask | None:
        """Return the features that necessary conditions do not rule out."""
        if self._mask is None:
            units = self.open & ~self.chosen
            units &= self._affordable()
            units &= self._leaves_slots_for_needs()
            # a unit that is out stays out
            self.open &= units | self.chosen
            if self._n_questions >= QUESTIONS_PER_STEP:
                units &= self._leave_a_way()
            self._mask = units
        return self._mask if self.unit_of is None else self._mask[self.unit_of]

    def _affordable(self) -> Mask:
        """Return the units (U,) that fit into the rest of the limits."""
        demands = self.demands
        room = demands.most - self._used
        scarce = self._most_used > room
        if not scarce.any():
            return self.open
        return np.asarray((demands.usage[scarce] <= room[scarce, None]).all(axis=0))

    def _leaves_slots_for_needs(self) -> Mask:
        """Units (U,) after which the slots left could, at best, meet all needs."""
        demands = self.demands
        if demands.count is None:
            return self.open
        missing = np.maximum(demands.needs - self._brought, 0.0)
        n_left = demands.count - int(self.chosen.sum()) - 1
        if missing.sum() <= n_left:
            return self.open
        # After this unit n_left slots remain, each of which covers at most `most` of what is
        # missing. So a unit must leave no more than n_left · most; this is necessary, not
        # sufficient, because one unit may cover what another one does.
        needed = missing > 0.0
        wanted = missing[needed, None]
        covered = np.minimum(demands.supply[needed], wanted).sum(axis=0)
        most = covered[self.open & ~self.chosen].max(initial=0.0)
        return np.asarray(missing.sum() - covered <= n_left * most)

    def among(self, features: Indices) -> Rule | None:
        """Return the rule for what is left to select, among some features (m,)."""
        demands = self.demands
        if self.unit_of is not None:
            return None
        # The known panel goes along: the few features alone may hold no panel at all.
        others = self.panel & ~self.chosen
        others[features] = False
        units = np.concatenate([features, np.flatnonzero(others)])
        count = demands.count
        left = Demands(
            available=(self.open & ~self.chosen)[units],
            forced=(demands.forced & ~self.chosen)[units],
            count=None if count is None else count - int(self.chosen.sum()),
            usage=demands.usage[:, units],
            limits=demands.limits - self._used,
            supply=demands.supply[:, units],
            needs=np.maximum(demands.needs - self._brought, 0.0),
        )
        panel = (self.panel & ~self.chosen)[units]
        return KeepFeasible(left, panel, np.arange(len(features)))

    def permits(self, feature: int) -> bool:
        """Whether the unit of a feature leaves a way to a panel that satisfies the demands."""
        unit = self._unit(feature)
        if self.panel[unit]:
            return True
        # A search that lacks a Gram column fetches it and asks again. The answers stay the
        # same, or what was fetched before would decide.
        if unit in self._refused:
            return False
        is_permitted = self._takes_a_place(unit) or self._has_a_panel(unit)
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
        is_exact = len(self.panel) <= FEW_UNITS
        found = feasible_panel(self.demands, wanted, exact=is_exact)
        if found is None:
            if is_exact:
                self.open &= ~self._no_better_than(unit)
            return False
        self.panel = found
        return True

    def _takes_a_place(self, unit: int) -> bool:
        """Put a unit into the panel, for another one where there must be; whether it fits."""
        demands = self.demands
        panel = np.flatnonzero(self.panel)
        used = demands.usage[:, panel].sum(axis=1) + demands.usage[:, unit]
        if demands.count is None and (used <= demands.most).all():
            self.panel[unit] = True
            return True
        others = panel[~self.chosen[panel] & ~demands.forced[panel]]
        brought = demands.supply[:, panel].sum(axis=1) + demands.supply[:, unit]
        # One column for each unit that might leave: what is used and brought without it.
        used_after = used[:, None] - demands.usage[:, others]
        brought_after = brought[:, None] - demands.supply[:, others]
        fits = (used_after <= demands.most[:, None]).all(axis=0)
        enough = (brought_after >= demands.needs[:, None]).all(axis=0)
        places = others[fits & enough]
        if not places.size:
            return False
        # The one that uses most leaves, which keeps the most room for later units.
        leaves = places[int(np.argmax(demands.effort[places]))]
        self.panel[leaves] = False
        self.panel[unit] = True
        return True

    def _leave_a_way(self) -> Mask:
        """Units (U,) that are in the panel, or can take the place of another one in it."""
        demands = self.demands
        found = self.panel.copy()
        used = demands.usage[:, self.panel].sum(axis=1)
        brought = demands.supply[:, self.panel].sum(axis=1)
        if demands.count is None:
            room = (demands.most - used)[:, None]
            found |= (demands.usage <= room).all(axis=0)
        for other in np.flatnonzero(self.panel & ~self.chosen & ~demands.forced).tolist():
            # Without `other` this much is free, and this much is missing: any unit that fits
            # into the first and brings the second can take its place.
            room = demands.most - used + demands.usage[:, other]
            missing = demands.needs - brought + demands.supply[:, other]
            needed = missing > 0.0
            fits = (demands.usage <= room[:, None]).all(axis=0)
            enough = (demands.supply[needed] >= missing[needed, None]).all(axis=0)
            found |= fits & enough
        return found

    def _no_better_than(self, unit: int) -> Mask:
        """Units (U,) that use no less than a unit and bring no more: it would do for them."""
        demands = self.demands
        # In a feasible panel with a worse unit, `unit` could take its place. So if no panel
        # holds `unit`, none holds the worse one.
        no_less = (demands.usage >= demands.usage[:, [unit]]).all(axis=0)
        no_more = (demands.supply <= demands.supply[:, [unit]]).all(axis=0)
        worse: Mask = no_less & no_more & ~demands.forced & ~self.chosen
        return worse

    def entered(self, feature: int) -> None:
        """Update the rule after a feature of the panel was selected."""
        unit = self._unit(feature)
        if not self.chosen[unit]:
            self._used = self._used + self.demands.usage[:, unit]
            self._brought = self._brought + self.demands.supply[:, unit]
        self.chosen[unit] = True
        self.panel[unit] = True
        self._n_questions = 0
        self._refused = set()
        self._mask = None
