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
    caption = f"Pairs of {words.classes}, the least separated first"
    title = f"Expected separation of {words.classes}"
    return Section(title, paragraphs, Table(caption, columns, body), [panel])


def _separation_text(report: PanelReport) -> str:
    """Return how the shares of confused samples were found, and what they are worth."""
    words = report.words
    pairs = report.pairs()
    sentences = [
        f"Each {words.feature} is divided by its standard deviation within {words.classes}, so "
        f"that a {words.feature} of high level counts no more than others."
    ]
    if (pairs["basis"] == "counted").any():
        sentences.append(
            f"A {words.sample} is confused if, with these {words.features} only, it lies "
            f"nearer to the mean of the other {words.class_} than to that of its own. The "
            f"means are computed without the {words.sample} itself. The {words.features} were "
            f"selected on the same {words.samples}, so new ones may be confused somewhat "
            "more often."
        )
    if (pairs["basis"] == "predicted").any():
        sentences.append(
            f"Where a {words.class_} has no {words.samples}, the share is what normal "
            "distributions about the means would give, which is too little as a rule."
        )
    if (pairs["basis"] == "too few").any():
        sentences.append(f"Empty fields: too few {words.samples} to tell.")
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
