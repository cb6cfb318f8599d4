"""Where experiments find their data, and into which seen and unseen classes they split them."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets import (
    CATALOG,
    ZeroShotDataset,
    find_files,
    load_npz,
    load_sample,
    load_xlsa17,
)
from semfs.datasets.catalog import data_folders

__all__ = [
    "Source",
    "class_splits",
    "find_source",
    "find_sources",
    "fingerprint",
    "split_facts",
]

RANDOM_SPLITS = 5
UNSEEN_SHARE = 0.3


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: an ``.npz`` file, a folder of the xlsa17 benchmark, or
    ``path=None`` for the bundled sample.
    """

    name: str
    path: str | None = None

    def load(self) -> ZeroShotDataset:
        """Read it; the last two read stay in memory."""
        return _load(self)


@lru_cache(maxsize=2)
def _load(source: Source) -> ZeroShotDataset:
    if source.path is None:
        return load_sample("blood")
    path = Path(source.path)
    return load_xlsa17(path.parent, path.name) if path.is_dir() else load_npz(path)


def find_sources(folder: Any, wanted: Sequence[str] = ()) -> list[Source]:
    """Return the data sets of a folder, or the sample without a folder.

    They are its ``.npz`` files with X, y and A (`semfs.datasets.load_npz`), and folders of
    the xlsa17 benchmark (``CUB/res101.mat`` and ``CUB/att_splits.mat``, say). ``wanted`` are
    names or beginnings of names; "sample" is the bundled data.
    """
    if folder is None:
        found = [Source("sample")]
    elif not Path(folder).is_dir():
        raise ValueError(f"{folder} is not a directory. Give the one with your data sets.")
    else:
        files = sorted(Path(folder).glob("*.npz"))
        found = [Source(file.stem, str(file.resolve())) for file in files if _is_dataset(file)]
        found += _xlsa17_sources([Path(folder)])
    if not found:
        raise ValueError(
            f"{folder} holds no data set: no .npz file with arrays X, y and A, and no folder "
            "with res101.mat and att_splits.mat. See: semfs datasets"
        )
    if not wanted:
        return found
    known = [*found, Source("sample")] if folder is not None else found
    chosen = {w: [s for s in known if s.name.lower().startswith(w.lower())] for w in wanted}
    for name, sources in chosen.items():
        if not sources:
            names = ", ".join(s.name for s in known)
            raise ValueError(f"There is no data set {name!r}. Found: {names}.")
    return list(dict.fromkeys(s for sources in chosen.values() for s in sources))


def _xlsa17_sources(folders: list[Path]) -> list[Source]:
    entries = [entry for entry in CATALOG if entry.loader.startswith("load_xlsa17")]
    places = {entry.name: find_files(entry, folders) for entry in entries}
    return [Source(name, str(place.resolve())) for name, place in places.items() if place]


def _is_dataset(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
    except zipfile.BadZipFile:
        return False
    return {"y", "A"} <= names and bool({"X", "X_data"} & names)


def class_splits(data: ZeroShotDataset, limit: int | None, seed: int) -> dict[str, list]:
    """Return the unseen classes of each split of a data set, by the name of the split.

    The data set's own ``unseen`` if it has any; all pairs of seen classes for CIFAR10, in
    random order; else random splits with 30 % of the classes unseen. ``limit`` bounds their
    number; with a larger one the first splits stay the same.

    Examples
    --------
    >>> splits = class_splits(load_sample("blood"), None, 0)
    >>> {name: len(unseen) for name, unseen in splits.items()}
    {'given': 4}
    """
    classes = data.classes.tolist()
    if len(data.unseen):
        return {"given": data.unseen.tolist()}
    if len(classes) < 4:
        raise ValueError(
            f"{data.name} has {len(classes)} classes; a split needs 2 seen and 2 unseen ones."
        )
    if data.name.lower().startswith("cifar10") and len(classes) == 10:
        pairs = list(itertools.combinations(classes, 2))
        order = np.random.RandomState(seed).permutation(len(pairs))[:limit]
        chosen = [pairs[i] for i in order]
        return {f"{a}+{b}": [c for c in classes if c not in (a, b)] for a, b in chosen}
    n_unseen = min(max(2, round(UNSEEN_SHARE * len(classes))), len(classes) - 2)
    draws = data.random_splits(limit or RANDOM_SPLITS, n_unseen, random_state=seed)
    return {f"random-{i}": draw.unseen.tolist() for i, draw in enumerate(draws)}


def find_source(name: Any) -> Source:
    """Return one data set: "sample", an ``.npz`` file, or a benchmark by name (see CATALOG)."""
    if str(name) == "sample":
        return Source("sample")
    if Path(name).is_file():
        return Source(Path(name).stem, str(Path(name).resolve()))
    for source in _xlsa17_sources(data_folders()):
        if source.name.lower() == str(name).lower():
            return source
    missing = [entry for entry in CATALOG if entry.name.lower() == str(name).lower()]
    if missing:
        raise ValueError(
            f"{missing[0].name} was not found on this machine. To get it: {missing[0].source}"
        )
    near = difflib.get_close_matches(str(name), ["sample", *(e.name for e in CATALOG)], n=1)
    raise ValueError(
        f"There is no data set {str(name)!r}"
        + (f"; did you mean {near[0]!r}?" if near else ".")
        + " Give sample, an .npz file with arrays X, y and A, or a name that `semfs datasets` "
        "lists as found."
    )


def split_facts(data: ZeroShotDataset, unseen: list) -> dict[str, Any]:
    """Return sizes and classes of a split."""
    rows = np.isin(data.y, unseen)
    seen = [label for label in data.classes.tolist() if label not in unseen]
    return {
        "n_seen": int((~rows).sum()),
        "n_unseen": int(rows.sum()),
        "seen": seen,
        "unseen": list(unseen),
    }


def fingerprint(data: ZeroShotDataset) -> str:
    """Hash of the numbers and labels: other data under the same name must not be mixed."""
    X = data.X
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    digest = hashlib.sha256(repr((X.shape, data.y.tolist())).encode())
    for part in [*parts, data.attributes.to_numpy()]:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]
