"""How well features separate classes: the paper's clustering protocol, and k-NN.

K-means is scikit-learn's, with the iteration limits of litekmeans, the program used for the
paper. It runs in one thread, because several threads would sum up cluster centers in varying
order, so that results could differ between machines.
"""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Protocol

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp
from scipy.optimize import linear_sum_assignment
from scipy.special import entr
from sklearn import config_context
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score
from sklearn.neighbors import KNeighborsClassifier
from sklearn.utils import check_array, check_consistent_length, check_random_state

from semfs._typing import ArrayLike, Float64, Indices, LabelsLike, Matrix, RandomState
from semfs.labels import encode_labels
from semfs.rows.threads import libraries
from semfs.validation import check_integer, check_option

#: Iterations of one K-means run, as in litekmeans.
MAX_ITER = 100


class Transformer(Protocol):
    """A fitted selector, or a pipeline that ends in one."""

    def transform(self, X: Matrix) -> Matrix:
        """Return the selected columns (n, k) of X (n, d)."""


#: A scorer as scikit-learn calls it: ``scorer(estimator, X, y)``.
Scorer = Callable[[Transformer, Matrix, LabelsLike], float]


# --- K-means ---------------------------------------------------------------------------


#: Numbers beyond this, or below its inverse, are rescaled before distances are computed.
LARGEST = 1e100


def cluster_scores(
    X: ArrayLike | Matrix,
    y: LabelsLike,
    n_repeats: int = 20,
    random_state: RandomState = 0,
    starts: ArrayLike | None = None,
) -> tuple[Float64, Float64]:
    """Cluster samples into one cluster per class and return accuracies and NMIs.

    Each repeat is one run of Lloyd's K-means from its own starting rows. Report the mean over
    the repeats, not the best. The starting rows depend only on ``random_state`` and the numbers
    of samples and classes, so all selectors are compared from the same starting rows. Both
    results have shape (n_repeats,).

    Parameters
    ----------
    X : array-like or sparse matrix of shape (n, d)
        Samples of the unseen classes, restricted to the selected features.
    y : array-like of shape (n,)
        Classes of the samples, which are used only for scoring.
    n_repeats, random_state
        Number of K-means runs, and the seed of their `starting_rows`.
    starts : array-like of shape (n_repeats, K), optional
        Indices of the rows to start from. Each repeat needs K different rows, where K is the
        number of classes. By default, they are drawn by `starting_rows`.

    Examples
    --------
    >>> X = [[0.0], [0.1], [0.2], [5.0], [5.1], [5.2]]
    >>> cluster_scores(X, ["ant"] * 3 + ["cat"] * 3, n_repeats=2)
    (array([1., 1.]), array([1., 1.]))
    """
    codes, runs = clusterings(X, y, n_repeats, random_state, starts)
    scores = [accuracy_and_nmi(codes, clusters) for clusters in runs]
    accuracies, nmis = np.array(scores).T
    return accuracies, nmis


def clusterings(
    X: ArrayLike | Matrix,
    y: LabelsLike,
    n_repeats: int = 20,
    random_state: RandomState = 0,
    starts: ArrayLike | None = None,
) -> tuple[Indices, list[npt.NDArray]]:
    """Return the classes (n,) as codes from 0, and the clusters (n,) of each K-means run.

    The parameters are those of `cluster_scores`.
    """
    with np.errstate(invalid="ignore"):  # of sums of huge numbers, which are legal
        samples = check_array(
            X,
            accept_sparse=True,
            dtype=np.float64,
            order="C",
        )
    if sp.issparse(samples):
        samples = samples.toarray(order="C")
    largest = float(np.abs(samples).max(initial=0.0))
    if largest > LARGEST or 0.0 < largest < 1.0 / LARGEST:
        # clusters do not depend on the unit, but squares of these numbers overflow
        samples = samples / largest
    classes, codes = encode_labels(y, n_samples=len(samples))
    n_clusters = len(classes)
    if n_clusters < 2:
        raise ValueError(
            f"y has only one class ({classes.tolist()[0]!r}), but "
            "clusters can only be compared with two or more classes. "
            "Pass samples of several classes."
        )
    if starts is None:
        starts = starting_rows(len(codes), n_clusters, n_repeats, random_state)
    else:
        starts = _check_starts(np.asarray(starts), n_clusters, len(codes))
    return codes, run_kmeans(samples, starts, n_clusters)


