"""The paper's data sets as their authors publish them: SUN, aPY and CIFAR-10."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import as_frame, read_features
from semfs.datasets.matlab import read_mat
from semfs.datasets.xlsa17 import read_lines
from semfs.files import FileError, need, open_existing
from semfs.validation import check_distinct

__all__ = ["CIFAR10_CLASSES", "load_apy", "load_cifar10", "load_sun"]

# The ten unseen scenes of the 707/10 split (Jayaraman & Grauman 2014, as kept by
# Romera-Paredes & Torr 2015).
_SUN_UNSEEN = (
    "archive", "art_school", "chemical_plant", "flea_market_indoor", "inn_indoor",
    "lab_classroom", "lake_natural", "mineshaft", "outhouse_outdoor", "shoe_shop",
)  # fmt: skip
_APY_FILES = ("apascal_train", "apascal_test", "ayahoo_test")
CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
)  # fmt: skip
_BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
_RECORD = 1 + 3 * 32 * 32
_WORDS = "cifar10_wordTable.mat"


def _features(source: Any, n_rows: int) -> Any:
    return np.empty((n_rows, 0)) if source is None else read_features(source, n_rows)


def _variable(path: Path, name: str, kind: type) -> Any:
    value = read_mat(path, [name]).get(name)
    if not isinstance(value, kind):
        raise FileError(f"{path} has no variable {name!r} of the expected kind.")
    return value


# ---- SUN (Patterson & Hays 2012) -------------------------------------------------------------


def load_sun(root: Any, features: Any = None) -> ZeroShotDataset:
    """Return the SUN scenes: 717 classes × 102 attributes, 707 seen and 10 unseen.

    Parameters
    ----------
    root : path-like
        Folder with ``images.mat``, ``attributes.mat`` and
        ``attributeLabels_continuous.mat`` of the SUNAttributeDB release.
    features : path-like or array of shape (14340, d), optional
        Features, one row per image in the order of ``images.mat`` (see `read_features`).
        Without them X has no columns; labels and attributes are complete.

    Returns
    -------
    ZeroShotDataset
        Rows in the order of ``images.mat``; attributes are mean votes. Class names are the
        folder names with ``_`` for ``/``, sorted: the table is xlsa17's ``original_att``.
    """
    folder = Path(root)
    images = _variable(folder / "images.mat", "images", list)
    names = _variable(folder / "attributes.mat", "attributes", list)
    path = folder / "attributeLabels_continuous.mat"
    votes = _variable(path, "labels_cv", np.ndarray)
    if votes.shape != (len(images), len(names)):
        raise FileError(
            f"{path}: labels_cv has shape {votes.shape}, expected "
            f"{(len(images), len(names))}: images × attributes."
        )
    classes = np.array(["_".join(image.strip("/").split("/")[1:-1]) for image in images])
    frame = need("pandas", "data").DataFrame(votes, columns=[name.strip() for name in names])
    table = frame.groupby(classes).mean()
    unseen = [label for label in _SUN_UNSEEN if label in table.index]
    X = _features(features, len(images))
    return ZeroShotDataset("SUN", X, classes, table, unseen, info={"files": images})


# ---- aPascal and aYahoo (Farhadi et al. 2009) ------------------------------------------------


def load_apy(root: Any, features: Any = None) -> ZeroShotDataset:
    """Return aPascal (20 seen classes) and aYahoo (12 unseen classes), 64 attributes.

    Parameters
    ----------
    root : path-like
        Folder with ``apascal_train.txt``, ``apascal_test.txt``, ``ayahoo_test.txt`` (one
        object per line: file, class, bounding box, 64 bits), ``attribute_names.txt`` and
        ``class_names.txt``.
    features : path-like or array of shape (15339, d), optional
        Features, one row per object in the order of the three files (see
        `read_features`). Without them X has no columns.

    Returns
    -------
    ZeroShotDataset
        Class attributes are means over the class's objects. ``rows`` has ``"apascal_train"``,
        ``"apascal_test"`` and ``"ayahoo_test"``; ``info`` the ``files``.
    """
    folder = Path(root)
    names = _distinct_lines(folder / "attribute_names.txt")
    order = _distinct_lines(folder / "class_names.txt")
    parts = [_read_objects(folder / f"{part}.txt", len(names)) for part in _APY_FILES]
    objects = [words for part in parts for words in part]
    classes = np.array([words[1] for words in objects])
    if set(order) != set(classes):
        odd = min(set(order) ^ set(classes.tolist()))
        raise FileError(
            f"{folder}: class {odd!r} is in class_names.txt or in the annotations, not in both."
        )
    bits = np.array([words[6:] for words in objects], dtype=np.float64)
    table = need("pandas", "data").DataFrame(bits, columns=names).groupby(classes).mean()
    stops = np.cumsum([len(part) for part in parts])
    rows = dict(zip(_APY_FILES, np.split(np.arange(len(objects)), stops[:-1])))
    yahoo = set(classes[rows["ayahoo_test"]])
    return ZeroShotDataset(
        "aPY",
        _features(features, len(objects)),
        classes,
        table.loc[order],
        [label for label in order if label in yahoo],
        rows=rows,
        info={"files": [words[0] for words in objects]},
    )


def _distinct_lines(path: Path) -> list[str]:
    lines = read_lines(path)
    check_distinct(lines, f"{path} names {{}} twice; one name per line.", FileError)
    return lines


def _read_objects(path: Path, n_attributes: int) -> list[list[str]]:
    """File, class, the four numbers of the box and the attributes of each object."""
    objects = [line.split() for line in read_lines(path)]
    for i, words in enumerate(objects, start=1):
        if len(words) != 6 + n_attributes:
            raise FileError(
                f"{path}, object {i}: {len(words)} columns, expected {6 + n_attributes} "
                f"(file, class, 4 numbers of the box, {n_attributes} bits)."
            )
        if not set(words[6:]) <= {"0", "1"}:
            raise FileError(f"{path}, object {i}: attributes must be 0 or 1.")
    if not objects:
        raise FileError(f"{path} is empty; one object per line was expected.")
    return objects


# ---- CIFAR-10 (Krizhevsky 2009) --------------------------------------------------------------


def load_cifar10(root: Any, features: Any = None, *, attributes: Any = None) -> ZeroShotDataset:
    """Return CIFAR-10 with word-vector attributes; iterate over its 45 splits.

    Parameters
    ----------
    root : path-like
        Folder with the binary batches (``data_batch_1.bin`` … ``test_batch.bin``), or the
        one that holds their folder ``cifar-10-batches-bin``.
    features : path-like, array of shape (n, d) or "pixels", optional
        Features, one row per image: the five training batches, then the test batch.
        "pixels" takes the raw pixels, scaled to [0, 1]. Without features X has no columns.
    attributes : path-like or table, optional
        Class descriptions: ``cifar10_wordTable.mat`` (50 × 10 ``wordTable`` and
        ``label_names``), a table file (see `semfs.attributes.read_attributes`) or a table.
        By default ``cifar10_wordTable.mat`` is looked for in and beside the folder.

    Returns
    -------
    ZeroShotDataset
        With no class unseen; ``data.every_split(n_seen=2)`` iterates over the paper's 45
        splits. ``rows`` has ``"train"`` and ``"test"``.
    """
    places = [Path(root), Path(root) / "cifar-10-batches-bin"]
    folder = next((place for place in places if (place / _BATCHES[0]).exists()), None)
    if folder is None:
        raise FileNotFoundError(
            f"{root} holds no CIFAR-10 batches. Unpack cifar-10-binary.tar.gz there (see "
            "`semfs datasets`)."
        )
    batches = [_read_batch(folder / name) for name in _BATCHES]
    y = np.array(CIFAR10_CLASSES)[np.concatenate([batch[:, 0] for batch in batches])]
    if isinstance(features, str) and features == "pixels":
        X = np.concatenate([batch[:, 1:] for batch in batches], dtype=np.float32)
        X /= np.float32(255)
    else:
        X = _features(features, len(y))
    train, test = np.split(np.arange(len(y)), [-len(batches[-1])])
    table = _word_vectors(folder, attributes)
    return ZeroShotDataset("CIFAR10", X, y, table, rows={"train": train, "test": test})


def _read_batch(path: Path) -> np.ndarray:
    """Records (n, 3073) of 1 label byte and 3,072 pixel bytes."""
    size = open_existing(path).stat().st_size
    if size == 0 or size % _RECORD:
        raise FileError(
            f"{path} has {size} bytes, not a multiple of {_RECORD} (1 label and {_RECORD - 1} "
            "pixels per image). It is truncated: download it again."
        )
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
    highest = records[:, 0].max()
    if highest > 9:
        raise FileError(f"{path}: label {highest} found; CIFAR-10 has labels 0 to 9.")
    return records


def _word_vectors(folder: Path, attributes: Any) -> Any:
    """Attributes of the ten classes as a frame."""
    if attributes is None:
        places = (folder / _WORDS, folder.parent / _WORDS)
        attributes = next((place for place in places if place.exists()), None)
    if attributes is None:
        raise FileNotFoundError(
            f"no class descriptions: {_WORDS} is not in or beside {folder}. Pass "
            "attributes=, for example encode_class_names(CIFAR10_CLASSES)."
        )
    if not isinstance(attributes, (str, Path)) or Path(attributes).suffix != ".mat":
        return as_frame(attributes)
    path = Path(attributes)
    words = _variable(path, "wordTable", np.ndarray)
    names = [name.strip() for name in _variable(path, "label_names", list)]
    if words.ndim != 2 or words.shape[1] != len(names):
        raise FileError(
            f"{path}: wordTable has shape {words.shape}; one column per class ({len(names)}) "
            "was expected."
        )
    return need("pandas", "data").DataFrame(words.T, index=names).add_prefix("w")
