"""Data beyond memory: read in blocks sized to a budget, summed up while the next is read.

`open_blocks` turns files, folders, chunked arrays and iterables into a `BlockSource`, which
`SemFS.fit` accepts. One pass that forms the scatter matrix and a few passes that fetch some of
its columns give the solver the same numbers, and the answer is that of the data in memory.
"""

from __future__ import annotations

import shutil
import warnings
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np

from semfs.files import appearing
from semfs.progress import Progress
from semfs.rows import readers
from semfs.rows.labels import LEFT_OUT, Labels
from semfs.rows.memory import PASS_ROWS, column_products, spans
from semfs.rows.readers import Reader, digest
from semfs.rows.sums import Accumulator
from semfs.validation import label_array

__all__ = ["Block", "BlockSource", "StayingRows"]

# With more features per pass than this, X'X takes longer than reading the data once more.
WIDE = 128
# From the total weight of each class (empty unless asked for) to the factor of its rows.
ClassWeights = Callable[[Mapping[Any, float]], dict[Any, float] | None]


class Block(NamedTuple):
    """Labelled rows that count: their place among all rows, values, labels and weights."""

    first: int
    stop: int
    X: Any
    y: Any
    weights: np.ndarray | None


class StayingRows:
    """What rows have in common that stay where they are (`semfs.rows.memory.RowPasses`)."""

    def of_classes(self, full: np.ndarray) -> Self:
        """Return the same rows: those of empty classes have no weight."""
        return self

    def own(self) -> Self:
        """Return the same rows: nobody changes them."""
        return self

    def matched(self, known: Iterable) -> Self:
        """Return the same rows; labels that are at hand take the type of the known ones."""
        return self

    def finished(self) -> None:
        """Clean up when the fit is done."""


