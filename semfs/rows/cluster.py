"""Samples on a Dask cluster. Workers compute partial sums, which are added up as a tree.

Only sums are sent over the network: counts, class means, d × d matrices or a few Gram columns,
and a sample of sparse rows. If a worker is lost, another one computes its part again.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from semfs.arrays import batches
from semfs.io.reader import working_dtype
from semfs.labels import Labels
from semfs.rows.blocks import BlockSource, OutOfCoreRows, stacked
from semfs.rows.memory import N_SAMPLED_SPARSE
from semfs.rows.sums import Accumulator
from semfs.rows.workers import (
    Client,
    Delayed,
    call_chunk_method,
    call_method,
    compute_list,
    sum_of,
)
from semfs.system import import_optional

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Matrix
    from semfs.rows.centering import Centering
    from semfs.rows.source import ClusterModel


# Rows per feature of a part, for chunks in memory and for ranges of a file. Parts are so long
# that adding up d × d sums takes little time beside multiplying, but so short that little is
# computed again if a worker is lost.
CHUNK_ROWS_PER_FEATURE = 2
RANGE_ROWS_PER_FEATURE = 8
# Ranges of a file per thread of the cluster, so that none waits long for the last one.
PARTS_PER_THREAD = 4


@dataclass(frozen=True, eq=False, kw_only=True)
class ClusterRows(OutOfCoreRows):
    """Base class of sources whose parts are summed up by workers."""

    client: Client = None  # None: the scheduler that Dask would use

    @property
    def fits_in_memory(self) -> bool:
        """Always false, because samples on a cluster are not loaded into one process."""
        return False

    @property
    @abstractmethod
    def bounds(self) -> list[slice]:
        """Row numbers of the parts."""

    @abstractmethod
    def part_task(self, index: int, method: str, **options: Any) -> Delayed:
        """Return the task that calls a method of a part (a `BlockSource`) on a worker."""

    def load(self) -> tuple[Matrix, Labels, Floats | None]:
        """Raise, because there are too many samples for this process."""
        raise ValueError("samples on a cluster are not loaded into one process.")

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all parts, with sampled rows from each part."""
        # parts are of similar length, so that each gives the same number of samples
        share = -(-n_sampled // max(1, len(self.bounds)))
        sums = self._sum_of_parts("accumulate", matrix=matrix, precise=precise, n_sampled=share)
        return Accumulator(self.n_features, matrix=matrix) if sums is None else sums

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        return self._sum_of_parts("gram_columns", columns=columns, centering=centering)

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
        """Call a method of each part that contains some of the ascending ``rows``."""
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
        """Call a method of every part, and add the results up as a tree."""
        tasks = [self.part_task(i, method, **options) for i in range(len(self.bounds))]
        return sum_of(tasks, self.client)


@dataclass(frozen=True, eq=False)
class RangeRows(ClusterRows):
    """Samples of a file, of which each worker reads ranges. Make it with `on_cluster`."""

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
        """Return whether to form the d × d matrix in order to select ``n_select`` features."""
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
    """Samples of a Dask array in chunks of rows. Make it with `dask_rows`."""

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
        """Return whether the d × d matrix fits. Then it is formed, as chunks may be costly."""
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


def on_cluster(
    source: BlockSource, client: Client, *, min_rows: int | None = None
) -> BlockSource | RangeRows:
    """Let the workers of a Dask cluster read a source, each one ranges of the same file.

    A range has at least ``min_rows`` rows, by default eight per feature. A source that fits
    into memory is returned unchanged, because it takes less time to read it here.
    """
    if source.fits_in_memory:
        return source
    n = source.n_rows
    if n is None or not source.reader.shared:
        raise ValueError(
            "on a cluster, each worker must be able to read a part of "
            f"the data, but {source.reader.path} cannot be read in parts. "
            "Convert it to .h5ad (by rows), Parquet (row groups of at "
            "most 64 MB) or .npy."
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
