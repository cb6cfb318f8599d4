"""Data sets in files of your own: tables, AnnData, NPZ; and features from any file."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.attributes import as_attribute_table, attributes_of
from semfs.datasets.base import ZeroShotDataset
from semfs.io.hdf5 import group_reader
from semfs.io.mat import names_in_mat, read_mat
from semfs.io.npy import read_npy
from semfs.io.npz import named, read_npz
from semfs.io.reader import check_matrix
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.rows import as_plain, open_blocks
from semfs.system import import_optional
from semfs.validation import check_all_finite

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def load_table(
    path: Any,
    label: str | None = None,
    attributes: Any = None,
    *,
    layer: str | None = None,
    unseen: Any = (),
    drop: Sequence[str] = (),
    normalize: str | None = None,
) -> ZeroShotDataset:
    """Return the data set in a table, an AnnData or an NPZ file.

    Parameters
    ----------
    path : path-like
        ``.csv``, ``.tsv``, ``.txt`` (also ``.gz``), ``.xlsx``, ``.parquet``, ``.feather``,
        ``.npz`` (see `load_npz`) or ``.h5ad``, of which a sparse matrix stays sparse.
    label : str, optional
        Name of the column (of ``obs``) with the class labels (NPZ: by default the array y).
        Rows without a label are left out, with a warning.
    attributes : path-like, DataFrame or mapping, optional
        Class descriptions; text is what `semfs.attributes.attributes_of` takes: a file, or
        "names", or "cl". By default those of the NPZ file.
    layer : str, optional
        Layer of an AnnData file to take instead of ``X``; ``"raw"`` takes ``raw.X``.
    unseen : array-like of class labels, default=()
        Unseen classes. By default those that the NPZ file names, if any.
    drop : sequence of str, default=()
        Columns that are no features. Columns that hold no numbers are left out in any
        case, with a warning, and so is an index that pandas stored.
    normalize : {"log1p"}, optional
        Take log(1 + counts per 10⁴ of their row) instead of the counts that are stored.
    """
    path = open_existing(path)
    source: Any = open_blocks(path, label, key=layer, drop=drop, normalize=normalize)
    table, hidden = class_table(path, attributes, source.labels.classes)
    unseen = unseen if len(unseen) or label else hidden
    labels = source.labels.align_to(table.index)
    kept = labels.codes >= 0
    with file_errors(path, "data set"):
        X = source.load()[0]
    if not kept.all():
        message = f"{path}: {(~kept).sum()} rows without a label are left out."
        warnings.warn(message, stacklevel=2)
        X, labels = X[kept], labels.used()
    if not np.isfinite(X.data if sparse.issparse(X) else X).all():
        check_all_finite(X, source.feature_names, str(path))
    return ZeroShotDataset(path.stem, X, labels.array(), table, unseen, source.feature_names)


def as_frame(attributes: Any, classes: Sequence = ()) -> Any:
    """Class descriptions, by `attributes_of` or in any accepted form, as a frame."""
    if isinstance(attributes, (str, Path)):
        return attributes_of(classes, attributes)
    table = as_attribute_table(attributes)
    pandas = import_optional("pandas", "data", what="A data set")
    return pandas.DataFrame(table.values, index=table.classes, columns=table.names)


def load_npz(path: Any) -> ZeroShotDataset:
    """Return the data set stored in one ``.npz`` file, with the arrays

    - ``X`` (n, d), or ``X_data``, ``X_indices``, ``X_indptr``, ``X_shape`` (CSR);
    - ``y`` (n,), 0-based class ids, or class names;
    - ``A`` (C, m), the attributes of each class;
    - ``classes`` (C,), optional: class names. Without it labels are the ids;
    - ``unseen``, optional: ids or names of the unseen classes;
    - ``attribute_names`` or ``attributes`` (m,) and ``feature_names`` (d,), optional.

    Other arrays are left alone. Nothing is unpickled. Rows of id -1 have no label and are left
    out.

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
    return load_table(path)


