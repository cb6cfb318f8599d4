"""A second process that reads HDF5 files first: some damaged ones crash or hang the library.

Run as a script it needs h5py alone, and answers each path it is given with a line.
"""

import atexit
import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

# Time for a file, and for each of its bytes.
SECONDS, SECONDS_PER_BYTE = 5.0, 1e-7
# Bytes that the second process may have, and those of the largest array that it reads whole.
MEMORY, LARGEST_READ = 2**30, 2**25

_lock = threading.Lock()
_processes: dict[int, subprocess.Popen[str]] = {}  # by the process that asks
_survived: set[tuple[str, int, int]] = set()


def probe_ok(path: Path) -> bool:
    """Whether a process that reads all of this HDF5 file comes back, in time and memory."""
    name, found = str(path.resolve()), path.stat()
    with _lock:
        if (name, found.st_size, found.st_mtime_ns) in _survived:
            return True
        seconds = SECONDS + SECONDS_PER_BYTE * found.st_size
        used = os.getpid() in _processes  # and perhaps harmed by an earlier file
        survived = _answers(name, seconds) or (used and _answers(name, seconds))
        if survived:
            _survived.add((name, found.st_size, found.st_mtime_ns))
        return survived


def _answers(name: str, seconds: float) -> bool:
    process = _processes.get(os.getpid()) or _started()
    timer = threading.Timer(seconds, process.kill)
    timer.start()
    answer = ""
    try:
        with contextlib.suppress(OSError):
            print(os.fsencode(name).hex(), file=process.stdin, flush=True)
        answer = process.stdout.readline()  # type: ignore[union-attr]
    finally:  # after Ctrl-C too
        timer.cancel()
        if not answer:
            process.kill()
            _processes.pop(os.getpid()).communicate()
    return answer == "survived\n"


def _started() -> subprocess.Popen[str]:
    command, env = [sys.executable, "-P", __file__, *sys.path], {"OPENBLAS_NUM_THREADS": "1"}
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    options: Any = {"stdin": pipe, "stdout": pipe, "stderr": nowhere, "text": True}
    process = subprocess.Popen(command, env=os.environ | env, **options)
    process.stdout.readline()  # type: ignore[union-attr]  # it is ready
    return _processes.setdefault(os.getpid(), process)


@atexit.register
def _end() -> None:
    if process := _processes.pop(os.getpid(), None):
        process.communicate()


def explore(path: str) -> int:
    """Read the groups, attributes and arrays of a file; return how many objects there are."""
    import h5py

    seen: set[Any] = set()
    with h5py.File(path, "r") as file:
        waiting: list[Any] = [file]
        while waiting:
            with _errors_ignored():
                node = waiting.pop()
                place: Any = node.name
                with _errors_ignored():
                    place = h5py.h5o.get_info(node.id).addr
                if place in seen:
                    continue
                seen.add(place)
                _read(node)
                for name in _listed(node) if isinstance(node, h5py.Group) else ():
                    with _errors_ignored():
                        if isinstance(node.get(name, getlink=True), h5py.HardLink):
                            waiting.append(node[name])
    return len(seen)


@contextlib.contextmanager
def _errors_ignored() -> Any:
    """What the library says in words, the reader will hear; but no hunger for memory."""
    try:
        yield
    except Exception as error:
        if isinstance(error, MemoryError) or "allocation failed" in str(error):
            raise SystemExit(1) from None


class Unlisted(BaseException):
    """What cannot be listed may crash whoever asks for it by name."""


def _listed(names: Any) -> list[str]:
    try:
        return list(names)
    except Exception:
        raise Unlisted from None


def _read(node: Any) -> None:
    for name in _listed(node.attrs):
        with _errors_ignored():
            node.attrs[name]
    with _errors_ignored():
        if hasattr(node, "shape") and node.shape is not None and not node.external:
            if node.size * node.dtype.itemsize <= LARGEST_READ and not node.is_virtual:
                node[()]
            elif node.chunks:
                node.id.get_num_chunks()


def _serve() -> None:
    sys.path[:] = sys.argv[1:]
    with contextlib.suppress(ImportError):  # not a POSIX system
        import resource

        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = MEMORY if hard == resource.RLIM_INFINITY else min(MEMORY, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with contextlib.suppress(ImportError):  # the reader will say so
        import h5py  # noqa: F401
    print("ready", flush=True)
    for line in sys.stdin:
        answer = "survived"
        try:
            with _errors_ignored():
                explore(os.fsdecode(bytes.fromhex(line)))
        except Unlisted:
            answer = "damaged"
        print(answer, flush=True)


if __name__ == "__main__":
    _serve()
