"""Labels, and readers of matrices that stay where they are: NPY, NPZ, all with row slices.

A reader can be pickled, so that workers of a cluster open the same file. Nothing is ever
unpickled from a file; sizes are checked before they are believed.
"""

from __future__ import annotations

import mmap
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.io.safety import FileError, check_archive, file_errors, open_existing
from semfs.labels import Labels
from semfs.validation import check_distinct

#: Bytes that a fit may hold at a time unless told otherwise; other limits are shares of it.
MEMORY = 512 * 2**20
#: Bytes of a block in memory. Larger ones are not faster, and take longer to begin with.
BLOCK_BYTES = MEMORY // 32
# One block is used while the next one is read.
RING = 2
Blocks = Iterator[tuple[int, Any, Any]]
_OPENED = ("_array", "_arrays", "_copied")  # what readers keep open


class Reader:
    """Base of all readers: a matrix (n, d) that can be read in ranges of rows."""

    path: Path | None = None
    n_rows: int | None = None
    n_features: int
    dtype: np.dtype  # float32 or float64: that of the blocks
    row_bytes: int
    feature_names: list[str] | None = None
    label: str | None = None  # what the data call their labels
    left_out: Sequence[str] = ()  # columns that are no features
    frame: str = "var"  # where an .h5ad file describes its genes, or "raw/var"
    chunk_rows: int = 1  # rows that are stored together
    sparse: bool = False
    of_cells: bool = False  # whether these are cells, which must not be raw counts
    unlabeled: bool = False  # whether a row came with a label that is missing
    rereadable: bool = True
    shared: bool = True  # whether another process can read the same rows in ranges

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None); X is valid until the next one is asked for."""
        first, stop = start, (self.n_rows or 0) if stop is None else stop
        while first < stop:
            last = min(stop, (first // step + 1) * step)  # blocks end where chunks end
            with file_errors(Path(self.path or "the data"), "data"):
                rows = self.rows(first, last)
            yield first, rows, None
            first = last

    def rows(self, first: int, last: int) -> Any:
        """Return rows first … last - 1, dense or CSR."""
        raise NotImplementedError

    def load(self) -> Any:
        """Return all rows (n, d), dense or CSR."""
        out = np.empty((self.n_rows or 0, self.n_features), dtype=self.dtype)
        for first, X, _ in self.blocks(0, None, self.usual_step):
            out[first : first + len(X)] = X
        return out

    def some_values(self) -> np.ndarray:
        """Return values other than zero from a few rows at four places."""
        n = self.n_rows or 0
        found = [self.rows(at, min(at + 50, n)) for at in range(0, n, n // 4 + 1)]
        return np.concatenate([X[X != 0] for X in found] or [np.zeros(0)])

    @property
    def usual_step(self) -> int:
        return max(1, BLOCK_BYTES // max(1, self.row_bytes))

    def __getstate__(self) -> dict:  # another process opens what it reads itself
        return {name: own for name, own in self.__dict__.items() if name not in _OPENED}


def working_dtype(*stored: Any) -> np.dtype:
    """Return the precision to compute in: float32 for single and half, else float64."""
    single = all(np.dtype(kind).kind == "f" and np.dtype(kind).itemsize <= 4 for kind in stored)
    return np.dtype(np.float32 if single else np.float64)


def check_matrix(path: Any, shape: tuple, dtype: Any) -> None:
    """Raise unless these are the shape and type of a matrix of numbers."""
    if len(shape) != 2 or np.dtype(dtype).kind not in "fiub":
        found = f"shape {tuple(shape)} and type {dtype}"
        raise FileError(f"{path} has {found}; a matrix of numbers, (rows, columns), is needed.")


def read_npy(path: Any) -> np.ndarray:
    """Return the array of a ``.npy`` file, memory-mapped."""
    path = open_existing(path)
    with file_errors(path, ".npy"), np.errstate(over="ignore"):
        return _checked_text(path, np.lib.format.open_memmap(path, mode="r"))


def read_labels(path: Any) -> Labels:
    """Return the labels of a ``.npy`` file, or of the lines of a text file."""
    path = open_existing(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise FileError(f"{path} has shape {values.shape}; one label per row was expected.")
        return Labels.of(values).strip_blank()
    with file_errors(path, "label"):
        return Labels.of(path.read_text("utf-8-sig").splitlines()).strip_blank().as_int()


def read_npz(path: Any, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file that are there among ``names`` (all if None)."""
    path = open_existing(path)
    with file_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = {item.filename.removesuffix(".npy"): item for item in archive.infolist()}
        wanted = list(members) if names is None else [n for n in names if n in members]
        check_archive(path, [members[name] for name in wanted])
        return {name: _read_member(path, archive, members[name]) for name in wanted}


