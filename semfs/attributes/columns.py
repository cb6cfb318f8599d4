"""The cells of a small table in a file, by columns.

To be replaced by ``semfs.io.tables.read_columns``, which has the same contract: delete this
module and change the import in ``attributes/files.py`` once the branches are merged.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from semfs.io.safety import FileError
from semfs.io.tables import EXCEL, sheet_columns
from semfs.system import import_optional
from semfs.validation import check_distinct

TEXT = (".csv", ".tsv", ".txt")
PARQUET = (".parquet", ".pq")


def read_columns(path: Path) -> dict[str, list[object]]:
    """Return the columns of a CSV, TSV, Excel or Parquet table under their names, in order.

    Cells of text files are text: a class may be called "007" or "NA". Empty cells are "". An
    index that pandas stored in a Parquet file is the first column.
    """
    if path.suffix.lower() in PARQUET:
        return _parquet_columns(path)
    rows: Sequence[Sequence[object]]
    if path.suffix.lower() in EXCEL:
        rows = list(zip(*sheet_columns(path)))
    else:
        rows = _text_rows(path)
    if not rows or not rows[0]:
        raise FileError(f"{path} is not a readable table: it is empty.")
    header, *records = [["" if cell is None else cell for cell in row] for row in rows]
    records = [row for row in records if any(cell != "" for cell in row)]
    for row in records:
        if len(row) != len(header):
            raise FileError(f"{path}: rows of {len(header)} and of {len(row)} cells.")
    names = _distinct_names(path, header)
    return {name: [row[i] for row in records] for i, name in enumerate(names)}


def _text_rows(path: Path) -> list[list[str]]:
    """Return the cells of each line; the separator is the most frequent one in the header."""
    with path.open(encoding="utf-8-sig", newline="") as file:
        separator = max(",;\t", key=file.readline().count)
        file.seek(0)
        return list(csv.reader(file, delimiter=separator, skipinitialspace=True))


def _parquet_columns(path: Path) -> dict[str, list[object]]:
    pandas = import_optional("pandas", "data", what="A table")
    frame = pandas.read_parquet(path)
    if not isinstance(frame.index, pandas.RangeIndex):
        frame = frame.reset_index()
    names = _distinct_names(path, list(frame.columns))
    return {name: frame.iloc[:, i].tolist() for i, name in enumerate(names)}


def _distinct_names(path: Path, header: Sequence[object]) -> list[str]:
    names = [str(name) for name in header]
    check_distinct(names, f"{path} has two columns named {{}}. Rename one.", FileError)
    return names
