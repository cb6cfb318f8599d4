"""Code shared by sources of sparse matrices: threads that unpack parts, and sums over parts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semfs.rows.plan import MAX_PARTS_AT_ONCE
from semfs.rows.sums import Accumulator, SampledRows, used_mask
from semfs.rows.threads import n_threads

if TYPE_CHECKING:
    from semfs._typing import Float64, Indices, Sparse
    from semfs.labels import Labels
    from semfs.rows.blocks import BlockSource

# At least three threads, even on two processors (measured): while one waits for the disk and
# one for the interpreter's lock, the third unpacks.
MIN_PARTS_AT_ONCE = 3


def part_threads() -> int:
    """Return the number of threads that read, unpack and sum up parts of a sparse matrix.

    This is the number of threads that the user allows for BLAS, within limits.
    """
    return min(max(n_threads(), MIN_PARTS_AT_ONCE), MAX_PARTS_AT_ONCE)


def sparse_accumulator(
    source: BlockSource,
    labels: Labels,
    sums: Float64,
    squares: Float64,
    sampled: Indices,
    sample: Sparse,
) -> Accumulator:
    """Return class sums (C, d) and squares (d,), both about the origin, as an accumulator.

    ``sample`` are the samples at the rows ``sampled``. They represent all samples, so the
    weights of those of each class are scaled to the weight of the class.
    """
    codes = labels.codes
    weights = source.weights
    used = used_mask(codes, weights)
    n_classes = len(labels.classes)
    used_weights = None if weights is None else weights[used]
    counts = np.bincount(codes[used], used_weights, minlength=n_classes).astype(np.float64)
    out = Accumulator(source.n_features, matrix=False)
    # sums are in float64, but values have the rounding errors of their file
    out.eps = source.eps
    out.sparse = True
    out.n_unlabeled = labels.n_unlabeled
    out.add_sums(labels.classes, counts, sums, squares)
    if not len(sampled):
        return out
    sampled_codes = codes[sampled]
    sampled_weights = np.ones(len(sampled)) if weights is None else weights[sampled]
    sampled_counts = np.bincount(sampled_codes, sampled_weights, minlength=n_classes)
    # weight of a class in all samples over that in the drawn ones; a class of which none was
    # drawn has no weight to multiply
    factors = counts / np.where(sampled_counts > 0.0, sampled_counts, 1.0)
    rows = SampledRows(sample, sampled_codes, sampled_weights * factors[sampled_codes])
    out.add_sample(rows, labels.classes)
    return out
