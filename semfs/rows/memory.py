"""Labeled samples in memory, dense or sparse."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from semfs.arrays import batches, draw_rows, take_columns
from semfs.rows.held import HeldRows
from semfs.rows.sums import (
    PASS_ROWS,
    add_outer,
    add_products,
    check_matrix_fits,
    class_sums,
    csr_products,
    mirrored,
    typical_row,
)
from semfs.rows.threads import in_threads

if TYPE_CHECKING:
    import numpy.typing as npt
    from typing_extensions import TypeIs

    from semfs._typing import Float64, Floats, Indices, Mask
    from semfs.rows.centering import Centering
    from semfs.rows.source import SampledColumns

# Samples, dense and sparse, whose features predict which Gram columns a fit will need. A
# sparse sample has few values, so that more of them are needed for the same precision.
N_SAMPLED = 1024
N_SAMPLED_SPARSE = 4096


@dataclass(frozen=True, eq=False)
class MemoryRows(HeldRows):
    """Samples in memory.

    For moderate n, this is the cheapest representation of the scatter matrix, whose columns are
    computed on request. X, dense or CSR, is never copied.
    """

    in_memory = True

    @property
    def nbytes(self) -> int:
        return self.X.data.nbytes if sp.issparse(self.X) else self.X.nbytes

    @property
    def eps(self) -> float:
        return float(np.finfo(self.X.dtype).eps)

    def keep_classes(self, mask: Mask) -> MemoryRows:
        """Return the samples of the classes in a mask (C,), with codes that count those."""
        kept, codes, weights = self.rows_of_classes(mask)
        return MemoryRows(self.X[kept], codes, weights)

    def copy(self) -> MemoryRows:
        return MemoryRows(self.X.copy(), self.codes, self.weights)

    def sample_columns(self, features: Indices) -> SampledColumns:
        """Return features of a random subset (s, m), their codes (s,) and weights."""
        sparse = sp.issparse(self.X)
        everything = np.ones(self.n_rows, dtype=bool)
        chosen = draw_rows(everything, N_SAMPLED_SPARSE if sparse else N_SAMPLED)
        weights = None if self.weights is None else self.weights[chosen]
        # rows first: they are few
        if sparse:
            Z = self.X[chosen][:, features].toarray()
        else:
            Z = self.X[chosen[:, None], features]
        return Z, self.codes[chosen], weights

    def class_totals(self, n_classes: int) -> tuple[Float64, Float64, Float64]:
        """Return a shift (d,), and about it class sums (C, d) and column squares (d,)."""
        shift = None if sp.issparse(self.X) else typical_row(self.X)
        sums, squares = class_sums(self.X, self.codes, n_classes, self.weights, shift)
        if shift is None:
            return np.zeros_like(squares), sums, squares
        return shift.astype(np.float64), sums, squares

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        mean = centering.mean
        dtype = np.dtype(np.float64) if centering.precise else self.X.dtype
        center_dtype = np.dtype(np.float64) if centering.far else dtype
        if sp.issparse(self.X):
            # X'Z about the origin, from which the part of the means is subtracted
            products = csr_products(self.X, columns, self.weights, center_dtype)
            return products - centering.total * np.outer(mean, mean[columns])
        # (X − m)'(Z − z) = X'(Z − z): it is enough to center one factor
        center = mean[columns].astype(center_dtype)
        out = np.zeros((len(columns), self.n_features))
        for rows in batches(self.n_rows, PASS_ROWS):
            Z = self._centered(rows, columns, center, dtype)
            if self.weights is not None:
                Z *= self.weights[rows].astype(dtype)[:, None]
            X = self.X[rows].astype(dtype, copy=False)
            # Z sums to zero over all samples, so that X is shifted only to keep its digits
            if centering.far:
                X = X - mean.astype(dtype)
            out += Z.T @ X
        return out.T

    def gram_among(self, features: Indices, centering: Centering) -> Float64:
        """Return the scatter matrix (m, m) of some features about the mean, in float64."""
        X = self.X[:, features] if sp.issparse(self.X) else take_columns(self.X, features)
        subset = MemoryRows(X, self.codes, self.weights)
        means = replace(centering, mean=centering.mean[features])
        return subset.gram_columns(np.arange(len(features)), means)

    def scatter(self, centering: Centering) -> Float64:
        """Return the scatter matrix (d, d) about the mean."""
        check_matrix_fits(self.n_features)
        sparse = sp.issparse(self.X)
        dtype = np.dtype(np.float64) if centering.precise or sparse else self.X.dtype
        out = np.zeros((self.n_features, self.n_features))
        if sparse or centering.near:
            # X'X minus the part of the mean: X is not copied
            add_products(out, self.X, self.weights, dtype)
            return mirrored(add_outer(out, -centering.total, centering.mean))
        center = centering.mean.astype(dtype)
        for rows in batches(self.n_rows, PASS_ROWS):
            weights = None if self.weights is None else self.weights[rows]
            add_products(out, self.X[rows] - center, weights, dtype)
        return mirrored(out)

    def _centered(
        self,
        rows: slice,
        columns: Indices,
        center: Floats,
        dtype: npt.DTypeLike,
    ) -> Floats:
        """Return some columns (r, b) of dense rows minus their center (b,), in ``dtype``."""
        X = self.X[rows]
        Z = np.empty((len(X), len(columns)), dtype)

        def fill(part: slice) -> None:
            taken = np.take(X[part], columns, axis=1)
            # a float64 center is subtracted in float64, whatever the result is stored in
            np.subtract(taken, center, out=Z[part], casting="same_kind")

        in_threads(fill, len(X), Z.size)
        return Z


def in_memory(rows: object) -> TypeIs[MemoryRows]:
    """Return whether samples are numpy or CSR arrays in memory."""
    return isinstance(rows, MemoryRows)
