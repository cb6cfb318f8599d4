"""What the results of a run say: numbers one can compare, words, and one HTML page.

A row is a flat dict, see `Store.rows`. `curves`, `lead` and `standings` compare;
`build_sections` arranges what is said, ``report.html`` says it, ``report.js`` draws.
"""

import base64
import csv
import gzip
import io
import json
import math
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from importlib import resources
from itertools import cycle, pairwise, product, zip_longest
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from semfs.io.safety import atomic_write
from semfs.system import import_optional

HERE = resources.files("semfs.lab")
METRICS = {"acc": "ACC", "nmi": "NMI"}
FEATURES = "number of selected features"
MOST_FEATURES = 100  # named per method when splits differ; the download has all of them
MOST_CURVES = 8  # drawn at once; a click shows the others
CSV_COLUMNS = ["experiment", "dataset", "split", "method", "label", "k", "acc", "acc_sd", "nmi"]
CSV_COLUMNS += ["nmi_sd", "seconds", "seed", "params", "features", "extra", "semfs_version"]

#: The paper as data: its experiments and data sets, titles of data sets, colors of curves.
PAPER = tomllib.loads(HERE.joinpath("paper.toml").read_text("utf-8"))

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Point:
    """One point of a curve: the mean over ``n`` splits (and draws) and their spread."""

    x: Any
    mean: float
    sd: float | None  # over splits; over K-means runs if there is one split
    n: int


@dataclass(frozen=True)
class Interval:
    """A mean of ``n`` paired differences with its confidence limits (None if n < 2)."""

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def verdict(self) -> str:
        """Whether a lead is one: "ahead", "behind", "undecided" or "not tested"."""
        if self.low is None or self.high is None:
            return "not tested"
        return "ahead" if self.low > 0 else "behind" if self.high < 0 else "undecided"


@dataclass(frozen=True)
class Standing:
    """One method on one data set: its mean, and its paired lead over the best other."""

    label: str
    mean: float
    sd: float | None
    lead: Interval


