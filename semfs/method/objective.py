"""The paper's objective as a function of moments, and the quadratic form that solvers see.

Notation of the paper (Eqs. 4 and 5): X (n, d) rows, X̄ their class means, A (C, m) class
attributes, Y_s (n, m) the attribute row of each row's class, S = diag(s)::

    J(W, s) = ‖Y_s − X S W‖² + α ‖Y_s − X̄ S W‖² + γ ‖W‖²
            = q − 2 tr(W'S B) + tr(W'S G S W) + γ ‖W‖²
    G = X'X + α M'N M,   B = (1 + α) M'N A,   q = (1 + α) tr(A'N A)

with M the class means and N = diag(counts), because X'Y_s = X̄'Y_s = M'N A. Equivalently J
is plain ridge regression of √(1+α) Y_s on F = X + (√(1+α) − 1) X̄, as F'F = G. With an
intercept, X and A are centred: both losses have the same optimal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.method.moments import Moments
from semfs.rows import Rows, add_outer
from semfs.rows.devices import ArrayRows

__all__ = [
    "Monitor",
    "Objective",
    "Quadratic",
    "Solution",
    "absolute_penalty",
    "drowns",
    "reduce_rank",
]

# Below this penalty (relative to the mean diagonal of G) rounding errors of float32
# products would compete with it, so products are taken in float64.
SAFE_RELATIVE_PENALTY = 1e-4


@dataclass(frozen=True, eq=False)
class Quadratic:
    """J of a 0/1 selection: q − 2 tr(U'B) + tr(U'G U) + γ ‖U‖², U zero where not selected.

    This is all that forward selection asks for. Whoever wants features to do something
    further well returns another one.

    Attributes
    ----------
    q : float
        J when nothing is selected.
    B : ndarray of shape (d, r)
    diag : ndarray of shape (d,)
        Diagonal of G.
    gamma : float
        The penalty, in absolute units.
    columns : callable
        From indices (b,) to those columns (d, b) of G.
    rounding : float
        Rounding unit of the data; gains that differ less are ties.

    Examples
    --------
    >>> G, B = np.diag([1.0, 4.0]), np.array([[1.0], [3.0]])
    >>> Quadratic(10.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16).first_gains()
    array([0.5, 1.8])
    """

    q: float
    B: np.ndarray
    diag: np.ndarray
    gamma: float
    columns: Callable[[np.ndarray], np.ndarray]
    rounding: float

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return len(self.diag)

    def first_gains(self) -> np.ndarray:
        """Fall of J (d,) if the feature is the first to be selected."""
        pivots = np.maximum(self.diag + self.gamma, np.finfo(float).tiny)
        return np.einsum("ij,ij->i", self.B, self.B) / pivots

    def weighing(self, weight: float) -> Quadratic:
        """Return the same J, multiplied by a weight."""
        return replace(self, q=weight * self.q, B=np.sqrt(weight) * self.B)


@dataclass(frozen=True)
class Solution:
    """What a solver found.

    ``scores`` and ``order`` (d,) rank all features; ``W`` (d, r) solves Eq. 12 for the
    selection ``s`` (d,), which is 0/1 for `forward_selection`; ``objective`` holds J after
    each step.
    """

    s: np.ndarray
    W: np.ndarray
    scores: np.ndarray
    order: np.ndarray
    objective: np.ndarray
    converged: bool


# Called after each step with its number, J, the feature added (or None) and a function that
# makes the Solution so far; a true answer stops the solver.
Monitor = Callable[[int, float, int | None, Callable[[], Solution]], bool]


@dataclass(frozen=True, eq=False)
class Objective:
    """J of the paper for given moments, attributes and penalties.

    Build it with `from_moments`. ``targets`` (C, r) are the attributes in an orthonormal
    basis of their row space (`reduce_rank`); J and the row norms of W do not notice.

    Examples
    --------
    >>> import numpy as np
    >>> moments = Moments.from_data(np.eye(3), [0, 0, 1])
    >>> objective = Objective.from_moments(moments, np.eye(2), gamma=1.0)
    >>> objective.value(np.zeros((3, 2)), np.ones(3))  # nothing fitted: J = q
    6.0
    """

    moments: Moments
    targets: np.ndarray
    alpha: float
    penalty: float
    penalty_scale: str
    fit_intercept: bool

    @classmethod
    def from_moments(
        cls,
        moments: Moments,
        targets: np.ndarray,
        *,
        alpha: float = 1.0,
        gamma: float = 1.0,
        penalty_scale: str = "none",
        fit_intercept: bool = False,
    ) -> Objective:
        """Return the objective; ``penalty_scale="gram"`` multiplies γ by tr(G)/d."""
        targets = np.asarray(targets, dtype=np.float64)
        if fit_intercept:
            targets = targets - moments.counts @ targets / moments.total
        return cls(moments, targets, float(alpha), float(gamma), penalty_scale, fit_intercept)

    def quadratic(self) -> Quadratic:
        """Return what forward selection needs to know."""
        rounding = self.moments.itemsize_error
        return Quadratic(self.q, self.B, self.diag, self.gamma, self.columns, rounding)

    def centred(self) -> Objective:
        """Return the same about the mean of the rows, γ in absolute units.

        J without an intercept is that with one plus `origin_weight` ‖ā − μ'S W‖², where μ is
        the mean of the rows and ā that of their targets.
        """
        return Objective.from_moments(
            self.moments, self.targets, alpha=self.alpha, gamma=self.gamma, fit_intercept=True
        )

    # ---- its parts -------------------------------------------------------------------

    @cached_property
    def gamma(self) -> float:
        """The penalty γ in absolute units."""
        return absolute_penalty(self.penalty, self.penalty_scale, float(self.diag.mean()))

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.moments.n_features

    @property
    def origin_weight(self) -> float:
        """Weight of μμ' in G: about the origin, X'X is scatter + n μμ'; so is X̄'X̄."""
        return 0.0 if self.fit_intercept else (1.0 + self.alpha) * self.moments.total

    @cached_property
    def centre(self) -> np.ndarray:
        """What is subtracted from X: its mean (d,) with an intercept, else zeros."""
        return self.moments.mean if self.fit_intercept else np.zeros(self.n_features)

    @cached_property
    def root(self) -> np.ndarray:
        """N^½ M (C, d), centred: root'root is the between-class part of X'X.

        In float32 if the data are and γ is known to be large: products with it are then as
        precise as those with X, and take half the time.
        """
        safe = self.penalty_scale == "gram" and self.penalty >= SAFE_RELATIVE_PENALTY
        single = safe and self.moments.itemsize_error > np.finfo(np.float64).eps
        out = np.subtract(self.moments.means, self.centre, dtype=np.float32 if single else None)
        out *= np.sqrt(self.moments.counts).astype(out.dtype)[:, None]
        return out

    @cached_property
    def B(self) -> np.ndarray:
        """(1 + α) M'N A (d, r), column by column in memory as LAPACK wants it."""
        weights = (1.0 + self.alpha) * np.sqrt(self.moments.counts)
        targets = (weights[:, None] * self.targets).astype(self.root.dtype)
        return (targets.T @ self.root).astype(np.float64).T

    @cached_property
    def q(self) -> float:
        """(1 + α) tr(A'N A): the value of J when nothing is fitted."""
        return float((1.0 + self.alpha) * (self.moments.counts @ self.targets**2).sum())

    @cached_property
    def diag(self) -> np.ndarray:
        """Diagonal of G (d,)."""
        origin = 0.0 if self.fit_intercept else self.moments.total * self.moments.mean**2
        between = np.einsum("cd,cd->d", self.root, self.root).astype(np.float64)
        return self.moments.scatter_diag + origin + self.alpha * between

    @property
    def precise(self) -> bool:
        """Whether γ is so small that float32 products would drown it."""
        return drowns(self.gamma, self.diag)

    def columns(self, columns: np.ndarray) -> np.ndarray:
        """Columns (d, b) of G, one pass over X and no d × d matrix."""
        out = self.moments.stretched_columns(columns, self.alpha, precise=self.precise)
        if self.origin_weight:
            mean = self.moments.mean
            out += self.origin_weight * np.outer(mean, mean[columns])
        return out

    # ---- the whole of it, for Algorithm 1 ----------------------------------------------

    def gram(self) -> np.ndarray:
        """G (d, d) in float64."""
        out = self.moments.stretched_scatter(self.alpha, precise=self.precise)
        if self.fit_intercept:
            return out
        if out is self.moments.scatter_matrix:
            out = out.copy()
        return add_outer(out, self.origin_weight, self.moments.mean)

    def factor(self) -> Factor | None:
        """F with n rows and F'F = G, when n < d and the rows are at hand."""
        rows = self.moments.rows
        if not isinstance(rows, (Rows, ArrayRows)) or rows.X.shape[0] >= self.n_features:
            return None
        return Factor.from_objective(self)

    def value(self, W: np.ndarray, s: np.ndarray) -> float:
        """J at W (d, r) and s (d,)."""
        U = s[:, None] * W
        fit = np.sum(U * (self.gram() @ U - 2.0 * self.B))
        return float(self.q + fit + self.gamma * np.sum(W * W))


