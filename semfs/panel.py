"""A page about one panel of selected features, for those who order it or must approve it.

`panel_report` collects what is known about the panel; the object it returns has tables as
pandas frames, and writes the page (`PanelReport.write`) and the list for the vendor.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from semfs._typing import DataLike, Float64, Indices, LabelsLike, PathLike
from semfs.io.anndata import as_genes
from semfs.lab.report import as_csv, render_sections, write_text
from semfs.lab.sections import Panel, Section, Table
from semfs.labels import Labels
from semfs.rows import open_blocks
from semfs.scverse import versions
from semfs.selectors.explanation import Explanation
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.linear import LinearSelector
from semfs.selectors.selected_columns import selected_columns
from semfs.system import import_optional
from semfs.validation import listed

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["PanelReport", "Words", "panel_report"]

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


@dataclass(frozen=True)
class Words:
    """What features, samples and classes are called."""

    feature: str = "feature"
    features: str = "features"
    sample: str = "sample"
    samples: str = "samples"
    class_: str = "class"
    classes: str = "classes"


#: Words for single cells.
CELLS = Words("gene", "genes", "cell", "cells", "cell type", "cell types")


@dataclass(frozen=True, eq=False)
class PanelReport:
    """What is known about a panel.

    Attributes
    ----------
    explanation : Explanation
        Reasons, class means, coverage, correlations and pairs of classes, as frames.
    n_features : int
        Features of the data, d.
    n_samples : int or None
        Samples of the seen classes.
    shares : DataFrame of shape (k, C), or None
        Share of the samples of each seen class that are above ``threshold``.
    threshold : str
        Zero for cells, else the mean over the classes, in words.
    rules : list of str
        What each rule of the selection cost, in words.
    knowledge : mapping
        What information was used, and what was not, and why.
    settings : mapping
        Parameters of the selection.
    command : str
        What repeats it.
    words : Words
        What features, samples and classes are called.
    """

    explanation: Explanation
    n_features: int
    n_samples: int | None = None
    shares: pd.DataFrame | None = None
    threshold: str = "0"
    rules: Sequence[str] = ()
    knowledge: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, object] = field(default_factory=dict)
    command: str = ""
    words: Words = Words()

    @property
    def features(self) -> list[str]:
        """Names of the selected features, best first."""
        return [str(name) for name in self.explanation.features.index]

    def table(self) -> pd.DataFrame:
        """Return the list for the vendor.

        Columns are the feature (called as the words say), ``reason``, ``frequency`` over
        bootstraps and ``substitutes``; the index is the ``rank``.
        """
        pandas = import_optional("pandas", "data", what="A panel")
        found = self.explanation.features
        columns = {
            self.words.feature: self.features,
            "reason": self._reasons(),
            "frequency": found["frequency"].to_numpy(),
            "substitutes": [", ".join(names) for names in self.substitutes().values()],
        }
        ranks = pandas.RangeIndex(1, len(found) + 1, name="rank")
        return pandas.DataFrame(columns, index=ranks)

    def substitutes(self) -> dict[str, list[str]]:
        """Return for each feature the near copies of it that are not selected, best first."""
        copies = self.explanation.duplicates
        others = copies[~copies["chosen"].astype(bool)]
        # Every feature gets a list, also an empty one: the table has one row for each.
        found: dict[str, list[str]] = {name: [] for name in self.features}
        for name, other in zip(others["feature"], others["other"]):
            found[str(name)].append(str(other))
        return found

    def write(self, path: PathLike) -> list[Path]:
        """Write the page (.html) and, beside it, the list for the vendor (.csv).

        The page needs no network. Returns both paths.
        """
        page = Path(path)
        if page.suffix.lower() not in (".html", ".htm"):
            raise ValueError(f"{path}: the page is written as .html; choose such a name.")
        table = page.with_suffix(".csv")
        text = self._csv()
        return [write_text(self.render(), page), write_text(text, table)]

    def render(self) -> str:
        """Return the HTML of the page."""
        return render_sections(
            self.sections(),
            {
                "command": self.command,
                "versions": versions(),
                "settings": self._shown_settings(),
            },
            title=f"Panel of {len(self.features)} {self.words.features}",
            csv=self._csv(),
            csv_text=f"The {len(self.features)} {self.words.features} (CSV)",
            csv_name="panel.csv",
        )

    def _shown_settings(self) -> dict[str, str]:
        """Settings as text; without lists of indices, and the command, which has its place."""
        shown = {}
        for name, value in self.settings.items():
            if name == "command" or name.endswith("_indices") or value is False:
                continue
            if isinstance(value, list | tuple):
                value = ", ".join(str(item) for item in value)
            shown[name] = str(value)
        return shown

    def _csv(self) -> str:
        table = self.table()
        rows = [[rank, *values] for rank, *values in table.itertuples()]
        for row in rows:
            # Without bootstraps the frequency is not known.
            row[3] = None if np.isnan(row[3]) else round(row[3], 4)
        return as_csv(["rank", *table.columns], rows)

    def _reasons(self) -> list[str]:
        """Why each feature was selected."""
        reasons = []
        for row in self.explanation.features.itertuples():
            reason = f"varies with {row.carries}"
            if row.separates:
                reason += f"; {row.separates}"
            reasons.append(reason)
        return reasons

    # ---- sections --------------------------------------------------------------------

    def sections(self) -> list[Section]:
        """Return the sections of the page, each with its figures and tables."""
        parts = [
            self._summary(),
            self._feature_section(),
            self._dots(),
            self._coverage(),
            self._separation(),
            self._correlation(),
        ]
        if self.explanation.n_bootstraps:
            parts.append(self._stability())
        if self.rules:
            parts.append(Section("Rules", list(self.rules)))
        return parts

    def _summary(self) -> Section:
        """The panel in a few sentences."""
        words = self.words
        found = self.explanation
        text = f"{len(self.features)} of {self.n_features} {words.features}, selected on "
        if self.n_samples is not None:
            text += f"{self.n_samples} {words.samples} of "
        text += f"{len(found.classes.columns)} {words.classes}."
        if found.unseen:
            text += (
                f" Without {words.samples}, and only described: {listed(found.unseen, 8)}; "
                "what is said of them is predicted."
            )
        paragraphs = [text]
        if self._weakest():
            paragraphs.append(
                f"Hardest to separate: {self._weakest()}. The other pairs are confused in "
                f"at most {self._next_error():.0%} of their {words.samples}, as far as "
                "normal distributions describe them."
            )
        else:
            paragraphs.append(
                f"Every pair of {words.classes} can be separated: less than "
                f"{NOTABLE_ERROR:.0%} of their {words.samples} would be confused, as far as "
                "normal distributions describe them."
            )
        bare = found.coverage.index[found.coverage == 0].tolist()
        if bare:
            paragraphs.append(
                f"No {words.feature} marks {listed(bare, MOST_NAMED)}; combinations of "
                f"{words.features} may separate them nevertheless."
            )
        for source, used in self.knowledge.items():
            paragraphs.append(f"{source[:1].upper()}{source[1:]}: {used}.")
        return Section("Summary", paragraphs)

    def _weakest(self) -> str:
        """The pairs of classes that are hardest to separate, in words."""
        pairs = self.explanation.pairs
        notable = pairs[pairs["error"] >= NOTABLE_ERROR][:MOST_NAMED]
        return "; ".join(
            f"{pair.first} and {pair.second} ({pair.error:.0%} confused)"
            for pair in notable.itertuples()
        )

    def _next_error(self) -> float:
        """The share of samples confused of the worst pair that `_weakest` does not name."""
        errors = self.explanation.pairs["error"].to_numpy()
        # Pairs are sorted by error, the largest first, and `_weakest` names the first ones.
        n_named = min(MOST_NAMED, int((errors >= NOTABLE_ERROR).sum()))
        return float(errors[n_named]) if n_named < len(errors) else 0.0

    def _feature_section(self) -> Section:
        """The features in the order of their entry, with reasons."""
        words = self.words
        found = self.explanation
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
                row.carries,
                row.separates,
            ]
            if found.n_bootstraps:
                line.append(f"{row.frequency:.0%}")
            if has_batches:
                line.append(f"{row.class_variance:.0%} · {row.batch_variance:.0%}")
            line.append(self._copies_of(name))
            body.append(line)
        text = (
            f"In the order of selection: each {words.feature} adds to those above it. Share of "
            "fit: its part of the decrease of the objective. Varies with: attributes that its "
            f"class means follow. Near copies: {words.features} that say nearly the same, with "
            "their correlation; those outside the panel are substitutes."
        )
        if has_batches:
            text += f" {words.class_.capitalize()} · batch: their shares of its variance."
        caption = f"The {words.features}, best first"
        title = f"The {words.features}"
        return Section(title, [text], Table(caption, columns, body, open=True))

    def _copies_of(self, name: str) -> list[tuple[str, str]] | str:
        """The near copies of a feature, each with a remark."""
        copies = self.explanation.duplicates
        found = []
        for copy in copies[copies["feature"] == name].itertuples():
            remark = f"{copy.correlation:.2f}"
            if copy.chosen:
                remark += ", in the panel"
            found.append((str(copy.other), remark))
        return found or "–"

    def _dots(self) -> Section:
        """Levels of the features by class."""
        words = self.words
        found = self.explanation
        of_cells = words == CELLS
        levels = found.means
        color = "mean"
        if not of_cells:
            # Features in different units: standard deviations about the mean over classes.
            deviations = _spreads(found)
            levels = levels.sub(levels.mean(axis=1), axis=0).div(deviations, axis=0)
            color = "level"
        shown = self.features[:MOST_SHOWN]
        series: dict[str, list[tuple[Any, ...]]] = {}
        body = []
        for label in levels.columns[:MOST_SHOWN]:
            predicted = label in found.unseen
            points = []
            for row, name in enumerate(shown):
                level = float(levels[label].iloc[row])
                share = self._share(label, row)
                remark = f"{color} {level:.2f}"
                if predicted:
                    remark += ", predicted"
                elif share is not None:
                    remark += f", {share:.0%} of {words.samples} above {self.threshold}"
                points.append((name, level, share, remark))
            title = f"{label} (predicted)" if predicted else str(label)
            series[title] = points
            body.append([title, *(_dot_text(point) for point in points)])
        text = f"Color: {color}"
        if of_cells:
            text += f" over the {words.samples}."
        else:
            text += " of the class mean about the mean over classes, in standard deviations."
        if self.shares is not None:
            text += f" Size: share of {words.samples} above {self.threshold}."
        if found.unseen:
            text += f" Diamonds: described {words.classes} without {words.samples}, by "
            text += "predicted means."
        if len(self.features) > MOST_SHOWN or levels.shape[1] > MOST_SHOWN:
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

    def _share(self, label: str, row: int) -> float | None:
        """The share of samples of a class above the threshold, if it is known."""
        if self.shares is None or label not in self.shares.columns:
            return None
        return float(self.shares[label].iloc[row])

    def _coverage(self) -> Section:
        """How many features mark each class, and which."""
        words = self.words
        found = self.explanation
        distances = found.separation.to_numpy(copy=True)
        # A class is at distance 0 of itself, which is not its nearest other class.
        np.fill_diagonal(distances, np.inf)
        body: list[list[Any]] = []
        for row, (label, n_markers) in enumerate(found.coverage.items()):
            markers = found.markers.index[found.markers[label]].astype(str).tolist()
            nearest = found.separation.columns[distances[row].argmin()]
            title = f"{label} (predicted)" if label in found.unseen else str(label)
            distance = float(distances[row].min())
            body.append(
                [
                    title,
                    int(n_markers),
                    markers or "–",
                    str(nearest),
                    distance,
                ]
            )
        # Classes that lack markers are what a reader looks for.
        body.sort(key=lambda line: line[1])
        text = (
            f"A {words.feature} marks a {words.class_} if its mean there lies at least one "
            "standard deviation (within classes) above the mean of the others, and the "
            f"{words.class_} is among its two highest."
        )
        columns = [
            words.class_,
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

    def _separation(self) -> Section:
        """Distances between all pairs of classes."""
        words = self.words
        found = self.explanation
        marks = {label: f"{label} (predicted)" for label in found.unseen}
        names = [marks.get(label, str(label)) for label in found.separation.index]
        names = names[:MOST_SHOWN]
        distances = found.separation.to_numpy()
        series: dict[str, list[tuple[Any, ...]]] = {}
        for i, first in enumerate(names):
            series[first] = [
                _field(
                    second,
                    None if i == j else float(distances[i, j]),
                    "distance",
                )
                for j, second in enumerate(names)
            ]
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
                p.distance,
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
        weakest = self._weakest()
        paragraphs = [text]
        if weakest:
            paragraphs.append(f"Weakest pairs: {weakest}.")
        caption = f"Pairs of {words.classes}, the least separated first"
        title = f"Expected separation of {words.classes}"
        return Section(title, paragraphs, Table(caption, columns, body), [panel])

    def _correlation(self) -> Section:
        """Correlations between the selected features."""
        words = self.words
        correlations = self.explanation.correlation.to_numpy()
        names = self.features[:MOST_SHOWN]
        series: dict[str, list[tuple[Any, ...]]] = {}
        for i, first in enumerate(names):
            series[first] = [
                _field(
                    second,
                    None if i == j else float(correlations[i, j]),
                    "correlation",
                )
                for j, second in enumerate(names)
            ]
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
                self.features[first_of[i]],
                self.features[second_of[i]],
                float(found[i]),
            ]
            for i in order.tolist()
        ]
        text = (
            f"Over all {words.samples}, every {words.class_} counting alike. Two "
            f"{words.features} that always go together could replace each other."
        )
        caption = f"Pairs of {words.features}, the most alike first"
        table = Table(caption, ["one", "other", "correlation"], body)
        return Section(
            f"Correlation between the {words.features}",
            [text],
            table,
            [panel],
        )

    def _stability(self) -> Section:
        """How often features are selected on bootstraps of the classes."""
        words = self.words
        found = self.explanation
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
            f"depends on few {words.classes}, or has substitutes that take its place; those "
            "not in the panel were often selected instead."
        )
        columns = [
            words.feature,
            "frequency",
            "95 % interval",
            "in the panel",
        ]
        caption = f"Frequency of selection over {found.n_bootstraps} bootstraps"
        return Section("Stability", [text], Table(caption, columns, body))


def panel_report(
    selector: LinearSelector,
    X: DataLike = None,
    y: LabelsLike | str | None = None,
    *,
    explanation: Explanation | None = None,
    n_bootstraps: int = 100,
    random_state: int = 0,
    words: Words | None = None,
    settings: Mapping[str, object] | None = None,
    command: str = "",
) -> PanelReport:
    """Collect what is known about the features that a fitted selector selected.

    Parameters
    ----------
    selector : SemFS or SemFSCV
        Fitted.
    X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d), optional
        The samples of `fit`. By default those of the last `fit`, if it remembers them.
    y : array-like of shape (n,) or str, optional
        Their labels, as in `fit`.
    explanation : Explanation, optional
        From ``selector.explain(…)``, if it was computed already.
    n_bootstraps, random_state : int
        Of `SemFS.explain`.
    words : Words, optional
        What features, samples and classes are called; by default genes, cells and cell types
        if X is an AnnData object, else features, samples and classes.
    settings, command : mapping and str, optional
        What the page says of how to repeat the selection; by default the parameters of the
        selector.

    Returns
    -------
    PanelReport
        Its ``write`` writes the page and the list for the vendor.

    Examples
    --------
    >>> from semfs import SemFS
    >>> from semfs.datasets import load_sample
    >>> lung = load_sample()
    >>> X, y, *_ = lung.split()
    >>> panel = panel_report(SemFS(3, lung.attributes).fit(X, y), n_bootstraps=0)
    >>> int(panel.explanation.coverage["basophil"]), panel.shares.shape
    (0, (3, 12))
    >>> panel.table().columns.tolist()
    ['feature', 'reason', 'frequency', 'substitutes']
    """
    check_is_fitted(selector)
    if explanation is None:
        explanation = selector.explain(
            X, y, n_bootstraps=n_bootstraps, random_state=random_state
        )
    if words is None:
        words = CELLS if as_genes(X) is not None or _of_cells(X) else Words()
    of_cells = words == CELLS
    # A count above 0 means that a gene was detected. Measurements have no such zero,
    # so their share is taken above the average of the classes.
    thresholds = np.zeros(len(explanation.means))
    if not of_cells:
        thresholds = _class_average(selector, len(thresholds))
    counted = _shares_above(selector, X, y, thresholds)
    shares = None
    n_samples = None
    if counted is not None:
        pandas = import_optional("pandas", "data", what="A panel")
        hits, counts = counted
        n_samples = int(counts.sum())
        # A class of the fit may have no sample in X; its share is then 0, not 0/0.
        values = hits / np.maximum(counts, 1)[:, None]
        names = explanation.features.index
        shares = pandas.DataFrame(values.T, names, explanation.classes.columns)
    if settings is None:
        settings = _settings_of(selector)
    return PanelReport(
        explanation=explanation,
        n_features=len(selector.get_support()),
        n_samples=n_samples,
        shares=shares,
        threshold="0" if of_cells else "the mean over classes",
        rules=list(selector.rules_),
        knowledge=dict(selector.knowledge_),
        settings=settings,
        command=command,
        words=words,
    )


def _of_cells(X: DataLike) -> bool:
    """Whether an opened file holds single cells."""
    source: Any = X
    return classify(X) is Kind.SOURCE and source.reader.of_cells


def _class_average(selector: LinearSelector, n_selected: int) -> Float64:
    """The mean (k,) over the seen classes of each selected feature, best first."""
    selected = np.asarray(selector.order_)[:n_selected]
    # Class means are stored by ascending feature: these are their places, best first.
    entered = np.searchsorted(np.sort(selected), selected)
    means: Float64 = np.asarray(selector.class_means_)
    return means.mean(axis=0)[entered]


def _settings_of(selector: LinearSelector) -> dict[str, object]:
    """The parameters of a selector; a table of descriptions by its size."""
    settings: dict[str, object] = {}
    for name, value in selector.get_params(deep=False).items():
        if value is None:
            continue
        # An array or a frame would fill the page.
        shape = getattr(value, "shape", None)
        settings[name] = value if shape is None else f"table of shape {shape}"
    return settings


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


def _field(name: str, value: float | None, what: str) -> tuple[Any, ...]:
    """A field of a heat map."""
    if value is None:
        return name, None, ""
    return name, value, f"{what} {value:.2f}"


def _shares_above(
    selector: LinearSelector,
    X: DataLike,
    y: LabelsLike | str | None,
    thresholds: Float64,
) -> tuple[Float64, Float64] | None:
    """Count the samples of each class above thresholds (k,), in the order of selection.

    Returns the numbers above (C, k) and the numbers of samples (C,), or None without samples.
    """
    n_selected = len(thresholds)
    selected = np.asarray(selector.order_)[:n_selected]
    # Blocks hold the selected features ascending: these are their columns, best first.
    entered = np.searchsorted(np.sort(selected), selected)
    n_classes = len(selector.classes_)
    hits = np.zeros((n_classes, n_selected))
    counts = np.zeros(n_classes)
    blocks = _labeled_blocks(selector, X, y, selected)
    if blocks is None:
        return None
    for Z, codes in blocks:
        above = np.asarray(Z)[:, entered] > thresholds
        for code in np.unique(codes[codes >= 0]).tolist():
            of_class = codes == code
            hits[code] += above[of_class].sum(axis=0)
            counts[code] += of_class.sum()
    return hits, counts


def _labeled_blocks(
    selector: LinearSelector,
    X: DataLike,
    y: LabelsLike | str | None,
    selected: Indices,
) -> Iterator[tuple[Float64, Indices]] | None:
    """Blocks of samples (r, k), selected features ascending, and their classes (r,)."""
    if X is None:
        # The last fit remembers its samples if they fit into memory.
        moments = getattr(selector, "_training_moments", None)
        rows = None if moments is None else moments.rows
        if rows is None or not rows.in_memory:
            return None
        Z: Any = rows.X[:, np.sort(selected)]
        dense = Z.toarray() if hasattr(Z, "toarray") else np.asarray(Z)
        return iter([(dense, rows.codes)])
    samples: Any = X
    kind = classify(X, y)
    if kind is Kind.STORED:
        samples = open_blocks(X, y)
    elif kind is Kind.LABELED_FRAME:
        y = samples[y]
        known = selector.feature_names_in_
        samples = samples[[name for name in samples.columns if name in known]]
    opened = kind in (Kind.STORED, Kind.SOURCE)
    labels = samples.labels if opened else Labels.of(y)
    return _with_codes(selector, samples, _codes_of(selector, labels))


def _codes_of(selector: LinearSelector, labels: Labels) -> Indices:
    """The fitted class (n,) of each sample, negative where it has none."""
    # Labels of a file are text; those of the fit may have been numbers.
    position = {str(label): i for i, label in enumerate(selector.classes_.tolist())}
    # Code -1 indexes the last entry, which stands for samples without a class.
    found = [position.get(str(label), -1) for label in labels.classes]
    codes = np.asarray(labels.codes)
    translated = np.array([*found, -1])[np.maximum(codes, -1)]
    return np.where(codes >= 0, translated, -1)


def _with_codes(
    selector: LinearSelector, X: DataLike, codes: Indices
) -> Iterator[tuple[Float64, Indices]]:
    """The selected columns (r, k) of samples, block by block, each with its classes (r,)."""
    start = 0
    for Z in selected_columns(selector, X, "panel_report"):
        yield Z, codes[start : start + len(Z)]
        start += len(Z)
