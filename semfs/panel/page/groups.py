"""The table of the groups: what each is for, its price and its worth."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semfs.lab.sections import Section, Table
from semfs.panel.page.features import signs_kept
from semfs.selectors.rules.findings import percent

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def group_sections(report: PanelReport) -> list[Section]:
    """Return the section on groups: what each is for, its price and its worth."""
    groups = report.groups()
    if groups is None:
        return []
    words = report.words
    has_costs = "cost" in groups
    # of a selector that was loaded it is not known
    has_worth = bool(groups["worth"].notna().any())
    columns = ["rank", "group", words.features, "share of the improvement", "what it is for"]
    if has_costs:
        columns.append("price")
    if has_worth:
        columns.append("fit without it")
    body: list[list[Any]] = []
    for rank, row in enumerate(groups.itertuples(), start=1):
        line: list[Any] = [rank, str(row.Index), len(row.features), f"{row.share:.1%}"]
        line.append(signs_kept(row.reason))
        if has_costs:
            line.append(f"{row.cost:g}")
        if has_worth:
            known = not np.isnan(row.worth)
            line.append(f"{percent(row.worth)} worse" if known else "–")
        body.append(line)
    text = (
        "The groups are in the order of selection. Share of the "
        "improvement: the part of the total decrease of the objective, "
        f"summed over the {words.features} of the group. What it is for: "
        f"what its best {words.feature} varies with."
    )
    if has_worth:
        text += (
            " Fit without it: an upper limit on how much worse the fit "
            "would be if the group were excluded and the best other "
            "groups took its place within the rules."
        )
    caption = "The groups, best first"
    return [Section("The groups", [text], Table(caption, columns, body, open=True))]
