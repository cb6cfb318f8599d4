"""Claims about the experiments that vary one thing, and about Algorithm 1."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import pairwise

from semfs.lab.claims.claim import Claim, Findings
from semfs.lab.claims.measured import (
    LABELS_ALONE,
    OURS,
    PUBLISHED,
    VARIANT,
    Sweep,
    attribute_leads,
    gap,
    lead_of,
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
    STOPPED,
    data_set_verdict,
    equal_verdict,
    falling_verdict,
    iterations_verdict,
    linear_verdict,
    settled_at,
    stopped_at,
)
from semfs.lab.claims.words import (
    NO_NUMBER,
    counted,
    lead_in_points,
    sentence,
)
from semfs.lab.comparison import METRICS, Interval, Row, paired_interval
from semfs.lab.sections import data_title
from semfs.lab.splits import PREPROCESSINGS

#: The samples of the main comparison.
RAW = PREPROCESSINGS[0]
#: Selectors that were run at several labeled shares: two baselines of the paper, two others.
JUDGED_RIVALS = ("Random", "LASSO", "ANOVA F", "Markers per class")
#: What is shown at each labeled share: whether labels do as well is a claim of its own.
SHARE_RIVALS = (*JUDGED_RIVALS, LABELS_ALONE)


def sweep_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims about the experiments that vary one thing."""
    return [
        attributes_against_labels(rows),
        few_labels(rows),
        labeled_share(rows),
        more_labels(rows),
        alpha(rows),
        objective_falls(rows),
        iterations(rows),
        linear_time(rows),
        preprocessing(rows),
    ]


# ---- attributes, labels, alpha ---------------------------------------------------------------


def attributes_against_labels(rows: Sequence[Row]) -> Claim:
    """Judge attributes against labels as targets, for SemFS, SemFS/c and LASSO."""
    findings = Findings(
        ["data set", "method", "attributes − labels in ACC", "in NMI", "splits"],
        noun="pair of data set and method",
    )
    by_method: dict[str, list[Interval]] = defaultdict(list)
    for name, leads in attribute_leads(rows).items():
        for method, of_method in leads.items():
            cells = [name, method, *map(lead_in_points, of_method), str(of_method[0].n)]
            findings.add(cells, data_set_verdict(of_method))
            by_method[method].append(of_method[0])
    # The interval of two numbers says nothing.
    means = {
        method: paired_interval([lead.mean for lead in of_method])
        for method, of_method in by_method.items()
        if len(of_method) > 2
    }
    shown = [f"{method} {lead_in_points(mean)}" for method, mean in means.items()]
    parts = [f"mean lead in ACC: {', '.join(shown)}"] if shown else []
    return findings.claim("Attributes generalize far better than class labels", *parts)


def few_labels(rows: Sequence[Row]) -> Claim:
    """Judge the lead of SemFS with the smallest labeled share."""
    findings = Findings(["data set", "labeled share", "SemFS over", "lead in ACC", "splits"])
    for name, methods in swept(rows, "labeled-ratio", "ratio", "acc").items():
        ours = methods.get(OURS, {})
        if len(ours) < 2:
            continue
        share = min(ours)
        leads = {
            rival: gap(ours[share], methods[rival].get(share, {}))
            for rival in SHARE_RIVALS
            if rival in methods
        }
        _add_share_leads(findings, leads, [name, f"{share:g}"])
    return findings.claim("With a tenth of the labels SemFS is ahead already", _rivals(rows))


def labeled_share(rows: Sequence[Row]) -> Claim:
    """Judge the slope of the lead of SemFS over the labeled share."""
    growth = "slope of the lead in ACC over the labeled share"
    findings = Findings(["data set", "SemFS over", growth, "splits"])
    for name, methods in swept(rows, "labeled-ratio", "ratio", "acc").items():
        if OURS not in methods:
            continue
        slopes = {
            rival: slope(methods[OURS], methods[rival])
            for rival in SHARE_RIVALS
            if rival in methods
        }
        _add_share_leads(findings, slopes, [name])
    return findings.claim("The advantage of SemFS grows with the labeled share", _rivals(rows))


def _rivals(rows: Sequence[Row]) -> str:
    """Return the selectors that were run at several labeled shares, in words."""
    sweeps = swept(rows, "labeled-ratio", "ratio", "acc")
    n_sets = {
        rival: sum(rival in methods for methods in sweeps.values()) for rival in JUDGED_RIVALS
    }
    most = max(n_sets.values(), default=0)
    names = [
        rival if n == most else f"{rival} ({counted(n)})" for rival, n in n_sets.items() if n
    ]
    return f"over {', '.join(names)}"


