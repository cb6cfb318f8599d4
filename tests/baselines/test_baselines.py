"""Every baseline keeps the selectors' contract; options and failures of each."""

from unittest.mock import Mock

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ttest_ind
from sklearn.base import clone
from sklearn.linear_model import lars_path
from sklearn.utils.estimator_checks import parametrize_with_checks

from semfs.baselines import (
    FSASL,
    L20ALM,
    MCFS,
    LassoSelector,
    Markers,
    RandomSelector,
    VarianceSelector,
    WkNN,
    graph,
    lasso,
    wknn,
)
from semfs.baselines.base import Baseline, standardize_columns
from semfs.baselines.fsasl import exact_codes, row_sparse_ridge
from semfs.baselines.mcfs import lars_to_cardinality
from semfs.baselines.simple import welch_statistics

SPARSE = [RandomSelector(3, random_state=0), VarianceSelector(3), Markers(3)]
UNSUPERVISED = [*SPARSE[:2], MCFS(3), FSASL(3, n_components=2, max_iter=2)]
BY_ATTRIBUTES = [LassoSelector(3), L20ALM(3), WkNN(3, max_iter=50)]
ALL = [*UNSUPERVISED, Markers(3), *BY_ATTRIBUTES]
IN_UNITS_OF_X = [MCFS(3), FSASL(3), *(s(3, standardize=False) for s in (LassoSelector, L20ALM))]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def name_of(selector):
    return type(selector).__name__


each = pytest.mark.parametrize("selector", ALL, ids=name_of)
each_by_attributes = pytest.mark.parametrize("selector", BY_ATTRIBUTES, ids=name_of)


