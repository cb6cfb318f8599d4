"""Why these features: what they carry and separate, what copies them, how stable they are."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import beta, norm
from sklearn.base import clone

from semfs._typing import Float64, Indices, Mask
from semfs.attributes import AttributeTable
from semfs.method.batches import is_corrected, uncorrected_rows
from semfs.method.markers import class_markers
from semfs.method.moments import Moments
from semfs.rows import in_memory
from semfs.rows.device import to_numpy
from semfs.selectors.folds import ClassFolds
from semfs.system import import_optional
from semfs.validation import class_weights, listed

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from semfs.selectors.linear import LinearSelector

#: Features that enter the search on bootstraps of the classes: those of the largest first gain,
#: and all selected ones. On 19,457 genes frequencies with 2,000 and 6,000 candidates agree.
BOOTSTRAP_CANDIDATES = 2000
#: The search looks at at least this many candidates per selected feature.
BOOTSTRAP_CANDIDATES_PER_FEATURE = 4
#: Correlation over all samples from which a feature counts as a copy of another. Within classes
#: it must be at least half of that: two markers of one class are no copies.
COPY_CORRELATION = 0.7
#: Copies that are named for each feature.
MOST_COPIES = 3
#: Correlations and weights below are zero, and so are lengths below this share of what they
#: are differences of.
SMALLEST_SIZE = 1e-12
#: Attributes that are named with the strongest one have at least this share of its size.
SHARE_OF_STRONGEST = 0.8
#: Colors of what is in question, and of what stands beside it.
RED = "#e0245e"
GREY = "#9aa0a8"


@dataclass(frozen=True, eq=False)
class Explanation:
    """What a selector selected, and why; tables are pandas frames with names.

    Attributes
    ----------
    features : DataFrame of shape (k, …)
        By order of entry: ``gain`` (fall of J), ``share`` of the total fall, ``carries`` and
        ``separates`` in words, ``duplicates``, and the selection ``frequency`` over class
        bootstraps with its 95 % interval ``low``–``high``. ``skipped`` are near copies that
        could not be selected beside it (``max_correlation``). If batches were removed, also
        ``class_variance`` and ``batch_variance``, the shares of class and batch in its
        variance, and ``more_batch`` where that of the batch is larger.
    attributes : DataFrame of shape (k, m)
        Correlation, over the seen classes, of a feature's mean with each attribute.
    weights : DataFrame of shape (k, m)
        W: standard deviations of an attribute for one of the feature, others held fixed.
    classes : DataFrame of shape (k, C)
        Class means about the mean over classes, in standard deviations within classes.
    duplicates : DataFrame
        Pairs (feature, other, correlation, chosen): what says nearly the same.
    stability : DataFrame
        ``frequency`` of the selected features and of others that were often selected instead.
        The search on a bootstrap looks at the selected features and the 2,000 features of the
        largest first gain (more if more than 500 are selected); others are not tested.
    n_bootstraps : int
        Number of bootstraps; 0 if there were none, and frequencies are NaN.
    means : DataFrame of shape (k, U)
        Means of all U classes, seen ones first; those of described unseen ones are predicted.
    markers : DataFrame of shape (k, U)
        Whether a feature marks a class: its mean lies a standard deviation within classes
        above that of the other classes, and the class is among its two highest.
    correlation : DataFrame of shape (k, k)
        Correlations between the selected features over all samples, all classes alike.
    separation : DataFrame of shape (U, U)
        Mahalanobis distances between class means under the covariance within classes: the
        best rule for two classes at distance D errs in a share Φ(-D / 2) of their samples.
    """

    features: "pd.DataFrame"
    attributes: "pd.DataFrame"
    weights: "pd.DataFrame"
    classes: "pd.DataFrame"
    duplicates: "pd.DataFrame"
    stability: "pd.DataFrame"
    n_bootstraps: int
    means: "pd.DataFrame"
    markers: "pd.DataFrame"
    correlation: "pd.DataFrame"
    separation: "pd.DataFrame"

    @property
    def coverage(self) -> "pd.Series":
        """Number of selected features that mark each class (U,)."""
        return self.markers.sum(axis=0).rename("markers")

    @property
    def unseen(self) -> list[str]:
        """The described classes without samples, whose means are predicted."""
        return [name for name in self.means.columns if name not in self.classes.columns]

    @property
    def pairs(self) -> "pd.DataFrame":
        """Pairs of classes, the least separated first: ``first``, ``second``, ``distance``.

        ``error`` is the share of their samples that the best rule confuses, Φ(-distance / 2).
        """
        frame = import_optional("pandas", "data", what="explain").DataFrame
        distances = self.separation.to_numpy()
        first, second = np.triu_indices(len(distances), 1)
        found = distances[first, second]
        order = np.argsort(found, kind="stable")
        names = np.array(self.separation.index, dtype=object)
        columns = {
            "first": names[first[order]],
            "second": names[second[order]],
            "distance": found[order],
            "error": norm.cdf(-0.5 * found[order]),
        }
        return frame(columns)

    def __str__(self) -> str:
        """A line per feature."""
        width = max((len(str(name)) for name in self.features.index), default=0)
        lines = []
        for name, row in self.features.iterrows():
            parts = [f"{row['share']:5.1%}", f"carries {row['carries']}"]
            if row["separates"]:
                parts.append(row["separates"])
            if row["duplicates"]:
                parts.append(f"like {row['duplicates']}")
            if row["skipped"]:
                parts.append(f"skipped as copies: {row['skipped']}")
            if row.get("more_batch", False):
                batch = row["batch_variance"]
                parts.append(
                    f"varies more with the batch ({batch:.0%}) than with the class "
                    f"({row['class_variance']:.0%})"
                )
            if self.n_bootstraps:
                parts.append(f"selected in {row['frequency']:.0%} of bootstraps")
            lines.append(f"{name!s:<{width}}  " + "; ".join(parts))
        return "\n".join(lines)

    __repr__ = __str__

    def plot_gains(self) -> "Figure":
        """Return a figure of the share of the decrease of J that each further feature adds."""
        share = self.features["share"]
        figure, ax = _figure(max(3.4, 0.24 * len(share)), 2.9)
        ranks = range(1, len(share) + 1)
        ax.bar(ranks, share, color=GREY, label="of each feature")
        ax.plot(
            ranks,
            share.cumsum(),
            color=RED,
            marker="o",
            markersize=3,
            label="together",
        )
        ax.set_xticks(
            ranks,
            _plain_text(share.index),
            rotation=90,
            fontsize=7,
        )
        ax.set(ylabel="share of the decrease of J", ylim=(0, 1.05))
        ax.legend(fontsize=8)
        ax.grid(alpha=0.3, axis="y")
        return figure

    def plot_attributes(self) -> "Figure":
        """Return a heat map of features against the attributes they carry."""
        values = self.attributes
        k, m = values.shape
        figure, ax = _figure(1.8 + 0.24 * m, 1.5 + 0.2 * k)
        image = ax.imshow(
            values,
            cmap="RdBu",
            vmin=-1,
            vmax=1,
            aspect="auto",
        )
        ax.set_xticks(
            range(m),
            _plain_text(values.columns),
            rotation=90,
            fontsize=7,
        )
        ax.set_yticks(range(k), _plain_text(values.index), fontsize=7)
        figure.colorbar(
            image,
            ax=ax,
            label="correlation over seen classes",
            shrink=0.8,
        )
        return figure

    def plot_stability(self) -> "Figure":
        """Return bars of the frequency of selection over class bootstraps, with intervals."""
        found = self.stability
        if not len(found):
            raise ValueError("There are no bootstraps to draw. Use explain(n_bootstraps=100).")
        figure, ax = _figure(4.2, 1.0 + 0.17 * len(found))
        # axes count upward, tables downward: the first bar is at the top
        places = np.arange(len(found))[::-1]
        frequency = found["frequency"].astype(float)
        interval = [frequency - found["low"], found["high"] - frequency]
        colors = np.where(found["chosen"], RED, GREY)
        ax.barh(
            places,
            frequency,
            xerr=interval,
            color=colors,
            ecolor="#444444",
            capsize=1.5,
        )
        ax.set_yticks(places, _plain_text(found.index), fontsize=7)
        ax.set(
            xlabel=f"share of {self.n_bootstraps} class bootstraps",
            xlim=(0, 1),
        )
        ax.margins(y=0.01)
        ax.grid(alpha=0.3, axis="x")
        return figure


def _figure(width: float, height: float) -> "tuple[Figure, Axes]":
    """A figure with one pair of axes; pyplot's global state is not touched."""
    library = import_optional("matplotlib.figure", "plots", what="A figure")
    figure = library.Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots()


