"""What each kind of knowledge about unseen classes is worth, and old defaults against new.

    python benchmarks/bench_knowledge.py --data DIR            # DIR holds the .npz files below
    python benchmarks/bench_knowledge.py --data DIR --choose   # settings of unlabeled samples
    python benchmarks/bench_knowledge.py --data DIR --groups   # groups of clusters, or none
    python benchmarks/bench_knowledge.py --data DIR --confirm  # old defaults against new
    python benchmarks/bench_knowledge.py --data DIR --confirm --old-package COPY
    python benchmarks/bench_knowledge.py --data DIR --weights  # weight of clusters, penalties
    python benchmarks/bench_knowledge.py --data DIR --weights-confirm --old-package COPY

Every method ranks the features of random class splits, and is judged twice for each number k
of features: by K-means on samples of unseen classes (ACC and NMI), and by 5 nearest neighbors
on held-out samples of the seen classes (balanced accuracy). Methods that see unlabeled
samples have rivals that see the same ones. Series of splits are drawn independently: "evidence"
compares with rivals, ``--choose`` draws "choosing", ``--groups`` draws "choosing-4", and
``--confirm`` draws "evidence-4", which had not been drawn when the first new defaults were
chosen. Later, the weight and the penalties of clusters were chosen on "choosing-5"
(``--weights``) and confirmed on "evidence-5" (``--weights-confirm``).
``--old-package`` names the folder of an earlier copy of the source, whose SemFS is run on the
same splits at its own defaults.

Finished (data set, split) pairs are kept in ``--cache``; the same command continues. Writes one
row per data set, split, method and k to benchmarks/results/knowledge.json (defaults.json,
groups.json, confirmed.json, weights.json, weights_confirmed.json); docs/benchmark_tables.py
makes the tables.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import rivals
from class_splits import DATA, Split, class_means, class_split
from rank_with_package import another_package
from record import write_results
from sklearn.metrics import balanced_accuracy_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.evaluation import cluster_scores, starting_rows

__all__ = ["DATA", "Split", "class_means", "class_split"]  # for other benchmarks

KS = (5, 10, 20, 50)
#: K-means runs that a score is the mean of.
N_STARTS = 3
N_NEIGHBORS = 5
#: One in so many samples of a seen class is held out.
HELD_OUT = 4
N_SPLITS = 10
#: Series of splits: those that are compared with rivals, those that settings are chosen on, and
#: those that the chosen defaults are confirmed on.
EVIDENCE = "evidence"
CHOOSING = "choosing"
GROUPS = "choosing-4"
CONFIRMING = "evidence-4"
#: The same for the weight and the penalties of clusters.
WEIGHTS = "choosing-5"
CONFIRMING_WEIGHTS = "evidence-5"
DATA["CUB"] = ("cub_vgg_fc7_4096", 50)
#: Samples per seen and per unseen class, by data set.
DATA_SETS = {
    "animals31": (100, 75),
    "CLINC150": (100, 75),
    "aPascal": (100, 75),
    "human lung": (100, 75),
    "CIFAR10": (100, 75),
    "CUB": (30, 20),
}
#: Unlabeled samples of each unseen class where there are few.
FEW = 5
COLUMNS = ("raw", "standardized")

Method = Callable[[Split], np.ndarray]


# ---- methods -------------------------------------------------------------------------------


def on_labeled(rank: Callable[..., np.ndarray]) -> Method:
    """A rival that sees the labeled samples of the seen classes."""
    return lambda split: rank(split.X, split.y, max(KS))


def on_unlabeled(rank: Callable[..., np.ndarray]) -> Method:
    """A rival that sees the unlabeled samples alone."""
    return lambda split: rank(split.Xu, None, max(KS))


def on_all(rank: Callable[..., np.ndarray]) -> Method:
    """A rival that sees all samples, and no labels."""
    return lambda split: rank(np.concatenate([split.X, split.Xu]), None, max(KS))


def with_pseudo_labels(rank: Callable[..., np.ndarray]) -> Method:
    """A supervised rival that takes clusters of the unlabeled samples for further classes.

    It is told the true number of unseen classes, which SemFS is not.
    """

    def method(split: Split) -> np.ndarray:
        found = rivals.pseudo_labels(split.Xu, len(np.unique(split.yu)))
        y = np.concatenate([split.y, split.y.max() + 1 + found])
        return rank(np.concatenate([split.X, split.Xu]), y, max(KS))

    return method


def mcfs(split: Split) -> np.ndarray:
    """MCFS of the unlabeled samples, told the true number of unseen classes."""
    return rivals.mcfs(split.Xu, len(np.unique(split.yu)), max(KS))


def few(method: Method) -> Method:
    """The method with FEW unlabeled samples of each unseen class."""
    return lambda split: method(split.few(FEW))


def semfs(unlabeled: bool = False, constants: Mapping[str, float] | None = None) -> Any:
    """Return a function of SemFS's parameters that makes a method; the table is the split's."""

    def with_parameters(**parameters: Any) -> Method:
        def method(split: Split) -> np.ndarray:
            settings = {"attributes": split.A} | parameters
            selector = SemFS(max(KS), **settings)
            X_unlabeled = split.Xu if unlabeled else None
            if not constants:
                return selector.fit(split.X, split.y, X_unlabeled=X_unlabeled).order_
            with patch.multiple("semfs.selectors.unlabeled_classes", **constants):
                return selector.fit(split.X, split.y, X_unlabeled=X_unlabeled).order_

        return method

    return with_parameters


#: Parameters of the first version, and constants that it lacked or had otherwise.
OLD = {"gamma": 10.0, "penalty_scale": "gram", "label_weight": 0.0, "max_correlation": None}
#: The defaults before the weight and the penalties of clusters changed.
BEFORE = {
    "CLUSTER_ALPHA": 1.0,
    "PENALTY_OF_OTHERS": 1.0,
    "EQUAL_SAMPLES": 10.0,
    "SEEN_FLOOR": 0.15,
}
ONE_LEVEL = BEFORE | {"GROUPS_PER_CLUSTER": 1.0, "EQUAL_SAMPLES": 5.0}
NO_FLOOR = {"SEEN_FLOOR": 0.0} | ONE_LEVEL

LABELED_RIVALS: dict[str, Method] = {
    "Random": on_labeled(rivals.random_order),
    "Variance": on_labeled(rivals.variance),
    "between-class variance": on_labeled(rivals.between_class_variance),
    "ANOVA F": on_labeled(rivals.anova),
    "column-subset selection": on_labeled(rivals.column_subset),
    "Markers": on_labeled(rivals.markers),
    "mRMR": on_labeled(rivals.mrmr),
    "LASSO": on_labeled(rivals.lasso),
}
UNLABELED_RIVALS: dict[str, Method] = {
    "Variance, unlabeled": on_unlabeled(rivals.variance),
    "Variance, all": on_all(rivals.variance),
    "column-subset selection, unlabeled": on_unlabeled(rivals.column_subset),
    "column-subset selection, all": on_all(rivals.column_subset),
    "MCFS, unlabeled": mcfs,
    "ANOVA F, pseudo-labels": with_pseudo_labels(rivals.anova),
    "between-class variance, pseudo-labels": with_pseudo_labels(rivals.between_class_variance),
    "Markers, pseudo-labels": with_pseudo_labels(rivals.markers),
}
SEMFS: dict[str, Method] = {
    "SemFS, labels": semfs()(attributes=None),
    "SemFS, seen classes described": semfs()(target_attributes=None),
    "SemFS, described": semfs()(),
    "SemFS, few unlabeled": few(semfs(unlabeled=True)()),
    "SemFS, unlabeled": semfs(unlabeled=True)(),
    "SemFS, labels of unseen classes": lambda s: SemFS(max(KS)).fit(s.Xu, s.yu).order_,
}
OLD_DEFAULTS: dict[str, Method] = {
    "old defaults, described": semfs()(**OLD),
    "old defaults, unlabeled": semfs(unlabeled=True, constants=NO_FLOOR)(**OLD),
}
RAW: dict[str, Method] = {
    **LABELED_RIVALS,
    **UNLABELED_RIVALS,
    **{f"{name}, few": few(rival) for name, rival in UNLABELED_RIVALS.items()},
    **SEMFS,
    **OLD_DEFAULTS,
}
STANDARDIZED: dict[str, Method] = {
    **{name: SEMFS[name] for name in ("SemFS, described", "SemFS, unlabeled")},
    **OLD_DEFAULTS,
}
CLUSTERS_ALONE = semfs(unlabeled=True, constants=ONE_LEVEL)()


def floor(weight: float, penalty: float = 0.1, **parameters: Any) -> Method:
    """Clusters alone, with another smallest weight of the seen classes."""
    constants = ONE_LEVEL | {"SEEN_FLOOR": weight, "CLUSTER_PENALTY": penalty}
    return semfs(unlabeled=True, constants=constants)(**parameters)


#: Settings of unlabeled samples that are compared on the choosing splits, before there were
#: groups of clusters.
CHOICES: dict[str, Method] = {
    "SemFS, unlabeled": CLUSTERS_ALONE,
    "SemFS, described": semfs()(),
    **OLD_DEFAULTS,
    "floor 0.25": floor(0.25),
    "floor 0.2": floor(0.2),
    "floor 0.1": floor(0.1),
    "floor 0.25, cluster penalty 0.2": floor(0.25, 0.2),
    "floor 0.25, cluster penalty 0.05": floor(0.25, 0.05),
    "floor 0.25, number of classes known": floor(0.25, n_new_classes="table"),
}


def changed(constants: Mapping[str, float], **parameters: Any) -> Method:
    """The defaults before weight and penalties of clusters changed, with other constants."""
    return semfs(unlabeled=True, constants=BEFORE | constants)(**parameters)


#: Groups of clusters or none, and the weight of the seen classes.
GROUP_CHOICES: dict[str, Method] = {
    "SemFS, unlabeled": changed({}),
    "clusters alone, 5 samples": CLUSTERS_ALONE,
    "clusters alone, 10 samples": changed({"GROUPS_PER_CLUSTER": 1.0}),
    "groups as well, 5 samples": changed({"EQUAL_SAMPLES": 5.0}),
}
ALPHA = {"CLUSTER_ALPHA": 0.0}
PENALTY = {"PENALTY_OF_OTHERS": 0.7}
MORE_WEIGHT = {"EQUAL_SAMPLES": 13.0, "SEEN_FLOOR": 0.2}
#: Weight and penalties of clusters, compared with the defaults before.
WEIGHT_CHOICES: dict[str, Method] = {
    "SemFS, unlabeled": changed({}),
    "α of clusters 0": changed(ALPHA),
    "α of clusters 0, other penalties × 0.7": changed(ALPHA | PENALTY),
    "all three changes": changed(ALPHA | PENALTY | MORE_WEIGHT),
    "more weight of the seen classes alone": changed(MORE_WEIGHT),
    "less weight of the seen classes alone": changed({"EQUAL_SAMPLES": 7.0, "SEEN_FLOOR": 0.1}),
    "gamma=1.4": changed({}, gamma=1.4),
}
#: The defaults against those before.
WEIGHTS_CONFIRMED: dict[str, Method] = {
    "SemFS, unlabeled": semfs(unlabeled=True)(),
    "defaults before, unlabeled": changed({}),
}
#: What is confirmed: the defaults against old ones, and against clusters without groups.
CONFIRMED: dict[str, Method] = {
    **STANDARDIZED,
    "clusters alone, unlabeled": CLUSTERS_ALONE,
}
#: Methods of each series of splits, by columns.
METHODS: dict[str, dict[str, dict[str, Method]]] = {
    EVIDENCE: {"raw": RAW, "standardized": STANDARDIZED},
    CHOOSING: dict.fromkeys(COLUMNS, CHOICES),
    GROUPS: dict.fromkeys(COLUMNS, GROUP_CHOICES),
    CONFIRMING: dict.fromkeys(COLUMNS, CONFIRMED),
    WEIGHTS: dict.fromkeys(COLUMNS, WEIGHT_CHOICES),
    CONFIRMING_WEIGHTS: dict.fromkeys(COLUMNS, WEIGHTS_CONFIRMED),
}
#: Option and file of results of each series of splits.
FILES = {
    EVIDENCE: ("", "knowledge"),
    CHOOSING: (" --choose", "defaults"),
    GROUPS: (" --groups", "groups"),
    CONFIRMING: (" --confirm", "confirmed"),
    WEIGHTS: (" --weights", "weights"),
    CONFIRMING_WEIGHTS: (" --weights-confirm", "weights_confirmed"),
}


def old_version(package: Path) -> dict[str, Method]:
    """SemFS of an earlier copy of the source, at its own defaults."""

    def described(split: Split) -> np.ndarray:
        return another_package(package, max(KS), split.X, split.y, split.A)

    def unlabeled(split: Split) -> np.ndarray:
        return another_package(package, max(KS), split.X, split.y, split.A, split.Xu)

    return {"old version, described": described, "old version, unlabeled": unlabeled}


#: What a choice is compared with.
UNLABELED_CHOICES = ("floor", "old defaults, unl", "clusters alone", "groups as well")


# ---- one split -----------------------------------------------------------------------------


def problem(
    name: str, number: int, columns: str, folder: Path, series: str
) -> tuple[Split, np.ndarray, np.ndarray]:
    """A class split, and the samples and labels of seen classes that are held out of it."""
    split = class_split(name, number, folder, f"{series} ", DATA_SETS[name])
    # a table without rows of classes that have no samples, as users would write it
    A = split.A[: max(split.y.max(), split.yu.max()) + 1]
    rng = np.random.default_rng(number)
    held_out = np.zeros(len(split.y), dtype=bool)
    for label in np.unique(split.y):
        samples = np.flatnonzero(split.y == label)
        n_out = max(1, len(samples) // HELD_OUT)
        held_out[rng.permutation(samples)[:n_out]] = True
    X = split.X[~held_out]
    X_out = split.X[held_out]
    X_unseen = split.Xu
    if columns == "standardized":
        scaler = StandardScaler().fit(X)
        X = scaler.transform(X).astype(np.float32)
        X_out = scaler.transform(X_out).astype(np.float32)
        X_unseen = scaler.transform(X_unseen).astype(np.float32)
    seen = replace(split, A=A, X=X, y=split.y[~held_out], Xu=X_unseen)
    return seen, X_out, split.y[held_out]


def scores(
    order: np.ndarray, split: Split, X_out: np.ndarray, y_out: np.ndarray
) -> Iterator[dict[str, float]]:
    """ACC and NMI of the unseen classes, balanced accuracy of the seen ones, for each k."""
    starts = starting_rows(len(split.yu), len(np.unique(split.yu)), N_STARTS, 0)
    for k in KS:
        features = order[:k]
        acc, nmi = cluster_scores(split.Xu[:, features], split.yu, starts=starts)
        model = KNeighborsClassifier(N_NEIGHBORS).fit(split.X[:, features], split.y)
        predicted = model.predict(X_out[:, features])
        seen = balanced_accuracy_score(y_out, predicted)
        found = {"acc": acc.mean(), "nmi": nmi.mean(), "seen_knn": seen}
        yield {"k": k} | {score: round(float(value), 5) for score, value in found.items()}


def read_cache(cache: Path) -> list[dict[str, Any]]:
    """Finished rows."""
    if not cache.exists():
        return []
    return [json.loads(line) for line in cache.read_text().splitlines()]


def run(
    name: str, number: int, methods: Mapping[str, Mapping[str, Method]], options: Any
) -> None:
    """Score what the cache does not hold yet of a split."""
    known = {
        (row["columns"], row["method"])
        for row in read_cache(options.cache)
        if (row["dataset"], row["split"]) == (name, number)
    }
    for columns in COLUMNS:
        todo = [m for m in methods[columns] if (columns, m) not in known]
        if not todo:
            continue
        split, X_out, y_out = problem(name, number, columns, options.data, options.series)
        for method in todo:
            order = methods[columns][method](split)
            head = {"dataset": name, "split": number, "columns": columns, "method": method}
            rows = [head | found for found in scores(order, split, X_out, y_out)]
            with options.cache.open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


def compact(rows: list[dict[str, Any]], methods: list[str]) -> dict[str, Any]:
    """Rows as lists under one head, which is a third of the size, in the order of methods."""
    head = ["dataset", "split", "columns", "method", "k", "acc", "nmi", "seen_knn"]
    names = list(DATA_SETS)
    rows = sorted(
        rows,
        key=lambda row: (
            names.index(row["dataset"]),
            row["split"],
            row["columns"],
            methods.index(row["method"]),
            row["k"],
        ),
    )
    return {"head": head, "rows": [[row[column] for column in head] for row in rows]}


def results(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """What is written of the reported splits."""
    described = {
        "k": KS,
        "samples per class": DATA_SETS,
        "rivals": {
            "labeled": list(LABELED_RIVALS),
            "unlabeled": list(UNLABELED_RIVALS),
            "few": [f"{name}, few" for name in UNLABELED_RIVALS],
        },
    }
    return described | compact(rows, list(RAW))


def show(rows: list[dict[str, Any]]) -> None:
    """Print the mean over splits and k of each method, and of all data sets."""
    for columns in COLUMNS:
        for method in dict.fromkeys(r["method"] for r in rows if r["columns"] == columns):
            found = []
            for name in DATA_SETS:
                of_set = [
                    [row["acc"], row["nmi"], row["seen_knn"]]
                    for row in rows
                    if (row["dataset"], row["columns"], row["method"])
                    == (name, columns, method)
                ]
                found.append(np.mean(of_set, axis=0) if of_set else np.full(3, np.nan))
            text = "  ".join("/".join(f"{value:.3f}" for value in each) for each in found)
            mean = "/".join(f"{value:.3f}" for value in np.mean(found, axis=0))
            print(f"{columns[:3]} {method:40} {mean}   {text}")


def main() -> None:
    """Run, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--splits", type=int, default=N_SPLITS)
    parser.add_argument("--only", help="data sets, comma-separated")
    parser.add_argument(
        "--without", default="", help="methods to leave out, separated by semicolons"
    )
    series = parser.add_mutually_exclusive_group()
    series.add_argument(
        "--choose", dest="series", action="store_const", const=CHOOSING, default=EVIDENCE
    )
    series.add_argument("--groups", dest="series", action="store_const", const=GROUPS)
    series.add_argument("--confirm", dest="series", action="store_const", const=CONFIRMING)
    series.add_argument("--weights", dest="series", action="store_const", const=WEIGHTS)
    series.add_argument(
        "--weights-confirm", dest="series", action="store_const", const=CONFIRMING_WEIGHTS
    )
    parser.add_argument("--old-package", type=Path, help="folder of an earlier copy")
    parser.add_argument("--cache", type=Path)
    options = parser.parse_args()
    confirms = options.series in (CONFIRMING, CONFIRMING_WEIGHTS)
    if options.old_package is not None and not confirms:
        parser.error("--old-package needs --confirm or --weights-confirm")
    if options.cache is None:
        options.cache = Path(f"{options.series}-cache.jsonl")
    names = options.only.split(",") if options.only else list(DATA_SETS)
    methods = METHODS[options.series]
    if options.old_package is not None:
        further = old_version(options.old_package)
        if options.series == CONFIRMING_WEIGHTS:
            del further["old version, described"]
        methods = {columns: of_columns | further for columns, of_columns in methods.items()}
    left_out = options.without.split(";")
    methods = {
        c: {m: f for m, f in ms.items() if m not in left_out} for c, ms in methods.items()
    }
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        for number in range(options.splits):
            for name in names:
                run(name, number, methods, options)
                print(f"{name}, split {number}", flush=True)
    rows = read_cache(options.cache)
    show(rows)
    if options.only or options.without:
        return
    command = "python benchmarks/bench_knowledge.py --data DIR"
    option, name = FILES[options.series]
    command += option
    if options.old_package is not None:
        command += " --old-package COPY"
    if options.splits != N_SPLITS:
        command += f" --splits {options.splits}"
    if options.series == EVIDENCE:
        write_results(name, results(rows), command)
        return
    unlabeled = UNLABELED_CHOICES
    if options.series == WEIGHTS:
        unlabeled = tuple(WEIGHT_CHOICES)
    found = {"k": KS, "unlabeled": unlabeled}
    write_results(name, found | compact(rows, list(methods["raw"])), command)


if __name__ == "__main__":
    main()
