"""What rules of a panel are worth, and what they cost in time.

    python benchmarks/bench_rules.py --data DIR     # DIR holds the files of DATA
    python benchmarks/bench_rules.py --data DIR --part speed
    python benchmarks/bench_rules.py --data DIR --splits 2 --only "human lung"

Features are selected on the seen classes of random class splits, with and without a rule.
Scored are the seen classes (recall of 5-NN on held-out samples of each class: the mean, and the
mean of the worst fifth of the classes) and the unseen ones (NMI of K-means). Times are
processor seconds of one fit with one thread, the least of three.
Writes benchmarks/results/rules.json.
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from record import read_results, write_results
from sklearn.metrics import recall_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.evaluation import cluster_scores

K = 50
N_SEEN = 24
# name: file, unseen classes at most
DATA = {
    "human lung": ("cells/human_lung.npz", 50),
    "CUB birds": ("cub_vgg_fc7_4096.npz", 50),
}
FEWEST = 8  # samples of a class
MOST = 300  # samples of a class that are used
HELD_OUT = 0.3  # share of the samples of seen classes
N_STARTS = 5
#: Rules whose worth is measured; windows are quantiles of the highest class means.
WORTH: dict[str, dict[str, Any]] = {
    "no rule": {},
    "min_per_class=1": {"min_per_class": 1},
    "min_per_class=2": {"min_per_class": 2},
    "min_per_class=3": {"min_per_class": 3},
    "max_level, 99 % of features": {"max_level": 0.99},
    "max_level, 95 % of features": {"max_level": 0.95},
    "max_level, 90 % of features": {"max_level": 0.90},
}


def read(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Samples X (n, d) of the classes that have enough, codes y (n,), descriptions (C, m)."""
    with np.load(path, allow_pickle=False) as file:
        X = file["X"].astype(np.float32)
        y = np.asarray(file["y"]).astype(int)
        A = file["A"].astype(np.float64)
    kept = np.bincount(y)[y] >= FEWEST
    return X[kept], y[kept], A


def split(X: np.ndarray, y: np.ndarray, n_unseen: int, number: int) -> dict[str, np.ndarray]:
    """Training and held-out samples of the seen classes, and those of the unseen ones."""
    rng = np.random.default_rng(100 + number)
    classes = rng.permutation(np.unique(y))
    train, test, unseen = [], [], []
    for place, c in enumerate(classes[: N_SEEN + n_unseen].tolist()):
        rows = rng.permutation(np.flatnonzero(y == c))[:MOST]
        if place >= N_SEEN:
            unseen.append(rows)
            continue
        n_out = max(2, int(HELD_OUT * len(rows)))
        test.append(rows[:n_out])
        train.append(rows[n_out:])
    return {
        "train": np.concatenate(train),
        "test": np.concatenate(test),
        "unseen": np.concatenate(unseen),
    }


