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
from semfs.files import FileError, need

__all__ = ["SPLITS_OF", "Xlsa17Splits", "load_xlsa17", "read_xlsa17_splits"]

#: name: images, attributes, seen, unseen classes, rows of trainval, test_seen, test_unseen
SPLITS_OF = {
    "AWA1": (30475, 85, 40, 10, 19832, 4958, 5685),
    "AWA2": (37322, 85, 40, 10, 23527, 5882, 7913),
    "CUB": (11788, 312, 150, 50, 7057, 1764, 2967),
    "SUN": (14340, 102, 645, 72, 10320, 2580, 1440),
    "APY": (15339, 64, 20, 12, 5932, 1483, 7924),
    "FLO": (8189, 1024, 82, 20, 5631, 1403, 1155),
}
_ROWS = ("trainval", "test_seen", "test_unseen", "train", "val")
# Test classes of the standard split where the literature lists them by name: Lampert et al.
# (2009) for the animals; aYahoo for aPY.
_AWA_STANDARD = [
    "chimpanzee",
    "giant+panda",
    "leopard",
    "persian+cat",
    "pig",
    "hippopotamus",
    "humpback+whale",
    "raccoon",
    "rat",
    "seal",
]
_APY_STANDARD = [
    "donkey",
    "monkey",
    "goat",
    "wolf",
    "jetski",
    "zebra",
    "centaur",
    "mug",
    "statue",
    "building",
    "bag",
    "carriage",
]
_STANDARD = {"AWA1": _AWA_STANDARD, "AWA2": _AWA_STANDARD, "APY": _APY_STANDARD}


@dataclass(frozen=True, eq=False)
class Xlsa17Splits:
    """What ``att_splits.mat`` holds, 0-based and with one row per class.

    Attributes
    ----------
    name : str
        Name of the data set.
    folder : Path
        Where it was found.
    attributes : pandas.DataFrame of shape (C, m)
        Rows in the order of ``allclasses_names``: row r belongs to label r + 1 of
        ``res101.mat``.
    rows : dict of str to ndarray
        Image indices of ``trainval``, ``test_seen``, ``test_unseen`` and, if there,
        ``train`` and ``val``.
    """

    name: str
    folder: Path
    attributes: Any
    rows: dict[str, np.ndarray]

    @property
    def classes(self) -> list:
        """Class labels in the order of the file."""
        return list(self.attributes.index)


def read_xlsa17_splits(
    root: Any, name: str, *, table: str = "att", splits_file: str = "att_splits.mat"
) -> Xlsa17Splits:
    """Return attribute table and row indices of ``root/name/att_splits.mat``.

    Parameters
    ----------
    root : path-like
        Folder that holds the data sets' folders (``xlsa17/data`` as unpacked).
    name : str
        "AWA1", "AWA2", "CUB", "SUN", "APY", "FLO" or another folder of the same layout.
    table : {"att", "original_att"}, default="att"
        "att" has unit length per class; "original_att" is as published, with -1 for
        values the annotators left open (AWA).
    splits_file : str, default="att_splits.mat"
        Some copies of CUB have sentence embeddings in a file ``sent_splits.mat``.

    Returns
    -------
    Xlsa17Splits
        Names for classes, and for attributes where they are published.
    """
    folder = _folder(root, name)
    path = folder / splits_file
    found = read_mat(path, [table, "allclasses_names", *(f"{part}_loc" for part in _ROWS)])
    if table not in found:
        raise FileError(
            f"{path} has no matrix {table!r} (attributes × classes); found "
            f"{', '.join(names_in_mat(path))}."
        )
    att = _numbers(path, table, found[table])
    classes = _class_names(path, folder, found.get("allclasses_names"), att)
    pandas = need("pandas", "data")
    frame = pandas.DataFrame(
        np.ascontiguousarray(att.T, dtype=np.float64),
        index=classes,
        columns=_attribute_names(folder.name, att.shape[0]),
    )
    rows = {
        part: _zero_based(path, f"{part}_loc", found[f"{part}_loc"])
        for part in _ROWS
        if f"{part}_loc" in found
    }
    return Xlsa17Splits(folder.name, folder, frame, rows)


