"""Verdicts on the paper's claims, from the rows of a run.

Start with `rules`, which defines when a claim is confirmed. `measured` computes scores and
leads from rows, `best_baseline` computes relative leads, `comparisons` and `sweeps` judge one
claim per function, `words` formats numbers, and `section` makes the table of a report.
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
    """Return the claims of the paper with their verdicts. The headline comes first."""
    flat_rows = [flat(row) for row in rows]
    return [*comparison_claims(flat_rows), *sweep_claims(flat_rows)]
