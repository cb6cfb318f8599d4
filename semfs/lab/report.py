"""What the results of a run say, as one HTML page: pictures first, then tables.

`build_sections` turns rows into plain values and says in words who wins, by how much, and
where that cannot be told; `write_report` makes the page, `write_csv` a table of the rows.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from semfs.files import appearing
from semfs.lab.comparison import (
    Interval,
    Point,
    Row,
    by_target,
    curves,
    headline,
    hindsight,
    is_oracle,
    is_ours,
    lead_in_words,
    standings,
    value_of,
    verdict_in_words,
    widest_sweep,
)
from semfs.lab.page import bars, csv_text, figure, heat_map, lines, render_page, section, table

__all__ = ["build_sections", "explanation_section", "render", "write_csv", "write_report"]

METRICS = {"acc": "ACC", "nmi": "NMI"}
FEATURES = "number of selected features"
MOST_FEATURES = 100  # named per method when splits differ; the download has all of them
MOST_DRAWN = 50  # features in the figures of an explanation; the table has all of them
MOST_ATTRIBUTES = 40  # in its heat map: those that some feature carries most
KNOWN = {
    "apy": "Objects (aPascal and aYahoo)",
    "animals": "Animals",
    "cifar10": "Small images (CIFAR-10)",
    "clinc150": "Intents (CLINC150)",
    "sample": "Blood cells (the bundled sample)",
    "sun": "Scenes (SUN)",
    "synthetic": "Made-up data",
}
MEASURES = (
    "ACC is the share of samples in the right cluster under the best match of clusters and "
    "classes; NMI is I / max(H, H). Both come from K-means on the samples of the unseen "
    "classes with the selected features only, averaged over the runs of K-means."
)
CAUTION = (
    "Intervals are 95 % Student t intervals of differences paired over the class splits. "
    "Splits of one data set share classes, so the intervals are rather too narrow than too "
    "wide; they are not corrected for the number of comparisons."
)
ORACLE = (
    "Parameters of methods marked (oracle) were chosen with the labels of the unseen classes, "
    "for every number of features and measure separately, from the points of their grid that "
    "have finished: a bound that nobody can reach in practice. They are not ranked."
)
QUICK = (
    "Quick run (--fast): fewer numbers of features, K-means runs, splits and grid points than "
    "the paper's protocol. A trial, not a result."
)
RIVAL = (
    "The hardest rival: for every data set and number of features, the baseline that turned "
    "out best. Nobody could have chosen it beforehand, and picking the best of several noisy "
    "means flatters it: a lead here is strong, a small deficit no defeat."
)
CHOSEN = (
    "The features of every method at its largest number of features, best first. With several "
    "splits: those chosen most often first, with the number of splits."
)
CSV_COLUMNS = ["experiment", "dataset", "split", "method", "label", "k", "acc", "acc_sd", "nmi"]
CSV_COLUMNS += ["nmi_sd", "seconds", "seed", "params", "features", "extra", "semfs_version"]

Section = dict[str, Any]


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
    rows : sequence of dict
        One per finished cell and k, from `evaluate` or `Store.rows`.
    path : path
    failures : sequence of dict
        From `Store.failures`.
    info : mapping, optional
        From `Store.info`: command, versions, datasets, protocol, notes, …; also findings
        (experiment → what the paper says). All may be missing.
    sections : iterable of dict
        More sections, such as those of `explanation_section`.

    Examples
    --------
    >>> import tempfile
    >>> row = {"experiment": "clustering", "dataset": "cells", "split": "0", "method": "m",
    ...        "label": "Mine", "k": 5, "acc": 0.5, "nmi": 0.4}
    >>> write_report([row], Path(tempfile.mkdtemp()) / "report.html").name
    'report.html'
    """
    text = render(build_sections(rows, failures, info or {}, sections))
    with appearing(path) as beside:
        beside.write_bytes(text.encode("utf-8", "replace"))
    return Path(path)


def write_csv(rows: Iterable[Row], path: Any) -> Path:
    """Write rows as CSV, in the order given, whole or not at all, and return the path."""
    lists = [[_flat(row.get(column)) for column in CSV_COLUMNS] for row in rows]
    with appearing(path) as beside:
        beside.write_bytes(csv_text(CSV_COLUMNS, lists).encode("utf-8", "replace"))
    return Path(path)


