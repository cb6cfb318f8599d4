"""The whole story on the bundled cells: choose genes, judge them on cell types never seen."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from semfs.baselines import Markers, RandomSelector, VarianceSelector
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.io.safety import atomic_write
from semfs.lab.methods import Case, Ranking, scores
from semfs.lab.paper import case_of, random_splits, split_facts
from semfs.lab.report import METRICS, Panel, Section, Table, colors, lead, score_panels
from semfs.lab.runner import run
from semfs.lab.store import Cell, Result, Store
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional

KS = (5, 10, 20, 50)
N_REPEATS = 10
SHAPES = "osD^X*vP"
DOT, MOST_DRAWN = 110, 30  # area of the largest dot, genes in the picture
OURS, LABELS, MARKERS = "SemFS + descriptions", "SemFS (labels)", "Markers per type"
RIVALS = (LABELS, MARKERS)
DOTS = "Chosen genes by cell type"
SIZES = "Dots: size is the share of cells that express a gene, color the mean expression."
CAUTION = "Paired over class splits, with 95 % intervals: too narrow, as splits share classes."

#: The lines of the figure: a fitted selector from the seen cells of a split. None: all genes.
LINES: dict[str, Callable[[Case], Any]] = {
    OURS: lambda c: SemFS(50, c.attributes).fit(c.X, c.y),
    "SemFS": lambda c: SemFS(50, c.attributes, target_attributes=None).fit(c.X, c.y),
    "SemFS + unlabeled cells": lambda c: SemFS(50, c.attributes).fit(
        c.X, c.y, X_unlabeled=c.X_unseen
    ),
    LABELS: lambda c: SemFS(50).fit(c.X, c.y),
    MARKERS: lambda c: Markers().fit(c.X, c.y),
    "Variance": lambda c: VarianceSelector().fit(c.X),
    "Random": lambda c: RandomSelector(random_state=0).fit(c.X),
    "All genes (reference)": lambda c: None,
}


@dataclass(frozen=True)
class Demo:
    """Data set, chosen genes, and one row per split, method and k (as `semfs report` reads)."""

    data: ZeroShotDataset
    genes: list[tuple[str, float, str]]  # share of the fall of J, what it speaks of most
    rows: list[dict[str, Any]]

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes and classes of the split on which the genes were chosen."""
        return {"name": self.data.name, **split_facts(self.data, list(self.data.unseen))}

    def leads(self) -> list[tuple[str, str, Any]]:
        """Measure, other method, and the interval by which SemFS with descriptions leads."""
        others = [(metric, other) for metric in METRICS for other in RIVALS]
        return [(METRICS[m], other, lead(self.rows, m, OURS, other)) for m, other in others]

    def expression(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Mean and share of expressing cells (types, genes) of the chosen genes; the types."""
        names = self.data.feature_names.tolist()
        X = self.data.X[:, [names.index(name) for name, *_ in self.genes]]
        types = [*self.data.seen.tolist(), *self.data.unseen.tolist()]
        parts = [X[self.data.y == label] for label in types]
        means = np.array([part.mean(axis=0) for part in parts])
        return means, np.array([(part > 0).mean(axis=0) for part in parts]), types


def run_demo(
    n_genes: int = 20, n_splits: int = 20, *, seed: int = 0, verbose: bool = False
) -> Demo:
    """Choose genes on the seen cell types of the sample and cluster the unseen ones.

    The genes are those of the sample's own split. Methods are compared over ``n_splits``
    random splits with as many unseen types, because one split proves little.
    """
    data, store, lines = load_sample(), Store(None), list(LINES)
    splits = random_splits(data, n_splits, seed)
    places = [(data.name, split, line) for split in splits for line in lines]
    cells = [Cell("clustering", *place, seed=seed, label=place[-1]) for place in places]
    summary = run(cells, store, partial(_result, splits), verbose=verbose)
    if summary.failures:
        raise RuntimeError(summary.failures[0][1])
    rows = sorted(store.rows(), key=lambda row: lines.index(row["label"]))
    return Demo(data, _chosen(data, n_genes), rows)


_sample = lru_cache(load_sample)
_silent = partial(warnings.catch_warnings, action="ignore", category=UserWarning)


def _result(splits: Mapping[str, list], cell: Cell) -> Result:
    case = case_of(_sample(), tuple(splits[cell.split]))
    with _silent():  # about a split whose descriptions say too little, and the like
        selector = LINES[cell.method](case)
    order = np.arange(case.X.shape[1]) if selector is None else selector.order_
    by_k = {k: order[:k] for k in (KS if selector is not None else [case.X.shape[1]])}
    found = scores(case, Ranking(by_k, selector), N_REPEATS, cell.seed)
    if selector is None:
        return Result(dict.fromkeys(KS, found[case.X.shape[1]]), 0.0)
    return Result(found, 0.0, case.names(order[: max(KS)]))


def _chosen(data: ZeroShotDataset, n_genes: int) -> list[tuple[str, float, str]]:
    """The genes that SemFS chooses on the seen types of the sample's split, best first."""
    case = Case.of(data)
    with _silent():  # about ancestors of no seen type
        selector = SemFS(n_genes, case.attributes).fit(case.X, case.y)
    found = selector.explain(n_bootstraps=0)
    best = found.attributes.abs().idxmax(axis=1)
    signs = ["+" if row[best[name]] > 0 else "−" for name, row in found.attributes.iterrows()]
    words = [f"{sign} {attribute}" for sign, attribute in zip(signs, best)]
    return list(zip(case.names(selector.order_[:n_genes]), found.features["share"], words))


def sections(demo: Demo) -> list[Section]:
    """Return what the report says besides the curves: leads, and the genes by cell type."""
    leads = {(demo.data.name, m, f"over {other}"): found for m, other, found in demo.leads()}
    spoken = Table("Chosen genes", ["gene", "share of fit", "speaks of"], demo.genes)
    text = f"{SIZES} The last {len(demo.data.unseen)} types had no label."
    means, shares, types = demo.expression()
    words = "mean {:.2f}, in {:.0%} of the cells".format
    series, genes = {}, [gene for gene, *_ in demo.genes]
    for name, *of_type in zip(types, means.tolist(), shares.tolist()):
        points = zip(genes, *of_type)
        series[name] = [(g, mean, share, words(mean, share)) for g, mean, share in points]
    dots = Panel(DOTS, "gene", "cell type", series, kind="dots")
    return [
        Section(f"Lead of {OURS}", [CAUTION], None, _leads_by_k(demo), leads=leads),
        Section(DOTS, [text], spoken, [dots]),
    ]


def _leads_by_k(demo: Demo) -> list[Panel]:
    panels = []
    for metric, title in METRICS.items():
        series: dict[str, list] = {other: [] for other in RIVALS}
        for k in KS:
            for other, points in series.items():
                ahead = lead([r for r in demo.rows if r["k"] == k], metric, OURS, other)
                half = 0.0 if ahead.low is None else ahead.mean - ahead.low
                points.append((k, ahead.mean, half, f"{ahead.n} splits"))
        panels.append(Panel(f"Lead in {title}", "number of genes", title, series))
    return panels


def draw(demo: Demo, path: Any) -> Path:
    """Draw scores, leads with 95 % intervals, and the first genes by cell type, as PNG."""
    matplotlib = import_optional("matplotlib.figure", "plots", what="The picture")
    picture = matplotlib.Figure(figsize=(10, 10), layout="constrained")
    top, bottom = picture.subfigures(2, 1, height_ratios=[1, 1.08])
    left, right = top.subfigures(1, 2, width_ratios=[1.45, 1])
    curves = score_panels({demo.data.name: demo.rows}, "k", "number of genes")
    _draw_lines(left.subplots(1, 2), curves, bars=False)
    names = left.axes[0].get_legend_handles_labels()
    left.legend(*names, loc="outside lower center", ncols=3, fontsize=8)
    _draw_lines(right.subplots(2, 1, sharex=True), _leads_by_k(demo), bars=True)
    right.axes[0].legend(frameon=False, title=f"{OURS} over", fontsize=8)
    _draw_dots(bottom.subplots(), demo)
    with atomic_write(path) as beside:
        picture.savefig(beside, format="png", dpi=150)
    return Path(path)


def _draw_lines(axes: Any, panels: list[Panel], bars: bool) -> None:
    looks = colors(LINES)
    for ax, panel in zip(axes, panels):
        for i, (name, points) in enumerate(panel.series.items()):
            at = np.arange(len(points)) + (0.2 * i - 0.1) * bars
            _, mean, half, _ = zip(*points)
            shape = "o" if bars else ":" if name.endswith("(reference)") else f"{SHAPES[i]}-"
            look = {"color": looks[name], "ms": 4, "label": name, "capsize": 3 * bars}
            ax.errorbar(at, mean, half if bars else None, fmt=shape, **look)
        ax.set_xticks(range(len(KS)), [str(k) for k in KS])
        ax.set(xlabel=panel.x, title=panel.title.rpartition(": ")[2])
        if bars:
            ax.axhline(0, color="0.4", lw=0.8)
        ax.grid(alpha=0.3)


def _draw_dots(ax: Any, demo: Demo) -> None:
    means, shares, types = demo.expression()
    n, n_seen = min(MOST_DRAWN, len(demo.genes)), len(demo.data.seen)
    rows, places = np.indices((len(types), n))
    look: Any = {"cmap": "YlOrRd", "edgecolors": "0.5", "linewidths": 0.4}
    dots = ax.scatter(places, rows, DOT * shares[:, :n], means[:, :n], **look)
    ax.set_xticks(range(n), [name for name, *_ in demo.genes[:n]], rotation=60)
    ax.set_yticks(range(len(types)), types)
    for text in ax.get_yticklabels()[n_seen:]:
        text.set(color=colors(LINES)[OURS], weight="bold")
    ax.axhline(n_seen - 0.5, color="0.4", lw=0.8)
    ax.set_title(f"The {n} genes chosen first, by cell type (bold: never labeled)")
    ax.set(xlim=(-0.7, n - 0.3), ylim=(len(types) - 0.4, -0.6), axisbelow=True)
    ax.grid(alpha=0.3)
    ax.figure.colorbar(dots, ax=ax, label="mean expression", fraction=0.03, pad=0.02)
    sizes = dots.legend_elements("sizes", num=[0.2, 0.6, 1.0], func=lambda area: area / DOT)
    ax.legend(*sizes, title="share of cells", bbox_to_anchor=(0, 0), loc="upper right")
