"""Algorithm 1 against the paper's formulas written out."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.sparse.linalg import ArpackNoConvergence

from problems import make_objective, make_problem, paper_B, paper_gram, spread
from semfs import Moments, SemFS
from semfs.method.alternating import (
    STEP_RULES,
    WStep,
    largest_eigenvalue,
    projected_step,
    solve_alternating,
)
from semfs.method.objective import Objective


def naive(X, y, A, alpha, gamma, rounds, fit_intercept):
    """J, s and W: W by least squares without normal equations, λ_max from all eigenvalues."""
    if fit_intercept:
        X, A = X - X.mean(axis=0), A - A[y].mean(axis=0)
    F = X + (np.sqrt(1 + alpha) - 1) * spread(X, y)
    G, d = F.T @ F, X.shape[1]
    right = np.vstack([np.sqrt(1 + alpha) * A[y], np.zeros((d, A.shape[1]))])
    s, history = np.ones(d), []
    for _ in range(rounds + 1):
        left = np.vstack([F * s, np.sqrt(gamma) * np.eye(d)])
        W = np.linalg.lstsq(left, right, rcond=None)[0]
        history.append(((right - left @ W) ** 2).sum())
        last = s
        s = s + gamma * (W**2).sum(axis=1) / s / np.linalg.eigvalsh(G * (W @ W.T))[-1]
    return np.array(history[1:]), last, W


def random_case(seed, offset=0.0):
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(12, 120)), int(rng.integers(3, 90))
    X, y, A = make_problem(seed, n=n, d=d, C=6, m=3, offset=offset)
    return X, y, A, float(rng.choice([0.0, 0.5, 1.0, 10.0])), 10.0 ** rng.uniform(-2, 3)


def assert_exact_steps(case, rounds, fit_intercept, tolerance):
    X, y, A, alpha, gamma = case
    J, s, W = naive(X, y, A, alpha, gamma, rounds, fit_intercept)
    objective = make_objective(X, y, A, alpha=alpha, gamma=gamma, fit_intercept=fit_intercept)
    found = solve_alternating(objective, max_iter=rounds, tol=-1.0)
    assert_allclose(found.objective, J, rtol=tolerance)
    assert_allclose(found.s, s, rtol=tolerance)
    assert np.linalg.norm(found.W - W) <= tolerance * np.linalg.norm(W)


@pytest.mark.parametrize("seed", range(40))
def test_J_follows_the_path_of_exact_steps(seed):
    assert_exact_steps(random_case(seed), 8, bool(seed % 2), 1e-8)


@pytest.mark.parametrize("n_inner", [1, 3])
@pytest.mark.parametrize("step", ["lipschitz", "exact", 1e-3])
def test_steps_of_s_are_those_of_equations_9_to_11_and_s_ranks(step, n_inner):
    X, y, A = make_problem()
    G, B = paper_gram(X, y, 0.5), paper_B(X, y, A, 0.5)
    start = s = np.random.default_rng(0).uniform(0.5, 1.5, 12)
    W = np.linalg.solve(s[:, None] * G * s + 2.0 * np.eye(12), s[:, None] * B)
    Q, b = G * (W @ W.T), (B * W).sum(axis=1)
    for _ in range(n_inner):
        g = 2.0 * (Q @ s - b)
        rules = {
            "lipschitz": 0.5 / np.linalg.eigvalsh(Q)[-1],
            "exact": 0.5 * g @ g / (g @ Q @ g),
        }
        s = np.maximum(s - rules.get(step, step) * g, 0.0)
    objective = make_objective(X, y, A, alpha=0.5, gamma=2.0)
    options = {"step": step, "n_inner": n_inner, "s_init": start}
    found = solve_alternating(objective, max_iter=1, **options)
    assert_allclose(found.s, s, rtol=1e-8)
    assert found.order.tolist() == np.argsort(-s).tolist()


@pytest.mark.parametrize("offset", [1e2, 1e4, 1e6])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_samples_far_from_the_origin_lose_no_digits(offset, fit_intercept):
    for seed in range(6):
        assert_exact_steps(random_case(seed, offset), 6, fit_intercept, 1e-6)


def assert_equation_12(objective, solution, tolerance=1e-8):
    s = solution.s[:, None]
    left = s * (objective.gram() @ (s * solution.W)) + objective.gamma * solution.W
    right = s * objective.B
    assert np.linalg.norm(left - right) <= tolerance * np.linalg.norm(right)


SETTINGS = [{"n_inner": n} for n in (1, 3, 12)] + [{"step": s} for s in ("exact", 1e-3, 1e3)]


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


def test_single_precision_samples_fewer_than_features_keep_the_digits_of_W():
    rng = np.random.default_rng(0)
    X, y, A = make_problem(n=40, d=120, offset=1.0)
    X = (X * rng.uniform(0.1, 5.0, 120)).astype(np.float32)
    _, _, W = naive(X.astype(float), y, A, 1.0, 0.1, 0, False)
    objective = make_objective(X, y, A, alpha=1.0, gamma=0.1)
    found, _ = WStep(objective).solve(np.ones(120))
    assert np.linalg.norm(found - W) <= 1e-5 * np.linalg.norm(W)


@pytest.mark.parametrize("shape", [(60, 12), (10, 25)])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_more_targets_than_classes_give_the_W_of_all_of_them(shape, fit_intercept):
    X, y, A = make_problem(n=shape[0], d=shape[1])
    options = {"gamma": 0.5, "fit_intercept": fit_intercept, "label_weight": 0.3}
    objective = make_objective(X, y, A, **options)
    solutions = []
    found = solve_alternating(
        objective,
        max_iter=5,
        tol=-1.0,
        monitor=lambda i, J, j, solution: solutions.append(solution()),
    )
    labels = np.sqrt(0.3) * np.eye(len(A))
    J, s, _ = naive(X, y, np.hstack([A, labels]), 1.0, 0.5, 5, fit_intercept)
    assert found.W.shape == (shape[1], A.shape[1] + len(A))
    assert_equation_12(objective, found)
    assert_equation_12(objective, solutions[2])
    assert_allclose(found.objective, J, rtol=1e-8)
    assert_allclose(found.s, s, rtol=1e-8)


# ---- hard problems ---------------------------------------------------------------------


def hard_problem(decay, m=3, d=60):
    """Columns that share directions whose strength decays."""
    X, y, A = make_problem(n=400, d=d, C=60, m=m)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0]
    return X * np.arange(1.0, d + 1.0) ** -decay @ turn, y, A


@pytest.mark.parametrize("decay", [0.0, 1.5], ids=["even", "ill-conditioned"])
@pytest.mark.parametrize("gamma", [1e-7, 1e-3, 0.1, 10.0])
@pytest.mark.parametrize("m", [3, 50])
def test_twenty_rounds_follow_exact_steps_and_W_solves_equation_12(decay, gamma, m):
    X, y, A = hard_problem(decay, m)
    options = {"gamma": gamma, "penalty_scale": "gram", "fit_intercept": True}
    objective = make_objective(X, y, A, **options)
    J, s, _ = naive(X, y, A, 1.0, objective.gamma, 20, True)
    solution = solve_alternating(objective, max_iter=20, tol=-1.0)
    assert_equation_12(objective, solution)
    assert (np.diff(solution.objective) <= 1e-9 * solution.objective[0]).all()
    assert_allclose(solution.objective, J, rtol=1e-6)
    assert_allclose(solution.s, s, rtol=1e-5)


def test_columns_of_very_different_units_and_equal_directions_are_solved():
    X, y, A = hard_problem(0.0)
    X = X * 10.0 ** np.random.default_rng(0).uniform(-4, 4, X.shape[1])
    objective = make_objective(X, y, A, gamma=0.1, fit_intercept=True)
    _, s, _ = naive(X, y, A, 1.0, 0.1, 20, True)
    found = solve_alternating(objective, max_iter=20, tol=-1.0).s - 1.0
    assert_allclose(found, s - 1.0, atol=1e-3 * (s - 1.0).max())


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_J_is_that_of_the_W_at_hand_and_targets_have_no_unit(fit_intercept):
    X, y, A = hard_problem(0.5)
    s, options = np.linspace(0.5, 2.0, 60), {"gamma": 3.0, "penalty_scale": "gram"}
    objective = make_objective(X + 1.0, y, A, fit_intercept=fit_intercept, **options)
    paths = {
        step: solve_alternating(objective, max_iter=5, tol=-1.0, step=step).s
        for step in STEP_RULES
    }
    for unit in (1e-8, 1.0, 1e8):
        objective = make_objective(X + 1.0, y, unit * A, fit_intercept=fit_intercept, **options)
        W, J = WStep(objective).solve(s)
        assert_allclose(J, objective.value(W, s), rtol=1e-10)
        for step, expected in paths.items():
            solution = solve_alternating(objective, max_iter=5, tol=-1.0, step=step)
            assert_equation_12(objective, solution)
            assert_allclose(solution.s, expected, rtol=1e-5)


def test_a_tiny_penalty_on_dependent_columns_is_solved():
    options = {"gamma": 1e-9, "penalty_scale": "gram"}
    objective = make_objective(*hard_problem(3.0, m=30), **options)
    assert_equation_12(objective, solve_alternating(objective, max_iter=3, tol=0))


def test_a_penalty_below_rounding_errors_is_refused():
    X, y, A = make_problem(n=100, d=30)
    objective = make_objective(np.hstack([X, X, X]), y, A, gamma=1e-60, penalty_scale="gram")
    with pytest.raises(ValueError, match="gamma is smaller than the rounding errors"):
        solve_alternating(objective)


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_the_path_for_few_samples_equals_the_d_by_d_path(kind, fit_intercept):
    X, y, A = make_problem(n=12, d=30)
    weights = np.linspace(0.5, 2.0, 12)
    data = sp.csr_array(X) if kind == "sparse" else X
    rows = Moments.from_data(data, y, sample_weight=weights)
    options = {"alpha": 0.5, "gamma": 0.3, "fit_intercept": fit_intercept}
    thin = Objective.from_moments(rows, A, **options)
    full = Objective.from_moments(rows.compact(), A, **options)
    assert thin.factor() is not None
    assert full.factor() is None
    a, b = (solve_alternating(o, max_iter=10, tol=0, n_inner=2) for o in (thin, full))
    assert_allclose(a.s, b.s, rtol=1e-6)
    assert_allclose(a.W, b.W, atol=1e-7)
    assert_allclose(a.objective, b.objective, rtol=1e-8)


@pytest.mark.parametrize("d", [1, 2, 3, 90])
def test_the_largest_eigenvalue_is_found(d):
    values = np.linspace(5.0, 1.0, d)
    found, _ = largest_eigenvalue(lambda v: values * v, d, float(values.sum()))
    assert_allclose(found, 5.0, rtol=1e-9)


def test_a_direction_that_has_become_the_largest_is_not_overlooked():
    values = np.linspace(1.0, 5.0, 90)
    _, vector = largest_eigenvalue(lambda v: values * v, 90, float(values.sum()))
    assert_allclose(np.abs(vector), np.eye(90)[-1], atol=1e-3)
    values[3] = 5.5
    start = np.eye(90)[-1]
    found, _ = largest_eigenvalue(lambda v: values * v, 90, float(values.sum()), start)
    assert_allclose(found, 5.5, rtol=1e-9)


@pytest.mark.parametrize("unit", [1e-200, 1e200])
def test_the_largest_eigenvalue_has_the_unit_of_the_matrix(unit):
    values = unit * np.linspace(1.0, 5.0, 50)
    found, _ = largest_eigenvalue(lambda v: values * v, 50, float(values.sum()))
    assert_allclose(found, 5.0 * unit, rtol=1e-9)


def test_where_lanczos_iterations_do_not_converge_the_trace_bounds_the_eigenvalue(monkeypatch):
    def give_up(*_, **__):
        raise ArpackNoConvergence("", np.zeros(0), np.zeros((9, 0)))

    monkeypatch.setattr("semfs.method.alternating.eigsh", give_up)
    assert largest_eigenvalue(lambda v: v, 9, 9.0)[0] == 9.0


# ---- s ---------------------------------------------------------------------------------


def test_features_that_start_at_zero_stay_there():
    objective, start = make_objective(*make_problem()), np.ones(12)
    start[[2, 5]] = 0.0
    solution = solve_alternating(objective, max_iter=5, tol=0, s_init=start)
    assert solution.s[[2, 5]].tolist() == [0, 0]
    assert not solution.W[[2, 5]].any()
    assert_equation_12(objective, solution)


def test_projection_can_switch_features_off_and_the_W_step_follows():
    X, y, A = make_problem(3, m=1, C=5)
    X = X @ np.random.default_rng(3).standard_normal((12, 12))
    objective = make_objective(X, y, A, gamma=300.0)
    solution = solve_alternating(objective, max_iter=8, tol=0, n_inner=2000)
    assert (solution.s == 0).any()
    assert_equation_12(objective, solution)
    assert (np.diff(solution.objective) <= 1e-9 * abs(solution.objective[0])).all()


@pytest.mark.parametrize("rounds", [1, 4])
def test_features_whose_s_agree_but_for_rounding_errors_are_ranked_by_their_growth(rounds):
    X, y, A = make_problem()
    W = np.linalg.lstsq(X, A[y], rcond=None)[0]
    found = solve_alternating(
        make_objective(X, y, A, alpha=0.0, gamma=1e-20), max_iter=rounds, tol=-1.0
    )
    assert (found.s == 1.0).all()
    assert found.order.tolist() == np.argsort(-(W**2).sum(axis=1)).tolist()


@pytest.mark.parametrize("gamma", [1e-105, 1e105])
def test_a_penalty_that_has_nothing_to_do_with_the_data_is_refused(gamma):
    objective = make_objective(*make_problem(), gamma=gamma)
    with pytest.raises(ValueError, match='penalty_scale="gram"'):
        solve_alternating(objective)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("length", [64.0, 128.0])
def test_a_step_that_is_too_long_is_halved_until_J_falls(unit, length):
    Q = unit * np.diag([1.0, 2.0, 3.0])
    s, gradient = np.ones(3), unit * np.array([-1.0, 2.0, -3.0])
    move, bend = projected_step(Q.__matmul__, s, gradient, length / unit)
    assert_allclose(bend, Q @ move)
    assert (s + move >= 0).all()
    assert gradient @ move + move @ Q @ move < 0
    twice = np.maximum(s + 2.0 * move, 0.0) - s
    assert gradient @ twice + twice @ Q @ twice > 0


def test_it_stops_by_itself_at_the_documented_tolerance():
    objective = make_objective(*make_problem(), gamma=100.0)
    default = solve_alternating(objective, max_iter=5000)
    assert default.converged
    assert len(solve_alternating(objective, tol=0).objective) == 20
    falls = -np.diff(default.objective) / default.objective[:-1]
    assert (falls[:-1] > 1e-4).all()
    assert falls[-1] <= 1e-4
    early = solve_alternating(objective, max_iter=5000, tol=1e-2)
    assert len(early.objective) < len(default.objective)


def test_data_near_the_largest_numbers_are_solved_without_a_warning():
    rng = np.random.default_rng(0)
    X = 1e84 * rng.standard_normal((60, 6))
    selector = SemFS(3, solver="alternating")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selector.fit(X, np.arange(60) % 3)
    assert np.isfinite(selector.scores_).all()
