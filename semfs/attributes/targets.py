"""Classes to come, from their descriptions: where their means will lie.

Class means are predicted from class attributes by kernel ridge regression over the seen
classes. Predicted means, with the scatter within the seen classes, make a problem of the
paper's form: tell the classes to come apart.
"""

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from sklearn.preprocessing import KernelCenterer

from semfs.attributes.tables import AttributeTable, as_attribute_table
from semfs.method.objective import Objective, Quadratic

#: Descriptions that predict less of the means of held-out classes than this are not used.
SMALLEST_R2 = 0.02
#: Leaving one class out says little with fewer.
FEWEST_CLASSES = 8
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0)
#: Attributes that vary less between the seen classes, relative to their size, are constant.
SMALLEST_SPREAD = 1e-8
WIDTHS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of the Gaussian kernel, in median distances; 0: linear


def classes_to_come(
    attributes: Any, target_attributes: Any, seen: AttributeTable
) -> AttributeTable | None:
    """Return the descriptions of classes that were not seen, or None.

    ``target_attributes`` is "table" for the rows of ``attributes`` itself, None, or a table of
    its own, which must describe at least two.
    """
    own = not isinstance(target_attributes, str)
    if target_attributes is None or attributes is None:
        return None
    table = as_attribute_table(target_attributes if own else attributes)
    table = table.columns_of(seen, "target_attributes")
    known = set(seen.classes.tolist())
    new = [i for i, label in enumerate(table.classes.tolist()) if label not in known]
    if own and len(new) < 2:
        raise ValueError(f"target_attributes has {len(new)} unseen classes; give two or more.")
    return AttributeTable(table.values[new], table.classes[new], seen.names) if new else None


def target_problem(
    objective: Objective, table: AttributeTable, new: AttributeTable
) -> tuple[Quadratic | None, float, str]:
    """Return the problem of telling new classes apart, R² of the means, and what was done.

    The problem is None if descriptions predict too little. It weighs as much as that of the
    seen classes: the features would lower both by the same amount in a first step.
    """
    moments, U, C = objective.moments, len(new.classes), len(table.classes)
    if U < 2:
        return None, float("nan"), "not used: one class; two are needed"
    if C < FEWEST_CLASSES:
        return None, float("nan"), f"not used: {C} seen classes; {FEWEST_CLASSES} are needed"
    model = MeanModel.fit(table.values, moments.means)
    said = f"descriptions predict {max(model.r2, 0.0):.0%} of the means of classes left out"
    if model.r2 < SMALLEST_R2:
        return None, model.r2, f"not used: {said}"
    problem = Objective.of_means(
        moments,
        model.predict(new.values),
        np.full(U, moments.total / U),
        None,
        alpha=objective.alpha,
        gamma=objective.penalty,
        penalty_scale=objective.penalty_scale,
        fit_intercept=True,
    ).quadratic()
    weight = objective.quadratic().reach / max(problem.reach, np.finfo(float).tiny)
    return problem.scaled_by(weight), model.r2, f"used: {said}"


@dataclass(frozen=True, eq=False)
class MeanModel:
    """Predicts the feature means of a class from its attributes.

    Kernel, scaling of the attributes and ridge are those that predict the means of the seen
    classes best when each is left out in turn.
    """

    A: np.ndarray
    dual: np.ndarray
    mean: np.ndarray
    scale: np.ndarray
    width: float
    slope: float  # share of the attributes that means repeat, if both are the same columns
    r2: float  # share of the spread of class means explained for classes left out
    errors: np.ndarray  # (C, d), mean of each seen class minus its prediction when left out

    @classmethod
    def fit(cls, A: np.ndarray, means: np.ndarray, same: np.ndarray | None = None) -> Self:
        """Learn from attributes A (C, m) and feature means (C, d) of the seen classes.

        ``same`` (C, d) are the attributes that stand for the features themselves, where
        descriptions and rows live in one space; they are used if that predicts better.
        """
        plain = cls._fit(A, means, np.zeros_like(means), 0.0)
        if same is None:
            return plain
        spread = same - same.mean(axis=0)
        slope = float((spread * means).sum() / max((spread**2).sum(), np.finfo(float).tiny))
        repeating = cls._fit(A, means, same, slope)
        return repeating if repeating.r2 > plain.r2 else plain

    @classmethod
    def _fit(cls, A: np.ndarray, means: np.ndarray, same: Any, slope: float) -> Self:
        rest = means - slope * same
        mean, C = rest.mean(axis=0), len(A)
        R, spread = rest - mean, A.std(axis=0)
        tiny = np.finfo(float).tiny
        # each class about the mean of the others
        total = max(((means - means.mean(axis=0)) ** 2).sum() * (C / (C - 1.0)) ** 2, tiny)
        # what no seen class varies in says nothing about others
        on = spread > SMALLEST_SPREAD * np.abs(A).max(axis=0)
        scales = (np.divide(1.0, spread, out=np.zeros_like(spread), where=on), on.astype(float))
        products, best = R @ R.T, (np.inf, 1.0, 0.0, scales[0])
        for scale, width in itertools.product(scales, WIDTHS):
            K = KernelCenterer().fit_transform(_kernel(A * scale, A * scale, width))
            for error, penalty in _left_out(K, products):
                if error < best[0]:
                    best = error, penalty, width, scale
        error, penalty, width, scale = best
        K = KernelCenterer().fit_transform(_kernel(A * scale, A * scale, width))
        inverse = np.linalg.inv(K + penalty * np.eye(C))
        own = 1.0 - 1.0 / C - (1.0 - penalty * np.diag(inverse))
        errors = penalty * inverse @ R / np.maximum(own, 1e-12)[:, None]
        r2 = float(1.0 - error / total)
        return cls(A, inverse @ R, mean, scale, width, slope, r2, errors)

    def predict(self, A: np.ndarray, same: np.ndarray | None = None) -> np.ndarray:
        """Return the feature means (U, d) of classes with attributes A (U, m)."""
        seen = self.A * self.scale
        center = KernelCenterer().fit(_kernel(seen, seen, self.width))
        K = center.transform(_kernel(A * self.scale, seen, self.width))
        out = self.mean + K @ self.dual
        return out + self.slope * same if self.slope and same is not None else out


def _kernel(A: np.ndarray, seen: np.ndarray, width: float) -> np.ndarray:
    if width == 0.0:
        center = seen.mean(axis=0)
        return (A - center) @ (seen - center).T
    distances = euclidean_distances(seen, squared=True)
    apart = distances[distances > 1e-12 * distances.max()]
    typical = float(np.median(apart)) if apart.size else 1.0
    return rbf_kernel(A, seen, gamma=1.0 / (width * typical))


def _left_out(K: np.ndarray, products: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield, for each ridge, the squared error with every class left out in turn, and λ.

    With H = 11'/C + K(K + λI)⁻¹ the error of class i, when left out, is that of the fit
    divided by 1 − h_ii; squared errors need only the products R R' (C, C) of the means.
    """
    C = len(K)
    values, Q = np.linalg.eigh(K)
    values = np.maximum(values, 0.0)
    P = Q.T @ products @ Q
    # K is 0 if the seen classes are described alike: any penalty predicts their mean then
    scale = float(np.trace(K)) / C or 1.0
    for ridge in RIDGES:
        penalty = ridge * scale
        left = penalty / (values + penalty)
        errors = np.einsum("ia,ia->i", Q @ (left[:, None] * P * left), Q)
        own = (Q**2) @ (1.0 - left) + 1.0 / C
        yield float((errors / np.maximum(1.0 - own, 1e-12) ** 2).sum()), penalty
