"""Algorithm 1 of the paper: W for a given s (Eq. 12), s by projected gradient, in turns."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, eigh_tridiagonal

from semfs.method.objective import Factor, Monitor, Objective, Solution

STEP_RULES = ("lipschitz", "exact")
# Up to this many features each W-step is a Cholesky factorization of its own.
SMALL = 1024
# Beyond, W solves Eq. 12 to this residual, relative to its right-hand side; in the rounds
# before the last a looser one serves, as J is computed for the W at hand.
RESIDUAL, ROUND_RESIDUAL = 1e-9, 1e-7
# Steps of conjugate gradients after which a Cholesky factor pays, at once or (another one) in
# the next round.
MOST_STEPS, MANY_STEPS = 10, 3
# So many solutions are kept to foretell the next one, with weights of at most this sum.
KEPT, LARGEST_WEIGHTS = 4, 15.0
# Residual of the eigenvector of λ_max, relative to it, and products with Q to get there.
EIGENVECTOR, MOST_PRODUCTS = 1e-6, 300
Times = Callable[[np.ndarray], np.ndarray]  # a product with a symmetric matrix
PENALTY_LOST = (
    "gamma is too small: rounding errors of X are larger, and some columns of X depend on "
    'others. Use a larger gamma, or solver="direct".'
)


def solve_alternating(
    objective: Objective,
    *,
    max_iter: int = 20,
    tol: float = 1e-4,
    n_inner: int = 1,
    step: str | float = "lipschitz",
    s_init: np.ndarray | None = None,
    monitor: Monitor | None = None,
) -> Solution:
    """Algorithm 1: W by Eq. 12, s by projected gradient, in turns; parameters as in `SemFS`.

    A round is an s-step and the exact W-step that answers it, and ``monitor`` is called after
    it; a first W-step precedes them.
    """
    share = objective.gamma / max(float(objective.diag.mean()), np.finfo(float).tiny)
    if not 1e-100 < share < 1e100:
        advice = 'Use penalty_scale="gram", or solver="direct".'
        raise ValueError(f"gamma is {share:.0e} times as large as the data. {advice}")
    s = np.ones(objective.n_features) if s_init is None else np.array(s_init, dtype=np.float64)
    growth = np.zeros_like(s)  # ranks features whose s differ by less than rounding errors
    w_step, s_step = _WStep(objective), _SStep(objective, n_inner, step)
    W, J = w_step.solve(s)
    history: list[float] = []
    converged = False
    for _ in range(max_iter):
        # J after the exact W-step never rises: the s-step lowers it, or lets s grow, and with
        # U = S W fixed J falls in every s_i.
        s, change = s_step.move(w_step.curvature(W), W, s)
        growth = growth + change
        W, J_new = w_step.solve(s)
        history.append(J_new)
        converged = J - J_new <= tol * abs(J)
        J = J_new
        so_far = partial(_solution, s, growth, W, list(history), converged)
        stopped = monitor is not None and monitor(len(history), J, None, so_far)
        if converged or stopped:
            break
    W, _ = w_step.solve(s, last=True)
    return _solution(s, growth, W, history, converged)


def _solution(
    s: np.ndarray, growth: np.ndarray, W: np.ndarray, history: list[float], converged: bool
) -> Solution:
    order = np.lexsort((-growth, -s))
    return Solution(s, W[s != 0], s, order, np.array(history), converged)


class _WStep:
    """Eq. 12, (S G S + γI) W = S B, for a given s.

    Solved about the mean μ of the rows, so that rows far from the origin lose no digits. With
    G = C + ωμμ', B = D + ωμā' (ω is 0 with an intercept), H = C + γS⁻² and U = S W:

        U = U₀ + ω v e',   H U₀ = D,   H v = μ,   e = (ā − U₀'μ) / (1 + ω μ'v)

    Then e = ā − U'μ, and J = q₀ − tr(U'D) + ω e'ā with q₀ that of the centered problem.
    """

    def __init__(self, objective: Objective) -> None:
        centered = objective.centered()
        self.weight, self.mean = objective.origin_weight, objective.mean
        self.average = objective.shares @ objective.targets / objective.shares.sum()
        factor = centered.factor()
        self.q = centered.q
        self.D = centered.B if factor is None else factor.adjoint(factor.targets)
        right = np.column_stack([self.D, self.mean]) if self.weight else self.D
        self.system: Any = (
            _RowSystem(centered.gamma, factor, right)
            if factor
            else _GramSystem(centered, right)
        )

    def solve(self, s: np.ndarray, *, last: bool = False) -> tuple[np.ndarray, float]:
        """Return W for s, and J there."""
        # H U = right − left
        U, left = self.system.solve(s, RESIDUAL if last else ROUND_RESIDUAL)
        spare = 0.0
        if self.weight:
            v, left_v, U, left = U[:, -1], left[:, -1], U[:, :-1], left[:, :-1]
            e = (self.average - self.mean @ U) / (1.0 + self.weight * (self.mean @ v))
            U = U + self.weight * np.outer(v, e)
            left = left + self.weight * np.outer(left_v, e)
            spare = self.weight * float(e @ self.average)
        J = self.q - float(np.vdot(U, self.D + left)) + spare
        return np.divide(U, s[:, None], out=np.zeros_like(U), where=s[:, None] > 0), J

    def curvature(self, W: np.ndarray) -> Times:
        """v → Q v with Q = G∘(WW') (d, d), half the Hessian of J in s."""
        centered = self.system.curvature(W)
        if not self.weight:
            return centered
        far = np.sqrt(self.weight) * self.mean[:, None] * W
        return lambda v: centered(v) + far @ (far.T @ v)


class _GramSystem:
    """H V = right from the d × d matrix C, for one s after the other.

    With many features V comes from block conjugate gradients, which start where the last
    solutions point to. They are preconditioned by the diagonal of H; where that is slow, by
    the Cholesky factor of an earlier H, in float32 unless γ is too small for it.
    """

    def __init__(self, objective: Objective, right: np.ndarray) -> None:
        self.C, self.gamma, self.right = objective.gram(), objective.gamma, right
        self.exact = objective.n_features <= SMALL
        self.dtype: Any = np.float64 if objective.precise or self.exact else np.float32
        self.on = np.zeros(0, dtype=bool)
        self.factor: tuple | None = None
        self.slow = objective.precise  # whether the diagonal alone does not serve
        self.steps = 0
        self.past: list[tuple[float, np.ndarray, np.ndarray]] = []  # times, V and C V
        self.known: tuple[np.ndarray, np.ndarray] | None = None  # a V and its C V in float64
        self.scale = float(self.C.diagonal().max()) or 1.0
        if not self.exact:
            self.C32 = np.empty_like(self.C, dtype=np.float32)
            np.divide(self.C, self.scale, out=self.C32, casting="same_kind")
            self.Q32 = np.empty_like(self.C32)

    def solve(self, s: np.ndarray, goal: float) -> tuple[np.ndarray, np.ndarray]:
        """V and right − H V; rows where s = 0 are left out."""
        (V, left), on = np.zeros((2, *self.right.shape)), s > 0
        if not np.array_equal(on, self.on):
            self.on, some = on, slice(None) if on.all() else np.ix_(on, on)
            self.G, self.factor, self.past, self.known = self.C[some], None, [], None
            if not self.exact:
                self.G32 = self.C32[some]
        if on.any():
            ridge = self.gamma / s[on, None] ** 2
            if self.exact:
                V[on] = cho_solve(self._factorize(ridge), self.right[on])
            else:
                equations = _Equations(s[on], self.G, ridge, self.right[on], goal)
                V[on], left[on] = self._iterate(equations)
        return V, left

    def _factorize(self, ridge: np.ndarray) -> tuple:
        """Cholesky factor of H, in float64 if float32 does not suffice."""
        H: np.ndarray = self.G.T.astype(self.dtype, order="F")  # as LAPACK wants it
        H[np.diag_indices_from(H)] += ridge[:, 0].astype(self.dtype)
        try:
            return cho_factor(H, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            if self.dtype is np.float64:
                raise ValueError(PENALTY_LOST) from None
        self.dtype = np.float64
        return self._factorize(ridge)

    def _iterate(self, equations: _Equations) -> tuple[np.ndarray, np.ndarray]:
        V, GV = np.zeros_like(equations.right), np.zeros_like(equations.right)
        time = 1.0 / float(equations.s.mean())  # in which solutions move almost evenly
        weights = _continuation([then for then, *_ in self.past], time)
        for weight, (_, earlier, image) in zip(weights, self.past[-len(weights) :]):
            V += weight * earlier
            GV += weight * image
        fresh = self.slow if self.factor is None else self.steps >= MANY_STEPS
        for _ in range(3):
            if fresh:
                self.factor = self._factorize(equations.ridge)
            if self._descend(V, GV, equations):
                break
            if fresh:  # a current factor that does not help needs more digits
                self.dtype = np.float64
            self.slow = fresh = True
            V[...] = GV[...] = 0.0  # rounding errors may have led astray
        self.past = [*self.past, (time, V, GV)][-KEPT:]
        return V, equations.left(V, GV)

    def _descend(self, V: np.ndarray, GV: np.ndarray, equations: _Equations) -> bool:
        """Improve V and C V in place; whether the equations hold."""
        G, scale = (self.G, 1.0) if self.dtype is np.float64 else (self.G32, self.scale)
        ridge, self.steps = (equations.ridge / scale).astype(self.dtype), 0
        left, worn = equations.left(V, GV), False
        while True:
            if worn or equations.hold(left):
                GV[...] = self._image(V, equations.goal)
                left = equations.left(V, GV)
                if equations.hold(left):
                    return True
            if self.steps > MOST_STEPS:
                return False
            # residuals in the precision of the products, within its range
            unit, size = float(np.abs(left).max()), float(np.abs(V).max()) or 1.0
            R, P = (left / unit).astype(self.dtype), (V / size).astype(self.dtype)
            HP = (GV / (size * scale)).astype(self.dtype) + ridge * P
            before: list[tuple[np.ndarray, ...]] = []  # conjugate to each other
            while True:
                # the best step along P, which serves all columns
                self.steps += 1
                M = P.T @ HP
                Y = _solved(M, P.T @ R).T
                V += (unit / scale) * (Y @ P.T).T
                R -= (Y @ HP.T).T
                left = unit * R.astype(np.float64)
                worn = float(np.abs(R).max()) < 16.0 * np.finfo(self.dtype).eps
                if self.steps > MOST_STEPS or worn or equations.hold(left):
                    break
                if self.factor is None:
                    Z = R / (G.diagonal()[:, None] + ridge)
                else:
                    Z = cho_solve(self.factor, R, check_finite=False)
                before = [*before[:1], (P, HP, M)]
                for P, HP, M in before:
                    Z -= (_solved(M, HP.T @ Z).T @ P.T).T
                P, HP = Z, (Z.T @ G).T + ridge * Z

    def _image(self, V: np.ndarray, goal: float) -> np.ndarray:
        """C V, by the change since it was computed last where float32 suffices for that."""
        if self.known is not None and self.dtype is np.float32:
            change = V - self.known[0]
            error = 10.0 * np.finfo(np.float32).eps * np.linalg.norm(change)
            if error < goal * np.linalg.norm(V):
                size = float(np.abs(change).max()) or 1.0
                product = (change / size).astype(np.float32).T @ self.G32
                return self.known[1] + (self.scale * size) * product.T
        self.known = V.copy(), (V.T @ self.G).T
        return self.known[1]

    def curvature(self, W: np.ndarray) -> Times:
        """v → (C∘WW') v; in float32, of matrices scaled to its range, if there are many."""
        if self.exact:
            return partial(np.matmul, self.C * (W @ W.T))
        size = float(np.abs(W).max()) or 1.0
        W32 = (W / size).astype(np.float32)
        np.matmul(W32, W32.T.copy(), out=self.Q32)  # numpy is slow for W W' of one array
        self.Q32 *= self.C32

        def times(v: np.ndarray) -> np.ndarray:
            length = float(np.abs(v).max()) or 1.0
            product = self.Q32 @ (v / length).astype(np.float32)
            return self.scale * size**2 * length * product.astype(np.float64)

        return times


class _Equations:
    """H V = right with H = C + diag(ridge), to hold up to a goal relative to right, each row
    in units of √H_jj: columns of X may differ by orders of magnitude."""

    def __init__(self, s: np.ndarray, C: np.ndarray, ridge: Any, right: Any, goal: float):
        # all of them column by column in memory, as LAPACK wants it
        self.s, self.ridge, self.right = s, ridge, np.asfortranarray(right)
        self.units = 1.0 / np.sqrt(C.diagonal()[:, None] + ridge)
        sizes, self.goal = np.linalg.norm(self.units * right, axis=0), goal
        self.goals = goal * np.maximum(sizes, np.sqrt(np.mean(sizes**2)))

    def left(self, V: np.ndarray, GV: np.ndarray) -> np.ndarray:
        """right − H V."""
        return self.right - GV - self.ridge * V

    def hold(self, left: np.ndarray) -> bool:
        return bool((np.linalg.norm(self.units * left, axis=0) <= self.goals).all())


class _RowSystem:
    """The same through the n × n matrix F S² F' when n < d, where C = F'F.

    With K = F S² F' + γI, H⁻¹ = S² (I − F'K⁻¹F S²) / γ, and H⁻¹D = S²F'K⁻¹T for D = F'T.
    """

    def __init__(self, gamma: float, factor: Factor, right: np.ndarray) -> None:
        self.F, self.gamma, self.right = factor, gamma, right

    def solve(self, s: np.ndarray, _: float) -> tuple[np.ndarray, np.ndarray]:
        """V and right − H V, which is 0."""
        K, squares, T = self.F.dual_gram(s), s[:, None] ** 2, self.F.targets
        K[np.diag_indices_from(K)] += self.gamma
        mean = self.right[:, T.shape[1] :]  # a column, or none
        if mean.size:
            T = np.column_stack([T, self.F.apply(squares * mean)])
        try:
            dual = cho_solve(cho_factor(K, lower=True), T)
        except np.linalg.LinAlgError:
            raise ValueError(PENALTY_LOST) from None
        V = squares * self.F.adjoint(dual)
        if mean.size:
            V[:, -1:] = (squares * mean - V[:, -1:]) / self.gamma
        return V, np.zeros_like(V)

    def curvature(self, W: np.ndarray) -> Times:
        """v → (C∘WW') v."""
        F = self.F
        return lambda v: np.einsum("ij,ij->i", F.adjoint(F.apply(v[:, None] * W)), W)


def _continuation(times: list[float], time: float) -> np.ndarray:
    """Weights of what was found at the last times: the polynomial through it, at a new time."""
    for first in range(len(times)):
        nodes = np.array(times[first:])
        gaps = np.subtract.outer(nodes, nodes) + np.eye(len(nodes))
        ahead = np.where(np.eye(len(nodes)), 1.0, time - nodes)
        if gaps.all():
            weights = np.prod(ahead / gaps, axis=1)
            if np.abs(weights).sum() <= LARGEST_WEIGHTS:
                return weights
    return np.zeros(0)


def _solved(M: np.ndarray, right: np.ndarray) -> np.ndarray:
    """M⁻¹ right for a positive definite M (r, r) up to rounding errors."""
    M64 = M.astype(np.float64)
    sizes = np.sqrt(np.maximum(M64.diagonal(), np.finfo(np.float32).tiny))
    M64 /= np.outer(sizes, sizes)
    # dependent directions, near the end, must not blow up
    eps = max(0.1 * np.finfo(M.dtype).eps, 8.0 * np.finfo(np.float64).eps)
    M64[np.diag_indices_from(M64)] += eps
    return (np.linalg.solve(M64, right / sizes[:, None]) / sizes[:, None]).astype(M.dtype)


class _SStep:
    """Projected gradient steps on J_s = q − 2b's + s'Qs, Q = G∘(WW') (Eqs. 9 to 11)."""

    def __init__(self, objective: Objective, n_inner: int, step: str | float) -> None:
        self.gamma, self.diag = objective.gamma, objective.diag
        self.n_inner, self.step = n_inner, step
        self.direction: np.ndarray | None = None

    def move(self, Q: Times, W: np.ndarray, s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the next s, after an exact W-step for this one, and what was added to it."""
        squares = np.einsum("ij,ij->i", W, W)
        # After an exact W-step the gradient has this closed form; Eq. 10 evaluated as it stands
        # is a difference of large numbers. Where s_i = 0 the row w_i is 0, and so is the slope.
        gradient = -2.0 * self.gamma * np.divide(squares, s, np.zeros_like(s), where=s > 0)
        length = 0.0 if isinstance(self.step, str) else self.step
        if self.step == "lipschitz" and squares.any():
            largest = self._largest_eigenvalue(Q, float(self.diag @ squares))
            length = 0.5 / largest if largest > 0 else 0.0
        total = np.zeros_like(s)
        for _ in range(self.n_inner):
            if self.step == "exact":
                along = float(gradient @ Q(gradient))
                length = 0.5 * float(gradient @ gradient) / along if along > 0 else 0.0
            change, bend = _descent(Q, s, gradient, length)
            s, gradient, total = s + change, gradient + 2.0 * bend, total + change
        return s, total

    def _largest_eigenvalue(self, Q: Times, trace: float) -> float:
        """λ_max of Q, by Lanczos steps that start at the direction of the last round."""
        d = len(self.diag)
        # What is added to the last direction keeps another one from being overlooked.
        noise = np.random.default_rng(0).standard_normal(d) / np.sqrt(d)
        v = noise if self.direction is None else self.direction + 0.05 * noise
        basis, diagonal, off = np.empty((min(d, MOST_PRODUCTS), d)), [], []
        for k, row in enumerate(basis):
            row[:] = v / np.linalg.norm(v)
            v = Q(row)
            diagonal.append(float(row @ v))
            for _ in range(2):  # orthogonal to all before, in spite of rounding errors
                v = v - (basis[: k + 1] @ v) @ basis[: k + 1]
            off.append(float(np.linalg.norm(v)))
            which: Any = {"select": "i", "select_range": (k, k)}
            (value,), vector = eigh_tridiagonal(diagonal, off[:-1], **which)
            if off[-1] * np.abs(vector[-1]) <= EIGENVECTOR * value:
                self.direction = vector.ravel() @ basis[: k + 1]
                return float(value)
        return trace  # which it cannot exceed


def _descent(
    Q: Times, s: np.ndarray, gradient: np.ndarray, length: float
) -> tuple[np.ndarray, np.ndarray]:
    """A projected move (d,) that does not raise J, and Q times it."""
    for _ in range(60):
        move = np.maximum(-length * gradient, -s)
        bend = Q(move)
        # J is quadratic in s, so its change g'm + m'Qm is known exactly.
        if gradient @ move + move @ bend <= 0.0:
            return move, bend
        length *= 0.5
    return np.zeros_like(s), np.zeros_like(s)
