"""Clustering protocol, class-disjoint splits and the other measures on unseen classes."""

import pickle
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits, load_iris
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.linear_model import LinearRegression
from sklearn.metrics import average_precision_score, normalized_mutual_info_score
from sklearn.model_selection import GridSearchCV, cross_val_score, cross_validate
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import semfs.evaluation.clustering as kmeans_module
from semfs.evaluation import (
    ClassKFold,
    ClassShuffleSplit,
    cluster_scorer,
    cluster_scores,
    clustering_accuracy,
    kmeans,
    knn_accuracy,
    normalized_mutual_info,
    retrieval_map,
    starting_rows,
    zero_shot_accuracy,
)

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "kmeans_metrics.npz")


def digits300():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


def plain_kmeans(X, centres, max_iter=100):
    """Return the labels of `plain_run`."""
    return plain_run(X, centres, max_iter)[0]


def plain_run(X, centres, max_iter=100):
    """The rules, one at a time: nearest centre, refill, means, stop when nothing changes."""
    X, K, last = np.asarray(X, dtype=float), len(centres), None
    for n_iter in range(1, max_iter + 1):
        gap = X[:, None] - centres
        # The same rounding as in the library, which decides ties between fractions.
        squares = np.einsum("ij,ij->i", *[gap.reshape(-1, X.shape[1])] * 2).reshape(-1, K)
        labels = squares.argmin(axis=1)
        farthest = list(np.argsort(-squares.min(axis=1), kind="stable"))
        while len(empty := sorted(set(range(K)) - set(labels.tolist()))):
            for cluster in empty:
                labels[farthest.pop(0)] = cluster
        if last is not None and (labels == last).all():
            return labels, n_iter, True
        last = labels
        centres = np.array([X[labels == k].mean(axis=0) for k in range(K)])
    return labels, n_iter, False


# --- golden numbers -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["toy12", "synth60"])
def test_kmeans_reproduces_the_labels_of_litekmeans(name):
    X, starts = GOLDEN[f"{name}__X"], GOLDEN[f"{name}__start_rows"]
    found = [kmeans(X, start).labels for start in starts]
    assert_array_equal(found, GOLDEN[f"{name}__labels"])


@pytest.mark.parametrize(
    "name, mean_acc, mean_nmi", [("toy12", 0.825, 0.831752), ("synth60", 0.850833, 0.842310)]
)
def test_cluster_scores_reproduce_the_scores_of_the_reference_programs(
    name, mean_acc, mean_nmi
):
    X, y, starts = (GOLDEN[f"{name}__{key}"] for key in ("X", "y", "start_rows"))
    acc, nmi = cluster_scores(X, y, starts=starts)
    assert_allclose(acc, GOLDEN[f"{name}__acc"], atol=1e-12)
    assert_allclose(nmi, GOLDEN[f"{name}__nmi_max"], atol=1e-12)
    assert_allclose([acc.mean(), nmi.mean()], [mean_acc, mean_nmi], atol=5e-7)


def test_empty_clusters_take_the_farthest_rows():
    X = GOLDEN["empty__X"]
    run = kmeans(X, GOLDEN["empty__start_centres"])
    assert_array_equal(run.labels, [0, 0, 0, 2, 2, 2, 1, 3])
    assert_allclose(run.centres, GOLDEN["empty__centres"])
    assert_array_equal(
        kmeans(X, GOLDEN["empty2__start_centres"]).labels, GOLDEN["empty2__labels"]
    )


@pytest.mark.parametrize(
    "predicted, acc, nmi",
    [
        ("000111112202", 0.833333, 0.639594),
        ("000000111111", 0.666667, 0.420620),
        ("001122333330", 0.583333, 0.503637),
    ],
)
def test_accuracy_and_nmi_of_the_specification(predicted, acc, nmi):
    true = list("000011112222")
    assert_allclose(clustering_accuracy(true, list(predicted)), acc, atol=5e-7)
    assert_allclose(normalized_mutual_info(true, list(predicted)), nmi, atol=5e-7)


