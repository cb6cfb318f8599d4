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


def too_few_splits(leads: Mapping[str, Interval]) -> list[str]:
    """Return the baselines with fewer splits than a verdict needs, if others have more."""
    needed = min(FEWEST_SPLITS, max((lead.n for lead in leads.values()), default=0))
    return [label for label, lead in leads.items() if lead.n < needed]
