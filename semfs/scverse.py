"""Single-cell data as scanpy users hold them: genes chosen in an AnnData object, noted in it.

`select_genes` is one call in scanpy's manner. Selectors take AnnData objects too: `view` names
the layer, raw or gene symbols to use.
"""

import warnings
from numbers import Real
from typing import Any

from semfs.datasets.files import as_frame
from semfs.io.anndata import as_genes, view
from semfs.io.write import of_genes
from semfs.rows import open_blocks
from semfs.selectors.files import result_columns, result_summary
from semfs.selectors.semfs import SemFS


def select_genes(
    adata: Any,
    groupby: str,
    n_genes: float = 50,
    attributes: Any = None,
    layer: str | None = None,
    use_raw: bool = False,
    key_added: str = "semfs",
    *,
    gene_symbols: str | None = None,
    normalize: str | None = None,
    copy: bool = False,
    **parameters: Any,
) -> Any:
    """Choose genes that tell cell types apart, also those to come, and note them in the object.

    Parameters
    ----------
    adata : AnnData
        Log-normalized cells, in memory or backed; or counts, with `normalize`.
    groupby : str
        Column of ``obs`` with the cell types. Cells whose type is missing count as
        unlabeled.
    n_genes : int or float, default=50
        Number of genes to choose, or their share (below 1).
    attributes : DataFrame, mapping, "cl" or path, optional
        Descriptions of the cell types. ``"cl"`` are their ancestors in the Cell Ontology
        (types named as there, or by id; needs ``semfs[cl]``); so is the path of an OBO or OWL
        file. Other files are tables with a row per type. By default only the labels count.
    layer : str, optional
        Layer to use instead of ``X``.
    use_raw : bool, default=False
        Whether to use ``adata.raw``, with its genes.
    key_added : str, default="semfs"
        How the names of the results begin.
    gene_symbols : str, optional
        Column of ``var`` with the names of genes that `include` and `exclude` mean.
    normalize : {"log1p"}, optional
        Take log(1 + counts per 10⁴ of their cell) instead of the counts that are stored, block
        by block. The object keeps its counts.
    copy : bool, default=False
        Whether to return a copy with the results instead of changing ``adata``.
    **parameters
        Further parameters of `semfs.SemFS`, such as ``include`` or ``class_weight``.

    Returns
    -------
    AnnData or None
        Nothing, or the copy. What is added:

        ``var["semfs_selected"]`` whether a gene was chosen, ``var["semfs_rank"]`` its place
        (1 is the best) and ``var["semfs_score"]`` its importance. With ``use_raw`` they are in
        ``raw.var``, and in ``var`` for the genes it shares.

        ``uns["semfs"]`` a dict: ``params``, ``classes``, ``attributes`` (names), ``objective``
        after each gene, ``versions``. It probe_ok ``write_h5ad``.

    Examples
    --------
    >>> import anndata
    >>> from semfs.datasets import load_sample
    >>> lung = load_sample()
    >>> cells = anndata.AnnData(lung.X, obs={"cell_type": lung.y})
    >>> cells.var_names = lung.feature_names
    >>> select_genes(cells, "cell_type", n_genes=3, attributes=lung.attributes)
    >>> cells[:, cells.var["semfs_selected"]].shape
    (964, 3)
    """
    genes = as_genes(adata)
    if genes is None or genes is adata:
        raise TypeError(f"select_genes needs an AnnData object, got {type(adata).__name__}.")
    if copy:
        adata = adata.to_memory() if adata.isbacked else adata.copy()
    genes = view(adata, layer, use_raw, gene_symbols)
    genes.labels(groupby)  # refuse before descriptions are looked for
    types = adata.obs[groupby]  # categories without a cell are described as well
    terms = types.cat.categories if hasattr(types, "cat") else types.dropna().unique()
    table = None if attributes is None else as_frame(attributes, terms)
    source = open_blocks(genes, groupby, normalize=normalize)
    if isinstance(n_genes, Real) and n_genes > source.n_features:
        message = f"n_genes={n_genes} is greater than the number of genes, {source.n_features}."
        warnings.warn(f"{message} All of them are kept.", stacklevel=2)
        n_genes = source.n_features
    selector = SemFS(n_genes, attributes=table, **parameters).fit(source)
    columns = result_columns(selector, key_added)
    for name, values in columns.items():
        genes.var[name] = values
    if genes.use_raw:
        for name, values in of_genes(columns, genes.var.index, adata.var_names).items():
            adata.var[name] = values
    summary = result_summary(selector)
    how = {"groupby": groupby, "use_raw": genes.use_raw}
    how |= {"layer": genes.layer, "normalize": normalize}
    summary["params"] |= {name: value for name, value in how.items() if value is not None}
    adata.uns[key_added] = summary
    return adata if copy else None
