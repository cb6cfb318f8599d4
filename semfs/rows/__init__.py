"""Sources of labeled samples, and the sums over samples that the method needs.

`source` defines the interface of all sources. Samples are in memory (`memory`), on a device of
another array library (`device`), in files (`streamed`, `csr`, `csc`) or on a Dask cluster
(`cluster`). `opening` makes the source for a file, and `dask_data` for a Dask collection.
`sums` computes sums over blocks of samples, `centering` says what scatter is taken about,
`plan` chooses the size of blocks, and `preprocess` transforms features before.
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
