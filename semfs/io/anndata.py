"""AnnData objects in memory or backed, and AnnData in .h5ad and Zarr files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import Floats, Indices
from semfs.io.hdf5 import Hdf5Store
from semfs.io.labels_file import labels_in_file
from semfs.io.reader import Reader, Request
from semfs.io.safety import FileError
from semfs.io.sparse import array_reader
from semfs.io.store import Store, matrix_reader, sparse_reader
from semfs.io.tenx import unique_names
from semfs.io.zarr import ZarrStore, is_zarr
from semfs.labels import Labels
from semfs.system import import_optional
from semfs.validation import (
    ParameterError,
    ParameterWarning,
    check_option,
    listed,
    warn_user,
)

if TYPE_CHECKING:
    import h5py
    import pandas as pd
    from anndata import AnnData

#: Names that a message lists at most.
MOST_NAMES = 8
#: Logarithms of normalized counts do not reach this value (e⁵⁰ counts per cell).
LARGEST_LOG = 50
#: The largest value of unlogged expression exceeds the median value this many times.
UNLOGGED_TAIL = 20
#: Whole numbers are taken for counts if the largest exceeds this, …
LARGE_COUNT = 30
#: … or the mean this many times. Ratings and categories stay below both.
COUNT_TAIL = 8
#: Values look standardized if some are negative, their mean is nearly 0 and their standard
#: deviation nearly 1 (scanpy cuts large values off, which lowers it).
LARGEST_SCALED_MEAN = 0.15
SCALED_DEVIATIONS = (0.5, 1.5)


def view(
    adata: AnnData,
    layer: str | None = None,
    use_raw: bool = False,
    gene_symbols: str | None = None,
    normalize: str | None = None,
) -> GeneMatrix:
    """Choose which matrix and gene names of an AnnData object to use.

    Parameters
    ----------
    adata : AnnData
        The object, in memory or backed. Nothing is copied or read yet. Pass the result in place
        of the object, for example to `fit` or `predict`.
    layer : str, optional
        Layer to use instead of ``X``. ``"raw"`` means the same as ``use_raw=True``.
    use_raw : bool, default=False
        Whether to use ``adata.raw`` and its genes.
    gene_symbols : str, optional
        Column of ``var`` with the names of the genes. By default, genes are named by the index
        of ``var``. A gene with no entry in this column is also named by its index value. If a
        name occurs twice, ``-1`` is appended to the second occurrence.
    normalize : {"log1p", "none"}, optional
        "log1p" replaces stored counts by log(1 + counts per 10⁴ counts of the cell), in both
        `fit` and `predict`. The counts in the object do not change. "none" uses the values
        unchanged, even in `predict` if the selector normalized its training data. By default,
        `fit` uses the values unchanged, and `predict` treats them as `fit` treated its training
        data.

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
    if use_raw and layer not in (None, "raw"):
        raise ValueError(f"Give either layer={layer!r} or use_raw=True, not both.")
    # a layer may be called "raw"; it goes before the attribute
    use_raw = use_raw or (layer == "raw" and "raw" not in adata.layers)
    if use_raw:
        layer = None
        missing = adata.raw is None
    else:
        missing = layer is not None and layer not in adata.layers
    if missing:
        layers = list(adata.layers)
        if adata.raw is not None:
            layers.append("raw")
        name = "raw" if use_raw else f"layer {layer!r}"
        found = ", ".join(layers) or "none"
        raise ValueError(f"the AnnData object has no {name}; layers: {found}.")
    if normalize is not None:
        check_option("normalize", normalize, ("log1p", "none"))
    genes = GeneMatrix(adata, layer, use_raw, gene_symbols, normalize)
    if gene_symbols is not None and gene_symbols not in genes.var:
        found = ", ".join(map(str, genes.var.columns[:MOST_NAMES])) or "none"
        raise ValueError(f"var has no column {gene_symbols!r}; found: {found}.")
    return genes


