"""Tests an HDF5 file in a second process, because the library may crash on damaged files.

The library is written in C. Its crashes on a damaged file (HDFGroup/hdf5#1707, h5py#2088)
cannot be caught in Python. `probe_ok` runs this file as a script, which reads everything once,
in bounded memory and time. Ordinary errors are ignored here, because the reader reports them.

The script imports only h5py (and so numpy), and takes about 0.2 s for a small file.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import h5py

#: Seconds of processor time for any file, and for each of its bytes (10 MB/s; gzip is faster).
SECONDS = 5.0
SECONDS_PER_BYTE = 1e-7
#: On a busy machine, or with a slow disk, a process takes longer than its processor time: it
#: may take this many times as long, after the seconds in which Python starts and imports h5py.
SLOWEST = 20.0
STARTUP_SECONDS = 30.0
#: Bytes that the second process may allocate (1 GiB).
MEMORY_LIMIT = 2**30
#: Bytes of the largest array that it reads whole (32 MiB).
LARGEST_READ = 2**25

#: Files that were probed and found harmless: path, size, and time of the last change.
_survived: set[tuple[str, int, int]] = set()


def probe_ok(path: Path, seconds: float | None = None) -> bool:
    """Return whether a process can read all of an HDF5 file within time and memory.

    The result is cached until the file changes. ``seconds`` is processor time.
    """
    name = str(path.resolve())
    status = path.stat()
    identity = (name, status.st_size, status.st_mtime_ns)
    if identity in _survived:
        return True
    if seconds is None:
        seconds = SECONDS + SECONDS_PER_BYTE * status.st_size
    survived = _run(name, seconds)
    if survived:
        _survived.add(identity)
    return survived


def _run(name: str, seconds: float) -> bool:
    """Return whether the script ends with exit code 0."""
    # -P: this folder holds modules called anndata and zarr, which must not hide the packages
    command = [sys.executable, "-P", __file__, name, str(seconds)]
    search_path = os.pathsep.join(folder for folder in sys.path if folder)
    # numpy's threads would take address space
    env = os.environ | {"PYTHONPATH": search_path, "OPENBLAS_NUM_THREADS": "1"}
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=env,
            timeout=SLOWEST * seconds + STARTUP_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


class Unlistable(Exception):
    """Raised if members of a group cannot be listed, as access by name may then crash."""


def explore(path: str) -> int:
    """Read the groups, attributes and arrays of a file, and return the number of objects."""
    import h5py

    seen: set[Any] = set()
    with h5py.File(path, "r") as file:
        waiting: list[Any] = [file]
        while waiting:
            node = waiting.pop()
            address = _address(node)
            if address in seen:  # hard links may form cycles
                continue
            seen.add(address)
            _read_attributes(node)
            if isinstance(node, h5py.Group):
                waiting += _members(node)
            else:
                _read_array(node)
    return len(seen)


@contextlib.contextmanager
def _errors_ignored() -> Iterator[None]:
    """Ignore ordinary errors, which the reader reports, except lack of memory."""
    try:
        yield
    except (MemoryError, Unlistable):
        raise
    except Exception as error:
        if "allocation failed" in str(error):
            raise MemoryError from None


def _address(node: h5py.HLObject) -> Any:
    """Return the address of an object in the file, or its name if that is unknown."""
    import h5py

    with _errors_ignored():
        return h5py.h5o.get_info(node.id).addr
    return node.name


def _listed(names: Iterable[str]) -> list[str]:
    try:
        return list(names)
    except Exception:
        raise Unlistable from None


def _members(group: h5py.Group) -> list[Any]:
    """Return the groups and arrays in a group, without following links."""
    import h5py

    found = []
    for name in _listed(group):
        with _errors_ignored():
            if isinstance(group.get(name, getlink=True), h5py.HardLink):
                found.append(group[name])
    return found


def _read_attributes(node: h5py.HLObject) -> None:
    for name in _listed(node.attrs):
        with _errors_ignored():
            node.attrs[name]


def _read_array(node: h5py.HLObject) -> None:
    """Read a small array whole, or count the chunks of a large one."""
    with _errors_ignored():
        if getattr(node, "shape", None) is None or node.external:
            return
        size = node.size * node.dtype.itemsize
        if size <= LARGEST_READ and not node.is_virtual:
            node[()]
        elif node.chunks:
            node.id.get_num_chunks()


def _limit(seconds: float) -> None:
    """Limit memory and processor time of this process, if the system supports it."""
    try:
        import resource
        import signal
    except ImportError:  # not a POSIX system
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    limit = MEMORY_LIMIT if hard == resource.RLIM_INFINITY else min(MEMORY_LIMIT, hard)
    resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # ends the process, also inside the library; the start of Python is not counted
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _main(path: str, seconds: float) -> int:
    """Probe one file, and return the exit code."""
    try:
        import h5py  # noqa: F401
    except ImportError:  # the reader reports it
        return 0
    _limit(seconds)
    try:
        with _errors_ignored():
            explore(path)
    except (MemoryError, Unlistable):
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_main(sys.argv[1], float(sys.argv[2])))
