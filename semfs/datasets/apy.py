"""aPascal and aYahoo (Farhadi et al. 2009) from the annotation text files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import read_features
from semfs.files import FileError, need, open_existing, reading

__all__ = ["load_apy"]

_PASCAL, _YAHOO = ("apascal_train.txt", "apascal_test.txt"), ("ayahoo_test.txt",)


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
    names = _lines(folder / "attribute_names.txt")
    order = _lines(folder / "class_names.txt")
    parts = {f: _read_objects(folder / f, len(names)) for f in (*_PASCAL, *_YAHOO)}
    files = [name for part in parts.values() for name in part[0]]
    classes = [label for part in parts.values() for label in part[1]]
    numbers = np.array([row for part in parts.values() for row in part[2]], dtype=np.int64)
    pandas = need("pandas", "data")
    bits = pandas.DataFrame(numbers[:, 4:], columns=names)
    table = bits.groupby(np.array(classes)).mean()
    _check_classes(folder, order, list(table.index))
    table = table.loc[order]
    X = np.empty((len(files), 0)) if features is None else None
    if X is None:
        X = read_features(features, len(files), key=key)
    yahoo = dict.fromkeys(parts[_YAHOO[0]][1])
    cuts = np.cumsum([0, *(len(p[0]) for p in parts.values())])
    rows = {f.removesuffix(".txt"): np.arange(*cuts[i : i + 2]) for i, f in enumerate(parts)}
    info = {
        "files": files,
        "bbox": numbers[:, :4],
        "attributes": numbers[:, 4:].astype(np.int8),
    }
    unseen = [label for label in order if label in yahoo]
    return ZeroShotDataset("aPY", X, classes, table, unseen, rows=rows, info=info)


def _lines(path: Path) -> list[str]:
    path = open_existing(path)
    with reading(path, "text"):
        lines = [line.strip() for line in path.read_text("utf-8").splitlines()]
        lines = [line for line in lines if line]
        repeated = [line for line in dict.fromkeys(lines) if lines.count(line) > 1]
        if repeated or not lines:
            what = f"names {repeated[0]!r} twice" if repeated else "is empty"
            raise FileError(f"{path} {what}; one name per line was expected.")
        return lines


def _read_objects(path: Path, n_attributes: int) -> tuple[list[str], list[str], list]:
    """File, class, and box with bits of each object."""
    path = open_existing(path)
    files, classes, numbers = [], [], []
    with reading(path, "annotation"):
        for i, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
            words = line.split()
            if not words:
                continue
            if len(words) != 6 + n_attributes:
                raise FileError(
                    f"{path}, line {i}: {len(words)} columns, expected {6 + n_attributes} "
                    f"(file, class, 4 numbers of the box, {n_attributes} bits)."
                )
            values = [int(word) for word in words[2:]]
            if not set(values[4:]) <= {0, 1}:
                raise FileError(f"{path}, line {i}: attributes must be 0 or 1.")
            files.append(words[0])
            classes.append(words[1])
            numbers.append(values)
        if not files:
            raise FileError(f"{path} is empty; one object per line was expected.")
    return files, classes, numbers


def _check_classes(folder: Path, order: list[str], found: list[str]) -> None:
    if set(order) != set(found):
        odd = sorted(set(order) ^ set(found))[0]
        raise FileError(
            f"{folder}: class {odd!r} is in class_names.txt or in the annotations, not in both."
        )
