"""A single-cell atlas on a Dask cluster of one machine: overhead, and workers that are killed.

    python benchmarks/bench_distributed.py                  # 100,000 cells × 20,000 genes
    python benchmarks/bench_distributed.py --cells 20000    # a quick look, nothing written

Times are of `SemFS.fit` on a cluster that is already up; the unit is the same fit in one
process, with as many threads as there are workers: of the same compressed file, or of the same
Dask array, whose blocks h5py reads. Each is the best of two. Then one of two workers is killed
(SIGKILL) in each of ten fits, at a random moment; the answer must be the right one. Writes
benchmarks/results/distributed.json.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from bench_atlas import write
from record import write_results
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.rows import open_blocks
from semfs.rows.cluster import on_cluster

GENES, K, KILLS = 20_000, 50, 10
Fit = Callable[[], SemFS]


def read_cells(path: Path, first: int, last: int) -> sp.csr_array:
    """Some rows of the file, read by a worker."""
    import h5py

    with h5py.File(path) as file:
        X, indptr = file["X"], file["X/indptr"][first : last + 1]
        part = slice(int(indptr[0]), int(indptr[-1]))
        found = (X["data"][part], X["indices"][part], indptr - indptr[0])
        return sp.csr_array(found, shape=(last - first, int(X.attrs["shape"][1])))


def collection(path: Path, n: int, step: int = 8192) -> Any:
    """The file as a Dask array of sparse blocks."""
    import dask
    import dask.array as da

    read, parts = dask.delayed(read_cells, pure=True), []
    for first in range(0, n, step):
        last = min(first + step, n)
        meta = sp.csr_array((0, 0), dtype=np.float32)
        parts.append(da.from_delayed(read(path, first, last), (last - first, GENES), meta=meta))
    return da.concatenate(parts)


def timed(fit: Fit, repeats: int = 2) -> tuple[float, list[int]]:
    """Seconds and features of the best run."""
    best = (float("inf"), [0])
    for _ in range(repeats):
        start = time.perf_counter()
        order = fit().order_[:K].tolist()
        best = min(best, (time.perf_counter() - start, order))
    return best


def cluster_of(workers: int) -> Any:
    from distributed import LocalCluster

    return LocalCluster(
        n_workers=workers, threads_per_worker=1, dashboard_address=None, memory_limit=None
    )


def run(path: Path, n: int) -> list[dict]:
    import dask
    from distributed import Client

    labels, rows = write(path, "csr-gzip", n, GENES), []

    def note(what: str, workers: int, seconds: float, unit: float, same: int, of: int) -> None:
        row = {"what": what, "workers": workers, "seconds": seconds, "ratio": seconds / unit}
        rows.append(row | {"same": same, "fits": of})
        print(f"{what:38}{workers:3}{seconds:8.1f} s{seconds / unit:7.2f} x  {same}/{of} right")

    def source() -> Any:
        return open_blocks(path, "cell_type", memory="256MB")

    for workers in (1, 2):
        with threadpool_limits(workers, user_api="blas"):
            unit, expected = timed(lambda: SemFS(K).fit(source()))
        note(f"the file, one process, {workers} thread(s)", 0, unit, unit, 1, 1)
        with dask.config.set(scheduler="threads", num_workers=workers):
            own, order = timed(lambda: SemFS(K).fit(collection(path, n), labels))
        same = int(order == expected)
        note(f"the array, one process, {workers} thread(s)", 0, own, own, same, 1)
        with cluster_of(workers) as cluster, Client(cluster) as client:
            client.wait_for_workers(workers)
            fits: dict[str, Fit] = {
                "ranges of the file": lambda c=client: SemFS(K).fit(on_cluster(source(), c)),
                "Dask array of sparse blocks": lambda: SemFS(K).fit(
                    collection(path, n), labels
                ),
            }
            for what, fit in fits.items():
                seconds, order = timed(fit)
                base = unit if what.startswith("ranges") else own
                note(what, workers, seconds, base, int(order == expected), 1)
    right, times = killed(lambda: SemFS(K).fit(collection(path, n), labels), seconds, expected)
    note("the array, a worker killed in each", 2, float(np.mean(times)), own, right, KILLS)
    return rows


def killed(fit: Fit, pace: float, expected: list[int]) -> tuple[int, list[float]]:
    """How many of ten fits were right, in each of which one worker is killed; their seconds."""
    from distributed import Client

    rng, right, times = np.random.default_rng(0), 0, []
    for _ in range(KILLS):
        with cluster_of(2) as cluster, Client(cluster) as client:
            client.wait_for_workers(2)
            victim = int(rng.choice(list(client.run(os.getpid).values())))
            moment = float(rng.uniform(0.1, 0.8)) * pace
            killer = threading.Timer(moment, os.kill, (victim, signal.SIGKILL))
            killer.start()
            seconds, order = timed(fit, repeats=1)
            assert not killer.is_alive(), "the fit ended before the worker was killed"
        right += order == expected
        times.append(seconds)
    return right, times


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=100_000)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    warnings.simplefilter("ignore")  # that these are raw counts
    with tempfile.TemporaryDirectory(prefix="semfs-bench-", dir=options.dir) as folder:
        rows = run(Path(folder) / "atlas.h5ad", options.cells)
    if options.cells == parser.get_default("cells"):
        document = {"cells": options.cells, "genes": GENES, "k": K, "cores": os.cpu_count()}
        write_results("distributed", document | {"rows": rows})


if __name__ == "__main__":
    main()
