"""Moments on a Dask cluster: partial sums on the workers, added up as a tree.

What travels are counts, class means and d × d sums (or a few Gram columns), and a sample of
sparse rows. A worker that is lost costs the part it was at, which another computes again.
"""

from __future__ import annotations

import copy
import ctypes
import functools
import operator
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from semfs.arrays import batches
from semfs.io.reader import MEMORY
from semfs.io.sparse import array_reader
from semfs.labels import Labels
from semfs.rows.blocks import SAMPLE, BlockSource, OutOfCoreRows, source_of
from semfs.rows.memory import Accumulator, Rows, as_matrix, libraries
from semfs.system import import_optional
from semfs.validation import check_weights

FAN_IN = 4  # sums of this many parts are added up by one task
# Parts are long, so that adding up d × d sums takes little time beside multiplying (this many
# rows per feature, for chunks held in memory and ranges of a file), but few rows are lost.
ROWS_PER_FEATURE, RANGE_ROWS_PER_FEATURE = 2, 8
PARTS_PER_THREAD = 4
# Seconds after which waiting is given up: for a scheduler to answer, for any worker to come.
SCHEDULER_PATIENCE = 20.0
PATIENCE = 60.0
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's mallopt

OUT_OF_MEMORY = (
    "Workers that die have usually run out of memory: use smaller chunks, or workers with more "
    "memory, and see their logs."
)


class ClusterError(ConnectionError):
    """The cluster could not finish; the message says why and what to do."""


