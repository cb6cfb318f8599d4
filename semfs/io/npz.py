"""NumPy's ``.npz`` files: several arrays in a zip archive, loaded into memory.

A data set has X (n, d), or the parts of a CSR matrix, and may have y (labels, or 0-based ids of
``classes``) and feature_names.
"""

from __future__ import annotations

import zipfile
from collections.abc import Hashable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from semfs._typing import PathLike
from semfs.io.labels_file import labels_in_file
from semfs.io.npy import check_text
from semfs.io.reader import NO_LABEL_TEXTS, Reader, Request
from semfs.io.safety import FileError, check_archive, file_errors, open_existing
from semfs.io.sparse import array_reader
from semfs.labels import Labels
from semfs.validation import check_distinct

#: Arrays that together are a CSR matrix.
_SPARSE = ("X_data", "X_indices", "X_indptr", "X_shape")


def open_npz(path: Path, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of X, or of the array ``request.key``, and the labels (default: y)."""
    labels = None
    if request.y is None or request.names_labels_in(names_in_npz(path)):
        labels = npz_labels(path, request.name or "y", request.no_label)
    reader = _npz_reader(path, request.key or "X")
    reader.label = None if labels is None else request.name
    return reader, labels


def _npz_reader(path: Path, key: str) -> Reader:
    """Return a reader of one matrix, with the array feature_names if present."""
    arrays = read_npz(path, [key, "feature_names"])
    # without X itself, look for the parts of a sparse matrix
    if key in arrays:
        reader = array_reader(arrays[key], path)
    else:
        reader = array_reader(_sparse_matrix(path, key), path)
    names = arrays.get("feature_names")
    if names is None:
        return reader
    if names.shape != (reader.n_features,):
        raise FileError(
            f"{path}: X has {reader.n_features} columns, but "
            f"feature_names has {names.size} names."
        )
    reader.feature_names = [str(name) for name in names.tolist()]
    return reader


def _sparse_matrix(path: Path, name: str) -> sp.csr_array:
    """Return the CSR matrix stored as X_data, X_indices, X_indptr and X_shape."""
    arrays = read_npz(path, _SPARSE)
    if name != "X" or set(arrays) != set(_SPARSE):
        raise FileError(
            f"{path} has no array {name!r}. Found: "
            f"{', '.join(names_in_npz(path))}. A matrix is stored as 'X' "
            "or, if sparse, as X_data, X_indices, X_indptr and X_shape."
        )
    parts = (arrays["X_data"], arrays["X_indices"], arrays["X_indptr"])
    with file_errors(path, "data set"):
        return sp.csr_array(parts, shape=arrays["X_shape"].tolist())


def names_in_npz(path: Path) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file."""
    with file_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        return sorted(name.removesuffix(".npy") for name in archive.namelist())


def read_npz(path: PathLike, names: Iterable[str] | None = None) -> dict[str, npt.NDArray[Any]]:
    """Return those of the arrays ``names`` that an ``.npz`` file has (None means all)."""
    path = open_existing(path)
    with file_errors(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = {item.filename.removesuffix(".npy"): item for item in archive.infolist()}
        if names is None:
            wanted = list(members)
        else:
            wanted = [name for name in names if name in members]
        # sizes as declared in the archive, before anything is decompressed
        check_archive(path, [members[name] for name in wanted])
        return {name: _read_member(path, archive, members[name]) for name in wanted}


def _read_member(
    path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo
) -> npt.NDArray[Any]:
    """Return an array of an archive. Raise for pickled objects."""
    with archive.open(item) as file:
        try:
            array = np.lib.format.read_array(file, allow_pickle=False)
        except ValueError as error:
            # numpy's message is about allow_pickle, which we do not offer
            if "allow_pickle" not in str(error):
                raise
            raise FileError(
                f"{path}: {item.filename} holds pickled Python objects, "
                "which are refused because reading them can run code. "
                "Save array.astype(str) or array.astype(float) instead."
            ) from error
        file.read()  # to the end, where zipfile compares the checksum
    check_text(f"{path}: array {item.filename.removesuffix('.npy')!r}", array)
    return array


def npz_labels(path: Path, name: str, no_label: Iterable[str] = NO_LABEL_TEXTS) -> Labels:
    """Return the labels in an array: names, or 0-based ids in the array ``classes``."""
    arrays = read_npz(path, (name, "classes"))
    if name not in arrays:
        found = ", ".join(names_in_npz(path))
        expected = ""
        if name == "y":
            expected = (
                " Expected arrays: X (samples × features), y (the class "
                "of each sample) and, if classes are described, A "
                "(classes × attributes). To use other names, set label "
                "and layer."
            )
        raise FileError(f"{path} has no array {name!r}. Found: {found}.{expected}")
    classes = arrays["classes"].reshape(-1).tolist() if "classes" in arrays else None
    labels = named(f"{path}: {name}", arrays[name], classes)
    return labels_in_file(labels, f"{path}: {name}", no_label)


def named(where: str, values: npt.NDArray[Any], classes: list[Hashable] | None) -> Labels:
    """Return labels stored as names, or as 0-based ids of ``classes`` (-1 is unlabeled).

    ``where`` names the array in messages.
    """
    values = values.reshape(-1)
    if classes is None or values.dtype.kind not in "iuf":
        return Labels.of(values).strip_blank()
    # ids that a program stored as floats are whole numbers
    ids = values.astype(np.int64)
    if (ids != values).any():
        return Labels.of(values).strip_blank()
    check_distinct(classes, f"{where}: classes has {{}} more than once.", FileError)
    # -1 stands for no label
    lowest = int(ids.min(initial=0))
    highest = int(ids.max(initial=0))
    if lowest < -1 or highest >= len(classes):
        wrong = lowest if lowest < -1 else highest
        one_based = ids.min() == 1 and highest == len(classes)
        hint = " Ids start at 0, so subtract 1." if one_based else ""
        raise FileError(
            f"{where} holds class id {wrong}, but there are "
            f"{len(classes)} classes, with ids 0 to "
            f"{len(classes) - 1}.{hint}"
        )
    return Labels(classes, ids.astype(np.int32)).strip_blank()
