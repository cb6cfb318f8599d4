"""In how many samples of each class the selected features are above a threshold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs._typing import DataLike, Float64, Indices, LabelsLike
from semfs.labels import Labels
from semfs.rows import open_blocks
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.linear import LinearSelector
from semfs.selectors.selected_columns import selected_columns


@dataclass(frozen=True, eq=False)
class Counts:
    """Samples of each class by their values of the selected features."""

    above: Float64  # (C, k), samples above the threshold
    observed: Float64  # (C, k), samples with a value
    class_sizes: Indices  # (C,), samples of each class

    def shares(self) -> Float64:
        """Return the share (C, k) above the threshold of the samples with a value."""
        # A class of the fit may have no sample in X; its share is then 0, not 0/0.
        return self.above / np.maximum(self.observed, 1.0)


def count_above(
    selector: LinearSelector,
    X: DataLike,
    y: LabelsLike | str | None,
    thresholds: Float64,
) -> Counts | None:
    """Count the samples of each class above thresholds (k,), in the order of selection.

    Missing values are neither above nor below. Returns None without samples.
    """
    n_selected = len(thresholds)
    selected = np.asarray(selector.order_)[:n_selected]
    # Blocks hold the selected features ascending: these are their columns, best first.
    entered = np.searchsorted(np.sort(selected), selected)
    n_classes = len(selector.classes_)
    hits = np.zeros((n_classes, n_selected))
    observed = np.zeros((n_classes, n_selected))
    class_sizes = np.zeros(n_classes, dtype=np.intp)
    blocks = _labeled_blocks(selector, X, y, selected)
    if blocks is None:
        return None
    for Z, codes in blocks:
        values = np.asarray(Z)[:, entered]
        # NaN is above nothing
        above = values > thresholds
        has_value = ~np.isnan(values)
        for code in np.unique(codes[codes >= 0]).tolist():
            of_class = codes == code
            hits[code] += above[of_class].sum(axis=0)
            observed[code] += has_value[of_class].sum(axis=0)
            class_sizes[code] += int(of_class.sum())
    return Counts(hits, observed, class_sizes)


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
    for Z in selected_columns(selector, X, "panel_report", allow_gaps=True):
        yield Z, codes[start : start + len(Z)]
        start += len(Z)