def _plain_text(names: Iterable[object]) -> list[str]:
    """Names that matplotlib shows as they are, not as mathematics."""
    return [str(name).replace("$", r"\$") for name in names]


def explain_selection(
    selector: "LinearSelector",
    moments: Moments | None,
    n_bootstraps: int,
    random_state: int | None,
) -> Explanation:
    """Explain a fitted selector from the moments it was fitted to; see `SemFS.explain`.

    Without moments, correlations, class levels and stability are NaN or empty.
    """
    frame = import_optional("pandas", "data", what="explain").DataFrame
    n_selected = int(np.asarray(selector.support_).sum())
    selected = np.asarray(selector.order_)[:n_selected]
    table = selector.class_table_

    names = [selector._name_of(j) for j in selected.tolist()]
    attributes = table.names.tolist()
    classes = [str(label) for label in table.classes.tolist()]
    weights = _weights(selector, selected, table, moments)
    correlations = _attribute_correlations(moments, table, selected)
    levels = _class_levels(moments, selected, len(classes))
    duplicates = _duplicates(selector, moments, selected)
    if not _can_bootstrap(moments):
        n_bootstraps = 0
    counts = None
    if n_bootstraps and moments is not None:
        counts = _selection_counts(
            selector,
            selected,
            moments,
            n_bootstraps,
            random_state,
        )
    stability = _stability(selector, selected, counts, n_bootstraps)

    features = frame({"gain": np.asarray(selector.scores_)[selected]}, index=names)
    total_gain = float(features["gain"].clip(lower=0.0).sum())
    features["share"] = features["gain"] / max(total_gain, np.finfo(float).tiny)
    # without moments, weights are all that is known of a feature
    carried = weights if moments is None else correlations
    features["carries"] = [_carried(row, attributes) for row in carried]
    features["separates"] = [_separated(row, classes) for row in levels]
    copies = duplicates.groupby("feature")["other"].agg(", ".join)
    features["duplicates"] = copies.reindex(names).fillna("")
    features["skipped"] = _skipped(selector, selected)
    features = features.join(stability[["frequency", "low", "high"]])
    if moments is not None and is_corrected(moments.rows):
        # of the samples as they are: corrected ones have no batch left
        of_class, of_batch = moments.rows.variance_shares(selected)
        features["class_variance"] = of_class
        features["batch_variance"] = of_batch
        features["more_batch"] = of_batch > of_class
    features.index.name = "feature"
    return Explanation(
        features=features,
        attributes=frame(correlations, names, attributes),
        weights=frame(weights, names, attributes),
        classes=frame(levels, names, classes),
        duplicates=duplicates,
        stability=stability,
        n_bootstraps=n_bootstraps,
        **_class_tables(selector, selected, names),
    )


