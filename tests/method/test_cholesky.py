"""The partial Cholesky factorization against numpy's, and columns that are predicted."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from semfs.method.cholesky import PivotedCholesky
from semfs.method.columns import ColumnCache
from semfs.method.prefetch import best_feature, predict_columns, promising_features


def make_factor(n_select=6, d=8, r=3, gamma=0.5):
    rng = np.random.default_rng(0)
    F = rng.standard_normal((20, d))
    G, B = F.T @ F, rng.standard_normal((d, r))
    return G, B, PivotedCholesky(B, np.diag(G), gamma, n_select)


def enter(factor, G, features):
    selected = np.zeros(len(G), dtype=bool)
    for j in features:
        selected[j] = True
        factor.enter(j, G[:, j], selected)


def test_it_is_the_cholesky_factor_in_the_order_of_entry():
    G, B, factor = make_factor()
    S = np.array([5, 1, 7])
    enter(factor, G, S)
    K = G[np.ix_(S, S)] + 0.5 * np.eye(3)
    assert_allclose(factor.L[S], np.linalg.cholesky(K), atol=1e-12)
    assert_allclose(factor.L[S] @ factor.Q, B[S])
    assert_allclose(factor.weights(S), np.linalg.solve(K, B[S])[np.argsort(S)])


@pytest.mark.parametrize("gamma", [0.5, 0.0])
def test_features_that_enter_together_leave_what_they_leave_one_by_one(gamma):
    G, _, factor = make_factor(gamma=gamma)
    _, _, one_by_one = make_factor(gamma=gamma)
    S = np.array([5, 1, 7])
    gains = []
    selected = np.zeros(8, dtype=bool)
    for j in S:
        gains.append(one_by_one.gains()[j])
        selected[j] = True
        one_by_one.enter(j, G[:, j], selected)
    L_rows, Q = factor.steps_of(S, G[S])
    factor.enter_all(L_rows, Q)
    for name in ("L", "Q", "pivots", "squared_norms"):
        assert_allclose(getattr(factor, name), getattr(one_by_one, name), atol=1e-10)
    assert_allclose((Q**2).sum(axis=1), gains)
    assert_allclose(factor.gains()[~selected], one_by_one.gains()[~selected])


def test_features_that_depend_on_each_other_do_not_enter_together():
    G, _, factor = make_factor(gamma=0.0)
    copy = G[[5, 5]]
    assert factor.steps_of(np.array([5, 5]), copy) is None


def test_gains_are_decreases_of_J():
    G, B, factor = make_factor()
    enter(factor, G, [5, 1])

    def fit(S):
        return np.sum(B[S] * np.linalg.solve(G[np.ix_(S, S)] + 0.5 * np.eye(len(S)), B[S]))

    for j in (0, 2, 3, 4, 6, 7):
        assert_allclose(factor.gains()[j], fit([5, 1, j]) - fit([5, 1]))


def test_updated_norms_are_those_of_recomputed_residuals():
    G, _, factor = make_factor()
    enter(factor, G, [5, 1, 2])
    updated = factor.squared_norms.copy()
    factor.refresh()
    assert_allclose(factor.squared_norms, updated, atol=1e-12)
    assert_allclose(factor.squared_norms, (factor.R**2).sum(axis=1))


def test_a_restricted_copy_goes_on_as_the_whole_does():
    G, _, factor = make_factor()
    enter(factor, G, [5, 1])
    features = np.array([1, 2, 5, 6])
    part = factor.restricted_to(features, 2)
    before = factor.gains().copy()
    part.enter(3, G[np.ix_(features, [6])].ravel(), np.ones(4, dtype=bool))
    assert_allclose(factor.gains(), before)  # the original is not changed
    enter(factor, G, [6])
    assert_allclose(part.gains()[1], factor.gains()[2])
    assert_allclose(part.L, factor.L[features])


# ---- Gram columns ----------------------------------------------------------------------


def test_columns_are_fetched_in_one_batch_and_none_twice():
    G = np.arange(25.0).reshape(5, 5)
    G += G.T
    requests = []

    def fetch(features):
        requests.append(features.tolist())
        return G[:, features]

    cache = ColumnCache(fetch)
    cache.fetch([3, 1])
    assert_allclose(cache.stacked([1, 4, 3]), G[:, [1, 4, 3]])
    assert_allclose(cache.among(np.array([4, 1])), G[np.ix_([4, 1], [4, 1])])
    assert cache.among(np.zeros(0, dtype=int)).shape == (0, 0)
    assert requests == [[3, 1], [4]]
    assert 3 in cache
    assert 0 not in cache


# ---- prediction of columns -------------------------------------------------------------


def predict(G, B, n_steps, *, selected=(), forced=(), gamma=0.5):
    d = len(G)
    factor = PivotedCholesky(B, np.diag(G), gamma, n_steps)
    masks = [np.isin(np.arange(d), features) for features in (selected, forced)]
    found = predict_columns([factor], [G], *masks, n_steps, 1e-16)
    return np.flatnonzero(found).tolist()


def test_the_columns_of_a_search_on_the_estimate_are_predicted():
    assert predict(np.eye(5), np.array([[1.0], [5.0], [2.0], [4.0], [3.0]]), 2) == [1, 3]


def test_rivals_that_are_nearly_as_good_are_predicted_too():
    assert predict(np.eye(4), np.array([[5.0], [1.0], [4.98], [2.0]]), 1) == [0, 2]


def test_forced_features_are_predicted_first_and_selected_ones_never():
    B = np.array([[5.0], [1.0], [4.0], [0.5]])
    assert predict(np.eye(4), B, 1, forced=[3]) == [0, 3]  # 0 is the best of all
    assert predict(np.eye(4), B, 2, selected=[0]) == [1, 2]
    assert predict(np.eye(4), B, 9) == [0, 1, 2, 3]


@pytest.mark.parametrize("penalty_dominates, most", [(True, 512), (False, 768)])
def test_estimates_are_about_the_features_of_largest_gain(penalty_dominates, most):
    priority = np.random.default_rng(0).permutation(1000).astype(float)
    priority[:300] = -1.0
    found = promising_features(priority, penalty_dominates=penalty_dominates)
    expected = np.flatnonzero(priority >= max(0.0, np.sort(priority)[-most]))
    assert found.tolist() == expected.tolist()


def test_of_gains_equal_up_to_rounding_the_first_is_best():
    assert best_feature(np.array([0.5, 1.0, 1.0 + 1e-15]), 2.2e-16) == 1
    assert best_feature(np.array([0.5, 1.0, 1.001]), 2.2e-16) == 2
    assert best_feature(np.array([-1.0, 0.0, 0.0]), 2.2e-16) == 1
