"""Labeled rows in memory, and sums over rows: totals, Gram columns, scatter matrix.

Products are taken in the precision of the rows, block by block, and added up in float64.
`Rows` has all rows at hand; an `Accumulator` sees them once, block by block.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dger
from sklearn.utils import check_array
from threadpoolctl import ThreadpoolController

from semfs.arrays import batches, canonical
from semfs.labels import encode_labels, label_array
from semfs.system import memory_limit
from semfs.validation import check_all_finite

# Rows per step of a pass: wide enough for BLAS, small enough that float32 partial sums
# stay accurate before they are added up in float64.
BLOCK_ROWS = 1024
PASS_ROWS = 16 * BLOCK_ROWS
# Sparse rows whose squares are taken at a time, so that these stay in a cache.
SQUARED_ROWS = BLOCK_ROWS // 4
# Columns of the scatter matrix that are multiplied at a time: little memory, and what is below
# the diagonal is left out.
PANEL = 1024
# Rows, dense or sparse, that foretell what a fit will ask for.
SOME_ROWS, SOME_SPARSE_ROWS = 1024, 4096
# Smaller matrices are summed faster than threads start.
THREADS_FROM = 2**20
# A column whose mean exceeds its spread this many times is shifted before it is summed.
FAR = 32.0
# Up to this many spreads, the mean may be taken out of X'X afterwards at little loss; beyond so
# many nothing of the spread is left in sums about the origin.
NEAR, LOST = 8.0, 1e6


@dataclass(frozen=True, eq=False)
class Rows:
    """The data themselves, the thinnest factor of the scatter matrix when n is not large.

    X (n, d) dense or CSR and never copied, codes (n,), weights (n,) or None. `ArrayRows`,
    `BlockSource` and `ClusterRows` offer the same `columns`, `scatter`, `keep_classes` and
    `own` for rows that are elsewhere, and `Moments` treats them alike.
    """

    X: Any
    codes: np.ndarray
    weights: np.ndarray | None

    @property
    def nbytes(self) -> int:
        return self.X.data.nbytes if sp.issparse(self.X) else self.X.nbytes

    @property
    def n_features(self) -> int:
        return int(self.X.shape[1])

    @property
    def n_rows(self) -> int:
        return int(self.X.shape[0])

    @property
    def in_memory(self) -> bool:
        return True

    @property
    def eps(self) -> float:
        return float(np.finfo(self.X.dtype).eps)

    def sample_columns(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        return self.some(features)

    @property
    def rounding(self) -> float:
        return float(np.finfo(self.X.dtype).eps)

    def keep_classes(self, full: np.ndarray) -> Rows:
        """Return the rows of the classes in a mask (C,), under new codes."""
        chosen = np.flatnonzero(full[self.codes])
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(self.X[chosen], (np.cumsum(full) - 1)[self.codes[chosen]], weights)

    @property
    def preview(self) -> Rows:
        """Rows that may stand for all."""
        return self

    def some(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray, Any]:
        """Return features of some rows (s, m) at random, their codes (s,) and weights."""
        sparse = sp.issparse(self.X)
        most = SOME_SPARSE_ROWS if sparse else SOME_ROWS
        few = np.sort(np.random.default_rng(0).permutation(len(self.codes))[:most])
        weights = None if self.weights is None else self.weights[few]
        X = self.X[few][:, features].toarray() if sparse else self.X[few[:, None], features]
        return X, self.codes[few], weights

    def copy(self) -> Rows:
        """Return a copy, which the caller may keep while the data change."""
        return Rows(self.X.copy(), self.codes, self.weights)

    def class_totals(self, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a shift (d,), class sums (C, d) and column sums of squares (d,) about it."""
        shift = None if sp.issparse(self.X) else _typical_row(self.X)
        sums, squares = totals(self.X, self.codes, n_classes, self.weights, shift)
        return np.zeros_like(squares) if shift is None else shift.astype(float), sums, squares

    def gram_columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        dtype = np.float64 if precise else self.X.dtype
        if sp.issparse(self.X):  # plain products, and the mean's part afterwards
            out = -total * np.outer(mean, mean[columns])
            kind = np.float64 if far else dtype
            for product in sparse_products(self.X, columns, self.weights, kind):
                out += product
            return out
        center = mean[columns].astype(np.float64 if far else dtype)
        out = np.zeros((len(columns), self.X.shape[1]))
        for rows in batches(self.X.shape[0], PASS_ROWS):
            X = self.X[rows]
            Z = np.empty((len(X), len(columns)), dtype)

            def fill(part: slice, X: Any = X, Z: Any = Z) -> None:
                picked = np.take(X[part], columns, axis=1)
                np.subtract(picked, center, out=Z[part], casting="same_kind")

            in_threads(fill, len(X), Z.size)
            if self.weights is not None:
                Z *= self.weights[rows].astype(dtype)[:, None]
            # Z sums to zero over all rows, so X needs a shift only to keep its digits
            X = X.astype(dtype, copy=False)
            out += Z.T @ (X - mean.astype(dtype) if far else X)
        return out.T

    def scatter(
        self, mean: np.ndarray, total: float, *, precise: bool, near: bool = False
    ) -> np.ndarray:
        """Return the scatter matrix (d, d) about the mean.

        With X ``near`` the origin it is X'X with a correction, and no copy of X.
        """
        check_matrix_fits(len(mean))
        dtype = np.float64 if precise or sp.issparse(self.X) else self.X.dtype
        out = np.zeros((len(mean), len(mean)))
        if sp.issparse(self.X) or near:
            add_products(out, self.X, self.weights, dtype)
            return mirrored(add_outer(out, -total, mean))
        for rows in batches(self.X.shape[0], PASS_ROWS):
            weights = None if self.weights is None else self.weights[rows]
            add_products(out, self.X[rows] - mean.astype(dtype), weights, dtype)
        return mirrored(out)


