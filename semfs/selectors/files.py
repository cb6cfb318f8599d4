"""Select features in a file: ranked feature table and reduced data out."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn

from semfs.attributes import as_attribute_table
from semfs.attributes.files import write_table
from semfs.io.safety import atomic_write, check_apart
from semfs.io.write import WRITTEN, feature_names, write_columns, write_h5ad
from semfs.rows import BlockSource
from semfs.rows.cluster import connect, on_cluster
from semfs.system import import_optional
from semfs.validation import feature_indices


@dataclass(frozen=True, eq=False)
class FileSelection:
    """What `select_features` did.

    ``selector`` is fitted, ``features`` a frame (d, 4) of ``feature``, ``score``, ``selected``
    and ``column`` by ``rank``, ``files`` were written, ``n_rows`` had labels of seen classes.
    """

    selector: Any
    features: Any
    files: list[Path]
    n_rows: int

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


def select_features(
    source: BlockSource,
    selector: Any,
    out: Any,
    *,
    unseen: Iterable = (),
    subset: bool = False,
    scale: bool = False,
    scheduler: str | None = None,
) -> FileSelection:
    """Fit a selector to a file, in bounded memory, and write the columns it chooses.

    Parameters
    ----------
    source : BlockSource
        The opened file (`semfs.rows.open_blocks`).
    selector : SemFS
        The selector to fit, with its class descriptions.
    out : path-like
        With one of the endings .csv, .tsv, .parquet, .feather, .npy, .npz or .h5ad: the
        reduced data, all rows of them; the ranked feature table is written beside it as
        ``NAME.features.csv``. Without ending: a folder that gets ``features.csv`` and
        ``reduced`` in the format of the data. An .h5ad file is written whole, with what
        `semfs.scverse.select_genes` adds; see `subset`.
    unseen : iterable of class labels, default=()
        Classes whose rows must not be used.
    subset : bool, default=False
        Write only the chosen genes into an .h5ad file; those of raw become its ``X``.
    scale : bool, default=False
        Choose among columns divided by their standard deviation, as their units differ. What
        is written and returned is in the units of the source.
    scheduler : str, optional
        Address of a Dask cluster, such as ``tcp://host:8786``, whose workers can read the file.

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
    target, table_path = targets(source, Path(out))
    if subset and target.suffix.lower() != ".h5ad":
        raise ValueError(f"subset is for .h5ad files, not for {target}. Leave it out.")
    for parameter in ("include", "exclude"):  # refuse before reading
        wanted = getattr(selector, parameter, None)
        feature_indices(parameter, wanted, source.n_features, source.feature_names)
    labels = source.labels_known().labels
    assert labels is not None
    labels = labels.without(unseen)
    if selector.attributes is not None:
        labels = labels.align_to(as_attribute_table(selector.attributes).classes.tolist())
    seen = source.with_labels(labels)
    seen = seen.standardized() if scale else seen
    if scheduler is None:
        selector.fit(seen)
    else:
        with connect(scheduler) as client:
            selector.fit(on_cluster(seen, client))
    factors = seen.preprocessing.scale
    if factors is not None:  # what holds for the columns as they are
        selector._set_fitted(selector._fitted.scaled(factors))
        selector._training_moments = None
    pandas, order = import_optional("pandas", "data", what="The feature table"), selector.order_
    names = [str(name) for name in feature_names(source)[order]]
    columns: dict[str, Any] = {"feature": names, "score": selector.scores_[order]}
    columns |= {"selected": selector.support_[order], "column": order}
    features = pandas.DataFrame(columns, pandas.RangeIndex(1, len(order) + 1, name="rank"))
    chosen = np.flatnonzero(selector.support_)
    with atomic_write(target) as beside, atomic_write(table_path) as table_beside:
        if target.suffix.lower() == ".h5ad":
            said = result_columns(selector), result_summary(selector)
            write_h5ad(source, beside, *said, chosen if subset else None)
        else:
            write_columns(source, chosen, beside)
        write_table(features, table_beside)
    n_rows = int((labels.codes >= 0).sum())
    return FileSelection(selector, features, [target, table_path], n_rows)


def targets(source: BlockSource, out: Path) -> tuple[Path, Path]:
    """Return where the reduced data and the feature table go: not onto the data."""
    data = source.reader.path
    if not out.suffix or out.is_dir():
        suffix = "" if data is None else data.suffix.lower()
        suffix = suffix if suffix in WRITTEN else ".parquet" if suffix == ".pq" else ".csv"
        target, table = out / f"reduced{suffix}", out / "features.csv"
    elif out.suffix.lower() in WRITTEN:
        target, table = out, out.with_name(f"{out.stem}.features.csv")
    else:
        raise ValueError(f"{out} must end in {', '.join(WRITTEN)}, or nothing: a folder.")
    check_apart((target, table), (data,))
    return target, table


def result_columns(selector: Any, key: str = "semfs") -> dict[str, np.ndarray]:
    """Return what a fitted selector says of each feature, as columns (d,) of AnnData's var."""
    columns = (selector.support_, selector.ranking_, selector.scores_)
    return dict(zip((f"{key}_selected", f"{key}_rank", f"{key}_score"), columns))


def result_summary(selector: Any) -> dict[str, Any]:
    """Return what AnnData's uns tells about a selection: texts, numbers and arrays of them."""
    import semfs

    simple = (bool, int, float, str, np.generic)
    parameters = {
        name: value if isinstance(value, simple) else str(value)
        for name, value in selector.get_params().items()
        if value is not None and name != "attributes" and not hasattr(value, "shape")
    }
    return {
        "params": parameters,
        "classes": np.array([str(c) for c in selector.classes_], dtype=object),
        "attributes": selector.attribute_names_in_.astype(str).astype(object),
        "objective": selector.objective_,
        "versions": {"semfs": semfs.__version__, "scikit-learn": sklearn.__version__},
    }
