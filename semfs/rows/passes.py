"""Passes over data that are read in blocks: moments, and Gram columns when d × d is too large.

Everything is exact: one pass that forms the scatter matrix and a few passes that fetch some of
its columns give the solver the same numbers, up to rounding.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
import scipy.sparse as sp

from semfs.rows.blocks import Block, BlockSource
from semfs.rows.memory import PASS_ROWS, column_products, spans, totals
from semfs.rows.readers import digest
from semfs.rows.sums import Accumulator

__all__ = ["Checkpoint", "SourceRows", "accumulate", "expected_fetches", "wants_matrix"]


# From the total weight of each class (empty unless asked for) to the factor of its rows.
ClassWeights = Callable[[Mapping[Any, float]], dict[Any, float] | None]


def accumulate(
    source: BlockSource,
    sums: Accumulator,
    *,
    first: int | None = None,
    verbose: int = 0,
) -> Accumulator:
    """Add the blocks of a source from row ``first`` on; save the state after each of them."""
    saved, matrix = saved_state(source), sums.upper is not None
    first = source.start if first is None else first
    title = "scatter matrix" if matrix else "class means"
    with progress(source, title, first, verbose) as advance:
        for block in source.blocks(matrix=matrix, first=first):
            add_block(sums, block, overwrite=source.reader.ours)
            if saved is not None:
                saved.write("sums", sums.state() | {"done": np.array(block.stop)})
            advance(block)
    return check_rows(sums)


def check_rows(sums: Accumulator) -> Accumulator:
    """Return the sums, unless there is nothing in them."""
    if not sums.total:
        raise ValueError("there are no rows, or all their weights are zero.")
    return sums


def add_block(sums: Accumulator, block: Block, *, overwrite: bool = False) -> None:
    """Add a block; an error says which rows it is about."""
    try:
        sums.add(block.X, block.y, block.weights, overwrite=overwrite)
    except ValueError as error:
        where = f"rows {block.first} to {block.stop - 1}"
        raise ValueError(f"{error} (in {where})") from error


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
    return not _few_are_faster(source, n_select)


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


def expected_fetches(n_select: int) -> int:
    """Return how many passes for Gram columns the direct solver makes, roughly.

    Columns come in batches of 32 to 128 candidates, of which about half are used.
    """
    return 2 + -(-n_select // 64)


def _few_are_faster(source: BlockSource, n_select: int) -> bool:
    """Time reading, sums and products on the first block."""
    begin = time.perf_counter()
    _, X, _ = next(
        iter(source.reader.blocks(source.start, source.stop, source.step(matrix=True)))
    )
    read = time.perf_counter() - begin
    if sp.issparse(X):
        return True
    rows = X[: min(len(X), 1024)]
    share = len(X) / len(rows)
    light = share * _seconds(lambda: totals(rows, np.zeros(len(rows), np.intp), 1, None))
    products = share * _seconds(lambda: rows.T @ rows)
    few = (1 + expected_fetches(n_select)) * max(read, 1.5 * light)
    return few < max(read, light + products)


def _seconds(function: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    function()
    return time.perf_counter() - begin


# ---- rows in a source ---------------------------------------------------------------


class StayingRows:
    """What rows have in common that stay where they are."""

    def of_classes(self, full: np.ndarray) -> Self:
        """Return the same rows: those of empty classes have no weight."""
        return self

    def own(self) -> Self:
        """Return the same rows: nobody changes them."""
        return self

    def finished(self) -> None:
        """Clean up when the fit is done."""


@dataclass(frozen=True, eq=False)
class SourceRows(StayingRows):
    """Rows that stay in their source (`semfs.rows.RowPasses`)."""

    source: BlockSource
    verbose: int = 0

    @property
    def n_features(self) -> int:
        """Number of columns."""
        return self.source.n_features

    @property
    def feature_names(self) -> list[str] | None:
        """Names of the columns, where the format has them."""
        return self.source.reader.feature_names

    @property
    def fits(self) -> bool:
        """Whether the data are so small that they had better be loaded."""
        return self.source.fits

    def load(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return X, labels and weights in memory."""
        return self.source.load()

    def weighted(self, class_weights: ClassWeights, *, balanced: bool) -> SourceRows:
        """Return the rows with class weights, given a function of classes and their counts."""
        counts = self.source.label_weights() if balanced else {}
        source = replace(self.source, class_weight=class_weights(counts))
        return replace(self, source=source)

    def sums(
        self, *, n_select: int | None, precise: bool = False, verbose: int = 0
    ) -> tuple[Accumulator, SourceRows | None]:
        """Return the sums, and the rows if they must be read again for Gram columns.

        ``n_select`` is the number of features the direct solver will look for, None for
        solvers that need the whole scatter matrix.
        """
        saved = saved_state(self.source)
        state = None if saved is None else saved.read("sums")
        if state is None:
            first, matrix = self.source.start, wants_matrix(self.source, n_select)
            sums = Accumulator(self.n_features, matrix=matrix, precise=precise)
        else:
            first, sums = int(state["done"]), Accumulator.from_state(state)
        sums = accumulate(self.source, sums, first=first, verbose=verbose)
        return sums, replace(self, verbose=verbose) if sums.upper is None else None

    def finished(self) -> None:
        """Delete the checkpoint: the fit is done."""
        saved = saved_state(self.source)
        if saved is not None:
            saved.clear()

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in one pass."""
        source, saved = self.source, saved_state(self.source)
        name = f"columns-{digest(columns, precise)}"
        state = None if saved is None else saved.read(name)
        out = np.zeros((len(columns), len(mean))) if state is None else state["out"]
        first = source.start if state is None else int(state["done"])
        with progress(source, f"{len(columns)} Gram columns", first, self.verbose) as advance:
            for block in source.blocks(first=first):
                add_columns(out, block, columns, mean, far=far, precise=precise)
                if saved is not None:
                    saved.write(name, {"out": out, "done": np.array(block.stop)})
                advance(block)
        if source.reader.sparse:
            out = out - total * np.outer(mean[columns], mean)
        return out.T

    def scatter(
        self, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Return scatter + alpha * between-class scatter (d, d), in one pass."""
        check_budget(self.n_features, self.source.memory, None)
        source = replace(self.source, checkpoint=None)
        sums = Accumulator(self.n_features, precise=precise)
        out = accumulate(source, sums, verbose=self.verbose).result()[-1]
        assert out is not None
        root = np.sqrt(alpha * counts)[:, None] * (means - counts @ means / counts.sum())
        return out + root.T @ root if alpha else out


