"""The table of the paper's claims in a report."""

from __future__ import annotations

from collections.abc import Sequence

from semfs.lab.claims import all_claims
from semfs.lab.claims.rules import CONDITIONS, GENERAL_RULE, INTERVALS, OWN_RULES
from semfs.lab.comparison import Row
from semfs.lab.sections import Section, Table

#: The verdict on a claim whose experiment was not run.
NOT_TESTED = "not tested"


def claims_section(rows: Sequence[Row]) -> Section:
    """Return a table of the paper's claims, with what these rows show and a verdict."""
    body = [
        [claim.claim, claim.sentence, claim.verdict if claim.is_run else NOT_TESTED]
        for claim in all_claims(rows)
    ]
    columns = ["the paper's claim", "what this run shows", "verdict"]
    table = Table("Claims of the paper", columns, body, open=True)
    own_rules = " ".join(f"{name}: {rule}" for name, rule in OWN_RULES.items())
    text = [GENERAL_RULE, f"Some claims have other rules. {own_rules}", INTERVALS, CONDITIONS]
    return Section("The paper's claims", text, table)
