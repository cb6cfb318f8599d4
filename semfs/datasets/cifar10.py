"""CIFAR-10 (binary version), with word vectors of the class names."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semfs._typing import Matrix, PathLike
from semfs.attributes import AttributeTable
from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.catalog import CIFAR10_CLASSES
from semfs.datasets.files import Descriptions
from semfs.datasets.matrices import check_columns, features_or_none
from semfs.io.mat import read_mat
from semfs.io.safety import FileError, open_existing
from semfs.system import import_optional

if TYPE_CHECKING:
    import pandas as pd

_BATCHES = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
#: Bytes of one image: its label, then 32 × 32 pixels of three colors.
_RECORD = 1 + 3 * 32 * 32
_WORD_VECTORS = "cifar10_wordTable.mat"


def load_cifar10(
    root: PathLike,
    features: PathLike | Matrix | None = None,
    *,
    attributes: Descriptions | None = None,
) -> ZeroShotDataset:
    """Load CIFAR-10 with word vectors as attributes.

    All classes are seen. ``data.every_split(n_seen=2)`` iterates over the paper's 45 splits.
    ``info`` holds the row numbers of the ``"train"`` and ``"test"`` images.

    Parameters
    ----------
    root : path-like
        Folder with the binary batches (``data_batch_1.bin`` … ``test_batch.bin``), or with the
        folder ``cifar-10-batches-bin`` that contains them.
    features : path-like, array of shape (n, d) or "pixels", optional
        Features with one row per image, in the order of the five training batches and the test
        batch. "pixels" uses the raw pixels, scaled to [0, 1]. If no features are given, X has
        no columns.
    attributes : path-like or table, optional
        Class descriptions, as a table or a table file. By default, ``cifar10_wordTable.mat`` in
        the folder or next to it is read, with the variables ``wordTable`` (50 × 10) and
        ``label_names``.
    """
    folder = _find_folder(Path(root))
    batches = [_read_batch(folder / name) for name in _BATCHES]
    numbers = np.concatenate([batch[:, 0] for batch in batches])
    y = np.array(CIFAR10_CLASSES)[numbers]
    if isinstance(features, str) and features == "pixels":
        X = np.concatenate([batch[:, 1:] for batch in batches], dtype=np.float32)
        X /= np.float32(255)
    else:
        X = features_or_none(features, len(y))
    n_train = len(y) - len(batches[-1])
    info = {"train": np.arange(n_train), "test": np.arange(n_train, len(y))}
    return ZeroShotDataset(
        "CIFAR10",
        X,
        y,
        _descriptions(folder, attributes),
        info=info,
    )


def _find_folder(root: Path) -> Path:
    """Return the folder of the batches."""
    for folder in (root, root / "cifar-10-batches-bin"):
        if (folder / _BATCHES[0]).exists():
            return folder
    raise FileNotFoundError(
        f"{root} holds no CIFAR-10 batches. Unpack cifar-10-binary.tar.gz there (see `semfs "
        "datasets`)."
    )


def _read_batch(path: Path) -> npt.NDArray[np.uint8]:
    """Return the records (n, 3073), each of 1 label byte and 3,072 pixel bytes."""
    size = open_existing(path).stat().st_size
    if size == 0 or size % _RECORD:
        raise FileError(
            f"{path} has {size} bytes, which is not a multiple of "
            f"{_RECORD}. The file is truncated: download it again."
        )
    # Mapped: pixels are read from the disk only if they are asked for.
    records = np.memmap(path, dtype=np.uint8, mode="r").reshape(-1, _RECORD)
    highest = records[:, 0].max()
    if highest > 9:
        raise FileError(
            f"{path}: found label {highest}, but CIFAR-10 has only the labels 0 to 9."
        )
    return records


def _descriptions(folder: Path, attributes: Descriptions | None) -> pd.DataFrame:
    """Return the given class descriptions, or the word vectors in or beside the folder."""
    if attributes is None:
        attributes = _find_word_vectors(folder)
    if isinstance(attributes, (str, Path)) and Path(attributes).suffix == ".mat":
        return _read_word_vectors(Path(attributes))
    return AttributeTable.from_any(attributes, CIFAR10_CLASSES).to_frame()


def _find_word_vectors(folder: Path) -> Path:
    for place in (folder / _WORD_VECTORS, folder.parent / _WORD_VECTORS):
        if place.exists():
            return place
    raise FileNotFoundError(
        f"no class descriptions: {_WORD_VECTORS} is not in or beside "
        f"{folder}. Pass attributes, for example "
        "attributes=encode_class_names(CIFAR10_CLASSES)."
    )


def _read_word_vectors(path: Path) -> pd.DataFrame:
    """Return the vectors (10, 50) of a MATLAB file, indexed by class name."""
    vectors = read_mat(path, "wordTable")
    names = [name.strip() for name in read_mat(path, "label_names", list)]
    check_columns(path, "wordTable", vectors, len(names), "label_names")
    pandas = import_optional("pandas", "data")
    return pandas.DataFrame(vectors.T, index=names).add_prefix("w")
