"""SemFS as its users meet it."""

import contextlib
import copy
import os
import pickle
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from problems import make_problem, naive_greedy, spread
from semfs import AS_PUBLISHED, Moments, SemFS, SemFSCV
from semfs.baselines import FSASL, L20ALM, MCFS, LassoSelector
from semfs.rows import open_blocks

SOLVERS = ["direct", "alternating"]


def fit_order(X, y, A, **options):
    return SemFS(5, attributes=A, **options).fit(X, y).order_.tolist()


def named_problem(**options):
    """The same problem with names everywhere."""
    X, y, A = make_problem(**options)
    names = np.array(["ant", "bee", "cat", "dog"])
    frame = pd.DataFrame(X, columns=[f"gene {j}" for j in range(X.shape[1])])
    table = pd.DataFrame(A, index=names, columns=["size", "legs", "fur"])
    return frame, names[y], table


# ---- what is chosen ---------------------------------------------------------------------


@pytest.mark.parametrize("alpha", [0.0, 0.5])
def test_direct_chooses_what_the_naive_greedy_chooses(alpha):
    X, y, A = make_problem(n=80, d=15)
    options = {"penalty_scale": "none", "fit_intercept": False, "class_weight": None}
    options |= {"label_weight": 0.0, "max_correlation": None}
    selector = SemFS(6, attributes=A, alpha=alpha, gamma=2.0, **options).fit(X, y)
    chosen, values = naive_greedy(X, y, A, 6, alpha, 2.0)
    assert selector.order_[:6].tolist() == chosen
    assert_allclose(selector.objective_, values)
    assert selector.get_support(indices=True).tolist() == sorted(chosen)


def test_without_attributes_the_labels_are_the_targets():
    X, y, _ = make_problem()
    labels = SemFS(5).fit(X, y)
    table = SemFS(5, attributes=dict(enumerate(np.eye(5, 4)))).fit(X, y)
    assert labels.order_.tolist() == table.order_.tolist()
    assert_allclose(labels.coef_, table.coef_, atol=1e-10)
    assert labels.attribute_names_in_.tolist() == ["0", "1", "2", "3"]


def test_as_published_is_algorithm_1_with_the_papers_constants():
    X, y, A = make_problem(n=300, d=30)
    selector = SemFS(10, attributes=A, **AS_PUBLISHED).fit(X, y)
    assert (selector.solver, selector.alpha, selector.gamma) == ("alternating", 1.0, 0.1)
    assert (selector.penalty_scale, selector.fit_intercept) == ("none", False)
    assert not selector.intercept_.any()
    Xbar = np.stack([X[y == c].mean(axis=0) for c in range(4)])[y]
    S, W = np.diag(selector.selection_), selector.coef_
    left = S @ (X.T @ X + Xbar.T @ Xbar) @ S @ W + 0.1 * W
    right = S @ (X + Xbar).T @ A[y]
    assert np.linalg.norm(left - right) <= 1e-8 * np.linalg.norm(right)


# ---- invariances ------------------------------------------------------------------------


