"""What every baseline does around its algorithm: enough data, scaling, ties, Gram matrix."""

from __future__ import annotations

import numpy as np

__all__ = [
    "break_ties",
    "check_enough",
    "column_std",
    "gram_matrix",
    "last_if_constant",
    "standardize_columns",
]


def last_if_constant(scores: np.ndarray, constant: np.ndarray) -> np.ndarray:
    """Return scores (d,) with ``-inf`` for the columns of the mask ``constant`` (d,).

    ``scores`` has one entry per column, or one per column that is not constant.
    """
    full = np.full(constant.shape, -np.inf)
    full[~constant] = scores if len(scores) < len(constant) else scores[~constant]
    return full


def break_ties(scores: np.ndarray, fallback: np.ndarray) -> np.ndarray:
    """Rank the features of score 0 by ``fallback``, without disturbing the others.

    They get distinct negative scores of at most 1e-10 in size, so that sorting by score
    still gives the whole ranking (``scores_`` and ``order_`` never disagree).
    """
    zero = scores == 0
    if not zero.any():
        return scores
    distinct, position = np.unique(-fallback[zero], return_inverse=True)  # 0 is the best
    broken = np.array(scores, dtype=np.float64)
    broken[zero] = -1e-10 * (position.reshape(-1) + 1) / len(distinct)
    return broken


def standardize_columns(
    X: np.ndarray, *, center: bool = True, scale: bool = True
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a centred/scaled copy of X (its dtype), the offsets (d,) and scales (d,).

    Population standard deviation; constant columns are divided by 1. Statistics are
    summed in float64 whatever the dtype of X.
    """
    d = X.shape[1]
    offset = X.mean(axis=0, dtype=np.float64) if center or scale else np.zeros(d)
    divisor = np.ones(d)
    if scale:
        divisor = column_std(X, offset)
        divisor[(divisor == 0) | (X.max(axis=0) == X.min(axis=0))] = 1.0
    if not center:
        offset = np.zeros(d)
    Z = X - offset.astype(X.dtype)
    Z /= divisor.astype(X.dtype)
    return Z, offset, divisor


def column_std(X: np.ndarray, mean: np.ndarray | None = None) -> np.ndarray:
    """Return the population standard deviation (d,) of each column, in float64."""
    mean = X.mean(axis=0, dtype=np.float64) if mean is None else mean
    total = np.zeros(X.shape[1])
    for start in range(0, X.shape[0], 64):  # blocks that stay in the cache
        block = X[start : start + 64] - mean
        total += np.einsum("ij,ij->j", block, block)
    return np.sqrt(total / X.shape[0])


def gram_matrix(X: np.ndarray, block: int = 2048) -> np.ndarray:
    """Return XᵀX (d, d) in float64.

    Each block of rows is multiplied in the dtype of X and added in float64: the speed of
    float32 without its loss over many rows.
    """
    total = np.zeros((X.shape[1], X.shape[1]))
    for start in range(0, X.shape[0], block):
        rows = X[start : start + block]
        total += rows.T @ rows
    return total


def check_enough(name: str, X: np.ndarray, constant: np.ndarray) -> None:
    """Raise unless X has two rows and at least one column that is not constant."""
    if X.shape[0] < 2:
        raise ValueError(
            f"Found array with {X.shape[0]} sample(s) (shape={X.shape}) while a minimum of 2 "
            f"is required by {name}."
        )
    if constant.all():
        raise ValueError(
            f"All {X.shape[1]} columns of X are constant: {name} has nothing to rank. "
            "Check that X holds the features you meant."
        )
