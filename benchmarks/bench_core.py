"""Speed and memory of the core, as ratios within one run (absolute times prove nothing).

Prints a table and writes benchmarks/results/core.json, which the documentation shows.

    python benchmarks/bench_core.py             # SUN size: n = 14,140, d = 4,096, 707 classes
    python benchmarks/bench_core.py --small     # a quick look
    python benchmarks/bench_core.py --no-peers  # without abess, fastcan, skglm, MultiTaskLasso
    python benchmarks/bench_core.py --runs 3    # the whole of it so often; the spread is shown

Peers are measured when they are installed: pip install abess fastcan skglm.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import platform
import resource
import sys
import time
import warnings
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
from record import measured_apart, write_results

SIZES = {"full": (14_140, 4_096, 707, 102), "small": (2_000, 512, 50, 20)}
K = 50
N_UNLABELLED, N_NEW = 5_000, 100


@dataclass
class Row:
    """One line of the table."""

    what: str
    ratio: float  # to one X.T @ X of the same process; the median of all runs
    ratios: list[float]  # of each run
    seconds: float
    memory_mb: float  # peak resident memory above the data
    note: str


def make_data(n: int, d: int, C: int, m: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Classes of equal size whose means depend on their attributes; float32, rows shuffled."""
    rng = np.random.default_rng(0)
    A = rng.random((C, m))
    y = np.arange(n) % C
    rng.shuffle(y)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += (0.3 * A @ rng.standard_normal((m, d))).astype(np.float32)[y]
    return X, y, A