def build_sections(
    rows: Sequence[Row],
    failures: Sequence[Row] = (),
    info: Mapping[str, Any] | None = None,
    sections: Iterable[Section] = (),
) -> dict[str, Any]:
    """Return what a report says, as plain values: title, notes, sections and downloads."""
    info = info or {}
    by_experiment = _grouped(rows, "experiment")
    claims = info.get("findings", {})
    parts: list[Section] = []
    for experiment, build in BUILDERS.items():
        found = build(by_experiment[experiment]) if experiment in by_experiment else []
        if found and experiment in claims:
            found[0]["text"].append(f"What the paper says: {claims[experiment]}")
        parts += found
    if not rows:
        parts.append(section("Summary", ["No cell of this run has finished yet."]))
    parts += [*sections, *_failures(failures), *_warnings(rows), *_provenance(info, rows)]
    quick = (info.get("protocol") or {}).get("fast")
    return {
        "title": "Feature selection for unseen classes: results",
        "notes": [*([QUICK] if quick else []), *info.get("notes", [])],
        # The verdict, then what has a picture, then the tables.
        "sections": parts[:1] + sorted(parts[1:], key=lambda part: part["figure"] is None),
        "downloads": [_all_rows(rows), _all_features(rows)] if rows else [],
    }


def render(summary: dict[str, Any]) -> str:
    """Return the page of what `build_sections` returned."""
    return render_page(**summary)


# --- the experiments -------------------------------------------------------------------


def _clustering(rows: Sequence[Row]) -> list[Section]:
    """Who wins, the curves of every data set, standings, the hardest rival, the features."""
    datasets = _grouped(rows, "dataset")
    tables = {(n, m): standings(part, m) for n, part in datasets.items() for m in METRICS}
    points = [
        (f"{_title(name)}, {METRICS[metric]}:", verdict_in_words(result))
        for (name, metric), result in tables.items()
    ]
    body = [
        [name, METRICS[metric], s.label, s.mean, s.sd, s.lead.mean, s.lead.low, s.lead.high]
        for (name, metric), result in tables.items()
        for s in [*result.ranked, *result.oracles]
    ]
    columns = ["data set", "measure", "method", "mean", "sd over splits"]
    columns += ["lead over best other", "from", "to"]
    caption = "Means over numbers of features and splits, best first; lead with interval"
    notes = [ORACLE] if any(result.oracles for result in tables.values()) else []
    return [
        section("Summary", [headline(tables), points]),
        *(_dataset_curves(name, part) for name, part in datasets.items()),
        section(
            "Standings",
            [MEASURES, CAUTION, *notes],
            table(caption, columns, body, "standings"),
        ),
        *_against_hindsight(datasets),
        _selected_features(rows),
    ]


def _dataset_curves(name: str, rows: Sequence[Row]) -> Section:
    n_splits = len({str(row["split"]) for row in rows})
    spread = "over the splits" if n_splits > 1 else "over the runs of K-means (one split)"
    text = (
        f"Means over {_counted(n_splits, 'split')}; bars are ± one standard deviation {spread}."
    )
    shown = _curves_of({name: list(rows)}, "k", FEATURES, f"clustering-{name}")
    return section(f"Clustering: {_title(name)}", [text], *shown)


def _against_hindsight(datasets: Mapping[str, Sequence[Row]]) -> list[Section]:
    found = [
        [name, METRICS[metric], label, kind, *_limits(lead), lead_in_words(lead)]
        for name, part in datasets.items()
        for metric in METRICS
        for label, kind, lead in _hindsight_leads(part, metric)
    ]
    if not found:
        return []
    columns = ["data set", "measure", "method", "baselines", "lead", "from", "to", "verdict"]
    caption = "Lead over the best baseline in hindsight, with 95 % interval"
    shown = table(caption, columns, found, "hindsight")
    return [section("Against the best baseline in hindsight", [RIVAL], shown)]


def _hindsight_leads(rows: Sequence[Row], metric: str) -> list[tuple[str, str, Interval]]:
    labels = list(dict.fromkeys(row["label"] for row in rows))
    rivals = [label for label in labels if not is_ours(label)]
    fixed = [label for label in rivals if not is_oracle(label)]
    kinds = {"at defaults": fixed}
    if len(fixed) < len(rivals):
        kinds["with oracles"] = rivals
    leads = []
    for label in labels:
        if is_ours(label) and not is_oracle(label):
            for kind, others in kinds.items():
                try:
                    leads.append((label, kind, hindsight(rows, metric, label, others)))
                except ValueError:  # nothing in common yet
                    continue
    return leads


