"""The paper's data sets of images, as published: the xlsa17 layout, SUN, aPY and CIFAR-10.

Matrices of the xlsa17 benchmark (Xian et al. 2017) have one *column* per image or class, and
indices start at 1. Everything leaves this module with one row per image or class, indices from
0 and names for classes.
"""

import json
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import CIFAR10_CLASSES, STANDARD, UNSEEN
from semfs.datasets.files import as_frame, read_features
from semfs.io.mat import names_in_mat, read_mat
from semfs.io.safety import FileError, open_existing
from semfs.system import import_optional
from semfs.validation import check_option

_ROWS = ("trainval", "test_seen", "test_unseen", "train", "val")
_APY_FILES = ("apascal_train", "apascal_test", "ayahoo_test")
_BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
_RECORD = 1 + 3 * 32 * 32
_WORDS = "cifar10_wordTable.mat"


def _features(source: Any, n_rows: int) -> Any:
    return np.empty((n_rows, 0)) if source is None else read_features(source, n_rows)


def _read_lines(path: Path) -> list[str]:
    lines = open_existing(path).read_text("utf-8", errors="replace").splitlines()
    return [line.strip() for line in lines if line.strip()]


def load_xlsa17(
    root: Any, name: str, split: str = "proposed", *, table: str = "att"
) -> ZeroShotDataset:
    """Return a data set of the zero-shot benchmark layout.

    All N images in the order of the file, in the file's own precision. Labels are class names;
    attribute rows keep the order of ``allclasses_names``. ``info`` has the 0-based rows of
    ``trainval``, ``test_seen`` and ``test_unseen``: to keep the test images of seen classes
    apart use ``data.X[data.info["trainval"]]``.

    Parameters
    ----------
    root : path-like
        Folder that holds the data sets' folders (``xlsa17/data`` as unpacked).
    name : str
        "AWA1", "AWA2", "CUB", "SUN", "APY", "FLO" or another folder of the same layout.
    split : {"proposed", "standard"}, default="proposed"
        "proposed": the classes of ``test_unseen_loc`` are unseen. "standard": those of the
        older literature, known for AWA1, AWA2 and APY.
    table : {"att", "original_att"}, default="att"
        "att" has unit length per class; "original_att" is as published, with -1 for
        values the annotators left open (AWA).
    """
    check_option("split", split, ("proposed", "standard"))
    path, attributes, rows = read_splits(root, name, table)
    folder, classes = path.parent.name, np.array(attributes.index)
    images = path.with_name("res101.mat")
    X, labels = read_mat(images, "features"), _zero_based(images, "labels")
    _check_columns(images, "features", X, len(labels), "labels")
    if (top := labels.max(initial=-1) + 1) > len(classes):
        found = f"labels go up to {top}, but the attribute matrix has {len(classes)} columns"
        raise FileError(f"{images}: {found}; one column per class was expected.")
    if split == "standard" and folder not in STANDARD:
        raise ValueError(
            f"the standard split of {folder} is not known, only those of "
            f"{', '.join(STANDARD)}. Take the proposed one and data.with_unseen([...])."
        )
    last = max((index.max() for index in rows.values() if index.size), default=-1)
    if last >= len(labels):
        found = f"{path} names image {last + 1}, but there are only {len(labels)} images"
        raise FileError(f"{found}. Features and splits belong to different versions.")
    y, unseen = classes[labels], classes[np.unique(labels[rows["test_unseen"]])]
    if split == "standard":
        rows, unseen = {}, [label for label in STANDARD[folder] if label in y]
    # the rows of X.T are contiguous: MATLAB stores columns together
    return ZeroShotDataset(folder, X.T, y, attributes, unseen, info=rows)


