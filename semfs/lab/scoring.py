"""Scores of selected features: K-means on the samples of the unseen classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from sklearn.base import clone

from semfs._typing import Float64, Indices
from semfs.baselines import RandomSelector
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab.splits import SplitData
from semfs.lab.store import SCORE_NAMES

#: k -> measure -> mean and standard deviation over the K-means runs.
Scores: TypeAlias = dict[int, dict[str, tuple[float, float]]]


def score_features(
    split: SplitData,
    features_by_k: Mapping[int, Indices],
    n_repeats: int,
    seed: int,
) -> Scores:
    """Return mean and sd of ACC and NMI over K-means runs on the unseen samples, for each k.

    All methods get the same starting samples. Without unseen samples there are no scores.
    """
    if len(split.y_unseen) == 0:
        return {}
    starts = _starts(split, n_repeats, seed)
    scores: Scores = {}
    for k, features in features_by_k.items():
        runs = cluster_scores(split.X_unseen[:, features], split.y_unseen, starts=starts)
        scores[int(k)] = _summarize(np.array(runs))
    return scores


def score_random_draws(
    split: SplitData,
    selector: RandomSelector,
    ks: Sequence[int],
    n_repeats: int,
    seed: int,
) -> Scores:
    """Return the scores of random features, with a new draw for each K-means run.

    One draw says little about chance. The draws differ between splits, so that intervals
    over splits hold for Random as well.
    """
    if len(split.y_unseen) == 0:
        return {}
    starts = _starts(split, n_repeats, seed)
    # One seed per run, from a generator that depends on the split.
    draws = np.random.RandomState(split.seed(seed)).randint(2**31 - 1, size=n_repeats)
    orders = []
    for draw in draws:
        drawn = clone(selector).set_params(random_state=int(draw)).fit(split.X)
        orders.append(drawn.order_)
    scores: Scores = {}
    for k in ks:
        runs = [
            cluster_scores(split.X_unseen[:, order[:k]], split.y_unseen, starts=starts[[i]])
            for i, order in enumerate(orders)
        ]
        scores[int(k)] = _summarize(np.hstack(runs))
    return scores


def _starts(split: SplitData, n_repeats: int, seed: int) -> Indices:
    """The samples (n_repeats, K) at which the K clusters start in each run."""
    n_classes = len(np.unique(split.y_unseen))
    return starting_rows(len(split.y_unseen), n_classes, n_repeats, seed)


def _summarize(runs: Float64) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each measure from runs (2, n_repeats)."""
    n_repeats = runs.shape[1]
    means = runs.mean(axis=1)
    # ddof=1 divides by n - 1, which is 0 for a single run.
    sds = runs.std(axis=1, ddof=1 if n_repeats > 1 else 0)
    return {name: (float(mean), float(sd)) for name, mean, sd in zip(SCORE_NAMES, means, sds)}
