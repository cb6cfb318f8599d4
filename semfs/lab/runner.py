"""Run a grid of cells: resumable and in parallel.

`run` takes cells, a `Store` and a function that computes one; what the function does is not
its business. A finished cell is never computed again, a failed one is recorded and tried
again by the next run, and a run may be killed at any moment. Several processes with the same
store share the work.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, fields
from functools import partial
from itertools import islice
from typing import Any

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor
from threadpoolctl import threadpool_limits

from semfs.lab.store import Cell, Result, Store
from semfs.progress import Progress

__all__ = ["Summary", "run", "versions"]

WATCH_SECONDS = 0.5
# A fixed number of threads, whatever the number of workers: sums in BLAS depend on it in
# their last digits, and results must not depend on how many workers computed them.
BLAS_THREADS = 1

Function = Callable[[Cell], Result]
Outcome = tuple[Cell, Result | None, str]  # the result, or what went wrong
Outcomes = Generator[Outcome, None, None]


@dataclass
class Summary:
    """What a run did: cells in all, finished before, computed now; errors by cell.

    ``notes`` are lines for the reader: data sets that are absent, methods left out.
    """

    n_cells: int = 0
    n_before: int = 0
    n_computed: int = 0
    failures: list[tuple[Cell, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __add__(self, other: Summary) -> Summary:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Summary(*(a + b for a, b in pairs))


def run(
    cells: Iterable[Cell],
    store: Store,
    function: Function,
    *,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Summary:
    """Compute the cells that the store does not have yet, and commit each as it is done.

    Parameters
    ----------
    cells : iterable of Cell
    store : Store
    function : callable
        Computes one cell. It runs in worker processes, each with one BLAS thread, so that
        results do not depend on ``n_jobs``.
    n_jobs : int, optional
        Number of worker processes; by default one per core. With 1 and a store in memory,
        cells are computed in this process.
    verbose : bool, default=False
        Show progress and the time left.

    Returns
    -------
    Summary
    """
    if n_jobs is not None and n_jobs < 1:
        raise ValueError(f"The number of jobs must be at least 1, got {n_jobs}.")
    cells = list({cell.key: cell for cell in cells}.values())
    todo = [cell for cell in cells if not store.is_done(cell)]
    summary = Summary(len(cells))
    started = time.perf_counter()
    n_workers = min(n_jobs or cpu_count(), len(todo))
    with Progress("cells", len(todo), verbose) as progress:
        while todo:
            others: list[Cell] = []  # other processes are at these; perhaps they give them up
            mine = _claimed(todo, store, others)
            if store.path is None and n_jobs == 1:
                outcomes: Outcomes = (_outcome(function, cell) for cell in mine)
            else:
                outcomes = _from_workers(function, mine, n_workers)
            with closing(outcomes):
                for cell, result, error in outcomes:
                    if result is not None:
                        store.finish(cell, result, versions())
                        summary.n_computed += 1
                    else:
                        store.fail(cell, error)
                        summary.failures.append((cell, error))
                    store.release(cell)
                    note = f"FAILED: {error.splitlines()[0]}" if error else "done"
                    progress.step(f"{_name(cell)}: {_printable(note)}")
            todo = others
            time.sleep(WATCH_SECONDS if todo else 0.0)
    summary.n_before = len(cells) - summary.n_computed - len(summary.failures)
    summary.seconds = time.perf_counter() - started
    return summary


def _claimed(todo: list[Cell], store: Store, others: list[Cell]) -> Iterator[Cell]:
    """The cells nobody is at and nobody has finished meanwhile; ``others`` gets the rest."""
    for cell in todo:
        if not store.claim(cell):
            others.append(cell)
        elif store.is_done(cell):
            store.release(cell)
        else:
            yield cell


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    import semfs

    names = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    found = {name: importlib.metadata.version(package) for name, package in names.items()}
    return {"semfs": semfs.__version__, "python": sys.version.split()[0]} | found


def _name(cell: Cell) -> str:
    values = ", ".join(f"{name}={value}" for name, value in cell.setting.items())
    place = (cell.experiment, cell.dataset, cell.split, cell.label or cell.method, values)
    return _printable(" · ".join(word for word in place if word))


def _printable(text: Any) -> str:
    """Text on one line without control characters, as a terminal may be given it."""
    words = " ".join(str(text).split())
    return "".join(letter for letter in words if letter.isprintable())


def _from_workers(function: Function, cells: Iterator[Cell], n_workers: int) -> Outcomes:
    """Compute cells in worker processes; one that dies costs the one cell it was at."""
    busy: dict[Future[Outcome], Cell] = {}
    suspects: list[Cell] | None = None  # what was under way when a worker died
    while suspects is None or suspects:
        suspects = []
        with _workers(function, n_workers) as submit:
            while busy or not suspects:
                for cell in islice(cells, 0 if suspects else n_workers - len(busy)):
                    busy[submit(cell)] = cell
                if not busy:
                    break
                for future in wait(busy, return_when=FIRST_COMPLETED).done:
                    cell, error = busy.pop(future), future.exception()
                    if isinstance(error, BrokenProcessPool):
                        suspects.append(cell)
                    else:
                        yield (cell, None, _describe(error)) if error else future.result()
        for cell in suspects:
            with _workers(function, 1) as submit:
                future = submit(cell)
                error = future.exception()
                yield (cell, None, _describe(error)) if error else future.result()


@contextmanager
def _workers(function: Function, n_workers: int) -> Iterator[Callable[[Cell], Any]]:
    """Processes of joblib (loky), which do not run the user's script a second time."""
    given = (function, os.getpid())
    pool = ProcessPoolExecutor(n_workers, initializer=_begin, initargs=given)
    try:
        yield partial(_submit, pool)
    finally:  # after Ctrl-C too: whatever they are doing
        pool.shutdown(wait=True, kill_workers=True)


def _submit(pool: Any, cell: Cell) -> Future[Outcome]:
    """Hand over a cell. Workers start here, and inherit that Ctrl-C is for their parent."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        return pool.submit(_compute, cell)
    except BrokenProcessPool as error:
        broken: Future[Outcome] = Future()
        broken.set_exception(error)
        return broken
    finally:
        if in_main_thread:
            signal.signal(signal.SIGINT, before)


_function: Function | None = None  # of a worker process


def _begin(function: Function, parent: int) -> None:
    """The first thing a worker does: it leaves stdout to its parent."""
    global _function
    _function = function
    os.dup2(2, 1)
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def _end_with(parent: int) -> None:
    """When the parent is gone, however it ended, so are we, in mid-task."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(0)


def _compute(cell: Cell) -> Outcome:
    assert _function is not None
    return _outcome(_function, cell)


def _outcome(function: Function, cell: Cell) -> Outcome:
    """Compute a cell with one BLAS thread; an exception becomes text."""
    try:
        with threadpool_limits(BLAS_THREADS):
            return cell, function(cell), ""
    except Exception as error:
        return cell, None, _describe(error)


def _describe(error: BaseException) -> str:
    """Type and message on the first line, then where it happened."""
    lines = traceback.format_exception(error, limit=-4)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}"
