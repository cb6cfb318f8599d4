"""Labelled rows in memory, and the passes over them: totals, Gram columns, scatter matrix.

Dense and sparse rows here; `devices`, `passes` and `cluster` have the same for rows elsewhere.
`Moments` treats them alike.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise, repeat
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dger
from sklearn.utils import check_array
from threadpoolctl import ThreadpoolController

from semfs.files import memory_limit

__all__ = ["RowPasses", "Rows", "as_matrix", "column_products", "spans", "totals"]

# Rows per step of a pass: wide enough for BLAS, small enough that float32 partial sums
# stay accurate before they are added up in float64.
BLOCK_ROWS = 1024
PASS_ROWS = 16 * BLOCK_ROWS
# Smaller matrices are summed faster than threads start.
THREADS_FROM = 2**22
# A column whose mean exceeds its spread this many times is shifted before it is summed.
FAR = 32.0
# Up to this many spreads, the mean may be taken out of X'X afterwards at little loss.
NEAR = 8.0


class RowPasses(Protocol):
    """What `Moments` asks of rows, wherever they are."""

    def columns(
        self, columns: np.ndarray, mean: np.ndarray, total: float, *, far: bool, precise: bool
    ) -> np.ndarray:
        """Columns (d, b) of the scatter matrix about the mean, in float64."""

    def scatter(
        self, means: np.ndarray, counts: np.ndarray, alpha: float, *, precise: bool
    ) -> np.ndarray:
        """Scatter + alpha * between-class scatter (d, d) about the mean, in float64."""

    def of_classes(self, full: np.ndarray) -> Any:
        """The rows of the classes in a mask (C,), under new codes."""


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
        """Size of the numbers."""
        return self.X.data.nbytes if sp.issparse(self.X) else self.X.nbytes

    @property
    def rounding(self) -> float:
        """Rounding unit of the data."""
        return float(np.finfo(self.X.dtype).eps)

    def take(self, rows: np.ndarray, codes: np.ndarray) -> Rows:
        """Return the given rows under new class codes."""
        weights = None if self.weights is None else self.weights[rows]
        return Rows(self.X[rows], codes, weights)

    def of_classes(self, full: np.ndarray) -> Rows:
        """Return the rows of the classes in a mask (C,), under new codes."""
        chosen = np.flatnonzero(full[self.codes])
        return self.take(chosen, (np.cumsum(full) - 1)[self.codes[chosen]])

    def own(self) -> Rows:
        """Return a copy, which the caller may keep while the data change."""
        return Rows(self.X.copy(), self.codes, self.weights)

    def totals(self, n_classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return a shift (d,), class sums (C, d) and column sums of squares (d,) about it."""
        if sp.issparse(self.X):
            shift = None
        else:
            shift = _typical_row(self.X)
        sums, squares = totals(self.X, self.codes, n_classes, self.weights, shift)
        d = self.X.shape[1]
        return np.zeros(d) if shift is None else shift.astype(np.float64), sums, squares

    def columns(
        self,
        columns: np.ndarray,
        mean: np.ndarray,
        total: float,
        *,
        far: bool,
        precise: bool,
        gaps: np.ndarray | None = None,
    ) -> np.ndarray:
        """Return columns (d, b) of the scatter matrix about the mean, in float64.

        ``gaps`` (C, b) are added to the columns of dense X, class by class.
        """
        X, weights = self.X, self.weights
        if sp.issparse(X):
            out = column_products(X, columns, mean, weights)
            return out.T - total * np.outer(mean, mean[columns])
        out = np.zeros((len(columns), X.shape[1]))
        for rows in self._passes():
            w = None if weights is None else weights[rows]
            add = None if gaps is None else gaps[self.codes[rows]]
            out += column_products(X[rows], columns, mean, w, far=far, precise=precise, add=add)
        return out.T

    def scatter(
        self,
        means: np.ndarray,
        counts: np.ndarray,
        alpha: float,
        *,
        precise: bool,
        near: bool = False,
    ) -> np.ndarray:
        """Return scatter + alpha * between-class scatter (d, d), about the mean.

        With X ``near`` the origin it is X'X with a correction of low rank, and no copy of X;
        else the scatter of rows whose class means are stretched by √(1 + alpha).
        """
        check_matrix_fits(means.shape[1])
        mean = counts @ means / counts.sum()
        if sp.issparse(self.X):
            return self._sparse_scatter(means, mean, counts, alpha)
        dtype = np.float64 if precise else self.X.dtype
        if near and self.weights is None:
            out = _sum_of_products(self.X[r].astype(dtype, copy=False) for r in self._passes())
            root = (np.sqrt(alpha * counts)[:, None] * (means - mean)).astype(dtype)
            if alpha:
                out += root.T @ root
            return add_outer(out, -counts.sum(), mean)
        return _sum_of_products(self._stretched(means, mean, alpha, dtype))

    def _passes(self) -> Iterator[slice]:
        return spans(self.X.shape[0], PASS_ROWS)

    def _stretched(
        self, means: np.ndarray, mean: np.ndarray, alpha: float, dtype: Any
    ) -> Iterator[np.ndarray]:
        """Blocks of centred, weighted rows whose class means are stretched by √(1 + alpha)."""
        shifts = ((np.sqrt(1.0 + alpha) - 1.0) * (means - mean) - mean).astype(dtype)
        for rows in self._passes():
            Z = self.X[rows] + shifts[self.codes[rows]]
            if self.weights is not None:
                Z *= np.sqrt(self.weights[rows].astype(dtype))[:, None]
            yield Z

    def _sparse_scatter(
        self, means: np.ndarray, mean: np.ndarray, counts: np.ndarray, alpha: float
    ) -> np.ndarray:
        panels = []
        for part in spans(self.X.shape[1], 512):
            columns = np.arange(part.start, part.stop)
            panels.append(column_products(self.X, columns, mean, self.weights))
        out = np.vstack(panels) - counts.sum() * np.outer(mean, mean)
        root = np.sqrt(alpha * counts)[:, None] * (means - mean)
        return out + root.T @ root if alpha else out


