"""The known data sets: two are bundled, the others are looked for in folders."""

import os
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.base import ZeroShotDataset
from semfs.system import import_optional
from semfs.validation import check_option


@dataclass(frozen=True)
class Entry:
    """A known data set, as ``semfs/data/catalog.toml`` describes it."""

    name: str
    what: str
    loader: str
    files: list[list[str]]
    source: str
    licence: str


_FACTS = tomllib.loads((resources.files("semfs") / "data" / "catalog.toml").read_text("utf-8"))
CATALOG = tuple(Entry(**record) for record in _FACTS["entry"])
#: Unseen classes of data sets that do not name them, and those of the older literature.
UNSEEN, STANDARD = _FACTS["unseen"], _FACTS["standard"]
CIFAR10_CLASSES = tuple(_FACTS["cifar10"])  # in the order of their numbers


def data_folders() -> list[Path]:
    """Return where data sets are looked for: ``$SEMFS_DATA``, ``data``, here."""
    given = [Path(part) for part in os.environ.get("SEMFS_DATA", "").split(os.pathsep) if part]
    return [*given, Path("data"), Path()]


def find_files(entry: Entry, folders: list[Path] | None = None) -> Path | None:
    """Return the folder that holds the files of a data set, or None."""
    for folder in data_folders() if folders is None else folders:
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
    stem, rest = ("lung", "tabula_sapiens") if name == "lung" else ("pbmc68k", "reduced")
    pandas, folder = import_optional("pandas", "data"), resources.files("semfs") / "data"
    with (folder / f"{stem}_attributes.csv").open(encoding="utf-8") as text:
        table = pandas.read_csv(text, index_col="cell_type").astype(np.float64)
    path = folder / f"{stem}_{rest}.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        arrays = dict(stored)
    types, info = arrays["cell_types"], dict[str, Any]()
    if name == "lung":
        X = np.log1p(arrays["counts"] * (1e4 / arrays["totals"])[:, None]).astype(np.float32)
        info["smart_seq2"] = arrays["smart_seq2"]
        for part in ("cl_ids", "compartments"):
            info[part] = dict(zip(types.tolist(), arrays[part].tolist()))
    else:
        values = arrays["data"] / np.float32(1000)  # stored in thousandths, exactly
        parts = (values, arrays["indices"].astype(np.int32), arrays["indptr"])
        X = sparse.csr_array(parts, shape=tuple(arrays["shape"])).toarray()
    y, unseen = types[arrays["codes"]], UNSEEN[name]
    return ZeroShotDataset(f"{stem}_{rest}", X, y, table, unseen, arrays["genes"], info)
