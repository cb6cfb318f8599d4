"""The selected columns of a source, written in blocks, in the formats that are read."""

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.io.hdf5 import GeneMatrix
from semfs.io.reader import names_in_npz, read_npz
from semfs.io.tables import TEXT_TABLES, TableReader
from semfs.rows.blocks import BlockSource
from semfs.system import import_optional

WRITTEN = (".csv", ".tsv", ".parquet", ".feather", ".npy", ".npz", ".h5ad")


def feature_names(source: BlockSource) -> np.ndarray:
    """Return the names (d,) of the columns; x0, x1, … if the data have none."""
    names = source.feature_names or [f"x{j}" for j in range(source.n_features)]
    return np.array(names, dtype=object)


def write_columns(source: BlockSource, columns: np.ndarray, path: Path) -> None:
    """Write the given columns (k,) of all rows, with their names and the labels.

    The ending of the path chooses the format. NPY holds the matrix alone.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        shape = (source.n_rows or 0, len(columns))
        out, first = np.lib.format.open_memmap(path, "w+", source.reader.dtype, shape), 0
        for block in _chosen(source, columns):
            out[first : first + len(block)] = block
            first += len(block)
    elif suffix == ".npz":
        _write_npz(path, source, columns)
    else:
        _write_table(path, source, columns)


def _chosen(source: BlockSource, columns: np.ndarray) -> Iterator[np.ndarray]:
    """Blocks (r, k) of the columns, dense."""
    reader = source.reader
    found = (reader.load()[:, columns],) if source.fits_in_memory else None
    for X in found or (X[:, columns] for _, X, _ in reader.blocks(0, None, reader.usual_step)):
        yield X.toarray() if sp.issparse(X) else np.ascontiguousarray(X)


def _write_npz(path: Path, source: BlockSource, columns: np.ndarray) -> None:
    """X and feature_names anew; of an NPZ source everything else as it is."""
    arrays: dict[str, Any] = {}
    origin, labels = source.reader.path, source.labels
    if origin is not None and origin.suffix.lower() == ".npz":
        others = [n for n in names_in_npz(origin) if n != "X" and not n.startswith("X_")]
        arrays = read_npz(origin, others)
    elif labels is not None:
        texts = np.array([*(str(c) for c in labels.classes), ""])
        arrays = {"y": texts[np.maximum(labels.codes, -1)]}
    arrays["X"] = np.concatenate(list(_chosen(source, columns)))
    arrays["feature_names"] = feature_names(source)[columns].astype(str)
    np.savez_compressed(path, **arrays)


def _write_table(path: Path, source: BlockSource, columns: np.ndarray) -> None:
    pa = import_optional("pyarrow", "data", what="A table")
    parquet = path.suffix.lower() == ".parquet"
    batches = (b if parquet else _plain(b) for b in _batches(source, columns))
    first = next(batches)
    if path.name.lower().endswith(TEXT_TABLES):
        csv = import_optional("pyarrow.csv")
        options = csv.WriteOptions(delimiter="," if path.suffix == ".csv" else "\t")
        writer = csv.CSVWriter(path, first.schema, write_options=options)
    elif path.suffix.lower() == ".feather":
        writer = pa.ipc.new_file(path, first.schema)
    else:
        writer = import_optional("pyarrow.parquet").ParquetWriter(path, first.schema)
    with writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _batches(source: BlockSource, columns: np.ndarray) -> Iterator[Any]:
    """Label, carried columns and chosen features, in the order of the file if it is a table."""
    pa, reader, chosen = (
        import_optional("pyarrow"),
        source.reader,
        feature_names(source)[columns],
    )
    if isinstance(reader, TableReader):
        kept = {reader.label, *reader.left_out, *chosen}
        for batch in reader.scan([name for name in reader.order if name in kept]):
            yield batch.replace_schema_metadata(None)
        return
    first, names = 0, [reader.label or "label", *map(str, chosen)]
    assert source.labels is not None
    for block in _chosen(source, columns):
        labels = source.labels[slice(first, first + len(block))].array().tolist()
        arrays = [pa.array(labels, from_pandas=True), *map(pa.array, block.T.copy())]
        yield pa.RecordBatch.from_arrays(arrays, names=names)
        first += len(block)


def _plain(batch: Any) -> Any:
    """The same batch without dictionaries, which may differ from batch to batch."""
    columns = [a.dictionary_decode() if hasattr(a, "dictionary") else a for a in batch.columns]
    return import_optional("pyarrow").RecordBatch.from_arrays(columns, names=batch.schema.names)


def write_h5ad(
    source: BlockSource, path: Path, columns: dict, uns: dict, kept: np.ndarray | None = None
) -> None:
    """Write an AnnData file with results: a copy of the source's, or the genes ``kept`` (k,).

    ``columns`` hold a value for each gene (d,) of the matrix that was used: X (for ``var``) or
    raw (for ``raw.var``, and for the genes it shares also ``var``); ``uns`` is added to uns.
    """
    origin = source.reader.path
    if origin is None or origin.suffix.lower() != ".h5ad":
        others = ", ".join(ending for ending in WRITTEN if ending != ".h5ad")
        raise ValueError(f"only .h5ad can be written as .h5ad. Give another ending: {others}.")
    anndata = import_optional("anndata", "data", what="An .h5ad file")
    if kept is None:
        shutil.copyfile(origin, path)
    else:
        data = anndata.read_h5ad(origin, backed="r")
        with contextlib.closing(data.file):
            genes = GeneMatrix(data, None, source.reader.frame == "raw/var", None)
            genes.keep(kept).to_memory().write_h5ad(path)
        columns = {name: values[kept] for name, values in columns.items()}
    with import_optional("h5py").File(path, "r+") as file:
        frame = "var" if kept is not None else source.reader.frame
        _add_columns(file[frame], columns)
        if frame != "var":
            shared = anndata.io.read_elem(file["var"]).index
            _add_columns(file["var"], of_genes(columns, feature_names(source), shared))
        if "uns" not in file:
            anndata.io.write_elem(file, "uns", {})
        anndata.io.write_elem(file["uns"], "semfs", uns)


def _add_columns(frame: Any, columns: dict[str, np.ndarray]) -> None:
    order = list(frame.attrs["column-order"])
    for name, values in columns.items():
        import_optional("anndata.io").write_elem(frame, name, values)
    frame.attrs["column-order"] = [*order, *(n for n in columns if n not in order)]


def of_genes(columns: dict[str, np.ndarray], names: Any, wanted: Any) -> dict[str, np.ndarray]:
    """Return columns (d,) of named genes for other genes: False or NaN where one is unknown.

    Without a gene in common there are none: columns of NaN would hide that.
    """
    known = {name: j for j, name in reversed(list(enumerate(names)))}
    places = np.array([known.get(name, -1) for name in wanted])
    found, out = places >= 0, {}
    if not found.any():
        return {}
    for column, values in columns.items():
        picked = values[places]
        partly = picked & found if picked.dtype == bool else np.where(found, picked, np.nan)
        out[column] = picked if found.all() else partly
    return out
