"""The optimization problem of a fit: from training data and parameters to a solution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from semfs._typing import Float64, Mask
from semfs.attributes import AttributeTable, align_attributes
from semfs.method.moments import Moments
from semfs.method.objective import Objective
from semfs.method.quadratic import Monitor, Quadratic, Solution
from semfs.rows import OutOfCoreRows, Preprocessing
from semfs.selectors.candidates import Candidates, user_candidates
from semfs.selectors.inputs.number_range import check_range_of_attributes
from semfs.selectors.inputs.training_data import TrainingData
from semfs.selectors.knowledge import Knowledge, further_knowledge
from semfs.selectors.parameters import MethodParameters
from semfs.selectors.rules.class_levels import ClassLevels
from semfs.selectors.rules.panel_maker import panel_rules
from semfs.selectors.rules.panel_rules import PanelRules
from semfs.selectors.seen_objective import attribute_targets, seen_objective
from semfs.selectors.solving import solve
from semfs.selectors.table_scale import warn_of_uneven_attributes
from semfs.selectors.training_checks import (
    check_one_row_per_class,
    check_two_classes,
    warn_of_constant_attributes,
    warn_of_dominant_features,
    warn_of_row_numbers,
)
from semfs.selectors.unlabeled_scale import warn_of_other_units
from semfs.validation import ParameterError


@dataclass(frozen=True, eq=False)
class Problem:
    """Select features that reduce J of the seen classes and of further information."""

    params: MethodParameters
    moments: Moments  # of the seen classes
    table: AttributeTable  # their descriptions
    basis: Float64 | None  # (m, r), of the targets
    objective: Objective  # J of the seen classes
    quadratic: Quadratic  # the same, as forward selection sees it, perhaps less penalized
    candidates: Candidates
    n_select: int
    knowledge: Knowledge  # what else is known, and the problems that makes
    feature_names: Sequence[str] | None
    preprocessing: Preprocessing
    rules: PanelRules
    source: OutOfCoreRows | None  # of the samples beyond memory
    only_unlabeled: Mask  # (d,), features that only clusters of unlabeled samples vary in

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
            check_one_row_per_class(params.attributes, moments)
            warn_of_constant_attributes(table)
            warn_of_uneven_attributes(table)
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
        _warn_of_features(moments, candidates, feature_names)
        knowledge = further_knowledge(params, objective, table, data.unlabeled)
        clusters = knowledge.unlabeled
        if clusters.moments is not None and not clusters.is_off_scale:
            warn_of_other_units(moments, clusters.moments, candidates.allowed, feature_names)
        # such as a gene of an unseen type: it competes by what it says about the clusters
        only_unlabeled = knowledge.unlabeled.vary_in(candidates.constant)
        knowledge = knowledge.ignoring(only_unlabeled)
        candidates = candidates.with_varying(only_unlabeled)
        rules = _rules(
            params,
            moments,
            table,
            knowledge,
            candidates,
            data,
            feature_names,
        )
        quadratic = objective.quadratic().ignoring(only_unlabeled)
        return cls(
            params=params,
            moments=moments,
            table=table,
            basis=basis,
            objective=objective,
            quadratic=quadratic.penalized_by(knowledge.unlabeled.penalty_of_others),
            candidates=candidates,
            n_select=min(k, moments.n_features),
            knowledge=knowledge,
            feature_names=feature_names,
            preprocessing=data.preprocessing,
            rules=rules,
            only_unlabeled=only_unlabeled,
            source=data.source,
        )

    @property
    def n_steps(self) -> int:
        """The maximum number of steps of the solver, without swaps."""
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
            self.candidates,
            quadratic=self.quadratic,
            further=self.knowledge.problems,
            panel=self.rules.panel,
            monitor=monitor,
        )


def _warn_of_features(
    moments: Moments,
    candidates: Candidates,
    feature_names: Sequence[str] | None,
) -> None:
    """Warn of features that dominate the selection or are no measurements."""
    # Features that cannot be selected cannot dominate the selection either.
    variances = np.where(candidates.allowed, moments.scatter_diag, 0.0)
    warn_of_dominant_features(variances, feature_names)
    warn_of_row_numbers(moments, candidates.allowed, feature_names)


def _rules(
    params: MethodParameters,
    moments: Moments,
    table: AttributeTable,
    knowledge: Knowledge,
    candidates: Candidates,
    data: TrainingData,
    names: Sequence[str] | None,
) -> PanelRules:
    """Return the rules of the panel. They include unseen classes whose means are predicted."""
    # Descriptions of unseen classes may have been found of no use; then their predicted means
    # are no ground for demands.
    unseen = None if knowledge.unseen_problem is None else knowledge.unseen
    levels = ClassLevels.of_fit(params, moments, data.preprocessing, table, unseen)
    rules = panel_rules(
        params,
        levels,
        candidates.constant,
        candidates.forced,
        candidates.ruled_out,
        names,
    )
    rules = replace(rules, overruled=candidates.overruled)
    n_left = candidates.n_selectable
    windows = [rule for rule in ("min_level", "max_level") if rule in candidates.ruled_out]
    k = params._n_wanted(moments.n_features)
    if windows and params.n_features_to_select is not None and k > n_left:
        message = f"leaves {n_left} features, fewer than n_features_to_select={k}."
        raise ParameterError(windows[-1], message)
    return rules
