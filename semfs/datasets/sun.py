"""The SUN attribute data (Patterson & Hays 2012) as its authors publish it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from semfs.datasets.base import ZeroShotDataset
from semfs.datasets.files import read_features
from semfs.datasets.matlab import read_mat
from semfs.files import FileError, need

__all__ = ["SUN_UNSEEN", "load_sun"]

#: The ten unseen scenes of the 707/10 split (Jayaraman & Grauman 2014, as kept by
#: Romera-Paredes & Torr 2015).
SUN_UNSEEN = (
    "archive",
    "art_school",
    "chemical_plant",
    "flea_market_indoor",
    "inn_indoor",
    "lab_classroom",
    "lake_natural",
    "mineshaft",
    "outhouse_outdoor",
    "shoe_shop",
)
_FILES = ("images.mat", "attributes.mat", "attributeLabels_continuous.mat")


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
    images, names, votes = (_variable(folder / f) for f in _FILES)
    classes = ["_".join(str(path).strip("/").split("/")[1:-1]) for path in images]
    if votes.shape != (len(classes), len(names)):
        raise FileError(
            f"{folder / _FILES[2]}: labels_cv has shape {votes.shape}, expected "
            f"{(len(classes), len(names))}: images × attributes."
        )
    if binarize is not None:
        votes = (votes >= binarize - 1e-9).astype(np.float64)  # 2/3 is not exact in binary
    pandas = need("pandas", "data")
    frame = pandas.DataFrame(votes, columns=[str(name).strip() for name in names])
    table = frame.groupby(np.array(classes)).mean()
    table.index.name = None
    X = np.empty((len(classes), 0)) if features is None else None
    if X is None:
        X = read_features(features, len(classes), key=key)
    unseen = [label for label in SUN_UNSEEN if label in table.index]
    return ZeroShotDataset("SUN", X, classes, table, unseen, info={"files": list(images)})


def _variable(path: Path) -> Any:
    name = {"attributeLabels_continuous": "labels_cv"}.get(path.stem, path.stem)
    found = read_mat(path, [name])
    kind = np.ndarray if name == "labels_cv" else list
    if not isinstance(found.get(name), kind):
        raise FileError(f"{path} has no variable {name!r} of the expected kind.")
    return found[name]
