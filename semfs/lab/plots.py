"""Rows of results → matplotlib figures in the layout of the paper.

Functions take rows (see `semfs.lab.comparison`) and return a Figure; `draw_curves` and
`draw_bars` draw into axes of your own. No global state is touched: pyplot is not used.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from semfs.lab.comparison import (
    Point,
    Row,
    by_target,
    curves,
    styles,
    value_of,
    widest_sweep,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "FIGURES",
    "draw_bars",
    "draw_curves",
    "plot_alpha",
    "plot_attributes_vs_labels",
    "plot_clustering",
    "plot_convergence",
    "plot_labeled_ratio",
    "plot_scaling",
    "save_figure",
]

METRICS = {"acc": "ACC", "nmi": "NMI"}
MARKERS = "osD^X*vP"
PANEL = (3.4, 2.7)  # inches
LEGEND = 1.5  # inches kept for the legend on the right


# --- into axes of your own -------------------------------------------------------------


def draw_curves(
    ax: Axes, rows: Iterable[Row], metric: str = "acc", x: str = "k", *, spread: bool = False
) -> None:
    """Draw ``metric`` against ``x`` for every method, averaged over splits.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
    rows : iterable of dict
        Results on one data set.
    metric : {"acc", "nmi", "seconds"}
    x : str
        "k", or what the experiment varies: "ratio", "alpha", "n", "d".
    spread : bool, default=False
        Shade ± one standard deviation over the splits.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> ax = Figure().subplots()
    >>> rows = [{"label": "SemFS", "split": "0", "k": k, "acc": k / 100} for k in (5, 10)]
    >>> draw_curves(ax, rows)
    >>> [float(y) for y in ax.lines[0].get_ydata()]
    [0.05, 0.1]
    """
    rows = list(rows)
    _draw(ax, curves(rows, metric, x), styles(row["label"] for row in rows), spread)
    ax.set_ylabel(METRICS.get(metric, metric))


def draw_bars(ax: Axes, rows: Iterable[Row], metric: str = "acc") -> None:
    """Draw one group of bars per method: fitted to attributes, and fitted to labels."""
    heights: dict[str, dict[str, Point]] = {}
    for target, part in by_target(rows).items():
        heights[target] = {m: line[0] for m, line in curves(part, metric, "label").items()}
    methods = list(dict.fromkeys(m for bars in heights.values() for m in bars))
    width = 0.8 / max(len(heights), 1)
    for i, (target, bars) in enumerate(heights.items()):
        at = [methods.index(m) + (i - (len(heights) - 1) / 2) * width for m in bars]
        error = [point.sd or 0.0 for point in bars.values()]
        means = [point.mean for point in bars.values()]
        colour = {"attributes": "#e0245e", "labels": "#7a7f87"}.get(target)
        ax.bar(at, means, width, yerr=error, capsize=2, label=_text(target), color=colour)
    ax.set_xticks(range(len(methods)), [_text(m) for m in methods], rotation=30, ha="right")
    ax.set_ylabel(METRICS.get(metric, metric))


# --- the paper's figures ---------------------------------------------------------------


def plot_clustering(rows: Iterable[Row]) -> Figure:
    """ACC and NMI against the number of features, a column per data set.

    Examples
    --------
    >>> row = {"dataset": "apy", "label": "SemFS", "split": "0", "nmi": 0.3}
    >>> figure = plot_clustering([{**row, "k": k, "acc": k / 100} for k in (5, 10)])
    >>> [ax.get_title() for ax in figure.axes]
    ['apy', '']
    """
    return _metric_grid(rows, "k", "number of selected features")


def plot_labeled_ratio(rows: Iterable[Row]) -> Figure:
    """ACC and NMI, averaged over k, against the labelled share of the seen classes."""
    return _metric_grid(rows, "ratio", "labelled share of seen classes", spread=True)


def plot_alpha(rows: Iterable[Row]) -> Figure:
    """ACC and NMI, averaged over k, against α (logarithmic)."""
    return _metric_grid(rows, "alpha", "α", spread=True, log=True)


def plot_attributes_vs_labels(rows: Iterable[Row]) -> Figure:
    """Bars of ACC and NMI, averaged over k: attributes against labels as targets."""
    datasets = _by_dataset(rows)
    figure, axes = _panels(2, len(datasets))
    for column, (name, part) in zip(axes.T, datasets.items()):
        column[0].set_title(_text(name))
        for ax, metric in zip(column, METRICS):
            draw_bars(ax, part, metric)
    return _with_legend(figure)


def plot_convergence(rows: Iterable[Row]) -> Figure:
    """The objective after each iteration, first split, a panel per data set."""
    rows = [row for row in rows if (row.get("extra") or {}).get("objective")]
    datasets = _by_dataset(rows)
    figure, axes = _panels(1, len(datasets))
    looks = styles(row["label"] for row in rows)
    for ax, (name, part) in zip(axes[0], datasets.items()):
        lines: dict[str, list[Point]] = {}
        for row in part:
            steps = enumerate(row["extra"]["objective"], start=1)
            lines.setdefault(row["label"], [Point(i, value, None, 1) for i, value in steps])
        _draw(ax, lines, looks, spread=False)
        ax.set(title=_text(name), xlabel="iteration", ylabel="objective")
        if all(point.mean > 0 for line in lines.values() for point in line):
            ax.set_yscale("log")
    return _with_legend(figure)


def plot_scaling(rows: Iterable[Row]) -> Figure:
    """Fitting time against the number of samples and of features, both logarithmic."""
    rows = list(rows)
    figure, axes = _panels(1, 2)
    names = {"n": "samples", "d": "features"}
    for ax, (x, other) in zip(axes[0], (("n", "d"), ("d", "n"))):
        part, fixed = widest_sweep(rows, x, other)
        if not part:
            ax.set_visible(False)
            continue
        _draw(ax, curves(part, "seconds", x), styles(r["label"] for r in rows), spread=False)
        ax.set(title=f"{fixed} {names[other]}", xlabel=names[x], ylabel="seconds")
        ax.set(xscale="log", yscale="log")
        at = sorted({value_of(row, x) for row in part})
        ax.set_xticks(at, [f"{value:g}" for value in at])
        ax.set_xticks([], minor=True)
    return _with_legend(figure)


FIGURES: dict[str, Callable[[Iterable[Row]], Figure]] = {
    "clustering": plot_clustering,
    "labeled-ratio": plot_labeled_ratio,
    "attributes-vs-labels": plot_attributes_vs_labels,
    "alpha": plot_alpha,
    "convergence": plot_convergence,
    "scaling": plot_scaling,
}


def save_figure(figure: Figure, path: str | os.PathLike[str]) -> Path:
    """Write a figure as .svg, .png or .pdf, whole or not at all, and return the path."""
    import matplotlib

    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("svg", "png", "pdf"):
        raise ValueError(f"Cannot save a figure as {path.name!r}. Use .svg, .png or .pdf.")
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": None}[kind]
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with matplotlib.rc_context({"pdf.fonttype": 42, "svg.hashsalt": "semfs"}):
            figure.savefig(partial, format=kind, dpi=200, metadata=undated)
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return path


# --- helpers ---------------------------------------------------------------------------


def _metric_grid(
    rows: Iterable[Row], x: str, x_title: str, *, spread: bool = False, log: bool = False
) -> Figure:
    datasets = _by_dataset(rows)
    wide = len(datasets) == 1  # a single data set has its two panels side by side
    figure, axes = _panels(1, 2) if wide else _panels(2, len(datasets))
    looks = styles(row["label"] for part in datasets.values() for row in part)
    for column, (name, part) in zip(axes if wide else axes.T, datasets.items()):
        column[0].set_title(_text(name))
        column[-1].set_xlabel(x_title)
        for ax, (metric, title) in zip(column, METRICS.items()):
            _draw(ax, curves(part, metric, x), looks, spread)
            ax.set_ylabel(title)
            if wide:
                ax.set_xlabel(x_title)
            if log:
                ax.set_xscale("log")
    return _with_legend(figure)


def _draw(
    ax: Axes, lines: Mapping[str, Sequence[Point]], looks: Mapping[str, Any], spread: bool
) -> None:
    for label in sorted(lines, key=list(looks).index):
        look, points = looks[label], lines[label]
        x, mean = [p.x for p in points], [p.mean for p in points]
        marker, width = MARKERS[look.marker % len(MARKERS)], 1.3 * look.width
        shape: dict[str, Any] = {"marker": marker, "markersize": 3.5, "linestyle": look.line}
        ax.plot(x, mean, color=look.colour, label=_text(label), linewidth=width, **shape)
        if spread and any(p.sd for p in points):
            low = [p.mean - (p.sd or 0.0) for p in points]
            high = [p.mean + (p.sd or 0.0) for p in points]
            ax.fill_between(x, low, high, color=look.colour, alpha=0.15, linewidth=0)
    ax.grid(alpha=0.3)


def _panels(n_rows: int, n_columns: int) -> tuple[Figure, Any]:
    if not n_columns:
        raise ValueError("There are no rows to draw. Give the finished rows of the experiment.")
    figure = _figure(PANEL[0] * n_columns + LEGEND, PANEL[1] * n_rows)
    return figure, figure.subplots(n_rows, n_columns, squeeze=False)


def _figure(width: float, height: float) -> Figure:
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError(
            f"Figures need {error.name}. Install it with: pip install 'semfs[plots]'"
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def _with_legend(figure: Figure) -> Figure:
    """One legend on the right for all panels."""
    handles: dict[str, Any] = {}
    for ax in figure.axes:
        for handle, label in zip(*ax.get_legend_handles_labels()):
            handles.setdefault(label, handle)
    figure.legend(handles.values(), handles.keys(), loc="outside right center", fontsize=8)
    return figure


def _by_dataset(rows: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row["dataset"])].append(row)
    return dict(groups)


def _text(text: Any) -> str:
    """Text that matplotlib shows as it is: no mathematics, no hidden legend entries."""
    text = str(text).replace("$", r"\$")
    return f" {text}" if text.startswith("_") else text
