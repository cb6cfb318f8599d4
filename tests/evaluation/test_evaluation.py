"""The clustering protocol and the other measures on unseen classes."""

from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.metrics import (
    adjusted_rand_score,
    balanced_accuracy_score,
    normalized_mutual_info_score,
)
from sklearn.neighbors import KNeighborsClassifier
from threadpoolctl import threadpool_limits

from semfs import evaluation
from semfs.evaluation import (
    adjusted_rand,
    cluster_scores,
    clustering_accuracy,
    knn_balanced_accuracy,
    normalized_mutual_info,
)

# Inputs and results of the reference programs; reading an archive computes nothing.
GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "kmeans_metrics.npz")


# --- golden numbers -------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, mean_acc, mean_nmi", [("toy12", 0.825, 0.831752), ("synth60", 0.850833, 0.842310)]
)
def test_cluster_scores_are_those_of_the_reference_programs(name, mean_acc, mean_nmi):
    X, y, starts = (GOLDEN[f"{name}__{key}"] for key in ("X", "y", "start_rows"))
    acc, nmi = cluster_scores(X, y, starts=starts)
    assert_allclose(acc, GOLDEN[f"{name}__acc"], atol=1e-12)
    assert_allclose(nmi, GOLDEN[f"{name}__nmi_max"], atol=1e-12)
    assert_allclose([acc.mean(), nmi.mean()], [mean_acc, mean_nmi], atol=5e-7)


@pytest.mark.parametrize("name", ["toy12", "synth60"])
def test_every_run_finds_the_clusters_of_litekmeans(name):
    X, starts = GOLDEN[f"{name}__X"], GOLDEN[f"{name}__start_rows"]
    for start, labels in zip(starts, GOLDEN[f"{name}__labels"]):
        acc, _ = cluster_scores(X, labels, starts=[start])
        assert acc == 1.0  # the same partition, as the best match of labels says


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


# --- the protocol ---------------------------------------------------------------------


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
def test_scores_do_not_depend_on_offset_scale_or_container(change):
    X, y, starts = (GOLDEN[f"synth60__{key}"] for key in ("X", "y", "start_rows"))
    acc, nmi = cluster_scores(change(X), y, starts=starts)
    assert_allclose(acc, GOLDEN["synth60__acc"], atol=1e-12)
    assert_allclose(nmi, GOLDEN["synth60__nmi_max"], atol=1e-12)


def test_scores_do_not_depend_on_the_number_of_threads():
    X, y = load_digits(return_X_y=True)
    with threadpool_limits(1):
        one = cluster_scores(X, y, n_repeats=2)
    assert_array_equal(cluster_scores(X, y, n_repeats=2), one)


@pytest.mark.filterwarnings("error")
def test_fewer_distinct_rows_than_classes_are_scored_without_a_warning():
    acc, nmi = cluster_scores(np.ones((6, 2)), [0, 0, 1, 1, 2, 2], n_repeats=3)
    assert ((acc >= 1 / 3) & (acc <= 1)).all()
    assert ((nmi >= 0) & (nmi <= 1)).all()


def test_starting_rows_depend_on_sizes_and_seed_only():
    rows = evaluation.starting_rows(50, 4, 20, 0)
    assert rows.shape == (20, 4)
    assert all(len(set(r)) == 4 for r in rows.tolist())
    assert_array_equal(evaluation.starting_rows(50, 4, 5, 0), rows[:5])
    assert not (evaluation.starting_rows(50, 4, 20, 1) == rows).all(axis=1).any()
    assert_array_equal(rows[0], [32, 29, 13, 49])  # pinned: stored results rely on it
    draws = [evaluation.starting_rows(50, 4, 3, np.random.RandomState(5)) for _ in range(2)]
    assert_array_equal(*draws)


# --- accuracy and NMI -----------------------------------------------------------------

labelings = st.integers(1, 40).flatmap(
    lambda n: st.tuples(*[st.lists(st.integers(0, 5), min_size=n, max_size=n)] * 2)
)


@settings(max_examples=40, deadline=None)
@given(labelings, st.permutations(range(6)))
def test_scores_lie_between_0_and_1_and_ignore_the_names_of_clusters(pair, names):
    true, predicted = pair
    renamed = [f"cluster {names[p]}" for p in predicted]
    for score in (clustering_accuracy, normalized_mutual_info):
        assert 0 <= score(true, predicted) <= 1
        assert_allclose(score(true, renamed), score(true, predicted), atol=1e-12)
        assert_allclose(score(predicted, true), score(true, predicted), atol=1e-12)
        assert_allclose(score(true, true), 1, atol=1e-12)


