"""The optimization problem of a fit: from training data and parameters to a solution."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, Self

import numpy as np

from semfs._typing import FeaturesLike, Float64, Indices, Mask
from semfs.attributes import AttributeTable, align_attributes, constant_attributes
from semfs.method.alternating import solve_alternating
from semfs.method.forward import forward_selection
from semfs.method.moments import Moments
from semfs.method.objective import Monitor, Objective, Quadratic, Solution, reduce_rank
from semfs.rows import Preprocessing, in_memory
from semfs.selectors.calibration import CalibrationSample
from semfs.selectors.fitted import Fitted, NormalEquations, feature_name
from semfs.selectors.inputs import RESCALE, TrainingData, check_range_of_attributes
from semfs.selectors.knowledge import further_knowledge
from semfs.validation import (
    ParameterError,
    ParameterWarning,
    class_weights,
    feature_indices,
    listed,
)

#: Share of the total variance beyond which a few features are named: their unit may differ.
DOMINANT_VARIANCE = 0.95
#: At most so many features are named, out of at least so many times their number: of few
#: features it is nothing special that some have most of the variance.
MOST_DOMINANT = 3
FEATURES_PER_DOMINANT = 5


class MethodParameters(Protocol):
    """The parameters of `SemFS` that a problem depends on."""

    attributes: Any
    alpha: float
    gamma: float
    penalty_scale: str
    fit_intercept: bool
    class_weight: Any
    label_weight: float
    max_correlation: float | None
    target_attributes: Any
    n_new_classes: int | str
    include: Any
    exclude: Any
    solver: str
    max_iter: int
    tol: float
    n_inner: int
    step: str | float
    s_init: Any
    n_swaps: int

    def _n_wanted(self, d: int) -> int: ...


# ---- which features -------------------------------------------------------------------


@dataclass(frozen=True)
class Candidates:
    """Which of d features may be selected."""

    constant: Mask  # (d,), features of one value only; they rank last
    forced: Indices  # features that enter first
    excluded: Indices  # features that never enter

    @classmethod
    def from_user(
        cls,
        moments: Moments,
        include: FeaturesLike | None,
        exclude: FeaturesLike | None,
        names: Sequence[str] | None,
    ) -> Self:
        """Return the candidates, given features to include and exclude by index or name."""
        d = moments.n_features
        constant = moments.constant()
        if constant.all():
            raise ValueError(f"all {d} columns of X are constant: there is nothing to rank.")
        forced = feature_indices("include", include, d, names)
        excluded = feature_indices("exclude", exclude, d, names)
        return cls(constant, forced, excluded)

    def check(self, k: int, names: Sequence[str] | None = None) -> None:
        """Raise unless k features can be selected among these."""
        both = np.intersect1d(self.forced, self.excluded)
        if both.size:
            name = feature_name(int(both[0]), names)
            message = f": feature {name!r} is excluded as well. Remove it from one of the two."
            raise ParameterError("include", message)
        n = len(self.forced)
        if n > k:
            message = f"has {n} features, more than n_features_to_select={k}."
            raise ParameterError("include", message)
        if len(self.excluded) == len(self.constant):
            raise ParameterError("exclude", "holds every feature: nothing is left to select.")

    def restrict(self, columns: Indices) -> Self:
        """Return the candidates among some columns, which hold all forced features."""
        return type(self)(
            self.constant[columns],
            np.flatnonzero(np.isin(columns, self.forced)),
            np.flatnonzero(np.isin(columns, self.excluded)),
        )

    @property
    def allowed(self) -> Mask:
        """Mask (d,) of the features that may be selected."""
        allowed = ~self.constant
        allowed[self.excluded] = False
        allowed[self.forced] = True
        return allowed

    @property
    def n_selectable(self) -> int:
        """Number of features that can be kept, constant ones among them."""
        return len(self.constant) - len(self.excluded)


# ---- parts of the problem -------------------------------------------------------------


def attribute_targets(
    params: MethodParameters, table: AttributeTable
) -> tuple[Float64 | None, Float64 | None]:
    """Return targets (C, r), and the basis (m, r) they are in; labels need neither."""
    if params.attributes is None:
        return None, None
    A = table.values
    if params.fit_intercept:
        A = A - A.mean(axis=0)
    return reduce_rank(A)


def squared_label_weight(label_weight: float, targets: Float64 | None) -> float:
    """Return the squared weight w of the labels next to targets (C, r): [A, √w I].

    With ``label_weight`` β the labels carry β times as much as the table: indicators of C
    classes have the sum of squares C − 1 about their mean, so w = β ‖A − mean(A)‖²/(C − 1).
    If all classes are described alike the labels are all there is, and w = β.
    """
    if targets is None:
        return 0.0
    C = len(targets)
    spread = float(((targets - targets.mean(axis=0)) ** 2).sum())
    return label_weight * spread / (C - 1) if spread > 0.0 else label_weight


def seen_objective(
    params: MethodParameters,
    moments: Moments,
    targets: Float64 | None,
    *,
    gamma: float | None = None,
    penalty_scale: str | None = None,
) -> Objective:
    """Return J of the seen classes; ``gamma`` and its scale may differ from the parameters'."""
    return Objective.from_moments(
        moments,
        targets,
        class_weight=class_weights(params.class_weight, moments.classes, moments.counts),
        alpha=params.alpha,
        gamma=params.gamma if gamma is None else gamma,
        penalty_scale=params.penalty_scale if penalty_scale is None else penalty_scale,
        fit_intercept=params.fit_intercept,
        label_weight=squared_label_weight(params.label_weight, targets),
    )


