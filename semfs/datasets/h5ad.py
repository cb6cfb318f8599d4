"""Single-cell data: AnnData's H5AD files, read and annotated with h5py alone."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.labels import Labels
from semfs.datasets.matlab import import_h5py, open_dataset
from semfs.datasets.tables import as_frame
from semfs.files import FileError, open_existing, reading
from semfs.rows.readers import Blocks, Reader, digest, file_state, working_dtype

__all__ = ["H5Matrix", "annotate_h5ad", "load_h5ad", "read_obs", "read_var_names"]


def load_h5ad(
    path: Any,
    label: str,
    attributes: Any,
    *,
    layer: str | None = None,
    unseen: Any = (),
    name: str | None = None,
) -> ZeroShotDataset:
    """Return the data set in an AnnData file (``.h5ad``).

    Parameters
    ----------
    path : path-like
        The file.
    label : str
        Column of ``obs`` with the class labels (text, numbers or categories). Cells without
        a label are left out.
    attributes : path-like, DataFrame or mapping
        Class descriptions; a file is read by `semfs.attributes.read_attributes`.
    layer : str, optional
        Layer to take instead of ``X``; ``"raw"`` takes ``raw.X`` with its genes.
    unseen : array-like of class labels, or str, default=()
        Unseen classes, or the name of a column of ``obs`` that is true for their cells.
    name : str, optional
        Name of the data set; the file's by default.

    Returns
    -------
    ZeroShotDataset
        Genes are the feature names; a sparse matrix stays sparse.
    """
    path = open_existing(path)
    frame = as_frame(attributes)
    labels = read_obs(path, label).matched(frame.index)
    kept = labels.present
    if not kept.all():
        message = f"{path}: {(~kept).sum()} cells without a label are left out."
        warnings.warn(message, UserWarning, stacklevel=2)
    y = labels.values()
    if isinstance(unseen, str):
        flags = read_obs(path, unseen)
        true = [i for i, c in enumerate(flags.categories) if c in (True, "True", "true")]
        unseen = np.unique(y[np.isin(flags.codes, true)[kept]])
    with reading(path, ".h5ad"), H5Matrix.open(path, layer) as matrix:
        X = matrix.read()
    if X.shape[0] != len(labels):
        raise FileError(f"{path}: {X.shape[0]} rows in the matrix, {len(labels)} in obs.")
    names = read_var_names(path, layer)
    X = X if kept.all() else X[kept]
    return ZeroShotDataset(name or path.stem, X, y, frame, unseen, names)


# ---- obs and var --------------------------------------------------------------------------


def read_obs(path: Path, column: str) -> Labels:
    """Return a column of ``obs`` as labels."""
    h5py = import_h5py(path)
    with reading(path, ".h5ad"), h5py.File(path, "r") as file:
        obs = _group(path, file, "obs")
        if column not in obs:
            names = ", ".join(str(n) for n in obs.attrs.get("column-order", list(obs)))
            raise FileError(f"{path} has no obs column {column!r}; found: {names or 'none'}.")
        codes, categories = _column(path, obs, column)
        return Labels.of(categories) if codes is None else Labels.coded(codes, categories)


def read_var_names(path: Path, layer: str | None = None) -> np.ndarray:
    """Return the gene names, made distinct as AnnData does (``GENE``, ``GENE-1``, …)."""
    h5py = import_h5py(path)
    with reading(path, ".h5ad"), h5py.File(path, "r") as file:
        var = _group(path, file, "raw/var" if layer == "raw" else "var")
        index = var.attrs.get("_index", "_index")
        codes, values = _column(path, var, str(index))
        if codes is not None:
            values = np.asarray(values, dtype=object)[codes].tolist()
        names = [str(item) for item in values]
    return np.array(_distinct(names), dtype=object)


def _distinct(names: list[str]) -> list[str]:
    taken, seen = set(names), dict.fromkeys(names, 0)
    if len(taken) == len(names):
        return names
    out = []
    for name in names:
        new = name
        while seen[name] and new in taken:
            new = f"{name}-{seen[name]}"
            seen[name] += 1
        seen[name] = max(seen[name], 1)
        taken.add(new)
        out.append(new)
    return out


def _group(path: Path, file: Any, name: str) -> Any:
    h5py = import_h5py(path)
    group = file.get(name)
    if not isinstance(group, h5py.Group):
        hint = " It was written by AnnData before 0.7: write it again." if group else ""
        raise FileError(f"{path} is not an AnnData file: it has no group {name!r}.{hint}")
    return group


def _column(path: Path, group: Any, name: str) -> tuple[np.ndarray | None, list]:
    """A column in any of AnnData's encodings: codes (or None) and categories or values."""
    h5py = import_h5py(path)
    item = group[name]
    if isinstance(item, h5py.Group):
        if "codes" in item:
            return _coded(path, item, "codes", _values(path, item, "categories"))
        if "mask" in item:  # nullable numbers and text
            mask = _values(path, item, "mask")
            values = _values(path, item, "values")
            return None, [None if missing else v for v, missing in zip(values, mask)]
        raise FileError(f"{path}: column {name!r} has an unknown encoding.")
    if "categories" in item.attrs:  # AnnData 0.7
        return _coded(path, group, name, _values(path, group, f"__categories/{name}"))
    return None, _values(path, group, name)


