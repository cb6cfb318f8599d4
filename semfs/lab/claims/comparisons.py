"""Claims about the main comparison: who is ahead, and by how much."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from semfs.lab.claims.best_baseline import (
    best_baseline,
    leads_over_each,
    relative_lead,
    too_few_splits,
)
from semfs.lab.claims.claim import Claim, Findings
from semfs.lab.claims.measured import (
    DESCRIBED,
    NO_LEAD,
    OURS,
    PAPER_BASELINES,
    SUPERVISED,
    TUNED_BASELINES,
    VARIANT,
    MethodScores,
    Scores,
    lead_of,
    scores_of,
    steadiness,
)
from semfs.lab.claims.rules import (
    FEWEST_SPLITS,
    HEADLINE_K,
    comparable_verdict,
    data_set_verdict,
    headline_verdict,
)
from semfs.lab.claims.words import (
    NO_NUMBER,
    counted,
    lead_in_percent,
    lead_in_points,
    mean_of_data_sets,
    ratio_in_words,
)
from semfs.lab.comparison import (
    METRICS,
    Interval,
    Row,
    is_oracle,
    paired_interval,
)

#: The data set whose features are of the paper's kind.
HEADLINE_DATA = "Birds (CUB, VGG features)"


def comparison_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about the main comparison; the headline comes first."""
    scores = scores_of(rows)
    return [
        headline(scores),
        headline_tuned(scores),
        first_everywhere(scores),
        tuned_baselines(scores),
        mcfs_against_supervised(scores),
        better_than_variant(scores),
        steadier_than_variant(scores),
    ]


# ---- the headline ----------------------------------------------------------------------------


def headline(scores: Scores) -> Claim:
    """Judge the relative lead in ACC over the best baseline of the paper at k = 20."""
    return _relative_leads("baselines at their defaults", scores, PAPER_BASELINES)


def headline_tuned(scores: Scores) -> Claim:
    """Judge the same with baselines that are tuned on the test, as those of the paper are.

    Baselines at their defaults count as well, because these may be better than all points of
    the grid, and replace a grid that was not run.
    """
    return _relative_leads(
        "baselines tuned on the test, as in the paper",
        _with_grids(scores),
        [*TUNED_BASELINES, *PAPER_BASELINES],
        needed=TUNED_BASELINES,
    )


def _with_grids(scores: Scores) -> Scores:
    """Return the data sets on which any baseline was tuned."""
    return {
        name: methods
        for name, methods in scores.items()
        if any(label in methods for label in TUNED_BASELINES)
    }


def _relative_leads(
    condition: str, scores: Scores, baselines: Sequence[str], needed: Sequence[str] = ()
) -> Claim:
    """Judge the relative leads over the best one of the baselines on each data set.

    If one of the required baselines is missing, no lead is confirmed.
    """
    findings = Findings(
        [
            "data set",
            "best baseline",
            "relative lead of SemFS in ACC",
            "of SemFS/c",
            "of SemFS with unseen classes described",
            "splits",
        ]
    )
    smallest = {}
    for name, methods in scores.items():
        leads = leads_over_each(methods, OURS, baselines, HEADLINE_K)
        if not leads:
            continue
        best = best_baseline(leads, needed)
        others = [
            relative_lead(methods, ours, best, HEADLINE_K) for ours in (VARIANT, DESCRIBED)
        ]
        cells = [lead_in_percent(lead) for lead in (leads[best], *others)]
        missing = [label for label in needed if label not in leads]
        notes = {"too few splits": too_few_splits(leads), "not run": missing}
        remarks = [f"{note}: {', '.join(labels)}" for note, labels in notes.items() if labels]
        shown = f"{best} ({'; '.join(remarks)})" if remarks else best
        verdict = headline_verdict([*leads.values(), *(NO_LEAD for _ in missing)])
        findings.add([name, shown, *cells, str(leads[best].n)], verdict)
        smallest[name] = leads[best]
    return findings.claim(
        f"SemFS leads the best baseline by 20–40 % in ACC at k = {HEADLINE_K} ({condition})",
        *_headline_parts(smallest),
    )


def _headline_parts(leads: Mapping[str, Interval]) -> list[str]:
    """Return the lead on features of the paper's kind, and the mean of all data sets."""
    parts = []
    if HEADLINE_DATA in leads:
        lead = leads[HEADLINE_DATA]
        remark = f" on {counted(lead.n, 'split')}" if lead.n < FEWEST_SPLITS else ""
        parts.append(f"CUB: {lead_in_percent(lead)}{remark}")
    # The interval of two numbers says nothing.
    if len(leads) > 2:
        mean = paired_interval([lead.mean for lead in leads.values()])
        parts.append(f"mean of {len(leads)} data sets {lead_in_percent(mean)}")
    return parts


# ---- other claims ----------------------------------------------------------------------------


