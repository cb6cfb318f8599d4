"""Class splits of real data: samples of seen classes, and samples of unseen ones.

A folder that the user names holds one .npz file per data set, with samples X (n, d), classes y
(n,) and class attributes A (C, m). docs/knowledge.md says where the data come from.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from blood_cells import load_blood_cells
from sklearn.datasets import load_digits

MOST_SEEN = 300  # samples per seen class, so that no class takes all the time
MOST_UNSEEN = 150  # samples per unseen class
FEWEST = 8  # cells of a type

# name: file, number of unseen classes
DATA = {
    "animals31": ("animals31_awa85_lite0_head1280", 10),
    "CLINC150": ("clinc150_minilm384", 30),
    "aPascal": ("apy_lite0_head1280", 8),
    "blood cells": (None, 4),
    "digits": (None, 5),
    "human lung": ("cells/human_lung", 12),
    "CIFAR10": ("cifar10_lite0_multi4256_6k", 5),
}


@dataclass(frozen=True)
class Split:
    """Samples X and classes y of the seen classes, Xu and yu of the unseen; attributes A."""

    name: str
    number: int
    X: np.ndarray
    y: np.ndarray
    A: np.ndarray | None
    Xu: np.ndarray
    yu: np.ndarray

    def few(self, per_class: int) -> Split:
        """The same with so many unlabeled samples of each unseen class."""
        rng = np.random.default_rng(7 + self.number)
        rows = [np.flatnonzero(self.yu == c) for c in np.unique(self.yu)]
        kept = np.sort(np.concatenate([rng.permutation(r)[:per_class] for r in rows]))
        return replace(self, Xu=self.Xu[kept], yu=self.yu[kept])


def load(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Samples (n, d), classes (n,) and class attributes (C, m) of a data set."""
    file, _ = DATA[name]
    if name == "digits":
        data = load_digits()
        return data.data.astype(np.float32), data.target, None
    if name == "blood cells":
        X, labels, table = load_blood_cells()
        classes, y = np.unique(labels, return_inverse=True)
        return X, y, table.loc[classes].to_numpy(dtype=float)
    with np.load(folder / f"{file}.npz") as stored:
        X = stored["X"].astype(np.float32)
        y = stored["y"].astype(int)
        A = stored["A"]
        kept = np.ones(len(y), dtype=bool)
        if name == "aPascal":
            kept = stored["source"] == 0
        if name == "human lung":
            A = A[:, ~stored["own_term_only"]]
            kept = np.bincount(y)[y] >= FEWEST
        if name == "CIFAR10":
            X = X[:, :1280]
    return X[kept], y[kept], A.astype(float)


def class_split(
    name: str,
    number: int,
    folder: Path,
    seed: str = "",
    most: tuple[int, int] = (MOST_SEEN, MOST_UNSEEN),
) -> Split:
    """The class split of a data set with this number.

    ``seed`` names a series of splits; ``most`` are samples per seen and per unseen class.
    """
    X, y, A = load(name, folder)
    rng = np.random.default_rng(zlib.crc32(f"{seed}{name} {number}".encode()))
    unseen = rng.choice(np.unique(y), DATA[name][1], replace=False)

    def some_rows(mask: np.ndarray, limit: int) -> np.ndarray:
        rows = [np.flatnonzero(mask & (y == c)) for c in np.unique(y[mask])]
        return np.sort(np.concatenate([rng.permutation(r)[:limit] for r in rows]))

    new = np.isin(y, unseen)
    seen_rows = some_rows(~new, most[0])
    new_rows = some_rows(new, most[1])
    return Split(name, number, X[seen_rows], y[seen_rows], A, X[new_rows], y[new_rows])


def class_means(X: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Means (C, d) of the classes."""
    return np.stack([X[y == c].mean(axis=0, dtype=float) for c in np.unique(y)])
