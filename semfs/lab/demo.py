"""The demo: select genes on bundled lung cells, and score them on unseen cell types."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from semfs._typing import ArrayLike, Float64, Indices, PathLike
from semfs.baselines import Markers, RandomSelector, VarianceSelector
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.io.safety import atomic_write
from semfs.lab.comparison import METRICS, Interval, Point, curves, lead
from semfs.lab.methods import METHODS
from semfs.lab.parallel import run
from semfs.lab.scoring import score_features, score_random_draws
from semfs.lab.sections import Panel, Section, Table, colors, forest_panel
from semfs.lab.splits import SplitData, Splits, random_splits, split_data, split_facts
from semfs.lab.store import Job, Result, Row, Store
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Numbers of genes at which methods are compared.
KS = (5, 10, 20, 50)

#: K-means runs per score: half of the paper's, to be quick.
N_REPEATS = 10

#: Names of the lines of the figure.
OURS = METHODS["semfs-described"].label
SEEN_ONLY = METHODS["semfs"].label
UNLABELED = METHODS["semfs-unlabeled"].label
LABELS = METHODS["semfs-labels"].label
MARKERS = METHODS["markers"].label
ALL_GENES = "All genes (reference)"

#: The methods over which the lead of ours is shown.
RIVALS = (LABELS, MARKERS)

#: matplotlib's markers of the lines, in their order.
MARKER_SHAPES = "osD^X*vP"

#: Area of the largest dot of the dot plot, in points², and the number of genes drawn.
LARGEST_DOT = 110
MOST_DRAWN = 12

DOTS_TITLE = "Selected genes by cell type"
DOTS_TEXT = (
    "The size of a dot shows the share of cells that express a gene, and "
    "its color shows the mean expression."
)
LEADS_TITLE = f"Lead of {OURS} by number of genes"
LEADS_TEXT = (
    "Differences are paired over class splits. The 95 % intervals are "
    "likely too narrow, because splits share classes. Filled dots mark "
    "intervals that exclude 0."
)

#: A gene: its name, its share of the fit, and the attribute that it marks most.
Gene: TypeAlias = tuple[str, float, str]
#: A fitted selector with ``order_``.
Fitted: TypeAlias = "SemFS | Markers | VarianceSelector | RandomSelector"


def _fit_ours(split: SplitData) -> Fitted:
    return SemFS(max(KS), split.attributes).fit(split.X, split.y)


def _fit_seen_only(split: SplitData) -> Fitted:
    return SemFS(max(KS), split.attributes, target_attributes=None).fit(split.X, split.y)


def _fit_unlabeled(split: SplitData) -> Fitted:
    selector = SemFS(max(KS), split.attributes)
    return selector.fit(split.X, split.y, X_unlabeled=split.X_unseen)


def _fit_labels(split: SplitData) -> Fitted:
    return SemFS(max(KS)).fit(split.X, split.y)


def _fit_markers(split: SplitData) -> Fitted:
    return Markers().fit(split.X, split.y)


def _fit_variance(split: SplitData) -> Fitted:
    return VarianceSelector().fit(split.X)


def _fit_random(split: SplitData) -> Fitted:
    return RandomSelector(random_state=0).fit(split.X)


#: The lines of the figure: a function that fits a selector to the seen cells of a split, or
#: None for all genes.
LINES: dict[str, Callable[[SplitData], Fitted] | None] = {
    OURS: _fit_ours,
    SEEN_ONLY: _fit_seen_only,
    UNLABELED: _fit_unlabeled,
    LABELS: _fit_labels,
    MARKERS: _fit_markers,
    METHODS["variance"].label: _fit_variance,
    METHODS["random"].label: _fit_random,
    ALL_GENES: None,
}
#: The lines of the picture; the page has all of them.
DRAWN = (UNLABELED, OURS, MARKERS, METHODS["variance"].label)


@dataclass(frozen=True)
class Demo:
    """Data set, selected genes, and one row per split, method and k (see `Store.rows`)."""

    data: ZeroShotDataset
    genes: list[Gene]
    rows: list[Row]

    @property
    def facts(self) -> dict[str, Any]:
        """Sizes and classes of the split on which the genes were selected."""
        return {"name": self.data.name, **split_facts(self.data, list(self.data.unseen))}

    def leads(self) -> list[tuple[str, str, Interval]]:
        """Measure, other method, and the interval of our lead over it."""
        return [
            (title, other, lead(self.rows, metric, OURS, other))
            for metric, title in METRICS.items()
            for other in RIVALS
        ]

    def expression(self) -> tuple[Float64, Float64, list[str]]:
        """Return mean and share of expressing cells (types, genes), and the types.

        The genes are those selected; the unseen types come last.
        """
        names = self.data.feature_names.tolist()
        columns = [names.index(name) for name, *_ in self.genes]
        X = self.data.X[:, columns]
        types = [*self.data.seen.tolist(), *self.data.unseen.tolist()]
        cells_by_type = [X[self.data.y == label] for label in types]
        means = np.array([cells.mean(axis=0) for cells in cells_by_type])
        shares = np.array([(cells > 0).mean(axis=0) for cells in cells_by_type])
        return means, shares, types


def run_demo(
    n_genes: int = 20,
    n_splits: int = 20,
    *,
    seed: int = 0,
    verbose: bool = False,
) -> Demo:
    """Select genes on the seen cell types of the sample and cluster the unseen ones.

    The genes are those of the split that the sample defines. Methods are compared over
    ``n_splits`` random splits with as many unseen types, because one split proves little.
    """
    data = load_sample()
    splits = random_splits(data, n_splits, seed)
    jobs = [
        Job("clustering", data.name, split, line, seed=seed, label=line)
        for split in splits
        for line in LINES
    ]
    store = Store(None)
    summary = run(jobs, store, partial(_compute, splits), verbose=verbose)
    # The data are bundled: a failure is an error of the program.
    if summary.failures:
        _, error = summary.failures[0]
        raise RuntimeError(error)
    # In the order of the legend, not of the alphabet.
    order = list(LINES)
    rows = sorted(store.rows(), key=lambda row: order.index(row["label"]))
    return Demo(data, _select_genes(data, n_genes), rows)


_load_sample_once = lru_cache(load_sample)  # for the jobs of a worker process


def _compute(splits: Splits, job: Job) -> Result:
    """Compute one line of the figure on one split."""
    split = split_data(_load_sample_once(), tuple(splits[job.split]), job.split)
    fit = LINES[job.method]
    if fit is None:
        return _score_all_genes(split, job.seed)
    with warnings.catch_warnings():
        # About a split whose descriptions say too little, and the like.
        warnings.simplefilter("ignore", UserWarning)
        selector = fit(split)
    if isinstance(selector, RandomSelector):
        scores = score_random_draws(split, selector, KS, N_REPEATS, job.seed)
        return Result(scores, 0.0, extra={"random_draws": True})
    features_by_k: dict[int, Indices] = {k: selector.order_[:k] for k in KS}
    scores = score_features(split, features_by_k, N_REPEATS, job.seed)
    return Result(scores, 0.0, split.names_of(features_by_k[max(KS)]))


def _score_all_genes(split: SplitData, seed: int) -> Result:
    """Return the score of all genes, shown at every k as a line for reference."""
    d = split.X.shape[1]
    scores = score_features(split, {d: np.arange(d)}, N_REPEATS, seed)
    # It does not depend on k: a horizontal line.
    return Result(dict.fromkeys(KS, scores[d]), 0.0)


def _select_genes(data: ZeroShotDataset, n_genes: int) -> list[Gene]:
    """The genes that SemFS selects on the seen types of the sample's split, best first."""
    split = SplitData.of(data)
    with warnings.catch_warnings():
        # About ancestors in the ontology that no seen type has.
        warnings.simplefilter("ignore", UserWarning)
        selector = SemFS(n_genes, split.attributes).fit(split.X, split.y)
    names = split.names_of(selector.order_[:n_genes])
    explanation = selector.explain(n_bootstraps=0)
    # (genes, attributes), in the order of selection; the fit was on columns without names.
    coefficients = explanation.attributes.set_axis(names, axis="index")
    strongest = coefficients.abs().idxmax(axis=1)
    genes = []
    for name, share in zip(names, explanation.features["share"]):
        attribute = strongest[name]
        sign = "+" if coefficients.loc[name, attribute] > 0 else "−"
        genes.append((name, float(share), f"{sign} {attribute}"))
    return genes


