"""What the rows of benchmarks/results/reproduce.json say about each claim of the paper.

A lead is the difference of two methods on the same class split, averaged over k, with Student's
95 % interval over the splits. `RULES` states what makes a claim confirmed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, TypeAlias

from semfs.lab.comparison import METRICS, Interval, is_oracle, paired_interval
from semfs.lab.sections import data_title

#: The baselines of the paper, and those of them that use class labels.
PAPER_BASELINES = ("Random", "MCFS", "FSASL", "LASSO", "L20ALM", "WkNN")
SUPERVISED = ("LASSO", "L20ALM", "WkNN")
#: The method of the paper: its objective, solved directly, and by its own algorithm.
OURS = "SemFS"
PUBLISHED = "SemFS as published"
#: The same with descriptions of the unseen classes, which the paper's method does not use.
TOLD = "SemFS, unseen classes described"

#: Fewer splits decide nothing.
FEWEST_SPLITS = 10
#: The paper's headline: a relative lead in ACC of at least this share, at this k.
HEADLINE_LEAD = 0.2
HEADLINE_K = 20
#: The data set whose features are of the paper's kind.
HEADLINE_DATA = "Birds (CUB, VGG features)"
#: Differences in ACC within this are called none.
EQUAL = 0.01
#: The range of α in which the paper sees no difference.
HIGHEST_ALPHA = 1.0
#: Convergence: iterations that the paper needs at most, and the share of the largest fall of
#: the objective below which the fall of an iteration must be.
FEWEST_ITERATIONS = 20
SETTLED = 0.01
#: Growth of time with n up to this power is called linear.
LINEAR = 1.15

RULES = f"""\
A claim is judged on each data set: it is confirmed there if the 95 % interval of the lead is
above zero (in ACC and in NMI, where both are shown), refuted if an interval is below zero, and
undecided otherwise or with fewer than {FEWEST_SPLITS} class splits. Over the data sets it is
**confirmed** if it is so on each, **in part** if on some of them, **not** confirmed if on none
and refuted on one at least, else **undecided**. These claims have other rules:

- *Headline*: confirmed if the mean relative lead over the best baseline of the paper is at
  least {100 * HEADLINE_LEAD:.0f} % and its interval is above zero; refuted if the interval ends
  below {100 * HEADLINE_LEAD:.0f} %. The best baseline is the one that is above each other one
  (or most of them) in ACC at k = {HEADLINE_K}, on the splits that both have.
- *α*: confirmed if the interval of the difference in ACC to α = {HIGHEST_ALPHA:g} is within
  ±{EQUAL:g} for each smaller α; refuted if one is outside.
- *Iterations*: one run on each data set. It has arrived at the first iteration in which the
  objective falls by less than {100 * SETTLED:.0f} % of its largest fall; confirmed if that is
  before the {FEWEST_ITERATIONS}th.
- *Linear time*: confirmed if from the last but one number of samples to the last the time grows
  with a power of at most {LINEAR:g}.

In the main comparison SemFS knows the attributes of the seen classes alone, as in the paper,
and its settings are the defaults. Baselines are at their defaults unless called *(oracle)*."""

#: Score of each split and k of one method, by metric.
MethodScores: TypeAlias = dict[str, dict[tuple[str, int], float]]
#: Scores of the methods of each data set.
Scores: TypeAlias = dict[str, dict[str, MethodScores]]
Row: TypeAlias = Mapping[str, Any]
#: Mean over k of each split, by value of what an experiment varies.
Sweep: TypeAlias = dict[Any, dict[str, float]]


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict, one sentence about it, and a table of the numbers.

    The ``head`` and the ``rows`` of the table have cells separated by " | "; no rows, no table.
    """

    claim: str
    verdict: str
    sentence: str
    head: str = ""
    rows: Sequence[str] = ()


NOT_RUN = "Not run."


