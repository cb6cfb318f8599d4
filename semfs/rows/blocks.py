"""Data beyond memory: read in blocks sized to a budget, summed up while the next is read.

`open_blocks` turns files, folders, chunked arrays and iterables into a `BlockSource`, which
`SemFS.fit` accepts; `passes` makes one or a few passes over it. The answer is that of the same
data in memory.
"""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from semfs.rows import readers
from semfs.rows.readers import Reader
from semfs.rows.tables import AnnDataReader, BlocksReader, ParquetReader
from semfs.validation import check_weights, encode_labels, label_array

__all__ = ["Block", "BlockSource", "as_source", "open_blocks"]

#: Memory for blocks and the scatter matrix, in bytes, unless told otherwise.
MEMORY = 512 * 2**20
# Products gain from longer blocks than sums do.
PRODUCT_BLOCK_BYTES = 4 * readers.BLOCK_BYTES


class Block(NamedTuple):
    """Some rows: their place, values, labels and weights; rows of weight 0 are left out."""

    first: int
    stop: int
    X: Any
    y: Any
    weights: np.ndarray | None


@dataclass(frozen=True, eq=False)
class BlockSource:
    """Labelled rows that are read block by block; make it with `open_blocks`."""

    reader: Reader
    y: np.ndarray | None = None
    weights: np.ndarray | None = None
    class_weight: dict | None = None
    memory: int = MEMORY
    block_rows: int | None = None
    passes: str = "auto"
    checkpoint: Path | None = None
    start: int = 0
    stop: int | None = field(default=None)

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
    def nbytes(self) -> int | None:
        """Size of the rows in memory, if their number is known."""
        return None if self.n_rows is None else self.n_rows * self.reader.row_bytes

    @property
    def matrix_fits(self) -> bool:
        """Whether the d × d scatter matrix fits into the memory budget."""
        return 8 * self.n_features**2 <= self.memory

    @property
    def fits(self) -> bool:
        """Whether the data are so small that they had better be loaded."""
        free = self.passes == "auto" and self.checkpoint is None and self.block_rows is None
        return free and self.nbytes is not None and self.nbytes <= self.memory // 2

    def step(self, *, matrix: bool) -> int:
        """Return the number of rows of a block, with or without a scatter matrix beside it."""
        if self.block_rows is not None:
            return self.block_rows
        size = 8 * self.n_features**2 if matrix else 0
        largest = PRODUCT_BLOCK_BYTES if matrix else readers.BLOCK_BYTES
        room = max(0, self.memory - size) // (2 * readers.RING)  # with a copy of each block
        if self.checkpoint is not None:  # saved after each block, which had better be long
            largest, room = max(4 * readers.BLOCK_BYTES, 4 * size), readers.RING * room
        rows = int(max(1, min(largest, max(room, 2**20)) // self.reader.row_bytes))
        chunk = self.reader.chunk_rows
        if rows >= chunk:
            return rows // chunk * chunk
        return chunk if chunk * self.reader.row_bytes <= room else rows

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
        if self.y is not None:
            y = self.y[rows]
        weights = None if self.weights is None else self.weights[rows]
        weights = row_weights(y, weights, self.class_weight)
        stop = at + X.shape[0]
        if weights is not None and not weights.all():
            used = weights > 0
            X, weights = X[used], weights[used]
            y = None if y is None else np.asarray(y)[used]
        return Block(at, stop, X, y, weights)

    def load(self) -> tuple[Any, np.ndarray, np.ndarray | None]:
        """Return X, labels and weights in memory."""
        assert self.n_rows is not None
        shape = (self.n_rows, self.n_features)
        out = None if self.reader.sparse else np.empty(shape, dtype=self.reader.dtype)
        parts, labels = [], []
        for block in replace(self, class_weight=None, weights=None).blocks():
            if out is None:
                parts.append(block.X)
            else:
                out[block.first - self.start : block.stop - self.start] = block.X
            labels.append(np.asarray(block.y))
        y = self.y
        if y is None:
            y = label_array([label for part in labels for label in part.tolist()])
        return sp.vstack(parts, format="csr") if out is None else out, y, self.weights

    def part(self, start: int, stop: int) -> BlockSource:
        """Return the rows start … stop - 1 as a source of their own."""
        rows = slice(start - self.start, stop - self.start)
        y, weights = (None if v is None else v[rows] for v in (self.y, self.weights))
        return replace(self, y=y, weights=weights, start=start, stop=stop, checkpoint=None)

    def label_weights(self) -> Counter:
        """Return the total weight of each class, which needs the labels before the rows."""
        if self.y is None and not (self.reader.has_labels and self.reader.rereadable):
            raise ValueError(
                'class_weight="balanced" needs the labels before the rows, but these blocks '
                "can be read only once. Pass a mapping class -> weight."
            )
        out: Counter = Counter()
        at = 0
        for part in [self.y] if self.y is not None else self.reader.labels():
            w = None if self.weights is None else self.weights[at : at + len(part)]
            out.update(class_totals(part, w))
            at += len(part)
        return out


def row_weights(y: Any, weights: Any, class_weight: dict | None) -> np.ndarray | None:
    """Return row weights (r,) times those of the rows' classes; None if all are one."""
    if class_weight is None:
        return weights
    labels, codes = encode_labels(y)
    factors = np.array([float(class_weight.get(c, 1.0)) for c in labels.tolist()])
    return factors[codes] * (1.0 if weights is None else weights)


def class_totals(y: Any, weights: np.ndarray | None) -> dict[Any, float]:
    """Return the total weight of each class."""
    labels, codes = encode_labels(y)
    return dict(zip(labels.tolist(), np.bincount(codes, weights).tolist()))


def open_blocks(
    data: Any,
    y: Any = None,
    *,
    sample_weight: Any = None,
    key: str | None = None,
    columns: list[str] | None = None,
    memory: int | str = MEMORY,
    block_rows: int | None = None,
    passes: str = "auto",
    checkpoint: Any = None,
) -> BlockSource:
    """Return labelled rows that are read block by block, for ``SemFS.fit(source)``.

    Parameters
    ----------
    data : path, memmap, Zarr array, HDF5 data set, AnnData, or (X, y) blocks
        A ``.npy``, ``.parquet``, ``.zarr``, ``.h5`` or ``.h5ad`` file or a folder of Parquet
        files; an array in chunked storage; or an iterable of (X, y) blocks, dense or sparse.
        A generator is read once; a list, or a function that returns a fresh iterator, can be
        read again.
    y : array-like of shape (n,) or str, optional
        Labels, or where they are: a column (Parquet, AnnData) or the array beside X
        (HDF5, Zarr). Not for (X, y) blocks.
    sample_weight : array-like of shape (n,), optional
        Row weights.
    key : str, optional
        The matrix in an HDF5 file or Zarr group, by default "X" or the only one.
    columns : list of str, optional
        The features in a Parquet file, by default all columns but the label.
    memory : int or str, default="512MB"
        Bytes for blocks and the d × d scatter matrix. Without room for that matrix the
        direct solver reads the data a few times instead of once.
    block_rows : int, optional
        Rows per block, by default what fits.
    passes : {"auto", "one", "few"}, default="auto"
        "one" pass that forms the d × d matrix, a "few" passes that do not, or what the first
        block shows to be faster. The answer is the same.
    checkpoint : path, optional
        Folder for the state of the pass after each block. If it exists, the pass continues
        there; it is deleted when `fit` is done.

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
    if passes not in ("auto", "one", "few"):
        raise ValueError(f'passes must be "auto", "one" or "few", got {passes!r}.')
    if block_rows is not None and int(block_rows) < 1:
        raise ValueError(f"block_rows must be at least 1, got {block_rows}.")
    reader, labels = _reader_of(data, y, key, columns)
    n = reader.n_rows
    if labels is not None:
        labels = _check_labels(labels, n)
    elif not reader.has_labels:
        raise ValueError("Pass the labels as y: an array, or where the data hold them.")
    if sample_weight is not None and n is None:
        raise ValueError("sample_weight needs data whose number of rows is known.")
    return BlockSource(
        reader,
        labels,
        None if sample_weight is None else check_weights(sample_weight, n),  # type: ignore[arg-type]
        memory=_in_bytes(memory),
        block_rows=None if block_rows is None else int(block_rows),
        passes=passes,
        checkpoint=None if checkpoint is None else Path(checkpoint),
    )


def as_source(data: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Return data that `fit` should read in blocks as a source, None for ordinary arrays."""
    if isinstance(data, BlockSource):
        if y is not None or sample_weight is not None:
            raise ValueError("Pass labels and weights to open_blocks, not to fit.")
        return data
    mapped = isinstance(data, np.memmap) and data.ndim == 2 and data.dtype.kind in "fiub"
    if mapped and data.nbytes <= MEMORY // 2:
        return None
    known = mapped or isinstance(data, (str, Path)) or readers.is_anndata(data)
    known = known or readers.is_chunked(data) or (y is None and readers.is_pairs(data))
    return open_blocks(data, y, sample_weight=sample_weight) if known else None


def _reader_of(
    data: Any, y: Any, key: str | None, columns: list[str] | None
) -> tuple[Reader, Any]:
    """The reader, and the labels unless it reads them itself."""
    column = y if isinstance(y, str) else None
    if isinstance(data, Reader):
        return data, y
    if isinstance(data, (str, Path)):
        return _file_reader(Path(data), y, column, key, columns)
    if readers.is_anndata(data):
        return AnnDataReader(data, column), None if column else y
    if isinstance(data, np.memmap):
        return readers.memmap_reader(data), y
    if readers.is_chunked(data):
        return readers.array_reader(data), y
    if readers.is_pairs(data):
        if y is not None:
            raise ValueError("blocks come with their labels: leave y out.")
        return BlocksReader(data), None
    if hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return readers.array_reader(data), y
    raise TypeError(f"cannot read blocks of rows from {type(data).__name__}.")


def file_reader(path: Path) -> Reader:
    """Return the reader of a file or folder, without labels."""
    return _file_reader(path, None, None, None, None)[0]


def _file_reader(
    path: Path, y: Any, column: str | None, key: str | None, columns: list[str] | None
) -> tuple[Reader, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist.")
    kind, given = path.suffix.lower(), None if column else y
    if kind == ".npy":
        return readers.npy_reader(path), np.load(y, allow_pickle=False) if column else y
    if kind == ".h5ad":
        return AnnDataReader(path, column), given
    if kind in (".h5", ".hdf5", ".hdf"):
        return readers.hdf5_reader(path, key), readers.hdf5_labels(path, y) if column else y
    if kind == ".zarr" or any((path / n).exists() for n in ("zarr.json", ".zarray", ".zgroup")):
        return readers.zarr_reader(path, key), readers.zarr_labels(path, y) if column else y
    if kind in (".parquet", ".pq") or (path.is_dir() and any(path.rglob("*.parquet"))):
        return ParquetReader(path, column, columns), given
    raise ValueError(
        f"{path}: unknown format. Expected .npy, .parquet (or a folder of them), .zarr, .h5, "
        ".hdf5 or .h5ad."
    )


def _check_labels(y: Any, n: int | None) -> np.ndarray:
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    y = label_array(list(y)) if isinstance(y, (list, tuple)) else np.asarray(y).reshape(-1)
    if n is not None and len(y) != n:
        raise ValueError(
            f"X has {n} rows but y has {len(y)} labels: inconsistent numbers of samples."
        )
    return y


def _in_bytes(memory: int | str) -> int:
    units = {"kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    if not isinstance(memory, str):
        return int(memory)
    text = memory.strip().lower()
    for unit in sorted(units, key=len, reverse=True):
        if text.endswith(unit):
            return int(float(text.removesuffix(unit)) * units[unit])
    raise ValueError(f'memory is {memory!r}; give bytes, or text such as "512MB".')


def ahead(items: Iterator) -> Iterator:
    """Yield items while the next one is made in a thread."""
    ready: queue.Queue = queue.Queue(maxsize=1)
    stopped = threading.Event()

    def put(item: tuple[str, Any]) -> bool:
        while not stopped.is_set():
            try:
                ready.put(item, timeout=0.2)
                return True
            except queue.Full:
                continue
        return False

    def work() -> None:
        try:
            for item in items:
                if not put(("item", item)):
                    return
            put(("end", None))
        except BaseException as error:  # raised again where the items are used
            put(("error", error))

    thread = threading.Thread(target=work, name="semfs-reader", daemon=True)
    thread.start()
    try:
        while True:
            what, value = ready.get()
            if what == "end":
                return
            if what == "error":
                raise value
            yield value
    finally:
        stopped.set()
        thread.join(timeout=5.0)
