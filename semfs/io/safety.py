"""Files: others' are checked before they are believed, ours appear whole or not at all."""

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
from typing import Any

from semfs.system import memory_limit, size_text

#: Beyond this size, data that expand more than SUSPICIOUS_RATIO times are refused.
LARGE = 2**28
SUSPICIOUS_RATIO = 200
# How files begin, and the endings they should have.
_SIGNATURES = {
    b"\x93NUMPY": (".npy",),
    b"PK\x03\x04": (".npz", ".xlsx", ".xlsm", ".zip"),
    b"PAR1": (".parquet", ".pq"),
    b"\x89HDF\r\n\x1a\n": (".h5ad", ".h5", ".hdf5", ".hdf", ".mat"),
    b"ARROW1": (".feather", ".arrow"),
    b"\x1f\x8b": (".gz", ".tgz"),
}
DAMAGED = "It may be truncated or damaged: copy or download it again."
AS_TABLE = "give it the ending .csv if it is a table"
_BINARY = {ending for endings in _SIGNATURES.values() for ending in endings}


class FileError(ValueError):
    """A file does not hold what it should; the message names it and says what to do.

    It is one line without control characters, and not endless, also where it quotes the file.
    """

    def __init__(self, message: str) -> None:
        if len(message) > 800:
            message = f"{message[:600]} … {message[-150:]}"
        super().__init__("".join(c if c.isprintable() else " " for c in message))


def open_existing(path: Any) -> Path:
    """Return the path of an existing file, or say what is there instead."""
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(f"the path of a file was expected, got {type(path).__name__}.")
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(f"{path} is a folder; a file was expected.")
    if not path.exists():
        near = [other.name for other in path.parent.glob(f"{path.stem}.*")][:3]
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise FileNotFoundError(f"{path} does not exist.{hint}")
    return path


def stored_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; links are not followed."""
    if not path.is_dir():
        return path.stat().st_size
    folders = os.walk(path)
    return sum(
        os.lstat(os.path.join(top, name)).st_size for top, _, names in folders for name in names
    )


def unpacked(path: Path) -> Any:
    """Return a file that is open for reading, unpacked if its ending is .gz or .bz2."""
    kinds: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}
    return kinds.get(path.suffix.lower(), open)(path, "rb")


@contextlib.contextmanager
def file_errors(path: Path, kind: str) -> Iterator[None]:
    """Turn whatever a parser raises on a broken file into one `FileError`."""
    try:
        yield
    except (FileError, FileNotFoundError, IsADirectoryError, PermissionError, ImportError):
        raise
    except MemoryError as error:
        raise FileError(f"{path}: not enough memory to read it.") from error
    except Exception as error:
        if getattr(error, "errno", None) == errno.ENOSPC:
            full = f"the disk of {tempfile.gettempdir()}, to which it is unpacked, is full"
            advice = "Free some space, or set TMPDIR to another folder."
            raise FileError(f"{path}: {full}. {advice}") from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        kind = "Zarr" if path.is_dir() else kind
        wrong = f"{path} is not a readable {kind} file ({reason})"
        raise FileError(f"{wrong}. {_remedy(path)}") from error


def _remedy(path: Path) -> str:
    """What is wrong with a file that could not be read, as far as its first bytes tell."""
    ending = path.suffix.lower()
    if not path.is_file():  # Zarr is a folder
        return DAMAGED
    with path.open("rb") as file:
        start = file.read(256)
    for signature, endings in _SIGNATURES.items():
        if start.startswith(signature) and ending not in endings:
            return f"It looks like a {' or '.join(endings[:2])} file: give it that ending."
    if ending not in _BINARY:
        return "Look at that place, or at the encoding (UTF-8)."
    if start and all(byte >= 32 or byte in b"\t\r\n" for byte in start):
        advice = {".gz": "leave out .gz"}
        return f"It looks like text: {advice.get(ending, AS_TABLE)}."
    return DAMAGED


def check_apart(outputs: Iterable[Any], inputs: Iterable[Any]) -> None:
    """Raise if a file cannot be written there, or is an input; words are passed over."""
    read, written = [path for path in inputs if path and os.path.isfile(path)], set[str]()
    for path in filter(None, outputs):
        place = os.path.realpath(path)
        lost = os.path.exists(place) and any(os.path.samefile(place, other) for other in read)
        if lost or place in written:
            raise ValueError(f"{path} would overwrite an input or output. Choose another name.")
        taken = [folder for folder in Path(path).parents if folder.is_file()]
        if taken or os.path.isdir(path):
            wanted = "file; a folder (a name without ending)" if taken else "folder; a file"
            where = f"{[*taken, path][0]} is a {wanted} was expected"
            raise ValueError(f"{where}. Choose another name.")
        written.add(place)


@contextlib.contextmanager
def atomic_write(path: Any) -> Iterator[Path]:
    """A name beside ``path``; what is written there is moved to it if the block succeeds."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.stem}.{os.getpid()}.part{path.suffix}")
    try:
        yield beside
        os.replace(beside, path)
    finally:
        if beside.is_dir():
            shutil.rmtree(beside, ignore_errors=True)
        beside.unlink(missing_ok=True)


def check_memory(what: str, size: int, remedy: str) -> None:
    """Refuse what takes more memory than there is."""
    if size > memory_limit():
        takes = f"takes {size_text(size)}, more than this machine's memory"
        raise FileError(f"{what} {takes}. {remedy}")


def check_declared_size(
    path: Path, what: str, declared: int, stored: int, *, held: bool = True
) -> None:
    """Refuse data that declare more bytes than their file has paid for, or memory can hold.

    Up to LARGE is anybody's; beyond, a byte of the file buys SUSPICIOUS_RATIO. What is not
    ``held`` but read in blocks may be larger than memory.
    """
    if held and declared > memory_limit():
        raise FileError(
            f"{path}: {what} declares {size_text(declared)}, more than this machine's memory "
            f"({size_text(memory_limit())}). Store it as .npy, which is read in blocks."
        )
    if declared > max(LARGE, stored * SUSPICIOUS_RATIO):
        raise FileError(
            f"{path}: {what} would expand from {size_text(stored)} to {size_text(declared)}, "
            "as a zip bomb does. If you trust the file, store it uncompressed (numpy.savez)."
        )


def check_archive(path: Path, members: Iterable[zipfile.ZipInfo]) -> None:
    """Refuse members of a zip archive that are too large all together."""
    total = sum(item.file_size for item in members)
    check_declared_size(path, "its content", total, path.stat().st_size)
