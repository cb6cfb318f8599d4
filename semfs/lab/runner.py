"""Run a grid of cells: resumable and in parallel.

A finished cell is never computed again, a failed one is recorded and tried again by the next
run, and a run may be killed at any moment.
"""

import importlib.metadata
import os
import signal
import sys
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Self

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor
from threadpoolctl import threadpool_limits

from semfs.lab.store import Cell, Result, Store
from semfs.progress import Progress
from semfs.validation import check_integer

WATCH_SECONDS = 0.5
BLAS_THREADS = 1  # sums depend on it in their last digits: the same for any number of workers

Function = Callable[[Cell], Result]
Outcome = tuple[Cell, Result | None, str]  # the result, or what went wrong
Outcomes = Generator[Outcome, None, None]


@dataclass
class Summary:
    """What a run did: cells in all, finished before, computed now; errors by cell; remarks."""

    n_cells: int = 0
    n_before: int = 0
    n_computed: int = 0
    failures: list[tuple[Cell, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __add__(self, other: Self) -> Self:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return type(self)(*(a + b for a, b in pairs))


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
    """
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs, 1)
    cells = list({cell.key: cell for cell in cells}.values())
    todo = [cell for cell in cells if not store.is_done(cell)]
    summary = Summary(len(cells))
    started = time.perf_counter()
    with Progress("cells", len(todo), verbose) as progress:
        while todo:
            others: list[Cell] = []  # other processes are at these; perhaps they give them up
            if store.path is None and n_jobs == 1:
                outcomes: Outcomes = (_outcome(cell, function) for cell in todo)
            else:
                mine = partial(_is_mine, store, others)
                n_workers = min(n_jobs or cpu_count(), len(todo))
                outcomes = _from_workers(function, todo, n_workers, mine)
            with closing(outcomes):
                for cell, result, error in outcomes:
                    if result is not None:
                        store.finish(cell, result, versions())
                        summary.n_computed += 1
                    else:
                        store.fail(cell, error)
                        summary.failures.append((cell, error))
                    store.release(cell)
                    progress.step(_line(cell, error))
            todo = others
            time.sleep(WATCH_SECONDS if todo else 0.0)
    summary.n_before = len(cells) - summary.n_computed - len(summary.failures)
    summary.seconds = time.perf_counter() - started
    return summary


def _is_mine(store: Store, others: list[Cell], cell: Cell) -> bool:
    """Claim a cell; not if another process is at it (``others`` gets it) or has finished it."""
    if not store.claim(cell):
        others.append(cell)
        return False
    if store.is_done(cell):
        store.release(cell)
        return False
    return True


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    import semfs

    names = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    found = {name: importlib.metadata.version(package) for name, package in names.items()}
    return {"semfs": semfs.__version__, "python": sys.version.split()[0]} | found


def _line(cell: Cell, error: str) -> str:
    """What became of a cell, without control characters: a terminal may be given it."""
    values = ", ".join(f"{name}={value}" for name, value in cell.setting.items())
    place = (cell.experiment, cell.dataset, cell.split, cell.label or cell.method, values)
    note = f"FAILED: {error.splitlines()[0]}" if error else "done"
    text = f"{' · '.join(word for word in place if word)}: {note}"
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _from_workers(
    function: Function, todo: Sequence[Cell], n_workers: int, mine: Callable[[Cell], bool]
) -> Outcomes:
    """Compute cells in worker processes; what was under way when one died goes one by one.

    They are joblib's (loky), which do not run the user's script a second time.
    """
    left, suspects = deque(todo), deque[Cell]()
    while left or suspects:
        cells, n_at_once = (suspects, 1) if suspects else (left, n_workers)
        busy: dict[Future[Outcome], Cell] = {}
        whole = True
        with ExitStack() as stack:
            given = (function, os.getpid())
            pool = ProcessPoolExecutor(n_at_once, initializer=_begin, initargs=given)
            stack.callback(pool.shutdown, kill_workers=True)  # in mid-task after Ctrl-C
            while busy or (cells and whole):
                while cells and whole and len(busy) < n_at_once:
                    cell = cells.popleft()
                    if mine(cell):
                        busy[_submit(pool, cell)] = cell
                for future in wait(busy, return_when=FIRST_COMPLETED).done:
                    cell, error = busy.pop(future), future.exception()
                    whole = whole and not isinstance(error, BrokenProcessPool)
                    if error is None:
                        yield future.result()
                    elif whole or cells is suspects:
                        yield cell, None, _describe(error)
                    else:
                        suspects.append(cell)


def _submit(pool: Any, cell: Cell) -> Future[Outcome]:
    """Hand over a cell. Workers start here, and inherit that Ctrl-C is for their parent."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    before = signal.signal(signal.SIGINT, signal.SIG_IGN) if in_main_thread else None
    try:
        return pool.submit(_outcome, cell)
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


def _outcome(cell: Cell, function: Function | None = None) -> Outcome:
    """Compute a cell with one BLAS thread; an exception becomes text."""
    compute: Any = function or _function
    try:
        with threadpool_limits(BLAS_THREADS):
            return cell, compute(cell), ""
    except Exception as error:
        return cell, None, _describe(error)


def _describe(error: BaseException) -> str:
    """Type and message on the first line, then where it happened."""
    lines = traceback.format_exception(error, limit=-4)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}"
