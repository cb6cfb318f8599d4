"""Agreement of clusters, neighbours and predictions with classes that were never labelled."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.optimize import linear_sum_assignment
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_array, check_consistent_length

from semfs.attributes import align_attributes
from semfs.validation import encode_labels

__all__ = [
    "accuracy_and_nmi",
    "clustering_accuracy",
    "knn_accuracy",
    "normalized_mutual_info",
    "zero_shot_accuracy",
]


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
    return accuracy_and_nmi(*_codes(y_true, y_pred))[0]


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
    return accuracy_and_nmi(*_codes(y_true, y_pred))[1]


def _codes(y_true: Any, y_pred: Any) -> tuple[np.ndarray, np.ndarray]:
    """Both labelings as numbers (n,)."""
    check_consistent_length(y_true, y_pred)
    return encode_labels(y_true)[1], encode_labels(y_pred)[1]


def accuracy_and_nmi(codes: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Both scores of clusters (n,), from one table; scikit-learn's checks take longer."""
    n, n_clusters = len(codes), int(clusters.max()) + 1
    size = (int(codes.max()) + 1) * n_clusters
    table = np.bincount(codes * n_clusters + clusters, minlength=size).reshape(-1, n_clusters)
    hits = table[linear_sum_assignment(table, maximize=True)].sum()
    H_codes, H_clusters = _entropy(table.sum(axis=1) / n), _entropy(table.sum(axis=0) / n)
    largest, shared = max(H_codes, H_clusters), H_codes + H_clusters - _entropy(table / n)
    return float(hits / n), float(np.clip(shared / largest, 0.0, 1.0)) if largest else 1.0


def _entropy(p: np.ndarray) -> float:
    p = p[p > 0]
    return float(-(p @ np.log(p)))


def knn_accuracy(X: Any, y: Any, n_neighbors: int = 5) -> float:
    """Return the leave-one-out accuracy of k nearest neighbours.

    Every row is classified by the majority among the ``n_neighbors`` nearest other rows
    (Euclidean); between classes with as many votes the one with the nearest voter wins.
    A class with a single row is never right.

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
    X = check_array(X, accept_sparse="csr", dtype=np.float64, input_name="X")
    _, codes = encode_labels(y, n_samples=X.shape[0])
    near = NearestNeighbors(n_neighbors=n_neighbors).fit(X).kneighbors(return_distance=False)
    votes = codes[near]  # nearest first
    counts = (votes[:, :, None] == votes[:, None, :]).sum(axis=2)
    predicted = votes[np.arange(len(votes)), counts.argmax(axis=1)]
    return float(np.mean(predicted == codes))


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
    classes, codes = encode_labels(y)
    if class_table is None:
        predicted = selector.predict(X)
    else:
        align_attributes(class_table, classes)  # a class that cannot be predicted is an error
        predicted = selector.predict(X, class_table=class_table)
    check_consistent_length(predicted, y)
    hits = np.asarray(predicted) == classes[codes]
    return float(np.mean(np.bincount(codes, weights=hits) / np.bincount(codes)))
