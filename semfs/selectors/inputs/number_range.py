"""Checks of the range of values, because squares of extreme values lose digits."""

from __future__ import annotations

import numpy as np

from semfs._typing import Float64, Indices, Matrix
from semfs.labels import LabelArray
from semfs.method.moments import Moments
from semfs.selectors.inputs.nonfinite import has_nonfinite

#: Largest and smallest numbers whose squares, and products of these, are float64.
LARGEST = 1e100
#: The same for products of X and the attributes: B = X'A enters the gains squared.
LARGEST_PRODUCT = 1e140
#: float32 data beyond this, or below its inverse, are taken as float64: sums of their squares
#: leave the range of float32 (3e38). Attributes of float32 data have the same range: their
#: products with X are float32.
LARGEST_FLOAT32 = 1e15
#: What to do about numbers of unusual size.
RESCALE = "Rescale X and the attributes, for example to unit variance."


def range_checked_moments(
    X: Matrix, codes: Indices, classes: LabelArray, weights: Float64 | None
) -> Moments:
    """Return the moments of samples in memory. float32 out of range is converted to float64."""
    single = getattr(X, "dtype", None) == np.float32
    moments = None
    try:
        moments = Moments.from_checked(X, codes, classes, weights)
    except ValueError:
        # NaN, infinity, or squares beyond float32
        if not single or has_nonfinite(X):
            raise
    if moments is None or (single and not _fits_float32(moments)):
        moments = Moments.from_checked(X.astype(np.float64), codes, classes, weights)
    check_range(moments)
    return moments


def check_range(moments: Moments) -> None:
    """Raise if values of X are so large or so small that their squares lose digits."""
    size = _largest_number(moments)
    limit = _limit(moments)
    if size and not 1.0 / limit < size < limit:
        raise ValueError(
            f"X has numbers of size {size:.0e}, whose squares lose digits. {RESCALE}"
        )


def check_range_of_attributes(moments: Moments, attributes: Float64) -> None:
    """Raise if attributes (C, m), or their products with X, are out of range."""
    largest = float(np.abs(attributes).max())
    if not largest:
        return
    limit = _limit(moments)
    if not 1.0 / limit < largest < limit:
        raise ValueError(
            f"attributes has numbers of size {largest:.0e}, whose squares lose digits. "
            f"{RESCALE}"
        )
    # all numbers of X may be zero
    size = _largest_number(moments) or 1.0
    # B = X'A has the size of the product; coefficients have that of the ratio A / X
    for number in (size * largest, size / largest):
        if not 1.0 / LARGEST_PRODUCT < number < LARGEST_PRODUCT:
            raise ValueError(
                f"X has numbers of size {size:.0e} and attributes of size {largest:.0e}. "
                f"{RESCALE}"
            )


def _limit(moments: Moments) -> float:
    """Return the largest value of ordinary size, in the precision of the samples."""
    is_single = moments.eps > np.finfo(np.float64).eps
    return LARGEST_FLOAT32 if is_single else LARGEST


def _fits_float32(moments: Moments) -> bool:
    size = _largest_number(moments)
    return size == 0 or 1.0 / LARGEST_FLOAT32 < size < LARGEST_FLOAT32


def _largest_number(moments: Moments) -> float:
    """Return the largest class mean or standard deviation."""
    spread = np.sqrt(moments.scatter_diag.max() / moments.total)
    return float(max(moments.means.max(), -moments.means.min(), spread))