@dataclass(frozen=True, eq=False)
class Factor:
    """F = T X (n, d) with F'F = G: rows √w_i (x_i + (√(1+α) − 1) x̄_i), centred if asked for.

    Applied as T (n, n) after X, so that sparse rows stay sparse.
    """

    X: Any
    T: np.ndarray
    targets: np.ndarray

    @classmethod
    def from_objective(cls, objective: Objective) -> Factor:
        """Return the factor of the objective's rows."""
        moments, rows = objective.moments, objective.moments.rows
        if isinstance(rows, ArrayRows):
            rows = rows.own()  # n × n problems are solved in numpy
        X = rows.X.astype(np.float64)
        X = X if sp.issparse(X) else X - objective.centre
        weights = np.ones(X.shape[0]) if rows.weights is None else rows.weights
        stretch = np.sqrt(1.0 + objective.alpha)
        same_class = np.equal.outer(rows.codes, rows.codes)
        class_means = same_class * (weights / moments.counts[rows.codes])
        T = np.eye(len(weights)) + (stretch - 1.0) * class_means
        if objective.fit_intercept:
            T -= stretch * weights / moments.total
        roots = np.sqrt(weights)[:, None]
        return cls(X, roots * T, stretch * roots * objective.targets[rows.codes])

    def apply(self, V: np.ndarray) -> np.ndarray:
        """F V for V (d, r)."""
        return self.T @ (self.X @ V)

    def adjoint(self, V: np.ndarray) -> np.ndarray:
        """F'V for V (n, r)."""
        return self.X.T @ (self.T.T @ V)

    def dual_gram(self, s: np.ndarray) -> np.ndarray:
        """F S² F' (n, n)."""
        scaled = self.X.multiply(s) if sp.issparse(self.X) else self.X * s
        K = scaled @ scaled.T
        return self.T @ (K.toarray() if sp.issparse(K) else K) @ self.T.T


