"""Gene selection in AnnData objects, for scanpy users.

`select_genes` selects genes in one call and stores the results in the object, as scanpy's
functions do. All selectors also accept AnnData objects. To make them use a layer, ``raw`` or
gene symbols, pass the result of `view`.
"""

from __future__ import annotations

import platform
from collections.abc import Collection, Mapping
from dataclasses import replace
from inspect import signature
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import sklearn

from semfs._typing import AttributesLike, Indices, Label, PathLike
from semfs.attributes import read_attributes
from semfs.attributes.tables import AttributeTable
from semfs.io.anndata import as_genes, view, warn_if_scaled
from semfs.io.reader import NO_LABEL_TEXTS
from semfs.io.write import of_genes
from semfs.labels import FEW_SAMPLES, UNLABELED, Labels, classes_in, unlabeled_note
from semfs.rows import open_blocks
from semfs.selectors.annotated import annotation_columns
from semfs.selectors.batch_like import looks_like_batches, warn_of_batch_like_clusters
from semfs.selectors.linear import LinearSelector
from semfs.selectors.ranking import RankingSelector
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional
from semfs.validation import (
    ParameterError,
    ParameterWarning,
    check_integer,
    check_option,
    counted,
    did_you_mean,
    listed,
    warn_user,
)

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData

    from semfs.io.anndata import GeneMatrix

__all__ = ["annotate", "select_genes", "view"]


