"""`LinearSelector`: parameters that SemFS and SemFSCV share, predictions and explanations."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from semfs._typing import (
    ArrayLike,
    AttributesLike,
    DataLike,
    FeaturesLike,
    Float64,
    Label,
    LabelsLike,
    Mask,
    Matrix,
)
from semfs.attributes import AttributeTable, as_attribute_table
from semfs.labels import LabelArray, Labels, label_array, object_array
from semfs.method.batches import uncorrected_rows
from semfs.method.moments import Moments
from semfs.method.objective import RELATIVE_SCALES, SAFE_RELATIVE_PENALTY
from semfs.rows import device, in_memory
from semfs.rows.cluster import is_dask, lazy_rows
from semfs.rows.device import floating_dtypes, like, to_numpy
from semfs.selectors.calibration import CalibratedPredictor
from semfs.selectors.fitted import Fitted
from semfs.selectors.inputs import (
    FitInput,
    batch_of,
    present_features,
    selected_blocks,
    training_matrix,
)
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.ranking import RankingSelector
from semfs.system import import_optional
from semfs.validation import (
    AtLeast,
    FeatureCount,
    FiniteNumber,
    OneOf,
    OrNone,
    ParameterError,
    ShareUpToOne,
    WholeNumber,
    check_all_finite,
    check_integer,
    check_number,
    check_option,
    listed,
)

if TYPE_CHECKING:
    import pandas as pd

    from semfs.selectors.explanation import Explanation

#: Features that a budget buys, for plans before costs are known.
N_BOUGHT = 64
#: Bytes of training data that are remembered, by reference, for `explain` without arguments.
REMEMBERED_BYTES = 256 * 2**20


@dataclass(eq=False, repr=False)
class LinearSelector(RankingSelector):
    """A ranking with a linear model of class attributes: parameters of SemFS and SemFSCV."""

    n_features_to_select: Any = 50
    attributes: AttributesLike | None = None
    _: KW_ONLY
    alpha: float = 1.0
    gamma: float = 2.0
    penalty_scale: str = "weighted"
    fit_intercept: bool = True
    class_weight: Any = "balanced"
    label_weight: float = 1.0
    max_correlation: float | None = 0.95
    target_attributes: Any = "table"
    n_new_classes: int | str = "auto"
    include: FeaturesLike | None = None
    exclude: FeaturesLike | None = None
    missing_values: str = "error"
    candidates: FeaturesLike | None = None
    min_per_class: int = 0
    groups: Any = None
    costs: Any = None
    budget: float | None = None
    min_level: float | None = None
    max_level: float | None = None
    capacity: Any = None
    verbose: int = 0

    _constraints = {
        "alpha": AtLeast(0),
        "gamma": AtLeast(0),
        "penalty_scale": OneOf("weighted", "gram", "none"),
        "label_weight": AtLeast(0),
        "missing_values": OneOf("error", "class-mean"),
        "max_correlation": OrNone(ShareUpToOne()),
        "n_new_classes": OneOf("auto", "table") | WholeNumber(2),
        "n_features_to_select": FeatureCount(none=True),
        "min_per_class": WholeNumber(0),
        "budget": AtLeast(0),
        "min_level": FiniteNumber(),
        "max_level": FiniteNumber(),
    }
    _supervised = True
    _takes_sparse = True

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self.missing_values != "error"
        tags.classifier_tags = ClassifierTags()  # of `predict_proba`
        return tags

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
    def coverage_(self) -> pd.Series:
        """Number of selected features that mark each class (see ``marks_``); needs pandas."""
        pandas = import_optional("pandas", "data", what="coverage_")
        check_is_fitted(self)
        counts = np.asarray(to_numpy(self.marks_)).sum(axis=1)
        classes = self.class_table_.classes.tolist()
        # marks of described unseen classes are rows after those of the seen ones
        if len(counts) > len(classes) and self.new_table_ is not None:
            classes += self.new_table_.classes.tolist()
        index = pandas.Index(classes, name="class")
        return pandas.Series(counts, index=index, name="markers")

    @property
    def attribute_names_in_(self) -> LabelArray:
        """Names (m,) of the attributes of the table given."""
        return self.class_table_.names

    def _sum_options(self, n_features: int) -> dict[str, Any]:
        """What sums over samples beyond memory must know of the fit."""
        # "alternating" needs the whole d × d matrix
        direct = getattr(self, "solver", "direct") == "direct"
        relative = self.penalty_scale in RELATIVE_SCALES
        return {
            "n_select": self._n_columns(n_features) if direct else None,
            # a small penalty does not hide the rounding errors of float32 products
            "precise": not relative or self.gamma < SAFE_RELATIVE_PENALTY,
            "verbose": self.verbose,
        }

    def _n_columns(self, n_features: int) -> int:
        """About how many Gram columns will be needed, for plans of passes over the data."""
        # a budget decides during the fit; a wrong guess costs passes, not correctness
        if self.n_features_to_select is None:
            return min(N_BOUGHT, n_features)
        return self._n_wanted(n_features)

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
            Samples. Features are found by name where they have names, and only the selected
            ones are needed. Paths and AnnData are preprocessed as the data of `fit` were
            (see ``preprocessing_``); arrays and opened sources are taken as they are.
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
        model, table, blocks = self._to_predict(
            X, class_table, missing_features, "predict", batch
        )
        lowest = self._lowest_score(model, table, unknown, unknown_rate)

        def best_class(Z: Float64) -> LabelArray:
            scores = model.scores(Z, table)
            found = table.classes[scores.argmax(axis=1)]
            return _with_unknown(found, scores.max(axis=1) < lowest, unknown)

        # batches are given by row number, which a lazy chunk does not know
        if is_dask(X) and batch is None:
            return self._map_lazily(X, best_class)
        return _concatenated(map(best_class, blocks), X)

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
        model, table, blocks = self._to_predict(X, class_table, missing_features, method, batch)
        lowest = self._lowest_score(model, table, unknown, unknown_rate)
        found = []
        for P, scores in model.predictions(blocks, table, together=True):
            classes = table.classes[P.argmax(axis=1)]
            found.append(_with_unknown(classes, scores.max(axis=1) < lowest, unknown))
        return _concatenated(found, X)

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
        method = "predict_proba"
        model, table, blocks = self._to_predict(X, class_table, missing_features, method, batch)
        parts = model.predictions(blocks, table, together=together)
        return _concatenated((P for P, _ in parts), X)

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
        method = "predict_top"
        model, table, blocks = self._to_predict(X, class_table, missing_features, method, batch)
        lowest = self._lowest_score(model, table, unknown, unknown_rate)
        labels = []
        shares = []
        for P, scores in model.predictions(blocks, table, together=together):
            # stable: of equally likely classes the first is named, as by argmax
            best = np.argsort(-P, axis=1, kind="stable")[:, :n]
            found = table.classes[best]
            refused = np.zeros(found.shape, dtype=bool)
            refused[:, 0] = scores.max(axis=1) < lowest
            labels.append(_with_unknown(found, refused, unknown))
            shares.append(np.take_along_axis(P, best, axis=1))
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
        model, table, blocks = self._to_predict(X, class_table, missing_features, method, batch)
        if is_dask(X) and batch is None:
            return self._map_lazily(X, lambda Z: model.scores(Z, table))
        return _concatenated((model.scores(Z, table) for Z in blocks), X)

    @property
    def bias_(self) -> float:
        """What a seen class is handicapped by where unseen classes compete.

        It is chosen when first needed: a third of the seen classes plays unseen, and the bias
        of the largest harmonic mean of accuracies on seen and unseen classes is taken.
        """
        return self._get_fitted().calibrated_model.bias

    def _to_predict(
        self,
        X: DataLike,
        class_table: AttributesLike | None,
        missing_features: str,
        method: str,
        batch: LabelsLike | str | None = None,
    ) -> tuple[CalibratedPredictor, AttributeTable, Iterator[Float64]]:
        """The model, the classes to decide among, and blocks (r, k) of the samples."""
        check_is_fitted(self)
        check_option("missing_features", missing_features, ("error", "ignore"))
        X, batches = batch_of(X, batch, "batch")
        model, table, blocks, present = self._known_features(
            X, class_table, missing_features, method
        )
        if batches is not None:
            blocks = self._without_offsets(blocks, Labels.of(batches), present)
        return model, table, blocks

    def _known_features(
        self,
        X: DataLike,
        class_table: AttributesLike | None,
        missing_features: str,
        method: str,
    ) -> tuple[CalibratedPredictor, AttributeTable, Iterator[Float64], Mask | slice]:
        """The same, and which of the selected features (k,) the blocks have."""
        table = self.candidate_classes(class_table)
        model = self._get_fitted().calibrated_model
        if missing_features == "error":
            return model, table, self._selected(X, method), slice(None)
        names = getattr(self, "feature_names_in_", None)
        support = self._get_support_mask()
        found = present_features(X, support, names, self._preprocessing())
        if found is None:  # X has no names: all features must be there
            return model, table, self._selected(X, method), slice(None)
        X, present = found
        if present.all():
            return model, table, self._selected(X, method), slice(None)
        assert names is not None
        self._warn_of_missing(names[support], present)
        # `present` (k,) counts selected features, `kept` (d,) all of them
        kept = support.copy()
        kept[np.flatnonzero(support)[~present]] = False
        blocks = self._named_blocks(X, kept)
        return model.keep_features(present), table, blocks, present

    def _warn_of_missing(self, names: LabelArray, present: Mask) -> None:
        """Name the selected features that X lacks."""
        missing = [str(name) for name in names[~present]]
        if not present.any():
            message = f"has none of the {len(missing)} selected features."
            raise ParameterError("X", message)
        warnings.warn(
            f"X lacks {len(missing)} of {len(names)} selected features, "
            f"which are left out of the decision: {listed(missing)}.",
            stacklevel=4,
        )

    def _named_blocks(self, X: DataLike, kept: Mask) -> Iterator[Float64]:
        """Yield columns (r, j) of X, found by name."""
        names = self.feature_names_in_
        blocks = selected_blocks(X, kept, names, self._preprocessing())
        if blocks is None:
            # only frames in memory have names and are not read in blocks
            frame: Any = X
            columns = [str(name) for name in names[kept]]
            blocks = iter([frame[columns].to_numpy()])
        return self._finite_blocks(blocks, names[kept])

    def _lowest_score(
        self,
        model: CalibratedPredictor,
        table: AttributeTable,
        unknown: Label | None,
        unknown_rate: float,
    ) -> float:
        """The score below which the best class of a sample is none."""
        # no score is lower than -inf, so that every sample gets a class
        if unknown is None:
            return -np.inf
        check_number("unknown_rate", unknown_rate, at_least=0)
        if unknown_rate > 1:
            message = f"is a share, at most 1, got {unknown_rate}."
            raise ParameterError("unknown_rate", message)
        # otherwise nobody could tell refused samples from those of the class
        if unknown in table.classes.tolist():
            message = f"is {unknown!r}, which is one of the classes."
            raise ParameterError("unknown", message)
        return model.lowest_score(table, unknown_rate)

    def _map_selected(
        self, X: DataLike, function: Callable[[Float64], Any], method: str
    ) -> Any:
        """A function of the selected columns (n, k) of X, block by block."""
        if is_dask(X):
            return self._map_lazily(X, function)
        return _concatenated(map(function, self._selected(X, method)), X)

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

    def _without_offsets(
        self,
        blocks: Iterator[Float64],
        batches: Labels,
        present: Mask | slice = slice(None),
    ) -> Iterator[Float64]:
        """Yield blocks (r, k) minus the offsets of their samples' batches, where known.

        ``present`` are the selected features that the blocks have.
        """
        known = Labels.of(getattr(self, "batches_", np.zeros(0))).classes
        fitted = np.zeros((0, 0))
        if known:
            fitted = np.asarray(to_numpy(self.batch_offsets_))[:, present]
        place = {batch: b for b, batch in enumerate(known)}
        n_done = 0
        for Z in blocks:
            rows = slice(n_done, n_done + len(Z))
            n_done = rows.stop
            # the last row stays 0: the code -1 of samples without a batch finds it
            offsets = np.zeros((len(batches.classes) + 1, Z.shape[1]))
            for b, batch in enumerate(batches.classes):
                if batch in place:
                    offsets[b] = fitted[place[batch]]
            codes = batches.codes[rows]
            # X is read in blocks, so that its length is known only at the end
            if len(codes) < len(Z):
                raise ValueError(
                    f"X has {n_done} samples or more, but batch has {len(batches)} values."
                )
            yield Z - offsets[codes]
        if n_done != len(batches):
            raise ValueError(f"X has {n_done} samples but batch has {len(batches)} values.")

    def _selected(self, X: DataLike, method: str) -> Iterator[Float64]:
        """Yield the selected columns (r, k) of X in float64, all rows at once in memory."""
        names = getattr(self, "feature_names_in_", None)
        support = self._get_support_mask()
        blocks = selected_blocks(X, support, names, self._preprocessing())
        if blocks is None:
            yield _dense(self._selected_in_memory(X, method))
            return
        selected_names = None if names is None else names[support]
        yield from self._finite_blocks(blocks, selected_names)

    def _finite_blocks(
        self, blocks: Iterator[Matrix], names: LabelArray | None
    ) -> Iterator[Float64]:
        """Yield blocks (r, k) in float64; NaN and infinity are refused, with the name."""
        for block in blocks:
            Z = _dense(block)
            # check_all_finite looks for the place, and raises in any case
            if not np.isfinite(Z).all():
                check_all_finite(Z, None if names is None else names.tolist())
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
                f"explain needs rows of the {len(fitted)} classes that were fitted, "
                f"from {fitted[0]!r} to {fitted[-1]!r}; "
                f"found {len(found)}, from {found[0]!r} to {found[-1]!r}."
            )


def _are_labels(table: AttributeTable) -> bool:
    """Whether the attributes are the labels themselves, an indicator of each class."""
    names = [str(label) for label in table.classes.tolist()]
    if [str(name) for name in table.names] != names:
        return False
    return np.array_equal(table.values, np.eye(len(names)))


def _dense(Z: Matrix) -> Float64:
    dense: Any = Z
    if sp.issparse(dense):
        dense = dense.toarray()
    return np.asarray(dense, dtype=np.float64)


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
