"""FSASL: feature weights of an embedding that preserves sparse codes and neighborhoods."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy.linalg
import scipy.sparse as sp
from scipy.linalg.lapack import dgels
from sklearn.utils import check_random_state

from semfs._typing import Float64, Indices, Mask, RandomState
from semfs.baselines import mcfs
from semfs.baselines.base import Baseline, Training
from semfs.constraints import Above, AtLeast, OneOf, WholeNumber
from semfs.selectors.ranking import stable_order

#: Reweighted ridge solves per round, and what keeps their weights finite, as in the original.
IRLS_ROUNDS = 10
IRLS_EPS = 2.2e-16
#: Eigenvectors if ``n_components`` is None, as in the original.
DEFAULT_COMPONENTS = 5
#: Rounds from which on the original leaves out the codes in the first one.
ROUNDS_WITHOUT_FIRST_CODES = 5
#: Absolute change of the objective at which the original's lassos stop, and their most steps.
RELEASED_TOL = 1e-3
RELEASED_STEPS = 10_000
#: Squared length of a step below which the original takes a lasso as solved.
RELEASED_STILL = 1e-20
#: Times that a row may enter an exact code; four times for each column is usual.
MOST_ENTRIES = 1000

#: A function of A (n-1, c), z (c,) and a ratio that returns a code (n-1,).
CodeSolver = Callable[[Float64, Float64, float], Float64]


@dataclass(eq=False, repr=False, kw_only=True)
class FSASL(Baseline):
    """Feature Selection with Adaptive Structure Learning (Du and Shen, KDD 2015).

    With ``Z = XW``, codes S and neighbor probabilities P, the paper poses this problem::

        min  ‖Zᵀ - ZᵀS‖² + α‖S‖₁ + λ2 Σ_ij (‖z_i - z_j‖² P_ij + μ P_ij²) + λ3‖W‖_{2,1}
        s.t. S_ii = 0,  P1 = 1, P ≥ 0,  WᵀXᵀXW = I

    This class follows the released program, which alternates between three steps. First, it
    computes the codes by one lasso per sample. Second, it computes P by simplex projections
    over the nearest rows of Z. Third, it computes the eigenvectors Q of the smallest
    eigenvalues of ``(I-S)(I-S)ᵀ + λ2 (diag(P̄1) - P̄)``, and from them W by ten reweighted
    ridge solves of ``‖Q - XW‖² + λ3‖W‖_{2,1}``.

    Parameters
    ----------
    n_features_to_select, random_state
        Common parameters; see `semfs.baselines`.
    n_components : int or None, default=None
        Number c of eigenvectors. If you know the number of clusters, use it. None means 5.
    lambda2, lambda3 : float, default=1.0
        Weights λ2 and λ3 in the problem above.
    ratio : float, default=0.01
        Weight α for each code, as a fraction of the smallest α for which the code is 0.
    n_neighbors : int, default=5
        Number of nearest rows of Z that can have a positive probability in P.
    max_iter : int, default=20
        Number of rounds. As in the original program, the first round uses no codes if there are
        5 or more rounds.
    inner : {"exact", "reference"}, default="exact"
        "exact" solves the lassos exactly, as in the paper. "reference" stops early, as in the
        released program.
    mu : {"initial", "adaptive"}, default="initial"
        "initial" computes μ once from the distances between samples, as in the released
        program. "adaptive" computes it from Z in every round, which is closer to the paper.
    max_samples : int or None, default=None
        Number of random samples to use. None uses all samples. The time grows with n³, so
        reduce large data sets. Values from 2,000 to 3,000 work well.
    n_iter_no_change : int or None, default=None
        Stop when the selection has not changed for this many rounds (for example 3).

    Attributes
    ----------
    coef_ : ndarray of shape (d, c)
        The matrix W, whose row norms are the scores.
    objective_ : ndarray of shape (n_rounds,)
        The value that the original program prints after each round. It does not always
        decrease.
    mu_ : float
        The value of μ that was used.

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
    random_state: RandomState = 0

    _constraints = {
        "n_components": WholeNumber(1),
        "n_neighbors": WholeNumber(1),
        "lambda2": AtLeast(0),
        "lambda3": Above(0),
        "ratio": Above(0),
        "mu": OneOf("initial", "adaptive"),
        "inner": OneOf("exact", "reference"),
        "max_iter": WholeNumber(1),
        "n_iter_no_change": WholeNumber(1),
        "max_samples": WholeNumber(2),
    }

    def _scores(self, data: Training) -> Float64:
        """Return the row norms of W (d, c), with the order of steps of the released program."""
        X = data.varying.astype(np.float64)
        p = min(self.n_neighbors, len(X) - 1)
        c = min(self.n_components or DEFAULT_COMPONENTS, len(X))
        width = mcfs.mean_distance(X, check_random_state(self.random_state))
        Z = X
        S: Float64 | None = None
        objective = []
        unchanged = 0
        selected = np.empty(0, dtype=np.intp)
        for t in range(self.max_iter):
            if t > 0 or self.max_iter < ROUNDS_WITHOUT_FIRST_CODES:
                S = lasso_codes(Z, self.ratio, self._code_solver())
            distance, index = mcfs.nearest_neighbors(Z, p + 1)
            if t == 0 or self.mu == "adaptive":
                mu = mean_gap(distance, p)
            distance = distance[:, :p]
            index = index[:, :p]
            if t == 0:
                P = mcfs.neighbor_graph(distance, index, width)
            else:
                P = neighbor_probabilities(distance, index, mu)
            P = 0.5 * (P + P.T)
            L = self._laplacian(P, S)
            Q = scipy.linalg.eigh(L, subset_by_index=[0, c - 1])[1]
            W = row_sparse_ridge(X, Q, self.lambda3)
            Z = X @ W
            objective.append(self._objective(Z, L, S, P, W, mu))
            norms = np.linalg.norm(W, axis=1)
            last_selected = selected
            selected = np.sort(stable_order(norms)[: self._n_wanted(X.shape[1])])
            unchanged = unchanged + 1 if np.array_equal(selected, last_selected) else 0
            if unchanged == self.n_iter_no_change:
                break
        self.coef_ = data.spread(W)
        self.objective_ = np.array(objective)
        self.mu_ = mu
        self.n_iter_ = len(objective)
        return norms

    def _code_solver(self) -> CodeSolver:
        return exact_code if self.inner == "exact" else released_code

    def _laplacian(self, P: sp.csr_array, S: Float64 | None) -> Float64:
        """Return ``(I-S)(I-S)ᵀ + λ2 (diag(P1) - P)`` (n, n); no first term if S is None."""
        graph = sp.diags_array(P.sum(axis=1)) - P
        L = np.asarray((self.lambda2 * graph).toarray())
        if S is not None:
            M = np.eye(len(S)) - S
            L += M @ M.T
        return L

    def _objective(
        self, Z: Float64, L: Float64, S: Float64 | None, P: sp.csr_array, W: Float64, mu: float
    ) -> float:
        """Return the value printed by the released program (not the paper's objective)."""
        value = np.vdot(Z, L @ Z) + self.lambda2 * mu * (P.data**2).sum()
        if S is not None:
            value += self.ratio * np.abs(S).sum()
        return float(value + self.lambda3 * np.linalg.norm(W, axis=1).sum())