def add_columns(
    out: np.ndarray,
    block: Any,
    columns: np.ndarray,
    mean: np.ndarray,
    *,
    far: bool,
    precise: bool,
) -> None:
    """Add what a block contributes to rows (b, d) of the scatter matrix."""
    for rows in spans(block.X.shape[0], PASS_ROWS):
        weights = None if block.weights is None else block.weights[rows]
        out += column_products(block.X[rows], columns, mean, weights, far=far, precise=precise)


# ---- what survives a crash ----------------------------------------------------------


@dataclass(frozen=True)
class Checkpoint:
    """A folder with one file per pass, each written beside its place and then renamed.

    Files hold plain arrays only (never executed). ``identity`` tells the data apart: a
    checkpoint of other data is refused, not mixed in.
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
        beside = self.path / f"{name}.{os.getpid()}.tmp"
        try:
            with beside.open("wb") as file:
                np.savez(file, identity=np.array(self.identity), **arrays)  # type: ignore[arg-type]
            os.replace(beside, self.path / f"{name}.npz")
        finally:
            with contextlib.suppress(FileNotFoundError):
                beside.unlink()

    def clear(self) -> None:
        """Delete the checkpoint."""
        shutil.rmtree(self.path, ignore_errors=True)


def saved_state(source: BlockSource) -> Checkpoint | None:
    """Return the checkpoint of a source, if one is asked for."""
    if source.checkpoint is None:
        return None
    weights = sorted((source.class_weight or {}).items(), key=repr)
    parts = [p for p in (source.y, source.weights) if p is not None]
    identity = digest(source.reader.fingerprint(), weights, len(parts), *parts)
    return Checkpoint(source.checkpoint, identity)


# ---- progress -----------------------------------------------------------------------


@contextlib.contextmanager
def progress(
    source: BlockSource, title: str, first: int, verbose: int
) -> Iterator[Callable[[Any], None]]:
    """Show rows done and bytes per second on standard error if ``verbose``."""
    if not verbose:
        yield lambda block: None
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn
    except ImportError:
        yield _lines(source, title)
        return
    shown = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed:,.0f} rows  {task.fields[speed]}"),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )
    total = None if source.n_rows is None else source.n_rows
    begin, done = time.perf_counter(), 0
    with shown:
        task = shown.add_task(title, total=total, completed=first - source.start, speed="")

        def advance(block: Any) -> None:
            nonlocal done
            done += block.X.shape[0]
            seconds = max(time.perf_counter() - begin, 1e-9)
            speed = f"{done * source.reader.row_bytes / seconds / 1e6:,.0f} MB/s"
            shown.update(task, completed=block.stop - source.start, speed=speed)

        yield advance


def _lines(source: BlockSource, title: str) -> Callable[[Any], None]:
    begin = time.perf_counter()

    def advance(block: Any) -> None:
        seconds = max(time.perf_counter() - begin, 1e-9)
        speed = (block.stop - source.start) * source.reader.row_bytes / seconds / 1e6
        print(f"[SemFS] {title}: {block.stop:,} rows, {speed:,.0f} MB/s")

    return advance
