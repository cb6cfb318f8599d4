"""J from moments is the paper's J, and its identities hold."""

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from problems import make_objective, make_problem, paper_B, paper_gram, paper_objective, spread
from semfs import Moments
from semfs.method.objective import Objective
from semfs.method.quadratic import Quadratic
from semfs.method.target_rank import reduce_rank


def random_point(seed, d, m):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((d, m)), rng.random(d)


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.floats(0, 100),
    gamma=st.floats(0, 100),
    n=st.integers(8, 40),
    d=st.integers(1, 20),
)
def test_J_from_moments_equals_the_papers_formula(seed, alpha, gamma, n, d):
    X, y, A = make_problem(seed, n=n, d=d)
    W, s = random_point(seed, d, A.shape[1])
    expected = paper_objective(X, y, A, W, s, alpha, gamma)
    rows = make_objective(X, y, A, alpha=alpha, gamma=gamma)
    summed = Objective.from_moments(
        Moments.from_data(X, y).compact(), A, alpha=alpha, gamma=gamma
    )
    assert_allclose(rows.value(W, s), expected, rtol=1e-9)
    assert_allclose(summed.value(W, s), expected, rtol=1e-9)


@pytest.mark.parametrize("alpha", [0.0, 0.7, 10.0])
@pytest.mark.parametrize("kind", ["dense", "sparse", "summed"])
def test_G_B_and_q_are_those_of_the_paper(alpha, kind):
    X, y, A = make_problem()
    data = sp.csr_array(X) if kind == "sparse" else X
    moments = Moments.from_data(data, y)
    moments = moments.compact() if kind == "summed" else moments
    objective = Objective.from_moments(moments, A, alpha=alpha)
    G = paper_gram(X, y, alpha)
    assert_allclose(objective.gram(), G, atol=1e-9)
    assert_allclose(objective.columns(np.array([2, 9])), G[:, [2, 9]], atol=1e-9)
    assert_allclose(objective.diag, np.diag(G))
    assert_allclose(objective.B, paper_B(X, y, A, alpha))
    assert_allclose(objective.q, (1 + alpha) * (A[y] ** 2).sum())


@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_quadratic_of_forward_selection_is_the_objective(fit_intercept):
    X, y, A = make_problem(offset=2.0)
    objective = make_objective(X, y, A, alpha=0.5, gamma=3.0, fit_intercept=fit_intercept)
    quadratic = objective.quadratic()
    G = quadratic.columns(np.arange(12))
    assert_allclose(G, objective.gram(), atol=1e-9)
    assert_allclose(quadratic.diag, np.diag(G))
    W, _ = random_point(1, 12, 3)
    J = quadratic.q + np.sum(W * (G @ W - 2.0 * quadratic.B)) + 3.0 * np.sum(W**2)
    assert_allclose(J, objective.value(W, np.ones(12)))


@pytest.mark.parametrize("fit_intercept", [False, True])
@pytest.mark.parametrize("kind", ["own", "weighted", "others"])
def test_classes_may_count_as_much_as_wished_or_be_others_than_those_of_the_rows(
    kind, fit_intercept
):
    X, y, A = make_problem(offset=2.0)
    rng, moments, weights = np.random.default_rng(1), Moments.from_data(X, y), np.ones(4)
    M, N = moments.means, moments.counts
    options = {"alpha": 0.7, "gamma": 3.0, "fit_intercept": fit_intercept}
    if kind == "others":
        M, N, A = rng.normal(1, 1, (6, 12)), 9 * rng.random(6), rng.standard_normal((6, 3))
        objective = Objective.of_means(moments, M, N, A, **options)
    else:
        weights = np.array([1.0, 2.0, 0.5, 3.0]) if kind == "weighted" else weights
        N = N * weights * 60 / (N @ weights)
        objective = Objective.from_moments(moments, A, class_weight=weights, **options)
    if fit_intercept:
        M, A = M - N @ M / N.sum(), A - N @ A / N.sum()
    within = (X - spread(X, y)).T @ (X - spread(X, y))
    G, B = within + 1.7 * (N * M.T) @ M, 1.7 * (N * M.T) @ A
    assert_allclose(objective.gram(), G, atol=1e-9)
    some = np.array([7, 2, 5])
    assert_allclose(objective.columns(some), G[:, some], atol=1e-9)
    assert_allclose(objective.diag, np.diag(G))
    assert_allclose(objective.B, B, atol=1e-9)
    assert_allclose(objective.q, 1.7 * (N * (A**2).T).sum())
    assert_allclose(objective.within(some), within[np.ix_(some, some)], atol=1e-9)
    from_G = objective.within(some, G[np.ix_(some, some)])
    assert_allclose(from_G, within[np.ix_(some, some)], atol=1e-9)
    gain = (B**2).sum() / (np.diag(G) + 3.0).sum()
    assert_allclose(objective.quadratic().total_marginal_gain, gain)


