"""Predict the classes of the samples in a data file, with a saved selector.

The command `semfs predict` calls `predict_file`.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import AttributesLike, PathLike
from semfs.attributes.files import write_table
from semfs.io.reader import NO_LABEL_TEXTS
from semfs.io.safety import atomic_write, check_apart
from semfs.io.write import add_columns, name_of_ids
from semfs.labels import Labels
from semfs.rows.opening import check_units, column_labels, open_named, source_of, table_columns
from semfs.select.opening import gene_names
from semfs.selectors.annotated import annotation_columns
from semfs.selectors.filling import fill_values_of
from semfs.selectors.linear import LinearSelector
from semfs.selectors.selected_columns import fitted_to_logs, names_of_selected
from semfs.system import import_optional
from semfs.validation import ParameterError, check_option

if TYPE_CHECKING:
    import pandas as pd

    from semfs.rows import BlockSource

#: Endings of the files that can be written.
ENDINGS = (".csv", ".tsv", ".parquet", ".feather", ".xlsx", ".h5ad")


def predict_file(
    selector: LinearSelector,
    data: PathLike,
    out: PathLike,
    *,
    label: str | None = None,
    batch: str | None = None,
    sample_id: str | None = None,
    class_table: AttributesLike | None = None,
    together: bool = False,
    unknown_rate: float | None = None,
    missing_features: str = "error",
    layer: str | None = None,
    gene_symbols: str | None = None,
    normalize: str = "auto",
    no_label: Sequence[str] = NO_LABEL_TEXTS,
    key_added: str = "semfs",
) -> pd.DataFrame:
    """Predict the class of each sample of a file, write the predictions, and return them.

    Parameters
    ----------
    selector : SemFS or SemFSCV
        A fitted selector, for example from `semfs.load`. The data are preprocessed (for example
        normalized) like those of its fit.
    data : path
        Samples, in any format that `SemFS.fit` reads.
    out : path
        The file to write: a table (.csv .tsv .parquet .feather .xlsx), or, if the data are
        .h5ad, an .h5ad copy with predictions in ``obs``.
    label : str, optional
        Where existing labels are, as in `semfs.rows.open_blocks`. Only samples without a label
        are predicted. The others keep their label, do not influence the predictions, and get no
        probability.
    batch : str, optional
        Where the batches are. Offsets of batches that were part of the fit are removed.
    sample_id : str, optional
        Column (of ``obs`` in AnnData) or array of the file with a different name for each
        sample. The predictions have it as their index. By default names that the file has:
        ``obs_names``, barcodes, an index that pandas stored, or distinct text in the first
        column of a table.
    class_table : like `attributes`, optional
        Classes to decide among. By default all classes that the selector knows.
    together : bool, default=False
        Whether to predict samples together (see `SemFS.predict_together`).
    unknown_rate : float, optional
        If given, samples that are far from all classes are labeled "unknown". The value is the
        share of samples of seen classes that are labeled so by mistake. It holds for samples
        like those of the fit. By default every sample gets a class.
    missing_features : {"error", "ignore"}, default="error"
        What to do if the data lack selected features, as in `SemFS.predict`.
    layer : str, optional
        Layer of the data, or "raw".
    gene_symbols : str, optional
        Column of ``var`` of AnnData files with the names that features had in the fit.
    normalize : {"auto", "log1p", "none"}, default="auto"
        "auto" does what the fit did, and refuses values that are clearly not counts if the fit
        normalized counts. "log1p" normalizes counts, "none" takes the values as they are.
    no_label : sequence of str
        Text in ``label`` that means "no label", in upper or lower case.
    key_added : str, default="semfs"
        Prefix of the names of the columns of ``obs``.

    Returns
    -------
    DataFrame of shape (n, 4)
        ``class``, ``probability``, ``second`` and ``second_probability``, by sample.
    """
    import_optional("pandas", "data", what="A table of predictions")
    data = Path(data)
    out = Path(out)
    check_prediction_path(data, out)
    batches = None if batch is None else column_labels(data, batch, layer)
    drop = table_columns(data, batch, layer)
    source = _opened(data, selector, layer, label, drop, no_label, normalize, sample_id)
    if gene_symbols is not None:
        source.reader.feature_names = gene_names(source.reader, gene_symbols)
    only = _names_of_selected(selector)
    option = None if normalize == "auto" else normalize
    # after genes got their names, which are compared first
    check_units(source.reader, source.preprocessing, option, only)
    given = _given_labels(source, selector)
    columns = annotation_columns(
        selector,
        source,
        class_table=class_table,
        together=together,
        unknown_rate=unknown_rate,
        missing_features=missing_features,
        given=None if given is None else ("label", given),
        batch=("batch", batches),
    )
    frame = _as_frame(columns, source)
    with atomic_write(out) as file:
        if out.suffix.lower() == ".h5ad":
            _write_annotated(data, file, columns, key_added)
        else:
            write_table(frame, file)
    return frame


def _as_frame(columns: Mapping[str, np.ndarray], source: BlockSource) -> pd.DataFrame:
    """Return columns (n,) as a frame that is indexed by the names of the samples."""
    pandas = import_optional("pandas", "data", what="A table of predictions")
    names = source.reader.row_names
    # rows without names are counted from 0, as pandas does
    index = pandas.RangeIndex(len(columns["class"]), name="sample")
    if names is not None:
        index = pandas.Index(names, name=name_of_ids(source.reader, columns))
    frame: pd.DataFrame = pandas.DataFrame(dict(columns), index=index)
    return frame


def check_prediction_path(data: Path, out: Path) -> None:
    """Refuse a file that cannot be written, before anything is read."""
    ending = out.suffix.lower()
    if ending not in ENDINGS:
        raise ParameterError("out", f": {out} must end in {', '.join(ENDINGS)}.")
    if ending == ".h5ad" and data.suffix.lower() != ".h5ad":
        raise ParameterError(
            "out",
            f": {out} cannot be written, because the data are not .h5ad. "
            "Choose .csv or .parquet.",
        )
    check_apart((out,), (data,))


def _opened(
    data: Path,
    selector: LinearSelector,
    layer: str | None,
    label: str | None,
    drop: Sequence[str],
    no_label: Sequence[str],
    normalize: str,
    sample_id: str | None,
) -> BlockSource:
    """Return the samples of a file, preprocessed as those of the fit, with their labels."""
    check_option("normalize", normalize, ("auto", "log1p", "none"))
    option = None if normalize == "auto" else normalize
    steps = replace(selector._preprocessing(), of_logs=fitted_to_logs(selector))
    preprocessing = steps.normalized_as(option)
    only = _names_of_selected(selector)
    # an empty tuple: labels are not wanted
    wanted = () if label is None else label
    columns = None if preprocessing.active else only
    reader, labels = open_named(
        data, sample_id, y=wanted, key=layer, drop=drop, no_label=no_label, only=columns
    )
    # a gap in counts changes the total by which they are normalized
    learned = fill_values_of(selector) is not None
    reader.keeps_missing = learned and preprocessing.normalize is None
    return source_of(reader, None if label is None else labels, preprocessing=preprocessing)


def _names_of_selected(selector: LinearSelector) -> set[str] | None:
    """Return the names of the selected features; None if the features of the fit had none."""
    names = getattr(selector, "feature_names_in_", None)
    return names_of_selected(selector.get_support(), names)


def _given_labels(source: BlockSource, selector: LinearSelector) -> Labels | None:
    """Return the labels that samples have already, None if they were not asked for."""
    if source.labels is None:
        return None
    return source.labels.mark_unlabeled(selector.candidate_classes(None).classes.tolist())


def _write_annotated(
    data: Path, path: Path, columns: Mapping[str, np.ndarray], key: str
) -> None:
    """Copy an .h5ad file and add columns (n,) to its obs."""
    pandas = import_optional("pandas", "data", what="An .h5ad file")
    h5py: Any = import_optional("h5py", "data", what="An .h5ad file")
    # copied as a file: matrices may be larger than memory
    shutil.copyfile(data, path)
    added = {}
    for name, values in columns.items():
        is_text = values.dtype.kind == "O"
        # categories, as in `annotate`: files store each name once
        added[f"{key}_{name}"] = pandas.Categorical(values) if is_text else values
    with h5py.File(path, "r+") as file:
        add_columns(file["obs"], added)
