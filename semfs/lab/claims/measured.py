"""Computes the quantities of the claims from rows: scores, leads, objectives, times."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from statistics import fmean, stdev
from typing import Any, TypeAlias

from semfs.lab.comparison import (
    METRICS,
    Interval,
    Row,
    interval_over_splits,
    is_oracle,
    mean_by_split,
    mean_over_splits,
    value_of,
)
from semfs.lab.plan import ORACLE
from semfs.lab.sections import data_title

#: SemFS at its defaults, and Algorithm 1 with the settings of the paper.
OURS = "SemFS"
PUBLISHED = "SemFS as published"
#: The settings of the paper with our solver, and our settings with Algorithm 1.
PUBLISHED_DIRECT = "SemFS as published, direct solver"
ALTERNATING = "SemFS alternating"
#: The paper's variant without the center-characteristic loss: α is 0.
VARIANT = "SemFS/c"
#: The same without labels among the targets, as in the paper.
ATTRIBUTES_ALONE = "SemFS (attributes alone)"
#: The same with labels as the only targets.
LABELS_ALONE = "SemFS (labels)"
#: The same with descriptions of the unseen classes, which the paper's method does not use.
DESCRIBED = "SemFS, unseen classes described"
#: The baselines of the paper, and those of them that use class labels.
PAPER_BASELINES = ("Random", "MCFS", "FSASL", "LASSO", "L20ALM", "WkNN")
SUPERVISED = ("LASSO", "L20ALM", "WkNN")
#: Those that have a parameter, with the best point of the paper's grid, chosen on the test.
TUNED_BASELINES = tuple(f"{label}{ORACLE}" for label in PAPER_BASELINES if label != "Random")

#: What a job may keep in its settings or beside its scores, and a claim may ask for.
SETTINGS = ("ratio", "alpha", "preprocessing", "n", "d", "objective", "max_rows")

#: Score at each split and k of one method, by metric.
MethodScores: TypeAlias = dict[str, dict[tuple[str, int], float]]
#: Scores of the methods of each data set.
Scores: TypeAlias = dict[str, dict[str, MethodScores]]
#: Mean over k of each split, by value of what an experiment varies: a number or a name.
Sweep: TypeAlias = dict[Any, dict[str, float]]

#: Splits that have a spread.
FEWEST_FOR_SPREAD = 2

#: A lead over a method that was not run on the same splits.
NO_LEAD = Interval(math.nan, None, None, 0)


def flat(row: Row) -> Row:
    """Return a row of a store in the form for claims, or unchanged if it has this form.

    The method is named by its label, and settings become columns beside the scores.
    """
    if "label" not in row:
        return row
    settings = {name: value_of(row, name) for name in SETTINGS}
    known = {name: value for name, value in settings.items() if value is not None}
    return {**row, "method": row["label"], **known}


def scores_of(rows: Sequence[Row], experiment: str = "clustering") -> Scores:
    """Return the scores of an experiment by title of the data set and method."""
    found: dict = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    titles = titles_of(rows)
    for row in rows:
        if row["experiment"] != experiment:
            continue
        of_method = found[titles[row["dataset"]]][row["method"]]
        for metric in METRICS:
            if _is_number(row.get(metric)):
                of_method[metric][row["split"], row["k"]].append(row[metric])
    return {
        name: {
            label: {
                metric: {at: _combined(label, values) for at, values in at_positions.items()}
                for metric, at_positions in by_metric.items()
            }
            for label, by_metric in methods.items()
            # a method without any score is as one that was not run
            if set(by_metric) == set(METRICS)
        }
        for name, methods in found.items()
    }


def _combined(label: str, values: Sequence[float]) -> float:
    """Take the best of grid points with the same label, as in the paper; average other rows."""
    return max(values) if is_oracle(label) else fmean(values)


def titles_of(rows: Iterable[Row]) -> dict[str, str]:
    """Return the title of each data set, or its name if others have the same title."""
    titles = {name: data_title(name) for name in {str(row["dataset"]) for row in rows}}
    n_with_title = Counter(titles.values())
    return {name: title if n_with_title[title] == 1 else name for name, title in titles.items()}


def swept(
    rows: Sequence[Row], experiment: str, x: str, metric: str
) -> dict[str, dict[str, Sweep]]:
    """Return means over k and draws, by data set, method, value of x and split."""
    values: dict = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    titles = titles_of(rows)
    for row in rows:
        if row["experiment"] != experiment or x not in row or not _is_number(row.get(metric)):
            continue
        # The label names the preprocessing, too.
        method = row["method"].removesuffix(f" ({row[x]})")
        values[titles[row["dataset"]]][method][row[x]][row["split"]].append(row[metric])
    return {
        name: {
            method: {
                at: {split: fmean(scores) for split, scores in splits.items()}
                for at, splits in by_x.items()
            }
            for method, by_x in methods.items()
        }
        for name, methods in values.items()
    }


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


# ---- leads -----------------------------------------------------------------------------------


def lead_of(
    methods: Mapping[str, MethodScores], metric: str, ours: str, other: str
) -> Interval:
    """Return the lead of a method: mean over k, paired over the splits that both have."""
    if ours not in methods or other not in methods:
        return NO_LEAD
    a, b = methods[ours][metric], methods[other][metric]
    shared = {position: a[position] - b[position] for position in a if position in b}
    if not shared:
        return NO_LEAD
    return mean_over_splits(mean_by_split(shared))


def gap(a: Mapping[str, float], b: Mapping[str, float]) -> Interval:
    """Return the difference of values on the splits that both have."""
    shared = {split: a[split] - b[split] for split in sorted(a) if split in b}
    return mean_over_splits(shared) if shared else NO_LEAD


def steadiness(methods: Mapping[str, MethodScores], ours: str, other: str) -> Interval:
    """Return the log ratio of the spread of ACC over splits, of the other method to ours.

    It is the natural logarithm of a ratio of two standard deviations over the splits that both
    have, and is positive if our method is steadier.
    """
    a, b = (mean_by_split(methods[label]["acc"]) for label in (ours, other))
    splits = [split for split in a if split in b]
    if len(splits) < FEWEST_FOR_SPREAD:
        return NO_LEAD

    def log_ratio(kept: Collection[str]) -> float:
        spread, of_other = (stdev(values[split] for split in kept) for values in (a, b))
        return math.log(of_other / spread) if spread and of_other else 0.0

    return interval_over_splits(splits, log_ratio, FEWEST_FOR_SPREAD)


def attribute_leads(rows: Sequence[Row]) -> dict[str, dict[str, list[Interval]]]:
    """Return leads of attributes over labels in ACC and NMI, by data set and method."""
    found: dict[str, dict[str, list[Interval]]] = defaultdict(dict)
    for experiment, pairs in {
        "clustering": {
            OURS: (OURS, LABELS_ALONE),
            ATTRIBUTES_ALONE: (ATTRIBUTES_ALONE, LABELS_ALONE),
        },
        "attributes-vs-labels": {
            method: (f"{method} (attributes)", f"{method} (labels)")
            for method in (OURS, VARIANT, "LASSO")
        },
    }.items():
        for name, methods in scores_of(rows, experiment).items():
            for method, (with_, without) in pairs.items():
                # SemFS has more splits in the main comparison.
                if with_ in methods and without in methods and method not in found[name]:
                    leads = [lead_of(methods, m, with_, without) for m in METRICS]
                    found[name][method] = leads
    return {name: leads for name, leads in found.items() if leads}


def slope(ours: Sweep, rival: Sweep) -> Interval:
    """Return the least-squares slope of the lead over the varied quantity, by split."""
    leads: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for x in sorted(set(ours) & set(rival)):
        for split in set(ours[x]) & set(rival[x]):
            leads[split].append((x, ours[x][split] - rival[x][split]))
    most = max(map(len, leads.values()), default=0)
    if most < 2:
        return NO_LEAD
    # Only splits that have all shares: the slope depends on them.
    return mean_over_splits(
        {
            split: _slope_of(points)
            for split, points in sorted(leads.items())
            if len(points) == most
        }
    )


def _slope_of(points: Sequence[tuple[float, float]]) -> float:
    """Return the least-squares slope of points (x, y)."""
    middle = fmean(x for x, _ in points)
    above = sum((x - middle) * y for x, y in points)
    return above / sum((x - middle) ** 2 for x, _ in points)


# ---- objectives and times --------------------------------------------------------------------


def objectives(rows: Sequence[Row]) -> list[Row]:
    """Return one row for each run whose objective per iteration was recorded."""
    found = {}
    for row in rows:
        if row["experiment"] == "convergence" and len(row.get("objective") or ()) > 1:
            # A job has the same objective at each k.
            names = ("dataset", "split", "method", "draw", "seed")
            found[tuple(row.get(name) for name in names)] = row
    return list(found.values())


def times(rows: Sequence[Row]) -> dict[str, list[tuple[int, float]]]:
    """Return number of samples and seconds of each method, at the d with most measurements."""
    timed = [
        row
        for row in rows
        if row["experiment"] == "scaling" and {"n", "d"} <= row.keys() and row["seconds"] > 0
    ]
    # A method that sees a sample only is no faster for having more samples.
    names = {
        row["method"]: f"{row['method']} (at most {row['max_rows']:,} samples)"
        for row in timed
        if "max_rows" in row
    }
    widths = [row["d"] for row in timed]
    most_frequent = max(set(widths), key=widths.count, default=None)
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in timed:
        if row["d"] == most_frequent:
            name = names.get(row["method"], str(row["method"]))
            found[name][row["n"]].append(row["seconds"])
    return {
        method: [(n, fmean(seconds)) for n, seconds in sorted(by_n.items())]
        for method, by_n in found.items()
    }
