"""Forward selection on many resamples of the classes, from one pass over the rows.

Folds and bootstraps only change how much each class counts. For a limited set of candidate
features the scatter of each group of classes is computed once; what a resample needs are sums
of these blocks. All targets enter through H = B B', so attributes, labels and their mix cost
the same, and a path over D candidates takes O(D k²) whatever the number of attributes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.method.moments import Moments
from semfs.rows import Rows

__all__ = ["ClassSums", "Resample", "Setting", "forward_path", "screen_features"]


#: More groups of classes than this are not summed up one by one: it would take memory.
MOST_GROUPS = 32


@dataclass(frozen=True)
class Setting:
    """The parameters of `SemFS` that a resample can vary at no cost."""

    alpha: float = 1.0
    gamma: float = 10.0
    penalty_scale: str = "gram"
    fit_intercept: bool = True
    balanced: bool = False
    label_weight: float = 0.0

    @classmethod
    def of_params(cls, params: Mapping[str, Any]) -> Setting:
        """Read the parameters of a `SemFS`."""
        return cls(
            float(params["alpha"]),
            float(params["gamma"]),
            params["penalty_scale"],
            bool(params["fit_intercept"]),
            params["class_weight"] == "balanced",
            float(params["label_weight"]),
        )


@dataclass(frozen=True, eq=False)
class ClassSums:
    """Counts (C,), means (C, D) and group-wise scatter of the candidate columns.

    ``groups`` (C,) says which classes are always resampled together; means are about the
    overall mean ``centre`` (D,). ``table`` (C, m) holds the attributes, or is None for labels.
    """

    Z: np.ndarray
    codes: np.ndarray
    weights: np.ndarray | None
    counts: np.ndarray
    means: np.ndarray
    centre: np.ndarray
    groups: np.ndarray
    table: np.ndarray | None

    @classmethod
    def of_columns(
        cls,
        moments: Moments,
        columns: np.ndarray,
        groups: np.ndarray,
        table: np.ndarray | None,
    ) -> ClassSums:
        """Return the sums of some columns of the rows that moments hold."""
        rows = moments.rows
        assert isinstance(rows, Rows)
        centre = moments.mean[columns]
        picked = rows.X[:, columns]
        picked = picked.toarray() if sp.issparse(picked) else picked
        Z = picked - centre.astype(picked.dtype)
        means = moments.means[:, columns] - centre
        return cls(Z, rows.codes, rows.weights, moments.counts, means, centre, groups, table)

    @cached_property
    def _plain_scatter(self) -> np.ndarray:
        return self._scatter_by_group(np.ones(len(self.counts)))

    @cached_property
    def _balanced_scatter(self) -> np.ndarray:
        return self._scatter_by_group(1.0 / np.maximum(self.counts, 1e-300))

    def _scatter_by_group(self, factors: np.ndarray) -> np.ndarray:
        """Sums (g, D, D) of z z' over the rows of each group, a class factor times each."""
        of_rows = self.groups[self.codes]
        groups = range(int(self.groups.max()) + 1)
        return np.stack(
            [self._weighted_scatter(factors, np.flatnonzero(of_rows == g)) for g in groups]
        )

    def _weighted_scatter(self, factors: np.ndarray, rows: Any = slice(None)) -> np.ndarray:
        """Sum (D, D) of z z' over rows, a class factor times each."""
        Z, weights = self.Z[rows], factors[self.codes[rows]]
        if self.weights is not None:
            weights = weights * self.weights[rows]
        if not (weights == 1.0).all():
            Z = Z * np.sqrt(weights).astype(Z.dtype)[:, None]
        return _square(Z)

    def resample(self, times: np.ndarray, *, balanced: bool, fit_intercept: bool) -> Resample:
        """Return what settings of one kind share on a resample.

        Parameters
        ----------
        times : ndarray of shape (C,)
            How often each class counts; equal within a group.
        balanced, fit_intercept : bool
            As in `Setting`.
        """
        on = times > 0
        n = times * _class_factors_on(self.counts, on, balanced) * self.counts
        total, mean = self._total(times, on, balanced), n @ self.means / n.sum()
        M, n_on = self.means[on], n[on]
        if fit_intercept:
            total -= n.sum() * np.outer(mean, mean)
            M = M - mean
        else:  # about the origin
            cross = n.sum() * np.outer(mean, self.centre)
            total += cross + cross.T + n.sum() * np.outer(self.centre, self.centre)
            M = M + self.centre
        M = M.astype(self.Z.dtype)
        root = np.sqrt(n_on).astype(M.dtype)[:, None] * M
        sums = n_on.astype(M.dtype)[:, None] * M
        by_attributes = None
        if self.table is not None:
            A = self.table[on]
            A = A - n_on @ A / n_on.sum() if fit_intercept else A
            B = sums.T @ A.astype(M.dtype)
            by_attributes = _square(B.T)
        share = float(times @ self.counts / self.counts.sum())
        return Resample(total, _square(root), by_attributes, _square(sums), share)

    def _total(self, times: np.ndarray, on: np.ndarray, balanced: bool) -> np.ndarray:
        """Scatter about the overall mean, summed over groups."""
        share = np.zeros(int(self.groups.max()) + 1)
        share[self.groups] = times
        if len(share) > MOST_GROUPS:
            return self._weighted_scatter(times * _class_factors_on(self.counts, on, balanced))
        if not balanced:
            return np.tensordot(share, self._plain_scatter, axes=1)
        scale = self.counts[on].sum() / on.sum()  # as in _class_factors
        return scale * np.tensordot(share, self._balanced_scatter, axes=1)


