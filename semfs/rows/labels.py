"""Class labels of many rows: each distinct label once, and a small code per row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs.validation import is_missing, label_array

__all__ = ["LEFT_OUT", "NO_LABEL", "Labels"]

#: Codes of rows without a label, and of rows that must not be used at all.
NO_LABEL, LEFT_OUT = -1, -2


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of n rows; a million rows of ten classes take four megabytes.

    Attributes
    ----------
    classes : list
        Distinct labels.
    codes : ndarray of int32 of shape (n,)
        Position of each row's label in `classes`; -1 without one, -2 for rows left out.

    Examples
    --------
    >>> labels = Labels.of(["cat", "ant", " cat", "", None]).tidied()
    >>> labels.classes, labels.codes.tolist()
    (['cat', 'ant'], [0, 1, 0, -1, -1])
    """

    classes: list
    codes: np.ndarray

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
    def n_unlabelled(self) -> int:
        """Number of rows without a label."""
        return int((self.codes == NO_LABEL).sum())

    def array(self) -> np.ndarray:
        """Return the label of each row, None where there is none."""
        labels = label_array(self.classes if (self.codes >= 0).all() else [*self.classes, None])
        return labels[np.maximum(self.codes, NO_LABEL)]

    def used(self) -> Labels:
        """Return the labels of the rows that have one."""
        return Labels(self.classes, self.codes[self.codes >= 0])

    def tidied(self) -> Labels:
        """Return labels as people mean them: text without blanks around it, blank is none."""
        return self._coded(
            [c.strip() or None if isinstance(c, str) else c for c in self.classes]
        )

    def whole_numbers(self) -> Labels:
        """Return the labels as numbers if all of them are written as such (7, not 007)."""
        if not all(isinstance(c, str) and is_whole(c) for c in self.classes):
            return self
        return self._coded([int(c) for c in self.classes])

    def without(self, classes: Iterable) -> Labels:
        """Return the labels with the rows of some classes left out; text may name them."""
        hidden = {_text(c) for c in classes}
        unknown = hidden - {_text(c) for c in self.classes}
        if unknown:
            raise ValueError(f"unseen class {min(unknown)!r} does not occur in the data.")
        places = [i for i, c in enumerate(self.classes) if _text(c) in hidden]
        codes = np.where(np.isin(self.codes, places), LEFT_OUT, self.codes)
        return Labels(self.classes, codes.astype(np.int32))._coded()

    def matched(self, known: Iterable) -> Labels:
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


def is_whole(text: str) -> bool:
    """Whether a text is a whole number as people write it (7, not 007)."""
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
