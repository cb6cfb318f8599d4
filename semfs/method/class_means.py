"""Prediction of the means of unseen classes from their descriptions.

Kernel ridge regression over the seen classes predicts class means from class attributes. The
predicted means and the within-class scatter of the seen classes define a problem of the paper's
form, which is to separate the unseen classes.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.preprocessing import KernelCenterer

from semfs._typing import Float64, Mask
from semfs.arrays import quiet_overflow
from semfs.method.objective import Objective
from semfs.method.quadratic import Quadratic

#: Descriptions are not used if they predict less than this share of the spread of class means.
MIN_R2 = 0.02
#: Shares below this are called low, and from the second on high: of the differences between
#: unseen classes, descriptions then predict less than a quarter, or more than half.
LOW_R2 = 0.25
HIGH_R2 = 0.5
#: Leaving one class out says little with fewer seen classes.
MIN_SEEN_CLASSES = 8
#: Ridge penalties that are tried, in units of the mean diagonal of the kernel matrix.
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: Widths of the Gaussian kernel that are tried, in median squared distances; 0 is linear.
WIDTHS = (0.0, 0.5, 1.0, 2.0, 4.0)
#: Kernels that are tried: whether attributes are divided by their spread, and the width.
KERNELS = tuple(itertools.product((True, False), WIDTHS))
#: Attributes whose spread over the seen classes is below this share of their size say nothing:
#: the differences are rounding errors, as of a table that was stored in float32.
SAME_VALUE = float(np.sqrt(np.finfo(np.float64).eps))
#: Errors of kernels that differ by less than this share of them are equal up to rounding.
SAME_ERROR = 1e-9
#: Attributes that are only perhaps the features themselves (columns without names) are taken
#: for them if that explains this much more of the spread of classes left out …
CLEAR_EVIDENCE = 0.05
#: … and if there are so many that columns in another order would not do as well by chance.
MIN_SAME_ATTRIBUTES = 16
#: If all features together would lower J of the unseen classes by less than this share of it,
#: the predicted means differ by rounding errors only (1e-10 standard deviations or so).
SMALLEST_GAIN = 1e-20


class UnseenProblem(NamedTuple):
    """The problem of separating unseen classes, or the reason why there is none."""

    problem: Quadratic | None
    r2: float  # share of the spread of class means that descriptions predict; nan if unknown
    note: str  # whether descriptions are used, and why, for ``knowledge_``


@quiet_overflow
def unseen_class_problem(
    objective: Objective, seen_attributes: Float64, unseen_attributes: Float64
) -> UnseenProblem:
    """Return the problem of separating unseen classes by their predicted means.

    Attributes of the seen classes are (C, m), in the order of the moments; those of the unseen
    classes are (U, m). If descriptions predict too little, there is no problem. The problem has
    the same weight as that of the seen classes, so that on average a first feature decreases
    both by the same amount.
    """
    n_seen = len(seen_attributes)
    n_unseen = len(unseen_attributes)
    if n_unseen < 2:
        return UnseenProblem(
            None, float("nan"), "not used: found one class, but two are needed"
        )
    if n_seen < MIN_SEEN_CLASSES:
        note = f"not used: found {n_seen} seen classes, but {MIN_SEEN_CLASSES} are needed"
        return UnseenProblem(None, float("nan"), note)
    moments = objective.moments
    model = MeanModel.fit(seen_attributes, moments.means)
    predicted = (
        f"descriptions explain {max(model.r2, 0.0):.0%} of the "
        "differences between held-out seen classes"
    )
    if model.r2 < MIN_R2:
        return UnseenProblem(None, model.r2, f"not used: {predicted}")
    shares = np.full(n_unseen, moments.total / n_unseen)
    problem = objective.separating(model.predict(unseen_attributes), shares).quadratic()
    gain = problem.total_marginal_gain
    if not gain > SMALLEST_GAIN * problem.q:
        return UnseenProblem(
            None, model.r2, "not used: these classes have the same description"
        )
    wanted = objective.quadratic().total_marginal_gain
    return UnseenProblem(
        problem.scaled_by(wanted / gain),
        model.r2,
        f"used: {predicted}{_judged(model.r2)}",
    )


def _judged(r2: float) -> str:
    """Return the end of a sentence: whether descriptions predict much of the class means."""
    if r2 < LOW_R2:
        return " (low: treat predicted names of unseen classes as guesses)"
    if r2 < HIGH_R2:
        return " (medium: check predicted names of unseen classes)"
    return " (high)"


@dataclass(frozen=True, eq=False)
class MeanModel:
    """Predicts the feature means of a class from its attributes.

    The kernel, the scaling of the attributes and the ridge penalty are chosen by leaving out
    each seen class in turn. If all seen classes have the same description, the prediction is
    the mean over them.

    Attributes
    ----------
    A : ndarray of shape (C, m)
        Attributes of the seen classes minus `A_mean`.
    A_mean, scale : ndarrays of shape (m,)
        Mean of the attributes over the seen classes, and the factors that they are multiplied
        by.
    dual : ndarray of shape (C, d)
        Coefficients of the kernel expansion.
    mean : ndarray of shape (d,)
        Mean of the class means over the seen classes.
    width : float
        Width of the kernel, see `WIDTHS`.
    standardized : bool
        Whether attributes are divided by their spread.
    slope : float
        Used if attributes are the features themselves: the factor from attributes to means.
    r2 : float
        Share of the spread of class means that is predicted for classes that are left out.
    errors : ndarray of shape (C, d)
        The mean of each seen class minus its prediction if the class is left out.
    """

    A: Float64
    A_mean: Float64
    scale: Float64
    dual: Float64
    mean: Float64
    width: float
    standardized: bool
    slope: float
    r2: float
    errors: Float64

    @classmethod
    def fit(
        cls,
        A: Float64,
        means: Float64,
        same: Float64 | None = None,
        margin: float = 0.0,
    ) -> Self:
        """Fit the model to attributes A (C, m) and feature means (C, d) of the seen classes.

        If descriptions and samples are vectors in the same space, ``same`` (C, d) are the
        attributes that are the features themselves. They are used if this increases R² by more
        than ``margin``.
        """
        plain = cls._fit(A, means, np.zeros_like(means), 0.0)
        if same is None or not varying(same).any():
            return plain
        repeating = cls._fit(A, means, same, _slope(means, same))
        return repeating if repeating.r2 > plain.r2 + margin else plain

    def refit(
        self,
        A: Float64,
        means: Float64,
        same: Float64 | None = None,
    ) -> Self:
        """Fit a model of other classes, with the kernel and scaling of this one to save time.

        The ridge penalty is chosen again. Arguments are those of `fit`.
        """
        slope = 0.0
        if self.slope and same is not None and varying(same).any():
            slope = _slope(means, same)
        if same is None:
            same = np.zeros_like(means)
        return self._fit(A, means, same, slope, [(self.standardized, self.width)])

    @classmethod
    def _fit(
        cls,
        A: Float64,
        means: Float64,
        same: Float64,
        slope: float,
        kernels: Sequence[tuple[bool, float]] = KERNELS,
    ) -> Self:
        """Fit the means minus ``slope`` times the attributes ``same``."""
        C = len(A)
        rest = means - slope * same
        mean = rest.mean(axis=0)
        R = rest - mean
        A_mean = A.mean(axis=0)
        A = A - A_mean  # near the origin distances keep their digits
        products = R @ R.T
        inverse_spread, ones = _scales(A, A_mean)
        smallest_error = np.inf
        best = (1.0, kernels[0])
        for kernel in kernels:
            standardized, width = kernel
            K = _centered_kernel(A * (inverse_spread if standardized else ones), width)
            for error, penalty in _leave_one_out(K, products):
                # of errors equal up to rounding the first counts: rounding must not decide
                if error < smallest_error * (1.0 - SAME_ERROR):
                    smallest_error = error
                    best = (penalty, kernel)
        penalty, (standardized, width) = best
        scale = inverse_spread if standardized else ones

        # With H = 11'/C + K (K + λI)⁻¹ the error of class i, when left out, is that of the fit,
        # λ (K + λI)⁻¹ R, divided by 1 − h_ii.
        K = _centered_kernel(A * scale, width)
        inverse = np.linalg.inv(K + penalty * np.eye(C))
        one_minus_h = penalty * np.diag(inverse) - 1.0 / C
        errors = penalty * inverse @ R / np.maximum(one_minus_h, 1e-12)[:, None]

        # Without descriptions a class that is left out is predicted by the mean of the others.
        spread = float(((means - means.mean(axis=0)) ** 2).sum()) * (C / (C - 1.0)) ** 2
        r2 = 1.0 - smallest_error / max(spread, np.finfo(float).tiny)
        return cls(
            A=A,
            A_mean=A_mean,
            scale=scale,
            dual=inverse @ R,
            mean=mean,
            width=width,
            standardized=standardized,
            slope=slope,
            r2=float(r2),
            errors=errors,
        )

    def predict(self, A: Float64, same: Float64 | None = None) -> Float64:
        """Return the feature means (U, d) of classes with attributes A (U, m)."""
        seen = self.A * self.scale
        unseen = (A - self.A_mean) * self.scale
        centerer = KernelCenterer().fit(_kernel(seen, seen, self.width))
        K = centerer.transform(_kernel(unseen, seen, self.width))
        out = self.mean + K @ self.dual
        if self.slope and same is not None:
            out = out + self.slope * same
        return out


def _slope(means: Float64, same: Float64) -> float:
    """Return the least-squares factor from attributes (C, d) to means (C, d)."""
    spread = same - same.mean(axis=0)
    return float((spread * means).sum() / (spread**2).sum())


def varying(A: Float64) -> Mask:
    """Return a mask (m,) of attributes that differ between classes by more than rounding."""
    return A.std(axis=0) > SAME_VALUE * np.abs(A).max(axis=0)


def _scales(A: Float64, A_mean: Float64) -> tuple[Float64, Float64]:
    """Return the factors of attributes: 1/spread or 1, and 0 for constant attributes.

    A (C, m) is centered.
    """
    informative = varying(A + A_mean)
    inverse_spread = np.zeros(A.shape[1])
    np.divide(1.0, A.std(axis=0), out=inverse_spread, where=informative)
    return inverse_spread, informative.astype(float)


def _centered_kernel(seen: Float64, width: float) -> Float64:
    """Return the kernel matrix (C, C) of the seen classes, centered in feature space."""
    return KernelCenterer().fit_transform(_kernel(seen, seen, width))


def _kernel(A: Float64, seen: Float64, width: float) -> Float64:
    """Return the kernel (U, C) of attributes A (U, m) and those of the seen classes (C, m)."""
    if width == 0.0:
        center = seen.mean(axis=0)
        return (A - center) @ (seen - center).T
    distances = euclidean_distances(seen, squared=True)
    distinct = distances[distances > 1e-12 * distances.max()]
    typical = float(np.median(distinct)) if distinct.size else 1.0
    return rbf_kernel(A, seen, gamma=1.0 / (width * typical))


def _leave_one_out(
    K: Float64,
    products: Float64,
) -> Iterator[tuple[float, float]]:
    """Yield, for each ridge, the squared error if classes are left out in turn, and λ.

    K (C, C) is the centered kernel. Squared errors need only the products R R' (C, C) of the
    centered means. See `MeanModel._fit` for the formula.
    """
    C = len(K)
    eigenvalues, Q = np.linalg.eigh(K)
    eigenvalues = np.maximum(eigenvalues, 0.0)
    rotated = Q.T @ products @ Q
    # Descriptions that are all alike have K = 0, and any λ predicts the mean.
    unit = max(float(np.trace(K)) / C, 0.0) or 1.0
    for ridge in RIDGES:
        penalty = ridge * unit
        shrunk = penalty / (eigenvalues + penalty)  # eigenvalues of λ (K + λI)⁻¹
        squares = np.einsum("ia,ia->i", Q @ (shrunk[:, None] * rotated * shrunk), Q)
        h = (Q**2) @ (1.0 - shrunk) + 1.0 / C
        yield float((squares / np.maximum(1.0 - h, 1e-12) ** 2).sum()), penalty
