"""Every baseline keeps the selectors' contract; options and failures of each."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ttest_ind
from sklearn.base import clone
from sklearn.linear_model import lars_path
from sklearn.utils.estimator_checks import parametrize_with_checks

from semfs import baselines
from semfs.baselines import (
    FSASL,
    L20ALM,
    MCFS,
    BetweenClassSelector,
    LassoSelector,
    Markers,
    WkNN,
    mcfs,
)
from semfs.baselines.base import standardize_columns
from semfs.baselines.fsasl import exact_code, lasso_codes, row_sparse_ridge
from semfs.baselines.mcfs import lars_to_cardinality
from semfs.baselines.simple import welch_statistics

VARIANCE, RANDOM = baselines.VarianceSelector(3), baselines.RandomSelector(3, random_state=0)
SPARSE = [RANDOM, VARIANCE, Markers(3), BetweenClassSelector(3)]
UNSUPERVISED = [*SPARSE[:2], MCFS(3), FSASL(3, n_components=2, max_iter=2)]
BY_ATTRIBUTES = [LassoSelector(3), L20ALM(3), WkNN(3, max_iter=50)]
ALL = [*UNSUPERVISED, *SPARSE[2:], *BY_ATTRIBUTES]
IN_UNITS_OF_X = [MCFS(3), FSASL(3), *(s(3, standardize=False) for s in (LassoSelector, L20ALM))]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


def name_of(selector):
    return type(selector).__name__


each = pytest.mark.parametrize("selector", ALL, ids=name_of)


def blobs(seed=0, n=40, d=8, n_classes=4):
    """Rows around class centers; the last two columns are constant."""
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
    if selector in UNSUPERVISED:
        assert_array_equal(clone(selector).fit(X).scores_, fitted.scores_)
    if selector in BY_ATTRIBUTES:
        table = clone(selector).set_params(attributes=np.eye(4)).fit(X, y)
        assert_allclose(table.scores_, fitted.scores_, atol=1e-9)
    if selector in SPARSE:
        assert_allclose(clone(selector).fit(sp.csc_array(X), y).scores_, fitted.scores_)
    with pytest.raises(ValueError, match=r"columns of X are constant.*nothing to rank"):
        clone(selector).fit(np.ones((6, 3)), [0, 1] * 3)


@pytest.mark.parametrize("selector", [*SPARSE, *BY_ATTRIBUTES, *IN_UNITS_OF_X], ids=name_of)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
@pytest.mark.parametrize("scale", [1e-30, 1e20])
def test_large_and_small_x_gives_the_same_order_or_a_clear_error(selector, kind, scale):
    X, y = blobs()
    scaled = (scale * X).astype(kind)
    if selector in IN_UNITS_OF_X:
        with pytest.raises(ValueError, match=r"largest value of X is .*Rescale X"):
            clone(selector).fit(scaled, y)
    else:
        order = clone(selector).fit(X, y).order_
        assert_array_equal(clone(selector).fit(scaled, y).order_[:2], order[:2])
        if selector in SPARSE:
            sparse = clone(selector).fit(sp.csr_array(scaled), y)
            assert_array_equal(sparse.order_[:2], order[:2])
        with pytest.raises(ValueError, match=r"largest value of X is .*Rescale X"):
            clone(selector).fit(X * 1e200, y)


@pytest.mark.parametrize(
    "selector, message",
    [
        (MCFS(weight="cosine"), "weight must be 'heat' or 'binary', got 'cosine'"),
        (FSASL(ratio=0), "ratio must be above 0"),
        (FSASL(max_samples=1), "max_samples must be at least 2"),
        (LassoSelector(lam=0), "lam must be above 0"),
        (LassoSelector(tol=-1.0), "tol must be a number of at least 0"),
        (L20ALM(init="ones"), "init must be 'zero', 'ridge', 'random', or a pair"),
        (L20ALM(init=3), "got 3"),
        (L20ALM(init=(np.zeros((2, 2)), np.zeros((2, 2)))), "of shapes"),
        (L20ALM(rho=0.9), "rho must be a number of at least 1"),
        (WkNN(batch_size=1), "batch_size must be at least 2"),
        (WkNN(loss="ce", attributes=3 * np.eye(4)), "between 0 and 1"),
        (baselines.VarianceSelector(0), "n_features_to_select must be at least 1"),
    ],
    ids=str,
)
def test_wrong_options_are_named_with_what_is_allowed(selector, message):
    with pytest.raises(ValueError, match=message):
        selector.fit(*blobs())


def test_a_graph_in_pieces_is_embedded_by_its_pieces_largest_first():
    islands = np.repeat([[0.0, 0, 0, 0], [90, 0, 0, 0], [0, 90, 0, 0]], [8, 12, 10], axis=0)
    X = islands + np.random.default_rng(0).normal(size=(30, 4))
    with pytest.warns(UserWarning, match="3 components"):
        selector = MCFS(2, n_components=2, weight="binary").fit(X)
    first = selector.embedding_[:, 0]
    assert_allclose(selector.eigenvalues_, 1.0)
    # the largest island (rows 8 to 19) against the rest
    assert np.ptp(first[8:20]) < 1e-12
    assert np.ptp(np.delete(first, np.arange(8, 20))) < 1e-12
    assert first[8] * first[0] < 0


def test_sparse_and_dense_eigensolvers_agree():
    X = np.random.default_rng(0).normal(size=(300, 5))
    W = mcfs.neighbor_graph(*mcfs.nearest_neighbors(X, 6), 1.0)
    dense, values = mcfs.spectral_embedding(W, 4)
    sparse, sparse_values = mcfs.spectral_embedding(W, 4, dense_limit=10)
    assert_allclose(sparse_values, values, atol=1e-8)
    assert_allclose(np.abs(sparse), np.abs(dense), atol=1e-5)


def test_equal_distances_go_to_the_lower_index_and_never_to_the_row_itself():
    X = np.array([[0.0], [1.0], [-1.0], [1.0], [5.0]])
    _, index = mcfs.nearest_neighbors(X, 2)
    assert index[0].tolist() == [1, 2]
    _, index = mcfs.nearest_neighbors(np.zeros((9, 2)), 3)
    assert (index != np.arange(9)[:, None]).all()


def test_the_path_goes_on_after_a_feature_has_left():
    rng = np.random.default_rng(10)
    X, y = rng.integers(-3, 4, size=(5, 4)), rng.integers(-3, 4, size=5)
    sizes = np.count_nonzero(lars_path(X.astype(float), y, method="lasso")[2], axis=0)
    assert sizes.tolist() == [0, 1, 2, 3, 4, 3, 4]
    beta = lars_to_cardinality(X.T @ X, X.T @ y, 4)  # the ridge moves it a little
    assert_allclose(beta, np.linalg.lstsq(X, y)[0], rtol=0.05)


def test_the_path_stops_at_the_cardinality():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    for m in range(1, 7):
        assert np.count_nonzero(lars_to_cardinality(X.T @ X, X.T @ y, m)) == m


@pytest.mark.parametrize("ratio", [0.5, 0.01, 0.001])
@pytest.mark.parametrize(
    "Z",
    [
        np.random.default_rng(0).normal(size=(40, 6)),
        1.0 * np.random.default_rng(19).integers(0, 3, (60, 4)),
        np.eye(9, 12)[:, 2:],
    ],
    ids=["normal", "many ties", "one zero row, others orthogonal"],
)
def test_exact_codes_satisfy_the_optimality_conditions(Z, ratio):
    S = lasso_codes(Z, ratio, exact_code)
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


def test_lasso_with_too_few_rows_appends_by_residual_correlation():
    X, y = blobs()
    with pytest.warns(UserWarning, match="Only 0 features have a nonzero coefficient"):
        selector = LassoSelector(3, lam=1e6).fit(X, y)
    Z, _, _ = standardize_columns(X)
    T = np.eye(4)[y] - np.eye(4)[y].mean(axis=0)
    strongest = np.argsort(-np.abs(Z.T @ T).max(axis=1), kind="stable")
    assert_array_equal(selector.order_[:6], strongest[:6])


def test_lasso_says_when_it_has_not_converged_and_a_wide_gap_still_ranks():
    X, y = blobs()
    with pytest.warns(UserWarning, match="duality gap"):
        LassoSelector(3, lam=0.01, max_iter=2).fit(X, y)
    exact, quick = LassoSelector(3).fit(X, y), LassoSelector(3, tol=1e-4).fit(X.astype("f4"), y)
    assert_allclose(quick.coef_, exact.coef_, atol=1e-2)


def test_l20alm_coefficients_predict_on_raw_columns():
    X, y = blobs()
    selector = L20ALM(3).fit(X, y)
    assert L20ALM(6).fit(X, y).n_iter_ < 150  # six columns vary: nothing is left to change
    residuals = X @ selector.coef_ + selector.intercept_ - np.eye(4)[y]
    assert np.linalg.norm(residuals, axis=1).sum() == pytest.approx(selector.objective_[-1])
    assert np.count_nonzero(selector.coef_.any(axis=1)) == 3


def test_wknn_ranks_features_of_weight_zero_by_the_slope_of_the_loss():
    X, y = blobs()
    with pytest.warns(UserWarning, match="All weights became 0"):
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


def test_fsasl_takes_a_seeded_sample_and_stops_when_the_selection_settles():
    X, _ = blobs(n=60)
    few = [FSASL(3, max_samples=20, max_iter=2, random_state=r).fit(X) for r in (0, 0, 1)]
    assert_array_equal(few[0].scores_, few[1].scores_)
    assert not np.array_equal(few[0].scores_, few[2].scores_)
    settled = FSASL(3, n_components=4, n_iter_no_change=2).fit(X)
    assert len(settled.objective_) == settled.n_iter_ < 20


@pytest.mark.parametrize("init", ["zero", "ridge", "random"])
def test_l20alm_path_gives_exactly_k_features_for_each_k(init):
    X, y = blobs(d=12)
    fitted = L20ALM(init=init).path(X, y, [10, 2, 4])
    assert [np.count_nonzero(one.coef_.any(axis=1)) for one in fitted] == [10, 2, 4]


def cells(seed=0, n=60, d=15, n_classes=4):
    """Counts, many of them 0, with classes of uneven size; the last column is constant."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, n_classes, n) * rng.integers(0, 2, n))
    X = rng.poisson(rng.uniform(0.2, 3.0, size=(n_classes, d))[y]).astype(float)
    X[:, -1] = 2.0
    return X, np.array(["b", "a", "d", "c"])[y]


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_classes_take_turns_in_sorted_order(kind):
    X, y = cells()
    fitted = Markers(5).fit(kind(X), y)
    turns = np.argsort(-fitted.statistics_[:, :-1], axis=1, kind="stable").T.ravel()
    assert fitted.order_.tolist() == [*dict.fromkeys(turns.tolist()), 14]
    assert_array_equal(fitted.classes_, ["a", "b", "c", "d"])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_statistics_are_welchs_also_beside_a_large_offset(offset):
    X, y = cells()
    _, codes = np.unique(y, return_inverse=True)
    found = welch_statistics(X[:, :-1] + offset, codes)
    for c in range(4):
        expected = ttest_ind(X[codes == c, :-1], X[codes != c, :-1], equal_var=False).statistic
        assert_allclose(found[c], expected, rtol=1e-7)


