"""Names for types that many modules use."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
import scipy.sparse as sp

if TYPE_CHECKING:
    import pandas as pd
    from anndata import AnnData

#: An array of floating-point numbers.
Floats: TypeAlias = npt.NDArray[np.floating[Any]]
#: An array of float64.
Float64: TypeAlias = npt.NDArray[np.float64]
#: Positions of features or samples, and codes of classes.
Indices: TypeAlias = npt.NDArray[np.signedinteger[Any]]
#: True where a feature or sample is meant.
Mask: TypeAlias = npt.NDArray[np.bool_]
#: A matrix in memory: dense, or sparse by rows or by columns.
Matrix: TypeAlias = "Floats | sp.csr_array | sp.csc_array"
#: A sparse matrix: stored by rows (CSR), or by columns (CSC).
Sparse: TypeAlias = "sp.csr_array | sp.csc_array"
#: Anything that `numpy.asarray` understands.
ArrayLike: TypeAlias = npt.ArrayLike
#: The path of a file or folder.
PathLike: TypeAlias = "str | os.PathLike[str]"
#: One class label.
Label: TypeAlias = Hashable
#: Class labels as users pass them.
LabelsLike: TypeAlias = "npt.ArrayLike | Sequence[Hashable]"
#: Class descriptions as users pass them.
AttributesLike: TypeAlias = (
    "pd.DataFrame | Mapping[Hashable, Sequence[float]] | npt.NDArray[Any]"
    " | Sequence[Sequence[float]]"
)
#: Features as users name them: by index, by name.
FeaturesLike: TypeAlias = Sequence[int | str]
#: A seed, or a source of random numbers, as scikit-learn takes it.
RandomState: TypeAlias = int | np.random.RandomState | None


class OpenedSource(Protocol):
    """Samples that `semfs.rows.open_blocks` has opened."""

    @property
    def n_features(self) -> int:
        """Number of features d."""
        ...

    @property
    def fits_in_memory(self) -> bool:
        """Whether the data are so small that it takes less time to load them."""
        ...


#: Samples as users pass them: an array, list, frame, sparse matrix, memmap or device array in
#: memory; a path, AnnData, an opened source, (X, y) blocks or a Dask collection.
DataLike: TypeAlias = (
    "npt.ArrayLike | sp.sparray | sp.spmatrix | PathLike | pd.DataFrame | AnnData"
    " | OpenedSource | Iterable[tuple[Matrix, LabelsLike]]"
)
