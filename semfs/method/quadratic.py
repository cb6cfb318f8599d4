"""The input and output of solvers: a quadratic form, and a solution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from semfs._typing import Float64, Floats, Indices, Mask


@dataclass(frozen=True)
class FetchSizes:
    """How many Gram columns one pass over the data computes."""

    #: With fewer, BLAS spends its time reading X; with more, columns are computed that are
    #: never used.
    least: int = 32
    most: int = 128
    extra: int = 4  # beyond those that are predicted to be needed


@dataclass(frozen=True, eq=False)
class Quadratic:
    """J of a 0/1 selection: q − 2 tr(U'B) + tr(U'G U) + γ ‖U‖², U zero where not selected.

    Attributes
    ----------
    q : float
        J when nothing is selected.
    B : ndarray of shape (d, r)
    diag : ndarray of shape (d,)
        The diagonal of G.
    gamma : float
        The penalty, in absolute units.
    columns : callable
        From features (b,) to columns (d, b) of G. One call is one pass over the data.
    eps : float
        Rounding unit of the data. Gains that differ by less than it are ties.
    estimate : callable, optional
        From features (m,) to G among them (m, m), without a pass over the data and only about
        right; or to None. It serves to predict which columns will be needed (`prefetch`).
    among : callable, optional
        From features (m,) to G among them (m, m), if that takes no pass over the data.
    fetch_sizes : FetchSizes
        How many columns to ask for at a time.

    Examples
    --------
    >>> G, B = np.diag([1.0, 4.0]), np.array([[1.0], [3.0]])
    >>> Quadratic(10.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16).total_marginal_gain
    1.428...
    """

    q: float
    B: Floats
    diag: Float64
    gamma: float
    columns: Callable[[Indices], Float64]
    eps: float
    estimate: Callable[[Indices], Floats | None] | None = None
    among: Callable[[Indices], Float64] | None = None
    fetch_sizes: FetchSizes = FetchSizes()

    @property
    def total_marginal_gain(self) -> float:
        """How much all features together would lower J if each entered first.

        It is Σ‖b_j‖² / Σ(G_jj + γ), the mean gain of a first feature weighted by its pivot.
        """
        pivots = float((self.diag + self.gamma).sum())
        return float((self.B**2).sum() / max(pivots, np.finfo(float).tiny))

    def scaled_by(self, weight: float) -> Quadratic:
        """Return the same J, multiplied by a weight.

        Gains are ‖R_j‖²/δ_j with R linear in B, so B is multiplied by √weight, and G and γ
        stay. W of the result is √weight times that of the original.
        """
        return replace(self, q=weight * self.q, B=np.sqrt(weight) * self.B)

    def ignoring(self, ignored: Mask) -> Quadratic:
        """Return the same J for which some features (d,) are constantly zero.

        Their gain is exactly 0. What the sums of a constant feature hold are rounding errors,
        and the ratio of two rounding errors may be any number.
        """
        if not ignored.any():
            return self

        def columns(features: Indices) -> Float64:
            found = self.columns(features)
            found[ignored] = 0.0
            found[:, ignored[features]] = 0.0
            return found

        def estimate(features: Indices) -> Floats | None:
            if self.estimate is None:
                return None
            found = self.estimate(features)
            if found is not None:
                found[ignored[features]] = 0.0
                found[:, ignored[features]] = 0.0
            return found

        B = self.B.copy(order="K")
        B[ignored] = 0.0
        diag = np.where(ignored, 0.0, self.diag)
        # what is not known without a pass comes from the columns
        return replace(self, B=B, diag=diag, columns=columns, estimate=estimate, among=None)

    def penalized_by(self, factor: float) -> Quadratic:
        """Return the same J, with a penalty that is multiplied by a factor."""
        return replace(self, gamma=factor * self.gamma)


@dataclass(frozen=True)
class Relaxed:
    """A panel that is found without one of the rules."""

    decrease: float  # how far J falls, at least
    features: Indices  # selected ones, in the order of their entry
    freed: Indices  # those of them that only this rule kept out


@dataclass(frozen=True)
class Solution:
    """The result of a solver.

    Attributes
    ----------
    s : ndarray of shape (d,)
        The selection, 0/1 for `solve_direct`.
    V : ndarray of shape (k, r)
        The rows of W where s is not zero.
    scores, order : ndarrays of shape (d,)
        They rank all features.
    objective : ndarray
        J after each step.
    converged : bool
    gram : ndarray of shape (k, k) or None
        G of the selected features, in the order of their selection, if known.
    relaxed : callable
        Searches for the panel without each rule in turn, and returns them by the rule.
    left_out : callable
        Searches for the panel without each selected group in turn, and returns how far J
        falls, at least, by the group.
    objective_start : float
        J when nothing is selected.
    copies : dict of int
        Features that were skipped as near copies, and the selected feature each copies. They
        are among the selected ones if nothing else was left.
    """

    s: Float64
    V: Float64
    scores: Float64
    order: Indices
    objective: Float64
    converged: bool
    gram: Float64 | None = None
    relaxed: Callable[[], Mapping[str, Relaxed]] = dict
    left_out: Callable[[], Mapping[int, float]] = dict
    objective_start: float = float("nan")
    copies: Mapping[int, int] = field(default_factory=dict)

    @property
    def W(self) -> Float64:
        """W (d, r), which solves Eq. 12 for the selection s; zero where s is."""
        out = np.zeros((len(self.s), self.V.shape[1]))
        out[self.s != 0] = self.V
        return out


#: Called after each step with its number, J, the feature added (or None) and a function that
#: makes the Solution so far. A true answer stops the solver.
Monitor = Callable[[int, float, int | None, Callable[[], Solution]], bool]
