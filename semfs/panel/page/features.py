"""The table of the features, with the reasons for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semfs.lab.sections import Section, Table

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def feature_section(report: PanelReport) -> Section:
    """Return the features in the order of their entry, with reasons."""
    words = report.words
    found = report.explanation
    groups = report.prices.get("group")
    columns = ["rank", words.feature]
    if groups is not None:
        columns.append("group")
    columns += [
        "share of the improvement",
        "varies with",
        "levels",
    ]
    if found.n_bootstraps:
        columns.append("frequency")
    if found.adjusted:
        columns.append(f"{words.class_} · batch")
    columns.append("near copies")
    body: list[list[Any]] = []
    # Cells follow the order of `columns`, which has optional ones in between.
    for rank, row in enumerate(found.features.itertuples(), start=1):
        name = str(row.Index)
        line: list[Any] = [rank, name]
        if groups is not None:
            line.append(str(groups[rank - 1]))
        line += [
            f"{row.share:.1%}",
            signs_kept(row.carries),
            row.separates,
        ]
        if found.n_bootstraps:
            line.append(f"{row.frequency:.0%}")
        if found.adjusted:
            line.append(f"{row.class_variance:.0%} · {row.batch_variance:.0%}")
        line.append(_copies_of(report, name))
        body.append(line)
    means = "means, adjusted for batch," if found.adjusted else "means"
    text = (
        f"The {words.features} are in the order of selection: each one "
        "adds to those above it. Share of the improvement: its part of "
        "the total decrease of the objective. Varies with: attributes "
        f"with which its {means} vary over the {words.classes}. Near "
        f"copies: {words.features} with nearly the same pattern, with "
        "their correlation; those outside the panel are substitutes."
    )
    if found.adjusted:
        text += (
            f" {words.class_.capitalize()} · batch: their shares of the "
            f"variance of the {words.feature}. Levels: based on means as "
            "measured."
        )
    caption = f"The {words.features}, best first"
    title = f"The {words.features}"
    # With groups, their table comes first, and that of the features is folded.
    is_open = "group" not in report.prices
    return Section(title, [text], Table(caption, columns, body, open=is_open))


def _copies_of(report: PanelReport, name: str) -> list[tuple[str, str]] | str:
    """Return the near copies of a feature, each with a remark."""
    copies = report.explanation.duplicates
    found = []
    for copy in copies[copies["feature"] == name].itertuples():
        remark = f"{copy.correlation:.2f}"
        if copy.chosen:
            remark += ", in the panel"
        found.append((str(copy.other), remark))
    return found or "–"


def signs_kept(attributes: str) -> str:
    """Attributes with their signs, between which no line is broken."""
    return attributes.replace("+ ", "+\N{NO-BREAK SPACE}").replace("− ", "−\N{NO-BREAK SPACE}")
