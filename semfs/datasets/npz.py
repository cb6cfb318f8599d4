"""Data sets in one ``.npz`` file: X, y, A, classes, unseen."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.arrays import names_in_npz, read_npz
from semfs.datasets.base import ZeroShotDataset, import_pandas
from semfs.datasets.labels import Labels
from semfs.files import FileError, open_existing, reading

__all__ = ["load_npz", "read_matrix", "read_parts"]

_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")
_OPTIONAL = ("classes", "unseen", "feature_names", "attribute_names", "attributes")


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
        double precision is memory-mapped.
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
        parts = read_parts(path, label=label, table=table)
        return ZeroShotDataset(
            name or path.stem,
            read_matrix(path),
            parts.labels.values(),
            parts.attributes,
            parts.unseen if unseen is None else unseen,
            parts.feature_names,
        )


@dataclass(frozen=True, eq=False)
class NpzParts:
    """All of a data set in an .npz file but the features."""

    labels: Labels
    attributes: Any  # frame, or None
    unseen: list
    feature_names: np.ndarray | None


def read_parts(
    path: Path, *, label: str = "y", table: str = "A", features: bool = True
) -> NpzParts:
    """Return labels, attributes and names; ``features=True`` requires a table."""
    arrays = read_npz(path, (label, table, *_OPTIONAL))
    frame, classes = None, None
    if features or table in arrays:
        A = _table(path, arrays, table)
        classes = _class_names(path, arrays, len(A))
        columns = _attribute_names(arrays, A.shape[1])
        frame = import_pandas().DataFrame(A, index=classes, columns=columns)
    elif "classes" in arrays:
        classes = _class_names(path, arrays, arrays["classes"].size)
    y = _require(path, arrays, label).reshape(-1)
    unseen = arrays.get("unseen", np.zeros(0, dtype=int))
    return NpzParts(
        _labels(path, label, y, classes),
        frame,
        _labels(path, "unseen", unseen, classes).values().tolist(),
        arrays.get("feature_names"),
    )


def read_matrix(path: Path) -> Any:
    """Return X, dense or CSR."""
    return _matrix(path, read_npz(path, ("X", *_SPARSE)))


def _require(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    if name not in arrays:
        found = sorted(names_in_npz(path))
        raise FileError(
            f"{path} has no array {name!r}; found {', '.join(found) or 'nothing'}. "
            "A data set needs X (or X_data, X_indices, X_indptr, X_shape), y and A."
        )
    return arrays[name]


def _matrix(path: Path, arrays: dict[str, np.ndarray]) -> Any:
    if "X" not in arrays and "X_data" in arrays:
        data, indices, indptr, shape = (_require(path, arrays, part) for part in _SPARSE)
        X = sparse.csr_array((_widened(data), indices, indptr), shape=tuple(shape.tolist()))
        X.check_format(full_check=True)  # an index out of range would crash later, in C
        return X
    X = _require(path, arrays, "X")
    if X.ndim != 2 or X.dtype.kind not in "fiub":
        raise FileError(
            f"{path}: X has shape {X.shape} and type {X.dtype}; a matrix of numbers with one "
            "row per sample was expected."
        )
    return _widened(X)


def _widened(X: np.ndarray) -> np.ndarray:
    """Half precision is for storage, not for sums."""
    return np.asarray(X).astype(np.float32) if X.dtype == np.float16 else X


def _table(path: Path, arrays: dict[str, np.ndarray], name: str) -> np.ndarray:
    A = _require(path, arrays, name)
    if A.ndim != 2 or A.dtype.kind not in "fiub":
        raise FileError(
            f"{path}: {name} has shape {A.shape} and type {A.dtype}; numbers with one row per "
            "class and one column per attribute were expected."
        )
    return A.astype(np.float64)


def _class_names(path: Path, arrays: dict[str, np.ndarray], n_classes: int) -> list:
    if "classes" not in arrays:
        return list(range(n_classes))
    names = arrays["classes"].reshape(-1).tolist()
    if len(names) != n_classes:
        raise FileError(
            f"{path}: classes has {len(names)} names but the attribute table has {n_classes} "
            "rows. Store one row per class, in the order of classes."
        )
    repeated = [n for n in dict.fromkeys(names) if names.count(n) > 1]
    if repeated:
        raise FileError(f"{path}: classes has {repeated[0]!r} more than once.")
    return names


def _attribute_names(arrays: dict[str, np.ndarray], m: int) -> list[str]:
    for key in ("attribute_names", "attributes"):
        names = arrays.get(key)
        if names is not None and names.shape == (m,) and len(set(names.tolist())) == m:
            return [str(n) for n in names.tolist()]
    return [f"a{j}" for j in range(m)]


def _labels(path: Path, what: str, values: np.ndarray, classes: list | None) -> Labels:
    """Class labels of ids (0-based positions in classes) or of names."""
    values = np.asarray(values).reshape(-1)
    if classes is None or (values.dtype.kind not in "iu" and not _whole(values)):
        return Labels.of(values)
    ids = values.astype(np.int64)
    if ids.size and (ids.min() < 0 or ids.max() >= len(classes)):
        bad = ids.min() if ids.min() < 0 else ids.max()
        hint = " Ids start at 0; subtract 1." if ids.min() == 1 and bad == len(classes) else ""
        raise FileError(
            f"{path}: {what} holds class id {bad}, but there are {len(classes)} classes, "
            f"with ids 0 to {len(classes) - 1}.{hint}"
        )
    return Labels.coded(ids, classes)


def _whole(values: np.ndarray) -> bool:
    return values.dtype.kind == "f" and bool((values == np.floor(values)).all())