def peak_mb() -> float:
    """Peak resident memory of this process so far."""
    unit = 2**20 if platform.system() == "Darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def forget_peak() -> float:
    """Let the peak be what is in use now, where the system can, and return it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return peak_mb()


def best_of(function, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        time.sleep(0.2)  # idle BLAS threads of the call before keep a core busy for a while
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


# ---- what is measured; each runs in a process of its own ----------------------------------


def semfs_direct(X, y, A):
    from semfs import SemFS

    SemFS(K, attributes=A).fit(X, y)


def semfs_direct_small_penalty(X, y, A):
    from semfs import SemFS

    SemFS(K, attributes=A, gamma=1.0).fit(X, y)


def semfs_direct_labels(X, y, A):
    from semfs import SemFS

    SemFS(K).fit(X, y)


def semfs_unlabeled(X, y, A):
    from semfs import SemFS

    rng = np.random.default_rng(1)
    new = np.arange(N_UNLABELLED) % N_NEW
    mixing = rng.standard_normal((A.shape[1], X.shape[1]))
    centers = 0.3 * rng.random((N_NEW, A.shape[1])) @ mixing
    Xu = rng.standard_normal((N_UNLABELLED, X.shape[1]), dtype=np.float32)
    Xu += centers.astype(np.float32)[new]
    return lambda: SemFS(K, attributes=A).fit(X, y, X_unlabeled=Xu)


def semfs_alternating(X, y, A):
    from semfs import SemFS

    SemFS(K, attributes=A, solver="alternating", max_iter=20, tol=0).fit(X, y)


def semfs_published(X, y, A):
    from semfs import AS_PUBLISHED, SemFS

    SemFS(K, attributes=A, **{**AS_PUBLISHED, "tol": 0, "max_iter": 20}).fit(X, y)


def anova(X, y, A):
    from sklearn.feature_selection import SelectKBest

    SelectKBest(k=K).fit(X, y)


def abess(X, y, A):
    from abess import MultiTaskRegression

    MultiTaskRegression(support_size=K).fit(X.astype(np.float64), A[y])


def fastcan(X, y, A):
    from fastcan import FastCan

    FastCan(n_features_to_select=K, verbose=0).fit(X, A[y])


def multitask_lasso(X, y, A):
    from sklearn.linear_model import MultiTaskLasso

    X = X - X.mean(axis=0)
    Y = (A[y] - A[y].mean(axis=0)).astype(np.float32)
    rows = np.linalg.norm(X.T @ Y, axis=1) / len(X)
    MultiTaskLasso(alpha=penalty_for(rows), fit_intercept=False).fit(X, Y)


def skglm(X, y, A):
    from skglm.estimators import MultiTaskLasso

    X = (X - X.mean(axis=0)).astype(np.float64)
    Y = A[y] - A[y].mean(axis=0)
    rows = np.linalg.norm(X.T @ Y, axis=1) / len(X)
    model = MultiTaskLasso(alpha=penalty_for(rows), fit_intercept=False)
    model.fit(X[:200], Y[:200])  # compile first: the compiler is not what is measured
    return lambda: model.fit(X, Y)


def penalty_for(rows: np.ndarray) -> float:
    """A penalty that leaves about K rows: these methods cannot be asked for K features."""
    return float(np.sort(rows)[-K])


MEASURED = {
    "semfs direct": (semfs_direct, 3, "50 features, attributes, default parameters"),
    "semfs direct, gamma = 1": (semfs_direct_small_penalty, 3, "more columns of G are needed"),
    "semfs direct on labels": (semfs_direct_labels, 3, "attributes=None: one target per class"),
    "semfs direct, unlabeled samples": (semfs_unlabeled, 3, "and 5,000 of unseen classes"),
    "semfs alternating": (semfs_alternating, 3, "20 rounds, default penalty"),
    "semfs as published": (semfs_published, 3, "20 rounds, gamma = 0.1 absolute"),
    "ANOVA F": (anova, 2, "scikit-learn SelectKBest"),
    "abess": (abess, 1, "multi-task best subset, 50 features"),
    "MultiTaskLasso": (multitask_lasso, 1, "scikit-learn, float32, one penalty"),
    "skglm": (skglm, 1, "MultiTaskLasso, float64, one penalty, without compilation"),
    "fastcan": (fastcan, 1, "greedy, matrix target, 50 features"),
}
PEERS = {"abess": "abess", "skglm": "skglm", "fastcan": "fastcan", "MultiTaskLasso": "sklearn"}


def measure(name: str, size: str) -> Row:
    """Run one entry here and now."""
    warnings.simplefilter("ignore")
    function, repeats, note = MEASURED[name]
    from semfs import SemFS  # imports, and what the first fit imports, are not measured

    SemFS(2, np.eye(4)).fit(np.random.default_rng(0).random((40, 9)), np.arange(40) % 4)
    X, y, A = make_data(*SIZES[size])
    before = forget_peak()
    start = time.perf_counter()
    prepared = function(X, y, A)
    seconds = time.perf_counter() - start
    if callable(prepared):
        before = forget_peak()
        seconds = best_of(prepared, repeats)
    memory = peak_mb() - before
    if repeats > 1 and not callable(prepared):
        seconds = min(seconds, best_of(lambda: function(X, y, A), repeats - 1))
    unit = best_of(lambda: X.T @ X, 3)
    return Row(name, seconds / unit, [seconds / unit], seconds, memory, note)


def measure_runs(name: str, size: str, runs: int) -> Row:
    """Run one entry in fresh processes; the run of median ratio stands for all."""
    options = ["--small"] if size == "small" else []
    found = [Row(**measured_apart(name, *options)) for _ in range(runs)]
    rows = sorted(found, key=lambda row: row.ratio)
    return replace(rows[len(rows) // 2], ratios=[row.ratio for row in rows])


def growth(sizes: list[tuple[int, int]], along: int) -> dict:
    """Fit time ~ size^p over sizes (n, d), of which number ``along`` grows."""
    from semfs import SemFS

    points = []
    for n, d in sizes:
        X, y, A = make_data(n, d, 100, 20)
        fit = SemFS(K, attributes=A).fit
        seconds = best_of(lambda fit=fit, X=X, y=y: fit(X, y), 3)
        points.append(((n, d)[along], seconds))
    slope, _ = np.polyfit(*np.log(np.array(points).T), 1)
    return {"exponent": float(slope), "points": points}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--no-peers", action="store_true")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--only", help="comma-separated names")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    size = "small" if options.small else "full"
    if options.one:
        print(json.dumps(asdict(measure(options.one, size))))
        return
    names = options.only.split(",") if options.only else list(MEASURED)
    rows = []
    print(f"{SIZES[size]} (n, d, classes, attributes), k = {K}; unit: one float32 X.T @ X")
    print(f"{'':24}{'x X.T@X':>9}{'spread':>14}{'seconds':>9}{'MB':>8}  note")
    for name in names:
        module = PEERS.get(name)
        if module and (options.no_peers or importlib.util.find_spec(module) is None):
            print(f"{name:24}  left out ({'asked' if options.no_peers else 'not installed'})")
            continue
        row = measure_runs(name, size, 1 if module else options.runs)
        rows.append(row)
        spread = f"{row.ratios[0]:.2f} to {row.ratios[-1]:.2f}"
        print(
            f"{name:24}{row.ratio:9.2f}{spread:>14}{row.seconds:9.2f}{row.memory_mb:8.0f}  "
            f"{row.note}",
            flush=True,
        )
    powers = [2**i for i in range(6 if size == "full" else 4)]
    grown = {
        "n": growth([(2_000 * i, 512) for i in powers], 0),
        "d": growth([(2_000, 1_024 * i) for i in powers[:5]], 1),
    }
    for letter, found in grown.items():
        first, *_, last = found["points"]
        print(
            f"time of direct grows as {letter}^{found['exponent']:.2f} over "
            f"{first[0]:,} ... {last[0]:,}"
        )
    document = {
        "size": dict(zip(("n", "d", "classes", "attributes"), SIZES[size])),
        "k": K,
        "rows": [asdict(row) for row in rows],
        "growth": grown,
    }
    if size == "full" and not options.only:
        command = " ".join(["python benchmarks/bench_core.py", *sys.argv[1:]])
        print(f"written to {write_results('core', document, command)}")


if __name__ == "__main__":
    main()
