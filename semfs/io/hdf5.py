"""HDF5 files: matrices by name, including those of 10x Genomics and MATLAB 7.3."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

from semfs.io.chunks import hdf5_chunks
from semfs.io.probe import probe_ok
from semfs.io.reader import Reader, Request, SlicedArray
from semfs.io.safety import FileError
from semfs.io.store import Store, matrix_reader, open_store_matrix
from semfs.labels import Labels
from semfs.system import import_optional

if TYPE_CHECKING:
    import h5py

#: An array may have this many chunks that are not stored (sparse data have few), and
#: `CHUNKS_PER_STORED` for each that is: HDF5 takes kilobytes of memory for every one.
MOST_MISSING_CHUNKS = 1000
CHUNKS_PER_STORED = 10


class Hdf5Store(Store):
    """An HDF5 file, opened for reading after a test in another process."""

    kind = "HDF5"

    def __init__(self, path: Path, file: h5py.File | None = None) -> None:
        super().__init__(path)
        self.is_borrowed = file is not None  # opened by the user, who closes it
        if file is not None:
            self.__dict__["root"] = file

    def _open(self) -> h5py.File:
        h5py = import_optional("h5py", "data", what=str(self.path))
        if not probe_ok(self.path):
            raise FileError(
                f"{self.path} is damaged: the HDF5 library crashed on it, "
                "or did not finish. Copy or download it again."
            )
        return h5py.File(self.path, "r")

    def close(self) -> None:
        file = self.__dict__.pop("root", None)
        if file is not None and not self.is_borrowed:
            file.close()

    def names(self, group: h5py.Group) -> list[str]:
        # soft and external links may lead to other files
        hard_link = import_optional("h5py").HardLink
        return [n for n in group if isinstance(group.get(n, getlink=True), hard_link)]

    def _check_local(self, name: str, array: h5py.Dataset) -> None:
        """Raise if data are in other files, or if most chunks are missing."""
        if array.external or array.is_virtual:
            raise FileError(
                f"{self.path}: {name} stores its data in other files, which are not read. Copy "
                "the data into one file."
            )
        if not array.chunks:
            return
        sides = zip(array.shape, array.chunks)
        n_chunks = math.prod(-(-length // side) for length, side in sides)
        n_stored = array.id.get_num_chunks()
        if n_chunks > MOST_MISSING_CHUNKS + CHUNKS_PER_STORED * n_stored:
            raise FileError(
                f"{self.path}: {name} declares {n_chunks} chunks, but most of them are "
                "missing. "
                "The file is damaged: copy or download it again."
            )

    def _stored_bytes(self, name: str, array: h5py.Dataset) -> int:
        return int(array.id.get_storage_size())

    def _threaded(self, name: str) -> SlicedArray:
        return hdf5_chunks(self.array(name))


def open_hdf5(path: Path, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of a matrix in an HDF5 file, and the labels if they are in it."""
    return open_store_matrix(Hdf5Store(path), request)


def group_reader(path: Path, key: str | None) -> Reader:
    """Return a reader of a matrix in an HDF5 file (by default X, or the only one)."""
    return matrix_reader(Hdf5Store(path), key)
