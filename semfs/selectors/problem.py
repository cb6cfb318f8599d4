"""The optimization problem of a fit: from training data and parameters to a solution."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, Self

import numpy as np

from semfs._typing import FeaturesLike, Float64, Indices, Mask
from semfs.attributes import (
    AttributeTable,
    align_attributes,
    constant_attributes,
)
from semfs.method.alternating import solve_alternating
from semfs.method.batches import is_corrected
from semfs.method.forward import forward_selection
from semfs.method.moments import Moments
from semfs.method.objective import (
    Monitor,
    Objective,
    Quadratic,
    Solution,
    reduce_rank,
)
from semfs.method.panel import Panel
from semfs.rows import MemoryRows, Preprocessing, in_memory
from semfs.rows.preprocess import NO_PREPROCESSING
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.fitted import Fitted, NormalEquations, feature_name
from semfs.selectors.inputs.number_range import RESCALE, check_range_of_attributes
from semfs.selectors.inputs.training_data import TrainingData
from semfs.selectors.knowledge import further_knowledge
from semfs.selectors.rules import (
    ClassLevels,
    PanelRules,
    outside_levels,
    panel_rules,
)
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
    n_features_to_select: Any
    include: Any
    exclude: Any
    candidates: Any
    min_per_class: int
    groups: Any
    costs: Any
    budget: float | None
    min_level: float | None
    max_level: float | None
    capacity: Any
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
    #: The same by the rule that keeps them out; a feature may be in several.
    ruled_out: Mapping[str, Indices] = field(default_factory=dict)

    @classmethod
    def from_user(
        cls,
        moments: Moments,
        include: FeaturesLike | None,
        exclude: FeaturesLike | None,
        names: Sequence[str] | None,
        only: FeaturesLike | None = None,
        outside: Mapping[str, Indices] = MappingProxyType({}),
    ) -> Self:
        """Return the candidates, given features to include and exclude by index or name.

        ``only`` are the features to select among, and ``outside`` features that other rules
        keep out. What is included may be selected all the same.
        """
        d = moments.n_features
        constant = moments.constant()
        if constant.all():
            raise ValueError(f"all {d} columns of X are constant: there is nothing to rank.")
        forced = feature_indices("include", include, d, names)
        excluded = feature_indices("exclude", exclude, d, names)
        ruled_out = {}
        if exclude is not None:
            ruled_out["exclude"] = excluded
        if only is not None:
            among = feature_indices("candidates", only, d, names)
            kept = np.union1d(among, forced)
            ruled_out["candidates"] = np.setdiff1d(np.arange(d), kept)
        for rule, features in outside.items():
            ruled_out[rule] = np.setdiff1d(features, forced)
        for rule, features in ruled_out.items():
            # Other rules gave way to what is included. A feature that is included and
            # excluded stays in both lists, and `check` refuses it.
            if rule != "exclude":
                excluded = np.union1d(excluded, features)
        return cls(constant, forced, excluded, ruled_out)

    def check(self, k: int, names: Sequence[str] | None = None) -> None:
        """Raise unless k features can be selected among these."""
        # by the user, only
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
            # The rule that keeps out most features is the one to blame.
            rule = max(self.ruled_out, key=lambda rule: len(self.ruled_out[rule]))
            if rule == "exclude":
                message = "holds every feature: nothing is left to select."
            else:
                message = "leaves no feature to select from."
            raise ParameterError(rule, message)

    def restrict(self, columns: Indices) -> Self:
        """Return the candidates among some columns, which hold all forced features."""
        return type(self)(
            self.constant[columns],
            np.flatnonzero(np.isin(columns, self.forced)),
            np.flatnonzero(np.isin(columns, self.excluded)),
        )  # rules are about all columns

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
    # The intercept takes up the mean over classes; the rest is what features explain.
    if params.fit_intercept:
        A = A - A.mean(axis=0)
    return reduce_rank(A)


def squared_label_weight(
    label_weight: float,
    targets: Float64 | None,
) -> float:
    """Return the squared weight w of the labels next to targets (C, r): [A, √w I].

    With ``label_weight`` β the labels carry β times as much as the table: indicators of C
    classes have the sum of squares C − 1 about their mean, so w = β ‖A − mean(A)‖²/(C − 1).
    If all classes are described alike the labels are all there is, and w = β.
    """
    if targets is None:
        return 0.0
    C = len(targets)
    spread = float(((targets - targets.mean(axis=0)) ** 2).sum())
    if spread > 0.0:
        return label_weight * spread / (C - 1)
    return label_weight


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
    panel: Panel | None = None,
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
            candidates=_with_whole_groups(candidates, panel),
            include=candidates.forced,
            n_swaps=params.n_swaps,
            copies=copies,
            monitor=monitor,
            panel=panel,
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
        # where s starts at 0 it stays there
        s_init=np.where(candidates.allowed, s, 0.0),
        monitor=monitor,
    )


def _with_whole_groups(
    candidates: Candidates,
    panel: Panel | None,
) -> Mask:
    """Features (d,) that may be selected: of a group also those of one value only."""
    allowed = candidates.allowed
    if panel is None or panel.unit_of is None:
        return allowed
    unit_of = panel.unit_of
    # A group enters as a whole, so a constant feature enters with its group; by itself it
    # would never be selected.
    n_allowed = np.bincount(unit_of[allowed])
    has_allowed = np.zeros(int(unit_of.max()) + 1, dtype=bool)
    has_allowed[: len(n_allowed)] = n_allowed > 0
    added = candidates.constant & has_allowed[unit_of]
    added[candidates.excluded] = False
    return allowed | added


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
    rules: PanelRules

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
        candidates = user_candidates(params, moments, feature_names, data.preprocessing)
        k = params._n_wanted(moments.n_features)
        # the number of groups is compared with that of included groups later
        candidates.check(
            k if params.groups is None else moments.n_features,
            feature_names,
        )
        # Features that cannot be selected cannot dominate the selection either.
        variances = np.where(candidates.allowed, moments.scatter_diag, 0.0)
        _warn_of_dominant_features(variances, feature_names)
        knowledge, further = further_knowledge(params, objective, table, data.unlabeled)
        if params.attributes is not None:
            _note_classes_alike(params, table, knowledge["knowledge_"])
        rules = _rules(
            params,
            moments,
            table,
            knowledge,
            candidates,
            data,
            feature_names,
        )
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
            rules=rules,
        )

    @property
    def n_steps(self) -> int:
        """Number of steps that the solver takes at most, swaps aside."""
        if self.params.solver != "direct":
            return self.params.max_iter
        panel = self.rules.panel
        # With groups this is their number, although their features enter one by one.
        if panel is None or panel.unit_of is not None:
            return self.n_select
        return panel.most_features(self.moments.n_features)

    def solve(self, monitor: Monitor | None = None) -> Solution:
        """Return the selection that the solver finds."""
        return solve(
            self.params,
            self.objective,
            self.further,
            self.candidates,
            monitor,
            self.quadratic,
            self.rules.panel,
        )

    def fitted(self, solution: Solution) -> Fitted:
        """Return what a solution, also one of an unfinished fit, says in the user's terms."""
        order, scores = self._ranking(solution)
        n_selected = self._n_selected(solution)
        selected = np.sort(order[:n_selected])
        used = np.flatnonzero(solution.s)
        coef = self._in_attributes(solution.V)
        center, target_mean = self._centers()
        gram = _gram_among(solution, selected)
        within = self.objective.within(selected, gram)
        known = {name.removesuffix("_"): value for name, value in self.knowledge.items()}
        rows = self.moments.rows
        batches = None
        batch_offsets = None
        if is_corrected(rows):
            batches = rows.pairs.batches
            batch_offsets = rows.offsets[:, selected]
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
            class_means=self.moments.means[:, selected],
            within=within / self.moments.total,
            table=self.table,
            preprocessing=self.preprocessing,
            feature_names=self.feature_names,
            normal_equations=self._normal_equations(solution),
            copies=solution.copies,
            sample=_calibration_sample(self.moments, selected),
            rules=self.rules.sentences(solution),
            ruled_out=self.candidates.ruled_out,
            marks=self.rules.levels.markers(selected),
            batches=batches,
            batch_offsets=batch_offsets,
            **known,
        )

    def _n_selected(self, solution: Solution) -> int:
        """Number of features to keep."""
        panel = self.rules.panel
        if panel is None or (panel.demands is None and panel.unit_of is None):
            return min(self.n_select, self.candidates.n_selectable)
        # groups differ in size, budgets in reach
        return int(np.count_nonzero(solution.s))

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
        # Classes weigh in the mean of the targets as they do in that of the features.
        shares = self.objective.shares
        return (
            self.objective.mean,
            shares @ self.table.values / shares.sum(),
        )

    def _normal_equations(
        self,
        solution: Solution,
    ) -> NormalEquations | None:
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
        # Equal scores in the order of the columns: sorting found nothing to go by.
        in_column_order = (np.diff(solution.order) > 0).all()
        if len(allowed_scores) > 1 and in_column_order and not np.ptp(allowed_scores):
            warnings.warn(
                "all features score alike and stay in the order of the columns: the classes "
                "do not differ in them, or the penalty, the weights or the step size are too "
                "large.",
                stacklevel=6,
            )
        # a feature of one value may be selected with its group
        group = np.where(self.candidates.constant & (solution.s == 0.0), 2, 1)
        group[self.candidates.forced] = 0
        group[self.candidates.excluded] = 3
        by_group = np.argsort(group[solution.order], kind="stable")
        order = solution.order[by_group]
        return order, np.where(group >= 2, -np.inf, solution.scores)