@settings(max_examples=12, deadline=None)
@given(
    power=st.integers(-150, 150),
    of_table=st.integers(-149, 149),
    solver=st.sampled_from(SOLVERS),
    form=st.sampled_from([np.asarray, sp.csr_array]),
)
def test_the_fit_ignores_the_units_of_x_and_of_the_table(power, of_table, solver, form):
    X, y, A = make_problem(C=9, m=3, n=90, d=30)
    x, a = 10.0**power, 10.0**of_table
    table = np.vstack([A, A[:3] + A[3:6]])  # three unseen classes
    plain = SemFS(5, table, solver=solver).fit(X, y)
    selector = SemFS(5, table * a, solver=solver)
    extreme = max(abs(power), abs(of_table)) > 98
    extreme |= max(abs(power + of_table), abs(power - of_table)) > 138
    if extreme:  # the same order, or a clear refusal
        with contextlib.suppress(ValueError):
            selector.fit(form(X * x), y)
        if not hasattr(selector, "order_"):
            with pytest.raises(ValueError, match="Rescale"):
                selector.fit(form(X * x), y)
            return
    other = selector.fit(form(X * x), y)
    assert other.order_.tolist() == plain.order_.tolist()
    assert_allclose(other.coef_ * x / a, plain.coef_, rtol=1e-6, atol=1e-9)
    assert_allclose(other.objective_ / a**2, plain.objective_)
    assert_array_equal(other.predict(X * x), plain.predict(X))


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("power", [-300, 300])
def test_batches_in_other_units_give_the_same_order(solver, power):
    X, y, A = make_problem(n=90, d=30)
    selector = SemFS(5, A, solver=solver)
    for rows in (slice(0, 40), slice(40, None)):
        selector.partial_fit(X[rows] * 2.0**power, y[rows])
    assert selector.order_.tolist() == SemFS(5, A, solver=solver).fit(X, y).order_.tolist()


@pytest.mark.parametrize("options", [{}, AS_PUBLISHED, {"gamma": 1e-6}])
@pytest.mark.parametrize("sparse", [False, True])
def test_few_values_in_float32_are_fitted_in_float64(options, sparse):
    X, y, A = make_problem(n=60, d=20)
    X = X.astype(np.float32)
    found = SemFS(5, attributes=A, **options).fit(sp.csr_array(X) if sparse else X, y)
    X = X.astype(np.float64)
    expected = SemFS(5, attributes=A, **options).fit(sp.csr_array(X) if sparse else X, y)
    assert_array_equal(found.order_, expected.order_)
    assert_allclose(found.coef_, expected.coef_, rtol=1e-12, atol=1e-14)
    assert_allclose(found.objective_, expected.objective_, rtol=1e-12)


@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("power", [-36, -25, -19, -14, 14, 15, 19, 30, 36])
def test_all_of_float32_is_ranked_alike(solver, power):
    X, y, A = make_problem(n=90, d=30)
    selector = SemFS(5, A, solver=solver)
    plain = selector.fit(X.astype(np.float32), y).order_[:5].tolist()
    assert selector.fit((X * 10.0**power).astype(np.float32), y).order_[:5].tolist() == plain


def test_an_absolute_penalty_ranks_small_numbers_as_an_infinite_one_does():
    X, y, A = make_problem(n=90, d=30)
    limit = np.argsort(-np.linalg.norm(X.T @ A[y], axis=1))[:20]
    published = SemFS(20, A, **AS_PUBLISHED).set_params(max_iter=1)
    for power in (-20, -45):
        assert_array_equal(published.fit(X * 10.0**power, y).order_[:20], limit)
    with pytest.raises(ValueError, match='Use penalty_scale="gram"'):
        published.fit(X * 1e-91, y)


def test_algorithm_1_ranks_large_numbers_by_least_squares_though_s_rounds_to_1():
    X, y, A = make_problem(n=90, d=30)
    stacked = np.vstack([X, spread(X, y)]), np.vstack([A[y], A[y]])
    limit = np.argsort(-np.linalg.norm(np.linalg.lstsq(*stacked)[0], axis=1))
    for power in (5, 9, 45):
        assert_array_equal(SemFS(5, A, **AS_PUBLISHED).fit(X * 10.0**power, y).order_, limit)