def blobs(seed=0, n=40, d=8, n_classes=4):
    """Rows around class centres; the last two columns are constant."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = 2.0 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
    X[:, -2:] = 0.0, 3.0
    return X, y


@parametrize_with_checks(ALL)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@each
def test_ranking_is_total_and_repeatable_with_constant_columns_last(selector):
    X, y = blobs()
    fitted, again = clone(selector).fit(X, y), clone(selector).fit(X, y)
    assert_array_equal(fitted.scores_, again.scores_)
    assert_array_equal(fitted.order_, np.argsort(-fitted.scores_, kind="stable"))
    assert_array_equal(fitted.ranking_[fitted.order_], np.arange(1, 9))
    assert_array_equal(np.flatnonzero(fitted.get_support()), np.sort(fitted.order_[:3]))
    assert_array_equal(np.isneginf(fitted.scores_), np.arange(8) >= 6)


@pytest.mark.parametrize("selector", UNSUPERVISED, ids=name_of)
def test_unsupervised_selectors_ignore_y(selector):
    X, y = blobs()
    with_y, without = clone(selector).fit(X, y), clone(selector).fit(X)
    assert_array_equal(with_y.scores_, without.scores_)


@each_by_attributes
def test_one_hot_attributes_are_the_labels(selector):
    X, y = blobs()
    labels = clone(selector).fit(X, y)
    table = clone(selector).set_params(attributes=np.eye(4)).fit(X, y)
    assert_allclose(labels.scores_, table.scores_, atol=1e-9)


@pytest.mark.parametrize("selector", SPARSE, ids=name_of)
def test_cheap_selectors_take_sparse_input(selector):
    X, y = blobs()
    X = np.where(np.abs(X) < 1, 0, X)
    dense = clone(selector).fit(X, y)
    for kind in (sp.csr_array, sp.csc_array):
        assert_allclose(clone(selector).fit(kind(X), y).scores_, dense.scores_)


@pytest.mark.parametrize("selector", [*SPARSE, *BY_ATTRIBUTES, *IN_UNITS_OF_X], ids=name_of)
@pytest.mark.parametrize("scale", [1e-150, 1e-60, 1e-20, 1e15, 1e20, 1e60, 1e150])
def test_extreme_scales_give_the_same_order_or_a_clear_error(selector, scale):
    X, y = blobs()
    if selector in IN_UNITS_OF_X:
        with pytest.raises(ValueError, match=r"in the units of X.*Rescale X"):
            clone(selector).fit(scale * X, y)
    else:
        expected = clone(selector).fit(X, y).order_
        assert_array_equal(clone(selector).fit(scale * X, y).order_, expected)


@pytest.mark.parametrize("selector", [*SPARSE, *BY_ATTRIBUTES], ids=name_of)
@pytest.mark.parametrize("scale", [1e-30, 1e-4, 1e4, 1e30])
def test_float32_beyond_its_squares_ranks_as_at_home(selector, scale):
    X, y = blobs()
    expected = clone(selector).fit(X, y).order_[:2]
    scaled = (scale * X).astype(np.float32)
    kinds = [np.asarray, sp.csr_array] if selector in SPARSE else [np.asarray]
    for kind in kinds:
        assert_array_equal(clone(selector).fit(kind(scaled), y).order_[:2], expected)


@pytest.mark.parametrize("selector", [LassoSelector(3), L20ALM(3)], ids=name_of)
def test_coefficients_are_for_x_as_it_was_given(selector):
    X, y = blobs()
    near, far = clone(selector).fit(X, y), clone(selector).fit(2.0**100 * X, y)
    assert_allclose(far.coef_ * 2.0**100, near.coef_, rtol=1e-12)
    assert_allclose(far.intercept_, near.intercept_, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_variances_beyond_floating_point_are_refused(scale):
    with pytest.raises(ValueError, match=r"VarianceSelector .*Rescale X"):
        VarianceSelector(3).fit(scale * blobs()[0])


@pytest.mark.parametrize("width", [1e-200, 1e200, 1e308])
def test_mcfs_bears_any_heat_width(width):
    X, _ = blobs()
    fitted = MCFS(3, heat_width=width).fit(X)
    assert np.isfinite(fitted.scores_[:6]).all()
    if width > 1:
        assert_array_equal(fitted.order_, MCFS(3, weight="binary").fit(X).order_)


@pytest.mark.parametrize(
    "selector, message",
    [
        (MCFS(weight="cosine"), "weight must be 'heat' or 'binary', got 'cosine'"),
        (FSASL(ratio=1.0), "ratio must be below 1"),
        (FSASL(max_samples=1), "max_samples must be at least 2"),
        (LassoSelector(lam=0), "lam must be above 0"),
        (LassoSelector(tol=-1.0), "tol must be a number of at least 0"),
        (L20ALM(init="ones"), "init must be 'zero' or 'ridge' or 'random'"),
        (L20ALM(init=3), "or a pair of arrays"),
        (L20ALM(init=(np.zeros((2, 2)), np.zeros((2, 2)))), "of shapes"),
        (L20ALM(rho=0.9), "rho must be a number of at least 1"),
        (WkNN(batch_size=1), "batch_size must be at least 2"),
        (WkNN(loss="ce", attributes=3 * np.eye(4)), "between 0 and 1"),
        (VarianceSelector(0), "n_features_to_select must be at least 1"),
    ],
    ids=str,
)
def test_wrong_options_are_named_with_what_is_allowed(selector, message):
    with pytest.raises(ValueError, match=message):
        selector.fit(*blobs())


@each
def test_nothing_but_constant_columns_is_refused(selector):
    with pytest.raises(ValueError, match="constant"):
        clone(selector).fit(np.ones((6, 3)), [0, 1] * 3)


def three_islands():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0, 0, 0], [90, 0, 0, 0], [0, 90, 0, 0]])
    return np.repeat(centres, [8, 12, 10], axis=0) + rng.normal(size=(30, 4))


def test_a_graph_in_pieces_is_embedded_by_its_pieces_largest_first():
    with pytest.warns(UserWarning, match="3 components"):
        selector = MCFS(2, n_components=2, weight="binary").fit(three_islands())
    first = selector.embedding_[:, 0]
    assert_allclose(selector.eigenvalues_, 1.0)
    # the largest island (rows 8 to 19) against the rest
    assert np.ptp(first[8:20]) < 1e-12
    assert np.ptp(np.delete(first, np.arange(8, 20))) < 1e-12
    assert first[8] * first[0] < 0


def test_sparse_and_dense_eigensolvers_agree(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 5))
    W = graph.neighbor_graph(*graph.nearest_neighbors(X, 6), 1.0)
    dense, values = graph.spectral_embedding(W, 4)
    monkeypatch.setattr(graph, "DENSE_LIMIT", 10)
    sparse, sparse_values = graph.spectral_embedding(W, 4)
    assert_allclose(sparse_values, values, atol=1e-8)
    assert_allclose(np.abs(sparse), np.abs(dense), atol=1e-5)


def test_equal_distances_go_to_the_lower_index_and_never_to_the_row_itself():
    X = np.array([[0.0], [1.0], [-1.0], [1.0], [5.0]])
    _, index = graph.nearest_neighbors(X, 2)
    assert index[0].tolist() == [1, 2]
    _, index = graph.nearest_neighbors(np.zeros((9, 2)), 3)
    assert (index != np.arange(9)[:, None]).all()


def test_the_path_goes_on_after_a_feature_has_left():
    rng = np.random.default_rng(10)
    X, y = rng.integers(-3, 4, size=(5, 4)), rng.integers(-3, 4, size=5)
    sizes = np.count_nonzero(lars_path(X.astype(float), y, method="lasso")[2], axis=0)
    assert sizes.tolist() == [0, 1, 2, 3, 4, 3, 4]
    beta = lars_to_cardinality(X.T @ X, X.T @ y, 4)  # the ridge moves it a little
    assert_allclose(beta, np.linalg.lstsq(X, y)[0], rtol=0.05)


def test_the_path_stops_at_the_cardinality_or_at_its_end():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    for m in range(1, 7):
        assert np.count_nonzero(lars_to_cardinality(X.T @ X, X.T @ y, m)) == m
    few = X[:3]
    assert np.isfinite(lars_to_cardinality(few.T @ few, few.T @ y[:3], 6)).all()
    twice = np.hstack([X, X]) * 1e7  # the ridge is lost in rounding
    assert np.isfinite(lars_to_cardinality(twice.T @ twice, twice.T @ y, 12)).all()


def lattice(seed=0):
    """Few distinct rows, many of them repeated: ties everywhere."""
    return np.random.default_rng(seed).integers(0, 3, size=(60, 4)).astype(float)


@pytest.mark.parametrize("ratio", [0.5, 0.05, 0.001])
@pytest.mark.parametrize(
    "Z",
    [np.random.default_rng(0).normal(size=(40, 6)), lattice(), np.eye(9, 12)[:, 2:]],
    ids=["normal", "lattice", "one zero row, others orthogonal"],
)
def test_exact_codes_satisfy_the_optimality_conditions(Z, ratio):
    S = exact_codes(Z, ratio)
    B = Z @ Z.T
    gradient = B - B @ S
    off = np.where(np.eye(len(Z), dtype=bool), 0, B)
    lam = ratio * np.abs(off).max(axis=0)
    np.fill_diagonal(gradient, 0.0)
    assert (np.abs(gradient) <= lam * (1 + 1e-6)).all()
    assert_allclose((gradient - lam * np.sign(S))[np.abs(S) > 1e-9], 0, atol=1e-8)
    assert not S.diagonal().any()


@pytest.mark.parametrize("n", [30, 80])
def test_row_sparse_ridge_is_the_same_in_gram_and_in_dual_form(n):
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(n, 50)), rng.normal(size=(n, 3))
    delta = np.ones(50)
    for _ in range(10):
        W = np.linalg.solve(X.T @ X + 0.5 * np.diag(delta), X.T @ T)
        delta = 1 / (2 * np.sqrt((W**2).sum(axis=1) + 2.2e-16))
    assert_allclose(row_sparse_ridge(X, T, 0.5), W, atol=1e-8)


def test_fsasl_stops_when_the_selection_settles():
    X, _ = blobs(n=60)
    settled = FSASL(3, n_components=4, n_iter_no_change=2).fit(X)
    assert settled.n_iter_ < 20
    assert len(settled.objective_) == settled.n_iter_
    assert FSASL(3, n_components=4).fit(X).n_iter_ == 20


def test_lasso_with_too_few_rows_appends_by_residual_correlation():
    X, y = blobs()
    with pytest.warns(UserWarning, match="Only 0 features have a non-zero coefficient"):
        selector = LassoSelector(3, lam=1e6).fit(X, y)
    Z, _, _ = standardize_columns(X)
    T = np.eye(4)[y] - np.eye(4)[y].mean(axis=0)
    strongest = np.argsort(-np.abs(Z.T @ T).max(axis=1), kind="stable")
    assert_array_equal(selector.order_[:6], strongest[:6])


def test_lasso_of_many_coefficients_stops_at_a_gap_that_still_ranks(monkeypatch):
    X, y = blobs()
    exact = LassoSelector(3).fit(X, y)
    monkeypatch.setattr(lasso, "MANY_COEFFICIENTS", 1)
    assert_allclose(LassoSelector(3).fit(X.astype(np.float32), y).coef_, exact.coef_, atol=1e-2)


def test_lasso_says_when_it_has_not_converged():
    with pytest.warns(UserWarning, match="duality gap"):
        LassoSelector(3, lam=0.01, max_iter=2).fit(*blobs())


def test_the_large_scale_step_majorises():
    X = np.random.default_rng(0).normal(size=(700, 600)) * np.linspace(0.1, 10, 600)
    D = lasso.majorizer(X.T @ X)
    assert np.linalg.eigvalsh(np.diag(D) - X.T @ X)[0] > 0


def test_l20alm_coefficients_predict_on_raw_columns():
    X, y = blobs()
    selector = L20ALM(3).fit(X, y)
    residuals = X @ selector.coef_ + selector.intercept_ - np.eye(4)[y]
    assert np.linalg.norm(residuals, axis=1).sum() == pytest.approx(selector.objective_[-1])
    assert np.count_nonzero(selector.coef_.any(axis=1)) == 3


def test_l20alm_stops_when_the_support_settles():
    X, y = blobs()
    assert L20ALM(6).fit(X, y).n_iter_ < 150  # six columns vary: nothing is left to change
    assert L20ALM(6, tol=0).fit(X, y).n_iter_ == 150


def test_wknn_ranks_features_of_weight_zero_by_the_slope_of_the_loss():
    X, y = blobs()
    with pytest.warns(UserWarning, match="drove all weights to 0"):
        selector = WkNN(3, lambda1=100.0).fit(X, y)
    assert not selector.weights_.any()
    assert len(np.unique(selector.scores_[:6])) == 6


def test_wknn_by_batches_finds_the_informative_columns():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 10)
    X = rng.normal(size=(300, 20))
    X[:, :4] += 3 * rng.normal(size=(30, 4))[y]
    selector = WkNN(4, batch_size=64, max_iter=200).fit(X, y)
    assert set(selector.order_[:4].tolist()) == {0, 1, 2, 3}


def test_wknn_uses_batches_for_many_samples_and_says_so(monkeypatch):
    monkeypatch.setattr(wknn, "LARGEST_FULL_BATCH", 30)
    monkeypatch.setattr(wknn, "DEFAULT_BATCH", 20)
    with pytest.warns(UserWarning, match="mini-batches of 20"):
        WkNN(3, max_iter=5).fit(*blobs())


@pytest.mark.parametrize("selector", BY_ATTRIBUTES + UNSUPERVISED, ids=name_of)
def test_ctrl_c_leaves_an_estimator_as_it_was(selector, monkeypatch):
    X, y = blobs()
    fitted = clone(selector).fit(X, y)
    before = dict(vars(fitted))
    monkeypatch.setattr(Baseline, "_rank", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        fitted.fit(X[:, :5], y)
    assert all(vars(fitted)[name] is before[name] for name in vars(fitted) | before)


@pytest.mark.parametrize("selector", [MCFS(3), FSASL(3), L20ALM(3), WkNN(3)], ids=name_of)
def test_long_fits_show_their_progress(selector, capsys):
    clone(selector).set_params(verbose=1).fit(*blobs())
    assert capsys.readouterr().err.startswith(f"{name_of(selector)} ")


def test_fsasl_on_a_sample_of_the_rows_is_seeded():
    first, again, other = (FSASL(3, max_samples=20, random_state=seed) for seed in (0, 0, 1))
    X, _ = blobs()
    assert_array_equal(first.fit(X).scores_, again.fit(X).scores_)
    assert not np.array_equal(first.scores_, other.fit(X).scores_)


def test_a_failing_eigensolver_gives_what_it_found_and_says_so(monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, 1))  # a long chain: tiny gaps
    monkeypatch.setattr(graph, "DENSE_LIMIT", 10)
    monkeypatch.setattr(graph, "LANCZOS_RESTARTS", 1)
    with (
        pytest.warns(UserWarning, match="Only . of 4 eigenvectors"),
        pytest.raises(ValueError, match="no coordinate to explain"),
    ):
        MCFS(1, n_components=4, n_neighbors=40, heat_width=0.1).fit(X)


@pytest.mark.parametrize("init", ["zero", "ridge", "random"])
def test_l20alm_path_gives_the_separate_fits(init):
    X, y = blobs(d=12)
    ks = [10, 2, 4, 2]
    fitted = L20ALM(init=init).path(X, y, ks)
    alone = [L20ALM(k, init=init).fit(X, y) for k in ks]
    assert [one.n_features_to_select for one in fitted] == ks
    assert_allclose([one.scores_ for one in fitted], [one.scores_ for one in alone])


def cells(seed=0, n=60, d=15, n_classes=4):
    """Counts, many of them 0, with classes of uneven size; the last column is constant."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, n_classes, n) * rng.integers(0, 2, n))
    X = rng.poisson(rng.uniform(0.2, 3.0, size=(n_classes, d))[y]).astype(float)
    X[:, -1] = 2.0
    return X, np.array(["b", "a", "d", "c"])[y]