@dataclass(frozen=True, eq=False)
class BlockSource(StayingRows):
    """Labelled rows that are read block by block; make it with `open_blocks`."""

    reader: Reader
    labels: Labels | None = None  # None: they come with the blocks
    weights: np.ndarray | None = None
    class_weight: dict | None = None
    memory: int = readers.MEMORY
    block_rows: int | None = None
    passes: str = "auto"
    checkpoint: Path | None = None
    start: int = 0
    stop: int | None = None
    verbose: int = 0

    # ---- sizes ------------------------------------------------------------------------

    @property
    def n_rows(self) -> int | None:
        """Number of rows, None if only the end will tell."""
        stop = self.reader.n_rows if self.stop is None else self.stop
        return None if stop is None else stop - self.start

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.reader.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns, where the data have them."""
        return self.reader.feature_names

    @property
    def matrix_fits(self) -> bool:
        """Whether the d × d scatter matrix fits into the memory budget."""
        return 8 * self.n_features**2 <= self.memory

    @property
    def fits(self) -> bool:
        """Whether the data are so small that they had better be loaded."""
        free = self.passes == "auto" and self.checkpoint is None and self.block_rows is None
        size = None if self.n_rows is None else self.n_rows * self.reader.row_bytes
        return free and size is not None and size <= self.memory // 2

    def step(self, *, matrix: bool) -> int:
        """Return the number of rows of a block, with or without a scatter matrix beside it."""
        if self.block_rows is not None:
            return self.block_rows
        size = 8 * self.n_features**2 if matrix else 0
        # products gain from longer blocks than sums do
        largest = (4 if matrix else 1) * readers.BLOCK_BYTES
        room = max(0, self.memory - size) // (2 * readers.RING)  # with a copy of each block
        if self.checkpoint is not None:  # saved after each block, which had better be long
            largest, room = max(4 * readers.BLOCK_BYTES, 4 * size), readers.RING * room
        rows = int(max(1, min(largest, max(room, 2**20)) // self.reader.row_bytes))
        chunk = self.reader.chunk_rows
        if rows >= chunk:
            return rows // chunk * chunk
        return chunk if chunk * self.reader.row_bytes <= room else rows

    # ---- rows -------------------------------------------------------------------------

    def blocks(self, *, matrix: bool = False, first: int | None = None) -> Iterator[Block]:
        """Yield all blocks from row ``first`` on; the next one is read in the background.

        Not so with a checkpoint: what was read ahead would be read again after a crash.
        """
        first = self.start if first is None else first
        self.reader.n_buffers = 1 if self.checkpoint else readers.RING
        found = self.reader.blocks(first, self.stop, self.step(matrix=matrix))
        for at, X, y in found if self.checkpoint else ahead(found):
            block = self._block(at, X, y)
            if block.X.shape[0]:
                yield block

    def _block(self, at: int, X: Any, y: Any) -> Block:
        rows = slice(at - self.start, at - self.start + X.shape[0])
        labels = Labels.of(y) if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        stop, y = at + X.shape[0], labels.array()
        if self.class_weight is not None:
            factors = [float(self.class_weight.get(c, 1.0)) for c in labels.classes]
            of_rows = np.array([*factors, 0.0])[np.maximum(labels.codes, -1)]
            weights = of_rows * (1.0 if weights is None else weights)
        used = labels.codes >= 0
        used &= True if weights is None else weights > 0
        if not used.all():
            X, y = X[used], label_array(y[used].tolist())
            weights = None if weights is None else weights[used]
        return Block(at, stop, X, y, weights)

    def load(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return X, labels (None without one) and weights in memory."""
        assert self.labels is not None
        X, kept = self.reader.load(), self.labels.codes != LEFT_OUT
        if kept.all():
            return X, self.labels.array(), self.weights
        y = label_array(self.labels.array()[kept].tolist())
        return X[kept], y, None if self.weights is None else self.weights[kept]

    def part(self, start: int, stop: int) -> BlockSource:
        """Return the rows start … stop - 1 as a source of their own."""
        rows = slice(start - self.start, stop - self.start)
        labels = None if self.labels is None else self.labels[rows]
        weights = None if self.weights is None else self.weights[rows]
        part = replace(self, labels=labels, weights=weights, checkpoint=None)
        return replace(part, start=start, stop=stop)

    def without(self, classes: Iterable) -> BlockSource:
        """Return the source without the rows of some classes, which may be named as text."""
        return (
            self if self.labels is None else replace(self, labels=self.labels.without(classes))
        )

    def matched(self, known: Iterable) -> BlockSource:
        """Return the source with labels in the type of the known ones: 3 and "3" are one."""
        return self if self.labels is None else replace(self, labels=self.labels.matched(known))

    # ---- sums -------------------------------------------------------------------------

    def weighted(self, class_weights: ClassWeights, *, balanced: bool) -> BlockSource:
        """Return the rows with class weights, given a function of classes and their counts."""
        counts = self.label_weights() if balanced else {}
        return replace(self, class_weight=class_weights(counts))

    def label_weights(self) -> Counter:
        """Return the total weight of each class, which needs the labels before the rows."""
        if self.labels is None and not self.reader.rereadable:
            raise ValueError(
                'class_weight="balanced" needs the labels before the rows, but these blocks '
                "can be read only once. Pass a mapping class -> weight."
            )
        out: Counter = Counter()
        if self.labels is None:
            for block in self.blocks():
                out.update(_class_totals(Labels.of(block.y), block.weights))
            return out
        return Counter(_class_totals(self.labels, self.weights))

    def sums(
        self, *, n_select: int | None, precise: bool = False, verbose: int = 0
    ) -> tuple[Accumulator, BlockSource | None]:
        """Return the sums, and the rows if they must be read again for Gram columns.

        ``n_select`` is the number of features the direct solver will look for, None for
        solvers that need the whole scatter matrix.
        """
        warn_of_unlabelled(self)
        source = replace(self, verbose=verbose)
        saved = saved_state(source)
        state = None if saved is None else saved.read("sums")
        if state is None:
            first, matrix = self.start, wants_matrix(self, n_select)
            sums = Accumulator(self.n_features, matrix=matrix, precise=precise)
        else:
            first, sums = int(state["done"]), Accumulator.from_state(state)
        sums = source._accumulate(sums, first)
        return sums, source if sums.upper is None else None

    def _accumulate(self, sums: Accumulator, first: int) -> Accumulator:
        """Add the blocks from row ``first`` on; save the state after each of them."""
        saved, matrix = saved_state(self), sums.upper is not None
        with self._progress("scatter matrix" if matrix else "class means", first) as progress:
            for block in self.blocks(matrix=matrix, first=first):
                add_block(sums, block, overwrite=self.reader.ours)
                if saved is not None:
                    saved.write("sums", sums.state() | {"done": np.array(block.stop)})
                self._report(progress, block)
        return check_rows(sums)

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in one pass."""
        saved, name = saved_state(self), f"columns-{digest(columns, precise)}"
        state = None if saved is None else saved.read(name)
        out = np.zeros((len(columns), len(mean))) if state is None else state["out"]
        first = self.start if state is None else int(state["done"])
        with self._progress(f"{len(columns)} Gram columns", first) as progress:
            for block in self.blocks(first=first):
                add_columns(out, block, columns, mean, far=far, precise=precise)
                if saved is not None:
                    saved.write(name, {"out": out, "done": np.array(block.stop)})
                self._report(progress, block)
        if self.reader.sparse:
            out = out - total * np.outer(mean[columns], mean)
        return out.T

    def scatter(
        self, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Return scatter + alpha * between-class scatter (d, d), in one pass."""
        check_budget(self.n_features, self.memory, None)
        sums = Accumulator(self.n_features, precise=precise)
        out = replace(self, checkpoint=None)._accumulate(sums, self.start).result()[-1]
        assert out is not None
        root = np.sqrt(alpha * counts)[:, None] * (means - counts @ means / counts.sum())
        return out + root.T @ root if alpha else out

    def finished(self) -> None:
        """Delete the checkpoint: the fit is done."""
        if self.checkpoint is not None:
            shutil.rmtree(self.checkpoint, ignore_errors=True)

    def _progress(self, title: str, first: int) -> Progress:
        progress = Progress(title, self.n_rows, self.verbose, unit="rows")
        progress.done = first - self.start
        return progress

    def _report(self, progress: Progress, block: Block) -> None:
        speed = progress.done * self.reader.row_bytes / progress.seconds / 1e6
        progress.step(f"{speed:,.0f} MB/s", block.stop - self.start - progress.done)