def mean_gap(distance: Float64, p: int) -> float:
    """Return μ from distances (n, p + 1) to nearest rows, ascending.

    With this μ, each row has p neighbors of positive probability, on average. It is half of the
    sum of the differences between the squared distance to neighbor p + 1 and those to nearer
    neighbors.
    """
    gaps = distance[:, -1:] ** 2 - distance[:, :p] ** 2
    return float(np.mean(0.5 * gaps.sum(axis=1)))


def neighbor_probabilities(distance: Float64, index: Indices, mu: float) -> sp.csr_array:
    """Return P (n, n), in which each row is a distribution over its p nearest rows.

    Each row is the point of the probability simplex that is nearest to ``V = -distance² / 2μ``.
    """
    squared = distance**2
    positive_mu = max(mu, 1e-12 * squared.max(), 1e-300)  # μ is 0 if all distances are equal
    V = -squared / (2.0 * positive_mu)
    n, p = V.shape
    ordered = -np.sort(-V, axis=1)
    # Subtract from each row the threshold τ of its last entry that stays positive.
    tau = (np.cumsum(ordered, axis=1) - 1.0) / np.arange(1, p + 1)
    last = p - 1 - np.argmax((ordered > tau)[:, ::-1], axis=1)
    P = np.maximum(V - tau[np.arange(n), last][:, None], 0.0)
    return mcfs.neighbor_matrix(P, index)