def select_genes(
    adata: AnnData,
    groupby: str,
    n_genes: float | None = 50,
    attributes: AttributesLike | PathLike | None = None,
    layer: str | None = None,
    use_raw: bool = False,
    key_added: str = "semfs",
    *,
    batch_key: str | None = None,
    gene_symbols: str | None = None,
    normalize: str | None = None,
    min_cells: int | None = None,
    unseen: Collection[Label] = (),
    unlabeled: str = "use",
    copy: bool = False,
    **parameters: Any,
) -> AnnData | None:
    """Select genes that separate seen and unseen cell types, and store them in the object.

    Parameters
    ----------
    adata : AnnData
        Log-normalized cells, in memory or backed. If the object holds counts, set
        ``normalize``.
    groupby : str
        Column of ``obs`` with the cell types.
    n_genes : int or float, default=50
        Number of genes to select, or the share of all genes if the value is below 1. None
        selects as many genes as the ``budget`` allows.
    attributes : DataFrame, mapping, "cl" or path, optional
        Descriptions of the cell types. ``"cl"`` describes types by their ancestors in the Cell
        Ontology. The types must then have the names or ids of that ontology, and ``semfs[cl]``
        must be installed. To use another ontology, give the path of an OBO or OWL file. Other
        files are tables with one row per type. By default, only the labels are used.
    layer : str, optional
        Layer to use instead of ``X``.
    use_raw : bool, default=False
        Whether to use ``adata.raw`` and its genes.
    key_added : str, default="semfs"
        Prefix of the names of the results.
    batch_key : str, optional
        Column of ``obs`` with the batches (donors, plates). The offsets of the batches are
        removed before genes are selected (see `semfs.SemFS.fit`). The values in the object do
        not change.
    gene_symbols : str, optional
        Column of ``var`` with the gene names that ``include`` and ``exclude`` refer to.
    normalize : {"log1p"}, optional
        "log1p" selects genes on log(1 + counts per 10⁴ counts of the cell), computed block by
        block. The stored counts do not change.
    min_cells : int, optional
        Minimum number of cells per type. Types with fewer cells are ignored, and so are their
        descriptions, so that `predict` does not assign these types. By default, all types are
        used, and a warning lists those with fewer than 5 cells.
    unseen : collection of cell types, default=()
        Types whose cells are not used. If they have descriptions, they are unseen classes, even
        if they have fewer cells than ``min_cells``.
    unlabeled : {"use", "drop"}, default="use"
        What to do with cells whose type is missing. "use" treats them as examples of unseen
        types, with a warning. "drop" leaves them out. (The option ``--unlabeled`` of
        ``semfs select`` has the same effect, but its default is "drop".)
    copy : bool, default=False
        Whether to return a copy with the results instead of changing ``adata``.
    **parameters
        Further parameters of `semfs.SemFS`, such as ``include``, ``class_weight`` or the rules
        ``candidates``, ``min_per_class``, ``budget`` and ``capacity``. ``groups`` and ``costs``
        may also be names of columns of ``var``.

    Returns
    -------
    AnnData or None
        The copy if ``copy=True``, otherwise None. The following results are added to the
        object:

        ``var["semfs_selected"]`` shows whether a gene was selected, ``var["semfs_rank"]`` is
        its rank (1 is the best) and ``var["semfs_score"]`` is its importance. If ``use_raw`` is
        set, these columns are added to ``raw.var``, and also to ``var`` for the genes in
        ``raw``.

        ``uns["semfs"]`` is a dict with ``params``, ``classes``, ``attributes`` (names),
        ``knowledge`` (what was used), ``rules`` (what each rule excluded and cost),
        ``objective`` (J after each gene) and ``versions``. `write_h5ad` stores it.

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
    # a view is refused, too: layer, raw and symbols are parameters here
    if genes is None or genes is adata:
        found = type(adata).__name__
        raise TypeError(f"select_genes needs an AnnData object, got {found}.")
    _check_names(parameters)
    if copy:
        # a backed object can be copied into another file only
        adata = adata.to_memory() if adata.isbacked else adata.copy()
    genes = view(adata, layer, use_raw, gene_symbols)
    # refuses a wrong name before descriptions are looked for
    labels = _labels_of_fit(genes, groupby, unlabeled)
    unseen = named_classes("unseen", unseen, labels)
    common = without_rare_classes(labels, "min_cells", min_cells, unseen)
    table = _descriptions(attributes, adata, groupby, labels, common)
    labels = common.leave_out(unseen)
    batches = None if batch_key is None else genes.labels(batch_key)
    source = open_blocks(genes, labels, batch=batches, normalize=normalize)
    # who normalizes has counts, which are checked when they are opened
    if normalize is None:
        warn_if_scaled(source.reader)
    n_genes = _at_most(n_genes, source.n_features)
    parameters = _with_columns(genes, parameters)
    selector = SemFS(n_genes, attributes=table, **parameters).fit(source)
    if batches is None:
        clusters = selector.unlabeled_labels_
        columns = _batch_like_columns(genes, labels)
        warn_of_batch_like_clusters("batch_key", clusters, columns)
    store_columns(genes, result_columns(selector, key_added))
    settings = {
        "groupby": groupby,
        "use_raw": genes.use_raw,
        "layer": genes.layer,
        "gene_symbols": gene_symbols,
        "normalize": normalize,
        "min_cells": min_cells,
        "unseen": list(unseen) or None,
        "batch_key": batch_key,
        "unlabeled": unlabeled,
    }
    adata.uns[key_added] = result_summary(selector, settings)
    return adata if copy else None


def annotate(
    adata: AnnData | GeneMatrix,
    selector: LinearSelector,
    table: AttributesLike | PathLike | None = None,
    together: bool = False,
    key_added: str = "semfs",
    *,
    groupby: str | None = None,
    batch_key: str | None = None,
    unknown_rate: float | None = None,
    missing_features: str = "ignore",
    layer: str | None = None,
    use_raw: bool = False,
    gene_symbols: str | None = None,
    normalize: str = "auto",
    copy: bool = False,
) -> AnnData | None:
    """Assign a seen or unseen type to each cell, using a fitted selector.

    Parameters
    ----------
    adata : AnnData or view
        Cells to annotate. If this is a `view`, the results are written to the object that the
        view was made from. Do not set ``layer``, ``use_raw``, ``gene_symbols`` or ``normalize``
        in that case, because the view determines them.
    selector : SemFS or SemFSCV
        Selector that was fitted to data with gene names.
    table : DataFrame, mapping or path, optional
        Descriptions of the possible types. By default, these are all types that the selector
        knows: the seen types and the unseen types with descriptions. If the cells are from a
        different laboratory than the training cells, too many cells can be assigned to a few
        types. In that case, give only the types that are possible.
    together : bool, default=False
        Whether to annotate all cells together (see `semfs.SemFS.predict_together`). Use True
        for the cells of one new sample that has many cells of each type, if it has the same
        source as the training cells, or if only unseen types are possible. If some cells are
        already labeled, set ``groupby``.
    key_added : str, default="semfs"
        Prefix of the names of the results.
    groupby : str, optional
        Column of ``obs`` with the known types. Only cells without a type are annotated. All
        other cells keep their type, get no probability and do not influence the result.
    batch_key : str, optional
        Column of ``obs`` with the batches, as in `select_genes`. For batches that were part of
        the training data, the offsets are removed. Cells of other batches are not corrected.
    unknown_rate : float, optional
        If given, assign the label "unknown" to cells that are far from all types. The value is
        the share of cells of seen types that get this label by mistake. This share applies to
        cells that resemble the training cells. If the cells come from elsewhere, such as
        another laboratory, many more may be labeled as unknown. By default, every cell gets a
        type.
    missing_features : {"ignore", "error"}, default="ignore"
        What to do if ``adata`` lacks selected genes. "ignore" warns and leaves these genes out,
        and "error" raises an error. (The default of ``semfs predict`` is "error", because
        warnings of a command in a script are easily missed.)
    layer : str, optional
        Layer to use instead of ``X``.
    use_raw : bool, default=False
        Whether to use ``adata.raw``.
    gene_symbols : str, optional
        Column of ``var`` with the gene names that were used in the fit.
    normalize : {"auto", "log1p", "none"}, default="auto"
        "auto" treats the values as the training data were treated. If the training data were
        normalized but the values are clearly not counts, it raises an error. "log1p" uses log(1
        + counts per 10⁴ counts of the cell). "none" uses the values unchanged, for example if
        they are already log-normalized.
    copy : bool, default=False
        Whether to return a copy with the results instead of changing ``adata``.

    Returns
    -------
    AnnData or None
        The copy if ``copy=True``, otherwise None. The columns ``semfs_class``,
        ``semfs_probability``, ``semfs_second`` (the second most likely type) and
        ``semfs_second_probability`` are added to ``obs``. Probabilities are calibrated for
        cells that resemble the training cells.

    Examples
    --------
    >>> import anndata
    >>> from semfs import SemFS
    >>> from semfs.datasets import load_sample
    >>> lung = load_sample()
    >>> X_seen, y_seen, X_unseen, y_unseen = lung.split()
    >>> names = lung.feature_names
    >>> atlas = anndata.AnnData(X_seen, var={"gene": names}, obs={"cell_type": y_seen})
    >>> sample = anndata.AnnData(X_unseen, var={"gene": names})
    >>> atlas.var_names = sample.var_names = names
    >>> selector = SemFS(50, lung.attributes).fit(atlas, "cell_type")
    >>> annotate(sample, selector)
    >>> bool(sample.obs["semfs_class"].isin(lung.attributes.index).all())
    True
    """
    pandas = import_optional("pandas", "data", what="annotate")
    genes = _cells_to_name(adata, layer, use_raw, gene_symbols, normalize)
    if copy:
        # a backed object can be copied into another file only
        cells = genes.adata
        cells = cells.to_memory() if cells.isbacked else cells.copy()
        genes = replace(genes, adata=cells)
    named = genes.adata
    class_table = table
    if isinstance(table, (str, Path)):
        class_table = read_attributes(table)
    columns = annotation_columns(
        selector,
        genes,
        class_table=class_table,
        together=together,
        unknown_rate=unknown_rate,
        missing_features=missing_features,
        given=None if groupby is None else ("groupby", genes.labels(groupby)),
        batch=("batch_key", None if batch_key is None else genes.labels(batch_key)),
        table_parameter="table",
    )
    for name, values in columns.items():
        is_text = values.dtype.kind == "O"
        # scanpy colors categories, and files store each name once
        stored = pandas.Categorical(values) if is_text else values
        named.obs[f"{key_added}_{name}"] = stored
    return named if copy else None


def _cells_to_name(
    adata: AnnData | GeneMatrix,
    layer: str | None,
    use_raw: bool,
    gene_symbols: str | None,
    normalize: str,
) -> GeneMatrix:
    """Return the cells that `annotate` names, with the matrix and names that are meant."""
    check_option("normalize", normalize, ("auto", "log1p", "none"))
    option = None if normalize == "auto" else normalize
    genes = as_genes(adata)
    if genes is None:
        found = type(adata).__name__
        raise TypeError(f"annotate needs an AnnData object, got {found}.")
    if genes is not adata:
        return view(genes.adata, layer, use_raw, gene_symbols, option)
    given = {
        "layer": layer,
        "use_raw": use_raw or None,
        "gene_symbols": gene_symbols,
        "normalize": option,
    }
    # two answers to one question would hide a mistake
    for name, value in given.items():
        if value is not None:
            message = "is for AnnData objects. Pass it to `view` instead."
            raise ParameterError(name, message)
    return genes


def _descriptions(
    attributes: AttributesLike | PathLike | None,
    adata: AnnData,
    groupby: str,
    labels: Labels,
    common: Labels,
) -> pd.DataFrame | None:
    """Return the table of the cell types, except those that ``common`` lacks as too rare.

    Categories without a cell are described, too. Without attributes, return None.
    """
    if attributes is None:
        return None
    types = adata.obs[groupby]
    if hasattr(types, "cat"):  # a categorical column
        described = list(types.cat.categories)
    else:
        described = list(types.dropna().unique())
    table = AttributeTable.from_any(attributes, described).to_frame()
    return without_descriptions(table, labels, common)


def _batch_like_columns(genes: GeneMatrix, labels: Labels) -> dict[str, Indices]:
    """Return the codes of unlabeled cells in the columns of ``obs`` that look like batches."""
    unlabeled = np.flatnonzero(labels.codes == UNLABELED)
    names = [str(name) for name in genes.adata.obs if looks_like_batches(str(name))]
    return {name: genes.labels(name).codes[unlabeled] for name in names}


def _check_names(parameters: Mapping[str, Any]) -> None:
    """Raise if one of the names is no parameter of `select_genes` or `SemFS`."""
    known = [*signature(select_genes).parameters, *SemFS().get_params()]
    for name in parameters:
        if name not in known:
            hint = did_you_mean(name, known)
            raise TypeError(f"select_genes has no parameter {name!r}{hint or '.'}")


def _with_columns(genes: GeneMatrix, parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters with columns of var in place of their names."""
    found = dict(parameters)
    for name in ("groups", "costs"):
        if isinstance(found.get(name), str):
            found[name] = _gene_column(genes, name, found[name])
    return found


