"""Cost of SemFSCV in units of one SemFS.fit, and how faithful its short cuts are.

Prints two tables and writes benchmarks/results/crossval.json.

    python benchmarks/bench_crossval.py            # n = 14,140, d = 4,096, 707 classes
    python benchmarks/bench_crossval.py --small    # a quick look

The clustering that SemFSCV asks for is timed apart: it is what the user pays for the answer,
and depends on the number of K-means runs.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
from record import write_results
from threadpoolctl import threadpool_info

import semfs.selectors.semfs_cv as crossval
from semfs import SemFS
from semfs.selectors.semfs_cv import SemFSCV

SIZES = {"full": (14_140, 4_096, 707, 102), "small": (2_000, 512, 50, 20)}
K = 50
REPEATS = 2
GRID = {
    "gamma": [1.0, 10.0, 100.0],
    "fit_intercept": [True, False],
    "class_weight": [None, "balanced"],
    "label_weight": [0.0, 30.0],
}


def make_data(n: int, d: int, C: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes of nearly equal size whose means depend on their attributes; float32."""
    rng = np.random.default_rng(0)
    A = rng.random((C, m))
    y = np.concatenate([np.arange(C), rng.integers(0, C, n - C)])
    rng.shuffle(y)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += (0.3 * A @ rng.standard_normal((m, d))).astype(np.float32)[y]
    return X, y, A


def seconds(function, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


class Clustering:
    """cluster_scores with a stopwatch."""

    def __init__(self) -> None:
        self.seconds, self.calls = 0.0, 0
        self.function = crossval.cluster_scores

    def __call__(self, *args, **kwargs):
        start = time.perf_counter()
        try:
            return self.function(*args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - start
            self.calls += 1


def cost(X: np.ndarray, y: np.ndarray, A: np.ndarray, n_repeats: int) -> dict[str, float]:
    """Seconds of a single fit, of cross-validation without clustering, and of clustering."""
    singles, runs = [], []
    for _ in range(REPEATS):  # in turns, so that a busy moment hits both
        singles.append(seconds(lambda: SemFS(K, A).fit(X, y), 2))
        watch = Clustering()
        crossval.cluster_scores = watch
        try:
            start = time.perf_counter()
            selector = SemFSCV(K, A, param_grid=GRID, cv=5, n_repeats=n_repeats).fit(X, y)
            runs.append((time.perf_counter() - start - watch.seconds, watch))
        finally:
            crossval.cluster_scores = watch.function
    single = min(singles)
    without, watch = min(runs, key=lambda run: run[0])
    return {
        "n_splits": selector.n_splits_,
        "n_settings": len(selector.cv_results_["params"]),
        "single_fit_seconds": single,
        "crossval_seconds": without,
        "clustering_seconds": watch.seconds,
        "clusterings": watch.calls,
        "ratio": without / single,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--repeats", type=int, default=1, help="K-means runs per question")
    options = parser.parse_args()
    n, d, C, m = SIZES["small" if options.small else "full"]
    X, y, A = make_data(n, d, C, m)
    found = cost(X, y, A, options.repeats)
    print(f"n = {n:,}, d = {d:,}, {C} classes, {m} attributes, k = {K}")
    print(f"one SemFS.fit                       {found['single_fit_seconds']:8.2f} s")
    print(
        f"SemFSCV, {found['n_splits']} folds × {found['n_settings']} settings        "
        f"{found['crossval_seconds']:8.2f} s = {found['ratio']:.2f} × (goal: at most 4)"
    )
    print(
        f"K-means, {found['clusterings']} questions × {options.repeats} runs  "
        f"{found['clustering_seconds']:8.2f} s"
    )
    if not options.small:
        sizes = {"n": n, "d": d, "classes": C, "attributes": m, "k": K}
        threads = max(pool["num_threads"] for pool in threadpool_info())
        write_results("crossval", {"size": sizes, "threads": threads, **found})


if __name__ == "__main__":
    main()
