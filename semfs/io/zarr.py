"""Zarr: arrays in a folder, with one file for each chunk."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from semfs.io.chunks import zarr_chunks
from semfs.io.reader import Reader, Request, SlicedArray
from semfs.io.safety import DAMAGED, FileError, stored_size
from semfs.io.sparse import SparseArrays
from semfs.io.store import Store, open_store_matrix
from semfs.labels import Labels
from semfs.system import import_optional

if TYPE_CHECKING:
    import zarr

#: Files that mark a folder as a Zarr array or group, of version 3 and 2.
_MARKS = ("zarr.json", ".zarray", ".zgroup")


def is_zarr(path: Path) -> bool:
    """Return whether this is a Zarr array or group."""
    return path.suffix.lower() == ".zarr" or any((path / mark).exists() for mark in _MARKS)


class ZarrStore(Store):
    """A Zarr group or array, opened for reading."""

    kind = "Zarr"

    def _open(self) -> zarr.Group | zarr.Array:
        # zarr.open finds out whether this is a group or an array, version 2 or 3
        package = import_optional("zarr", "data", what=str(self.path))
        return package.open(str(self.path), mode="r")

    def _stored_bytes(self, name: str, array: zarr.Array) -> int:
        return stored_size(self.path / name)

    def sparse_arrays(self, name: str) -> SparseArrays:
        """Return data, indices and indptr. Raise if chunks of the indices are missing."""
        indices = self.array(f"{name}/indices")
        # a missing chunk reads as zeros: all entries would be in the first column
        missing = indices.nchunks - indices.nchunks_initialized
        # chunks of zeros are not written; two entries of a row cannot both be there
        indptr = self.array(f"{name}/indptr")
        if missing and (np.diff(indptr[:]) > 1).any():
            raise FileError(
                f"{self.path}: {missing} of {indices.nchunks} chunks of "
                f"{name}/indices are missing. {DAMAGED}"
            )
        return super().sparse_arrays(name)

    def _threaded(self, name: str) -> SlicedArray:
        return zarr_chunks(self.array(name), self.path / name)


def open_zarr(path: Path, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of a matrix in a Zarr folder, and the labels if they are in it."""
    return open_store_matrix(ZarrStore(path), request)
