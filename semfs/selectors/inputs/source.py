"""Opens sources of labeled samples (files, blocks, clusters) without reading them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from semfs._typing import DataLike, Label
from semfs.labels import Labels
from semfs.rows import OutOfCoreRows, Preprocessing, beyond_memory, open_blocks
from semfs.rows.dask_data import dask_rows
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.inputs.kind import Kind


def open_labeled(
    kind: Kind,
    X: DataLike,
    y: Any,
    sample_weight: Any,
    drop: Sequence[str] = (),
    keep_missing: bool = False,
) -> OutOfCoreRows:
    """Return samples beyond memory, with labels and weights, as a source.

    ``drop`` are columns of a table that are not features. With ``keep_missing``, empty cells
    are NaN instead of an error.
    """
    if beyond_memory(X):
        if y is not None or sample_weight is not None:
            raise ValueError("Pass labels and weights to open_blocks, not to fit.")
        return X
    if kind is Kind.DASK:
        return dask_rows(X, y, sample_weight)
    missing = "keep" if keep_missing else "error"
    return open_blocks(
        X,
        y,
        sample_weight=sample_weight,
        drop=drop,
        missing_values=missing,
    )


def with_marks(source: OutOfCoreRows, described: Sequence[Label]) -> OutOfCoreRows:
    """Return the source with labels of the same type as those of the attribute table.

    Values such as -1 mark unlabeled samples, unless the table describes a class with that
    label.
    """
    # a table of classes 3 and 4 describes "3" and "4" of a text file too
    labels = source.labels
    if labels is None:  # they come with the blocks
        return source
    return source.with_labels(labels.align_to(described).mark_unlabeled(described))


def labels_of(source: OutOfCoreRows) -> Labels:
    """Return the labels of a source, reading them if necessary."""
    labels = source.labels_known().labels
    assert labels is not None
    return labels


def preprocessing_of(source: OutOfCoreRows) -> Preprocessing:
    """Return how a source preprocesses the values that it reads."""
    found: Preprocessing = getattr(source, "preprocessing", NO_PREPROCESSING)
    return found
