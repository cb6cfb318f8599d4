"""What each kind of knowledge about new classes is worth.

    python benchmarks/bench_knowledge.py --data DIR            # DIR holds the .npz files below
    python benchmarks/bench_knowledge.py --data DIR --splits 4 --only "digits,blood cells"

Every method ranks features for the unseen classes of random class splits; these are then
clustered on the first k features (K-means on raw columns, ACC and NMI). Tables give each score
divided by that of the **best baseline picked in hindsight** for each data set and k: five that
know the labeled rows, or these and three that know the unlabeled rows (eight).
1.00 is as good as an oracle among them. The first six splits are those, or as many as those,
that chose the defaults; later ones had not been run then. Intervals are 95 %, bootstrapped over
splits. A second part measures zero-shot classification of the unseen classes with 64 features.
Finished (data set, split, method) triples are kept in ``--cache``; the same command continues.
Writes benchmarks/results/knowledge.json.
"""

from __future__ import annotations

import argparse
import json
import warnings
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from record import write_results
from sklearn.datasets import load_digits
from sklearn.feature_selection import f_classif
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.baselines import MCFS, Markers
from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores, starting_rows

KS = (5, 10, 20, 50)
RATED = slice(1, None)  # ratios are over k = 10, 20, 50
N_STARTS = 3
MOST_SEEN, MOST_UNSEEN = 300, 150  # rows per class, so that no class takes all the time
FEWEST = 8  # cells of a type
N_PREDICT = 64
CHOOSING = 6  # splits that chose the defaults

# name: file, number of unseen classes
DATA = {
    "animals31": ("animals31_awa85_lite0_head1280", 10),
    "CLINC150": ("clinc150_minilm384", 30),
    "aPascal": ("apy_lite0_head1280", 8),
    "blood cells": (None, 4),
    "digits": (None, 5),
    "human lung": ("cells/human_lung", 12),
    "CIFAR10": ("cifar10_lite0_multi4256_6k", 5),
}


@dataclass(frozen=True)
class Split:
    """Rows X, labels y of the seen classes, Xu, yu of the unseen; attributes A or None."""

    name: str
    number: int
    X: np.ndarray
    y: np.ndarray
    A: np.ndarray | None
    Xu: np.ndarray
    yu: np.ndarray

    def few(self, per_class: int) -> Split:
        """The same with so many unlabeled rows of each unseen class."""
        rng = np.random.default_rng(7 + self.number)
        rows = [np.flatnonzero(self.yu == c) for c in np.unique(self.yu)]
        kept = np.sort(np.concatenate([rng.permutation(r)[:per_class] for r in rows]))
        return replace(self, Xu=self.Xu[kept], yu=self.yu[kept])


Method = Callable[[Split], "np.ndarray | None"]


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """X (n, d), labels (n,) and class attributes (C, m) of a data set."""
    file, _ = DATA[name]
    if name == "digits":
        data = load_digits()
        return data.data.astype(np.float32), data.target, None
    if name == "blood cells":
        sample = load_sample("blood")
        classes, y = np.unique(sample.y, return_inverse=True)
        table = sample.attributes.loc[classes].to_numpy(dtype=float)
        return np.asarray(sample.X, dtype=np.float32), y, table
    with np.load(folder / f"{file}.npz") as stored:
        X, y, A = stored["X"].astype(np.float32), stored["y"].astype(int), stored["A"]
        kept = np.ones(len(y), dtype=bool)
        if name == "aPascal":
            kept = stored["source"] == 0
        if name == "human lung":
            A = A[:, ~stored["own_term_only"]]
            kept = np.bincount(y)[y] >= FEWEST
        if name == "CIFAR10":
            X = X[:, :1280]
    return X[kept], y[kept], A.astype(float)


def class_split(name: str, number: int, folder: Path) -> Split:
    """The class split of a data set with this number."""
    X, y, A = load(name, folder)
    rng = np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
    unseen = rng.choice(np.unique(y), DATA[name][1], replace=False)

    def some_rows(mask: np.ndarray, most: int) -> np.ndarray:
        rows = [np.flatnonzero(mask & (y == c)) for c in np.unique(y[mask])]
        return np.sort(np.concatenate([rng.permutation(r)[:most] for r in rows]))

    new = np.isin(y, unseen)
    seen_rows, new_rows = some_rows(~new, MOST_SEEN), some_rows(new, MOST_UNSEEN)
    return Split(name, number, X[seen_rows], y[seen_rows], A, X[new_rows], y[new_rows])


# ---- baselines -----------------------------------------------------------------------------


