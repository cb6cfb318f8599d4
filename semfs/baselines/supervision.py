"""From labels and class attributes to targets, and the scaled problem of linear baselines."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from semfs.attributes import align_attributes
from semfs.baselines.fitting import check_enough, column_std, standardize_columns
from semfs.selector import RankingSelector, constant_columns

__all__ = ["LinearProblem", "SupervisedSelector", "linear_problem"]


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
class LinearProblem:
    """Training data of a linear baseline after scaling; constant columns left out."""

    X: np.ndarray  # (n, d')
    T: np.ndarray  # (n, m)
    constant: np.ndarray  # (d,)
    offset: np.ndarray  # (d',)
    scale: np.ndarray  # (d',)
    std: np.ndarray  # (d',), of the columns before scaling

    def spread(self, rows: np.ndarray) -> np.ndarray:
        """Return rows (d', m) as (d, m), with zeros for the columns left out."""
        full = np.zeros((len(self.constant), rows.shape[1]))
        full[~self.constant] = rows
        return full


def linear_problem(
    name: str, X: np.ndarray, T: np.ndarray, *, center: bool, scale: bool, keep_all: bool
) -> LinearProblem:
    """Centre and scale X (n, d); leave out constant columns unless ``keep_all``."""
    constant = constant_columns(X)
    check_enough(name, X, constant)
    left_out = np.zeros_like(constant) if keep_all else constant
    kept = X[:, ~left_out] if left_out.any() else X
    Z, offset, divisor = standardize_columns(kept, center=center, scale=scale)
    std = divisor if scale else column_std(kept)
    return LinearProblem(Z, T.astype(X.dtype), left_out, offset, divisor, std)
