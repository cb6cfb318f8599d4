"""Two solvers of the objective: `direct` (the 0/1 problem) and `alternating` (Algorithm 1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.linalg import cho_factor, cho_solve, pinvh, solve_triangular

from semfs.method.objective import Objective
from semfs.method.w_step import FRESH_ROUNDS, DualStep, PrimalStep, Product, w_step

__all__ = ["Solution", "solve_alternating", "solve_direct"]

# Gram columns are fetched for this many candidates at a time: with fewer, BLAS would spend
# its time reading X; with more, columns would be fetched that nobody asks for.
SMALLEST_BATCH, LARGEST_BATCH = 32, 128
STEP_RULES = ("lipschitz", "exact")

# Called after each step with its number, J, the feature added (or None) and a function that
# makes the Solution so far; a true answer stops the solver.
Monitor = Callable[[int, float, int | None, Callable[[], "Solution"]], bool]


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
    exact = w_step(objective)
    s_step = _SStep(objective, exact, n_inner, step)
    W, J = exact.solve(s)
    history: list[float] = []
    converged = False
    for _ in range(max_iter):
        # J after the exact W-step never rises: the s-step lowers it, or lets s grow, and with
        # U = S W fixed J falls in every s_i.
        s = s_step.move(W, s)
        W, J_new = exact.solve(s)
        history.append(J_new)
        converged = J - J_new <= tol * abs(J)
        J = J_new
        so_far = partial(_relaxed_solution, s, W, list(history), converged)
        stopped = monitor is not None and monitor(len(history), J, None, so_far)
        if converged or stopped:
            break
    W, _ = exact.solve(s, last=True)
    return _relaxed_solution(s, W, history, converged)


def _relaxed_solution(
    s: np.ndarray, W: np.ndarray, history: list[float], converged: bool
) -> Solution:
    order = np.argsort(-s, kind="stable")
    return Solution(s, W, s, order, np.array(history), converged)


class _SStep:
    """Projected gradient steps on J_s = q − 2b's + s'Qs, Q = G∘(WW') (Eqs. 9 to 11)."""

    def __init__(
        self,
        objective: Objective,
        exact: PrimalStep | DualStep,
        n_inner: int,
        step: str | float,
    ) -> None:
        self.objective, self.exact = objective, exact
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
        Q = self.exact.curvature(W, self.n_inner)
        largest = self._largest_curvature(Q, W, s) if self.step == "lipschitz" else 0.0
        if self.step == "lipschitz" and self.n_inner == 1:  # safe as it is: s can only grow
            return s - 0.5 / largest * gradient if largest > 0 else s
        for _ in range(self.n_inner):
            length = _step_length(Q, gradient, self.step, largest)
            step, bend = _descent(Q, s, gradient, length)
            s, gradient = s + step, gradient + 2.0 * bend
        return s

    def _largest_curvature(self, Q: Product, W: np.ndarray, s: np.ndarray) -> float:
        """λ_max(Q), by power iteration every few rounds.

        In between its ratio to s'Qs / s's hardly changes, and that costs nothing: Eq. 12
        times W' says s'Qs = ⟨SW, B⟩ − γ‖W‖².
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
