"""The rules of a fit, and what each of them led to, in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from semfs._typing import Float64, Indices, Label, Mask
from semfs.feature_names import feature_name
from semfs.labels import FEW_SAMPLES
from semfs.method.panel import Panel
from semfs.method.quadratic import Solution
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.selectors.rules.findings import Findings, UnitNames
from semfs.validation import counted, listed

#: What included features are that a rule would keep out.
OVERRULED = {"candidates": "not among the candidates"}
#: Such features that a sentence names.
MOST_OVERRULED = 20


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
    # included features that a rule would keep out, by the rule
    overruled: Mapping[str, Indices] = field(default_factory=dict)

    def findings(self, solution: Solution) -> Findings:
        """Return what each rule ruled out, or led to, and how to find what it cost."""
        J = solution.objective
        return Findings(
            texts=self._texts(solution.s > 0.0),
            J=float(J[-1]) if len(J) else float(solution.objective_start),
            J_start=float(solution.objective_start),
            relaxed=solution.relaxed,
            left_out=solution.left_out,
            units=self._unit_names,
        )

    @property
    def _unit_names(self) -> UnitNames:
        """The names of features, or the labels of groups."""
        unit_of = None if self.panel is None else self.panel.unit_of
        return UnitNames(unit_of, self.labels, self.names)

    def _texts(self, selected: Mask) -> dict[str, str]:
        """By the rule, what it ruled out or led to."""
        texts = {rule: f"{self._ruled_out(rule)} ruled out" for rule in self.ruled_out}
        if len(self.forced):
            shown = listed([feature_name(int(j), self.names) for j in self.forced])
            texts["include"] = f"{shown} entered first{self._overruled()}"
        if self.panel is None:
            return texts
        if self.min_per_class:
            texts["min_per_class"] = self._coverage(selected)
        if self.panel.unit_of is not None:
            n_groups = len(np.unique(self.panel.unit_of[selected]))
            n_features = int(selected.sum())
            size = f"{counted(n_groups, 'group')} of {counted(n_features, 'feature')}"
            verb = "was" if n_groups == 1 else "were"
            texts["groups"] = f"{size} {verb} selected"
        if self.costs is not None:
            units = self._units(selected)
            spent = float(self.costs[units].sum())
            of_what = "feature" if self.panel.unit_of is None else "group"
            bought = counted(len(units), of_what)
            texts["budget"] = f"{spent:g} of {self.budget:g} spent on {bought}"
        if self.capacity is not None:
            texts["capacity"] = self._fullest(selected)
        return texts

    def _overruled(self) -> str:
        """Return a text on included features that other rules would keep out."""
        text = ""
        for rule, features in self.overruled.items():
            if not len(features):
                continue
            names = [feature_name(int(j), self.names) for j in features]
            what = OVERRULED.get(rule, f"against {rule}")
            text += f"; {what}: {listed(names, MOST_OVERRULED)}"
        return text

    def _units(self, selected: Mask) -> Indices:
        """Return the units of the selected features."""
        assert self.panel is not None
        unit_of = self.panel.unit_of
        if unit_of is None:
            return np.flatnonzero(selected)
        return np.unique(unit_of[selected])

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
        names = self._unit_names.listed(units.tolist())
        if len(units) == 1:
            return f"group {names} ({size})"
        return f"{len(units)} groups ({names}; {size})"

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
        is_one = len(self.not_marked) == 1
        have = "class has" if is_one else "classes have"
        return (
            f"{text}; according to predicted means, "
            f"{len(self.not_marked)} unseen {have} fewer: {shown}"
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
        used = self.levels.measured[:, selected].sum(axis=1)
        # A capacity of 0 is used up by nothing at all: 0/0 counts as 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(np.isfinite(self.capacity), used / self.capacity, 0.0)
        fullest = int(np.argmax(np.nan_to_num(shares)))
        label = self.levels.classes[fullest]
        return f"class {label!r} uses most, {used[fullest]:.4g} of {self.capacity[fullest]:.4g}"
