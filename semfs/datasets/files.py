"""Data sets in files of your own: tables, AnnData, NPZ; and features from any file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.attributes import as_attribute_table
from semfs.attributes.files import read_attributes
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.matlab import names_in_h5, names_in_mat, read_h5, read_mat
from semfs.files import FileError, need, open_existing, reading
from semfs.rows import BlockSource, open_blocks
from semfs.rows.hdf5 import h5ad_column
from semfs.rows.readers import (
    check_matrix,
    named,
    names_in_npz,
    npz_labels,
    read_npy,
    read_npz,
    sparse_from_npz,
)

__all__ = ["as_frame", "class_table", "load_h5ad", "load_npz", "load_table", "read_features"]

_USUAL = ("X", "features", "feats", "data", "embeddings")


def load_table(
    path: Any,
    label: str,
    attributes: Any,
    *,
    unseen: Any = (),
    drop: Sequence[str] = (),
    name: str | None = None,
) -> ZeroShotDataset:
    """Return the data set in a table.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.txt`` (also with ``.gz``), ``.parquet`` or ``.feather``.
    label : str
        Name of the column with the class labels. Rows without a label are left out.
    attributes : path-like, DataFrame or mapping
        Class descriptions; a file is read by `semfs.attributes.read_attributes`.
    unseen : array-like of class labels, default=()
        Unseen classes.
    drop : sequence of str, default=()
        Columns that are no features. Columns that hold no numbers are left out in any
        case, and so is an index that pandas stored.
    name : str, optional
        Name of the data set; the file's by default.

    Returns
    -------
    ZeroShotDataset
        ``info["left_out"]`` names the columns that hold no numbers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the columns left out are in info
        source = open_blocks(open_existing(path), label, drop=drop)
    info = {"left_out": list(source.reader.left_out)}
    return _loaded(source, attributes, unseen, name or Path(path).stem, info)


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
    source = open_blocks(path, label, key=layer)
    if isinstance(unseen, str):
        flags = np.isin(
            np.asarray(h5ad_column(path, "obs", unseen)).astype(str), ["True", "true"]
        )
        assert source.labels is not None
        codes = np.unique(source.labels.codes[flags & (source.labels.codes >= 0)])
        unseen = [source.labels.classes[code] for code in codes]
    return _loaded(source, attributes, unseen, name or path.stem)


def _loaded(
    source: BlockSource, attributes: Any, unseen: Any, name: str, info: Any = None
) -> ZeroShotDataset:
    """The labelled rows of a source, with labels in the type of the table's."""
    table, labels = as_frame(attributes), source.labels
    assert labels is not None
    labels = labels.matched(table.index)
    kept = labels.codes >= 0
    if not kept.all():
        message = f"{source.reader.path}: {(~kept).sum()} rows without a label are left out."
        warnings.warn(message, UserWarning, stacklevel=3)
    with reading(Path(str(source.reader.path)), "data set"):
        X = source.reader.load()
    X, y = (X, labels.array()) if kept.all() else (X[kept], labels.used().array())
    return ZeroShotDataset(name, X, y, table, unseen, source.feature_names, info=info)


def as_frame(attributes: Any) -> Any:
    """Class descriptions, from a file or in any accepted form, as a frame."""
    if isinstance(attributes, (str, Path)):
        return read_attributes(attributes)
    table = as_attribute_table(attributes)
    pandas = need("pandas", "data", what="A data set")
    return pandas.DataFrame(table.values, index=table.classes, columns=table.names)


# ---- NPZ ----------------------------------------------------------------------------------


def load_npz(
    path: Any,
    *,
    label: str = "y",
    table: str = "A",
    unseen: Any = None,
    name: str | None = None,
) -> ZeroShotDataset:
    """Return the data set stored in one ``.npz`` file.

    Parameters
    ----------
    path : path-like
        File with the arrays

        - ``X`` (n, d), half precision is widened to float32; or, for a sparse matrix,
          ``X_data``, ``X_indices``, ``X_indptr`` and ``X_shape`` (CSR);
        - ``y`` (n,), 0-based class ids, or class names;
        - ``A`` (C, m), the attributes of each class;
        - ``classes`` (C,), optional: class names. Without it labels are the ids;
        - ``unseen``, optional: ids or names of the unseen classes;
        - ``attribute_names`` or ``attributes`` (m,) and ``feature_names`` (d,), optional.

        Other arrays are left alone. Nothing is unpickled. An uncompressed X of single or
        double precision is memory-mapped. Rows of id -1 have no label and are left out.
    label : str, default="y"
        Name of the array to use as labels.
    table : str, default="A"
        Name of the array to use as attributes.
    unseen : array-like of class labels, optional
        Use these unseen classes instead of the file's.
    name : str, optional
        Name of the data set; the file's by default.

    Returns
    -------
    ZeroShotDataset
        Rows in the order of the file.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.npz")
    >>> np.savez(path, X=np.eye(3), y=[0, 1, 2], A=[[4], [6], [2]],
    ...          classes=["cat", "ant", "hen"], unseen=[2])
    >>> data = load_npz(path)
    >>> data.unseen.tolist(), data.attributes.loc["ant"].tolist()
    (['hen'], [6.0])
    """
    path = open_existing(path)
    with reading(path, "data set"):
        frame, hidden = npz_classes(path, table)
        if frame is None:
            raise _no_array(path, table)
        arrays = read_npz(path, ("X", "feature_names"))
        X: Any = arrays["X"] if "X" in arrays else sparse_from_npz(path)
        check_matrix(f"{path}: X", X.shape, X.dtype)
        labels = npz_labels(path, label)
        kept = labels.codes >= 0
        X = X if kept.all() or len(kept) != X.shape[0] else X[kept]
        y = labels.array() if kept.all() else labels.used().array()
        unseen = hidden if unseen is None else unseen
        names = arrays.get("feature_names")
        return ZeroShotDataset(name or path.stem, _widened(X), y, frame, unseen, names)


