"""Descriptions from annotation levels, and combinations of several tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from semfs.attributes.tables import AnyDescription, AttributeTable
from semfs.labels import is_missing
from semfs.system import import_optional
from semfs.validation import listed

if TYPE_CHECKING:
    import pandas as pd

#: Classes of inconsistent nesting that a message names.
MOST_NAMED = 5


def attributes_from_hierarchy(levels: pd.DataFrame) -> pd.DataFrame:
    """Convert nested annotation levels to a class-attribute table of zeros and ones.

    Parameters
    ----------
    levels : DataFrame of shape (n, L)
        One row per sample (or per class) and one column per level, the coarsest level first,
        for example ``obs[["level1", "level2", "cell_type"]]``. The values of the last column
        are the classes. Rows without a class are skipped. If the value of a coarser level is
        missing, the class belongs to no group of that level.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        One row per class of the last column, and one column per value of each coarser level,
        named "level1: value". An entry is 1 if the class belongs to that group, otherwise 0.

    Raises
    ------
    ValueError
        If a class has two values of a coarser level, because then the levels are not nested.

    Examples
    --------
    >>> import pandas as pd
    >>> obs = pd.DataFrame({"group": ["blood", "blood", "lung"],
    ...                     "type": ["T cell", "B cell", "club cell"]})
    >>> attributes_from_hierarchy(obs)
               group: blood  group: lung
    T cell              1.0          0.0
    B cell              1.0          0.0
    club cell           0.0          1.0
    """
    pandas = import_optional("pandas", "data", what="A hierarchy")
    frame = pandas.DataFrame(levels)
    if frame.shape[1] < 2:
        raise ValueError(
            f"levels has {frame.shape[1]} column, but at least two were "
            "expected: the coarsest level first and the classes last."
        )
    *coarser, finest = frame.columns
    frame = frame[~frame[finest].map(is_missing).astype(bool)]
    classes = list(dict.fromkeys(frame[finest].tolist()))
    if not classes:
        raise ValueError(f"levels has no class: its last column {finest!r} is empty.")
    position = {label: row for row, label in enumerate(classes)}
    columns: dict[str, Any] = {}
    for level in coarser:
        for label, value in _value_of_classes(frame, level, finest).items():
            name = f"{level}: {value}"
            columns.setdefault(name, np.zeros(len(classes)))[position[label]] = 1.0
    return pandas.DataFrame(columns, index=classes)


def _value_of_classes(frame: pd.DataFrame, level: Any, finest: Any) -> dict[Any, Any]:
    """Return the value of a level for each class; classes without a value are left out."""
    pairs = frame[[level, finest]].drop_duplicates()
    pairs = pairs[~pairs[level].map(is_missing).astype(bool)]
    found: dict[Any, Any] = {}
    conflicts: dict[Any, list[str]] = {}
    for value, label in zip(pairs[level].tolist(), pairs[finest].tolist()):
        if label in found:
            conflicts.setdefault(label, [str(found[label])]).append(str(value))
        else:
            found[label] = value
    if conflicts:
        shown = [f"{label} is in {' and '.join(v)}" for label, v in conflicts.items()]
        raise ValueError(
            f"{level} is not a level above {finest}: "
            f"{listed(shown, MOST_NAMED)}. Every class must have exactly "
            "one value at each coarser level. Rename classes, or correct "
            "the annotation."
        )
    return found


def combine_attributes(
    tables: Sequence[AnyDescription | None], classes: Iterable[Any] | None = None
) -> pd.DataFrame:
    """Join several class-attribute tables side by side, each with the same weight.

    Each table is multiplied by a factor that makes its sum of squares about the column means
    equal to 1. A table of 800 attributes therefore has the same weight as a table of three.

    Parameters
    ----------
    tables : sequence of class descriptions
        Tables in any form that `SemFS` accepts. Text and files need ``classes``.
    classes : iterable of class labels, optional
        The classes to describe. By default, these are the classes that all tables describe.

    Returns
    -------
    pandas.DataFrame of shape (C, m)
        The joined table, with rows in the order of the first table. If an attribute name occurs
        in several tables, the number of the table is appended, as in "legs (2)".

    Examples
    --------
    >>> size = {"cat": [4.0], "hen": [2.0], "ant": [0.0]}
    >>> kind = {"hen": [1.0, 0.0], "cat": [0.0, 1.0], "ant": [0.0, 0.0]}
    >>> combined = combine_attributes([size, kind])
    >>> combined.shape, combined.loc["cat"].round(2).tolist()
    ((3, 3), [1.41, 0.0, 0.87])
    """
    if not tables:
        raise ValueError("combine_attributes needs at least one table.")
    wanted = None if classes is None else list(classes)
    read = [AttributeTable.from_any(table, wanted) for table in tables]
    common = _common_classes(read)
    if wanted is not None:
        # Rows for further classes are kept: they may be unseen ones.
        missing = [label for label in wanted if label not in set(common)]
        for table in read:
            table.rows_of(missing)  # names the classes that it lacks
    pandas = import_optional("pandas", "data", what="A table")
    names: list[str] = []
    blocks = []
    for number, table in enumerate(read, start=1):
        values = table.rows_of(common).values
        centered = values - values.mean(axis=0)
        size = float(np.sqrt((centered**2).sum()))
        # A table that says nothing stays as it is: there is nothing to weigh.
        blocks.append(values / size if size > 0 else values)
        for name in table.names.tolist():
            names.append(f"{name} ({number})" if str(name) in names else str(name))
    labels = pandas.Index(common, tupleize_cols=False)
    return pandas.DataFrame(np.hstack(blocks), index=labels, columns=names)


def _common_classes(tables: Sequence[AttributeTable]) -> list[Any]:
    """Return the classes that all tables describe, in the order of the first table."""
    common = tables[0].classes.tolist()
    for table in tables[1:]:
        known = set(table.classes.tolist())
        common = [label for label in common if label in known]
    if not common:
        first = [str(table.classes.tolist()[0]) for table in tables]
        raise ValueError(
            "The tables have no class in common. Their first classes are "
            f"{', '.join(first)}. Describe the same classes in all "
            "tables."
        )
    return common
