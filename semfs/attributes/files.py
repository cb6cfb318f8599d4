"""Class attributes in files: tables (CSV, Parquet, Excel, JSON), and lists of markers."""

from __future__ import annotations

import csv
import json
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes.encoders import encode_class_names
from semfs.attributes.ontology import attributes_from_ontology
from semfs.files import FileError, appearing, check_archive, need, open_existing, reading
from semfs.rows import Labels
from semfs.validation import check_distinct, is_missing

__all__ = ["attributes_from_markers", "attributes_of", "read_attributes", "write_table"]

_TEXT, _EXCEL, _PARQUET = (".csv", ".tsv", ".txt"), (".xlsx", ".xlsm"), (".parquet", ".pq")
_SUFFIXES = (*_TEXT, *_PARQUET, *_EXCEL, ".json")
_ONTOLOGIES = (".obo", ".owl")
_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}
_MARKERS = "a class, a marker and, if you like, a weight per row were expected"


def read_attributes(path: Any) -> Any:
    """Return a class-attribute table from a file as a frame indexed by class label.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` or ``.txt`` (comma, semicolon or tab; UTF-8), ``.parquet``,
        ``.xlsx`` or ``.json`` (label → {attribute: value}, or label → [values]). The stored
        index (Parquet) or the first column holds the class labels.

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
        raise FileError(
            f"{path}: class attributes are read from {', '.join(_SUFFIXES)} files, "
            f"not {path.suffix or 'a file without ending'}."
        )
    pandas = need("pandas", "data", what="A table")
    with reading(path, path.suffix.lower()):
        frame = _read(path)
        labels = _labels(path, list(frame.index))
        if not labels:
            raise FileError(f"{path} has a header but no rows; one row per class was expected.")
        values = {str(n): _numbers(path, str(n), frame[n].tolist()) for n in frame.columns}
        if not values:
            raise FileError(
                f"{path} holds {len(labels)} classes and 0 attributes; at least one column of "
                "numbers was expected beside the labels."
            )
        return pandas.DataFrame(values, index=pandas.Index(labels))


def attributes_of(classes: Iterable[Any], source: Any) -> Any:
    """Return descriptions of classes as a frame: a table in a file, or what their names say.

    Parameters
    ----------
    classes : iterable of class labels
    source : path-like or str
        A file for `read_attributes`; "names" for `encode_class_names` of the labels; "cl" (the
        Cell Ontology) or an ``.obo`` or ``.owl`` file for `attributes_from_ontology`.

    Returns
    -------
    pandas.DataFrame of shape (C, m)

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.csv")
    >>> with open(path, "w") as file:
    ...     _ = file.write("class,legs\\ncat,4\\nhen,2\\n")
    >>> attributes_of(["hen"], path).index.tolist()
    ['cat', 'hen']
    """
    terms = {label: str(label).strip() for label in classes}
    word = str(source) if not Path(source).exists() else ""
    if word == "cl" or Path(source).suffix.lower() in _ONTOLOGIES:
        return attributes_from_ontology(terms, str(source))
    if word == "names":
        return encode_class_names(list(terms.values())).set_axis(list(terms), axis=0)
    return read_attributes(source)


def write_table(frame: Any, path: Any) -> None:
    """Write a frame with its index as CSV, Parquet, Excel or JSON; the file appears whole."""
    suffix = Path(path).suffix.lower()
    if suffix not in _SUFFIXES:
        raise ValueError(f"{path}: a table is written as {', '.join(_SUFFIXES)}.")
    with appearing(path) as beside:
        if suffix in _PARQUET:
            frame.to_parquet(beside)
        elif suffix in _EXCEL:
            frame.to_excel(beside)
        elif suffix == ".json":
            beside.write_text(frame.T.to_json(force_ascii=False, indent=1), encoding="utf-8")
        else:
            frame.to_csv(beside, sep="," if suffix == ".csv" else "\t")


def _read(path: Path) -> Any:
    """The table as found, indexed by class."""
    pandas, suffix = need("pandas"), path.suffix.lower()
    if suffix == ".json":
        content = json.loads(path.read_text("utf-8"))
        if not isinstance(content, dict) or not content:
            raise FileError(f"{path}: expected {{class: {{attribute: value}}}}.")
        frame = pandas.DataFrame.from_dict(content, orient="index", dtype=object)
        return frame.rename(columns=lambda name: f"a{name}" if isinstance(name, int) else name)
    if suffix in _PARQUET:
        frame = pandas.read_parquet(path)
        if not isinstance(frame.index, pandas.RangeIndex):
            return frame
    elif suffix in _EXCEL:
        _check_sheet(path)
        frame = pandas.read_excel(path, dtype=object, keep_default_na=False)
    else:
        frame = _text_table(path)
    frame.columns = names = [str(name) for name in frame.columns]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    return frame.set_index(names[0])


def _check_sheet(path: Path) -> None:
    """Refuse a sheet with more places than its text pays for: one far cell makes billions."""
    with zipfile.ZipFile(path) as archive:
        check_archive(path, archive.infolist())
        paid = 10_000 + sum(item.file_size for item in archive.infolist())
    openpyxl = need("openpyxl", "data", what=str(path))
    book = openpyxl.load_workbook(path, read_only=True)
    try:
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # what the file says of them may be wrong
        for row in sheet.iter_rows(values_only=True):
            paid -= 1 + len(row)
            if paid < 0:
                raise FileError(
                    f"{path}: the sheet reaches far beyond its cells. Delete empty rows and "
                    "columns, or save the table as .csv."
                )
    finally:
        book.close()


def _text_table(path: Path) -> Any:
    """The cells of a CSV or TSV file as text: a class may be "007" or "NA"."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        rows = csv.reader(file, delimiter=separator, skipinitialspace=True)
        header = next(rows, [])
        records = [row for row in rows if row]
    if not header:
        raise FileError(f"{path} is not a readable table: it is empty.")
    lengths = {len(row) for row in records} - {len(header)}
    if lengths:
        raise FileError(f"{path}: rows of {len(header)} and of {lengths.pop()} cells.")
    return need("pandas").DataFrame(records, columns=header, dtype=object)


