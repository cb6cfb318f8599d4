"""A claim of the paper with the verdict on it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

#: What is text of a claim whose experiment has no rows.
NOT_RUN = "Not run."


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict, one sentence about it, and the numbers behind it.

    Parameters
    ----------
    claim : str
        What the paper says.
    verdict : {"confirmed", "in part", "not", "undecided"}
    sentence : str
        What the rows show.
    columns, rows : sequences of str, sequence of these
        Titles and entries of a table; without rows nothing was run that the claim is about.
    """

    claim: str
    verdict: str
    sentence: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def is_run(self) -> bool:
        """Whether there are numbers that the claim is about."""
        return len(self.rows) > 0


def not_run(claim: str) -> Claim:
    """Return a claim about which there are no rows."""
    return Claim(claim, "undecided", NOT_RUN)