def _coded(path: Path, group: Any, name: str, categories: list) -> tuple[np.ndarray, list]:
    codes = open_dataset(path, group, name)[()]
    bad = codes.ndim != 1 or codes.dtype.kind not in "iu"
    if bad or codes.max(initial=-1) >= len(categories) or codes.min(initial=0) < -1:
        raise FileError(f"{path}: {group.name} has codes beyond its categories.")
    return codes, categories


def _values(path: Path, group: Any, name: str) -> list:
    data = open_dataset(path, group, name)
    if data.ndim != 1:
        raise FileError(f"{path}: {name} must have one dimension.")
    if data.dtype.kind in "OS":
        return [_text(item) for item in data.asstr(errors="replace")[()]]
    values = data[()].tolist()
    return [None if v != v else v for v in values] if data.dtype.kind == "f" else values


def _text(item: Any) -> str | None:
    return str(item) if str(item).strip() else None


# ---- the matrix ---------------------------------------------------------------------------


class H5Matrix(Reader):
    """X or a layer of an open H5AD file, dense or CSR, read in blocks of rows."""

    def __init__(
        self,
        path: Path,
        layer: str | None,
        file: Any,
        node: Any,
        shape: tuple[int, int],
        stored: np.dtype,
        indptr: np.ndarray | None = None,  # of a sparse matrix; None for a dense one
        by_columns: bool = False,  # CSC: must be read whole
    ) -> None:
        self.path, self.layer, self.file, self.node = path, layer, file, node
        self.n_rows, self.n_features = (int(size) for size in shape)
        self.stored, self.indptr, self.by_columns = stored, indptr, by_columns
        self.dtype, self.sparse = working_dtype(stored), indptr is not None
        self.row_bytes = self.n_features * self.dtype.itemsize
        if indptr is not None:
            size = int(indptr[-1]) * (self.dtype.itemsize + 4)
            self.row_bytes = 1 + size // max(1, self.n_rows)

    @classmethod
    def open(cls, path: Path, layer: str | None = None) -> H5Matrix:
        """Open the file and check the matrix; use it as a context manager."""
        h5py = import_h5py(path)
        file = h5py.File(path, "r")
        try:
            return cls._checked(path, file, layer)
        except BaseException:
            file.close()
            raise

    @classmethod
    def _checked(cls, path: Path, file: Any, layer: str | None) -> H5Matrix:
        h5py = import_h5py(path)
        name = {None: "X", "raw": "raw/X"}.get(layer, f"layers/{layer}")
        if name not in file:
            layers = list(file.get("layers", {})) + (["raw"] if "raw" in file else [])
            raise FileError(f"{path} has no {name}; layers: {', '.join(layers) or 'none'}.")
        node = file[name]
        if isinstance(node, h5py.Dataset):
            open_dataset(path, file, name)
            if node.ndim != 2 or node.dtype.kind not in "fiub":
                raise FileError(f"{path}: {name} must be a matrix of numbers.")
            return cls(path, layer, file, node, node.shape, node.dtype)
        kind = node.attrs.get("encoding-type", node.attrs.get("h5sparse_format", ""))
        shape = tuple(
            int(s) for s in node.attrs.get("shape", node.attrs.get("h5sparse_shape", ()))
        )
        if not str(kind).startswith(("csr", "csc")) or len(shape) != 2:
            raise FileError(f"{path}: {name} has the unknown encoding {str(kind)!r}.")
        by_columns = str(kind).startswith("csc")
        parts = {key: open_dataset(path, node, key) for key in ("data", "indices", "indptr")}
        indptr = parts["indptr"][()].astype(np.int64)
        n = shape[1] if by_columns else shape[0]
        if len(indptr) != n + 1 or (np.diff(indptr) < 0).any() or indptr[0] != 0:
            raise FileError(f"{path}: {name} has a broken index (indptr).")
        if not indptr[-1] == len(parts["data"]) == len(parts["indices"]):
            raise FileError(
                f"{path}: {name} has {len(parts['data'])} values, {indptr[-1]} expected."
            )
        stored = parts["data"].dtype
        return cls(path, layer, file, node, shape, stored, indptr, by_columns)

    def __enter__(self) -> H5Matrix:
        return self

    def __exit__(self, *_: Any) -> None:
        self.file.close()

    def __getstate__(self) -> dict:
        return {"path": self.path, "layer": self.layer}

    def __setstate__(self, state: dict) -> None:
        self.__dict__ = self.open(**state).__dict__

    def fingerprint(self) -> str:
        """Return a text that changes when the file changes."""
        return digest(file_state(self.path), self.layer)

    def read(self) -> Any:
        """Return the whole matrix, in its stored precision (half becomes single)."""
        dtype = np.float32 if self.stored == np.float16 else self.stored
        if self.indptr is None:
            return self.node[()].astype(dtype, copy=False)
        if not self.by_columns:
            return self._rows(0, self.shape[0]).astype(dtype, copy=False)
        data, indices = self.node["data"][()], self.node["indices"][()]
        X = sparse.csc_array((data, indices, self.indptr), shape=self.shape)
        X.check_format(full_check=True)
        return X.tocsr().astype(dtype, copy=False)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X dense or CSR, None)."""
        stop = self.shape[0] if stop is None else stop
        whole = self.read() if self.by_columns else None
        for first in range(start, stop, step):
            last = min(first + step, stop)
            if whole is not None:
                block = whole[first:last]
            else:
                block = self.node[first:last] if not self.sparse else self._rows(first, last)
            yield first, block.astype(self.dtype, copy=False), None

    def _rows(self, start: int, stop: int) -> Any:
        assert self.indptr is not None
        first, last = int(self.indptr[start]), int(self.indptr[stop])
        data, indices = self.node["data"][first:last], self.node["indices"][first:last]
        indptr = self.indptr[start : stop + 1] - first
        X = sparse.csr_array((data, indices, indptr), shape=(stop - start, self.shape[1]))
        X.check_format(full_check=True)  # an index out of range would crash later, in C
        return X


# ---- writing back -------------------------------------------------------------------------


def annotate_h5ad(
    source: Any, target: Any, columns: dict[str, np.ndarray], uns: dict[str, Any]
) -> None:
    """Copy an H5AD file and add columns to ``var`` and a dict ``uns["semfs"]``.

    Parameters
    ----------
    source, target : path-like
        Files; they may be the same. The target appears whole or not at all.
    columns : dict of str to ndarray of shape (n_vars,)
        Numbers or booleans; existing columns of these names are replaced.
    uns : dict
        Text, numbers and lists of text.
    """
    h5py = import_h5py(source)
    source, target = Path(source), Path(target)
    beside = target.with_name(f".{target.name}.part")
    try:
        shutil.copyfile(source, beside)
        with reading(source, ".h5ad"), h5py.File(beside, "r+") as file:
            var = _group(source, file, "var")
            for name, values in columns.items():
                _write(var, name, np.asarray(values))
            known = [str(n) for n in var.attrs.get("column-order", [])]
            order = [*known, *(n for n in columns if n not in known)]
            var.attrs["column-order"] = np.array(order, dtype=h5py.string_dtype())
            _write_dict(file.require_group("uns"), "semfs", uns)
        beside.replace(target)
    finally:
        beside.unlink(missing_ok=True)


def _write_dict(parent: Any, name: str, content: dict[str, Any]) -> None:
    if "encoding-type" not in parent.attrs:
        parent.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    if name in parent:
        del parent[name]
    group = parent.create_group(name)
    group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    for key, value in content.items():
        _write(group, key, value)


def _write(group: Any, name: str, value: Any) -> None:
    """One value in the encoding of AnnData's on-disk format."""
    import h5py

    if name in group:
        del group[name]
    if isinstance(value, str):
        item, kind = group.create_dataset(name, data=value, dtype=h5py.string_dtype()), "string"
    elif isinstance(value, (list, tuple)):
        texts = np.array([str(v) for v in value], dtype=object)
        item = group.create_dataset(name, data=texts, dtype=h5py.string_dtype())
        kind = "string-array"
    elif isinstance(value, np.ndarray):
        item, kind = group.create_dataset(name, data=value), "array"
    else:
        item, kind = group.create_dataset(name, data=value), "numeric-scalar"
    item.attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})
