"""What `fit` and `select` can read: `open_blocks` finds the reader and the labels."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.io import reader as readers
from semfs.io.anndata import check_counts
from semfs.io.pairs import is_pairs
from semfs.io.reader import NO_LABEL_TEXTS, Reader
from semfs.io.registry import is_frame, is_stored, open_reader
from semfs.labels import NO_LABEL, Labels
from semfs.rows.blocks import BlockSource, source_of
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
    no_label: Sequence[str] = NO_LABEL_TEXTS,
) -> BlockSource:
    """Return labeled rows that are read block by block, for ``SemFS.fit(source)``.

    Parameters
    ----------
    data : path, frame, array, AnnData, or (X, y) blocks
        A ``.npy``, ``.npz``, ``.csv``, ``.tsv`` (also ``.gz``), ``.xlsx``, ``.parquet``,
        ``.feather``, ``.h5`` (also of 10x Genomics), ``.zarr``, ``.h5ad`` or ``.mtx`` (also
        ``.gz``) file, a folder of Parquet files, or one of 10x Genomics (``matrix.mtx``,
        ``features.tsv``, ``barcodes.tsv``); a pandas or polars frame; an array, also in
        chunked storage or sparse; or an iterable of (X, y) blocks, dense or sparse.
        A generator is read once; a list, or a function that returns a fresh iterator, can be
        read again. Of a table, columns of numbers are features; others are left out and named.
    y : array-like of shape (n,) or str, optional
        Labels, or where they are: a column (tables, ``obs`` of AnnData), an array of the same
        file (HDF5, Zarr, NPZ: by default ``y``), or a label file. A label file is NPY or text
        with one label per row; or CSV or TSV with the names of the rows (barcodes,
        ``obs_names``) and their labels, in any order. Not for (X, y) blocks. Rows whose label
        is missing are unlabeled.
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
    no_label : sequence of str
        Text in label columns and label files that means "no label", in any case; by default
        "nan", "NA", "n/a", "none", "unknown", "unassigned" and blank text. A warning names
        what was found. Labels that are passed in memory are not affected.

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
    reader, labels = _opened(data, y, key, drop, normalize is not None, no_label)
    n = reader.n_rows
    if labels is not None and len(labels) != n:
        header = " Leave out its header." if len(labels) - 1 == n else ""
        found = f"X has {n} rows but y has {len(labels)} labels"
        raise ValueError(f"{found}: inconsistent numbers of samples.{header}")
    if sample_weight is not None and n is None:
        raise ValueError("sample_weight needs data whose number of rows is known.")
    weights = None if sample_weight is None else check_weights(sample_weight, n or 0)
    size = readers.MEMORY if memory is None else parse_size(memory)
    rows = None if block_rows is None else int(block_rows)
    return source_of(reader, labels, weights, size, rows, passes, normalize is not None)


def as_source(data: Any, y: Any, sample_weight: Any) -> BlockSource | None:
    """Return data that `fit` should read in blocks as a source, None for ordinary arrays."""
    mapped = isinstance(data, np.memmap) and data.ndim == 2 and data.dtype.kind in "fiub"
    large = mapped and data.nbytes > readers.MEMORY // 2
    known = large or is_stored(data) or (is_frame(data) and isinstance(y, str))
    known = known or (y is None and is_pairs(data))
    return open_blocks(data, y, sample_weight=sample_weight) if known else None


def unlabeled_source(data: Any) -> Any:
    """Return rows without labels that are beyond memory as a source, None for others."""
    if hasattr(data, "__dask_graph__"):
        from semfs.rows.cluster import dask_rows

        return dask_rows(data, np.full(data.shape[0], np.nan))
    rows = data if hasattr(data, "keep_classes") else None
    mapped = isinstance(data, np.memmap) and data.ndim == 2
    if rows is None and (mapped or is_stored(data) or is_pairs(data)):
        rows = source_of(_opened(data, None if is_pairs(data) else ())[0])
    if rows is None or (rows is not data and rows.fits_in_memory):
        return None
    n = rows.n_rows if rows.n_rows is not None else len(rows.labeled().labels)
    return replace(rows, labels=Labels([], np.full(n, NO_LABEL, dtype=np.int32)))


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
        X, y = source.load()[:2]
        X = Plain(X, y, source.feature_names)
    elif is_stored(X):
        reader, y = _opened(X, ())[0], None
        X = Plain(reader.load(), None, reader.feature_names)
    elif not isinstance(X, Plain):
        return Plain(X, y)
    return Plain(_aligned(X.X, X.names, names, needed), X.y if y is None else y, X.names)


def plain_blocks(X: Any, *, names: Any = None, needed: Any = None) -> Iterator | None:
    """Return the matrices of `as_plain` in blocks of rows, or None if X is in memory."""
    if not is_stored(X) and not isinstance(X, BlockSource):
        return None
    source = X if isinstance(X, BlockSource) else source_of(_opened(X, ())[0])
    reader = source.reader
    found = reader.blocks(source.start, source.stop, reader.usual_step)
    prepared = (source.prepared(block) for _, block, _ in found)
    return (_aligned(block, reader.feature_names, names, needed) for block in prepared)


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
    data: Any,
    y: Any,
    key: str | None = None,
    drop: Iterable[str] = (),
    normalize: bool = False,
    no_label: Sequence[str] = NO_LABEL_TEXTS,
) -> tuple[Reader, Labels | None]:
    """The reader, and the labels unless they come with the blocks."""
    reader, labels = open_reader(data, y, key, drop, no_label)
    if reader.of_cells:
        check_counts(reader, normalize)
    return reader, labels
