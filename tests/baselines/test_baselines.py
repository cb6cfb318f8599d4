"""Every baseline keeps the selectors' contract; options and failures of each."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse.linalg import lobpcg
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import Lasso, MultiTaskLasso, RidgeClassifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks
from sklearn.utils.validation import check_is_fitted

from semfs.baselines import (
    FSASL,
    L20ALM,
    MCFS,
    LassoSelector,
    RandomSelector,
    VarianceSelector,
    WkNN,
    alm,
    codes,
    graph,
    sparse_regression,
    structure,
    supervised,
    unsupervised,
    voting,
    wknn,
)
from semfs.baselines.codes import exact_codes, lasso_paths
from semfs.baselines.fitting import break_ties, gram_matrix, standardize_columns
from semfs.baselines.lars import lars_to_cardinality
from semfs.baselines.voting import class_balanced_batches, vote_gradient
from semfs.progress import Progress

UNSUPERVISED = [
    RandomSelector(3, random_state=0),
    VarianceSelector(3),
    MCFS(3),
    FSASL(3, max_iter=5),
]
SUPERVISED = [LassoSelector(3), L20ALM(3), WkNN(3, max_iter=50)]
ALL = UNSUPERVISED + SUPERVISED
quiet = pytest.mark.filterwarnings("ignore::UserWarning")


def name_of(selector):
    return type(selector).__name__


each = pytest.mark.parametrize("selector", ALL, ids=name_of)
each_supervised = pytest.mark.parametrize("selector", SUPERVISED, ids=name_of)


def blobs(seed=0, n=40, d=8, n_classes=4):
    """Rows around class centres; the last two columns are constant."""
    rng = np.random.default_rng(seed)
    y = np.arange(n) % n_classes
    X = 2.0 * rng.normal(size=(n_classes, d))[y] + rng.normal(size=(n, d))
    X[:, -2:] = 0.0, 3.0
    return X, y


# --- the common contract ------------------------------------------------------------------


@quiet
@parametrize_with_checks(ALL)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


@quiet
@each
def test_ranking_is_total_and_consistent(selector):
    X, y = blobs()
    fitted = clone(selector).fit(X, y)
    assert_array_equal(fitted.order_, np.argsort(-fitted.scores_, kind="stable"))
    assert_array_equal(fitted.ranking_[fitted.order_], np.arange(1, 9))
    assert_array_equal(np.flatnonzero(fitted.get_support()), np.sort(fitted.order_[:3]))


@quiet
@each
def test_constant_columns_come_last(selector):
    X, y = blobs()
    fitted = clone(selector).fit(X, y)
    assert_array_equal(np.isneginf(fitted.scores_), np.arange(8) >= 6)


@quiet
@each
def test_inputs_are_not_modified(selector):
    X, y = blobs()
    X_before, y_before = X.copy(), y.copy()
    X.flags.writeable = y.flags.writeable = False
    clone(selector).fit(X, y)
    assert_array_equal(X, X_before)
    assert_array_equal(y, y_before)


@quiet
@each
def test_the_same_call_gives_the_same_ranking(selector):
    X, y = blobs()
    first, second = (clone(selector).fit(X, y).scores_ for _ in range(2))
    assert_array_equal(first, second)


@quiet
@pytest.mark.parametrize("selector", [s for s in ALL if name_of(s) != "L20ALM"], ids=name_of)
def test_float32_ranks_as_float64(selector):
    X, y = blobs()
    wide = clone(selector).fit(X, y)
    narrow = clone(selector).fit(X.astype(np.float32), y)
    assert_array_equal(wide.order_[:3], narrow.order_[:3])


@quiet
@pytest.mark.parametrize("selector", UNSUPERVISED, ids=name_of)
def test_unsupervised_selectors_ignore_y(selector):
    X, y = blobs()
    with_y, without = clone(selector).fit(X, y), clone(selector).fit(X)
    assert_array_equal(with_y.scores_, without.scores_)


@quiet
@each_supervised
def test_one_hot_attributes_are_the_labels(selector):
    X, y = blobs()
    labels = clone(selector).fit(X, y)
    table = clone(selector).set_params(attributes=np.eye(4)).fit(X, y)
    assert_allclose(labels.scores_, table.scores_, atol=1e-9)


@quiet
@each_supervised
def test_attributes_may_be_a_mapping_from_text_labels(selector):
    X, y = blobs()
    A = np.random.default_rng(1).uniform(size=(4, 3))
    by_row = clone(selector).set_params(attributes=A).fit(X, y)
    table = {f"class {i}": A[i] for i in range(4)}
    by_name = clone(selector).set_params(attributes=table).fit(X, [f"class {i}" for i in y])
    assert_allclose(by_row.scores_, by_name.scores_, atol=1e-12)


@pytest.mark.parametrize("selector", [RandomSelector(3, random_state=0), VarianceSelector(3)])
def test_cheap_selectors_take_sparse_input(selector):
    X, _ = blobs()
    X = np.where(np.abs(X) < 1, 0, X)
    dense = clone(selector).fit(X)
    for kind in (sp.csr_array, sp.csc_array):
        assert_allclose(clone(selector).fit(kind(X)).scores_, dense.scores_)


# --- bad input ----------------------------------------------------------------------------


@each
def test_missing_values_are_refused(selector):
    X, y = blobs()
    X[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        clone(selector).fit(X, y)


@each
@pytest.mark.parametrize("k, error", [(0, ValueError), (-1, ValueError), (2.5, TypeError)])
def test_a_silly_number_of_features_is_refused(selector, k, error):
    with pytest.raises(error, match="n_features_to_select"):
        clone(selector).set_params(n_features_to_select=k).fit(*blobs())


@each
def test_more_features_than_there_are_warns_and_keeps_all(selector):
    with pytest.warns(UserWarning, match="n_features_to_select=20 is greater"):
        fitted = clone(selector).set_params(n_features_to_select=20).fit(*blobs())
    assert fitted.get_support().all()


@each_supervised
def test_a_class_without_attributes_is_named(selector):
    X, y = blobs()
    with pytest.raises(ValueError, match="no row for class 3"):
        clone(selector).set_params(attributes=np.eye(3)).fit(X, y)


@each_supervised
def test_too_few_labels_are_refused(selector):
    X, y = blobs()
    with pytest.raises(ValueError, match="40 rows but y has 39 labels"):
        clone(selector).fit(X, y[:-1])


@each_supervised
def test_missing_labels_are_refused(selector):
    with pytest.raises(ValueError, match="requires y"):
        clone(selector).fit(blobs()[0], None)


@pytest.mark.parametrize(
    "selector, message",
    [
        (MCFS(weight="cosine"), "weight must be 'heat' or 'binary', got 'cosine'"),
        (FSASL(inner="fast"), "inner must be 'exact' or 'reference'"),
        (FSASL(mu=1), "mu must be 'initial' or 'adaptive'"),
        (FSASL(inner="reference", candidates=5), "candidates is for inner='exact' only"),
        (FSASL(ratio=1.0), "ratio must be below 1"),
        (LassoSelector(penalty="l2"), "penalty must be 'l1' or 'l21'"),
        (LassoSelector(row_norm="l0"), "row_norm must be 'l2' or 'l1' or 'max'"),
        (LassoSelector(lam=0), "lam must be above 0"),
        (L20ALM(init="ones"), "init must be 'zero' or 'ridge' or 'random'"),
        (L20ALM(init=3), "or a pair of arrays"),
        (L20ALM(init=(np.zeros((2, 2)), np.zeros((2, 2)))), "of shapes"),
        (L20ALM(rho=0.9), "rho must be a number of at least 1"),
        (WkNN(kernel="linear"), "kernel must be 'rbf' or 'exp'"),
        (WkNN(loss="hinge"), "loss must be 'mse' or 'mae' or 'huber' or 'ce'"),
        (WkNN(batch_size=1), "batch_size must be at least 2"),
        (WkNN(loss="ce", attributes=3 * np.eye(4)), "between 0 and 1"),
    ],
    ids=str,
)
def test_wrong_options_are_named_with_what_is_allowed(selector, message):
    with pytest.raises(ValueError, match=message):
        selector.fit(*blobs())


def test_an_option_of_the_wrong_type_is_refused():
    with pytest.raises(TypeError, match="n_components must be a whole number"):
        MCFS(n_components="many").fit(blobs()[0])


@pytest.mark.parametrize("selector", ALL[2:], ids=name_of)
def test_nothing_but_constant_columns_is_refused(selector):
    with pytest.raises(ValueError, match="constant"):
        clone(selector).fit(np.ones((6, 3)), [0, 1] * 3)


# --- interruption and progress ------------------------------------------------------------

INNER = [
    (MCFS(3), unsupervised, "spectral_embedding"),
    (FSASL(3, max_iter=5), structure, "smallest_eigenvectors"),
    (LassoSelector(3), supervised, "sparse_regression"),
    (L20ALM(3), supervised, "alternate"),
    (WkNN(3, max_iter=5), wknn, "descend"),
]


def interrupt(*args, **kwargs):
    raise KeyboardInterrupt


@quiet
@pytest.mark.parametrize("selector, module, inner", INNER, ids=lambda v: str(v)[:12])
def test_ctrl_c_leaves_an_unfitted_estimator(selector, module, inner, monkeypatch):
    X, y = blobs()
    selector = clone(selector)
    with monkeypatch.context() as patch:
        patch.setattr(module, inner, interrupt)
        with pytest.raises(KeyboardInterrupt):
            selector.fit(X, y)
    with pytest.raises(NotFittedError):
        check_is_fitted(selector)


@quiet
@pytest.mark.parametrize("selector, module, inner", INNER, ids=lambda v: str(v)[:12])
def test_ctrl_c_in_a_refit_leaves_the_earlier_fit_whole(selector, module, inner, monkeypatch):
    X, y = blobs()
    selector = clone(selector).fit(X, y)
    before = dict(vars(selector))
    with monkeypatch.context() as patch:
        patch.setattr(module, inner, interrupt)
        with pytest.raises(KeyboardInterrupt):
            selector.fit(X[:, :5], y)
    assert vars(selector).keys() == before.keys()
    assert all(vars(selector)[name] is before[name] for name in before)
    assert selector.transform(X).shape == (40, 3)


@quiet
@pytest.mark.parametrize("selector", ALL[2:], ids=name_of)
def test_verbose_reports_on_stderr_only(selector, capsys):
    clone(selector).set_params(verbose=1).fit(*blobs())
    out, err = capsys.readouterr()
    assert out == ""
    assert name_of(selector) in err


def test_progress_draws_a_bar_on_a_terminal(monkeypatch, capsys):
    pytest.importorskip("rich")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    with Progress("rounds", 2, verbose=1) as progress:
        progress.step("half")
        progress.step("done")
    assert "rounds" in capsys.readouterr().err


# --- shared pieces ------------------------------------------------------------------------


def test_ties_at_zero_are_broken_below_every_other_score():
    scores = break_ties(np.array([0.0, 2.0, 0.0, 0.0]), np.array([1.0, 0.0, 5.0, 1.0]))
    assert np.argsort(-scores, kind="stable").tolist() == [1, 2, 0, 3]
    assert scores[0] == scores[3] < 0
    assert np.abs(scores[[0, 2, 3]]).max() <= 1e-10


def test_standardised_columns_have_unit_variance_and_constant_ones_are_left_at_zero():
    Z, offset, scale = standardize_columns(blobs()[0])
    assert_allclose(Z.std(axis=0), [1] * 6 + [0] * 2, atol=1e-12)
    assert offset[-1] == 3.0
    assert_array_equal(scale[-2:], 1.0)


def test_gram_matrix_of_float32_is_summed_in_float64():
    X = np.random.default_rng(0).normal(size=(5000, 3)).astype(np.float32)
    exact = X.astype(np.float64).T @ X.astype(np.float64)
    assert_allclose(gram_matrix(X, block=100), exact, rtol=1e-6, atol=1e-3)


# --- MCFS ---------------------------------------------------------------------------------


def three_islands():
    rng = np.random.default_rng(0)
    centres = np.array([[0.0, 0, 0, 0], [90, 0, 0, 0], [0, 90, 0, 0]])
    sizes = [8, 12, 10]
    return np.repeat(centres, sizes, axis=0) + rng.normal(size=(30, 4)), sizes


def test_a_graph_in_pieces_is_embedded_by_its_pieces_largest_first():
    X, _ = three_islands()
    with pytest.warns(UserWarning, match="3 components"):
        selector = MCFS(2, n_components=2, weight="binary").fit(X)
    first = selector.embedding_[:, 0]
    assert_allclose(selector.eigenvalues_, 1.0)
    # the largest island (rows 8 to 19) against the rest
    assert np.ptp(first[8:20]) < 1e-12
    assert np.ptp(np.delete(first, np.arange(8, 20))) < 1e-12
    assert first[8] * first[0] < 0


def test_the_embedding_of_a_graph_in_pieces_is_orthonormal_and_orthogonal_to_constants():
    X, _ = three_islands()
    W = graph.neighbor_graph(*graph.nearest_neighbors(X, 4), 3.0)
    with pytest.warns(UserWarning, match="components"):
        embedding, values = graph.spectral_embedding(W, 5)
    degrees = np.asarray(W.sum(axis=1)).ravel()
    assert_allclose(embedding.T @ (degrees[:, None] * embedding), np.eye(5), atol=1e-10)
    assert_allclose(degrees @ embedding, 0, atol=1e-9)
    assert (np.diff(values) <= 1e-12).all()


# which of Lanczos, shift-invert and LOBPCG does the work
SOLVERS = {
    "Lanczos": {},
    "shift-invert": {"LANCZOS_RESTARTS": 1},
    "LOBPCG": {"LANCZOS_RESTARTS": 1, "FACTOR_LIMIT": 10},
}


@pytest.mark.parametrize("limits", SOLVERS.values(), ids=SOLVERS)
def test_sparse_and_dense_eigensolvers_agree(limits, monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 5))
    W = graph.neighbor_graph(*graph.nearest_neighbors(X, 6), 1.0)
    dense, values = graph.spectral_embedding(W, 4)
    monkeypatch.setattr(graph, "DENSE_LIMIT", 10)
    for name, value in limits.items():
        monkeypatch.setattr(graph, name, value)
    sparse, sparse_values = graph.spectral_embedding(W, 4)
    assert_allclose(sparse_values, values, atol=1e-8)
    assert_allclose(np.abs(sparse), np.abs(dense), atol=1e-5)


def test_a_failing_eigensolver_gives_an_approximation_and_says_so(monkeypatch):
    X = np.random.default_rng(0).normal(size=(400, 1))  # a long chain: tiny gaps
    W = graph.neighbor_graph(*graph.nearest_neighbors(X, 40), 0.1)
    for name, value in {"DENSE_LIMIT": 10, "FACTOR_LIMIT": 10, "LANCZOS_RESTARTS": 1}.items():
        monkeypatch.setattr(graph, name, value)
    monkeypatch.setattr(graph, "lobpcg", lambda *a, **k: lobpcg(*a, **{**k, "maxiter": 2}))
    with pytest.warns(UserWarning, match="are approximate"):
        embedding, _ = graph.spectral_embedding(W, 4)
    assert embedding.shape == (400, 4)
    assert np.isfinite(embedding).all()


def test_pieces_coupled_by_less_than_rounding_count_as_components():
    A = np.ones((4, 4)) - np.eye(4)
    W = np.block([[A, np.zeros((4, 4))], [np.zeros((4, 4)), A]])
    W[3, 4] = W[4, 3] = 1e-30
    labels, q = graph._components_by_size(sp.csr_array(W))
    assert q == 2
    assert labels.tolist() == [0] * 4 + [1] * 4


def test_a_row_that_only_leads_away_belongs_to_where_it_leads():
    W = np.zeros((5, 5))
    W[0, 1] = W[3, 4] = 1.0  # two pairs, and row 2 that is tied to both, closer to the second
    W[2, 1], W[2, 3] = 1e-40, 3e-40
    labels, q = graph._components_by_size(sp.csr_array(W + W.T))
    assert q == 2
    assert labels.tolist() == [1, 1, 0, 0, 0]


def test_a_narrow_heat_kernel_on_many_rows_is_embedded_quickly(monkeypatch):
    X = np.random.default_rng(0).normal(size=(1500, 20))
    with pytest.warns(UserWarning, match="components"):
        narrow = MCFS(5, n_components=3, heat_width=0.1).fit(X)
    with pytest.warns(UserWarning, match="components"):
        assert_array_equal(MCFS(5, n_components=3, heat_width=0.1).fit(X).order_, narrow.order_)


def test_equal_distances_go_to_the_lower_index():
    X = np.array([[0.0], [1.0], [-1.0], [1.0], [5.0]])
    _, index = graph.nearest_neighbors(X, 2)
    assert index[0].tolist() == [1, 2]


def test_duplicates_are_not_their_own_neighbours():
    _, index = graph.nearest_neighbors(np.zeros((9, 2)), 3)
    assert (index != np.arange(9)[:, None]).all()


def test_a_vanishing_heat_width_still_gives_a_ranking():
    X, _ = blobs()
    with pytest.warns(UserWarning, match="components"):
        narrow = MCFS(3, heat_width=1e-3).fit(three_islands()[0])
    assert np.isfinite(narrow.scores_).all()
    assert np.isfinite(MCFS(3, heat_width=1e-3, n_neighbors=20).fit(X).scores_[:6]).all()


def test_the_path_stops_at_the_cardinality_or_at_its_end():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 6)), rng.normal(size=30)
    for m in range(1, 7):
        assert np.count_nonzero(lars_to_cardinality(X.T @ X, X.T @ y, m)) == m
    few = X[:3]
    assert np.isfinite(lars_to_cardinality(few.T @ few, few.T @ y[:3], 6)).all()


# --- FSASL --------------------------------------------------------------------------------


def test_the_lasso_paths_end_at_scikit_learns_lasso():
    rng = np.random.default_rng(0)
    X = np.hstack([rng.normal(size=(10, 20)), np.zeros((10, 1))])
    X[:, 5] = X[:, 3]  # a duplicate
    Y = np.column_stack([rng.normal(size=10), X[:, 3], np.zeros(10), rng.normal(size=10)])
    same, own = X.T, np.repeat(X.T[None], 4, axis=0)
    for atoms in (same, own):
        problem, atom, value = lasso_paths(atoms, Y.T, 0.05)
        ours = np.zeros((21, 4))
        ours[atom, problem] = value
        assert not ours[:, 2].any()
        for i in (0, 1, 3):
            alpha = 0.05 * np.abs(X.T @ Y[:, i]).max() / 10
            oracle = Lasso(alpha=alpha, fit_intercept=False, tol=1e-12, max_iter=10**6)
            coef = oracle.fit(X, Y[:, i]).coef_
            assert_allclose(X @ ours[:, i], X @ coef, atol=1e-7)
            assert np.abs(ours[:, i]).sum() == pytest.approx(np.abs(coef).sum(), rel=1e-7)


def test_an_excluded_atom_takes_no_part():
    atoms = np.random.default_rng(0).normal(size=(6, 3))
    problem, atom, _ = lasso_paths(atoms, atoms, 0.01, excluded=np.arange(6))
    assert (problem != atom).all()
    assert set(problem.tolist()) == set(range(6))


@pytest.mark.parametrize("chunk", [1, 400_000])
@pytest.mark.parametrize("ratio", [0.5, 0.05, 0.001])
def test_exact_codes_satisfy_the_optimality_conditions(ratio, chunk, monkeypatch):
    monkeypatch.setattr(codes, "CHUNK_ENTRIES", chunk)
    Z = np.random.default_rng(0).normal(size=(40, 6))
    S = exact_codes(Z, ratio).toarray()
    B = Z @ Z.T
    gradient = B - B @ S
    off = np.where(np.eye(40, dtype=bool), 0, B)
    lam = ratio * np.abs(off).max(axis=0)
    np.fill_diagonal(gradient, 0.0)
    assert (np.abs(gradient) <= lam * (1 + 1e-6)).all()
    assert_allclose((gradient - lam * np.sign(S))[S != 0], 0, atol=1e-8)
    assert not S.diagonal().any()


def test_codes_over_all_candidates_are_the_unrestricted_codes():
    Z = np.random.default_rng(0).normal(size=(30, 4))
    full = exact_codes(Z, 0.05)
    assert_allclose(exact_codes(Z, 0.05, candidates=29).toarray(), full.toarray())


def test_simplex_projection_is_a_distribution_and_keeps_distributions():
    rng = np.random.default_rng(0)
    P = structure.project_to_simplex(rng.normal(size=(20, 5)))
    assert_allclose(P.sum(axis=1), 1.0)
    assert (P >= 0).all()
    assert_allclose(structure.project_to_simplex(P), P, atol=1e-12)


@pytest.mark.parametrize("n", [30, 80])
def test_row_sparse_ridge_is_the_same_in_gram_and_in_dual_form(n):
    rng = np.random.default_rng(0)
    X, T = rng.normal(size=(n, 50)), rng.normal(size=(n, 3))
    delta = np.ones(50)
    for _ in range(10):
        W = np.linalg.solve(X.T @ X + 0.5 * np.diag(delta), X.T @ T)
        delta = 1 / (2 * np.sqrt((W**2).sum(axis=1) + 2.2e-16))
    assert_allclose(structure.row_sparse_ridge(X, 0.5)(T), W, atol=1e-8)


def test_fsasl_ranks_alike_with_each_eigensolver(monkeypatch):
    X, _ = blobs(n=80)
    options = {"n_components": 4, "candidates": 20, "max_iter": 6}
    full = FSASL(3, **options).fit(X).scores_[:6]
    monkeypatch.setattr(structure, "EIGH_LIMIT", 10)
    assert_allclose(FSASL(3, **options).fit(X).scores_[:6], full, atol=1e-8)
    monkeypatch.setattr(structure, "DENSE_LIMIT", 10)
    assert_allclose(FSASL(3, **options).fit(X).scores_[:6], full, atol=1e-3)


def test_fsasl_stops_when_the_selection_settles():
    X, _ = blobs(n=60)
    settled = FSASL(3, n_components=4, n_iter_no_change=2).fit(X)
    assert settled.n_iter_ < 20
    assert len(settled.objective_) == settled.n_iter_
    assert FSASL(3, n_components=4).fit(X).n_iter_ == 20


def test_fsasl_on_a_sample_of_the_rows_is_seeded():
    X, _ = blobs(n=100)
    first, again, other = (
        FSASL(3, max_iter=5, max_samples=50, random_state=seed).fit(X).scores_
        for seed in (0, 0, 1)
    )
    assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_adaptive_mu_follows_the_distances_in_the_projected_space():
    X, _ = blobs(n=60)
    assert FSASL(3, mu="adaptive", max_iter=6).fit(X).mu_ < FSASL(3, max_iter=6).fit(X).mu_


# --- LASSO --------------------------------------------------------------------------------


def test_lasso_with_too_few_rows_appends_by_residual_correlation():
    X, y = blobs()
    with pytest.warns(UserWarning, match="Only 0 features have a non-zero coefficient"):
        selector = LassoSelector(3, lam=1e6).fit(X, y)
    Z, _, _ = standardize_columns(X)
    T = np.eye(4)[y] - np.eye(4)[y].mean(axis=0)
    strongest = np.argsort(-np.abs(Z.T @ T).max(axis=1), kind="stable")
    assert_array_equal(selector.order_[:6], strongest[:6])


def test_lasso_coefficients_are_for_raw_columns():
    X, y = blobs()
    scaled = LassoSelector(3, lam=1.0).fit(X, y)
    Z, _, _ = standardize_columns(X)
    direct = LassoSelector(3, lam=1.0, standardize=False).fit(Z, y)
    assert_allclose(
        X @ scaled.coef_ + scaled.intercept_, Z @ direct.coef_ + direct.intercept_, atol=1e-8
    )


def test_lasso_scores_can_be_scaled_by_the_spread_of_the_columns():
    X, y = blobs()
    raw = LassoSelector(3, lam=1.0, standardize=False).fit(X, y)
    scaled = LassoSelector(3, lam=1.0, standardize=False, scale_scores=True).fit(X, y)
    assert_allclose(scaled.scores_[:6], raw.scores_[:6] * X.std(axis=0)[:6], atol=1e-9)


@pytest.mark.parametrize("row_norm, order", [("l1", 1), ("l2", 2), ("max", np.inf)])
def test_lasso_scores_are_row_norms(row_norm, order):
    X, y = blobs()
    selector = LassoSelector(3, lam=0.1, standardize=False, row_norm=row_norm).fit(X, y)
    norms = np.linalg.norm(selector.coef_, ord=order, axis=1)
    assert_allclose(selector.scores_[:6], norms[:6], atol=1e-9)


@pytest.mark.parametrize("fit_intercept", [True, False])
def test_group_lasso_on_attributes_is_scikit_learns(fit_intercept):
    X, y = blobs()
    A = np.random.default_rng(0).normal(size=(4, 9))
    ours = LassoSelector(
        3, attributes=A, penalty="l21", standardize=False, fit_intercept=fit_intercept
    ).fit(X, y)
    oracle = MultiTaskLasso(
        alpha=1.0 / 40, fit_intercept=fit_intercept, tol=1e-10, max_iter=10**5
    ).fit(X[:, :6], A[y])
    assert_allclose(ours.coef_[:6], oracle.coef_.T, atol=1e-5)
    assert_allclose(ours.intercept_, oracle.intercept_, atol=1e-5)


@pytest.mark.parametrize("penalty", ["l1", "l21"])
def test_lasso_on_sets_of_rows_is_the_lasso_on_all_rows(penalty, monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50, 80)) + rng.normal(size=(50, 1))
    y = np.arange(50) % 3
    whole = LassoSelector(3, lam=2.0, penalty=penalty)
    monkeypatch.setattr(sparse_regression, "SMALLEST_SET", 80)
    whole.fit(X, y)
    monkeypatch.setattr(sparse_regression, "SMALLEST_SET", 2)
    parts = clone(whole).fit(X, y)
    assert parts.gap_ <= 1e-12
    assert_allclose(parts.coef_, whole.coef_, atol=1e-6)


@quiet
def test_lasso_path_gives_the_separate_fits():
    X, y = blobs()
    path = LassoSelector(3).path(X, y, [0.1, 10.0, 1.0])
    for selector, lam in zip(path, [0.1, 10.0, 1.0]):
        assert selector.lam == lam
        alone = LassoSelector(3, lam=lam).fit(X, y)
        assert_allclose(selector.coef_, alone.coef_, atol=1e-6)
        assert_array_equal(selector.get_support(), alone.get_support())


def test_lasso_says_when_it_has_not_converged():
    with pytest.warns(UserWarning, match="duality gap"):
        LassoSelector(3, lam=0.01, max_iter=2).fit(*blobs())


def test_the_large_scale_step_majorises(monkeypatch):
    X = np.random.default_rng(0).normal(size=(700, 600)) * np.linspace(0.1, 10, 600)
    D = sparse_regression._majorizer(X.T @ X)
    assert np.linalg.eigvalsh(np.diag(D) - X.T @ X)[0] > 0


# --- L20ALM -------------------------------------------------------------------------------


def test_l20alm_coefficients_predict_on_raw_columns():
    X, y = blobs()
    selector = L20ALM(3).fit(X, y)
    residuals = X @ selector.coef_ + selector.intercept_ - np.eye(4)[y]
    assert np.linalg.norm(residuals, axis=1).sum() == pytest.approx(selector.objective_[-1])
    assert np.count_nonzero(selector.coef_.any(axis=1)) == 3


@pytest.mark.parametrize("init", ["zero", "ridge"])
@pytest.mark.parametrize("entries", [1, 2**25])
def test_l20alm_path_gives_the_separate_fits(init, entries, monkeypatch):
    monkeypatch.setattr(supervised, "LARGEST_BLOCKS", entries)
    X, y = blobs(d=12)
    ks = [10, 2, 4, 2]  # at k = 10 it stops early, nothing is left to change
    for selector, k in zip(L20ALM(init=init).path(X, y, ks), ks):
        alone = L20ALM(k, init=init).fit(X, y)
        assert selector.n_features_to_select == k
        assert_allclose(selector.scores_, alone.scores_, atol=1e-9)
        assert_allclose(selector.objective_, alone.objective_)


def test_l20alm_warm_path_fits_as_well_as_separate_fits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    for selector in L20ALM().path(X, y, [5, 10], warm_start=True):
        alone = L20ALM(selector.n_features_to_select).fit(X, y)
        assert selector.objective_[-1] < 1.1 * alone.objective_[-1]
        assert selector.n_features_in_ == 64


@pytest.mark.parametrize("init", ["zero", "ridge", "random"])
def test_l20alm_starts_give_a_full_ranking(init):
    selector = L20ALM(3, init=init).fit(*blobs())
    assert np.isfinite(selector.scores_[:6]).all()
    assert np.count_nonzero(selector.scores_ > 0) == 3


def test_l20alm_stops_when_the_support_settles():
    X, y = blobs()
    assert L20ALM(6).fit(X, y).n_iter_ < 150  # six columns vary: nothing is left to change
    assert L20ALM(6, tol=0).fit(X, y).n_iter_ == 150


def test_l20alm_in_float32_stops_before_the_multipliers_are_lost(monkeypatch):
    X, y = blobs()
    monkeypatch.setattr(alm, "LARGEST_FLOAT64", 0)
    selector = L20ALM(3, tol=0, mu=100.0).fit(X.astype(np.float32), y)
    assert 100 * 1.1 ** (selector.n_iter_ - 1) <= alm.LARGEST_MU_FLOAT32
    wide = L20ALM(3, tol=0, mu=100.0, max_iter=selector.n_iter_).fit(X, y)
    assert selector.objective_[-1] == pytest.approx(wide.objective_[-1], rel=1e-3)


@pytest.mark.parametrize("n, d", [(30, 60), (60, 30)])
def test_l20alm_chooses_from_float32_data_what_it_chooses_in_float64(n, d):
    X, y = blobs(n=n, d=d)
    X = X.astype(np.float32)
    narrow, wide = L20ALM(5).fit(X, y), L20ALM(5).fit(X.astype(np.float64), y)
    assert_array_equal(narrow.get_support(), wide.get_support())
    assert_allclose(narrow.objective_, wide.objective_, rtol=1e-4)


@pytest.mark.parametrize("init", ["zero", "ridge"])
def test_l20alm_needs_no_more_columns_than_the_targets_have_dimensions(init):
    X, y = blobs()
    A = np.random.default_rng(0).normal(size=(4, 9))  # nine attributes in three dimensions
    compact = L20ALM(3, attributes=A, init=init).fit(X, y)
    Z, _, _ = standardize_columns(X[:, :6])
    T = A[y]
    V, E = np.zeros((6, 9)), np.zeros_like(T)
    if init == "ridge":
        W = np.linalg.solve(np.eye(6) + Z.T @ Z, Z.T @ T)
        V, E = alm.keep_top_rows(W, 3)[0], Z @ W + T.mean(axis=0) - T
    plain = L20ALM(3, attributes=A, init=(V, E)).fit(X[:, :6], y)
    assert_allclose(compact.objective_, plain.objective_, rtol=1e-9)
    assert_allclose(compact.coef_[:6], plain.coef_, atol=1e-9)
    assert_allclose(compact.intercept_, plain.intercept_, atol=1e-9)


# --- WkNN ---------------------------------------------------------------------------------


def test_wknn_ranks_features_of_weight_zero_by_the_slope_of_the_loss():
    X, y = blobs()
    with pytest.warns(UserWarning, match="drove all weights to 0"):
        selector = WkNN(3, lambda1=100.0).fit(X, y)
    assert not selector.weights_.any()
    assert len(np.unique(selector.scores_[:6])) == 6


def test_wknn_does_not_break_down_when_weights_grow():
    X, y = blobs()
    selector = WkNN(3, kernel="exp", loss="ce", lambda0=0, lambda1=0, lambda2=0)
    weights = selector.fit(X.astype(np.float32), y).weights_
    assert np.isfinite(weights).all()
    assert weights.max() > 1


def test_wknn_batches_hold_several_rows_of_each_class():
    codes = np.repeat(np.arange(100), 20)
    batch = next(class_balanced_batches(codes, 512, np.random.RandomState(0)))
    counts = np.bincount(codes[batch])
    assert len(batch) == len(set(batch.tolist())) == 512
    assert set(counts.tolist()) == {0, 8}


def test_wknn_by_batches_finds_the_informative_columns():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(30), 10)
    X = rng.normal(size=(300, 20))
    X[:, :4] += 3 * rng.normal(size=(30, 4))[y]
    selector = WkNN(4, batch_size=64, max_iter=200).fit(X, y)
    assert set(selector.order_[:4].tolist()) == {0, 1, 2, 3}


def test_wknn_takes_all_its_steps_on_batches_of_the_size_asked_for(monkeypatch):
    sizes = []

    def counting(X, *args, **kwargs):
        sizes.append(len(X))
        return vote_gradient(X, *args, **kwargs)

    monkeypatch.setattr(voting, "vote_gradient", counting)
    X, y = blobs(n=400, n_classes=20)
    selector = WkNN(3, batch_size=64, max_iter=30, lambda0=0.0).fit(X, y)
    assert sizes == [64] * 30
    assert selector.n_iter_ == len(selector.objective_) == 30


def test_wknn_at_its_default_penalties_stops_early_on_many_features_and_classes():
    X = np.random.default_rng(0).normal(size=(60, 4096)).astype(np.float32)
    with pytest.warns(UserWarning, match="drove all weights to 0 in . of 1000 steps"):
        selector = WkNN(3).fit(X, np.arange(60) % 30)
    assert selector.n_iter_ < 10


def test_wknn_uses_batches_for_many_samples_and_says_so(monkeypatch):
    monkeypatch.setattr(wknn, "LARGEST_FULL_BATCH", 30)
    monkeypatch.setattr(wknn, "DEFAULT_BATCH", 20)
    with pytest.warns(UserWarning, match="mini-batches of 20"):
        WkNN(3, max_iter=5).fit(*blobs())


def test_a_batch_of_all_rows_is_the_full_batch():
    X, y = blobs()
    full = WkNN(3, max_iter=20).fit(X, y)
    assert_array_equal(WkNN(3, max_iter=20, batch_size=40).fit(X, y).scores_, full.scores_)


# --- are they any good --------------------------------------------------------------------


def digits_accuracy(selector, X, y):
    model = make_pipeline(selector, StandardScaler(), RidgeClassifier())
    return cross_val_score(model, X, y, cv=5).mean()


@quiet
def test_each_supervised_baseline_beats_random_on_digits():
    X, y = load_digits(return_X_y=True)
    X, y = X[:600], y[:600]
    draws = [RandomSelector(10, random_state=seed) for seed in range(5)]
    random = np.mean([digits_accuracy(draw, X, y) for draw in draws])
    for selector in (LassoSelector(10), L20ALM(10), WkNN(10, max_iter=200)):
        assert digits_accuracy(selector, X, y) > random, name_of(selector)