def user_candidates(
    params: MethodParameters,
    moments: Moments,
    names: Sequence[str] | None,
    preprocessing: Preprocessing = NO_PREPROCESSING,
) -> Candidates:
    """Return the features that the parameters allow; windows are on means of seen classes."""
    outside: dict[str, Indices] = {}
    if params.min_level is not None or params.max_level is not None:
        outside = outside_levels(params, ClassLevels.of(moments, preprocessing))
    return Candidates.from_user(
        moments,
        params.include,
        params.exclude,
        names,
        params.candidates,
        outside,
    )


def _rules(
    params: MethodParameters,
    moments: Moments,
    table: AttributeTable,
    knowledge: Mapping[str, Any],
    candidates: Candidates,
    data: TrainingData,
    names: Sequence[str] | None,
) -> PanelRules:
    """The rules of the panel, with unseen classes where their means are predicted."""
    unseen = None
    if params.min_per_class or params.capacity is not None:
        # Descriptions of unseen classes may have been found of no use; then their predicted
        # means are no ground for demands.
        note = knowledge["knowledge_"].get("unseen classes", "")
        unseen = knowledge["new_table_"] if ", used" in note else None
    levels = ClassLevels.of(moments, data.preprocessing, table, unseen)
    rules = panel_rules(
        params,
        levels,
        candidates.allowed,
        candidates.constant,
        candidates.forced,
        candidates.ruled_out,
        names,
    )
    n_left = candidates.n_selectable
    windows = [rule for rule in ("min_level", "max_level") if rule in candidates.ruled_out]
    k = params._n_wanted(moments.n_features)
    if windows and params.n_features_to_select is not None and k > n_left:
        message = f"leaves {n_left} features, fewer than n_features_to_select={k}."
        raise ParameterError(windows[-1], message)
    return rules


