"""Worker processes that compute cells: killable, one BLAS thread each, or a Dask cluster.

Workers are plain Python processes that read tasks from their standard input, so they end at
once when their parent ends, however it ends; they do not see Ctrl-C (their parent does); and
a worker that dies (out of memory, say) costs the one task it was at.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from threadpoolctl import threadpool_limits

__all__ = ["DaskWorkers", "Outcome", "Workers", "available_cores"]

# A fixed number of threads, whatever the number of workers: sums in BLAS depend on it in
# their last digits, and results must not depend on how many workers computed them.
BLAS_THREADS = 1
_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from semfs.lab.workers import serve; serve()"
)


@dataclass(frozen=True)
class Outcome:
    """What became of a task: its value, or an error as text; warnings it gave."""

    value: Any = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


def available_cores() -> int:
    """Return the number of cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def call(function: Callable[[Any], Any], *arguments: Any) -> Outcome:
    """Call a function with one BLAS thread; an exception becomes an `Outcome`."""
    try:
        with threadpool_limits(BLAS_THREADS), _caught_warnings() as caught:
            value = function(*arguments)
    except Exception as error:
        return Outcome(error=_describe(error))
    texts = dict.fromkeys(
        f"{w.category.__name__}: {w.message}"
        for w in caught
        if not issubclass(w.category, (DeprecationWarning, ResourceWarning))
    )
    return Outcome(value, warnings=tuple(texts)[:5])


@contextlib.contextmanager
def _caught_warnings() -> Iterator[list[warnings.WarningMessage]]:
    """Collect warnings; not in the threads of a Dask worker, which share their filters."""
    if threading.current_thread() is not threading.main_thread():
        yield []
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def _describe(error: Exception) -> str:
    """Type and message on the first line, then where it happened."""
    lines = traceback.format_exception(error, limit=-4)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}"


# ---- processes on this machine -----------------------------------------------------------


class Workers:
    """A fixed number of worker processes that call ``function(task)``.

    Parameters
    ----------
    function : callable
        Must be picklable; it is sent once and may keep caches between tasks.
    n_workers : int

    Examples
    --------
    >>> import math
    >>> with Workers(math.sqrt, 1) as workers:
    ...     workers.submit(9.0)
    ...     workers.collect(timeout=60)
    [(9.0, Outcome(value=3.0, error=None, warnings=()))]
    """

    def __init__(self, function: Callable[[Any], Any], n_workers: int) -> None:
        self.size = n_workers
        self._setup = pickle.dumps(function)
        self._finished: queue.Queue = queue.Queue()
        self._idle: list[_Worker] = []
        self._busy: dict[_Worker, Any] = {}

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    @property
    def n_busy(self) -> int:
        """Number of tasks under way."""
        return len(self._busy)

    @property
    def n_free(self) -> int:
        """Number of tasks that could start at once."""
        return self.size - len(self._busy)

    def submit(self, task: Any) -> None:
        """Hand a task to a free worker."""
        worker = self._idle.pop() if self._idle else _Worker(self._setup, self._finished)
        self._busy[worker] = task
        worker.send(task)

    def collect(self, timeout: float) -> list[tuple[Any, Outcome]]:
        """Return (task, outcome) pairs that are ready, waiting up to ``timeout`` for one."""
        found: list[tuple[Any, Outcome]] = []
        while True:
            try:
                worker, outcome = self._finished.get(timeout=0 if found else timeout)
            except queue.Empty:
                return found
            if worker in self._idle:  # it died while it had nothing to do
                self._idle.remove(worker)
                continue
            task = self._busy.pop(worker)
            if outcome is None:  # the pipe closed: the process is gone
                outcome = Outcome(error=worker.last_words())
            else:
                self._idle.append(worker)
            found.append((task, outcome))

    def stop(self) -> None:
        """End all workers now, whatever they are doing."""
        for worker in [*self._idle, *self._busy]:
            worker.kill()
        self._idle, self._busy = [], {}


