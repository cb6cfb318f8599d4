"""Fits a selector to a file in bounded memory, and writes the results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import Label, LabelsLike, Matrix, PathLike
from semfs.attributes import AttributeTable
from semfs.attributes.files import write_table
from semfs.feature_names import resolve_features
from semfs.io.safety import atomic_write
from semfs.labels import Labels
from semfs.rows import BlockSource, in_blocks
from semfs.rows.cluster import on_cluster
from semfs.rows.preprocess import Preprocessing
from semfs.rows.workers import connect
from semfs.select.feature_table import feature_reasons, feature_table
from semfs.select.gaps import gaps_in_words
from semfs.select.outputs import check_outputs
from semfs.select.reduced import write_reduced
from semfs.select.units import filled_with_medians, standardized
from semfs.selectors.explanation import Explanation
from semfs.selectors.rules.feature_values import group_members
from semfs.selectors.semfs import SemFS
from semfs.selectors.training_checks import warn_of_serial
from semfs.system import import_optional
from semfs.validation import check_option

if TYPE_CHECKING:
    import pandas as pd

#: Samples in which serial numbers and times are looked for.
SERIAL_ROWS = 20_000


@dataclass(frozen=True, eq=False)
class FileSelection:
    """The result of `select_features`.

    ``selector`` is the fitted selector. ``features`` is a frame of d rows, indexed by
    ``rank``, with the columns ``feature``, ``score`` (empty for features that could not be
    selected), ``selected``, ``column``, ``group`` (only if there are groups) and ``reason``.
    ``files`` are the paths of the written files, and ``n_rows`` is the number of samples with
    labels of seen classes. ``samples`` is the
    ``source`` without the samples of unseen classes. ``explanation`` is the result of
    `SemFS.explain`.
    """

    selector: SemFS
    features: pd.DataFrame
    files: list[Path]
    n_rows: int
    source: BlockSource
    samples: BlockSource
    explanation: Explanation

    def as_dict(self) -> dict[str, Any]:
        """Return selected features, classes and files as plain Python values."""
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
    """Fit a selector to a file in bounded memory, and write the selected columns.

    Parameters
    ----------
    source : BlockSource
        The opened file (`semfs.rows.open_blocks`).
    selector : SemFS
        The selector to fit, with its class descriptions.
    out : path-like
        If it ends in .csv, .tsv, .parquet, .feather, .npy, .npz, .xlsx or .h5ad, it is a file
        for all samples with the selected features only. The ranked feature table is written
        beside it as ``NAME.features.csv``. A name without an ending is a folder for
        ``features.csv`` and ``reduced``, in the format of the data. An .h5ad file keeps all
        genes, with the columns that `semfs.scverse.select_genes` adds (see `subset`).
    unseen : iterable of class labels, default=()
        Classes whose samples must not be used.
    subset : bool, default=False
        Whether to write only the selected genes into an .h5ad file. If the genes were selected
        in ``raw``, their values become ``X`` of the file.
    scale : bool, default=False
        Whether to divide features by their standard deviation in the labeled samples before the
        selection. Use it if units differ. Features that are constant there are divided by their
        standard deviation in the unlabeled samples. Results are in the units of the source.
    impute : {"median"}, optional
        "median" fills missing values with the median of the feature over at most 20,000 samples
        of the fit. Open the source with ``missing_values="keep"``. They are
        also filled in the written tables. ``SemFS(missing_values="class-mean")`` is an
        alternative.
    scheduler : str, optional
        Address of a Dask cluster, such as ``tcp://host:8786``. Its workers must be able to read
        the file.
    X_unlabeled : array, sparse matrix or BlockSource of shape (n_unlabeled, d), optional
        More unlabeled samples, as in `SemFS.fit`. An array must have the features of the source
        in the same order. In a file, features are found by name (see `open_unlabeled_file`).
    batch_unlabeled : array-like of shape (n_unlabeled,), optional
        Batches of these samples. Needed if the source was opened with a `batch`.
    settings : mapping, optional
        How the source was read (layer, normalization, …). This is stored in ``uns`` of an .h5ad
        file, together with the parameters of the selector.

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
    check_outputs(source, Path(out), subset)
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
    """Write the reduced data and the feature table, and return the paths of both."""
    target, table_path = check_outputs(done.source, Path(out), subset)
    # both files appear when both are complete
    with (
        atomic_write(target) as data_file,
        atomic_write(table_path) as table_file,
    ):
        write_reduced(done.source, done.selector, data_file, subset, settings)
        write_table(done.features, table_file)
    return [target, table_path]


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
    """Fit a selector to a file like `select_features`, but write nothing.

    ``n_bootstraps`` and ``random_state`` are those of `SemFS.explain`.
    """
    # All that can be refused is refused now, not after a long fit.
    pandas = import_optional("pandas", "data", what="The feature table")
    names = source.feature_names
    d = source.n_features
    groups = group_members(selector.groups, d, names)
    for parameter in ("include", "exclude", "candidates"):
        features = getattr(selector, parameter)
        resolve_features(parameter, features, names, d, groups)

    seen = _seen_samples(source, selector, unseen)
    gaps = _gaps(selector, seen, impute)
    if impute is not None:
        check_option("impute", impute, ("median",))
        seen = filled_with_medians(seen)
    if scale:
        with_gaps = selector.missing_values != "error"
        seen = standardized(seen, X_unlabeled, with_gaps=with_gaps)
    factors = seen.preprocessing.scale
    # an array has the units of the source, the fit those of the scaled source
    if factors is not None and X_unlabeled is not None and not in_blocks(X_unlabeled):
        X_unlabeled = Preprocessing(scale=factors).apply(X_unlabeled)
    unlabeled = {"X_unlabeled": X_unlabeled, "batch_unlabeled": batch_unlabeled}
    _fit(selector, seen, unlabeled, scheduler)
    _warn_of_serial_columns(selector, seen)
    _add_gaps(selector, gaps)
    # Explanations need the moments of the fit, so they come before the change of units.
    # Without bootstraps an explanation costs one batch of Gram columns, or nothing.
    explanation = selector.explain(n_bootstraps=n_bootstraps, random_state=random_state)
    reasons = feature_reasons(selector, source, explanation)
    if factors is not None:
        in_units = selector._get_fitted().scaled(factors.astype(np.float64))
        selector._set_fitted(in_units)
        selected = np.asarray(selector.order_)[: len(explanation.means)]
        means = explanation.means.div(factors[selected], axis=0)
        explanation = replace(explanation, means=means)

    assert seen.labels is not None
    return FileSelection(
        selector=selector,
        features=feature_table(selector, source, reasons, pandas),
        files=[],
        n_rows=int((seen.labels.codes >= 0).sum()),
        source=source,
        samples=source.with_labels(seen.labels),
        explanation=explanation,
    )