def _selected_features(rows: Sequence[Row]) -> Section:
    chosen: dict[tuple[str, str], dict[str, list[str]]] = defaultdict(dict)
    for row in _largest_k(rows):
        if row.get("features") and not is_oracle(row["label"]):
            names = [str(name) for name in row["features"]]
            chosen[row["dataset"], row["label"]][str(row["split"])] = names
    body = [[*place, _most_chosen(by_split)] for place, by_split in chosen.items()]
    columns = ["data set", "method", "names"]
    caption = "Selected features"
    return section(caption, [CHOSEN], table(caption, columns, body, "selected-features"))


def _most_chosen(by_split: dict[str, list[str]]) -> list[Any]:
    if len(by_split) == 1:
        return next(iter(by_split.values()))
    places: dict[str, list[int]] = defaultdict(list)
    for names in by_split.values():
        for place, name in enumerate(names):
            places[name].append(place)
    order = sorted(places, key=lambda name: (-len(places[name]), fmean(places[name])))
    return [(name, f"{len(places[name])}/{len(by_split)}") for name in order[:MOST_FEATURES]]


def _sweep(x: str, x_title: str, title: str, text: str) -> Callable[..., list[Section]]:
    """A builder of scores against what an experiment varies, averaged over k."""
    return lambda rows: [
        section(title, [text], *_curves_of(_grouped(rows, "dataset"), x, x_title, x))
    ]


def _attributes_vs_labels(rows: Sequence[Row]) -> list[Section]:
    panels, body = [], []
    for name, part in _grouped(rows, "dataset").items():
        for metric, title in METRICS.items():
            series = {
                target: [
                    _values(point)
                    for line in curves(of, metric, "label").values()
                    for point in line
                ]
                for target, of in by_target(part).items()
            }
            panels.append(bars(f"{_title(name)}: {title}", series, title))
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
            leads.append([label, *_limits(lead), lead_in_words(lead)])
    return leads


def _convergence(rows: Sequence[Row]) -> list[Section]:
    """The objective per iteration, and where the published problem degenerates."""
    runs = [row for row in _largest_k(rows) if (row.get("extra") or {}).get("objective")]
    if not runs:
        return []
    panels = [p for n, part in _grouped(runs, "dataset").items() for p in _falls(n, part)]
    body = [_convergence_line(row) for row in runs]
    falling = f"{sum(line[-2] == 'yes' for line in body)} of {_counted(len(body), 'run')}"
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
    steps = {m: _steps(range(1, 1000), e["objective"]) for m, e in extras.items()}
    log_y = all(point[1] > 0 for line in steps.values() for point in line)
    title = _title(name)
    panels = [lines(f"{title}: J", steps, "iteration", "objective J", log_y=log_y)]
    scales = {
        label: _steps(extra["scale_tau"], extra["scale_objective"])
        for label, extra in extras.items()
        if "scale_tau" in extra
    }
    if scales:
        title = f"{title}: least J if all selection weights are τ"
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


def _scaling(rows: Sequence[Row]) -> list[Section]:
    """Fitting time against the numbers of samples and features."""
    names = {"n": "samples", "d": "features"}
    panels = []
    for x, other in (("n", "d"), ("d", "n")):
        part, fixed = widest_sweep(rows, x, other)
        if part:
            title = f"Seconds against {names[x]} ({fixed} {names[other]})"
            found = curves(part, "seconds", x)
            series = {m: [*map(_values, line)] for m, line in found.items()}
            panels.append(lines(title, series, names[x], "seconds", log_x=True, log_y=True))
    if not panels:
        return []
    times = {(r["label"], value_of(r, "n"), value_of(r, "d"), r["seconds"]) for r in rows}
    body = [list(line) for line in sorted(times, key=str)]
    timings = table("All timings", ["method", *names.values(), "seconds"], body, "scaling")
    alt = "Fitting time against the number of samples and of features, on logarithmic axes."
    return [section("Scaling", ["Time to rank the features."], timings, figure(alt, panels))]


BUILDERS: dict[str, Callable[[Sequence[Row]], list[Section]]] = {
    "clustering": _clustering,
    "labeled-ratio": _sweep(
        "ratio",
        "labelled share",
        "Labelled share of seen classes",
        "How many labels does it take? Scores averaged over k; bars are ± one standard "
        "deviation over splits and draws.",
    ),
    "attributes-vs-labels": _attributes_vs_labels,
    "alpha": _sweep(
        "alpha",
        "α",
        "Effect of α",
        "α weighs the center-characteristic loss. Scores averaged over k.",
    ),
    "convergence": _convergence,
    "scaling": _scaling,
}


