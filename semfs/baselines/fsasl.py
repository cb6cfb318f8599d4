"""FSASL: weights of an embedding learned from sparse codes and neighbor probabilities."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg.lapack import dgels
from sklearn.utils import check_random_state

from semfs.baselines import mcfs
from semfs.baselines.base import Baseline, Training
from semfs.selectors.base import stable_order

IRLS_ROUNDS = 10
IRLS_EPS = 2.2e-16
RELEASED_TOL = 1e-3  # absolute change of the objective at which the original's lassos stop
MOST_ENTRIES = 1000  # of rows into a code; four for each column is usual


@dataclass(eq=False, repr=False, kw_only=True)
class FSASL(Baseline):
    """Feature Selection with Adaptive Structure Learning (Du and Shen, KDD 2015).

    With ``Z = XW``, codes S and neighbor probabilities P the paper poses::

        min  ‖Zᵀ - ZᵀS‖² + α‖S‖₁ + λ2 Σ_ij (‖z_i - z_j‖² P_ij + μ P_ij²) + λ3‖W‖_{2,1}
        s.t. S_ii = 0,  P1 = 1, P ≥ 0,  WᵀXᵀXW = I

    The released program, followed here, alternates: codes by one lasso per sample, P by
    simplex projections over the nearest rows of Z, then the eigenvectors Q of the smallest
    eigenvalues of ``(I-S)(I-S)ᵀ + λ2 (diag(P̄1) - P̄)``, and W by ten reweighted ridge solves
    of ``‖Q - XW‖² + λ3‖W‖_{2,1}``.

    Parameters
    ----------
    n_features_to_select, random_state
        As of all methods (see `semfs.baselines`).
    n_components : int or None, default=None
        Number c of eigenvectors, the number of clusters if you know it; None is 5.
    lambda2, lambda3 : float, default=1.0
    ratio : float, default=0.01
        α of each code as a fraction of the smallest that gives 0.
    n_neighbors : int, default=5
    max_iter : int, default=20
        Rounds. As in the original, with 5 or more the first round has no codes.
    inner : {"exact", "reference"}, default="exact"
        Solve the lassos exactly (the paper), or stop them early (the released program).
    mu : {"initial", "adaptive"}, default="initial"
        μ from the distances between rows of X, once (the released program), or from Z in
        every round (closer to the paper).
    max_samples : int or None, default=None
        Work on that many random rows: time grows with n³. 2,000 to 3,000 is a good size.
    n_iter_no_change : int or None, default=None
        Stop when the selection has not changed for so many rounds, such as 3.

    Attributes
    ----------
    coef_ : ndarray of shape (d, c)
        W; its row norms are the scores.
    objective_ : ndarray of shape (n_rounds,)
        The value the original prints after each round; it need not decrease.
    mu_ : float

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> X = load_digits().data[:100]
    >>> FSASL(10, n_components=10, max_iter=5).fit(X).transform(X).shape
    (100, 10)
    """

    n_components: int | None = None
    lambda2: float = 1.0
    lambda3: float = 1.0
    ratio: float = 0.01
    n_neighbors: int = 5
    max_iter: int = 20
    inner: str = "exact"
    mu: str = "initial"
    max_samples: int | None = None
    n_iter_no_change: int | None = None
    random_state: Any = 0

    _words = {"inner": ("exact", "reference"), "mu": ("initial", "adaptive")}
    _whole = {"n_components": 1, "n_neighbors": 1, "max_iter": 1, "n_iter_no_change": 1}
    _whole |= {"max_samples": 2}
    _at_least = {"lambda2": 0}
    _above = {"lambda3": 0, "ratio": 0}

    def _scores(self, data: Training) -> np.ndarray:
        """Return the row norms of W (d, c), in the order of steps of the released program."""
        X = data.varying.astype(np.float64)
        n = len(X)
        p, c = min(self.n_neighbors, n - 1), min(self.n_components or 5, n)
        width = mcfs.mean_distance(X, check_random_state(self.random_state))
        solve = exact_code if self.inner == "exact" else released_code
        Z, S, objective, unchanged, selected = X, None, [], 0, np.empty(0)
        for t in range(self.max_iter):
            if t > 0 or self.max_iter < 5:
                S = lasso_codes(Z, self.ratio, solve)
            distance, index = mcfs.nearest_neighbors(Z, p + 1)
            if t == 0 or self.mu == "adaptive":
                gaps = distance[:, -1:] ** 2 - distance[:, :p] ** 2  # to neighbor p + 1
                mu = float(np.mean(0.5 * gaps.sum(axis=1)))
            near = distance[:, :p], index[:, :p]
            P = neighbor_probabilities(*near, mu) if t else mcfs.neighbor_graph(*near, width)
            P = 0.5 * (P + P.T)
            L = np.asarray((self.lambda2 * (sp.diags_array(P.sum(axis=1)) - P)).toarray())
            if S is not None:
                M = np.eye(n) - S
                L += M @ M.T
            Q = scipy.linalg.eigh(L, subset_by_index=[0, c - 1])[1]
            W = row_sparse_ridge(X, Q, self.lambda3)
            Z = X @ W
            objective.append(self._objective(Z, L, S, P, W, mu))
            norms, last = np.linalg.norm(W, axis=1), selected
            selected = np.sort(stable_order(norms)[: self._n_wanted(X.shape[1])])
            unchanged = unchanged + 1 if np.array_equal(selected, last) else 0
            if unchanged == self.n_iter_no_change:
                break
        self.coef_, self.objective_, self.mu_ = data.spread(W), np.array(objective), mu
        self.n_iter_ = len(objective)
        return norms

    def _objective(self, Z: Any, L: Any, S: Any, P: Any, W: Any, mu: float) -> float:
        """Return the value printed by the released program (not the paper's objective)."""
        value = np.vdot(Z, L @ Z) + self.lambda2 * mu * (P.data**2).sum()
        if S is not None:
            value += self.ratio * np.abs(S).sum()
        return float(value + self.lambda3 * np.linalg.norm(W, axis=1).sum())


def neighbor_probabilities(distance: np.ndarray, index: np.ndarray, mu: float) -> sp.csr_array:
    """Return P (n, n): each row a distribution over its p nearest rows.

    That is the point of the probability simplex nearest to ``V = -distance² / 2μ``.
    """
    squared = distance**2
    V = -squared / (2.0 * max(mu, 1e-12 * squared.max(), 1e-300))  # μ is 0 if all are equal
    ordered = -np.sort(-V, axis=1)
    tau = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, V.shape[1] + 1)
    last = V.shape[1] - 1 - np.argmax((ordered > tau)[:, ::-1], axis=1)
    P = np.maximum(V - tau[np.arange(len(V)), last][:, None], 0.0)
    return mcfs.neighbor_matrix(P, index)


