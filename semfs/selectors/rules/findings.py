"""What the rules of a panel led to in a fit, and what they cost, in sentences."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from semfs._typing import Indices
from semfs.feature_names import feature_name
from semfs.method.quadratic import Relaxed
from semfs.validation import listed

#: Features, or groups, that a sentence names.
MOST_UNITS = 3
#: Changes of J below this share of it are rounding.
ROUNDING = 1e-9
#: A smaller share is no difference that a user could notice.
NOTICEABLE = 0.001


@dataclass(frozen=True, eq=False)
class UnitNames:
    """The names of units: those of d features, or the labels of groups of them."""

    unit_of: Indices | None = None  # (d,), None if each feature is a unit by itself
    labels: Sequence[Any] | None = None  # (U,), of groups
    names: Sequence[str] | None = None  # (d,)

    def __getitem__(self, unit: int) -> str:
        """The name of a unit."""
        if self.labels is None:
            return feature_name(unit, self.names)
        return str(self.labels[unit])

    def listed(self, units: Sequence[int]) -> str:
        """Return the names of a few units, and the number of the others.

        >>> UnitNames(names=["a", "b"]).listed([1, 0])
        'b, a'
        """
        return listed([self[unit] for unit in units], MOST_UNITS)

    def of_features(self, features: Indices) -> str:
        """Return the names of the units of some features, each once, in their order."""
        units = features if self.unit_of is None else self.unit_of[features]
        return self.listed(list(dict.fromkeys(units.tolist())))


@dataclass(frozen=True, eq=False)
class Findings:
    """What each rule led to. What it cost takes a search, which waits until somebody asks.

    It holds nothing of the data, so a selector can keep it.
    """

    texts: Mapping[str, str] = field(default_factory=dict)  # by the rule
    J: float = 0.0
    J_start: float = 0.0  # with nothing selected
    relaxed: Callable[[], Mapping[str, Relaxed]] = dict
    left_out: Callable[[], Mapping[int, float]] = dict
    units: UnitNames = UnitNames()

    def sentences(self) -> list[str]:
        """Return what each rule led to, and how much better the fit would be without it."""
        relaxed = self.relaxed()
        return [
            f"{rule}: {text}{self._cost(rule, relaxed[rule]) if rule in relaxed else ''}."
            for rule, text in self.texts.items()
        ]

    def _cost(self, rule: str, relaxed: Relaxed) -> str:
        """How much better the fit would be without a rule; continues a sentence."""
        # J without the rule, found among the features whose Gram columns are at hand. A full
        # search could only find less, so the decrease below is the least.
        without = self.J_start - relaxed.decrease
        name = "the limit" if rule in ("budget", "capacity") else "this rule"
        if not without < self.J * (1.0 - ROUNDING):
            return "; it cost nothing"
        if without <= ROUNDING * self.J:
            # what is left of it is rounding: there is no share of it
            return f". Without {name} the fit would be nearly perfect"
        share = 1.0 - without / self.J
        gain = "hardly any" if share < NOTICEABLE else f"at least {percent(share)}"
        text = f". Without {name} the fit would be {gain} better"
        if not relaxed.freed.size:
            return text
        return f"{text}, with {self.units.of_features(relaxed.freed)}"

    def worth_of_groups(self) -> dict[str, float]:
        """Return the share by which each selected group lowers J, at most.

        It is compared with the panel that is found if the group is excluded.
        """
        found = {}
        for unit, decrease in self.left_out().items():
            without = max(self.J_start - decrease, np.finfo(float).tiny)
            found[self.units[unit]] = max(1.0 - self.J / without, 0.0)
        return found


#: Those of a fit without rules, and of a selector that was loaded.
NO_FINDINGS = Findings()


def percent(share: float) -> str:
    """Return a share in percent. Small shares have two significant digits.

    >>> percent(0.0432), percent(0.00034), percent(0.5)
    ('4.3 %', '0.034 %', '50.0 %')
    """
    number = 100.0 * share
    return f"{number:.1f} %" if number >= 1.0 else f"{number:.2g} %"
