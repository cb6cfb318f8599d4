"""`Moments`: class counts, class means and the scatter matrix, which are all a solver needs.

The objective depends on the data only through these moments, and moments of blocks of samples
can be added. So fits in memory, from a file and on a cluster give the same result.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs._typing import (
    ArrayLike,
    Float64,
    Floats,
    Indices,
    LabelsLike,
    Mask,
    Matrix,
)
from semfs.arrays import as_matrix, batches, canonical, quiet_overflow, take_columns
from semfs.labels import encode_labels, label_array
from semfs.rows.centering import Centering
from semfs.rows.device import DeviceRows, is_foreign
from semfs.rows.memory import MemoryRows, in_memory
from semfs.rows.source import RowSource
from semfs.rows.sums import FAR, NEAR, Accumulator, without_lost
from semfs.validation import check_all_finite, check_weights

#: A sum of moments keeps the samples while they are smaller than the d × d matrix they would
#: turn into, and in any case below this many bytes.
KEEP_ROWS_BYTES = 64 * 2**20
#: float32 data in memory of at most this many values are summed and multiplied in float64:
#: they then keep the digits that a tiny penalty needs. A sum takes about a millisecond.
SMALL_DATA = 2**18
#: A feature whose spread is below this many rounding units of its mean is constant.
CONSTANT_EPS = 8.0
#: Samples that are centered at a time when the within-class scatter is estimated.
ESTIMATE_ROWS = 256


@dataclass(frozen=True, eq=False)
class Moments:
    """Class counts, class means and total scatter of labeled samples.

    Create moments with `from_data` or `from_blocks`. To combine the moments of two sets of
    samples, add them with ``+``.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Class labels.
    counts : ndarray of shape (C,)
        Total weight of each class. Without sample weights, it is the number of samples of the
        class.
    means : ndarray of shape (C, d)
        Class means.
    scatter_diag : ndarray of shape (d,)
        Diagonal of the scatter matrix about the overall mean.
    rows : RowSource or None
        The samples, if keeping them is cheaper than keeping their scatter matrix. They are in
        memory, on another device, or in a file or cluster that can be read again.
    scatter_matrix : ndarray of shape (d, d) or None
        The scatter matrix about the overall mean, or None if the samples are kept instead.
    eps : float
        Rounding unit of the data type (float32 or float64).

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 5.0]]), ["ant", "ant", "bee"]
    >>> moments = Moments.from_data(X, y)
    >>> moments.counts
    array([2., 1.])
    >>> moments.means
    array([[1., 1.],
           [4., 5.]])
    >>> bool(np.allclose(moments.gram, X.T @ X))
    True
    """

    classes: np.ndarray
    counts: Float64
    means: Float64
    scatter_diag: Float64
    rows: Any  # RowSource or None
    scatter_matrix: Float64 | None
    eps: float

    # ---- building -------------------------------------------------------------------

    @classmethod
    def from_data(
        cls, X: ArrayLike | Matrix, y: LabelsLike, *, sample_weight: ArrayLike | None = None
    ) -> Moments:
        """Return the moments of labeled samples in memory.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Samples. Because only a reference is kept, do not change X while the moments are in
            use.
        y : array-like of shape (n,)
            Class labels, which must all have the same hashable type.
        sample_weight : array-like of shape (n,), optional
            Sample weights. To change the weight of a class, give all its samples the same
            weight.
        """
        X = as_matrix(X)
        n = X.shape[0]
        classes, codes = encode_labels(y, n_samples=n)
        return cls.from_checked(X, codes, classes, check_weights(sample_weight, n))

    @classmethod
    @quiet_overflow
    def from_checked(
        cls, X: Any, codes: Indices, classes: np.ndarray, weights: Float64 | None = None
    ) -> Moments:
        """Return the moments of validated X, or raise an error if X holds NaN or infinity."""
        if sp.issparse(X):
            X = canonical(X.tocsr())
        make_rows = DeviceRows if is_foreign(X) else MemoryRows
        rows = make_rows(X, codes, weights)
        counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
        total = counts.sum()
        # Sums of values and squares are taken about a shift near the data, so that features
        # far from the origin keep their digits.
        shift, sums, squares = _summed(rows).class_totals(len(classes))
        offset = sums.sum(axis=0) / total
        # A NaN, an infinity or an overflow of any value shows in these sums. Only then all
        # values are looked at, to name the place.
        single = rows.eps > np.finfo(np.float64).eps
        largest = np.finfo(np.float32 if single else np.float64).max
        if not (np.isfinite(offset).all() and (squares <= largest).all()):
            check_all_finite(X)
        # Σ(x − m)² = Σ(x − s)² − n (m − s)² with the shift s and the offset m − s.
        diag = squares - total * offset**2
        if sp.issparse(X):
            diag = without_lost(diag, offset, total)
        # An empty class has sums of 0, and gets means of 0 rather than NaN.
        means = np.divide(sums, np.maximum(counts, np.finfo(float).tiny)[:, None], out=sums)
        if shift.any():
            means += np.where(counts[:, None] > 0, shift, 0.0)
        return cls(
            classes,
            counts,
            means,
            np.maximum(diag, 0.0),
            rows,
            None,
            rows.eps,
        )

    @classmethod
    def from_blocks(
        cls,
        blocks: Iterable[tuple[Any, LabelsLike]],
    ) -> Moments:
        """Return the moments of all (X, y) blocks.

        Memory does not grow with the number of blocks. Classes need not be known in advance,
        because every label that occurs is a class.
        """
        kept: list[Moments] = []  # blocks whose samples are still small enough to be kept
        sums: Accumulator | None = None
        for X, y in blocks:
            if sums is not None:
                sums.add(as_matrix(X), y)
                continue
            kept.append(cls.from_data(X, y).copy())  # the caller may fill X with new values
            if not _can_be_kept(kept):
                sums = Accumulator(kept[0].n_features)
                for part in kept:
                    sums.add(part.rows.X, part.classes[part.rows.codes])
                kept = []
        if sums is not None:
            return cls.from_sums(sums)
        if not kept:
            raise ValueError("from_blocks got no blocks. Pass (X, y) pairs.")
        return _stack(kept)

    @classmethod
    def from_sums(cls, sums: Accumulator, rows: Any = None) -> Moments:
        """Return the moments that an accumulator has collected.

        Do not use the accumulator afterward. If it has no scatter matrix, pass ``rows``, a
        source of the samples that can be read again.
        """
        classes, counts, means, diag, scatter = sums.result()
        return cls(classes, counts, means, diag, rows, scatter, sums.eps)

    # ---- combining ------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the samples of both objects together."""
        if not isinstance(other, Moments):
            return NotImplemented
        if self.n_features != other.n_features:
            raise ValueError(
                f"Cannot add moments of {self.n_features} and {other.n_features} features."
            )
        if _can_be_kept([self, other]):
            return _stack([self, other])
        sums = _accumulated(self)
        sums += _accumulated(other)
        return self.from_sums(sums)

    def keep(self, classes: Iterable[Hashable]) -> Moments:
        """Return the moments of the samples of the given classes."""
        wanted = list(classes)
        known = self.classes.tolist()
        unknown = [label for label in wanted if label not in known]
        if unknown:
            raise ValueError(f"no class {unknown[0]!r} in these moments; known: {known}.")
        if set(wanted) == set(known):
            return self
        if self.rows is None or not self.rows.in_memory:
            raise ValueError(
                "keep(classes) needs the samples, but these moments have only the scatter "
                "matrix of all classes. Build one Moments per group of classes and add "
                "some of them."
            )
        kept = np.array([label in wanted for label in known])
        rows: MemoryRows = self.rows.keep_classes(kept)
        return self.from_checked(
            rows.X,
            rows.codes,
            self.classes[kept],
            rows.weights,
        )

    def without_empty_classes(self) -> Moments:
        """Return the moments without the classes that have zero weight."""
        nonempty = self.counts > 0
        if nonempty.all():
            return self
        return replace(
            self,
            classes=self.classes[nonempty],
            counts=self.counts[nonempty],
            means=self.means[nonempty],
            rows=None if self.rows is None else self.rows.keep_classes(nonempty),
        )

    def copy(self) -> Moments:
        """Return the same moments with a copy of the samples, which the caller may change."""
        if self.rows is None:
            return self
        return replace(self, rows=self.rows.copy())

    def compact(self, *, precise: bool = False) -> Moments:
        """Return the same moments with the scatter matrix instead of the samples."""
        if self.rows is None:
            return self
        return replace(
            self,
            rows=None,
            scatter_matrix=self.scatter(precise=precise),
        )

    # ---- reading --------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.means.shape[1]

    @property
    def total(self) -> float:
        """Total weight of all samples."""
        return float(self.counts.sum())

    @functools.cached_property
    def mean(self) -> Float64:
        """Overall mean of each feature."""
        return self.counts @ self.means / self.total

    @property
    def is_small(self) -> bool:
        """Whether the samples are in memory and so few that float64 is cheap."""
        rows = self.rows
        return rows is not None and rows.in_memory and rows.X.size <= SMALL_DATA

    @property
    def gram(self) -> Float64:
        """Weighted product X'X of the uncentered samples."""
        # Σ x x' = Σ (x − m)(x − m)' + n m m'.
        return self.scatter(precise=True) + self.total * np.outer(self.mean, self.mean)

    def constant(self) -> Mask:
        """Return a mask of the features whose spread is below rounding error."""
        noise = CONSTANT_EPS * self.eps * np.abs(self.mean)
        return self.scatter_diag <= self.total * noise**2

    def scatter_columns(
        self,
        columns: Indices,
        *,
        precise: bool = False,
    ) -> Float64:
        """Return columns of the scatter matrix about the mean, in float64."""
        if self.scatter_matrix is not None:
            return self.scatter_matrix[:, columns]
        # What is constant up to rounding error matters only if it is asked for.
        relevant = ~self.constant()
        relevant[columns] = True
        far = bool(self._farther_than(FAR)[relevant].any())
        rows: RowSource = self.rows
        precise = precise or self.is_small
        return rows.gram_columns(
            columns, Centering(self.mean, self.total, precise=precise, far=far)
        )

    @property
    def are_in_memory(self) -> bool:
        """Whether the scatter among some features can be computed without reading the data."""
        return self.scatter_matrix is not None or in_memory(self.rows)

    def scatter_among(self, features: Indices, *, precise: bool = False) -> Float64:
        """Return the scatter matrix of some features about the mean, in float64.

        The moments must be in memory.
        """
        if self.scatter_matrix is not None:
            return self.scatter_matrix[np.ix_(features, features)]
        rows: MemoryRows = self.rows
        far = bool(self._farther_than(FAR)[features].any())
        precise = precise or self.is_small
        centering = Centering(self.mean, self.total, precise=precise, far=far)
        return rows.gram_among(features, centering)

    def scatter(self, *, precise: bool = False) -> Float64:
        """Return the scatter matrix about the mean, in float64 if ``precise`` is true."""
        if self.scatter_matrix is not None:
            return self.scatter_matrix
        precise = precise or self.is_small
        near = not self._farther_than(NEAR)[~self.constant()].any()
        rows: RowSource = self.rows
        return rows.scatter(Centering(self.mean, self.total, precise=precise, near=near))

    def within_estimate(self, features: Indices) -> Floats | None:
        """Return an estimate of the within-class scatter of some features.

        The estimate is computed on a random subset of the samples. If there is no such subset,
        the result is None. Correlations on so few samples are too large by chance. On average,
        their squares exceed the true values by about 1/n_subset − 1/n. The correlations are
        therefore shrunk by the share of this excess in their mean square.
        """
        subset = None if self.rows is None else self.rows.sample_columns(features)
        if subset is None:
            return None
        E, codes, weights = subset
        means = take_columns(self.means, features)
        for rows in batches(len(E), ESTIMATE_ROWS):
            E[rows] -= means[codes[rows]]
        if weights is not None:
            # Relative weights: the factor total / n_subset below restores the size.
            mean_weight = weights.mean() or 1.0
            E *= np.sqrt(weights / mean_weight)[:, None]
        S = E.T @ E
        m = len(features)
        inverse_diag = 1.0 / np.maximum(np.diag(S), np.finfo(S.dtype).tiny)
        # The sum of r_ij² = S_ij² / (S_ii S_jj) over i ≠ j: the diagonal adds m ones.
        squared_correlations = float(inverse_diag @ (S**2 @ inverse_diag)) - m
        by_chance = m * (m - 1) * (1.0 / len(E) - 1.0 / max(self.total, len(E)))
        share_by_chance = by_chance / max(squared_correlations, 1e-30)
        S *= max(0.0, 1.0 - share_by_chance) * self.total / len(E)
        return S

    def _farther_than(self, times: float) -> Mask:
        """Return a mask (d,) of features whose mean exceeds ``times`` standard deviations.

        Products with raw values of such features lose digits.
        """
        spread = np.sqrt(self.scatter_diag / self.total)
        return np.abs(self.mean) > times * spread


