"""The W-step of Algorithm 1: W for a given s (Eq. 12), and the curvature of the s-step.

`PrimalStep` works with the d × d matrix G and keeps what helps with the next, similar s;
`DualStep` works with the rows when they are fewer than the features.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from semfs.method.objective import Factor, Objective

__all__ = ["FRESH_ROUNDS", "DualStep", "PrimalStep", "Product", "w_step"]

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

Product = Callable[[np.ndarray], np.ndarray]


def w_step(objective: Objective) -> PrimalStep | DualStep:
    """Return the cheaper of the two W-steps."""
    factor = objective.factor()
    return PrimalStep(objective) if factor is None else DualStep(objective, factor)


class PrimalStep:
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
            self.factor = _cholesky(H)
        except ValueError:
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


def _cholesky(H: np.ndarray) -> tuple:
    """Cholesky factor in place of H, or an error that names what to change."""
    try:
        return cho_factor(H, lower=True, overwrite_a=True, check_finite=False)
    except np.linalg.LinAlgError:
        raise ValueError(
            "gamma is too small: rounding errors of X are larger, and some columns of X depend "
            'on others. Use a larger gamma, or solver="direct".'
        ) from None


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


class DualStep:
    """The same through the n × n matrix F S² F' when n < d: W = S F'(F S² F' + γI)⁻¹ T."""

    def __init__(self, objective: Objective, factor: Factor) -> None:
        self.objective, self.F = objective, factor

    def solve(self, s: np.ndarray, *, last: bool = False) -> tuple[np.ndarray, float]:
        """Return W for s, and J there."""
        K = self.F.dual_gram(s)
        K[np.diag_indices_from(K)] += self.objective.gamma
        dual = cho_solve(_cholesky(K), self.F.targets)
        W = s[:, None] * self.F.adjoint(dual)
        return W, self.objective.q - float(np.sum(s[:, None] * W * self.objective.B))

    def curvature(self, W: np.ndarray, n_products: int) -> Product:
        """v → Q v with Q = G∘(WW')."""
        return lambda v: np.einsum("ij,ij->i", self.F.adjoint(self.F.apply(v[:, None] * W)), W)
