"""Samples in memory as a numeric matrix, validated as in scikit-learn.

Columns of a frame that hold text are left out. Numbers are converted to float32 or float64.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import validate_data

from semfs._typing import DataLike, Float64, Matrix, Sparse
from semfs.feature_names import check_unique_names
from semfs.io.registry import is_frame
from semfs.rows import column_places
from semfs.rows.device import floating_dtypes
from semfs.selectors.inputs.nonfinite import place_of_nan
from semfs.system import memory_limit, size_text
from semfs.validation import listed, warn_user

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


#: Types that a validated matrix may have.
FLOATS = [np.float64, np.float32]
#: scikit-learn's warning about data without names; we compare the names of files ourselves.
NO_NAMES = "X does not have valid feature names"


def training_matrix(
    estimator: BaseEstimator,
    X: DataLike,
    names: Sequence[str] | None = None,
    *,
    accept_sparse: Any = ("csr", "csc"),
    finite: bool = False,
    reset: bool = True,
) -> Matrix:
    """Return X (n, d) in float32 or float64, checked as by scikit-learn's `validate_data`.

    Columns of a frame that hold no numbers are left out and named in a warning. Values are
    checked to be finite only if ``finite`` is true, because sums over them show it as well.
    """
    X = without_text_columns(X, warn=reset)
    known = getattr(estimator, "feature_names_in_", None)
    # files may have more columns, or the same in another order
    if not reset and names is not None and known is not None:
        X = X[:, column_places(names, known)]
    if str(getattr(X, "dtype", "")) == "float16":
        X = X.astype(np.float32)  # half precision is for storage, not for sums
    if sp.issparse(X) and not accept_sparse and names is not None:
        X = _dense(X, type(estimator).__name__)
    options = {
        "accept_sparse": accept_sparse,
        "dtype": floating_dtypes(X) or FLOATS,
        "ensure_all_finite": finite,
    }
    # scikit-learn adds up all numbers, of which some may be huge
    quiet = np.errstate(invalid="ignore")
    with warnings.catch_warnings(), quiet, place_of_nan(X, names):
        if names is not None:  # they were compared when the file was read
            warnings.filterwarnings("ignore", NO_NAMES)
        checked = validate_data(estimator, X, reset=reset, **options)
    if reset and names is not None:
        estimator.feature_names_in_ = np.array(names, dtype=object)
    return checked


def without_text_columns(X: DataLike, *, warn: bool = False) -> Any:
    """Return a frame without its text columns. Anything else is returned unchanged."""
    if not is_frame(X):
        return X
    frame: Any = X  # of pandas or polars, which share no base class
    check_unique_names(frame.columns)
    # of pandas by place, because two columns may have one name
    by_place = getattr(frame, "iloc", frame)
    columns = [by_place[:, j] for j in range(frame.shape[1])]
    numeric = [j for j, column in enumerate(columns) if _is_numeric(column)]
    if len(numeric) == len(columns):
        return frame
    names = [str(name) for name in frame.columns]
    is_numeric = set(numeric)
    others = [j for j in range(len(columns)) if j not in is_numeric]
    texts = [repr(names[j]) for j in others]
    for j in others:
        _refuse_broken_numbers(frame, names[j], columns[j])
    if not numeric:
        raise ValueError(
            f"X has no column of numbers, only {listed(texts)}. Pass numeric features."
        )
    if warn:
        message = f"ignored non-numeric columns of X: {listed(texts)}."
        warn_user(message)
    return by_place[:, numeric]


def _is_numeric(column: Any) -> bool:
    """Return whether a column of a frame holds numbers; for objects, only numbers."""
    kind = getattr(column.dtype, "kind", "O")
    if kind in "biuf":
        return True
    # times are no measurements
    if kind in "Mm":
        return False
    try:
        np.asarray(column.to_numpy(), dtype=np.float64)
    except (TypeError, ValueError):
        # a missing value is refused later, in words of its own
        return bool(len(column)) and all(_is_number(value) for value in column)
    return True


def _refuse_broken_numbers(frame: Any, name: str, column: Any) -> None:
    """Raise if most cells of a text column are numbers, because then the others are errors."""
    values = column.to_list()
    wrong = [row for row, value in enumerate(values) if not _is_number(value)]
    if 2 * len(wrong) >= len(values) or getattr(column.dtype, "kind", "O") in "Mm":
        return
    row = wrong[0]
    label = frame.index[row] if hasattr(frame, "index") else row
    place = f"row {row}" if label == row else f"row {row} ({str(label)!r})"
    raise ValueError(
        f"X: column {name!r} holds numbers, but {values[row]!r} in "
        f"{place}, counting from 0 ({len(wrong)} of {len(values)} cells "
        "are not numbers). Correct these cells, or drop the column."
    )


def _is_number(value: object) -> bool:
    return value is None or isinstance(value, (int, float)) or type(value).__name__ == "NAType"


def _dense(X: Sparse, name: str) -> Float64:
    """Convert a sparse matrix from a file to a dense one, if memory allows."""
    size = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if size > memory_limit() // 4:
        raise ValueError(
            f"{name} needs dense data, which would take "
            f"{size_text(size)}. Use fewer genes or cells, or another "
            "selector."
        )
    return X.toarray()