def solve(
    params: MethodParameters,
    objective: Objective,
    further: list[Quadratic],
    candidates: Candidates,
    monitor: Monitor | None = None,
    quadratic: Quadratic | None = None,
) -> Solution:
    """Return the solution by the solver that the parameters ask for."""
    d = objective.n_features
    if params.solver == "direct":
        copies = None
        if params.max_correlation is not None:
            copies = objective.near_copies(params.max_correlation)
        return forward_selection(
            [quadratic or objective.quadratic(), *further],
            min(params._n_wanted(d), d),
            candidates=candidates.allowed,
            include=candidates.forced,
            n_swaps=params.n_swaps,
            copies=copies,
            monitor=monitor,
        )
    s = np.ones(d) if params.s_init is None else np.array(params.s_init, dtype=np.float64)
    if s.shape != (d,) or not np.isfinite(s).all() or (s < 0).any():
        message = f"must hold {d} non-negative numbers, got shape {s.shape}."
        raise ParameterError("s_init", message)
    return solve_alternating(
        objective,
        max_iter=params.max_iter,
        tol=params.tol,
        n_inner=params.n_inner,
        step=params.step,
        s_init=np.where(candidates.allowed, s, 0.0),  # where s starts at 0 it stays there
        monitor=monitor,
    )


