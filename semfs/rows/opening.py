"""`open_blocks` opens everything that `fit` and `semfs select` can read."""

from __future__ import annotations

import warnings
from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs.feature_names import NamePlaces
from semfs.io import reader as readers
from semfs.io.anndata import (
    GeneMatrix,
    check_counts,
    has_layers,
    refuse_counts,
    refuse_unless_counts,
)
from semfs.io.pairs import is_pairs
from semfs.io.reader import NO_LABEL_TEXTS, Reader
from semfs.io.registry import is_frame, open_reader
from semfs.io.sparse import SparseReader
from semfs.io.tables import TableReader
from semfs.labels import Labels
from semfs.rows.blocks import BlockSource
from semfs.rows.csc import StreamedCSC
from semfs.rows.csr import StreamedCSR
from semfs.rows.plan import ReadPlan
from semfs.rows.preprocess import Preprocessing
from semfs.rows.streamed import StreamedRows
from semfs.system import parse_size
from semfs.validation import (
    ParameterError,
    check_integer,
    check_option,
    check_weights,
    counted,
    listed,
)

if TYPE_CHECKING:
    from semfs._typing import (
        ArrayLike,
        DataLike,
        Floats,
        Indices,
        LabelsLike,
    )


def open_blocks(
    data: DataLike,
    y: LabelsLike | Labels | str | None = None,
    *,
    sample_weight: ArrayLike | None = None,
    batch: LabelsLike | Labels | str | None = None,
    sample_id: str | None = None,
    key: str | None = None,
    drop: Iterable[str] = (),
    memory: int | str | None = None,
    block_rows: int | None = None,
    passes: str = "auto",
    normalize: str | None = None,
    no_label: Sequence[str] = NO_LABEL_TEXTS,
    missing_values: str = "error",
) -> BlockSource:
    """Open labeled samples that are read block by block, for ``SemFS.fit(source)``.

    Parameters
    ----------
    data : path, frame, array, AnnData, or (X, y) blocks
        The data to read. Files can be ``.npy``, ``.npz``, ``.csv``, ``.tsv`` (also ``.gz``),
        ``.xlsx``, ``.parquet``, ``.feather``, ``.h5`` (including 10x Genomics), ``.zarr``,
        ``.h5ad`` or ``.mtx`` (also ``.gz``) files. Folders can hold Parquet files or 10x
        Genomics output (``matrix.mtx``, ``features.tsv``, ``barcodes.tsv``). Frames can be
        pandas or polars frames. Arrays and (X, y) blocks can be dense or sparse, and arrays can
        be in chunked storage. A generator of blocks can be read only once. A list, or a
        function that returns a new iterator, can be read again. In a table, numeric columns are
        features. All other columns are left out, and a warning lists them.
    y : array-like of shape (n,) or str, optional
        Labels, or the name of their source: a column (of a table or of AnnData's ``obs``), an
        array in the same file (HDF5, Zarr, NPZ; by default ``y``), or a label file. A label
        file is an NPY or text file with one label per row, or a CSV or TSV file with the names
        of the rows (barcodes, ``obs_names``) and their labels in any order. Omit y for (X, y)
        blocks. Samples without a label are unlabeled.
    sample_weight : array-like of shape (n,), optional
        Sample weights.
    batch : array-like of shape (n,) or str, optional
        Batch of each sample, such as its donor, plate or site. `SemFS.fit` removes the offsets
        of batches. Like ``y``, this can also be the name of a column or array in the data, or a
        file.
    sample_id : str, optional
        Column (of a table or of AnnData's ``obs``) or array in the data that holds a distinct
        name for each sample. It is not used as a feature, but is included in files that are
        written.
    key : str, optional
        Name of the matrix in an HDF5, Zarr or NPZ file. The default is "X" or the only matrix.
        For AnnData, it is a layer or "raw".
    drop : iterable of str, default=()
        Columns of a table that are not features.
    memory : int or str, default="512MiB"
        Memory in bytes for blocks and the d × d scatter matrix. If the matrix does not fit into
        this memory, the direct solver reads the data a few times instead of once.
    block_rows : int, optional
        Number of rows per block. By default, blocks are as large as ``memory`` allows.
    passes : {"auto", "one", "few"}, default="auto"
        "one" reads the data once and forms the d × d matrix. "few" reads the data a few times
        and does not form the matrix. "auto" uses the faster of the two. The result is always
        the same.
    normalize : {"log1p", "none"}, optional
        "log1p" replaces stored counts by log(1 + counts per 10⁴ counts of the sample). By
        default, and with "none", stored values are used unchanged.
    no_label : sequence of str
        Strings that mean "no label" in label columns and label files; case is ignored. The
        default is "nan", "NA", "n/a", "none", "unknown", "unassigned" and blank text. A warning
        lists the strings that were found. Labels that are passed in memory are not affected.
    missing_values : {"error", "keep"}, default="error"
        How to handle empty cells in a table. "error" raises an error, and "keep" reads them as
        NaN for ``SemFS(missing_values="class-mean")``.

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
    check_option("missing_values", missing_values, ("error", "keep"))
    if normalize is None:
        normalize = normalize_of(data)
    if normalize is not None:
        check_option("normalize", normalize, ("log1p", "none"))
    steps = Preprocessing().normalized_as(normalize)
    if block_rows is not None:
        check_integer("block_rows", block_rows, 1)
        block_rows = int(block_rows)
    batches: Labels | None = None
    if isinstance(batch, str):
        # read as labels are, and then no feature
        batches = column_labels(data, batch, key)
        drop = [*drop, *table_columns(data, batch, key)]
    elif batch is not None:
        batches = Labels.of(batch)
    # opening reads the head of the data, and labels that are in files
    reader, labels = open_named(data, sample_id, y=y, key=key, drop=drop, no_label=no_label)
    # raw counts of cells are warned of before anything is fitted to them
    if reader.of_cells:
        check_counts(reader, steps.normalize is not None)
    reader.keeps_missing = missing_values == "keep"
    reader.read_labels = labels
    _check_label_count(labels, reader.n_rows)
    weights = None
    if sample_weight is not None:
        # weights are cut into blocks, whose rows must be numbered
        if reader.n_rows is None:
            raise ValueError(
                "sample_weight needs data whose number of rows is known, not a generator."
            )
        weights = check_weights(sample_weight, reader.n_rows)
    plan = ReadPlan(
        memory=readers.MEMORY if memory is None else parse_size(memory),
        block_bytes=readers.BLOCK_BYTES,
        block_rows=block_rows,
        passes=passes,
    )
    preprocessing = replace(steps, layer=reader.layer)
    source = source_of(reader, labels, weights, plan=plan, preprocessing=preprocessing)
    return source if batches is None else replace(source, batches=batches)


def column_labels(data: DataLike, name: str, key: str | None = None) -> Labels:
    """Return the values (n,) of a column or array of data, or of a label file."""
    with warnings.catch_warnings():
        # the data are opened once more for their features, and then warnings are shown
        warnings.simplefilter("ignore")
        # "unknown" may be the name of a batch or level: only blanks are missing
        _, labels = open_reader(data, name, key, no_label=("",))
    assert labels is not None
    return labels


def open_named(
    data: DataLike,
    sample_id: str | None,
    *,
    key: str | None = None,
    drop: Iterable[str] = (),
    **request: Any,
) -> tuple[Reader, Labels | None]:
    """Return the reader of data, whose samples have the names in a column, and the labels.

    ``request`` are further arguments of `open_reader`. Without ``sample_id``, samples have the
    names of the file, if any.
    """
    if sample_id is None:
        return open_reader(data, key=key, drop=drop, **request)
    ids = sample_ids(data, sample_id, key)
    drop = [*drop, *table_columns(data, sample_id, key)]
    reader, labels = open_reader(data, key=key, drop=drop, **request)
    reader.name_rows(ids, sample_id)
    return reader, labels


def sample_ids(data: DataLike, name: str, key: str | None = None) -> list[str]:
    """Return the ids (n,) of the samples, from a column or array of data.

    Raise if a sample has none, or if two samples have the same.
    """
    ids = column_labels(data, name, key)
    missing = np.flatnonzero(ids.codes < 0)
    if len(missing):
        message = (
            f": {name!r} has no id for {len(missing)} of {len(ids)} "
            f"samples, the first one in row {missing[0] + 1}. Fill these "
            "cells, or use another column."
        )
        raise ParameterError("sample_id", message)
    counts = np.bincount(ids.codes, minlength=len(ids.classes))
    repeated = [str(ids.classes[code]) for code in np.flatnonzero(counts > 1)]
    if repeated:
        message = (
            f": {name!r} has {counted(len(ids.classes), 'different id')} "
            f"for {len(ids)} samples; repeated: {listed(repeated)}. Use a "
            "column with a different id for each sample."
        )
        raise ParameterError("sample_id", message)
    return [str(value) for value in ids.array().tolist()]


def table_columns(data: DataLike, name: object, key: str | None = None) -> list[str]:
    """Return the name if it is a column of a table, because this is then not a feature."""
    is_table = isinstance(data, (str, Path)) or is_frame(data)
    if not isinstance(name, str) or not is_table:
        return []
    # arrays and AnnData keep labels beside the features, tables among them
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        reader, _ = open_reader(data, (), key)
    columns = reader.order if isinstance(reader, TableReader) else []
    return [name] if name in columns else []


def source_of(
    reader: Reader,
    labels: Labels | None = None,
    weights: Floats | None = None,
    *,
    plan: ReadPlan | None = None,
    preprocessing: Preprocessing | None = None,
) -> BlockSource:
    """Return the source for a reader: dense, or sparse by rows or by columns.

    Without ``labels`` (n,), labels come with the blocks.
    """
    # sparse matrices are summed up in threads, by the axis they are stored along
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


def normalize_of(data: DataLike) -> str | None:
    """Return how a `view` of an AnnData object says that it is to be normalized."""
    return data.normalize if isinstance(data, GeneMatrix) else None


def _check_label_count(labels: Labels | None, n_rows: int | None) -> None:
    """Raise unless there is one label per row, or labels come with the blocks."""
    if labels is None or len(labels) == n_rows:
        return
    hint = ""
    # the commonest slip: a header that was taken for a label
    if n_rows is not None and len(labels) == n_rows + 1:
        hint = " If the label file has a header, remove it."
    raise ValueError(
        f"X has {n_rows} rows but y has {len(labels)} labels: inconsistent numbers of "
        f"samples.{hint}"
    )


def open_unlabeled(
    data: DataLike,
    preprocessing: Preprocessing | None = None,
    *,
    keep_missing: bool = False,
    only: Container[str] | None = None,
) -> BlockSource:
    """Open samples that are read block by block, without labels.

    Labels in (X, y) blocks are ignored. ``preprocessing`` is that of the data of the fit. With
    ``keep_missing``, empty cells of tables are NaN. With ``only``, only these features of a
    table are read, unless preprocessing needs all features.
    """
    if preprocessing is None:
        preprocessing = Preprocessing()
    # the layer of the fit, unless these samples say by themselves which matrix is meant
    layer = preprocessing.layer if has_layers(data) else None
    option = normalize_of(data)
    preprocessing = preprocessing.normalized_as(option)
    # an empty tuple stands for labels that are not wanted; pairs always bring theirs
    wanted = None if is_pairs(data) else ()
    columns = None if preprocessing.active else only
    reader, _ = open_reader(data, wanted, layer, only=columns)
    check_units(reader, preprocessing, option, only)
    reader.keeps_missing = keep_missing
    return source_of(reader, preprocessing=preprocessing)


def check_units(
    reader: Reader,
    preprocessing: Preprocessing,
    option: str | None = None,
    only: Container[str] | None = None,
) -> None:
    """Check that samples can be preprocessed as those of a fit were.

    ``option`` is how the user says that these samples are to be normalized, or None. ``only``
    are the features that are needed. If the samples have none of them, nothing is checked,
    because their names are reported first.
    """
    names = reader.feature_names
    # Other names are the first thing to correct, and more may be wrong then.
    known = only is None or names is None or any(name in only for name in names)
    if not known:
        return
    if preprocessing.normalize is None:
        # "none" means that the user knows the values
        if not reader.of_cells or option is not None:
            return
        if preprocessing.of_logs:
            refuse_counts(reader)
        else:
            check_counts(reader, normalize=False)
    # nobody asked for the normalization of the fit, so it must fit the values
    elif option is None:
        refuse_unless_counts(reader)


def column_places(found: Sequence[str], wanted: Sequence[str]) -> Indices:
    """Return the positions of the ``wanted`` columns (k,) among those ``found`` (d,)."""
    position = NamePlaces(found)
    places = [position.find(str(name)) for name in wanted]
    absent = [str(name) for name, place in zip(wanted, places) if place is None]
    if absent:
        raise ValueError(
            f"X lacks {len(absent)} of the features that the selector was fitted with: "
            f"{listed(absent)}. Pass data that have them. For AnnData, "
            "semfs.scverse.view(adata, ...) selects a layer, raw or other gene names."
        )
    return np.array(places, dtype=np.intp)
