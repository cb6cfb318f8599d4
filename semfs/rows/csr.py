"""A sparse matrix stored by rows (CSR), read in parts.

A part is a range of rows that takes about ``plan.part_bytes`` bytes once it is unpacked. Every
method reads all parts once: threads unpack them and compute with them, and results are combined
in the order of the rows. Row numbers count from ``start``, the first row of the reader that
belongs to the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import scipy.sparse as sp

from semfs.arrays import draw_rows
from semfs.io.sparse import SparseReader
from semfs.labels import Labels
from semfs.progress import Progress
from semfs.rows.blocks import BlockSource, named_rows, stacked
from semfs.rows.memory import N_SAMPLED_SPARSE
from semfs.rows.parts import part_threads, sparse_accumulator
from semfs.rows.sums import Accumulator, csr_products, sparse_class_sums, used_mask
from semfs.rows.threads import map_ahead
from semfs.validation import check_all_finite

if TYPE_CHECKING:
    from semfs._typing import Float64, Floats, Indices, Mask, Sparse
    from semfs.rows.centering import Centering
    from semfs.rows.source import ClusterModel

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class StreamedCSR(BlockSource):
    """Samples of a sparse matrix stored by rows; `open_blocks` returns one for such data."""

    reader: SparseReader  # of `BlockSource`, but known to be sparse

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return sums over all samples, and at most ``n_sampled`` samples drawn at random.

        With ``matrix``, the d × d scatter matrix is formed as well. Then no samples are drawn,
        because they are only used to predict which columns of this matrix are needed.
        ``precise`` has no effect, because sums of sparse samples are always in float64.
        """
        if matrix:
            return self.accumulate_blocks(matrix=True, precise=precise)
        labels = self._labels()
        n_classes = len(labels.classes)
        # ascending row numbers of samples with a class and a weight
        sampled = draw_rows(used_mask(labels.codes, self.weights), n_sampled)

        def sum_up(
            part: slice,
            X: Sparse,
        ) -> tuple[Float64, Float64, Sparse]:
            """Return class sums (C, d) and squares (d,) of a part, and its drawn samples."""
            used = self._used(part)
            used_X, codes, weights = self._of_used(part, X, used)
            part_sums, part_squares = sparse_class_sums(used_X, codes, n_classes, weights)
            # NaN, infinity and squares that overflow show in the sum: look for one only then
            if not np.isfinite(part_squares).all():
                first = self.start + part.start
                check_all_finite(used_X, row_numbers=first + np.flatnonzero(used))
            # row numbers count all rows of the part, used or not
            return part_sums, part_squares, X[_rows_in(part, sampled) - part.start]

        sums = np.zeros((n_classes, self.n_features))
        squares = np.zeros(self.n_features)
        drawn: list[Sparse] = []
        for part_sums, part_squares, part_drawn in self._map_parts("class means", sum_up):
            sums += part_sums
            squares += part_squares
            drawn.append(part_drawn)
        sample = self._stacked(drawn)
        return sparse_accumulator(self, labels, sums, squares, sampled, sample)

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return ``columns`` (d, b) of the scatter matrix about the mean, in float64.

        Products of a part have the precision of the reader if that is enough, and are added up
        in float64. On a cluster, this source is a range of the rows, while the mean is that of
        all rows. Because the weight of the range is used instead of the total, the results of
        all ranges add up to the columns of the scatter matrix.
        """
        mean = centering.mean
        in_float64 = centering.far or centering.precise
        product_dtype = np.dtype(np.float64) if in_float64 else self.reader.dtype

        def multiply(part: slice, X: Sparse) -> Float64:
            used_X, _, weights = self._of_used(part, X, self._used(part))
            return csr_products(used_X, columns, weights, product_dtype)

        # X'WZ − w · m z' with the columns Z of X, their means z, W = diag(weights), w = tr(W).
        # Start with the second term, then add the first part by part.
        out = -self._total() * np.outer(mean, mean[columns])
        for products in self._map_parts(f"{len(columns)} Gram columns", multiply):
            out += products
        return out

    def rows_at(self, rows: Indices) -> Sparse:
        """Return the samples at ``rows`` (r,), which are ascending row numbers."""

        def pick(part: slice, X: Sparse) -> Sparse:
            return X[_rows_in(part, rows) - part.start]

        return self._stacked(list(self._map_parts("a sample", pick, rows)))

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster (r,) of each sample at ``rows`` (r,), ascending row numbers.

        ``batches`` (r,), if given, are the codes of the batches (donor, plate) of these
        samples. Samples far from all clusters get the code `semfs.labels.LEFT_OUT`.
        """

        def assign(part: slice, X: Sparse) -> Indices:
            chosen = X[_rows_in(part, rows) - part.start]
            if batches is None:
                return model.assign(chosen)
            return model.assign(chosen, batches[_places_in(part, rows)])

        found = list(self._map_parts("clusters", assign, rows))
        return np.concatenate(found) if found else np.zeros(0, dtype=np.intp)

    def _map_parts(
        self,
        title: str,
        work: Callable[[slice, Sparse], Result],
        rows: Indices | None = None,
    ) -> Iterator[Result]:
        """Yield work(part, X) of the parts, computed in threads.

        ``part`` is a slice of row numbers and X (r, d) all of its samples, preprocessed.
        Results are in the order of the parts, so that their sums are the same in every run.
        ``title`` is shown with the progress. With ``rows``, ascending row numbers, only parts
        that have some of them are read.
        """
        assert self.n_rows is not None  # a file of CSR has one entry of indptr per row
        ranges = self.reader.ranges(self.start, self.start + self.n_rows, self.plan.part_bytes)
        # ranges count rows of the reader, parts those of the source
        parts = (slice(start - self.start, stop - self.start) for start, stop in ranges)
        if rows is not None:
            parts = (part for part in parts if len(_rows_in(part, rows)))

        def read_and_work(part: slice) -> tuple[int, Result]:
            in_reader = slice(self.start + part.start, self.start + part.stop)
            X = self.reader.part(in_reader.start, in_reader.stop)
            # values that cannot be preprocessed raise; the message then names these rows
            with named_rows(in_reader):
                X = self.preprocessing.apply(X)
            return part.stop, work(part, X)

        with Progress(title, self.n_rows, self.verbose, unit="rows") as progress:
            n_done = 0
            for stop, result in map_ahead(read_and_work, parts, part_threads()):
                yield result
                progress.step("", stop - n_done)
                n_done = stop

    def _stacked(self, parts: list[Sparse]) -> Sparse:
        """Stack samples (r, d) of parts. The result is sparse even without samples."""
        if parts:
            return stacked(parts, self.n_features)
        return sp.csr_array((0, self.n_features), dtype=self.reader.dtype)

    def _used(self, part: slice) -> Mask:
        """Return which samples (r,) of a part have a class and a positive weight."""
        weights = None if self.weights is None else self.weights[part]
        return used_mask(self._labels().codes[part], weights)

    def _of_used(
        self, part: slice, X: Sparse, used: Mask
    ) -> tuple[Sparse, Indices, Floats | None]:
        """Return the samples (r', d) of a part that are used, their codes and weights (r',).

        Other samples must not enter sums even with weight zero, because zero times NaN is NaN.
        """
        codes = self._labels().codes[part]
        weights = None if self.weights is None else self.weights[part]
        # most parts are used whole, and need no copy
        if used.all():
            return X, codes, weights
        return X[used], codes[used], None if weights is None else weights[used]

    def _labels(self) -> Labels:
        assert self.labels is not None  # they come with the source, not with its blocks
        return self.labels

    def _total(self) -> float:
        """Return the total weight of the samples that are used, which is 1 each by default."""
        used = used_mask(self._labels().codes, self.weights)
        return float(used.sum() if self.weights is None else self.weights[used].sum())


def _places_in(part: slice, rows: Indices) -> slice:
    """Return the positions of the ascending row numbers that lie in a part."""
    first, stop = np.searchsorted(rows, [part.start, part.stop])
    return slice(first, stop)


def _rows_in(part: slice, rows: Indices) -> Indices:
    """Return the ascending row numbers that lie in a part."""
    return rows[_places_in(part, rows)]
