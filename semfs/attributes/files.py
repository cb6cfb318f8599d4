"""Class-attribute tables in files: CSV, Parquet, Excel, JSON."""

from __future__ import annotations

import csv
import json
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, check_declared_size, open_existing, reading

__all__ = ["import_pandas", "read_attributes", "write_table"]

_EXCEL = (".xlsx", ".xlsm")
_SUFFIXES = (".csv", ".tsv", ".txt", ".parquet", ".pq", *_EXCEL, ".json")


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
    with reading(path, path.suffix.lower()):
        labels, columns = _read(path, label)
        _check_labels(path, labels)
        values = {name: _numbers(path, name, column) for name, column in columns.items()}
        if not values or not labels:
            raise FileError(
                f"{path} holds {len(labels)} classes and {len(values)} attributes; one row per "
                "class, its label and at least one column of numbers were expected."
            )
        pandas = import_pandas()
        return pandas.DataFrame(values, index=pandas.Index(_labels(labels)))


def write_table(frame: Any, path: Any) -> None:
    """Write a frame with its index as CSV, Parquet, Excel or JSON; the file appears whole."""
    path = Path(path)
    suffix = path.suffix.lower()
    beside = path.with_name(f".{path.name}.part{suffix}")
    try:
        if suffix in (".csv", ".tsv", ".txt"):
            frame.to_csv(beside, sep="," if suffix == ".csv" else "\t")
        elif suffix in (".parquet", ".pq"):
            frame.to_parquet(beside)
        elif suffix in _EXCEL:
            frame.to_excel(beside)
        elif suffix == ".json":
            beside.write_text(frame.T.to_json(force_ascii=False, indent=1), encoding="utf-8")
        else:
            raise ValueError(f"{path}: a table is written as {', '.join(_SUFFIXES)}.")
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def import_pandas() -> Any:
    """Return pandas, or say how to install it."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError(
            'Tables need pandas. Install it with: pip install "semfs[data]"'
        ) from error
    return pandas


def _read(path: Path, label: str | None) -> tuple[list, dict[str, list]]:
    """Labels and columns of values, as found."""
    suffix = path.suffix.lower()
    if suffix == ".json":
        return _read_json(path, label)
    pandas = import_pandas()
    if suffix in (".parquet", ".pq"):
        frame = pandas.read_parquet(path)
        if label is None and not isinstance(frame.index, pandas.RangeIndex):
            return list(frame.index), {str(c): frame[c].tolist() for c in frame.columns}
    elif suffix in _EXCEL:
        _check_archive(path)
        frame = pandas.read_excel(path, dtype=object, keep_default_na=False)
    else:
        separator, header = _header(path)
        _check_names(path, header)  # pandas would rename a second x to x.1
        # Everything as text: pandas would read the class "007" as 7 and "NA" as missing.
        frame = pandas.read_csv(
            path,
            dtype=str,
            keep_default_na=False,
            sep=separator,
            encoding="utf-8-sig",
            skipinitialspace=True,
            index_col=False,
        )
    names = [str(name) for name in frame.columns]
    _check_names(path, names)
    if not names or (label is not None and label not in names):
        raise FileError(f"{path} has no column {label!r}; found {', '.join(names[:12])}.")
    frame.columns = names
    label = names[0] if label is None else label
    return frame[label].tolist(), {n: frame[n].tolist() for n in names if n != label}


def _header(path: Path) -> tuple[str, list[str]]:
    """The separator of a text file, and its column names."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        first = file.readline()
        file.seek(0)
        separator = max(",;\t", key=first.count)
        reader = csv.reader(file, delimiter=separator, skipinitialspace=True)
        return separator, next(reader, [])


def _check_names(path: Path, names: list[str]) -> None:
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise FileError(f"{path} has two columns named {repeated[0]!r}. Rename one.")


def _read_json(path: Path, label: str | None) -> tuple[list, dict[str, list]]:
    content = json.loads(path.read_text("utf-8"))
    if isinstance(content, list) and content and all(isinstance(r, dict) for r in content):
        key = next(iter(content[0])) if label is None else label
        labels = [record.get(key) for record in content]
        rows = [{k: v for k, v in record.items() if k != key} for record in content]
    elif isinstance(content, dict):
        labels, rows = list(content), list(content.values())
    else:
        raise FileError(
            f"{path}: expected {{class: {{attribute: value}}}}, {{class: [values]}} or a list "
            "of records."
        )
    if rows and all(isinstance(row, list) for row in rows):
        rows = [{f"a{j}": value for j, value in enumerate(row)} for row in rows]
    if not all(isinstance(row, dict) and row.keys() == rows[0].keys() for row in rows):
        raise FileError(f"{path}: every class needs the same attributes.")
    return labels, {
        str(name): [row[name] for row in rows] for name in (rows[0] if rows else {})
    }


def _check_archive(path: Path) -> None:
    """An Excel file is a zip archive."""
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            check_declared_size(path, item.filename, item.file_size, item.compress_size)


def _check_labels(path: Path, labels: list) -> None:
    for i, item in enumerate(labels):
        if item is None or item != item or (isinstance(item, str) and not item.strip()):
            raise FileError(f"{path}: row {i + 1} has no class label.")
    repeated = [item for item, times in Counter(map(str, labels)).items() if times > 1]
    if repeated:
        raise FileError(f"{path}: class {repeated[0]!r} has more than one row. Keep one.")


def _labels(labels: list) -> list:
    text = [str(item).strip() for item in labels]
    digits = [item.removeprefix("-") for item in text]
    if all(d.isascii() and d.isdigit() and (d == "0" or d[0] != "0") for d in digits):
        return [int(item) for item in text]
    return text


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
