"""A page about a panel of features, and a list to order.

The page is for people who order the panel or approve it. `panel_report` collects the facts. Its
result has tables as pandas frames, and writes the page and the list for the vendor
(`PanelReport.write`).
"""

from semfs.panel.collect import panel_report
from semfs.panel.report import PanelReport
from semfs.panel.words import CELLS, Words

__all__ = ["CELLS", "PanelReport", "Words", "panel_report"]
