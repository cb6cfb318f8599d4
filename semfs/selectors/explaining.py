"""Makes the explanation of a fitted selector."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.attributes import AttributeTable
from semfs.method.batches import is_corrected, measured_means
from semfs.method.markers import class_markers
from semfs.method.moments import Moments
from semfs.rows.device import to_numpy
from semfs.selectors.copies import SMALLEST_SIZE, near_copies, ratios, skipped_copies
from semfs.selectors.explanation import Explanation
from semfs.selectors.stability import can_bootstrap, selection_counts, stability_table
from semfs.system import import_optional
from semfs.validation import joined

if TYPE_CHECKING:
    import pandas as pd

    from semfs.selectors.linear import LinearSelector


#: Attributes that are named with the strongest one have at least this share of its size.
SHARE_OF_STRONGEST = 0.8

#: What a feature separates that is constant in the samples of the seen classes.
CLUSTERS_ONLY = "separates clusters of unlabeled samples"


def explain_selection(
    selector: LinearSelector,
    moments: Moments | None,
    n_bootstraps: int,
    random_state: int | None,
) -> Explanation:
    """Explain a fitted selector from the moments it was fitted to; see `SemFS.explain`.

    If there are no moments, correlations, class levels and stability are NaN or empty.
    """
    frame = import_optional("pandas", "data", what="explain").DataFrame
    n_selected = int(np.asarray(selector.support_).sum())
    selected = np.asarray(selector.order_)[:n_selected]
    table = selector.class_table_

    names = [selector._name_of(j) for j in selected.tolist()]
    attributes = table.names.tolist()
    classes = [str(label) for label in table.classes.tolist()]
    weights = frame(_weights(selector, selected, table, moments), names, attributes)
    correlations = frame(_attribute_correlations(moments, table, selected), names, attributes)
    levels = frame(_class_levels(moments, selected, len(classes)), names, classes)
    duplicates = near_copies(selector, moments, selected)
    if not can_bootstrap(moments):
        n_bootstraps = 0
    counts = None
    if n_bootstraps and moments is not None:
        counts = selection_counts(
            selector,
            selected,
            moments,
            n_bootstraps,
            random_state,
        )
    stability = stability_table(selector, selected, counts, n_bootstraps)

    features = frame({"gain": np.asarray(selector.scores_)[selected]}, index=names)
    total_gain = float(features["gain"].clip(lower=0.0).sum())
    features["share"] = features["gain"] / max(total_gain, np.finfo(float).tiny)
    # without moments, weights are all that is known of a feature
    carried = weights if moments is None else correlations
    features["carries"] = [_carried(row, attributes) for row in carried.to_numpy()]
    features["separates"] = [_separated(row, classes) for row in levels.to_numpy()]
    _add_clusters(features, moments, selected)
    copies = duplicates.groupby("feature")["other"].agg(", ".join)
    features["duplicates"] = copies.reindex(names).fillna("")
    features["skipped"] = skipped_copies(selector, selected)
    features = features.join(stability[["frequency", "low", "high"]])
    _add_batch_variance(features, moments, selected)
    features.index.name = "feature"
    return Explanation(
        features=features,
        attributes=correlations,
        weights=weights,
        classes=levels,
        duplicates=duplicates,
        stability=stability,
        n_bootstraps=n_bootstraps,
        **_class_tables(selector, selected, names),
    )


def _add_clusters(features: pd.DataFrame, moments: Moments | None, selected: Indices) -> None:
    """Say of features that are constant in the seen classes what they are selected for."""
    if moments is None:
        return
    # without a gain in the clusters of unlabeled samples, the user included the feature
    has_gain = (features["gain"] > 0.0).to_numpy()
    for_clusters = moments.constant()[selected] & has_gain
    features.loc[for_clusters, "separates"] = CLUSTERS_ONLY


def _add_batch_variance(
    features: pd.DataFrame, moments: Moments | None, selected: Indices
) -> None:
    """Add the shares of class and batch in the variance of features, if batches are known."""
    if moments is None or not is_corrected(moments.rows):
        return
    # of the samples as they are: corrected ones have no batch left
    of_class, of_batch = moments.rows.variance_shares(selected)
    features["class_variance"] = of_class
    features["batch_variance"] = of_batch
    features["more_batch"] = of_batch > of_class


def _class_tables(
    selector: LinearSelector, selected: Indices, names: Sequence[str]
) -> dict[str, pd.DataFrame]:
    """Return the tables that need class means and the covariance within classes."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    predictor = selector._predictor()
    table = selector.candidate_classes(None)
    classes = [str(label) for label in table.classes.tolist()]
    # The predictor has the selected features in ascending order.
    entered = np.searchsorted(np.sort(selected), selected)
    class_means = predictor.class_means(table)
    means = class_means.T[entered]
    # in the tables they are as they were measured; predicted ones have no batch
    levels = to_numpy(getattr(selector, "measured_means_", selector.class_means_))
    means[:, : len(levels)] = np.asarray(levels).T[entered]
    markers = _markers(selector, class_means, predictor.within).T[entered]
    within = predictor.within[np.ix_(entered, entered)]
    correlations = _total_correlations(predictor.means.T[entered], within)
    return {
        "means": frame(means, names, classes),
        "markers": frame(markers, names, classes),
        "correlation": frame(correlations, names, names),
        "separation": frame(predictor.distances(table), classes, classes),
    }


