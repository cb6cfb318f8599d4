"""What the results of a run say: numbers one can compare, words, and one HTML page.

A row is a flat dict with ``dataset``, ``split``, ``label`` (the method's display name), ``k``,
``acc``, ``nmi``, ``params`` and ``extra``. `curves`, `lead` and `standings` compare;
`build_sections` says who wins, by how much, and where that cannot be told; `write_report`
makes the page, pictures first, and `write_csv` a table of the rows.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

from semfs.files import appearing
from semfs.lab.page import (
    csv_text,
    figure,
    heat_map,
    is_oracle,
    lines,
    render_page,
    section,
    table,
)

__all__ = ["Interval", "Point", "Standings", "build_sections", "curves", "explanation_section"]
__all__ += ["lead", "paired_interval", "render", "standings", "write_csv", "write_report"]

METRICS = {"acc": "ACC", "nmi": "NMI"}
FEATURES = "number of selected features"
MOST_FEATURES = 100  # named per method when splits differ; the download has all of them
MOST_DRAWN = 50  # features in the figures of an explanation; the table has all of them
MOST_ATTRIBUTES = 40  # in its heat map: those that some feature carries most
KNOWN = {
    "apy": "Objects (aPascal and aYahoo)",
    "animals": "Animals",
    "blood": "Blood cells (bundled)",
    "cifar10": "Small images (CIFAR-10)",
    "clinc150": "Intents (CLINC150)",
    "lung": "Lung cells (bundled)",
    "sample": "Lung cells (bundled)",
    "sun": "Scenes (SUN)",
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
CHOSEN = (
    "The features of every method at its largest number of features, best first. With several "
    "splits: those chosen most often first, with the number of splits."
)
CSV_COLUMNS = ["experiment", "dataset", "split", "method", "label", "k", "acc", "acc_sd", "nmi"]
CSV_COLUMNS += ["nmi_sd", "seconds", "seed", "params", "features", "extra", "semfs_version"]

Row = Mapping[str, Any]
Scores = dict[str, dict[tuple[str, Any], float]]  # label -> (split, x) -> value
Section = dict[str, Any]


# --- numbers ---------------------------------------------------------------------------


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
    """All methods on one data set, best first; ``oracles`` are ranked apart.

    ``tied`` are the methods that the data cannot tell from the first. ``verdict`` is "clear"
    (nobody is tied), "unclear", "one split" (no uncertainty can be given) or "too few"
    (fewer than two methods finished). ``incomplete`` maps the methods left out because
    results are missing to the share they have.
    """

    ranked: list[Standing]
    oracles: list[Standing]
    tied: list[str]
    incomplete: dict[str, float]
    verdict: str


def paired_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of paired differences and its Student t interval.

    Examples
    --------
    >>> paired_interval([0.0, 1.0, 2.0])
    Interval(mean=1.0, low=-1.484..., high=3.484..., n=3)
    """
    n, mean = len(differences), fmean(differences)
    if n == 1:
        return Interval(mean, None, None, 1)
    half = float(stdtrit(n - 1, 0.5 + level / 2)) * stdev(differences) / math.sqrt(n)
    return Interval(mean, mean - half, mean + half, n)


def curves(rows: Iterable[Row], metric: str, x: str = "k") -> dict[str, list[Point]]:
    """Return the curve of every method: ``metric`` against ``x``, averaged over splits.

    Parameters
    ----------
    rows : iterable of dict
        Results on one data set.
    metric : {"acc", "nmi", "seconds"}
    x : str
        A column or an entry of ``extra`` or ``params``. Unless it is "k", values are first
        averaged over k, as in the paper's figures, and draws with other seeds are told apart.

    Returns
    -------
    dict of label to list of Point, sorted by x

    Examples
    --------
    >>> row = {"dataset": "apy", "label": "SemFS", "k": 5}
    >>> rows = [{**row, "split": "0", "acc": 0.25}, {**row, "split": "1", "acc": 0.75}]
    >>> curves(rows, "acc")
    {'SemFS': [Point(x=5, mean=0.5, sd=0.353..., n=2)]}
    """
    rows = list(rows)
    runs_sd = _cells([r for r in rows if r.get(f"{metric}_sd") is not None], f"{metric}_sd", x)
    result = {}
    for label, cells in _cells(rows, metric, x).items():
        by_x: dict[Any, list[float]] = defaultdict(list)
        for (_, at), value in cells.items():
            by_x[at].append(value)
        spread = {at: value for (_, at), value in runs_sd.get(label, {}).items()}
        result[label] = [
            Point(at, fmean(v), stdev(v) if len(v) > 1 else spread.get(at), len(v))
            for at, v in sorted(by_x.items())
        ]
    return result


