"""What each rule of the panel led to, and what it cost."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semfs.lab.sections import Section, Table

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def rule_section(report: PanelReport) -> Section:
    """Return what each rule ruled out or led to, and what it cost."""
    words = report.words
    body = []
    for sentence in report.rules:
        rule, _, text = words.put_into(sentence).partition(": ")
        # the sentence about include begins with the name of a feature
        if rule != "include":
            text = text[:1].upper() + text[1:]
        body.append([rule, text])
    text = (
        "J is the part of the descriptions and labels of the "
        f"{words.classes} that the panel leaves unexplained; smaller is "
        "better. Cost: how much J drops if only this rule is removed. "
        f"For a rule that excludes {words.features}, the ones that would "
        "then be selected are named."
    )
    table = Table("The rules", ["rule", "effect and cost"], body, open=True)
    return Section("Rules", [text], table)
