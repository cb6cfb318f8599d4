"""Groups of clusters of unlabeled samples, whose means are targets beside those of clusters."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.cluster.hierarchy import fcluster, linkage

from problems import make_problem
from semfs import AS_PUBLISHED, SemFS
from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.selectors.cluster_groups import group_averages, ward_groups
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.selectors.unlabeled_classes import (
    CLUSTER_ALPHA,
    CLUSTER_PENALTY,
    GROUPS_PER_CLUSTER,
    unlabeled_classes,
)


def together(groups):
    """Which pairs (K, K) are in one group, however groups are numbered."""
    groups = np.asarray(groups)
    return groups[:, None] == groups


@pytest.mark.parametrize("seed", range(5))
def test_groups_are_those_of_wards_method_for_repeated_samples(seed):
    rng = np.random.default_rng(seed)
    centers = rng.standard_normal((14, 3))
    weights = rng.integers(1, 30, 14)
    # samples at the center of their cluster are merged first, at no cost
    tree = linkage(np.repeat(centers, weights, axis=0), "ward")
    first = np.cumsum(weights) - weights
    for n_groups in range(1, 15):
        expected = fcluster(tree, n_groups, "maxclust")[first]
        found = ward_groups(centers, weights.astype(float), n_groups)
        assert found.max() == n_groups - 1
        assert_array_equal(together(found), together(expected))


def test_groups_do_not_depend_on_the_order_of_clusters_and_nothing_is_changed():
    rng = np.random.default_rng(0)
    centers = rng.standard_normal((30, 4))
    weights = rng.random(30) + 0.1
    before = centers.copy(), weights.copy()
    expected = together(ward_groups(centers, weights, 15))
    assert_array_equal(centers, before[0])
    assert_array_equal(weights, before[1])
    order = rng.permutation(30)
    found = together(ward_groups(centers[order], weights[order], 15))
    assert_array_equal(found, expected[np.ix_(order, order)])


def test_equal_clusters_are_merged():
    centers = np.repeat(np.eye(3), 2, axis=0)
    assert ward_groups(centers, np.ones(6), 3).tolist() == [0, 0, 1, 1, 2, 2]
    assert ward_groups(centers[:1], np.ones(1), 1).tolist() == [0]


def test_averages_of_groups_are_weighted():
    P = group_averages(np.array([0, 1, 0]), np.array([1.0, 5.0, 3.0]))
    assert_allclose(P @ np.array([[0.0], [7.0], [4.0]]), [[3.0], [7.0], [3.0]])


def test_targets_of_a_cluster_are_its_mean_and_that_of_its_group():
    rng = np.random.default_rng(3)
    X, y, _ = make_problem()
    X_new = np.repeat(3.0 * rng.standard_normal((6, X.shape[1])), 15, axis=0)
    X_new += rng.standard_normal(X_new.shape)
    options = {"penalty_scale": "none", "fit_intercept": True}
    seen = Objective.from_moments(
        Moments.from_data(X, y), None, alpha=0.5, gamma=1.0, **options
    )
    unlabeled = UnlabeledRows(X_new, np.zeros(len(X_new), dtype=np.intp))
    found = unlabeled_classes(seen, unlabeled, 6)

    moments = Moments.from_data(X_new, found.labels)
    # six clusters, three groups: here the clusters' space has all directions of the features
    group_of = ward_groups(moments.means, moments.counts, round(6 * GROUPS_PER_CLUSTER))
    group_means = Moments.from_data(X_new, group_of[found.labels]).means
    assert len(group_means) == 3
    targets = np.hstack([moments.means, group_means[group_of]])
    expected = Objective.from_moments(
        moments, targets, alpha=CLUSTER_ALPHA, gamma=CLUSTER_PENALTY, **options
    )
    B = expected.quadratic().B
    assert_allclose(found.problem.gamma, CLUSTER_PENALTY)
    assert_allclose(found.problem.diag, expected.diag)
    factor = found.problem.q / expected.q
    assert_allclose(found.problem.B @ found.problem.B.T, factor * B @ B.T, atol=1e-9)


def test_the_published_method_has_no_place_for_unlabeled_samples():
    X, y, A = make_problem()
    with pytest.raises(ValueError, match="Unlabeled samples can be used only with"):
        SemFS(3, A, **AS_PUBLISHED).fit(X, y, X_unlabeled=X)
