"""Dask on one machine: overhead against plain blocks, speed-up, a worker killed on the way.

    python benchmarks/bench_distributed.py --dir /scratch   # n = 200,000, d = 4,096 float32
    python benchmarks/bench_distributed.py --small

Times are of `SemFS.fit` on a cluster that is already up, with one BLAS thread per worker; the
unit is the same fit from plain blocks in one process with as many BLAS threads as there are
workers (at most one per core). "One pass" forms the d × d matrix, "a few" fetch Gram columns.
Each is the best of two. CPU seconds, of all processes together, tell how much of a ratio is
due to other users of the machine. Writes benchmarks/results/distributed.json.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from record import write_results
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.rows import open_blocks
from semfs.rows.cluster import on_cluster

SIZES = {"full": (200_000, 4_096, 100), "small": (10_000, 512, 20)}
K = 50
WORKERS = (1, 2, 4)
PASSES = {"one": "one pass", "few": "a few passes"}
Fit = Callable[[], SemFS]


def make_data(folder: Path, n: int, d: int, C: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    y = rng.integers(0, C, n)
    means = rng.standard_normal((C, d), dtype=np.float32)
    np.save(folder / "X.npy", rng.standard_normal((n, d), dtype=np.float32) + means[y])
    return y


def read_rows(path: Path, offset: int, shape: tuple[int, int]) -> np.ndarray:
    rows = np.fromfile(path, np.float32, shape[0] * shape[1], offset=offset)
    return rows.reshape(shape)


def dask_array(path: Path, step: int = 8192) -> Any:
    """The file as a Dask array whose chunks are read by the workers."""
    import dask
    import dask.array as da

    mapped = np.load(path, mmap_mode="r")
    n, d = mapped.shape
    read, parts = dask.delayed(read_rows, pure=True), []
    for a in range(0, n, step):
        shape = (min(step, n - a), d)
        chunk = read(path, mapped.offset + 4 * a * d, shape)
        parts.append(da.from_delayed(chunk, shape, np.float32))
    return da.concatenate(parts)


def timed(fit: Fit, client: Any = None, repeats: int = 2) -> tuple[float, float, list[int]]:
    """Seconds, CPU seconds and features of the best run."""
    best = (float("inf"), 0.0, [0])
    for _ in range(repeats):
        start, cpu = time.perf_counter(), cpu_seconds(client)
        order = fit().order_[:K].tolist()
        seconds = time.perf_counter() - start
        best = min(best, (seconds, cpu_seconds(client) - cpu, order))
    return best


def cpu_seconds(client: Any) -> float:
    """Of this process and the workers of a client."""
    workers = {} if client is None else client.run(time.process_time)
    return time.process_time() + sum(workers.values())


def cluster_of(workers: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit=None
    )


class Table:
    """Rows of the result, printed as they come."""

    def __init__(self) -> None:
        self.rows: list[dict] = []
        self.expected: list[int] | None = None
        print(f"{'':36}{'':14}{'workers':>8}{'seconds':>9}{'ratio':>7}{'cpu':>8}{'same':>7}")

    def note(
        self, what: str, passes: str, workers: int, found: Any, unit: float | None = None
    ) -> float:
        seconds, cpu, order = found
        self.expected = self.expected or order
        ratio, same = seconds / (unit or seconds), order == self.expected
        row = {"what": what, "passes": passes, "workers": workers, "seconds": seconds}
        self.rows.append(row | {"ratio": ratio, "cpu": cpu, "same_order": same})
        print(
            f"{what:36}{PASSES[passes]:14}{workers:8}{seconds:9.2f}{ratio:7.2f}{cpu:8.2f}"
            f"{same!s:>7}",
            flush=True,
        )
        return seconds


def run(folder: Path, n: int, d: int, C: int) -> list[dict]:
    from distributed import Client

    y, cores = make_data(folder, n, d, C), os.cpu_count() or 1
    print(f"n = {n:,}, d = {d:,} float32: {4 * n * d / 1e9:.1f} GB; k = {K}; {cores} cores")
    table = Table()

    def source(passes: str) -> Any:
        return open_blocks(folder / "X.npy", y, passes=passes)

    units: dict = {}
    for passes in PASSES:
        for threads in sorted({min(w, cores) for w in WORKERS}):
            with threadpool_limits(threads, user_api="blas"):
                found = timed(lambda p=passes: SemFS(K).fit(source(p)))
            name = f"plain blocks, {threads} BLAS thread(s)"
            units[passes, threads] = table.note(name, passes, 0, found)
    for workers in WORKERS:
        with cluster_of(workers) as cluster, Client(cluster) as client:
            client.wait_for_workers(workers)
            for passes in PASSES:
                fit = lambda p=passes, c=client: SemFS(K).fit(on_cluster(source(p), c))  # noqa: E731
                unit = units[passes, min(workers, cores)]
                table.note("ranges of the file", passes, workers, timed(fit, client), unit)
            if workers <= cores:
                X, unit = dask_array(folder / "X.npy"), units["one", workers]
                found = timed(lambda X=X: SemFS(K).fit(X, y), client)
                table.note("Dask array, chunks of 8,192 rows", "one", workers, found, unit)
    found = killed(folder, y)
    table.note("Dask array, one worker killed", "one", 2, found, units["one", min(2, cores)])
    return table.rows


def killed(folder: Path, y: np.ndarray) -> tuple[float, float, list[int]]:
    """Fit while one of two workers is killed in the middle of the pass."""
    from distributed import Client

    with cluster_of(2) as cluster, Client(cluster) as client:
        client.wait_for_workers(2)
        X = dask_array(folder / "X.npy")
        pace = timed(lambda: SemFS(K).fit(X, y), repeats=1)[0]
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(0.4 * pace, os.kill, (victim, signal.SIGKILL))
        killer.start()
        found = timed(lambda: SemFS(K).fit(X, y), repeats=1)
        assert not killer.is_alive(), "the fit ended before the worker was killed"
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    n, d, C = SIZES["small" if options.small else "full"]
    folder = Path(tempfile.mkdtemp(prefix="semfs-bench-", dir=options.dir))
    try:
        rows = run(folder, n, d, C)
    finally:
        shutil.rmtree(folder)
    if not options.small:
        document = {"n": n, "d": d, "classes": C, "k": K, "cores": os.cpu_count(), "rows": rows}
        write_results("distributed", document)


if __name__ == "__main__":
    main()
