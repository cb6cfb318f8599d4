"""Whether samples of unseen classes stand out: the definitions, by hand."""

import numpy as np
import pytest

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


def test_a_class_is_judged_by_its_center_not_by_its_samples(seen):
    around = [[0.0, 30.0], [0.0, -30.0]]
    assert unseen_sample_distance(*seen, around) == 1.0
    assert unseen_class_distance(*seen, around, ["bee", "bee"]) == 0.0


def test_distances_do_not_depend_on_the_unit_of_the_embedding(seen):
    Z, y = seen
    new = np.random.default_rng(1).normal(size=(200, 2)) + [0.0, 2.0]
    assert unseen_sample_distance(100 * Z, y, 100 * new) == unseen_sample_distance(Z, y, new)


def test_uncertainty_is_none_inside_a_class_and_largest_between_two(seen):
    assert unseen_uncertainty(*seen, [[0.0, 0.0]]) == 0.0
    seen_pair = ([[0.0], [2.0]], ["ant", "cat"])
    assert unseen_uncertainty(*seen_pair, [[1.0]], n_neighbors=2) == pytest.approx(0.5)


def test_classes_without_spread_and_missing_values_are_refused():
    with pytest.raises(ValueError, match="no class with 3 samples"):
        unseen_sample_distance([[0.0], [1.0]], ["ant", "cat"], [[0.5]])
    with pytest.raises(ValueError, match="Z_unseen contains NaN"):
        unseen_uncertainty([[0.0], [1.0]], ["ant", "cat"], [[np.nan]])
