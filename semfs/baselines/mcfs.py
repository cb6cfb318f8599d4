"""MCFS: features that explain a spectral embedding of the samples."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.linalg import LinAlgError, cho_factor, cho_solve, eigh
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import check_random_state

from semfs._typing import Float64, Floats, Indices, RandomState
from semfs.baselines.base import Baseline, Training
from semfs.constraints import Above, OneOf, WholeNumber
from semfs.validation import warn_user

#: Added to the Gram matrix in the direction solve only, as in the original.
LARS_RIDGE = 1e-3
#: Rows used to estimate the mean distance, as in the original.
ROWS_FOR_WIDTH = 3000
#: Rows up to which the eigendecomposition is dense, and exact (some seconds).
DENSE_LIMIT = 3000
#: Restarts of some 40 products each after which Lanczos gives up.
LANCZOS_RESTARTS = 300
LANCZOS_TOL = 1e-8
#: A heat weight that underflows stays an edge, if a weak one.
SMALLEST_WEIGHT = 1e-200
#: Why a graph of neighbors cannot be made.
NO_DISTANCES = (
    "The values of X are so far from 0 that distances between samples "
    "are lost to rounding. Center X."
)
#: Eigenvalues below this are zero: their eigenvectors say nothing of the graph.
SMALLEST_EIGENVALUE = 1e-6


@dataclass(eq=False, repr=False, kw_only=True)
class MCFS(Baseline):
    """Multi-Cluster Feature Selection (Cai, Zhang and He, KDD 2010).

    1. A nearest-neighbor graph W of the samples is built. The K smoothest nontrivial solutions
       of ``(D - W) y = λ D y`` form an embedding of the samples.
    2. Each coordinate is explained by ``n_features_to_select`` features,
       ``min_a ‖y_q - Xa‖²  s.t.  card(a) = k``, on the LARS-lasso path.
    3. ``score_j = max_q |a_qj|``, after each coefficient vector is scaled to unit length.

    Parameters
    ----------
    n_features_to_select, random_state
        Common parameters; see `semfs.baselines`. ``n_features_to_select`` is also the
        cardinality k of the regressions, so scores depend on it.
    n_components : int, default=5
        Number K of embedding coordinates. If you know the number of clusters, use it.
    n_neighbors : int, default=5
        Number of nearest neighbors in the graph.
    weight : {"heat", "binary"}, default="heat"
        Edge weights: ``exp(-distance²/(2 width²))`` for "heat", and 1 for "binary".
    heat_width : float or None, default=None
        The width in the formula above. None uses the mean of all n² distances. If there are
        more than 3,000 samples, the mean is taken over 3,000 random ones.

    Attributes
    ----------
    embedding_ : ndarray of shape (n, K)
        The embedding of the samples.
    eigenvalues_ : ndarray of shape (K,)
        Eigenvalues of ``D^-1/2 W D^-1/2``. The value 1 occurs once for each component of the
        graph after the first.
    coef_ : ndarray of shape (d, K)
        Unit-length regression coefficients.
    heat_width_ : float or None
        The width that was used; None for "binary" weights.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data[:300]
    >>> MCFS(10, n_components=10).fit(X).transform(X).shape
    (300, 10)
    """

    n_components: int = 5
    n_neighbors: int = 5
    weight: str = "heat"
    heat_width: float | None = None
    random_state: RandomState = 0

    _constraints = {
        "n_components": WholeNumber(1),
        "n_neighbors": WholeNumber(1),
        "weight": OneOf("heat", "binary"),
        "heat_width": Above(0),
    }

    def _scores(self, data: Training) -> Float64:
        """Return the largest coefficient of each feature over the coordinates."""
        X = data.varying
        if self.weight == "binary":
            self.heat_width_ = None
        elif self.heat_width is None:
            self.heat_width_ = mean_distance(X, check_random_state(self.random_state))
        else:
            self.heat_width_ = self.heat_width
        distance, index = nearest_neighbors(X, self.n_neighbors)
        W = neighbor_graph(distance, index, self.heat_width_)
        self.embedding_, self.eigenvalues_ = spectral_embedding(W, self.n_components)
        if self.embedding_.shape[1] == 0:
            raise ValueError(
                "The neighbor graph has no spectral coordinates. Raise n_neighbors."
            )
        coef = lars_coefficients(X, self.embedding_, self._n_wanted(X.shape[1]))
        self.coef_ = data.spread(coef)
        return np.abs(coef).max(axis=1)


def lars_coefficients(X: Floats, embedding: Float64, cardinality: int) -> Float64:
    """Return unit-length coefficients (d, K) of each coordinate of an embedding (n, K)."""
    X = X.astype(np.float64)
    gram = X.T @ X
    # The path of cy is c times that of y: scaled so, extremes of a heat kernel do not overflow.
    scale = np.abs(embedding).max(axis=0)
    beta = X.T @ (embedding / np.where(scale > 0, scale, 1.0))
    for column in beta.T:
        column[:] = lars_to_cardinality(gram, column, cardinality)
    norms = np.linalg.norm(beta, axis=0)
    return beta / np.where(norms > 0, norms, 1.0)


def lars_to_cardinality(gram: Float64, c: Float64, cardinality: int) -> Float64:
    """Return β (d,) where the lasso path first has ``cardinality`` nonzero entries, or ends.

    The inputs are XᵀX and c = Xᵀy. As in the original, a ridge is added only where the
    direction is solved for, so scikit-learn's ``lars_path_gram`` gives other numbers.
    """
    m = min(cardinality, len(c))
    c = np.array(c, dtype=np.float64)
    beta = np.zeros(len(c))
    inactive = np.ones(len(c), dtype=bool)
    active: list[int] = []
    smallest = 1e-12 * np.abs(c).max()
    removed = False
    for _ in range(20 * m + 100):  # features may leave the path again, but not endlessly
        C = np.abs(c[inactive]).max() if inactive.any() else np.abs(c).max()
        if smallest >= C:
            break
        if not removed:
            j = int(np.argmax(np.where(inactive, np.abs(c), -1.0)))
            active.append(j)
            inactive[j] = False
        # The direction w in which the correlations of the active features fall alike.
        rows = gram[active]
        sign = np.sign(c[active])
        try:
            h = cho_solve(cho_factor(rows[:, active] + LARS_RIDGE * np.eye(len(active))), sign)
        except LinAlgError:  # duplicates so large that the ridge is lost in rounding
            break
        alpha = (sign @ h) ** -0.5
        w = alpha * h
        a = w @ rows
        # Go until an inactive feature catches up, or an active one is back at zero.
        ahead = (_positive(C - c, alpha - a), _positive(C + c, alpha + a))
        to_zero = _positive(-beta[active], w)
        gamma = np.min(ahead, initial=C / alpha, where=inactive)
        removed = bool(to_zero.min() < gamma)
        gamma = min(gamma, to_zero.min())
        beta[active] += gamma * w
        c -= gamma * a
        if removed:
            j = active.pop(int(np.argmin(to_zero)))
            beta[j] = 0.0
            inactive[j] = True
        elif len(active) == m:
            break
    return beta


def _positive(numerator: Float64, denominator: Float64) -> Float64:
    """Return the ratios. Those that are not strictly positive become infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator / denominator
    return np.where(ratio > 0, ratio, np.inf)


