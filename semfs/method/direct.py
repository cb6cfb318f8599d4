"""Forward selection on the paper's 0/1 problem (Eq. 4), by pivoted Cholesky factorization.

For a set S the best W is closed form and J = q − F(S) with F(S) = tr(B_S'(G_SS + γI)⁻¹B_S),
so each feature that enters is one column of a Cholesky factor of G + γI, pivoted by the gain
‖R_j‖²/δ_j. Of several quadratics over the same features the gains add up.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve, pinvh

from semfs.method.objective import Monitor, Quadratic, Solution

# Gram columns are fetched for this many candidates at a time: with fewer, BLAS would spend
# its time reading X; with more, columns would be fetched that nobody asks for.
SMALLEST_BATCH, LARGEST_BATCH = 32, 128
# Where a preview of so many features (of gains that hardly change, or do) foretells them: a
# few more than are needed, and at each step so many whose gain is nearly the largest; others
# where previews know some of the rows only.
FORESEEN, FURTHER = (512, 768), 4
NEARLY, LIKELY = (4, 0.97), (8, 0.9)


def forward_selection(
    quadratics: Sequence[Quadratic],
    n_select: int,
    *,
    candidates: np.ndarray | None = None,
    include: np.ndarray | None = None,
    n_swaps: int = 0,
    monitor: Monitor | None = None,
) -> Solution:
    """Add the feature that lowers the sum of all J most, ``n_select`` times.

    Features are nested: the first k of the order are the answer for k. The solution holds W
    of the first quadratic, and scores and J of the sum. Features that are no ``candidates``
    (mask) rank last, those to ``include`` (indices) enter first, and are counted. Afterwards
    at most ``n_swaps`` chosen features are exchanged for others, while J falls.

    Examples
    --------
    >>> G, B = np.eye(3), np.array([[1.0], [3.0], [2.0]])
    >>> quadratic = Quadratic(20.0, B, np.diag(G), 1.0, lambda i: G[:, i], 1e-16)
    >>> found = forward_selection([quadratic], 2)
    >>> found.order, found.objective
    (array([1, 2, 0]), array([15.5, 13.5]))
    """
    search, stopped = _begun(quadratics, n_select, candidates, include), False
    while len(search.chosen) < n_select and not stopped and search.add_best():
        if monitor is not None:
            step, J = len(search.chosen), search.q - sum(search.gains_of)
            stopped = bool(monitor(step, J, search.chosen[-1], search.solution))
    if n_swaps and search.chosen:
        return _exchange(search, search.first, n_swaps)
    return search.solution()


def likely_features(
    quadratics: Sequence[Quadratic], n_select: int, candidates: np.ndarray, include: np.ndarray
) -> np.ndarray:
    """Return features whose columns `forward_selection` may ask for first, by previews."""
    search = _begun(quadratics, n_select, candidates, include)
    search.look_around(search.wanted(), -1)
    return search.foretold(min(n_select, LARGEST_BATCH) + FURTHER, *LIKELY)


def _begun(
    quadratics: Sequence[Quadratic], n_select: int, candidates: Any, include: Any
) -> "_Search":
    forced = np.zeros(len(quadratics[0].diag), dtype=bool)
    forced[[] if include is None else include] = True
    allowed = np.ones_like(forced) if candidates is None else candidates | forced
    return _Search([_Factor(own, n_select) for own in quadratics], allowed, forced)


class _Factor:
    """Partial Cholesky factor L of G + γI in the order of entry, and what is left of B.

    With Q = L⁻¹B, R = B − L Q is the residual of B and δ = diag(G) + γ − Σ l² are the pivots;
    the gain of feature j is ‖R_j‖²/δ_j, exactly the fall of J when it enters.
    """

    def __init__(self, quadratic: Quadratic, n_select: int) -> None:
        d, r = quadratic.B.shape
        self.quadratic = quadratic
        self.pivots = quadratic.diag + quadratic.gamma
        self.smallest = 1e-12 * self.pivots  # below it a column is a copy of chosen ones
        # norms below this share of those R began with have lost half of their digits
        self.worn = 1e-6 if quadratic.B.dtype == np.float64 else 1e-2
        self.n, self.fresh = 0, -1
        self._L = np.empty((d, n_select), order="F")
        self._Q = np.empty((n_select, r))
        self.columns: dict[int, np.ndarray] = {}
        self.foretold: tuple[np.ndarray, np.ndarray] | None = None  # features and their G
        self.restart()

    @property
    def L(self) -> np.ndarray:  # (d, t)
        return self._L[:, : self.n]

    @property
    def Q(self) -> np.ndarray:  # (t, r)
        return self._Q[: self.n]

    def restart(self) -> None:
        """Compute R afresh, so that rounding errors of updated norms do not pile up."""
        if self.n == self.fresh:
            return
        B = self.R = self.quadratic.B
        if self.n:
            self.R = self.L.astype(B.dtype, copy=False) @ self.Q.astype(B.dtype, copy=False)
            np.subtract(B, self.R, out=self.R)
        self.fresh = self.n
        self.norms = np.einsum("ij,ij->i", self.R, self.R).astype(np.float64)
        self.largest = float(self.norms.max(initial=0.0))

    def foreseen(self, some: np.ndarray, n_more: int) -> "_Factor":
        """A factor of some features that goes on from here, G foretold where not known."""
        other, own = copy(self), self.quadratic
        if self.foretold is None or self.foretold[0] is not some:
            self.foretold = some, own.preview(some)  # type: ignore[misc]
        G = self.foretold[1]
        for i in [i for i, j in enumerate(some.tolist()) if j in self.columns]:
            G[:, i] = G[i] = self.columns[int(some[i])][some]
        other.columns = dict(enumerate(G))
        other.quadratic = replace(own, B=own.B[some], diag=own.diag[some])
        other.pivots, other.smallest = self.pivots[some], self.smallest[some]
        other.norms, other.R = self.norms[some], self.R[some]
        other._L = np.pad(self.L[some], ((0, 0), (0, n_more)))
        other._Q = np.pad(self.Q, ((0, n_more), (0, 0)))
        return other

    def gains(self) -> np.ndarray:
        """Fall of J (d,) if the feature entered next; 0 for copies of chosen ones."""
        usable = self.pivots > self.smallest
        pivots = np.where(usable, self.pivots, 1.0)
        return np.where(usable, np.maximum(self.norms, 0.0) / pivots, 0.0)

    def fetch(self, features: np.ndarray) -> None:
        """Get Gram columns in one pass over X, where they are not known yet."""
        missing = np.array([i for i in features if i not in self.columns], dtype=np.intp)
        if missing.size:
            block = self.quadratic.columns(missing)
            self.columns.update({int(i): block[:, t] for t, i in enumerate(missing)})

    def columns_of(self, features: Sequence[int]) -> np.ndarray:
        """Columns of G (d, k)."""
        self.fetch(np.array(features))
        return np.column_stack([self.columns[i] for i in features])

    def enter(self, j: int, taken: np.ndarray) -> None:
        """Add feature j; ``taken`` (d,) marks those that are in, this one included."""
        if self.pivots[j] > self.smallest[j]:
            column, share = self._eliminate(j)
        else:  # a copy of chosen features: it explains nothing more
            column, share = np.eye(1, len(taken), j)[0], np.zeros(self._Q.shape[1])
        self._L[:, self.n], self._Q[self.n] = column, share
        self.n += 1
        if self.norms[~taken].max(initial=0.0) < self.worn * self.largest:
            self.restart()

    def _eliminate(self, j: int) -> tuple[np.ndarray, np.ndarray]:
        """The next column of L and row of Q; norms and pivots are updated."""
        root = np.sqrt(self.pivots[j])
        column = self.columns[j] - self.L @ self.L[j]
        column[j] += self.quadratic.gamma
        column /= root
        L, Q = self.L[:, self.fresh :], self.Q[self.fresh :]  # since R was computed
        share = (self.R[j] - L[j] @ Q) / root
        # ‖R_i − l_i q‖² without touching all of R
        product = self.R @ share.astype(self.R.dtype, copy=False) - L @ (Q @ share)
        self.norms += column * (column * (share @ share) - 2.0 * product)
        self.pivots = self.pivots - column**2
        return column, share

    def weights(self, chosen: np.ndarray) -> np.ndarray:
        """W (k, r) of the chosen features, which are those of L in order, as they are in X."""
        return np.linalg.solve(self.L[chosen].T, self.Q)[np.argsort(chosen)]


class _Search:
    """Features chosen so far, the same for all quadratics, and what each of them lowered."""

    def __init__(self, factors: list[_Factor], allowed: np.ndarray, first: np.ndarray) -> None:
        self.factors, self.allowed, self.first = factors, allowed, first  # those that enter so
        self.n_select = factors[0]._L.shape[1]
        self.q = sum(factor.quadratic.q for factor in factors)
        self.tie = 1.0 - 100.0 * max(factor.quadratic.rounding for factor in factors)
        self.chosen: list[int] = []
        self.gains_of: list[float] = []
        self.taken = np.zeros(len(allowed), dtype=bool)
        self.some = np.zeros(0, dtype=np.intp)  # features that previews are about

    def gains(self) -> np.ndarray:
        """Fall of the sum (d,) if the feature entered next; 0 for chosen ones and copies."""
        total = np.zeros(len(self.taken))
        for factor in self.factors:
            total += factor.gains()
        return np.where(self.taken, 0.0, total)

    def add_best(self) -> bool:
        """Add the feature of largest gain; False if none is left."""
        waiting = self.first & ~self.taken
        among = waiting if waiting.any() else self.allowed & ~self.taken
        gains = np.where(among, self.gains(), -1.0)
        best = float(gains.max())
        if best < 0.0:
            return False
        # Equal up to rounding counts as equal: the lowest index wins whatever the order of
        # summation was.
        j = int(np.argmax(gains >= best * self.tie)) if best > 0.0 else int(np.argmax(gains))
        if j not in self.factors[0].columns:
            self._fetch(j)
            return self.add_best()  # gains were refreshed
        self.chosen.append(j)
        self.gains_of.append(float(gains[j]))
        self.taken[j] = True
        for factor in self.factors:
            factor.enter(j, self.taken)
        return True

    @property
    def steady(self) -> bool:
        """Whether gains hardly change when features enter."""
        return all(f.quadratic.gamma > f.quadratic.diag.mean() for f in self.factors)

    def wanted(self) -> np.ndarray:
        """Gains (d,), those of features that must enter inf, those of no candidates -1."""
        wanted = np.where(self.allowed & ~self.taken, self.gains(), -1.0)
        wanted[self.first & ~self.taken] = np.inf
        return wanted

    def look_around(self, wanted: np.ndarray, j: int) -> None:
        """Let previews be about the most wanted features, unless they are about j already."""
        if j not in self.some:
            best = np.argsort(-wanted, kind="stable")[: FORESEEN[0 if self.steady else 1]]
            self.some = np.sort(best[wanted[best] >= 0.0])

    def _fetch(self, j: int) -> None:
        """Get the Gram columns of j and of the next best candidates."""
        quadratics, wanted = [factor.quadratic for factor in self.factors], self.wanted()
        self.look_around(wanted, j)
        wanted[list(self.factors[0].columns)] = -1.0
        wanted[j] = np.inf
        still_needed = self.n_select - len(self.chosen)
        size = max(still_needed, SMALLEST_BATCH)
        if self.steady:  # more of the columns will be asked for
            size = min(max(-(-7 * still_needed // 128) * 32, SMALLEST_BATCH), LARGEST_BATCH)
        batch = np.argsort(-wanted, kind="stable")[:size]
        if all(own.preview for own in quadratics):
            batch = self.foretold(min(still_needed, LARGEST_BATCH) + FURTHER, *NEARLY)
            batch = np.append(batch, np.flatnonzero(wanted == np.inf))
        if j in quadratics[0].known:
            batch = np.asarray(quadratics[0].known)
        batch = np.unique(batch[wanted[batch] >= 0.0])
        for factor in self.factors:
            factor.fetch(batch)
            factor.restart()

    def foretold(self, n: int, others: int, nearly: float) -> np.ndarray:
        """The next n features that previews choose, and those that might be chosen instead."""
        factors = [factor.foreseen(self.some, n) for factor in self.factors]
        search = _Search(factors, ~self.taken[self.some], self.first[self.some])
        search.taken |= ~search.allowed
        near, found = np.zeros_like(search.taken), True
        while len(search.chosen) < n and found:
            gains = search.gains()
            best = np.argsort(-gains)[:others]
            near[best[gains[best] > nearly * gains[best[0]]]] = True
            found = search.add_best()
        near[search.chosen] = True
        return self.some[near]

    def solution(self) -> Solution:
        """Ranking, W and J of the features chosen so far."""
        chosen = np.array(self.chosen, dtype=np.intp)
        scores = np.where(self.allowed, self.gains(), -np.inf)
        if self.gains_of:  # features beyond the ranking stay below it
            scores = np.minimum(scores, self.gains_of[-1])
        scores[chosen] = self.gains_of
        rest = np.argsort(-scores, kind="stable")
        order = np.concatenate([chosen, rest[~self.taken[rest]]])
        J = self.q - np.cumsum(self.gains_of)
        first = self.factors[0]
        gram = first.columns_of(self.chosen)[chosen] if self.chosen else np.zeros((0, 0))
        s, V = self.taken.astype(float), first.weights(chosen)
        return Solution(s, V, scores, order, J, True, gram)


# ---- exchange --------------------------------------------------------------------------


def _exchange(search: _Search, forced: np.ndarray, n_swaps: int) -> Solution:
    """Swap chosen features for others while J falls, at most ``n_swaps`` times in all."""
    chosen, budget = _climb(search, list(search.chosen), forced, n_swaps)
    # From the local optimum each chosen feature is in turn replaced by the next best one, even
    # if J rises, to see whether further swaps lead to a lower J.
    turn = 0
    while turn < len(chosen) and budget > 0:
        gain = _swap_gains(search, chosen, forced)[:, turn]
        j = int(np.argmax(gain))
        trial = list(chosen)
        if np.isfinite(gain[j]):
            trial[turn] = j
            trial, budget = _climb(search, trial, forced, budget - 1)
        if _fit(search, trial) > _fit(search, chosen) + 1e-10 * search.q:
            chosen, turn = trial, 0
        else:
            turn += 1
    return _rank_within(search, chosen)


def _climb(
    search: _Search, chosen: list[int], forced: np.ndarray, budget: int
) -> tuple[list[int], int]:
    """Make the best swap until none lowers J or the budget is spent."""
    while budget > 0:
        gain = _swap_gains(search, chosen, forced)
        j, i = np.unravel_index(int(np.argmax(gain)), gain.shape)
        if not gain[j, i] > 1e-10 * search.q:
            break
        chosen[i] = int(j)
        budget -= 1
    return chosen, budget


def _swap_gains(search: _Search, chosen: list[int], forced: np.ndarray) -> np.ndarray:
    """Fall of J (d, k) when feature j takes the place of the i-th chosen one.

    With P = (G_SS + γI)⁻¹, W = P B_S and C = G_·S P, leaving i out changes the residuals to
    R_j + C_ji W_i / P_ii and the pivots to δ_j + C_ji² / P_ii, and F falls by ‖W_i‖² / P_ii.
    """
    S = np.array(chosen)
    gain = np.zeros((len(search.taken), len(S)))
    for factor in search.factors:
        quadratic, G_S = factor.quadratic, factor.columns_of(chosen)
        P = _inverse(G_S[S] + quadratic.gamma * np.eye(len(S)))
        W, C, p = P @ quadratic.B[S], G_S @ P, np.diag(P)
        R = quadratic.B - G_S @ W
        delta = quadratic.diag + quadratic.gamma - np.einsum("ij,ij->i", C, G_S)
        loss = np.einsum("ij,ij->i", W, W) / p
        norms = np.einsum("ij,ij->i", R, R)[:, None] + (C / p) * (2.0 * R @ W.T + C * loss)
        gain += norms / np.maximum(delta[:, None] + C**2 / p, factor.smallest[:, None]) - loss
    gain[~search.allowed] = -np.inf
    gain[S] = -np.inf
    gain[:, forced[S]] = -np.inf
    return gain


def _fit(search: _Search, chosen: list[int]) -> float:
    """F(S) = tr(B_S'(G_SS + γI)⁻¹B_S), summed over the quadratics."""
    S, total = np.array(chosen), 0.0
    for factor in search.factors:
        G_SS, B = factor.columns_of(chosen)[S], factor.quadratic.B[S]
        inverse = _inverse(G_SS + factor.quadratic.gamma * np.eye(len(S)))
        total += float(np.sum(B * (inverse @ B)))
    return total


def _inverse(K: np.ndarray) -> np.ndarray:
    """Inverse of a small positive definite matrix (k, k); with γ = 0 it may be singular."""
    try:
        return cho_solve(cho_factor(K), np.eye(len(K)))
    except np.linalg.LinAlgError:
        return pinvh(K)


def _rank_within(search: _Search, chosen: list[int]) -> Solution:
    """Forward selection among the chosen features only, then the rest by their next gain."""
    among = np.zeros_like(search.taken)
    among[chosen] = True
    factors = [_Factor(factor.quadratic, len(chosen)) for factor in search.factors]
    ranked = _Search(factors, search.allowed, among)
    for new, old in zip(ranked.factors, search.factors):
        new.columns = old.columns
    while len(ranked.chosen) < len(chosen):
        ranked.add_best()
    return ranked.solution()
