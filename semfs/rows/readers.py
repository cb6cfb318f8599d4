"""Readers of matrices that stay where they are: NPY, NPZ and all that has row slices.

A reader knows its shape and yields ``(first row, X, labels)`` for a range of rows; labels are
None unless they come with the rows. It can be pickled, so that workers of a cluster open the
same file. Nothing is ever unpickled from a file; sizes are checked before they are believed.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import mmap
import shutil
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from semfs.files import FileError, check_declared_size, open_existing, reading, size_text
from semfs.rows.labels import Labels
from semfs.validation import check_distinct

__all__ = [
    "ArrayReader",
    "FileReader",
    "Reader",
    "Slab",
    "array_reader",
    "memmap_reader",
    "names_in_npz",
    "npz_reader",
    "read_labels",
    "read_npy",
    "read_npz",
    "sparse_from_npz",
    "working_dtype",
]

#: Bytes that a fit may hold at a time unless told otherwise; other limits are shares of it.
MEMORY = 512 * 2**20
#: Bytes of a block in memory. Larger ones are not faster, and take longer to begin with.
BLOCK_BYTES = MEMORY // 32
# One block is used while the next one is read.
RING = 2

Blocks = Iterator[tuple[int, Any, Any]]


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
    rereadable: bool = True
    shared: bool = True  # whether another process can read the same rows in ranges
    ours: bool = True  # whether blocks are copies, which their user may change
    n_buffers: int = RING  # blocks that must stay valid at a time

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels or None); X is valid until the next one is asked for."""
        raise NotImplementedError

    def load(self) -> Any:
        """Return all rows (n, d), dense or CSR."""
        found = ((first, X) for first, X, _ in self.blocks(0, None, self.usual_step))
        if self.sparse:
            return sp.vstack([X for _, X in found], format="csr")
        assert self.n_rows is not None
        out = np.empty((self.n_rows, self.n_features), dtype=self.dtype)
        for first, X in found:
            out[first : first + len(X)] = X
        return out

    @property
    def usual_step(self) -> int:
        """Rows of a block where nothing speaks for more or fewer."""
        return max(1, BLOCK_BYTES // max(1, self.row_bytes))

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


def check_matrix(path: Any, shape: tuple, dtype: Any) -> None:
    """Raise unless these are the shape and type of a matrix of numbers."""
    if len(shape) != 2 or np.dtype(dtype).kind not in "fiub":
        raise FileError(
            f"{path} has shape {tuple(shape)} and type {dtype}; a matrix of numbers with one "
            "row per sample was expected."
        )


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


# ---- plain files ----------------------------------------------------------------------


class Slab(NamedTuple):
    """Columns ``first`` … ``first + width - 1`` of all rows, row by row, from ``offset`` on."""

    offset: int
    first: int
    width: int


class FileReader(Reader):
    """A matrix in a file, as slabs of columns, read into buffers that are used again and again.

    A C-ordered matrix is one slab, a Fortran-ordered one has a slab per column. Reading beats
    mapping here: mapped pages would count as this process's memory. ``folder`` is a temporary
    one that goes with the reader, ``path`` the file that was unpacked into it.
    """

    def __init__(
        self,
        file: Any,
        shape: tuple[int, int],
        stored: Any,
        slabs: Sequence[Slab],
        path: Any = None,
        folder: Any = None,
    ) -> None:
        self.file, self.slabs, self.folder = Path(file).resolve(), tuple(slabs), folder
        self.path, self.shared = Path(path or file), folder is None
        self.n_rows, self.n_features = shape
        self.stored, self.dtype = np.dtype(stored), working_dtype(stored)
        self.row_bytes = self.n_features * max(self.stored.itemsize, self.dtype.itemsize)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None)."""
        assert self.n_rows is not None
        stop = self.n_rows if stop is None else stop
        shape = (min(step, stop - start), self.n_features)
        ring = [np.empty(shape, dtype=self.stored) for _ in range(self.n_buffers)]
        with self.file.open("rb", buffering=0) as file:
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
                raise FileError(f"{self.path} became shorter while it was read.")
            view = view[got:]

    def fingerprint(self) -> str:
        """Return a text that changes when the file changes."""
        return digest(file_state(self.path), self.n_rows, self.n_features)


def memmap_reader(X: Any, path: Any = None, folder: Any = None) -> Reader:
    """Return a reader of a memory-mapped matrix: of its file, if it lies there in one piece."""
    check_matrix(path or type(X).__name__, X.shape, X.dtype)
    whole = X.flags.c_contiguous or X.flags.f_contiguous
    if not (isinstance(X, np.memmap) and X.filename and whole and X._mmap):  # type: ignore[attr-defined]
        return array_reader(X, path)
    # A view keeps the offset of the whole map, so its own place is found by its address.
    base = np.frombuffer(X._mmap, dtype=np.uint8).__array_interface__["data"][0]  # type: ignore[attr-defined]
    begin = X.offset - X.offset % mmap.ALLOCATIONGRANULARITY
    offset = begin + X.__array_interface__["data"][0] - base
    (n, d), size = X.shape, X.dtype.itemsize
    slabs = [Slab(offset, 0, d)]
    if not X.flags.c_contiguous:
        slabs = [Slab(offset + j * n * size, j, 1) for j in range(d)]
    return FileReader(X.filename, (n, d), X.dtype, slabs, path, folder)


# ---- NPY and NPZ ----------------------------------------------------------------------


def read_npy(path: Any) -> np.ndarray:
    """Return the array of a ``.npy`` file, memory-mapped."""
    path = open_existing(path)
    with reading(path, ".npy"):
        if path.stat().st_size == 0:
            raise FileError(f"{path} is empty.")
        with path.open("rb") as file:
            shape, _, dtype = _npy_header(file, path, path.name)
            need_bytes = file.tell() + math.prod(shape) * dtype.itemsize
        size = path.stat().st_size
        if need_bytes > size:
            raise FileError(
                f"{path} is truncated: {size_text(need_bytes)} expected, {size_text(size)} "
                "found. Copy or download it again."
            )
        empty = math.prod(shape) == 0  # nothing to map
        return np.load(path, mmap_mode=None if empty else "r", allow_pickle=False)


def read_labels(path: Any) -> Labels:
    """Return the labels of a ``.npy`` file, or of the lines of a text file."""
    path = open_existing(path)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise FileError(f"{path} has shape {values.shape}; one label per row was expected.")
        return Labels.of(values).tidied()
    with reading(path, "label"):
        return Labels.of(path.read_text("utf-8-sig").splitlines()).tidied().whole_numbers()


def read_npz(path: Any, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file that are there among ``names`` (all if None).

    Arrays stored without compression are memory-mapped.
    """
    path = open_existing(path)
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = {item.filename.removesuffix(".npy"): item for item in archive.infolist()}
        check_distinct(
            archive.namelist(), f"{path} holds two arrays of the same name, {{}}.", FileError
        )
        wanted = list(members) if names is None else [n for n in names if n in members]
        total = sum(members[name].file_size for name in wanted)
        check_declared_size(path, "its content", total, path.stat().st_size)
        return {name: _read_member(path, archive, members[name]) for name in wanted}


