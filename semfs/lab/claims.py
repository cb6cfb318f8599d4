"""The paper's claims beside what a run shows: confirmed, not confirmed, or not tested."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from semfs.lab.comparison import METRICS, Interval, Row, curves, lead, standings, value_of
from semfs.lab.sections import (
    PAPER,
    Section,
    Table,
    difference,
    group_by,
    never_rises,
    with_largest_k,
)

#: The methods of the paper, whose leads its claims are about.
OURS = ("SemFS", "SemFS/c")

#: Scores that differ by less are "almost the same".
ALMOST_THE_SAME = 0.01

#: Values of α for which the paper finds almost the same results.
ALPHA_RANGE = (1e-3, 1.0)

#: Growth of the time with the number of samples up to this power is called linear, and it is
#: estimated only if the largest number is so many times the smallest.
LARGEST_POWER = 1.15
SMALLEST_RANGE = 10

TEXT = (
    "A claim is confirmed if it holds on every data set of this run, for ACC and NMI, beyond "
    'the 95 % interval where scores are compared; this is how words such as "clearly" are '
    "read. It is not tested if the run has one class split only, or lacks the methods."
)


@dataclass(frozen=True)
class Finding:
    """What a run shows about a claim, in words, and the verdict."""

    shown: str
    verdict: str


NOT_RUN = Finding("This experiment was not run.", "not tested")


def claims_section(rows: Sequence[Row]) -> Section:
    """Return a table of the paper's claims, with what these rows show and a verdict."""
    by_experiment = group_by(rows, "experiment")
    body = []
    for experiment, check in CHECKS.items():
        found = NOT_RUN
        if experiment in by_experiment:
            found = check(by_experiment[experiment])
        claim = PAPER["experiments"][experiment]["finding"]
        body.append([claim, found.shown, found.verdict])
    columns = ["the paper's claim", "what this run shows", "verdict"]
    table = Table("Claims of the paper", columns, body, open=True)
    return Section("The paper's claims", [TEXT], table)


def _always_first(rows: Sequence[Row]) -> Finding:
    """Whether the methods of the paper are clearly ahead of all others on every data set."""
    leads = []
    for of_dataset in group_by(rows, "dataset").values():
        for metric in METRICS:
            ranked = [standing.label for standing in standings(of_dataset, metric).ranked]
            others = [label for label in ranked if not label.lower().startswith("semfs")]
            leads += [
                lead(of_dataset, metric, ours, other)
                for ours in OURS
                for other in others
                if ours in ranked
            ]
    return _of_leads(leads, "SemFS or SemFS/c is ahead of another method in")


def _more_labels_help(rows: Sequence[Row]) -> Finding:
    """Whether all labels are better than a tenth of them, by how much they are."""
    gains = []
    for label in OURS:
        gains += _gains(rows, label, "ratio")
    if not gains:
        return Finding("SemFS has no scores at two shares of labels.", "not tested")
    smallest, largest = min(gains), max(gains)
    shown = (
        "From the smallest to the largest share of labels, scores of SemFS and SemFS/c change "
        f"by {difference(smallest, sign=True)} to {difference(largest, sign=True)}."
    )
    return Finding(shown, "confirmed" if smallest > 0 else "not confirmed")


def _gains(rows: Sequence[Row], label: str, x: str) -> list[float]:
    """By how much the last mean of each curve of a method exceeds the first."""
    gains = []
    for of_dataset in group_by(rows, "dataset").values():
        for metric in METRICS:
            line = curves(of_dataset, metric, x).get(label, [])
            if len(line) > 1:
                gains.append(line[-1].mean - line[0].mean)
    return gains


def _attributes_are_better(rows: Sequence[Row]) -> Finding:
    """Whether every method is better with attributes as targets than with labels."""
    leads = []
    for of_dataset in group_by(rows, "dataset").values():
        labels = {str(row["label"]) for row in of_dataset}
        for first in sorted(labels):
            second = first.replace("(attributes)", "(labels)")
            if first != second and second in labels:
                leads += [lead(of_dataset, metric, first, second) for metric in METRICS]
    return _of_leads(leads, "Attributes are ahead of labels in")


