"""Class-attribute tables, with one row of numbers per class, and reports about them."""

from __future__ import annotations

import difflib
import itertools
import os
import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from sklearn.metrics.pairwise import cosine_similarity

from semfs._typing import AttributesLike, Float64, Label, Mask, PathLike
from semfs.attributes.encoders import encode_class_names
from semfs.attributes.files import read_attributes
from semfs.attributes.ontology import attributes_from_ontology
from semfs.labels import label_array
from semfs.system import import_optional
from semfs.validation import ParameterError, check_distinct

if TYPE_CHECKING:
    import pandas as pd

#: Distance of two rows or columns, relative to the largest entry, that counts as none.
_EQUAL = 1e-9
#: Numbers up to this size can be squared and summed in float64 (largest: 1.8e308).
_LARGEST = 1e150
#: Labels by which people mark samples that have no label.
_NO_LABELS = ("", "na", "nan", "none", "null", "unknown", "unlabeled", "unlabelled")
#: Endings of files that hold an ontology rather than a table.
_ONTOLOGIES = (".obo", ".owl", ".json")


@dataclass(frozen=True)
class AttributeTable:
    """Class-attribute table with one row per class and the names of classes and attributes."""

    values: Float64  # (C, m)
    classes: npt.NDArray  # (C,), labels
    names: npt.NDArray[np.object_]  # (m,), of the attributes

    @classmethod
    def from_any(
        cls,
        attributes: AnyDescription | None,
        classes: Iterable[Label] | None = None,
    ) -> AttributeTable:
        """Create a table from class descriptions in any accepted form.

        Parameters
        ----------
        attributes : see below
            - an `AttributeTable`;
            - a pandas frame indexed by class label;
            - a polars frame with the class labels in its first column;
            - a mapping of class label to vector;
            - an array of shape (L, m) whose row r describes the class with the integer label r;
            - None or "labels", which gives each of ``classes`` one attribute that is 1 for that
              class only;
            - the path of a table file (see `read_attributes`);
            - "cl" (the Cell Ontology) or the path of an .obo, .owl or .json file, in which
              `attributes_from_ontology` looks up ``classes``;
            - "names", which encodes the names of ``classes`` with `encode_class_names`.
        classes : iterable of class labels, optional
            The classes to describe. They are required if ``attributes`` is None or text. If
            ``attributes`` is a table, they are ignored, and all rows of the table are kept (see
            `rows_of`).

        Examples
        --------
        >>> AttributeTable.from_any({"cat": [4, 0], "hen": [2, 1]}).rows_of(["hen"]).values
        array([[2., 1.]])
        >>> AttributeTable.from_any("labels", classes=["cat", "hen"]).values
        array([[1., 0.],
               [0., 1.]])
        """
        if isinstance(attributes, AttributeTable):
            return attributes
        if attributes is not None and not isinstance(attributes, (str, os.PathLike)):
            return _checked(_parts(attributes))
        if classes is None:
            raise TypeError(
                f"attributes must be a table, got {attributes!r}. Make one first: "
                f"semfs.attributes.attributes_of(set(y), {attributes!r}), with the labels y."
            )
        if attributes is None or means_labels_alone(attributes):
            return _indicators(classes)
        return _checked(_parts(_described(classes, attributes)))

    def to_frame(self) -> pd.DataFrame:
        """Return the table as a pandas frame indexed by class label."""
        pandas = import_optional("pandas", "data", what="A frame")
        labels = pandas.Index(self.classes, tupleize_cols=False)  # a tuple may be a label
        return pandas.DataFrame(
            self.values,
            index=labels,
            columns=self.names,
        )

    def rows_of(self, classes: Iterable[Label]) -> Self:
        """Return a table of the given classes, in the given order."""
        wanted = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
        position = {label: i for i, label in enumerate(self.classes.tolist())}
        missing = [label for label in wanted if label not in position]
        if missing:
            message = _missing_message(missing, list(position))
            raise ParameterError("attributes", message)
        rows = [position[label] for label in wanted]
        return replace(
            self,
            values=self.values[rows],
            classes=label_array(wanted),
        )

    def columns_of(self, fitted: Self, what: str) -> Self:
        """Return this table with its attributes in the order of ``fitted``.

        If both tables have names, attributes are matched by name; otherwise, by position.
        ``what`` is the name of this table in messages.
        """
        names = self.names.tolist()
        wanted = fitted.names.tolist()
        if len(names) != len(wanted):
            raise ValueError(
                f"{what} has {len(names)} attributes, but the selector "
                f"was fitted with {len(wanted)}. Describe all classes "
                "with the same attributes."
            )
        same_names = set(names) == set(wanted) and len(set(names)) == len(names)
        # Numbers of columns carry no meaning: then position is all there is to match by.
        if not same_names and not (_are_names(names) and _are_names(wanted)):
            return replace(self, names=fitted.names)
        missing = sorted(set(wanted) - set(names))
        if missing:
            found = ", ".join(names)
            raise ValueError(f"{what} has no attribute {missing[0]!r}, found: {found}.")
        columns = [names.index(name) for name in wanted]
        return replace(
            self,
            values=self.values[:, columns],
            names=fitted.names,
        )


