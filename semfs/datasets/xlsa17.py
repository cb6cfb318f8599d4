"""The zero-shot benchmark layout of Xian et al. (2017): ``res101.mat``, ``att_splits.mat``.

Their matrices have one *column* per image or class, and all indices start at 1. Everything
leaves this module with one row per image or class, indices from 0 and names for classes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import read_features
from semfs.datasets.matlab import names_in_mat, read_mat
from semfs.files import FileError, need, open_existing
from semfs.validation import check_distinct, check_option

__all__ = ["Splits", "load_xlsa17", "read_lines", "read_splits"]

_ROWS = ("trainval", "test_seen", "test_unseen", "train", "val")
# Test classes of the standard split where the literature lists them by name: Lampert et al.
# (2009) for the animals; aYahoo for aPY.
_ANIMALS = [
    "chimpanzee", "giant+panda", "leopard", "persian+cat", "pig", "hippopotamus",
    "humpback+whale", "raccoon", "rat", "seal",
]  # fmt: skip
_YAHOO = "donkey monkey goat wolf jetski zebra centaur mug statue building bag carriage"
_STANDARD = {"AWA1": _ANIMALS, "AWA2": _ANIMALS, "APY": _YAHOO.split()}


def load_xlsa17(
    root: Any, name: str, split: str = "proposed", *, table: str = "att", features: Any = None
) -> ZeroShotDataset:
    """Return a data set of the zero-shot benchmark layout.

    Parameters
    ----------
    root : path-like
        Folder that holds the data sets' folders (``xlsa17/data`` as unpacked).
    name : str
        "AWA1", "AWA2", "CUB", "SUN", "APY", "FLO" or another folder of the same layout.
    split : {"proposed", "standard"}, default="proposed"
        "proposed": the classes of ``test_unseen_loc`` are unseen. "standard": the split of
        the older literature, read from ``standard_split/name/att_splits.mat`` near ``root``
        (the benchmark's ``standard_split.zip``) or, for AWA1, AWA2 and APY, known by class
        name.
    table : {"att", "original_att"}, default="att"
        "att" has unit length per class; "original_att" is as published, with -1 for
        values the annotators left open (AWA).
    features : path-like or array of shape (N, d), optional
        Other features than those of ``res101.mat``, one row per image in its order.

    Returns
    -------
    ZeroShotDataset
        All N images in the order of the file, in the file's own precision. ``rows`` has the
        0-based indices of ``trainval``, ``test_seen`` and ``test_unseen``; seen classes
        comprise the rows of the first two, so to keep the test images of seen classes apart
        use ``data.X[data.rows["trainval"]]``.
        Labels are class names; attribute rows keep the order of ``allclasses_names``.
    """
    check_option("split", split, ("proposed", "standard"))
    splits = read_splits(root, name, table)
    X, labels, files = _read_images(splits, features)
    rows = splits.rows if split == "proposed" else _standard_rows(splits, labels)
    _check_rows(f"{splits.folder}, {split} split", rows, labels)
    classes = np.array(splits.classes)
    return ZeroShotDataset(
        splits.folder.name,
        X,
        classes[labels],
        splits.attributes,
        classes[np.unique(labels[rows["test_unseen"]])],
        rows=rows,
        info={"files": files},
    )


@dataclass(frozen=True, eq=False)
class Splits:
    """What ``att_splits.mat`` holds, 0-based and with one row per class."""

    folder: Path
    attributes: Any  # frame (C, m): row r belongs to label r + 1 of res101.mat
    rows: dict[str, np.ndarray]  # image indices of trainval, test_seen, …

    @property
    def classes(self) -> list:
        """Class labels in the order of the file."""
        return list(self.attributes.index)


def read_splits(root: Any, name: str, table: str = "att") -> Splits:
    """Return attribute table and row indices of ``root/name/att_splits.mat``."""
    folder = _folder(Path(root), name)
    path = folder / "att_splits.mat"
    att = _matrix(path, table)
    frame = need("pandas", "data").DataFrame(
        np.ascontiguousarray(att.T, dtype=np.float64),
        index=_class_names(path, att),
        columns=_attribute_names(folder.name, att.shape[0]),
    )
    return Splits(folder, frame, _read_rows(path))


# ---- reading ------------------------------------------------------------------------------


def _folder(root: Path, name: str) -> Path:
    for base in (root.parent, root, root / "data", root / "xlsa17" / "data"):
        for folder in (base / name, base / name.upper()):
            if folder.is_dir() and (base != root.parent or folder == root):
                return folder
    raise FileNotFoundError(
        f"no folder {name!r} in {root}. Expected {root / name / 'att_splits.mat'} and "
        f"{root / name / 'res101.mat'}; run `semfs datasets` for where to get them."
    )


def _variable(path: Path, name: str) -> Any:
    found = read_mat(path, [name])
    if name not in found:
        raise FileError(f"{path} has no {name!r}; found {', '.join(names_in_mat(path))}.")
    return found[name]


def _matrix(path: Path, name: str) -> np.ndarray:
    value = _variable(path, name)
    if not isinstance(value, np.ndarray) or value.ndim != 2:
        raise FileError(f"{path}: {name} must be a matrix of numbers.")
    return value


def _class_names(path: Path, att: np.ndarray) -> list:
    names = read_mat(path, ["allclasses_names"]).get("allclasses_names")
    lines = path.with_name("allclasses.txt")
    if names is None and not lines.exists():
        return list(range(att.shape[1]))  # FLO comes without names
    names = read_lines(lines) if names is None else [str(name).strip() for name in names]
    _check_columns(path, "the attribute matrix", att, len(names), "class names")
    check_distinct(names, f"{path}: class {{}} is named twice in allclasses_names.", FileError)
    return names


def _check_columns(path: Path, what: str, matrix: np.ndarray, n: int, of: str) -> None:
    if matrix.shape[1] != n:
        turned = " It seems transposed." if matrix.shape[0] == n else ""
        raise FileError(
            f"{path}: {what} has shape {matrix.shape}, but there are {n} {of}; one column for "
            f"each was expected.{turned}"
        )


def _attribute_names(name: str, m: int) -> list[str]:
    text = (resources.files("semfs") / "data" / "attribute_names.json").read_text("utf-8")
    known = json.loads(text).get(name.rstrip("12"), [])
    return known if len(known) == m else [f"a{j}" for j in range(m)]


def _read_rows(path: Path) -> dict[str, np.ndarray]:
    found = read_mat(path, [f"{part}_loc" for part in _ROWS])
    return {k.removesuffix("_loc"): _zero_based(path, k, v) for k, v in found.items()}


def _zero_based(path: Path, name: str, value: Any) -> np.ndarray:
    numbers = np.asarray(value).reshape(-1)
    if numbers.dtype.kind not in "fiu" or (numbers != np.floor(numbers)).any():
        raise FileError(f"{path}: {name} must hold whole numbers.")
    if numbers.size and numbers.min() < 1:
        raise FileError(
            f"{path}: {name} holds {numbers.min():g}; numbers start at 1 in this layout."
        )
    return numbers.astype(np.int64) - 1


def _read_images(splits: Splits, features: Any) -> tuple[Any, np.ndarray, list[str] | None]:
    path, n_classes = splits.folder / "res101.mat", len(splits.classes)
    labels = _zero_based(path, "labels", _variable(path, "labels"))
    if labels.size and labels.max() >= n_classes:
        raise FileError(
            f"{path}: labels go up to {labels.max() + 1}, but the attribute matrix has "
            f"{n_classes} columns; one column per class was expected."
        )
    files = read_mat(path, ["image_files"]).get("image_files")
    if files is not None:  # absolute paths of the authors' machine: keep folder and file
        files = ["/".join(str(f).replace("\\", "/").split("/")[-2:]) for f in files]
    if features is not None:
        return read_features(features, len(labels)), labels, files
    X = _matrix(path, "features")
    _check_columns(path, "features", X, len(labels), "labels")
    return X.T, labels, files  # its rows are contiguous: MATLAB stores columns together


def read_lines(path: Any) -> list[str]:
    """Return the non-empty lines of a text file, stripped."""
    lines = open_existing(path).read_text("utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


# ---- splits -------------------------------------------------------------------------------


def _standard_rows(splits: Splits, labels: np.ndarray) -> dict[str, np.ndarray]:
    name = splits.folder.name
    for base in list(splits.folder.parents)[:3]:
        path = base / "standard_split" / name / "att_splits.mat"
        if path.exists():
            return _read_rows(path)
    if name not in _STANDARD:
        raise FileNotFoundError(
            f"the standard split of {name} was not found. Unpack the benchmark's "
            f"standard_split.zip in {splits.folder.parent}."
        )
    unseen = np.isin(np.array(splits.classes)[labels], _STANDARD[name])
    return {"trainval": np.flatnonzero(~unseen), "test_unseen": np.flatnonzero(unseen)}


def _check_rows(where: str, rows: dict[str, np.ndarray], labels: np.ndarray) -> None:
    if "test_unseen" not in rows:
        raise FileError(f"{where}: there is no test_unseen_loc.")
    last = max((index.max() for index in rows.values() if index.size), default=-1)
    if last >= len(labels):
        raise FileError(
            f"{where} names image {last + 1}, but there are only {len(labels)} images. "
            "Features and splits belong to different versions."
        )
    for key in [key for key in ("trainval", "test_seen") if key in rows]:
        mixed = np.intersect1d(labels[rows["test_unseen"]], labels[rows[key]])
        if mixed.size:
            raise FileError(
                f"{where}: class number {mixed[0] + 1} is in {key}_loc and in "
                "test_unseen_loc; unseen classes must not be trained on."
            )