def test_features_without_variance_on_either_side_have_a_finite_statistic():
    X, y = cells()
    X[:, 0] = y == "a"
    fitted = Markers(5).fit(X, y)
    assert fitted.order_[0] == 0
    assert np.isfinite(fitted.statistics_).all()


@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array])
def test_between_class_variance_is_that_of_the_class_means_each_class_once(kind):
    X, y = cells()
    means = [X[y == label].mean(axis=0) for label in "abcd"]
    fitted = BetweenClassSelector(5).fit(kind(X), y)
    assert_allclose(fitted.scores_[:-1], np.var(means, axis=0)[:-1], rtol=1e-12)
    # Unlike ANOVA F, it does not divide by the spread within the classes.
    assert_allclose(BetweenClassSelector(5).fit(2 * X, y).scores_, 4 * fitted.scores_)


def test_between_class_variance_of_one_class_is_refused():
    with pytest.raises(ValueError, match="only one class, but BetweenClassSelector"):
        BetweenClassSelector(2).fit(blobs()[0], np.zeros(40))


@pytest.mark.parametrize("selector", BY_ATTRIBUTES, ids=name_of)
def test_attributes_beyond_floating_point_are_refused(selector):
    huge = 1e200 * np.random.default_rng(0).normal(size=(4, 3))
    with pytest.raises(ValueError, match=r"too large to be squared\. Rescale"):
        clone(selector).set_params(attributes=huge).fit(*blobs())


@pytest.mark.parametrize("method", [MCFS, FSASL])
def test_distances_that_are_lost_in_rounding_are_named(method):
    with pytest.raises(ValueError, match=r"lost to rounding.*Center X"):
        method(1).fit([[1e8], [1e8 + 1]])


def test_an_ill_conditioned_ridge_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted = FSASL(1).fit([[1e8, 0.0], [1e8 + 1, 0.0], [1e8 + 2, 1e-9]])
    assert np.isfinite(fitted.scores_).all()
    assert sorted(fitted.order_) == [0, 1]


def test_l20alm_path_gives_what_single_fits_give():
    rng = np.random.RandomState(0)
    X = rng.normal(size=(30, 8))
    y = np.arange(30) % 3
    for k, fitted in zip((2, 5), L20ALM().path(X, y, (2, 5))):
        alone = L20ALM(k).fit(X, y)
        assert fitted.scores_.tolist() == alone.scores_.tolist()
        assert not hasattr(fitted, "_prepared")
