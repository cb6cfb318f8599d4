"""Rows of results → numbers one can compare: curves, paired intervals, standings.

A row is a flat dict with ``dataset``, ``split``, ``label`` (the method's display name), ``k``,
``acc``, ``nmi``, ``params`` and ``extra``; figures and report show what is computed here.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any

from scipy.special import stdtrit

__all__ = ["Interval", "Point", "Standings", "curves", "hindsight", "paired_interval"]
__all__ += ["standings", "styles"]

# Each colour has a contrast of 3:1 or more on white and on near-black; the first is for SemFS.
COLOURS = [
    *("#e0245e", "#1f77d0", "#128a5e", "#c46a00", "#8a63d2", "#0e8fa6", "#a8559b", "#7a7f87"),
    *("#8a7a00", "#5b8c2a", "#b5553c", "#ff00ff", "#6e3dff", "#7c613c", "#00a300", "#c23bce"),
    *("#c07c87", "#ff5747", "#006aff", "#948ac7", "#ce3b85", "#276b9b", "#ff14b1", "#ff0000"),
]

Row = Mapping[str, Any]
Scores = dict[str, dict[tuple[str, Any], float]]  # label -> (split, x) -> value


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
    def above_zero(self) -> bool:
        return self.low is not None and self.low > 0


@dataclass(frozen=True)
class Standing:
    """One method on one data set: its mean, and its paired lead over the best other."""

    label: str
    mean: float
    sd: float | None
    lead: Interval


@dataclass(frozen=True)
class Standings:
    """All methods on one data set, best first.

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


@dataclass(frozen=True)
class Style:
    """How a method looks in every figure."""

    colour: str
    marker: int  # number of the method, to pick a marker from any list
    line: str  # "solid"; "dot" for oracles; "longdash" when the colours are used up
    width: float  # relative; SemFS stands out


def styles(labels: Iterable[str]) -> dict[str, Style]:
    """Give every method a look and an order: SemFS and its variants first, oracles last.

    >>> styles(["MCFS", "MCFS (oracle)", "SemFS"])["MCFS (oracle)"]
    Style(colour='#128a5e', marker=2, line='dot', width=0.7)
    """
    order = sorted(
        dict.fromkeys(labels),
        key=lambda label: (is_oracle(label), label != "SemFS", not is_ours(label)),
    )
    looks = {}
    for number, label in enumerate(order):
        plain = "solid" if number < len(COLOURS) else "longdash"
        width = 0.7 if is_oracle(label) else 1.5 if label == "SemFS" else 1.0
        line = "dot" if is_oracle(label) else plain
        looks[label] = Style(COLOURS[number % len(COLOURS)], number, line, width)
    return looks


def is_ours(label: str) -> bool:
    """Tell SemFS and its variants from the methods they are compared with."""
    return label.lower().startswith("semfs")


def is_oracle(label: str) -> bool:
    """Tell whether a method's parameters were chosen with the unseen labels."""
    return "(oracle" in label.lower()


def value_of(row: Row, name: str) -> Any:
    """Return what a row says about ``name``: a column, else ``extra``, else ``params``.

    >>> value_of({"k": 5, "extra": {"ratio": 0.1}, "params": {"alpha": 2}}, "ratio")
    0.1
    """
    for source in (row, row.get("extra") or {}, row.get("params") or {}):
        if source.get(name) is not None:
            return source[name]
    return None


def by_target(rows: Iterable[Row]) -> dict[str, list[Row]]:
    """Group rows by what the method was fitted to, and drop that remark from their labels.

    >>> row = {"label": "SemFS (labels)", "extra": {"targets": "labels"}}
    >>> by_target([row])["labels"][0]["label"]
    'SemFS'
    """
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        label = re.sub(r"\s*\((attributes|labels)\)$", "", row["label"])
        groups[str(value_of(row, "targets"))].append({**row, "label": label})
    return dict(sorted(groups.items()))