def load_xlsa17(
    root: Any,
    name: str,
    split: str = "proposed",
    *,
    fold: int | None = None,
    table: str = "att",
    features: Any = None,
    features_file: str = "res101.mat",
    splits_file: str = "att_splits.mat",
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
        the older literature, read from a folder ``standard_split/name`` near ``root`` (as
        unpacked from the benchmark's ``standard_split.zip``) or, for AWA1, AWA2 and APY,
        known by class name.
    fold : {1, 2, 3}, optional
        Return a class-wise validation split of the seen part instead: only rows of
        ``train_loc`` and ``val_loc``, validation classes unseen. If these are missing, or
        for folds 2 and 3, they follow from ``trainclasses{fold}.txt`` and
        ``valclasses{fold}.txt`` within ``trainval_loc``.
    table, splits_file
        See `read_xlsa17_splits`.
    features : path-like or array of shape (N, d), optional
        Other features than those of ``features_file``, one row per image in its order.
    features_file : str, default="res101.mat"
        File with ``features`` (d × N) and ``labels`` (N, 1-based).

    Returns
    -------
    ZeroShotDataset
        All N images in the order of the file, in the file's own precision (or those of a
        fold). ``rows`` has the 0-based indices of ``trainval``, ``test_seen`` and
        ``test_unseen``; seen classes comprise the rows of the first two, so to keep the
        test images of seen classes apart use ``data.X[data.rows["trainval"]]``.
        Labels are class names; attribute rows keep the order of ``allclasses_names``.
    """
    if split not in ("proposed", "standard"):
        raise ValueError(f"split must be 'proposed' or 'standard', got {split!r}.")
    parts = read_xlsa17_splits(root, name, table=table, splits_file=splits_file)
    path = parts.folder / features_file
    X, labels, files = _read_images(path, len(parts.classes), features)
    rows, unseen = _choose_split(parts, split, labels)
    _check_rows(parts.folder / splits_file, rows, labels)
    names = np.array(parts.classes)
    data = ZeroShotDataset(
        parts.name,
        X,
        names[labels],
        parts.attributes,
        names[unseen],
        rows=rows,
        info={"files": files, "split": split, "layout": "xlsa17"},
    )
    return data if fold is None else _validation_fold(data, parts, fold)


# ---- reading ------------------------------------------------------------------------------


def _folder(root: Any, name: str) -> Path:
    root = Path(root)
    names = dict.fromkeys([name, name.upper()])
    tried = [
        base / n for base in (root, root / "data", root / "xlsa17" / "data") for n in names
    ]
    if root.name in names:
        tried.insert(0, root)
    for folder in tried:
        if folder.is_dir():
            return folder
    raise FileNotFoundError(
        f"no folder {name!r} in {root}. Expected {root / name / 'att_splits.mat'} and "
        f"{root / name / 'res101.mat'}; run `semfs datasets` for where to get them."
    )


def _numbers(path: Path, name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.ndim != 2 or value.dtype.kind not in "fiub":
        raise FileError(f"{path}: {name} must be a matrix of numbers.")
    return value


def _class_names(path: Path, folder: Path, names: Any, att: np.ndarray) -> list:
    if names is None and (folder / "allclasses.txt").exists():
        names = read_lines(folder / "allclasses.txt")
    if names is None:
        return list(range(att.shape[1]))  # FLO comes without names
    names = [str(name).strip() for name in names]
    if len(names) != att.shape[1]:
        turned = " It seems transposed." if len(names) == att.shape[0] else ""
        raise FileError(
            f"{path}: the attribute matrix has shape {att.shape}, but there are {len(names)} "
            f"class names; attributes × classes was expected.{turned}"
        )
    repeated = [n for n in dict.fromkeys(names) if names.count(n) > 1]
    if repeated:
        raise FileError(f"{path}: class {repeated[0]!r} is named twice in allclasses_names.")
    return names


def _attribute_names(name: str, m: int) -> list[str]:
    text = (resources.files("semfs") / "data" / "attribute_names.json").read_text("utf-8")
    known = json.loads(text).get(name.rstrip("12"), [])
    return known if len(known) == m else [f"a{j}" for j in range(m)]


def _zero_based(path: Path, name: str, value: Any) -> np.ndarray:
    if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiu":
        raise FileError(f"{path}: {name} must hold image numbers.")
    index = value.reshape(-1).astype(np.int64)
    if (index != value.reshape(-1)).any():
        raise FileError(f"{path}: {name} must hold whole numbers.")
    if index.size and index.min() < 1:
        raise FileError(
            f"{path}: {name} holds {index.min()}; image numbers start at 1 in this layout."
        )
    return index - 1


def _read_images(
    path: Path, n_classes: int, features: Any
) -> tuple[Any, np.ndarray, list[str] | None]:
    names = ["labels", "image_files"] + (["features"] if features is None else [])
    found = read_mat(path, names)
    missing = [key for key in ("labels", "features") if key in names and key not in found]
    if missing:
        raise FileError(f"{path} has no {missing[0]!r}; found {', '.join(names_in_mat(path))}.")
    labels = _zero_based(path, "labels", found["labels"])
    if labels.size and labels.max() >= n_classes:
        raise FileError(
            f"{path}: labels go up to {labels.max() + 1}, but the attribute matrix has "
            f"{n_classes} columns; attributes × classes was expected."
        )
    files = found.get("image_files")
    if files is not None:  # absolute paths of the authors' machine: keep folder and file
        files = ["/".join(str(f).replace("\\", "/").split("/")[-2:]) for f in files]
    if features is not None:
        return read_features(features, len(labels)), labels, files
    return _turned(path, found["features"], len(labels)), labels, files


def _turned(path: Path, features: Any, n_images: int) -> np.ndarray:
    X = _numbers(path, "features", features)
    if X.shape[1] != n_images:
        turned = " It seems transposed." if X.shape[0] == n_images else ""
        raise FileError(
            f"{path}: features has shape {X.shape}, but there are {n_images} labels; "
            f"features × images was expected.{turned}"
        )
    return X.T  # a view whose rows are contiguous: MATLAB stores columns together


def read_lines(path: Path) -> list[str]:
    """Return the non-empty lines of a text file, stripped."""
    lines = path.read_text("utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


# ---- splits -------------------------------------------------------------------------------


def _choose_split(
    parts: Xlsa17Splits, split: str, labels: np.ndarray
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Named rows, and the codes of the unseen classes."""
    if split == "proposed":
        if "test_unseen" not in parts.rows:
            raise FileError(f"{parts.folder}: the splits file has no test_unseen_loc.")
        return parts.rows, _codes_of(parts, "test_unseen", labels)
    folder = _standard_folder(parts)
    if folder is not None and (folder / "att_splits.mat").exists():
        path = folder / "att_splits.mat"
        found = read_mat(path, ["trainval_loc", "test_unseen_loc"])
        rows = {k.removesuffix("_loc"): _zero_based(path, k, v) for k, v in found.items()}
        if "test_unseen" not in rows:
            raise FileError(f"{path} has no test_unseen_loc.")
        return rows, np.unique(labels[_inside(path, rows["test_unseen"], len(labels))])
    if folder is not None and (folder / "testclasses.txt").exists():
        names = read_lines(folder / "testclasses.txt")
    else:
        names = _STANDARD.get(parts.name, [])
    unseen = _positions(parts, names)
    if not len(unseen):
        raise FileNotFoundError(
            f"the standard split of {parts.name} was not found. Unpack the benchmark's "
            f"standard_split.zip so that {parts.folder.parent / 'standard_split' / parts.name}"
            " holds att_splits.mat or testclasses.txt."
        )
    is_unseen = np.isin(labels, unseen)
    rows = {"trainval": np.flatnonzero(~is_unseen), "test_unseen": np.flatnonzero(is_unseen)}
    return rows, unseen


def _standard_folder(parts: Xlsa17Splits) -> Path | None:
    for base in list(parts.folder.parents)[:3]:
        for folder in (base / "standard_split", base / "standard_split" / "data"):
            if (folder / parts.name).is_dir():
                return folder / parts.name
    return None


def _codes_of(parts: Xlsa17Splits, key: str, labels: np.ndarray) -> np.ndarray:
    return np.unique(labels[_inside(parts.folder, parts.rows[key], len(labels))])


def _inside(path: Path, rows: np.ndarray, n_images: int) -> np.ndarray:
    if rows.size and rows.max() >= n_images:
        raise FileError(
            f"{path}: the split names image {rows.max() + 1}, but there are only {n_images} "
            "images. Features and splits belong to different versions."
        )
    return rows


def _positions(parts: Xlsa17Splits, names: list[str]) -> np.ndarray:
    position = {str(label): i for i, label in enumerate(parts.classes)}
    unknown = [n for n in names if n not in position]
    if unknown:
        raise FileError(f"{parts.folder}: class list names {unknown[0]!r}, which is no class.")
    return np.array([position[n] for n in names], dtype=np.intp)


def _check_rows(path: Path, rows: dict[str, np.ndarray], labels: np.ndarray) -> None:
    for index in rows.values():
        _inside(path, index, len(labels))
    unseen = set(labels[rows["test_unseen"]].tolist())
    for key in ("trainval", "test_seen"):
        mixed = unseen & set(labels[rows.get(key, np.zeros(0, int))].tolist())
        if mixed:
            raise FileError(
                f"{path}: class number {min(mixed) + 1} is in {key}_loc and in "
                "test_unseen_loc; unseen classes must not be trained on."
            )


def _validation_fold(data: ZeroShotDataset, parts: Xlsa17Splits, fold: int) -> ZeroShotDataset:
    if fold not in (1, 2, 3):
        raise ValueError(f"fold must be 1, 2 or 3, got {fold!r}.")
    if fold == 1 and {"train", "val"} <= set(data.rows):
        train, val = data.rows["train"], data.rows["val"]
    else:
        lists = (f"trainclasses{fold}.txt", f"valclasses{fold}.txt")
        train, val = (_rows_of_list(data, parts, filename) for filename in lists)
    shared = set(data.y[train]) & set(data.y[val])
    if shared:
        raise FileError(
            f"{parts.folder}: class {min(shared)!r} is in the training and in the validation "
            f"part of fold {fold}; a validation fold leaves out whole classes."
        )
    kept = np.concatenate([train, val])
    return ZeroShotDataset(
        f"{data.name} fold {fold}",
        data.X[kept],
        data.y[kept],
        data.attributes,
        np.unique(data.y[val]),
        data.feature_names,
        rows={"train": np.arange(len(train)), "val": np.arange(len(train), len(kept))},
        info={**data.info, "image_rows": kept, "fold": fold},
    )


def _rows_of_list(data: ZeroShotDataset, parts: Xlsa17Splits, filename: str) -> np.ndarray:
    path = parts.folder / filename
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist; a validation fold needs it.")
    wanted = np.array(parts.classes)[_positions(parts, read_lines(path))]
    trainval = data.rows["trainval"]
    return trainval[np.isin(data.y[trainval], wanted)]
