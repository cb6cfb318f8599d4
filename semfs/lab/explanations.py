"""The section of a report that explains a selection.

It takes an `Explanation` of `semfs.selectors`, of which only the frames are read.
"""

from __future__ import annotations

import math
from typing import Any

from semfs.lab.page import bars, figure, heat_map, lines, section, table

__all__ = ["explanation_section"]

#: Attributes shown in the heat map: those that some feature carries most.
MOST_ATTRIBUTES = 40
#: Features drawn; the table has all of them.
MOST_FEATURES = 50


def explanation_section(explanation: Any, title: str = "Why these features") -> dict[str, Any]:
    """Return a section with a table of the chosen features and figures of their reasons.

    Names of features, classes and attributes are untrusted text; the page escapes them.

    Parameters
    ----------
    explanation : Explanation
        From ``selector.explain()``.
    title : str, default="Why these features"
        Heading of the section.
    """
    features = explanation.features
    columns = ["feature", "share of the fall of J", "carries", "separates", "duplicates"]
    columns += ["chosen in bootstraps", "from", "to"]
    rows = [
        [
            str(name),
            float(row["share"]),
            str(row["carries"]),
            str(row["separates"]),
            str(row["duplicates"]),
            *(_number(row[column]) for column in ("frequency", "low", "high")),
        ]
        for name, row in features.iterrows()
    ]
    return section(
        title,
        [_in_words(explanation)],
        table("The chosen features, in order of entry", columns, rows, "explanation"),
        figure(
            "Gains, attributes and stability; all values are in the table.",
            _panels(explanation),
        ),
    )


def _in_words(explanation: Any) -> str:
    text = (
        "In order of entry: the share of the total fall of J that a feature brings; the "
        "attributes its class means go with; the classes on one side of its widest gap; "
        "features that say nearly the same."
    )
    if explanation.n_bootstraps:
        text += (
            f" Stability is the share of {explanation.n_bootstraps} bootstraps of the classes "
            "in which the feature is chosen, with 95 % intervals."
        )
    return text


def _panels(explanation: Any) -> list[dict[str, Any]]:
    features = explanation.features.iloc[:MOST_FEATURES]
    total = features["share"].cumsum()
    points = [
        (rank, float(value), None, str(name))
        for rank, (name, value) in enumerate(total.items(), start=1)
    ]
    panels = [
        lines("Gain", {"sum of gains": points}, "number of features", "share of the fall")
    ]
    carried = explanation.attributes.iloc[:MOST_FEATURES]
    if carried.notna().to_numpy().all():
        strongest = carried.abs().max().sort_values(ascending=False, kind="stable")
        shown = [
            name for name in carried.columns if name in set(strongest.index[:MOST_ATTRIBUTES])
        ]
        panels.append(
            heat_map(
                "Attributes: correlation over the seen classes",
                carried[shown].to_numpy().tolist(),
                [str(name) for name in carried.index],
                [str(name) for name in shown],
                diverging=True,
            )
        )
    if explanation.n_bootstraps:
        chosen = [
            (str(name), float(row["frequency"]), None, f"{row['low']:.2f} to {row['high']:.2f}")
            for name, row in features.iterrows()
        ]
        panels.append(bars("Stability", {"class bootstraps": chosen}, "share of bootstraps"))
    return panels


def _number(value: Any) -> float | None:
    return None if value is None or math.isnan(value) else float(value)