@pytest.mark.parametrize(
    "fit",
    [
        lambda X, y, A: SemFS(5, A * 1e160).fit(X, y),
        lambda X, y, A: SemFS(5, A * 1e-170).fit(X, y),
        lambda X, y, A: SemFS(5, A).fit(X * 1e200, y),
        lambda X, y, A: SemFS(5, A).fit([((X * 1e-30).astype(np.float32), y)] * 2),
        lambda X, y, A: SemFS(5, A).fit(open_blocks(X * 1e101, y, block_rows=9, passes="few")),
        lambda X, y, A: SemFS(5, A).partial_fit(X * 2.0**400, y),
        lambda X, y, A: SemFS(5, A).partial_fit(X * 2.0**-400, y),
        lambda X, y, A: SemFSCV(5, A).fit(X * 2.0**400, y),
        lambda X, y, A: SemFSCV(5, A).fit(X * 2.0**-400, y),
        lambda X, y, A: SemFS(5, A * 1e80).fit(X * 1e80, y),
        lambda X, y, A: SemFS(5, A * 1e-80).fit(X * 1e-80, y),
        lambda X, y, A: SemFS(5, A * 1e80).fit(X * 1e-80, y),
    ],
)
def test_numbers_whose_squares_are_lost_are_refused(fit):
    with pytest.raises(ValueError, match="Rescale"):
        fit(*make_problem())


@pytest.mark.parametrize("solver", SOLVERS)
def test_all_kinds_of_input_give_the_same_answer(solver):
    X, y, A = make_problem(n=80)
    expected = SemFS(5, attributes=A, solver=solver).fit(X, y)
    inputs = {
        "fortran": np.asfortranarray(X),
        "csr": sp.csr_array(X),
        "csc": sp.csc_matrix(X),
        "pandas": pd.DataFrame(X),
        "polars": pl.DataFrame(X),
        "list": X.tolist(),
    }
    for kind, data in inputs.items():
        selector = SemFS(5, attributes=A, solver=solver).fit(data, y)
        assert selector.order_.tolist() == expected.order_.tolist(), kind
        assert_allclose(selector.coef_, expected.coef_, atol=1e-8)
    single = SemFS(5, attributes=A, solver=solver).fit(X.astype(np.float32), y)
    assert single.order_[:5].tolist() == expected.order_[:5].tolist()


@pytest.mark.parametrize("solver", SOLVERS)
def test_partial_fit_and_moments_give_the_answer_of_fit(solver):
    X, y, A = make_problem(n=90)
    expected = SemFS(5, attributes=A, solver=solver).fit(X, y)
    pieces = SemFS(5, attributes=A, solver=solver)
    for start in range(0, 90, 30):
        pieces.partial_fit(X[start : start + 30], y[start : start + 30])
    blocks = ((X[a : a + 7], y[a : a + 7]) for a in range(0, 90, 7))
    streamed = SemFS(5, attributes=A, solver=solver).fit_moments(Moments.from_blocks(blocks))
    compact = Moments.from_data(X, y).compact()
    summed = SemFS(5, attributes=A, solver=solver).fit_moments(compact)
    for selector in (pieces, streamed, summed):
        assert selector.order_.tolist() == expected.order_.tolist()
        assert_allclose(selector.coef_, expected.coef_, atol=1e-8)
        assert_allclose(selector.intercept_, expected.intercept_, atol=1e-8)


def test_partial_fit_waits_for_a_second_class_and_keeps_its_own_copy():
    X, y, A = make_problem(n=90)
    order = np.argsort(y, kind="stable")
    X, y = X[order].copy(), y[order]
    selector = SemFS(5, attributes=A)
    first = X[y == 0].copy()
    selector.partial_fit(first, y[y == 0])
    assert not hasattr(selector, "support_")
    first[:] = 0.0
    selector.partial_fit(X[y > 0], y[y > 0])
    assert selector.order_.tolist() == SemFS(5, attributes=A).fit(X, y).order_.tolist()


# ---- weights ----------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_weights_repeat_rows(solver):
    X, y, A = make_problem()
    w = np.random.default_rng(0).integers(0, 3, len(y))
    w[:4] = 1
    rows = np.repeat(np.arange(len(y)), w)
    weighted = SemFS(5, attributes=A, solver=solver).fit(X, y, sample_weight=w)
    repeated = SemFS(5, attributes=A, solver=solver).fit(X[rows], y[rows])
    assert weighted.order_.tolist() == repeated.order_.tolist()
    assert_allclose(weighted.coef_, repeated.coef_, atol=1e-8)


