"""Charts of lines and of intervals, as SVG, for the pictures of the documentation.

Written by hand and not with matplotlib, whose files differ from version to version: a test
compares each picture with one that is drawn again. Each chart is on a white card, so that it
reads the same on a light and on a dark page. Color is never the only sign: each line has a
mark of its own, and a dash.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

from evidence import text_at

#: Okabe and Ito's colors, which color-blind people can distinguish; yellow is too light.
STYLES = [
    ("#0072B2", "circle", ""),
    ("#D55E00", "square", ""),
    ("#009E73", "diamond", "9 4"),
    ("#CC79A7", "triangle", "3 3"),
    ("#7a5c00", "cross", "12 3 3 3"),
    ("#555555", "ring", "6 6"),
    ("#56B4E9", "circle", "2 4"),
    ("#9A3FB5", "square", "9 3 2 3"),
]
COLUMNS = 3
PANEL_WIDTH = 218
PANEL_HEIGHT = 170
GAP_X = 78
GAP_Y = 78
LEFT = 62
TOP = 52
SMALL = ' font-size="14"'
BOLD = ' font-size="15" font-weight="bold"'
LIGHT = "#d8d8d8"

#: Points (x, y) of a line, and half the width of the interval of y (0: none).
Points = Sequence[tuple[float, float, float]]


@dataclass(frozen=True)
class Axis:
    """Name, ticks and scale of an axis; without limits they follow from the data."""

    name: str
    ticks: Sequence[float] = ()
    logarithmic: bool = False
    labels: Sequence[str] = ()
    limits: tuple[float, float] | None = None


@dataclass(frozen=True)
class Chart:
    """Panels of lines with common axes and one legend."""

    title: str
    x: Axis
    y: Axis
    panels: Mapping[str, Mapping[str, Points]]
    #: Scales y of each panel by itself.
    own_y: bool = True
    styles: Mapping[str, int] = field(default_factory=dict)


def line_chart(chart: Chart) -> str:
    """Return the chart as SVG."""
    names = list(dict.fromkeys(name for lines in chart.panels.values() for name in lines))
    style = {name: STYLES[chart.styles.get(name, i)] for i, name in enumerate(names)}
    n_rows = math.ceil(len(chart.panels) / COLUMNS)
    n_columns = min(COLUMNS, len(chart.panels))
    width = LEFT + n_columns * (PANEL_WIDTH + GAP_X) - GAP_X + 24
    width = max(width, 620)
    legend_top = TOP + n_rows * (PANEL_HEIGHT + GAP_Y) + 8
    parts = []
    all_lines = [points for lines in chart.panels.values() for points in lines.values()]
    for i, (title, lines) in enumerate(chart.panels.items()):
        left = LEFT + (i % COLUMNS) * (PANEL_WIDTH + GAP_X)
        top = TOP + (i // COLUMNS) * (PANEL_HEIGHT + GAP_Y)
        shown = list(lines.values()) if chart.own_y else all_lines
        parts += _panel(chart, title, lines, style, (left, top), shown)
    legend, height = _legend(names, style, legend_top, width)
    return card(chart.title, width, height + 14, [*parts, *legend])


def card(title: str, width: int, height: int, parts: Sequence[str]) -> str:
    """A picture on a white card, with its title for those who cannot see it."""
    label = escape(title, {'"': "&quot;"})
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
            f'width="{width}" height="{height}" role="img" aria-label="{label}" '
            'font-family="Helvetica, Arial, sans-serif" font-size="15">',
            f"<title>{escape(title)}</title>",
            f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
            *parts,
            "</svg>",
            "",
        ]
    )


def _panel(
    chart: Chart,
    title: str,
    lines: Mapping[str, Points],
    style: Mapping[str, tuple[str, str, str]],
    corner: tuple[int, int],
    shown: Sequence[Points],
) -> list[str]:
    """Title, axes and lines of one panel, whose upper left corner is given."""
    left, top = corner
    bottom = top + PANEL_HEIGHT
    x_ticks, x_limits = _ticks(chart.x, [p[0] for points in shown for p in points])
    ends = [(y - half, y + half) for points in shown for _, y, half in points]
    y_ticks, y_limits = _ticks(chart.y, [end for both in ends for end in both])
    to_x = _scale(x_limits, (left + 8, left + PANEL_WIDTH - 8), chart.x.logarithmic)
    to_y = _scale(y_limits, (bottom - 6, top + 6), chart.y.logarithmic)
    parts = [text_at(left, top - 12, escape(title), style=BOLD)]
    for tick in y_ticks:
        y = to_y(tick)
        parts.append(_rule(left, left + PANEL_WIDTH, y, y))
        parts.append(text_at(left - 7, y + 5, _number(tick), "end", SMALL))
    labels = chart.x.labels or [_number(tick) for tick in x_ticks]
    for tick, label in zip(x_ticks, labels):
        parts.append(_rule(to_x(tick), to_x(tick), bottom, bottom + 5))
        parts.append(text_at(to_x(tick), bottom + 20, label, "middle", SMALL))
    parts.append(
        f'<path d="M {left} {top} V {bottom} H {left + PANEL_WIDTH}" fill="none" '
        'stroke="#808080"/>'
    )
    parts.append(text_at(left + PANEL_WIDTH / 2, bottom + 40, chart.x.name, "middle", SMALL))
    turn = f'{SMALL} transform="rotate(-90 {left - 44} {top + PANEL_HEIGHT / 2:.0f})"'
    parts.append(text_at(left - 44, top + PANEL_HEIGHT / 2, chart.y.name, "middle", turn))
    for name, points in lines.items():
        places = [(to_x(x), to_y(y)) for x, y, _ in points]
        for (_, y, half), (at, _) in zip(points, places):
            if half:
                parts.append(_bar(at, to_y(y - half), to_y(y + half), style[name][0]))
        parts += _line(places, style[name])
    return parts


def _ticks(axis: Axis, values: Sequence[float]) -> tuple[list[float], tuple[float, float]]:
    """Ticks and limits of an axis; round numbers that enclose the values if none are given."""
    if axis.ticks:
        ticks = list(axis.ticks)
        low, high = axis.limits or (min(ticks), max(ticks))
        # One tick alone is in the middle.
        return ticks, (low, high) if low < high else (0.5 * low, 2.0 * low)
    low, high = min(values), max(values)
    if axis.logarithmic:
        first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
        ticks = [10.0**power for power in range(first, last + 1)]
        return ticks, (ticks[0], ticks[-1])
    raw = max(high - low, 1e-9) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= raw)
    first, last = math.floor(low / step), math.ceil(high / step)
    ticks = [round(i * step, 10) for i in range(first, last + 1)]
    return ticks, (ticks[0], ticks[-1])


def _scale(
    limits: tuple[float, float], pixels: tuple[float, float], logarithmic: bool
) -> Callable[[float], float]:
    """From values to pixels."""
    low, high = map(math.log10, limits) if logarithmic else limits

    def to_pixel(value: float) -> float:
        at = math.log10(value) if logarithmic else value
        return pixels[0] + (at - low) / (high - low) * (pixels[1] - pixels[0])

    return to_pixel


def _number(value: float) -> str:
    return f"{value:,.6g}".replace("-", "−")


def _rule(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{LIGHT}"/>'


def _bar(x: float, y1: float, y2: float, color: str) -> str:
    return (
        f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="{color}" '
        'stroke-opacity="0.6" stroke-width="2"/>'
    )


def _line(places: Sequence[tuple[float, float]], style: tuple[str, str, str]) -> list[str]:
    """A line and its marks, of which there are fewer where there are many points."""
    color, shape, dash = style
    every = max(1, len(places) // 6)
    return [_path(places, color, dash)] + [mark(x, y, color, shape) for x, y in places[::every]]


def _path(places: Sequence[tuple[float, float]], color: str, dash: str) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    dashes = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="2"{dashes}/>'


def mark(x: float, y: float, color: str, shape: str) -> str:
    """The mark of a point."""
    if shape in ("circle", "ring"):
        fill = color if shape == "circle" else "#ffffff"
        return (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{color}" '
            'stroke-width="1.5"/>'
        )
    outline = {
        "square": [(-4, -4), (4, -4), (4, 4), (-4, 4)],
        "diamond": [(0, -6), (6, 0), (0, 6), (-6, 0)],
        "triangle": [(0, -6), (5.5, 4), (-5.5, 4)],
        "cross": [(-1.5, -5), (1.5, -5), (1.5, -1.5), (5, -1.5), (5, 1.5), (1.5, 1.5)]
        + [(1.5, 5), (-1.5, 5), (-1.5, 1.5), (-5, 1.5), (-5, -1.5), (-1.5, -1.5)],
    }[shape]
    path = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in outline)
    return f'<polygon points="{path}" fill="{color}"/>'


def _legend(
    names: Sequence[str],
    style: Mapping[str, tuple[str, str, str]],
    top: int,
    width: int,
) -> tuple[list[str], int]:
    """Lines of the legend with as many names as fit, and where it ends."""
    parts = []
    x = 24.0
    y = float(top)
    for name in names:
        length = 62 + 7.8 * len(name)
        if x + length > width and x > 24:
            x = 24.0
            y += 26
        color, shape, dash = style[name]
        parts.append(_path([(x, y), (x + 34, y)], color, dash))
        parts.append(mark(x + 17, y, color, shape))
        parts.append(text_at(x + 42, y + 5, escape(name)))
        x += length + 12
    return parts, int(y) + 14


ROW = 30
NAMES = 250


def interval_chart(title: str, axis: str, groups: Mapping[str, Mapping[str, Points]]) -> str:
    """Return intervals as SVG: a group of rows for each name, a mark for each method.

    The points of a method are a single one: (value, value, half the width of the interval).
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    style = {name: STYLES[i] for i, name in enumerate(names)}
    points = [group[name][0] for group in groups.values() for name in group]
    ends = [end for value, _, half in points for end in (value - half, value + half, 0.0)]
    ticks, limits = _ticks(Axis(axis), ends)
    width = 720
    top = 24
    to_x = _scale(limits, (NAMES, width - 30), False)
    heights = [14 + 18 * len(group) for group in groups.values()]
    bottom = top + sum(heights)
    parts = []
    for tick in ticks:
        parts.append(_rule(to_x(tick), to_x(tick), top, bottom))
        parts.append(text_at(to_x(tick), bottom + 20, _number(tick), "middle", SMALL))
    parts.append(_bar(to_x(0.0), top, bottom, "#1a1a1a"))
    y = float(top)
    for (name, group), height in zip(groups.items(), heights):
        parts.append(text_at(NAMES - 14, y + height / 2 + 5, escape(name), "end"))
        for i, (method, ((value, _, half), *_)) in enumerate(group.items()):
            at = y + 16 + 18 * i
            color, shape, _ = style[method]
            parts.append(
                f'<line x1="{to_x(value - half):.1f}" x2="{to_x(value + half):.1f}" '
                f'y1="{at:.1f}" y2="{at:.1f}" stroke="{color}" stroke-width="2.5"/>'
            )
            parts.append(mark(to_x(value), at, color, shape))
        y += height
    parts.append(text_at((NAMES + width - 30) / 2, bottom + 44, axis, "middle", SMALL))
    legend, height = _legend(names, style, bottom + 72, width)
    return card(title, width, height + 14, [*parts, *legend])
