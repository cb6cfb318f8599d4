"""Applies a fitted selector to another file, and writes its selected features."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from semfs._typing import Floats, Indices, PathLike
from semfs.io.anndata import has_layers
from semfs.io.safety import FileError, atomic_write, check_apart
from semfs.io.write import Fill, of_genes, unchanged
from semfs.rows import BlockSource
from semfs.rows.opening import open_named, source_of
from semfs.scverse import result_columns, result_summary
from semfs.select.opening import gene_names
from semfs.select.outputs import check_file_ending, check_format
from semfs.select.reduced import write_cells, write_matrix
from semfs.selectors.filling import Filling, fill_values_of
from semfs.selectors.linear import LinearSelector
from semfs.selectors.ranking import RankingSelector
from semfs.selectors.sample_scale import ScaleWatch
from semfs.selectors.selected_columns import names_of_selected, no_selected
from semfs.validation import REPLACE_INFINITY, ParameterError, counted, listed, warn_user


class InfinityCount:
    """Counts infinite values in blocks (r, k) that ``filled`` returns."""

    def __init__(self, filled: Fill) -> None:
        self.filled = filled
        self.n = 0

    def __call__(self, block: Floats) -> Floats:
        """Return the filled block."""
        if isinstance(block, np.ndarray) and block.dtype.kind == "f":
            self.n += int(np.isinf(block).sum())
        return self.filled(block)


@dataclass
class WatchedFilling:
    """Fills gaps in blocks (r, k), and compares what was measured with the fit."""

    filling: Filling
    watch: ScaleWatch | None

    def __call__(self, block: Floats) -> Floats:
        """Return the filled block."""
        filled = self.filling.filled(block)
        # infinity has a warning of its own, and is of no unit
        if not isinstance(filled, np.ndarray) or not np.isfinite(filled).all():
            self.watch = None
        if self.watch is not None:
            self.watch.add(np.asarray(filled, dtype=np.float64))
        return filled

    def warn(self) -> None:
        """Warn of features that seem to be in another unit."""
        if self.watch is not None:
            self.watch.warn()


def transform_file(
    selector: RankingSelector,
    data: PathLike,
    out: PathLike,
    *,
    label: str | None = None,
    layer: str | None = None,
    gene_symbols: str | None = None,
    sample_id: str | None = None,
) -> tuple[int, int]:
    """Write the selected features of all samples of a file.

    Values are those of the file. If the fit filled missing values, those of the selected
    features are filled as well, except in .h5ad files.

    Parameters
    ----------
    selector : selector of this package
        Fitted, for example by `semfs.load`.
    data : path
        Samples, in any format that `SemFS.fit` reads. If the selector knows feature names,
        features are found by name, and only the selected features are needed. Without names,
        the file needs all features in their order. Missing values stay missing.
    out : path
        The file to write, with the ending .csv, .tsv, .parquet, .feather, .npy, .npz, .xlsx
        or .h5ad. It gets the selected features in the order of `transform`, with the values
        of the data file, which means without normalization. Text columns of a table, other
        arrays of an NPZ file and annotations of cells are kept.
    label : str, optional
        Labels to keep as well: a column, an array of the file, or a label file.
    layer : str, optional
        Layer of the data, or "raw". By default the layer of the fit.
    gene_symbols : str, optional
        Column of ``var`` of AnnData files with the names that features had in the fit.
    sample_id : str, optional
        Column (of ``obs`` in AnnData) or array of the file with a different name for each
        sample, which is written as well.

    Returns
    -------
    tuple of int
        Number of samples, and number of selected features.
    """
    check_is_fitted(selector, "support_")
    data = Path(data)
    out = Path(out)
    check_file_ending(out)
    check_apart((out,), (data, label))
    if layer is None and has_layers(data):
        layer = selector._preprocessing().layer
    names = getattr(selector, "feature_names_in_", None)
    only = names_of_selected(selector.get_support(), names)
    # an empty tuple: labels are not wanted
    wanted = () if label is None else label
    reader, labels = open_named(data, sample_id, y=wanted, key=layer, only=only)
    if gene_symbols is not None:
        reader.feature_names = gene_names(reader, gene_symbols)
    reader.keeps_missing = True
    if names is not None:
        # A feature without any value counts as text; it is not kept as such.
        unselected = set(names[~selector.get_support()].tolist())
        reader.left_out = [name for name in reader.left_out if name not in unselected]
    source = source_of(reader, None if label is None else labels)
    check_format(source, out)
    places = _places(selector, source, data)
    fill = fill_values_of(selector)
    infinities = InfinityCount(unchanged)
    with atomic_write(out) as file:
        if out.suffix.lower() == ".h5ad":
            write_cells(source, file, _columns(selector, source), _summary(selector), places)
        elif fill is None:
            write_matrix(source, places, file, infinities)
        else:
            filling = Filling(fill)
            watched = WatchedFilling(filling, _scale_watch(selector))
            infinities = InfinityCount(watched)
            write_matrix(source, places, file, infinities)
            filling.warn()
            watched.warn()
        if infinities.n:
            warn_user(
                f"{counted(infinities.n, 'infinite value')} of selected features written as "
                f"in {data}. {REPLACE_INFINITY}"
            )
    return source.n_rows or 0, len(places)


def _scale_watch(selector: RankingSelector) -> ScaleWatch | None:
    """Return what compares values with the fit; None if the fit had other values."""
    if not isinstance(selector, LinearSelector) or selector._preprocessing().active:
        return None
    return selector._scale_watch(np.ones(int(selector.get_support().sum()), dtype=bool))


def _places(selector: RankingSelector, source: BlockSource, data: Path) -> Indices:
    """Return the positions of the selected features (k,) among those of a file."""
    support = selector.get_support()
    names = getattr(selector, "feature_names_in_", None)
    found = source.feature_names
    if names is None or found is None:
        if source.n_features != len(support):
            raise FileError(
                f"{data} has {source.n_features} features, but the "
                f"selector was fitted with {len(support)}. Unless both "
                "have feature names, all features are needed."
            )
        return np.flatnonzero(support)
    place_of = {name: place for place, name in enumerate(found)}
    selected = [str(name) for name in names[support]]
    missing = [name for name in selected if name not in place_of]
    if len(missing) == len(selected):
        raise ParameterError("gene_symbols", no_selected(names[support], source))
    if missing:
        raise FileError(
            f"{data} lacks {len(missing)} of {len(selected)} selected "
            f"features: {listed(missing)}. Use a file that contains them."
        )
    return np.array([place_of[name] for name in selected], dtype=np.intp)


def _columns(selector: RankingSelector, source: BlockSource) -> dict[str, np.ndarray]:
    """Return the results for each gene (d,) of a file, for var of AnnData."""
    columns = result_columns(selector)
    names = getattr(selector, "feature_names_in_", None)
    if names is None or source.feature_names is None:
        return columns
    return of_genes(columns, names, source.feature_names)


def _summary(selector: RankingSelector) -> dict[str, Any]:
    """Return what AnnData's uns stores. Baselines have only parameters."""
    if hasattr(selector, "knowledge_"):
        return result_summary(selector)
    return {"selector": repr(selector)}