def names_in_npz(path: Any) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file."""
    path = open_existing(path)
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist()]


def _read_member(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> np.ndarray:
    name = item.filename.removesuffix(".npy")
    check_declared_size(path, f"array {name!r}", item.file_size, item.compress_size)
    with archive.open(item) as file:
        shape, fortran, dtype = _npy_header(file, path, name)
        size = math.prod(shape) * dtype.itemsize
        start = file.tell()
        if start + size != item.file_size:
            raise FileError(
                f"{path}: array {name!r} says it has {size_text(start + size)} but "
                f"{size_text(item.file_size)} are stored. Write the file again."
            )
        if item.compress_type != zipfile.ZIP_STORED or size == 0:
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
            file.read()  # to the end, where the checksum is compared
            return array
    offset = _data_offset(path, item) + start
    if offset + size > path.stat().st_size:
        raise FileError(f"{path} is truncated inside array {name!r}. Copy it again.")
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def _npy_header(file: Any, path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise FileError(
            f"{path}: array {name!r} has .npy version {version}; 1.0 or 2.0 wanted."
        )
    if dtype.hasobject:
        raise FileError(
            f"{path}: array {name!r} holds pickled Python objects, which are refused because "
            "reading them runs code. Save numbers or text: array.astype(str) or astype(float)."
        )
    if dtype.names is not None:
        raise FileError(f"{path}: array {name!r} is a record array; a plain one was expected.")
    return shape, fortran, dtype


def _data_offset(path: Path, item: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin: after its local header (30 bytes + names)."""
    with path.open("rb") as file:
        file.seek(item.header_offset)
        header = file.read(30)
    lengths = (int.from_bytes(header[i : i + 2], "little") for i in (26, 28))
    return item.header_offset + 30 + sum(lengths)


_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


def npz_reader(path: Path, key: str | None) -> Reader:
    """Return a reader of X in an ``.npz`` file, with its feature_names."""
    out = _npz_matrix(path, key or "X")
    names = read_npz(path, ["feature_names"]).get("feature_names")
    if names is not None and names.shape != (out.n_features,):
        raise FileError(
            f"{path}: X has {out.n_features} columns but feature_names has {names.size}."
        )
    out.feature_names = None if names is None else [str(name) for name in names.tolist()]
    return out


def _npz_matrix(path: Path, name: str) -> Reader:
    """X as it lies there; a large compressed one is unpacked first."""
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        item = {i.filename: i for i in archive.infolist()}.get(f"{name}.npy")
        if item is None:
            return array_reader(sparse_from_npz(path, name), path)
        if item.compress_type == zipfile.ZIP_STORED or item.file_size <= MEMORY // 2:
            X = read_npz(path, [name])[name]
            check_matrix(f"{path}: {name}", X.shape, X.dtype)
            return memmap_reader(X, path)
        check_declared_size(path, f"array {name!r}", item.file_size, item.compress_size)
        folder = tempfile.TemporaryDirectory(prefix="semfs-")
        target = Path(folder.name) / "X.npy"
        with archive.open(item) as packed, target.open("wb") as file:
            shutil.copyfileobj(packed, file, 2**20)
        return memmap_reader(read_npy(target), path, folder)


