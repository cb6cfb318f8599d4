"""Sparse codes of FSASL: every sample as a combination of the others, one lasso each."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp

from semfs.baselines.graph import nearest_neighbors

__all__ = ["codes_as_released", "exact_codes", "lasso_paths"]

RELEASED_TOL = 1e-3  # absolute change of the objective at which the original stops
DEPENDENT = 1e-10  # squared sine of the angle below which an atom is a duplicate
CHUNK_ENTRIES = 400_000  # numbers per array of a chunk of problems: stays in the cache


def exact_codes(Z: np.ndarray, ratio: float, candidates: int | None = None) -> sp.csc_array:
    """Return codes S (n, n): column i solves the lasso of z_i on the other rows exactly.

    ``½‖z_i - Σ_j S_ji z_j‖² + λ_i‖s‖₁`` with ``λ_i = ratio · max_{j≠i} |z_jᵀ z_i|``.
    With ``candidates`` only that many nearest rows may take part, and no n × n array is
    formed.
    """
    Z = np.asarray(Z, dtype=np.float64)
    n, c = Z.shape
    q = n - 1 if candidates is None else min(candidates, n - 1)
    near = nearest_neighbors(Z, q)[1] if q < n - 1 else None
    largest = max(n, min(n, c) * c) if near is None else q * c  # array of one problem
    chunk = max(1, CHUNK_ENTRIES // largest)
    parts = []
    for start in range(0, n, chunk):
        rows = np.arange(start, min(start + chunk, n))
        atoms = Z if near is None else Z[near[rows]]
        problem, atom, value = lasso_paths(
            atoms, Z[rows], ratio, excluded=rows if near is None else None
        )
        parts.append(
            (atom if near is None else near[rows][problem, atom], rows[problem], value)
        )
    row, column, value = (np.concatenate(part) for part in zip(*parts))
    return sp.csc_array((value, (row, column)), shape=(n, n))


def lasso_paths(
    atoms: np.ndarray, targets: np.ndarray, ratio: float, *, excluded: np.ndarray | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Solve ``½‖t_i - Σ_j s_j a_j‖² + λ_i‖s‖₁`` exactly for many targets side by side.

    ``λ_i = ratio · max_j |a_jᵀ t_i|``. Each problem follows its own lasso path (homotopy)
    from the largest correlation down to λ_i: exact, and with many atoms in few dimensions
    far quicker than coordinate descent, which needs thousands of sweeps there. All
    problems take their steps together because a step alone is too small for numpy.

    Parameters
    ----------
    atoms : ndarray of shape (p, c), or (r, p, c) with different atoms for each problem
    targets : ndarray of shape (r, c)
    ratio : float
    excluded : ndarray of shape (r,), optional
        One atom that may not take part in each problem.

    Returns
    -------
    problem, atom : ndarray of shape (nnz,)
        Where the coefficients belong.
    value : ndarray of shape (nnz,)

    Examples
    --------
    >>> atoms, target = np.diag([1.0, 2.0]), np.array([[3.0, -2.0]])
    >>> lasso_paths(atoms, target, 0.25)  # λ = 0.25 · max(3, 4) = 1
    (array([0, 0]), array([0, 1]), array([ 2.  , -0.75]))
    """
    paths = _Paths(atoms, targets, excluded)
    lam = ratio * paths.level
    smallest = np.maximum(lam, 1e-14 * paths.level)
    found = []
    for _ in range(8 * paths.correlation.shape[1] + 100):  # ties may add steps of length 0
        running = paths.level > smallest
        if not running.all():
            found.append(paths.solutions(lam, ~running))
            paths.keep(running)
            lam, smallest = lam[running], smallest[running]
        if len(lam) == 0:
            break
        paths.advance(lam)
    found.append(paths.solutions(lam, np.ones(len(lam), dtype=bool)))
    problem, atom, value = (np.concatenate(part) for part in zip(*found))
    order = np.lexsort((atom, problem))
    return problem[order], atom[order], value[order]


