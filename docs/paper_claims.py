"""The layout of the pages about the paper: claims, rules and relative leads as Markdown.

`semfs.lab.claims` judges the claims; here is what only the pages have.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Mapping, Sequence
from statistics import fmean, mode

from evidence import table

from semfs.lab.claims import Claim
from semfs.lab.claims.best_baseline import best_baseline, leads_over_each, relative_lead
from semfs.lab.claims.measured import (
    ALTERNATING,
    ATTRIBUTES_ALONE,
    DESCRIBED,
    LABELS_ALONE,
    NO_LEAD,
    OURS,
    PAPER_BASELINES,
    PUBLISHED,
    PUBLISHED_DIRECT,
    TUNED_BASELINES,
    MethodScores,
    Scores,
    lead_of,
)
from semfs.lab.claims.rules import (
    CONDITIONS,
    GENERAL_RULE,
    HEADLINE_K,
    HEADLINE_LEAD,
    INTERVALS,
    OWN_RULES,
    headline_verdict,
)
from semfs.lab.claims.words import (
    counted,
    lead_in_percent,
    lead_in_points,
    signed_percent,
)
from semfs.lab.comparison import Interval, paired_interval
from semfs.lab.plan import ORACLE
from semfs.lab.splits import GIVEN

#: Columns of text, which are not set to the right as numbers are.
TEXT_COLUMNS = {
    "data set",
    "best baseline",
    "method",
    "algorithm",
    "samples",
    "ahead of",
    "undecided",
    "behind, in ACC or NMI",
    "behind other selectors",
    "verdict",
}

#: Methods that differ in settings and solver: columns of a table.
SOLVER_COLUMNS = {
    "Random": "Random",
    PUBLISHED: "Algorithm 1, paper's settings",
    PUBLISHED_DIRECT: "direct solver (Eq. 4), paper's settings",
    ALTERNATING: "Algorithm 1, our settings",
    OURS: "direct solver, our settings (SemFS)",
}
#: Two of these whose difference is the effect of one thing.
EFFECTS = {
    "solver, paper's settings": (PUBLISHED_DIRECT, PUBLISHED),
    "solver, our settings": (OURS, ALTERNATING),
    "settings, Algorithm 1": (ALTERNATING, PUBLISHED),
    "settings, direct solver": (OURS, PUBLISHED_DIRECT),
}
SETTINGS_OR_SOLVER = (
    "SemFS at its defaults differs from Algorithm 1 as published in its settings and in its "
    "solver. These tables change only one of the two at a time. The settings are those listed "
    "for `AS_PUBLISHED` in [](method.md#published): centering, the penalty, class weights and "
    "labels as additional targets. Only the direct solver skips near copies of selected "
    "features. Eq. 4 is the paper's problem with s in {0, 1}. The first table shows the mean "
    "ACC over k and over the splits that all methods of the table share. The second table "
    "shows differences between its columns, paired over the splits, with 95 % intervals."
)

#: Letters in a line of Markdown.
LINE_WIDTH = 96

#: The paper's smallest lead, in words.
SHARE = f"{100 * HEADLINE_LEAD:.0f} %"


def rules_text() -> str:
    """Return the rules of the verdicts as Markdown."""
    first = f"{_bold(GENERAL_RULE)} The following claims have rules of their own:"
    own = [f"- *{name}*: {_bold(rule)}" for name, rule in OWN_RULES.items()]
    bullets = "\n".join(_filled(rule, indent="  ") for rule in own)
    return "\n\n".join([_filled(first), bullets, _filled(INTERVALS), _filled(CONDITIONS)])


def _bold(text: str) -> str:
    """Words in quotes as bold ones."""
    return re.sub(r'"([^"]+)"', r"**\1**", text)


def _filled(text: str, indent: str = "") -> str:
    """Text in lines of Markdown."""
    return textwrap.fill(
        text,
        LINE_WIDTH,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def verdict_table(claims: list[Claim]) -> str:
    """Return a table of all claims with their verdicts."""
    lines = [f"{c.claim} | **{c.verdict}** | {c.sentence}" for c in claims]
    return "\n".join(table("the paper's claim | verdict | in one sentence", lines))


def numbers(claim: Claim) -> str:
    """Return a heading and the table of the numbers behind a verdict."""
    head = " | ".join(map(_titled, claim.columns))
    lines = [" | ".join(map(escaped, row)) for row in claim.rows]
    return "\n".join([f"### {claim.claim}", "", *table(head, lines)])


def _titled(column: str) -> str:
    """The title of a column, with a colon if it holds numbers."""
    is_text = column in TEXT_COLUMNS or column.endswith(" over")
    return column if is_text else f"{column}:"


def escaped(text: str) -> str:
    """Return text as a cell of a table."""
    return text.replace("|", "\\|")


def leads_by_k(scores: Scores) -> tuple[str, list[str]]:
    """Head and rows of a table: the relative lead at each k over the best baseline there."""
    by_set = {name: _leads_by_k(scores, name) for name in scores}
    ks = sorted({k for leads in by_set.values() for k in leads})
    lines = []
    for name, leads in by_set.items():
        if leads:
            cells = [lead_in_percent(leads.get(k, NO_LEAD)) for k in ks]
            lines.append(" | ".join([name, *cells, _splits_by_k(leads)]))
    heads = " | ".join(f"k = {k}:" for k in ks)
    return f"data set | {heads} | splits:", lines


def _splits_by_k(leads: Mapping[int, Interval]) -> str:
    """The number of splits, and at which k it is another one."""
    n_by_k = {k: lead.n for k, lead in leads.items()}
    usual = mode(n_by_k.values())
    others = [f"{n} at k = {k}" for k, n in n_by_k.items() if n != usual]
    return f"{usual} ({', '.join(others)})" if others else str(usual)


def _leads_by_k(scores: Scores, name: str) -> dict[int, Interval]:
    """The relative lead on a data set over the best baseline, at each k that has one."""
    methods = scores.get(name, {})
    if OURS not in methods:
        return {}
    smallest = {}
    for k in sorted({k for _, k in methods[OURS]["acc"]}):
        leads = leads_over_each(methods, OURS, PAPER_BASELINES, k)
        smallest[k] = next(iter(leads.values()), NO_LEAD)
    return {k: lead for k, lead in smallest.items() if lead.n > 0}


def lead_in_words(scores: Scores, name: str) -> str:
    """The lead of SemFS on a data set whose features are of the paper's kind, or nothing.

    It is the lead over the best baseline at its defaults.
    """
    methods = scores.get(name, {})
    leads = leads_over_each(methods, OURS, PAPER_BASELINES, HEADLINE_K)
    if not leads:
        return ""
    best, lead = next(iter(leads.items()))
    is_ahead = lead.low is not None and lead.low > 0
    words = {
        "confirmed": "This agrees with the paper.",
        "refuted": f"That is less than the {SHARE} that the paper claims.",
        "undecided": f"Whether the lead is {SHARE} or more is undecided.",
    }[headline_verdict(leads.values())]
    return (
        f"On {name}, whose features are of the paper's kind, SemFS is "
        f"{'ahead' if is_ahead else 'not clearly ahead'} of {best}, the best of the paper's "
        f"baselines, by {lead_in_percent(lead)} in ACC at k = {HEADLINE_K}, on "
        f"{counted(lead.n, 'class split')}. {words}"
    )


def leads_with_few_and_many(scores: Scores, name: str) -> str:
    """The lead on a data set at the smallest and at the largest k, or nothing."""
    by_k = {k: lead for k, lead in _leads_by_k(scores, name).items() if k != HEADLINE_K}
    if not by_k:
        return ""
    parts = [f"{lead_in_percent(by_k[k])} at k = {k}" for k in sorted({min(by_k), max(by_k)})]
    return f"The lead is {_listed(parts)}."


def take_away(scores: Scores, name: str) -> str:
    """A small table of the lead on a data set at all k, and what it says.

    Empty without leads at other k.
    """
    by_k = _leads_by_k(scores, name)
    if set(by_k) <= {HEADLINE_K}:
        return ""
    head = f"features | relative lead in ACC: | more than {SHARE}?"
    lines = [
        f"k = {k} | {lead_in_percent(lead)} | {_more_than_the_share(lead)}"
        for k, lead in by_k.items()
    ]
    sentences = [_sides_of_the_share(by_k), _without_attributes(scores[name])]
    parts = [
        f"## The lead with features of the paper's kind: {name}",
        "At each k, SemFS is compared with the paper's baseline that is best at this k. "
        "Baselines are at their defaults.",
        "\n".join(table(head, lines)),
        " ".join(filter(None, sentences)),
    ]
    return "\n\n".join(parts)


def _more_than_the_share(lead: Interval) -> str:
    """Whether a lead is clearly above the paper's share."""
    if lead.low is not None and lead.low > HEADLINE_LEAD:
        return "yes"
    if lead.high is not None and lead.high < HEADLINE_LEAD:
        return "no"
    return "undecided"


