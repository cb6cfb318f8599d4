"""Compares methods by the rows of a run: curves, leads, and standings.

A row is a flat dict, see `Store.rows`. Results on several class splits are paired: a lead is
the mean difference between two methods over the splits that both have, with an interval.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev
from typing import Any, TypeAlias

from scipy.special import stdtrit

from semfs.lab.splits import seen_pair

#: Measures of a clustering: column of a row, and title.
METRICS = {"acc": "ACC", "nmi": "NMI"}
#: Measures that `evaluate` adds.
MORE_METRICS = {
    "ari": "ARI",
    "knn": "k-NN (seen classes)",
    "zero_shot": "zero-shot accuracy",
    "harmonic": "harmonic mean (seen and unseen classes compete)",
}
#: Measures of zero-shot prediction, which a page shows beside those of clusterings.
ZERO_SHOT_METRICS = {name: MORE_METRICS[name] for name in ("zero_shot", "harmonic")}

#: Upper quantile of a two-sided interval of 95 %.
UPPER_QUANTILE = 0.975

Row: TypeAlias = Mapping[str, Any]
#: Where a value was measured: the split (and the draw of samples), and x.
Position: TypeAlias = tuple[str, Any]
#: The value of one method at each position.
Values: TypeAlias = dict[Position, float]


def metrics_of(rows: Iterable[Row]) -> dict[str, str]:
    """Return the measures of rows as columns and titles, with measures of the user last.

    >>> metrics_of([{"acc": 0.5, "nmi": 0.4, "mine": 2.0, "mine_sd": 0.0}])
    {'acc': 'ACC', 'nmi': 'NMI', 'mine': 'mine'}
    """
    known = METRICS | MORE_METRICS
    measured = dict.fromkeys(METRICS)
    for row in rows:
        for column, value in row.items():
            name = column.removesuffix("_sd")
            if name != column and value is not None:
                measured[name] = None
    ordered = [name for name in known if name in measured]
    ordered += [name for name in measured if name not in known]
    return {name: known.get(name, name) for name in ordered}


@dataclass(frozen=True)
class Point:
    """One point of a curve: the mean over ``n`` splits (and draws) and their spread.

    ``sd`` is the standard deviation over splits, or over K-means runs if there is one split.
    """

    x: Any
    mean: float
    sd: float | None
    n: int


@dataclass(frozen=True)
class Interval:
    """A mean of ``n`` paired differences with its confidence limits.

    The limits are None if there is no spread, as with a single split.
    """

    mean: float
    low: float | None
    high: float | None
    n: int

    @property
    def verdict(self) -> str:
        """Whether a lead is real: "ahead", "behind", "undecided" or "not tested"."""
        if self.low is None or self.high is None:
            return "not tested"
        if self.low > 0:
            return "ahead"
        if self.high < 0:
            return "behind"
        return "undecided"


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

    Parameters
    ----------
    ranked : list of Standing
        Methods that can be used in practice.
    oracles : list of Standing
        Methods that used the labels of the unseen classes, ranked separately.
    tied : list of str
        Methods that are not clearly behind the first method.
    incomplete : dict
        Methods that are not ranked because results are missing, with the share of existing
        results.
    smaller : dict
        Given panels with fewer features than the largest k, with their numbers of features. All
        means are over the k up to the smallest of these numbers.
    verdict : str
        "clear", "unclear" (some are tied), "one split" or "too few" (methods).
    """

    ranked: list[Standing]
    oracles: list[Standing]
    tied: list[str]
    incomplete: dict[str, float]
    smaller: dict[str, int]
    verdict: str


def is_oracle(label: str) -> bool:
    """Return whether a method is shown only for reference and cannot be used in practice."""
    return label.lower().endswith(("(oracle)", "(reference)"))


def paired_interval(differences: Sequence[float]) -> Interval:
    """Return the mean of paired differences and its Student t interval of 95 %."""
    n = len(differences)
    mean = fmean(differences)
    # A single difference has no spread.
    if n == 1:
        return Interval(mean, None, None, 1)
    standard_error = stdev(differences) / math.sqrt(n)
    half = float(stdtrit(n - 1, UPPER_QUANTILE)) * standard_error
    return Interval(mean, mean - half, mean + half, n)


