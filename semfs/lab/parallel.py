"""Run many jobs: in parallel, and so that a run can be stopped and continued.

A finished job is never computed again, a failed one is recorded and tried again by the next
run, and a run may be killed at any moment.
"""

from __future__ import annotations

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
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from multiprocessing import resource_tracker
from typing import Any, NamedTuple, Self, TypeAlias

from joblib import cpu_count
from joblib.externals.loky import ProcessPoolExecutor
from joblib.externals.loky.backend import resource_tracker as loky_tracker
from threadpoolctl import threadpool_limits

from semfs.lab.store import Job, Result, Store
from semfs.progress import Progress
from semfs.validation import check_integer

#: How often, in seconds, a worker looks whether its parent is alive, and a run whether
#: another process has finished or given up the last jobs.
WATCH_SECONDS = 0.5

#: The last digits of sums depend on the number of threads. One in every worker gives the
#: same results for any number of workers.
BLAS_THREADS = 1

#: Frames of a traceback that are stored with a failure.
TRACEBACK_FRAMES = 4

#: Computes one job.
Function: TypeAlias = Callable[[Job], Result]


class Outcome(NamedTuple):
    """A job with its result, or with the error that it ended with."""

    job: Job
    result: Result | None
    error: str = ""


Outcomes: TypeAlias = Generator[Outcome, None, None]


