"""Dask arrays and data frames, as sources of samples and as lazy results."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from semfs.feature_names import check_unique_names
from semfs.io import reader as readers
from semfs.io.reader import working_dtype
from semfs.labels import UNLABELED, Labels
from semfs.rows.cluster import CHUNK_ROWS_PER_FEATURE, ChunkRows
from semfs.rows.plan import ReadPlan
from semfs.validation import check_weights, warn_user

if TYPE_CHECKING:
    from semfs._typing import Indices, Matrix


#: Objects of Dask, which is imported only if it is used.
DaskArray: TypeAlias = Any
DaskFrame: TypeAlias = Any


def is_dask(X: Any) -> bool:
    """Return whether X is a Dask array, DataFrame or Series."""
    return hasattr(X, "__dask_graph__")


def _is_frame(X: Any) -> bool:
    return hasattr(X, "columns")


def dask_rows(
    X: DaskArray | DaskFrame,
    y: Any,
    sample_weight: Any = None,
    *,
    memory: int | None = None,
) -> ChunkRows:
    """Make a source of a Dask array or DataFrame with labels.

    Parameters
    ----------
    X : Dask array of shape (n, d), dense or of sparse blocks, or Dask DataFrame
        The numeric columns of a DataFrame are features. Others are ignored with a warning.
    y : array-like, Dask array or Series of shape (n,), or str
        Labels, or the name of the column of the DataFrame that holds them.
    sample_weight : array-like, Dask array or Series of shape (n,), optional
        Weights of the samples.
    memory : int, optional
        Memory in bytes for the d × d scatter matrix. By default 512 MiB.
    """
    names = None
    if _is_frame(X):
        X, y, names = _split_frame(X, y)
    # only a DataFrame has columns that a name could mean
    if y is None or isinstance(y, str):
        raise ValueError("This selector requires y to be passed: an array with the labels.")
    return _chunk_rows(X, y, sample_weight, names, memory)


def unlabeled_dask_rows(X: DaskArray | DaskFrame, *, memory: int | None = None) -> ChunkRows:
    """Make a source of unlabeled samples of a Dask array or DataFrame."""
    names = None
    if _is_frame(X):
        X, _, names = _split_frame(X, None)
    X = _with_lengths(X)
    # labels that the collection may have are not looked at
    labels = Labels([], np.full(X.shape[0], UNLABELED, dtype=np.int32))
    return _chunk_rows(X, labels, None, names, memory)


def _chunk_rows(
    X: DaskArray,
    y: Any,
    sample_weight: Any,
    names: list[str] | None,
    memory: int | None,
) -> ChunkRows:
    """Return a Dask array with labels in chunks of whole rows."""
    if getattr(X, "ndim", None) != 2:
        raise ValueError(
            f"X must be a matrix, got a Dask {type(X).__name__} of shape {X.shape}."
        )
    X = _whole_rows(X)
    lengths = X.chunks[0]
    if sample_weight is not None and not is_dask(sample_weight):
        sample_weight = check_weights(sample_weight, X.shape[0])
    # labels in memory are encoded here, once; those of Dask stay on the workers
    labels = None
    label_chunks = None
    if is_dask(y):
        label_chunks = _chunked_like(lengths, y, "y")
    else:
        labels = Labels.of(y)
        _check_length(lengths, len(labels), "y")
    weight_chunks = None
    if sample_weight is not None:
        weight_chunks = _chunked_like(lengths, sample_weight, "sample_weight")
    return ChunkRows(
        X.to_delayed().ravel().tolist(),
        lengths,
        label_chunks,
        weight_chunks,
        width=int(X.shape[1]),
        dtype=X.dtype,
        names=names,
        labels=labels,
        plan=ReadPlan(memory=readers.MEMORY if memory is None else memory),
    )


def _split_frame(frame: DaskFrame, y: Any) -> tuple[DaskArray, Any, list[str]]:
    """Return the features of a DataFrame as an array, the labels, and the feature names."""
    columns = frame.columns.tolist()
    check_unique_names(columns)
    if isinstance(y, str) and y not in columns:
        shown = ", ".join(map(str, columns[:10]))
        raise ValueError(
            f"X has no column {y!r} with the labels. Its first columns are: {shown}."
        )
    candidates = [c for c in columns if not (isinstance(y, str) and c == y)]
    features = [c for c in candidates if frame.dtypes[c].kind in "fiub"]
    ignored = [str(c) for c in candidates if c not in features]
    if ignored:
        shown = ", ".join(ignored[:5])
        if len(ignored) > 5:
            shown += f" and {len(ignored) - 5} more"
        warn_user(f"Ignored non-numeric columns: {shown}.")
    if not features:
        raise ValueError(f"X has no column of numbers, out of {len(columns)}.")
    dtype = working_dtype(*(frame.dtypes[c] for c in features))
    # one pass tells how many rows the partitions have, for the features and for the labels
    lengths = tuple(frame.map_partitions(len).compute().tolist())
    X = frame[features].astype(dtype).to_dask_array(lengths=lengths)
    if isinstance(y, str):
        y = frame[y].to_dask_array(lengths=lengths)
    return X, y, [str(c) for c in features]


def _whole_rows(X: DaskArray) -> DaskArray:
    """Return the array in chunks of whole rows and known lengths, joining small chunks."""
    d = X.shape[1]
    X = _with_lengths(X.rechunk({1: d}))
    lengths = X.chunks[0]
    affordable = readers.MEMORY // 4 // max(1, d * X.dtype.itemsize)
    wanted = min(CHUNK_ROWS_PER_FEATURE * d, affordable)
    smallest = min(lengths[:-1], default=wanted)
    # the last chunk may be short, and chunks of half the length are not worth moving
    if smallest >= wanted // 2:
        return X
    return X.rechunk({0: max(wanted, *lengths)})


def _with_lengths(array: DaskArray) -> DaskArray:
    """Return a Dask array whose chunks have known lengths."""
    unknown = np.isnan(array.chunks[0]).any()
    return array.compute_chunk_sizes() if unknown else array


def _chunked_like(lengths: tuple[int, ...], values: Any, name: str) -> list[Any]:
    """Return labels or weights in chunks of these lengths, lazily if they are lazy."""
    if not is_dask(values):
        values = np.asarray(values)
        _check_length(lengths, len(values), name)
        return np.split(values, np.cumsum(lengths)[:-1])
    if hasattr(values, "to_dask_array"):  # a Series
        values = values.to_dask_array(lengths=True)
    values = _with_lengths(values)
    _check_length(lengths, len(values), name)
    return values.rechunk({0: lengths}).to_delayed().ravel().tolist()


def _check_length(lengths: tuple[int, ...], found: int, name: str) -> None:
    n = sum(lengths)
    if found != n:
        raise ValueError(
            f"X has {n} rows, but {name} has {found} values. Pass one value per row."
        )


def lazy_columns(
    X: DaskArray | DaskFrame,
    columns: Indices,
    names: Sequence[str] | None = None,
) -> DaskArray | DaskFrame:
    """Return the ``columns`` (k,) of X lazily, as a Dask array or DataFrame.

    ``names`` (d,) are those of all features. Columns of a DataFrame are found by name.
    """
    if not _is_frame(X):
        return X[:, columns]
    if names is None:
        return X[[X.columns[j] for j in columns]]
    return X[_frame_columns(X, [names[j] for j in columns])]


def lazy_rows(
    X: DaskArray | DaskFrame,
    function: Callable[[Any], np.ndarray],
    *,
    dtype: Any,
    names: Sequence[str] | None = None,
    width: int | None = None,
) -> DaskArray:
    """Apply a function to blocks of rows of X lazily, as Dask array (n,) or (n, width).

    ``function`` takes matrices (r, d). For a DataFrame, these have the columns ``names`` (d,).
    """
    if _is_frame(X):
        if names is not None:
            X = X[_frame_columns(X, names)]
        X = X.to_dask_array()
    # the function needs whole rows
    X = X.rechunk({1: X.shape[1]})
    if width is None:
        return X.map_blocks(function, dtype=dtype, drop_axis=1, meta=np.empty(0, dtype))
    chunks = (X.chunks[0], (width,))
    return X.map_blocks(function, dtype=dtype, chunks=chunks, meta=np.empty((0, 0), dtype))


def dask_blocks(
    X: DaskArray | DaskFrame, columns: Indices, n_features: int, names: Sequence[str] | None
) -> Iterator[Matrix]:
    """Yield ``columns`` (k,) of X in memory, one part of its rows after the other.

    ``names`` (d,) are those of all ``n_features``. Columns of a DataFrame are found by name.
    """
    if not _is_frame(X) and X.shape[1] != n_features:
        raise ValueError(
            f"X has {X.shape[1]} features, but the selector was fitted with {n_features}."
        )
    lazy: Any = lazy_columns(X, columns, names)
    if _is_frame(lazy):
        for part in range(lazy.npartitions):
            yield lazy.partitions[part].compute().to_numpy()
        return
    lazy = lazy.rechunk({1: lazy.shape[1]})
    for part in range(len(lazy.chunks[0])):
        yield lazy.blocks[part].compute()


def _frame_columns(X: DaskFrame, names: Sequence[str]) -> list[Any]:
    """Return the columns of a DataFrame that have these names."""
    by_name = {str(column): column for column in X.columns}
    missing = [name for name in names if name not in by_name]
    if missing:
        raise ValueError(
            f"X lacks {len(missing)} of the features that the selector was fitted with, for "
            f"example {missing[0]!r}. Pass data that have them."
        )
    return [by_name[name] for name in names]
