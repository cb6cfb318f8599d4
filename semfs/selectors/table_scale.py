"""Warnings about attributes of different scales, within a table and between tables."""

from __future__ import annotations

import numpy as np

from semfs._typing import Mask
from semfs.attributes import AttributeTable
from semfs.validation import ParameterWarning, listed, warn_user

#: Share of the variance of a table beyond which the few attributes that have it are named. Of
#: the tables of our data sets, three attributes have at most a third.
DOMINANT_SPREAD = 0.99
#: At most so many attributes are named, of at least so many times their number.
MOST_CARRIERS = 5
ATTRIBUTES_PER_CARRIER = 4

#: Seen classes needed before new classes beyond their range are remarkable: beyond n classes
#: a further one lies with probability 2 / (n + 1) in any attribute.
FEWEST_FITTED = 8
#: New classes needed before one attribute alone is remarkable, or a narrow range of it.
FEWEST_NEW = 3
FEWEST_NARROW = 5
#: How far the median new class is beyond the fitted range, in units of this range: of one
#: attribute, and of more than half of them.
FAR_BEYOND = 10.0
BEYOND = 0.05
#: Range of the new classes, as a share of the fitted one, that only another unit explains if
#: it is so for many attributes.
NARROW = 0.01
#: In random splits of the classes of our data sets, at most a third of the attributes are
#: beyond the range of nine or more fitted classes.
MOST_BEYOND = 0.5


def warn_of_uneven_attributes(table: AttributeTable) -> None:
    """Warn if a few attributes have nearly all of the spread of a table."""
    values = table.values
    # of yes and no, rare attributes vary little, and no unit is to blame
    if np.isin(values, (0.0, 0.5, 1.0)).all():
        return
    # in units of the largest, because squares of huge numbers overflow
    largest = max(float(np.abs(values).max()), np.finfo(float).tiny)
    variances = (values / largest).var(axis=0)
    total = float(variances.sum())
    n_varying = int((np.ptp(values, axis=0) > 0).sum())
    if total == 0:
        return
    order = np.argsort(-variances, kind="stable")
    reached = np.cumsum(variances[order]) / total
    n = 1 + int(np.argmax(reached > DOMINANT_SPREAD))
    if n > MOST_CARRIERS or n_varying < ATTRIBUTES_PER_CARRIER * n:
        return
    names = listed(table.names[order[:n]].tolist())
    verb = "carries" if n == 1 else "carry"
    # 99.96 % is not all of it
    share = np.floor(1000 * min(reached[n - 1], 0.999)) / 10
    message = (
        f": {n} of {len(variances)} attributes ({names}) {verb} "
        f"{share:.1f} % of the spread of the table, so the others hardly "
        "count. Put the attributes on one scale, for example by dividing "
        "each by its standard deviation."
    )
    warn_user(ParameterWarning("attributes", message))


def warn_of_other_scale(fitted: AttributeTable, given: AttributeTable) -> None:
    """Warn if attributes of a table seem to be in other units than those of the fit.

    Both tables have the same attributes. Attributes that are constant in the fitted table are
    not compared, because many terms of an ontology concern unseen classes only.
    """
    off = _off_scale(fitted, given)
    if not off.any():
        return
    n_attributes = len(given.names)
    names = listed(given.names[off].tolist())
    message = (
        f": {int(off.sum())} of {n_attributes} attributes are far outside "
        f"the range of the fitted table ({names}). Give them in the same "
        "units and on the same scale. If the fitted table was "
        "standardized, use its means and standard deviations."
    )
    warn_user(ParameterWarning("class_table", message))


def _off_scale(fitted: AttributeTable, given: AttributeTable) -> Mask:
    """Return which attributes (m,) of ``given`` seem to have another unit."""
    low = fitted.values.min(axis=0)
    fitted_range = np.ptp(fitted.values, axis=0)
    varies = fitted_range > 0
    none = np.zeros(len(varies), dtype=bool)
    n_given = len(given.values)
    if not varies.any() or n_given == 0:
        return none
    unit = np.where(varies, fitted_range, 1.0)
    places = (given.values - low) / unit  # within 0 and 1: in the fitted range
    beyond = np.median(np.maximum(-places, places - 1.0), axis=0)
    # an attribute that nearly no fitted class has may have any value of the whole table
    typical = np.median(np.abs(given.values), axis=0)
    is_large = typical > np.abs(fitted.values).max()
    far = varies & is_large & (beyond > FAR_BEYOND) & (n_given >= FEWEST_NEW)
    if len(fitted.values) < FEWEST_FITTED:
        return far
    new_range = np.ptp(places, axis=0)
    narrow = (0 < new_range) & (new_range < NARROW) & (n_given >= FEWEST_NARROW)
    off = varies & ((beyond > BEYOND) | narrow)
    is_many = off.sum() > MOST_BEYOND * varies.sum()
    return off if is_many else far
