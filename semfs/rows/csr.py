"""A sparse matrix stored by rows (CSR), larger than memory perhaps, read in parts.

A `StreamedCSR` (the source) is a range of rows of a reader (the file). A fit asks it for
three things, in this order: sums over classes (`accumulate`), a few columns of the scatter
matrix (`gram_columns`), and, where unlabeled samples are clustered, single samples (`rows_at`,
`clusters_at`).

A part is a range of rows that takes about ``plan.part_bytes`` bytes as a CSR matrix in memory.
Sums read all parts once; `rows_at` and `clusters_at` read only the parts that hold samples
asked for. A few threads read and preprocess parts and compute with them, and results are
combined in the order of the rows. Row numbers count from ``start``, the first row of the reader
that belongs to the source.
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
    """Samples of a sparse matrix stored by rows, as `semfs.rows.open_blocks` returns them.

    The fields of `BlockSource`; besides, the reader is known to be one of sparse data.
    """

    reader: SparseReader

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return sums over the samples that have a class and a weight, and a few such samples.

        The sums are weighted: of the samples of each class, and of the squares of all. At most
        ``n_sampled`` samples are drawn, at random but always the same.

        With ``matrix``, the d × d scatter matrix is formed as well. Then no samples are drawn,
        because the solver uses them only to predict which of its columns it will need.
        ``precise`` has no effect: sums of sparse samples are always in float64.
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
            # NaN and infinity show in the sums of squares, so values are searched only then. If
            # merely a square overflowed, the caller refuses the sums.
            if not np.isfinite(part_squares).all():
                # the user knows rows of the file
                first_in_reader = self.start + part.start
                check_all_finite(used_X, row_numbers=first_in_reader + np.flatnonzero(used))
            # X, not used_X: `sampled` counts the rows that are not used as well
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
        """Return the columns numbered ``columns`` (b,) of the scatter matrix, float64 (d, b).

        It is the total scatter about the mean of `centering`. Products within a part have the
        precision of the data if that is enough, and are added up in float64. Where several
        machines hold a range of rows each, the mean is that of all rows, and w below is the
        weight of this range only, so that the results of all ranges add up.
        """
        mean = centering.mean
        # `far`: the mean is large next to the spread, so that the subtraction loses digits
        in_float64 = centering.far or centering.precise
        product_dtype = np.dtype(np.float64) if in_float64 else self.reader.dtype

        def multiply(part: slice, X: Sparse) -> Float64:
            used_X, _, weights = self._of_used(part, X, self._used(part))
            return csr_products(used_X, columns, weights, product_dtype)

        # (X − 1m')'W(Z − 1z') = X'WZ − w m z', with the columns Z of X, the means m of X and z
        # of Z, W = diag(weights) and w the sum of weights. The second term comes first; then
        # the products of the parts are added.
        out = -self._total_weight() * np.outer(mean, mean[columns])
        for products in self._map_parts(f"{len(columns)} Gram columns", multiply):
            out += products
        return out

    def rows_at(self, rows: Indices) -> Sparse:
        """Return the preprocessed samples at ``rows`` (r,), which are ascending row numbers."""

        def pick(part: slice, X: Sparse) -> Sparse:
            return X[_rows_in(part, rows) - part.start]

        return self._stacked(list(self._map_parts("chosen samples", pick, rows)))

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster (r,) of each sample at ``rows`` (r,), ascending row numbers.

        ``model`` assigns samples to the nearest cluster. ``batches`` (r,), if given, number the
        experimental batch (donor, plate) of each of these samples, whose offset is removed
        first. Samples far from all clusters get the code `semfs.labels.LEFT_OUT`.
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

        ``part`` is a slice of row numbers and X (r, d) all of its samples, preprocessed. Only
        a few parts are in memory at a time: those that threads work on.
        Results are in the order of the parts, so that their sums are the same in every run.
        ``title`` is shown with the progress. With ``rows``, ascending row numbers, only parts
        that have some of them are read.
        """
        assert self.n_rows is not None  # the length of indptr tells it
        ranges = self.reader.ranges(self.start, self.start + self.n_rows, self.plan.part_bytes)
        # ranges count rows of the reader, parts those of the source
        parts = (slice(start - self.start, stop - self.start) for start, stop in ranges)
        if rows is not None:
            parts = (part for part in parts if len(_rows_in(part, rows)))

        def read_and_work(part: slice) -> tuple[int, Result]:
            reader_rows = slice(self.start + part.start, self.start + part.stop)
            X = self.reader.part(reader_rows.start, reader_rows.stop)
            # values that cannot be preprocessed raise; the message then names these rows
            with named_rows(reader_rows):
                X = self.preprocessing.apply(X)
            return part.stop, work(part, X)

        with Progress(title, self.n_rows, self.verbose, unit="rows") as progress:
            n_done = 0
            for stop, result in map_ahead(read_and_work, parts, part_threads()):
                yield result
                progress.step("", stop - n_done)
                n_done = stop

    def _stacked(self, parts: list[Sparse]) -> Sparse:
        """Stack the sparse samples of parts; without parts there are none, (0, d)."""
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

        The others must not enter sums even with weight zero, because zero times NaN is NaN.
        """
        codes = self._labels().codes[part]
        weights = None if self.weights is None else self.weights[part]
        # most parts are used whole, and need no copy
        if used.all():
            return X, codes, weights
        return X[used], codes[used], None if weights is None else weights[used]

    def _labels(self) -> Labels:
        """Return the labels, which a source of this class always has."""
        assert self.labels is not None
        return self.labels

    def _total_weight(self) -> float:
        """Return the sum of the weights of the samples that are used, 1 each by default."""
        used = used_mask(self._labels().codes, self.weights)
        return float(used.sum() if self.weights is None else self.weights[used].sum())


def _places_in(part: slice, rows: Indices) -> slice:
    """Return the slice of ``rows``, ascending row numbers, that lies in ``part``."""
    first, stop = np.searchsorted(rows, [part.start, part.stop])
    return slice(first, stop)


def _rows_in(part: slice, rows: Indices) -> Indices:
    """Return those of ``rows``, ascending row numbers, that lie in ``part``."""
    return rows[_places_in(part, rows)]
