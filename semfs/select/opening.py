"""Unlabeled samples of another file, and the names of its genes."""

from __future__ import annotations

from pathlib import Path

from semfs._typing import PathLike
from semfs.io.anndata import check_counts, frame_column, is_anndata_file
from semfs.io.reader import Reader
from semfs.io.registry import open_reader
from semfs.io.tenx import unique_names
from semfs.rows import BlockSource
from semfs.rows.opening import source_of
from semfs.rows.preprocess import Preprocessing
from semfs.system import import_optional
from semfs.validation import ParameterError


def open_unlabeled_file(
    path: PathLike,
    *,
    layer: str | None = None,
    normalize: str | None = None,
    gene_symbols: str | None = None,
    keep_missing: bool = False,
) -> BlockSource:
    """Open another file, whose samples are all treated as unlabeled.

    Use the same ``layer``, ``normalize`` and ``gene_symbols`` as for the file of the labeled
    samples. With ``keep_missing``, empty cells of a table are NaN.
    """
    # An empty tuple: its labels are not wanted.
    reader, _ = open_reader(Path(path), (), layer)
    if reader.of_cells:
        check_counts(reader, normalize is not None)
    if gene_symbols is not None:
        reader.feature_names = gene_names(reader, gene_symbols)
    reader.keeps_missing = keep_missing
    return source_of(reader, preprocessing=Preprocessing(normalize=normalize))


def gene_names(reader: Reader, column: str) -> list[str]:
    """Return the names of genes in a column of var of an AnnData file, made unique.

    A gene without a name in that column keeps its name in the index. If a name occurs twice,
    ``-1`` is appended to the second one, as in `semfs.scverse.view`.
    """
    path = reader.path
    if path is None or not is_anndata_file(path):
        message = f"is {column!r}, but only .h5ad and .zarr files have a table of genes."
        raise ParameterError("gene_symbols", message)
    pandas = import_optional("pandas", "data", what="An AnnData file")
    index = pandas.Series(frame_column(path, reader.frame))
    symbols = pandas.Series(frame_column(path, reader.frame, column)).astype(object)
    return unique_names(symbols.fillna(index))