def test_class_weights_multiply_class_means_not_the_scatter_within_classes():
    X, y, A = make_problem(n=90, d=6)
    weights = np.array([0.5, 2.0, 1.0, 3.0])
    options = {"penalty_scale": "none", "gamma": 0.7, "alpha": 0.4}
    selector = SemFS(6, A, class_weight=dict(enumerate(weights)), **options).fit(X, y)
    n = np.bincount(y) * weights
    n *= len(y) / n.sum()
    M, within = np.stack([X[y == c].mean(axis=0) for c in range(4)]), X - spread(X, y)
    M, T = M - n @ M / n.sum(), A - n @ A / n.sum()
    G = within.T @ within + 1.4 * M.T @ (n[:, None] * M)
    B = 1.4 * M.T @ (n[:, None] * T)
    assert_allclose(selector.coef_, np.linalg.solve(G + 0.7 * np.eye(6), B), atol=1e-9)


@pytest.mark.parametrize("solver", SOLVERS)
def test_features_can_be_forced_and_forbidden_by_name_or_index(solver):
    X, y, table = named_problem()
    best = SemFS(3, attributes=table, solver=solver).fit(X, y)
    worst, top = best.order_[-1], best.order_[0]
    limits = {"include": [f"gene {worst}"], "exclude": [int(top)]}
    selector = SemFS(3, attributes=table, solver=solver, **limits).fit(X, y)
    chosen = selector.get_feature_names_out().tolist()
    assert f"gene {worst}" in chosen
    assert f"gene {top}" not in chosen
    assert selector.order_[0] == worst
    assert selector.order_[-1] == top
    assert np.isneginf(selector.scores_[top])


# ---- constant columns and sizes ---------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("value", [0.0, 1.0, 1e4])
def test_constant_columns_rank_last(solver, fit_intercept, value):
    X, y, A = make_problem(d=8)
    X[:, [0, 4]] = value
    selector = SemFS(6, attributes=A, solver=solver, fit_intercept=fit_intercept).fit(X, y)
    assert selector.order_[-2:].tolist() == [0, 4]
    assert not selector.get_support()[[0, 4]].any()


@pytest.mark.parametrize("solver", SOLVERS)
def test_more_features_than_there_are_is_a_warning_and_keeps_all(solver):
    X, y, A = make_problem(d=4)
    with pytest.warns(UserWarning, match="n_features_to_select is 9, greater"):
        selector = SemFS(9, attributes=A, solver=solver).fit(X, y)
    assert selector.get_support().all()
    assert sorted(selector.order_.tolist()) == [0, 1, 2, 3]
    assert sorted(selector.ranking_.tolist()) == [1, 2, 3, 4]


@pytest.mark.parametrize("make", [*(SemFS, SemFSCV, LassoSelector, L20ALM, MCFS, FSASL)])
def test_a_share_of_the_features_is_rounded_down_but_to_one(make):
    X, y, _ = make_problem(d=5)
    assert [make(share).fit(X, y).get_support().sum() for share in (0.5, 0.01)] == [2, 1]
    memory = open_blocks([(X, y)], memory=1)
    assert SemFS(0.5).fit(memory).get_support().sum() == 2


@pytest.mark.parametrize(
    "labels",
    [
        ["a", "b", "c", "d"],
        [(0, 1), (0, 2), (1, 1), (2, 0)],
        [10, 20, 30, 40],
        [2**63, -5, 0, 7],
        [frozenset({1}), frozenset({2}), frozenset({3}), frozenset({1, 2})],
    ],
    ids=["text", "tuples", "integers", "beyond 64 bits", "sets"],
)
def test_labels_may_be_of_any_hashable_type(labels):
    X, y, A = make_problem()
    table = dict(zip(labels, A))
    selector = SemFS(5, attributes=table).fit(X, [labels[c] for c in y])
    assert selector.order_.tolist() == fit_order(X, y, A)
    assert selector.predict(X[:1])[0] in labels


