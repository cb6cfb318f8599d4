"""Classes among rows that nobody has labeled: clusters of them, found with what is known.

The seen classes tell along which directions rows of one class differ anyway (a metric), and how
wide a class is (their number). Clusters are found in the leading principal components of all
rows, in that metric if it serves the seen classes too.
"""

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import entr
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_limits

from semfs.attributes import AttributeTable
from semfs.attributes.targets import classes_to_come, target_problem
from semfs.labels import encode_labels
from semfs.method.moments import Moments
from semfs.method.objective import Objective, Quadratic
from semfs.rows import Rows
from semfs.selectors.training import RESCALE, StreamedRows, Units

N_COMPONENTS = 32  # principal components to cluster in
SAMPLE = 1000  # at most so many rows of either kind decide on components and metric
NUMBER_SAMPLE = 2000  # and on the number
LARGEST_SAMPLE = 20_000  # unlabeled rows to cluster; the others join the nearest cluster
FEWEST_ROWS = 10  # fewer unlabeled rows are not clustered
NEW_CLASS_PENALTY = 0.1  # of clusters, whose means are targets, in units of gamma
EQUAL_ROWS = 5.0  # seen classes weigh as new ones of so many rows each, and less next to more
MOST_CLASSES, N_HALVES = 40, 2  # seen classes that tell of metric and width, in halves


def further_knowledge(
    selector: Any, objective: Objective, table: AttributeTable, units: Units, unlabeled: Any
) -> tuple[dict[str, Any], list[Quadratic]]:
    """Return fitted attributes that tell what else is known, and the problems it makes."""
    direct, given = selector.solver == "direct", selector.target_attributes
    described = "" if selector.attributes is None else f", {len(table.names)} attributes"
    said = {"seen classes": f"used: {len(table.classes)} classes{described}"}
    new = classes_to_come(selector.attributes, given, table)
    r2, K, labels, problems = float("nan"), 0, np.zeros(0, dtype=np.intp), []
    if new is not None and direct:
        problem, r2, note = target_problem(objective, table, units.table(new))
        said["classes to come"] = f"{len(new.classes)} described, {note}"
        problems.append(problem)
        if problem is None and not isinstance(given, str):
            warnings.warn(f"target_attributes was {note}.", stacklevel=5)
    if unlabeled is not None:
        if not direct:
            raise ValueError('unlabeled rows need solver="direct".')
        streamed, wanted = isinstance(unlabeled, StreamedRows), selector.n_new_classes
        n = unlabeled.rows.labels.n_unlabeled if streamed else unlabeled.X.shape[0]
        labels, K, problem, note = _new_class_problem(objective, unlabeled, n, wanted)
        said["unlabeled rows"] = f"{n} rows, {note}"
        problems.append(problem)
    found: dict[str, Any] = {"knowledge_": said, "new_table_": new, "target_r2_": r2}
    found |= {"n_new_classes_": K, "unlabeled_labels_": labels}
    return found, [problem for problem in problems if problem is not None]


def _new_class_problem(
    objective: Objective, unlabeled: Any, n: int, n_new_classes: int | str
) -> tuple[np.ndarray, int, Quadratic | None, str]:
    """Clusters of n unlabeled rows, their number, and the problem of telling them apart."""
    seen = objective.moments.rows
    wanted = FEWEST_ROWS if n_new_classes == "auto" else max(FEWEST_ROWS, int(n_new_classes))
    note = ""
    if isinstance(unlabeled, Rows) and not isinstance(seen, Rows):
        note = "not used: the seen rows are not in memory"
    if n < wanted:
        note = f"not used: {n} are too few to cluster. Give at least {wanted} or none"
    if note:
        warnings.warn(f"unlabeled rows were {note}.", stacklevel=6)
        return np.full(n, -1), 0, None, note
    if isinstance(unlabeled, Rows):
        X = unlabeled.X
        found = find_new_classes(seen.X, seen.codes, X, n_new_classes)
        nearest = found.assign(X) if found.labels is None else found.labels
        classes, labels = np.unique(nearest, return_inverse=True)
        own = Moments.from_checked(X, labels, np.arange(len(classes)), unlabeled.weights)
    else:
        found, own, labels = _streamed_classes(seen, unlabeled, n_new_classes)
    own = own.without_empty_classes()
    M = own.means - own.mean
    squares, Q = np.linalg.eigh(M @ M.T)
    problem = Objective.from_moments(
        own,
        Q * np.sqrt(np.maximum(squares, 0.0)),  # which have the same products as M
        alpha=objective.alpha,
        gamma=NEW_CLASS_PENALTY * objective.penalty,
        penalty_scale=objective.penalty_scale,
        fit_intercept=True,
    ).quadratic()
    K = len(own.classes)
    share = min(1.0, EQUAL_ROWS * K / n)
    weight = objective.q / max(share * problem.q, np.finfo(float).tiny)
    where = "in a metric of the seen classes" if found.metric else "as they are"
    note = f"used: {K} clusters {where}, seen classes weigh {share:.2f} of them"
    return labels, K, problem.scaled_by(weight) if problem.q > 0 else None, note


