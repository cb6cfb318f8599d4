"""Two solvers of the objective: `direct` (the 0/1 problem) and `alternating` (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Union

import numpy as np
from scipy.linalg import cho_factor, cho_solve, pinvh, solve_triangular

from semfs.objective import Factor, Objective

__all__ = ["Solution", "solve_alternating", "solve_direct"]

# Gram columns are fetched for this many candidates at a time: with fewer, BLAS would spend
# its time reading X; with more, columns would be fetched that nobody asks for.
SMALLEST_BATCH, LARGEST_BATCH = 32, 128
# W solves Eq. 12 to this residual, relative to its right-hand side; in the rounds before the
# last a looser one serves: J is computed for the W at hand and near 1e-10 of its lowest there.
RESIDUAL = 1e-9
ROUND_RESIDUAL = 1e-5
# From this many features on, single precision saves enough time to be worth its care.
SINGLE_FROM = 1024

# A preconditioner that needs more steps than this gives way to a new Cholesky factor.
PATIENCE = 6
# What is carried from round to round (G U, and λ_max of the s-step's Hessian) is computed
# afresh every so many rounds.
FRESH_ROUNDS = 4

STEP_RULES = ("lipschitz", "exact")

# Called after each step with its number, J, the feature added (or None) and a function that
# makes the Solution so far; a true answer stops the solver.
Monitor = Callable[[int, float, int | None, Callable[[], "Solution"]], bool]
Product = Callable[[np.ndarray], np.ndarray]
_WStep = Union["_PrimalStep", "_DualStep"]


@dataclass(frozen=True)
class Solution:
    """What a solver found.

    ``scores`` and ``order`` (d,) rank all features; ``W`` (d, r) solves Eq. 12 for the
    selection ``s`` (d,), which is 0/1 for `direct`; ``objective`` holds J after each step.
    """

    s: np.ndarray
    W: np.ndarray
    scores: np.ndarray
    order: np.ndarray
    objective: np.ndarray
    converged: bool


# ---- direct: forward selection on Eq. 4 by pivoted Cholesky ----------------------------------


def solve_direct(
    objective: Objective,
    n_select: int,
    *,
    candidates: np.ndarray | None = None,
    include: np.ndarray | None = None,
    n_swaps: int = 0,
    monitor: Monitor | None = None,
) -> Solution:
    """Add the feature that lowers J most, ``n_select`` times.

    For a set S the best W is closed form and J = q − F(S) with
    F(S) = tr(B_S'(G_SS + γI)⁻¹B_S), so each step is one column of a Cholesky factorisation
    of G + γI, pivoted by the gain ‖R_j‖²/δ_j. Features are nested: the first k of the order
    are the answer for k.

    Parameters
    ----------
    objective : Objective
    n_select : int
        Number of features to choose, those of ``include`` counted.
    candidates : ndarray of bool of shape (d,), optional
        Features that may be chosen. The others rank last.
    include : ndarray of int, optional
        Features that enter before all others.
    n_swaps : int, default=0
        Afterwards, at most this many exchanges of one chosen feature for another, while
        J falls.
    monitor : Monitor, optional
        Called after each feature.
    """
    forced = np.zeros(objective.n_features, dtype=bool)
    if include is not None:
        forced[include] = True
    allowed = np.ones_like(forced) if candidates is None else candidates | forced
    path = _ForwardPath(objective, allowed, n_select)
    stopped = False
    while len(path.chosen) < n_select and not stopped:
        waiting = forced & ~path.taken
        if not path.add_best(waiting if waiting.any() else allowed):
            break
        if monitor is not None:
            step, J = len(path.chosen), objective.q - sum(path.gains_of)
            stopped = bool(monitor(step, J, path.chosen[-1], path.solution))
    if n_swaps and path.chosen:
        return _exchange(path, forced, n_swaps)
    return path.solution()


class _ForwardPath:
    """Partial Cholesky factor L of G + γI in the order of entry, and what is left of B.

    R = B − L Q' is the residual of B and δ = diag(G) + γ − Σ l² its pivots; the gain of
    feature j is ‖R_j‖²/δ_j, exactly the fall of J when it enters.
    """

    def __init__(self, objective: Objective, allowed: np.ndarray, n_select: int) -> None:
        self.objective, self.allowed = objective, allowed
        self.pivots = objective.diag + objective.gamma
        self.smallest = 1e-12 * self.pivots  # below it a column is a copy of chosen ones
        self.chosen: list[int] = []
        self.gains_of: list[float] = []
        self.taken = np.zeros(objective.n_features, dtype=bool)
        self._L = np.empty((objective.n_features, n_select), order="F")
        self._Q = np.empty((n_select, objective.B.shape[1]))
        self.columns: dict[int, np.ndarray] = {}
        self._restart_residual()

    @property
    def L(self) -> np.ndarray:
        """The columns (d, t) of the Cholesky factor so far."""
        return self._L[:, : len(self.chosen)]

    @property
    def Q(self) -> np.ndarray:
        """The rows (t, r) of L⁻¹B so far."""
        return self._Q[: len(self.chosen)]

    def _restart_residual(self) -> None:
        """R = B − L Q' afresh, so that rounding errors of updated norms do not pile up."""
        self.R = self.objective.B - self.L @ self.Q
        self.fresh = len(self.chosen)
        self.norms = np.einsum("ij,ij->i", self.R, self.R)
        self.largest = float(self.norms.max(initial=0.0))

    def gains(self) -> np.ndarray:
        """Fall of J (d,) if the feature entered next; 0 for chosen ones and copies of them."""
        usable = ~self.taken & (self.pivots > self.smallest)
        pivots = np.where(usable, self.pivots, 1.0)
        return np.where(usable, np.maximum(self.norms, 0.0) / pivots, 0.0)

    def add_best(self, among: np.ndarray) -> bool:
        """Add the feature of largest gain; False if none is left."""
        gains = np.where(among & ~self.taken, self.gains(), -1.0)
        best = float(gains.max())
        if best < 0.0:
            return False
        # Equal up to rounding counts as equal: the lowest index wins whatever the order of
        # summation was.
        tie = 1.0 - 100.0 * self.objective.moments.itemsize_error
        j = int(np.argmax(gains >= best * tie)) if best > 0.0 else int(np.argmax(gains))
        if j not in self.columns:
            self._fetch(j, gains)
            return self.add_best(among)  # gains were refreshed
        self._enter(j, float(gains[j]))
        return True

    def _fetch(self, j: int, gains: np.ndarray) -> None:
        """Get the Gram columns of j and of the next best candidates in one pass over X."""
        known = np.fromiter(self.columns, dtype=np.intp, count=len(self.columns))
        wanted = gains.copy()
        wanted[known] = -1.0
        wanted[j] = np.inf
        still_needed = self._L.shape[1] - len(self.chosen)
        size = min(max(-(-7 * still_needed // 128) * 32, SMALLEST_BATCH), LARGEST_BATCH)
        batch = np.argsort(-wanted, kind="stable")[:size]
        batch = np.sort(batch[wanted[batch] >= 0.0])
        block = self.objective.columns(batch)
        self.columns.update({int(i): block[:, t] for t, i in enumerate(batch)})
        self._restart_residual()

    def _enter(self, j: int, gain: float) -> None:
        t = len(self.chosen)
        if self.pivots[j] > self.smallest[j]:
            column, share = self._eliminate(j)
        else:  # a copy of chosen features, forced in: it explains nothing more
            column, share = np.eye(1, len(self.taken), j)[0], np.zeros(self._Q.shape[1])
        self._L[:, t], self._Q[t] = column, share
        self.chosen.append(j)
        self.gains_of.append(gain)
        self.taken[j] = True
        if self.norms[~self.taken].max(initial=0.0) < 1e-6 * self.largest:
            self._restart_residual()

    def _eliminate(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The next column of L and row of Q; norms and pivots are updated."""
        root = np.sqrt(self.pivots[j])
        column = self.columns[j] - self.L @ self.L[j]
        column[j] += self.objective.gamma
        column /= root
        share = (self.R[j] - self.L[j, self.fresh :] @ self.Q[self.fresh :]) / root
        # ‖R_i − l_i q‖² without touching all of R
        product = self.R @ share - self.L[:, self.fresh :] @ (self.Q[self.fresh :] @ share)
        self.norms += column * (column * (share @ share) - 2.0 * product)
        self.pivots = self.pivots - column**2
        return column, share

    def solution(self) -> Solution:
        """Ranking, W and J of the features chosen so far."""
        chosen = np.array(self.chosen, dtype=np.intp)
        d = self.objective.n_features
        s, W = np.zeros(d), np.zeros(self.objective.B.shape)
        s[chosen] = 1.0
        if self.chosen:
            W[chosen] = solve_triangular(self.L[chosen].T, self.Q, check_finite=False)
        scores = np.where(self.allowed, self.gains(), -np.inf)
        if self.gains_of:  # features beyond the ranking stay below it
            scores = np.minimum(scores, self.gains_of[-1])
        scores[chosen] = self.gains_of
        rest = np.argsort(-scores, kind="stable")
        rest = rest[~self.taken[rest]]
        objective = self.objective.q - np.cumsum(self.gains_of)
        return Solution(s, W, scores, np.concatenate([chosen, rest]), objective, True)


def _exchange(path: _ForwardPath, forced: np.ndarray, n_swaps: int) -> Solution:
    """Swap chosen features for others while J falls, at most ``n_swaps`` times in all.

    From the local optimum each chosen feature is in turn replaced by the next best one,
    even if J rises, to see whether further swaps lead to a lower J.
    """
    chosen, budget = _climb(path, list(path.chosen), forced, n_swaps)
    turn = 0
    while turn < len(chosen) and budget > 0:
        gain = _swap_gains(path, chosen, forced)[:, turn]
        j = int(np.argmax(gain))
        trial = list(chosen)
        if np.isfinite(gain[j]):
            trial[turn] = j
            trial, budget = _climb(path, trial, forced, budget - 1)
        if _fit(path, trial) > _fit(path, chosen) + 1e-10 * path.objective.q:
            chosen, turn = trial, 0
        else:
            turn += 1
    return _rank_within(path, chosen)


def _climb(
    path: _ForwardPath, chosen: list[int], forced: np.ndarray, budget: int
) -> tuple[list[int], int]:
    """Make the best swap until none lowers J or the budget is spent."""
    while budget > 0:
        gain = _swap_gains(path, chosen, forced)
        j, i = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[j, i] > 1e-10 * path.objective.q:
            break
        chosen[i] = int(j)
        budget -= 1
    return chosen, budget


def _swap_gains(path: _ForwardPath, chosen: list[int], forced: np.ndarray) -> np.ndarray:
    """Fall of J (d, k) when feature j takes the place of the i-th chosen one.

    With P = (G_SS + γI)⁻¹, W = P B_S and C = G_·S P, leaving i out changes the residuals to
    R_j + C_ji W_i / P_ii and the pivots to δ_j + C_ji² / P_ii, and F falls by ‖W_i‖² / P_ii.
    """
    objective, S, G_S = path.objective, np.array(chosen), _columns_of(path, chosen)
    P = _inverse(G_S[S] + objective.gamma * np.eye(len(S)))
    W, C, p = P @ objective.B[S], G_S @ P, np.diag(P)
    R = objective.B - G_S @ W
    delta = objective.diag + objective.gamma - np.einsum("ij,ij->i", C, G_S)
    loss = np.einsum("ij,ij->i", W, W) / p
    norms = np.einsum("ij,ij->i", R, R)[:, None] + (C / p) * (2.0 * R @ W.T + C * loss)
    pivots = np.maximum(delta[:, None] + C**2 / p, path.smallest[:, None])
    gain = norms / pivots - loss
    gain[~path.allowed] = -np.inf
    gain[S] = -np.inf
    gain[:, forced[S]] = -np.inf
    return gain


def _fit(path: _ForwardPath, chosen: list[int]) -> float:
    """F(S) = tr(B_S'(G_SS + γI)⁻¹B_S)."""
    S, G_S = np.array(chosen), _columns_of(path, chosen)
    B = path.objective.B[S]
    return float(np.sum(B * (_inverse(G_S[S] + path.objective.gamma * np.eye(len(S))) @ B)))


def _inverse(K: np.ndarray) -> np.ndarray:
    """Inverse of a small positive definite matrix (k, k); with γ = 0 it may be singular."""
    try:
        return cho_solve(cho_factor(K), np.eye(len(K)))
    except np.linalg.LinAlgError:
        return pinvh(K)


def _columns_of(path: _ForwardPath, features: list[int]) -> np.ndarray:
    """Columns of G (d, k), fetched where not yet known."""
    missing = np.array([i for i in features if i not in path.columns], dtype=np.intp)
    if missing.size:
        block = path.objective.columns(missing)
        path.columns.update({int(i): block[:, t] for t, i in enumerate(missing)})
    return np.column_stack([path.columns[i] for i in features])


def _rank_within(path: _ForwardPath, chosen: list[int]) -> Solution:
    """Forward selection among the chosen features only, then the rest by their next gain."""
    among = np.zeros_like(path.taken)
    among[chosen] = True
    ranked = _ForwardPath(path.objective, path.allowed, len(chosen))
    ranked.columns = path.columns
    while len(ranked.chosen) < len(chosen):
        ranked.add_best(among)
    return ranked.solution()


# ---- alternating: Algorithm 1 ----------------------------------------------------------------


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
    """Algorithm 1: W by Eq. 12, s by projected gradient, in turns.

    Parameters
    ----------
    objective : Objective
    max_iter : int, default=20
        Number of rounds. A round is an s-step and the exact W-step that answers it; a
        first W-step precedes them.
    tol : float, default=1e-4
        Stop when a round lowers J by less than ``tol`` times its value.
    n_inner : int, default=1
        Projected gradient steps per round.
    step : "lipschitz", "exact" or float, default="lipschitz"
        1/λ_max of the Hessian 2·G∘(WW'), the step that minimises J along the projected
        gradient, or a fixed length (halved while J would rise).
    s_init : ndarray of shape (d,), optional
        s₀, by default all ones.
    monitor : Monitor, optional
        Called after each round.
    """
    d = objective.n_features
    s = np.ones(d) if s_init is None else np.array(s_init, dtype=np.float64)
    factor = objective.factor()
    w_step = _PrimalStep(objective) if factor is None else _DualStep(objective, factor)
    s_step = _SStep(objective, w_step, n_inner, step)
    W, J = w_step.solve(s)
    history: list[float] = []
    converged = False
    for _ in range(max_iter):
        s_new = s_step.move(W, s)
        W, J_new = w_step.solve(s_new)
        for _ in range(60):  # λ_max may have been estimated a little too low
            if J_new <= J + 1e-12 * abs(J):
                break
            s_new = 0.5 * (s + s_new)
            W, J_new = w_step.solve(s_new)
        s = s_new
        history.append(J_new)
        converged = J - J_new <= tol * abs(J)
        J = J_new
        so_far = partial(_relaxed_solution, s, W, list(history), converged)
        stopped = monitor is not None and monitor(len(history), J, None, so_far)
        if converged or stopped:
            break
    W, _ = w_step.solve(s, last=True)
    return _relaxed_solution(s, W, history, converged)


def _relaxed_solution(
    s: np.ndarray, W: np.ndarray, history: list[float], converged: bool
) -> Solution:
    order = np.argsort(-s, kind="stable")
    return Solution(s, W, s, order, np.array(history), converged)


class _SStep:
    """Projected gradient steps on J_s = q − 2b's + s'Qs, Q = G∘(WW') (Eqs. 9 to 11)."""

    def __init__(
        self, objective: Objective, w_step: _WStep, n_inner: int, step: str | float
    ) -> None:
        self.objective, self.w_step = objective, w_step
        self.n_inner, self.step = n_inner, step
        self.rounds = 0
        self.direction: np.ndarray | None = None
        self.largest_ratio = 0.0

    def move(self, W: np.ndarray, s: np.ndarray) -> np.ndarray:
        """Return the next s, after an exact W-step for this one."""
        squares = np.einsum("ij,ij->i", W, W)
        # After an exact W-step the gradient has this closed form; Eq. 10 evaluated as it stands
        # is a difference of large numbers. Where s_i = 0 the row w_i is 0, and so is the slope.
        ratio = np.divide(squares, s, out=np.zeros_like(s), where=s > 0)
        gradient = -2.0 * self.objective.gamma * ratio
        Q = self.w_step.curvature(W, self.n_inner)
        largest = self._largest_curvature(Q, W, s) if self.step == "lipschitz" else 0.0
        if self.step == "lipschitz" and self.n_inner == 1:  # safe as it is
            return np.maximum(s - 0.5 / largest * gradient, 0.0) if largest > 0 else s
        for _ in range(self.n_inner):
            length = _step_length(Q, gradient, self.step, largest)
            step, bend = _descent(Q, s, gradient, length)
            s, gradient = s + step, gradient + 2.0 * bend
        return s

    def _largest_curvature(self, Q: Product, W: np.ndarray, s: np.ndarray) -> float:
        """λ_max(Q), by power iteration every few rounds.

        In between its ratio to s'Qs / s's hardly changes, and that costs nothing: Eq. 12
        times W' says s'Qs = ⟨SW, B⟩ − γ‖W‖². A step within twice the true 1/λ_max descends.
        """
        fit = float(np.einsum("ij,ij,i->", W, self.objective.B, s, optimize=True))
        along = (fit - self.objective.gamma * float(np.vdot(W, W))) / float(s @ s)
        if self.rounds % FRESH_ROUNDS == 0:
            largest, self.direction = _power_iteration(Q, self.direction, len(s))
            self.largest_ratio = largest / along if along > 0.0 else 0.0
        self.rounds += 1
        return self.largest_ratio * along


def _step_length(Q: Product, gradient: np.ndarray, step: str | float, largest: float) -> float:
    if step == "lipschitz":
        return 0.5 / largest if largest > 0 else 0.0
    if step == "exact":
        along = float(gradient @ Q(gradient))
        return 0.5 * float(gradient @ gradient) / along if along > 0 else 0.0
    return float(step)


def _descent(
    Q: Product, s: np.ndarray, gradient: np.ndarray, length: float
) -> tuple[np.ndarray, np.ndarray]:
    """A projected move (d,) that does not raise J, and Q times it."""
    for _ in range(60):
        move = np.maximum(s - length * gradient, 0.0) - s
        bend = Q(move)
        # J is quadratic in s, so its change g'm + m'Qm is known exactly.
        if gradient @ move + move @ bend <= 0.0:
            return move, bend
        length *= 0.5
    return np.zeros_like(s), np.zeros_like(s)


class _PrimalStep:
    """W-step and curvature from the d × d matrix G.

    With U = S W, Eq. 12 reads H U = B, H = G + γS⁻². As s moves slowly and smoothly, the
    columns of the last U and of its last change nearly span the next one: the best point of
    that span starts block conjugate gradients, which stay H-conjugate to it. They are
    preconditioned by the diagonal of H or, where that is slow, by the Cholesky factor of H
    for an earlier s. Search directions are in float32 where that converges; U, G U and
    residuals are in float64.
    """

    def __init__(self, objective: Objective) -> None:
        self.objective = objective
        self.G = objective.gram()
        self.small = objective.n_features < SINGLE_FROM
        exact = objective.precise or self.small
        self.dtype: type = np.float64 if exact else np.float32
        self.G32 = self.G.astype(np.float32)
        self.noise = np.sqrt(np.finfo(self.dtype).eps)  # below it a change of U tells nothing
        self.factor: tuple | None = None
        self.factor_ridge = np.zeros(0)
        self.last: tuple[np.ndarray, np.ndarray] | None = None  # U and G U of the last round
        self.change: tuple[np.ndarray, np.ndarray] | None = None  # and how they got there
        self.on = np.zeros(0, dtype=bool)  # features with s > 0 in the last round
        self.rounds = 0
        self.drifts = objective.precise  # whether rounding errors of G U pile up

    def solve(self, s: np.ndarray, *, last: bool = False) -> tuple[np.ndarray, float]:
        """Return W for s, and J there."""
        on = s > 0
        ridge = np.where(on, self.objective.gamma / np.where(on, s, 1.0) ** 2, np.inf)
        goal = RESIDUAL if last or self.small else ROUND_RESIDUAL
        system = _System(self.objective.B, s, ridge, goal)
        same_features = np.array_equal(on, self.on)
        U, GU, span = self._start(system, same_features, exact=last)
        self._refine(U, GU, system, span)
        if self.last is None:  # large steps leave the rounding errors of float32 in G U
            GU[:] = self._image(U)
            self._refine(U, GU, system, [])
        elif same_features:
            self.change = U - self.last[0], GU - self.last[1]
        self.last, self.on, self.rounds = (U, GU), on, self.rounds + 1
        J = self.objective.q - _inner(U, self.objective.B) - _inner(U, system.residual(U, GU))
        W = np.divide(U, s[:, None], out=np.zeros_like(U), where=on[:, None])
        return W, J

    def _start(
        self, system: _System, same_features: bool, *, exact: bool
    ) -> tuple[np.ndarray, np.ndarray, list[_Span]]:
        """The best U in the span of earlier ones, G times it, and the span."""
        B = self.objective.B
        if self.last is None:
            return np.zeros_like(B), np.zeros_like(B), []
        if exact or self.drifts or not same_features or self.rounds % FRESH_ROUNDS == 0:
            U, tracked = self.last
            U[~system.on] = 0.0
            self.last = U, self._image(U)
            if same_features and not exact:
                # J feels errors of G U to first order, those of U to second
                drift = system.size(self.last[1] - tracked)
                self.drifts |= drift > 0.01 * system.target
        U, GU = (matrix.copy(order="K") for matrix in self.last)
        if self.small or not same_features:
            self.change = None
            return U, GU, []
        pairs = [(U, GU)]
        smallest = np.inf if self.drifts else self.noise * _norm(U)
        if self.change is not None and _norm(self.change[0]) > smallest:
            pairs.append(self.change)
        basis: np.ndarray = np.hstack([pair[0] for pair in pairs]).astype(self.dtype)
        images: np.ndarray = np.hstack([pair[1] for pair in pairs]).astype(self.dtype)
        span = _Span(basis, images, system)
        span.improve(U, GU, system.residual(U, GU))
        return U, GU, [span]

    def _refine(
        self, U: np.ndarray, GU: np.ndarray, system: _System, span: list[_Span]
    ) -> None:
        """Improve U and G U in place until Eq. 12 holds: block conjugate gradients."""
        spans, sizes = span, []
        for _ in range(100):
            residual = system.residual(U, GU)
            sizes.append(system.size(residual))
            if sizes[-1] <= system.target:
                return
            if self._prepare(system, sizes):
                spans, sizes = span, sizes[-1:]  # another preconditioner: start again
            step = self._precondition(residual, system)
            for earlier in spans:
                step -= earlier.projection(step)
            image = self._image(step)
            spans = [*span, _Span(step, image, system)]
            spans[-1].improve(U, GU, residual)

    def _image(self, V: np.ndarray) -> np.ndarray:
        """G V, in the precision of V and stored as it is."""
        return (V.T @ (self.G32 if V.dtype == np.float32 else self.G)).T

    def _precondition(self, residual: np.ndarray, system: _System) -> np.ndarray:
        right: np.ndarray = residual.astype(self.dtype)
        if self.factor is None:
            diagonal = 1.0 / (self.objective.diag + system.ridge)
            return right * diagonal.astype(self.dtype)[:, None]
        out = cho_solve(self.factor, right, check_finite=False)
        out[~system.on] = 0.0
        return out

    def _prepare(self, system: _System, sizes: list[float]) -> bool:
        """Factor H afresh if the preconditioner at hand takes too many steps."""
        if self.factor is not None and np.array_equal(system.ridge, self.factor_ridge):
            if len(sizes) < 2 or sizes[-1] <= 0.5 * sizes[-2] or self.dtype is np.float64:
                return False
            self.dtype = np.float64  # a current factor in float32 that does not help
        else:
            hard = self.objective.precise and self.factor is None  # for the diagonal
            if not (self.small or hard) and _steps_left(sizes, system.target) <= PATIENCE:
                return False
        self._factorise(system.ridge)
        return True

    def _factorise(self, ridge: np.ndarray) -> None:
        """Cholesky factor of G + γS⁻², features with s = 0 taken out."""
        on = np.isfinite(ridge)
        G = self.G if self.dtype is np.float64 else self.G32
        H = np.array(G.T, order="F", copy=True)  # in LAPACK's layout: no further copy
        if not on.all():
            H[~on] = 0.0
            H[:, ~on] = 0.0
        H[np.diag_indices_from(H)] += np.where(on, ridge, 1.0).astype(self.dtype)
        try:
            self.factor = cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
        except np.linalg.LinAlgError:
            if self.dtype is np.float64:
                raise
            self.dtype = np.float64
            return self._factorise(ridge)
        self.factor_ridge = ridge

    def curvature(self, W: np.ndarray, n_products: int) -> Product:
        """v → Q v with Q = G∘(WW'); written out if many products are wanted."""
        if n_products > 8:
            Q = self.G * (W @ W.T)
            return lambda v: Q @ v

        def product(v: np.ndarray) -> np.ndarray:
            W32 = W.astype(np.float32)
            scale = float(np.abs(v).max()) or 1.0
            inner = self.G32 @ ((v / scale).astype(np.float32)[:, None] * W32)
            return scale * np.einsum("ij,ij->i", inner, W32).astype(np.float64)

        return product


class _System:
    """H U = B with H = G + diag(ridge), for one s; rows with s = 0 are left out."""

    def __init__(self, B: np.ndarray, s: np.ndarray, ridge: np.ndarray, goal: float) -> None:
        self.B, self.ridge, self.on = B, ridge, s > 0
        self.s = s[:, None]
        self.finite_ridge = np.where(self.on, ridge, 0.0)[:, None]
        self.target = goal * self.size(B)

    def residual(self, U: np.ndarray, GU: np.ndarray) -> np.ndarray:
        """B − H U."""
        out = self.finite_ridge * U
        out += GU
        np.subtract(self.B, out, out=out)
        if not self.on.all():
            out[~self.on] = 0.0
        return out

    def size(self, residual: np.ndarray) -> float:
        """Norm of the residual of Eq. 12, which is S times that of U."""
        return float(np.linalg.norm(self.s * residual))


class _Span:
    """The span of some directions P (d, p), given G P: the best point in it is closed form.

    Matrices with d rows are stored column by column, hence the transposed products.
    """

    def __init__(self, P: np.ndarray, GP: np.ndarray, system: _System) -> None:
        self.P, self.GP = P, GP
        self.HP = GP + system.finite_ridge.astype(P.dtype) * P
        K = (P.T @ self.HP).astype(np.float64)
        unit = _ratio(np.ones(len(K)), np.sqrt(np.maximum(np.diag(K), 0.0)))
        K *= unit[:, None] * unit
        # Columns that are solved or depend on others: a little ridge serves them all.
        K[np.diag_indices_from(K)] = 1.0 + np.finfo(P.dtype).eps ** (2 / 3)
        # K is small, and numpy's threads are awake: scipy's would fight them for the cores.
        self.inverse = np.linalg.inv(K) * (unit[:, None] * unit)

    def coordinates(self, right: np.ndarray) -> np.ndarray:
        """(P'HP)⁻¹ times ``right`` (p, r)."""
        return (self.inverse @ right).astype(self.P.dtype)

    def projection(self, step: np.ndarray) -> np.ndarray:
        """The H-orthogonal projection of ``step`` (d, r) on the span."""
        return (self.coordinates(self.HP.T @ step).T @ self.P.T).T

    def improve(self, U: np.ndarray, GU: np.ndarray, residual: np.ndarray) -> None:
        """Move U (and G U with it) to the best point it can reach along the span."""
        shares = self.coordinates(self.P.T @ residual.astype(self.P.dtype)).T
        U += (shares @ self.P.T).T
        GU += (shares @ self.GP.T).T


def _inner(U: np.ndarray, V: np.ndarray) -> float:
    """tr(U'V) of matrices stored column by column."""
    return float(np.vdot(U.T, V.T))


def _steps_left(sizes: list[float], target: float) -> float:
    """Steps that residuals of these sizes need to the target; 0 while there are too few."""
    if len(sizes) < 3:
        return 0.0
    rate = np.sqrt(sizes[-1] / sizes[-3])
    return float(np.log(target / sizes[-1]) / np.log(rate)) if rate < 1.0 else np.inf


def _ratio(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a/b, and 0 for columns that are solved already (b = 0)."""
    return np.divide(a, b, out=np.zeros_like(a), where=b > 0)


def _norm(U: np.ndarray) -> float:
    return float(np.linalg.norm(U))


class _DualStep:
    """The same through the n × n matrix F S² F' when n < d: W = S F'(F S² F' + γI)⁻¹ T."""

    def __init__(self, objective: Objective, factor: Factor) -> None:
        self.objective, self.F = objective, factor

    def solve(self, s: np.ndarray, *, last: bool = False) -> tuple[np.ndarray, float]:
        """Return W for s, and J there."""
        K = self.F.dual_gram(s)
        K[np.diag_indices_from(K)] += self.objective.gamma
        dual = cho_solve(cho_factor(K, lower=True, overwrite_a=True), self.F.targets)
        W = s[:, None] * self.F.adjoint(dual)
        return W, self.objective.q - float(np.sum(s[:, None] * W * self.objective.B))

    def curvature(self, W: np.ndarray, n_products: int) -> Product:
        """v → Q v with Q = G∘(WW')."""
        return lambda v: np.einsum("ij,ij->i", self.F.adjoint(self.F.apply(v[:, None] * W)), W)


def _power_iteration(Q: Product, start: np.ndarray | None, d: int) -> tuple[float, np.ndarray]:
    """A slightly generous λ_max of a positive semi-definite Q, and its direction."""
    v = np.full(d, 1.0 / np.sqrt(d)) if start is None else start
    value = 0.0
    for _ in range(30):
        image = Q(v)
        last, value = value, float(np.linalg.norm(image))
        if value == 0.0:
            return 0.0, v
        v = image / value
        if start is not None or value - last <= 0.01 * value:
            break
    return 1.02 * value, v
