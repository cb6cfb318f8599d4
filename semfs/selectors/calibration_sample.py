"""A few samples of each seen class, on which predictions are calibrated.

They are drawn by a hash of their values, so that neither the order of samples nor repeated
samples change the choice. Samples in a file are drawn likewise, in one more pass. If no samples
are available (only sums, a Dask cluster, or too many data to read again), Gaussian samples are
simulated.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.rows import MemoryRows
from semfs.rows.threads import in_threads

#: Samples of each class that are kept for calibration, at most.
SAMPLES_PER_CLASS = 20
#: Samples that are kept of all classes together, at most (two of each class at least). The
#: bias was within .01 of the best one with 20 samples of up to 150 classes.
MOST_SAMPLES = 3000
#: Rows of a block of samples that are hashed at once.
ROWS_AT_ONCE = 8192
#: To hash a number takes as long as to add up this many: it is alone in its cache line.
SUMS_PER_HASH = 8


@dataclass(frozen=True, eq=False)
class CalibrationSample:
    """Selected features of a few distinct samples of each seen class."""

    Z: Float64  # (s, k)
    codes: Indices  # (s,), their classes
    weights: Float64  # (s,), how often each occurs
    counts: Float64  # (C,), samples of each class that the means are those of; inf: simulated

    @classmethod
    def drawn(cls, rows: MemoryRows, features: Indices, n_classes: int) -> Self:
        """Draw random samples in memory, independent of the order of rows.

        Samples are taken in the order of a hash of their values. A sample that occurs twice
        counts as one sample of weight 2.
        """
        weights = np.ones(len(rows.codes))
        if rows.weights is not None:
            weights = np.asarray(rows.weights, dtype=np.float64)
        used = np.flatnonzero(weights > 0)
        codes = rows.codes[used]
        key = _row_hashes(rows.X, features)[used]
        found, totals = _first_by_hash(key, codes, weights[used], n_classes)
        Z = _part(rows.X, used[found], features)
        counts = np.bincount(codes, weights[used], minlength=n_classes).astype(np.float64)
        return cls(Z, codes[found], totals, counts)

    @classmethod
    def read(cls, blocks: Iterable[tuple[Float64, Indices, Float64]], n_classes: int) -> Self:
        """Draw the same samples from blocks of samples (r, k), classes (r,), weights (r,).

        At any time, only those are kept that would be drawn from the blocks so far.
        """
        counts = np.zeros(n_classes)
        kept: tuple[Float64, Indices, Float64] | None = None
        for Z, codes, weights in blocks:
            counts += np.bincount(codes, weights, minlength=n_classes)
            block = (Z, codes, np.asarray(weights, dtype=np.float64))
            parts = [block] if kept is None else [kept, block]
            Z_all, codes_all, weights_all = (
                np.concatenate([part[field] for part in parts]) for field in range(3)
            )
            found, totals = _first_by_hash(_hashes(Z_all), codes_all, weights_all, n_classes)
            kept = (Z_all[found], codes_all[found], totals)
        assert kept is not None
        return cls(*kept, counts)

    @classmethod
    def simulated(cls, means: Float64, within: Float64) -> Self:
        """Return samples from Gaussians about class means (C, k), if no others are known."""
        C, k = means.shape
        codes = np.repeat(np.arange(C), samples_per_class(C))
        values, vectors = np.linalg.eigh(within)
        root = vectors * np.sqrt(np.maximum(values, 0.0))
        noise = np.random.default_rng(0).standard_normal((len(codes), k))
        ones = np.ones(len(codes))
        return cls(means[codes] + noise @ root.T, codes, ones, np.full(C, np.inf))

    @property
    def is_real(self) -> bool:
        """Whether these are samples of the data, not simulated ones."""
        return bool(np.isfinite(self.counts).all())

    def keep_features(self, kept: Mask) -> CalibrationSample:
        """Return the same samples, restricted to the features in a mask (k,)."""
        return replace(self, Z=self.Z[:, kept])

    @property
    def shares(self) -> Float64:
        """Return weights (s,) that sum up to 1 in each class."""
        totals = np.bincount(self.codes, self.weights, minlength=len(self.counts))
        return self.weights / totals[self.codes]


def samples_per_class(n_classes: int) -> int:
    """Return how many samples of each class are kept."""
    return max(2, min(SAMPLES_PER_CLASS, MOST_SAMPLES // n_classes))


def _first_by_hash(
    key: npt.NDArray[np.uint64], codes: Indices, weights: Float64, n_classes: int
) -> tuple[Indices, Float64]:
    """Return the distinct samples of each class with the smallest hashes, and their weights.

    Samples (n,) of one class and one hash are the same sample, whose weights add up.
    """
    order = np.lexsort((key, codes))
    is_first = np.ones(len(order), dtype=bool)
    is_first[1:] = (np.diff(codes[order]) != 0) | (np.diff(key[order]) != 0)
    totals = np.add.reduceat(weights[order], np.flatnonzero(is_first))
    distinct = order[is_first]
    place = _places_in_groups(codes[distinct])
    drawn = np.flatnonzero(place < samples_per_class(n_classes))
    return distinct[drawn], totals[drawn]


def _row_hashes(X: Matrix, features: Indices) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random number (n,) for each row of X, from values of some features."""
    n = X.shape[0]
    found = np.empty(n, dtype=np.uint64)

    def fill(rows: slice) -> None:
        # a few megabytes at once, as only some features are taken
        for start in range(rows.start, rows.stop, ROWS_AT_ONCE):
            part = slice(start, min(start + ROWS_AT_ONCE, rows.stop))
            found[part] = _hashes(_part(X, part, features))

    in_threads(fill, n, SUMS_PER_HASH * n * len(features))
    return found


def _part(X: Matrix, rows: slice | Indices, features: Indices) -> Float64:
    """Return some rows and features of a matrix as a dense matrix."""
    found: Any
    if sp.issparse(X):
        found = X[rows]
        found = found[:, features].toarray()
    elif isinstance(rows, slice):
        # a view of the rows, of which only the features are copied
        found = np.take(X[rows], features, axis=1)
    else:
        found = X[rows[:, None], features]
    return np.asarray(found, dtype=np.float64)


def _hashes(Z: Float64) -> npt.NDArray[np.uint64]:
    """Return a pseudo-random number (n,) for each row of Z (n, k), the same for equal rows."""
    bits = (Z + 0.0).view(np.uint64)  # + 0.0: there are two zeros
    rng = np.random.default_rng(0)
    odd = rng.integers(0, 2**63, Z.shape[1], dtype=np.uint64) * 2 + 1
    mixed = (bits ^ (bits >> np.uint64(31))) * odd
    total = (mixed ^ (mixed >> np.uint64(29))).sum(axis=1, dtype=np.uint64)
    total *= np.uint64(0x9E3779B97F4A7C15)
    return total ^ (total >> np.uint64(32))


def _places_in_groups(groups: Indices) -> Indices:
    """Return the position (n,) of each entry within its group. Groups are sorted."""
    starts = np.flatnonzero(np.concatenate([[True], np.diff(groups) != 0]))
    lengths = np.diff(np.append(starts, len(groups)))
    return np.arange(len(groups)) - np.repeat(starts, lengths)
