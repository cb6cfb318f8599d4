"""Labels of rows: the one place that encodes them and says which mean "no label"."""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils import column_or_1d

from semfs.validation import did_you_mean, split_names

#: Codes of rows without a label, and of rows that must not be used at all.
NO_LABEL = -1
LEFT_OUT = -2


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of n rows; a million rows of ten classes take four megabytes."""

    classes: list  # distinct labels
    codes: np.ndarray  # (n,) place of each row's label among them; -1 without one, -2 left out

    @classmethod
    def of(cls, values: Any) -> Labels:
        """Return the labels of a 1-d array, list, or pandas, polars or arrow column."""
        if isinstance(values, Labels):
            return values
        if hasattr(values, "categories") and hasattr(values, "codes"):  # pandas.Categorical
            codes = np.asarray(values.codes, dtype=np.int32)
            return cls(list(values.categories), codes)._coded()
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
        if isinstance(values, np.ndarray) and values.dtype.kind in "biufU":
            classes, places = np.unique(values.reshape(-1), return_inverse=True)
            return cls(classes.tolist(), places.reshape(-1).astype(np.int32))._coded()
        position: dict[Any, int] = {}
        if not isinstance(values, Iterable) or getattr(values, "ndim", 1) != 1:
            raise TypeError(f"y must hold one label per row, got {type(values).__name__}.")
        items = (v.item() if isinstance(v, np.generic) else v for v in values)
        codes = np.array(
            [-1 if is_missing(v) else position.setdefault(v, len(position)) for v in items],
            dtype=np.int32,
        )
        return cls(list(position), codes)

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice) -> Labels:
        return Labels(self.classes, self.codes[rows])

    @property
    def n_unlabeled(self) -> int:
        return int((self.codes == NO_LABEL).sum())

    def array(self) -> np.ndarray:
        """Return the label of each row, None where there is none."""
        labels = label_array(self.classes if (self.codes >= 0).all() else [*self.classes, None])
        return labels[np.maximum(self.codes, NO_LABEL)]

    def used(self) -> Labels:
        return Labels(self.classes, self.codes[self.codes >= 0])

    def strip_blank(self) -> Labels:
        """Return labels as people mean them: text without blanks around it, blank is none."""
        names = (c.strip() or None if isinstance(c, str) else c for c in self.classes)
        return self._coded(list(names))

    def as_int(self) -> Labels:
        """Return the labels as numbers if all of them are written as such (7, not 007)."""
        number = re.compile("0|-?[1-9][0-9]*")
        whole = all(isinstance(c, str) and number.fullmatch(c) for c in self.classes)
        return self._coded([int(c) for c in self.classes]) if whole else self

    def without(self, classes: Iterable) -> Labels:
        """Return the labels with the rows of some classes left out; text may name them."""
        hidden = {_text(c) for c in classes}
        unknown = hidden - {_text(c) for c in self.classes}
        if unknown:
            hint = did_you_mean(min(unknown), self.classes) or "."
            raise ValueError(f"unseen class {min(unknown)!r} does not occur in the data{hint}")
        places = [i for i, c in enumerate(self.classes) if _text(c) in hidden]
        codes = np.where(np.isin(self.codes, places), LEFT_OUT, self.codes)
        return Labels(self.classes, codes.astype(np.int32))._coded()

    def mask_label(self, mark: Any) -> Labels:
        """Return the labels with none where they are a mark."""
        return self._coded([None if c == mark else c for c in self.classes])

    def align_to(self, known: Iterable) -> Labels:
        """Return the labels in the type of a table's: 3, 3.0 and "3" are the same class."""
        known = list(known)
        by_text = {_text(item): item for item in known}
        names = [by_text.get(_text(c), c) for c in self.classes]
        same = set(self.classes) <= set(known) or not set(names) <= set(known)
        return self if same else self._coded(names)

    def _coded(self, classes: list | None = None) -> Labels:
        """The same rows under new names of the classes: equal ones joined, unused ones gone."""
        names = self.classes if classes is None else classes
        used = np.bincount(self.codes[self.codes >= 0], minlength=len(names)) > 0
        position: dict[Any, int] = {}
        new = [
            position.setdefault(name, len(position)) if use and not is_missing(name) else -1
            for name, use in zip(names, used)
        ]
        lookup = np.array([*new, LEFT_OUT, NO_LABEL], dtype=np.int32)  # codes -2, -1: the last
        return Labels(list(position), lookup[self.codes])


