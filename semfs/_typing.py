"""Names for types that many modules use, and the protocols that parts of the package meet by."""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import pandas as pd

#: An array of floating-point numbers.
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
#: An array of float64.
Float64: TypeAlias = npt.NDArray[np.float64]
#: Positions of features or samples.
Indices: TypeAlias = npt.NDArray[np.intp]
#: True where a feature or sample is meant.
Mask: TypeAlias = npt.NDArray[np.bool_]
#: A matrix in memory: dense, or sparse by rows or by columns.
Matrix: TypeAlias = "Floats | sp.csr_array | sp.csc_array"
#: A sparse matrix: stored by rows (CSR), or by columns (CSC).
Sparse: TypeAlias = "sp.csr_array | sp.csc_array"
#: Anything that `numpy.asarray` understands.
ArrayLike: TypeAlias = npt.ArrayLike
#: The path of a file or folder.
PathLike: TypeAlias = "str | os.PathLike[str]"
#: One class label.
Label: TypeAlias = Hashable
#: Class labels as users pass them.
LabelsLike: TypeAlias = "npt.ArrayLike | Sequence[Hashable]"
#: Class descriptions as users pass them.
AttributesLike: TypeAlias = "pd.DataFrame | Mapping[Hashable, Sequence[float]] | npt.NDArray[Any] | Sequence[Sequence[float]]"
#: Features as users name them: by index, by name.
FeaturesLike: TypeAlias = Sequence[int | str]


class RowSource(Protocol):
    """Labeled samples, wherever they are: all that `semfs.method` asks of them."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    @property
    def in_memory(self) -> bool:
        """Whether the samples are a numpy or CSR matrix at hand: then this is `MatrixRows`."""

    @property
    def eps(self) -> float:
        """Rounding unit of the values, that of float32 or float64."""

    @property
    def nbytes(self) -> int:
        """Bytes that the values take."""

    def class_totals(self, n_classes: int) -> tuple[Float64, Float64, Float64]:
        """Return a shift (d,), and class sums (C, d) and sums of squares (d,) about it."""

    def gram_columns(
        self, columns: Indices, mean: Float64, total: float, *, far: bool, precise: bool
    ) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean (d,).

        ``far``: some feature is far from the origin and must be centered before products
        are taken. ``precise``: products are taken in float64.
        """

    def scatter(
        self, mean: Float64, total: float, *, precise: bool, near: bool = False
    ) -> Float64:
        """Return the scatter matrix (d, d) about the mean (d,).

        ``near``: all features are so near the origin that they need not be centered first.
        """

    def keep_classes(self, mask: Mask) -> Self:
        """Return the samples of the classes in a mask (C,), numbered anew."""

    def copy(self) -> RowSource:
        """Return samples that do not change when the caller's arrays do."""

    def sample_columns(self, features: Indices) -> tuple[Floats, Indices, Floats | None] | None:
        """Return a random subset of the samples: some features (s, m), codes (s,), weights.

        None if there is no subset at hand.
        """


class MatrixRows(RowSource, Protocol):
    """Samples in memory."""

    X: Any  # (n, d), dense or CSR
    codes: Indices  # (n,)
    weights: Float64 | None  # (n,)


#: Samples as users pass them: an array, list, frame, sparse matrix, memmap or device array in
#: memory; a path, AnnData, an opened source, (X, y) blocks or a Dask collection.
DataLike: TypeAlias = Any
