"""The objective J of the seen classes, from parameters, moments and the attribute table."""

from __future__ import annotations

import numpy as np

from semfs._typing import Float64
from semfs.attributes import AttributeTable
from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.method.target_rank import reduce_rank
from semfs.selectors.parameters import MethodParameters
from semfs.validation import class_weights

#: Descriptions that differ by less than this share of their numbers are the same: what is left
#: are rounding errors.
EQUAL_DESCRIPTION = 1e-12


def attribute_targets(
    params: MethodParameters, table: AttributeTable
) -> tuple[Float64 | None, Float64 | None]:
    """Return targets (C, r) and their basis (m, r). For labels, return None for both."""
    if params.attributes is None:
        return None, None
    A = table.values
    # The intercept takes up the mean over classes; the rest is what features explain.
    if params.fit_intercept:
        is_constant = np.ptp(A, axis=0) <= EQUAL_DESCRIPTION * np.abs(A).max(axis=0)
        # the mean of equal numbers may differ from them by a rounding error
        A = np.where(is_constant, 0.0, A - A.mean(axis=0))
    return reduce_rank(A)


def squared_label_weight(
    label_weight: float,
    targets: Float64 | None,
) -> float:
    """Return the squared weight w of the labels next to targets A (C, r): [A, √w I].

    With ``label_weight`` β, the labels have β times the sum of squares of the table. Indicators
    of C classes have the sum of squares C − 1 about their mean, so w = β ‖A − mean(A)‖²/(C −
    1). If all classes have the same description, only the labels separate them, and w = β.
    """
    if targets is None:
        return 0.0
    C = len(targets)
    spread = float(((targets - targets.mean(axis=0)) ** 2).sum())
    if spread > EQUAL_DESCRIPTION**2 * float((targets**2).sum()):
        return label_weight * spread / (C - 1)
    return label_weight


def seen_objective(
    params: MethodParameters,
    moments: Moments,
    targets: Float64 | None,
    *,
    gamma: float | None = None,
    penalty_scale: str | None = None,
) -> Objective:
    """Return J of the seen classes, perhaps with another ``gamma`` or scale of it."""
    return Objective.from_moments(
        moments,
        targets,
        class_weight=class_weights(params.class_weight, moments.classes, moments.counts),
        alpha=params.alpha,
        gamma=params.gamma if gamma is None else gamma,
        penalty_scale=params.penalty_scale if penalty_scale is None else penalty_scale,
        fit_intercept=params.fit_intercept,
        label_weight=squared_label_weight(params.label_weight, targets),
    )