def all_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of the paper with what the rows say; the headline comes first."""
    scores = scores_of(rows)
    return [
        headline(scores),
        first_everywhere(scores),
        tuned_baselines(scores),
        mcfs_against_supervised(scores),
        against_center_loss(scores),
        attributes_against_labels(rows),
        labeled_share(rows),
        alpha(rows),
        iterations(rows),
        linear_time(rows),
        preprocessing(rows),
    ]


# ---- verdicts --------------------------------------------------------------------------------


def data_set_verdict(leads: Iterable[Interval]) -> str:
    """Return what the leads on one data set say together.

    >>> data_set_verdict([Interval(0.2, 0.1, 0.3, 10), Interval(0.2, -0.1, 0.3, 10)])
    'undecided'
    """
    verdicts = [lead.verdict if lead.n >= FEWEST_SPLITS else "not tested" for lead in leads]
    if "behind" in verdicts:
        return "not"
    if verdicts and set(verdicts) == {"ahead"}:
        return "confirmed"
    return "undecided"


def overall(verdicts: Sequence[str]) -> str:
    """Return the verdict over the data sets.

    >>> overall(["confirmed", "not"])
    'in part'
    """
    if verdicts and set(verdicts) == {"confirmed"}:
        return "confirmed"
    if "confirmed" in verdicts:
        return "in part"
    return "not" if "not" in verdicts else "undecided"


def counts(verdicts: Sequence[str]) -> str:
    """The number of data sets with each verdict, in words."""
    parts = [f"confirmed on {verdicts.count('confirmed')} of {_data_sets(len(verdicts))}"]
    if "not" in verdicts:
        parts.append(f"refuted on {verdicts.count('not')}")
    return ", ".join(parts)


def _data_sets(n: int) -> str:
    return "1 data set" if n == 1 else f"{n} data sets"


# ---- the main comparison ---------------------------------------------------------------------


def headline(scores: Scores) -> Claim:
    """The relative lead in ACC over the best baseline of the paper at k = 20."""
    verdicts, lines, found = [], [], {}
    for name, methods in scores.items():
        rivals = [label for label in PAPER_BASELINES if label in methods]
        if OURS not in methods or not rivals:
            continue
        best = best_rival(methods, rivals)
        lead = _relative_lead(methods, OURS, best)
        verdict = _headline_verdict(lead)
        told = _percent(_relative_lead(methods, TOLD, best)) if TOLD in methods else "–"
        lines.append(f"{name} | {best} | {_percent(lead)} | {lead.n} | {verdict} | {told}")
        verdicts.append(verdict)
        found[name] = lead
    text = f"SemFS leads the best baseline by 20–40 % in ACC at k = {HEADLINE_K}"
    if not found:
        return Claim(text, "undecided", NOT_RUN)
    parts = []
    if HEADLINE_DATA in found:
        parts.append(f"CUB: {_percent(found[HEADLINE_DATA])}")
    if len(found) > 1:
        mean = paired_interval([lead.mean for lead in found.values()])
        parts.append(f"mean of {len(found)} data sets {_percent(mean)}")
    parts.append(counts(verdicts))
    head = (
        "data set | best baseline | relative lead of SemFS in ACC: | splits: | verdict | "
        "with descriptions of the unseen classes:"
    )
    return Claim(text, overall(verdicts), _sentence(parts), head, lines)


def _headline_verdict(lead: Interval) -> str:
    if lead.low is None or lead.high is None or lead.n < FEWEST_SPLITS:
        return "undecided"
    if lead.mean >= HEADLINE_LEAD and lead.low > 0:
        return "confirmed"
    return "not" if lead.high < HEADLINE_LEAD else "undecided"


def best_rival(methods: Mapping[str, MethodScores], rivals: Sequence[str]) -> str:
    """The rival that is above most others, each on the splits that both have."""

    def rank(label: str) -> tuple[int, int]:
        others = [other for other in rivals if other != label]
        n_below = sum(_is_above(methods, label, other) for other in others)
        return n_below, len(_splits_at(methods[label]))

    return max(rivals, key=rank)


def _splits_at(scores: MethodScores) -> set[str]:
    return {split for split, k in scores["acc"] if k == HEADLINE_K}


def _relative_lead(
    methods: Mapping[str, MethodScores], ours: str, best: str, k: int = HEADLINE_K
) -> Interval:
    """The relative lead in ACC at k features, on the splits that both methods have."""
    splits = sorted(_splits_at(methods[ours]) & _splits_at(methods[best]))
    a, b = methods[ours]["acc"], methods[best]["acc"]
    return paired_interval([a[s, k] / b[s, k] - 1 for s in splits])


def lead_in_words(scores: Scores, name: str) -> str:
    """The lead of SemFS on a data set whose features are of the paper's kind, or nothing."""
    methods = scores.get(name, {})
    rivals = [label for label in PAPER_BASELINES if label in methods]
    if OURS not in methods or not rivals:
        return ""
    best = best_rival(methods, rivals)
    lead = _relative_lead(methods, OURS, best)
    others = [
        f"{100 * _relative_lead(methods, OURS, best, k).mean:+.0f} % at {k}"
        for k in sorted({k for _, k in methods[OURS]["acc"]} - {HEADLINE_K})
    ]
    verdict = _headline_verdict(lead)
    is_ahead = lead.low is not None and lead.low > 0
    words = {
        "confirmed": "as the paper says.",
        "not": f"less than the {100 * HEADLINE_LEAD:.0f} % of the paper.",
        "undecided": f"whether that is {100 * HEADLINE_LEAD:.0f} % or more is undecided.",
    }[verdict]
    told = ""
    if TOLD in methods:
        of_told = _percent(_relative_lead(methods, TOLD, best))
        told = f" With descriptions of the unseen classes, unlike in the paper: {of_told}."
    return (
        f"On {name}, whose features are of the paper's kind, SemFS is "
        f"{'ahead' if is_ahead else 'not clearly ahead'} of {best}, the best of the paper's "
        f"baselines, by {_percent(lead)} in ACC at k = {HEADLINE_K} "
        f"({'; '.join([*others, f'class splits: {lead.n}'])}): {words}{told}"
    )


