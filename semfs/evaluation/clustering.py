"""K-means with the rules of litekmeans 2.0, all repeats at once."""

from __future__ import annotations

import numbers
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

__all__ = ["Clustering", "kmeans"]

EPS32 = float(np.finfo(np.float32).eps)
BLOCK_ENTRIES = 400_000  # float32 distances per block: they stay in a core's cache
BATCH_LABELS = 4_000_000  # labels held at once; K-means runs beyond that wait their turn


@dataclass(frozen=True)
class Clustering:
    """One K-means run: ``labels`` (n,), ``centres`` (K, d), ``n_iter``, ``converged``."""

    labels: np.ndarray
    centres: np.ndarray
    n_iter: int
    converged: bool


def kmeans(X: Any, start: Any, *, max_iter: int = 100) -> Clustering:
    """Cluster the rows of X by Lloyd's iteration from a given start.

    Assign each row to its nearest centre (ties: the lowest index), give every empty
    cluster one of the rows farthest from their own centres, recompute the means; stop
    when no label changes or after ``max_iter`` rounds. These are the rules of
    litekmeans 2.0; where its refill would empty another cluster, the refill is repeated
    with the next farthest rows.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Of any dtype. Labels are those of a float64 computation: float32 only screens out
        rows that provably keep their centre. In float32 alone near ties would go the
        wrong way, and the iteration might never settle.
    start : array-like of shape (K,) or (K, d)
        K different row indices, or K starting centres.
    max_iter : int

    Returns
    -------
    Clustering

    Examples
    --------
    >>> kmeans([[0.0], [0.1], [5.0], [5.2]], start=[0, 1]).labels
    array([0, 0, 1, 1])
    """
    X = check_rows(X)
    start = np.asarray(start)
    if start.ndim == 2:
        centres = _check_centres(start, X)
    else:
        centres = X[check_starts(np.atleast_2d(start), X.shape[0])[0]]
    check_count("max_iter", max_iter)
    labels, n_iter, converged = run_lloyd(X, centres[None], int(max_iter))
    sums, counts = _sums(X, labels[0], len(centres))
    return Clustering(labels[0], sums / counts[:, None], int(n_iter[0]), bool(converged[0]))


