"""The layout of the page *Reproducing the paper*: claims, rules and relative leads as Markdown.

`semfs.lab.claims` judges the claims; here is what only the page has.
"""

from __future__ import annotations

import re
import textwrap

from evidence import table

from semfs.lab.claims import Claim
from semfs.lab.claims.best_baseline import leads_over_each, relative_lead
from semfs.lab.claims.measured import (
    DESCRIBED,
    NO_LEAD,
    OURS,
    PAPER_BASELINES,
    TUNED_BASELINES,
    Scores,
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
from semfs.lab.claims.words import lead_in_percent, signed_percent
from semfs.lab.comparison import Interval

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

#: Letters in a line of Markdown.
LINE_WIDTH = 96


def rules_text() -> str:
    """Return the rules of the verdicts as Markdown."""
    first = f"{_bold(GENERAL_RULE)} These claims have other rules:"
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
            n_splits = max(lead.n for lead in leads.values())
            lines.append(" | ".join([name, *cells, str(n_splits)]))
    heads = " | ".join(f"k = {k}:" for k in ks)
    return f"data set | {heads} | splits:", lines


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
        "confirmed": "as the paper says.",
        "not": f"less than the {100 * HEADLINE_LEAD:.0f} % of the paper.",
        "undecided": f"whether that is {100 * HEADLINE_LEAD:.0f} % or more is undecided.",
    }[headline_verdict(leads.values())]
    return (
        f"On {name}, whose features are of the paper's kind, SemFS is "
        f"{'ahead' if is_ahead else 'not clearly ahead'} of {best}, the best of the paper's "
        f"baselines, by {lead_in_percent(lead)} in ACC at k = {HEADLINE_K} "
        f"(class splits: {lead.n}): {words}"
    )


def other_leads_in_words(scores: Scores, name: str) -> str:
    """The lead on the same data set at other k, over tuned baselines, with descriptions."""
    methods = scores.get(name, {})
    sentences = []
    others = [
        f"{signed_percent(lead.mean)} % at {k}"
        for k, lead in _leads_by_k(scores, name).items()
        if k != HEADLINE_K
    ]
    if others:
        sentences.append(f"At other k: {', '.join(others)}.")
    tuned = leads_over_each(methods, OURS, TUNED_BASELINES, HEADLINE_K)
    for label, lead in list(tuned.items())[:1]:
        sentences.append(
            f"Over {label}, the best baseline tuned on the test, as in the paper: "
            f"{lead_in_percent(lead)} (class splits: {lead.n})."
        )
    best = next(iter(leads_over_each(methods, OURS, PAPER_BASELINES, HEADLINE_K)), "")
    described = relative_lead(methods, DESCRIBED, best, HEADLINE_K)
    if described.n > 0:
        sentences.append(
            "With descriptions of the unseen classes, unlike in the paper: "
            f"{lead_in_percent(described)}."
        )
    return " ".join(sentences)