def first_everywhere(scores: Scores) -> Claim:
    """Judge whether SemFS and SemFS/c are above each baseline of the paper at its defaults."""
    findings = Findings(
        [
            "data set",
            "method",
            "ahead of",
            "undecided",
            "behind, in ACC or NMI",
            "behind other selectors",
        ],
        noun="pair of data set and method",
    )
    for name, methods in scores.items():
        rivals = [label for label in PAPER_BASELINES if label in methods]
        others = [
            label
            for label in methods
            if not label.startswith("SemFS") and not is_oracle(label) and label not in rivals
        ]
        for ours in (OURS, VARIANT):
            if ours not in methods or not rivals:
                continue
            leads = {rival: _leads(methods, ours, rival) for rival in [*rivals, *others]}
            groups: dict[str, list[str]] = {"confirmed": [], "undecided": [], "refuted": []}
            for rival in rivals:
                groups[data_set_verdict(leads[rival])].append(rival)
            behind = [other for other in others if data_set_verdict(leads[other]) == "refuted"]
            cells = [", ".join(names) or NO_NUMBER for names in [*groups.values(), behind]]
            verdict = data_set_verdict(lead for rival in rivals for lead in leads[rival])
            findings.add([name, ours, *cells], verdict)
    return findings.claim("SemFS and SemFS/c are ahead of each baseline on every data set")


def _leads(methods: Mapping[str, MethodScores], ours: str, rival: str) -> list[Interval]:
    """Return the leads over one rival in ACC and NMI."""
    return [lead_of(methods, metric, ours, rival) for metric in METRICS]


def tuned_baselines(scores: Scores) -> Claim:
    """Judge SemFS at its defaults against baselines tuned on the test."""
    # A grid that was not run leaves the claim open.
    rivals = {
        name: TUNED_BASELINES
        for name, methods in _with_grids(scores).items()
        if OURS in methods
    }
    leads = [
        _leads(scores[name], OURS, label) for name, labels in rivals.items() for label in labels
    ]
    verdicts = [data_set_verdict(of_rival) for of_rival in leads if _is_enough(of_rival)]
    part = (
        f"ahead in {verdicts.count('confirmed')} of "
        f"{counted(len(verdicts), 'comparison')} on {FEWEST_SPLITS} splits or more, behind in "
        f"{verdicts.count('refuted')}"
    )
    claim = "SemFS, untuned, is ahead of each baseline that is tuned on the test"
    return against_each(claim, scores, OURS, rivals, list(METRICS), parts=[part])


def _is_enough(leads: Sequence[Interval]) -> bool:
    """Return whether there are enough splits for a verdict."""
    return all(lead.n >= FEWEST_SPLITS for lead in leads)


def mcfs_against_supervised(scores: Scores) -> Claim:
    """Judge whether MCFS is comparable to each supervised baseline of the paper, or better."""
    rivals = {
        name: [label for label in SUPERVISED if label in methods]
        for name, methods in scores.items()
        if "MCFS" in methods
    }
    claim = "MCFS is comparable to the supervised baselines, or better"
    return against_each(claim, scores, "MCFS", rivals, ["acc"], verdict_of=comparable_verdict)


def better_than_variant(scores: Scores) -> Claim:
    """Judge the lead of SemFS over SemFS/c."""
    names = _with_variant(scores)
    leads = [lead_of(scores[name], "acc", OURS, VARIANT) for name in names]
    shared = [lead for lead in leads if lead.n > 0]
    return against_each(
        "SemFS is better than SemFS/c",
        scores,
        OURS,
        {name: [VARIANT] for name in names},
        list(METRICS),
        parts=[mean_of_data_sets(shared)] if shared else [],
    )


def steadier_than_variant(scores: Scores) -> Claim:
    """Judge how far ACC of SemFS/c spreads over the splits, compared with that of SemFS."""
    findings = Findings(
        ["data set", "standard deviation of ACC over splits, SemFS/c ÷ SemFS", "splits"]
    )
    for name in _with_variant(scores):
        found = steadiness(scores[name], OURS, VARIANT)
        if found.n > 0:
            cells = [name, ratio_in_words(found), str(found.n)]
            findings.add(cells, data_set_verdict([found]))
    return findings.claim("SemFS is steadier than SemFS/c")


def _with_variant(scores: Scores) -> list[str]:
    """Return the data sets on which both SemFS and SemFS/c were run."""
    return [name for name, methods in scores.items() if OURS in methods and VARIANT in methods]


def against_each(
    claim: str,
    scores: Scores,
    ours: str,
    rivals: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
    *,
    parts: Sequence[str] = (),
    verdict_of: Callable[[Sequence[Interval]], str] = data_set_verdict,
) -> Claim:
    """Judge whether a method is above its rivals, on each data set that has rivals."""
    titles = [f"lead in {METRICS[metric]}" for metric in metrics]
    findings = Findings(["data set", f"{ours} over", *titles, "splits"])
    for name, of_set in rivals.items():
        methods = scores[name]
        leads = {r: [lead_of(methods, metric, ours, r) for metric in metrics] for r in of_set}
        # without a split that both have there is nothing to judge
        if not any(of_rival[0].n for of_rival in leads.values()):
            continue
        for rival, of_rival in leads.items():
            cells = [name, rival, *map(lead_in_points, of_rival), str(of_rival[0].n)]
            findings.show(cells, verdict_of(of_rival))
        findings.count(verdict_of([lead for of_rival in leads.values() for lead in of_rival]))
    return findings.claim(claim, *parts)
