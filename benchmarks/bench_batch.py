"""Genes of donors among those that unlabeled cells select, with and without ``batch``.

Human lung cells of four batches and 34 types, of which 22 are seen and 12 unseen, in ten
splits. The cells of unseen types take part without their labels. A gene is one of the batch if
the batches explain more of its variance over all cells than the types do. Writes
benchmarks/results/batch.json.

    python benchmarks/bench_batch.py CELLS.npz     # X, y, A and batch; about two minutes
"""

from __future__ import annotations

import argparse
import warnings

import numpy as np
from record import write_results

from semfs import SemFS
from semfs.evaluation import cluster_scores
from semfs.labels import encode_labels

K = 50
N_SPLITS = 10
N_SEEN = 22
#: K-means runs that a score is the mean of.
N_RUNS = 5


def explained(X: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """Share of the variance (d,) of each column that groups of the samples explain."""
    counts = np.bincount(codes)
    sums = np.zeros((len(counts), X.shape[1]))
    np.add.at(sums, codes, X)
    between = counts @ (sums / counts[:, None] - X.mean(axis=0)) ** 2
    total = ((X - X.mean(axis=0)) ** 2).sum(axis=0)
    return between / np.where(total > 0, total, np.inf)


def compare(X, y, A, batch, seed: int) -> dict[str, dict[str, float]]:
    """Scores of one split, without and with batches."""
    rng = np.random.default_rng(seed)
    seen = np.isin(y, rng.permutation(y.max() + 1)[:N_SEEN])
    labels = np.where(seen, y, -1)
    table = {int(c): A[c] for c in np.unique(y[seen])}
    of_type = explained(X, y)
    of_batch = explained(X, batch)
    scores = {}
    for name, options in {"without": {}, "with": {"batch": batch}}.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            selector = SemFS(K, table).fit(X, labels, **options)
        genes = selector.get_support(indices=True)
        acc, nmi = cluster_scores(X[~seen][:, genes], y[~seen], N_RUNS, seed)
        share = float(np.mean(of_batch[genes] > of_type[genes]))
        scores[name] = {
            "batch_genes": share,
            "ACC": float(acc.mean()),
            "NMI": float(nmi.mean()),
        }
    return scores


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cells", help="NPZ file with X, y, A and batch")
    cells = np.load(parser.parse_args().cells)
    X = cells["X"].astype(np.float32)
    y = cells["y"].astype(np.intp)
    batch = encode_labels(cells["batch"])[1]
    runs = [compare(X, y, cells["A"], batch, seed) for seed in range(N_SPLITS)]
    rows = []
    for name in ("without", "with"):
        found = {key: [run[name][key] for run in runs] for key in runs[0][name]}
        means = {key: float(np.mean(values)) for key, values in found.items()}
        rows.append({"batch": name, **means, "splits": found})
        print(name, {key: round(value, 4) for key, value in means.items()}, flush=True)
    found = {"k": K, "n_splits": N_SPLITS, "n_seen": N_SEEN, "rows": rows}
    write_results("batch", found, "python benchmarks/bench_batch.py human_lung.npz")


if __name__ == "__main__":
    main()
