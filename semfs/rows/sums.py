"""Names that the branch `rows` gives this module; it replaces this file."""

from semfs.rows.memory import (
    FAR,
    NEAR,
    PANEL,
    Accumulator,
    add_outer,
    add_products,
    mirrored,
    without_lost,
)

__all__ = [
    "FAR",
    "NEAR",
    "PANEL",
    "Accumulator",
    "add_outer",
    "add_products",
    "mirrored",
    "without_lost",
]
