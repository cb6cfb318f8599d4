"""What experiments are run on: data sets, their class splits, and one split as a `Case`."""

from __future__ import annotations

import difflib
import hashlib
import itertools
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.attributes import align_attributes
from semfs.datasets import (
    CATALOG,
    ZeroShotDataset,
    find_files,
    load_npz,
    load_sample,
    load_xlsa17,
)
from semfs.datasets.catalog import data_folders
from semfs.method.moments import Moments

__all__ = ["Case", "Source", "as_source", "class_splits", "find_sources"]

PAPER_DATASETS = ("SUN", "aPY", "CIFAR10")
RANDOM_SPLITS = 5
UNSEEN_SHARE = 0.3


# ---- where data come from -------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """Where a data set comes from: an ``.npz`` file, a folder of the xlsa17 benchmark, the
    data themselves, or (``path=None``) the bundled sample.
    """

    name: str
    path: str | None = None
    data: ZeroShotDataset | None = field(default=None, compare=False, repr=False)

    def load(self) -> ZeroShotDataset:
        """Read it; the last two read stay in memory."""
        return _load(self) if self.data is None else self.data


@lru_cache(maxsize=2)
def _load(source: Source) -> ZeroShotDataset:
    if source.path is None:
        return load_sample("blood")
    path = Path(source.path)
    return load_xlsa17(path.parent, path.name) if path.is_dir() else load_npz(path)


def as_source(data: Any) -> Source:
    """Return the source of one data set, however it is given.

    ``data`` is a ZeroShotDataset, a tuple ``(X, y, attributes)`` (attributes as `SemFS` takes
    them), "sample", an ``.npz`` file, or the name of a benchmark (see CATALOG).
    """
    if isinstance(data, ZeroShotDataset):
        return Source(data.name, data=data)
    if isinstance(data, tuple):
        return Source("data", data=_dataset(*data))
    name = str(data)
    if name == "sample":
        return Source("sample")
    if Path(name).is_file():
        if Path(name).suffix != ".npz":
            raise ValueError(
                f"{name} is not an .npz file. Read it with load_h5ad or load_table of "
                "semfs.datasets, and pass the data set."
            )
        return Source(Path(name).stem, str(Path(name).resolve()))
    for source in _xlsa17_sources(data_folders()):
        if source.name.lower() == name.lower():
            return source
    for entry in CATALOG:
        if entry.name.lower() == name.lower():
            raise ValueError(
                f"{entry.name} was not found on this machine. To get it: {entry.source}"
            )
    near = difflib.get_close_matches(name, ["sample", *(e.name for e in CATALOG)], n=1)
    raise ValueError(
        f"There is no data set {name!r}"
        + (f"; did you mean {near[0]!r}?" if near else ".")
        + " Give sample, an .npz file with arrays X, y and A, or a name that `semfs datasets` "
        "lists as found."
    )


def _dataset(X: Any, y: Any, attributes: Any = None) -> ZeroShotDataset:
    """Rows, labels and class descriptions of any kind (None: the labels) as a data set."""
    import pandas as pd

    labels = np.asarray(y)
    table = align_attributes(attributes, np.unique(labels))
    frame = pd.DataFrame(table.values, index=table.classes, columns=table.names)
    columns = getattr(X, "columns", None)
    return ZeroShotDataset(
        "data", X, labels, frame, feature_names=None if columns is None else list(columns)
    )


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
    known = [*found, Source("sample")] if folder is not None else found
    chosen = {w: [s for s in known if s.name.lower().startswith(w.lower())] for w in wanted}
    for name, sources in chosen.items():
        if not sources:
            names = ", ".join(s.name for s in known)
            raise ValueError(f"There is no data set {name!r}. Found: {names}.")
    return list(dict.fromkeys(itertools.chain(*chosen.values()))) if wanted else found


def absent_from_the_paper(sources: Sequence[Source]) -> list[str]:
    """Return the paper's data sets that are not among the sources.

    >>> absent_from_the_paper([Source("cifar10_small")])
    ['SUN', 'aPY']
    """
    names = [source.name.lower() for source in sources]
    return [p for p in PAPER_DATASETS if not any(n.startswith(p.lower()) for n in names)]


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


# ---- seen and unseen classes ----------------------------------------------------------------


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
    if data.name.lower().startswith("cifar10") and len(classes) == 10:
        pairs = list(itertools.combinations(classes, 2))
        order = np.random.RandomState(seed).permutation(len(pairs))[:limit]
        chosen = [pairs[i] for i in order]
        return {f"{a}+{b}": [c for c in classes if c not in (a, b)] for a, b in chosen}
    return random_splits(data, limit or RANDOM_SPLITS, seed)


def random_splits(data: ZeroShotDataset, n_splits: int, seed: int) -> dict[str, list]:
    """Return random splits with as many unseen classes as the data set has, or 30 %."""
    n_classes = len(data.classes)
    if n_classes < 4:
        raise ValueError(
            f"{data.name} has {n_classes} classes; a split needs 2 seen and 2 unseen ones."
        )
    wanted = len(data.unseen) or round(UNSEEN_SHARE * n_classes)
    n_unseen = min(max(2, wanted), n_classes - 2)
    draws = data.random_splits(n_splits, n_unseen, random_state=seed)
    return {f"random-{i}": draw.unseen.tolist() for i, draw in enumerate(draws)}


def split_facts(data: ZeroShotDataset, unseen: list) -> dict[str, Any]:
    """Return sizes and classes of a split."""
    rows = np.isin(data.y, unseen)
    seen = [label for label in data.classes.tolist() if label not in unseen]
    return {
        "n_seen": int((~rows).sum()),
        "n_unseen": int(rows.sum()),
        "seen": seen,
        "unseen": list(unseen),
        "n_features": data.X.shape[1],
        "n_attributes": data.attributes.shape[1],
    }


def fingerprint(data: ZeroShotDataset) -> str:
    """Hash of the numbers and labels: other data under the same name must not be mixed."""
    X = data.X
    parts = [X.data, X.indices, X.indptr] if sparse.issparse(X) else [X]
    digest = hashlib.sha256(repr((X.shape, data.y.tolist())).encode())
    for part in [*parts, data.attributes.to_numpy()]:
        digest.update(np.ascontiguousarray(part).tobytes())
    return digest.hexdigest()[:16]


# ---- one split ------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Case:
    """Seen rows X (n, d) with labels y, class table, and the unseen rows to be told apart."""

    X: Any
    y: np.ndarray
    attributes: Any
    X_unseen: Any
    y_unseen: np.ndarray
    feature_names: np.ndarray

    @classmethod
    def of(cls, data: ZeroShotDataset) -> Case:
        """Return the case of a data set with its split."""
        X, y, X_unseen, y_unseen = data.split()
        return cls(X, y, data.attributes, X_unseen, y_unseen, data.feature_names)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.X.shape[1]

    @cached_property
    def moments(self) -> tuple[Moments, float]:
        """Moments of the seen rows, and the seconds they took."""
        start = time.perf_counter()
        return Moments.from_data(self.X, self.y), time.perf_counter() - start

    def names(self, features: np.ndarray) -> list[str]:
        """Return the names of features given by index."""
        return [str(name) for name in self.feature_names[features]]

    def sample(self, rows: np.ndarray) -> Case:
        """Return the case with these seen rows only, in their order in the data."""
        rows = np.sort(rows)
        return replace(self, X=self.X[rows], y=self.y[rows])

    def with_ratio(self, ratio: float, seed: int) -> Case:
        """Return the case with a random share of each seen class, at least two rows of each.

        Examples
        --------
        >>> len(scaling_data(100, 5, seed=0).with_ratio(0.5, seed=0).y)
        60
        """
        if ratio >= 1.0:
            return self
        rng = np.random.RandomState(seed)
        kept = []
        for label in np.unique(self.y):
            rows = np.flatnonzero(self.y == label)
            n_kept = min(len(rows), max(2, int(np.ceil(ratio * len(rows) - 1e-9))))
            kept.append(rng.permutation(rows)[:n_kept])
        return self.sample(np.concatenate(kept))

    def dense(self) -> Case:
        """Return the case with the seen rows as an array, for methods that need one."""
        return replace(self, X=self.X.toarray()) if sparse.issparse(self.X) else self


def scaling_data(
    n: int, d: int, seed: int, n_classes: int = 20, n_attributes: int = 50
) -> Case:
    """Return n seen rows of d features made from class attributes plus noise, in float32."""
    rng = np.random.RandomState(seed)
    A = (rng.uniform(size=(n_classes, n_attributes)) < 0.3).astype(np.float64)
    mixing = rng.standard_normal((n_attributes, d)) * (rng.uniform(size=d) < 0.2)
    y = np.arange(n) % n_classes
    X = (A[y] @ mixing + 2.0 * rng.standard_normal((n, d))).astype(np.float32)
    names = np.array([f"x{j}" for j in range(d)], dtype=object)
    return Case(X, y, dict(enumerate(A)), X[:0], y[:0], names)
