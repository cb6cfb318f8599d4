"""Random, Variance and Markers: quick, and without parameters."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from semfs.baselines.base import Baseline, Training


@dataclass(eq=False, repr=False, kw_only=True)
class RandomSelector(Baseline):
    """Rank the features in random order, constant columns last: what any method has to beat.

    Parameters
    ----------
    n_features_to_select : int, default=50
    random_state : int, RandomState or None, default=None
        Pass an int for the same order every time.

    Examples
    --------
    >>> RandomSelector(1, random_state=0).fit([[1, 2, 3], [3, 1, 2]]).order_
    array([1, 2, 0])
    """

    random_state: Any = None

    _takes_sparse = _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        return check_random_state(self.random_state).uniform(size=data.X.shape[1])


class VarianceSelector(Baseline):
    """Rank the features by their variance, ``score_j = (1/n) Σ_i (x_ij - x̄_j)²``.

    Examples
    --------
    >>> VarianceSelector(1).fit([[0, 5, 1], [1, 5, 9], [2, 5, 5]]).order_
    array([2, 0, 1])
    """

    _takes_sparse = _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        return mean_and_variance(data.varying)[1]


class Markers(Baseline):
    """Markers of each class by a one-vs-rest t-test, as scanpy's ``rank_genes_groups``.

    For class c and each feature Welch's statistic of its rows against all other rows::

        t = (mean_c - mean_rest) / sqrt(var_c / n_c + var_rest / n_rest)

    The features of a class are ranked by t, largest first (those that are *higher* in the
    class). Then the classes take turns: the best feature of each, the second best of each,
    and so on, leaving out what was taken before. For counts pass normalized logarithms.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Share of the features not ahead in the turns.
    statistics_ : ndarray of shape (C, d)
        t of each class and feature; finite also where both sides are constant. The variance
        of a class with one row is taken as 0.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> Markers(2).fit(X, y).get_support()
    array([False,  True,  True, False])
    """

    _supervised = _takes_sparse = _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        if len(data.table) < 2:
            raise ValueError("y has one class only; Markers compares at least two.")
        self.statistics_ = welch_statistics(data.X, data.codes)
        # the best of each class, then the second best of each, …
        best_first = np.argsort(-self.statistics_[:, ~data.constant], axis=1, kind="stable")
        turns = best_first.T.ravel()
        order = turns[np.sort(np.unique(turns, return_index=True)[1])]
        return (len(order) - np.argsort(order)) / len(order)


def mean_and_variance(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Return the mean and the variance (d,) of each column, in float64."""
    if sp.issparse(X):
        return mean_variance_axis(X.astype(np.float64), axis=0)
    return X.mean(axis=0, dtype=np.float64), X.var(axis=0, dtype=np.float64)


def welch_statistics(X: Any, codes: np.ndarray) -> np.ndarray:
    """Return Welch's t (C, d) of the rows of each class in ``codes`` (n,) against the rest."""
    n = np.bincount(codes)[:, None].astype(np.float64)
    classes = [mean_and_variance(X[codes == c]) for c in range(len(n))]
    means, variances = (np.array(part) for part in zip(*classes))
    means -= n.T @ means / n.sum()  # a common offset would drown the variance
    sums, squares = n * means, n * (variances + means**2)
    rest, rest_sums = n.sum() - n, sums.sum(axis=0) - sums
    rest_spread = np.maximum(squares.sum(axis=0) - squares - rest_sums**2 / rest, 0.0)
    own_error = variances / np.maximum(n - 1, 1)
    error = np.sqrt(own_error + rest_spread / np.maximum(rest - 1, 1) / rest)
    difference = means - rest_sums / rest
    # equal rows on both sides: any difference is beyond doubt, but finite
    smallest = np.maximum(1e-12 * np.abs(difference), np.finfo(np.float64).tiny)
    return difference / np.maximum(error, smallest)
