"""The paper's image data sets in the files that their authors published: SUN and aPY."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from semfs._typing import Matrix, PathLike
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import UNSEEN
from semfs.datasets.matrices import features_or_none
from semfs.io.mat import read_mat
from semfs.io.safety import FileError, open_existing
from semfs.system import import_optional

_APY_FILES = ("apascal_train", "apascal_test", "ayahoo_test")
#: Words of a line of aPY before the attributes: image, class, four numbers of the box.
_APY_WORDS = 6


def load_sun(root: PathLike, features: PathLike | Matrix | None = None) -> ZeroShotDataset:
    """Load the SUN scenes with 717 classes (707 seen, 10 unseen) and 102 attributes.

    Samples are in the order of ``images.mat``, and attributes are mean votes. Class names are
    the sorted folder names with ``_`` instead of ``/``, so the table equals ``original_att`` of
    xlsa17.

    Parameters
    ----------
    root : path-like
        Folder with ``images.mat``, ``attributes.mat`` and
        ``attributeLabels_continuous.mat`` of the SUNAttributeDB release.
    features : path-like or array of shape (14340, d), optional
        Features with one row per image (see `read_features`). If no features are given, X has
        no columns.
    """
    folder = Path(root)
    images = read_mat(folder / "images.mat", "images", list)
    names = read_mat(folder / "attributes.mat", "attributes", list)
    path = folder / "attributeLabels_continuous.mat"
    votes = read_mat(path, "labels_cv")
    expected = (len(images), len(names))
    if votes.shape != expected:
        raise FileError(f"{path}: labels_cv has shape {votes.shape}, not {expected}.")
    # a/airport/terminal/sun_1.jpg is of the class airport_terminal
    classes = np.array(["_".join(image.strip("/").split("/")[1:-1]) for image in images])
    pandas = import_optional("pandas", "data")
    frame = pandas.DataFrame(votes, columns=[name.strip() for name in names])
    table = frame.groupby(classes).mean()
    unseen = [label for label in UNSEEN["scenes"] if label in table.index]
    X = features_or_none(features, len(images))
    return ZeroShotDataset("SUN", X, classes, table, unseen)


def load_apy(root: PathLike, features: PathLike | Matrix | None = None) -> ZeroShotDataset:
    """Load aPascal (20 seen classes) and aYahoo (12 unseen classes), with 64 attributes.

    The attributes of a class are means over its objects. ``info`` holds the row numbers of
    ``"apascal_train"``, ``"apascal_test"`` and ``"ayahoo_test"``.

    Parameters
    ----------
    root : path-like
        Folder with ``apascal_train.txt``, ``apascal_test.txt``, ``ayahoo_test.txt``,
        ``attribute_names.txt`` and ``class_names.txt``. Each line of the first three files
        describes one object by its file, class, bounding box and 64 bits.
    features : path-like or array of shape (15339, d), optional
        Features with one row per object (see `read_features`). If no features are given, X has
        no columns.
    """
    folder = Path(root)
    names = _read_lines(folder / "attribute_names.txt")
    order = _read_lines(folder / "class_names.txt")
    objects: list[list[str]] = []
    rows = {}
    for file_name in _APY_FILES:
        found = _read_objects(folder / f"{file_name}.txt", len(names))
        rows[file_name] = np.arange(len(objects), len(objects) + len(found))
        objects += found
    classes = np.array([words[1] for words in objects])
    if sorted(order) != sorted(set(classes.tolist())):
        raise FileError(f"{folder}: class_names.txt must name the classes of the annotations.")
    bits = np.array([words[_APY_WORDS:] for words in objects], dtype=np.float64)
    pandas = import_optional("pandas", "data")
    table = pandas.DataFrame(bits, columns=names).groupby(classes).mean()
    unseen = [label for label in order if label in classes[rows["ayahoo_test"]]]
    X = features_or_none(features, len(objects))
    return ZeroShotDataset("aPY", X, classes, table.loc[order], unseen, info=rows)


def _read_lines(path: Path) -> list[str]:
    """Return the nonempty lines of a text file."""
    text = open_existing(path).read_text("utf-8", errors="replace")
    return [line.strip() for line in text.splitlines() if line.strip()]


def _read_objects(path: Path, n_attributes: int) -> list[list[str]]:
    """Return the words of each line: image, class, box, and 0 or 1 for each attribute."""
    n_words = _APY_WORDS + n_attributes
    objects = [line.split() for line in _read_lines(path)]
    for number, words in enumerate(objects, start=1):
        bits = set(words[_APY_WORDS:])
        if len(words) != n_words or not bits <= {"0", "1"}:
            raise FileError(
                f"{path}, object {number}: {len(words)} columns, but "
                f"{n_words} were expected (file, class, 4 numbers of the "
                f"box, {n_attributes} times 0 or 1)."
            )
    return objects