@dataclass(frozen=True, eq=False)
class Resample:
    """Matrices (D, D) of a resample: scatter, between-class part, and M'N T T'N M for
    attributes (None without) and labels as targets T; ``share`` of the rows in it."""

    total: np.ndarray
    between: np.ndarray
    by_attributes: np.ndarray | None
    by_labels: np.ndarray
    share: float

    def path(
        self, setting: Setting, n_select: int, diagonal: float, **limits: Any
    ) -> np.ndarray:
        """The features that a setting chooses, in order of entry.

        ``diagonal`` is the mean diagonal of G over all features and classes, for the scale of
        γ; nan if all features are candidates. ``limits`` are passed to `forward_path`.
        """
        G = self.total + setting.alpha * self.between
        gamma = setting.gamma
        if setting.penalty_scale == "gram":
            gamma *= float(np.diag(G).mean()) if np.isnan(diagonal) else self.share * diagonal
        H = self.by_labels if self.by_attributes is None else self.by_attributes
        if self.by_attributes is not None and setting.label_weight:
            H = H + setting.label_weight * self.by_labels
        # (1 + α)² H would be B B'; a common factor changes all gains alike
        return forward_path(G, H, gamma, n_select, **limits)


def _square(root: np.ndarray) -> np.ndarray:
    return (root.T @ root).astype(np.float64)


def _class_factors_on(counts: np.ndarray, on: np.ndarray, balanced: bool) -> np.ndarray:
    """The same, for the classes that are on; zero for others."""
    factors = np.zeros(len(counts))
    factors[on] = _class_factors(counts[on], balanced)
    return factors


def _class_factors(counts: np.ndarray, balanced: bool) -> np.ndarray:
    """What each class counts for (C,), relative to its rows."""
    if not balanced:
        return np.ones(len(counts))
    return counts.sum() / (len(counts) * np.maximum(counts, 1e-300))


def forward_path(
    G: np.ndarray,
    H: np.ndarray,
    gamma: float,
    n_select: int,
    *,
    allowed: np.ndarray | None = None,
    first: np.ndarray | None = None,
) -> np.ndarray:
    """Return the features that forward selection chooses, in order of entry.

    The same search as `solve_direct`, with G (D, D) and H = B B' (D, D) at hand:
    R R' is needed for one column at a time, and follows from P = B Q' and Q Q'.

    Parameters
    ----------
    G, H : ndarray of shape (D, D)
    gamma : float
    n_select : int
    allowed : ndarray of bool of shape (D,), optional
        Features that may enter.
    first : ndarray of int, optional
        Features that enter before the others.

    Examples
    --------
    >>> forward_path(np.eye(3), np.diag([1.0, 4.0, 2.0]), 0.1, 2)
    array([1, 2])
    """
    D = len(G)
    pivots, norms = np.diag(G) + gamma, np.diag(H).copy()
    smallest = 1e-12 * pivots
    closed = np.zeros(D, dtype=bool) if allowed is None else ~allowed
    waiting = [] if first is None else [int(j) for j in first]
    closed[waiting] = False
    n_select = min(n_select, D - int(closed.sum()))
    # rows of L' and P' are contiguous, and so are those of the symmetric G and H
    L, P, QQ = np.empty((n_select, D)), np.empty((n_select, D)), np.zeros((n_select,) * 2)
    chosen: list[int] = []
    for t in range(n_select):
        closed |= pivots <= smallest  # copies of chosen features
        gains = norms / np.where(closed, np.inf, pivots)
        gains[closed] = -1.0
        waiting = [i for i in waiting if not closed[i]]
        j = max(waiting, key=lambda i: gains[i]) if waiting else int(np.argmax(gains))
        if closed[j]:
            break
        root, row = np.sqrt(pivots[j]), L[:t, j].copy()
        column = G[j] - row @ L[:t]
        column[j] += gamma
        column /= root
        with_B = (H[j] - row @ P[:t]) / root  # B q
        with_Q = (P[:t, j] - QQ[:t, :t] @ row) / root  # Q q
        length = max(gains[j], 0.0)  # q'q
        norms += column * (column * length - 2.0 * (with_B - with_Q @ L[:t]))
        pivots -= column**2
        L[t], P[t] = column, with_B
        QQ[t, :t] = QQ[:t, t] = with_Q
        QQ[t, t] = length
        closed[j] = True
        chosen.append(j)
    return np.array(chosen, dtype=np.intp)


