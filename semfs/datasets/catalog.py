"""The known data sets: two are bundled, and the others are searched for in folders."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from semfs.datasets.base import ZeroShotDataset
from semfs.system import import_optional
from semfs.validation import check_option

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Entry:
    """A known data set, as ``semfs/data/catalog.toml`` describes it."""

    name: str
    what: str  # one line for a list
    loader: str  # the call that loads it
    files: list[list[str]]  # groups of file names in a data folder; any one group suffices
    source: str  # how to get it
    licence: str


_FOLDER = resources.files("semfs") / "data"
_FACTS = tomllib.loads((_FOLDER / "catalog.toml").read_text("utf-8"))
CATALOG = tuple(Entry(**record) for record in _FACTS["entry"])
#: Unseen classes of data sets that do not name them.
UNSEEN: dict[str, list[str]] = _FACTS["unseen"]
#: Unseen classes in the literature before the "proposed" splits of Xian et al. 2017.
STANDARD: dict[str, list[str]] = _FACTS["standard"]
#: The classes of CIFAR-10 in the order of their numbers.
CIFAR10_CLASSES: tuple[str, ...] = tuple(_FACTS["cifar10"])
#: Genes of the smaller bundled sample: enough to choose from, few enough for quick examples.
N_LINING_GENES = 800


def data_folders() -> list[Path]:
    """Return the folders to search: ``$SEMFS_DATA``, ``data``, and the current folder."""
    variable = os.environ.get("SEMFS_DATA", "")
    given = [Path(part) for part in variable.split(os.pathsep) if part]
    return [*given, Path("data"), Path()]


def find_files(entry: Entry, folders: list[Path] | None = None) -> Path | None:
    """Return the folder that holds the files of a data set, or None."""
    if folders is None:
        folders = data_folders()
    for folder in folders:
        for group in entry.files:
            if all((folder / name).is_file() for name in group):
                return (folder / group[0]).parent
    return None


def load_sample(name: str = "lung") -> ZeroShotDataset:
    """Load one of the two sets of human lung cells that are included in semfs.

    Both sets hold log-normalized expression (the natural logarithm of 1 + counts per 10,000
    counts of the cell) as dense float32. Their sources, licenses, attributes, splits and
    weaknesses are described in ``docs/sample-data.md``.

    Parameters
    ----------
    name : {"lung", "lining"}, default="lung"
        "lung" has 964 cells of 19 types (seven of them unseen) from Tabula Sapiens (2022),
        2,000 genes, and 56 attributes, which are the ancestors of the types in the Cell
        Ontology. Its ``info`` holds the ontology id and the compartment of each type
        (``cl_ids``, ``compartments``), and the samples that were not measured with 10x
        (``smart_seq2``). "lining" consists of the epithelial and endothelial cells of "lung".
        It has 449 cells of ten types (four of them unseen), 800 genes, and 16 attributes from
        textbooks, each of which is 0, 0.5 ("partly") or 1.

    Returns
    -------
    ZeroShotDataset

    Examples
    --------
    >>> data = load_sample()
    >>> data.X.shape, len(data.classes), len(data.unseen)
    ((964, 2000), 19, 7)
    >>> data.attributes.loc["macrophage", ["leukocyte", "phagocyte", "T cell"]].tolist()
    [1.0, 1.0, 0.0]
    >>> data.info["cl_ids"]["macrophage"]
    'CL:0000235'
    >>> load_sample("lining").X.shape
    (449, 800)
    """
    if name == "blood":
        raise ValueError(
            "the blood cells are no longer part of semfs, because their labels have no open "
            'license. load_sample("lining") is a sample of similar size.'
        )
    check_option("name", name, ("lung", "lining"))
    if name == "lung":
        return _load_lung()
    return _load_lining()


def _load_lung() -> ZeroShotDataset:
    """Return cells of Tabula Sapiens, stored as counts with the totals of all genes."""
    arrays = _read_bundled("lung_tabula_sapiens.npz")
    # Totals of all genes that were measured, not of the 2,000 that are stored.
    per_cell = 1e4 / arrays["totals"]
    X = np.log1p(arrays["counts"] * per_cell[:, None]).astype(np.float32)
    types = arrays["cell_types"].tolist()
    info = {
        "smart_seq2": arrays["smart_seq2"],
        "cl_ids": dict(zip(types, arrays["cl_ids"].tolist())),
        "compartments": dict(zip(types, arrays["compartments"].tolist())),
    }
    return ZeroShotDataset(
        "lung_tabula_sapiens",
        X,
        arrays["cell_types"][arrays["codes"]],
        _read_bundled_table("lung_attributes.csv"),
        UNSEEN["lung"],
        arrays["genes"],
        info,
    )


def _load_lining() -> ZeroShotDataset:
    """Return the epithelial and endothelial cells of the lung, with fewer genes.

    The genes are those that vary most among these cells, whatever their labels.
    """
    lung = _load_lung()
    table = _read_bundled_table("lining_attributes.csv")
    cells = np.isin(lung.y, table.index.to_numpy(dtype=lung.y.dtype))
    variances = lung.X[cells].var(axis=0, dtype=np.float64)
    genes = np.sort(np.argsort(-variances, kind="stable")[:N_LINING_GENES])
    return ZeroShotDataset(
        "lining_tabula_sapiens",
        np.ascontiguousarray(lung.X[cells][:, genes]),
        lung.y[cells],
        table,
        UNSEEN["lining"],
        lung.feature_names[genes],
    )


def _read_bundled(file_name: str) -> dict[str, npt.NDArray]:
    path = _FOLDER / file_name
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)


def _read_bundled_table(file_name: str) -> pd.DataFrame:
    pandas = import_optional("pandas", "data")
    with (_FOLDER / file_name).open(encoding="utf-8") as file:
        return pandas.read_csv(file, index_col="cell_type").astype(np.float64)