def test_all_losses_and_penalties_count_1_unless_said_otherwise():
    X, y, A = make_problem()
    W, s = random_point(3, 12, 3)
    expected = paper_objective(X, y, A, W, s, alpha=1.0, gamma=1.0)
    assert_allclose(make_objective(X, y, A).value(W, s), expected)


def test_a_weight_multiplies_J_and_all_gains():
    G, B = np.diag([1.0, 4.0]), np.array([[1.0, 2.0], [3.0, 0.0]])
    quadratic = Quadratic(10.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16)
    assert quadratic.scaled_by(4.0).q == 40.0
    gain = quadratic.total_marginal_gain
    assert_allclose(quadratic.scaled_by(4.0).total_marginal_gain, 4.0 * gain)


def test_without_an_intercept_J_is_that_with_one_and_the_error_of_the_mean():
    X, y, A = make_problem(offset=2.0)
    objective = make_objective(X, y, A, alpha=0.5, gamma=2.0)
    W, s = random_point(2, 12, 3)
    error = A[y].mean(axis=0) - X.mean(axis=0) @ (s[:, None] * W)
    expected = objective.centered().value(W, s) + objective.origin_weight * (error @ error)
    assert_allclose(objective.value(W, s), expected)
    assert objective.origin_weight == 1.5 * 60
    assert objective.centered().origin_weight == 0.0


@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("offset", [1e4, 1e5])
@pytest.mark.parametrize("targets", ["attributes", "labels"])
def test_an_offset_costs_single_precision_no_digits(targets, offset):
    X, y, A = make_problem(n=300, d=20, offset=offset)
    X = X.astype(np.float32)
    options = {"gamma": 0.1, "penalty_scale": "gram", "fit_intercept": True}
    A = A if targets == "attributes" else None
    single = make_objective(X, y, A, **options)
    double = make_objective(X.astype(np.float64), y, A, **options)  # the very same numbers
    assert single.B.dtype == np.float32
    assert_allclose(single.B, double.B, atol=1e-6 * np.abs(double.B).max())
    assert_allclose(single.diag, double.diag, rtol=1e-6)
    some = np.array([3, 7])
    G = double.columns(some)
    assert_allclose(single.columns(some), G, atol=1e-6 * np.abs(G).max())


@pytest.mark.parametrize("kind", ["dense", "sparse"])
@pytest.mark.parametrize("fit_intercept", [False, True])
def test_the_thin_factor_reproduces_G(kind, fit_intercept):
    X, y, A = make_problem(n=10, d=25, offset=1.0)
    w = np.random.default_rng(0).random(10)
    data = sp.csr_array(X) if kind == "sparse" else X
    moments, weights = Moments.from_data(data, y, sample_weight=w), np.array([1.0, 2, 0.5, 3])
    options = {"alpha": 0.5, "fit_intercept": fit_intercept, "class_weight": weights}
    objective = Objective.from_moments(moments, A, **options)
    factor = objective.factor()
    s = np.random.default_rng(1).random(25)
    F = factor.apply(np.eye(25))
    assert_allclose(F.T @ F, objective.gram(), atol=1e-9)
    assert_allclose(factor.adjoint(np.eye(10)), F.T, atol=1e-9)
    assert_allclose(factor.dual_gram(s), (F * s**2) @ F.T, atol=1e-9)
    assert_allclose(factor.adjoint(factor.targets), objective.B, atol=1e-9)


def test_a_large_offset_costs_the_thin_factor_no_digits():
    X, y, A = make_problem(n=10, d=25)
    X = np.round(1024 * X) / 1024  # exact sums, also far away
    near, far = (make_objective(X + c, y, A, fit_intercept=True) for c in (0.0, 2.0**40))
    F, F_far = (objective.factor().apply(np.eye(25)) for objective in (near, far))
    assert_allclose(F_far, F, atol=1e-10)


def test_the_scatter_within_classes_survives_an_alpha_that_drowns_it():
    X, y, A = make_problem()
    objective, some = make_objective(X, y, A, alpha=1e12), np.array([3, 1])
    within = (X - spread(X, y)).T @ (X - spread(X, y))
    found = objective.within(some, objective.gram()[np.ix_(some, some)])
    assert_allclose(found, within[np.ix_(some, some)])


