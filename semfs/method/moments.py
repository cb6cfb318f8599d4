"""Class counts, class means and the scatter matrix: all a solver needs to know of X and y.

They add up over blocks of rows, so in-memory, streamed and distributed fits give the same
answer (the objective depends on the data through them alone).
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.arrays import batches, canonical
from semfs.labels import encode_labels, label_array
from semfs.rows import FAR, NEAR, Accumulator, DeviceRows, MemoryRows, as_matrix, is_foreign
from semfs.rows.sums import without_lost
from semfs.validation import check_all_finite, check_weights

# A sum of row moments keeps the rows while they are smaller than the d x d matrix they
# would turn into, and in any case below this many bytes.
KEEP_ROWS_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Moments:
    """Class counts, class means and total scatter of labeled rows; additive.

    Build it with `from_data` or `from_blocks`; add two with ``+``.

    Attributes
    ----------
    classes : ndarray of shape (C,)
        Class labels.
    counts : ndarray of shape (C,)
        Total weight of each class (the number of rows without sample weights).
    means : ndarray of shape (C, d)
        Class means.
    scatter_diag : ndarray of shape (d,)
        Diagonal of the scatter matrix about the overall mean.
    rows : RowSource or None
        The rows, while it is cheaper to keep them than their scatter matrix; in memory, on
        another device, or in a file or cluster that can be read again.
    scatter_matrix : ndarray of shape (d, d) or None
        The scatter matrix about the overall mean, once the rows are gone.
    eps : float
        Rounding unit of the data (that of float32 or float64).

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
    counts: np.ndarray
    means: np.ndarray
    scatter_diag: np.ndarray
    rows: Any
    scatter_matrix: np.ndarray | None
    eps: float

    # ---- building -------------------------------------------------------------------

    @classmethod
    def from_data(cls, X: Any, y: Any, *, sample_weight: Any = None) -> Moments:
        """Return the moments of X (n, d) with labels y (n,).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Kept by reference: do not change it while the moments are in use.
        y : array-like of shape (n,)
            Class labels of any one hashable type.
        sample_weight : array-like of shape (n,), optional
            Row weights. A class weight is a weight common to its rows.
        """
        X = as_matrix(X)
        classes, codes = encode_labels(y, n_samples=X.shape[0])
        return cls.from_checked(X, codes, classes, check_weights(sample_weight, X.shape[0]))

    @classmethod
    def from_checked(
        cls, X: Any, codes: np.ndarray, classes: np.ndarray, weights: np.ndarray | None = None
    ) -> Moments:
        """Return the moments of validated X; raises if X holds NaN or infinity."""
        if sp.issparse(X):
            X = canonical(X.tocsr())
        rows = (DeviceRows if is_foreign(X) else MemoryRows)(X, codes, weights)
        counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
        shift, sums, squares = rows.class_totals(len(classes))
        offset = sums.sum(axis=0) / counts.sum()  # overall mean, about the shift
        if not (np.isfinite(offset).all() and np.isfinite(squares).all()):
            check_all_finite(X)
        diag = squares - counts.sum() * offset**2
        if sp.issparse(X):
            diag = without_lost(diag, offset, counts.sum())
        means = np.divide(sums, np.maximum(counts, np.finfo(float).tiny)[:, None], out=sums)
        if shift.any():
            means += np.where(counts[:, None] > 0, shift, 0.0)
        moments = cls(classes, counts, means, np.maximum(diag, 0.0), rows, None, rows.eps)
        moments.__dict__["mean"] = offset + shift  # known already: saves a pass over the means
        return moments

    @classmethod
    def from_blocks(cls, blocks: Iterable[tuple[Any, Any]]) -> Moments:
        """Return the moments of all (X, y) blocks; memory does not grow with their number.

        The classes need not be known beforehand: the labels found are united.
        """
        pending: list[Moments] = []
        sums: Accumulator | None = None
        for X, y in blocks:
            if sums is not None:
                sums.add(as_matrix(X), y)
                continue
            pending.append(cls.from_data(X, y).copy())  # the caller may fill X again
            if not _rows_stay(pending):
                sums = Accumulator(pending[0].n_features)
                for part in pending:
                    sums.add(part.rows.X, part.classes[part.rows.codes])
                pending = []
        if sums is not None:
            return cls.from_sums(sums)
        if not pending:
            raise ValueError("from_blocks got no blocks. Pass (X, y) pairs.")
        return _stack(pending)

    @classmethod
    def from_sums(cls, sums: Accumulator, rows: Any = None) -> Moments:
        """Return the moments an accumulator has collected; it must not be used any more.

        Without a scatter matrix they need ``rows``, which can be read again.
        """
        classes, counts, means, diag, scatter = sums.result()
        return cls(classes, counts, means, diag, rows, scatter, sums.eps)

    # ---- combining ------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        if not isinstance(other, Moments):
            return NotImplemented
        if self.n_features != other.n_features:
            raise ValueError(
                f"Cannot add moments of {self.n_features} and {other.n_features} features."
            )
        if _rows_stay([self, other]):
            return _stack([self, other])
        sums = _accumulated(self)
        sums += _accumulated(other)
        return self.from_sums(sums)

    def keep(self, classes: Iterable) -> Moments:
        """Return the moments of the rows of these classes only."""
        wanted, known = list(classes), self.classes.tolist()
        for unknown in [c for c in wanted if c not in known]:
            raise ValueError(f"no class {unknown!r} in these moments; known: {known}.")
        if set(wanted) == set(known):
            return self
        rows = self.rows
        if rows is None or not rows.in_memory:
            raise ValueError(
                "keep(classes) needs the rows, but these moments have only the scatter matrix "
                "of all classes. Build one Moments per group of classes and add some of them."
            )
        kept = np.array([c in wanted for c in known])
        rows = rows.keep_classes(kept)
        return self.from_checked(rows.X, rows.codes, self.classes[kept], rows.weights)

    def without_empty_classes(self) -> Moments:
        """Return the moments without classes of zero weight."""
        full = self.counts > 0
        if full.all():
            return self
        rows = None if self.rows is None else self.rows.keep_classes(full)
        names = ("classes", "counts", "means")
        return replace(self, rows=rows, **{name: getattr(self, name)[full] for name in names})

    def copy(self) -> Moments:
        """Return the same with a copy of the rows, which the caller may change."""
        return self if self.rows is None else replace(self, rows=self.rows.copy())

    def compact(self, *, precise: bool = False) -> Moments:
        """Return the same moments with the scatter matrix in place of the rows."""
        if self.rows is None:
            return self
        return replace(self, rows=None, scatter_matrix=self.scatter(precise=precise))

    # ---- reading --------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of columns d."""
        return self.means.shape[1]

    @property
    def total(self) -> float:
        """Total weight of all rows."""
        return float(self.counts.sum())

    @functools.cached_property
    def mean(self) -> np.ndarray:
        """Overall mean (d,)."""
        return self.counts @ self.means / self.total

    @property
    def gram(self) -> np.ndarray:
        """X'X (d, d), weighted, about the origin."""
        return self.scatter(precise=True) + self.total * np.outer(self.mean, self.mean)

    def constant(self) -> np.ndarray:
        """Return a mask (d,) of the columns whose spread is below rounding error."""
        noise = 8.0 * self.eps * np.abs(self.mean)
        return self.scatter_diag <= self.total * noise**2

    def scatter_columns(self, columns: np.ndarray, *, precise: bool = False) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in float64; not yours.

        The last ones are kept: several problems over the same rows ask for the same.
        """
        if self.scatter_matrix is not None:
            return self.scatter_matrix[:, columns]
        asked = columns.tolist(), precise
        if self.__dict__.get("_asked") != asked:
            how = {"far": self._far_from_origin(), "precise": precise}
            found = self.rows.gram_columns(columns, self.mean, self.total, **how)
            self.__dict__.update(_asked=asked, _last=found)
        return self.__dict__["_last"]

    def within_estimate(self, features: np.ndarray) -> np.ndarray:
        """Return what some rows tell of the scatter within classes (m, m) of some features.

        Correlations are shrunk by the share of their squares that is due to so few rows.
        """
        E, codes, weights = self.rows.sample_columns(features)
        for rows in batches(len(E), 256):
            E[rows] -= self.means[codes[rows, None], features]
        E *= 1.0 if weights is None else np.sqrt(weights / (weights.mean() or 1.0))[:, None]
        S = E.T @ E
        inverse = 1.0 / np.maximum(np.diag(S), np.finfo(S.dtype).tiny)
        squares = float(inverse @ (S**2 @ inverse)) - len(S)  # of correlations
        chance = 1.0 / len(E) - 1.0 / max(self.total, len(E))
        share = chance * len(S) * (len(S) - 1) / max(squares, 1e-30)
        S *= max(0.0, 1.0 - share) * self.total / len(E)
        return S

    def scatter(self, *, precise: bool = False) -> np.ndarray:
        """Return the scatter matrix (d, d) about the mean; ``precise``: products in float64."""
        if self.scatter_matrix is not None:
            return self.scatter_matrix
        near = not self._far_from_origin(NEAR)
        return self.rows.scatter(self.mean, self.total, precise=precise, near=near)

    def _far_from_origin(self, times: float = FAR) -> bool:
        """Whether some mean is so large that products with raw values lose digits."""
        spread = np.sqrt(self.scatter_diag / self.total)
        return bool((np.abs(self.mean) > times * spread)[~self.constant()].any())


def _rows_stay(parts: list[Moments]) -> bool:
    """Whether the rows of all parts together are small enough to be kept."""
    rows = [part.rows for part in parts if part.rows is not None and part.rows.in_memory]
    if len(rows) < len(parts) or len({sp.issparse(r.X) for r in rows}) > 1:
        return False
    return sum(r.nbytes for r in rows) <= max(KEEP_ROWS_BYTES, 8 * parts[0].n_features ** 2)


def _stack(parts: list[Moments]) -> Moments:
    """The moments of the rows of all parts, rows kept."""
    labels = label_array([c for part in parts for c in part.classes.tolist()])
    classes, places = encode_labels(labels)
    starts = np.cumsum([0, *(len(part.classes) for part in parts)])
    rows = [part.rows for part in parts]
    X = (sp.vstack if sp.issparse(rows[0].X) else np.concatenate)([r.X for r in rows])
    codes = np.concatenate([places[start + r.codes] for start, r in zip(starts, rows)])
    own = [np.ones(len(r.codes)) if r.weights is None else r.weights for r in rows]
    plain = all(r.weights is None for r in rows)
    return Moments.from_checked(X, codes, classes, None if plain else np.concatenate(own))


def _accumulated(moments: Moments) -> Accumulator:
    """An accumulator that has collected what the moments hold."""
    sums, counts = Accumulator(moments.n_features, matrix=False), moments.counts
    sums.pool(moments.classes, counts, moments.means, moments.mean, moments.scatter_diag)
    sums.upper, sums.eps = moments.scatter().copy(), moments.eps
    sums.sparse = bool(moments.rows) and moments.rows.in_memory and sp.issparse(moments.rows.X)
    return sums
