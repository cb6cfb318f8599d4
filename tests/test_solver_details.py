"""Promises of the solvers that only show in corners; found by mutation testing."""

import numpy as np
import pytest

from semfs import SemFS
from semfs.moments import Moments
from semfs.objective import Objective


@pytest.mark.parametrize("seed", range(5))
def test_of_features_equal_up_to_rounding_the_first_is_chosen(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(60, 8)), np.arange(60) % 4
    X[:, 6] += y
    X[:, 2] = X[:, 6] * (1.0 - 1e-15)  # the later twin has the larger gain, in the last digits
    assert SemFS(1).fit(X, y).order_[0] == 2


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_means_keep_the_precision_of_the_data(dtype):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)).astype(dtype), np.arange(30) % 3
    moments = Moments.from_data(X, y)
    A = np.eye(3) - 1 / 3
    objective = Objective.from_moments(
        moments, A, alpha=1.0, gamma=1.0, penalty_scale="gram", fit_intercept=True
    )
    assert objective.root.dtype == dtype
    precise = Objective.from_moments(
        moments, A, alpha=1.0, gamma=1e-9, penalty_scale="gram", fit_intercept=True
    )
    assert precise.root.dtype == np.float64
