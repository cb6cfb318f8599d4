"""Correlations between the features."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semfs.lab.sections import Section, Table
from semfs.panel.page.heat_map import heat_map
from semfs.panel.page.limits import MOST_PAIRS, MOST_SHOWN

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


def correlation_section(report: PanelReport) -> Section:
    """Correlations between the selected features."""
    words = report.words
    correlations = report.explanation.correlation.to_numpy()
    names = report.features[:MOST_SHOWN]
    panel = heat_map(
        f"Correlation of {words.features}",
        words.feature,
        names,
        correlations,
        "correlation",
        color="r",
        limits=(-1.0, 1.0),
    )
    first_of, second_of = np.triu_indices(len(correlations), 1)
    found = correlations[first_of, second_of]
    # A correlation of −1 says as much as one of 1: the other feature is redundant.
    order = np.argsort(-np.abs(found), kind="stable")[:MOST_PAIRS]
    body = [
        [
            report.features[first_of[i]],
            report.features[second_of[i]],
            float(found[i]),
        ]
        for i in order.tolist()
    ]
    text = (
        f"Correlations are computed over all {words.samples}, and every "
        f"{words.class_} has the same weight. Two {words.features} that "
        "always vary together could replace each other."
    )
    caption = f"Pairs of {words.features}, most similar first"
    table = Table(caption, ["one", "other", "correlation"], body)
    return Section(
        f"Correlation between the {words.features}",
        [text],
        table,
        [panel],
    )