def interval_over_splits(
    splits: Collection[str],
    statistic: Callable[[Collection[str]], float],
    fewest: int = 1,
) -> Interval:
    """Return a statistic of class splits with its jackknife interval of 95 %.

    One split is left out at a time. For a mean, this gives Student's t interval. Splits that
    are pairs of seen classes are not independent of each other, because they share classes:
    there all pairs of one class are left out at a time. A few pairs have more classes than
    there are pairs, but not more degrees of freedom. There are no limits if fewer splits than
    the statistic needs, ``fewest``, remain.
    """
    mean = statistic(splits)
    rests = _leave_one_out(splits)
    n = len(rests)
    if n < 2 or min(map(len, rests)) < fewest:
        return Interval(mean, None, None, len(splits))
    without = [statistic(rest) for rest in rests]
    center = fmean(without)
    spread = math.fsum((value - center) ** 2 for value in without)
    standard_error = math.sqrt((n - 1) / n * spread)
    n_free = min(n, len(splits)) - 1
    half = float(stdtrit(n_free, UPPER_QUANTILE)) * standard_error
    return Interval(mean, mean - half, mean + half, len(splits))


def mean_over_splits(values: Mapping[str, float]) -> Interval:
    """Return the mean of one value per class split, with its interval."""
    return interval_over_splits(values, lambda splits: fmean(values[s] for s in splits))


def _leave_one_out(splits: Collection[str]) -> list[list[str]]:
    """Return the splits without each split, or, for pairs of seen classes, each class."""
    pairs = {split: seen_pair(split) for split in splits}
    if None in pairs.values():
        return [[other for other in splits if other != split] for split in splits]
    classes = sorted({label for pair in pairs.values() for label in pair or ()})
    return [
        [split for split, pair in pairs.items() if pair and label not in pair]
        for label in classes
    ]


def curves(
    rows: Iterable[Row],
    metric: str,
    x: str = "k",
) -> dict[str, list[Point]]:
    """Return the curve of ``metric`` against ``x`` for every method on one data set.

    ``metric`` is acc, nmi or seconds, averaged over splits. ``x`` is a column or an entry of
    ``extra`` or ``params``. If ``x`` is not "k", values are first averaged over k.
    """
    rows = list(rows)
    sd_of_runs = _values_by_label(rows, f"{metric}_sd", x)
    result = {}
    for label, values in _values_by_label(rows, metric, x).items():
        by_x: dict[Any, list[float]] = defaultdict(list)
        for (_, at), value in values.items():
            by_x[at].append(value)
        # With one split, the spread over the K-means runs is all there is.
        run_spread = {at: sd for (_, at), sd in sd_of_runs.get(label, {}).items()}
        points = []
        for at, repetitions in sorted(by_x.items()):
            n = len(repetitions)
            sd = stdev(repetitions) if n > 1 else run_spread.get(at)
            points.append(Point(at, fmean(repetitions), sd, n))
        result[label] = points
    return result


def lead(
    rows: Iterable[Row],
    metric: str,
    label: str,
    other: str,
) -> Interval:
    """Return by how much ``label`` is ahead of ``other``: means over k, paired over splits."""
    values = _values_by_label(rows, metric, "k")
    of_label = values.get(label, {})
    of_other = values.get(other, {})
    # Pairing removes what splits differ in: some unseen classes are easier than others.
    differences = {
        position: of_label[position] - of_other[position]
        for position in of_label
        if position in of_other
    }
    if not differences:
        raise ValueError(f"{label!r} and {other!r} have no finished split and k in common.")
    return mean_over_splits(mean_by_split(differences))


def standings(rows: Iterable[Row], metric: str) -> Standings:
    """Rank the methods of one data set by their mean over k and splits.

    The lead of a method over the best other one is paired over splits. Methods without a
    (split, k) that others have are not ranked, and oracles are ranked separately. If a given
    panel has only k features, all methods are compared up to k.
    """
    values = _values_by_label(rows, metric, "k")
    smaller = _smaller_panels(values)
    values = _up_to(values, min(smaller.values(), default=None))
    expected = {position for of_label in values.values() for position in of_label}
    # A mean over other splits or k would not be comparable.
    shares = {label: len(of_label) / len(expected) for label, of_label in values.items()}
    incomplete = {label: share for label, share in shares.items() if share < 1}
    means = {
        label: mean_by_split(of_label)
        for label, of_label in values.items()
        if label not in incomplete
    }
    # Equal means are ordered by label, so that the order of the rows does not matter.
    order = sorted(means, key=lambda label: (-fmean(means[label].values()), label))
    fair = [label for label in order if not is_oracle(label)]
    oracles = [label for label in order if is_oracle(label)]
    has_several_splits = len({split for split, _ in expected}) > 1
    # One split gives no interval, so nothing can be called a tie.
    tied = []
    if has_several_splits:
        tied = [label for label in fair[1:] if _lead(means, fair[0], label).verdict != "ahead"]
    return Standings(
        [_standing(means, label, fair) for label in fair],
        [_standing(means, label, fair) for label in oracles],
        tied,
        incomplete,
        smaller,
        _verdict(len(fair), has_several_splits, bool(tied)),
    )


