"""`RankingSelector`: from one score per feature to a scikit-learn selector.

Selectors are dataclasses. Their fields are the parameters, their defaults are class attributes,
and the generated ``__init__`` only stores values, as scikit-learn requires. ``eq=False,
repr=False`` keep scikit-learn's identity and our `__repr__`. ``_constraints`` lists the valid
values of each parameter.
"""

from __future__ import annotations

import html
import inspect
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from semfs._typing import DataLike, Float64, Indices, LabelsLike, Mask, Matrix
from semfs.constraints import Constraint, FeatureCount
from semfs.io.anndata import as_genes
from semfs.labels import LabelArray
from semfs.rows import Preprocessing, column_places
from semfs.rows.dask_data import is_dask, lazy_columns
from semfs.rows.device import namespace_of, to_numpy
from semfs.selectors.filling import fill_values_of, filled_result
from semfs.selectors.inputs.labeled import Samples
from semfs.selectors.inputs.matrix import training_matrix, without_text_columns
from semfs.selectors.inputs.nonfinite import (
    has_nonfinite,
    place_of_nan,
    with_zeros_elsewhere,
)
from semfs.selectors.selected_columns import selected_blocks
from semfs.validation import FILL_TO_PREDICT, ParameterWarning, warn_user

#: Features shown in a notebook; get_feature_names_out() has the rest.
SHOWN_FEATURES = 200
#: Longest text of a parameter that `repr` shows in full, in characters.
LONGEST_VALUE = 80
#: What a fit leaves behind besides attributes that end in an underscore.
FIT_STATE = ("_fitted", "_training_moments")


