"""Select features in a data file: a ranked feature table and the reduced data are written.

`select_features` reads the file in bounded memory. The command `semfs select` calls it.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Indices, Label, LabelsLike, Matrix, PathLike
from semfs.attributes import as_attribute_table
from semfs.attributes.files import write_table
from semfs.feature_names import resolve_features
from semfs.io.anndata import (
    check_counts,
    frame_column,
    is_anndata_file,
    is_anndata_zarr,
    view,
)
from semfs.io.reader import Reader
from semfs.io.registry import open_reader
from semfs.io.safety import atomic_write, check_apart
from semfs.io.tables import TableReader
from semfs.io.tenx import unique_names
from semfs.io.write import WRITTEN, feature_names, write_columns, write_h5ad
from semfs.labels import Labels
from semfs.rows import BlockSource, in_blocks
from semfs.rows.cluster import connect, on_cluster
from semfs.rows.opening import source_of
from semfs.rows.preprocess import Preprocessing
from semfs.scverse import (
    result_columns,
    result_summary,
    store_columns,
    warn_of_other_names,
)
from semfs.selectors.explanation import Explanation
from semfs.selectors.semfs import SemFS
from semfs.system import import_optional
from semfs.validation import ParameterError, check_option, listed

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData

#: Endings of the files that can be written.
ENDINGS = (*WRITTEN, ".xlsx")
#: Why a rule keeps a feature out, for the feature table.
REASONS = {
    "exclude": "excluded",
    "candidates": "not a candidate",
    "min_level": "below min_level",
    "max_level": "above max_level",
}
#: Rows that a sheet of Excel can hold, its header among them.
EXCEL_ROWS = 2**20
#: Samples whose medians stand for missing values; more of them hardly change a median.
MEDIAN_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class FileSelection:
    """What `select_features` did.

    ``selector`` is fitted; ``features`` is a frame (d, 5) of ``feature``, ``score`` (empty for
    features that could not be selected), ``selected``, ``column`` and ``reason`` by ``rank``;
    ``files`` were written; ``n_rows`` samples had labels of seen classes; ``samples`` is the
    ``source`` without those of unseen classes, and ``explanation`` says why.
    """

    selector: SemFS
    features: pd.DataFrame
    files: list[Path]
    n_rows: int
    source: BlockSource
    samples: BlockSource
    explanation: Explanation

    def as_dict(self) -> dict[str, Any]:
        """Return the selection as plain values: selected features, classes and files."""
        selected = self.features[self.features["selected"]].reset_index()
        return {
            "selected": selected.drop(columns="selected").to_dict(orient="records"),
            "n_features": len(self.features),
            "n_rows": self.n_rows,
            "classes": [str(label) for label in self.selector.classes_],
            "knowledge": {name: str(text) for name, text in self.selector.knowledge_.items()},
            "rules": list(self.selector.rules_),
            "files": [str(path) for path in self.files],
        }


def select_features(
    source: BlockSource,
    selector: SemFS,
    out: PathLike,
    *,
    unseen: Iterable[Label] = (),
    subset: bool = False,
    scale: bool = False,
    impute: str | None = None,
    scheduler: str | None = None,
    X_unlabeled: Matrix | BlockSource | None = None,
    batch_unlabeled: LabelsLike | Labels | None = None,
    settings: Mapping[str, object] | None = None,
) -> FileSelection:
    """Fit a selector to a file, in bounded memory, and write the columns it selects.

    Parameters
    ----------
    source : BlockSource
        The opened file (`semfs.rows.open_blocks`).
    selector : SemFS
        The selector to fit, with its class descriptions.
    out : path-like
        With one of the endings .csv, .tsv, .parquet, .feather, .npy, .npz, .xlsx or .h5ad: the
        reduced data, all rows of them; the ranked feature table is written beside it as
        ``NAME.features.csv``. Without ending: a folder that gets ``features.csv`` and
        ``reduced`` in the format of the data. An .h5ad file is written whole, with what
        `semfs.scverse.select_genes` adds; see `subset`.
    unseen : iterable of class labels, default=()
        Classes whose samples must not be used.
    subset : bool, default=False
        Write only the selected genes into an .h5ad file; those of raw become its ``X``.
    scale : bool, default=False
        Divide features by their standard deviation before the selection, because their units
        differ. What is written and returned is in the units of the source.
    impute : {"median"}, optional
        Fill missing values with the median of their feature among the samples of the fit, of
        at most 20,000 of them; the source must be opened with ``missing_values="keep"``. The
        gaps stay in what is written. ``SemFS(missing_values="class-mean")`` is another way.
    scheduler : str, optional
        Address of a Dask cluster, such as ``tcp://host:8786``, whose workers can read the file.
    X_unlabeled : array, sparse matrix or BlockSource of shape (n_unlabeled, d), optional
        More unlabeled samples, as in `SemFS.fit`. An array has the features of the source in
        their order; of a file, features are found by name (see `open_unlabeled_file`).
    batch_unlabeled : array-like of shape (n_unlabeled,), optional
        Their batches; needed if the source was opened with a `batch`.
    settings : mapping, optional
        How the source was read (layer, normalization, …); it is kept in ``uns`` of an .h5ad
        file beside the parameters of the selector.

    Examples
    --------
    >>> import tempfile
    >>> from semfs import SemFS
    >>> from semfs.rows import open_blocks
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "farm.csv").write_text("kind,legs,id\\ncat,4,1\\ncat,4,2\\nhen,2,1\\n")
    >>> source = open_blocks(folder / "farm.csv", "kind")
    >>> done = select_features(source, SemFS(1), folder / "small.csv")
    >>> (folder / "small.csv").read_text().splitlines()[1]
    '"cat",4'
    """
    # a path that cannot be written is refused before the fit
    _check_outputs(source, Path(out), subset)
    done = fit_features(
        source,
        selector,
        unseen=unseen,
        scale=scale,
        impute=impute,
        scheduler=scheduler,
        X_unlabeled=X_unlabeled,
        batch_unlabeled=batch_unlabeled,
    )
    return replace(done, files=write_selection(done, out, subset, settings))


def write_selection(
    done: FileSelection,
    out: PathLike,
    subset: bool = False,
    settings: Mapping[str, object] | None = None,
) -> list[Path]:
    """Write the reduced data and the feature table as `select_features` does.

    Returns the paths of both.
    """
    target, table_path = _check_outputs(done.source, Path(out), subset)
    # both files appear when both are complete
    with (
        atomic_write(target) as data_file,
        atomic_write(table_path) as table_file,
    ):
        _write_reduced(done.source, done.selector, data_file, subset, settings)
        write_table(done.features, table_file)
    return [target, table_path]


def _check_outputs(source: BlockSource, out: Path, subset: bool) -> tuple[Path, Path]:
    """Return the paths of the reduced data and of the feature table; refuse wrong ones."""
    target, table_path = output_paths(source, out)
    if subset and target.suffix.lower() != ".h5ad":
        message = f"is for .h5ad files, not for {target}. Leave it out."
        raise ParameterError("subset", message)
    return target, table_path


def fit_features(
    source: BlockSource,
    selector: SemFS,
    *,
    unseen: Iterable[Label] = (),
    scale: bool = False,
    impute: str | None = None,
    scheduler: str | None = None,
    X_unlabeled: Matrix | BlockSource | None = None,
    batch_unlabeled: LabelsLike | Labels | None = None,
    n_bootstraps: int = 0,
    random_state: int = 0,
) -> FileSelection:
    """Fit a selector to a file as `select_features` does, and write nothing.

    ``n_bootstraps`` and ``random_state`` are those of `SemFS.explain`.
    """
    # All that can be refused is refused now, not after a long fit.
    pandas = import_optional("pandas", "data", what="The feature table")
    for parameter in ("include", "exclude", "candidates"):
        features = getattr(selector, parameter)
        resolve_features(parameter, features, source.feature_names, source.n_features)

    seen = _seen_samples(source, selector, unseen)
    if impute is not None:
        check_option("impute", impute, ("median",))
        seen = _filled_with_medians(seen)
    if scale:
        with_gaps = selector.missing_values != "error"
        seen = _standardized_with_gaps(seen) if with_gaps else seen.standardized()
    factors = seen.preprocessing.scale
    # an array has the units of the source, the fit those of the scaled source
    if factors is not None and X_unlabeled is not None and not in_blocks(X_unlabeled):
        X_unlabeled = Preprocessing(scale=factors).apply(X_unlabeled)
    beside = {"X_unlabeled": X_unlabeled, "batch_unlabeled": batch_unlabeled}
    _fit(selector, seen, beside, scheduler)
    # Explanations need the moments of the fit, so they come before the change of units.
    # Without bootstraps an explanation costs one batch of Gram columns, or nothing.
    explanation = selector.explain(n_bootstraps=n_bootstraps, random_state=random_state)
    reasons = _reasons(selector, source, explanation)
    if factors is not None:
        in_units = selector._fitted.scaled(factors.astype(np.float64))
        selector._set_fitted(in_units)
        selected = np.asarray(selector.order_)[: len(explanation.means)]
        means = explanation.means.div(factors[selected], axis=0)
        explanation = replace(explanation, means=means)

    assert seen.labels is not None
    return FileSelection(
        selector=selector,
        features=_feature_table(selector, source, reasons, pandas),
        files=[],
        n_rows=int((seen.labels.codes >= 0).sum()),
        source=source,
        samples=source.with_labels(seen.labels),
        explanation=explanation,
    )


# ---- before the fit -------------------------------------------------------------------


def output_paths(source: BlockSource, out: Path) -> tuple[Path, Path]:
    """Return the paths of the reduced data and of the feature table.

    Formats that cannot be written, and paths of the data themselves, are refused.
    """
    data = source.reader.path
    ending = out.suffix.lower()
    if not ending or out.is_dir():
        target = out / f"reduced{_ending_of_reduced(data)}"
        table = out / "features.csv"
    elif ending in ENDINGS:
        target = out
        table = out.with_name(f"{out.stem}.features.csv")
    else:
        endings = ", ".join(ENDINGS)
        message = f": {out} must end in {endings}, or have no ending: a folder."
        raise ParameterError("out", message)
    if target.suffix.lower() == ".h5ad":
        _check_can_be_h5ad(source.reader, target)
    if target.suffix.lower() == ".xlsx" and (source.n_rows or 0) >= EXCEL_ROWS:
        message = (
            f": {target} can hold {EXCEL_ROWS - 1} rows, "
            f"the data have {source.n_rows}. Choose .csv or .parquet."
        )
        raise ParameterError("out", message)
    check_apart((target, table), (data,))
    return target, table


def _ending_of_reduced(data: Path | None) -> str:
    """Return the ending of the reduced data: that of the data, or .csv."""
    ending = "" if data is None else data.suffix.lower()
    if ending in ENDINGS:
        return ending
    return ".parquet" if ending == ".pq" else ".csv"


def _check_can_be_h5ad(reader: Reader, target: Path) -> None:
    """Refuse to write a table as .h5ad: its text columns would be lost."""
    if reader.path is None or isinstance(reader, TableReader):
        others = ", ".join(ending for ending in ENDINGS if ending != ".h5ad")
        message = f": {target}: a table cannot be written as .h5ad. Choose one of {others}."
        raise ParameterError("out", message)
    # a missing package is reported now, not after the fit
    import_optional("anndata", "data", what="An .h5ad file")


def _seen_samples(
    source: BlockSource,
    selector: SemFS,
    unseen: Iterable[Label],
) -> BlockSource:
    """Return the source without samples of unseen classes, labels as the attributes name them.

    A table of classes 3 and 4 also describes classes "3" and "4" of a text file.
    """
    assert source.labels is not None
    labels = source.labels.leave_out(unseen)
    if selector.attributes is not None:
        table = as_attribute_table(selector.attributes)
        labels = labels.align_to(table.classes.tolist())
    return source.with_labels(labels)


def _filled_with_medians(source: BlockSource) -> BlockSource:
    """Return the source with missing values replaced by the medians of their features."""
    X, _ = source.labels_known().sample(MEDIAN_ROWS, labeled=True)
    if not isinstance(X, np.ndarray):
        return source  # what is not stored in sparse data is 0, not missing
    unknown = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(unknown):
        shown = listed(feature_names(source)[unknown].tolist())
        message = f": no sample has a value of {shown}. Drop them."
        raise ParameterError("impute", message)
    medians = np.nanmedian(X, axis=0)
    return replace(source, preprocessing=replace(source.preprocessing, fill=medians))


def _standardized_with_gaps(source: BlockSource) -> BlockSource:
    """Return the source with features of standard deviation 1 among the values it has."""
    X, labels, _ = source.load()
    if not isinstance(X, np.ndarray):
        return source.standardized()
    with warnings.catch_warnings():
        # the fit refuses features without any value, with their names
        warnings.simplefilter("ignore", RuntimeWarning)
        spread = np.nanstd(X[labels.codes >= 0], axis=0, dtype=np.float64)
    # constant features stay as they are; the fit does not select them
    scale = 1.0 / np.where(spread > 0.0, spread, 1.0)
    return replace(source, preprocessing=replace(source.preprocessing, scale=scale))


def open_unlabeled_file(
    path: PathLike,
    *,
    layer: str | None = None,
    normalize: str | None = None,
    gene_symbols: str | None = None,
    keep_missing: bool = False,
) -> BlockSource:
    """Return the samples of another file, none of which has a label.

    ``layer``, ``normalize`` and ``gene_symbols`` are those that the file of the labeled samples
    was opened with. ``keep_missing``: empty cells of a table are NaN.
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
    """Return the names of genes in a column of var of an AnnData file, each only once.

    A gene without a name in that column keeps that of the index; a second gene of one name
    gets ``-1`` behind it, as in `semfs.scverse.view`.
    """
    path = reader.path
    if path is None or not is_anndata_file(path):
        message = f"is {column!r}, but only .h5ad and .zarr files have a table of genes."
        raise ParameterError("gene_symbols", message)
    pandas = import_optional("pandas", "data", what="An AnnData file")
    index = pandas.Series(frame_column(path, reader.frame))
    symbols = pandas.Series(frame_column(path, reader.frame, column)).astype(object)
    return unique_names(symbols.fillna(index))


