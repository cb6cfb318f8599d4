"""Claims about the main comparison: who is ahead, and by how much."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import stdev

from semfs.lab.claims.claim import Claim, not_run
from semfs.lab.claims.measured import (
    CENTER_LOSS,
    DESCRIBED,
    OURS,
    PAPER_BASELINES,
    SUPERVISED,
    MethodScores,
    Scores,
    best_rival,
    lead_of,
    relative_lead,
    scores_of,
)
from semfs.lab.claims.rules import HEADLINE_K, data_set_verdict, headline_verdict, overall
from semfs.lab.claims.words import (
    NO_NUMBER,
    counted,
    counts,
    lead_in_percent,
    lead_in_points,
    mean_of_data_sets,
    sentence,
)
from semfs.lab.comparison import (
    METRICS,
    Interval,
    Row,
    is_oracle,
    mean_by_split,
    paired_interval,
)

#: The data set whose features are of the paper's kind.
HEADLINE_DATA = "Birds (CUB, VGG features)"


def comparison_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about the main comparison; the headline comes first."""
    scores = scores_of(rows)
    return [
        headline(scores),
        first_everywhere(scores),
        tuned_baselines(scores),
        mcfs_against_supervised(scores),
        against_center_loss(scores),
    ]


def headline(scores: Scores) -> Claim:
    """The relative lead in ACC over the best baseline of the paper at k = 20."""
    claim = f"SemFS leads the best baseline by 20–40 % in ACC at k = {HEADLINE_K}"
    verdicts = []
    rows = []
    leads = {}
    for name, methods in scores.items():
        best = best_baseline(methods)
        if best is None:
            continue
        lead = relative_lead(methods, OURS, best, HEADLINE_K)
        verdict = headline_verdict(lead)
        described = NO_NUMBER
        if DESCRIBED in methods:
            described = lead_in_percent(relative_lead(methods, DESCRIBED, best, HEADLINE_K))
        rows.append([name, best, lead_in_percent(lead), str(lead.n), verdict, described])
        verdicts.append(verdict)
        leads[name] = lead
    if not rows:
        return not_run(claim)
    columns = [
        "data set",
        "best baseline",
        "relative lead of SemFS in ACC",
        "splits",
        "verdict",
        "with descriptions of the unseen classes",
    ]
    text = sentence([*_headline_parts(leads), counts(verdicts)])
    return Claim(claim, overall(verdicts), text, columns, rows)


def _headline_parts(leads: Mapping[str, Interval]) -> list[str]:
    """The lead on features of the paper's kind, and the mean of all data sets."""
    parts = []
    if HEADLINE_DATA in leads:
        parts.append(f"CUB: {lead_in_percent(leads[HEADLINE_DATA])}")
    if len(leads) > 1:
        mean = paired_interval([lead.mean for lead in leads.values()])
        parts.append(f"mean of {len(leads)} data sets {lead_in_percent(mean)}")
    return parts


def best_baseline(methods: Mapping[str, MethodScores]) -> str | None:
    """Return the best baseline of the paper; None if it has none to compare SemFS with."""
    rivals = [label for label in PAPER_BASELINES if label in methods]
    if OURS not in methods or not rivals:
        return None
    best = best_rival(methods, rivals, HEADLINE_K)
    return best if relative_lead(methods, OURS, best, HEADLINE_K).n > 0 else None


def first_everywhere(scores: Scores) -> Claim:
    """Whether SemFS is above every rival that is not tuned on the test."""
    claim = "SemFS is first on every data set"
    verdicts = []
    rows = []
    for name, methods in scores.items():
        rivals = [m for m in methods if not m.startswith("SemFS") and not is_oracle(m)]
        if OURS not in methods or not rivals:
            continue
        leads = {r: [lead_of(methods, metric, OURS, r) for metric in METRICS] for r in rivals}
        groups: dict[str, list[str]] = {"confirmed": [], "undecided": [], "not": []}
        for rival, of_rival in leads.items():
            groups[data_set_verdict(of_rival)].append(rival)
        verdict = data_set_verdict(lead for of_rival in leads.values() for lead in of_rival)
        cells = [", ".join(names) or NO_NUMBER for names in groups.values()]
        rows.append([name, *cells, verdict])
        verdicts.append(verdict)
    if not rows:
        return not_run(claim)
    columns = ["data set", "SemFS ahead of", "undecided", "behind, in ACC or NMI", "verdict"]
    return Claim(claim, overall(verdicts), sentence([counts(verdicts)]), columns, rows)


def tuned_baselines(scores: Scores) -> Claim:
    """SemFS untuned against baselines with the best point of a grid, chosen on the test."""
    rivals = {
        name: [label for label in methods if label.lower().endswith("(oracle)")]
        for name, methods in scores.items()
        if OURS in methods
    }
    claim = "SemFS, untuned, leads baselines that are tuned on the test, as in the paper"
    return against_each(claim, scores, OURS, rivals, list(METRICS))


def mcfs_against_supervised(scores: Scores) -> Claim:
    """Whether MCFS is at least as good as each supervised baseline of the paper."""
    rivals = {
        name: [label for label in SUPERVISED if label in methods]
        for name, methods in scores.items()
        if "MCFS" in methods
    }
    claim = "MCFS is comparable to the supervised baselines, or better"
    return against_each(claim, scores, "MCFS", rivals, ["acc"])


def against_center_loss(scores: Scores) -> Claim:
    """SemFS against SemFS/c: leads, and spreads over the splits."""
    other = CENTER_LOSS
    names = [name for name, methods in scores.items() if OURS in methods and other in methods]
    title = "SemFS is better and steadier than SemFS/c"
    claim = against_each(title, scores, OURS, {name: [other] for name in names}, list(METRICS))
    if not claim.is_run:
        return claim
    n_steadier = sum(
        _spread(scores[name][OURS]) < _spread(scores[name][other]) for name in names
    )
    leads = [lead_of(scores[name], "acc", OURS, other) for name in names]
    text = (
        f"{mean_of_data_sets(leads)}; {claim.sentence[0].lower()}{claim.sentence[1:]} Over the "
        f"splits ACC spreads less on {n_steadier} of {counted(len(names))}."
    )
    return Claim(title, claim.verdict, text, claim.columns, claim.rows)


def _spread(scores: MethodScores) -> float:
    """The standard deviation of ACC over the splits; 0 of a single one."""
    values = list(mean_by_split(scores["acc"]).values())
    return stdev(values) if len(values) > 1 else 0.0


def against_each(
    claim: str,
    scores: Scores,
    ours: str,
    rivals: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
) -> Claim:
    """A claim that one method is above its rivals, on each data set that has any of them."""
    verdicts = []
    rows = []
    for name, of_set in rivals.items():
        methods = scores[name]
        leads = {r: [lead_of(methods, metric, ours, r) for metric in metrics] for r in of_set}
        # without a split that both have there is nothing to judge
        leads = {rival: of_rival for rival, of_rival in leads.items() if of_rival[0].n > 0}
        if not leads:
            continue
        verdict = data_set_verdict(lead for of_rival in leads.values() for lead in of_rival)
        for rival, of_rival in leads.items():
            cells = map(lead_in_points, of_rival)
            rows.append([name, rival, *cells, str(of_rival[0].n), verdict])
        verdicts.append(verdict)
    if not verdicts:
        return not_run(claim)
    titles = [f"lead in {METRICS[metric]}" for metric in metrics]
    columns = ["data set", f"{ours} over", *titles, "splits", "verdict"]
    return Claim(claim, overall(verdicts), sentence([counts(verdicts)]), columns, rows)
