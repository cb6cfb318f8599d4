"""The penalties of J, and the unit that γ is in."""

from __future__ import annotations

from typing import TypedDict

import numpy as np

from semfs._typing import Float64

#: Penalty scales that are at least the mean diagonal of G; see `penalty_unit`.
RELATIVE_SCALES = ("gram", "weighted")
#: Below this penalty (relative to the mean diagonal of G) rounding errors of float32 products
#: would compete with it, so products are taken in float64.
SAFE_RELATIVE_PENALTY = 1e-4


class Penalties(TypedDict, total=False):
    """Numbers that J depends on, beside the classes and their targets."""

    alpha: float
    gamma: float
    penalty_scale: str
    fit_intercept: bool
    label_weight: float


def penalty_unit(diag: Float64, penalty_scale: str) -> float:
    """Return the unit that γ is in, given the diagonal g (d,) of G.

    "gram" is the mean Σg/d, "weighted" the mean weighted by the variances, Σg²/Σg, and "none"
    is 1. For columns of one variance the first two are the same; otherwise the second is
    larger, because the columns that compete for selection are those of large variance.

    Examples
    --------
    >>> g = np.array([1.0, 1.0, 4.0])
    >>> penalty_unit(g, "gram"), penalty_unit(g, "weighted"), penalty_unit(g, "none")
    (2.0, 3.0, 1.0)
    """
    mean = float(diag.mean())
    if penalty_scale == "none":
        return 1.0
    if penalty_scale == "gram" or mean == 0.0:
        return mean
    # in units of the mean: squares of very large numbers overflow
    return mean * float(np.mean((diag / mean) ** 2))
