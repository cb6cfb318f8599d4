"""How well the features separate each pair of classes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semfs.lab.sections import Section, Table
from semfs.panel.page.heat_map import heat_map
from semfs.panel.page.limits import MOST_NAMED, MOST_PAIRS, MOST_SHOWN, NOTABLE_ERROR

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport

#: A share of confused samples from which colors are alike: half of them are confused by chance.
MOST_CONFUSED = 0.3


def separation_section(report: PanelReport) -> Section:
    """Return the share of samples confused, of all pairs of classes."""
    words = report.words
    found = report.explanation
    marks = {label: f"{label} (predicted)" for label in found.unseen}
    labels = [str(label) for label in found.separation.index]
    names = [marks.get(label, label) for label in labels][:MOST_SHOWN]
    pairs = report.pairs()
    place = {label: i for i, label in enumerate(labels)}
    shares = np.zeros((len(labels), len(labels)))
    for pair in pairs.itertuples():
        i = place[str(pair.first)]
        j = place[str(pair.second)]
        shares[i, j] = pair.confused
        shares[j, i] = pair.confused
    basis = {
        "counted": "counted",
        "predicted": "normal distributions",
        "too few": f"too few {words.samples}",
    }
    panel = heat_map(
        f"Share of {words.samples} confused, every pair of {words.classes}",
        words.class_,
        names,
        shares,
        "confused:",
        color="confused",
        limits=(MOST_CONFUSED, 0.0),
    )
    body = [
        [
            marks.get(p.first, p.first),
            marks.get(p.second, p.second),
            None if np.isnan(p.confused) else f"{p.confused:.1%}",
            basis[p.basis],
            f"{p.distance:.1f}",
        ]
        for p in pairs[:MOST_PAIRS].itertuples()
    ]
    columns = ["one", "other", "share confused", "how", "distance"]
    paragraphs = [_separation_text(report)]
    weakest = weakest_pairs(report)
    if weakest:
        paragraphs.append(f"Weakest pairs: {weakest}.")
    caption = f"Pairs of {words.classes}, least separated first"
    title = f"Expected separation of {words.classes}"
    return Section(title, paragraphs, Table(caption, columns, body), [panel])


def _separation_text(report: PanelReport) -> str:
    """Return how the shares of confused samples were found, and what they are worth."""
    words = report.words
    pairs = report.pairs()
    sentences = [
        f"Each {words.feature} is divided by its standard deviation "
        f"within {words.classes}, so a {words.feature} with a high level "
        "counts no more than others."
    ]
    if (pairs["basis"] == "counted").any():
        sentences.append(
            f"A {words.sample} is confused if, with these "
            f"{words.features} only, it lies nearer to the mean of the "
            f"other {words.class_} than to that of its own, which is "
            f"computed without this {words.sample}. The {words.features} "
            f"were selected on the same {words.samples}, so new "
            f"{words.samples} may be confused somewhat more often."
        )
    if (pairs["basis"] == "predicted").any():
        sentences.append(
            f"If a {words.class_} has no {words.samples}, the share is "
            "computed from normal distributions around the means, which "
            "usually give too small a share."
        )
    if (pairs["basis"] == "too few").any():
        sentences.append(f"Empty fields mean too few {words.samples}.")
    sentences.append(
        f"Distance: between the means, in standard deviations within {words.classes} "
        "(Mahalanobis)."
    )
    return " ".join(sentences)


def weakest_pairs(report: PanelReport) -> str:
    """Return the pairs of classes that are hardest to separate, in words."""
    pairs = report.pairs()
    notable = pairs[pairs["confused"] >= NOTABLE_ERROR][:MOST_NAMED]
    return "; ".join(
        f"{pair.first} and {pair.second} ({pair.confused:.0%} "
        f"{'confused' if pair.basis == 'counted' else 'predicted'})"
        for pair in notable.itertuples()
    )