def screen_features(
    moments: Moments,
    table: np.ndarray | None,
    settings: list[Setting],
    n_candidates: int,
    *,
    allowed: np.ndarray,
    keep: np.ndarray,
) -> tuple[np.ndarray, dict[Setting, float]]:
    """Return candidate features and, per setting, the mean diagonal of G over all features.

    Each setting ranks the features by the gain of entering first; candidates are taken from
    the tops of these rankings in turn. ``keep`` features are candidates in any case.
    """
    rankings, diagonals = [], {}
    screens: dict[bool, _Screen] = {}
    for setting in dict.fromkeys(settings):
        if setting.balanced not in screens:
            screens[setting.balanced] = _Screen(moments, table, setting.balanced)
        diag, norms = screens[setting.balanced].diagonal_and_norms(setting)
        diagonals[setting] = float(diag.mean())
        scale = diag.mean() if setting.penalty_scale == "gram" else 1.0
        gains = norms / np.maximum(diag + setting.gamma * scale, np.finfo(float).tiny)
        gains[~allowed] = -1.0
        rankings.append(np.argsort(-gains, kind="stable"))
    turns = np.stack(rankings, axis=1).ravel()  # best of each, then second best of each, …
    turns = turns[allowed[turns]]
    found = list(dict.fromkeys([*keep.tolist(), *turns.tolist()]))
    return np.sort(np.array(found[: max(n_candidates, len(keep))], dtype=np.intp)), diagonals


class _Screen:
    """Sums over classes that give the first gains of all features, centred or not."""

    def __init__(self, moments: Moments, table: np.ndarray | None, balanced: bool) -> None:
        M, squares = moments.means, moments.means**2
        self.table = table
        self.n = n = _class_factors(moments.counts, balanced) * moments.counts
        self.mean, self.second = n @ M / n.sum(), n @ squares
        # "balanced" weighs within-class scatter too; its total is enough to rank by
        spread = moments.counts @ squares - moments.total * moments.mean**2
        self.within = np.maximum(moments.scatter_diag - spread, 0.0)
        self.label_sums, self.label_squares = n**2 @ M, n**2 @ squares
        self.attribute_sums = None if table is None else (n[:, None] * table).T @ M

    def diagonal_and_norms(self, setting: Setting) -> tuple[np.ndarray, np.ndarray]:
        """Diagonal of G (d,) and squared row norms of B (d,), up to a common factor."""
        centre = self.mean if setting.fit_intercept else np.zeros_like(self.mean)
        total = self.n.sum()
        between = self.second - 2.0 * total * centre * self.mean + total * centre**2
        diag = self.within + (1.0 + setting.alpha) * np.maximum(between, 0.0)
        by_labels = (
            self.label_squares - 2.0 * centre * self.label_sums + (self.n**2).sum() * centre**2
        )
        if self.attribute_sums is None:
            return diag, np.maximum(by_labels, 0.0)
        B = self.attribute_sums
        if setting.fit_intercept:
            B = B - np.outer(self.n @ self.table, self.mean)
        return diag, (B**2).sum(axis=0) + setting.label_weight * np.maximum(by_labels, 0.0)
