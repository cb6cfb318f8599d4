"""Parameters chosen on held-out seen classes."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from problems import make_problem
from semfs import Moments, SemFS, SemFSCV, load, save
from semfs.evaluation import ClassKFold, ClassShuffleSplit, cluster_scores
from semfs.selectors.folds import ClassSums, Setting, forward_path, screen_features
from semfs.selectors.semfs_cv import _Folds
from semfs.selectors.unlabeled import spread_agreement

GRID = {"gamma": [0.1, 1.0], "fit_intercept": [True, False]}


def problem(C=8, n=160, d=15, **options):
    return make_problem(n=n, d=d, C=C, m=4, **options)


def all_settings():
    return [
        Setting(alpha, gamma, scale, centred, balanced, label_weight)
        for alpha, gamma in ((0.0, 0.5), (1.0, 2.0))
        for scale in ("gram", "none")
        for centred in (True, False)
        for balanced in (True, False)
        for label_weight in (0.0, 0.7)
    ]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_paths_on_folds_are_those_of_fits_on_the_training_rows(form, weighted):
    X, y, A = problem(offset=2.0)
    weights = np.linspace(0.5, 2.0, len(y)) if weighted else None
    moments = Moments.from_data(form(X), y, sample_weight=weights)
    train = np.array([True, False, True, True, False, True, True, True])
    folds = _Folds(
        moments,
        A,
        all_settings(),
        [(train, ~train)],
        None,
        np.ones(15, bool),
        np.array([], int),
    )
    rows = train[y]
    for setting, path in zip(all_settings(), folds.paths(all_settings(), train, 6)):
        plain = SemFS(
            6,
            A,
            alpha=setting.alpha,
            gamma=setting.gamma,
            penalty_scale=setting.penalty_scale,
            fit_intercept=setting.fit_intercept,
            class_weight="balanced" if setting.balanced else None,
            label_weight=setting.label_weight,
        ).fit(X[rows], y[rows], None if weights is None else weights[rows])
        assert path.tolist() == plain.order_[:6].tolist(), setting


def test_paths_without_attributes_are_those_of_labels():
    X, y, _ = problem()
    moments = Moments.from_data(X, y)
    sums = ClassSums.of_columns(moments, np.arange(15), np.zeros(8, dtype=int), None)
    path = sums.resample(np.ones(8), balanced=False, fit_intercept=True).path(
        Setting(), 6, float("nan")
    )
    assert path.tolist() == SemFS(6).fit(X, y).order_[:6].tolist()


def test_a_class_that_counts_twice_is_two_copies_of_its_rows():
    X, y, A = problem()
    moments = Moments.from_data(X, y)
    times = np.array([2, 0, 1, 1, 3, 1, 1, 0])
    sums = ClassSums.of_columns(moments, np.arange(15), np.arange(8), A)
    path = sums.resample(times.astype(float), balanced=False, fit_intercept=True).path(
        Setting(), 6, float("nan")
    )
    rows = np.repeat(np.arange(len(y)), times[y])
    assert path.tolist() == SemFS(6, A).fit(X[rows], y[rows]).order_[:6].tolist()


def test_forced_features_enter_first_and_forbidden_ones_never():
    G, H = np.eye(5), np.diag([5.0, 4.0, 3.0, 2.0, 1.0])
    allowed = np.array([False, True, True, True, True])
    path = forward_path(G, H, 0.1, 5, allowed=allowed, first=np.array([3]))
    assert path.tolist() == [3, 1, 2, 4]


def test_a_copy_of_a_chosen_feature_does_not_enter_without_penalty():
    X, y, A = problem()
    X[:, 4] = X[:, 2]
    B = X.T @ A[y]
    path = forward_path(X.T @ X, B @ B.T, 0.0, 15)
    assert len({2, 4} & set(path.tolist())) == 1


def test_screening_takes_the_features_of_largest_first_gain():
    X, y, A = problem()
    moments = Moments.from_data(X, y)
    ranked = SemFS(1, A).fit(X, y)  # beyond the first feature: by next gain
    settings = [Setting()]
    found, diagonals = screen_features(
        moments, A, settings, 5, allowed=np.ones(15, bool), keep=np.array([14])
    )
    assert ranked.order_[0] in found
    assert 14 in found
    assert len(found) == 5
    Z = X - X.mean(axis=0)
    M = np.stack([Z[y == c].mean(axis=0) for c in range(8)])[y]
    assert_allclose(diagonals[settings[0]], (Z**2 + M**2).sum() / 15)


def test_the_best_setting_is_refitted_on_all_classes():
    X, y, A = problem()
    selector = SemFSCV(4, A, param_grid=GRID, cv=4).fit(X, y)
    plain = SemFS(4, A, **selector.best_params_).fit(X, y)
    for name in ("order_", "scores_", "coef_", "support_", "classes_"):
        assert_array_equal(getattr(selector, name), getattr(plain, name))
    assert_array_equal(selector.transform(X), plain.transform(X))
    assert_array_equal(selector.predict(X), plain.predict(X))
    assert isinstance(selector.best_estimator_, SemFS)
    assert selector.n_features_ == 4


def test_results_are_those_of_clustering_the_held_out_classes():
    X, y, A = problem()
    folds = ClassKFold(4)
    selector = SemFSCV(1, A, param_grid=GRID, cv=folds, n_repeats=3, random_state=5).fit(X, y)
    results = selector.cv_results_
    assert set(results) >= {"params", "param_gamma", "mean_test_score", "rank_test_score"}
    assert len(results["params"]) == 4
    seed = np.random.RandomState(5).randint(2**31 - 1)
    for i, params in enumerate(results["params"]):
        for f, (train, test) in enumerate(folds.split(X, y)):
            chosen = SemFS(1, A, **params).fit(X[train], y[train]).order_[:1]
            expected = np.mean(cluster_scores(X[test][:, chosen], y[test], 3, seed))
            assert_allclose(results[f"split{f}_test_score"][i], expected)
    best = int(np.argmin(results["rank_test_score"]))
    assert selector.best_params_ == results["params"][best]
    assert_allclose(selector.best_score_, results["mean_test_score"].max())


def test_a_grid_beyond_what_folds_share_is_fitted_in_full():
    X, y, A = problem()
    grid = {"n_swaps": [0, 3], "gamma": [1.0]}
    selector = SemFSCV(3, A, param_grid=grid, cv=4).fit(X, y)
    assert set(selector.best_params_) == {"n_swaps", "gamma"}


def test_the_default_grid_has_24_settings_at_most():
    X, y, A = problem(n=161)
    selector = SemFSCV(3, A, n_repeats=1, cv=2).fit(X, y)
    assert len(selector.cv_results_["params"]) == 24
    labels = SemFSCV(3, n_repeats=1, cv=2).fit(X, y)
    assert len(labels.cv_results_["params"]) == 12


def test_a_default_setting_is_left_only_for_a_clear_lead():
    selector = SemFSCV()
    settings = [{"gamma": 10.0}, {"gamma": 1.0}]
    noisy = np.array([[0.5, 0.5, 0.5], [0.9, 0.4, 0.3]])
    clear = np.array([[0.5, 0.5, 0.5], [0.7, 0.6, 0.6]])
    assert selector._best(noisy, settings) == 0
    assert selector._best(clear, settings) == 1
    assert SemFSCV(param_grid={"gamma": [10.0, 1.0]})._best(noisy, settings) == 1
    assert selector._best(noisy, [{"gamma": 3.0}, {"gamma": 1.0}]) == 1


def test_sparse_and_dense_rows_give_the_same_answer():
    X, y, A = problem()
    X[X < 0] = 0.0
    dense, sparse = (SemFSCV(4, A, cv=3).fit(form(X), y) for form in (np.array, sp.csr_array))
    assert dense.best_params_ == sparse.best_params_
    assert_array_equal(dense.order_, sparse.order_)


# ---- the number of features -----------------------------------------------------------


def test_auto_takes_the_fewest_features_within_one_standard_error_of_the_best():
    X, y, A = problem(C=10, n=300, d=40)
    selector = SemFSCV("auto", A, param_grid={"gamma": [1.0]}, max_features=30).fit(X, y)
    curve = selector.curve_
    assert curve["n_features"].tolist() == [5, 10, 15, 20, 30]
    top = int(np.argmax(curve["mean"]))
    enough = curve["mean"] >= curve["mean"][top] - curve["se"][top]
    assert selector.n_features_ == curve["n_features"][np.argmax(enough)]
    assert selector.transform(X).shape[1] == selector.n_features_


def test_auto_keeps_to_the_budget_and_to_the_number_of_columns():
    X, y, A = problem()
    assert SemFSCV("auto", A, max_features=3, cv=2).fit(X, y).n_features_ <= 3
    assert SemFSCV("auto", A, cv=2).fit(X, y).curve_["n_features"].max() == 15


# ---- few classes ----------------------------------------------------------------------


@pytest.mark.parametrize("C", [2, 3, 5])
def test_few_classes_get_a_fixed_setting_instead_of_folds(C):
    X, y, A = problem(C=C)
    selector = SemFSCV(4, A).fit(X, y)
    assert selector.n_splits_ == 0
    weight = selector.best_params_["unlabeled_weight"]
    rows = Moments.from_data(X, y).rows
    assert weight == spread_agreement(rows, C) ** 2 / (C - 1)
    assert selector.cv_results_ == {}
    assert np.isnan(selector.best_score_)
    by_hand = SemFS(4, A, unlabeled_weight=weight).fit(X, y, X_unlabeled=X)
    assert_array_equal(selector.order_, by_hand.order_)


def test_with_few_classes_auto_keeps_what_brings_most_of_the_fall_of_j():
    X, y, A = problem(C=3, d=40)
    selector = SemFSCV("auto", A, max_features=30).fit(X, y)
    enough = selector.curve_["mean"] >= 0.9
    assert selector.n_features_ == selector.curve_["n_features"][np.argmax(enough)]
    assert selector.transform(X).shape[1] == selector.n_features_


def test_six_classes_make_three_folds_of_two():
    X, y, A = problem(C=6)
    assert SemFSCV(4, A, param_grid=GRID).fit(X, y).n_splits_ == 3


# ---- as scikit-learn users expect ------------------------------------------------------


def test_names_go_in_and_out_and_forced_features_are_kept():
    pd = pytest.importorskip("pandas")
    X, y, A = problem()
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(15)])
    selector = SemFSCV(4, A, include=["g9"], exclude=["g0", 1], cv=3, n_candidates=5)
    out = selector.set_output(transform="pandas").fit_transform(frame, y)
    assert "g9" in out.columns
    assert not {"g0", "g1"} & set(out.columns)
    assert selector.feature_names_in_.tolist() == list(frame.columns)
    assert clone(selector).get_params()["include"] == ["g9"]


def test_unlabelled_rows_are_left_to_the_final_fit():
    X, y, A = problem()
    hidden = np.arange(len(y)) % 5 == 0
    marked = SemFSCV(4, A, param_grid=GRID, cv=3).fit(X, np.where(hidden, -1, y))
    plain = SemFSCV(4, A, param_grid=GRID, cv=3).fit(X[~hidden], y[~hidden])
    assert_allclose(marked.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    final = SemFS(4, A, **marked.best_params_).fit(X, np.where(hidden, -1, y))
    assert_array_equal(marked.order_, final.order_)


def test_class_shuffle_split_is_a_cv():
    X, y, A = problem()
    cv = ClassShuffleSplit(7, test_size=3, random_state=0)
    assert SemFSCV(4, A, param_grid=GRID, cv=cv).fit(X, y).n_splits_ == 7


def test_a_saved_selector_comes_back(tmp_path):
    X, y, A = problem()
    selector = SemFSCV(4, A, param_grid=GRID, cv=3).fit(X, y)
    again = load(save(selector, tmp_path / "cv.npz"))
    assert_array_equal(again.transform(X), selector.transform(X))
    assert again.best_params_ == selector.best_params_


def test_progress_is_printed(capsys):
    X, y, A = problem()
    SemFSCV(4, A, param_grid={"gamma": [0.1, 1.0]}, cv=3, verbose=1).fit(X, y)
    assert capsys.readouterr().out.count("[SemFSCV]") == 2


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"n_features_to_select": "best"}, ValueError, 'a number or "auto"'),
        ({"n_features_to_select": 0}, ValueError, "at least 1"),
        ({"param_grid": {"gama": [1]}}, ValueError, "'gama', which is no parameter"),
        ({"param_grid": {"n_features_to_select": [5]}}, ValueError, '"auto"'),
        ({"cv": 1}, ValueError, "cv must be at least 2"),
        ({"n_repeats": 0}, ValueError, "n_repeats"),
        ({"max_features": 0}, ValueError, "max_features"),
        ({"n_candidates": 2.5}, TypeError, "n_candidates"),
    ],
)
def test_bad_parameters_are_refused(change, error, message):
    X, y, A = problem()
    with pytest.raises(error, match=message):
        SemFSCV(4, A).set_params(**change).fit(X, y)


def test_folds_that_split_a_class_are_refused():
    from sklearn.model_selection import KFold

    X, y, A = problem()
    with pytest.raises(ValueError, match="splits rows of one class"):
        SemFSCV(4, A, cv=KFold(3)).fit(X, y)
