"""Feature matrices from files, and checks that they fit their labels."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from semfs._typing import Matrix, PathLike
from semfs.io.hdf5 import group_reader
from semfs.io.mat import names_in_mat, read_mat
from semfs.io.npy import read_npy
from semfs.io.reader import check_matrix
from semfs.io.safety import FileError, open_existing
from semfs.rows import open_unlabeled

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"
#: Bytes in which the signature of a MATLAB file of version 7.3 lies: after 512 of a header.
_START = 512 + len(_HDF5_SIGNATURE)
#: Names of the matrix of features in MATLAB files.
_USUAL_NAMES = ("X", "features")


def read_features(source: PathLike | Matrix, n_rows: int | None = None) -> Matrix:
    """Read a feature matrix from a file and check its number of rows.

    Parameters
    ----------
    source : path-like or array of shape (n, d)
        An array, a ``.npy`` file (memory-mapped), a ``.mat`` file (version 5 or 7.3), or a file
        that `SemFS.fit` reads (``.npz``, ``.h5``, tables, …). The matrix must be named X (in
        ``.mat`` files, "features" is also accepted) or be the only one in the file. In ``.mat``
        files, a matrix with one column per sample is transposed.
    n_rows : int, optional
        The expected number of samples. An error is raised if the matrix has another number.
    """
    X: Any  # dense or sparse, of any type of numbers until it is checked
    if isinstance(source, np.ndarray) or sparse.issparse(source):
        X = source
        name = "features"
    else:
        path = open_existing(source)
        X = _read_matrix(path)
        name = str(path)
        # A square matrix is taken as it is: its shape does not tell.
        is_turned = X.ndim == 2 and X.shape[0] != n_rows and X.shape[1] == n_rows
        if path.suffix == ".mat" and is_turned:
            X = X.T
    check_matrix(name, X.shape, X.dtype)
    if n_rows is not None and X.shape[0] != n_rows:
        hint = " It seems transposed." if X.shape[1] == n_rows else ""
        raise FileError(
            f"{name} has {X.shape[0]} rows, expected {n_rows}: one per sample, in the order of "
            f"the labels.{hint}"
        )
    if X.dtype == np.float16:  # which no linear algebra computes with
        return np.asarray(X).astype(np.float32)
    return X


def features_or_none(source: PathLike | Matrix | None, n_rows: int) -> Matrix:
    """Return the features of all samples, or a matrix without columns if there is no source."""
    if source is None:
        return np.empty((n_rows, 0))
    return read_features(source, n_rows)


def check_columns(path: Path, what: str, matrix: npt.NDArray, n: int, of: str) -> None:
    """Raise unless a matrix (m, n') has one column for each of n items."""
    if matrix.shape[1] == n:
        return
    hint = " It seems transposed." if matrix.shape[0] == n else ""
    raise FileError(
        f"{path}: {what} has shape {matrix.shape}, but there are {n} "
        f"{of}. One column for each was expected.{hint}"
    )


def _read_matrix(path: Path) -> Matrix:
    """Return the matrix in a file as it is stored."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return read_npy(path)
    if suffix == ".mat":
        return _read_mat_matrix(path)
    return open_unlabeled(path).reader.load()


def _read_mat_matrix(path: Path) -> Matrix:
    """Return the feature matrix in a MATLAB file."""
    with path.open("rb") as file:
        start = file.read(_START)
    if _HDF5_SIGNATURE in start:  # version 7.3
        return group_reader(path, None).load()
    names = names_in_mat(path)
    for name in _USUAL_NAMES:
        if name in names:
            return read_mat(path, name)
    if len(names) != 1:
        found = ", ".join(names[:8])
        raise FileError(
            f"{path} holds {len(names)} arrays ({found}). Store the "
            "feature matrix under the name X."
        )
    return read_mat(path, names[0])
