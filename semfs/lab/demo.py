"""The whole story on the bundled cells: choose genes, judge them on cell types never seen."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from joblib import Parallel, cpu_count, delayed

from semfs.baselines import Markers, RandomSelector, VarianceSelector
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.files import appearing, need
from semfs.lab.methods import Case, Ranking, scores
from semfs.lab.page import dots, figure, lines, section, styles, table
from semfs.lab.paper import random_splits, split_facts
from semfs.lab.report import METRICS, Interval, curves, lead
from semfs.lab.store import Cell, Result, result_rows
from semfs.selectors.semfs import SemFS

__all__ = ["Demo", "Gene", "draw", "run_demo"]

KS = (5, 10, 20, 50)
N_REPEATS = 10
SHAPES = "osD^X*vP"
OURS, LABELS, MARKERS = "SemFS + descriptions", "SemFS (labels)", "Markers per type"
RIVALS = (LABELS, MARKERS)
DOTS = "Chosen genes by cell type"
SIZES = "Dots: size is the share of cells that express a gene, colour the mean expression."
CAUTION = (
    "Means over k, differences paired over the class splits, with 95 % intervals; the splits "
    "share classes, so the intervals are rather too narrow."
)


def _semfs(attributes: Any = None, **options: Any) -> SemFS:
    return SemFS(max(KS), attributes=attributes, **options)


#: The lines of the figure: a fitted selector from the seen cells of a split. None: all genes.
LINES: dict[str, Callable[[Case], Any]] = {
    OURS: lambda case: _semfs(case.attributes).fit(case.X, case.y),
    "SemFS": lambda case: _semfs(case.attributes, target_attributes=None).fit(case.X, case.y),
    "SemFS + unlabelled cells": lambda case: _semfs(case.attributes).fit(
        case.X, case.y, X_unlabeled=case.X_unseen
    ),
    LABELS: lambda case: _semfs().fit(case.X, case.y),
    MARKERS: lambda case: Markers().fit(case.X, case.y),
    "Variance": lambda case: VarianceSelector().fit(case.X),
    "Random": lambda case: RandomSelector(random_state=0).fit(case.X),
    "All genes (reference)": lambda case: None,
}


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

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes and classes of the split on which the genes were chosen."""
        return {"name": self.data.name, **split_facts(self.data, list(self.data.unseen))}

    def leads(self) -> list[tuple[str, str, Interval]]:
        """Measure, other method, and how far SemFS with descriptions is ahead of it."""
        others = [(metric, other) for metric in METRICS for other in RIVALS]
        return [(METRICS[m], other, lead(self.rows, m, OURS, other)) for m, other in others]

    def expression(self) -> tuple[np.ndarray, np.ndarray, list[str]]:
        """Mean and share of expressing cells (types, genes) of the chosen genes; the types."""
        names = self.data.feature_names.tolist()
        X = self.data.X[:, [names.index(gene.name) for gene in self.genes]]
        types = [*self.data.seen.tolist(), *self.data.unseen.tolist()]
        parts = [X[self.data.y == label] for label in types]
        means = np.array([part.mean(axis=0) for part in parts])
        return means, np.array([(part > 0).mean(axis=0) for part in parts]), types


def run_demo(
    n_genes: int = 20,
    n_splits: int = 20,
    *,
    seed: int = 0,
    on_step: Callable[[], None] = lambda: None,
) -> Demo:
    """Choose genes on the seen cell types of the sample and cluster the unseen ones.

    The genes are those of the sample's own split. Methods are compared over ``n_splits``
    random splits with as many unseen types, because one split proves little. ``on_step`` is
    called after each of them.
    """
    data, rows = load_sample(), []
    splits = random_splits(data, n_splits, seed)
    work = (delayed(_rows)(data, *split, seed) for split in splits.items())
    workers = Parallel(min(cpu_count(), n_splits), return_as="generator")
    for found in workers(work):
        rows += found
        on_step()
    return Demo(data, _chosen(data, n_genes), rows)


def _rows(data: ZeroShotDataset, split: str, unseen: list, seed: int) -> list[dict[str, Any]]:
    """The rows of all lines on one split."""
    case, rows = Case.of(data.with_unseen(unseen)), []
    for label, fit in LINES.items():
        cell = Cell("clustering", data.name, split, label, seed=seed, label=label)
        rows += result_rows(cell, _result(case, fit, seed))
    return rows


def _result(case: Case, fit: Callable[[Case], Any], seed: int) -> Result:
    with warnings.catch_warnings():  # a split whose descriptions say too little, and the like
        warnings.simplefilter("ignore", UserWarning)
        selector = fit(case)
    if selector is None:
        everything = Ranking(np.arange(case.n_features), {}, None)
        found = scores(case, everything, [case.n_features], N_REPEATS, seed)
        return Result(dict.fromkeys(KS, found[case.n_features]), 0.0)
    ranking = Ranking(selector.order_, {}, selector)
    names = case.names(ranking.features(max(KS)))
    return Result(scores(case, ranking, KS, N_REPEATS, seed), 0.0, names)


