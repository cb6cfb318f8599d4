"""Both solvers against the simplest thing that could work."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import semfs.method.solvers as solvers_module
import semfs.method.w_step
from problems import fit_of, make_problem, naive_greedy
from semfs import Moments
from semfs.method.objective import Objective
from semfs.method.solvers import solve_alternating, solve_direct


def make_objective(X, y, A, **options):
    return Objective.from_moments(Moments.from_data(X, y), A, **options)


# ---- direct -------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.3, 1.0, 20.0]),
    gamma=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    shape=st.sampled_from([(60, 12), (10, 25), (30, 3)]),
)
def test_direct_equals_a_greedy_that_refits_from_scratch(seed, alpha, gamma, shape):
    X, y, A = make_problem(seed, n=shape[0], d=shape[1])
    k = min(6, shape[1])
    chosen, values = naive_greedy(X, y, A, k, alpha, gamma)
    solution = solve_direct(make_objective(X, y, A, alpha=alpha, gamma=gamma), k)
    assert solution.order[:k].tolist() == chosen
    assert_allclose(solution.objective, values, rtol=1e-7, atol=1e-7 * values[0])


def test_direct_fetches_columns_in_batches_without_changing_the_answer(monkeypatch):
    X, y, A = make_problem(n=80, d=40)
    expected = solve_direct(make_objective(X, y, A), 20)
    monkeypatch.setattr(solvers_module, "SMALLEST_BATCH", 3)
    monkeypatch.setattr(solvers_module, "LARGEST_BATCH", 3)
    solution = solve_direct(make_objective(X, y, A), 20)
    assert solution.order[:20].tolist() == expected.order[:20].tolist()
    assert_allclose(solution.objective, expected.objective)


def test_direct_never_asks_for_the_whole_gram_matrix(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("d x d matrix formed")

    monkeypatch.setattr(Moments, "scatter", refuse)
    monkeypatch.setattr(Moments, "stretched_scatter", refuse)
    X, y, A = make_problem(n=80, d=40)
    assert len(solve_direct(make_objective(X, y, A), 10).objective) == 10


def test_direct_is_nested():
    X, y, A = make_problem(d=20)
    long = solve_direct(make_objective(X, y, A), 10)
    short = solve_direct(make_objective(X, y, A), 4)
    assert long.order[:4].tolist() == short.order[:4].tolist()


def test_W_of_direct_solves_the_ridge_problem_on_the_chosen_features():
    X, y, A = make_problem()
    objective = make_objective(X, y, A, gamma=0.5)
    solution = solve_direct(objective, 5)
    S = solution.order[:5]
    K = objective.gram()[np.ix_(S, S)] + 0.5 * np.eye(5)
    assert_allclose(solution.W[S], np.linalg.solve(K, objective.B[S]), atol=1e-9)
    assert_allclose(objective.value(solution.W, solution.s), solution.objective[-1])
    assert not solution.W[solution.order[5:]].any()


def test_scores_of_direct_are_gains_and_the_rest_stays_below():
    X, y, A = make_problem()
    objective = make_objective(X, y, A)
    solution = solve_direct(objective, 5)
    gains = -np.diff(np.concatenate([[objective.q], solution.objective]))
    assert_allclose(solution.scores[solution.order[:5]], gains)
    assert (solution.scores[solution.order[5:]] <= gains[-1]).all()
    assert sorted(solution.order.tolist()) == list(range(12))


@pytest.mark.parametrize("gamma, spread", [(1e-3, 0), (1e-2, 1), (0.1, 1), (1.0, 1), (1e-6, 1)])
def test_with_exchange_direct_finds_the_best_subset_of_small_problems(gamma, spread):
    found = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        d = int(rng.integers(4, 11))
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
        solution = solve_direct(objective, k, n_swaps=1000)
        fit = fit_of(G, objective.B, solution.order[:k], objective.gamma)
        assert_allclose(objective.q - solution.objective[-1], fit, rtol=1e-6)
        found += fit >= best * (1 - 1e-9)
    assert found >= 57  # 95 % of 60


def test_exchange_never_raises_J_and_respects_its_budget():
    X, y, A = make_problem(3, d=10)
    X = X @ np.random.default_rng(0).standard_normal((10, 10))
    objective = make_objective(X, y, A, gamma=1e-4)
    values = [solve_direct(objective, 4, n_swaps=n).objective[-1] for n in (0, 1, 2, 50)]
    assert values[1] <= values[0] + 1e-9
    assert values[3] <= min(values) + 1e-9


def test_forced_features_come_first_and_are_never_swapped_out():
    X, y, A = make_problem()
    objective = make_objective(X, y, A)
    worst = solve_direct(objective, 12).order[-2:]
    solution = solve_direct(objective, 5, include=worst, n_swaps=50)
    assert set(worst) <= set(solution.order[:5].tolist())
    plain = solve_direct(objective, 5, include=worst)
    assert set(plain.order[:2].tolist()) == set(worst.tolist())


def test_features_that_are_no_candidates_rank_last():
    X, y, A = make_problem()
    objective = make_objective(X, y, A)
    first = solve_direct(objective, 3).order[:3]
    allowed = np.ones(12, dtype=bool)
    allowed[first] = False
    for n_swaps in (0, 50):
        solution = solve_direct(objective, 4, candidates=allowed, n_swaps=n_swaps)
        assert set(solution.order[-3:].tolist()) == set(first.tolist())
        assert np.isneginf(solution.scores[first]).all()


def test_of_equal_columns_the_lowest_index_enters_and_the_copy_adds_nothing():
    X, y, A = make_problem(d=6)
    X = np.column_stack([X, X])
    for rows in (slice(None), slice(None, None, -1)):
        solution = solve_direct(make_objective(X[rows], y[rows], A, gamma=1e-9), 6)
        assert sorted(solution.order[:6].tolist()) == list(range(6))


def test_without_penalty_dependent_columns_are_skipped():
    X, y, A = make_problem(d=5)
    X[:, 4] = X[:, 0] + X[:, 1]
    solution = solve_direct(make_objective(X, y, A, gamma=0.0), 5, n_swaps=5)
    assert len(set(solution.order[:5].tolist())) == 5
    assert np.isfinite(solution.objective).all()


# ---- alternating ---------------------------------------------------------------------------

SETTINGS = [
    {"n_inner": 1},
    {"n_inner": 3},
    {"n_inner": 12},
    {"step": "exact"},
    {"step": 1e-3},
    {"step": 1e3},
]


@pytest.mark.parametrize("options", SETTINGS, ids=str)
@pytest.mark.parametrize("gamma", [1e-3, 0.1, 10.0])
@pytest.mark.parametrize("shape", [(60, 12), (10, 25)])
def test_J_never_rises_and_W_solves_equation_12(options, gamma, shape):
    X, y, A = make_problem(n=shape[0], d=shape[1])
    objective = make_objective(X, y, A, alpha=0.5, gamma=gamma)
    start = np.random.default_rng(0).random(shape[1]) + 0.1
    solution = solve_alternating(objective, max_iter=15, tol=0, s_init=start, **options)
    assert (np.diff(solution.objective) <= 1e-9 * abs(solution.objective[0])).all()
    assert_equation_12(objective, solution)
    assert_allclose(solution.objective[-1], objective.value(solution.W, solution.s), rtol=1e-7)
    assert (solution.s >= 0).all()


def assert_equation_12(objective, solution, tolerance=1e-8):
    s = solution.s[:, None]
    left = s * (objective.gram() @ (s * solution.W)) + objective.gamma * solution.W
    right = s * objective.B
    assert np.linalg.norm(left - right) <= tolerance * np.linalg.norm(right)


@pytest.mark.parametrize("decay", [0.0, 1.5], ids=["even", "ill-conditioned"])
@pytest.mark.parametrize("gamma", [1e-7, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("m", [3, 50])
def test_the_iterative_W_step_equals_the_exact_one(monkeypatch, decay, gamma, m):
    X, y, A = make_problem(n=400, d=60, C=60, m=m)
    X = X @ np.linalg.qr(np.random.default_rng(1).standard_normal((60, 60)))[0]
    X = X * np.arange(1.0, 61.0) ** -decay
    options = {"gamma": gamma, "penalty_scale": "gram", "fit_intercept": True}
    objective = make_objective(X, y, A, **options)
    exact = solve_alternating(objective, max_iter=20, tol=0)
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    solution = solve_alternating(objective, max_iter=20, tol=0)
    assert_equation_12(objective, solution)
    assert (np.diff(solution.objective) <= 1e-9 * solution.objective[0]).all()
    assert len(solution.objective) == len(exact.objective) or gamma == 1e-7  # J hardly moves
    assert_allclose(solution.s, exact.s, rtol=1e-3)


def test_the_step_stays_safe_between_estimates_of_the_curvature(monkeypatch):
    X, y, A = make_problem(n=400, d=60)
    objective = make_objective(X, y, A, gamma=10.0, penalty_scale="gram")
    every_fourth = solve_alternating(objective, max_iter=12, tol=0)
    monkeypatch.setattr(solvers_module, "FRESH_ROUNDS", 1)
    every = solve_alternating(objective, max_iter=12, tol=0)
    assert_allclose(every_fourth.s, every.s, rtol=0.1)
    for solution in (every, every_fourth):
        # J falls by at least half of what a step of exactly 1/λ_max promises
        W, s, J = solution.W, solution.s, solution.objective
        curvature = np.linalg.eigvalsh(objective.gram() * (W @ W.T))[-1]
        slope = 2.0 * objective.gamma * (W**2).sum(axis=1) / s
        assert J[-2] - J[-1] >= 0.5 * (slope @ slope) / (4.0 * curvature)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_path_for_few_rows_equals_the_d_by_d_path(kind, fit_intercept):
    X, y, A = make_problem(n=12, d=30)
    data = sp.csr_array(X) if kind == "sparse" else X
    rows = Moments.from_data(data, y)
    options = {"alpha": 0.5, "gamma": 0.3, "fit_intercept": fit_intercept}
    thin = Objective.from_moments(rows, A, **options)
    full = Objective.from_moments(rows.compact(), A, **options)
    assert thin.factor() is not None
    assert full.factor() is None
    a, b = (solve_alternating(o, max_iter=10, tol=0, n_inner=2) for o in (thin, full))
    assert_allclose(a.s, b.s, rtol=1e-6)
    assert_allclose(a.W, b.W, atol=1e-7)
    assert_allclose(a.objective, b.objective, rtol=1e-8)
    d1, d2 = (solve_direct(o, 8) for o in (thin, full))
    assert d1.order.tolist() == d2.order.tolist()


def test_features_that_start_at_zero_stay_there():
    X, y, A = make_problem()
    start = np.ones(12)
    start[[2, 5]] = 0.0
    objective = make_objective(X, y, A)
    solution = solve_alternating(objective, max_iter=5, tol=0, s_init=start)
    assert solution.s[[2, 5]].tolist() == [0, 0]
    assert not solution.W[[2, 5]].any()
    assert_equation_12(objective, solution)


@pytest.mark.parametrize("single_from", [1, 1024], ids=["iterative", "exact"])
def test_projection_can_switch_features_off_and_the_W_step_follows(monkeypatch, single_from):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", single_from)
    X, y, A = make_problem(3, m=1, C=5)
    X = X @ np.random.default_rng(3).standard_normal((12, 12))
    objective = make_objective(X, y, A, gamma=300.0)
    solution = solve_alternating(objective, max_iter=8, tol=0, n_inner=2000)
    assert (solution.s == 0).any()
    assert_equation_12(objective, solution)
    assert (np.diff(solution.objective) <= 1e-9 * abs(solution.objective[0])).all()


def test_it_stops_when_J_hardly_falls():
    X, y, A = make_problem()
    objective = make_objective(X, y, A, gamma=1e-3)
    assert len(solve_alternating(objective, max_iter=50, tol=0).objective) == 50
    early = solve_alternating(objective, max_iter=50, tol=1e-2)
    assert early.converged
    assert len(early.objective) < 50


def test_from_equal_weights_the_ranking_is_that_of_ridge_row_norms():
    """method: after an exact W-step every s_i grows by γ‖w_i‖²/s_i, so nothing is shrunk."""
    X, y, A = make_problem(n=400, d=50)
    objective = make_objective(X, y, A, alpha=1.0, gamma=0.1)
    ridge = np.linalg.solve(objective.gram() + 0.1 * np.eye(50), objective.B)
    expected = np.argsort(-np.linalg.norm(ridge, axis=1))[:10]
    solution = solve_alternating(objective, max_iter=20, tol=0)
    assert set(solution.order[:10].tolist()) == set(expected.tolist())
    assert (solution.s >= 1).all()


def test_the_relaxation_is_scale_degenerate():
    X, y, A = make_problem()
    objective = make_objective(X, y, A, gamma=5.0)
    W, s = np.random.default_rng(0).standard_normal((12, 3)), np.ones(12)
    values = [objective.value(W / tau, tau * s) for tau in (1, 2, 5, 100)]
    penalty = 5.0 * (W**2).sum()
    assert_allclose(values, [values[0] - penalty * (1 - tau**-2) for tau in (1, 2, 5, 100)])


# ---- both ------------------------------------------------------------------------------------


@pytest.mark.parametrize("solve", [lambda o: solve_direct(o, 6), solve_alternating])
def test_a_monitor_sees_every_step_and_can_stop(solve):
    X, y, A = make_problem()
    seen = []

    def monitor(step, J, feature, solution):
        seen.append((step, J, len(solution().objective), feature))
        return step == 3

    objective = make_objective(X, y, A)
    if solve is solve_alternating:
        solution = solve_alternating(objective, tol=0, monitor=monitor)
    else:
        solution = solve_direct(objective, 6, monitor=monitor)
    assert [s[0] for s in seen] == [1, 2, 3]
    assert [s[2] for s in seen] == [1, 2, 3]
    assert_allclose([s[1] for s in seen], solution.objective)
    assert len(solution.objective) == 3
    expected = [None] * 3 if solve is solve_alternating else solution.order[:3].tolist()
    assert [s[3] for s in seen] == expected
    assert solution.converged == (solve is not solve_alternating)
