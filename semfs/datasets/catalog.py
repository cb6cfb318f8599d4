"""The known data sets: two are bundled, the others are looked for in folders, or downloaded."""

from __future__ import annotations

import os
import sys
import tomllib
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from semfs.datasets.base import ZeroShotDataset
from semfs.files import appearing, cache_folder, need
from semfs.validation import check_option

__all__ = ["CATALOG", "Entry", "data_folders", "download", "find_files", "load_sample"]


@dataclass(frozen=True)
class Entry:
    """A known data set, as ``semfs/data/catalog.toml`` describes it."""

    name: str
    what: str
    loader: str
    files: list[list[str]]
    source: str
    licence: str
    url: str | None = None
    sha256: str | None = None


_TEXT = (resources.files("semfs") / "data" / "catalog.toml").read_text("utf-8")
CATALOG = tuple(Entry(**record) for record in tomllib.loads(_TEXT)["entry"])


def data_folders() -> list[Path]:
    """Return where data sets are looked for: ``$SEMFS_DATA``, ``data``, here, the cache."""
    chosen = os.environ.get("SEMFS_DATA", "")
    given = [Path(part) for part in chosen.split(os.pathsep) if part]
    return [*given, Path("data"), Path(), cache_folder()]


def find_files(entry: Entry, folders: list[Path] | None = None) -> Path | None:
    """Return the folder that holds the files of a data set, or None."""
    for folder in data_folders() if folders is None else folders:
        for place in (folder, folder / entry.name):  # a download has a folder of its own
            for group in entry.files:
                if all((place / name).is_file() for name in group):
                    return (place / group[0]).parent
    return None


def download(name: str) -> Path:
    """Return the folder with the files of CIFAR10 (170 MB) or GloVe (862 MB), by name.

    They are downloaded once, checked against a sha256 and kept in ``$SEMFS_CACHE`` or the
    user's cache folder. Of the other data sets no checksum is published: an error says where
    to get them.
    """
    entry = next((entry for entry in CATALOG if entry.name.lower() == name.lower()), None)
    if entry is None:
        known = ", ".join(entry.name for entry in CATALOG)
        raise ValueError(f"no data set {name!r} is known. Known: {known}.")
    root = cache_folder()
    found = find_files(entry)
    if found is not None:
        return found
    if entry.url is None:
        raise FileNotFoundError(
            f"{entry.name} is not downloaded, because no checksum of it is published. To get "
            f"it: {entry.source}; put it into {root}."
        )
    pooch = need("pooch", "data", what="A download")
    print(f"{entry.name}: {entry.what}. Licence: {entry.licence}.", file=sys.stderr)
    root.mkdir(parents=True, exist_ok=True)
    unpack = pooch.Unzip if entry.url.endswith(".zip") else pooch.Untar
    sha256, name = f"sha256:{entry.sha256}", Path(entry.url).name
    try:
        with appearing(root.absolute() / entry.name) as beside:
            steps = {"processor": unpack(extract_dir=str(beside))}
            steps["progressbar"] = sys.stderr.isatty()
            pooch.retrieve(entry.url, sha256, fname=name, path=root, **steps)
    except (OSError, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise OSError(
            f"{entry.url} could not be downloaded ({reason}). Unpack it by hand in {root}."
        ) from error
    return find_files(entry, [root]) or root / entry.name


# ---- the bundled samples ------------------------------------------------------------------

# By compartment and name, the first type and every third after it: a rule that looks neither
# at the cells nor at a result (docs/sample-data.md).
_LUNG_UNSEEN = [
    "capillary endothelial cell", "vein endothelial cell", "lung ciliated cell",
    "type II pneumocyte", "CD8-positive, alpha-beta T cell", "macrophage", "fibroblast",
]  # fmt: skip
# The unseen types are new combinations of what the six seen types show; the reasons are in
# docs/sample-data.md. Chosen before any selection or clustering had been run on these data.
_BLOOD_UNSEEN = ["CD14+ Monocyte", "CD19+ B", "CD56+ NK", "CD8+/CD45RA+ Naive Cytotoxic"]


def load_sample(name: str = "lung") -> ZeroShotDataset:
    """Return one of the two bundled data sets: human lung cells or human blood cells.

    Both hold log-normalised expression (natural log of 1 + counts scaled to 10,000 per cell),
    float32 and dense. Nothing is downloaded; pandas is needed (``pip install "semfs[data]"``).

    Parameters
    ----------
    name : {"lung", "blood"}, default="lung"
        "lung": 964 cells of 19 types from the lung part of Tabula Sapiens (2022) and the
        2,000 genes that vary most, chosen without the labels. The class table says which
        ancestors each type has in the Cell Ontology (0 or 1). Seven types are unseen.

        "blood": 700 cells of ten types, the 68k PBMC data of 10x Genomics (Zheng et al.
        2017) as reduced by scanpy to 765 genes. The class table has values 0, 0.5 ("partly")
        and 1, from the names of the types and textbooks. Four types are unseen.

    Returns
    -------
    ZeroShotDataset
        "lung": ``X`` (964, 2000), ``attributes`` (19, 56); ``info`` has the Cell Ontology id
        and the compartment of each type (``cl_ids``, ``compartments``) and the rows that were
        not measured with 10x (``smart_seq2``). "blood": ``X`` (700, 765), ``attributes``
        (10, 20).

    Notes
    -----
    Sources, licences, attributes, splits and weaknesses: ``docs/sample-data.md``.

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
    return _lung() if name == "lung" else _blood()


def _lung() -> ZeroShotDataset:
    table, arrays = _read("lung_attributes.csv", "lung_tabula_sapiens.npz")
    X = np.log1p(arrays["counts"] * (1e4 / arrays["totals"])[:, None]).astype(np.float32)
    types = arrays["cell_types"]
    parts = ("cl_ids", "compartments")
    names = {part: dict(zip(types.tolist(), arrays[part].tolist())) for part in parts}
    return ZeroShotDataset(
        "lung_tabula_sapiens",
        X,
        types[arrays["codes"]],
        table,
        _LUNG_UNSEEN,
        arrays["genes"],
        info=names | {"smart_seq2": arrays["smart_seq2"]},
    )


def _blood() -> ZeroShotDataset:
    table, arrays = _read("pbmc68k_attributes.csv", "pbmc68k_reduced.npz")
    values = arrays["data"] / np.float32(1000)  # stored in thousandths, exactly
    X = sparse.csr_array(
        (values, arrays["indices"].astype(np.int32), arrays["indptr"]),
        shape=tuple(arrays["shape"]),
    ).toarray()
    y = arrays["cell_types"][arrays["codes"]]
    return ZeroShotDataset("pbmc68k_reduced", X, y, table, _BLOOD_UNSEEN, arrays["genes"])


def _read(table: str, arrays: str) -> tuple[Any, dict[str, np.ndarray]]:
    """Return a class table and the arrays of an ``.npz`` file, both bundled with semfs."""
    pandas = need("pandas", "data")
    folder = resources.files("semfs") / "data"
    with (folder / table).open(encoding="utf-8") as text:
        attributes = pandas.read_csv(text, index_col="cell_type").astype(np.float64)
    with (folder / arrays).open("rb") as file, np.load(file, allow_pickle=False) as stored:
        return attributes, dict(stored)