MemoryRows = Rows
DIRECT = 'Use solver="direct", which does without it.'


def check_matrix_fits(d: int, budget: int | None = None, remedy: str = DIRECT) -> None:
    """Raise if a d × d matrix of float64 is beyond a budget, by default all memory."""
    limit = memory_limit() if budget is None else budget
    if 8 * d**2 > limit:
        raise ValueError(
            f"the scatter matrix of {d} features takes {8e-9 * d**2:.1f} GB, more than the "
            f"{1e-9 * limit:.1f} GB of memory there are for it. {remedy}"
        )


def as_matrix(X: Any) -> Any:
    """Return X as a float32 or float64 matrix, CSR if sparse; finiteness is checked later."""
    if getattr(X, "dtype", None) == np.float16:
        X = X.astype(np.float32)  # half precision is for storage, not for sums
    kinds: Any = {"accept_sparse": "csr", "dtype": [np.float64, np.float32]}
    return canonical(check_array(X, ensure_all_finite=False, **kinds))


def row_parts(X: Any, step: int = PASS_ROWS) -> Iterator[tuple[slice, Any]]:
    """Yield batches of rows of CSR X and a view of each: copies take as long as products."""
    for rows in batches(X.shape[0], step):
        starts = X.indptr[rows.start : rows.stop + 1]
        own = slice(starts[0], starts[-1])
        parts = X.data[own], X.indices[own], starts - starts[0]
        yield rows, type(X)(parts, shape=(len(starts) - 1, X.shape[1]))