def class_table(path: Any, attributes: Any = None) -> tuple[Any, list]:
    """Return class descriptions for the data in a file, and the unseen classes it names.

    Parameters
    ----------
    path : path-like
        The data. An NPZ file may bring both.
    attributes : path-like, optional
        A file for `semfs.attributes.read_attributes`; "labels" means none.

    Returns
    -------
    table : pandas.DataFrame or None
        None for "labels".
    unseen : list of class labels
    """
    own, unseen = npz_classes(path) if str(path).lower().endswith(".npz") else (None, [])
    if str(attributes) == "labels" and not Path(attributes).exists():
        return None, unseen
    if attributes is None and own is None:
        raise ValueError(
            f"{path} has no class attributes. Give a table (--attributes TABLE), or choose by "
            "the class labels (--attributes labels)."
        )
    return own if attributes is None else read_attributes(attributes), unseen


def npz_classes(path: Any, table: str = "A") -> tuple[Any, list]:
    """Return the attributes of an ``.npz`` file (a frame, or None), and its unseen classes."""
    path = open_existing(path)
    arrays = read_npz(path, (table, "classes", "unseen", "attribute_names", "attributes"))
    frame, classes = None, None
    if "classes" in arrays:
        classes = arrays["classes"].reshape(-1).tolist()
    if table in arrays:
        A = arrays[table]
        check_matrix(f"{path}: {table}", A.shape, A.dtype)
        classes = list(range(len(A))) if classes is None else classes
        if len(classes) != len(A):
            raise FileError(
                f"{path}: classes has {len(classes)} names but the attribute table has "
                f"{len(A)} rows. Store one row per class, in the order of classes."
            )
        pandas = need("pandas", "data", what="A data set")
        columns = _attribute_names(arrays, A.shape[1])
        frame = pandas.DataFrame(A.astype(np.float64), index=classes, columns=columns)
    unseen = named(f"{path}: unseen", arrays.get("unseen", np.zeros(0, dtype=int)), classes)
    return frame, unseen.classes


def _no_array(path: Path, name: str) -> FileError:
    found = ", ".join(sorted(names_in_npz(path))) or "nothing"
    return FileError(
        f"{path} has no array {name!r}; found {found}. A data set needs X (or X_data, "
        "X_indices, X_indptr, X_shape), y and A."
    )


def _attribute_names(arrays: dict[str, np.ndarray], m: int) -> list[str]:
    for key in ("attribute_names", "attributes"):
        names = arrays.get(key)
        if names is not None and names.shape == (m,) and len(set(names.tolist())) == m:
            return [str(n) for n in names.tolist()]
    return [f"a{j}" for j in range(m)]


def _widened(X: Any) -> Any:
    """Half precision is for storage, not for sums."""
    return X.astype(np.float32) if X.dtype == np.float16 else X


# ---- features -----------------------------------------------------------------------------


def read_features(source: Any, n_rows: int | None = None, *, key: str | None = None) -> Any:
    """Return a matrix of features from a file, with as many rows as expected.

    Parameters
    ----------
    source : path-like or array of shape (n, d)
        ``.npy`` (memory-mapped), ``.npz``, ``.mat`` (version 5 or 7.3) or ``.h5``. A MATLAB
        matrix with one column per sample is turned.
    n_rows : int, optional
        The number of rows that is right.
    key : str, optional
        Name of the array in the file; needed if there are several and none is called X,
        features, feats, data or embeddings.

    Returns
    -------
    ndarray or sparse matrix of shape (n, d)
        Half precision is widened to float32.
    """
    if isinstance(source, np.ndarray) or sparse.issparse(source):
        X, name = source, "features"
    else:
        path = open_existing(source)
        X, name = _read(path, key), str(path)
        if path.suffix == ".mat" and n_rows is not None and X.shape[::-1][:1] == (n_rows,):
            X = X.T if X.shape[0] != n_rows else X
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise FileError(
            f"{name} has shape {X.shape} and type {X.dtype}; a matrix of numbers with one row "
            "per sample was expected."
        )
    if n_rows is not None and X.shape[0] != n_rows:
        turned = " It seems transposed." if X.shape[1] == n_rows else ""
        raise FileError(
            f"{name} has {X.shape[0]} rows, expected {n_rows}: one row per sample, in the "
            f"order of the labels.{turned}"
        )
    return np.asarray(X).astype(np.float32) if X.dtype == np.float16 else X


def _read(path: Path, key: str | None) -> Any:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        arrays = read_npz(path, None if key is None else [key])
        return arrays[_pick(path, [n for n in arrays if arrays[n].ndim == 2], key)]
    if suffix == ".mat":
        name = _pick(path, names_in_mat(path), key)
        return read_mat(path, [name])[name]
    if suffix in (".h5", ".hdf5"):
        return read_h5(path, _pick(path, names_in_h5(path), key))
    raise FileError(f"{path}: features are read from .npy, .npz, .mat, .h5 or .hdf5 files.")


def _pick(path: Path, names: list[str], key: str | None) -> str:
    if key is not None:
        if key not in names:
            raise FileError(f"{path} has no array {key!r}; found {', '.join(names)}.")
        return key
    usual = [name for name in _USUAL if name in names]
    if usual or len(names) == 1:
        return usual[0] if usual else names[0]
    raise FileError(
        f"{path} holds {len(names)} arrays ({', '.join(names[:8])}); say which one has the "
        "features with key=."
    )
