"""Preprocessing of features before they are summed up, and again before predictions."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import scipy.sparse as sp

if TYPE_CHECKING:
    from semfs._typing import Floats, Indices, Matrix, Sparse

#: Counts per sample after normalization, as in scanpy's tutorials.
TARGET_SUM = 1e4


@dataclass(frozen=True, eq=False)
class Preprocessing:
    """Preprocessing of data: which matrix of AnnData is read, and the steps of `apply`.

    The steps fill missing values, normalize counts, and multiply features by factors.

    Examples
    --------
    >>> import numpy as np
    >>> counts = np.array([[1.0, 3.0], [0.0, 0.0]])
    >>> Preprocessing(normalize="log1p").apply(counts).round(2)
    array([[7.82, 8.92],
           [0.  , 0.  ]])
    >>> Preprocessing(scale=np.array([2.0, 1.0])).apply(counts)
    array([[2., 3.],
           [0., 0.]])
    """

    layer: str | None = None  # of AnnData, or "raw"; None: X
    normalize: str | None = None  # "log1p": log(1 + counts per 10⁴ of the sample)
    scale: Floats | None = None  # (d,), what features are multiplied by
    fill: Floats | None = None  # (d,), what stands for missing values of dense data
    of_logs: bool = False  # whether the values of the fit were logarithms, as far as is known

    @property
    def active(self) -> bool:
        """Whether there is any preprocessing."""
        return any(part is not None for part in (self.normalize, self.scale, self.fill))

    def normalized_as(self, option: str | None) -> Self:
        """Return the steps with another normalization: "log1p", "none"; None: the same."""
        if option is None:
            return self
        return replace(self, normalize=None if option == "none" else option)

    def apply(
        self,
        X: Matrix,
        columns: slice | Indices = slice(None),
        row_sums: Floats | None = None,
    ) -> Matrix:
        """Return X (n, g), the ``columns`` of the data, preprocessed.

        To normalize, the sums of whole rows (n,) are needed unless X has all columns.
        """
        if self.fill is not None:
            X = np.where(np.isnan(X), self.fill[columns].astype(X.dtype), X)
        if self.normalize == "log1p":
            X = log_normalized(X, row_sums)
        if self.scale is not None:
            X = _times_columns(X, self.scale[columns])
        return X


#: The preprocessing of data that are taken as they are.
NO_PREPROCESSING = Preprocessing()


def log_normalized(X: Matrix, row_sums: Floats | None = None) -> Matrix:
    """Return log(1 + counts per 10⁴ counts of the row), as in scanpy.

    This equals scanpy's normalize_total and log1p. X (n, g) is dense, CSR or CSC. Without
    ``row_sums`` (n,), it must have all columns.
    """
    sparse = sp.issparse(X)
    values: Any = X.data if sparse else X
    if values.min(initial=0) < 0:
        raise ValueError(
            'normalize="log1p" expects counts, but X has negative numbers. Leave out normalize.'
        )
    if row_sums is None:
        row_sums = _csr_row_sums(X) if sparse else X.sum(axis=1, dtype=np.float64)
    factors = (TARGET_SUM / np.where(row_sums == 0, 1.0, row_sums)).astype(X.dtype)
    with np.errstate(all="ignore"):
        if sparse:
            return _log_normalized_sparse(X, factors)
        return np.log1p(X * factors[:, None])


def _log_normalized_sparse(X: Sparse, factors: Floats) -> Sparse:
    """Return log(1 + X), each row of X times its factor (n,), in the format of X."""
    if X.format == "csc":
        data = factors[X.indices]
    else:
        data = np.repeat(factors, np.diff(X.indptr))
    data *= X.data
    np.log1p(data, out=data)
    return type(X)((data, X.indices, X.indptr), shape=X.shape)


def _csr_row_sums(X: Sparse) -> Floats:
    """Return the row sums (n,) of CSR X, in an eighth of the time of a product."""
    sums = np.zeros(X.shape[0])
    filled = np.flatnonzero(np.diff(X.indptr))
    if len(filled):
        sums[filled] = np.add.reduceat(X.data, X.indptr[filled])
    return sums


def _times_columns(X: Any, factors: Floats) -> Any:
    """Return X with each column multiplied by its factor (g,), in the precision of X."""
    factors = factors.astype(X.dtype)
    if sp.issparse(X):
        return X.multiply(factors[None, :]).asformat(X.format)
    return X * factors
