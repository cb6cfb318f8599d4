"""Sparse matrices, stored by rows (CSR), by columns (CSC) or as Matrix Market: read in parts.

A part is some rows, or some columns, of a matrix that is never turned. Files are not believed.
"""

import io
import re
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.arrays import canonical
from semfs.io import reader
from semfs.io.reader import ArrayReader, Blocks, Reader, TempArray, check_matrix, working_dtype
from semfs.io.safety import (
    FileError,
    check_declared_size,
    check_memory,
    file_errors,
    stored_size,
    unpacked,
)
from semfs.system import import_optional

#: Counts per cell after normalization.
TARGET_SUM = 1e4
# What a column costs in any fit, however empty it is.
COLUMN_BYTES = 128
# Of Matrix Market files; what numbers are made of, and what is between them.
LONGEST_LINE, MOST_COMMENTS = 2**16, 1000
_NUMBERS = b"0123456789+-.eE \t\r\n"


class SparseReader(Reader):
    """The arrays data, indices and indptr (of rows or columns), opened in each process."""

    sparse = True

    def __init__(
        self, open_arrays: Callable, shape: Any, *, by_columns: bool = False, path: Any = None
    ) -> None:
        self.open_arrays, self.by_columns, self.path = open_arrays, by_columns, path
        self.shared = not by_columns
        self.n_rows, self.n_features = self.shape = tuple(int(size) for size in shape)
        if path is not None:  # rows have a place in the file, columns need not
            what = f"a matrix of {self.n_features} columns"
            check_declared_size(path, what, self.n_features * COLUMN_BYTES, stored_size(path))
        data = self._arrays[0]
        self.n_values = data.shape[0]
        check_matrix(path or "X", tuple(shape), data.dtype)
        self.dtype = working_dtype(data.dtype)
        self.row_bytes = 1 + self.n_values * (self.dtype.itemsize + 8) // max(1, self.n_rows)

    @cached_property
    def _arrays(self) -> tuple[Any, Any, np.ndarray]:
        """The arrays, and indptr in memory once it is known to fit them."""
        data, indices, indptr = self.open_arrays()
        places = np.asarray(indptr[:], dtype=np.int64)
        length, last = self.shape[self.by_columns] + 1, int(places[-1:].sum())
        whole = len(places) == length and places[0] == 0 and (np.diff(places) >= 0).all()
        if not whole or not (last,) == data.shape == indices.shape:
            raise FileError(
                f"{self.path or 'X'}: a sparse matrix of shape {self.shape} has "
                f"{data.shape[0]} values, {last} expected, in {len(places) - 1} parts."
            )
        return data, indices, places

    def part(self, first: int, last: int) -> Any:
        """Return rows first … last - 1 as CSR, or columns as CSC, for the caller to keep."""
        data, indices, indptr = self._arrays
        low, high = int(indptr[first]), int(indptr[last])
        with file_errors(Path(self.path or "the data"), "data"):
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
        shape = (n, last - first) if self.by_columns else (last - first, d)
        return canonical(form(parts, shape=shape))

    rows = part  # of what is stored by rows

    def ranges(self, start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield first and last + 1 of parts with about as many bytes as ``size``."""
        indptr, n_values = self._arrays[2], size // (self.dtype.itemsize + 8)
        while start < stop:
            end = int(np.searchsorted(indptr, indptr[start] + n_values, "right")) - 1
            end = min(max(end, start + 1), stop)
            yield start, end
            start = end

    def row_sums(self) -> np.ndarray:
        """Return the sum of each row (n,) of a matrix stored by columns; read once."""
        return self._row_sums

    @cached_property
    def _row_sums(self) -> np.ndarray:
        ranges = self.ranges(0, self.n_features, 2 * reader.BLOCK_BYTES)
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda r: self.part(*r) @ np.ones(r[1] - r[0], self.dtype), ranges)
            return sum(parts, np.zeros(self.shape[0]))

    @cached_property
    def row_factors(self) -> np.ndarray:
        """What rows (n,) of a matrix stored by columns are multiplied by to be normalized."""
        ranges = self.ranges(0, self.n_features, 2 * reader.BLOCK_BYTES)
        with ThreadPoolExecutor(2) as pool:
            parts = pool.map(lambda r: self.part(*r) @ np.ones(r[1] - r[0], self.dtype), ranges)
            return _factors(sum(parts, np.zeros(self.shape[0])), self.dtype)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None); what is stored by columns is loaded, and turned."""
        if self.by_columns:
            return array_reader(self.load()).blocks(start, stop, step)
        return super().blocks(start, stop, step)

    def load(self) -> Any:
        size = self.n_values * (self.dtype.itemsize + 4)
        what = f"{self.path or 'X'}: the whole matrix"
        check_memory(what, size, 'solver="direct" reads it in parts.')
        return self.part(0, self.shape[self.by_columns]).tocsr()

    def some_values(self) -> np.ndarray:
        data = self._arrays[0]
        places = range(0, self.n_values, self.n_values // 4 + 1)
        with file_errors(Path(self.path or "the data"), "data"):
            return np.concatenate([data[at : at + 5000] for at in places] or [np.zeros(0)])


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
    if factors is None and sparse:
        sums, full = np.zeros(X.shape[0]), np.flatnonzero(np.diff(X.indptr))
        if len(full):  # an eighth of the time of a product
            sums[full] = np.add.reduceat(X.data, X.indptr[full])
        factors = _factors(sums, X.dtype)
    elif factors is None:
        factors = _factors(X.sum(axis=1, dtype=np.float64), X.dtype)
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
    unique = import_optional("anndata.utils", "data", what="AnnData").make_index_unique
    return unique(import_optional("pandas").Index([str(name) for name in names])).tolist()


def mtx_reader(path: Path) -> Reader:
    """Return a reader of cells and their genes, whose names may be in the same folder."""
    file = MtxFile(path)
    out = SparseReader(file.arrays, file.shape, path=path)
    out.shared = False  # each process would parse it all
    for name in ("features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz"):
        if out.feature_names is None and path.with_name(name).exists():
            with unpacked(path.with_name(name)) as lines:
                rows = [line.decode().rstrip("\r\n").split("\t") for line in lines]
            if len(rows) == out.n_features:
                out.feature_names = distinct([row[min(1, len(row) - 1)] for row in rows])
            else:
                lines = f"{path.with_name(name)} has {len(rows)} lines"
                warnings.warn(
                    f"{lines}, but there are {out.n_features} genes: they stay without names. "
                    "Correct or remove it.",
                    stacklevel=2,
                )
    return out


class MtxFile:
    """A Matrix Market file (.mtx, .mtx.gz) of genes × cells, as 10x Genomics writes them.

    It is parsed once, in parts, into temporary files that vanish with their reader.
    """

    def __init__(self, path: Path) -> None:
        from scipy.io import mminfo

        with unpacked(path) as file:
            lines = [file.readline(LONGEST_LINE)]
            while lines[-1].startswith((b"%", b"\n", b"\r")) and len(lines) < MOST_COMMENTS:
                lines.append(file.readline(LONGEST_LINE))
        d, n, n_entries, form, kind, symmetry = mminfo(io.BytesIO(b"".join([*lines, b"\n"])))
        if (form, symmetry) != ("coordinate", "general") or kind == "complex":
            wanted = "('coordinate', of 'real', 'integer' or 'pattern', and 'general')"
            found = f"a sparse matrix {wanted} was expected, got '{form} {kind} {symmetry}'"
            raise FileError(f"{path}: {found}. Write it as such.")
        size, values = path.stat().st_size, f"a matrix of {n_entries} values"
        check_declared_size(path, f"a matrix of {n} cells", 8 * n, size)
        check_declared_size(path, values, 8 * n_entries, size, held=False)
        self.path, self.shape, self.n_entries = path, (n, d), n_entries
        self.kind = "pattern" if kind == "pattern" else "real"
        self.n_lines, self.start = len(lines), sum(map(len, lines))  # where entries begin

    def arrays(self) -> tuple[Any, Any, np.ndarray]:
        """Return values of the cells, their genes, and where each cell begins (n + 1,)."""
        values, genes = TempArray(np.float32), TempArray(np.int32)
        starts, last = np.zeros(self.shape[0] + 1, dtype=np.int64), 0
        for data, rows, cells in self._entries():
            if cells[0] < last or (np.diff(cells) < 0).any():
                return self._sorted()
            values.append(data)
            genes.append(rows)
            last = cells[-1]
            starts[cells[0] + 1 : last + 2] += np.bincount(cells - cells[0])
        return values, genes, np.cumsum(starts)

    def _sorted(self) -> tuple[Any, Any, np.ndarray]:
        """The same in memory, of entries that are not in the order of cells."""
        what = f"{self.path}: its entries are not in the order of cells, and to sort them"
        how = "by their second number (sort -n -k 2), or write it as .h5ad."
        remedy = f"Sort all lines but the first {self.n_lines} {how}"
        check_memory(what, 24 * self.n_entries, remedy)
        data, genes, cells = map(np.concatenate, zip(*self._entries()))
        X = sp.coo_array((data, (cells, genes)), shape=self.shape).tocsr()
        return X.data, X.indices, X.indptr

    def _entries(self) -> Iterator[tuple[np.ndarray, ...]]:
        """Yield values, genes and cells of entries, in parts; all of them are as announced."""
        n_found = 0
        with unpacked(self.path) as file:
            file.seek(self.start)
            while n_found <= self.n_entries and (text := file.read(reader.BLOCK_BYTES)):
                text = (text + file.readline(LONGEST_LINE)).strip()
                while b"\n\n" in text:
                    text = text.replace(b"\n\n", b"\n")
                if text:
                    part = self._parsed(text, self.n_lines + n_found)
                    n_found += len(part[0])
                    yield part
        if n_found != self.n_entries:
            found = f"only {n_found}" if n_found < self.n_entries else "more"
            wrong = f"entries were announced, but there are {found}. It may be damaged"
            raise FileError(
                f"{self.path}: {self.n_entries} {wrong}: copy or download it again."
            )

    @np.errstate(over="ignore")
    def _parsed(self, text: bytes, n_lines: int) -> tuple[np.ndarray, ...]:
        """The entries of some lines, after ``n_lines`` others."""
        from scipy.io import mmread

        (n, d), size = self.shape, text.count(b"\n") + 1
        head = f"%%MatrixMarket matrix coordinate {self.kind} general\n{d} {n} {size}\n"
        try:
            if wrong := text.translate(None, _NUMBERS)[:1]:
                line = 3 + text.count(b"\n", 0, text.index(wrong))
                raise ValueError(f"Line {line}: {wrong.decode('latin-1')!r} is in no number.")
            # without a last line break the parser may run on into other memory
            found = mmread(io.BytesIO(head.encode() + text + b"\n"), spmatrix=False)
            data = found.data.astype(np.float32)
            if not (finite := np.isfinite(data)).all():
                raise ValueError(f"Line {3 + np.argmin(finite)}: too large a number.")
        except (ValueError, OverflowError) as error:
            own = re.compile("Line ([0-9]+)")
            reason = own.sub(lambda m: f"line {int(m[1]) - 2 + n_lines}", str(error))
            raise FileError(
                f"{self.path}: {reason.rstrip('.')}. Each line has a gene (1 to {d}), a cell "
                f"(1 to {n}) and, unless it is a pattern, a finite number. Correct it, or "
                "download the file again."
            ) from error
        return data, found.row, found.col
