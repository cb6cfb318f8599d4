"""What the method may ask of labeled samples, wherever they are."""

from __future__ import annotations

from typing import Protocol, Self

from semfs._typing import Float64, Floats, Indices, Mask


class RowSource(Protocol):
    """Labeled samples, wherever they are: all that `semfs.method` asks of them."""

    @property
    def n_rows(self) -> int | None:
        """Number of samples; None if only the end of the data will tell."""

    @property
    def n_features(self) -> int:
        """Number of features d."""

    @property
    def in_memory(self) -> bool:
        """Whether ``X``, ``codes`` and ``weights`` are at hand as numpy or CSR arrays."""

    @property
    def eps(self) -> float:
        """Rounding unit of the values, that of float32 or float64."""

    @property
    def nbytes(self) -> int:
        """Bytes of memory that the samples take; 0 for sources beyond memory."""

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
