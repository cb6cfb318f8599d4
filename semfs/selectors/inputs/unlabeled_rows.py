"""The unlabeled samples of a fit, in memory or read in parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.labels import Labels
from semfs.rows import OutOfCoreRows


@dataclass(frozen=True, eq=False)
class UnlabeledRows:
    """Unlabeled samples in memory. A feature that some of them lack is zero in all."""

    X: Matrix  # (n, d)
    batches: Indices  # (n,), number of each sample's batch; zeros if there are no batches
    weights: Float64 | None = None  # (n,), None if all weigh the same
    present: Mask | None = None  # (d,), whether all samples have a feature; None: they do

    @property
    def n_rows(self) -> int:
        """Number of samples, including those of weight 0."""
        return self.X.shape[0]

    @property
    def is_used(self) -> Mask:
        """Return which samples (n,) have a positive weight."""
        if self.weights is None:
            return np.ones(self.n_rows, dtype=bool)
        return self.weights > 0

    @property
    def n_used(self) -> int:
        """Number of samples with a weight above zero."""
        return int(np.count_nonzero(self.is_used))

    @property
    def n_labels(self) -> int:
        """Length of ``unlabeled_labels_``, which includes samples of weight 0."""
        return self.n_rows


@dataclass(frozen=True)
class UnlabeledStream:
    """Unlabeled samples beyond memory."""

    rows: OutOfCoreRows  # has the unlabeled samples among others, labels known
    seen: OutOfCoreRows | None  # has samples of the seen classes; None if these are in memory
    options: dict[str, Any]  # that sums over samples take

    @property
    def labels(self) -> Labels:
        """Labels of the rows."""
        assert self.rows.labels is not None
        return self.rows.labels

    @property
    def n_used(self) -> int:
        """Number of unlabeled samples with a weight above zero."""
        return self.labels.n_unlabeled

    @property
    def n_labels(self) -> int:
        """Length of ``unlabeled_labels_``, which excludes samples of weight 0."""
        return self.n_used
