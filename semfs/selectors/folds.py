"""Forward selection on folds of the classes, from one pass over the rows.

Folds and class weights only change how much each class counts. For a limited set of candidate
features the scatter of each group of classes is computed once; what a fold needs are sums of
these, which make a `Quadratic` over the candidates.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.method.direct import forward_selection
from semfs.method.moments import Moments
from semfs.method.objective import Quadratic, absolute_penalty
from semfs.rows import Rows
from semfs.selectors.training import FeatureLimits
from semfs.validation import class_weights

__all__ = ["ClassFolds", "Setting"]

#: More groups of classes than this are not summed up one by one: it would take memory.
MOST_GROUPS = 32


@dataclass(frozen=True)
class Setting:
    """The parameters of `SemFS` that all folds share the sums for."""

    alpha: float = 1.0
    gamma: float = 10.0
    penalty_scale: str = "gram"
    fit_intercept: bool = True
    class_weight: str | None = None
    label_weight: float = 0.0

    @classmethod
    def of_params(cls, params: Mapping[str, Any]) -> Setting:
        """Read the parameters of a `SemFS`."""
        return cls(**{name: params[name] for name in cls.__dataclass_fields__})

    @property
    def kind(self) -> tuple[str | None, bool]:
        """What the sums over rows depend on."""
        return self.class_weight, self.fit_intercept


class ClassFolds:
    """The features that settings choose on folds of the classes.

    Parameters
    ----------
    moments : Moments
        Of all seen classes, with their rows in memory.
    table : ndarray of shape (C, m) or None
        Attributes of the classes; None for labels as targets.
    settings : list of Setting
    splits : list of (ndarray, ndarray)
        Masks (C,) of training and test classes.
    limits : FeatureLimits
    n_candidates : int or None
        Number of features that enter the search (`screen_features`); None for all.
    """

    def __init__(
        self,
        moments: Moments,
        table: np.ndarray | None,
        settings: list[Setting],
        splits: list[tuple[np.ndarray, np.ndarray]],
        limits: FeatureLimits,
        n_candidates: int | None = None,
    ) -> None:
        self.settings, self.table = settings, table
        self.columns = np.arange(moments.n_features)
        self.diagonals: dict[Setting, float] = {}
        if n_candidates is not None and n_candidates < moments.n_features:
            self.columns, self.diagonals = screen_features(
                moments, table, settings, n_candidates, limits
            )
        self.allowed = limits.candidates[self.columns]
        self.first = np.flatnonzero(np.isin(self.columns, limits.include))
        membership = np.array([train for train, _ in splits]).T
        groups = np.unique(membership, axis=0, return_inverse=True)[1].reshape(-1)
        self.sums = _GroupSums(moments, self.columns, groups)

    def paths(self, train: np.ndarray, k: int) -> list[np.ndarray]:
        """The first k features of each setting on the training classes (mask)."""
        kinds = {setting.kind for setting in self.settings}
        folds = {kind: self.sums.fold(train, self.table, *kind) for kind in kinds}
        return [self._path(folds[setting.kind], setting, k) for setting in self.settings]

    def _path(self, fold: _Fold, setting: Setting, k: int) -> np.ndarray:
        quadratic = fold.quadratic(setting, self.diagonals.get(setting))
        found = forward_selection([quadratic], k, candidates=self.allowed, include=self.first)
        return self.columns[found.order[: len(found.objective)]]


class _GroupSums:
    """Candidate columns Z (n, D) of the rows about their mean, summed up by groups of classes.

    ``groups`` (C,) says which classes are always in the same folds.
    """

    def __init__(self, moments: Moments, columns: np.ndarray, groups: np.ndarray) -> None:
        self.moments, self.rows, self.groups = moments, moments.rows, groups
        assert isinstance(self.rows, Rows)
        self.centre = moments.mean[columns]
        self.means = moments.means[:, columns] - self.centre
        picked = _dense_columns(self.rows, columns)
        self.Z = picked - self.centre.astype(picked.dtype)
        self.known: dict[str | None, np.ndarray] = {}

    def fold(
        self,
        train: np.ndarray,
        table: np.ndarray | None,
        class_weight: str | None,
        fit_intercept: bool,
    ) -> _Fold:
        """Return what settings of one kind share on the training classes (mask)."""
        factors = self._factors(class_weight, train)
        n, M = (factors * self.moments.counts)[train], self.means[train]
        mean = n @ M / n.sum()
        shift = -mean if fit_intercept else self.centre  # from the mean of all rows
        scatter = self._scatter(train, class_weight, factors)
        cross = n.sum() * np.outer(mean, shift)
        scatter += cross + cross.T + n.sum() * np.outer(shift, shift)
        M = (M + shift).astype(self.Z.dtype)
        root = np.sqrt(n).astype(M.dtype)[:, None] * M
        targets = None if table is None else table[train]
        if targets is not None and fit_intercept:
            targets = targets - n @ targets / n.sum()
        sums = n.astype(M.dtype)[:, None] * M
        share = float(self.moments.counts[train].sum() / self.moments.total)
        return _Fold(scatter, _square(root), sums, targets, share)

    def _factors(self, class_weight: str | None, on: np.ndarray) -> np.ndarray:
        """What each class counts for (C,), relative to its rows; 0 for those that are off."""
        moments, factors = self.moments, on.astype(np.float64)
        weights = class_weights(class_weight, moments.classes[on], moments.counts[on])
        factors[on] = 1.0 if weights is None else weights
        return factors

    def _scatter(
        self, train: np.ndarray, class_weight: str | None, factors: np.ndarray
    ) -> np.ndarray:
        """Σ z z' over the training classes, a class factor times each."""
        n_groups = int(self.groups.max()) + 1
        if n_groups > MOST_GROUPS:
            return self._weighted_scatter(factors, np.flatnonzero(factors[self.rows.codes]))
        every = self._factors(class_weight, np.ones_like(train))
        if class_weight not in self.known:
            of_rows = self.groups[self.rows.codes]
            members = [np.flatnonzero(of_rows == g) for g in range(n_groups)]
            found = [self._weighted_scatter(every, rows) for rows in members]
            self.known[class_weight] = np.stack(found)
        # factors of fewer classes differ by a common scale only
        scale = float(factors[train][0] / every[train][0])
        share = np.zeros(n_groups)
        share[self.groups[train]] = scale
        return np.tensordot(share, self.known[class_weight], axes=1)

    def _weighted_scatter(self, factors: np.ndarray, rows: np.ndarray) -> np.ndarray:
        Z, weights = self.Z[rows], factors[self.rows.codes[rows]]
        if self.rows.weights is not None:
            weights = weights * self.rows.weights[rows]
        if not (weights == 1.0).all():
            Z = Z * np.sqrt(weights).astype(Z.dtype)[:, None]
        return _square(Z)