@dataclass(frozen=True, eq=False)
class ClusterRows(OutOfCoreRows):
    """Rows on a cluster; make it with `dask_rows` or `on_cluster`."""

    parts: list[Any]  # chunks (X, y, weights), or ranges of a source
    n_features: int
    feature_names: list[str] | None
    memory: int = MEMORY
    client: Any = None
    source: BlockSource | None = None  # of which the parts are ranges
    labels: Labels | None = None
    preview: Rows | None = None
    known: tuple[np.ndarray, np.ndarray | None] | None = None
    verbose: int = 0

    fits_in_memory = False

    def wants_matrix(self, n_select: int | None) -> bool:
        """Whether to form the d × d matrix: if it fits, as chunks may be costly to make."""
        if self.source is not None:
            return self.source.wants_matrix(n_select)
        return n_select is None or 8 * self.n_features**2 <= self.memory

    def gram_columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        place = {"columns": columns, "mean": mean, "total": total}
        rows = replace(self, known=None if far or precise else self.known)
        known, products = rows.recalled(columns)
        if known.any():  # by the parts too, but for the products
            own = columns[known], None
            rows = replace(rows, parts=[replace(part, known=own) for part in rows.parts])
        out = np.array(rows._added_up("gram_columns", far=far, precise=precise, **place))
        out[:, known] += products
        return out

    def piloted(self) -> Any:
        sparse = self.source is not None and self.source.reader.sparse
        return np.sum([part.piloted() for part in self.parts], axis=0) if sparse else ()

    def labeled(self) -> Any:
        """Return the same rows with their labels here; those of a file as they are there."""
        if self.source is not None:
            return self.source
        found = _listed([y for _, y, _ in self.parts], self.client)
        parts = [(X, y, weights) for (X, _, weights), y in zip(self.parts, found)]
        labels = Labels.of([label for y in found for label in y])
        return replace(self, parts=parts, labels=labels)

    def mask_label(self, mark: Any) -> ClusterRows:
        if self.source is not None:
            return on_cluster(self.source.mask_label(mark), self.client)
        return self._with_labels(lambda _, y: Labels.of(y).mask_label(mark).array())

    def named(self, classes: Any) -> ClusterRows:
        return self._with_labels(functools.partial(_named, classes.assign))

    def _with_labels(self, labels: Callable[[Any, Any], np.ndarray]) -> ClusterRows:
        make = import_optional("dask").delayed(labels, pure=False)
        parts = [(X, make(X, y), weights) for X, y, weights in self.parts]
        return replace(self, parts=parts, labels=None)

    def rows_at(self, places: np.ndarray) -> list[Any]:
        pick = import_optional("dask").delayed(operator.getitem)
        lengths = [len(y) for _, y, _ in self.parts]
        ends = np.cumsum(lengths)
        chosen = np.split(places, np.searchsorted(places, ends[:-1]))
        own = zip(self.parts, chosen, ends - lengths)
        tasks = [pick(X, rows - first) for (X, _, _), rows, first in own if len(rows)]
        return _listed(tasks, self.client)

    def accumulated(self, *, matrix: bool, precise: bool, **stage: Any) -> Accumulator:
        own = {"sample": -(-SAMPLE // len(self.parts))} | stage
        sums = self._added_up("accumulated", matrix=matrix, precise=precise, **own)
        return Accumulator(self.n_features) if sums is None else sums

    def _added_up(self, method: str, **options: Any) -> Any:
        """Call a method of `BlockSource` for every part, and add up the results as a tree."""
        delayed = import_optional("dask").delayed
        of_part, added = delayed(_of_part, pure=False), delayed(_added, pure=False)
        level = [of_part(part, method, options) for part in self.parts]
        while True:
            level = [added(level[i]) for i in batches(len(level), FAN_IN)]
            if len(level) == 1:
                return _computed(level[0], self.client)


def _of_part(part: Any, method: str, options: dict) -> Any:
    """What a part contributes, None if it has no rows; BLAS has one thread meanwhile."""
    if not isinstance(part, BlockSource):
        X, y, weights = part
        if not X.shape[0]:
            return None
        if weights is not None:
            weights = np.asarray(weights, dtype=np.float64).reshape(-1)
        reader, n = array_reader(as_matrix(X)), X.shape[0]
        part = source_of(reader, Labels.of(y), weights, block_rows=n, stop=n)
    with libraries().limit(limits=1, user_api="blas"), _kept_memory():
        return getattr(part, method)(**options)


@contextmanager
def _kept_memory() -> Iterator[None]:
    """Freed memory stays with the process meanwhile, and goes back at the end.

    Dask has glibc give back each piece at once; to take it again is much of our time.
    """
    before = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    libc = ctypes.CDLL(None) if before.isdecimal() and os.name == "posix" else None
    set_limit = getattr(libc, "mallopt", lambda *_: None)  # glibc alone has it
    try:
        set_limit(M_MMAP_THRESHOLD, 2**25)
        set_limit(M_TRIM_THRESHOLD, 2**28)
        yield
    finally:
        set_limit(M_MMAP_THRESHOLD, 2**17)
        set_limit(M_TRIM_THRESHOLD, int(before) if libc else 0)
        getattr(libc, "malloc_trim", lambda _: None)(0)


def _named(names: Callable[[Any], np.ndarray], X: Any, y: Any) -> np.ndarray:
    """Labels of a chunk: names of its rows without one, none for the others."""
    hidden = Labels.of(y).codes < 0
    out = np.full(len(hidden), None, dtype=object)
    found = names(X[hidden]).tolist() if hidden.any() else []
    out[hidden] = [None if name < 0 else name for name in found]  # samples to be ignored
    return out


def _added(parts: Sequence[Any]) -> Any:
    """The sum of contributions, in a copy: Dask may want the first one again."""
    first, *rest = [part for part in parts if part is not None] or [None]
    return functools.reduce(operator.iadd, rest, copy.deepcopy(first) if rest else first)


def connect(address: str) -> Any:
    """Return a client of the scheduler at an address such as ``tcp://host:8786``."""
    distributed = import_optional("distributed", "dask", what="A cluster")
    try:
        return distributed.Client(address, timeout=SCHEDULER_PATIENCE)
    except (OSError, TimeoutError, ValueError) as error:
        lost = f"no scheduler answers at {address} ({error or 'timeout'})"
        raise ClusterError(f"{lost}. Start one with: dask scheduler") from error


def _listed(tasks: list, client: Any) -> list:
    return _computed(import_optional("dask").delayed(list)(tasks), client)


def _computed(task: Any, client: Any) -> Any:
    import dask

    if client is None:
        get = dask.base.get_scheduler(collections=[task])
        client = getattr(get, "__self__", None)  # a distributed.Client, if one is active
    if client is None or not hasattr(client, "compute"):
        return dask.compute(task)[0]
    return _result(client, client.compute(task))


def _result(client: Any, future: Any) -> Any:
    """Wait for the result; an error says what happened to the workers."""
    from distributed import KilledWorker, wait

    began, lonely = bool(client.nthreads()), 0.0
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
            closed = client.status != "running"
            lonely = lonely + 2.0 if closed or not client.nthreads() else 0.0
        if lonely >= PATIENCE or closed:
            future.cancel()
            advice = OUT_OF_MEMORY if began else "Start some: dask worker SCHEDULER-ADDRESS"
            raise ClusterError(f"the cluster has had no worker for {lonely:.0f} s. {advice}")


def dask_rows(X: Any, y: Any, sample_weight: Any = None) -> ClusterRows:
    """Return a Dask array, dense or of sparse blocks, with labels as rows on a cluster."""
    if getattr(X, "ndim", None) != 2 or hasattr(X, "columns"):
        raise ValueError(
            f"X must be a matrix, got a Dask {type(X).__name__} of shape {X.shape}. Of a data "
            "frame pass frame.to_dask_array(lengths=True) and the labels."
        )
    if y is None or isinstance(y, str):
        raise ValueError("This selector requires y to be passed: an array with the labels.")
    X = _whole_rows(X)
    if sample_weight is not None and not hasattr(sample_weight, "dask"):
        sample_weight = check_weights(sample_weight, X.shape[0])
    pieces = [_pieces(X, y, "y"), _pieces(X, sample_weight, "sample_weight")]
    parts = list(zip(X.to_delayed().ravel().tolist(), *pieces))
    return ClusterRows(parts, int(X.shape[1]), None)


def _whole_rows(X: Any) -> Any:
    """The array in chunks of whole rows and known lengths; small ones joined."""
    X = _measured(X.rechunk({1: X.shape[1]}))
    lengths, d = X.chunks[0], X.shape[1]
    wanted = min(ROWS_PER_FEATURE * d, MEMORY // 4 // max(1, d * X.dtype.itemsize))
    small = min(lengths[:-1], default=wanted) < wanted // 2
    return X.rechunk({0: max(wanted, *lengths)}) if small else X


def _measured(array: Any) -> Any:
    """A Dask array whose lengths are known."""
    return array.compute_chunk_sizes() if np.isnan(array.chunks[0]).any() else array


def _pieces(X: Any, values: Any, name: str) -> list[Any]:
    """Labels or weights of each chunk of rows."""
    lengths = X.chunks[0]
    if values is None:
        return [None] * len(lengths)
    chunked = hasattr(values, "dask")
    values = _measured(values) if chunked else np.asarray(values)
    if len(values) != sum(lengths):
        raise ValueError(f"X has {sum(lengths)} rows but {name} has {len(values)} values.")
    if chunked:
        return values.rechunk({0: lengths}).to_delayed().ravel().tolist()
    return np.split(values, np.cumsum(lengths)[:-1])


def on_cluster(source: BlockSource, client: Any) -> Any:
    """Return a source as rows on a cluster: workers read ranges of the same file."""
    n = source.n_rows
    if source.fits_in_memory:  # reading it here takes less time
        return source
    if n is None or not source.reader.shared:
        found = f"data that each worker can read in part; {source.reader.path} is not"
        advice = "Convert it to .h5ad (by rows), Parquet (row groups of 64 MB at most) or .npy."
        raise ValueError(f"a cluster needs {found}. {advice}")
    threads = sum(client.nthreads().values()) or 1
    share, step = -(-n // (PARTS_PER_THREAD * threads)), source.step(matrix=True)
    wanted = min(max(share, RANGE_ROWS_PER_FEATURE * source.n_features), -(-n // threads))
    ranges = batches(n, -(-wanted // step) * step)
    parts = [source.part(source.start + r.start, source.start + r.stop) for r in ranges]
    shape = source.n_features, source.feature_names
    return ClusterRows(parts, *shape, source.memory, client, source, source.labels)
