"""The whole story on the bundled cells: choose genes, judge them on cell types never seen."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets import ZeroShotDataset, load_sample
from semfs.files import appearing, need
from semfs.lab.cases import Source, random_splits, split_facts
from semfs.lab.comparison import Row, curves, styles
from semfs.lab.methods import find_method
from semfs.lab.paper import Bench, Protocol
from semfs.lab.store import Cell, result_rows
from semfs.selectors.semfs import SemFS

__all__ = ["Demo", "Gene", "draw_curves", "run_demo"]

METHODS = ("semfs", "semfs-labels", "anova", "variance", "random")
KS = (5, 10, 15, 20)
MARKERS = "osD^X*vP"


@dataclass(frozen=True)
class Gene:
    """A chosen gene: ``share`` of the total fall of J, and the attribute it speaks of most."""

    name: str
    share: float
    attribute: str


@dataclass(frozen=True)
class Demo:
    """Data set, chosen genes, and one row per split, method and k (as `semfs report` reads)."""

    data: ZeroShotDataset
    genes: list[Gene]
    rows: list[dict[str, Any]]
    info: dict[str, Any]


def run_demo(
    n_genes: int = 20,
    n_splits: int = 12,
    *,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Demo:
    """Choose genes on the seen cell types of the sample and cluster the unseen ones.

    The genes are those of the sample's own split. Methods are compared over ``n_splits``
    random splits with as many unseen types, because one split proves little. ``on_step`` is
    called after each of them.
    """
    data, rows = load_sample("blood"), []
    splits = random_splits(data, n_splits, seed)
    ks = tuple(k for k in KS if k <= n_genes) or (n_genes,)
    source = Source(data.name, data=data)
    bench = Bench({data.name: source}, {data.name: splits}, Protocol(ks, seed=seed))
    for split in splits:
        for name in METHODS:
            labels = (find_method(name).label,)
            cell = Cell("clustering", data.name, split, name, seed=seed, labels=labels)
            rows += result_rows(cell, bench(cell))
        on_step()
    facts = {"name": data.name, **split_facts(data, list(data.unseen))}
    return Demo(data, chosen_genes(data, n_genes), rows, {"datasets": {data.name: facts}})


def chosen_genes(data: ZeroShotDataset, n_genes: int) -> list[Gene]:
    """Return the genes that SemFS chooses on the seen types, best first."""
    X, y, _, _ = data.split()
    selector = SemFS(n_genes, attributes=data.attributes).fit(X, y)
    # How far one standard deviation of the gene moves an attribute, in its own spread.
    spread = selector.class_table_.values.std(axis=0)
    effect = selector.coef_ / np.where(spread > 0, spread, np.inf)
    gains = selector.scores_[selector.order_[:n_genes]]
    found = []
    for feature, gain in zip(selector.order_[:n_genes], gains):
        best = int(np.argmax(np.abs(effect[feature])))
        sign = "+" if effect[feature, best] > 0 else "−"
        name = str(selector.attribute_names_in_[best])
        found.append(
            Gene(str(data.feature_names[feature]), float(gain / gains.sum()), f"{sign} {name}")
        )
    return found


def draw_curves(rows: Iterable[Row], path: Any) -> Path:
    """Draw ACC and NMI against the number of features as PNG; bars are two standard errors."""
    matplotlib = need("matplotlib.figure", "plots", what="The picture")
    figure = matplotlib.Figure(figsize=(8.3, 3.0), layout="constrained")
    rows = list(rows)
    looks = styles(row["label"] for row in rows)
    for ax, metric in zip(figure.subplots(1, 2), ("acc", "nmi")):
        found = curves(rows, metric)
        for label in sorted(found, key=list(looks).index):
            look, points = looks[label], found[label]
            x, mean = [p.x for p in points], [p.mean for p in points]
            error = [2 * (p.sd or 0.0) / p.n**0.5 for p in points]
            shape = {"fmt": f"{MARKERS[look.marker % len(MARKERS)]}-", "ms": 3.5, "capsize": 2}
            line = {"color": look.colour, "lw": 1.3 * look.width, "elinewidth": 0.8}
            ax.errorbar(x, mean, error, label=label, **shape, **line)
        ax.set(xlabel="number of selected genes", ylabel=metric.upper())
        ax.grid(alpha=0.3)
    handles = figure.axes[0].get_legend_handles_labels()
    figure.legend(*handles, loc="outside right center", fontsize=8)
    with appearing(path) as beside:
        figure.savefig(beside, format="png", dpi=200)
    return Path(path)
