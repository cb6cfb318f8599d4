"""Samples that are read in blocks of rows: dense files, and (X, y) blocks of any kind."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from semfs.rows.blocks import BlockSource, stacked
from semfs.rows.memory import N_SAMPLED_SPARSE, MemoryRows

if TYPE_CHECKING:
    from semfs._typing import Float64, Indices, Matrix
    from semfs.rows.centering import Centering
    from semfs.rows.source import ClusterModel
    from semfs.rows.sums import Accumulator


@dataclass(frozen=True, eq=False)
class StreamedRows(BlockSource):
    """Samples that are read in blocks of rows. Make it with `open_blocks`."""

    def accumulate(
        self,
        *,
        matrix: bool,
        precise: bool,
        n_sampled: int = N_SAMPLED_SPARSE,
    ) -> Accumulator:
        """Return the sums over all samples, without keeping samples."""
        return self.accumulate_blocks(matrix=matrix, precise=precise)

    def gram_columns(self, columns: Indices, centering: Centering) -> Float64:
        """Return columns (d, b) of the scatter matrix about the mean, in float64."""
        out = np.zeros((self.n_features, len(columns)))
        # scatter about a common mean adds up over blocks
        for block in self.watched_blocks(f"{len(columns)} Gram columns"):
            rows = MemoryRows(block.X, block.codes, block.weights)
            weights = block.weights
            block_total = float(rows.n_rows if weights is None else weights.sum())
            out += rows.gram_columns(columns, replace(centering, total=block_total))
        return out

    def rows_at(self, rows: Indices) -> Matrix:
        """Return samples by their row numbers, which ascend."""
        # a copy, because a block may be a view that keeps a larger array alive
        parts = [block.X.copy() for block in self.only(rows).blocks()]
        return stacked(parts, self.n_features)

    def clusters_at(
        self, rows: Indices, model: ClusterModel, batches: Indices | None = None
    ) -> Indices:
        """Return the cluster of each sample, by row numbers that ascend, and their batches."""
        found = [np.zeros(0, dtype=np.intp)]
        n_done = 0
        for block in self.only(rows).blocks():
            part = slice(n_done, n_done + block.X.shape[0])
            found.append(model.assign(block.X, None if batches is None else batches[part]))
            n_done = part.stop
        return np.concatenate(found)
