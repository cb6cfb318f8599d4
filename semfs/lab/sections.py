"""Makes the sections of a report, one per experiment, with figures and tables as data.

``report.html`` is the template of sections, and ``report.js`` draws their panels.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import resources
from itertools import cycle, pairwise, zip_longest
from typing import Any, TypeAlias

from semfs.lab.comparison import (
    METRICS,
    ZERO_SHOT_METRICS,
    Interval,
    Point,
    Row,
    Standings,
    curves,
    is_oracle,
    lead,
    metrics_of,
    standings,
    value_of,
)

#: Where the page, its script and ``paper.toml`` are.
PAGE_FOLDER = resources.files("semfs.lab")

#: The paper as data: its experiments and data sets, titles of data sets, colors of curves.
PAPER = tomllib.loads(PAGE_FOLDER.joinpath("paper.toml").read_text("utf-8"))

#: Title of the axis of k.
FEATURES = "number of selected features"

#: Features named per method when splits differ; the download has all of them.
MOST_FEATURES = 100

#: From this ratio of the largest to the smallest x on, an axis is logarithmic.
LOGARITHMIC_RATIO = 100

#: An objective that rises by less than this share of its value has not risen: rounding.
ROUNDING = 1e-9

#: Stands in place of the features of a method that draws new ones for every K-means run.
RANDOM_DRAWS = "a new random draw per run"

#: Differences below this are shown with one digit, others with three decimals.
SMALLEST_DECIMAL = 5e-4

#: Methods named in a verdict that the best one is not clearly ahead of.
MOST_TIED = 4

#: The verdicts of `Standings` in words.
VERDICTS = {
    "clear": "Clear: ahead of every other method.",
    "unclear": "No clear winner.",
    "one split": "One split: differences cannot be tested.",
    "too few": "Fewer than two methods have finished: nothing to compare.",
}

#: Methods whose leads are shown: the first one that a run has.
REFERENCES = ("SemFS, unseen classes described", "SemFS")

#: What the forest plots show.
FOREST_TEXT = (
    "Differences are paired over the class splits and averaged over "
    "numbers of features. Bars are 95 % intervals, which are likely too "
    "narrow because splits share classes. To the right of the line at 0, "
    "the method in the title is better. Filled dots mark intervals that "
    "exclude 0."
)

#: What the figures of zero-shot prediction show.
ZERO_SHOT_TEXT = (
    "Zero-shot accuracy: the share of the samples of each unseen class "
    "that are assigned to it when only unseen classes compete, averaged "
    "over these classes. Harmonic mean: the harmonic mean of the "
    "accuracies on held-out samples of the seen classes and on the "
    "unseen classes when all classes compete. The same predictor serves "
    "all methods: SemFS, fitted to their features."
)

#: What the figures of further measures show.
FURTHER_TEXT = (
    "ARI: adjusted Rand index of the clusters and the unseen classes. "
    "k-NN: balanced accuracy of nearest neighbors on held-out samples of "
    "the seen classes. The features were also selected on these samples, "
    "so this accuracy is somewhat too high. All other measures are your "
    "own metrics on the samples of the unseen classes; larger values are "
    "better."
)

#: A point of a curve: x, y, spread, remark. Of a dot plot: x, color, size, remark. Of a heat
#: map: x, color, remark. Of a forest plot: x, low, high, remark.
PanelPoint: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class Table:
    """A table whose entries are text, numbers, None, or lists of names or (name, remark).

    A long table is folded unless it is ``open``.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    open: bool = False


@dataclass(frozen=True)
class Panel:
    """A figure with curves, rows of dots or rows of colored fields, each with a name.

    Parameters
    ----------
    title, x, y : str
        Titles of the figure and its axes.
    series : mapping
        For "lines" points (x, y, spread, remark), for "dots" (x, color, size from 0 to 1,
        remark), for "heat" (x, color, remark), for "forest" one point (x, low, high, remark).
        A dot without size is a diamond, a field without color is empty.
    log : str
        The axes that are logarithmic: "x" or "xy".
    kind : {"lines", "dots", "heat", "forest"}
        A forest plot has a row with a point and an interval for each name, and a line at 0.
    color : str
        What the color of dots and fields means.
    limits : pair of float, optional
        Values of the first and the last color; the colors diverge if the first is negative.
    marked : sequence of str
        Names of rows in bold: the unseen classes.
    """

    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[PanelPoint]]
    log: str = ""
    kind: str = "lines"
    color: str = "mean"
    limits: tuple[float, float] | None = None
    marked: Sequence[str] = ()


