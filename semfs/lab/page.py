"""Sections (title, text, table, figure) → one self-contained HTML page.

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
from typing import Any

from semfs.lab.comparison import Style, styles

__all__ = ["bars", "figure", "heat_map", "lines", "render_page", "section", "table"]

SYMBOLS = ["circle", "square", "diamond", "triangle-up", "x", "star", "triangle-down", "cross"]
LONGEST_TICK = 22  # characters of a tick label; the hover text has all of it
FIRST_CHIPS = 10  # names shown in one cell of a table; a click shows the others
LONGEST_OPEN = 12  # rows; longer tables are folded


# --- the values a page is made of ------------------------------------------------------


def section(
    title: str,
    text: Iterable[str | list] = (),
    table: dict[str, Any] | None = None,
    figure: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """Return one part of a page.

    Parameters
    ----------
    title : str
    text : iterable of str or list
        Paragraphs; a list is shown as bullets, each a str or (lead, text).
    table, figure : dict, default=None
        From `table` and `figure`.
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
    """Return a figure of panels side by side; ``alt`` says in words what they show.

    A panel may have an ``alt`` of its own, for what only it shows.
    """
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
    title: str,
    series: Mapping[str, Sequence[Sequence[Any]]],
    y: str,
    x: str = "",
    *,
    alt: str = "",
) -> dict[str, Any]:
    """Return a panel of grouped bars: ``series`` as in `lines`, with x the bar's name."""
    axes = {"x": x, "y": y}
    return {"kind": "bars", "title": title, "alt": alt, "series": dict(series), **axes}


def heat_map(
    title: str,
    values: Sequence[Sequence[float]],
    row_names: Sequence[str],
    column_names: Sequence[str],
    *,
    diverging: bool = False,
    alt: str = "",
) -> dict[str, Any]:
    """Return a panel of coloured cells, ``values[i][j]`` for row i and column j."""
    cells = {"values": [list(row) for row in values], "diverging": diverging}
    names = {"row_names": list(row_names), "column_names": list(column_names)}
    return {"kind": "heat map", "title": title, "alt": alt, "series": {}, **cells, **names}


# --- the page --------------------------------------------------------------------------


def render_page(
    title: str,
    sections: Sequence[dict[str, Any]],
    downloads: Sequence[dict[str, Any]] = (),
) -> str:
    """Return the HTML of a page.

    Parameters
    ----------
    title : str
    sections : sequence of dict
        From `section`.
    downloads : sequence of dict
        From `table`: too long to show, offered as CSV files at the top.

    Examples
    --------
    >>> text = render_page("Results", [section("Summary", ["A < B"])])
    >>> "<h2" in text and "A &lt; B" in text
    True
    """
    looks = styles(name for s in sections for p in _panels(s) for name in p["series"])
    keys = {name: f"s{i}" for i, name in enumerate(looks)}
    shown = [{**s, "id": f"section-{i}"} for i, s in enumerate(sections)]
    plots = [_plot(panel, looks, keys) for s in shown for panel in _panels(s)]
    tables = [s["table"] for s in shown if s["table"]] + list(downloads)
    script = _resource("report.js")
    plotly = _plotly_js() if plots else ""
    return _template().render(
        title=title,
        sections=shown,
        downloads=downloads,
        looks=looks,
        keys=keys,
        plots=plots,
        csv_files=_packed(json.dumps([_csv(t) for t in tables])),
        plotly=_packed(plotly),
        script=script,
        script_hashes=[_hash(script), _hash(plotly)],
    )


def _template() -> Any:
    try:
        import jinja2
        from markupsafe import Markup
    except ImportError as error:
        raise _missing(error) from None
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    # NaN is no JSON; `tojson` writes <, >, &, ' and U+2028 as escapes.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters |= {"cell": _cell, "trusted": Markup}
    environment.tests |= {"numeric": _is_number, "list": lambda cell: isinstance(cell, list)}
    environment.globals |= {"first_chips": FIRST_CHIPS, "longest_open": LONGEST_OPEN}
    return environment.from_string(_resource("report.html"))


def _plotly_js() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise _missing(error) from None
    return get_plotlyjs()


def _missing(error: ImportError) -> ImportError:
    return ImportError(
        f"The report needs {error.name}. Install it with: pip install 'semfs[plots]'"
    )


def _resource(name: str) -> str:
    return resources.files("semfs.lab").joinpath(name).read_text(encoding="utf-8")


def _packed(text: str) -> str:
    """Compressed and base64-coded (plotly.js: 4.8 MB → 2.0 MB), always in the same way."""
    data = gzip.compress(text.encode("utf-8", "replace"), mtime=0)
    return base64.b64encode(data).decode("ascii")


