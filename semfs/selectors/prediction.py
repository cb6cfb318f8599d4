"""Prediction of seen and unseen classes by Gaussians about class means.

The mean of a seen class is known, and that of an unseen class is predicted from its description
(`MeanModel`). All classes share the covariance within the seen classes. For unseen classes, the
error of predicted means is added to it. Only the means and the covariance of the selected
features are needed.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.spatial.distance import cdist

from semfs._typing import Float64, Indices, Mask
from semfs.attributes import AttributeTable
from semfs.method.class_means import CLEAR_EVIDENCE, MeanModel
from semfs.selectors.gaussian_density import GaussianDensity

#: Regression draws some means nearer to the center than others, and samples would go to the
#: nearest. Lengths are multiplied by (usual length / length) to this power, 1 of which makes
#: them equal, and a mean is moved as if it were at least the usual length / MOST_STRETCH away.
EVENNESS = 0.75
MOST_STRETCH = 10.0
#: Share of the covariance of prediction errors that is added for unseen classes.
ERROR_SHARE = 0.5
#: Samples of a class differ by at least this share of the range of the class means.
LEAST_SPREAD = 1e-3
#: Ridge of the prediction of attributes, in mean variances.
RIDGE = 0.1
#: Descriptions of a class that differ by less than this share of their largest number are the
#: same, up to rounding (float32, a CSV file of six digits).
SAME_DESCRIPTION = 1e-3
OTHER_UNITS = (
    "The values of X are so much larger than those of the training "
    "samples that predictions overflow. Pass X in the same units as for "
    "fit."
)


@dataclass(frozen=True, eq=False)
class ClassPredictor:
    """Scores of classes for samples Z (n, k) of the selected features.

    Make one object per fit. It computes models and covariances once, when they are first
    needed.
    """

    table: AttributeTable  # descriptions of the C seen classes
    means: Float64  # (C, k)
    within: Float64  # (k, k), the covariance within classes
    # (k,), attributes that are the selected features (`same_space`), or perhaps are
    same: Indices | None = None
    surely_same: bool = True
    model: MeanModel | None = None  # whose kernel is used, if it was chosen already

    def scores(self, Z: Float64, table: AttributeTable) -> Float64:
        """Return the log-likelihood (n, U), up to a constant, of each class of a table."""
        return self.scorer(table).scores(Z)

    def scorer(self, table: AttributeTable) -> "ClassScorer":
        """Return a scorer for the classes of a table, which predicts their means once."""
        position = self.seen_positions(table)
        seen = position >= 0
        seen_means = None
        if seen.any():
            seen_means = self.seen_density.whiten(self._standardized_means[position[seen]])
        unseen_means = None
        if not seen.all():
            A = table.values[~seen]
            # rounding errors may differ between rows: equal descriptions get equal scores
            unseen_means = self._unseen_means(A)[first_equal(A)]
        return ClassScorer(self, seen, seen_means, unseen_means)

    def whiten(self, Z: Float64) -> Float64:
        """Return Z (n, k) in coordinates in which samples of a class have unit covariance."""
        return self.seen_density.whiten(self.standardized(Z))

    @property
    def log_constant(self) -> float:
        """The largest possible score, which a seen class has at its mean."""
        return self.seen_density.log_constant

    def keep_classes(self, classes: Indices) -> "ClassPredictor":
        """Return the model that knows only some of the seen classes, with the same kernel."""
        table = self.table
        known = AttributeTable(table.values[classes], table.classes[classes], table.names)
        return ClassPredictor(
            table=known,
            means=self.means[classes],
            within=self.within,
            same=self.same,
            surely_same=self.surely_same,
            model=self._mean_model,
        )

    def keep_features(self, kept: Mask) -> "ClassPredictor":
        """Return the model for the features in a mask (k,), if the others are unknown."""
        return ClassPredictor(
            table=self.table,
            means=self.means[:, kept],
            within=self.within[np.ix_(kept, kept)],
            same=None if self.same is None else self.same[kept],
            surely_same=self.surely_same,
        )

    def attributes(self, Z: Float64) -> Float64:
        """Predict attributes (n, m) by ridge regression with equal class weights."""
        center, scale, W = self._attribute_model
        with np.errstate(over="ignore", invalid="ignore"):
            found = self.table.values.mean(axis=0) + ((Z - center) / scale) @ W
        if not np.isfinite(found).all():
            raise ValueError(OTHER_UNITS)
        return found

    def class_means(self, table: AttributeTable) -> Float64:
        """Return the means (U, k) of the classes of a table, predicted if they are unseen."""
        position = self.seen_positions(table)
        seen = position >= 0
        means = np.empty((len(position), self.means.shape[1]))
        means[seen] = self.means[position[seen]]
        if not seen.all():
            A = table.values[~seen]
            predicted = self._mean_model.predict(A, self._same_attributes(A))
            means[~seen] = predicted * self._spread
        return means

    def distances(self, table: AttributeTable) -> Float64:
        """Return Mahalanobis distances (U, U) between the class means of a table.

        The covariance is that within the seen classes, as in `scores`. For two normal
        distributions at distance D, the best rule misclassifies a share Φ(-D / 2) of the
        samples.
        """
        means = (self.class_means(table) - self._center) / self._spread
        whitened = self.seen_density.whiten(means)
        return cdist(whitened, whitened)

    # ---- seen classes ------------------------------------------------------------------

    def seen_positions(self, table: AttributeTable) -> Indices:
        """Return the position (U,) of each class of a table among the seen classes, or -1.

        Raise if the table gives a seen class a description that differs from that of the fit.
        """
        known = {label: i for i, label in enumerate(self.table.classes.tolist())}
        labels = table.classes.tolist()
        position = np.array([known.get(label, -1) for label in labels], dtype=np.intp)
        rows = np.flatnonzero(position >= 0)
        fitted = self.table.values[position[rows]]
        differences = np.abs(table.values[rows] - fitted)
        allowed = SAME_DESCRIPTION * np.abs(fitted).max(axis=1, initial=0.0)
        others = np.flatnonzero(differences.max(axis=1, initial=0.0) > allowed)
        if len(others):
            place = others[0]
            row = rows[place]
            j = int(differences[place].argmax())
            advice = "Use the same description or, if this is another class, another label."
            if labels == list(range(len(labels))):
                advice = (
                    "Row r of an array belongs to the integer label r; for other labels, pass "
                    "a frame or a mapping."
                )
            raise ValueError(
                f"class_table describes the seen class {labels[row]!r} by "
                f"{self.table.names[j]!r} = {table.values[row, j]:g}, but the selector was "
                f"fitted with {fitted[place, j]:g}. {advice}"
            )
        return position

    @cached_property
    def _spread(self) -> Float64:
        """Return the standard deviation (k,) within classes, but not (nearly) 0."""
        within = np.sqrt(np.abs(np.diag(self.within)))
        between = np.ptp(self.means, axis=0)
        spread = np.maximum(within, LEAST_SPREAD * between)
        return np.where(spread > 0, spread, 1.0)

    @cached_property
    def _center(self) -> Float64:
        """Return the mean (k,) of the class means. Subtracting it preserves digits."""
        return self.means.mean(axis=0)

    def standardized(self, Z: Float64) -> Float64:
        """Return samples (n, k) minus the center, in units of the spread."""
        with np.errstate(over="ignore"):
            return (Z - self._center) / self._spread

    @cached_property
    def _standardized_means(self) -> Float64:
        return (self.means - self._center) / self._spread

    @cached_property
    def _correlations(self) -> Float64:
        """Return the correlations (k, k) within classes."""
        out = self.within / self._spread / self._spread[:, None]
        np.fill_diagonal(out, 1.0)
        return out

    @cached_property
    def seen_density(self) -> GaussianDensity:
        return GaussianDensity.of_covariance(self._correlations)

    # ---- unseen classes ----------------------------------------------------------------

    @cached_property
    def _mean_model(self) -> MeanModel:
        """Return the model that predicts standardized class means from descriptions."""
        same = self._same_attributes(self.table.values)
        means = self.means / self._spread
        if self.model is not None:
            return self.model.refit(self.table.values, means, same)
        margin = 0.0 if self.surely_same else CLEAR_EVIDENCE
        return MeanModel.fit(self.table.values, means, same, margin)

    def _same_attributes(self, A: Float64) -> Float64 | None:
        """Return the attributes (U, k) that are the selected features, standardized."""
        return None if self.same is None else A[:, self.same] / self._spread

    @cached_property
    def unseen_density(self) -> GaussianDensity:
        """Return the density of seen classes, widened by the errors of predicted means."""
        errors = self._mean_model.errors
        covariance = self._correlations + ERROR_SHARE * (errors.T @ errors) / len(errors)
        return GaussianDensity.of_covariance(covariance)

    def _unseen_means(self, A: Float64) -> Float64:
        """Return the whitened means (U, k) of classes with attributes A (U, m)."""
        model = self._mean_model
        density = self.unseen_density
        predicted = model.predict(A, self._same_attributes(A))
        means = density.whiten(predicted - self._center / self._spread)
        lengths = np.linalg.norm(means, axis=1)
        # predictions of seen classes that were left out
        left_out = density.whiten(self._standardized_means - model.errors)
        usual = float(np.median(np.linalg.norm(left_out, axis=1)))
        lengths = np.maximum(lengths, usual / MOST_STRETCH)
        if usual == 0.0:
            usual = 1.0
        lengths = np.where(lengths > 0.0, lengths, 1.0)
        return means * ((usual / lengths) ** EVENNESS)[:, None]

    @cached_property
    def _attribute_model(self) -> tuple[Float64, Float64, Float64]:
        """Return center (k,), scale (k,) and coefficients (k, m) to predict attributes."""
        A = self.table.values
        total = self.within + np.cov(self.means.T, bias=True).reshape(self.within.shape)
        variance = np.diag(total)
        # Rounding may leave a constant feature with a negative variance. It predicts nothing.
        varies = variance > 0.0
        scale = np.sqrt(np.where(varies, variance, 1.0))
        covariance = np.where(np.outer(varies, varies), total, 0.0)
        H = covariance / np.outer(scale, scale) + RIDGE * np.eye(len(scale))
        standardized = (self.means - self._center) / scale
        W = np.linalg.solve(H, standardized.T @ (A - A.mean(axis=0)) / len(A))
        return self._center, scale, W


def first_equal(A: Float64) -> Indices:
    """Return, for each description in the rows of A (U, m), the first row that equals it."""
    # + 0.0: there are two zeros
    _, first, group = np.unique(A + 0.0, axis=0, return_index=True, return_inverse=True)
    return first[group.ravel()]


@dataclass(frozen=True, eq=False)
class ClassScorer:
    """Scores samples, which may come block by block, for the U classes of one table."""

    predictor: ClassPredictor
    seen: Mask  # (U,), which classes are seen ones
    seen_means: Float64 | None  # whitened, of the seen classes; None: there are none
    unseen_means: Float64 | None  # whitened, of the others
    bias: float = 0.0  # what is subtracted from scores of seen classes

    def scores(self, Z: Float64) -> Float64:
        """Return the log-likelihood (n, U), up to a constant, of each class."""
        Z = self.predictor.standardized(Z)
        out = np.empty((len(Z), len(self.seen)))
        if self.seen_means is not None:
            of_seen = self.predictor.seen_density.log_likelihood(Z, self.seen_means)
            out[:, self.seen] = of_seen - self.bias
        if self.unseen_means is not None:
            of_unseen = self.predictor.unseen_density.log_likelihood(Z, self.unseen_means)
            out[:, ~self.seen] = of_unseen
        # infinitely far from all classes, a sample would go to any of them
        if not np.isfinite(out).all():
            raise ValueError(OTHER_UNITS)
        return out
