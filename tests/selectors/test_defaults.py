"""The defaults: everything new switched off, penalties, labels, near copies, weights."""

from unittest.mock import patch

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csc_array, csr_array
from sklearn.datasets import load_digits

from problems import OLD_DEFAULTS, make_described_problem, make_problem, naive_greedy
from semfs import AS_PUBLISHED, Moments, SemFS, SemFSCV
from semfs.attributes import align_attributes
from semfs.datasets import load_sample
from semfs.method.columns import NearCopies
from semfs.method.objective import Objective
from semfs.method.penalty import penalty_unit
from semfs.rows import open_blocks
from semfs.selectors.seen_objective import attribute_targets, squared_label_weight
from semfs.selectors.solving import solve
from semfs.selectors.unlabeled_classes import (
    EQUAL_SAMPLES,
    PENALTY_OF_OTHERS,
    SEEN_FLOOR,
    weight_of_seen,
)
from semfs.validation import ParameterError

# ---- everything off is the method before ------------------------------------------------

VARIANTS = {
    "default": {},
    "labels": {"attributes": None},
    "no intercept": {"fit_intercept": False},
    "swaps": {"n_swaps": 20},
    "alternating": {"solver": "alternating"},
    "include": {"include": [3]},
}
#: The first ten features that the former defaults select. Those of digits and lung were
#: recorded with commit 35b054c, before the defaults changed; those of the lining later.
GOLDEN = [
    ("digits", "default", [26, 43, 28, 10, 42, 20, 27, 44, 37, 34]),
    ("digits", "labels", [26, 43, 28, 10, 42, 20, 27, 44, 37, 34]),
    ("digits", "no intercept", [59, 60, 26, 36, 10, 28, 34, 20, 43, 18]),
    ("digits", "swaps", [26, 43, 10, 20, 42, 27, 36, 37, 34, 44]),
    ("digits", "alternating", [43, 37, 5, 26, 27, 20, 13, 36, 62, 10]),
    ("digits", "include", [3, 26, 43, 28, 10, 42, 20, 27, 44, 37]),
    ("lining", "default", [682, 787, 698, 299, 354, 480, 633, 65, 435, 785]),
    ("lining", "labels", [682, 664, 354, 3, 633, 65, 299, 420, 698, 397]),
    ("lining", "no intercept", [382, 407, 682, 60, 406, 787, 698, 744, 743, 354]),
    ("lining", "swaps", [682, 787, 698, 299, 354, 480, 633, 65, 435, 785]),
    ("lining", "alternating", [682, 65, 397, 480, 633, 622, 361, 787, 354, 107]),
    ("lining", "include", [3, 682, 787, 299, 354, 480, 633, 65, 698, 435]),
    ("lung", "default", [1532, 1687, 1646, 867, 243, 435, 814, 1529, 757, 43]),
    ("lung", "labels", [1532, 1646, 435, 1852, 1687, 1610, 865, 1403, 10, 814]),
    ("lung", "no intercept", [1529, 1703, 1687, 867, 1532, 435, 814, 621, 1951, 757]),
    ("lung", "swaps", [1532, 1687, 1646, 243, 865, 435, 814, 43, 1610, 1951]),
    ("lung", "alternating", [176, 814, 1646, 1551, 989, 1852, 1226, 1851, 1528, 865]),
    ("lung", "include", [3, 1532, 1687, 1646, 867, 243, 435, 814, 1529, 757]),
]


def seen_samples(name):
    """Samples, labels and descriptions of the seen classes of a data set."""
    if name == "digits":
        X, y = load_digits(return_X_y=True)
        return X[y < 6], y[y < 6], None
    data = load_sample(name)
    X, y, _, _ = data.split()
    return X, y, data.attributes


@pytest.mark.filterwarnings("ignore:.*attributes are the same for all seen classes")
@pytest.mark.parametrize(("name", "variant", "expected"), GOLDEN)
def test_with_everything_off_selections_are_those_before(name, variant, expected):
    X, y, table = seen_samples(name)
    options = {"attributes": table, **OLD_DEFAULTS, **VARIANTS[variant]}
    assert SemFS(10, **options).fit(X, y).order_[:10].tolist() == expected


def test_as_published_switches_everything_off():
    assert AS_PUBLISHED["label_weight"] == 0.0
    assert AS_PUBLISHED["max_correlation"] is None
    assert AS_PUBLISHED["penalty_scale"] == "none"


# ---- the penalty ------------------------------------------------------------------------


def test_the_weighted_unit_is_the_mean_diagonal_weighted_by_itself():
    g = np.array([1.0, 2.0, 5.0, 0.0])
    assert penalty_unit(g, "weighted") == pytest.approx((g**2).sum() / g.sum())
    assert penalty_unit(g, "gram") == 2.0
    assert penalty_unit(np.full(3, 4.0), "weighted") == penalty_unit(np.full(3, 4.0), "gram")
    assert penalty_unit(np.zeros(3), "weighted") == 0.0
    assert penalty_unit(1e200 * g, "weighted") == pytest.approx(
        1e200 * penalty_unit(g, "weighted")
    )


