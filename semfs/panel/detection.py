"""Counts in how many samples of each class the selected features exceed a threshold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from semfs._typing import DataLike, Float64, Indices, LabelsLike
from semfs.panel.samples import labeled_blocks
from semfs.selectors.linear import LinearSelector


@dataclass(frozen=True, eq=False)
class Counts:
    """Numbers of samples of each class by their values of the selected features."""

    above: Float64  # (C, k), samples above the threshold
    observed: Float64  # (C, k), samples with a value
    sums: Float64  # (C, k), of the values
    class_sizes: Indices  # (C,), samples of each class

    def shares(self) -> Float64:
        """Return the share (C, k) above the threshold, among samples with a value."""
        # A class of the fit may have no sample in X; its share is then 0, not 0/0.
        return self.above / np.maximum(self.observed, 1.0)

    def means(self) -> Float64:
        """Return the means (C, k) over samples with a value."""
        return self.sums / np.maximum(self.observed, 1.0)


def count_above(
    selector: LinearSelector,
    X: DataLike,
    y: LabelsLike | str | None,
    thresholds: Float64,
) -> Counts | None:
    """Count the samples of each class above thresholds (k,), in the order of selection.

    Missing values are not counted. Return None if there are no samples.
    """
    n_selected = len(thresholds)
    selected = np.asarray(selector.order_)[:n_selected]
    # Blocks hold the selected features ascending: these are their columns, best first.
    entered = np.searchsorted(np.sort(selected), selected)
    n_classes = len(selector.classes_)
    hits = np.zeros((n_classes, n_selected))
    observed = np.zeros((n_classes, n_selected))
    sums = np.zeros((n_classes, n_selected))
    class_sizes = np.zeros(n_classes, dtype=np.intp)
    blocks = labeled_blocks(selector, X, y, selected)
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
            sums[code] += np.nansum(values[of_class], axis=0)
            class_sizes[code] += int(of_class.sum())
    return Counts(hits, observed, sums, class_sizes)
