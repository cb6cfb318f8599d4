"""What `fit` and `select` can read: `open_blocks` finds the reader and the labels."""

import itertools
import warnings
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.arrays import as_matrix
from semfs.io import hdf5
from semfs.io import reader as readers
from semfs.io.hdf5 import as_genes, check_counts, view
from semfs.io.reader import Blocks, Reader
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.io.sparse import SparseReader, array_reader, mtx_reader
from semfs.io.tables import TableReader, table_kind
from semfs.labels import NO_LABEL, Labels
from semfs.rows.blocks import BlockSource, OutOfCoreRows
from semfs.rows.csc import StreamedCSC
from semfs.rows.csr import StreamedCSR
from semfs.rows.plan import ReadPlan
from semfs.rows.preprocess import Preprocessing
from semfs.rows.streamed import StreamedRows
from semfs.system import parse_size
from semfs.validation import check_integer, check_option, check_weights


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
    normalize: str | None = None,
) -> BlockSource:
    """Return labeled rows that are read block by block, for ``SemFS.fit(source)``.

    Parameters
    ----------
    data : path, frame, array, AnnData, or (X, y) blocks
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv`` (also ``.gz``), ``.xlsx``, ``.parquet``,
        ``.feather``, ``.h5`` (also of 10x Genomics), ``.zarr``, ``.h5ad`` or ``.mtx`` (also
        ``.gz``) file or a folder of Parquet files; a pandas or polars frame; an array, also in
        chunked storage or sparse; or an iterable of (X, y) blocks, dense or sparse.
        A generator is read once; a list, or a function that returns a fresh iterator, can be
        read again. Of a table, columns of numbers are features; others are left out and named.
    y : array-like of shape (n,) or str, optional
        Labels, or where they are: a column (tables, ``obs`` of AnnData), an array of the same
        file (HDF5, Zarr, NPZ: by default ``y``), or a file with one label per row (NPY). Not
        for (X, y) blocks. Rows whose label is missing are unlabeled.
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
    normalize : {"log1p"}, optional
        Take log(1 + counts per 10⁴ of their row) instead of the counts that are stored.

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
    if normalize is not None:
        check_option("normalize", normalize, ("log1p",))
    if block_rows is not None:
        check_integer("block_rows", block_rows, 1)
        block_rows = int(block_rows)
    reader, labels = _opened(data, y, key, tuple(drop), normalize is not None)
    if isinstance(y, str) and not Path(y).exists():
        reader.label = y
    _check_label_count(labels, reader.n_rows)
    weights = None
    if sample_weight is not None:
        if reader.n_rows is None:
            raise ValueError("sample_weight needs data whose number of rows is known.")
        weights = check_weights(sample_weight, reader.n_rows)
    plan = ReadPlan(
        memory=readers.MEMORY if memory is None else parse_size(memory),
        block_bytes=readers.BLOCK_BYTES,
        block_rows=block_rows,
        passes=passes,
    )
    preprocessing = Preprocessing(normalize=normalize)
    return source_of(reader, labels, weights, plan=plan, preprocessing=preprocessing)


def source_of(
    reader: Reader,
    labels: Labels | None = None,
    weights: np.ndarray | None = None,
    *,
    plan: ReadPlan | None = None,
    preprocessing: Preprocessing | None = None,
) -> BlockSource:
    """Return the source of a reader's rows: dense, or sparse by rows or by columns.

    Without ``labels`` (n,) they come with the blocks.
    """
    kind: type[BlockSource] = StreamedRows
    if isinstance(reader, SparseReader):
        kind = StreamedCSC if reader.by_columns else StreamedCSR
    return kind(
        reader,
        weights,
        Preprocessing() if preprocessing is None else preprocessing,
        labels=labels,
        plan=ReadPlan(memory=readers.MEMORY) if plan is None else plan,
    )


def _check_label_count(labels: Labels | None, n_rows: int | None) -> None:
    """Raise unless there is one label per row; they may still come with the blocks."""
    if labels is None or len(labels) == n_rows:
        return
    hint = ""
    if n_rows is not None and len(labels) == n_rows + 1:
        hint = " Leave out its header."
    raise ValueError(
        f"X has {n_rows} rows but y has {len(labels)} labels: inconsistent numbers of "
        f"samples.{hint}"
    )


def as_source(data: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Return data that `fit` should read in blocks as a source, None for ordinary arrays."""
    mapped = isinstance(data, np.memmap) and data.ndim == 2 and data.dtype.kind in "fiub"
    large = mapped and data.nbytes > readers.MEMORY // 2
    table_with_labels = _is_frame(data) and isinstance(y, str)
    blocks = y is None and _is_pairs(data)
    if large or _is_stored(data) or table_with_labels or blocks:
        return open_blocks(data, y, sample_weight=sample_weight)
    return None


