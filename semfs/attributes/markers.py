"""Class attributes from marker lists: which markers each class has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes.files import read_text_table
from semfs.files import FileError, need, open_existing, reading
from semfs.rows import Labels

__all__ = ["attributes_from_markers"]

_ENDINGS = (".csv", ".tsv", ".txt")
_EXPECTED = "a class, a marker and, if you like, a weight per row were expected"


def attributes_from_markers(markers: Any) -> Any:
    """Return which markers each class has, as a table of 0 and 1 or of weights.

    Parameters
    ----------
    markers : DataFrame, path-like, or iterable of (class, marker) or (class, marker, weight)
        One row per class and marker: the first two columns, under any header. A third column
        holds weights in numbers; others are ignored. Files are ``.csv``, ``.tsv`` or ``.txt``
        with a header line.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Classes and markers in the order in which they first occur; 0 where a class does not
        have a marker. Markers of a single class are kept. Classes in files are integers if
        all of them are written as such.

    Examples
    --------
    >>> attributes_from_markers([("T cell", "CD3D"), ("T cell", "IL7R"), ("B cell", "CD19")])
            CD3D  IL7R  CD19
    T cell   1.0   1.0   0.0
    B cell   0.0   0.0   1.0
    >>> attributes_from_markers([("T cell", "CD3D", 2.5), ("B cell", "CD3D", 0.1)])
            CD3D
    T cell   2.5
    B cell   0.1
    """
    pandas = need("pandas", "data", what="A table")
    rows = _rows(markers, pandas).iloc[:, :3].drop_duplicates()
    named = rows.iloc[:, :2].map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    empty = (named.isna() | (named == "")).any(axis=1).to_numpy()
    if empty.any():
        row = named.iloc[int(empty.argmax())].tolist()
        raise ValueError(f"markers: a class or marker is missing in {row}; {_EXPECTED}.")
    class_codes, classes = pandas.factorize(named.iloc[:, 0].astype(object))
    marker_codes, names = pandas.factorize(named.iloc[:, 1].astype(str))
    _check_no_pair_twice(named)
    values = np.zeros((len(classes), len(names)))
    values[class_codes, marker_codes] = _weights(rows, pandas)
    labels: Any = classes.tolist()
    if isinstance(markers, (str, Path)):
        labels = Labels.of(labels).whole_numbers().array().tolist()
    return pandas.DataFrame(values, index=labels, columns=names.tolist())


def _rows(markers: Any, pandas: Any) -> Any:
    if isinstance(markers, (str, Path)):
        rows = _read_rows(open_existing(markers))
    elif isinstance(markers, pandas.DataFrame):
        rows = markers
    else:
        # frames of polars iterate over their columns
        rows = pandas.DataFrame(list(markers.rows() if hasattr(markers, "rows") else markers))
    if rows.shape[1] < 2 or not len(rows):
        raise ValueError(
            f"markers has {rows.shape[0]} rows of {rows.shape[1]} cells; {_EXPECTED}."
        )
    return rows


def _read_rows(path: Path) -> Any:
    if path.suffix.lower() not in _ENDINGS:
        raise FileError(f"{path}: markers are read from {', '.join(_ENDINGS)} files.")
    with reading(path, "marker"):
        rows = read_text_table(path)
    if len(rows.columns) > 1 and rows.columns[0] in set(rows.iloc[:, 0]):
        raise FileError(
            f"{path} starts with class {rows.columns[0]!r}; a header line was expected. Put "
            "class,marker above it."
        )
    return rows


def _check_no_pair_twice(named: Any) -> None:
    again = named.duplicated().to_numpy()
    if again.any():
        pair = tuple(named.iloc[int(again.argmax())])
        raise ValueError(f"markers gives {pair} two weights. Keep one of them.")


def _weights(rows: Any, pandas: Any) -> Any:
    if rows.shape[1] < 3:
        return 1.0
    weights = pandas.to_numeric(rows.iloc[:, 2], errors="coerce").to_numpy(np.float64)
    wrong = ~np.isfinite(weights)
    if wrong.any():
        found = rows.iloc[int(wrong.argmax()), 2]
        raise ValueError(f"markers has {found!r} as a weight; {_EXPECTED}. Drop that column.")
    return weights