def _class_tables(
    selector: "LinearSelector", selected: Indices, names: Sequence[str]
) -> dict[str, "pd.DataFrame"]:
    """The tables of an explanation that need class means and the covariance within classes."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    predictor = selector._predictor()
    table = selector.candidate_classes(None)
    classes = [str(label) for label in table.classes.tolist()]
    # The predictor has the selected features in ascending order.
    entered = np.searchsorted(np.sort(selected), selected)
    class_means = predictor.class_means(table)
    means = class_means.T[entered]
    markers = _markers(selector, class_means, predictor.within).T[entered]
    within = predictor.within[np.ix_(entered, entered)]
    correlations = _total_correlations(predictor.means.T[entered], within)
    return {
        "means": frame(means, names, classes),
        "markers": frame(markers, names, classes),
        "correlation": frame(correlations, names, names),
        "separation": frame(predictor.distances(table), classes, classes),
    }


# ---- what features carry ---------------------------------------------------------------


def _weights(
    selector: "LinearSelector",
    selected: Indices,
    table: AttributeTable,
    moments: Moments | None,
) -> Float64:
    """W (k, m) of the selected features in standard deviations of attributes and features.

    Without moments the features' standard deviations are unknown, and taken for 1.
    """
    spread = table.values.std(axis=0)
    weights = np.asarray(selector.coef_)[selected]
    weights = weights * np.asarray(selector.selection_)[selected, None]
    # a constant attribute separates nothing: its weight counts as 0
    weights = weights / np.where(spread > 0, spread, np.inf)
    if moments is None:
        return weights
    # the same change of a feature in its usual size
    deviations = np.sqrt(moments.scatter_diag[selected] / moments.total)
    return deviations[:, None] * weights


def _attribute_correlations(
    moments: Moments | None, table: AttributeTable, selected: Indices
) -> Float64:
    """Correlations (k, m) of class means with attributes, over classes that count alike."""
    if moments is None:
        return np.full((len(selected), len(table.names)), np.nan)
    return _standardized(moments.means[:, selected]).T @ _standardized(table.values)


def _standardized(columns: Float64) -> Float64:
    """Columns (C, m) about their means, of length 1; 0 where they are constant."""
    centered = columns - columns.mean(axis=0)
    lengths = np.linalg.norm(centered, axis=0)
    # about a mean that is not exact, a constant leaves its rounding errors
    constant = lengths <= SMALLEST_SIZE * np.linalg.norm(columns, axis=0)
    return centered / np.where(constant, np.inf, lengths)


def _ratios(products: Float64, scale: Float64) -> Float64:
    """Products divided by their scale; 0 where that is 0."""
    return np.divide(
        products,
        scale,
        out=np.zeros_like(scale),
        where=scale > 0.0,
    )


def _carried(row: Float64, names: Sequence[str], most: int = 3) -> str:
    """The strongest attributes in words: "+ CD19, − T cell"."""
    size = np.abs(row)
    if not np.isfinite(size).all() or size.max(initial=0.0) <= SMALLEST_SIZE:
        return "no attribute"
    order = np.argsort(-size, kind="stable")[:most]
    words = []
    for j in order.tolist():
        if size[j] >= SHARE_OF_STRONGEST * size[order[0]]:
            sign = "+" if row[j] > 0 else "−"
            words.append(f"{sign} {names[j]}")
    return ", ".join(words)


# ---- what features separate ------------------------------------------------------------


def _class_levels(moments: Moments | None, selected: Indices, n_classes: int) -> Float64:
    """Class means (k, C) about the mean over classes, in standard deviations within classes."""
    if moments is None:
        return np.full((len(selected), n_classes), np.nan)
    M = moments.means[:, selected]
    # scatter within classes is what the class means leave
    between = moments.counts @ (M - moments.mean[selected]) ** 2
    within = np.maximum(moments.scatter_diag[selected] - between, 0.0) / moments.total
    deviations = np.sqrt(np.where(within > 0, within, np.inf))
    return ((M - M.mean(axis=0)) / deviations).T


def _separated(levels: Float64, classes: Sequence[str], most: int = 4) -> str:
    """Which classes lie on the smaller side of the widest gap between class means."""
    # one feature separates classes best where neighbors are farthest apart
    order = np.argsort(levels, kind="stable")
    gaps = np.diff(levels[order])
    if not (gaps > 0).any():
        return ""
    cut = int(np.argmax(gaps)) + 1
    low = order[:cut]
    high = order[cut:][::-1]
    # the smaller side makes the shorter sentence
    if len(high) <= len(low):
        side = high
        text = "high in "
    else:
        side = low
        text = "low in "
    text += ", ".join(classes[c] for c in side[:most].tolist())
    if len(side) > most:
        text += f" and {len(side) - most} more"
    return text


def _markers(selector: "LinearSelector", means: Float64, within: Float64) -> Mask:
    """Whether each selected feature, ascending, marks each of the U classes (U, k).

    Seen classes are compared with each other, as in ``marks_``, described ones with all.
    """
    deviation = np.sqrt(np.maximum(np.diag(within), 0.0))
    markers = class_markers(means, deviation)
    known = np.asarray(to_numpy(selector.marks_))
    markers[: len(known)] = known
    return markers


def _total_correlations(means: Float64, within: Float64) -> Float64:
    """Correlations (k, k) over samples of which every class has as many; 0 of constants."""
    centered = means - means.mean(axis=1, keepdims=True)
    # total covariance = within classes + of the class means, each of which weighs 1/C
    covariance = within + centered @ centered.T / means.shape[1]
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    correlations = _ratios(covariance, np.outer(deviations, deviations))
    np.fill_diagonal(correlations, 1.0)
    return correlations.clip(-1.0, 1.0)


# ---- what copies them ------------------------------------------------------------------


def _duplicates(
    selector: "LinearSelector", moments: Moments | None, selected: Indices
) -> "pd.DataFrame":
    """Table of features, selected or not, that correlate with a selected one."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    rows = []
    chosen = set(selected.tolist())
    # What a rule excludes cannot take the place of a feature.
    selectable = ~np.isneginf(np.asarray(to_numpy(selector.scores_)))
    for feature, other, correlation in _copies(moments, selected, selectable):
        pair = (selector._name_of(feature), selector._name_of(other))
        rows.append((*pair, correlation, other in chosen))
    return frame(rows, columns=["feature", "other", "correlation", "chosen"])


