"""Class-attribute tables in files: CSV, Parquet, Excel, JSON."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, appearing, check_archive, need, open_existing, reading
from semfs.rows import Labels
from semfs.validation import check_distinct, is_missing

__all__ = ["read_attributes", "read_text_table", "write_table"]

_EXCEL, _PARQUET = (".xlsx", ".xlsm"), (".parquet", ".pq")
_SUFFIXES = (".csv", ".tsv", ".txt", *_PARQUET, *_EXCEL, ".json")


def read_attributes(path: Any, *, label: str | None = None) -> Any:
    """Return a class-attribute table from a file as a frame indexed by class label.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv`` or ``.txt`` (comma, semicolon or tab; UTF-8), ``.parquet``,
        ``.xlsx`` or ``.json`` (label → {attribute: value}, label → [values], or a list of
        records).
    label : str, optional
        Name of the column with the class labels. By default the stored index (Parquet) or
        the first column.

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
        frame = _read(path, label)
        labels = _labels(path, list(frame.index))
        values = {str(n): _numbers(path, str(n), frame[n].tolist()) for n in frame.columns}
        if not values or not labels:
            raise FileError(
                f"{path} holds {len(labels)} classes and {len(values)} attributes; one row per "
                "class, its label and at least one column of numbers were expected."
            )
        return pandas.DataFrame(values, index=pandas.Index(labels))


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


def _read(path: Path, label: str | None) -> Any:
    """The table as found, indexed by class."""
    pandas, suffix = need("pandas"), path.suffix.lower()
    if suffix == ".json":
        frame, label = _read_json(path, label)
    elif suffix in _PARQUET:
        frame = pandas.read_parquet(path)
        if label is None and not isinstance(frame.index, pandas.RangeIndex):
            return frame
    elif suffix in _EXCEL:
        _check_sheet(path)
        frame = pandas.read_excel(path, dtype=object, keep_default_na=False)
    else:
        frame = read_text_table(path)
    names = [str(name) for name in frame.columns]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    if not names or (label is not None and label not in names):
        raise FileError(f"{path} has no column {label!r}; found {', '.join(names[:12])}.")
    frame.columns = names
    return frame.set_index(names[0] if label is None else label)


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


def read_text_table(path: Path) -> Any:
    """Return the cells of a CSV or TSV file as text: a class may be "007" or "NA"."""
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


def _read_json(path: Path, label: str | None) -> tuple[Any, str | None]:
    """The table with a column of labels, and that column's name."""
    content = json.loads(path.read_text("utf-8"))
    if isinstance(content, dict):
        label, key = "", ""
        rows = [
            {f"a{j}": value for j, value in enumerate(row)} if isinstance(row, list) else row
            for row in content.values()
        ]
        rows = [{key: k} | r if isinstance(r, dict) else r for k, r in zip(content, rows)]
    else:
        rows = content
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise FileError(
            f"{path}: expected {{class: {{attribute: value}}}}, {{class: [values]}} or a list "
            "of records."
        )
    if any(row.keys() != rows[0].keys() for row in rows):
        raise FileError(f"{path}: every class needs the same attributes.")
    return need("pandas").DataFrame(rows, dtype=object), label


def _labels(path: Path, labels: list) -> list:
    for i, item in enumerate(labels):
        if is_missing(item) or not str(item).strip():
            raise FileError(f"{path}: row {i + 1} has no class label.")
    text = [str(item).strip() for item in labels]
    check_distinct(text, f"{path}: class {{}} has more than one row. Keep one.", FileError)
    return Labels.of(text).whole_numbers().array().tolist()


_WORDS = {"yes": 1.0, "no": 0.0, "true": 1.0, "false": 0.0}


def _numbers(path: Path, name: str, column: list) -> np.ndarray:
    out = np.empty(len(column))
    for i, value in enumerate(column):
        word = value.strip().lower() if isinstance(value, str) else value
        try:
            out[i] = _WORDS[word] if word in _WORDS else float(word)
        except (TypeError, ValueError):
            found = "nothing" if value in ("", None) else repr(value)
            raise FileError(
                f"{path}: {found} in column {name!r}, row {i + 1}; a number was expected. Fill "
                "it, or drop the column."
            ) from None
    if not np.isfinite(out).all():
        row = int(np.flatnonzero(~np.isfinite(out))[0]) + 1
        raise FileError(f"{path}: missing or infinite value in column {name!r}, row {row}.")
    return out