# --- K-means --------------------------------------------------------------------------


def test_float32_rows_are_clustered_as_their_values_in_float64():
    X = np.random.default_rng(0).random((400, 6)).astype(np.float32)
    for start in starting_rows(400, 5, 4):
        assert_array_equal(kmeans(X, start).labels, plain_kmeans(X, X[start].astype(float)))


def test_all_runs_at_once_give_the_labels_of_plain_kmeans_on_digits():
    X, _ = digits300()
    starts = starting_rows(300, 10, n_repeats=20)
    labels, _, converged = kmeans_module.run_lloyd(X, X[starts])
    assert converged.all()
    assert_array_equal(labels, [plain_kmeans(X, X[start]) for start in starts])


@pytest.mark.parametrize("seed", range(4))
def test_kmeans_agrees_with_scikit_learn(seed):
    rng = np.random.default_rng(seed)
    n, d, K = [(500, 5, 4), (900, 30, 7), (60, 40, 12), (2000, 2, 3)][seed]
    X = rng.normal(size=(n, d)) + 1.5 * rng.normal(size=(K, d))[rng.integers(0, K, n)]
    for start in starting_rows(n, K, 5, seed):
        run = kmeans(X, start, max_iter=300)
        other = KMeans(K, init=X[start], n_init=1, tol=0, algorithm="lloyd").fit(X)
        assert run.converged
        assert_array_equal(run.labels, other.labels_)
        assert_allclose(run.centres, other.cluster_centers_, atol=1e-10)
        assert run.n_iter == other.n_iter_


@pytest.mark.parametrize("entries, runs", [(37, 10**9), (700, 10**9), (700, 250), (10**9, 1)])
def test_blocks_and_batches_do_not_change_the_labels(monkeypatch, entries, runs):
    X, starts = GOLDEN["synth60__X"], GOLDEN["synth60__start_rows"]
    monkeypatch.setattr(kmeans_module, "BLOCK_ENTRIES", entries)
    monkeypatch.setattr(kmeans_module, "BATCH_LABELS", runs)
    labels, _, _ = kmeans_module.run_lloyd(X, X[starts])
    assert_array_equal(labels, GOLDEN["synth60__labels"])


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_exact_ties_and_empty_clusters_follow_the_rules_on_small_integers(data):
    n, d = data.draw(st.integers(1, 14)), data.draw(st.integers(1, 3))
    K, runs = data.draw(st.integers(1, n)), data.draw(st.integers(1, 4))
    seed = data.draw(st.integers(0, 10**6))
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, d)).astype(float)
    centres = rng.integers(-1, 4, (runs, K, d)).astype(float)
    plain = [plain_run(X, start) for start in centres]
    for found, expected in zip(kmeans_module.run_lloyd(X, centres), zip(*plain)):
        assert_array_equal(found, expected)  # labels, n_iter, converged


def test_a_refill_that_empties_another_cluster_is_repeated():
    X = np.array([[0.0], [1.0], [50.0]])
    run = kmeans(X, [[0.0], [0.0], [10.0]])  # the farthest row is alone in cluster 2
    assert_array_equal(run.labels, plain_kmeans(X, np.array([[0.0], [0.0], [10.0]])))
    assert len(set(run.labels)) == 3
    assert np.isfinite(run.centres).all()


def test_as_many_clusters_as_identical_rows_still_ends():
    run = kmeans(np.ones((5, 2)), [0, 1, 2, 3, 4])
    assert sorted(run.labels) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "change",
    [
        lambda X: X + 1e8,
        lambda X: X * 1e100,
        lambda X: X * 1e-100,
        lambda X: sp.csr_array(X),
        lambda X: np.asfortranarray(X),
        lambda X: X.tolist(),
    ],
    ids=["offset", "huge", "tiny", "sparse", "fortran", "list"],
)
def test_labels_do_not_depend_on_offset_scale_or_container(change):
    X, starts = GOLDEN["synth60__X"], GOLDEN["synth60__start_rows"]
    for start, labels in zip(starts[:5], GOLDEN["synth60__labels"]):
        assert_array_equal(kmeans(change(X), start).labels, labels)


