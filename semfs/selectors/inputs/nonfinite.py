"""Find NaN and infinity in samples."""

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
    """If the block raises because of NaN or infinity in X, raise with their position."""
    try:
        yield
    except ParameterError:  # which knows better what is wrong
        raise
    except ValueError:
        if has_nonfinite(X):
            check_all_finite(to_numpy(X), names, what, advice=advice)
        raise


def with_zeros_elsewhere(X: Any, support: Mask) -> Any:
    """Replace columns of X that are not selected and have gaps by zeros.

    X is a frame or a matrix of numpy or scipy. The features in ``support`` (d,) do not change.
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
    """Do `with_zeros_elsewhere` for a pandas or polars frame, keeping other columns."""
    by_place = getattr(frame, "iloc", frame)
    places = [j for j in np.flatnonzero(~support).tolist() if has_nonfinite(by_place[:, j])]
    if hasattr(frame, "with_columns"):  # polars
        return frame.with_columns(**{frame.columns[j]: 0.0 for j in places})
    filled = frame.copy()
    for j in places:
        filled.isetitem(j, 0.0)
    return filled


def has_nonfinite(X: DataLike) -> bool:
    """Return whether X is a numeric matrix that contains NaN or infinity."""
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
