"""Counts the missing values of a file that a fit fills, for a line that says so."""

from __future__ import annotations

import numpy as np

from semfs.io.write import feature_names
from semfs.rows import BlockSource
from semfs.validation import counted, listed

#: Features with more gaps than this share of the samples are named.
MOSTLY_EMPTY = 0.5
#: Features of each kind that are named.
MOST_GAPS_NAMED = 3


def gaps_in_words(source: BlockSource, filling: str) -> str:
    """Return one line on the gaps of the labeled samples, which ``filling`` fills.

    Features without a value in some class, and those that are mostly empty, are named. Without
    gaps the line is empty. The source is read once.
    """
    assert source.labels is not None
    n_classes = len(source.labels.classes)
    observed = np.zeros((n_classes, source.n_features), dtype=np.int64)
    sizes = np.zeros(n_classes, dtype=np.int64)
    n_read = 0
    for X in source.matrices():
        if not isinstance(X, np.ndarray):
            return ""  # what is not stored in sparse data is 0, not missing
        codes = source.labels.codes[n_read : n_read + len(X)]
        n_read += len(X)
        known = ~np.isnan(X)
        for code in np.unique(codes[codes >= 0]).tolist():
            members = codes == code
            observed[code] += known[members].sum(axis=0)
            sizes[code] += int(members.sum())
    n_empty = sizes.sum() - observed.sum(axis=0)
    columns = np.flatnonzero(n_empty)
    if not len(columns):
        return ""
    names = feature_names(source)
    cells = counted(1, "empty cell")
    if n_empty.sum() != 1:
        cells = f"{n_empty.sum():,} empty cells"
    parts = [f"{cells} of {counted(len(columns), 'feature')} filled with {filling}"]
    is_empty = (observed == 0) & (sizes > 0)[:, None]
    without = [
        f"{names[j]} has no value in class {source.labels.classes[code]}"
        for code, j in np.argwhere(is_empty).tolist()
    ]
    shares = n_empty / sizes.sum()
    mostly = [
        f"{names[j]} is empty in {shares[j]:.0%} of the samples"
        for j in np.flatnonzero(shares > MOSTLY_EMPTY).tolist()
    ]
    parts += [listed(found, MOST_GAPS_NAMED) for found in (without, mostly) if found]
    return "; ".join(parts)
