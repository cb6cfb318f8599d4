"""Ids of genes in other columns of var, for people who order probes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from semfs.io.reader import Reader

#: Columns of the list that are not ids.
TAKEN = ("rank", "reason", "frequency", "substitutes", "cost", "group")


def gene_ids(
    reader: Reader | None, features: Iterable[str], feature: str
) -> dict[str, list[str]]:
    """Return other names of genes, from the columns of var with a different text for each gene.

    Parameters
    ----------
    reader : Reader or None
        Only readers of AnnData know other names.
    features : iterable of str
        The genes whose ids are wanted, k of them.
    feature : str
        What a feature is called, which is the name of another column.

    Returns
    -------
    dict
        Maps the name of each column to the k ids. The index of var is among the columns, called
        "index", if the genes have other names than there.
    """
    if reader is None or reader.gene_columns is None or reader.feature_names is None:
        return {}
    columns = reader.gene_columns()
    if reader.gene_index is not None:
        columns = {"index": reader.gene_index(), **columns}
    names = reader.feature_names
    place_of = {name: place for place, name in enumerate(names)}
    places = [place_of.get(str(name)) for name in features]
    found = {}
    for name, values in columns.items():
        # The names themselves, perhaps made unique, are no further information.
        if not _are_ids(values) or sum(map(str.__eq__, values, names)) > len(names) / 2:
            continue
        is_taken = name in TAKEN or name == feature
        ids = ["" if place is None else str(values[place]) for place in places]
        found[f"{name} of var" if is_taken else name] = ids
    return found


def _are_ids(values: Sequence[Any]) -> bool:
    """Return whether every value is a text that occurs once."""
    are_texts = all(isinstance(value, str) and value.strip() for value in values)
    return are_texts and len(set(values)) == len(values)