# ---- the whole ------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Problem:
    """Features to select so that J falls: of the seen classes, and of what else is known."""

    params: MethodParameters
    moments: Moments  # of the seen classes
    table: AttributeTable  # their descriptions
    basis: Float64 | None  # (m, r), of the targets
    objective: Objective  # J of the seen classes
    quadratic: Quadratic  # the same, as forward selection sees it
    further: list[Quadratic]  # J of unseen classes and of clusters of unlabeled samples
    candidates: Candidates
    n_select: int
    knowledge: dict[str, Any]  # fitted attributes that tell what else is known
    feature_names: Sequence[str] | None
    preprocessing: Preprocessing

    @classmethod
    def from_data(
        cls,
        params: MethodParameters,
        data: TrainingData,
        feature_names: Sequence[str] | None,
    ) -> Self:
        """Return the problem of a fit to training data."""
        moments = data.moments.without_empty_classes()
        check_two_classes(moments)
        table = align_attributes(params.attributes, moments.classes)
        if params.attributes is not None:
            _warn_of_constant_attributes(table)
        check_range_of_attributes(moments, table.values)
        targets, basis = attribute_targets(params, table)
        objective = seen_objective(params, moments, targets)
        candidates = Candidates.from_user(
            moments, params.include, params.exclude, feature_names
        )
        k = params._n_wanted(moments.n_features)
        candidates.check(k, feature_names)
        variances = np.where(candidates.allowed, moments.scatter_diag, 0.0)
        _warn_of_dominant_features(variances, feature_names)
        knowledge, further = further_knowledge(params, objective, table, data.unlabeled)
        if params.attributes is not None:
            _note_classes_alike(params, table, knowledge["knowledge_"])
        return cls(
            params=params,
            moments=moments,
            table=table,
            basis=basis,
            objective=objective,
            quadratic=objective.quadratic(),
            further=further,
            candidates=candidates,
            n_select=min(k, moments.n_features),
            knowledge=knowledge,
            feature_names=feature_names,
            preprocessing=data.preprocessing,
        )

    @property
    def n_steps(self) -> int:
        """Number of steps that the solver takes at most, swaps aside."""
        return self.n_select if self.params.solver == "direct" else self.params.max_iter

    def solve(self, monitor: Monitor | None = None) -> Solution:
        """Return the selection that the solver finds."""
        return solve(
            self.params,
            self.objective,
            self.further,
            self.candidates,
            monitor,
            self.quadratic,
        )

    def fitted(self, solution: Solution) -> Fitted:
        """Return what a solution, also one of an unfinished fit, says in the user's terms."""
        order, scores = self._ranking(solution)
        n_selected = min(self.n_select, self.candidates.n_selectable)
        selected = np.sort(order[:n_selected])
        used = np.flatnonzero(solution.s)
        coef = self._in_attributes(solution.V)
        center, target_mean = self._centers()
        within = self.objective.within(selected, _gram_among(solution, selected))
        known = {name.removesuffix("_"): value for name, value in self.knowledge.items()}
        return Fitted(
            order=order,
            scores=scores,
            n_selected=n_selected,
            selection=solution.s,
            coef_features=used,
            coef=coef,
            intercept=target_mean - (center * solution.s)[used] @ coef,
            objective=solution.objective,
            class_means=self.moments.means[:, selected],
            within=within / self.moments.total,
            table=self.table,
            preprocessing=self.preprocessing,
            feature_names=self.feature_names,
            normal_equations=self._normal_equations(solution),
            copies=solution.copies,
            sample=_calibration_sample(self.moments, selected),
            **known,
        )

    def _in_attributes(self, V: Float64) -> Float64:
        """Rows of V in the columns of the attribute table, without those of the labels."""
        if self.basis is None:
            return V
        return V[:, : self.basis.shape[1]] @ self.basis.T

    def _centers(self) -> tuple[Float64, Float64]:
        """Means (d,) of the features and (m,) of the attributes; zeros without intercept."""
        n_attributes = self.table.values.shape[1]
        if not self.params.fit_intercept:
            return np.zeros(self.moments.n_features), np.zeros(n_attributes)
        shares = self.objective.shares
        return self.objective.mean, shares @ self.table.values / shares.sum()

    def _normal_equations(self, solution: Solution) -> NormalEquations | None:
        """What W of fewer features follows from; None for "alternating"."""
        gram = solution.gram
        if gram is None or self.params.solver != "direct":
            return None
        features = solution.order[: len(gram)]
        center, target_mean = self._centers()
        return NormalEquations(
            features=features,
            gram=gram,
            B=self._in_attributes(np.asarray(self.quadratic.B[features], dtype=np.float64)),
            gamma=self.quadratic.gamma,
            center=center[features],
            target_mean=target_mean,
            unit=np.ones(len(features)),
        )

    def _ranking(self, solution: Solution) -> tuple[Indices, Float64]:
        """Order and scores; forced features first, constant ones last, then excluded ones."""
        allowed_scores = solution.scores[self.candidates.allowed]
        for values in (allowed_scores, solution.V, solution.objective):
            if not np.isfinite(values).all():
                raise ValueError(f"scores overflow. {RESCALE}")
        in_column_order = (np.diff(solution.order) > 0).all()
        if len(allowed_scores) > 1 and in_column_order and not np.ptp(allowed_scores):
            warnings.warn(
                "all features score alike and stay in the order of the columns: the classes "
                "do not differ in them, or the penalty, the weights or the step size are too "
                "large.",
                stacklevel=6,
            )
        group = np.where(self.candidates.constant, 2, 1)
        group[self.candidates.forced] = 0
        group[self.candidates.excluded] = 3
        order = solution.order[np.argsort(group[solution.order], kind="stable")]
        return order, np.where(group >= 2, -np.inf, solution.scores)


