"""The panels of a report as PDF or SVG files, drawn by matplotlib from the data of the page."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import PathLike
from semfs.io.safety import atomic_write
from semfs.lab.comparison import is_oracle
from semfs.lab.sections import Panel, Section, colors
from semfs.system import import_optional

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Formats of figures.
FORMATS = ("pdf", "svg")

#: matplotlib's markers of curves, in their order.
CURVE_MARKERS = "osD^X*vP"

#: Width of a figure, and height of a row of names, in inches.
WIDTH = 5.0
HEIGHT = 3.4
ROW_HEIGHT = 0.24

#: Area of the largest dot of a dot plot, in points².
LARGEST_AREA = 80

#: Letters of a file name and of a name beside an axis.
LONGEST_NAME = 60
LONGEST_TICK = 36

#: Color of points and intervals of a forest plot.
ACCENT = "#0b5cad"


def write_figures(
    sections: Iterable[Section],
    folder: PathLike,
    format: str = "pdf",
) -> list[Path]:
    """Write every panel of the sections to a file in ``folder`` and return the paths.

    Parameters
    ----------
    sections : iterable of Section
    folder : path
    format : {"pdf", "svg"}
    """
    panels = [panel for section in sections for panel in section.panels]
    color_of = colors(
        name for panel in panels if panel.kind == "lines" for name in panel.series
    )
    paths = []
    for number, panel in enumerate(panels, start=1):
        name = f"figure-{number:02d}-{_file_name(panel.title)}.{format}"
        path = Path(folder) / name
        figure = draw_panel(panel, color_of)
        # A date would make files differ that show the same.
        metadata = {"CreationDate": None} if format == "pdf" else {"Date": None}
        with atomic_write(path) as temporary:
            figure.savefig(temporary, format=format, metadata=metadata)
        paths.append(path)
    return paths


def check_can_draw() -> None:
    """Raise an error if the package that draws figures is not installed."""
    import_optional("matplotlib.figure", "plots", what="A figure")


def draw_panel(panel: Panel, color_of: dict[str, str]) -> Figure:
    """Return a panel as a Matplotlib figure; ``color_of`` holds the color of each curve."""
    matplotlib = import_optional("matplotlib.figure", "plots", what="A figure")
    height = HEIGHT
    if panel.kind != "lines":
        height = 1.4 + ROW_HEIGHT * len(panel.series)
    figure: Figure = matplotlib.Figure(figsize=(WIDTH, height), layout="constrained")
    ax = figure.subplots()
    if panel.kind == "lines":
        _draw_lines(ax, panel, color_of)
    elif panel.kind == "forest":
        _draw_forest(ax, panel)
    elif panel.kind == "dots":
        _draw_dots(ax, panel)
    else:
        _draw_heat(ax, panel)
    # Names are text: a dollar sign is not mathematics.
    ax.set_title(panel.title, fontsize=10, parse_math=False, wrap=True)
    return figure


def _draw_lines(ax: Axes, panel: Panel, color_of: dict[str, str]) -> None:
    """Curves, with their standard deviations as bands."""
    for shape, (name, points) in zip(
        _repeated(CURVE_MARKERS, len(panel.series)), panel.series.items()
    ):
        x = [point[0] for point in points]
        means = np.array([point[1] for point in points], dtype=float)
        sds = np.array([point[2] or 0.0 for point in points], dtype=float)
        style = f"{shape}:" if is_oracle(name) else f"{shape}-"
        color = color_of[name]
        ax.plot(x, means, style, color=color, ms=4, lw=1.3, label=_shown(name))
        if sds.any():
            ax.fill_between(x, means - sds, means + sds, color=color, alpha=0.1, lw=0)
    if "x" in panel.log:
        ax.set_xscale("log")
    if "y" in panel.log:
        ax.set_yscale("log")
    ax.set_xlabel(panel.x, parse_math=False)
    ax.set_ylabel(panel.y, parse_math=False)
    ax.grid(alpha=0.3)
    legend = ax.figure.legend(loc="outside lower center", ncols=2, fontsize=7, frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)


def _draw_forest(ax: Axes, panel: Panel) -> None:
    """Points with intervals, and a line at 0; hollow where 0 is in the interval."""
    for i, ((mean, low, high, _),) in enumerate(panel.series.values()):
        clear = low is not None and (low > 0 or high < 0)
        if low is not None:
            ax.plot([low, high], [i, i], color=ACCENT, lw=1.5)
        ax.plot([mean], [i], "o", ms=6, color=ACCENT, mfc=ACCENT if clear else "white")
    ax.axvline(0, color="0.2", lw=1)
    ax.set_ylim(len(panel.series) - 0.5, -0.5)
    _name_rows(ax, panel)
    ax.set_xlabel(panel.x, parse_math=False)
    ax.grid(axis="x", alpha=0.3)


def _draw_dots(ax: Axes, panel: Panel) -> None:
    """Dots by name and column: the color and the size are values."""
    points = [
        (j, i, color, size)
        for i, row in enumerate(panel.series.values())
        for j, (_, color, size, _) in enumerate(row)
    ]
    x, y, values = (np.array([point[n] for point in points], dtype=float) for n in range(3))
    sizes = [point[3] for point in points]
    areas = np.array([0.3 if size is None else size for size in sizes], dtype=float)
    look: dict[str, Any] = {"cmap": "YlOrRd", "edgecolors": "0.5", "linewidths": 0.4}
    dots = ax.scatter(x, y, LARGEST_AREA * areas, values, **look)
    ax.figure.colorbar(dots, ax=ax, label=panel.color)
    ax.invert_yaxis()
    _name_rows(ax, panel)
    _name_columns(ax, panel)


def _draw_heat(ax: Axes, panel: Panel) -> None:
    """Colored fields by name and column; a field without value stays empty."""
    rows = [[point[1] for point in row] for row in panel.series.values()]
    values = np.array(rows, dtype=float)
    low, high = sorted(panel.limits) if panel.limits else (None, None)
    colormap = "RdBu_r" if low is not None and low < 0 else "YlOrRd"
    fields = ax.imshow(values, cmap=colormap, vmin=low, vmax=high, aspect="auto")
    ax.figure.colorbar(fields, ax=ax, label=panel.color)
    _name_rows(ax, panel)
    _name_columns(ax, panel)


def _name_rows(ax: Axes, panel: Panel) -> None:
    """Write the names of the rows; those of unseen classes in bold."""
    names = list(panel.series)
    ax.set_yticks(range(len(names)), [_shown(name) for name in names], parse_math=False)
    ax.tick_params(axis="y", labelsize=8)
    for name, text in zip(names, ax.get_yticklabels()):
        if name in panel.marked:
            text.set_fontweight("bold")


def _name_columns(ax: Axes, panel: Panel) -> None:
    """Write the names of the columns below them."""
    names = [_shown(str(point[0])) for point in next(iter(panel.series.values()), [])]
    ax.set_xticks(range(len(names)), names, rotation=90, fontsize=7, parse_math=False)


def _shown(name: str) -> str:
    """A name beside an axis, cut if it is long; a leading "_" would hide it in a legend."""
    text = name if len(name) <= LONGEST_TICK else f"{name[: LONGEST_TICK - 1]}…"
    return f" {text}" if text.startswith("_") else text


def _repeated(values: Sequence[str], n: int) -> list[str]:
    return [values[i % len(values)] for i in range(n)]


def _file_name(title: str) -> str:
    """Return a title as part of a file name: letters, digits and dashes."""
    plain = re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
    return plain[:LONGEST_NAME].strip("-") or "untitled"