#: Everything that `AttributeTable.from_any` reads besides None.
AnyDescription: TypeAlias = "AttributesLike | AttributeTable | PathLike"


def align_attributes(
    attributes: AttributesLike | AttributeTable | None, classes: npt.NDArray
) -> AttributeTable:
    """Return the attribute rows of the given classes, in the given order.

    Parameters
    ----------
    attributes : None, DataFrame, mapping or array of shape (L, m)
        Class descriptions. A pandas frame must be indexed by class label, and a polars frame
        must hold the labels in its first column. A mapping assigns a vector to each label. Row
        r of an array describes the class with the integer label r. None gives one indicator
        attribute per class.
    classes : ndarray of shape (C,)
        Labels of the classes whose rows are returned. All other rows are ignored.

    Examples
    --------
    >>> table = {"cat": [1.0, 0.0], "ant": [0.0, 1.0], "cow": [1.0, 1.0]}
    >>> align_attributes(table, np.array(["ant", "cat"])).values
    array([[0., 1.],
           [1., 0.]])
    """
    if attributes is None:
        return AttributeTable.from_any(None, classes)
    return AttributeTable.from_any(attributes).rows_of(classes)


def attributes_of(classes: Iterable[Label], source: PathLike) -> pd.DataFrame:
    """Describe classes by a file, an ontology or their names.

    If ``source`` is a table file, it is read by `read_attributes`. With "names",
    `encode_class_names` encodes the labels. With "cl" (the Cell Ontology) or an .obo, .owl or
    .json file, `attributes_from_ontology` looks up the labels. With "labels", each class has
    one indicator attribute. The result is a frame of shape (C, m), indexed by class label.
    """
    return AttributeTable.from_any(source, classes).to_frame()


# --- how from_any reads its argument ---------------------------------------------------


class _Parts(NamedTuple):
    """The contents of a table before they are checked."""

    values: Float64  # (C, m)
    labels: list[Label]
    names: list[str]


def means_labels_alone(source: object) -> bool:
    """Return whether this is the word "labels" (classes are described by labels alone)."""
    return _is_word(source, "labels")


def _is_word(source: object, word: str) -> bool:
    """Return whether text is this word (in any case), and not the name of an existing file."""
    if not isinstance(source, (str, os.PathLike)):
        return False
    return str(source).lower() == word and not Path(source).exists()


def _indicators(classes: Iterable[Label]) -> AttributeTable:
    """Return a table in which each class has one attribute, which is 1 for that class only."""
    labels = classes if isinstance(classes, np.ndarray) else label_array(list(classes))
    names = np.array([str(label) for label in labels.tolist()], dtype=object)
    return AttributeTable(np.eye(len(labels)), labels, names)


def _described(classes: Iterable[Label], source: PathLike) -> pd.DataFrame:
    """Return the frame for a text that names a file or a way to describe the classes."""
    terms = {label: str(label).strip() for label in classes}
    if _is_word(source, "cl"):
        return attributes_from_ontology(terms, "cl")
    if Path(source).suffix.lower() in _ONTOLOGIES:
        return attributes_from_ontology(terms, source)
    if _is_word(source, "names"):
        encoded = encode_class_names(list(terms.values()))
        return encoded.set_axis(list(terms), axis=0)
    return read_attributes(source)