def add_outer(G: np.ndarray, weight: float, v: np.ndarray) -> np.ndarray:
    """G + weight·vv', in place of a symmetric float64 G (d, d)."""
    # the transpose is in the layout BLAS wants, and no d x d temporary is made
    return dger(weight, v, v, a=G.T, overwrite_a=1).T


def _sum_of_products(blocks: Iterable[np.ndarray]) -> np.ndarray:
    """Σ Z'Z (d, d) over blocks, added up in float64."""
    out = None
    for Z in blocks:
        product = Z.T @ Z
        out = product.astype(np.float64) if out is None else np.add(out, product, out=out)
    assert out is not None
    return out


def column_products(
    X: Any,
    columns: np.ndarray,
    mean: np.ndarray,
    weights: np.ndarray | None,
    *,
    far: bool = False,
    precise: bool = False,
    add: np.ndarray | None = None,
) -> np.ndarray:
    """Return what a block of rows adds to some rows (b, d) of the scatter matrix.

    Dense: Z'X with Z the centred columns, plus ``add`` (n, b). Z sums to zero over all rows,
    so X needs no centring, only a shift if it is ``far`` from the origin. Sparse: plain
    products, from which the caller takes the mean's part.
    """
    if sp.issparse(X):
        picked = X[:, columns].astype(np.float64)
        if weights is not None:
            picked = sp.diags_array(weights) @ picked
        return (picked.T @ X).toarray()
    dtype = np.float64 if precise else X.dtype
    Z = np.take(X, columns, axis=1).astype(np.float64 if far else dtype, copy=False)
    Z -= mean[columns].astype(Z.dtype)
    Z = Z.astype(dtype, copy=False)
    if add is not None:
        Z += add
    if weights is not None:
        Z *= weights.astype(dtype)[:, None]
    block = X.astype(dtype, copy=False)
    return Z.T @ (block - mean.astype(dtype) if far else block)


def check_matrix_fits(d: int) -> None:
    """Raise if a d × d matrix of float64 is beyond this machine."""
    if 8 * d**2 > memory_limit():
        raise ValueError(
            f"the scatter matrix of {d} features takes {8e-9 * d**2:.1f} GB, more than this "
            f'machine has ({1e-9 * memory_limit():.1f} GB). Use solver="direct", which '
            "does without it."
        )


def as_matrix(X: Any) -> Any:
    """Return X as a float32 or float64 matrix, CSR if sparse; finiteness is checked later."""
    if getattr(X, "dtype", None) == np.float16:
        X = X.astype(np.float32)  # half precision is for storage, not for sums
    return check_array(
        X, accept_sparse="csr", dtype=[np.float64, np.float32], ensure_all_finite=False
    )


# ---- totals -----------------------------------------------------------------------