def test_one_extreme_outlier_does_not_blur_the_other_rows():
    rng = np.random.default_rng(0)
    X = np.r_[rng.normal(size=(40, 3)), rng.normal(8, 1, (40, 3)), [[1e9, 0, 0]]]
    run = kmeans(X, [0, 40, 80])
    assert_array_equal(run.labels, np.repeat([0, 1, 2], [40, 40, 1]))


def test_kmeans_says_when_it_ran_out_of_iterations():
    X, _ = digits300()
    run = kmeans(X, np.arange(10), max_iter=2)
    assert (run.n_iter, run.converged) == (2, False)
    assert_array_equal(run.labels, plain_kmeans(X, X[:10], max_iter=2))


def test_the_input_is_not_changed():
    X, starts = GOLDEN["toy12__X"].copy(), GOLDEN["toy12__start_rows"].copy()
    cluster_scores(X, GOLDEN["toy12__y"], starts=starts)
    knn_accuracy(X, GOLDEN["toy12__y"])
    retrieval_map(X, GOLDEN["toy12__y"])
    assert_array_equal(X, GOLDEN["toy12__X"])
    assert_array_equal(starts, GOLDEN["toy12__start_rows"])


# --- accuracy and NMI -----------------------------------------------------------------

labelings = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n)] * 2)
)


@given(labelings, st.permutations(range(6)))
def test_scores_ignore_the_names_of_classes_and_clusters(pair, names):
    true, predicted = pair
    renamed = [f"cluster {names[p]}" for p in predicted]
    for score in (clustering_accuracy, normalized_mutual_info):
        assert_allclose(score(true, renamed), score(true, predicted), atol=1e-12)
        assert_allclose(score(predicted, true), score(true, predicted), atol=1e-12)


@given(labelings)
def test_scores_lie_between_0_and_1_and_are_1_for_the_classes_themselves(pair):
    true, predicted = pair
    largest = max(Counter(zip(true, predicted)).values()) / len(true)
    assert largest <= clustering_accuracy(true, predicted) <= 1
    assert 0 <= normalized_mutual_info(true, predicted) <= 1
    assert clustering_accuracy(true, true) == 1
    assert_allclose(normalized_mutual_info(true, true), 1, atol=1e-12)


@given(labelings)
def test_nmi_is_scikit_learns_with_the_max_normalisation(pair):
    true, predicted = pair
    expected = normalized_mutual_info_score(true, predicted, average_method="max")
    assert_allclose(normalized_mutual_info(true, predicted), expected, atol=1e-9)


def test_nmi_of_one_cluster_is_1_with_one_class_and_0_with_two():
    assert normalized_mutual_info([7, 7], ["a", "a"]) == 1.0
    assert normalized_mutual_info([7, 8], ["a", "a"]) == 0.0


# --- the protocol ---------------------------------------------------------------------


def test_starting_rows_depend_on_sizes_and_seed_only():
    rows = starting_rows(50, 4, 20, 0)
    assert rows.shape == (20, 4)
    assert all(len(set(r)) == 4 for r in rows.tolist())
    assert_array_equal(starting_rows(50, 4, 5, 0), rows[:5])
    assert not (starting_rows(50, 4, 20, 1) == rows).all(axis=1).any()
    assert_array_equal(rows[0], [32, 29, 13, 49])  # pinned: stored results rely on it


@pytest.mark.parametrize("make", [np.random.RandomState, np.random.default_rng])
def test_a_generator_may_seed_the_starts(make):
    assert_array_equal(starting_rows(50, 4, 3, make(5)), starting_rows(50, 4, 3, make(5)))


