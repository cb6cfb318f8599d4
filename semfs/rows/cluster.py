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

from semfs.rows.blocks import MEMORY, Block, BlockSource, class_totals, row_weights
from semfs.rows.memory import as_matrix, libraries
from semfs.rows.passes import (
    StayingRows,
    add_block,
    add_columns,
    check_budget,
    check_rows,
    wants_matrix,
)
from semfs.rows.sums import Accumulator
from semfs.validation import check_weights

__all__ = ["ClusterError", "ClusterRows", "connect", "dask_rows", "on_cluster", "sent"]

# Sums of this many parts are added up by one task.
FAN_IN = 4
# Parts should be so long that multiplying them takes much longer than adding up their d × d
# sums: this many rows per feature at least, for chunks (held in memory) and ranges of a file.
ROWS_PER_FEATURE = 2
RANGE_ROWS_PER_FEATURE = 8
# Without d × d sums, so long that the time it takes to start one does not matter.
RANGE_BYTES = 2**29
# ... but so short that losing one costs little.
PARTS_PER_THREAD = 4
LARGEST_RANGE = 64  # rows per feature
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
class Part:
    """Some rows on a cluster: a chunk with labels and weights, or a range of a source."""

    X: Any
    y: Any = None
    weights: Any = None
    label: str | None = None  # the column of a frame that holds the labels

    def __sizeof__(self) -> int:
        """Bytes, which a cluster takes into account."""
        return object.__sizeof__(self) + getattr(self.X, "nbytes", 0)

    def block(self, class_weight: dict | None) -> Block | None:
        """Return X, labels and weights as arrays; None if there are no rows."""
        X, y = self.X, self.y
        if self.label is not None:
            X, y = X.drop(columns=[self.label]), X[self.label]
        if X.shape[0] == 0:
            return None
        y = y.to_numpy() if hasattr(y, "to_numpy") else y
        weights = None
        if self.weights is not None:
            weights = np.asarray(self.weights, dtype=np.float64).reshape(-1)
        weights = row_weights(y, weights, class_weight)
        return Block(0, X.shape[0], as_matrix(X), y, weights)


@dataclass(frozen=True, eq=False)
class ClusterRows(StayingRows):
    """Rows on a cluster (`semfs.rows.RowPasses`); make it with `dask_rows` or `on_cluster`."""

    parts: list[Any]
    n_features: int
    feature_names: list[str] | None
    class_weight: dict | None = None
    memory: int = MEMORY
    client: Any = None
    source: BlockSource | None = None  # of which the parts are ranges

    fits = False

    def weighted(self, class_weights: Callable, *, balanced: bool) -> ClusterRows:
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
        elif n_select is None:
            check_budget(self.n_features, self.memory, None)
            matrix = True
        else:
            matrix = 8 * self.n_features**2 <= self.memory
        sums = self._reduce(_part_sums, _merged, self.class_weight, matrix, precise)
        return check_rows(sums), None if matrix else self

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean."""
        options = {"far": far, "precise": precise}
        out = self._without_labels()._reduce(
            _part_columns, _sum_arrays, self.class_weight, columns, mean, options
        )
        return np.array(out).T  # what came over the network may be read-only

    def scatter(
        self, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Refuse: rows are kept only if the matrix is not wanted."""
        raise ValueError(
            "these rows were summed up without their scatter matrix. Fit with "
            'solver="alternating" from the beginning.'
        )

    def _without_labels(self) -> ClusterRows:
        """The same rows; labels that were needed only once are not sent again."""
        if self.source is None or self.class_weight is not None:
            return self
        return replace(self, parts=[replace(part, y=None) for part in self.parts])

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


def _part_sums(
    part: Any, class_weight: dict | None, matrix: bool, precise: bool
) -> Accumulator | None:
    """Sums over a part; None if it has no rows."""
    sums = None
    with libraries().limit(limits=1, user_api="blas"):
        for block in _blocks(part, class_weight, matrix=matrix):
            if sums is None:
                sums = Accumulator(block.X.shape[1], matrix=matrix, precise=precise)
            add_block(sums, block, overwrite=isinstance(part, BlockSource) and part.reader.ours)
    return sums


def _blocks(part: Any, class_weight: dict | None, *, matrix: bool) -> Iterator[Block]:
    """The rows of a part: blocks of a range, or the chunk."""
    if isinstance(part, BlockSource):
        yield from replace(part, class_weight=class_weight).blocks(matrix=matrix)
    elif (block := part.block(class_weight)) is not None:
        yield block