def _streamed_classes(
    seen: Any, unlabeled: StreamedRows, n_new_classes: int | str
) -> tuple["NewClasses", Moments, np.ndarray]:
    """The same beyond memory: clusters of a sample, and moments of all rows near each."""
    rows = unlabeled.rows
    X, _ = rows.sample(LARGEST_SAMPLE, labeled=False)
    size = float(abs(X).max())
    if X.dtype == np.float32 and size and not 1e-12 < size < 1e12:
        raise ValueError(f"unlabeled rows have numbers as large as {size:.0e}. {RESCALE}")
    if not isinstance(seen, Rows):
        X_seen, labels = unlabeled.seen.sample(SAMPLE, labeled=True)
        seen = Rows(X_seen, encode_labels(labels.array())[1], None)
    found = find_new_classes(seen.X, seen.codes, X, n_new_classes)
    named = rows.assign(found)
    own = Moments.from_sums(*named.sums(**unlabeled.options))
    codes = np.zeros(0, dtype=np.intp) if named.labels is None else named.labels.used().codes
    return found, own, np.searchsorted(own.classes, codes)


@dataclass(frozen=True)
class NewClasses:
    """Centers of the new classes in a space that rows are projected to."""

    centers: np.ndarray  # (K, p)
    labels: np.ndarray | None  # of the rows, if all of them were clustered
    directions: np.ndarray  # (d, p) of the projection Z = X @ directions - offset
    offset: np.ndarray  # (p,)
    metric: bool  # whether it takes account of the scatter within the seen classes

    def assign(self, X: Any) -> np.ndarray:
        """Return the nearest new class (n,) of each row of X (n, d)."""
        return self.nearest(self.project(X))

    def project(self, X: Any, columns: slice = slice(None)) -> np.ndarray:
        """Return what some columns X (n, g) of rows add to X @ directions (n, p)."""
        return _project(X, self.directions[columns])

    def nearest(self, products: np.ndarray) -> np.ndarray:
        """Return the nearest new class (n,), given X @ directions (n, p)."""
        Z = products - self.offset
        return np.argmin((self.centers**2).sum(axis=1) - 2.0 * Z @ self.centers.T, axis=1)


def find_new_classes(
    seen: Any, codes: np.ndarray, unlabeled: Any, n_new_classes: int | str
) -> NewClasses:
    """Cluster rows without labels (n_unlabeled, d), given rows (n, d) of seen classes (n,)."""
    rng = np.random.default_rng(0)
    few_seen, few = _sample(len(codes), SAMPLE, rng), _sample(unlabeled.shape[0], SAMPLE, rng)
    directions, mean = _principal_directions([seen[few_seen], unlabeled[few]], rng)
    classes = np.unique(codes)
    if len(classes) > MOST_CLASSES:  # many rows of a few classes say more of their width
        few_seen = np.flatnonzero(np.isin(codes, rng.permutation(classes)[:MOST_CLASSES]))
        few_seen = few_seen[_sample(len(few_seen), SAMPLE, rng)]
    codes = np.unique(codes[few_seen], return_inverse=True)[1]
    Z_seen = _project(seen[few_seen], directions) - mean
    with threadpool_limits(1, user_api="openmp"):
        W = _metric(Z_seen, codes, rng)
        if W is not None:
            directions, mean, Z_seen = directions @ W, mean @ W, Z_seen @ W
        more = _sample(unlabeled.shape[0], LARGEST_SAMPLE, rng)
        Z = _project(unlabeled[more], directions) - mean
        if n_new_classes == "auto":
            some = Z[_sample(len(Z), NUMBER_SAMPLE, rng)]  # they may be sorted
            n_new_classes = _matching_number(Z_seen, codes.max() + 1, some)
        found = _kmeans(Z, int(n_new_classes), n_init=3)
    used, labels = np.unique(found.labels_, return_inverse=True)
    known = labels if isinstance(more, slice) else None
    return NewClasses(found.cluster_centers_[used], known, directions, mean, W is not None)


def _sample(n: int, most: int, rng: np.random.Generator) -> Any:
    """An index of at most ``most`` of n rows, in random order if there are more."""
    return slice(None) if n <= most else rng.permutation(n)[:most]


def _project(X: Any, V: np.ndarray) -> np.ndarray:
    return np.asarray(X @ V.astype(X.dtype), dtype=np.float64)