def lead(rows: Iterable[Row], metric: str, label: str, other: str) -> Interval:
    """Return by how much ``label`` is ahead of ``other``: means over k, paired over splits.

    Examples
    --------
    >>> acc = {("us", 5): 0.5, ("us", 10): 0.75, ("them", 5): 0.25, ("them", 10): 0.75}
    >>> rows = [{"split": "0", "label": m, "k": k, "acc": v} for (m, k), v in acc.items()]
    >>> lead(rows, "acc", "us", "them").mean
    0.125
    """
    cells = _cells(rows, metric, "k")
    ours, theirs = cells.get(label, {}), cells.get(other, {})
    gains = {place: ours[place] - theirs[place] for place in ours.keys() & theirs.keys()}
    if not gains:
        raise ValueError(f"{label!r} and {other!r} share no finished split and k.")
    return paired_interval(list(_by_split(gains).values()))


def standings(rows: Iterable[Row], metric: str) -> Standings:
    """Rank the methods of one data set by their mean over k and splits.

    The lead of a method over the best other one is paired over splits. Methods that lack a
    (split, k) which others have are not ranked; methods tuned with the unseen labels are
    ranked apart, against the best method that was not.

    Examples
    --------
    >>> row = {"dataset": "apy", "k": 5}
    >>> scores = {"SemFS": [0.5, 0.6, 0.7], "MCFS": [0.4, 0.5, 0.6]}
    >>> rows = [{**row, "label": label, "split": str(i), "acc": acc}
    ...         for label, values in scores.items() for i, acc in enumerate(values)]
    >>> table = standings(rows, "acc")
    >>> table.verdict, [(s.label, round(s.lead.mean, 3)) for s in table.ranked]
    ('clear', [('SemFS', 0.1), ('MCFS', -0.1)])
    """
    cells = _cells(rows, metric, "k")
    wanted = set().union(*cells.values()) if cells else set()
    shares = {label: len(have) / len(wanted) for label, have in cells.items()}
    incomplete = {label: share for label, share in shares.items() if share < 1}
    means = {label: _by_split(have) for label, have in cells.items() if label not in incomplete}
    order = sorted(means, key=lambda label: (-fmean(means[label].values()), label))
    fair = [label for label in order if not is_oracle(label)]
    several = len({split for split, _ in wanted}) > 1
    leads = {o: _difference(means[fair[0]], means[o]) for o in fair[1:]}
    tied = [other for other, ahead in leads.items() if ahead.verdict != "ahead"]
    found = ("unclear" if tied else "clear") if several else "one split"
    ranked = []
    for label in order:
        values = list(means[label].values())
        rival = next((other for other in fair if other != label), label)
        sd, ahead = stdev(values) if several else None, _difference(means[label], means[rival])
        ranked.append(Standing(label, fmean(values), sd, ahead))
    return Standings(
        [s for s in ranked if not is_oracle(s.label)],
        [s for s in ranked if is_oracle(s.label)],
        tied if several else [],
        incomplete,
        found if len(fair) > 1 else "too few",
    )


def _difference(a: Mapping[str, float], b: Mapping[str, float]) -> Interval:
    return paired_interval([a[split] - b[split] for split in a])


def _cells(rows: Iterable[Row], metric: str, x: str) -> Scores:
    """One number per label, split and x.

    Several parameter settings under one oracle label count with the best of them, for each k
    and metric separately (the paper's "best results"); other repetitions are averaged.
    """
    found: dict[tuple, list[float]] = defaultdict(list)
    for row in rows:
        at, value = _value_of(row, x), row.get(metric)
        if at is not None and value is not None and math.isfinite(value):
            # Draws of a sweep (their seeds) are repetitions like splits; those of k are not.
            unit = str(row["split"]) if x == "k" else f"{row['split']} seed {row.get('seed')}"
            found[row["label"], unit, at, row.get("k")].append(float(value))
    over_k: dict[tuple, list[float]] = defaultdict(list)
    for (label, split, at, _), values in found.items():
        over_k[label, split, at].append(max(values) if is_oracle(label) else fmean(values))
    scores: Scores = defaultdict(dict)
    for (label, split, at), values in over_k.items():
        scores[label][split, at] = fmean(values)
    return dict(scores)