def _merged(parts: Sequence[Accumulator | None]) -> Accumulator:
    """Sums over all parts, in a copy: Dask may want the first one again."""
    found = [part for part in parts if part is not None]
    if not found:
        return Accumulator(0)
    if len(found) == 1:
        return found[0]
    with libraries().limit(limits=1, user_api="blas"):
        sums = copy.deepcopy(found[0])
        for part in found[1:]:
            sums.merge(part)
    return sums


def _part_columns(
    part: Any,
    class_weight: dict | None,
    columns: np.ndarray,
    mean: np.ndarray,
    options: dict,
) -> np.ndarray | None:
    """What a part adds to rows (b, d) of the scatter matrix."""
    out, weight, sparse = np.zeros((len(columns), len(mean))), 0.0, False
    with libraries().limit(limits=1, user_api="blas"):
        for block in _blocks(part, class_weight, matrix=False):
            add_columns(out, block, columns, mean, **options)
            n = block.X.shape[0] if block.weights is None else float(block.weights.sum())
            weight, sparse = weight + n, sparse or not isinstance(block.X, np.ndarray)
    # Sparse rows are multiplied as they are; the mean's part is taken off afterwards.
    return out - weight * np.outer(mean[columns], mean) if sparse else out


def _sum_arrays(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.sum(parts, axis=0)


def _label_weights(part: Any) -> Counter:
    """Total weight of each class in a part."""
    if isinstance(part, BlockSource):
        return part.label_weights()
    block = part.block(None)
    return Counter() if block is None else Counter(class_totals(block.y, block.weights))


def _sum_counters(parts: Sequence[Counter]) -> Counter:
    out: Counter = Counter()
    for part in parts:
        out.update(part)
    return out


# ---- waiting for the cluster --------------------------------------------------------


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address such as ``tcp://host:8786``."""
    try:
        from distributed import Client
    except ImportError as error:
        raise ImportError(
            "a cluster needs dask.distributed. Install it with: pip install 'semfs[dask]'"
        ) from error
    try:
        return Client(address, timeout=SCHEDULER_PATIENCE)
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
        with libraries().limit(
            limits=1, user_api="blas"
        ):  # tasks run in threads of this process
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
    """
    if hasattr(X, "to_dask_array") and hasattr(X, "columns"):
        return _frame_rows(X, y, sample_weight)
    if X.ndim != 2:
        raise ValueError(f"X must be a matrix, got a Dask array of shape {X.shape}.")
    if isinstance(y, str):
        raise ValueError("y can name a column of a Dask DataFrame, not of a Dask array.")
    X = X.rechunk({1: X.shape[1]})
    rows_known = not np.isnan(X.chunks[0]).any()
    if not rows_known and not all(
        hasattr(v, "dask") for v in (y, sample_weight) if v is not None
    ):
        X = X.compute_chunk_sizes()
        rows_known = True
    if rows_known:
        X = X.rechunk({0: _even_rows(X)})
    ys, ws = _split(y, X, "y"), _split(sample_weight, X, "sample_weight")
    chunks = X.to_delayed().ravel().tolist()
    parts = [Part(c, v, w) for c, v, w in zip(chunks, ys, ws)]
    return ClusterRows(parts, int(X.shape[1]), None)


def _even_rows(X: Any) -> tuple[int, ...] | int:
    """Row chunks: as they are, but small neighbours joined."""
    d, chunks = X.shape[1], X.chunks[0]
    wanted = min(ROWS_PER_FEATURE * d, MEMORY // 4 // max(1, d * X.dtype.itemsize))
    if min(chunks[:-1], default=wanted) >= wanted // 2:
        return chunks
    joined: list[int] = []
    for rows in chunks:
        if joined and joined[-1] + rows <= max(wanted, max(chunks)):
            joined[-1] += rows
        else:
            joined.append(rows)
    return tuple(joined)


def _split(values: Any, X: Any, name: str) -> list[Any]:
    """Labels or weights of each row chunk of X."""
    sizes = X.chunks[0]
    if values is None:
        if name == "y":
            raise ValueError("This selector requires y to be passed, but the target y is None.")
        return [None] * len(sizes)
    if hasattr(values, "dask"):
        values = values.to_dask_array() if hasattr(values, "to_dask_array") else values
        known = not np.isnan(sizes).any()
        if known and not np.isnan(values.chunks[0]).any():
            _check_length(values.shape[0], sum(sizes), name)
            values = values.rechunk({0: sizes})
        elif len(values.chunks[0]) != len(sizes):
            raise ValueError(
                f"X has {len(sizes)} chunks of rows and {name} {len(values.chunks[0])}, of "
                "unknown lengths. Call compute_chunk_sizes() on both."
            )
        return values.to_delayed().ravel().tolist()
    values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    _check_length(len(values), sum(sizes), name)
    if name == "sample_weight":
        values = check_weights(values, len(values))
    ends = np.cumsum(sizes).astype(int)
    return np.split(values, ends[:-1])


def _check_length(found: int, expected: int, name: str) -> None:
    if found != expected:
        raise ValueError(
            f"X has {expected} rows but {name} has {found} values: inconsistent numbers of "
            "samples."
        )


def _frame_rows(frame: Any, y: Any, sample_weight: Any) -> ClusterRows:
    from pandas.api.types import is_numeric_dtype

    label = y if isinstance(y, str) else None
    if label is not None and label not in list(frame.columns):
        raise ValueError(f"the frame has no column {label!r}.")
    names = [name for name in frame.columns if name != label]
    text = [n for n in names if not is_numeric_dtype(frame.dtypes[n])]
    if text:
        raise ValueError(
            f"column {text[0]!r} holds {frame.dtypes[text[0]]}, not numbers. Drop it, or name "
            "it as y."
        )
    columns: dict[str, list] = {}
    for name, values in {"y": None if label else y, "sample_weight": sample_weight}.items():
        columns[name] = _split_frame(values, frame, name, needed=label is None and name == "y")
    parts = [
        Part(part, v, w, label)
        for part, v, w in zip(frame.to_delayed(), columns["y"], columns["sample_weight"])
    ]
    return ClusterRows(parts, len(names), [str(n) for n in names])


def _split_frame(values: Any, frame: Any, name: str, *, needed: bool) -> list[Any]:
    """Labels or weights of each partition."""
    if values is None:
        if needed:
            raise ValueError("This selector requires y to be passed, but the target y is None.")
        return [None] * frame.npartitions
    if hasattr(values, "dask"):
        if getattr(values, "npartitions", None) != frame.npartitions:
            raise ValueError(f"{name} and the frame must have the same partitions.")
        return np.ravel(values.to_delayed()).tolist()
    sizes = frame.map_partitions(len).compute()
    values = values.to_numpy() if hasattr(values, "to_numpy") else np.asarray(values)
    _check_length(len(values), int(sum(sizes)), name)
    return np.split(values, np.cumsum(sizes)[:-1])


def on_cluster(source: BlockSource, client: Any) -> ClusterRows:
    """Return a source as rows on a cluster whose workers can read the same files."""
    n = source.n_rows
    if n is None or not source.reader.rereadable:
        raise ValueError("a cluster needs data in files, which each worker reads in part.")
    rows = _rows_per_part(source, n, sum(client.nthreads().values()) or 1)
    cuts = range(source.start, source.start + n, rows)
    parts = [source.part(a, min(a + rows, source.start + n)) for a in cuts]
    return ClusterRows(
        parts,
        source.n_features,
        source.reader.feature_names,
        memory=source.memory,
        client=client,
        source=source,
    )


def _rows_per_part(source: BlockSource, n: int, threads: int) -> int:
    """Whole blocks, and as many parts for each thread."""
    matrix, d = source.matrix_fits and source.passes != "few", source.n_features
    enough = RANGE_ROWS_PER_FEATURE * d if matrix else RANGE_BYTES // source.reader.row_bytes
    most = max(PARTS_PER_THREAD, n // (threads * LARGEST_RANGE * d))
    rounds = min(max(n // (threads * max(enough, 1)), 1), most)
    step = source.step(matrix=matrix)
    return -(-n // (rounds * threads * step)) * step


def sent(X: Any, y: Any, client: Any) -> ClusterRows:
    """Return rows in memory as rows on a cluster: each worker is sent some of them.

    They travel as part of the tasks, so that a lost worker takes none of them along.
    """
    n = X.shape[0]
    step = -(-n // min(n, PARTS_PER_THREAD * (sum(client.nthreads().values()) or 1)))
    parts = [Part(X[a : a + step], y[a : a + step]) for a in range(0, n, step)]
    return ClusterRows(parts, X.shape[1], None, client=client)
