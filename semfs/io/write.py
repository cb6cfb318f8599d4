"""Writes the selected columns of data in blocks, in various formats."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from semfs._typing import Floats, Indices
from semfs.io.anndata import GeneMatrix
from semfs.io.delimited import is_text_table
from semfs.io.npz import names_in_npz, read_npz
from semfs.io.reader import Reader
from semfs.io.tables import INDEX_NAMES, NAMELESS_INDEX, TableReader
from semfs.labels import Labels
from semfs.system import import_optional

if TYPE_CHECKING:
    import h5py
    import pyarrow as pa

WRITTEN = (".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz", ".h5ad")
#: A value for each gene (d,), by name of the column.
GeneColumns = Mapping[str, npt.NDArray[Any]]
#: Replaces missing values in blocks (r, k).
Fill: TypeAlias = Callable[[Floats], Floats]


def unchanged(block: Floats) -> Floats:
    """Return a block as it is, with its missing values."""
    return block


class SourceToWrite(Protocol):
    """The properties of data that are needed to write some of their columns."""

    @property
    def reader(self) -> Reader: ...

    @property
    def labels(self) -> Labels | None: ...

    @property
    def n_rows(self) -> int | None: ...

    @property
    def n_features(self) -> int: ...

    @property
    def feature_names(self) -> list[str] | None: ...

    @property
    def fits_in_memory(self) -> bool: ...


def feature_names(source: SourceToWrite) -> npt.NDArray[Any]:
    """Return the names (d,) of the columns, or x0, x1, … if the data have none."""
    names = source.feature_names or [f"x{j}" for j in range(source.n_features)]
    return np.array(names, dtype=object)


def write_columns(
    source: SourceToWrite,
    columns: Indices,
    path: Path,
    filled: Fill = unchanged,
) -> None:
    """Write the given columns (k,) of all rows, with their names and the labels, if any.

    Columns are written in the given order. The suffix of the path determines the format. NPY
    files contain only the matrix. ``filled`` replaces missing values in blocks (r, k).
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        _write_npy(path, source, columns, filled)
    elif suffix == ".npz":
        _write_npz(path, source, columns, filled)
    else:
        _write_table(path, source, columns, filled)


def _column_blocks(source: SourceToWrite, columns: Indices, filled: Fill) -> Iterator[Floats]:
    """Yield dense blocks (r, k) of the columns."""
    reader = source.reader
    # a matrix stored by columns is converted for blocks anyway
    if source.fits_in_memory:
        yield filled(_dense_columns(reader.load(), columns))
        return
    for _, X, _ in reader.blocks(0, None, reader.usual_step):
        yield filled(_dense_columns(X, columns))


def _dense_columns(X: Any, columns: Indices) -> Floats:
    selected = X[:, columns]
    return selected.toarray() if sp.issparse(selected) else np.ascontiguousarray(selected)


def _write_npy(path: Path, source: SourceToWrite, columns: Indices, filled: Fill) -> None:
    shape = (source.n_rows or 0, len(columns))
    # mapped: the result may be larger than memory
    out = np.lib.format.open_memmap(path, "w+", source.reader.dtype, shape)
    first = 0
    for block in _column_blocks(source, columns, filled):
        out[first : first + len(block)] = block
        first += len(block)


def name_of_ids(reader: Reader, others: Iterable[str]) -> str:
    """Return the name of the column for the names of samples, distinct from ``others``."""
    if reader.id_column is not None:
        return reader.id_column
    index = reader.index_column if isinstance(reader, TableReader) else None
    if index is not None and index not in INDEX_NAMES:
        return index
    name = "sample"
    taken = set(others)
    while name in taken:
        name += "_name"
    return name


def _write_npz(path: Path, source: SourceToWrite, columns: Indices, filled: Fill) -> None:
    """Write new X and feature_names, and copy all other arrays of an NPZ source."""
    arrays: dict[str, npt.NDArray[Any]] = {}
    origin = source.reader.path
    labels = source.labels
    if origin is not None and origin.suffix.lower() == ".npz":
        names = names_in_npz(origin)
        others = [name for name in names if name != "X" and not name.startswith("X_")]
        arrays = read_npz(origin, others)
    elif labels is not None:
        # "" for samples without a label, at index -1
        texts = np.array([*(str(label) for label in labels.classes), ""])
        arrays["y"] = texts[np.maximum(labels.codes, -1)]
    ids = source.reader.row_names
    if ids is not None:
        arrays.setdefault(source.reader.id_column or "sample_names", np.array(ids))
    arrays["X"] = np.concatenate(list(_column_blocks(source, columns, filled)))
    arrays["feature_names"] = feature_names(source)[columns].astype(str)
    np.savez_compressed(path, allow_pickle=False, **arrays)


