"""`PanelRules`: the rules of a fit, and sentences about their effects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs._typing import Float64, Indices, Label, Mask
from semfs.feature_names import feature_name
from semfs.labels import FEW_SAMPLES
from semfs.method.panel import Panel
from semfs.method.quadratic import Relaxed, Solution
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.validation import counted, listed

#: Features, or groups, that a sentence names.
MOST_UNITS = 3


@dataclass(frozen=True, eq=False)
class PanelRules:
    """The rules of a fit: the panel for the search, and sentences about the rules."""

    panel: Panel | None  # None without rules
    levels: ClassLevels
    ruled_out: Mapping[str, Indices]  # features, by the rule
    forced: Indices
    names: Sequence[str] | None
    costs: Float64 | None = None  # (U,), NaN without a price
    budget: float | None = None
    capacity: Float64 | None = None  # (C,)
    min_per_class: int = 0
    labels: Sequence[Any] | None = None  # (U,), names of units
    # unseen classes without enough markers
    not_marked: Sequence[Label] = ()

    def sentences(self, solution: Solution) -> list[str]:
        """Return, for each rule, what it excluded or required and what the fit loses by it."""
        selected = solution.s > 0.0
        texts = [self._mask_sentence(name, solution) for name in self.ruled_out]
        if len(self.forced):
            shown = listed([feature_name(int(j), self.names) for j in self.forced])
            texts.append(self._with_cost("include", f"{shown} entered first", solution))
        if self.panel is None:
            return texts
        if self.min_per_class:
            texts.append(self._with_cost("min_per_class", self._coverage(selected), solution))
        if self.panel.unit_of is not None:
            n_groups = len(np.unique(self.panel.unit_of[selected]))
            n_features = int(selected.sum())
            size = f"{counted(n_groups, 'group')} of {counted(n_features, 'feature')}"
            verb = "was" if n_groups == 1 else "were"
            texts.append(self._with_cost("groups", f"{size} {verb} selected", solution))
        if self.costs is not None:
            units = self._units(selected)
            spent = float(self.costs[units].sum())
            of_what = "feature" if self.panel.unit_of is None else "group"
            bought = counted(len(units), of_what)
            text = f"{spent:g} of {self.budget:g} spent on {bought}"
            texts.append(self._with_cost("budget", text, solution))
        if self.capacity is not None:
            text = self._fullest(selected)
            texts.append(self._with_cost("capacity", text, solution))
        return texts

    def worth_of_groups(self, solution: Solution) -> dict[str, float]:
        """Return the share by which each selected group lowers J, at most.

        The comparison is with the panel that is found if the group is excluded.
        """
        if not solution.left_out:
            return {}
        J = float(solution.objective[-1])
        start = float(solution.objective_start)
        found = {}
        for unit, decrease in solution.left_out.items():
            without = max(start - decrease, np.finfo(float).tiny)
            found[self._unit_name(unit)] = max(1.0 - J / without, 0.0)
        return found

    def _units(self, selected: Mask) -> Indices:
        """Return the units of the selected features."""
        assert self.panel is not None
        unit_of = self.panel.unit_of
        if unit_of is None:
            return np.flatnonzero(selected)
        return np.unique(unit_of[selected])

    def _mask_sentence(self, rule: str, solution: Solution) -> str:
        """Return a sentence on what a rule excludes, and what the fit would be without it."""
        return self._with_cost(rule, f"{self._ruled_out(rule)} ruled out", solution)

    def _ruled_out(self, rule: str) -> str:
        """Return a text on the features that a rule excludes, or on groups and their prices."""
        features = self.ruled_out[rule]
        n_features = len(features)
        unit_of = None if self.panel is None else self.panel.unit_of
        if unit_of is None or not n_features:
            return counted(n_features, "feature")
        units = np.unique(unit_of[features])
        # One feature keeps its whole group out.
        n_features = int(np.isin(unit_of, units).sum())
        size = counted(n_features, "feature")
        # Features that are kept out may have no price.
        if self.costs is not None and not np.isnan(self.costs[units]).any():
            size += f", {self.costs[units].sum():g} of the budget"
        names = listed([self._unit_name(unit) for unit in units.tolist()], MOST_UNITS)
        if len(units) == 1:
            return f"group {names} ({size})"
        return f"{len(units)} groups ({names}; {size})"

    def _unit_name(self, unit: int) -> str:
        """Return the name of a feature, or the label of a group."""
        if self.labels is None:
            return feature_name(unit, self.names)
        return str(self.labels[unit])

    def _with_cost(self, rule: str, text: str, solution: Solution) -> str:
        """Add to a sentence on a rule how much better the fit would be without the rule."""
        if rule not in solution.relaxed:
            return f"{rule}: {text}."
        J = float(solution.objective[-1])
        start = float(solution.objective_start)
        relaxed = solution.relaxed[rule]
        # J without the rule, found among the features whose Gram columns are at hand. A full
        # search could only find less, so the decrease below is the least.
        without = start - relaxed.decrease
        name = "the limit" if rule in ("budget", "capacity") else "this rule"
        if not without < J * (1.0 - 1e-9):
            return f"{rule}: {text}; it cost nothing."
        if without <= 1e-9 * J:
            # what is left of it is rounding: there is no share of it
            return f"{rule}: {text}. Without {name} the fit would be nearly perfect."
        share = 1.0 - without / J
        # Less than 0.1 % is no difference that a user could notice.
        gain = "hardly any" if share < 0.001 else f"at least {percent(share)}"
        better = f"Without {name} the fit would be {gain} better"
        if rule in self.ruled_out:
            better += self._entered(rule, relaxed)
        return f"{rule}: {text}. {better}."

    def _entered(self, rule: str, relaxed: Relaxed) -> str:
        """Return a text on what would be selected without a rule that excludes features."""
        assert self.panel is not None
        freed = self.panel.relaxed[rule].freed
        assert freed is not None
        entered = relaxed.features[freed[relaxed.features]]
        units = entered if self.panel.unit_of is None else self.panel.unit_of[entered]
        # each once, in the order of their entry
        names = [self._unit_name(unit) for unit in dict.fromkeys(units.tolist())]
        return f", with {listed(names, MOST_UNITS)}" if names else ""

    def _coverage(self, selected: Mask) -> str:
        """Return a sentence on the fewest markers of a class, and on unseen classes."""
        counts = self.levels.markers(np.flatnonzero(selected)).sum(axis=1)
        fewest = int(counts[: self.levels.n_seen].min())
        text = f"every seen class has {fewest} markers or more ({self.min_per_class} asked for)"
        text += self._small_classes()
        if not self.not_marked:
            return text
        # all are named: these are the classes that a panel may miss
        shown = listed(self.not_marked, len(self.not_marked))
        classes = "class" if len(self.not_marked) == 1 else "classes"
        return (
            f"{text}; by predicted means there are not so many of {len(self.not_marked)} "
            f"unseen {classes}: {shown}"
        )

    def _small_classes(self) -> str:
        """Return a text on seen classes whose markers are uncertain: they have few samples."""
        counts = self.levels.moments.counts
        # With sample weights the numbers of samples are not known.
        if (counts != np.floor(counts)).any():
            return ""
        small = np.flatnonzero(counts < FEW_SAMPLES).tolist()
        if not small:
            return ""
        names = [f"{self.levels.classes[c]} ({counts[c]:.0f})" for c in small]
        return (
            f", which is uncertain for classes with fewer than {FEW_SAMPLES} samples: "
            f"{listed(names)}"
        )

    def _fullest(self, selected: Mask) -> str:
        """Return a sentence on the class whose capacity is used most."""
        assert self.capacity is not None
        used = self.levels.means[:, selected].sum(axis=1)
        # A capacity of 0 is used up by nothing at all: 0/0 counts as 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(np.isfinite(self.capacity), used / self.capacity, 0.0)
        fullest = int(np.argmax(np.nan_to_num(shares)))
        label = self.levels.classes[fullest]
        return f"class {label!r} uses most, {used[fullest]:.4g} of {self.capacity[fullest]:.4g}"


def percent(share: float) -> str:
    """Return a share in percent. Small shares have two significant digits.

    >>> percent(0.0432), percent(0.00034), percent(0.5)
    ('4.3 %', '0.034 %', '50.0 %')
    """
    number = 100.0 * share
    return f"{number:.1f} %" if number >= 1.0 else f"{number:.2g} %"
