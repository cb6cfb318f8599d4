"""Readers of matrices that stay where they are: plain files, Zarr, HDF5; blocks of rows out.

A reader knows its shape and yields ``(first row, X, labels)`` for a range of rows, where
labels is None unless the format holds them. It can be pickled, so that workers of a cluster
open the same file. Optional packages are imported by the reader that needs them.
"""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

__all__ = [
    "BLOCK_BYTES",
    "ArrayReader",
    "FileReader",
    "Reader",
    "Slab",
    "array_reader",
    "digest",
    "file_state",
    "hdf5_labels",
    "hdf5_reader",
    "import_extra",
    "is_anndata",
    "is_chunked",
    "is_pairs",
    "memmap_reader",
    "npy_reader",
    "working_dtype",
    "zarr_labels",
    "zarr_reader",
]

#: Bytes of a block in memory. Larger ones are not faster, and take longer to begin with.
BLOCK_BYTES = 16 * 2**20
# One block is used while the next waits and the one after it is read.
RING = 3

Blocks = Iterator[tuple[int, Any, Any]]


class Reader:
    """Base of all readers: a matrix (n, d) that can be read in ranges of rows."""

    n_rows: int | None = None
    n_features: int
    dtype: np.dtype  # float32 or float64: that of the blocks
    row_bytes: int
    feature_names: list[str] | None = None
    chunk_rows: int = 1  # rows that are stored together
    sparse: bool = False
    rereadable: bool = True
    ours: bool = True  # whether blocks are copies, which their user may change
    has_labels: bool = False
    n_buffers: int = RING  # blocks that must stay valid at a time

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns, where the number of rows is known."""
        assert self.n_rows is not None
        return self.n_rows, self.n_features

    @property
    def nbytes(self) -> int:
        """Size of the matrix in the precision of the blocks."""
        return self.shape[0] * self.row_bytes

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None); X is valid until the next one is asked for."""
        raise NotImplementedError

    def labels(self) -> Iterator[np.ndarray]:
        """Yield the labels the format holds, without the matrix where that is possible."""
        for _, _, y in self.blocks(0, None, 2**16):
            yield y

    def fingerprint(self) -> str:
        """Return a text that changes when the data change."""
        raise NotImplementedError


def working_dtype(*stored: Any) -> np.dtype:
    """Return the precision to compute in: float32 for single and half, else float64."""
    kinds = [np.dtype(one) for one in stored]
    for kind in kinds:
        if kind.kind not in "fiub":
            raise TypeError(f"features must be numbers, found {kind}.")
    single = all(kind.kind == "f" and kind.itemsize <= 4 for kind in kinds)
    return np.dtype(np.float32 if single else np.float64)


def digest(*parts: Any) -> str:
    """Return a short hash of texts and arrays."""
    out = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind != "O":
            out.update(memoryview(np.ascontiguousarray(part)))  # type: ignore[arg-type]
        else:
            out.update(repr(part.tolist() if isinstance(part, np.ndarray) else part).encode())
    return out.hexdigest()[:32]


def file_state(path: Any) -> tuple:
    """Name, size and time of change of a file, or of the files in a folder."""
    path = Path(path)
    files = sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]
    return tuple((f.name, f.stat().st_size, f.stat().st_mtime_ns) for f in files)


# ---- plain files ------------------------------------------------------------------


class Slab(NamedTuple):
    """Columns ``first`` … ``first + width - 1`` of all rows, row by row, from ``offset`` on."""

    offset: int
    first: int
    width: int


