"""K-means with a number of starts that depends on the size of the data."""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.cluster import KMeans, kmeans_plusplus
from sklearn.exceptions import ConvergenceWarning

from semfs._typing import Float64

#: Starts of K-means: for the clusters themselves, and to judge a distance or a number.
N_STARTS = 10
N_STARTS_JUDGE = 3
#: With many clusters there are fewer starts, of at most this many points in all: one start of
#: 300 clusters takes as long as ten of 30, and starts differ less in what they find.
MOST_STARTING_POINTS = 300
#: From this number of clusters on, k-means++ draws one point at a time and not the best of
#: several, which would take most of the time.
MANY_CLUSTERS = 50


def kmeans(Z: Float64, k: int, n_starts: int) -> KMeans:
    """Return K-means of Z (n, p) with k clusters, but at most one per sample."""
    n_starts = max(1, min(n_starts, MOST_STARTING_POINTS // k))
    init = _plain_starts if k >= MANY_CLUSTERS else "k-means++"
    model = KMeans(min(k, len(Z)), init=init, n_init=n_starts, random_state=0)
    with warnings.catch_warnings():
        # fewer different samples than clusters: empty clusters are dropped afterward
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(Z)


def _plain_starts(Z: Float64, k: int, random_state: np.random.RandomState) -> Float64:
    """Return starting points (k, p) of k-means++, with one candidate per draw."""
    centers: Float64 = kmeans_plusplus(Z, k, random_state=random_state, n_local_trials=1)[0]
    return centers