def _parts(attributes: AttributesLike) -> _Parts:
    """Return the rows, class labels and attribute names of a table in memory."""
    frame: Any = attributes  # perhaps; mypy has no types for frames
    if hasattr(frame, "index") and hasattr(frame, "columns"):  # pandas
        values = _as_matrix(frame.to_numpy())
        return _Parts(values, list(frame.index), _as_text(frame.columns))
    if hasattr(frame, "get_columns"):  # polars
        values = _as_matrix(frame[:, 1:].to_numpy())
        labels = frame.to_series(0).to_list()
        return _Parts(values, labels, _as_text(frame.columns[1:]))
    if isinstance(attributes, Mapping):
        values = _as_matrix([np.atleast_1d(row) for row in attributes.values()])
        return _Parts(values, list(attributes), _numbered_names(values.shape[1]))
    values = _as_matrix(attributes)
    return _Parts(values, list(range(len(values))), _numbered_names(values.shape[1]))


def _as_text(names: Iterable[object]) -> list[str]:
    return [str(name) for name in names]


def _numbered_names(n_attributes: int) -> list[str]:
    return [f"a{j}" for j in range(n_attributes)]


def _as_matrix(rows: npt.ArrayLike) -> Float64:
    """Return rows as a matrix (C, m) of float64, or raise an error that names the problem."""
    try:
        values = np.array(rows, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"attributes must hold numbers, one row of the same length per class ({error}). "
            "Encode or drop columns of text, and make the classes the index (set_index)."
        ) from error
    if values.ndim != 2 or values.size == 0:
        raise ValueError(
            f"attributes must hold one row of numbers per class, got shape {values.shape}."
        )
    return values


def _checked(parts: _Parts) -> AttributeTable:
    """Return the table after checking that labels are distinct and numbers are valid."""
    values, given_labels, names = parts
    labels = [item.item() if isinstance(item, np.generic) else item for item in given_labels]
    if not all(isinstance(label, Hashable) for label in labels):
        raise ValueError(
            "attributes has a class label that is not hashable. Use text or whole numbers."
        )
    check_distinct(
        labels,
        "attributes has more than one row for class {}. Keep one row per class, for example "
        "table.groupby(level=0).mean().",
    )
    usable = np.abs(values) <= _LARGEST  # False for NaN
    if not usable.all():
        row, column = np.argwhere(~usable)[0]
        value = values[row, column]
        place = f"for class {labels[row]!r} in column {names[column]!r}"
        if np.isnan(value):
            raise ValueError(
                f"attributes has no value (NaN) {place}. Fill in the value, or drop the column."
            )
        if np.isinf(value):
            raise ValueError(
                f"attributes is infinite {place}. Correct the value, or drop the column."
            )
        raise ValueError(
            f"attributes holds {value} {place}, which is too large to be squared. "
            "Rescale the column, or drop it."
        )
    return AttributeTable(values, label_array(labels), np.array(names, dtype=object))


def _are_names(names: list[str]) -> bool:
    """Return whether these are distinct names given by a user, rather than column numbers."""
    if len(set(names)) < len(names):
        return False
    numbered = {str(j) for j in range(len(names))} | set(_numbered_names(len(names)))
    return not set(names) <= numbered


def _missing_message(missing: list[Label], known: list[Label]) -> str:
    """Return the message about classes without a row, which suggests a similar name."""
    label = missing[0]
    more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
    # Reversed, so that of two labels with the same letters the first one is kept.
    by_letters = {_letters(item): item for item in reversed(known)}
    near = difflib.get_close_matches(
        _letters(label),
        by_letters,
        n=1,
        cutoff=0.75,
    )
    hint = f"; did you mean {by_letters[near[0]]!r}?" if near else "."
    if known == list(range(len(known))):
        hint += f" (row r of an array belongs to the integer label r; {len(known)} rows found)"
        if missing == [len(known)]:
            hint += " If your labels start at 1, subtract 1."
        elif len(missing) > 1:
            hint += " If rows are attributes, transpose the array."
    texts = [str(item) for item in missing if _letters(item) in _NO_LABELS]
    if texts:
        hint += (
            " None or NaN in y marks unlabeled samples; on the command line, name such "
            f"text with --unlabeled-names {texts[0]!r}."
        )
    shown = ", ".join(repr(item) for item in known[:8])
    if len(known) > 8:
        shown += ", …"
    return (
        f"has no row for class {label!r}{more}{hint} Add the row, or drop "
        "that class from y (on the command line, --unseen). Known "
        f"classes: {shown}"
    )


