"""Small helpers on matrices and row numbers that several modules share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from sklearn.utils import check_array

if TYPE_CHECKING:
    from semfs._typing import Indices, Mask, Matrix

Number = TypeVar("Number", bound=np.generic)

# Seed of all draws of samples: the same data give the same samples, from memory and from files.
SAMPLE_SEED = 0


def as_matrix(X: Any) -> Matrix:
    """Return X as a float32 or float64 matrix, CSR if sparse; finiteness is not checked."""
    if getattr(X, "dtype", None) == np.float16:
        # half precision is for storage: its sums overflow at 65,504
        X = X.astype(np.float32)
    dtypes = [np.float64, np.float32]
    checked = check_array(X, accept_sparse="csr", dtype=dtypes, ensure_all_finite=False)
    return canonical(checked)


#: Context manager and decorator: no warnings when absurd parameters make numbers overflow. What
#: is not finite is refused where results are checked, with advice.
quiet_overflow = np.errstate(over="ignore", invalid="ignore")


def canonical(X: Any) -> Any:
    """Return X; if sparse, with one value per place: squares of parts do not add up."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def batches(n: int, step: int) -> Iterator[slice]:
    """Yield slices of at most ``step`` that cover range(n)."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def take_columns(M: npt.NDArray[Number], columns: Indices) -> npt.NDArray[Number]:
    """Return the columns M[:, columns] (C, b) of a dense array (C, d), row by row in memory.

    NumPy's indexing goes through M column by column. Where the length of a row is a power of
    two, all of them meet in a few places of the processor's cache, and that takes ten times as
    long.
    """
    return np.take(M, columns, axis=1)


def draw_rows(mask: Mask, n: int) -> Indices:
    """Return at most ``n`` random positions where ``mask`` is true, in ascending order.

    The draw depends on the mask and on n alone, so that a fit in memory and a fit from a file
    use the same samples. A smaller draw is part of every larger one.
    """
    positions = np.flatnonzero(mask)
    if len(positions) <= n:
        return positions
    order = np.random.default_rng(SAMPLE_SEED).permutation(len(positions))
    return positions[np.sort(order[:n])]
