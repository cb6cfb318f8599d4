"""Fills gaps (NaN) of new samples with the values that a fit learned."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from semfs._typing import Float64, Matrix
from semfs.rows.device import to_numpy
from semfs.validation import counted, warn_user


def fill_values_of(selector: BaseEstimator) -> Float64 | None:
    """Return what fills gaps of the selected features (k,); None if gaps are an error.

    Selectors of older files, and baselines, have no such values.
    """
    values = to_numpy(getattr(selector, "fill_values_", None))
    return None if values is None or not len(values) else values


@dataclass
class Filling:
    """Fills gaps of features, and counts them.

    Examples
    --------
    >>> filling = Filling(np.array([1.0, 2.0]))
    >>> filling.filled(np.array([[np.nan, 5.0], [3.0, 4.0]]))
    array([[1., 5.],
           [3., 4.]])
    >>> filling.n_values, filling.n_samples, filling.n_empty
    (1, 1, 0)
    """

    values: Float64  # (k,)
    n_values: int = 0  # gaps that were filled
    n_samples: int = 0  # samples with gaps
    n_empty: int = 0  # samples without any value

    def filled(self, Z: Matrix) -> Matrix:
        """Return samples (r, k) without gaps. Samples without gaps are not copied."""
        # what is not stored in sparse data is 0, not missing
        if not isinstance(Z, np.ndarray):
            return Z
        gaps = np.isnan(Z)
        if not gaps.any():
            return Z
        self.n_values += int(gaps.sum())
        self.n_samples += int(gaps.any(axis=1).sum())
        self.n_empty += int(gaps.all(axis=1).sum())
        return np.where(gaps, self.values.astype(Z.dtype), Z)

    def blocks(self, blocks: Iterator[Matrix]) -> Iterator[Matrix]:
        """Yield blocks (r, k) without gaps. After the last one, warn if gaps were filled."""
        for Z in blocks:
            yield self.filled(Z)
        self.warn()

    def warn(self) -> None:
        """Say how many gaps were filled, if there were some."""
        if not self.n_values:
            return
        message = (
            f"{counted(self.n_values, 'missing value')} of selected "
            f"features, in {counted(self.n_samples, 'sample')}, filled "
            "with values learned during the fit (fill_values_)."
        )
        if self.n_empty:
            verb = "has" if self.n_empty == 1 else "have"
            message += (
                f" {counted(self.n_empty, 'sample')} {verb} no value for "
                "any selected feature. Leave out these samples."
            )
        warn_user(message)


def filled_result(Z: Any, values: Float64) -> Any:
    """Return selected columns (n, k), an array, a frame or lazy data, without gaps."""
    if hasattr(Z, "iloc") and not hasattr(Z, "map_partitions"):
        return Z.fillna(dict(zip(Z.columns, values.tolist())))
    if hasattr(Z, "with_columns"):
        columns = zip(Z.get_columns(), values.tolist())
        return Z.with_columns([column.fill_nan(v).fill_null(v) for column, v in columns])
    # Dask collections, lazily
    for name in ("map_partitions", "map_blocks"):
        if hasattr(Z, name):
            return getattr(Z, name)(filled_result, values)
    return Filling(values).filled(Z)