def leads_by_k(scores: Scores) -> tuple[str, list[str]]:
    """Head and rows of a table: the relative lead over the same baseline at each k."""
    ks: list[int] = []
    lines = []
    for name, methods in scores.items():
        rivals = [label for label in PAPER_BASELINES if label in methods]
        if OURS not in methods or not rivals:
            continue
        best = best_rival(methods, rivals)
        ks = sorted({k for _, k in methods[OURS]["acc"]})
        cells = [_percent(_relative_lead(methods, OURS, best, k)) for k in ks]
        n = _relative_lead(methods, OURS, best).n
        lines.append(" | ".join([name, best, *cells, str(n)]))
    heads = " | ".join(f"k = {k}:" for k in ks)
    return f"data set | SemFS over | {heads} | splits:", lines


def _is_above(methods: Mapping[str, MethodScores], label: str, best: str) -> bool:
    """Whether a method is above another one at k = 20, on the splits that both have."""
    splits = _splits_at(methods[label]) & _splits_at(methods[best])
    a, b = methods[label]["acc"], methods[best]["acc"]
    return bool(splits) and fmean(a[s, HEADLINE_K] - b[s, HEADLINE_K] for s in splits) > 0


def first_everywhere(scores: Scores) -> Claim:
    """Whether SemFS is above every rival that is not tuned on the test."""
    verdicts, lines = [], []
    for name, methods in scores.items():
        rivals = [m for m in methods if not m.startswith("SemFS") and not is_oracle(m)]
        if OURS not in methods or not rivals:
            continue
        leads = {r: [lead_of(methods, metric, OURS, r) for metric in METRICS] for r in rivals}
        groups: dict[str, list[str]] = {"confirmed": [], "undecided": [], "not": []}
        for rival, both in leads.items():
            groups[data_set_verdict(both)].append(rival)
        verdict = data_set_verdict(lead for both in leads.values() for lead in both)
        cells = [", ".join(names) or "–" for names in groups.values()]
        lines.append(" | ".join([name, *map(_escaped, cells), verdict]))
        verdicts.append(verdict)
    sentence = _sentence([counts(verdicts)]) if verdicts else NOT_RUN
    head = "data set | SemFS ahead of | undecided | behind, in ACC or NMI | verdict"
    return Claim("SemFS is first on every data set", overall(verdicts), sentence, head, lines)


def tuned_baselines(scores: Scores) -> Claim:
    """SemFS untuned against baselines with the best point of a grid, chosen on the test."""
    pairs = {
        name: [label for label in methods if label.lower().endswith("(oracle)")]
        for name, methods in scores.items()
        if OURS in methods
    }
    text = "SemFS, untuned, leads baselines that are tuned on the test, as in the paper"
    return _against_each(text, scores, OURS, pairs, tuple(METRICS))