def sections(demo: Demo) -> list[Section]:
    """Return what the report says besides the curves: leads, and the genes by cell type."""
    leads = {
        (demo.data.name, measure, f"over {other}"): interval
        for measure, other, interval in demo.leads()
    }
    genes = Table("Selected genes", ["gene", "share of fit", "marks"], demo.genes)
    n_unseen = len(demo.data.unseen)
    text = f"{DOTS_TEXT} The {n_unseen} types in bold were unseen."
    return [
        Section(LEADS_TITLE, [LEADS_TEXT], panels=_lead_panels(demo), leads=leads),
        Section(DOTS_TITLE, [text], genes, [_dots_panel(demo)]),
    ]


def _dots_panel(demo: Demo) -> Panel:
    """Return the dot plot of the report: expression of each gene in each type."""
    means, shares, types = demo.expression()
    genes = [name for name, *_ in demo.genes]
    series = {}
    for i in _by_compartment(demo.data, types):
        means_of_type, shares_of_type = means[i].tolist(), shares[i].tolist()
        series[types[i]] = [
            (gene, mean, share, f"mean {mean:.2f}, in {share:.0%} of the cells")
            for gene, mean, share in zip(genes, means_of_type, shares_of_type)
        ]
    unseen = [str(label) for label in demo.data.unseen]
    return Panel(DOTS_TITLE, "gene", "cell type", series, kind="dots", marked=unseen)