def _add_share_leads(
    findings: Findings, leads: Mapping[str, Interval], place: Sequence[str]
) -> None:
    """Add the leads at one point, judged by those over selectors that represent others."""
    leads = {rival: lead for rival, lead in leads.items() if lead.n > 0}
    judged = [leads[rival] for rival in JUDGED_RIVALS if rival in leads]
    if not judged:
        return
    for rival, lead in leads.items():
        verdict = data_set_verdict([lead]) if rival in JUDGED_RIVALS else NO_NUMBER
        findings.show([*place, rival, lead_in_points(lead), str(lead.n)], verdict)
    findings.count(data_set_verdict(judged))


def more_labels(rows: Sequence[Row]) -> Claim:
    """Judge how much better the largest labeled share is than the smallest."""
    by_metric = {metric: swept(rows, "labeled-ratio", "ratio", metric) for metric in METRICS}
    gains = ["largest − smallest share in ACC", "in NMI"]
    findings = Findings(["data set", "method", *gains, "splits"])
    for name, methods in by_metric["acc"].items():
        leads = {
            method: [_gain(found[name][method]) for found in by_metric.values()]
            for method in (OURS, VARIANT)
            if len(methods.get(method, {})) > 1
        }
        for method, of_method in leads.items():
            cells = [name, method, *map(lead_in_points, of_method), str(of_method[0].n)]
            findings.show(cells, data_set_verdict(of_method))
        if leads:
            every_lead = [lead for of_method in leads.values() for lead in of_method]
            findings.count(data_set_verdict(every_lead))
    return findings.claim("More labels of the seen classes give better features")


def _gain(by_share: Sweep) -> Interval:
    """Return the lead of the largest labeled share over the smallest."""
    return gap(by_share[max(by_share)], by_share[min(by_share)])


def alpha(rows: Sequence[Row]) -> Claim:
    """Judge the differences in ACC between small values of α and 1."""
    findings = Findings(
        [
            "data set",
            "method",
            "α of the largest difference",
            "ACC minus that at α = 1",
            "splits",
        ],
        noun="pair of data set and method",
    )
    largest = 0.0
    for name, methods in swept(rows, "alpha", "alpha", "acc").items():
        for method, by_alpha in methods.items():
            gaps = _gaps_to_highest_alpha(by_alpha)
            if not gaps:
                continue
            widest = max(gaps, key=lambda x: abs(gaps[x].mean))
            found = gaps[widest]
            largest = max(largest, abs(found.mean))
            cells = [name, method, f"{widest:g}", lead_in_points(found), str(found.n)]
            findings.add(cells, equal_verdict(gaps.values()))
    return findings.claim(
        "Results remain almost the same for α from 0.001 to 1",
        f"largest mean difference to α = {HIGHEST_ALPHA:g} in ACC: {largest:.3f}",
    )


def _gaps_to_highest_alpha(by_alpha: Sweep) -> dict[float, Interval]:
    """Return differences in ACC between each smaller α and the paper's highest."""
    at_highest = by_alpha.get(HIGHEST_ALPHA, {})
    smaller = [x for x in sorted(by_alpha) if LOWEST_ALPHA <= x < HIGHEST_ALPHA]
    gaps = {x: gap(by_alpha[x], at_highest) for x in smaller}
    return {x: found for x, found in gaps.items() if found.n > 0}


# ---- Algorithm 1 and time --------------------------------------------------------------------


def objective_falls(rows: Sequence[Row]) -> Claim:
    """Judge whether the objective of Algorithm 1 never rises."""
    findings = Findings(["data set", "algorithm", "largest rise of J, as a share"])
    for row in objectives(rows):
        J = row["objective"]
        cells = [data_title(row["dataset"]), row["method"], f"{_largest_rise(J):.1g}"]
        findings.add(cells, falling_verdict(J))
    n_falling = findings.verdicts.count("confirmed")
    return findings.claim(
        "The objective of Algorithm 1 never rises (Proposition 1)",
        text=f"It never rises in {n_falling} of {counted(len(findings.verdicts), 'run')}.",
    )


def _largest_rise(J: Sequence[float]) -> float:
    """Return the largest relative rise of the objective in an iteration, or 0."""
    return max(
        [0.0, *((after - before) / abs(before) for before, after in pairwise(J) if before)]
    )


