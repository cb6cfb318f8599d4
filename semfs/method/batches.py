"""Batches (donors, plates, sites): estimation and removal of their offsets.

The model of a sample is x = a_class + b_batch + noise. It only needs the moments of *pairs* of
class and batch, which can be added over blocks of samples:

- the offsets b (B, d) are the weighted least-squares solution on the means of the pairs;
- the moments of x − b_batch are those of x plus terms of rank 2B.

The samples themselves are never changed or copied.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from scipy.linalg import pinvh

from semfs._typing import Float64, Indices, Label, Mask, Matrix
from semfs.labels import LabelArray, Labels, encode_labels, label_array
from semfs.method.moments import Moments
from semfs.rows.memory import in_memory
from semfs.validation import listed, warn_user

if TYPE_CHECKING:
    from typing_extensions import TypeIs

    from semfs.rows.centering import Centering
    from semfs.rows.source import SampledColumns

#: Eigenvalues of the scaled normal equations are between 0 and 1. Those below belong to
#: offsets that no class connects; rounding errors are far smaller.
UNDETERMINED = 1e-10
#: A feature whose variance is below so many rounding units of what it was before the offsets
#: were removed is constant: nothing but the batch decided its values.
LOST_EPS = 64.0


# ---- pairs of class and batch ---------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Pairs:
    """The class and the batch of each of P pairs."""

    classes: LabelArray  # (C,), sorted
    batches: LabelArray  # (B,), sorted
    class_of: Indices  # (P,)
    batch_of: Indices  # (P,)

    @classmethod
    def from_labels(cls, pairs: LabelArray) -> Pairs:
        """Return the pairs of labels that are tuples of a class and a batch."""
        found: list[tuple[Label, Label]] = list(pairs)
        classes, class_of = encode_labels(label_array([label for label, _ in found]))
        # batches may be of mixed types, which class labels may not
        batches = Labels.of([batch for _, batch in found]).sorted()
        return cls(
            classes,
            batches.class_array(),
            class_of,
            batches.codes.astype(np.intp),
        )

    def components(self) -> Indices:
        """Return the component (C + B,) of each class and batch in the graph of all pairs."""
        C = len(self.classes)
        n = C + len(self.batches)
        edges = (
            np.ones(len(self.class_of)),
            (self.class_of, C + self.batch_of),
        )
        # a graph of classes and batches, with an edge for each pair that has samples
        graph = sp.coo_array(edges, shape=(n, n))
        return sp.csgraph.connected_components(graph, directed=False)[1]


def batch_labels(values: Any, n_samples: int, name: str = "batch") -> Labels:
    """Return the sorted batches of n samples. Raise if a sample has no batch."""
    try:
        batches = Labels.of(values).strip_blank()
    except TypeError:
        raise ValueError(
            f"{name} must hold one batch per sample, got {type(values).__name__}."
        ) from None
    if len(batches) != n_samples:
        raise ValueError(
            f"X has {n_samples} samples but {name} has {len(batches)} values. Pass one batch "
            "per sample."
        )
    if batches.n_unlabeled:
        raise ValueError(
            f"{name} is missing (NaN, None or blank) for {batches.n_unlabeled} of {n_samples} "
            "samples. Drop these samples, or give them a batch of their own."
        )
    return batches.sorted()


def pair_labels(labels: Labels, batches: Labels) -> Labels:
    """Return labels (class, batch) of samples. Samples without a class stay unlabeled."""
    n_batches = len(batches.classes)
    labeled = labels.codes >= 0
    both = labels.codes[labeled].astype(np.int64) * n_batches + batches.codes[labeled]
    found, codes = np.unique(both, return_inverse=True)
    names: list[Label] = []
    # only pairs that occur: most classes are not in all of many batches
    for number in found.tolist():
        c, b = divmod(number, n_batches)
        names.append((labels.classes[c], batches.classes[b]))
    # codes of samples without a label, or left out, stay
    all_codes = labels.codes.copy()
    all_codes[labeled] = codes.reshape(-1)
    return Labels(names, all_codes)


# ---- offsets --------------------------------------------------------------------------


def batch_offsets(
    pair_counts: Float64,
    pair_means: Float64,
    class_of: Indices,
    batch_of: Indices,
) -> Float64:
    """Return the offsets (B, d) of the additive model, from counts (P,) and means (P, d).

    If no class occurs in two batches, their offsets are not determined. The result is then the
    solution with the smallest Σ_b n_b b_b², so that Σ_b n_b b_b = 0.
    """
    C = int(class_of.max()) + 1
    B = int(batch_of.max()) + 1
    # weight of each pair, 0 where there are no samples
    N = np.zeros((C, B))
    np.add.at(N, (class_of, batch_of), pair_counts)
    n_class = N.sum(axis=1)
    n_batch = N.sum(axis=0)
    class_means = _group_sums(pair_counts, pair_means, class_of, C) / n_class[:, None]
    # With the class effects eliminated, (D − N' diag(1/n_c) N) b = r, D = diag(n_b).
    residuals = pair_means - class_means[class_of]
    r = _group_sums(pair_counts, residuals, batch_of, B)
    H = np.diag(n_batch) - N.T @ (N / n_class[:, None])
    # in units of 1/√n_b the solution of minimum norm is the one of smallest Σ n_b b_b²
    root = np.sqrt(n_batch)
    inverse = pinvh(H / np.outer(root, root), atol=UNDETERMINED, rtol=0.0)
    return (inverse @ (r / root[:, None])) / root[:, None]


def offsets_of_samples(X: Matrix, labels: Labels, batches: Labels) -> Float64:
    """Return the offsets (B, d) of the batches of labeled samples X (n, d) in memory.

    Raise if classes and batches are the same.
    """
    pairs = pair_labels(labels, batches)
    counts = np.bincount(pairs.codes, minlength=len(pairs.classes)).astype(np.float64)
    places = (pairs.codes, np.arange(len(pairs.codes)))
    members = sp.csr_array((np.ones(len(pairs.codes)), places), (len(counts), len(pairs.codes)))
    sums: Any = members @ X
    if sp.issparse(sums):
        sums = sums.toarray()
    found = Pairs.from_labels(label_array(pairs.classes))
    with warnings.catch_warnings():
        # of classes in one batch only, which the user hears of once, not in each class split
        warnings.simplefilter("ignore", UserWarning)
        check_batches(found)
    return batch_offsets(counts, sums / counts[:, None], found.class_of, found.batch_of)


def _group_sums(counts: Float64, values: Float64, group_of: Indices, n: int) -> Float64:
    """Return sums (n, d) of values (P, d) times counts (P,) over the pairs of each group."""
    members = sp.csr_array((counts, (group_of, np.arange(len(counts)))), (n, len(counts)))
    return members @ values


def mean_offsets(batches: Moments) -> Float64:
    """Return means (B, d) of batches minus the overall mean: offsets without classes."""
    return batches.means - batches.mean


# ---- corrected moments ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CorrectedRows:
    """A row source of samples minus the offsets of their batches.

    A sample x of batch b becomes x − b_b. This is not computed for single samples, because the
    sums follow from those of x.
    """

    uncorrected: Moments  # of the pairs; its classes are in the order of `pairs`
    pairs: Pairs
    offsets: Float64  # (B, d)

    in_memory = False  # X is at hand, but not corrected
    nbytes = 0
    feature_names = None
    labels = None

    @property
    def n_rows(self) -> int | None:
        rows = self.uncorrected.rows
        return None if rows is None else rows.n_rows

    @property
    def n_features(self) -> int:
        return self.uncorrected.n_features

    @property
    def eps(self) -> float:
        return self.uncorrected.eps

    @property
    def X(self) -> Matrix:
        """The uncorrected samples (n, d); only for moments of samples in memory."""
        return self.uncorrected.rows.X

    @property
    def codes(self) -> Indices:
        """The class of each sample (n,) in memory."""
        return self.pairs.class_of[self.uncorrected.rows.codes]

    @property
    def weights(self) -> Float64 | None:
        """The weight of each sample (n,) in memory, or None if all are equal."""
        return self.uncorrected.rows.weights

    def samples(self) -> OffsetMatrix:
        """Return the corrected samples in memory, as an `OffsetMatrix`."""
        rows = self.uncorrected.rows
        return OffsetMatrix(rows.X, self.pairs.batch_of[rows.codes], self.offsets)

    def batch_counts(self) -> Float64:
        """Return the weight (B,) of each batch."""
        counts = np.zeros(len(self.offsets))
        np.add.at(counts, self.pairs.batch_of, self.uncorrected.counts)
        return counts

    def measured_means(self) -> Float64:
        """Return the class means (C, d) of the samples without removing offsets."""
        found = self.uncorrected
        n_classes = len(self.pairs.classes)
        counts = np.zeros(n_classes)
        np.add.at(counts, self.pairs.class_of, found.counts)
        sums = _group_sums(found.counts, found.means, self.pairs.class_of, n_classes)
        return sums / counts[:, None]

    def moments(self) -> Moments:
        """Return the moments of the classes after removing offsets."""
        found = self.uncorrected
        n_classes = len(self.pairs.classes)
        counts = np.zeros(n_classes)
        np.add.at(counts, self.pairs.class_of, found.counts)
        corrected = found.means - self.offsets[self.pairs.batch_of]
        sums = _group_sums(found.counts, corrected, self.pairs.class_of, n_classes)
        means = sums / counts[:, None]
        V, U = self._rank_terms
        # the diagonal of S − V'U − U'V
        before = found.scatter_diag
        diag = before - 2.0 * np.einsum("bd,bd->d", V, U)
        # where nothing is left but rounding errors, these are no variance
        diag = np.where(diag <= LOST_EPS * found.eps * before, 0.0, diag)
        if in_memory(found.rows) and sp.issparse(found.rows.X):
            # sparse samples were summed about the origin
            lost = diag <= LOST_EPS * found.eps * found.total * found.mean**2
            diag = np.where(lost, 0.0, diag)
        return Moments(
            self.pairs.classes,
            counts,
            means,
            diag,
            self,
            None,
            found.eps,
        )

    @cached_property
    def _rank_terms(self) -> tuple[Float64, Float64]:
        """Return V and U (B, d) for which corrected samples have scatter S − V'U − U'V.

        Let u_b be the offset of batch b minus the mean offset, s_b the sum of batch b about the
        mean of all samples, and n_b its weight. The scatter is S − Σ_b (s_b u_b' + u_b s_b' −
        n_b u_b u_b'), so U has the rows u_b, and V the rows s_b − n_b u_b / 2.
        """
        found = self.uncorrected
        n_batch = self.batch_counts()
        U = self.offsets - n_batch @ self.offsets / n_batch.sum()
        # about the mean, so that features far from the origin keep their digits
        about_mean = found.means - found.mean
        s = _group_sums(found.counts, about_mean, self.pairs.batch_of, len(U))
        return s - 0.5 * n_batch[:, None] * U, U

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix of the corrected samples."""
        V, U = self._rank_terms
        out = self.uncorrected.scatter_columns(columns, precise=centering.precise)
        return out - V.T @ U[:, columns] - U.T @ V[:, columns]

    def scatter(self, centering: Centering) -> Float64:
        """Return the scatter matrix (d, d) of the corrected samples."""
        V, U = self._rank_terms
        products = V.T @ U
        return self.uncorrected.scatter(precise=centering.precise) - products - products.T

    def keep_classes(self, mask: Mask) -> CorrectedRows:
        """Return the same samples, because `remove_batches` has left out empty classes."""
        return self

    def copy(self) -> CorrectedRows:
        """Return the same source with a copy of the samples, which the caller may change."""
        return replace(self, uncorrected=self.uncorrected.copy())

    def sample_columns(self, features: Indices) -> SampledColumns | None:
        """Return features of a random subset of the samples, corrected."""
        rows = self.uncorrected.rows
        found = None if rows is None else rows.sample_columns(features)
        if found is None:
            return None
        Z, codes, weights = found
        offsets = self.offsets[:, features].astype(Z.dtype)
        return (
            Z - offsets[self.pairs.batch_of[codes]],
            self.pairs.class_of[codes],
            weights,
        )

    def variance_shares(self, features: Indices) -> tuple[Float64, Float64]:
        """Return the shares (k,) of class and of batch in the variance of some features.

        These are the sums of squares (about their means) of the class effects and of the batch
        offsets of the additive model, divided by that of the samples.
        """
        total = self.uncorrected.scatter_diag[features]
        total = np.where(total > 0.0, total, np.inf)
        found = self.moments()
        classes = found.counts @ (found.means - found.mean)[:, features] ** 2
        n_batch = self.batch_counts()
        centered = self.offsets - n_batch @ self.offsets / n_batch.sum()
        return classes / total, n_batch @ centered[:, features] ** 2 / total


def is_corrected(rows: object) -> TypeIs[CorrectedRows]:
    """Return whether offsets of batches are removed from samples."""
    return isinstance(rows, CorrectedRows)


def measured_means(moments: Moments) -> Float64:
    """Return the class means (C, d) of the samples as they were measured.

    They are those of the moments, unless offsets of batches were removed.
    """
    rows = moments.rows
    if not is_corrected(rows):
        return moments.means
    means = rows.measured_means()
    place = {label: c for c, label in enumerate(rows.pairs.classes.tolist())}
    wanted = [place[label] for label in moments.classes.tolist()]
    return means[wanted]


def uncorrected_rows(moments: Moments) -> Any:
    """Return the samples of moments before offsets are removed."""
    rows = moments.rows
    return rows.uncorrected.rows if is_corrected(rows) else rows


def remove_batches(
    uncorrected: Moments, *, check: bool = False, refuse: bool = True
) -> Moments:
    """Return moments of classes without offsets, given those of pairs (class, batch).

    With ``check``, raise if the batches are the classes (unless ``refuse`` is False), and warn
    of classes that have only one batch. If there is only one batch, nothing is removed.
    """
    uncorrected = uncorrected.without_empty_classes()
    pairs = Pairs.from_labels(uncorrected.classes)
    # the very sums of a fit without batches
    if len(pairs.batches) == 1:
        labels = label_array([label for label, _ in uncorrected.classes])
        return replace(uncorrected, classes=labels)
    if check:
        check_batches(pairs, refuse)
    offsets = batch_offsets(
        uncorrected.counts,
        uncorrected.means,
        pairs.class_of,
        pairs.batch_of,
    )
    return CorrectedRows(uncorrected, pairs, offsets).moments()


def correct_by(uncorrected: Moments, pairs: Pairs, offsets: Float64) -> Moments:
    """Return moments of classes, given those of pairs and offsets (B, d) to remove."""
    return CorrectedRows(uncorrected, pairs, offsets).moments()


def check_batches(pairs: Pairs, refuse: bool = True) -> None:
    """Raise if classes and batches are the same, and warn of classes with only one batch."""
    C = len(pairs.classes)
    B = len(pairs.batches)
    if refuse and len(pairs.class_of) == C == B:
        raise ValueError(
            "batch and y divide the samples in the same way: each of the "
            f"{C} classes is in a batch of its own, so batches cannot be "
            "separated from classes. Leave out batch."
        )
    # a class is in as many batches as it has pairs
    n_batches = np.bincount(pairs.class_of, minlength=C)
    alone = np.flatnonzero(n_batches[pairs.class_of] == 1)
    if not len(alone):
        return
    names = [
        f"{pairs.classes[pairs.class_of[p]]} ({pairs.batches[pairs.batch_of[p]]})"
        for p in alone
    ]
    # `partial_fit` may be called with other batches of these classes later
    so_far = "" if refuse else " so far"
    text = f"{len(alone)} of {C} classes occur in one batch only{so_far}: {listed(names)}."
    # batches of different components have no class in common, not even through others
    components = pairs.components()
    if components.max() > 0:
        text += (
            " Differences between batches without a common class are not "
            "removed, because they may be differences between classes."
        )
    else:
        text += " What separates these classes from the others may be the batch."
    warn_user(text)


# ---- corrected samples ----------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class OffsetMatrix:
    """X (n, d), dense or CSR, minus the offset of the batch of each row, but never formed.

    It supports the operations that clustering needs: rows, products, and the mean.
    """

    X: Matrix
    batch_of: Indices  # (n,)
    offsets: Float64  # (B, d)

    @property
    def shape(self) -> tuple[int, int]:
        return self.X.shape[0], self.X.shape[1]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.X.dtype

    @property
    def sparse(self) -> bool:
        """Whether X is sparse."""
        return sp.issparse(self.X)

    def __getitem__(self, rows: Indices | slice) -> OffsetMatrix:
        return OffsetMatrix(self.X[rows], self.batch_of[rows], self.offsets)

    def columns(self, features: Indices) -> OffsetMatrix:
        """Return some columns (n, g) with their offsets."""
        return OffsetMatrix(self.X[:, features], self.batch_of, self.offsets[:, features])

    def __matmul__(self, directions: Float64) -> Float64:
        """Return the product (n, p) with directions (d, p), offsets in float64."""
        projected = self.offsets @ directions.astype(np.float64)
        return np.asarray(self.X @ directions, dtype=np.float64) - projected[self.batch_of]

    def transposed_product(self, Z: Float64) -> Float64:
        """Return the product (d, p) of the transpose with Z (n, p)."""
        # (X − HO)'Z = X'Z − O'(H'Z), with H (n, B) the indicators of the batches
        sums = np.zeros((len(self.offsets), Z.shape[1]))
        np.add.at(sums, self.batch_of, Z)
        return self.X.T @ Z - self.offsets.T @ sums

    def mean(self, axis: int = 0, dtype: Any = np.float64) -> Float64:
        """Return the mean (d,) of the rows."""
        shares = np.bincount(self.batch_of, minlength=len(self.offsets)) / len(self.batch_of)
        of_X = np.asarray(self.X.mean(axis=0, dtype=np.float64)).ravel()
        return of_X - shares @ self.offsets

    def toarray(self) -> Matrix:
        """Return the matrix as a dense array."""
        X: Any = self.X
        if sp.issparse(X):
            X = X.toarray()
        return X - self.offsets.astype(X.dtype)[self.batch_of]


def stacked_offset_matrices(
    parts: Sequence[OffsetMatrix],
) -> OffsetMatrix:
    """Stack matrices with the same features. Each keeps its own batches."""
    if any(part.sparse for part in parts):
        X = sp.vstack([sp.csr_array(part.X) for part in parts], format="csr")
    else:
        X = np.concatenate([part.X for part in parts])
    # batches of different parts are different ones, whatever their numbers
    starts = np.cumsum([0, *(len(part.offsets) for part in parts)])
    batch_of = [part.batch_of + start for part, start in zip(parts, starts)]
    offsets = np.concatenate([part.offsets for part in parts])
    return OffsetMatrix(X, np.concatenate(batch_of), offsets)