def in_turns(X, y):
    """The definition, written out."""
    tops = []
    for label in sorted(set(y.tolist())):
        t = ttest_ind(X[y == label], X[y != label], equal_var=False).statistic
        tops.append(np.argsort(-t, kind="stable").tolist())
    return list(dict.fromkeys(j for places in zip(*tops) for j in places))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
def test_classes_take_turns_in_sorted_order(kind, seed):
    X, y = cells(seed)
    fitted = Markers(5).fit(kind(X), y)
    assert fitted.order_.tolist() == [*in_turns(X[:, :-1], y), 14]
    assert_array_equal(fitted.classes_, ["a", "b", "c", "d"])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_statistics_are_welchs_also_beside_a_large_offset(offset):
    X, y = cells()
    _, codes = np.unique(y, return_inverse=True)
    found = welch_statistics(X[:, :-1] + offset, codes)
    for c in range(4):
        expected = ttest_ind(X[codes == c, :-1], X[codes != c, :-1], equal_var=False).statistic
        assert_allclose(found[c], expected, rtol=1e-9)


def test_features_without_variance_on_either_side_have_a_finite_statistic():
    X, y = cells()
    X[:, 0] = y == "a"
    fitted = Markers(5).fit(X, y)
    assert fitted.order_[0] == 0
    assert np.isfinite(fitted.statistics_).all()


def test_a_singular_matrix_is_explained(monkeypatch):
    monkeypatch.setattr(MCFS, "_scores", Mock(side_effect=np.linalg.LinAlgError("minor")))
    with pytest.raises(ValueError, match=r"MCFS met a singular matrix \(minor\).*Rescale X"):
        MCFS(3).fit(blobs()[0])


@each_by_attributes
def test_attributes_beyond_floating_point_are_refused(selector):
    huge = 1e200 * np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match="too large to be squared"):
        clone(selector).set_params(attributes=huge).fit(*blobs())