# ---- the fit --------------------------------------------------------------------------


def _fit(
    selector: SemFS,
    seen: BlockSource,
    beside: Mapping[str, Any],
    scheduler: str | None,
) -> None:
    """Fit the selector here, or on a Dask cluster; ``beside`` are other samples for `fit`."""
    if scheduler is None:
        selector.fit(seen, **beside)
        return
    with connect(scheduler) as client:
        selector.fit(on_cluster(seen, client), **beside)


# ---- results --------------------------------------------------------------------------


def _feature_table(
    selector: SemFS,
    source: BlockSource,
    reasons: Mapping[int, str],
    pandas: Any,
) -> pd.DataFrame:
    """Return one row per feature, best first."""
    order = np.asarray(selector.order_)
    scores = np.asarray(selector.scores_, dtype=np.float64)[order]
    columns = {
        "feature": [str(name) for name in feature_names(source)[order]],
        # an empty cell instead of -inf
        "score": np.where(np.isfinite(scores), scores, np.nan),
        "selected": np.asarray(selector.support_)[order],
        "column": order,
        "reason": [reasons.get(int(j), "") for j in order],
    }
    ranks = pandas.RangeIndex(1, len(order) + 1, name="rank")
    return pandas.DataFrame(columns, index=ranks)


def _reasons(
    selector: SemFS,
    source: BlockSource,
    explanation: Explanation,
) -> dict[int, str]:
    """Return why features were selected, or could not be, by their index."""
    reasons: dict[int, str] = {}
    # Features that may not be selected have the score -inf: excluded ones, and constants.
    excluded = resolve_features(
        "exclude", selector.exclude, source.feature_names, source.n_features
    )
    for feature in np.flatnonzero(np.isneginf(selector.scores_)).tolist():
        reasons[feature] = "constant"
    # a rule is a better reason than that a feature is constant, so it comes later
    for rule, features in selector._get_fitted().ruled_out.items():
        reasons.update(dict.fromkeys(features.tolist(), REASONS.get(rule, rule)))
    reasons.update(dict.fromkeys(excluded.tolist(), "excluded"))

    explained = explanation.features
    selected = np.asarray(selector.order_)[: len(explained)].tolist()
    forced = resolve_features(
        "include", selector.include, source.feature_names, source.n_features
    ).tolist()
    for feature, row in zip(selected, explained.itertuples()):
        parts = ["included"] if feature in forced else []
        parts.append(f"varies with {row.carries}")
        if row.separates:
            parts.append(row.separates)
        if row.duplicates:
            parts.append(f"similar to {row.duplicates}")
        reasons[feature] = "; ".join(parts)
    return reasons


