"""Markers: features that are high in one class, compared with the others."""

from __future__ import annotations

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.arrays import batches, take_columns
from semfs.method.moments import Moments

#: A feature marks a class whose mean exceeds that of the other classes by this many standard
#: deviations within classes …
LEAST_DIFFERENCE = 1.0
#: … if the class is among so many of the highest ones.
HIGHEST_CLASSES = 2
#: Classes whose means are copied at once.
CLASSES_AT_ONCE = 64


def class_markers(means: Float64, deviation: Float64) -> Mask:
    """Return which features mark which class, (C, d).

    Feature j marks class c if (μ_cj − mean of the other class means)/σ_j is at least 1 and c is
    among the two classes of the highest means.

    Parameters
    ----------
    means : ndarray of shape (C, d)
        Class means μ.
    deviation : ndarray of shape (d,)
        Standard deviations σ within classes.

    Examples
    --------
    >>> class_markers(np.array([[0.0, 5.0], [0.0, 0.0], [3.0, 0.0]]), np.array([1.0, 9.0]))
    array([[False, False],
           [False, False],
           [ True, False]])
    """
    n_classes = len(means)
    others = (means.sum(axis=0) - means) / max(n_classes - 1, 1)
    difference = means - others
    is_high = (difference >= LEAST_DIFFERENCE * deviation) & (difference > 0.0)
    return np.asarray(is_high & (means >= _least_of_highest(means)))


def above_others(means: Float64) -> Mask:
    """Return whether each class mean exceeds the mean of the other class means, (C, d).

    >>> above_others(np.array([[0.0, 5.0], [0.0, 0.0], [3.0, 4.0]])).tolist()
    [[False, True], [False, False], [True, True]]
    """
    return np.asarray(means > means.mean(axis=0))


def _least_of_highest(means: Float64) -> Float64:
    """The lowest (d,) of the highest class means (C, d): that of rank `HIGHEST_CLASSES`."""
    # One class after the other: sorting along classes takes ten times as long.
    highest = [np.full(means.shape[1], -np.inf) for _ in range(HIGHEST_CLASSES)]
    for row in means:
        # what a class exceeds moves down by one rank
        for rank, values in enumerate(highest):
            highest[rank] = np.maximum(values, row)
            row = np.minimum(values, row)
    return highest[min(HIGHEST_CLASSES, len(means)) - 1]


def within_deviation(moments: Moments, features: Indices | None = None) -> Float64:
    """Return the standard deviation within classes of all features (d,) or some (k,)."""
    if features is None:
        features = np.arange(moments.n_features)
    between = np.zeros(len(features))
    overall = moments.mean[features]
    # a few classes at once, because all of them take as much memory as the means
    for classes in batches(len(moments.counts), CLASSES_AT_ONCE):
        means = take_columns(moments.means[classes], features)
        between += moments.counts[classes] @ (means - overall) ** 2
    within = np.maximum(moments.scatter_diag[features] - between, 0.0)
    return np.sqrt(within / moments.total)
