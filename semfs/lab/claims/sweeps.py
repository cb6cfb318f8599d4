"""Claims about the experiments that vary one thing, and about Algorithm 1."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

from semfs.lab.claims.claim import Claim, not_run
from semfs.lab.claims.comparisons import against_each
from semfs.lab.claims.measured import (
    CENTER_LOSS,
    OURS,
    PUBLISHED,
    Sweep,
    attribute_leads,
    gap,
    objectives,
    scores_of,
    slope,
    swept,
    times,
)
from semfs.lab.claims.rules import (
    FEWEST_ITERATIONS,
    HIGHEST_ALPHA,
    LOWEST_ALPHA,
    data_set_verdict,
    equal_verdict,
    falling_verdict,
    iterations_verdict,
    linear_verdict,
    overall,
    settled_at,
)
from semfs.lab.claims.words import (
    NO_NUMBER,
    counts,
    lead_in_points,
    mean_of_data_sets,
    sentence,
)
from semfs.lab.comparison import METRICS, Interval, Row
from semfs.lab.sections import data_title


def sweep_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about the experiments that vary one thing."""
    return [
        attributes_against_labels(rows),
        labeled_share(rows),
        more_labels(rows),
        alpha(rows),
        objective_falls(rows),
        iterations(rows),
        linear_time(rows),
        preprocessing(rows),
    ]


def attributes_against_labels(rows: Sequence[Row]) -> Claim:
    """Attributes as targets against labels: SemFS, SemFS/c and LASSO."""
    claim = "Attributes generalize far better than class labels"
    verdicts = []
    table = []
    leads_of_ours = []
    for name, leads in attribute_leads(rows).items():
        for method, of_method in leads.items():
            verdict = data_set_verdict(of_method)
            cells = map(lead_in_points, of_method)
            table.append([name, method, *cells, str(of_method[0].n), verdict])
            if method == OURS:
                verdicts.append(verdict)
                leads_of_ours.append(of_method[0])
    if not verdicts:
        return not_run(claim)
    columns = [
        "data set",
        "method",
        "attributes − labels in ACC",
        "in NMI",
        "splits",
        "verdict",
    ]
    text = sentence([mean_of_data_sets(leads_of_ours), counts(verdicts)])
    return Claim(claim, overall(verdicts), text, columns, table)


def labeled_share(rows: Sequence[Row]) -> Claim:
    """The slope of the lead of SemFS over the labeled share."""
    claim = "The advantage over labels and ANOVA F grows with the labeled share"
    verdicts = []
    table = []
    for name, methods in swept(rows, "labeled-ratio", "ratio", "acc").items():
        slopes = _slopes(methods)
        # The paper's rivals are the first two; Markers are shown for reference.
        judged = [found for rival, found in slopes.items() if rival != "Markers per class"]
        verdict = data_set_verdict(judged)
        for rival, found in slopes.items():
            table.append([name, rival, lead_in_points(found), str(found.n), verdict])
        if judged:
            verdicts.append(verdict)
    if not verdicts:
        return not_run(claim)
    growth = "growth of the lead in ACC from no to all labels"
    columns = ["data set", "SemFS over", growth, "splits", "verdict"]
    return Claim(claim, overall(verdicts), sentence([counts(verdicts)]), columns, table)


def _slopes(methods: Mapping[str, Sweep]) -> dict[str, Interval]:
    """The growth of the lead of SemFS over each rival that has it at two shares."""
    if OURS not in methods:
        return {}
    rivals = ("ANOVA F", "SemFS (labels)", "Markers per class")
    slopes = {
        rival: slope(methods[OURS], methods[rival]) for rival in rivals if rival in methods
    }
    return {rival: found for rival, found in slopes.items() if found.n > 0}