def _lead_panels(demo: Demo) -> list[Panel]:
    """Our lead over each rival at each number of genes, for each measure."""
    panels = []
    for metric, title in METRICS.items():
        leads = {}
        for other in RIVALS:
            for k in KS:
                rows = [row for row in demo.rows if row["k"] == k]
                leads[f"{other}, {k} genes"] = lead(rows, metric, OURS, other)
        panels.append(forest_panel(f"Lead in {title}", f"lead in {title}", leads))
    return panels


# ---- the picture -----------------------------------------------------------------------------


def draw(demo: Demo, path: PathLike) -> Path:
    """Draw NMI against the number of genes, and the first genes by cell type, as PNG."""
    matplotlib = import_optional("matplotlib.figure", "plots", what="The picture")
    picture: Figure = matplotlib.Figure(figsize=(13, 6.4), layout="constrained")
    left, right = picture.subfigures(1, 2, squeeze=False, width_ratios=[1, 1.5])[0]
    _draw_curves(left.subplots(), demo)
    _draw_dots(right.subplots(), demo)
    with atomic_write(path) as temporary:
        picture.savefig(temporary, format="png", dpi=150)
    return Path(path)


def _draw_curves(ax: Axes, demo: Demo) -> None:
    """NMI against the number of genes with bands, for the lines that matter most."""
    found = curves(demo.rows, "nmi")
    color_of = colors(LINES)
    for shape, name in zip(MARKER_SHAPES, DRAWN):
        means = np.array([point.mean for point in found[name]])
        errors = np.array([_standard_error(point) for point in found[name]])
        color = color_of[name]
        ax.plot(KS, means, f"{shape}-", color=color, label=name)
        ax.fill_between(KS, means - errors, means + errors, color=color, alpha=0.15, lw=0)
    _mark_equal_quality(ax, found)
    ax.set_xscale("log")
    ax.set_xticks(KS, [str(k) for k in KS])
    ax.minorticks_off()
    ax.set(xlabel="number of genes", ylabel="NMI on unseen cell types")
    ax.set_title("K-means on unseen types")
    ax.grid(alpha=0.3)
    ax.legend(loc="lower right", fontsize=9, title="mean ± standard error")


