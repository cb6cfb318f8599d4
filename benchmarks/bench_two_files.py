"""Cells of one laboratory named by a panel of another: what limits the accuracy?

    pip download --no-binary :all: --no-deps popv==0.4.1      # its dataset/test/ has two files
    python benchmarks/bench_two_files.py ts_lung_subset.h5ad lca_subset.h5ad --ontology cl.obo

A panel is selected on the first file (counts, log-normalized, genes of both files) and names
the cells of the second, of which many belong to types that the first lacks. Types are described
by their ancestors in the Cell Ontology, with and without their own terms. Measured are the
share of right cells, and its mean over types: new types among themselves, and beside seen ones.

Three questions follow. Is it the shift between the laboratories? The selected genes of the
second file are brought to those of the first: scaled and moved by the *true* labels of its
seen types, standardized, or matched in their distributions. Is it the bias of seen types? The
best one is looked up in the truth. Is it the genes? The means of the new types are taken from
half of their cells, and the other half is named by the nearest mean. All three know the truth:
they are bounds, not methods. Writes benchmarks/results/two_files.json.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import scipy.sparse as sp
from record import write_results
from threadpoolctl import threadpool_limits

from semfs import SemFS
from semfs.attributes import attributes_from_ontology

LABELS = ("cell_type_ontology_term_id", "cell_ontology_id")  # of the two files
N_GENES = (50, 100)
COUNTS_PER_CELL = 1e4
N_HALVES = 20  # random halves of the second file
SEEN_AT_LEAST = 0.6  # what seen types shall keep when new ones compete
BIASES = np.arange(-20.0, 40.0, 0.5)
#: A gene is scaled by a factor between 1/4 and 4.
LARGEST_FACTOR = 4.0
#: Types with fewer cells in either file say nothing about its scale.
FEWEST_CELLS = 3
SMALL = 0.1  # added to standard deviations of log-normalized genes


@dataclass(frozen=True)
class TwoFiles:
    """Log-normalized cells of two files, with the same genes."""

    X: np.ndarray  # (n, d), the file of the panel
    y: np.ndarray
    X_new: np.ndarray  # (m, d), the file to be named
    y_new: np.ndarray

    @property
    def seen(self) -> list[str]:
        return sorted(set(self.y))

    @property
    def unseen(self) -> list[str]:
        return sorted(set(self.y_new) - set(self.y))

    @property
    def is_unseen(self) -> np.ndarray:
        return np.isin(self.y_new, self.unseen)


def read(paths: list[Path]) -> TwoFiles:
    """Both files, log-normalized over all their genes, with those genes that both have."""
    import anndata

    tables = []
    labels = []
    for path, label in zip(paths, LABELS, strict=True):
        cells = anndata.read_h5ad(path)
        counts = sp.csr_array(cells.X).astype(float)
        totals = np.asarray(counts.sum(axis=1)).ravel()
        logged = (sp.diags_array(COUNTS_PER_CELL / totals) @ counts).tocsr()
        logged.data = np.log1p(logged.data)
        names = cells.var_names.astype(str)
        first = ~names.duplicated()
        tables.append((logged[:, first], names[first]))
        labels.append(cells.obs[label].astype(str).to_numpy())
    genes = tables[1][1].intersection(tables[0][1])
    X, X_new = (
        X[:, names.get_indexer(genes)].toarray().astype(np.float32) for X, names in tables
    )
    return TwoFiles(X, labels[0], X_new, labels[1])


def accuracies(y: np.ndarray, found: np.ndarray) -> list[float]:
    """Share of right cells, and its mean over types."""
    right = found == y
    of_types = [right[y == label].mean() for label in np.unique(y)]
    return [round(float(right.mean()), 3), round(float(np.mean(of_types)), 3)]


def measured(
    selector: SemFS, data: TwoFiles, table: pd.DataFrame, X: np.ndarray
) -> dict[str, list[float]]:
    """Accuracies on cells X of the second file, as they are or corrected."""
    new = data.is_unseen
    only = table.loc[data.unseen]
    found = {
        "alone": accuracies(data.y_new[new], selector.predict(X[new], only)),
        "together": accuracies(data.y_new[new], selector.predict_together(X[new], only)),
    }
    ways: dict[str, Callable[..., np.ndarray]] = {
        "alone": selector.predict,
        "together": selector.predict_together,
    }
    for way, predict in ways.items():
        labels = predict(X, table)
        found[f"all compete {way}, new"] = accuracies(data.y_new[new], labels[new])
        found[f"all compete {way}, seen"] = accuracies(data.y_new[~new], labels[~new])
    return found


# ---- is it the shift between the laboratories? ---------------------------------------------


def class_means(X: np.ndarray, y: np.ndarray, classes: list[str]) -> np.ndarray:
    return np.stack([X[y == label].mean(axis=0) for label in classes])


def corrections(data: TwoFiles) -> dict[str, np.ndarray]:
    """The cells of the second file, brought to the genes of the first in several ways."""
    common = [
        label
        for label in data.seen
        if min((data.y == label).sum(), (data.y_new == label).sum()) >= FEWEST_CELLS
    ]
    there = class_means(data.X_new, data.y_new, common)
    here = class_means(data.X, data.y, common)
    factor = (here.std(axis=0) + SMALL) / (there.std(axis=0) + SMALL)
    factor = np.clip(factor, 1 / LARGEST_FACTOR, LARGEST_FACTOR)
    offset = here.mean(axis=0) - there.mean(axis=0)
    scaled = data.X_new * factor
    spread = np.maximum(data.X_new.std(axis=0), SMALL**3)
    standardized = (data.X_new - data.X_new.mean(axis=0)) / spread
    return {
        "true offset of seen types": data.X_new + offset,
        "true scale of seen types": scaled,
        "true scale and offset": scaled + here.mean(axis=0) - factor * there.mean(axis=0),
        "standardized in each file": standardized * data.X.std(axis=0) + data.X.mean(axis=0),
    }


def matched(data: TwoFiles, genes: np.ndarray) -> np.ndarray:
    """Cells of the second file, whose selected genes are distributed as in the first."""
    X = data.X_new.copy()
    for j in np.flatnonzero(genes):
        values = np.sort(X[:, j])
        low = np.searchsorted(values, X[:, j], side="left")
        high = np.searchsorted(values, X[:, j], side="right")
        X[:, j] = np.quantile(data.X[:, j], (low + high) / 2 / len(X))
    return X


# ---- is it the bias? -----------------------------------------------------------------------


def best_with_any_bias(
    selector: SemFS, data: TwoFiles, table: pd.DataFrame
) -> dict[str, float | None]:
    """The best share of right cells of new types, if seen ones keep `SEEN_AT_LEAST`."""
    scores = selector.decision_function(data.X_new, table)
    classes = np.array(table.index)
    is_seen = np.isin(classes, data.seen)
    new = data.is_unseen
    best = None
    for bias in BIASES:
        labels = classes[(scores - bias * is_seen).argmax(axis=1)]
        right = labels == data.y_new
        if right[~new].mean() >= SEEN_AT_LEAST:
            best = max(best or 0.0, float(right[new].mean()))
    return {"seen at least": SEEN_AT_LEAST, "new at most": best and round(best, 3)}


# ---- is it the genes? ----------------------------------------------------------------------


def bounds(data: TwoFiles, Z: np.ndarray, Z_new: np.ndarray) -> dict[str, list[float]]:
    """Accuracies of the nearest true mean, for features Z of both files.

    Means of new types are those of half of the second file's cells; those of seen types are
    known from the first file.
    """
    rng = np.random.default_rng(0)
    new = data.is_unseen
    here = class_means(Z, data.y, data.seen)
    found: dict[str, list[list[float]]] = {"new": [], "all, new": [], "all, seen": []}
    for _ in range(N_HALVES):
        half = np.zeros(len(Z_new), dtype=bool)
        for label in data.unseen:
            cells = rng.permutation(np.flatnonzero(data.y_new == label))
            if len(cells) > 1:  # a single cell cannot be both
                half[cells[: (len(cells) + 1) // 2]] = True
        known = sorted(set(data.y_new[half]))
        means = class_means(Z_new[half], data.y_new[half], known)
        rest = np.isin(data.y_new, known) & ~half
        truth = data.y_new[rest]
        found["new"].append(accuracies(truth, nearest(Z_new[rest], means, known)))
        everything = (np.concatenate([here, means]), data.seen + known)
        found["all, new"].append(accuracies(truth, nearest(Z_new[rest], *everything)))
        labels = nearest(Z_new[~new], *everything)
        found["all, seen"].append(accuracies(data.y_new[~new], labels))
    return {key: np.mean(values, axis=0).round(3).tolist() for key, values in found.items()}


def nearest(Z: np.ndarray, means: np.ndarray, classes: list[str]) -> np.ndarray:
    distances = (means**2).sum(axis=1) - 2 * Z @ means.T
    return np.array(classes)[distances.argmin(axis=1)]


def run(paths: list[Path], ontology: str) -> dict[str, Any]:
    """Measure everything."""
    data = read(paths)
    types = data.seen + data.unseen
    found: dict[str, Any] = {
        "seen types": len(data.seen),
        "new types": len(data.unseen),
        "cells of new types": int(data.is_unseen.sum()),
        "cells of seen types": int((~data.is_unseen).sum()),
        "genes": data.X.shape[1],
    }
    corrected = corrections(data)
    for own, name in ((False, "ancestors"), (True, "ancestors and own terms")):
        table = attributes_from_ontology(types, ontology, own=own)
        for k in N_GENES:
            selector = SemFS(k, table).fit(data.X, data.y)
            ways = {"as they are": data.X_new, **corrected}
            ways["distributions matched"] = matched(data, selector.get_support())
            row: dict[str, Any] = {
                way: measured(selector, data, table, X) for way, X in ways.items()
            }
            row["any bias"] = best_with_any_bias(selector, data, table)
            genes = selector.get_support()
            whiten = selector._get_fitted().prediction_model.whiten
            cells = (whiten(X[:, genes].astype(float)) for X in (data.X, data.X_new))
            row["true means, whitened"] = bounds(data, *cells)
            row["true means"] = bounds(data, data.X[:, genes], data.X_new[:, genes])
            found[f"{name}, {k} genes"] = row
            print(name, k, json.dumps(row), flush=True)
    found["true means, all genes"] = bounds(data, data.X, data.X_new)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("files", type=Path, nargs=2)
    parser.add_argument("--ontology", default="cl", help="a file, or the Cell Ontology")
    parser.add_argument("--no-write", action="store_true", help="only print")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    with threadpool_limits(1):
        found = run(options.files, options.ontology)
    print(json.dumps(found, indent=1))
    if not options.no_write:
        names = " ".join(path.name for path in options.files)
        source = Path(options.ontology).name
        command = f"python benchmarks/bench_two_files.py {names} --ontology {source}"
        write_results("two_files", found, command)


if __name__ == "__main__":
    sys.exit(main())
