"""MATLAB files, version 5 and 7.3 (HDF5), and HDF5 data sets, read without trust."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.mat5 import names_in_mat5, read_mat5
from semfs.files import FileError, need, open_existing, reading
from semfs.rows.readers import checked_dataset

__all__ = ["names_in_h5", "names_in_mat", "read_h5", "read_mat", "texts"]

_HDF5_SIGNATURE = b"\x89HDF\r\n\x1a\n"


def read_mat(path: Any, names: Iterable[str]) -> dict[str, Any]:
    """Return the variables among ``names`` that a ``.mat`` file holds, as MATLAB shows them.

    Numeric arrays have MATLAB's orientation in both versions; cell arrays of text are lists
    of str. Anything else (structs, objects, functions) is refused.
    """
    path = open_existing(path)
    with reading(path, ".mat"):
        if _is_hdf5(path):
            return _read_hdf5(path, list(names), matlab=True)
        found = read_mat5(path, list(names))
        return {k: texts(v) if isinstance(v, list) else v for k, v in found.items()}


def names_in_mat(path: Any) -> list[str]:
    """Return the names of the variables of a ``.mat`` file."""
    path = open_existing(path)
    with reading(path, ".mat"):
        if _is_hdf5(path):
            return names_in_h5(path)
        return names_in_mat5(path)


def read_h5(path: Any, name: str) -> np.ndarray:
    """Return a numeric data set of an HDF5 file, in its own orientation."""
    path = open_existing(path)
    with reading(path, "HDF5"):
        found = _read_hdf5(path, [name], matlab=False)
        if name not in found:
            names = names_in_h5(path)
            raise FileError(f"{path} has no data set {name!r}; found {', '.join(names)}.")
        return found[name]


def names_in_h5(path: Any) -> list[str]:
    """Return the names of the top-level data sets of an HDF5 file."""
    path = open_existing(path)
    h5py = need("h5py", "data", what=str(path))
    with reading(path, "HDF5"), h5py.File(path, "r") as file:
        plain = (h5py.HardLink,)
        links = {name: file.get(name, getlink=True) for name in file}
        return [
            name
            for name, link in links.items()
            if isinstance(link, plain) and isinstance(file[name], h5py.Dataset)
        ]


def texts(value: Any) -> list[str]:
    """Return the strings of a cell array, or of nested arrays of strings, in order."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, np.ndarray) and value.dtype.kind == "U":
        return [str(item) for item in value.reshape(-1)] or [""]
    if isinstance(value, (list, np.ndarray)):
        return [text for item in np.asarray(value, dtype=object).flat for text in texts(item)]
    raise FileError(f"text was expected, found {type(value).__name__}.")


def _is_hdf5(path: Path) -> bool:
    with path.open("rb") as file:
        start = file.read(520)
    return start[:8] == _HDF5_SIGNATURE or start[512:520] == _HDF5_SIGNATURE


# ---- HDF5, and version 7.3 on top of it ------------------------------------------------------


def _read_hdf5(path: Path, names: list[str], *, matlab: bool) -> dict[str, Any]:
    h5py = need("h5py", "data", what=str(path))
    with h5py.File(path, "r") as file:
        present = [name for name in names if name in file]
        return {name: _read_dataset(path, file, name, matlab) for name in present}


def _read_dataset(path: Path, file: Any, name: str, matlab: bool) -> Any:
    dataset = checked_dataset(path, file, name)
    kind = dataset.dtype.kind
    if kind in "fiub":
        if matlab and _matlab_class(dataset) == "char":
            return np.array([_chars(dataset[()])])
        return dataset[()].T if matlab else dataset[()]
    if matlab and kind == "O":
        return _cell_texts(path, file, name, dataset)
    raise FileError(f"{path}: {name} has type {dataset.dtype}; numbers were expected.")


def _matlab_class(dataset: Any) -> str:
    value = dataset.attrs.get("MATLAB_class", b"")
    return value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)


def _cell_texts(path: Path, file: Any, name: str, dataset: Any) -> list[str]:
    """Strings of a cell array: references to arrays of character codes, or to such cells."""
    h5py = need("h5py", "data", what=str(path))
    if h5py.check_dtype(ref=dataset.dtype) is not h5py.Reference:
        raise FileError(f"{path}: {name} has type {dataset.dtype}; text was expected.")
    out = []
    for reference in dataset[()].T.flat:
        target = file[reference] if reference else None
        # xlsa17 nests each name in a cell of its own
        if target is not None and target.dtype.kind == "O" and target.size == 1:
            target = file[target[()].flat[0]]
        if target is None or target.dtype.kind not in "iu" or target.size > 10_000:
            raise FileError(f"{path}: {name} is a cell array of something other than text.")
        out.append(_chars(target[()]))
    return out


def _chars(codes: np.ndarray) -> str:
    return "".join(chr(int(code)) for code in codes.T.flat)
