"""How well do selected features tell apart classes that were never labelled?

The protocol of the paper is `cluster_scores`: K-means on the rows of the unseen classes,
scored by `clustering_accuracy` and `normalized_mutual_info`. `ClassKFold` and
`ClassShuffleSplit` hold out whole classes wherever scikit-learn takes ``cv=``, and
`cluster_scorer` is the ``scoring=`` to go with them.
"""

from __future__ import annotations

import numbers
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.model_selection import BaseCrossValidator, KFold, ShuffleSplit
from sklearn.utils import check_random_state

from semfs.attributes import align_attributes
from semfs.evaluation.clustering import (
    Clustering,
    check_count,
    check_rows,
    check_starts,
    kmeans,
    run_lloyd,
)
from semfs.validation import encode_labels

__all__ = [
    "ClassKFold",
    "ClassShuffleSplit",
    "Clustering",
    "cluster_scorer",
    "cluster_scores",
    "clustering_accuracy",
    "kmeans",
    "knn_accuracy",
    "normalized_mutual_info",
    "retrieval_map",
    "starting_rows",
    "zero_shot_accuracy",
]


# --- agreement of a clustering with the classes ---------------------------------------


def clustering_accuracy(y_true: Any, y_pred: Any) -> float:
    """Return the share of rows that agree under the best one-to-one match of labels.

    Each class is matched with at most one cluster (Hungarian algorithm); the rows of
    surplus clusters count as errors.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)
        Classes and clusters; labels of any hashable type, their names do not matter.

    Examples
    --------
    >>> clustering_accuracy(["ant", "ant", "cat", "cat"], [1, 1, 0, 2])
    0.75
    """
    return _accuracy(_contingency(y_true, y_pred))


def normalized_mutual_info(y_true: Any, y_pred: Any) -> float:
    """Return I(y_true; y_pred) / max(H(y_true), H(y_pred)), between 0 and 1.

    This is the normalisation of the paper, ``average_method="max"`` in scikit-learn
    (whose default, the arithmetic mean, gives larger numbers). Two labelings that both
    consist of one cluster agree perfectly: 1.0.

    Parameters
    ----------
    y_true, y_pred : array-like of shape (n,)

    Examples
    --------
    >>> round(normalized_mutual_info([0, 0, 1, 1], [0, 0, 1, 2]), 6)
    0.666667
    """
    return _mutual_info(_contingency(y_true, y_pred))


def _contingency(y_true: Any, y_pred: Any) -> np.ndarray:
    classes, codes = _encode("y_true", y_true)
    clusters, labels = _encode("y_pred", y_pred)
    if len(codes) != len(labels):
        raise ValueError(
            f"y_true has {len(codes)} labels but y_pred has {len(labels)}. "
            "Pass one of each per row."
        )
    return _table(codes, labels, len(classes), len(clusters))


