"""Which default chooses best for classes never seen? Ideas against the best of five baselines.

    python benchmarks/bench_ideas.py --data DIR    # DIR holds the .npz files named below
    python benchmarks/bench_ideas.py --data DIR --splits 4 --only "aPascal,blood cells"
    python benchmarks/bench_ideas.py --data DIR --seen 2 --ideas "SemFSCV;both"

Every idea ranks features on the seen classes of a random class split; the unseen classes are
then clustered on the first k features (K-means on raw columns, ACC and NMI) and classified by
their nearest neighbours (k-NN). The tables give each idea's score divided by that of the **best
of five baselines, picked in hindsight** for each data set and k: 1.00 is as good as an oracle
among the five. Splits with an even number chose the default, those with an odd number confirm
it; intervals are 95 %, bootstrapped over splits. Finished (data set, split, idea) triples are
kept in ``--cache``, and the same command continues. Writes benchmarks/results/ideas.json.
"""

from __future__ import annotations

import argparse
import json
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy.special import log_ndtr
from sklearn.feature_selection import f_classif
from sklearn.model_selection import cross_val_score
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from semfs import SemFS, SemFSCV
from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores, starting_rows
from semfs.rows import Rows
from semfs.selectors.unlabeled import spread_agreement

RESULTS = Path(__file__).parent / "results" / "ideas.json"
KS = (5, 10, 20, 30, 50)
METRICS = ("ACC", "NMI", "k-NN")
N_STARTS = 8
MOST_SEEN, MOST_UNSEEN = 400, 150  # rows per class, so that no class takes all the time

# name: file, number of unseen classes
DATA = {
    "aPascal": ("apy_lite0_head1280", 10),
    "animals31": ("animals31_awa85_lite0_head1280", 16),
    "CIFAR10 5/5": ("cifar10_lite0_multi4256_6k", 5),
    "CIFAR10 2/8": ("cifar10_lite0_multi4256_6k", 8),
    "CLINC150": ("clinc150_minilm384", 75),
    "blood cells": (None, 4),
}


@dataclass(frozen=True)
class Split:
    """Rows X and integer labels y of the seen classes, Xu and yu of the unseen; all of A."""

    X: np.ndarray
    y: np.ndarray
    A: np.ndarray
    Xu: np.ndarray
    yu: np.ndarray


Idea = Callable[[Split], np.ndarray]


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """X (n, d), labels (n,) and class attributes (C, m) of a data set."""
    file, _ = DATA[name]
    if file is None:
        sample = load_sample("blood")
        classes, y = np.unique(sample.y, return_inverse=True)
        table = sample.attributes.loc[classes].to_numpy(dtype=float)
        return np.asarray(sample.X, dtype=np.float32), y, table
    with np.load(folder / f"{file}.npz") as stored:
        X, y, A = stored["X"].astype(np.float32), stored["y"].astype(int), stored["A"]
        if name == "aPascal":
            kept = stored["source"] == 0
            X, y = X[kept], y[kept]
    return X, y, A.astype(float)


def class_split(name: str, number: int, folder: Path, n_seen: int | None = None) -> Split:
    """The class split of a data set with this number; if asked with so few seen classes."""
    X, y, A = load(name, folder)
    rng = np.random.default_rng(zlib.crc32(f"{name} {number}".encode()))
    unseen = rng.choice(np.unique(y), DATA[name][1], replace=False)
    if n_seen is not None:
        unseen = unseen[:10]
        seen = rng.choice(np.setdiff1d(y, unseen), n_seen, replace=False)
        kept = np.isin(y, np.concatenate([seen, unseen]))
        X, y = X[kept], y[kept]

    def some_rows(mask: np.ndarray, most: int) -> np.ndarray:
        rows = [np.flatnonzero(mask & (y == c)) for c in np.unique(y[mask])]
        return np.sort(np.concatenate([rng.permutation(r)[:most] for r in rows]))

    new = np.isin(y, unseen)
    seen_rows, new_rows = some_rows(~new, MOST_SEEN), some_rows(new, MOST_UNSEEN)
    return Split(X[seen_rows], y[seen_rows], A, X[new_rows], y[new_rows])


# ---- baselines, the five of the table's denominator ----------------------------------------