def _skipped(selector: "LinearSelector", selected: Indices) -> list[str]:
    """For each selected feature (k,), the names of near copies that were skipped."""
    names: dict[int, list[str]] = {j: [] for j in selected.tolist()}
    for copy, feature in getattr(selector, "skipped_", {}).items():
        names[feature].append(selector._name_of(copy))
    return [listed(names[j]) if names[j] else "" for j in selected.tolist()]


def _copies(
    moments: Moments | None, selected: Indices, selectable: Mask
) -> list[tuple[int, int, float]]:
    """Pairs of a selected feature and a copy of it, with their correlation, strongest first."""
    if moments is None:
        return []
    scatter = moments.scatter_columns(selected)
    # S_within = S − Σ_c n_c (m_c − m)(m_c − m)', the sum written as root' root
    root = np.sqrt(moments.counts)[:, None] * (moments.means - moments.mean)
    within = scatter - root.T @ root[:, selected]
    diag = moments.scatter_diag
    within_diag = diag - np.einsum("cd,cd->d", root, root)
    # what is left of features that are constant within classes are rounding errors
    within_diag[within_diag <= SMALLEST_SIZE * diag] = 0.0
    # square roots before products, which might underflow
    sizes = np.sqrt(diag)
    within_sizes = np.sqrt(within_diag)
    pairs = []
    for i, j in enumerate(selected.tolist()):
        r = _ratios(scatter[:, i], sizes * sizes[j])
        r_within = _ratios(within[:, i], within_sizes * within_sizes[j])
        alike = np.abs(r) >= COPY_CORRELATION
        alike &= np.abs(r_within) >= COPY_CORRELATION / 2
        alike &= selectable
        # a feature is no copy of itself
        alike[j] = False
        others = np.flatnonzero(alike)
        others = others[np.argsort(-np.abs(r[others]), kind="stable")][:MOST_COPIES]
        pairs += [(j, other, float(r[other])) for other in others.tolist()]
    return pairs