def nearest_neighbors(X: Floats, p: int) -> tuple[Float64, Indices]:
    """Return distances and indices (n, p) of the p nearest other rows of each row of X."""
    n = X.shape[0]
    p = min(p, n - 1)
    # Ten more than needed: of equal distances the original program takes the lower index.
    finder = NearestNeighbors(n_neighbors=min(n - 1, p + 10), algorithm="brute").fit(X)
    distance, index = finder.kneighbors()
    distance = np.asarray(distance, dtype=np.float64)
    order = np.lexsort((index, distance), axis=1)[:, :p]
    return np.take_along_axis(distance, order, 1), np.take_along_axis(index, order, 1)


def mean_distance(X: Floats, rng: np.random.RandomState) -> float:
    """Return the mean of all n² distances between rows, or between 3,000 random rows."""
    if X.shape[0] > ROWS_FOR_WIDTH:
        X = X[rng.choice(X.shape[0], ROWS_FOR_WIDTH, replace=False)]
    mean = float(euclidean_distances(X).mean(dtype=np.float64))
    if mean == 0.0:  # not because rows are equal: constant columns were left out
        raise ValueError(NO_DISTANCES)
    return mean


def neighbor_graph(distance: Float64, index: Indices, width: float | None) -> sp.csr_array:
    """Return the graph W (n, n) of neighbor lists (n, p); the larger of two weights counts."""
    weights = np.ones(distance.shape)
    if width is not None:
        weights = np.maximum(np.exp(-((distance / width) ** 2) / 2.0), SMALLEST_WEIGHT)
    W = neighbor_matrix(weights, index)
    return W.maximum(W.T).tocsr()


