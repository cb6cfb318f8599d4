"""`FitInput`: the input of `fit`, converted to one form.

`FitInput.from_user` turns everything that `classify` recognizes into row sources with encoded
labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs._typing import ArrayLike, AttributesLike, DataLike, Label, LabelsLike
from semfs.attributes import AttributeTable
from semfs.labels import UNLABELED, LabelArray, count_missing_labels
from semfs.method.batches import pair_labels, remove_batches
from semfs.method.moments import Moments
from semfs.rows import (
    OutOfCoreRows,
    Preprocessing,
    beyond_memory,
    in_memory,
    is_foreign,
    open_blocks,
)
from semfs.rows.blocks import check_classes
from semfs.rows.device import to_numpy
from semfs.rows.opening import table_columns
from semfs.selectors.inputs.batches import batch_of, with_batches, with_unlabeled_batches
from semfs.selectors.inputs.features import check_features
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.inputs.labeled import NEED_NUMPY, InMemory, Samples, split_by_label
from semfs.selectors.inputs.matrix import training_matrix, without_text_columns
from semfs.selectors.inputs.missing import filled_unlabeled, fills_gaps, without_gaps
from semfs.selectors.inputs.nonfinite import has_nonfinite, place_of_nan
from semfs.selectors.inputs.number_range import check_range, range_checked_moments
from semfs.selectors.inputs.source import open_labeled, preprocessing_of, with_marks
from semfs.selectors.inputs.training_data import TrainingData
from semfs.selectors.inputs.unlabeled import join_unlabeled, unlabeled_source
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows, UnlabeledStream
from semfs.validation import ParameterError, ParameterWarning, check_all_finite, warn_user

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator

_BOTH_BATCHES = (
    "batch and batch_unlabeled must be given together, because the "
    "unlabeled samples are corrected by the means of their batches. If "
    "all of them are from one batch, pass the same value for all."
)
_TWO_KINDS = (
    "some samples of X have no label, but X_unlabeled is also given. "
    "With data larger than memory, only one of the two can be used. Put "
    "all unlabeled samples into either X or X_unlabeled."
)
_NEED_MEMORY = (
    ': "class-mean" needs samples that fit into memory. For larger files, fill the gaps first.'
)
_NEED_FEATURES = (
    "lacks features of X, which is not supported if X is larger than "
    "memory. Use the same features in both."
)


@dataclass(frozen=True, eq=False)
class FitInput:
    """The input of `fit`, with encoded labels."""

    rows: InMemory | OutOfCoreRows  # labeled samples; beyond memory also unlabeled ones
    classes: LabelArray | None  # sorted labels of samples in memory
    n_features: int
    feature_names: Sequence[str] | None
    unlabeled: UnlabeledRows | OutOfCoreRows | None  # unlabeled samples beside the rows
    described: Sequence[Label]  # classes of the attribute table
    preprocessing: Preprocessing
    original: Any = None  # X before it was validated, whose rows and columns errors name
    batched: bool = False  # whether labels of the rows are pairs (class, batch)
    n_samples: int = 0  # samples of X, where some of them have no label
    n_missing_labels: int = 0  # those whose label is missing, rather than -1

    @classmethod
    def from_user(
        cls,
        estimator: BaseEstimator,
        X: DataLike,
        y: LabelsLike | str | None,
        sample_weight: ArrayLike | None = None,
        X_unlabeled: DataLike = None,
        *,
        batch: LabelsLike | str | None = None,
        batch_unlabeled: LabelsLike | str | None = None,
        reset: bool = True,
    ) -> FitInput:
        """Return the input of a fit, validated.

        This sets the number and names of the features of the estimator. With ``reset=False``,
        they must be the same as before.
        """
        described = described_classes(getattr(estimator, "attributes", None))
        X_unlabeled, unlabeled_batches = batch_of(
            X_unlabeled, batch_unlabeled, "batch_unlabeled"
        )
        kind = classify(X, y)
        _check_both_have_batches(X, batch, X_unlabeled, batch_unlabeled)
        X, batches = batch_of(X, batch, "batch")
        n_samples = n_missing = 0
        if kind is Kind.MATRIX:
            samples = Samples.from_matrix(X, y, sample_weight, batches, described)
            assert samples.labels is not None
            if samples.labels.n_unlabeled:
                n_samples = len(samples.labels)
                n_missing = count_missing_labels(to_numpy(y))
        else:
            gaps = fills_gaps(estimator)
            drop = table_columns(X, batch) if kind is Kind.STORED else []
            opened = open_labeled(kind, X, y, sample_weight, drop, gaps)
            # who opened a source has read there what missing labels mean
            if kind is not Kind.SOURCE and opened.labels is not None:
                n_samples = len(opened.labels)
                n_missing = opened.labels.n_unlabeled
            source = with_marks(with_batches(opened, batches), described)
            if gaps and not source.fits_in_memory:
                raise ParameterError("missing_values", _NEED_MEMORY)
            if not source.fits_in_memory:
                found = cls._beyond_memory(
                    estimator, source, X_unlabeled, unlabeled_batches, described, reset
                )
                return replace(found, n_samples=n_samples, n_missing_labels=n_missing)
            # small files are loaded: passes over memory take less time
            samples = Samples.load(source)
        found = cls._of_samples(
            estimator,
            samples,
            X_unlabeled,
            unlabeled_batches,
            described,
            reset,
        )
        return replace(found, n_samples=n_samples, n_missing_labels=n_missing)

    def warn_of_missing_labels(self) -> None:
        """Warn that samples with a missing label are treated as unlabeled.

        The label may be missing by mistake. There is no warning for labels of -1 and
        ``X_unlabeled``, which are intended.
        """
        if not self.n_missing_labels:
            return
        message = (
            f"has no label (None or NaN) for {self.n_missing_labels} of "
            f"{self.n_samples} samples. They are treated as unlabeled "
            "samples of unseen classes, and features are also selected "
            "to separate these. If the labels are missing by accident, "
            "drop these samples. If it is intended, label them -1, or "
            "pass them as X_unlabeled."
        )
        warn_user(ParameterWarning("y", message))

    @classmethod
    def _of_samples(
        cls,
        estimator: BaseEstimator,
        samples: Samples,
        X_unlabeled: DataLike,
        batch_unlabeled: Any,
        described: Sequence[Label],
        reset: bool,
    ) -> FitInput:
        """Return the input of a fit in memory."""
        assert samples.labels is not None
        original = without_text_columns(samples.X, warn=reset)
        X = training_matrix(estimator, original, samples.names, reset=reset)
        # validation may have dropped columns; errors count those of the user
        with place_of_nan(original, samples.names):
            rows, unlabeled_of_X, classes = split_by_label(
                X,
                samples.labels,
                samples.weights,
                samples.batches,
            )
            if fills_gaps(estimator):
                names = getattr(estimator, "feature_names_in_", None)
                rows, unlabeled_of_X = without_gaps(rows, unlabeled_of_X, classes, names)
            if unlabeled_of_X is not None and has_nonfinite(unlabeled_of_X.X):
                check_all_finite(unlabeled_of_X.X)
        further = unlabeled_source(estimator, X_unlabeled, samples.preprocessing)
        further = with_unlabeled_batches(further, batch_unlabeled, samples.batches)
        unlabeled: UnlabeledRows | OutOfCoreRows | None
        if beyond_memory(further):
            if unlabeled_of_X is not None:
                raise ValueError(_TWO_KINDS)
            unlabeled = further
        else:
            # clusters are found by scikit-learn, in numpy
            if is_foreign(X) and further is not None:
                raise ValueError(NEED_NUMPY)
            if fills_gaps(estimator) and in_memory(rows):
                further = filled_unlabeled(further, rows)
            unlabeled = join_unlabeled(unlabeled_of_X, further)
        return cls(
            rows=rows,
            classes=classes,
            n_features=X.shape[1],
            feature_names=getattr(estimator, "feature_names_in_", None),
            unlabeled=unlabeled,
            described=described,
            preprocessing=samples.preprocessing,
            original=original,
            batched=samples.batches is not None,
        )

    @classmethod
    def _beyond_memory(
        cls,
        estimator: BaseEstimator,
        source: OutOfCoreRows,
        X_unlabeled: DataLike,
        batch_unlabeled: Any,
        described: Sequence[Label],
        reset: bool,
    ) -> FitInput:
        """Return the input of a fit to a source that is read in blocks."""
        check_features(estimator, source, reset=reset)
        further = unlabeled_source(estimator, X_unlabeled, preprocessing_of(source))
        if isinstance(further, UnlabeledRows):
            if further.present is not None:
                raise ParameterError("X_unlabeled", _NEED_FEATURES)
            further = open_blocks(further.X, np.full(further.n_rows, np.nan))
        further = with_unlabeled_batches(further, batch_unlabeled, source.batches)
        batched = source.batches is not None
        if source.batches is not None:
            assert source.labels is not None
            # class labels are checked now, because pairs of them could be anything
            check_classes(source.labels)
            source = source.with_labels(pair_labels(source.labels, source.batches))
        return cls(
            source,
            None,
            source.n_features,
            source.feature_names,
            further,
            described,
            preprocessing_of(source),
            batched=batched,
        )

    def summed(self, options: dict[str, Any]) -> TrainingData:
        """Return the sums that a fit needs. ``options`` apply to sums beyond memory.

        With batches, the sums are over pairs (class, batch); see `TrainingData.corrected`.
        """
        source = self.rows
        if not beyond_memory(source):
            moments = self._memory_moments
            unlabeled: UnlabeledRows | UnlabeledStream | None
            if beyond_memory(self.unlabeled):
                unlabeled = UnlabeledStream(self.unlabeled.in_use(), None, options)
            else:
                unlabeled = self.unlabeled
            return TrainingData(
                moments,
                unlabeled,
                source.X,
                self.preprocessing,
                batched=self.batched,
            )
        # the pass over the data that every fit needs
        sums, reread = source.sums(**options)
        if UNLABELED in sums.classes and UNLABELED not in self.described:
            # the blocks brought their labels along, and some are marks
            source = with_marks(source.labels_known(), self.described)
            sums, reread = source.sums(**options)
        moments = Moments.from_sums(sums, reread)
        check_range(moments)
        return TrainingData(
            moments,
            self._stream(source, sums.n_unlabeled > 0, options),
            None,
            self.preprocessing,
            source,
            self.batched,
        )

    def sample(self, n: int) -> Moments:
        """Return moments of labeled samples in memory: all, or n at random beyond memory.

        Offsets of batches are removed.
        """
        moments = self._sampled_moments(n)
        return remove_batches(moments) if self.batched else moments

    def _sampled_moments(self, n: int) -> Moments:
        """Return the same before the offsets of batches are removed."""
        if not beyond_memory(self.rows):
            return self._memory_moments
        # a search tries many settings, each of which would read the file
        X, found = self.rows.in_use().sample(n, labeled=True)
        labels = found.checked()
        codes = labels.codes.astype(np.intp)
        return range_checked_moments(X, codes, labels.class_array(), None)

    @cached_property
    def _memory_moments(self) -> Moments:
        """Return moments of the labeled samples, summed up once for all fits to this input."""
        rows = self.rows
        assert self.classes is not None
        assert not beyond_memory(rows)
        with place_of_nan(self.original, self.feature_names):
            return range_checked_moments(
                rows.X,
                rows.codes,
                self.classes,
                rows.weights,
            )

    def _stream(
        self, source: OutOfCoreRows, has_unlabeled: bool, options: dict[str, Any]
    ) -> UnlabeledStream | None:
        """Return the unlabeled samples of a fit beyond memory, from X or from X_unlabeled."""
        further = self.unlabeled
        if has_unlabeled and further is not None:
            raise ValueError(_TWO_KINDS)
        if further is None and not has_unlabeled:
            return None
        rows = source
        if beyond_memory(further):
            rows = further
        return UnlabeledStream(rows.in_use(), source.in_use(), options)


def _check_both_have_batches(
    X: DataLike, batch: Any, X_unlabeled: DataLike, batch_unlabeled: Any
) -> None:
    """Raise if only one of X and X_unlabeled has batches."""
    if X_unlabeled is None:
        return
    has_batches = batch is not None
    if beyond_memory(X):
        has_batches |= X.batches is not None
    if has_batches != (batch_unlabeled is not None):
        raise ValueError(_BOTH_BATCHES)


def described_classes(attributes: AttributesLike | None) -> Sequence[Label]:
    """Return the labels of the rows of an attribute table; for an array these are 0, 1, …"""
    # row r of an array describes label r, so that -1 cannot be described
    if attributes is None or isinstance(attributes, (np.ndarray, list, tuple)):
        return ()
    return AttributeTable.from_any(attributes).classes.tolist()
