"""Rows held by another array library (torch, CuPy, ...): passes run where the data are.

Everything of size n happens in the library and on the device of X; results of size C × d,
d × b or d × d come back to numpy in float64, block by block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn import config_context
from sklearn.utils import _array_api as api
from sklearn.utils._array_api import check_same_namespace, get_namespace_and_device

from semfs.arrays import batches
from semfs.rows.memory import PASS_ROWS, Rows

__all__ = ["ArrayRows", "as_numpy", "check_same_namespace", "is_foreign", "like"]


def is_foreign(X: Any) -> bool:
    """Whether validated data belong to another array library than numpy and scipy."""
    return not isinstance(X, np.ndarray) and not sp.issparse(X)


def as_numpy(values: Any) -> Any:
    """Return arrays of other libraries, under ``array_api_dispatch``, as numpy arrays."""
    if isinstance(values, np.ndarray) or sp.issparse(values) or not hasattr(values, "shape"):
        return values
    try:
        xp, known = api.get_namespace(values)
    except TypeError:  # a frame or the like
        return values
    return api._convert_to_numpy(values, xp) if known else values


def like(array: np.ndarray, X: Any) -> Any:
    """Return a numpy array in the library and on the device of X; text stays as it is."""
    xp, known, device = get_namespace_and_device(X)
    if not known or not is_foreign(X) or array.dtype.kind not in "biuf":
        return array
    if array.dtype.kind == "f" and api._max_precision_float_dtype(xp, device) == xp.float32:
        array = array.astype(np.float32)
    return xp.asarray(array, device=device)


def floating_dtypes(X: Any) -> list | None:
    """Return the floating types of X's library, or None for numpy data."""
    xp, known, device = get_namespace_and_device(X)
    if not known or not is_foreign(X):
        return None
    return [t for t in api.supported_float_dtypes(xp, device) if xp.finfo(t).bits >= 32]


def take_columns(X: Any, columns: np.ndarray) -> Any:
    """Return some columns of X (n, d) on its device."""
    xp, _, device = get_namespace_and_device(X)
    return xp.take(X, xp.asarray(columns, device=device), axis=1)


def spread_columns(X: Any, support: np.ndarray) -> Any:
    """Return X (n, k) with columns of zeros inserted where ``support`` (d,) is false."""
    xp, _, device = get_namespace_and_device(X)
    if X.shape[1] != support.sum():
        raise ValueError("X has a different shape than during fitting.")
    zeros = xp.zeros((X.shape[0], 1), dtype=X.dtype, device=device)
    place = np.where(support, np.cumsum(support) - 1, X.shape[1])
    return xp.take(xp.concat([X, zeros], axis=1), xp.asarray(place, device=device), axis=1)


@dataclass(frozen=True, eq=False)
class ArrayRows:
    """The counterpart of `semfs.rows.Rows`; codes (n,) and weights (n,) are in numpy."""

    X: Any
    codes: np.ndarray
    weights: np.ndarray | None

    @property
    def rounding(self) -> float:
        return float(self._xp()[0].finfo(self.X.dtype).eps)

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def in_memory(self) -> bool:
        return False

    @property
    def eps(self) -> float:
        return self.rounding

    @property
    def nbytes(self) -> int:
        return int(self.X.shape[0] * self.X.shape[1] * self.X.itemsize)

    def sample_columns(self, features: np.ndarray) -> None:
        return None

    def _xp(self) -> tuple[Any, Any]:
        with config_context(array_api_dispatch=True):
            xp, _, device = get_namespace_and_device(self.X)
        return xp, device

    def _blocks(self, shift: np.ndarray, precise: bool) -> Iterator[tuple[slice, Any, Any]]:
        """Rows minus a shift (d,); weights (r, 1) or 1."""
        xp, device = self._xp()
        dtype = api._max_precision_float_dtype(xp, device) if precise else self.X.dtype
        options = {"dtype": dtype, "device": device}
        for rows in batches(self.X.shape[0], PASS_ROWS):
            Z = xp.astype(self.X[rows, :], dtype, copy=False) - xp.asarray(shift, **options)
            w: Any = 1.0
            if self.weights is not None:
                w = xp.asarray(self.weights[rows], **options)[:, None]
            yield rows, Z, w

    def class_totals(self, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        xp, device = self._xp()
        shift = self._host(self.X[: min(64, self.X.shape[0]), :]).mean(axis=0)
        shift = np.where(np.isfinite(shift), shift, 0.0).astype(np.float32).astype(np.float64)
        sums, squares = np.zeros((n_classes, self.X.shape[1])), np.zeros(self.X.shape[1])
        for rows, Z, w in self._blocks(shift, precise=False):
            present, member = np.unique(self.codes[rows], return_inverse=True)
            member = xp.asarray(member, device=device)
            place = xp.arange(len(present), dtype=member.dtype, device=device)
            indicator = xp.astype(member[None, :] == place[:, None], self.X.dtype)
            sums[present] += self._host(indicator @ (Z * w))
            squares += self._host(xp.sum(Z * Z * w, axis=0))
        return shift, sums, squares

    def gram_columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        xp, device = self._xp()
        index = xp.asarray(columns, device=device)
        out = np.zeros((self.X.shape[1], len(columns)))
        for _, Z, w in self._blocks(mean, precise):
            out += self._host(Z.T @ (xp.take(Z, index, axis=1) * w))
        return out

    def scatter(
        self, mean: np.ndarray, total: float, *, precise: bool, near: bool = False
    ) -> np.ndarray:
        out = np.zeros((self.X.shape[1],) * 2)
        for _, Z, w in self._blocks(mean, precise):
            out += self._host(Z.T @ (Z * w))
        return out

    def copy(self) -> Rows:
        """Return a copy of the rows in numpy."""
        X = np.array(api._convert_to_numpy(self.X, self._xp()[0]))
        return Rows(X, self.codes, self.weights)

    def keep_classes(self, full: np.ndarray) -> ArrayRows:
        xp, device = self._xp()
        chosen = np.flatnonzero(full[self.codes])
        weights = None if self.weights is None else self.weights[chosen]
        X = xp.take(self.X, xp.asarray(chosen, device=device), axis=0)
        return ArrayRows(X, (np.cumsum(full) - 1)[self.codes[chosen]], weights)

    def _host(self, values: Any) -> np.ndarray:
        return api._convert_to_numpy(values, self._xp()[0]).astype(np.float64)


DeviceRows = ArrayRows
