"""Names of features in a file: one per line, or a column of a table."""

from __future__ import annotations

import csv
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

#: First lines that a file of feature names may have as its header, in lower case.
LIST_HEADERS = (
    "feature",
    "features",
    "gene",
    "genes",
    "name",
    "names",
    "symbol",
    "symbols",
)
#: Signs between the cells of a table; of equally frequent ones the first is meant.
DELIMITERS = ",;\t"


@dataclass(frozen=True)
class NameList:
    """Names that were found in a file, each once, in its order."""

    names: list[str]
    #: Which column of a table, such as "column 'gene'"; "" for one name per line.
    column: str = ""


def names_in_lines(lines: Sequence[str], known: Collection[str]) -> NameList:
    """Return the names in the lines of a file, of which none is empty; without a header.

    Lines may hold one name each, or be a table with commas, semicolons or tabs: of its columns
    the one with most names that are known is used. If the table has a column ``selected``, as
    that of ``semfs select``, only rows with "true" are used.

    Examples
    --------
    >>> names_in_lines(["rank,gene", "1,CD3D", "2,CD19"], {"CD19", "CD3D"})
    NameList(names=['CD3D', 'CD19'], column="column 'gene'")
    >>> names_in_lines(["CD3D", "CD19"], {"CD19"})
    NameList(names=['CD3D', 'CD19'], column='')
    """
    # The sign that occurs on most lines; names are seldom written with one.
    delimiter = max(DELIMITERS, key=lambda sign: sum(sign in line for line in lines))
    cells = csv.reader(lines, delimiter=delimiter)
    rows = _selected_rows([[cell.strip() for cell in row] for row in cells])
    whole_lines = [line.strip().strip('"') for line in lines]
    columns = [list(column) for column in zip(*_even(rows))]
    names = [_split_groups(column, known) for column in columns]
    scores = [sum(name in known for name in column) for column in names]
    place = scores.index(max(scores))
    # Of names that contain the delimiter whole lines are names, too.
    is_list = len(columns) == 1 or scores[place] == 0
    if len(rows) == len(lines):
        is_list |= scores[place] <= sum(name in known for name in whole_lines)
    if is_list:
        # A header is passed over, unless a feature has that name.
        has_header = whole_lines[0].lower() in LIST_HEADERS and whole_lines[0] not in known
        return NameList(_unique(whole_lines[has_header:]))
    header = columns[place][0]
    if _is_header(rows[0], names[place][0], known):
        return NameList(_unique(_split_groups(columns[place], known)[1:]), f"column {header!r}")
    return NameList(_unique(names[place]), f"column {place + 1}")


def _is_header(row: Sequence[str], first: str, known: Collection[str]) -> bool:
    """Whether the first row of a table has no known name and no number."""
    if first in known:
        return False
    return not any(cell.replace(".", "", 1).isdigit() for cell in row)


def _unique(names: Iterable[str]) -> list[str]:
    """Each name once, without empty ones."""
    return list(dict.fromkeys(name for name in names if name))


def _selected_rows(rows: list[list[str]]) -> list[list[str]]:
    """The header and the rows with "true" in the column ``selected``; all without such one."""
    header = [cell.casefold() for cell in rows[0]]
    if "selected" not in header:
        return rows
    place = header.index("selected")
    # a row may be shorter than the header
    values = [row[place].casefold() if place < len(row) else "" for row in rows[1:]]
    if not set(values) <= {"true", "false"}:
        return rows
    chosen = [row for row, value in zip(rows[1:], values) if value == "true"]
    return [rows[0], *chosen]


def _split_groups(column: list[str], known: Collection[str]) -> list[str]:
    """A column of names; in a list of groups, "features" has those of each in one cell."""
    if column[0].casefold() not in ("features", "genes"):
        return column
    return [name for cell in column for name in split_names(cell, known)]


def _even(rows: Sequence[Sequence[str]]) -> list[list[str]]:
    """Rows of one length, filled with empty cells."""
    width = max(len(row) for row in rows)
    return [[*row, *[""] * (width - len(row))] for row in rows]


def split_names(text: str, known: Iterable[str]) -> list[str]:
    """Split names joined by commas; a known name that contains commas stays whole.

    From each comma on, the longest part of the text that is a known name is taken.

    >>> split_names("T cell, CD4,B cell", ["T cell, CD4", "B cell"])
    ['T cell, CD4', 'B cell']
    """
    # Sets and mappings are looked up as they are: they may be long, and the calls many.
    if not isinstance(known, (set, frozenset, Mapping)):
        known = set(known)
    pieces = text.split(",")
    found = []
    start = 0
    while start < len(pieces):
        stop = len(pieces)
        # The longest known name first; a single piece is taken as it is.
        while stop > start + 1 and ",".join(pieces[start:stop]).strip() not in known:
            stop -= 1
        name = ",".join(pieces[start:stop]).strip()
        if name:
            found.append(name)
        start = stop
    return found
