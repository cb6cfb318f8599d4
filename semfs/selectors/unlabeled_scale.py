"""Warnings about unlabeled samples in other units, or on another scale, than labeled ones.

All is judged by the moments of the seen classes and those of the clusters of unlabeled samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.feature_names import feature_name
from semfs.method.markers import within_deviation
from semfs.method.moments import Moments
from semfs.validation import warn_user

#: Unlabeled samples are on another scale if a typical feature varies this many times as much,
#: or as little, or has a mean so many standard deviations away: also samples of other classes
#: differ less than that, in half of all features.
OTHER_SPREAD = 10.0
OTHER_OFFSET = 3.0
FEWEST_FEATURES_TO_COMPARE = 5
#: The same of features that are not 0 in most samples. In our data, with a third of the
#: classes, four or one of them unlabeled, the typical one varies at most 1.3 times as much.
LARGER_SPREAD = 2.0
#: Few seen classes may be similar to each other, so that others vary far more.
FEWEST_SEEN_CLASSES = 4
#: A mean that is so small a share of the standard deviation is that of centered values.
CENTERED = 1e-5
#: Share of the features that are nearly all of them.
NEARLY_EVERY_FEATURE = 0.95

#: A feature is compared if its mean is this many standard deviations from 0, or from the lowest
#: and highest class mean. Values that are 0 in most seen samples, such as those of genes that
#: only an unseen class expresses, are not: anything can be new in them.
FEWEST_DEVIATIONS = 2 / 3
#: Share of the unlabeled samples that must be in clusters beyond the range of class means.
SHARE_BEYOND = 0.9
#: How far a cluster is beyond this range, in units of the range or the standard deviation
#: within classes, whichever is larger, and how many times as much the unlabeled samples vary:
#: of a single feature, and of several. In the trials above, a single feature is at most 2.7
#: beyond and varies 2.8 times as much; 1 % of them at most 0.82 and 2.2.
FAR_ALONE = 5.0
FAR_AMONG_SEVERAL = 1.0
SPREAD_ALONE = 5.0
SPREAD_AMONG_SEVERAL = 3.0
#: The same with few seen classes, beyond which others often are.
FAR_OF_FEW = 10.0
FAR_AMONG_SEVERAL_OF_FEW = 2.0
MANY_CLASSES = 8
#: Several are at least so many, and this share of those that are compared.
FEWEST_SEVERAL = 3
SHARE_SEVERAL = 0.02
#: Features that the message names.
MOST_FEATURES_SHOWN = 3


def warn_of_other_scale(seen: Moments, unlabeled: Moments) -> bool:
    """Warn if a typical feature of the unlabeled samples is on another scale.

    Return whether it is.
    """
    varies = (seen.scatter_diag > 0) & (unlabeled.scatter_diag > 0)
    varying = np.flatnonzero(varies)
    if len(varying) < FEWEST_FEATURES_TO_COMPARE:
        return False
    spread_seen = _deviations(seen, varying)
    spread = _deviations(unlabeled, varying)
    # medians: single features of other classes may differ by any amount
    ratio = float(np.median(spread / spread_seen))
    away = np.abs(unlabeled.mean - seen.mean)[varying] / spread_seen
    offset = float(np.median(away))
    is_usual = 1.0 / OTHER_SPREAD < ratio < OTHER_SPREAD
    if is_usual and offset < OTHER_OFFSET:
        difference = _larger(seen, unlabeled) or _centering(seen, unlabeled, varying)
    else:
        difference = _times_as_much(ratio)
        if offset >= OTHER_OFFSET:
            difference += f" and are {offset:.2g} standard deviations away from them"
    if not difference:
        return False
    warn_user(
        "The unlabeled samples seem to be on another scale: "
        f"{difference}. Scale them like X. A pipeline does this only with "
        'transform_input=["X_unlabeled"].'
    )
    return True


def _larger(seen: Moments, unlabeled: Moments) -> str:
    """Return how much more the features vary that are not 0 in most samples, or ""."""
    every = np.ones(seen.n_features, dtype=bool)
    features = _comparable(seen, unlabeled, every)
    few_features = len(features) < FEWEST_FEATURES_TO_COMPARE
    if few_features or len(seen.counts) < FEWEST_SEEN_CLASSES:
        return ""
    spread_seen = _deviations(seen, features)
    ratio = float(np.median(_deviations(unlabeled, features) / spread_seen))
    return _times_as_much(ratio) if ratio > LARGER_SPREAD else ""


def _times_as_much(ratio: float) -> str:
    """Return a phrase on the ratio of standard deviations of a typical feature."""
    return (
        f"typically, their features vary {ratio:.2g} times as much as "
        "those of the labeled samples"
    )


def _centering(seen: Moments, unlabeled: Moments, varying: Indices) -> str:
    """Return how the samples differ if only one of the two sets is centered, or ""."""
    seen_centered = _is_centered(seen, varying)
    if seen_centered == _is_centered(unlabeled, varying):
        return ""
    if not seen_centered:
        return "their features have a mean of 0, and those of the labeled samples do not"
    # after the same centering, every feature is below 0 in many samples
    lowest = unlabeled.means.min(axis=0)[varying]
    if (lowest >= 0).mean() < NEARLY_EVERY_FEATURE:
        return ""
    return (
        "the features of the labeled samples have a mean of 0, and those "
        "of the unlabeled ones seem not to be centered"
    )


def _is_centered(moments: Moments, varying: Indices) -> bool:
    """Return whether nearly all varying features have a mean of 0."""
    size = np.abs(moments.mean[varying])
    is_zero = size <= CENTERED * _deviations(moments, varying)
    return bool(is_zero.mean() >= NEARLY_EVERY_FEATURE)


def warn_of_other_units(
    seen: Moments,
    unlabeled: Moments,
    allowed: Mask,
    names: Sequence[str] | None,
) -> None:
    """Warn and name features of unlabeled samples that seem to be in other units.

    Only features in a mask ``allowed`` (d,) are compared.
    """
    features = _comparable(seen, unlabeled, allowed)
    if not len(features):
        return
    found = FeatureScales.of(seen, unlabeled, features)
    off = np.flatnonzero(found.off_scale())
    if not len(off):
        return
    worst = off[np.argsort(-found.strangeness()[off], kind="stable")]
    shown = "; ".join(
        f"{feature_name(int(features[j]), names)}: {found.described(j)}"
        for j in worst[:MOST_FEATURES_SHOWN].tolist()
    )
    more = len(off) - MOST_FEATURES_SHOWN
    if more > 0:
        shown += f"; and {more} more"
    warn_user(
        f"{len(off)} of {len(features)} features of the unlabeled samples "
        "seem to be in other units, or on another scale, than in the "
        f"labeled ones, which changes the selection: {shown}. Give "
        "X_unlabeled in the units of X, and scaled only if X is. If the "
        "values are right, ignore this warning."
    )


def _comparable(seen: Moments, unlabeled: Moments, allowed: Mask) -> Indices:
    """Return the features that vary, also in the typical seen sample."""
    varies = ~seen.constant() & ~unlabeled.constant()
    features = np.flatnonzero(allowed & varies)
    mean = seen.mean[features]
    low = seen.means.min(axis=0)[features]
    high = seen.means.max(axis=0)[features]
    inside = np.minimum(mean - low, high - mean)
    size = np.maximum(np.abs(mean), inside)
    enough = size > FEWEST_DEVIATIONS * _deviations(seen, features)
    return features[enough]


@dataclass(frozen=True, eq=False)
class FeatureScales:
    """Ranges and standard deviations of k features, in seen and in unlabeled samples."""

    low: Float64  # (k,) lowest class mean
    high: Float64  # (k,) highest class mean
    mean: Float64  # (k,) of the unlabeled samples
    spread_seen: Float64  # (k,) standard deviations
    spread: Float64  # (k,) of the unlabeled samples
    beyond: Float64  # (K, k) how far clusters are beyond the range, in units of it
    shares: Float64  # (K,) of the unlabeled samples
    n_classes: int

    @classmethod
    def of(cls, seen: Moments, unlabeled: Moments, features: Indices) -> FeatureScales:
        """Return the scales of some features (k,), which vary."""
        low = seen.means.min(axis=0)[features]
        high = seen.means.max(axis=0)[features]
        unit = np.maximum(high - low, within_deviation(seen, features))
        unit = np.maximum(unit, np.finfo(float).tiny)
        centers = unlabeled.means[:, features]
        with np.errstate(over="ignore"):
            beyond = np.maximum(low - centers, centers - high) / unit
        return cls(
            low=low,
            high=high,
            mean=unlabeled.mean[features],
            spread_seen=_deviations(seen, features),
            spread=_deviations(unlabeled, features),
            beyond=beyond,
            shares=unlabeled.counts / unlabeled.total,
            n_classes=len(seen.counts),
        )

    def off_scale(self) -> Mask:
        """Return which features (k,) seem to be in another unit."""
        ratio = self.spread / self.spread_seen
        if self.n_classes < FEWEST_SEEN_CLASSES:
            return self._beyond(FAR_OF_FEW) | (ratio > FAR_OF_FEW)
        near = FAR_AMONG_SEVERAL
        if self.n_classes < MANY_CLASSES:
            near = FAR_AMONG_SEVERAL_OF_FEW
        alone = self._beyond(FAR_ALONE) | (ratio > SPREAD_ALONE)
        several = alone | self._beyond(near)
        several |= ratio > SPREAD_AMONG_SEVERAL
        needed = max(FEWEST_SEVERAL, SHARE_SEVERAL * len(ratio))
        return several if several.sum() >= needed else alone

    def _beyond(self, limit: float) -> Mask:
        """Return the features (k,) in which nearly all clusters are so far away."""
        return self.shares @ (self.beyond > limit) > SHARE_BEYOND

    def strangeness(self) -> Float64:
        """Return a number (k,) that orders the features, the strangest highest."""
        typical = self.shares @ self.beyond
        return np.maximum(typical, self.spread / self.spread_seen)

    def described(self, j: int) -> str:
        """Return how the feature at a place differs."""
        return (
            f"mean {self.mean[j]:.4g}, class means {self.low[j]:.4g} to "
            f"{self.high[j]:.4g} in the labeled samples; standard "
            f"deviation {self.spread[j]:.4g}, {self.spread_seen[j]:.4g} "
            "in the labeled samples"
        )


def _deviations(moments: Moments, features: Indices) -> Float64:
    """Return the standard deviations (k,) of some features over all samples."""
    return np.sqrt(moments.scatter_diag[features] / moments.total)
