"""Forward selection on a sum of objectives: every feature lowers all of them at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from semfs.method.objective import Objective
from semfs.method.solvers import Monitor, Solution, _ForwardPath

__all__ = ["solve_jointly"]


def solve_jointly(
    objectives: Sequence[Objective],
    n_select: int,
    *,
    candidates: np.ndarray,
    include: np.ndarray,
    monitor: Monitor | None = None,
) -> Solution:
    """Add the feature that lowers the sum of all J most, ``n_select`` times.

    Each objective has coefficients and a Cholesky factor of its own; only the set of features
    is common. The solution holds W of the first objective, and scores and J of the sum.

    Parameters
    ----------
    objectives : sequence of Objective
        Over the same features; their weights are in their targets.
    n_select : int
        Number of features to choose, those of ``include`` counted.
    candidates : ndarray of bool of shape (d,)
        Features that may be chosen.
    include : ndarray of int
        Features that enter before all others.
    monitor : Monitor, optional
        Called after each feature.
    """
    forced = np.zeros(objectives[0].n_features, dtype=bool)
    forced[include] = True
    path = _JointPath(objectives, candidates | forced, n_select)
    while len(path.gains_of) < n_select:
        waiting = forced & ~path.taken
        if not path.add_best(waiting if waiting.any() else path.allowed):
            break
        if monitor is not None:
            J = path.q - sum(path.gains_of)
            if monitor(len(path.gains_of), J, path.first.chosen[-1], path.solution):
                break
    return path.solution()


class _JointPath:
    """One `_ForwardPath` per objective, all with the same features."""

    def __init__(
        self, objectives: Sequence[Objective], allowed: np.ndarray, n_select: int
    ) -> None:
        self.paths = [_ForwardPath(objective, allowed, n_select) for objective in objectives]
        self.first, self.allowed = self.paths[0], allowed
        self.q = sum(objective.q for objective in objectives)
        self.tie = 1.0 - 100.0 * max(o.moments.itemsize_error for o in objectives)
        self.gains_of: list[float] = []

    @property
    def taken(self) -> np.ndarray:
        return self.first.taken

    def gains(self) -> np.ndarray:
        """Fall (d,) of the sum if the feature entered next."""
        return np.sum([path.gains() for path in self.paths], axis=0)

    def add_best(self, among: np.ndarray) -> bool:
        """Add the feature of largest gain; False if none is left."""
        gains = np.where(among & ~self.taken, self.gains(), -1.0)
        best = float(gains.max())
        if best < 0.0:
            return False
        j = int(np.argmax(gains >= best * self.tie)) if best > 0.0 else int(np.argmax(gains))
        unknown = [path for path in self.paths if j not in path.columns]
        for path in unknown:
            path._fetch(j, gains)
        if unknown:
            return self.add_best(among)  # gains were refreshed
        for path in self.paths:
            path._enter(j, float(path.gains()[j]))
        self.gains_of.append(float(gains[j]))
        return True

    def solution(self) -> Solution:
        """Ranking, W and J of the features chosen so far."""
        own = self.first.solution()
        chosen = np.array(self.first.chosen, dtype=np.intp)
        scores = np.where(self.allowed, self.gains(), -np.inf)
        if self.gains_of:  # features beyond the ranking stay below it
            scores = np.minimum(scores, self.gains_of[-1])
        scores[chosen] = self.gains_of
        rest = np.argsort(-scores, kind="stable")
        order = np.concatenate([chosen, rest[~self.taken[rest]]])
        objective = self.q - np.cumsum(self.gains_of)
        return replace(own, scores=scores, order=order, objective=objective)
