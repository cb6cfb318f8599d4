"""Checks at the public edge: labels, matrices and weights, each refused in one clear line."""

import difflib
import numbers
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from sklearn.utils import check_array


def check_distinct(items: Iterable, message: str, error: type[ValueError] = ValueError) -> None:
    """Raise if an item occurs twice; ``{}`` in the message stands for it."""
    if repeated := [item for item, times in Counter(items).items() if times > 1]:
        raise error(message.replace("{}", repr(repeated[0]), 1))


def check_weights(sample_weight: Any, n_samples: int) -> np.ndarray | None:
    """Return non-negative row weights (n,) in float64, or None."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):
        sample_weight = np.full(n_samples, sample_weight)
    how: Any = {"dtype": np.float64, "input_name": "sample_weight"}
    weights = check_array(sample_weight, ensure_2d=False, **how)
    if weights.shape != (n_samples,):
        raise ValueError(
            f"sample_weight has shape {weights.shape}, expected ({n_samples},): "
            "one weight per row of X. (Sample weights must be 1D array or scalar.)"
        )
    if (weights < 0).any():
        raise ValueError("sample_weight must not be negative. Use 0 to ignore a row.")
    if not weights.any():
        raise ValueError("sample_weight is zero for every row: nothing is left to fit.")
    if not 1e-100 < weights.max() < 1e100:
        raise ValueError(f"sample_weight goes up to {weights.max():.0e}. Use weights near 1.")
    return weights


def class_weights(
    class_weight: Any, classes: np.ndarray, counts: np.ndarray
) -> np.ndarray | None:
    """Return the weight (C,) of each class, or None if all are 1.

    "balanced" makes all classes equal, given the total weight (C,) of the rows of each.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        return counts.sum() / ((counts > 0).sum() * np.maximum(counts, 1e-300))
    if not isinstance(class_weight, Mapping):
        raise (ValueError if isinstance(class_weight, str) else TypeError)(
            'class_weight must be None, "balanced" or a mapping class -> weight, got '
            f"{class_weight!r}."
        )
    weights = np.array([float(class_weight.get(c, 1.0)) for c in classes.tolist()])
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ValueError("class_weight must hold non-negative finite numbers.")
    return weights


def feature_indices(parameter: str, features: Any, d: int, names: Any = None) -> np.ndarray:
    """Return the indices of features given by index or name, each once."""
    if features is None:
        return np.zeros(0, dtype=np.intp)
    if isinstance(features, str):
        raise TypeError(f"{parameter} must be a list of features, got {features!r}.")
    known = [] if names is None else [str(name) for name in names]
    found = [_feature_index(parameter, feature, d, known) for feature in features]
    return np.array(list(dict.fromkeys(found)), dtype=np.intp)


def _feature_index(parameter: str, feature: Any, d: int, names: list[str]) -> int:
    if isinstance(feature, str) and not names and re.fullmatch(r"x\d+", feature):
        feature = int(feature[1:])  # as get_feature_names_out calls them
    if isinstance(feature, str):
        if feature not in names:
            hint = did_you_mean(feature, names) or ". Check the spelling."
            raise ValueError(f"{parameter}: no feature named {feature!r} in X{hint}")
        return names.index(feature)
    if not isinstance(feature, (int, np.integer)) or isinstance(feature, bool):
        raise TypeError(f"{parameter} must hold indices or names, got {feature!r}.")
    if not -d <= int(feature) < d:
        raise ValueError(f"{parameter}: index {feature} is out of range for {d} features.")
    return int(feature) % d


def did_you_mean(word: Any, known: Iterable) -> str:
    """Return the end of a sentence that names the likeliest of the known words, if any."""
    near = difflib.get_close_matches(str(word), [str(item) for item in known], n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_all_finite(X: Any, names: Any = None, what: str = "X") -> None:
    """Raise scikit-learn's error for NaN or infinity in X, with the place, or an overflow."""
    how: Any = {"accept_sparse": True, "dtype": [np.float64, np.float32], "input_name": what}
    try:
        check_array(X, **how)
    except ValueError as error:
        found = coo_array(check_array(X, ensure_all_finite=False, **how))
        place = int(np.argmin(np.isfinite(found.data)))
        row, column = (int(index[place]) for index in found.coords)
        names, labels = getattr(X, "columns", names), getattr(X, "index", None)
        where = column if names is None else f"{column} ({names[column]!r})"
        used = " of those used together" if labels is None else ""
        label = "" if labels is None or labels[row] == row else f" ({str(labels[row])!r})"
        raise ValueError(
            f"{str(error).splitlines()[0]} The first is in row {row}{label}{used}, "
            f"column {where}, counted from 0. Fill it, or drop that row or column."
        ) from error
    raise ValueError(
        f"X has values so large that their squares overflow {X.dtype}. "
        "Rescale the features, or convert X to float64."
    )


def check_option(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    """Raise unless value is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        options = " or ".join(repr(option) for option in allowed)
        raise ValueError(f"{name} must be {options}, got {value!r}.")


def check_number(
    name: str, value: Any, *, at_least: float | None = None, above: float | None = None
) -> None:
    """Raise unless value is a finite number in range."""
    wanted = f"a number of at least {at_least:g}" if above is None else f"above {above:g}"
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be {wanted}, got {value!r}.")
    inside = value >= at_least if above is None else value > above  # type: ignore[operator]
    if not (inside and abs(value) <= sys.float_info.max):  # type: ignore[operator]
        raise ValueError(f"{name} must be {wanted}, got {value!r}.")


def check_integer(name: str, value: Any, low: int) -> None:
    """Raise unless value is a whole number of at least ``low``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be a whole number of at least {low}, got {value!r}.")
    if value < low:
        raise ValueError(f"{name} must be at least {low}, got {value}.")
