"""A claim of the paper and its verdict."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from semfs.lab.claims.rules import overall
from semfs.lab.claims.words import counts, sentence

#: What is text of a claim whose experiment has no rows.
NOT_RUN = "Not run."


@dataclass(frozen=True)
class Claim:
    """A claim of the paper, its verdict, one sentence about it, and the numbers behind it.

    Parameters
    ----------
    claim : str
        What the paper says.
    verdict : {"confirmed", "in part", "not confirmed", "undecided"}
    sentence : str
        What the rows show.
    columns, rows : sequences of str, sequence of these
        Titles and entries of a table. If there are no rows, the claim was not tested.
    """

    claim: str
    verdict: str
    sentence: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()

    @property
    def is_run(self) -> bool:
        """Whether the claim was tested."""
        return len(self.rows) > 0


@dataclass
class Findings:
    """Collects the numbers behind a claim: a table, and the verdicts.

    Parameters
    ----------
    columns : sequence of str
        Titles of the table, except the last one, which is that of the verdicts.
    noun : str
        The kind of objects that have verdicts, such as "data set".
    """

    columns: Sequence[str]
    noun: str = "data set"
    verdicts: list[str] = field(default_factory=list)
    rows: list[list[str]] = field(default_factory=list)

    def show(self, cells: Iterable[str], verdict: str) -> None:
        """Add a row to the table, with its own verdict."""
        self.rows.append([*cells, verdict])

    def count(self, verdict: str) -> None:
        """Count a verdict, which may be based on several rows."""
        self.verdicts.append(verdict)

    def add(self, cells: Iterable[str], verdict: str) -> None:
        """Add a row and count its verdict."""
        self.show(cells, verdict)
        self.count(verdict)

    def claim(self, claim: str, *parts: str, text: str = "") -> Claim:
        """Return the claim with its overall verdict.

        Its sentence is ``text``, or consists of these parts and the numbers of verdicts.
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
