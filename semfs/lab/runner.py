"""Run a grid of cells: resumable, in parallel, shared by several processes.

`run` takes cells, a `Store` and a function that computes one; what the function does is not
its business. A finished cell is never computed again, a failed one is recorded and tried
again by the next run, and a run may be killed at any moment.
"""

from __future__ import annotations

import contextlib
import importlib.metadata
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from statistics import fmean
from typing import Any

from semfs.lab.cells import Cell, Result
from semfs.lab.store import Store
from semfs.lab.workers import DaskWorkers, Outcome, Workers, available_cores

__all__ = ["Display", "Summary", "merge", "run", "versions"]

POLL_SECONDS = 0.5


@dataclass
class Summary:
    """What a run did: cells in all, finished before, computed now; errors by cell."""

    n_cells: int
    n_before: int
    n_computed: int = 0
    n_elsewhere: int = 0
    failures: list[tuple[Cell, str]] = field(default_factory=list)
    seconds: float = 0.0

    def __add__(self, other: Summary) -> Summary:
        pairs = ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self))
        return Summary(*(a + b for a, b in pairs))


def run(
    cells: Iterable[Cell],
    store: Store,
    function: Callable[[Cell], Result],
    *,
    n_jobs: int | None = None,
    scheduler: str | None = None,
    display: Display | None = None,
) -> Summary:
    """Compute the cells that the store does not have yet, and commit each as it is done.

    Parameters
    ----------
    cells : iterable of Cell
    store : Store
        Several processes may work on one at the same time: each cell is computed by one of
        them, and each waits until all of its cells are done.
    function : callable
        Computes one cell. It must be picklable: it runs in worker processes, each with one
        BLAS thread, so that results do not depend on ``n_jobs``.
    n_jobs : int, optional
        Number of worker processes; by default one per core.
    scheduler : str, optional
        Address of a Dask cluster to use instead.
    display : Display, optional

    Returns
    -------
    Summary
    """
    cells = merge(cells)
    store.relabel(cells)
    store.expect_grids(cells)
    finished = {key for key, status in store.statuses().items() if status == "done"}
    todo = [cell for cell in cells if cell.key not in finished]
    summary = Summary(len(cells), len(cells) - len(todo))
    started = time.perf_counter()
    if todo:
        workers = _workers(function, n_jobs, scheduler, len(todo))
        with display or Display(quiet=True) as shown, workers:
            shown.begin(todo, summary.n_before, workers.size)
            try:
                _Run(store, workers, shown, summary).compute(todo)
            except BaseException:  # Ctrl-C, a full disk
                workers.stop()
                with contextlib.suppress(OSError):
                    store.release()
                raise
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


def _workers(
    function: Callable[[Cell], Result], n_jobs: int | None, scheduler: str | None, n_tasks: int
) -> Workers | DaskWorkers:
    if scheduler is not None:
        return DaskWorkers(function, scheduler)
    if n_jobs is not None and n_jobs < 1:
        raise ValueError(f"The number of jobs must be at least 1, got {n_jobs}.")
    return Workers(function, min(n_jobs or available_cores(), n_tasks))


@dataclass
class _Run:
    """One pass over the cells that are left."""

    store: Store
    workers: Workers | DaskWorkers
    display: Display
    summary: Summary

    def compute(self, todo: Sequence[Cell]) -> None:
        waiting = list(todo)
        while waiting or self.workers.n_busy:
            waiting = self._start(waiting)
            for cell, outcome in self.workers.collect(timeout=POLL_SECONDS):
                self._commit(cell, outcome)
            self.store.heartbeat()

    def _start(self, waiting: list[Cell]) -> list[Cell]:
        """Start cells while there are free workers; return those that must still wait."""
        left: list[Cell] = []
        statuses: dict[str, str] = {}
        for i, cell in enumerate(waiting):
            if not self.workers.n_free:
                return left + waiting[i:]
            if self.store.claim(cell):
                self.workers.submit(cell)
                self.display.started(cell)
                continue
            statuses = statuses or self.store.statuses()
            if statuses.get(cell.key) == "running":  # another process is at it
                left.append(cell)
            else:  # it has finished or failed there
                self.summary.n_elsewhere += 1
                self.display.elsewhere(cell)
        return left

    def _commit(self, cell: Cell, outcome: Outcome) -> None:
        if outcome.error is not None:
            self.store.fail(cell, outcome.error, versions())
            self.summary.failures.append((cell, outcome.error))
        else:
            result: Result = outcome.value
            if outcome.warnings:
                extra = {**result.extra, "warnings": list(outcome.warnings)}
                result = replace(result, extra=extra)
            self.store.finish(cell, result, versions())
            self.summary.n_computed += 1
        self.display.finished(cell, outcome)


