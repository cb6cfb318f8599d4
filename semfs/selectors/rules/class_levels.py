"""`ClassLevels`: the mean of each feature in each class, in the units of the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from semfs._typing import Float64, Indices, Label, Mask
from semfs.arrays import take_columns
from semfs.attributes import AttributeTable
from semfs.method.batches import measured_means
from semfs.method.class_means import MeanModel
from semfs.method.markers import above_others, class_markers, within_deviation
from semfs.method.moments import Moments
from semfs.rows import Preprocessing
from semfs.selectors.rules.parameters import RuleParameters


@dataclass(frozen=True, eq=False)
class ClassLevels:
    """Class means in the units of the data. Means of unseen classes are predicted.

    Markers compare classes, so they use the means without offsets of batches; the measured mean
    of the class must be above that of the other classes, too. Limits of the signal concern what
    is measured, so they use the means with these offsets.
    """

    classes: list[Label]  # seen ones first
    means: Float64  # (C, d), without offsets of batches
    measured: Float64  # (C, d), as they were measured; the same array without batches
    moments: Moments  # of the seen classes, preprocessed
    unit: Float64 | None = None  # (d,), what preprocessing divided features by; None: nothing

    @classmethod
    def of(
        cls,
        moments: Moments,
        preprocessing: Preprocessing,
        table: AttributeTable | None = None,
        unseen: AttributeTable | None = None,
    ) -> Self:
        """Return the levels of the seen classes and, if given, of unseen classes."""
        means = moments.means
        measured = measured_means(moments)
        classes = moments.classes.tolist()
        has_offsets = measured is not means
        if table is not None and unseen is not None:
            means = _with_predicted(means, table, unseen)
            measured = _with_predicted(measured, table, unseen) if has_offsets else means
            classes = [*classes, *unseen.classes.tolist()]
        if preprocessing.scale is None:
            return cls(classes, means, measured, moments)
        # Preprocessing multiplied features by their scale; dividing by it gives the units of
        # the data. A feature that was multiplied by 0 has no unit to restore.
        scale = np.asarray(preprocessing.scale, dtype=np.float64)
        unit = np.where(scale > 0.0, scale, 1.0)
        means = means / unit
        measured = measured / unit if has_offsets else means
        return cls(classes, means, measured, moments, unit)

    @property
    def n_seen(self) -> int:
        """Number of seen classes, which come first."""
        return len(self.moments.classes)

    @classmethod
    def of_fit(
        cls,
        params: RuleParameters,
        moments: Moments,
        preprocessing: Preprocessing,
        table: AttributeTable,
        unseen: AttributeTable | None,
    ) -> Self:
        """Return the levels to which the rules of a fit apply.

        ``unseen`` are the described classes whose means the fit predicted.
        """
        wanted = bool(params.min_per_class) or params.capacity is not None
        return cls.of(moments, preprocessing, table, unseen if wanted else None)

    def markers(self, features: Indices | None = None) -> Mask:
        """Return which features mark each class: all (C, d), or some features (C, k)."""
        if features is None:
            features = np.arange(self.means.shape[1])
        deviation = within_deviation(self.moments, features)
        if self.unit is not None:
            deviation = deviation / self.unit[features]
        means = take_columns(self.means, features)
        markers = class_markers(means, deviation)
        if self.measured is not self.means:
            # the offset of a batch makes no marker of what the class itself does not show
            markers &= above_others(take_columns(self.measured, features))
        # means of a constant feature differ by rounding errors
        markers[:, self.moments.constant()[features]] = False
        return markers

    def highest(self) -> Float64:
        """Return the largest measured class mean of each feature (d,)."""
        return np.asarray(self.measured.max(axis=0))


def _with_predicted(means: Float64, table: AttributeTable, unseen: AttributeTable) -> Float64:
    """Return means (C, d) of the seen classes, and below them those predicted for others."""
    model = MeanModel.fit(table.values, means)
    return np.vstack([means, model.predict(unseen.values)])


def outside_levels(
    params: RuleParameters,
    levels: ClassLevels,
) -> dict[str, Indices]:
    """Return the features that min_level and max_level exclude, by rule."""
    found = {}
    # The largest class mean decides: below the window a feature is detected in no class,
    # above it one class alone may be more than the instrument can measure.
    highest = levels.highest()
    if params.min_level is not None:
        found["min_level"] = np.flatnonzero(highest < params.min_level)
    if params.max_level is not None:
        found["max_level"] = np.flatnonzero(highest > params.max_level)
    return found
