"""`Fitted`: everything that a fit learned, and how it changes with k and with units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve, pinvh

from semfs._typing import Float64, Indices, Mask
from semfs.attributes import AttributeTable
from semfs.feature_names import feature_name
from semfs.rows import Preprocessing
from semfs.rows.device import to_numpy
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.calibrated import CalibratedPredictor
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.filling import fill_values_of
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.rules.findings import NO_FINDINGS, Findings
from semfs.selectors.rules.panel_rules import OVERRULED
from semfs.selectors.same_space import perhaps_same_space, same_space
from semfs.validation import counted, listed

if TYPE_CHECKING:
    from semfs.selectors.linear import LinearSelector


#: What ``knowledge_`` calls features that were skipped.
NEAR_COPIES = "near copies"


#: Keys of ``knowledge_`` in earlier releases, and what they are called now.
FORMER_KEYS = {
    "classes to come": "unseen classes",
    "unlabelled rows": "unlabeled samples",
}


class Notes(dict[str, str]):
    """What was used, by source of information. Keys of earlier releases work as well."""

    def __missing__(self, key: str) -> str:
        if FORMER_KEYS.get(key) in self:
            return self[FORMER_KEYS[key]]
        raise KeyError(key)


@dataclass(frozen=True, eq=False)
class NormalEquations:
    """The ridge regression that gives W, for features in the order in which they entered.

    (G_SS + γI) W = B_S for the first k features S, for every k.
    """

    features: Indices  # (k,)
    gram: Float64  # (k, k), G of these features
    B: Float64  # (k, m), in the columns of the attribute table
    gamma: float
    center: Float64  # (k,), what X is centered by; zeros without an intercept
    target_mean: Float64  # (m,), likewise of the attributes
    unit: Float64  # (k,), that features were multiplied by

    def solve(self, k: int) -> tuple[Indices, Float64, Float64]:
        """Return the first k features, ascending, their W (k, m) and the intercept (m,)."""
        k = min(k, len(self.features))
        K = self.gram[:k, :k] + self.gamma * np.eye(k)
        try:
            W = cho_solve(cho_factor(K), self.B[:k])
        except LinAlgError:  # γ = 0 and copies among the features
            W = pinvh(K) @ self.B[:k]
        intercept = self.target_mean - self.center[:k] @ W
        ascending = np.argsort(self.features[:k])
        W = W * self.unit[:k, None]
        return self.features[ascending], W[ascending], intercept


@dataclass(frozen=True, eq=False)
class Fitted:
    """Everything that a fit learned. d features, k of them selected, C seen classes."""

    order: Indices  # (d,), best first
    scores: Float64  # (d,)
    n_selected: int  # k
    selection: Float64  # (d,), s of the paper
    coef_features: Indices  # features whose rows of W are not zero, ascending
    coef: Float64  # their rows of W, in the columns of the attribute table
    intercept: Float64  # (m,)
    objective: Float64  # J after each step
    class_means: Float64  # (C, k), of the selected features in ascending order
    within: Float64  # (k, k), their covariance within classes
    table: AttributeTable  # descriptions of the seen classes
    knowledge: Mapping[str, str]  # what was used, and what was not, and why
    unused: Sequence[str] = ()  # sources of knowledge that were not used
    new_table: AttributeTable | None = None  # descriptions of unseen classes
    target_r2: float = float("nan")
    n_new_classes: int = 0
    unlabeled_labels: Indices | None = None
    preprocessing: Preprocessing = NO_PREPROCESSING
    feature_names: Any = None  # (d,) or None
    normal_equations: NormalEquations | None = None  # of "direct"
    #: Near copies, and the selected feature that each copies.
    copies: Mapping[int, int] = field(default_factory=dict)
    sample: CalibrationSample | None = None  # of the selected features; None: not at hand
    findings: Findings = NO_FINDINGS  # what rules of the panel led to
    ruled_out: Mapping[str, Indices] = field(default_factory=dict)  # features, by the rule
    overruled: Mapping[str, Indices] = field(default_factory=dict)  # included ones among them
    marks: Mask | None = None  # (C, k), which selected features mark which class
    batches: Any = None  # (B,), batches whose offsets were removed
    batch_offsets: Float64 | None = None  # (B, k), of the selected features
    fill_values: Float64 | None = None  # (k,), for gaps of the selected features; None: error
    measured_means: Float64 | None = None  # (C, k), with these offsets; None: the class means

    @classmethod
    def from_attributes(cls, selector: LinearSelector) -> Fitted:
        """Make a `Fitted` from the attributes of a selector that was loaded or unpickled."""
        coef = np.asarray(to_numpy(selector.coef_))
        used = np.flatnonzero(coef.any(axis=1))
        return cls(
            order=to_numpy(selector.order_),
            scores=to_numpy(selector.scores_),
            n_selected=int(selector.get_support().sum()),
            selection=to_numpy(selector.selection_),
            coef_features=used,
            coef=coef[used],
            intercept=to_numpy(selector.intercept_),
            objective=to_numpy(selector.objective_),
            class_means=to_numpy(selector.class_means_),
            within=to_numpy(selector.within_),
            table=selector.class_table_,
            knowledge=getattr(selector, "knowledge_", {}),
            unused=getattr(selector, "unused_", ()),
            new_table=selector.new_table_,
            target_r2=selector.target_r2_,
            n_new_classes=selector.n_new_classes_,
            unlabeled_labels=to_numpy(selector.unlabeled_labels_),
            preprocessing=Preprocessing(**getattr(selector, "preprocessing_", {})),
            feature_names=getattr(selector, "feature_names_in_", None),
            copies=getattr(selector, "skipped_", {}),
            sample=_sample_of(selector),
            marks=to_numpy(getattr(selector, "marks_", None)),
            batches=getattr(selector, "batches_", None),
            batch_offsets=to_numpy(getattr(selector, "batch_offsets_", None)),
            fill_values=fill_values_of(selector),
            measured_means=to_numpy(getattr(selector, "measured_means_", None)),
        )

    def all_attributes(self) -> dict[str, Any]:
        """Return the fitted attributes of a selector."""
        return {**self.attributes(), "rules_": self.findings.sentences()}

    def attributes(self) -> dict[str, Any]:
        """Return the fitted attributes, except those that are computed when first read."""
        labels = self.unlabeled_labels
        offsets = self.batch_offsets
        return {
            "scores_": self.scores,
            "order_": self.order,
            "ranking_": self.ranking,
            "support_": self.support,
            "selection_": self.selection,
            "coef_": self.full_coef(),
            "intercept_": self.intercept,
            "objective_": self.objective,
            "n_iter_": len(self.objective),
            "classes_": self.table.classes,
            "class_table_": self.table,
            "class_means_": self.class_means,
            "within_": self.within,
            "measured_means_": self.levels,
            "knowledge_": Notes(self._notes()),
            "unused_": list(self.unused),
            "new_table_": self.new_table,
            "target_r2_": self.target_r2,
            "n_new_classes_": self.n_new_classes,
            "unlabeled_labels_": np.zeros(0, dtype=np.intp) if labels is None else labels,
            "skipped_": self.skipped,
            "preprocessing_": _settings_of(self.preprocessing),
            "calibration_sample_": _as_dict(self.sample),
            "marks_": self._marks(),
            "batches_": np.zeros(0) if self.batches is None else self.batches,
            "batch_offsets_": np.zeros((0, self.n_selected)) if offsets is None else offsets,
            "fill_values_": np.zeros(0) if self.fill_values is None else self.fill_values,
        }

    def remarks(self) -> dict[int, str]:
        """Return, for included features that a rule would keep out, a remark that says so."""
        return {
            feature: f"included, {OVERRULED.get(rule, f'against {rule}')}"
            for rule, features in self.overruled.items()
            for feature in features.tolist()
        }

    @property
    def levels(self) -> Float64:
        """The class means (C, k) as they were measured, with offsets of batches."""
        return self.class_means if self.measured_means is None else self.measured_means

    @property
    def ranking(self) -> Indices:
        """The position (d,) of each feature; 1 is the best."""
        return 1 + np.argsort(self.order)  # the inverse of a permutation

    @property
    def support(self) -> Mask:
        """Whether a feature is selected (d,)."""
        return self.ranking <= self.n_selected

    @property
    def selected(self) -> Indices:
        """The selected features (k,), ascending."""
        return np.flatnonzero(self.support)

    @property
    def skipped(self) -> dict[int, int]:
        """Features skipped as near copies, and the selected feature of each."""
        place = {j: i for i, j in enumerate(self.order[: self.n_selected].tolist())}
        pairs = [
            (copy, j) for copy, j in self.copies.items() if j in place and copy not in place
        ]
        return dict(sorted(pairs, key=lambda pair: (place[pair[1]], pair[0])))

    def _notes(self) -> dict[str, str]:
        """Return what was used and what was not, including skipped near copies."""
        notes = {what: text for what, text in self.knowledge.items() if what != NEAR_COPIES}
        names = self.feature_names
        pairs = [
            f"{feature_name(copy, names)} (of {feature_name(j, names)})"
            for copy, j in self.skipped.items()
        ]
        if pairs:
            notes[NEAR_COPIES] = (
                f"{counted(len(pairs), 'feature')} skipped because their "
                "correlation with a selected feature exceeds "
                f"max_correlation: {listed(pairs, most=3)}"
            )
        return notes

    def _marks(self) -> Mask:
        """Return which selected features mark each class (C, k); no rows if unknown."""
        if self.marks is not None:
            return self.marks
        return np.zeros((len(self.table.classes), self.n_selected), dtype=bool)

    def full_coef(self) -> Float64:
        """Return W (d, m), with rows of zeros for features that are not used."""
        out = np.zeros((len(self.order), self.coef.shape[1]))
        out[self.coef_features] = self.coef
        return out

    @cached_property
    def prediction_model(self) -> ClassPredictor:
        """Return the prediction model, which all predictions share."""
        n_features = len(self.order)
        names = self.table.names.tolist()
        same = same_space(self.feature_names, n_features, names, self.selected)
        surely_same = same is not None
        if same is None:
            same = perhaps_same_space(self.feature_names, n_features, names, self.selected)
        return ClassPredictor(self.table, self.class_means, self.within, same, surely_same)

    @cached_property
    def calibrated_model(self) -> CalibratedPredictor:
        """Return the prediction model with calibrated scores."""
        return CalibratedPredictor(self.prediction_model, self.sample)

    def top(self, k: int) -> Fitted:
        """Return the result of a fit that selects the first k features.

        Scores and order do not change. For "alternating", W, J and the selection vector are
        those of all features and do not change either.
        """
        if k >= self.n_selected:
            return self
        kept = np.isin(self.selected, self.order[:k])
        shorter = replace(
            self,
            n_selected=k,
            class_means=self.class_means[:, kept],
            within=self.within[np.ix_(kept, kept)],
            sample=None if self.sample is None else self.sample.keep_features(kept),
            marks=None if self.marks is None else self.marks[:, kept],
            batch_offsets=None if self.batch_offsets is None else self.batch_offsets[:, kept],
            fill_values=None if self.fill_values is None else self.fill_values[kept],
            measured_means=None if self.measured_means is None else self.levels[:, kept],
        )
        if self.normal_equations is None:
            return shorter
        features, coef, intercept = self.normal_equations.solve(k)
        selection = np.zeros_like(self.selection)
        selection[features] = 1.0
        return replace(
            shorter,
            selection=selection,
            coef_features=features,
            coef=coef,
            intercept=intercept,
            objective=self.objective[:k],
        )

    def scaled(self, scale: Float64) -> Fitted:
        """Convert the fit of X to the fit of X / scale, where scale (d,) is per column.

        Scores, J and the intercept are the same in both units.
        """
        unit = scale[self.selected]
        equations = self.normal_equations
        sample = self.sample
        if sample is not None:
            sample = replace(sample, Z=sample.Z / unit)
        if equations is not None:
            equations = replace(equations, unit=equations.unit * scale[equations.features])
        return replace(
            self,
            coef=self.coef * scale[self.coef_features, None],
            class_means=self.class_means / unit,
            within=self.within / np.outer(unit, unit),
            batch_offsets=None if self.batch_offsets is None else self.batch_offsets / unit,
            fill_values=None if self.fill_values is None else self.fill_values / unit,
            measured_means=None if self.measured_means is None else self.levels / unit,
            normal_equations=equations,
            sample=sample,
            preprocessing=replace(self.preprocessing, scale=None),
        )


def _settings_of(preprocessing: Preprocessing) -> dict[str, Any]:
    """Return the settings that are on, as a plain dict that can be saved."""
    settings = {
        "layer": preprocessing.layer,
        "normalize": preprocessing.normalize,
        "scale": preprocessing.scale,
    }
    return {name: value for name, value in settings.items() if value is not None}


def _as_dict(sample: CalibrationSample | None) -> dict[str, Any]:
    """Return a calibration sample as named arrays, which can be saved; {} without one."""
    if sample is None:
        return {}
    return {
        "features": sample.Z,
        "codes": sample.codes,
        "weights": sample.weights,
        "counts": sample.counts,
    }


def _sample_of(selector: LinearSelector) -> CalibrationSample | None:
    """Return the calibration sample of a selector, if any. Older files have none."""
    found = getattr(selector, "calibration_sample_", None)
    if not found:
        return None
    return CalibrationSample(
        found["features"], found["codes"], found["weights"], found["counts"]
    )
