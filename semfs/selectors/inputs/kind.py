"""The kinds of objects that users may pass as samples.

Only `classify` asks for the type of an object. After it, samples in memory, in files and on a
cluster are handled by the same code.
"""

from __future__ import annotations

import enum
from typing import Any

import numpy as np

from semfs._typing import DataLike
from semfs.io import reader as readers
from semfs.io.pairs import is_pairs
from semfs.io.registry import is_frame, is_stored
from semfs.rows import beyond_memory
from semfs.rows.dask_data import is_dask


class Kind(enum.Enum):
    """A kind of object that users may pass as samples."""

    MATRIX = "an array, list, sparse matrix, frame or device array, in memory"
    LABELED_FRAME = "a frame that holds the labels in one of its columns"
    STORED = "a path, AnnData or lazy frame, to be opened"
    MAPPED = "a large memory-mapped array, to be read in blocks"
    PAIRS = "(X, y) blocks"
    SOURCE = "a row source, opened already"
    DASK = "a Dask collection"


def classify(data: DataLike, y: Any = None) -> Kind:
    """Return the kind of the data. ``y`` helps to recognize frames and (X, y) blocks."""
    if beyond_memory(data):
        return Kind.SOURCE
    if is_dask(data):
        return Kind.DASK
    if is_stored(data):
        return Kind.STORED
    # a name in y is a column of the frame, unless y is a label for each row
    if is_frame(data) and isinstance(y, str):
        return Kind.LABELED_FRAME
    if isinstance(data, np.memmap):
        numeric = data.ndim == 2 and data.dtype.kind in "fiub"
        large = data.nbytes > readers.MEMORY // 2
        return Kind.MAPPED if numeric and large else Kind.MATRIX
    if y is None and is_pairs(data):
        return Kind.PAIRS
    return Kind.MATRIX
