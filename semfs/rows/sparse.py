"""Sparse matrices, stored by rows (CSR) or by columns (CSC): read and summed up in parts.

A part is some rows, or some columns, of a matrix that is never turned. Files are not believed.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.files import FileError, memory_limit, need, reading, size_text
from semfs.rows import readers
from semfs.rows.readers import ArrayReader, Blocks, Reader, check_matrix, working_dtype

#: Counts per cell after normalisation.
TARGET_SUM = 1e4


class SparseReader(Reader):
    """The arrays data, indices and indptr (of rows or columns), opened in each process."""

    sparse = True

    def __init__(
        self, open_arrays: Callable, shape: Any, *, by_columns: bool = False, path: Any = None
    ) -> None:
        self.open_arrays, self.by_columns, self.path = open_arrays, by_columns, path
        self.shared = not by_columns
        self.n_rows, self.n_features = (int(size) for size in shape)
        self._arrays: tuple[Any, Any, np.ndarray] | None = None
        if path is not None:
            readers.check_width(path, self.n_features)
        data = self._open()[0]
        self.n_values = data.shape[0]
        check_matrix(path or "X", tuple(shape), data.dtype)
        self.dtype = working_dtype(data.dtype)
        value_bytes = self.dtype.itemsize + 8
        self.row_bytes = 1 + self.n_values * value_bytes // max(1, self.n_rows)

    def _open(self) -> tuple[Any, Any, np.ndarray]:
        """The arrays, and indptr in memory once it is known to fit them."""
        if self._arrays is None:
            data, indices, indptr = self.open_arrays()
            places = np.asarray(indptr[:], dtype=np.int64)
            length, last = self.shape[self.by_columns] + 1, int(places[-1:].sum())
            whole = len(places) == length and places[0] == 0 and (np.diff(places) >= 0).all()
            if not whole or not (last,) == data.shape == indices.shape:
                raise FileError(
                    f"{self.path or 'X'}: a sparse matrix of shape {self.shape} has "
                    f"{data.shape[0]} values, {last} expected, in {len(places) - 1} parts."
                )
            self._arrays = data, indices, places
        return self._arrays

    @property
    def shape(self) -> tuple[int, int]:
        return self.n_rows or 0, self.n_features

    def part(self, first: int, last: int) -> Any:
        """Return rows first … last - 1 as CSR, or columns as CSC, for the caller to keep."""
        data, indices, indptr = self._open()
        low, high = int(indptr[first]), int(indptr[last])
        with reading(Path(self.path or "the data"), "data"):
            values, places = data[low:high], np.asarray(indices[low:high])
            # what was just read is ours
            values = np.array(values, self.dtype, copy=None if values.base is None else True)
        n, d = self.shape
        limit = n if self.by_columns else d
        if len(places) and not 0 <= places.min() <= places.max() < limit:
            raise FileError(f"{self.path or 'X'}: indices of a sparse matrix beyond {limit}.")
        form = sp.csc_array if self.by_columns else sp.csr_array
        kind = np.int32 if max(limit, high - low) < 2**31 else np.int64
        starts = indptr[first : last + 1] - low
        parts = (values, places.astype(kind, copy=False), starts.astype(kind))
        out = form(parts, shape=(n, last - first) if self.by_columns else (last - first, d))
        if not out.has_canonical_format:
            out = out.copy()
            out.sum_duplicates()
        return out

    def ranges(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield first and last + 1 of parts with about as many bytes as ``size``."""
        indptr, n_values = self._open()[2], size // (self.dtype.itemsize + 8)
        while start < stop:
            end = int(np.searchsorted(indptr, indptr[start] + n_values, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    @cached_property
    def row_factors(self) -> np.ndarray:
        """What rows (n,) of a matrix stored by columns are multiplied by to be normalised."""
        ranges = self.ranges(0, self.n_features, 2 * readers.BLOCK_BYTES)
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda r: self.part(*r) @ np.ones(r[1] - r[0], self.dtype), ranges)
            return _factors(sum(parts, np.zeros(self.shape[0])), self.dtype)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None); what is stored by columns is loaded, and turned."""
        if self.by_columns:
            return array_reader(self.load()).blocks(start, stop, step)
        return super().blocks(start, stop, step)

    def rows(self, first: int, last: int) -> Any:
        return self.part(first, last)

    def load(self) -> Any:
        size = self.n_values * (self.dtype.itemsize + 4)
        if size > memory_limit():
            raise FileError(
                f"{self.path or 'X'}: the whole matrix takes {size_text(size)}, more than this "
                'machine\'s memory. solver="direct" reads it in parts.'
            )
        return self.part(0, self.shape[self.by_columns]).tocsr()

    def some_values(self) -> np.ndarray:
        data = self._open()[0]
        places = range(0, self.n_values, self.n_values // 4 + 1)
        return np.concatenate([data[at : at + 5000] for at in places] or [np.zeros(0)])

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_arrays": None}


def array_reader(array: Any, path: Any = None) -> Reader:
    """Return a reader of an array that can be sliced, or of a sparse matrix in memory."""
    if sp.issparse(array):
        array = array if array.format == "csc" else array.tocsr()
        arrays = partial(_itself, (array.data, array.indices, array.indptr))
        return SparseReader(arrays, array.shape, by_columns=array.format == "csc", path=path)
    out = ArrayReader(partial(_itself, array), path)
    out.shared = not isinstance(array, np.memmap)  # it would be sent whole
    return out


def _itself(array: Any) -> Any:
    return array


def normalized(X: Any, factors: np.ndarray | None = None) -> Any:
    """Return log(1 + counts per 10⁴ of their row), as scanpy's normalize_total and log1p do.

    X (n, d) is dense, CSR, or some columns in CSC with the factors (n,) of whole rows.
    """
    sparse = sp.issparse(X)
    if (X.data if sparse else X).min(initial=0) < 0:
        raise ValueError('normalize="log1p": negative numbers are no counts; leave it out.')
    if factors is None:
        sums = X @ np.ones(X.shape[1]) if sparse else X.sum(axis=1, dtype=np.float64)
        factors = _factors(sums, X.dtype)
    with np.errstate(all="ignore"):
        if not sparse:
            return np.log1p(X * factors[:, None])
        csc = X.format == "csc"
        data = factors[X.indices] if csc else np.repeat(factors, np.diff(X.indptr))
        data *= X.data
        np.log1p(data, out=data)
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def _factors(row_sums: np.ndarray, dtype: Any) -> np.ndarray:
    return (TARGET_SUM / np.where(row_sums == 0, 1.0, row_sums)).astype(dtype)


def distinct(names: Any) -> list[str]:
    """Return names of genes; the second of two that are the same gets ``-1``."""
    unique = need("anndata.utils", "data", what="AnnData").make_index_unique
    return unique(need("pandas").Index([str(name) for name in names])).tolist()
