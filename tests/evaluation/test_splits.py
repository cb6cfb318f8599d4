"""Splits that hold out whole classes, in the hands of scikit-learn."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.datasets import load_digits
from sklearn.feature_selection import SelectKBest
from sklearn.model_selection import cross_val_score

from semfs.evaluation import ClassKFold, ClassShuffleSplit, cluster_scorer, cluster_scores


def digits():
    """Digits without constant columns, which SelectKBest would complain about."""
    X, y = load_digits(return_X_y=True)
    return X[:300] + 0.01 * np.random.default_rng(0).normal(size=(300, 64)), y[:300]


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
    assert all((a[1] == b[1]).all() for a, b in zip(parts, splits.split(y, y)))


def test_cross_validation_scores_a_selector_on_classes_it_has_not_seen():
    X, y = digits()
    cv = ClassKFold(5)
    scorer = pickle.loads(pickle.dumps(cluster_scorer("nmi", n_repeats=4)))
    scores = cross_val_score(SelectKBest(k=20), X, y, cv=cv, scoring=scorer)
    by_hand = []
    for train, test in cv.split(X, y):
        selector = SelectKBest(k=20).fit(X[train], y[train])
        by_hand.append(cluster_scores(selector.transform(X[test]), y[test], 4)[1].mean())
    assert_allclose(scores, by_hand)


def test_the_scorer_takes_accuracy_by_both_of_its_names():
    X, y = digits()
    selector = SelectKBest(k=20).fit(X, y)
    scores = [cluster_scorer(name, n_repeats=2)(selector, X, y) for name in ("acc", "accuracy")]
    assert scores[0] == scores[1]


X4, Y4 = np.arange(8.0).reshape(4, 2), [0, 0, 1, 1]


@pytest.mark.parametrize(
    "splitter, y, message",
    [
        (ClassKFold(5), Y4, "ClassKFold needs at least 4 classes, but y has 2"),
        (ClassKFold(2), [0, 1, 2, 2], "ClassKFold needs at least 4 classes, but y has 3"),
        (
            ClassKFold(3),
            [0, 1, 2, 3],
            "least 6 classes, 2 in each fold, but y has 4. .*n_splits=2 or",
        ),
        (ClassKFold(2), None, "y is None"),
        (ClassKFold(1), Y4, "n_splits must be at least 2, got 1"),
        (ClassShuffleSplit(test_size=1), Y4, "at least 2"),
        (ClassShuffleSplit(0), Y4, "n_splits must be"),
        (ClassShuffleSplit(), Y4[:3], "inconsistent numbers"),
    ],
)
def test_classes_that_cannot_be_split_are_refused(splitter, y, message):
    with pytest.raises(ValueError, match=message):
        list(splitter.split(X4, y))