def unlabeled_source(data: Any) -> OutOfCoreRows | None:
    """Return unlabeled samples that are beyond memory as a source, None for others."""
    if hasattr(data, "__dask_graph__"):
        from semfs.rows.cluster import unlabeled_dask_rows

        return unlabeled_dask_rows(data)
    if isinstance(data, OutOfCoreRows):
        return _unlabeled(data)
    mapped = isinstance(data, np.memmap) and data.ndim == 2
    pairs = _is_pairs(data)
    if not (mapped or pairs or _is_stored(data)):
        return None
    source = source_of(_opened(data, None if pairs else ())[0])
    return None if source.fits_in_memory else _unlabeled(source)


def _unlabeled(source: OutOfCoreRows) -> OutOfCoreRows:
    """Return a source whose samples have no labels."""
    n = source.n_rows
    if n is None:
        known = source.labels_known()
        assert known.labels is not None
        n = len(known.labels)
    return source.with_labels(Labels([], np.full(n, NO_LABEL, dtype=np.int32)))


@dataclass(frozen=True, eq=False)
class Plain:
    """Rows as scikit-learn takes them, their labels if known, and the names of the columns."""

    X: Any
    y: Any = None
    names: Sequence[str] | None = None


def as_plain(X: Any, y: Any = None, *, names: Any = None, needed: Any = None) -> Plain:
    """Return rows and labels in memory: AnnData, lazy frames and files are loaded, sparse.

    Where X has names, its columns are those of ``names`` (d,) in this order. Some that are not
    ``needed`` (a mask; by default all are) may be missing, and are zero.
    """
    known = y is not None and not isinstance(X, (np.memmap, Plain))
    source = X if isinstance(X, BlockSource) else as_source(X, y, None) if known else None
    if source is not None:
        X, labels, _ = source.load()
        y = labels.array()
        X = Plain(X, y, source.feature_names)
    elif _is_stored(X):
        reader, y = _opened(X, ())[0], None
        X = Plain(reader.load(), None, reader.feature_names)
    elif not isinstance(X, Plain):
        return Plain(X, y)
    return Plain(_aligned(X.X, X.names, names, needed), X.y if y is None else y, X.names)


def plain_blocks(X: Any, *, names: Any = None, needed: Any = None) -> Iterator | None:
    """Return the matrices of `as_plain` in blocks of rows, or None if X is in memory."""
    if not _is_stored(X) and not isinstance(X, BlockSource):
        return None
    source = X if isinstance(X, BlockSource) else source_of(_opened(X, ())[0])
    found = source.feature_names
    return (_aligned(block, found, names, needed) for block in source.matrices())


def column_places(found: Any, wanted: Any, needed: Any = None) -> np.ndarray:
    """Return where among the columns ``found`` the wanted ones are; -1 if one is not needed."""
    position = {name: j for j, name in enumerate(found)}
    places = np.array([position.get(name, -1) for name in wanted], dtype=np.intp)
    absent = np.flatnonzero((places < 0) & (True if needed is None else needed))
    if absent.size:
        shown = ", ".join(str(wanted[j]) for j in absent[:5]) + ", …" * (len(absent) > 5)
        raise ValueError(
            f"{len(absent)} of the columns that were fitted are not among the {len(position)} "
            f"of X: {shown}. Pass data that have them; of AnnData, "
            "semfs.scverse.view(adata, ...) takes a layer, raw or other gene names."
        )
    return places


def _aligned(X: Any, found: Any, wanted: Any, needed: Any) -> Any:
    """Columns of X named ``found``, as many and in the order of ``wanted``."""
    if found is None or wanted is None or list(found) == list(wanted):
        return X
    places = column_places(found, wanted, needed)
    there = np.flatnonzero(places >= 0)
    picked = X[:, places[there]]
    if sp.issparse(X):
        parts = (picked.data, there[picked.indices], picked.indptr)
        return sp.csr_array(parts, shape=(X.shape[0], len(wanted)))
    out = np.zeros((len(X), len(wanted)), dtype=X.dtype)
    out[:, there] = picked
    return out


def _opened(
    data: Any, y: Any, key: str | None = None, drop: Any = (), normalize: bool = False
) -> tuple[Reader, Labels | None]:
    """The reader, and the labels unless they come with the blocks."""
    reader, labels = _reader(data, y, key, drop)
    if reader.of_cells:
        check_counts(reader, normalize)
    return reader, labels


