"""The paper's figures, drawn again from the rows of benchmarks/results/reproduce.json.

    python docs/reproduced.py

writes docs/images/paper-*.svg, and the page that shows them. A figure without rows is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from line_charts import Axis, Chart, Points, interval_chart, line_chart

from semfs.lab.claims.measured import (
    OURS,
    PUBLISHED,
    Scores,
    Sweep,
    attribute_leads,
    objectives,
    scores_of,
    swept,
    times,
)
from semfs.lab.claims.rules import FEWEST_SPLITS
from semfs.lab.comparison import METRICS, Row
from semfs.lab.sections import data_title

IMAGES = Path(__file__).parent / "images"

#: Lines of the main comparison: the paper's methods. SemFS/c is so close to SemFS that it
#: could not be seen.
MAIN = {
    OURS: "SemFS",
    "LASSO": "LASSO",
    "MCFS": "MCFS",
    "WkNN": "WkNN",
    "FSASL": "FSASL",
    "L20ALM": "L20ALM",
    "Random": "Random",
    PUBLISHED: "Algorithm 1 as published",
}
SHARE_LINES = (OURS, "SemFS (labels)", "ANOVA F", "Markers per class", "LASSO", "Random")
ALPHA_LINES = (OURS, PUBLISHED)


@dataclass(frozen=True)
class Figure:
    """A picture of the page: file name, heading, words for those who cannot see it, SVG."""

    name: str
    heading: str
    caption: str
    alt: str
    svg: str


def all_figures(rows: Sequence[Row]) -> list[Figure]:
    """Return all figures for which there are rows."""
    scores = scores_of(rows)
    made = [
        *(_main_figure(scores, metric) for metric in METRICS),
        _share_figure(rows),
        _attributes_figure(rows),
        _alpha_figure(rows),
        _convergence_figure(rows),
        _time_figure(rows),
    ]
    return [figure for figure in made if figure is not None]


def write_figures(figures: Sequence[Figure]) -> None:
    """Write docs/images/paper-*.svg, and remove those that are no longer drawn."""
    for path in IMAGES.glob("paper-*.svg"):
        path.unlink()
    for figure in figures:
        (IMAGES / f"{figure.name}.svg").write_text(figure.svg, encoding="utf-8")


def _main_figure(scores: Scores, metric: str) -> Figure | None:
    """Scores against k on each data set, over the splits that all lines have."""
    panels: dict[str, dict[str, Points]] = {}
    ks: set[int] = set()
    for name, methods in scores.items():
        of_label = {
            label: {split for split, _ in methods[label][metric]}
            for label in MAIN
            if label in methods
        }
        # A line with few splits would take them from all others.
        needed = min(FEWEST_SPLITS, max(map(len, of_label.values()), default=0))
        shown = [label for label, splits in of_label.items() if len(splits) >= needed]
        if OURS not in shown:
            continue
        splits = set.intersection(*(of_label[label] for label in shown))
        if not splits:
            continue
        lines: dict[str, Points] = {}
        for label in shown:
            values = methods[label][metric]
            ks_of_label = sorted({k for split, k in values if split in splits})
            ks |= set(ks_of_label)
            lines[MAIN[label]] = [
                (k, fmean(values[s, k] for s in splits if (s, k) in values), 0.0)
                for k in ks_of_label
            ]
        panels[f"{_short(name)}, {_splits(len(splits))}"] = lines
    if not panels:
        return None
    title = METRICS[metric]
    chart = Chart(
        f"{title} on unseen classes against the number of features, by data set",
        Axis("features", sorted(ks)),
        Axis(title),
        panels,
    )
    drawn = {name for lines in panels.values() for name in lines}
    names = _listed([name for name in MAIN.values() if name in drawn])
    alt = (
        f"Line chart with a panel for each data set: {title} of {names} against the number of "
        "selected features."
    )
    return Figure(
        f"paper-{metric}",
        f"{title} against the number of features",
        "The methods of the paper. Each point is the mean over the class splits that all lines "
        "in a panel share. Methods with few splits are left out here; the "
        "[tables of scores](reproducing-numbers.md#scores-of-all-methods) include them.",
        alt,
        line_chart(chart),
    )


def _sweep_panels(
    sweeps: Mapping[str, Mapping[str, Sweep]], labels: Sequence[str]
) -> dict[str, dict[str, Points]]:
    """Panels of means over the splits that all lines have at all values of x."""
    panels: dict[str, dict[str, Points]] = {}
    for name, methods in sweeps.items():
        shown = {label: methods[label] for label in labels if len(methods.get(label, {})) > 1}
        points = [set(splits) for by_x in shown.values() for splits in by_x.values()]
        common = set.intersection(*points) if points else set()
        if not common:
            continue
        panels[f"{_short(name)}, {_splits(len(common))}"] = {
            label: [(x, fmean(by_x[x][split] for split in common), 0.0) for x in sorted(by_x)]
            for label, by_x in shown.items()
        }
    return panels


def _share_figure(rows: Sequence[Row]) -> Figure | None:
    """ACC against the labeled share of the seen classes."""
    panels = _sweep_panels(swept(rows, "labeled-ratio", "ratio", "acc"), SHARE_LINES)
    if not panels:
        return None
    drawn = [label for label in SHARE_LINES if any(label in of for of in panels.values())]
    chart = Chart(
        "ACC against the labeled share of the seen classes, by data set",
        Axis("labeled share", [0.1, 0.3, 0.5, 1.0], limits=(0.0, 1.0)),
        Axis("ACC"),
        panels,
    )
    return Figure(
        "paper-ratio",
        "Labeled share",
        "Each point is the mean over k and class splits. A labeled share of 0.1 means that one "
        "in ten samples of each seen class has a label.",
        f"Line chart with a panel for each data set: ACC of {_listed(drawn)} against the "
        "labeled share of each seen class.",
        line_chart(chart),
    )


def _attributes_figure(rows: Sequence[Row]) -> Figure | None:
    """Leads of attributes over labels as targets."""
    groups: dict[str, dict[str, Points]] = {}
    for name, leads in attribute_leads(rows).items():
        of_set: dict[str, Points] = {}
        for method, (acc, _) in leads.items():
            if acc.high is not None:
                of_set[method] = [(acc.mean, acc.mean, acc.high - acc.mean)]
        if of_set:
            groups[_short(name)] = of_set
    if not groups:
        return None
    title = "Lead of attributes over labels as targets, by data set and method"
    return Figure(
        "paper-attributes",
        "Attributes against labels",
        "Differences in ACC with 95 % intervals, as means over k. To the right of zero, "
        "attributes are the better targets; to the left, labels are.",
        "Interval chart: by how much attributes of the seen classes are better targets than "
        "labels, for each data set and method; zero is no difference.",
        interval_chart(title, "ACC with attributes − ACC with labels", groups),
    )


def _alpha_figure(rows: Sequence[Row]) -> Figure | None:
    """ACC against α."""
    panels = _sweep_panels(swept(rows, "alpha", "alpha", "acc"), ALPHA_LINES)
    panels = {
        name: {label: [p for p in points if p[0] <= 1.0] for label, points in lines.items()}
        for name, lines in panels.items()
    }
    if not panels:
        return None
    chart = Chart(
        "ACC against α, the weight of the center-characteristic loss, by data set",
        Axis("α", [0.001, 0.01, 0.1, 1.0], logarithmic=True),
        Axis("ACC"),
        panels,
    )
    return Figure(
        "paper-alpha",
        "Effect of α",
        "Each point is the mean over k and class splits.",
        f"Line chart with a panel for each data set: ACC of {_listed(ALPHA_LINES)} against α.",
        line_chart(chart),
    )


def _convergence_figure(rows: Sequence[Row]) -> Figure | None:
    """The objective over the iterations, as a share of its first value."""
    panels: dict[str, dict[str, Points]] = {}
    for row in objectives(rows):
        J = row["objective"]
        points = [(i, value / J[0], 0.0) for i, value in enumerate(J, start=1)]
        panels.setdefault(row["method"], {})[_short(data_title(row["dataset"]))] = points
    if not panels:
        return None
    chart = Chart(
        "The objective J over the iterations, as a share of its first value",
        Axis("iteration", [1, 10, 20, 30]),
        Axis("J / first J"),
        panels,
        own_y=False,
    )
    return Figure(
        "paper-convergence",
        "Convergence",
        "*SemFS as published* takes one small step of length 1/λ_max in each iteration; the "
        "paper does not state its step length. *SemFS alternating* is "
        "the same algorithm with the default settings of `semfs`.",
        f"Line chart: the objective of Algorithm 1 over {len(J)} iterations, a panel for "
        f"{_listed(list(panels))}, a line for each data set.",
        line_chart(chart),
    )


def _time_figure(rows: Sequence[Row]) -> Figure | None:
    """Seconds of a fit against the number of samples."""
    measured = times(rows)
    lines: dict[str, Points] = {
        method: [(n, seconds, 0.0) for n, seconds in points]
        for method, points in measured.items()
        if len(points) > 1
    }
    if not lines:
        return None
    sizes = sorted({n for points in lines.values() for n, *_ in points})
    d = max(
        row["d"] for row in rows if row["experiment"] == "scaling" and row["n"] == sizes[-1]
    )
    chart = Chart(
        "Seconds of a fit against the number of samples",
        Axis("samples", sizes, logarithmic=True),
        Axis("seconds", logarithmic=True),
        {f"Generated data, {d:,} features": dict(sorted(lines.items(), key=_ours_first))},
    )
    return Figure(
        "paper-time",
        "Run time",
        "Seconds of a fit on generated data. Both axes are logarithmic.",
        f"Line chart: seconds of a fit of {_listed(list(lines))} against the number of "
        "samples.",
        line_chart(chart),
    )


def _ours_first(line: tuple[str, Points]) -> tuple[bool, str]:
    """Sorts SemFS before other methods: its color is the same in all figures."""
    return not line[0].startswith("SemFS"), line[0]


def _short(title: str) -> str:
    """The title of a data set without what is in brackets."""
    return title.split(" (")[0]


def _splits(n: int) -> str:
    return "1 split" if n == 1 else f"{n} splits"


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
