"""Information besides labeled samples: descriptions of unseen classes, and unlabeled samples.

Each becomes a problem of the paper's form, "separate these classes", which is added to the
problem of the seen classes. Each also gives a sentence for ``knowledge_`` that says how it was
used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import Mask
from semfs.attributes import AttributeTable
from semfs.method.class_means import unseen_class_problem
from semfs.method.objective import Objective
from semfs.method.quadratic import Quadratic
from semfs.selectors.training_checks import classes_alike
from semfs.selectors.unlabeled_classes import UnlabeledClasses, unlabeled_classes
from semfs.selectors.unseen_classes import unseen_descriptions
from semfs.validation import ParameterError, warn_user

if TYPE_CHECKING:
    from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows, UnlabeledStream
    from semfs.selectors.parameters import MethodParameters

#: Sources of information, as ``knowledge_`` names them.
UNSEEN_CLASSES = "unseen classes"
UNLABELED_SAMPLES = "unlabeled samples"


@dataclass(frozen=True, eq=False)
class Knowledge:
    """Information besides labeled samples, and how it is used."""

    notes: Mapping[str, str]  # by source of information, what was done with it and why
    unseen: AttributeTable | None  # descriptions of the unseen classes
    unseen_problem: Quadratic | None  # of separating them; None if they are not used
    target_r2: float  # share of the spread of class means that descriptions predict
    unlabeled: UnlabeledClasses  # clusters of the unlabeled samples

    @property
    def unused(self) -> list[str]:
        """Return the sources in ``notes`` that were found to be of no use."""
        problems = {
            UNSEEN_CLASSES: self.unseen_problem,
            UNLABELED_SAMPLES: self.unlabeled.problem,
        }
        return [
            source
            for source, problem in problems.items()
            if source in self.notes and problem is None
        ]

    @property
    def problems(self) -> list[Quadratic]:
        """Return the problems to solve in addition to that of the seen classes."""
        problems = []
        if self.unseen_problem is not None:
            problems.append(self.unseen_problem.penalized_by(self.unlabeled.penalty_of_others))
        if self.unlabeled.problem is not None:
            problems.append(self.unlabeled.problem)
        return problems

    def ignoring(self, features: Mask) -> Knowledge:
        """Return the same without features (d,) that are constant in the seen classes.

        The clusters keep them: in unlabeled samples they may vary.
        """
        if self.unseen_problem is None:
            return self
        return replace(self, unseen_problem=self.unseen_problem.ignoring(features))


def further_knowledge(
    params: MethodParameters,
    objective: Objective,
    table: AttributeTable,
    unlabeled: UnlabeledRows | UnlabeledStream | None,
) -> Knowledge:
    """Return the information besides labeled samples, and how it is used.

    ``objective`` and ``table`` are those of the seen classes.
    """
    direct = params.solver == "direct"
    # the alternating solver has one objective, and no place for another
    if unlabeled is not None and not direct:
        raise ValueError('Unlabeled samples can be used only with solver="direct".')
    n_seen = len(table.classes)
    described = "" if params.attributes is None else f", {len(table.names)} attributes"
    notes = {"seen classes": f"used: {n_seen} classes{described}"}

    unseen = unseen_descriptions(params.attributes, params.target_attributes, table)
    unseen_problem = None
    r2 = float("nan")
    others = f"the {n_seen} seen classes"
    if unseen is not None and direct:
        found = unseen_class_problem(objective, table.values, unseen.values)
        unseen_problem = found.problem
        r2 = found.r2
        n_unseen = len(unseen.classes)
        notes[UNSEEN_CLASSES] = f"{n_unseen} described, {found.note}"
        if unseen_problem is not None:
            others = f"the {n_seen} seen and {n_unseen} described classes"
        elif not isinstance(params.target_attributes, str):
            warn_user(f"target_attributes was {found.note}.")

    clusters = UnlabeledClasses(0, np.zeros(0, dtype=np.intp))
    if unlabeled is not None:
        n_clusters = _number_of_clusters(params.n_new_classes, unseen)
        clusters = unlabeled_classes(objective, unlabeled, n_clusters)
        n_other_problems = 1 if unseen_problem is None else 2
        notes[UNLABELED_SAMPLES] = clusters.sentence(others, n_other_problems)

    alike = "" if params.attributes is None else classes_alike(params, table)
    if alike:
        notes["classes described alike"] = alike
    return Knowledge(notes, unseen, unseen_problem, r2, clusters)


def _number_of_clusters(n_new_classes: int | str, unseen: AttributeTable | None) -> int | str:
    """Return the number of clusters to find, or "auto"; "table" counts described classes."""
    if n_new_classes != "table":
        return n_new_classes
    n_described = 0 if unseen is None else len(unseen.classes)
    if n_described < 2:
        raise ParameterError(
            "n_new_classes",
            f'is "table", but the table describes {n_described} unseen classes. '
            'Describe at least two unseen classes, or choose "auto" or a number.',
        )
    return n_described