def npz_labels(path: Path, name: str) -> Labels:
    """Return the labels in an array: names, or 0-based ids in the array ``classes``."""
    arrays = read_npz(path, (name, "classes"))
    if name not in arrays:
        found = ", ".join(sorted(names_in_npz(path)))
        raise FileError(f"{path} has no array {name!r}; found {found or 'nothing'}.")
    classes = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else None
    return named(f"{path}: {name}", arrays[name], classes)


def named(where: str, values: np.ndarray, classes: list | None) -> Labels:
    """Return names of classes as labels, or those of their 0-based ids; -1 is unlabelled."""
    values = values.reshape(-1)
    ids = values.astype(np.int64) if values.dtype.kind in "iuf" else values
    if classes is None or values.dtype.kind not in "iuf" or (ids != values).any():
        return Labels.of(values).tidied()
    check_distinct(classes, f"{where}: classes has {{}} more than once.", FileError)
    low, high = int(ids.min(initial=0)), int(ids.max(initial=0))
    if low < -1 or high >= len(classes):
        one_based = ids.min() == 1 and high == len(classes)
        hint = " Ids start at 0; subtract 1." if one_based else ""
        raise FileError(
            f"{where} holds class id {low if low < -1 else high}, but there are {len(classes)} "
            f"classes, with ids 0 to {len(classes) - 1}.{hint}"
        )
    return Labels(classes, ids.astype(np.int32)).tidied()


def sparse_from_npz(path: Path, name: str = "X") -> Any:
    """Return the CSR matrix stored as X_data, X_indices, X_indptr and X_shape."""
    arrays = read_npz(path, _SPARSE)
    if name != "X" or set(arrays) != set(_SPARSE):
        raise FileError(
            f"{path} has no array {name!r}; found {', '.join(sorted(names_in_npz(path)))}. "
            "A matrix is X, or X_data, X_indices, X_indptr and X_shape."
        )
    data, indices, indptr, shape = (arrays[part] for part in _SPARSE)
    with reading(path, "data set"):
        return checked_sparse(
            sp.csr_array((data, indices, indptr), shape=tuple(shape.tolist()))
        )


def checked_sparse(X: Any) -> Any:
    """A sparse matrix whose indices are in range: others would crash later, in C."""
    X.check_format(full_check=True)
    return X


# ---- arrays that can be sliced ----------------------------------------------------------


class ArrayReader(Reader):
    """Anything with a shape and row slices: HDF5, Zarr, AnnData's sparse matrices, numpy.

    ``open_array`` is called for the array in each process that reads it.
    """

    def __init__(self, open_array: Callable[[], Any], path: Any = None) -> None:
        self.open_array, self.path, self._array = open_array, path, open_array()
        array = self._array
        check_matrix(path or type(array).__name__, array.shape, array.dtype)
        self.n_rows, self.n_features = (int(size) for size in array.shape)
        self.dtype = working_dtype(array.dtype)
        self.row_bytes = self.n_features * max(array.dtype.itemsize, self.dtype.itemsize)
        self.sparse = sp.issparse(array) or hasattr(array, "format")
        if self.sparse:
            stored = array.nnz if sp.issparse(array) else array.group["data"].shape[0]
            self.row_bytes = 1 + int(stored) * (self.dtype.itemsize + 8) // max(1, self.n_rows)
        chunks = getattr(array, "shards", None) or getattr(array, "chunks", None)
        self.chunk_rows = int(chunks[0]) if chunks else 1
        self.ours = not isinstance(array, np.ndarray)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, None)."""
        assert self.n_rows is not None
        first, stop = start, self.n_rows if stop is None else stop
        while first < stop:
            last = min(stop, (first // step + 1) * step)  # blocks end where chunks end
            yield first, self._rows(first, last), None
            first = last

    def _rows(self, first: int, last: int) -> Any:
        if self._array is None:
            self._array = self.open_array()
        if not self.sparse:
            return np.ascontiguousarray(self._array[first:last], dtype=self.dtype)
        return checked_sparse(sp.csr_array(self._array[first:last], dtype=self.dtype))

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_array": None}

    def fingerprint(self) -> str:
        """Return a text that changes when the file, or first or last row, change."""
        assert self.n_rows is not None
        ends = [self._rows(row, row + 1) for row in (0, self.n_rows - 1)]
        ends = [end.toarray() if self.sparse else end for end in ends]
        state = file_state(self.path) if self.path and Path(self.path).exists() else None
        return digest(state, self.n_rows, self.n_features, str(self.dtype), *ends)


def array_reader(array: Any, path: Any = None) -> ArrayReader:
    """Return a reader of an array in memory or an open Zarr array."""
    array = array.tocsr() if sp.issparse(array) else array
    return ArrayReader(partial(_itself, array), path)


def _itself(array: Any) -> Any:
    return array