def _check_starts(starts: npt.NDArray, n_clusters: int, n_samples: int) -> Indices:
    """Check the starting rows and return them with shape (n_repeats, n_clusters)."""
    valid = (
        starts.size > 0
        and starts.shape[1:] == (n_clusters,)
        and starts.dtype.kind in "iu"
        and 0 <= starts.min() <= starts.max() < n_samples
    )
    if valid:
        repeated = np.diff(np.sort(starts, axis=1), axis=1) == 0
        valid = not repeated.any()
    if not valid:
        raise ValueError(
            f"starts must hold the indices of {n_clusters} different rows "
            "of X for each repeat, which are whole numbers from 0 to "
            f"{n_samples - 1}; found {starts.dtype} of shape "
            f"{starts.shape}: {starts.tolist()[:3]}."
        )
    return starts


def run_kmeans(X: Float64, starts: Indices, n_clusters: int) -> list[npt.NDArray]:
    """Return the clusters (n,) of one K-means run for each row of ``starts``."""
    found = []
    one_thread = libraries().limit(limits=1)
    # X was checked by the caller.
    unchecked = config_context(assume_finite=True, skip_parameter_validation=True)
    # K-means warns if X has fewer distinct rows than clusters; the score shows it anyway.
    silent = warnings.catch_warnings(action="ignore", category=ConvergenceWarning)
    with one_thread, unchecked, silent:
        for start in starts:
            # tol=0: a run ends when no sample changes its cluster, or after MAX_ITER.
            kmeans = KMeans(
                n_clusters,
                init=X[start],
                n_init=1,
                max_iter=MAX_ITER,
                tol=0,
                algorithm="lloyd",
            )
            found.append(kmeans.fit(X).labels_)
    return found


def starting_rows(
    n_samples: int, n_clusters: int, n_repeats: int = 20, random_state: RandomState = 0
) -> Indices:
    """Draw ``n_clusters`` different rows for each repeat.

    The result has shape (n_repeats, n_clusters). The seed of repeat r is (random_state, r), so
    a larger ``n_repeats`` adds repeats without changing the first ones. NumPy's ``RandomState``
    gives the same numbers in all versions.

    >>> starting_rows(100, 3, n_repeats=2, random_state=0).shape
    (2, 3)
    """
    check_integer("n_clusters", n_clusters, 1)
    check_integer("n_repeats", n_repeats, 1)
    if n_samples < n_clusters:
        raise ValueError(
            f"{n_samples} samples are too few for {n_clusters} clusters. Pass more samples."
        )
    # A generator or None is drawn from once; all repeats follow from this seed.
    if isinstance(random_state, numbers.Integral):
        seed = random_state
    else:
        seed = check_random_state(random_state).randint(2**31)
    rows = []
    for repeat in range(n_repeats):
        generator = np.random.RandomState([seed, repeat])
        rows.append(generator.permutation(n_samples)[:n_clusters])
    return np.array(rows)


