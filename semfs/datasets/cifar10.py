"""CIFAR-10 (Krizhevsky 2009): labels from the original batches or from image folders."""

from __future__ import annotations

import io
import pickle
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semfs.attributes import as_attribute_table, read_attributes
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import read_features
from semfs.datasets.matlab import read_mat
from semfs.files import FileError, need, open_existing, reading
from semfs.rows.readers import names_in_npz, read_npz

__all__ = ["CIFAR10_CLASSES", "load_cifar10", "read_word_table"]

CIFAR10_CLASSES = (
    "airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"
)  # fmt: skip
_BATCHES = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
_PIXELS = 3 * 32 * 32
_WORDS = "cifar10_wordTable.mat"
_HELP = "Unpack cifar-10-python.tar.gz or cifar-10-binary.tar.gz there (see `semfs datasets`)."
_IMAGES = {".png", ".jpg", ".jpeg", ".bmp"}


def load_cifar10(
    root: Any, features: Any = None, *, attributes: Any = None, key: str | None = None
) -> ZeroShotDataset:
    """Return CIFAR-10 with word-vector attributes; iterate over its 45 splits.

    Parameters
    ----------
    root : path-like
        Folder with the original batches, python (``data_batch_1`` … ``test_batch``) or
        binary (``data_batch_1.bin`` …), or with one folder of images per class, possibly
        under ``train`` and ``test``. The folder that holds ``cifar-10-batches-py`` or
        ``cifar-10-batches-bin`` will do. Of the python batches only plain arrays, lists
        and text are read; anything else in those pickles is refused.
    features : path-like, array of shape (n, d) or "pixels", optional
        Features, one row per image: the five training batches, then the test batch; for
        image folders sorted by path, ``train`` before ``test``. "pixels" takes the raw
        pixels of the batches, scaled to [0, 1]. Without features X has no columns. An
        ``.npz`` file that has labels ``y`` (0 to 9) needs no batches in `root`.
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
    folder = _find_root(Path(root), features)
    parts = _read_parts(folder, features)
    y = np.array(CIFAR10_CLASSES)[np.concatenate([part.labels for part in parts])]
    is_test = np.repeat([part.test for part in parts], [len(part.labels) for part in parts])
    rows = {"train": np.flatnonzero(~is_test), "test": np.flatnonzero(is_test)}
    files = [name for part in parts for name in part.files]
    if isinstance(features, str) and features == "pixels":
        X = _all_pixels(folder, parts)
    elif features is None:
        X = np.empty((len(y), 0))
    else:
        X = read_features(features, len(y), key=key)
    table = _table(folder, attributes)
    return ZeroShotDataset("CIFAR10", X, y, table, rows=rows, info={"files": files})


@dataclass(frozen=True)
class _Part:
    """One batch, or one folder of images."""

    labels: np.ndarray  # (n,) class ids
    files: list[str]
    test: bool
    pixels: np.ndarray | None = None  # (n, 3072) uint8


def _read_parts(folder: Path, features: Any) -> list[_Part]:
    if _is_image_root(folder):
        return _read_folders(folder)
    if any(path.exists() for path in _first_batch(folder)):
        return _read_batches(folder)
    return [_read_labels(Path(features))]


def _read_labels(path: Path) -> _Part:
    """Labels that a features file brings along."""
    found = read_npz(path, ["y"])
    labels = _checked(path, found["y"].reshape(-1))
    files = [f"{path.stem}/{i}" for i in range(len(labels))]
    return _Part(labels, files, False)


def _first_batch(folder: Path) -> list[Path]:
    return [folder / f"{_BATCHES[0]}{end}" for end in ("", ".bin")]


def _find_root(root: Path, features: Any) -> Path:
    if not root.is_dir():
        raise FileNotFoundError(f"{root} is not a folder. {_HELP}")
    for folder in (root, root / "cifar-10-batches-py", root / "cifar-10-batches-bin"):
        if _is_image_root(folder) or any(path.exists() for path in _first_batch(folder)):
            return folder
    if str(features).endswith(".npz") and "y" in names_in_npz(features):
        return root
    raise FileNotFoundError(f"{root} holds neither batches nor class folders. {_HELP}")


def _is_image_root(folder: Path) -> bool:
    return any((folder / part / CIFAR10_CLASSES[0]).is_dir() for part in ("", "train", "test"))


def _read_folders(root: Path) -> list[_Part]:
    parts = []
    for name in ("train", "test") if (root / "train").is_dir() else ("",):
        found = [
            (path, code)
            for code, label in enumerate(CIFAR10_CLASSES)
            for path in (root / name / label).glob("*")
            if path.suffix.lower() in _IMAGES
        ]
        found.sort(key=lambda item: item[0].relative_to(root).as_posix())
        files = [path.relative_to(root).as_posix() for path, _ in found]
        parts.append(_Part(np.array([c for _, c in found], dtype=int), files, name == "test"))
    if not sum(len(part.labels) for part in parts):
        raise FileError(f"{root}: the class folders hold no images.")
    return parts


def _read_batches(folder: Path) -> list[_Part]:
    if (folder / f"{_BATCHES[0]}.bin").exists():
        paths, read = [folder / f"{name}.bin" for name in _BATCHES], _read_binary
    else:
        paths, read = [folder / name for name in _BATCHES], _read_python
    return [read(path) for path in paths]


def _read_binary(path: Path) -> _Part:
    """Records of 1 label byte and 3,072 pixel bytes."""
    path = open_existing(path)
    size = path.stat().st_size
    if size == 0 or size % (1 + _PIXELS):
        raise FileError(
            f"{path} has {size} bytes, not a multiple of {1 + _PIXELS} (1 label and "
            f"{_PIXELS} pixels per image). It is truncated: download it again."
        )
    records = np.memmap(
        path, dtype=np.uint8, mode="r", shape=(size // (1 + _PIXELS), 1 + _PIXELS)
    )
    labels = _checked(path, np.array(records[:, 0]))
    files = [f"{path.stem}/{i}" for i in range(len(labels))]
    return _Part(labels, files, path.stem == "test_batch", records[:, 1:])


def _read_python(path: Path) -> _Part:
    path = open_existing(path)
    with reading(path, "CIFAR-10 batch"):
        batch = _PlainUnpickler(io.BytesIO(path.read_bytes()), encoding="bytes").load()
        batch = {_text(key): value for key, value in batch.items()}
        if {type(label) for label in batch["labels"]} != {int}:  # before numpy unfolds it
            raise FileError(f"{path}: labels must be a list of whole numbers.")
        labels = _checked(path, np.array(batch["labels"]))
        pixels = batch["data"].array() if isinstance(batch["data"], _Array) else None
        if pixels is None or pixels.shape != (len(labels), _PIXELS):
            raise FileError(f"{path}: data must be {len(labels)} × {_PIXELS} bytes.")
        files = [_text(name) for name in batch.get("filenames", [])]
        files = files or [f"{path.name}/{i}" for i in range(len(labels))]
        return _Part(labels, files, path.name == "test_batch", pixels)


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)


def _checked(path: Path, labels: np.ndarray) -> np.ndarray:
    if labels.ndim != 1 or labels.dtype.kind not in "iu" or not labels.size:
        raise FileError(f"{path}: labels must be a list of whole numbers.")
    if labels.min() < 0 or labels.max() > 9:
        bad = labels.min() if labels.min() < 0 else labels.max()
        raise FileError(f"{path}: label {bad} found; CIFAR-10 has labels 0 to 9.")
    return labels


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
        if (module.split(".")[0], name) == ("numpy", "_reconstruct"):
            return lambda *_: _Array()
        if (module.split(".")[0], name) in {("numpy", "ndarray"), ("numpy", "dtype")}:
            return lambda *_: _Array()
        if (module, name) == ("_codecs", "encode"):  # how python 3 pickles bytes for python 2
            return lambda text, encoding: text.encode("latin-1")
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch needs")


def _all_pixels(folder: Path, parts: list[_Part]) -> np.ndarray:
    blocks = [part.pixels for part in parts if part.pixels is not None]
    if len(blocks) < len(parts):
        raise FileError(f"{folder}: pixels are read from the original batches only.")
    X = np.empty((sum(len(part.labels) for part in parts), _PIXELS), dtype=np.float32)
    np.concatenate(blocks, out=X, casting="same_kind")
    X /= np.float32(255)
    return X


def _table(folder: Path, attributes: Any) -> Any:
    """Attributes of the ten classes as a frame."""
    if attributes is None:
        places = (folder, folder.parent, folder / "huang2012", folder.parent / "huang2012")
        found = [p / _WORDS for p in places if (p / _WORDS).exists()]
        if not found:
            raise FileNotFoundError(
                f"no class descriptions: {_WORDS} is not in or beside {folder}. Pass "
                "attributes=, for example encode_class_names(CIFAR10_CLASSES, encoder=...)."
            )
        attributes = found[0]
    pandas = need("pandas", "data")
    if isinstance(attributes, (str, Path)):
        if Path(attributes).suffix != ".mat":
            return read_attributes(attributes)
        return read_word_table(attributes)
    table = as_attribute_table(attributes)
    return pandas.DataFrame(table.values, index=table.classes, columns=table.names)


def read_word_table(path: Any) -> Any:
    """Return the word vectors of ``cifar10_wordTable.mat``: a frame (10, 50) by class name."""
    found = read_mat(path, ["wordTable", "label_names"])
    words, names = found.get("wordTable"), found.get("label_names")
    if not isinstance(words, np.ndarray) or not isinstance(names, list):
        raise FileError(f"{path} has no wordTable and label_names.")
    if words.ndim != 2 or words.shape[1] != len(names):
        raise FileError(
            f"{path}: wordTable has shape {words.shape}; one column per class ({len(names)}) "
            "was expected."
        )
    labels = [str(name).strip() for name in names]
    return need("pandas", "data").DataFrame(words.T, index=labels).add_prefix("w")
