"""HDF5, Zarr and AnnData files: matrices and labels, read without trust."""

from __future__ import annotations

import math
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.files import FileError, check_declared_size, need, reading
from semfs.rows.readers import ArrayReader, Labels, checked_sparse
from semfs.rows.scout import survives

__all__ = [
    "checked_dataset",
    "counts_noticed",
    "dataset_reader",
    "group_labels",
    "group_reader",
    "h5ad_column",
    "h5ad_reader",
    "is_zarr",
    "open_hdf5",
]


def open_hdf5(path: Path) -> Any:
    """Return an open HDF5 file that the library has been seen to survive."""
    h5py = need("h5py", "data", what=str(path))
    if not survives(path):
        raise FileError(
            f"{path} is damaged: the HDF5 library crashed on it, or came to no end. "
            "Copy or download it again."
        )
    return h5py.File(path, "r")


def dataset_reader(dataset: Any) -> ArrayReader:
    """Return a reader of an open HDF5 data set."""
    path = Path(dataset.file.filename)
    return ArrayReader(partial(_open_member, path, dataset.name), path)


def group_reader(path: Path, key: str | None) -> ArrayReader:
    """Return a reader of a matrix in an HDF5 file or a Zarr array or group."""
    if key is None:
        shapes = {name: _open_member(path, name).shape for name in _members(path)}
        matrices = [name for name, shape in shapes.items() if len(shape) == 2]
        if "X" not in matrices and len(matrices) != 1:
            found = ", ".join(shapes) or "nothing"
            raise FileError(f"{path} holds {found}: say which is the matrix with key=...")
        key = "X" if "X" in matrices else matrices[0]
    return ArrayReader(partial(_open_member, path, key), path)


def group_labels(path: Path, name: str) -> Labels:
    """Return the labels in an array of an HDF5 file or a Zarr group."""
    array = _open_member(path, name)
    text = hasattr(array, "asstr") and array.dtype.kind in "OS"
    with reading(path, "HDF5"):
        return Labels.of(array.asstr()[:] if text else array[:]).tidied()


def is_zarr(path: Path) -> bool:
    """Whether this is a Zarr array or group."""
    marks = ("zarr.json", ".zarray", ".zgroup")
    return path.suffix.lower() == ".zarr" or any((path / mark).exists() for mark in marks)


def _members(path: Path) -> list[str]:
    if is_zarr(path):
        opened = need("zarr").open(str(path), mode="r")
        return [""] if hasattr(opened, "shape") else [name for name, _ in opened.arrays()]
    h5py = need("h5py", "data", what=str(path))
    with reading(path, "HDF5"), open_hdf5(path) as file:
        names = [n for n in file if isinstance(file.get(n, getlink=True), h5py.HardLink)]
        return [name for name in names if isinstance(file[name], h5py.Dataset)]


def _open_member(path: Path, name: str) -> Any:
    if name.removeprefix("/") not in _members(path) and "/" not in name.removeprefix("/"):
        found = ", ".join(_members(path)) or "a single array"
        raise FileError(f"{path} has no array {name!r}, only {found}.")
    if is_zarr(path):
        opened = need("zarr").open(str(path), mode="r")
        return opened if name == "" else opened[name]
    with reading(path, "HDF5"):
        return checked_dataset(path, open_hdf5(path), name)


def checked_dataset(path: Path, file: Any, name: str) -> Any:
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
    check_declared_size(path, name, declared, dataset.id.get_storage_size())
    return dataset


# ---- AnnData ----------------------------------------------------------------------------


def h5ad_reader(path: Path, layer: str | None) -> ArrayReader:
    """Return a reader of X, a layer or "raw" of an ``.h5ad`` file."""
    with reading(path, ".h5ad"):
        out = ArrayReader(partial(_h5ad_matrix, path, layer), path)
        with open_hdf5(path) as file:
            out.frame = "raw/var" if layer == "raw" and "raw" in file else "var"
        names = need("pandas").Index([str(n) for n in h5ad_column(path, out.frame, None)])
    out.feature_names = need("anndata.utils").make_index_unique(names).tolist()
    return out


def _h5ad_matrix(path: Path, layer: str | None) -> Any:
    """X or a layer of a file, dense or sparse; stored by columns it must be read whole."""
    io = need("anndata.io", "data", what=str(path))
    file = open_hdf5(path)
    name = "X" if layer is None else f"layers/{layer}"
    name = "raw/X" if layer == "raw" and "raw" in file else name
    if name not in file:
        layers = list(file.get("layers", {})) + (["raw"] if "raw" in file else [])
        raise FileError(f"{path} has no {name}; layers: {', '.join(layers) or 'none'}.")
    _check_node(path, file, name)
    if hasattr(file[name], "shape"):
        return file[name]
    matrix = io.sparse_dataset(file[name])
    n_values, n_rows = len(file[name]["data"]), matrix.shape[matrix.format == "csc"]
    indptr = file[name]["indptr"]
    if len(indptr) != n_rows + 1 or not indptr[-1] == n_values == len(file[name]["indices"]):
        raise FileError(f"{path}: {name} has {n_values} values, {indptr[-1]} expected.")
    return checked_sparse(matrix.to_memory()).tocsr() if matrix.format == "csc" else matrix


def h5ad_column(path: Path, frame: str, column: str | None) -> Any:
    """Return a column of ``obs`` or ``var`` of a file as pandas has it; None: the index."""
    io = need("anndata.io", "data", what=str(path))
    h5py = need("h5py")
    with reading(path, ".h5ad"), open_hdf5(path) as file:
        group = file.get(frame)
        if not isinstance(group, h5py.Group):
            hint = " It was written by AnnData before 0.7: write it again." if group else ""
            raise FileError(f"{path} is not an AnnData file: it has no group {frame!r}.{hint}")
        name = str(group.attrs.get("_index", "_index")) if column is None else column
        if name not in group:
            names = ", ".join(str(n) for n in group.attrs.get("column-order", list(group)))
            raise FileError(f"{path} has no {frame} column {name!r}; found: {names or 'none'}.")
        _check_node(path, group, name)
        if "categories" in group[name].attrs:  # AnnData 0.7
            return io.read_elem(group)[name].array
        return io.read_elem(group[name])


def _check_node(path: Path, group: Any, name: str) -> None:
    node = group[name]
    for part in node if hasattr(node, "keys") else [name]:
        checked_dataset(path, node if hasattr(node, "keys") else group, part)


def counts_noticed(reader: ArrayReader) -> ArrayReader:
    """Return the reader; say what to do if some cells hold counts: large whole numbers."""
    n = reader.n_rows or 0
    picked = [next(reader.blocks(at, min(at + 50, n), 50))[1] for at in range(0, n, n // 4 + 1)]
    found = np.concatenate([X.data if sp.issparse(X) else X[X != 0] for X in picked] or [[]])
    top, mean = (float(found.max()), float(found.mean())) if len(found) else (0.0, 0.0)
    whole = len(found) and found.min() >= 0 and (found == np.floor(found)).all()
    if whole and (top > 30 or top > 8 * mean):
        warnings.warn(
            f"the cells hold raw counts (whole numbers up to {top:.0f}), among which the genes "
            "of highest expression win. Normalise first: sc.pp.normalize_total(adata), then "
            "sc.pp.log1p(adata); or name a layer that is normalised (layer=..., --layer).",
            UserWarning,
            stacklevel=2,
        )
    return reader
