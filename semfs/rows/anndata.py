"""AnnData objects as rows of numbers: one matrix of them, with the names of its genes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.files import need
from semfs.rows.readers import ArrayReader, Labels, array_reader

__all__ = ["GeneMatrix", "as_genes", "view"]


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
        unique = need("anndata.utils", "data", what="AnnData").make_index_unique
        return unique(need("pandas").Index([str(name) for name in names])).tolist()

    def labels(self, column: str) -> Labels:
        """Return the labels of the cells in a column of ``obs``; missing ones are none."""
        if column not in self.adata.obs:
            found = ", ".join(map(str, list(self.adata.obs)[:8]))
            raise ValueError(f"obs has no column {column!r}; found: {found}.")
        return Labels.of(self.adata.obs[column].array).tidied()

    def reader(self) -> ArrayReader:
        """Return a reader of the cells in blocks; what is stored by genes is loaded, sparse."""
        X = (self.adata.raw if self.use_raw else self.adata).X
        X = X if self.layer is None else self.adata.layers[self.layer]
        if getattr(X, "format", None) == "csc" and not sp.issparse(X):
            X = X.to_memory()
        out = array_reader(X)
        out.feature_names = self.names
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