def _value_of(row: Row, name: str) -> Any:
    """What a row says about ``name``: a column, else ``extra``, else ``params``."""
    sources = (row, row.get("extra") or {}, row.get("params") or {})
    return next((s[name] for s in sources if s.get(name) is not None), None)


def _by_split(cells: Mapping[tuple[str, Any], float]) -> dict[str, float]:
    """Mean over x of every split, in the order of the splits."""
    values: dict[str, list[float]] = defaultdict(list)
    for (split, _), value in cells.items():
        values[split].append(value)
    return {split: fmean(values[split]) for split in sorted(values)}


# --- in words --------------------------------------------------------------------------


def headline(tables: Mapping[tuple[str, str], Standings]) -> str:
    """Return how many of the comparisons have a winner, in one sentence."""
    winners = Counter(t.ranked[0].label for t in tables.values() if t.verdict == "clear")
    n_clear, n_single = winners.total(), sum(t.verdict == "one split" for t in tables.values())
    won = "".join(f", {label} {n}" for label, n in winners.items())
    text = (
        f"Of {len(tables)} comparisons (a data set and a measure each) {n_clear} have a clear"
    )
    tested = f"; {n_single} have one split only, so no test" if n_single else ""
    return f"{text} winner{won}{tested}."


def verdict_in_words(result: Standings) -> str:
    """Return who wins on a data set, by how much, or why that cannot be told."""
    text = "Fewer than two methods have finished: nothing to compare."
    if result.verdict != "too few":
        first, second = result.ranked[:2]
        text = (
            f"{first.label} is highest: {first.mean:.3f}, {_above(first.lead, second.label)}."
        )
    if result.verdict == "clear":
        text = f"{first.label} wins. {text} It is ahead of every other method."
    elif result.verdict == "unclear":
        more = f" and {len(result.tied) - 4} more" if len(result.tied) > 4 else ""
        tied = ", ".join(result.tied[:4]) + more
        text = f"No clear winner. {text} Cannot be told from it: {tied}."
    elif result.verdict == "one split":
        text = f"No tested winner. {text} With one split, chance cannot be ruled out."
    if result.oracles:
        best = result.oracles[0]
        text += f" Not ranked, for reference: {best.label}, {best.mean:.3f}."
    if result.incomplete:
        shares = ", ".join(f"{m} ({share:.0%} done)" for m, share in result.incomplete.items())
        text += f" Not ranked, as results are missing: {shares}."
    return text


def _above(ahead: Interval, other: str) -> str:
    """The lead with its interval, in as many digits as it takes to see it."""
    if ahead.mean == 0 == (ahead.low or 0.0) == (ahead.high or 0.0):
        return f"exactly as {other}"
    text = f"{ahead.mean:.2g} above {other}"
    if ahead.low is None:
        return text
    limits = f"{ahead.low:+.2g} to {ahead.high:+.2g}".replace("-", "−")
    return f"{text} (95 % interval {limits}, {ahead.n} splits)"


# --- the page --------------------------------------------------------------------------


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
    body = [[_flat(row.get(column)) for column in CSV_COLUMNS] for row in rows]
    with appearing(path) as beside:
        beside.write_bytes(csv_text(CSV_COLUMNS, body).encode("utf-8", "replace"))
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
    parts += [*sections, *_failures(failures), *_provenance(info, rows)]
    quick = (info.get("protocol") or {}).get("fast")
    return {
        "title": "Feature selection for unseen classes: results",
        "notes": [*([QUICK] if quick else []), *info.get("notes", [])],
        # The verdict, then what has a picture, then the tables.
        "sections": parts[:1] + sorted(parts[1:], key=lambda part: part["figure"] is None),
        "downloads": _downloads(rows) if rows else [],
    }


def render(summary: dict[str, Any]) -> str:
    """Return the page of what `build_sections` returned."""
    return render_page(**summary)


# --- the experiments -------------------------------------------------------------------


