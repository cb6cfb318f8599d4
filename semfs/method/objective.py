"""The paper's objective as a function of moments: value, gradients, Gram columns.

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

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.method.moments import Moments
from semfs.rows import Rows, add_outer
from semfs.rows.devices import ArrayRows

__all__ = ["Objective", "reduce_rank"]

# Below this penalty (relative to the mean diagonal of G) rounding errors of float32
# products would compete with it, so products are taken in float64.
SAFE_RELATIVE_PENALTY = 1e-4


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

    @cached_property
    def gamma(self) -> float:
        """The penalty γ in absolute units."""
        scale = float(self.diag.mean()) if self.penalty_scale == "gram" else 1.0
        return self.penalty * scale

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.moments.n_features

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
        origin = self._origin_weight * self.moments.mean**2
        between = np.einsum("cd,cd->d", self.root, self.root).astype(np.float64)
        return self.moments.scatter_diag + origin + self.alpha * between

    @property
    def precise(self) -> bool:
        """Whether γ is so small that float32 products would drown it."""
        return self.gamma < SAFE_RELATIVE_PENALTY * float(self.diag.mean())

    @property
    def _origin_weight(self) -> float:
        """Weight of mean·mean' in G: about the origin, X'X is scatter + n·mean·mean'."""
        return 0.0 if self.fit_intercept else self.moments.total

    def columns(self, columns: np.ndarray) -> np.ndarray:
        """Columns (d, b) of G, one pass over X and no d × d matrix."""
        out = self.moments.stretched_columns(columns, self.alpha, precise=self.precise)
        if self._origin_weight:
            mean = self.moments.mean
            out += (1.0 + self.alpha) * self._origin_weight * np.outer(mean, mean[columns])
        return out

    def gram(self) -> np.ndarray:
        """G (d, d) in float64."""
        out = self.moments.stretched_scatter(self.alpha, precise=self.precise)
        if self.fit_intercept:
            return out
        if out is self.moments.scatter_matrix:
            out = out.copy()
        weight = (1.0 + self.alpha) * self.moments.total
        return add_outer(out, weight, self.moments.mean)

    def factor(self) -> Factor | None:
        """F with n rows and F'F = G, when n < d and the rows are at hand."""
        rows = self.moments.rows
        if not isinstance(rows, (Rows, ArrayRows)) or rows.X.shape[0] >= self.n_features:
            return None
        return Factor.from_objective(self)

    def value(self, W: np.ndarray, s: np.ndarray) -> float:
        """J at W (d, r) and s (d,)."""
        U = s[:, None] * W
        fit = np.sum(U * (self.times(U) - 2.0 * self.B))
        return float(self.q + fit + self.gamma * np.sum(W * W))

    def gradient_W(self, W: np.ndarray, s: np.ndarray) -> np.ndarray:
        """∂J/∂W (d, r), paper Eq. 7."""
        residual = self.times(s[:, None] * W) - self.B
        return 2.0 * s[:, None] * residual + 2.0 * self.gamma * W

    def gradient_s(self, W: np.ndarray, s: np.ndarray) -> np.ndarray:
        """∂J/∂s (d,), paper Eq. 10.

        After an exact W-step it is −2γ‖w_i‖²/s_i (multiply row i of Eq. 12 by w_i); that
        form has no cancellation and is what the solver uses.
        """
        return 2.0 * np.sum(W * (self.times(s[:, None] * W) - self.B), axis=1)

    def times(self, V: np.ndarray) -> np.ndarray:
        """G V (d, r), without the d × d matrix if n < d."""
        factor = self.factor()
        return self.gram() @ V if factor is None else factor.adjoint(factor.apply(V))


@dataclass(frozen=True, eq=False)
class Factor:
    """F (n, d) with F'F = G: rows √w_i (x_i + (√(1+α) − 1) x̄_i), centred if asked for.

    Sparse rows stay sparse: F is applied as T·X with a small n × n map T.
    """

    X: Any
    codes: np.ndarray
    weights: np.ndarray
    counts: np.ndarray
    stretch: float
    fit_intercept: bool
    targets: np.ndarray

    @classmethod
    def from_objective(cls, objective: Objective) -> Factor:
        """Return the factor of the objective's rows."""
        moments, rows = objective.moments, objective.moments.rows
        if isinstance(rows, ArrayRows):
            rows = rows.own()  # n × n problems are solved in numpy
        X = rows.X
        X = X.astype(np.float64) if sp.issparse(X) else X.astype(np.float64) - objective.centre
        weights = np.ones(X.shape[0]) if rows.weights is None else rows.weights
        targets = np.sqrt(weights)[:, None] * objective.targets[rows.codes]
        stretch = np.sqrt(1.0 + objective.alpha)
        return cls(
            X,
            rows.codes,
            weights,
            moments.counts,
            stretch - 1.0,
            objective.fit_intercept,
            stretch * targets,
        )

    def apply(self, V: np.ndarray) -> np.ndarray:
        """F V for V (d, r)."""
        return self._mix(self.X @ V)

    def adjoint(self, V: np.ndarray) -> np.ndarray:
        """F'V for V (n, r)."""
        return self.X.T @ self._mix_adjoint(V)

    def dual_gram(self, s: np.ndarray) -> np.ndarray:
        """F S² F' (n, n)."""
        scaled = self.X.multiply(s) if sp.issparse(self.X) else self.X * s
        K = scaled @ scaled.T
        K = K.toarray() if sp.issparse(K) else K
        return self._mix(self._mix(K).T)

    def _mix(self, V: np.ndarray) -> np.ndarray:
        """T V: centre, stretch the class means, weight."""
        weighted = self.weights[:, None] * V
        class_means = self._class_sums(weighted) / self.counts[:, None]
        out = V + self.stretch * class_means[self.codes]
        if self.fit_intercept:
            out -= (1.0 + self.stretch) * weighted.sum(axis=0) / self.counts.sum()
        return np.sqrt(self.weights)[:, None] * out

    def _mix_adjoint(self, V: np.ndarray) -> np.ndarray:
        """T'V."""
        U = np.sqrt(self.weights)[:, None] * V
        class_means = self._class_sums(U) / self.counts[:, None]
        out = self.stretch * class_means[self.codes]
        if self.fit_intercept:
            out -= (1.0 + self.stretch) * U.sum(axis=0) / self.counts.sum()
        return U + self.weights[:, None] * out

    def _class_sums(self, V: np.ndarray) -> np.ndarray:
        n = len(self.codes)
        index = (self.codes, np.arange(n))
        indicator = sp.csr_array((np.ones(n), index), shape=(len(self.counts), n))
        return indicator @ V


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