def widest_sweep(rows: Sequence[Row], x: str, other: str) -> tuple[list[Row], Any]:
    """Return the rows along ``x`` at the value of ``other`` with most of them, and the value.

    >>> rows = [{"extra": {"n": n, "d": d}} for n, d in [(1, 5), (2, 5), (1, 6)]]
    >>> widest_sweep(rows, "n", "d")[1]
    5
    """
    reach: dict[Any, set[Any]] = defaultdict(set)
    for row in rows:
        reach[value_of(row, other)].add(value_of(row, x))
    fixed = max(reach, key=lambda value: len(reach[value]), default=None)
    if fixed is None or len(reach[fixed]) < 2:
        return [], None
    return [row for row in rows if value_of(row, other) == fixed], fixed


def paired_interval(differences: Sequence[float], level: float = 0.95) -> Interval:
    """Return the mean of paired differences and its Student t interval.

    Examples
    --------
    >>> paired_interval([0.0, 1.0, 2.0])
    Interval(mean=1.0, low=-1.484..., high=3.484..., n=3)
    >>> paired_interval([0.5])
    Interval(mean=0.5, low=None, high=None, n=1)
    """
    n = len(differences)
    if n == 0:
        raise ValueError("There are no differences. Give at least one number.")
    mean = fmean(differences)
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
    tied = [o for o in fair[1:] if not _difference(means[fair[0]], means[o]).above_zero]
    found = ("unclear" if tied else "clear") if several else "one split"
    return Standings(
        [_standing(label, means, fair) for label in fair],
        [_standing(label, means, fair) for label in order if is_oracle(label)],
        tied if several else [],
        incomplete,
        found if len(fair) > 1 else "too few",
    )


def hindsight(rows: Iterable[Row], metric: str, label: str, others: Iterable[str]) -> Interval:
    """Return the lead of ``label`` over the best of ``others``, chosen in hindsight.

    For every k the best other method is the one with the highest mean over splits; nobody
    could have known it beforehand. The lead is averaged over k and paired over splits;
    only what all of them have finished counts.

    Examples
    --------
    >>> acc = {("a", 5): 0.25, ("a", 10): 0.75, ("b", 5): 0.5, ("b", 10): 0.25,
    ...        ("us", 5): 0.5, ("us", 10): 0.5}
    >>> rows = [{"split": "0", "label": m, "k": k, "acc": v} for (m, k), v in acc.items()]
    >>> hindsight(rows, "acc", "us", ["a", "b"]).mean
    -0.125
    """
    cells = _cells(rows, metric, "k")
    others = [other for other in others if other in cells and other != label]
    if label not in cells or not others:
        raise ValueError(
            f"Results of {label!r} and of another method are needed; got {[*cells]}."
        )
    common = set(cells[label]).intersection(*(cells[other] for other in others))
    if not common:
        raise ValueError(f"{label!r} and {others} share no finished split and k.")
    splits_at: dict[Any, list[str]] = defaultdict(list)
    for split, k in common:
        splits_at[k].append(split)
    leads = {}
    for k, splits in splits_at.items():
        best = max((fmean(cells[other][s, k] for s in splits), other) for other in others)[1]
        leads.update({(s, k): cells[label][s, k] - cells[best][s, k] for s in splits})
    return paired_interval(list(_by_split(leads).values()))


# --- in words --------------------------------------------------------------------------


def headline(tables: Mapping[tuple[str, str], Standings]) -> str:
    """Return how many of the comparisons have a winner, in one sentence."""
    winners = Counter(t.ranked[0].label for t in tables.values() if t.verdict == "clear")
    verdicts = Counter(t.verdict for t in tables.values())
    won = ", ".join(f"{label} {n}" for label, n in winners.items())
    parts = {
        f"a clear winner in {verdicts['clear']} ({won})": verdicts["clear"],
        f"no clear winner in {verdicts['unclear']}": verdicts["unclear"],
        f"one split only in {verdicts['one split']}, so no test": verdicts["one split"],
        f"too few results in {verdicts['too few']}": verdicts["too few"],
    }
    said = "; ".join(text for text, count in parts.items() if count)
    return f"Of {len(tables)} comparisons (a data set and a measure each): {said}."


