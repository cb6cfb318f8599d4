"""Converts options of `semfs select` to features, groups, costs and limits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from semfs.cli.selection import Selection
    from semfs.rows import BlockSource


def feature_lists(
    options: Selection, source: BlockSource, groups: Any = None
) -> dict[str, list[int]]:
    """Return the indices that --include, --exclude and --candidates mean.

    They may name ``groups``, the value of --groups.
    """
    from semfs.feature_names import resolve_features
    from semfs.selectors.rules.feature_values import group_members

    names = source.feature_names
    d = source.n_features
    members = group_members(groups, d, names)
    found = {}
    for parameter in ("include", "exclude", "candidates"):
        values = getattr(options, parameter)
        found[parameter] = resolve_features(parameter, values, names, d, members).tolist()
    both = set(found["include"]) & set(found["exclude"])
    if both:
        feature = min(both)
        name = feature if names is None else names[feature]
        raise ValueError(
            f"{name!r} is in --include and in --exclude. Take it out of one of them."
        )
    return found


def feature_values(
    parameter: str, text: str | None, source: BlockSource, groups: Any = None
) -> dict[str, Any] | list[Any] | None:
    """Return what --groups or --costs names: a column of var, or a table of two columns.

    A table of costs may name ``groups``, the value of --groups, instead of features.
    """
    from semfs.io.anndata import frame_column
    from semfs.validation import ParameterError, is_file

    if text is None:
        return None
    if is_file(text):
        known = set(source.feature_names or ())
        if groups is not None:
            labels = groups.values() if isinstance(groups, dict) else groups
            known |= {str(label) for label in labels}
        table = _two_columns(parameter, Path(text), known)
        if parameter == "costs":
            # A feature with an empty cell has no price.
            return {
                name: _as_number(parameter, name, value)
                for name, value in table.items()
                if value
            }
        return dict(table)
    reader = source.reader
    if reader.path is None or not reader.of_cells:
        message = (
            f"is {text!r}, which is not a file; only .h5ad and .zarr files have such columns."
        )
        raise ParameterError(parameter, message)
    return list(frame_column(reader.path, reader.frame, text))


def group_table(path: Path, names: Sequence[str]) -> dict[str, str]:
    """Return the group of each feature, from a table of features and groups."""
    found = _two_columns("groups", path, {str(name) for name in names})
    return {name: label for name, label in found.items() if label}


def capacity_values(
    text: str | None,
    source: BlockSource,
) -> float | dict[Any, float] | None:
    """Return the number that --capacity is, or those of a table of classes."""
    from semfs.validation import is_file

    if text is None:
        return None
    if not is_file(text):
        return _as_number("capacity", "every class", text)
    assert source.labels is not None
    # the table has text, while labels of the data may be numbers
    label_of = {str(label): label for label in source.labels.classes}
    table = _two_columns("capacity", Path(text), set(label_of))
    return {
        label_of.get(name, name): _as_number("capacity", name, value)
        for name, value in table.items()
    }


def _two_columns(parameter: str, path: Path, known: set[str]) -> dict[str, str]:
    """Return a table of names and values. A first line without a known name is a header."""
    import csv

    from semfs.validation import ParameterError

    # utf-8-sig, because Excel begins CSV files with a byte order mark
    with path.open(newline="", encoding="utf-8-sig") as file:
        text = file.read()
    # comma last: names and decimal numbers may contain one
    delimiter = next((mark for mark in "\t;," if mark in text), ",")
    lines = csv.reader(text.splitlines(), delimiter=delimiter)
    rows = [row for row in lines if any(row)]
    if rows and rows[0][0].strip() not in known:
        rows = rows[1:]
    _check_some_known(parameter, path, [row[0].strip() for row in rows], known)
    if not rows or min(len(row) for row in rows) < 2:
        message = f": {path} needs two columns, names and values."
        raise ParameterError(parameter, message)
    return {row[0].strip(): row[1].strip() for row in rows}


def _check_some_known(parameter: str, path: Path, names: list[str], known: set[str]) -> None:
    """Raise if no name of a table is known. Costs may name groups instead of features."""
    from semfs.validation import ParameterError, listed

    if not names or not known or not known.isdisjoint(names):
        return
    found = f": none of the {len(names)} names in {path} is known: {listed(names, 3)}."
    if parameter == "costs":
        found += " Names of features are expected, or those of --groups."
    raise ParameterError(parameter, f"{found} The first column must hold them.")


def _as_number(parameter: str, name: str, text: str) -> float:
    from semfs.validation import ParameterError

    try:
        return float(text)
    except ValueError:
        raise ParameterError(
            parameter, f"of {name!r} must be a number, got {text!r}."
        ) from None
