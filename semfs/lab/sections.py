"""The sections of a report that belong to single experiments: figures and their tables.

Each function takes the rows of one experiment and returns sections, as made by
`semfs.lab.page.section`; without rows there are none.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Any

from semfs.lab.comparison import (
    Point,
    Row,
    by_target,
    curves,
    hindsight,
    is_oracle,
    lead_in_words,
    value_of,
    widest_sweep,
)
from semfs.lab.page import bars, figure, lines, section, table

__all__ = [
    "METRICS",
    "alpha",
    "attributes_vs_labels",
    "convergence",
    "counted",
    "dataset_curves",
    "grouped",
    "labeled_ratio",
    "largest_k",
    "params_text",
    "scaling",
    "selected_features",
]

METRICS = {"acc": "ACC", "nmi": "NMI"}
FEATURES = "number of selected features"
MOST_FEATURES = 100  # named per method when splits differ; the download has all of them


def dataset_curves(name: str, rows: Sequence[Row]) -> dict[str, Any]:
    """ACC and NMI against the number of features on one data set."""
    n_splits = len({str(row["split"]) for row in rows})
    spread = "over the splits" if n_splits > 1 else "over the runs of K-means (one split)"
    return section(
        f"Clustering: {name}",
        [f"Means over {counted(n_splits, 'split')}; ± is the standard deviation {spread}."],
        *_curves_of({name: list(rows)}, "k", FEATURES, f"clustering-{name}"),
    )


def selected_features(rows: Sequence[Row]) -> dict[str, Any]:
    """The features of every method by name."""
    chosen: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for row in largest_k(rows):
        if row.get("features") and not is_oracle(row["label"]):
            names = [str(name) for name in row["features"]]
            chosen[row["dataset"], row["label"]][str(row["split"])] = names
    body = [[*place, _most_chosen(by_split)] for place, by_split in chosen.items()]
    text = (
        "The features of every method at its largest number of features, best first. With "
        "several splits: those chosen most often first, with the number of splits."
    )
    caption = "Selected features"
    columns = ["data set", "method", "names"]
    return section(caption, [text], table(caption, columns, body, "selected-features"))


def _most_chosen(by_split: dict[str, list[str]]) -> list[Any]:
    if len(by_split) == 1:
        return next(iter(by_split.values()))
    places: dict[str, list[int]] = defaultdict(list)
    for names in by_split.values():
        for place, name in enumerate(names):
            places[name].append(place)
    order = sorted(places, key=lambda name: (-len(places[name]), fmean(places[name])))
    return [(name, f"{len(places[name])}/{len(by_split)}") for name in order[:MOST_FEATURES]]


def labeled_ratio(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Scores against the labelled share of the seen classes."""
    text = "How many labels does it take? Scores averaged over k; ± is over splits and draws."
    return _sweep(rows, "ratio", "labelled share", "Labelled share of seen classes", text)