def _summed(rows: MemoryRows | DeviceRows) -> MemoryRows | DeviceRows:
    """Return the samples without those of weight 0, in float64 if the data are small.

    Samples of weight 0 must not influence the shift of the others. Otherwise a feature that is
    constant except for them would seem to vary, because of rounding errors of its mean.
    """
    if not rows.in_memory:
        return rows
    X = rows.X
    codes = rows.codes
    weights = rows.weights
    if weights is not None and weights.any() and not weights.all():
        positive = weights > 0.0
        ignored = X[~positive]
        values = ignored.data if sp.issparse(ignored) else ignored
        if not np.isfinite(values).all():
            check_all_finite(X)
        X = X[positive]
        codes = codes[positive]
        weights = weights[positive]
    if X.dtype == np.float32 and X.size <= SMALL_DATA:
        X = X.astype(np.float64)
    return MemoryRows(X, codes, weights)


def _can_be_kept(parts: list[Moments]) -> bool:
    """Return whether the samples of all parts are in memory, and small enough to stay there."""
    if any(part.rows is None or not part.rows.in_memory for part in parts):
        return False
    rows: list[MemoryRows] = [part.rows for part in parts]
    # Dense and sparse samples cannot be stacked without converting one of them.
    if len({sp.issparse(source.X) for source in rows}) > 1:
        return False
    # 8 d² bytes is the scatter matrix in float64.
    limit = max(KEEP_ROWS_BYTES, 8 * parts[0].n_features ** 2)
    return sum(source.nbytes for source in rows) <= limit


