"""Class-attribute tables: one row of numbers per class, and what they are worth."""

import difflib
import itertools
import re
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from sklearn.metrics.pairwise import cosine_similarity

from semfs.labels import label_array
from semfs.system import import_optional
from semfs.validation import check_distinct

_ALIKE = 1e-9  # distance of rows or columns, relative to their length, that counts as none
_NO_LABELS = ("", "na", "nan", "none", "null", "unknown", "unlabeled", "unlabeled")
_LARGEST = 1e150  # number whose squares can be added up


@dataclass(frozen=True)
class AttributeTable:
    """One row of attributes per class, with names."""

    values: np.ndarray  # (C, m)
    classes: np.ndarray  # (C,), labels
    names: np.ndarray  # (m,), of the attributes

    def rows_of(self, classes: Any) -> Self:
        """Return the rows of the given classes, in that order."""
        wanted = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
        position = {label: i for i, label in enumerate(self.classes.tolist())}
        if missing := [label for label in wanted if label not in position]:
            raise ValueError(_missing_message(missing, list(position)))
        rows = [position[label] for label in wanted]
        return replace(self, values=self.values[rows], classes=label_array(wanted))

    def columns_of(self, fitted: Self, what: str) -> Self:
        """Return the columns of another table: by name if both have names, else by place."""
        own, wanted = self.names.tolist(), fitted.names.tolist()
        if len(own) != len(wanted):
            raise ValueError(
                f"{what} has {len(own)} attributes, but the selector was fitted with "
                f"{len(wanted)}. Describe all classes by the same attributes."
            )
        places = list(range(len(own)))
        same_names = set(own) == set(wanted) and len(set(own)) == len(own)
        if same_names or (_are_names(own) and _are_names(wanted)):
            for name in sorted(set(wanted) - set(own)):
                raise ValueError(f"{what} has no attribute {name!r}, found: {', '.join(own)}.")
            places = list(map(own.index, wanted))
        return replace(self, values=self.values[:, places], names=fitted.names)


def _are_names(names: list[str]) -> bool:
    """Whether these are names that somebody gave, one for each column."""
    numbers = {str(j) for j in range(len(names))} | {f"a{j}" for j in range(len(names))}
    return len(set(names)) == len(names) and not numbers >= set(names)


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
    if isinstance(attributes, str) or hasattr(attributes, "__fspath__"):
        raise TypeError(
            f"attributes must be a table, got {str(attributes)!r}. Make one: attributes_of, "
            "read_attributes or attributes_from_ontology of semfs.attributes."
        )
    if hasattr(attributes, "index") and hasattr(attributes, "columns"):
        labels, names = list(attributes.index), list(attributes.columns)
        values = _numbers(attributes.to_numpy())
    elif hasattr(attributes, "get_columns"):  # polars
        labels, names = attributes.to_series(0).to_list(), attributes.columns[1:]
        values = _numbers(attributes[:, 1:].to_numpy())
    else:
        mapping = isinstance(attributes, Mapping)
        rows = [np.atleast_1d(row) for row in attributes.values()] if mapping else attributes
        values = _numbers(rows)
        labels = list(attributes if mapping else range(len(values)))
        names = [f"a{j}" for j in range(values.shape[1])]
    labels = [item.item() if isinstance(item, np.generic) else item for item in labels]
    if not all(isinstance(label, Hashable) for label in labels):
        raise ValueError("attributes has a class label that is not hashable. Use text.")
    advice = "Keep one row per class, for example table.groupby(level=0).mean()."
    check_distinct(labels, f"attributes has more than one row for class {{}}. {advice}")
    usable = np.abs(values) <= _LARGEST
    if not usable.all():
        row, column = np.argwhere(~usable)[0]
        value, place = values[row, column], f"{labels[row]!r} in column {str(names[column])!r}"
        wrong = "too large to be squared" if np.isfinite(value) else "NaN or infinity"
        held = f"attributes holds {value} for class {place}"
        raise ValueError(f"{held}, {wrong}. Rescale or drop it.")
    return AttributeTable(values, label_array(labels), np.array(list(map(str, names)), object))


