"""Partial Cholesky factorization of G + γI, with one column per selected feature."""

from __future__ import annotations

from copy import copy

import numpy as np

from semfs._typing import Float64, Floats, Indices, Mask

#: A pivot below this fraction of its first value is rounding error: the feature depends
#: linearly on the selected ones (possible only if γ is 0 or nearly so).
RELATIVE_PIVOT_TOL = 1e-12
#: Squared norms are updated by subtraction. Once the largest of them has fallen to this
#: fraction of its value at the last refresh, about half of their digits are lost.
STALE_FLOAT64 = 1e-6
STALE_FLOAT32 = 1e-2


class PivotedCholesky:
    """Partial Cholesky factor L of G + γI in the order of entry, and the residual of B.

    After t features have entered::

        L  (d, t)   first t columns of the factor, rows in the order of the features
        Q  (t, r)   rows of L_S⁻¹ B_S for the selected features S
        R  (d, r)   residual B − L Q
        δ  (d,)     pivots, diag(G) + γ − Σ_t L_t²

    The gain of feature j, the decrease of J if it entered next, is ‖R_j‖²/δ_j. When it enters::

        l = (G_j + γ e_j − L L_j') / √δ_j,   Q_new = R_j / √δ_j,   R ← R − l Q_new,   δ ← δ − l²

    R has r columns, so updating R in every step would cost O(d r). Therefore only the squared
    norms ‖R_i‖² are updated in every step. R itself is recomputed by `refresh`, and when a
    feature enters, its R_j is updated by the steps since then.
    """

    def __init__(
        self,
        B: Floats,
        diag: Float64,
        gamma: float,
        n_select: int,
    ) -> None:
        """Start without features. At most ``n_select`` can enter."""
        d, r = B.shape
        self.B = B
        self.gamma = gamma
        self.pivots = diag + gamma
        self.pivot_tol = RELATIVE_PIVOT_TOL * self.pivots
        self.n_entered = 0
        self.n_at_refresh = -1
        self._L = np.empty((d, n_select), order="F")
        self._Q = np.empty((n_select, r))
        self.refresh()

    @property
    def L(self) -> Float64:
        """The columns (d, t) of the factor so far."""
        return self._L[:, : self.n_entered]

    @property
    def Q(self) -> Float64:
        """The rows (t, r) of L_S⁻¹ B_S so far."""
        return self._Q[: self.n_entered]

    def refresh(self) -> None:
        """Recompute the residual R = B − L Q and its squared norms if they are outdated."""
        if self.n_at_refresh == self.n_entered:
            return
        self.R = self.B
        if self.n_entered:
            dtype = self.B.dtype
            product = self.L.astype(dtype, copy=False) @ self.Q.astype(dtype, copy=False)
            self.R = np.subtract(self.B, product, out=product)
        self.n_at_refresh = self.n_entered
        self.squared_norms = np.einsum("ij,ij->i", self.R, self.R).astype(np.float64)
        self.largest_at_refresh = float(self.squared_norms.max(initial=0.0))

    def residual(self, features: Indices) -> Float64:
        """Return rows (m, r) of the residual R, given all features that have entered."""
        L_since = self.L[features, self.n_at_refresh :]
        rows: Float64 = self.R[features] - L_since @ self.Q[self.n_at_refresh :]
        return rows

    def gains(self) -> Float64:
        """Return the decrease of J (d,) if each feature entered next.

        It is 0 for features that depend linearly on the selected ones.
        """
        independent = self.pivots > self.pivot_tol
        pivots = np.where(independent, self.pivots, 1.0)
        squared_norms = np.maximum(self.squared_norms, 0.0)
        return np.where(independent, squared_norms / pivots, 0.0)

    def enter(self, j: int, gram_column: Float64, selected: Mask) -> None:
        """Add feature j with its column of G (d,).

        ``selected`` (d,) marks the features that have entered, including j. The norms of the
        other features determine when R is recomputed.
        """
        if self.pivots[j] > self.pivot_tol[j]:
            self._eliminate(j, gram_column)
        else:  # it explains nothing beyond the selected features: W_j = 0
            self._L[:, self.n_entered] = 0.0
            self._L[j, self.n_entered] = 1.0
            self._Q[self.n_entered] = 0.0
        self.n_entered += 1
        self._refresh_if_stale(selected)

    def _refresh_if_stale(self, selected: Mask) -> None:
        """Recompute the residual if its squared norms have lost half of their digits."""
        stale = STALE_FLOAT64 if self.B.dtype == np.float64 else STALE_FLOAT32
        if self.squared_norms[~selected].max(initial=0.0) < stale * self.largest_at_refresh:
            self.refresh()

    def _eliminate(self, j: int, gram_column: Float64) -> None:
        """Compute the next column of L and row of Q; update squared norms and pivots."""
        root = np.sqrt(self.pivots[j])
        new_column = gram_column - self.L @ self.L[j]
        new_column[j] += self.gamma
        new_column /= root
        # R was computed n_at_refresh steps after the start. What entered since then:
        L_since = self.L[:, self.n_at_refresh :]
        Q_since = self.Q[self.n_at_refresh :]
        new_row = (self.R[j] - L_since[j] @ Q_since) / root
        # ‖R_i − l_i q‖² = ‖R_i‖² − 2 l_i R_i q' + l_i² ‖q‖², without touching all of R
        projection = self.R @ new_row.astype(self.R.dtype, copy=False)
        projection = projection - L_since @ (Q_since @ new_row)
        self.squared_norms += new_column * (new_column * (new_row @ new_row) - 2.0 * projection)
        self.pivots = self.pivots - new_column**2
        self._L[:, self.n_entered] = new_column
        self._Q[self.n_entered] = new_row

    def steps_of(self, features: Indices, gram_rows: Float64) -> tuple[Float64, Float64] | None:
        """Return L' (k, d) and Q (k, r) after features (k,) have entered in their order.

        Nothing has entered yet; ``gram_rows`` (k, d) are the rows of G of the features. None if
        a feature depends linearly on those before it.
        """
        k = len(features)
        try:
            among = np.linalg.cholesky(gram_rows[:, features] + self.gamma * np.eye(k))
        except np.linalg.LinAlgError:
            return None
        if (among.diagonal() ** 2 <= self.pivot_tol[features]).any():
            return None
        # L_S L' = G_S + γ E and L_S Q = B_S. Of a triangular matrix of some hundred rows the
        # inverse is exact to rounding, and a product with it is three times as fast as solving.
        inverse = np.linalg.inv(among)
        L_rows = inverse @ gram_rows
        L_rows[:, features] += self.gamma * inverse
        return L_rows, inverse @ self.B[features].astype(np.float64)

    def enter_all(self, L_rows: Float64, Q: Float64) -> None:
        """Add the features whose L' (k, d) and Q (k, r) `steps_of` has computed."""
        k = len(Q)
        self._L[:, :k] = L_rows.T
        self._Q[:k] = Q
        self.n_entered = k
        self.pivots = self.pivots - np.einsum("td,td->d", L_rows, L_rows)
        self.refresh()

    def weights(self, selected: Indices) -> Float64:
        """Return W (k, r) of the selected features (k,), which are given in order of entry.

        W solves L_S'W = Q. Its rows are in the order of the features in X.
        """
        # NumPy's solver, although the factor is triangular: SciPy has BLAS threads of its
        # own, which would wait for the idle ones of NumPy.
        W = np.linalg.solve(np.triu(self.L[selected].T), self.Q)
        return np.asarray(W[np.argsort(selected)])

    def restricted_to(
        self,
        features: Indices,
        n_more: int,
    ) -> PivotedCholesky:
        """Return a copy for some features (m,), in which ``n_more`` features can enter."""
        out = copy(self)
        out.B = self.B[features]
        # before the first step they are one array, which is copied once
        out.R = out.B if self.R is self.B else self.R[features]
        out.pivots = self.pivots[features]
        out.pivot_tol = self.pivot_tol[features]
        out.squared_norms = self.squared_norms[features]
        n_columns = self.n_entered + n_more
        out._L = np.empty((len(features), n_columns), order="F")
        out._L[:, : self.n_entered] = self.L[features]
        out._Q = np.empty((n_columns, self.B.shape[1]))
        out._Q[: self.n_entered] = self.Q
        return out