def _stack(parts: list[Moments]) -> Moments:
    """Return the moments of the samples of all parts, which are in memory and stay there."""
    rows: list[MemoryRows] = [part.rows for part in parts]
    # Classes of all parts, and the place of each part's classes among them.
    labels = label_array([label for part in parts for label in part.classes.tolist()])
    classes, places = encode_labels(labels)
    sizes = [len(part.classes) for part in parts]
    places_of_parts = np.split(places, np.cumsum(sizes)[:-1])
    codes = [of_part[source.codes] for of_part, source in zip(places_of_parts, rows)]
    stack = sp.vstack if sp.issparse(rows[0].X) else np.concatenate
    X = stack([source.X for source in rows])
    weights = None
    if any(source.weights is not None for source in rows):
        weights = np.concatenate([_weights_of(source) for source in rows])
    return Moments.from_checked(X, np.concatenate(codes), classes, weights)


def _weights_of(rows: MemoryRows) -> Float64:
    """Return the sample weights (n,), which are 1 by default."""
    return np.ones(len(rows.codes)) if rows.weights is None else rows.weights


def _accumulated(moments: Moments) -> Accumulator:
    """Return an accumulator that holds the same sums as the moments."""
    sums = Accumulator(moments.n_features, matrix=False)
    sums.pool(
        moments.classes, moments.counts, moments.means, moments.mean, moments.scatter_diag
    )
    sums.upper = moments.scatter().copy()
    sums.eps = moments.eps
    if moments.rows is not None and moments.rows.in_memory:
        sums.sparse = sp.issparse(moments.rows.X)
    return sums
