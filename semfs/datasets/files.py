"""Data sets in files of your own: tables, AnnData, NPZ; and features from any file."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.attributes import as_attribute_table, attributes_of
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.matlab import names_in_h5, names_in_mat, read_h5, read_mat
from semfs.files import FileError, need, open_existing, reading
from semfs.rows import BlockSource, open_blocks
from semfs.rows.readers import (
    check_matrix,
    named,
    npz_labels,
    read_npy,
    read_npz,
    sparse_from_npz,
)

__all__ = ["as_frame", "class_table", "load_h5ad", "load_npz", "load_table", "read_features"]

_USUAL = ("X", "features", "feats", "data", "embeddings")


def load_table(
    path: Any, label: str, attributes: Any, *, unseen: Any = (), drop: Sequence[str] = ()
) -> ZeroShotDataset:
    """Return the data set in a table.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.txt`` (also with ``.gz``), ``.parquet`` or ``.feather``.
    label : str
        Name of the column with the class labels. Rows without a label are left out.
    attributes : path-like, DataFrame or mapping
        Class descriptions; text is what `semfs.attributes.attributes_of` takes: a file, or
        "names", or "cl".
    unseen : array-like of class labels, default=()
        Unseen classes.
    drop : sequence of str, default=()
        Columns that are no features. Columns that hold no numbers are left out in any
        case, and so is an index that pandas stored.

    Returns
    -------
    ZeroShotDataset
        ``info["left_out"]`` names the columns that hold no numbers.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the columns left out are in info
        source = open_blocks(open_existing(path), label, drop=drop)
    return _loaded(source, attributes, unseen, {"left_out": list(source.reader.left_out)})


def load_h5ad(
    path: Any, label: str, attributes: Any, *, layer: str | None = None, unseen: Any = ()
) -> ZeroShotDataset:
    """Return the data set in an AnnData file (``.h5ad``).

    Parameters
    ----------
    path : path-like
        The file.
    label : str
        Column of ``obs`` with the class labels (text, numbers or categories). Cells without
        a label are left out.
    attributes, unseen
        As for `load_table`.
    layer : str, optional
        Layer to take instead of ``X``; ``"raw"`` takes ``raw.X`` with its genes.

    Returns
    -------
    ZeroShotDataset
        Genes are the feature names; a sparse matrix stays sparse.
    """
    return _loaded(open_blocks(open_existing(path), label, key=layer), attributes, unseen)


def _loaded(
    source: BlockSource, attributes: Any, unseen: Any, info: Any = None
) -> ZeroShotDataset:
    """The labelled rows of a source, with labels in the type of the table's."""
    labels, path = source.labels, Path(str(source.reader.path))
    assert labels is not None
    table = as_frame(attributes, labels.classes)
    labels = labels.matched(table.index)
    kept = labels.codes >= 0
    if not kept.all():
        message = f"{path}: {(~kept).sum()} rows without a label are left out."
        warnings.warn(message, UserWarning, stacklevel=3)
    with reading(path, "data set"):
        X = source.reader.load()
    X, y = (X, labels.array()) if kept.all() else (X[kept], labels.used().array())
    return ZeroShotDataset(path.stem, X, y, table, unseen, source.feature_names, info=info)


def as_frame(attributes: Any, classes: Sequence = ()) -> Any:
    """Class descriptions, by `attributes_of` or in any accepted form, as a frame."""
    if isinstance(attributes, (str, Path)):
        return attributes_of(classes, attributes)
    table = as_attribute_table(attributes)
    pandas = need("pandas", "data", what="A data set")
    return pandas.DataFrame(table.values, index=table.classes, columns=table.names)


# ---- NPZ ----------------------------------------------------------------------------------


def load_npz(path: Any) -> ZeroShotDataset:
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

    Returns
    -------
    ZeroShotDataset
        Rows in the order of the file, which gives the name.

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
        table, unseen = npz_classes(path)
        if table is None:
            raise FileError(
                f"{path} has no array 'A'. A data set needs X (or X_data, X_indices, X_indptr, "
                "X_shape), y and A."
            )
        arrays = read_npz(path, ("X", "feature_names"))
        X: Any = arrays["X"] if "X" in arrays else sparse_from_npz(path)
        check_matrix(f"{path}: X", X.shape, X.dtype)
        labels = npz_labels(path, "y")
        kept = labels.codes >= 0
        X = X if kept.all() or len(kept) != X.shape[0] else X[kept]
        y = labels.array() if kept.all() else labels.used().array()
        names = arrays.get("feature_names")
        return ZeroShotDataset(path.stem, _widened(X), y, table, unseen, names)


