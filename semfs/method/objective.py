"""The paper's objective as a function of moments.

Notation of the paper (Eqs. 4 and 5): X (n, d) samples, X̄ their class means, A (C, m) class
attributes, Y_s (n, m) the attribute row of each sample's class, S = diag(s)::

    J(W, s) = ‖Y_s − X S W‖² + α ‖Y_s − X̄ S W‖² + γ ‖W‖²
            = q − 2 tr(W'S B) + tr(W'S G S W) + γ ‖W‖²
    G = X'X + α M'N M,   B = (1 + α) M'N A,   q = (1 + α) tr(A'N A)

with M (C, d) the class means and N = diag(counts), because X'Y_s = X̄'Y_s = M'N A. With the
within-class scatter S_w = X'X − M'N M this reads G = S_w + (1 + α) M'N M. The classes to
separate need not be those whose scatter is taken, nor count as often as they have samples: M
and N may be those of unseen classes with predicted means, or of classes that all count alike.
Equivalently J is plain ridge regression of √(1+α) Y_s on F = X + (√(1+α) − 1) X̄, as F'F = G.
With an intercept X and A are centered: both losses have the same optimal intercept.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Unpack

import numpy as np
import scipy.sparse as sp

from semfs._typing import Float64, Floats, Indices
from semfs.arrays import quiet_overflow, take_columns
from semfs.method.columns import NearCopies, ScatterColumns
from semfs.method.factor import Factor
from semfs.method.moments import Moments
from semfs.method.penalty import RELATIVE_SCALES, SAFE_RELATIVE_PENALTY, Penalties, penalty_unit
from semfs.method.quadratic import Quadratic
from semfs.rows.memory import MemoryRows
from semfs.rows.sums import add_outer, add_products, mirrored

#: Beyond this α the within-class scatter is lost in float32, and in differences with G.
LARGEST_SAFE_ALPHA = 1e6


class ClassTerm(NamedTuple):
    """A term R' diag(w) R of G, which is a sum over classes."""

    R: Floats  # (c, b), one row per class, some columns
    w: Floats  # (c,)


class MeanTerm(NamedTuple):
    """A term weight·vv' of G."""

    weight: float
    v: Float64  # (d,)