class _Worker:
    """One process, and the thread that waits for its answers."""

    def __init__(self, setup: bytes, finished: queue.Queue) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=os.environ | dict.fromkeys(_LIMITS, str(BLAS_THREADS)),
            start_new_session=True,  # Ctrl-C in the terminal is for the parent only
        )
        self._write(setup)
        self._reader = threading.Thread(target=self._listen, args=(finished,), daemon=True)
        self._reader.start()

    def send(self, task: Any) -> None:
        self._write(pickle.dumps(task))

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def last_words(self) -> str:
        code = self.process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        return f"WorkerDied: the worker process {how}, perhaps for want of memory."

    def _write(self, message: bytes) -> None:
        assert self.process.stdin is not None
        try:
            pickle.dump(message, self.process.stdin)
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # the listener reports it

    def _listen(self, finished: queue.Queue) -> None:
        assert self.process.stdout is not None
        try:
            while True:
                finished.put((self, pickle.load(self.process.stdout)))
        except (EOFError, OSError, pickle.UnpicklingError):
            finished.put((self, None))


def serve() -> None:
    """The life of a worker: a function and then tasks come in, outcomes go out."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints must not get between the answers
    tasks: queue.Queue = queue.Queue()
    threading.Thread(target=_receive, args=(tasks,), daemon=True).start()
    try:
        function = pickle.loads(tasks.get())
    except Exception as error:  # the function's module cannot be imported here
        broken = Outcome(error=_describe(error))
        function = None
    while True:
        message = tasks.get()
        outcome = broken if function is None else call(function, pickle.loads(message))
        pickle.dump(outcome, answers)
        answers.flush()


def _receive(tasks: queue.Queue) -> None:
    """Pass on what the parent sends; when the parent is gone, so are we, in mid-task."""
    try:
        while True:
            tasks.put(pickle.load(sys.stdin.buffer))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)


# ---- a Dask cluster ------------------------------------------------------------------------


class DaskWorkers:
    """The same for a Dask cluster; ``function.load(name)`` gives the data a task needs.

    The data sets are sent to the cluster once, so the workers need no access to the files;
    they need semfs and the modules of the methods. Workers with one thread each
    (``dask worker --nthreads 1``) give the same digits as a run on one machine; threads of
    one worker get in the way of each other's BLAS limit.
    """

    def __init__(self, function: Any, address: str) -> None:
        try:
            from distributed import Client
        except ImportError as error:
            raise ImportError(
                "--scheduler needs Dask. Install it with: pip install 'semfs[dask]'"
            ) from error
        self._client = Client(address, timeout="10s")
        self._function = function
        self._data: dict[str, Any] = {}
        self._finished: queue.Queue = queue.Queue()
        self._busy: dict[Any, Any] = {}
        self.size = sum(self._client.nthreads().values())
        if not self.size:
            self._client.close()
            raise ValueError(f"The Dask cluster at {address} has no workers. Start some.")

    def __enter__(self) -> DaskWorkers:
        return self

    def __exit__(self, *error: Any) -> None:
        self.stop()

    @property
    def n_busy(self) -> int:
        """Number of tasks under way."""
        return len(self._busy)

    @property
    def n_free(self) -> int:
        """Number of tasks that could start at once."""
        return self.size - len(self._busy)

    def submit(self, task: Any) -> None:
        """Hand a task to the cluster."""
        name = task.dataset
        if name not in self._data:
            data = self._function.load(name)
            self._data[name] = self._client.scatter(data, hash=False)
        future = self._client.submit(call, self._function, task, self._data[name], pure=False)
        self._busy[future] = task
        future.add_done_callback(self._finished.put)

    def collect(self, timeout: float) -> list[tuple[Any, Outcome]]:
        """Return (task, outcome) pairs that are ready, waiting up to ``timeout`` for one."""
        found: list[tuple[Any, Outcome]] = []
        while True:
            try:
                future = self._finished.get(timeout=0 if found else timeout)
            except queue.Empty:
                return found
            task = self._busy.pop(future)
            found.append((task, self._outcome(future)))

    def stop(self) -> None:
        """Cancel what is under way and leave the cluster."""
        self._client.cancel(list(self._busy), force=True)
        self._busy = {}
        self._client.close(timeout=1)

    @staticmethod
    def _outcome(future: Any) -> Outcome:
        try:
            return future.result()
        except Exception as error:  # a worker of the cluster died
            return Outcome(error=_describe(error))
