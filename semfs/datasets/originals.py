"""The paper's data sets as their authors publish them: SUN, aPY and CIFAR-10."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import as_frame, read_features
from semfs.datasets.matlab import read_mat
from semfs.datasets.xlsa17 import read_lines
from semfs.files import FileError, need, open_existing, reading

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


def _features(source: Any, n_rows: int, key: str | None) -> Any:
    return np.empty((n_rows, 0)) if source is None else read_features(source, n_rows, key=key)


# ---- SUN (Patterson & Hays 2012) -------------------------------------------------------------


def load_sun(
    root: Any, features: Any = None, *, binarize: float | None = None, key: str | None = None
) -> ZeroShotDataset:
    """Return the SUN scenes: 717 classes × 102 attributes, 707 seen and 10 unseen.

    Parameters
    ----------
    root : path-like
        Folder with ``images.mat``, ``attributes.mat`` and
        ``attributeLabels_continuous.mat`` of the SUNAttributeDB release.
    features : path-like or array of shape (14340, d), optional
        Features, one row per image in the order of ``images.mat`` (see `read_features`).
        Without them X has no columns; labels and attributes are complete.
    binarize : float, optional
        Count an attribute as present in an image if at least this share of the three
        votes says so (the paper speaks of binary vectors; 2/3 is a majority). By default
        the votes themselves are averaged.
    key : str, optional
        Name of the array in the features file.

    Returns
    -------
    ZeroShotDataset
        Rows in the order of ``images.mat``. Class names are the folder names with ``_`` for
        ``/``, sorted, which makes the table that of xlsa17's ``original_att``.
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
    if binarize is not None:
        votes = (votes >= binarize - 1e-9).astype(np.float64)  # 2/3 is not exact in binary
    classes = np.array(["_".join(image.strip("/").split("/")[1:-1]) for image in images])
    frame = need("pandas", "data").DataFrame(votes, columns=[name.strip() for name in names])
    table = frame.groupby(classes).mean()
    unseen = [label for label in _SUN_UNSEEN if label in table.index]
    X = _features(features, len(images), key)
    return ZeroShotDataset("SUN", X, classes, table, unseen, info={"files": images})


def _variable(path: Path, name: str, kind: type) -> Any:
    value = read_mat(path, [name]).get(name)
    if not isinstance(value, kind):
        raise FileError(f"{path} has no variable {name!r} of the expected kind.")
    return value


# ---- aPascal and aYahoo (Farhadi et al. 2009) ------------------------------------------------


def load_apy(root: Any, features: Any = None, *, key: str | None = None) -> ZeroShotDataset:
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
    key : str, optional
        Name of the array in the features file.

    Returns
    -------
    ZeroShotDataset
        Class attributes are means over the class's objects. ``rows`` has ``"apascal_train"``,
        ``"apascal_test"`` and ``"ayahoo_test"``; ``info`` the ``files``, the boxes
        ``bbox`` (n, 4) and the objects' own ``attributes`` (n, 64).
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
    numbers = np.array([words[2:] for words in objects], dtype=np.int64)
    table = (
        need("pandas", "data").DataFrame(numbers[:, 4:], columns=names).groupby(classes).mean()
    )
    stops = np.cumsum([len(part) for part in parts])
    rows = dict(zip(_APY_FILES, np.split(np.arange(len(objects)), stops[:-1])))
    yahoo = set(classes[rows["ayahoo_test"]])
    return ZeroShotDataset(
        "aPY",
        _features(features, len(objects), key),
        classes,
        table.loc[order],
        [label for label in order if label in yahoo],
        rows=rows,
        info={
            "files": [words[0] for words in objects],
            "bbox": numbers[:, :4],
            "attributes": numbers[:, 4:].astype(np.int8),
        },
    )


