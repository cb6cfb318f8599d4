"""Given panels, such as commercial ones, as lists of features in files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from semfs._typing import PathLike
from semfs.feature_files import names_in_lines
from semfs.io.safety import FileError, file_errors, open_existing
from semfs.validation import did_you_mean, listed

#: Names of missing features that a message shows.
MOST_MISSING = 5


def read_panel(path: PathLike, feature_names: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the features of a panel in a file, in its order, and unknown names.

    Parameters
    ----------
    path : path-like
        A file with one name per line, or a table that is separated by commas, semicolons or
        tabs. In a table, the column with the most feature names is used, without its header. In
        a table written by ``semfs select``, only the selected features are used.
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
        raise FileError(f"{path} is empty. Write one feature name per line.")
    known = {str(name) for name in feature_names}
    listed_names = names_in_lines(lines, known)
    names = listed_names.names
    found = [name for name in names if name in known]
    if not found:
        hint = did_you_mean(names[-1], sorted(known)) or "."
        raise FileError(
            f"{path}: none of its {len(names)} names, such as "
            f"{names[-1]!r}, is a feature of the data{hint} Perhaps the "
            "panel uses gene symbols and the data use gene ids, or vice "
            "versa."
        )
    missing = [name for name in names if name not in known]
    # The first line of a plain list may be a header of any name; that of a table is known.
    is_list = not listed_names.column and len(lines) > 1
    if is_list and missing and missing[0] == names[0]:
        missing = missing[1:]
    return found, missing


def note_on_missing(path: PathLike, n_found: int, missing: Sequence[str]) -> str:
    """Return a note on features of a panel that are missing from the data."""
    return (
        f"{Path(path).name}: {len(missing)} of {n_found + len(missing)} features are not in "
        f"the data and were left out: {listed(missing, MOST_MISSING)}."
    )


def notes_on_sizes(name: str, n_features: int, wanted: Sequence[int]) -> list[str]:
    """Return notes on the columns that a panel adds to a table of scores, or lacks.

    Parameters
    ----------
    name : str
        Name of the panel in the table.
    n_features : int
        Number of features of the panel that are in the data.
    wanted : sequence of int
        Numbers of features that the user requested.

    Examples
    --------
    >>> notes_on_sizes("mine", 47, [47, 50])
    ['No score of mine at 50: it has only 47 features that are in the data.']
    """
    notes = []
    if n_features not in wanted:
        notes.append(
            f"Scores at {n_features} features: the data have {n_features} features of {name}, "
            "and the other methods are compared with as many."
        )
    larger = [str(k) for k in wanted if k > n_features]
    if larger:
        notes.append(
            f"No score of {name} at {listed(larger)}: it has only {n_features} features that "
            "are in the data."
        )
    return notes
