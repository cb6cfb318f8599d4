"""From labels and class attributes to targets, and the scaled problem of linear baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from semfs.attributes import align_attributes
from semfs.baselines.fitting import check_enough, column_std, standardize_columns
from semfs.selectors.base import RankingSelector, constant_columns

__all__ = ["LinearProblem", "SupervisedSelector", "TargetSpace", "linear_problem"]


class SupervisedSelector(RankingSelector):
    """Base of the supervised baselines: labels (and attributes) become targets."""

    attributes: Any

    def _check_supervision(self, X: Any, y: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return X, class codes (n,) and targets (n, m) = A[y]; set ``classes_``."""
        X, classes, codes = self._check_training_data(X, y)
        assert classes is not None  # the tags make the check above require y
        assert codes is not None
        table = align_attributes(self.attributes, classes)
        self.classes_ = classes
        return X, codes, table.values[codes]

    def _fitted_copy(self, checked: RankingSelector, **params: Any) -> Any:
        """Return a clone with other parameters that has seen the data of ``checked``."""
        other = clone(self).set_params(**params)
        for name in ("n_features_in_", "feature_names_in_", "classes_"):
            if hasattr(checked, name):
                setattr(other, name, getattr(checked, name))
        return other

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags


@dataclass(frozen=True)
class TargetSpace:
    """Orthonormal coordinates of the targets: fewer columns, the same distances.

    What depends on targets by distances alone may be solved in these coordinates: 85
    attributes of 25 classes lie in 24 dimensions, two classes on a line.
    """

    origin: np.ndarray  # (m,), their mean, or 0 where there is no intercept
    basis: np.ndarray | None = None  # (r, m), orthonormal rows; None: the columns as they are

    @classmethod
    def of(cls, T: np.ndarray, codes: np.ndarray, origin: np.ndarray) -> TargetSpace:
        """Return the smallest space of targets T (n, m), one for each class in ``codes``."""
        table = T[np.unique(codes, return_index=True)[1]] - origin
        _, size, basis = np.linalg.svd(table, full_matrices=False)
        rank = np.count_nonzero(size > 1e-13 * size.max())
        return cls(origin, basis[: max(rank, 1)])

    def coordinates(self, T: np.ndarray) -> np.ndarray:
        """Return T (n, m) as (n, r)."""
        T = T - self.origin
        return T if self.basis is None else T @ self.basis.T

    def coefficients(self, W: np.ndarray) -> np.ndarray:
        """Return W (d, r) as (d, m)."""
        return W if self.basis is None else W @ self.basis


@dataclass(frozen=True)
class LinearProblem:
    """Training data of a linear baseline after scaling; constant columns left out."""

    X: np.ndarray  # (n, d')
    T: np.ndarray  # (n, r), in the coordinates of ``space``
    space: TargetSpace
    constant: np.ndarray  # (d,)
    offset: np.ndarray  # (d',)
    scale: np.ndarray  # (d',)
    std: np.ndarray  # (d',), of the columns before scaling

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (d', r) as (d, m), with zeros for the columns left out."""
        full = np.zeros((len(self.constant), len(self.space.origin)))
        full[~self.constant] = self.space.coefficients(rows)
        return full

    def intercept(self, b: np.ndarray, coef: np.ndarray) -> np.ndarray:
        """Return the intercept (m,) for raw X from that for scaled X, b (r,)."""
        return self.space.origin + self.space.coefficients(b - self.offset @ coef)


def linear_problem(
    name: str,
    X: np.ndarray,
    T: np.ndarray,
    space: TargetSpace,
    *,
    center: bool,
    scale: bool,
    keep_all: bool = False,
) -> LinearProblem:
    """Centre and scale X (n, d); leave out constant columns unless ``keep_all``."""
    constant = constant_columns(X)
    check_enough(name, X, constant)
    left_out = np.zeros_like(constant) if keep_all else constant
    kept = X[:, ~left_out] if left_out.any() else X
    Z, offset, divisor = standardize_columns(kept, center=center, scale=scale)
    std = divisor if scale else column_std(kept)
    T = space.coordinates(T).astype(X.dtype)
    return LinearProblem(Z, T, space, left_out, offset, divisor, std)
