"""Parameters chosen on held-out seen classes."""

import itertools

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.model_selection import KFold

from problems import make_problem
from semfs import Moments, SemFS, SemFSCV
from semfs.attributes import align_attributes
from semfs.evaluation import ClassKFold, cluster_scores
from semfs.selectors.folds import ClassFolds
from semfs.validation import ParameterError

GRID = {"gamma": [0.1, 1.0], "fit_intercept": [True, False]}


def problem(C=8, n=160, d=15, **options):
    return make_problem(n=n, d=d, C=C, m=4, **options)


def all_settings(table):
    names = ("alpha", "gamma", "penalty_scale", "fit_intercept", "class_weight", "label_weight")
    values = [(0.0, 1.0), (2.0,), ("gram", "none"), (True, False)]
    values += [(None, "balanced"), (0.0, 0.7)]
    return [SemFS(6, table, **dict(zip(names, some))) for some in itertools.product(*values)]


def folds_of(moments, table, settings, train, n_candidates=99):
    table = align_attributes(table, moments.classes)
    return ClassFolds(moments, table, settings, [train], None, n_candidates)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("table", [True, False])
def test_paths_on_folds_are_those_of_fits_on_the_training_rows(form, weighted, table):
    X, y, A = problem(offset=2.0)
    weights = np.linspace(0.5, 2.0, len(y)) if weighted else None
    A = A if table else None
    train = np.array([True, False, True, True, False, True, True, True])
    moments = Moments.from_data(form(X), y, sample_weight=weights)
    folds, rows = folds_of(moments, A, all_settings(A), train), train[y]
    for setting, path in zip(all_settings(A), folds.paths(train)):
        setting.set_params(target_attributes=None)
        plain = setting.fit(X[rows], y[rows], None if weights is None else weights[rows])
        assert path.tolist() == plain.order_[:6].tolist(), setting


def test_screening_takes_the_features_of_largest_first_gain_on_the_training_classes():
    X, y, A = problem()
    train = np.arange(8) < 6
    rows = train[y]
    ranked = SemFS(1, A).fit(X[rows], y[rows])  # beyond the first feature: by next gain
    folds = folds_of(Moments.from_data(X, y), A, [SemFS(3, A, include=[14])], train, 5)
    assert {14, ranked.order_[0]} <= set(folds.candidates(train).tolist())
    assert len(folds.candidates(train)) == 5


def test_features_to_keep_are_candidates_whatever_their_gain():
    X, y, A = problem()
    every = np.ones(8, dtype=bool)
    moments = Moments.from_data(X, y)
    table = align_attributes(A, moments.classes)
    worst = SemFS(1, A).fit(X, y).order_[-2:]
    folds = ClassFolds(moments, table, [SemFS(3, A)], [every], None, 5, keep=worst)
    assert set(worst.tolist()) < set(folds.candidates(every).tolist())
    assert len(folds.candidates(every)) == 5


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
@pytest.mark.parametrize("weighted", [False, True])
def test_paths_among_candidates_have_the_penalty_of_all_features(form, weighted):
    X, y, A = problem(d=60, offset=2.0)
    X[:, 20:] *= 0.01  # never selected, but part of the mean diagonal
    weights = np.linspace(0.5, 2.0, len(y)) if weighted else None
    train = np.array([True, False, True, True, False, True, True, True])
    moments = Moments.from_data(form(X), y, sample_weight=weights)
    folds = folds_of(moments, A, all_settings(A), train, n_candidates=25)
    rows = train[y]
    for setting, path in zip(all_settings(A), folds.paths(train)):
        setting.set_params(target_attributes=None)
        plain = setting.fit(X[rows], y[rows], None if weights is None else weights[rows])
        assert path.tolist() == plain.order_[:6].tolist(), setting


