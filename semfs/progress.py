"""Progress of a long fit on stderr: a bar if rich is installed, plain lines otherwise."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Any

__all__ = ["Progress"]

SECONDS_BETWEEN_LINES = 1.0


class Progress:
    """Count steps of a long loop, ``total`` of them if known; silent unless ``verbose``.

    Examples
    --------
    >>> with Progress("rounds", total=2, verbose=0) as progress:
    ...     for loss in (0.5, 0.25):
    ...         progress.step(f"loss {loss:.2f}")
    """

    def __init__(self, label: str, total: int | None, verbose: Any) -> None:
        self.label = label
        self.total = total
        self.verbose = bool(verbose)
        self.done = 0
        self._bar: Any = None
        self._last_line = -SECONDS_BETWEEN_LINES

    def __enter__(self) -> Progress:
        if self.verbose:
            self._bar = _rich_bar()
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task(self.label, total=self.total, note="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def step(self, note: str = "") -> None:
        """Report that one more step is done."""
        self.done += 1
        if self._bar is not None:
            self._bar.update(self._task, completed=self.done, note=note)
        elif self.verbose and time.monotonic() - self._last_line >= SECONDS_BETWEEN_LINES:
            self._last_line = time.monotonic()
            of = "" if self.total is None else f"/{self.total}"
            print(f"{self.label} {self.done}{of} {note}", file=sys.stderr, flush=True)


def _rich_bar() -> Any:
    """Return a bar, or None without rich or without a terminal (a log wants lines)."""
    if not sys.stderr.isatty():
        return None
    try:
        from rich import progress
        from rich.console import Console
    except ImportError:
        return None
    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeElapsedColumn(),
        progress.TextColumn("{task.fields[note]}"),
        console=Console(stderr=True),
    )
