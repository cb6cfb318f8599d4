"""How well columns tell unseen classes apart: the paper's clustering protocol.

The K-means runs are scikit-learn's, with the limits of litekmeans, and in one thread: several
would add up the centers in an order of their own, and runs on two machines might differ.
"""

import numbers
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.special import entr
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, check_consistent_length, check_random_state

from semfs.labels import encode_labels
from semfs.rows.threads import libraries
from semfs.validation import check_integer, check_option


def cluster_scores(
    X: Any, y: Any, n_repeats: int = 20, random_state: Any = 0, starts: Any = None
) -> tuple[np.ndarray, np.ndarray]:
    """Cluster rows into as many clusters as there are classes; return accuracies and NMIs.

    Both have shape (n_repeats,): every repeat is a single run of Lloyd's K-means from its own
    starting rows; report the mean over repeats, not the best. Starting rows depend on the
    numbers of rows and classes and on ``random_state`` only, so that all selectors are compared
    from the same ones.

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Rows of the unseen classes, restricted to the selected features.
    y : array-like of shape (n,)
        Their classes, used for scoring only.
    n_repeats, random_state
        Number of runs, and seed of their `starting_rows`.
    starts : array-like of shape (n_repeats, K), optional
        Row indices to start from instead, K different ones for each repeat.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> cluster_scores(X, ["ant"] * 3 + ["cat"] * 3, n_repeats=2)
    (array([1., 1.]), array([1., 1.]))
    """
    X = check_array(X.toarray() if sp.issparse(X) else X, dtype=np.float64, order="C")
    classes, codes = encode_labels(y, n_samples=X.shape[0])
    n, K = len(codes), len(classes)
    if K < 2:
        raise ValueError(
            f"y has one class only ({classes.tolist()[0]!r}), and clustering is scored "
            "against at least 2. Pass the rows of several classes."
        )
    drawn = starting_rows(n, K, n_repeats, random_state) if starts is None else starts
    starts = np.asarray(drawn)
    fine = starts.size and starts.shape[1:] == (K,) and starts.dtype.kind in "iu"
    fine = fine and 0 <= starts.min() <= starts.max() < n
    if not fine or (np.diff(np.sort(starts)) == 0).any():
        raise ValueError(
            f"starts must hold for each repeat {K} different rows of X, whole numbers from 0 "
            f"to {n - 1}; found {starts.dtype} of shape {starts.shape}: {starts.tolist()[:3]}."
        )
    rules = {"n_init": 1, "max_iter": 100, "tol": 0, "algorithm": "lloyd"}
    # X was checked; and fewer distinct rows than clusters are no news to who counts hits.
    checked = config_context(assume_finite=True, skip_parameter_validation=True)
    silent = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
    with libraries().limit(limits=1), checked, silent:
        found = [KMeans(K, init=X[start], **rules).fit(X).labels_ for start in starts]
    accuracies, nmis = np.array([_accuracy_and_nmi(codes, labels) for labels in found]).T
    return accuracies, nmis


def starting_rows(
    n_samples: int, n_clusters: int, n_repeats: int = 20, random_state: Any = 0
) -> np.ndarray:
    """Draw ``n_clusters`` different rows for each repeat, shape (n_repeats, n_clusters).

    Repeat r is drawn with the seed (random_state, r): more repeats leave the first ones as
    they are. NumPy's ``RandomState`` does not change between versions.

    >>> starting_rows(100, 3, n_repeats=2, random_state=0).shape
    (2, 3)
    """
    check_integer("n_clusters", n_clusters, 1)
    check_integer("n_repeats", n_repeats, 1)
    if n_samples < n_clusters:
        raise ValueError(f"{n_samples} rows cannot start {n_clusters} clusters. Pass more.")
    if not isinstance(random_state, numbers.Integral):
        random_state = check_random_state(random_state).randint(2**31)
    draws = (np.random.RandomState([random_state, r]) for r in range(n_repeats))
    return np.array([draw.permutation(n_samples)[:n_clusters] for draw in draws])


def cluster_scorer(
    metric: str = "accuracy", *, n_repeats: int = 20, random_state: Any = 0
) -> Callable[[Any, Any, Any], float]:
    """Return a scorer for ``scoring=``: the mean of `cluster_scores` on the test rows.

    It clusters ``estimator.transform(X)``: of a selector, or a pipeline that ends in one. Use
    it with `ClassKFold` or `ClassShuffleSplit`: the test rows are of unseen classes.

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
    >>> from semfs.evaluation import ClassKFold
    >>> X, y = make_blobs(300, n_features=10, centers=10, cluster_std=3, random_state=0)
    >>> search = GridSearchCV(SelectKBest(), {"k": [1, 8]}, cv=ClassKFold(5),
    ...                       scoring=cluster_scorer(n_repeats=5))
    >>> search.fit(X, y).best_params_
    {'k': 8}
    """
    check_option("metric", metric, ("accuracy", "nmi"))
    return partial(_mean_score, metric=metric, n_repeats=n_repeats, random_state=random_state)


def _mean_score(estimator: Any, X: Any, y: Any, *, metric: str, **settings: Any) -> float:
    accuracies, nmis = cluster_scores(estimator.transform(X), y, **settings)
    return float(np.mean(accuracies if metric == "accuracy" else nmis))


def clustering_accuracy(y_true: Any, y_pred: Any) -> float:
    """Return the share of rows that agree under the best one-to-one match of labels.

    Each class of y_true (n,) is matched with at most one cluster of y_pred (n,), whatever they
    are called; rows of surplus clusters are errors.

    Examples
    --------
    >>> clustering_accuracy(["ant", "ant", "cat", "cat"], [1, 1, 0, 2])
    0.75
    """
    check_consistent_length(y_true, y_pred)
    return _accuracy_and_nmi(encode_labels(y_true)[1], encode_labels(y_pred)[1])[0]


def normalized_mutual_info(y_true: Any, y_pred: Any) -> float:
    """Return I(y_true; y_pred) / max(H(y_true), H(y_pred)) of two labelings (n,), 0 to 1.

    The normalization of the paper, ``average_method="max"`` in scikit-learn, whose default,
    the arithmetic mean, gives larger numbers. Two labelings of one cluster agree: 1.0.

    Examples
    --------
    >>> round(normalized_mutual_info([0, 0, 1, 1], [0, 0, 1, 2]), 6)
    0.666667
    """
    check_consistent_length(y_true, y_pred)
    return _accuracy_and_nmi(encode_labels(y_true)[1], encode_labels(y_pred)[1])[1]


def _accuracy_and_nmi(codes: np.ndarray, clusters: np.ndarray) -> tuple[float, float]:
    """Both scores of clusters (n,), from one table; scikit-learn's checks take longer."""
    n, n_clusters = len(codes), int(clusters.max()) + 1
    size = (int(codes.max()) + 1) * n_clusters
    table = np.bincount(codes * n_clusters + clusters, minlength=size).reshape(-1, n_clusters)
    hits = table[linear_sum_assignment(table, maximize=True)].sum()
    H_codes, H_clusters = (entr(table.sum(axis=axis) / n).sum() for axis in (1, 0))
    largest, shared = max(H_codes, H_clusters), H_codes + H_clusters - entr(table / n).sum()
    return float(hits / n), float(np.clip(shared / largest, 0.0, 1.0)) if largest else 1.0
