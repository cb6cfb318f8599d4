"""The layout of the page *Reproducing the paper*: claims, rules and relative leads as Markdown.

`semfs.lab.claims` judges the claims; here is what only the page has.
"""

from __future__ import annotations

import re
import textwrap

from evidence import table

from semfs.lab.claims import Claim
from semfs.lab.claims.comparisons import best_baseline
from semfs.lab.claims.measured import DESCRIBED, OURS, Scores, relative_lead
from semfs.lab.claims.rules import (
    CONDITIONS,
    GENERAL_RULE,
    HEADLINE_K,
    HEADLINE_LEAD,
    OWN_RULES,
    headline_verdict,
)
from semfs.lab.claims.words import lead_in_percent

#: Columns of text, which are not set to the right as numbers are.
TEXT_COLUMNS = {
    "data set",
    "best baseline",
    "method",
    "algorithm",
    "samples",
    "SemFS ahead of",
    "undecided",
    "behind, in ACC or NMI",
    "verdict",
}

#: Letters in a line of Markdown.
LINE_WIDTH = 96


def rules_text() -> str:
    """Return the rules of the verdicts as Markdown."""
    first = f"{_bold(GENERAL_RULE)} These claims have other rules:"
    own = [f"- *{name}*: {_bold(rule)}" for name, rule in OWN_RULES.items()]
    bullets = "\n".join(_filled(rule, indent="  ") for rule in own)
    return "\n\n".join([_filled(first), bullets, _filled(CONDITIONS)])


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
    """Head and rows of a table: the relative lead over the same baseline at each k."""
    ks: list[int] = []
    lines = []
    for name, methods in scores.items():
        best = best_baseline(methods)
        if best is None:
            continue
        ks = sorted({k for _, k in methods[OURS]["acc"]})
        cells = [lead_in_percent(relative_lead(methods, OURS, best, k)) for k in ks]
        n = relative_lead(methods, OURS, best, HEADLINE_K).n
        lines.append(" | ".join([name, best, *cells, str(n)]))
    heads = " | ".join(f"k = {k}:" for k in ks)
    return f"data set | SemFS over | {heads} | splits:", lines


def lead_in_words(scores: Scores, name: str) -> str:
    """The lead of SemFS on a data set whose features are of the paper's kind, or nothing."""
    methods = scores.get(name, {})
    best = best_baseline(methods)
    if best is None:
        return ""
    lead = relative_lead(methods, OURS, best, HEADLINE_K)
    others = [
        f"{100 * relative_lead(methods, OURS, best, k).mean:+.0f} % at {k}"
        for k in sorted({k for _, k in methods[OURS]["acc"]} - {HEADLINE_K})
    ]
    is_ahead = lead.low is not None and lead.low > 0
    words = {
        "confirmed": "as the paper says.",
        "not": f"less than the {100 * HEADLINE_LEAD:.0f} % of the paper.",
        "undecided": f"whether that is {100 * HEADLINE_LEAD:.0f} % or more is undecided.",
    }[headline_verdict(lead)]
    described = ""
    if DESCRIBED in methods:
        of_described = lead_in_percent(relative_lead(methods, DESCRIBED, best, HEADLINE_K))
        described = (
            f" With descriptions of the unseen classes, unlike in the paper: {of_described}."
        )
    return (
        f"On {name}, whose features are of the paper's kind, SemFS is "
        f"{'ahead' if is_ahead else 'not clearly ahead'} of {best}, the best of the paper's "
        f"baselines, by {lead_in_percent(lead)} in ACC at k = {HEADLINE_K} "
        f"({'; '.join([*others, f'class splits: {lead.n}'])}): {words}{described}"
    )
