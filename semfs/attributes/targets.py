"""Descriptions of the unseen classes: which rows of a table they are."""

from __future__ import annotations

from semfs._typing import AttributesLike
from semfs.attributes.tables import AttributeTable, as_attribute_table


def classes_to_come(
    attributes: AttributesLike | AttributeTable | None,
    target_attributes: AttributesLike | AttributeTable | str | None,
    seen: AttributeTable,
) -> AttributeTable | None:
    """Return the descriptions of the unseen classes, or None.

    ``target_attributes`` is "table" for the rows of ``attributes``, None, or a separate table,
    which must describe at least two unseen classes.
    """
    if target_attributes is None or attributes is None:
        return None
    separate = not isinstance(target_attributes, str)
    table = as_attribute_table(target_attributes if separate else attributes)
    table = table.columns_of(seen, "target_attributes")
    known = set(seen.classes.tolist())
    unseen = [i for i, label in enumerate(table.classes.tolist()) if label not in known]
    if separate and len(unseen) < 2:
        raise ValueError(
            f"target_attributes has {len(unseen)} unseen classes; give two or more."
        )
    if not unseen:
        return None
    return AttributeTable(table.values[unseen], table.classes[unseen], seen.names)