def totals(
    X: Any,
    codes: np.ndarray,
    n_classes: int,
    weights: np.ndarray | None,
    shift: np.ndarray | None = None,
    *,
    squares: bool = True,
) -> tuple[np.ndarray, np.ndarray]:
    """Return class sums (C, d) and column sums of squares (d,) of X - shift, in float64."""
    if sp.issparse(X):
        return _sparse_totals(X, codes, n_classes, weights)
    # A shifted copy is made block by block; without one, blocks may be as long as float32
    # sums stay accurate, which is faster when there are many classes.
    sums, squared = np.empty((n_classes, X.shape[1])), np.zeros(X.shape[1])
    threads = _n_threads() if X.size >= THREADS_FROM else 1
    with ThreadPoolExecutor(threads) as pool, np.errstate(all="ignore"):
        each: Callable = map if threads == 1 else pool.map
        for rows in spans(X.shape[0], PASS_ROWS if shift is None else BLOCK_ROWS):
            Z = X[rows] if shift is None else X[rows] - shift
            w = None if weights is None else weights[rows].astype(X.dtype)
            members = _indicator(codes[rows], n_classes, X.dtype, w)
            # numpy and scipy release the interpreter lock in these products
            shares = _shares(members, threads)
            add = partial(_add_class_sums, sums, members, Z, first=rows.start == 0)
            list(each(add, shares))
            if squares:
                pieces = list(spans(len(Z), -(-len(Z) // threads)))
                parts = repeat(None) if w is None else [w[p] for p in pieces]
                squared += sum(each(_squares, [Z[p] for p in pieces], parts))
    return sums, squared


def _add_class_sums(
    sums: np.ndarray, members: Any, Z: np.ndarray, share: slice, *, first: bool
) -> None:
    """Add the sums of some classes, or write them if they are the first."""
    product = members[share] @ Z
    if first:
        sums[share] = product
    else:
        sums[share] += product


def _shares(members: Any, threads: int) -> list[slice]:
    """Runs of classes with about the same number of rows for each thread."""
    cuts = np.searchsorted(members.indptr, np.linspace(0, members.nnz, threads + 1)[1:-1])
    edges = [0, *cuts.tolist(), members.shape[0]]
    return [slice(a, b) for a, b in pairwise(edges) if a < b]


def _squares(Z: np.ndarray, weights: np.ndarray | None) -> np.ndarray:
    """Column sums (d,) of weighted squares; overflow is reported by the caller."""
    with np.errstate(all="ignore"):
        if weights is None:
            return np.einsum("ij,ij->j", Z, Z)
        return np.einsum("i,ij,ij->j", weights, Z, Z)


def _typical_row(X: np.ndarray) -> np.ndarray | None:
    """A row to subtract from X so that sums keep their digits; None if X is near zero."""
    with np.errstate(all="ignore"):
        first = X[:64].astype(np.float64)
        mean, spread = first.mean(axis=0), first.std(axis=0)
        far = np.isfinite(mean) & (np.abs(mean) > FAR * spread)
    return np.where(far, mean, 0.0).astype(X.dtype) if far.any() else None


def _sparse_totals(
    X: Any, codes: np.ndarray, n_classes: int, weights: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """The same for sparse X, about the origin (sparse columns are near it)."""
    sums = (_indicator(codes, n_classes, np.float64, weights) @ X).toarray()
    w = np.ones(X.shape[0]) if weights is None else weights
    with np.errstate(all="ignore"):
        squares = X.multiply(X).T @ w
    return sums, np.asarray(squares).ravel()


def _indicator(
    codes: np.ndarray, n_classes: int, dtype: Any, weights: np.ndarray | None
) -> Any:
    """Class indicator (C, n) in CSR form, weighted."""
    data = np.ones(len(codes), dtype=dtype) if weights is None else weights.astype(dtype)
    index = (codes, np.arange(len(codes)))
    return sp.csr_array((data, index), shape=(n_classes, len(codes)))


def spans(n: int, step: int) -> Iterator[slice]:
    """Yield slices of at most ``step`` that cover range(n)."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))


def _n_threads() -> int:
    """As many threads as BLAS may use, so that a user's limit is respected."""
    limits = [pool["num_threads"] for pool in libraries().info() if pool["user_api"] == "blas"]
    return max(1, min([*limits, os.cpu_count() or 1]))


@cache
def libraries() -> ThreadpoolController:
    """Return the libraries that have threads; looking for them takes milliseconds."""
    return ThreadpoolController()