def test_constant_columns_do_not_change_the_weighted_penalty():
    X, y, A = make_problem()
    wide = np.hstack([X, np.ones((len(X), 50))])
    plain = SemFS(5, A).fit(X, y)
    padded = SemFS(5, A).fit(wide, y)
    assert_array_equal(padded.order_[:5], plain.order_[:5])
    assert_allclose(padded.coef_[:12], plain.coef_, atol=1e-12)


@pytest.mark.parametrize("scale", ["weighted", "gram"])
def test_relative_penalties_ignore_the_unit_of_x(scale):
    X, y, A = make_problem()
    orders = [SemFS(5, A, penalty_scale=scale).fit(u * X, y).order_ for u in (1.0, 1e3, 1e-6)]
    assert_array_equal(orders[0], orders[1])
    assert_array_equal(orders[0], orders[2])


def test_class_folds_take_the_penalty_unit_of_all_features():
    X, y, A = make_described_problem(d=450, U=0)
    X[:, 400:] *= 20.0  # columns that few candidates can make up for
    chosen = SemFSCV(5, A, param_grid={"gamma": [0.5, 2.0]}, n_repeats=1, cv=3).fit(X, y)
    assert set(chosen.best_params_) == {"gamma"}


# ---- labels -----------------------------------------------------------------------------


def test_label_weight_does_not_depend_on_the_unit_of_the_table():
    X, y, A = make_problem()
    orders = [SemFS(6, unit * A).fit(X, y).order_ for unit in (1.0, 1e-3, 1e3)]
    assert_array_equal(orders[0], orders[1])
    assert_array_equal(orders[0], orders[2])


def test_a_huge_label_weight_is_the_fit_of_the_labels():
    X, y, A = make_problem()
    mixed = SemFS(6, A, label_weight=1e9, target_attributes=None).fit(X, y)
    assert_array_equal(mixed.order_, SemFS(6).fit(X, y).order_)


@pytest.mark.filterwarnings("ignore:3 of 3 attributes are the same")
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_if_all_classes_are_described_alike_only_the_labels_count(fit_intercept):
    y = np.repeat(np.arange(3), 10)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((30, 6))
    X[:, 3] += 3 * y
    objectives = []
    for _ in range(100):
        # rounding errors of means and of rotated descriptions differ from table to table
        A = np.tile(rng.standard_normal(3), (3, 1))
        targets, _ = attribute_targets(
            SemFS(fit_intercept=fit_intercept, attributes=A), align_attributes(A, [0, 1, 2])
        )
        assert squared_label_weight(0.7, targets) == 0.7
        selector = SemFS(2, A, fit_intercept=fit_intercept).fit(X, y)
        objectives.append(selector.objective_)
    if fit_intercept:
        labels = SemFS(2).fit(X, y)
        assert_allclose(objectives, np.tile(labels.objective_, (100, 1)))


def test_labels_and_streams_agree(tmp_path):
    X, y, A = make_problem(n=300, d=20)
    np.save(tmp_path / "X.npy", X)
    in_memory = SemFS(6, A).fit(X, y)
    streamed = SemFS(6, A).fit(open_blocks(tmp_path / "X.npy", y))
    summed = SemFS(6, A).fit_moments(Moments.from_data(X, y).compact())
    for other in (streamed, summed):
        assert_array_equal(other.order_, in_memory.order_)
        assert_allclose(other.coef_, in_memory.coef_, atol=1e-10)


def test_the_objective_with_labels_is_that_of_wider_targets():
    X, y, A = make_problem()
    moments = Moments.from_data(X, y)
    W = np.random.default_rng(1).standard_normal((12, 3 + 4))
    wide = np.hstack([A, np.sqrt(0.7) * np.eye(4)])
    for fit_intercept in (True, False):
        options = {"gamma": 0.5, "fit_intercept": fit_intercept}
        mixed = Objective.from_moments(moments, A, label_weight=0.7, **options)
        expected = Objective.from_moments(moments, wide, **options)
        assert_allclose(mixed.targets, expected.targets)
        assert_allclose(mixed.B, expected.B)
        assert mixed.q == pytest.approx(expected.q)
        assert mixed.value(W, np.ones(12)) == pytest.approx(expected.value(W, np.ones(12)))


# ---- near copies ------------------------------------------------------------------------