def comparable_ks(rows: Iterable[Row], metric: str) -> list[int]:
    """Return the numbers of features k at which all methods are compared."""
    values = _values_by_label(rows, metric, "k")
    most = min(_smaller_panels(values).values(), default=None)
    of_all = _up_to(values, most).values()
    return sorted({k for of_label in of_all for _, k in of_label})


def _smaller_panels(values: Mapping[str, Values]) -> dict[str, int]:
    """Return the methods with no value beyond some k, and this k: they have no more features.

    They have all values up to it. One that lacks others, too, is not finished.
    """
    expected = {position for of_label in values.values() for position in of_label}
    found = {}
    for label, of_label in values.items():
        most = max((k for _, k in of_label), default=0)
        if set(of_label) == {(split, k) for split, k in expected if k <= most} != expected:
            found[label] = most
    return found


def _up_to(values: dict[str, Values], most: int | None) -> dict[str, Values]:
    """Return the values at k of at most ``most``, all if it is None."""
    if most is None:
        return values
    return {
        label: {(split, k): value for (split, k), value in of_label.items() if k <= most}
        for label, of_label in values.items()
    }


#: label -> split -> mean over k.
_Means: TypeAlias = Mapping[str, Mapping[str, float]]


def _lead(means: _Means, label: str, other: str) -> Interval:
    """Return the lead of a method over another one that has the same splits."""
    return mean_over_splits(
        {split: means[label][split] - means[other][split] for split in means[label]}
    )


def _standing(means: _Means, label: str, fair: Sequence[str]) -> Standing:
    """Return the standing of a method against the best other one, or itself if alone."""
    by_split = list(means[label].values())
    # `fair` is sorted, best first. Oracles are no rivals: nobody can use them.
    rival = next((other for other in fair if other != label), label)
    sd = stdev(by_split) if len(by_split) > 1 else None
    return Standing(label, fmean(by_split), sd, _lead(means, label, rival))


def _verdict(
    n_methods: int,
    has_several_splits: bool,
    has_ties: bool,
) -> str:
    """Return what can be said about the first of the ranked methods."""
    if n_methods < 2:
        return "too few"
    if not has_several_splits:
        return "one split"
    return "unclear" if has_ties else "clear"


def _values_by_label(
    rows: Iterable[Row],
    metric: str,
    x: str,
) -> dict[str, Values]:
    """Return one number per label, split and x, averaged over k."""
    found: dict[str, dict[Position, dict[int | None, list[float]]]] = {}
    for row in rows:
        at = value_of(row, x)
        value = row.get(metric)
        if at is None or value is None or not math.isfinite(value):
            continue
        split = str(row["split"])
        if x != "k":
            # The draws of a sweep (their seeds) are repetitions, as splits are.
            split = f"{split} seed {row.get('seed')}"
        by_position = found.setdefault(row["label"], {})
        by_k = by_position.setdefault((split, at), {})
        by_k.setdefault(row.get("k"), []).append(float(value))
    # Several parameter settings under one oracle label count with the best of them, for each
    # k and metric separately (the paper's "best results"); other repetitions are averaged.
    result: dict[str, Values] = {}
    for label, by_position in found.items():
        combine: Callable[[list[float]], float] = max if is_oracle(label) else fmean
        result[label] = {
            position: fmean(combine(repetitions) for repetitions in by_k.values())
            for position, by_k in by_position.items()
        }
    return result


def value_of(row: Row, name: str) -> Any:
    """Return a column of a row, or an entry of its ``extra`` or ``params``; else None."""
    # Rows of the user's own may lack extra and params.
    for source in (row, row.get("extra") or {}, row.get("params") or {}):
        if source.get(name) is not None:
            return source[name]
    return None


def mean_by_split(values: Mapping[Position, float]) -> dict[str, float]:
    """Return the mean over x of every split."""
    by_split: dict[str, list[float]] = defaultdict(list)
    for (split, _), value in values.items():
        by_split[split].append(value)
    return {split: fmean(by_split[split]) for split in sorted(by_split)}
