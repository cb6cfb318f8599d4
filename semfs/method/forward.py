"""Forward selection on the paper's 0/1 problem (Eq. 4), by pivoted Cholesky factorization.

The problem of Wang et al., "Zero-shot Feature Selection via Transferring Supervised Knowledge":
minimize J over W and a selection of k features. A `Quadratic` holds what J depends on: the Gram
matrix G (d, d) of the features, their products B (d, r) with the targets, the value q of J when
nothing is selected, and the penalty γ.

For a set S of features the best W is closed form and J = q − F(S) with
F(S) = tr(B_S'(G_SS + γI)⁻¹B_S). Adding a feature to S appends one column to a Cholesky factor
of G + γI and lowers J by ‖R_j‖²/δ_j, where R_j is the residual row of B and δ_j the remaining
pivot (see `PivotedCholesky`, which computes both). So the greedy search is a Cholesky
factorization that is pivoted by this gain.

There may be several quadratics over the same features: of the seen classes, of described unseen
classes, of clusters of unlabeled samples. One set of features is selected for all, and their
gains add up.

The loop is here. `Search` knows which features may be selected and gets their Gram columns.
The loop is called by ``panel``: once, or for a budget twice, with different rules.
"""

from __future__ import annotations

from semfs.method.quadratic import Monitor
from semfs.method.search import Search


def forward_selection(search: Search, monitor: Monitor | None = None) -> None:
    """Add the feature that lowers the sum of all J most, until there are enough.

    What was selected, and the Cholesky factor of each quadratic, are kept in ``search``. It
    ends earlier if no feature is left that may be selected, or if ``monitor`` says so.
    """
    while len(search.selected) < search.n_select:
        # ‖R_j‖²/δ_j, summed over the quadratics: how far J falls if feature j is added
        gains = search.gains()
        # the largest one of the features that may be selected
        j = search.best(gains)
        if j is None:
            return
        if not search.has_column(j):
            # a pass over the data, which also gets the columns that will probably be next
            search.fetch(j)
        # one more column of each Cholesky factor, from the Gram column of j
        search.add(j, gains[j])
        if monitor is not None and monitor(len(search.selected), search.J, j, search.solution):
            return
