"""Numpy's own files, read without trust.

Nothing is ever unpickled, and sizes are checked before memory is taken.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from semfs.files import FileError, check_declared_size, in_bytes, open_existing, reading

__all__ = ["names_in_npz", "read_npy", "read_npz"]


def read_npy(path: Any, *, mmap: bool = True) -> np.ndarray:
    """Return the array of a ``.npy`` file, memory-mapped read-only unless told otherwise."""
    path = open_existing(path)
    with reading(path, ".npy"):
        if path.stat().st_size == 0:
            raise FileError(f"{path} is empty.")
        with path.open("rb") as file:
            shape, _, dtype = _npy_header(file, path, path.name)
            need = file.tell() + math.prod(shape) * dtype.itemsize
        size = path.stat().st_size
        if need > size:
            raise FileError(
                f"{path} is truncated: {in_bytes(need)} expected, {in_bytes(size)} found. Copy "
                "or download it again."
            )
        empty = math.prod(shape) == 0  # nothing to map
        return np.load(path, mmap_mode="r" if mmap and not empty else None, allow_pickle=False)


def read_npz(path: Any, names: Iterable[str] | None = None) -> dict[str, np.ndarray]:
    """Return the arrays of an ``.npz`` file that are there among ``names`` (all if None).

    Arrays stored without compression are memory-mapped.
    """
    path = open_existing(path)
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        members = {_array_name(item.filename): item for item in archive.infolist()}
        if len(members) < len(archive.infolist()):
            raise FileError(f"{path} holds two arrays of the same name.")
        wanted = list(members) if names is None else [n for n in names if n in members]
        total = sum(members[name].file_size for name in wanted)
        check_declared_size(path, "its content", total, path.stat().st_size)
        return {name: _read_member(path, archive, members[name]) for name in wanted}


def names_in_npz(path: Any) -> list[str]:
    """Return the names of the arrays in an ``.npz`` file."""
    path = open_existing(path)
    with reading(path, ".npz"), zipfile.ZipFile(path) as archive:
        return [_array_name(filename) for filename in archive.namelist()]


def _array_name(filename: str) -> str:
    return filename.removesuffix(".npy")


def _read_member(path: Path, archive: zipfile.ZipFile, item: zipfile.ZipInfo) -> np.ndarray:
    name = _array_name(item.filename)
    check_declared_size(path, f"array {name!r}", item.file_size, item.compress_size)
    with archive.open(item) as file:
        shape, fortran, dtype = _npy_header(file, path, name)
        size = math.prod(shape) * dtype.itemsize
        start = file.tell()
        if start + size != item.file_size:
            raise FileError(
                f"{path}: array {name!r} says it has {in_bytes(start + size)} but "
                f"{in_bytes(item.file_size)} are stored. Write the file again."
            )
        if item.compress_type != zipfile.ZIP_STORED or size == 0:
            file.seek(0)
            array = np.lib.format.read_array(file, allow_pickle=False)
            file.read()  # to the end, where the checksum is compared
            return array
    offset = _data_offset(path, item) + start
    if offset + size > path.stat().st_size:
        raise FileError(f"{path} is truncated inside array {name!r}. Copy it again.")
    order: Any = "F" if fortran else "C"
    return np.memmap(path, dtype=dtype, mode="r", offset=offset, shape=shape, order=order)


def _npy_header(file: Any, path: Path, name: str) -> tuple[tuple[int, ...], bool, np.dtype]:
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
    elif version == (2, 0):
        shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
    else:
        raise FileError(
            f"{path}: array {name!r} has .npy version {version}; 1.0 or 2.0 wanted."
        )
    if dtype.hasobject:
        raise FileError(
            f"{path}: array {name!r} holds pickled Python objects, which are refused because "
            "reading them runs code. Save numbers or text: array.astype(str) or astype(float)."
        )
    if dtype.names is not None:
        raise FileError(f"{path}: array {name!r} is a record array; a plain one was expected.")
    return shape, fortran, dtype


def _data_offset(path: Path, item: zipfile.ZipInfo) -> int:
    """Where the bytes of a stored member begin: after its local header (30 bytes + names)."""
    with path.open("rb") as file:
        file.seek(item.header_offset)
        header = file.read(30)
    return (
        item.header_offset
        + 30
        + int.from_bytes(header[26:28], "little")
        + int.from_bytes(header[28:30], "little")
    )
