"""The known data sets: two are bundled, the others are looked for in folders."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from scipy import sparse

from semfs._typing import Floats
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


def data_folders() -> list[Path]:
    """Return where data sets are looked for: ``$SEMFS_DATA``, ``data``, the current folder."""
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
    """Return one of the two bundled data sets: human lung cells or human blood cells.

    Both hold log-normalized expression (natural log of 1 + counts scaled to 10,000 per cell),
    float32 and dense. Sources, licences, attributes, splits and weaknesses are in
    ``docs/sample-data.md``.

    Parameters
    ----------
    name : {"lung", "blood"}, default="lung"
        "lung": 964 cells of 19 types of Tabula Sapiens (2022), seven of them unseen, 2,000
        genes, and 56 ancestors of the types in the Cell Ontology; ``info`` has the id of each
        type there and its compartment (``cl_ids``, ``compartments``), and the rows that were
        not measured with 10x (``smart_seq2``). "blood": 700 cells of ten types of 10x Genomics
        (Zheng et al. 2017), four of them unseen, 765 genes, and a table of 20 attributes, each
        0, 0.5 ("partly") or 1, from names of the types and textbooks.

    Examples
    --------
    >>> data = load_sample()
    >>> data.X.shape, len(data.classes), len(data.unseen)
    ((964, 2000), 19, 7)
    >>> data.attributes.loc["macrophage", ["leukocyte", "phagocyte", "T cell"]].tolist()
    [1.0, 1.0, 0.0]
    >>> data.info["cl_ids"]["macrophage"]
    'CL:0000235'
    """
    check_option("name", name, ("lung", "blood"))
    if name == "lung":
        return _load_lung()
    return _load_blood()


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
    return _bundled("lung_tabula_sapiens", X, arrays, "lung", info)


def _load_blood() -> ZeroShotDataset:
    """Return cells of 10x Genomics, stored as CSR in thousandths of a log-count, exactly."""
    arrays = _read_bundled("pbmc68k_reduced.npz")
    values = arrays["data"] / np.float32(1000)
    indices = arrays["indices"].astype(np.int32)
    shape = tuple(arrays["shape"])
    X = sparse.csr_array((values, indices, arrays["indptr"]), shape=shape).toarray()
    return _bundled("pbmc68k_reduced", X, arrays, "blood", {})


def _bundled(
    name: str,
    X: Floats,
    arrays: dict[str, npt.NDArray],
    short_name: str,
    info: dict[str, object],
) -> ZeroShotDataset:
    """Return a bundled data set from its expression matrix and what is stored beside it."""
    y = arrays["cell_types"][arrays["codes"]]
    table = _read_bundled_table(f"{name.split('_')[0]}_attributes.csv")
    return ZeroShotDataset(
        name,
        X,
        y,
        table,
        UNSEEN[short_name],
        arrays["genes"],
        info,
    )


def _read_bundled(file_name: str) -> dict[str, npt.NDArray]:
    path = _FOLDER / file_name
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return dict(stored)


def _read_bundled_table(file_name: str) -> pd.DataFrame:
    pandas = import_optional("pandas", "data")
    with (_FOLDER / file_name).open(encoding="utf-8") as file:
        return pandas.read_csv(file, index_col="cell_type").astype(np.float64)
