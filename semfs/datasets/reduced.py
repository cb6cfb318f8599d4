"""The selected columns of a data file, written in blocks: NPY, NPZ, CSV, Parquet, H5AD."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.sources import Source
from semfs.datasets.tables import import_pyarrow
from semfs.files import FileError, reading

__all__ = ["REDUCED_SUFFIXES", "write_reduced"]

REDUCED_SUFFIXES = (".csv", ".tsv", ".parquet", ".npy", ".npz", ".h5ad")


def write_reduced(source: Source, columns: np.ndarray, path: Path, label: str | None) -> None:
    """Write the given columns (k,) of a source, with their names and the labels.

    Parameters
    ----------
    source : Source
        The opened data file.
    columns : ndarray of int of shape (k,)
        Columns to keep, in the order to write them.
    path : Path
        Target; its ending chooses the format. NPY holds the matrix alone.
    label : str or None
        Name of the label column of a table.
    """
    suffix = path.suffix.lower()
    if suffix == ".npy":
        with path.open("wb") as file:
            _write_npy(file, source, columns)
    elif suffix == ".npz":
        _write_npz(path, source, columns)
    elif suffix in (".parquet", ".pq"):
        _write_parquet(path, source, columns, label)
    elif suffix in (".csv", ".tsv"):
        _write_csv(path, source, columns, label)
    elif suffix == ".h5ad":
        _write_h5ad(path, source, columns)
    else:
        raise ValueError(
            f"{path}: reduced data are written as {', '.join(REDUCED_SUFFIXES)}, not "
            f"{suffix or 'without ending'}."
        )


# ---- numpy --------------------------------------------------------------------------------


def _write_npy(file: Any, source: Source, columns: np.ndarray) -> None:
    header = {
        "descr": np.lib.format.dtype_to_descr(np.dtype(_dtype(source))),
        "fortran_order": False,
        "shape": (source.matrix.shape[0], len(columns)),
    }
    np.lib.format.write_array_header_1_0(file, header)
    for block in source.blocks(columns):
        file.write(np.ascontiguousarray(block, dtype=_dtype(source)).data)


def _dtype(source: Source) -> np.dtype:
    return np.dtype(source.matrix.dtype)


def _write_npz(path: Path, source: Source, columns: np.ndarray) -> None:
    """X and feature_names anew; of an NPZ source everything else is copied as it is."""
    own = {"X", "X_data", "X_indices", "X_indptr", "X_shape", "feature_names"}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("X.npy", "w", force_zip64=True) as file:
            _write_npy(file, source, columns)
        arrays = {"feature_names": np.array([str(n) for n in source.feature_names[columns]])}
        if source.path.suffix.lower() == ".npz":
            with zipfile.ZipFile(source.path) as old:
                for item in old.infolist():
                    if item.filename.removesuffix(".npy") not in own:
                        archive.writestr(item.filename, old.read(item))
        else:
            texts = np.array([*(str(c) for c in source.labels.categories), ""])
            arrays["y"] = texts[source.labels.codes]  # code -1 is the last: no label
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w") as file:
                np.lib.format.write_array(file, array, allow_pickle=False)


# ---- tables -------------------------------------------------------------------------------


def _write_parquet(path: Path, source: Source, columns: np.ndarray, label: str | None) -> None:
    import_pyarrow()
    import pyarrow.parquet as pq

    batches = _record_batches(source, columns, label)
    first = next(batches)
    with pq.ParquetWriter(path, first.schema) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(batch)


def _write_csv(path: Path, source: Source, columns: np.ndarray, label: str | None) -> None:
    import_pyarrow()
    import pyarrow.csv as pc

    options = pc.WriteOptions(delimiter="\t" if path.suffix == ".tsv" else ",")
    batches = _record_batches(source, columns, label)
    first = _as_text(next(batches))
    with pc.CSVWriter(path, first.schema, write_options=options) as writer:
        writer.write_batch(first)
        for batch in batches:
            writer.write_batch(_as_text(batch))


def _as_text(batch: Any) -> Any:
    """CSV knows no categories."""
    pa = import_pyarrow()
    arrays = [
        array.dictionary_decode() if pa.types.is_dictionary(array.type) else array
        for array in batch.columns
    ]
    return pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)


def _record_batches(source: Source, columns: np.ndarray, label: str | None) -> Iterator[Any]:
    """Label, carried columns and chosen features, in the order of the file if it is a table."""
    if source.table is not None and source.table.is_parquet:
        yield from _parquet_batches(source, columns)  # keeps the types of the file
        return
    pa = import_pyarrow()
    names = [str(name) for name in source.feature_names[columns]]
    carried = _carried(source, label)
    start = 0
    for block in source.blocks(columns):
        part = carried.slice(start, len(block)).combine_chunks()
        start += len(block)
        arrays = dict(zip(part.column_names, map(_one_chunk, part.columns)))
        arrays |= {n: pa.array(np.ascontiguousarray(v)) for n, v in zip(names, block.T)}
        order = [n for n in (source.table.types if source.table else arrays) if n in arrays]
        yield pa.RecordBatch.from_arrays([arrays[n] for n in order], names=order)


def _one_chunk(column: Any) -> Any:
    pa = import_pyarrow()
    return column.chunk(0) if column.num_chunks else pa.array([], type=column.type)


def _carried(source: Source, label: str | None) -> Any:
    if source.table is not None:
        return source.table.carried()
    pa = import_pyarrow()
    name = "label" if label is None or source.path.suffix.lower() == ".npy" else label
    codes = pa.array(source.labels.codes, mask=~source.labels.present)
    values = pa.array(source.labels.categories)
    return pa.table({name: pa.DictionaryArray.from_arrays(codes, values)})


def _parquet_batches(source: Source, columns: np.ndarray) -> Iterator[Any]:
    import pyarrow.parquet as pq

    table = source.table
    assert table is not None
    wanted = {table.label, *table.texts, *source.feature_names[columns]}
    names = [name for name in table.types if name in wanted]
    with reading(source.path, ".parquet"), pq.ParquetFile(source.path) as file:
        rows = max(1, 2**22 // len(names))
        for batch in file.iter_batches(batch_size=rows, columns=names):
            yield batch.select(names).replace_schema_metadata(None)


# ---- AnnData ------------------------------------------------------------------------------


def _write_h5ad(path: Path, source: Source, columns: np.ndarray) -> None:
    if source.path.suffix.lower() != ".h5ad":
        raise ValueError(f"{path}: only data from an .h5ad file can be written as .h5ad.")
    try:
        import anndata
    except ImportError as error:
        raise ImportError(
            "Writing the chosen genes alone needs anndata. Install it with: pip install "
            "'semfs[data]'"
        ) from error
    if source.layer == "raw":
        raise FileError(f"{source.path}: genes of raw cannot be cut out; leave out --subset.")
    data = anndata.read_h5ad(source.path, backed="r")
    try:
        data[:, columns].to_memory().write_h5ad(path)
    finally:
        data.file.close()