def _letters(name: Label) -> str:
    """Return a name in lower case and without punctuation: polar+bear is "polar bear"."""
    return re.sub(r"[\W_]+", " ", str(name)).strip().casefold()


# --- what a table is worth -------------------------------------------------------------


def describe_attributes(table: AttributesLike | AttributeTable) -> pd.DataFrame:
    """Report problems in a class-attribute table.

    Returns
    -------
    pandas.DataFrame
        A table with the columns ``finding`` and ``what``. It lists the size of the table, the
        rank of the centered table (the number of independent attributes), constant and
        duplicated attributes, and classes with the same description, which attributes cannot
        separate. It also lists the nearest class of each class by the cosine of the centered
        rows, nearest pairs first.

    Examples
    --------
    >>> table = {"cat": [4, 1, 0], "dog": [4, 1, 0], "hen": [2, 1, 1]}
    >>> describe_attributes(table)["what"].tolist()[1:5]
    ['1 of at most 2', 'a1', 'cat = dog', 'cat – dog (1.00)']
    """
    table = AttributeTable.from_any(table)
    A = table.values
    classes = table.classes.tolist()
    n_classes, n_attributes = A.shape
    centered = A - A.mean(axis=0)
    rank = np.linalg.matrix_rank(centered)
    varies = _varies(A)
    findings = [
        ("size", f"{n_classes} classes × {n_attributes} attributes"),
        # Centered rows add up to 0, so that at most C - 1 of them are independent.
        ("rank", f"{rank} of at most {min(n_classes - 1, n_attributes)}"),
    ]
    for name in table.names[~varies]:
        findings.append(("constant attribute", name))
    for a, b in _equal_pairs(A.T[varies], table.names[varies].tolist()):
        findings.append(("equal attributes", f"{a} = {b}"))
    for a, b in _equal_pairs(A, classes):
        findings.append(("identical classes", f"{a} = {b}"))
    for i, j, cosine in _nearest_pairs(centered):
        pair = f"{classes[i]} – {classes[j]} ({cosine:.2f})"
        findings.append(("nearest classes", pair))
    pandas = import_optional("pandas", "data")
    return pandas.DataFrame(findings, columns=["finding", "what"])


def constant_attributes(table: AttributesLike | AttributeTable) -> list[str]:
    """Return the names of the attributes that have the same value for all classes.

    >>> constant_attributes({"cat": [4, 0], "dog": [4, 1]})
    ['a0']
    """
    table = AttributeTable.from_any(table)
    return table.names[~_varies(table.values)].tolist()


def _varies(A: Float64) -> Mask:
    """Return which columns (m,) of A (C, m) have more than one distinct value."""
    return np.ptp(A, axis=0) > _EQUAL * np.abs(A).max()


def _nearest_pairs(centered: Float64) -> list[tuple[int, int, float]]:
    """Return the nearest other row of each row and their cosine, nearest pairs first.

    If two rows are the nearest of each other, the pair is listed once.
    """
    cosine = cosine_similarity(centered).clip(-1.0, 1.0)
    np.fill_diagonal(cosine, -3.0)  # below every cosine: no row is its own neighbor
    nearest = cosine.argmax(axis=1)
    pairs = []
    for i in np.argsort(-cosine.max(axis=1), kind="stable").tolist():
        j = int(nearest[i])
        is_repeated = nearest[j] == i and j <= i
        if not is_repeated:
            pairs.append((i, j, float(cosine[i, j])))
    return pairs


def _equal_pairs(rows: Float64, names: Sequence[Label]) -> list[tuple[Label, Label]]:
    """Return neighboring pairs of names within each group of equal rows."""
    scale = np.abs(rows).max(initial=0.0) or 1.0
    rounded = np.round(rows / scale / _EQUAL).astype(np.int64)
    # Rounded rows are equal if their bytes are: one pass instead of all pairs.
    groups: dict[bytes, list[Label]] = {}
    for row, name in zip(rounded, names):
        groups.setdefault(row.tobytes(), []).append(name)
    return [pair for group in groups.values() for pair in itertools.pairwise(group)]
