"""SemFS beside the libraries that people use instead, on cell types that were not labeled.

    python benchmarks/bench_peers.py --data DIR            # DIR holds cells/human_lung.npz
    python benchmarks/bench_peers.py --data DIR --time     # seconds of each fit, on one split
    python benchmarks/bench_peers.py --data DIR --scib scib/bin/python

Data: the bundled lung sample and, with ``--data``, the human lung. On each of ten random class
splits, 30 % of the cells of each seen type and half of the cells of each unseen type are put
aside. Every method selects k genes on the rest. Scored are K-means on the unseen types (ACC,
NMI), 5 nearest neighbors on the cells of the seen types that were put aside (balanced
accuracy), and the "unseen" distances of Zappia et al. on 10 principal components of the
selected genes. ``--scib`` names the Python of an environment with scib-metrics, whose isolated
labels are computed for the genes that each method selects on all types of the human lung.
Finished (data, split, method) triples are kept in ``--cache``; the same command continues.
Writes benchmarks/results/peers.json.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from record import write_results
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectKBest, f_classif

from semfs import SemFS
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.evaluation import cluster_scores, knn_balanced_accuracy
from semfs.evaluation.unseen import (
    unseen_class_distance,
    unseen_sample_distance,
    unseen_uncertainty,
)
from semfs.lab.comparison import paired_interval
from semfs.lab.splits import SplitData, random_splits, split_data

#: Numbers of genes.
KS = (20, 50)
#: Seed of the splits and of what is put aside.
SEED = 2026
#: Share of the cells of each seen type that is put aside for nearest neighbors.
HELD_OUT = 0.3
#: Cells that a type of the human lung must have.
FEWEST_CELLS = 8
#: Principal components of the selected genes, for the distances.
N_COMPONENTS = 10
#: The same for the distance of types: each split has unseen types with twice as many cells.
N_TYPE_COMPONENTS = 5
#: K-means runs per score.
N_REPEATS = 10
OURS = "SemFS, unseen types described"
MEASURES = ("nmi", "acc", "knn", "sample_distance", "label_distance", "uncertainty")

#: A method selects k genes, best first where it ranks them, from a split.
Select = Callable[[SplitData, int], np.ndarray]


# ---- methods -------------------------------------------------------------------------------


def semfs_described(split: SplitData, k: int) -> np.ndarray:
    return SemFS(k, split.attributes).fit(split.X, split.y).order_


def semfs_labels(split: SplitData, k: int) -> np.ndarray:
    return SemFS(k).fit(split.X, split.y).order_


def semfs_unlabeled(split: SplitData, k: int) -> np.ndarray:
    selector = SemFS(k, split.attributes)
    return selector.fit(split.X, split.y, X_unlabeled=split.X_unlabeled).order_


def anova(split: SplitData, k: int) -> np.ndarray:
    scores = SelectKBest(f_classif, k=k).fit(split.X, split.y).scores_
    return np.argsort(-np.nan_to_num(scores), kind="stable")


def fastcan(split: SplitData, k: int) -> np.ndarray:
    from fastcan import FastCan

    varying = varying_genes(split)
    selector = FastCan(n_features_to_select=k, verbose=0)
    selector.fit(split.X[:, varying], one_hot(split.y))
    return varying[selector.indices_]


def abess(split: SplitData, k: int) -> np.ndarray:
    from abess import MultiTaskRegression

    varying = varying_genes(split)
    model = MultiTaskRegression(support_size=k)
    model.fit(split.X[:, varying].astype(np.float64), one_hot(split.y))
    return varying[np.abs(model.coef_).sum(axis=1) > 0]


def skglm(split: SplitData, k: int) -> np.ndarray:
    """The k largest rows of the first lasso of a path that has k rows or more."""
    from skglm.estimators import MultiTaskLasso

    X = np.asfortranarray(split.X - split.X.mean(axis=0), dtype=np.float64)
    Y = one_hot(split.y)
    Y = Y - Y.mean(axis=0)
    largest = np.linalg.norm(X.T @ Y, axis=1).max() / len(X)
    norms = np.zeros(X.shape[1])
    for share in np.geomspace(0.8, 0.02, 12):
        model = MultiTaskLasso(alpha=share * largest, fit_intercept=False).fit(X, Y)
        norms = np.linalg.norm(model.coef_, axis=0)
        if np.count_nonzero(norms) >= k:
            break
    return np.argsort(-norms, kind="stable")


def scanpy_hvg(split: SplitData, k: int) -> np.ndarray:
    return _highly_variable(split.X, k)


def scanpy_hvg_unlabeled(split: SplitData, k: int) -> np.ndarray:
    return _highly_variable(np.vstack([split.X, split.X_unlabeled]), k)


def _highly_variable(X: np.ndarray, k: int) -> np.ndarray:
    import anndata
    import scanpy

    cells = anndata.AnnData(X.astype(np.float32))
    scanpy.pp.highly_variable_genes(cells, n_top_genes=k)
    spread = cells.var["dispersions_norm"].to_numpy()
    return np.argsort(-np.nan_to_num(spread, nan=-np.inf), kind="stable")


def scanpy_markers(split: SplitData, k: int) -> np.ndarray:
    """The best marker of each type, then the second of each type, and so on."""
    import anndata
    import scanpy

    cells = anndata.AnnData(split.X.astype(np.float32))
    cells.obs["type"] = pd.Categorical([str(label) for label in split.y])
    scanpy.tl.rank_genes_groups(cells, "type", n_genes=k)
    names = cells.uns["rank_genes_groups"]["names"]
    in_turn = [int(gene) for rank in names for gene in rank]
    return np.array(list(dict.fromkeys(in_turn)))


def scgenefit(split: SplitData, k: int) -> np.ndarray:
    from scGeneFit.functions import get_markers

    _, codes = np.unique(split.y, return_inverse=True)
    np.random.seed(SEED)  # noqa: NPY002 - it draws from this generator
    found = get_markers(
        split.X.astype(np.float64),
        codes,
        k,
        method="centers",
        epsilon=1,
        verbose=False,
    )
    return np.asarray(found)


def varying_genes(split: SplitData) -> np.ndarray:
    """Genes that are not constant: fastcan and abess refuse others."""
    return np.flatnonzero(np.ptp(split.X, axis=0) > 0)


def one_hot(y: np.ndarray) -> np.ndarray:
    return (y[:, None] == np.unique(y)).astype(np.float64)


#: label: function, package that must be installed, what it sees of the unseen types
METHODS: dict[str, tuple[Select, str, str]] = {
    OURS: (semfs_described, "semfs", "descriptions"),
    "SemFS, labels only": (semfs_labels, "semfs", "nothing"),
    "SemFS, unlabeled cells": (semfs_unlabeled, "semfs", "descriptions, unlabeled cells"),
    "SelectKBest(f_classif)": (anova, "sklearn", "nothing"),
    "fastcan": (fastcan, "fastcan", "nothing"),
    "abess": (abess, "abess", "nothing"),
    "skglm": (skglm, "skglm", "nothing"),
    "scanpy, highly variable": (scanpy_hvg, "scanpy", "nothing"),
    "scanpy, highly variable, unlabeled cells": (
        scanpy_hvg_unlabeled,
        "scanpy",
        "unlabeled cells",
    ),
    "scanpy, rank_genes_groups": (scanpy_markers, "scanpy", "nothing"),
    "scGeneFit": (scgenefit, "scGeneFit", "nothing"),
}
PACKAGES = ("fastcan", "abess", "skglm", "scanpy", "scGeneFit")


# ---- data ----------------------------------------------------------------------------------


def human_lung(folder: Path) -> ZeroShotDataset:
    """The human lung: types described by their ancestors in the Cell Ontology."""
    with np.load(folder / "cells" / "human_lung.npz") as stored:
        X = stored["X"].astype(np.float32)
        y = stored["y"].astype(int)
        A = stored["A"][:, ~stored["own_term_only"]].astype(float)
        batch = stored["batch"]
    kept = np.bincount(y)[y] >= FEWEST_CELLS
    table = pd.DataFrame(A, columns=[f"a{j}" for j in range(A.shape[1])])
    facts = {"batch": batch[kept]}
    return ZeroShotDataset("human lung", X[kept], y[kept], table, info=facts)


def datasets(folder: Path | None) -> list[ZeroShotDataset]:
    found = [load_sample()]
    if folder is not None:
        found.append(human_lung(folder))
    return found


def held_out(split: SplitData) -> tuple[SplitData, np.ndarray, np.ndarray]:
    """The split without some cells of the seen types, and these cells and their types."""
    rng = np.random.RandomState(split.seed(SEED))
    kept: list[np.ndarray] = []
    aside: list[np.ndarray] = []
    for label in np.unique(split.y):
        cells = rng.permutation(np.flatnonzero(split.y == label))
        n_aside = max(1, round(HELD_OUT * len(cells)))
        aside.append(cells[:n_aside])
        kept.append(cells[n_aside:])
    tested = np.concatenate(aside)
    return split.keep_samples(np.concatenate(kept)), split.X[tested], split.y[tested]


def class_splits(data: ZeroShotDataset, n_splits: int) -> Iterator[SplitData]:
    for name, unseen in random_splits(data, n_splits, SEED).items():
        yield split_data(data, tuple(unseen), name).with_unlabeled_half(SEED)


# ---- scores --------------------------------------------------------------------------------


def scores_of(whole: SplitData, select: Select) -> dict[str, dict[str, float]]:
    """Scores by k of the genes that a method selects on one split."""
    split, X_test, y_test = held_out(whole)
    found = {}
    for k in KS:
        genes = select(split, k)[:k]
        accs, nmis = cluster_scores(
            split.X_unseen[:, genes],
            split.y_unseen,
            n_repeats=N_REPEATS,
        )
        pca = PCA(N_COMPONENTS, random_state=0).fit(split.X[:, genes])
        Z = pca.transform(split.X[:, genes])
        Z_unseen = pca.transform(split.X_unseen[:, genes])
        found[str(k)] = {
            "n_genes": len(genes),
            "acc": float(accs.mean()),
            "nmi": float(nmis.mean()),
            "knn": knn_balanced_accuracy(split.X[:, genes], split.y, X_test[:, genes], y_test),
            "sample_distance": unseen_sample_distance(Z, split.y, Z_unseen),
            "label_distance": unseen_class_distance(
                Z[:, :N_TYPE_COMPONENTS],
                split.y,
                Z_unseen[:, :N_TYPE_COMPONENTS],
                split.y_unseen,
            ),
            "uncertainty": unseen_uncertainty(Z, split.y, Z_unseen),
        }
    return found


def installed(label: str) -> bool:
    return importlib.util.find_spec(METHODS[label][1]) is not None


def summarize(cache: dict[str, Any], name: str, n_splits: int) -> list[dict[str, Any]]:
    """One row per method and k: means over the splits, and the lead of ours in NMI."""
    rows = []
    for label, (_, package, sees) in METHODS.items():
        for k in KS:
            splits = [f"random-{i}" for i in range(n_splits)]
            of_split = [cache.get(f"{name}|{split}|{label}", {}) for split in splits]
            if not all(str(k) in scores for scores in of_split):
                continue
            means = {
                measure: float(np.mean([scores[str(k)][measure] for scores in of_split]))
                for measure in MEASURES
            }
            leads = {}
            for measure in ("nmi", "acc", "knn"):
                ours = [cache[f"{name}|{split}|{OURS}"][str(k)][measure] for split in splits]
                theirs = [scores[str(k)][measure] for scores in of_split]
                lead = paired_interval([a - b for a, b in zip(ours, theirs)])
                leads[measure] = [lead.mean, lead.low, lead.high]
            row = {"dataset": name, "method": label, "package": package, "sees": sees, "k": k}
            rows.append({**row, "splits": n_splits, **means, "our_lead": leads})
    return rows


# ---- time, and scib-metrics ----------------------------------------------------------------


def measure_seconds(data: ZeroShotDataset) -> dict[str, float]:
    """Seconds of one fit of each method at the largest k, after one that is not counted."""
    split, _, _ = held_out(next(class_splits(data, 1)))
    seconds = {}
    for label, (select, _, _) in METHODS.items():
        if not installed(label):
            continue
        select(split, min(KS))  # imports and compilation are not what is measured
        start = time.perf_counter()
        select(split, max(KS))
        seconds[label] = time.perf_counter() - start
        print(f"{label}: {seconds[label]:.2f} s", flush=True)
    return seconds


#: Runs in the other environment: reads panels, prints the score of each.
SCIB = """
import json, sys
import numpy as np
import scib_metrics
from importlib.metadata import version
with np.load(sys.argv[1]) as stored:
    y, batch = stored["y"], stored["batch"]
    found = {
        name: float(scib_metrics.isolated_labels(stored[name], y, batch))
        for name in stored.files if name not in ("y", "batch")
    }
