"""A claim of the paper with the verdict on it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from semfs.lab.claims.rules import overall
from semfs.lab.claims.words import counts, sentence

#: What is text of a claim whose experiment has no rows.
NOT_RUN = "Not run."


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, the verdict, one sentence about it, and the numbers behind it.

    Parameters
    ----------
    claim : str
        What the paper says.
    verdict : {"confirmed", "in part", "not confirmed", "undecided"}
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


@dataclass
class Findings:
    """The numbers behind a claim while they are gathered: a table, and the verdicts that count.

    Parameters
    ----------
    columns : sequence of str
        Titles of the table but for the last one, which is that of the verdicts.
    noun : str
        What the verdicts are on.
    """

    columns: Sequence[str]
    noun: str = "data set"
    verdicts: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def show(self, cells: Iterable[str], verdict: str) -> None:
        """Add a row to the table, with what it says alone."""
        self.rows.append([*cells, verdict])

    def count(self, verdict: str) -> None:
        """Count a verdict, to which several rows may have come together."""
        self.verdicts.append(verdict)

    def add(self, cells: Iterable[str], verdict: str) -> None:
        """Add a row and count its verdict."""
        self.show(cells, verdict)
        self.count(verdict)

    def claim(self, claim: str, *parts: str, text: str = "") -> Claim:
        """Return the claim with the verdict over all.

        Its sentence has these parts and the numbers of verdicts, or is ``text``.
        """
        if not self.verdicts:
            return Claim(claim, "undecided", NOT_RUN)
        text = text or sentence([*parts, counts(self.verdicts, self.noun)])
        return Claim(
            claim,
            overall(self.verdicts),
            text,
            [*self.columns, "verdict"],
            self.rows,
        )
