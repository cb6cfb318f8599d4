"""Labelled rows, wherever they are, and the sums over them that the method needs.

They are in memory (`memory`), on a device (`devices`), in files (`readers`, `hdf5`, `tables`)
or on a cluster (`cluster`). `opening` finds out which, and reads what is not in memory block by
block; `writing` writes some columns of them.
"""

from semfs.rows.devices import ArrayRows, is_foreign
from semfs.rows.memory import FAR, NEAR, Accumulator, Rows, add_outer, as_matrix, spans
from semfs.rows.opening import BlockSource, as_source, open_blocks
from semfs.rows.readers import Labels

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
