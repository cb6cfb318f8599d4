r"""The tables of a report in LaTeX, for the package booktabs.

Every table is a file with a ``tabular`` environment, to be read by ``\input``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from semfs._typing import PathLike
from semfs.io.safety import atomic_write
from semfs.lab.comparison import Interval, Standings
from semfs.lab.sections import FEATURES, Panel, Section, data_title, difference

#: Letters with a meaning in LaTeX, and how they are written.
ESCAPES = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "$": r"\$",
    "&": r"\&",
    "#": r"\#",
    "_": r"\_",
    "%": r"\%",
    "^": r"\textasciicircum{}",
    "~": r"\textasciitilde{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "−": r"$-$",
    "±": r"$\pm$",
    "α": r"$\alpha$",
    "…": r"\dots{}",
}

#: What stands above the table of standings: captions are written where it is included.
STANDINGS_NOTE = (
    "% ± is the standard deviation over the class splits, or over the runs of K-means if there "
    "is one split;\n"
    "% the interval is the 95 % interval of the lead.\n"
)
CURVES_NOTE = (
    "% ± is the standard deviation over the class splits, or over the runs of K-means if there "
    "is one split.\n"
)
ORACLE_NOTE = (
    "% (oracle): parameters chosen with the labels of the unseen classes, for every number of "
    "features and\n"
    "% measure. A bound that cannot be reached in practice, listed below the methods and not "
    "ranked.\n"
)

HEADER = r"% Needs \usepackage{booktabs}. Written by semfs, option --latex."


def write_tables(sections: Iterable[Section], folder: PathLike) -> list[Path]:
    """Write the tables of the sections as LaTeX files in ``folder``, and return the paths.

    Long lists, such as selected features, stay in the page and in the CSV file.
    """
    tables: dict[str, str] = {}
    for section in sections:
        name = _file_name(section.title)
        if section.standings and section.table is None:
            tables[name] = standings_table(section.standings)
        elif section.table is not None and not _has_lists(section.table.rows):
            tables[name] = as_latex(section.table.columns, section.table.rows)
        by_k = [panel for panel in section.panels if panel.x == FEATURES]
        if by_k:
            tables[f"{name}-by-k"] = curves_table(by_k)
        if section.leads:
            tables[f"leads-{name}"] = leads_table(section.leads)
    return [_write(text, Path(folder) / f"{name}.tex") for name, text in tables.items()]


def standings_table(found: Mapping[tuple[str, str], Standings]) -> str:
    """Return the means of all methods, best first, with leads over the best other one."""
    columns = ["data set", "measure", "method", "mean ± sd", "lead over best other", "interval"]
    body = []
    has_oracles = False
    for (dataset, measure), ranking in found.items():
        oracles = sorted(ranking.oracles, key=lambda standing: -standing.mean)
        has_oracles |= bool(oracles)
        for standing in ranking.ranked + oracles:
            spread = "" if standing.sd is None else f" ± {standing.sd:.3f}"
            score = f"{standing.mean:.3f}{spread}"
            place = [data_title(dataset), measure, standing.label]
            body.append([*place, score, *_lead_entries(standing.lead)])
    notes = STANDINGS_NOTE + (ORACLE_NOTE if has_oracles else "")
    return notes + as_latex(columns, body)


def curves_table(panels: Sequence[Panel]) -> str:
    """Return the means of curves and their spread: rows are methods, columns are k."""
    ks = sorted(
        {point[0] for panel in panels for line in panel.series.values() for point in line}
    )
    body = []
    for panel in panels:
        for method, line in panel.series.items():
            scores = {point[0]: _with_spread(*point[1:3]) for point in line}
            body.append([panel.y, method, *(scores.get(k) for k in ks)])
    return CURVES_NOTE + as_latex(["measure", "method", *(f"k = {k}" for k in ks)], body)


def _with_spread(mean: float, sd: float | None) -> str:
    """Return a mean with its spread, if there is one."""
    return f"{mean:.3f} ± {sd:.3f}" if sd else f"{mean:.3f}"


def leads_table(leads: Mapping[tuple[str, str, str], Interval]) -> str:
    """Return leads with their intervals and verdicts."""
    columns = ["data set", "measure", "method", "lead", "interval", "verdict"]
    body = [
        [data_title(dataset), measure, method, *_lead_entries(found), found.verdict]
        for (dataset, measure, method), found in leads.items()
    ]
    return as_latex(columns, body)


def _lead_entries(found: Interval) -> tuple[str, str]:
    """Return a lead and its interval as text."""
    mean = difference(found.mean, sign=True)
    if found.low is None or found.high is None:
        return mean, "–"
    low, high = difference(found.low, sign=True), difference(found.high, sign=True)
    return mean, f"{low} to {high}"


def as_latex(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in LaTeX: a ``tabular`` environment with rules of booktabs.

    >>> print(as_latex(["method", "NMI"], [["A & B", 0.5]]))
    % Needs \\usepackage{booktabs}. Written by semfs, option --latex.
    \\begin{tabular}{ll}
    \\toprule
    method & NMI \\\\
    \\midrule
    A \\& B & 0.500 \\\\
    \\bottomrule
    \\end{tabular}
    """
    lines = [HEADER, rf"\begin{{tabular}}{{{'l' * len(columns)}}}", r"\toprule"]
    lines.append(_line(columns))
    lines.append(r"\midrule")
    lines += [_line(row) for row in rows]
    lines += [r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines)


def _line(entries: Sequence[object]) -> str:
    return rf"{' & '.join(escaped(entry) for entry in entries)} \\"


def escaped(entry: object) -> str:
    """Return an entry as text that LaTeX prints as it is; names come from files."""
    if entry is None:
        return "–"
    text = f"{entry:.3f}" if isinstance(entry, float) else str(entry)
    # Line ends and other control characters would end an entry, or the run of LaTeX.
    text = "".join(letter if letter.isprintable() else " " for letter in text)
    return "".join(ESCAPES.get(letter, letter) for letter in text)


def _has_lists(rows: Iterable[Sequence[object]]) -> bool:
    return any(isinstance(entry, list | tuple) for row in rows for entry in row)


def _file_name(title: str) -> str:
    """Return a title as a file name: letters, digits and dashes."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-") or "table"


def _write(text: str, path: Path) -> Path:
    with atomic_write(path) as temporary:
        temporary.write_bytes(f"{text}\n".encode("utf-8", "replace"))
    return path
