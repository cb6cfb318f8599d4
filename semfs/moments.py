"""Class counts, class means and the scatter matrix: all a solver needs to know of X and y.

They add up over blocks of rows, so in-memory, streamed and distributed fits give the same
answer (the objective depends on the data through them alone).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array
from threadpoolctl import threadpool_info

from semfs.validation import check_all_finite, check_weights, encode_labels, label_array

__all__ = ["Moments"]

# Rows per step of a pass: wide enough for BLAS, small enough that float32 partial sums
# stay accurate before they are added up in float64.
BLOCK_ROWS = 1024
PASS_ROWS = 8 * BLOCK_ROWS
# Smaller matrices are summed faster than threads start.
THREADS_FROM = 2**22
# A column whose mean exceeds its spread this many times is shifted before it is summed.
FAR = 32.0
# A sum of row moments keeps the rows while they are smaller than the d x d matrix they
# would turn into, and in any case below this many bytes.
KEEP_ROWS_BYTES = 64 * 2**20


@dataclass(frozen=True, eq=False)
class Rows:
    """The data themselves, the thinnest factor of the scatter matrix when n is not large.

    X (n, d) dense or CSR and never copied, codes (n,), weights (n,) or None.
    """

    X: Any
    codes: np.ndarray
    weights: np.ndarray | None

    @property
    def nbytes(self) -> int:
        return self.X.data.nbytes if sp.issparse(self.X) else self.X.nbytes

    def take(self, rows: np.ndarray, codes: np.ndarray) -> Rows:
        """Return the given rows under new class codes."""
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.X[rows], codes, weights)


@dataclass(frozen=True, eq=False)
class Moments:
    """Class counts, class means and total scatter of labelled rows; additive.

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
    rows : Rows or None
        The rows, while it is cheaper to keep them than their scatter matrix.
    scatter_matrix : ndarray of shape (d, d) or None
        The scatter matrix about the overall mean, once the rows are gone.
    itemsize_error : float
        Rounding unit of the data (that of float32 or float64).

    Examples
    --------
    >>> import numpy as np
    >>> X, y = np.array([[0.0, 1.0], [2.0, 1.0], [4.0, 5.0]]), ["ant", "ant", "bee"]
    >>> moments = Moments.from_data(X, y)
    >>> moments.counts
    array([2., 1.])
    >>> moments.sums
    array([[2., 2.],
           [4., 5.]])
    >>> bool(np.allclose(moments.gram, X.T @ X))
    True
    """

    classes: np.ndarray
    counts: np.ndarray
    means: np.ndarray
    scatter_diag: np.ndarray
    rows: Rows | None
    scatter_matrix: np.ndarray | None
    itemsize_error: float

    # ---- building -------------------------------------------------------------------

    @classmethod
    def from_data(
        cls, X: Any, y: Any, *, classes: Iterable | None = None, sample_weight: Any = None
    ) -> Moments:
        """Return the moments of X (n, d) with labels y (n,).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Kept by reference: do not change it while the moments are in use.
        y : array-like of shape (n,)
            Class labels of any one hashable type.
        classes : iterable, optional
            The class labels to use, in this order; some may have no rows here.
        sample_weight : array-like of shape (n,), optional
            Row weights. A class weight is a weight common to its rows.
        """
        X = as_matrix(X)
        found, codes = encode_labels(y, n_samples=X.shape[0])
        if classes is not None:
            found, codes = _recode(found, codes, list(classes))
        return cls.from_checked(X, codes, found, check_weights(sample_weight, X.shape[0]))

    @classmethod
    def from_checked(
        cls, X: Any, codes: np.ndarray, classes: np.ndarray, weights: np.ndarray | None = None
    ) -> Moments:
        """Return the moments of validated X; raises if X holds NaN or infinity."""
        if sp.issparse(X):
            X = X.tocsr()
        counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
        shift, sums, squares = _totals(X, codes, len(classes), weights)
        offset = sums.sum(axis=0) / counts.sum()  # overall mean, about the shift
        if not (np.isfinite(offset).all() and np.isfinite(squares).all()):
            check_all_finite(X)
        diag = np.maximum(squares - counts.sum() * offset**2, 0.0)
        means = np.divide(sums, np.maximum(counts, np.finfo(float).tiny)[:, None], out=sums)
        if shift.any():
            means += np.where(counts[:, None] > 0, shift, 0.0)
        eps = float(np.finfo(X.dtype).eps)
        return cls(classes, counts, means, diag, Rows(X, codes, weights), None, eps)

    @classmethod
    def from_blocks(cls, blocks: Iterable[tuple[Any, Any]]) -> Moments:
        """Return the moments of all (X, y) blocks; memory does not grow with their number.

        The classes need not be known beforehand: the labels found are united.
        """
        total: Moments | None = None
        pending: list[Moments] = []
        for X, y in blocks:
            block = cls.from_data(X, y)
            pending.append(block)
            if not _rows_stay(pending):
                total = _flush(total, pending)
                pending = []
            else:  # the caller may fill the same buffer again
                pending[-1] = block.own()
        if total is None and not pending:
            raise ValueError("from_blocks got no blocks. Pass (X, y) pairs.")
        if total is None:
            return _stack(pending)
        return _flush(total, pending) if pending else total

    # ---- combining ------------------------------------------------------------------

    def __add__(self, other: Moments) -> Moments:
        """Return the moments of the rows of both."""
        if not isinstance(other, Moments):
            return NotImplemented
        if self.n_features != other.n_features:
            raise ValueError(
                f"Cannot add moments of {self.n_features} and {other.n_features} features."
            )
        return _stack([self, other]) if _rows_stay([self, other]) else _merge(self, other)

    def keep(self, classes: Iterable) -> Moments:
        """Return the moments of the rows of these classes only."""
        wanted = list(classes)
        position = {label: i for i, label in enumerate(self.classes.tolist())}
        unknown = [c for c in wanted if c not in position]
        if unknown:
            raise ValueError(
                f"no class {unknown[0]!r} in these moments; known: {self.classes.tolist()}."
            )
        index = np.array([position[c] for c in wanted], dtype=np.intp)
        if set(wanted) == set(position):
            return self
        if self.rows is None:
            raise ValueError(
                "keep(classes) needs the rows, but these moments have only the scatter "
                "matrix summed over all classes. Build one Moments per group of classes "
                "and add the groups you want."
            )
        new_code = np.full(len(self.classes), -1, dtype=np.intp)
        new_code[index] = np.arange(len(index))
        chosen = np.flatnonzero(new_code[self.rows.codes] >= 0)
        rows = self.rows.take(chosen, new_code[self.rows.codes[chosen]])
        return self.from_checked(rows.X, rows.codes, self.classes[index], rows.weights)

    def reweighted(self, class_weight: dict) -> Moments:
        """Return the moments with every row multiplied by the weight of its class."""
        factors = np.array([float(class_weight.get(c, 1.0)) for c in self.classes.tolist()])
        if (factors == 1.0).all():
            return self
        if self.rows is None:
            raise ValueError(
                "class_weight needs the rows, but these moments have only the scatter "
                "matrix summed over all classes. Pass the weights as sample_weight when "
                "the moments are built."
            )
        weights = factors[self.rows.codes]
        if self.rows.weights is not None:
            weights = weights * self.rows.weights
        return self.from_checked(self.rows.X, self.rows.codes, self.classes, weights)

    def without_empty_classes(self) -> Moments:
        """Return the moments without classes of zero weight."""
        full = self.counts > 0
        if full.all():
            return self
        rows = self.rows
        if rows is not None:
            chosen = np.flatnonzero(full[rows.codes])
            new_code = np.cumsum(full) - 1
            rows = rows.take(chosen, new_code[rows.codes[chosen]])
        return replace(
            self,
            classes=self.classes[full],
            counts=self.counts[full],
            means=self.means[full],
            rows=rows,
        )

    def own(self) -> Moments:
        """Return the same moments with a copy of the rows, which the caller may change."""
        if self.rows is None:
            return self
        return replace(self, rows=replace(self.rows, X=self.rows.X.copy()))

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

    @property
    def sums(self) -> np.ndarray:
        """Class sums (C, d)."""
        return self.counts[:, None] * self.means

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
        noise = 8.0 * self.itemsize_error * np.abs(self.mean)
        return self.scatter_diag <= self.total * noise**2

    def scatter_columns(self, columns: np.ndarray, *, precise: bool = False) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        if self.rows is None:
            assert self.scatter_matrix is not None
            return self.scatter_matrix[:, columns]
        if sp.issparse(self.rows.X):
            return self._sparse_columns(columns)
        out = np.zeros((len(columns), self.n_features))
        for block, weights in self._centred_columns(columns, precise):
            X, Z = block
            if weights is not None:
                Z = Z * weights[:, None]
            # Z sums to zero over all rows, so X needs no centring of its own.
            out += Z.T @ X
        return out.T

    def scatter(self, *, precise: bool = False) -> np.ndarray:
        """Return the scatter matrix (d, d) about the mean, in float64.

        Products of float32 rows are taken in float32 and added up in float64; with
        ``precise`` the products are in float64 as well.
        """
        return self.stretched_scatter(0.0, precise=precise)

    def stretched_scatter(self, alpha: float, *, precise: bool = False) -> np.ndarray:
        """Return scatter + alpha * between-class scatter (d, d), about the mean.

        It is the scatter of rows whose class means are stretched by √(1 + alpha), which
        costs no more than the plain one.
        """
        if self.rows is not None and not sp.issparse(self.rows.X):
            blocks = (Z.T @ Z for Z in self._stretched_rows(np.sqrt(1.0 + alpha), precise))
            out = next(blocks).astype(np.float64)
            for block in blocks:
                out += block
            return out
        if self.rows is None:
            assert self.scatter_matrix is not None
            out = self.scatter_matrix
        else:
            spans = _spans(self.n_features, 512)
            out = np.hstack([self._sparse_columns(np.arange(r.start, r.stop)) for r in spans])
        if alpha == 0.0:
            return out
        root = np.sqrt(alpha * self.counts)[:, None] * (self.means - self.mean)
        return out + root.T @ root

    def _sparse_columns(self, columns: np.ndarray) -> np.ndarray:
        """Columns of X'X minus the mean's part; X stays sparse."""
        assert self.rows is not None
        X, weights = self.rows.X, self.rows.weights
        picked = X[:, columns].astype(np.float64)
        if weights is not None:
            picked = sp.diags_array(weights) @ picked
        mean = self.mean
        return (X.T @ picked).toarray() - self.total * np.outer(mean, mean[columns])

    def _centred_columns(
        self, columns: np.ndarray, precise: bool
    ) -> Iterator[tuple[tuple[np.ndarray, np.ndarray], np.ndarray | None]]:
        """Yield (X block, centred columns of it) and weights."""
        assert self.rows is not None
        X, dtype = self.rows.X, np.float64 if precise else self.rows.X.dtype
        shift = self.mean if self._far_from_origin() else None
        for rows in _spans(X.shape[0], PASS_ROWS):
            block = X[rows].astype(dtype, copy=False)
            picked = (X[rows][:, columns].astype(np.float64) - self.mean[columns]).astype(dtype)
            if shift is not None:
                block = block - shift.astype(dtype)
            yield (block, picked), self._block_weights(rows, dtype)

    def _stretched_rows(self, stretch: float, precise: bool) -> Iterator[np.ndarray]:
        """Yield blocks of x - mean with class means stretched, times sqrt(weight)."""
        assert self.rows is not None
        X, dtype = self.rows.X, np.float64 if precise else self.rows.X.dtype
        shifts = ((stretch - 1.0) * (self.means - self.mean) - self.mean).astype(dtype)
        for rows in _spans(X.shape[0], 2 * PASS_ROWS):
            block = X[rows] + shifts[self.rows.codes[rows]]
            weights = self._block_weights(rows, dtype)
            if weights is not None:
                block *= np.sqrt(weights)[:, None]
            yield block

    def _block_weights(self, rows: slice, dtype: Any) -> np.ndarray | None:
        assert self.rows is not None
        return None if self.rows.weights is None else self.rows.weights[rows].astype(dtype)

    def _far_from_origin(self) -> bool:
        """Whether some mean is so large that products with raw values lose digits."""
        spread = np.sqrt(self.scatter_diag / self.total)
        return bool((np.abs(self.mean) > FAR * spread)[~self.constant()].any())


def as_matrix(X: Any) -> Any:
    """Return X as a float32 or float64 matrix, CSR if sparse; finiteness is checked later."""
    if getattr(X, "dtype", None) == np.float16:
        X = X.astype(np.float32)  # half precision is for storage, not for sums
    return check_array(
        X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
    )


# ---- one pass over the rows ---------------------------------------------------------------


def _totals(
    X: Any, codes: np.ndarray, n_classes: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return a shift (d,), class sums (C, d) and column sums of squares (d,) about it."""
    if sp.issparse(X):
        return _sparse_totals(X, codes, n_classes, weights)
    shift = _typical_row(X)
    # A shifted copy is made block by block; without one, blocks may be as long as float32
    # sums stay accurate, which is faster when there are many classes.
    spans = list(_spans(X.shape[0], PASS_ROWS if shift is None else BLOCK_ROWS))
    threads = min(_n_threads(), len(spans)) if X.size >= THREADS_FROM else 1
    jobs = [spans[i::threads] for i in range(threads)]

    def work(job: list[slice]) -> tuple[np.ndarray, np.ndarray]:
        return _dense_totals(X, codes, n_classes, weights, shift, job)

    if threads == 1:
        parts = [work(jobs[0])]
    else:  # numpy and scipy release the interpreter lock in these loops
        with ThreadPoolExecutor(threads) as pool:
            parts = list(pool.map(work, jobs))
    sums = functools.reduce(np.add, (part[0] for part in parts))
    squares = functools.reduce(np.add, (part[1] for part in parts))
    return np.zeros(X.shape[1]) if shift is None else shift.astype(np.float64), sums, squares