def class_means(split: Split) -> tuple[np.ndarray, np.ndarray]:
    """Class means (C, d) and within-class variances (d,)."""
    classes, codes = np.unique(split.y, return_inverse=True)
    M = np.stack([split.X[codes == c].mean(axis=0, dtype=float) for c in range(len(classes))])
    return M, ((split.X - M[codes]) ** 2).mean(axis=0)


def descending(scores: np.ndarray) -> np.ndarray:
    return np.argsort(-np.nan_to_num(scores), kind="stable")


def column_subset(split: Split) -> np.ndarray:
    """Greedy column-subset selection: features that reconstruct all others best."""
    X = (split.X - split.X.mean(axis=0)).astype(float)
    R = X.T @ X
    floor = 1e-9 * np.diag(R).max()
    chosen: list[int] = []
    for _ in range(max(KS)):
        pivots = np.diag(R)
        gain = np.where(pivots > floor, (R**2).sum(axis=0) / np.maximum(pivots, floor), -1.0)
        gain[chosen] = -1.0
        j = int(np.argmax(gain))
        chosen.append(j)
        R = R - np.outer(R[:, j], R[j]) / max(pivots[j], floor)
    return np.array(chosen)


BASELINES: dict[str, Idea] = {
    "Variance": lambda split: descending(split.X.var(axis=0)),
    "between-class variance": lambda split: descending(class_means(split)[0].var(axis=0)),
    "ANOVA F": lambda split: descending(f_classif(split.X, split.y)[0]),
    "column-subset selection": column_subset,
    "Random": lambda split: np.random.default_rng(0).permutation(split.X.shape[1]),
}


# ---- ideas ---------------------------------------------------------------------------------


def semfs(targets: str = "attributes", **parameters: object) -> Idea:
    """SemFS with attributes, labels or both as targets."""

    def rank(split: Split) -> np.ndarray:
        table = None if targets == "labels" else split.A
        more = {"label_weight": 1.0} if targets == "both" else {}
        return SemFS(max(KS), table, **more, **parameters).fit(split.X, split.y).order_

    return rank


def cross_validated(split: Split) -> np.ndarray:
    """SemFSCV: parameters by clustering held-out seen classes."""
    return SemFSCV(max(KS), split.A).fit(split.X, split.y).order_


def known_descriptions(split: Split) -> np.ndarray:
    """SemFS that is told the attributes of the unseen classes."""
    target = {int(c): split.A[c] for c in np.unique(split.yu)}
    selector = SemFS(max(KS), split.A, target_attributes=target)
    return selector.fit(split.X, split.y).order_


def with_reconstruction(by_agreement: bool) -> Idea:
    """The fewer classes are seen, the more the features must reconstruct all of X.

    Either always, or as far as the classes agree on which features vary.
    """

    def rank(split: Split) -> np.ndarray:
        classes, codes = np.unique(split.y, return_inverse=True)
        agreement = spread_agreement(Rows(split.X, codes, None), len(classes))
        weight = (agreement**2 if by_agreement else 3.0) / (len(classes) - 1)
        selector = SemFS(max(KS), split.A, unlabeled_weight=weight)
        return selector.fit(split.X, split.y, X_unlabeled=split.X).order_

    return rank


def pair_separability(joint_noise: bool) -> Idea:
    """Add the feature that most raises mean log Φ(½‖δ‖² / √(δ'Σδ)) over pairs of classes.

    δ is the difference of two class means on the chosen features, Σ the within-class
    covariance there or, without ``joint_noise``, its diagonal.
    """

    def rank(split: Split) -> np.ndarray:
        M, noise = class_means(split)
        E = split.X - M[np.unique(split.y, return_inverse=True)[1]]
        a, b = np.triu_indices(len(M), 1)
        if len(a) > 400:
            some = np.random.default_rng(0).choice(len(a), 400, replace=False)
            a, b = a[some], b[some]
        delta = M[a] - M[b]
        distance, spread = np.zeros(len(delta)), np.zeros(len(delta))
        shared = np.zeros_like(delta)  # Σδ of the chosen features
        chosen: list[int] = []
        for _ in range(max(KS)):
            variance = spread[:, None] + delta * (delta * noise + 2.0 * shared)
            z = 0.5 * (distance[:, None] + delta**2) / np.sqrt(np.maximum(variance, 1e-12))
            score = log_ndtr(z).mean(axis=0)
            score[chosen] = -np.inf
            j = int(np.argmax(score))
            chosen.append(j)
            distance, spread = distance + delta[:, j] ** 2, variance[:, j].copy()
            if joint_noise:
                shared += np.outer(delta[:, j], E[:, j] @ E / len(E))
        return np.array(chosen)

    return rank


