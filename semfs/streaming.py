"""Matrices that stay on disk: read block by block, never held whole."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

__all__ = ["BLOCK_BYTES", "BlockMatrix", "DiskMatrix", "Slab", "column_slabs", "working_dtype"]

#: Bytes of a block in memory. Larger ones are not faster.
BLOCK_BYTES = 32 * 2**20


class BlockMatrix(Protocol):
    """A matrix that can be read in blocks of rows, dense or CSR, any number of times."""

    shape: tuple[int, int]
    dtype: np.dtype

    def blocks(self, first: int = 0) -> Iterator[tuple[int, Any]]:
        """Yield (first row, block of rows), from row ``first`` on."""


def working_dtype(stored: Any) -> np.dtype:
    """Return the precision to compute in: float32 for single and half, else float64."""
    stored = np.dtype(stored)
    single = stored.kind == "f" and stored.itemsize <= 4
    return np.dtype(np.float32 if single else np.float64)


@dataclass(frozen=True)
class Slab:
    """Columns ``first`` … ``first + width - 1`` of all rows, row by row, from ``offset`` on."""

    offset: int
    first: int
    width: int


@dataclass(frozen=True)
class DiskMatrix:
    """A dense matrix in a file, as one or more slabs of columns.

    A C-ordered ``.npy`` file is one slab, a Fortran-ordered one has a slab per column.
    Plain reads are used instead of a memory map, whose pages would count as ours.
    """

    path: Path
    shape: tuple[int, int]
    stored: np.dtype
    slabs: tuple[Slab, ...]

    @classmethod
    def from_npy(cls, path: Path) -> DiskMatrix:
        """Return the matrix of a ``.npy`` file that has been checked."""
        mapped = np.load(path, mmap_mode="r", allow_pickle=False)
        n, d = mapped.shape
        return cls(path, (n, d), mapped.dtype, column_slabs(mapped))

    @property
    def dtype(self) -> np.dtype:
        """Precision of the blocks."""
        return working_dtype(self.stored)

    @property
    def nbytes(self) -> int:
        """Size of the matrix in the precision of the blocks."""
        return self.shape[0] * self.shape[1] * self.dtype.itemsize

    def blocks(self, first: int = 0) -> Iterator[tuple[int, np.ndarray]]:
        """Yield (first row, block (r, d)), from row ``first`` on."""
        n, d = self.shape
        step = max(1, BLOCK_BYTES // max(1, d * self.dtype.itemsize))
        with self.path.open("rb") as file:
            for start in range(first, n, step):
                yield start, self._rows(file, start, min(start + step, n))

    def _rows(self, file: Any, start: int, stop: int) -> np.ndarray:
        if len(self.slabs) == 1 and self.slabs[0].width == self.shape[1]:
            return self._read(file, self.slabs[0], start, stop)
        out = np.empty((stop - start, self.shape[1]), dtype=self.dtype)
        for slab in self.slabs:
            out[:, slab.first : slab.first + slab.width] = self._read(file, slab, start, stop)
        return out

    def _read(self, file: Any, slab: Slab, start: int, stop: int) -> np.ndarray:
        file.seek(slab.offset + start * slab.width * self.stored.itemsize)
        values = np.fromfile(file, dtype=self.stored, count=(stop - start) * slab.width)
        if values.size < (stop - start) * slab.width:
            raise ValueError(f"{self.path} became shorter while it was read.")
        return values.reshape(stop - start, slab.width).astype(self.dtype, copy=False)


def column_slabs(mapped: np.memmap) -> tuple[Slab, ...]:
    """Return where the columns of a memory-mapped matrix lie in its file."""
    n, d = mapped.shape
    if mapped.flags.c_contiguous:
        return (Slab(mapped.offset, 0, d),)
    return tuple(Slab(mapped.offset + j * n * mapped.dtype.itemsize, j, 1) for j in range(d))