def versions() -> dict[str, str]:
    """Return the versions that results depend on."""
    import semfs

    names = {"numpy": "numpy", "scipy": "scipy", "sklearn": "scikit-learn"}
    found = {name: importlib.metadata.version(package) for name, package in names.items()}
    return {"semfs": semfs.__version__, "python": sys.version.split()[0]} | found


# ---- what one sees --------------------------------------------------------------------------


class Display:
    """Live progress with the time left: a bar on a terminal, a line per cell elsewhere.

    Parameters
    ----------
    quiet : bool, default=False
        Show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        self.quiet = quiet
        self._bar: Any = None
        self._started: dict[str, float] = {}
        self._took: dict[tuple[str, str], list[float]] = defaultdict(list)
        self._left: dict[str, Cell] = {}
        self._total, self._size = 0, 1

    def __enter__(self) -> Display:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._bar is not None:
            self._bar.stop()

    def begin(self, todo: Sequence[Cell], n_before: int, n_workers: int) -> None:
        """Show how much there is to do."""
        self._left = {cell.key: cell for cell in todo}
        self._total, self._size = n_before + len(todo), n_workers
        self._bar = None if self.quiet else _rich_bar(self._total, n_before)
        if n_before:
            self._print(f"{n_before} of {self._total} cells were finished before.")

    def started(self, cell: Cell) -> None:
        """Note when a cell was started."""
        self._started[cell.key] = time.perf_counter()

    def finished(self, cell: Cell, outcome: Outcome) -> None:
        """Show a finished or failed cell."""
        took = time.perf_counter() - self._started.pop(cell.key)
        self._took[cell.method, cell.dataset].append(took)
        self._left.pop(cell.key, None)
        name = f"{cell.experiment} · {cell.dataset} · {cell.split} · {_name(cell)}"
        if outcome.error is not None:
            self._print(f"{self._place()} FAILED {name}: {outcome.error.splitlines()[0]}")
        elif self._bar is None:
            self._print(f"{self._place()} {name}: {took:.1f} s, {self._remaining()} left")
        self._advance()

    def elsewhere(self, cell: Cell) -> None:
        """Count a cell that another process has dealt with."""
        self._left.pop(cell.key, None)
        self._advance()

    def _place(self) -> str:
        return f"[{self._total - len(self._left)}/{self._total}]"

    def _advance(self) -> None:
        if self._bar is not None:
            n_done = self._total - len(self._left)
            self._bar.update(self._bar.task_ids[0], completed=n_done, left=self._remaining())

    def _remaining(self) -> str:
        """Time left, from what the same method took on the same data, or on any."""
        everything = [t for times in self._took.values() for t in times]
        by_method: dict[str, list[float]] = defaultdict(list)
        for (method, _), times in self._took.items():
            by_method[method] += times
        seconds = sum(
            fmean(self._took.get((c.method, c.dataset)) or by_method[c.method] or everything)
            for c in self._left.values()
        )
        return _duration(seconds / self._size)

    def _print(self, text: str) -> None:
        if self.quiet:
            return
        if self._bar is not None:
            self._bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr, flush=True)


def _name(cell: Cell) -> str:
    label = cell.labels[0] if cell.labels else cell.method
    given = {**cell.params, **cell.setting} if label.endswith("(oracle)") else cell.setting
    values = ", ".join(f"{name}={value}" for name, value in given.items())
    return f"{label} [{values}]" if values else label


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def _rich_bar(total: int, completed: int) -> Any:
    """Return a running bar, or None without rich or without a terminal (a log wants lines)."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[left]} left"),
        console=Console(stderr=True),
    )
    bar.add_task("cells", total=total, completed=completed, left="?")
    bar.start()
    return bar
