"""`Outcome`: converts the solution of a problem to a `Fitted`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from semfs._typing import Float64, Indices
from semfs.arrays import take_columns
from semfs.method.batches import is_corrected, measured_means
from semfs.method.moments import Moments
from semfs.method.quadratic import Solution
from semfs.rows import MemoryRows, OutOfCoreRows, in_memory
from semfs.rows.blocks import Block
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.fitted import Fitted, NormalEquations
from semfs.selectors.inputs.missing import fills_gaps
from semfs.selectors.inputs.number_range import RESCALE
from semfs.selectors.problem import Problem
from semfs.validation import warn_user


@dataclass(frozen=True, eq=False)
class Outcome:
    """A solution of a problem, perhaps of an unfinished fit, in the features of the user."""

    problem: Problem
    solution: Solution

    def fitted(self) -> Fitted:
        """Return what `fit` learned."""
        problem = self.problem
        solution = self.solution
        moments = problem.moments
        order, scores = self._ranking()
        n_selected = self._n_selected()
        selected = np.sort(order[:n_selected])
        used = np.flatnonzero(solution.s)
        coef = self._in_attributes(solution.V)
        center, target_mean = self._centers()
        class_means, within = self._class_distributions(selected)
        knowledge = problem.knowledge
        rows = moments.rows
        batches = None
        batch_offsets = None
        measured = None
        if is_corrected(rows):
            batches = rows.pairs.batches
            batch_offsets = rows.offsets[:, selected]
            measured = take_columns(measured_means(moments), selected)
        return Fitted(
            order=order,
            scores=scores,
            n_selected=n_selected,
            selection=solution.s,
            coef_features=used,
            coef=coef,
            # b = mean(A) − mean(X)' diag(s) W
            intercept=target_mean - (center * solution.s)[used] @ coef,
            objective=solution.objective,
            class_means=class_means,
            within=within,
            table=problem.table,
            knowledge=knowledge.notes,
            unused=knowledge.unused,
            new_table=knowledge.unseen,
            target_r2=knowledge.target_r2,
            n_new_classes=knowledge.unlabeled.n_clusters,
            unlabeled_labels=knowledge.unlabeled.labels,
            preprocessing=problem.preprocessing,
            feature_names=problem.feature_names,
            normal_equations=self._normal_equations(),
            copies=solution.copies,
            sample=_calibration_sample(moments, selected, problem.source),
            findings=problem.rules.findings(solution),
            ruled_out=problem.candidates.ruled_out,
            overruled=problem.candidates.overruled,
            marks=problem.rules.levels.markers(selected),
            batches=batches,
            batch_offsets=batch_offsets,
            fill_values=self._fill_values(selected),
            measured_means=measured,
        )

    def _fill_values(self, selected: Indices) -> Float64 | None:
        """Return what fills gaps of the selected features (k,) in new samples.

        None if the fit did not fill gaps. Gaps of counts to be normalized are not filled,
        because a gap changes the total of its sample.
        """
        problem = self.problem
        steps = problem.preprocessing
        if steps.normalize is not None:
            return None
        if steps.fill is not None:
            scale = 1.0 if steps.scale is None else steps.scale[selected]
            return np.asarray(steps.fill[selected] * scale, dtype=np.float64)
        if not fills_gaps(problem.params):
            return None
        # the mean of the fit, in which gaps have the means of their classes
        means = take_columns(problem.moments.means, selected)
        return np.average(means, axis=0, weights=problem.moments.counts)

    def _class_distributions(self, selected: Indices) -> tuple[Float64, Float64]:
        """Return class means (C, k), and the covariance (k, k) within classes.

        A selected feature that is constant in the seen classes has rounding errors there. It
        has one mean, no covariance with others, and its variance within the clusters of the
        unlabeled samples if it varies there.
        """
        problem = self.problem
        moments = problem.moments
        gram = _gram_among(self.solution, selected)
        within = problem.objective.within(selected, gram) / moments.total
        means = take_columns(moments.means, selected)
        constant = np.flatnonzero(moments.constant()[selected])
        if len(constant):
            means[:, constant] = moments.mean[selected[constant]]
            within[constant] = 0.0
            within[:, constant] = 0.0
        clustered = np.flatnonzero(problem.only_unlabeled[selected])
        if len(clustered):
            clusters = problem.knowledge.unlabeled
            variances = clusters.variances(selected[clustered])
            within[clustered, clustered] = variances
        return means, within

    def _n_selected(self) -> int:
        """Return the number of features to select."""
        problem = self.problem
        panel = problem.rules.panel
        if panel is None or panel.is_plain:
            return min(problem.n_select, problem.candidates.n_selectable)
        # groups differ in size, budgets in reach
        return int(np.count_nonzero(self.solution.s))

    def _in_attributes(self, V: Float64) -> Float64:
        """Return rows of V in the columns of the attribute table, without the label columns."""
        basis = self.problem.basis
        if basis is None:
            return V
        return V[:, : basis.shape[1]] @ basis.T

    def _centers(self) -> tuple[Float64, Float64]:
        """Return means (d,) of features and (m,) of attributes, or zeros without intercept."""
        problem = self.problem
        n_attributes = problem.table.values.shape[1]
        if not problem.params.fit_intercept:
            return np.zeros(problem.moments.n_features), np.zeros(n_attributes)
        # Classes weigh in the mean of the targets as they do in that of the features.
        shares = problem.objective.shares
        return (
            problem.objective.mean,
            shares @ problem.table.values / shares.sum(),
        )

    def _normal_equations(self) -> NormalEquations | None:
        """Return the equations that give W of fewer features; None for "alternating"."""
        gram = self.solution.gram
        if gram is None or self.problem.params.solver != "direct":
            return None
        quadratic = self.problem.quadratic
        features = self.solution.order[: len(gram)]
        center, target_mean = self._centers()
        return NormalEquations(
            features=features,
            gram=gram,
            B=self._in_attributes(np.asarray(quadratic.B[features], dtype=np.float64)),
            gamma=quadratic.gamma,
            center=center[features],
            target_mean=target_mean,
            unit=np.ones(len(features)),
        )

    def _ranking(self) -> tuple[Indices, Float64]:
        """Return order and scores. Constant features come late, and excluded ones last."""
        solution = self.solution
        candidates = self.problem.candidates
        allowed_scores = solution.scores[candidates.allowed]
        for values in (allowed_scores, solution.V, solution.objective):
            if not np.isfinite(values).all():
                raise ValueError(f"The scores overflow. {RESCALE}")
        # Equal scores in the order of the columns: sorting found nothing to go by.
        in_column_order = (np.diff(solution.order) > 0).all()
        if len(allowed_scores) > 1 and in_column_order and not np.ptp(allowed_scores):
            warn_user(
                "All features have the same score, so they are ranked in "
                "the order of the columns. Either the classes do not "
                "differ in any feature, or gamma, the weights or the "
                "step are too large."
            )
        # a feature of one value may be selected with its group
        group = np.where(candidates.constant & (solution.s == 0.0), 2, 1)
        group[candidates.forced] = 0
        group[candidates.excluded] = 3
        by_group = np.argsort(group[solution.order], kind="stable")
        order = solution.order[by_group]
        return order, np.where(group >= 2, -np.inf, solution.scores)


def _gram_among(solution: Solution, features: Indices) -> Float64 | None:
    """Return G (k, k) of some features, if the solver knows it, as for those that entered."""
    gram = solution.gram
    if gram is None:
        return None
    # Rows of the Gram matrix are in the order of entry, `features` are ascending.
    position = {j: i for i, j in enumerate(solution.order[: len(gram)].tolist())}
    places = [position.get(j, -1) for j in features.tolist()]
    return None if -1 in places else gram[np.ix_(places, places)]


def _calibration_sample(
    moments: Moments,
    selected: Indices,
    source: OutOfCoreRows | None,
) -> CalibrationSample | None:
    """Return a few samples per class to calibrate predictions, or None if there are none.

    Samples beyond memory are read once more from their ``source``.
    """
    rows = moments.rows
    n_classes = len(moments.classes)
    if is_corrected(rows) and in_memory(rows.uncorrected.rows):
        # only the selected features are corrected, because only they are needed
        Z = rows.samples().columns(selected).toarray()
        corrected = MemoryRows(Z, rows.codes, rows.weights)
        return CalibrationSample.drawn(corrected, np.arange(len(selected)), n_classes)
    if not in_memory(rows):
        blocks = None if source is None else source.labeled_columns(selected)
        if blocks is None:
            return None
        return CalibrationSample.read(_coded(blocks, moments, selected), n_classes)
    return CalibrationSample.drawn(rows, selected, n_classes)


def _coded(
    blocks: Iterator[Block], moments: Moments, selected: Indices
) -> Iterator[tuple[Float64, Indices, Float64]]:
    """Yield samples Z (r, k), their classes as in the moments, and weights (r,).

    If there are batches, labels are pairs (class, batch), and offsets are removed.
    """
    rows = moments.rows
    corrected = is_corrected(rows)
    known = rows.uncorrected.classes if corrected else moments.classes
    place = {label: i for i, label in enumerate(known.tolist())}
    for block in blocks:
        # a class without any weight is not among the moments
        code_of = np.array([place.get(label, -1) for label in block.classes], dtype=np.intp)
        codes = code_of[block.codes]
        Z = block.X
        if corrected:
            Z = Z - rows.offsets[np.ix_(rows.pairs.batch_of[codes], selected)]
            codes = rows.pairs.class_of[codes]
        weights = np.ones(len(Z))
        if block.weights is not None:
            weights = block.weights.astype(np.float64)
        yield Z, codes, weights
