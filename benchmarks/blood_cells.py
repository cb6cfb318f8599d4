"""The blood cells of the benchmarks: 700 cells of 10x Genomics, as scanpy distributes them.

They are not part of semfs, because their labels have no open license. scanpy 1.11 (in
``make bench``'s environment) has them as ``scanpy.datasets.pbmc68k_reduced()``. The class
descriptions beside this file were written for semfs.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd

TABLE = Path(__file__).with_name("blood_attributes.csv")


def load_blood_cells() -> tuple[np.ndarray, np.ndarray, pd.DataFrame]:
    """Return log-normalized expression (700, 765), cell types (700,), and attributes."""
    import scanpy

    cells = scanpy.datasets.pbmc68k_reduced()
    X = cells.raw.X.toarray().astype(np.float32)
    y = cells.obs["bulk_labels"].to_numpy(dtype="U")
    return X, y, pd.read_csv(TABLE, index_col="cell_type").astype(float)
