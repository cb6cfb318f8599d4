"""The table of the classes: how many features mark each, and which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from semfs.lab.sections import Section, Table
from semfs.panel.words import CELLS

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport

#: A marker above the threshold in a smaller share of the samples of its class is weak, because
#: few of them decide its mean. One in four is a convention, not a measurement.
LEAST_EXPRESSING = 0.25
#: Predicted shares below this are not named: predictions are too small as a rule.
LEAST_PREDICTED = 0.01


def coverage_section(report: PanelReport) -> Section:
    """Return how many features mark each class, and which."""
    words = report.words
    found = report.explanation
    hardest = _hardest_of_each(report)
    body: list[list[Any]] = []
    for label, n_markers in found.coverage.items():
        title = f"{label} (predicted)" if label in found.unseen else str(label)
        size = None if report.class_sizes is None else report.class_sizes.get(label)
        body.append(
            [
                title,
                "–" if size is None else int(size),
                int(n_markers),
                _markers_of(report, label) or "–",
                hardest.get(str(label), "–"),
            ]
        )
    # Classes that lack markers are what a reader looks for.
    body.sort(key=lambda line: line[2])
    text = (
        f"A {words.feature} marks a {words.class_} if its mean there lies "
        f"at least one standard deviation (within {words.classes}) above "
        f"the mean of the others, and the {words.class_} is among its two "
        "highest; if it is the second highest, the highest one is named."
    )
    if words == CELLS and report.shares is not None:
        text += (
            f" A marker that fewer than {LEAST_EXPRESSING:.0%} of the "
            f"{words.samples} express is shown with this share, because a "
            f"few {words.samples} determine its mean and it may not mark "
            "others."
        )
    if found.adjusted:
        text += " These means are adjusted for batch."
    columns = [
        words.class_,
        words.samples,
        "markers",
        "which",
        "hardest to separate from",
    ]
    caption = f"Markers of each {words.class_}, fewest first"
    return Section(
        f"Coverage of each {words.class_}",
        [text],
        Table(caption, columns, body, open=True),
    )


def _markers_of(report: PanelReport, label: Any) -> list[Any]:
    """Return the features that mark a class, and classes in which they are even higher."""
    found = report.explanation
    markers: list[Any] = []
    weak = weak_markers(report, label)
    for name in found.markers.index[found.markers[label]]:
        highest = found.means.loc[name].idxmax()
        remarks = []
        if highest != label:
            remarks.append(f"higher in {highest}")
        if name in weak:
            samples = report.words.samples
            remarks.append(f"in {weak[name]:.0%} of the {samples} only")
        if remarks:
            markers.append((str(name), ", ".join(remarks)))
        else:
            markers.append(str(name))
    return markers


def weak_markers(report: PanelReport, label: Any) -> dict[str, float]:
    """Return markers of a class that few of its samples have, and the share that do.

    Only cells are judged: a count above 0 means that a gene was detected.
    """
    known = report.shares is not None and label in report.shares.columns
    if not known or report.words != CELLS:
        return {}
    assert report.shares is not None
    markers = report.explanation.markers[label]
    shares = report.shares.loc[markers, label]
    return {name: float(shares[name]) for name in shares.index[shares < LEAST_EXPRESSING]}


def _hardest_of_each(report: PanelReport) -> dict[str, str]:
    """For each class the one that it is confused with most, and in which share."""
    hardest: dict[str, str] = {}
    for pair in report.pairs().itertuples():
        # A prediction that nothing is confused says nothing.
        is_silent = pair.basis == "predicted" and pair.confused < LEAST_PREDICTED
        if pair.basis == "too few" or is_silent:
            continue
        about = "" if pair.basis == "counted" else "about "
        share = f"{about}{pair.confused:.0%}"
        hardest.setdefault(str(pair.first), f"{pair.second} ({share})")
        hardest.setdefault(str(pair.second), f"{pair.first} ({share})")
    return hardest