def _reader(data: Any, y: Any, key: str | None, drop: Any) -> tuple[Reader, Labels | None]:
    if isinstance(data, (str, Path)):
        path = Path(data)
        return _file(path if path.is_dir() else open_existing(path), y, key, drop)
    if _is_frame(data) or _is_lazy(data):
        return _table(data.collect() if _is_lazy(data) else data, y, drop)
    genes = as_genes(data)
    if genes is not None:
        genes = genes if key is None else view(genes.adata, key)
        return genes.reader(), genes.labels(y) if isinstance(y, str) else _given(y, "data")
    if _is_pairs(data):
        if y is not None:
            raise ValueError("blocks come with their labels: leave y out.")
        return PairsReader(data), None
    if hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return array_reader(data), _given(y, "data")
    raise TypeError(f"cannot read blocks of rows from {type(data).__name__}.")


def _file(path: Path, y: Any, key: str | None, drop: Any) -> tuple[Reader, Labels | None]:
    kind, name = path.suffix.lower(), y if isinstance(y, str) else None
    if key is not None and (kind == ".npy" or table_kind(path)):
        raise ValueError(f"key={key!r}: there is one matrix only in {path}. Leave it out.")
    if kind == ".npy":
        reader = readers.ArrayReader(partial(readers.read_npy, path), path)
        return reader, _given(y, f"{path} (the path of a file with one label per row)")
    if kind == ".npz":
        found = readers.npz_labels(path, name or "y") if y is None or name else _given(y, path)
        return _npz_reader(path, key), found
    zarr, text = hdf5.is_zarr(path), ".mtx" in path.suffixes[-2:]
    if kind == ".h5ad" or (zarr and (path / "obs").is_dir()):
        with file_errors(path, ".h5ad"):
            column = name or ("" if y is None else None)
            found = Labels.of(y if column is None else hdf5.file_column(path, "obs", column))
            return hdf5.file_reader(path, key), found.strip_blank()
    if text or zarr or kind in (".h5", ".hdf5", ".hdf"):
        inside = name is not None and not text and not Path(name).is_file()
        labels = None if inside else _given(y, path)
        with file_errors(path, "Matrix Market" if text else "HDF5"):
            if labels is None:
                labels = Labels.of(hdf5.texts(path, y)).strip_blank()
            return mtx_reader(path) if text else hdf5.group_reader(path, key), labels
    if table_kind(path) is not None:
        return _table(path, y, drop)
    raise ValueError(
        f"{path}: unknown format. Expected .npy, .npz, .csv, .tsv (also .gz), .xlsx, .parquet "
        "(or a folder of them), .feather, .zarr, .h5, .hdf5, .h5ad or .mtx (also .gz)."
    )


def _npz_reader(path: Path, key: str | None) -> Reader:
    """A reader of X, which is loaded, with its feature_names."""
    arrays = readers.read_npz(path, [key or "X", "feature_names"])
    X, names = arrays.get(key or "X"), arrays.get("feature_names")
    out = array_reader(readers.sparse_from_npz(path, key or "X") if X is None else X, path)
    if names is not None and names.shape != (out.n_features,):
        raise FileError(
            f"{path}: X has {out.n_features} columns but feature_names has {names.size}."
        )
    out.feature_names = None if names is None else [str(name) for name in names.tolist()]
    return out


def _table(data: Any, y: Any, drop: Any) -> tuple[Reader, Labels | None]:
    name, where = y if isinstance(y, str) else None, data if isinstance(data, Path) else "data"
    labels = None if name else _given(y, f"{where} (the label column)")
    reader = TableReader(data, name, drop)
    if reader.texts:
        shown = ", ".join(map(repr, reader.texts[:5])) + ", …" * (len(reader.texts) > 5)
        message = f"columns without numbers are no features: {shown}."
        warnings.warn(message, stacklevel=2)
    return reader, reader.labels() if labels is None else labels


def _given(y: Any, where: Any) -> Labels:
    """Labels in an array, or in a file of their own."""
    if y is None:
        raise ValueError(f"{where} needs labels. Pass them as y: an array, or a name in it.")
    return readers.read_labels(y) if isinstance(y, str) else Labels.of(y)


def _is_frame(data: Any) -> bool:
    known = type(data).__module__.partition(".")[0] in ("pandas", "polars")
    return known and type(data).__name__ == "DataFrame"


def _is_lazy(data: Any) -> bool:
    return type(data).__module__.startswith("polars") and type(data).__name__ == "LazyFrame"


def _is_stored(data: Any) -> bool:
    """Whether data must be opened before they are rows of numbers."""
    return isinstance(data, (str, Path)) or as_genes(data) is not None or _is_lazy(data)


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
        found = self.source() if callable(self.source) else self.source
        if not isinstance(found, Iterable):
            raise TypeError(f"blocks must be (X, y) pairs, got {type(found).__name__}.")
        return iter(found)

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
