"""Samples on a Dask cluster: partial sums on the workers, added up as a tree.

Only sums travel over the network: counts, class means, d × d matrices or a few Gram columns,
and a sample of sparse rows. If a worker is lost, another one computes its part again.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self, TypeAlias

import numpy as np

from semfs.arrays import batches
from semfs.feature_names import check_unique_names
from semfs.io import reader as readers
from semfs.io.reader import working_dtype
from semfs.labels import UNLABELED, Labels
from semfs.rows.blocks import BlockSource, OutOfCoreRows, stacked
from semfs.rows.memory import N_SAMPLED_SPARSE
from semfs.rows.plan import ReadPlan
from semfs.rows.sums import Accumulator
from semfs.rows.workers import (
    Client,
    ClusterError,
    Delayed,
    call_chunk_method,
    call_method,
    compute_list,
    connect,
    sum_of,
)
from semfs.system import import_optional
from semfs.validation import check_weights

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Matrix
    from semfs.rows.source import ClusterModel

__all__ = [
    "ChunkRows",
    "ClusterError",
    "RangeRows",
    "connect",
    "dask_blocks",
    "dask_rows",
    "is_dask",
    "lazy_columns",
    "lazy_rows",
    "on_cluster",
    "unlabeled_dask_rows",
]

#: Objects of Dask, which is imported only if it is used.
DaskArray: TypeAlias = Any
DaskFrame: TypeAlias = Any

# Rows per feature of a part, for chunks in memory and for ranges of a file. Parts are so long
# that adding up d × d sums takes little time beside multiplying, but so short that little is
# computed again if a worker is lost.
CHUNK_ROWS_PER_FEATURE = 2
RANGE_ROWS_PER_FEATURE = 8
# Ranges of a file per thread of the cluster, so that none waits long for the last one.
PARTS_PER_THREAD = 4


# ---- sources --------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterRows(OutOfCoreRows):
    """Base of sources whose parts are summed up by workers."""

    client: Client = None  # None: the scheduler that Dask would use

    @property
    def fits_in_memory(self) -> bool:
        """Samples on a cluster are not loaded into one process."""
        return False

    @property
    @abstractmethod
    def bounds(self) -> list[slice]:
        """Row numbers of the parts."""

    @abstractmethod
    def part_task(self, index: int, method: str, **options: Any) -> Delayed:
        """Return the task to call a method of a part, as a `BlockSource`, on a worker."""

    def load(self) -> tuple[Matrix, Labels, Floats | None]:
        """Refuse to load the samples: they are too many for this process."""
        raise ValueError("samples on a cluster are not loaded into one process.")

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all parts, and a share of the sample from each."""
        # parts are of similar length, so that each gives the same number of samples
        share = -(-n_sampled // max(1, len(self.bounds)))
        sums = self._sum_of_parts("accumulate", matrix=matrix, precise=precise, n_sampled=share)
        return Accumulator(self.n_features, matrix=matrix) if sums is None else sums

    def gram_columns(
        self,
        columns: Indices,
        mean: Float64,
        total: float,
        *,
        far: bool,
        precise: bool,
    ) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        return self._sum_of_parts(
            "gram_columns", columns=columns, mean=mean, total=total, far=far, precise=precise
        )

    def rows_at(self, rows: Indices) -> Matrix:
        """Return samples by their row numbers, which ascend."""
        parts = self._parts_of_rows("rows_at", rows)
        return stacked(parts, self.n_features)

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster of each sample, by row numbers that ascend, and their batches."""
        parts = self._parts_of_rows("clusters_at", rows, batches, model=model)
        return np.concatenate([np.zeros(0, dtype=np.intp), *parts])

    def _parts_of_rows(
        self, method: str, rows: Indices, batches: Indices | None = None, **options: Any
    ) -> list[Any]:
        """Call a method of each part that has some of the ascending ``rows``."""
        tasks = []
        for index, part in enumerate(self.bounds):
            # parts without any of the rows are not read
            first, last = np.searchsorted(rows, [part.start, part.stop])
            if first < last:
                # row numbers of a part begin with 0
                inside = rows[first:last] - part.start
                if batches is not None:
                    options["batches"] = batches[first:last]
                tasks.append(self.part_task(index, method, rows=inside, **options))
        return compute_list(tasks, self.client)

    def _sum_of_parts(self, method: str, **options: Any) -> Any:
        """Call a method of every part, and add up the results as a tree."""
        tasks = [self.part_task(i, method, **options) for i in range(len(self.bounds))]
        return sum_of(tasks, self.client)


@dataclass(frozen=True, eq=False)
class RangeRows(ClusterRows):
    """Samples of a file of which each worker reads ranges; make it with `on_cluster`."""

    source: BlockSource
    ranges: list[slice]

    @property
    def bounds(self) -> list[slice]:
        """Row numbers of the parts."""
        return self.ranges

    @property
    def n_rows(self) -> int | None:
        return self.source.n_rows

    @property
    def n_features(self) -> int:
        return self.source.n_features

    @property
    def row_bytes(self) -> int:
        return self.source.row_bytes

    @property
    def feature_names(self) -> list[str] | None:
        return self.source.feature_names

    @property
    def eps(self) -> float:
        return self.source.eps

    def forms_matrix(self, n_select: int | None) -> bool:
        """Whether to form the d × d matrix in order to select ``n_select`` features."""
        return self.source.forms_matrix(n_select)

    def sample_weights(self) -> Floats | None:
        """Return the weights (n,) of the samples, None if all weigh the same."""
        return self.source.sample_weights()

    def labels_known(self) -> Self:
        """Return the same source: the labels of a file are known."""
        return self

    def with_labels(self, labels: Labels) -> Self:
        """Return the source with other labels (n,)."""
        return replace(self, source=self.source.with_labels(labels), labels=labels)

    def part_task(self, index: int, method: str, **options: Any) -> Delayed:
        """Return the task to call a method of a range on a worker."""
        rows = self.ranges[index]
        # what is sent is the path of the file and the labels of the range
        part = self.source.part(rows.start, rows.stop)
        call = import_optional("dask").delayed(call_method, pure=False)
        return call(part, method, options)


@dataclass(frozen=True, eq=False)
class ChunkRows(ClusterRows):
    """Samples of a Dask array, in chunks of rows; make it with `dask_rows`."""

    chunks: list[Delayed]  # X (r, d) each
    lengths: tuple[int, ...]  # rows of each
    label_chunks: list[Any] | None  # labels (r,) each; None if `labels` are known
    weight_chunks: list[Any] | None  # weights (r,) each
    width: int
    dtype: Any
    names: list[str] | None = None  # of the features

    @property
    def bounds(self) -> list[slice]:
        """Row numbers of the chunks."""
        ends = np.cumsum(self.lengths).tolist()
        return [slice(end - n, end) for end, n in zip(ends, self.lengths)]

    @property
    def n_rows(self) -> int:
        return sum(self.lengths)

    @property
    def n_features(self) -> int:
        return self.width

    @property
    def feature_names(self) -> list[str] | None:
        return self.names

    @property
    def row_bytes(self) -> int:
        return self.width * working_dtype(self.dtype).itemsize

    @property
    def eps(self) -> float:
        return float(np.finfo(working_dtype(self.dtype)).eps)

    def forms_matrix(self, n_select: int | None) -> bool:
        """Whether to form the d × d matrix: if it fits, as chunks may be costly to make."""
        return n_select is None or self.plan.has_room_for_matrix(self.n_features)

    def sample_weights(self) -> Floats | None:
        """Return the weights (n,) of the samples, computed on the workers, or None."""
        if self.weight_chunks is None:
            return None
        return np.concatenate(compute_list(self.weight_chunks, self.client))

    def labels_known(self) -> Self:
        """Return the source with its labels, which are computed on the workers."""
        if self.labels is not None:
            return self
        assert self.label_chunks is not None
        values: list[Any] = []
        for chunk in compute_list(self.label_chunks, self.client):
            values += Labels.of(chunk).array().tolist()
        return self.with_labels(Labels.of(values))

    def with_labels(self, labels: Labels) -> Self:
        """Return the source with other labels (n,)."""
        return replace(self, labels=labels, label_chunks=None)

    def part_task(self, index: int, method: str, **options: Any) -> Delayed:
        """Return the task to call a method of a chunk on a worker."""
        y: Any = None
        if self.labels is not None:
            y = self.labels[self.bounds[index]]
        elif self.label_chunks is not None:
            y = self.label_chunks[index]
        weights = None if self.weight_chunks is None else self.weight_chunks[index]
        call = import_optional("dask").delayed(call_chunk_method, pure=False)
        return call(self.chunks[index], y, weights, method, options)


# ---- Dask arrays and data frames ------------------------------------------------------


def is_dask(X: Any) -> bool:
    """Whether X is a Dask array, DataFrame or Series."""
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
    """Return a Dask array or DataFrame with labels as a source.

    Parameters
    ----------
    X : Dask array of shape (n, d), dense or of sparse blocks, or Dask DataFrame
        Columns of numbers of a DataFrame are features; others are ignored with a warning.
    y : array-like, Dask array or Series of shape (n,), or str
        Labels, or the name of the column of the DataFrame that holds them.
    sample_weight : array-like, Dask array or Series of shape (n,), optional
        Weights of the samples.
    memory : int, optional
        Bytes for the d × d scatter matrix, by default 512 MiB.
    """
    names = None
    if _is_frame(X):
        X, y, names = _split_frame(X, y)
    # only a DataFrame has columns that a name could mean
    if y is None or isinstance(y, str):
        raise ValueError("This selector requires y to be passed: an array with the labels.")
    return _chunk_rows(X, y, sample_weight, names, memory)


def unlabeled_dask_rows(X: DaskArray | DaskFrame, *, memory: int | None = None) -> ChunkRows:
    """Return a Dask array or DataFrame as a source of unlabeled samples."""
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
        raise ValueError(f"X has no column {y!r} with the labels; its first ones are: {shown}.")
    candidates = [c for c in columns if not (isinstance(y, str) and c == y)]
    features = [c for c in candidates if frame.dtypes[c].kind in "fiub"]
    ignored = [str(c) for c in candidates if c not in features]
    if ignored:
        shown = ", ".join(ignored[:5])
        if len(ignored) > 5:
            shown += f" and {len(ignored) - 5} more"
        warnings.warn(f"Ignored non-numeric columns: {shown}.", stacklevel=4)
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
    """Return the array in chunks of whole rows and known lengths; small ones are joined."""
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
    """Return labels or weights in chunks of these lengths, lazily if they are Dask's."""
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
        raise ValueError(f"X has {n} rows but {name} has {found} values.")


def lazy_columns(
    X: DaskArray | DaskFrame,
    columns: Indices,
    names: Sequence[str] | None = None,
) -> DaskArray | DaskFrame:
    """Return the ``columns`` (k,) of X as a Dask array or DataFrame; nothing is computed.

    ``names`` (d,) are those of all features; columns of a DataFrame are found by name.
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
    """Return function(rows of X) as a Dask array (n,) or (n, width); nothing is computed.

    ``function`` takes matrices (r, d); of a DataFrame they have the columns ``names`` (d,).
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
    """Yield ``columns`` (k,) of X, one part of its rows after the other, in memory.

    ``names`` (d,) are those of all ``n_features``, by which columns of a DataFrame are found.
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
            f"X lacks {len(missing)} of the features that were fitted, the first is "
            f"{missing[0]!r}. Pass data that have them."
        )
    return [by_name[name] for name in names]


# ---- files ----------------------------------------------------------------------------


def on_cluster(
    source: BlockSource, client: Client, *, min_rows: int | None = None
) -> BlockSource | RangeRows:
    """Return a source as samples on a cluster, whose workers read ranges of the same file.

    A range has at least ``min_rows`` rows, by default eight per feature. A source that fits
    into memory is returned as it is, because reading it here takes less time.
    """
    if source.fits_in_memory:
        return source
    n = source.n_rows
    if n is None or not source.reader.shared:
        raise ValueError(
            f"a cluster needs data that each worker can read in part; {source.reader.path} is "
            "not. Convert it to .h5ad (by rows), Parquet (row groups of 64 MB at most) or .npy."
        )
    # without workers yet, the ranges are those of one thread
    threads = sum(client.nthreads().values()) or 1
    if min_rows is None:
        min_rows = RANGE_ROWS_PER_FEATURE * source.n_features
    share = -(-n // (PARTS_PER_THREAD * threads))
    # long ranges, but at least one for each thread
    wanted = min(max(share, min_rows), -(-n // threads))
    # ranges end where blocks end
    step = source.rows_per_block(matrix=True)
    ranges = list(batches(n, -(-wanted // step) * step))
    return RangeRows(
        source,
        ranges,
        labels=source.labels,
        batches=source.batches,
        plan=source.plan,
        client=client,
    )