def _sides_of_the_share(by_k: Mapping[int, Interval]) -> str:
    """At which k the paper's share is exceeded clearly, missed clearly, or neither."""
    groups: dict[str, list[str]] = {"exceeds": [], "may exceed": [], "stays below": []}
    words = dict(zip(("yes", "undecided", "no"), groups, strict=True))
    for k, lead in by_k.items():
        groups[words[_more_than_the_share(lead)]].append(str(k))
    parts = [f"{verb} {SHARE} at k = {_listed(ks)}" for verb, ks in groups.items() if ks]
    return f"By these intervals, the lead {_listed(parts)}."


def _without_attributes(methods: Mapping[str, MethodScores]) -> str:
    """What the lead of SemFS is with labels as its only targets, if it is as large."""
    best = _best_at_defaults(methods)
    ours, of_labels = (
        relative_lead(methods, label, best, HEADLINE_K) for label in (OURS, LABELS_ALONE)
    )
    if of_labels.n == 0 or of_labels.mean < ours.mean:
        return ""
    return (
        f"The lead does not come from the attributes: at k = {HEADLINE_K}, SemFS leads {best} "
        f"by {lead_in_percent(ours)}, and with labels as its only targets by "
        f"{lead_in_percent(of_labels)}."
    )


def settings_or_solver(scores: Scores) -> str:
    """Tables of SemFS with the settings of the paper and ours, and with both solvers."""
    complete = _with_both_solvers(scores)
    if not complete:
        return ""
    lines = []
    for name, methods in complete.items():
        shared = set.intersection(*(set(methods[label]["acc"]) for label in SOLVER_COLUMNS))
        means = [fmean(methods[label]["acc"][at] for at in shared) for label in SOLVER_COLUMNS]
        n_splits = len({split for split, _ in shared})
        lines.append(" | ".join([name, *(f"{mean:.3f}" for mean in means), str(n_splits)]))
    titles = " | ".join(f"{title}:" for title in SOLVER_COLUMNS.values())
    parts = [
        "### Settings or solver?",
        _filled(SETTINGS_OR_SOLVER),
        "\n".join(table(f"data set | {titles} | splits:", lines)),
        "\n".join(table(*_effects(complete))),
    ]
    return "\n\n".join(parts)


