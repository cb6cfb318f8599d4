"""Sections (title, text, figure, table) → one self-contained HTML page.

The page opens from a file with the network blocked: style, script, plotly.js and data are in
it. All text is untrusted: the template escapes it, `_label` escapes what plotly.js would read
as markup, and a content security policy lets only our own two scripts run.
"""

from __future__ import annotations

import base64
import csv
import gzip
import hashlib
import html
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from statistics import fmean
from typing import Any

from semfs.files import need

__all__ = ["Style", "csv_text", "dots", "figure", "heat_map", "is_oracle", "is_ours"]
__all__ += ["lines", "render_page", "section", "styles", "table"]

# Each colour has a contrast of 3:1 or more on white and on near-black; the first is for SemFS.
COLOURS = [
    *("#e0245e", "#1f77d0", "#128a5e", "#c46a00", "#8a63d2", "#0e8fa6", "#a8559b", "#7a7f87"),
    *("#8a7a00", "#5b8c2a", "#b5553c", "#ff00ff", "#6e3dff", "#7c613c", "#00a300", "#c23bce"),
    *("#c07c87", "#ff5747", "#006aff", "#948ac7", "#ce3b85", "#276b9b", "#ff14b1", "#ff0000"),
]
SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross"]
LONGEST_TICK = 22  # characters of a tick label; the hover text has all of it
FIRST_CHIPS = 10  # names shown in one cell of a table; a click shows the others
LONGEST_OPEN = 12  # rows; longer tables are folded
MOST_CURVES = 8  # drawn at once; a click shows the others

Values = dict[str, Any]
Series = Mapping[str, Sequence[Sequence[Any]]]  # name -> (x, y, spread, remark) points


@dataclass(frozen=True)
class Style:
    """How a method looks in every figure."""

    colour: str
    marker: int  # number of the method, to pick a marker from any list
    line: str  # "solid"; "dot" for oracles; "longdash" when the colours are used up
    width: float  # relative; SemFS stands out


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Give every method a look and an order: SemFS and its variants first, oracles last.

    >>> styles(["MCFS", "MCFS (oracle)", "SemFS"])["MCFS (oracle)"]
    Style(colour='#128a5e', marker=2, line='dot', width=0.7)
    """
    order = sorted(dict.fromkeys(labels), key=lambda name: (is_oracle(name), not is_ours(name)))
    looks = {}
    for number, label in enumerate(order):
        plain = "solid" if number < len(COLOURS) else "longdash"
        width = 0.7 if is_oracle(label) else 1.5 if number == 0 else 1.0
        line = "dot" if is_oracle(label) else plain
        looks[label] = Style(COLOURS[number % len(COLOURS)], number, line, width)
    return looks


def is_ours(label: str) -> bool:
    """Tell SemFS and its variants from the methods they are compared with."""
    return label.lower().startswith("semfs")


def is_oracle(label: str) -> bool:
    """Tell whether a method is shown for reference only: nobody could choose like that."""
    return label.lower().endswith(("(oracle)", "(reference)"))


# --- the values a page is made of ------------------------------------------------------


def section(
    title: str,
    text: Iterable[str | list] = (),
    table: Values | None = None,
    figure: Values | None = None,
) -> Values:
    """Return one part of a page; ``text`` are paragraphs.

    A list among them is shown as bullets, each a str or (lead, text).
    """
    return {"title": title, "text": list(text), "table": table, "figure": figure}


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], name: str
) -> Values:
    """Return a table; ``name`` is that of the CSV file readers can download.

    Cells are text, numbers, None, or lists of names or (name, remark) shown side by side.
    """
    return {"caption": caption, "columns": list(columns), "rows": [*rows], "name": name}


def figure(alt: str, panels: Iterable[Values]) -> Values:
    """Return a figure of panels side by side; ``alt`` says in words what they show."""
    return {"alt": alt, "panels": list(panels)}


def lines(
    title: str,
    series: Series,
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    alt: str = "",
) -> Values:
    """Return a panel of curves: ``series`` maps a name to (x, y, spread, remark) points."""
    traces = [
        {"type": "scatter", "mode": "lines+markers", "x": [_number(p[0]) for p in points]}
        | _heights(name, points, x, y)
        for name, points in series.items()
    ]
    return _panel(title, traces, _axis(x, log_x), _axis(y, log_y), series, alt=alt)


def heat_map(
    title: str,
    values: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
) -> Values:
    """Return a panel of coloured cells, ``values[i][j]`` for row i and column j, 0 is white."""
    z = [[_number(value) for value in row] for row in values]
    hover = [
        [_cell_hover(r, c, _cell(float(v))) for c, v in zip(column_names, row)]
        for r, row in zip(row_names, values)
    ]
    trace: Values = {"type": "heatmap", "z": z, "hovertext": hover, "hoverinfo": "text"}
    trace |= {"colorscale": "RdBu", "zmid": 0}
    y = _ticks(row_names) | {"autorange": "reversed"}
    return _panel(title, [trace], _ticks(column_names), y)


def dots(
    title: str,
    means: Sequence[Sequence[float]],
    shares: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
) -> Values:
    """Return a dot plot: colour from ``means[i][j]``, size from ``shares[i][j]`` (0 to 1)."""
    places = [(i, j) for i in range(len(row_names)) for j in range(len(column_names))]
    words = [f"mean {means[i][j]:.2f}, in {shares[i][j]:.0%} of the cells" for i, j in places]
    names = [(row_names[i], column_names[j]) for i, j in places]
    marker = {"size": [16 * math.sqrt(shares[i][j]) for i, j in places]}
    colours = {
        "color": [means[i][j] for i, j in places],
        "colorscale": "YlOrRd",
        "reversescale": True,
    }
    bar = {"showscale": True, "colorbar": {"title": {"text": "mean"}, "thickness": 12}}
    trace: Values = {"type": "scatter", "mode": "markers", "hoverinfo": "text"}
    trace |= {"x": [j for _, j in places], "y": [i for i, _ in places]}
    trace["hovertext"] = [_cell_hover(*name, word) for name, word in zip(names, words)]
    trace["marker"] = marker | colours | bar | {"line": {"width": 0.5}}
    x = _ticks(column_names) | {"tickangle": -60}
    y = _ticks(row_names) | {"autorange": "reversed"}
    return _panel(title, [trace], x, y, height=1.4 * (len(row_names) + 6))


def _panel(
    title: str,
    traces: list[Values],
    x: Values,
    y: Values,
    series: Iterable[str] = (),
    *,
    alt: str = "",
    height: float = 22.0,
) -> Values:
    """A panel as the template and plotly.js take it; ``series`` names the traces' methods."""
    layout = {"xaxis": x, "yaxis": y}
    shown = {"traces": traces, "layout": layout, "series": list(series), "height": height}
    return {"title": title, "alt": alt, **shown}