def read_splits(root: Any, name: str, table: str = "att") -> tuple[Path, Any, dict]:
    """Return the path of ``att_splits.mat``, its attributes (C, m) and its groups of rows."""
    places = [Path(root) / name, Path(root) / "data" / name, Path(root) / "xlsa17/data" / name]
    folder = next((place for place in places if place.is_dir()), None)
    if folder is None:
        raise FileNotFoundError(
            f"no folder {name!r} in {root}. Expected {places[0] / 'att_splits.mat'} and "
            f"{places[0] / 'res101.mat'}; run `semfs datasets` for where to get them."
        )
    path = folder / "att_splits.mat"
    att, known = read_mat(path, table), names_in_mat(path)
    classes = list(range(att.shape[1]))  # FLO comes without names
    if "allclasses_names" in known:
        classes = [text.strip() for text in read_mat(path, "allclasses_names", list)]
        _check_columns(path, "the attribute matrix", att, len(classes), "class names")
    text = (resources.files("semfs") / "data" / "attribute_names.json").read_text("utf-8")
    names = json.loads(text).get(folder.name.rstrip("12"), [])
    if len(names) != len(att):
        names = [f"a{j}" for j in range(len(att))]
    A = np.ascontiguousarray(att.T, dtype=np.float64)
    frame = import_optional("pandas", "data").DataFrame(A, classes, names)
    known = [*known, "test_unseen_loc"]
    return path, frame, {p: _zero_based(path, f"{p}_loc") for p in _ROWS if f"{p}_loc" in known}


def _check_columns(path: Path, what: str, matrix: np.ndarray, n: int, of: str) -> None:
    if matrix.shape[1] != n:
        turned = " It seems transposed." if matrix.shape[0] == n else ""
        found = f"{what} has shape {matrix.shape}, but there are {n} {of}"
        raise FileError(f"{path}: {found}; one column for each was expected.{turned}")


def _zero_based(path: Path, name: str) -> np.ndarray:
    numbers = read_mat(path, name).reshape(-1)
    if (wrong := numbers[(numbers != np.floor(numbers)) | (numbers < 1)]).size:
        raise FileError(f"{path}: {name} holds {wrong[0]:g}; whole numbers from 1 are usual.")
    return numbers.astype(np.int64) - 1


def load_sun(root: Any, features: Any = None) -> ZeroShotDataset:
    """Return the SUN scenes: 717 classes × 102 attributes, 707 seen and 10 unseen.

    Rows are in the order of ``images.mat``; attributes are mean votes. Class names are the
    folder names with ``_`` for ``/``, sorted: the table is xlsa17's ``original_att``.

    Parameters
    ----------
    root : path-like
        Folder with ``images.mat``, ``attributes.mat`` and
        ``attributeLabels_continuous.mat`` of the SUNAttributeDB release.
    features : path-like or array of shape (14340, d), optional
        One row per image (see `read_features`). Without them X has no columns.
    """
    folder = Path(root)
    images = read_mat(folder / "images.mat", "images", list)
    names = read_mat(folder / "attributes.mat", "attributes", list)
    path = folder / "attributeLabels_continuous.mat"
    votes = read_mat(path, "labels_cv")
    if votes.shape != (expected := (len(images), len(names))):
        raise FileError(f"{path}: labels_cv has shape {votes.shape}, not {expected}.")
    classes = np.array(["_".join(image.strip("/").split("/")[1:-1]) for image in images])
    frame = import_optional("pandas", "data").DataFrame(
        votes, columns=[name.strip() for name in names]
    )
    table = frame.groupby(classes).mean()
    unseen = [label for label in UNSEEN["scenes"] if label in table.index]
    return ZeroShotDataset("SUN", _features(features, len(images)), classes, table, unseen)


def load_apy(root: Any, features: Any = None) -> ZeroShotDataset:
    """Return aPascal (20 seen classes) and aYahoo (12 unseen classes), 64 attributes.

    Class attributes are means over the class's objects. ``info`` has the rows of
    ``"apascal_train"``, ``"apascal_test"`` and ``"ayahoo_test"``.

    Parameters
    ----------
    root : path-like
        Folder with ``apascal_train.txt``, ``apascal_test.txt``, ``ayahoo_test.txt`` (one
        object per line: file, class, bounding box, 64 bits), ``attribute_names.txt`` and
        ``class_names.txt``.
    features : path-like or array of shape (15339, d), optional
        One row per object (see `read_features`). Without them X has no columns.
    """
    folder = Path(root)
    names, order = (_read_lines(folder / f"{n}_names.txt") for n in ("attribute", "class"))
    parts = [_read_objects(folder / f"{part}.txt", len(names)) for part in _APY_FILES]
    objects = [words for part in parts for words in part]
    classes = np.array([words[1] for words in objects])
    if sorted(order) != sorted(set(classes.tolist())):
        raise FileError(f"{folder}: class_names.txt must name the classes of the annotations.")
    bits = np.array([words[6:] for words in objects], dtype=np.float64)
    table = (
        import_optional("pandas", "data").DataFrame(bits, columns=names).groupby(classes).mean()
    )
    stops = np.cumsum([len(part) for part in parts])
    rows = dict(zip(_APY_FILES, np.split(np.arange(len(objects)), stops[:-1])))
    unseen = [label for label in order if label in classes[rows["ayahoo_test"]]]
    X = _features(features, len(objects))
    return ZeroShotDataset("aPY", X, classes, table.loc[order], unseen, info=rows)


