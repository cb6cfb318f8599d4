"""One page about a panel of features, and a list to order.

It is for those who order the panel or must approve it. `panel_report` collects what is known
about the panel; the object it returns has tables as pandas frames, and writes the page
(`PanelReport.write`) and the list for the vendor.
"""

from semfs.panel.collect import panel_report
from semfs.panel.report import PanelReport
from semfs.panel.words import CELLS, Words

__all__ = ["CELLS", "PanelReport", "Words", "panel_report"]