def _clustering(rows: Sequence[Row]) -> list[Section]:
    """Who wins, the curves of every data set, standings, the features."""
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
    notes = [ORACLE] if any(row["label"].endswith("(oracle)") for row in rows) else []
    shown = table(caption, columns, body, "standings")
    return [
        section("Summary", [headline(tables), points]),
        *(_dataset_curves(name, part) for name, part in datasets.items()),
        section("Standings", [MEASURES, CAUTION, *notes], shown),
        _selected_features(rows),
    ]


def _dataset_curves(name: str, rows: Sequence[Row]) -> Section:
    n_splits = len({str(row["split"]) for row in rows})
    spread = "over the splits" if n_splits > 1 else "over the runs of K-means (one split)"
    text = f"Means over {_counted(n_splits, 'split')}; bars: one standard deviation {spread}."
    shown = _curves_of({name: rows}, "k", FEATURES, f"clustering-{name}")
    return section(f"Clustering: {_title(name)}", [text], *shown)


def _selected_features(rows: Sequence[Row]) -> Section:
    chosen: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
    for row in _largest_k(rows):
        if row.get("features") and not is_oracle(row["label"]):
            chosen[row["dataset"], row["label"]].append([str(n) for n in row["features"]])
    body = [[*place, _most_chosen(lists)] for place, lists in chosen.items()]
    columns = ["data set", "method", "names"]
    caption = "Selected features"
    return section(caption, [CHOSEN], table(caption, columns, body, "selected-features"))


def _most_chosen(lists: list[list[str]]) -> list[Any]:
    if len(lists) == 1:
        return lists[0]
    places: dict[str, list[int]] = defaultdict(list)
    for names in lists:
        for place, name in enumerate(names):
            places[name].append(place)
    order = sorted(places, key=lambda name: (-len(places[name]), fmean(places[name])))
    return [(name, f"{len(places[name])}/{len(lists)}") for name in order[:MOST_FEATURES]]


def _sweep(x: str, x_title: str, title: str, text: str) -> Callable[..., list[Section]]:
    """A builder of scores against what an experiment varies, averaged over k."""
    return lambda rows: [
        section(title, [text], *_curves_of(_grouped(rows, "dataset"), x, x_title, x))
    ]


def _attributes_vs_labels(rows: Sequence[Row]) -> list[Section]:
    datasets, body = _grouped(rows, "dataset"), []
    for name, part in datasets.items():
        labels = {row["label"] for row in part}
        for ours in sorted(label for label in labels if label.endswith(" (attributes)")):
            other = ours.replace(" (attributes)", " (labels)")
            for metric in METRICS if other in labels else ():
                found = lead(part, metric, ours, other)
                limits = [found.mean, found.low, found.high, found.verdict]
                body.append(
                    [name, METRICS[metric], ours.removesuffix(" (attributes)"), *limits]
                )
    columns = ["data set", "measure", "method", "lead of attributes", "from", "to", "verdict"]
    caption = "Lead of attributes over labels, averaged over k, with 95 % interval"
    text = "The same method fitted to class attributes and to labels."
    leads = table(caption, columns, body, "attributes-vs-labels")
    _, shown = _curves_of(datasets, "k", FEATURES, "")
    return [section("Attributes or labels as targets", [text], leads, shown)]


def _convergence(rows: Sequence[Row]) -> list[Section]:
    """The objective per iteration, of the first split."""
    runs = [row for row in _largest_k(rows) if (row.get("extra") or {}).get("objective")]
    panels = []
    for name, part in _grouped(runs, "dataset").items():
        series = {
            row["label"]: [(i, J, None, "") for i, J in enumerate(row["extra"]["objective"], 1)]
            for row in reversed(part)
        }
        panels.append(lines(f"{_title(name)}: J", series, "iteration", "objective J"))
    falls = [
        all(b <= a + 1e-9 * abs(a) for a, b in pairwise(r["extra"]["objective"])) for r in runs
    ]
    text = f"The objective never rises in {sum(falls)} of {_counted(len(runs), 'run')}."
    shown = figure(f"Objective per iteration. {text}", panels)
    return [section("Convergence", [f"{text} The first split is shown."], None, shown)]