def _alpha_hardly_matters(rows: Sequence[Row]) -> Finding:
    """Whether scores are almost the same in the paper's range of α."""
    low, high = ALPHA_RANGE
    ranges = []
    for of_dataset in group_by(rows, "dataset").values():
        for metric in METRICS:
            line = curves(of_dataset, metric, "alpha").get("SemFS", [])
            means = [point.mean for point in line if low <= point.x <= high]
            if len(means) > 1:
                ranges.append(max(means) - min(means))
    if not ranges:
        return Finding("SemFS has no scores at two values of α.", "not tested")
    widest = max(ranges)
    shown = (
        f"Mean scores of SemFS differ by at most {widest:.3f} for α from {low:g} to {high:g}."
    )
    is_same = widest < ALMOST_THE_SAME
    return Finding(shown, "confirmed" if is_same else "not confirmed")


def _objective_falls(rows: Sequence[Row]) -> Finding:
    """Whether the objective never rises."""
    extras = [row.get("extra") or {} for row in with_largest_k(rows)]
    objectives = [extra["objective"] for extra in extras if extra.get("objective")]
    if not objectives:
        return Finding("No run recorded its objective.", "not tested")
    n_falling = sum(map(never_rises, objectives))
    shown = f"The objective never rises in {n_falling} of {len(objectives)} runs."
    return Finding(shown, "confirmed" if n_falling == len(objectives) else "not confirmed")


def _time_is_linear(rows: Sequence[Row]) -> Finding:
    """Whether the time of SemFS grows at most linearly with the number of samples."""
    most_frequent = _most_frequent([value_of(row, "d") for row in rows])
    part = [row for row in rows if value_of(row, "d") == most_frequent]
    line = curves(part, "seconds", "n").get("SemFS", [])
    points = [(point.x, point.mean) for point in line if point.mean > 0]
    if len(points) < 3 or points[-1][0] < SMALLEST_RANGE * points[0][0]:
        return Finding("The numbers of samples are too close to each other.", "not tested")
    sizes, seconds = np.log(np.array(points, dtype=float)).T
    power = float(np.polyfit(sizes, seconds, 1)[0])
    shown = f"The time of SemFS grows with the number of samples to the power of {power:.2f}."
    return Finding(shown, "confirmed" if power <= LARGEST_POWER else "not confirmed")


def _most_frequent(values: Iterable[object]) -> object:
    listed = list(values)
    return max(listed, key=listed.count)


def _of_leads(leads: Sequence[Interval], beginning: str) -> Finding:
    """The verdict on a claim that all these leads are above 0."""
    tested = [found for found in leads if found.verdict != "not tested"]
    if not tested:
        return Finding("There is one class split, or nothing to compare.", "not tested")
    n_ahead = sum(found.verdict == "ahead" for found in tested)
    n_behind = sum(found.verdict == "behind" for found in tested)
    smallest = min(found.mean for found in tested)
    largest = max(found.mean for found in tested)
    shown = (
        f"{beginning} {n_ahead} of {len(tested)} comparisons, and behind in {n_behind}. Leads: "
        f"{difference(smallest, sign=True)} to {difference(largest, sign=True)}."
    )
    is_confirmed = n_ahead == len(leads)
    return Finding(shown, "confirmed" if is_confirmed else "not confirmed")


#: What decides on the claim of each experiment.
CHECKS: dict[str, Callable[[Sequence[Row]], Finding]] = {
    "clustering": _always_first,
    "labeled-ratio": _more_labels_help,
    "attributes-vs-labels": _attributes_are_better,
    "alpha": _alpha_hardly_matters,
    "convergence": _objective_falls,
    "scaling": _time_is_linear,
}
