"""Checks of files that are read, and atomic writing of files.

Nothing that a file declares (sizes, shapes, lengths) is trusted before it has been compared
with the stored bytes.
"""

from __future__ import annotations

import bz2
import contextlib
import errno
import gzip
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from semfs.system import memory_limit, size_text

if TYPE_CHECKING:
    # It imports numpy, and `semfs --help` loads this module.
    from semfs._typing import PathLike

#: Bytes up to which the declared size of an array is not questioned (256 MB).
LARGE = 2**28
#: Beyond `LARGE`, an array may declare this many bytes for each byte stored. Sparse counts
#: shrink up to 50 times in practice.
SUSPICIOUS_RATIO = 200
#: Characters of the longest error message; longer ones lose their middle.
LONGEST_MESSAGE = 800
#: First bytes of the file formats, and the suffixes such files should have.
_SIGNATURES = {
    b"\x93NUMPY": (".npy",),
    b"PK\x03\x04": (".npz", ".xlsx", ".xlsm", ".zip"),
    b"PAR1": (".parquet", ".pq"),
    b"\x89HDF\r\n\x1a\n": (".h5ad", ".h5", ".hdf5", ".hdf", ".mat"),
    b"ARROW1": (".feather", ".arrow"),
    b"\x1f\x8b": (".gz", ".tgz"),
}
_BINARY = {suffix for suffixes in _SIGNATURES.values() for suffix in suffixes}
DAMAGED = "It may be truncated or damaged: copy or download it again."
AS_TABLE = "give it the ending .csv if it is a table"


class FileError(ValueError):
    """Raised if a file has wrong contents. The message names it and says what to do.

    The message is one line of printable characters and limited length, even if it quotes the
    file.
    """

    def __init__(self, message: str) -> None:
        if len(message) > LONGEST_MESSAGE:
            message = f"{message[:600]} … {message[-150:]}"
        # control characters of a file could command a terminal
        printable = [char if char.isprintable() else " " for char in message]
        super().__init__("".join(printable))


def open_existing(path: object) -> Path:
    """Return the path of an existing file, or raise an error that says what was found."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"the path of a file was expected, got {type(path).__name__}.")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder, but a file was expected.")
    if not path.exists():
        similar = [other.name for other in path.parent.glob(f"{path.stem}.*")][:3]
        hint = f" Did you mean {' or '.join(similar)}?" if similar else ""
        raise FileNotFoundError(f"{path} does not exist.{hint}")
    return path


def stored_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder without following links."""
    if not path.is_dir():
        return path.stat().st_size
    total = 0
    for folder, _, names in os.walk(path):
        for name in names:
            # the size of a link is that of its text
            total += os.lstat(os.path.join(folder, name)).st_size
    return total


def unpacked(path: Path) -> IO[bytes]:
    """Open a file for reading bytes, decompressed if its suffix is .gz or .bz2."""
    suffix = path.suffix.lower()
    if suffix == ".gz":
        return gzip.open(path, "rb")  # type: ignore[return-value]
    if suffix == ".bz2":
        return bz2.open(path, "rb")
    return path.open("rb")


@contextlib.contextmanager
def file_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on a broken file into one `FileError`.

    ``kind`` names the format in the message.
    """
    try:
        yield
    except (FileError, FileNotFoundError, IsADirectoryError, PermissionError, ImportError):
        raise
    except MemoryError as error:
        raise FileError(f"{path}: not enough memory to read it.") from error
    except Exception as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            raise FileError(
                f"{path}: the file is unpacked to "
                f"{tempfile.gettempdir()}, but that disk is full. Free "
                "some space, or set TMPDIR to another folder."
            ) from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        if path.is_dir():
            kind = "Zarr"
        raise FileError(
            f"{path} is not a readable {kind} file ({reason}). {_remedy(path)}"
        ) from error


def _remedy(path: Path) -> str:
    """Return advice on a file that could not be read, by its suffix and first bytes."""
    suffix = path.suffix.lower()
    if not path.is_file():  # Zarr is a folder
        return DAMAGED
    with path.open("rb") as file:
        start = file.read(256)
    # a healthy file with a wrong suffix is the commonest mistake
    for signature, suffixes in _SIGNATURES.items():
        if start.startswith(signature) and suffix not in suffixes:
            return (
                f"It looks like a {' or '.join(suffixes[:2])} file. If so, give it that ending."
            )
    if suffix not in _BINARY:
        return "Check this part of the file, and make sure that the encoding is UTF-8."
    is_text = all(byte >= 32 or byte in b"\t\r\n" for byte in start)
    if start and is_text:
        advice = "leave out .gz" if suffix == ".gz" else AS_TABLE
        return f"It looks like text: {advice}."
    return DAMAGED


def check_apart(outputs: Iterable[PathLike | None], inputs: Iterable[PathLike | None]) -> None:
    """Raise if an output would overwrite an input or another output, or cannot be a file.

    None and inputs that are not files (words such as "cl") are ignored.
    """
    read = [path for path in inputs if path and os.path.isfile(path)]
    written: set[str] = set()
    for path in outputs:
        if not path:
            continue
        target = os.path.realpath(path)
        exists = os.path.exists(target)
        # the same file may have several names
        overwrites = exists and any(os.path.samefile(target, other) for other in read)
        if overwrites or target in written:
            raise ValueError(
                f"{path} would overwrite an input or another output. Choose another name."
            )
        _check_can_be_file(Path(path))
        written.add(target)


def _check_can_be_file(path: Path) -> None:
    """Raise if the path is a folder, or one of its folders is a file."""
    for folder in path.parents:
        if folder.is_file():
            raise ValueError(
                f"{folder} is a file, but a folder was expected (a name "
                "without an ending). Choose another name."
            )
    if path.is_dir():
        raise ValueError(f"{path} is a folder, but a file was expected. Choose another name.")


@contextlib.contextmanager
def atomic_write(path: PathLike) -> Iterator[Path]:
    """Yield a temporary path, whose file is moved to ``path`` on success."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    # the process id: two processes may write the same file, the last one wins
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        if beside.is_dir():
            shutil.rmtree(beside, ignore_errors=True)
        beside.unlink(missing_ok=True)


def check_memory(what: str, size: int, remedy: str) -> None:
    """Raise if ``size`` bytes exceed the memory of this machine."""
    if size > memory_limit():
        raise FileError(
            f"{what} takes {size_text(size)}, more than this machine's memory. {remedy}"
        )


def check_declared_size(
    path: Path, what: str, declared: int, stored: int, *, held: bool = True
) -> None:
    """Raise if data declare far more bytes than are stored or than memory can hold.

    Declared sizes up to `LARGE` are accepted, and larger ones up to `SUSPICIOUS_RATIO` times
    the stored bytes. Data that are read in blocks (not ``held``) may exceed the memory.
    """
    if held and declared > memory_limit():
        raise FileError(
            f"{path}: {what} declares {size_text(declared)}, more than "
            f"this machine's memory ({size_text(memory_limit())}). Store "
            "it as .npy, which is read in blocks."
        )
    if declared > max(LARGE, stored * SUSPICIOUS_RATIO):
        raise FileError(
            f"{path}: {what} claims {size_text(declared)} but is stored "
            f"in {size_text(stored)}; it is not loaded. If you trust the "
            "file, store it uncompressed (numpy.savez)."
        )


def check_archive(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    """Raise if the members of a zip archive are too large in total."""
    total = sum(item.file_size for item in members)
    check_declared_size(path, "its content", total, path.stat().st_size)