def row_sparse_ridge(X: Float64, T: Float64, r: float) -> Float64:
    """Return W (d, c) of ``‖T - XW‖² + r‖W‖_{2,1}`` by ten reweighted ridge solves."""
    with warnings.catch_warnings():
        # scores that are not finite are refused later, in words of ours
        warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)
        return _reweighted_ridge(X, T, r)


def _reweighted_ridge(X: Float64, T: Float64, r: float) -> Float64:
    """Do the work of `row_sparse_ridge`, without suppressing scipy's warnings."""
    n, d = X.shape
    G = X.T @ X if n >= d else None
    XtT = X.T @ T
    delta = np.ones(d)
    for _ in range(IRLS_ROUNDS):
        if G is not None:
            W = scipy.linalg.solve(G + np.diag(r * delta), XtT, assume_a="pos")
        else:  # the same by an n × n matrix
            XR = X / (r * delta)
            W = XR.T @ scipy.linalg.solve(np.eye(n) + XR @ X.T, T, assume_a="pos")
        delta = 1.0 / (2.0 * np.sqrt((W**2).sum(axis=1) + IRLS_EPS))
    return W


def lasso_codes(Z: Float64, ratio: float, solve: CodeSolver) -> Float64:
    """Return codes S (n, n). Column i is the lasso solution for z_i given the other rows."""
    S = np.zeros((len(Z), len(Z)))
    for i, z in enumerate(Z):
        others = np.arange(len(Z)) != i
        S[others, i] = solve(Z[others], z, ratio)
    return S


class _Constraints(NamedTuple):
    """``|E u| ≤ bound · u_last`` for all rows: the dual problem of a code, in unit lengths."""

    E: Float64  # (n-1, c+1)
    bound: Float64  # (n-1,)


class _Active(NamedTuple):
    """The rows with a nonzero weight in a code, in the order in which they entered."""

    rows: Indices
    sign: Float64  # +1 or -1, of the entry in the code
    weight: Float64  # positive

    def enter(self, row: int, sign: float) -> _Active:
        """Return these rows and one more, of weight 0."""
        return _Active(
            np.append(self.rows, row), np.append(self.sign, sign), np.append(self.weight, 0.0)
        )

    def keep(self, mask: Mask, weight: Float64) -> _Active:
        """Return only the rows of a mask, with these weights."""
        return _Active(self.rows[mask], self.sign[mask], weight[mask])


