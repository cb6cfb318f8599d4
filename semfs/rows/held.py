"""`HeldRows`: the base of samples that are held whole, in memory or on a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.labels import Labels


@dataclass(frozen=True, eq=False)
class HeldRows(ABC):
    """Base class of samples that are held whole and have a class each."""

    X: Any  # (n, d)
    codes: np.ndarray  # (n,), class of each sample, in numpy
    weights: np.ndarray | None  # (n,), in numpy

    feature_names = None

    @property
    def n_rows(self) -> int:
        return self.X.shape[0]

    @property
    def n_features(self) -> int:
        return self.X.shape[1]

    @property
    def labels(self) -> Labels:
        """The class codes as labels."""
        n_classes = int(self.codes.max(initial=-1)) + 1
        return Labels(list(range(n_classes)), self.codes)

    @abstractmethod
    def class_totals(self, n_classes: int) -> tuple[Float64, Float64, Float64]:
        """Return a shift (d,), and about it class sums (C, d) and column squares (d,)."""

    def rows_of_classes(self, mask: Mask) -> tuple[Indices, Indices, np.ndarray | None]:
        """Return the samples (m,) of the classes in a mask (C,), their codes and weights.

        The codes count the classes in the mask.
        """
        kept = np.flatnonzero(mask[self.codes])
        new_code = np.cumsum(mask) - 1
        weights = None if self.weights is None else self.weights[kept]
        return kept, new_code[self.codes[kept]], weights
