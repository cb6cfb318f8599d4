"""AnnData objects and files as rows of numbers: one matrix, with the names of its genes."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.files import FileError, need
from semfs.rows import hdf5
from semfs.rows.readers import Labels, Reader
from semfs.rows.sparse import array_reader, distinct

__all__ = ["GeneMatrix", "as_genes", "check_counts", "file_column", "file_reader", "view"]


def view(
    adata: Any,
    layer: str | None = None,
    use_raw: bool = False,
    gene_symbols: str | None = None,
) -> GeneMatrix:
    """Return one matrix of an AnnData object, to be passed wherever the object may be.

    Parameters
    ----------
    adata : AnnData
        In memory or backed; nothing is copied or read yet.
    layer : str, optional
        Layer to take instead of ``X``; ``"raw"`` is the same as ``use_raw=True``.
    use_raw : bool, default=False
        Whether to take ``adata.raw``, with its genes.
    gene_symbols : str, optional
        Column of ``var`` with the names of the genes, by default the index. A gene without
        one keeps its own; of names that occur twice the second gets ``-1``.

    Examples
    --------
    >>> import anndata, semfs
    >>> cells = anndata.AnnData(np.zeros((4, 2)), obs={"type": ["b", "b", "t", "t"]})
    >>> cells.layers["log"] = np.array([[1.0, 3.0], [2.0, 3.1], [1.0, 0.0], [2.0, 0.1]])
    >>> cells.var["symbol"] = ["ACTB", "CD19"]
    >>> genes = view(cells, layer="log", gene_symbols="symbol")
    >>> semfs.SemFS(1).fit(genes, "type").get_feature_names_out()
    array(['CD19'], dtype=object)
    """
    use_raw = use_raw or (layer == "raw" and "raw" not in adata.layers)
    missing = adata.raw is None if use_raw else layer is not None and layer not in adata.layers
    if missing:
        found = ", ".join([*adata.layers, *(["raw"] if adata.raw is not None else [])])
        name = "raw" if use_raw else f"layer {layer!r}"
        raise ValueError(f"the AnnData object has no {name}; layers: {found or 'none'}.")
    out = GeneMatrix(adata, None if use_raw else layer, use_raw, gene_symbols)
    if gene_symbols is not None and gene_symbols not in out.var:
        found = ", ".join(map(str, out.var.columns[:8])) or "none"
        raise ValueError(f"var has no column {gene_symbols!r}; found: {found}.")
    return out


def as_genes(data: Any) -> GeneMatrix | None:
    """Return an AnnData object, known by its looks, as its X; None for all other data."""
    if isinstance(data, GeneMatrix):
        return data
    looks = all(hasattr(type(data), name) for name in ("obs", "var", "X"))
    return GeneMatrix(data, None, False, None) if looks else None


@dataclass(frozen=True, eq=False)
class GeneMatrix:
    """X, a layer or raw of an AnnData object; made by `view`."""

    adata: Any
    layer: str | None
    use_raw: bool
    gene_symbols: str | None

    @property
    def var(self) -> Any:
        """The frame (d, …) of the genes."""
        return (self.adata.raw if self.use_raw else self.adata).var

    @property
    def names(self) -> list[str]:
        """Distinct names (d,) of the genes."""
        names = self.var.index.to_series()
        if self.gene_symbols is not None:
            names = self.var[self.gene_symbols].astype(object).fillna(names)
        return distinct(names)

    def labels(self, column: str) -> Labels:
        """Return the labels of the cells in a column of ``obs``; missing ones are none."""
        if column not in self.adata.obs:
            found = ", ".join(map(str, list(self.adata.obs)[:8]))
            raise ValueError(f"obs has no column {column!r}; found: {found}.")
        return Labels.of(self.adata.obs[column].array).tidied()

    def reader(self) -> Reader:
        """Return a reader of the cells in blocks."""
        X = (self.adata.raw if self.use_raw else self.adata).X
        X = X if self.layer is None else self.adata.layers[self.layer]
        if hasattr(X, "group"):  # backed and sparse
            out: Reader = hdf5.sparse_reader(Path(X.group.file.filename), X.group.name)
        else:
            out = array_reader(X)
        out.feature_names, out.of_cells = self.names, True
        return out

    def keep(self, columns: np.ndarray) -> Any:
        """Return the AnnData object with some genes (k,) alone; of raw, a new one."""
        if not self.use_raw:
            return self.adata[:, columns]
        reader, parts = self.reader(), ("obs", "uns", "obsm", "obsp")
        blocks = [X[:, columns] for _, X, _ in reader.blocks(0, None, reader.usual_step)]
        return need("anndata").AnnData(
            sp.csr_matrix(sp.vstack(blocks)) if reader.sparse else np.vstack(blocks),
            var=self.var.iloc[columns].copy(),
            **{name: getattr(self.adata, name).copy() for name in parts},
        )


# ---- files --------------------------------------------------------------------------------


def file_reader(path: Path, layer: str | None) -> Reader:
    """Return a reader of X, a layer or "raw" of an AnnData file (.h5ad, .zarr)."""
    file = hdf5.opened(path)
    raw = layer == "raw" and "raw" in file
    name = "raw/X" if raw else "X" if layer is None else f"layers/{layer}"
    if name not in file:
        layers = list(file.get("layers", {})) + (["raw"] if "raw" in file else [])
        name = "raw" if layer == "raw" else name
        raise FileError(f"{path} has no {name}; layers: {', '.join(layers) or 'none'}.")
    out = hdf5.group_reader(path, name)
    out.frame, out.of_cells = "raw/var" if raw else "var", True
    out.feature_names = distinct(file_column(path, out.frame, None))
    return out


def file_column(path: Path, frame: str, column: str | None) -> Any:
    """Return a column of ``obs`` or ``var`` of a file as pandas has it; None: the index."""
    io = need("anndata.io", "data", what=str(path))
    file = hdf5.opened(path)
    group = file.get(frame)
    if not hasattr(group, "keys"):
        hint = " It was written by AnnData before 0.7: write it again." if group else ""
        raise FileError(f"{path} is not an AnnData file: it has no group {frame!r}.{hint}")
    name = str(group.attrs.get("_index", "_index")) if column is None else column
    if name not in group:
        found = column_names(path, frame)
        raise FileError(f"{path} has no {frame} column {name!r}; found: {found}.")
    found = hdf5.node(path, f"{frame}/{name}")
    for part in found if hasattr(found, "keys") else [""]:
        hdf5.open_array(path, f"{frame}/{name}/{part}".rstrip("/"), held=True)
    if "categories" in found.attrs:  # AnnData 0.7
        return io.read_elem(group)[name].array
    return io.read_elem(found)


def column_names(path: Path, frame: str) -> str:
    """Return the names of the columns of ``obs`` or ``var`` of a file, for a message."""
    group = hdf5.opened(path).get(frame, {})
    names = group.attrs.get("column-order", list(group)) if group else []
    return ", ".join(map(str, names)) or "none"


def check_counts(reader: Reader, normalize: bool) -> None:
    """Say what to do if cells hold counts (large whole numbers) but should not, or do not."""
    found = reader.some_values()
    top, mean = (float(found.max()), float(found.mean())) if len(found) else (0.0, 0.0)
    whole = len(found) and found.min() >= 0 and (found == np.floor(found)).all()
    message = None
    if normalize and not whole:
        message = 'normalize="log1p" expects counts, but there are other numbers; leave it out.'
    elif not normalize and whole and (top > 30 or top > 8 * mean):
        message = (
            f"the cells hold raw counts (whole numbers up to {top:.0f}), among which the genes "
            'of highest expression win. Normalise them on the fly: normalize="log1p" '
            "(--normalize log1p) of open_blocks and select_genes; or name a layer that is "
            "normalised (layer=..., --layer), as sc.pp.normalize_total and sc.pp.log1p do it."
        )
    if message:
        warnings.warn(message, UserWarning, stacklevel=3)