def _principal_directions(
    parts: list[Any], rng: np.random.Generator, n_rounds: int = 2
) -> tuple[np.ndarray, np.ndarray]:
    """Orthogonal directions (d, p) of largest spread, by subspace iteration, and the mean."""
    n, d = sum(part.shape[0] for part in parts), parts[0].shape[1]
    mean = sum(np.asarray(part.sum(axis=0), dtype=np.float64).ravel() for part in parts) / n
    p = min(N_COMPONENTS, d, n - 1)
    V = rng.standard_normal((d, min(p + 10, d)))
    for _ in range(n_rounds):
        images = [_project(part, V) - mean @ V for part in parts]
        V = sum(
            np.asarray(part.T @ Z.astype(part.dtype), dtype=np.float64)
            for part, Z in zip(parts, images)
        ) - np.outer(mean, sum(Z.sum(axis=0) for Z in images))
        if not np.abs(V).max() < 1e150:  # as of X in its units
            raise ValueError("unlabeled rows are far larger than X. Give both in one unit.")
        values, Q = np.linalg.eigh(V.T @ V)  # orthonormal in a fraction of the time of a QR
        V = V @ (Q / np.sqrt(np.maximum(values, 1e-14 * values[-1] + np.finfo(float).tiny)))
    Z = np.concatenate([_project(part, V) - mean @ V for part in parts])
    size = float(np.abs(Z).max()) or 1.0  # which is the unit: float32 has room for it
    V = V @ (np.linalg.eigh(Z.T @ Z)[1][:, ::-1][:, :p] / size)
    return V, mean @ V


def _whitening(Z: np.ndarray, codes: np.ndarray) -> np.ndarray:
    """The square root (p, p) of the inverse within-class covariance, half way to spherical."""
    sums = np.zeros((codes.max() + 1, Z.shape[1]))
    np.add.at(sums, codes, Z)
    E = Z - (sums / np.bincount(codes)[:, None])[codes]
    S = E.T @ E / len(E)
    S[np.diag_indices_from(S)] += np.trace(S) / len(S)
    values, Q = np.linalg.eigh(S)
    return (Q / np.sqrt(np.maximum(values, np.finfo(float).tiny))) @ Q.T


def _metric(Z: np.ndarray, codes: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """The whitening (p, p) by the scatter within the seen classes, or None if it does not help:
    learned on one half of the classes, judged by how well K-means finds the other."""
    C = codes.max() + 1
    if C < 4 or not np.ptp(Z):
        return None
    gain = 0.0
    for _ in range(N_HALVES):
        halves = np.array_split(rng.permutation(C), 2)
        for learn, judge in (halves, halves[::-1]):
            W = _whitening(*_rows_of(Z, codes, learn))
            Z_judge, labels = _rows_of(Z, codes, judge)
            gain += _agreement(Z_judge @ W, labels) - _agreement(Z_judge, labels)
    return _whitening(Z, codes) if gain > 0.0 else None


def _rows_of(Z: np.ndarray, codes: np.ndarray, classes: Any) -> tuple[np.ndarray, np.ndarray]:
    rows = np.isin(codes, classes)
    return Z[rows], np.unique(codes[rows], return_inverse=True)[1]


def _agreement(Z: np.ndarray, codes: np.ndarray) -> float:
    """Mutual information of classes and as many clusters, over the larger entropy."""
    k = codes.max() + 1
    P = np.zeros((k, k))
    np.add.at(P, (codes, _kmeans(Z, k, n_init=1).labels_), 1.0 / len(codes))
    own = [entr(P.sum(axis=axis)).sum() for axis in (0, 1)]
    return float((sum(own) - entr(P).sum()) / max(own))


def _matching_number(Z_seen: np.ndarray, n_seen: int, Z: np.ndarray) -> int:
    """The smallest number of clusters that are as narrow as those of the seen rows are."""
    width = _width(Z_seen, n_seen)
    low, high = 1, max(2, len(Z) // 5)  # at least five rows each
    while high - low > max(1, low // 8):
        middle = int(np.sqrt(low * high)) if high > 2 * low else (low + high) // 2
        middle = max(middle, low + 1)
        low, high = (low, middle) if _width(Z, middle) <= width else (middle, high)
    return max(2, high)


def _width(Z: np.ndarray, k: int) -> float:
    """Mean squared distance from the center of the cluster, for k clusters."""
    return 0.0 if k >= len(Z) else _kmeans(Z, k, n_init=1).inertia_ / (len(Z) - k)


def _kmeans(Z: np.ndarray, k: int, n_init: int) -> KMeans:
    model = KMeans(k, init=_starts, n_init=n_init, random_state=0)
    return model.fit(Z.astype(np.float32))  # half the time


def _starts(Z: np.ndarray, k: int, random_state: np.random.RandomState) -> np.ndarray:
    """Starting points (k, p) as of K-means++, but drawn an eighth of those there are at a time:
    several times faster than its own."""
    squares, nearest = (Z**2).sum(axis=1), np.full(len(Z), np.inf)
    rows = new = random_state.randint(len(Z), size=1)
    while len(rows) < k:
        distances = squares + squares[new, None] - 2.0 * (Z[new] @ Z.T)
        nearest = np.maximum(np.minimum(nearest, distances.min(axis=0)), 0.0)
        reached = np.cumsum(nearest)
        draws = random_state.uniform(size=min(k - len(rows), 1 + len(rows) // 8))
        new = np.searchsorted(reached, draws * reached[-1]).clip(max=len(Z) - 1)
        rows = np.append(rows, new)
    return Z[rows]
