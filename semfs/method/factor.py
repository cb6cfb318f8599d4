"""A factor F of the Gram matrix, G = F'F, for fewer samples than features."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import scipy.sparse as sp

from semfs._typing import Float64


@dataclass(frozen=True, eq=False)
class Factor:
    """F = T X (n, d) with F'F = G, and targets (n, r) with F' targets = B.

    T (n, n) is applied after X, so sparse samples stay sparse.
    """

    X: Any
    T: Float64
    targets: Float64

    def apply(self, V: Float64) -> Float64:
        """F V for V (d, r)."""
        return self.T @ (self.X @ V)

    def adjoint(self, V: Float64) -> Float64:
        """F'V for V (n, r)."""
        return self.X.T @ (self.T.T @ V)

    def dual_gram(self, s: Float64) -> Float64:
        """F S² F' (n, n)."""
        scaled = self.X.multiply(s) if sp.issparse(self.X) else self.X * s
        K = scaled @ scaled.T
        if sp.issparse(K):
            K = K.toarray()
        return self.T @ K @ self.T.T
