"""Labelled rows, wherever they are, and the sums over them that the method needs.

They are in memory (`memory`), on a device (`devices`), in files that are read block by block
(`readers`, `tables`, `blocks`) or on a cluster (`cluster`). `sums` adds blocks up.
"""

from semfs.rows.blocks import BlockSource, as_source, open_blocks
from semfs.rows.devices import ArrayRows, is_foreign
from semfs.rows.labels import Labels
from semfs.rows.memory import FAR, NEAR, Rows, add_outer, as_matrix, spans
from semfs.rows.sums import Accumulator

__all__ = [
    "FAR",
    "NEAR",
    "Accumulator",
    "ArrayRows",
    "BlockSource",
    "Labels",
    "Rows",
    "add_outer",
    "as_matrix",
    "as_source",
    "is_foreign",
    "open_blocks",
    "spans",
]
