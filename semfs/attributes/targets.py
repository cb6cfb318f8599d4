"""Descriptions of classes to come: from them, where their means will lie.

Class means are predicted from class attributes by kernel ridge regression over the seen
classes. The predicted means of the target classes, with the within-class scatter of the seen
ones, make a problem of the paper's form: tell the target classes apart.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel

from semfs.attributes.tables import AttributeTable, as_attribute_table
from semfs.method.moments import Moments
from semfs.method.objective import Objective, Quadratic, absolute_penalty, drowns

__all__ = ["SMALLEST_R2", "MeanPrediction", "predict_means", "target_classes"]

#: Descriptions that predict less of the means of held-out classes than this share are not
#: used; where it was lower, they did more harm than good (docs/choosing.md).
SMALLEST_R2 = 0.15
#: Leaving one class out says nothing with fewer.
FEWEST_CLASSES = 5
RIDGES = (0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
WIDTHS = (0.0, 0.5, 1.0, 2.0, 4.0)  # of the Gaussian kernel, in median distances; 0: linear


def target_classes(
    objective: Objective, table: AttributeTable, target_attributes: Any
) -> tuple[list[Quadratic], float]:
    """Return J of telling the described classes apart, and R² of predicting seen classes.

    There is none, with a warning, if descriptions predict too little. It weighs as much as
    ``objective``: the features would lower both by the same amount in a first step.

    Parameters
    ----------
    objective : Objective
        That of the seen classes.
    table : AttributeTable
        Their descriptions.
    target_attributes : DataFrame, mapping or array
        Descriptions of the target classes; rows of seen classes are left out.
    """
    described = _new_classes(table, target_attributes)
    moments = objective.moments
    if len(table.classes) < FEWEST_CLASSES:
        reason = f"there are only {len(table.classes)} seen classes to learn from"
        _warn_not_used(reason, f"at least {FEWEST_CLASSES} are needed")
        return [], 0.0
    found = predict_means(table.values, moments.means, described)
    if found.r2 < SMALLEST_R2:
        reason = f"descriptions predict {found.r2:.0%} of the means of classes left out"
        _warn_not_used(reason, f"at least {SMALLEST_R2:.0%} are needed")
        return [], found.r2
    target = target_quadratic(
        moments,
        found.means,
        alpha=objective.alpha,
        gamma=objective.penalty,
        penalty_scale=objective.penalty_scale,
    )
    reach = _reach(target)
    weight = _reach(objective.quadratic()) / reach if reach else 0.0
    return [target.weighing(weight)], found.r2


def _new_classes(table: AttributeTable, target_attributes: Any) -> np.ndarray:
    """Attributes (U, m) of the described classes that were not seen."""
    target = as_attribute_table(target_attributes)
    if target.values.shape[1] != table.values.shape[1]:
        raise ValueError(
            f"target_attributes has {target.values.shape[1]} columns, attributes has "
            f"{table.values.shape[1]}. Describe all classes by the same attributes."
        )
    seen = set(table.classes.tolist())
    new = [i for i, label in enumerate(target.classes.tolist()) if label not in seen]
    if len(new) < 2:
        raise ValueError(
            f"target_attributes describes {len(new)} classes that were not seen. Describe at "
            "least two, which can be told apart."
        )
    return target.values[new]


def _warn_not_used(reason: str, wanted: str) -> None:
    message = f"target_attributes was not used: {reason}; {wanted}."
    warnings.warn(message, UserWarning, stacklevel=6)


def _reach(quadratic: Quadratic) -> float:
    """How much all features together would lower J if each entered first."""
    return float((quadratic.B**2).sum() / (quadratic.diag + quadratic.gamma).sum())


@dataclass(frozen=True)
class MeanPrediction:
    """``means`` (U, d) of the target classes, and how well those of seen ones were predicted.

    ``r2`` is the share of the spread of class means that is explained when each class in
    turn is left out; ``width`` and ``ridge`` were chosen to make it largest.
    """

    means: np.ndarray
    r2: float
    width: float
    ridge: float


def predict_means(A: np.ndarray, means: np.ndarray, targets: np.ndarray) -> MeanPrediction:
    """Predict the feature means of classes from their attributes.

    Parameters
    ----------
    A : ndarray of shape (C, m)
        Attributes of the seen classes.
    means : ndarray of shape (C, d)
        Their feature means.
    targets : ndarray of shape (U, m)
        Attributes of the target classes.

    Examples
    --------
    >>> A = np.arange(8.0)[:, None]
    >>> found = predict_means(A, A * [[1.0, -2.0]], np.array([[3.5]]))
    >>> found.means.round(1), round(found.r2, 2)
    (array([[ 3.5, -7. ]]), 1.0)
    """
    scale = A.std(axis=0)
    scale = np.where(scale > 0, scale, np.inf)  # what no seen class varies in says nothing
    A, targets = (A - A.mean(axis=0)) / scale, (targets - A.mean(axis=0)) / scale
    centre = means.mean(axis=0)
    M = means - centre
    products = M @ M.T
    best = (-np.inf, 0.0, 1.0)
    for width in WIDTHS:
        K = _centred(_kernel(A, A, width, A))
        for ridge, r2 in _left_out_r2(K, products):
            best = max(best, (r2, width, ridge))
    r2, width, ridge = best
    raw = _kernel(A, A, width, A)
    K, K_new = _centred(raw), _kernel(targets, A, width, A)
    K_new = K_new - K_new.mean(axis=1, keepdims=True) - raw.mean(axis=0) + raw.mean()
    dual = np.linalg.solve(K + _penalty(K, ridge) * np.eye(len(K)), M)
    return MeanPrediction(centre + K_new @ dual, float(r2), width, ridge)


def _kernel(A: np.ndarray, B: np.ndarray, width: float, seen: np.ndarray) -> np.ndarray:
    if width == 0.0:
        return A @ B.T
    distances = euclidean_distances(seen, squared=True)
    typical = float(np.median(distances[distances > 1e-12])) if distances.any() else 1.0
    return rbf_kernel(A, B, gamma=1.0 / (width * typical))


def _centred(K: np.ndarray) -> np.ndarray:
    return K - K.mean(axis=0) - K.mean(axis=1, keepdims=True) + K.mean()


def _penalty(K: np.ndarray, ridge: float) -> float:
    return ridge * max(float(np.trace(K)) / len(K), np.finfo(float).tiny)


def _left_out_r2(K: np.ndarray, products: np.ndarray) -> Iterator[tuple[float, float]]:
    """Yield (ridge, R²) with every class left out in turn, in closed form.

    With H = 11'/C + K(K + λI)⁻¹ the error of class i, when left out, is that of the fit
    divided by 1 − h_ii; squared errors need only the products M M' (C, C) of the means.
    """
    C = len(K)
    values, Q = np.linalg.eigh(K)
    values = np.maximum(values, 0.0)
    P = Q.T @ products @ Q
    total = np.trace(products) * (C / (C - 1.0)) ** 2  # each class about the others' mean
    for ridge in RIDGES:
        penalty = _penalty(K, ridge)
        left = penalty / (values + penalty)
        errors = np.einsum("ia,ia->i", Q @ (left[:, None] * P * left), Q)
        own = (Q**2) @ (1.0 - left) + 1.0 / C
        yield ridge, 1.0 - float((errors / np.maximum(1.0 - own, 1e-12) ** 2).sum()) / total


def target_quadratic(
    moments: Moments, means: np.ndarray, *, alpha: float, gamma: float, penalty_scale: str
) -> Quadratic:
    """Return J of telling apart classes of equal size with these means (U, d), by label.

    ``moments`` are those of the seen classes, whose within-class scatter is used:
    G = within-class scatter + (1 + α) M'N M.
    """
    U = len(means)
    share = moments.total / U  # rows per target class
    root = np.sqrt(share) * (means - means.mean(axis=0))
    seen_root = np.sqrt(moments.counts)[:, None] * (moments.means - moments.mean)
    within = moments.scatter_diag - np.einsum("cd,cd->d", seen_root, seen_root)
    diag = np.maximum(within, 0.0) + (1.0 + alpha) * np.einsum("cd,cd->d", root, root)
    gamma = absolute_penalty(gamma, penalty_scale, float(diag.mean()))

    def columns(wanted: np.ndarray) -> np.ndarray:
        out = moments.scatter_columns(wanted, precise=drowns(gamma, diag))
        out -= seen_root.T @ seen_root[:, wanted]
        out += (1.0 + alpha) * (root.T @ root[:, wanted])
        return out

    B = (1.0 + alpha) * np.sqrt(share) * (root.T @ (np.eye(U) - 1.0 / U))
    q = (1.0 + alpha) * share * (U - 1.0)
    return Quadratic(q, B, diag, gamma, columns, moments.itemsize_error)