def scaled_by_noise(power: float, idea: Idea) -> Idea:
    """Columns divided by their within-class spread to a power before an idea."""

    def rank(split: Split) -> np.ndarray:
        spread = np.sqrt(class_means(split)[1])
        spread = np.maximum(spread, 1e-3 * np.median(spread[spread > 0]))
        X = (split.X / spread**power).astype(np.float32)
        return idea(Split(X, split.y, split.A, split.Xu, split.yu))

    return rank


def rank_average(*ideas: Idea) -> Idea:
    """Features in the order of their mean log rank."""

    def rank(split: Split) -> np.ndarray:
        total = np.zeros(split.X.shape[1])
        for idea in ideas:
            place = np.full(split.X.shape[1], 200.0)
            order = idea(split)[:200]
            place[order] = np.arange(len(order))
            total += np.log1p(place)
        return np.argsort(total, kind="stable")

    return rank


def class_bootstrap(idea: Idea, n: int = 10, share: float = 0.7) -> Idea:
    """Features that are ranked high again and again on random subsets of the classes."""

    def rank(split: Split) -> np.ndarray:
        classes = np.unique(split.y)
        if len(classes) < 5:
            return idea(split)
        score = np.zeros(split.X.shape[1])
        for seed in range(n):
            rng = np.random.default_rng(seed)
            kept = np.isin(split.y, rng.choice(classes, int(share * len(classes)), False))
            order = idea(Split(split.X[kept], split.y[kept], split.A, split.Xu, split.yu))
            score[order[:100]] += 1 / np.log2(2 + np.arange(min(100, len(order))))
        return descending(score)

    return rank


def unseen_labels(split: Split) -> np.ndarray:
    """Not a method: the direct solver given the labels of the unseen rows."""
    return SemFS(max(KS)).fit(split.Xu, split.yu).order_


balanced = {"class_weight": "balanced"}
IDEAS: dict[str, Idea] = {
    "unseen labels (upper end)": unseen_labels,
    **{f"attributes, gamma {g}": semfs(gamma=g) for g in (1.0, 3.0, 10.0, 30.0)},
    **{f"labels, gamma {g}": semfs("labels", gamma=g) for g in (1.0, 3.0, 10.0, 30.0)},
    "both": semfs("both"),
    "attributes, balanced": semfs(**balanced),
    "labels, balanced": semfs("labels", **balanced),
    "both, balanced": semfs("both", **balanced),
    "attributes, alpha 0": semfs(alpha=0.0),
    "attributes, no intercept": semfs(gamma=3.0, fit_intercept=False),
    "attributes, noise-scaled": scaled_by_noise(0.5, semfs()),
    "SemFSCV": cross_validated,
    "unseen descriptions known": known_descriptions,
    "pair separability": pair_separability(joint_noise=False),
    "pair separability, joint noise": pair_separability(joint_noise=True),
    "with reconstruction": with_reconstruction(by_agreement=False),
    "reconstruction by agreement": with_reconstruction(by_agreement=True),
    "rank average": rank_average(semfs(), semfs("labels"), pair_separability(False)),
    "class bootstrap": class_bootstrap(semfs("labels")),
}
DEFAULT = "attributes, gamma 10.0"


# ---- scores --------------------------------------------------------------------------------


def score(order: np.ndarray, split: Split) -> list[list[float]]:
    """ACC, NMI and k-NN accuracy of the unseen classes for each k."""
    starts = starting_rows(len(split.yu), len(np.unique(split.yu)), N_STARTS, 0)
    out = []
    for k in KS:
        Z = split.Xu[:, order[:k]]
        acc, nmi = cluster_scores(Z, split.yu, starts=starts)
        out.append(
            [
                float(acc.mean()),
                float(nmi.mean()),
                float(cross_val_score(KNeighborsClassifier(), Z, split.yu).mean()),
            ]
        )
    return out


