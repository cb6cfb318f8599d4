"""The bundled sample: human blood cells described by their surface markers."""

from __future__ import annotations

from importlib import resources

import numpy as np
from scipy import sparse

from semfs.datasets.base import ZeroShotDataset
from semfs.files import need

__all__ = ["load_sample"]

# The unseen types are new combinations of what the six seen types show; the reasons are in
# docs/sample-data.md. Chosen before any selection or clustering had been run on these data.
_SAMPLE_UNSEEN = ["CD14+ Monocyte", "CD19+ B", "CD56+ NK", "CD8+/CD45RA+ Naive Cytotoxic"]


def load_sample() -> ZeroShotDataset:
    """Return 700 human blood cells of ten types, described by their surface markers.

    The 68k PBMC data of 10x Genomics (Zheng et al. 2017) as reduced by scanpy: 765 genes,
    log-normalised expression (natural log of 1 + counts scaled to a common total), float32
    and dense. The class table has one row per cell type and 20 attributes with values 0, 0.5
    ("partly") and 1, written from the cell-type names and textbook facts, never from the
    expression values. Six types are seen and four unseen. Nothing is downloaded; pandas is
    needed (``pip install "semfs[data]"``).

    Returns
    -------
    ZeroShotDataset
        ``X`` (700, 765), ``y`` (700,), ``attributes`` (10, 20).

    Notes
    -----
    Source, licence (CC BY 4.0 as reported), each attribute, the reasons for the split and
    the known weaknesses of the labels: ``docs/sample-data.md`` and ``semfs/data/README.md``.

    Examples
    --------
    >>> data = load_sample()
    >>> data.X.shape, len(data.classes)
    ((700, 765), 10)
    >>> data.unseen.tolist()
    ['CD14+ Monocyte', 'CD19+ B', 'CD56+ NK', 'CD8+/CD45RA+ Naive Cytotoxic']
    >>> data.attributes.loc["CD19+ B", ["CD19", "lymphoid", "T_cell"]].tolist()
    [1.0, 1.0, 0.0]
    """
    pandas = need("pandas", "data")
    folder = resources.files("semfs") / "data"
    with (folder / "pbmc68k_attributes.csv").open(encoding="utf-8") as text:
        attributes = pandas.read_csv(text, index_col="cell_type").astype(np.float64)
    npz = folder / "pbmc68k_reduced.npz"
    with npz.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
        values = arrays["data"] / np.float32(1000)  # stored in thousandths, exactly
        X = sparse.csr_array(
            (values, arrays["indices"].astype(np.int32), arrays["indptr"]),
            shape=tuple(arrays["shape"]),
        ).toarray()
        y, genes = arrays["cell_types"][arrays["codes"]], arrays["genes"]
    return ZeroShotDataset("pbmc68k_reduced", X, y, attributes, _SAMPLE_UNSEEN, genes)
