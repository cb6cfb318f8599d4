"""The sections of the page about a panel, each with its text, table and figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Float64
from semfs.lab.sections import Panel, Section, Table
from semfs.panel.words import CELLS
from semfs.scverse import FEW_SAMPLES
from semfs.selectors.explanation import Explanation
from semfs.selectors.rules.parameters import PANEL_RULES
from semfs.validation import listed

if TYPE_CHECKING:
    from semfs.panel.report import PanelReport


#: Features drawn in a dot plot or heat map, and classes: more could not be read.
MOST_SHOWN = 100
#: Rows of the tables of pairs; the frames have all of them.
MOST_PAIRS = 300
#: Pairs of classes that are named in the text.
MOST_NAMED = 5
#: A distance from which colors are alike: the best rule errs in Φ(-3) = 0.1 % of the samples.
LARGEST_DISTANCE = 6.0
#: Pairs that the best rule confuses in more than this share of their samples are named.
NOTABLE_ERROR = 0.05


def panel_sections(report: PanelReport) -> list[Section]:
    """Return the sections of the page, each with its figures and tables."""
    parts = [
        _summary(report),
        _feature_section(report),
        _dots(report),
        _coverage(report),
        _separation(report),
        _correlation(report),
    ]
    if report.explanation.n_bootstraps:
        parts.append(_stability(report))
    if report.rules:
        parts.append(Section("Rules", list(report.rules)))
    return parts


def _summary(report: PanelReport) -> Section:
    """The panel in a few sentences."""
    words = report.words
    found = report.explanation
    text = f"{len(report.features)} of {report.n_features} {words.features}, selected on "
    if report.n_samples is not None:
        text += f"{report.n_samples} {words.samples} of "
    text += f"{len(found.classes.columns)} {words.classes}."
    if found.unseen:
        text += (
            f" Described {words.classes} without {words.samples}: {listed(found.unseen, 8)}. "
            "Everything that this page says about these is predicted."
        )
    paragraphs = [text, *_small_classes(report), *_batch_features(report)]
    if _weakest(report):
        paragraphs.append(
            f"Hardest to separate: {_weakest(report)}. The other pairs are confused in "
            f"at most {_next_error(report):.0%} of their {words.samples}, as far as "
            "normal distributions describe them."
        )
    else:
        closest = ""
        for pair in found.pairs[:1].itertuples():
            closest = f" Closest are {pair.first} and {pair.second}."
        paragraphs.append(
            f"Every pair of {words.classes} can be separated: less than "
            f"{NOTABLE_ERROR:.0%} of their {words.samples} would be confused, as far as "
            f"normal distributions describe them.{closest}"
        )
    bare = found.coverage.index[found.coverage == 0].tolist()
    if bare:
        paragraphs.append(
            f"No {words.feature} marks {listed(bare, MOST_NAMED)}; combinations of "
            f"{words.features} may separate them nevertheless."
        )
    for source, used in report.knowledge.items():
        text = used.removeprefix("used: ")
        paragraphs.append(f"{source[:1].upper()}{source[1:]}: {text}.")
    return Section("Summary", paragraphs)


def _small_classes(report: PanelReport) -> list[str]:
    """A paragraph about classes with so few samples that their means are uncertain."""
    if report.class_sizes is None:
        return []
    words = report.words
    sizes = report.class_sizes[report.class_sizes < FEW_SAMPLES].sort_values(kind="stable")
    if not len(sizes):
        return []
    names = listed([f"{label} ({size})" for label, size in sizes.items()], 8)
    verb = f"{words.class_} has" if len(sizes) == 1 else f"{words.classes} have"
    return [
        f"{len(sizes)} {verb} fewer than {FEW_SAMPLES} {words.samples}: {names}. What this "
        "page says of them rests on so few, and may not hold for others."
    ]


def _batch_features(report: PanelReport) -> list[str]:
    """A paragraph about features that vary more with the batch than with the class."""
    words = report.words
    found = report.explanation.features
    if "more_batch" not in found or not found["more_batch"].any():
        return []
    names = listed(found.index[found["more_batch"].astype(bool)].astype(str).tolist(), 8)
    return [
        f"Vary more with the batch than with the {words.class_}: {names}. "
        f"You may exclude such {words.features}."
    ]


def _signs_kept(attributes: str) -> str:
    """Attributes with their signs, between which no line is broken."""
    return attributes.replace("+ ", "+\N{NO-BREAK SPACE}").replace("− ", "−\N{NO-BREAK SPACE}")


def _weakest(report: PanelReport) -> str:
    """The pairs of classes that are hardest to separate, in words."""
    pairs = report.explanation.pairs
    notable = pairs[pairs["error"] >= NOTABLE_ERROR][:MOST_NAMED]
    return "; ".join(
        f"{pair.first} and {pair.second} ({pair.error:.0%} confused)"
        for pair in notable.itertuples()
    )


def _next_error(report: PanelReport) -> float:
    """The share of samples confused of the worst pair that `_weakest` does not name."""
    errors = report.explanation.pairs["error"].to_numpy()
    # Pairs are sorted by error, the largest first, and `_weakest` names the first ones.
    n_named = min(MOST_NAMED, int((errors >= NOTABLE_ERROR).sum()))
    return float(errors[n_named]) if n_named < len(errors) else 0.0


def _feature_section(report: PanelReport) -> Section:
    """The features in the order of their entry, with reasons."""
    words = report.words
    found = report.explanation
    columns = [
        "rank",
        words.feature,
        "share of fit",
        "varies with",
        "levels",
    ]
    if found.n_bootstraps:
        columns.append("frequency")
    has_batches = "batch_variance" in found.features
    if has_batches:
        columns.append(f"{words.class_} · batch")
    columns.append("near copies")
    body: list[list[Any]] = []
    # Cells follow the order of `columns`, which has optional ones in between.
    for rank, row in enumerate(found.features.itertuples(), start=1):
        name = str(row.Index)
        line: list[Any] = [
            rank,
            name,
            f"{row.share:.1%}",
            _signs_kept(row.carries),
            row.separates,
        ]
        if found.n_bootstraps:
            line.append(f"{row.frequency:.0%}")
        if has_batches:
            line.append(f"{row.class_variance:.0%} · {row.batch_variance:.0%}")
        line.append(_copies_of(report, name))
        body.append(line)
    text = (
        f"In the order of selection: each {words.feature} adds to those above it. Share of "
        "fit: its part of the decrease of the objective. Varies with: attributes that its "
        f"class means follow. Near copies: {words.features} that follow nearly the same "
        "pattern, with their correlation; those outside the panel are substitutes."
    )
    if has_batches:
        text += f" {words.class_.capitalize()} · batch: their shares of its variance."
    caption = f"The {words.features}, best first"
    title = f"The {words.features}"
    return Section(title, [text], Table(caption, columns, body, open=True))


def _copies_of(report: PanelReport, name: str) -> list[tuple[str, str]] | str:
    """The near copies of a feature, each with a remark."""
    copies = report.explanation.duplicates
    found = []
    for copy in copies[copies["feature"] == name].itertuples():
        remark = f"{copy.correlation:.2f}"
        if copy.chosen:
            remark += ", in the panel"
        found.append((str(copy.other), remark))
    return found or "–"


def _dots(report: PanelReport) -> Section:
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
    if found.unseen:
        text += f" Diamonds: described {words.classes} without {words.samples}, by "
        text += "predicted means."
    if len(report.features) > MOST_SHOWN or levels.shape[1] > MOST_SHOWN:
        text += f" The first {MOST_SHOWN} are shown."
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
    """The share of samples of a class above the threshold, if it is known."""
    if report.shares is None or label not in report.shares.columns:
        return None
    return float(report.shares[label].iloc[row])


def _coverage(report: PanelReport) -> Section:
    """How many features mark each class, and which."""
    words = report.words
    found = report.explanation
    distances = found.separation.to_numpy(copy=True)
    # A class is at distance 0 of itself, which is not its nearest other class.
    np.fill_diagonal(distances, np.inf)
    body: list[list[Any]] = []
    for row, (label, n_markers) in enumerate(found.coverage.items()):
        markers = found.markers.index[found.markers[label]].astype(str).tolist()
        nearest = found.separation.columns[distances[row].argmin()]
        title = f"{label} (predicted)" if label in found.unseen else str(label)
        # More digits than its errors have would mislead.
        distance = f"{distances[row].min():.1f}"
        size = None if report.class_sizes is None else report.class_sizes.get(label)
        body.append(
            [
                title,
                "–" if size is None else int(size),
                int(n_markers),
                markers or "–",
                str(nearest),
                distance,
            ]
        )
    # Classes that lack markers are what a reader looks for.
    body.sort(key=lambda line: line[2])
    text = (
        f"A {words.feature} marks a {words.class_} if its mean there lies at least one "
        "standard deviation (within classes) above the mean of the others, and the "
        f"{words.class_} is among its two highest."
    )
    columns = [
        words.class_,
        words.samples,
        "markers",
        "which",
        "nearest",
        "distance to it",
    ]
    caption = f"Markers of each {words.class_}, fewest first"
    return Section(
        f"Coverage of each {words.class_}",
        [text],
        Table(caption, columns, body, open=True),
    )


def _separation(report: PanelReport) -> Section:
    """Distances between all pairs of classes."""
    words = report.words
    found = report.explanation
    marks = {label: f"{label} (predicted)" for label in found.unseen}
    names = [marks.get(label, str(label)) for label in found.separation.index]
    names = names[:MOST_SHOWN]
    distances = found.separation.to_numpy()
    series = _heat_map(names, distances, "distance")
    panel = Panel(
        f"Distance of every pair of {words.classes}",
        words.class_,
        words.class_,
        series,
        kind="heat",
        color="distance",
        limits=(0.0, LARGEST_DISTANCE),
    )
    # Two normal distributions of one covariance at distance δ: the best rule errs in
    # Φ(−δ/2) of the samples, the numbers that the text gives.
    pairs = found.pairs[:MOST_PAIRS]
    body = [
        [
            marks.get(p.first, p.first),
            marks.get(p.second, p.second),
            f"{p.distance:.1f}",
            p.error,
        ]
        for p in pairs.itertuples()
    ]
    columns = ["one", "other", "distance", "share confused"]
    text = (
        "Mahalanobis distance of the class means under the covariance within classes, "
        f"with these {words.features} only. Of the {words.samples} of two {words.classes} "
        "the best rule confuses 16 % at distance 2, 2 % at distance 4, and nearly none at "
        "distance 6: what can be expected of normal distributions, not a measured error."
    )
    weakest = _weakest(report)
    paragraphs = [text]
    if weakest:
        paragraphs.append(f"Weakest pairs: {weakest}.")
    caption = f"Pairs of {words.classes}, the least separated first"
    title = f"Expected separation of {words.classes}"
    return Section(title, paragraphs, Table(caption, columns, body), [panel])


def _correlation(report: PanelReport) -> Section:
    """Correlations between the selected features."""
    words = report.words
    correlations = report.explanation.correlation.to_numpy()
    names = report.features[:MOST_SHOWN]
    series = _heat_map(names, correlations, "correlation")
    panel = Panel(
        f"Correlation of {words.features}",
        words.feature,
        words.feature,
        series,
        kind="heat",
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
        f"Correlations are over all {words.samples}, and every {words.class_} counts the same. "
        f"Two {words.features} that always vary together could replace each other."
    )
    caption = f"Pairs of {words.features}, the most alike first"
    table = Table(caption, ["one", "other", "correlation"], body)
    return Section(
        f"Correlation between the {words.features}",
        [text],
        table,
        [panel],
    )


def _stability(report: PanelReport) -> Section:
    """How often features are selected on bootstraps of the classes."""
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
        text += f" All rules held every time ({', '.join(ruled)})"
        if "min_per_class" in ruled:
            text += f"; markers were demanded of the {words.classes} that were drawn"
        text += "."
    columns = [
        words.feature,
        "frequency",
        "95 % interval",
        "in the panel",
    ]
    caption = f"Frequency of selection over {found.n_bootstraps} bootstraps"
    return Section("Stability", [text], Table(caption, columns, body))


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


def _dot_text(point: tuple[Any, ...]) -> str:
    """An entry of the table of a dot plot."""
    _, level, share, _ = point
    return f"{level:.2f}" if share is None else f"{level:.2f} ({share:.0%})"


def _heat_map(names: list[str], values: Float64, what: str) -> dict[str, list[tuple[Any, ...]]]:
    """Fields of a heat map of all pairs, by name; the diagonal stays empty."""
    series = {}
    for i, first in enumerate(names):
        series[first] = [
            _field(second, None if i == j else float(values[i, j]), what)
            for j, second in enumerate(names)
        ]
    return series


def _field(name: str, value: float | None, what: str) -> tuple[Any, ...]:
    """A field of a heat map."""
    if value is None:
        return name, None, ""
    return name, value, f"{what} {value:.2f}"
