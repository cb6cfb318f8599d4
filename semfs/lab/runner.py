"""Run a grid of cells: resumable, in parallel, shared by several processes.

`run` takes cells, a `Store` and a function that computes one; what the function does is not
its business. A finished cell is never computed again, a failed one is recorded and tried
again by the next run, and a run may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.metadata
import json
import os
import pickle
import queue
import subprocess
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, fields, replace
from typing import Any, cast

from threadpoolctl import threadpool_limits

from semfs.lab.store import Cell, Result, Store
from semfs.progress import Progress

__all__ = ["Outcome", "Summary", "merge", "run", "versions"]

POLL_SECONDS = 0.5
# A fixed number of threads, whatever the number of workers: sums in BLAS depend on it in
# their last digits, and results must not depend on how many workers computed them.
BLAS_THREADS = 1
_LIMITS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS")
_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
    "from semfs.lab.runner import serve; serve()"
)


@dataclass
class Summary:
    """What a run did: cells in all, finished before, computed now; errors by cell.

    ``notes`` are lines for the reader: data sets that are absent, methods left out.
    """

    n_cells: int = 0
    n_before: int = 0
    n_computed: int = 0
    n_elsewhere: int = 0
    failures: list[tuple[Cell, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __add__(self, other: Summary) -> Summary:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Summary(*(a + b for a, b in pairs))


@dataclass(frozen=True)
class Outcome:
    """What became of a task: its value, or an error as text; warnings it gave."""

    value: Any = None
    error: str | None = None
    warnings: tuple[str, ...] = ()


def run(
    cells: Iterable[Cell],
    store: Store,
    function: Callable[..., Result],
    *,
    n_jobs: int | None = None,
    scheduler: str | None = None,
    verbose: bool = False,
) -> Summary:
    """Compute the cells that the store does not have yet, and commit each as it is done.

    Parameters
    ----------
    cells : iterable of Cell
    store : Store
        Several processes may work on one at the same time: each cell is computed by one of
        them, and each waits until all of its cells are done.
    function : callable
        Computes one cell. It runs in worker processes, each with one BLAS thread, so that
        results do not depend on ``n_jobs``. On a cluster it is also given the data set
        ``function.load(cell.dataset)``.
    n_jobs : int, optional
        Number of worker processes; by default one per core. With 1 and a store in memory,
        cells are computed in this process.
    scheduler : str, optional
        Address of a Dask cluster to use instead.
    verbose : bool, default=False
        Show progress and the time left.

    Returns
    -------
    Summary
    """
    cells = merge(cells)
    store.relabel(cells)
    statuses = store.statuses()
    todo = [cell for cell in cells if statuses.get(cell.key) != "done"]
    summary = Summary(len(cells), len(cells) - len(todo))
    started = time.perf_counter()
    if todo:
        here = store.path is None and n_jobs == 1 and scheduler is None
        workers = _Here(function) if here else _workers(function, n_jobs, scheduler, len(todo))
        try:
            with Progress("cells", len(todo), verbose) as progress:
                _Run(store, workers, summary, progress).compute(todo)
        finally:  # after Ctrl-C and on a full disk too
            workers.stop()
            with contextlib.suppress(OSError):
                store.release()
    summary.seconds = time.perf_counter() - started
    return summary


def merge(cells: Iterable[Cell]) -> list[Cell]:
    """Return each cell once, in the order given, with the labels of all its copies."""
    found: dict[str, Cell] = {}
    for cell in cells:
        earlier = found.get(cell.key)
        labels = [*(earlier.labels if earlier else ()), *cell.labels]
        found[cell.key] = replace(earlier or cell, labels=tuple(dict.fromkeys(labels)))
    return list(found.values())


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    import semfs

    names = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    found = {name: importlib.metadata.version(package) for name, package in names.items()}
    return {"semfs": semfs.__version__, "python": sys.version.split()[0]} | found


def _printable(text: Any) -> str:
    """Return text on one line without control characters, as a terminal may be given it.

    >>> _printable("a\\x1b[31mred\\x07\\nline")
    'a[31mred line'
    """
    words = " ".join(str(text).split())
    return "".join(letter for letter in words if letter.isprintable())


@dataclass
class _Run:
    """One pass over the cells that are left."""

    store: Store
    workers: _Here | _Processes | _Cluster
    summary: Summary
    progress: Progress

    def compute(self, waiting: list[Cell]) -> None:
        busy: dict[Future[Outcome], Cell] = {}
        while waiting or busy:
            free = self.workers.size - len(busy)
            started, waiting = self._start(waiting, free)
            busy |= started
            done, _ = wait(busy, POLL_SECONDS, FIRST_COMPLETED)
            if not busy:  # the rest is being computed elsewhere
                time.sleep(POLL_SECONDS)
            for future in done:
                self._commit(busy.pop(future), future)
            self.store.heartbeat()

    def _start(
        self, waiting: list[Cell], free: int
    ) -> tuple[dict[Future[Outcome], Cell], list[Cell]]:
        """Start cells while there are free workers; return those that must still wait."""
        started: dict[Future[Outcome], Cell] = {}
        left: list[Cell] = []
        for i, cell in enumerate(waiting):
            if len(started) == free:
                return started, left + waiting[i:]
            if self.store.claim(cell):
                started[self.workers.submit(cell)] = cell
            elif cell.key in self.store.claimed():  # another process is at it
                left.append(cell)
            else:  # it has finished or failed there
                self.summary.n_elsewhere += 1
                self.progress.step(f"{_name(cell)}: elsewhere")
        return started, left

    def _commit(self, cell: Cell, future: Future[Outcome]) -> None:
        error = future.exception()
        outcome = Outcome(error=_describe(error)) if error else future.result()
        if outcome.error is not None:
            self.store.fail(cell, outcome.error)
            self.summary.failures.append((cell, outcome.error))
            note = f"FAILED: {outcome.error.splitlines()[0]}"
        else:
            result, note = outcome.value, "done"
            if outcome.warnings:
                extra = {**result.extra, "warnings": list(outcome.warnings)}
                result = replace(result, extra=extra)
            self.store.finish(cell, result, versions())
            self.summary.n_computed += 1
        self.progress.step(f"{_name(cell)}: {_printable(note)}")


def _name(cell: Cell) -> str:
    values = ", ".join(f"{name}={value}" for name, value in cell.setting.items())
    place = (cell.experiment, cell.dataset, cell.split, [*cell.labels, cell.method][0], values)
    return _printable(" · ".join(word for word in place if word))


# ---- workers --------------------------------------------------------------------------------


def _workers(
    function: Callable[..., Result], n_jobs: int | None, scheduler: str | None, n_tasks: int
) -> _Processes | _Cluster:
    if scheduler is not None:
        return _Cluster(function, scheduler)
    if n_jobs is not None and n_jobs < 1:
        raise ValueError(f"The number of jobs must be at least 1, got {n_jobs}.")
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity else os.cpu_count() or 1
    return _Processes(function, min(n_jobs or cores, n_tasks))


class _Here:
    """Computes at once, in this process."""

    size = 1

    def __init__(self, function: Callable[..., Result]) -> None:
        self._function = function

    def submit(self, task: Cell) -> Future[Outcome]:
        future: Future[Outcome] = Future()
        future.set_result(call(self._function, task))
        return future

    def stop(self) -> None:
        """Nothing is under way."""


class _Processes(ThreadPoolExecutor):
    """Worker processes, each served by a thread that waits for its answers.

    They are plain Python processes that read tasks from their standard input, so they end
    at once when their parent ends, however it ends; they do not see Ctrl-C (their parent
    does); and one that dies (out of memory, say) costs the one task it was at. Unlike those
    of `multiprocessing` they do not run the user's script a second time.
    """

    def __init__(self, function: Callable[..., Result], n_workers: int) -> None:
        super().__init__(n_workers)
        self.size = n_workers
        self._function = pickle.dumps(function)
        self._mine = threading.local()
        self._all: list[subprocess.Popen[bytes]] = []
        self._lock, self._stopped = threading.Lock(), False

    def submit(self, task: Cell) -> Future[Outcome]:  # type: ignore[override]
        """Hand a task to a free worker."""
        return super().submit(self._ask, task)

    def stop(self) -> None:
        """End all workers now, whatever they are doing."""
        with self._lock:
            self._stopped = True
            for process in self._all:
                process.kill()
        self.shutdown(wait=True, cancel_futures=True)

    def _ask(self, task: Cell) -> Outcome:
        process = self._process()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            pickle.dump(task, process.stdin)
            process.stdin.flush()
            return pickle.load(process.stdout)
        except (EOFError, OSError, pickle.UnpicklingError):  # the process is gone
            code = process.wait()
        how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
        text = f"WorkerDied: the worker process {how}, perhaps for want of memory."
        return Outcome(error=text)

    def _process(self) -> subprocess.Popen[bytes]:
        process = getattr(self._mine, "process", None)
        if process is not None and process.poll() is None:
            return process
        with self._lock:
            process = self._mine.process = subprocess.Popen(
                [sys.executable, "-c", _START, json.dumps(sys.path)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | dict.fromkeys(_LIMITS, str(BLAS_THREADS)),
                start_new_session=True,  # Ctrl-C in the terminal is for the parent only
            )
            self._all.append(process)
            if self._stopped:
                process.kill()
        with contextlib.suppress(BrokenPipeError):
            pickle.dump(self._function, cast(Any, process.stdin))
        return process


def serve() -> None:
    """The life of a worker: a function and then tasks come in, outcomes go out."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a task prints must not get between the answers
    tasks: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_receive, args=(tasks,), daemon=True).start()
    received = tasks.get()
    function = functools.cache(lambda: pickle.loads(received))
    while True:
        pickle.dump(call(lambda task: function()(task), tasks.get()), answers)
        answers.flush()