def test_cluster_scores_are_reproducible_and_use_the_common_starts():
    X, y = digits300()
    acc, nmi = cluster_scores(X, y, n_repeats=6, random_state=3)
    again = cluster_scores(X, y, starts=starting_rows(300, 10, 6, 3))
    assert_array_equal([acc, nmi], again)
    labels = kmeans(X, starting_rows(300, 10, 6, 3)[4]).labels
    assert acc[4] == clustering_accuracy(y, labels)
    assert nmi[4] == normalized_mutual_info(y, labels)


def test_cluster_scores_take_labels_of_any_type():
    X, y = digits300()
    names = [f"digit {v}" for v in y]
    assert_array_equal(cluster_scores(X, names, n_repeats=3), cluster_scores(X, y, n_repeats=3))


# --- splitters ------------------------------------------------------------------------


@pytest.mark.parametrize("shuffle", [False, True])
def test_class_k_fold_tests_each_class_once_and_keeps_classes_whole(shuffle):
    y = np.array(list("abcdefghijk"))[np.random.default_rng(0).integers(0, 11, 200)]
    folds = ClassKFold(4, shuffle=shuffle, random_state=0 if shuffle else None)
    tested = []
    for train, test in folds.split(np.zeros((200, 2)), y):
        assert sorted([*train, *test]) == list(range(200))
        assert not set(y[train]) & set(y[test])
        assert len(set(y[test])) in (2, 3)
        tested += test.tolist()
    assert sorted(tested) == list(range(200))
    assert folds.get_n_splits() == 4


@pytest.mark.parametrize("test_size, expected", [(3, 3), (0.25, 3), (0.5, 5)])
def test_class_shuffle_split_holds_out_the_asked_number_of_classes(test_size, expected):
    y = np.arange(60) % 10
    splits = ClassShuffleSplit(7, test_size=test_size, random_state=1)
    parts = list(splits.split(y, y))
    assert len(parts) == splits.get_n_splits() == 7
    for train, test in parts:
        assert len(set(y[test])) == expected
        assert not set(y[train]) & set(y[test])
        assert len(train) + len(test) == 60
    again = list(ClassShuffleSplit(7, test_size=test_size, random_state=1).split(y, y))
    assert all((a[1] == b[1]).all() for a, b in zip(parts, again))


def test_shuffled_folds_are_reproducible_and_differ_from_sorted_ones():
    y = np.arange(40) % 10

    def tests_of(folds):
        return [test.tolist() for _, test in folds.split(y, y)]

    shuffled = tests_of(ClassKFold(5, shuffle=True, random_state=4))
    assert shuffled == tests_of(ClassKFold(5, shuffle=True, random_state=4))
    assert shuffled != tests_of(ClassKFold(5))


def test_splitters_print_as_scikit_learns_do():
    assert repr(ClassKFold(3)) == "ClassKFold(n_splits=3, random_state=None, shuffle=False)"
    assert "test_size=0.2" in repr(ClassShuffleSplit())


def test_cross_validation_scores_a_selector_on_classes_it_has_not_seen():
    X, y = digits300()
    X = X + 0.01 * np.random.default_rng(0).normal(size=X.shape)  # no constant columns
    cv, scorer = ClassKFold(5), cluster_scorer("nmi", n_repeats=4)
    scores = cross_val_score(SelectKBest(k=20), X, y, cv=cv, scoring=scorer)
    by_hand = []
    for train, test in cv.split(X, y):
        selector = SelectKBest(k=20).fit(X[train], y[train])
        by_hand.append(cluster_scores(selector.transform(X[test]), y[test], 4)[1].mean())
    assert_allclose(scores, by_hand)


def test_grid_search_tunes_a_pipeline_ending_in_a_selector():
    X, y = load_digits(return_X_y=True)
    steps = make_pipeline(VarianceThreshold(1.0), StandardScaler(), SelectKBest())
    search = GridSearchCV(
        steps, {"selectkbest__k": [1, 30]}, cv=ClassShuffleSplit(3, random_state=0),
        scoring=cluster_scorer(n_repeats=5), n_jobs=1,
    ).fit(X, np.array([f"digit {v}" for v in y]))  # fmt: skip
    assert search.best_params_ == {"selectkbest__k": 30}
    assert 0.5 < search.best_score_ <= 1


