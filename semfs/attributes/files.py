"""Class descriptions in files: tables (CSV, Parquet, Excel) and lists of markers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import Float64, PathLike
from semfs.attributes.names import TEMPLATE_COLUMNS
from semfs.io.safety import FileError, atomic_write, file_errors, open_existing
from semfs.io.tables import EXCEL, FEATHER, PARQUET, decimal_sign, read_columns
from semfs.labels import Labels, is_missing
from semfs.system import import_optional
from semfs.validation import check_distinct

if TYPE_CHECKING:
    import pandas as pd

TEXT = (".csv", ".tsv", ".txt")
_TABLES = (*TEXT, *PARQUET, FEATHER, *EXCEL)
WORKBOOK = ".xlsx"
#: Endings of the tables that are written.
WRITTEN = (*TEXT, *PARQUET, FEATHER, WORKBOOK)
#: Words that stand for a number in a table.
_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
_MARKERS = "each row must hold a class, a marker and, optionally, a weight"


# --- tables ----------------------------------------------------------------------------


def read_attributes(path: PathLike) -> pd.DataFrame:
    """Read a class-attribute table from a file.

    Parameters
    ----------
    path : path-like
        A ``.csv``, ``.tsv`` or ``.txt`` file (UTF-8, separated by commas, semicolons or tabs),
        or a ``.parquet``, ``.feather`` or ``.xlsx`` file. Class labels are read from the stored
        index if a Parquet file has one, otherwise from the first column.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Attributes in float64, indexed by class label. Labels are integers if all of them are
        written as integers (``7``, not ``007``); otherwise they are strings.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("class,legs,flies\\ncat,4,no\\nhen,2,yes\\n")
    >>> read_attributes(path)
         legs  flies
    cat   4.0    0.0
    hen   2.0    1.0
    """
    path = open_existing(path)
    if path.suffix.lower() not in _TABLES:
        raise FileError(
            f"{path}: unknown format. An attribute table can be read from {', '.join(_TABLES)}."
        )
    pandas = import_optional("pandas", "data", what="A table")
    with file_errors(path, path.suffix.lower()):
        columns = read_columns(path)
        if list(columns) == TEMPLATE_COLUMNS:
            raise FileError(
                f"{path} gives an ontology term for each label; "
                "a table of numbers was expected. "
                f"Make one with: semfs attributes {path} --ontology cl -o TABLE.csv"
            )
        label_column, *attribute_names = columns
        labels = _class_labels(path, columns[label_column])
        if labels and not attribute_names:
            raise FileError(
                f"{path} holds only names of classes ({len(labels)}); a table of numbers was "
                f"expected. Make one with: semfs attributes {path} -o TABLE.csv"
            )
        if not labels or not attribute_names:
            raise FileError(
                f"{path} holds {len(labels)} classes and {len(attribute_names)} attributes; "
                "a header and rows of numbers were expected."
            )
        values = {name: _as_numbers(path, name, columns[name]) for name in attribute_names}
        classes = Labels.of(labels).as_int().array()
        return pandas.DataFrame(values, index=classes.tolist())


def _class_labels(path: Path, cells: Sequence[object]) -> list[str]:
    """Return the class labels of a table as text. Each row needs a distinct label."""
    labels = ["" if is_missing(cell) else str(cell).strip() for cell in cells]
    if "" in labels:
        raise FileError(
            f"{path}: row {labels.index('') + 1} has no class label. Fill "
            "in the label, or delete the row."
        )
    repeated = (
        f"{path}: class {{}} has more than one row. The first column must "
        "hold the name of each class exactly once. If another column "
        "holds the names, move it there."
    )
    check_distinct(labels, repeated, FileError)
    return labels


def _as_numbers(path: Path, name: str, cells: Sequence[object]) -> Float64:
    """Return a column of a table as numbers (C,), or raise and name the first invalid cell."""
    texts = [cell for cell in cells if isinstance(cell, str)]
    decimal = decimal_sign(texts)
    numbers = np.array([_word_or_number(cell, decimal) for cell in cells], dtype=np.float64)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(wrong.argmax())
        cell = cells[row]
        empty = cell is None or cell == ""
        advice = "Fill in the cell, or drop the column."
        if isinstance(cell, str) and " " in cell.strip():
            advice = (
                "To convert descriptions in words to numbers, use "
                f"encode_class_names (semfs attributes {path} -o "
                "TABLE.csv)."
            )
        raise FileError(
            f"{path}: {'nothing' if empty else repr(cell)} in column {name!r}, row {row + 1}; "
            f"a number was expected. {advice}"
        )
    return numbers


def _word_or_number(cell: object, decimal: str) -> float:
    """Return a cell of a table as a number. "yes" is 1, "no" is 0, and "1,5" may be 1.5."""
    if not isinstance(cell, str):
        return _as_number(cell)
    word = cell.strip().lower()
    if word in _WORDS:
        return _WORDS[word]
    return _as_number(cell.replace(",", ".") if decimal == "," else cell)


def _as_number(cell: object) -> float:
    """Return a cell as a number, or NaN if it is not one.

    (``pandas.to_numeric`` crashes on "1e999999999999", and Python reads "1_000" as 1000.)
    """
    if isinstance(cell, str) and "_" in cell:
        return math.nan
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return math.nan


def check_table_ending(path: PathLike) -> None:
    """Raise unless the ending of a path is that of a table that `write_table` writes."""
    if Path(path).suffix.lower() not in WRITTEN:
        raise ValueError(f"{path}: the name of a table must end in {', '.join(WRITTEN)}.")


def write_table(frame: pd.DataFrame, path: PathLike) -> None:
    """Write a frame with its index as CSV, TSV, Parquet, Feather or Excel, atomically."""
    check_table_ending(path)
    suffix = Path(path).suffix.lower()
    with atomic_write(path) as temporary:
        if suffix in PARQUET:
            frame.to_parquet(temporary)
        elif suffix == FEATHER:
            # a Feather file has no index
            frame.reset_index().to_feather(temporary)
        elif suffix == WORKBOOK:
            import_optional("openpyxl", "data", what="An Excel file")
            frame.to_excel(temporary, engine="openpyxl")
        else:
            frame.to_csv(temporary, sep="," if suffix == ".csv" else "\t")


# --- markers ---------------------------------------------------------------------------


def attributes_from_markers(
    markers: pd.DataFrame | PathLike | Iterable[Sequence[object]],
) -> pd.DataFrame:
    """Convert a list of markers to a class-attribute table of indicators or weights.

    Parameters
    ----------
    markers : DataFrame, path-like, or iterable of (class, marker) or (class, marker, weight)
        One row per pair of class (first column) and marker (second column). Column names do not
        matter. A third column may hold numeric weights, and further columns are ignored. Files
        must be ``.csv``, ``.tsv`` or ``.txt`` files with a header line.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Classes (rows) and markers (columns) in the order of their first occurrence. An entry is
        0 if the class does not have the marker. Markers of a single class are kept. Class
        labels read from files are integers if all of them are written as integers.

    Examples
    --------
    >>> attributes_from_markers([("T cell", "CD3D"), ("T cell", "IL7R"), ("B cell", "CD19")])
            CD3D  IL7R  CD19
    T cell   1.0   1.0   0.0
    B cell   0.0   0.0   1.0
    """
    pandas = import_optional("pandas", "data", what="A table")
    in_file = isinstance(markers, (str, os.PathLike))
    if isinstance(markers, (str, os.PathLike)):
        rows = _marker_file(open_existing(markers))
    else:
        rows = _marker_frame(markers)
    if rows.shape[1] < 2 or not len(rows):
        raise ValueError(f"markers has rows of {rows.shape[1]} cells; {_MARKERS}.")
    # A pair may be listed twice with one weight; with two weights it is refused below.
    rows = rows.iloc[:, :3].map(_stripped).drop_duplicates()
    weights = _marker_weights(rows)
    class_codes, classes = pandas.factorize(rows.iloc[:, 0].astype(object))
    marker_codes, names = pandas.factorize(rows.iloc[:, 1].astype(str))
    values = np.zeros((len(classes), len(names)))
    values[class_codes, marker_codes] = weights
    labels = Labels.of(classes).as_int().array() if in_file else classes
    return pandas.DataFrame(
        values,
        index=labels.tolist(),
        columns=names.tolist(),
    )


def _stripped(cell: object) -> object:
    return cell.strip() if isinstance(cell, str) else cell


def _marker_weights(rows: pd.DataFrame) -> Float64:
    """Check rows of class, marker and perhaps weight, and return the weight (n,) of each."""
    pairs = rows.iloc[:, :2]
    if rows.shape[1] > 2:
        weights = np.array([_as_number(cell) for cell in rows.iloc[:, 2]], dtype=np.float64)
    else:
        weights = np.ones(len(rows))
    empty = (pairs.isna() | (pairs == "")).any(axis=1)
    problems = [
        ("an empty class or marker", empty.to_numpy()),
        ("a weight that is not a number", ~np.isfinite(weights)),
        ("a pair with two weights", pairs.duplicated().to_numpy()),
    ]
    for problem, wrong in problems:
        if wrong.any():
            row = ", ".join(str(cell) for cell in rows[wrong].iloc[0])
            raise ValueError(f"markers has {problem} ({row}); {_MARKERS}.")
    return weights


def _marker_frame(markers: pd.DataFrame | Iterable[Sequence[object]]) -> pd.DataFrame:
    """Return markers in memory as a frame."""
    pandas = import_optional("pandas")
    if isinstance(markers, pandas.DataFrame):
        return markers
    # A polars frame iterates over its columns, but gives its rows on request.
    rows = list(markers.rows() if hasattr(markers, "rows") else markers)
    for row in rows:
        if isinstance(row, str) or not hasattr(row, "__len__"):
            raise ValueError(f"markers holds {row!r}; {_MARKERS}.")
    return pandas.DataFrame(rows)


def _marker_file(path: Path) -> pd.DataFrame:
    """Read the markers in a text file, whose first line must be a header."""
    if path.suffix.lower() not in TEXT:
        raise FileError(f"{path}: unknown format. Markers can be read from {', '.join(TEXT)}.")
    with file_errors(path, "marker"):
        columns = read_columns(path)
    frame = import_optional("pandas").DataFrame(columns, dtype=object)
    if frame.shape[1] < 2:
        return frame
    first_name = frame.columns[0]
    # Without a header the first pair is taken for one, and its class occurs below it.
    if first_name in columns[first_name]:
        raise FileError(
            f"{path} starts with class {first_name!r}; a header line was expected. "
            "Add a first line such as class,marker."
        )
    second = np.array([_as_number(cell) for cell in frame.iloc[:, 1]])
    if np.isfinite(second).all():  # a class table, or weights in the wrong place
        raise FileError(f"{path} has numbers in its second column; {_MARKERS}.")
    return frame
