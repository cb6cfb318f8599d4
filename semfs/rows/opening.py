"""Data beyond memory: `open_blocks` turns what holds rows into a `BlockSource`.

It is read in blocks sized to a budget; one is summed up while the next one is read. One pass
that forms the scatter matrix and a few passes that fetch some of its columns give the solver
the same numbers, and the answer is that of the data in memory.
"""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

import numpy as np
import scipy.sparse as sp

from semfs.files import open_existing, parse_size
from semfs.progress import Progress
from semfs.rows import hdf5, readers
from semfs.rows.memory import Accumulator, Rows, as_matrix, check_matrix_fits
from semfs.rows.readers import LEFT_OUT, Blocks, Labels, Reader
from semfs.rows.tables import TableReader, table_kind
from semfs.validation import check_option, check_weights, label_array

__all__ = ["BlockSource", "StayingRows", "as_source", "open_blocks"]

# With more features per pass than this, X'X takes longer than reading the data once more.
WIDE = 128
WITHOUT_MATRIX = (
    'solver="alternating" needs it, and so do blocks that can be read only once. Use '
    'solver="direct" on data that can be read again (a file, a list of blocks, a function that '
    "returns a fresh iterator), or raise memory."
)
# From the total weight of each class (empty unless asked for) to the factor of its rows.
ClassWeights = Callable[[Mapping[Any, float]], dict[Any, float] | None]


def open_blocks(
    data: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    key: str | None = None,
    drop: Iterable[str] = (),
    memory: int | str | None = None,
    block_rows: int | None = None,
    passes: str = "auto",
) -> BlockSource:
    """Return labelled rows that are read block by block, for ``SemFS.fit(source)``.

    Parameters
    ----------
    data : path, frame, memmap, Zarr array, HDF5 data set, AnnData, or (X, y) blocks
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv`` (also ``.gz``), ``.parquet``, ``.feather``,
        ``.h5``, ``.zarr`` or ``.h5ad`` file or a folder of Parquet files; a pandas or polars
        frame; an array in chunked storage; or an iterable of (X, y) blocks, dense or sparse.
        A generator is read once; a list, or a function that returns a fresh iterator, can be
        read again. Of a table, columns of numbers are features; others are left out and named.
    y : array-like of shape (n,) or str, optional
        Labels, or where they are: a column (tables, ``obs`` of AnnData), an array of the same
        file (HDF5, Zarr, NPZ: by default ``y``), or a file with one label per row (NPY). Not
        for (X, y) blocks. Rows whose label is missing are unlabelled.
    sample_weight : array-like of shape (n,), optional
        Row weights.
    key : str, optional
        The matrix in an HDF5, Zarr or NPZ file, by default "X" or the only one; the layer of
        AnnData, or "raw".
    drop : iterable of str, default=()
        Columns of a table that are no features.
    memory : int or str, default="512MiB"
        Bytes for blocks and the d × d scatter matrix. Without room for that matrix the
        direct solver reads the data a few times instead of once.
    block_rows : int, optional
        Rows per block, by default what fits.
    passes : {"auto", "one", "few"}, default="auto"
        "one" pass that forms the d × d matrix, a "few" passes that do not, or what takes less
        time. The answer is the same.

    Examples
    --------
    >>> import numpy as np
    >>> from semfs import SemFS
    >>> rng = np.random.default_rng(0)
    >>> def blocks():
    ...     for _ in range(3):
    ...         y = rng.integers(0, 4, 100)
    ...         yield rng.normal(size=(100, 5)) + 3 * np.eye(4, 5)[y], y
    >>> SemFS(4).fit(open_blocks(blocks())).get_support(indices=True)
    array([0, 1, 2, 3])
    """
    check_option("passes", passes, ("auto", "one", "few"))
    if block_rows is not None and int(block_rows) < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    reader, labels = _opened(data, y, key, tuple(drop))
    n = reader.n_rows
    if isinstance(y, str) and not Path(y).exists():
        reader.label = y
    if labels is not None and len(labels) != n:
        raise ValueError(
            f"X has {n} rows but y has {len(labels)} labels: inconsistent numbers of samples."
        )
    if sample_weight is not None and n is None:
        raise ValueError("sample_weight needs data whose number of rows is known.")
    return BlockSource(
        reader,
        labels,
        None if sample_weight is None else check_weights(sample_weight, n or 0),
        memory=readers.MEMORY if memory is None else parse_size(memory),
        block_rows=None if block_rows is None else int(block_rows),
        passes=passes,
    )


