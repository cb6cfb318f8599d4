"""Prefetching: prediction of the Gram columns that forward selection will need next.

A Gram column costs a pass over the data, and so do a hundred columns in one batch. Which
features will be selected is not known beforehand, but it can be predicted well: run the same
search on an estimate of G among the most promising features. An estimate that is wrong costs a
column that is never used, or one more pass; it never changes the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semfs._typing import Float64, Floats, Indices, Mask
from semfs.method.cholesky import PivotedCholesky
from semfs.method.rules import Rule

#: Features that G is estimated for, those of largest gain. If the penalty dominates, gains
#: hardly change from step to step, and fewer features can be selected soon.
#: (Measured on 6,000 × 3,000 values: more features do not save a pass.)
N_ESTIMATED_STEADY = 512
N_ESTIMATED = 768
#: At each predicted step, this many features are looked at (the best and its rivals) …
N_RIVALS = 4
#: … and those whose gain is at least this fraction of the best are fetched as well.
RIVAL_GAIN = 0.97
#: Gains within this many rounding units of the largest one are ties.
TIE_EPS = 100.0


def best_feature(gains: Float64, eps: float) -> int:
    """Return the feature with the largest gain (d,), or the first one of (nearly) equal gains.

    The order in which samples were summed must not decide, so gains that are equal up to
    rounding errors count as equal.
    """
    largest = float(gains.max())
    if largest > 0.0:
        return int(np.argmax(gains >= largest * (1.0 - TIE_EPS * eps)))
    return int(np.argmax(gains))


def best_permitted(
    scores: Float64,
    features: Mask,
    rule: Rule | None,
    eps: float,
) -> int | None:
    """Return the best of some features (d,) by scores (d,) that a rule permits, or None."""
    refused: list[int] = []
    while True:
        eligible = features
        if rule is not None:
            # Asked for again after each refusal, which may rule out further features.
            eligible = features & rule.allowed()
            eligible[refused] = False
        if not eligible.any():
            return None
        j = best_feature(np.where(eligible, scores, -1.0), eps)
        if rule is None or rule.permits(j):
            return j
        refused.append(j)


def per_cost(gains: Float64, costs: Float64 | None) -> Float64:
    """Return gains (d,) per cost (d,). Features that cost nothing come first, by gain."""
    if costs is None:
        return gains
    is_priced = costs > 0.0
    if is_priced.all():
        return gains / costs
    if not is_priced.any():
        return gains
    # features that cannot be selected may have no price, which is NaN
    scores: Float64 = gains / np.where(is_priced, costs, 1.0)
    nothing = costs == 0.0
    scores[nothing] = gains[nothing] + 2.0 * scores.max(initial=0.0)
    return scores


def promising_features(priority: Float64, *, penalty_dominates: bool) -> Indices:
    """Return the features that an estimate of G should be about, in the order of X.

    ``priority`` (d,) is the gain of each feature, or negative if it cannot be selected.
    """
    n_features = N_ESTIMATED_STEADY if penalty_dominates else N_ESTIMATED
    best = np.argsort(-priority, kind="stable")[:n_features]
    return np.sort(best[priority[best] >= 0.0])


def predict_columns(
    factors: Sequence[PivotedCholesky],
    estimates: Sequence[Floats],
    selected: Mask,
    forced: Mask,
    n_steps: int,
    eps: float,
    max_correlation: float | None = None,
    costs: Float64 | None = None,
    rule: Rule | None = None,
) -> Mask:
    """Return which of m features forward selection will probably need in its next steps.

    Parameters
    ----------
    factors : PivotedCholesky of the m features, one per quadratic
        Restricted to these features. They are changed.
    estimates : arrays of shape (m, m)
        Estimates of G among the features, one per quadratic.
    selected, forced : masks of shape (m,)
        Features that are selected already, and features that are selected before others.
    n_steps : int
        Number of steps to look ahead.
    eps : float
        Rounding unit of the data.
    max_correlation : float, optional
        Features whose estimated correlation with a selected one exceeds it are skipped. The
        estimate is that in G, where differences between classes count more than in X.
    costs : array of shape (m,), optional
        Gains are compared per cost.
    rule : Rule, optional
        It is about the m features, and is changed.

    Returns
    -------
    mask of shape (m,)
        The features that the search on the estimates selects, and at each step those whose
        gain is nearly as large as the best one.
    """
    selected = selected.copy()
    predicted = np.zeros_like(selected)
    is_copy = np.zeros_like(selected)
    for _ in range(n_steps):
        if (selected | is_copy).all():
            break
        total = np.zeros(len(selected))
        for factor in factors:
            total += factor.gains()
        gains = per_cost(np.where(selected | is_copy, 0.0, total), costs)
        rivals = np.argsort(-gains)[:N_RIVALS]
        predicted[rivals[gains[rivals] > RIVAL_GAIN * gains[rivals[0]]]] = True

        waiting = forced & ~selected
        if waiting.any():
            j: int | None = best_feature(np.where(waiting, gains, -1.0), eps)
        else:
            j = best_permitted(gains, ~selected & ~is_copy, rule, eps)
        if j is None:
            break
        predicted[j] = True
        selected[j] = True
        for factor, estimate in zip(factors, estimates):
            factor.enter(j, estimate[j], selected)
        if rule is not None:
            rule.entered(j)
        if max_correlation is not None:
            is_copy |= _alike(estimates[0], j, max_correlation) & ~forced
    return predicted


def _alike(estimate: Floats, j: int, max_correlation: float) -> Mask:
    """Return which features (m,) an estimate of G (m, m) takes for near copies of feature j."""
    squares = np.diag(estimate)
    alike: Mask = estimate[j] ** 2 > max_correlation**2 * squares[j] * squares
    alike[j] = False
    return alike