def mcfs_against_supervised(scores: Scores) -> Claim:
    """Whether MCFS is at least as good as each supervised baseline of the paper."""
    pairs = {
        name: [label for label in SUPERVISED if label in methods]
        for name, methods in scores.items()
        if "MCFS" in methods
    }
    text = "MCFS is comparable to the supervised baselines, or better"
    return _against_each(text, scores, "MCFS", pairs, ("acc",))


def against_center_loss(scores: Scores) -> Claim:
    """SemFS against SemFS/c: leads, and spreads over the splits."""
    pairs = {name: ["SemFS/c"] for name, m in scores.items() if OURS in m and "SemFS/c" in m}
    text = "SemFS is better and steadier than SemFS/c"
    claim = _against_each(text, scores, OURS, pairs, tuple(METRICS))
    steadier = 0
    for name in pairs:
        spreads = [
            stdev(values) if len(values := list(by_split(scores[name][m]["acc"]).values())) > 1
            else 0.0
            for m in (OURS, "SemFS/c")
        ]  # fmt: skip
        steadier += spreads[0] < spreads[1]
    if not pairs:
        return claim
    leads = [lead_of(scores[name], "acc", OURS, "SemFS/c") for name in pairs]
    counted = f"{claim.sentence[0].lower()}{claim.sentence[1:]}"
    sentence = (
        f"{_mean_of_data_sets(leads)}; {counted} Over the splits ACC spreads less on "
        f"{steadier} of {_data_sets(len(pairs))}."
    )
    return Claim(text, claim.verdict, sentence, claim.head, claim.rows)


def _mean_of_data_sets(leads: Sequence[Interval]) -> str:
    """The mean of leads in ACC on several data sets, in words."""
    mean = paired_interval([lead.mean for lead in leads])
    return f"Mean lead in ACC {lead_text(mean)}"


def _against_each(
    text: str,
    scores: Scores,
    ours: str,
    pairs: Mapping[str, Sequence[str]],
    metrics: Sequence[str],
) -> Claim:
    """A claim that one method is above others, on each data set that has any of them."""
    verdicts, lines = [], []
    for name, rivals in pairs.items():
        if not rivals:
            continue
        methods = scores[name]
        leads = {r: [lead_of(methods, metric, ours, r) for metric in metrics] for r in rivals}
        verdict = data_set_verdict(lead for both in leads.values() for lead in both)
        for rival, both in leads.items():
            cells = " | ".join(map(lead_text, both))
            lines.append(f"{name} | {_escaped(rival)} | {cells} | {both[0].n} | {verdict}")
        verdicts.append(verdict)
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    titles = " | ".join(f"lead in {METRICS[metric]}:" for metric in metrics)
    head = f"data set | {ours} over | {titles} | splits: | verdict"
    return Claim(text, overall(verdicts), _sentence([counts(verdicts)]), head, lines)


# ---- experiments that vary one thing ---------------------------------------------------------


def attributes_against_labels(rows: Sequence[Row]) -> Claim:
    """Attributes as targets against labels: SemFS, SemFS/c and LASSO."""
    verdicts, lines, of_ours = [], [], []
    for name, leads in attribute_leads(rows).items():
        for method, both in leads.items():
            cells = " | ".join(map(lead_text, both))
            verdict = data_set_verdict(both)
            lines.append(f"{name} | {method} | {cells} | {both[0].n} | {verdict}")
            if method == OURS:
                verdicts.append(verdict)
                of_ours.append(both[0])
    text = "Attributes generalize far better than class labels"
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    head = "data set | method | attributes − labels in ACC: | in NMI: | splits: | verdict"
    sentence = _sentence([_mean_of_data_sets(of_ours), counts(verdicts)])
    return Claim(text, overall(verdicts), sentence, head, lines)


def attribute_leads(rows: Sequence[Row]) -> dict[str, dict[str, list[Interval]]]:
    """Leads of attributes over labels in ACC and NMI, by data set and method."""
    found: dict[str, dict[str, list[Interval]]] = defaultdict(dict)
    for experiment, pairs in {
        "clustering": {OURS: (OURS, "SemFS (labels)")},
        "attributes-vs-labels": {
            method: (f"{method} (attributes)", f"{method} (labels)")
            for method in (OURS, "SemFS/c", "LASSO")
        },
    }.items():
        for name, methods in scores_of(rows, experiment).items():
            for method, (with_, without) in pairs.items():
                # SemFS has more splits in the main comparison.
                if with_ in methods and without in methods and method not in found[name]:
                    leads = [lead_of(methods, m, with_, without) for m in METRICS]
                    found[name][method] = leads
    return {name: leads for name, leads in found.items() if leads}


