"""`NamingSelector`: which class a sample belongs to, seen or only described.

The public methods ask one question in several forms. `_Question` holds what they share: the
samples, the classes to decide among, and the model that decides.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from semfs._typing import (
    AttributesLike,
    DataLike,
    Float64,
    Indices,
    Label,
    LabelsLike,
    Mask,
    Matrix,
)
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import LabelArray, Labels, label_array, object_array
from semfs.rows.cluster import is_dask
from semfs.rows.device import like, to_numpy
from semfs.selectors.calibrated import CalibratedPredictor
from semfs.selectors.fitted import Fitted
from semfs.selectors.inputs.batches import batch_of
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.ranking import RankingSelector
from semfs.selectors.selected_columns import map_lazily, present_columns, selected_columns
from semfs.validation import ParameterError, check_integer, check_number


@dataclass(frozen=True, eq=False)
class _Question:
    """Which of some classes do samples belong to?"""

    model: CalibratedPredictor
    table: AttributeTable  # the classes
    blocks: Iterator[Float64]  # (r, k) each
    unknown: Label | None = None  # the label of samples that are refused
    lowest_score: float = -np.inf  # of the best class of samples that are not refused

    def with_unknown(self, unknown: Label | None, rate: float) -> _Question:
        """Return the question that samples of no class may be refused at."""
        if unknown is None:
            return self
        check_number("unknown_rate", rate, at_least=0)
        if rate > 1:
            raise ParameterError("unknown_rate", f"is a share, at most 1, got {rate}.")
        # otherwise nobody could tell refused samples from those of the class
        if unknown in self.table.classes.tolist():
            raise ParameterError("unknown", f"is {unknown!r}, which is one of the classes.")
        lowest = self.model.certainty.lowest_score(self.table, rate)
        return replace(self, unknown=unknown, lowest_score=lowest)

    def without_samples(self) -> _Question:
        """Return the question of classes alone, which can be sent to Dask workers."""
        return replace(self, blocks=iter(()))

    def scores(self, Z: Float64) -> Float64:
        """Return scores (r, U) of the classes for samples (r, k), each alone."""
        return self.model.scores(Z, self.table)

    def best_class(self, Z: Float64) -> LabelArray:
        """Return the class (r,) of samples (r, k), each alone."""
        scores = self.scores(Z)
        return self.names(scores, scores, 1)[:, 0]

    def predictions(self, together: bool) -> Iterator[tuple[Float64, Float64]]:
        """Yield probabilities and scores (r, U) of each block."""
        return self.model.predictions(self.blocks, self.table, together=together)

    def names(self, values: Float64, scores: Float64, n: int) -> LabelArray:
        """Return the n classes (r, n) of largest values (r, U), best first, or ``unknown``."""
        found = self.table.classes[_largest(values, n)]
        refused = np.zeros(found.shape, dtype=bool)
        refused[:, 0] = scores.max(axis=1) < self.lowest_score
        return _with_unknown(found, refused, self.unknown)


class NamingSelector(RankingSelector):
    """A selector that knows the classes of its features: predictions and probabilities."""

    # ---- what a fit learned ----------------------------------------------------------

    def _set_fitted(self, fitted: Fitted, X: Matrix | None = None) -> None:
        """Set all fitted attributes, as arrays of the library and device of X."""
        self._fitted = fitted
        for name, value in fitted.attributes().items():
            is_array = isinstance(value, np.ndarray)
            # scikit-learn's rule for array API input: arrays come back in kind
            if is_array and X is not None:
                value = like(value, X)
            setattr(self, name, value)

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
    def bias_(self) -> float:
        """What a seen class is handicapped by where unseen classes compete.

        It is chosen when first needed: a third of the seen classes plays unseen, and the bias
        of the largest harmonic mean of accuracies on seen and unseen classes is taken.
        """
        return self._get_fitted().calibrated_model.bias

    def candidate_classes(self, class_table: AttributesLike | None) -> AttributeTable:
        """Return the classes that predictions decide among, with their descriptions."""
        seen = self.class_table_
        unseen = self.new_table_
        if class_table is not None:
            given = as_attribute_table(class_table)
            # indicators of seen classes cannot describe another class
            if _are_labels(seen) and set(given.names) != set(seen.names):
                message = (
                    "needs a selector that was fitted to attributes: this one knows labels."
                )
                raise ParameterError("class_table", message)
            return given.columns_of(seen, "class_table")
        # without descriptions of unseen classes, predictions are of seen ones
        if unseen is None:
            return seen
        labels = label_array([*seen.classes.tolist(), *unseen.classes.tolist()])
        values = np.vstack([seen.values, unseen.values])
        return AttributeTable(values, labels, seen.names)

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
        attributes = self._predictor().attributes
        if is_dask(X):
            return map_lazily(self, X, attributes)
        blocks = selected_columns(self, X, "predict_attributes")
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
        """Return the likeliest class of each sample, by descriptions where none were seen.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples. Features of AnnData and files are found by name, and only the selected
            ones are needed; data frames must have the features of `fit`, in their order,
            unless ``missing_features="ignore"``. Paths and AnnData are preprocessed as the
            data of `fit` were (see ``preprocessing_``); arrays and opened sources are taken
            as they are.
        class_table : like `attributes`, optional
            Classes to decide among; by default all of the fitted table, seen and unseen.
        missing_features : {"error", "ignore"}, default="error"
            What to do if X lacks selected features: raise, or decide by the others, with a
            warning that names them. Needs names.
        unknown : label, optional
            The label of samples that belong to none of the classes. By default every sample
            gets its likeliest class.
        unknown_rate : float, default=0.05
            The share of samples of *seen* classes that are called unknown by mistake.
        batch : array-like of shape (n,) or str, optional
            Batch of each sample, as in `fit`. Offsets of batches that were fitted are removed;
            samples of other batches are taken as they are.
        """
        question = self._question("predict", X, class_table, missing_features, batch)
        question = question.with_unknown(unknown, unknown_rate)
        # batches are given by row number, which a lazy chunk does not know
        if is_dask(X) and batch is None:
            question = question.without_samples()
            if unknown is None:
                return map_lazily(self, X, question.best_class)
            # chunks with and without refused samples must be of one type
            return map_lazily(self, X, lambda Z: question.best_class(Z).astype(object))
        return _concatenated(map(question.best_class, question.blocks), X)

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
        """Return the likeliest class of each sample; samples of X help each other.

        The predicted means of unseen classes move to where samples of X are: with many samples
        of each class this is more often right than `predict`. What a sample is called depends
        on the other samples, but not on their order. If it would not help on seen classes
        that play unseen, samples are predicted as by `predict`.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path, `open_blocks` or Dask of shape (n, d)
            Samples, as in `predict`. Of files only the selected columns are kept, beyond 256 MB
            in a temporary file.
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
        method = "predict_together"
        question = self._question(method, X, class_table, missing_features, batch)
        question = question.with_unknown(unknown, unknown_rate)
        parts = question.predictions(together=True)
        return _concatenated((question.names(P, scores, 1)[:, 0] for P, scores in parts), X)

    def predict_proba(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        together: bool = False,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
    ) -> Float64:
        """Return the probability (n, n_classes) of each class, one row per sample.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`; columns are in the order of the table.
        together : bool, default=False
            Whether samples help each other, as in `predict_together`.
        missing_features : {"error", "ignore"}, default="error"
            As in `predict`.
        batch : array-like of shape (n,) or str, optional
            As in `predict`.
        """
        question = self._question("predict_proba", X, class_table, missing_features, batch)
        return _concatenated((P for P, _ in question.predictions(together)), X)

    def predict_top(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        n: int = 2,
        *,
        together: bool = False,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
        unknown: Label | None = None,
        unknown_rate: float = 0.05,
    ) -> tuple[LabelArray, Float64]:
        """Return the n likeliest classes (n_samples, n), best first, and their probabilities.

        The first class of a sample that belongs to none of them is ``unknown``, if it is
        given; the others and all probabilities stay.

        Parameters
        ----------
        X : array-like, sparse matrix, AnnData, path or `open_blocks` of shape (n_samples, d)
            Samples, as in `predict`.
        class_table : like `attributes`, optional
            Classes, as in `predict`.
        n : int, default=2
            Number of classes; at most as many as there are.
        together : bool, default=False
            Whether samples help each other, as in `predict_together`.
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
        question = self._question("predict_top", X, class_table, missing_features, batch)
        question = question.with_unknown(unknown, unknown_rate)
        labels = []
        shares = []
        for P, scores in question.predictions(together):
            labels.append(question.names(P, scores, n))
            shares.append(np.take_along_axis(P, _largest(P, n), axis=1))
        return _concatenated(labels, X), _concatenated(shares, X)

    def decision_function(
        self,
        X: DataLike,
        class_table: AttributesLike | None = None,
        *,
        missing_features: str = "error",
        batch: LabelsLike | str | None = None,
    ) -> Float64:
        """Return log-likelihoods (n, n_classes) of each sample's classes, up to a constant.

        Where seen and unseen classes compete, ``bias_`` is subtracted from those of seen ones.

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
        question = self._question(method, X, class_table, missing_features, batch)
        if is_dask(X) and batch is None:
            return map_lazily(self, X, question.without_samples().scores)
        return _concatenated(map(question.scores, question.blocks), X)

    def _question(
        self,
        method: str,
        X: DataLike,
        class_table: AttributesLike | None,
        missing_features: str,
        batch: LabelsLike | str | None,
    ) -> _Question:
        """What a user asks, understood once."""
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
        return _Question(model, table, blocks)


def _are_labels(table: AttributeTable) -> bool:
    """Whether the attributes are the labels themselves, an indicator of each class."""
    names = [str(label) for label in table.classes.tolist()]
    if [str(name) for name in table.names] != names:
        return False
    return np.array_equal(table.values, np.eye(len(names)))


def _largest(values: Float64, n: int) -> Indices:
    """Columns (r, n) of the largest values of each row (r, U), of equal ones the first."""
    if n == 1:
        return values.argmax(axis=1)[:, None]
    return np.argsort(-values, axis=1, kind="stable")[:, :n]


def _with_unknown(
    labels: LabelArray,
    refused: Mask,
    unknown: Label | None,
) -> LabelArray:
    """Labels, of any shape, with ``unknown`` in place of those that are refused."""
    if unknown is None:
        return labels
    # as objects: text beside numbers, or longer text, would be converted or cut
    found = np.where(refused, object_array([unknown]), labels.astype(object))
    return label_array(found.ravel().tolist()).reshape(labels.shape)


def _concatenated(blocks: Iterable[Any], X: DataLike) -> Any:
    """Results of blocks of rows as one array, of the library and device of X."""
    return like(np.concatenate(list(blocks)), X)
