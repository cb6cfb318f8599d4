"""How the commands speak: plain lines, whole tables, JSON, and the command line's own words."""

import os
import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib import resources

from rich.console import Console
from rich.table import Table
from rich.text import Text

# No escape codes at all; left to themselves typer and rich would only leave out colors.
FORCE = False if os.environ.get("NO_COLOR") else None
if FORCE is False:
    os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")

#: What the library calls a thing (a pattern), and what it is called on the command line.
WORDS = tomllib.loads((resources.files("semfs.cli") / "words.toml").read_text("utf-8"))
# names in data: what is in quotes, and what was found as far as a sentence goes
NAMES = r"""('[^']*'|"[^"]*"|\b(?:found|Found:|only|holds|layers):? .*?(?=[.;:)](?: |$)|$))"""
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def say(text: str) -> None:
    """Print text as it is: names in it are no markup, and paths are not broken."""
    _print_plain(Console(force_terminal=FORCE), text)


def complain(text: str) -> None:
    """Print one line on standard error, in the words of the command line."""
    console = Console(stderr=True, force_terminal=FORCE)
    _print_plain(console, f"semfs: {in_own_words(' '.join(text.split()))}")


def in_own_words(text: str) -> str:
    """Replace names of Python parameters by those of options; what is quoted or found stays.

    >>> in_own_words("n_features_to_select must be at least 1, got 'n_features_to_select'.")
    "-k must be at least 1, got 'n_features_to_select'."
    """
    parts = re.split(NAMES, text)
    for pattern, word in WORDS.items():
        parts[::2] = [re.sub(pattern, word, part) for part in parts[::2]]
    return "".join(parts)


def visible(text: str) -> str:
    r"""Show control characters, of which escape codes are made, instead of sending them.

    >>> print(visible("gene \x1b[2J"))
    gene \x1b[2J
    """
    return CONTROL.sub(lambda found: repr(found[0])[1:-1], text)


def _print_plain(console: Console, text: str) -> None:
    console.print(visible(text), markup=False, highlight=False, soft_wrap=True)


def print_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table in full, wider than the terminal if it must be: no number is cut.

    A column whose name starts with ``>`` is aligned to the right.
    """
    table = Table(title=Text(title), box=None)
    for name in columns:
        table.add_column(name.lstrip(">"), justify="right" if name.startswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    console = Console(force_terminal=FORCE)
    whole = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    Console(width=max(console.width, whole), force_terminal=FORCE).print(table)