def _chosen(data: ZeroShotDataset, n_genes: int) -> list[Gene]:
    """The genes that SemFS chooses on the seen types of the sample's split, best first."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # ancestors of no seen type
        selector = LINES[OURS](Case.of(data))
    # How far one standard deviation of the gene moves an attribute, in its own spread.
    spread = selector.class_table_.values.std(axis=0)
    effect = selector.coef_ / np.where(spread > 0, spread, np.inf)
    gains = selector.scores_[selector.order_[:n_genes]]
    found = []
    for feature, gain in zip(selector.order_[:n_genes], gains / gains.sum()):
        best = int(np.argmax(np.abs(effect[feature])))
        sign = "+" if effect[feature, best] > 0 else "−"
        attribute = f"{sign} {selector.attribute_names_in_[best]}"
        found.append(Gene(str(data.feature_names[feature]), float(gain), attribute))
    return found


# ---- the pictures ---------------------------------------------------------------------------


def sections(demo: Demo) -> list[dict[str, Any]]:
    """Return what the report says besides the curves: leads, and the genes by cell type."""
    body = [
        [measure, other, found.mean, found.low, found.high, found.verdict]
        for measure, other, found in demo.leads()
    ]
    columns = ["measure", "against", "lead", "from", "to", "verdict"]
    leads = table(f"Lead of {OURS}", columns, body, "leads")
    panels = [
        lines(f"Lead in {METRICS[metric]}", series, "number of selected genes", METRICS[metric])
        for metric, series in _leads_by_k(demo).items()
    ]
    means, shares, types = demo.expression()
    names = [gene.name for gene in demo.genes]
    panel = dots(DOTS, means.tolist(), shares.tolist(), types, names)
    genes = [[gene.name, gene.share, gene.attribute] for gene in demo.genes]
    spoken = table("Chosen genes", ["gene", "share of fit", "speaks of"], genes, "genes")
    text = f"{SIZES} The last {len(demo.data.unseen)} types had no label."
    return [
        section(f"Lead of {OURS}", [CAUTION], leads, figure(CAUTION, panels)),
        section(DOTS, [text], spoken, figure(SIZES, [panel])),
    ]


def _leads_by_k(demo: Demo) -> dict[str, dict[str, list[tuple[Any, float, float, str]]]]:
    """For each measure and rival: (k, lead, half of its interval, in words)."""
    found: dict[str, dict[str, list]] = {metric: {} for metric in METRICS}
    for metric in METRICS:
        for other in RIVALS:
            points = found[metric][other] = []
            for k in KS:
                ahead = lead([r for r in demo.rows if r["k"] == k], metric, OURS, other)
                half = 0.0 if ahead.low is None else ahead.mean - ahead.low
                points.append((k, ahead.mean, half, f"{ahead.n} splits"))
    return found


def draw(demo: Demo, path: Any) -> Path:
    """Draw scores, leads with 95 % intervals, and the genes by cell type, as PNG."""
    matplotlib = need("matplotlib.figure", "plots", what="The picture")
    picture = matplotlib.Figure(figsize=(10, 9.5), layout="constrained")
    top, bottom = picture.subfigures(2, 1, height_ratios=[1, 1.05])
    left, right = top.subfigures(1, 2, width_ratios=[1.45, 1])
    _draw_curves(left, demo)
    _draw_leads(right, demo)
    _draw_dots(bottom, demo)
    with appearing(path) as beside:
        picture.savefig(beside, format="png", dpi=150)
    return Path(path)


def _draw_curves(canvas: Any, demo: Demo) -> None:
    looks = styles(LINES)
    for ax, (metric, title) in zip(canvas.subplots(1, 2), METRICS.items()):
        for label, points in curves(demo.rows, metric).items():
            look = looks[label]
            shape = ":" if look.line == "dot" else f"{SHAPES[look.marker]}-"
            at, mean = [str(p.x) for p in points], [p.mean for p in points]
            width = 1.3 * look.width
            ax.plot(at, mean, shape, color=look.colour, lw=width, ms=4, label=label)
        ax.set(xlabel="number of genes", title=f"{title} on unseen types")
        ax.grid(alpha=0.3)
    handles = canvas.axes[0].get_legend_handles_labels()
    canvas.legend(*handles, loc="outside lower center", ncols=3, fontsize=8)


def _draw_leads(canvas: Any, demo: Demo) -> None:
    found, looks = _leads_by_k(demo), styles(LINES)
    for ax, (metric, series) in zip(canvas.subplots(2, 1, sharex=True), found.items()):
        for shift, (other, points) in zip((-0.1, 0.1), series.items()):
            at = np.arange(len(points)) + shift
            _, mean, half, _ = zip(*points)
            look = {"fmt": "o", "ms": 4, "capsize": 3, "color": looks[other].colour}
            ax.errorbar(at, mean, half, label=f"over {other}", **look)
        ax.axhline(0, color="0.4", lw=0.8)
        ax.set_xticks(range(len(KS)), [str(k) for k in KS])
        ax.set_ylabel(f"lead in {METRICS[metric]}")
        ax.grid(alpha=0.3)
    canvas.axes[0].legend(fontsize=8, frameon=False)
    canvas.axes[0].set_title(f"{OURS}:\nlead with 95 % interval", fontsize=10)
    canvas.axes[1].set_xlabel("number of genes")


def _draw_dots(canvas: Any, demo: Demo) -> None:
    means, shares, types = demo.expression()
    ax = canvas.subplots()
    rows, columns = np.indices(means.shape)
    edge = {"ec": "0.5", "lw": 0.4}
    at = (columns.ravel(), rows.ravel(), 90 * shares.ravel(), means.ravel())
    drawn = ax.scatter(*at, cmap="YlOrRd", **edge)
    names = [gene.name for gene in demo.genes]
    ax.set_xticks(range(len(names)), names, rotation=60, ha="right")
    ax.set_yticks(range(len(types)), types, fontsize=8)
    ax.invert_yaxis()
    ax.axhline(len(demo.data.seen) - 0.5, color="0.4", lw=0.8, ls="--")
    ax.set_title(f"{DOTS} (below the line: types without a label)", fontsize=10)
    canvas.colorbar(drawn, ax=ax, label="mean expression", shrink=0.5, pad=0.01)
    for share in (0.2, 0.6, 1.0):
        ax.scatter([], [], 90 * share, color="0.6", label=f"{share:.0%} of cells", **edge)
    ax.legend(fontsize=8, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
