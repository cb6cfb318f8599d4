"""The lasso path followed to a number of active features, on a Gram matrix."""

from __future__ import annotations

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

__all__ = ["lars_coefficients", "lars_to_cardinality"]

RIDGE = 1e-3  # added to the Gram matrix in the direction solve only


def lars_coefficients(
    X: np.ndarray,
    embedding: np.ndarray,
    cardinality: int,
    *,
    gram: np.ndarray | None = None,
    ridge: float = RIDGE,
) -> np.ndarray:
    """Return the unit-length coefficients (d, K), one column per embedding coordinate.

    The MCFS score of feature j is the largest size in row j.

    Parameters
    ----------
    X : ndarray of shape (n, d)
    embedding : ndarray of shape (n, K)
    cardinality : int
        Number of features that explain each coordinate.
    gram : ndarray of shape (d, d), optional
        XᵀX, if it is at hand.
    ridge : float, default=1e-3

    Examples
    --------
    >>> X = np.array([[2.0, 0.0, 1.0], [2.0, 1.0, 0.0], [0.0, 1.0, 1.0], [0.0, 0.0, 0.0]])
    >>> embedding = np.array([[1.0], [1.0], [-1.0], [-1.0]])
    >>> lars_coefficients(X, embedding, 1).ravel()
    array([1., 0., 0.])
    """
    gram = X.T @ X if gram is None else gram
    # the path of cy is c times the path of y, and columns are brought to unit length:
    # scaling first keeps the extremes of a heat kernel from overflowing
    scale = np.abs(embedding).max(axis=0)
    scaled = embedding / np.where(scale > 0, scale, 1.0)
    correlations = np.asarray(X.T @ scaled.astype(X.dtype), dtype=np.float64)
    columns = [lars_to_cardinality(gram, c, cardinality, ridge) for c in correlations.T]
    beta = np.column_stack(columns)
    norms = np.linalg.norm(beta, axis=0)
    return beta / np.where(norms > 0, norms, 1.0)


def lars_to_cardinality(
    gram: np.ndarray, correlation: np.ndarray, cardinality: int, ridge: float = RIDGE
) -> np.ndarray:
    """Return β (d,) where the lasso path first has ``cardinality`` non-zero entries.

    Parameters
    ----------
    gram : ndarray of shape (d, d)
        XᵀX, plain: the ridge is added to the direction solve only.
    correlation : ndarray of shape (d,)
        Xᵀy.
    cardinality : int
        Number m of active features to reach. If the path ends earlier (residual or
        features exhausted) its end is returned.

    Notes
    -----
    A step that brings a feature in and drives another to zero shows only m-1 non-zeros;
    the path goes on from there, as the original does for a single m.
    """
    d = len(correlation)
    m = min(cardinality, d)
    c = np.array(correlation, dtype=np.float64)
    beta = np.zeros(d)
    inactive = np.ones(d, dtype=bool)
    active: list[int] = []
    rows = np.empty((m, d))  # Gram rows of the active features, in their order
    smallest = 1e-12 * np.abs(c).max()
    removed = False
    for _ in range(20 * m + 100):  # removals may prolong the path, never endlessly
        C = np.abs(c[inactive]).max() if inactive.any() else np.abs(c).max()
        if smallest >= C:
            break
        if not removed:
            j = int(np.argmax(np.where(inactive, np.abs(c), -1.0)))
            rows[len(active)] = gram[j]
            active.append(j)
            inactive[j] = False
        G = rows[: len(active), active] + ridge * np.eye(len(active))
        sign = np.sign(c[active])
        try:
            h = cho_solve(cho_factor(G), sign)
        except LinAlgError:  # duplicates so large that the ridge is lost in rounding
            break
        alpha = (sign @ h) ** -0.5
        w = alpha * h
        a = w @ rows[: len(active)]
        gamma = _step_length(c[inactive], a[inactive], C, alpha)
        to_zero = _positive(-beta[active], w)
        removed = bool(to_zero.min() < gamma)
        gamma = min(gamma, to_zero.min())
        beta[active] += gamma * w
        c -= gamma * a
        if removed:
            position = int(np.argmin(to_zero))
            beta[active[position]] = 0.0
            inactive[active[position]] = True
            _drop(active, rows, position)
        elif len(active) == m:
            break
    return beta


def _step_length(c: np.ndarray, a: np.ndarray, C: float, alpha: float) -> float:
    """Return γ: how far until an inactive feature catches up, at most C/α."""
    ends = [_positive(C - c, alpha - a), _positive(C + c, alpha + a)]
    return min([C / alpha, *(end.min() for end in ends if end.size)])


def _positive(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the ratios, with those that are not strictly positive set to infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator / denominator
    return np.where(ratio > 0, ratio, np.inf)


def _drop(active: list[int], rows: np.ndarray, position: int) -> None:
    """Take one feature out of the active list and its Gram row out of ``rows``."""
    del active[position]
    rows[position : len(active)] = rows[position + 1 : len(active) + 1].copy()