def _add_gaps(selector: SemFS, gaps: str) -> None:
    """Add a line on missing values to ``knowledge_``, if there is one."""
    if gaps:
        fitted = selector._get_fitted()
        knowledge = {**fitted.knowledge, "missing values": gaps}
        selector._set_fitted(replace(fitted, knowledge=knowledge))


def _gaps(selector: SemFS, seen: BlockSource, impute: str | None) -> str:
    """Return one line on the missing values that are filled, or "" if none are."""
    if impute == "median":
        return gaps_in_words(seen, "the median")
    if selector.missing_values == "class-mean":
        return gaps_in_words(seen, "the mean of the class")
    return ""


def _warn_of_serial_columns(selector: SemFS, seen: BlockSource) -> None:
    """Warn of selected columns of a table that look like serial numbers or times.

    The first samples show it.
    """
    if seen.feature_names is None or seen.reader.of_cells or seen.labels is None:
        return
    selected = np.flatnonzero(selector.get_support())
    parts = []
    n_read = 0
    for block in seen.matrices():
        if not isinstance(block, np.ndarray):
            return
        codes = seen.labels.codes[n_read : n_read + len(block)]
        parts.append(block[:, selected][codes >= 0])
        n_read += len(block)
        if n_read >= SERIAL_ROWS:
            break
    warn_of_serial(np.concatenate(parts), [seen.feature_names[j] for j in selected.tolist()])


def _seen_samples(
    source: BlockSource,
    selector: SemFS,
    unseen: Iterable[Label],
) -> BlockSource:
    """Return the source without samples of unseen classes, with labels as in the attributes.

    For example, a table of classes 3 and 4 also describes classes "3" and "4" of a text file.
    """
    assert source.labels is not None
    labels = source.labels.leave_out(unseen)
    described: list[Label] = []
    if selector.attributes is not None:
        described = AttributeTable.from_any(selector.attributes).classes.tolist()
        labels = labels.align_to(described)
    return source.with_labels(labels.mark_unlabeled(described))


def _fit(
    selector: SemFS,
    seen: BlockSource,
    unlabeled: Mapping[str, Any],
    scheduler: str | None,
) -> None:
    """Fit the selector here or on a Dask cluster. ``unlabeled`` are arguments of `fit`."""
    if scheduler is None:
        selector.fit(seen, **unlabeled)
        return
    with connect(scheduler) as client:
        selector.fit(on_cluster(seen, client), **unlabeled)
