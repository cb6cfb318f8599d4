"""Moments of the clusters of unlabeled samples, in memory or beyond.

A random part of the samples is clustered (`clusters`). Then all samples are assigned to the
nearest cluster and summed up by cluster. If samples have batches, the means of the batches are
removed: sums are taken over pairs (cluster, batch) and corrected afterward.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from semfs._typing import Float64, Indices, Mask, Matrix
from semfs.arrays import batches as in_batches
from semfs.arrays import draw_rows
from semfs.labels import LEFT_OUT, UNLABELED, Labels
from semfs.method.batches import (
    CorrectedRows,
    OffsetMatrix,
    Pairs,
    correct_by,
    is_corrected,
    mean_offsets,
    pair_labels,
)
from semfs.method.moments import Moments
from semfs.rows import MemoryRows
from semfs.selectors.clusters import DEFAULT_SIZES, Clusters, SampleSizes, cluster_unlabeled
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows, UnlabeledStream
from semfs.validation import refuse_nonfinite

#: Samples in memory that are assigned to clusters at once, without a copy of all of them.
ASSIGNED_AT_ONCE = 4096
#: Numbers outside this range lose digits when float32 is squared.
FLOAT32_RANGE = (1e-12, 1e12)


class SummedClusters(NamedTuple):
    """Clusters of unlabeled samples, and the moments of their samples."""

    moments: Moments  # of K clusters
    labels: Indices  # (n,) cluster of each sample, -1 if it is ignored; none if they are remote
    centers: Float64  # (K, p) in the space of the clusters


# ---- in memory -------------------------------------------------------------------------


def clusters_in_memory(
    seen: MemoryRows | CorrectedRows,
    unlabeled: UnlabeledRows,
    n_clusters: int | str,
    sizes: SampleSizes = DEFAULT_SIZES,
) -> SummedClusters:
    """Cluster a random part of the samples, assign all others, and sum up each cluster.


    ``seen`` are the samples of the seen classes, whose spread determines how wide a cluster is.
    """
    batch_of, offsets = _batch_offsets(unlabeled)
    corrected: Matrix | OffsetMatrix = unlabeled.X
    if offsets is not None:
        corrected = OffsetMatrix(unlabeled.X, batch_of, offsets)

    labels = np.full(unlabeled.n_rows, UNLABELED, dtype=np.intp)
    # the samples that a fit to a file would draw, so that both find the same clusters
    drawn = draw_rows(unlabeled.is_used, sizes.clustered)
    X_seen, codes_seen = _draw_seen(seen, sizes.components)
    X_drawn = _take(corrected, drawn)
    # clusters cannot differ in features that are not there
    present = unlabeled.present
    X_seen, X_drawn = _with_offsets(
        _features_of(X_seen, present), _features_of(X_drawn, present)
    )
    clusters, cluster_of = cluster_unlabeled(X_seen, codes_seen, X_drawn, n_clusters, sizes)
    labels[drawn] = np.where(cluster_of >= 0, cluster_of, UNLABELED)

    waiting = unlabeled.is_used
    waiting[drawn] = False
    others = np.flatnonzero(waiting)
    labels[others] = _nearest_clusters(clusters, corrected, others, present)
    moments = _sums_of_clusters(unlabeled, labels, batch_of, offsets)
    return SummedClusters(moments, labels, clusters.centers)


def _nearest_clusters(
    clusters: Clusters,
    X: Matrix | OffsetMatrix,
    samples: Indices,
    present: Mask | None,
) -> Indices:
    """Return the nearest cluster of some samples of X, or -1 if all clusters are far away."""
    nearest = np.empty(len(samples), dtype=np.intp)
    for rows in in_batches(len(samples), ASSIGNED_AT_ONCE):
        block = _features_of(X[samples[rows]], present)
        nearest[rows] = clusters.assign(block)
    return np.where(nearest >= 0, nearest, UNLABELED)


def _sums_of_clusters(
    unlabeled: UnlabeledRows,
    labels: Indices,
    batch_of: Indices,
    offsets: Float64 | None,
) -> Moments:
    """Return the moments of clusters (n,), minus the offsets (B, d) of batches (n,), if any."""
    clustered = np.flatnonzero(labels >= 0)
    X = _take(unlabeled.X, clustered)
    codes = labels[clustered]
    weights = None if unlabeled.weights is None else unlabeled.weights[clustered]
    n_clusters = int(labels.max()) + 1
    if offsets is None:
        return Moments.from_checked(X, codes, np.arange(n_clusters), weights)
    pairs, pair_of = _pairs_of(codes, batch_of[clustered], n_clusters, len(offsets))
    numbers = np.arange(len(pairs.class_of))
    moments = Moments.from_checked(X, pair_of, numbers, weights)
    return correct_by(moments, pairs, offsets)


def _batch_offsets(unlabeled: UnlabeledRows) -> tuple[Indices, Float64 | None]:
    """Return the batch (n,) of each unlabeled sample and offsets (B, d), None for one batch."""
    used = np.flatnonzero(unlabeled.is_used)
    names, codes = np.unique(unlabeled.batches[used], return_inverse=True)
    batch_of = np.zeros(unlabeled.n_rows, dtype=np.intp)
    batch_of[used] = codes
    if len(names) < 2:
        return batch_of, None
    weights = None if unlabeled.weights is None else unlabeled.weights[used]
    X_used = _take(unlabeled.X, used)
    moments = Moments.from_checked(X_used, codes, np.arange(len(names)), weights)
    return batch_of, mean_offsets(moments)


def _pairs_of(
    clusters: Indices, batches: Indices, n_clusters: int, n_batches: int
) -> tuple[Pairs, Indices]:
    """Return the pairs (cluster, batch) that occur, and the pair (n,) of each sample."""
    # one number per pair: its quotient by n_batches is the cluster, its remainder the batch
    numbers, codes = np.unique(clusters * n_batches + batches, return_inverse=True)
    pairs = Pairs(
        np.arange(n_clusters),
        np.arange(n_batches),
        numbers // n_batches,
        numbers % n_batches,
    )
    return pairs, codes


# ---- samples of the seen classes -------------------------------------------------------


def _draw_seen(
    seen: MemoryRows | CorrectedRows, most: int
) -> tuple[Matrix | OffsetMatrix, Indices]:
    """Draw at most this many samples of the seen classes, and return them with their codes."""
    weights = seen.weights
    is_used = np.ones(len(seen.codes), dtype=bool)
    if weights is not None:  # samples of weight 0 must not matter
        is_used = np.asarray(weights) > 0
    rows = draw_rows(is_used, most)
    X = seen.samples() if is_corrected(seen) else seen.X
    return _take(X, rows), seen.codes[rows]


def _draw_seen_beyond_memory(
    seen: Any,  # row source of the seen classes, corrected or not
    unlabeled: UnlabeledStream,
    most: int,
) -> tuple[Matrix | OffsetMatrix, Indices]:
    """Draw samples of the seen classes if the unlabeled samples are beyond memory."""
    if unlabeled.seen is None:
        return _draw_seen(seen, most)
    X, labels = unlabeled.seen.sample(most, labeled=True)
    if not is_corrected(seen):
        return X, labels.sorted().codes
    # the labels are pairs (class, batch), in another order than in the moments
    place = {pair: i for i, pair in enumerate(seen.uncorrected.classes)}
    pair_of = np.array([place.get(pair, 0) for pair in labels.classes])[labels.codes]
    corrected = OffsetMatrix(X, seen.pairs.batch_of[pair_of], seen.offsets)
    return corrected, seen.pairs.class_of[pair_of]


# ---- beyond memory ---------------------------------------------------------------------


def clusters_beyond_memory(
    seen: Any,  # row source of the seen classes
    unlabeled: UnlabeledStream,
    n_clusters: int | str,
    sizes: SampleSizes = DEFAULT_SIZES,
) -> SummedClusters:
    """Do the same as `clusters_in_memory`: cluster a random part, and sum up all samples."""
    rows = unlabeled.rows
    X, _ = rows.sample(sizes.clustered, labeled=False)
    _check_range(X)
    batches = rows.batches
    offsets = None if batches is None else _offsets_beyond_memory(rows)
    corrected: Matrix | OffsetMatrix = X
    if offsets is not None:
        # the batches of the samples drawn: `sample` draws the same rows of the same mask
        corrected = OffsetMatrix(X, _sampled_batches(rows, X.shape[0]), offsets)
    X_seen, codes_seen = _draw_seen_beyond_memory(seen, unlabeled, sizes.components)
    X_seen, corrected = _with_offsets(X_seen, corrected)
    clusters, _ = cluster_unlabeled(X_seen, codes_seen, corrected, n_clusters, sizes)
    if offsets is not None:
        clusters = clusters.with_batches(offsets)

    assigned = rows.assign(clusters)
    if batches is not None and offsets is not None:
        moments = _corrected_clusters(assigned, batches, offsets, unlabeled.options)
    else:
        sums = assigned.sums(**unlabeled.options)
        moments = Moments.from_sums(*sums).without_empty_classes()
    # clusters that no sample joined were dropped, and the others count on
    centers = clusters.centers[moments.classes]
    if assigned.labels is None:  # the labels are on the workers of a Dask cluster
        return SummedClusters(moments, np.zeros(0, dtype=np.intp), centers)
    codes = assigned.labels.codes[unlabeled.labels.codes == UNLABELED]
    labels = np.searchsorted(moments.classes, codes)
    labels[codes < 0] = UNLABELED
    return SummedClusters(moments, labels, centers)


def _check_range(X: Matrix) -> None:
    """Raise if values of a file are not finite, or if their squares exceed float32."""
    size = float(abs(X).max())
    if not np.isfinite(size):
        refuse_nonfinite(X, "The unlabeled samples")
    # in memory such data are converted to float64; a file is not
    smallest, largest = FLOAT32_RANGE
    if X.dtype == np.float32 and size and not smallest < size < largest:
        raise ValueError(
            f"The unlabeled samples have numbers of size {size:.0e}, whose squares lose "
            "digits in float32. Rescale X, for example to unit variance."
        )


def _offsets_beyond_memory(rows: Any) -> Float64 | None:
    """Return the means (B, d) of the batches of unlabeled samples, minus their overall mean.

    This takes one pass. Batches without unlabeled samples have zeros. If only one batch has
    unlabeled samples, None is returned.
    """
    labels = rows.labels
    batches = rows.batches
    # batches in place of labels: their means are class means
    codes = np.where(labels.codes == UNLABELED, batches.codes, LEFT_OUT)
    by_batch = rows.with_labels(Labels(list(range(len(batches.classes))), codes))
    totals = by_batch.accumulate(matrix=False, precise=False)
    if len(totals.classes) < 2:
        return None
    offsets = np.zeros((len(batches.classes), rows.n_features))
    offsets[totals.classes] = totals.means - totals.mean
    return offsets


def _sampled_batches(rows: Any, n: int) -> Indices:
    """Return the batches (n,) of the n unlabeled samples that `sample` of a source drew."""
    drawn = draw_rows(rows.labels.codes == UNLABELED, n)
    return rows.batches.codes[drawn]


def _corrected_clusters(
    assigned: Any,
    batches: Labels,
    offsets: Float64,
    options: dict[str, Any],
) -> Moments:
    """Return moments of clusters of samples beyond memory, minus offsets (B, d) of batches."""
    paired = assigned.with_labels(pair_labels(assigned.labels, batches))
    by_pair = Moments.from_sums(*paired.sums(**options)).without_empty_classes()
    # clusters without samples are dropped, offsets of batches stay where they are
    place = {batch: b for b, batch in enumerate(batches.classes)}
    clusters, class_of = np.unique([c for c, _ in by_pair.classes], return_inverse=True)
    batch_of = np.array([place[batch] for _, batch in by_pair.classes], dtype=np.intp)
    pairs = Pairs(clusters, batches.class_array(), class_of, batch_of)
    return correct_by(by_pair, pairs, offsets)


# ---- parts of matrices -----------------------------------------------------------------


def _features_of(X: Matrix | OffsetMatrix, present: Mask | None) -> Any:
    """Return the features of X in a mask (d,), or all of them without a mask."""
    if present is None:
        return X
    features = np.flatnonzero(present)
    if isinstance(X, OffsetMatrix):
        return X.columns(features)
    return X[:, features]


def _with_offsets(*matrices: Matrix | OffsetMatrix) -> list[Any]:
    """Return the matrices. If one has offsets, all get offsets, which may be 0."""
    if not any(isinstance(X, OffsetMatrix) for X in matrices):
        return list(matrices)
    return [X if isinstance(X, OffsetMatrix) else _zero_offsets(X) for X in matrices]


def _zero_offsets(X: Matrix) -> OffsetMatrix:
    """Return X (n, d) as samples of one batch with offset 0."""
    n, d = X.shape
    return OffsetMatrix(X, np.zeros(n, np.intp), np.zeros((1, d)))


def _take(X: Any, samples: Indices) -> Any:
    """Return some rows of X, without a copy if these are all rows."""
    return X if len(samples) == X.shape[0] else X[samples]