def _numbers(rows: Any) -> np.ndarray:
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        wanted = "attributes must be numeric, one row of the same length per class"
        advice = "Encode text as numbers, or drop it; classes are the index (set_index)."
        raise ValueError(f"{wanted}: {error}. {advice}") from error
    if values.ndim != 2 or not values.size:
        raise ValueError(f"attributes needs the same length per class, got {values.shape}.")
    return values


def _missing_message(missing: list, known: list) -> str:
    def letters(name: Any) -> str:  # polar bear, polar+bear
        return re.sub(r"[\W_]+", " ", str(name)).strip().casefold()

    plain = {letters(label): label for label in reversed(known)}
    near = difflib.get_close_matches(letters(missing[0]), plain, n=1, cutoff=0.75)
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    hint = f"; did you mean {plain[near[0]]!r}?" if near else "."
    if known == list(range(len(known))):
        hint += f" (row r of an array belongs to the integer label r; {len(known)} rows found)"
    shown = ", ".join(map(repr, known[:8])) + (", …" if len(known) > 8 else "")
    if any(letters(label) in _NO_LABELS for label in missing):
        hint += " None or NaN in y marks rows without a label."
    text = f"attributes has no row for class {missing[0]!r}{more}{hint} Add it, or drop that "
    return f"{text}class from y; known classes: {shown}"


def describe_attributes(table: Any) -> Any:
    """Return what a class-attribute table (C, m), as of `SemFS`, is worth: a frame of findings.

    Returns
    -------
    pandas.DataFrame
        ``finding`` and ``what``: the size; the rank of the centered table (how many
        independent facts tell the classes apart); attributes that are constant, or equal for
        all classes; classes with the same description, which nothing can tell apart; and
        each class's nearest class by the cosine of the centered rows, the nearest first.

    Examples
    --------
    >>> table = {"cat": [4, 1, 0], "dog": [4, 1, 0], "hen": [2, 1, 1]}
    >>> describe_attributes(table)["what"].tolist()[1:5]
    ['1 of at most 2', 'a1', 'cat = dog', 'cat – dog (1.00)']
    """
    table = as_attribute_table(table)
    A, classes, names = table.values, table.classes.tolist(), table.names
    Z, varies, (n, m) = A - A.mean(axis=0), _varies(A), A.shape
    pairs = _equal_pairs(A.T[varies], names[varies].tolist())
    alike = cosine_similarity(Z).clip(-1.0, 1.0) - 3.0 * np.eye(n)  # not to itself
    best, order = alike.argmax(axis=1), np.argsort(-alike.max(axis=1), kind="stable")
    order = order[(best[best] != np.arange(n))[order] | (order < best[order])]  # once each
    nearest = [(classes[i], classes[best[i]], alike[i, best[i]]) for i in order]
    rows = [
        ("size", f"{n} classes × {m} attributes"),
        ("rank", f"{np.linalg.matrix_rank(Z)} of at most {min(n - 1, m)}"),
        *(("constant attribute", name) for name in names[~varies]),
        *(("equal attributes", f"{a} = {b}") for a, b in pairs),
        *(("identical classes", f"{a} = {b}") for a, b in _equal_pairs(A, classes)),
        *(("nearest classes", f"{a} – {b} ({cosine:.2f})") for a, b, cosine in nearest),
    ]
    return import_optional("pandas", "data").DataFrame(rows, columns=["finding", "what"])


def constant_attributes(table: Any) -> list[str]:
    """Return the names of the attributes that have one value for all classes of a table.

    >>> constant_attributes({"cat": [4, 0], "dog": [4, 1]})
    ['a0']
    """
    table = as_attribute_table(table)
    return table.names[~_varies(table.values)].tolist()


def _varies(A: np.ndarray) -> np.ndarray:
    return np.ptp(A, axis=0) > _ALIKE * np.abs(A).max()


def _equal_pairs(rows: np.ndarray, names: list) -> list[tuple]:
    """Neighboring pairs within each group of equal rows."""
    groups: dict[bytes, list] = {}
    scale = np.abs(rows).max(initial=0.0) or 1.0
    for row, name in zip(np.round(rows / scale / _ALIKE).astype(np.int64), names):
        groups.setdefault(row.tobytes(), []).append(name)
    return [pair for group in groups.values() for pair in itertools.pairwise(group)]
