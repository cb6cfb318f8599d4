"""Algorithm 1 of the paper: W for a given s (Eq. 12), s by projected gradient, in turns.

This is a reference implementation, which is written to be read beside the paper. Each W-step is
exact, by a Cholesky factorization in float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.linalg.blas import dsymv, dsyrk
from scipy.sparse.linalg import ArpackNoConvergence, LinearOperator, eigsh

from semfs._typing import Float64
from semfs.arrays import batches
from semfs.method.factor import Factor
from semfs.method.objective import Objective
from semfs.method.quadratic import Monitor, Solution
from semfs.rows.threads import each_in_threads

STEP_RULES = ("lipschitz", "exact")
#: γ may differ from the mean diagonal of G by this factor at most: beyond, numbers over- or
#: underflow and nothing is left of the data or of the penalty.
LARGEST_RATIO = 1e100
#: Pivots of a Cholesky factorization below this fraction of the diagonal are rounding errors.
SMALLEST_PIVOT = 8.0 * float(np.finfo(np.float64).eps)
#: Relative residual of the eigenvector of λ_max. The error of λ_max is of the order of its
#: square.
EIGENVECTOR_TOL = 1e-5
#: Rows of a d × d matrix that are computed at a time, so that they stay in a processor's cache.
TRIANGLE_ROWS = 128
#: Vectors that Lanczos iterations keep before they restart. From a good start so few suffice,
#: and more of them would be products for nothing.
N_LANCZOS_VECTORS = 6
#: A step that would raise J is halved at most this many times.
MAX_HALVINGS = 60
PENALTY_LOST = (
    "gamma is smaller than the rounding errors of X, and some columns of X are linear "
    'combinations of others. Use a larger gamma, or solver="direct".'
)

#: Product of a symmetric matrix (d, d) with a vector (d,).
Product = Callable[[Float64], Float64]


def solve_alternating(
    objective: Objective,
    *,
    max_iter: int = 20,
    tol: float = 1e-4,
    n_inner: int = 1,
    step: str | float = "lipschitz",
    s_init: Float64 | None = None,
    monitor: Monitor | None = None,
) -> Solution:
    """Run Algorithm 1: W by Eq. 12 and s by projected gradient, in turns.

    Parameters are those of `SemFS`. After a first W-step, each round is an s-step followed by
    an exact W-step, and ``monitor`` is called at its end. Rounds end when J decreases by less
    than the fraction ``tol``.
    """
    _check_penalty(objective)
    d = objective.n_features
    basis, objective = _in_few_targets(objective)
    s = np.ones(d) if s_init is None else np.array(s_init, dtype=np.float64)
    # Sum of all steps: it ranks features whose s differ by less than rounding errors.
    total_step = np.zeros(d)
    w_step = WStep(objective)
    s_step = SStep(w_step, n_inner, step)
    history: list[float] = []
    converged = False
    W, J = w_step.solve(s)
    for _ in range(max_iter):
        # J after the exact W-step never rises: the s-step lowers it, or lets s grow, and with
        # U = S W fixed J falls in every s_i.
        s, change = s_step.move(W, s)
        total_step = total_step + change
        J_before = J
        W, J = w_step.solve(s)
        history.append(J)
        converged = J_before - J <= tol * abs(J_before)
        so_far = partial(_solution, s, total_step, W, basis, list(history), converged)
        stopped = monitor is not None and monitor(len(history), J, None, so_far)
        if converged or stopped:
            break
    return _solution(s, total_step, W, basis, history, converged)


def _in_few_targets(objective: Objective) -> tuple[Float64 | None, Objective]:
    """An orthonormal basis V (r, U) of more targets T (U, r) than classes, and J of T V (U, U).

    T = T V V', so that W = W_V V' with the W_V of T V, and J and s are the same. None if there
    are not that many.
    """
    T = objective.targets
    U, r = T.shape
    if r <= U:
        return None, objective
    V, R = np.linalg.qr(T.T)  # T' = V R
    return V, replace(objective, centered_targets=R.T, label_weight=0.0)


def _check_penalty(objective: Objective) -> None:
    """Raise if γ is too small or too large for the size of the data."""
    mean_diagonal = max(float(objective.diag.mean()), np.finfo(float).tiny)
    ratio = objective.gamma / mean_diagonal
    if not 1.0 / LARGEST_RATIO < ratio < LARGEST_RATIO:
        raise ValueError(
            f"gamma is only {ratio:.0e} times the size of the data, so it "
            'has no effect. Use penalty_scale="gram", or '
            'solver="direct".'
        )


def _solution(
    s: Float64,
    total_step: Float64,
    W: Float64,
    basis: Float64 | None,
    history: list[float],
    converged: bool,
) -> Solution:
    """Return the solution after some rounds: s ranks the features, W is that of all targets."""
    if basis is not None:
        W = W @ basis.T
    order = np.lexsort((-total_step, -s))
    return Solution(s, W[s != 0], s, order, np.array(history), converged)


# ---- the W-step ------------------------------------------------------------------------


class WStep:
    """Eq. 12, (S G S + γI) W = S B, for one s after the other.

    Samples far from the origin make G = X'X + … a sum of a huge rank-one matrix and what
    matters. So the equation is solved about the mean μ of the samples. With the weight ω of μμ'
    in G (0 with an intercept), the mean ā of the targets, and G and B of the centered problem::

        G = C + ω μμ',   B = D + ω μā'

    Let K = S C S + γI and W₀ = K⁻¹ S D, v = K⁻¹ S μ. Then Eq. 12 reads

        K W + ω Sμ (μ'S W) = S D + ω Sμ ā',   that is   W = W₀ + ω v e'   with   e = ā − W'Sμ,

    the error of the mean. The product of W with μ'S gives W'Sμ = W₀'Sμ + ω e (μ'Sv), so

        e = (ā − W₀'Sμ) / (1 + ω μ'Sv).

    At the solution tr(W'(SGS + γI)W) = tr(W'SB), hence J = q − tr(W'SB). Insert q = q₀ + ω ‖ā‖²
    and tr(W'SB) = tr(W'SD) + ω ā'W'Sμ: J = q₀ − tr(W'SD) + ω e'ā, without large terms.
    """

    def __init__(self, objective: Objective) -> None:
        """Compute what all s have in common."""
        centered = objective.centered()
        self.gamma = centered.gamma
        self.diag = objective.diag
        self.omega = objective.origin_weight
        self.mu = objective.mean
        self.target_mean = objective.shares @ objective.targets / objective.shares.sum()
        self.q = centered.q
        factor = centered.factor()
        self.D: Float64
        self.equation: _GramEquation | _DualEquation
        if factor is None:
            self.D = centered.B.astype(np.float64)
            self.equation = _GramEquation(centered.gram(), centered.gamma)
        else:
            self.D = factor.adjoint(factor.targets)
            self.equation = _DualEquation(factor, centered.gamma)

    def solve(self, s: Float64) -> tuple[Float64, float]:
        """Return W (d, r) for s (d,), and J there."""
        if not self.omega:
            W = self.equation.solve(s, self.D)
            return W, self.q - self._fit(s, W)
        both = self.equation.solve(s, np.vstack([self.D.T, self.mu]).T)
        W_0 = both[:, :-1]
        v = both[:, -1]
        S_mu = s * self.mu
        e = (self.target_mean - S_mu @ W_0) / (1.0 + self.omega * (S_mu @ v))
        W = W_0 + self.omega * np.outer(e, v).T
        J = self.q - self._fit(s, W)
        return W, J + self.omega * float(e @ self.target_mean)

    def _fit(self, s: Float64, W: Float64) -> float:
        """tr(W'S D)."""
        return float(s @ np.einsum("ij,ij->i", W, self.D))

    def curvature(self, W: Float64) -> Product:
        """v → Q v with Q = G∘(WW') (d, d), half the Hessian of J in s.

        (μμ')∘(WW') = (diag(μ) W)(diag(μ) W)'.
        """
        centered = self.equation.curvature(W)
        if not self.omega:
            return centered
        mu_W = self.mu[:, None] * W

        def product(v: Float64) -> Float64:
            return centered(v) + self.omega * (mu_W @ (mu_W.T @ v))

        return product


class _GramEquation:
    """(S C S + γI) V = S right, with C (d, d) in memory.

    All matrices are symmetric: only what is on and above the diagonal is computed and read. In
    transposes, which are in the layout that LAPACK wants, that is what is on and below it.
    """

    def __init__(self, C: Float64, gamma: float) -> None:
        self.C = C
        self.gamma = gamma
        #: S C S + γI while a W-step lasts, C∘WW' until the next one.
        self._matrix = np.empty_like(C)

    def solve(self, s: Float64, right: Float64) -> Float64:
        """Return V (d, r) for right (d, r). Rows where s = 0 are 0."""
        K = self._matrix

        def scale(rows: slice) -> None:
            columns = slice(rows.start, None)
            np.multiply(self.C[rows, columns], s[columns], out=K[rows, columns])
            K[rows, columns] *= s[rows, None]

        each_in_threads(scale, batches(len(K), TRIANGLE_ROWS))
        K[np.diag_indices_from(K)] += self.gamma
        return cho_solve(_factorized(K.T), s[:, None] * right, check_finite=False)

    def curvature(self, W: Float64) -> Product:
        """v → (C∘WW') v."""
        Q = self._matrix
        dsyrk(1.0, W, c=Q.T, overwrite_c=1, lower=1)  # WW'

        def multiply(rows: slice) -> None:
            # What the last solve left below the diagonal is multiplied as well, and never read.
            columns = slice(rows.start, None)
            Q[rows, columns] *= self.C[rows, columns]

        each_in_threads(multiply, batches(len(Q), TRIANGLE_ROWS))
        return partial(dsymv, 1.0, Q.T, lower=1)


class _DualEquation:
    """The same through the n × n matrix F S² F' + γI when n < d, where C = F'F.

    With E = F S: (E'E + γI)⁻¹ = (I − E'(EE' + γI)⁻¹E) / γ, and (E'E + γI)⁻¹E' = E'(EE' + γI)⁻¹.
    """

    def __init__(self, factor: Factor, gamma: float) -> None:
        self.F = factor
        self.gamma = gamma

    def solve(self, s: Float64, right: Float64) -> Float64:
        """Return V (d, r) for right (d, r), of which the first columns are F' targets."""
        K = self.F.dual_gram(s)
        K[np.diag_indices_from(K)] += self.gamma
        cholesky = _factorized(K)
        S = s[:, None]
        targets = self.F.targets
        V = S * self.F.adjoint(cho_solve(cholesky, targets))
        rest = right[:, targets.shape[1] :]  # μ, if there is no intercept
        if not rest.shape[1]:
            return V
        dual = cho_solve(cholesky, self.F.apply(S**2 * rest))
        return np.column_stack([V, S * (rest - self.F.adjoint(dual)) / self.gamma])

    def curvature(self, W: Float64) -> Product:
        """v → (C∘WW') v, row by row w_i'(F'F diag(v) W)_i."""

        def product(v: Float64) -> Float64:
            image = self.F.adjoint(self.F.apply(v[:, None] * W))
            return np.einsum("ij,ij->i", image, W)

        return product


def _factorized(K: Float64) -> tuple[Float64, bool]:
    """Cholesky factor of a positive definite K, which is overwritten on and below its diagonal.

    Raises if a pivot is of the size of rounding errors: K is singular but for γ, and γ is lost.
    """
    smallest = SMALLEST_PIVOT * K.diagonal()
    try:
        factor, lower = cho_factor(K, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ValueError(PENALTY_LOST) from None
    if (factor.diagonal() ** 2 <= smallest).any():
        raise ValueError(PENALTY_LOST)
    return factor, lower


# ---- the s-step ------------------------------------------------------------------------


class SStep:
    """Projected gradient steps on J_s = q − 2b's + s'Qs with Q = G∘(WW') (Eqs. 9 to 11)."""

    def __init__(self, w_step: WStep, n_inner: int, step: str | float) -> None:
        self.w_step = w_step
        self.n_inner = n_inner
        self.step = step
        # Q changes slowly: its leading eigenvector is a good start in the next round.
        self.eigenvector: Float64 | None = None

    def move(self, W: Float64, s: Float64) -> tuple[Float64, Float64]:
        """Return the next s, and what was added to it: it may be below the rounding error of s.

        W is exact for this s, so the gradient is −2γ‖w_i‖²/s_i: multiply row i of Eq. 12 by
        w_i. Eq. 10 evaluated as it stands is a difference of large numbers. Where s_i = 0 the
        row w_i is 0, and so is the slope.
        """
        Q = self.w_step.curvature(W)
        squared_norms = np.einsum("ij,ij->i", W, W)
        gradient = np.zeros_like(s)
        np.divide(-2.0 * self.w_step.gamma * squared_norms, s, out=gradient, where=s > 0)
        length = 0.0 if isinstance(self.step, str) else self.step
        trace = float(self.w_step.diag @ squared_norms)  # of Q
        if self.step == "lipschitz" and trace > 0.0:
            # The Hessian is 2Q: a step of 1/λ_max of it lowers J.
            largest, self.eigenvector = largest_eigenvalue(Q, len(s), trace, self.eigenvector)
            length = 0.5 / largest
        total = np.zeros_like(s)
        for _ in range(self.n_inner):
            if self.step == "exact":
                # the minimizer of J along the gradient g: ½ g'g / g'Qg
                along = float(gradient @ Q(gradient))
                length = 0.5 * float(gradient @ gradient) / along if along > 0.0 else 0.0
            change, Q_change = projected_step(Q, s, gradient, length)
            s = s + change
            total = total + change
            gradient = gradient + 2.0 * Q_change
        return s, total


def projected_step(
    Q: Product, s: Float64, gradient: Float64, length: float
) -> tuple[Float64, Float64]:
    """Return a change (d,) of s along −gradient that keeps s ≥ 0, and Q times it.

    The step is halved until J does not increase.
    """
    for _ in range(MAX_HALVINGS):
        change = np.maximum(-length * gradient, -s)
        Q_change = Q(change)
        # J is quadratic in s, so its change is known exactly.
        if gradient @ change + change @ Q_change <= 0.0:
            return change, Q_change
        length *= 0.5
    return np.zeros_like(s), np.zeros_like(s)


def largest_eigenvalue(
    Q: Product, d: int, trace: float, start: Float64 | None = None
) -> tuple[float, Float64 | None]:
    """Return λ_max of a positive semidefinite Q (d, d) with this trace, and its eigenvector.

    This uses Lanczos iterations, which start from a fixed vector for reproducible results, or
    from ``start``. If they do not converge, the result is the trace, which λ_max cannot exceed.
    """
    if d < 3:  # ARPACK needs room for two vectors beside the first
        matrix = np.column_stack([Q(axis) for axis in np.eye(d)])
        return float(np.linalg.eigvalsh(matrix)[-1]), None
    v0 = np.random.default_rng(0).standard_normal(d) / np.sqrt(d)
    if start is not None:
        # The small random part keeps a direction that has become the largest from being
        # overlooked: ``start`` may be orthogonal to it.
        v0 = start + 0.05 * v0

    def product(v: Float64) -> Float64:
        return Q(v.ravel()) / trace  # of ordinary size: ARPACK knows absolute tolerances

    operator = LinearOperator((d, d), matvec=product, dtype=np.float64)
    n_vectors = min(d, N_LANCZOS_VECTORS)
    try:
        values, vectors = eigsh(
            operator, k=1, which="LA", v0=v0, ncv=n_vectors, tol=EIGENVECTOR_TOL
        )
    except ArpackNoConvergence:
        return trace, None
    return trace * float(values[0]), vectors[:, 0]
