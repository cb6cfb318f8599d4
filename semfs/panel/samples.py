"""Reads the samples of a panel block by block: selected columns, and the class of each row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from semfs._typing import DataLike, Float64, Indices, LabelsLike
from semfs.labels import Labels
from semfs.rows import open_blocks
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.linear import LinearSelector
from semfs.selectors.selected_columns import selected_columns


def labeled_blocks(
    selector: LinearSelector,
    X: DataLike,
    y: LabelsLike | str | None,
    selected: Indices,
) -> Iterator[tuple[Float64, Indices]] | None:
    """Return blocks of samples (r, k), selected features ascending, and their classes (r,).

    The class is negative if a sample has none of the fitted classes. Without samples, return
    None.
    """
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
    """Return the fitted class (n,) of each sample, negative if it has none."""
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
    """Yield the selected columns (r, k) of samples with their classes (r,), block by block."""
    start = 0
    for Z in selected_columns(selector, X, "panel_report", allow_gaps=True):
        yield Z, codes[start : start + len(Z)]
        start += len(Z)
