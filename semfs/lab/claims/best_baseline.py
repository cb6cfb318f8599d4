"""The relative lead over each baseline, and the smallest of these leads.

A method leads the best baseline by a share if it leads every baseline by that share. So all
baselines are compared, and the best one need not be chosen. A choice on the same splits would
favor the luckiest baseline, and a choice on other splits would disfavor it.
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

    Leads on few splits come last, because on other splits they may differ.
    """
    leads = {label: relative_lead(methods, ours, label, k) for label in baselines}
    leads = {label: lead for label, lead in leads.items() if lead.n > 0}
    incomplete = too_few_splits(leads)
    order = sorted(leads, key=lambda label: (label in incomplete, leads[label].mean))
    return {label: leads[label] for label in order}


def best_baseline(leads: Mapping[str, Interval], tuned: Sequence[str] = ()) -> str:
    """Return the baseline with the smallest lead among those with enough splits.

    If all tuned baselines have few splits, use the smallest lead over these, or over a baseline
    that was not tuned. The same baseline at its defaults is not used instead.
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