def _hash(script: str) -> str:
    digest = hashlib.sha256(script.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")


def _panels(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    return part["figure"]["panels"] if part["figure"] else []


# --- cells and files -------------------------------------------------------------------


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


def _csv(values: Mapping[str, Any]) -> dict[str, str]:
    """The file of a table: its name and text, numbers in full."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(values["columns"])
    writer.writerows([_csv_cell(cell) for cell in row] for row in values["rows"])
    return {"name": values["name"] + ".csv", "text": text.getvalue()}


def _csv_cell(cell: Any) -> Any:
    if isinstance(cell, list):
        cell = "; ".join(n if isinstance(n, str) else f"{n[0]} ({n[1]})" for n in cell)
    # Spreadsheets would run a name such as "=1+1" as a formula.
    if isinstance(cell, str) and cell.startswith(("=", "+", "-", "@", "\t", "\r")):
        return "'" + cell
    return cell


# --- panels → plotly.js ----------------------------------------------------------------


def _label(text: Any) -> str:
    """Text that plotly.js shows as it is: it reads tags and entities in every label."""
    return html.escape(str(text), quote=False)


def _tick(text: Any) -> str:
    text = str(text)
    return _label(text if len(text) <= LONGEST_TICK else text[: LONGEST_TICK - 1] + "…")


def _plot(
    panel: Mapping[str, Any], looks: Mapping[str, Style], keys: Mapping[str, str]
) -> dict[str, Any]:
    """What plotly.js needs to draw a panel, and the key that toggles each of its traces."""
    if panel["kind"] == "heat map":
        return {"traces": [_heat_trace(panel)], "layout": _heat_layout(panel), "keys": [None]}
    draw = _line_trace if panel["kind"] == "lines" else _bar_trace
    order = sorted(panel["series"], key=list(looks).index)
    categories = list(dict.fromkeys(p[0] for name in order for p in panel["series"][name]))
    traces = [draw(name, panel, looks[name], categories) for name in order]
    layout = {"xaxis": _axis(panel, "x"), "yaxis": _axis(panel, "y")}
    if panel["kind"] == "bars":
        layout["xaxis"] |= _ticks(categories)
    return {"traces": traces, "layout": layout, "keys": [keys[name] for name in order]}


def _axis(panel: Mapping[str, Any], name: str) -> dict[str, Any]:
    is_log = panel.get(f"log_{name}", False)
    axis = {"title": {"text": _label(panel[name])}, "type": "log" if is_log else "linear"}
    return axis | ({"exponentformat": "power"} if is_log else {})


def _ticks(names: Sequence[Any]) -> dict[str, Any]:
    """Names at the positions 0, 1, …: equal names must not fall on one place."""
    return {"tickvals": list(range(len(names))), "ticktext": [_tick(name) for name in names]}


def _line_trace(
    name: str, panel: Mapping[str, Any], look: Style, _: Sequence[Any]
) -> dict[str, Any]:
    points = panel["series"][name]
    dash = {"solid": "solid", "dashed": "longdash", "dotted": "dot"}[look.line]
    marker = {"symbol": SYMBOLS[look.marker % len(SYMBOLS)], "size": 7, "color": look.colour}
    return {
        "type": "scatter",
        "mode": "lines+markers",
        "x": [_number(p[0]) for p in points],
        "line": {"color": look.colour, "dash": dash, "width": 2.3 * look.width},
        "marker": marker,
        **_values(name, panel, points),
    }


def _bar_trace(
    name: str, panel: Mapping[str, Any], look: Style, categories: Sequence[Any]
) -> dict[str, Any]:
    points = panel["series"][name]
    return {
        "type": "bar",
        "x": [categories.index(p[0]) for p in points],
        "marker": {"color": look.colour},
        **_values(name, panel, points),
    }


def _values(name: str, panel: Mapping[str, Any], points: Sequence[Sequence[Any]]) -> dict:
    return {
        "name": _label(name),
        "y": [_number(p[1]) for p in points],
        "error_y": {"type": "data", "array": [_number(p[2]) for p in points], "visible": False},
        "hovertext": [_hover(name, panel, point) for point in points],
        "hoverinfo": "text",
    }


def _hover(name: str, panel: Mapping[str, Any], point: Sequence[Any]) -> str:
    at, value, spread, remark = point
    where = f"{panel['x']}: {at}" if panel["x"] else str(at)
    what = f"{panel['y']}: {_cell(value)}" + ("" if spread is None else f" ± {_cell(spread)}")
    return "<br>".join([f"<b>{_label(name)}</b>", *map(_label, [where, what, remark])])


def _heat_trace(panel: Mapping[str, Any]) -> dict[str, Any]:
    names = [
        [f"{_label(row)}<br>{_label(column)}<br>" for column in panel["column_names"]]
        for row in panel["row_names"]
    ]
    hover = [
        [name + _cell(float(value)) for name, value in zip(row_names, row)]
        for row_names, row in zip(names, panel["values"])
    ]
    colours = (
        {"colorscale": "RdBu", "zmid": 0} if panel["diverging"] else {"colorscale": "Viridis"}
    )
    z = [[_number(value) for value in row] for row in panel["values"]]
    return {"type": "heatmap", "z": z, "hovertext": hover, "hoverinfo": "text", **colours}


def _heat_layout(panel: Mapping[str, Any]) -> dict[str, Any]:
    y = _ticks(panel["row_names"]) | {"autorange": "reversed"}
    return {"xaxis": _ticks(panel["column_names"]), "yaxis": y}


def _number(value: Any) -> float | None:
    """A number JSON can carry."""
    return float(value) if value is not None and math.isfinite(value) else None