def _write_table(path: Path, source: SourceToWrite, columns: Indices, filled: Fill) -> None:
    """Write a table batch by batch, as CSV, TSV, Feather or Parquet."""
    import_optional("pyarrow", "data", what="A table")
    found = _table_batches(source, columns, filled)
    # only Parquet writes columns of categories batch by batch
    if path.suffix.lower() != ".parquet":
        found = map(_plain, found)
    # the schema of the first batch is that of the file
    first = next(found)
    with _table_writer(path, first.schema) as writer:
        writer.write_batch(first)
        for batch in found:
            writer.write_batch(batch)


def _table_writer(path: Path, schema: pa.Schema) -> Any:
    """Return the writer for the format that the suffix names."""
    if is_text_table(path):
        csv = import_optional("pyarrow.csv")
        delimiter = "," if path.suffix.lower() == ".csv" else "\t"
        options = csv.WriteOptions(delimiter=delimiter)
        return csv.CSVWriter(path, schema, write_options=options)
    if path.suffix.lower() == ".feather":
        return import_optional("pyarrow").ipc.new_file(path, schema)
    return import_optional("pyarrow.parquet").ParquetWriter(path, schema)


def _table_batches(
    source: SourceToWrite, columns: Indices, filled: Fill
) -> Iterator[pa.RecordBatch]:
    """Yield batches of label, other columns and selected features, in the order of a table."""
    pa = import_optional("pyarrow")
    reader = source.reader
    selected = feature_names(source)[columns]
    if isinstance(reader, TableReader):
        # copied from the table: text, dates and labels stay what they are
        names = _order_of_columns(reader, selected.tolist())
        for batch in reader.scan(names):
            yield _with_index(_filled_batch(batch, selected.tolist(), filled), reader)
        return
    names = list(map(str, selected))
    # a label column that is the column of ids is written once
    labels = None if reader.id_column == (reader.label or "label") else source.labels
    if labels is not None:
        names.insert(0, reader.label or "label")
    ids = reader.row_names
    if ids is not None:
        names.insert(0, name_of_ids(reader, names))
    first = 0
    for block in _column_blocks(source, columns, filled):
        arrays = [pa.array(column) for column in block.T.copy()]
        rows = slice(first, first + len(block))
        if labels is not None:
            arrays.insert(0, pa.array(labels[rows].array().tolist(), from_pandas=True))
        if ids is not None:
            arrays.insert(0, pa.array(ids[rows]))
        yield pa.RecordBatch.from_arrays(arrays, names=names)
        first += len(block)


def _order_of_columns(reader: TableReader, selected: list[str]) -> list[str]:
    """Return the columns of a table to write, in their positions in the table.

    Features are in the order of ``selected``, which may be that of another table.
    """
    others = {reader.label, reader.id_column, *reader.left_out}
    features = set(selected)
    in_order = iter(selected)
    # pandas stores an index last, but shows it first
    index = reader.index_column
    names = [] if index is None else [index]
    for name in reader.order:
        if name == index:
            continue
        if name in features:
            names.append(next(in_order))
        elif name in others:
            names.append(name)
    return names


def _filled_batch(
    batch: pa.RecordBatch, features: Sequence[str], filled: Fill
) -> pa.RecordBatch:
    """Return a batch of a table whose features have no gaps. Filled features are float64."""
    if filled is unchanged:
        return batch
    pa = import_optional("pyarrow")
    block = np.empty((batch.num_rows, len(features)))
    for place, name in enumerate(features):
        column = batch.column(name)
        # numpy has no missing booleans
        number = column.cast("uint8") if pa.types.is_boolean(column.type) else column
        block[:, place] = number.to_numpy(zero_copy_only=False)
    done = filled(block)
    # what only counts values keeps the types of the table
    if getattr(filled, "filled", None) is unchanged:
        return batch
    place_of = {name: place for place, name in enumerate(features)}
    arrays = []
    for name, column in zip(batch.schema.names, batch.columns):
        is_feature = name in place_of
        arrays.append(pa.array(done[:, place_of[name]]) if is_feature else column)
    made = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    return made.replace_schema_metadata(batch.schema.metadata)


