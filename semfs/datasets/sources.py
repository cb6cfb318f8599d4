"""Files to select features from, whatever their format: labels, names, and rows in blocks."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.arrays import read_npy, read_npz
from semfs.datasets.h5ad import H5Matrix, read_obs, read_var_names
from semfs.datasets.labels import Labels
from semfs.datasets.npz import read_matrix, read_parts
from semfs.datasets.tables import Table, open_table
from semfs.files import FileError, check_declared_size, open_existing, reading
from semfs.rows.readers import (
    BLOCK_BYTES,
    FileReader,
    Reader,
    Slab,
    memmap_reader,
    working_dtype,
)

__all__ = ["IN_MEMORY_BYTES", "Source", "open_source"]

#: Matrices up to this size are read into memory; larger ones stay on disk.
IN_MEMORY_BYTES = 256 * 2**20
_TABLES = (".csv", ".tsv", ".txt", ".parquet", ".pq")


@dataclass(eq=False)
class Source:
    """An opened data file.

    Attributes
    ----------
    path : Path
        The file.
    matrix : ndarray, CSR matrix or Reader of shape (n, d)
        The features; on disk if they are large.
    labels : Labels
        Label of each row.
    feature_names : ndarray of shape (d,)
        Names of the columns.
    attributes : DataFrame or None
        Class descriptions, if the file has them.
    unseen : list
        Unseen classes, if the file names them.
    table : Table or None
        The opened table, for CSV and Parquet.
    notes : list of str
        What the user should know about the reading.
    """

    path: Path
    matrix: Any
    labels: Labels
    feature_names: np.ndarray
    attributes: Any = None
    unseen: list = field(default_factory=list)
    table: Table | None = None
    layer: str | None = None
    notes: list[str] = field(default_factory=list)

    @property
    def on_disk(self) -> bool:
        """Whether the features are read in blocks."""
        return isinstance(self.matrix, Reader)

    def blocks(self, columns: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the given columns (r, k), dense, in blocks of rows."""
        for X in self._all_blocks():
            picked = X[:, columns]
            yield picked.toarray() if sparse.issparse(picked) else picked

    def _all_blocks(self) -> Iterator[Any]:
        n, d = self.matrix.shape
        if self.on_disk:
            step = max(1, BLOCK_BYTES // self.matrix.row_bytes)
            yield from (X for _, X, _ in self.matrix.blocks(0, None, step))
            return
        step = max(1, BLOCK_BYTES // max(1, d * self.matrix.dtype.itemsize))
        for start in range(0, n, step):
            yield self.matrix[start : start + step]


@contextlib.contextmanager
def open_source(
    path: Any,
    label: str | None = None,
    *,
    drop: Sequence[str] = (),
    layer: str | None = None,
    table: str = "A",
) -> Iterator[Source]:
    """Open a CSV, Parquet, NPY, NPZ or H5AD file; temporary files are gone afterwards.

    Parameters
    ----------
    path : path-like
        The file.
    label : str
        Label column (tables), column of ``obs`` (H5AD), array (NPZ, default ``y``), or the
        path of a file with one label per row (NPY).
    drop : sequence of str, default=()
        Columns of a table that are no features.
    layer : str, optional
        Layer of an H5AD file.
    table : str, default="A"
        Array of an NPZ file with the class attributes.
    """
    path = open_existing(path)
    suffix = path.suffix.lower()
    with contextlib.ExitStack() as stack:
        if suffix in _TABLES:
            yield _from_table(stack, path, _needed(path, label), drop)
        elif suffix == ".npy":
            yield _from_npy(path, _needed(path, label))
        elif suffix == ".npz":
            yield _from_npz(stack, path, label, table)
        elif suffix == ".h5ad":
            yield _from_h5ad(stack, path, _needed(path, label), layer)
        else:
            raise FileError(
                f"{path}: cannot read {suffix or 'a file without ending'}; give a .csv, "
                ".parquet, .npy, .npz or .h5ad file."
            )


def _needed(path: Path, label: str | None) -> str:
    if label is None:
        what = {".npy": "the path of a file with one label per row", ".h5ad": "an obs column"}
        raise ValueError(
            f"{path} needs --label: {what.get(path.suffix, 'the name of the label column')}."
        )
    return label


# ---- numpy --------------------------------------------------------------------------------


def _from_npy(path: Path, label: str) -> Source:
    mapped = read_npy(path)
    if mapped.ndim != 2 or mapped.dtype.kind not in "fiub":
        raise FileError(
            f"{path} has shape {mapped.shape} and type {mapped.dtype}; a matrix of numbers "
            "with one row per sample was expected."
        )
    labels = _read_labels(label)
    if len(labels) != len(mapped):
        raise FileError(
            f"{label} has {len(labels)} labels, expected {len(mapped)}: as many as {path} has "
            "rows."
        )
    small = _is_small(mapped.shape, mapped.dtype)
    matrix = _loaded(mapped) if small else _on_disk(mapped, path)
    return Source(path, matrix, labels, _default_names(mapped.shape[1]))


def _is_small(shape: tuple[int, ...], stored: Any) -> bool:
    return shape[0] * shape[1] * working_dtype(stored).itemsize <= IN_MEMORY_BYTES


def _loaded(mapped: np.ndarray) -> np.ndarray:
    dtype = np.float32 if mapped.dtype == np.float16 else mapped.dtype
    return np.array(mapped, dtype=dtype)


def _default_names(d: int) -> np.ndarray:
    return np.array([f"x{j}" for j in range(d)], dtype=object)


def _read_labels(label: str) -> Labels:
    """Labels of a ``.npy`` file or of the lines of a text file."""
    path = open_existing(label)
    if path.suffix.lower() == ".npy":
        values = read_npy(path)
        if values.ndim != 1:
            raise FileError(f"{path} has shape {values.shape}; one label per row was expected.")
        return Labels.of(values)
    with reading(path, "label"):
        return Labels.of(path.read_text("utf-8-sig").splitlines()).whole_numbers()


def _from_npz(stack: contextlib.ExitStack, path: Path, label: str | None, table: str) -> Source:
    parts = read_parts(path, label=label or "y", table=table, features=False)
    X = _unpacked(stack, path)
    if X is None:
        matrix: Any = read_matrix(path)
    else:
        matrix = _loaded(X) if _is_small(X.shape, X.dtype) else _on_disk(X, path)
    n, d = matrix.shape
    if len(parts.labels) != n:
        raise FileError(f"{path}: X has {n} rows but there are {len(parts.labels)} labels.")
    names = parts.feature_names
    if names is not None and len(names) != d:
        raise FileError(f"{path}: X has {d} columns but feature_names has {len(names)}.")
    return Source(
        path,
        matrix,
        parts.labels,
        _default_names(d) if names is None else names,
        parts.attributes,
        parts.unseen,
    )


def _unpacked(stack: contextlib.ExitStack, path: Path) -> np.ndarray | None:
    """The dense X of an .npz file, memory-mapped; a large compressed one is unpacked first."""
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        item = {i.filename: i for i in archive.infolist()}.get("X.npy")
        if item is None:
            return None
        if item.compress_type == zipfile.ZIP_STORED or item.file_size <= IN_MEMORY_BYTES:
            X = read_npz(path, ["X"])["X"]
        else:
            check_declared_size(path, "array 'X'", item.file_size, item.compress_size)
            target = stack.enter_context(_temporary_folder()) / "X.npy"
            with archive.open(item) as packed, target.open("wb") as file:
                shutil.copyfileobj(packed, file, 2**20)
            X = read_npy(target)
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise FileError(f"{path}: X has shape {X.shape}; a matrix of numbers was expected.")
    return X


def _on_disk(X: np.ndarray, path: Path) -> Reader:
    assert isinstance(X, np.memmap)
    unpacked = not path.samefile(str(X.filename))
    return memmap_reader(X, origin=path if unpacked else None)


# ---- tables -------------------------------------------------------------------------------


def _from_table(
    stack: contextlib.ExitStack, path: Path, label: str, drop: Sequence[str]
) -> Source:
    table = open_table(path, label, drop)
    matrix = table.matrix() if table.nbytes <= IN_MEMORY_BYTES else _spooled(stack, table)
    notes = []
    if table.texts:
        shown = ", ".join(repr(name) for name in table.texts[:5])
        notes.append(f"{len(table.texts)} columns are no features: {shown}.")
    names = np.array(table.features, dtype=object)
    return Source(path, matrix, table.labels(), names, table=table, notes=notes)


def _spooled(stack: contextlib.ExitStack, table: Table) -> FileReader:
    """The features in a temporary file, from which rows can be read any number of times."""
    folder = stack.enter_context(_temporary_folder())
    path, d = folder / "features", len(table.features)
    with reading(table.path, table.path.suffix), path.open("wb") as file:
        if not table.is_parquet:
            n = 0
            for X, _ in table.csv_blocks():
                X.tofile(file)
                n += len(X)
            return FileReader(path, (n, d), table.dtype, [Slab(0, 0, d)], table.path)
        size, n = table.dtype.itemsize, table.n_rows
        width = max(1, min(d, BLOCK_BYTES // max(1, 8 * table.largest_group)))
        slabs = tuple(
            Slab(first * n * size, first, min(width, d - first)) for first in range(0, d, width)
        )
        for rows, columns, values in table.parquet_slabs(width):
            slab = slabs[columns.start // width]
            file.seek(slab.offset + rows.start * slab.width * size)
            values.tofile(file)
    return FileReader(path, (n, d), table.dtype, slabs, table.path)


@contextlib.contextmanager
def _temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="semfs-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# ---- AnnData ------------------------------------------------------------------------------


def _from_h5ad(
    stack: contextlib.ExitStack, path: Path, label: str, layer: str | None
) -> Source:
    labels = read_obs(path, label)
    with reading(path, ".h5ad"):
        opened = stack.enter_context(H5Matrix.open(path, layer))
        if opened.shape[0] != len(labels):
            raise FileError(
                f"{path}: {opened.shape[0]} rows in the matrix, {len(labels)} in obs."
            )
        matrix = opened.read() if opened.nbytes <= IN_MEMORY_BYTES else opened
    return Source(path, matrix, labels, read_var_names(path, layer), layer=layer)
