"""The dot plot: levels of the features by class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semfs.lab.sections import Panel, Section, Table
from semfs.panel.page.limits import MOST_SHOWN
from semfs.panel.words import CELLS
from semfs.selectors.explanation import Explanation

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def level_section(report: PanelReport) -> Section:
    """Levels of the features by class."""
    words = report.words
    found = report.explanation
    of_cells = words == CELLS
    levels = found.means
    color = "mean"
    if not of_cells:
        # Features in different units: standard deviations about the mean over classes.
        deviations = _spreads(found)
        levels = levels.sub(levels.mean(axis=1), axis=0).div(deviations, axis=0)
        color = "level"
    shown = report.features[:MOST_SHOWN]
    series: dict[str, list[tuple[Any, ...]]] = {}
    body = []
    for label in levels.columns[:MOST_SHOWN]:
        predicted = label in found.unseen
        points = []
        for row, name in enumerate(shown):
            level = float(levels[label].iloc[row])
            share = _share(report, label, row)
            remark = f"{color} {level:.2f}"
            if predicted:
                remark += ", predicted"
            elif share is not None:
                remark += f", {share:.0%} of {words.samples} above {report.threshold}"
            points.append((name, level, share, remark))
        title = f"{label} (predicted)" if predicted else str(label)
        series[title] = points
        body.append([title, *(_dot_text(point) for point in points)])
    text = f"Color: {color}"
    if of_cells:
        text += f" over the {words.samples}."
    else:
        text += " of the class mean about the mean over classes, in standard deviations."
    if report.shares is not None:
        text += f" Size: share of {words.samples} above {report.threshold}."
    if found.adjusted:
        text += " These are the values as measured, not adjusted for batch."
    if found.unseen:
        text += f" Diamonds: described {words.classes} without {words.samples}, by "
        text += "predicted means"
        text += ", adjusted for batch." if found.adjusted else "."
    if len(report.features) > MOST_SHOWN or levels.shape[1] > MOST_SHOWN:
        text += f" Only the first {MOST_SHOWN} are shown."
    panel = Panel(
        f"{words.features.capitalize()} by {words.class_}",
        words.feature,
        words.class_,
        series,
        kind="dots",
        color=color,
    )
    caption = f"{color.capitalize()} of each {words.feature}; in brackets the share"
    table = Table(caption, [words.class_, *shown], body)
    return Section(f"Levels by {words.class_}", [text], table, [panel])


def _share(report: PanelReport, label: str, row: int) -> float | None:
    """Return the share of samples of a class above the threshold, if it is known."""
    if report.shares is None or label not in report.shares.columns:
        return None
    return float(report.shares[label].iloc[row])


def _dot_text(point: tuple[Any, ...]) -> str:
    """Return an entry of the table of a dot plot."""
    _, level, share, _ = point
    return f"{level:.2f}" if share is None else f"{level:.2f} ({share:.0%})"


def _spreads(found: Explanation) -> Any:
    """Standard deviations (k,) within classes, by the levels that are given in them."""
    # Each row of `classes` is (mean − average)/σ of one feature, so that
    # σ = ‖mean − average‖ / ‖row‖.
    seen = found.means[found.classes.columns]
    centered = seen.sub(seen.mean(axis=1), axis=0)
    sizes = np.sqrt((centered**2).sum(axis=1))
    relative = np.sqrt((found.classes**2).sum(axis=1))
    # Without samples the levels are not known, and the spread over classes stands for them.
    known = np.isfinite(relative) & (relative > 0)
    return (sizes / relative.where(known)).fillna(seen.std(axis=1, ddof=0)).replace(0.0, 1.0)