def _gram_among(solution: Solution, features: Indices) -> Float64 | None:
    """G (k, k) of some features, if the solver knows it: of those that entered it does."""
    gram = solution.gram
    if gram is None:
        return None
    position = {j: i for i, j in enumerate(solution.order[: len(gram)].tolist())}
    places = [position.get(j, -1) for j in features.tolist()]
    return None if -1 in places else gram[np.ix_(places, places)]


def _calibration_sample(moments: Moments, selected: Indices) -> CalibrationSample | None:
    """A few samples of each class, by which predictions are calibrated; None beyond memory."""
    rows = moments.rows
    if not in_memory(rows):
        return None
    return CalibrationSample.drawn(rows, selected, len(moments.classes))


def check_two_classes(moments: Moments) -> None:
    """Raise unless there are samples of at least two classes."""
    if len(moments.classes) < 2:
        only = moments.classes.tolist()[0]
        raise ValueError(f"y has only one class ({only!r}). Pass rows of at least two.")


def _warn_of_constant_attributes(table: AttributeTable) -> None:
    """Name attributes that are the same for all seen classes.

    In a table of yes, partly and no (1, 0.5, 0) many attributes concern unseen classes only;
    there the warning waits until they are more than half.
    """
    names = constant_attributes(table)
    is_yes_or_no = np.isin(table.values, (0.0, 0.5, 1.0)).all()
    usual = len(table.names) / 2 if is_yes_or_no else 0
    if len(names) > usual:
        shown = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
        warnings.warn(
            f"{len(names)} of {len(table.names)} attributes are the same for all seen "
            f"classes and teach nothing: {shown}.",
            stacklevel=6,
        )


def _note_classes_alike(
    params: MethodParameters, table: AttributeTable, notes: dict[str, str]
) -> None:
    """Name seen classes that have the same attributes, in ``knowledge_`` or in a warning.

    Only their labels can separate them.
    """
    groups: dict[bytes, list[str]] = {}
    for label, values in zip(table.classes.tolist(), table.values + 0.0):  # -0.0 is 0.0
        groups.setdefault(values.tobytes(), []).append(str(label))
    alike = [" = ".join(group) for group in groups.values() if len(group) > 1]
    if not alike:
        return
    if params.label_weight:
        found = f"{listed(alike)}: separated by their labels only"
        notes["classes described alike"] = found
        return
    message = (
        f": classes are described alike ({listed(alike)}), so features are not selected to "
        "separate them. Describe them differently, or set label_weight=1."
    )
    warnings.warn(ParameterWarning("attributes", message), stacklevel=6)


def _warn_of_dominant_features(variances: Float64, names: Sequence[str] | None) -> None:
    """Name the few features that together have nearly all of the variance (d,)."""
    total = max(float(variances.sum()), np.finfo(float).tiny)
    shares = variances / total
    largest = np.argsort(-shares, kind="stable")[:MOST_DOMINANT]
    reached = np.cumsum(shares[largest])
    if reached[-1] <= DOMINANT_VARIANCE:
        return
    n = 1 + int(np.argmax(reached > DOMINANT_VARIANCE))
    n_varying = np.count_nonzero(shares)
    if n_varying < (3 if n == 1 else FEATURES_PER_DOMINANT * n):
        return
    found = [feature_name(int(j), names) for j in largest[:n]]
    if n == 1:
        text = f"{found[0]} has {reached[0]:.0%} of the variance of all features"
        remedy = "Exclude it if it is not a measurement"
    else:
        listed = f"{', '.join(found[:-1])} and {found[-1]}"
        text = f"{listed} together have {reached[n - 1]:.0%} of the variance of all features"
        remedy = "Exclude those that are not measurements"
    warnings.warn(
        f"{text} and will dominate the selection. {remedy}; scale the features to unit "
        "variance if their units differ.",
        stacklevel=6,
    )
