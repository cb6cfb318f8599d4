"""Readers of matrices (samples × features), which read ranges of rows instead of loading all.

To support a new format, write a subclass of `Reader` (or an `ArrayReader` or `SparseReader`
with a function that opens the stored arrays), and an `Opener`, which returns the reader and the
labels in the file. `semfs.io.registry` lists the openers by suffix.

A reader can be pickled, so that the workers of a cluster can open the same file. Nothing is
ever unpickled from a file.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from semfs._typing import Floats, LabelsLike, Matrix
from semfs.io.safety import FileError, file_errors

if TYPE_CHECKING:
    from semfs.labels import Labels

#: Bytes that a fit may hold at a time unless the user says otherwise (512 MiB).
MEMORY = 512 * 2**20
#: Bytes of a block in memory (16 MiB). Larger blocks were not faster when measured, and the
#: first one takes longer to arrive.
BLOCK_BYTES = MEMORY // 32
#: Blocks in memory at a time: one is used while the next one is read.
RING = 2
#: Samples at each of `PLACES` places of a matrix that are looked at to see what it holds.
SAMPLE_ROWS = 50
PLACES = 4
#: Text in label columns and label files that stands for "no label", in any case.
NO_LABEL_TEXTS = ("", "nan", "na", "n/a", "none", "unknown", "unassigned")
#: First row, X (r, d), and labels (r,) or None, of each block.
Blocks: TypeAlias = "Iterator[tuple[int, Matrix, Any]]"
# Attributes that hold open files or mapped memory: they are not pickled.
_OPENED = ("_array", "_arrays", "_spilled")


@dataclass(frozen=True)
class Request:
    """A request to open data: the labels, the matrix, and columns that are not features."""

    y: LabelsLike | Labels | None = (
        None  # labels, or the name of a column, array or file with them
    )
    key: str | None = None  # name of the matrix or layer
    drop: tuple[str, ...] = ()
    no_label: Sequence[str] = NO_LABEL_TEXTS
    only: Container[str] | None = None  # the features that are needed of a table; None: all

    @property
    def name(self) -> str | None:
        """Return the name of the labels, if they are given by name."""
        return self.y if isinstance(self.y, str) else None

    def names_labels_in(self, names: Container[str]) -> bool:
        """Return whether y names labels inside the data, which contain these names.

        A name that is not in the data may be that of a label file. If it is neither, the format
        should raise, because it can list the names.
        """
        if self.name is None:
            return False
        return self.name in names or not os.path.isfile(self.name)

    def refuse_key(self, path: Path) -> None:
        """Raise if a matrix is named, but the format has only one."""
        if self.key is not None:
            raise ValueError(f"key={self.key!r}: {path} holds only one matrix. Leave out key.")


class Reader:
    """Base class of readers of a matrix (n, d) in ranges of rows.

    A subclass sets ``n_rows`` (None if it is unknown until all are read), ``n_features``,
    ``dtype`` and ``row_bytes``, and implements `rows`, or else `blocks`. All other attributes
    have defaults.
    """

    path: Path | None = None
    n_rows: int | None = None
    n_features: int
    dtype: np.dtype[Any]  # float32 or float64: the type of the blocks
    row_bytes: int  # bytes of a row in memory
    block_bytes: int | None = None  # bytes of a block; None: BLOCK_BYTES
    feature_names: list[str] | None = None
    read_row_names: Callable[[], list[str] | None] | None = None  # for `row_names`
    id_column: str | None = None  # where the names of the samples are, if the user says so
    label: str | None = None  # name of the label column
    read_labels: Labels | None = None  # as the file has them, before any is left out
    left_out: Sequence[str] = ()  # columns that are no features
    dropped: Sequence[str] = ()  # columns that the user leaves out
    frame: str = "var"  # group of an .h5ad file that describes the genes: "var" or "raw/var"
    chunk_rows: int = 1  # rows that are stored together
    sparse: bool = False
    layer: str | None = None  # of AnnData, or "raw"; None: X, or another format
    other_matrices: Callable[[], list[str]] | None = None  # of AnnData: other layers, raw
    gene_columns: Callable[[], dict[str, list[Any]]] | None = None  # of AnnData: columns of var
    gene_index: Callable[[], list[str]] | None = None  # of AnnData: index of var
    of_cells: bool = False  # single cells, for which raw counts deserve a warning
    unlabeled: bool = False  # whether a block came with missing labels
    keeps_missing: bool = False  # whether missing values of a table are NaN, not refused
    rereadable: bool = True  # whether the rows can be read more than once
    shared: bool = True  # whether another process can read a range of rows by itself

    @cached_property
    def row_names(self) -> list[str] | None:
        """The names of the samples (barcodes, ``obs_names``), read on first use, or None."""
        if self.read_row_names is None:
            return None
        return self.read_row_names()

    def name_rows(self, names: list[str], column: str) -> None:
        """Set the names of the samples, which are in this column or array of the data."""
        self.id_column = column
        self.read_row_names = partial(list, names)
        # names that were read before
        self.__dict__.pop("row_names", None)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None). X is valid until the next block is requested.

        Blocks have ``step`` rows and end at multiples of ``step``, where stored chunks end.
        """
        if stop is None:
            stop = self.n_rows or 0
        first = start
        while first < stop:
            last = min(stop, (first // step + 1) * step)
            with self._file_errors():
                X = self.rows(first, last)
            yield first, X, None
            first = last

    def rows(self, first: int, last: int) -> Matrix:
        """Return rows first … last - 1, dense or CSR."""
        raise NotImplementedError

    def load(self) -> Matrix:
        """Return all rows (n, d), dense or CSR."""
        out = np.empty((self.n_rows or 0, self.n_features), dtype=self.dtype)
        for first, X, _ in self.blocks(0, None, self.usual_step):
            out[first : first + len(X)] = X
        return out

    def some_values(self) -> Floats:
        """Return the nonzero values of a few samples at several positions."""
        n = self.n_rows or 0
        found = [np.zeros(0)]
        for first in range(0, n, n // PLACES + 1):
            X = self.rows(first, min(first + SAMPLE_ROWS, n))
            found.append(X[X != 0])
        return np.concatenate(found)

    @property
    def usual_step(self) -> int:
        """The number of rows in a block of the usual size."""
        size = BLOCK_BYTES if self.block_bytes is None else self.block_bytes
        return max(1, size // max(1, self.row_bytes))

    def _file_errors(self) -> Any:
        return file_errors(Path(self.path or "the data"), "data")

    def __getstate__(self) -> dict[str, Any]:
        # another process opens the file itself
        state = self.__dict__.items()
        return {name: value for name, value in state if name not in _OPENED}


#: A function that opens a format. It returns the reader, and the labels if they are in the same
#: file; None means that they are given as an array or in a file of their own.
Opener: TypeAlias = "Callable[[Path, Request], tuple[Reader, Labels | None]]"


def working_dtype(*stored: npt.DTypeLike) -> np.dtype[Any]:
    """Return the precision for computations: float32 for single and half, else float64."""
    for item in stored:
        dtype: np.dtype[Any] = np.dtype(item)
        if dtype.kind != "f" or dtype.itemsize > 4:
            return np.dtype(np.float64)
    return np.dtype(np.float32)


def check_matrix(where: object, shape: Sequence[int], dtype: npt.DTypeLike) -> None:
    """Raise unless shape and type are those of a numeric matrix. ``where`` names it."""
    if len(shape) != 2 or np.dtype(dtype).kind not in "fiub":
        raise FileError(
            f"{where} has shape {tuple(shape)} and type {dtype}, but a "
            "matrix of numbers (samples by features) was expected."
        )


class SlicedArray(Protocol):
    """An array in a file or in memory: numpy, h5py, Zarr, or one of ours."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def __getitem__(self, part: slice, /) -> Any: ...


class ArrayReader(Reader):
    """A dense array with row slices (memory map, HDF5, Zarr), opened in each process."""

    def __init__(self, open_array: Callable[[], SlicedArray], path: Path | None = None) -> None:
        """Open the array once and keep its sizes. ``open_array`` must be picklable."""
        self.open_array = open_array
        self.path = path
        array = self._array
        check_matrix(path or type(array).__name__, array.shape, array.dtype)
        n_rows, n_features = array.shape
        self.n_rows = int(n_rows)
        self.n_features = int(n_features)
        self.dtype = working_dtype(array.dtype)
        self.row_bytes = self.n_features * max(array.dtype.itemsize, self.dtype.itemsize)
        # a shard of Zarr is a file of several chunks
        chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
        self.chunk_rows = int(chunks[0]) if chunks else 1

    @cached_property
    def _array(self) -> SlicedArray:
        return self.open_array()

    def rows(self, first: int, last: int) -> Matrix:
        if not isinstance(self._array, np.memmap):
            with self._file_errors():
                return np.ascontiguousarray(self._array[first:last], dtype=self.dtype)
        out = np.array(self._array[first:last], dtype=self.dtype, order="C")
        if self._array.mode == "r":
            # pages that were read would count as memory of this process
            self._array._mmap.madvise(mmap.MADV_DONTNEED)  # type: ignore[attr-defined]
        return out


class TempArray:
    """Numbers (n,) in an unnamed temporary file, which several threads can read.

    It is not memory-mapped, because mapped pages count as memory of the process.
    """

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self.dtype = np.dtype(dtype)
        self.shape = (0,)
        self.file = tempfile.TemporaryFile()  # noqa: SIM115
        self.lock = threading.Lock()

    def append(self, values: npt.NDArray[Any]) -> None:
        """Append values of any shape."""
        self.file.write(np.ascontiguousarray(values, self.dtype).data)
        self.file.flush()
        self.shape = (self.shape[0] + values.size,)

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        start, stop, _ = part.indices(self.shape[0])
        with self.lock:  # the file has one position
            self.file.seek(start * self.dtype.itemsize)
            return np.fromfile(self.file, self.dtype, stop - start)
