"""`PredictingSelector`: predicts the class of a sample, which may be seen or only described.

Every public method reads the selected columns of the samples, block by block
(``selected_columns``), and makes a `Classifier` (``classifier``), which decides among the
classes. The methods differ in what they return.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from semfs._typing import AttributesLike, DataLike, Float64, Label, LabelsLike, Mask, Matrix
from semfs.attributes import AttributeTable
from semfs.feature_names import feature_name
from semfs.labels import LabelArray, Labels, label_array
from semfs.rows.dask_data import is_dask
from semfs.rows.device import like, to_numpy
from semfs.selectors.classifier import Classifier, largest_columns
from semfs.selectors.fitted import Fitted
from semfs.selectors.inputs.batches import batch_of
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.ranking import RankingSelector
from semfs.selectors.sample_scale import ScaleWatch
from semfs.selectors.selected_columns import (
    map_lazily,
    only_rows,
    present_columns,
    selected_columns,
)
from semfs.selectors.table_scale import warn_of_other_scale
from semfs.validation import ParameterError, check_integer


class PredictingSelector(RankingSelector):
    """Base class of selectors that predict classes and their probabilities."""

    # ---- what a fit learned ----------------------------------------------------------

    def _set_fitted(self, fitted: Fitted, X: Matrix | None = None) -> None:
        """Set the fitted attributes, as arrays of the library and device of X."""
        self._fitted = fitted
        for name, value in fitted.attributes().items():
            is_array = isinstance(value, np.ndarray)
            # scikit-learn's rule for array API input: arrays come back in kind
            if is_array and X is not None:
                value = like(value, X)
            setattr(self, name, value)

    def _get_fitted(self) -> Fitted:
        """Return the result of the last fit. A loaded selector has it in its attributes."""
        check_is_fitted(self)
        if not hasattr(self, "_fitted"):
            self._fitted = Fitted.from_attributes(self)
        return self._fitted

    @cached_property
    def rules_(self) -> list[str]:
        """The effect of each panel rule, and how much better the fit would be without it.

        The effects are computed when this attribute is first read. For each rule, a search
        among the features that the fit has examined is needed.
        """
        return self._get_fitted().findings.sentences()

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        # a selector that was loaded has them already
        if hasattr(self, "_fitted"):
            # what it is found from does not travel with the selector
            state["rules_"] = self.rules_
        return state

    def _predictor(self) -> ClassPredictor:
        """Return the prediction model, which is made once per fit."""
        return self._get_fitted().prediction_model

    @property
    def bias_(self) -> float:
        """The amount by which scores of seen classes are lowered when unseen classes compete.

        The bias is computed when it is first needed. Each third of the seen classes in turn is
        treated as unseen. The value with the largest harmonic mean of the accuracies on seen
        and unseen classes is used.
        """
        return self._get_fitted().calibrated_model.bias

    def candidate_classes(self, class_table: AttributesLike | None) -> AttributeTable:
        """Return the classes among which predictions decide, with their descriptions."""
        seen = self.class_table_
        known = self._known_classes()
        if class_table is not None:
            given = AttributeTable.from_any(class_table)
            # indicators of seen classes cannot describe another class
            if _are_labels(seen) and set(given.names) != set(seen.names):
                message = (
                    "needs a selector that was fitted to attributes, but "
                    "this selector was fitted only to labels."
                )
                raise ParameterError("class_table", message)
            given = given.columns_of(seen, "class_table")
            warn_of_other_scale(known, given)
            return given
        return known

    def _known_classes(self) -> AttributeTable:
        """Return all classes known to the fit, which are the seen and the described ones."""
        seen = self.class_table_
        unseen = self.new_table_
        # without descriptions of unseen classes, predictions are of seen ones
        if unseen is None:
            return seen
        labels = label_array([*seen.classes.tolist(), *unseen.classes.tolist()])
        values = np.vstack([seen.values, unseen.values])
        return AttributeTable(values, labels, seen.names)

    # ---- predictions -----------------------------------------------------------------

    def predict_attributes(self, X: DataLike) -> Float64:
        """Predict the attributes of samples.

        The prediction uses a separate ridge regression on the selected features, in which every
        class has the same weight. The result has shape (n, m), with the attributes in the order
        of the given table.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        """
        check_is_fitted(self)
        attributes = self._predictor().attributes
        if is_dask(X):
            return map_lazily(self, X, attributes)
        every = np.ones(self._get_fitted().n_selected, dtype=bool)
        blocks = self._watched(selected_columns(self, X, "predict_attributes"), every)
        return _concatenated(map(attributes, blocks), X)

    def predict(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
        unknown: Label | None = None,
        unknown_rate: float = 0.05,
    ) -> LabelArray:
        """Return the most likely class of each sample, which may be seen or only described.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples. In AnnData and files, features are found by name, and only the selected
            features are needed. Data frames must have the features of `fit` in the same order,
            as scikit-learn requires, unless ``missing_features="ignore"``. Missing values in
            features that are not selected do not matter. Files and AnnData are preprocessed in
            the same way as the training data (see ``preprocessing_``). Arrays and opened
            sources are used unchanged.
        class_table : like `attributes`, optional
            Descriptions of the classes to decide among. By default, these are all seen and
            unseen classes of the fitted table.
        missing_features : {"error", "ignore"}, default="error"
            What to do if X lacks selected features. "error" raises an error. "ignore" warns and
            predicts from the other features, which requires feature names.
        unknown : label, optional
            The label of samples that belong to none of the classes. By default, every sample
            gets its most likely class.
        unknown_rate : float, default=0.05
            The share of samples of *seen* classes that are wrongly labeled as unknown. It is
            used only if ``unknown`` is given, and applies to samples that resemble the training
            samples. If there are few training samples per class, the selected features and the
            covariance fit them better than other samples, so that a larger share of other
            samples is labeled as unknown.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, as in `fit`. For batches that were part of the training data,
            the offsets are removed. Samples of other batches are not corrected.
        """
        classifier, blocks = self._classifier(
            "predict", X, class_table, missing_features, batch, unknown, unknown_rate
        )
        # batches are given by row number, which a lazy chunk does not know
        if is_dask(X) and batch is None:
            if unknown is None:
                return map_lazily(self, X, classifier.labels)
            # chunks with and without unknown samples must be of one type
            return map_lazily(self, X, lambda Z: classifier.labels(Z).astype(object))
        return _concatenated(map(classifier.labels, blocks), X)

    def predict_together(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
        unknown: Label | None = None,
        unknown_rate: float = 0.05,
    ) -> LabelArray:
        """Return the most likely class of each sample, predicting all samples of X together.

        The predicted means of unseen classes are moved toward the samples of X. If X has many
        samples of each class, the result is more often correct than that of `predict`. The
        class of a sample then depends on the other samples, but not on their order. A trial on
        seen classes that are treated as unseen shows whether moving the means helps. If it does
        not, the result is the same as that of `predict`.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path, `open_blocks` or Dask of shape (n, d)
            Samples, as in `predict`. Of files, only the selected columns are kept. If they
            exceed 256 MB, they are stored in a temporary file.
        class_table : like `attributes`, optional
            Classes, as in `predict`.
        missing_features : {"error", "ignore"}, default="error"
            As in `predict`.
        unknown : label, optional
            As in `predict`.
        unknown_rate : float, default=0.05
            As in `predict`.
        batch : array-like of shape (n,) or str, optional
            As in `predict`.
        """
        classifier, blocks = self._classifier(
            "predict_together", X, class_table, missing_features, batch, unknown, unknown_rate
        )
        labels = [
            classifier.labels_of(largest_columns(probabilities, 1), scores)[:, 0]
            for probabilities, scores in classifier.probabilities(blocks, together=True)
        ]
        return _concatenated(labels, X)

    def predict_proba(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        together: bool = False,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
    ) -> Float64:
        """Return the probability of each class for each sample.

        The result has shape (n, n_classes). The temperature of the probabilities is chosen on
        folds in which seen classes are treated as unseen, so the probabilities are calibrated
        for samples that resemble the training samples. For other samples, such as those of
        another laboratory, they are less reliable. On some data sets, mostly with
        ``together=True``, the probabilities are too close to 0 and 1. The page "How much does
        each source of information help?" of the documentation shows calibration errors on six
        data sets.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`; columns are in the order of the table.
        together : bool, default=False
            Whether to predict all samples together, as in `predict_together`.
        missing_features : {"error", "ignore"}, default="error"
            As in `predict`.
        batch : array-like of shape (n,) or str, optional
            As in `predict`.
        """
        method = "predict_proba"
        classifier, blocks = self._classifier(method, X, class_table, missing_features, batch)
        found = classifier.probabilities(blocks, together=together)
        return _concatenated((probabilities for probabilities, _ in found), X)

    def predict_top(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        n: int = 2,
        *,
        rows: Mask | None = None,
        together: bool = False,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
        unknown: Label | None = None,
        unknown_rate: float = 0.05,
    ) -> tuple[LabelArray, Float64]:
        """Return the n most likely classes of each sample and their probabilities.

        Both results have shape (n_samples, n), with the most likely class first. If ``unknown``
        is given, it replaces the first class of samples that belong to none of the classes. The
        other classes and all probabilities stay the same.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n_samples, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`.
        n : int, default=2
            Number of classes to return. If there are fewer classes to decide among, all of them
            are returned.
        rows : array of bool of shape (n_samples,), optional
            Mask of the samples to predict. Samples outside the mask do not influence the result
            and are not part of it. By default, all samples are predicted.
        together : bool, default=False
            Whether to predict all samples together, as in `predict_together`.
        missing_features : {"error", "ignore"}, default="error"
            As in `predict`.
        unknown : label, optional
            As in `predict`.
        unknown_rate : float, default=0.05
            As in `predict`.
        batch : array-like of shape (n,) or str, optional
            As in `predict`.
        """
        check_integer("n", n, 1)
        classifier, blocks = self._classifier(
            "predict_top", X, class_table, missing_features, batch, unknown, unknown_rate
        )
        if rows is not None:
            blocks = only_rows(blocks, np.asarray(rows, dtype=bool))
        labels = []
        largest = []
        for probabilities, scores in classifier.probabilities(blocks, together=together):
            best = largest_columns(probabilities, n)
            labels.append(classifier.labels_of(best, scores))
            largest.append(np.take_along_axis(probabilities, best, axis=1))
        return _concatenated(labels, X), _concatenated(largest, X)

    def decision_function(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
    ) -> Float64:
        """Return the log-likelihood of each class for each sample, up to a constant.

        The result has shape (n, n_classes). If seen and unseen classes compete, ``bias_`` is
        subtracted from the values of seen classes.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`; columns are in the order of the table.
        missing_features : {"error", "ignore"}, default="error"
            As in `predict`.
        batch : array-like of shape (n,) or str, optional
            As in `predict`.
        """
        method = "decision_function"
        classifier, blocks = self._classifier(method, X, class_table, missing_features, batch)
        if is_dask(X) and batch is None:
            return map_lazily(self, X, classifier.scores)
        return _concatenated(map(classifier.scores, blocks), X)

    def _classifier(
        self,
        method: str,
        X: DataLike,
        class_table: AttributesLike | None,
        missing_features: str,
        batch: LabelsLike | str | None,
        unknown: Label | None = None,
        unknown_rate: float = 0.0,
    ) -> tuple[Classifier, Iterator[Float64]]:
        """Return what decides on the class, and the selected columns (r, k) of samples X.

        Arguments are those of the public ``method``. If X lacks selected features, both are
        about the others.
        """
        check_is_fitted(self)
        X, batches = batch_of(X, batch, "batch")
        table = self.candidate_classes(class_table)
        model = self._get_fitted().calibrated_model
        columns = present_columns(self, X, missing_features, method)
        if not columns.are_all:
            model = model.keep_features(columns.present)
        blocks = columns.blocks
        if batches is not None:
            known = Labels.of(getattr(self, "batches_", np.zeros(0))).classes
            offsets = np.asarray(to_numpy(getattr(self, "batch_offsets_", np.zeros((0, 0)))))
            blocks = columns.without_offsets(Labels.of(batches), known, offsets)
        blocks = self._watched(blocks, columns.present)
        return Classifier(model, table).with_unknown(unknown, unknown_rate), blocks

    def _watched(self, blocks: Iterator[Float64], present: Mask) -> Iterator[Float64]:
        """Yield blocks (r, j) of the selected features in a mask (k,); warn of other units."""
        return self._scale_watch(present).watch(blocks)

    def _scale_watch(self, present: Mask) -> ScaleWatch:
        """Return what compares selected features, in a mask (k,), with those of the fit."""
        fitted = self._get_fitted()
        names = getattr(self, "feature_names_in_", None)
        shown = [feature_name(j, names) for j in fitted.selected[present].tolist()]
        within = np.sqrt(np.maximum(fitted.within.diagonal(), 0.0))
        return ScaleWatch(fitted.class_means[:, present], within[present], shown)


def _are_labels(table: AttributeTable) -> bool:
    """Return whether the attributes are the labels themselves, one indicator per class."""
    names = [str(label) for label in table.classes.tolist()]
    if [str(name) for name in table.names] != names:
        return False
    return np.array_equal(table.values, np.eye(len(names)))


def _concatenated(blocks: Iterable[Any], X: DataLike) -> Any:
    """Concatenate results of blocks of rows to one array, of the library and device of X."""
    return like(np.concatenate(list(blocks)), X)
