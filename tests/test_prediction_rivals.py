"""The methods that `predict` is compared with are those of their papers."""

import importlib
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy.linalg import solve_sylvester

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
pytestmark = pytest.mark.skipif(not BENCHMARKS.exists(), reason="the sdist has no benchmarks")


@pytest.fixture(scope="module")
def bench():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        return importlib.import_module("bench_predict")


def test_sae_solves_the_sylvester_equation_of_its_paper(bench):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 7))
    S = rng.normal(size=(60, 4))
    penalty = 0.3
    # The penalty is relative to the largest eigenvalues, as the two matrices differ in size.
    largest = [np.linalg.eigvalsh(M.T @ M)[-1] for M in (S, X)]
    lam = penalty * largest[0] / largest[1]
    expected = solve_sylvester(S.T @ S, lam * X.T @ X, (1 + lam) * S.T @ X)
    assert_allclose(bench.sae_weights(X, S, penalty), expected, rtol=1e-8)


def test_eszsl_is_the_minimum_of_its_objective(bench):
    rng = np.random.default_rng(0)
    X, A = rng.normal(size=(40, 6)), rng.normal(size=(5, 3))
    Y = np.where(rng.integers(0, 5, 40)[:, None] == np.arange(5), 1.0, -1.0)
    gamma, lam = 2.0, 0.5

    def objective(V):
        fit = np.sum((X @ V @ A.T - Y) ** 2)
        smooth = gamma * np.sum((V @ A.T) ** 2) + lam * np.sum((X @ V) ** 2)
        return fit + smooth + gamma * lam * np.sum(V**2)

    V = bench.eszsl_weights(X, Y, A, gamma, lam)
    for _ in range(5):
        step = 1e-3 * rng.normal(size=V.shape)
        assert objective(V + step) > objective(V) < objective(V - step)


@pytest.mark.parametrize("method", ["eszsl", "sae", "nearest_mean"])
def test_rivals_name_unseen_classes_whose_descriptions_tell_their_means(bench, method):
    rng = np.random.default_rng(0)
    A = np.vstack([rng.normal(size=(20, 4)), 2 * np.eye(4)[:3]])
    means = 5 * A @ rng.normal(size=(4, 8))
    y = np.repeat(np.arange(23), 10)
    X = means[y] + 0.1 * rng.normal(size=(230, 8))
    is_seen = y < 20
    seen = X[is_seen], y[is_seen]
    found = getattr(bench, method)(seen, A, X[~is_seen], np.arange(20, 23))
    assert np.mean(found == y[~is_seen]) > 0.9
