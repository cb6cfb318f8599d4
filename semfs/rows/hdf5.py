"""HDF5 and Zarr files: dense and sparse matrices and labels, read without trust."""

from __future__ import annotations

import math
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, check_declared_size, need, reading
from semfs.rows.readers import ArrayReader, Labels, Reader
from semfs.rows.scout import survives
from semfs.rows.sparse import SparseReader, distinct

__all__ = ["checked_dataset", "group_labels", "group_reader", "is_zarr"]


def is_zarr(path: Path) -> bool:
    """Whether this is a Zarr array or group."""
    marks = ("zarr.json", ".zarray", ".zgroup")
    return path.suffix.lower() == ".zarr" or any((path / mark).exists() for mark in marks)


def opened(path: Path) -> Any:
    """Return an HDF5 file, or a Zarr group or array, open for reading."""
    if is_zarr(path):
        return need("zarr", "data", what=str(path)).open(str(path), mode="r")
    h5py = need("h5py", "data", what=str(path))
    if not survives(path):
        raise FileError(
            f"{path} is damaged: the HDF5 library crashed on it, or came to no end. "
            "Copy or download it again."
        )
    return h5py.File(path, "r")


def node(path: Path, name: str) -> Any:
    """Return an array or group in a file; links to other files are not followed."""
    found = opened(path)
    for part in name.strip("/").split("/") if name else ():
        if hasattr(found, "get") and not is_zarr(path):
            link = found.get(part, getlink=True)
            if isinstance(link, need("h5py").ExternalLink):
                raise FileError(f"{path}: {name} is a link to another file, not followed.")
        if not hasattr(found, "keys") or part not in found:
            there = ", ".join(found) if hasattr(found, "keys") else "a single array"
            raise FileError(f"{path} has no array {name!r}, only {there or 'nothing'}.")
        found = found[part]
    return found


def group_reader(path: Path, key: str | None) -> Reader:
    """Return a reader of a matrix, dense or sparse, in an HDF5 file or a Zarr group."""
    with reading(path, "HDF5"):
        key = _matrix_name(path) if key is None else key
        if hasattr(node(path, key), "shape"):
            return ArrayReader(partial(open_array, path, key), path)
        return sparse_reader(path, key)


def _matrix_name(path: Path) -> str:
    """X, or the only matrix there is."""
    found = opened(path)
    names = [""] if hasattr(found, "shape") else _own_names(path, found)
    matrices = [name for name in names if _is_matrix(node(path, name))]
    if "X" not in matrices and len(matrices) != 1:
        there = ", ".join(names) or "nothing"
        raise FileError(f"{path} holds {there}: say which is the matrix with key=...")
    return "X" if "X" in matrices else matrices[0]


def _own_names(path: Path, group: Any) -> list[str]:
    if is_zarr(path):
        return list(group)
    hard = need("h5py").HardLink
    return [name for name in group if isinstance(group.get(name, getlink=True), hard)]


def _is_matrix(found: Any) -> bool:
    return len(found.shape) == 2 if hasattr(found, "shape") else "indptr" in found


def group_labels(path: Path, name: str) -> Labels:
    """Return the labels in an array of an HDF5 file or a Zarr group."""
    array = open_array(path, name, held=True)
    text = hasattr(array, "asstr") and array.dtype.kind in "OS"
    return Labels.of(array.asstr()[:] if text else array[:]).tidied()


def open_array(path: Path, name: str, *, held: bool = False) -> Any:
    """An array of a file; one that is ``held`` in memory must fit there."""
    found = node(path, name)
    if not is_zarr(path):
        return checked_dataset(path, opened(path), name, held=held)
    if not hasattr(found, "shape"):
        raise FileError(f"{path}: {name} is a group; an array was expected.")
    check_declared_size(path, name, found.nbytes, found.nbytes_stored(), held=held)
    return found