# --- why these features ----------------------------------------------------------------


def explanation_section(explanation: Any, title: str = "Why these features") -> Section:
    """Return a section with a table of the chosen features and figures of their reasons.

    Names of features, classes and attributes are untrusted text; the page escapes them.

    Parameters
    ----------
    explanation : Explanation
        From ``selector.explain()``.
    title : str, default="Why these features"
        Heading of the section.
    """
    words = ["carries", "separates", "duplicates"]
    numbers = ["frequency", "low", "high"]
    rows = [
        [str(name), float(row["share"]), *(str(row[column]) for column in words)]
        + [None if math.isnan(row[column]) else float(row[column]) for column in numbers]
        for name, row in explanation.features.iterrows()
    ]
    columns = [
        "feature",
        "share of the fall of J",
        *words,
        "chosen in bootstraps",
        "from",
        "to",
    ]
    text = (
        "In order of entry: the share of the total fall of J that a feature brings; the "
        "attributes its class means go with; the classes on one side of its widest gap; "
        "features that say nearly the same."
    )
    if explanation.n_bootstraps:
        text += (
            f" Stability is the share of {explanation.n_bootstraps} bootstraps of the classes "
            "in which the feature is chosen, with 95 % intervals."
        )
    caption = "The chosen features, in order of entry"
    alt = "Gains, attributes and stability; all values are in the table."
    shown = figure(alt, _reasons(explanation))
    return section(title, [text], table(caption, columns, rows, "explanation"), shown)


def _reasons(explanation: Any) -> list[dict[str, Any]]:
    """Panels: gains, attributes, stability."""
    features = explanation.features.iloc[:MOST_DRAWN]
    total = enumerate(features["share"].cumsum().items(), start=1)
    points = [(rank, float(value), None, str(name)) for rank, (name, value) in total]
    series = {"sum of gains": points}
    panels = [lines("Gain", series, "number of features", "share of the fall")]
    carried = explanation.attributes.iloc[:MOST_DRAWN]
    if carried.notna().to_numpy().all():
        strongest = carried.abs().max().sort_values(ascending=False, kind="stable")
        kept = set(strongest.index[:MOST_ATTRIBUTES])
        carried = carried[[name for name in carried.columns if name in kept]]
        names = [[str(name) for name in axis] for axis in (carried.index, carried.columns)]
        title = "Attributes: correlation over the seen classes"
        panels.append(heat_map(title, carried.to_numpy().tolist(), *names, diverging=True))
    if explanation.n_bootstraps:
        chosen = [
            (str(name), float(row["frequency"]), None, f"{row['low']:.2f} to {row['high']:.2f}")
            for name, row in features.iterrows()
        ]
        panels.append(bars("Stability", {"class bootstraps": chosen}, "share of bootstraps"))
    return panels


# --- what the page ends with -----------------------------------------------------------


def _failures(failures: Sequence[Row]) -> list[Section]:
    if not failures:
        return []
    names = ["experiment", "dataset", "split", "method", "params", "error"]
    body = [[_flat(f.get(name)) for name in names] for f in failures]
    text = f"{_counted(len(body), 'cell')} failed; the same command tries them again."
    columns = ["experiment", "data set", "split", "method", "parameters", "error"]
    return [section("Failures", [text], table("Cells that failed", columns, body, "failures"))]


def _warnings(rows: Sequence[Row]) -> list[Section]:
    counts: Counter[tuple[str, str]] = Counter()
    for row in _largest_k(rows):
        texts = (row.get("extra") or {}).get("warnings") or []
        counts.update((row["label"], str(text)) for text in set(texts))
    if not counts:
        return []
    body = [[*what, n] for what, n in counts.most_common()]
    columns = ["method", "warning", "cells"]
    return [section("Warnings", [], table("What methods warned of", columns, body, "warnings"))]


