"""Whether samples of unseen classes stand out: the definitions, by hand."""

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

from semfs.evaluation.unseen import (
    unseen_class_distance,
    unseen_sample_distance,
    unseen_uncertainty,
)


@pytest.fixture
def seen():
    """Two round classes around (0, 0) and (20, 0)."""
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(2000, 2)) + np.repeat([[0.0, 0.0], [20.0, 0.0]], 1000, axis=0)
    return Z, np.repeat(["ant", "cat"], 1000)


def test_a_tenth_of_new_samples_of_a_seen_class_is_far_from_it(seen):
    new = np.random.default_rng(1).normal(size=(4000, 2))
    assert unseen_sample_distance(*seen, new) == pytest.approx(0.1, abs=0.02)


def test_samples_of_a_separate_class_are_all_far(seen):
    new = np.random.default_rng(1).normal(size=(50, 2)) + [10.0, 30.0]
    assert unseen_sample_distance(*seen, new) == 1.0
    assert unseen_class_distance(*seen, new, ["bee"] * 50) == 1.0


def test_the_distance_of_a_class_is_a_share_of_that_of_its_farthest_sample(seen):
    Z, y = seen
    rng = np.random.default_rng(2)
    bees = 3.0 * rng.normal(size=(3000, 2)) + [6.0, 0.0]
    # Of so many samples the covariance hardly needs to be shrunk.
    center = bees.mean(axis=0)
    inverse = np.linalg.inv(np.cov(bees, rowvar=False))
    own = max(mahalanobis(bee, center, inverse) for bee in bees)
    nearest = min(
        mahalanobis(Z[y == name].mean(axis=0), center, inverse) for name in ("ant", "cat")
    )
    found = unseen_class_distance(Z, y, bees, ["bee"] * 3000)
    assert found == pytest.approx(nearest / own, rel=0.01)
    # Classes count the same, however many samples they have, and few samples do not count.
    far = rng.normal(size=(50, 2)) + [0.0, 90.0]
    few = [[0.0, 0.0]] * 3
    names = ["bee"] * 3000 + ["fly"] * 50 + ["gnu"] * 3
    both = unseen_class_distance(Z, y, np.vstack([bees, far, few]), names)
    assert both == pytest.approx((found + 1.0) / 2)


def test_distances_do_not_depend_on_the_unit_of_the_embedding(seen):
    Z, y = seen
    new = np.random.default_rng(1).normal(size=(200, 2)) + [0.0, 2.0]
    assert unseen_sample_distance(100 * Z, y, 100 * new) == unseen_sample_distance(Z, y, new)


def test_uncertainty_is_none_inside_a_class_and_largest_between_two(seen):
    assert unseen_uncertainty(*seen, [[0.0, 0.0]]) == 0.0
    seen_pair = ([[0.0], [2.0]], ["ant", "cat"])
    assert unseen_uncertainty(*seen_pair, [[1.0]], n_neighbors=2) == pytest.approx(0.5)


def test_classes_without_spread_and_missing_values_are_refused():
    with pytest.raises(ValueError, match="no class with at least 3 samples"):
        unseen_sample_distance([[0.0], [1.0]], ["ant", "cat"], [[0.5]])
    with pytest.raises(
        ValueError, match="no class with at least 4 samples, that is, 2 for each dimension"
    ):
        unseen_class_distance([[0.0, 0.0]], ["ant"], [[1.0, 1.0]] * 3, ["bee"] * 3)
    with pytest.raises(ValueError, match="Z_unseen contains NaN"):
        unseen_uncertainty([[0.0], [1.0]], ["ant", "cat"], [[np.nan]])
