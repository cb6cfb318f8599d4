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
from importlib import resources
from statistics import fmean
from typing import Any

from semfs.files import need
from semfs.lab.comparison import Style, is_oracle, is_ours, styles

__all__ = ["bars", "csv_text", "figure", "heat_map", "lines", "render_page", "section", "table"]

SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross"]
LONGEST_TICK = 22  # characters of a tick label; the hover text has all of it
FIRST_CHIPS = 10  # names shown in one cell of a table; a click shows the others
LONGEST_OPEN = 12  # rows; longer tables are folded
MOST_CURVES = 8  # drawn at once; a click shows the others

Panel = Mapping[str, Any]


# --- the values a page is made of ------------------------------------------------------


def section(
    title: str,
    text: Iterable[str | list] = (),
    table: dict[str, Any] | None = None,
    figure: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one part of a page; ``text`` are paragraphs.

    A list among them is shown as bullets, each a str or (lead, text).
    """
    return {"title": title, "text": list(text), "table": table, "figure": figure}


def table(
    caption: str, columns: Sequence[str], rows: Iterable[Sequence[Any]], name: str
) -> dict[str, Any]:
    """Return a table; ``name`` is that of the CSV file readers can download.

    Cells are text, numbers, None, or lists of names or (name, remark) shown side by side.
    """
    return {"caption": caption, "columns": list(columns), "rows": [*rows], "name": name}


def figure(alt: str, panels: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return a figure of panels side by side; ``alt`` says in words what they show."""
    return {"alt": alt, "panels": list(panels)}


def lines(
    title: str,
    series: Mapping[str, Sequence[Sequence[Any]]],
    x: str,
    y: str,
    *,
    log_x: bool = False,
    log_y: bool = False,
    alt: str = "",
) -> dict[str, Any]:
    """Return a panel of curves: ``series`` maps a name to (x, y, spread, remark) points."""
    axes = {"x": x, "y": y, "log_x": log_x, "log_y": log_y}
    return {"kind": "lines", "title": title, "alt": alt, "series": dict(series), **axes}


def bars(
    title: str, series: Mapping[str, Sequence[Sequence[Any]]], y: str, x: str = ""
) -> dict[str, Any]:
    """Return a panel of grouped bars: ``series`` as in `lines`, with x the bar's name."""
    return {"kind": "bars", "title": title, "alt": "", "series": dict(series), "x": x, "y": y}


def heat_map(
    title: str,
    values: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    diverging: bool = False,
) -> dict[str, Any]:
    """Return a panel of coloured cells, ``values[i][j]`` for row i and column j."""
    cells = {"values": [list(row) for row in values], "diverging": diverging}
    names = {"row_names": list(row_names), "column_names": list(column_names)}
    return {"kind": "heat map", "title": title, "alt": "", "series": {}, **cells, **names}


# --- the page --------------------------------------------------------------------------


def render_page(
    title: str,
    sections: Sequence[dict[str, Any]],
    downloads: Sequence[dict[str, Any]] = (),
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
    files = [{"name": f"{t['name']}.csv", "text": csv_text(**_only(t))} for t in tables]
    script = _resource("report.js")
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


def _hidden(panels: Sequence[Panel]) -> set[str]:
    """Curves not drawn at first: all but ours and the best others where there are many."""
    means: dict[str, float] = {}
    for panel in panels:
        if len(panel["series"]) > MOST_CURVES:
            for name, points in panel["series"].items():
                values = [p[1] for p in points if p[1] is not None]
                means.setdefault(name, fmean(values) if values else 0.0)
    order = sorted(means, key=lambda name: (is_oracle(name), not is_ours(name), -means[name]))
    return set(order[MOST_CURVES:])


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
    return environment.from_string(_resource("report.html"))


def _resource(name: str) -> str:
    return resources.files("semfs.lab").joinpath(name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Compressed and base64-coded (plotly.js: 4.8 MB → 2.0 MB), always in the same way."""
    data = gzip.compress(text.encode("utf-8", "replace"), mtime=0)
    return base64.b64encode(data).decode("ascii")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


# --- cells and files -------------------------------------------------------------------


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


def _only(values: Mapping[str, Any]) -> dict[str, Any]:
    return {"columns": values["columns"], "rows": values["rows"]}


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


# --- panels → plotly -------------------------------------------------------------------


def _plot(panel: Panel, looks: Mapping[str, Style], keys: Mapping[str, str]) -> dict[str, Any]:
    """What plotly.js needs to draw a panel, and the key that toggles each of its traces."""
    go = need("plotly.graph_objects", "plots", what="The report")
    if panel["kind"] == "heat map":
        traces, names = [_heat_trace(go, panel)], [""]
        x, y = _ticks(panel["column_names"]), _ticks(panel["row_names"])
        layout = go.Layout(xaxis=x, yaxis=y | {"autorange": "reversed"})
    else:
        names = sorted(panel["series"], key=list(looks).index)
        at = list(dict.fromkeys(p[0] for name in names for p in panel["series"][name]))
        traces = [_trace(go, name, panel, looks[name], at) for name in names]
        layout = go.Layout(xaxis=_axis(panel, "x"), yaxis=_axis(panel, "y"))
        if panel["kind"] == "bars":
            layout.update(xaxis=_ticks(at))
    return {
        "traces": [trace.to_plotly_json() for trace in traces],
        "layout": layout.to_plotly_json(),
        "keys": [keys.get(name) for name in names],
    }


def _trace(go: Any, name: str, panel: Panel, look: Style, at: Sequence[Any]) -> Any:
    """One curve, or the bars of one colour; ``at`` are the names of the bars."""
    points = panel["series"][name]
    shared = {
        "name": _label(name),
        "y": [_number(p[1]) for p in points],
        "error_y": {"array": [_number(p[2]) for p in points], "thickness": 1, "width": 2},
        "hovertext": [_hover(name, panel, point) for point in points],
        "hoverinfo": "text",
    }
    if panel["kind"] == "bars":
        x = [at.index(p[0]) for p in points]
        return go.Bar(x=x, marker={"color": look.colour}, **shared)
    symbol = SYMBOLS[look.marker % len(SYMBOLS)]
    return go.Scatter(
        x=[_number(p[0]) for p in points],
        mode="lines+markers",
        line={"color": look.colour, "dash": look.line, "width": 2.3 * look.width},
        marker={"symbol": symbol, "size": 7, "color": look.colour},
        **shared,
    )


def _heat_trace(go: Any, panel: Panel) -> Any:
    hover = [
        [
            f"{_label(row)}<br>{_label(column)}<br>{_cell(float(value))}"
            for column, value in zip(panel["column_names"], values)
        ]
        for row, values in zip(panel["row_names"], panel["values"])
    ]
    scale = {"colorscale": "RdBu", "zmid": 0} if panel["diverging"] else {}
    z = [[_number(value) for value in row] for row in panel["values"]]
    return go.Heatmap(z=z, hovertext=hover, hoverinfo="text", **scale)


def _axis(panel: Panel, name: str) -> dict[str, Any]:
    log = {"type": "log", "exponentformat": "power"} if panel.get(f"log_{name}") else {}
    return {"title": {"text": _label(panel[name])}, **log}


def _ticks(names: Sequence[Any]) -> dict[str, Any]:
    """Names at the positions 0, 1, …: equal names must not fall on one place."""
    short = [str(n) if len(str(n)) <= LONGEST_TICK else f"{n}"[:21] + "…" for n in names]
    return {"tickvals": list(range(len(short))), "ticktext": [_label(name) for name in short]}


def _hover(name: str, panel: Panel, point: Sequence[Any]) -> str:
    at, value, spread, remark = point
    where = f"{panel['x']}: {at}" if panel["x"] else str(at)
    what = f"{panel['y']}: {_cell(value)}" + ("" if spread is None else f" ± {_cell(spread)}")
    return "<br>".join([f"<b>{_label(name)}</b>", *map(_label, [where, what, remark])])


def _label(text: Any) -> str:
    """Text that plotly.js shows as it is: it reads tags and entities in every label."""
    return html.escape(str(text), quote=False)


def _number(value: Any) -> float | None:
    """A number JSON can carry."""
    return float(value) if value is not None and math.isfinite(value) else None
