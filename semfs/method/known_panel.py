"""One panel that satisfies all demands, in which units take the place of others."""

from __future__ import annotations

import numpy as np

from semfs._typing import Indices, Mask
from semfs.method.demands import Demands


class KnownPanel:
    """A panel that satisfies the demands. Some of its units are fixed, the others may leave.

    What the units of the panel use and bring is kept beside them, because a search asks at
    every step whether a unit could take the place of another.
    """

    def __init__(self, demands: Demands, panel: Mask) -> None:
        """Begin with a panel (U,) of which only the forced units are fixed."""
        self.demands = demands
        # the most (s,) that any unit brings
        self._most_supply = demands.supply.max(axis=1, initial=0.0)
        self._set(np.flatnonzero(panel), fixed=demands.forced)

    def _set(self, units: Indices, fixed: Mask) -> None:
        """Take some units, of which those in a mask (U,) may not leave."""
        demands = self.demands
        self.units = units
        self.is_member = np.zeros(len(demands.available), dtype=bool)
        self.is_member[units] = True
        self.may_leave = ~fixed[units]
        self._effort = demands.effort[units]
        # (r, k) and (s, k) of the k units, and their sums
        self._usage = demands.usage[:, units]
        self._supply = demands.supply[:, units]
        self._sum_up()

    def _sum_up(self) -> None:
        """Add up what the units of the panel use of each limit, and bring to each need."""
        self.used = self._usage.sum(axis=1)
        self.brought = self._supply.sum(axis=1)

    def replace(self, panel: Mask, fixed: Mask) -> None:
        """Become another panel (U,) that satisfies the demands, with some units fixed."""
        self._set(np.flatnonzero(panel), fixed | self.demands.forced)

    def fix(self, unit: int) -> None:
        """Keep a unit from leaving; if it is not in the panel, it enters."""
        if not self.is_member[unit]:
            self._add(unit)
        self.may_leave[self.units == unit] = False

    def _add(self, unit: int) -> None:
        """Let a unit enter without another leaving."""
        fixed = np.zeros(len(self.is_member), dtype=bool)
        fixed[self.units[~self.may_leave]] = True
        self._set(np.append(self.units, unit), fixed)

    def take(self, unit: int) -> bool:
        """Put a unit into the panel, in exchange for another one if a demand asks for that.

        Return False, and change nothing, if no exchange satisfies the demands.
        """
        demands = self.demands
        is_over = False
        if len(demands.limits):
            # how far the panel would exceed each limit with the unit and all others
            excess = self.used + demands.usage[:, unit] - demands.most
            is_over = bool((excess > 0.0).any())
        if demands.count is None and not is_over:
            self._add(unit)
            return True
        # Another unit may leave if it frees what is exceeded, and is not needed.
        can_leave = self.may_leave
        if is_over:
            can_leave = can_leave & (self._usage >= excess[:, None]).all(axis=0)
        if len(demands.needs):
            surplus = self.brought + demands.supply[:, unit] - demands.needs
            # Of most needs there is more than any unit brings.
            tight = (surplus < self._most_supply).nonzero()[0]
            enough = self._supply[tight] <= surplus[tight, None]
            can_leave = can_leave & enough.all(axis=0)
        places = can_leave.nonzero()[0]
        if not len(places):
            return False
        # The one that uses most leaves, which keeps the most room for later units.
        effort = self._effort[places]
        # among equals the first in the order of the data, so that history does not matter
        places = places[effort == effort.max()]
        self._exchange(int(places[self.units[places].argmin()]), unit)
        return True

    def _exchange(self, place: int, unit: int) -> None:
        """Put a unit into the place of another one."""
        demands = self.demands
        self.is_member[self.units[place]] = False
        self.is_member[unit] = True
        # one column changes, so that nothing is collected anew from all U units
        self.units[place] = unit
        self._effort[place] = demands.effort[unit]
        if len(demands.limits):
            self._usage[:, place] = demands.usage[:, unit]
            self.used = self._usage.sum(axis=1)
        if len(demands.needs):
            # whole numbers, so that nothing is lost in differences
            supply = demands.supply[:, unit]
            self.brought = self.brought + supply - self._supply[:, place]
            self._supply[:, place] = supply

    def members_to_be(self) -> Mask:
        """Return the units (U,) in the panel, and those that `take` would put into it."""
        demands = self.demands
        found = self.is_member.copy()
        if demands.count is None:
            room = (demands.most - self.used)[:, None]
            found |= (demands.usage <= room).all(axis=0)
        # Without one of these units so much is free (r, k), and so much is missing (s, k): any
        # unit that fits into the first and brings the second can take its place.
        places = np.flatnonzero(self.may_leave)
        rooms = (demands.most - self.used)[:, None] + self._usage[:, places]
        surplus = demands.needs - self.brought
        missing = np.maximum(surplus[:, None] + self._supply[:, places], 0.0)
        # Many units may leave the same behind.
        distinct = {column.tobytes(): column for column in np.vstack([rooms, missing]).T}
        for column in distinct.values():
            room, lack = np.split(column, [len(rooms)])
            needed = lack > 0.0
            fits = (demands.usage <= room[:, None]).all(axis=0)
            enough = (demands.supply[needed] >= lack[needed, None]).all(axis=0)
            found |= fits & enough
        return found
