"""Random and Variance: what any method has to beat."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from semfs.baselines.base import Baseline, Training, column_std
from semfs.selectors.base import stable_order

__all__ = ["RandomSelector", "VarianceSelector"]


class RandomSelector(Baseline):
    """Rank the features in random order: what any method has to beat.

    Constant columns still come last, so that it draws from the same candidates as the
    other selectors.

    Parameters
    ----------
    n_features_to_select : int, default=50
    random_state : int, RandomState or None, default=None
        Pass an int for the same order every time.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Uniform random numbers, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.

    Examples
    --------
    >>> import numpy as np
    >>> from semfs.baselines import RandomSelector
    >>> X = np.arange(12.0).reshape(3, 4)
    >>> RandomSelector(2, random_state=0).fit(X).transform(X).shape
    (3, 2)
    """

    _takes_sparse = True
    _unit_free = True

    def __init__(self, n_features_to_select: int = 50, *, random_state: Any = None) -> None:
        self.n_features_to_select = n_features_to_select
        self.random_state = random_state

    def _scores(self, data: Training) -> np.ndarray:
        return check_random_state(self.random_state).uniform(size=data.X.shape[1])


class VarianceSelector(Baseline):
    """Rank the features by their variance, ``score_j = (1/n) Σ_i (x_ij - x̄_j)²``.

    Parameters
    ----------
    n_features_to_select : int, default=50

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Population variances in float64, ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.

    Examples
    --------
    >>> import numpy as np
    >>> from semfs.baselines import VarianceSelector
    >>> X = np.array([[0.0, 5.0, 1.0], [1.0, 5.0, 9.0], [2.0, 5.0, 5.0]])
    >>> VarianceSelector(1).fit(X).order_
    array([2, 0, 1])
    """

    _takes_sparse = True
    _unit_free = True

    def __init__(self, n_features_to_select: int = 50) -> None:
        self.n_features_to_select = n_features_to_select

    def _scores(self, data: Training) -> np.ndarray:
        X = data.X
        every = mean_variance_axis(X, axis=0)[1] if sp.issparse(X) else column_std(X) ** 2
        scaled = np.asarray(every[~data.constant], dtype=np.float64)
        variance = np.ldexp(scaled, 2 * data.exponent)
        if not np.array_equal(stable_order(variance), stable_order(scaled)):
            raise ValueError(self._breakdown("cannot tell the variances of X apart"))
        return variance