def sparse_products(
    X: Any, columns: np.ndarray, weights: np.ndarray | None, dtype: Any
) -> Iterator[np.ndarray]:
    """Yield X'Z (d, b) of batches of CSR X, where Z are some of its columns, to be added up."""
    place = np.full(X.shape[1], -1, dtype=np.min_scalar_type(-1 - len(columns)))
    place[columns] = np.arange(len(columns))
    for rows, part in row_parts(X):
        where = place[part.indices]
        found = np.flatnonzero(where >= 0)
        starts = np.searchsorted(found, part.indptr)
        # a multiple of four columns: products then take an eighth less time
        Z = np.zeros((part.shape[0], -(-len(columns) // 4) * 4), dtype=dtype)
        Z[np.repeat(np.arange(len(Z)), np.diff(starts)), where[found]] = part.data[found]
        if weights is not None:
            Z *= weights[rows].astype(dtype)[:, None]
        yield (part.T @ Z)[:, : len(columns)]


def add_products(out: np.ndarray, X: Any, weights: np.ndarray | None, dtype: Any) -> None:
    """Add X'X, weighted, to ``out`` (d, d) on and above its diagonal."""
    for rows in batches(X.shape[0], X.shape[0] if sp.issparse(X) else 2 * PASS_ROWS):
        Z = X[rows].astype(dtype, copy=False)
        Z = Z.tocsc() if sp.issparse(Z) else Z
        for i in batches(len(out), PANEL):
            left = _scaled(Z[:, i], None if weights is None else weights[rows]).T
            for j in (i, slice(i.stop, len(out))):  # BLAS takes half the time for Z'Z
                product = left @ Z[:, j]
                out[i, j] += product.toarray() if sp.issparse(product) else product


def add_outer(G: np.ndarray, weight: float, v: np.ndarray) -> np.ndarray:
    """G + weight·vv', in place of a symmetric float64 G (d, d)."""
    # the transpose is in the layout BLAS wants, and no d x d temporary is made
    return dger(weight, v, v, a=G.T, overwrite_a=1).T


def mirrored(upper: np.ndarray) -> np.ndarray:
    """Return a matrix with what is above the diagonal copied to below it."""
    for i in batches(len(upper), PANEL):
        upper[i.stop :, i] = upper[i, i.stop :].T
    return upper


def _scaled(X: Any, factors: np.ndarray | None) -> Any:
    """Rows of X times factors (n,)."""
    if factors is None:
        return X
    factors = factors.astype(X.dtype)
    return sp.diags_array(factors) @ X if sp.issparse(X) else X * factors[:, None]


def totals(
    X: Any, codes: np.ndarray, n_classes: int, weights: Any, shift: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Return class sums (C, d) and column sums of squares (d,) of X - shift, in float64."""
    sums, squares = np.zeros((n_classes, X.shape[1])), np.zeros(X.shape[1])
    if sp.issparse(X):
        for own in sparse_totals(X, codes, n_classes, weights):
            sums += own[0]
            squares += own[1]
        return sums, squares
    # where there is a copy it is short; else blocks are as long as float32 sums are accurate
    for rows in batches(X.shape[0], PASS_ROWS if weights is shift is None else BLOCK_ROWS):
        Z = X[rows] if shift is None else X[rows] - shift
        _add_totals(sums, squares, Z, codes[rows], None if weights is None else weights[rows])
    return sums, squares


def in_threads(part: Callable[[slice], Any], n: int, size: int) -> list:
    """Return part(rows) of slices that cover range(n), in threads if ``size`` is worth it."""
    threads = min(8, n_threads()) if size >= THREADS_FROM else 1
    with ThreadPoolExecutor(threads) as pool:
        quiet = np.errstate(all="ignore")(part)  # overflow is reported by callers
        return list(pool.map(quiet, batches(n, -(-n // threads) or 1)))


@np.errstate(all="ignore")
def _add_totals(
    sums: np.ndarray, squares: np.ndarray, Z: np.ndarray, codes: np.ndarray, weights: Any
) -> None:
    """Add those of a block, some classes and some rows per thread."""
    w = np.ones(len(Z), Z.dtype) if weights is None else weights.astype(Z.dtype)
    members = sp.csr_array((w, (codes, np.arange(len(Z)))), shape=(len(sums), len(Z)))
    weighted = _scaled(Z, weights)

    def add(classes: slice) -> None:
        sums[classes] += members[classes] @ Z

    in_threads(add, len(sums), Z.size)
    own = in_threads(lambda r: np.einsum("ij,ij->j", Z[r], weighted[r]), len(Z), Z.size)
    squares += sum(own)


def _typical_row(X: np.ndarray) -> np.ndarray | None:
    """A row to subtract from X so that sums keep their digits; None if X is near zero."""
    with np.errstate(all="ignore"):
        first = X[:64].astype(np.float64)
        mean, spread = first.mean(axis=0), first.std(axis=0)
        far = np.isfinite(mean) & (np.abs(mean) > FAR * spread)
    return np.where(far, mean, 0.0).astype(X.dtype) if far.any() else None


def sparse_totals(
    X: Any, codes: np.ndarray, n_classes: int, weights: np.ndarray | None
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield class sums (C, d) and squares (d,) of batches of CSR, or of CSC X, about the origin.

    They are to be added up in float64. Sparse columns are near the origin.
    """
    kinds, d = codes.astype(np.int32, copy=False), X.shape[1]
    with np.errstate(all="ignore"):
        if X.format == "csc":  # columns come in parts; values in the same place add up
            values = X.data.astype(np.float64)
            data = values if weights is None else values * weights[X.indices]
            where, shape = (kinds[X.indices], X.indptr), (n_classes, d)
            sums = sp.csc_array((data, *where), shape=shape).toarray()
            data = np.multiply(data, values, out=values)
            yield sums, sp.csc_array((data, *where), shape=shape).toarray().sum(axis=0)
            return
        for rows, Z in row_parts(X):
            w = None if weights is None else weights[rows].astype(X.dtype)
            places = np.repeat(kinds[rows], np.diff(Z.indptr)), Z.indices
            data = Z.data if w is None else Z.data * np.repeat(w, np.diff(Z.indptr))
            sums = sp.coo_array((data, places), shape=(n_classes, d)).toarray()
            squares = np.zeros(d)
            for few, part in row_parts(Z, SQUARED_ROWS):
                own = slice(Z.indptr[few.start], Z.indptr[few.stop])
                parts = data[own] * part.data, part.indices, part.indptr[[0, -1]]
                squares += sp.csr_array(parts, shape=(1, d)).toarray()[0]
            yield sums, squares


def without_lost(diag: np.ndarray, mean: np.ndarray, total: float) -> np.ndarray:
    """The scatter (d,) of sparse rows, 0 for columns so far from the origin that it is lost."""
    lost = diag <= total * (mean / LOST) ** 2
    for column in np.flatnonzero(lost & (diag != 0.0))[:1]:
        warnings.warn(
            f"column {column} of sparse X, if not others too, is taken for constant: its mean "
            f"is over {LOST:.0e} times its spread. Subtract the mean, or make X dense.",
            stacklevel=2,
        )
    return np.where(lost, 0.0, diag)


def n_threads() -> int:
    """As many threads as BLAS may use, so that a user's limit is respected."""
    limits = [pool["num_threads"] for pool in libraries().info() if pool["user_api"] == "blas"]
    return max(1, min([*limits, os.cpu_count() or 1]))


@functools.cache
def libraries() -> ThreadpoolController:
    """Return the libraries that have threads; looking for them takes milliseconds."""
    return ThreadpoolController()


class Accumulator:
    """Sums over blocks of labeled rows, in memory that does not grow with their number.

    A block is centered about the mean of all rows so far, multiplied in its own precision and
    pooled in float64 as in Chan, Golub and LeVeque; sparse ones are not centered.

    ``matrix`` says whether to form the d × d scatter matrix, or its diagonal only; ``precise``
    whether products of float32 rows are taken in float64.
    """

    def __init__(self, n_features: int, *, matrix: bool = True, precise: bool = False) -> None:
        self.n_features, self.precise = n_features, precise
        self.position: dict[Any, int] = {}
        self.counts, self.means = np.zeros(0), np.zeros((0, n_features))
        self.total, self.mean, self.diag = 0.0, np.zeros(n_features), np.zeros(n_features)
        self.upper = np.zeros((n_features, n_features)) if matrix else None
        self.rounding, self.unlabeled = 0.0, False  # whether there are rows without a label
        self.sparse = False  # whether there are sums about the origin
        # some rows, positions of their classes, and weights: those of all rows of a class
        self.sample: list[tuple[Any, np.ndarray, np.ndarray]] = []
        # some columns (b,), and X'Z (d, b) of these, about the origin
        self.known: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def eps(self) -> float:
        return self.rounding

    @eps.setter
    def eps(self, value: float) -> None:
        self.rounding = value

    def add(self, X: Any, y: Any, weights: np.ndarray | None = None) -> None:
        """Add rows X (r, d), float32 or float64, dense or CSR, with labels y (r,)."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"a block of rows has {X.shape[1]} columns, those before had "
                f"{self.n_features}. All blocks must have the same columns."
            )
        labels, codes = encode_labels(y, n_samples=X.shape[0])
        counts = np.bincount(codes, weights, minlength=len(labels)).astype(np.float64)
        self.rounding = max(self.rounding, float(np.finfo(X.dtype).eps))
        self.sparse |= sp.issparse(X)
        dtype = np.float64 if self.precise or sp.issparse(X) else X.dtype
        center = np.zeros(self.n_features)
        if not sp.issparse(X):
            with np.errstate(all="ignore"):
                mean = self.mean if self.total else X[:BLOCK_ROWS].mean(axis=0, dtype=float)
                center = np.where(np.isfinite(mean), mean, 0.0).astype(dtype)
                X = X - center
        sums, squares = totals(X, codes, len(labels), weights)
        if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
            check_all_finite(X)
        if self.upper is not None and counts.sum():
            add_products(self.upper, X, weights, dtype)
            add_outer(self.upper, -counts.sum(), sums.sum(axis=0) / counts.sum())
        self.add_totals(labels, counts, sums, squares, center)

    def add_totals(
        self, labels: Iterable, counts: Any, sums: Any, squares: Any, center: Any = 0.0
    ) -> None:
        """Add counts (C,), sums (C, d) and squares (d,) about a center of labeled rows."""
        n = counts.sum()
        if n:
            offset = sums.sum(axis=0) / n
            means = center + sums / np.maximum(counts, np.finfo(float).tiny)[:, None]
            self.pool(labels, counts, means, center + offset, squares - n * offset**2)

    def __iadd__(self, other: Accumulator) -> Accumulator:
        self.unlabeled |= other.unlabeled
        if other.known is not None:
            products = other.known[1] + (0.0 if self.known is None else self.known[1])
            self.known = other.known[0], products
        if other.total:
            if self.upper is not None and other.upper is not None:
                self.upper += other.upper
            self.rounding = max(self.rounding, other.rounding)
            self.sparse |= other.sparse
            self.pool(other.position, other.counts, other.means, other.mean, other.diag)
            places = np.array([self.position[label] for label in other.position])
            self.sample += [(X, places[codes], w) for X, codes, w in other.sample]
        return self

    def preview(self) -> Rows | None:
        """Return the sample of rows, if there is one."""
        if not self.sample:
            return None
        X, places, weights = zip(*self.sample)
        codes = encode_labels(label_array(list(self.position)))[1]
        X = sp.vstack(X, format="csr")
        return Rows(X, codes[np.concatenate(places)], np.concatenate(weights))

    def pool(self, labels: Iterable, counts: Any, means: Any, mean: Any, diag: Any) -> None:
        """Pool class means, mean and scatter (without its matrix) with those of other rows."""
        found = labels.tolist() if isinstance(labels, np.ndarray) else list(labels)
        places = [self.position.setdefault(label, len(self.position)) for label in found]
        missing = len(self.position) - len(self.counts)
        self.counts = np.pad(self.counts, (0, missing))
        if missing:
            self.means = np.pad(self.means, ((0, missing), (0, 0)))
        # the same classes in the same order are a view, not a copy
        some = slice(len(places)) if places == list(range(len(places))) else places
        self.counts[some] += counts
        step = means - self.means[some]
        step *= (counts / np.maximum(self.counts[some], np.finfo(float).tiny))[:, None]
        self.means[some] += step
        n, gap = counts.sum(), mean - self.mean
        factor = self.total * n / (self.total + n)
        self.diag += diag + factor * gap**2
        if self.upper is not None:
            add_outer(self.upper, factor, gap)
        self.total += n
        self.mean = self.mean + n / self.total * gap

    def result(self) -> tuple[Any, ...]:
        """Return classes, counts, class means, scatter diagonal and matrix (or None)."""
        labels, codes = encode_labels(label_array(list(self.position)))
        order = np.argsort(codes)
        diag = self.diag if self.upper is None else np.diagonal(mirrored(self.upper))
        if self.sparse:
            diag = without_lost(diag, self.mean, self.total)
        counts, means = self.counts[order], self.means[order]
        return labels, counts, means, np.maximum(diag, 0.0), self.upper
