"""Sums over labeled samples: class sums, squares, products, and an accumulator of blocks.

Products have the precision of the data within a block, and are added up in float64.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from scipy.linalg.blas import dger, dsyrk

from semfs.arrays import batches
from semfs.labels import encode_labels, label_array
from semfs.rows.threads import in_threads
from semfs.system import memory_limit
from semfs.validation import check_all_finite, warn_user

if TYPE_CHECKING:
    import numpy.typing as npt

    from semfs._typing import Float64, Floats, Indices, Label, LabelsLike, Mask, Matrix, Sparse

# Rows per step of a pass: wide enough for BLAS, and so few that float32 partial sums stay
# accurate before they are added up in float64.
BLOCK_ROWS = 1024
# Rows per step where no copy of the step is made.
PASS_ROWS = 16 * BLOCK_ROWS
# Sparse rows whose squares are taken at a time, so that they stay in a processor's cache.
SQUARED_ROWS = BLOCK_ROWS // 4
# Columns of the scatter matrix that are multiplied at a time: it takes little memory, and
# most of what lies below the diagonal is never computed.
PANEL = 1024
# Columns of the scatter matrix that are copied below the diagonal at a time: more of them leave
# a processor's cache if the number of features is a power of two.
MIRRORED_COLUMNS = 32
# Rows whose mean and spread tell whether a dense column is far from zero.
TYPICAL_ROWS = 64
# A column whose mean exceeds its standard deviation this many times is shifted before it is
# summed: float32 has about 7 digits.
FAR = 32.0
# Up to this ratio the mean may be taken out of X'X afterward: less than two digits are lost.
NEAR = 8.0
# Beyond this ratio nothing of the spread is left in float64 sums of squares about the origin.
LOST = 1e6
TINY = np.finfo(np.float64).tiny
USE_DIRECT = 'Use solver="direct", which does not need it.'


def check_matrix_fits(
    d: int,
    budget: int | None = None,
    remedy: str = USE_DIRECT,
) -> None:
    """Raise if a d × d matrix of float64 exceeds a budget in bytes, by default all memory."""
    limit = memory_limit() if budget is None else budget
    needed = 8 * d**2
    if needed > limit:
        raise ValueError(
            f"the scatter matrix of {d} features takes {1e-9 * needed:.1f} GB, more than the "
            f"{1e-9 * limit:.1f} GB of memory available for it. {remedy}"
        )


# ---- class sums and squares -----------------------------------------------------------


def class_sums(
    X: Matrix,
    codes: Indices,
    n_classes: int,
    weights: Floats | None,
    shift: Floats | None = None,
) -> tuple[Float64, Float64]:
    """Return weighted class sums (C, d) and column sums of squares (d,) of X - shift.

    X is dense or CSR. A shift (d,) is possible for dense X only.
    """
    if sp.issparse(X):
        return sparse_class_sums(X, codes, n_classes, weights)
    d = X.shape[1]
    sums = np.zeros((n_classes, d))
    squares = np.zeros(d)
    # a copy of each step is made where there are weights or a shift: it should be short
    step = PASS_ROWS if weights is None and shift is None else BLOCK_ROWS
    for rows in batches(X.shape[0], step):
        block = X[rows] if shift is None else X[rows] - shift
        block_weights = None if weights is None else weights[rows]
        _add_dense_sums(sums, squares, block, codes[rows], block_weights)
    return sums, squares


@np.errstate(all="ignore")
def _add_dense_sums(
    sums: Float64,
    squares: Float64,
    X: Floats,
    codes: Indices,
    weights: Floats | None,
) -> None:
    """Add the class sums and squares of a dense block in place."""
    n = len(X)
    w = np.ones(n, X.dtype) if weights is None else weights.astype(X.dtype)
    # members @ X are the class sums
    members = sp.csr_array((w, (codes, np.arange(n))), shape=(len(sums), n))
    weighted = _times_rows(X, weights)

    def add_classes(classes: slice) -> None:
        sums[classes] += members[classes] @ X

    def squares_of(rows: slice) -> Floats:
        return np.einsum("ij,ij->j", X[rows], weighted[rows])

    in_threads(add_classes, len(sums), X.size)
    for partial_squares in in_threads(squares_of, n, X.size):
        squares += partial_squares


def sparse_class_sums(
    X: Sparse, codes: Indices, n_classes: int, weights: Floats | None
) -> tuple[Float64, Float64]:
    """Return class sums (C, d) and column sums of squares (d,) of CSR or CSC X.

    They are not centered, because sparse columns are near the origin.
    """
    with np.errstate(all="ignore"):
        if X.format == "csc":
            return _csc_class_sums(X, codes, n_classes, weights)
        d = X.shape[1]
        sums = np.zeros((n_classes, d))
        squares = np.zeros(d)
        for rows, part in csr_batches(X):
            per_row = np.diff(part.indptr)
            # Sums of many float32 values lose digits that no shift of the origin saves here.
            data = part.data.astype(np.float64, copy=False)
            if weights is not None:
                data = data * np.repeat(weights[rows], per_row)
            classes = np.repeat(codes[rows].astype(np.int32, copy=False), per_row)
            # values in one place of a COO matrix add up
            places = (classes, part.indices)
            sums += sp.coo_array((data, places), shape=(n_classes, d)).toarray()
            squares += _csr_squares(part, data)
        return sums, squares


def _csr_squares(X: Sparse, weighted: Float64) -> Float64:
    """Return the column sums (d,) of CSR values times the ``weighted`` values."""
    d = X.shape[1]
    squares = np.zeros(d)
    for rows, part in csr_batches(X, SQUARED_ROWS):
        values = slice(X.indptr[rows.start], X.indptr[rows.stop])
        # as the values of one row, in which values of one column add up
        one_row = part.indptr[[0, -1]]
        products = weighted[values] * part.data
        squares += sp.csr_array((products, part.indices, one_row), shape=(1, d)).toarray()[0]
    return squares


def _csc_class_sums(
    X: Sparse, codes: Indices, n_classes: int, weights: Floats | None
) -> tuple[Float64, Float64]:
    """Return class sums (C, g) and sums of squares (g,) of columns X (n, g) in CSC."""
    values = X.data.astype(np.float64)
    weighted = values if weights is None else values * weights[X.indices]
    # with codes in place of row numbers, values of one class add up
    classes = codes.astype(np.int32, copy=False)[X.indices]
    shape = (n_classes, X.shape[1])
    sums = sp.csc_array((weighted, classes, X.indptr), shape=shape).toarray()
    products = weighted * values
    squares = sp.csc_array((products, classes, X.indptr), shape=shape).toarray().sum(axis=0)
    return sums, squares


def typical_row(X: Floats) -> Floats | None:
    """Return a row (d,) to subtract so that sums keep their digits, or None near zero."""
    with np.errstate(all="ignore"):
        first = X[:TYPICAL_ROWS].astype(np.float64)
        mean = first.mean(axis=0)
        spread = first.std(axis=0)
        far = np.isfinite(mean) & (np.abs(mean) > FAR * spread)
    if not far.any():
        return None
    return np.where(far, mean, 0.0).astype(X.dtype)


def without_lost(diag: Float64, mean: Float64, total: float) -> Float64:
    """Return the scatter (d,) of sparse data, or 0 if it is lost in sums about the origin."""
    lost = diag <= total * (mean / LOST) ** 2
    affected = np.flatnonzero(lost & (diag != 0.0))
    if len(affected):
        warn_user(
            f"column {affected[0]} of sparse X (perhaps others too) is treated as constant, as "
            f"its mean is at least {LOST:.0e} times its spread. Make X dense."
        )
    return np.where(lost, 0.0, diag)


# ---- products -------------------------------------------------------------------------


def csr_batches(
    X: Sparse,
    step: int = PASS_ROWS,
) -> Iterator[tuple[slice, Sparse]]:
    """Yield slices of the rows of CSR X, with views instead of slow copies."""
    for rows in batches(X.shape[0], step):
        starts = X.indptr[rows.start : rows.stop + 1]
        values = slice(starts[0], starts[-1])
        arrays = (X.data[values], X.indices[values], starts - starts[0])
        yield rows, type(X)(arrays, shape=(len(starts) - 1, X.shape[1]))


def csr_products(
    X: Sparse,
    columns: Indices,
    weights: Floats | None,
    dtype: npt.DTypeLike,
) -> Float64:
    """Return weighted X'Z (d, b) for CSR X and its ``columns`` Z, computed in ``dtype``."""
    d = X.shape[1]
    b = len(columns)
    out = np.zeros((d, b))
    # where each column of X is in Z; -1 if it is not
    position = np.full(d, -1, dtype=np.min_scalar_type(-1 - b))
    position[columns] = np.arange(b)
    # products with a multiple of four columns take an eighth less time
    width = -(-b // 4) * 4
    for rows, part in csr_batches(X):
        # Z is filled from the values of its columns, found in the order of rows
        in_Z = position[part.indices]
        found = np.flatnonzero(in_Z >= 0)
        per_row = np.diff(np.searchsorted(found, part.indptr))
        Z = np.zeros((part.shape[0], width), dtype=dtype)
        Z[np.repeat(np.arange(len(Z)), per_row), in_Z[found]] = part.data[found]
        if weights is not None:
            Z *= weights[rows].astype(dtype)[:, None]
        out += (part.T @ Z)[:, :b]
    return out


def add_products(
    out: Float64,
    X: Matrix,
    weights: Floats | None,
    dtype: npt.DTypeLike,
) -> None:
    """Add X'X, weighted, to ``out`` (d, d) on and above its diagonal."""
    sparse = sp.issparse(X)
    has_roots = weights is None or bool((weights >= 0.0).all())
    if not sparse and has_roots and dtype == np.float64:
        _add_float64_products(out, X, weights)
        return
    step = X.shape[0] if sparse else 2 * PASS_ROWS
    for rows in batches(X.shape[0], step):
        Z: Any = X[rows].astype(dtype, copy=False)
        if sparse:
            Z = Z.tocsc()
        block_weights = None if weights is None else weights[rows]
        for i in batches(len(out), PANEL):
            left = _times_rows(Z[:, i], block_weights).T
            right_of_panel = slice(i.stop, len(out))
            # the panel by itself: BLAS takes half the time for Z'Z
            for j in (i, right_of_panel):
                product = left @ Z[:, j]
                out[i, j] += product.toarray() if sparse else product


def _add_float64_products(out: Float64, X: Floats, weights: Floats | None) -> None:
    """Add X'X to ``out`` (d, d) on and above its diagonal, with no d × d temporary.

    With weights w ≥ 0 of the rows it is (√w X)'(√w X).
    """
    roots = np.ones(len(X)) if weights is None else np.sqrt(weights, dtype=np.float64)
    is_ready = weights is None and X.dtype == np.float64
    step = 2 * BLOCK_ROWS
    # All steps are copied into the same memory: getting new memory takes longer than a copy.
    copies = np.empty((0 if is_ready else min(step, len(X)), X.shape[1]))
    for rows in batches(len(X), step):
        Z = X[rows]
        if not is_ready:
            Z = copies[: len(Z)]
            _multiply_rows(X[rows], roots[rows], Z)
        # transposes are in the layout that BLAS wants, and turn upper into lower
        dsyrk(1.0, Z.T, beta=1.0, c=out.T, overwrite_c=1, lower=1)


def _multiply_rows(X: Floats, factors: Float64, out: Float64) -> None:
    """Write rows X (r, d), each multiplied by its factor (r,), to ``out`` (r, d)."""

    def multiply(rows: slice) -> None:
        np.multiply(X[rows], factors[rows, None], out=out[rows])

    in_threads(multiply, len(X), X.size)


def add_outer(G: Float64, weight: float, v: Float64) -> Float64:
    """Return G + weight·vv', computed in place of a symmetric float64 G (d, d)."""
    # the transpose is in the layout that BLAS wants: no d × d temporary is made
    return dger(weight, v, v, a=G.T, overwrite_a=1).T


def mirrored(upper: Float64) -> Float64:
    """Return a matrix with its upper triangle copied to the lower one, in place."""
    for i in batches(len(upper), MIRRORED_COLUMNS):
        upper[i.stop :, i] = upper[i, i.stop :].T
        block = upper[i, i]
        below = np.tri(len(block), k=-1, dtype=bool)
        np.copyto(block, block.T.copy(), where=below)
    return upper


def _times_rows(X: Any, factors: Floats | None) -> Any:
    """Return X with each row multiplied by its factor (n,), in the precision of X."""
    if factors is None:
        return X
    factors = factors.astype(X.dtype)
    if sp.issparse(X):
        return sp.diags_array(factors) @ X
    return X * factors[:, None]


# ---- blocks ---------------------------------------------------------------------------


class Totals(NamedTuple):
    """What an `Accumulator` has collected."""

    classes: np.ndarray  # (C,), sorted
    counts: Float64  # (C,), weight of each class
    means: Float64  # (C, d)
    diag: Float64  # (d,), diagonal of the scatter matrix about the overall mean
    matrix: Float64 | None  # (d, d), that scatter matrix if it was formed


class SampledRows(NamedTuple):
    """Samples that represent all; each class has the weight of all its samples."""

    X: Sparse
    codes: Indices
    weights: Float64


class Accumulator:
    """Sums over blocks of labeled samples, in memory that does not grow with their number.

    A dense block is centered about the mean of all samples so far, multiplied in its own
    precision, and pooled in float64 as in Chan, Golub and LeVeque (1979). Sparse blocks are
    summed about the origin.

    Parameters
    ----------
    n_features : int
        Number of columns d of all blocks.
    matrix : bool, default=True
        Whether to form the d × d scatter matrix, or only its diagonal.
    precise : bool, default=False
        Whether to compute products of float32 blocks in float64.
    """

    def __init__(
        self,
        n_features: int,
        *,
        matrix: bool = True,
        precise: bool = False,
    ) -> None:
        """Start without samples. See the class for the parameters."""
        self.n_features = n_features
        self.precise = precise
        #: Index of each class label in counts and means.
        self.position: dict[Label, int] = {}
        self.counts = np.zeros(0)
        self.means = np.zeros((0, n_features))
        self.total = 0.0
        self.mean = np.zeros(n_features)
        self.diag = np.zeros(n_features)
        #: The scatter matrix on and above its diagonal.
        self.upper = np.zeros((n_features, n_features)) if matrix else None
        #: Rounding unit of the least precise block.
        self.eps = 0.0
        #: Whether sums were taken about the origin.
        self.sparse = False
        #: Samples without a label that were met, and not added.
        self.n_unlabeled = 0
        self._samples: list[SampledRows] = []

    @property
    def classes(self) -> list[Label]:
        """The class labels so far, in order of appearance."""
        return list(self.position)

    def add(
        self,
        X: Matrix,
        y: LabelsLike,
        weights: Floats | None = None,
    ) -> None:
        """Add samples X (r, d), float32 or float64, dense or CSR, with labels y (r,)."""
        classes, codes = encode_labels(y, n_samples=X.shape[0])
        self.add_coded(X, classes.tolist(), codes, weights)

    def add_coded(
        self,
        X: Matrix,
        classes: list[Label],
        codes: Indices,
        weights: Floats | None = None,
    ) -> None:
        """Add samples X (r, d) whose labels are ``classes[codes]``."""
        if X.shape[1] != self.n_features:
            raise ValueError(
                f"a block has {X.shape[1]} columns, but earlier blocks "
                f"had {self.n_features}. All blocks must have the same "
                "columns."
            )
        counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
        self.eps = max(self.eps, float(np.finfo(X.dtype).eps))
        center = np.zeros(self.n_features)
        dtype: np.dtype[Any] = np.dtype(np.float64)
        if sp.issparse(X):
            self.sparse = True
        else:
            dtype = dtype if self.precise else X.dtype
            center = self._center(X).astype(dtype)
            with np.errstate(all="ignore"):
                X = X - center
        sums, squares = class_sums(X, codes, len(classes), weights)
        if not (np.isfinite(sums).all() and np.isfinite(squares).all()):
            check_all_finite(X)
        if self.upper is not None and counts.sum():
            add_products(self.upper, X, weights, dtype)
            # to products about the mean of the block
            add_outer(self.upper, -counts.sum(), sums.sum(axis=0) / counts.sum())
        self.add_sums(classes, counts, sums, squares, center)

    def _center(self, X: Floats) -> Float64:
        """Return the mean so far (d,), or initially that of the first rows of X."""
        mean = self.mean
        if not self.total:
            with np.errstate(all="ignore"):
                mean = X[:BLOCK_ROWS].mean(axis=0, dtype=np.float64)
        return np.where(np.isfinite(mean), mean, 0.0)

    def add_sums(
        self,
        classes: Iterable[Label],
        counts: Float64,
        sums: Float64,
        squares: Float64,
        center: Floats | float = 0.0,
    ) -> None:
        """Add counts (C,), class sums (C, d) and column squares (d,) about a center (d,)."""
        n = counts.sum()
        if not n:
            return
        offset = sums.sum(axis=0) / n
        means = center + sums / np.maximum(counts, TINY)[:, None]
        self.pool(classes, counts, means, center + offset, squares - n * offset**2)

    def add_sample(
        self,
        sample: SampledRows,
        classes: Iterable[Label],
    ) -> None:
        """Keep samples whose codes are positions in ``classes``, which were added before."""
        # classes without any weight have no position, and no samples that are kept
        position = np.array([self.position.get(label, -1) for label in classes])
        self._samples.append(sample._replace(codes=position[sample.codes]))

    def sample(self) -> SampledRows | None:
        """Return the samples that were kept, coded as in `result`, or None."""
        if not self._samples:
            return None
        codes = np.concatenate([sample.codes for sample in self._samples])
        sorted_codes = encode_labels(label_array(self.classes))[1]
        return SampledRows(
            sp.vstack([sample.X for sample in self._samples], format="csr"),
            sorted_codes[codes],
            np.concatenate([sample.weights for sample in self._samples]),
        )

    def __iadd__(self, other: Accumulator) -> Accumulator:
        """Add what another accumulator has collected."""
        self.n_unlabeled += other.n_unlabeled
        if not other.total:
            return self
        if self.upper is not None and other.upper is not None:
            self.upper += other.upper
        self.eps = max(self.eps, other.eps)
        self.sparse |= other.sparse
        self.pool(other.classes, other.counts, other.means, other.mean, other.diag)
        for sample in other._samples:
            self.add_sample(sample, other.classes)
        return self

    def pool(
        self,
        classes: Iterable[Label],
        counts: Float64,
        means: Float64,
        mean: Float64,
        diag: Float64,
    ) -> None:
        """Add the totals of other samples, except for products above the diagonal.

        For n₁ and n₂ samples with means m₁ and m₂, the scatter about the common mean is the sum
        of both scatters plus n₁n₂/(n₁ + n₂) (m₁ − m₂)(m₁ − m₂)'.
        """
        indices = self._indices(classes)
        # new mean = old mean + n₂/(n₁ + n₂) (mean of the others − old mean), class by class
        self.counts[indices] += counts
        step = means - self.means[indices]
        step *= (counts / np.maximum(self.counts[indices], TINY))[:, None]
        self.means[indices] += step
        n = counts.sum()
        gap = mean - self.mean
        factor = self.total * n / (self.total + n)
        # sums that overflow are refused when they are used
        with np.errstate(over="ignore", invalid="ignore"):
            self.diag += diag + factor * gap**2
        if self.upper is not None:
            add_outer(self.upper, factor, gap)
        self.total += n
        self.mean = self.mean + n / self.total * gap

    def _indices(self, classes: Iterable[Label]) -> slice | list[int]:
        """Return the positions of classes in counts and means, adding new ones."""
        labels = classes.tolist() if isinstance(classes, np.ndarray) else list(classes)
        indices = [self.position.setdefault(label, len(self.position)) for label in labels]
        n_new = len(self.position) - len(self.counts)
        if n_new:
            self.counts = np.pad(self.counts, (0, n_new))
            self.means = np.pad(self.means, ((0, n_new), (0, 0)))
        if indices == list(range(len(indices))):
            return slice(len(indices))  # indexing by a slice makes no copy
        return indices

    def result(self) -> Totals:
        """Return the totals, with classes in sorted order."""
        classes, codes = encode_labels(label_array(self.classes))
        order = np.argsort(codes)
        # the diagonal of the matrix was computed by the same products as its columns
        diag = self.diag
        if self.upper is not None:
            diag = np.diagonal(mirrored(self.upper))
        if self.sparse:
            diag = without_lost(diag, self.mean, self.total)
        diag = np.maximum(diag, 0.0)
        return Totals(classes, self.counts[order], self.means[order], diag, self.upper)


def used_mask(codes: Indices, weights: Floats | None) -> Mask:
    """Return which samples (n,) have a class and a weight above zero."""
    used = codes >= 0
    if weights is not None:
        used &= weights > 0
    return used
