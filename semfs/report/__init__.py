"""One self-contained HTML page of a run."""

from semfs.report.building import build_sections, render, write_report
from semfs.report.explanations import explanation_section

__all__ = ["build_sections", "explanation_section", "render", "write_report"]
