"""Running class counts, class means and scatter matrix of blocks of rows, updated in place."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.rows.memory import BLOCK_ROWS, PASS_ROWS, spans, totals
from semfs.validation import check_all_finite, encode_labels, label_array

__all__ = ["Accumulator"]

# The scatter matrix is updated in panels of this width: their products need little memory,
# and those below the diagonal are left out as in a symmetric BLAS update.
PANEL = 2048
# Rank-one corrections are collected and applied together.
LARGEST_RANK = 64


class Accumulator:
    """Sums over blocks of labelled rows, in memory that does not grow with their number.

    A block is centred about the mean of all rows so far, multiplied in its own precision and
    added up in float64; the rest follows Chan, Golub and LeVeque. A mean that drifts costs
    no digits: the gap between block and total enters their common scatter at least as
    strongly as the rounding errors it causes. Sparse blocks are not centred and are
    multiplied in float64.

    Parameters
    ----------
    n_features : int
        Number of columns d.
    matrix : bool, default=True
        Whether to form the d × d scatter matrix, or its diagonal only.
    precise : bool, default=False
        Whether products of float32 rows are taken in float64.

    Examples
    --------
    >>> sums = Accumulator(2)
    >>> sums.add(np.array([[0.0, 1.0], [2.0, 1.0]]), ["ant", "ant"])
    >>> sums.add(np.array([[4.0, 5.0]]), ["bee"])
    >>> classes, counts, means, scatter_diag, scatter = sums.result()
    >>> means
    array([[1., 1.],
           [4., 5.]])
    >>> scatter
    array([[ 8.        ,  8.        ],
           [ 8.        , 10.66666667]])
    """

    def __init__(self, n_features: int, *, matrix: bool = True, precise: bool = False) -> None:
        self.n_features, self.precise = n_features, precise
        self.position: dict[Any, int] = {}
        self.counts = np.zeros(0)
        self.class_sums = np.zeros((0, n_features))  # about the origin
        self.origin = np.zeros(n_features)
        self.total = 0.0
        self.mean = np.zeros(n_features)
        self.diag = np.zeros(n_features)
        self.upper = np.zeros((n_features, n_features)) if matrix else None
        self.rounding = 0.0
        self._waiting: list[tuple[float, np.ndarray]] = []
        self._shifts: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    # ---- adding -----------------------------------------------------------------------

    def add(
        self, X: Any, y: Any, weights: np.ndarray | None = None, *, overwrite: bool = False
    ) -> None:
        """Add rows X (r, d), float32 or float64, dense or CSR, with labels y (r,).

        ``overwrite`` allows the values of X to be changed, which saves a copy.
        """
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"a block of rows has {X.shape[1]} columns, those before had "
                f"{self.n_features}. All blocks must have the same columns."
            )
        labels, codes = encode_labels(y, n_samples=X.shape[0])
        counts = np.bincount(codes, weights, minlength=len(labels)).astype(np.float64)
        self.rounding = max(self.rounding, float(np.finfo(X.dtype).eps))
        if self.precise and not sp.issparse(X):
            overwrite, X = overwrite or X.dtype != np.float64, X.astype(np.float64, copy=False)
        centre = np.zeros(self.n_features) if sp.issparse(X) else self._centre(X)
        with np.errstate(all="ignore"):
            Z = X if sp.issparse(X) else np.subtract(X, centre, out=X if overwrite else None)
            sums, squares = totals(
                Z, codes, len(labels), weights, squares=self.upper is None or sp.issparse(X)
            )
        if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
            check_all_finite(Z)
        places = self._places(labels)
        if not counts.any():
            return
        if self.upper is not None:
            squares = self._add_products(Z, weights, may_change=Z is not X or overwrite)
        self._merge_classes(places, counts, sums, centre)
        self._merge_total(counts.sum(), sums.sum(axis=0) / counts.sum(), centre, squares)

    def merge(self, other: Accumulator) -> None:
        """Add what another accumulator has collected."""
        if not other.total:
            return
        self.rounding = max(self.rounding, other.rounding)
        places = self._places(other.labels)
        self._merge_classes(places, other.counts, other.class_sums, other.origin)
        self._shifts += [(places[p], counts, shift) for p, counts, shift in other._shifts]
        self._waiting += other._waiting
        if self.upper is not None:
            assert other.upper is not None
            for rows in spans(self.n_features, PANEL):
                self.upper[rows, rows.start :] += other.upper[rows, rows.start :]
        self._merge_total(other.total, np.zeros(self.n_features), other.mean, other.diag)

    @property
    def labels(self) -> np.ndarray:
        """Classes seen so far, in order of appearance."""
        return label_array(list(self.position))

    def __sizeof__(self) -> int:
        """Bytes, which a cluster takes into account."""
        matrix = 0 if self.upper is None else self.upper.nbytes
        return object.__sizeof__(self) + matrix + self.class_sums.nbytes + 4 * self.mean.nbytes

    def _centre(self, X: np.ndarray) -> np.ndarray:
        """A row near the mean, in the precision of X."""
        mean = self.mean
        if self.total == 0.0:
            with np.errstate(all="ignore"):
                mean = X[:BLOCK_ROWS].mean(axis=0, dtype=np.float64)
        return np.where(np.isfinite(mean), mean, 0.0).astype(X.dtype)

    def _places(self, labels: np.ndarray) -> np.ndarray:
        """Where these classes stand; new ones are appended."""
        for label in labels.tolist():
            self.position.setdefault(label, len(self.position))
        missing = len(self.position) - len(self.counts)
        if missing:
            self.counts = np.concatenate([self.counts, np.zeros(missing)])
            empty = np.zeros((missing, self.n_features))
            self.class_sums = np.concatenate([self.class_sums, empty])
        return np.array([self.position[label] for label in labels.tolist()], dtype=np.intp)

    def _merge_classes(
        self, places: np.ndarray, counts: np.ndarray, sums: np.ndarray, centre: np.ndarray
    ) -> None:
        """Add class sums about a centre; its distance from the origin enters later."""
        if self.total == 0.0:
            self.origin = centre.astype(np.float64)
        self.counts[places] += counts
        if np.array_equal(places, np.arange(len(self.counts))):
            self.class_sums += sums
        else:
            self.class_sums[places] += sums
        self._shifts.append((places, counts, centre - self.origin))

    def _merge_total(
        self, n: float, offset: np.ndarray, centre: np.ndarray, squares: np.ndarray
    ) -> None:
        """Pool with n rows of mean centre + offset and given squares about the centre."""
        gap = (centre.astype(np.float64) - self.mean) + offset
        factor = self.total * n / (self.total + n)
        self.diag += squares - n * offset**2 + factor * gap**2
        self._waiting += [(-n, offset), (factor, gap)]
        if len(self._waiting) >= LARGEST_RANK:
            self._apply_waiting()
        self.total += n
        self.mean = self.mean + n / self.total * gap

    # ---- the matrix, above the diagonal ------------------------------------------------

    def _add_products(
        self, Z: Any, weights: np.ndarray | None, *, may_change: bool
    ) -> np.ndarray:
        """Add Z'Z, weighted, to the matrix and return its diagonal (d,)."""
        assert self.upper is not None
        before = np.diagonal(self.upper).copy()
        if sp.issparse(Z):
            self._add_sparse_products(Z, weights)
            return np.diagonal(self.upper) - before
        if weights is not None:
            roots = np.sqrt(weights).astype(Z.dtype)[:, None]
            Z = np.multiply(Z, roots, out=Z if may_change else None)
        for rows in spans(Z.shape[0], 2 * PASS_ROWS):
            for i in spans(self.n_features, PANEL):
                left = Z[rows, i]
                self.upper[i, i] += left.T @ left
                for j in spans(self.n_features, PANEL):
                    if j.start > i.start:
                        self.upper[i, j] += left.T @ Z[rows, j]
        return np.diagonal(self.upper) - before

    def _add_sparse_products(self, Z: Any, weights: np.ndarray | None) -> None:
        assert self.upper is not None
        Z = Z.astype(np.float64)
        if weights is not None:
            Z = sp.diags_array(np.sqrt(weights)) @ Z
        Z = Z.tocsc()
        for i in spans(self.n_features, max(1, PANEL // 4)):
            first = i.start // PANEL * PANEL  # blocks on the diagonal are whole
            self.upper[i, first:] += (Z[:, i].T @ Z[:, first:]).toarray()

    def _apply_waiting(self) -> None:
        """Apply the collected rank-one corrections."""
        if self._shifts:
            weights = np.zeros((len(self.counts), len(self._shifts)))
            for column, (places, counts, _) in enumerate(self._shifts):
                weights[places, column] = counts
            self.class_sums += weights @ np.stack([shift for _, _, shift in self._shifts])
            self._shifts = []
        if self.upper is not None and self._waiting:
            factors = np.array([factor for factor, _ in self._waiting])
            U = np.stack([vector for _, vector in self._waiting])
            for i in spans(self.n_features, PANEL):
                left = (factors[:, None] * U[:, i]).T
                self.upper[i, i.start :] += left @ U[:, i.start :]
        self._waiting = []

    # ---- results -----------------------------------------------------------------------

    def result(
        self,
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray | None]:
        """Return classes, counts, class means, scatter diagonal and scatter matrix (or None).

        Classes are in the order of `fit`. The matrix is handed over, not copied: add no
        more rows afterwards.
        """
        labels, codes = encode_labels(self.labels)
        order = np.argsort(codes)
        self._apply_waiting()
        means = np.zeros_like(self.class_sums)
        filled = self.counts > 0
        means[filled] = self.origin + self.class_sums[filled] / self.counts[filled, None]
        if self.upper is None:
            diag = np.maximum(self.diag, 0.0)
        else:
            mirror(self.upper)
            diag = np.maximum(np.diagonal(self.upper), 0.0)
        return labels, self.counts[order], means[order], diag, self.upper

    def state(self) -> dict[str, np.ndarray]:
        """Return everything as plain arrays, for a checkpoint."""
        self._apply_waiting()
        labels = list(self.position)
        if not all(isinstance(label, (str, int, float, bool)) for label in labels):
            raise ValueError(
                "a checkpoint needs labels that are text or numbers, found "
                f"{type(labels[0]).__name__}. Convert them, or leave the checkpoint out."
            )
        state = {
            "labels": np.array(json.dumps(labels)),
            "counts": self.counts,
            "class_sums": self.class_sums,
            "origin": self.origin,
            "mean": self.mean,
            "diag": self.diag,
            "scalars": np.array([self.total, self.rounding, float(self.precise)]),
        }
        return state if self.upper is None else state | {"upper": self.upper}

    @classmethod
    def from_state(cls, state: dict[str, np.ndarray]) -> Accumulator:
        """Return the accumulator whose `state` this is."""
        total, rounding, precise = state["scalars"].tolist()
        out = cls(len(state["mean"]), matrix=False, precise=bool(precise))
        labels = json.loads(str(state["labels"]))
        out.position = {label: place for place, label in enumerate(labels)}
        out.counts, out.class_sums = state["counts"], state["class_sums"]
        out.origin = state["origin"]
        out.total, out.mean, out.diag = total, state["mean"], state["diag"]
        out.upper, out.rounding = state.get("upper"), rounding
        return out


def mirror(upper: np.ndarray) -> None:
    """Copy what is above the diagonal to below it."""
    d = len(upper)
    for i in spans(d, PANEL):
        for j in spans(d, PANEL):
            if j.start > i.start:
                upper[j, i] = upper[i, j].T
