"""Warning about new samples in other units, or on another scale, than those of the fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from semfs._typing import Float64, Mask
from semfs.validation import warn_user

#: A sample is far if it is outside the range of the class means by this many times the range,
#: or the standard deviation within classes if that is larger. Of our data (cells, images,
#: texts, sensors), no feature is so far for all samples of a class that was left out of a fit
#: to four or more others, nor for cells of another laboratory. Degrees Fahrenheit for Celsius
#: are farther.
FAR_SAMPLE = 2.0
#: Once a feature is far, others that are this far are named as well.
BEYOND_SAMPLE = 1.0
#: The same for a few samples, or few seen classes, beyond which other classes often are.
VERY_FAR_SAMPLE = 10.0
FEWEST_NEW_SAMPLES = 5
FEWEST_SEEN_CLASSES = 4
#: Share of the features of few samples that suffices if they are far. In the same trials it is
#: at most 0.2.
MANY_FEATURES = 0.25
#: Share of the samples that must be far, so that neither a few broken values nor a mixture of
#: classes counts; with many seen classes, more than half are enough.
NEARLY_ALL = 0.9
MORE_THAN_HALF = 0.5
MANY_CLASSES = 8
#: Standard deviation of the new samples, as a share of that within classes, that only another
#: unit explains if it is so for nearly all features; and the samples that this takes.
NARROW_SPREAD = 0.1
FEWEST_TO_SPREAD = 20
#: Features that the message names.
MOST_FEATURES_SHOWN = 3


class ScaleWatch:
    """Compares samples (n, k), which come block by block, with the class means of a fit."""

    def __init__(self, class_means: Float64, within: Float64, names: Sequence[str]) -> None:
        """Take the means (C, k) and standard deviations within classes (k,) of the features."""
        self.names = names
        self.n_classes = len(class_means)
        self.low = class_means.min(axis=0)
        self.high = class_means.max(axis=0)
        self.within = within
        spread = np.maximum(self.high - self.low, within)
        self.unit = np.maximum(spread, np.finfo(float).tiny)
        self.n = 0
        self.n_beyond = np.zeros(len(names))
        self.n_far = np.zeros(len(names))
        self.n_very_far = np.zeros(len(names))
        # about the middle of the range, which keeps squares accurate
        self.middle = (self.low + self.high) / 2
        self.sums = np.zeros(len(names))
        self.squares = np.zeros(len(names))

    def watch(self, blocks: Iterator[Float64]) -> Iterator[Float64]:
        """Yield blocks (r, k) as they are, and warn after the last one."""
        for Z in blocks:
            self.add(Z)
            yield Z
        self.warn()

    def add(self, Z: Float64) -> None:
        """Take a block of samples (r, k) into account."""
        # values of another scale may overflow
        with np.errstate(over="ignore", invalid="ignore"):
            beyond = np.maximum(self.low - Z, Z - self.high) / self.unit
            centered = Z - self.middle
            self.sums += centered.sum(axis=0)
            self.squares += (centered * centered).sum(axis=0)
        self.n += len(Z)
        self.n_beyond += (beyond > BEYOND_SAMPLE).sum(axis=0)
        self.n_far += (beyond > FAR_SAMPLE).sum(axis=0)
        self.n_very_far += (beyond > VERY_FAR_SAMPLE).sum(axis=0)

    def off_scale(self) -> Mask:
        """Return which features (k,) seem to be in another unit."""
        is_long = self.n >= FEWEST_NEW_SAMPLES
        share = MORE_THAN_HALF if is_long and self.n_classes >= MANY_CLASSES else NEARLY_ALL
        n_needed = share * self.n
        off = self.n_far > n_needed
        has_classes = self.n_classes >= FEWEST_SEEN_CLASSES
        if not has_classes or not (is_long or off.mean() > MANY_FEATURES):
            off = self.n_very_far > n_needed
        if off.any():
            return off | (self.n_beyond > n_needed)
        return self._narrow()

    def _narrow(self) -> Mask:
        """Return all features if nearly all of them vary far less than in the fit."""
        none = np.zeros(len(self.names), dtype=bool)
        if self.n < FEWEST_TO_SPREAD:
            return none
        variances = self.squares / self.n - (self.sums / self.n) ** 2
        deviations = np.sqrt(np.maximum(variances, 0.0))
        narrow = deviations < NARROW_SPREAD * self.within
        # samples without any variation are copies of one, which is another matter
        is_narrow = narrow.mean() >= NEARLY_ALL and deviations.any()
        return narrow if is_narrow else none

    def warn(self) -> None:
        """Warn and name the features that seem to be in another unit."""
        if not self.n or not len(self.names):
            return
        off = np.flatnonzero(self.off_scale())
        if not len(off):
            return
        shown = "; ".join(self._described(j) for j in off[:MOST_FEATURES_SHOWN].tolist())
        more = len(off) - MOST_FEATURES_SHOWN
        if more > 0:
            shown += f"; and {more} more"
        warn_user(
            f"{len(off)} of {len(self.names)} selected features of the "
            "new samples seem to have other units, or another scale, "
            "than in the training samples, so even predictions with a "
            f"high probability may be wrong: {shown}. Pass the values in "
            "the same units as for fit, and standardized only if they "
            "were standardized for fit. If the values are right, check "
            'the samples with unknown="unknown" (on the command line, '
            "--unknown 0.05)."
        )

    def _described(self, j: int) -> str:
        """Return the name of a feature, and how it differs."""
        mean = self.middle[j] + self.sums[j] / self.n
        # the mean of standardized values is 0 but for rounding
        if abs(mean) < 1e-9 * self.unit[j]:
            mean = 0.0
        return (
            f"{self.names[j]}: mean {_shown(mean)} in the new samples, "
            f"but class means from {_shown(self.low[j])} to "
            f"{_shown(self.high[j])} in the fit"
        )


def _shown(value: float) -> str:
    """Return a number of about four digits, without an exponent where it is usual.

    >>> [_shown(value) for value in (350699.3, 3.0972, 0.009818, 1e9)]
    ['350699', '3.097', '0.009818', '1e+09']
    """
    if 1e3 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return f"{value:.4g}"
