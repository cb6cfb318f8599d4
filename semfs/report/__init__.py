"""One self-contained HTML page of a run."""

from semfs.report.building import build_sections, render, write_report

__all__ = ["build_sections", "render", "write_report"]
