"""The features that may be selected, and those that must be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import numpy as np

from semfs._typing import FeaturesLike, Indices, Mask
from semfs.feature_names import feature_name, resolve_features
from semfs.method.moments import Moments
from semfs.rows import Preprocessing
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.parameters import MethodParameters
from semfs.selectors.rules.class_levels import ClassLevels, outside_levels
from semfs.selectors.rules.feature_values import group_members
from semfs.validation import ParameterError


@dataclass(frozen=True)
class Candidates:
    """Which of d features may be selected."""

    constant: Mask  # (d,), features of one value only; they rank last
    forced: Indices  # features that enter first
    excluded: Indices  # features that never enter
    #: The same by the rule that keeps them out; a feature may be in several.
    ruled_out: Mapping[str, Indices] = field(default_factory=dict)
    #: Included features that a rule would keep out, by the rule.
    overruled: Mapping[str, Indices] = field(default_factory=dict)

    @classmethod
    def from_user(
        cls,
        moments: Moments,
        include: FeaturesLike | None,
        exclude: FeaturesLike | None,
        names: Sequence[str] | None,
        only: FeaturesLike | None = None,
        outside: Mapping[str, Indices] = MappingProxyType({}),
        groups: Mapping[str, Sequence[int]] = MappingProxyType({}),
    ) -> Self:
        """Return the candidates, given features to include and exclude by index or name.

        Only features in ``only`` may be selected, and none in ``outside``, which other rules
        keep out. Included features may be selected in any case. ``groups`` maps the name of
        each group to its features; the name may be used in their place.
        """
        d = moments.n_features
        constant = moments.constant()
        if constant.all():
            raise ValueError(f"all {d} columns of X are constant: there is nothing to rank.")
        forced = resolve_features("include", include, names, d, groups)
        excluded = resolve_features("exclude", exclude, names, d, groups)
        ruled_out = {}
        overruled = {}
        if exclude is not None:
            ruled_out["exclude"] = excluded
        if only is not None:
            among = resolve_features("candidates", only, names, d, groups)
            overruled["candidates"] = np.setdiff1d(forced, among)
            kept = np.union1d(among, forced)
            ruled_out["candidates"] = np.setdiff1d(np.arange(d), kept)
        for rule, features in outside.items():
            ruled_out[rule] = np.setdiff1d(features, forced)
            overruled[rule] = np.intersect1d(features, forced)
        for rule, features in ruled_out.items():
            # Other rules gave way to what is included. A feature that is included and
            # excluded stays in both lists, and `check` refuses it.
            if rule != "exclude":
                excluded = np.union1d(excluded, features)
        return cls(constant, forced, excluded, ruled_out, overruled)

    def check(self, k: int, names: Sequence[str] | None = None) -> None:
        """Raise unless k features can be selected among these."""
        # by the user, only
        both = np.intersect1d(self.forced, self.excluded)
        if both.size:
            name = feature_name(int(both[0]), names)
            message = (
                f": feature {name!r} is also excluded. Remove it from one of the two lists."
            )
            raise ParameterError("include", message)
        n = len(self.forced)
        if n > k:
            message = f"has {n} features, more than n_features_to_select={k}."
            raise ParameterError("include", message)
        if len(self.excluded) == len(self.constant):
            # The rule that keeps out most features is the one to blame.
            rule = max(self.ruled_out, key=lambda rule: len(self.ruled_out[rule]))
            if rule == "exclude":
                message = "contains every feature, so no feature is left to select."
            else:
                message = "leaves no feature to select from."
            levels = [self.ruled_out.get(name, ()) for name in ("min_level", "max_level")]
            is_alone = len(self.ruled_out[rule]) == len(self.constant)
            if not is_alone and all(len(features) for features in levels):
                rule = "min_level"
                message = (
                    "and the limit above leave no feature to select "
                    "from: no feature has its highest class mean between "
                    "them (min_level, max_level)."
                )
            raise ParameterError(rule, message)

    def restrict(self, columns: Indices) -> Self:
        """Return the candidates among some columns, which contain all forced features."""
        return type(self)(
            self.constant[columns],
            np.flatnonzero(np.isin(columns, self.forced)),
            np.flatnonzero(np.isin(columns, self.excluded)),
        )  # rules are about all columns

    def with_varying(self, features: Mask) -> Self:
        """Return the candidates if some features (d,) vary after all, in other samples."""
        return replace(self, constant=self.constant & ~features)

    @property
    def allowed(self) -> Mask:
        """Return a mask (d,) of the features that may be selected."""
        allowed = ~self.constant
        allowed[self.excluded] = False
        allowed[self.forced] = True
        return allowed

    @property
    def n_selectable(self) -> int:
        """The number of features that can be selected, including constant ones."""
        return len(self.constant) - len(self.excluded)


def user_candidates(
    params: MethodParameters,
    moments: Moments,
    names: Sequence[str] | None,
    preprocessing: Preprocessing = NO_PREPROCESSING,
) -> Candidates:
    """Return the features that the parameters allow. Level limits are on seen-class means."""
    outside: dict[str, Indices] = {}
    if params.min_level is not None or params.max_level is not None:
        outside = outside_levels(params, ClassLevels.of(moments, preprocessing))
    return Candidates.from_user(
        moments,
        params.include,
        params.exclude,
        names,
        params.candidates,
        outside,
        group_members(params.groups, moments.n_features, names),
    )