def names_in_npz(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file."""
    with zipfile.ZipFile(path) as archive:
        return sorted(name.removesuffix(".npy") for name in archive.namelist())


def _read_member(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> np.ndarray:
    with archive.open(item) as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            if "allow_pickle" not in str(error):
                raise
            raise FileError(
                f"{path}: {item.filename} holds pickled Python objects, which are refused "
                "because reading them runs code. Save array.astype(str) or astype(float)."
            ) from error
        file.read()  # to the end, where the checksum is compared
        return _checked_text(path, array)


def _checked_text(path: Path, array: np.ndarray) -> np.ndarray:
    """An array in which text has no characters beyond the last one there is."""
    if array.dtype.kind == "U" and array.size:
        codes = np.ascontiguousarray(array).reshape(-1).view(f"{array.dtype.byteorder}u4")
        if codes.max() > 0x10FFFF:
            raise FileError(f"{path} is damaged (text of no characters). Copy it again.")
    return array


_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


def npz_labels(path: Path, name: str) -> Labels:
    """Return the labels in an array: names, or 0-based ids in the array ``classes``."""
    arrays = read_npz(path, (name, "classes"))
    if name not in arrays:
        raise FileError(f"{path} has no array {name!r}; found {', '.join(names_in_npz(path))}.")
    classes = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else None
    return named(f"{path}: {name}", arrays[name], classes)


def named(where: str, values: np.ndarray, classes: list | None) -> Labels:
    """Return names of classes as labels, or those of their 0-based ids; -1 is unlabeled."""
    values = values.reshape(-1)
    ids = values.astype(np.int64) if values.dtype.kind in "iuf" else values
    if classes is None or values.dtype.kind not in "iuf" or (ids != values).any():
        return Labels.of(values).strip_blank()
    check_distinct(classes, f"{where}: classes has {{}} more than once.", FileError)
    low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
    if low < -1 or high >= len(classes):
        one_based = ids.min() == 1 and high == len(classes)
        hint = " Ids start at 0; subtract 1." if one_based else ""
        raise FileError(
            f"{where} holds class id {low if low < -1 else high}, but there are {len(classes)} "
            f"classes, with ids 0 to {len(classes) - 1}.{hint}"
        )
    return Labels(classes, ids.astype(np.int32)).strip_blank()


def sparse_from_npz(path: Path, name: str = "X") -> Any:
    """Return the CSR matrix stored as X_data, X_indices, X_indptr and X_shape."""
    arrays = read_npz(path, _SPARSE)
    if name != "X" or set(arrays) != set(_SPARSE):
        raise FileError(
            f"{path} has no array {name!r}; found {', '.join(names_in_npz(path))}. "
            "A matrix is 'X', or X_data, X_indices, X_indptr and X_shape."
        )
    data, indices, indptr, shape = (arrays[part] for part in _SPARSE)
    with file_errors(path, "data set"):
        return sp.csr_array((data, indices, indptr), shape=shape.tolist())


class ArrayReader(Reader):
    """Anything dense with row slices (memory map, HDF5, Zarr), opened in each process."""

    def __init__(self, open_array: Callable[[], Any], path: Any = None) -> None:
        self.open_array, self.path = open_array, path
        array = self._array
        check_matrix(path or type(array).__name__, array.shape, array.dtype)
        self.n_rows, self.n_features = (int(size) for size in array.shape)
        self.dtype = working_dtype(array.dtype)
        self.row_bytes = self.n_features * max(array.dtype.itemsize, self.dtype.itemsize)
        chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
        self.chunk_rows = int(chunks[0]) if chunks else 1

    @cached_property
    def _array(self) -> Any:
        return self.open_array()

    def rows(self, first: int, last: int) -> Any:
        if not isinstance(self._array, np.memmap):
            with file_errors(Path(self.path or "the data"), "data"):
                return np.ascontiguousarray(self._array[first:last], dtype=self.dtype)
        out = np.array(self._array[first:last], dtype=self.dtype, order="C")
        if self._array.mode == "r":  # pages that were read would count as this process's memory
            self._array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return out


class TempArray:
    """Numbers (n,) in a temporary file without a name; read by threads, not mapped."""

    def __init__(self, dtype: Any) -> None:
        self.dtype, self.shape = np.dtype(dtype), (0,)
        self.file, self.lock = tempfile.TemporaryFile(), threading.Lock()  # noqa: SIM115

    def append(self, values: np.ndarray) -> None:
        """Write more of them, in any shape."""
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.file.flush()
        self.shape = (self.shape[0] + values.size,)

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(*self.shape)
        with self.lock:  # there is one place to read at
            self.file.seek(start * self.dtype.itemsize)
            return np.fromfile(self.file, self.dtype, stop - start)