# ---- predictions ------------------------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_predicted_attributes_are_a_ridge_regression_on_the_chosen_columns(solver, kind):
    X, y, A = make_problem(offset=2.0)
    selector = SemFS(5, attributes=A, solver=solver).fit(X, y)
    data = sp.csr_array(X) if kind == "sparse" else X
    Z, M = selector.transform(X), selector.transform(spread(X, y))
    classes = [np.flatnonzero(y == c)[0] for c in range(4)]
    means, within = M[classes], (Z - M).T @ (Z - M) / len(y)
    total = within + np.cov(means.T, bias=True)
    sd, center = np.sqrt(np.diag(total)), means.mean(axis=0)
    H = total / np.outer(sd, sd) + 0.1 * np.eye(5)
    W = np.linalg.solve(H, ((means - center) / sd).T @ (A - A.mean(axis=0)) / 4)
    expected = A.mean(axis=0) + (Z - center) / sd @ W
    assert_allclose(selector.predict_attributes(data), expected, atol=1e-8)


@pytest.mark.parametrize("noise", [0.5, 0.0], ids=["rows differ", "rows of a class are equal"])
def test_unseen_classes_are_recognised_from_their_descriptions(noise):
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 4))
    y = np.repeat(np.arange(12), 40)
    X = np.round(A @ rng.standard_normal((4, 30)))[y] + noise * rng.standard_normal((480, 30))
    seen = y < 8
    selector = SemFS(10, attributes=A, gamma=0.01).fit(X[seen], y[seen])
    assert (selector.predict(X[seen]) == y[seen]).mean() > 0.9
    unseen = {c: A[c] for c in range(8, 12)}
    guesses = selector.predict(X[~seen], class_table=unseen)
    assert np.isfinite(selector.decision_function(X)).all()
    assert set(guesses) <= set(range(8, 12))
    assert (guesses == y[~seen]).mean() > 0.9


def test_a_class_table_with_other_columns_is_refused():
    X, y, A = make_problem()
    selector = SemFS(5, attributes=A).fit(X, y)
    with pytest.raises(ValueError, match="2 attributes, but the selector was fitted with 3"):
        selector.predict(X, class_table={0: [1.0, 2.0]})


@pytest.mark.parametrize("how", [{"gamma": 1e308}, {"solver": "alternating", "step": 1e30}])
def test_scores_that_are_all_alike_are_no_ranking_in_silence(how):
    X, y, A = make_problem()
    with pytest.warns(UserWarning, match="All features have the same score"):
        SemFS(5, A, **how).fit(X, y)


def test_a_column_that_outweighs_all_others_is_named():
    X, y, A = make_problem()
    X[:, 3] = 100.0 * np.arange(len(X))
    with pytest.warns(UserWarning, match="x3 has 100% of the variance"):
        SemFS(5, A).fit(X, y)


@pytest.mark.parametrize(("n_dominant", "d", "warned"), [(2, 12, True), (3, 12, False)])
def test_several_columns_that_outweigh_all_others_are_named(n_dominant, d, warned):
    X, y, A = make_problem(d=d)
    frame = pd.DataFrame(X, columns=[f"size {j}" for j in range(d)])
    for j in range(n_dominant):
        frame[f"size {j}"] *= 100.0
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SemFS(5, A).fit(frame, y)
    messages = [str(one.message) for one in caught if "variance" in str(one.message)]
    assert len(messages) == warned
    if warned:
        assert "together have 100% of the variance" in messages[0]
        assert "size 1" in messages[0]
        assert "size 0" in messages[0]


def _warnings_of_fit(X, y, A):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        SemFS(5, A).fit(X, y)
    return [str(one.message) for one in caught]


