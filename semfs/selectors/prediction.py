"""What a fitted selector predicts: attributes of rows, and classes by their descriptions."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.metrics import pairwise_distances_argmin
from sklearn.utils.validation import check_is_fitted, validate_data

from semfs.attributes import AttributeTable, as_attribute_table
from semfs.method.moments import Moments
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
from semfs.selectors.base import RankingSelector, row_wise
from semfs.selectors.explanation import Explanation, explain_selection
from semfs.selectors.training import training_data
from semfs.validation import check_integer

__all__ = ["PredictingSelector"]

#: Rows up to this size are remembered, so that `explain` needs no arguments.
REMEMBERED_BYTES = 256 * 2**20


class PredictingSelector(RankingSelector):
    """A ranking with a linear model: ``coef_``, ``selection_``, ``intercept_``."""

    coef_: np.ndarray
    selection_: np.ndarray
    intercept_: np.ndarray
    class_table_: AttributeTable

    def explain(
        self,
        X: Any = None,
        y: Any = None,
        *,
        sample_weight: Any = None,
        n_bootstraps: int = 100,
        random_state: Any = 0,
    ) -> Explanation:
        """Explain the chosen features, by name; needs pandas.

        Parameters
        ----------
        X, y : array-like, optional
            The rows and labels of `fit`. By default those of the last `fit`, which are
            remembered, by reference, if they take up to 256 MB (not by saved or pickled
            selectors). Without rows only gains and weights are explained.
        sample_weight : array-like of shape (n,), optional
            Row weights that go with X.
        n_bootstraps : int, default=100
            Bootstraps of the classes for the stability of the selection; 0 for none. They
            take labelled rows into account, not `target_attributes` or unlabelled rows.
        random_state : int, default=0
            Seed of the bootstraps.

        Returns
        -------
        explanation : Explanation
            Print it, look at its frames (``features``, ``attributes``, ``weights``,
            ``classes``, ``duplicates``, ``stability``) or plot it (``plot_gains``,
            ``plot_attributes``, ``plot_stability``).
        """
        check_is_fitted(self)
        check_integer("n_bootstraps", n_bootstraps, 0)
        moments = getattr(self, "_evidence", None)
        if X is not None:
            model = getattr(self, "best_estimator_", self)
            data = training_data(model, X, y, sample_weight, reset=False)
            moments = data.moments.without_empty_classes()
            if not np.array_equal(moments.classes, self.class_table_.classes):
                raise ValueError(
                    "explain needs rows of the classes that were fitted: "
                    f"{_shorten(self.class_table_.classes)}; found {_shorten(moments.classes)}."
                )
        return explain_selection(
            self, moments, n_bootstraps=n_bootstraps, random_state=random_state
        )

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

    @row_wise
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

    @row_wise
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


def _shorten(labels: np.ndarray, most: int = 6) -> str:
    shown = ", ".join(repr(label) for label in labels.tolist()[:most])
    return shown + (", …" if len(labels) > most else "")