def run_lloyd(
    X: np.ndarray, centres: np.ndarray, max_iter: int = 100
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Run K-means from R sets of centres (R, K, d); return labels (R, n), n_iter, converged."""
    R = len(centres)
    at_once = min(R, max(1, BATCH_LABELS // len(X)))
    screen = _Screen.of(X, centres, at_once)
    batches = [
        _lloyd_batch(X, screen, centres[a : a + at_once], max_iter)
        for a in range(0, R, at_once)
    ]
    labels, n_iter, converged = (np.concatenate(parts) for parts in zip(*batches))
    return labels, n_iter, converged


def _lloyd_batch(
    X: np.ndarray, screen: _Screen, centres: np.ndarray, max_iter: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Advance all runs together, so that one matrix product serves them all.

    A run leaves the batch when it converges. After the first round the sums of the
    clusters are corrected by the rows that moved instead of being computed anew.
    """
    R, K, _ = centres.shape
    labels, n_iter = np.empty((R, len(X)), dtype=np.intp), np.full(R, max_iter)
    converged, live = np.zeros(R, dtype=bool), np.arange(R)
    own = screen.guess(centres)
    for iteration in range(1, max_iter + 1):
        rows, new, old = _reassign(X, screen, centres, own)
        if iteration == 1:
            fresh = [_sums(X, found, K) for found in screen.labels(own, K)]
            sums, counts = (np.stack(parts) for parts in zip(*fresh))
            settled = np.zeros(len(live), dtype=bool)
        else:
            _move(X, rows, new, old, sums, counts)
            settled = np.bincount(old // K, minlength=len(live)) == 0
        for r in np.flatnonzero((counts == 0).any(axis=1)):
            found = screen.labels(own[:, [r]], K)[0]
            before, moved = found.copy(), old // K == r
            before[rows[moved]] = old[moved] % K
            _refill(X, found, centres[r])
            own[:, r] = screen.positions(found[None], K)[:, 0] + r * K * screen.width
            sums[r], counts[r] = _sums(X, found, K)
            settled[r] = iteration > 1 and np.array_equal(before, found)
        done = settled | (iteration == max_iter)
        if done.any():
            labels[live[done]] = screen.labels(own[:, done], K)
            n_iter[live[done]], converged[live[done]] = iteration, settled[done]
            own -= (np.cumsum(done) * K * screen.width)[:, None]  # close the gaps
            own = np.ascontiguousarray(own[:, ~done])
            live, sums, counts = live[~done], sums[~done], counts[~done]
        if not len(live):
            break
        centres = sums / counts[:, :, None]
    return labels, n_iter, converged


@dataclass(frozen=True)
class _Screen:
    """The rows in float32, to tell cheaply which of them may have a new nearest centre.

    Distances from one float32 matrix product have a rigorous error bound, so a row whose
    own centre is nearest by more than the bound stays. Only the others are looked at more
    closely, and whatever float32 cannot decide is decided in float64 (`_closest`): the
    labels are those of a float64 computation, at the price of a float32 one.

    ``points`` (n_blocks, d + 1, width) holds the centred and scaled rows as columns, with
    a last feature of one that multiplies ‖c‖². ``norms`` (n_blocks, width) are their
    lengths. The last block is padded; padding has norm -inf and is never in doubt.
    In an array ``own`` (n_blocks, R, width) an entry is the position of the row's own
    centre in the block of distances (R * K, width): ``(r * K + label) * width + column``.
    """

    points: np.ndarray
    norms: np.ndarray
    mean: np.ndarray
    scale: float
    n_rows: int

    @classmethod
    def of(cls, X: np.ndarray, centres: np.ndarray, n_runs: int) -> _Screen:
        n, d = X.shape
        mean = X.mean(axis=0)
        Z = X - mean
        # The largest entry becomes 1, so nothing overflows in float32.
        scale = max(np.abs(Z).max(), np.abs(centres - mean).max()) or 1.0
        Z /= scale
        n_blocks = -(-n * n_runs * centres.shape[1] // BLOCK_ENTRIES)
        width = -(-n // n_blocks)
        points = np.zeros((n_blocks, d + 1, width), dtype=np.float32)
        norms = np.full((n_blocks, width), -np.inf, dtype=np.float32)
        for b in range(n_blocks):
            part = Z[b * width : (b + 1) * width]
            points[b, :d, : len(part)], points[b, d] = part.T, 1.0
            norms[b, : len(part)] = np.sqrt(np.einsum("ij,ij->i", part, part))
        return cls(points, norms, mean, float(scale), n)

    @property
    def width(self) -> int:
        return self.norms.shape[1]

    def weights(self, centres: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return (R * K, d + 1) rows (-2c, ‖c‖²), and the doubt (n_blocks, width).

        The doubt bounds the error of a difference of two float32 distances: d + 4
        roundings, each of at most eps/2 relative to 2‖x‖‖c‖ + ‖c‖², in both; some
        more are allowed for terms of second order.
        """
        d = centres.shape[2]
        C = ((centres - self.mean) / self.scale).reshape(-1, d)
        squares = np.einsum("ij,ij->i", C, C)
        longest = float(np.sqrt(squares.max()))
        unit = (d + 8) * EPS32 * max(longest, 1e-25)  # above the denormal numbers
        doubt = self.norms * np.float32(2 * unit) + np.float32(unit * longest + 1e-35)
        weights = np.empty((len(C), d + 1), dtype=np.float32)
        weights[:, :d], weights[:, d] = -2.0 * C, squares
        return weights, doubt

    def guess(self, centres: np.ndarray) -> np.ndarray:
        """Return ``own`` for the nearest centres as float32 sees them."""
        R, K, _ = centres.shape
        weights, _ = self.weights(centres)
        found = []
        for part in self.points:
            distances = (weights @ part).reshape(R, K, -1)
            nearest = distances == distances.min(axis=1, keepdims=True)
            found.append(nearest.argmax(axis=1))  # faster than distances.argmin(axis=1)
        return self.positions(np.concatenate(found, axis=1), K)

    def positions(self, labels: np.ndarray, K: int) -> np.ndarray:
        """Return ``own`` of labels (R, n), which may or may not include the padding."""
        R, n_blocks = len(labels), len(self.norms)
        full = np.zeros((R, n_blocks * self.width), dtype=np.intp)
        full[:, : labels.shape[1]] = labels
        by_block = np.ascontiguousarray(full.reshape(R, n_blocks, -1).transpose(1, 0, 2))
        return (by_block + K * np.arange(R)[:, None]) * self.width + np.arange(self.width)

    def labels(self, own: np.ndarray, K: int) -> np.ndarray:
        """Return the labels (R, n) that ``own`` stands for."""
        found = (own // self.width) % K
        return found.transpose(1, 0, 2).reshape(own.shape[1], -1)[:, : self.n_rows]


def _reassign(
    X: np.ndarray, screen: _Screen, centres: np.ndarray, own: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Move every row to its nearest centre; ``own`` is updated.

    Returns the rows that moved, and the centres (numbered r * K + label) where they went
    and came from.
    """
    R, K, d = centres.shape
    width = screen.width
    weights, doubt = screen.weights(centres)
    moves = []
    for b, part in enumerate(screen.points):
        distances = weights @ part  # ‖c‖² − 2xᵀc, (R * K, width)
        by_run, flat, mine = distances.reshape(R, K, width), distances.ravel(), own[b].ravel()
        to_own = flat.take(mine)
        flat[mine] = np.inf
        lead = by_run.min(axis=1).ravel() - to_own
        at = np.flatnonzero(lead.reshape(R, width) <= doubt[b])
        if not len(at):
            continue
        flat[mine[at]] = to_own[at]
        run, column = np.divmod(at, width)
        # Rows as columns again: numpy reduces (K, m) over its first axis much faster.
        close = np.ascontiguousarray(by_run[run, :, column].T)
        close = close <= close.min(axis=0) + doubt[b, column]
        new = run * K + close.argmax(axis=0)
        tied = np.flatnonzero(close.sum(axis=0, dtype=np.int32) > 1)
        rows = column + b * width
        if len(tied):
            flat_centres = centres.reshape(R * K, d)
            new[tied] = _closest(X, flat_centres, rows[tied], run[tied] * K, close[:, tied])
        old = mine[at] // width
        moved = np.flatnonzero(new != old)
        new, old = new[moved], old[moved]
        own[b, run[moved], column[moved]] += (new - old) * width
        moves.append((rows[moved], new, old))
    if not moves:
        return (np.empty(0, dtype=np.intp),) * 3
    rows, new, old = (np.concatenate(parts) for parts in zip(*moves))
    return rows, new, old


def _closest(
    X: np.ndarray, centres: np.ndarray, rows: np.ndarray, first: np.ndarray, close: np.ndarray
) -> np.ndarray:
    """Return the nearest of the centres marked in ``close`` (K, m) for each of m rows.

    In float64 and by differences: two equal centres are at exactly the same distance,
    and the one with the lower index wins, wherever the origin of the data is.
    """
    row, k = np.nonzero(close.T)
    distances = np.full(close.T.shape, np.inf)
    step = max(1, 1_000_000 // X.shape[1])
    for a in range(0, len(row), step):
        i, j = row[a : a + step], k[a : a + step]
        gap = X.take(rows[i], axis=0) - centres.take(first[i] + j, axis=0)
        distances[i, j] = np.einsum("ij,ij->i", gap, gap)
    return first + distances.argmin(axis=1)


def _refill(X: np.ndarray, labels: np.ndarray, centres: np.ndarray) -> None:
    """Give each empty cluster one of the rows farthest from their centres, in place.

    Taking the only row of a cluster empties it: it is then served next, with the rows
    after those already given away. Every cluster is served once at most.
    """
    gap = X - centres[labels]
    farthest = np.argsort(-np.einsum("ij,ij->i", gap, gap), kind="stable")
    given = 0
    while True:
        empty = np.flatnonzero(np.bincount(labels, minlength=len(centres)) == 0)
        if not len(empty):
            return
        labels[farthest[given : given + len(empty)]] = empty
        given += len(empty)


def _sums(X: np.ndarray, labels: np.ndarray, K: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the sums (K, d) and the sizes (K,) of the clusters."""
    n = len(labels)
    member = sp.csc_array((np.ones(n), labels, np.arange(n + 1)), shape=(K, n))
    return member @ X, np.bincount(labels, minlength=K)


def _move(
    X: np.ndarray,
    rows: np.ndarray,
    new: np.ndarray,
    old: np.ndarray,
    sums: np.ndarray,
    counts: np.ndarray,
) -> None:
    """Correct sums (R, K, d) and counts (R, K) for rows that went from ``old`` to ``new``."""
    size, m = counts.size, len(rows)
    if not m:
        return
    where = np.column_stack([new, old]).ravel()
    sign = np.tile([1.0, -1.0], m)
    change = sp.csc_array((sign, where, np.arange(0, 2 * m + 1, 2)), shape=(size, m))
    sums += (change @ X.take(rows, axis=0)).reshape(sums.shape)
    change_of_count = np.bincount(new, minlength=size) - np.bincount(old, minlength=size)
    counts += change_of_count.reshape(counts.shape)


# --- checks of the arguments ----------------------------------------------------------


def check_rows(X: Any) -> np.ndarray:
    X = check_array(X, accept_sparse="csr", dtype=np.float64, order="C", input_name="X")
    return X.toarray() if sp.issparse(X) else X


def _check_centres(centres: np.ndarray, X: np.ndarray) -> np.ndarray:
    centres = check_array(centres, dtype=np.float64, input_name="start")
    if centres.shape[1] != X.shape[1]:
        raise ValueError(
            f"start holds centres with {centres.shape[1]} features but X has {X.shape[1]}. "
            "Pass centres of shape (K, d), or K row indices."
        )
    check_enough_rows(X.shape[0], len(centres))
    return centres


def check_starts(starts: np.ndarray, n: int, K: int | None = None) -> np.ndarray:
    """Return starts (n_repeats, K) as row indices, or say what is wrong with them."""
    shape = f"(n_repeats, {'K' if K is None else K})"
    if starts.ndim != 2 or 0 in starts.shape or (K is not None and starts.shape[1] != K):
        hint = " Transpose it." if starts.ndim == 2 and starts.shape[0] == K else ""
        raise ValueError(
            f"starts has shape {starts.shape}, expected {shape}: for each repeat one row "
            f"index per class.{hint}"
        )
    check_enough_rows(n, starts.shape[1])
    if starts.dtype.kind not in "iu":
        raise ValueError(f"starts must hold row indices (integers), got {starts.dtype}.")
    if starts.min() < 0 or starts.max() >= n:
        bad = starts.min() if starts.min() < 0 else starts.max()
        raise ValueError(f"starts names row {bad}, but X has rows 0 to {n - 1}.")
    ordered = np.sort(starts, axis=1)
    again = np.argwhere(ordered[:, 1:] == ordered[:, :-1])
    if len(again):
        repeat, at = again[0]
        raise ValueError(
            f"starts names row {ordered[repeat, at]} twice in repeat {repeat}. "
            "Draw different rows, for example with starting_rows."
        )
    return starts.astype(np.intp)


def check_enough_rows(n: int, K: int) -> None:
    if n < K:
        raise ValueError(
            f"X has {n} rows, fewer than the {K} clusters asked for. "
            "Pass more rows, or ask for fewer clusters."
        )


def check_count(name: str, value: Any) -> None:
    if not isinstance(value, numbers.Integral) or isinstance(value, bool) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}.")
