"""Class attributes in files: tables (CSV, Parquet, Excel), and lists of markers."""

import contextlib
import csv
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes.encoders import encode_class_names
from semfs.attributes.ontology import attributes_from_ontology
from semfs.io.safety import FileError, atomic_write, file_errors, open_existing
from semfs.io.tables import EXCEL, decimal_sign, sheet_columns
from semfs.labels import Labels, is_missing
from semfs.system import import_optional
from semfs.validation import check_distinct

_TEXT, _PARQUET = (".csv", ".tsv", ".txt"), (".parquet", ".pq")
_SUFFIXES = (*_TEXT, *_PARQUET, *EXCEL)
_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
_MARKERS = "a class, a marker and, if you like, a weight per row were expected"


def read_attributes(path: Any) -> Any:
    """Return a class-attribute table from a file as a frame indexed by class label.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` or ``.txt`` (comma, semicolon or tab; UTF-8), ``.parquet`` or
        ``.xlsx``. The stored index (Parquet) or the first column holds the class labels.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        Numbers in float64. Labels are integers if all of them are written as such
        (``7``, not ``007``), else text.

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
    if path.suffix.lower() not in _SUFFIXES:
        raise FileError(f"{path}: a class table is read from {', '.join(_SUFFIXES)} files.")
    pandas = import_optional("pandas", "data", what="A table")
    with file_errors(path, path.suffix.lower()):
        frame = _read(path)
        labels = ["" if is_missing(item) else str(item).strip() for item in frame.index]
        if "" in labels:
            raise FileError(f"{path}: row {labels.index('') + 1} has no class label.")
        check_distinct(labels, f"{path}: class {{}} has more than one row.", FileError)
        values = {str(n): _numbers(path, str(n), frame[n].tolist()) for n in frame.columns}
        if not labels or not values:
            found = f"{path} holds {len(labels)} classes and {len(values)} attributes"
            raise FileError(f"{found}; a header and rows of numbers were expected.")
        classes = Labels.of(labels).as_int().array().tolist()
        return pandas.DataFrame(values, index=classes)


def attributes_of(classes: Iterable[Any], source: Any) -> Any:
    """Return descriptions of classes (C, m) as a frame: a table in a file, or by their names.

    ``source`` is a file for `read_attributes`; "names" for `encode_class_names` of the labels;
    "cl" (the Cell Ontology) or an .obo, .owl or .json file for `attributes_from_ontology`.
    """
    terms = {label: str(label).strip() for label in classes}
    word = str(source).lower() if not Path(source).exists() else ""
    if word == "cl" or Path(source).suffix.lower() in (".obo", ".owl", ".json"):
        return attributes_from_ontology(terms, "cl" if word == "cl" else str(source))
    if word == "names":
        return encode_class_names(list(terms.values())).set_axis(list(terms), axis=0)
    return read_attributes(source)


def write_table(frame: Any, path: Any) -> None:
    """Write a frame with its index as CSV, TSV or Parquet; the file appears whole."""
    if (suffix := Path(path).suffix.lower()) not in (*_TEXT, *_PARQUET):
        raise ValueError(f"{path}: a table is written as {', '.join((*_TEXT, *_PARQUET))}.")
    with atomic_write(path) as beside:
        if suffix in _PARQUET:
            frame.to_parquet(beside)
        else:
            frame.to_csv(beside, sep="," if suffix == ".csv" else "\t")


def _read(path: Path) -> Any:
    """The table as found, indexed by class."""
    pandas, suffix = import_optional("pandas"), path.suffix.lower()
    if suffix in _PARQUET:
        frame = pandas.read_parquet(path)
        if not isinstance(frame.index, pandas.RangeIndex):
            return frame
    else:
        rows = zip(*sheet_columns(path)) if suffix in EXCEL else _lines(path)
        frame = _frame(path, [["" if cell is None else cell for cell in row] for row in rows])
    frame.columns = names = [str(name) for name in frame.columns]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    return frame.set_index(names[0])


def _lines(path: Path) -> list[list]:
    """The cells of a CSV or TSV file as text: a class may be "007" or "NA"."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        return list(csv.reader(file, delimiter=separator, skipinitialspace=True))


