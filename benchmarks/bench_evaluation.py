"""K-means of the clustering protocol against 20 scikit-learn fits from the same starts.

    OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 python benchmarks/bench_evaluation.py

The two are timed in turns within one run and the ratio of the medians is printed, with
the number of converged runs whose labels agree. Runs that stop at 100 iterations may
differ: scikit-learn then assigns the rows once more.
"""

import argparse
import warnings
from statistics import median
from time import perf_counter

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from semfs.evaluation import cluster_scores, starting_rows
from semfs.evaluation.clustering import run_lloyd

SIZES = [  # rows, features, clusters, times to repeat the measurement
    (200, 5, 10, 9),
    (200, 50, 10, 9),
    (2_644, 5, 12, 7),
    (2_644, 20, 12, 7),
    (2_644, 50, 12, 7),
    (48_000, 5, 8, 1),
    (48_000, 50, 8, 1),
]


def overlapping_classes(n: int, d: int, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Rectified mixtures, as skewed and overlapping as deep features are."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, K, n)
    mixing = rng.normal(size=(d, d)) / np.sqrt(d)
    rows = rng.normal(size=(K, d))[y] + 1.2 * rng.normal(size=(n, d)) @ mixing
    return np.maximum(rows, 0.0), y


def scikit_learn_runs(X: np.ndarray, starts: np.ndarray) -> list[KMeans]:
    settings = {"n_init": 1, "tol": 0, "algorithm": "lloyd", "max_iter": 100}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return [KMeans(len(s), init=X[s], **settings).fit(X) for s in starts]


def seconds(function, *arguments) -> float:
    begin = perf_counter()
    function(*arguments)
    return perf_counter() - begin


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=20, help="K-means runs (default 20)")
    repeats = parser.parse_args().repeats
    print("     n   d   K  iterations   ours ms  sklearn ms  ratio  protocol ms  same labels")
    for n, d, K, times in SIZES:
        X, y = overlapping_classes(n, d, K)
        starts = starting_rows(n, K, repeats)
        labels, n_iter, converged = run_lloyd(X, X[starts])
        fits = scikit_learn_runs(X, starts)
        same = sum(
            (a == b.labels_).all() for a, b in zip(labels[converged], np.array(fits)[converged])
        )
        ours, theirs = [], []
        for _ in range(times):
            ours.append(seconds(run_lloyd, X, X[starts]))
            theirs.append(seconds(scikit_learn_runs, X, starts))
        protocol = min(seconds(cluster_scores, X, y, 20, 0, starts) for _ in range(times))
        print(
            f"{n:6d} {d:3d} {K:3d} {n_iter.mean():11.1f} {1e3 * median(ours):9.1f}"
            f" {1e3 * median(theirs):11.1f} {median(theirs) / median(ours):6.2f}"
            f" {1e3 * protocol:12.1f}  {same} of {converged.sum()}"
        )


if __name__ == "__main__":
    main()