def _text(label: Any) -> str:
    whole = isinstance(label, float) and label.is_integer()
    return str(int(label)) if whole else str(label)


def classes_in(texts: Iterable[str], classes: Iterable) -> list:
    """Return the classes that texts name: each is one class, or several as in a line of CSV."""
    known = {_text(label): label for label in classes}
    words: list[str] = []
    for text in texts:
        line = next(csv.reader(text.splitlines(), skipinitialspace=True), [])
        quoted = [word.strip() for word in line]  # "a, b",c as in a CSV file
        plain = split_names(text, known)
        parts = quoted if known.keys() >= set(quoted) else plain
        words += [text] if known.keys().isdisjoint(parts) else parts
    return [known.get(word, word) for word in words]


def encode_labels(y: Any, *, n_samples: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Return the sorted class labels (C,) and the code (n,) of each row's class.

    Labels may be of any one hashable type; missing labels and a mix of numbers and
    text are refused because they are nearly always a reading error.

    Examples
    --------
    >>> encode_labels(["cat", "ant", "cat"])
    (array(['ant', 'cat'], dtype='<U3'), array([1, 0, 1]))
    """
    y = _label_vector(y)
    if n_samples is not None and y.shape[0] != n_samples:
        raise ValueError(
            f"X has {n_samples} rows but y has {y.shape[0]} labels: inconsistent numbers "
            "of samples. Pass one label per row."
        )
    if y.dtype.kind == "O":
        return _encode_objects(y)
    if y.dtype.kind in "fc":
        if not np.isfinite(y).all():
            raise ValueError("Input y contains NaN or infinity. Drop the rows without a label.")
        for odd in y[y != np.floor(y)][:1]:
            found = f"y must hold class labels, found numbers such as {odd}"
            raise ValueError(f"Unknown label type: continuous. {found}.")
    classes, codes = np.unique(y, return_inverse=True)
    return classes, codes.reshape(-1)


def label_array(labels: list) -> np.ndarray:
    """Return labels as a 1-d array of numpy's own type if there is one, else of objects."""
    kinds = {type(label) for label in labels}
    if len(kinds) == 1 and kinds <= {str, bool, int, float}:
        found = np.array(labels)
        if int not in kinds or found.dtype.kind in "iu":  # of 64 bits
            return found
    return object_array(labels)


def object_array(items: list) -> np.ndarray:
    """Return items as they are, tuples and lists too, in a 1-d array of objects."""
    out = np.empty(len(items), dtype=object)
    out[:] = items
    return out


def is_missing(label: Any) -> bool:
    """Whether this stands for no label: None, NaN, pandas' NA and NaT."""
    if label is None or type(label).__name__ in ("NAType", "NaTType"):
        return True
    return isinstance(label, (float, np.floating)) and label != label


def _label_vector(y: Any) -> np.ndarray:
    if y is None:
        raise ValueError("This selector requires y to be passed, but the target y is None.")
    if isinstance(y, (list, tuple)) and any(isinstance(v, (tuple, frozenset)) for v in y):
        return label_array(list(y))
    if hasattr(y, "to_numpy"):
        y = y.to_numpy()
    if isinstance(y, list) and (len(kinds := {type(v) for v in y}) > 1 or kinds == {int}):
        y = label_array(y)  # np.asarray would turn [1, "a"] into text, [2**63, -5] into floats
    y = column_or_1d(y, warn=True)
    if y.shape[0] == 0:
        raise ValueError("y is empty. Pass one class label per row of X.")
    return y


def _encode_objects(y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    labels = [v.item() if isinstance(v, np.generic) else v for v in y]
    if any(map(is_missing, labels)):
        raise ValueError(
            "Input y contains NaN or None: missing labels. Drop those rows, or label them."
        )
    kinds = {"number" if isinstance(v, (int, float)) else type(v).__name__ for v in labels}
    if len(kinds) > 1:
        raise ValueError(
            f"y mixes labels of different types ({', '.join(sorted(kinds))}). "
            "Convert them to one type, for example y.astype(str)."
        )
    if kinds == {"number"}:
        found = np.array(labels)
        if found.dtype.kind in "iu" or any(isinstance(v, float) for v in labels):
            return encode_labels(found)  # none is beyond 64 bits
    try:
        ordered = sorted(set(labels))
    except TypeError:  # hashable but without an order: first come, first served
        ordered = list(dict.fromkeys(labels))
    position = {label: i for i, label in enumerate(ordered)}
    codes = np.fromiter((position[v] for v in labels), dtype=np.intp, count=len(labels))
    return label_array(ordered), codes