@dataclass
class Summary:
    """Summary of a run.

    Parameters
    ----------
    n_total, n_before, n_computed : int
        Total number of jobs, number of jobs finished before this run, and number of jobs
        computed by this run.
    failures : list of (Job, str)
        Failed jobs with their errors.
    notes : list of str
        Remarks for the user.
    seconds : float
        Duration of the run.
    info : dict
        Facts about the run for `semfs.lab.report.write_report`.
    details : list of Details
        The results of `semfs.lab.details`, if they were requested.
    """

    n_total: int = 0
    n_before: int = 0
    n_computed: int = 0
    failures: list[tuple[Job, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    info: dict[str, Any] = field(default_factory=dict)
    details: list[Any] = field(default_factory=list)

    def __add__(self, other: Self) -> Self:
        return type(self)(
            n_total=self.n_total + other.n_total,
            n_before=self.n_before + other.n_before,
            n_computed=self.n_computed + other.n_computed,
            failures=self.failures + other.failures,
            notes=self.notes + other.notes,
            seconds=self.seconds + other.seconds,
            info=self.info | other.info,
        )


def run(
    jobs: Iterable[Job],
    store: Store,
    function: Function,
    *,
    n_jobs: int | None = None,
    verbose: bool = False,
) -> Summary:
    """Compute the jobs that are not in the store, and commit each job when it is done.

    Parameters
    ----------
    jobs : iterable of Job
        The jobs of the run. Repeated jobs are computed once.
    store : Store
        The store of finished jobs, to which the results are added.
    function : callable
        Function that computes one job. It runs in worker processes with one BLAS thread each,
        so results do not depend on ``n_jobs``.
    n_jobs : int, optional
        Number of worker processes. The default is one per core. If it is 1 and the store is in
        memory, jobs are computed in the current process.
    verbose : bool, default=False
        Whether to show progress and the remaining time.
    """
    if n_jobs is not None:
        check_integer("n_jobs", n_jobs, 1)
    # The same job may be part of two experiments; it is computed once.
    jobs = list({job.key: job for job in jobs}.values())
    todo = [job for job in jobs if not store.is_done(job)]
    summary = Summary(n_total=len(jobs))
    started = time.perf_counter()
    with Progress("jobs", len(todo), verbose) as progress:
        while todo:
            claims = _Claims(store)
            outcomes = _outcomes(function, todo, claims, n_jobs)
            with closing(outcomes):
                for outcome in outcomes:
                    _record(outcome, store, summary)
                    progress.step(_progress_line(outcome))
            # Other processes are computing these. Wait until they have finished, or ended
            # without finishing: then the jobs are ours.
            todo = claims.refused
            if todo:
                time.sleep(WATCH_SECONDS)
    # Also what other processes finished while this one was running.
    summary.n_before = len(jobs) - summary.n_computed - len(summary.failures)
    summary.seconds = time.perf_counter() - started
    return summary


def versions() -> dict[str, str]:
    """Return the package versions on which results depend."""
    import semfs

    return {
        "semfs": semfs.__version__,
        "python": sys.version.split()[0],
        "numpy": importlib.metadata.version("numpy"),
        "scipy": importlib.metadata.version("scipy"),
        "sklearn": importlib.metadata.version("scikit-learn"),
    }


class _Claims:
    """Claims jobs for this process; ``refused`` are those that other processes are at."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.refused: list[Job] = []

    def claim(self, job: Job) -> bool:
        """Claim a job; not if another process is at it or has finished it."""
        if not self.store.claim(job):
            self.refused.append(job)
            return False
        # It may have been finished between the listing of jobs and this claim.
        if self.store.is_done(job):
            self.store.release(job)
            return False
        return True


def _outcomes(
    function: Function,
    todo: Sequence[Job],
    claims: _Claims,
    n_jobs: int | None,
) -> Outcomes:
    """Compute jobs, in this process or in workers."""
    # A run directory always gets workers, so that a job which crashes Python does not end
    # the run.
    if claims.store.path is None and n_jobs == 1:
        return _in_this_process(function, todo, claims)
    n_workers = min(n_jobs or cpu_count(), len(todo))
    return _in_workers(function, todo, claims, n_workers)


def _record(outcome: Outcome, store: Store, summary: Summary) -> None:
    """Commit an outcome and count it."""
    job, result, error = outcome
    if result is not None:
        store.finish(job, result, versions())
        summary.n_computed += 1
    else:
        store.fail(job, error)
        summary.failures.append((job, error))
    store.release(job)


def _progress_line(outcome: Outcome) -> str:
    """Return the outcome of a job in one line that is safe to print on a terminal."""
    job = outcome.job
    setting = ", ".join(f"{name}={value}" for name, value in job.setting.items())
    words = [job.experiment, job.dataset, job.split, job.label or job.method, setting]
    status = "done"
    if outcome.error:
        status = f"FAILED: {outcome.error.splitlines()[0]}"
    text = f"{' · '.join(word for word in words if word)}: {status}"
    # Names come from files: control characters could steer the terminal.
    return "".join(letter for letter in " ".join(text.split()) if letter.isprintable())


def _in_this_process(
    function: Function,
    todo: Sequence[Job],
    claims: _Claims,
) -> Outcomes:
    """Compute jobs one after the other."""
    for job in todo:
        if claims.claim(job):
            yield _compute(function, job)


def _in_workers(
    function: Function,
    todo: Sequence[Job],
    claims: _Claims,
    n_workers: int,
) -> Outcomes:
    """Compute jobs in worker processes, also if some of them make a worker die.

    A dead worker breaks its pool, and any of the jobs under way may have killed it.
    They become suspects, and are computed one at a time in new pools: a suspect that breaks
    its pool is the one that fails.
    """
    waiting = deque(todo)
    suspects: deque[Job] = deque()
    while waiting or suspects:
        if suspects:
            yield from _in_one_pool(function, suspects, claims, 1, None)
        else:
            yield from _in_one_pool(function, waiting, claims, n_workers, suspects)


def _in_one_pool(
    function: Function,
    waiting: deque[Job],
    claims: _Claims,
    n_workers: int,
    suspects: deque[Job] | None,
) -> Outcomes:
    """Compute the jobs ``waiting`` in one pool, until there are none or the pool breaks.

    Jobs under way when it breaks go to ``suspects``; if that is None, they fail.
    """
    busy: dict[Future[Outcome], Job] = {}
    is_whole = True
    with ExitStack() as stack:
        # joblib's pool (loky) does not run the user's script a second time.
        pool = ProcessPoolExecutor(
            n_workers, initializer=_start_worker, initargs=(function, os.getpid())
        )
        # After Ctrl-C workers are in the middle of a job, and must not go on.
        stack.callback(pool.shutdown, kill_workers=True)
        while busy or (waiting and is_whole):
            # One job per worker at a time: a job waiting in the pool could not be given to
            # another process, and would be a suspect if the pool breaks.
            while waiting and is_whole and len(busy) < n_workers:
                job = waiting.popleft()
                if claims.claim(job):
                    busy[_submit(pool, job)] = job
            for future in wait(busy, return_when=FIRST_COMPLETED).done:
                job = busy.pop(future)
                error = future.exception()
                if isinstance(error, BrokenProcessPool):
                    # It takes no further job; all jobs under way raise the same error.
                    is_whole = False
                if error is None:
                    yield future.result()
                elif is_whole or suspects is None:
                    yield Outcome(job, None, _describe(error))
                else:
                    suspects.append(job)


def _submit(pool: ProcessPoolExecutor, job: Job) -> Future[Outcome]:
    """Hand a job to the pool. Workers start here, which may take seconds."""
    with _interrupt_deferred():
        try:
            future: Future[Outcome] = pool.submit(_compute_in_worker, job)
        except BrokenProcessPool as error:
            # An idle worker died. The caller handles this like a job that broke the pool.
            future = Future()
            future.set_exception(error)
    return future


@contextmanager
def _interrupt_deferred() -> Generator[None, None, None]:
    """Processes started here are deaf to SIGINT; this process handles it at the end.

    A terminal sends Ctrl-C to all processes, and the parent alone shall handle it. If it
    ignored the signal meanwhile, one that arrives while workers start would be lost.
    """
    # A resource tracker that starts unblocks the signal.
    resource_tracker.ensure_running()
    loky_tracker.ensure_running()
    received: list[int] = []
    # Only the main thread may set signal handlers.
    in_main_thread = threading.current_thread() is threading.main_thread()
    if in_main_thread:
        # Other threads do not block the signal; the handler runs in this one all the same.
        handler = signal.signal(signal.SIGINT, lambda number, _: received.append(number))
    if sys.platform != "win32":
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if in_main_thread:
            signal.signal(signal.SIGINT, handler)
        if received:
            signal.raise_signal(signal.SIGINT)


# The function of a worker process: it is sent once, not with every job.
_worker_function: Function | None = None


def _start_worker(function: Function, parent: int) -> None:
    """Prepare a worker process: its output goes to stderr, and it ends with its parent."""
    global _worker_function
    _worker_function = function
    # The parent may be printing JSON to stdout; a library that prints must not spoil it.
    os.dup2(2, 1)
    threading.Thread(target=_end_with_parent, args=(parent,), daemon=True).start()


def _end_with_parent(parent: int) -> None:
    """End this process, in the middle of a job if need be, when the parent is gone."""
    while os.getppid() == parent:
        time.sleep(WATCH_SECONDS)
    os._exit(0)  # sys.exit would only end this thread


def _compute_in_worker(job: Job) -> Outcome:
    """Compute a job with the function that the worker was started with."""
    if _worker_function is None:
        raise RuntimeError("This worker process was not started by _start_worker.")
    return _compute(_worker_function, job)


def _compute(function: Function, job: Job) -> Outcome:
    """Compute a job with one BLAS thread; an exception becomes text."""
    try:
        with threadpool_limits(BLAS_THREADS):
            return Outcome(job, function(job))
    except Exception as error:
        # Not BaseException: Ctrl-C in this process must end the run.
        return Outcome(job, None, _describe(error))


def _describe(error: BaseException) -> str:
    """Type and message on the first line, then the last frames of the traceback."""
    lines = traceback.format_exception(error, limit=-TRACEBACK_FRAMES)
    return f"{type(error).__name__}: {error}\n{''.join(lines)}"
