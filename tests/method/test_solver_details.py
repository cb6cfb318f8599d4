"""Promises of the solvers that only show in corners; found by mutation testing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semfs.method.solvers as solvers_module
import semfs.method.w_step
from problems import make_problem
from semfs import SemFS
from semfs.method.moments import Moments
from semfs.method.objective import Objective, reduce_rank
from semfs.method.solvers import solve_alternating, solve_direct
from semfs.method.w_step import PrimalStep


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


# ---- direct --------------------------------------------------------------------------------


def test_without_penalty_dependent_columns_come_after_all_others():
    X, y, A = make_problem(d=8)
    X[:, 5:] = X[:, :3] + X[:, 1:4]  # rank 5
    chosen = solve_direct(objective_of(X, y, A, gamma=0.0), 5).order[:5]
    assert np.linalg.matrix_rank(X[:, chosen]) == 5
    everything = solve_direct(objective_of(X, y, A, gamma=0.0), 8)
    assert len(everything.objective) == 8  # copies enter last, and explain nothing
    assert_allclose(everything.objective[5:], everything.objective[4])


def test_what_is_forbidden_stays_out_even_if_nothing_else_helps():
    X, y, A = make_problem(d=6)
    X[:, 5] = X[:, 3] + X[:, 4]
    allowed = np.array([False, False, False, True, True, True])
    found = solve_direct(objective_of(X, y, A, gamma=0.0), 3, candidates=allowed)
    assert sorted(found.order[:3].tolist()) == [3, 4, 5]


def test_no_more_exchanges_are_made_than_allowed():
    for seed in range(20):
        X, y, A = make_problem(seed, n=40, d=10)
        X[:, 0] = X[:, 1:].sum(axis=1)  # tempting first, useless later
        objective = objective_of(X, y, A, gamma=1e-6)
        forward, one, many = (
            set(solve_direct(objective, 5, n_swaps=n).order[:5]) for n in (0, 1, 9)
        )
        assert len(forward - one) <= 1
        if len(forward - many) >= 2:
            assert len(forward - one) == 1
            return
    pytest.fail("no problem here needs two exchanges")


def test_one_exchange_allowed_is_one_exchange_tried(monkeypatch):
    calls = []
    original = solvers_module._swap_gains

    def count(*arguments):
        calls.append(1)
        return original(*arguments)

    monkeypatch.setattr(solvers_module, "_swap_gains", count)
    for seed in range(10):
        calls.clear()
        solve_direct(objective_of(*make_problem(seed, n=40, d=10)), 6, n_swaps=1)
        assert 1 <= len(calls) <= 3


@pytest.mark.parametrize(("k", "first"), [(5, 32), (50, 96), (100, 128)])
def test_columns_of_G_are_fetched_in_batches_that_suit_k(monkeypatch, k, first):
    X, y, A = make_problem(n=300, d=200, m=3)
    sizes = []
    original = Objective.columns

    def columns(self, wanted):
        sizes.append(len(wanted))
        return original(self, wanted)

    monkeypatch.setattr(Objective, "columns", columns)
    solve_direct(objective_of(X, y, A), k)
    assert sizes[0] == first
    assert sum(sizes) <= 200


@pytest.mark.parametrize("gamma", [1e-6, 1.0, 50.0])
def test_exchanges_never_raise_J(gamma):
    for seed in range(20):
        objective = objective_of(*make_problem(seed, n=40, d=10), gamma=gamma)
        J = [solve_direct(objective, 4, n_swaps=n).objective[-1] for n in (0, 1, 2, 50)]
        assert (np.diff(J) <= 1e-9 * objective.q).all()


# ---- alternating ---------------------------------------------------------------------------


def objective_of(X, y, A, **options):
    return Objective.from_moments(Moments.from_data(X, y), A, **options)


def wide_problem(decay=0.0, m=3, scale=1.0, d=60):
    """Columns that share directions whose strength decays."""
    X, y, A = make_problem(n=400, d=d, C=60, m=m)
    turn = np.linalg.qr(np.random.default_rng(1).standard_normal((d, d)))[0]
    return X * np.arange(1.0, d + 1.0) ** -decay @ turn, y, scale * A


@pytest.fixture
def counted(monkeypatch):
    """Counts factorisations and products with G, by precision."""
    counts = {"factors": 0, "float32": 0, "float64": 0}
    factorise = PrimalStep._factorise
    image = PrimalStep._image

    def count_factors(self, ridge):
        counts["factors"] += 1
        factorise(self, ridge)
        assert self.factor[0].dtype == self.dtype

    def count_images(self, V):
        counts[V.dtype.name] += 1
        found = image(self, V)
        assert found.dtype == V.dtype
        return found

    monkeypatch.setattr(PrimalStep, "_factorise", count_factors)
    monkeypatch.setattr(PrimalStep, "_image", count_images)
    return counts


@pytest.mark.parametrize("left_out", [0, 20])
def test_small_problems_take_one_factor_and_one_step_per_round(counted, left_out):
    objective = objective_of(*wide_problem(), gamma=1.0, penalty_scale="gram")
    start = np.ones(60)
    start[:left_out] = 0.0
    solve_alternating(objective, max_iter=10, tol=0, s_init=start)
    # the last solution is already exact: no further step for it
    assert counted["factors"] == 11
    # a step each; G U afresh at the start, in rounds 4 and 8 and at the end
    assert counted["float64"] == 11 + 4


def test_a_sensible_penalty_needs_no_factor_and_few_products(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    objective = objective_of(*wide_problem(m=5, d=300), gamma=10.0, penalty_scale="gram")
    seen = []
    monitor = lambda *_: seen.append(dict(counted))  # noqa: E731
    solve_alternating(objective, max_iter=20, tol=0, monitor=monitor)
    assert seen[-1]["factors"] == 0
    assert seen[-1]["float64"] == 1 + 5  # first, and every fourth round
    assert seen[-1]["float32"] <= 50
    assert counted["factors"] <= 2  # the last solution is wanted more exactly


def test_an_ill_conditioned_problem_gets_a_factor_and_keeps_it(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    X, y, A = wide_problem(decay=1.5)
    objective = objective_of(X, y, A, gamma=1e-3, penalty_scale="gram")
    solve_alternating(objective, max_iter=20, tol=0)
    assert 1 <= counted["factors"] <= 4
    assert counted["float32"] <= 80
    assert counted["float64"] == 1 + 5 + 1  # single precision serves throughout


def test_where_single_precision_fails_double_takes_over(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    monkeypatch.setattr(Objective, "precise", False)
    X, y, A = wide_problem(decay=3.0, m=30)
    objective = objective_of(X, y, A, gamma=1e-9, penalty_scale="gram")
    solution = solve_alternating(objective, max_iter=3, tol=0)
    left = solution.s[:, None] * (objective.gram() @ (solution.s[:, None] * solution.W))
    right = solution.s[:, None] * objective.B - objective.gamma * solution.W
    assert np.linalg.norm(left - right) <= 1e-8 * np.linalg.norm(right)
    assert counted["factors"] >= 2  # one in each precision


def test_J_never_rises_even_if_the_curvature_was_underestimated(monkeypatch):
    original = solvers_module._power_iteration

    def too_low(*arguments):
        value, direction = original(*arguments)
        return value / 30.0, direction

    monkeypatch.setattr(solvers_module, "_power_iteration", too_low)
    X, y, A = wide_problem()
    objective = objective_of(X, y, A, gamma=10.0, penalty_scale="gram")
    solution = solve_alternating(objective, max_iter=12, tol=0)
    assert (np.diff(solution.objective) <= 1e-9 * solution.objective[0]).all()
    assert (solution.s > 0).all()


def test_rounding_errors_of_G_U_that_pile_up_are_noticed(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    X, y, A = wide_problem(decay=1.0, m=30)
    objective = objective_of(X, y, A, gamma=1.0, penalty_scale="gram")
    solution = solve_alternating(objective, max_iter=20, tol=0)
    assert counted["float64"] > 1 + 5 + 1  # from then on G U is computed every round
    value = objective.value(solution.W, solution.s)
    assert_allclose(solution.objective[-1], value, rtol=1e-8)


@pytest.mark.parametrize("step", ["lipschitz", "exact"])
def test_targets_of_zero_leave_s_alone(step):
    X, y, A = make_problem()
    solution = solve_alternating(objective_of(X, y, 0.0 * A), step=step)
    assert_array_equal(solution.s, np.ones(12))
    assert not solution.W.any()
    assert solution.objective.tolist() == [0.0]


@pytest.mark.parametrize("options", [{}, {"n_inner": 3}, {"step": "exact"}], ids=str)
def test_the_step_does_not_depend_on_the_unit_of_the_attributes(options):
    small, large = (
        solve_alternating(
            objective_of(*wide_problem(scale=scale), gamma=1.0, penalty_scale="gram"),
            max_iter=10,
            tol=0,
            **options,
        )
        for scale in (1e-3, 1e3)
    )
    assert_allclose(small.s, large.s, rtol=1e-6)


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_step_that_is_too_long_is_halved_until_J_falls(unit):
    Q = unit * np.diag([1.0, 2.0, 3.0])
    s, gradient = np.ones(3), unit * np.array([-1.0, 2.0, -3.0])
    move, bend = solvers_module._descent(lambda v: Q @ v, s, gradient, 64.0 / unit)
    assert_allclose(bend, Q @ move)
    assert (s + move >= 0).all()
    change = gradient @ move + move @ Q @ move
    assert change < 0
    # twice as long would have been too long
    twice = np.maximum(s + 2.0 * move, 0.0) - s
    assert gradient @ twice + twice @ Q @ twice > 0


def test_it_stops_by_itself_at_the_documented_tolerance():
    objective = objective_of(*make_problem(), gamma=100.0)
    default, explicit = (
        solve_alternating(objective, max_iter=5000, **options)
        for options in ({}, {"tol": 1e-4})
    )
    assert default.converged
    assert len(default.objective) == len(explicit.objective) > 1
    assert len(solve_alternating(objective, tol=0).objective) == 20
    falls = -np.diff(default.objective) / default.objective[:-1]
    assert (falls[:-1] > 1e-4).all()
    assert falls[-1] <= 1e-4


def test_the_curvature_is_estimated_every_fourth_round_and_tracked_in_between(monkeypatch):
    objective = objective_of(*wide_problem(), gamma=10.0, penalty_scale="gram")
    G, calls, tracked = objective.gram(), [], []
    power, largest = solvers_module._power_iteration, solvers_module._SStep._largest_curvature

    def count(*arguments):
        calls.append(1)
        return power(*arguments)

    def compare(self, Q, W, s):
        found = largest(self, Q, W, s)
        tracked.append(found / np.linalg.eigvalsh(G * (W @ W.T))[-1])
        return found

    monkeypatch.setattr(solvers_module, "_power_iteration", count)
    monkeypatch.setattr(solvers_module._SStep, "_largest_curvature", compare)
    solve_alternating(objective, max_iter=20, tol=0)
    assert len(calls) == 5
    assert 0.9 < min(tracked) <= max(tracked) < 1.4  # twice as low would be too low


def test_power_iteration_finds_the_largest_eigenvalue():
    Q = np.diag([5.0, 4.5, 1.0, 0.5, 0.1])
    value, direction = solvers_module._power_iteration(lambda v: Q @ v, None, 5)
    assert 0.97 * 5.0 < value < 1.03 * 5.0
    assert_allclose(np.linalg.norm(direction), 1.0)
    again, _ = solvers_module._power_iteration(lambda v: Q @ v, direction, 5)
    assert again >= value
    value, direction = solvers_module._power_iteration(np.zeros_like, None, 5)
    assert value == 0.0
    assert np.isfinite(direction).all()


def test_steps_left_are_predicted_from_the_last_two():
    steps_left = semfs.method.w_step._steps_left
    assert steps_left([1e9, 1.0], 1e-9) == 0.0
    assert_allclose(steps_left([1.0, 1e-1, 1e-2], 1e-4), 2.0)
    assert_allclose(steps_left([1e5, 1.0, 1e-1, 1e-2], 1e-4), 2.0)
    assert steps_left([1.0, 3.0, 1.0], 1e-4) == np.inf


def test_scores_fall_along_the_order():
    for seed in range(30):
        X, y, A = make_problem(seed, n=40, d=10)
        X[:, 0] = X[:, 1] + 0.1 * X[:, 2]  # together they say what neither says alone
        for k in (1, 2, 4):
            solution = solve_direct(objective_of(X, y, A, gamma=1e-6), k)
            assert (np.diff(solution.scores[solution.order]) <= 0).all()


@pytest.mark.parametrize(
    ("sizes", "stalled"),
    [
        ([1.0], False),
        ([1.0, 0.4], False),
        ([4.0, 1.5], False),
        ([1.0, 0.9], True),
        ([8.0, 0.4, 1.0, 0.9], True),
    ],
)
def test_a_current_factor_that_does_not_help_gives_way_to_double_precision(
    monkeypatch, sizes, stalled
):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    objective = objective_of(*wide_problem(), gamma=1.0, penalty_scale="gram")
    step, s = PrimalStep(objective), np.ones(60)
    system = semfs.method.w_step._System(objective.B, s, objective.gamma / s**2, 1e-9)
    step._factorise(system.ridge)
    assert step._prepare(system, sizes) == stalled
    assert step.factor[0].dtype == (np.float64 if stalled else np.float32)


def test_step_lengths():
    Q, gradient = np.diag([1.0, 3.0]), np.array([2.0, 1.0])
    length = lambda step, largest: solvers_module._step_length(  # noqa: E731
        lambda v: Q @ v, gradient, step, largest
    )
    assert length("lipschitz", 4.0) == 0.125  # half of 1/λ, as Q is half of the Hessian
    assert length("lipschitz", 0.0) == 0.0
    assert_allclose(length("exact", 0.0), 0.5 * 5.0 / 7.0)
    assert length(0.3, 4.0) == 0.3
    none = solvers_module._step_length(np.zeros_like, gradient, "exact", 0.0)
    assert none == 0.0


def test_a_tiny_penalty_gets_its_factor_at_once_and_keeps_it(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    objective = objective_of(*wide_problem(), gamma=1e-6, penalty_scale="gram")
    solve_alternating(objective, max_iter=5, tol=0)
    assert counted["factors"] == 1
    assert counted["float32"] == 0
    assert counted["float64"] <= 2 * 8  # a product for G U and at most one step per solve


def test_features_left_out_cost_no_steps(counted, monkeypatch):
    monkeypatch.setattr(semfs.method.w_step, "SINGLE_FROM", 1)
    start = np.ones(300)
    start[::3] = 0.0
    objective = objective_of(*wide_problem(m=5, d=300), gamma=10.0, penalty_scale="gram")
    solve_alternating(objective, max_iter=10, tol=0, s_init=start)
    assert counted["float32"] <= 50


def test_q_is_the_spread_of_the_targets():
    X, y, A = make_problem()
    spread = ((A[y] - A[y].mean(axis=0)) ** 2).sum()
    assert_allclose(objective_of(X, y, A, alpha=0.5, fit_intercept=True).q, 1.5 * spread)


def test_a_table_of_rank_one_is_reduced_to_one_column():
    u, v = np.random.default_rng(0).normal(size=(2, 9))
    targets, basis = reduce_rank(np.outer(u, v[:4]))
    assert targets.shape == (9, 1)
    assert basis.shape == (4, 1)
    assert_allclose(targets @ basis.T, np.outer(u, v[:4]))
