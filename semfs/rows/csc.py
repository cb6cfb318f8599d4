"""A sparse matrix stored by columns (CSC), of which threads unpack ranges of columns.

A part has some features of all samples. The class sums of a feature need only its part.
Products with other features, and projections of samples, are sums over the parts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import scipy.sparse as sp

from semfs.arrays import batches as in_batches
from semfs.arrays import draw_rows
from semfs.io.sparse import SparseReader
from semfs.labels import Labels
from semfs.progress import Progress
from semfs.rows.blocks import Block, BlockSource
from semfs.rows.memory import N_SAMPLED_SPARSE
from semfs.rows.parts import part_threads, sparse_accumulator
from semfs.rows.sums import Accumulator, csr_batches, sparse_class_sums, used_mask
from semfs.rows.threads import map_ahead
from semfs.validation import check_all_finite

if TYPE_CHECKING:
    import numpy.typing as npt

    from semfs._typing import Float64, Floats, Indices, Sparse
    from semfs.rows.centering import Centering
    from semfs.rows.source import ClusterModel

Result = TypeVar("Result")


@dataclass(frozen=True, eq=False)
class StreamedCSC(BlockSource):
    """Samples of a sparse matrix stored by columns. Make it with `open_blocks`."""

    reader: SparseReader

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all samples, and ``n_sampled`` of the samples themselves."""
        if matrix:
            # products of all pairs of features need rows: the matrix is loaded and converted
            return self.accumulate_blocks(matrix=True, precise=precise)
        labels = self._labels()
        # samples that are not used have no values, whatever class they are counted in
        codes = np.maximum(labels.codes, 0)
        n_classes = len(labels.classes)
        sampled = draw_rows(used_mask(labels.codes, self.weights), n_sampled)

        def sum_up(columns: slice, X: Sparse) -> tuple[slice, Float64, Float64, Sparse]:
            X = self._used(X)
            sums, squares = sparse_class_sums(X, codes, n_classes, self.weights)
            if not np.isfinite(squares).all():
                check_all_finite(X)
            return columns, sums, squares, X[sampled]

        sums = np.zeros((n_classes, self.n_features))
        squares = np.zeros(self.n_features)
        pieces: list[Sparse] = []
        for columns, part_sums, part_squares, piece in self._map_parts("class means", sum_up):
            # a feature is in one part only
            sums[:, columns] = part_sums
            squares[columns] = part_squares
            pieces.append(piece)
        # each part has some features of the same samples
        sample = sp.hstack(pieces, format="csr")
        return sparse_accumulator(self, labels, sums, squares, sampled, sample)

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64.

        As many columns as fit into memory are made dense at a time. Then X'Z is computed part
        by part.
        """
        labels = self._labels()
        mean = centering.mean
        # X'Z about the origin, from which the part of the means is subtracted
        used = used_mask(labels.codes, self.weights)
        used_total = used.sum() if self.weights is None else self.weights[used].sum()
        out = -float(used_total) * np.outer(mean, mean[columns])
        in_float64 = centering.far or centering.precise
        dtype = np.dtype(np.float64) if in_float64 else self.reader.dtype
        column_bytes = len(labels) * dtype.itemsize
        for batch in in_batches(len(columns), max(1, self.plan.memory // column_bytes)):
            Z = self._dense_columns(columns[batch], dtype)
            if self.weights is not None:
                Z *= self.weights.astype(dtype)[:, None]
            title = f"{Z.shape[1]} Gram columns"
            for part, products in self._map_parts(title, self._products_with(Z)):
                out[part, batch] += products
        return out

    def rows_at(self, rows: Indices) -> Sparse:
        """Return samples by their row numbers."""

        def pick(columns: slice, X: Sparse) -> Sparse:
            return X[rows]

        return sp.hstack(list(self._map_parts("a sample", pick)), format="csr")

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster of each sample, by row numbers, and their batches.

        The projection of the samples is summed up over the parts. Then the nearest centers are
        found. Ask for some of the samples only, because projections of all samples may not fit
        into memory.
        """
        n_clusters, p = model.centers.shape
        out = np.empty(len(rows), dtype=np.intp)
        # 8 bytes for each of p coordinates
        for step in in_batches(len(rows), max(1, self.plan.memory // (8 * p))):
            Z = self._projected(rows[step], model)
            distances_bytes = 8 * n_clusters
            for part in in_batches(len(Z), max(1, self.plan.block_bytes // distances_bytes)):
                first = step.start + part.start
                done = slice(first, first + len(Z[part]))
                out[done] = model.nearest(Z[part], None if batches is None else batches[done])
        return out

    def _projected(self, rows: Indices, model: ClusterModel) -> Float64:
        """Return the projection (r, p) of samples, by row numbers."""
        Z = np.zeros((len(rows), model.centers.shape[1]))

        def pick(columns: slice, X: Sparse) -> tuple[slice, Sparse]:
            return columns, X[rows].tocsr()

        # products by BLAS are taken here, not in the threads that unpack
        for columns, X in self._map_parts("clusters", pick):
            for part, view in csr_batches(X):
                Z[part] += model.project(view, columns)
        return Z

    def _labeled_columns(self, features: Indices) -> Iterator[Block]:
        """Yield all labeled samples with some features: only these columns are read."""
        labels = self._labels()
        rows = np.flatnonzero(used_mask(labels.codes, self.weights))
        Z = self._dense_columns(features, np.float64)[rows]
        weights = None if self.weights is None else self.weights[rows]
        every = slice(0, len(labels))
        yield Block(every, Z, labels.codes[rows], labels.classes, weights, 0)

    def _dense_columns(self, columns: Indices, dtype: npt.DTypeLike) -> Floats:
        """Return columns (n, b), with zeros for samples that are not used."""
        row_sums = self._row_sums()
        Z = np.zeros((len(self._labels()), len(columns)), dtype=dtype)

        def fill(position: int) -> None:
            j = int(columns[position])
            column = self._used(self._part(j, j + 1, row_sums))
            Z[column.indices, position] = column.data

        with ThreadPoolExecutor(part_threads()) as pool:
            list(pool.map(fill, range(len(columns))))
        return Z

    def _products_with(self, Z: Floats) -> Callable[[slice, Sparse], tuple[slice, Float64]]:
        """Return a function from a part X (n, g) to its columns and X'Z (g, b)."""

        def multiply(columns: slice, X: Sparse) -> tuple[slice, Float64]:
            out = np.zeros((X.shape[1], Z.shape[1]))
            # by rows: g × b sums stay in a processor's cache, Z is read in order
            for rows, part in csr_batches(self._used(X).tocsr()):
                out += part.T @ Z[rows]
            return columns, out

        return multiply

    def _map_parts(
        self, title: str, work: Callable[[slice, Sparse], Result]
    ) -> Iterator[Result]:
        """Yield work(columns, X) of all parts in order, computed in threads."""
        # before any thread starts: the first call reads the file
        row_sums = self._row_sums()
        ranges = self.reader.ranges(0, self.n_features, self.plan.part_bytes)

        def read_and_work(bounds: tuple[int, int]) -> tuple[int, Result]:
            first, last = bounds
            X = self._part(first, last, row_sums)
            return last - first, work(slice(first, last), X)

        with Progress(title, self.n_features, self.verbose, unit="features") as progress:
            for n_done, result in map_ahead(read_and_work, ranges, part_threads()):
                yield result
                progress.step("", n_done)

    def _part(self, first: int, last: int, row_sums: Floats | None) -> Sparse:
        """Return columns ``first`` to ``last`` - 1 of all samples, preprocessed."""
        X = self.reader.part(first, last)
        return self.preprocessing.apply(X, slice(first, last), row_sums)

    def _row_sums(self) -> Floats | None:
        """Return the sums of whole rows (n,) if normalization needs them."""
        return None if self.preprocessing.normalize is None else self.reader.row_sums()

    def _used(self, X: Sparse) -> Sparse:
        """Return columns with zeros for the samples that are not used."""
        used = used_mask(self._labels().codes, self.weights)
        # most files are used whole, and need no copy
        if used.all():
            return X
        # also where they are NaN or infinite
        data = np.where(used[X.indices], X.data, X.dtype.type(0))
        return type(X)((data, X.indices, X.indptr), shape=X.shape)

    def _labels(self) -> Labels:
        assert self.labels is not None  # those of files are known when these are opened
        return self.labels