@dataclass(frozen=True, eq=False)
class _Fold:
    """Training classes over D candidates: scatter (D, D), between-class part (D, D), class
    sums N M (C, D), attributes (C, m) or None; ``share`` of all rows that they have."""

    scatter: np.ndarray
    between: np.ndarray
    sums: np.ndarray
    attributes: np.ndarray | None
    share: float
    known: dict[float, np.ndarray] = field(default_factory=dict)

    def quadratic(self, setting: Setting, diagonal: float | None) -> Quadratic:
        """J of a setting; gains count, its value does not, so that q is 0.

        ``diagonal`` is the mean diagonal of G over all features and classes, for the scale of
        γ; None if all features are candidates.
        """
        G = self.scatter + setting.alpha * self.between
        diag = np.diag(G)
        mean = float(diag.mean()) if diagonal is None else self.share * diagonal
        gamma = absolute_penalty(setting.gamma, setting.penalty_scale, mean)
        if setting.label_weight not in self.known:
            self.known[setting.label_weight] = self._B(setting.label_weight)
        B = (1.0 + setting.alpha) * self.known[setting.label_weight]
        rounding = float(np.finfo(self.sums.dtype).eps)
        return Quadratic(0.0, B, diag, gamma, lambda columns: G[columns].T, rounding)

    def _B(self, label_weight: float) -> np.ndarray:
        """M'N T (D, r) for attributes, labels or both as targets T; r is at most D."""
        B = self.sums.T
        if self.attributes is not None:
            labels = np.sqrt(label_weight).astype(B.dtype) * B if label_weight else B[:, :0]
            B = np.hstack([B @ self.attributes.astype(B.dtype), labels])
        B = B.astype(np.float64)
        if B.shape[1] <= len(B):
            return B
        try:  # only B B' counts
            return np.linalg.cholesky(B @ B.T)
        except np.linalg.LinAlgError:
            return B


def _dense_columns(rows: Rows, columns: np.ndarray) -> np.ndarray:
    return rows.X[:, columns].toarray() if sp.issparse(rows.X) else rows.X[:, columns]


def _square(root: np.ndarray) -> np.ndarray:
    return (root.T @ root).astype(np.float64)


# ---- candidates ------------------------------------------------------------------------


def screen_features(
    moments: Moments,
    table: np.ndarray | None,
    settings: list[Setting],
    n_candidates: int,
    limits: FeatureLimits,
) -> tuple[np.ndarray, dict[Setting, float]]:
    """Return candidate features and, per setting, the mean diagonal of G over all features.

    Each setting ranks the features by the gain of entering first; candidates are taken from
    the tops of these rankings in turn, after the features to include.
    """
    allowed, rankings, diagonals = limits.candidates, [], {}
    screens = {w: _Screen(moments, table, w) for w in {s.class_weight for s in settings}}
    for setting in dict.fromkeys(settings):
        diag, norms = screens[setting.class_weight].diagonal_and_norms(setting)
        diagonals[setting] = float(diag.mean())
        gamma = absolute_penalty(setting.gamma, setting.penalty_scale, diagonals[setting])
        gains = norms / np.maximum(diag + gamma, np.finfo(float).tiny)
        gains[~allowed] = -1.0
        rankings.append(np.argsort(-gains, kind="stable"))
    turns = np.stack(rankings, axis=1).ravel()  # best of each, then second best of each, …
    turns = turns[allowed[turns]]
    found = list(dict.fromkeys([*limits.include.tolist(), *turns.tolist()]))
    kept = found[: max(n_candidates, len(limits.include))]
    return np.sort(np.array(kept, dtype=np.intp)), diagonals


class _Screen:
    """Sums over classes that give the first gains of all features, centred or not."""

    def __init__(
        self, moments: Moments, table: np.ndarray | None, class_weight: str | None
    ) -> None:
        M, squares = moments.means, moments.means**2
        factors = class_weights(class_weight, moments.classes, moments.counts)
        self.n = n = moments.counts if factors is None else factors * moments.counts
        self.table = table
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