def _effects(scores: Scores) -> tuple[str, list[str]]:
    """Head and rows of a table: what the settings and what the solver change in ACC."""
    leads = _effects_by_data_set(scores)
    lines = [
        " | ".join([name, *map(lead_in_points, of_set), str(of_set[0].n)])
        for name, of_set in leads.items()
    ]
    # The interval of two numbers says nothing.
    if len(leads) > 2:
        cells = map(lead_in_points, _means_of_effects(leads))
        lines.append(" | ".join([f"mean of {counted(len(leads))}", *cells, ""]))
    titles = " | ".join(f"{title}:" for title in EFFECTS)
    return f"data set | {titles} | splits:", lines


def _with_both_solvers(scores: Scores) -> Scores:
    """The data sets with all methods that differ in settings and solver."""
    return {
        name: methods
        for name, methods in scores.items()
        if all(label in methods for label in SOLVER_COLUMNS)
    }


def _effects_by_data_set(scores: Scores) -> dict[str, list[Interval]]:
    """What the settings and what the solver change in ACC, by data set."""
    return {
        name: [lead_of(methods, "acc", a, b) for a, b in EFFECTS.values()]
        for name, methods in scores.items()
    }


def _means_of_effects(leads: Mapping[str, Sequence[Interval]]) -> list[Interval]:
    """The mean of each effect over the data sets."""
    return [
        paired_interval([lead.mean for lead in of_effect]) for of_effect in zip(*leads.values())
    ]


def settings_or_solver_in_words(scores: Scores) -> str:
    """A section on what the settings and what the solver change; empty without their rows."""
    leads = _effects_by_data_set(_with_both_solvers(scores))
    if len(leads) < 3:
        return ""
    effects = map(lead_in_points, _means_of_effects(leads))
    by_title = dict(zip(EFFECTS, effects, strict=True))
    changes = "; ".join(f"{title}: {effect}" for title, effect in by_title.items())
    text = (
        "SemFS at its defaults differs from Algorithm 1 as published in its settings and in "
        "its solver. We changed each of the two alone, with the other one as in the paper or "
        f"as in `semfs`. Mean changes in ACC over {counted(len(leads))}: {changes}. [The "
        "tables](reproducing-numbers.md#settings-or-solver) show each data set."
    )
    return f"## Settings or solver?\n\n{_filled(text)}"