def _distinct_lines(path: Path) -> list[str]:
    lines = read_lines(path)
    repeated = [line for line in dict.fromkeys(lines) if lines.count(line) > 1]
    if repeated or not lines:
        what = f"names {repeated[0]!r} twice" if repeated else "is empty"
        raise FileError(f"{path} {what}; one name per line was expected.")
    return lines


def _read_objects(path: Path, n_attributes: int) -> list[list]:
    """File, class, and the numbers of box and attributes of each object."""
    objects: list[list] = []
    with reading(path, "annotation"):
        for i, line in enumerate(read_lines(path), start=1):
            words = line.split()
            if len(words) != 6 + n_attributes:
                raise FileError(
                    f"{path}, object {i}: {len(words)} columns, expected {6 + n_attributes} "
                    f"(file, class, 4 numbers of the box, {n_attributes} bits)."
                )
            if not set(words[6:]) <= {"0", "1"}:
                raise FileError(f"{path}, object {i}: attributes must be 0 or 1.")
            objects.append([*words[:2], *map(int, words[2:])])
    if not objects:
        raise FileError(f"{path} is empty; one object per line was expected.")
    return objects


# ---- CIFAR-10 (Krizhevsky 2009) --------------------------------------------------------------

_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
_PIXELS = 3 * 32 * 32
_WORDS = "cifar10_wordTable.mat"


class _Batch(NamedTuple):
    """Class ids (n,), pixels (n, 3072) of type uint8, and names of images."""

    labels: np.ndarray
    pixels: np.ndarray
    files: list[str]


def load_cifar10(
    root: Any, features: Any = None, *, attributes: Any = None, key: str | None = None
) -> ZeroShotDataset:
    """Return CIFAR-10 with word-vector attributes; iterate over its 45 splits.

    Parameters
    ----------
    root : path-like
        Folder with the original batches, binary (``data_batch_1.bin`` …) or python
        (``data_batch_1`` … ``test_batch``), or the folder that holds
        ``cifar-10-batches-bin`` or ``cifar-10-batches-py``. Of the python batches only
        plain arrays, lists and text are read; anything else in those pickles is refused.
    features : path-like, array of shape (n, d) or "pixels", optional
        Features, one row per image: the five training batches, then the test batch.
        "pixels" takes the raw pixels, scaled to [0, 1]. Without features X has no columns.
    attributes : path-like or table, optional
        Class descriptions: ``cifar10_wordTable.mat`` (50 × 10 ``wordTable`` and
        ``label_names``), a table file (see `semfs.attributes.read_attributes`) or a table.
        By default ``cifar10_wordTable.mat`` is looked for in and beside ``root``.
    key : str, optional
        Name of the array in the features file.

    Returns
    -------
    ZeroShotDataset
        With no class unseen; ``data.every_split(n_seen=2)`` iterates over the paper's 45
        splits. ``rows`` has ``"train"`` and ``"test"``.
    """
    folder, batches = _read_batches(Path(root))
    y = np.array(CIFAR10_CLASSES)[np.concatenate([batch.labels for batch in batches])]
    if isinstance(features, str) and features == "pixels":
        X = np.concatenate([batch.pixels for batch in batches], dtype=np.float32)
        X /= np.float32(255)
    else:
        X = _features(features, len(y), key)
    train, test = np.split(np.arange(len(y)), [-len(batches[-1].labels)])
    info = {"files": [name for batch in batches for name in batch.files]}
    rows, table = {"train": train, "test": test}, _class_table(folder, attributes)
    return ZeroShotDataset("CIFAR10", X, y, table, rows=rows, info=info)


def _read_batches(root: Path) -> tuple[Path, list[_Batch]]:
    """The folder that holds the six batches, and what is in them."""
    for folder in (root, root / "cifar-10-batches-bin", root / "cifar-10-batches-py"):
        if (folder / f"{_BATCHES[0]}.bin").exists():
            return folder, [_read_binary(folder / f"{name}.bin") for name in _BATCHES]
        if (folder / _BATCHES[0]).exists():
            return folder, [_read_python(folder / name) for name in _BATCHES]
    raise FileNotFoundError(
        f"{root} holds no CIFAR-10 batches. Unpack cifar-10-binary.tar.gz or "
        "cifar-10-python.tar.gz there (see `semfs datasets`)."
    )