print(json.dumps({"version": version("scib-metrics"), "scores": found}))
"""


def isolated_labels(data: ZeroShotDataset, python: str) -> dict[str, Any]:
    """scib-metrics' isolated labels in the space of the genes each method selects.

    All types are labeled here, because the metric asks how well types that occur in few
    batches are separated. Methods that need unlabeled cells are left out.
    """
    whole = SplitData.of(data)
    arrays: dict[str, Any] = {"y": whole.y.astype(str), "batch": data.info["batch"].astype(str)}
    for label, (select, _, sees) in METHODS.items():
        if installed(label) and "unlabeled" not in sees:
            genes = select(whole, max(KS))[: max(KS)]
            Z = PCA(N_COMPONENTS, random_state=0).fit_transform(whole.X[:, genes])
            arrays[label] = Z.astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "panels.npz"
        np.savez(path, **arrays)
        command = [python, "-c", SCIB, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1]) | {"k": max(KS)}


# ---- the program ---------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder with cells/human_lung.npz")
    parser.add_argument("--splits", type=int, default=10)
    parser.add_argument("--cache", type=Path, default=Path("peers.cache.json"))
    parser.add_argument("--time", action="store_true", help="measure seconds, and stop")
    parser.add_argument("--scib", help="Python of an environment with scib-metrics")
    given = parser.parse_args()
    cache = json.loads(given.cache.read_text()) if given.cache.exists() else {}
    warnings.simplefilter("ignore")
    sets = datasets(given.data)
    if given.time:
        cache["seconds"] = {"dataset": sets[-1].name, "by_method": measure_seconds(sets[-1])}
        given.cache.write_text(json.dumps(cache))
    elif given.scib:
        cache["isolated"] = isolated_labels(sets[-1], given.scib)
        given.cache.write_text(json.dumps(cache))
    else:
        score_all(sets, given.splits, cache, given.cache)
    rows = [row for data in sets for row in summarize(cache, data.name, given.splits)]
    found = {
        "peers": {name: version(name) for name in PACKAGES if is_installed(name)},
        "not_run": [label for label in METHODS if not installed(label)],
        "seconds": cache.get("seconds", {}),
        "isolated": cache.get("isolated", {}),
        "failures": cache.get("failures", {}),
        "rows": rows,
    }
    command = "python benchmarks/bench_peers.py --data DIR"
    print(write_results("peers", found, f"{command}; the same with --time, with --scib PYTHON"))


def is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def score_all(
    sets: list[ZeroShotDataset], n_splits: int, cache: dict[str, Any], path: Path
) -> None:
    """Score what is not in the cache; a method that fails is recorded and left out."""
    failures = cache["failures"] = {}
    for data in sets:
        for split in class_splits(data, n_splits):
            for label, (select, _, _) in METHODS.items():
                key = f"{data.name}|{split.name}|{label}"
                if key in cache or label in failures or not installed(label):
                    continue
                try:
                    cache[key] = scores_of(split, select)
                except Exception as error:
                    failures[label] = f"{type(error).__name__}: {error}"
                    print(f"{label} failed: {error}", flush=True)
                path.write_text(json.dumps(cache))
            print(data.name, split.name, flush=True)


if __name__ == "__main__":
    main()