def warn_of_unlabelled(source: BlockSource) -> None:
    """Say that rows without a label are not used where the data are not in memory."""
    if source.labels is not None and source.labels.n_unlabelled:
        warnings.warn(
            f"{source.labels.n_unlabelled} rows without a label are left out. Using them needs "
            "X in memory.",
            UserWarning,
            stacklevel=2,
        )


def warn_of_texts(names: list[str]) -> None:
    """Name the columns of a table that are left out because they hold no numbers."""
    if names:
        shown = ", ".join(repr(name) for name in names[:5]) + ", …" * (len(names) > 5)
        message = f"columns without numbers are no features: {shown}."
        warnings.warn(message, UserWarning, stacklevel=2)


def _class_totals(labels: Labels, weights: np.ndarray | None) -> dict[Any, float]:
    """Total weight of each class."""
    used = labels.codes >= 0
    weights = None if weights is None else weights[used]
    return dict(zip(labels.classes, np.bincount(labels.codes[used], weights).tolist()))


def check_rows(sums: Accumulator) -> Accumulator:
    """Return the sums, unless there is nothing in them."""
    if not sums.total:
        raise ValueError("there are no labelled rows, or all their weights are zero.")
    return sums


def add_block(sums: Accumulator, block: Block, *, overwrite: bool = False) -> None:
    """Add a block; an error says which rows it is about."""
    try:
        sums.add(block.X, block.y, block.weights, overwrite=overwrite)
    except ValueError as error:
        where = f"rows {block.first} to {block.stop - 1}"
        raise ValueError(f"{error} (in {where})") from error


