"""Labeled rows, wherever they are, and the sums over them that the method needs.

They are in memory (`memory`), on a device (`devices`), in files (`readers`, `hdf5`, `sparse`,
`tables`) or on a cluster (`cluster`). `opening` finds out which; `blocks` reads what is not in
memory block by block, `writing` writes some columns of them.
"""

from semfs.arrays import batches
from semfs.io.anndata import as_genes, view
from semfs.labels import Labels
from semfs.rows.blocks import BlockSource
from semfs.rows.device import ArrayRows, is_foreign
from semfs.rows.memory import FAR, NEAR, Accumulator, Rows, add_outer, as_matrix
from semfs.rows.opening import (
    Plain,
    as_plain,
    as_source,
    column_places,
    open_blocks,
    plain_blocks,
    unlabeled_source,
)

__all__ = ["FAR", "NEAR", "Accumulator", "ArrayRows", "BlockSource", "Labels", "Plain", "Rows"]
__all__ += ["add_outer", "as_genes", "as_matrix", "as_plain", "as_source", "column_places"]
__all__ += ["is_foreign", "open_blocks", "plain_blocks", "batches", "unlabeled_source", "view"]