@pytest.mark.usefixtures("small_data_as_large")
def test_the_scatter_within_classes_of_nearly_constant_columns_is_right():
    rng = np.random.default_rng(0)
    X, y, A = make_problem(n=200, d=3)
    X = np.c_[X, 1e6 + 0.3 * rng.standard_normal((200, 2))].astype(np.float32)
    objective = make_objective(X, y, A, fit_intercept=True)
    assert objective.moments.constant().tolist() == [0, 0, 0, 1, 1]
    E = X.astype(np.float64) - spread(X.astype(np.float64), y)
    every = np.arange(5)
    for gram in (None, objective.columns(every)):
        assert_allclose(objective.within(every, gram), E.T @ E, atol=1e-4 * len(y))


def test_the_gram_penalty_is_the_mean_diagonal_of_G():
    X, y, A = make_problem()
    objective = make_objective(X, y, A, alpha=2.0, gamma=0.5, penalty_scale="gram")
    assert_allclose(objective.gamma, 0.5 * np.trace(paper_gram(X, y, 2.0)) / X.shape[1])


@pytest.mark.parametrize("shape, rank", [((5, 30), 2), ((5, 3), 1), ((4, 4), 2), ((9, 2), 1)])
def test_rank_reduction_keeps_all_inner_products(shape, rank):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((shape[0], rank)) @ rng.standard_normal((rank, shape[1]))
    T, V = reduce_rank(A)
    assert T.shape == (shape[0], rank)
    assert_allclose(T @ T.T, A @ A.T, atol=1e-10)
    assert_allclose(V.T @ V, np.eye(rank), atol=1e-12)
    assert_allclose(T @ V.T, A, atol=1e-12)


@pytest.mark.parametrize("shape", [(5, 5), (5, 3), (5, 1)])
def test_a_table_of_full_rank_stays_in_its_own_columns(shape):
    A = np.random.default_rng(0).standard_normal(shape)
    T, V = reduce_rank(A)
    assert T is A
    assert_allclose(V, np.eye(shape[1]))
    assert reduce_rank(np.zeros((3, 4)))[0].shape == (3, 1)


@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_class_means_keep_the_precision_of_the_data(dtype):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 5)).astype(dtype), np.arange(30) % 3
    options = {"penalty_scale": "gram", "fit_intercept": True}
    usual = make_objective(X, y, np.eye(3), gamma=1.0, **options)
    precise = make_objective(X, y, np.eye(3), gamma=1e-9, **options)
    assert (usual.B.dtype, precise.B.dtype) == (dtype, np.float64)
    assert (usual.precise, precise.precise) == (False, True)
    unknown = make_objective(X, y, np.eye(3), gamma=1.0, fit_intercept=True)  # "none"
    assert unknown.B.dtype == np.float64


@pytest.mark.parametrize("kind", ["dense", "sparse", "summed"])
@pytest.mark.parametrize("offset", [0.0, 1e4])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_G_among_a_few_features_is_part_of_its_columns(kind, offset, fit_intercept):
    X, y, A = make_problem()
    X = X + offset
    moments = Moments.from_data(sp.csr_array(X) if kind == "sparse" else X, y)
    moments = moments.compact() if kind == "summed" else moments
    objective = Objective.from_moments(moments, A, alpha=0.5, fit_intercept=fit_intercept)
    features = np.array([1, 2, 4])
    quadratic = objective.quadratic()
    expected = quadratic.columns(features)[features]
    size = np.abs(expected).max()
    assert_allclose(quadratic.among(features), expected, atol=1e-12 * size)


def test_near_copies_among_features_are_those_of_whole_columns():
    X, y, A = make_problem(d=12)
    X[:, 7] = 2.0 * X[:, 3]
    X[:, 9] = 1.0
    objective = Objective.from_moments(Moments.from_data(X, y), A)
    features = np.array([3, 5, 7, 9])
    found = objective.near_copies(0.95).among(features)
    known = objective.near_copies(0.95)
    known.find([3, 5, 7, 9])
    assert {place: copies.tolist() for place, copies in found.items()} == {
        0: [2],
        1: [],
        2: [0],
        3: [],
    }
    again = known.among(features)
    assert {place: copies.tolist() for place, copies in again.items()} == {
        place: copies.tolist() for place, copies in found.items()
    }
