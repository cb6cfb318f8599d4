"""Converts groups, costs and capacity, which have one value per feature or class."""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from semfs._typing import Float64, Indices, Label
from semfs.feature_names import OPEN_LISTS, feature_name, resolve_each, without_unknown
from semfs.validation import (
    ParameterError,
    ParameterTypeError,
    ParameterWarning,
    check_number,
    did_you_mean,
    listed,
)


def group_units(
    groups: Any,
    d: int,
    names: Sequence[str] | None,
) -> tuple[Indices, list[Any]]:
    """Return the unit (d,) of each feature, counted from 0, and the labels of the units.

    ``groups`` are d labels, or a mapping or pandas Series from feature names to labels. A
    feature without a label (None, NaN, empty text, or not in the mapping) is a unit of its own.

    Examples
    --------
    >>> group_units(["a", "b", "a", None], 4, None)
    (array([0, 1, 0, 2]), ['a', 'b', 'x3'])
    """
    labels = _values_of_features("groups", groups, d, names, missing=None)
    units: dict[Hashable, int] = {}
    unit_of = np.empty(d, dtype=np.intp)
    shown = []
    for j, label in enumerate(labels):
        alone = _is_missing(label)
        # Tagged, because a label may be a number that is also the index of a feature.
        key: Hashable = ("feature", j) if alone else ("group", label)
        if key not in units:
            units[key] = len(units)
            shown.append(feature_name(j, names) if alone else label)
        unit_of[j] = units[key]
    return unit_of, shown


def _is_missing(label: Any) -> bool:
    """Return whether a label says that a feature is in no group: None, NaN or empty text."""
    # NaN is the only label that differs from itself.
    return bool(label is None or label != label or label == "")


def group_labels(groups: Any, d: int, names: Sequence[str] | None) -> list[str]:
    """Return the label of the group of each feature; "" for features without one.

    >>> group_labels({"x0": "a", "x2": "a"}, 3, None)
    ['a', '', 'a']
    """
    labels = _values_of_features("groups", groups, d, names, missing=None)
    return ["" if _is_missing(label) else str(label) for label in labels]


def group_members(groups: Any, d: int, names: Sequence[str] | None) -> dict[str, list[int]]:
    """Return the features of each group, by label. Without groups, return {}.

    >>> group_members(["a", "b", "a", None], 4, None)
    {'a': [0, 2], 'b': [1], 'x3': [3]}
    """
    if groups is None:
        return {}
    unit_of, labels = group_units(groups, d, names)
    found: dict[str, list[int]] = {str(label): [] for label in labels}
    for feature, unit in enumerate(unit_of.tolist()):
        found[str(labels[unit])].append(feature)
    return found


def feature_costs(
    costs: Any,
    d: int,
    names: Sequence[str] | None,
) -> Float64:
    """Return the cost (d,) of each feature, from d numbers or a mapping from names.

    Features without a price are NaN: those that cannot be selected need none.
    """
    values = _values_of_features("costs", costs, d, names, missing=np.nan)
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        first = next(j for j, value in enumerate(values) if not _is_number(value))
        name = feature_name(first, names)
        message = (
            f"must be numbers, got {values[first]!r} for {name!r}. If they are from a file "
            'with decimal commas, read it with decimal=",".'
        )
        raise ParameterTypeError("costs", message) from error
    wrong = np.flatnonzero(np.isinf(found) | (found < 0.0))
    if wrong.size:
        first = int(wrong[0])
        message = f"must be 0 or more, got {found[first]:g} for {feature_name(first, names)!r}."
        raise ParameterError("costs", message)
    return found


def _is_number(value: Any) -> bool:
    """Return whether a value is a number, or text that is one."""
    try:
        float(value)
    except (TypeError, ValueError):
        return False
    return True


def group_costs(costs: Any, labels: Sequence[Any], d: int) -> Float64 | None:
    """Return the cost (U,) of each group, from a mapping or Series that names groups.

    If a price list names groups, each group has one price, instead of one price per feature. If
    ``costs`` name the d features, return None. ``labels`` (U,) are the group labels.

    Examples
    --------
    >>> group_costs({"a": 2, "b": 3}, ["b", "a"], 5)
    array([3., 2.])

    Groups without a price are NaN.
    """
    # A Series of d values may be in the order of the features.
    if _is_series(costs) and len(costs) != d:
        costs = dict(zip(costs.index.tolist(), costs.tolist()))
    if not isinstance(costs, Mapping):
        return None
    names = [str(label) for label in labels]
    by_label = {str(label): value for label, value in costs.items()}
    if set(by_label).isdisjoint(names):
        return None
    return feature_costs(by_label, len(names), names)


def unit_costs(groups: Any, costs: Any, d: int, names: Sequence[str] | None) -> Float64:
    """Return costs as in the price list: of groups (U,), or of features (d,)."""
    if groups is not None:
        _, labels = group_units(groups, d, names)
        of_groups = group_costs(costs, labels, d)
        if of_groups is not None:
            return of_groups
    return feature_costs(costs, d, names)


