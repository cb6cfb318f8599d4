"""Exchange of selected features against all subsets of small problems."""

import itertools

import numpy as np
import pytest
from numpy.testing import assert_allclose

from problems import fit_of, make_objective, make_problem
from semfs.method.direct import solve_direct


def select(objective, k, **options):
    return solve_direct([objective.quadratic()], k, **options)


@pytest.mark.parametrize("gamma, spread", [(1e-3, 0), (1e-2, 1), (0.1, 1), (1.0, 1), (1e-6, 1)])
def test_with_exchange_the_best_subset_of_small_problems_is_found(gamma, spread):
    found = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(4, 10))
        k = int(rng.integers(1, d))
        X, y, A = make_problem(seed, n=40, d=d)
        if spread:
            X = X @ rng.standard_normal((d, d))  # strongly correlated columns
        objective = make_objective(
            X, y, A, gamma=gamma, penalty_scale="gram", fit_intercept=True
        )
        G = objective.gram()
        best = max(
            fit_of(G, objective.B, S, objective.gamma)
            for S in itertools.combinations(range(d), k)
        )
        solution = select(objective, k, n_swaps=1000)
        fit = fit_of(G, objective.B, solution.order[:k], objective.gamma)
        assert_allclose(objective.q - solution.objective[-1], fit, rtol=1e-6)
        found += fit >= best * (1 - 1e-9)
    assert found >= 38  # 95 % of 40


@pytest.mark.parametrize("gamma", [1e-6, 1.0, 50.0])
def test_exchanges_never_raise_J(gamma):
    for seed in range(20):
        objective = make_objective(*make_problem(seed, n=40, d=10), gamma=gamma)
        J = [select(objective, 4, n_swaps=n).objective[-1] for n in (0, 1, 2, 50)]
        assert (np.diff(J) <= 1e-9 * objective.q).all()


def test_no_more_exchanges_are_made_than_allowed():
    for seed in range(20):
        X, y, A = make_problem(seed, n=40, d=10)
        X[:, 0] = X[:, 1:].sum(axis=1)  # tempting first, useless later
        objective = make_objective(X, y, A, gamma=1e-6)
        forward, one, two = (set(select(objective, 5, n_swaps=n).order[:5]) for n in (0, 1, 2))
        assert len(forward - one) <= 1
        if len(forward - two) == 2:
            assert len(forward - one) == 1
            return
    pytest.fail("no problem here needs two exchanges")


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("kind", ["constant", "copied"])
def test_without_penalty_columns_of_zeros_and_copies_are_exchanged_silently(kind):
    for seed in range(10):
        X, y, A = make_problem(seed, n=40, d=9)
        X[:, 5] = 1.0 if kind == "constant" else X[:, 2]
        objective = make_objective(X, y, A, gamma=0.0, fit_intercept=True)
        include = np.array([5]) if seed % 2 else None
        J = [select(objective, 3, n_swaps=n, include=include).objective[-1] for n in (0, 50)]
        assert J[1] <= J[0] + 1e-9 * objective.q