@dataclass(frozen=True)
class Standings:
    """All methods on one data set, best first."""

    ranked: list[Standing]
    oracles: list[Standing]  # ranked apart
    tied: list[str]  # cannot be told from the first
    incomplete: dict[str, float]  # not ranked as results are missing: the share they have
    verdict: str  # "clear", "unclear" (some are tied), "one split" or "too few"


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the mean of paired differences and its Student t interval of 95 %."""
    n, mean = len(differences), fmean(differences)
    if n == 1:
        return Interval(mean, None, None, 1)
    half = float(stdtrit(n - 1, 0.975)) * stdev(differences) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def curves(rows: Iterable[Row], metric: str, x: str = "k") -> dict[str, list[Point]]:
    """Return the curve of every method on one data set: ``metric`` against ``x``.

    ``metric`` is acc, nmi or seconds, averaged over splits; ``x`` a column or an entry of
    ``extra`` or ``params``. Unless it is "k", values are first averaged over k.
    """
    rows = list(rows)
    of_runs = _cells(rows, f"{metric}_sd", x)
    result = {}
    for label, cells in _cells(rows, metric, x).items():
        by_x: dict[Any, list[float]] = defaultdict(list)
        for (_, at), value in cells.items():
            by_x[at].append(value)
        spread = {at: value for (_, at), value in of_runs.get(label, {}).items()}
        result[label] = [
            Point(at, fmean(v), stdev(v) if len(v) > 1 else spread.get(at), len(v))
            for at, v in sorted(by_x.items())
        ]
    return result


def lead(rows: Iterable[Row], metric: str, label: str, other: str) -> Interval:
    """Return by how much ``label`` is ahead of ``other``: means over k, paired over splits."""
    cells = _cells(rows, metric, "k")
    ours, theirs = cells.get(label, {}), cells.get(other, {})
    gains = {place: ours[place] - theirs[place] for place in ours.keys() & theirs.keys()}
    if not gains:
        raise ValueError(f"{label!r} and {other!r} share no finished split and k.")
    return paired_interval(list(_by_split(gains).values()))


def standings(rows: Iterable[Row], metric: str) -> Standings:
    """Rank the methods of one data set by their mean over k and splits.

    The lead of a method over the best other one is paired over splits. Methods that lack a
    (split, k) which others have are not ranked; oracles are ranked apart.
    """
    cells = _cells(rows, metric, "k")
    wanted = set().union(*cells.values()) if cells else set()
    shares = {label: len(have) / len(wanted) for label, have in cells.items()}
    incomplete = {label: share for label, share in shares.items() if share < 1}
    means = {label: _by_split(have) for label, have in cells.items() if label not in incomplete}
    order = sorted(means, key=lambda label: (-fmean(means[label].values()), label))
    fair = [label for label in order if not is_oracle(label)]
    several = len({split for split, _ in wanted}) > 1

    def over(label: str, other: str) -> Interval:
        return paired_interval([means[label][s] - means[other][s] for s in means[label]])

    def standing(label: str) -> Standing:
        values = list(means[label].values())
        rival = next((other for other in fair if other != label), label)
        sd = stdev(values) if several else None
        return Standing(label, fmean(values), sd, over(label, rival))

    tied = [other for other in fair[1:] if several and over(fair[0], other).verdict != "ahead"]
    found = ("unclear" if tied else "clear") if several else "one split"
    oracles = [standing(label) for label in order if is_oracle(label)]
    verdict = found if len(fair) > 1 else "too few"
    return Standings([*map(standing, fair)], oracles, tied, incomplete, verdict)


def _cells(rows: Iterable[Row], metric: str, x: str) -> dict[str, dict[tuple[str, Any], float]]:
    """One number per label, split and x, averaged over k."""
    found: Any = defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    for row in rows:
        at, value = _value_of(row, x), row.get(metric)
        if at is not None and value is not None and math.isfinite(value):
            # Draws of a sweep (their seeds) are repetitions like splits; those of k are not.
            unit = str(row["split"]) if x == "k" else f"{row['split']} seed {row.get('seed')}"
            found[row["label"]][unit, at][row.get("k")].append(float(value))
    # Several parameter settings under one oracle label count with the best of them, for each k
    # and metric separately (the paper's "best results"); other repetitions are averaged.
    result = {}
    for label, cells in found.items():
        taken: Callable = max if is_oracle(label) else fmean
        result[label] = {at: fmean(map(taken, by_k.values())) for at, by_k in cells.items()}
    return result


def _value_of(row: Row, name: str) -> Any:
    sources = (row, row.get("extra") or {}, row.get("params") or {})
    return next((s[name] for s in sources if s.get(name) is not None), None)


def _by_split(cells: Mapping[tuple[str, Any], float]) -> dict[str, float]:
    """Mean over x of every split."""
    values: dict[str, list[float]] = defaultdict(list)
    for (split, _), value in cells.items():
        values[split].append(value)
    return {split: fmean(values[split]) for split in sorted(values)}


@dataclass(frozen=True)
class Table:
    """A table; cells are text, numbers, None, or lists of names or (name, remark)."""

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]


@dataclass(frozen=True)
class Panel:
    """Curves by name, (x, y, spread, remark) points, drawn by ``report.js``; or dots."""

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[tuple]]
    log: str = ""  # the axes that are logarithmic: "x", "xy"
    kind: str = "lines"  # "dots": rows of (x, color, size from 0 to 1, remark)


@dataclass(frozen=True)
class Section:
    """One part of a page, of which ``standings`` are told in words if it is the summary."""

    title: str
    text: list[str] = field(default_factory=list)  # paragraphs
    table: Table | None = None  # else the points of the panels are one
    panels: Sequence[Panel] = ()
    standings: Mapping[tuple[str, str], Standings] = field(default_factory=dict)
    leads: Mapping[tuple[str, str, str], Interval] = field(default_factory=dict)


def colors(labels: Iterable[str]) -> dict[str, str]:
    """Give every method a color and an order: SemFS and its variants first, oracles last.

    >>> colors(["MCFS", "MCFS (oracle)", "SemFS"])
    {'SemFS': '#e0245e', 'MCFS': '#1f77d0', 'MCFS (oracle)': '#128a5e'}
    """
    return dict(zip(sorted(dict.fromkeys(labels), key=_place), cycle(PAPER["colors"])))


def is_oracle(label: str) -> bool:
    """Tell whether a method is shown for reference only: nobody could choose like that."""
    return label.lower().endswith(("(oracle)", "(reference)"))


def _place(label: str) -> tuple[bool, bool]:
    return is_oracle(label), not label.lower().startswith("semfs")


def build_sections(rows: Sequence[Row], findings: bool = False) -> list[Section]:
    """Return the sections of all experiments that have rows, with the paper's findings."""
    by_experiment = _grouped(rows, "experiment")
    parts: list[Section] = []
    for experiment, build in BUILDERS.items():
        found = build(by_experiment[experiment]) if experiment in by_experiment else []
        if found and findings:
            finding = PAPER["experiments"][experiment]["finding"]
            found[0].text.append(f"What the paper says: {finding}")
        parts += found
    return parts or [Section("Summary", ["No cell of this run has finished yet."])]


