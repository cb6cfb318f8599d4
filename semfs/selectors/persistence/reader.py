"""Converts JSON and arrays of this format, or of an earlier one, to a selector."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from semfs.attributes import AttributeTable
from semfs.io.safety import FileError, check_declared_size
from semfs.labels import object_array
from semfs.selectors.persistence.format import (
    PER_FEATURE,
    SETTINGS,
    SHOWN_CHARACTERS,
    TYPES,
    selector_type,
)
from semfs.selectors.persistence.values import KINDS_OF_VALUES
from semfs.selectors.seen_objective import squared_label_weight
from semfs.validation import warn_user

#: Parameters of SemFS and SemFSCV whose defaults changed after format 1, and what they were.
DEFAULTS_OF_FORMAT_1: dict[str, Any] = {
    "gamma": 10.0,
    "penalty_scale": "gram",
    "label_weight": 0.0,
    "max_correlation": None,
}


class Reader:
    """Converts JSON to values. A file can use only the entries of ``makers``."""

    def __init__(
        self,
        path: Path,
        arrays: dict[str, npt.NDArray[Any]],
        format_version: int,
    ) -> None:
        """Set the members of the archive, by name, and the version of its header."""
        self.path = path
        self.arrays = arrays
        self.format_version = format_version
        self.makers: dict[str, Callable[..., Any]] = {
            kind.tag: kind.make for kind in KINDS_OF_VALUES
        }
        self.makers["array"] = self.array
        self.makers["objects"] = self.objects
        self.makers["some_rows"] = self.some_rows
        self.makers["selector"] = self.selector

    def value(self, found: dict[str, Any]) -> Any:
        """Return the value of a header object whose parts have been converted already."""
        if "is" not in found:
            return found
        tag = found.pop("is")
        if tag not in self.makers:
            raise FileError(f"{self.path} holds a {tag!r:.80}, which semfs does not know.")
        return self.makers[tag](**found)

    def array(self, name: str) -> npt.NDArray[Any]:
        return self.arrays[name]

    def objects(self, items: list[Any], shape: list[int]) -> npt.NDArray[Any]:
        return object_array(items).reshape(shape)

    def some_rows(self, name: str, rows: str, shape: list[int]) -> npt.NDArray[Any]:
        """Return an array that is zero except for some rows."""
        n, m = shape
        size = 8 * n * m
        # every feature has a name, score and rank in the file: no more rows than bytes
        plausible = n <= self.path.stat().st_size
        check_declared_size(self.path, "an array", size, size if plausible else 0)
        whole = np.zeros((n, m), dtype=self.arrays[name].dtype)
        whole[self.arrays[rows]] = self.arrays[name]
        return whole

    def selector(self, type: str, params: dict[str, Any], state: dict[str, Any]) -> Any:
        """Return a selector of an allowed type, with known parameters and fitted attributes."""
        estimator = selector_type(type)
        if estimator is None:
            known = ", ".join(TYPES)
            raise FileError(
                f"{self.path} holds a {type!r:.80}; this version of semfs loads only {known}."
            )
        known_params = set(inspect.signature(estimator).parameters)
        unknown = set(params) - known_params
        if unknown:
            name = min(unknown)[:SHOWN_CHARACTERS]
            raise FileError(f"{self.path}: {type} has no parameter {name!r}. Upgrade semfs.")
        # only SemFS and SemFSCV have this parameter
        if self.format_version == 1 and "label_weight" in known_params:
            params = _params_of_format_1(params, state)
        selector = estimator(**params)
        for key, value in state.items():
            if not _is_fitted_attribute(estimator, key) and key not in SETTINGS:
                shown = key[:SHOWN_CHARACTERS]
                raise FileError(
                    f"{self.path}: {shown!r} is not a fitted attribute. The file is damaged."
                )
            setattr(selector, key, value)
        d = state.get("n_features_in_")
        for name in PER_FEATURE:
            if name in state and np.shape(state[name]) != (d,):
                raise FileError(
                    f"{self.path}: {name} must have {d} entries. The file is damaged."
                )
        return selector


def _is_fitted_attribute(estimator: type[BaseEstimator], key: str) -> bool:
    """Whether a file may set an attribute: it must not replace methods and properties."""
    if not re.fullmatch(r"[A-Za-z]\w*_", key):
        return False
    # a cached property is a fitted attribute that is computed when it is first read
    of_class = getattr(estimator, key, None)
    return of_class is None or isinstance(of_class, cached_property)


def _params_of_format_1(
    params: dict[str, Any],
    state: dict[str, Any],
) -> dict[str, Any]:
    """Return current parameters that give the same selection as those of format 1.

    There, the label weight was the square of the factor of the indicators. Now it is relative
    to the attributes, which are known if the selector was fitted.
    """
    params = {**DEFAULTS_OF_FORMAT_1, **params}
    weight = params["label_weight"]
    table = state.get("class_table_")
    # labels that weigh nothing, or are alone, have no scale to convert
    if not weight or params.get("attributes") is None:
        return params
    if not isinstance(table, AttributeTable):
        warn_user(
            f"label_weight={weight!r} has changed its meaning since this "
            "file was written: 1 now means that labels and attributes "
            "have the same weight. Set label_weight again."
        )
        return params
    unit = squared_label_weight(1.0, table.values)
    return {**params, "label_weight": float(weight) / unit}
