"""Write any data set in the xlsa17 layout, and check a folder of that layout."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.utils import check_random_state

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.xlsa17 import SPLITS_OF, load_xlsa17, read_lines
from semfs.files import FileError

__all__ = ["check_xlsa17", "to_xlsa17"]

_MAT5_LIMIT = 2**31  # bytes of one variable in a version-5 file


def to_xlsa17(
    data: ZeroShotDataset,
    root: Any,
    name: str | None = None,
    *,
    test_seen: float = 0.2,
    n_folds: int = 3,
    val_classes: float = 0.25,
    random_state: Any = 0,
    overwrite: bool = False,
) -> Path:
    """Write a data set as ``root/name/res101.mat``, ``att_splits.mat`` and class lists.

    Parameters
    ----------
    data : ZeroShotDataset
        At least one class must be unseen. Class order is that of ``data.attributes``.
    root : path-like
        Folder to put the data set's folder in.
    name : str, optional
        Name of that folder; the data set's by default.
    test_seen : float, default=0.2
        Share of the rows of each seen class for ``test_seen_loc``, unless ``data.rows``
        has ``"trainval"`` and ``"test_seen"``.
    n_folds : int, default=3
        Number of lists ``trainclasses{i}.txt``, ``valclasses{i}.txt``; the first also gives
        ``train_loc`` and ``val_loc``.
    val_classes : float, default=0.25
        Share of the seen classes that a fold sets aside.
    random_state : int, RandomState or None, default=0
        Seed of both draws.
    overwrite : bool, default=False
        Replace an existing folder.

    Returns
    -------
    Path
        The folder, which passes `check_xlsa17`.
    """
    folder = Path(root) / _folder_name(name or data.name)
    if folder.exists() and not overwrite:
        raise FileExistsError(f"{folder} exists. Choose another name or pass overwrite=True.")
    if not len(data.unseen) or len(data.seen) < 2:
        raise ValueError("the layout needs unseen classes and at least two seen ones.")
    classes = [str(label) for label in data.attributes.index]
    if len(set(classes)) < len(classes):
        raise ValueError("two class labels are equal as text; rename one.")
    rng = check_random_state(random_state)
    rows = _rows(data, test_seen, rng)
    folds = [_fold(data.seen, val_classes, rng) for _ in range(n_folds)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    beside = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        _write(beside, data, classes, rows, folds)
        _check_written(beside, folder)
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return folder


def check_xlsa17(root: Any, name: str) -> list[str]:
    """Return what is wrong with a folder of the xlsa17 layout, one sentence each; [] if fine.

    Checked: the files can be read, matrices have the right orientation, indices are in
    range, the parts are disjoint and cover all images, no unseen class is trained on,
    no attribute row is zero or repeated, class lists agree with the indices, and sizes are
    those published (for the known data sets).
    """
    try:
        data = load_xlsa17(root, name)
    except (FileError, FileNotFoundError, ValueError) as error:
        return [str(error)]
    problems = [*_row_problems(data), *_table_problems(data)]
    for folder in (Path(root) / name, Path(root) / name.upper()):
        if folder.is_dir():
            problems += _list_problems(data, folder)
            break
    return problems + _size_problems(data)


# ---- writing ------------------------------------------------------------------------------


def _folder_name(name: str) -> str:
    if Path(name).name != name or name in (".", ".."):
        raise ValueError(f"{name!r} is not the name of a folder; leave out slashes.")
    return name


def _rows(data: ZeroShotDataset, share: float, rng: Any) -> dict[str, np.ndarray]:
    is_unseen = np.isin(data.y, data.unseen)
    unseen = np.flatnonzero(is_unseen)
    if {"trainval", "test_seen"} <= set(data.rows):
        return {k: data.rows[k] for k in ("trainval", "test_seen")} | {"test_unseen": unseen}
    if not 0 <= share < 1:
        raise ValueError(f"test_seen must be at least 0 and below 1, got {share}.")
    test = []
    for label in data.seen:
        members = np.flatnonzero(data.y == label)
        test += rng.permutation(members)[: int(share * len(members))].tolist()
    held_out = np.array(sorted(test), dtype=np.intp)
    trainval = np.setdiff1d(np.flatnonzero(~is_unseen), held_out)
    return {"trainval": trainval, "test_seen": held_out, "test_unseen": unseen}


def _fold(seen: np.ndarray, share: float, rng: Any) -> tuple[list, list]:
    n_val = min(max(1, round(share * len(seen))), len(seen) - 1)
    order = rng.permutation(len(seen))
    return seen[np.sort(order[n_val:])].tolist(), seen[np.sort(order[:n_val])].tolist()


def _write(
    folder: Path, data: ZeroShotDataset, classes: list[str], rows: dict, folds: list
) -> None:
    from scipy.io import savemat

    X = data.X.toarray() if sparse.issparse(data.X) else np.asarray(data.X)
    if X.nbytes >= _MAT5_LIMIT:
        X = X.astype(np.float32)
    if X.nbytes >= _MAT5_LIMIT:
        raise ValueError(
            f"X has {X.nbytes / 1e9:.1f} GB; a matrix in this format is limited to 2.1 GB. "
            "Write fewer rows or columns."
        )
    code = {label: i for i, label in enumerate(data.attributes.index)}
    labels = np.array([code[label] for label in data.y.tolist()]) + 1
    files = data.info.get("files") or [f"row_{i + 1}" for i in range(len(labels))]
    images = {"features": X.T, "labels": _column(labels), "image_files": _cells(files)}
    savemat(folder / "res101.mat", images, do_compression=True)
    A = data.attributes.to_numpy(dtype=np.float64)
    length = np.linalg.norm(A, axis=1, keepdims=True)
    locations = {f"{k}_loc": _column(v + 1) for k, v in rows.items()}
    if folds:
        trainval = rows["trainval"]
        for key, members in zip(("train_loc", "val_loc"), folds[0]):
            locations[key] = _column(trainval[np.isin(data.y[trainval], members)] + 1)
    table = {
        "att": (A / np.where(length > 0, length, 1.0)).T,
        "original_att": A.T,
        "allclasses_names": _cells(classes),
    }
    savemat(folder / "att_splits.mat", table | locations, do_compression=True)
    _write_lists(folder, data, classes, folds)


def _write_lists(folder: Path, data: ZeroShotDataset, classes: list[str], folds: list) -> None:
    lists = {"allclasses": classes, "testclasses": data.unseen, "trainvalclasses": data.seen}
    for i, (train, val) in enumerate(folds, start=1):
        lists |= {f"trainclasses{i}": train, f"valclasses{i}": val}
    for key, labels in lists.items():
        text = "".join(f"{label}\n" for label in labels)
        (folder / f"{key}.txt").write_text(text, encoding="utf-8")


def _column(numbers: np.ndarray) -> np.ndarray:
    return np.asarray(numbers, dtype=np.uint32).reshape(-1, 1)


def _cells(texts: list) -> np.ndarray:
    cells = np.empty((len(texts), 1), dtype=object)
    cells[:, 0] = [str(text) for text in texts]
    return cells


def _check_written(folder: Path, target: Path) -> None:
    problems = check_xlsa17(folder.parent, folder.name)
    if problems:
        raise ValueError(f"{target} was not written: {problems[0]}")


# ---- checking -----------------------------------------------------------------------------


def _row_problems(data: ZeroShotDataset) -> list[str]:
    parts = {
        k: v for k, v in data.rows.items() if k in ("trainval", "test_seen", "test_unseen")
    }
    problems = [f"{k}_loc is missing." for k in ("trainval", "test_seen") if k not in parts]
    together = np.concatenate(list(parts.values()))
    if len(np.unique(together)) < len(together):
        problems.append("some images are in more than one of trainval, test_seen, test_unseen.")
    left_out = len(data.y) - len(np.unique(together))
    if left_out:
        problems.append(f"{left_out} images are in no part of the split.")
    if {"train", "val"} <= set(data.rows):
        shared = set(data.y[data.rows["train"]]) & set(data.y[data.rows["val"]])
        if shared:
            problems.append(f"class {min(shared)!r} is in train_loc and in val_loc.")
    unseen = set(data.unseen.tolist())
    for key in ("train", "val"):
        mixed = unseen & set(data.y[data.rows.get(key, np.zeros(0, int))].tolist())
        if mixed:
            problems.append(f"unseen class {min(mixed)!r} is in {key}_loc.")
    return problems


def _table_problems(data: ZeroShotDataset) -> list[str]:
    A = data.attributes.to_numpy()
    zero = data.attributes.index[~A.any(axis=1)]
    problems = [f"the attribute row of class {label!r} is all zero." for label in zero]
    repeated = data.attributes.index[data.attributes.duplicated(keep=False)]
    if len(repeated):
        problems.append(f"classes {repeated[0]!r} and {repeated[1]!r} have equal attributes.")
    if not np.isfinite(np.asarray(data.X).sum()):
        problems.append("features hold NaN or infinity.")
    return problems


def _list_problems(data: ZeroShotDataset, folder: Path) -> list[str]:
    problems = []
    for filename, labels in (
        ("testclasses.txt", data.unseen),
        ("trainvalclasses.txt", data.seen),
    ):
        path = folder / filename
        if path.exists() and set(read_lines(path)) != {str(label) for label in labels}:
            problems.append(f"{filename} names other classes than the row indices do.")
    return problems


def _size_problems(data: ZeroShotDataset) -> list[str]:
    wanted = SPLITS_OF.get(data.name)
    if wanted is None:
        return []
    found = (
        len(data.y),
        data.attributes.shape[1],
        len(data.seen),
        len(data.unseen),
        *(len(data.rows.get(k, ())) for k in ("trainval", "test_seen", "test_unseen")),
    )
    if found == wanted:
        return []
    return [
        f"sizes differ from those published for {data.name}: images, attributes, seen and "
        f"unseen classes, trainval, test_seen and test_unseen rows are {found}, published "
        f"{wanted}."
    ]