def test_several_scorers_work_together_and_can_be_pickled():
    X, y = digits300()
    scoring = {m: pickle.loads(pickle.dumps(cluster_scorer(m))) for m in ("accuracy", "nmi")}
    found = cross_validate(VarianceThreshold(), X, y, cv=ClassKFold(5), scoring=scoring)
    assert set(found) >= {"test_accuracy", "test_nmi"}
    assert np.isfinite(found["test_nmi"]).all()


# --- further measures -----------------------------------------------------------------


def plain_knn_accuracy(X, y, k):
    right = 0
    for i in range(len(X)):
        others = sorted((((X[j] - X[i]) ** 2).sum(), j) for j in range(len(X)) if j != i)
        votes = [y[j] for _, j in others[:k]]
        right += max(votes, key=lambda c: (votes.count(c), -votes.index(c))) == y[i]
    return right / len(X)


def plain_map(X, y):
    found = []
    for i in range(len(X)):
        others = [j for j in range(len(X)) if j != i]
        same = [y[j] == y[i] for j in others]
        if any(same):
            nearness = [-((X[j] - X[i]) ** 2).sum() for j in others]
            found.append(average_precision_score(same, nearness))
    return np.mean(found)


def integer_data(seed, n=60):
    """Rows with many equal distances, which float64 computes without rounding."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 4, n)
    X = 2.0 * (rng.integers(0, 3, (n, 3)) + y[:, None])
    X[-1] -= X.sum(axis=0) % n  # whole column means: centring is exact too
    return X, y


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("k", [1, 2, 5, 59])
def test_knn_accuracy_is_that_of_the_plain_loop_ties_included(seed, k):
    X, y = integer_data(seed)
    assert_allclose(knn_accuracy(X, y, k), plain_knn_accuracy(X, y, k))


@pytest.mark.parametrize("seed", range(3))
def test_retrieval_map_is_the_mean_of_scikit_learns_average_precision(seed):
    X, y = integer_data(seed)
    assert_allclose(retrieval_map(X, y), plain_map(X, y))
    y[:1] = 99  # alone in its class: not a query, but still in everybody's ranking
    assert_allclose(retrieval_map(X, y), plain_map(X, y))


def test_neighbour_measures_ignore_an_offset_and_work_in_blocks():
    X, y = load_digits(return_X_y=True)  # 1,797 rows: more than one block of 4,000,000
    X = X[np.tile(np.arange(1797), 2)[:2500]] + 0.1 * np.random.default_rng(0).random(
        (2500, 64)
    )
    y = np.tile(y, 2)[:2500]
    assert 0.97 < knn_accuracy(X, y) < 1
    assert_allclose(knn_accuracy(X + 1e6, y), knn_accuracy(X, y))
    assert_allclose(retrieval_map(X + 1e5, y), retrieval_map(X, y), rtol=1e-7)


def test_neighbour_measures_are_perfect_for_separate_classes():
    X, y = np.r_[np.zeros(6), np.ones(6)][:, None], [0] * 6 + [1] * 6
    assert knn_accuracy(X, y) == 1.0
    assert retrieval_map(X, y) == 1.0


class NearestDescription:
    def predict(self, X, class_table=None):
        table = {"a": [0.0], "b": [1.0]} if class_table is None else class_table
        labels, rows = list(table), np.array(list(table.values()))
        return np.array([labels[np.abs(rows - x).sum(axis=1).argmin()] for x in np.asarray(X)])


def test_zero_shot_accuracy_averages_over_classes_not_rows():
    X, y = [[0.1], [0.2], [0.3], [0.4]], ["a", "a", "a", "b"]
    assert zero_shot_accuracy(NearestDescription(), X, y) == 0.5
    assert zero_shot_accuracy(NearestDescription(), X, y, {"a": [0.2], "b": [0.4]}) == 1.0
    wider = {"a": [0.2], "b": [0.5], "c": [0.39]}  # candidates that do not occur
    assert_allclose(zero_shot_accuracy(NearestDescription(), X, y, wider), (2 / 3 + 0) / 2)


# --- bad input ------------------------------------------------------------------------

X4, Y4 = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: clustering_accuracy([0, 1], [0]), "y_true has 2 labels but y_pred has 1"),
        (lambda: clustering_accuracy([], []), "y_true: y is empty"),
        (lambda: normalized_mutual_info([0, 1], [0.0, np.nan]), "y_pred: .*NaN"),
        (lambda: cluster_scores(X4, Y4[:3]), "X has 4 rows but y has 3"),
        (lambda: cluster_scores(X4 * np.nan, Y4), "NaN"),
        (lambda: cluster_scores(np.empty((0, 2)), []), "0 sample"),
        (lambda: cluster_scores(np.empty((4, 0)), Y4), "0 feature"),
        (lambda: cluster_scores(X4, [7, 7, 7, 7]), "one class only .7."),
        (lambda: cluster_scores(X4, Y4, n_repeats=0), "n_repeats must be .* got 0"),
        (lambda: cluster_scores(X4, Y4, random_state=-1), "random_state must be .* got -1"),
        (lambda: cluster_scores(X4, Y4, starts=[0, 1]), r"shape \(2,\), expected"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 1, 2]]), r"shape \(1, 3\), expected"),
        (lambda: cluster_scores(X4, Y4, starts=[[0], [1]]), "Transpose"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 4]]), "row 4, but X has rows 0 to 3"),
        (lambda: cluster_scores(X4, Y4, starts=[[-1, 0]]), "row -1"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 1], [2, 2]]), "row 2 twice in repeat 1"),
        (lambda: cluster_scores(X4, Y4, starts=[[0.0, 1.0]]), "integers"),
        (lambda: kmeans(X4, [0, 1, 2, 3, 0]), "4 rows, fewer than the 5 clusters"),
        (lambda: kmeans(X4, np.zeros((5, 2))), "4 rows, fewer than the 5 clusters"),
        (lambda: kmeans(X4, np.zeros((2, 3))), "3 features but X has 2"),
        (lambda: kmeans(X4, [[0.0, np.inf]]), "infinity"),
        (lambda: kmeans(X4, [0, 1], max_iter=0), "max_iter must be"),
        (lambda: starting_rows(3, 5), "3 rows cannot start 5 clusters"),
        (lambda: cluster_scorer("ari"), "'accuracy' or 'nmi', got 'ari'"),
        (lambda: cluster_scorer()(LinearRegression(), X4, Y4), "has no transform"),
        (lambda: list(ClassKFold(5).split(X4, Y4)), "2 classes, too few for n_splits=5"),
        (lambda: list(ClassKFold(2).split(X4)), "y is None"),
        (lambda: list(ClassKFold(1).split(X4, Y4)), "n_splits"),
        (lambda: list(ClassShuffleSplit(test_size=1).split(X4, Y4)), "at least 2"),
        (lambda: list(ClassShuffleSplit(0).split(X4, Y4)), "n_splits must be"),
        (lambda: knn_accuracy(X4, Y4, 4), "n_neighbors=3 or less"),
        (lambda: knn_accuracy(X4, Y4, 0), "n_neighbors must be"),
        (lambda: retrieval_map(X4, [0, 1, 2, 3]), "No class in y has two rows"),
        (
            lambda: zero_shot_accuracy(NearestDescription(), [[0.0]], ["c"], {"a": [0.0]}),
            "no row for class 'c'",
        ),
        (
            lambda: zero_shot_accuracy(NearestDescription(), [[0.0]], ["a", "b"]),
            "1 rows but y has 2",
        ),
    ],
)
def test_bad_input_is_answered_with_what_was_found_and_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_folds_that_would_hold_out_a_single_class_are_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="3 classes, too few for n_splits=2"):
        list(ClassKFold(2).split(X, y))
