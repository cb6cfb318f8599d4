"""Samples in another array library (torch, CuPy, ...), summed up on their device.

All computations of size n use the library and the device of X. Results of size C × d, d × b or
d × d are copied to numpy in float64, block by block. This needs scikit-learn's
``array_api_dispatch``; without it, such arrays are converted to numpy.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import scipy.sparse as sp
from sklearn import get_config

from semfs.arrays import batches
from semfs.rows.held import HeldRows
from semfs.rows.memory import MemoryRows
from semfs.rows.sums import PASS_ROWS, TYPICAL_ROWS
from semfs.system import import_optional

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Mask
    from semfs.rows.centering import Centering

#: An array of any library, and the namespace of its functions: they share no base class.
Array: TypeAlias = Any
Namespace: TypeAlias = Any


# ---- dispatch and conversion ----------------------------------------------------------


def namespace_of(X: Array) -> Namespace | None:
    """Return the functions of the library of X, or None if numpy is to be used.

    The library is used if X is an array of another library and ``array_api_dispatch`` is on.
    """
    plain = isinstance(X, np.ndarray) or sp.issparse(X) or not hasattr(X, "shape")
    if plain or not get_config()["array_api_dispatch"]:
        return None
    compat = import_optional("array_api_compat", "array-api", what="array_api_dispatch")
    is_array = compat.is_array_api_obj(X)  # a data frame has a shape too
    return _functions_of(X) if is_array and not compat.is_numpy_array(X) else None


def _functions_of(X: Array) -> Namespace:
    """Return the functions of the library that X belongs to."""
    return import_optional("array_api_compat").array_namespace(X)


def device_of(X: Array) -> Any:
    """Return the device of X, as an object of its library."""
    return import_optional("array_api_compat").device(X)


def convert_to_numpy(array: Array) -> np.ndarray:
    """Return an array of another library as a numpy array, copied from its device."""
    compat = import_optional("array_api_compat")
    if compat.is_cupy_array(array):
        return array.get()
    if compat.is_torch_array(array):
        return array.detach().cpu().numpy()
    return np.from_dlpack(array) if hasattr(array, "__dlpack__") else np.asarray(array)


def to_numpy(values: Any) -> Any:
    """Convert an array of another library to numpy. Return anything else unchanged."""
    return values if namespace_of(values) is None else convert_to_numpy(values)


def is_foreign(X: Any) -> bool:
    """Return whether validated data belong to an array library other than numpy and scipy."""
    return not isinstance(X, np.ndarray) and not sp.issparse(X)


def like(array: np.ndarray, X: Array) -> Array:
    """Convert a numpy array to the library and device of X. Text is returned unchanged."""
    xp = namespace_of(X)
    if xp is None or array.dtype.kind not in "biuf":
        return array
    device = device_of(X)
    # some devices, such as Apple's, have no float64
    if array.dtype.kind == "f" and "float64" not in _float_dtypes(xp, device):
        array = array.astype(np.float32)
    return xp.asarray(array, device=device)


def floating_dtypes(X: Array) -> list[Any] | None:
    """Return the 32-bit and 64-bit types that the device of X supports; None for numpy."""
    xp = namespace_of(X)
    if xp is None:
        return None
    return list(_float_dtypes(xp, device_of(X)).values())


def _float_dtypes(xp: Namespace, device: Any) -> dict[str, Any]:
    """Return float64 (if the device has it) and float32 by name, the most precise first."""
    offered = xp.__array_namespace_info__().dtypes(device=device, kind="real floating")
    return {name: offered[name] for name in ("float64", "float32") if name in offered}


def check_same_namespace(X: Array, estimator: Any, *, attribute: str, method: str) -> None:
    """Raise unless X and a fitted attribute belong to one array library and device."""
    fitted = getattr(estimator, attribute)
    found = _home(X)
    expected = _home(fitted)
    if found != expected:
        # the words that scikit-learn's checks of estimators expect
        raise ValueError(
            f"Inputs passed to {type(estimator).__name__}.{method}() must "
            "use the same namespace and the same device as those passed "
            f"to fit(). The estimator was fitted to arrays of {expected}, "
            f"but X is an array of {found}. Convert X, or fit again."
        )


def _home(X: Array) -> str:
    """Return the library and device of an array in words."""
    xp = namespace_of(X)
    if xp is None:
        return "numpy"
    library = xp.__name__.removeprefix("array_api_compat.")
    return f"{library} on {device_of(X)}"


def take_columns(X: Array, columns: Indices) -> Array:
    """Return some columns of X (n, d) on its device."""
    xp = _functions_of(X)
    # not X[:, index]: not every library indexes by arrays of integers
    index = xp.asarray(columns, device=device_of(X))
    return xp.take(X, index, axis=1)


def spread_columns(X: Array, support: Mask) -> Array:
    """Return X (n, k) with columns of zeros inserted where ``support`` (d,) is false."""
    xp = _functions_of(X)
    device = device_of(X)
    # the array library may not check shapes as numpy does
    n, k = X.shape
    n_selected = int(support.sum())
    if k != n_selected:
        raise ValueError(
            f"inverse_transform expected {n_selected} columns (the selected features), got {k}."
        )
    zeros = xp.zeros((n, 1), dtype=X.dtype, device=device)
    # features that were not selected are copies of the zeros, the last column
    source = np.where(support, np.cumsum(support) - 1, k)
    return xp.take(xp.concat([X, zeros], axis=1), xp.asarray(source, device=device), axis=1)


# ---- rows -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class DeviceRows(HeldRows):
    """Samples of another array library, summed up on their device."""

    in_memory = False  # not as a numpy array

    @property
    def nbytes(self) -> int:
        bits = _functions_of(self.X).finfo(self.X.dtype).bits
        return self.n_rows * self.n_features * bits // 8

    @property
    def eps(self) -> float:
        return float(_functions_of(self.X).finfo(self.X.dtype).eps)

    def class_totals(self, n_classes: int) -> tuple[Float64, Float64, Float64]:
        """Return a shift (d,), and about it class sums (C, d) and column squares (d,)."""
        xp = _functions_of(self.X)
        device = device_of(self.X)
        n_first = min(TYPICAL_ROWS, self.n_rows)
        shift = _host(self.X[:n_first, :]).mean(axis=0)
        # rounded to float32, so that every device subtracts the same shift
        shift = np.where(np.isfinite(shift), shift, 0.0).astype(np.float32).astype(np.float64)
        sums = np.zeros((n_classes, self.n_features))
        squares = np.zeros(self.n_features)
        for rows, Z, w in self._blocks(shift, precise=False):
            present, member = np.unique(self.codes[rows], return_inverse=True)
            member = xp.asarray(member, device=device)
            numbers = xp.arange(len(present), dtype=member.dtype, device=device)
            # indicator @ Z are the class sums
            indicator = xp.astype(member[None, :] == numbers[:, None], self.X.dtype)
            sums[present] += _host(indicator @ (Z * w))
            squares += _host(xp.sum(Z * Z * w, axis=0))
        return shift, sums, squares

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        xp = _functions_of(self.X)
        index = xp.asarray(columns, device=device_of(self.X))
        # both factors are centered, so that float32 keeps its digits
        out = np.zeros((self.n_features, len(columns)))
        for _, Z, w in self._blocks(centering.mean, centering.precise):
            out += _host(Z.T @ (xp.take(Z, index, axis=1) * w))
        return out

    def scatter(self, centering: Centering) -> Float64:
        """Return the scatter matrix (d, d) about the mean."""
        out = np.zeros((self.n_features, self.n_features))
        for _, Z, w in self._blocks(centering.mean, centering.precise):
            out += _host(Z.T @ (Z * w))
        return out

    def keep_classes(self, mask: Mask) -> DeviceRows:
        """Return the samples of the classes in a mask (C,), with codes that count those."""
        xp = _functions_of(self.X)
        # codes are in numpy; only the samples are on the device
        kept, codes, weights = self.rows_of_classes(mask)
        X = xp.take(self.X, xp.asarray(kept, device=device_of(self.X)), axis=0)
        return DeviceRows(X, codes, weights)

    def copy(self) -> MemoryRows:
        """Return a copy of the samples in numpy."""
        X = np.array(convert_to_numpy(self.X))
        return MemoryRows(X, self.codes, self.weights)

    def sample_columns(self, features: Indices) -> None:
        """Return None: samples stay on their device."""

    def _blocks(
        self, shift: Floats, precise: bool
    ) -> Iterator[tuple[slice, Array, Array | float]]:
        """Yield slices of rows, the rows minus a shift (d,), and weights (r, 1) or 1."""
        xp = _functions_of(self.X)
        device = device_of(self.X)
        dtype = self.X.dtype
        if precise:
            dtype = next(iter(_float_dtypes(xp, device).values()))
        center = xp.asarray(shift, dtype=dtype, device=device)
        w: Array | float = 1.0
        for rows in batches(self.n_rows, PASS_ROWS):
            Z = xp.astype(self.X[rows, :], dtype, copy=False) - center
            if self.weights is not None:
                column = self.weights[rows, None]
                w = xp.asarray(column, dtype=dtype, device=device)
            yield rows, Z, w


def _host(values: Array) -> Float64:
    """Return values of a device as numpy in float64."""
    return convert_to_numpy(values).astype(np.float64)