def _scaling(rows: Sequence[Row]) -> list[Section]:
    """Fitting time against the numbers of samples and features."""
    names = {"n": "samples", "d": "features"}
    panels = []
    for x, other in (("n", "d"), ("d", "n")):
        fixed = Counter(_value_of(row, other) for row in rows).most_common(1)[0][0]
        part = [row for row in rows if _value_of(row, other) == fixed]
        found = curves(part, "seconds", x)
        series = {m: [_values(point) for point in line] for m, line in found.items()}
        title = f"Seconds against {names[x]} ({fixed} {names[other]})"
        panels.append(lines(title, series, names[x], "seconds", log_x=True, log_y=True))
    times = {(r["label"], _value_of(r, "n"), _value_of(r, "d"), r["seconds"]) for r in rows}
    columns = ["method", *names.values(), "seconds"]
    timings = table("All timings", columns, sorted(map(list, times), key=str), "scaling")
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


def _curves_of(
    datasets: Mapping[str, Sequence[Row]], x: str, x_title: str, name: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """A table of values and a figure with one panel per data set and measure."""
    panels, body = [], []
    for dataset, rows in datasets.items():
        for metric, title in METRICS.items():
            found = curves(rows, metric, x)
            at = [point.x for line in found.values() for point in line] or [1]
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
    order = sorted(means, key=lambda label: -means[label])
    named = [f"{label}, {means[label]:.3f}" for label in (*order[:1], *order[1:][-1:])]
    return f"On average highest: {'; lowest: '.join(named)}."


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
    words, numbers = ["carries", "separates", "duplicates"], ["frequency", "low", "high"]
    rows = [
        [str(name), float(row["share"]), *(str(row[column]) for column in words)]
        + [None if math.isnan(row[column]) else float(row[column]) for column in numbers]
        for name, row in explanation.features.iterrows()
    ]
    columns = ["feature", "share of the fall of J", *words]
    columns += ["chosen in bootstraps", "from", "to"]
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
    shown = table(caption, columns, rows, "explanation")
    carried = explanation.attributes.iloc[:MOST_DRAWN]
    if not carried.notna().to_numpy().all():
        return section(title, [text], shown)
    strongest = carried.abs().max().sort_values(ascending=False, kind="stable")
    carried = carried.loc[:, carried.columns.isin(strongest.index[:MOST_ATTRIBUTES])]
    names = [[str(name) for name in axis] for axis in (carried.index, carried.columns)]
    heading = "Attributes: correlation over the seen classes"
    panel = heat_map(heading, carried.to_numpy().tolist(), *names)
    alt = "What each feature goes with; the strongest are in the table."
    return section(title, [text], shown, figure(alt, [panel]))


# --- what the page ends with -----------------------------------------------------------


def _failures(failures: Sequence[Row]) -> list[Section]:
    if not failures:
        return []
    names = ["experiment", "dataset", "split", "method", "params", "error"]
    body = [[_flat(f.get(name)) for name in names] for f in failures]
    text = f"{_counted(len(body), 'cell')} failed; the same command tries them again."
    columns = ["experiment", "data set", "split", "method", "parameters", "error"]
    return [section("Failures", [text], table("Cells that failed", columns, body, "failures"))]


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
    text = [f"Command: {info.get('command') or 'not recorded'}"]
    text += [f"Started: {info['started']}"] if "started" in info else []
    text += [f"Seeds: {', '.join(seeds)}"] if seeds else []
    packages = table("Versions", ["package", "version"], versions, "versions")
    return [*parts, section("How this was made", text, packages if versions else None)]


def _downloads(rows: Sequence[Row]) -> list[dict[str, Any]]:
    """All scores, and all selected features."""
    columns = CSV_COLUMNS[: CSV_COLUMNS.index("features")]
    scores = [[_flat(row.get(column)) for column in columns] for row in rows]
    place = ["experiment", "dataset", "split", "label", "k", "params"]
    features = [
        [*(_flat(row.get(column)) for column in place), position, feature]
        for row in _largest_k(rows)
        for position, feature in enumerate(row.get("features") or [], start=1)
    ]
    names = [*place, "position", "feature"]
    chosen = table("All selected features", names, features, "features")
    return [table("All scores", columns, scores, "scores"), chosen]


def _title(name: str) -> str:
    """A data set in words: what is known by that name, else the name without its dashes."""
    stem = name.lower()
    known = next((words for start, words in KNOWN.items() if stem.startswith(start)), None)
    return known or re.sub(r"[_-]+", " ", name).strip() or name


def _values(point: Point) -> tuple[Any, float, float | None, str]:
    return point.x, point.mean, point.sd, _counted(point.n, "repetition")


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
