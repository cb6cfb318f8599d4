"""Data beyond memory: read in blocks sized to a budget, summed up while the next is read.

One pass for the scatter matrix, or a few for some of its columns: the answer is the same.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from semfs.arrays import batches
from semfs.io import reader as readers
from semfs.io.reader import Reader
from semfs.io.sparse import SparseReader, normalized
from semfs.labels import LEFT_OUT, NO_LABEL, Labels, label_array
from semfs.progress import Progress
from semfs.rows import memory
from semfs.rows.memory import Accumulator, Rows, row_parts
from semfs.validation import check_all_finite

# With more features per pass than this, X'X takes longer than reading the data once more.
WIDE = 128
# Bytes of a part of a sparse matrix, and rows of it that foretell what a fit will ask for.
PART_BYTES = 4 * readers.BLOCK_BYTES
SAMPLE = 4096
# Threads that unpack and sum up parts: at least the first, at most the second number.
PART_THREADS = 3, 5
# Of so many parts one is a pilot: if they have so many rows of each class, they foretell which
# columns are fetched while the other parts are summed up.
EVERY, ENOUGH = 16, 100
GOLDEN = 0x9E3779B1  # which of the first ones is a pilot differs between ranges of a file
END = object()
WITHOUT_MATRIX = (
    'solver="alternating" needs it, and so do blocks that can be read only once. Use '
    'solver="direct" on data that can be read again (a file, a list of blocks, a function that '
    "returns a fresh iterator), or raise memory."
)


class Block(NamedTuple):
    first: int
    stop: int
    X: Any
    y: Any
    weights: np.ndarray | None


class OutOfCoreRows:
    """What rows have in common that stay where they are."""

    in_memory = False
    nbytes = 0

    def sample_columns(self: Any, features: np.ndarray) -> Any:
        return None if self.preview is None else self.preview.some(features)

    def keep_classes(self, full: np.ndarray) -> Self:
        """Return the same rows: those of empty classes have no weight."""
        return self

    def copy(self) -> Self:
        return self

    def align_to(self, known: Iterable) -> Self:
        return self

    def sums(
        self: Any,
        *,
        n_select: int | None,
        precise: bool = False,
        verbose: int = 0,
        foretell: Callable | None = None,
    ) -> tuple[Accumulator, Any]:
        """Return the sums, and the rows if they must be read again for Gram columns.

        ``n_select`` features are looked for; None needs the whole scatter matrix. Given the
        sums of pilots and the rows, ``foretell`` may return columns to fetch at once.
        """
        rows, matrix = replace(self, verbose=verbose), self.wants_matrix(n_select)
        there = () if matrix or precise or foretell is None else self.piloted()
        enough = min(there, default=0) >= ENOUGH and 4 * sum(there) <= len(self.labels)
        if foretell is None or not enough:
            sums = rows.summed(matrix=matrix, precise=precise)
        else:
            stage: dict[str, Any] = {"matrix": False, "precise": False}
            first = rows.accumulated(**stage, pilots=True)
            columns = foretell(first, replace(rows, preview=first.preview()))
            sums = rows.accumulated(**stage, pilots=False, sample=0, columns=columns)
            sums += first
        again = None if matrix else replace(rows, preview=sums.preview(), known=sums.known)
        return sums, again

    def piloted(self) -> Any:
        """Return how many rows that weigh pilots have of each class (C,), if there are any."""
        return ()

    def recalled(self: Any, columns: np.ndarray) -> tuple[np.ndarray, Any]:
        """Return which columns (a mask) are known but of pilots, and their products."""
        if self.known is None:
            return np.zeros(len(columns), dtype=bool), 0.0
        places = {int(j): t for t, j in enumerate(self.known[0])}
        own = [places.get(int(j), -1) for j in columns]
        known, products = np.array(own) >= 0, self.known[1]
        return known, 0.0 if products is None else products[:, [t for t in own if t >= 0]]

    def sample(self: Any, n: int, *, labeled: bool) -> tuple[Any, np.ndarray]:
        """Return at most n random rows with a label, or without one, and their labels."""
        codes = self.labels.codes
        used = np.flatnonzero(codes >= 0 if labeled else codes == NO_LABEL)
        n = min(n, max(2000, self.memory // (32 * self.n_features)))  # a quarter of it
        if len(used) > n:
            used = np.sort(np.random.default_rng(0).choice(used, n, replace=False))
        parts = self.rows_at(used)
        X = (sp.vstack if sp.issparse(parts[0]) else np.concatenate)(parts)
        return X, Labels(self.labels.classes, codes[used]).array()

    def summed(self: Any, *, matrix: bool, precise: bool) -> Accumulator:
        """Return the sums over all rows, with the d × d matrix if there is room for it."""
        if matrix:
            memory.check_matrix_fits(self.n_features, self.memory, WITHOUT_MATRIX)
        sums = self.accumulated(matrix=matrix, precise=precise)
        if not sums.total:
            raise ValueError("there are no labeled rows, or all their weights are zero.")
        return sums

    def scatter(
        self: Any, mean: np.ndarray, total: float, *, precise: bool, near: bool = False
    ) -> np.ndarray:
        """Return the scatter matrix (d, d) about the mean, in one pass."""
        return self.summed(matrix=True, precise=precise).result()[-1]


@dataclass(frozen=True, eq=False)
class BlockSource(OutOfCoreRows):
    """Labeled rows that are read block by block; make it with `open_blocks`."""

    reader: Reader
    labels: Labels | None = None  # None: they come with the blocks
    weights: np.ndarray | None = None
    memory: int = readers.MEMORY
    block_rows: int | None = None
    passes: str = "auto"
    normalize: bool = False
    scale: np.ndarray | None = None  # (d,), what columns are multiplied by
    start: int = 0
    stop: int | None = None
    preview: Rows | None = None
    known: tuple[np.ndarray, np.ndarray | None] | None = None  # as of an `Accumulator`
    verbose: int = 0

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only the end will tell."""
        stop = self.reader.n_rows if self.stop is None else self.stop
        return None if stop is None else stop - self.start

    @property
    def n_features(self) -> int:
        return self.reader.n_features

    @property
    def feature_names(self) -> list[str] | None:
        return self.reader.feature_names

    @property
    def fits_in_memory(self) -> bool:
        """Whether the data are so small that they had better be loaded."""
        free = self.passes == "auto" and self.block_rows is None and self.n_rows is not None
        return free and (self.n_rows or 0) * self.reader.row_bytes <= self.memory // 2

    def step(self, *, matrix: bool) -> int:
        """Return the number of rows of a block, with or without a scatter matrix beside it."""
        if self.block_rows is not None:
            return self.block_rows
        size = 8 * self.n_features**2 if matrix else 0
        # products gain from longer blocks than sums do
        largest = (2 if matrix else 1) * readers.BLOCK_BYTES
        room = max(0, self.memory - size) // (2 * readers.RING)  # with a copy of each block
        rows = int(max(1, min(largest, max(room, 2**20)) // self.reader.row_bytes))
        chunk = self.reader.chunk_rows
        if rows >= chunk:
            return rows // chunk * chunk
        return chunk if chunk * self.reader.row_bytes <= room else rows

    def blocks(self, *, matrix: bool = False) -> Iterator[Block]:
        """Yield all blocks; the next one is read in the background."""
        found = self.reader.blocks(self.start, self.stop, self.step(matrix=matrix))
        for at, X, y in _ahead(itertools.repeat(partial(next, found, END))):
            block = self._block(at, self.prepared(X), y)
            if block.X.shape[0]:
                yield block

    def prepared(self, X: Any, some: slice = slice(None)) -> Any:
        """Some columns, normalized and scaled."""
        if self.normalize:  # of columns alone the reader knows the sums of rows
            reader: Any = self.reader
            X = normalized(X, reader.row_factors if getattr(X, "format", "") == "csc" else None)
        if self.scale is None:
            return X
        factors = self.scale[None, some].astype(X.dtype)
        return X.multiply(factors).asformat(X.format) if sp.issparse(X) else X * factors

    def scaled(self) -> Self:
        """Return the rows with columns of standard deviation 1 among those with a label."""
        sums = self.accumulated(matrix=False, precise=True)
        spread = np.sqrt(np.maximum(sums.diag, 0.0) / sums.total)
        alike = spread <= 1e-7 * np.abs(sums.mean)  # a constant and its rounding
        return replace(self, scale=1.0 / np.where(alike, 1.0, spread))

    def _block(self, at: int, X: Any, y: Any) -> Block:
        own = self.part(at, at + X.shape[0])
        labels = Labels.of(y) if own.labels is None else own.labels
        if len(labels) != X.shape[0]:
            raise ValueError(f"a block has {X.shape[0]} rows but {len(labels)} labels.")
        self.reader.unlabeled |= self.labels is None and labels.n_unlabeled > 0
        y, weights, used = labels.array(), own.weights, labels.codes >= 0
        used &= True if weights is None else weights > 0
        if not used.all():
            X, y = X[used], label_array(y[used].tolist())
            weights = None if weights is None else weights[used]
        return Block(at, at + len(labels), X, y, weights)

    def load(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return X, labels (None without one) and weights in memory."""
        assert self.labels is not None
        X, kept = self.prepared(self.reader.load()), self.labels.codes != LEFT_OUT
        if kept.all():
            return X, self.labels.array(), self.weights
        y = label_array(self.labels.array()[kept].tolist())
        return X[kept], y, None if self.weights is None else self.weights[kept]

    def part(self, start: int, stop: int) -> BlockSource:
        """Return the rows start … stop - 1 as a source of their own."""
        rows = slice(start - self.start, stop - self.start)
        labels = None if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        return replace(self, labels=labels, weights=weights, start=start, stop=stop)

    def without(self, classes: Iterable) -> BlockSource:
        labels = None if self.labels is None else self.labels.without(classes)
        return replace(self, labels=labels)

    def align_to(self, known: Iterable) -> BlockSource:
        """Return the source with labels in the type of the known ones: 3 and "3" are one."""
        return (
            self if self.labels is None else replace(self, labels=self.labels.align_to(known))
        )

    def mask_label(self, mark: Any) -> BlockSource:
        """Return the source with no label where it is a mark."""
        return (
            self if self.labels is None else replace(self, labels=self.labels.mask_label(mark))
        )

    def labeled(self) -> BlockSource:
        """Return the same rows with their labels known, read first if they come with them."""
        if self.labels is not None:
            return self
        if not self.reader.rereadable:
            raise ValueError(
                "rows without a label are used in several passes, but these blocks can be read "
                "only once. Pass a list of them, or a function that returns a fresh iterator."
            )
        found = [(X.shape[0], y) for _, X, y in self.reader.blocks(0, None, 1)]
        every = [label for n, y in found for label in ([None] * n if y is None else y)]
        return replace(self, labels=Labels.of(every))

    def rows_at(self, places: np.ndarray) -> list[Any]:
        """Return the rows at some places, in parts."""
        rows = replace(self._only(places, 0), weights=None)
        return [block.X.copy() for block in rows.blocks()]

    def named(self, classes: Any) -> BlockSource:
        """Return the rows without a label, each in the class that ``classes`` assign it to."""
        assert self.labels is not None
        hidden = np.flatnonzero(self.labels.codes == NO_LABEL)
        return self._only(hidden, self._assigned(hidden, classes))

    def _assigned(self, places: np.ndarray, classes: Any) -> np.ndarray:
        rows = replace(self._only(places, 0), weights=None)
        return np.concatenate([classes.assign(block.X) for block in rows.blocks()])

    def _only(self, places: np.ndarray, codes: Any) -> BlockSource:
        """The source of some rows, with numbers as labels."""
        assert self.labels is not None
        every = np.full(len(self.labels), LEFT_OUT, dtype=np.int32)
        every[places] = codes
        return replace(self, labels=Labels(list(range(every.max(initial=0) + 1)), every))

    def wants_matrix(self, n_select: int | None) -> bool:
        """Whether to form the d × d matrix in one pass: if it must be, or takes less time."""
        if n_select is None or not self.reader.rereadable or self.passes == "one":
            return True
        d = self.n_features
        few_rows = self.n_rows is not None and self.n_rows < d
        if self.passes == "few" or few_rows or self.reader.sparse or 8 * d**2 > self.memory:
            return False
        # of 32 to 128 Gram columns, half of them used
        n_passes = 3 + -(-min(n_select, d) // 64)
        return d <= WIDE * n_passes

    def accumulated(self, *, matrix: bool, precise: bool, sample: int = 0) -> Accumulator:
        """Return the sums over all blocks; an error says which rows it is about."""
        sums = Accumulator(self.n_features, matrix=matrix, precise=precise)
        for block in self._watched("scatter matrix" if matrix else "class means", matrix):
            try:
                sums.add(block.X, block.y, block.weights)
            except ValueError as error:
                where = f"rows {block.first} to {block.stop - 1}"
                raise ValueError(f"{error} (in {where})") from error
        known = self.labels is not None and self.labels.n_unlabeled > 0
        sums.unlabeled = self.reader.unlabeled or known
        return sums

    def gram_columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        out = np.zeros((len(mean), len(columns)))
        for block in self._watched(f"{len(columns)} Gram columns"):
            weights = block.weights
            n = block.X.shape[0] if weights is None else float(weights.sum())
            rows = Rows(block.X, block.y, weights)
            out += rows.gram_columns(columns, mean, n, far=far, precise=precise)
        return out

    def _watched(self, title: str, matrix: bool = False) -> Iterator[Block]:
        """The blocks, with a line of progress for each."""
        with Progress(title, self.n_rows, self.verbose, unit="rows") as progress:
            for block in self.blocks(matrix=matrix):
                yield block
                done = block.stop - self.start
                speed = done * self.reader.row_bytes / progress.seconds / 1e6
                progress.step(f"{speed:,.0f} MB/s", done - progress.done)


@dataclass(frozen=True, eq=False)
class SparseSource(BlockSource):
    """Rows of a sparse matrix, summed up by parts: some rows each, or columns of all rows."""

    reader: SparseReader
    labels: Labels

    @cached_property
    def _rows(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Class codes (n,), the number of classes for rows that weigh nothing, and weights."""
        counted, weights = self.labels.codes >= 0, self.weights
        if not counted.all():
            weights = counted * (1.0 if weights is None else weights)
        return np.where(counted, self.labels.codes, len(self.labels.classes)), weights

    def _ranges(self, pilots: bool | None = None) -> list[tuple[int, int]]:
        """First and last + 1 of the rows, or columns, of all parts, of pilots or of others."""
        columns, n = self.reader.by_columns, self.n_rows or 0
        start, size = (0, self.n_features) if columns else (self.start, n)
        parts = self.reader.ranges(start, start + size, PART_BYTES)
        found = enumerate(parts, (start * GOLDEN) >> 16)
        return [r for i, r in found if pilots is None or (i % EVERY == 0) == pilots]

    def _inside(self, pilots: bool) -> np.ndarray:
        """A mask (n,) of the rows of pilots, or of the others."""
        out = np.zeros(len(self.labels), dtype=bool)
        for first, last in self._ranges(pilots):
            out[first - self.start : last - self.start] = True
        return out

    def piloted(self) -> Any:
        if self.reader.by_columns:
            return ()
        (codes, weights), C = self._rows, len(self.labels.classes)
        used = self._inside(True) & (True if weights is None else weights > 0.0)
        return np.bincount(codes[used], minlength=C + 1)[:C]

    def _mapped(
        self, title: str, work: Callable, pilots: bool | None = None
    ) -> Iterator[tuple[slice, Any]]:
        """Which rows or columns, and what ``work`` returns for them and their part."""
        columns, ranges = self.reader.by_columns, self._ranges(pilots)
        start, size = 0 if columns else self.start, sum(last - first for first, last in ranges)
        threads = int(np.clip(memory.n_threads(), *PART_THREADS))
        _ = columns and self.normalize and self.reader.row_factors  # once, not in each thread

        def task(first: int, last: int) -> tuple[slice, Any]:
            where = slice(first - start, last - start)
            some = where if columns else slice(None)
            return where, work(where, self.prepared(self.reader.part(first, last), some))

        with Progress(title, size, self.verbose, unit="parts") as progress:
            for where, found in _ahead((partial(task, *r) for r in ranges), threads):
                yield where, found
                progress.step("", where.stop - where.start)

    def _picked(self, places: np.ndarray, where: slice, X: Any) -> Any:
        """Some of the rows, as far as they are in a part."""
        rows = slice(0, X.shape[0]) if self.reader.by_columns else where
        return X[places[(places >= rows.start) & (places < rows.stop)] - rows.start]

    def _joined(self, pieces: list) -> Any:
        return (sp.hstack if self.reader.by_columns else sp.vstack)(pieces, format="csr")

    def rows_at(self, places: np.ndarray) -> list[Any]:
        found = self._mapped("a sample", partial(self._picked, places))
        return [self._joined([piece for _, piece in found])]

    def _assigned(self, places: np.ndarray, classes: Any) -> np.ndarray:
        if not self.reader.by_columns:
            return super()._assigned(places, classes)
        # what columns add to the projection of a row is summed up; then the nearest is found
        out, (K, p) = np.empty(len(places), dtype=np.int32), classes.centers.shape
        for some in batches(len(places), max(1, self.memory // (8 * p))):
            Z = np.zeros((len(places[some]), p))
            for where, X in self._mapped("new classes", partial(self._picked, places[some])):
                for rows, part in row_parts(X.tocsr()):
                    Z[rows] += classes.project(part, where)
            for rows in batches(len(Z), max(1, readers.BLOCK_BYTES // (8 * K))):
                out[some][rows] = classes.nearest(Z[rows])
        return out

    def accumulated(
        self,
        *,
        matrix: bool,
        precise: bool,
        sample: int = SAMPLE,
        pilots: bool | None = None,
        columns: np.ndarray | None = None,
    ) -> Accumulator:
        """Return the sums over all parts, of pilots or of others, and products of columns."""
        if matrix:
            return super().accumulated(matrix=matrix, precise=precise)
        (codes, weights), classes = self._rows, self.labels.classes
        d, C = self.n_features, len(classes) + 1
        if pilots is not None:
            codes = np.where(self._inside(pilots), codes, C - 1)
        products = np.zeros((d, 0 if columns is None else len(columns)))
        sums, squares, pieces = np.zeros((C, d)), np.zeros(d), []
        counted, whole = np.flatnonzero(codes < C - 1), slice(0, len(codes))
        size = min(len(counted), sample)
        chosen = np.sort(np.random.default_rng(0).choice(counted, size, replace=False))

        def totals(where: slice, X: Any) -> tuple[list, list, Any]:
            own = whole if self.reader.by_columns else where
            w = None if weights is None else weights[own]
            found = list(memory.sparse_totals(X, codes[own], C, w))
            if not all(np.isfinite(squares).all() for _, squares in found):
                check_all_finite(X)
            made = [] if columns is None else memory.sparse_products(X, columns, w, X.dtype)
            return found, list(made), self._picked(chosen, where, X)

        title = "class means" if columns is None else f"sums, {len(columns)} Gram columns"
        for where, (found, made, piece) in self._mapped(title, totals, pilots):
            some = where if self.reader.by_columns else slice(None)
            for own in found:
                sums[:, some] += own[0]
                squares[some] += own[1]
            for product in made:
                products += product
            pieces.append(piece)
        counts = np.bincount(codes, weights, C)[:-1].astype(np.float64)
        out = Accumulator(d, matrix=False)
        out.rounding, out.sparse = float(np.finfo(self.reader.dtype).eps), True
        out.unlabeled = self.labels.n_unlabeled > 0
        out.add_totals(classes, counts, sums[:-1], squares)
        out.known = None if columns is None else (columns, products)
        # rows that weigh as much, class by class, as all of them
        X = self._joined(pieces)
        w = np.ones(size) if weights is None else weights[chosen]
        there = np.bincount(codes[chosen], w, C - 1)
        share = counts / np.where(there > 0.0, there, 1.0)
        if counts.any() and size:
            out.sample = [(X, codes[chosen], w * share[codes[chosen]])]
        return out

    def gram_columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        n, weights, title = len(self.labels), self._rows[1], f"{len(columns)} Gram columns"
        total = n if weights is None else float(weights.sum())  # of these rows alone
        out = -total * np.outer(mean, mean[columns])

        dtype = np.dtype(np.float64 if far or precise else self.reader.dtype)

        if not self.reader.by_columns:
            rows = self if dtype == self.reader.dtype else replace(self, known=None)
            return out + rows._row_products(title, columns, dtype)
        for some in batches(len(columns), max(1, self.memory // (n * dtype.itemsize))):
            Z = np.zeros((n, len(columns[some])), dtype=dtype)

            def fill(t: int, j: int, Z: np.ndarray = Z) -> None:
                column = self.prepared(self.reader.part(j, j + 1), slice(j, j + 1))
                Z[column.indices, t] = column.data

            with ThreadPoolExecutor(PART_THREADS[0]) as pool:
                list(pool.map(fill, range(Z.shape[1]), columns[some].tolist()))
            if weights is not None:
                Z *= weights.astype(dtype)[:, None]
            for part, found in self._mapped(title, partial(_products, Z)):
                out[part, some] += found
        return out

    def _row_products(self, title: str, columns: np.ndarray, dtype: Any) -> np.ndarray:
        """X'Z (d, b) of some columns; those that are known of pilots alone are read again."""
        out = np.zeros((self.n_features, len(columns)))
        known, products = self.recalled(columns)
        out[:, known] = products
        every, new = np.arange(len(columns)), np.flatnonzero(~known)

        def of_rows(those: np.ndarray, where: slice, X: Any) -> list[np.ndarray]:
            w = None if self._rows[1] is None else self._rows[1][where]
            return list(memory.sparse_products(X, columns[those], w, dtype))

        stages = [(True, every), (False, new)] if known.any() else [(None, new)]
        for pilots, those in [stage for stage in stages if len(stage[1])]:
            own = np.zeros((len(out), len(those)))
            for _, found in self._mapped(title, partial(of_rows, those), pilots):
                for product in found:
                    own += product
            out[:, those] += own
        return out


def source_of(reader: Reader, *parts: Any, **options: Any) -> BlockSource:
    """Return the source of a reader's rows, dense or sparse."""
    kind: Any = SparseSource if isinstance(reader, SparseReader) else BlockSource
    return kind(reader, *parts, **options)


def _products(Z: np.ndarray, _: slice, X: Any) -> np.ndarray:
    """X'Z (g, b) of some columns X (n, g), stored as such."""
    out = np.zeros((X.shape[1], Z.shape[1]))
    for rows, part in row_parts(X.tocsr()):
        out += part.T @ Z[rows]
    return out


def _ahead(tasks: Iterator[Callable], workers: int = 1) -> Iterator:
    """Yield what tasks return, up to END, while threads are at the next ones."""
    with ThreadPoolExecutor(workers, thread_name_prefix="semfs-reader") as pool:
        waiting = deque(pool.submit(task) for task in itertools.islice(tasks, workers))
        while waiting and (item := waiting.popleft().result()) is not END:
            waiting.extend(pool.submit(task) for task in itertools.islice(tasks, 1))
            yield item