def more_labels(rows: Sequence[Row]) -> Claim:
    """By how much scores with the largest labeled share exceed those with the smallest."""
    claim = "More labels of the seen classes give better features"
    by_metric = {metric: swept(rows, "labeled-ratio", "ratio", metric) for metric in METRICS}
    verdicts = []
    table = []
    for name, methods in by_metric["acc"].items():
        leads = {
            method: [_gain(found[name][method]) for found in by_metric.values()]
            for method in (OURS, CENTER_LOSS)
            if len(methods.get(method, {})) > 1
        }
        if not leads:
            continue
        verdict = data_set_verdict(lead for of_method in leads.values() for lead in of_method)
        for method, of_method in leads.items():
            cells = map(lead_in_points, of_method)
            table.append([name, method, *cells, str(of_method[0].n), verdict])
        verdicts.append(verdict)
    if not verdicts:
        return not_run(claim)
    gains = ["largest − smallest share in ACC", "in NMI"]
    columns = ["data set", "method", *gains, "splits", "verdict"]
    return Claim(claim, overall(verdicts), sentence([counts(verdicts)]), columns, table)


def _gain(by_share: Sweep) -> Interval:
    """The lead of the largest labeled share over the smallest."""
    return gap(by_share[max(by_share)], by_share[min(by_share)])


def alpha(rows: Sequence[Row]) -> Claim:
    """Differences in ACC between small values of α and 1."""
    claim = "Results remain almost the same for α from 0.001 to 1"
    verdicts = []
    table = []
    largest = 0.0
    for name, methods in swept(rows, "alpha", "alpha", "acc").items():
        for method, by_alpha in methods.items():
            gaps = _gaps_to_highest_alpha(by_alpha)
            if not gaps:
                continue
            verdict = equal_verdict(gaps.values())
            widest = max(gaps, key=lambda x: abs(gaps[x].mean))
            found = gaps[widest]
            largest = max(largest, abs(found.mean))
            cells = [f"{widest:g}", lead_in_points(found), str(found.n)]
            table.append([name, method, *cells, verdict])
            verdicts.append(verdict)
    if not verdicts:
        return not_run(claim)
    text = (
        f"Confirmed in {verdicts.count('confirmed')} of {len(verdicts)} pairs of data set and "
        f"method; the largest mean difference to α = {HIGHEST_ALPHA:g} is {largest:.3f} in ACC."
    )
    at = "α of the largest difference"
    columns = ["data set", "method", at, "ACC minus that at α = 1", "splits", "verdict"]
    return Claim(claim, overall(verdicts), text, columns, table)


def _gaps_to_highest_alpha(by_alpha: Sweep) -> dict[float, Interval]:
    """The differences in ACC between each smaller α and the highest of the paper's range."""
    at_highest = by_alpha.get(HIGHEST_ALPHA, {})
    smaller = [x for x in sorted(by_alpha) if LOWEST_ALPHA <= x < HIGHEST_ALPHA]
    gaps = {x: gap(by_alpha[x], at_highest) for x in smaller}
    return {x: found for x, found in gaps.items() if found.n > 0}


def objective_falls(rows: Sequence[Row]) -> Claim:
    """Whether the objective of Algorithm 1 never rises."""
    claim = "The objective of Algorithm 1 never rises (Proposition 1)"
    runs = objectives(rows)
    if not runs:
        return not_run(claim)
    verdicts = [falling_verdict(row["objective"]) for row in runs]
    table = [
        [
            data_title(row["dataset"]),
            row["method"],
            f"{_largest_rise(row['objective']):.1g}",
            verdict,
        ]
        for row, verdict in zip(runs, verdicts, strict=True)
    ]
    text = f"It never rises in {verdicts.count('confirmed')} of {len(verdicts)} runs."
    columns = ["data set", "algorithm", "largest rise of J, as a share", "verdict"]
    return Claim(claim, overall(verdicts), text, columns, table)


def _largest_rise(J: Sequence[float]) -> float:
    """The largest share of its value by which an iteration raises the objective; 0 if none."""
    return max(
        [0.0, *((after - before) / abs(before) for before, after in pairwise(J) if before)]
    )


