"""Sources of labeled samples: files, blocks and clusters, opened but not read."""

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
    """A source of labeled samples."""
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
    """The source with labels of the attribute table's type, and marks as no label."""
    # a table of classes 3 and 4 describes "3" and "4" of a text file too
    labels = source.labels
    if labels is None:  # they come with the blocks
        return source
    return source.with_labels(labels.align_to(described).mark_unlabeled(described))


def labels_of(source: OutOfCoreRows) -> Labels:
    """The labels of a source, which may have to be read."""
    labels = source.labels_known().labels
    assert labels is not None
    return labels


def preprocessing_of(source: OutOfCoreRows) -> Preprocessing:
    """Return what a source does to the numbers it reads."""
    found: Preprocessing = getattr(source, "preprocessing", NO_PREPROCESSING)
    return found
