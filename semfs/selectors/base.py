"""Base class of all selectors: from scores to a ranking, a mask and feature names."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs.rows.devices import as_numpy, floating_dtypes
from semfs.selectors.display import features_html, short_repr
from semfs.validation import encode_labels

__all__ = ["RankingSelector", "constant_columns", "stable_order"]


class RankingSelector(SelectorMixin, BaseEstimator):
    """Keep the best ``n_features_to_select`` features of a total ranking.

    A subclass implements ``fit``: it calls :meth:`_check_training_data`, computes one
    score per feature (larger is better) and hands them to :meth:`_set_ranking`.
    Everything a scikit-learn user expects of a selector follows from that.
    """

    n_features_to_select: Any  # a number; of SemFSCV also "auto"

    def _check_training_data(
        self,
        X: Any,
        y: Any = None,
        *,
        accept_sparse: bool = False,
        dtype: Any = (np.float64, np.float32),
        reset: bool = True,
        ensure_all_finite: bool = True,
        order: str | None = None,
    ) -> tuple[Any, np.ndarray | None, np.ndarray | None]:
        """Validate X and y once; return X, the class labels (C,) and codes (n,).

        Without y, classes and codes are None, unless the selector's tags require y.
        """
        if str(getattr(X, "dtype", "")) == "float16":
            X = X.astype(np.float32)  # half precision is for storage, not for sums
        X = validate_data(
            self,
            X,
            accept_sparse=("csr", "csc") if accept_sparse else False,
            dtype=floating_dtypes(X) or list(dtype),
            ensure_all_finite=ensure_all_finite,
            order=order,
            reset=reset,
        )
        check_n_features_to_select(self.n_features_to_select)
        if y is None and not self.__sklearn_tags__().target_tags.required:
            return X, None, None
        classes, codes = encode_labels(y, n_samples=X.shape[0])
        return X, classes, codes

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Undo changes of fitted attributes if the block fails or is interrupted."""
        before = {name: value for name, value in vars(self).items() if name.endswith("_")}
        try:
            yield
        except BaseException:
            for name in [name for name in vars(self) if name.endswith("_")]:
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def _set_ranking(
        self,
        scores: np.ndarray,
        *,
        order: np.ndarray | None = None,
        n_selectable: int | None = None,
    ) -> None:
        """Store ``scores_``, ``order_``, ``ranking_`` and ``support_``.

        Parameters
        ----------
        scores : ndarray of shape (d,)
            Importance, larger is better; ``-inf`` for columns that rank last
            (constant or excluded).
        order : ndarray of shape (d,), optional
            Feature indices, best first. By default by score, ties by index.
        n_selectable : int, optional
            Only the first ``n_selectable`` features of the order may be selected.
        """
        d = len(scores)
        n_selectable = d if n_selectable is None else n_selectable
        order = stable_order(scores) if order is None else order
        for name, value in self._ranking_attributes(scores, order, n_selectable).items():
            setattr(self, name, value)
        self._warn_if_too_many(n_selectable)

    def _ranking_attributes(
        self, scores: np.ndarray, order: np.ndarray, n_selectable: int
    ) -> dict[str, np.ndarray]:
        """The fitted attributes that follow from scores and order."""
        d = len(scores)
        ranking = np.empty(d, dtype=np.intp)
        ranking[order] = np.arange(1, d + 1)
        support = np.zeros(d, dtype=bool)
        support[order[: min(int(self.n_features_to_select), n_selectable)]] = True
        scores = np.asarray(scores, dtype=np.float64)
        return {"scores_": scores, "order_": order, "ranking_": ranking, "support_": support}

    def _warn_if_too_many(self, n_selectable: int) -> None:
        if self.n_features_to_select > n_selectable:
            warnings.warn(
                f"n_features_to_select={self.n_features_to_select} is greater than the "
                f"number of features to choose from ({n_selectable}). All of them are kept.",
                UserWarning,
                stacklevel=4,
            )

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        return short_repr(self)[:N_CHAR_MAX]

    def _html_repr(self) -> str:
        """scikit-learn's diagram, and below it the chosen features once there are some."""
        diagram = super()._html_repr()
        return diagram + features_html(self) if hasattr(self, "support_") else diagram

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return as_numpy(self.support_)


def check_n_features_to_select(k: Any) -> None:
    """Raise unless k is an integer of at least 1."""
    if not isinstance(k, numbers.Integral) or isinstance(k, bool):
        raise TypeError(
            f"n_features_to_select must be a whole number of at least 1, got {k!r}."
        )
    if k < 1:
        raise ValueError(f"n_features_to_select must be at least 1, got {k}.")


def stable_order(scores: np.ndarray) -> np.ndarray:
    """Return feature indices, best score first, ties by index."""
    return np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")


def constant_columns(X: Any) -> np.ndarray:
    """Return a mask (d,) of the columns of X that hold one value only."""
    if sp.issparse(X):
        top = np.asarray(X.max(axis=0).todense()).ravel()
        low = np.asarray(X.min(axis=0).todense()).ravel()
        return top == low
    return np.asarray(X.max(axis=0) == X.min(axis=0))