def _clustering(rows: Sequence[Row]) -> list[Section]:
    found: dict[tuple[str, str], Standings] = {}
    pictures = []
    for name, part in _grouped(rows, "dataset").items():
        found |= {(name, title): standings(part, metric) for metric, title in METRICS.items()}
        n = len({str(row["split"]) for row in part})
        spread = "over the splits" if n > 1 else "over the runs of K-means (one split)"
        text = f"Means over {_counted(n, 'split')}; bars: one standard deviation {spread}."
        panels = score_panels({name: part}, "k", FEATURES)
        pictures.append(Section(f"Clustering: {data_title(name)}", [text], None, panels))
    words, table = Section("Summary", standings=found), Section("Standings", standings=found)
    return [words, *pictures, table, _selected_features(rows)]


def _selected_features(rows: Sequence[Row]) -> Section:
    chosen: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
    for row in _largest_k(rows):
        if row.get("features") and not is_oracle(row["label"]):
            chosen[row["dataset"], row["label"]].append([str(n) for n in row["features"]])
    body: list[list[Any]] = []
    for place, lists in chosen.items():
        counts = Counter(name for names in zip_longest(*lists) for name in names if name)
        several = [(name, f"{n}/{len(lists)}") for name, n in counts.most_common(MOST_FEATURES)]
        body.append([data_title(place[0]), place[1], several if len(lists) > 1 else lists[0]])
    text = "With several splits: those chosen most often first, with the number of splits."
    caption = "The features of every method at its largest number of features, best first"
    columns = ["data set", "method", "names"]
    return Section("Selected features", [text], Table(caption, columns, body))


def _sweep(rows: Sequence[Row]) -> list[Section]:
    said = PAPER["sweeps"][rows[0]["experiment"]]
    panels = score_panels(_grouped(rows, "dataset"), said["x"], said["axis"])
    return [Section(said["title"], [said["text"]], None, panels)]


def _attributes_vs_labels(rows: Sequence[Row]) -> list[Section]:
    datasets, leads = _grouped(rows, "dataset"), {}
    for name, part in datasets.items():
        labels = {row["label"] for row in part}
        methods = sorted(label.removesuffix(" (attributes)") for label in labels)
        for (metric, title), method in product(METRICS.items(), methods):
            pair = f"{method} (attributes)", f"{method} (labels)"
            if labels.issuperset(pair):
                leads[name, title, method] = lead(part, metric, *pair)
    text = "The same method fitted to class attributes and to labels; the lead of attributes."
    panels = score_panels(datasets, "k", FEATURES)
    return [Section("Attributes or labels as targets", [text], None, panels, leads=leads)]