@dataclass(frozen=True, eq=False)
class Objective:
    """J of the paper for given moments, classes to separate, targets and penalties.

    Make it with `from_moments` (to separate the classes of the moments) or `of_means` (to
    separate other classes, such as unseen ones).

    Attributes
    ----------
    moments : Moments
        Moments of the samples whose within-class scatter is used.
    means, shares : ndarrays of shape (U, d) and (U,)
        Means of the classes to separate, and their weights, which are the diagonal of N.
    centered_targets : ndarray of shape (U, r) or None
        The targets, centered if there is an intercept. They may be in any orthonormal basis of
        their row space (`reduce_rank`), which does not change J and the row norms of W. None
        means the labels, one indicator per class.
    label_weight : float
        Squared weight w of the class labels as additional targets, [A, √w I]; 0 for none.
    alpha, penalty, penalty_scale, fit_intercept
        α, γ in units of the penalty scale, that scale, and whether X and A are centered.
    scatter_columns : ScatterColumns
        Columns of the scatter matrix. Objectives over the same moments may share it.

    Examples
    --------
    >>> import numpy as np
    >>> moments = Moments.from_data(np.eye(3), [0, 0, 1])
    >>> objective = Objective.from_moments(moments, np.eye(2), gamma=1.0)
    >>> objective.value(np.zeros((3, 2)), np.ones(3))  # nothing fitted: J = q
    6.0
    """

    moments: Moments
    means: Float64
    shares: Float64
    centered_targets: Float64 | None
    alpha: float
    penalty: float
    penalty_scale: str
    fit_intercept: bool
    scatter_columns: ScatterColumns = field(repr=False)
    label_weight: float = 0.0

    @classmethod
    def from_moments(
        cls,
        moments: Moments,
        targets: Float64 | None,
        *,
        class_weight: Float64 | None = None,
        **penalties: Unpack[Penalties],
    ) -> Objective:
        """Return J of separating the classes of the moments by their targets (C, r).

        ``class_weight`` (C,) is the weight in N of a sample of each class; the sum of N does
        not change. In the within-class scatter, all samples have the same weight. ``penalties``
        are as in `of_means`.
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
        means: Float64,
        shares: Float64,
        targets: Float64 | None,
        *,
        alpha: float = 1.0,
        gamma: float = 1.0,
        penalty_scale: str = "none",
        fit_intercept: bool = False,
        label_weight: float = 0.0,
    ) -> Objective:
        """Return J of separating classes with these means (U, d) and counts (U,).

        γ is in units of `penalty_unit`. With a positive ``label_weight`` w, the labels are
        additional targets, [A, √w I]. It has no effect if the labels are the targets already.
        """
        if targets is not None:
            targets = np.asarray(targets, dtype=np.float64)
            if fit_intercept:
                targets = targets - shares @ targets / shares.sum()
        return cls(
            moments=moments,
            means=means,
            shares=shares,
            centered_targets=targets,
            alpha=float(alpha),
            penalty=float(gamma),
            penalty_scale=penalty_scale,
            fit_intercept=fit_intercept,
            scatter_columns=ScatterColumns(moments),
            label_weight=0.0 if targets is None else float(label_weight),
        )

    def separating(self, means: Float64, shares: Float64) -> Objective:
        """Return J of separating other classes by their labels, over the same samples.

        These classes have means (U, d) and counts (U,). Penalties are the same, with an
        intercept. If both objectives request the same scatter columns in turn, these are
        computed once.
        """
        other = self.of_means(
            self.moments,
            means,
            shares,
            None,
            alpha=self.alpha,
            gamma=self.penalty,
            penalty_scale=self.penalty_scale,
            fit_intercept=True,
        )
        return replace(other, scatter_columns=self.scatter_columns)

    def centered(self) -> Objective:
        """Return the same objective with an intercept, and with γ in absolute units.

        J without an intercept is that with one plus `origin_weight` ‖ā − μ'S W‖², where μ is
        the mean of the class means and ā that of their targets.
        """
        return self.of_means(
            self.moments,
            self.means,
            self.shares,
            self.centered_targets,
            alpha=self.alpha,
            gamma=self.gamma,
            fit_intercept=True,
            label_weight=self.label_weight,
        )

    @quiet_overflow
    def quadratic(self) -> Quadratic:
        """Return the `Quadratic` for forward selection."""
        return Quadratic(
            q=self.q,
            B=self.B,
            diag=self.diag,
            gamma=self.gamma,
            columns=self.columns,
            eps=self.moments.eps,
            estimate=None if self.moments.rows is None else self.estimate,
            among=self.among if self.scatter_columns.are_in_memory else None,
        )

    def near_copies(self, max_correlation: float) -> NearCopies:
        """Return a finder of near copies, by correlations over the samples."""

        def scatter(features: Indices) -> Float64:
            return self.scatter_columns(features, precise=self.precise)

        def scatter_among(features: Indices) -> Float64:
            return self.scatter_columns.among(features, precise=self.precise)

        varying = np.where(self.moments.constant(), 0.0, self.moments.scatter_diag)
        return NearCopies(
            scatter,
            varying,
            max_correlation,
            scatter_among if self.scatter_columns.are_in_memory else None,
        )

    # ---- numbers -----------------------------------------------------------------------

    @property
    def n_features(self) -> int:
        """Number of features d."""
        return self.moments.n_features

    @cached_property
    def gamma(self) -> float:
        """The penalty γ in absolute units."""
        return self.penalty * penalty_unit(self.diag, self.penalty_scale)

    @property
    def precise(self) -> bool:
        """Whether γ is so small that rounding errors of float32 products exceed it."""
        small = self.gamma < SAFE_RELATIVE_PENALTY * float(self.diag.mean())
        return small or self.alpha > LARGEST_SAFE_ALPHA

    @property
    def _single(self) -> bool:
        """Whether the data are float32, and not so few that float64 costs nothing."""
        return bool(self.moments.eps > np.finfo(np.float64).eps) and not self.moments.is_small

    @property
    def _dtype(self) -> type[np.floating[Any]]:
        """float32 if the data are float32 and γ is certainly large enough, else float64.

        With float32, products with class means are as precise as those with X, and take half
        the time.
        """
        relative = self.penalty_scale in RELATIVE_SCALES
        large = relative and self.penalty >= SAFE_RELATIVE_PENALTY
        if self._single and large and self.alpha <= LARGEST_SAFE_ALPHA:
            return np.float32
        return np.float64

    @cached_property
    @quiet_overflow
    def q(self) -> float:
        """(1 + α) tr(A'N A): the value of J when nothing is fitted."""
        if self.centered_targets is None:
            squares = self._squared_labels
        else:
            squares = float((self.shares @ self.centered_targets**2).sum())
            squares += self.label_weight * self._squared_labels
        return (1.0 + self.alpha) * squares

    @property
    def _squared_labels(self) -> float:
        """tr(I'N I) of the labels, which is Σ n_c, or Σ n_c − Σ n_c²/Σ n_c if centered."""
        total = float(self.shares.sum())
        if self.fit_intercept:
            total *= 1.0 - float(np.sum((self.shares / total) ** 2))
        return total

    # ---- classes -----------------------------------------------------------------------

    @property
    def targets(self) -> Float64:
        """The targets (U, r), or (U, r + U) with labels, centered if there is an intercept."""
        if self.centered_targets is not None and not self.label_weight:
            return self.centered_targets
        labels = np.eye(len(self.shares))
        if self.fit_intercept:
            labels -= self.shares / self.shares.sum()
        if self.centered_targets is None:
            return labels
        return np.hstack([self.centered_targets, np.sqrt(self.label_weight) * labels])

    @cached_property
    def mean(self) -> Float64:
        """Mean μ (d,) of the class means, weighted by their shares."""
        if self.shares is self.moments.counts:
            return self.moments.mean
        return self.shares @ self.means / self.shares.sum()

    @property
    def uses_moment_classes(self) -> bool:
        """Whether the classes to separate are those of the moments."""
        return self.means is self.moments.means

    @property
    def _count_ratio(self) -> Float64:
        """The ratios (U,) of the shares n'_u to the counts n_u in `_class_root`."""
        if self.uses_moment_classes:
            return self.shares / self.moments.counts
        return np.ones(len(self.shares))

    @cached_property
    def _moment_root(self) -> Floats:
        """R (C, d) with rows √n_c (m_c − μ_m) of the classes of the moments.

        μ_m is the mean of all samples, and R'R is their between-class scatter. If T is the
        total scatter, T − R'R is the within-class scatter S_w.
        """
        moments = self.moments
        return _root(moments.means, moments.counts, moments.mean, self._dtype)

    @cached_property
    def _class_root(self) -> Floats:
        """R (U, d) with rows √n_u (m_u − μ) of the classes to separate.

        If these are the classes of the moments, n_u and μ are those of the moments, whatever
        the shares. Then this is `_moment_root`, which can be used twice.
        """
        if self.uses_moment_classes:
            return self._moment_root
        return _root(self.means, self.shares, self.mean, self._dtype)

    # ---- G -----------------------------------------------------------------------------

    # With the total scatter T about μ_m, R_m of the classes of the moments and R of the classes
    # to separate, and S_w = T − R_m'R_m:
    #
    #     G = S_w + (1 + α) Σ_u n'_u (m_u − μ)(m_u − μ)'  [+ (1 + α) N' μμ']
    #
    # where N' = Σ n'_u, and the last term is absent with an intercept. For other classes than
    # those of the moments the sum is R'R, so
    #
    #     G = T − R_m'R_m + (1 + α) R'R  [+ (1 + α) N' μμ'].
    #
    # For the classes of the moments with shares n'_u = ρ_u n_u, R = R_m is about μ_m, and
    # Σ n'_u (m_u − μ)(m_u − μ)' = R' diag(ρ) R − N' (μ − μ_m)(μ − μ_m)', so
    #
    #     G = T + R' diag((1 + α) ρ − 1) R − (1 + α) N' (μ − μ_m)(μ − μ_m)'  [+ (1 + α) N' μμ'].

    def _class_terms(self, columns: Indices | slice) -> list[ClassTerm]:
        """Return the terms R' diag(w) R of G, with some columns of R."""
        R = self._class_root[:, columns]
        weights = (1.0 + self.alpha) * self._count_ratio
        if self.uses_moment_classes:
            terms = [ClassTerm(R, weights - 1.0)]
        else:
            R_m = self._moment_root[:, columns]
            terms = [ClassTerm(R_m, -np.ones(len(R_m))), ClassTerm(R, weights)]
        return [ClassTerm(R, w.astype(R.dtype)) for R, w in terms if w.any()]

    def _mean_terms(self) -> list[MeanTerm]:
        """Return the terms weight·vv' of G."""
        total = (1.0 + self.alpha) * float(self.shares.sum())
        terms = []
        if not self.fit_intercept:
            terms.append(MeanTerm(total, self.mean))
        if self.uses_moment_classes and self.mean is not self.moments.mean:
            terms.append(MeanTerm(-total, self.mean - self.moments.mean))
        return terms

    @property
    def origin_weight(self) -> float:
        """Weight (1 + α) N' of μμ' in G; 0 with an intercept."""
        if self.fit_intercept:
            return 0.0
        return (1.0 + self.alpha) * float(self.shares.sum())

    @cached_property
    def diag(self) -> Float64:
        """Diagonal of G (d,)."""
        out = self.moments.scatter_diag.copy()
        for R, w in self._class_terms(slice(None)):
            out += np.einsum("cd,cd->d", R, w[:, None] * R)
        for weight, v in self._mean_terms():
            out += weight * v**2
        return np.maximum(out, 0.0)

    def columns(self, features: Indices) -> Float64:
        """Return columns (d, b) of G, in one pass over X and without a d × d matrix."""
        # in the layout of the products, each column in one piece
        out = self.scatter_columns(features, precise=self.precise).copy(order="K")
        for R, w in self._class_terms(slice(None)):
            weighted = take_columns(R, features) * w[:, None]
            out += (weighted.T @ R).T
        for weight, v in self._mean_terms():
            out.T[...] += weight * np.outer(v[features], v)
        return out

    def among(self, features: Indices) -> Float64:
        """Return G (m, m) among some features, if the moments are in memory."""
        out = self.scatter_columns.among(features, precise=self.precise).copy()
        for R, w in self._class_terms(features):
            out += R.T @ (R * w[:, None])
        for weight, v in self._mean_terms():
            out += weight * np.outer(v[features], v[features])
        return out

    def estimate(self, features: Indices) -> Floats | None:
        """Estimate G among some features (m, m), with an exact diagonal; None if impossible.

        The within-class scatter is estimated on a subset of the samples. Everything else is
        known.
        """
        out = self.moments.within_estimate(features)
        if out is None:
            return None
        R = take_columns(self._class_root, features)
        R *= np.sqrt((1.0 + self.alpha) * self._count_ratio).astype(R.dtype)[:, None]
        out += R.T @ R
        for weight, v in self._mean_terms():
            out += weight * np.outer(v[features], v[features])
        np.fill_diagonal(out, self.diag[features])
        return out

    @quiet_overflow
    def within(
        self,
        features: Indices,
        gram: Float64 | None = None,
    ) -> Float64:
        """Return the within-class scatter (k, k) of some features, from their G if it is known.

        If α is large, the within-class scatter is lost in G. Columns of features that are
        constant up to rounding errors may not have been centered. In both cases it is computed
        again.
        """
        constant = self.moments.constant()[features].any()
        if gram is None or constant or self.alpha > LARGEST_SAFE_ALPHA:
            R = take_columns(self._moment_root, features).astype(np.float64)
            return self.scatter_columns(features, precise=False)[features] - R.T @ R
        R = take_columns(self._class_root, features).astype(np.float64)
        out = gram - (1.0 + self.alpha) * (R.T @ (self._count_ratio[:, None] * R))
        for weight, v in self._mean_terms():
            out -= weight * np.outer(v[features], v[features])
        return out

    def gram(self) -> Float64:
        """Return G (d, d) in float64."""
        out = self.moments.scatter(precise=self.precise)
        if out is self.moments.scatter_matrix:
            out = out.copy()
        dtype = np.float32 if self._single and not self.precise else np.float64
        for R, w in self._class_terms(slice(None)):
            add_products(out, R, w, dtype)
        for weight, v in self._mean_terms():
            add_outer(out, weight, v)
        return mirrored(out)

    # ---- B, F and J --------------------------------------------------------------------

    @property
    def B(self) -> Floats:
        """(1 + α) M'N A (d, r), column by column in memory as LAPACK wants it.

        With labels as additional targets [A, √w I], it has shape (d, r + U).
        """
        if self.centered_targets is None:
            out = np.empty((len(self.means), self.n_features), dtype=self._dtype)
            self._write_label_B(out)
            return out.T
        # About any center c, M'N A = (M − 1c')'N A + c (1'N A), and 1'N A = 0 for centered
        # targets. R = √n (M − 1μ') has one √n already, of the counts that it is made of.
        roots = np.sqrt(self.moments.counts if self.uses_moment_classes else self.shares)
        weights = (1.0 + self.alpha) * self._count_ratio * roots
        weighted = (weights[:, None] * self.centered_targets).astype(self._dtype).T
        r = len(weighted)
        n_rows = r + len(self.means) if self.label_weight else r
        # without an intercept the mean is added, which may be large next to the differences
        dtype = weighted.dtype if self.fit_intercept else np.float64
        out = np.empty((n_rows, self.n_features), dtype=dtype)
        out[:r] = weighted @ self._class_root
        if not self.fit_intercept:
            center = self.moments.mean if self.uses_moment_classes else self.mean
            sums = (1.0 + self.alpha) * (self.shares @ self.centered_targets)
            out[:r] += np.outer(sums, center)
        if self.label_weight:
            self._write_label_B(out[r:], np.sqrt(self.label_weight))
        return out.T

    def _write_label_B(self, out: Floats, factor: float = 1.0) -> None:
        """Write B' for A = I, times a factor, into an array (U, d).

        Its rows are those of (1 + α) N (M − 1μ'), so no product is needed.
        """
        np.subtract(
            self.means, self.mean if self.fit_intercept else 0.0, out=out, casting="same_kind"
        )
        weights = factor * (1.0 + self.alpha) * self.shares
        out *= weights.astype(out.dtype)[:, None]

    def factor(self) -> Factor | None:
        """Return F with n rows and F'F = G, if n < d and the samples are held."""
        rows = self.moments.rows
        if rows is None or rows.nbytes == 0 or rows.n_rows >= self.n_features:
            return None
        # n × n problems are solved in numpy: samples of another device are copied
        samples: MemoryRows = rows if rows.in_memory else rows.copy()
        n = samples.n_rows
        X = samples.X.astype(np.float64)
        if self.fit_intercept and not sp.issparse(X):
            X = X - self.mean
        weights = np.ones(n) if samples.weights is None else samples.weights
        codes = samples.codes
        # Row i of F is √w_i (x_i + (t_i − 1) x̄_i) with the stretch t = √((1 + α) n'_c/n_c)
        # of its class; with an intercept, minus t_i times the weighted mean of class means.
        # Class means are sums of samples, so F = T X.
        ratio = self.shares / self.moments.counts
        stretch = np.sqrt((1.0 + self.alpha) * ratio)[codes, None]
        same_class = np.equal.outer(codes, codes)
        weight_in_class = weights / self.moments.counts[codes]
        T = np.eye(n) + (stretch - 1.0) * (same_class * weight_in_class)
        if self.fit_intercept:
            fractions = self.shares / self.shares.sum()
            T -= stretch * (weight_in_class * fractions[codes])
        roots = np.sqrt(weights)[:, None]
        return Factor(X, roots * T, stretch * roots * self.targets[codes])

    def value(self, W: Float64, s: Float64) -> float:
        """Return J at W (d, r) and s (d,)."""
        U = s[:, None] * W
        fit = np.sum(U * (self.gram() @ U - 2.0 * self.B))
        return float(self.q + fit + self.gamma * np.sum(W * W))


def _root(
    means: Float64,
    counts: Float64,
    mean: Float64,
    dtype: type[Any],
) -> Floats:
    """Return the rows √n (M − mean) (C, d) in the given precision."""
    out: Floats = np.empty(means.shape, dtype=dtype)
    # The difference is taken in float64: far from the origin, means that are rounded to
    # float32 would differ by rounding errors only.
    np.subtract(means, mean, out=out, casting="same_kind")
    out *= np.sqrt(counts).astype(dtype)[:, None]
    return out
