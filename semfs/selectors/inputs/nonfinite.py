"""NaN and infinity in samples: whether there are any, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import DataLike, Mask
from semfs.rows.device import to_numpy
from semfs.validation import FILL_GAPS, ParameterError, check_all_finite


@contextmanager
def place_of_nan(
    X: DataLike,
    names: Sequence[str] | None = None,
    what: str = "X",
    advice: str = FILL_GAPS,
) -> Iterator[None]:
    """If the block raises because of a NaN or an infinity in X, say where it is."""
    try:
        yield
    except ParameterError:  # which knows better what is wrong
        raise
    except ValueError:
        if has_nonfinite(X):
            check_all_finite(to_numpy(X), names, what, advice=advice)
        raise


def with_zeros_elsewhere(X: Any, support: Mask) -> Any:
    """Return X with zeros in place of its columns that are not selected and have gaps.

    X is a frame, or a matrix in numpy or scipy; the features of ``support`` (d,) stay.
    """
    if hasattr(X, "columns"):
        return _frame_with_zeros(X, support)
    if sp.issparse(X):
        X = X.tocsr(copy=True)
        X.data[~support[X.indices]] = 0.0
        return X
    X = np.array(X)
    X[:, ~support] = 0.0
    return X


def _frame_with_zeros(frame: Any, support: Mask) -> Any:
    """`with_zeros_elsewhere` of a pandas or polars frame: other columns keep their types."""
    by_place = getattr(frame, "iloc", frame)
    places = [j for j in np.flatnonzero(~support).tolist() if has_nonfinite(by_place[:, j])]
    if hasattr(frame, "with_columns"):  # polars
        return frame.with_columns(**{frame.columns[j]: 0.0 for j in places})
    filled = frame.copy()
    for j in places:
        filled.isetitem(j, 0.0)
    return filled


def has_nonfinite(X: DataLike) -> bool:
    """Whether X is a matrix of numbers with a NaN or infinity among them."""
    try:
        matrix: Any = X
        if sp.issparse(X):
            values = matrix.data
        else:
            values = np.asarray(to_numpy(matrix), dtype=np.float64)
        # an empty matrix has neither
        return values.size > 0 and not np.isfinite(values).all()
    except (TypeError, ValueError):
        return False
