"""Dask on one machine: overhead against plain blocks, speed-up, a worker killed on the way.

    python benchmarks/bench_distributed.py --dir /scratch   # n = 100,000, d = 4,096 float32
    python benchmarks/bench_distributed.py --small

Times are of `SemFS.fit` on a cluster that is already up, with one BLAS thread per worker; the
unit is the same fit from plain blocks in one process with as many BLAS threads as there are
workers. Each is the best of three. CPU seconds, of all processes together, tell how much of a
ratio is due to other users of the machine. Writes benchmarks/results/distributed.json.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_limits

RESULTS = Path(__file__).parent / "results" / "distributed.json"
SIZES = {"full": (100_000, 4_096, 100), "small": (10_000, 512, 20)}
K = 50


def make_data(folder: Path, n: int, d: int, C: int) -> np.ndarray:
    rng = np.random.default_rng(0)
    y = rng.integers(0, C, n)
    means = rng.standard_normal((C, d), dtype=np.float32)
    np.save(folder / "X.npy", rng.standard_normal((n, d), dtype=np.float32) + means[y])
    return y


def read_rows(path: Path, rows: slice) -> np.ndarray:
    return np.array(np.load(path, mmap_mode="r")[rows])


def dask_array(path: Path, step: int = 8192):
    """The file as a Dask array whose chunks are read by the workers."""
    import dask
    import dask.array as da

    n, d = np.load(path, mmap_mode="r").shape
    read = dask.delayed(read_rows, pure=True)
    parts = [
        da.from_delayed(
            read(path, slice(a, min(a + step, n))), (min(step, n - a), d), np.float32
        )
        for a in range(0, n, step)
    ]
    return da.concatenate(parts)


Found = tuple[float, float, list[int]]  # seconds, CPU seconds, features


def timed(function, client=None, repeats: int = 3) -> Found:
    best: Found = (float("inf"), 0.0, [])
    for _ in range(repeats):
        start, cpu = time.perf_counter(), cpu_seconds(client)
        order = function().order_[:K].tolist()
        seconds = time.perf_counter() - start
        best = min(best, (seconds, cpu_seconds(client) - cpu, order))
    return best


def cpu_seconds(client) -> float:
    """Of this process and the workers of a client."""
    workers = {} if client is None else client.run(time.process_time)
    return time.process_time() + sum(workers.values())


def cluster_of(workers: int):
    from distributed import Client, LocalCluster

    cluster = LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit=None
    )
    return cluster, Client(cluster)


def run(folder: Path, n: int, d: int, C: int) -> list[dict]:
    from semfs import SemFS
    from semfs.rows import open_blocks
    from semfs.rows.cluster import on_cluster

    y = make_data(folder, n, d, C)
    rows: list[dict] = []

    def note(what: str, workers: int, found: Found, unit: float) -> None:
        seconds, cpu, order = found
        expected = rows[0]["order"] if rows else order
        row = {"what": what, "workers": workers, "seconds": seconds, "ratio": seconds / unit}
        row["cpu"] = cpu
        rows.append(row | {"same_order": order == expected, "order": order})
        print(
            f"{what:44}{workers:8}{seconds:9.2f}{seconds / unit:7.2f}{cpu:8.2f}"
            f"{order == expected!s:>7}",
            flush=True,
        )

    def plain():
        return SemFS(K).fit(open_blocks(folder / "X.npy", y, passes="one"))

    print(f"n = {n:,}, d = {d:,} float32: {4 * n * d / 1e9:.1f} GB; k = {K}")
    print(f"{'':44}{'workers':>8}{'seconds':>9}{'ratio':>7}{'cpu':>8}{'same':>7}")
    units = {}
    for threads in (1, 2):
        with threadpool_limits(threads, user_api="blas"):
            found = timed(plain)
        units[threads] = found[0]
        note(f"plain blocks, {threads} BLAS thread(s)", 0, found, found[0])
    for workers in (1, 2):
        cluster, client = cluster_of(workers)
        with cluster, client:
            client.wait_for_workers(workers)
            source = open_blocks(folder / "X.npy", y, passes="one")
            found = timed(
                lambda source=source, client=client: SemFS(K).fit(on_cluster(source, client)),
                client,
            )
            note("Dask, ranges of the file", workers, found, units[workers])
            X = dask_array(folder / "X.npy")
            found = timed(lambda X=X: SemFS(K).fit(X, y), client)
            note("Dask array, chunks of 8,192 rows", workers, found, units[workers])
    found = killed(folder, y)
    note("Dask array, one worker killed with SIGKILL", 2, found, units[2])
    return rows


def killed(folder: Path, y: np.ndarray) -> Found:
    """Fit while one of two workers is killed in the middle of the pass."""
    from semfs import SemFS

    cluster, client = cluster_of(2)
    with cluster, client:
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
    for row in rows:
        del row["order"]
    if not options.small:
        RESULTS.parent.mkdir(exist_ok=True)
        document = {"n": n, "d": d, "classes": C, "k": K, "cores": os.cpu_count(), "rows": rows}
        document |= {"python": platform.python_version(), "numpy": np.__version__}
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
