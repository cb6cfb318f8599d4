"""Downloads: checked by sha256, kept in a cache, continued where they broke off."""

from __future__ import annotations

import shutil
import sys
import tarfile
import urllib.error
import urllib.request
import zipfile
from pathlib import Path, PurePosixPath
from typing import Any

from semfs.datasets.apy import load_apy
from semfs.datasets.catalog import Entry, find_entry, find_files
from semfs.datasets.cifar10 import load_cifar10
from semfs.datasets.sun import load_sun
from semfs.datasets.xlsa17 import load_xlsa17
from semfs.files import FileError, cache_folder, check_declared_size, reading

__all__ = [
    "fetch_apy",
    "fetch_cifar10",
    "fetch_glove",
    "fetch_sun",
    "fetch_xlsa17",
    "unpack",
]

_CHUNK = 2**20


def fetch_cifar10(features: Any = None, *, attributes: Any, folder: Any = None) -> Any:
    """Download CIFAR-10 (170 MB) once, and return it as `load_cifar10` does.

    Parameters
    ----------
    features, attributes
        See `load_cifar10`; there are no word vectors in the download, so pass attributes.
    folder : path-like, optional
        Where to keep it; by default `semfs.files.cache_folder`.
    """
    root = _unpacked(find_entry("CIFAR10"), folder)
    return load_cifar10(root, features, attributes=attributes)


def fetch_glove(size: int = 100, *, folder: Any = None) -> Path:
    """Download GloVe word vectors (862 MB) once; returns the file for `encode_class_names`.

    Parameters
    ----------
    size : {50, 100, 200, 300}, default=100
        Numbers per word.
    folder : path-like, optional
        Where to keep it; by default `semfs.files.cache_folder`.
    """
    if size not in (50, 100, 200, 300):
        raise ValueError(f"size must be 50, 100, 200 or 300, got {size!r}.")
    return _unpacked(find_entry("GloVe"), folder) / f"glove.6B.{size}d.txt"


def fetch_xlsa17(name: str, split: str = "proposed", *, folder: Any = None) -> Any:
    """Return a data set of the xlsa17 benchmark if its files are found; else say how to get it.

    Nothing is downloaded: the authors' archive has no published checksum to hold it to.

    Parameters
    ----------
    name : str
        "AWA1", "AWA2", "CUB", "SUN", "APY" or "FLO".
    split : {"proposed", "standard"}, default="proposed"
        See `load_xlsa17`.
    folder : path-like, optional
        Where to look; by default in all `semfs.datasets.catalog.data_folders`.
    """
    return load_xlsa17(_found(find_entry(name), folder).parent, name.upper(), split)


def fetch_sun(features: Any = None, *, folder: Any = None) -> Any:
    """Return `load_sun` of the files if they are found; else say how to get them."""
    return load_sun(_found(find_entry("SUN attributes"), folder), features)


def fetch_apy(features: Any = None, *, folder: Any = None) -> Any:
    """Return `load_apy` of the files if they are found; else say how to get them."""
    return load_apy(_found(find_entry("aPY"), folder), features)


def _found(entry: Entry, folder: Any) -> Path:
    folders = None if folder is None else [Path(folder)]
    found = find_files(entry, folders)
    if found is None:
        raise FileNotFoundError(_instructions(entry, Path(folder or cache_folder())))
    return found


def _instructions(entry: Entry, folder: Path) -> str:
    wanted = " and ".join(str(folder / name) for name in entry.files[0])
    return (
        f"{entry.name} was not found and is not downloaded, because no checksum of the file is "
        f"published. To get it: {entry.source}; so that there are {wanted}."
    )


def _unpacked(entry: Entry, folder: Any) -> Path:
    """Download and unpack an entry's archive unless that has been done."""
    root = Path(folder or cache_folder())
    target = root / entry.name.lower()
    if not target.is_dir():
        if entry.url is None or entry.sha256 is None:
            raise FileNotFoundError(_instructions(entry, root))
        print(f"{entry.name}: {entry.what}. Licence: {entry.licence}.", file=sys.stderr)
        archive = _download(entry.url, entry.sha256, root)
        unpack(archive, target)
    return target


def _download(url: str, sha256: str, folder: Path) -> Path:
    try:
        import pooch
    except ImportError as error:
        raise ImportError("Downloads need pooch: pip install 'semfs[data]'") from error
    folder.mkdir(parents=True, exist_ok=True)
    name = PurePosixPath(url).name
    try:
        download = _resuming(folder / name)
        path = pooch.retrieve(url, f"sha256:{sha256}", name, folder, downloader=download)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"{url} could not be downloaded ({reason}). Download it by hand into {folder}."
        ) from error
    return Path(path)


def _resuming(target: Path) -> Any:
    """A downloader for pooch that keeps a part file and continues it next time."""

    def download(url: str, output: str, _pooch: Any = None, check_only: bool = False) -> None:
        part = target.with_name(f"{target.name}.part")
        done = part.stat().st_size if part.exists() else 0
        try:
            _continue(url, part, done)
        except urllib.error.HTTPError as error:
            if error.code != 416:  # 416: there is nothing after what we have
                raise
            _continue(url, part, 0)
        shutil.move(part, output)

    return download


def _continue(url: str, part: Path, done: int) -> None:
    """Append what is missing, or start anew if the server cannot continue."""
    headers = {"Range": f"bytes={done}-"} if done else {}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=60) as response:
        resumed = response.status == 206
        total = int(response.headers.get("Content-Length", 0)) + (done if resumed else 0)
        with part.open("ab" if resumed else "wb") as file:
            _copy(response, file, total)
            if file.tell() < total:
                raise OSError(f"the connection broke after {file.tell()} of {total} bytes")


def _copy(response: Any, file: Any, total: int) -> None:
    """Copy with a line of progress on a terminal."""
    shown = sys.stderr.isatty()
    while chunk := response.read(_CHUNK):
        file.write(chunk)
        if shown:
            done = f"{100 * file.tell() // total} %" if total else f"{file.tell() >> 20} MB"
            print(f"\r  {done}", end="", file=sys.stderr, flush=True)
    if shown:
        print(file=sys.stderr)


def unpack(archive: Path, target: Path) -> Path:
    """Unpack a .zip, .tar or .tar.gz file into a new folder, which appears whole.

    Members that would land outside the folder, links and devices are refused, and so are
    archives that expand beyond belief.
    """
    beside = target.with_name(f".{target.name}.part")
    shutil.rmtree(beside, ignore_errors=True)
    try:
        with reading(archive, "archive"):
            if zipfile.is_zipfile(archive):
                _unzip(archive, beside)
            else:
                _untar(archive, beside)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return target


def _unzip(archive: Path, folder: Path) -> None:
    with zipfile.ZipFile(archive) as file:
        for item in file.infolist():
            _check_name(archive, item.filename)
            check_declared_size(archive, item.filename, item.file_size, item.compress_size)
        file.extractall(folder)


def _untar(archive: Path, folder: Path) -> None:
    with tarfile.open(archive) as file:
        members = file.getmembers()
        for item in members:
            _check_name(archive, item.name)
            if not (item.isfile() or item.isdir()):
                raise FileError(f"{archive}: {item.name!r} is a link or a device; refused.")
        total = sum(item.size for item in members)
        check_declared_size(archive, "its content", total, archive.stat().st_size)
        file.extractall(folder, members, filter="data")


def _check_name(archive: Path, name: str) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or ":" in name:
        raise FileError(f"{archive}: member {name!r} would be written outside; refused.")
