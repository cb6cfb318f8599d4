"""Code shared by HDF5 and Zarr: named arrays in groups, read with checks.

A `Store` is one open file. It is opened once and shared by everything that is read from it:
labels, names, the matrix. A pickled store opens the file again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy.typing as npt

from semfs.io.labels_file import labels_in_file
from semfs.io.reader import ArrayReader, Reader, Request, SlicedArray
from semfs.io.safety import DAMAGED, FileError, check_declared_size, file_errors
from semfs.io.sparse import SparseArrays, SparseReader
from semfs.io.tenx import add_names_in_group
from semfs.labels import Labels

if TYPE_CHECKING:
    import h5py

    # groups and arrays of Zarr have the same methods
    Group: TypeAlias = h5py.Group
    Array: TypeAlias = h5py.Dataset


class Store:
    """An open HDF5 file or Zarr group, with checks of sizes and without following links."""

    kind = "HDF5"  # in messages

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def root(self) -> Group | Array:
        """The open file."""
        return self._open()

    def _open(self) -> Group | Array:
        raise NotImplementedError

    def close(self) -> None:
        """Close the file. It is opened again when something is read."""
        self.__dict__.pop("root", None)

    def __getstate__(self) -> dict[str, Any]:
        # another process opens the file itself, and may work in another folder
        state = {name: value for name, value in self.__dict__.items() if name != "root"}
        return state | {"path": self.path.absolute()}

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Turn errors into one line that names the file, and close it after them."""
        try:
            with file_errors(self.path, self.kind):
                yield
        except BaseException:
            self.close()  # a traceback would keep it open
            raise

    def __contains__(self, name: object) -> bool:
        """Return whether a group or array of this name is in the file itself."""
        found = self.root
        for part in str(name).strip("/").split("/"):
            if not _is_group(found) or part not in self.names(found):
                return False
            found = found[part]
        return True

    def names(self, group: Group) -> list[str]:
        """Return the names of a group's members, without links to other places."""
        return list(group)

    def node(self, name: str) -> Any:
        """Return a group or array by its name, such as "a/b", without following links."""
        # part by part: h5py itself would follow links on the way
        found = self.root
        for part in name.strip("/").split("/") if name else ():
            if not _is_group(found):
                raise FileError(
                    f"{self.path} has no array {name!r}; the file holds only one matrix."
                )
            if part not in self.names(found):
                present = ", ".join(found) or "nothing"
                raise FileError(
                    f"{self.path} has no array {name!r}; found: {present}. "
                    "Links are not followed."
                )
            found = found[part]
        return found

    def array(self, name: str, *, held: bool = False) -> Array:
        """Return an array. Raise if its data are in another file or its size is implausible.

        Arrays that will be ``held`` in memory must also fit into it.
        """
        found = self.node(name)
        if _is_group(found):
            raise FileError(f"{self.path}: {name} is a group, but an array was expected.")
        if found.shape is None:
            raise FileError(f"{self.path}: {name} is empty.")
        self._check_local(name, found)
        # compressed arrays may declare far more than they store
        declared = math.prod(found.shape) * found.dtype.itemsize
        stored = self._stored_bytes(name, found)
        check_declared_size(self.path, name, declared, stored, held=held)
        return found

    def _check_local(self, name: str, array: Array) -> None:
        """Raise if an array takes its data from other files."""

    def _stored_bytes(self, name: str, array: Array) -> int:
        raise NotImplementedError

    def texts(self, name: str) -> npt.NDArray[Any]:
        """Return an array in memory, text as str."""
        array = self.array(name, held=True)
        # HDF5 stores text as bytes
        if hasattr(array, "asstr") and array.dtype.kind in "OS":
            return array.asstr()[:]
        return array[:]

    def names_in(self, name: str) -> list[str]:
        """Return an array as a list of text."""
        return [str(item) for item in self.texts(name).reshape(-1).tolist()]

    def sparse_arrays(self, name: str) -> SparseArrays:
        """Return data, indices and indptr of a sparse matrix, decompressed by threads."""
        data, indices, indptr = (
            self._threaded(f"{name}/{part}") for part in ("data", "indices", "indptr")
        )
        return data, indices, indptr

    def _threaded(self, name: str) -> SlicedArray:
        """Return an array (n,) whose chunks can be decompressed by several threads."""
        raise NotImplementedError


def _is_group(node: Group | Array) -> bool:
    return hasattr(node, "keys")


def open_store_matrix(store: Store, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of a matrix, and the labels in another array (by default ``y``)."""
    with store.errors():
        labels = None
        name = request.name or "y"
        if request.names_labels_in(store) or (request.y is None and name in store):
            values = store.texts(name).reshape(-1)
            labels = labels_in_file(values, f"{store.path}: {name}", request.no_label)
        reader = matrix_reader(store, request.key)
        reader.label = None if labels is None else request.name
        return reader, labels


def matrix_reader(store: Store, key: str | None) -> Reader:
    """Return a reader of a dense or sparse matrix; by default X, or the only one."""
    with store.errors():
        name = _matrix_name(store) if key is None else key
        if _is_group(store.node(name)):
            return sparse_reader(store, name)
        return ArrayReader(partial(store.array, name), store.path)


def _matrix_name(store: Store) -> str:
    """Return X, or the name of the only matrix in the file."""
    if not _is_group(store.root):
        return ""
    names = store.names(store.root)
    matrices = [name for name in names if _is_matrix(store.node(name))]
    if "X" in matrices:
        return "X"
    if len(matrices) == 1:
        return matrices[0]
    present = ", ".join(names) or "nothing"
    raise FileError(f"{store.path} holds {present}. Specify the matrix with key=NAME.")


def _is_matrix(node: Any) -> bool:
    if _is_group(node):
        return "indptr" in node
    return node.shape is not None and len(node.shape) == 2


def sparse_reader(store: Store, name: str) -> SparseReader:
    """Return a reader of a sparse matrix as AnnData and 10x Genomics write them."""
    group = store.node(name)
    # AnnData writes the encoding, 10x Genomics does not
    encoding = str(group.attrs.get("encoding-type", "10x"))
    if "indptr" not in group or not encoding.startswith(("csr", "csc", "10x")):
        raise FileError(f"{store.path}: {name} is not a matrix of samples by features.")
    is_tenx = encoding == "10x"
    if is_tenx:
        # genes × cells by columns, that is cells × genes by rows
        shape = store.array(f"{name}/shape", held=True)[:][::-1]
    else:
        shape = group.attrs.get("shape")
    if shape is None or len(shape) != 2:
        raise FileError(f"{store.path}: the shape of {name} is missing or damaged. {DAMAGED}")
    reader = SparseReader(
        partial(store.sparse_arrays, name),
        shape,
        by_columns=encoding.startswith("csc"),
        path=store.path,
    )
    if is_tenx:
        add_names_in_group(reader, store, name)
    return reader
