"""Data sets in your own files: tables, AnnData, NPZ."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from semfs._typing import AttributesLike, Label, PathLike
from semfs.attributes import AttributeTable
from semfs.attributes.tables import means_labels_alone
from semfs.datasets.base import ZeroShotDataset
from semfs.io.npz import named, read_npz
from semfs.io.reader import check_matrix
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.rows import open_blocks
from semfs.system import import_optional
from semfs.validation import check_all_finite, warn_user

if TYPE_CHECKING:
    import pandas as pd

#: Class descriptions in a form that `AttributeTable.from_any` reads.
Descriptions: TypeAlias = "AttributesLike | AttributeTable | PathLike"
#: Arrays of an NPZ file that describe its classes.
_CLASS_ARRAYS = ("A", "classes", "unseen", "attribute_names", "attributes")


def load_table(
    path: PathLike,
    label: str | None = None,
    attributes: Descriptions | None = None,
    *,
    layer: str | None = None,
    unseen: Sequence[Label] | npt.NDArray = (),
    drop: Sequence[str] = (),
    normalize: str | None = None,
    impute: bool = False,
    batch: str | None = None,
) -> ZeroShotDataset:
    """Load a data set from a table, an AnnData file or an NPZ file.

    Parameters
    ----------
    path : path-like
        A ``.csv``, ``.tsv``, ``.txt`` (also ``.gz``), ``.xlsx``, ``.parquet``, ``.feather``,
        ``.npz`` (see `load_npz`) or ``.h5ad`` file. Sparse matrices stay sparse.
    label : str, optional
        Name of the column with the class labels. For AnnData, it is a column of ``obs``. For
        NPZ files, the default is the array y. Samples without a label are left out, with a
        warning.
    attributes : path-like, DataFrame or mapping, optional
        Class descriptions, in any form that `semfs.attributes.attributes_of` accepts, such as a
        file, "names" or "cl". With "labels", classes are described by their labels alone. By
        default, the attributes in the NPZ file are used.
    layer : str, optional
        Layer of an AnnData file to use instead of ``X``. ``"raw"`` uses ``raw.X``.
    unseen : array-like of class labels, default=()
        Unseen classes. By default, these are the unseen classes in the NPZ file, if any.
    drop : sequence of str, default=()
        Columns that are not features. Nonnumeric columns are always left out, with a warning.
        An index stored by pandas is also left out.
    normalize : {"log1p"}, optional
        "log1p" replaces stored counts by log(1 + counts per 10⁴ counts of the sample).
    impute : bool, default=False
        Whether to accept missing values, which `ZeroShotDataset.split` replaces by medians.
    batch : str, optional
        Name of the column or array with the batch of each sample. `ZeroShotDataset.split`
        removes the differences between batches.
    """
    # Folders of known formats are read too; `open_blocks` refuses others.
    path = Path(path) if Path(path).is_dir() else open_existing(path)
    # Any: what a source offers is decided by the file
    source: Any = open_blocks(
        path,
        label,
        key=layer,
        drop=drop,
        normalize=normalize,
        batch=batch,
        missing_values="keep" if impute else "error",
    )
    batches = source.batches
    classes = source.labels.classes
    table, stored_unseen = class_descriptions(path, attributes, classes)
    if table is None and attributes is None:
        raise FileError(
            f"{path}: no class descriptions given. Pass attributes: a table in a file, an "
            "ontology file, 'cl' (the Cell Ontology), 'names' (text of the class names) or "
            "'labels' (labels alone); an NPZ file may hold them as array A."
        )
    if table is None:
        table = AttributeTable.from_any("labels", classes).to_frame()
    # Classes that the file names belong to its own labels, not to another column.
    if not len(unseen) and not label:
        unseen = stored_unseen
    # Text files have the label "3" where the table may have the number 3.
    labels = source.labels.align_to(table.index)
    with file_errors(path, "data set"):
        X = source.load()[0]
    labeled = labels.codes >= 0
    if not labeled.all():
        n_unlabeled = int((~labeled).sum())
        warn_user(f"{path}: {n_unlabeled} unlabeled samples were left out.")
        X = X[labeled]
        labels = labels.used()
        batches = None if batches is None else batches.array()[labeled]
    _check_values(X, source.feature_names, path, impute)
    return ZeroShotDataset(
        path.stem,
        X,
        labels.array(),
        table,
        unseen,
        source.feature_names,
        impute=impute,
        batch=batches,
    )


def _check_values(X: Any, names: list[str] | None, path: Path, impute: bool) -> None:
    """Raise if samples X (n, d) have infinity or, unless they are imputed, missing values."""
    values = X.data if sparse.issparse(X) else X
    allowed = np.isnan(values) if impute else False
    if not (np.isfinite(values) | allowed).all():
        check_all_finite(X, names, str(path))


def load_npz(path: PathLike) -> ZeroShotDataset:
    """Load a data set from an ``.npz`` file.

    The file holds these arrays:

    - ``X`` (n, d), or ``X_data``, ``X_indices``, ``X_indptr``, ``X_shape`` (CSR);
    - ``y`` (n,): class names or 0-based class ids;
    - ``A`` (C, m): the attributes of each class;
    - ``classes`` (C,), optional: class names, by default the ids;
    - ``unseen``, optional: ids or names of the unseen classes;
    - ``attribute_names`` or ``attributes`` (m,) and ``feature_names`` (d,), optional: names.

    Other arrays are ignored, and nothing is unpickled. Samples with id -1 are unlabeled and
    left out.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "farm.npz")
    >>> np.savez(path, X=np.eye(3), y=[0, 1, 2], A=[[4], [6], [2]],
    ...          classes=["cat", "ant", "hen"], unseen=[2])
    >>> data = load_npz(path)
    >>> data.unseen.tolist(), data.attributes.loc["ant"].tolist()
    (['hen'], [6.0])
    """
    return load_table(path)


def class_descriptions(
    path: PathLike, attributes: Descriptions | None, classes: Iterable[Label]
) -> tuple[pd.DataFrame | None, list[Label]]:
    """Return descriptions of the classes in a data file, and the unseen classes it names.

    ``attributes`` has any form that `AttributeTable.from_any` accepts. By default the
    descriptions in the NPZ file are used. If only the labels describe the classes (for
    "labels", or without descriptions), None is returned, because that is how `SemFS` is told.
    """
    stored: pd.DataFrame | None = None
    unseen: list[Label] = []
    if str(path).lower().endswith(".npz"):
        stored, unseen = npz_classes(Path(path))
    if attributes is None:
        return stored, unseen
    if means_labels_alone(attributes):
        return None, unseen
    return AttributeTable.from_any(attributes, classes).to_frame(), unseen


def npz_classes(path: Path) -> tuple[pd.DataFrame | None, list[Label]]:
    """Return the attributes of an ``.npz`` file (a frame, or None), and its unseen classes."""
    arrays = read_npz(path, _CLASS_ARRAYS)
    classes = None
    if "classes" in arrays:
        classes = arrays["classes"].reshape(-1).tolist()
    table = None
    if "A" in arrays:
        if classes is None:
            classes = list(range(len(arrays["A"])))
        table = _npz_table(path, arrays, classes)
    ids = arrays.get("unseen", np.zeros(0, dtype=int))
    if ids.ndim > 1 and ids.size > max(ids.shape):
        raise FileError(
            f"{path}: unseen has shape {ids.shape}, but a one-dimensional "
            "list of the unseen classes of one split was expected. For "
            "several splits, write a text file with one line per split "
            "and use `semfs evaluate --unseen-file FILE`."
        )
    unseen = named(f"{path}: unseen", ids, classes)
    return table, unseen.classes


def _npz_table(
    path: Path, arrays: dict[str, npt.NDArray], classes: list[Label]
) -> pd.DataFrame:
    """Return array A (C, m) as a frame indexed by class, with attribute names."""
    A = arrays["A"]
    check_matrix(f"{path}: A", A.shape, A.dtype)
    if len(classes) != len(A):
        raise FileError(
            f"{path}: classes has {len(classes)} names, but the attribute table has {len(A)} "
            "rows. Store one row per class, in the same order."
        )
    names = arrays.get("attribute_names", arrays.get("attributes"))
    if names is not None and names.shape == A.shape[1:]:
        columns = [str(name) for name in names.tolist()]
    else:
        columns = [f"a{j}" for j in range(A.shape[1])]
    pandas = import_optional("pandas", "data", what="A data set")
    return pandas.DataFrame(
        A.astype(np.float64),
        index=classes,
        columns=columns,
    )