def row_sparse_ridge(X: np.ndarray, T: np.ndarray, r: float) -> np.ndarray:
    """Return W (d, c) of ``‖T - XW‖² + r‖W‖_{2,1}`` by ten reweighted ridge solves."""
    n, d = X.shape
    G, XtT, delta = X.T @ X if n >= d else None, X.T @ T, np.ones(d)
    for _ in range(IRLS_ROUNDS):
        if G is not None:
            W = scipy.linalg.solve(G + np.diag(r * delta), XtT, assume_a="pos")
        else:  # the same by an n × n matrix
            XR = X / (r * delta)
            W = XR.T @ scipy.linalg.solve(np.eye(n) + XR @ X.T, T, assume_a="pos")
        delta = 1.0 / (2.0 * np.sqrt((W**2).sum(axis=1) + IRLS_EPS))
    return W


def lasso_codes(Z: np.ndarray, ratio: float, solve: Callable) -> np.ndarray:
    """Return codes S (n, n): column i is the lasso of z_i on the other rows."""
    S = np.zeros((len(Z), len(Z)))
    for i, z in enumerate(Z):
        others = np.arange(len(Z)) != i
        S[others, i] = solve(Z[others], z, ratio)
    return S


def exact_code(A: np.ndarray, z: np.ndarray, ratio: float) -> np.ndarray:
    """Return the code s (n-1,), the minimizer of ``½‖z - Aᵀs‖² + λ‖s‖₁``, for A (n-1, c).

    The residual u is the point nearest to z with ``|Au| ≤ λ``. Lawson and Hanson (1974,
    ch. 23) find such a point by non-negative least squares: of ``x = u - z`` least in norm
    with ``Gx ≥ h``, the multipliers are those p of ``[G h]ᵀ p ≈ (0, …, 0, 1)``, rescaled.
    """  # `scipy.optimize.nnls`, up to 1.17, fails where rows depend on each other, as ties do
    norms, length = np.linalg.norm(A, axis=1), float(np.linalg.norm(z))
    size = np.where(norms > 0, norms, 1.0)
    q = A @ (z / (length or 1.0))
    E, bound = np.column_stack([-A / size[:, None], q / size]), ratio * np.abs(q).max() / size
    allowed = bound * (1 + 1e-10) + 1e-14  # rounding is no violation
    goal = np.append(np.zeros(A.shape[1]), 1.0)
    rest, rows, sign, p = goal, np.empty(0, dtype=np.intp), np.empty(0), np.empty(0)
    for _ in range(MOST_ENTRIES if bound.any() else 0):
        dual = E @ rest
        excess = np.abs(dual) - allowed * rest[-1]
        j = int(excess.argmax())
        if excess[j] <= 0:
            break
        rows, sign, p = np.append(rows, j), np.append(sign, np.sign(dual[j])), np.append(p, 0.0)
        while True:
            C = E[rows].T * sign
            C[-1] -= bound[rows]
            free = dgels(C, goal)[1][: len(rows)]  # least squares
            if (free > 0).all():
                break
            room = np.full(len(p), np.inf)  # the way from p to it, until one becomes negative
            np.divide(p, p - free, out=room, where=free <= 0)
            p = np.where(room > room.min(), p + room.min() * (free - p), 0.0)
            rows, sign, p = rows[p > 0], sign[p > 0], p[p > 0]
        p, rest = free, goal - C @ free
    code = np.zeros(len(A))
    code[rows] = length * sign * p / (rest[-1] * size[rows])
    return code


