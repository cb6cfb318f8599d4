"""The rules of a panel, as the search is given them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.demands import Demands


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
    """

    n_units: int | None
    unit_of: Indices | None = None
    costs: Float64 | None = None
    demands: Demands | None = None
    feasible: Mask | None = None
    relaxed: Mapping[str, Panel] = field(default_factory=dict)
    freed: Mask | None = None

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

    def units_of(self, features: Indices) -> Indices:
        """Return the units of some features, each once, ascending."""
        return features if self.unit_of is None else np.unique(self.unit_of[features])

    def units_with(self, features: Mask) -> Mask:
        """Return the units (U,) that hold any of some features (d,)."""
        if self.unit_of is None:
            return features
        n_units = int(self.unit_of.max()) + 1
        return np.bincount(self.unit_of[features], minlength=n_units) > 0