@pytest.fixture
def copies():
    """Six classes: A tells three of them, B two; A has two copies."""
    rng = np.random.default_rng(0)
    y = rng.integers(0, 6, 1200)
    a = (y % 3) * 2.0 + rng.normal(size=1200)
    b = (y // 3) * 1.5 + rng.normal(size=1200)
    X = pd.DataFrame({"A": a, "A copy": a, "A copy2": a + 1e-6 * rng.normal(size=1200), "B": b})
    for i in range(6):
        X[f"n{i}"] = rng.normal(size=1200)
    return X, y


def test_copies_of_a_selected_feature_are_skipped_and_named(copies):
    X, y = copies
    selector = SemFS(3).fit(X, y)
    assert X.columns[selector.order_[:2]].tolist() == ["A", "B"]
    assert selector.skipped_ == {1: 0, 2: 0}
    assert selector.knowledge_["near copies"] == (
        "2 features skipped because their correlation with a selected feature exceeds "
        "max_correlation: A copy (of A), A copy2 (of A)"
    )
    assert selector.order_[-2:].tolist() == [1, 2]
    explained = selector.explain(n_bootstraps=0)
    assert explained.features.loc["A", "skipped"] == "A copy, A copy2"
    assert "skipped as copies: A copy, A copy2" in str(explained)
    plain = SemFS(3, max_correlation=None, **{"gamma": 10.0}).fit(X, y)
    assert X.columns[plain.order_[:3]].tolist() == ["A", "A copy", "A copy2"]
    assert plain.skipped_ == {}
    assert "near copies" not in plain.knowledge_


def test_a_reflected_copy_is_a_copy(copies):
    X, y = copies
    X = X.assign(**{"A copy": -X["A"]})
    assert SemFS(3).fit(X, y).skipped_ == {1: 0, 2: 0}


def test_forced_features_are_never_skipped(copies):
    X, y = copies
    selector = SemFS(3, include=["A copy", "A"]).fit(X, y)
    assert X.columns[selector.order_[:3]].tolist() == ["A", "A copy", "B"]
    assert selector.skipped_ == {2: 0}


def test_skipped_features_enter_if_nothing_else_is_left(copies):
    X, y = copies
    selector = SemFS(10).fit(X, y)
    assert selector.support_.all()
    assert selector.order_[-2:].tolist() == [1, 2]
    assert selector.skipped_ == {}
    # the selection is nested: what a shorter fit skips is skipped in the shortened one
    shorter = selector._get_fitted().top(3)
    assert shorter.skipped == SemFS(3).fit(X, y).skipped_
    assert shorter.attributes()["knowledge_"] == SemFS(3).fit(X, y).knowledge_


def test_exchanges_bring_no_copies_in(copies):
    X, y = copies
    selector = SemFS(3, n_swaps=50, gamma=10.0).fit(X, y)
    chosen = set(X.columns[selector.get_support()])
    assert len(chosen & {"A", "A copy", "A copy2"}) == 1


@pytest.mark.parametrize("make", [csr_array, np.asarray, np.float32])
def test_copies_are_found_in_all_forms_of_data(copies, make):
    X, y = copies
    expected = SemFS(3).fit(X, y)
    found = SemFS(3).fit(make(X.to_numpy()), y)
    assert_array_equal(found.order_[:3], expected.order_[:3])
    assert found.skipped_ == expected.skipped_
    summed = SemFS(3).fit_moments(Moments.from_data(X.to_numpy(), y).compact())
    assert summed.skipped_ == expected.skipped_


def test_no_selected_pair_exceeds_the_limit_of_correlation():
    rng = np.random.default_rng(3)
    y = np.repeat(np.arange(10), 40)
    signal = rng.standard_normal((10, 6))[y] + 0.3 * rng.standard_normal((400, 6))
    X = signal[:, rng.integers(0, 6, 300)] + 0.3 * rng.standard_normal((400, 300))
    for limit in (0.95, 0.8):
        selector = SemFS(12, max_correlation=limit).fit(X, y)
        correlations = np.corrcoef(X[:, selector.order_[:12]].T) - np.eye(12)
        distinct = len(selector.skipped_) < 300 - 12
        assert not distinct or np.abs(correlations).max() <= limit
        for copy, feature in selector.skipped_.items():
            assert abs(np.corrcoef(X[:, copy], X[:, feature])[0, 1]) > limit


def test_near_copies_ask_for_each_column_once():
    T = np.array([[1.0, 0.99, 0.1], [0.99, 1.0, 0.2], [0.1, 0.2, 1.0]])
    asked = []

    def columns(features):
        asked.extend(features.tolist())
        return T[:, features]

    copies = NearCopies(columns, np.diag(T), 0.95)
    copies.find([0, 2])
    copies.find([0])
    assert copies.of(0).tolist() == [1]
    assert copies.of(2).tolist() == []
    assert asked == [0, 2]


@pytest.mark.parametrize("value", [0.1, 3.5, 1e5])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("kind", [np.array, csr_array, csc_array])
def test_an_included_constant_has_no_near_copies(value, dtype, kind):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 10)
    X = rng.standard_normal((30, 8))
    X[:, 4] += 3 * y
    X[:, 0] = value  # in sparse X, its sums of products are not exactly 0
    selector = SemFS(3, include=[0]).fit(kind(X.astype(dtype)), y)
    assert selector.skipped_ == {}
    assert list(selector.order_[:2]) == [0, 4]
    assert not (selector.explain().duplicates["feature"] == "x0").any()