class FileReader(Reader):
    """A matrix in a file, as slabs of columns, read into buffers that are used again and again.

    A C-ordered matrix is one slab, a Fortran-ordered one has a slab per column. Reading beats
    mapping here: mapped pages would count as this process's memory. ``origin`` is the file the
    data come from, if this one is a temporary copy.
    """

    def __init__(
        self,
        path: Any,
        shape: tuple[int, int],
        stored: Any,
        slabs: Sequence[Slab],
        origin: Any = None,
    ) -> None:
        self.path, self.slabs, self.origin = Path(path).resolve(), tuple(slabs), origin
        self.n_rows, self.n_features = shape
        self.stored = np.dtype(stored)
        self.dtype = working_dtype(self.stored)
        self.row_bytes = self.n_features * max(self.stored.itemsize, self.dtype.itemsize)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None)."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        shape = (min(step, stop - start), self.n_features)
        ring = [np.empty(shape, dtype=self.stored) for _ in range(self.n_buffers)]
        with self.path.open("rb", buffering=0) as file:
            for buffer, first in zip(itertools.cycle(ring), range(start, stop, step)):
                block = buffer[: min(step, stop - first)]
                self._fill(file, block, first)
                yield first, block.astype(self.dtype, copy=False), None

    def _fill(self, file: Any, block: np.ndarray, first: int) -> None:
        for slab in self.slabs:
            file.seek(slab.offset + first * slab.width * self.stored.itemsize)
            if slab.width == self.n_features:
                self._read(file, block)
                continue
            piece = np.empty((len(block), slab.width), dtype=self.stored)
            self._read(file, piece)
            block[:, slab.first : slab.first + slab.width] = piece

    def _read(self, file: Any, block: np.ndarray) -> None:
        view = memoryview(block.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        while view.nbytes:
            got = file.readinto(view)
            if not got:
                raise ValueError(f"{self.path} became shorter while it was read.")
            view = view[got:]

    def fingerprint(self) -> str:
        """Return a text that changes when the file changes."""
        first, shape = self.slabs[0].offset, (self.n_rows, self.n_features)
        return digest(file_state(self.origin or self.path), first, *shape)


def npy_reader(path: Any) -> Reader:
    """Return a reader of a ``.npy`` file."""
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    _check_2d(path, mapped.shape)
    return memmap_reader(mapped)


def memmap_reader(X: np.memmap, origin: Any = None) -> Reader:
    """Return a reader of a memory-mapped matrix: of its file, if it lies there in one piece."""
    whole = X.flags.c_contiguous or X.flags.f_contiguous
    if X.filename is None or not whole or X._mmap is None:  # type: ignore[attr-defined]
        return ArrayReader(_Given(X))
    # A view keeps the offset of the whole map, so its own place is found by its address.
    base = np.frombuffer(X._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
    begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    offset = begin + X.__array_interface__["data"][0] - base
    (n, d), size = X.shape, X.dtype.itemsize
    slabs = [Slab(offset, 0, d)]
    if not X.flags.c_contiguous:
        slabs = [Slab(offset + j * n * size, j, 1) for j in range(d)]
    return FileReader(X.filename, (n, d), X.dtype, slabs, origin)


def _check_2d(path: Any, shape: tuple) -> None:
    if len(shape) != 2:
        raise ValueError(f"{path} holds an array of shape {shape}; a matrix is needed.")


# ---- arrays that can be sliced ------------------------------------------------------


class ArrayReader(Reader):
    """Anything with a shape and row slices: Zarr, HDF5.

    ``open_array`` is called for the array when it is read, in the process that reads it.
    """

    def __init__(self, open_array: Callable[[], Any], path: Any = None) -> None:
        self.open_array, self.path = open_array, path
        array = open_array()
        _check_2d(path or type(array).__name__, tuple(array.shape))
        self.n_rows, self.n_features = (int(size) for size in array.shape)
        self.stored = np.dtype(array.dtype)
        self.dtype = working_dtype(self.stored)
        self.row_bytes = self.n_features * max(self.stored.itemsize, self.dtype.itemsize)
        chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
        self.chunk_rows = int(chunks[0]) if chunks else 1
        self.ours = not isinstance(array, np.ndarray)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None)."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        first = start
        while first < stop:
            last = min(stop, (first // step + 1) * step)  # blocks end where chunks end
            block = np.asarray(self.open_array()[first:last])
            yield first, np.ascontiguousarray(block, dtype=self.dtype), None
            first = last

    def fingerprint(self) -> str:
        """Return a text that changes when the file, or first or last row, change."""
        array, n = self.open_array(), self.n_rows
        assert n is not None
        ends = np.asarray(array[:1]), np.asarray(array[n - 1 :])
        state = file_state(self.path) if self.path and Path(self.path).exists() else None
        return digest(state, array.shape, str(array.dtype), *ends)


class _Hdf5:
    """Opens a data set of an HDF5 file, once per process."""

    def __init__(self, path: str, name: str) -> None:
        self.path, self.name = path, name
        self.array: Any = None

    def __call__(self) -> Any:
        if self.array is None:
            import h5py

            self.array = h5py.File(self.path, "r")[self.name]
        return self.array

    def __getstate__(self) -> dict:
        return {"path": self.path, "name": self.name, "array": None}


class _Given:
    """An array that is there already."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __call__(self) -> Any:
        return self.array


def array_reader(array: Any) -> ArrayReader:
    """Return a reader of an open Zarr array, HDF5 data set or the like."""
    if type(array).__module__.startswith("h5py"):
        path = array.file.filename
        return ArrayReader(_Hdf5(path, array.name), path)
    return ArrayReader(_Given(array))


def hdf5_reader(path: Any, key: str | None) -> ArrayReader:
    """Return a reader of a data set of an HDF5 file."""
    h5py = import_extra("h5py", "data")
    with h5py.File(path, "r") as file:
        name = key or _only_matrix(path, {k: v for k, v in file.items() if hasattr(v, "shape")})
        if name not in file:
            raise ValueError(f"{path} has no data set {name!r}, only {', '.join(file)}.")
    return ArrayReader(_Hdf5(str(Path(path).resolve()), name), path)


def hdf5_labels(path: Any, name: str) -> np.ndarray:
    """Return the labels in a data set of an HDF5 file."""
    h5py = import_extra("h5py", "data")
    with h5py.File(path, "r") as file:
        if name not in file:
            raise ValueError(f"{path} has no labels {name!r}, only {', '.join(file)}.")
        data = file[name]
        return data.asstr()[:] if h5py.check_string_dtype(data.dtype) else data[:]


def zarr_reader(path: Any, key: str | None) -> ArrayReader:
    """Return a reader of a Zarr array, or of one in a group."""
    zarr = import_extra("zarr")
    opened = zarr.open(str(path), mode="r")
    if not hasattr(opened, "shape"):
        members = dict(opened.arrays())
        name = key or _only_matrix(path, members)
        if name not in members:
            raise ValueError(f"{path} has no array {name!r}, only {', '.join(members)}.")
        opened = members[name]
    return ArrayReader(_Given(opened), path)


def zarr_labels(path: Any, name: str) -> np.ndarray:
    """Return the labels in an array of a Zarr group."""
    opened = import_extra("zarr").open(str(path), mode="r")
    members = {} if hasattr(opened, "shape") else dict(opened.arrays())
    if name not in members:
        found = ", ".join(members) or "a single array"
        raise ValueError(f"{path} has no labels {name!r}, only {found}.")
    return members[name][:]


def _only_matrix(path: Any, members: dict) -> str:
    matrices = [n for n, array in members.items() if len(getattr(array, "shape", ())) == 2]
    if "X" in matrices:
        return "X"
    if len(matrices) != 1:
        found = ", ".join(members) or "nothing"
        raise ValueError(f"{path} holds {found}: say which is the matrix with key=...")
    return matrices[0]


def import_extra(name: str, extra: str | None = None) -> Any:
    """Return an optional package, or say how to install it."""
    import importlib

    try:
        return importlib.import_module(name)
    except ImportError as error:
        what = f"'semfs[{extra}]'" if extra else name
        raise ImportError(
            f"this file needs {name}. Install it with: pip install {what}"
        ) from error


# ---- what is what -------------------------------------------------------------------


def is_pairs(data: Any) -> bool:
    """Whether data are (X, y) blocks: an iterator, a function, or a list of pairs."""
    if isinstance(data, (list, tuple)):
        first = data[0] if len(data) else None
        pair = isinstance(first, (list, tuple)) and len(first) == 2
        return pair and len(getattr(first[0], "shape", ())) == 2  # type: ignore[index]
    plain = hasattr(data, "shape") or hasattr(data, "__array__") or hasattr(data, "__len__")
    return callable(data) or (hasattr(data, "__iter__") and not plain)


def is_chunked(data: Any) -> bool:
    """Whether data are an array in chunked storage (Zarr, HDF5), by its looks."""
    wanted = ("shape", "dtype", "chunks", "__getitem__")
    return all(hasattr(data, name) for name in wanted) and not isinstance(data, np.ndarray)


def is_anndata(data: Any) -> bool:
    """Whether data are an AnnData object, by its looks."""
    return type(data).__module__.startswith("anndata") and hasattr(data, "obs")