def parameters_of(rule: dict[str, Any], X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The rule with a window in the units of the data."""
    if "max_level" not in rule:
        return rule
    means = np.stack([X[y == c].mean(axis=0) for c in np.unique(y)])
    return {"max_level": float(np.quantile(means.max(axis=0), rule["max_level"]))}


def scores(X: np.ndarray, y: np.ndarray, rows: dict[str, np.ndarray], chosen: Any, seed: int):
    """Mean recall of seen classes, that of the worst fifth, NMI on the unseen classes."""
    Z = X[:, chosen]
    nearest = KNeighborsClassifier(5).fit(Z[rows["train"]], y[rows["train"]])
    truth = y[rows["test"]]
    recalls = np.sort(
        recall_score(truth, nearest.predict(Z[rows["test"]]), average=None, zero_division=0)
    )
    n_worst = max(1, len(recalls) // 5)
    _, nmi = cluster_scores(
        Z[rows["unseen"]], y[rows["unseen"]], n_repeats=N_STARTS, random_state=seed
    )
    return [float(recalls.mean()), float(recalls[:n_worst].mean()), float(np.mean(nmi))]


def worth(name: str, folder: Path, n_splits: int) -> dict[str, Any]:
    """Scores of all rules on all splits of one data set."""
    file, n_unseen = DATA[name]
    X, y, A = read(folder / file)
    by_rule: dict[str, list[list[float]]] = {rule: [] for rule in WORTH}
    refused: dict[str, list[str]] = {}
    for number in range(n_splits):
        rows = split(X, y, n_unseen, number)
        X_train = X[rows["train"]]
        y_train = y[rows["train"]]
        table = {c: A[c] for c in np.unique(y_train).tolist()}
        for rule, values in WORTH.items():
            parameters = parameters_of(values, X_train, y_train)
            try:
                selector = SemFS(K, table, **parameters).fit(X_train, y_train)
            except ValueError as error:
                refused.setdefault(rule, []).append(str(error))
                continue
            by_rule[rule].append(scores(X, y, rows, selector.order_[:K], number))
        print(f"{name}: split {number + 1} of {n_splits}", flush=True)
    summary = {}
    for rule, values in by_rule.items():
        if not values:
            continue
        mean = np.mean(values, axis=0).tolist()
        summary[rule] = {
            "recall": mean[0],
            "worst_fifth": mean[1],
            "nmi": mean[2],
            "splits": len(values),
        }
    return {"scores": summary, "by_split": by_rule, "refused": refused}


# ---- time -----------------------------------------------------------------------------


def seconds(X: np.ndarray, y: np.ndarray, k: int | None = K, **parameters: Any) -> float:
    """The least time of three fits."""
    times = []
    for _ in range(3):
        start = time.process_time()
        SemFS(k, **parameters).fit(X, y)
        times.append(time.process_time() - start)
    return min(times)


def samples(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Samples of the seen classes of the first split."""
    file, n_unseen = DATA[name]
    X, y, _ = read(folder / file)
    rows = split(X, y, n_unseen, 0)["train"]
    return np.maximum(X[rows], 0.0), y[rows]


def made_up() -> tuple[np.ndarray, np.ndarray]:
    """20,000 samples of 24 classes, 5,000 features; every class has weak and strong markers."""
    rng = np.random.default_rng(0)
    means = rng.exponential(0.5, (N_SEEN, 5000)) * (rng.random((N_SEEN, 5000)) < 0.2)
    y = rng.integers(0, N_SEEN, 20_000)
    X = means[y].astype(np.float32)
    X += 0.5 * np.abs(rng.standard_normal(X.shape, dtype=np.float32))
    return X, y


def speed(name: str, folder: Path) -> dict[str, Any]:
    """Seconds of fits with and without each rule."""
    X, y = made_up() if name == "made up" else samples(name, folder)
    d = X.shape[1]
    rng = np.random.default_rng(0)
    costs = rng.uniform(1.0, 3.0, d)
    means = np.stack([X[y == c].mean(axis=0) for c in np.unique(y)])
    plain = SemFS(K).fit(X, y)
    used = means[:, plain.support_].sum(axis=1)
    rules: dict[str, dict[str, Any]] = {
        "no rule": {},
        "candidates": {"candidates": range(0, d, 2)},
        "max_level": {"max_level": float(np.quantile(means.max(axis=0), 0.95))},
        "min_per_class=2": {"min_per_class": 2},
        "budget": {"costs": costs, "budget": 0.9 * float(costs[plain.support_].sum())},
        "capacity": {"capacity": 0.9 * float(used.max())},
    }
    found = {}
    for rule, parameters in rules.items():
        try:
            found[rule] = seconds(X, y, **parameters)
        except ValueError as error:
            print(f"{name}, {rule}: {error}")
    n_groups = K // 4  # of 8 columns: as many columns as two panels have
    groups = np.arange(d) // 8
    found["groups of 8"] = seconds(X, y, n_groups, groups=groups)
    found["as many columns, no groups"] = seconds(X, y, 8 * n_groups)
    return {"n": int(X.shape[0]), "d": d, "seconds": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--only", default=",".join(DATA))
    parser.add_argument("--part", choices=("worth", "speed"), help="keep the other part")
    options = parser.parse_args()
    names = [name for name in DATA if name in options.only.split(",")]
    stored = read_results("rules")
    found: dict[str, Any] = {"k": K, "n_seen": N_SEEN}
    found["worth"] = dict(stored.get("worth", {}))
    found["speed"] = dict(stored.get("speed", {}))
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for name in ["made up", *names] if options.part != "worth" else ():
            found["speed"][name] = speed(name, options.data)
            print(name, found["speed"][name], flush=True)
        for name in names if options.part != "speed" else ():
            found["worth"][name] = worth(name, options.data, options.splits)
            for rule, values in found["worth"][name]["scores"].items():
                print(f"{name}  {rule:30}", {k: round(v, 3) for k, v in values.items()})
    print(write_results("rules", found))


if __name__ == "__main__":
    main()
