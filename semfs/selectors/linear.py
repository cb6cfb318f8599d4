"""`LinearSelector`: parameters that SemFS and SemFSCV share, predictions and explanations."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils.validation import check_is_fitted

from semfs._typing import (
    ArrayLike,
    AttributesLike,
    DataLike,
    FeaturesLike,
    Float64,
    LabelsLike,
    Matrix,
)
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import LabelArray, Labels, label_array
from semfs.method.batches import uncorrected_rows
from semfs.method.moments import Moments
from semfs.method.objective import SAFE_RELATIVE_PENALTY
from semfs.rows import device, in_memory
from semfs.rows.cluster import is_dask, lazy_rows
from semfs.rows.device import floating_dtypes, like, to_numpy
from semfs.selectors.fitted import Fitted
from semfs.selectors.inputs import FitInput, batch_of, selected_blocks, training_matrix
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.ranking import RankingSelector
from semfs.validation import AtLeast, OneOf, WholeNumber, check_all_finite, check_integer

if TYPE_CHECKING:
    from semfs.selectors.explanation import Explanation

#: Bytes of training data that are remembered, by reference, for `explain` without arguments.
REMEMBERED_BYTES = 256 * 2**20


@dataclass(eq=False, repr=False)
class LinearSelector(RankingSelector):
    """A ranking with a linear model of class attributes: parameters of SemFS and SemFSCV."""

    n_features_to_select: Any = 50
    attributes: AttributesLike | None = None
    _: KW_ONLY
    alpha: float = 1.0
    gamma: float = 10.0
    penalty_scale: str = "gram"
    fit_intercept: bool = True
    class_weight: Any = "balanced"
    label_weight: float = 0.0
    target_attributes: Any = "table"
    n_new_classes: int | str = "auto"
    include: FeaturesLike | None = None
    exclude: FeaturesLike | None = None
    verbose: int = 0

    _constraints = {
        "alpha": AtLeast(0),
        "gamma": AtLeast(0),
        "penalty_scale": OneOf("gram", "none"),
        "label_weight": AtLeast(0),
        "n_new_classes": OneOf("auto") | WholeNumber(2),
    }
    _supervised = True
    _takes_sparse = True

    # ---- what a fit learned ----------------------------------------------------------

    def _set_fitted(self, fitted: Fitted, X: Matrix | None = None) -> None:
        """Set all fitted attributes, as arrays of the library and device of X."""
        self._fitted = fitted
        for name, value in fitted.attributes().items():
            is_array = isinstance(value, np.ndarray)
            setattr(self, name, like(value, X) if is_array and X is not None else value)

    def _get_fitted(self) -> Fitted:
        """What the last fit learned; selectors that were loaded know it by their attributes."""
        check_is_fitted(self)
        if not hasattr(self, "_fitted"):
            self._fitted = Fitted.from_attributes(self)
        return self._fitted

    def _predictor(self) -> ClassPredictor:
        """The prediction model, made once per fit."""
        return self._get_fitted().prediction_model

    @property
    def attribute_names_in_(self) -> LabelArray:
        """Names (m,) of the attributes of the table given."""
        return self.class_table_.names

    def _sum_options(self, n_features: int) -> dict[str, Any]:
        """What sums over samples beyond memory must know of the fit."""
        # "alternating" needs the whole d × d matrix
        direct = getattr(self, "solver", "direct") == "direct"
        relative = self.penalty_scale == "gram"
        return {
            "n_select": self._n_wanted(n_features) if direct else None,
            "precise": not relative or self.gamma < SAFE_RELATIVE_PENALTY,
            "verbose": self.verbose,
        }

    def _remember(self, moments: Moments) -> None:
        """Keep what `explain` needs, by reference, unless it is large or beyond memory."""
        rows = uncorrected_rows(moments)
        # samples are kept by reference; what counts is that they stay alive
        if in_memory(rows):
            size = rows.nbytes
        else:
            size = 8 * moments.n_features**2  # of the scatter matrix
        can_explain = in_memory(rows) or rows is None
        small = size <= REMEMBERED_BYTES
        self._training_moments = moments if can_explain and small else None

    # ---- predictions -----------------------------------------------------------------

    def predict_attributes(self, X: DataLike) -> Float64:
        """Predict the attributes (n, m) of samples X (n, d), in the columns of the table given.

        By a ridge regression of its own on the selected features, all classes alike.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        """
        check_is_fitted(self)
        return self._map_selected(X, self._predictor().attributes, "predict_attributes")

    def predict(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        batch: LabelsLike | str | None = None,
    ) -> LabelArray:
        """Return the likeliest class of each sample, by descriptions where none were seen.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples. Features are found by name where they have names, and only the selected
            ones are needed. Paths and AnnData are preprocessed as the data of `fit` were
            (see ``preprocessing_``); arrays and opened sources are taken as they are.
        class_table : like `attributes`, optional
            Classes to decide among; by default all of the fitted table, seen and unseen.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, as in `fit`. Offsets of batches that were fitted are removed;
            samples of other batches are taken as they are.
        """
        check_is_fitted(self)
        # made once for all blocks: both depend on the fit alone
        table = self._class_candidates(class_table)
        predictor = self._predictor()

        def best_class(Z: Float64) -> LabelArray:
            return table.classes[predictor.scores(Z, table).argmax(axis=1)]

        return self._map_selected(X, best_class, "predict", batch)

    def decision_function(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        batch: LabelsLike | str | None = None,
    ) -> Float64:
        """Return log-likelihoods (n, n_classes) of each sample's classes, up to a constant.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`; columns are in the order of the table.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, as in `predict`.
        """
        check_is_fitted(self)
        table = self._class_candidates(class_table)
        predictor = self._predictor()

        def scores(Z: Float64) -> Float64:
            return predictor.scores(Z, table)

        return self._map_selected(X, scores, "decision_function", batch)

    def _map_selected(
        self,
        X: DataLike,
        function: Callable[[Float64], Any],
        method: str,
        batch: LabelsLike | str | None = None,
    ) -> Any:
        """A function of the selected columns (n, k) of X, block by block, batches removed."""
        if is_dask(X):
            if batch is not None:
                raise ValueError(
                    f"{method} takes no batch for Dask collections. Compute X first."
                )
            return self._map_lazily(X, function)
        X, found = batch_of(X, batch, "batch")
        blocks = self._selected(X, method)
        if found is not None:
            blocks = self._without_offsets(blocks, Labels.of(found))
        results = [function(Z) for Z in blocks]
        return like(np.concatenate(results), X)

    def _without_offsets(self, blocks: Iterator[Float64], batches: Labels) -> Iterator[Float64]:
        """Yield blocks (r, k) minus the offsets of their samples' batches, where known."""
        fitted = np.asarray(to_numpy(self.batch_offsets_))
        known = Labels.of(self.batches_).classes
        # the last row, of zeros, is for samples without a batch (code -1)
        offsets = np.zeros((len(batches.classes) + 1, fitted.shape[1]))
        for b, batch in enumerate(batches.classes):
            if batch in known:
                offsets[b] = fitted[known.index(batch)]
        n_done = 0
        for Z in blocks:
            codes = batches.codes[n_done : n_done + len(Z)]
            n_done += len(Z)
            if len(codes) == len(Z):
                yield Z - offsets[codes]
        if n_done != len(batches):
            raise ValueError(f"X has {n_done} samples but batch has {len(batches)} values.")

    def _map_lazily(self, X: Any, function: Callable[[Float64], Any]) -> Any:
        """A function of the selected columns (n, k) of a Dask collection, as a Dask array."""
        selected = self._lazily_selected(X)

        def of_chunk(chunk: Matrix) -> Any:
            Z = _dense(chunk)
            if not np.isfinite(Z).all():
                check_all_finite(Z)
            return function(Z)

        # one sample tells type and width of the results
        example = function(np.zeros((1, int(self._get_support_mask().sum()))))
        width = None if example.ndim == 1 else example.shape[1]
        return lazy_rows(selected, of_chunk, dtype=example.dtype, width=width)

    def _selected(self, X: DataLike, method: str) -> Iterator[Float64]:
        """Yield the selected columns (r, k) of X in float64, all rows at once in memory."""
        names = getattr(self, "feature_names_in_", None)
        support = self._get_support_mask()
        blocks = selected_blocks(X, support, names, self._preprocessing())
        if blocks is None:
            yield _dense(self._selected_in_memory(X, method))
            return
        selected_names = None if names is None else names[support]
        for block in blocks:
            Z = _dense(block)
            if not np.isfinite(Z).all():
                check_all_finite(Z, selected_names)
            yield Z

    def _selected_in_memory(self, X: DataLike, method: str) -> Matrix:
        """The selected columns (n, k) of a matrix."""
        device.check_same_namespace(X, self, attribute="coef_", method=method)
        X = training_matrix(self, X, accept_sparse="csr", finite=True, reset=False)
        selected = np.flatnonzero(self._get_support_mask())
        # only the selected columns leave the device
        if device.is_foreign(X):
            return to_numpy(device.take_columns(X, selected))
        return X[:, selected]

    def _class_candidates(self, class_table: AttributesLike | None) -> AttributeTable:
        """The classes to decide among."""
        seen = self.class_table_
        unseen = self.new_table_
        if class_table is not None:
            return as_attribute_table(class_table).columns_of(seen, "class_table")
        # without descriptions of unseen classes, predictions are of seen ones
        if unseen is None:
            return seen
        labels = label_array([*seen.classes.tolist(), *unseen.classes.tolist()])
        return AttributeTable(np.vstack([seen.values, unseen.values]), labels, seen.names)

    # ---- transformations -------------------------------------------------------------

    def inverse_transform(self, X: DataLike) -> Any:
        """Return X (n, k) as (n, d): selected columns in their places, zeros elsewhere."""
        # numpy, scipy and pandas are what scikit-learn knows
        if floating_dtypes(X) is None:
            return super().inverse_transform(X)
        return device.spread_columns(X, self.get_support())

    def _transform(self, X: DataLike) -> Any:
        device.check_same_namespace(X, self, attribute="support_", method="transform")
        return super()._transform(X)

    # ---- explanations ----------------------------------------------------------------

    def explain(
        self,
        X: DataLike = None,
        y: LabelsLike | str | None = None,
        *,
        sample_weight: ArrayLike | None = None,
        batch: LabelsLike | str | None = None,
        n_bootstraps: int = 100,
        random_state: Any = 0,
    ) -> Explanation:
        """Explain the selected features, by name; needs pandas.

        Parameters
        ----------
        X : array-like, optional
            The samples of `fit`. By default those of the last `fit`, remembered by reference
            if they take up to 256 MB (not by saved or pickled selectors). Without samples
            only gains and weights are explained.
        y : array-like, optional
            Their labels, as in `fit`.
        sample_weight : array-like, optional
            Their weights, as in `fit`.
        batch : array-like or str, optional
            Their batches, as in `fit`.
        n_bootstraps : int, default=100
            Bootstraps of the classes for the stability of the selection; 0 for none. They
            take labeled samples into account, not `target_attributes` or unlabeled samples.
        random_state : int, default=0
            Seed of the bootstraps.

        Returns
        -------
        semfs.selectors.explanation.Explanation
        """
        from semfs.selectors.explanation import explain_selection

        check_is_fitted(self)
        check_integer("n_bootstraps", n_bootstraps, 0)
        moments = getattr(self, "_training_moments", None)
        if X is not None:
            found = FitInput.from_user(self, X, y, sample_weight, reset=False, batch=batch)
            data = found.summed(self._sum_options(found.n_features)).corrected()
            moments = data.moments.without_empty_classes()
            self._check_fitted_classes(moments.classes.tolist())
        return explain_selection(self, moments, n_bootstraps, random_state)

    def _check_fitted_classes(self, found: list[Any]) -> None:
        """Raise unless these are the classes of the fit."""
        fitted = self.class_table_.classes.tolist()
        if found != fitted:
            raise ValueError(
                f"explain needs rows of the {len(fitted)} classes that were fitted, from "
                f"{fitted[0]!r} to {fitted[-1]!r}; found {len(found)}, from {found[0]!r} "
                f"to {found[-1]!r}."
            )


def _dense(Z: Matrix) -> Float64:
    dense: Any = Z
    if sp.issparse(dense):
        dense = dense.toarray()
    return np.asarray(dense, dtype=np.float64)
