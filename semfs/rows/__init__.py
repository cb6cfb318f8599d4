"""Labeled samples, wherever they are, and the sums over them that the method needs.

Row sources (`source` describes what all of them offer) are in memory (`memory`), on a device of
another array library (`device`), in files (`streamed`, `csr`, `csc`) or on a Dask cluster
(`cluster`). `opening` makes the source of a file, `dask_data` that of a Dask collection. `sums`
holds the sums over blocks of samples, `centering` what their scatter is taken about, `plan`
decides on the size of blocks, and `preprocess` on what is done to features before.
"""

from semfs.rows.blocks import BlockSource, OutOfCoreRows, beyond_memory, in_blocks
from semfs.rows.device import DeviceRows, is_foreign
from semfs.rows.memory import MemoryRows, in_memory
from semfs.rows.opening import column_places, open_blocks, open_unlabeled
from semfs.rows.preprocess import Preprocessing
from semfs.rows.source import RowSource

__all__ = [
    "BlockSource",
    "DeviceRows",
    "MemoryRows",
    "OutOfCoreRows",
    "Preprocessing",
    "RowSource",
    "beyond_memory",
    "column_places",
    "in_blocks",
    "in_memory",
    "is_foreign",
    "open_blocks",
    "open_unlabeled",
]