def _typical_row(X: np.ndarray) -> np.ndarray | None:
    """A row to subtract from X so that sums keep their digits; None if X is near zero."""
    with np.errstate(all="ignore"):
        first = X[:64].astype(np.float64)
        mean, spread = first.mean(axis=0), first.std(axis=0)
        far = np.isfinite(mean) & (np.abs(mean) > FAR * spread)
    return np.where(far, mean, 0.0).astype(X.dtype) if far.any() else None


def _dense_totals(
    X: np.ndarray,
    codes: np.ndarray,
    n_classes: int,
    weights: np.ndarray | None,
    shift: np.ndarray | None,
    spans: list[slice],
) -> tuple[np.ndarray, np.ndarray]:
    """Class sums and sums of squares of X - shift over some row spans."""
    sums, squares = np.zeros((n_classes, X.shape[1])), np.zeros(X.shape[1])
    with np.errstate(all="ignore"):  # non-finite input is reported by the caller
        for rows in spans:
            Z = X[rows] if shift is None else X[rows] - shift
            w = None if weights is None else weights[rows].astype(X.dtype)
            present, member = np.unique(codes[rows], return_inverse=True)
            sums[present] += _indicator(member, len(present), X.dtype, w) @ Z
            if w is None:
                squares += np.einsum("ij,ij->j", Z, Z)
            else:
                squares += np.einsum("i,ij,ij->j", w, Z, Z)
    return sums, squares