class RankingSelector(SelectorMixin, BaseEstimator):
    """Base class that selects the best ``n_features_to_select`` features of a ranking.

    A subclass implements ``fit``, which calls :meth:`_check_training_data`, computes one score
    per feature (larger is better) and passes the scores to :meth:`_set_ranking`.
    """

    n_features_to_select: Any  # a number or share; of SemFSCV also "auto"

    #: What parameters may be. Tables of base classes hold as well; None is always allowed
    #: where it is the default.
    _constraints: ClassVar[Mapping[str, Constraint]] = {"n_features_to_select": FeatureCount()}
    _supervised = False
    _takes_sparse = False

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = self._supervised
        tags.input_tags.sparse = self._takes_sparse
        return tags

    # ---- fit -------------------------------------------------------------------------

    def _check_training_data(
        self, X: DataLike, y: LabelsLike | str | None
    ) -> tuple[Matrix, LabelArray | None, Indices | None]:
        """Check X (n, d) and y, and return X, class labels (C,) and codes (n,), if any."""
        self._check_n_features_to_select()
        samples = Samples.from_user(X, y)
        matrix = training_matrix(
            self,
            samples.X,
            samples.names,
            accept_sparse=("csr", "csc") if self._takes_sparse else False,
            finite=True,
        )
        labels = samples.labels
        if labels is None and not self._supervised:
            return matrix, None, None
        if labels is None:  # check_requires_y_none looks for these words
            raise ValueError("This selector requires y to be passed, but the target y is None.")
        # baselines have no use for unlabeled samples
        labels.check_length(matrix.shape[0])
        labels.check_complete()
        return matrix, labels.class_array(), labels.codes.astype(np.intp)

    def _check_parameters(self) -> None:
        """Raise if a parameter is invalid."""
        constraints = self._all_constraints()
        for name, value in self.get_params(deep=False).items():
            if name not in constraints:
                continue
            if value is None and getattr(type(self), name, 0) is None:
                continue
            constraints[name].check(name, value)

    def _check_n_features_to_select(self) -> None:
        name = "n_features_to_select"
        self._all_constraints()[name].check(name, self.n_features_to_select)

    @classmethod
    def _all_constraints(cls) -> dict[str, Constraint]:
        """Return the constraints of this class and its bases, subclasses first."""
        found: dict[str, Constraint] = {}
        for base in reversed(cls.__mro__):
            found.update(vars(base).get("_constraints", {}))
        return found

    def _n_wanted(self, d: int) -> int:
        """Return how many of d features to select; at least one if it is a share (below 1)."""
        k = self.n_features_to_select
        if k is None:  # a budget decides
            return d
        return int(k) if k >= 1 else max(1, int(k * d))

    @contextmanager
    def _all_or_nothing(self) -> Iterator[None]:
        """Restore the fitted attributes if the block fails or is interrupted."""
        before = self._fit_state()
        try:
            yield
        except BaseException:
            for name in self._fit_state():
                delattr(self, name)
            self.__dict__.update(before)
            raise

    def _fit_state(self) -> dict[str, Any]:
        """Return everything that a fit has set."""
        return {
            name: value
            for name, value in vars(self).items()
            if name.endswith("_") or name in FIT_STATE
        }

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        for name in FIT_STATE:  # data and models do not travel with the selector
            state.pop(name, None)
        return state

    def _set_ranking(self, scores: Float64) -> None:
        """Store the ranking by scores (d,), with ties by index. Columns of -inf come last."""
        scores = np.asarray(scores, dtype=np.float64)
        self.scores_ = scores
        self.order_ = stable_order(scores)
        self.ranking_ = 1 + np.argsort(self.order_)  # the inverse of a permutation
        self.support_ = self.ranking_ <= self._n_wanted(len(scores))
        self._warn_if_too_many(len(scores))

    def _warn_if_too_many(self, n_selectable: int) -> None:
        """Warn if more features are requested than there are."""
        wanted = self.n_features_to_select
        if wanted is not None and wanted > n_selectable:
            message = (
                f"is {self.n_features_to_select}, greater than the number of features to "
                f"select from ({n_selectable}). All of them are kept."
            )
            warning = ParameterWarning("n_features_to_select", message)
            warn_user(warning)

    # ---- transform -------------------------------------------------------------------

    def transform(self, X: DataLike) -> Any:
        """Return the selected features of X.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n, d), AnnData or path
            Samples with all features of `fit`. Missing values in features that are not selected
            do not matter. If the fit filled missing values, those in selected features are
            replaced by ``fill_values_``. In AnnData and in files, features are found by name,
            and only the selected features are needed. Of a file, only these features are kept
            in memory. For AnnData, the result is an AnnData object, as if it were sliced.
        """
        check_is_fitted(self, "support_")
        genes = as_genes(X)
        # slicing the object keeps all that is known of its cells
        if genes is not None:
            return genes.keep(self._places_of_genes(genes.names))
        names = getattr(self, "feature_names_in_", None)
        fill = fill_values_of(self)
        if is_dask(X):
            lazy = self._lazily_selected(X)
            return lazy if fill is None else filled_result(lazy, fill)
        support = self._get_support_mask()
        keep = fill is not None
        blocks = selected_blocks(X, support, names, self._preprocessing(), keep_missing=keep)
        if blocks is None:
            found = self._transform_in_memory(without_text_columns(X))
        else:
            found = stacked(list(blocks))
        return found if fill is None else filled_result(found, fill)

    def _transform_in_memory(self, X: Any) -> Any:
        """Return the selected columns of a matrix or frame; gaps in others do not matter."""
        # scikit-learn adds up all numbers, of which some may be huge
        with np.errstate(invalid="ignore"):
            try:
                return super().transform(X)
            except ValueError:
                support = self._get_support_mask()
                is_known_shape = np.ndim(X) == 2 and np.shape(X)[1] == len(support)
                if is_known_shape and namespace_of(X) is None and has_nonfinite(X):
                    X = with_zeros_elsewhere(X, support)
                with place_of_nan(X, advice=FILL_TO_PREDICT):
                    return super().transform(X)

    def _lazily_selected(self, X: Any) -> Any:
        """Return the selected columns of a Dask array or DataFrame, without computing them."""
        names = getattr(self, "feature_names_in_", None)
        d = self.n_features_in_
        has_names = names is not None and hasattr(X, "columns")
        if not has_names and X.shape[1] != d:
            raise ValueError(
                f"X has {X.shape[1]} features, but the selector was fitted with {d}."
            )
        return lazy_columns(X, np.flatnonzero(self._get_support_mask()), names)

    def _places_of_genes(self, found: list[str]) -> Indices:
        """Return the positions of the selected genes among those found."""
        names = getattr(self, "feature_names_in_", None)
        support = self._get_support_mask()
        if names is not None:
            return column_places(found, names[support])
        if len(found) != len(support):
            raise ValueError(
                f"X has {len(found)} features, but the selector was fitted with {len(support)}."
            )
        return np.flatnonzero(support)

    def _preprocessing(self) -> Preprocessing:
        """Return how the data of the fit were preprocessed, which is repeated for files."""
        return Preprocessing(**getattr(self, "preprocessing_", {}))

    def _get_support_mask(self) -> Mask:
        check_is_fitted(self, "support_")
        return np.asarray(to_numpy(self.support_))

    def _name_of(self, feature: int) -> str:
        names = getattr(self, "feature_names_in_", None)
        return f"x{feature}" if names is None else str(names[feature])

    # ---- display ---------------------------------------------------------------------

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """Return the call that makes this selector, with long values abbreviated."""
        signature = inspect.signature(type(self)).parameters
        shown = []
        for name, value in sorted(self.get_params(deep=False).items()):
            text = _short_repr(name, value)
            if text != _short_repr(name, signature[name].default):
                shown.append(f"{name}={text}")
        return f"{type(self).__name__}({', '.join(shown)})"[:N_CHAR_MAX]

    def _html_repr(self) -> str:
        """Return scikit-learn's diagram, followed by folded details of the selection."""
        diagram = super()._html_repr()
        if not hasattr(self, "support_"):
            return diagram
        knowledge = getattr(self, "knowledge_", {})
        known = "".join(
            f"<li>{html.escape(what)}: {html.escape(note)}</li>"
            for what, note in knowledge.items()
        )
        order = np.asarray(to_numpy(self.order_))
        scores = np.asarray(to_numpy(self.scores_))
        selected = order[: int(self.get_support().sum())].tolist()
        names = [html.escape(self._name_of(j)) for j in selected]  # untrusted text
        rows = "".join(
            f"<tr><td>{rank}</td><td>{name}</td><td>{scores[j]:.4g}</td></tr>"
            for rank, (name, j) in enumerate(zip(names, selected[:SHOWN_FEATURES]), start=1)
        )
        # the page stays short until the reader opens the table
        first = ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
        return (
            f"{diagram}<ul>{known}</ul><details><summary>{len(selected):,} of "
            f"{self.n_features_in_:,} features selected: {first}</summary><table><thead><tr>"
            "<th>rank</th><th>feature</th><th>score</th></tr></thead><tbody>"
            f"{rows}</tbody></table></details>"
        )


