"""Labels beside attributes, unlabelled rows, and descriptions of the classes to come."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import spearmanr

from problems import fit_of, make_problem, paper_B, paper_gram
from semfs import Moments, SemFS
from semfs.attributes.targets import RIDGES, TargetClasses, _centred, _kernel, _left_out_r2
from semfs.method.joint import solve_jointly
from semfs.method.objective import Objective
from semfs.rows import Rows
from semfs.selectors.unlabeled import Reconstruction, scatter_times, spread_agreement

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


def test_without_weight_unlabelled_rows_change_nothing():
    X, y, A, hidden = unlabeled_problem()
    ignoring = SemFS(5, A, unlabeled_weight=0.0).fit(X, y)
    assert_same_fit(ignoring, SemFS(5, A).fit(X[~hidden], y[~hidden]))
    assert -1 not in ignoring.classes_


def test_the_weight_of_unlabelled_rows_is_of_no_effect_without_them():
    X, y, A = make_problem()
    assert_same_fit(SemFS(5, A, unlabeled_weight=7.0).fit(X, y), SemFS(5, A).fit(X, y))


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_rows_labelled_minus_one_and_x_unlabeled_are_the_same(form):
    X, y, A, hidden = unlabeled_problem()
    marked = SemFS(5, A).fit(form(X), y)
    apart = SemFS(5, A).fit(form(X[~hidden]), y[~hidden], X_unlabeled=form(X[hidden]))
    assert_array_equal(marked.order_, apart.order_)
    assert_allclose(marked.objective_, apart.objective_)


def test_marked_and_separate_unlabelled_rows_add_up():
    X, y, A, hidden = unlabeled_problem()
    part = hidden & (np.arange(80) < 40)
    rest = np.flatnonzero(hidden & ~part)
    both = SemFS(5, A).fit(np.delete(X, rest, 0), np.delete(y, rest), X_unlabeled=X[rest])
    assert_array_equal(both.order_, SemFS(5, A).fit(X, y).order_)


def test_text_labels_are_marked_with_minus_one_among_objects():
    X, y, A, _ = unlabeled_problem()
    table = dict(zip("abcd", A))
    words = np.array([-1 if c < 0 else "abcd"[c] for c in y], dtype=object)
    selector = SemFS(5, table).fit(X, words)
    assert selector.classes_.tolist() == list("abcd")
    assert_array_equal(selector.order_, SemFS(5, A).fit(X, y).order_)
    assert_array_equal(SemFS(5, table).fit(X, list(words)).order_, selector.order_)


def test_a_described_class_may_be_called_minus_one():
    X, y, A = make_problem(C=4)
    table = {c - 1: row for c, row in enumerate(A)}
    selector = SemFS(5, table).fit(X, y - 1)
    assert selector.classes_.tolist() == [-1, 0, 1, 2]
    assert_array_equal(selector.order_, SemFS(5, A).fit(X, y).order_)


def test_balanced_classes_do_not_count_unlabelled_rows():
    X, y, A, hidden = unlabeled_problem()
    balanced = {"class_weight": "balanced", "unlabeled_weight": 0.0}
    assert_same_fit(
        SemFS(5, A, **balanced).fit(X, y), SemFS(5, A, **balanced).fit(X[~hidden], y[~hidden])
    )


def test_weights_of_unlabelled_rows_count():
    X, y, A, hidden = unlabeled_problem()
    weights = np.where(hidden, 2.0, 1.0)
    twice = SemFS(5, A).fit(np.vstack([X, X[hidden]]), np.concatenate([y, y[hidden]]))
    weighted = SemFS(5, A).fit(X, y, sample_weight=weights)
    assert_allclose(weighted.objective_, twice.objective_)


def test_both_losses_fall_as_a_naive_search_on_their_sum_says():
    X, y, A, hidden = unlabeled_problem()
    alpha, gamma, weight = 1.0, 2.0, 0.7
    selector = SemFS(
        6,
        A,
        alpha=alpha,
        gamma=gamma,
        penalty_scale="none",
        unlabeled_weight=weight,
    ).fit(X, y)
    seen, labels = X[~hidden], y[~hidden]
    Z, centred = X - X.mean(axis=0), seen - seen.mean(axis=0)
    T = A - A[labels].mean(axis=0)
    parts = [
        (paper_gram(centred, labels, alpha), paper_B(centred, labels, T, alpha)),
        (Z.T @ Z, Z.T @ Z),
    ]
    q = (1 + alpha) * (T[labels] ** 2).sum()
    weights = [1.0, weight * q / (Z**2).sum()]

    def fit(S):
        return sum(w * fit_of(G, B, S, gamma) for w, (G, B) in zip(weights, parts))

    chosen = []
    for step in range(6):
        left = [j for j in range(X.shape[1]) if j not in chosen]
        chosen.append(max(left, key=lambda j: fit([*chosen, j])))
        assert_allclose(selector.objective_[step], q * (1 + weight) - fit(chosen))
    assert selector.order_[:6].tolist() == chosen


def test_the_coefficients_are_those_of_the_labelled_rows():
    X, y, A, hidden = unlabeled_problem()
    selector = SemFS(5, A).fit(X, y)
    chosen = selector.order_[:5]
    plain = SemFS(5, A, include=chosen.tolist()).fit(X[~hidden], y[~hidden])
    assert_allclose(selector.coef_, plain.coef_, atol=1e-10)


def test_reconstruction_of_many_columns_keeps_the_leading_directions():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 90)) * np.linspace(5, 0.1, 90)
    rows = Moments.from_data(X[:200], np.arange(200) % 2)
    more = Moments.from_data(X[200:], np.full(100, -1))
    loss = Reconstruction.of_rows(rows, more, gamma=1.0, penalty_scale="gram")
    Z = X - X.mean(axis=0)
    assert loss.directions.shape == (90, 64)
    assert_allclose(loss.diag, (Z**2).sum(axis=0))
    assert_allclose(loss.B @ loss.B.T, (Z.T @ Z) @ (Z.T @ Z), atol=0.01 * (loss.B**2).sum())


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_products_with_the_scatter_matrix_need_no_matrix(form, weighted):
    X, y, _ = make_problem(offset=3.0)
    weights = np.linspace(0.5, 2.0, len(y)) if weighted else None
    moments = Moments.from_data(form(X), y, sample_weight=weights)
    V = np.random.default_rng(1).standard_normal((X.shape[1], 4))
    assert_allclose(scatter_times(moments, V), moments.scatter() @ V)
    assert_allclose(scatter_times(moments.compact(), V), moments.scatter() @ V)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"solver": "alternating"}, 'solver="direct"'),
        ({"n_swaps": 2}, "n_swaps=0"),
        ({"unlabeled_weight": -1}, "unlabeled_weight"),
        ({"label_weight": -1}, "label_weight"),
    ],
)
def test_what_does_not_go_with_unlabelled_rows_is_refused(change, message):
    X, y, A, _ = unlabeled_problem()
    with pytest.raises(ValueError, match=message):
        SemFS(5, A, **change).fit(X, y)


def test_sums_over_unlabelled_rows_are_refused():
    X, y, _, _ = unlabeled_problem()
    with pytest.raises(ValueError, match="labelled rows only"):
        SemFS(5).partial_fit(X, y)
    with pytest.raises(ValueError, match="need X in memory"):
        SemFS(5).fit_moments(Moments.from_data(X, y))
    with pytest.raises(ValueError, match="X_unlabeled needs X in memory"):
        SemFS(5).fit(iter([(X, y)]), X_unlabeled=X)


def test_unlabelled_rows_need_the_same_columns():
    X, y, A = make_problem()
    with pytest.raises(ValueError, match="features"):
        SemFS(5, A).fit(X, y, X_unlabeled=X[:, :3])


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
    target = TargetClasses.of_means(moments, means, alpha=0.5, gamma=1.0, penalty_scale="none")
    within = X - moments.means[y]
    between = means - means.mean(axis=0)
    share = len(y) / 6
    G = within.T @ within + 1.5 * share * between.T @ between
    assert_allclose(target.columns(np.arange(20)), G)
    assert_allclose(target.diag, np.diag(G))
    assert_allclose(target.B, 1.5 * share * between.T)
    assert_allclose(target.q, 1.5 * share * (np.eye(6) - 1 / 6).trace())
    assert_allclose(target.weighing(4.0).B, 2.0 * target.B)


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


def test_descriptions_and_unlabelled_rows_work_together():
    X, y, A, _ = described_problem()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selector = SemFS(4, A, target_attributes=A, label_weight=0.5)
        selector.fit(X, np.where(np.arange(len(y)) % 4 == 0, -1, y))
    assert (np.diff(selector.objective_) <= 0).all()


# ---- the sum of objectives ------------------------------------------------------------


def test_one_objective_alone_is_solved_as_ever_and_features_are_forced_and_forbidden():
    X, y, A = make_problem()
    objective = Objective.from_moments(Moments.from_data(X, y), A)
    candidates = np.ones(12, dtype=bool)
    candidates[3] = False
    found = solve_jointly([objective], 5, candidates=candidates, include=np.array([7]))
    kwargs = {"gamma": 1.0, "penalty_scale": "none", "fit_intercept": False}
    same = SemFS(5, A, include=[7], exclude=[3], **kwargs).fit(X, y)
    assert_array_equal(found.order[:5], same.order_[:5])
    assert_allclose(found.objective, same.objective_)


def test_a_monitor_can_stop_the_joint_search():
    X, y, A = make_problem()
    objective = Objective.from_moments(Moments.from_data(X, y), A)
    found = solve_jointly(
        [objective, objective],
        5,
        candidates=np.ones(12, dtype=bool),
        include=np.array([], dtype=int),
        monitor=lambda step, J, feature, solution: step == 2,
    )
    assert len(found.objective) == 2


# ---- which features vary in every class ------------------------------------------------------


@pytest.mark.parametrize("sparse", [False, True])
def test_classes_agree_on_which_features_vary_or_they_do_not(sparse):
    rng = np.random.default_rng(0)
    codes = np.arange(300) % 3
    common = rng.normal(size=(300, 80)) * rng.uniform(0.1, 5.0, 80) + 3.0
    own = rng.normal(size=(300, 80)) * rng.uniform(0.1, 5.0, (3, 80))[codes] + 3.0
    own[:, :20] = 0.0  # constant features agree, but only with each other
    wrap = sp.csr_array if sparse else np.asarray
    same, different = (
        spread_agreement(Rows(wrap(X), codes, None), 3) for X in (common, own[:, 20:])
    )
    assert same > 0.9
    assert different < 0.2
    spearman = spearmanr(common[codes == 0].var(axis=0), common[codes == 1].var(axis=0))[0]
    pair = spread_agreement(Rows(wrap(common[codes < 2]), codes[codes < 2], None), 2)
    assert_allclose(pair, spearman)


def test_agreement_needs_two_classes_with_a_spread():
    X = np.random.default_rng(0).normal(size=(6, 5))
    assert spread_agreement(Rows(X, np.array([0, 0, 0, 0, 1, 1]), None), 2) == 0.0
    assert spread_agreement(Rows(np.ones((8, 5)), np.arange(8) % 2, None), 2) == 0.0
    half = np.arange(40) % 2
    scale = np.where(half[:, None] == 0, np.arange(1, 11), np.arange(10, 0, -1))
    opposite = np.random.default_rng(0).normal(size=(40, 10)) * scale**2
    assert spread_agreement(Rows(opposite, half, None), 2) == 0.0