def npz_classes(path: Path) -> tuple[Any, list]:
    """Return the attributes of an ``.npz`` file (a frame, or None), and its unseen classes."""
    arrays = read_npz(path, ("A", "classes", "unseen", "attribute_names", "attributes"))
    table, A = None, arrays.get("A")
    classes = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else None
    if A is not None:
        check_matrix(f"{path}: A", A.shape, A.dtype)
        classes = list(range(len(A))) if classes is None else classes
        if len(classes) != len(A):
            found = f"{len(classes)} names but the attribute table has {len(A)} rows"
            raise FileError(f"{path}: classes has {found}. Store one for each, in order.")
        names = arrays.get("attribute_names", arrays.get("attributes"))
        if names is None or names.shape != A.shape[1:]:
            names = np.array([f"a{j}" for j in range(A.shape[1])])
        pandas = import_optional("pandas", "data", what="A data set")
        columns = [str(name) for name in names.tolist()]
        table = pandas.DataFrame(A.astype(np.float64), index=classes, columns=columns)
    unseen = named(f"{path}: unseen", arrays.get("unseen", np.zeros(0, dtype=int)), classes)
    return table, unseen.classes


def class_table(
    path: Any, attributes: Any, classes: Sequence, *, needed: bool = True
) -> tuple[Any, list]:
    """Return descriptions of the classes in a data file, and the unseen classes it names.

    ``attributes`` is what `as_frame` takes; by default an NPZ file brings its own. The word
    "labels" means none (None), unless they are ``needed``.
    """
    own, unseen = npz_classes(path) if str(path).lower().endswith(".npz") else (None, [])
    alone = str(attributes).lower() == "labels" and not Path(attributes).exists()
    if attributes is not None and not alone:
        return as_frame(attributes, classes), unseen
    if alone:  # where descriptions are needed, each class is described by itself
        return (as_frame(dict(zip(classes, np.eye(len(classes))))) if needed else None), unseen
    if own is None:
        raise FileError(
            f"{path} has no class attributes (NPZ: array A). Give a table (--attributes); or "
            "'names', what classes are called, 'cl', what the Cell Ontology says, or 'labels'."
        )
    return own, unseen


def read_features(source: Any, n_rows: int | None = None) -> Any:
    """Return a matrix of features (n, d) from a file, with as many rows as expected.

    Parameters
    ----------
    source : path-like or array of shape (n, d)
        ``.npy`` (memory-mapped), ``.mat`` (version 5 or 7.3) or what `SemFS.fit` reads:
        ``.npz``, ``.h5``, tables, … The matrix is called X (in ``.mat`` files also features),
        or the only one. That of a ``.mat`` file may have one column per sample.
    n_rows : int, optional
        The number of rows that is right.
    """
    X, name = source, "features"
    if not (isinstance(source, np.ndarray) or sparse.issparse(source)):
        path = open_existing(source)
        X, name = _read(path), str(path)
        if path.suffix == ".mat" and X.ndim == 2 and X.shape[0] != n_rows == X.shape[1]:
            X = X.T
    check_matrix(name, X.shape, X.dtype)
    if n_rows is not None and X.shape[0] != n_rows:
        turned = " It seems transposed." if X.shape[1] == n_rows else ""
        found = f"{name} has {X.shape[0]} rows, expected {n_rows}"
        raise FileError(f"{found}: one per sample, in the order of the labels.{turned}")
    return np.asarray(X).astype(np.float32) if X.dtype == np.float16 else X


def _read(path: Path) -> Any:
    if path.suffix.lower() == ".npy":
        return read_npy(path)
    if path.suffix.lower() != ".mat":
        return as_plain(path).X
    with path.open("rb") as file:
        if _HDF5_SIGNATURE in file.read(520):  # version 7.3
            return group_reader(path, None).load()
    names = names_in_mat(path)
    usual = [name for name in ("X", "features") if name in names]
    if not usual and len(names) != 1:
        found = ", ".join(names[:8])
        raise FileError(f"{path} holds {len(names)} arrays ({found}). Call the features X.")
    return read_mat(path, [*usual, *names][0])