def cluster_scorer(
    metric: str = "accuracy", *, n_repeats: int = 20, random_state: RandomState = 0
) -> Scorer:
    """Return a scorer for ``scoring=`` that averages `cluster_scores` on the test samples.

    The estimator must be a selector or a pipeline that ends with one. The scorer clusters
    ``estimator.transform(X)``. Use it with `ClassKFold` or `ClassShuffleSplit`, whose test
    samples belong to classes that are not in the training part.

    Parameters
    ----------
    metric : {"accuracy", "nmi"}
        The score to average. "acc" is accepted as a short form of "accuracy".
    n_repeats, random_state
        See `cluster_scores`.

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
    if metric == "acc":  # as the tables of results call it
        metric = "accuracy"
    check_option("metric", metric, ("accuracy", "nmi"))
    # A partial function can be pickled, which scikit-learn needs for n_jobs.
    return partial(
        _mean_score,
        metric=metric,
        n_repeats=n_repeats,
        random_state=random_state,
    )


def _mean_score(
    estimator: Transformer,
    X: Matrix,
    y: LabelsLike,
    *,
    metric: str,
    n_repeats: int,
    random_state: RandomState,
) -> float:
    """Return the mean accuracy or NMI of K-means on the features that the estimator selects."""
    selected = estimator.transform(X)
    accuracies, nmis = cluster_scores(selected, y, n_repeats, random_state)
    scores = accuracies if metric == "accuracy" else nmis
    return float(scores.mean())


# --- agreement of clusters with classes ------------------------------------------------


def clustering_accuracy(y_true: LabelsLike, y_pred: LabelsLike) -> float:
    """Return the accuracy under the best one-to-one matching of clusters and classes.

    Each class in y_true is matched with at most one cluster in y_pred. Label values do not
    matter. Samples in unmatched clusters count as errors.

    Examples
    --------
    >>> clustering_accuracy(["ant", "ant", "cat", "cat"], [1, 1, 0, 2])
    0.75
    """
    codes, clusters = _encode_pair(y_true, y_pred)
    accuracy, _ = accuracy_and_nmi(codes, clusters)
    return accuracy


def normalized_mutual_info(y_true: LabelsLike, y_pred: LabelsLike) -> float:
    """Return the normalized mutual information of two labelings, between 0 and 1.

    The value is I(y_true; y_pred) / max(H(y_true), H(y_pred)). The paper uses this
    normalization, and so does scikit-learn with ``average_method="max"``. Scikit-learn's
    default, the arithmetic mean, gives larger values. If both labelings have only one cluster,
    the result is 1.0.

    Examples
    --------
    >>> round(normalized_mutual_info([0, 0, 1, 1], [0, 0, 1, 2]), 6)
    0.666667
    """
    codes, clusters = _encode_pair(y_true, y_pred)
    _, nmi = accuracy_and_nmi(codes, clusters)
    return nmi


def adjusted_rand(y_true: LabelsLike, y_pred: LabelsLike) -> float:
    """Return the adjusted Rand index of two labelings.

    The index is the share of pairs of samples on which both labelings agree (same cluster or
    different clusters), corrected for chance. It is 1 for identical partitions, about 0 for
    random partitions, and never below -0.5. The function is equivalent to scikit-learn's
    ``adjusted_rand_score``, but labels may have any hashable type.

    Examples
    --------
    >>> adjusted_rand(["ant", "ant", "cat", "cat"], [1, 1, 0, 0])
    1.0
    >>> round(adjusted_rand(["ant", "ant", "cat", "cat"], [1, 1, 0, 2]), 6)
    0.571429
    """
    codes, clusters = _encode_pair(y_true, y_pred)
    return float(adjusted_rand_score(codes, clusters))


def _encode_pair(y_true: LabelsLike, y_pred: LabelsLike) -> tuple[Indices, Indices]:
    """Return both labelings (n,) as codes from 0."""
    check_consistent_length(y_true, y_pred)
    _, codes = encode_labels(y_true)
    _, clusters = encode_labels(y_pred)
    return codes, clusters


def accuracy_and_nmi(codes: Indices, clusters: Indices) -> tuple[float, float]:
    """Return accuracy and NMI of clusters (n,) and classes (n,), given as codes from 0.

    Both are computed from one contingency table, without scikit-learn's input checks, which
    would take longer than the scores themselves.
    """
    n_samples = len(codes)
    n_classes = int(codes.max()) + 1
    n_clusters = int(clusters.max()) + 1
    cells = np.bincount(codes * n_clusters + clusters, minlength=n_classes * n_clusters)
    table = cells.reshape(n_classes, n_clusters)
    # The best one-to-one match of classes with clusters (Hungarian algorithm).
    matched = linear_sum_assignment(table, maximize=True)
    accuracy = float(table[matched].sum() / n_samples)

    # I(classes; clusters) = H(classes) + H(clusters) - H(both), divided by the larger entropy.
    # entr(p) = -p log p, which is 0 at p = 0.
    entropy_classes = entr(table.sum(axis=1) / n_samples).sum()
    entropy_clusters = entr(table.sum(axis=0) / n_samples).sum()
    mutual_info = entropy_classes + entropy_clusters - entr(table / n_samples).sum()
    largest = max(entropy_classes, entropy_clusters)
    if largest == 0:  # one class and one cluster: they agree
        return accuracy, 1.0
    # Rounding errors may leave the ratio just outside of 0 to 1.
    return accuracy, float(np.clip(mutual_info / largest, 0.0, 1.0))


# --- nearest neighbors -----------------------------------------------------------------


def knn_balanced_accuracy(
    X_train: ArrayLike | Matrix,
    y_train: LabelsLike,
    X_test: ArrayLike | Matrix,
    y_test: LabelsLike,
    n_neighbors: int = 5,
) -> float:
    """Return the balanced accuracy of a k-nearest-neighbor classifier on test samples.

    Balanced accuracy is the share of correctly classified samples of each class, averaged over
    the classes in ``y_test``. Small and large classes therefore have the same weight. A class
    that is not in ``y_train`` contributes 0.

    Parameters
    ----------
    X_train, X_test : array-like or sparse matrix of shape (n, d) and (n', d)
        Training and test samples, restricted to the selected features.
    y_train, y_test : array-like of shape (n,) and (n',)
        Classes of the training and test samples.
    n_neighbors : int, default=5
        Number of nearest neighbors (by Euclidean distance). They vote with equal weights.

    Examples
    --------
    >>> X_train, y_train = [[0.0], [0.2], [5.0], [5.2]], ["ant", "ant", "cat", "cat"]
    >>> X_test, y_test = [[0.1], [5.1], [0.3]], ["ant", "cat", "cat"]
    >>> knn_balanced_accuracy(X_train, y_train, X_test, y_test, n_neighbors=1)
    0.75
    """
    with np.errstate(invalid="ignore"):  # of sums of huge numbers, which are legal
        X_train = check_array(
            X_train,
            accept_sparse="csr",
            dtype=np.float64,
        )
        X_test = check_array(X_test, accept_sparse="csr", dtype=np.float64)
    train_classes, train_codes = encode_labels(y_train, n_samples=X_train.shape[0])
    test_classes, test_codes = encode_labels(y_test, n_samples=X_test.shape[0])
    check_integer("n_neighbors", n_neighbors, 1)
    if n_neighbors > len(train_codes):
        raise ValueError(
            f"n_neighbors={n_neighbors}, but there are {len(train_codes)} training samples. "
            "Use fewer neighbors or more samples."
        )
    classifier = KNeighborsClassifier(n_neighbors).fit(X_train, train_codes)
    predicted = classifier.predict(X_test)
    # A class that was not trained has code -1, which is never predicted.
    recognized = predicted == _codes_among(test_classes, train_classes)[test_codes]
    hits = np.bincount(test_codes, weights=recognized)
    recalls = hits / np.bincount(test_codes)
    return float(recalls.mean())


def _codes_among(labels: npt.NDArray, known: Sequence | npt.NDArray) -> Indices:
    """Return the position of each label among the known labels, or -1 if it is unknown."""
    position = {label: i for i, label in enumerate(np.asarray(known).tolist())}
    return np.array([position.get(label, -1) for label in labels.tolist()], dtype=np.intp)
