"""Which defaults: penalty, weight of the labels, near copies, weight of the seen classes.

    python benchmarks/bench_defaults.py --data DIR         # confirming splits, and tables
    python benchmarks/bench_defaults.py --data DIR --choose 4  # first splits, more settings
    PYTHONPATH=OLD python benchmarks/bench_defaults.py --data DIR --before

A selection is judged twice, on data sets raw and standardized: by K-means on samples of unseen
classes (ACC and NMI, k = 5, 10, 20, 50), and by 5 nearest neighbors on samples of the seen
classes that were held out (balanced accuracy, k = 20, 50). Settings were chosen on the first
ten class splits by a prototype; the next ten confirm the choice. ``--before``
runs SemFS of another checkout, which PYTHONPATH names, at its own defaults: what the new ones
are compared with. Finished rows are kept in ``--cache``; the same command continues.
Writes benchmarks/results/defaults.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import bench_knowledge
import numpy as np
from bench_knowledge import KS, N_STARTS, Split, class_split
from record import write_results
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.evaluation import cluster_scores, starting_rows

#: Data of `bench_knowledge`, and birds with the features of the paper (50 unseen classes).
DATA = {**bench_knowledge.DATA, "CUB": ("cub_vgg_fc7_4096", 50)}
#: Splits that chose the defaults, and splits that confirm them.
CHOOSING = range(10)
CONFIRMING = range(10, 20)
#: Numbers of features for nearest neighbors: with fewer, seen classes are hardly separated.
KS_SEEN = (20, 50)
N_NEIGHBORS = 5
#: One in so many samples of a seen class is held out.
HELD_OUT = 4
N_BOOTSTRAPS = 1000
BEFORE = "before"
NEW = "new"
COLUMNS = ("raw", "standardized")
SCORES = ("acc", "nmi", "seen")
#: What SemFS is told besides the labels.
TOLD = ("descriptions", "labels", "unlabeled samples")


@dataclass(frozen=True)
class Setting:
    """Parameters of SemFS, and constants of `semfs.selectors.knowledge`, by name."""

    parameters: Mapping[str, Any]
    constants: Mapping[str, float]


def setting(constants: Mapping[str, float] | None = None, **parameters: Any) -> Setting:
    """Return a setting that differs from the defaults in these parameters and constants."""
    return Setting(parameters, constants or {})


OLD_PENALTY = {"gamma": 10.0, "penalty_scale": "gram"}
OLD = {**OLD_PENALTY, "label_weight": 0.0, "max_correlation": None}
#: Settings that were compared on the choosing splits.
CHOICES = {
    "old parameters": setting({"SEEN_FLOOR": 0.0}, **OLD),
    NEW: setting(),
    "gamma 10 gram": setting(**OLD_PENALTY),
    "gamma 1 gram": setting(gamma=1.0, penalty_scale="gram"),
    "gamma 1": setting(gamma=1.0),
    "gamma 4": setting(gamma=4.0),
    "label_weight 0": setting(label_weight=0.0),
    "label_weight 0.3": setting(label_weight=0.3),
    "label_weight 3": setting(label_weight=3.0),
    "max_correlation None": setting(max_correlation=None),
    "max_correlation 0.9": setting(max_correlation=0.9),
    "floor 0": setting({"SEEN_FLOOR": 0.0}),
    "floor 0.5": setting({"SEEN_FLOOR": 0.5}),
    "equal samples 3": setting({"EQUAL_SAMPLES": 3.0}),
    "cluster penalty 0.3": setting({"CLUSTER_PENALTY": 0.3}),
    "cluster penalty 0.05": setting({"CLUSTER_PENALTY": 0.05}),
}


# ---- one row -------------------------------------------------------------------------------


def problem(
    name: str, number: int, columns: str, folder: Path
) -> tuple[Split, np.ndarray, np.ndarray]:
    """A class split, and the samples and labels of seen classes that are held out of it."""
    split = class_split(name, number, folder)
    rng = np.random.default_rng(number)
    held_out = np.zeros(len(split.y), dtype=bool)
    for label in np.unique(split.y):
        samples = np.flatnonzero(split.y == label)
        n_out = max(1, len(samples) // HELD_OUT)
        held_out[rng.permutation(samples)[:n_out]] = True
    X, X_out, X_unseen = split.X[~held_out], split.X[held_out], split.Xu
    if columns == "standardized":
        scaler = StandardScaler().fit(X)
        X, X_out, X_unseen = (
            scaler.transform(Z).astype(np.float32) for Z in (X, X_out, X_unseen)
        )
    seen = replace(split, X=X, y=split.y[~held_out], Xu=X_unseen)
    return seen, X_out, split.y[held_out]


def selected(split: Split, told: str, choice: Setting) -> np.ndarray:
    """The features that SemFS selects, best first."""
    table = None if told == "labels" else split.A
    selector = SemFS(max(KS), table, **choice.parameters)
    unlabeled = split.Xu if told == "unlabeled samples" else None
    if not choice.constants:
        return selector.fit(split.X, split.y, X_unlabeled=unlabeled).order_
    with patch.multiple("semfs.selectors.knowledge", **choice.constants):
        return selector.fit(split.X, split.y, X_unlabeled=unlabeled).order_


def scores(order: np.ndarray, split: Split, X_out: np.ndarray, y_out: np.ndarray) -> dict:
    """ACC and NMI of the unseen classes, balanced accuracy of the seen ones, for each k."""
    starts = starting_rows(len(split.yu), len(np.unique(split.yu)), N_STARTS, 0)
    found = [cluster_scores(split.Xu[:, order[:k]], split.yu, starts=starts) for k in KS]
    seen = []
    for k in KS_SEEN:
        features = order[:k]
        model = KNeighborsClassifier(N_NEIGHBORS).fit(split.X[:, features], split.y)
        predicted = model.predict(X_out[:, features])
        seen.append(float(balanced_accuracy_score(y_out, predicted)))
    return {
        "acc": [float(acc.mean()) for acc, _ in found],
        "nmi": [float(nmi.mean()) for _, nmi in found],
        "seen": seen,
    }


def key(name: str, number: int, columns: str, told: str, what: str) -> str:
    """What a row of the cache goes by."""
    return f"{name}|{number}|{columns}|{told}|{what}"


def read_cache(cache: Path) -> dict[str, dict]:
    """Finished rows, by key."""
    if not cache.exists():
        return {}
    return dict(json.loads(line) for line in cache.read_text().splitlines())


def run(
    names: Iterable[str],
    numbers: Iterable[int],
    told: Iterable[str],
    choices: Mapping[str, Setting],
    folder: Path,
    cache: Path,
) -> None:
    """Score what the cache does not hold yet."""
    known = read_cache(cache)
    for number in numbers:
        for name in names:
            for columns in COLUMNS:
                wanted = [(source, what) for source in told for what in choices]
                todo = [w for w in wanted if key(name, number, columns, *w) not in known]
                if not todo:
                    continue
                split, X_out, y_out = problem(name, number, columns, folder)
                for source, what in todo:
                    if source != "labels" and split.A is None and source != TOLD[2]:
                        continue
                    order = selected(split, source, choices[what])
                    row = scores(order, split, X_out, y_out)
                    with cache.open("a") as file:
                        line = [key(name, number, columns, source, what), row]
                        file.write(json.dumps(line) + "\n")
            print(f"{name}, split {number}", flush=True)


# ---- tables --------------------------------------------------------------------------------


def comparison(
    known: Mapping[str, dict], told: str, columns: str, what: str, base: str, numbers: range
) -> dict | None:
    """A setting over another one: ratios of ACC and NMI, difference of seen accuracy.

    For each data set the paired differences have 95 % intervals over splits; the mean over the
    data sets has one by bootstrapping splits.
    """
    pairs = {}
    for name in DATA:
        found = [
            (known[a], known[b])
            for n in numbers
            if (a := key(name, n, columns, told, what)) in known
            and (b := key(name, n, columns, told, base)) in known
        ]
        if len(found) > 1:
            values = [[[np.mean(row[s]) for s in SCORES] for row in pair] for pair in found]
            pairs[name] = np.array(values)  # (splits, 2, 3)
    if not pairs:
        return None
    rng = np.random.default_rng(0)
    again = []
    for _ in range(N_BOOTSTRAPS):
        drawn = [p[rng.integers(0, len(p), len(p))] for p in pairs.values()]
        again.append(np.mean([_summary(p) for p in drawn], axis=0))
    low, high = np.quantile(again, [0.025, 0.975], axis=0)
    return {
        "mean": np.mean([_summary(p) for p in pairs.values()], axis=0).tolist(),
        "low": low.tolist(),
        "high": high.tolist(),
        "data": {name: _of_data_set(p) for name, p in pairs.items()},
    }


def _summary(pairs: np.ndarray) -> np.ndarray:
    """Ratios of the mean ACC and NMI, and the gain in seen accuracy, of (splits, 2, 3)."""
    new, old = pairs.mean(axis=0)
    return np.array([new[0] / old[0], new[1] / old[1], new[2] - old[2]])


def _of_data_set(pairs: np.ndarray) -> dict:
    gaps = pairs[:, 0] - pairs[:, 1]
    half = 1.96 * gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    return {
        "splits": len(pairs),
        "old": pairs[:, 1].mean(axis=0).tolist(),
        "new": pairs[:, 0].mean(axis=0).tolist(),
        "summary": _summary(pairs).tolist(),
        "difference": gaps.mean(axis=0).tolist(),
        "half": half.tolist(),
    }


def tables(known: Mapping[str, dict]) -> dict:
    """Everything that is written: new against before, and the choices against new."""
    confirmed = {
        f"{told}, {columns}": comparison(known, told, columns, NEW, BEFORE, CONFIRMING)
        for told in TOLD
        for columns in COLUMNS
    }
    chosen = {
        f"{told}, {columns}": {
            what: comparison(known, told, columns, what, NEW, CHOOSING)
            for what in CHOICES
            if what != NEW
        }
        for told in TOLD
        for columns in COLUMNS
    }
    return {"k": KS, "k_seen": KS_SEEN, "confirmed": confirmed, "chosen": chosen}


def show(title: str, found: dict | None) -> None:
    """Print one comparison."""
    if found is None:
        return
    acc, nmi, seen = found["mean"]
    print(f"{title:60}{acc:7.3f}{nmi:7.3f}{seen:+8.4f}  ", end="")
    for name, row in found["data"].items():
        acc, nmi, seen = row["summary"]
        print(f"{name[:7]} {acc:.2f}/{nmi:.2f}/{seen:+.3f}", end="  ")
    print()


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", help="data sets, comma-separated")
    parser.add_argument("--told", help=f"of {', '.join(TOLD)}; comma-separated")
    parser.add_argument("--splits", type=int, default=len(CONFIRMING), help="confirming splits")
    parser.add_argument("--choose", type=int, default=0, help="choosing splits to run")
    parser.add_argument("--settings", help="of the choices; comma-separated")
    parser.add_argument("--before", action="store_true")
    parser.add_argument("--cache", type=Path, default=Path("defaults-cache.jsonl"))
    parser.add_argument("--tables", action="store_true", help="only write what is known")
    options = parser.parse_args()
    bench_knowledge.DATA.update(DATA)
    names = options.only.split(",") if options.only else list(DATA)
    told = options.told.split(",") if options.told else TOLD
    warnings.simplefilter("ignore")
    if not options.tables:
        numbers: Iterable[int] = CONFIRMING[: options.splits]
        choices = {BEFORE if options.before else NEW: setting()}
        if options.choose:
            numbers, choices = CHOOSING[: options.choose], dict(CHOICES)
        if options.choose and options.settings:
            choices = {what: CHOICES[what] for what in options.settings.split(",")}
        with threadpool_limits(1):
            run(names, numbers, told, choices, options.data, options.cache)
    if options.before:
        return
    found = tables(read_cache(options.cache))
    for half in ("confirmed",):
        for title, row in found[half].items():
            show(f"{half}: {title}", row)
    for title, rows in found["chosen"].items():
        for what, row in rows.items():
            show(f"chosen: {title}: {what}", row)
    command = "python benchmarks/bench_defaults.py --data DIR"
    write_results("defaults", found, command)


if __name__ == "__main__":
    main()
