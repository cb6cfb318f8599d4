"""Writes the results of a run as one self-contained HTML page, or as a CSV file.

A row is a flat dict, see `Store.rows`. `semfs.lab.comparison` compares methods,
`semfs.lab.sections` makes the sections of the page, ``report.html`` is its template, and
``report.js`` draws the figures.
"""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from semfs._typing import PathLike
from semfs.io.safety import atomic_write
from semfs.lab.claims.section import claims_section
from semfs.lab.comparison import (
    Row,
    is_oracle,
    metrics_of,
)
from semfs.lab.figures import FORMATS, write_figures
from semfs.lab.latex import write_tables
from semfs.lab.sections import (
    PAGE_FOLDER,
    SMALLEST_DECIMAL,
    Panel,
    Section,
    build_sections,
    colors,
    data_title,
    label_order,
)
from semfs.system import import_optional
from semfs.validation import check_option

if TYPE_CHECKING:
    import jinja2

#: Title of a page that compares methods.
COMPARISON = "Feature selection for unseen classes: results"

#: Curves drawn at once; a click shows the others.
MOST_CURVES = 8

CSV_COLUMNS = [
    "experiment",
    "dataset",
    "split",
    "method",
    "label",
    "k",
    "acc",
    "acc_sd",
    "nmi",
    "nmi_sd",
    "seconds",
    "seed",
    "params",
    "features",
    "extra",
    "semfs_version",
]

#: Two rows of a run differ in one of these.
ROW_KEY = ("experiment", "dataset", "split", "method", "label", "params", "seed", "k")

#: Text that starts with one of these is a formula to a spreadsheet.
FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")

#: Larger numbers are shown with three digits, others with three decimals.
LARGEST_DECIMAL = 1e5