def run(
    names: list[str],
    ideas: dict[str, Idea],
    numbers: range,
    folder: Path,
    cache: Path,
    n_seen: int | None,
) -> dict:
    """Score what the cache does not hold yet; return everything."""
    known = json.loads(cache.read_text()) if cache.exists() else {}
    for name in names:
        for number in numbers:
            todo = [i for i in ideas if f"{name}|{number}|{i}" not in known]
            if not todo:
                continue
            split = class_split(name, number, folder, n_seen)
            for idea in todo:
                known[f"{name}|{number}|{idea}"] = score(ideas[idea](split), split)
            cache.write_text(json.dumps(known))
            print(f"{name}, split {number}: {len(todo)} ideas", flush=True)
    return known


def ratio(known: dict, name: str, idea: str, numbers: list[int]) -> np.ndarray:
    """Score (3,) over that of the best baseline in hindsight, mean over k."""
    mean = {
        i: np.mean([known[f"{name}|{n}|{i}"] for n in numbers], axis=0)
        for i in {idea, *BASELINES}
    }
    best = np.max([mean[b] for b in BASELINES], axis=0)
    return (mean[idea] / best).mean(axis=0)


def interval(known: dict, names: list[str], idea: str, numbers: list[int]) -> np.ndarray:
    """95 % interval (2, 3) of the mean ratio over data sets, splits drawn again."""
    rng = np.random.default_rng(0)
    draws = []
    for _ in range(500):
        again = rng.choice(numbers, len(numbers)).tolist()
        draws.append(np.mean([ratio(known, n, idea, again) for n in names], axis=0))
    return np.quantile(draws, [0.025, 0.975], axis=0)


def table(
    known: dict, names: list[str], ideas: list[str], numbers: list[int]
) -> Iterator[dict]:
    """One row per idea, best first."""
    rows = []
    for idea in ideas:
        each = {n: ratio(known, n, idea, numbers).tolist() for n in names}
        mean = np.mean(list(each.values()), axis=0)
        low, high = interval(known, names, idea, numbers)
        rows.append(
            {
                "idea": idea,
                "mean": mean.tolist(),
                "low": low.tolist(),
                "high": high.tolist(),
                "data": each,
            }
        )
    yield from sorted(rows, key=lambda row: -sum(row["mean"][:2]))


def show(title: str, rows: list[dict], names: list[str]) -> None:
    print(f"\n{title}: ACC / NMI / k-NN over the best of five baselines in hindsight")
    print(f"{'':32}{'mean ACC [95 %]':>22}{'NMI':>7}{'k-NN':>7}", end="")
    print("".join(f"{name:>14}" for name in names))
    for row in rows:
        acc, nmi, knn = row["mean"]
        print(f"{row['idea']:32}{acc:8.3f} [{row['low'][0]:.3f}, {row['high'][0]:.3f}]", end="")
        print(f"{nmi:7.3f}{knn:7.3f}", end="")
        print("".join(f"{row['data'][n][0]:8.2f}/{row['data'][n][1]:.2f} " for n in names))


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=8)
    parser.add_argument("--only", help="data sets, comma-separated")
    parser.add_argument("--ideas", help="beginnings of their names, between semicolons")
    parser.add_argument("--seen", type=int, help="number of seen classes; at most 10 unseen")
    parser.add_argument("--cache", type=Path, default=Path("ideas-cache.json"))
    options = parser.parse_args()
    names = options.only.split(",") if options.only else list(DATA)
    wanted = tuple(options.ideas.split(";")) if options.ideas else ("",)
    ideas = BASELINES | {name: idea for name, idea in IDEAS.items() if name.startswith(wanted)}
    numbers, cache = range(options.splits), options.cache
    if options.seen is not None:
        cache = cache.with_stem(f"{cache.stem}-{options.seen}")
    with threadpool_limits(1):
        known = run(names, ideas, numbers, options.data, cache, options.seen)
    document = {"default": DEFAULT, "k": KS, "metrics": METRICS, "data": names}
    for title, start in (("chosen on", 0), ("confirmed on", 1)):
        numbers = list(range(start, options.splits, 2))
        rows = list(table(known, names, list(ideas), numbers))
        show(f"{title} {len(numbers)} splits each", rows, names)
        document[title] = {"splits": len(numbers), "rows": rows}
    if not (options.only or options.ideas or options.seen):
        RESULTS.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