def neighbor_matrix(weights: Float64, index: Indices) -> sp.csr_array:
    """Return the matrix (n, n) with weights (n, p) at the places of neighbors (n, p)."""
    n, p = index.shape
    rows = np.repeat(np.arange(n), p)
    return sp.csr_array((weights.ravel(), (rows, index.ravel())), shape=(n, n))


def spectral_embedding(
    W: sp.csr_array, n_components: int, *, dense_limit: int = DENSE_LIMIT
) -> tuple[Float64, Float64]:
    """Return the smoothest nontrivial solutions y (n, K) of ``(D - W) y = λ D y``.

    Also return their eigenvalues (K,) of ``D^-1/2 W D^-1/2``, largest first. The eigenvalue 1
    occurs once per component of the graph, so its eigenvectors are defined only up to a
    rotation. We take the indicators of the components, largest component first, and make each
    orthogonal to the constant and to those before it. The other eigenvectors are found by a
    dense decomposition with up to ``dense_limit`` samples, otherwise by Lanczos.
    """
    n = W.shape[0]
    n_components = min(n_components, n - 1)
    root = np.sqrt(W.sum(axis=1))
    scale = sp.diags_array(1.0 / root)
    N = sp.csr_array(scale @ W @ scale)
    V, first = _eigenvectors_of_one(W, root, n_components)
    n_parts = V.shape[1]  # components of the graph
    n_first = first.shape[1]
    if n_parts > 1:
        warn_user(
            f"The neighbor graph has {n_parts} components, and the first "
            f"{n_first} coordinates only separate these components. Raise "
            "n_neighbors."
        )
    values = np.ones(n_first)
    vectors = first
    n_more = min(n_components - n_first, n - n_parts)
    if n_more > 0:
        symmetric = N.maximum(N.T)
        next_values, next_vectors = _next_eigenvectors(symmetric, V, n_more, dense_limit)
        values = np.concatenate([values, next_values[::-1]])
        vectors = np.hstack([vectors, next_vectors[:, ::-1]])
    keep = np.abs(values) >= SMALLEST_EIGENVALUE
    return vectors[:, keep] / root[:, None], values[keep]


def _eigenvectors_of_one(
    W: sp.csr_array, root: Float64, n_vectors: int
) -> tuple[sp.csr_array, Float64]:
    """Return all q sparse eigenvectors of 1, and up to ``n_vectors`` orthogonal to D^1/2 1."""
    q, labels = connected_components(W, directed=False)  # numbered by their first row
    largest_first = np.argsort(-np.bincount(labels), kind="stable")
    labels = np.argsort(largest_first)[labels]
    mass = np.sqrt(np.bincount(labels, weights=root**2))
    V = sp.csr_array((root / mass[labels], (np.arange(len(labels)), labels)))
    basis, _ = np.linalg.qr(np.column_stack([mass, np.eye(q, min(n_vectors, q - 1))]))
    return V, V @ basis[:, 1:]


def _next_eigenvectors(
    N: sp.csr_array, V: sp.csr_array, n_vectors: int, dense_limit: int
) -> tuple[Float64, Float64]:
    """Return the largest eigenvalues of N, ascending, with eigenvectors orthogonal to V.

    V holds the eigenvectors of eigenvalue 1. To exclude them, the decomposition is that of ``N
    - 2VVᵀ``, in which their eigenvalue is -1, the other end of the spectrum.
    """
    n = N.shape[0]
    if n <= dense_limit or n_vectors > n // 4:
        dense = N.toarray() - 2.0 * (V @ V.T).toarray()
        return eigh(dense, subset_by_index=[n - n_vectors, n - 1])

    def product(x: Float64) -> Float64:
        return N @ x - 2.0 * (V @ (V.T @ x))

    try:
        values, U = eigsh(
            LinearOperator(N.shape, product, dtype=float),
            n_vectors,
            which="LA",
            ncv=min(n - 1, max(2 * n_vectors + 1, 40)),
            maxiter=LANCZOS_RESTARTS,
            v0=np.random.RandomState(0).uniform(-1, 1, n),
            tol=LANCZOS_TOL,
        )
    except ArpackNoConvergence as error:
        raise ValueError(
            f"Only {len(error.eigenvalues)} of {n_vectors} eigenvectors of the neighbor graph "
            "were found. Raise n_neighbors or heat_width, or pass at most 3,000 rows."
        ) from error
    ascending = np.argsort(values)
    return values[ascending], U[:, ascending]