def released_code(A: np.ndarray, z: np.ndarray, ratio: float) -> np.ndarray:
    """Return the code as the released program does: proximal gradient, stopped early."""
    A = A.T
    q = A.T @ z
    lam = ratio * np.abs(q).max()
    size, image = np.abs(q).sum(), A @ q
    start = (image @ z - lam * size) / (image @ image) if size >= 1e-6 else 1.0
    x, fit = start * q, start * image
    previous, previous_fit = x, fit
    L, value, momentum, next_momentum = 1.0, np.inf, 0.0, 1.0
    for step in range(1, 10_001):
        t = (momentum - 1.0) / next_momentum
        search, search_fit = x + t * (x - previous), fit + t * (fit - previous_fit)
        gradient = A.T @ search_fit - q
        previous, previous_fit = x, fit
        while True:  # double L until it majorises
            v = search - gradient / L
            x = np.sign(v) * np.maximum(np.abs(v) - lam / L, 0.0)
            fit = A @ x
            moved, rise = ((x - search) ** 2).sum(), ((fit - search_fit) ** 2).sum()
            if not (moved > 1e-20 and rise > moved * L):
                break
            L = max(2.0 * L, rise / moved)
        momentum, next_momentum = next_momentum, (1 + np.sqrt(4 * next_momentum**2 + 1)) / 2
        last, value = value, 0.5 * ((fit - z) ** 2).sum() + lam * np.abs(x).sum()
        if moved <= 1e-20 or (abs(value - last) <= RELEASED_TOL and step >= 2):
            break
    return x
