"""How often features are selected on bootstraps of the classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from semfs.lab.sections import Section, Table
from semfs.selectors.rules.parameters import PANEL_RULES

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def stability_section(report: PanelReport) -> Section:
    """Return how often features are selected on bootstraps of the classes."""
    words = report.words
    found = report.explanation
    body = [
        [
            str(row.Index),
            float(row.frequency),
            f"{row.low:.2f} – {row.high:.2f}",
            "yes" if row.chosen else "no",
        ]
        for row in found.stability.itertuples()
    ]
    text = (
        f"The selection was repeated {found.n_bootstraps} times, each time with "
        f"{words.classes} drawn with replacement. A {words.feature} with a low frequency "
        f"depends on few {words.classes}, or has substitutes that take its place; "
        f"{words.features} outside the panel were often selected instead."
    )
    ruled = [name for name in PANEL_RULES if any(s.startswith(name) for s in report.rules)]
    if ruled:
        text += f" All rules were met every time ({', '.join(ruled)})"
        if "min_per_class" in ruled:
            text += f"; markers were required for the {words.classes} that were drawn"
        text += "."
    columns = [
        words.feature,
        "frequency",
        "95 % interval",
        "in the panel",
    ]
    caption = f"Frequency of selection over {found.n_bootstraps} bootstraps"
    return Section("Stability", [text], Table(caption, columns, body))