# --- the page --------------------------------------------------------------------------


def render_page(
    title: str,
    sections: Sequence[Values],
    downloads: Sequence[Values] = (),
    notes: Sequence[str] = (),
) -> str:
    """Return the HTML of a page.

    Parameters
    ----------
    title : str
    sections : sequence of dict
        From `section`.
    downloads : sequence of dict
        From `table`: too long to show, offered as CSV files at the end.
    notes : sequence of str
        What must be known before the results are read; shown at the top.

    Examples
    --------
    >>> text = render_page("Results", [section("Summary", ["A < B"])])
    >>> "<h2" in text and "A &lt; B" in text
    True
    """
    panels = [p for s in sections if s["figure"] for p in s["figure"]["panels"]]
    looks = styles(name for panel in panels for name in panel["series"])
    keys = {name: f"s{i}" for i, name in enumerate(looks)}
    tables = [s["table"] for s in sections if s["table"]] + list(downloads)
    files = [
        {"name": f"{t['name']}.csv", "text": csv_text(t["columns"], t["rows"])} for t in tables
    ]
    script = resources.files("semfs.lab").joinpath("report.js").read_text(encoding="utf-8")
    plotly = need("plotly.offline", "plots", what="The report").get_plotlyjs() if panels else ""
    return _template().render(
        title=title,
        notes=notes,
        sections=[{**s, "id": f"section-{i}"} for i, s in enumerate(sections)],
        downloads=downloads,
        looks=looks,
        keys=keys,
        hidden=_hidden(panels),
        plots=[_plot(panel, looks, keys) for panel in panels],
        csv_files=_packed(json.dumps(files)),
        plotly=_packed(plotly),
        script=script,
        script_hashes=[_hash(script), _hash(plotly)],
    )


def _hidden(panels: Sequence[Values]) -> set[str]:
    """Curves not drawn at first: all but ours and the best others where there are many."""
    means: dict[str, float] = {}
    for panel in panels:
        if len(panel["series"]) > MOST_CURVES:
            for name, trace in zip(panel["series"], panel["traces"]):
                values = [y for y in trace["y"] if y is not None]
                means.setdefault(name, fmean(values) if values else 0.0)
    order = sorted(means, key=lambda name: (is_oracle(name), not is_ours(name), -means[name]))
    return set(order[MOST_CURVES:])


