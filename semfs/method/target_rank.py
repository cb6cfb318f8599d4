"""Targets reduced to their rank: further columns of the attribute table change nothing."""

from __future__ import annotations

import numpy as np

from semfs._typing import Float64


def reduce_rank(A: Float64) -> tuple[Float64, Float64]:
    """Return A V (C, r) and V (m, r), an orthonormal basis of the row space of A (C, m).

    Exact: J and the row norms of W depend on A only through A A'. W of the full table is
    W_r V'.

    Examples
    --------
    >>> T, V = reduce_rank(np.ones((3, 5)))
    >>> T.shape, V.shape
    ((3, 1), (5, 1))
    """
    C, m = A.shape
    if C >= m:
        # Full column rank is common and needs no new basis. Eigenvalues of A'A are far cheaper
        # than singular values of A; 1e-8 is well above their rounding errors.
        eigenvalues = np.linalg.eigvalsh(A.T @ A)
        if eigenvalues[0] > 1e-8 * eigenvalues[-1]:
            return A, np.eye(m)
    _, singular, Vt = np.linalg.svd(A, full_matrices=False)
    smallest = singular[0] * max(C, m) * np.finfo(float).eps
    rank = int((singular > smallest).sum())
    V = Vt[: max(rank, 1)].T
    return A @ V, V
