"""Checks of what users pass: parameters, weights, finite numbers.

A wrong parameter raises `ParameterError` (or `ParameterTypeError`), which knows the name of the
parameter: the command line shows the name of its option instead.
"""

from __future__ import annotations

import difflib
import numbers
import sys
import warnings
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from scipy.sparse import coo_array
from sklearn.utils import check_array

from semfs._typing import Float64, Floats, Indices

if TYPE_CHECKING:
    from semfs._typing import ArrayLike, Matrix


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


def warn_user(message: str | Warning) -> None:
    """Warn with the line of the user's code that led here.

    That is the nearest one outside this package and scikit-learn, whose pipelines and
    searches call `fit` for the user. Python shows a message once for each such line.
    """
    level = 1
    frame = sys._getframe()
    while frame.f_back is not None and _is_library_code(frame):
        frame = frame.f_back
        level += 1
    warnings.warn(message, stacklevel=level)


def _is_library_code(frame: FrameType) -> bool:
    package = frame.f_globals.get("__name__", "").partition(".")[0]
    return package in ("semfs", "sklearn")


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


def is_file(text: str) -> bool:
    """Return whether text is the path of an existing file; what cannot be a path is not."""
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


def listed(items: Sequence[object], most: int = 5) -> str:
    """Return the first items joined by commas, and how many more there are.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    shown = ", ".join(str(item) for item in items[:most])
    n_more = len(items) - most
    return f"{shown} and {n_more} more" if n_more > 0 else shown


def joined(names: Sequence[str]) -> str:
    """Return names with commas between them, or with semicolons if names contain commas.

    >>> joined(["B cell", "CD8-positive, alpha-beta T cell"])
    'B cell; CD8-positive, alpha-beta T cell'
    """
    has_comma = any("," in name for name in names)
    return ("; " if has_comma else ", ").join(names)


def counted(n: int, noun: str, plural: str = "") -> str:
    """Return a number of things, such as "1 feature" and "2 features"."""
    return f"{n} {noun}" if n == 1 else f"{n} {plural or noun + 's'}"


#: Columns with missing values that a message names.
MOST_COLUMNS = 20
#: What to do about missing values.
FILL_GAPS = (
    'Fill the gaps, for example with missing_values="class-mean", or drop these rows or '
    "columns."
)
#: What to do about infinity, which nothing fills.
REPLACE_INFINITY = (
    "Infinity is not a missing value, and nothing fills it. Replace it "
    "with the right value, or with an empty cell (NaN) if there is none."
)
#: The same as `FILL_GAPS` for samples that a fitted selector is applied to.
FILL_TO_PREDICT = (
    "These features are selected, and every sample needs a value for "
    "each of them. Fill these cells. To predict without a feature, leave "
    "its column out of the data and use missing_features='ignore' (on "
    "the command line, --missing-features ignore)."
)


def check_all_finite(
    X: Matrix,
    names: Sequence[object] | None = None,
    what: str = "X",
    row_numbers: Indices | None = None,
    advice: str = FILL_GAPS,
) -> NoReturn:
    """Raise scikit-learn's error for NaN or infinity in X, with the place, or an overflow.

    Call it when something is known to be wrong: it raises in any case. ``row_numbers`` (n,)
    are those that the user knows, if X has some of the rows only. ``advice`` says what to do.
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
        if np.isinf(found.data).any():
            advice = REPLACE_INFINITY
        counts = np.bincount(found.coords[1][wrong], minlength=found.shape[1])
        message = (
            f"{first_line} First such value: {_place(X, row, column, names, row_numbers)}."
            f"{_affected_columns(counts, columns)} {advice}"
        )
        raise ValueError(message) from error
    raise ValueError(
        f"{what} has values so large that their squares overflow {X.dtype}. "
        "Rescale the features, or convert X to float64."
    )


def refuse_nonfinite(X: Any, what: str) -> None:
    """Raise if some values of X, dense or sparse, are NaN or infinite; ``what`` X is called."""
    stored = coo_array(X)  # NaN and infinity are stored, as they are not zero
    wrong = ~np.isfinite(stored.data)
    if not wrong.any():
        return
    found = "NaN" if np.isnan(stored.data).any() else "infinity"
    columns = np.unique(stored.coords[1][wrong]).tolist()
    advice = REPLACE_INFINITY if np.isinf(stored.data).any() else FILL_GAPS
    raise ValueError(
        f"{what} contain {found}: {wrong.sum()} values in columns {listed(columns)} (counting "
        f"from 0). {advice}"
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
    return f" In total, {counts.sum()} in {number}: {listed(shown, MOST_COLUMNS)}."


def _place(
    X: Matrix,
    row: int,
    column: int,
    names: Sequence[object] | None,
    row_numbers: Indices | None,
) -> str:
    """Name a place in X, by the labels of a data frame where it has some."""
    names = getattr(X, "columns", names)
    # a list has a method of that name
    labels = getattr(X, "index", None) if hasattr(X, "columns") else None
    column_text = str(column) if names is None else f"{column} ({names[column]!r})"
    row_text = str(row)
    if row_numbers is not None:
        row_text = str(row_numbers[row])
    elif labels is None:
        row_text += " of the rows in use"  # those without a label may have been left out
    elif labels[row] != row:
        row_text += f" ({str(labels[row])!r})"
    return f"row {row_text}, column {column_text}, counting from 0"
