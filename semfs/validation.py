"""Checks at the public edge: parameters, weights, feature names, finite numbers.

A wrong parameter raises `ParameterError` (or `ParameterTypeError`), which knows the name of the
parameter: the command line shows the name of its option instead.
"""

from __future__ import annotations

import difflib
import numbers
import re
import sys
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import coo_array
from sklearn.utils import check_array

from semfs._typing import Float64, Floats, Indices

if TYPE_CHECKING:
    from semfs._typing import ArrayLike, FeaturesLike, Matrix

#: A feature that begins so is a regular expression, searched for in the feature names.
PATTERN_PREFIX = "re:"
#: First lines that a file of feature names may have as its header, in lower case.
LIST_HEADERS = (
    "feature",
    "features",
    "gene",
    "genes",
    "name",
    "names",
    "symbol",
    "symbols",
)
#: Sample weights outside these limits are refused: their squares leave the range of float64.
SMALLEST_SAMPLE_WEIGHT = 1e-100
LARGEST_WEIGHT = 1e100
#: Largest weight of a term of J. Far below it the other terms are lost to rounding already;
#: beyond it products with the squares of X overflow.
LARGEST_TERM_WEIGHT = 1e40


class ParameterProblem:
    """What errors and warnings about one parameter share.

    ``name`` is the Python name of the parameter and ``sentence`` what is wrong with it. A
    sentence that begins with a colon follows the name at once.
    """

    name: str
    sentence: str

    def __init__(self, name: str, sentence: str) -> None:
        self.name = name
        self.sentence = sentence
        super().__init__(self.named(name))  # type: ignore[call-arg]

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        # Exceptions are pickled with the arguments of Exception.__init__, here one text;
        # results of worker processes need the two that this class takes.
        return type(self), (self.name, self.sentence)

    def named(self, name: str) -> str:
        """Return the message with another name of the parameter, such as an option's.

        >>> ParameterError("gamma", "must be positive.").named("--gamma")
        '--gamma must be positive.'
        """
        space = "" if self.sentence.startswith(":") else " "
        return f"{name}{space}{self.sentence}"


class ParameterError(ParameterProblem, ValueError):
    """A parameter has a value that is not allowed."""


class ParameterTypeError(ParameterProblem, TypeError):
    """A parameter has a value of the wrong type."""


class ParameterWarning(ParameterProblem, UserWarning):
    """A parameter has a value that is allowed but probably not meant."""


# ---- parameters -----------------------------------------------------------------------