def _with_index(batch: pa.RecordBatch, reader: TableReader) -> pa.RecordBatch:
    """Return the batch with a note for pandas which column is the index, if there is one."""
    stored = batch.schema.pandas_metadata
    if reader.index_column is None or not stored:
        return batch.replace_schema_metadata(None)
    # the metadata of the whole table name columns that are gone
    note = {
        "index_columns": [reader.index_column],
        "columns": [
            column
            for column in stored["columns"]
            if column.get("field_name", column["name"]) in batch.schema.names
        ],
        "column_indexes": [],
    }
    return batch.replace_schema_metadata({"pandas": json.dumps(note)})


def _plain(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with plain columns, as dictionaries may differ between batches.

    An index without a name gets one: only pandas and Parquet know such an index.
    """
    columns = []
    for column in batch.columns:
        columns.append(column.dictionary_decode() if hasattr(column, "dictionary") else column)
    names = ["sample" if name == NAMELESS_INDEX else name for name in batch.schema.names]
    pa = import_optional("pyarrow")
    return pa.RecordBatch.from_arrays(columns, names=names)


def write_h5ad(
    source: SourceToWrite,
    path: Path,
    columns: GeneColumns,
    uns: Mapping[str, Any],
    kept: Indices | None = None,
) -> None:
    """Write an AnnData file with results: a copy of the source, or only genes ``kept`` (k,).

    ``columns`` hold a value for each gene (d,) of the matrix that was used. For X they are
    added to ``var``, and for raw to ``raw.var`` (and to ``var`` for genes in common). ``uns``
    becomes ``uns["semfs"]``.
    """
    origin = source.reader.path
    if origin is None or origin.suffix.lower() != ".h5ad":
        others = ", ".join(suffix for suffix in WRITTEN if suffix != ".h5ad")
        raise ValueError(
            f"{path.name}: only data read from an .h5ad file can be "
            f"written as .h5ad. Use another ending: {others}."
        )
    anndata = import_optional("anndata", "data", what="An .h5ad file")
    frame = source.reader.frame
    if kept is None:  # everything stays, results are added
        shutil.copyfile(origin, path)
    else:
        data = anndata.read_h5ad(origin, backed="r")
        with contextlib.closing(data.file):
            genes = GeneMatrix(data, None, frame == "raw/var", None)
            genes.keep(kept).to_memory().write_h5ad(path)
        columns = {name: values[kept] for name, values in columns.items()}
        frame = "var"
    with import_optional("h5py").File(path, "r+") as file:
        add_columns(file[frame], columns)
        if frame != "var":
            # results of raw, for the genes that X has too
            genes_in_var = anndata.io.read_elem(file["var"]).index
            add_columns(file["var"], of_genes(columns, feature_names(source), genes_in_var))
        if "uns" not in file:
            anndata.io.write_elem(file, "uns", {})
        anndata.io.write_elem(file["uns"], "semfs", uns)


def add_columns(frame: h5py.Group, columns: GeneColumns) -> None:
    """Write columns into ``var`` or ``obs``, replacing those of the same name."""
    order = list(frame.attrs["column-order"])
    for name, values in columns.items():
        import_optional("anndata.io").write_elem(frame, name, values)
    frame.attrs["column-order"] = [*order, *(name for name in columns if name not in order)]


def of_genes(
    columns: GeneColumns, names: Sequence[str] | npt.NDArray[Any], wanted: Iterable[str]
) -> dict[str, npt.NDArray[Any]]:
    """Return columns (d,) of named genes for other genes; unknown genes have False or NaN.

    If there is no gene in common, return no columns, because columns of NaN would hide that.
    """
    # of genes with one name the first counts
    place_of: dict[str, int] = {}
    for place, name in enumerate(names):
        place_of.setdefault(name, place)
    places = np.array([place_of.get(name, -1) for name in wanted], dtype=np.intp)
    found = places >= 0
    if not found.any():
        return {}
    out = {}
    for column, values in columns.items():
        picked = values[places]
        if not found.all():
            picked = picked & found if picked.dtype == bool else np.where(found, picked, np.nan)
        out[column] = picked
    return out
