"""Random, Variance, BetweenClass and Markers: fast baselines without own parameters."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_random_state
from sklearn.utils.sparsefuncs import mean_variance_axis

from semfs._typing import Float64, Floats, Indices, Matrix, RandomState
from semfs.baselines.base import Baseline, Training

#: Standard error below which a difference counts as beyond doubt, relative to the difference.
SMALLEST_ERROR = 1e-12


@dataclass(eq=False, repr=False, kw_only=True)
class RandomSelector(Baseline):
    """Rank the features in random order, with constant columns last.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Number of features to select.
    random_state : int, RandomState or None, default=None
        Pass an int to get the same order every time.

    Examples
    --------
    >>> RandomSelector(1, random_state=0).fit([[1, 2, 3], [3, 1, 2]]).order_
    array([1, 2, 0])
    """

    random_state: RandomState = None

    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> Floats:
        rng = check_random_state(self.random_state)
        return rng.uniform(size=data.X.shape[1])


class VarianceSelector(Baseline):
    """Rank the features by their variance, ``score_j = (1/n) Σ_i (x_ij - x̄_j)²``.

    Examples
    --------
    >>> VarianceSelector(1).fit([[0, 5, 1], [1, 5, 9], [2, 5, 5]]).order_
    array([2, 0, 1])
    """

    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> Floats:
        _, variance = mean_and_variance(data.varying)
        return variance


class BetweenClassSelector(Baseline):
    """Rank the features by the variance of their class means, ``score_j = var_c(mean_cj)``.

    Every class has the same weight. Unlike the F statistic of ANOVA, the score does not depend
    on the spread within classes, so features with a large variance are favored. K-means on the
    selected features favors them as well.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Variance of the class means.

    Examples
    --------
    >>> X = [[0, 5, 1], [2, 5, 1], [9, 6, 1], [11, 6, 1]]
    >>> BetweenClassSelector(1).fit(X, ["a", "a", "b", "b"]).order_
    array([0, 1, 2])
    """

    _supervised = True
    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> Floats:
        if len(data.table) < 2:
            raise ValueError(
                "y has only one class, but BetweenClassSelector needs at least two."
            )
        X = data.varying
        means = [mean_and_variance(X[data.codes == c])[0] for c in range(len(data.table))]
        return np.var(means, axis=0)


class Markers(Baseline):
    """Rank markers of each class by one-vs-rest t-tests, as in scanpy's ``rank_genes_groups``.

    For class c and each feature, Welch's statistic compares the samples of c with all others::

        t = (mean_c - mean_rest) / sqrt(var_c / n_c + var_rest / n_rest)

    For each class, features are ranked by t, largest first, so that features with *higher*
    values in the class come first. Then the best feature of each class is selected, then the
    second best of each class, and so on. Features that are already selected are skipped. If X
    holds counts, pass normalized logarithms instead.

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Share of the features that are not ranked before this feature.
    statistics_ : ndarray of shape (C, d)
        The statistic t of each class and feature. It is finite even if a feature is constant
        both within and outside the class. The variance of a class with a single sample is set
        to 0.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> Markers(2).fit(X, y).get_support()
    array([False,  True,  True, False])
    """

    _supervised = True
    _takes_sparse = True
    _unit_free = True

    def _scores(self, data: Training) -> Floats:
        """Return the share of the features that are not selected before each feature."""
        if len(data.table) < 2:
            raise ValueError("y has only one class, but Markers needs at least two.")
        self.statistics_ = welch_statistics(data.X, data.codes)
        best_first = np.argsort(-self.statistics_[:, ~data.constant], axis=1, kind="stable")
        turns = best_first.T.ravel()  # the best of each class, then the second best of each, …
        _, first_turn = np.unique(turns, return_index=True)  # of each feature
        order = turns[np.sort(first_turn)]
        rank = np.argsort(order)
        return (len(order) - rank) / len(order)


def mean_and_variance(X: Matrix) -> tuple[Float64, Float64]:
    """Return the mean and the variance (d,) of each column, in float64."""
    if sp.issparse(X):
        return mean_variance_axis(X.astype(np.float64), axis=0)
    return X.mean(axis=0, dtype=np.float64), X.var(axis=0, dtype=np.float64)


def welch_statistics(X: Matrix, codes: Indices) -> Float64:
    """Return Welch's t (C, d) of the rows of each class in ``codes`` (n,) and all others."""
    n = np.bincount(codes)[:, None].astype(np.float64)  # (C, 1)
    moments = [mean_and_variance(X[codes == c]) for c in range(len(n))]
    means = np.array([mean for mean, _ in moments])  # (C, d)
    variances = np.array([variance for _, variance in moments])
    means -= n.T @ means / n.sum()  # a common offset would drown the variance

    # The rest of a class: all rows minus its own, in numbers, sums and sums of squares.
    sums = n * means
    squares = n * (variances + means**2)
    n_rest = n.sum() - n
    rest_sums = sums.sum(axis=0) - sums
    rest_squares = squares.sum(axis=0) - squares
    rest_scatter = np.maximum(rest_squares - rest_sums**2 / n_rest, 0.0)

    class_error = variances / np.maximum(n - 1, 1)
    rest_error = rest_scatter / np.maximum(n_rest - 1, 1) / n_rest
    error = np.sqrt(class_error + rest_error)
    difference = means - rest_sums / n_rest
    # Where both sides are constant, any difference is beyond doubt, but t must be finite.
    smallest = np.maximum(SMALLEST_ERROR * np.abs(difference), np.finfo(np.float64).tiny)
    return difference / np.maximum(error, smallest)