@pytest.mark.parametrize("d", [30, 600])
def test_samples_of_held_out_classes_have_no_part_in_the_selection_on_a_fold(d):
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(9), 30)
    X = rng.standard_normal((270, d)) + 0.4 * rng.standard_normal((9, d))[y]
    splits = np.array_split(np.arange(9), 3)
    trains = [~np.isin(np.arange(9), held_out) for held_out in splits]
    settings = [SemFS(20), SemFS(20, gamma=1.0, fit_intercept=False, class_weight=None)]

    def selected(X):
        moments = Moments.from_data(X, y)
        table = align_attributes(None, moments.classes)
        folds = ClassFolds(moments, table, settings, trains, None, 100)
        return np.concatenate([folds.candidates(trains[0]), *folds.paths(trains[0])])

    changed = X.copy()
    held_out = np.isin(y, splits[0])
    strong = 3.0 * rng.standard_normal((9, d)) * (np.arange(d) >= d // 2)
    changed[held_out] += strong[y[held_out]]
    assert_array_equal(selected(changed), selected(X))


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


@pytest.mark.parametrize(
    "grid",
    [
        {"n_swaps": [0, 3]},
        {"n_swaps": [3], "gamma": [1.0, 10.0]},
        {"solver": ["direct", "alternating"]},
        {"solver": ["alternating"], "max_iter": [1, 5]},
        {"class_weight": [None, {0: 5.0}]},
    ],
    ids=str,
)
def test_a_grid_beyond_what_folds_share_is_fitted_in_full(grid):
    X, y, A = problem()
    selector = SemFSCV(3, A, param_grid=grid, cv=4, n_repeats=2).fit(X, y)
    assert set(selector.best_params_) == set(grid)
    again = SemFS(3, A, **selector.best_params_).fit(X, y)
    assert_array_equal(selector.order_, again.order_)
    few = SemFSCV(3, A, param_grid=grid).fit(X[y < 4], y[y < 4])  # too few classes for folds
    assert few.n_splits_ == 0
    assert set(few.best_params_) == set(grid)


def test_the_default_grid_has_24_settings_at_most():
    X, y, A = problem(n=161)
    selector = SemFSCV(3, A, n_repeats=1, cv=2).fit(X, y)
    assert len(selector.cv_results_["params"]) == 24
    labels = SemFSCV(3, n_repeats=1, cv=2).fit(X, y)
    assert len(labels.cv_results_["params"]) == 12


def test_a_default_setting_is_left_only_for_a_clear_lead():
    selector = SemFSCV()
    settings = [{"gamma": 2.0}, {"gamma": 1.0}]  # the first is the default
    noisy = np.array([[0.5, 0.5, 0.5], [0.9, 0.4, 0.3]])
    clear = np.array([[0.5, 0.5, 0.5], [0.7, 0.6, 0.6]])
    assert selector._best(noisy, settings) == 0
    assert selector._best(clear, settings) == 1
    assert SemFSCV(param_grid={"gamma": [2.0, 1.0]})._best(noisy, settings) == 1
    assert selector._best(noisy, [{"gamma": 3.0}, {"gamma": 1.0}]) == 1


def test_auto_takes_the_fewest_features_within_one_standard_error_of_the_best():
    X, y, A = problem(C=10, n=300, d=40)
    selector = SemFSCV("auto", A, param_grid={"gamma": [1.0]}, max_features=30).fit(X, y)
    curve = selector.curve_
    assert curve["n_features"].tolist() == [5, 10, 15, 20, 30]
    enough = curve["mean"].max() - curve["mean"] <= curve["se"]
    assert selector.n_features_ == curve["n_features"][np.argmax(enough)]
    assert selector.transform(X).shape[1] == selector.n_features_


def test_a_grid_may_hold_arrays():
    X, y, A = problem()
    starts = [np.ones(15), np.linspace(0.5, 1.0, 15)]
    grid = {"s_init": starts, "solver": ["alternating"], "max_iter": [2]}
    selector = SemFSCV(4, A, param_grid=grid, cv=3, n_repeats=1).fit(X, y)
    assert any(selector.best_params_["s_init"] is start for start in starts)
    assert len(selector.cv_results_["param_s_init"]) == 2


def test_folds_may_be_given_as_pairs_of_samples():
    X, y, A = problem()
    pairs = list(ClassKFold(4).split(X, y))
    expected = SemFSCV(4, A, param_grid=GRID, cv=ClassKFold(4), n_repeats=1).fit(X, y)
    found = SemFSCV(4, A, param_grid=GRID, cv=pairs, n_repeats=1).fit(X, y)
    assert_allclose(
        found.cv_results_["mean_test_score"], expected.cv_results_["mean_test_score"]
    )


class Tasks:
    """A callback that records the tasks of a search."""

    def __init__(self, stop_after=None):
        self.names = []
        self.stop_after = stop_after

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        self.torn_down = True

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context):
        self.names.append(context.task_name)
        return len(self.names) == self.stop_after