class _Paths:
    """Lasso paths of r problems: correlations, and padded arrays of their active atoms.

    Entries of a problem beyond its ``count`` active atoms are 0 in every array.
    """

    def __init__(
        self, atoms: np.ndarray, targets: np.ndarray, excluded: np.ndarray | None
    ) -> None:
        r, c = targets.shape
        self.atoms, self.targets = atoms, targets
        self.number = np.arange(r)
        self.correlation = self._along(targets)
        p = self.correlation.shape[1]
        self.free = np.ones((r, p), dtype=bool)  # may still join
        if excluded is not None:
            self.free[self.number, excluded] = False
        size = np.where(self.free, np.abs(self.correlation), -1.0)
        self.joining = size.argmax(axis=1)  # -1: none
        self.level = np.maximum(size.max(axis=1), 0.0)
        self.left = np.full(r, -1)  # the atom that left in the last step
        most = min(c, p)
        self.count = np.zeros(r, dtype=np.intp)
        self.index = np.zeros((r, most), dtype=np.intp)
        self.signs, self.beta = np.zeros((r, most)), np.zeros((r, most))
        self.active = np.zeros((r, most, c))
        self.inverse = np.zeros((r, most, most))  # of the Gram matrix of the active atoms

    def _along(self, vectors: np.ndarray) -> np.ndarray:
        """Return the product of each atom with the vector (c,) of its problem: (r, p)."""
        if self.atoms.ndim == 2:
            return vectors @ self.atoms.T
        return np.matmul(self.atoms, vectors[:, :, None])[:, :, 0]

    def keep(self, mask: np.ndarray) -> None:
        """Drop the problems that are done."""
        for name, value in vars(self).items():
            if name != "atoms" or value.ndim == 3:
                setattr(self, name, value[mask])

    def advance(self, lowest: np.ndarray) -> None:
        """Take one step of each path, at most down to the level ``lowest`` (r,)."""
        self._join()
        m = max(1, int(self.count.max()))
        h = np.matmul(self.inverse[:, :m, :m], self.signs[:, :m, None])[:, :, 0]
        direction = np.matmul(h[:, None, :], self.active[:, :m])[:, 0]
        a = self._along(direction)  # β grows by δh, correlations fall by δa with the level
        joins = self._joins(a)
        zeros = _positive_ratio(-self.beta[:, :m], h)
        joining, leaving = joins.argmin(axis=1), zeros.argmin(axis=1)
        each = np.arange(len(h))
        next_join, next_zero = joins[each, joining], zeros[each, leaving]
        step = np.minimum(np.minimum(next_join, next_zero), self.level - lowest)
        self.beta[:, :m] += step[:, None] * h
        self.correlation -= step[:, None] * a
        self.level = self.level - step
        self.joining = np.where(next_join <= step, joining, -1)
        self.left[:] = -1
        leaves = np.flatnonzero((next_zero <= step) & (self.count > 1))
        if leaves.size:
            self.joining[leaves] = -1
            self._leave(leaves, leaving[leaves])

    def _joins(self, a: np.ndarray) -> np.ndarray:
        """Return how far each level may fall until an atom catches up: (r, p)."""
        level = self.level[:, None]
        rising = _closing_time(level - self.correlation, 1.0 - a)
        falling = _closing_time(level + self.correlation, 1.0 + a)
        joins = np.minimum(rising, falling, out=rising)
        joins[~self.free] = np.inf
        touching = np.flatnonzero(self.left >= 0)  # they touch the level on their way down
        joins[touching, self.left[touching]] = np.inf
        return joins

    def _join(self) -> None:
        """Add the joining atoms, unless the active ones span them; border the inverses."""
        r = np.flatnonzero(self.joining >= 0)
        j = self.joining[r]
        self.free[r, j] = False  # if the others span it, the fit is as good without it
        new = self.atoms[j] if self.atoms.ndim == 2 else self.atoms[r, j]
        m = int(self.count[r].max(initial=0))
        g = np.matmul(self.active[r, :m], new[:, :, None])[:, :, 0]
        u = np.matmul(self.inverse[r, :m, :m], g[:, :, None])[:, :, 0]
        length = np.einsum("rc,rc->r", new, new)
        rest = length - np.einsum("rm,rm->r", g, u)
        fits = (rest > DEPENDENT * length) & (self.count[r] < self.index.shape[1])
        r, j, u, rest, new = r[fits], j[fits], u[fits], rest[fits], new[fits]
        at = self.count[r]
        border = u / rest[:, None]
        self.inverse[r, :m, :m] += u[:, :, None] * border[:, None, :]
        self.inverse[r, at, :m] = -border
        self.inverse[r, :m, at] = -border
        self.inverse[r, at, at] = 1.0 / rest
        self.index[r, at], self.active[r, at], self.beta[r, at] = j, new, 0.0
        self.signs[r, at] = np.where(self.correlation[r, j] > 0, 1.0, -1.0)
        self.count[r] += 1

    def _leave(self, r: np.ndarray, at: np.ndarray) -> None:
        """Take atom ``at`` out of problem r, and move the last one to its place."""
        self.left[r] = self.index[r, at]
        self.free[r, self.left[r]] = True
        column = self.inverse[r, :, at]
        pivot = self.inverse[r, at, at]
        self.inverse[r] -= column[:, :, None] * (column / pivot[:, None])[:, None, :]
        self.count[r] -= 1
        last = self.count[r]
        for array in (self.index, self.signs, self.beta, self.active):
            array[r, at] = array[r, last]
            array[r, last] = 0
        self.inverse[r, at] = self.inverse[r, last]
        self.inverse[r, :, at] = self.inverse[r, :, last]
        self.inverse[r, last] = 0.0
        self.inverse[r, :, last] = 0.0

    def solutions(
        self, lam: np.ndarray, mask: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return problem, atom and coefficient of the masked problems.

        Solved once more from the support and its signs: no rounding of the path is left.
        """
        m = int(self.count[mask].max(initial=0))
        active, signs = self.active[mask, :m], self.signs[mask, :m]
        used = np.arange(m) < self.count[mask][:, None]
        gram = np.matmul(active, active.transpose(0, 2, 1))
        gram[:, np.arange(m), np.arange(m)] += ~used
        right = (
            np.matmul(active, self.targets[mask][:, :, None])
            - (lam[mask][:, None] * signs)[:, :, None]
        )
        beta = np.linalg.solve(gram, right)[:, :, 0]
        problem = np.broadcast_to(self.number[mask][:, None], used.shape)[used]
        return problem, self.index[mask, :m][used], beta[used]


def _closing_time(gap: np.ndarray, speed: np.ndarray) -> np.ndarray:
    """Return when a gap closing at ``speed`` is closed; never if it does not close."""
    closing = speed > 1e-12
    np.maximum(gap, 0.0, out=gap)
    np.divide(gap, speed, out=gap, where=closing)
    gap[~closing] = np.inf
    return gap


def _positive_ratio(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the ratios, with those that are not strictly positive set to infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator / denominator
    return np.where(ratio > 0, ratio, np.inf)


def codes_as_released(Z: np.ndarray, ratio: float) -> np.ndarray:
    """Return codes S (n, n) as the released program computes them.

    Accelerated proximal gradient for all columns at once, each with its own step constant,
    stopped when its objective changes by at most 1e-3: far from the lasso solution.
    """
    Z = np.asarray(Z, dtype=np.float64)
    n = Z.shape[0]
    B = Z @ Z.T
    Q = B - np.diag(np.diag(B))  # column i: Z_{-i} z_i, with 0 in place i
    lam = ratio * np.abs(Q).max(axis=0)
    x = Q * _released_start(Z, Q, lam)
    fit = Z.T @ x
    previous, previous_fit = x, fit
    L, value = np.ones(n), np.full(n, np.inf)
    momentum, next_momentum = 0.0, 1.0
    S, running = x.copy(), np.arange(n)
    for step in range(1, 10_001):
        t = (momentum - 1.0) / next_momentum
        search = x + t * (x - previous)
        search_fit = fit + t * (fit - previous_fit)
        gradient = _without_self(Z @ search_fit, running) - Q[:, running]
        previous, previous_fit = x, fit
        x, fit, still = _backtrack(Z, search, search_fit, gradient, lam[running], L, running)
        momentum, next_momentum = next_momentum, (1 + np.sqrt(4 * next_momentum**2 + 1)) / 2
        residual = fit - Z[running].T
        new_value = 0.5 * (residual**2).sum(0) + lam[running] * np.abs(x).sum(0)
        stop = still | ((np.abs(new_value - value) <= RELEASED_TOL) & (step >= 2))
        S[:, running[stop]] = x[:, stop]
        keep = ~stop
        running, value, L = running[keep], new_value[keep], L[keep]
        x, fit = x[:, keep], fit[:, keep]
        previous, previous_fit = previous[:, keep], previous_fit[:, keep]
        if running.size == 0:
            break
    return S


def _released_start(Z: np.ndarray, Q: np.ndarray, lam: np.ndarray) -> np.ndarray:
    """Return the factor f (n,) by which the start ``Q`` is scaled."""
    a = Z.T @ Q
    size = np.abs(Q).sum(axis=0)
    with np.errstate(divide="ignore", invalid="ignore"):
        f = ((a * Z.T).sum(axis=0) - lam * size) / (a**2).sum(axis=0)
    return np.where((size < 1e-6) | ~np.isfinite(f), 1.0, f)


def _without_self(M: np.ndarray, running: np.ndarray) -> np.ndarray:
    """Set the entry of each running column that belongs to the sample itself to 0."""
    M[running, np.arange(len(running))] = 0.0
    return M


def _backtrack(
    Z: np.ndarray,
    search: np.ndarray,
    search_fit: np.ndarray,
    gradient: np.ndarray,
    lam: np.ndarray,
    L: np.ndarray,
    running: np.ndarray,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Take a proximal step per column, doubling L (in place) until it majorises."""
    x = np.empty_like(search)
    fit = np.empty_like(search_fit)
    still = np.zeros(search.shape[1], dtype=bool)
    open_ = np.arange(search.shape[1])
    while open_.size:
        v = search[:, open_] - gradient[:, open_] / L[open_]
        new = np.sign(v) * np.maximum(np.abs(v) - lam[open_] / L[open_], 0.0)
        new = _without_self(new, running[open_])
        x[:, open_] = new
        fit[:, open_] = Z.T @ new
        r = ((new - search[:, open_]) ** 2).sum(axis=0)
        l_ = ((fit[:, open_] - search_fit[:, open_]) ** 2).sum(axis=0)
        still[open_] |= r <= 1e-20
        bad = (l_ > r * L[open_]) & (r > 1e-20)
        raised = open_[bad]
        L[raised] = np.maximum(2.0 * L[raised], l_[bad] / r[bad])
        open_ = raised
    return x, fit, still
