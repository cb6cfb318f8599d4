"""Random, Variance and Markers: quick, and without parameters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from semfs.baselines.base import Baseline, Training

__all__ = ["Markers", "RandomSelector", "VarianceSelector", "welch_statistics"]

BLOCK_ROWS = 1024


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
    >>> from semfs.baselines import RandomSelector
    >>> RandomSelector(1, random_state=0).fit([[1, 2, 3], [3, 1, 2]]).order_
    array([1, 2, 0])
    """

    random_state: Any = None

    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        return check_random_state(self.random_state).uniform(size=data.X.shape[1])


class VarianceSelector(Baseline):
    """Rank the features by their variance, ``score_j = (1/n) Σ_i (x_ij - x̄_j)²``.

    Parameters
    ----------
    n_features_to_select : int, default=50

    Examples
    --------
    >>> from semfs.baselines import VarianceSelector
    >>> VarianceSelector(1).fit([[0, 5, 1], [1, 5, 9], [2, 5, 5]]).order_
    array([2, 0, 1])
    """

    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        X = data.varying
        if sp.issparse(X):
            return mean_variance_axis(X.astype(np.float64), axis=0)[1]
        return X.var(axis=0, dtype=np.float64)


class Markers(Baseline):
    """Markers of each class by a one-vs-rest t-test, as scanpy's ``rank_genes_groups``.

    For class c and each feature Welch's statistic of its rows against all other rows::

        t = (mean_c - mean_rest) / sqrt(var_c / n_c + var_rest / n_rest)

    The features of a class are ranked by t, largest first (those that are *higher* in the
    class). Then the classes take turns: the best feature of each, the second best of each,
    and so on, leaving out what was taken before. For counts pass normalised logarithms.

    Parameters
    ----------
    n_features_to_select : int, default=50

    Attributes
    ----------
    scores_, order_, ranking_ : ndarray of shape (d,)
        Share of the features not ahead in the turns, and the ranking by it.
    statistics_ : ndarray of shape (C, d)
        t of each class and feature; finite also where both sides are constant. The variance
        of a class with one row is taken as 0.
    classes_ : ndarray of shape (C,)

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from semfs.baselines import Markers
    >>> X, y = load_iris(return_X_y=True)
    >>> Markers(2).fit(X, y).get_support()
    array([False,  True,  True, False])
    """

    _supervised = True
    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> np.ndarray:
        if len(data.table) < 2:
            raise ValueError(
                "Markers compares each class with the rest, but y has one class only. Pass "
                "rows of at least two classes."
            )
        self.statistics_ = welch_statistics(data.X, data.codes)
        # the best of each class, then the second best of each, …
        best_first = np.argsort(-self.statistics_[:, ~data.constant], axis=1, kind="stable")
        turns = best_first.T.ravel()
        order = turns[np.sort(np.unique(turns, return_index=True)[1])]
        scores = np.empty(len(order))
        scores[order] = np.arange(len(order), 0, -1) / len(order)
        return scores


def welch_statistics(X: Any, codes: np.ndarray) -> np.ndarray:
    """Return Welch's t (C, d) of the rows of each class in ``codes`` (n,) against the rest."""
    counts = np.bincount(codes)[:, None].astype(np.float64)
    sums, squares = _class_sums(X, codes)
    rest, rest_sums = counts.sum() - counts, sums.sum(axis=0) - sums
    difference = sums / counts - rest_sums / rest
    error = np.sqrt(
        _mean_variance(counts, sums, squares)
        + _mean_variance(rest, rest_sums, squares.sum(axis=0) - squares)
    )
    # equal rows on both sides: any difference is beyond doubt, but finite
    smallest = np.maximum(1e-12 * np.abs(difference), np.finfo(np.float64).tiny)
    return difference / np.maximum(error, smallest)


def _class_sums(X: Any, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums and sums of squares (C, d) of the rows of each class."""
    n, d = X.shape
    member = sp.csr_array((np.ones(n), (codes, np.arange(n))), shape=(codes.max() + 1, n))
    if sp.issparse(X):
        X = X.astype(np.float64)
        return (member @ X).toarray(), (member @ X.multiply(X)).toarray()
    sums, squares = (np.zeros((member.shape[0], d)) for _ in range(2))
    for start in range(0, n, BLOCK_ROWS):
        rows = slice(start, min(start + BLOCK_ROWS, n))
        block = X[rows] - X[0].astype(np.float64)  # a common offset would drown the variance
        sums += member[:, rows] @ block
        squares += member[:, rows] @ block**2
    return sums, squares


def _mean_variance(n: np.ndarray, sums: np.ndarray, squares: np.ndarray) -> np.ndarray:
    """Return the variance of a mean of n rows, from their sums and sums of squares."""
    spread = np.maximum(squares - sums**2 / n, 0.0)
    return spread / np.maximum(n - 1, 1) / n
