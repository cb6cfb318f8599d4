"""Near copies: features that correlate strongly with selected ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from semfs._typing import Float64, Indices, Mask
from semfs.method.moments import Moments
from semfs.rows.device import to_numpy
from semfs.system import import_optional
from semfs.validation import listed

if TYPE_CHECKING:
    import pandas as pd

    from semfs.selectors.linear import LinearSelector


#: Correlation over all samples from which a feature counts as a copy of another. Within classes
#: it must be at least half of that: two markers of one class are no copies.
COPY_CORRELATION = 0.7
#: Copies that are named for each feature.
MOST_COPIES = 3
#: Correlations and weights below are zero, and so are lengths below this share of what they
#: are differences of.
SMALLEST_SIZE = 1e-12


def ratios(products: Float64, scale: Float64) -> Float64:
    """Return products divided by their scales, with 0 where a scale is 0."""
    return np.divide(
        products,
        scale,
        out=np.zeros_like(scale),
        where=scale > 0.0,
    )


def near_copies(
    selector: LinearSelector, moments: Moments | None, selected: Indices
) -> pd.DataFrame:
    """Return a table of features that correlate with a selected one, selected or not."""
    frame = import_optional("pandas", "data", what="explain").DataFrame
    rows = []
    chosen = set(selected.tolist())
    # What a rule excludes cannot take the place of a feature.
    selectable = ~np.isneginf(np.asarray(to_numpy(selector.scores_)))
    for feature, other, correlation in _copies(moments, selected, selectable):
        pair = (selector._name_of(feature), selector._name_of(other))
        rows.append((*pair, correlation, other in chosen))
    return frame(rows, columns=["feature", "other", "correlation", "chosen"])


def skipped_copies(selector: LinearSelector, selected: Indices) -> list[str]:
    """Return, for each selected feature (k,), the names of near copies that were skipped."""
    names: dict[int, list[str]] = {j: [] for j in selected.tolist()}
    for copy, feature in getattr(selector, "skipped_", {}).items():
        names[feature].append(selector._name_of(copy))
    return [listed(names[j]) if names[j] else "" for j in selected.tolist()]


def _copies(
    moments: Moments | None, selected: Indices, selectable: Mask
) -> list[tuple[int, int, float]]:
    """Return pairs of a selected feature and a copy, with correlations, strongest first."""
    if moments is None:
        return []
    scatter = moments.scatter_columns(selected)
    # S_within = S − Σ_c n_c (m_c − m)(m_c − m)', the sum written as root' root
    root = np.sqrt(moments.counts)[:, None] * (moments.means - moments.mean)
    within = scatter - root.T @ root[:, selected]
    diag = np.where(moments.constant(), 0.0, moments.scatter_diag)
    within_diag = diag - np.einsum("cd,cd->d", root, root)
    # what is left of features that are constant within classes are rounding errors
    within_diag[within_diag <= SMALLEST_SIZE * diag] = 0.0
    # square roots before products, which might underflow
    sizes = np.sqrt(diag)
    within_sizes = np.sqrt(within_diag)
    pairs = []
    for i, j in enumerate(selected.tolist()):
        r = ratios(scatter[:, i], sizes * sizes[j])
        r_within = ratios(within[:, i], within_sizes * within_sizes[j])
        alike = np.abs(r) >= COPY_CORRELATION
        alike &= np.abs(r_within) >= COPY_CORRELATION / 2
        alike &= selectable
        # a feature is no copy of itself
        alike[j] = False
        others = np.flatnonzero(alike)
        others = others[np.argsort(-np.abs(r[others]), kind="stable")][:MOST_COPIES]
        pairs += [(j, other, float(r[other])) for other in others.tolist()]
    return pairs
