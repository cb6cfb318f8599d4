"""Groups of similar clusters, by Ward's method for clusters of different weights."""

from __future__ import annotations

import numpy as np

from semfs._typing import Float64, Indices


def ward_groups(centers: Float64, weights: Float64, n_groups: int) -> Indices:
    """Return the group (K,) of each cluster, numbered from 0 to n_groups - 1.

    ``centers`` (K, p) and ``weights`` (K,) describe the clusters. Two groups at a time are
    merged, those whose merger adds least to the scatter of samples about the centers of groups:
    w_i w_j / (w_i + w_j) ‖c_i − c_j‖². Among equal ones, the first clusters are merged.
    """
    centers = centers.copy()
    weights = weights.copy()
    n_clusters = len(weights)
    group_of = np.arange(n_clusters)
    costs = np.array([_merging_costs(centers, weights, i) for i in range(n_clusters)])
    np.fill_diagonal(costs, np.inf)
    # the best partner of each group: a merger elsewhere does not make another one better
    partner = costs.argmin(axis=1)
    for _ in range(n_clusters - n_groups):
        first = int(costs[np.arange(n_clusters), partner].argmin())
        kept, lost = sorted((first, int(partner[first])))
        both = weights[kept] + weights[lost]
        moved = weights[lost] / both * (centers[lost] - centers[kept])
        centers[kept] += moved
        weights[kept] = both
        group_of[group_of == lost] = kept

        is_group = np.isin(np.arange(n_clusters), group_of)
        is_group[kept] = False  # no group is merged with itself
        row = np.where(is_group, _merging_costs(centers, weights, kept), np.inf)
        costs[kept] = row
        costs[:, kept] = row
        costs[lost] = np.inf
        costs[:, lost] = np.inf
        stale = np.isin(partner, (kept, lost))
        stale[[kept, lost]] = True
        partner[stale] = costs[stale].argmin(axis=1)
    return np.unique(group_of, return_inverse=True)[1]


def group_averages(group_of: Indices, weights: Float64) -> Float64:
    """Return the matrix P (K, K) whose product P @ M has the mean of each cluster's group.

    M (K, d) are means of the clusters, and ``weights`` (K,) what each counts for.
    """
    same_group = group_of[:, None] == group_of
    shares = same_group * weights
    return shares / shares.sum(axis=1, keepdims=True)


def _merging_costs(centers: Float64, weights: Float64, i: int) -> Float64:
    """What a merger of group i with each group (K,) adds to the scatter within groups."""
    squares = ((centers - centers[i]) ** 2).sum(axis=1)
    return weights * weights[i] / (weights + weights[i]) * squares