def verdict_in_words(result: Standings) -> str:
    """Return who wins on a data set, by how much, or why that cannot be told."""
    if result.verdict == "too few":
        return "Fewer than two methods have finished: nothing to compare." + _rest(result)
    first, second = result.ranked[:2]
    lead = f"{first.label} is highest: {first.mean:.3f}, {_above(first.lead, second.label)}."
    if result.verdict == "clear":
        text = f"{first.label} wins. {lead} It is ahead of every other method."
    elif result.verdict == "unclear":
        more = f" and {len(result.tied) - 4} more" if len(result.tied) > 4 else ""
        tied = ", ".join(result.tied[:4]) + more
        text = f"No clear winner. {lead} Cannot be told from it: {tied}."
    else:
        text = f"No tested winner. {lead} With one split, chance cannot be ruled out."
    return text + _rest(result)


def lead_in_words(lead: Interval) -> str:
    """Return whether a lead is one.

    >>> lead_in_words(paired_interval([0.1, 0.2])), lead_in_words(paired_interval([0.1, 0.11]))
    ('undecided', 'ahead')
    """
    if lead.low is None or lead.high is None:
        return "not tested"
    if lead.low > 0:
        return "ahead"
    return "behind" if lead.high < 0 else "undecided"


def _rest(result: Standings) -> str:
    """What else must be said: the best oracle, and who is missing."""
    text = ""
    if result.oracles:
        best = result.oracles[0]
        text += f" Best with oracle tuning: {best.label.split(' (')[0]}, {best.mean:.3f}."
    if result.incomplete:
        shares = ", ".join(f"{m} ({share:.0%} done)" for m, share in result.incomplete.items())
        text += f" Not ranked, as results are missing: {shares}."
    return text


def _above(lead: Interval, other: str) -> str:
    """The lead with its interval, in as many digits as it takes to see it."""
    numbers = [lead.mean, *(limit for limit in (lead.low, lead.high) if limit is not None)]
    if not any(numbers):
        return f"exactly as {other}"
    digits = 3
    while digits < 9 and len({f"{number:.{digits}f}" for number in numbers}) < len(numbers):
        digits += 1
    digits = max(digits, min(9, 1 - math.floor(math.log10(abs(lead.mean) or 1.0))))
    text = f"{lead.mean:.{digits}f} above {other}"
    if lead.low is None:
        return text
    limits = f"{lead.low:+.{digits}f} to {lead.high:+.{digits}f}".replace("-", "−")
    return f"{text} (95 % interval {limits}, {lead.n} splits)"


# --- helpers ---------------------------------------------------------------------------


def _cells(rows: Iterable[Row], metric: str, x: str) -> Scores:
    """One number per label, split and x.

    Several parameter settings under one oracle label count with the best of them, for each k
    and metric separately (the paper's "best results"); other repetitions are averaged.
    """
    found: dict[tuple, list[float]] = defaultdict(list)
    for row in rows:
        at, value = value_of(row, x), row.get(metric)
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


def _by_split(cells: Mapping[tuple[str, Any], float]) -> dict[str, float]:
    """Mean over x of every split, in the order of the splits."""
    values: dict[str, list[float]] = defaultdict(list)
    for (split, _), value in cells.items():
        values[split].append(value)
    return {split: fmean(values[split]) for split in sorted(values)}


def _difference(a: Mapping[str, float], b: Mapping[str, float]) -> Interval:
    return paired_interval([a[split] - b[split] for split in a])


def _standing(label: str, means: Mapping[str, dict[str, float]], fair: list[str]) -> Standing:
    values = list(means[label].values())
    rival = next((other for other in fair if other != label), label)
    lead = _difference(means[label], means[rival])
    return Standing(label, fmean(values), stdev(values) if len(values) > 1 else None, lead)