def test_nmi_divides_by_the_larger_entropy():
    true, predicted = [0, 0, 1, 1], [0, 1, 2, 3]
    assert_allclose(normalized_mutual_info(true, predicted), 0.5)
    assert normalized_mutual_info_score(true, predicted) > 0.6  # by their mean
    assert normalized_mutual_info([7, 7], ["a", "a"]) == 1.0
    assert normalized_mutual_info([7, 8], ["a", "a"]) == 0.0


def test_adjusted_rand_is_scikit_learns_for_labels_of_any_type():
    true, predicted = list("aabbbccc"), [0, 0, 0, 1, 1, 2, 2, 3]
    codes = [ord(label) for label in true]
    assert_allclose(adjusted_rand(true, predicted), adjusted_rand_score(codes, predicted))
    pairs = [(label, "x") for label in true]
    assert adjusted_rand(pairs, true) == 1.0
    assert adjusted_rand([0, 0, 1, 1], [0, 1, 0, 1]) == -0.5


# --- nearest neighbors ----------------------------------------------------------------


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array, sp.csc_array])
def test_knn_balanced_accuracy_is_the_mean_recall_of_scikit_learns_classifier(container):
    X, y = load_digits(return_X_y=True)
    noise = np.random.default_rng(0).normal(size=(400, 8))  # no two distances are equal
    X = X[:400, ::8] + noise
    names = np.array(list("abcdefghij"))[y[:400]]
    classifier = KNeighborsClassifier(3).fit(X[:250], names[:250])
    expected = balanced_accuracy_score(names[250:], classifier.predict(X[250:]))
    parts = (container(X[:250]), names[:250], container(X[250:]), names[250:])
    assert_allclose(knn_balanced_accuracy(*parts, n_neighbors=3), expected)
    assert expected < 1


def test_knn_classes_count_alike_and_one_without_training_samples_counts_as_zero():
    X_train, y_train = [[0.0], [1.0], [5.0]], ["ant", "ant", "cat"]
    X_test, y_test = [[0.1], [0.2], [0.3], [5.1]], ["ant", "ant", "ant", "cat"]
    assert knn_balanced_accuracy(X_train, y_train, X_test, y_test, n_neighbors=1) == 1.0
    y_test[3] = "cow"
    assert knn_balanced_accuracy(X_train, y_train, X_test, y_test, n_neighbors=1) == 0.5


# --- bad input ------------------------------------------------------------------------

X4, Y4 = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]


@pytest.mark.parametrize(
    "call, message",
    [
        (lambda: clustering_accuracy([0, 1], [0]), r"inconsistent .* \[2, 1\]"),
        (lambda: clustering_accuracy([], []), "y is empty"),
        (lambda: normalized_mutual_info([0, 1], [0.0, np.nan]), "NaN"),
        (lambda: cluster_scores(X4, Y4[:3]), "X has 4 rows but y has 3"),
        (lambda: cluster_scores(np.empty((0, 2)), []), "0 sample"),
        (lambda: cluster_scores(np.empty((4, 0)), Y4), "0 feature"),
        (lambda: cluster_scores(X4, [7, 7, 7, 7]), "only one class .7."),
        (lambda: cluster_scores(X4, Y4, n_repeats=0), "n_repeats must be .* got 0"),
        (lambda: cluster_scores(X4, Y4, random_state=-1), "Seed must be between 0"),
        (lambda: cluster_scores(X4, Y4, starts=[0, 1]), r"2 different rows of X.*shape \(2,\)"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 1, 2]]), r"2 different.*shape \(1, 3\)"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 4]]), r"from 0 to 3; found .*\[\[0, 4\]\]"),
        (lambda: cluster_scores(X4, Y4, starts=[[0, 1], [2, 2]]), r"2 different.*\[2, 2\]"),
        (lambda: cluster_scores(X4, Y4, starts=[[0.0, 1.0]]), "whole numbers"),
        (lambda: evaluation.starting_rows(3, 5), "3 samples are too few for 5 clusters"),
        (lambda: evaluation.cluster_scorer("ari"), "'accuracy' or 'nmi', got 'ari'"),
        (lambda: adjusted_rand([0, 1], [0]), r"inconsistent .* \[2, 1\]"),
        (lambda: knn_balanced_accuracy(X4, Y4[:3], X4, Y4), "X has 4 rows but y has 3"),
        (lambda: knn_balanced_accuracy(X4, Y4, X4, Y4, 0), "n_neighbors must be .* got 0"),
        (lambda: knn_balanced_accuracy(X4, Y4, X4, Y4), "n_neighbors=5, but there are 4 train"),
    ],
)
def test_bad_input_is_answered_with_what_was_found_and_what_to_do(call, message):
    with pytest.raises(ValueError, match=message):
        call()
