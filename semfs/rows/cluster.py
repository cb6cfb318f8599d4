"""Moments on a Dask cluster: partial sums on the workers, added up as a tree.

The only module that knows of Dask. What travels are counts, class means and d × d sums (or a
few Gram columns), never rows; the solver runs where `fit` was called. A worker that is lost
costs the part it was at, which another one computes again.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semfs.files import need
from semfs.rows.blocks import (
    Block,
    BlockSource,
    ClassWeights,
    StayingRows,
    add_block,
    add_columns,
    check_budget,
    check_rows,
    wants_matrix,
    warn_of_texts,
    warn_of_unlabelled,
)
from semfs.rows.labels import Labels
from semfs.rows.memory import as_matrix, libraries
from semfs.rows.readers import MEMORY, array_reader
from semfs.rows.sums import Accumulator
from semfs.validation import check_weights

__all__ = ["ClusterError", "ClusterRows", "connect", "dask_rows", "on_cluster"]

# Sums of this many parts are added up by one task.
FAN_IN = 4
# Parts should be so long that multiplying them takes much longer than adding up their d × d
# sums: this many rows per feature at least, for chunks (held in memory) and ranges of a file;
# but so short that losing one costs little.
ROWS_PER_FEATURE = 2
RANGE_ROWS_PER_FEATURE = 8
PARTS_PER_THREAD = 4
# Seconds after which waiting is given up: for a scheduler to answer, for any worker to come.
SCHEDULER_PATIENCE = 20.0
PATIENCE = 60.0

OUT_OF_MEMORY = (
    "Workers that die have usually run out of memory: use smaller chunks, or workers with more "
    "memory, and see their logs."
)


class ClusterError(ConnectionError):
    """The cluster could not finish; the message says why and what to do."""


@dataclass(frozen=True)
class Chunk:
    """A chunk of rows with labels and weights, as Dask hands it to a worker."""

    X: Any
    y: Any
    weights: Any = None

    def __sizeof__(self) -> int:
        """Bytes, which a cluster takes into account."""
        return object.__sizeof__(self) + getattr(self.X, "nbytes", 0)

    def source(self) -> BlockSource:
        """Return the rows as a source of one block."""
        weights = None
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64).reshape(-1)
        reader = array_reader(as_matrix(self.X))
        rows = max(1, self.X.shape[0])
        return BlockSource(reader, Labels.of(self.y), weights, block_rows=rows)


def _source(part: BlockSource | Chunk, class_weight: dict | None) -> BlockSource | None:
    """The rows of a part; None if there are none."""
    if isinstance(part, Chunk):
        if part.X.shape[0] == 0:
            return None
        part = part.source()
    return replace(part, class_weight=class_weight)


@dataclass(frozen=True, eq=False)
class ClusterRows(StayingRows):
    """Rows on a cluster; make it with `dask_rows` or `on_cluster`."""

    parts: list[Any]
    n_features: int
    feature_names: list[str] | None
    class_weight: dict | None = None
    memory: int = MEMORY
    client: Any = None
    source: BlockSource | None = None  # of which the parts are ranges

    fits = False

    def weighted(self, class_weights: ClassWeights, *, balanced: bool) -> ClusterRows:
        """Return the rows with class weights, given a function of classes and their counts."""
        counts = self._reduce(_label_weights, _sum_counters) if balanced else {}
        return replace(self, class_weight=class_weights(counts))

    def sums(
        self, *, n_select: int | None, precise: bool = False, verbose: int = 0
    ) -> tuple[Accumulator, ClusterRows | None]:
        """Return the sums, and the rows if they must be read again for Gram columns.

        Files are read as often as one machine would read them; chunks, which may be costly
        to make, once if there is room for d × d.
        """
        if self.source is not None:
            matrix = wants_matrix(self.source, n_select)
        else:
            matrix = n_select is None or 8 * self.n_features**2 <= self.memory
            if n_select is None:
                check_budget(self.n_features, self.memory, None)
        sums = self._reduce(_part_sums, _merged, self.class_weight, matrix, precise)
        return check_rows(sums), None if matrix else self

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean."""
        options = {"far": far, "precise": precise}
        out = self._reduce(_part_columns, _sum, self.class_weight, columns, mean, options)
        return np.array(out).T  # what came over the network may be read-only

    def scatter(
        self, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Refuse: rows are kept only if the matrix is not wanted."""
        raise ValueError(
            "these rows were summed up without their scatter matrix. Fit with "
            'solver="alternating" from the beginning.'
        )

    def _reduce(self, function: Callable, add: Callable, *arguments: Any) -> Any:
        """Apply a function to every part and add up the results as a tree."""
        import dask

        partial, total = dask.delayed(function, pure=False), dask.delayed(add, pure=False)
        level = [partial(part, *arguments) for part in self.parts]
        while True:
            level = [total(level[i : i + FAN_IN]) for i in range(0, len(level), FAN_IN)]
            if len(level) == 1:
                return _compute(level[0], self.client)


# ---- what workers do ----------------------------------------------------------------


def _blocks(part: Any, class_weight: dict | None, *, matrix: bool) -> Iterator[Block]:
    """The rows of a part, while BLAS has one thread."""
    source = _source(part, class_weight)
    if source is not None:
        with libraries().limit(limits=1, user_api="blas"):
            yield from source.blocks(matrix=matrix)


def _part_sums(
    part: Any, class_weight: dict | None, matrix: bool, precise: bool
) -> Accumulator | None:
    """Sums over a part; None if it has no rows."""
    sums = None
    for block in _blocks(part, class_weight, matrix=matrix):
        if sums is None:
            sums = Accumulator(block.X.shape[1], matrix=matrix, precise=precise)
        add_block(sums, block, overwrite=isinstance(part, BlockSource) and part.reader.ours)
    return sums


def _merged(parts: Sequence[Accumulator | None]) -> Accumulator:
    """Sums over all parts, in a copy: Dask may want the first one again."""
    found = [part for part in parts if part is not None]
    if not found:
        return Accumulator(0)
    with libraries().limit(limits=1, user_api="blas"):
        sums = found[0] if len(found) == 1 else copy.deepcopy(found[0])
        for part in found[1:]:
            sums.merge(part)
    return sums


def _part_columns(
    part: Any, class_weight: dict | None, columns: np.ndarray, mean: np.ndarray, options: dict
) -> np.ndarray:
    """What a part adds to rows (b, d) of the scatter matrix."""
    out, weight, sparse = np.zeros((len(columns), len(mean))), 0.0, False
    for block in _blocks(part, class_weight, matrix=False):
        add_columns(out, block, columns, mean, **options)
        n = block.X.shape[0] if block.weights is None else float(block.weights.sum())
        weight, sparse = weight + n, sparse or not isinstance(block.X, np.ndarray)
    # Sparse rows are multiplied as they are; the mean's part is taken off afterwards.
    return out - weight * np.outer(mean[columns], mean) if sparse else out


def _label_weights(part: Any) -> Counter:
    """Total weight of each class in a part."""
    source = _source(part, None)
    return Counter() if source is None else source.label_weights()


def _sum(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)


def _sum_counters(parts: Sequence[Counter]) -> Counter:
    return sum(parts, Counter())


# ---- waiting for the cluster --------------------------------------------------------


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address such as ``tcp://host:8786``."""
    distributed = need("distributed", "dask", what="A cluster")
    try:
        return distributed.Client(address, timeout=SCHEDULER_PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        raise ClusterError(
            f"no scheduler answers at {address} ({error or 'timeout'}). Start one with: "
            "dask scheduler"
        ) from error


def _compute(task: Any, client: Any) -> Any:
    import dask

    if client is None:
        get = dask.base.get_scheduler(collections=[task])
        client = getattr(get, "__self__", None)  # a distributed.Client, if one is active
    if client is None or not hasattr(client, "compute"):
        with libraries().limit(limits=1, user_api="blas"):  # tasks are threads of this process
            return dask.compute(task)[0]
    return _wait(client, client.compute(task))


def _wait(client: Any, future: Any) -> Any:
    """Return the result, or an error that says what happened to the workers."""
    from distributed import KilledWorker, wait

    began, lonely = _n_workers(client), 0.0
    while True:
        try:
            wait(future, timeout=2.0)
            return future.result()
        except KilledWorker as error:
            last = getattr(error.last_worker, "address", error.last_worker)
            raise ClusterError(
                "a part of the data was given up after the workers computing it died "
                f"{error.allowed_failures + 1} times, the last one at {last}. {OUT_OF_MEMORY}"
            ) from None
        except TimeoutError:
            lonely = 0.0 if _n_workers(client) else lonely + 2.0
        if lonely >= PATIENCE or client.status == "closed":
            future.cancel()
            raise ClusterError(
                f"the cluster has had no worker for {lonely:.0f} s. "
                + (OUT_OF_MEMORY if began else "Start some: dask worker SCHEDULER-ADDRESS")
            )


def _n_workers(client: Any) -> int:
    return len(client.scheduler_info()["workers"]) if client.status == "running" else 0


# ---- from Dask collections and files to parts ---------------------------------------


def dask_rows(X: Any, y: Any, sample_weight: Any = None) -> ClusterRows:
    """Return a Dask array or DataFrame with labels as rows on a cluster.

    ``y`` is a Dask array or series, in-memory labels, or the name of a column of the frame.
    Columns of a frame that hold no numbers are left out.
    """
    names = None
    if hasattr(X, "columns"):
        X, y = _features_and_labels(X, y)
        names = [str(name) for name in X.columns]
    elif X.ndim != 2:
        raise ValueError(f"X must be a matrix, got a Dask array of shape {X.shape}.")
    if y is None or isinstance(y, str):
        raise ValueError("This selector requires y to be passed: labels, or a column's name.")
    here = not all(hasattr(v, "dask") for v in (y, sample_weight) if v is not None)
    if names is None:
        X, lengths = _whole_rows(X, known=here)
    else:
        lengths = X.map_partitions(len).compute() if here else [np.nan] * X.npartitions
    ys, weights = _split(y, lengths, "y"), _split(sample_weight, lengths, "sample_weight")
    chunks = np.ravel(X.to_delayed()).tolist()
    parts = [Chunk(*part) for part in zip(chunks, ys, weights)]
    return ClusterRows(parts, int(X.shape[1]), names)


def _features_and_labels(frame: Any, y: Any) -> tuple[Any, Any]:
    """The columns of numbers, and the label column if y is its name."""
    from pandas.api.types import is_numeric_dtype

    names = list(frame.columns)
    if isinstance(y, str) and y not in names:
        raise ValueError(f"the frame has no column {y!r}.")
    others = [name for name in names if not (isinstance(y, str) and name == y)]
    features = [name for name in others if is_numeric_dtype(frame.dtypes[name])]
    if not features:
        raise ValueError(f"the frame has no column of numbers besides {y!r}.")
    warn_of_texts([name for name in others if name not in features])
    return frame[features], frame[y] if isinstance(y, str) else y


def _whole_rows(X: Any, *, known: bool) -> tuple[Any, Sequence[float]]:
    """The array in chunks of whole rows, small ones joined, and their lengths."""
    X = X.rechunk({1: X.shape[1]})
    if known and np.isnan(X.chunks[0]).any():
        X = X.compute_chunk_sizes()
    lengths, d = X.chunks[0], X.shape[1]
    wanted = min(ROWS_PER_FEATURE * d, MEMORY // 4 // max(1, d * X.dtype.itemsize))
    if not np.isnan(lengths).any() and min(lengths[:-1], default=wanted) < wanted // 2:
        X = X.rechunk({0: max(wanted, *lengths)})
    return X, X.chunks[0]


def _split(values: Any, lengths: Sequence[float], name: str) -> list[Any]:
    """Labels or weights of each chunk of rows."""
    if values is None:
        return [None] * len(lengths)
    known = not np.isnan(lengths).any()
    if not hasattr(values, "dask"):
        values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
        _check_length(len(values), int(sum(lengths)), name)
        values = check_weights(values, len(values)) if name == "sample_weight" else values
        return np.split(values, np.cumsum(lengths).astype(int)[:-1])
    if known and hasattr(values, "chunks") and not np.isnan(values.chunks[0]).any():
        _check_length(values.shape[0], int(sum(lengths)), name)
        values = values.rechunk({0: tuple(lengths)})
    parts = np.ravel(values.to_delayed()).tolist()
    if len(parts) != len(lengths):
        raise ValueError(
            f"X has {len(lengths)} chunks of rows and {name} {len(parts)}. Give both the same "
            "partitions, or call compute_chunk_sizes() on arrays."
        )
    return parts


def _check_length(found: int, expected: int, name: str) -> None:
    if found != expected:
        raise ValueError(
            f"X has {expected} rows but {name} has {found} values: inconsistent numbers of "
            "samples."
        )


def on_cluster(source: BlockSource, client: Any) -> ClusterRows:
    """Return a source as rows on a cluster: workers read ranges of the same file.

    Few rows are sent instead. They travel as part of the tasks, so that a lost worker takes
    none of them along.
    """
    n = source.n_rows
    if n is None or not (source.fits or source.reader.shared):
        raise ValueError(
            f"a cluster needs data that each worker can read in part; {source.reader.path} is "
            "not. Convert it to Parquet (row groups of 64 MB at most) or .npy."
        )
    warn_of_unlabelled(source)
    threads = sum(client.nthreads().values()) or 1
    if source.fits:
        parts: list[Any] = _chunks(source.load(), PARTS_PER_THREAD * threads)
    else:
        rows = _rows_per_part(source, n, threads)
        cuts = range(source.start, source.start + n, rows)
        parts = [source.part(a, min(a + rows, source.start + n)) for a in cuts]
    return ClusterRows(
        parts,
        source.n_features,
        source.feature_names,
        memory=source.memory,
        client=client,
        source=None if source.fits else source,
    )


def _chunks(rows: tuple[Any, np.ndarray, Any], n_parts: int) -> list[Chunk]:
    X, y, weights = rows
    step = -(-X.shape[0] // min(X.shape[0], n_parts))
    pieces = [slice(a, a + step) for a in range(0, X.shape[0], step)]
    return [Chunk(X[p], y[p], None if weights is None else weights[p]) for p in pieces]


def _rows_per_part(source: BlockSource, n: int, threads: int) -> int:
    """Whole blocks, and some for each thread."""
    enough = RANGE_ROWS_PER_FEATURE * source.n_features
    rows = min(max(n // (PARTS_PER_THREAD * threads), enough), -(-n // threads))
    step = source.step(matrix=source.matrix_fits and source.passes != "few")
    return -(-rows // step) * step