def as_genes(data: object) -> GeneMatrix | None:
    """Return a `GeneMatrix` for AnnData, a `GeneMatrix` unchanged, and None for other data.

    AnnData is recognized by its attributes, so the package need not be imported.
    """
    if isinstance(data, GeneMatrix):
        return data
    is_anndata = all(hasattr(type(data), name) for name in ("obs", "var", "X"))
    if not is_anndata:
        return None
    adata: Any = data
    return GeneMatrix(adata, None, False, None)


@dataclass(frozen=True, eq=False)
class GeneMatrix:
    """X, a layer or raw of an AnnData object. `view` makes it."""

    adata: AnnData
    layer: str | None
    use_raw: bool
    gene_symbols: str | None
    normalize: str | None = None  # "log1p", "none"; None: nothing, or what the fit did

    @property
    def var(self) -> pd.DataFrame:
        """The table of the genes."""
        return self.adata.raw.var if self.use_raw else self.adata.var

    @property
    def names(self) -> list[str]:
        """The unique names of the genes."""
        names = self.var.index.to_series()  # the fallback of missing symbols
        if self.gene_symbols is not None:
            names = self.var[self.gene_symbols].astype(object).fillna(names)
        return unique_names(names)

    def labels(self, column: str) -> Labels:
        """Return the labels of the cells in a column of ``obs``; missing ones are no labels."""
        if column not in self.adata.obs:
            found = ", ".join(map(str, list(self.adata.obs)[:MOST_NAMES]))
            raise ValueError(f"obs has no column {column!r}; found: {found}.")
        return Labels.of(self.adata.obs[column].array).strip_blank()

    def reader(self) -> Reader:
        """Return a reader of the cells in blocks."""
        if self.layer is not None:
            X = self.adata.layers[self.layer]
        else:
            X = self.adata.raw.X if self.use_raw else self.adata.X
        if hasattr(X, "group"):  # backed and sparse
            # through the user's handle: HDF5 refuses to open a file twice in two modes
            file = X.group.file
            store = Hdf5Store(Path(file.filename), file)
            reader: Reader = sparse_reader(store, X.group.name)
        else:
            reader = array_reader(X)
        reader.feature_names = self.names
        reader.read_row_names = partial(_obs_names, self.adata)
        reader.of_cells = True
        reader.layer = "raw" if self.use_raw else self.layer
        reader.other_matrices = self.other_matrices
        reader.gene_columns = self.var_columns
        reader.gene_index = self.var_index
        return reader

    def other_matrices(self) -> list[str]:
        """Return the names of the layers, and "raw", without the matrix in use."""
        names = [str(name) for name in self.adata.layers if name != self.layer]
        if self.adata.raw is not None and not self.use_raw:
            names.append("raw")
        return names

    def var_columns(self) -> dict[str, list[Any]]:
        """Return the values (d,) in each column of var, such as other names of the genes."""
        return {str(name): list(self.var[name]) for name in self.var}

    def var_index(self) -> list[str]:
        """Return the names (d,) of the genes in the index of var."""
        return [str(name) for name in self.var.index]

    def keep(self, columns: Indices) -> AnnData:
        """Return the object with only the genes ``columns`` (k,); for raw, a new object."""
        if not self.use_raw:
            return self.adata[:, columns]
        reader = self.reader()
        # a backed file is never in memory whole, only these columns of it
        blocks = [X[:, columns] for _, X, _ in reader.blocks(0, None, reader.usual_step)]
        X = sp.csr_matrix(sp.vstack(blocks)) if reader.sparse else np.vstack(blocks)
        package = import_optional("anndata")
        return package.AnnData(
            X,
            var=self.var.iloc[columns].copy(),
            obs=self.adata.obs.copy(),
            uns=self.adata.uns.copy(),
            obsm=self.adata.obsm.copy(),
            obsp=self.adata.obsp.copy(),
        )


def _obs_names(adata: AnnData) -> list[str]:
    return [str(name) for name in adata.obs_names]