def _convergence(rows: Sequence[Row]) -> list[Section]:
    runs = [row for row in _largest_k(rows) if (row.get("extra") or {}).get("objective")]
    panels = []
    for name, part in _grouped(runs, "dataset").items():
        series = {
            row["label"]: [(i, J, None, "") for i, J in enumerate(row["extra"]["objective"], 1)]
            for row in reversed(part)
        }
        panels.append(Panel(f"{data_title(name)}: J", "iteration", "objective J", series))
    paths = [row["extra"]["objective"] for row in runs]
    falls = [all(b <= a + 1e-9 * abs(a) for a, b in pairwise(path)) for path in paths]
    text = f"The objective never rises in {sum(falls)} of {_counted(len(runs), 'run')}."
    return [Section("Convergence", [f"{text} The first split is shown."], None, panels)]


def _scaling(rows: Sequence[Row]) -> list[Section]:
    names = {"n": "samples", "d": "features"}
    panels = []
    for x, other in (("n", "d"), ("d", "n")):
        fixed = Counter(_value_of(row, other) for row in rows).most_common(1)[0][0]
        part = [row for row in rows if _value_of(row, other) == fixed]
        title = f"Seconds against {names[x]} ({fixed} {names[other]})"
        panels.append(_panel(title, curves(part, "seconds", x), names[x], "seconds", "xy"))
    return [Section("Scaling", ["Time to rank the features."], None, panels)]


BUILDERS: dict[str, Callable[[Sequence[Row]], list[Section]]] = {
    "clustering": _clustering,
    "labeled-ratio": _sweep,
    "attributes-vs-labels": _attributes_vs_labels,
    "alpha": _sweep,
    "convergence": _convergence,
    "scaling": _scaling,
}


def score_panels(datasets: Mapping[str, Sequence[Row]], x: str, x_title: str) -> list[Panel]:
    """Return one panel per data set and measure."""
    panels = []
    for name, rows in datasets.items():
        for metric, title in METRICS.items():
            found = curves(rows, metric, x)
            at = [point.x for line in found.values() for point in line] or [1]
            log = "x" if min(at) > 0 and max(at) / min(at) >= 100 else ""
            panels.append(_panel(f"{data_title(name)}: {title}", found, x_title, title, log))
    return panels


def _panel(title: str, found: dict[str, list[Point]], x: str, y: str, log: str) -> Panel:
    series = {
        label: [(p.x, p.mean, p.sd, _counted(p.n, "repetition")) for p in line]
        for label, line in found.items()
    }
    return Panel(title, x, y, series, log)


def data_title(name: str) -> str:
    """A data set in words: what is known by that name, else the name without its dashes."""
    titles = PAPER["titles"].items()
    known = (words for start, words in titles if name.lower().startswith(start))
    return next(known, None) or re.sub(r"[_-]+", " ", name).strip() or name


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row[column])].append(row)
    return dict(groups)


def _largest_k(rows: Sequence[Row]) -> list[Row]:
    """The row with the largest k of every cell: it names all the features chosen."""
    names = ("dataset", "split", "label", "params", "seed")
    rows = sorted(rows, key=lambda row: row["k"] or 0)
    return list({_flat([row.get(name) for name in names]): row for row in rows}.values())


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"


