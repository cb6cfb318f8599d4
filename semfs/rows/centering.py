"""`Centering`: the point about which scatter is computed, and in which precision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from semfs._typing import Float64


@dataclass(frozen=True, eq=False)
class Centering:
    """The mean about which products of samples are computed, and the precision.

    If a mean is many standard deviations from zero, products lose digits when the mean is
    subtracted afterward. Subtracting it before needs a copy of X. ``far`` and ``near`` say
    which of the two is necessary (the ratios are `FAR` and `NEAR` in `semfs.rows.sums`).
    """

    mean: Float64  # (d,), of all samples
    total: float  # the weight of all samples
    precise: bool = False  # products of float32 are taken in float64
    far: bool = False  # a mean is so far from zero that both factors must be centered
    near: bool = False  # all means are so close to zero that none must be