def _weights(
    selector: LinearSelector,
    selected: Indices,
    table: AttributeTable,
    moments: Moments | None,
) -> Float64:
    """Return W (k, m) in units of the standard deviations of attributes and features.

    Without moments, the standard deviations of features are unknown and set to 1.
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
    """Return correlations (k, m) of class means with attributes, with equal class weights."""
    if moments is None:
        return np.full((len(selected), len(table.names)), np.nan)
    return _standardized(moments.means[:, selected]).T @ _standardized(table.values)


def _standardized(columns: Float64) -> Float64:
    """Return columns (C, m) centered and scaled to length 1; constant columns are 0."""
    centered = columns - columns.mean(axis=0)
    lengths = np.linalg.norm(centered, axis=0)
    # about a mean that is not exact, a constant leaves its rounding errors
    constant = lengths <= SMALLEST_SIZE * np.linalg.norm(columns, axis=0)
    return centered / np.where(constant, np.inf, lengths)


def _carried(row: Float64, names: Sequence[str], most: int = 3) -> str:
    """Return the strongest attributes in words, such as "+ CD19, − T cell"."""
    size = np.abs(row)
    if not np.isfinite(size).all() or size.max(initial=0.0) <= SMALLEST_SIZE:
        return "no attribute"
    order = np.argsort(-size, kind="stable")[:most]
    words = []
    for j in order.tolist():
        if size[j] >= SHARE_OF_STRONGEST * size[order[0]]:
            sign = "+" if row[j] > 0 else "−"
            words.append(f"{sign} {names[j]}")
    return joined(words)


def _class_levels(moments: Moments | None, selected: Indices, n_classes: int) -> Float64:
    """Return class means (k, C) minus their mean, in standard deviations within classes.

    The means are those that were measured. The deviations do without offsets of batches.
    """
    if moments is None:
        return np.full((len(selected), n_classes), np.nan)
    M = moments.means[:, selected]
    # scatter within classes is what the class means leave
    between = moments.counts @ (M - moments.mean[selected]) ** 2
    within = np.maximum(moments.scatter_diag[selected] - between, 0.0) / moments.total
    # differences of a constant feature, and its scatter, are rounding errors
    varies = (within > 0) & ~moments.constant()[selected]
    deviations = np.sqrt(np.where(varies, within, np.inf))
    # levels are those that were measured, also if offsets of batches were removed
    levels = measured_means(moments)[:, selected]
    return ((levels - levels.mean(axis=0)) / deviations).T


def _separated(levels: Float64, classes: Sequence[str], most: int = 4) -> str:
    """Return in words the classes on the smaller side of the widest gap of class means."""
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
    text += joined([classes[c] for c in side[:most].tolist()])
    if len(side) > most:
        text += f" and {len(side) - most} more"
    return text


def _markers(selector: LinearSelector, means: Float64, within: Float64) -> Mask:
    """Return whether each selected feature, ascending, marks each of the U classes (U, k).

    Seen classes are compared with each other, as in ``marks_``. Described unseen classes are
    compared with all classes.
    """
    deviation = np.sqrt(np.maximum(np.diag(within), 0.0))
    markers = class_markers(means, deviation)
    known = np.asarray(to_numpy(selector.marks_))
    markers[: len(known)] = known
    return markers


def _total_correlations(means: Float64, within: Float64) -> Float64:
    """Return correlations (k, k) over samples, with equal class weights; 0 for constants."""
    centered = means - means.mean(axis=1, keepdims=True)
    # total covariance = within classes + of the class means, each of which weighs 1/C
    covariance = within + centered @ centered.T / means.shape[1]
    deviations = np.sqrt(np.maximum(np.diag(covariance), 0.0))
    correlations = ratios(covariance, np.outer(deviations, deviations))
    np.fill_diagonal(correlations, 1.0)
    return correlations.clip(-1.0, 1.0)
