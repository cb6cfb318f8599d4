"""Writes the reduced data, which are the selected columns of all samples."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Indices
from semfs.io.anndata import frame_column, is_anndata_zarr, view
from semfs.io.tenx import unique_names
from semfs.io.write import Fill, feature_names, unchanged, write_columns, write_h5ad
from semfs.rows import BlockSource
from semfs.scverse import result_columns, result_summary, store_columns, warn_of_other_names
from semfs.selectors.filling import Filling, fill_values_of
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional

if TYPE_CHECKING:
    from anndata import AnnData


def write_reduced(
    source: BlockSource,
    selector: SemFS,
    path: Path,
    subset: bool,
    settings: Mapping[str, object] | None,
) -> None:
    """Write the selected columns of all rows; .h5ad files keep all genes unless ``subset``.

    Missing values are filled as in new samples; those of .h5ad files stay.
    """
    selected = np.flatnonzero(selector.support_)
    if path.suffix.lower() != ".h5ad":
        fill = fill_values_of(selector)
        filled = unchanged if fill is None else Filling(fill).filled
        write_matrix(source, selected, path, filled)
        return
    kept = selected if subset else None
    summary = result_summary(selector, settings)
    write_cells(source, path, result_columns(selector), summary, kept)


def write_matrix(
    source: BlockSource, columns: Indices, path: Path, filled: Fill = unchanged
) -> None:
    """Write the columns (k,) of all rows as a table or an array.

    ``filled`` replaces missing values in blocks (r, k).
    """
    if path.suffix.lower() == ".xlsx":
        _write_excel(source, columns, path, filled)
    else:
        write_columns(source, columns, path, filled)


def write_cells(
    source: BlockSource,
    path: Path,
    columns: dict[str, np.ndarray],
    summary: dict[str, Any],
    kept: Indices | None,
) -> None:
    """Write an .h5ad file with results: ``columns`` (d,) of genes, ``summary`` in uns.

    It has all genes, or only the genes ``kept`` (k,).
    """
    origin = source.reader.path
    if origin is not None and origin.suffix.lower() == ".h5ad":
        if kept is None:
            source = _named_like_var(source)
        # The file is copied and added to; the matrix is not read.
        write_h5ad(source, path, columns, summary, kept)
    else:
        _write_new_h5ad(source, path, columns, summary, kept)


def _named_like_var(source: BlockSource) -> BlockSource:
    """Return a source of raw whose genes are named as in var, if possible.

    Results for raw are also stored in var for the genes in common. But raw may use gene symbols
    (--gene-symbols) while var uses ids, or the reverse.
    """
    reader = source.reader
    if reader.frame != "raw/var" or reader.path is None:
        return source
    in_var = set(frame_column(reader.path, "var"))
    if not in_var.isdisjoint(reader.feature_names or ()):
        return source
    ids = unique_names(frame_column(reader.path, reader.frame))
    if in_var.isdisjoint(ids):
        warn_of_other_names()
        return source
    # the reader of the caller keeps its names
    renamed = copy(reader)
    renamed.feature_names = ids
    return replace(source, reader=renamed)


def _write_excel(source: BlockSource, columns: Indices, path: Path, filled: Fill) -> None:
    """Write the columns as a sheet, through a Feather file that pandas reads back."""
    pandas = import_optional("pandas", "data", what="An Excel file")
    import_optional("openpyxl", "data", what="An Excel file")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "reduced.feather"
        write_columns(source, columns, table, filled)
        pandas.read_feather(table).to_excel(path, index=False, engine="openpyxl")


def _write_new_h5ad(
    source: BlockSource,
    path: Path,
    columns: dict[str, np.ndarray],
    summary: dict[str, Any],
    kept: Indices | None,
) -> None:
    """Write cells of another format (Zarr, 10x, Matrix Market, …) as an .h5ad file.

    The values are those of the file, without normalization. They must fit into memory.
    """
    adata = _as_anndata(source)
    use_raw = source.reader.frame == "raw/var"
    genes = view(adata, use_raw=use_raw)
    if kept is not None:
        # genes of raw become X of a new object
        adata = genes.keep(kept).copy()
        genes = view(adata)
        columns = {name: values[kept] for name, values in columns.items()}
    store_columns(genes, columns)
    adata.uns["semfs"] = summary
    adata.write_h5ad(path)


def _as_anndata(source: BlockSource) -> AnnData:
    """Return the data of a file as an AnnData object in memory."""
    anndata = import_optional("anndata", "data", what="An .h5ad file")
    pandas = import_optional("pandas", "data", what="An .h5ad file")
    reader = source.reader
    assert reader.path is not None
    if is_anndata_zarr(reader.path):
        found: AnnData = anndata.read_zarr(reader.path)
        return found
    X = reader.load()
    row_names = reader.row_names or [str(i) for i in range(X.shape[0])]
    obs = pandas.DataFrame(index=row_names)
    # Classes that were left out, as too rare or unseen, keep their names in what is written.
    labels = source.labels if reader.read_labels is None else reader.read_labels
    if labels is not None:
        # categories of .h5ad files are text; None stays a missing value
        texts = [None if label is None else str(label) for label in labels.array()]
        obs[reader.label or "label"] = pandas.Categorical(texts)
    var = pandas.DataFrame(index=[str(name) for name in feature_names(source)])
    made: AnnData = anndata.AnnData(X, obs=obs, var=var)
    return made