def labeled_share(rows: Sequence[Row]) -> Claim:
    """The slope of the lead of SemFS over the labeled share."""
    verdicts, lines = [], []
    for name, methods in swept(rows, "labeled-ratio", "ratio", "acc").items():
        slopes = {
            rival: _slope(methods[OURS], methods[rival])
            for rival in ("ANOVA F", "SemFS (labels)", "Markers per class")
            if rival in methods and OURS in methods
        }
        slopes = {rival: slope for rival, slope in slopes.items() if slope is not None}
        # The paper's rivals are the first two; Markers are shown for reference.
        judged = [slope for rival, slope in slopes.items() if rival != "Markers per class"]
        verdict = data_set_verdict(judged)
        for rival, slope in slopes.items():
            lines.append(f"{name} | {rival} | {lead_text(slope)} | {slope.n} | {verdict}")
        if judged:
            verdicts.append(verdict)
    text = "The advantage over labels and ANOVA F grows with the labeled share"
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    head = (
        "data set | SemFS over | growth of the lead in ACC from no to all labels: | splits: | "
    )
    return Claim(
        text, overall(verdicts), _sentence([counts(verdicts)]), f"{head}verdict", lines
    )


def _slope(ours: Sweep, rival: Sweep) -> Interval | None:
    """The least-squares slope of the lead over what is varied, by split; None if too few."""
    leads: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for x in sorted(set(ours) & set(rival)):
        for split in set(ours[x]) & set(rival[x]):
            leads[split].append((x, ours[x][split] - rival[x][split]))
    most = max(map(len, leads.values()), default=0)
    if most < 2:
        return None
    # Only splits that have all shares: the slope depends on them.
    slopes = []
    for _, points in sorted(leads.items()):
        if len(points) == most:
            middle = fmean(x for x, _ in points)
            above = sum((x - middle) * lead for x, lead in points)
            slopes.append(above / sum((x - middle) ** 2 for x, _ in points))
    return paired_interval(slopes)


def alpha(rows: Sequence[Row]) -> Claim:
    """Differences in ACC between small values of α and 1."""
    verdicts, lines, largest = [], [], 0.0
    for name, methods in swept(rows, "alpha", "alpha", "acc").items():
        for method, by_alpha in methods.items():
            gaps = {
                x: _gap(by_alpha[x], by_alpha[HIGHEST_ALPHA])
                for x in sorted(by_alpha)
                if x < HIGHEST_ALPHA in by_alpha and set(by_alpha[x]) & set(by_alpha[1.0])
            }
            if not gaps:
                continue
            verdict = _equal_verdict(gaps.values())
            largest = max(largest, *(abs(gap.mean) for gap in gaps.values()))
            widest = max(gaps, key=lambda x: abs(gaps[x].mean))
            gap = gaps[widest]
            lines.append(
                f"{name} | {method} | {widest:g} | {lead_text(gap)} | {gap.n} | {verdict}"
            )
            verdicts.append(verdict)
    text = "Results remain almost the same for α from 0.001 to 1"
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    n = verdicts.count("confirmed")
    sentence = (
        f"Confirmed in {n} of {len(verdicts)} pairs of data set and method; the largest mean "
        f"difference to α = 1 is {largest:.3f} in ACC."
    )
    head = (
        "data set | method | α of the largest difference: | ACC minus that at α = 1: | "
        "splits: | verdict"
    )
    return Claim(text, overall(verdicts), sentence, head, lines)


def _gap(a: Mapping[str, float], b: Mapping[str, float]) -> Interval:
    return paired_interval([a[split] - b[split] for split in sorted(a) if split in b])


def _equal_verdict(gaps: Iterable[Interval]) -> str:
    """Whether all differences are within ±EQUAL, or one is outside."""
    verdicts = set()
    for gap in gaps:
        if gap.low is None or gap.high is None or gap.n < FEWEST_SPLITS:
            verdicts.add("undecided")
        elif gap.low > EQUAL or gap.high < -EQUAL:
            verdicts.add("not")
        else:
            inside = -EQUAL <= gap.low and gap.high <= EQUAL
            verdicts.add("confirmed" if inside else "undecided")
    if "not" in verdicts:
        return "not"
    return "confirmed" if verdicts == {"confirmed"} else "undecided"


