"""Scores of selected features: K-means on the samples of the unseen classes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from sklearn.base import clone

from semfs._typing import Indices
from semfs.baselines import RandomSelector
from semfs.evaluation import adjusted_rand, starting_rows
from semfs.evaluation.scores import accuracy_and_nmi, clusterings
from semfs.lab.measures import ARI, single_scores
from semfs.lab.splits import SplitData
from semfs.lab.store import SCORE_NAMES

#: k -> measure -> mean and standard deviation over the K-means runs.
Scores: TypeAlias = dict[int, dict[str, tuple[float, float]]]

#: Random draws for measures that are computed once per draw, not per K-means run.
N_SINGLE_DRAWS = 5


def score_features(
    split: SplitData,
    features_by_k: Mapping[int, Indices],
    n_repeats: int,
    seed: int,
    measures: Sequence[str] = (),
) -> Scores:
    """Return mean and sd of ACC and NMI over K-means runs on the unseen samples, for each k.

    All methods get the same starting samples. Without unseen samples, there are no scores.
    ``measures`` lists further measures (see `semfs.lab.measures`).
    """
    if len(split.y_unseen) == 0:
        return {}
    starts = _starts(split, n_repeats, seed)
    scores: Scores = {}
    for k, features in features_by_k.items():
        runs = _runs(split, features, starts, measures)
        single = single_scores(split, features, measures, seed)
        alone = {name: (value, 0.0) for name, value in single.items()}
        scores[int(k)] = _summarize(runs) | alone
    return scores


def score_random_draws(
    split: SplitData,
    selector: RandomSelector,
    ks: Sequence[int],
    n_repeats: int,
    seed: int,
    measures: Sequence[str] = (),
) -> Scores:
    """Return the scores of random features, with a new draw for each K-means run.

    A single draw says little about chance, so there is a new draw for each run. The draws
    differ between splits, so that intervals over splits are also valid for Random.
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
        runs: dict[str, list[float]] = {}
        for i, order in enumerate(orders):
            found = _runs(split, order[:k], starts[[i]], measures)
            # Nearest neighbors take longer than K-means: some of the draws are enough.
            if i < N_SINGLE_DRAWS:
                single = single_scores(split, order[:k], measures, seed)
                found |= {name: [value] for name, value in single.items()}
            for name, values in found.items():
                runs.setdefault(name, []).extend(values)
        scores[int(k)] = _summarize(runs)
    return scores


def _runs(
    split: SplitData, features: Indices, starts: Indices, measures: Sequence[str]
) -> dict[str, list[float]]:
    """Return the scores of each K-means run, by measure."""
    X = split.X_unseen[:, features]
    codes, clusters = clusterings(X, split.y_unseen, starts=starts)
    accuracies, nmis = zip(*(accuracy_and_nmi(codes, found) for found in clusters))
    runs = dict(zip(SCORE_NAMES, (list(accuracies), list(nmis))))
    if ARI in measures:
        runs[ARI] = [adjusted_rand(codes, found) for found in clusters]
    return runs


def _starts(split: SplitData, n_repeats: int, seed: int) -> Indices:
    """Return the samples (n_repeats, K) at which the K clusters start in each run."""
    n_classes = len(np.unique(split.y_unseen))
    return starting_rows(len(split.y_unseen), n_classes, n_repeats, seed)


def _summarize(runs: Mapping[str, Sequence[float]]) -> dict[str, tuple[float, float]]:
    """Mean and standard deviation of each measure over its runs."""
    summary = {}
    for name, values in runs.items():
        # ddof=1 divides by n - 1, which is 0 for a single run.
        sd = np.std(values, ddof=1 if len(values) > 1 else 0)
        summary[name] = (float(np.mean(values)), float(sd))
    return summary