def _frame(path: Path, rows: list[list]) -> Any:
    """Rows of cells as a frame, under the names in the first one."""
    header, *records = rows or [[]]
    records = [row for row in records if any(cell != "" for cell in row)]
    if not header:
        raise FileError(f"{path} is not a readable table: it is empty.")
    if lengths := {len(row) for row in records} - {len(header)}:
        raise FileError(f"{path}: rows of {len(header)} and of {lengths.pop()} cells.")
    return import_optional("pandas").DataFrame(records, columns=header, dtype=object)


def _numbers(path: Path, name: str, column: list) -> np.ndarray:
    comma = decimal_sign(cell for cell in column if isinstance(cell, str)) == ","
    texts = [c.replace(",", ".") if isinstance(c, str) and comma else c for c in column]
    plain = [_WORDS.get(c.strip().lower(), c) if isinstance(c, str) else c for c in texts]
    numbers = np.array([_number(cell) for cell in plain], dtype=np.float64)
    wrong = ~np.isfinite(numbers)
    if wrong.any():
        row = int(wrong.argmax())
        found = "nothing" if column[row] in ("", None) else repr(column[row])
        place = f"{path}: {found} in column {name!r}, row {row + 1}"
        raise FileError(f"{place}; a number was expected. Fill it, or drop the column.")
    return numbers


def _number(cell: Any) -> float:
    """NaN for what is none. (pandas.to_numeric crashes on "1e999999999999".)"""
    with contextlib.suppress(TypeError, ValueError, OverflowError):
        return float("nan" if isinstance(cell, str) and "_" in cell else cell)
    return float("nan")


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
    """
    pandas = import_optional("pandas", "data", what="A table")
    in_file = isinstance(markers, (str, Path))
    rows = _marker_file(open_existing(markers)) if in_file else _marker_frame(markers, pandas)
    if rows.shape[1] < 2 or not len(rows):
        raise ValueError(f"markers has {len(rows)} rows of {rows.shape[1]} cells; {_MARKERS}.")
    rows = rows.iloc[:, :3].map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    rows = rows.drop_duplicates()
    weights = rows.iloc[:, 2] if rows.shape[1] > 2 else pandas.Series(1.0, rows.index)
    weights, pairs = weights.map(_number), rows.iloc[:, :2]
    problems = {
        "an empty class or marker": (pairs.isna() | (pairs == "")).any(axis=1),
        "a weight that is no number": ~np.isfinite(weights),
        "a pair with two weights": pairs.duplicated(),
    }
    for problem, wrong in problems.items():
        if wrong.any():
            found = ", ".join(map(str, rows[wrong].iloc[0]))
            raise ValueError(f"markers has {problem} ({found}); {_MARKERS}.")
    class_codes, classes = pandas.factorize(rows.iloc[:, 0].astype(object))
    marker_codes, names = pandas.factorize(rows.iloc[:, 1].astype(str))
    values = np.zeros((len(classes), len(names)))
    values[class_codes, marker_codes] = weights
    labels = Labels.of(classes).as_int().array() if in_file else classes
    return pandas.DataFrame(values, index=labels.tolist(), columns=names.tolist())


def _marker_frame(markers: Any, pandas: Any) -> Any:
    if isinstance(markers, pandas.DataFrame):
        return markers
    # frames of polars iterate over their columns
    rows = list(markers.rows() if hasattr(markers, "rows") else markers)
    if odd := [row for row in rows if isinstance(row, str) or not hasattr(row, "__len__")]:
        raise ValueError(f"markers holds {odd[0]!r}; {_MARKERS}.")
    return pandas.DataFrame(rows)


def _marker_file(path: Path) -> Any:
    if path.suffix.lower() not in _TEXT:
        raise FileError(f"{path}: markers are read from {', '.join(_TEXT)} files.")
    with file_errors(path, "marker"):
        rows = _frame(path, _lines(path))
    if len(rows.columns) > 1 and rows.columns[0] in set(rows.iloc[:, 0]):
        start = f"{path} starts with class {rows.columns[0]!r}; a header line was expected"
        raise FileError(f"{start}. Put class,marker above it.")
    if np.isfinite([_number(cell) for cell in rows.iloc[:, 1:2].to_numpy().ravel()]).all():
        raise FileError(f"{path} has numbers in its second column; {_MARKERS}.")
    return rows