def test_callbacks_follow_the_folds_and_the_final_fit():
    callback = pytest.importorskip("sklearn.callback")  # scikit-learn 1.9
    X, y, A = problem()
    tasks = Tasks()
    selector = SemFSCV(4, A, param_grid=GRID, cv=3, n_repeats=1).set_callbacks(tasks).fit(X, y)
    assert tasks.names == ["fold", "fold", "fold", "refit", "fit"]
    assert tasks.torn_down
    assert selector.set_callbacks(callback.ProgressBar()).fit(X, y).n_splits_ == 3
    assert selector.set_callbacks(Tasks(stop_after=2)).fit(X, y).n_splits_ == 2


@pytest.mark.parametrize("C", [2, 3, 5])
def test_few_classes_keep_the_parameters_given_instead_of_folds(C):
    X, y, A = problem(C=C)
    selector = SemFSCV(4, A, gamma=3.0).fit(X, y)
    assert selector.n_splits_ == 0
    assert selector.best_params_["gamma"] == 3.0
    assert selector.cv_results_ == {}
    assert np.isnan(selector.best_score_)
    assert_array_equal(selector.order_, SemFS(4, A, gamma=3.0).fit(X, y).order_)


def test_with_few_classes_auto_keeps_what_brings_most_of_the_fall_of_j():
    X, y, A = problem(C=3, d=40)
    selector = SemFSCV("auto", A, max_features=30).fit(X, y)
    enough = selector.curve_["mean"] >= 0.9
    assert selector.n_features_ == selector.curve_["n_features"][np.argmax(enough)]
    assert selector.transform(X).shape[1] == selector.n_features_
    # all that was learned is that of a fit of so many features
    plain = SemFS(selector.n_features_, A).fit(X, y)
    assert_array_equal(selector.support_, plain.support_)
    assert_array_equal(selector.selection_, plain.selection_)
    for name in ("coef_", "intercept_", "objective_", "class_means_", "within_"):
        assert_allclose(getattr(selector, name), getattr(plain, name), atol=1e-10)
    assert selector.n_iter_ == plain.n_iter_
    assert_allclose(selector.decision_function(X), plain.decision_function(X))


# ---- as scikit-learn users expect ------------------------------------------------------


def test_names_go_in_and_out_and_forced_features_are_kept():
    pd = pytest.importorskip("pandas")
    X, y, A = problem()
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(15)])
    selector = SemFSCV(4, A, include=["g9"], exclude=["g0", 1], cv=3)
    out = selector.set_output(transform="pandas").fit_transform(frame, y)
    assert "g9" in out.columns
    assert not {"g0", "g1"} & set(out.columns)
    assert selector.feature_names_in_.tolist() == list(frame.columns)
    assert clone(selector).get_params()["include"] == ["g9"]


