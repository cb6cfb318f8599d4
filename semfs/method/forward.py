"""Greedy forward selection on the paper's 0/1 problem (Eq. 4), by Cholesky factorization.

The problem of Wang et al., "Zero-shot Feature Selection via Transferring Supervised Knowledge":
select a set S of k features, and coefficients W (d, r) that are zero for all others, so that

    J = q − 2 tr(W'B) + tr(W'(G + γI) W)

is smallest. A `Quadratic` holds what J depends on: the Gram matrix G (d, d) of the features,
their products B (d, r) with the targets, the value q of J when nothing is selected, and the
penalty γ. G is never formed: its columns are computed when they are needed.

For a given S the best W is (G_SS + γI)⁻¹B_S, so that J = q − tr(B_S'(G_SS + γI)⁻¹B_S). Adding a
feature j to S lowers J by its gain ‖R_j‖²/δ_j, with

    R_j = B_j − G_jS (G_SS + γI)⁻¹ B_S              what S leaves unexplained of row B_j,
    δ_j = G_jj + γ − G_jS (G_SS + γI)⁻¹ G_Sj        the Schur complement of j.

Both are updated when a column is appended to the Cholesky factor of G_SS + γI (see
`PivotedCholesky`). So the greedy search is a Cholesky factorization whose pivot is the largest
gain, instead of the largest δ_j as usual.

There may be several quadratics over the same features: of the seen classes, of unseen classes
that are known by their descriptions only, of clusters of unlabeled samples. One set of features
is selected for all, and their gains are added. A quadratic has its weight built in (see
`Quadratic.scaled_by`).

The loop is here. `Search` knows which features may be selected, and asks each quadratic for
Gram columns. `semfs.method.panel` runs the loop for a selection under rules, and `solve_direct`
runs it again to rank a set of features after exchanges.
"""

from __future__ import annotations

from semfs.method.quadratic import Monitor
from semfs.method.search import Search


def forward_selection(search: Search, monitor: Monitor | None = None) -> None:
    """Add the feature that lowers the sum of all J most, until `search.n_select` are selected.

    What was selected, and the Cholesky factor of each quadratic, are kept in ``search``. The
    loop ends earlier if no feature is left that may be selected, or if ``monitor``, which is
    called after each step, returns true.
    """
    while len(search.selected) < search.n_select:
        # ‖R_j‖²/δ_j, summed over the quadratics: how far J falls if feature j is added
        gains = search.gains()
        # the feature of the largest gain among those that may be selected now; those that must
        # be selected come first
        j = search.best(gains)
        if j is None:
            return
        if not search.has_column(j):
            # A pass over the data, for all quadratics. It also gets the columns of features
            # that will probably be selected next.
            search.fetch(j)
        # One more column of each Cholesky factor; the gain is kept as the decrease of J.
        search.add(j, gains[j])
        # the monitor may call `search.solution` for what is selected so far
        if monitor is not None and monitor(len(search.selected), search.J, j, search.solution):
            return
