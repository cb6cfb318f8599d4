"""The sections of the page about a panel, each with its text, table and figure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Float64
from semfs.lab.sections import Panel, Section, Table
from semfs.labels import FEW_SAMPLES
from semfs.panel.words import CELLS
from semfs.selectors.explanation import Explanation
from semfs.selectors.rules.panel_rules import percent
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
#: A share of confused samples from which colors are alike: half of them are confused by chance.
MOST_CONFUSED = 0.3
#: Pairs of which more than this share of the samples is confused are named.
NOTABLE_ERROR = 0.05
#: Predicted shares below this are not named: predictions are too small as a rule.
LEAST_PREDICTED = 0.01


def panel_sections(report: PanelReport) -> list[Section]:
    """Return the sections of the page, each with its figures and tables."""
    parts = [
        _summary(report),
        *_group_section(report),
        _feature_section(report),
        _dots(report),
        _coverage(report),
        _separation(report),
        _correlation(report),
    ]
    if report.explanation.n_bootstraps:
        parts.append(_stability(report))
    if report.rules:
        parts.append(_rules(report))
    return parts


def _summary(report: PanelReport) -> Section:
    """Return the panel in a few sentences."""
    words = report.words
    found = report.explanation
    text = f"{len(report.features)} of {report.n_features:,} {words.features}, selected on "
    if report.n_samples is not None:
        text += f"{report.n_samples:,} {words.samples} of "
    text += f"{len(found.classes.columns)} {words.classes}."
    if found.unseen:
        text += (
            f" Described {words.classes} with no {words.samples}, or too few to be used: "
            f"{listed(found.unseen, 8)}. "
            "Everything that this page says about these is predicted."
        )
    paragraphs = [text, *_small_classes(report), *_batch_features(report)]
    paragraphs.append(_hardest(report))
    paragraphs.append(_fewest_markers(report))
    for source, used in report.knowledge.items():
        text = words.put_into(used.removeprefix("used: "))
        source = source.replace("classes", words.classes).replace("samples", words.samples)
        paragraphs.append(f"{source[:1].upper()}{source[1:]}: {text}.")
    return Section("Summary", paragraphs)


def _fewest_markers(report: PanelReport) -> str:
    """Return which classes have the fewest markers."""
    words = report.words
    coverage = report.explanation.coverage
    fewest = int(coverage.min())
    names = listed(coverage.index[coverage == fewest].tolist(), MOST_NAMED)
    if fewest == 0:
        return (
            f"No {words.feature} marks {names}; combinations of {words.features} may separate "
            "them nevertheless."
        )
    noun = words.feature if fewest == 1 else words.features
    verb = "marks" if fewest == 1 else "mark"
    return f"{fewest} {noun} or more {verb} every {words.class_}; that few mark {names}."


def _small_classes(report: PanelReport) -> list[str]:
    """Return a paragraph about classes with so few samples that their means are uncertain."""
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
        "page says of them rests on so few, and may not hold for others; how well they are "
        "separated is not known."
    ]


def _batch_features(report: PanelReport) -> list[str]:
    """Return a paragraph about features that vary more with the batch than with the class."""
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


def _hardest(report: PanelReport) -> str:
    """Return a paragraph on pairs of classes that are hard to separate, and on the others."""
    words = report.words
    pairs = report.pairs().dropna(subset="confused")
    weakest = _weakest(report)
    if not weakest:
        closest = ""
        for pair in pairs[:1].itertuples():
            closest = f" Closest are {pair.first} and {pair.second} ({pair.confused:.1%})."
        return (
            f"Every pair of {words.classes} can be separated: less than {NOTABLE_ERROR:.0%} of "
            f"their {words.samples} are confused.{closest}"
        )
    # `_weakest` names the first pairs, and pairs come by falling share.
    shares = pairs["confused"].to_numpy()
    n_named = min(MOST_NAMED, int((shares >= NOTABLE_ERROR).sum()))
    text = f"Hardest to separate: {weakest}."
    if n_named < len(shares):
        text += (
            f" Of each other pair at most {shares[n_named]:.0%} of the {words.samples} are "
            "confused."
        )
    return text


def _weakest(report: PanelReport) -> str:
    """Return the pairs of classes that are hardest to separate, in words."""
    pairs = report.pairs()
    notable = pairs[pairs["confused"] >= NOTABLE_ERROR][:MOST_NAMED]
    return "; ".join(
        f"{pair.first} and {pair.second} ({pair.confused:.0%} "
        f"{'confused' if pair.basis == 'counted' else 'predicted'})"
        for pair in notable.itertuples()
    )


def _group_section(report: PanelReport) -> list[Section]:
    """Return the section on groups: what each is for, its price and its worth."""
    groups = report.groups()
    if groups is None:
        return []
    words = report.words
    has_costs = "cost" in groups
    # of a selector that was loaded it is not known
    has_worth = bool(groups["worth"].notna().any())
    columns = ["rank", "group", words.features, "share of fit", "what it is for"]
    if has_costs:
        columns.append("price")
    if has_worth:
        columns.append("fit without it")
    body: list[list[Any]] = []
    for rank, row in enumerate(groups.itertuples(), start=1):
        line: list[Any] = [rank, str(row.Index), len(row.features), f"{row.share:.1%}"]
        line.append(_signs_kept(row.reason))
        if has_costs:
            line.append(f"{row.cost:g}")
        if has_worth:
            known = not np.isnan(row.worth)
            line.append(f"{percent(row.worth)} worse" if known else "–")
        body.append(line)
    text = (
        "In the order of selection. Share of fit: the part of the decrease of the objective, "
        f"summed over the {words.features} of the group. What it is for: what its best "
        f"{words.feature} varies with."
    )
    if has_worth:
        text += (
            " Fit without it: how much worse the fit would be if the group were excluded and "
            "the best others took its place within the rules; at most so much."
        )
    caption = "The groups, best first"
    return [Section("The groups", [text], Table(caption, columns, body, open=True))]


def _feature_section(report: PanelReport) -> Section:
    """Return the features in the order of their entry, with reasons."""
    words = report.words
    found = report.explanation
    groups = report.prices.get("group")
    columns = ["rank", words.feature]
    if groups is not None:
        columns.append("group")
    columns += [
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
        line: list[Any] = [rank, name]
        if groups is not None:
            line.append(str(groups[rank - 1]))
        line += [
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
        f"means over the {words.classes} follow. Near copies: {words.features} of nearly the "
        "same pattern, with their correlation; those outside the panel are substitutes."
    )
    if has_batches:
        text += f" {words.class_.capitalize()} · batch: their shares of its variance."
    caption = f"The {words.features}, best first"
    title = f"The {words.features}"
    # With groups, their table comes first, and that of the features is folded.
    is_open = "group" not in report.prices
    return Section(title, [text], Table(caption, columns, body, open=is_open))


def _copies_of(report: PanelReport, name: str) -> list[tuple[str, str]] | str:
    """Return the near copies of a feature, each with a remark."""
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
    """Return the share of samples of a class above the threshold, if it is known."""
    if report.shares is None or label not in report.shares.columns:
        return None
    return float(report.shares[label].iloc[row])


def _coverage(report: PanelReport) -> Section:
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
        f"A {words.feature} marks a {words.class_} if its mean there lies at least one "
        f"standard deviation (within {words.classes}) above the mean of the others, and the "
        f"{words.class_} is among its two highest; the higher one is named in that case."
    )
    columns = [
        words.class_,
        words.samples,
        "markers",
        "which",
        "hardest to tell from",
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
    for name in found.markers.index[found.markers[label]]:
        highest = found.means.loc[name].idxmax()
        if highest == label:
            markers.append(str(name))
        else:
            markers.append((str(name), f"higher in {highest}"))
    return markers


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


def _separation(report: PanelReport) -> Section:
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
    panel = _heat_map(
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
    weakest = _weakest(report)
    if weakest:
        paragraphs.append(f"Weakest pairs: {weakest}.")
    caption = f"Pairs of {words.classes}, the least separated first"
    title = f"Expected separation of {words.classes}"
    return Section(title, paragraphs, Table(caption, columns, body), [panel])


def _separation_text(report: PanelReport) -> str:
    """Return how the shares of confused samples were found, and what they are worth."""
    words = report.words
    pairs = report.pairs()
    sentences = []
    if (pairs["basis"] == "counted").any():
        sentences.append(
            f"A {words.sample} is confused if, with these {words.features} only, it lies "
            f"nearer to the mean of the other {words.class_} than to that of its own, in which "
            f"it takes no part. The {words.features} were selected on the same "
            f"{words.samples}, so new ones may be confused somewhat more often."
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


def _correlation(report: PanelReport) -> Section:
    """Correlations between the selected features."""
    words = report.words
    correlations = report.explanation.correlation.to_numpy()
    names = report.features[:MOST_SHOWN]
    panel = _heat_map(
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


def _rules(report: PanelReport) -> Section:
    """Return what each rule ruled out or led to, and what it cost."""
    words = report.words
    body = []
    for sentence in report.rules:
        rule, _, text = words.put_into(sentence).partition(": ")
        body.append([rule, text[:1].upper() + text[1:]])
    text = (
        "J is what the panel leaves unexplained of the descriptions and labels of the "
        f"{words.classes}; a smaller one is better. The fit would be 5 % better without a rule "
        "if a search without it, but with all other rules, finds a J that is 5 % lower. Of a "
        f"rule that keeps {words.features} out, those are named which that search selects."
    )
    table = Table("The rules", ["rule", "what it did, and what it cost"], body, open=True)
    return Section("Rules", [text], table)


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
    """Return an entry of the table of a dot plot."""
    _, level, share, _ = point
    return f"{level:.2f}" if share is None else f"{level:.2f} ({share:.0%})"


def _heat_map(
    title: str,
    axis: str,
    names: list[str],
    values: Float64,
    measure: str,
    *,
    color: str,
    limits: tuple[float, float],
) -> Panel:
    """Return a heat map of a measure (n, n) of all pairs; the diagonal and NaN stay empty.

    ``axis`` says what is compared, and ``color`` is the title of the colors.
    """
    series: dict[str, list[tuple[Any, ...]]] = {}
    for i, first in enumerate(names):
        fields: list[tuple[Any, ...]] = []
        for j, second in enumerate(names):
            value = float(values[i, j])
            if i == j or np.isnan(value):
                fields.append((second, None, ""))
            else:
                fields.append((second, value, f"{measure} {value:.2f}"))
        series[first] = fields
    return Panel(title, axis, axis, series, kind="heat", color=color, limits=limits)
