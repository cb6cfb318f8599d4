"""Data sets in the layout of the zero-shot benchmark xlsa17 (Xian et al. 2017).

In its files, matrices have one *column* per image or class, and indices start at 1. This module
returns one row per image or class, indices from 0, and class names.
"""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semfs._typing import PathLike
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import STANDARD
from semfs.datasets.matrices import check_columns
from semfs.io.mat import names_in_mat, read_mat
from semfs.io.safety import FileError
from semfs.system import import_optional
from semfs.validation import check_option

if TYPE_CHECKING:
    import pandas as pd

#: Groups of images that ``att_splits.mat`` may have; the file calls them ``trainval_loc``, ….
_GROUPS = ("trainval", "test_seen", "test_unseen", "train", "val")

Rows = dict[str, npt.NDArray[np.int64]]


def load_xlsa17(
    root: PathLike, name: str, split: str = "proposed", *, table: str = "att"
) -> ZeroShotDataset:
    """Load a data set in the layout of the zero-shot benchmark xlsa17.

    All images are loaded in the order and precision of the file. Labels are class names, and
    attribute rows are in the order of ``allclasses_names``. ``info`` holds the 0-based row
    numbers of ``trainval``, ``test_seen`` and ``test_unseen``. To leave out the test images of
    seen classes, use ``data.X[data.info["trainval"]]``.

    Parameters
    ----------
    root : path-like
        Folder that contains one folder per data set (``xlsa17/data`` after unpacking).
    name : str
        "AWA1", "AWA2", "CUB", "SUN", "APY", "FLO" or another folder with the same layout.
    split : {"proposed", "standard"}, default="proposed"
        Which classes are unseen. "proposed" uses the classes of ``test_unseen_loc``. "standard"
        uses the unseen classes of the older literature, and is available for AWA1, AWA2 and
        APY.
    table : {"att", "original_att"}, default="att"
        The attribute table. In "att", the attributes of each class have unit length.
        "original_att" is the published table, in which -1 marks values that the annotators did
        not give (AWA).
    """
    check_option("split", split, ("proposed", "standard"))
    splits_path, attributes, rows = read_splits(root, name, table)
    folder = splits_path.parent.name
    classes = np.array(attributes.index)
    X, labels = _read_images(splits_path.with_name("res101.mat"), len(classes))
    if split == "standard" and folder not in STANDARD:
        raise ValueError(
            f"the standard split is known only for {', '.join(STANDARD)}, "
            f"not for {folder}. Load the proposed split and change it "
            "with data.with_unseen([...])."
        )
    last = max((index.max() for index in rows.values() if index.size), default=-1)
    if last >= len(labels):
        raise FileError(
            f"{splits_path} names image {last + 1}, but there are only {len(labels)} images. "
            "Features and splits belong to different versions."
        )
    y = classes[labels]
    if split == "standard":
        unseen = [label for label in STANDARD[folder] if label in y]
        return ZeroShotDataset(folder, X, y, attributes, unseen)
    proposed = classes[np.unique(labels[rows["test_unseen"]])]
    return ZeroShotDataset(folder, X, y, attributes, proposed, info=rows)


def _read_images(path: Path, n_classes: int) -> tuple[npt.NDArray, npt.NDArray[np.int64]]:
    """Return the features (n, d) and the 0-based class (n,) of each image."""
    features = read_mat(path, "features")
    labels = _read_zero_based(path, "labels")
    check_columns(path, "features", features, len(labels), "labels")
    highest = labels.max(initial=-1) + 1
    if highest > n_classes:
        raise FileError(
            f"{path}: labels go up to {highest}, but the attribute matrix "
            f"has {n_classes} columns. One column per class was expected."
        )
    # MATLAB stores columns together, so that the rows of the transposed matrix are contiguous.
    return features.T, labels


def read_splits(
    root: PathLike, name: str, table: str = "att"
) -> tuple[Path, pd.DataFrame, Rows]:
    """Return the path of ``att_splits.mat``, its attributes (C, m) and its row groups."""
    path = _find_folder(root, name) / "att_splits.mat"
    att = read_mat(path, table)  # (m, C)
    stored = names_in_mat(path)
    if "allclasses_names" in stored:
        classes = [text.strip() for text in read_mat(path, "allclasses_names", list)]
        check_columns(path, "the attribute matrix", att, len(classes), "class names")
    else:  # FLO comes without names
        classes = list(range(att.shape[1]))
    A = np.ascontiguousarray(att.T, dtype=np.float64)
    names = _attribute_names(path.parent.name, len(att))
    frame = import_optional("pandas", "data").DataFrame(A, classes, names)
    rows = {}
    for group in _GROUPS:
        variable = f"{group}_loc"
        if variable in stored or group == "test_unseen":  # without which there is no split
            rows[group] = _read_zero_based(path, variable)
    return path, frame, rows


def _find_folder(root: PathLike, name: str) -> Path:
    """Return the folder of a data set, in the root or inside the unpacked archive."""
    places = [Path(root) / name, Path(root) / "data" / name, Path(root) / "xlsa17/data" / name]
    for place in places:
        if place.is_dir():
            return place
    raise FileNotFoundError(
        f"no folder {name!r} in {root}. Expected "
        f"{places[0] / 'att_splits.mat'} and {places[0] / 'res101.mat'}. "
        "Run `semfs datasets` to see where to get them."
    )


def _attribute_names(folder: str, n_attributes: int) -> list[str]:
    """Return the published names of the attributes, or a0, a1, … if their number differs."""
    text = (resources.files("semfs") / "data" / "attribute_names.json").read_text("utf-8")
    published = json.loads(text)
    names = published.get(folder.rstrip("12"), [])  # AWA1 and AWA2 have the same
    if len(names) != n_attributes:
        return [f"a{j}" for j in range(n_attributes)]
    return names


def _read_zero_based(path: Path, name: str) -> npt.NDArray[np.int64]:
    """Return a variable of 1-based indices as indices from 0."""
    numbers = read_mat(path, name).reshape(-1)
    wrong = numbers[(numbers != np.floor(numbers)) | (numbers < 1)]
    if wrong.size:
        raise FileError(
            f"{path}: {name} holds {wrong[0]:g}, but whole numbers starting at 1 were expected."
        )
    return numbers.astype(np.int64) - 1
