"""Descriptions of unseen classes: which rows of the tables that the user gave they are."""

from __future__ import annotations

from semfs._typing import AttributesLike
from semfs.attributes import AttributeTable


def unseen_descriptions(
    attributes: AttributesLike | AttributeTable | None,
    target_attributes: AttributesLike | AttributeTable | str | None,
    seen: AttributeTable,
) -> AttributeTable | None:
    """Return the descriptions of the unseen classes, or None.

    ``target_attributes`` is "table" for the rows of ``attributes``, None, or a separate table
    that describes at least two unseen classes.
    """
    if target_attributes is None or attributes is None:
        return None
    # a word refers to the table that describes the seen classes
    separate = not isinstance(target_attributes, str)
    table = AttributeTable.from_any(target_attributes if separate else attributes)
    table = table.columns_of(seen, "target_attributes")
    known = set(seen.classes.tolist())
    unseen = [i for i, label in enumerate(table.classes.tolist()) if label not in known]
    # there is nothing to separate one class from
    if separate and len(unseen) < 2:
        raise ValueError(
            f"target_attributes describes {len(unseen)} unseen classes. "
            "Describe at least two unseen classes."
        )
    if not unseen:
        return None
    return AttributeTable(table.values[unseen], table.classes[unseen], seen.names)
