"""The rules of a fit, and the sentences that say what each of them did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from semfs._typing import Float64, Indices, Label, Mask
from semfs.feature_names import feature_name
from semfs.method.panel import Panel
from semfs.method.quadratic import Solution
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.validation import listed


@dataclass(frozen=True, eq=False)
class PanelRules:
    """The rules of a fit: what the search is given, and what is said about them."""

    panel: Panel | None  # None without rules
    levels: ClassLevels
    ruled_out: Mapping[str, Indices]  # features, by the rule
    forced: Indices
    names: Sequence[str] | None
    costs: Float64 | None = None  # (U,)
    budget: float | None = None
    capacity: Float64 | None = None  # (C,)
    min_per_class: int = 0
    # unseen classes without enough markers
    not_marked: Sequence[Label] = ()

    def sentences(self, solution: Solution) -> list[str]:
        """Return what each rule ruled out, or led to, and what it cost in J."""
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
            text = f"{n_groups} groups of {int(selected.sum())} features were selected"
            texts.append(self._with_cost("groups", text, solution))
        if self.costs is not None:
            units = self._units(selected)
            spent = float(self.costs[units].sum())
            of_what = "features" if self.panel.unit_of is None else "groups"
            text = f"{spent:g} of {self.budget:g} spent on {len(units)} {of_what}"
            texts.append(self._with_cost("budget", text, solution))
        if self.capacity is not None:
            text = self._fullest(selected)
            texts.append(self._with_cost("capacity", text, solution))
        return texts

    def _units(self, selected: Mask) -> Indices:
        """Units of the selected features."""
        assert self.panel is not None
        unit_of = self.panel.unit_of
        if unit_of is None:
            return np.flatnonzero(selected)
        return np.unique(unit_of[selected])

    def _mask_sentence(self, rule: str, solution: Solution) -> str:
        """How many features a rule keeps out, and what the best of them would add."""
        features = self.ruled_out[rule]
        text = f"{rule}: {len(features)} features ruled out"
        # If the features left are constant, none enters, and J has no course.
        nothing_selected = len(solution.objective) == 0
        if not len(features) or solution.next_gains is None or nothing_selected:
            return f"{text}."
        # The gain of a feature next to the panel: how far J would fall if it entered now.
        gains = solution.next_gains[features]
        best = int(np.argmax(gains))
        J = float(solution.objective[-1])
        share = gains[best] / max(J, np.finfo(float).tiny)
        name = feature_name(int(features[best]), self.names)
        return f"{text}; {name} would now lower J most, by {share:.2%}."

    def _with_cost(self, rule: str, text: str, solution: Solution) -> str:
        """A sentence about a rule, and what the rule cost in J."""
        if rule not in solution.relaxed:
            return f"{rule}: {text}."
        J = float(solution.objective[-1])
        start = float(solution.objective_start)
        # J without the rule, found among the features whose Gram columns are at hand. A full
        # search could only find less, so the increase below is the least that the rule cost.
        without = start - solution.relaxed[rule]
        if not without < J * (1.0 - 1e-9):
            return f"{rule}: {text}; it cost nothing in J."
        if without <= 1e-9 * J:
            # what is left of it is rounding: there is no share of it
            return f"{rule}: {text}; it raises J from about 0 to {J:.4g}."
        share = (J - without) / without
        return f"{rule}: {text}; it raises J by {share:.2%} or more, to {J:.4g}."

    def _coverage(self, selected: Mask) -> str:
        """The fewest markers of a class, and unseen classes that lack them."""
        counts = self.levels.markers(np.flatnonzero(selected)).sum(axis=1)
        fewest = int(counts[: self.levels.n_seen].min())
        text = f"every seen class has {fewest} markers or more ({self.min_per_class} asked for)"
        if not self.not_marked:
            return text
        shown = listed(self.not_marked)
        return f"{text}; by their predicted means too few features mark {shown}"

    def _fullest(self, selected: Mask) -> str:
        """The class whose capacity is used most."""
        assert self.capacity is not None
        used = self.levels.means[:, selected].sum(axis=1)
        # A capacity of 0 is used up by nothing at all: 0/0 counts as 0.
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = np.where(np.isfinite(self.capacity), used / self.capacity, 0.0)
        fullest = int(np.argmax(np.nan_to_num(shares)))
        label = self.levels.classes[fullest]
        return f"class {label!r} uses most, {used[fullest]:.4g} of {self.capacity[fullest]:.4g}"