def iterations(rows: Sequence[Row]) -> Claim:
    """Iterations until the objective of Algorithm 1 no longer falls."""
    verdicts, lines, falls = [], [], [0.0]
    for row in objectives(rows):
        J = row["objective"]
        settled = settled_at(J)
        arrived = f"> {len(J)}" if settled is None else str(settled)
        is_fast = settled is not None and settled < FEWEST_ITERATIONS
        verdict = "confirmed" if is_fast else "not"
        last = (J[-2] - J[-1]) / J[-2]
        total = 1.0 - J[-1] / J[0]
        if row["method"] == PUBLISHED:
            falls.append(total)
        lines.append(
            f"{data_title(row['dataset'])} | {row['method']} | {total:.2g} | {last:.1g} | "
            f"{arrived} | {verdict}"
        )
        verdicts.append(verdict)
    text = f"Algorithm 1 converges, usually in fewer than {FEWEST_ITERATIONS} iterations"
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    n = verdicts.count("confirmed")
    sentence = (
        f"Arrived by then in {n} of {len(verdicts)} runs; with the published settings all "
        f"{len(J)} iterations lower J by {100 * max(falls):.1g} % at most."
    )
    head = (
        "data set | algorithm | share by which J falls in all: | in the last iteration: | "
        "arrived at iteration: | verdict"
    )
    return Claim(text, overall(verdicts), sentence, head, lines)


def objectives(rows: Sequence[Row]) -> list[Row]:
    """One row for each run whose objective per iteration was recorded."""
    return [row for row in rows if row["experiment"] == "convergence" and "objective" in row]


def settled_at(J: Sequence[float]) -> int | None:
    """The first iteration that lowers J by less than 1 % of the largest fall, or None.

    >>> settled_at([8.0, 4.0, 3.99, 3.989])
    2
    """
    falls = [a - b for a, b in pairwise(J)]
    limit = SETTLED * max(falls, default=0.0)
    return next((i for i, fall in enumerate(falls, start=1) if fall < limit), None)


def linear_time(rows: Sequence[Row]) -> Claim:
    """The power of n with which the time of a fit grows."""
    text = "Time grows linearly with the number of samples"
    lines, verdicts = [], []
    for method, points in times(rows).items():
        if len(points) < 2:
            continue
        (n0, t0), (n1, t1) = points[-2:]
        power = math.log(t1 / t0) / math.log(n1 / n0)
        ours = method.startswith("SemFS")
        verdict = "confirmed" if power <= LINEAR else "not"
        if ours:
            verdicts.append(verdict)
        lines.append(f"{method} | {t1:.3g} | {power:.2f} | {verdict if ours else '–'}")
    if not verdicts:
        return Claim(text, "undecided", NOT_RUN)
    sentence = (
        f"So it is for {verdicts.count('confirmed')} of {len(verdicts)} ways to solve it."
    )
    head = f"method | seconds at n = {n1:,}: | power of n from {n0:,} to {n1:,}: | verdict"
    return Claim(text, overall(verdicts), sentence, head, lines)


def times(rows: Sequence[Row]) -> dict[str, list[tuple[int, float]]]:
    """Number of samples and seconds of each method, at the d with most measurements."""
    timed = [row for row in rows if row["experiment"] == "scaling"]
    sizes = [row["d"] for row in timed]
    found: dict[str, set[tuple[int, float]]] = defaultdict(set)
    for row in timed:
        if row["d"] == max(set(sizes), key=sizes.count):
            found[row["method"]].add((row["n"], row["seconds"]))
    return {method: sorted(points) for method, points in found.items()}


