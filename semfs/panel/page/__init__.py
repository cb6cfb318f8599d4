"""The page about a panel: its sections, each with its text, table and figure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semfs.lab.sections import Section
from semfs.panel.page.correlation import correlation_section
from semfs.panel.page.coverage import coverage_section
from semfs.panel.page.features import feature_section
from semfs.panel.page.groups import group_sections
from semfs.panel.page.levels import level_section
from semfs.panel.page.rules import rule_section
from semfs.panel.page.separation import separation_section
from semfs.panel.page.stability import stability_section
from semfs.panel.page.summary import summary_section

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def panel_sections(report: PanelReport) -> list[Section]:
    """Return the sections of the page, each with its figures and tables."""
    parts = [
        summary_section(report),
        *group_sections(report),
        feature_section(report),
        level_section(report),
        coverage_section(report),
        separation_section(report),
        correlation_section(report),
    ]
    if report.explanation.n_bootstraps:
        parts.append(stability_section(report))
    if report.rules:
        parts.append(rule_section(report))
    return parts
