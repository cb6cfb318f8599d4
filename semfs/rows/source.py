"""Row sources: the interface of labeled samples, wherever they are stored.

All sources give the same sums. Held sources (`HeldRows`) are fast to read several times:
`MemoryRows` has the samples in memory, and `DeviceRows` on the device of another array library.
Sources beyond memory (`OutOfCoreRows`) are slow to read, so one pass returns all sums:
`StreamedRows`, `StreamedCSR` and `StreamedCSC` read a file, and `ChunkRows` and `RangeRows` are
on a Dask cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, Self

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Mask, Matrix
    from semfs.labels import Labels
    from semfs.rows.centering import Centering

    #: Features of a subset of the samples (s, m), their codes (s,), and weights (s,) or None.
    SampledColumns = tuple[Floats, Indices, Floats | None]


# Protocols instead of base classes: sources of a cluster or a device share little code with
# those in memory, and a source need not import this module to be one.
class RowSource(Protocol):
    """Labeled samples that can be summed up."""

    @property
    def n_rows(self) -> int | None:
        """Number of samples, or None if it is unknown until all are read."""
        ...

    @property
    def n_features(self) -> int:
        """Number of features d."""
        ...

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the features, if they have any."""
        ...

    @property
    def labels(self) -> Labels | None:
        """Labels of the samples; None if they come with the blocks."""
        ...

    @property
    def in_memory(self) -> bool:
        """Whether ``X``, ``codes`` and ``weights`` are numpy or CSR arrays in memory."""
        ...

    @property
    def eps(self) -> float:
        """Rounding unit of the data: that of float32 or float64."""
        ...

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the samples take; 0 for sources beyond memory."""
        ...

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return ``columns`` (d, b) of the scatter matrix about the mean, in float64."""
        ...

    def scatter(self, centering: Centering) -> Float64:
        """Return the scatter matrix (d, d) about the mean, in float64."""
        ...

    def keep_classes(self, mask: Mask) -> Self:
        """Return the samples of the classes in a mask (C,), with codes that count those."""
        ...

    def copy(self) -> RowSource:
        """Return a copy of the samples, so that the caller may change X."""
        ...

    def sample_columns(self, features: Indices) -> SampledColumns | None:
        """Return ``features`` of a random subset of the samples, or None if there is none.

        It is used to predict which Gram columns a fit will need.
        """
        ...


class ClusterModel(Protocol):
    """Clusters to which samples are assigned by the nearest center in a linear projection."""

    @property
    def centers(self) -> Floats:
        """Centers (K, p) of the clusters."""
        ...

    def assign(self, X: Matrix, batches: Indices | None = None) -> Indices:
        """Return the cluster of each sample X (n, d), or LEFT_OUT if it is far from all.

        Offsets of the batches (n,) are removed if the model knows them.
        """
        ...

    def project(self, X: Matrix, columns: slice) -> Floats:
        """Return the contribution of columns X (n, g) to the projection (n, p) of samples."""
        ...

    def nearest(self, products: Float64, batches: Indices | None = None) -> Indices:
        """Return the nearest center of projected samples (n, p), LEFT_OUT if all are far."""
        ...