@dataclass(frozen=True)
class Section:
    """One part of a page.

    Parameters
    ----------
    title : str
    text : list of str
        Paragraphs.
    table : Table, optional
        Without one, the points of the panels are made into a table.
    panels : sequence of Panel
    standings : mapping
        By data set and measure: the methods, best first.
    leads : mapping
        By data set, measure and method.
    """

    title: str
    text: list[str] = field(default_factory=list)
    table: Table | None = None
    panels: Sequence[Panel] = ()
    standings: Mapping[tuple[str, str], Standings] = field(default_factory=dict)
    leads: Mapping[tuple[str, str, str], Interval] = field(default_factory=dict)


def colors(labels: Iterable[str]) -> dict[str, str]:
    """Give every method a color and an order: SemFS and its variants first, oracles last.

    >>> colors(["MCFS", "MCFS (oracle)", "SemFS"])
    {'SemFS': '#e0245e', 'MCFS': '#1f77d0', 'MCFS (oracle)': '#128a5e'}
    """
    ordered = sorted(dict.fromkeys(labels), key=label_order)
    return dict(zip(ordered, cycle(PAPER["colors"])))


def label_order(label: str) -> tuple[bool, bool]:
    """Return the sort key of a method: SemFS and its variants first, oracles last."""
    return is_oracle(label), not label.lower().startswith("semfs")


def data_title(name: str) -> str:
    """Return a readable title of a data set, by default its name without dashes."""
    # Files are called "apy_lite0_head1280" and the like; the beginning is the name.
    for start, title in PAPER["titles"].items():
        if name.lower().startswith(start):
            return str(title)
    return re.sub(r"[_-]+", " ", name).strip() or name


def build_sections(
    rows: Sequence[Row],
    findings: bool = False,
) -> list[Section]:
    """Return the sections of all experiments that have rows.

    ``findings`` adds what the paper says.
    """
    by_experiment = group_by(rows, "experiment")
    sections: list[Section] = []
    for experiment, build in BUILDERS.items():
        if experiment not in by_experiment:
            continue
        built = build(by_experiment[experiment])
        # The first section of an experiment is the one with its summary.
        if findings:
            finding = PAPER["experiments"][experiment]["finding"]
            built[0].text.append(f"What the paper says: {finding}")
        sections += built
    if not sections:
        return [Section("Summary", ["No job of this run has finished yet."])]
    return sections


def _clustering(rows: Sequence[Row]) -> list[Section]:
    """Summary, leads, curves of each data set, standings, and the selected features."""
    found: dict[tuple[str, str], Standings] = {}
    figures = []
    for name, of_dataset in group_by(rows, "dataset").items():
        measured = metrics_of(of_dataset)
        predicted = {m: title for m, title in ZERO_SHOT_METRICS.items() if m in measured}
        # ARI, k-NN, and metrics of the user's.
        further = {m: title for m, title in measured.items() if m not in METRICS | predicted}
        # The summary and the table of standings show the same comparison.
        for metric, title in (METRICS | predicted | further).items():
            found[name, title] = standings(of_dataset, metric)
        n_splits = len({str(row["split"]) for row in of_dataset})
        spread = "over the splits" if n_splits > 1 else "over the runs of K-means (one split)"
        text = (
            f"Means over {_counted(n_splits, 'split')}. The box above the figures shows "
            f"standard deviations {spread}."
        )
        panels = score_panels({name: of_dataset}, "k", FEATURES)
        figures.append(Section(f"Clustering: {data_title(name)}", [text], panels=panels))
        if predicted:
            panels = score_panels({name: of_dataset}, "k", FEATURES, predicted)
            title = f"Zero-shot accuracy: {data_title(name)}"
            figures.append(Section(title, [ZERO_SHOT_TEXT], panels=panels))
        if further:
            panels = score_panels({name: of_dataset}, "k", FEATURES, further)
            title = f"Further measures: {data_title(name)}"
            figures.append(Section(title, [FURTHER_TEXT], panels=panels))
    return [
        Section("Summary", table=summary_table(found), standings=found),
        *_leads(rows),
        *figures,
        Section("Standings", standings=found),
        _selected_features(rows),
    ]