def npz_classes(path: Path) -> tuple[Any, list]:
    """Return the attributes of an ``.npz`` file (a frame, or None), and its unseen classes."""
    arrays = read_npz(path, ("A", "classes", "unseen", "attribute_names", "attributes"))
    table, A = None, arrays.get("A")
    classes = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else None
    if A is not None:
        check_matrix(f"{path}: A", A.shape, A.dtype)
        classes = list(range(len(A))) if classes is None else classes
        if len(classes) != len(A):
            raise FileError(
                f"{path}: classes has {len(classes)} names but the attribute table has "
                f"{len(A)} rows. Store one row per class, in the order of classes."
            )
        names = arrays.get("attribute_names", arrays.get("attributes"))
        if names is None or names.shape != A.shape[1:]:
            names = np.array([f"a{j}" for j in range(A.shape[1])])
        pandas = need("pandas", "data", what="A data set")
        columns = [str(name) for name in names.tolist()]
        table = pandas.DataFrame(A.astype(np.float64), index=classes, columns=columns)
    unseen = named(f"{path}: unseen", arrays.get("unseen", np.zeros(0, dtype=int)), classes)
    return table, unseen.classes


def class_table(path: Any, attributes: Any, classes: Sequence) -> tuple[Any, list]:
    """Return descriptions of the classes in a data file, and the unseen classes it names.

    ``attributes`` is what `attributes_of` takes, or the word "labels" (None is returned); by
    default an NPZ file brings its own.
    """
    own, unseen = npz_classes(path) if str(path).lower().endswith(".npz") else (None, [])
    if str(attributes) == "labels" and not Path(attributes).exists():
        return None, unseen
    if attributes is not None:
        return attributes_of(classes, attributes), unseen
    if own is None:
        raise ValueError(
            f"{path} has no class attributes. Give a table (--attributes TABLE), or choose by "
            "what the classes are called (--attributes names), by what the Cell Ontology says "
            "of them (--attributes cl) or by the class labels alone (--attributes labels)."
        )
    return own, unseen


def _widened(X: Any) -> Any:
    """Half precision is for storage, not for sums."""
    return np.asarray(X).astype(np.float32) if X.dtype == np.float16 else X


# ---- features -----------------------------------------------------------------------------


def read_features(source: Any, n_rows: int | None = None) -> Any:
    """Return a matrix of features from a file, with as many rows as expected.

    Parameters
    ----------
    source : path-like or array of shape (n, d)
        ``.npy`` (memory-mapped), ``.npz``, ``.mat`` (version 5 or 7.3) or ``.h5``. If there
        are several arrays, that called X, features, feats, data or embeddings is taken. A
        MATLAB matrix with one column per sample is turned.
    n_rows : int, optional
        The number of rows that is right.

    Returns
    -------
    ndarray or sparse matrix of shape (n, d)
        Half precision is widened to float32.
    """
    if isinstance(source, np.ndarray) or sparse.issparse(source):
        X, name = source, "features"
    else:
        path = open_existing(source)
        X, name = _read(path), str(path)
        if path.suffix == ".mat" and X.ndim == 2 and X.shape[0] != n_rows == X.shape[1]:
            X = X.T
    check_matrix(name, X.shape, X.dtype)
    if n_rows is not None and X.shape[0] != n_rows:
        turned = " It seems transposed." if X.shape[1] == n_rows else ""
        raise FileError(
            f"{name} has {X.shape[0]} rows, expected {n_rows}: one row per sample, in the "
            f"order of the labels.{turned}"
        )
    return _widened(X)


def _read(path: Path) -> Any:
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".npz":
        arrays = read_npz(path)
        return arrays[_usual(path, [n for n in arrays if arrays[n].ndim == 2])]
    if suffix == ".mat":
        name = _usual(path, names_in_mat(path))
        return np.asarray(read_mat(path, [name])[name])
    if suffix in (".h5", ".hdf5"):
        return read_h5(path, _usual(path, names_in_h5(path)))
    raise FileError(f"{path}: features are read from .npy, .npz, .mat, .h5 or .hdf5 files.")


def _usual(path: Path, names: list[str]) -> str:
    """The name of the array that holds the features."""
    usual = [name for name in _USUAL if name in names]
    if not usual and len(names) != 1:
        raise FileError(
            f"{path} holds {len(names)} arrays ({', '.join(names[:8])}). Call the one with the "
            "features X, or pass it as an array."
        )
    return [*usual, *names][0]
