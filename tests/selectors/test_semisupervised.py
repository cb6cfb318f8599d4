"""Labels beside attributes, unlabelled rows, and descriptions of the classes to come."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from problems import make_problem
from semfs import Moments, SemFS, SemFSCV
from semfs.attributes.targets import (
    RIDGES,
    _centred,
    _kernel,
    _left_out_r2,
    target_quadratic,
)

FITTED = ("order_", "scores_", "coef_", "intercept_", "objective_", "support_")


def assert_same_fit(a, b):
    for name in FITTED:
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def described_problem(seed=0, C=24, U=6, n_per_class=12, d=20, m=5, noise=1.0):
    """Class means are linear in the attributes; the last U classes are yet to come."""
    rng = np.random.default_rng(seed)
    A, map_ = rng.standard_normal((C, m)), rng.standard_normal((m, d))
    y = np.repeat(np.arange(C - U), n_per_class)
    X = (A @ map_)[y] + noise * rng.standard_normal((len(y), d))
    return X, y, A, map_


# ---- label_weight ---------------------------------------------------------------------


def test_label_weight_zero_is_plain_semfs():
    X, y, A = make_problem()
    assert_same_fit(SemFS(5, A, label_weight=0.0).fit(X, y), SemFS(5, A).fit(X, y))


@pytest.mark.parametrize("solver", ["direct", "alternating"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_label_weight_is_an_indicator_of_each_class_beside_its_attributes(
    solver, fit_intercept
):
    X, y, A = make_problem(C=5)
    options = {"solver": solver, "fit_intercept": fit_intercept}
    mixed = SemFS(5, A, label_weight=0.5, **options).fit(X, y)
    wide = SemFS(5, np.hstack([A, np.sqrt(0.5) * np.eye(5)]), **options).fit(X, y)
    assert_array_equal(mixed.order_, wide.order_)
    assert_allclose(mixed.objective_, wide.objective_)
    assert_allclose(mixed.coef_, wide.coef_[:, : A.shape[1]], atol=1e-8)
    assert mixed.predict_attributes(X).shape == (len(X), A.shape[1])
    assert_array_equal(mixed.predict(X).shape, y.shape)


def test_a_huge_label_weight_ranks_as_labels_do():
    X, y, A = make_problem(C=5)
    mixed = SemFS(5, A, label_weight=1e8).fit(X, y)
    assert_array_equal(mixed.order_[:5], SemFS(5).fit(X, y).order_[:5])


# ---- unlabelled rows ------------------------------------------------------------------


def unlabeled_problem():
    X, y, A = make_problem(n=80, C=4, d=10)
    hidden = np.arange(80) % 3 == 0
    return X, np.where(hidden, -1, y), A, hidden


def carried(selector, X, y, **options):
    """The unlabelled rows that training data carry to the fit."""
    return selector._training_data(X, y, **options).unlabeled


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_unlabelled_rows_are_no_class_and_are_carried_along(form):
    X, y, A, hidden = unlabeled_problem()
    marked = SemFS(5, A).fit(form(X), y)
    assert marked.classes_.tolist() == [0, 1, 2, 3]
    assert_same_fit(marked, SemFS(5, A).fit(form(X[~hidden]), y[~hidden]))
    rows = carried(SemFS(5, A), form(X), y)
    assert_array_equal(rows.X.toarray() if sp.issparse(rows.X) else rows.X, X[hidden])
    assert rows.weights is None
    assert carried(SemFS(5, A), form(X[~hidden]), y[~hidden]) is None


def test_marked_and_separate_unlabelled_rows_add_up_with_their_weights():
    X, y, A, hidden = unlabeled_problem()
    weights = np.linspace(1.0, 2.0, len(y))
    rows = carried(SemFS(5, A), X, y, X_unlabeled=X[:7], sample_weight=weights)
    assert_array_equal(rows.X, np.vstack([X[hidden], X[:7]]))
    assert_array_equal(rows.weights, np.concatenate([weights[hidden], np.ones(7)]))
    sparse = carried(SemFS(5, A), X, y, X_unlabeled=sp.csr_array(X[:7]))
    assert_array_equal(sparse.X, rows.X)
    assert len(carried(SemFS(5, A), X[~hidden], y[~hidden], X_unlabeled=X[:7]).X) == 7


def test_minus_one_none_nan_and_na_mark_rows_without_a_label():
    pd = pytest.importorskip("pandas")
    X, y, A, hidden = unlabeled_problem()
    table = dict(zip("abcd", A))
    words = np.array([None if h else "abcd"[c] for c, h in zip(y, hidden)], dtype=object)
    expected = SemFS(5, table).fit(X[~hidden], words[~hidden])
    minus_one = np.where(hidden, -1, words)
    kinds = [words, minus_one, list(words), list(minus_one), pd.Series(words)]
    kinds += [pd.Series(words).astype("category"), pd.Series(words, dtype="string")]
    for labels in kinds:
        selector = SemFS(5, table).fit(X, labels)
        assert selector.classes_.tolist() == list("abcd")
        assert_array_equal(selector.order_, expected.order_)
    for numbers in (np.where(hidden, np.nan, y), np.where(hidden, -1.0, y)):
        assert_array_equal(SemFS(5, A).fit(X, numbers).order_, expected.order_)


def test_a_described_class_may_be_called_minus_one():
    X, y, A = make_problem(C=4)
    table = {c - 1: row for c, row in enumerate(A)}
    selector = SemFS(5, table).fit(X, y - 1)
    assert selector.classes_.tolist() == [-1, 0, 1, 2]
    assert_array_equal(selector.order_, SemFS(5, A).fit(X, y).order_)


def test_balanced_classes_do_not_count_unlabelled_rows():
    X, y, A, hidden = unlabeled_problem()
    balanced = SemFS(5, A, class_weight="balanced")
    assert_same_fit(
        balanced.fit(X, y),
        SemFS(5, A, class_weight="balanced").fit(X[~hidden], y[~hidden]),
    )


@pytest.mark.parametrize("make", [SemFS, SemFSCV])
def test_unlabelled_rows_are_checked_as_others_are(make):
    X, y, A, hidden = unlabeled_problem()
    with pytest.raises(ValueError, match="features"):
        make(5, A).fit(X, y, X_unlabeled=X[:, :3])
    broken = X.copy()
    broken[np.argmax(hidden), 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        make(5, A).fit(broken, y)
    with pytest.raises(ValueError, match="NaN"):
        make(5, A).fit(X[~hidden], y[~hidden], X_unlabeled=broken)


def test_what_does_not_go_with_unlabelled_rows_is_refused():
    X, y, A, _ = unlabeled_problem()
    with pytest.raises(ValueError, match='solver="direct"'):
        SemFS(5, A, solver="alternating").fit(X, y)
    with pytest.raises(ValueError, match="label_weight"):
        SemFS(5, A, label_weight=-1).fit(X, y)
    with pytest.raises(ValueError, match="labelled rows only"):
        SemFS(5).partial_fit(X, y)
    with pytest.raises(ValueError, match="need X in memory"):
        SemFS(5).fit_moments(Moments.from_data(X, y))
    with pytest.raises(ValueError, match="X_unlabeled needs X in memory"):
        SemFS(5).fit(iter([(X, y)]), X_unlabeled=X)


# ---- descriptions of the classes to come ----------------------------------------------


def test_the_share_predicted_for_classes_left_out_is_that_of_refitting():
    X, y, A, _ = described_problem(C=9, U=0)
    M = np.stack([X[y == c].mean(axis=0) for c in range(9)])
    M -= M.mean(axis=0)
    raw = _kernel(A, A, 1.0, A)
    for ridge, r2 in _left_out_r2(_centred(raw), M @ M.T):
        penalty = ridge * np.trace(_centred(raw)) / 9
        errors = total = 0.0
        for i in range(9):
            rest = np.arange(9) != i
            K = raw[np.ix_(rest, rest)]
            mean = M[rest].mean(axis=0)
            dual = np.linalg.solve(_centred(K) + penalty * np.eye(8), M[rest] - mean)
            k = raw[i, rest] - raw[i, rest].mean() - K.mean(axis=0) + K.mean()
            errors += ((M[i] - mean - k @ dual) ** 2).sum()
            total += ((M[i] - mean) ** 2).sum()
        assert_allclose(r2, 1 - errors / total, atol=1e-8)
    assert ridge == RIDGES[-1]


def test_target_classes_have_predicted_means_and_the_seen_scatter():
    X, y, A, map_ = described_problem()
    moments = Moments.from_data(X, y)
    means = A[18:] @ map_
    target = target_quadratic(moments, means, alpha=0.5, gamma=1.0, penalty_scale="none")
    within = X - moments.means[y]
    between = means - means.mean(axis=0)
    share = len(y) / 6
    G = within.T @ within + 1.5 * share * between.T @ between
    assert_allclose(target.columns(np.arange(20)), G)
    assert_allclose(target.diag, np.diag(G))
    assert_allclose(target.B, 1.5 * share * between.T)
    assert_allclose(target.q, 1.5 * share * (np.eye(6) - 1 / 6).trace())
    assert_allclose(target.weighing(4.0).B, 2.0 * target.B)
    relative = target_quadratic(moments, means, alpha=0.5, gamma=2.0, penalty_scale="gram")
    assert_allclose(relative.gamma, 2.0 * np.trace(G) / 20)


def test_good_descriptions_are_used_and_point_at_what_the_new_classes_differ_in():
    X, y, A, map_ = described_problem(noise=0.5)
    # the new classes differ in attribute 0 only, which columns 0 and 1 alone carry
    A[18:, 1:] = 0.0
    map_[0] = 0.0
    map_[0, :2] = 0.3
    X = (A @ map_)[y] + 0.5 * np.random.default_rng(3).standard_normal(X.shape)
    plain = SemFS(2, A[:18]).fit(X, y)
    aimed = SemFS(2, A[:18], target_attributes={c: A[c] for c in range(18, 24)}).fit(X, y)
    assert aimed.target_used_
    assert aimed.target_r2_ > 0.5
    assert not {0, 1} & set(plain.order_[:2].tolist())
    assert {0, 1} & set(aimed.order_[:2].tolist())


def test_rows_of_seen_classes_in_the_target_table_are_ignored():
    X, y, A, _ = described_problem()
    whole = SemFS(4, A, target_attributes=A).fit(X, y)
    new = SemFS(4, A, target_attributes={c: A[c] for c in range(18, 24)}).fit(X, y)
    assert_same_fit(whole, new)


def test_descriptions_that_predict_nothing_are_not_used():
    X, y, A, _ = described_problem()
    noise = np.random.default_rng(9).standard_normal(A.shape)
    selector = SemFS(4, noise, target_attributes=noise)
    with pytest.warns(UserWarning, match="not used: descriptions predict"):
        selector.fit(X, y)
    assert not selector.target_used_
    assert selector.target_r2_ < 0.15
    assert_same_fit(selector, SemFS(4, noise).fit(X, y))


def test_descriptions_are_not_used_with_few_seen_classes():
    X, y, A, _ = described_problem()
    few = y < 4
    with pytest.warns(UserWarning, match="only 4 seen classes"):
        selector = SemFS(4, A, target_attributes=A).fit(X[few], y[few])
    assert_same_fit(selector, SemFS(4, A).fit(X[few], y[few]))


def test_what_was_said_of_descriptions_is_forgotten_by_the_next_fit():
    X, y, A, _ = described_problem()
    selector = SemFS(4, A, target_attributes=A).fit(X, y)
    selector.set_params(target_attributes=None).fit(X, y)
    assert not hasattr(selector, "target_r2_")


@pytest.mark.parametrize(
    "attributes, target, message",
    [
        (None, np.eye(24), "needs attributes"),
        ("A", np.ones((24, 3)), "same attributes"),
        ("A", {0: [0.0] * 5, 1: [1.0] * 5}, "0 classes that were not seen"),
    ],
)
def test_target_tables_that_do_not_fit_are_refused(attributes, target, message):
    X, y, A, _ = described_problem()
    table = A if attributes == "A" else attributes
    with pytest.raises(ValueError, match=message):
        SemFS(4, table, target_attributes=target).fit(X, y)
    with pytest.raises(ValueError, match='needs solver="direct"'):
        SemFS(4, A, target_attributes=A, solver="alternating").fit(X, y)


def test_descriptions_work_with_unlabelled_rows_and_exchanges():
    X, y, A, _ = described_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selector = SemFS(4, A, target_attributes=A, label_weight=0.5, n_swaps=3)
        selector.fit(X, np.where(np.arange(len(y)) % 4 == 0, -1, y))
    assert (np.diff(selector.objective_) <= 0).all()