def stable_order(scores: Float64) -> Indices:
    """Return feature indices, best score first, ties by index."""
    return np.argsort(-np.asarray(scores, dtype=np.float64), kind="stable")


def constant_columns(X: Matrix) -> Mask:
    """Return a mask (d,) of the columns of X that hold only one value."""
    largest = X.max(axis=0)
    smallest = X.min(axis=0)
    if sp.issparse(X):
        largest = largest.toarray().ravel()
        smallest = smallest.toarray().ravel()
    return np.asarray(largest == smallest)


def stacked(blocks: list[Matrix]) -> Matrix:
    """Stack blocks of rows to one matrix, which is sparse if they are sparse."""
    if sp.issparse(blocks[0]):
        return sp.vstack(blocks, format="csr")
    return np.concatenate(blocks)


def _short_repr(name: str, value: Any) -> str:
    """Return the text that `repr` shows for a parameter; long values by their size only."""
    shape = tuple(getattr(value, "shape", ()))
    is_table = name.endswith("attributes") and value is not None
    if is_table and not isinstance(value, str):
        return _table_size(value, shape)
    if shape:
        return f"<array of shape {shape}>"
    text = repr(value)
    if len(text) <= LONGEST_VALUE:
        return text
    size = f" of {len(value)}" if hasattr(value, "__len__") else ""
    return f"<{type(value).__name__}{size}>"


def _table_size(table: Any, shape: tuple[int, ...]) -> str:
    """Return the numbers of classes and attributes of a table in any form."""
    if len(shape) == 2:
        n_classes, n_attributes = shape
        if hasattr(table, "get_columns"):  # polars: the first column holds the labels
            n_attributes -= 1
    else:
        rows = list(table.values() if isinstance(table, Mapping) else table)
        n_classes = len(rows)
        n_attributes = np.size(rows[0]) if rows else 0
    return f"<{n_classes} classes × {n_attributes} attributes>"
