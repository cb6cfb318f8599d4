"""Forward selection of groups of features: all columns of a group enter, or none.

The gain of a group g is tr(R_g' Δ_gg⁻¹ R_g) with Δ_gg = G_gg + γI − L_g L_g', the Schur
complement of the selected features. It needs the Gram columns of the group. But Δ_gg − γI is
positive semidefinite, so the gain is at most ‖R_g‖²/γ, which needs no columns. Therefore
columns are fetched only for groups whose bound exceeds the largest known gain.

That bound is far too large if γ is small. So where there are many features, a group counts for
no more than its features would gain one by one, Σ_j ‖R_j‖²/δ_j, which needs no Gram column
either. Features of a group mostly repeat each other and gain less together; where they
complement each other, the group is rated by the sum. The decrease of J is always exact.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.cholesky import PivotedCholesky
from semfs.method.columns import ColumnCache
from semfs.method.prefetch import best_feature, per_cost
from semfs.method.quadratic import Quadratic
from semfs.method.rules import Rule
from semfs.method.search import Search

#: Pivots of a group below this share of the largest are rounding errors (only if γ is 0).
SMALLEST_PIVOT = 1e-12
#: With at most so many features, the exact gains of all groups decide. They need the columns of
#: all features, which are few enough for one batch.
FEW_FEATURES = 128


class GroupSearch(Search):
    """A search that selects groups of features, ``n_groups`` of them.

    ``unit_of`` (d,) is the group of each feature, counted from 0. ``costs`` (U,) are those of
    groups.
    """

    def __init__(
        self,
        quadratics: Sequence[Quadratic],
        caches: Sequence[ColumnCache],
        n_groups: int | None,
        allowed: Mask,
        forced: Mask,
        unit_of: Indices,
        rule: Rule | None = None,
        costs: Float64 | None = None,
    ) -> None:
        """Start without features. The whole groups of forced features are forced."""
        self.unit_of = unit_of
        self.n_units = int(unit_of.max()) + 1
        self.n_groups = n_groups
        # Features sorted by group, cut where the next group begins.
        by_unit = np.argsort(unit_of, kind="stable")
        sizes = np.bincount(unit_of, minlength=self.n_units)
        self.members = np.split(by_unit, np.cumsum(sizes)[:-1])
        # Columns of the Cholesky factor: no n groups have more features than the largest.
        largest = np.sort(sizes)[::-1]
        n_select = int(largest[:n_groups].sum())
        self.unit_costs = costs
        has_forced = np.bincount(unit_of[forced], minlength=self.n_units) > 0
        forced = has_forced[unit_of]
        allowed = allowed | forced
        super().__init__(quadratics, caches, n_select, allowed, forced, None, rule)
        self._blocks: list[dict[int, Float64]] = [{} for _ in quadratics]

    # ---- one step ----------------------------------------------------------------------

    def best(self, gains: Float64) -> int | None:
        """Return the next feature of a group that is partly selected, or of the best group."""
        # Features enter one by one, as columns of the Cholesky factor. The gains of a group
        # add up to tr(R_g' Δ_gg⁻¹ R_g) in any order.
        waiting = self._begun() & ~self.is_selected
        if not waiting.any():
            unit = self._best_unit()
            if unit is None:
                return None
            waiting[self.members[unit]] = True
        return best_feature(np.where(waiting, gains, -1.0), self.eps)

    @property
    def n_selected_units(self) -> int:
        """Number of groups selected."""
        return len(np.unique(self.unit_of[self.selected]))

    def _begun(self) -> Mask:
        """Return the features (d,) of groups of which one feature is selected."""
        begun = np.zeros(self.n_units, dtype=bool)
        begun[self.unit_of[self.is_selected]] = True
        return begun[self.unit_of]

    def _best_unit(self) -> int | None:
        """The group to select next: forced ones first, then that of the largest score."""
        taken = np.zeros(self.n_units, dtype=bool)
        taken[self.unit_of[self.selected]] = True
        if self.n_groups is not None and int(taken.sum()) >= self.n_groups:
            return None
        forced = self._units(self.forced) & ~taken
        if forced.any():
            return self._largest(forced, None)
        return self._largest(self._units(self.allowed) & ~taken, self.rule)

    def _units(self, features: Mask) -> Mask:
        """Return the groups (U,) all of whose features are in a mask (d,)."""
        missing = np.bincount(self.unit_of[~features], minlength=self.n_units)
        return missing == 0

    def _largest(self, units: Mask, rule: Rule | None) -> int | None:
        """Return the group of the largest gain, or gain per cost, that a rule permits."""
        limits = self._bounds()
        bounds = per_cost(limits, self.unit_costs)
        gains = np.zeros(self.n_units)
        known = np.zeros(self.n_units, dtype=bool)
        refused: list[int] = []
        while True:
            eligible = units.copy()
            if rule is not None:
                eligible &= self._units(rule.allowed() | self.is_selected)
            eligible[refused] = False
            if not eligible.any():
                return None
            scores = per_cost(gains, self.unit_costs)
            best = float(scores[eligible & known].max(initial=-1.0))
            # A group whose bound is below the best known gain cannot be the best.
            unknown = np.flatnonzero(eligible & ~known & (bounds >= best))
            if unknown.size:
                by_bound = np.argsort(-bounds[unknown], kind="stable")
                unknown = unknown[by_bound]
                asked = self._next_batch(unknown)
                gains[asked] = np.minimum(self._unit_gains(asked), limits[asked])
                known[asked] = True
                continue
            candidates = np.where(eligible & known, scores, -1.0)
            found = best_feature(candidates, self.eps)
            # The rule asks for the unit of a feature; any member stands for it.
            if rule is None or rule.permits(int(self.members[found][0])):
                return found
            refused.append(found)

    def _bounds(self) -> Float64:
        """What each group (U,) gains at most; infinite if nothing is known without columns.

        It is ‖R_g‖²/γ, and of many features the sum of their gains one by one.
        """
        if int(self.allowed.sum()) > FEW_FEATURES:
            # a single feature gains just that much: rounding must not hide it
            sums = np.bincount(self.unit_of, self.gains(), self.n_units)
            return np.asarray(sums * (1.0 + 1e-9))
        total = np.zeros(self.n_units)
        for factor in self.factors:
            if factor.gamma <= 0.0:
                return np.full(self.n_units, np.inf)
            norms = np.maximum(factor.squared_norms, 0.0)
            sums = np.bincount(self.unit_of, norms, self.n_units)
            total += sums / factor.gamma
        return total * (1.0 + 1e-9)  # rounding must not hide a group

    def _next_batch(self, units: Indices) -> Indices:
        """The first of some groups: those whose columns are at hand, or one more batch."""
        # Units come by falling bound. What is at hand costs no pass over the data, so it goes
        # first as long as no group with a larger bound is missing.
        at_hand = [unit in self._blocks[0] for unit in units.tolist()]
        n_first = len(units) if all(at_hand) else int(np.argmin(at_hand))
        if n_first:
            return units[: min(n_first, self.fetch_sizes.least)]
        missing = units[~np.array(at_hand)]
        sizes = np.array([len(self.members[unit]) for unit in missing.tolist()])
        least = self.fetch_sizes.least
        n_groups = self.n_groups or least
        wanted = max(least, int(1.25 * n_groups * sizes.mean()))
        # Whole groups only: half of a group has no gain. A quarter more than what the search
        # will select, because bounds are not gains.
        within = np.cumsum(sizes) <= min(wanted, 4 * self.fetch_sizes.most)
        batch = missing[: max(1, int(within.sum()))]
        columns = np.concatenate([self.members[unit] for unit in batch.tolist()])
        columns = np.union1d(columns, self._also)
        self._also = np.zeros(0, dtype=np.intp)
        for cache, blocks in zip(self.caches, self._blocks):
            cache.fetch(columns.tolist())
            for unit in batch.tolist():
                blocks[unit] = _block(cache, self.members[unit])
        return batch

    def _unit_gains(self, units: Indices) -> Float64:
        """Return the decrease of J (n,) if each of some groups were selected next."""
        total = np.zeros(len(units))
        members = [self.members[unit] for unit in units.tolist()]
        for factor, blocks in zip(self.factors, self._blocks):
            among = [blocks[unit] for unit in units.tolist()]
            total += _block_gains(factor, members, among)
        return total


def _block(cache: ColumnCache, features: Indices) -> Float64:
    """Return G (s, s) among the features of a group."""
    return np.column_stack([cache[j][features] for j in features.tolist()])


def _block_gains(
    factor: PivotedCholesky, members: list[Indices], blocks: list[Float64]
) -> Float64:
    """Gains tr(R_g' Δ_gg⁻¹ R_g) of groups, all of them at once: filled up to one size."""
    # Padded entries have R = 0 and the identity in Δ, so they add nothing to the trace.
    size = max(len(features) for features in members)
    sizes = np.array([len(features) for features in members])
    is_filled = np.arange(size) < sizes[:, None]
    places = np.zeros((len(members), size), dtype=np.intp)
    places[is_filled] = np.concatenate(members)
    R = factor.residual(places.ravel()).reshape(len(members), size, -1)
    R = np.where(is_filled[:, :, None], R, 0.0)
    L = factor.L[places.ravel()].reshape(len(members), size, -1)
    delta = np.zeros((len(members), size, size))
    for i, block in enumerate(blocks):
        delta[i, : len(block), : len(block)] = block
    delta += factor.gamma * np.eye(size) - L @ L.transpose(0, 2, 1)
    both = is_filled[:, :, None] & is_filled[:, None, :]
    delta = np.where(both, delta, np.eye(size))
    if factor.gamma > 0.0:
        solved = np.linalg.solve(delta, R)
    else:
        # Without a penalty Δ_gg is singular if features of a group repeat each other.
        solved = np.linalg.pinv(delta, SMALLEST_PIVOT, hermitian=True) @ R
    return np.asarray((solved * R).sum(axis=(1, 2)))