def summary_table(found: Mapping[tuple[str, str], Standings]) -> Table:
    """Return the best method of each data set and measure, its lead, and the verdict."""
    body = [
        [data_title(dataset), measure, *_best_of(ranking), _verdict_text(ranking)]
        for (dataset, measure), ranking in found.items()
    ]
    columns = ["data set", "measure", "best", "lead over the next", "verdict"]
    caption = "The best method by its mean over numbers of features and splits"
    return Table(caption, columns, body, open=True)


def _best_of(ranking: Standings) -> tuple[str | None, str | None]:
    """The best method with its score, and its lead over the next one with an interval."""
    if not ranking.ranked:
        return None, None
    best = ranking.ranked[0]
    text = f"{best.label}: {best.mean:.3f}"
    if len(ranking.ranked) < 2:
        return text, None
    return text, lead_text(best.lead, ranking.ranked[1].label)


def lead_text(interval: Interval, other: str) -> str:
    """Return a lead over another method in words.

    >>> lead_text(Interval(0.02, 0.01, 0.03, 10), "Markers")
    '+0.020 (+0.010 to +0.030) over Markers'
    """
    mean, low, high = interval.mean, interval.low, interval.high
    if mean == 0 and not low and not high:
        return f"none, equal to {other}"
    text = difference(mean, sign=True)
    if low is not None and high is not None:
        text += f" ({difference(low, sign=True)} to {difference(high, sign=True)})"
    return f"{text} over {other}"


def difference(value: float, sign: bool = False) -> str:
    """Return a difference of scores with three decimals, or one digit if that would be 0."""
    plus = "+" if sign else ""
    is_tiny = value != 0 and abs(value) < SMALLEST_DECIMAL
    text = format(value, f"{plus}.1g" if is_tiny else f"{plus}.3f")
    if text.startswith("-"):
        return f"−{text[1:]}"
    return text


def _verdict_text(ranking: Standings) -> str:
    """Return the verdict on the best method, and a note on methods that are not ranked."""
    sentences = [VERDICTS[ranking.verdict]]
    if ranking.verdict == "unclear":
        shown = "; ".join(ranking.tied[:MOST_TIED])
        n_more = len(ranking.tied) - MOST_TIED
        more = f" and {n_more} more" if n_more > 0 else ""
        sentences.append(f"Not significantly different: {shown}{more}.")
    if ranking.oracles:
        best = ranking.oracles[0]
        sentences.append(f"For comparison, not ranked: {best.label}, {best.mean:.3f}.")
    if ranking.smaller:
        sizes = [f"{name} has {size}" for name, size in ranking.smaller.items()]
        most = min(ranking.smaller.values())
        sentences.append(f"Means are over k up to {most}: {', '.join(sizes)} features.")
    if ranking.incomplete:
        shares = [f"{name} ({share:.0%} done)" for name, share in ranking.incomplete.items()]
        sentences.append(f"Not ranked because results are missing: {', '.join(shares)}.")
    return " ".join(sentences)


def _leads(rows: Sequence[Row]) -> list[Section]:
    """Forest plots: by how much one method is ahead of each other one, on each data set."""
    panels = []
    for name, of_dataset in group_by(rows, "dataset").items():
        reference = _reference(of_dataset)
        for metric, measure in METRICS.items():
            series = _forest(of_dataset, metric, reference)
            if series:
                title = f"{data_title(name)}: lead of {reference} in {measure}"
                panels.append(forest_panel(title, f"lead in {measure}", series))
    if not panels:
        return []
    return [Section("Leads", [FOREST_TEXT], panels=panels)]


def _reference(rows: Sequence[Row]) -> str:
    """Return the method whose leads are shown: the first of ours, or else the best one."""
    ranked = [standing.label for standing in standings(rows, "nmi").ranked]
    candidates = [label for label in REFERENCES if label in ranked]
    return next(iter([*candidates, *ranked]), "")


def _forest(
    rows: Sequence[Row],
    metric: str,
    reference: str,
) -> dict[str, Interval]:
    """Return the lead of one method over each other one that is ranked."""
    ranked = [standing.label for standing in standings(rows, metric).ranked]
    if reference not in ranked:
        return {}
    others = [label for label in ranked if label != reference]
    return {other: lead(rows, metric, reference, other) for other in others}


