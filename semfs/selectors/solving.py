"""Calls the solver that the parameters name."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semfs._typing import Mask
from semfs.method.alternating import solve_alternating
from semfs.method.direct import solve_direct
from semfs.method.objective import Objective
from semfs.method.panel import Panel
from semfs.method.quadratic import Monitor, Quadratic, Solution
from semfs.selectors.candidates import Candidates
from semfs.selectors.parameters import MethodParameters
from semfs.validation import ParameterError


def solve(
    params: MethodParameters,
    objective: Objective,
    candidates: Candidates,
    *,
    quadratic: Quadratic | None = None,
    further: Sequence[Quadratic] = (),
    panel: Panel | None = None,
    monitor: Monitor | None = None,
) -> Solution:
    """Return the solution of the solver that the parameters name.

    ``quadratic`` is the objective in the form for forward selection, if it exists already.
    ``further`` are problems that the selected features must solve as well.
    """
    d = objective.n_features
    if params.solver == "direct":
        copies = None
        if params.max_correlation is not None:
            copies = objective.near_copies(params.max_correlation)
        return solve_direct(
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
    """Return the features (d,) that may be selected, including constant ones in groups."""
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