def _gene_column(genes: GeneMatrix, parameter: str, column: str) -> list[Any]:
    """Return a column of var, one value per gene. Missing values are None."""
    if column not in genes.var:
        known = f". Columns: {listed(genes.var)}."
        hint = did_you_mean(column, genes.var.columns) or known
        message = f"is {column!r}, which is not a column of var{hint}"
        raise ParameterError(parameter, message)
    values = genes.var[column]
    return list(values.astype(object).where(values.notna(), None))


def _at_most(n_genes: float | None, n_features: int) -> float | None:
    """Return the number of genes to select, lowered with a warning if there are fewer."""
    # what is no number is left to SemFS, which refuses it or knows its meaning
    if not isinstance(n_genes, Real) or n_genes <= n_features:
        return n_genes
    message = f"n_genes={n_genes} is greater than the number of genes, {n_features}."
    warn_user(f"{message} All of them are kept.")
    return n_features


def store_columns(genes: GeneMatrix, columns: Mapping[str, np.ndarray]) -> None:
    """Add columns (d,) to var; with raw to raw.var, and to var for the genes in common."""
    for name, values in columns.items():
        genes.var[name] = values
    if not genes.use_raw:
        return
    var_names = genes.adata.var_names
    # Genes of raw may go by ids and those of X by symbols: then compare the symbols.
    shared = of_genes(dict(columns), genes.var.index, var_names)
    shared = shared or of_genes(dict(columns), genes.names, var_names)
    if not shared:
        warn_of_other_names()
    for name, values in shared.items():
        genes.adata.var[name] = values