def test_unlabeled_rows_are_left_to_the_final_fit():
    X, y, A = problem()
    hidden = np.arange(len(y)) % 5 == 0
    marked = SemFSCV(4, A, param_grid=GRID, cv=3).fit(X, np.where(hidden, -1, y))
    plain = SemFSCV(4, A, param_grid=GRID, cv=3).fit(X[~hidden], y[~hidden])
    assert_allclose(marked.cv_results_["mean_test_score"], plain.cv_results_["mean_test_score"])
    final = SemFS(4, A, **marked.best_params_).fit(X, np.where(hidden, -1, y))
    assert_array_equal(marked.order_, final.order_)


@pytest.mark.parametrize("power", [-300, -30, 30, 300])
@pytest.mark.parametrize("hide", [False, True])
def test_the_search_ignores_the_units_of_x(power, hide):
    X, y, A = problem()
    y = np.where((np.arange(len(y)) % 5 == 0) & hide, -1, y)
    plain, other = (
        SemFSCV(4, A, param_grid=GRID, cv=3).fit(X * unit, y) for unit in (1.0, 2.0**power)
    )
    scores = plain.cv_results_["mean_test_score"]
    assert_allclose(other.cv_results_["mean_test_score"], scores)
    assert_array_equal(other.order_, plain.order_)
    assert_array_equal(other.predict(X * 2.0**power), plain.predict(X))


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"n_features_to_select": "best"}, ValueError, 'a number or "auto"'),
        ({"n_features_to_select": 0}, ValueError, "at least 1"),
        ({"param_grid": {"gama": [1]}}, ValueError, "'gama', which SemFSCV cannot set"),
        ({"param_grid": {"n_features_to_select": [5]}}, ValueError, '"auto"'),
        ({"param_grid": {"exclude": [[0], []]}}, ValueError, "'exclude', which SemFSCV"),
        ({"param_grid": []}, ValueError, "param_grid is empty"),
        ({"param_grid": {"gamma": [1.0, -1.0]}}, ValueError, "gamma must be"),
        ({"alpha": "a"}, TypeError, "alpha must be"),
        ({"cv": 1}, ValueError, "cv must be at least 2"),
        ({"cv": "x"}, TypeError, "cv must be a whole number"),
        ({"cv": 2.5}, TypeError, "cv must be a whole number"),
        ({"cv": KFold(3)}, ValueError, "hold out whole classes"),
        ({"n_repeats": 0}, ValueError, "n_repeats"),
        ({"max_features": 0}, ValueError, "max_features"),
    ],
)
def test_bad_parameters_are_refused(change, error, message):
    X, y, A = problem()
    with pytest.raises(error, match=message):
        SemFSCV(4, A).set_params(**change).fit(X, y)


def test_held_out_samples_of_weight_0_are_not_scored():
    X, y, A = problem()
    rng = np.random.default_rng(0)
    far = 20.0 * rng.standard_normal((40, X.shape[1]))
    weights = np.append(np.ones(len(y)), np.zeros(40))
    labels = np.append(y, np.arange(40) % 8)
    options = {"param_grid": {"gamma": [0.1, 1.0]}, "cv": 3, "n_repeats": 2}
    expected = SemFSCV(5, A, **options).fit(X, y, np.ones(len(y)))
    found = SemFSCV(5, A, **options).fit(np.vstack([X, far]), labels, weights)
    scores = found.cv_results_["mean_test_score"]
    assert_allclose(scores, expected.cv_results_["mean_test_score"])


def test_rules_that_leave_nothing_are_refused_as_in_a_fit():
    X, y, _ = make_problem(n=60, d=6, C=6)
    X = np.abs(X) + 1.0
    for selector in (
        SemFS(2, max_level=0.5),
        SemFSCV(2, max_level=0.5, param_grid={"gamma": [2.0]}, cv=3),
    ):
        with pytest.raises(ParameterError, match="max_level leaves no feature to select from"):
            selector.fit(X, y)