# ---- how stable they are ---------------------------------------------------------------


def _can_bootstrap(moments: Moments | None) -> bool:
    """Whether the samples are in memory, of enough classes to draw from."""
    if moments is None or not in_memory(uncorrected_rows(moments)):
        return False
    # two classes drawn from two are the same two, or one of them twice
    return len(moments.classes) > 2


def _selection_counts(
    selector: "LinearSelector",
    selected: Indices,
    moments: Moments,
    n_bootstraps: int,
    random_state: int | None,
) -> Float64:
    """How often each feature (d,) is selected when classes are drawn with replacement.

    NaN for features that are no candidates: nobody knows how often they would be selected.
    """
    n_classes = len(moments.classes)
    fitted: Any = getattr(selector, "best_estimator_", selector)  # the SemFS of a SemFSCV
    semfs = clone(fitted)
    semfs.set_params(n_features_to_select=len(selected))
    table = fitted.class_table_
    names = getattr(fitted, "feature_names_in_", None)
    all_classes = np.ones(n_classes, dtype=bool)
    n_candidates = max(BOOTSTRAP_CANDIDATES, BOOTSTRAP_CANDIDATES_PER_FEATURE * len(selected))
    folds = ClassFolds(
        moments,
        table,
        [semfs],
        [all_classes],
        names,
        n_candidates,
        keep=selected,
    )
    weights = class_weights(fitted.class_weight, moments.classes, moments.counts)
    if weights is None:
        weights = np.ones(n_classes)
    counts = np.full(moments.n_features, np.nan)
    counts[folds.candidates(all_classes)] = 0.0
    rng = np.random.default_rng(random_state)
    n_done = 0
    while n_done < n_bootstraps:
        times = np.bincount(rng.integers(0, n_classes, n_classes), minlength=n_classes)
        if np.count_nonzero(times) < 2:
            continue  # there is nothing to separate a single class from
        # a class that is drawn twice gets twice its weight: no sample is copied
        drawn = (times * weights).tolist()
        semfs.class_weight = dict(zip(moments.classes.tolist(), drawn))
        counts[folds.paths(all_classes)[0]] += 1
        n_done += 1
    return counts