def _gram_among(solution: Solution, features: Indices) -> Float64 | None:
    """G (k, k) of some features, if the solver knows it: of those that entered it does."""
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
) -> CalibrationSample | None:
    """A few samples of each class, by which predictions are calibrated; None beyond memory."""
    rows = moments.rows
    n_classes = len(moments.classes)
    if is_corrected(rows) and in_memory(rows.uncorrected.rows):
        # only the selected features are corrected, because only they are needed
        Z = rows.samples().columns(selected).toarray()
        corrected = MemoryRows(Z, rows.codes, rows.weights)
        return CalibrationSample.drawn(corrected, np.arange(len(selected)), n_classes)
    if not in_memory(rows):
        return None
    return CalibrationSample.drawn(rows, selected, n_classes)


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
    # -0.0 is 0.0
    for label, values in zip(table.classes.tolist(), table.values + 0.0):
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


def _warn_of_dominant_features(
    variances: Float64,
    names: Sequence[str] | None,
) -> None:
    """Name the few features that together have nearly all of the variance (d,)."""
    total = max(float(variances.sum()), np.finfo(float).tiny)
    shares = variances / total
    largest = np.argsort(-shares, kind="stable")[:MOST_DOMINANT]
    reached = np.cumsum(shares[largest])
    if reached[-1] <= DOMINANT_VARIANCE:
        return
    # The fewest features that exceed the share, and among how many that is remarkable.
    n = 1 + int(np.argmax(reached > DOMINANT_VARIANCE))
    n_varying = np.count_nonzero(shares)
    if n_varying < (3 if n == 1 else FEATURES_PER_DOMINANT * n):
        return
    found = [feature_name(int(j), names) for j in largest[:n]]
    if n == 1:
        text = f"{found[0]} has {reached[0]:.0%} of the variance of all features"
        remedy = "Exclude it if it is not a measurement"
    else:
        several = f"{', '.join(found[:-1])} and {found[-1]}"
        share = f"{reached[n - 1]:.0%}"
        text = f"{several} together have {share} of the variance of all features"
        remedy = "Exclude those that are not measurements"
    warnings.warn(
        f"{text} and will dominate the selection. {remedy}; scale the features to unit "
        "variance if their units differ.",
        stacklevel=6,
    )