def _receive(tasks: queue.Queue[Any]) -> None:
    """Pass on what the parent sends; when the parent is gone, so are we, in mid-task."""
    try:
        while True:
            tasks.put(pickle.load(sys.stdin.buffer))
    except (EOFError, OSError, pickle.UnpicklingError):
        os._exit(0)


def call(function: Callable[..., Any], *arguments: Any) -> Outcome:
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


def _describe(error: BaseException) -> str:
    """Type and message on the first line, then where it happened."""
    lines = traceback.format_exception(error, limit=-4)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}"


class _Cluster:
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
        self._function, self._data = function, dict[str, Any]()
        self.size = sum(self._client.nthreads().values())
        if not self.size:
            self._client.close()
            raise ValueError(f"The Dask cluster at {address} has no workers. Start some.")
        self._executor = self._client.get_executor(pure=False)

    def submit(self, task: Cell) -> Future[Outcome]:
        """Hand a task to the cluster."""
        name = task.dataset
        if name not in self._data:
            self._data[name] = self._client.scatter(self._function.load(name), hash=False)
        return self._executor.submit(call, self._function, task, self._data[name])

    def stop(self) -> None:
        """Cancel what is under way and leave the cluster."""
        self._executor.shutdown(wait=False)
        self._client.close(timeout=1)
