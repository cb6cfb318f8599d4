"""Sparse matrices stored by rows (CSR) or by columns (CSC), read in parts.

A part is a range of rows of a CSR matrix, or a range of columns of a CSC matrix, so the stored
order never changes. The arrays of a file are checked before they are used as indices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from semfs._typing import Float64, Floats, Matrix
from semfs.arrays import canonical
from semfs.io import reader as readers
from semfs.io.reader import (
    PLACES,
    ArrayReader,
    Blocks,
    Reader,
    SlicedArray,
    check_matrix,
    working_dtype,
)
from semfs.io.safety import FileError, check_declared_size, check_memory, stored_size

#: Bytes that any fit needs for a column, even an empty one: sums, squares, scores.
COLUMN_BYTES = 128
#: Bytes of an entry in memory besides its value: an index and its share of temporary copies.
INDEX_BYTES = 8
#: Stored values at each of `PLACES` places that are looked at to see what a matrix holds.
SAMPLE_VALUES = 5000

#: The arrays ``data``, ``indices`` and ``indptr`` of a sparse matrix.
SparseArrays = tuple[SlicedArray, SlicedArray, SlicedArray]
T = TypeVar("T")


class SparseReader(Reader):
    """The arrays data, indices and indptr of a matrix (n, d), opened in each process."""

    sparse = True

    def __init__(
        self,
        open_arrays: Callable[[], SparseArrays],
        shape: Sequence[int],
        *,
        by_columns: bool = False,
        path: Path | None = None,
    ) -> None:
        """Open the arrays once, check that they fit together, and keep their sizes.

        ``open_arrays`` must be picklable, because each process calls it.
        """
        self.open_arrays = open_arrays
        self.by_columns = by_columns
        self.path = path
        self.shared = not by_columns
        n_rows, n_features = shape
        self.n_rows = int(n_rows)
        self.n_features = int(n_features)
        self.shape = (self.n_rows, self.n_features)
        if path is not None:
            # each row has an entry of indptr in the file; columns need not leave a trace
            what = f"a matrix of {self.n_features} columns"
            check_declared_size(
                path,
                what,
                self.n_features * COLUMN_BYTES,
                stored_size(path),
            )
        data = self._arrays[0]
        self.n_values = data.shape[0]
        check_matrix(path or "X", self.shape, data.dtype)
        self.dtype = working_dtype(data.dtype)
        value_bytes = self.dtype.itemsize + INDEX_BYTES
        self.row_bytes = 1 + self.n_values * value_bytes // max(1, self.n_rows)

    @cached_property
    def _arrays(self) -> tuple[SlicedArray, SlicedArray, npt.NDArray[np.int64]]:
        """Return the arrays, with indptr in memory, after checking that they are consistent."""
        data, indices, stored_indptr = self.open_arrays()
        indptr = np.asarray(stored_indptr[:], dtype=np.int64)
        form = "CSC" if self.by_columns else "CSR"
        where = f"{self.path or 'X'}: inconsistent {form} matrix of shape {self.shape}"
        damaged = "The file is probably damaged. Copy it again."
        # as an index False is 0, the rows of CSR, and True is 1, the columns of CSC
        length = self.shape[self.by_columns] + 1
        if len(indptr) != length:
            raise FileError(
                f"{where}: `indptr` has {len(indptr)} entries, but "
                f"{length} were expected. {damaged}"
            )
        if indptr[0] != 0 or (np.diff(indptr) < 0).any():
            raise FileError(
                f"{where}: `indptr` does not increase from 0, as expected. {damaged}"
            )
        last = int(indptr[-1])
        for name, array in (("data", data), ("indices", indices)):
            if array.shape != (last,):
                raise FileError(
                    f"{where}: `{name}` has {array.shape[0]} entries, but "
                    f"`indptr` ends at {last}. {damaged}"
                )
        return data, indices, indptr

    def part(self, first: int, last: int) -> Any:
        """Return rows (CSR) or columns (CSC) first … last - 1 in new arrays."""
        data, indices, indptr = self._arrays
        low = int(indptr[first])
        high = int(indptr[last])
        with self._file_errors():
            values = data[low:high]
            positions = np.asarray(indices[low:high])
            # a slice of an array in memory is copied, a fresh array that was read is not
            copy = None if values.base is None else True
            values = np.array(values, self.dtype, copy=copy)
        n_rows, n_features = self.shape
        limit = n_rows if self.by_columns else n_features
        self._check_positions(positions, limit)
        # scipy wants one type for both arrays; 32 bits take half the memory
        index_dtype = np.int32 if max(limit, high - low) < 2**31 else np.int64
        starts = (indptr[first : last + 1] - low).astype(index_dtype)
        parts = (values, positions.astype(index_dtype, copy=False), starts)
        if self.by_columns:
            return canonical(sp.csc_array(parts, shape=(n_rows, last - first)))
        return canonical(sp.csr_array(parts, shape=(last - first, n_features)))

    def _check_positions(self, positions: npt.NDArray[Any], limit: int) -> None:
        """Raise if an index is negative or beyond the matrix."""
        if not len(positions) or 0 <= positions.min() <= positions.max() < limit:
            return
        wrong = positions.min() if positions.min() < 0 else positions.max()
        axis = "row" if self.by_columns else "column"
        raise FileError(
            f"{self.path or 'X'}: {axis} index {wrong} is out of range "
            f"for {limit} {axis}s. The file is damaged. Copy it again."
        )

    def rows(self, first: int, last: int) -> Matrix:
        """Return rows first … last - 1 of a matrix stored by rows."""
        return self.part(first, last)

    def ranges(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield first and last + 1 of parts that take about ``size`` bytes in memory."""
        indptr = self._arrays[2]
        n_values = size // (self.dtype.itemsize + INDEX_BYTES)
        while start < stop:
            # the last row, or column, whose end is within the size; at least one
            end = int(np.searchsorted(indptr, indptr[start] + n_values, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    def row_sums(self) -> Float64:
        """Return the sum of each row (n,), which is read once and then cached."""
        return self._row_sums

    @cached_property
    def _row_sums(self) -> Float64:
        """Return the sums, read in parts of two blocks."""
        n_parts = self.shape[self.by_columns]
        ranges = self.ranges(0, n_parts, 2 * readers.BLOCK_BYTES)
        out = np.zeros(self.shape[0])
        if not self.by_columns:
            for first, last in ranges:
                out[first:last] = self.part(first, last).sum(axis=1, dtype=np.float64)
            return out
        with ThreadPoolExecutor(2) as pool:  # one thread decompresses while one sums
            for sums in pool.map(self._sums_of_columns, ranges):
                out += sums
        return out

    def _sums_of_columns(self, part: tuple[int, int]) -> Floats:
        first, last = part
        ones = np.ones(last - first, self.dtype)
        return self.part(first, last) @ ones

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None). A matrix stored by columns is loaded and converted."""
        if self.by_columns:
            return array_reader(self.load()).blocks(start, stop, step)
        return super().blocks(start, stop, step)

    def load(self) -> Matrix:
        """Return the whole matrix as CSR."""
        size = self.n_values * (self.dtype.itemsize + 4)  # indices have 4 bytes
        what = f"{self.path or 'X'}: the whole matrix"
        check_memory(what, size, 'solver="direct" reads it in parts.')
        return self.part(0, self.shape[self.by_columns]).tocsr()

    def some_values(self) -> Floats:
        """Return stored values at a few places."""
        data = self._arrays[0]
        # a matrix without stored values has nothing else to concatenate
        found = [np.zeros(0)]
        with self._file_errors():
            for first in range(0, self.n_values, self.n_values // PLACES + 1):
                found.append(data[first : first + SAMPLE_VALUES])
        return np.concatenate(found)


def array_reader(array: Any, path: Path | None = None) -> Reader:
    """Return a reader of an array that can be sliced, or of a sparse matrix in memory."""
    if sp.issparse(array):
        by_columns = array.format == "csc"
        matrix = array if by_columns else array.tocsr()
        arrays = (matrix.data, matrix.indices, matrix.indptr)
        open_arrays = partial(_itself, arrays)
        return SparseReader(
            open_arrays,
            matrix.shape,
            by_columns=by_columns,
            path=path,
        )
    reader = ArrayReader(partial(_itself, array), path)
    # pickling a memory map would send all of it
    reader.shared = not isinstance(array, np.memmap)
    return reader


def _itself(value: T) -> T:
    """Return the value. Unlike a lambda, this function can be pickled."""
    return value
