"""Moments: additive, weighted, sparse or dense, and the same whatever the blocks."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import semfs.rows.threads as threads_module
from problems import make_problem
from semfs import Moments
from semfs.rows.memory import N_SAMPLED


def assert_same_moments(a, b, rtol=1e-9):
    assert a.classes.tolist() == b.classes.tolist()
    assert_allclose(a.counts, b.counts)
    assert_allclose(a.means, b.means, rtol=rtol, atol=rtol)
    assert_allclose(a.gram, b.gram, rtol=rtol, atol=rtol * np.abs(b.gram).max())
    assert_allclose(a.scatter_diag, b.scatter_diag, rtol=rtol, atol=rtol)


def test_moments_are_counts_class_sums_and_gram():
    X, y, _ = make_problem()
    moments = Moments.from_data(X, y)
    assert_allclose(moments.counts, np.bincount(y))
    assert_allclose(moments.means, [X[y == c].mean(axis=0) for c in range(4)])
    assert_allclose(moments.gram, X.T @ X)
    assert_allclose(moments.scatter(), (X - X.mean(0)).T @ (X - X.mean(0)))


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_moments_of_blocks_add_up_to_moments_of_the_whole(kind):
    X, y, _ = make_problem(n=50)
    X = sp.csr_array(X) if kind == "sparse" else X
    whole = Moments.from_data(X, y)
    halves = [Moments.from_data(X[r], y[r]) for r in (slice(0, 20), slice(20, None))]
    assert_same_moments(halves[0] + halves[1], whole)


def test_moments_without_rows_add_up_too():
    X, y, _ = make_problem(n=500, d=5)
    blocks = [(X[r : r + 100], y[r : r + 100]) for r in range(0, 500, 100)]
    parts = [Moments.from_data(*block).compact() for block in blocks]
    # Dense and sparse samples are not kept together: the second block ends the keeping.
    blocks[1] = (sp.csr_array(blocks[1][0]), blocks[1][1])
    for total in (sum(parts[1:], start=parts[0]), Moments.from_blocks(blocks)):
        assert total.rows is None
        assert_same_moments(total, Moments.from_data(X, y))


@settings(max_examples=30, deadline=None)
@given(
    cuts=st.lists(st.integers(1, 199), max_size=6, unique=True), seed=st.integers(0, 2**32 - 1)
)
def test_blocks_of_any_size_give_the_same_moments(cuts, seed):
    X, y, _ = make_problem(seed, n=200, d=4)
    edges = [0, *sorted(cuts), 200]
    blocks = ((X[a:b], y[a:b]) for a, b in itertools.pairwise(edges))
    assert_same_moments(Moments.from_blocks(blocks), Moments.from_data(X, y))


def test_blocks_may_reuse_one_buffer():
    X, y, _ = make_problem(n=90)
    buffer = np.empty((30, X.shape[1]))

    def blocks():
        for start in range(0, 90, 30):
            buffer[:] = X[start : start + 30]
            yield buffer, y[start : start + 30]

    assert_same_moments(Moments.from_blocks(blocks()), Moments.from_data(X, y))


def test_classes_of_blocks_are_united():
    X, _, _ = make_problem(n=6)
    total = Moments.from_blocks([(X[:3], ["b", "b", "d"]), (X[3:], ["a", "d", "d"])])
    assert total.classes.tolist() == ["a", "b", "d"]
    assert_allclose(total.counts, [1, 2, 3])


def test_classes_of_zero_weight_can_be_left_out():
    X = np.random.default_rng(0).random((3, 2))
    moments = Moments.from_data(X, [2, 1, 2], sample_weight=[1.0, 0.0, 2.0])
    assert_allclose(moments.counts, [0, 3])
    assert not moments.means[0].any()
    assert moments.without_empty_classes().classes.tolist() == [2]


def test_integer_weights_repeat_rows_and_zero_weights_drop_them():
    X, y, _ = make_problem(n=40)
    weights = np.random.default_rng(0).integers(0, 4, 40)
    rows = np.repeat(np.arange(40), weights)
    for data in (X, sp.csr_array(X)):
        weighted = Moments.from_data(data, y, sample_weight=weights)
        assert_same_moments(weighted, Moments.from_data(X[rows], y[rows]))


def test_weighted_and_plain_moments_can_be_added():
    X, y, _ = make_problem(n=40)
    total = Moments.from_data(X, y, sample_weight=np.full(40, 2.0)) + Moments.from_data(X, y)
    assert_same_moments(total, Moments.from_data(np.tile(X, (3, 1)), np.tile(y, 3)))


def test_keep_selects_classes():
    X, y, _ = make_problem()
    kept = Moments.from_data(X, y).keep([0, 2])
    rows = np.isin(y, [0, 2])
    assert_same_moments(kept, Moments.from_data(X[rows], y[rows]))


def test_keep_without_rows_says_what_to_do():
    X, y, _ = make_problem(n=200, d=3)
    total = Moments.from_data(X, y).compact()
    with pytest.raises(ValueError, match="one Moments per group of classes"):
        total.keep([0])
    with pytest.raises(ValueError, match="no class 9"):
        total.keep([9])
    assert total.keep(total.classes.tolist()) is total


@pytest.mark.usefixtures("small_data_as_large")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_large_offset_does_not_cost_digits(dtype):
    X, y, _ = make_problem(n=3000, d=5)
    near = Moments.from_data(X, y).scatter()
    far = (X + 1e4).astype(dtype)
    exact = Moments.from_data(far.astype(np.float64) - 1e4, y).scatter()
    for moments in (
        Moments.from_data(far, y),
        Moments.from_blocks((far[a : a + 500], y[a : a + 500]) for a in range(0, 3000, 500)),
        Moments.from_data(far[:1500], y[:1500]).compact()
        + Moments.from_data(far[1500:], y[1500:]).compact(),
    ):
        assert_allclose(moments.scatter(), exact, atol=2e-5 * np.abs(exact).max())
        columns = moments.scatter_columns(np.array([1, 3]))
        assert_allclose(columns, exact[:, [1, 3]], atol=2e-5 * np.abs(exact).max())
    assert_allclose(exact, near, rtol=1e-2, atol=1e-3 * near.max())


@pytest.mark.usefixtures("small_data_as_large")
def test_columns_are_columns_of_the_scatter_matrix():
    X, y, _ = make_problem()
    w = np.random.default_rng(1).random(len(y))
    for data in (X, X.astype(np.float32), sp.csr_array(X)):
        moments = Moments.from_data(data, y, sample_weight=w)
        picked = np.array([5, 0, 7])
        assert_allclose(
            moments.scatter_columns(picked), moments.scatter()[:, picked], atol=2e-4
        )
        assert_allclose(np.diag(moments.scatter()), moments.scatter_diag, rtol=1e-4)


@pytest.mark.usefixtures("small_data_as_large")
def test_columns_of_nearly_constant_features_are_centered_if_they_are_asked_for():
    rng = np.random.default_rng(0)
    X, y, _ = make_problem(n=200, d=3)
    X = np.c_[X, 1e6 + 0.3 * rng.standard_normal(200)].astype(np.float32)
    E = X.astype(np.float64) - X.astype(np.float64).mean(axis=0)
    moments = Moments.from_data(X, y)
    assert moments.constant().tolist() == [0, 0, 0, 1]
    found = moments.scatter_columns(np.array([1, 3]))
    assert_allclose(found, (E.T @ E)[:, [1, 3]], atol=1e-4 * len(y))


def test_class_means_of_small_single_precision_data_have_all_digits():
    X, y, _ = make_problem(n=9, d=18)
    X = X.astype(np.float32)
    found, exact = (Moments.from_data(Z, y) for Z in (X, X.astype(np.float64)))
    assert_allclose(found.means, exact.means, rtol=1e-14)
    assert_allclose(found.scatter_diag, exact.scatter_diag, rtol=1e-14)
    assert found.eps == np.finfo(np.float32).eps


@pytest.mark.parametrize("value", [0.1, 1e6])
def test_samples_of_weight_0_do_not_make_a_constant_column_vary(value):
    X, y, _ = make_problem()
    weights = np.ones(len(y))
    weights[:40] = 0.0
    X[:, 2] = value
    X[:40, 2] = np.random.default_rng(0).standard_normal(40)
    moments = Moments.from_data(X, y, sample_weight=weights)
    assert moments.constant().tolist() == [j == 2 for j in range(12)]
    X[3, 4] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        Moments.from_data(X, y, sample_weight=weights)


@pytest.mark.parametrize("n, tolerance", [(2000, 0.15), (N_SAMPLED, 1e-8)])
def test_a_sample_estimates_the_scatter_within_classes(n, tolerance):
    """Up to rounding, if the sample is all there is."""
    X, y, _ = make_problem(n=n, d=6)
    X[:, 1] += X[:, 0]
    moments = Moments.from_data(X, y)
    E = X - moments.means[y]
    assert_allclose(moments.within_estimate(np.arange(6)), E.T @ E, atol=tolerance * n)


def test_large_data_are_summed_by_threads_to_the_same_result(monkeypatch):
    X, y, _ = make_problem(n=20_000, d=64, C=40)
    assert X.size >= threads_module.PARALLEL_SIZE
    monkeypatch.setattr(threads_module, "n_threads", lambda: 1)
    expected = Moments.from_data(X, y)
    monkeypatch.setattr(threads_module, "n_threads", lambda: 3)
    assert_same_moments(Moments.from_data(X, y), expected)


def test_constant_columns_are_found_whatever_their_value():
    X, y, _ = make_problem(d=5)
    for dtype in (np.float32, np.float64):
        Z = X.astype(dtype)
        Z[:, 1], Z[:, 3] = 0.1, 1e6
        assert Moments.from_data(Z, y).constant().tolist() == [0, 1, 0, 1, 0]


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_non_finite_values_are_refused(bad, kind):
    X, y, _ = make_problem()
    X[3, 4] = bad
    X = sp.csr_array(X) if kind == "sparse" else X
    with pytest.raises(ValueError, match=r"NaN|infinity"):
        Moments.from_data(X, y)


def test_values_whose_squares_overflow_are_refused_by_name():
    X, y, _ = make_problem()
    with pytest.raises(ValueError, match="overflow float32"):
        Moments.from_data((1e25 * X).astype(np.float32), y)


def test_wrong_use_is_one_clear_line():
    X, y, _ = make_problem()
    with pytest.raises(ValueError, match="12 and 3 features"):
        Moments.from_data(X, y) + Moments.from_data(X[:, :3], y)
    with pytest.raises(ValueError, match="no blocks"):
        Moments.from_blocks([])
    with pytest.raises(ValueError, match="must not be negative"):
        Moments.from_data(X, y, sample_weight=np.full(len(y), -1.0))
    with pytest.raises(TypeError):
        Moments.from_data(X, y) + 1