def check_option(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise unless value is one of the allowed words."""
    if not isinstance(value, str) or value not in allowed:
        options = " or ".join(repr(option) for option in allowed)
        raise ParameterError(name, f"must be {options}, got {value!r}.")


def check_number(
    name: str,
    value: object,
    *,
    at_least: float | None = None,
    above: float | None = None,
) -> None:
    """Raise unless value is a finite number, ``at_least`` or ``above`` a limit."""
    if above is None:
        wanted = f"a number of at least {at_least:g}"
    else:
        wanted = f"above {above:g}"
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        raise ParameterTypeError(name, f"must be {wanted}, got {value!r}.")
    number = float(value)
    too_small = (at_least is not None and number < at_least) or (
        above is not None and number <= above
    )
    # not <= is true of NaN as well
    if too_small or not abs(number) <= sys.float_info.max:
        raise ParameterError(name, f"must be {wanted}, got {value!r}.")


def check_integer(name: str, value: object, low: int) -> None:
    """Raise unless value is a whole number of at least ``low``."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        message = f"must be a whole number of at least {low}, got {value!r}."
        raise ParameterTypeError(name, message)
    if int(value) < low:
        raise ParameterError(name, f"must be at least {low}, got {value}.")


def check_distinct(
    items: Iterable[Hashable],
    message: str,
    error: type[ValueError] = ValueError,
) -> None:
    """Raise if an item occurs twice; ``{}`` in the message stands for it."""
    repeated = [item for item, times in Counter(items).items() if times > 1]
    if repeated:
        raise error(message.replace("{}", repr(repeated[0]), 1))


# ---- constraints on parameters --------------------------------------------------------


class Constraint:
    """What values a parameter may have; an estimator lists one for each of its parameters."""

    def check(self, name: str, value: object) -> None:
        """Raise `ParameterError` or `ParameterTypeError` if the value is not allowed."""
        raise NotImplementedError


@dataclass(frozen=True)
class AtLeast(Constraint):
    """A finite number, not below ``limit`` and not above ``at_most``.

    >>> AtLeast(0, at_most=1e40).check("alpha", 1e300)
    Traceback (most recent call last):
    semfs.validation.ParameterError: alpha must be at most 1e+40, got 1e+300.
    """

    limit: float
    at_most: float = sys.float_info.max

    def check(self, name: str, value: object) -> None:
        check_number(name, value, at_least=self.limit)
        if float(value) > self.at_most:  # type: ignore[arg-type]
            raise ParameterError(name, f"must be at most {self.at_most:g}, got {value!r}.")


@dataclass(frozen=True)
class FiniteNumber(Constraint):
    """A finite number."""

    def check(self, name: str, value: object) -> None:
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise ParameterTypeError(name, f"must be a number, got {value!r}.")
        if not abs(float(value)) <= sys.float_info.max:
            raise ParameterError(name, f"must be a finite number, got {value!r}.")


@dataclass(frozen=True)
class Above(Constraint):
    """A finite number, larger than ``limit``."""

    limit: float

    def check(self, name: str, value: object) -> None:
        check_number(name, value, above=self.limit)


@dataclass(frozen=True)
class WholeNumber(Constraint):
    """An integer, not below ``limit``."""

    limit: int

    def check(self, name: str, value: object) -> None:
        check_integer(name, value, self.limit)


@dataclass(frozen=True, init=False)
class OneOf(Constraint):
    """One of some words. ``OneOf("auto") | WholeNumber(2)`` also allows a number.

    >>> (OneOf("auto") | WholeNumber(2)).check("n_new_classes", 1)
    Traceback (most recent call last):
    semfs.validation.ParameterError: n_new_classes must be at least 2, got 1.
    """

    words: tuple[str, ...]

    def __init__(self, *words: str) -> None:
        object.__setattr__(self, "words", words)

    def __or__(self, number: Constraint) -> Constraint:
        return WordOrNumber(self, number)

    def check(self, name: str, value: object) -> None:
        check_option(name, value, self.words)


@dataclass(frozen=True)
class WordOrNumber(Constraint):
    """Text must be one of the words; anything else must meet the constraint on numbers."""

    word: OneOf
    number: Constraint

    def check(self, name: str, value: object) -> None:
        constraint = self.word if isinstance(value, str) else self.number
        constraint.check(name, value)


@dataclass(frozen=True)
class ShareUpToOne(Constraint):
    """A number above 0, at most 1."""

    def check(self, name: str, value: object) -> None:
        check_number(name, value, above=0)
        if float(value) > 1.0:  # type: ignore[arg-type]
            raise ParameterError(name, f"must be at most 1, got {value!r}.")


@dataclass(frozen=True)
class OrNone(Constraint):
    """None, or what another constraint allows.

    >>> OrNone(ShareUpToOne()).check("max_correlation", None)
    >>> OrNone(ShareUpToOne()).check("max_correlation", 1.5)
    Traceback (most recent call last):
    semfs.validation.ParameterError: max_correlation must be at most 1, got 1.5.
    """

    constraint: Constraint

    def check(self, name: str, value: object) -> None:
        if value is not None:
            self.constraint.check(name, value)


@dataclass(frozen=True)
class FeatureCount(Constraint):
    """A number of features, or a share of them above 0 and below 1."""

    auto: bool = False  # whether "auto" is allowed
    none: bool = False  # whether None is allowed: a budget decides

    def check(self, name: str, value: object) -> None:
        """Raise unless the value is a count of at least 1, or a share between 0 and 1."""
        if self.auto and isinstance(value, str):
            if value != "auto":
                raise ParameterError(name, f'must be a number or "auto", got {value!r}.')
            return
        if self.none and value is None:
            return
        if isinstance(value, (float, np.floating)) and 0 < value < 1:
            return
        wanted = "must be a whole number of at least 1, or a share of the features below 1"
        if not isinstance(value, numbers.Integral) or isinstance(value, bool):
            hint = ""
            if not self.auto and (value is None or isinstance(value, str)):
                hint = ' SemFSCV(n_features_to_select="auto") chooses the number.'
            raise ParameterTypeError(name, f"{wanted}, got {value!r}.{hint}")
        if int(value) < 1:
            raise ParameterError(name, f"must be at least 1, got {value}.")


# ---- weights --------------------------------------------------------------------------


def check_weights(sample_weight: ArrayLike | None, n_samples: int) -> Float64 | None:
    """Return non-negative sample weights (n,) in float64, or None."""
    name = "sample_weight"
    if sample_weight is None:
        return None
    if isinstance(sample_weight, numbers.Number):  # one weight for all, as in scikit-learn
        sample_weight = np.full(n_samples, sample_weight)
    weights: Float64 = check_array(
        sample_weight, ensure_2d=False, dtype=np.float64, input_name=name
    )
    if weights.shape != (n_samples,):
        raise ParameterError(
            name,
            f"has shape {weights.shape}, expected ({n_samples},): one weight per row of X. "
            "(Sample weights must be 1D array or scalar.)",
        )
    if (weights < 0).any():
        raise ParameterError(name, "must not be negative. Use 0 to ignore a sample.")
    if not weights.any():
        raise ParameterError(name, "is zero for every sample: nothing is left to fit.")
    if not SMALLEST_SAMPLE_WEIGHT < weights.max() < LARGEST_WEIGHT:
        raise ParameterError(name, f"goes up to {weights.max():.0e}. Use weights near 1.")
    return weights


def class_weights(
    class_weight: str | Mapping[Hashable, float] | None,
    classes: np.ndarray,
    counts: Floats,
) -> Float64 | None:
    """Return the weight (C,) of each class, or None if all are 1.

    "balanced" makes all classes equal, given the total weight (C,) of the samples of each.
    """
    if class_weight is None:
        return None
    if isinstance(class_weight, str) and class_weight == "balanced":
        n_present = (counts > 0).sum()
        # the smallest normal number keeps an empty class from a division by zero
        balanced: Float64 = counts.sum() / (n_present * np.maximum(counts, 1e-300))
        return balanced
    if not isinstance(class_weight, Mapping):
        error = ParameterError if isinstance(class_weight, str) else ParameterTypeError
        wanted = 'None, "balanced" or a mapping class -> weight'
        raise error("class_weight", f"must be {wanted}, got {class_weight!r}.")
    weights = np.array([float(class_weight.get(c, 1.0)) for c in classes.tolist()])
    if not np.isfinite(weights).all() or (weights < 0).any():
        raise ParameterError("class_weight", "must hold non-negative finite numbers.")
    return weights


# ---- features by name -----------------------------------------------------------------


def resolve_features(
    parameter: str,
    values: FeaturesLike | None,
    names: Sequence[object] | None = None,
    n_features: int | None = None,
) -> Indices:
    """Return the indices of features that a user means, each once, in the order given.

    Parameters
    ----------
    parameter : str
        Name of the parameter, for messages.
    values : sequence of int or str, or None
        An int is an index. Text is the first of these that applies: the name of a feature; a
        pattern ``"re:^MT-"``, which means all features in whose name it is found; the path of
        a file with one name per line; names joined by commas.
    names : sequence of d names, optional
        Without names, features are called x0, x1, … as `get_feature_names_out` does.
    n_features : int, optional
        Number of features d, needed without names.

    Examples
    --------
    >>> resolve_features("include", ["re:^MT-", "ACTB"], ["MT-ND1", "ACTB", "MT-ND2"])
    array([0, 2, 1])
    """
    if values is None:
        return np.zeros(0, dtype=np.intp)
    if isinstance(values, str):
        raise ParameterTypeError(parameter, f"must be a list of features, got {values!r}.")
    # Of several features of one name the first is meant.
    index_of: dict[str, int] = {}
    for index, name in enumerate([] if names is None else names):
        index_of.setdefault(str(name), index)
    if n_features is None:
        n_features = 0 if names is None else len(names)
    found: dict[int, None] = {}  # keeps the order, each once
    for value in values:
        if isinstance(value, str):
            indices = _indices_of_text(parameter, value, n_features, index_of)
        else:
            indices = [_checked_index(parameter, value, n_features)]
        found.update(dict.fromkeys(indices))
    return np.array(list(found), dtype=np.intp)


def _indices_of_text(
    parameter: str, text: str, n_features: int, index_of: Mapping[str, int]
) -> list[int]:
    """Return the features that one text means: a name, a pattern, a file or a list."""
    if text in index_of:
        return [index_of[text]]
    if text.startswith(PATTERN_PREFIX):
        return _matching(parameter, text, index_of)
    if is_file(text):
        listed = _names_in_file(parameter, Path(text))
        # A header is passed over, unless a feature has that name.
        if listed[0].lower() in LIST_HEADERS and listed[0] not in index_of:
            listed = listed[1:]
    else:
        listed = split_names(text, index_of)
    return [_index_of_name(parameter, name, n_features, index_of) for name in listed]


def _matching(parameter: str, text: str, names: Mapping[str, int]) -> list[int]:
    """Return the features in whose names a pattern ``"re:…"`` is found."""
    try:
        pattern = re.compile(text.removeprefix(PATTERN_PREFIX))
    except re.error as error:
        message = f": {text!r} is not a valid regular expression ({error})."
        raise ParameterError(parameter, message) from None
    found = [index for name, index in names.items() if pattern.search(name)]
    if not found:
        message = f": the pattern {text!r} matches none of the {len(names)} feature names."
        raise ParameterError(parameter, message)
    return found


def _names_in_file(parameter: str, path: Path) -> list[str]:
    """Return the first cell of each line that is not empty."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except UnicodeDecodeError:
        message = f": {path} is not a text file in UTF-8. Give one feature name per line."
        raise ParameterError(parameter, message) from None
    except OSError as error:
        raise ParameterError(parameter, f": {path} cannot be read ({error}).") from None
    found = [line.strip().strip('"') for line in lines if line.strip()]
    if not found:
        message = f": {path} is empty. Give one feature name per line."
        raise ParameterError(parameter, message)
    return found


def _index_of_name(
    parameter: str, name: str, n_features: int, index_of: Mapping[str, int]
) -> int:
    """Return the index of a feature by its whole name."""
    if name in index_of:
        return index_of[name]
    if index_of:
        hint = did_you_mean(name, index_of) or ". Check the spelling."
        if re.search(r"[*?\[]", name):
            hint = f". A pattern is a regular expression after {PATTERN_PREFIX!r}: 're:^MT-'."
        raise ParameterError(parameter, f": no feature named {name!r}{hint}")
    if re.fullmatch(r"x\d+", name):  # as get_feature_names_out calls it
        return _checked_index(parameter, int(name[1:]), n_features)
    raise ParameterError(
        parameter,
        f": no feature named {name!r}, because X has no feature names. Pass a data frame (a "
        'pipeline keeps names with set_output(transform="pandas")), or give indices.',
    )


def _checked_index(parameter: str, value: object, n_features: int) -> int:
    """Return an index of a feature, counted from the end if it is negative."""
    if not isinstance(value, (int, np.integer)) or isinstance(value, bool):
        raise ParameterTypeError(parameter, f"must hold indices or names, got {value!r}.")
    if not -n_features <= int(value) < n_features:
        message = f": index {value} is out of range for {n_features} features."
        raise ParameterError(parameter, message)
    return int(value) % n_features


def feature_indices(
    parameter: str,
    features: FeaturesLike | None,
    d: int,
    names: Sequence[object] | None = None,
) -> Indices:
    """Return `resolve_features` with its arguments in another order."""
    # alias until all branches are merged
    return resolve_features(parameter, features, names, d)


def split_names(text: str, known: Iterable[str]) -> list[str]:
    """Split names joined by commas; a known name that contains commas stays whole.

    From each comma on, the longest part of the text that is a known name is taken.

    >>> split_names("T cell, CD4,B cell", ["T cell, CD4", "B cell"])
    ['T cell, CD4', 'B cell']
    """
    known = set(known)
    pieces = text.split(",")
    found = []
    start = 0
    while start < len(pieces):
        stop = len(pieces)
        # The longest known name first; a single piece is taken as it is.
        while stop > start + 1 and ",".join(pieces[start:stop]).strip() not in known:
            stop -= 1
        name = ",".join(pieces[start:stop]).strip()
        if name:
            found.append(name)
        start = stop
    return found


def is_file(text: str) -> bool:
    """Whether text is the path of an existing file; what cannot be a path is not."""
    try:
        return Path(text).is_file()
    except (OSError, ValueError):  # too long, or with a null character
        return False


def did_you_mean(word: object, known: Iterable[object]) -> str:
    """Return the end of a sentence that names the most similar known word, or nothing."""
    texts = [str(item) for item in known]
    # Cd3d and CD3D, the genes of mouse and man, are not similar to difflib.
    near = [text for text in texts if text.lower() == str(word).lower()]
    near = near or difflib.get_close_matches(str(word), texts, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""


def check_unique_names(columns: Sequence[object]) -> None:
    """Raise if two columns of a frame have one name: features are found by name."""
    names = [str(name) for name in columns]
    if len(set(names)) == len(names):
        return
    repeated = [name for name, count in Counter(names).items() if count > 1]
    shown = listed([repr(name) for name in repeated])
    raise ValueError(f"X has several columns of the same name: {shown}. Rename them.")


def listed(items: Sequence[object], most: int = 5) -> str:
    """Return the first items joined by commas, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(str(item) for item in items[:most])
    n_more = len(items) - most
    return f"{shown} and {n_more} more" if n_more > 0 else shown


# ---- numbers --------------------------------------------------------------------------


#: Columns with missing values that a message names.
MOST_COLUMNS = 20
#: What to do about missing values.
FILL_GAPS = (
    'Fill the gaps (missing_values="class-mean" of SemFS does; on the command line, '
    "--impute), or drop these rows or columns."
)


def check_all_finite(X: Matrix, names: Sequence[object] | None = None, what: str = "X") -> None:
    """Raise scikit-learn's error for NaN or infinity in X, with the place, or an overflow.

    Call it when something is known to be wrong: it raises in any case.
    """
    options: dict[str, Any] = {
        "accept_sparse": True,
        "dtype": [np.float64, np.float32],
        "input_name": what,
    }
    try:
        # scikit-learn adds up all values first; infinities of both signs make this NaN.
        with np.errstate(invalid="ignore", over="ignore"):
            check_array(X, **options)
    except ValueError as error:
        # Coordinates of the stored values serve dense and sparse X alike.
        found = coo_array(check_array(X, ensure_all_finite=False, **options))
        wrong = ~np.isfinite(found.data)
        row, column = (int(index[np.argmax(wrong)]) for index in found.coords)
        first_line = str(error).splitlines()[0]
        columns = getattr(X, "columns", names)
        counts = np.bincount(found.coords[1][wrong], minlength=found.shape[1])
        message = (
            f"{first_line} First such value: {_place(X, row, column, names)}."
            f"{_affected_columns(counts, columns)} {FILL_GAPS}"
        )
        raise ValueError(message) from error
    raise ValueError(
        f"{what} has values so large that their squares overflow {X.dtype}. "
        "Rescale the features, or convert X to float64."
    )


def _affected_columns(counts: Indices, names: Sequence[object] | None) -> str:
    """Name all columns with NaN or infinity, given how many each has (d,), if several."""
    affected = np.flatnonzero(counts)
    if counts.sum() == 1:
        return ""
    shown = [
        f"{j if names is None else repr(names[j])} ({counts[j]})" for j in affected.tolist()
    ]
    number = "1 column" if len(affected) == 1 else f"{len(affected)} columns"
    return f" In all {counts.sum()} in {number}: {listed(shown, MOST_COLUMNS)}."


def _place(X: Matrix, row: int, column: int, names: Sequence[object] | None) -> str:
    """Name a place in X, by the labels of a data frame where it has some."""
    names = getattr(X, "columns", names)
    # a list has a method of that name
    labels = getattr(X, "index", None) if hasattr(X, "columns") else None
    column_text = str(column) if names is None else f"{column} ({names[column]!r})"
    row_text = str(row)
    if labels is None:
        row_text += " of the rows in use"  # those without a label may have been left out
    elif labels[row] != row:
        row_text += f" ({str(labels[row])!r})"
    return f"row {row_text}, column {column_text}, counting from 0"
