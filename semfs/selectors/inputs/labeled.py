"""Samples in memory with labels and weights, and their division by missing labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from semfs._typing import ArrayLike, DataLike, Float64, Indices, Label, LabelsLike, Matrix
from semfs.labels import LEFT_OUT, UNLABELED, LabelArray, Labels
from semfs.method.batches import batch_labels, pair_labels
from semfs.rows import (
    DeviceRows,
    MemoryRows,
    OutOfCoreRows,
    Preprocessing,
    is_foreign,
    open_unlabeled,
)
from semfs.rows.device import to_numpy
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.inputs.source import open_labeled, preprocessing_of
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.validation import check_weights

#: Labeled samples in memory, or on a device.
InMemory: TypeAlias = MemoryRows | DeviceRows
#: Why unlabeled samples of another array library are refused.
NEED_NUMPY = (
    "unlabeled samples require X to be a NumPy or SciPy array. Convert "
    "X, or drop these samples."
)


@dataclass(frozen=True, eq=False)
class Samples:
    """Samples in memory as passed or loaded, before they are validated."""

    X: Any
    labels: Labels | None
    weights: ArrayLike | None = None
    names: Sequence[str] | None = None  # of the features, where they are not in X
    preprocessing: Preprocessing = NO_PREPROCESSING
    batches: Labels | None = None

    @classmethod
    def load(cls, source: OutOfCoreRows) -> Samples:
        """Load all samples of a source, with sorted classes."""
        X, labels, weights = source.load()
        names = source.feature_names
        batches = source.batches
        if batches is not None and len(batches) > len(labels):
            # samples that are left out were not loaded
            known = source.labels_known().labels
            assert known is not None
            batches = Labels(batches.classes, batches.codes[known.codes != LEFT_OUT])
        return cls(
            X,
            labels.checked(),
            weights,
            names,
            preprocessing_of(source),
            batches,
        )

    @classmethod
    def from_matrix(
        cls,
        X: DataLike,
        y: LabelsLike | None,
        weights: ArrayLike | None,
        batches: Any,
        described: Sequence[Label],
    ) -> Samples:
        """Return samples in memory with the given labels, weights and batches.

        ``described`` are the classes of the attribute table. A value that the table describes,
        such as -1, is a class and does not mark unlabeled samples.
        """
        labels = Labels.from_target(to_numpy(y), described=described)
        if batches is not None:
            batches = batch_labels(batches, len(labels))
        return cls(X, labels, to_numpy(weights), batches=batches)

    @classmethod
    def from_user(cls, X: DataLike, y: LabelsLike | str | None) -> Samples:
        """Return samples of any kind in memory. Without y, labels are None."""
        kind = classify(X, y)
        # these are in memory, or look as if they were
        if kind in (Kind.MATRIX, Kind.MAPPED, Kind.PAIRS):
            return cls(X, None if y is None else Labels.from_target(to_numpy(y)))
        # a file without labels has no source of labeled samples
        if y is None and kind is Kind.STORED:
            unlabeled = open_unlabeled(X)
            return cls(unlabeled.reader.load(), None, None, unlabeled.feature_names)
        return cls.load(open_labeled(kind, X, y, None))


def split_by_label(
    X: Matrix, labels: Labels, weights: ArrayLike | None, batches: Labels | None = None
) -> tuple[InMemory, UnlabeledRows | None, LabelArray]:
    """Return labeled samples, unlabeled samples or None, and the classes.

    With batches, the classes are pairs (class, batch).
    """
    n = X.shape[0]
    labels.check_length(n)
    checked = check_weights(weights, n)
    if not labels.classes:
        raise ValueError(
            f"no sample has a label: all {n} values of y are -1, None, NaN or NA. Pass the "
            "labels of the seen classes."
        )
    if batches is not None:
        labels = pair_labels(labels, batches)
    make_rows = DeviceRows if is_foreign(X) else MemoryRows
    # codes are class numbers from 0; UNLABELED and LEFT_OUT are negative
    is_unlabeled = labels.codes == UNLABELED
    if not is_unlabeled.any():
        rows = make_rows(X, labels.codes.astype(np.intp), checked)
        return rows, None, labels.class_array()
    if is_foreign(X):
        raise ValueError(NEED_NUMPY)
    # LEFT_OUT samples are in neither part
    seen = np.flatnonzero(labels.codes >= 0)
    seen_weights = None if checked is None else checked[seen]
    rows = MemoryRows(X[seen], labels.codes[seen].astype(np.intp), seen_weights)
    unlabeled = _unlabeled_rows(X, np.flatnonzero(is_unlabeled), checked, batches)
    return rows, unlabeled, labels.class_array()


def _unlabeled_rows(
    X: Matrix, places: Indices, weights: Float64 | None, batches: Labels | None
) -> UnlabeledRows:
    """Return the samples of X at some positions, without those of weight 0."""
    if weights is not None:
        places = places[weights[places] > 0]
        weights = weights[places]
    batch_of = np.zeros(len(places), dtype=np.intp)
    if batches is not None:
        batch_of = batches.codes[places].astype(np.intp)
    return UnlabeledRows(X[places], batch_of, weights)
