"""Excel files (.xlsx and .xlsm): the first sheet is loaded whole."""

from __future__ import annotations

import contextlib
import zipfile
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING

from semfs.io.safety import FileError, check_archive
from semfs.system import import_optional

if TYPE_CHECKING:
    import pyarrow as pa

EXCEL = (".xlsx", ".xlsm")
#: Cells that a sheet may have beyond the bytes of its file.
FREE_CELLS = 10_000


def sheet_columns(path: Path) -> list[tuple[object, ...]]:
    """Return the nonempty columns of the first sheet. An empty cell is None."""
    with zipfile.ZipFile(path) as archive:
        check_archive(path, archive.infolist())
        # one cell in the last row and column makes billions of empty ones before it: a sheet
        # may have as many cells as its file has bytes
        n_allowed = FREE_CELLS + sum(item.file_size for item in archive.infolist())
    openpyxl = import_optional("openpyxl", "data", what=str(path))
    book = openpyxl.load_workbook(path, read_only=True)
    rows = []
    n_cells = 0
    with contextlib.closing(book):
        sheet = book.worksheets[0]
        sheet.reset_dimensions()  # the size that the file declares may be wrong
        for row in sheet.iter_rows(values_only=True):
            n_cells += 1 + len(row)
            if n_cells > n_allowed:
                raise FileError(
                    f"{path}: the sheet reaches far beyond its filled "
                    "cells. Delete empty rows and columns, or save the "
                    "sheet as .csv."
                )
            rows.append(row)
    full_rows = [row for row in rows if _has_content(row)]
    return [column for column in zip_longest(*full_rows) if _has_content(column)]


def _has_content(cells: tuple[object, ...]) -> bool:
    return any(cell is not None for cell in cells)


def excel_table(path: Path) -> pa.Table:
    """Return the first sheet as an arrow table. Columns of mixed types become text."""
    pa = import_optional("pyarrow")
    names = []
    arrays = []
    for name, *cells in sheet_columns(path):
        # arrow finds the type; a column of numbers and text has none
        try:
            array = pa.array(cells)
        except (TypeError, ValueError, OverflowError):
            array = pa.array(["" if cell is None else str(cell) for cell in cells])
        names.append("" if name is None else str(name))
        arrays.append(array)
    return pa.Table.from_arrays(arrays, names=names)
