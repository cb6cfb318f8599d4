"""Forward selection under the rules of a panel: groups, a budget, demands on the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.forward import forward_selection
from semfs.method.groups import GroupSearch
from semfs.method.panel import Panel
from semfs.method.prefetch import TIE_EPS
from semfs.method.quadratic import Monitor, Quadratic
from semfs.method.rules import rule_of
from semfs.method.search import Search
from semfs.method.small_problem import SmallProblem

#: Features of the best gains that are looked at whatever they cost, at least.
N_BEST = 8
#: The same as a share of the number of units, if there is one besides the budget: gain per
#: cost alone would then leave money unused. (Measured with 50 features of human lung, CUB and
#: made-up data: half as many more of the best lower J by 1 to 6 %, all of them by no more.)
BEST_SHARE = 0.5
#: Features that a rule keeps out, whose Gram columns are fetched with the first batch all the
#: same, to say what the rule costs. They widen that batch, but need no further pass.
N_FREED = 64
#: Features of the best gains that are at hand as well, because a panel without a rule may need
#: others than the search under it.
N_BESIDE = 32


def select_panel(
    quadratics: Sequence[Quadratic],
    caches: Sequence[ColumnCache],
    panel: Panel,
    allowed: Mask,
    forced: Mask,
    monitor: Monitor | None = None,
    copies: NearCopies | None = None,
) -> Search:
    """Return the search that found the best panel; of a budget the better one of two.

    Selecting by gain per cost alone can be arbitrarily bad: a cheap feature of little gain
    comes before an expensive one of large gain. So features are also selected by gain alone,
    among those that were selected by gain per cost and those of largest gain. The answer
    depends on the problem alone, and not on which Gram columns were fetched.
    """
    search = _new_search(quadratics, caches, panel, allowed, forced, copies)
    beside = _beside(search, panel)
    nothing = np.zeros(0, dtype=np.intp)
    search.prefetch_too(nothing, beside)
    if panel.costs is None:
        forward_selection(search, monitor)
        return search
    best = _best_alone(search, panel)
    search.prefetch_too(best, beside)
    forward_selection(search, monitor)
    if len(search.selected) < search.n_select and search.best(search.gains()) is not None:
        return search  # the monitor ended it
    among = search.is_selected | forced
    among[best] = True
    # A search on a problem of these few features alone takes next to no time.
    by_gain = replace(panel, costs=None)
    small = SmallProblem.of(search, by_gain, np.flatnonzero(among), search.required)
    found = search_among(small)
    # Gains that are equal up to rounding are ties, and of ties the first search wins.
    enough = sum(search.decreases) * (1.0 + TIE_EPS * search.eps)
    if sum(found.decreases) <= enough:
        return search
    # The ranking is of all features, so they all have to know what was selected.
    order = small.features[found.selected]
    # no costs and demands: nothing is left to decide
    same_size = Panel(found.n_selected_units, panel.unit_of)
    other = _new_search(quadratics, caches, same_size, allowed, forced, copies)
    other.beside = search.beside
    for cache in caches:
        cache.fetch(order.tolist())
    if copies is not None:
        copies.find(order.tolist())
    other.add_all(order)
    return other


def search_among(small: SmallProblem) -> Search:
    """Return the search that found the best panel among a few features."""
    allowed = np.ones(len(small.features), dtype=bool)
    return select_panel(
        small.quadratics,
        small.caches(),
        small.panel,
        allowed,
        small.forced,
        copies=small.copies,
    )


def _best_alone(search: Search, panel: Panel) -> Indices:
    """The features that may be selected whose gains are the largest with nothing selected."""
    demands = panel.demands
    gains = np.where(search.allowed, search.gains(), -1.0)
    if demands is not None:
        affordable = np.asarray((demands.usage <= demands.most[:, None]).all(axis=0))
        if panel.unit_of is not None:
            affordable = affordable[panel.unit_of]
        gains[~affordable] = -1.0
    n_best = N_BEST
    if panel.n_units is not None:
        n_best = max(N_BEST, int(BEST_SHARE * panel.n_units))
    best = np.argsort(-gains, kind="stable")[:n_best]
    best = best[gains[best] >= 0.0]
    if panel.unit_of is not None:
        # A group enters with all its features.
        best = np.flatnonzero(np.isin(panel.unit_of, panel.unit_of[best]))
    return best[search.allowed[best]]


def _new_search(
    quadratics: Sequence[Quadratic],
    caches: Sequence[ColumnCache],
    panel: Panel,
    allowed: Mask,
    forced: Mask,
    copies: NearCopies | None,
) -> Search:
    """A search with nothing selected; groups may have near copies."""
    rule = None
    if panel.demands is not None and panel.feasible is not None:
        rule = rule_of(panel.demands, panel.feasible, panel.unit_of)
    if panel.unit_of is not None:
        return GroupSearch(
            quadratics,
            caches,
            panel.n_units,
            allowed,
            forced,
            panel.unit_of,
            rule,
            panel.costs,
        )
    n_select = panel.most_features(len(allowed))
    return Search(quadratics, caches, n_select, allowed, forced, copies, rule, panel.costs)


def _beside(search: Search, panel: Panel) -> Indices:
    """Features that searches without a rule may need besides those that were fetched."""
    if not panel.relaxed:
        return np.zeros(0, dtype=np.intp)
    freed = _best_freed(search, panel)
    if panel.unit_of is not None or not search.in_memory:
        return freed  # columns of further features would take too long
    gains = np.where(search.allowed, search.gains(), -1.0)
    best = np.argpartition(-gains, min(N_BESIDE, len(gains) - 1))[:N_BESIDE]
    return np.union1d(freed, best[gains[best] >= 0.0])


def _best_freed(search: Search, panel: Panel) -> Indices:
    """Of the features that rules keep out, a few whose gains are the largest at the start."""
    found = np.zeros(0, dtype=np.intp)
    gains = search.gains()
    for other in panel.relaxed.values():
        if other.freed is None:
            continue
        features = np.flatnonzero(other.freed)
        if len(features) > N_FREED:
            features = _first_units(features, gains, other.unit_of)
        found = np.union1d(found, features)
    return found


def _first_units(
    features: Indices,
    gains: Float64,
    unit_of: Indices | None,
) -> Indices:
    """About `N_FREED` of many features: those of the largest gains, in whole groups."""
    if unit_of is None:
        by_gain = np.argsort(-gains[features], kind="stable")
        return features[by_gain[:N_FREED]]
    _, unit = np.unique(unit_of[features], return_inverse=True)
    sizes = np.bincount(unit)
    by_gain = np.argsort(-np.bincount(unit, gains[features]), kind="stable")
    n_units = int((np.cumsum(sizes[by_gain]) <= N_FREED).sum())
    # A group larger than that is looked at nevertheless, if it is the best.
    return features[np.isin(unit, by_gain[: max(n_units, 1)])]