def alpha(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Scores against α."""
    text = "α weighs the center-characteristic loss. Scores averaged over k."
    return _sweep(rows, "alpha", "α", "Effect of α", text)


def _sweep(
    rows: Sequence[Row], x: str, x_title: str, title: str, text: str
) -> list[dict[str, Any]]:
    if not rows:
        return []
    return [section(title, [text], *_curves_of(grouped(rows, "dataset"), x, x_title, x))]


def attributes_vs_labels(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Bars and paired differences: attributes against labels as targets."""
    if not rows:
        return []
    panels, body = [], []
    for name, part in grouped(rows, "dataset").items():
        for metric, title in METRICS.items():
            series = {
                target: [
                    _values(point)
                    for line in curves(of, metric, "label").values()
                    for point in line
                ]
                for target, of in by_target(part).items()
            }
            panels.append(bars(f"{name}: {title}", series, title))
            body += [[name, title, *line] for line in _target_leads(part, metric)]
    columns = ["data set", "measure", "method", "lead of attributes", "from", "to", "verdict"]
    caption = "Lead of attributes over labels, averaged over k, with 95 % interval"
    alt = "Bars of mean scores per method, fitted to attributes and to labels."
    return [
        section(
            "Attributes or labels as targets",
            ["The same method fitted to class attributes and to labels, averaged over k."],
            table(caption, columns, body, "attributes-vs-labels"),
            figure(alt, panels),
        )
    ]


def _target_leads(rows: Sequence[Row], metric: str) -> list[list[Any]]:
    both: dict[str, list[Row]] = defaultdict(list)
    for target, part in by_target(rows).items():
        for row in part:
            both[row["label"]].append({**row, "label": target})
    leads = []
    for label, part in both.items():
        if {row["label"] for row in part} >= {"attributes", "labels"}:
            lead = hindsight(part, metric, "attributes", ["labels"])
            leads.append([label, lead.mean, lead.low, lead.high, lead_in_words(lead)])
    return leads


def convergence(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """The objective per iteration, and where the published problem degenerates."""
    runs = _runs_with_objective(rows)
    if not runs:
        return []
    panels = [
        panel for n, part in grouped(runs, "dataset").items() for panel in _falls(n, part)
    ]
    body = [_convergence_line(row) for row in runs]
    falling = f"{sum(line[-2] == 'yes' for line in body)} of {counted(len(body), 'run')}"
    text = (
        f"The objective never rises in {falling}; the first split is shown. Where J falls for "
        "ever as τ grows, the published problem has no minimum: its result depends on when the "
        "iteration stops. The table says how many of the best features plain ridge regression "
        "would have chosen as well."
    )
    columns = ["data set", "split", "method", "iterations", "first J", "last J", "never rises"]
    columns += ["shared with ridge"]
    runs_table = table("Objective of every run", columns, body, "convergence")
    alt = f"Objective per iteration. It never rises in {falling}."
    return [section("Convergence", [text], runs_table, figure(alt, panels))]


def _falls(name: str, runs: Sequence[Row]) -> list[dict[str, Any]]:
    """Panels of one data set: J per iteration, and J for growing selection weights."""
    extras = {row["label"]: row["extra"] for row in reversed(runs)}  # the first split stays
    steps = {
        m: _steps(range(1, len(e["objective"]) + 1), e["objective"]) for m, e in extras.items()
    }
    log_y = all(point[1] > 0 for line in steps.values() for point in line)
    panels = [lines(f"{name}: J", steps, "iteration", "objective J", log_y=log_y)]
    scales = {
        label: _steps(extra["scale_tau"], extra["scale_objective"])
        for label, extra in extras.items()
        if "scale_tau" in extra
    }
    if scales:
        title = f"{name}: least J if all selection weights are τ"
        panels.append(lines(title, scales, "τ", "objective J", log_x=True))
    return panels


def _steps(x: Iterable[Any], y: Iterable[Any]) -> list[tuple[Any, Any, None, str]]:
    return [(at, value, None, "") for at, value in zip(x, y)]


def _convergence_line(row: Row) -> list[Any]:
    J, extra = [float(value) for value in row["extra"]["objective"]], row["extra"]
    falls = "yes" if all(b <= a + 1e-9 * abs(a) for a, b in pairwise(J)) else "no"
    known = "ridge_overlap" in extra
    shared = f"{extra['ridge_overlap']} of {extra['ridge_overlap_of']}" if known else None
    place = [row["dataset"], str(row["split"]), row["label"]]
    return [*place, len(J), J[0], J[-1], falls, shared]


def _runs_with_objective(rows: Sequence[Row]) -> list[Row]:
    """One row per run: its rows for different k tell the same story."""
    runs: dict[tuple, Row] = {}
    for row in rows:
        if (row.get("extra") or {}).get("objective"):
            params = json.dumps(row.get("params"), sort_keys=True, default=str)
            runs.setdefault((row["dataset"], str(row["split"]), row["label"], params), row)
    return list(runs.values())


def scaling(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """Fitting time against the numbers of samples and features."""
    names = {"n": "samples", "d": "features"}
    panels = []
    for x, other in (("n", "d"), ("d", "n")):
        part, fixed = widest_sweep(rows, x, other)
        if part:
            title = f"Seconds against {names[x]} ({fixed} {names[other]})"
            series = {
                m: [*map(_values, line)] for m, line in curves(part, "seconds", x).items()
            }
            panels.append(lines(title, series, names[x], "seconds", log_x=True, log_y=True))
    if not panels:
        return []
    body = sorted(
        {(r["label"], value_of(r, "n"), value_of(r, "d"), r["seconds"]) for r in rows}, key=str
    )
    columns = ["method", "samples", "features", "seconds"]
    timings = table("All timings", columns, [list(line) for line in body], "scaling")
    alt = "Fitting time against the number of samples and of features, on logarithmic axes."
    return [section("Scaling", ["Time to rank the features."], timings, figure(alt, panels))]


# --- shared ----------------------------------------------------------------------------


def _curves_of(
    datasets: dict[str, list[Row]], x: str, x_title: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A table of values and a figure with one panel per data set and measure."""
    panels, body = [], []
    for dataset, rows in datasets.items():
        for metric, title in METRICS.items():
            found = curves(rows, metric, x)
            if found:
                series = {label: [_values(p) for p in line] for label, line in found.items()}
                log_x = _spans_decades([p.x for line in found.values() for p in line])
                panel_title = f"{dataset}: {title}" if len(datasets) > 1 else title
                alt = _best_in_words(found)
                panels.append(lines(panel_title, series, x_title, title, log_x=log_x, alt=alt))
                body += [
                    [dataset, title, label, p.x, p.mean, p.sd, p.n]
                    for label, line in found.items()
                    for p in line
                ]
    columns = ["data set", "measure", "method", x_title, "mean", "sd", "repetitions"]
    values = table("Values of the curves", columns, body, name)
    alt = f"Scores against {x_title}; all values are in the table below."
    return values, figure(alt, panels)


def _best_in_words(found: dict[str, list[Point]]) -> str:
    means = {label: fmean(p.mean for p in line) for label, line in found.items()}
    high, low = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    text = f"On average highest: {high}, {means[high]:.3f}"
    return text + (f"; lowest: {low}, {means[low]:.3f}." if len(means) > 1 else ".")


def _values(point: Point) -> tuple[Any, float, float | None, str]:
    return point.x, point.mean, point.sd, counted(point.n, "repetition")


def _spans_decades(values: Sequence[float]) -> bool:
    return min(values) > 0 and max(values) / min(values) >= 100


def grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    """Rows by the value of a column, in the order of appearance."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row[column])].append(row)
    return dict(groups)


def largest_k(rows: Sequence[Row]) -> list[Row]:
    """The row with the largest k of every cell: it names all the features chosen."""
    cells: dict[tuple, Row] = {}
    for row in rows:
        cell = (
            row["experiment"],
            row["dataset"],
            str(row["split"]),
            row["label"],
            params_text(row),
        )
        if cell not in cells or (cells[cell]["k"] or 0) < (row["k"] or 0):
            cells[cell] = row
    return list(cells.values())


def params_text(row: Row) -> str:
    """Parameters of a row on one line."""
    return json.dumps(row.get("params") or {}, sort_keys=True, default=str, ensure_ascii=False)


def counted(n: int, noun: str) -> str:
    """A number with its noun: "1 split", "2 splits"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