def _read_objects(path: Path, n_attributes: int) -> list[list[str]]:
    objects = [line.split() for line in _read_lines(path)]
    for i, words in enumerate(objects, start=1):
        if len(words) != 6 + n_attributes or not set(words[6:]) <= {"0", "1"}:
            raise FileError(
                f"{path}, object {i}: {len(words)} columns; {6 + n_attributes} were expected "
                f"(file, class, 4 numbers of the box, {n_attributes} times 0 or 1)."
            )
    return objects


def load_cifar10(root: Any, features: Any = None, *, attributes: Any = None) -> ZeroShotDataset:
    """Return CIFAR-10 with word-vector attributes and no class unseen.

    ``data.every_split(n_seen=2)`` iterates over the paper's 45 splits. ``info`` has the rows of
    ``"train"`` and ``"test"``.

    Parameters
    ----------
    root : path-like
        Folder with the binary batches (``data_batch_1.bin`` … ``test_batch.bin``), or the
        one that holds their folder ``cifar-10-batches-bin``.
    features : path-like, array of shape (n, d) or "pixels", optional
        Features, one row per image: the five training batches, then the test batch.
        "pixels" takes the raw pixels, scaled to [0, 1]. Without features X has no columns.
    attributes : path-like or table, optional
        Class descriptions: a table, or a file of one. By default ``cifar10_wordTable.mat``
        (50 × 10 ``wordTable`` and ``label_names``), in or beside the folder.
    """
    places = [Path(root), Path(root) / "cifar-10-batches-bin"]
    folder = next((place for place in places if (place / _BATCHES[0]).exists()), None)
    if folder is None:
        advice = "Unpack cifar-10-binary.tar.gz there (see `semfs datasets`)."
        raise FileNotFoundError(f"{root} holds no CIFAR-10 batches. {advice}")
    batches = [_read_batch(folder / name) for name in _BATCHES]
    y = np.array(CIFAR10_CLASSES)[np.concatenate([batch[:, 0] for batch in batches])]
    if isinstance(features, str) and features == "pixels":
        X = np.concatenate([batch[:, 1:] for batch in batches], dtype=np.float32)
        X /= np.float32(255)
    else:
        X = _features(features, len(y))
    train, test = np.split(np.arange(len(y)), [-len(batches[-1])])
    table = _word_vectors(folder, attributes)
    return ZeroShotDataset("CIFAR10", X, y, table, info={"train": train, "test": test})


def _read_batch(path: Path) -> np.ndarray:
    """Records (n, 3073) of 1 label byte and 3,072 pixel bytes."""
    size = open_existing(path).stat().st_size
    if size == 0 or size % _RECORD:
        advice = "It is truncated: download it again."
        raise FileError(f"{path} has {size} bytes, not a multiple of {_RECORD}. {advice}")
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
    if (highest := records[:, 0].max()) > 9:
        raise FileError(f"{path}: label {highest} found; CIFAR-10 has labels 0 to 9.")
    return records


def _word_vectors(folder: Path, attributes: Any) -> Any:
    if attributes is None:
        places = (folder / _WORDS, folder.parent / _WORDS)
        attributes = next((place for place in places if place.exists()), None)
    if attributes is None:
        lost = f"no class descriptions: {_WORDS} is not in or beside {folder}. Pass attributes="
        raise FileNotFoundError(f"{lost}, such as encode_class_names(CIFAR10_CLASSES).")
    if not isinstance(attributes, (str, Path)) or Path(attributes).suffix != ".mat":
        return as_frame(attributes)
    path = Path(attributes)
    words = read_mat(path, "wordTable")
    names = [name.strip() for name in read_mat(path, "label_names", list)]
    _check_columns(path, "wordTable", words, len(names), "label_names")
    return import_optional("pandas", "data").DataFrame(words.T, index=names).add_prefix("w")