def other_comparisons(scores: Scores, name: str) -> str:
    """A table of the lead on a data set by split, with other targets, over tuned baselines."""
    methods = scores.get(name, {})
    if not leads_over_each(methods, OURS, PAPER_BASELINES, HEADLINE_K):
        return ""
    lines = [
        *_by_split(methods),
        *_with_other_targets(methods),
        *_over_tuned(methods),
    ]
    head = "targets and splits of SemFS | compared with | relative lead in ACC: | splits:"
    title = f"### {name}: the lead at k = {HEADLINE_K} by split, targets and tuning"
    return "\n".join([title, "", *table(head, lines)])


def _by_split(methods: Mapping[str, MethodScores]) -> list[str]:
    """The lead on all splits, on the one that the data set names, and on the random ones."""
    best = _best_at_defaults(methods)
    of_all = relative_lead(methods, OURS, best, HEADLINE_K)
    lines = [_line("default targets", best, lead_in_percent(of_all), of_all.n)]
    ours, other = (methods[label]["acc"] for label in (OURS, best))
    leads = {
        split: ours[split, k] / other[split, k] - 1
        for split, k in ours
        if k == HEADLINE_K and (split, k) in other
    }
    given = leads.pop(GIVEN, None)
    if given is None or len(leads) < 2:
        return lines
    low, high = (signed_percent(edge(leads.values())) for edge in (min, max))
    return [
        *lines,
        _line("the split that the data set names", best, f"{signed_percent(given)} %", 1),
        _line("the random splits, lowest to highest", best, f"{low} to {high} %", len(leads)),
    ]


def _with_other_targets(methods: Mapping[str, MethodScores]) -> list[str]:
    """The lead of SemFS with other targets over the baseline that is best at its defaults."""
    best = _best_at_defaults(methods)
    targets = {
        ATTRIBUTES_ALONE: "attributes as the only targets, as in the paper",
        LABELS_ALONE: "labels as the only targets",
        DESCRIBED: "descriptions of the unseen classes, unlike in the paper",
    }
    leads = {
        words: relative_lead(methods, label, best, HEADLINE_K)
        for label, words in targets.items()
    }
    return [
        _line(words, best, lead_in_percent(lead), lead.n)
        for words, lead in leads.items()
        if lead.n > 0
    ]


def _over_tuned(methods: Mapping[str, MethodScores]) -> list[str]:
    """The lead over the best tuned baseline, and over the same one at its defaults."""
    both = [*TUNED_BASELINES, *PAPER_BASELINES]
    leads = leads_over_each(methods, OURS, both, HEADLINE_K)
    label = best_baseline(leads, TUNED_BASELINES)
    # The best baseline may be one whose grid was not run.
    if label not in TUNED_BASELINES:
        return []
    lead = leads[label]
    rival = f"{label}, the best baseline tuned on the test, as in the paper"
    lines = [_line("default targets", rival, lead_in_percent(lead), lead.n)]
    untuned = label.removesuffix(ORACLE)
    if untuned not in methods:
        return lines
    splits = {split for split, k in methods[label]["acc"] if k == HEADLINE_K}
    kept = {at: value for at, value in methods[untuned]["acc"].items() if at[0] in splits}
    at_defaults = relative_lead({**methods, untuned: {"acc": kept}}, OURS, untuned, HEADLINE_K)
    shown = f"{signed_percent(at_defaults.mean)} %"
    rival = f"{untuned} at its defaults"
    return [*lines, _line("default targets, the same splits", rival, shown, at_defaults.n)]


def _line(ours: str, rival: str, lead: str, n_splits: int) -> str:
    """One row of the table of other comparisons."""
    return " | ".join([ours, rival, lead, str(n_splits)])


def _best_at_defaults(methods: Mapping[str, MethodScores]) -> str:
    """The baseline over which the lead is smallest at the headline's k."""
    return next(iter(leads_over_each(methods, OURS, PAPER_BASELINES, HEADLINE_K)))


def _listed(parts: Sequence[str]) -> str:
    """Words in a row.

    >>> _listed(["5", "10", "20"])
    '5, 10 and 20'
    """
    *first, last = parts
    if not first:
        return last
    return f"{', '.join(first)} and {last}"
