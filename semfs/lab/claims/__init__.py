"""The paper's claims, judged by what the rows of a run show.

Read `rules` first: what makes a claim confirmed. `measured` turns rows into scores and leads,
`best_baseline` has the relative leads, `comparisons` and `sweeps` judge one claim per
function, `words` puts numbers into words, and `section` is the table of a report.
"""

from __future__ import annotations

from collections.abc import Sequence

from semfs.lab.claims.claim import Claim
from semfs.lab.claims.comparisons import comparison_claims
from semfs.lab.claims.measured import flat
from semfs.lab.claims.sweeps import sweep_claims
from semfs.lab.comparison import Row

__all__ = ["Claim", "all_claims"]


def all_claims(rows: Sequence[Row]) -> list[Claim]:
    """Return the claims of the paper with what the rows say; the headline comes first."""
    flat_rows = [flat(row) for row in rows]
    return [*comparison_claims(flat_rows), *sweep_claims(flat_rows)]