def descending(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-np.nan_to_num(scores), kind="stable")


def class_means(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.stack([X[y == c].mean(axis=0, dtype=float) for c in np.unique(y)])


def column_subset(X: np.ndarray) -> np.ndarray:
    """Greedy column-subset selection: features that reconstruct all others best."""
    E = (X - X.mean(axis=0)).astype(float)
    wide = E.shape[1] > len(E)
    R = E @ E.T if wide else E.T @ E
    pivots = (E**2).sum(axis=0)
    floor = 1e-9 * pivots.max()
    chosen: list[int] = []
    for _ in range(max(KS)):
        norms = np.einsum("ij,ij->j", E, R @ E) if wide else (R**2).sum(axis=0)
        gain = np.where(pivots > floor, norms / np.maximum(pivots, floor), -1.0)
        gain[chosen] = -1.0
        j = int(np.argmax(gain))
        chosen.append(j)
        if wide:
            u = E[:, j] / np.sqrt(max(pivots[j], floor))
            E = E - np.outer(u, u @ E)
            R = R - np.outer(u, u @ R)
            R = R - np.outer(R @ u, u)
            pivots = (E**2).sum(axis=0)
        else:
            R = R - np.outer(R[:, j], R[j]) / max(pivots[j], floor)
            pivots = np.diag(R).copy()
    return np.array(chosen)


INDUCTIVE: dict[str, Method] = {
    "Variance": lambda split: descending(split.X.var(axis=0)),
    "between-class variance": lambda s: descending(class_means(s.X, s.y).var(axis=0)),
    "ANOVA F": lambda split: descending(f_classif(split.X, split.y)[0]),
    "column-subset selection": lambda split: column_subset(split.X),
    "Random": lambda split: np.random.default_rng(0).permutation(split.X.shape[1]),
}
ON_UNLABELLED: dict[str, Method] = {
    "Variance of unlabeled rows": lambda split: descending(split.Xu.var(axis=0)),
    "column-subset selection of unlabeled rows": lambda split: column_subset(split.Xu),
    "MCFS of unlabeled rows": lambda split: (
        MCFS(max(KS), n_components=len(np.unique(split.yu))).fit(split.Xu).order_
    ),
}


# ---- what SemFS is told --------------------------------------------------------------------


def semfs_knowing(
    *, table: bool = True, to_come: bool = False, rows: int | None = 0, **parameters: object
) -> Method:
    """SemFS with or without class descriptions, those of new classes, and unlabeled rows.

    ``rows`` per new class; None for all.
    """

    def rank(split: Split) -> np.ndarray | None:
        if table and split.A is None:
            return None
        known = split.A if table else None
        target = "table" if to_come else None
        own = dict(parameters)
        if own.get("n_new_classes") == "known":
            own["n_new_classes"] = len(np.unique(split.yu))
        selector = SemFS(max(KS), known, target_attributes=target, **own)
        unlabeled = None if rows == 0 else (split if rows is None else split.few(rows)).Xu
        return selector.fit(split.X, split.y, X_unlabeled=unlabeled).order_

    return rank


def default(rows: int | None = None, **parameters: object) -> Method:
    """All defaults: the table if there is one, and unlabeled rows."""

    def rank(split: Split) -> np.ndarray | None:
        known = split.A is not None
        return semfs_knowing(table=known, to_come=known, rows=rows, **parameters)(split)

    return rank


METHODS: dict[str, Method] = {
    "labels": semfs_knowing(table=False),
    "attributes": semfs_knowing(),
    "attributes, new classes described": semfs_knowing(to_come=True),
    "5 unlabeled rows per class": default(5),
    "20 unlabeled rows per class": default(20),
    "all unlabeled rows": default(),
    "all unlabeled rows, number known": default(n_new_classes="known"),
    "labels of the new classes (upper end)": lambda s: SemFS(max(KS)).fit(s.Xu, s.yu).order_,
    "Markers": lambda split: Markers(max(KS)).fit(split.X, split.y).order_,
    **{f"attributes, gamma {g:g}": semfs_knowing(gamma=g) for g in (1.0, 30.0)},
    **{f"labels, gamma {g:g}": semfs_knowing(table=False, gamma=g) for g in (1.0, 30.0)},
    "attributes, rows count alike": semfs_knowing(class_weight=None),
    "labels, rows count alike": semfs_knowing(table=False, class_weight=None),
}


# ---- scores --------------------------------------------------------------------------------


def score(order: np.ndarray, split: Split) -> list[list[float]]:
    """ACC and NMI of the unseen classes for each k."""
    starts = starting_rows(len(split.yu), len(np.unique(split.yu)), N_STARTS, 0)
    found = [cluster_scores(split.Xu[:, order[:k]], split.yu, starts=starts) for k in KS]
    return [[float(acc.mean()), float(nmi.mean())] for acc, nmi in found]


def predictions(split: Split) -> dict[str, float]:
    """Accuracy on the unseen classes, told apart from each other by description."""
    new = np.unique(split.yu)
    table = {int(c): split.A[c] for c in range(len(split.A))}
    selector = SemFS(N_PREDICT, table).fit(split.X, split.y)
    chosen = np.flatnonzero(selector.get_support())
    X, Xu = split.X[:, chosen].astype(float), split.Xu[:, chosen].astype(float)
    mean, spread = X.mean(axis=0), X.std(axis=0) + 1e-12
    X, Xu = (X - mean) / spread, (Xu - mean) / spread
    classes, codes = np.unique(split.y, return_inverse=True)
    A, Au = split.A[classes], split.A[new]
    found = {
        "SemFS.predict": selector.predict(split.Xu, {int(c): split.A[c] for c in new}),
        "ridge to attributes": new[ridge(X, codes, A, Au, Xu)],
        "ESZSL, penalties by class folds": new[eszsl(X, codes, A, Au, Xu)],
    }
    return {name: float(np.mean(labels == split.yu)) for name, labels in found.items()}


def ridge(X, codes, A, Au, Xu) -> np.ndarray:
    """Nearest description, by cosine, of attributes predicted by ridge regression."""
    average, G = A[codes].mean(axis=0), X.T @ X
    H = G + 0.1 * np.trace(G) / len(G) * np.eye(len(G))
    P, T = Xu @ np.linalg.solve(H, X.T @ (A[codes] - average)), Au - average
    return np.argmax(P @ (T / np.linalg.norm(T, axis=1, keepdims=True)).T, axis=1)


def eszsl(X, codes, A, Au, Xu) -> np.ndarray:
    """Romera-Paredes and Torr (2015), its two penalties chosen on held-out classes."""
    A, Au = (table / np.linalg.norm(table, axis=1, keepdims=True) for table in (A, Au))
    C = len(A)
    fold = np.random.default_rng(0).permutation(C) % min(5, C // 2)

    def fit(kept: np.ndarray, gamma: float, penalty: float) -> np.ndarray:
        rows = kept[codes]
        Y = np.where(codes[rows][:, None] == np.flatnonzero(kept), 1.0, -1.0)
        S = A[kept]
        left = np.linalg.solve(X[rows].T @ X[rows] + gamma * np.eye(X.shape[1]), X[rows].T @ Y)
        return left @ S @ np.linalg.inv(S.T @ S + penalty * np.eye(A.shape[1]))

    def accuracy(gamma: float, penalty: float) -> float:
        found = []
        for f in range(fold.max() + 1):
            out = np.flatnonzero(fold == f)
            rows = np.isin(codes, out)
            best = np.argmax(X[rows] @ fit(fold != f, gamma, penalty) @ A[out].T, axis=1)
            found.append(np.mean(out[best] == codes[rows]))
        return float(np.mean(found))

    grid = [(10.0**g, 10.0**p) for g in range(-1, 5) for p in range(-3, 3)]
    best = max(grid, key=lambda pair: accuracy(*pair))
    return np.argmax(Xu @ fit(np.ones(C, dtype=bool), *best) @ Au.T, axis=1)


def run(names: list[str], numbers: range, folder: Path, cache: Path) -> dict:
    """Score what the cache does not hold yet; return everything."""
    known = json.loads(cache.read_text()) if cache.exists() else {}
    methods = INDUCTIVE | ON_UNLABELLED | METHODS
    for name in names:
        for number in numbers:
            todo = [m for m in methods if f"{name}|{number}|{m}" not in known]
            wanted = f"{name}|{number}|predict"
            if not todo and wanted in known:
                continue
            split = class_split(name, number, folder)
            for method in todo:
                order = methods[method](split)
                known[f"{name}|{number}|{method}"] = (
                    None if order is None else score(order, split)
                )
            if wanted not in known:
                known[wanted] = None if split.A is None else predictions(split)
            cache.write_text(json.dumps(known))
            print(f"{name}, split {number}: {len(todo)} methods", flush=True)
    return known


# ---- tables --------------------------------------------------------------------------------


def ratio(known: dict, name: str, method: str, numbers: list[int], others: list[str]):
    """Score (2,) over that of the best of other methods in hindsight, mean over k."""
    if known[f"{name}|{numbers[0]}|{method}"] is None:
        return np.full(2, np.nan)
    mean = {
        m: np.mean([known[f"{name}|{n}|{m}"] for n in numbers], axis=0)[RATED]
        for m in {method, *others}
    }
    return (mean[method] / np.max([mean[m] for m in others], axis=0)).mean(axis=0)


def summary(known: dict, names: list[str], numbers: list[int], others: list[str]) -> list[dict]:
    """One row per method: ratios of each data set, their mean and its interval; best first."""
    rng = np.random.default_rng(0)
    draws = [rng.choice(numbers, len(numbers)).tolist() for _ in range(300)]
    rows = []
    for method in [*INDUCTIVE, *ON_UNLABELLED, *METHODS]:
        each = {n: ratio(known, n, method, numbers, others).tolist() for n in names}
        again = [
            np.nanmean([ratio(known, n, method, draw, others) for n in names], axis=0)
            for draw in draws
        ]
        low, high = np.quantile(again, [0.025, 0.975], axis=0).tolist()
        mean = np.nanmean(list(each.values()), axis=0).tolist()
        rows.append({"method": method, "mean": mean, "low": low, "high": high, "data": each})
    return sorted(rows, key=lambda row: -sum(row["mean"]))


def paired(known: dict, name: str, numbers: list[int], a: str, b: str) -> list[list[float]]:
    """Mean and half-width of the 95 % interval of a − b, for ACC and NMI, mean over all k."""
    gaps = np.array(
        [
            np.mean(known[f"{name}|{n}|{a}"], axis=0)
            - np.mean(known[f"{name}|{n}|{b}"], axis=0)
            for n in numbers
        ]
    )
    half = 1.96 * gaps.std(axis=0, ddof=1) / np.sqrt(len(gaps))
    return [gaps.mean(axis=0).tolist(), half.tolist()]


def prediction_table(known: dict, names: list[str], numbers: list[int]) -> dict:
    """Mean accuracy of each way to predict, per data set."""
    found = {n: [known[f"{n}|{i}|predict"] for i in numbers] for n in names}
    return {
        n: {way: float(np.mean([row[way] for row in rows])) for way in rows[0]}
        for n, rows in found.items()
        if rows[0] is not None
    }


def show(title: str, rows: list[dict], names: list[str]) -> None:
    print(f"\n{title}: ACC / NMI")
    print(f"{'':44}{'mean ACC [95 %]':>22}{'NMI':>7}  " + "".join(f"{n:>14}" for n in names))
    for row in rows:
        print(f"{row['method']:44}{row['mean'][0]:8.3f} ", end="")
        print(f"[{row['low'][0]:.3f}, {row['high'][0]:.3f}]{row['mean'][1]:7.3f}  ", end="")
        print("".join(f"{row['data'][n][0]:8.2f}/{row['data'][n][1]:.2f} " for n in names))


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=16)
    parser.add_argument("--only", help="data sets, comma-separated")
    parser.add_argument("--cache", type=Path, default=Path("knowledge-cache.json"))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(DATA)
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        known = run(names, range(options.splits), options.data, options.cache)
    document = {
        "k": KS,
        "data": {name: DATA[name][1] for name in names},
        "inductive": list(INDUCTIVE),
        "on unlabeled rows": list(ON_UNLABELLED),
    }
    halves = {"chosen": range(CHOOSING), "confirmed": range(CHOOSING, options.splits)}
    for half, numbers in halves.items():
        found = {"splits": len(numbers)}
        for title, others in (("five", INDUCTIVE), ("eight", INDUCTIVE | ON_UNLABELLED)):
            found[title] = summary(known, names, list(numbers), list(others))
            show(f"{half}, over the best of {title}", found[title], names)
        document[half] = found
    every = list(range(options.splits))
    document["predict"] = prediction_table(known, names, every)
    pairs = {
        "new classes described − labels": ("attributes, new classes described", "labels"),
        "new classes described − Markers": ("attributes, new classes described", "Markers"),
        "all unlabeled rows − labels": ("all unlabeled rows", "labels"),
    }
    document["pairs"] = {
        title: {
            n: paired(known, n, every, a, b) for n in names if known[f"{n}|0|{a}"] is not None
        }
        for title, (a, b) in pairs.items()
    }
    print(json.dumps({"predict": document["predict"], "pairs": document["pairs"]}, indent=1))
    if not options.only:
        command = "python benchmarks/bench_knowledge.py --data DIR"
        write_results("knowledge", document, command)


if __name__ == "__main__":
    main()
