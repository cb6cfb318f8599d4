"""Features from a file the user names, one row per sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.arrays import read_npy, read_npz
from semfs.datasets.matlab import names_in_h5, names_in_mat, read_h5, read_mat
from semfs.files import FileError, open_existing

__all__ = ["read_features"]

_USUAL = ("X", "features", "feats", "data", "embeddings")


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
