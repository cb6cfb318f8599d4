"""What the scatter of samples is taken about, and how carefully."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semfs._typing import Float64


@dataclass(frozen=True, eq=False)
class Centering:
    """The mean that products of samples are taken about, and in which precision.

    Products about a mean that is many standard deviations from zero lose digits if the mean is
    subtracted afterward; it costs a copy of X to subtract it before. ``far`` and ``near`` say
    which of the two is necessary (the ratios are `FAR` and `NEAR` in `semfs.rows.sums`).
    """

    mean: Float64  # (d,), of all samples
    total: float  # the weight of all samples
    precise: bool = False  # products of float32 are taken in float64
    far: bool = False  # a mean is so far from zero that both factors must be centered
    near: bool = False  # all means are so close to zero that none must be
