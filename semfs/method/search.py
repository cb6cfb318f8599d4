"""The state of a greedy search: selected features, factorizations, and Gram columns at hand."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from semfs._typing import Float64, Floats, Indices, Mask
from semfs.method.cholesky import PivotedCholesky
from semfs.method.columns import ColumnCache, NearCopies
from semfs.method.prefetch import (
    best_feature,
    best_permitted,
    per_cost,
    predict_columns,
    promising_features,
)
from semfs.method.quadratic import Quadratic, Solution
from semfs.method.rules import Rule

#: Batches are filled up to a multiple of this, the width that BLAS computes at once: 63 columns
#: take longer than 64, and those added are sometimes the ones that were not predicted.
COLUMNS_AT_ONCE = 16
#: If so few features are still to be selected, their columns are not predicted any more.
FEW_COLUMNS = 8


class Search:
    """The features selected so far. Gains of several quadratics are added.

    ``allowed`` (d,) marks the features that may be selected, ``forced`` (d,) those that are
    selected before all others. Near copies of selected features wait until all others are
    selected, unless they are forced.
    """

    def __init__(
        self,
        quadratics: Sequence[Quadratic],
        caches: Sequence[ColumnCache],
        n_select: int,
        allowed: Mask,
        forced: Mask,
        copies: NearCopies | None = None,
        rule: Rule | None = None,
        costs: Float64 | None = None,
    ) -> None:
        """Begin with no feature selected; ``caches`` hold Gram columns, one per quadratic.

        With ``costs`` (d,) the feature of the largest gain per cost is the best.
        """
        self.quadratics = quadratics
        self.caches = caches
        # Room for n_select columns is reserved at once; factors never grow beyond it.
        self.factors = [PivotedCholesky(p.B, p.diag, p.gamma, n_select) for p in quadratics]
        # one batch of features is fetched for all quadratics
        self.fetch_sizes = quadratics[0].fetch_sizes
        self.n_select = n_select
        self.allowed = allowed
        self.forced = forced
        self.rule = rule
        self.costs = costs
        # as the user asked for, also in a search that is restarted
        self.required = forced
        self.q = sum(p.q for p in quadratics)
        self.eps = max(p.eps for p in quadratics)
        self.selected: list[int] = []  # in the order of selection
        self.decreases: list[float] = []  # of J, one for each
        self.is_selected = np.zeros(len(allowed), dtype=bool)
        self.copies = copies
        #: The selected feature (d,) that a feature nearly copies, -1 if there is none.
        self.copy_of = np.full(len(allowed), -1, dtype=np.intp)
        # The features that estimates of G are about, and the estimates, one per quadratic.
        self._estimated: Indices = np.zeros(0, dtype=np.intp)
        self._estimates: list[Floats] | None = None
        # to be fetched with the next batch
        self._also: Indices = np.zeros(0, dtype=np.intp)
        #: Features whose Gram entries among others are at hand, although their columns may
        #: not be.
        self.beside: Indices = np.zeros(0, dtype=np.intp)

    def restarted(self, forced: Mask) -> Search:
        """Return a search from the start for the forced features, Gram columns kept."""
        # Only forced features enter, so rules and costs have nothing left to decide.
        n_select = int(forced.sum())
        search = Search(
            self.quadratics,
            self.caches,
            n_select,
            self.allowed,
            forced,
            self.copies,
        )
        search.required = self.required
        return search

    # ---- one step ----------------------------------------------------------------------

    def gains(self) -> Float64:
        """Return the decrease of the sum of all J (d,) if the feature were selected next."""
        total = np.zeros(len(self.is_selected))
        for factor in self.factors:
            total += factor.gains()
        return np.where(self.is_selected, 0.0, total)

    def best(self, gains: Float64) -> int | None:
        """Return the feature to select next by its gain (d,), None if no feature is left."""
        waiting = self.forced & ~self.is_selected
        if waiting.any():
            return best_feature(np.where(waiting, gains, -1.0), self.eps)
        left = self.allowed & ~self.is_selected
        scores = per_cost(gains, self.costs)
        # near copies only if nothing else is possible
        for features in (self._distinct_left(), left):
            found = best_permitted(scores, features, self.rule, self.eps)
            if found is not None:
                return found
        return None

    @property
    def J(self) -> float:
        """The sum of all J for the features selected so far."""
        return self.q - sum(self.decreases)

    @property
    def n_selected_units(self) -> int:
        """Number of features selected, or of groups of them."""
        return len(self.selected)

    def _distinct_left(self) -> Mask:
        """Features (d,) that are not selected yet; near copies only if no others are left."""
        left = self.allowed & ~self.is_selected
        distinct = left & ((self.copy_of < 0) | self.forced)
        return distinct if distinct.any() else left

    def has_column(self, j: int) -> bool:
        """Return whether the Gram columns of feature j are at hand."""
        return j in self.caches[0]

    def add(self, j: int, gain: float) -> None:
        """Select feature j, whose Gram columns are at hand, and which lowers J by its gain."""
        self.selected.append(j)
        self.decreases.append(float(gain))
        self.is_selected[j] = True
        for factor, cache in zip(self.factors, self.caches):
            factor.enter(j, cache[j], self.is_selected)
        if self.rule is not None:
            self.rule.entered(j)
        self._note_copies(j)

    def add_all(self, features: Indices) -> None:
        """Select features (k,) in their order, before any other; their columns are at hand.

        It is what `add` does one by one, in a few products of matrices.
        """
        order = features.tolist()
        steps = [
            factor.steps_of(features, np.stack([cache[j] for j in order]))
            for factor, cache in zip(self.factors, self.caches)
        ]
        if any(one is None for one in steps):
            # dependent features have no factor; one by one they enter with W = 0
            for j in order:
                self.add(j, float(self.gains()[j]))
            return
        for j in order:
            self.is_selected[j] = True
            self._note_copies(j)
        decreases = np.zeros(len(order))
        for factor, one in zip(self.factors, steps):
            assert one is not None
            L_rows, Q = one
            factor.enter_all(L_rows, Q)
            decreases += (Q**2).sum(axis=1)
        self.selected = order
        self.decreases = decreases.tolist()

    def _note_copies(self, j: int) -> None:
        """Remember which features a selected feature makes superfluous."""
        if self.copies is not None:
            copies = self.copies.of(j)
            # The first selected feature that it copies is reported, also if others follow.
            copies = copies[~self.is_selected[copies]]
            self.copy_of[copies[self.copy_of[copies] < 0]] = j

    def found_copies(self) -> dict[int, int]:
        """Return features that were skipped, and the selected feature that each copies.

        Those that entered at last, because nothing else was left, are among them.
        """
        found = self.allowed & ~self.required & (self.copy_of >= 0)
        return {j: int(self.copy_of[j]) for j in np.flatnonzero(found).tolist()}

    # ---- Gram columns ------------------------------------------------------------------

    def prefetch_too(self, features: Indices, beside: Indices) -> None:
        """Have Gram entries of further features at hand, for searches among few features.

        The columns of ``features`` are fetched with the first ones. So are those of ``beside``
        if their entries alone would take a pass over the data.
        """
        self._also = features
        if not self.in_memory:
            self._also = np.union1d(features, beside)
        self.beside = np.union1d(features, beside)

    def at_hand(self) -> Indices:
        """Return the features, ascending, whose Gram entries among each other are at hand."""
        fetched = np.array(self.caches[0].features, dtype=np.intp)
        return np.union1d(fetched, self.beside)

    @property
    def in_memory(self) -> bool:
        """Whether Gram entries among a few features take no pass over the data."""
        return all(quadratic.among is not None for quadratic in self.quadratics)

    def gram_among(self, features: Indices) -> list[Float64]:
        """Return G (m, m) among features at hand, one per quadratic."""
        has_column = np.array([j in self.caches[0] for j in features.tolist()], dtype=bool)
        if has_column.all():
            return [cache.among(features) for cache in self.caches]
        found = []
        for quadratic, cache in zip(self.quadratics, self.caches):
            assert quadratic.among is not None
            G = quadratic.among(features)
            # Where there are columns, they decide, as in the search.
            rows = np.stack([cache[j][features] for j in features[has_column].tolist()])
            G[has_column] = rows
            G[:, has_column] = rows.T
            found.append(G)
        return found

    def fetch(self, j: int) -> None:
        """Fetch the Gram columns of j and of the features that may be selected soon."""
        batch = self._batch(j)
        self._also = np.zeros(0, dtype=np.intp)
        for cache in self.caches:
            cache.fetch(batch)
        if self.copies is not None:
            self.copies.find(batch)

    def _batch(self, j: int) -> list[int]:
        """Features, j included, whose columns are fetched in the next pass over X."""
        scores = per_cost(self.gains(), self.costs)
        eligible = self._distinct_left()
        if self.rule is not None:
            eligible = eligible & self.rule.allowed()
        priority = np.where(eligible, scores, -1.0)
        # Forced features enter in any case: their columns are certain to be needed.
        priority[self.forced & ~self.is_selected] = np.inf
        predicted = self._predicted(priority, j)
        # Set after the prediction, which may well select what is at hand already.
        priority[self.caches[0].features] = -1.0
        priority[j] = np.inf
        if predicted is None:
            batch = np.argsort(-priority, kind="stable")[: self._batch_size()]
        else:
            batch = np.union1d(predicted, np.flatnonzero(priority == np.inf))
        if self.rule is not None and not self.in_memory:
            # The rule upsets the prediction, and another pass would take long: take what else
            # is allowed and good.
            best = np.argsort(-priority, kind="stable")[: self.fetch_sizes.least // 2]
            batch = np.union1d(batch, best)
        missing = np.union1d(batch[priority[batch] >= 0.0], self._also).tolist()
        priority[missing] = -1.0
        n_more = -len(missing) % COLUMNS_AT_ONCE
        if self._needs_few and self.in_memory:
            n_more = 0  # another pass would take less time than more columns
        others = np.argsort(-priority, kind="stable")[:n_more]
        return sorted([*missing, *others[priority[others] >= 0.0].tolist()])

    def _batch_size(self) -> int:
        """Return the number of columns to fetch without a prediction."""
        n_needed = self.n_select - len(self.selected)
        if self._needs_few:
            return 2 * n_needed
        if self.selected and self.in_memory:
            return COLUMNS_AT_ONCE
        least = self.fetch_sizes.least
        if not self._penalty_dominates:
            return max(n_needed, least)
        # Gains hardly change, so most of the columns of largest gain will be used: take
        # 1.75 times as many as are needed, in multiples of the smallest batch.
        n_columns = math.ceil(1.75 * n_needed / least) * least
        return min(max(n_columns, least), self.fetch_sizes.most)

    @property
    def _needs_few(self) -> bool:
        """Whether the search has nearly ended."""
        n_needed = self.n_select - len(self.selected)
        return bool(self.selected) and n_needed <= FEW_COLUMNS

    @property
    def _penalty_dominates(self) -> bool:
        """Whether gains hardly change when features enter."""
        return all(p.gamma > p.diag.mean() for p in self.quadratics)

    def _predicted(self, priority: Float64, j: int) -> Indices | None:
        """Return features that will probably be selected next; None without estimates."""
        if j not in self._estimated:
            if self._needs_few or (self.selected and self.in_memory):
                return None  # an estimate costs more than these columns
            features = promising_features(
                priority,
                penalty_dominates=self._penalty_dominates,
            )
            self._estimated = features
            self._estimates = _estimates(self.quadratics, features)
        if self._estimates is None:
            return None
        features = self._estimated
        for estimate, cache in zip(self._estimates, self.caches):
            _insert_known_columns(estimate, features, cache)
        n_needed = self.n_select - len(self.selected)
        n_steps = min(n_needed, self.fetch_sizes.most) + self.fetch_sizes.extra
        rule = None if self.rule is None else self.rule.among(features, quick=self.in_memory)

        found = predict_columns(
            [factor.restricted_to(features, n_steps) for factor in self.factors],
            self._estimates,
            self.is_selected[features],
            self.forced[features],
            n_steps,
            self.eps,
            None if self.copies is None else self.copies.max_correlation,
            None if self.costs is None else self.costs[features],
            rule,
        )
        return features[found]

    # ---- the result --------------------------------------------------------------------

    def solution(self) -> Solution:
        """Return ranking, W and J of the features selected so far.

        Features that are not selected are ranked by their next gain.
        """
        selected = np.array(self.selected, dtype=np.intp)
        gains = np.where(self.allowed, self.gains(), -np.inf)
        is_copy = self.allowed & ~self.is_selected & (self.copy_of >= 0)
        # near copies rank after the others, and their scores say so
        distinct = gains[self.allowed & ~self.is_selected & ~is_copy]
        if is_copy.any() and distinct.size:
            gains[is_copy] = np.minimum(gains[is_copy], distinct.min())
        by_gain = np.lexsort((is_copy, -gains))
        others = by_gain[~self.is_selected[by_gain]]
        order = np.concatenate([selected, others])
        # Two features may say together what neither says alone, so a next gain can exceed the
        # last one. Scores stay below it, as the order does. But features that the user asked
        # for entered whatever their gains, and bound nothing.
        free = ~self.required[selected]
        decreases = np.array(self.decreases)
        last = decreases[free][-1] if free.any() else np.inf
        scores = np.minimum(gains, last)
        scores[selected] = decreases
        gram = np.zeros((0, 0))
        if self.selected:
            gram = self.caches[0].among(selected)
        return Solution(
            s=self.is_selected.astype(float),
            V=self.factors[0].weights(selected),
            scores=scores,
            order=order,
            objective=self.q - np.cumsum(self.decreases),
            converged=True,
            gram=gram,
            copies=self.found_copies(),
            objective_start=self.q,
        )


def _estimates(
    quadratics: Sequence[Quadratic],
    features: Indices,
) -> list[Floats] | None:
    """Return estimates of G among some features, one per quadratic, or None."""
    found = []
    for quadratic in quadratics:
        estimate = None if quadratic.estimate is None else quadratic.estimate(features)
        if estimate is None:
            return None
        found.append(estimate)
    return found


def _insert_known_columns(
    estimate: Floats,
    features: Indices,
    cache: ColumnCache,
) -> None:
    """Write columns that are known exactly into an estimate (m, m) of G, in place."""
    for place, feature in enumerate(features.tolist()):
        if feature in cache:
            column = cache[feature][features]
            # G is symmetric: a column is also a row.
            estimate[:, place] = column
            estimate[place] = column
