"""`TrainingData`: the sums over labeled samples and the unlabeled samples of a fit."""

from __future__ import annotations

from dataclasses import dataclass, replace

from semfs._typing import Matrix
from semfs.labels import LabelArray
from semfs.method.batches import Pairs, remove_batches
from semfs.method.moments import Moments
from semfs.rows import OutOfCoreRows, Preprocessing
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows, UnlabeledStream


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The data of a problem: sums over labeled samples, and unlabeled samples."""

    moments: Moments
    unlabeled: UnlabeledRows | UnlabeledStream | None = None
    X: Matrix | None = None  # labeled samples as validated, None beyond memory
    preprocessing: Preprocessing = NO_PREPROCESSING
    source: OutOfCoreRows | None = None  # of the labeled samples beyond memory
    batched: bool = False  # whether the moments are those of pairs (class, batch)

    @property
    def classes(self) -> LabelArray:
        """The seen classes (C,)."""
        classes = self.moments.classes
        return Pairs.from_labels(classes).classes if self.batched else classes

    def corrected(self, *, refuse: bool = True) -> TrainingData:
        """Return the data with moments of classes after removing the offsets of batches.

        If classes coincide with batches, raise if ``refuse`` is true, otherwise warn.
        """
        if not self.batched:
            return self
        moments = remove_batches(self.moments, check=True, refuse=refuse)
        return replace(self, moments=moments, batched=False)
