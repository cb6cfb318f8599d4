"""A sparse matrix stored by rows (CSR), read in parts.

A part is a range of rows of about ``plan.part_bytes`` bytes. Threads decompress parts and
compute with them; results are combined in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from semfs.arrays import draw_rows
from semfs.io.sparse import SparseReader
from semfs.labels import Labels
from semfs.progress import Progress
from semfs.rows.blocks import BlockSource, named_rows, stacked
from semfs.rows.memory import N_SAMPLED_SPARSE
from semfs.rows.sums import (
    Accumulator,
    SampledRows,
    csr_products,
    sparse_class_sums,
    used_mask,
)
from semfs.rows.threads import map_ahead, n_threads
from semfs.validation import check_all_finite

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Sparse
    from semfs.rows.source import ClusterModel

Result = TypeVar("Result")

# Threads that decompress parts and sum them up. Decompression releases the interpreter's lock,
# and a third thread fills the time in which others wait for the disk or the lock (measured on
# two processors); more than five only take memory.
MIN_PART_THREADS = 3
MAX_PART_THREADS = 5


def part_threads() -> int:
    """Return the number of threads that work on parts of a sparse matrix."""
    return min(max(n_threads(), MIN_PART_THREADS), MAX_PART_THREADS)


@dataclass(frozen=True, eq=False)
class StreamedCSR(BlockSource):
    """Samples of a sparse matrix stored by rows; make it with `open_blocks`."""

    reader: SparseReader

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all samples, and ``n_sampled`` of the samples themselves.

        ``matrix``: also form the d × d scatter matrix, whose products ``precise`` takes in
        float64. Then blocks are dense, and no samples are kept: nothing is read again.
        """
        if matrix:
            return self.accumulate_blocks(matrix=True, precise=precise)
        labels = self._labels()
        n_classes = len(labels.classes)
        sampled = draw_rows(used_mask(labels.codes, self.weights), n_sampled)

        def sum_up(rows: slice, X: Sparse) -> tuple[Float64, Float64, Sparse]:
            # samples without a class must not enter sums, even as NaN
            used_X, codes, weights = self._used(rows, X)
            sums, squares = sparse_class_sums(used_X, codes, n_classes, weights)
            # the squares are finite only if all values are
            if not np.isfinite(squares).all():
                with named_rows(rows):
                    check_all_finite(used_X)
            return sums, squares, X[_inside(rows, sampled)]

        sums = np.zeros((n_classes, self.n_features))
        squares = np.zeros(self.n_features)
        pieces: list[Sparse] = []
        for part_sums, part_squares, piece in self._map_parts("class means", sum_up):
            sums += part_sums
            squares += part_squares
            pieces.append(piece)
        sample = stacked(pieces, self.n_features)
        return sparse_accumulator(self, labels, sums, squares, sampled, sample)

    def gram_columns(
        self,
        columns: Indices,
        mean: Float64,
        total: float,
        *,
        far: bool,
        precise: bool,
    ) -> Float64:
        """Return the columns (d, b) with these b numbers of the scatter matrix about the mean.

        ``far``: some means are large against the spread of their features, so that products
        need float64, as with ``precise``; otherwise products of a part are in the precision of
        the file (float32 or float64) and are added up in float64. ``total``, the weight of all
        samples, is part of the common signature: a range of a file has its own (`_total`).
        """
        dtype = np.dtype(np.float64) if far or precise else self.reader.dtype

        def multiply(rows: slice, X: Sparse) -> Float64:
            X, _, weights = self._used(rows, X)
            return csr_products(X, columns, weights, dtype)

        # The scatter is X'W X_b − total · mean mean_b', W the weights and X_b the columns asked
        # for. Here is the second term; the first is added part by part.
        out = -self._total() * np.outer(mean, mean[columns])
        # parts are added up in order, so that every run gives the same digits
        for products in self._map_parts(f"{len(columns)} Gram columns", multiply):
            out += products
        return out

    def rows_at(self, rows: Indices) -> Sparse:
        """Return samples by their row numbers, which ascend."""

        def pick(part: slice, X: Sparse) -> Sparse:
            return X[_inside(part, rows)]

        return stacked(list(self._map_parts("a sample", pick)), self.n_features)

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster of each sample at ``rows``, which ascend.

        ``batches``, if given, holds the batch (donor, plate …) of each of these samples.
        """

        def assign(part: slice, X: Sparse) -> Indices:
            first, last = np.searchsorted(rows, [part.start, part.stop])
            if first == last:
                return np.zeros(0, dtype=np.intp)
            chosen = X[rows[first:last] - part.start]
            return model.assign(chosen, None if batches is None else batches[first:last])

        found = list(self._map_parts("clusters", assign))
        return np.concatenate([np.zeros(0, dtype=np.intp), *found])

    def _map_parts(
        self, title: str, work: Callable[[slice, Sparse], Result]
    ) -> Iterator[Result]:
        """Yield work(row numbers, X) of all parts in order, computed in threads."""
        n_rows = self.n_rows or 0
        stop = self.start + n_rows
        ranges = self.reader.ranges(self.start, stop, self.plan.part_bytes)

        def read_and_work(bounds: tuple[int, int]) -> tuple[int, Result]:
            first, last = bounds
            X = self.preprocessing.apply(self.reader.part(first, last))
            rows = slice(first - self.start, last - self.start)
            return last - first, work(rows, X)

        with Progress(title, n_rows, self.verbose, unit="rows") as progress:
            for n_done, result in map_ahead(read_and_work, ranges, part_threads()):
                yield result
                progress.step("", n_done)

    def _used(self, rows: slice, X: Sparse) -> tuple[Sparse, Indices, Floats | None]:
        """Return the samples of a part that are used, their codes and weights."""
        codes = self._labels().codes[rows]
        weights = None if self.weights is None else self.weights[rows]
        used = used_mask(codes, weights)
        # most parts are used whole, and need no copy
        if used.all():
            return X, codes, weights
        return X[used], codes[used], None if weights is None else weights[used]

    def _labels(self) -> Labels:
        assert self.labels is not None  # labels of a file are read when it is opened
        return self.labels

    def _total(self) -> float:
        """Return the weight of the samples that are used."""
        used = used_mask(self._labels().codes, self.weights)
        return float(used.sum() if self.weights is None else self.weights[used].sum())


def sparse_accumulator(
    source: BlockSource,
    labels: Labels,
    sums: Float64,
    squares: Float64,
    sampled: Indices,
    sample: Sparse,
) -> Accumulator:
    """Return class sums (C, d) and squares (d,) of a sparse source as an accumulator.

    ``sample`` are the samples at the rows ``sampled``; their weights are raised so that each
    class weighs as much as all its samples do.
    """
    codes = labels.codes
    weights = source.weights
    used = used_mask(codes, weights)
    n_classes = len(labels.classes)
    used_weights = None if weights is None else weights[used]
    counts = np.bincount(codes[used], used_weights, n_classes).astype(np.float64)
    out = Accumulator(source.n_features, matrix=False)
    # sums are in float64, but values have the rounding errors of their file
    out.eps = source.eps
    out.sparse = True
    out.n_unlabeled = labels.n_unlabeled
    out.add_sums(labels.classes, counts, sums, squares)
    if not len(sampled):
        return out
    sampled_codes = codes[sampled]
    sampled_weights = np.ones(len(sampled)) if weights is None else weights[sampled]
    sampled_counts = np.bincount(sampled_codes, sampled_weights, n_classes)
    # classes that were drawn less often weigh more
    raised = counts / np.where(sampled_counts > 0.0, sampled_counts, 1.0)
    rows = SampledRows(sample, sampled_codes, sampled_weights * raised[sampled_codes])
    out.add_sample(rows, labels.classes)
    return out


def _inside(part: slice, rows: Indices) -> Indices:
    """Return which of the ascending row numbers are in a part, counted from its start."""
    first, last = np.searchsorted(rows, [part.start, part.stop])
    return rows[first:last] - part.start