def open_genes(genes: GeneMatrix, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of the cells of an AnnData object, and labels in a column of ``obs``.

    Every text in these labels is a class, even "unknown".
    """
    if request.key is not None:
        genes = view(genes.adata, request.key, normalize=genes.normalize)
    reader = genes.reader()
    if not request.names_labels_in(genes.adata.obs):
        return reader, None
    reader.label = request.name
    return reader, genes.labels(str(request.name))


def open_h5ad(path: Path, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of an .h5ad file, and the labels in a column of its ``obs``."""
    return _open_store(Hdf5Store(path), request)


def is_anndata_zarr(path: Path) -> bool:
    """Return whether a folder is Zarr that AnnData wrote."""
    return is_zarr(path) and (path / "obs").is_dir()


def open_anndata_zarr(path: Path, request: Request) -> tuple[Reader, Labels | None]:
    """Return a reader of AnnData in a Zarr folder, and the labels in a column of ``obs``."""
    return _open_store(ZarrStore(path), request)


def is_anndata_file(path: Path) -> bool:
    """Return whether a path is an .h5ad file or AnnData in a Zarr folder."""
    return path.suffix.lower() == ".h5ad" or is_anndata_zarr(path)


def has_layers(data: object) -> bool:
    """Return whether data are AnnData, or its file, without a matrix chosen by `view`."""
    if isinstance(data, (str, Path)):
        return is_anndata_file(Path(data))
    return not isinstance(data, GeneMatrix) and as_genes(data) is not None


def frame_column(path: Path, frame: str, column: str | None = None) -> Any:
    """Return a column of ``obs``, ``var`` or ``raw/var`` of a file. None means the index."""
    store = _store_of(path)
    with store.errors():
        return _column(store, frame, column)


def frame_columns(path: Path, frame: str) -> list[str]:
    """Return the names of the columns of ``obs`` or ``var`` of a file."""
    store = _store_of(path)
    with store.errors():
        return _frame_columns(store, frame)


def matrix_names(path: Path) -> list[str]:
    """Return the layers of an AnnData file, and "raw" if it has one."""
    store = _store_of(path)
    with store.errors():
        names = [str(name) for name in store.root.get("layers", {})]
        return [*names, "raw"] if "raw" in store else names


def _store_of(path: Path) -> Store:
    return ZarrStore(path) if is_zarr(path) else Hdf5Store(path)


def _open_store(store: Store, request: Request) -> tuple[Reader, Labels | None]:
    """Read matrix, names and labels of an AnnData file, with one file handle."""
    with store.errors():
        labels = _obs_labels(store, request)
        reader = _matrix_of_cells(store, request.key)
        reader.label = None if labels is None else request.name
        return reader, labels


def _obs_labels(store: Store, request: Request) -> Labels | None:
    """Return the labels in the column of ``obs`` that y names, or None if there is none."""
    if request.y is not None and request.name is None:
        return None
    columns = _frame_columns(store, "obs")
    if request.name is None:
        raise FileError(
            f"{store.path}: no labels given. Pass y, either the name of "
            f"an obs column (found: {_listed(columns)}), or an array with "
            "one label per sample."
        )
    if not request.names_labels_in(columns):
        return None
    values = _column(store, "obs", request.name)
    return labels_in_file(values, f"{store.path}: {request.name}", request.no_label)


def _listed(names: list[str]) -> str:
    shown = ", ".join(names[:MOST_NAMES])
    return f"{shown}, …" if len(names) > MOST_NAMES else shown or "none"


def _matrix_of_cells(store: Store, layer: str | None) -> Reader:
    """Return a reader of X, a layer or "raw", with the names of genes and cells."""
    is_raw = layer == "raw" and "raw" in store
    if is_raw:
        name = "raw/X"
    else:
        name = "X" if layer is None else f"layers/{layer}"
    if name not in store.root:  # a link is reported when it is read
        layers = list(store.root.get("layers", {}))
        if "raw" in store:
            layers.append("raw")
        wanted = "raw" if layer == "raw" else name
        raise FileError(f"{store.path} has no {wanted}; layers: {', '.join(layers) or 'none'}.")
    reader = matrix_reader(store, name)
    reader.of_cells = True
    reader.layer = layer
    reader.frame = "raw/var" if is_raw else "var"
    reader.feature_names = unique_names(_column(store, reader.frame, None))
    reader.read_row_names = partial(_index, store, "obs")
    reader.other_matrices = partial(_other_matrices, store.path, layer)
    reader.gene_columns = partial(_var_columns, store.path, reader.frame)
    reader.gene_index = partial(_index, store, reader.frame)
    return reader


def _other_matrices(path: Path, used: str | None) -> list[str]:
    """Return the layers of a file, and "raw", without the one in use."""
    return [name for name in matrix_names(path) if name != used]


def _var_columns(path: Path, frame: str) -> dict[str, list[Any]]:
    """Return the values (d,) in each column of the table of genes of a file."""
    return {name: list(frame_column(path, frame, name)) for name in frame_columns(path, frame)}


def _index(store: Store, frame: str) -> list[str]:
    """Return the index of ``obs`` or ``var`` as text."""
    return [str(name) for name in _column(store, frame, None)]


def _frame_group(store: Store, frame: str) -> h5py.Group:
    """Return the group of ``obs`` or ``var``."""
    # a Zarr array has no members
    group = store.root.get(frame) if hasattr(store.root, "get") else None
    if not hasattr(group, "keys"):
        raise FileError(
            f"{store.path} is not an AnnData file of version 0.7 or later: no group {frame!r}. "
            "Open it with anndata and save it again."
        )
    return group


def _frame_columns(store: Store, frame: str) -> list[str]:
    """Return the names of the columns of ``obs`` or ``var``, in their order."""
    group = _frame_group(store, frame)
    index = str(group.attrs.get("_index", "_index"))
    # AnnData 0.7 kept the categories of all columns in one group
    members = [name for name in group if name not in (index, "__categories")]
    order = [str(name) for name in group.attrs.get("column-order", [])]
    in_order = [name for name in order if name in members]
    return in_order + [name for name in members if name not in in_order]


def _column(store: Store, frame: str, column: str | None) -> Any:
    """Return a column of ``obs`` or ``var`` as in pandas. None means the index."""
    reading = import_optional("anndata.io", "data", what=str(store.path))
    group = _frame_group(store, frame)
    name = str(group.attrs.get("_index", "_index")) if column is None else column
    if name not in group:
        raise FileError(
            f"{store.path} has no {frame} column {name!r}; "
            f"found: {_listed(_frame_columns(store, frame))}."
        )
    # sizes of everything that anndata will load
    found = store.node(f"{frame}/{name}")
    if hasattr(found, "keys"):
        for part in found:
            store.array(f"{frame}/{name}/{part}", held=True)
    else:
        store.array(f"{frame}/{name}", held=True)
    if "categories" in found.attrs:  # as AnnData 0.7 wrote it, a reference to another array
        return reading.read_elem(group)[name].array
    return reading.read_elem(found)


def kind_of_values(values: Floats) -> str:
    """Return what nonzero values of samples can be.

    "counts" are whole numbers with a long tail, and "whole" those without one, such as ratings.
    "unlogged" has a long tail but is not whole. "logs" has neither. "negative" is scaled or
    corrected. "unknown" is empty or infinite.
    """
    if not len(values) or not np.isfinite(values).all():
        return "unknown"
    if values.min() < 0:
        return "negative"
    largest = float(values.max())
    # counts are whole; means of counts, or counts per 10⁴, are not
    if (values == np.floor(values)).all():
        is_long = largest > LARGE_COUNT or largest > COUNT_TAIL * float(values.mean())
        return "counts" if is_long else "whole"
    has_long_tail = largest > UNLOGGED_TAIL * float(np.median(values))
    return "unlogged" if largest > LARGEST_LOG and has_long_tail else "logs"


def check_counts(reader: Reader, normalize: bool) -> None:
    """Warn of raw counts without ``normalize``. Raise for values that are no counts with it."""
    values = reader.some_values()
    kind = kind_of_values(values)
    if normalize:
        _refuse_logs_to_normalize(values, kind)
        return
    if kind == "counts":
        found = f"raw counts (whole numbers such as {values.max():.0f})"
    elif kind == "unlogged":
        found = f"values without a logarithm (such as {values.max():.0f})"
    else:
        return
    message = (
        f": the cells hold {found}, so highly expressed genes would "
        'dominate. Read the values with normalize="log1p", or use a '
        "layer that was processed by sc.pp.normalize_total and "
        "sc.pp.log1p."
    )
    warn_user(ParameterWarning("normalize", message))


def _refuse_logs_to_normalize(values: Floats, kind: str) -> None:
    """Raise if values that are to be normalized are logarithms."""
    if kind != "logs":
        return
    message = (
        "expects counts, but these values are not counts (they look like "
        f"logarithms, up to {values.max():.1f}). If they are already "
        "log-normalized, leave this option out. Corrected counts that "
        "are small and not whole numbers must be normalized first "
        "(sc.pp.normalize_total and sc.pp.log1p)."
    )
    raise ParameterError("normalize", message)


def refuse_counts(reader: Reader) -> None:
    """Raise if a fit used logarithms, but these samples are raw or lack the logarithm."""
    values = reader.some_values()
    kind = kind_of_values(values)
    if kind not in ("counts", "unlogged"):
        return
    found = "raw counts" if kind == "counts" else "values without a logarithm"
    message = (
        ": the fit used log-normalized values, but these cells hold "
        f"{found} (such as {values.max():.0f}), and would be assigned to "
        'wrong classes. Use normalize="log1p" to normalize them. If '
        'the fit also used such values, use normalize="none" to leave '
        "them as they are (in Python, of `annotate`, `view` or "
        f"`open_blocks`).{_where_else(reader)}"
    )
    raise ParameterError("normalize", message)


def refuse_unless_counts(reader: Reader) -> None:
    """Raise if a fit normalized its counts, but these samples are plainly not counts.

    Normalized once more, logarithms would give wrong predictions.
    """
    values = reader.some_values()
    kind = kind_of_values(values)
    # Whole numbers without a tail may be counts of few genes.
    if kind not in ("logs", "negative"):
        return
    if kind == "logs":
        found = f"they look like logarithms, up to {values.max():.1f}"
        remedy = (
            'If they are already log-normalized, use normalize="none" '
            "to leave them as they are. If they are corrected counts, "
            'use normalize="log1p" to normalize them (in Python, of '
            "`annotate`, `view` or `open_blocks`)."
        )
    else:
        found = f"some are negative, down to {values.min():.1f}"
        remedy = "Use counts instead."
    message = (
        ": the fit log-normalized counts, but these values are not "
        f"counts ({found}). {remedy}{_where_else(reader)}"
    )
    raise ParameterError("normalize", message)


def warn_if_scaled(reader: Reader, reason: str = ", so all genes vary equally") -> None:
    """Warn if cells look standardized (by scanpy's ``pp.scale``), which is bad for a reason."""
    if not reader.of_cells:
        return
    # a few hundred cells from four places of the file, zeros left out
    values = reader.some_values()
    # log-normalized values and counts are never negative
    if kind_of_values(values) != "negative":
        return
    low, high = SCALED_DEVIATIONS
    centered = abs(float(values.mean())) <= LARGEST_SCALED_MEAN
    if not centered or not low <= float(values.std()) <= high:
        return
    message = (
        f": the cells look standardized (negative values, mean 0, variance 1){reason}. "
        f"Use log-normalized values instead.{_where_else(reader)}"
    )
    warn_user(ParameterWarning("layer", message))


def _where_else(reader: Reader) -> str:
    """Return a sentence that lists the other matrices of AnnData; "" without any."""
    names = [] if reader.other_matrices is None else reader.other_matrices()
    return f" Other matrices: {listed(names)}." if names else ""
