"""What a file of `save` may contain: versions, types of selectors, and their attributes."""

from __future__ import annotations

import importlib
from typing import Any

from sklearn.base import BaseEstimator

import semfs

#: File format version. Increase it when older releases can no longer read new files.
FORMAT = 2
#: What the header of every file names as its format.
FORMAT_NAME = "semfs selector"
#: The types that may be saved and loaded. Nothing else is constructed.
TYPES = (
    "SemFS",
    "SemFSCV",
    "RandomSelector",
    "VarianceSelector",
    "Markers",
    "MCFS",
    "FSASL",
    "LassoSelector",
    "L20ALM",
    "WkNN",
)
#: What is kept of an estimator besides parameters and fitted attributes. Callbacks are
#: functions, and metadata requests belong to the pipeline around the selector.
SETTINGS = ("_sklearn_output_config",)
#: Fitted attributes of one entry per feature, which a damaged file may have of another length.
PER_FEATURE = (
    "scores_",
    "order_",
    "ranking_",
    "support_",
    "feature_names_in_",
)
#: Characters of a value of the file that a message shows.
SHOWN_CHARACTERS = 80
#: A value of the header.
Json = None | bool | int | float | str | list[Any] | dict[str, Any]


def selector_type(name: object) -> type[BaseEstimator] | None:
    """Return the selector type of this name from a file, or None if there is none."""
    if not isinstance(name, str) or name not in TYPES:
        return None
    module = "semfs" if name in semfs.__all__ else "semfs.baselines"
    found: type[BaseEstimator] = getattr(importlib.import_module(module), name)
    return found