def _write_reduced(
    source: BlockSource,
    selector: SemFS,
    path: Path,
    subset: bool,
    settings: Mapping[str, object] | None,
) -> None:
    """Write the selected columns of all rows; an .h5ad file whole unless ``subset``."""
    selected = np.flatnonzero(selector.support_)
    ending = path.suffix.lower()
    if ending == ".xlsx":
        _write_excel(source, selected, path)
        return
    if ending != ".h5ad":
        write_columns(source, selected, path)
        return
    columns = result_columns(selector)
    summary = result_summary(selector, settings)
    kept = selected if subset else None
    origin = source.reader.path
    if origin is not None and origin.suffix.lower() == ".h5ad":
        if kept is None:
            source = _named_like_var(source)
        # The file is copied and added to; the matrix is not read.
        write_h5ad(source, path, columns, summary, kept)
    else:
        _write_new_h5ad(source, path, columns, summary, kept)


def _named_like_var(source: BlockSource) -> BlockSource:
    """Return a source of raw whose genes have the names used in var, where that is possible.

    Results for raw are also stored in var, for genes in common. Genes of raw may have been
    named by a column of symbols (--gene-symbols) while var uses their ids, or the reverse.
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


def _write_excel(source: BlockSource, columns: Indices, path: Path) -> None:
    """Write the columns as a sheet, through a Feather file that pandas reads back."""
    pandas = import_optional("pandas", "data", what="An Excel file")
    import_optional("openpyxl", "data", what="An Excel file")
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "reduced.feather"
        write_columns(source, columns, table)
        pandas.read_feather(table).to_excel(path, index=False, engine="openpyxl")


def _write_new_h5ad(
    source: BlockSource,
    path: Path,
    columns: dict[str, np.ndarray],
    summary: dict[str, Any],
    kept: Indices | None,
) -> None:
    """Write cells of another format (Zarr, 10x, Matrix Market, …) as an .h5ad file.

    The values are those of the file, not normalized; they must fit into memory.
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
    if source.labels is not None:
        # categories of .h5ad files are text; None stays a missing value
        labels = [None if label is None else str(label) for label in source.labels.array()]
        obs[reader.label or "label"] = pandas.Categorical(labels)
    var = pandas.DataFrame(index=[str(name) for name in feature_names(source)])
    made: AnnData = anndata.AnnData(X, obs=obs, var=var)
    return made