def iterations(rows: Sequence[Row]) -> Claim:
    """Judge the iterations until the objective of Algorithm 1 no longer decreases."""
    findings = Findings(
        [
            "data set",
            "algorithm",
            "share by which J falls in all",
            "in the last iteration",
            f"falls by less than {100 * STOPPED:g} % at iteration",
            "converged at iteration",
        ]
    )
    runs = objectives(rows)
    for row in runs:
        J = row["objective"]
        reached = [_iteration(at, len(J)) for at in (stopped_at(J), settled_at(J))]
        falls = [f"{_fall(J):.2g}", f"{_fall(J[-2:]):.1g}"]
        cells = [data_title(row["dataset"]), row["method"], *falls, *reached]
        findings.add(cells, iterations_verdict(J))
    claim = f"Algorithm 1 converges, usually in fewer than {FEWEST_ITERATIONS} iterations"
    return findings.claim(claim, text=_iterations_text(runs, findings.verdicts))


def _iterations_text(runs: Sequence[Row], verdicts: Sequence[str]) -> str:
    """Return a text on how many runs converge, and where a program would stop."""
    parts = [
        f"converged by then in {verdicts.count('confirmed')} of {counted(len(verdicts), 'run')}"
    ]
    published = [row["objective"] for row in runs if row["method"] == PUBLISHED]
    if published:
        stops = [stopped_at(J) for J in published]
        n_stopped = sum(at is not None and at < FEWEST_ITERATIONS for at in stops)
        n_iterations = max(len(J) for J in published)
        largest_fall = max(map(_fall, published))
        parts.append(
            "with our step 1/λ_max (the paper names none), a usual stopping rule (J falls by "
            f"less than {100 * STOPPED:g} %) stops by then in {n_stopped} of {len(published)}, "
            f"although all {n_iterations} iterations lower J by "
            f"only {100 * largest_fall:.1g} % at most"
        )
    return sentence(parts)


def _iteration(at: int | None, n_iterations: int) -> str:
    """Return an iteration, or that it is beyond those that were run."""
    return f"> {n_iterations}" if at is None else str(at)


def _fall(J: Sequence[float]) -> float:
    """Return the share of its first value by which an objective falls."""
    return 1.0 - J[-1] / J[0] if J[0] else 0.0


def linear_time(rows: Sequence[Row]) -> Claim:
    """Judge the power of n with which the time of a fit grows."""
    measured = {method: points for method, points in times(rows).items() if len(points) > 1}
    (n0, _), (n1, _) = next(iter(measured.values()), [(0, 0.0), (0, 0.0)])[-2:]
    findings = Findings(
        ["method", f"seconds at n = {n1:,}", f"power of n from {n0:,} to {n1:,}"]
    )
    for method, points in measured.items():
        (n0, t0), (n1, t1) = points[-2:]
        power = math.log(t1 / t0) / math.log(n1 / n0)
        cells = [method, f"{t1:.3g}", f"{power:.2f}".replace("-", "−")]
        if method.startswith("SemFS"):
            findings.add(cells, linear_verdict([n for n, _ in points], power))
        else:
            findings.show(cells, NO_NUMBER)
    n_linear = findings.verdicts.count("confirmed")
    return findings.claim(
        "Time grows linearly with the number of samples",
        text=(
            f"Not faster than linearly, up to n = {n1:,}, for {n_linear} of "
            f"{len(findings.verdicts)} solvers."
        ),
    )


def preprocessing(rows: Sequence[Row]) -> Claim:
    """Judge Algorithm 1 as published against Random, for each preprocessing.

    Scores of raw samples are those of the main comparison where it has more splits.
    """
    claim = "Algorithm 1, with the paper's settings, selects better features than Random"
    findings = Findings(
        [
            "data set",
            "samples",
            "Algorithm 1 − Random in ACC",
            "SemFS at its defaults − Random",
            "splits",
        ],
        noun="pair of data set and preprocessing",
    )
    for name, by_kind in _leads_over_random(rows).items():
        for kind, (of_published, of_ours) in by_kind.items():
            if of_published.n > 0:
                leads = [lead_in_points(lead) for lead in (of_published, of_ours)]
                cells = [name, kind, *leads, str(of_published.n)]
                findings.add(cells, data_set_verdict([of_published]))
    return findings.claim(claim)


def _leads_over_random(rows: Sequence[Row]) -> dict[str, dict[str, list[Interval]]]:
    """Return the leads of `PUBLISHED` and `OURS` by data set and preprocessing."""
    ours = (PUBLISHED, OURS)
    found: dict[str, dict[str, list[Interval]]] = {
        name: {RAW: [lead_of(methods, "acc", method, "Random") for method in ours]}
        for name, methods in scores_of(rows).items()
        if "Random" in methods
    }
    for name, methods in swept(rows, "preprocessing", "preprocessing", "acc").items():
        of_set = found.setdefault(name, {})
        for kind, of_random in methods.get("Random", {}).items():
            leads = [gap(methods.get(method, {}).get(kind, {}), of_random) for method in ours]
            if kind not in of_set or of_set[kind][0].n < leads[0].n:
                of_set[kind] = leads
    return found