def checked_dataset(path: Path, file: Any, name: str, *, held: bool = True) -> Any:
    """Return a data set after checking that it is plain, local and of a credible size."""
    h5py = need("h5py", "data", what=str(path))
    if isinstance(file.get(name, getlink=True), h5py.ExternalLink):
        raise FileError(f"{path}: {name} is a link to another file, which is not followed.")
    dataset = file[name]
    if not isinstance(dataset, h5py.Dataset):
        raise FileError(f"{path}: {name} is a group; an array was expected.")
    if dataset.external or dataset.is_virtual:
        raise FileError(f"{path}: {name} takes its data from other files; it is not read.")
    if dataset.shape is None:
        raise FileError(f"{path}: {name} is empty.")
    declared = math.prod(dataset.shape) * dataset.dtype.itemsize
    check_declared_size(path, name, declared, dataset.id.get_storage_size(), held=held)
    return dataset


# ---- sparse matrices ----------------------------------------------------------------------


def sparse_reader(path: Path, name: str) -> SparseReader:
    """Return a reader of a sparse matrix as AnnData and 10x Genomics write them."""
    group = node(path, name)
    kind = str(group.attrs.get("encoding-type", group.attrs.get("h5sparse_format", "10x")))
    if "indptr" not in group or not kind.startswith(("csr", "csc", "10x")):
        raise FileError(f"{path}: {name} is no matrix.")
    if kind == "10x":  # genes × cells, by columns: cells × genes by rows
        shape = open_array(path, f"{name}/shape", held=True)[:][::-1]
    else:
        shape = group.attrs.get("shape", group.attrs.get("h5sparse_shape"))
    if shape is None or len(shape) != 2:
        raise FileError(f"{path}: {name} has no shape of two numbers.")
    open_arrays = partial(_sparse_arrays, path, name)
    out = SparseReader(open_arrays, shape, by_columns=kind.startswith("csc"), path=path)
    for names in ("features/name", "gene_names"):
        if kind == "10x" and names in group:
            texts = open_array(path, f"{name}/{names}", held=True)
            found = texts.asstr()[:] if hasattr(texts, "asstr") else texts[:]
            if len(found) == out.n_features:
                out.feature_names = distinct(found)
    return out


def _sparse_arrays(path: Path, name: str) -> tuple[Any, ...]:
    names = ("data", "indices", "indptr")
    return tuple(Deflated.of(open_array(path, f"{name}/{part}")) for part in names)


class Deflated:
    """A data set (n,) of chunks that are compressed by gzip alone, unpacked in threads.

    HDF5 unpacks one chunk after the other; zlib lets other threads run meanwhile.
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.dtype, self.shape = dataset, dataset.dtype, dataset.shape
        self.size = dataset.chunks[0]

    @classmethod
    def of(cls, dataset: Any) -> Any:
        """Return the data set so, if its chunks are."""
        if getattr(dataset, "compression", None) != "gzip" or not hasattr(dataset, "id"):
            return dataset
        plain = dataset.ndim == 1 and dataset.dtype.kind in "fiu"
        filters = dataset.id.get_create_plist().get_nfilters() == 1 + bool(dataset.shuffle)
        whole = dataset.id.get_num_chunks() == -(-len(dataset) // dataset.chunks[0])
        return cls(dataset) if plain and filters and whole else dataset

    def __getitem__(self, part: slice) -> np.ndarray:
        start, stop, _ = part.indices(*self.shape)
        out = np.empty(stop - start, dtype=self.dtype)

        def unpack(first: int) -> None:
            low, high = max(first, start), min(first + self.size, stop)
            out[low - start : high - start] = self._chunk(first)[low - first : high - first]

        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            list(pool.map(unpack, range(start // self.size * self.size, stop, self.size)))
        return out

    def _chunk(self, first: int) -> np.ndarray:
        skipped, raw = self.dataset.id.read_direct_chunk((first,))
        if skipped:  # stored without its filters
            return self.dataset[first : first + self.size]
        size = self.size * self.dtype.itemsize
        unpacked = zlib.decompressobj().decompress(raw, size)
        if len(unpacked) != size:
            raise FileError(f"a chunk holds {len(unpacked)} bytes, {size} expected.")
        if self.dataset.shuffle:
            bytes_of = np.frombuffer(unpacked, np.uint8).reshape(self.dtype.itemsize, -1)
            return np.ascontiguousarray(bytes_of.T).view(self.dtype)[:, 0]
        return np.frombuffer(unpacked, self.dtype)
