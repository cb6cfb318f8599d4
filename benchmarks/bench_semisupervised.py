"""Do labels beside attributes, and unlabelled rows, help on classes never seen?

For many random splits into seen and unseen classes, the same selector with and without the
option; K-means on held-out rows of the unseen classes, mean of ACC and NMI over several
numbers of features; differences paired over the splits, with 95 % intervals. Prints a table
and writes benchmarks/results/semisupervised.json.

    python benchmarks/bench_semisupervised.py                     # digits and the bundled cells
    python benchmarks/bench_semisupervised.py --data DIR          # also .npz files found there
    python benchmarks/bench_semisupervised.py --splits 10         # a quick look

Unlabelled rows are half of the rows of the unseen classes; the other half is clustered. A
file has arrays X, y and A as `semfs.datasets.load_npz` reads them.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import t
from sklearn.datasets import load_digits

from semfs import SemFS
from semfs.datasets import load_npz, load_sample
from semfs.evaluation import cluster_scores

RESULTS = Path(__file__).parent / "results" / "semisupervised.json"
KS = (5, 10, 20, 40)
MOST_UNSEEN = 10
MOST_ROWS = 6_000
LABEL_WEIGHTS = (0.3, 1.0, 3.0, 10.0)


def data_sets(folder: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray, Any]]:
    """Yield name, X, y (0-based codes) and the attribute table, if there is one."""
    X, y = load_digits(return_X_y=True)
    yield "digits", X.astype(np.float32), y, None
    cells = load_sample("blood")
    labels, codes = np.unique(cells.y, return_inverse=True)
    yield "blood cells", cells.X, codes, cells.attributes.loc[labels].to_numpy(float)
    for path in sorted(folder.glob("*.npz")) if folder else []:
        try:
            data = load_npz(path)
        except Exception as error:  # not one of ours
            print(f"{path.name}: skipped ({error})")
            continue
        rows = np.random.default_rng(0).permutation(data.X.shape[0])[:MOST_ROWS]
        labels, codes = np.unique(data.y[rows], return_inverse=True)
        X = data.X[rows]
        X = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
        yield (
            path.stem,
            X.astype(np.float32),
            codes,
            data.attributes.loc[labels].to_numpy(float),
        )


def score(X: np.ndarray, y: np.ndarray, order: np.ndarray) -> float:
    ks = [k for k in KS if k <= X.shape[1]]
    return float(np.mean([np.mean(cluster_scores(X[:, order[:k]], y, 5, 0)) for k in ks]))


def compare(
    X: np.ndarray, y: np.ndarray, A: Any, n_splits: int, n_seen: int, rng: np.random.Generator
) -> dict[str, list[float]]:
    """Scores of each option over the splits."""
    found: dict[str, list[float]] = {}
    classes, k = np.unique(y), max(KS)
    k = min(k, X.shape[1] - 1)
    for _ in range(n_splits):
        mixed = rng.permutation(classes)
        seen, unseen = mixed[:n_seen], mixed[n_seen : n_seen + MOST_UNSEEN]
        rows = np.flatnonzero(np.isin(y, seen))
        others = rng.permutation(np.flatnonzero(np.isin(y, unseen)))
        unlabeled, test = np.array_split(others, 2)
        made = {"plain": SemFS(k, A).fit(X[rows], y[rows])}
        if A is not None:
            made["labels only"] = SemFS(k).fit(X[rows], y[rows])
            spread = float(A[seen].var(axis=0).sum())  # β relative to the attributes
            for weight in LABEL_WEIGHTS:
                selector = SemFS(k, A, label_weight=weight * spread)
                made[f"label_weight {weight:g}"] = selector.fit(X[rows], y[rows])
        made["unlabelled rows"] = SemFS(k, A).fit(X[rows], y[rows], X_unlabeled=X[unlabeled])
        for name, selector in made.items():
            found.setdefault(name, []).append(score(X[test], y[test], selector.order_))
    return found


def summary(values: list[float], plain: list[float]) -> dict[str, Any]:
    """Mean, and mean paired difference with its 95 % interval."""
    difference = np.array(values) - np.array(plain)
    n = len(difference)
    half = float(t.ppf(0.975, n - 1) * difference.std(ddof=1) / np.sqrt(n)) if n > 1 else 0.0
    mean = float(difference.mean())
    return {
        "score": float(np.mean(values)),
        "difference": mean,
        "low": mean - half,
        "high": mean + half,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of .npz files")
    parser.add_argument("--splits", type=int, default=30)
    parser.add_argument("--most-columns", type=int, default=1280)
    options = parser.parse_args()
    results: dict[str, Any] = {"splits": options.splits, "k": list(KS), "data": {}}
    for name, X, y, A in data_sets(options.data):
        X = X[:, : options.most_columns]
        n_classes = len(np.unique(y))
        for n_seen in sorted({2, n_classes // 2} if n_classes <= 10 else {n_classes // 2}):
            rng = np.random.default_rng(0)
            found = compare(X, y, A, options.splits, n_seen, rng)
            place = f"{name}, {n_seen} seen"
            results["data"][place] = {}
            for option, values in found.items():
                line = summary(values, found["plain"])
                results["data"][place][option] = line
                sign = "*" if line["low"] > 0 else ("-" if line["high"] < 0 else " ")
                print(
                    f"{place:32s} {option:22s} {line['score']:.3f}  {line['difference']:+.4f} "
                    f"[{line['low']:+.4f}, {line['high']:+.4f}] {sign}",
                    flush=True,
                )
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
