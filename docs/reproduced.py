"""Tables of the page *Reproducing the paper*, from the numbers of a full run.

``benchmarks/results/reproduce.json`` holds them: ``{"tables": [{"title", "note", "columns",
"rows"}, ...], "command", "versions"}``. Without that file the page says so.
"""

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parents[1] / "benchmarks" / "results" / "reproduce.json"
GENERATED = Path(__file__).parent / "generated"
MISSING = """```{admonition} Not in this build
:class: note

The numbers of a full run (`benchmarks/results/reproduce.json`) are not here. The commands below
make them.
```
"""


def write_reproduced() -> None:
    """Write docs/generated/reproduced.md."""
    GENERATED.mkdir(exist_ok=True)
    text = MISSING
    if RESULTS.exists():
        text = reproduced(json.loads(RESULTS.read_text(encoding="utf-8")))
    (GENERATED / "reproduced.md").write_text(text, encoding="utf-8")


def reproduced(found: dict[str, Any]) -> str:
    """Return the tables of a run as Markdown.

    >>> run = {"tables": [{"title": "ACC", "columns": ["method", "k = 10"],
    ...                    "rows": [["SemFS", 0.7]]}], "command": "semfs reproduce all"}
    >>> print(reproduced(run))
    ### ACC
    <BLANKLINE>
    | method | k = 10 |
    |---|---:|
    | SemFS | 0.700 |
    <BLANKLINE>
    Made by `semfs reproduce all`.
    <BLANKLINE>
    """
    parts = [_section(table) for table in found["tables"]]
    versions = ", ".join(f"{k} {v}" for k, v in found.get("versions", {}).items())
    parts.append(f"Made by `{found['command']}`{f' ({versions})' if versions else ''}.\n")
    return "\n\n".join(parts)


def _section(table: dict[str, Any]) -> str:
    columns = [_cell(name) for name in table["columns"]]
    lines = [f"### {table['title']}", ""]
    lines += [table["note"], ""] if table.get("note") else []
    lines += [_line(columns), "|---" + "|---:" * (len(columns) - 1) + "|"]
    lines += [_line([_cell(value) for value in row]) for row in table["rows"]]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _cell(value: Any) -> str:
    if value is None:
        return "–"
    text = f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|")