def _plot(panel: Values, looks: Mapping[str, Style], keys: Mapping[str, str]) -> Values:
    """What plotly.js needs to draw a panel, and the key that toggles each of its traces."""
    names = sorted(panel["series"], key=list(looks).index)
    if not names:
        return {"traces": panel["traces"], "layout": panel["layout"], "keys": [None]}
    by_name = dict(zip(panel["series"], panel["traces"]))
    traces = [by_name[name] | _drawn(looks[name]) for name in names]
    return {"traces": traces, "layout": panel["layout"], "keys": [keys[n] for n in names]}


def _drawn(look: Style) -> Values:
    symbol = SYMBOLS[look.marker % len(SYMBOLS)]
    line = {"color": look.colour, "dash": look.line, "width": 2.3 * look.width}
    return {"line": line, "marker": {"symbol": symbol, "size": 7, "color": look.colour}}


def _template() -> Any:
    jinja2 = need("jinja2", "plots", what="The report")
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # NaN is no JSON; `tojson` writes <, >, &, ' and U+2028 as escapes.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters |= {"cell": _cell, "trusted": need("markupsafe", "plots").Markup}
    environment.tests |= {"numeric": _is_number, "list": lambda cell: isinstance(cell, list)}
    environment.globals |= {"first_chips": FIRST_CHIPS, "longest_open": LONGEST_OPEN}
    text = resources.files("semfs.lab").joinpath("report.html").read_text(encoding="utf-8")
    return environment.from_string(text)


def _packed(text: str) -> str:
    """Compressed and base64-coded (plotly.js: 4.8 MB → 2.0 MB), always in the same way."""
    data = gzip.compress(text.encode("utf-8", "replace"), mtime=0)
    return base64.b64encode(data).decode("ascii")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


# --- cells, labels and files -----------------------------------------------------------


def csv_text(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Return a table as CSV, numbers in full; spreadsheets will take no name for a formula.

    >>> csv_text(["gene", "score"], [["=1+1", -0.5]])
    "gene,score\\r\\n'=1+1,-0.5\\r\\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    writer.writerows([_csv_cell(cell) for cell in row] for row in rows)
    return text.getvalue()


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, list):
        cell = "; ".join(n if isinstance(n, str) else f"{n[0]} ({n[1]})" for n in cell)
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        try:
            float(cell)
        except ValueError:
            return "'" + cell
    return cell


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cell(value: Any) -> str:
    """The text of a table cell."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if not isinstance(value, float):
        return str(value)
    small_or_large = value != 0 and not 5e-4 <= abs(value) < 1e5
    return (f"{value:.3g}" if small_or_large else f"{value:.3f}").replace("-", "−")


def _heights(name: str, points: Sequence[Sequence[Any]], x: str, y: str) -> Values:
    """What curves and bars have in common: heights, their spread, what hovering shows."""
    spread = {"array": [_number(p[2]) for p in points], "thickness": 1, "width": 2}
    hover = []
    for at, value, sd, remark in points:
        where = f"{x}: {at}" if x else str(at)
        what = f"{y}: {_cell(value)}" + ("" if sd is None else f" ± {_cell(sd)}")
        texts = [f"<b>{_label(name)}</b>", *map(_label, [where, what, remark])]
        hover.append("<br>".join(texts))
    shown = {"name": _label(name), "hovertext": hover, "hoverinfo": "text"}
    return {"y": [_number(p[1]) for p in points], "error_y": spread, **shown}


def _cell_hover(row: str, column: str, value: str) -> str:
    return f"{_label(row)}<br>{_label(column)}<br>{value}"


def _axis(title: str, log: bool = False) -> Values:
    scale = {"type": "log", "exponentformat": "power"} if log else {}
    return {"title": {"text": _label(title)}, **scale}


def _ticks(names: Sequence[Any]) -> Values:
    """Names at the positions 0, 1, …: equal names must not fall on one place."""
    short = [str(n) if len(str(n)) <= LONGEST_TICK else f"{n}"[:21] + "…" for n in names]
    return {"tickvals": list(range(len(short))), "ticktext": [_label(name) for name in short]}


def _label(text: Any) -> str:
    """Text that plotly.js shows as it is: it reads tags and entities in every label."""
    return html.escape(str(text), quote=False)


def _number(value: Any) -> float | None:
    """A number JSON can carry."""
    return float(value) if value is not None and math.isfinite(value) else None