def warn_of_other_names() -> None:
    """Warn that genes of raw and of X have no name in common."""
    message = (
        ": no gene in raw.var has the name of a gene in var, so the results are written to "
        "raw.var only. Set it to the column of raw.var that holds the names used in var."
    )
    warn_user(ParameterWarning("gene_symbols", message))


# ---- checks of cells and classes ------------------------------------------------------


def _labels_of_fit(genes: GeneMatrix, groupby: str, unlabeled: str) -> Labels:
    """Return the types of the cells; with "drop", those without a type are left out."""
    check_option("unlabeled", unlabeled, ("use", "drop"))
    labels = genes.labels(groupby)
    _warn_of_unlabeled_cells(labels, groupby, unlabeled)
    return labels.without_unlabeled() if unlabeled == "drop" else labels


def _warn_of_unlabeled_cells(labels: Labels, groupby: str, unlabeled: str) -> None:
    """Warn that cells without a type are used, and that text such as "nan" is a type."""
    if labels.n_unlabeled and unlabeled == "use":
        warn_user(ParameterWarning("groupby", unlabeled_note(labels, used=True)))
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    found = [
        f"{label!r} ({counts[code]} cells)"
        for code, label in enumerate(labels.classes)
        if isinstance(label, str) and label.strip().casefold() in NO_LABEL_TEXTS
    ]
    if found:
        message = (
            f": {groupby!r} has text that often means 'no label', but is "
            f"used here as a class of its own: {listed(found)}. To use "
            "these cells as unlabeled cells, replace the text with None. "
            "To leave them out, drop the cells."
        )
        warn_user(ParameterWarning("groupby", message))