def _stability(
    selector: "LinearSelector",
    selected: Indices,
    counts: Float64 | None,
    n_bootstraps: int,
) -> "pd.DataFrame":
    """Table of frequencies with Jeffreys intervals: selected features, then likely others."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    if counts is None:
        features = selected[:0]
        hits = np.zeros(0)
    else:
        # features that nearly made it tell which ones are interchangeable
        others = np.argsort(-np.nan_to_num(counts), kind="stable")
        others = others[~np.isin(others, selected) & (counts[others] > 0)]
        features = np.concatenate([selected, others[: len(selected)]])
        hits = counts[features]
    # Jeffreys: the posterior of a share under a Beta(1/2, 1/2) prior
    misses = n_bootstraps - hits
    low = beta.ppf(0.025, hits + 0.5, misses + 0.5)
    high = beta.ppf(0.975, hits + 0.5, misses + 0.5)
    table = frame(
        {
            "frequency": hits / max(n_bootstraps, 1),
            # at 0 and 1 the interval is extended to the end, as is usual (Brown et al. 2001)
            "low": np.where(hits == 0, 0.0, low),
            "high": np.where(misses == 0, 1.0, high),
            "chosen": np.isin(features, selected),
        },
        index=[selector._name_of(j) for j in features.tolist()],
    )
    table.index.name = "feature"
    return table
