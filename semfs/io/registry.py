"""Finds the reader for any input: a path, a frame, an array, AnnData, or blocks.

`OPENERS` lists the file formats by suffix, and `FOLDERS` the formats that are folders. To add a
format, write its module (see `semfs.io.reader`) and add a line here.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from pathlib import Path
from typing import Any

from semfs._typing import LabelsLike
from semfs.io.anndata import (
    as_genes,
    is_anndata_zarr,
    open_anndata_zarr,
    open_genes,
    open_h5ad,
)
from semfs.io.delimited import TEXT_TABLES
from semfs.io.hdf5 import open_hdf5
from semfs.io.labels_file import given_labels
from semfs.io.mtx import is_tenx_folder, open_mtx
from semfs.io.npy import open_npy
from semfs.io.npz import open_npz
from semfs.io.pairs import PairsReader, is_pairs
from semfs.io.reader import NO_LABEL_TEXTS, Opener, Reader, Request
from semfs.io.safety import open_existing
from semfs.io.sparse import array_reader
from semfs.io.tables import is_parquet_folder, open_table
from semfs.io.zarr import is_zarr, open_zarr
from semfs.labels import Labels

#: Formats that are files. Of a name with two suffixes ("a.csv.gz") both are looked up.
OPENERS: dict[str, Opener] = {
    ".npy": open_npy,
    ".npz": open_npz,
    **dict.fromkeys(TEXT_TABLES, open_table),
    ".xlsx": open_table,
    ".xlsm": open_table,
    ".parquet": open_table,
    ".pq": open_table,
    ".feather": open_table,
    ".arrow": open_table,
    ".h5": open_hdf5,
    ".hdf5": open_hdf5,
    ".hdf": open_hdf5,
    ".h5ad": open_h5ad,
    ".mtx": open_mtx,
    ".mtx.gz": open_mtx,
    ".mtx.bz2": open_mtx,
}
#: Formats that are folders: a test of the folder, and the function that opens it.
FOLDERS: list[tuple[Callable[[Path], bool], Opener]] = [
    # The first test that holds decides: AnnData in Zarr is a Zarr folder, too.
    (is_anndata_zarr, open_anndata_zarr),
    (is_zarr, open_zarr),
    (is_tenx_folder, open_mtx),
    (is_parquet_folder, open_table),
]


def open_reader(
    data: Any,
    y: LabelsLike | Labels | None = None,
    key: str | None = None,
    drop: Iterable[str] = (),
    no_label: Sequence[str] = NO_LABEL_TEXTS,
    only: Container[str] | None = None,
) -> tuple[Reader, Labels | None]:
    """Return the reader of data, and the labels unless (X, y) blocks bring them.

    Parameters
    ----------
    data : path, frame, array, AnnData, or (X, y) blocks
        See `semfs.rows.open_blocks`.
    y : array-like of shape (n,) or str, optional
        Labels, or the name of a column or array in the data, or of a label file. An empty tuple
        means that no labels are needed.
    key : str, optional
        Name of the matrix or layer.
    drop : iterable of str
        Columns of a table that are not features.
    no_label : sequence of str
        Text in files that means "no label", in upper or lower case.
    only : container of str, optional
        Features that are needed. In a table, the other columns are not read, so they may have
        gaps. Other formats keep all features.
    """
    request = Request(y, key, tuple(drop), no_label, only)
    if is_pairs(data) and not is_stored(data):
        if y is not None:
            raise ValueError("blocks are (X, y) pairs and already contain labels. Leave out y.")
        return PairsReader(data), None
    reader, labels = _open(data, request)
    if labels is None:  # not in the data: an array, or a file of labels
        where = data if isinstance(data, (str, Path)) else "data"
        labels = given_labels(request, reader, where)
    return reader, labels


def _open(data: Any, request: Request) -> tuple[Reader, Labels | None]:
    """Return the reader, and the labels in the data."""
    if isinstance(data, (str, Path)):
        path = Path(data)
        return _opener(path)(path, request)
    if is_lazy_frame(data):
        return open_table(data.collect(), request)
    if is_frame(data):
        return open_table(data, request)
    genes = as_genes(data)
    if genes is not None:
        return open_genes(genes, request)
    # Whatever can be sliced like an array: numpy, memory maps, h5py, scipy.sparse.
    if hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return array_reader(data), None
    raise TypeError(
        f"cannot read samples from {type(data).__name__}. Pass an array, a frame, AnnData, a "
        "file "
        "or (X, y) blocks."
    )


def _opener(path: Path) -> Opener:
    """Return the function that opens a file or folder. Raise if its format is unknown."""
    if path.is_dir():
        for is_format, open_folder in FOLDERS:
            if is_format(path):
                return open_folder
    else:
        open_existing(path)
        both = "".join(path.suffixes[-2:]).lower()
        # Both first: "a.csv.gz" is a table, ".gz" alone says nothing. In "a.b.npy" the dot
        # is part of the name, and the last suffix decides.
        for suffix in (both, path.suffix.lower()):
            if suffix in OPENERS:
                return OPENERS[suffix]
    raise ValueError(
        f"{path}: unknown format. Expected .npy, .npz, .csv, .tsv (also "
        ".gz), .xlsx, .parquet (or a folder of them), .feather, .zarr, "
        ".h5, .hdf5, .h5ad, .mtx (also .gz) or a 10x folder (matrix.mtx, "
        "features.tsv, barcodes.tsv)."
    )


def is_data_path(path: Path) -> bool:
    """Return whether a path is a file, or a folder in one of the folder formats."""
    if path.is_file():
        return True
    return path.is_dir() and any(is_format(path) for is_format, _ in FOLDERS)


def is_stored(data: object) -> bool:
    """Return whether data must be opened first: paths, AnnData, lazy frames."""
    return isinstance(data, (str, Path)) or as_genes(data) is not None or is_lazy_frame(data)


def is_frame(data: object) -> bool:
    """Return whether data are a pandas or polars frame, without importing either."""
    package = type(data).__module__.partition(".")[0]
    return package in ("pandas", "polars") and type(data).__name__ == "DataFrame"


def is_lazy_frame(data: object) -> bool:
    """Return whether data are a lazy frame of polars."""
    return type(data).__module__.startswith("polars") and type(data).__name__ == "LazyFrame"
