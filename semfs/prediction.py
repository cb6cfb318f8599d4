"""What a fitted selector predicts: attributes of rows, and classes by their descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs.attributes import AttributeTable, as_attribute_table
from semfs.moments import Moments
from semfs.rows import Rows
from semfs.rows.devices import (
    as_numpy,
    check_same_namespace,
    floating_dtypes,
    is_foreign,
    like,
    predict_linear,
    spread_columns,
)
from semfs.selector import RankingSelector

__all__ = ["PredictingSelector"]

#: Rows up to this size are remembered, so that `explain` needs no arguments.
REMEMBERED_BYTES = 256 * 2**20


class PredictingSelector(RankingSelector):
    """A ranking with a linear model: ``coef_``, ``selection_``, ``intercept_``."""

    coef_: np.ndarray
    selection_: np.ndarray
    intercept_: np.ndarray
    class_table_: AttributeTable

    def _remember(self, moments: Moments) -> None:
        """Keep what `explain` needs, by reference, unless it is large."""
        rows = moments.rows
        size = rows.nbytes if isinstance(rows, Rows) else 8 * moments.n_features**2
        small = size <= REMEMBERED_BYTES and (rows is None or isinstance(rows, Rows))
        self._evidence = moments if small else None

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_evidence", None)  # the data do not travel with the selector
        return state

    @property
    def attribute_names_in_(self) -> np.ndarray:
        """Names (m,) of the attributes of the table given."""
        return self.class_table_.names

    def predict_attributes(self, X: Any) -> np.ndarray:
        """Predict the attributes (n, m) of each row of X (n, d).

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with all the features seen in `fit`; only the selected ones are read.

        Returns
        -------
        attributes : ndarray of shape (n, m)
            In the columns of the table given.
        """
        check_is_fitted(self)
        return self._attributes_of(X, "predict_attributes")

    def _attributes_of(self, X: Any, method: str) -> Any:
        check_same_namespace(X, self, attribute="coef_", method=method)
        types = floating_dtypes(X) or [np.float64, np.float32]
        X = validate_data(self, X, accept_sparse="csr", dtype=types, reset=False)
        coef, s, intercept = map(as_numpy, (self.coef_, self.selection_, self.intercept_))
        used = np.flatnonzero(s)
        W = s[used, None] * coef[used]
        if is_foreign(X):
            return predict_linear(X, used, W, intercept)
        picked = X[:, used]
        out = picked @ W if sp.issparse(X) else picked.astype(np.float64, copy=False) @ W
        return out + intercept

    def predict(self, X: Any, class_table: Any = None) -> np.ndarray:
        """Return the class whose description is nearest to each row's predicted attributes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d)
            Rows with all the features seen in `fit`.
        class_table : like `attributes`, optional
            Descriptions to choose among, for example those of unseen classes. By default
            those of the seen classes.

        Returns
        -------
        labels : ndarray of shape (n,)
            Class labels.
        """
        check_is_fitted(self)
        predicted = as_numpy(self._attributes_of(X, "predict"))
        table = self.class_table_ if class_table is None else as_attribute_table(class_table)
        if table.values.shape[1] != self.coef_.shape[1]:
            raise ValueError(
                f"class_table has {table.values.shape[1]} attributes, but the selector was "
                f"fitted with {self.coef_.shape[1]}. Use the same columns in the same order."
            )
        return like(table.classes[pairwise_distances_argmin(predicted, table.values)], X)

    def inverse_transform(self, X: Any) -> Any:
        """Put the selected columns back in their places, zeros elsewhere.

        Parameters
        ----------
        X : array-like of shape (n, k)
            Selected columns.

        Returns
        -------
        X_original : array-like of shape (n, d)
            All columns.
        """
        if floating_dtypes(X) is None:
            return super().inverse_transform(X)
        return spread_columns(X, self.get_support())

    def _transform(self, X: Any) -> Any:
        check_same_namespace(X, self, attribute="support_", method="transform")
        return super()._transform(X)
