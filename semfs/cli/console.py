"""Printing for commands: plain lines, whole tables, one line per error or warning."""

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rich.console import Console
from rich.table import Table
from rich.text import Text

# With NO_COLOR set no escape codes are printed at all. typer and rich by themselves would only
# leave out colors and still print bold text.
FORCE = False if os.environ.get("NO_COLOR") else None
if FORCE is False:
    os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")

#: Control characters except tab and newline; escape codes begin with one.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
#: Wider than any table, to measure how wide one must be.
VERY_WIDE = 10_000


def show(text: str) -> None:
    """Print text unchanged, without markup in names and without breaking paths."""
    _print_plain(Console(force_terminal=FORCE), text)


def complain(text: str, kind: str = "note") -> None:
    """Print one line on standard error; its kind is "error", "warning" or "note"."""
    # messages of other packages may have several lines
    line = " ".join(text.split())
    _print_plain(Console(stderr=True, force_terminal=FORCE), f"semfs: {kind}: {line}")


def show_written(paths: Iterable[Path], replaced: Iterable[Path] = ()) -> None:
    """Print which files were written, and which of them existed before."""
    replaced = set(replaced)
    for path in paths:
        show(f"Wrote {path}" + (" (replaced)" if path in replaced else ""))


def visible(text: str) -> str:
    r"""Replace control characters, which could be escape codes, by visible text.

    >>> print(visible("gene \x1b[2J"))
    gene \x1b[2J
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _print_plain(console: Console, text: str) -> None:
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def print_table(
    title: str,
    columns: Sequence[str],
    rows: Iterable[Sequence[str]],
) -> None:
    """Print a table in full, even if it is wider than the terminal, so no number is cut.

    A column whose name starts with ``>`` is aligned to the right.
    """
    table = Table(title=Text(title), box=None)
    for name in columns:
        justify = "right" if name.startswith(">") else "left"
        table.add_column(name.lstrip(">"), justify=justify)  # type: ignore[arg-type]
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    # rich would shorten cells to the width of the terminal, so it is told another one
    console = Console(force_terminal=FORCE)
    wide = console.options.update(max_width=VERY_WIDE)
    table_width = console.measure(table, options=wide).maximum
    width = max(console.width, table_width)
    Console(width=width, force_terminal=FORCE).print(table)