def forest_panel(
    title: str,
    x: str,
    leads: Mapping[str, Interval],
) -> Panel:
    """Return a forest plot: a row with a lead and its interval for each name."""
    series = {}
    for name, found in leads.items():
        remark = f"{found.verdict}, {_counted(found.n, 'split')}"
        series[name] = [(found.mean, found.low, found.high, remark)]
    return Panel(title, x, "compared with", series, kind="forest")


def _selected_features(rows: Sequence[Row]) -> Section:
    """The features of each method at its largest k; with several splits, how often each."""
    lists: dict[tuple[str, str], list[list[str]]] = defaultdict(list)
    for row in with_largest_k(rows):
        place = (row["dataset"], row["label"])
        # No list: any list would name features that were not scored.
        if _draws_at_random(row):
            lists[place] = []
        elif row.get("features") and not is_oracle(row["label"]):
            lists[place].append([str(name) for name in row["features"]])
    body = [
        [data_title(dataset), label, _features_cell(of_splits)]
        for (dataset, label), of_splits in lists.items()
    ]
    text = (
        "If there are several splits, the features selected most often "
        "come first, with the number of splits."
    )
    caption = "The features of every method at its largest number of features, best first"
    table = Table(caption, ["data set", "method", "names"], body)
    return Section("Selected features", [text], table)


def _draws_at_random(row: Row) -> bool:
    """Return whether the scores of a row are of new random features in every K-means run.

    Runs of earlier versions listed features for Random that were not those scored.
    """
    extra = row.get("extra") or {}
    return bool(extra.get("random_draws")) or row.get("method") == "random"


def _features_cell(
    lists: Sequence[Sequence[str]],
) -> str | Sequence[str] | list[tuple[str, str]]:
    """The features of one list, or of several with the number of lists that have them."""
    if not lists:
        return RANDOM_DRAWS
    if len(lists) == 1:
        return lists[0]
    # Best ranks first, so that of features with equal counts the better one comes first.
    # Counter keeps the order of first occurrence among equal counts.
    by_rank = zip_longest(*lists)
    counts = Counter(name for names in by_rank for name in names if name)
    most_common = counts.most_common(MOST_FEATURES)
    return [(name, f"{n}/{len(lists)}") for name, n in most_common]


def _sweep(rows: Sequence[Row]) -> list[Section]:
    """Scores against the one thing that an experiment varies."""
    sweep = PAPER["sweeps"][rows[0]["experiment"]]
    panels = score_panels(group_by(rows, "dataset"), sweep["x"], sweep["axis"])
    return [Section(sweep["title"], [sweep["text"]], panels=panels)]


def _attributes_vs_labels(rows: Sequence[Row]) -> list[Section]:
    """Curves with both kinds of targets, and the lead of attributes over labels."""
    leads: dict[tuple[str, str, str], Interval] = {}
    datasets = group_by(rows, "dataset")
    for name, of_dataset in datasets.items():
        labels = {row["label"] for row in of_dataset}
        for metric, title in METRICS.items():
            for with_attributes in sorted(labels):
                method = with_attributes.removesuffix(" (attributes)")
                with_labels = f"{method} (labels)"
                if method != with_attributes and with_labels in labels:
                    # Methods that ran with one kind of targets only have no lead.
                    pair = (with_attributes, with_labels)
                    leads[name, title, method] = lead(of_dataset, metric, *pair)
    text = (
        "The same method is fitted to class attributes and to labels. "
        "The table shows the lead of attributes."
    )
    panels = score_panels(datasets, "k", FEATURES)
    return [Section("Attributes or labels as targets", [text], panels=panels, leads=leads)]


def _convergence(rows: Sequence[Row]) -> list[Section]:
    """Return the objective after each iteration, and whether it ever rises."""
    # Failed or older fits may lack the objective.
    fits = [row for row in with_largest_k(rows) if (row.get("extra") or {}).get("objective")]
    panels = []
    for name, of_dataset in group_by(fits, "dataset").items():
        series = {}
        for row in reversed(of_dataset):  # of several splits the first is drawn
            objective = row["extra"]["objective"]
            # Methods have different penalties, so only the course of J is comparable.
            points = [(i, J / objective[0], None, "") for i, J in enumerate(objective, 1)]
            series[row["label"]] = points
        title = f"{data_title(name)}: objective J"
        panels.append(Panel(title, "iteration", "J, relative to the first", series))
    n_falling = sum(never_rises(row["extra"]["objective"]) for row in fits)
    text = f"The objective never rises in {n_falling} of {_counted(len(fits), 'run')}."
    return [Section("Convergence", [f"{text} The first split is shown."], panels=panels)]


