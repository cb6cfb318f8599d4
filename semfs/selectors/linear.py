"""`LinearSelector`: the parameters that SemFS and SemFSCV share, and explanations."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils import ClassifierTags, Tags
from sklearn.utils.validation import check_is_fitted

from semfs._typing import (
    ArrayLike,
    AttributesLike,
    DataLike,
    FeaturesLike,
    LabelsLike,
)
from semfs.constraints import (
    AtLeast,
    FeatureCount,
    FiniteNumber,
    OneOf,
    OrNone,
    ShareUpToOne,
    WholeNumber,
)
from semfs.labels import LabelArray
from semfs.method.batches import uncorrected_rows
from semfs.method.moments import Moments
from semfs.method.penalty import RELATIVE_SCALES, SAFE_RELATIVE_PENALTY
from semfs.rows import device, in_memory
from semfs.rows.device import floating_dtypes, to_numpy
from semfs.selectors.inputs.fit_input import FitInput
from semfs.selectors.predicting import PredictingSelector
from semfs.system import import_optional
from semfs.validation import LARGEST_TERM_WEIGHT, check_integer

if TYPE_CHECKING:
    import pandas as pd

    from semfs.selectors.explanation import Explanation

#: Features that a budget buys, for plans before costs are known.
N_BOUGHT = 64
#: Bytes of training data that are remembered, by reference, for `explain` without arguments.
REMEMBERED_BYTES = 256 * 2**20


@dataclass(eq=False, repr=False)
class LinearSelector(PredictingSelector):
    """Base class of selectors that rank features by a linear model of class attributes."""

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
        "alpha": AtLeast(0, LARGEST_TERM_WEIGHT),
        "gamma": AtLeast(0),
        "penalty_scale": OneOf("weighted", "gram", "none"),
        "label_weight": AtLeast(0, LARGEST_TERM_WEIGHT),
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

    @property
    def coverage_(self) -> pd.Series:
        """Number of selected features that mark each class (see ``marks_``)."""
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
        """Names of the attributes in the given table."""
        return self.class_table_.names

    def _sum_options(self, n_features: int) -> dict[str, Any]:
        """Return the options of the fit that sums over samples beyond memory depend on."""
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
        """Estimate how many Gram columns will be needed, to plan passes over the data."""
        # a budget decides during the fit; a wrong guess costs passes, not correctness
        if self.n_features_to_select is None:
            return min(N_BOUGHT, n_features)
        return self._n_wanted(n_features)

    def _remember(self, moments: Moments) -> None:
        """Keep references to the data that `explain` needs, unless they are too large."""
        rows = uncorrected_rows(moments)
        # samples are kept by reference; what counts is that they stay alive
        if in_memory(rows):
            size = rows.nbytes
        else:
            size = 8 * moments.n_features**2  # of the scatter matrix
        can_explain = in_memory(rows) or rows is None
        small = size <= REMEMBERED_BYTES
        self._training_moments = moments if can_explain and small else None

    # ---- transformations -------------------------------------------------------------

    def inverse_transform(self, X: DataLike) -> Any:
        """Restore the original columns of X, with zeros for features that are not selected."""
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
        """Explain why each feature was selected (requires pandas).

        Parameters
        ----------
        X : array-like, optional
            The training samples. By default, the samples of the last `fit` are used. The
            selector keeps a reference to them if they take up at most 256 MB, but saved and
            pickled selectors do not contain them. If no samples are available, only gains and
            weights are explained.
        y : array-like, optional
            Labels of the samples, as in `fit`.
        sample_weight : array-like, optional
            Weights of the samples, as in `fit`.
        batch : array-like or str, optional
            Batches of the samples, as in `fit`.
        n_bootstraps : int, default=100
            Number of bootstrap samples of the classes, which show how stable the selection is.
            With 0, stability is not computed. Bootstraps use only labeled samples, and ignore
            ``target_attributes`` and unlabeled samples.
        random_state : int, default=0
            Seed of the bootstraps.

        Returns
        -------
        semfs.selectors.explanation.Explanation
        """
        from semfs.selectors.explaining import explain_selection

        check_is_fitted(self)
        check_integer("n_bootstraps", n_bootstraps, 0)
        moments = getattr(self, "_training_moments", None)
        if X is not None:
            fit_input = FitInput.from_user(self, X, y, sample_weight, reset=False, batch=batch)
            options = self._sum_options(fit_input.n_features)
            data = fit_input.summed(options).corrected()
            moments = data.moments.without_empty_classes()
            self._check_fitted_classes(moments.classes.tolist())
        return explain_selection(self, moments, n_bootstraps, random_state)

    def _check_fitted_classes(self, found: list[Any]) -> None:
        """Raise if these are not the classes of the fit."""
        fitted = self.class_table_.classes.tolist()
        if found != fitted:
            raise ValueError(
                f"explain needs samples of the {len(fitted)} classes of "
                f"the fit, from {fitted[0]!r} to {fitted[-1]!r}, but "
                f"found {len(found)}, from {found[0]!r} to {found[-1]!r}."
            )
