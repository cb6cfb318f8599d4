"""Converts a selector to JSON and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from semfs.rows.device import to_numpy
from semfs.selectors.persistence.format import SETTINGS, TYPES, Json, selector_type
from semfs.selectors.persistence.values import KINDS_OF_VALUES


class Writer:
    """Converts values to JSON, and arrays to members of the archive."""

    def __init__(self) -> None:
        self.arrays: dict[str, npt.NDArray[Any]] = {}

    def selector(self, selector: BaseEstimator) -> dict[str, Any]:
        """Return the JSON of a selector: its type, parameters and fitted attributes."""
        name = type(selector).__name__
        if selector_type(name) is not type(selector):
            raise TypeError(
                "save writes only selectors of semfs "
                f"({', '.join(sorted(TYPES))}), got {name}. For a "
                "pipeline, save the selector step."
            )
        params = selector.get_params(deep=False)
        state = {
            key: value
            for key, value in selector.__getstate__().items()
            if (key.endswith("_") or key in SETTINGS) and key not in params
        }
        return {
            "is": "selector",
            "type": name,
            "params": {key: self.value(value, key) for key, value in params.items()},
            "state": {key: self.value(value, key) for key, value in state.items()},
        }

    def value(self, value: Any, where: str) -> Json:
        """Return the JSON of one value. ``where`` names the parameter or attribute."""
        if isinstance(value, np.generic):
            value = value.item()
        # exact types: an object of a subclass would come back as something else
        if value is None or type(value) in (bool, int, float, str):
            return value
        if type(value) in (list, range):
            return [self.value(item, where) for item in value]
        # groups and costs may be a Series, which they read as a mapping from its index
        if hasattr(value, "to_dict") and not hasattr(value, "columns"):
            value = value.to_dict()
        for kind in KINDS_OF_VALUES:
            if kind.matches(value):
                parts = kind.parts(value)
                written = {name: self.value(part, where) for name, part in parts.items()}
                return {"is": kind.tag, **written}
        if hasattr(value, "__dlpack__"):  # an array, perhaps on another device
            return self.array(np.asarray(to_numpy(value)), where)
        # best_estimator_ of SemFSCV is a selector itself
        if type(value).__name__ in TYPES:
            return self.selector(value)
        raise TypeError(
            f"{where} holds a {type(value).__module__}.{type(value).__name__}, "
            "which save does not write. Use numbers, text, arrays, frames or dicts of them."
        )

    def array(self, array: npt.NDArray[Any], where: str) -> dict[str, Any]:
        """Return the JSON of an array, which names the member that holds its values."""
        shape = list(array.shape)
        if array.dtype.kind == "O":
            items = self.value(array.ravel().tolist(), where)
            return {"is": "objects", "items": items, "shape": shape}
        if array.dtype.kind not in "biufcUMm":
            raise TypeError(f"{where} is an array of {array.dtype}, which save does not write.")
        if array.ndim == 2 and array.dtype.kind == "f":
            # W (d, m) has k rows that are not zero
            nonzero = np.flatnonzero(array.any(axis=1))
            if 2 * len(nonzero) < len(array):
                rows = self.member(nonzero)
                name = self.member(array[nonzero])
                return {
                    "is": "some_rows",
                    "rows": rows,
                    "name": name,
                    "shape": shape,
                }
        return {"is": "array", "name": self.member(array)}

    def member(self, array: npt.NDArray[Any]) -> str:
        """Add an array to the archive, and return its name there."""
        name = f"a{len(self.arrays)}"
        # reshape, because ascontiguousarray makes arrays of no dimension 1-d
        self.arrays[name] = np.ascontiguousarray(array).reshape(array.shape)
        return name
