"""Progress of a long loop on standard error: a bar on a terminal, else plain lines."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from rich.progress import Progress as RichProgress

#: Without a bar, at most one line is printed in so many seconds.
SECONDS_BETWEEN_LINES = 1.0
#: Smallest time since the start, in seconds, so that speeds can be divided by it.
SHORTEST = 1e-9


class Progress:
    """Count the steps of a long loop; silent unless ``verbose``.

    With the ``total`` number of steps, the time left is shown; ``unit`` is what is counted.

    >>> with Progress("rounds", total=2, verbose=0) as progress:
    ...     for loss in (0.5, 0.25):
    ...         progress.step(f"loss {loss:.2f}")
    """

    def __init__(self, label: str, total: int | None, verbose: int, unit: str = "") -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.verbose = bool(verbose)
        self.done = 0
        self._bar: RichProgress | None = None

    def __enter__(self) -> Self:
        """Start the clock, and the bar if standard error is a terminal."""
        self._begin = time.monotonic()
        # So that the first step prints a line at once.
        self._last_line = -SECONDS_BETWEEN_LINES
        self._bar = _rich_bar(self.unit) if self.verbose else None
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(
                self.label,
                total=self.total,
                note="",
            )
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    @property
    def seconds(self) -> float:
        """Time since the loop began."""
        return max(time.monotonic() - self._begin, SHORTEST)

    def step(self, note: str = "", n: int = 1) -> None:
        """Report that ``n`` more steps are done."""
        self.done += n
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=note)
            return
        waited = time.monotonic() - self._last_line
        if self.verbose and waited >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            print(self._line(note), file=sys.stderr, flush=True)

    def _line(self, note: str) -> str:
        if self.total is None:
            return f"{self.label} {self.done:,} {self.unit} {note}"
        seconds_left = 0.0
        if self.done:
            seconds_left = self.seconds / self.done * (self.total - self.done)
        steps = f"{self.done:,}/{self.total:,} {self.unit}".rstrip()
        return f"{self.label} {steps}, {seconds_left:.0f} s left {note}"


def _rich_bar(unit: str) -> RichProgress | None:
    """Return a bar, or None without rich or without a terminal (a log wants lines)."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    count: progress.ProgressColumn = progress.MofNCompleteColumn()
    if unit:
        count = progress.TextColumn("{task.completed:,.0f} " + unit)
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        count,
        progress.TimeRemainingColumn(),
        progress.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
