"""The demo: select genes on bundled lung cells, and score them on unseen cell types."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from semfs._typing import ArrayLike, Float64, Indices, PathLike
from semfs.baselines import Markers, RandomSelector, VarianceSelector
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.io.safety import atomic_write
from semfs.lab.comparison import METRICS, Interval, lead
from semfs.lab.methods import METHODS
from semfs.lab.parallel import run
from semfs.lab.scoring import score_features, score_random_draws
from semfs.lab.sections import Panel, Section, Table, colors, score_panels
from semfs.lab.splits import SplitData, Splits, random_splits, split_data, split_facts
from semfs.lab.store import Job, Result, Row, Store
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

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
MOST_DRAWN = 30

DOTS_TITLE = "Selected genes by cell type"
DOTS_TEXT = (
    "Dots: the size is the share of cells that express a gene, the color "
    "is the mean expression."
)
LEADS_TEXT = (
    "Paired over class splits, with 95 % intervals, which are too narrow "
    "because splits share classes."
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
    """The score of all genes, shown at every k as a line for reference."""
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
    text = f"{DOTS_TEXT} The last {n_unseen} types had no label."
    return [
        Section(f"Lead of {OURS}", [LEADS_TEXT], panels=_lead_panels(demo), leads=leads),
        Section(DOTS_TITLE, [text], genes, [_dots_panel(demo)]),
    ]


def _dots_panel(demo: Demo) -> Panel:
    """The dot plot of the report: expression of each gene in each type."""
    means, shares, types = demo.expression()
    genes = [name for name, *_ in demo.genes]
    series = {}
    for label, means_of_type, shares_of_type in zip(types, means.tolist(), shares.tolist()):
        series[label] = [
            (gene, mean, share, f"mean {mean:.2f}, in {share:.0%} of the cells")
            for gene, mean, share in zip(genes, means_of_type, shares_of_type)
        ]
    return Panel(DOTS_TITLE, "gene", "cell type", series, kind="dots")


def _lead_panels(demo: Demo) -> list[Panel]:
    """Our lead over each rival against the number of genes, for each measure."""
    panels = []
    for metric, title in METRICS.items():
        series = {}
        for other in RIVALS:
            series[other] = [_lead_point(demo.rows, metric, other, k) for k in KS]
        panels.append(Panel(f"Lead in {title}", "number of genes", title, series))
    return panels


def _lead_point(
    rows: Sequence[Row], metric: str, other: str, k: int
) -> tuple[int, float, float, str]:
    """Our lead at k genes: k, mean, half of the interval, remark."""
    interval = lead([row for row in rows if row["k"] == k], metric, OURS, other)
    # One split has no interval.
    half = 0.0 if interval.low is None else interval.mean - interval.low
    return k, interval.mean, half, f"{interval.n} splits"


# ---- the picture -----------------------------------------------------------------------------


def draw(demo: Demo, path: PathLike) -> Path:
    """Draw scores, leads with 95 % intervals, and the first genes by cell type, as PNG."""
    matplotlib = import_optional("matplotlib.figure", "plots", what="The picture")
    picture: Figure = matplotlib.Figure(figsize=(10, 10), layout="constrained")
    rows = picture.subfigures(2, 1, squeeze=False, height_ratios=[1, 1.08])
    top, bottom = rows[:, 0]
    columns = top.subfigures(1, 2, squeeze=False, width_ratios=[1.45, 1])
    left, right = columns[0]
    _draw_curves(left, demo)
    _draw_leads(right, demo)
    _draw_dots(bottom.subplots(), demo)
    with atomic_write(path) as temporary:
        picture.savefig(temporary, format="png", dpi=150)
    return Path(path)


def _draw_curves(figure: SubFigure, demo: Demo) -> None:
    """Scores against the number of genes, one line per method."""
    panels = score_panels({demo.data.name: demo.rows}, "k", "number of genes")
    color_of = colors(LINES)
    for ax, panel in zip(figure.subplots(1, 2), panels):
        for shape, (name, points) in zip(MARKER_SHAPES, panel.series.items()):
            # A reference, not a selection: dotted and without markers.
            style = ":" if name == ALL_GENES else f"{shape}-"
            means = [mean for _, mean, *_ in points]
            ax.plot(
                range(len(KS)),
                means,
                style,
                color=color_of[name],
                ms=4,
                label=name,
            )
        _finish_axes(ax, panel)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(
        handles,
        labels,
        loc="outside lower center",
        ncols=2,
        fontsize=8,
    )


def _draw_leads(figure: SubFigure, demo: Demo) -> None:
    """Our lead over each rival against the number of genes, with intervals."""
    color_of = colors(LINES)
    for ax, panel in zip(figure.subplots(2, 1, sharex=True), _lead_panels(demo)):
        for i, (name, points) in enumerate(panel.series.items()):
            # Side by side, so that intervals do not cover each other.
            positions = np.arange(len(KS)) + 0.2 * i - 0.1
            means = [mean for _, mean, *_ in points]
            halves = [half for _, _, half, _ in points]
            style: dict[str, Any] = {"fmt": "o", "ms": 4, "capsize": 3}
            ax.errorbar(
                positions,
                means,
                halves,
                color=color_of[name],
                label=name,
                **style,
            )
        ax.axhline(0, color="0.4", lw=0.8)
        _finish_axes(ax, panel)
    figure.axes[0].legend(
        frameon=False,
        title=f"{OURS}, over",
        title_fontsize=8,
        fontsize=8,
    )


def _finish_axes(ax: Axes, panel: Panel) -> None:
    """Ticks, titles and grid of a figure against the number of genes."""
    ax.set_xticks(range(len(KS)), [str(k) for k in KS])
    ax.set(xlabel=panel.x, title=panel.title.rpartition(": ")[2])
    ax.grid(alpha=0.3)


def _draw_dots(ax: Axes, demo: Demo) -> None:
    """Mean expression (color) and share of expressing cells (size) by type and gene."""
    means, shares, types = demo.expression()
    n_genes = min(MOST_DRAWN, len(demo.genes))
    n_seen = len(demo.data.seen)
    rows, columns = np.indices((len(types), n_genes))
    look: Mapping[str, Any] = {"cmap": "YlOrRd", "edgecolors": "0.5", "linewidths": 0.4}
    areas = LARGEST_DOT * shares[:, :n_genes]
    dots = ax.scatter(columns, rows, areas, means[:, :n_genes], **look)
    names = [name for name, *_ in demo.genes[:n_genes]]
    ax.set_xticks(range(n_genes), names, rotation=60)
    ax.set_yticks(range(len(types)), types)
    # Unseen types are bold and in the color of our line.
    for text in ax.get_yticklabels()[n_seen:]:
        text.set(color=colors(LINES)[OURS], weight="bold")
    ax.axhline(n_seen - 0.5, color="0.4", lw=0.8)
    ax.set_title(f"The {n_genes} genes selected first, by cell type (bold: never labeled)")
    ax.set(
        xlim=(-0.7, n_genes - 0.3),
        ylim=(len(types) - 0.4, -0.6),
        axisbelow=True,
    )
    ax.grid(alpha=0.3)
    ax.figure.colorbar(
        dots,
        ax=ax,
        label="mean expression",
        fraction=0.03,
        pad=0.02,
    )
    handles, labels = dots.legend_elements(
        "sizes",
        num=[0.2, 0.6, 1.0],
        func=_share_of_area,
    )
    ax.legend(
        handles,
        labels,
        title="share of cells",
        bbox_to_anchor=(0, 0),
        loc="upper right",
    )


def _share_of_area(area: ArrayLike) -> ArrayLike:
    """The share of cells that a dot of this area stands for."""
    return np.asarray(area) / LARGEST_DOT
