"""A matrix copied to a temporary file, a slab of columns at a time.

Parquet with one large row group cannot be read in blocks of rows within bounded memory: a page
of every column would be held, with its dictionary. 150,000 rows of 1,024 columns (0.6 GB) took
1.9 GB when read with `ParquetFile.iter_batches`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semfs._typing import Floats
from semfs.arrays import batches
from semfs.io.reader import ArrayReader, TempArray


@dataclass(frozen=True)
class ColumnSlabs:
    """A matrix in a temporary file: slabs of ``width`` columns, each stored by rows."""

    values: TempArray
    shape: tuple[int, int]
    dtype: np.dtype[Any]
    width: int

    def __getitem__(self, rows: slice) -> Floats:
        n_rows, n_columns = self.shape
        out = np.empty((rows.stop - rows.start, n_columns), dtype=self.dtype)
        for columns in batches(n_columns, self.width):
            width = columns.stop - columns.start
            # slabs before this one, then rows before these in this slab
            first = columns.start * n_rows + rows.start * width
            part = self.values[first : first + len(out) * width]
            out[:, columns] = part.reshape(len(out), width)
        return out


def spilled_reader(
    read_columns: Callable[[slice], Iterator[Floats]],
    shape: tuple[int, int],
    dtype: np.dtype[Any],
    width: int,
    path: Path | None,
) -> ArrayReader:
    """Copy a matrix to a temporary file, and return a reader of it.

    ``read_columns`` yields blocks of rows of a slab of at most ``width`` columns.
    """
    values = TempArray(dtype)
    for columns in batches(shape[1], width):
        for block in read_columns(columns):
            values.append(block)
    slabs = ColumnSlabs(values, shape, dtype, width)
    return ArrayReader(partial(_opened, slabs), path)


def _opened(slabs: ColumnSlabs) -> ColumnSlabs:
    return slabs