def preprocessing(rows: Sequence[Row]) -> Claim:
    """Algorithm 1 and the direct solver against Random, for each preprocessing."""
    verdicts, lines = [], []
    text = "Algorithm 1 selects better features than Random"
    for name, methods in swept(rows, "preprocessing", "preprocessing", "acc").items():
        for kind in methods.get("Random", {}):
            leads = {
                method: _gap(methods[method][kind], methods["Random"][kind])
                for method in (PUBLISHED, OURS)
                if set(methods.get(method, {}).get(kind, ())) & set(methods["Random"][kind])
            }
            if PUBLISHED not in leads:
                continue
            verdict = data_set_verdict([leads[PUBLISHED]])
            cells = [lead_text(leads[m]) if m in leads else "–" for m in (PUBLISHED, OURS)]
            n = leads[PUBLISHED].n
            lines.append(f"{name} | {kind} | {' | '.join(cells)} | {n} | {verdict}")
            verdicts.append(verdict)
    if not verdicts:
        return _published_on_raw(text, scores_of(rows))
    words = counts(verdicts).replace("data sets", "pairs of data set and preprocessing")
    head = (
        "data set | samples | Algorithm 1 − Random in ACC: | direct solver − Random: | "
        "splits: | verdict"
    )
    return Claim(text, overall(verdicts), _sentence([words]), head, lines)


def _published_on_raw(text: str, scores: Scores) -> Claim:
    """The same from the main comparison, whose features are raw."""
    pairs = {name: ["Random"] for name, m in scores.items() if PUBLISHED in m and "Random" in m}
    return _against_each(text, scores, PUBLISHED, pairs, ("acc",))


# ---- from rows to scores ---------------------------------------------------------------------


def scores_of(rows: Sequence[Row], experiment: str = "clustering") -> Scores:
    """Return the scores of an experiment by data set and method."""
    scores: Scores = defaultdict(lambda: defaultdict(lambda: defaultdict(dict)))
    for row in rows:
        if row["experiment"] != experiment:
            continue
        of_method = scores[data_title(row["dataset"])][row["method"]]
        for metric in METRICS:
            position = (row["split"], row["k"])
            value = row[metric]
            # Several grid points under one label count with the best, as in the paper.
            of_method[metric][position] = max(value, of_method[metric].get(position, value))
    return scores


def swept(
    rows: Sequence[Row], experiment: str, x: str, metric: str
) -> dict[str, dict[str, Sweep]]:
    """Means over k and draws, by data set, method, value of x and split."""
    values: dict = defaultdict(
        lambda: defaultdict(lambda: defaultdict(lambda: defaultdict(list)))
    )
    for row in rows:
        if row["experiment"] == experiment:
            # The label names the preprocessing, too.
            method = row["method"].removesuffix(f" ({row[x]})")
            values[data_title(row["dataset"])][method][row[x]][row["split"]].append(row[metric])
    return {
        name: {
            method: {
                at: {split: fmean(scores) for split, scores in splits.items()}
                for at, splits in by_x.items()
            }
            for method, by_x in methods.items()
        }
        for name, methods in values.items()
    }


def lead_of(
    methods: Mapping[str, MethodScores], metric: str, ours: str, other: str
) -> Interval:
    """Return the lead of a method: mean over k, paired over the splits that both have."""
    a, b = methods[ours][metric], methods[other][metric]
    shared = {position: a[position] - b[position] for position in a if position in b}
    if not shared:
        return Interval(math.nan, None, None, 0)
    return paired_interval(list(by_split(shared).values()))


def by_split(values: Mapping[tuple[str, int], float]) -> dict[str, float]:
    """The mean over k of every split."""
    found: dict[str, list[float]] = defaultdict(list)
    for (split, _), value in values.items():
        found[split].append(value)
    return {split: fmean(of_split) for split, of_split in found.items()}


def lead_text(lead: Interval) -> str:
    """A lead with its interval."""
    if lead.n == 0:
        return "–"
    mean = _signed(lead.mean)
    if lead.low is None or lead.high is None:
        return mean
    return f"{mean} ({_signed(lead.low)} to {_signed(lead.high)})"


def _signed(value: float) -> str:
    """A number with its sign; zero is not negative."""
    return f"{round(value, 3) + 0.0:+.3f}".replace("-", "−")


def _percent(lead: Interval) -> str:
    if lead.low is None or lead.high is None:
        return f"{100 * lead.mean:+.0f} %".replace("-", "−")
    low, high = 100 * lead.low, 100 * lead.high
    return f"{100 * lead.mean:+.0f} % ({low:+.0f} to {high:+.0f})".replace("-", "−")


def _sentence(parts: Sequence[str]) -> str:
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _escaped(text: str) -> str:
    return text.replace("|", "\\|")