def _sparse_totals(
    X: Any, codes: np.ndarray, n_classes: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The same for sparse X, about the origin (sparse columns are near it)."""
    sums = (_indicator(codes, n_classes, np.float64, weights) @ X).toarray()
    w = np.ones(X.shape[0]) if weights is None else weights
    with np.errstate(all="ignore"):
        squares = X.multiply(X).T @ w
    return np.zeros(X.shape[1]), sums, np.asarray(squares).ravel()


def _indicator(
    codes: np.ndarray, n_classes: int, dtype: Any, weights: np.ndarray | None
) -> Any:
    """Class indicator (C, n) in CSR form, weighted."""
    data = np.ones(len(codes), dtype=dtype) if weights is None else weights.astype(dtype)
    index = (codes, np.arange(len(codes)))
    return sp.csr_array((data, index), shape=(n_classes, len(codes)))


def _spans(n: int, step: int) -> Iterator[slice]:
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _n_threads() -> int:
    """As many threads as BLAS may use, so that a user's limit is respected."""
    limits = [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]
    return max(1, min([*limits, os.cpu_count() or 1]))


# ---- sums of moments ----------------------------------------------------------------------


def _recode(
    found: np.ndarray, codes: np.ndarray, classes: list
) -> tuple[np.ndarray, np.ndarray]:
    """Codes with respect to a given list of classes."""
    position = {label: i for i, label in enumerate(classes)}
    unknown = [c for c in found.tolist() if c not in position]
    if unknown:
        raise ValueError(f"y has class {unknown[0]!r}, which is not in classes={classes}.")
    new = np.array([position[c] for c in found.tolist()], dtype=np.intp)
    return label_array(classes), new[codes]


def _unite(parts: list[Moments]) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the union of the class lists, and where each part's classes stand in it."""
    first = parts[0].classes
    if all(np.array_equal(part.classes, first) for part in parts):
        return first, [np.arange(len(first))] * len(parts)
    union, codes = encode_labels(label_array([c for p in parts for c in p.classes.tolist()]))
    cuts = np.cumsum([len(part.classes) for part in parts])[:-1]
    return union, np.split(codes, cuts)


def _rows_stay(parts: list[Moments]) -> bool:
    """Whether the rows of all parts together are small enough to be kept."""
    rows = [part.rows for part in parts if part.rows is not None]
    if len(rows) < len(parts) or len({sp.issparse(r.X) for r in rows}) > 1:
        return False
    return sum(r.nbytes for r in rows) <= max(KEEP_ROWS_BYTES, 8 * parts[0].n_features ** 2)


def _stack(parts: list[Moments]) -> Moments:
    """The moments of the rows of all parts, rows kept."""
    classes, places = _unite(parts)
    rows = [part.rows for part in parts if part.rows is not None]
    X = (sp.vstack if sp.issparse(rows[0].X) else np.concatenate)([r.X for r in rows])
    codes = np.concatenate([place[r.codes] for place, r in zip(places, rows)])
    weights = None
    if any(r.weights is not None for r in rows):
        weights = np.concatenate(
            [np.ones(len(r.codes)) if r.weights is None else r.weights for r in rows]
        )
    return Moments.from_checked(X, codes, classes, weights)


def _flush(total: Moments | None, pending: list[Moments]) -> Moments:
    block = _stack(pending).compact()
    return block if total is None else _merge(total, block)


def _merge(a: Moments, b: Moments) -> Moments:
    """Pool means and scatter about the mean (Chan, Golub and LeVeque), free of cancellation."""
    classes, places = _unite([a, b])
    counts, means = np.zeros((2, len(classes))), np.zeros((2, len(classes), a.n_features))
    for i, (part, place) in enumerate(zip((a, b), places)):
        counts[i, place], means[i, place] = part.counts, part.means
    pooled = counts.sum(axis=0)
    share = np.divide(counts[1], pooled, out=np.zeros_like(pooled), where=pooled > 0)
    gap = b.mean - a.mean
    factor = a.total * b.total / (a.total + b.total)
    scatter = a.scatter() + b.scatter()
    scatter += factor * np.outer(gap, gap)
    return Moments(
        classes,
        pooled,
        means[0] + share[:, None] * (means[1] - means[0]),
        a.scatter_diag + b.scatter_diag + factor * gap**2,
        None,
        scatter,
        max(a.itemsize_error, b.itemsize_error),
    )
