"""Data sets by name: bundled ones, known benchmarks, and your own files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from semfs._typing import PathLike
from semfs.datasets import ZeroShotDataset, load_npz, load_sample, load_table, load_xlsa17
from semfs.datasets.catalog import CATALOG, data_folders, find_files
from semfs.io.npz import names_in_npz
from semfs.io.registry import is_data_path
from semfs.io.safety import FileError
from semfs.labels import classes_in
from semfs.validation import did_you_mean

if TYPE_CHECKING:
    import pandas as pd

#: Loads a data set when it is needed; can be sent to worker processes.
Loader: TypeAlias = Callable[[], ZeroShotDataset]

BUNDLED: dict[str, Loader] = {
    "sample": load_sample,
    "lining": partial(load_sample, "lining"),
}

#: Endings of files that `semfs evaluate` reads, but that hold no class table as `.npz` does.
TABLE_SUFFIXES = (".csv", ".tsv", ".xlsx", ".parquet", ".feather", ".h5ad", ".zarr", ".h5")


@lru_cache(maxsize=2)  # one data set and the next
def load(loader: Loader) -> ZeroShotDataset:
    """Return the data set of a loader, and cache it for the next jobs."""
    return loader()


def open_data(
    name: PathLike,
    label: str | None = None,
    attributes: PathLike | pd.DataFrame | None = None,
    unseen: Sequence[str] = (),
    **reading: Any,
) -> ZeroShotDataset:
    """Open a data set by name or from your own file.

    Parameters
    ----------
    name : str or path
        "sample", "lining", a benchmark that ``semfs datasets`` lists, an h5ad, table or
        ``.npz`` file, or a Zarr or 10x folder.
    label : str, optional
        Name of the column, ``obs`` column or array that holds the class labels.
    attributes : path, "names" or "cl", optional
        The attribute table. An ``.npz`` file can hold it as array A.
    unseen : sequence of str, optional
        Names of the unseen classes. An entry can hold several names separated by commas.
    **reading
        ``layer``, ``drop``, ``normalize``, ``batch`` and ``impute`` of
        `semfs.datasets.load_table`.
    """
    # A file wins over a data set of that name.
    if is_data_path(Path(name)):
        data = load_table(name, label, attributes, **reading)
    else:
        if label is not None or attributes is not None or reading:
            raise ValueError(
                f"'{name}' is not a file, but label, attributes and the "
                "reading options apply only to files. Known data sets: "
                f"{', '.join(BUNDLED)} and those that `semfs datasets` "
                "lists as found."
            )
        data = _known_loader(str(name))()
    if not unseen:
        return data
    return data.with_unseen(classes_in(unseen, data.classes.tolist()))


def _known_loader(name: str) -> Loader:
    """Return the loader of the bundled data set or benchmark of that name, in any case."""
    loaders = BUNDLED | _xlsa17_loaders(data_folders())
    for known, loader in loaders.items():
        if known.lower() == name.lower():
            return loader
    for entry in CATALOG:
        if entry.name.lower() != name.lower():
            continue
        # Known, but without features: we say which step is missing.
        folder = find_files(entry)
        if folder is None:
            raise ValueError(f"{entry.name} was not found. To get it: {entry.source}")
        raise ValueError(
            f"{entry.name} was found in {folder}; but its features must "
            f"be computed first. Load it with {entry.loader}, and pass "
            "the result to semfs.lab.evaluate.evaluate."
        )
    hint = did_you_mean(name, loaders) or "."
    raise ValueError(
        f"There is no data set {name!r}{hint} Use 'sample', a file of "
        "your own (.h5ad, .csv, .parquet, .npz), or a name that `semfs "
        "datasets` lists as found."
    )


def find_data(
    folder: PathLike | None,
    wanted: Sequence[str] = (),
) -> dict[str, Loader]:
    """Return loaders, by name, of the data sets in a folder or of the bundled sample.

    Data sets are ``.npz`` files with the arrays X, y and A, and folders in the format of the
    xlsa17 benchmark. ``wanted`` holds names or beginnings of names. "sample" and "lining" are
    bundled.
    """
    if folder is None:
        found = {"sample": BUNDLED["sample"]}
    else:
        found = _loaders_in(Path(folder))
    if not wanted:
        return found
    chosen: dict[str, Loader] = {}
    for start in wanted:
        # Bundled data sets can be asked for beside those of a folder.
        matching = starting_with(BUNDLED | found, start)
        if not matching:
            raise ValueError(f"There is no data set {start!r}. Found: {', '.join(found)}.")
        chosen |= matching
    return chosen


def starting_with(
    data: Mapping[str, Loader],
    start: str,
) -> dict[str, Loader]:
    """Return the entries whose names start with ``start``, ignoring case."""
    return {
        name: loader for name, loader in data.items() if name.lower().startswith(start.lower())
    }


def _loaders_in(folder: Path) -> dict[str, Loader]:
    """Return loaders of the data sets in a folder. Raise if it has none."""
    if not folder.is_dir():
        raise ValueError(
            f"{folder} is not a directory. Give the directory with your data sets."
        )
    found: dict[str, Loader] = {}
    for file in sorted(folder.glob("*.npz")):
        if _is_dataset(file):
            found[file.stem] = partial(load_npz, file)
    found |= _xlsa17_loaders([folder])
    if not found:
        raise ValueError(_nothing_found(folder))
    return found


def _nothing_found(folder: Path) -> str:
    """Return the message for a folder without data sets, with advice on other files."""
    expected = (
        f"{folder} holds no data set. Expected .npz files with the arrays "
        "'X' (samples × features), 'y' (number of the class of each "
        "sample, from 0) and 'A' (classes × attributes), or folders with "
        "res101.mat and att_splits.mat."
    )
    tables = sorted(file for file in folder.iterdir() if file.suffix in TABLE_SUFFIXES)
    if not tables:
        return f"{expected} See: semfs datasets"
    name = tables[0].name
    return (
        f"{expected} {name} is not one of them. Write such a file with "
        "numpy.savez, or compare methods on the table with: semfs "
        f"evaluate {tables[0]} --label COLUMN --attributes TABLE"
    )


def _is_dataset(file: Path) -> bool:
    """Return whether an .npz file holds labels, attributes and features, dense or sparse."""
    try:
        names = set(names_in_npz(file))
    except FileError:
        # Another program's file of that name does not concern us.
        return False
    return {"y", "A"} <= names and bool({"X", "X_data"} & names)


def _xlsa17_loaders(folders: list[Path]) -> dict[str, Loader]:
    """Return loaders of the benchmarks in the format of xlsa17 in these folders."""
    found: dict[str, Loader] = {}
    for entry in CATALOG:
        if not entry.loader.startswith("load_xlsa17"):
            continue
        folder = find_files(entry, folders)
        if folder is not None:
            found[entry.name] = partial(load_xlsa17, folder.parent, folder.name)
    return found