def as_source(data: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Return data that `fit` should read in blocks as a source, None for ordinary arrays."""
    mapped = isinstance(data, np.memmap) and data.ndim == 2 and data.dtype.kind in "fiub"
    if mapped and data.nbytes <= readers.MEMORY // 2:
        return None
    known = mapped or isinstance(data, (str, Path)) or _is_anndata(data) or _is_lazy(data)
    known = known or (_is_frame(data) and isinstance(y, str))
    known = known or _is_chunked(data) or (y is None and _is_pairs(data))
    return open_blocks(data, y, sample_weight=sample_weight) if known else None


def _opened(
    data: Any, y: Any, key: str | None, drop: tuple[str, ...]
) -> tuple[Reader, Labels | None]:
    """The reader, and the labels unless they come with the blocks."""
    name = y if isinstance(y, str) else None
    if isinstance(data, (str, Path)):
        path = Path(data)
        return _file(path if path.is_dir() else open_existing(path), y, name, key, drop)
    if _is_frame(data) or _is_lazy(data):
        return _table(data.collect() if _is_lazy(data) else data, y, name, drop)
    if _is_anndata(data):
        return hdf5.h5ad_reader(data, key), _given(_obs(data, name) if name else y, "data")
    if _is_pairs(data):
        if y is not None:
            raise ValueError("blocks come with their labels: leave y out.")
        return PairsReader(data), None
    labels = readers.read_labels(name) if name else _given(y, "data")
    if type(data).__module__.startswith("h5py"):
        return hdf5.dataset_reader(data), labels
    if hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return readers.array_reader(data), labels
    raise TypeError(f"cannot read blocks of rows from {type(data).__name__}.")


def _file(
    path: Path, y: Any, name: str | None, key: str | None, drop: tuple[str, ...]
) -> tuple[Reader, Labels | None]:
    kind = path.suffix.lower()
    if kind == ".npy":
        wanted = f"{path} (the path of a file with one label per row)"
        reader = readers.ArrayReader(partial(readers.read_npy, path), path)
        return reader, readers.read_labels(name) if name else _given(y, wanted)
    if kind == ".npz":
        found = readers.npz_labels(path, name or "y") if y is None or name else _given(y, path)
        return readers.npz_reader(path, key), found
    if kind in (".h5ad", ".h5", ".hdf5", ".hdf"):
        hdf5.check_heaps(path)
    if kind == ".h5ad":
        labels = _given(hdf5.h5ad_column(path, "obs", name) if name else y, path)
        return hdf5.h5ad_reader(path, key), labels.tidied()
    if kind in (".h5", ".hdf5", ".hdf") or hdf5.is_zarr(path):
        labels = hdf5.group_labels(path, name) if name else _given(y, path)
        return hdf5.group_reader(path, key), labels
    if table_kind(path) is not None:
        return _table(path, y, name, drop)
    raise ValueError(
        f"{path}: unknown format. Expected .npy, .npz, .csv, .tsv (also .gz), .parquet (or a "
        "folder of them), .feather, .zarr, .h5, .hdf5 or .h5ad."
    )


def _table(
    data: Any, y: Any, name: str | None, drop: tuple[str, ...]
) -> tuple[Reader, Labels | None]:
    if y is None:
        _given(None, f"{data if isinstance(data, Path) else 'data'} (the label column)")
    reader = TableReader(data, name, drop)
    warn_of_texts(reader.texts)
    return reader, reader.labels() if name else _given(y, data)


def _given(y: Any, where: Any) -> Labels:
    if y is None:
        raise ValueError(
            f"the labels of {where} are missing. Pass the labels as y (--label): an array, or "
            "where the data hold them."
        )
    return Labels.of(y)


def _obs(data: Any, name: str) -> Any:
    if name not in data.obs:
        found = ", ".join(map(str, list(data.obs)[:8]))
        raise ValueError(f"obs has no column {name!r}; found: {found}.")
    return Labels.of(data.obs[name].array).tidied()


def _is_anndata(data: Any) -> bool:
    return type(data).__module__.startswith("anndata") and hasattr(data, "obs")


def _is_frame(data: Any) -> bool:
    known = type(data).__module__.partition(".")[0] in ("pandas", "polars")
    return known and type(data).__name__ == "DataFrame"


def _is_lazy(data: Any) -> bool:
    return type(data).__module__.startswith("polars") and type(data).__name__ == "LazyFrame"


def _is_chunked(data: Any) -> bool:
    """Whether data are an array in chunked storage (Zarr, HDF5), by its looks."""
    wanted = ("shape", "dtype", "chunks", "__getitem__")
    return all(hasattr(data, name) for name in wanted) and not isinstance(data, np.ndarray)


def _is_pairs(data: Any) -> bool:
    """Whether data are (X, y) blocks: an iterator, a function, or a list of pairs."""
    if isinstance(data, (list, tuple)):
        first = data[0] if len(data) else None
        pair = isinstance(first, (list, tuple)) and len(first) == 2
        return pair and len(getattr(first[0], "shape", ())) == 2  # type: ignore[index]
    plain = hasattr(data, "shape") or hasattr(data, "__array__") or hasattr(data, "__len__")
    return callable(data) or (hasattr(data, "__iter__") and not plain)


class PairsReader(Reader):
    """(X, y) pairs from an iterable, or from a function that returns a fresh iterator."""

    def __init__(self, blocks: Any) -> None:
        self.rereadable = callable(blocks) or iter(blocks) is not iter(blocks)
        self.shared, self.source = False, blocks
        iterator = self._fresh()
        first = next(iterator, None)
        if first is None:
            raise ValueError("there are no blocks. Pass (X, y) pairs.")
        self.waiting = itertools.chain([first], iterator)
        X = self._pair(first)[0]
        self.n_features, self.dtype = X.shape[1], X.dtype
        self.sparse, self.row_bytes = sp.issparse(X), X.shape[1] * X.dtype.itemsize
        if sp.issparse(X):
            self.row_bytes = 1 + X.nnz * (X.dtype.itemsize + 8) // X.shape[0]
        names = getattr(first[0], "columns", None)
        self.feature_names = None if names is None else [str(name) for name in names]

    def _fresh(self) -> Iterator[Any]:
        return iter(self.source() if callable(self.source) else self.source)

    def _pair(self, pair: Any) -> tuple[Any, Any]:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise TypeError(f"blocks must be (X, y) pairs, got {type(pair).__name__}.")
        return as_matrix(pair[0]), pair[1]

    def blocks(self, start: int, stop: int | None, step: int) -> Blocks:
        """Yield (first row, X, labels); ``step`` is up to those who make the blocks."""
        first = 0
        for X, y in map(self._pair, self._fresh() if self.rereadable else self.waiting):
            if sp.issparse(X) != self.sparse:
                X = sp.csr_array(X) if self.sparse else X.toarray()
            yield first, X, y
            first += X.shape[0]


class Block(NamedTuple):
    """Labelled rows that count: their place among all rows, values, labels and weights."""

    first: int
    stop: int
    X: Any
    y: Any
    weights: np.ndarray | None

    def columns(self, columns: np.ndarray, mean: np.ndarray, **options: Any) -> np.ndarray:
        """Return what these rows add to columns (d, b) of the scatter matrix."""
        total = self.X.shape[0] if self.weights is None else float(self.weights.sum())
        return Rows(self.X, self.y, self.weights).columns(columns, mean, total, **options)


class StayingRows:
    """What rows have in common that stay where they are."""

    def of_classes(self, full: np.ndarray) -> Self:
        """Return the same rows: those of empty classes have no weight."""
        return self

    def own(self) -> Self:
        """Return the same rows: nobody changes them."""
        return self

    def matched(self, known: Iterable) -> Self:
        """Return the same rows; labels that are at hand take the type of the known ones."""
        return self

    def weighted(self: Any, class_weights: ClassWeights, *, balanced: bool) -> Any:
        """Return the rows with class weights, given a function of classes and their counts."""
        counts = self.label_weights() if balanced else {}
        return replace(self, class_weight=class_weights(counts))

    def sums(
        self: Any, *, n_select: int | None, precise: bool = False, verbose: int = 0
    ) -> tuple[Accumulator, Any]:
        """Return the sums, and the rows if they must be read again for Gram columns.

        ``n_select`` is the number of features the direct solver will look for, None for
        solvers that need the whole scatter matrix.
        """
        self.warn_of_unlabelled()
        rows, matrix = replace(self, verbose=verbose), self.wants_matrix(n_select)
        return rows.summed(matrix=matrix, precise=precise), None if matrix else rows

    def warn_of_unlabelled(self: Any) -> None:
        """Say that rows without a label are not used where the data are not in memory."""
        if self.labels is not None and self.labels.n_unlabelled:
            warnings.warn(
                f"{self.labels.n_unlabelled} rows without a label are left out. Using them "
                "needs X in memory.",
                UserWarning,
                stacklevel=3,
            )

    def summed(self: Any, *, matrix: bool, precise: bool) -> Accumulator:
        """Return the sums over all rows, with the d × d matrix if there is room for it."""
        if matrix:
            check_matrix_fits(self.n_features, self.memory, WITHOUT_MATRIX)
        sums = self.accumulated(matrix=matrix, precise=precise)
        if not sums.total:
            raise ValueError("there are no labelled rows, or all their weights are zero.")
        return sums

    def scatter(
        self: Any, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Return scatter + alpha * between-class scatter (d, d), in one pass."""
        out = self.summed(matrix=True, precise=precise).result()[-1]
        root = np.sqrt(alpha * counts)[:, None] * (means - counts @ means / counts.sum())
        return out + root.T @ root


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
    start: int = 0
    stop: int | None = None
    verbose: int = 0

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
    def fits(self) -> bool:
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

    # ---- rows -------------------------------------------------------------------------

    def blocks(self, *, matrix: bool = False) -> Iterator[Block]:
        """Yield all blocks; the next one is read in the background."""
        step = self.step(matrix=matrix)
        for at, X, y in _ahead(self.reader.blocks(self.start, self.stop, step)):
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
        return replace(self, labels=labels, weights=weights, start=start, stop=stop)

    def without(self, classes: Iterable) -> BlockSource:
        """Return the source without the rows of some classes, which may be named as text."""
        labels = None if self.labels is None else self.labels.without(classes)
        return replace(self, labels=labels)

    def matched(self, known: Iterable) -> BlockSource:
        """Return the source with labels in the type of the known ones: 3 and "3" are one."""
        return self if self.labels is None else replace(self, labels=self.labels.matched(known))

    # ---- sums -------------------------------------------------------------------------

    def label_weights(self) -> Counter:
        """Return the total weight of each class, which needs the labels before the rows."""
        if self.labels is None and not self.reader.rereadable:
            raise ValueError(
                'class_weight="balanced" needs the labels before the rows, but these blocks '
                "can be read only once. Pass a mapping class -> weight."
            )
        out: Counter = Counter()
        if self.labels is None:
            parts = [(Labels.of(block.y), block.weights) for block in self.blocks()]
        else:
            parts = [(self.labels, self.weights)]
        for labels, weights in parts:
            used = labels.codes >= 0
            weights = None if weights is None else weights[used]
            totals = np.bincount(labels.codes[used], weights, len(labels.classes))
            out.update(dict(zip(labels.classes, totals.tolist())))
        return out

    def wants_matrix(self, n_select: int | None) -> bool:
        """Whether to form the d × d matrix in one pass: if it must be, or takes less time."""
        if n_select is None or not self.reader.rereadable or self.passes == "one":
            return True
        d = self.n_features
        few_rows = self.n_rows is not None and self.n_rows < d
        if self.passes == "few" or few_rows or self.reader.sparse or 8 * d**2 > self.memory:
            return False
        n_passes = 3 + -(-n_select // 64)  # of 32 to 128 Gram columns, half of them used
        return d <= WIDE * n_passes

    def accumulated(self, *, matrix: bool, precise: bool) -> Accumulator:
        """Return the sums over all blocks; an error says which rows it is about."""
        sums = Accumulator(self.n_features, matrix=matrix, precise=precise)
        for block in self._watched("scatter matrix" if matrix else "class means", matrix):
            try:
                sums.add(block.X, block.y, block.weights)
            except ValueError as error:
                where = f"rows {block.first} to {block.stop - 1}"
                raise ValueError(f"{error} (in {where})") from error
        return sums

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in one pass."""
        out = np.zeros((len(mean), len(columns)))
        for block in self._watched(f"{len(columns)} Gram columns"):
            out += block.columns(columns, mean, far=far, precise=precise)
        return out

    def _watched(self, title: str, matrix: bool = False) -> Iterator[Block]:
        """The blocks, with a line of progress for each."""
        with Progress(title, self.n_rows, self.verbose, unit="rows") as progress:
            for block in self.blocks(matrix=matrix):
                yield block
                done = block.stop - self.start
                speed = done * self.reader.row_bytes / progress.seconds / 1e6
                progress.step(f"{speed:,.0f} MB/s", done - progress.done)


def warn_of_texts(names: list[str]) -> None:
    """Name the columns of a table that are left out because they hold no numbers."""
    if names:
        shown = ", ".join(repr(name) for name in names[:5]) + ", …" * (len(names) > 5)
        message = f"columns without numbers are no features: {shown}."
        warnings.warn(message, UserWarning, stacklevel=2)


def _ahead(items: Iterator) -> Iterator:
    """Yield items while the next one is made in a thread."""
    end = object()
    with ThreadPoolExecutor(1, thread_name_prefix="semfs-reader") as pool:
        waiting = pool.submit(next, items, end)
        while (item := waiting.result()) is not end:
            waiting = pool.submit(next, items, end)
            yield item
