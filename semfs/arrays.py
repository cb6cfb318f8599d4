"""Small helpers on arrays that several modules share."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import scipy.sparse as sp

#: Context manager and decorator: no warnings when absurd parameters make numbers overflow. What
#: is not finite is refused where results are checked, with advice.
quiet_overflow = np.errstate(over="ignore", invalid="ignore")


def canonical(X: Any) -> Any:
    """Return X, a sparse one without two values in one place: squares would not add up."""
    if sp.issparse(X) and not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    return X


def batches(n: int, step: int) -> Iterator[slice]:
    """Yield slices of at most ``step`` that cover range(n)."""
    for start in range(0, n, step):
        yield slice(start, min(start + step, n))