def _encode(name: str, labels: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        return encode_labels(labels)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error


def _table(
    codes: np.ndarray, labels: np.ndarray, n_classes: int, n_clusters: int
) -> np.ndarray:
    cells = np.bincount(codes * n_clusters + labels, minlength=n_classes * n_clusters)
    return cells.reshape(n_classes, n_clusters)


def _accuracy(table: np.ndarray) -> float:
    return float(table[linear_sum_assignment(table, maximize=True)].sum() / table.sum())


def _mutual_info(table: np.ndarray) -> float:
    joint = table / table.sum()
    rows, columns = joint.sum(axis=1), joint.sum(axis=0)
    largest = max(_entropy(rows), _entropy(columns))
    if largest == 0.0:
        return 1.0
    some = joint > 0
    information = joint[some] @ np.log(joint[some] / np.outer(rows, columns)[some])
    return float(np.clip(information / largest, 0.0, 1.0))


def _entropy(p: np.ndarray) -> float:
    if np.count_nonzero(p) < 2:
        return 0.0
    p = p[p > 0]
    return float(-(p @ np.log(p)))


# --- the clustering protocol ----------------------------------------------------------


def cluster_scores(
    X: Any, y: Any, n_repeats: int = 20, random_state: Any = 0, starts: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster the rows into as many clusters as there are classes, and compare.

    Every repeat is a single K-means run (`kmeans`) from its own starting rows; report
    the mean over repeats, not the best. The starting rows depend on the number of rows
    and classes and on ``random_state`` only (`starting_rows`), so that all selectors and
    all numbers of features are compared from the same starts.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Rows of the unseen classes, restricted to the selected features.
    y : array-like of shape (n,)
        Their classes, used for scoring only.
    n_repeats : int
        Number of runs; ignored if ``starts`` is given.
    random_state : int, RandomState, Generator or None
        Seed of the starting rows; ignored if ``starts`` is given.
    starts : array-like of shape (n_repeats, K), optional
        Row indices to start from, K different ones for each repeat.

    Returns
    -------
    accuracies, nmis : ndarrays of shape (n_repeats,)

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> cluster_scores(X, ["ant"] * 3 + ["cat"] * 3, n_repeats=2)
    (array([1., 1.]), array([1., 1.]))
    """
    X = check_rows(X)
    classes, codes = encode_labels(y, n_samples=X.shape[0])
    K = len(classes)
    if K < 2:
        raise ValueError(
            f"y has one class only ({classes.tolist()[0]!r}), and clustering is scored "
            "against at least 2. Pass the rows of several classes."
        )
    if starts is None:
        starts = starting_rows(X.shape[0], K, n_repeats, random_state)
    else:
        starts = check_starts(np.asarray(starts), X.shape[0], K)
    labels, _, _ = run_lloyd(X, X[starts])
    tables = [_table(codes, found, K, K) for found in labels]
    return np.array([_accuracy(t) for t in tables]), np.array([_mutual_info(t) for t in tables])


def starting_rows(
    n_samples: int, n_clusters: int, n_repeats: int = 20, random_state: Any = 0
) -> np.ndarray:
    """Draw ``n_clusters`` different rows for each repeat, shape (n_repeats, n_clusters).

    Repeat r is drawn with the seed (random_state, r): more repeats leave the first ones
    as they are. The stream is NumPy's ``RandomState``, which does not change between
    versions.

    Examples
    --------
    >>> starting_rows(100, 3, n_repeats=2, random_state=0).shape
    (2, 3)
    """
    check_count("n_clusters", n_clusters)
    check_count("n_repeats", n_repeats)
    if n_samples < n_clusters:
        raise ValueError(
            f"{n_samples} rows cannot start {n_clusters} clusters. "
            "Pass at least as many rows as clusters."
        )
    seed = _seed(random_state)
    draws = [np.random.RandomState([seed, r]).permutation(n_samples) for r in range(n_repeats)]
    return np.array([rows[:n_clusters] for rows in draws], dtype=np.intp)


def _seed(random_state: Any) -> int:
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**32))
    if not isinstance(random_state, numbers.Integral):
        return int(check_random_state(random_state).randint(2**31))
    seed = int(random_state)
    if not 0 <= seed < 2**32:
        raise ValueError(
            f"random_state must be between 0 and 2**32 - 1, got {seed}. Choose another seed."
        )
    return seed


def cluster_scorer(
    metric: str = "accuracy", *, n_repeats: int = 20, random_state: Any = 0
) -> Callable[[Any, Any, Any], float]:
    """Return a scorer for ``scoring=``: the mean of `cluster_scores` on the test rows.

    The scorer clusters ``estimator.transform(X)`` and compares with ``y``, so it serves
    any selector, and any pipeline that ends in one; ``predict`` is not needed. Use it
    with `ClassKFold` or `ClassShuffleSplit`: then the test rows are of unseen classes.

    Parameters
    ----------
    metric : {"accuracy", "nmi"}
    n_repeats, random_state
        As in `cluster_scores`.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from sklearn.feature_selection import SelectKBest
    >>> from sklearn.model_selection import GridSearchCV
    >>> X, y = make_blobs(300, n_features=10, centers=10, cluster_std=3, random_state=0)
    >>> search = GridSearchCV(SelectKBest(), {"k": [1, 8]}, cv=ClassKFold(5),
    ...                       scoring=cluster_scorer(n_repeats=5))
    >>> search.fit(X, y).best_params_
    {'k': 8}
    """
    if metric not in ("accuracy", "nmi"):
        raise ValueError(f"metric must be 'accuracy' or 'nmi', got {metric!r}.")
    return partial(_mean_score, metric=metric, n_repeats=n_repeats, random_state=random_state)


def _mean_score(estimator: Any, X: Any, y: Any, *, metric: str, **settings: Any) -> float:
    if not hasattr(estimator, "transform"):
        raise ValueError(
            f"{type(estimator).__name__} has no transform. Score a feature selector, or a "
            "pipeline that ends in one."
        )
    accuracies, nmis = cluster_scores(estimator.transform(X), y, **settings)
    return float(np.mean(accuracies if metric == "accuracy" else nmis))


# --- splitting by class ---------------------------------------------------------------


class ClassKFold(BaseCrossValidator):
    """Cross-validation that holds out whole classes: K folds of classes.

    Each class is in the test part once. The folds have equal numbers of classes (plus or
    minus one), because that, more than the number of rows, decides how hard they are to
    tell apart. Use it as ``cv=`` anywhere in scikit-learn, with a ``scoring=`` that needs
    no labels of the training classes, such as `cluster_scorer`: a classifier's default
    score is zero on classes it has never seen.

    Parameters
    ----------
    n_splits : int
    shuffle : bool
        Deal the classes at random; otherwise neighbours in sorted order share a fold.
    random_state : int, RandomState or None
        Used with ``shuffle=True``.

    Examples
    --------
    >>> y = ["ant", "bee", "cat", "dog", "ant", "bee"]
    >>> for train, test in ClassKFold(2).split(y, y):
    ...     print(train, test)
    [2 3] [0 1 4 5]
    [0 1 4 5] [2 3]
    """

    def __init__(
        self, n_splits: int = 5, *, shuffle: bool = False, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.shuffle = shuffle
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of folds."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the row indices of the training and test classes; ``groups`` is ignored."""
        folds = KFold(self.n_splits, shuffle=self.shuffle, random_state=self.random_state)
        classes, codes = encode_labels(y, n_samples=_n_rows(X))
        if len(classes) < 2 * self.n_splits:
            raise ValueError(
                f"y has {len(classes)} classes, too few for n_splits={self.n_splits}: each "
                "fold needs at least 2 classes to tell apart. "
                + _at_most("n_splits", len(classes) // 2)
            )
        yield from _rows_of_classes(folds.split(classes), codes)


class ClassShuffleSplit(BaseCrossValidator):
    """Random splits that hold out whole classes.

    Parameters
    ----------
    n_splits : int
    test_size : float or int
        Share of the classes (rounded up) or number of classes in the test part.
    random_state : int, RandomState or None

    Examples
    --------
    >>> y = np.array(["ant", "bee", "cat", "dog", "ant", "bee"])
    >>> for train, test in ClassShuffleSplit(2, test_size=2, random_state=0).split(y, y):
    ...     print(sorted(set(y[train].tolist())), sorted(set(y[test].tolist())))
    ['ant', 'bee'] ['cat', 'dog']
    ['bee', 'dog'] ['ant', 'cat']
    """

    def __init__(
        self, n_splits: int = 10, *, test_size: float = 0.2, random_state: Any = None
    ) -> None:
        self.n_splits = n_splits
        self.test_size = test_size
        self.random_state = random_state

    def get_n_splits(self, X: Any = None, y: Any = None, groups: Any = None) -> int:
        """Return the number of splits."""
        return self.n_splits

    def split(
        self, X: Any, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the row indices of the training and test classes; ``groups`` is ignored."""
        check_count("n_splits", self.n_splits)
        classes, codes = encode_labels(y, n_samples=_n_rows(X))
        splits = ShuffleSplit(
            self.n_splits, test_size=self.test_size, random_state=self.random_state
        )
        found = list(splits.split(classes))
        n_train, n_test = map(len, found[0])
        if min(n_train, n_test) < 2:
            raise ValueError(
                f"test_size={self.test_size} of {len(classes)} classes leaves {n_train} for "
                f"training and {n_test} for testing; both parts need at least 2. "
                "Change test_size, or pass rows of more classes."
            )
        yield from _rows_of_classes(iter(found), codes)


def _rows_of_classes(
    splits: Iterator[tuple[np.ndarray, np.ndarray]], codes: np.ndarray
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for _, test_classes in splits:
        test = np.isin(codes, test_classes)
        yield np.flatnonzero(~test), np.flatnonzero(test)


# --- further measures -----------------------------------------------------------------


def knn_accuracy(X: Any, y: Any, n_neighbors: int = 5) -> float:
    """Return the leave-one-out accuracy of k nearest neighbours.

    Every row is classified by the majority among the ``n_neighbors`` nearest other rows
    (Euclidean; equal distances: the lower row index first); between classes with as many
    votes the one with the nearest voter wins. A class with a single row is never right.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
    y : array-like of shape (n,)
    n_neighbors : int

    Examples
    --------
    >>> knn_accuracy([[0.0], [0.1], [5.0], [5.2]], ["a", "a", "b", "b"], n_neighbors=1)
    1.0
    """
    X = check_rows(X)
    classes, codes = encode_labels(y, n_samples=X.shape[0])
    check_count("n_neighbors", n_neighbors)
    if n_neighbors >= X.shape[0]:
        raise ValueError(
            f"n_neighbors={n_neighbors} but there are {X.shape[0]} rows, so each has "
            f"{X.shape[0] - 1} neighbours. " + _at_most("n_neighbors", X.shape[0] - 1)
        )
    right = 0
    for first, distances in _distance_blocks(X):
        m = len(distances)
        votes = codes[_smallest(distances, n_neighbors)]
        cells = np.arange(m)[:, None] * len(classes) + votes
        counts = np.bincount(cells.ravel(), minlength=m * len(classes))[cells]
        predicted = votes[np.arange(m), counts.argmax(axis=1)]
        right += int(np.count_nonzero(predicted == codes[first : first + m]))
    return right / len(codes)


def retrieval_map(X: Any, y: Any) -> float:
    """Return the mean average precision of retrieving rows of the same class.

    Every row in turn is the query; all others are ranked by Euclidean distance. The
    average precision is the mean, over the other rows of its class, of the precision at
    their rank; rows at exactly the same distance enter together, so the order of rows
    does not matter (as in scikit-learn's ``average_precision_score``). Exact, in blocks
    of queries: memory grows with n only. Rows alone in their class are not queries.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
    y : array-like of shape (n,)

    Examples
    --------
    >>> retrieval_map([[0.0], [0.1], [5.0], [5.2]], ["a", "a", "b", "b"])
    1.0
    """
    X = check_rows(X)
    classes, codes = encode_labels(y, n_samples=X.shape[0])
    members = [np.flatnonzero(codes == c) for c in range(len(classes))]
    queries = [len(rows) > 1 for rows in members]
    if not any(queries):
        raise ValueError(
            "No class in y has two rows, so there is nothing to retrieve. "
            "Pass several rows of each class."
        )
    total, n_queries = 0.0, 0
    for first, distances in _distance_blocks(X):
        for ranked, c in zip(distances, codes[first : first + len(distances)]):
            if queries[c]:
                wanted = np.sort(ranked[members[c]])[:-1]  # the last is the query, at inf
                ranked.sort()
                total += np.mean(_count_up_to(wanted, wanted) / _count_up_to(ranked, wanted))
                n_queries += 1
    return float(total / n_queries)


def zero_shot_accuracy(selector: Any, X: Any, y: Any, class_table: Any = None) -> float:
    """Return the mean over classes of the share of rows that ``selector.predict`` gets right.

    This is the convention of the zero-shot benchmarks of Xian et al. (top-1 accuracy
    averaged per class, so that rare classes count as much as common ones).

    Parameters
    ----------
    selector : fitted SemFS, or any object with ``predict(X, class_table=...)``
    X : array-like of shape (n, d)
        Rows with all features, as ``predict`` expects them.
    y : array-like of shape (n,)
        Their classes.
    class_table : DataFrame, mapping or array, optional
        Descriptions of the candidate classes: the unseen ones for zero-shot learning, all
        for the generalised setting. By default those the selector was fitted with.

    Examples
    --------
    >>> class Nearest:
    ...     def predict(self, X, class_table):
    ...         labels, rows = list(class_table), np.array(list(class_table.values()))
    ...         return [labels[np.abs(rows - x).sum(axis=1).argmin()] for x in np.array(X)]
    >>> table = {"ant": [0.0], "cat": [1.0]}
    >>> zero_shot_accuracy(Nearest(), [[0.1], [0.9], [0.2]], ["ant", "cat", "cat"], table)
    0.75
    """
    classes, codes = encode_labels(y, n_samples=_n_rows(X))
    if class_table is None:
        predicted = selector.predict(X)
    else:
        align_attributes(class_table, classes)  # a class that cannot be predicted is an error
        predicted = selector.predict(X, class_table=class_table)
    predicted = np.asarray(predicted)
    if predicted.shape != codes.shape:
        raise ValueError(
            f"predict returned an array of shape {predicted.shape} for {len(codes)} rows. "
            "It must return one label per row."
        )
    hits = predicted == classes[codes]
    return float(np.mean(np.bincount(codes, weights=hits) / np.bincount(codes)))


def _count_up_to(ranked: np.ndarray, values: np.ndarray) -> np.ndarray:
    return np.searchsorted(ranked, values, side="right")


def _distance_blocks(X: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield (first row, squared distances (m, n) to all rows), inf to the row itself."""
    X = X - X.mean(axis=0)  # smaller numbers, less cancellation
    squares = np.einsum("ij,ij->i", X, X)
    step = max(1, 4_000_000 // len(X))
    for first in range(0, len(X), step):
        part = slice(first, first + step)
        distances = X[part] @ (-2.0 * X.T)
        distances += squares
        distances += squares[part, None]
        m = np.arange(len(distances))
        distances[m, first + m] = np.inf
        yield first, distances


def _smallest(distances: np.ndarray, k: int) -> np.ndarray:
    """Return the columns (m, k) of the k smallest entries of each row, ties by column."""
    found = np.argpartition(distances, k - 1, axis=1)[:, :k]
    values = np.take_along_axis(distances, found, axis=1)
    for i in np.flatnonzero((distances <= values.max(axis=1)[:, None]).sum(axis=1) > k):
        found[i] = np.argsort(distances[i], kind="stable")[:k]
    found.sort(axis=1)
    order = np.argsort(np.take_along_axis(distances, found, axis=1), axis=1, kind="stable")
    return np.take_along_axis(found, order, axis=1)


def _at_most(name: str, largest: int) -> str:
    return f"Use {name}={largest} or less."


def _n_rows(X: Any) -> int:
    return X.shape[0] if hasattr(X, "shape") else len(X)
