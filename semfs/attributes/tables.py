"""Class-attribute tables: labels in, one row of numbers per class out."""

from __future__ import annotations

import difflib
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.preprocessing import MinMaxScaler, Normalizer, StandardScaler

from semfs.files import need
from semfs.validation import check_distinct, check_option, label_array

__all__ = ["AttributeTable", "align_attributes", "as_attribute_table", "normalize_attributes"]


@dataclass(frozen=True)
class AttributeTable:
    """One row of attributes per class, with names.

    ``values`` has shape (C, m); ``classes`` has C labels, ``names`` m attribute names.
    """

    values: np.ndarray
    classes: np.ndarray
    names: np.ndarray

    def rows_of(self, classes: Any) -> AttributeTable:
        """Return the rows of the given classes, in that order."""
        wanted = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
        position = {label: i for i, label in enumerate(self.classes.tolist())}
        missing = [label for label in wanted if label not in position]
        if missing:
            raise ValueError(_missing_message(missing, list(position)))
        rows = [position[label] for label in wanted]
        return AttributeTable(self.values[rows], label_array(wanted), self.names)


def align_attributes(attributes: Any, classes: np.ndarray) -> AttributeTable:
    """Return the attribute rows of ``classes``, in that order.

    Parameters
    ----------
    attributes : None, DataFrame, mapping or array of shape (L, m)
        None gives one indicator attribute per class (class labels as targets). A pandas
        frame is indexed by class label; a polars frame carries the labels in its first
        column. A mapping takes a label to a vector. Row r of an array belongs to the
        integer label r.
    classes : ndarray of shape (C,)
        Labels whose rows are wanted. Rows for other classes are ignored.

    Examples
    --------
    >>> table = {"cat": [1.0, 0.0], "ant": [0.0, 1.0], "cow": [1.0, 1.0]}
    >>> align_attributes(table, np.array(["ant", "cat"])).values
    array([[0., 1.],
           [1., 0.]])
    """
    if attributes is None:
        names = np.array([str(c) for c in classes.tolist()], dtype=object)
        return AttributeTable(np.eye(len(classes)), classes, names)
    return as_attribute_table(attributes).rows_of(classes)


def as_attribute_table(attributes: Any) -> AttributeTable:
    """Read any accepted form of class description (see `align_attributes`)."""
    if isinstance(attributes, AttributeTable):
        return attributes
    if isinstance(attributes, Mapping):
        labels, values, names = _from_mapping(attributes)
    elif hasattr(attributes, "index") and hasattr(attributes, "columns"):
        labels, names = list(attributes.index), list(attributes.columns)
        values = attributes.to_numpy()
    elif hasattr(attributes, "get_columns"):  # polars
        labels, names = attributes.to_series(0).to_list(), attributes.columns[1:]
        values = attributes[:, 1:].to_numpy()
    else:
        labels, values, names = _from_array(attributes)
    labels = [item.item() if isinstance(item, np.generic) else item for item in labels]
    if not all(isinstance(label, Hashable) for label in labels):
        raise ValueError("attributes has a class label that is not hashable. Use text.")
    check_distinct(
        labels,
        "attributes has more than one row for class {}. Keep one row per class, for example "
        "table.groupby(level=0).mean().",
    )
    return AttributeTable(
        _as_numbers(values),
        label_array(labels),
        np.array([str(name) for name in names], dtype=object),
    )


def normalize_attributes(table: Any, method: str = "unit") -> Any:
    """Return a class-attribute table on another scale, as a frame.

    Parameters
    ----------
    table : DataFrame, mapping or array of shape (C, m)
        As for `SemFS(attributes=...)`.
    method : {"unit", "standard", "range", "center"}, default="unit"
        "unit": every class has length 1 (as in xlsa17's ``att``). "standard": every
        attribute has mean 0 and variance 1 over the classes. "range": every attribute
        goes from 0 to 1. "center": every attribute has mean 0. Constant attributes (or
        all-zero classes) become 0.

    Examples
    --------
    >>> normalize_attributes({"cat": [3.0, 4.0], "ant": [0.0, 2.0]})
          a0   a1
    cat  0.6  0.8
    ant  0.0  1.0
    """
    scalers = {
        "unit": Normalizer(),
        "standard": StandardScaler(),
        "range": MinMaxScaler(),
        "center": StandardScaler(with_std=False),
    }
    check_option("method", method, tuple(scalers))
    table = as_attribute_table(table)
    values = scalers[method].fit_transform(table.values)
    return need("pandas", "data").DataFrame(values, index=table.classes, columns=table.names)


def _from_mapping(attributes: Mapping) -> tuple[list, list, list]:
    if not attributes:
        raise ValueError("attributes is empty. Give one row of numbers per class.")
    rows = {label: np.atleast_1d(np.asarray(row)) for label, row in attributes.items()}
    lengths = {label: row.size for label, row in rows.items() if row.ndim == 1}
    if len(lengths) < len(rows) or len(set(lengths.values())) > 1:
        found = ", ".join(f"{k!r}: {np.shape(v)}" for k, v in list(rows.items())[:5])
        raise ValueError(
            f"attributes is ragged: every class needs a vector of the same length ({found})."
        )
    names = [f"a{j}" for j in range(next(iter(lengths.values())))]
    return list(rows), list(rows.values()), names


def _from_array(attributes: Any) -> tuple[list, Any, list]:
    try:
        values = np.asarray(attributes)
    except ValueError as error:
        raise ValueError(
            "attributes is ragged: every class needs a row of the same length."
        ) from error
    if values.ndim != 2:
        raise ValueError(
            "attributes must be a table with one row per class, "
            f"got an array of shape {values.shape}."
        )
    return list(range(values.shape[0])), values, [f"a{j}" for j in range(values.shape[1])]


def _as_numbers(values: Any) -> np.ndarray:
    try:
        numbers = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attributes must be numeric: {error}. Encode text attributes as numbers "
            "first, or drop those columns."
        ) from error
    if numbers.ndim != 2 or 0 in numbers.shape:
        raise ValueError(
            f"attributes must have at least one row and one column, got shape {numbers.shape}."
        )
    if not np.isfinite(numbers).all():
        row, column = np.argwhere(~np.isfinite(numbers))[0]
        raise ValueError(
            f"attributes contains NaN or infinity (row {row}, column {column}). "
            "Fill or drop those entries."
        )
    return numbers


def _missing_message(missing: list, known: list) -> str:
    text = f"attributes has no row for class {missing[0]!r}"
    if len(missing) > 1:
        text += f" (and {len(missing) - 1} more)"
    near = _nearest_label(missing[0], known)
    hint = "." if near is None else f"; did you mean {near!r}?"
    if near is not None and str(near) == str(missing[0]):
        hint += f" (y holds {type(missing[0]).__name__}, the table {type(near).__name__})"
    if known == list(range(len(known))):
        hint += f" (row r of an array belongs to the integer label r; {len(known)} rows found)"
    shown = ", ".join(repr(k) for k in known[:8]) + (", …" if len(known) > 8 else "")
    return f"{text}{hint} Add it, or drop that class from y; known classes: {shown}"


def _nearest_label(label: Any, known: list) -> Any:
    """The known label that reads most like this one, or None: polar bear, polar+bear."""

    def letters(name: Any) -> str:
        return re.sub(r"[\W_]+", " ", str(name)).strip().casefold()

    plain = {letters(k): k for k in reversed(known)}
    near = difflib.get_close_matches(letters(label), plain, n=1, cutoff=0.75)
    return plain[near[0]] if near else None
