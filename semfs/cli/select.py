"""Select features in a data file: file in, ranked feature table and reduced data out."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes.files import import_pandas, write_table
from semfs.datasets.h5ad import annotate_h5ad
from semfs.datasets.reduced import REDUCED_SUFFIXES, write_reduced
from semfs.datasets.sources import Source, open_source
from semfs.datasets.tables import as_frame
from semfs.rows import BlockSource
from semfs.rows.readers import Reader
from semfs.rows.tables import ParquetReader
from semfs.selectors.persistence import save as save_selector
from semfs.selectors.semfs import SemFS
from semfs.validation import label_array

__all__ = ["FileSelection", "select_file"]


@dataclass(frozen=True, eq=False)
class FileSelection:
    """What `select_file` did.

    Attributes
    ----------
    selector : SemFS
        The fitted selector.
    features : DataFrame of shape (d, 5)
        ``rank``, ``feature``, ``score``, ``selected``, ``column``; best first.
    files : list of Path
        Files written.
    n_rows : int
        Number of rows used: labelled, and not of an unseen class.
    notes : list of str
        What the user should know about the reading.
    """

    selector: SemFS
    features: Any
    files: list[Path]
    n_rows: int
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        """Return the selection as plain values: chosen features, classes and files."""
        chosen = self.features[self.features["selected"]].reset_index()
        return {
            "selected": chosen.drop(columns="selected").to_dict(orient="records"),
            "n_features": len(self.features),
            "n_rows": self.n_rows,
            "classes": [str(label) for label in self.selector.classes_],
            "files": [str(path) for path in self.files],
        }


def select_file(
    data: Any,
    out: Any,
    *,
    label: str | None = None,
    attributes: Any = None,
    n_features_to_select: int = 50,
    unseen: Sequence = (),
    drop: Sequence[str] = (),
    layer: str | None = None,
    include: Sequence = (),
    exclude: Sequence = (),
    subset: bool = False,
    resume: bool = False,
    scheduler: str | None = None,
    save: Any = None,
    **parameters: Any,
) -> FileSelection:
    """Select features in a CSV, Parquet, NPY, NPZ or H5AD file, in bounded memory.

    Parameters
    ----------
    data : path-like
        The data file.
    out : path-like
        With one of the endings .csv, .tsv, .parquet, .npy, .npz or .h5ad: the reduced data;
        the ranked feature table is written beside it as ``NAME.features.csv``. Without
        ending: a folder that gets ``features.csv`` and ``reduced`` in the format of the
        data. An .h5ad file is written whole, with ``var["semfs_selected"]``,
        ``var["semfs_rank"]``, ``var["semfs_score"]`` and ``uns["semfs"]`` (see `subset`).
    label : str
        Label column (tables), column of ``obs`` (H5AD), array (NPZ, default ``y``), or the
        path of a file with one label per row (NPY). Rows without a label are not used for
        the selection but are in the reduced data.
    attributes : path-like, DataFrame or mapping
        Class descriptions; of an NPZ file its ``A`` by default. "labels" chooses by the class
        labels instead.
    n_features_to_select : int, default=50
        Number of features to keep.
    unseen : sequence of class labels, default=()
        Classes whose rows must not be used; those an NPZ file names are added.
    drop : sequence of str, default=()
        Columns of a table that are no features.
    layer : str, optional
        Layer of an H5AD file.
    include, exclude : sequence of str or int, default=()
        Features that are chosen first, or never; by name or position.
    subset : bool, default=False
        Write only the chosen genes into an .h5ad file.
    resume : bool, default=False
        Continue a selection that was killed while it read the data. Its state is beside the
        output, as ``NAME.partial``, until the selection is done.
    scheduler : str, optional
        Address of a Dask cluster, such as ``tcp://host:8786``, whose workers can read the data
        under the same path.
    save : path-like, optional
        Where to keep the fitted selector, for `semfs.load`.
    **parameters
        Further parameters of `SemFS`, such as ``alpha`` or ``gamma``.

    Returns
    -------
    FileSelection
        Data up to 256 MB are fitted in memory, exactly as ``SemFS.fit`` does; larger ones
        are read in blocks, several times, and never held whole.
    """
    target, table_path = _targets(Path(data), Path(out))
    with open_source(data, label, drop=drop, layer=layer) as source:
        selector = SemFS(
            n_features_to_select,
            include=_positions("include", include, source) or None,
            exclude=_positions("exclude", exclude, source) or None,
            **parameters,
        )
        fitting = Fitting(target.with_name(f"{target.name}.partial"), resume, scheduler)
        n_rows = _fit(selector, source, attributes, unseen, fitting)
        features = _feature_table(selector, source.feature_names)
        selected = np.flatnonzero(selector.support_)
        with _appearing(target, table_path) as (beside, table_beside):
            if target.suffix.lower() == ".h5ad" and not subset:
                annotate_h5ad(source.path, beside, _columns(selector), _summary(selector))
            else:
                write_reduced(source, selected, beside, label)
            write_table(features, table_beside)
        files = [target, table_path]
        if save is not None:
            files.append(_saved(selector, source, save))
        return FileSelection(selector, features, files, n_rows, source.notes)


def _saved(selector: SemFS, source: Source, path: Any) -> Path:
    """Keep the selector with the names of the file, which it never saw."""
    names = np.array([str(name) for name in source.feature_names], dtype=object)
    if not all(name == f"x{j}" for j, name in enumerate(names)):
        selector.feature_names_in_ = names
    return save_selector(selector, path)


def _targets(data: Path, out: Path) -> tuple[Path, Path]:
    """Where the reduced data and the feature table go."""
    if not out.suffix or out.is_dir():
        out.mkdir(parents=True, exist_ok=True)
        suffix = ".csv" if data.suffix.lower() == ".txt" else data.suffix.lower()
        return out / f"reduced{suffix}", out / "features.csv"
    if out.suffix.lower() not in REDUCED_SUFFIXES:
        raise ValueError(
            f"{out}: reduced data are written as {', '.join(REDUCED_SUFFIXES)}; a name without "
            "ending makes a folder."
        )
    same = out.exists() and data.exists() and out.samefile(data)
    if same and data.suffix.lower() != ".h5ad":
        raise ValueError(f"{out} is the data file itself. Choose another name for the output.")
    out.parent.mkdir(parents=True, exist_ok=True)
    return out, out.with_name(f"{out.stem}.features.csv")


@contextlib.contextmanager
def _appearing(*targets: Path) -> Iterator[list[Path]]:
    """Names beside the targets; all files are renamed at the end, or none."""
    beside = [t.with_name(f".{os.getpid()}.{t.name}") for t in targets]
    try:
        yield beside
        for temporary, target in zip(beside, targets):
            temporary.replace(target)
    finally:
        for temporary in beside:
            temporary.unlink(missing_ok=True)


def _positions(parameter: str, features: Sequence, source: Source) -> list[int]:
    """Features by position; SemFS never sees the names when it reads from disk."""
    position = {str(name): j for j, name in enumerate(source.feature_names)}
    found = []
    for feature in features:
        if isinstance(feature, str) and feature not in position:
            import difflib

            near = difflib.get_close_matches(feature, position, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else "."
            raise ValueError(f"{parameter}: {source.path} has no feature {feature!r}{hint}")
        found.append(position[feature] if isinstance(feature, str) else int(feature))
    return found


@dataclass(frozen=True)
class Fitting:
    """Where the state of a fit is kept, whether to continue it, and which cluster to use."""

    checkpoint: Path
    resume: bool = False
    scheduler: str | None = None


def _fit(
    selector: SemFS, source: Source, attributes: Any, unseen: Sequence, fitting: Fitting
) -> int:
    """Fit on the labelled rows of seen classes; returns their number."""
    named = isinstance(attributes, (str, Path)) and str(attributes) == "labels"
    by_labels = named and not Path("labels").exists()
    if attributes is None and source.attributes is None:
        raise ValueError(
            f"{source.path} has no class attributes. Give a table (--attributes TABLE), or "
            "choose by the class labels (--attributes labels)."
        )
    hidden = {str(item) for item in (*unseen, *source.unseen)}
    unknown = hidden - {str(label) for label in source.labels.categories}
    if unknown:
        raise ValueError(f"unseen class {min(unknown)!r} does not occur in {source.path}.")
    labels, frame = source.labels.without(hidden), None
    if not by_labels:
        frame = source.attributes if attributes is None else as_frame(attributes)
        labels = labels.matched(frame.index)
    used = labels.present
    if not used.any():
        raise ValueError(f"{source.path} has no labelled row of a seen class.")
    selector.set_params(attributes=frame)
    if not source.on_disk:
        X = source.matrix if used.all() else source.matrix[used]
        _fit_loaded(selector, X, labels.values(), fitting)
    else:
        values = label_array(labels.categories)[np.maximum(labels.codes, 0)]
        weights = None if used.all() else used.astype(np.float64)
        _fit_on_disk(selector, BlockSource(_reader(source, fitting), values, weights), fitting)
    return int(used.sum())


def _fit_loaded(selector: SemFS, X: Any, y: Any, fitting: Fitting) -> None:
    if fitting.scheduler is None:
        selector.fit(X, y)
        return
    from semfs.rows.cluster import connect, sent

    with connect(fitting.scheduler) as client:
        selector.fit(sent(X, y, client))


def _fit_on_disk(selector: SemFS, source: BlockSource, fitting: Fitting) -> None:
    """Read in blocks, keeping the state of each pass; or leave it to a cluster."""
    if fitting.scheduler is None:
        if not fitting.resume:
            shutil.rmtree(fitting.checkpoint, ignore_errors=True)
        selector.fit(replace(source, passes="few", checkpoint=fitting.checkpoint))
        return
    from semfs.rows.cluster import connect, on_cluster

    with connect(fitting.scheduler) as client:
        selector.fit(on_cluster(source, client))


def _reader(source: Source, fitting: Fitting) -> Reader:
    """Blocks of rows. Other machines of a cluster cannot see temporary files."""
    reader = source.matrix
    if fitting.scheduler is None or getattr(reader, "origin", None) is None:
        return reader
    suffix = source.path.suffix.lower()
    if suffix in (".parquet", ".pq"):
        return ParquetReader(source.path, None, [str(name) for name in source.feature_names])
    raise ValueError(
        f"{source.path}: a cluster cannot read {suffix} in parts. Convert it to Parquet or "
        ".npy."
    )


def _feature_table(selector: SemFS, names: np.ndarray) -> Any:
    order = selector.order_
    columns = {
        "rank": np.arange(1, len(order) + 1),
        "feature": [str(name) for name in names[order]],
        "score": selector.scores_[order],
        "selected": selector.support_[order],
        "column": order,
    }
    return import_pandas().DataFrame(columns).set_index("rank")


def _columns(selector: SemFS) -> dict[str, np.ndarray]:
    return {
        "semfs_selected": selector.support_,
        "semfs_rank": selector.ranking_,
        "semfs_score": selector.scores_,
    }


def _summary(selector: SemFS) -> dict[str, Any]:
    """What ``uns["semfs"]`` tells about a selection."""
    import sklearn

    import semfs

    left_out = ("attributes", "s_init")
    parameters = {k: v for k, v in selector.get_params().items() if k not in left_out}
    return {
        "params": json.dumps(parameters, default=str),
        "n_features_to_select": int(selector.n_features_to_select),
        "classes": [str(c) for c in selector.classes_],
        "attributes": [str(a) for a in selector.attribute_names_in_],
        "semfs_version": semfs.__version__,
        "sklearn_version": sklearn.__version__,
    }
