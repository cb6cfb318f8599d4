"""Class labels of many rows: each distinct label once, and a small code per row."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs.attributes import align_attributes
from semfs.validation import label_array

__all__ = ["Labels"]

_CHUNK = 2**18


@dataclass(frozen=True, eq=False)
class Labels:
    """Labels of n rows; a million rows of ten classes take four megabytes.

    Attributes
    ----------
    categories : list
        The distinct labels, each with at least one row.
    codes : ndarray of int32 of shape (n,)
        Position of each row's label in `categories`; -1 where there is none.

    Examples
    --------
    >>> labels = Labels.of(["cat", "ant", " cat", "", None])
    >>> labels.categories, labels.codes.tolist()
    (['ant', 'cat'], [1, 0, 1, -1, -1])
    """

    categories: list
    codes: np.ndarray

    @classmethod
    def of(cls, values: Any) -> Labels:
        """Return the labels of a list or a 1-d array, which may lie on disk."""
        return cls.of_chunks(_chunks(values))

    @classmethod
    def of_chunks(cls, chunks: Iterable[list]) -> Labels:
        """Return the labels of one list after another."""
        position: dict[Any, int] = {}
        parts = [np.zeros(0, dtype=np.int32)]
        for chunk in chunks:
            codes = [position.setdefault(item, len(position)) for item in chunk]
            parts.append(np.array(codes, dtype=np.int32))
        return cls.coded(np.concatenate(parts), list(position))

    @classmethod
    def coded(cls, codes: np.ndarray, categories: Iterable) -> Labels:
        """Return tidy labels: blank is none, unused ones go, the rest is sorted if possible."""
        tidy = [_tidied(item) for item in categories]
        codes = np.asarray(codes)
        used = np.bincount(codes[codes >= 0], minlength=len(tidy)) > 0
        present = {item for item, use in zip(tidy, used) if use and item is not None}
        try:
            ordered = sorted(present)
        except TypeError:  # mixed types; refused later with the labels named
            ordered = list(present)
        position = {item: i for i, item in enumerate(ordered)}
        new = [position.get(item, -1) for item in tidy]
        lookup = np.array([*new, -1], dtype=np.int32)  # code -1 finds the last entry
        return cls(ordered, lookup[codes])

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def present(self) -> np.ndarray:
        """Mask (n,) of the rows that have a label."""
        return self.codes >= 0

    def values(self) -> np.ndarray:
        """Return the labels of the rows that have one, as an array."""
        return label_array(self.categories)[self.codes[self.present]]

    def whole_numbers(self) -> Labels:
        """Return the labels as numbers if all of them are written as such (7, not 007)."""
        if not all(isinstance(c, str) and _is_whole(c) for c in self.categories):
            return self
        return Labels.coded(self.codes, [int(c) for c in self.categories])

    def without(self, labels: set[str]) -> Labels:
        """Return the labels with the rows of some classes, named as text, unlabelled."""
        kept = [None if str(c) in labels else c for c in self.categories]
        return Labels.coded(self.codes, kept)

    def matched(self, known: Iterable) -> Labels:
        """Return the labels in the type of a table's: 3 and "3" are the same class.

        Raises the error of `align_attributes` if a label is not known.
        """
        known = list(known)
        if set(self.categories) <= set(known):
            return self
        by_text = {str(item): item for item in known}
        if all(str(c) in by_text for c in self.categories):
            return Labels.coded(self.codes, [by_text[str(c)] for c in self.categories])
        align_attributes({item: [0.0] for item in known}, label_array(self.categories))
        return self


def _chunks(values: Any) -> Iterator[list]:
    if not isinstance(values, np.ndarray):
        yield list(values)
        return
    for start in range(0, len(values), _CHUNK):
        yield values[start : start + _CHUNK].tolist()


def _tidied(item: Any) -> Any:
    item = item.item() if isinstance(item, np.generic) else item
    if item is None or item != item:
        return None
    return (item.strip() or None) if isinstance(item, str) else item


def _is_whole(text: str) -> bool:
    digits = text.removeprefix("-")
    return digits.isascii() and digits.isdigit() and (digits == "0" or digits[0] != "0")