def absolute_penalty(gamma: float, penalty_scale: str, mean_diagonal: float) -> float:
    """Return γ in absolute units; "gram" means units of the mean diagonal of G, tr(G)/d."""
    return gamma * mean_diagonal if penalty_scale == "gram" else gamma


def drowns(gamma: float, diag: np.ndarray) -> bool:
    """Whether rounding errors of float32 products with G would drown γ."""
    return gamma < SAFE_RELATIVE_PENALTY * float(diag.mean())


def reduce_rank(A: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return A V (C, r) and V (m, r), an orthonormal basis of the row space of A (C, m).

    Exact: J and the row norms of W depend on A only through A A'. W of the full table is
    W_r V'.

    Examples
    --------
    >>> T, V = reduce_rank(np.ones((3, 5)))
    >>> T.shape, V.shape
    ((3, 1), (5, 1))
    """
    if len(A) >= A.shape[1]:
        squares = np.linalg.eigvalsh(A.T @ A)  # far cheaper than the singular values of A
        if squares[0] > 1e-8 * squares[-1]:  # well above the rounding errors of A'A
            return A, np.eye(A.shape[1])
    _, singular, Vt = np.linalg.svd(A, full_matrices=False)
    rank = int((singular > singular[0] * max(A.shape) * np.finfo(float).eps).sum())
    V = Vt[: max(rank, 1)].T
    return A @ V, V