def never_rises(objective: Sequence[float]) -> bool:
    """Return whether no value exceeds the one before by more than rounding."""
    return all(after <= J + ROUNDING * abs(J) for J, after in pairwise(objective))


def _preprocessing(rows: Sequence[Row]) -> list[Section]:
    """Curves of every method on differently preprocessed samples."""
    text = "The samples are transformed for both selection and clustering."
    panels = score_panels(group_by(rows, "dataset"), "k", FEATURES)
    return [Section("Preprocessing of the features", [text], panels=panels)]


def _scaling(rows: Sequence[Row]) -> list[Section]:
    """Time against the number of samples, and against the number of features."""
    titles = {"n": "samples", "d": "features"}
    panels = []
    for x, other in (("n", "d"), ("d", "n")):
        # Of the other size, the value that occurs most often is held fixed.
        fixed = Counter(value_of(row, other) for row in rows).most_common(1)[0][0]
        part = [row for row in rows if value_of(row, other) == fixed]
        title = f"Seconds against {titles[x]} ({fixed} {titles[other]})"
        panels.append(_panel(title, curves(part, "seconds", x), titles[x], "seconds", "xy"))
    return [Section("Scaling", ["Time to rank the features."], panels=panels)]


#: What makes the sections of each experiment from its rows, in the order of the page.
BUILDERS: dict[str, Callable[[Sequence[Row]], list[Section]]] = {
    "clustering": _clustering,
    "labeled-ratio": _sweep,
    "attributes-vs-labels": _attributes_vs_labels,
    "alpha": _sweep,
    "convergence": _convergence,
    "preprocessing": _preprocessing,
    "scaling": _scaling,
}


def score_panels(
    datasets: Mapping[str, Sequence[Row]],
    x: str,
    x_title: str,
    metrics: Mapping[str, str] = METRICS,
) -> list[Panel]:
    """Return one panel per data set and measure."""
    panels = []
    for name, rows in datasets.items():
        for metric, title in metrics.items():
            found = curves(rows, metric, x)
            log = "x" if _spans_orders_of_magnitude(found) else ""
            # Other curves are also averaged over the draws of samples.
            unit = "class split" if x == "k" else "repetition"
            name_of_panel = f"{data_title(name)}: {title}"
            panels.append(_panel(name_of_panel, found, x_title, title, log, unit))
    return panels


def _spans_orders_of_magnitude(
    found: Mapping[str, Sequence[Point]],
) -> bool:
    """Return whether x is better drawn on a logarithmic axis."""
    values = [point.x for line in found.values() for point in line]
    if not values or min(values) <= 0:
        return False
    return bool(max(values) / min(values) >= LOGARITHMIC_RATIO)


def _panel(
    title: str,
    found: Mapping[str, Sequence[Point]],
    x: str,
    y: str,
    log: str,
    unit: str = "repetition",
) -> Panel:
    """Return a panel of curves, with points that are means over so many units."""
    series = {}
    for label, line in found.items():
        series[label] = [(p.x, p.mean, p.sd, _counted(p.n, unit)) for p in line]
    return Panel(title, x, y, series, log)


def group_by(rows: Iterable[Row], column: str) -> dict[str, list[Row]]:
    """Return rows by the value of a column, in the order of appearance."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[str(row[column])].append(row)
    return dict(groups)


def with_largest_k(rows: Sequence[Row]) -> list[Row]:
    """Return the row with the largest k of every job, which names all selected features."""
    largest: dict[str, Row] = {}
    # Sorted by k, so that the row with the largest k is the one that stays.
    for row in sorted(rows, key=lambda row: row["k"] or 0):
        names = ("dataset", "split", "label", "params", "seed")
        identity = json.dumps(
            [row.get(name) for name in names],
            sort_keys=True,
            default=str,
        )
        largest[identity] = row
    return list(largest.values())


def _counted(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