@pytest.mark.parametrize(("scale", "warned"), [(1.0, False), (3.0, False), (1000.0, True)])
def test_units_of_many_columns_that_decide_the_selection_are_warned_of(scale, warned):
    X, y, A = make_problem(d=40)
    X[:, ::4] *= scale
    found = [text for text in _warnings_of_fit(X, y, A) if "units may decide" in text]
    assert len(found) == warned
    assert all("10 of 40 features have 100% of the variance" in text for text in found)


@pytest.mark.parametrize("first", [0, 1])
def test_a_column_of_row_numbers_is_named_but_not_ranks(first):
    X, y, A = make_problem(d=40)
    ranks = first + np.argsort(np.argsort(X, axis=0), axis=0)
    assert not [text for text in _warnings_of_fit(ranks, y, A) if "row numbers" in text]
    X[:, 7] = first + np.random.RandomState(0).permutation(len(X))
    (text,) = [text for text in _warnings_of_fit(X, y, A) if "row numbers" in text]
    assert text.startswith("x7:")


def test_text_columns_of_a_frame_are_ignored_and_named_with_labels_apart_or_inside():
    X, y, table = named_problem()
    noted = X.assign(note="re-measured", kind=y)
    with pytest.warns(UserWarning, match="'note'"):
        inside = SemFS(5, table).fit(noted, "kind")
    with pytest.warns(UserWarning, match="'note'"):
        apart = SemFS(5, table).fit(noted.drop(columns="kind"), y)
    plain = SemFS(5, table).fit(X, y)
    for selector in (inside, apart):
        assert selector.feature_names_in_.tolist() == list(X.columns)
        assert_array_equal(selector.order_, plain.order_)
        assert_array_equal(selector.transform(noted), plain.transform(X))
        assert_array_equal(selector.predict(noted), plain.predict(X))


def test_unlabeled_samples_of_weight_0_do_not_matter():
    X, y, _ = make_problem(C=6, n=240)
    y = np.where(y > 3, -1, y)
    odd = np.random.default_rng(1).normal(size=(60, X.shape[1])) * 50.0
    expected = SemFS(5).fit(X, y)
    weights = np.append(np.ones(len(X)), np.zeros(60))
    found = SemFS(5).fit(np.vstack([X, odd]), np.append(y, np.full(60, -1)), weights)
    assert_array_equal(found.order_, expected.order_)
    assert found.n_new_classes_ == expected.n_new_classes_
    assert found.knowledge_ == expected.knowledge_
    seen = y >= 0
    ignored = SemFS(5).fit(X[seen], y[seen])
    with pytest.warns(UserWarning, match="0 samples are too few"):
        found = SemFS(5).fit(X, y, seen.astype(float))
    assert_array_equal(found.order_, ignored.order_)


def test_attributes_of_a_class_table_are_told_by_name_not_by_place():
    X, y, A = make_problem()
    table = pd.DataFrame(A, columns=["size", "wings", "horns"])
    X[:, 0] = 0.0  # a column without spread is chosen too, and says nothing
    selector = SemFS(X.shape[1], table).fit(X, y)
    assert (selector.predict(X) == y).mean() > 0.5
    other = table.set_axis(table.index + 100)
    expected = selector.predict(X, other)
    assert_array_equal(selector.predict(X, other[["horns", "size", "wings"]]), expected)
    with pytest.raises(ValueError, match="no attribute 'horns'"):
        selector.predict(X, other.rename(columns={"horns": "tail"}))


# ---- progress and interruption ----------------------------------------------------------


@pytest.mark.parametrize("solver", SOLVERS)
def test_verbose_prints_a_line_per_step_with_names(solver, capsys):
    X, y, table = named_problem()
    SemFS(3, attributes=table, solver=solver, max_iter=3, tol=0, verbose=1).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3
    assert all(line.startswith("[SemFS]") and "J = " in line for line in lines)
    assert ("+ gene " in lines[0]) == (solver == "direct")


