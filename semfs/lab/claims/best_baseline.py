"""The relative lead over each baseline, and the smallest of these leads.

A method leads the best baseline by a share if it leads each of them by that share. So every
baseline is judged, and none has to be chosen before: a choice on the same splits would be
biased towards the luckiest one, a choice on the other splits away from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from semfs.lab.claims.measured import NO_LEAD, MethodScores
from semfs.lab.claims.rules import FEWEST_SPLITS
from semfs.lab.comparison import Interval, interval_over_splits
from semfs.lab.plan import ORACLE


def relative_lead(
    methods: Mapping[str, MethodScores], ours: str, other: str, k: int
) -> Interval:
    """Return the relative lead in mean ACC at k features, on the splits that both have."""
    if ours not in methods or other not in methods:
        return NO_LEAD
    a, b = methods[ours]["acc"], methods[other]["acc"]
    splits = sorted(split for split, of_k in a if of_k == k and (split, k) in b)
    if not splits:
        return NO_LEAD
    return interval_over_splits(
        splits, lambda kept: fmean(a[s, k] for s in kept) / fmean(b[s, k] for s in kept) - 1
    )


def leads_over_each(
    methods: Mapping[str, MethodScores], ours: str, baselines: Sequence[str], k: int
) -> dict[str, Interval]:
    """Return the relative lead over each baseline that was run, the smallest one first.

    Those on few splits come last: on other splits they may be better or worse.
    """
    leads = {label: relative_lead(methods, ours, label, k) for label in baselines}
    leads = {label: lead for label, lead in leads.items() if lead.n > 0}
    incomplete = too_few_splits(leads)
    order = sorted(leads, key=lambda label: (label in incomplete, leads[label].mean))
    return {label: leads[label] for label in order}


def best_baseline(leads: Mapping[str, Interval], tuned: Sequence[str] = ()) -> str:
    """Return the baseline of the smallest lead: the first one that has enough splits.

    Where all of the tuned baselines have few splits, the smallest lead over these counts, or
    over a baseline that was not tuned. The same baseline at its defaults is no substitute.
    """
    run = {label for label in tuned if label in leads}
    if not run or not run <= set(too_few_splits(leads)):
        return next(iter(leads))
    at_defaults = {label.removesuffix(ORACLE) for label in run}
    return min(leads.keys() - at_defaults, key=lambda label: (leads[label].mean, label))


def too_few_splits(leads: Mapping[str, Interval]) -> list[str]:
    """Return the baselines with fewer splits than a verdict needs, if others have more."""
    needed = min(FEWEST_SPLITS, max((lead.n for lead in leads.values()), default=0))
    return [label for label, lead in leads.items() if lead.n < needed]
