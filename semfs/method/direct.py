"""The direct solver: forward selection, under the rules of a panel, and then exchanges.

It is direct in that it solves the paper's 0/1 problem itself, not its relaxation as Algorithm 1
(`semfs.method.alternating`) does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from semfs._typing import Indices, Mask
from semfs.arrays import quiet_overflow
from semfs.method.alternatives import without_each_group, without_each_rule
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.exchange import exchange
from semfs.method.forward import forward_selection
from semfs.method.panel import Panel
from semfs.method.panel_search import select_panel
from semfs.method.quadratic import Monitor, Quadratic, Solution


@quiet_overflow
def solve_direct(
    quadratics: Sequence[Quadratic],
    n_select: int,
    *,
    candidates: Mask | None = None,
    include: Indices | None = None,
    n_swaps: int = 0,
    copies: NearCopies | None = None,
    monitor: Monitor | None = None,
    panel: Panel | None = None,
) -> Solution:
    """Select features by `forward_selection`, under rules and with exchanges if there are any.

    Without swaps, rules and panel the selection is nested: the first k of the order are the
    answer for k.

    Parameters
    ----------
    quadratics : sequence of Quadratic
        Problems over the same d features.
    n_select : int
        Number of features to select. It is ignored if there is a ``panel``.
    candidates : mask of shape (d,), optional
        Features that may be selected; the others are at the end of the order.
    include : array of int, optional
        Features that are selected before all others. They count toward ``n_select``.
    n_swaps : int
        Afterwards, at most this many exchanges of a selected feature for another one are made,
        each of which lowers J.
    copies : NearCopies, optional
        Features that are almost proportional to a selected one are skipped, except those of
        ``include``. They are selected only if nothing else is left.
    monitor : callable, optional
        Called after each step (see `Monitor`); a true answer ends the forward selection.
    panel : Panel, optional
        Demands on the selection as a whole: groups, costs, a budget, markers per class. It then
        says how many units (features, or groups of them) are selected.

    Returns
    -------
    Solution
        Its order ranks all d features: the selected ones first. W is that of the first
        quadratic, the one of the seen classes; scores and J are those of the sum.

    Examples
    --------
    >>> G, B = np.eye(3), np.array([[1.0], [3.0], [2.0]])
    >>> quadratic = Quadratic(
    ...     q=20.0, B=B, diag=np.diag(G), gamma=1.0, columns=lambda i: G[:, i], eps=1e-16
    ... )
    >>> found = solve_direct([quadratic], 2)
    >>> found.order, found.objective
    (array([1, 2, 0]), array([15.5, 13.5]))
    """
    d = len(quadratics[0].diag)
    forced = np.zeros(d, dtype=bool)
    if include is not None:
        forced[include] = True
    # What the user includes may be selected even if it is no candidate.
    allowed = np.ones(d, dtype=bool) if candidates is None else candidates | forced
    caches = [ColumnCache(quadratic.columns) for quadratic in quadratics]
    # Without a panel, the only demand is the number of features.
    wanted = Panel(n_select) if panel is None else panel
    search = select_panel(quadratics, caches, wanted, allowed, forced, monitor, copies)
    solution = search.solution()
    _check_finite(solution, allowed)
    # What the rules cost is found later, if somebody asks, from the columns that were fetched.
    solution = replace(
        solution,
        relaxed=without_each_rule(search, wanted),
        left_out=without_each_group(search, wanted),
    )
    # If nothing lowers J, all residuals are zero, and no exchange can lower it either.
    if n_swaps and sum(search.decreases) > 0.0:
        # `exchange` returns the final set. Its ranking is a forward selection among them.
        swapped = np.zeros(d, dtype=bool)
        swapped[exchange(search, n_swaps)] = True
        search = search.restarted(forced=swapped)
        forward_selection(search)
        solution = replace(search.solution(), relaxed=solution.relaxed)
    return solution


def _check_finite(solution: Solution, allowed: Mask) -> None:
    """Raise if numbers overflowed on the way.

    Scores of features that may not be selected are −inf by design.
    """
    # NumPy's warnings of overflow are off during the search (`quiet_overflow`), so what
    # is returned is checked instead.
    results = (solution.scores[allowed], solution.V, solution.objective)
    if not all(np.isfinite(values).all() for values in results):
        raise ValueError(
            "The scores overflow. Rescale X and the attributes, for example to unit "
            "variance, or use smaller parameters."
        )
