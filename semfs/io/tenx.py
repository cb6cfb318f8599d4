"""10x Genomics data: names of genes and cells, in separate files or in an HDF5 file.

Cell Ranger writes genes × cells: a folder of ``matrix.mtx``, ``features.tsv`` (in version 2
``genes.tsv``) and ``barcodes.tsv``, each also as ``.gz``; or the same in one ``.h5`` file.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from semfs.io.safety import unpacked
from semfs.validation import warn_user

if TYPE_CHECKING:
    from semfs.io.reader import Reader
    from semfs.io.store import Store

MATRIX_FILES = ("matrix.mtx", "matrix.mtx.gz")
FEATURE_FILES = ("features.tsv", "features.tsv.gz", "genes.tsv", "genes.tsv.gz")
BARCODE_FILES = ("barcodes.tsv", "barcodes.tsv.gz")


def matrix_in_folder(folder: Path) -> Path | None:
    """Return the matrix file of a 10x folder, or None."""
    return _first_existing(folder, MATRIX_FILES)


def add_names_beside(reader: Reader, path: Path) -> None:
    """Add the names of genes and cells in the folder of a matrix file to its reader.

    If a file has the wrong length, it is named in a warning and not used.
    """
    features = _first_existing(path.parent, FEATURE_FILES)
    if features is not None:
        rows = _read_tsv(features)
        if len(rows) == reader.n_features:
            # ids are in the first column, symbols in the second one if there is one
            reader.feature_names = unique_names(row[min(1, len(row) - 1)] for row in rows)
        else:
            _warn_of_length(features, len(rows), f"{reader.n_features} genes")
    # names of cells are counted now, and kept only if somebody asks for them
    barcodes = _first_existing(path.parent, BARCODE_FILES)
    if barcodes is None:
        return
    n_barcodes = len(_read_tsv(barcodes))
    if n_barcodes == reader.n_rows:
        reader.read_row_names = partial(_first_column, barcodes)
    else:
        _warn_of_length(barcodes, n_barcodes, f"{reader.n_rows} cells")


def add_names_in_group(reader: Reader, store: Store, name: str) -> None:
    """Add the names in a 10x group of an HDF5 file to its reader."""
    group = store.node(name)
    genes = "gene_names" if "gene_names" in group else "features/name"  # version 2, 3
    if genes in group:
        found = store.texts(f"{name}/{genes}")
        if len(found) == reader.n_features:
            reader.feature_names = unique_names(found)
    if "barcodes" in group and store.array(f"{name}/barcodes").shape == (reader.n_rows,):
        reader.read_row_names = partial(store.names_in, f"{name}/barcodes")


def unique_names(names: Iterable[object]) -> list[str]:
    """Return names as text, adding ``-1``, ``-2``, … to repeated ones as AnnData does."""
    out = [str(name) for name in names]
    taken = set(out)
    if len(taken) == len(out):
        return out
    times: Counter[str] = Counter()
    occurred: set[str] = set()
    for place, name in enumerate(out):
        if name not in occurred:
            occurred.add(name)
            continue
        # the next number that no other name has
        new_name = name
        while new_name in taken:
            times[name] += 1
            new_name = f"{name}-{times[name]}"
        taken.add(new_name)
        out[place] = new_name
    return out


def _first_existing(folder: Path, names: Iterable[str]) -> Path | None:
    for name in names:
        if (folder / name).is_file():
            return folder / name
    return None


def _read_tsv(path: Path) -> list[list[str]]:
    with unpacked(path) as lines:
        return [line.decode().rstrip("\r\n").split("\t") for line in lines]


def _first_column(path: Path) -> list[str]:
    return [row[0] for row in _read_tsv(path)]


def _warn_of_length(path: Path, n_lines: int, expected: str) -> None:
    warn_user(
        f"{path} has {n_lines} lines, but {expected} were expected. The "
        "names are ignored. Correct or remove the file."
    )