def without_rare_classes(
    labels: Labels,
    parameter: str,
    min_samples: int | None,
    unseen: Collection[Label] | None = (),
) -> Labels:
    """Return labels without those of rare classes, and name these classes in a warning.

    Without ``min_samples``, all classes are kept, and the warning names those with fewer than 5
    samples. Classes in ``unseen`` are kept without a warning: their samples are not used
    anyway. None means that the caller has no such choice.
    """
    if min_samples is not None:
        check_integer(parameter, min_samples, 1)
    limit = FEW_SAMPLES if min_samples is None else min_samples
    # negative codes are samples without a class
    counts = np.bincount(labels.codes[labels.codes >= 0], minlength=len(labels.classes))
    is_unseen = np.array([label in (unseen or ()) for label in labels.classes], dtype=bool)
    rare = np.flatnonzero((counts < limit) & ~is_unseen)
    if not len(rare):
        return labels
    shown = listed([f"{labels.classes[c]} ({counts[c]})" for c in rare])
    count = counted(len(rare), "class", "classes")
    if min_samples is None:
        message = (
            f": {count} with fewer than {limit} samples: {shown}. Each "
            f"counts as much as a large class. Use {parameter}={limit} to "
            "leave them out; predict then assigns their samples to other "
            "classes."
        )
        warn_user(ParameterWarning(parameter, message))
        return labels
    message = (
        f": {count} with fewer than {limit} samples: {shown}. Their "
        "samples and descriptions are not used, so predict assigns their "
        "samples to other classes."
    )
    if unseen is not None:
        message += " To use the description of such a class, name the class with unseen=CLASS."
    warn_user(ParameterWarning(parameter, message))
    return labels.leave_out([labels.classes[c] for c in rare])


def without_descriptions(table: pd.DataFrame, before: Labels, after: Labels) -> pd.DataFrame:
    """Return the table without classes that `without_rare_classes` left out.

    ``before`` and ``after`` are the labels that it took and returned. A class that stayed in
    the table would be an unseen class, and predict would assign it to many samples: too few
    samples to learn a class from also are too few to expect it often.
    """
    kept = {str(label) for label in after.classes}
    removed = {str(label) for label in before.classes} - kept
    return table[[str(label) not in removed for label in table.index]]


def named_classes(parameter: str, names: Collection[Label], labels: Labels) -> list[Label]:
    """Return the classes of the labels that a parameter names. Raise if one is unknown."""
    classes = labels.classes
    found = classes_in([str(name) for name in names], classes)
    unknown = [label for label in found if label not in classes]
    if unknown:
        known = f". Classes: {listed(classes, 8)}. If names contain commas, repeat --unseen."
        hint = did_you_mean(unknown[0], classes) or known
        message = f": class {unknown[0]!r} does not occur in the data{hint}"
        raise ParameterError(parameter, message)
    return found


# ---- results --------------------------------------------------------------------------


def result_columns(selector: RankingSelector, key: str = "semfs") -> dict[str, np.ndarray]:
    """Return the results of a selector for each feature, as columns (d,) for AnnData's var."""
    return {
        f"{key}_selected": selector.support_,
        f"{key}_rank": selector.ranking_,
        f"{key}_score": selector.scores_,
    }


def result_summary(
    selector: SemFS, settings: Mapping[str, object] | None = None
) -> dict[str, Any]:
    """Return what AnnData's uns stores of a selection: text, numbers and arrays of these.

    ``settings`` of the run (layer, normalization, …) are added to the parameters of the
    selector and replace those of the same name. Parameters that are None are left out.
    """
    parameters = dict(selector.get_params())
    # The table would be too large; its column names are kept below.
    parameters.pop("attributes")
    parameters.update(settings or {})
    return {
        "params": {n: _storable(v) for n, v in parameters.items() if v is not None},
        "classes": _texts(selector.classes_),
        "attributes": _texts(selector.attribute_names_in_),
        "knowledge": {name: str(text) for name, text in selector.knowledge_.items()},
        "rules": _texts(selector.rules_),
        "objective": selector.objective_,
        "versions": versions(),
    }


def _storable(value: object) -> object:
    """Return a value in a form that AnnData can write: a number, text, or an array of text."""
    if isinstance(value, (bool, int, float, str, np.generic)):
        return value
    is_vector = isinstance(value, np.ndarray) and value.ndim == 1
    if isinstance(value, (list, tuple)) or is_vector:
        # items of a list may differ in type, which AnnData does not write
        return _texts(value)
    return str(value)


def _texts(values: Any) -> np.ndarray:
    return np.array([str(value) for value in values], dtype=object)


def versions() -> dict[str, str]:
    """Return the versions of the packages that a result depends on."""
    import semfs

    return {
        "semfs": semfs.__version__,
        "scikit-learn": sklearn.__version__,
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