def price_list(
    groups: Any,
    costs: Any,
    d: int,
    names: Sequence[str] | None,
    selected: Sequence[int],
) -> dict[str, list[Any]]:
    """Return the ``group`` and ``cost`` of selected features, if there are such rules.

    The price of a whole group is given for its first feature, and the others have None, so that
    costs add up to the total price.

    Examples
    --------
    >>> price_list(["a", "a", "b"], {"a": 5, "b": 2}, 3, None, [1, 0])
    {'group': ['a', 'a'], 'cost': [5.0, None]}
    """
    # The fit has warned already of names that are not among the features.
    with warnings.catch_warnings(action="ignore", category=ParameterWarning):
        return _price_list(groups, costs, d, names, selected)


def _price_list(
    groups: Any,
    costs: Any,
    d: int,
    names: Sequence[str] | None,
    selected: Sequence[int],
) -> dict[str, list[Any]]:
    """Return what `price_list` does, with warnings."""
    found: dict[str, list[Any]] = {}
    of_groups = None
    if groups is not None:
        unit_of, labels = group_units(groups, d, names)
        units = [int(unit_of[j]) for j in selected]
        found["group"] = [labels[unit] for unit in units]
        of_groups = group_costs(costs, labels, d)
    if costs is None:
        return found
    if of_groups is None:
        of_features = feature_costs(costs, d, names)
        found["cost"] = [float(of_features[j]) for j in selected]
        return found
    is_first = [unit not in units[:i] for i, unit in enumerate(units)]
    found["cost"] = [
        float(of_groups[unit]) if first else None for unit, first in zip(units, is_first)
    ]
    return found


def _is_series(values: Any) -> bool:
    """Return whether values are a pandas Series."""
    is_mapping = isinstance(values, Mapping)
    return not is_mapping and hasattr(values, "index") and hasattr(values, "iloc")


def _has_texts(index: Any) -> bool:
    """Return whether a pandas index holds names rather than row numbers."""
    return any(isinstance(label, str) for label in index.tolist())


def _values_of_features(
    parameter: str,
    values: Any,
    d: int,
    names: Sequence[str] | None,
    *,
    missing: Any,
) -> list[Any]:
    """Return one value per feature, from d values, or by name from a mapping or Series."""
    if isinstance(values, str):
        raise ParameterTypeError(parameter, f"must be one value per feature, got {values!r}.")
    if hasattr(values, "columns"):
        message = "must be one value per feature, such as a column of the frame; got a frame."
        raise ParameterTypeError(parameter, message)
    if _is_series(values):
        index = [str(name) for name in values.index]
        # A Series is read by name if its index names features, else in order: pandas
        # numbers the rows of a Series that was given no index.
        # without names, features are called as get_feature_names_out calls them
        known = {feature_name(j, names) for j in range(d)}
        if names is None and known.isdisjoint(index) and _has_texts(values.index):
            raise ParameterError(
                parameter,
                f"has names ({listed(index, 3)}), but X has none, as "
                "after a scaler in a pipeline. Keep the names of X by "
                'calling set_output(transform="pandas") on the '
                "pipeline, or give the values as a list in the order of "
                "X.",
            )
        if not known.isdisjoint(index):
            values = dict(zip(index, values.tolist()))
    if isinstance(values, Mapping):
        found = [missing] * d
        keys = list(values)
        # A price list may hold all that the vendor sells, as a list of candidates may.
        if parameter in OPEN_LISTS:
            keys = without_unknown(parameter, "the price list", keys, names)
        meant = resolve_each(parameter, keys, names, d)
        for indices, key in zip(meant, keys):
            value = values[key]
            for j in indices:
                found[j] = value
        return found
    array = np.asarray(values, dtype=object)
    if array.shape != (d,):
        message = f"must have one value for each of the {d} features, got shape {array.shape}."
        if parameter == "costs":
            message += (
                " To give costs for groups, set groups and pass a "
                "mapping or a Series with the names of the groups."
            )
        raise ParameterError(parameter, message)
    return list(array)


def class_capacity(capacity: Any, classes: list[Label]) -> Float64:
    """Return the capacity (C,) of each class, infinite if a mapping lacks the class."""
    if not isinstance(capacity, Mapping):
        check_number("capacity", capacity, at_least=0.0)
        return np.full(len(classes), float(capacity))
    unknown = [label for label in capacity if label not in classes]
    if unknown:
        hint = did_you_mean(unknown[0], classes) or f". Classes: {listed(classes)}."
        raise ParameterError("capacity", f": class {unknown[0]!r} is not known{hint}")
    for value in capacity.values():
        check_number("capacity", value, at_least=0.0)
    return np.array([float(capacity.get(label, np.inf)) for label in classes])