def test_an_included_constant_of_a_file_has_no_near_copies(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), 100)
    X = rng.standard_normal((300, 8)).astype(np.float32)
    X[:, 4] += 3 * y
    X[:, 0] = 0.1
    np.save(tmp_path / "X.npy", X)
    blocks = open_blocks(tmp_path / "X.npy", y, block_rows=77)
    selector = SemFS(3, include=[0]).fit(blocks)
    assert selector.skipped_ == {}
    assert list(selector.order_[:2]) == [0, 4]


@pytest.mark.parametrize("wrong", [0.0, 1.5, -1, "much"])
def test_a_limit_of_correlation_that_is_none_is_refused(wrong):
    X, y, _ = make_problem()
    with pytest.raises((ParameterError, TypeError), match="max_correlation"):
        SemFS(3, max_correlation=wrong).fit(X, y)


# ---- unlabeled samples ------------------------------------------------------------------


def test_seen_classes_keep_a_share_of_the_weight_of_clusters():
    assert weight_of_seen(n_samples=10, n_clusters=4) == 1.0
    assert weight_of_seen(n_samples=80, n_clusters=4) == EQUAL_SAMPLES * 4 / 80
    assert weight_of_seen(n_samples=10_000, n_clusters=4) == SEEN_FLOOR == 0.2


def test_the_seen_classes_are_penalized_less_beside_clusters():
    X, y, A = make_described_problem(C=24, U=6)
    X_new = np.random.default_rng(5).standard_normal((90, X.shape[1]))
    options = {"attributes": A, "penalty_scale": "none"}
    beside = SemFS(5, gamma=50.0, **options).fit(X, y, X_unlabeled=X_new)
    # the weights of the same features, without clusters
    features = beside.order_[:5].tolist()
    alone = SemFS(5, gamma=50.0 * PENALTY_OF_OTHERS, include=features, **options).fit(X, y)
    assert PENALTY_OF_OTHERS == 0.7
    assert_allclose(beside.coef_, alone.coef_)


def test_described_classes_are_penalized_less_beside_clusters():
    X, y, A = make_described_problem(C=24, U=6)
    X_new = np.random.default_rng(5).standard_normal((90, X.shape[1]))
    found = {}
    for unlabeled in (None, X_new):
        with patch("semfs.selectors.problem.solve", wraps=solve) as solved:
            SemFS(5, A).fit(X, y, X_unlabeled=unlabeled)
        found[unlabeled is None] = solved.call_args.kwargs["further"]
    (alone,) = found[True]
    beside, _ = found[False]
    assert_allclose(beside.gamma, PENALTY_OF_OTHERS * alone.gamma)
    assert_allclose(beside.B, alone.B)


def test_the_number_of_new_classes_may_be_that_of_the_table():
    X, y, A = make_described_problem(C=24, U=6)
    X_new = np.random.default_rng(5).standard_normal((90, X.shape[1]))
    selector = SemFS(5, A, n_new_classes="table").fit(X, y, X_unlabeled=X_new)
    assert selector.n_new_classes_ == 6
    with pytest.raises(ParameterError, match='n_new_classes is "table", but the table'):
        SemFS(5, n_new_classes="table").fit(X, y, X_unlabeled=X_new)
    SemFS(5, n_new_classes="table").fit(X, y)  # without unlabeled samples it is not needed


# ---- as published ------------------------------------------------------------------------


def test_the_published_parameters_with_forward_selection_solve_the_problem_of_the_paper():
    X, y, A = make_problem()
    selector = SemFS(4, attributes=A, **{**AS_PUBLISHED, "solver": "direct"}).fit(X, y)
    order, J = naive_greedy(X, y, A, 4, alpha=1.0, gamma=0.1)
    assert_array_equal(selector.order_[:4], order)
    assert_allclose(selector.objective_, J)


def test_the_published_step_stops_at_once_unless_tol_is_0():
    sample = load_sample("lining")
    X, y, _, _ = sample.split()
    stopped = SemFS(5, attributes=sample.attributes, **AS_PUBLISHED).fit(X, y)
    assert len(stopped.objective_) == 1
    whole = SemFS(5, attributes=sample.attributes, **AS_PUBLISHED, tol=0).fit(X, y)
    assert len(whole.objective_) == SemFS().max_iter
    assert (np.diff(whole.objective_) < 0).all()
