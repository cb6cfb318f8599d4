"""Forward selection against the simplest thing that could work."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from problems import fit_of, make_objective, make_problem, naive_greedy
from semfs import Moments, SemFS
from semfs.method.direct import solve_direct
from semfs.method.quadratic import Quadratic


def select(objective, k, **options):
    return solve_direct([objective.quadratic()], k, **options)


def of_matrices(G, B, gamma, q=100.0):
    return Quadratic(q, B, np.diag(G), gamma, lambda i: G[:, i], 1e-16)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 0.3, 1.0, 20.0]),
    gamma=st.sampled_from([1e-3, 0.1, 1.0, 50.0]),
    shape=st.sampled_from([(60, 12), (10, 25), (30, 3)]),
)
def test_it_equals_a_greedy_that_refits_from_scratch(seed, alpha, gamma, shape):
    X, y, A = make_problem(seed, n=shape[0], d=shape[1])
    k = min(6, shape[1])
    chosen, values = naive_greedy(X, y, A, k, alpha, gamma)
    solution = select(make_objective(X, y, A, alpha=alpha, gamma=gamma), k)
    assert solution.order[:k].tolist() == chosen
    assert_allclose(solution.objective, values, rtol=1e-7, atol=1e-7 * values[0])


def test_it_never_asks_for_the_whole_gram_matrix(monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("d x d matrix formed")

    monkeypatch.setattr(Moments, "scatter", refuse)
    assert len(select(make_objective(*make_problem(n=80, d=40)), 10).objective) == 10


@pytest.mark.parametrize("k, most", [(5, 100), (60, 384)])
def test_columns_of_G_come_in_few_passes_and_none_twice(k, most):
    objective, asked = make_objective(*make_problem(n=300, d=400), gamma=30.0), []

    def columns(features):
        asked.extend([*features, "pass"])
        return objective.columns(features)

    found = solve_direct([replace(objective.quadratic(), columns=columns)], k, n_swaps=2)
    passes = asked.count("pass")
    assert len(asked) - passes == len(set(asked)) - 1 <= most
    assert passes <= 6
    assert found.order[:k].tolist() == select(objective, k, n_swaps=2).order[:k].tolist()


def test_an_estimate_of_G_predicts_the_columns_that_are_needed():
    quadratic, asked = make_objective(*make_problem(n=300, d=200)).quadratic(), []

    def columns(features):
        asked.append(features)
        return quadratic.columns(features)

    prefetched = replace(quadratic, columns=columns, estimate=quadratic.columns)
    assert solve_direct([prefetched], 40).order[:40].tolist() == (
        solve_direct([quadratic], 40).order[:40].tolist()
    )
    assert [len(features) < 60 for features in asked] == [True]  # one pass: those and near ties


def test_a_monitor_hears_of_every_step_and_may_stop():
    objective, heard = make_objective(*make_problem()), []

    def monitor(step, J, feature, so_far):
        heard.append((step, J, feature, so_far().order[:step].tolist()))
        return step == 4

    solution = select(objective, 9, monitor=monitor)
    chosen = select(objective, 4).order[:4].tolist()
    assert solution.order[:4].tolist() == chosen
    assert len(solution.objective) == 4
    steps = enumerate(zip(solution.objective, chosen), start=1)
    assert heard == [(t, pytest.approx(J), j, chosen[:t]) for t, (J, j) in steps]


def test_W_solves_the_ridge_problem_on_the_chosen_features():
    objective = make_objective(*make_problem(), gamma=0.5)
    solution = select(objective, 5)
    S = solution.order[:5]
    K = objective.gram()[np.ix_(S, S)] + 0.5 * np.eye(5)
    assert_allclose(solution.W[S], np.linalg.solve(K, objective.B[S]), atol=1e-9)
    assert_allclose(objective.value(solution.W, solution.s), solution.objective[-1])
    assert not solution.W[solution.order[5:]].any()
    assert solution.converged


def test_scores_are_gains_and_the_rest_stays_below():
    objective = make_objective(*make_problem())
    solution = select(objective, 5)
    gains = -np.diff(np.concatenate([[objective.q], solution.objective]))
    assert_allclose(solution.scores[solution.order[:5]], gains)
    assert (solution.scores[solution.order[5:]] <= gains[-1]).all()
    assert sorted(solution.order.tolist()) == list(range(12))


def test_scores_fall_along_the_order():
    for seed in range(30):
        X, y, A = make_problem(seed, n=40, d=10)
        X[:, 0] = X[:, 1] + 0.1 * X[:, 2]  # together they say what neither says alone
        for k in (1, 2, 4):
            solution = select(make_objective(X, y, A, gamma=1e-6), k)
            assert (np.diff(solution.scores[solution.order]) <= 0).all()


# ---- several quadratics ----------------------------------------------------------------


def two_quadratics(seed=0, d=10):
    """Two problems over the same features, and their matrices."""
    rng = np.random.default_rng(seed)
    made = []
    for r, gamma in ((3, 0.5), (2, 2.0)):
        F = rng.standard_normal((30, d)) @ rng.standard_normal((d, d))
        made.append((F.T @ F, F.T @ rng.standard_normal((30, r)), gamma))
    return [of_matrices(*parts) for parts in made], made


def total_fit(made, S):
    return sum(fit_of(G, B, S, gamma) for G, B, gamma in made)


@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_several_J_falls_as_a_naive_search_says(seed):
    quadratics, made = two_quadratics(seed)
    solution = solve_direct(quadratics, 6)
    chosen = []
    for step in range(6):
        left = [j for j in range(10) if j not in chosen]
        chosen.append(max(left, key=lambda j: total_fit(made, [*chosen, j])))
        assert_allclose(solution.objective[step], 200.0 - total_fit(made, chosen))
    assert solution.order[:6].tolist() == chosen
    assert_allclose(solution.scores[chosen], -np.diff([200.0, *solution.objective]))
    own = solve_direct(quadratics[:1], 6, include=np.array(chosen))
    assert_allclose(solution.W, own.W)  # W is that of the first


# ---- forced, forbidden and equal features ----------------------------------------------


@pytest.mark.parametrize("n_select", [1, 2])
def test_features_beyond_the_forced_ones_are_ranked_by_their_next_gain(n_select):
    X, y, A = make_problem(d=8, n=300)
    X[:, :6] = np.random.default_rng(0).standard_normal((300, 6))  # noise
    objective = make_objective(X, y, A)
    solution = select(objective, n_select, include=np.arange(n_select))
    following = select(objective, 8, include=np.arange(n_select)).order[n_select]
    assert following in (6, 7)
    assert solution.order[n_select] == following
    rest = solution.order[n_select:]
    assert (np.diff(solution.scores[rest]) <= 0).all()
    assert solution.scores[following] > 10 * solution.scores[:6].max()


def test_forced_features_come_first_and_are_never_swapped_out():
    objective = make_objective(*make_problem())
    worst = select(objective, 12).order[-2:]
    solution = select(objective, 5, include=worst, n_swaps=50)
    assert set(worst) <= set(solution.order[:5].tolist())
    plain = select(objective, 5, include=worst)
    assert set(plain.order[:2].tolist()) == set(worst.tolist())


def test_features_that_are_no_candidates_rank_last():
    objective = make_objective(*make_problem())
    first = select(objective, 3).order[:3]
    allowed = np.ones(12, dtype=bool)
    allowed[first] = False
    for n_swaps in (0, 50):
        solution = select(objective, 4, candidates=allowed, n_swaps=n_swaps)
        assert set(solution.order[-3:].tolist()) == set(first.tolist())
        assert np.isneginf(solution.scores[first]).all()
    assert len(select(objective, 12, candidates=allowed).objective) == 9


def test_of_equal_columns_the_lowest_index_enters_and_the_copy_adds_nothing():
    X, y, A = make_problem(d=6)
    X = np.column_stack([X, X])
    for rows in (slice(None), slice(None, None, -1)):
        solution = select(make_objective(X[rows], y[rows], A, gamma=1e-9), 6)
        assert sorted(solution.order[:6].tolist()) == list(range(6))


@pytest.mark.parametrize("seed", range(5))
def test_of_features_equal_up_to_rounding_the_first_is_chosen(seed):
    rng = np.random.default_rng(seed)
    X, y = rng.normal(size=(60, 8)), np.arange(60) % 4
    X[:, 6] += y
    X[:, 2] = X[:, 6] * (1.0 - 1e-15)  # the later twin has the larger gain, in the last digits
    assert SemFS(1).fit(X, y).order_[0] == 2


def test_without_penalty_dependent_columns_come_after_all_others():
    X, y, A = make_problem(d=8)
    X[:, 5:] = X[:, :3] + X[:, 1:4]  # rank 5
    chosen = select(make_objective(X, y, A, gamma=0.0), 5).order[:5]
    assert np.linalg.matrix_rank(X[:, chosen]) == 5
    everything = select(make_objective(X, y, A, gamma=0.0), 8, n_swaps=5)
    assert len(everything.objective) == 8  # copies enter last, and explain nothing
    assert_allclose(everything.objective[5:], everything.objective[4])


def test_the_gains_of_copies_keep_their_digits():
    gamma = 1e-7
    solution = solve_direct([of_matrices(np.ones((3, 3)), np.ones((3, 1)), gamma)], 3)
    fits = np.arange(4) / (np.arange(4) + gamma)
    expected = [fits[1], *(gamma / ((k + gamma) * (k + 1 + gamma)) for k in (1, 2))]
    assert_allclose(solution.scores, expected, rtol=1e-6)


def test_small_gains_keep_their_digits():
    """Norms of residuals are updated; where they fall by orders they are computed afresh."""
    rng = np.random.default_rng(0)
    F = np.linalg.qr(rng.standard_normal((40, 12)))[0]
    B = np.diag(10.0 ** -np.arange(12.0))
    solution = solve_direct([of_matrices(F.T @ F, B, 0.0)], 12)
    assert solution.order.tolist() == list(range(12))
    assert_allclose(solution.scores, 10.0 ** (-2 * np.arange(12.0)), rtol=1e-9)


# ---- hostile scales --------------------------------------------------------------------


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_swaps", [0, 2])
@pytest.mark.parametrize(
    "options", [{"alpha": 1e200}, {"alpha": 1e308}, {"gamma": 1e300}, {"gamma": 1e308}], ids=str
)
def test_absurd_parameters_give_finite_results_or_a_refusal(dtype, n_swaps, options):
    X, y, A = make_problem(C=12)
    options = {"penalty_scale": "gram", "fit_intercept": True, **options}
    objective = make_objective(X.astype(dtype), y, A, **options)
    if "alpha" in options:
        with pytest.raises(ValueError, match="scores overflow"):
            select(objective, 3, n_swaps=n_swaps)
    else:
        solution = select(objective, 3, n_swaps=n_swaps)
        assert np.isfinite(solution.scores).all()
        assert np.isfinite(solution.W).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("weight", [1e150, 1e300])
def test_an_absurd_label_weight_is_refused_without_noise(weight):
    X, y, A = make_problem(C=12)
    with pytest.raises(ValueError, match="label_weight must be at most"):
        SemFS(3, A, label_weight=weight).fit(X.astype(np.float32), y)
