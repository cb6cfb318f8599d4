"""What the commands print, and how: lines, aligned tables, JSON and short stories."""

from __future__ import annotations

import json
import os
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

__all__ = [
    "complain",
    "demo_story",
    "gene_table",
    "print_json",
    "print_table",
    "say",
    "score_table",
    "show_warning",
    "stderr",
]

# No escape codes at all; left to themselves typer and rich would only leave out colours.
FORCE = False if os.environ.get("NO_COLOR") else None
if FORCE is False:
    os.environ.setdefault("_TYPER_FORCE_DISABLE_TERMINAL", "1")


# ---- how ------------------------------------------------------------------------------


def say(text: str) -> None:
    """Print text as it is: names in it are no markup, and paths are not broken."""
    _print_plain(Console(force_terminal=FORCE), text)


def complain(text: str) -> None:
    """Print one line on standard error."""
    _print_plain(stderr(), f"semfs: {' '.join(text.split())}")


def _print_plain(console: Console, text: str) -> None:
    console.print(text, markup=False, highlight=False, soft_wrap=True)


def stderr() -> Console:
    """Return the console of standard error."""
    return Console(stderr=True, force_terminal=FORCE)


def show_warning(message: Any, *place: Any, **where: Any) -> None:
    """A warning as one line, without the place in the code that it came from."""
    complain(str(message))


def print_table(table: Any) -> None:
    """Print a table in full, wider than the terminal if it must be: no number is cut."""
    console = Console(force_terminal=FORCE)
    whole = console.measure(table, options=console.options.update(max_width=10_000)).maximum
    Console(width=max(console.width, whole), force_terminal=FORCE).print(table)


def print_json(value: Any) -> None:
    """Print a value for scripts."""
    print(json.dumps(value, indent=1, ensure_ascii=False))


# ---- what -----------------------------------------------------------------------------


def demo_story(found: Any) -> str:
    """What the demo does, in three lines."""
    data, (facts,) = found.data, found.info["datasets"].values()
    types = ", ".join(str(label) for label in data.unseen)
    return (
        f"{facts['n_seen']} labelled blood cells of {len(facts['seen'])} types, "
        f"{data.X.shape[1]} genes, {data.attributes.shape[1]} attributes per type.\n"
        f"Never labelled: {facts['n_unseen']} cells of {len(data.unseen)} other types "
        f"({types}).\n"
        "SemFS chooses genes on the labelled types; K-means then tells the others apart.\n"
    )


def gene_table(genes: list[Any]) -> Any:
    table = Table("", "gene", "share of fit", "speaks of", title="Genes chosen", box=None)
    table.columns[0].justify = table.columns[2].justify = "right"
    for number, gene in enumerate(genes, start=1):
        table.add_row(str(number), gene.name, f"{gene.share:.0%}", gene.attribute)
    return table


def score_table(rows: list[dict[str, Any]], metric: str) -> Any:
    """One line per method, best mean first, averaged over splits."""
    values: dict[str, dict[int, list[float]]] = {}
    for row in rows:
        values.setdefault(row["label"], {}).setdefault(row["k"], []).append(row[metric])
    ks = sorted({row["k"] for row in rows})
    n_splits = len({row["split"] for row in rows})
    title = f"{metric.upper()} on unseen classes" + (f", {n_splits} splits" * (n_splits > 1))
    table = Table("method", *(str(k) for k in ks), "mean", title=title, box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    means = {m: {k: fmean(v) for k, v in found.items()} for m, found in values.items()}
    for label in sorted(means, key=lambda m: -fmean(means[m].values())):
        cells = [f"{means[label][k]:.3f}" if k in means[label] else "" for k in ks]
        table.add_row(label, *cells, f"{fmean(means[label].values()):.3f}")
    return table
