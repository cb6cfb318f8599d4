"""The paper's objective as a function of moments, and the quadratic form that solvers see.

Notation of the paper (Eqs. 4 and 5): X (n, d) rows, X̄ their class means, A (C, m) class
attributes, Y_s (n, m) the attribute row of each row's class, S = diag(s)::

    J(W, s) = ‖Y_s − X S W‖² + α ‖Y_s − X̄ S W‖² + γ ‖W‖²
            = q − 2 tr(W'S B) + tr(W'S G S W) + γ ‖W‖²
    G = X'X + α M'N M,   B = (1 + α) M'N A,   q = (1 + α) tr(A'N A)

with M the class means and N = diag(counts), because X'Y_s = X̄'Y_s = M'N A. With the scatter
within classes S_w = X'X − M'N M this reads G = S_w + (1 + α) M'N M, and nothing asks that the
classes told apart be those whose scatter is taken, or count as often as they have rows: M and N
may be those of classes that are only expected, or of classes that all count alike. Equivalently
J is plain ridge regression of √(1+α) Y_s on F = X + (√(1+α) − 1) X̄, as F'F = G. With an
intercept, X and A are centered: both losses have the same optimal one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import scipy.sparse as sp

from semfs.arrays import batches
from semfs.method.moments import Moments
from semfs.rows.sums import PANEL, add_outer, add_products, mirrored

# Below this penalty (relative to the mean diagonal of G) rounding errors of float32
# products would compete with it, so products are taken in float64.
SAFE_RELATIVE_PENALTY = 1e-4


@dataclass(frozen=True, eq=False)
class Quadratic:
    """J of a 0/1 selection: q − 2 tr(U'B) + tr(U'G U) + γ ‖U‖², U zero where not selected.

    Examples
    --------
    >>> G, B = np.diag([1.0, 4.0]), np.array([[1.0], [3.0]])
    >>> Quadratic(10.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16).reach
    1.428...
    """

    q: float  # J when nothing is selected
    B: np.ndarray  # (d, r)
    diag: np.ndarray  # (d,), the diagonal of G
    gamma: float  # the penalty, in absolute units
    columns: Callable[[np.ndarray], np.ndarray]  # from indices (b,) to columns (d, b) of G
    rounding: float  # rounding unit of the data; gains that differ less are ties
    # from features (m,) to G among them (m, m), cheap and not exact: it foretells which
    # columns will be needed
    preview: Callable[[np.ndarray], np.ndarray] | None = None
    known: np.ndarray | tuple = ()  # features whose columns are at hand

    @property
    def reach(self) -> float:
        """How much all features together would lower J if each entered first."""
        return float((self.B**2).sum() / max((self.diag + self.gamma).sum(), 1e-300))

    def scaled_by(self, weight: float) -> Quadratic:
        """Return the same J, multiplied by a weight."""
        return replace(self, q=weight * self.q, B=np.sqrt(weight) * self.B)


@dataclass(frozen=True)
class Solution:
    """What a solver found.

    ``scores`` and ``order`` (d,) rank all features; ``W`` (d, r) solves Eq. 12 for the
    selection ``s`` (d,), which is 0/1 for `forward_selection`, and is ``V`` where s is not
    zero; ``objective`` holds J after each step. ``gram`` (k, k) is G of the features chosen,
    in their order, if known.
    """

    s: np.ndarray
    V: np.ndarray
    scores: np.ndarray
    order: np.ndarray
    objective: np.ndarray
    converged: bool
    gram: np.ndarray | None = None

    @property
    def W(self) -> np.ndarray:
        """(d, r), zero where s is."""
        out = np.zeros((len(self.s), self.V.shape[1]))
        out[self.s != 0] = self.V
        return out


# Called after each step with its number, J, the feature added (or None) and a function that
# makes the Solution so far; a true answer stops the solver.
Monitor = Callable[[int, float, int | None, Callable[[], Solution]], bool]


@dataclass(frozen=True, eq=False)
class Objective:
    """J of the paper for given moments, classes to tell apart, targets and penalties.

    Build it with `from_moments` (the classes of the moments) or `of_means` (other classes, such
    as those to come). ``means`` (U, d), ``shares`` (U,) and ``targets`` (U, r) are those of the
    classes to tell apart; the scatter within classes is that of ``moments``. Targets may be in
    any orthonormal basis of their row space (`reduce_rank`); J and the row norms of W do not
    notice. Given as None they are the labels: one for each class.

    Examples
    --------
    >>> import numpy as np
    >>> moments = Moments.from_data(np.eye(3), [0, 0, 1])
    >>> objective = Objective.from_moments(moments, np.eye(2), gamma=1.0)
    >>> objective.value(np.zeros((3, 2)), np.ones(3))  # nothing fitted: J = q
    6.0
    """

    moments: Moments
    means: np.ndarray
    shares: np.ndarray
    given: np.ndarray | None  # the targets, about their mean if there is an intercept
    alpha: float
    penalty: float
    penalty_scale: str
    fit_intercept: bool

    @classmethod
    def from_moments(
        cls,
        moments: Moments,
        targets: np.ndarray | None,
        *,
        class_weight: np.ndarray | None = None,
        **penalties: Any,
    ) -> Objective:
        """Return J of telling the classes of the moments apart by their targets (C, r).

        ``class_weight`` (C,) is what a row of each class counts for in N, which keeps its sum;
        the scatter within classes is that of all rows alike. ``penalties`` as in `of_means`.
        """
        shares = moments.counts
        if class_weight is not None and np.ptp(class_weight) > 0.0:
            shares = shares * class_weight
            shares = shares * (moments.total / shares.sum())
        return cls.of_means(moments, moments.means, shares, targets, **penalties)

    @classmethod
    def of_means(
        cls,
        moments: Moments,
        means: np.ndarray,
        shares: np.ndarray,
        targets: np.ndarray | None,
        *,
        alpha: float = 1.0,
        gamma: float = 1.0,
        penalty_scale: str = "none",
        fit_intercept: bool = False,
    ) -> Objective:
        """Return J of telling classes with these means (U, d) and counts (U,) apart.

        ``penalty_scale="gram"`` multiplies γ by tr(G)/d.
        """
        if targets is not None:
            targets = np.asarray(targets, dtype=np.float64)
            targets = targets - shares @ targets / shares.sum() if fit_intercept else targets
        numbers = float(alpha), float(gamma)
        return cls(moments, means, shares, targets, *numbers, penalty_scale, fit_intercept)

    def quadratic(self) -> Quadratic:
        """Return what forward selection needs to know."""
        rows = self.moments.rows
        parts = (self.q, self.B, self.diag, self.gamma, self.columns)
        out = Quadratic(*parts, self.moments.eps)
        if rows is not None and rows.sample_columns(np.arange(1)) is not None:
            out = replace(out, preview=self.estimate)
        return out

    def centered(self) -> Objective:
        """Return the same with an intercept, γ in absolute units.

        J without an intercept is that with one plus `origin_weight` ‖ā − μ'S W‖², where μ is
        the mean of the class means and ā that of their targets.
        """
        own = (self.moments, self.means, self.shares, self.given)
        return self.of_means(*own, alpha=self.alpha, gamma=self.gamma, fit_intercept=True)

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
        """Weight of μμ' in G, which is about the origin unless there is an intercept."""
        return 0.0 if self.fit_intercept else (1.0 + self.alpha) * float(self.shares.sum())

    @cached_property
    def mean(self) -> np.ndarray:
        """Mean μ (d,) of the class means, weighted by their shares."""
        if self.shares is self.moments.counts:
            return self.moments.mean
        return self.shares @ self.means / self.shares.sum()

    @property
    def _own(self) -> bool:
        """Whether the classes to tell apart are those of the moments."""
        return self.means is self.moments.means

    @property
    def _dtype(self) -> Any:
        """float32 if the data are and γ is known to be large: products with class means are
        then as precise as those with X, and take half the time."""
        safe = self.penalty_scale == "gram" and self.penalty >= SAFE_RELATIVE_PENALTY
        safe = safe and self.alpha <= 1e6  # and sums stay within its range
        single = safe and self.moments.eps > np.finfo(np.float64).eps
        return np.float32 if single else np.float64

    def _root(self, columns: Any, *, between: bool = True) -> np.ndarray:
        """Rows √n (M − mean) (C, b) of the classes to tell apart, of own ones about the
        moments' mean; or R (C, b) of the moments' classes: scatter − R'R is that within."""
        means, counts, mean = self.means, self.shares, self.mean
        if self._own or not between:
            means, counts, mean = (
                getattr(self.moments, n) for n in ("means", "counts", "mean")
            )
        out = np.subtract(means[:, columns], mean[columns], dtype=self._dtype)
        out *= np.sqrt(counts).astype(out.dtype)[:, None]
        return out

    @property
    def _ratio(self) -> np.ndarray:
        """What a row of each class counts for (U,), relative to its root."""
        return self.shares / self.moments.counts if self._own else np.ones(len(self.shares))

    def _between(self, columns: Any) -> list[tuple[np.ndarray, np.ndarray]]:
        """Roots and weights of their rows: G is scatter + Σ R' diag(w) R + `_outer` parts."""
        weights, root = (1.0 + self.alpha) * self._ratio, self._root(columns)
        if self._own:
            out = [(root, weights - 1.0)]
        else:
            own = self._root(columns, between=False)
            out = [(own, -np.ones(len(own))), (root, weights)]
        return [(R, w.astype(R.dtype)) for R, w in out if w.any()]

    def _outer(self) -> list[tuple[float, np.ndarray]]:
        """Weights and vectors v (d,) whose products vv' complete G."""
        out = [(self.origin_weight, self.mean)] if self.origin_weight else []
        if self._own and self.mean is not self.moments.mean:
            total = (1.0 + self.alpha) * float(self.shares.sum())
            out.append((-total, self.mean - self.moments.mean))
        return out

    @property
    def B(self) -> np.ndarray:
        """(1 + α) M'N A (d, r), column by column in memory as LAPACK wants it."""
        if self.given is None:  # (1 + α) N (M - μ), without a product
            out = np.empty((len(self.means), self.n_features), dtype=self._dtype)
            np.subtract(self.means, self.mean if self.fit_intercept else 0.0, out=out)
            out *= ((1.0 + self.alpha) * self.shares).astype(out.dtype)[:, None]
            return out.T
        center = self.moments.mean if self._own else self.mean
        counts = self.moments.counts if self._own else self.shares
        weights = (1.0 + self.alpha) * self._ratio * np.sqrt(counts)
        T = (weights[:, None] * self.given).astype(self._dtype).T
        out = np.empty((len(T), self.n_features), dtype=T.dtype)
        for some in batches(self.n_features, PANEL):
            out[:, some] = T @ self._root(some)
        if self.fit_intercept:
            return out.T
        return out.T + np.outer(center, (1.0 + self.alpha) * (self.shares @ self.given))

    @property
    def targets(self) -> np.ndarray:
        """(U, r)."""
        if self.given is not None:
            return self.given
        mean = self.shares / self.shares.sum() if self.fit_intercept else 0.0
        return np.eye(len(self.shares)) - mean

    @cached_property
    def q(self) -> float:
        """(1 + α) tr(A'N A): the value of J when nothing is fitted."""
        shares = self.shares
        if self.given is not None:
            return float((1.0 + self.alpha) * (shares @ self.given**2).sum())
        apart = 1.0 - np.sum((shares / shares.sum()) ** 2) if self.fit_intercept else 1.0
        return float((1.0 + self.alpha) * shares.sum() * apart)

    @cached_property
    def diag(self) -> np.ndarray:
        """Diagonal of G (d,)."""
        out = self.moments.scatter_diag.copy()
        for some in batches(len(out), PANEL):
            for root, weights in self._between(some):
                out[some] += np.einsum("c,cd,cd->d", weights, root, root)
        for weight, v in self._outer():
            out += weight * v**2
        return np.maximum(out, 0.0)

    @property
    def precise(self) -> bool:
        """Whether γ is so small that rounding errors of float32 products would drown it."""
        small = self.gamma < SAFE_RELATIVE_PENALTY * float(self.diag.mean())
        return small or self.alpha > 1e6

    def columns(self, columns: np.ndarray) -> np.ndarray:
        """Columns (d, b) of G, one pass over X and no d × d matrix."""
        out = self.moments.scatter_columns(columns, precise=self.precise).copy()
        left = [root.T * weights for root, weights in self._between(columns)]
        for some in batches(len(out), PANEL):
            for own, (root, _) in zip(left, self._between(some)):
                out[some] += (own @ root).T
        for weight, v in self._outer():
            out += weight * np.outer(v, v[columns])
        return out

    def estimate(self, features: np.ndarray) -> np.ndarray:
        """G among some features (m, m), but for its diagonal only about right."""
        out, root = self.moments.within_estimate(features), self._root(features)
        root *= np.sqrt((1.0 + self.alpha) * self._ratio).astype(root.dtype)[:, None]
        out += root.T @ root
        for weight, v in self._outer():
            out += weight * np.outer(v[features], v[features])
        np.fill_diagonal(out, self.diag[features])
        return out

    def within(self, features: np.ndarray, gram: np.ndarray | None = None) -> np.ndarray:
        """Scatter within classes (k, k) of some features, from G of these if it is known."""
        if gram is None or self.alpha > 1e6:  # a difference in which the scatter is lost
            root = self._root(features, between=False).astype(np.float64)
            return self.moments.scatter_columns(features)[features] - root.T @ root
        root = self._root(features).astype(np.float64)
        out = gram - (1.0 + self.alpha) * (root.T @ (self._ratio[:, None] * root))
        for weight, v in self._outer():
            out -= weight * np.outer(v[features], v[features])
        return out

    # ---- the whole of it, for Algorithm 1 ----------------------------------------------

    def gram(self) -> np.ndarray:
        """G (d, d) in float64."""
        out = self.moments.scatter(precise=self.precise)
        if out is self.moments.scatter_matrix:
            out = out.copy()
        single = self.moments.eps > np.finfo(np.float64).eps and not self.precise
        for root, weights in self._between(slice(None)):
            add_products(out, root, weights, np.float32 if single else np.float64)
        for weight, v in self._outer():
            add_outer(out, weight, v)
        return mirrored(out)

    def factor(self) -> Factor | None:
        """F with n rows and F'F = G, when n < d and the rows are at hand."""
        rows = self.moments.rows
        if rows is None or not rows.nbytes or rows.n_rows >= self.n_features:
            return None
        if not rows.in_memory:
            rows = rows.copy()  # n × n problems are solved in numpy
        X = rows.X.astype(np.float64)
        if self.fit_intercept and not sp.issparse(X):
            X = X - self.mean
        weights = np.ones(X.shape[0]) if rows.weights is None else rows.weights
        # how far class means are stretched: √((1 + α) n'/n)
        ratio = self.shares / self.moments.counts
        stretch = np.sqrt((1.0 + self.alpha) * ratio)[rows.codes, None]
        same_class = np.equal.outer(rows.codes, rows.codes)
        own = weights / self.moments.counts[rows.codes]
        T = np.eye(len(weights)) + (stretch - 1.0) * (same_class * own)
        if self.fit_intercept:
            T -= stretch * (own * (self.shares / self.shares.sum())[rows.codes])
        roots = np.sqrt(weights)[:, None]
        return Factor(X, roots * T, stretch * roots * self.targets[rows.codes])

    def value(self, W: np.ndarray, s: np.ndarray) -> float:
        """J at W (d, r) and s (d,)."""
        U = s[:, None] * W
        fit = np.sum(U * (self.gram() @ U - 2.0 * self.B))
        return float(self.q + fit + self.gamma * np.sum(W * W))


@dataclass(frozen=True, eq=False)
class Factor:
    """F = T X (n, d) with F'F = G: rows √w_i (x_i + (t_i − 1) x̄_i), centered if asked for.

    t_i is the stretch of the row's class. T (n, n) comes after X, so sparse rows stay sparse.
    """

    X: Any
    T: np.ndarray
    targets: np.ndarray

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
