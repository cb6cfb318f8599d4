"""Kill a small `reproduce` at random times: no finished row may be lost or change.

    python tools/kill.py --kills 1000 --seed 1

A run is killed (SIGKILL) after a random time, and continued by the same call, until it is
finished; then comes the next run. After each kill all rows that were there before must still
be there, as they were; a finished run must have the rows of one that nobody disturbed. Each
attempt is a fork of this process, so that it need not import anything, and computes in itself;
``--workers`` leaves that to worker processes, as the command does (a few seconds per attempt).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from semfs.lab import Store, parallel
from semfs.lab.paper import Study, reproduce

ALLOWED_TO_DIFFER = ("seconds",)  # between two runs


def _comparable(row: dict) -> dict:
    """A row without the times, which differ between two runs."""
    kept = {name: value for name, value in row.items() if name not in ALLOWED_TO_DIFFER}
    kept["extra"] = {n: v for n, v in row.get("extra", {}).items() if n != "cpu_seconds"}
    return kept


def write_data(folder: Path) -> Study:
    """A data set of eight small classes, and the study of it."""
    rng = np.random.default_rng(0)
    y = np.arange(80) % 8
    A = rng.normal(size=(8, 3))
    X = A[y] @ rng.normal(size=(3, 20)) + rng.normal(size=(80, 20))
    np.savez(folder / "small.npz", X=X, y=y, A=A)
    methods = ("random", "variance", "anova", "markers", "semfs", "semfs-c")
    return Study(("clustering",), data=folder, methods=methods, splits=4, fast=True)


def attempt(study: Study, run: Path, workers: bool) -> int:
    """Start or continue a run in a fork; return its process id."""
    child = os.fork()
    if child:
        return child
    status = 1
    with contextlib.suppress(BaseException), open(os.devnull, "w") as nothing:
        os.dup2(nothing.fileno(), 2)
        if not workers:
            parallel._in_workers = in_this_process
        status = len(reproduce(study, run, n_jobs=1).failures)
    os._exit(status)


def in_this_process(function: Any, todo: list, claims: Any, n_workers: int) -> Any:
    return parallel._in_this_process(function, todo, claims)


def rows_of(run: Path) -> dict[str, dict]:
    """Finished rows by what they are of; none before there is a store."""
    if not (run / "results.sqlite").exists() or not (run / "results.sqlite").stat().st_size:
        return {}
    with contextlib.closing(Store(run, create=False)) as store:
        return {f"{[row[n] for n in ('split', 'method', 'k')]}": row for row in store.rows()}


def lasting(rows: dict[str, dict]) -> dict[str, dict]:
    return {name: _comparable(row) for name, row in rows.items()}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", action="store_true", help="compute in worker processes")
    options = parser.parse_args()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        counts = disturb(write_data(folder), folder, rng, options.kills, options.workers)
    print(f"seed {options.seed}: " + ", ".join(f"{n} {what}" for what, n in counts.items()))
    return int(counts["rows lost"] + counts["rows changed"] + counts["runs that failed"] > 0)


def disturb(
    study: Study, folder: Path, rng: np.random.Generator, n_kills: int, workers: bool
) -> dict[str, int]:
    """Kill runs so many times and return what was counted."""
    in_workers = parallel._in_workers
    parallel._in_workers = in_this_process
    reproduce(study, folder / "warm")  # what this imports, no fork has to
    parallel._in_workers = in_workers
    started = time.perf_counter()
    if os.waitpid(attempt(study, folder / "whole", workers), 0)[1]:
        raise RuntimeError("the undisturbed run failed")
    longest = 0.7 * (time.perf_counter() - started)
    whole = lasting(rows_of(folder / "whole"))
    names = ("kills", "kills in which rows were there", "runs finished", "runs that failed")
    counts = dict.fromkeys([*names, "rows lost", "rows changed"], 0)
    counts["rows of a run"] = len(whole)
    while counts["kills"] < n_kills:
        run = folder / f"run{counts['runs finished']}"
        before: dict[str, dict] = {}
        finished = False
        while not finished and counts["kills"] < n_kills:
            child = attempt(study, run, workers)
            time.sleep(rng.uniform(0, longest))
            ended, status = os.waitpid(child, os.WNOHANG)
            finished = bool(ended)
            if not finished:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
                counts["kills"] += 1
            elif status:
                counts["runs that failed"] += 1
            after = rows_of(run)
            counts["kills in which rows were there"] += bool(before) and not finished
            counts["rows lost"] += len(before.keys() - after.keys())
            counts["rows changed"] += sum(
                before[name] != after[name] for name in before.keys() & after.keys()
            )
            before = after
        if finished:
            counts["runs finished"] += 1
            found = lasting(before)
            counts["rows lost"] += len(whole.keys() - found.keys())
            counts["rows changed"] += sum(
                whole[name] != found[name] for name in whole.keys() & found.keys()
            )
    return counts


if __name__ == "__main__":
    sys.exit(main())