def _standard_error(point: Point) -> float:
    """Return the standard error of a mean over splits; 0 if there is one split."""
    if point.sd is None or point.n < 2:
        return 0.0
    return point.sd / math.sqrt(point.n)


def _mark_equal_quality(ax: Axes, found: Mapping[str, Sequence[Point]]) -> None:
    """Draw an arrow from the fewest genes of ours to as many markers as are as good."""
    start = found[UNLABELED][0]
    needed = _genes_needed(found[MARKERS], start.mean)
    if needed is None or needed <= start.x:
        return
    arrow = {"arrowstyle": "<->", "color": "0.35", "shrinkA": 6, "shrinkB": 0}
    ax.annotate("", (start.x, start.mean), (needed, start.mean), arrowprops=arrow)
    middle = math.sqrt(start.x * needed)
    text = f"same NMI with {start.x} genes\nas with {needed:.0f} markers"
    ax.annotate(
        text,
        (middle, start.mean),
        xytext=(0, 6),
        textcoords="offset points",
        ha="center",
        fontsize=9,
        bbox={"boxstyle": "square,pad=0.1", "color": "white", "alpha": 0.75},
    )


def _genes_needed(line: Sequence[Point], score: float) -> float | None:
    """Return at how many genes a curve reaches a score; None if it does not."""
    for before, after in pairwise(line):
        if before.mean <= score <= after.mean and before.mean < after.mean:
            share = (score - before.mean) / (after.mean - before.mean)
            return float(before.x + share * (after.x - before.x))
    return None


def _by_compartment(data: ZeroShotDataset, types: Sequence[str]) -> list[int]:
    """Return the positions of the types, those of a compartment together."""
    compartment = data.info["compartments"]
    return sorted(range(len(types)), key=lambda i: (compartment[types[i]], types[i]))


def _draw_dots(ax: Axes, demo: Demo) -> None:
    """Mean expression (color) and share of expressing cells (size) by type and gene."""
    means, shares, types = demo.expression()
    order = _by_compartment(demo.data, types)
    types = [types[i] for i in order]
    n_genes = min(MOST_DRAWN, len(demo.genes))
    areas = LARGEST_DOT * shares[order, :n_genes]
    rows, columns = np.indices(areas.shape)
    look: Mapping[str, Any] = {"cmap": "YlOrRd", "edgecolors": "0.5", "linewidths": 0.4}
    dots = ax.scatter(columns, rows, areas, means[order, :n_genes], **look)
    ax.set_xticks(range(n_genes), [name for name, *_ in demo.genes[:n_genes]], rotation=60)
    ax.set_yticks(range(len(types)), types)
    unseen = set(demo.data.unseen.tolist())
    for name, text in zip(types, ax.get_yticklabels()):
        if name in unseen:
            text.set(color=colors(LINES)[OURS], weight="bold")
    compartments = [demo.data.info["compartments"][name] for name in types]
    for i, (above, below) in enumerate(pairwise(compartments)):
        if above != below:
            ax.axhline(i + 0.5, color="0.4", lw=0.8)
    ax.set_title(f"The first {n_genes} genes, by cell type (bold: unseen)")
    ax.set(xlim=(-0.7, n_genes - 0.3), ylim=(len(types) - 0.4, -0.6), axisbelow=True)
    ax.grid(alpha=0.3)
    ax.figure.colorbar(dots, ax=ax, label="mean expression", fraction=0.03, pad=0.02)
    sizes = dots.legend_elements("sizes", num=[0.2, 0.6, 1.0], func=_share_of_area)
    ax.legend(*sizes, title="share of cells", bbox_to_anchor=(0, 0), loc="upper right")


def _share_of_area(area: ArrayLike) -> ArrayLike:
    """Return the share of cells that a dot of this area stands for."""
    return np.asarray(area) / LARGEST_DOT