class Watcher:
    """A callback that records a fitted estimator per step and may interrupt or stop."""

    def __init__(self, stop_at=None, error=None):
        self.stop_at, self.error, self.steps = stop_at, error, []

    def setup(self, estimator, context):
        self.setup_done = True

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, fitted_estimator=None):
        if context.parent is None:
            return False
        self.steps.append(fitted_estimator.get_support().sum())
        if len(self.steps) == self.stop_at:
            if self.error is not None:
                raise self.error
            return True
        return False


@pytest.mark.parametrize("solver", SOLVERS)
def test_callbacks_follow_every_step_and_can_stop_the_fit(solver):
    pytest.importorskip("sklearn.callback")  # scikit-learn 1.9
    X, y, A = make_problem()
    watcher = Watcher(stop_at=3)
    selector = SemFS(5, attributes=A, solver=solver, tol=0).set_callbacks(watcher)
    selector.fit(X, y)
    assert len(watcher.steps) == 3
    assert watcher.torn_down
    assert selector.n_iter_ == 3
    plain = SemFS(5, attributes=A, solver=solver, tol=0).fit(X, y)
    assert_allclose(selector.objective_, plain.objective_[:3])


@pytest.mark.parametrize("solver", SOLVERS)
def test_an_interrupted_fit_leaves_the_selector_as_it_was(solver):
    pytest.importorskip("sklearn.callback")  # scikit-learn 1.9
    X, y, A = make_problem()
    selector = SemFS(5, attributes=A, solver=solver, tol=0)
    selector.set_callbacks(Watcher(stop_at=2, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        selector.fit(X, y)
    assert not [name for name in vars(selector) if name.endswith("_")]
    selector.set_callbacks().fit(X, y)
    fitted = {name: value for name, value in vars(selector).items() if name.endswith("_")}
    selector.set_callbacks(Watcher(stop_at=2, error=KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        selector.fit(X[:, :7], y)
    assert all(getattr(selector, name) is value for name, value in fitted.items())
    assert selector.transform(X).shape == (60, 5)


BEFORE_CALLBACKS = """
import sys
import sklearn.linear_model  # newer versions need their callbacks
import semfs.baselines, semfs.evaluation
sys.modules["sklearn.callback"] = None  # as before scikit-learn 1.9
import numpy as np
from semfs import SemFS, SemFSCV
X, y = np.load("X.npy"), np.load("y.npy")
np.save("order.npy", SemFS(5).fit(X, y).order_)
np.save("alternating.npy", SemFS(5, solver="alternating").fit(X, y).order_)
assert SemFSCV(5, param_grid={"gamma": [1.0, 2.0]}, n_repeats=1).fit(X, y).n_features_ == 5
try:
    SemFS().set_callbacks(None)
except ImportError as error:
    print(error)
"""


def test_without_callbacks_of_scikit_learn_fits_are_the_same(tmp_path):
    X, y, _ = make_problem()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    command = [sys.executable, "-c", BEFORE_CALLBACKS]
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "Callbacks require scikit-learn 1.9" in done.stdout
    assert_array_equal(np.load(tmp_path / "order.npy"), SemFS(5).fit(X, y).order_)
    alternating = SemFS(5, solver="alternating").fit(X, y).order_
    assert_array_equal(np.load(tmp_path / "alternating.npy"), alternating)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_coefficients_are_those_of_this_process_and_can_be_copied():
    X, y, A = make_problem(n=60)
    selector = SemFS(3, A).fit(X, y)
    before = selector.coef_.copy()
    child = os.fork()
    if child == 0:
        selector.coef_[:] = 7.0
        os._exit(0)
    os.waitpid(child, 0)
    assert (selector.coef_ == before).all()
    for copied in (copy.deepcopy(selector), pickle.loads(pickle.dumps(selector))):
        copied.coef_ *= 2.0
        assert (selector.coef_ == before).all()