def write_report(
    rows: Sequence[Row],
    path: PathLike,
    *,
    failures: Sequence[Row] = (),
    info: Mapping[str, Any] | None = None,
    sections: Iterable[Section] = (),
) -> Path:
    """Write a self-contained page of results atomically and return its path.

    Parameters
    ----------
    rows, failures : sequence of dict
        Rows of results from `evaluate` or `Store.rows` (one per finished job and k), and
        failures from `Store.failures`.
    info : mapping, optional
        Facts from `Store.info`, such as command, versions, datasets, protocol and notes. All of
        them are optional.
    sections : iterable of Section
        Further sections of the page.

    Examples
    --------
    >>> import tempfile
    >>> row = {"experiment": "clustering", "dataset": "cells", "split": "0", "method": "m",
    ...        "label": "Mine", "k": 5, "acc": 0.5, "nmi": 0.4}
    >>> write_report([row], Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    _check_distinct_rows(rows)
    return write_text(render(rows, failures, info or {}, sections), path)


def _check_distinct_rows(rows: Iterable[Row]) -> None:
    """Refuse rows of two evaluations that would be averaged as if they were one."""
    known: set[str] = set()
    for row in rows:
        # times and objectives have no k; they are not averaged over class splits
        if row.get("k") is None:
            continue
        values = [row.get(name) for name in ROW_KEY]
        key = json.dumps(values, default=str, sort_keys=True)
        if key in known:
            raise ValueError(
                f"two rows have data set {row['dataset']!r}, split "
                f"{row['split']!r}, method {row['label']!r} and "
                f"k={row['k']}. Either evaluate all your class splits in "
                "one call, as in evaluate(data, splits=[...]), or give "
                "the splits distinct names."
            )
        known.add(key)


def write_csv(rows: Iterable[Row], path: PathLike) -> Path:
    """Write rows as CSV in the given order and return the path."""
    check_csv_ending(path)
    return write_text(_as_csv(rows), path)


def check_csv_ending(path: PathLike) -> None:
    """Raise an error if a path does not end in ``.csv``."""
    if Path(path).suffix.lower() != ".csv":
        raise ValueError(f"{path}: rows are written as CSV, so the file name must end in .csv.")


def write_text(text: str, path: PathLike) -> Path:
    """Write text to ``path`` atomically and return the path."""
    # Lone surrogates in names cannot be encoded; "replace" writes a question mark.
    with atomic_write(path) as temporary:
        temporary.write_bytes(text.encode("utf-8", "replace"))
    return Path(path)


def render(
    rows: Sequence[Row],
    failures: Sequence[Row],
    info: Mapping[str, Any],
    sections: Iterable[Section] = (),
) -> str:
    """Return the HTML of the page that `write_report` writes.

    The page needs no network. All text is untrusted. The template and the script escape it, and
    a content security policy allows only the two scripts of semfs to run.
    """
    parts = sections_of_page(rows, info, sections)
    names = dict.fromkeys(data_title(str(row["dataset"])) for row in rows)
    return render_sections(
        parts,
        info,
        title=_title(names, str(info.get("started", ""))),
        failures=failures,
        seeds=sorted({str(row["seed"]) for row in rows if row.get("seed") is not None}),
        csv=_as_csv(rows),
        csv_text=f"All results ({len(rows)} rows, CSV)" if rows else "",
    )


def sections_of_page(
    rows: Sequence[Row],
    info: Mapping[str, Any],
    sections: Iterable[Section] = (),
) -> list[Section]:
    """Return the sections of a page in the order of summary, figures and tables."""
    # Runs of the paper's experiments have a protocol, and are compared with its findings.
    is_of_paper = "protocol" in info
    first, *others = [*build_sections(rows, findings=is_of_paper), *sections]
    others.sort(key=lambda section: not section.panels)
    if is_of_paper and rows:
        others.insert(0, claims_section(rows))
    return [first, *others]


def write_for_print(
    rows: Sequence[Row],
    folder: PathLike,
    *,
    info: Mapping[str, Any] | None = None,
    figures: str | None = None,
    tables: bool = True,
    sections: Iterable[Section] = (),
) -> list[Path]:
    """Write the tables of a page as LaTeX and, if requested, its figures as PDF or SVG.

    Parameters
    ----------
    rows, info, sections
        See `write_report`.
    folder : path
        Folder to which the files are written.
    figures : {"pdf", "svg"}, optional
        Format of the figures. By default, no figures are written.
    tables : bool, default=True
        Whether to write the tables.
    """
    if figures is not None:
        check_option("figures", figures, FORMATS)
    parts = sections_of_page(rows, info or {}, sections)
    written = write_tables(parts, folder) if tables else []
    if figures is not None:
        written += write_figures(parts, folder, figures)
    return written


def _title(names: Iterable[str], started: str) -> str:
    """Return the title of a page: the data sets and the day, as far as they are known."""
    listed = ", ".join(names)
    title = f"{listed}: features for unseen classes" if listed else COMPARISON
    day = started[: len("2026-01-02")]
    return f"{title} ({day})" if day else title


def render_sections(
    parts: Sequence[Section],
    info: Mapping[str, Any],
    *,
    title: str = COMPARISON,
    failures: Sequence[Row] = (),
    seeds: Sequence[str] = (),
    csv: str = "",
    csv_text: str = "",
    csv_name: str = "scores.csv",
) -> str:
    """Return the HTML of a page of sections in the given order.

    ``csv`` holds the file that a button on the page downloads. ``csv_text`` is the label of the
    button; if it is empty, the page has no button.
    """
    panels = [panel for part in parts for panel in part.panels]
    drawn = [name for panel in panels if panel.kind == "lines" for name in panel.series]
    color_of = colors(drawn)
    # The same text is embedded and hashed: a browser runs the script only if both agree.
    script = PAGE_FOLDER.joinpath("report.js").read_text("utf-8")
    # A page without figures does without plotly's 2 MB.
    plotly = ""
    if panels:
        plotly = import_optional("plotly.offline", "plots", what="The report").get_plotlyjs()
    template = _environment().from_string(
        PAGE_FOLDER.joinpath("report.html").read_text("utf-8")
    )
    return template.render(
        title=title,
        sections=parts,
        failures=failures,
        info=info,
        seeds=seeds,
        csv_text=csv_text,
        csv_name=csv_name,
        colors=color_of,
        hidden=_hidden(panels),
        plots={"panels": [asdict(panel) for panel in panels], "colors": color_of},
        csv=_compressed(csv),
        plotly=_compressed(plotly),
        script=script,
        script_hashes=[_hash(script), _hash(plotly)],
    )


def _environment() -> jinja2.Environment:
    """Return the template engine, which escapes everything that is not marked "trusted"."""
    jinja2 = import_optional("jinja2", "plots", what="The report")
    markupsafe = import_optional("markupsafe", "plots", what="The report")
    environment = jinja2.Environment(
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # NaN is not JSON; `tojson` writes <, >, &, ' and U+2028 as escapes.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters.update(
        {
            "cell": _table_text,
            "flat": _flat,
            "in_words": data_title,
            "trusted": markupsafe.Markup,
        }
    )
    environment.tests.update({"list": _is_list, "oracle": is_oracle})
    return environment


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _hidden(panels: Sequence[Panel]) -> set[str]:
    """Curves not drawn at first: where there are many, all but ours and the best others."""
    crowded = [
        panel for panel in panels if panel.kind == "lines" and len(panel.series) > MOST_CURVES
    ]
    means: dict[str, float] = {}
    for panel in crowded:
        for name, points in panel.series.items():
            # The first panel decides; a method is hidden in all panels or in none.
            means.setdefault(name, fmean(point[1] for point in points))
    best_first = sorted(means, key=lambda name: (*label_order(name), -means[name]))
    return set(best_first[MOST_CURVES:])


def _compressed(text: str) -> str:
    """Text compressed and base64-coded (plotly.js: 4.8 MB → 2.0 MB), the same every time."""
    return _base64(gzip.compress(text.encode("utf-8", "replace"), mtime=0))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _hash(script: str) -> str:
    """Return the hash by which a content security policy admits a script."""
    return _base64(sha256(script.encode()).digest())


def _table_text(value: object) -> str:
    """Return an entry of a table; a dash for what is missing."""
    if value is None:
        return "–"
    if not isinstance(value, float):
        return str(value)
    if not math.isfinite(value):
        return "–"
    if value == 0 or SMALLEST_DECIMAL <= abs(value) < LARGEST_DECIMAL:
        text = f"{value:.3f}"
    else:
        text = f"{value:.3g}"
    return text.replace("-", "−")


def _as_csv(rows: Iterable[Row]) -> str:
    """Return the rows of a run as CSV; further measures, where there are some, come last."""
    rows = list(rows)
    further = [name for name in metrics_of(rows) if name not in CSV_COLUMNS]
    columns = [*CSV_COLUMNS]
    for name in further:
        columns += [name, f"{name}_sd"]
    return as_csv(columns, ([row.get(name) for name in columns] for row in rows))


def as_csv(columns: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    """Return a table as CSV, with all digits of numbers and no text that is a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(columns)
    for row in rows:
        writer.writerow([_csv_entry(value) for value in row])
    return text.getvalue()


def _csv_entry(value: object) -> object:
    """Return a value in CSV; names come from files, and a spreadsheet must not run them."""
    flat = _flat(value)
    if isinstance(flat, str) and flat.startswith(FORMULA_STARTS):
        # To a spreadsheet a leading apostrophe marks text.
        return f"'{flat}"
    return flat


def _flat(value: object) -> object:
    """Return a value as an entry of a table: lists and mappings as JSON."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(
            value,
            sort_keys=True,
            default=str,
            ensure_ascii=False,
        )
    return value
