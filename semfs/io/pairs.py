"""(X, y) blocks from an iterable, or from a function that returns a new iterator."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import Floats, LabelsLike
from semfs.arrays import as_matrix
from semfs.io.reader import Blocks, Reader
from semfs.io.sparse import INDEX_BYTES


def is_pairs(data: object) -> bool:
    """Return whether data are (X, y) blocks: an iterator, a function, or a list of pairs."""
    if isinstance(data, (list, tuple)):
        first = data[0] if len(data) else None
        if not isinstance(first, (list, tuple)) or len(first) != 2:
            return False
        return len(getattr(first[0], "shape", ())) == 2
    if callable(data):
        return True
    # arrays and frames can be iterated too
    is_array = any(hasattr(data, name) for name in ("shape", "__array__", "__len__"))
    return hasattr(data, "__iter__") and not is_array


class PairsReader(Reader):
    """A reader of (X, y) pairs. The first pair shows the number and type of columns.

    An iterator can be read only once. A list, or a function that returns a new iterator, can be
    read several times.
    """

    shared = False

    def __init__(self, blocks: Any) -> None:
        """Take the first pair. Raise unless it is a matrix and its labels."""
        self.source = blocks
        # an iterator is its own iterator; a list gives a new one each time
        self.rereadable = callable(blocks) or iter(blocks) is not iter(blocks)
        iterator = self._fresh()
        first = next(iterator, None)
        if first is None:
            raise ValueError("found no blocks. Pass (X, y) pairs.")
        self.waiting = itertools.chain([first], iterator)  # for what is read only once
        X, _ = self._pair(first)
        self.n_features = X.shape[1]
        self.dtype = X.dtype
        self.sparse = sp.issparse(X)
        if self.sparse:
            value_bytes = X.dtype.itemsize + INDEX_BYTES
            self.row_bytes = 1 + X.nnz * value_bytes // X.shape[0]
        else:
            self.row_bytes = X.shape[1] * X.dtype.itemsize
        columns = getattr(first[0], "columns", None)
        if columns is not None:
            self.feature_names = [str(name) for name in columns]

    def _fresh(self) -> Iterator[Any]:
        """Return an iterator that starts at the first block."""
        found = self.source() if callable(self.source) else self.source
        if not isinstance(found, Iterable):
            raise TypeError(f"blocks must be (X, y) pairs, got {type(found).__name__}.")
        return iter(found)

    def _pair(self, pair: object) -> tuple[Any, LabelsLike]:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"blocks must be (X, y) pairs, got {type(pair).__name__}.")
        X, y = pair
        return as_matrix(X), y

    def some_values(self) -> Floats:
        """Return nothing: an iterator can be read only once."""
        return np.zeros(0)

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels). Blocks have the sizes that the user gives them."""
        first = 0
        pairs = self._fresh() if self.rereadable else self.waiting
        for X, y in map(self._pair, pairs):
            # the first block decides: all are sparse, or all are dense
            if sp.issparse(X) != self.sparse:
                X = sp.csr_array(X) if self.sparse else X.toarray()
            yield first, X, y
            first += X.shape[0]
