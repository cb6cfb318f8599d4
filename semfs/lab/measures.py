"""What is measured of a ranking: clustering scores on unseen classes, time, convergence."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from semfs.attributes import align_attributes
from semfs.baselines import RandomSelector
from semfs.datasets import ZeroShotDataset
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab.methods import Ranking
from semfs.method.moments import Moments
from semfs.method.objective import Objective, reduce_rank
from semfs.selectors.base import stable_order
from semfs.selectors.semfs import SemFS

__all__ = ["Case", "convergence", "scaling_data", "scores", "with_ratio"]

SCALES = (1.0, 2.0, 5.0, 20.0, 100.0)  # τ at which the scale degeneracy is shown


@dataclass(frozen=True, eq=False)
class Case:
    """Seen rows X (n, d) with labels y, class table, and the unseen rows to be told apart."""

    X: Any
    y: np.ndarray
    attributes: Any
    X_unseen: Any
    y_unseen: np.ndarray
    feature_names: np.ndarray

    @classmethod
    def of(cls, data: ZeroShotDataset) -> Case:
        """Return the case of a data set with its split."""
        X, y, X_unseen, y_unseen = data.split()
        return cls(X, y, data.attributes, X_unseen, y_unseen, data.feature_names)

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.X.shape[1]

    def names(self, features: np.ndarray) -> list[str]:
        """Return the names of features given by index."""
        return [str(name) for name in self.feature_names[features]]

    @cached_property
    def moments(self) -> tuple[Moments, float]:
        """Moments of the seen rows, and the seconds they took."""
        start = time.perf_counter()
        return Moments.from_data(self.X, self.y), time.perf_counter() - start

    def timed(
        self, fit: Callable[[Moments | None], Ranking], with_moments: bool
    ) -> tuple[Ranking, float]:
        """Return what ``fit`` returns and its seconds, those of the moments included.

        The moments are computed once for all cells of the case; every method that uses them
        is charged for them.
        """
        moments, before = self.moments if with_moments else (None, 0.0)
        start = time.perf_counter()
        found = fit(moments)
        return found, before + time.perf_counter() - start


def with_ratio(case: Case, ratio: float, seed: int) -> Case:
    """Return the case with a random share of each seen class, at least two rows of each.

    Examples
    --------
    >>> case = scaling_data(100, 5, seed=0)
    >>> len(with_ratio(case, 0.5, seed=0).y)
    60
    """
    if ratio >= 1.0:
        return case
    rng = np.random.RandomState(seed)
    kept = []
    for label in np.unique(case.y):
        rows = np.flatnonzero(case.y == label)
        n_kept = min(len(rows), max(2, int(np.ceil(ratio * len(rows) - 1e-9))))
        kept.append(rng.permutation(rows)[:n_kept])
    rows = np.sort(np.concatenate(kept))
    return replace(case, X=case.X[rows], y=case.y[rows])


def scores(
    case: Case,
    ranking: Ranking,
    ks: Sequence[int],
    n_repeats: int,
    seed: int,
    n_draws: int | None = None,
) -> dict[int, dict[str, tuple[float, float]]]:
    """Return mean and sd of ACC and NMI over K-means runs on the unseen rows, for each k.

    With ``n_draws`` each run has its own random features instead (the Random baseline).
    """
    if not len(case.y_unseen):
        return {}
    n_classes = len(np.unique(case.y_unseen))
    starts = starting_rows(len(case.y_unseen), n_classes, n_draws or n_repeats, seed)
    orders = [_random_order(ranking.selector, 1000 * seed + i) for i in range(n_draws or 0)]
    found = {}
    for k in ks:
        if orders:
            runs = [_run(case, o[:k], starts[[i]]) for i, o in enumerate(orders)]
            acc, nmi = (np.concatenate(part) for part in zip(*runs))
        else:
            acc, nmi = _run(case, ranking.features(k), starts)
        found[int(k)] = {"acc": _mean_sd(acc), "nmi": _mean_sd(nmi)}
    return found


def _random_order(fitted: RandomSelector, seed: int) -> np.ndarray:
    """What ``RandomSelector(random_state=seed)`` would give on the same data, without a fit."""
    draw = np.random.RandomState(seed).uniform(size=len(fitted.scores_))
    return stable_order(np.where(np.isinf(fitted.scores_), -np.inf, draw))


def _run(case: Case, features: np.ndarray, starts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    return cluster_scores(case.X_unseen[:, features], case.y_unseen, starts=starts)


def _mean_sd(values: np.ndarray) -> tuple[float, float]:
    sd = float(values.std(ddof=1)) if len(values) > 1 else 0.0
    return float(values.mean()), sd


# ---- convergence of Algorithm 1 -------------------------------------------------------------


def convergence(selector: SemFS, case: Case, attributes: Any, k: int = 50) -> dict[str, Any]:
    """Return how Algorithm 1 went, and the two ways in which it degenerates.

    ``objective`` J after each round and whether it is ``monotone`` (Proposition 1);
    ``ridge_overlap``: how many of the top k are the largest rows of plain ridge regression
    (s = 1), to which the ranking reduces; ``n_shrunk``: how many s_i ever fell below their
    start; ``scale_objective``: the least J for s = τ·1, which falls for ever as τ
    (``scale_tau``) grows, so that no minimum is attained.
    """
    history = np.asarray(selector.objective_, dtype=np.float64)
    objective = _objective(selector, case, attributes)
    W, values = _ridge(objective)
    k = min(k, case.n_features)
    ridge = np.argsort(-np.linalg.norm(W, axis=1), kind="stable")
    return {
        "objective": history.tolist(),
        "monotone": bool((np.diff(history) <= 1e-9 * np.abs(history[:-1])).all()),
        "n_iter": int(selector.n_iter_),
        "ridge_overlap": len(np.intersect1d(selector.order_[:k], ridge[:k])),
        "ridge_overlap_of": k,
        "n_shrunk": int((selector.selection_ < 1.0).sum()),
        "s_range": [float(selector.selection_.min()), float(selector.selection_.max())],
        "scale_tau": list(SCALES),
        "scale_objective": values,
    }


def _objective(selector: SemFS, case: Case, attributes: Any) -> Objective:
    moments, _ = case.moments
    A = align_attributes(attributes, moments.classes).values
    if selector.fit_intercept:
        A = A - moments.counts @ A / moments.total
    return Objective.from_moments(
        moments,
        reduce_rank(A)[0],
        alpha=selector.alpha,
        gamma=selector.gamma,
        penalty_scale=selector.penalty_scale,
        fit_intercept=selector.fit_intercept,
    )


def _ridge(objective: Objective) -> tuple[np.ndarray, list[float]]:
    """W (d, r) for s = 1, and the least J for s = τ·1, by one eigendecomposition.

    With s = τ·1 the penalty counts γ/τ². In the smaller of the two forms, d × d or n × n.
    """
    factor, gamma = objective.factor(), objective.gamma
    if factor is None:
        values, V = np.linalg.eigh(objective.gram())
        share = V.T @ objective.B
        squares = np.sum(share**2, axis=1)
    else:
        values, V = np.linalg.eigh(factor.dual_gram(np.ones(objective.n_features)))
        share = V.T @ factor.targets
        squares = np.maximum(values, 0.0) * np.sum(share**2, axis=1)
    values = np.maximum(values, 0.0)
    W = V @ (share / (values + gamma)[:, None])
    fits = [float(np.sum(squares / (values + gamma / tau**2))) for tau in SCALES]
    return W if factor is None else factor.adjoint(W), [objective.q - fit for fit in fits]


# ---- data for timing ------------------------------------------------------------------------


def scaling_data(
    n: int, d: int, seed: int, n_classes: int = 20, n_attributes: int = 50
) -> Case:
    """Return n seen rows of d features made from class attributes plus noise, in float32."""
    rng = np.random.RandomState(seed)
    A = (rng.uniform(size=(n_classes, n_attributes)) < 0.3).astype(np.float64)
    mixing = rng.standard_normal((n_attributes, d)) * (rng.uniform(size=d) < 0.2)
    y = np.arange(n) % n_classes
    X = (A[y] @ mixing + 2.0 * rng.standard_normal((n, d))).astype(np.float32)
    names = np.array([f"x{j}" for j in range(d)], dtype=object)
    return Case(X, y, dict(enumerate(A)), X[:0], y[:0], names)
