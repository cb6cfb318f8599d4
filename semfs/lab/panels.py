"""Given panels, such as commercial ones, as lists of features in files."""

from __future__ import annotations

import csv
from collections.abc import Collection, Sequence
from pathlib import Path

from semfs._typing import PathLike
from semfs.feature_names import split_names
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.validation import did_you_mean, listed

#: Names of missing features that a message shows.
MOST_MISSING = 5


def read_panel(path: PathLike, feature_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the features of a panel in a file, in its order, and unknown names.

    Parameters
    ----------
    path : path-like
        A file with one name per line, or a table with commas, semicolons or tabs. In a table,
        the column with most feature names is used. A header is not a name. In a table that
        ``semfs select`` wrote, only the selected features are used.
    feature_names : sequence of str
        Names of the features of the data.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "vendor.csv"
    >>> _ = file.write_text("rank,gene\\n1,CD3D\\n2,CD19\\n3,XYZ\\n")
    >>> read_panel(file, ["CD19", "CD3D"])
    (['CD3D', 'CD19'], ['XYZ'])
    """
    path = open_existing(path)
    with file_errors(path, "panel"):
        text = path.read_text("utf-8-sig")
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        raise FileError(f"{path} is empty. Write the name of one feature per line.")
    known = {str(name) for name in feature_names}
    # The sign that occurs on most lines; names are seldom written with one.
    delimiter = max(",;\t", key=lambda sign: sum(sign in line for line in lines))
    cells = csv.reader(lines, delimiter=delimiter)
    rows = _selected_rows([[cell.strip() for cell in row] for row in cells])
    columns = [_split_groups(list(column), known) for column in zip(*_even(rows))]
    # Of names that contain the delimiter whole lines are names, too.
    if len(rows) == len(lines):
        columns.insert(0, lines)
    names = max(columns, key=lambda column: sum(name.strip() in known for name in column))
    names = list(dict.fromkeys(name.strip() for name in names if name.strip()))
    found = [name for name in names if name in known]
    if not found:
        hint = did_you_mean(names[-1], sorted(known)) or "."
        raise FileError(
            f"{path}: none of its {len(names)} names, such as {names[-1]!r}, is a feature of "
            f"the data{hint} Perhaps one uses gene symbols and the other gene ids."
        )
    missing = [name for name in names if name not in known]
    if missing and missing[0] == names[0] and len(rows) > 1:
        missing = missing[1:]  # the header
    return found, missing


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


def note_on_missing(path: PathLike, n_found: int, missing: Sequence[str]) -> str:
    """Return what to say of features of a panel that the data do not have."""
    return (
        f"{Path(path).name}: {len(missing)} of {n_found + len(missing)} features are not in "
        f"the data and were left out: {listed(missing, MOST_MISSING)}."
    )