def iterations(rows: Sequence[Row]) -> Claim:
    """Iterations until the objective of Algorithm 1 no longer falls."""
    claim = f"Algorithm 1 converges, usually in fewer than {FEWEST_ITERATIONS} iterations"
    runs = objectives(rows)
    if not runs:
        return not_run(claim)
    verdicts = [iterations_verdict(row["objective"]) for row in runs]
    table = [_iterations_row(row, verdict) for row, verdict in zip(runs, verdicts, strict=True)]
    falls = [_fall(row["objective"]) for row in runs if row["method"] == PUBLISHED]
    n_iterations = max(len(row["objective"]) for row in runs)
    text = (
        f"Arrived by then in {verdicts.count('confirmed')} of {len(verdicts)} runs; with the "
        f"published settings all {n_iterations} iterations lower J by "
        f"{100 * max(falls, default=0.0):.1g} % at most."
    )
    columns = [
        "data set",
        "algorithm",
        "share by which J falls in all",
        "in the last iteration",
        "arrived at iteration",
        "verdict",
    ]
    return Claim(claim, overall(verdicts), text, columns, table)


def _iterations_row(row: Row, verdict: str) -> list[str]:
    """How far and how soon the objective of one run falls."""
    J = row["objective"]
    settled = settled_at(J)
    arrived = f"> {len(J)}" if settled is None else str(settled)
    falls = [f"{_fall(J):.2g}", f"{_fall(J[-2:]):.1g}"]
    return [data_title(row["dataset"]), row["method"], *falls, arrived, verdict]


def _fall(J: Sequence[float]) -> float:
    """The share of its first value by which an objective falls."""
    return 1.0 - J[-1] / J[0] if J[0] else 0.0


def linear_time(rows: Sequence[Row]) -> Claim:
    """The power of n with which the time of a fit grows."""
    claim = "Time grows linearly with the number of samples"
    verdicts = []
    table = []
    for method, points in times(rows).items():
        if len(points) < 2:
            continue
        (n0, t0), (n1, t1) = points[-2:]
        power = math.log(t1 / t0) / math.log(n1 / n0)
        verdict = NO_NUMBER
        if method.startswith("SemFS"):
            verdict = linear_verdict([n for n, _ in points], power)
            verdicts.append(verdict)
        table.append([method, f"{t1:.3g}", f"{power:.2f}", verdict])
    if not verdicts:
        return not_run(claim)
    text = f"So it is for {verdicts.count('confirmed')} of {len(verdicts)} ways to solve it."
    columns = [
        "method",
        f"seconds at n = {n1:,}",
        f"power of n from {n0:,} to {n1:,}",
        "verdict",
    ]
    return Claim(claim, overall(verdicts), text, columns, table)


def preprocessing(rows: Sequence[Row]) -> Claim:
    """Algorithm 1 and the direct solver against Random, for each preprocessing."""
    claim = "Algorithm 1 selects better features than Random"
    verdicts = []
    table = []
    for name, methods in swept(rows, "preprocessing", "preprocessing", "acc").items():
        for kind in methods.get("Random", {}):
            leads = {
                method: gap(methods.get(method, {}).get(kind, {}), methods["Random"][kind])
                for method in (PUBLISHED, OURS)
            }
            if leads[PUBLISHED].n == 0:
                continue
            verdict = data_set_verdict([leads[PUBLISHED]])
            cells = map(lead_in_points, leads.values())
            table.append([name, kind, *cells, str(leads[PUBLISHED].n), verdict])
            verdicts.append(verdict)
    if not verdicts:
        return _published_on_raw(claim, rows)
    text = sentence([counts(verdicts, "pair of data set and preprocessing")])
    leads_over = ["Algorithm 1 − Random in ACC", "direct solver − Random"]
    columns = ["data set", "samples", *leads_over, "splits", "verdict"]
    return Claim(claim, overall(verdicts), text, columns, table)


def _published_on_raw(claim: str, rows: Sequence[Row]) -> Claim:
    """The same from the main comparison, whose features are raw."""
    scores = scores_of(rows)
    rivals = {
        name: ["Random"]
        for name, methods in scores.items()
        if PUBLISHED in methods and "Random" in methods
    }
    return against_each(claim, scores, PUBLISHED, rivals, ["acc"])