def _labels(path: Path, labels: list) -> list:
    for i, item in enumerate(labels):
        if is_missing(item) or not str(item).strip():
            raise FileError(f"{path}: row {i + 1} has no class label.")
    text = [str(item).strip() for item in labels]
    check_distinct(text, f"{path}: class {{}} has more than one row. Keep one.", FileError)
    return Labels.of(text).whole_numbers().array().tolist()


def _numbers(path: Path, name: str, column: Any) -> np.ndarray:
    words = [c.strip().lower() if isinstance(c, str) else c for c in column]
    plain = [_WORDS.get(word, word) if isinstance(word, str) else word for word in words]
    out = need("pandas").to_numeric(np.array(plain, dtype=object), errors="coerce")
    wrong = ~np.isfinite(out.astype(np.float64))
    if wrong.any():
        row = int(wrong.argmax())
        found = "nothing" if column[row] in ("", None) else repr(column[row])
        raise FileError(
            f"{path}: {found} in column {name!r}, row {row + 1}; a number was expected. Fill "
            "it, or drop the column."
        )
    return out.astype(np.float64)


# ---- marker lists -------------------------------------------------------------------------


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
    in_file = isinstance(markers, (str, Path))
    rows = _marker_file(open_existing(markers)) if in_file else _marker_frame(markers, pandas)
    if rows.shape[1] < 2 or not len(rows):
        where = f"{markers}" if in_file else "markers"
        raise ValueError(
            f"{where} has {rows.shape[0]} rows of {rows.shape[1]} cells; {_MARKERS}."
        )
    rows = rows.iloc[:, :3].drop_duplicates()
    pairs = rows.iloc[:, :2].map(lambda cell: cell.strip() if isinstance(cell, str) else cell)
    _check_pairs(pairs)
    class_codes, classes = pandas.factorize(pairs.iloc[:, 0].astype(object))
    marker_codes, names = pandas.factorize(pairs.iloc[:, 1].astype(str))
    values = np.zeros((len(classes), len(names)))
    values[class_codes, marker_codes] = _weights(rows, pandas)
    labels: Any = classes.tolist()
    if in_file:
        labels = Labels.of(labels).whole_numbers().array().tolist()
    return pandas.DataFrame(values, index=labels, columns=names.tolist())


def _marker_frame(markers: Any, pandas: Any) -> Any:
    if isinstance(markers, pandas.DataFrame):
        return markers
    # frames of polars iterate over their columns
    return pandas.DataFrame(list(markers.rows() if hasattr(markers, "rows") else markers))


def _marker_file(path: Path) -> Any:
    if path.suffix.lower() not in _TEXT:
        raise FileError(f"{path}: markers are read from {', '.join(_TEXT)} files.")
    with reading(path, "marker"):
        rows = _text_table(path)
    if len(rows.columns) > 1 and rows.columns[0] in set(rows.iloc[:, 0]):
        raise FileError(
            f"{path} starts with class {rows.columns[0]!r}; a header line was expected. Put "
            "class,marker above it."
        )
    return rows


def _check_pairs(pairs: Any) -> None:
    """Refuse a class or marker that is missing, and a pair with two weights."""
    empty = (pairs.isna() | (pairs == "")).any(axis=1).to_numpy()
    if empty.any():
        row = pairs.iloc[int(empty.argmax())].tolist()
        raise ValueError(f"markers: a class or marker is missing in {row}; {_MARKERS}.")
    again = pairs.duplicated().to_numpy()
    if again.any():
        pair = tuple(pairs.iloc[int(again.argmax())])
        raise ValueError(f"markers gives {pair} two weights. Keep one of them.")


def _weights(rows: Any, pandas: Any) -> Any:
    if rows.shape[1] < 3:
        return 1.0
    weights = pandas.to_numeric(rows.iloc[:, 2], errors="coerce").to_numpy(np.float64)
    wrong = ~np.isfinite(weights)
    if wrong.any():
        found = rows.iloc[int(wrong.argmax()), 2]
        raise ValueError(f"markers has {found!r} as a weight; {_MARKERS}. Drop that column.")
    return weights