def _provenance(info: Mapping[str, Any], rows: Sequence[Row]) -> list[Section]:
    """Data sets, command and versions."""
    keys = ["n_seen", "n_unseen", "n_features", "n_attributes"]
    body = [
        [name, *(facts.get(key) for key in keys)]
        + [[*map(str, facts.get(part, []))] for part in ("seen", "unseen")]
        for name, facts in info.get("datasets", {}).items()
    ]
    columns = ["data set", "samples, seen", "samples, unseen", "features", "attributes"]
    columns += ["seen classes", "unseen classes"]
    parts = [section("Data", [], table("Data sets", columns, body, "datasets"))] if body else []
    versions = [[str(name), str(version)] for name, version in info.get("versions", {}).items()]
    seeds = sorted({str(row["seed"]) for row in rows if row.get("seed") is not None})
    text = [f"Command: {info.get('command', 'not recorded')}"]
    text += [f"Started: {info['started']}"] if "started" in info else []
    text += [f"Seeds: {', '.join(seeds)}"] if seeds else []
    packages = table("Versions", ["package", "version"], versions, "versions")
    return [*parts, section("How this was made", text, packages if versions else None)]


def _all_rows(rows: Sequence[Row]) -> dict[str, Any]:
    columns = [
        name for name in CSV_COLUMNS if name not in ("features", "extra", "semfs_version")
    ]
    body = [[_flat(row.get(column)) for column in columns] for row in rows]
    return table("All scores", columns, body, "scores")


def _all_features(rows: Sequence[Row]) -> dict[str, Any]:
    columns = ["experiment", "dataset", "split", "label", "k", "params"]
    body = [
        [*(_flat(row.get(column)) for column in columns), position, feature]
        for row in _largest_k(rows)
        for position, feature in enumerate(row.get("features") or [], start=1)
    ]
    return table("All selected features", [*columns, "position", "feature"], body, "features")


# --- shared ----------------------------------------------------------------------------


def _curves_of(
    datasets: Mapping[str, Sequence[Row]], x: str, x_title: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A table of values and a figure with one panel per data set and measure."""
    panels, body = [], []
    for dataset, rows in datasets.items():
        for metric, title in METRICS.items():
            found = curves(rows, metric, x)
            if found:
                at = [point.x for line in found.values() for point in line]
                log_x = min(at) > 0 and max(at) / min(at) >= 100
                series = {label: [_values(p) for p in line] for label, line in found.items()}
                heading = f"{_title(dataset)}: {title}" if len(datasets) > 1 else title
                alt = _best_in_words(found)
                panels.append(lines(heading, series, x_title, title, log_x=log_x, alt=alt))
                body += [
                    [dataset, title, label, p.x, p.mean, p.sd, p.n]
                    for label, line in found.items()
                    for p in line
                ]
    columns = ["data set", "measure", "method", x_title, "mean", "sd", "repetitions"]
    alt = f"Scores against {x_title}; all values are in the table below."
    return table("Values of the curves", columns, body, name), figure(alt, panels)


def _best_in_words(found: dict[str, list[Point]]) -> str:
    means = {label: fmean(p.mean for p in line) for label, line in found.items()}
    high, low = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    text = f"On average highest: {high}, {means[high]:.3f}"
    return text + (f"; lowest: {low}, {means[low]:.3f}." if len(means) > 1 else ".")


def _title(name: str) -> str:
    """A data set in words: what is known by that name, else the name without its dashes."""
    stem = name.lower()
    known = next((words for start, words in KNOWN.items() if stem.startswith(start)), None)
    return known or re.sub(r"[_-]+", " ", name).strip() or name


def _values(point: Point) -> tuple[Any, float, float | None, str]:
    return point.x, point.mean, point.sd, _counted(point.n, "repetition")


def _limits(lead: Interval) -> tuple[float, float | None, float | None]:
    return lead.mean, lead.low, lead.high


def _grouped(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    """Rows by the value of a column, in the order of appearance."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row[column])].append(row)
    return dict(groups)


def _largest_k(rows: Sequence[Row]) -> list[Row]:
    """The row with the largest k of every cell: it names all the features chosen."""
    cells: dict[tuple, Row] = {}
    for row in rows:
        place = (row["experiment"], row["dataset"], str(row["split"]), row["label"])
        cell = (*place, _flat(row.get("params")), row.get("seed"))
        if cell not in cells or (cells[cell]["k"] or 0) < (row["k"] or 0):
            cells[cell] = row
    return list(cells.values())


def _flat(value: Any) -> Any:
    """A value as a cell of a table: lists and mappings as JSON."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, sort_keys=True, default=str, ensure_ascii=False)
    return value


def _counted(n: int, noun: str) -> str:
    """A number with its noun: "1 split", "2 splits"."""
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