def _read_binary(path: Path) -> _Batch:
    """Records of 1 label byte and 3,072 pixel bytes."""
    size = open_existing(path).stat().st_size
    if size == 0 or size % (1 + _PIXELS):
        raise FileError(
            f"{path} has {size} bytes, not a multiple of {1 + _PIXELS} (1 label and "
            f"{_PIXELS} pixels per image). It is truncated: download it again."
        )
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, 1 + _PIXELS)
    return _checked(path, np.array(records[:, 0]), records[:, 1:], [])


def _read_python(path: Path) -> _Batch:
    path = open_existing(path)
    with reading(path, "CIFAR-10 batch"):
        batch = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        labels, data = batch[b"labels"], batch[b"data"]
        if {type(label) for label in labels} != {int}:  # before numpy unfolds it
            raise FileError(f"{path}: labels must be a list of whole numbers.")
        pixels = data.array() if isinstance(data, _Array) else None
        if pixels is None or pixels.shape != (len(labels), _PIXELS):
            raise FileError(f"{path}: data must be {len(labels)} × {_PIXELS} bytes.")
        files = [str(name, "utf-8", "replace") for name in batch.get(b"filenames", [])]
        return _checked(path, np.array(labels), pixels, files)


def _checked(path: Path, labels: np.ndarray, pixels: np.ndarray, files: list) -> _Batch:
    wrong = labels[(labels < 0) | (labels > 9)]
    if wrong.size:
        raise FileError(f"{path}: label {wrong[0]} found; CIFAR-10 has labels 0 to 9.")
    files = files or [f"{path.stem}/{i}" for i in range(len(labels))]
    return _Batch(labels, pixels, files)


class _Array:
    """Stands in for numpy's array while a batch is read: takes bytes, runs nothing."""

    state: tuple = ()

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        _, shape, _, _, data = self.state
        return np.frombuffer(data, dtype=np.uint8).reshape(shape)


class _PlainUnpickler(pickle.Unpickler):
    """Reads lists, dicts, text and byte arrays; every other class or function is refused."""

    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in ("_reconstruct", "ndarray", "dtype"):
            return lambda *_: _Array()
        if (module, name) == ("_codecs", "encode"):  # how python 3 pickles bytes for python 2
            return lambda text, encoding: text.encode("latin-1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")


def _class_table(folder: Path, attributes: Any) -> Any:
    """Attributes of the ten classes as a frame."""
    if attributes is None:
        places = (folder, folder.parent, folder / "huang2012", folder.parent / "huang2012")
        attributes = next((p / _WORDS for p in places if (p / _WORDS).exists()), None)
    if attributes is None:
        raise FileNotFoundError(
            f"no class descriptions: {_WORDS} is not in or beside {folder}. Pass "
            "attributes=, for example encode_class_names(CIFAR10_CLASSES, encoder=...)."
        )
    if isinstance(attributes, (str, Path)) and Path(attributes).suffix == ".mat":
        return _read_word_table(Path(attributes))
    return as_frame(attributes)


def _read_word_table(path: Path) -> Any:
    """Word vectors as a frame (10, 50) by class name."""
    words = _variable(path, "wordTable", np.ndarray)
    names = _variable(path, "label_names", list)
    if words.ndim != 2 or words.shape[1] != len(names):
        raise FileError(
            f"{path}: wordTable has shape {words.shape}; one column per class ({len(names)}) "
            "was expected."
        )
    labels = [name.strip() for name in names]
    return need("pandas", "data").DataFrame(words.T, index=labels).add_prefix("w")
