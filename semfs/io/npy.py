"""NumPy's ``.npy`` files: one array, memory-mapped."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from semfs._typing import PathLike
from semfs.io.reader import ArrayReader, Reader, Request
from semfs.io.safety import FileError, file_errors, open_existing

#: The last code point of Unicode. numpy accepts larger ones, Python's str crashes on them.
LAST_CODE_POINT = 0x10FFFF


def open_npy(path: Path, request: Request) -> tuple[Reader, None]:
    """Return a reader of the matrix. Labels are never in the same file."""
    request.refuse_key(path)
    return ArrayReader(partial(read_npy, path), path), None


def read_npy(path: PathLike) -> npt.NDArray[Any]:
    """Return the array of a ``.npy`` file, memory-mapped."""
    path = open_existing(path)
    with file_errors(path, ".npy"), np.errstate(over="ignore"):
        array = np.lib.format.open_memmap(path, mode="r")
        check_text(f"{path}", array)
        return array


def check_text(where: str, array: npt.NDArray[Any]) -> None:
    """Raise if a text array contains invalid Unicode code points."""
    if array.dtype.kind != "U" or not array.size:
        return
    flat = np.ascontiguousarray(array).reshape(-1)
    codes = flat.view(f"{array.dtype.byteorder}u4")
    if codes.max() > LAST_CODE_POINT:
        raise FileError(
            f"{where} holds invalid Unicode code points; the file is damaged. Copy it again."
        )
