"""Base class of all selectors: from scores to a ranking, a mask and feature names."""

from __future__ import annotations

import functools
import numbers
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs.files import memory_limit, size_text
from semfs.rows import as_genes, as_plain, column_places, plain_blocks
from semfs.rows.devices import as_numpy, floating_dtypes
from semfs.selectors.display import features_html, short_repr
from semfs.validation import encode_labels

__all__ = ["RankingSelector", "constant_columns", "row_wise", "stable_order", "validated"]

# scikit-learn's words about rows whose names we have compared ourselves
NO_NAMES = "X does not have valid feature names"


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
        plain = as_plain(X, y)
        X, y = plain.X, plain.y
        if str(getattr(X, "dtype", "")) == "float16":
            X = X.astype(np.float32)  # half precision is for storage, not for sums
        X = validated(
            self,
            replace(plain, X=X),
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

    def transform(self, X: Any) -> Any:
        """Return the selected columns of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), AnnData or path
            Rows with all the features seen in `fit`. In AnnData genes are found by name.

        Returns
        -------
        X_selected : array-like of shape (n, k)
            Of AnnData an AnnData object, as slicing it returns it.
        """
        genes = as_genes(X)
        if genes is not None:
            return genes.keep(self._places(genes.names))
        if plain_blocks(X) is None:
            return super().transform(X)
        plain = as_plain(X, names=getattr(self, "feature_names_in_", None))
        return plain.X[:, self._get_support_mask()]

    def _places(self, names: list[str]) -> np.ndarray:
        """Where among columns of these names the selected ones are."""
        support = self.get_support()
        if hasattr(self, "feature_names_in_"):
            return column_places(names, self.feature_names_in_[support])
        if len(names) != len(support):
            raise ValueError(f"X has {len(names)} features, {len(support)} were fitted.")
        return np.flatnonzero(support)

    def _get_support_mask(self) -> np.ndarray:
        check_is_fitted(self, "support_")
        return as_numpy(self.support_)


def validated(selector: Any, X: Any, *, reset: bool, **options: Any) -> Any:
    """Return X as scikit-learn's `validate_data` does, also of AnnData, files and lazy frames.

    What lies sparse there is made dense for selectors that need it so, if memory allows.
    """
    known = None if reset else getattr(selector, "feature_names_in_", None)
    plain = as_plain(X, names=known)
    X, named = plain.X, plain.names is not None
    if named and sp.issparse(X) and not options["accept_sparse"]:
        X = _dense(X, type(selector).__name__)
    with warnings.catch_warnings():
        if named:  # and compared already
            warnings.filterwarnings("ignore", NO_NAMES)
        X = validate_data(selector, X, reset=reset, **options)
    if named and reset:
        selector.feature_names_in_ = np.array(plain.names, dtype=object)
    return X


def _dense(X: Any, name: str) -> np.ndarray:
    size = X.shape[0] * X.shape[1] * X.dtype.itemsize
    if size > memory_limit() // 4:
        raise ValueError(
            f"{name} needs dense data, which would take {size_text(size)}. Choose highly "
            "variable genes or fewer cells first, or a selector that takes sparse data."
        )
    return X.toarray()


def row_wise(method: Callable) -> Callable:
    """Let a method that looks at one row at a time take AnnData and files, block by block."""

    @functools.wraps(method)
    def of_any(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        check_is_fitted(self)
        names, coef = getattr(self, "feature_names_in_", None), getattr(self, "coef_", None)
        needed = None if coef is None else self.get_support() | as_numpy(coef).any(axis=1)
        blocks = plain_blocks(X, names=names, needed=needed)
        if blocks is None:
            return method(self, X, *args, **options)
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", NO_NAMES)
            return np.concatenate([method(self, block, *args, **options) for block in blocks])

    return of_any


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
