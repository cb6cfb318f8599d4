"""Predicted means of classes against refitting, and descriptions that say nothing."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import KernelCenterer

from problems import make_described_problem, make_objective
from semfs import Moments, SemFS
from semfs.method.class_means import (
    MeanModel,
    _kernel,
    _leave_one_out,
    unseen_class_problem,
)
from semfs.method.direct import solve_direct


def class_means(X, y):
    return Moments.from_data(X, y).means


def test_errors_of_classes_left_out_are_those_of_refitting():
    X, y, A = make_described_problem(C=9, U=0)
    M = class_means(X, y)
    M -= M.mean(axis=0)
    raw = _kernel(A, A, 1.0)
    for error, penalty in _leave_one_out(KernelCenterer().fit_transform(raw), M @ M.T):
        errors = 0.0
        for i in range(9):
            rest = np.arange(9) != i
            K = raw[np.ix_(rest, rest)]
            mean = M[rest].mean(axis=0)
            ridge = KernelCenterer().fit_transform(K) + penalty * np.eye(8)
            dual = np.linalg.solve(ridge, M[rest] - mean)
            k = raw[i, rest] - raw[i, rest].mean() - K.mean(axis=0) + K.mean()
            errors += ((M[i] - mean - k @ dual) ** 2).sum()
        assert_allclose(error, errors)
    model = MeanModel.fit(A, M)
    total = ((M * 9 / 8) ** 2).sum()  # each class about the mean of the others
    assert_allclose(model.r2, 1 - (model.errors**2).sum() / total)


def test_means_that_are_linear_in_the_attributes_are_predicted():
    rng = np.random.default_rng(0)
    A, loadings = rng.standard_normal((40, 3)), rng.standard_normal((3, 5))
    model = MeanModel.fit(A[:30] + 7.0, A[:30] @ loadings)
    assert model.r2 > 0.99
    assert_allclose(model.predict(A[30:] + 7.0), A[30:] @ loadings, atol=0.1)


def test_class_means_that_repeat_the_description_are_noticed():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 6))
    means = 0.5 * A + 0.05 * rng.standard_normal((12, 6))
    model = MeanModel.fit(A[:9], means[:9], A[:9])
    assert_allclose(model.slope, 0.5, atol=0.05)
    assert_allclose(model.predict(A[9:], A[9:]), means[9:], atol=0.3)
    assert MeanModel.fit(A[:9], means[:9], rng.standard_normal((9, 6))).slope == 0.0


# ---- descriptions that are alike -------------------------------------------------------


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("C", [2, 9])
@pytest.mark.parametrize("size", [1e-6, 1.0, 1e6])
@pytest.mark.parametrize("difference", [0.0, 1e-12, 1e-9, 5e-9])
def test_seen_classes_described_alike_are_predicted_by_their_mean(difference, size, C):
    rng = np.random.default_rng(0)
    means = rng.standard_normal((C, 4))
    A = size * (1.0 + difference * rng.standard_normal((C, 3)))
    unseen = size * rng.standard_normal((2, 3))
    for same, unseen_same in ((None, None), (A[:, [0, 1, 2, 0]], unseen[:, [0, 1, 2, 0]])):
        model = MeanModel.fit(A, means, same)
        assert_allclose(model.predict(unseen, unseen_same), [means.mean(axis=0)] * 2)
        # a class that is left out is predicted by the mean of the others
        assert_allclose(model.errors, (means - means.mean(axis=0)) * C / (C - 1))
        assert_allclose(model.r2, 0.0, atol=1e-12)


def test_an_attribute_that_says_nothing_changes_nothing():
    rng = np.random.default_rng(0)
    A, means = rng.standard_normal((12, 3)), rng.standard_normal((12, 5))
    noise = np.column_stack([A, 1.0 + 1e-10 * rng.standard_normal(12)])
    unseen = rng.standard_normal((2, 4))
    expected = MeanModel.fit(A, means).predict(unseen[:, :3])
    assert_allclose(MeanModel.fit(noise, means).predict(unseen), expected)


@pytest.mark.parametrize("k", [2, 4])
@pytest.mark.parametrize("difference", [0.0, 1e-9])
def test_classes_described_alike_do_not_hand_all_samples_to_the_unseen_class(difference, k):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.standard_normal((100, 5)) + 3 * y[:, None]
    table = {0: [1.0, 0], 1: [1 + difference, 0], 2: [0, 1]}
    selector = SemFS(k, attributes=table, label_weight=1.0).fit(X, y)
    assert np.isfinite(selector.decision_function(X)).all()
    assert np.mean(selector.predict(X) == y) > 0.8


# ---- the problem of the unseen classes -------------------------------------------------


def test_problems_over_the_same_samples_share_passes_over_X(monkeypatch):
    X, y, A = make_described_problem()
    objective = make_objective(X, y, A[:18], gamma=1.0, penalty_scale="gram")
    passes = []
    rows = type(objective.moments.rows)
    original = rows.gram_columns

    def counted(self, columns, *args, **kwargs):
        passes.append(columns)
        return original(self, columns, *args, **kwargs)

    monkeypatch.setattr(rows, "gram_columns", counted)
    problem, r2, note = unseen_class_problem(objective, A[:18], A[18:])
    assert r2 > 0.5
    assert note.startswith("used")
    solve_direct([objective.quadratic(), problem], 9)
    assert len(passes) == 1


def test_both_problems_count_the_same_in_a_first_step():
    X, y, A = make_described_problem()
    objective = make_objective(X, y, A[:18], gamma=1.0, penalty_scale="gram")
    problem, _, _ = unseen_class_problem(objective, A[:18], A[18:])
    gains = objective.quadratic().total_marginal_gain, problem.total_marginal_gain
    assert_allclose(*gains)


def test_unseen_classes_described_alike_are_not_used():
    X, y, A = make_described_problem()
    objective = make_objective(X, y, A[:18])
    problem, _, note = unseen_class_problem(objective, A[:18], A[[18, 18, 18]])
    assert problem is None
    assert note == "not used: these classes have the same description"
    table = A.copy()
    table[18:] = A[18]
    plain = SemFS(5, attributes=A[:18]).fit(X, y)
    assert_array_equal(SemFS(5, attributes=table).fit(X, y).order_, plain.order_)


def test_of_kernels_that_predict_equally_well_the_first_is_taken_whatever_the_layout():
    # all kernels agree on an attribute of two values; they differ on a third one
    for seed in range(20):
        rng = np.random.default_rng(seed)
        A = rng.integers(0, 2, (40, 1)).astype(float)
        means = rng.normal(size=(40, 5)) + A
        third = np.array([[0.4]])
        expected = MeanModel.fit(A, means).predict(third)
        again = MeanModel.fit(A, np.asfortranarray(means)).predict(third)
        assert_allclose(again, expected, rtol=1e-9)