def exact_code(A: Float64, z: Float64, ratio: float) -> Float64:
    """Return the code s (n-1,), the minimizer of ``½‖z - Aᵀs‖² + λ‖s‖₁``, for A (n-1, c).

    λ is ``ratio`` times the smallest value for which s is 0. The residual u is the point
    nearest to z with ``|Au| ≤ λ``. Lawson and Hanson (1974, ch. 23) find such a point by
    non-negative least squares: if ``x = u - z`` has the smallest norm subject to ``Gx ≥ h``,
    its multipliers are the rescaled solution p of ``[G h]ᵀ p ≈ (0, …, 0, 1)``.

    (``scipy.optimize.nnls``, up to 1.17, fails if rows are linearly dependent, as they are with
    ties.)
    """
    # z and the rows of A at unit length
    norms = np.linalg.norm(A, axis=1)
    norms = np.where(norms > 0, norms, 1.0)
    length = float(np.linalg.norm(z))
    q = A @ (z / (length or 1.0))
    bound = ratio * np.abs(q).max() / norms
    problem = _Constraints(np.column_stack([-A / norms[:, None], q / norms]), bound)
    tolerated = bound * (1 + 1e-10) + 1e-14  # a violation below this is rounding

    goal = np.append(np.zeros(A.shape[1]), 1.0)
    residual = goal
    active = _Active(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
    n_rounds = MOST_ENTRIES if bound.any() else 0
    for _ in range(n_rounds):
        # The row that violates its bound most enters the code.
        dual = problem.E @ residual
        excess = np.abs(dual) - tolerated * residual[-1]
        worst = int(excess.argmax())
        if excess[worst] <= 0:
            break
        active = active.enter(worst, np.sign(dual[worst]))
        active, residual = _solve_active(problem, active, goal)
    code = np.zeros(len(A))
    entries = active.sign * active.weight
    code[active.rows] = length * entries / (residual[-1] * norms[active.rows])
    return code


def _solve_active(
    problem: _Constraints, active: _Active, goal: Float64
) -> tuple[_Active, Float64]:
    """Return active rows with positive least-squares weights, and the residual.

    This is the inner loop of non-negative least squares. While a weight would not be positive,
    move from the current weights toward the solution until the first weight is 0, and drop its
    row.
    """
    while True:
        columns = problem.E[active.rows].T * active.sign
        columns[-1] -= problem.bound[active.rows]
        _, solved, _ = dgels(columns, goal)
        solution = solved[: len(active.rows)]
        if (solution > 0).all():
            residual = goal - columns @ solution
            return active._replace(weight=solution), residual
        present = active.weight
        # The share of the way at which each weight becomes 0; infinite if it stays positive.
        share = np.full(len(present), np.inf)
        np.divide(present, present - solution, out=share, where=solution <= 0)
        first = share.min()
        weight = np.where(share > first, present + first * (solution - present), 0.0)
        active = active.keep(weight > 0, weight)


def released_code(A: Float64, z: Float64, ratio: float) -> Float64:
    """Return the code of the released program, which stops a proximal gradient method early."""
    A = A.T
    q = A.T @ z
    lam = ratio * np.abs(q).max()
    image = A @ q
    start = _released_start(z, q, image, lam)
    x = start * q
    fit = start * image
    previous = x
    previous_fit = fit
    L = 1.0  # step 1/L
    value = np.inf
    momentum = 0.0
    next_momentum = 1.0
    for step in range(1, RELEASED_STEPS + 1):
        t = (momentum - 1.0) / next_momentum
        search = x + t * (x - previous)
        search_fit = fit + t * (fit - previous_fit)
        gradient = A.T @ search_fit - q
        previous = x
        previous_fit = fit
        while True:  # double L until it majorizes
            v = search - gradient / L
            x = np.sign(v) * np.maximum(np.abs(v) - lam / L, 0.0)
            fit = A @ x
            moved = ((x - search) ** 2).sum()
            rise = ((fit - search_fit) ** 2).sum()
            too_long = moved > RELEASED_STILL and rise > moved * L
            if not too_long:  # written so that NaN ends the loop
                break
            L = max(2.0 * L, rise / moved)
        momentum = next_momentum
        next_momentum = (1 + np.sqrt(4 * momentum**2 + 1)) / 2
        last_value = value
        value = 0.5 * ((fit - z) ** 2).sum() + lam * np.abs(x).sum()
        is_settled = abs(value - last_value) <= RELEASED_TOL and step >= 2
        if moved <= RELEASED_STILL or is_settled:
            break
    return x


def _released_start(z: Float64, q: Float64, image: Float64, lam: float) -> float:
    """Return the factor by which q = Aᵀz is the best starting point, given its image Aq."""
    size = np.abs(q).sum()
    if size < 1e-6:
        return 1.0
    return (image @ z - lam * size) / (image @ image)
