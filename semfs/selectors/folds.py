"""Forward selection on folds of the classes, from one pass over the rows.

For a limited set of candidate features the moments of each group of classes are formed once;
those of a fold are sums of them, and every setting is an `Objective` of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.method.direct import forward_selection
from semfs.method.moments import Moments
from semfs.method.objective import Objective, absolute_penalty, reduce_rank
from semfs.selectors.training import FeatureLimits
from semfs.validation import class_weights

__all__ = ["ClassFolds", "Setting"]


@dataclass(frozen=True)
class Setting:
    """The parameters of `SemFS` that all folds share the moments for."""

    alpha: float = 1.0
    gamma: float = 10.0
    penalty_scale: str = "gram"
    fit_intercept: bool = True
    class_weight: str | None = "balanced"
    label_weight: float = 0.0

    @classmethod
    def of_params(cls, params: Mapping[str, Any]) -> Setting:
        """Read the parameters of a `SemFS`."""
        return cls(**{name: params[name] for name in cls.__dataclass_fields__})

    def objective(self, moments: Moments, targets: np.ndarray, **changes: Any) -> Objective:
        """Return J of this setting for moments and targets (C, r)."""
        found = {
            "alpha": self.alpha,
            "gamma": self.gamma,
            "penalty_scale": self.penalty_scale,
            "fit_intercept": self.fit_intercept,
        }
        weights = class_weights(self.class_weight, moments.classes, moments.counts)
        return Objective.from_moments(
            moments, targets, class_weight=weights, **(found | changes)
        )


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
        Number of features that enter the search; None for all.
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
        self.settings, self.moments = settings, moments
        self.table = np.eye(len(moments.classes)) if table is None else table
        self.by_label = table is None
        self.columns = np.arange(moments.n_features)
        self.diagonals: dict[Setting, float] = {}
        if n_candidates is not None and n_candidates < moments.n_features:
            self._screen(limits, n_candidates)
        self.allowed = limits.candidates[self.columns]
        self.first = np.flatnonzero(np.isin(self.columns, limits.include))
        membership = np.array([train for train, _ in splits]).T
        self.groups = np.unique(membership, axis=0, return_inverse=True)[1].reshape(-1)
        self.parts = [self._part(g) for g in range(int(self.groups.max()) + 1)]

    def _part(self, group: int) -> Moments:
        """Moments of one group of classes, candidate columns only, with their scatter."""
        rows = self.moments.rows
        chosen = np.flatnonzero(self.groups[rows.codes] == group)
        X = rows.X[chosen][:, self.columns]
        classes = np.flatnonzero(self.groups == group)
        codes = np.searchsorted(classes, rows.codes[chosen])
        weights = None if rows.weights is None else rows.weights[chosen]
        X = X.toarray() if sp.issparse(X) else X
        return Moments.from_checked(X, codes, classes, weights).compact()

    def _targets(self, classes: np.ndarray, label_weight: float) -> np.ndarray:
        """Attributes (C, r) of some classes, labels or both, in a basis of their row space."""
        A = self.table[classes]
        if self.by_label:
            return np.eye(len(classes))
        if label_weight:
            A = np.hstack([A, np.sqrt(label_weight) * np.eye(len(A))])
        return reduce_rank(A)[0] if A.shape[1] > len(A) else A

    def _screen(self, limits: FeatureLimits, n_candidates: int) -> None:
        """Keep the candidates that some setting ranks high by the gain of entering first.

        Taken from the tops of the settings' rankings in turn, after the features to include.
        """
        rankings = []
        every, allowed = np.arange(len(self.table)), limits.candidates
        known: dict[Setting, tuple[np.ndarray, np.ndarray]] = {}
        for setting in dict.fromkeys(self.settings):
            kind = Setting(**(vars(setting) | {"gamma": 1.0, "penalty_scale": "gram"}))
            if kind not in known:
                targets = self._targets(every, setting.label_weight)
                objective = kind.objective(self.moments, targets)
                known[kind] = objective.diag, np.einsum("ij,ij->i", objective.B, objective.B)
            diag, norms = known[kind]
            self.diagonals[setting] = float(diag.mean())
            gamma = absolute_penalty(setting.gamma, setting.penalty_scale, float(diag.mean()))
            gains = norms / np.maximum(diag + gamma, np.finfo(float).tiny)
            rankings.append(np.argsort(-np.where(allowed, gains, -1.0), kind="stable"))
        turns = np.stack(rankings, axis=1).ravel()  # best of each, then second best of each, …
        found = dict.fromkeys([*limits.include.tolist(), *turns[allowed[turns]].tolist()])
        kept = list(found)[: max(n_candidates, len(limits.include))]
        self.columns = np.sort(np.array(kept, dtype=np.intp))

    def paths(self, train: np.ndarray, k: int) -> list[np.ndarray]:
        """The first k features of each setting on the training classes (mask)."""
        kept = [part for g, part in enumerate(self.parts) if train[self.groups == g].all()]
        fold = sum(kept[1:], start=kept[0])
        share = fold.total / self.moments.total
        targets = {
            weight: self._targets(fold.classes, weight)
            for weight in {setting.label_weight for setting in self.settings}
        }
        found = []
        for setting in self.settings:
            own: dict[str, Any] = {}
            if setting.penalty_scale == "gram" and setting in self.diagonals:
                # the mean over all features, of which the candidates are the largest
                gamma = setting.gamma * share * self.diagonals[setting]
                own = {"gamma": gamma, "penalty_scale": "none"}
            objective = setting.objective(fold, targets[setting.label_weight], **own)
            solution = forward_selection(
                [objective.quadratic()], k, candidates=self.allowed, include=self.first
            )
            found.append(self.columns[solution.order[: len(solution.objective)]])
        return found