def add_columns(
    out: np.ndarray, block: Any, columns: np.ndarray, mean: np.ndarray, **options: Any
) -> None:
    """Add what a block contributes to rows (b, d) of the scatter matrix."""
    for rows in spans(block.X.shape[0], PASS_ROWS):
        weights = None if block.weights is None else block.weights[rows]
        out += column_products(block.X[rows], columns, mean, weights, **options)


# ---- one pass or a few --------------------------------------------------------------


def wants_matrix(source: BlockSource, n_select: int | None) -> bool:
    """Whether to form the d × d matrix in one pass."""
    if n_select is None or not source.reader.rereadable:
        check_budget(source.n_features, source.memory, n_select)
        return True
    if source.passes != "auto":
        return source.passes == "one"
    if not source.matrix_fits:
        return False
    if source.n_rows is not None and source.n_rows < source.n_features:
        return False
    n_passes = 3 + -(-n_select // 64)  # batches of 32 to 128 Gram columns, half of them used
    return not source.reader.sparse and source.n_features <= WIDE * n_passes


def check_budget(d: int, memory: int, n_select: int | None) -> None:
    """Raise if a d × d matrix is needed (by `alternating`, or for want of a second pass)."""
    if 8 * d**2 <= memory:
        return
    found = (
        f"the scatter matrix of {d} features takes {8e-9 * d**2:.1f} GB, more than the memory "
        f"budget of {memory / 1e9:.1f} GB"
    )
    if n_select is None:
        raise ValueError(
            f'{found}, and solver="alternating" needs it. Use solver="direct", or raise memory.'
        )
    raise ValueError(
        f"{found}, and these blocks can be read only once. Pass data that can be read again (a "
        "file, a list of blocks, a function that returns a fresh iterator), or raise memory."
    )


# ---- what survives a crash ----------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """A folder with one file of plain arrays per pass, each written whole.

    ``identity`` tells the data apart: a checkpoint of other data is refused, not mixed in.
    """

    path: Path
    identity: str

    def read(self, name: str) -> dict[str, np.ndarray] | None:
        """Return the arrays of a pass, or None if it has not begun."""
        file = self.path / f"{name}.npz"
        if not file.exists():
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                arrays = {key: stored[key] for key in stored.files}
        except (OSError, ValueError, zipfile.BadZipFile) as error:
            raise ValueError(
                f"the checkpoint {self.path} is damaged ({error}). Delete it to start afresh."
            ) from error
        if str(arrays.pop("identity")) != self.identity:
            raise ValueError(
                f"the checkpoint {self.path} belongs to other data, labels or weights (or the "
                "file has changed since). Delete it, or give another place for this one."
            )
        return arrays

    def write(self, name: str, arrays: dict[str, np.ndarray]) -> None:
        """Store the arrays of a pass, all or nothing."""
        self.path.mkdir(parents=True, exist_ok=True)
        with appearing(self.path / f"{name}.npz") as beside, beside.open("wb") as file:
            np.savez(file, identity=np.array(self.identity), **arrays)  # type: ignore[arg-type]


def saved_state(source: BlockSource) -> Checkpoint | None:
    """Return the checkpoint of a source, if one is asked for."""
    if source.checkpoint is None:
        return None
    weights = sorted((source.class_weight or {}).items(), key=repr)
    labels = () if source.labels is None else (source.labels.classes, source.labels.codes)
    identity = digest(source.reader.fingerprint(), weights, source.weights, *labels)
    return Checkpoint(source.checkpoint, identity)


def ahead(items: Iterator) -> Iterator:
    """Yield items while the next one is made in a thread."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="semfs-reader") as pool:
        waiting = pool.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, items, end)
            yield item