def write_report(
    rows: Sequence[Row],
    path: Any,
    *,
    failures: Sequence[Row] = (),
    info: Mapping[str, Any] | None = None,
    sections: Iterable[Section] = (),
) -> Path:
    """Write one self-contained page to ``path``, whole or not at all, and return the path.

    Parameters
    ----------
    rows, failures : sequence of dict
        From `evaluate` or `Store.rows`, one per finished cell and k; from `Store.failures`.
    info : mapping, optional
        From `Store.info`: command, versions, datasets, protocol, notes, …; all may be missing.
    sections : iterable of Section
        More sections.

    Examples
    --------
    >>> import tempfile
    >>> row = {"experiment": "clustering", "dataset": "cells", "split": "0", "method": "m",
    ...        "label": "Mine", "k": 5, "acc": 0.5, "nmi": 0.4}
    >>> write_report([row], Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    return _write(render(rows, failures, info or {}, sections), path)


def write_csv(rows: Iterable[Row], path: Any) -> Path:
    """Write rows as CSV, in the order given, whole or not at all, and return the path."""
    return _write(_csv(rows), path)


def _write(text: str, path: Any) -> Path:
    with atomic_write(path) as beside:
        beside.write_bytes(text.encode("utf-8", "replace"))
    return Path(path)


def render(rows: Sequence[Row], failures: Any, info: Row, sections: Iterable = ()) -> str:
    """Return the HTML of `write_report`'s page, which opens with the network blocked.

    All text is untrusted: the template and the script escape it, and a content security
    policy lets only our own two scripts run.
    """
    parts = [*build_sections(rows, "protocol" in info), *sections]
    # The verdict, then what has a picture, then the tables.
    parts[1:] = sorted(parts[1:], key=lambda part: not part.panels)
    panels = [panel for part in parts for panel in part.panels]
    found = colors(name for p in panels if p.kind == "lines" for name in p.series)
    script = HERE.joinpath("report.js").read_text("utf-8")
    plotly = (
        import_optional("plotly.offline", "plots", what="The report").get_plotlyjs()
        if panels
        else ""
    )
    jinja2 = import_optional("jinja2", "plots", what="The report")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    # NaN is no JSON; `tojson` writes <, >, &, ' and U+2028 as escapes.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False}
    environment.filters |= {"cell": _cell, "flat": _flat, "in_words": data_title}
    environment.filters["trusted"] = import_optional("markupsafe", "plots").Markup
    environment.tests |= {"list": lambda cell: isinstance(cell, list), "oracle": is_oracle}
    return environment.from_string(HERE.joinpath("report.html").read_text("utf-8")).render(
        sections=parts,
        failures=failures,
        info=info,
        seeds=sorted({str(row["seed"]) for row in rows if row.get("seed") is not None}),
        n_rows=len(rows),
        colors=found,
        hidden=_hidden(panels),
        plots={"panels": [*map(asdict, panels)], "colors": found},
        csv=_packed(_csv(rows)),
        plotly=_packed(plotly),
        script=script,
        script_hashes=[_base64(sha256(s.encode()).digest()) for s in (script, plotly)],
    )


def _hidden(panels: Sequence[Panel]) -> set[str]:
    """Curves not drawn at first: all but ours and the best others where there are many."""
    crowded = [p for p in panels if p.kind == "lines" and len(p.series) > MOST_CURVES]
    lines = [line for panel in crowded for line in panel.series.items()]
    means = {name: fmean(point[1] for point in points) for name, points in reversed(lines)}
    return set(sorted(means, key=lambda name: (*_place(name), -means[name]))[MOST_CURVES:])


def _packed(text: str) -> str:
    """Compressed and base64-coded (plotly.js: 4.8 MB → 2.0 MB), always in the same way."""
    return _base64(gzip.compress(text.encode("utf-8", "replace"), mtime=0))


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "–"
    if not isinstance(value, float):
        return str(value)
    small_or_large = value != 0 and not 5e-4 <= abs(value) < 1e5
    return (f"{value:.3g}" if small_or_large else f"{value:.3f}").replace("-", "−")


def _csv(rows: Iterable[Row]) -> str:
    """Rows as CSV, numbers in full; spreadsheets will take no name for a formula."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(CSV_COLUMNS)
    for row in rows:
        cells = [_flat(row.get(column)) for column in CSV_COLUMNS]
        formula = [isinstance(c, str) and c.startswith(tuple("=+-@\t\r")) for c in cells]
        writer.writerow([f"'{c}" if risky else c for c, risky in zip(cells, formula)])
    return text.getvalue()


def _flat(value: Any) -> Any:
    """A value as a cell of a table: lists and mappings as JSON."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return value
