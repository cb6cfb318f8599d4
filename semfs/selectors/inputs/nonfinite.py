"""NaN and infinity in samples: whether there are any, and where."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import DataLike
from semfs.rows.device import to_numpy
from semfs.validation import ParameterError, check_all_finite


@contextmanager
def place_of_nan(
    X: DataLike, names: Sequence[str] | None = None, what: str = "X"
) -> Iterator[None]:
    """If the block raises because of a NaN or an infinity in X, say where it is."""
    try:
        yield
    except ParameterError:  # which knows better what is wrong
        raise
    except ValueError:
        if has_nonfinite(X):
            check_all_finite(to_numpy(X), names, what)
        raise


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
