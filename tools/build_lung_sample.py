"""Build the bundled lung cells: semfs/data/lung_tabula_sapiens.npz and lung_attributes.csv.

    python tools/build_lung_sample.py ts_lung_subset.h5ad cl-basic.obo

ts_lung_subset.h5ad is ``dataset/test/ts_lung_subset.h5ad`` in the source archive of popv 0.4.1
on PyPI (popv-0.4.1.tar.gz): 1,000 lung cells of Tabula Sapiens with raw counts. cl-basic.obo
is the Cell Ontology, https://purl.obolibrary.org/obo/cl/releases/2026-03-26/cl-basic.obo; only
``id``, ``name`` and ``is_a`` are read. Needs anndata. No random numbers: equal input gives
equal files. What they hold and under which licence: semfs/data/README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import zipfile
from pathlib import Path

import anndata
import numpy as np
import pandas as pd

H5AD_SHA256 = "e68f388be4e6dde17791cf1d6d7430f658a060ce07f3709bc4832c327ca3cb7b"
RELEASE = "2026-03-26"
TARGET = Path(__file__).parents[1] / "semfs" / "data"
N_GENES = 2000
FEWEST_CELLS = 8


def read_cells(path: Path) -> anndata.AnnData:
    """Check the file's sha256 and return the cells of the types with enough of them."""
    found = hashlib.sha256(path.read_bytes()).hexdigest()
    if found != H5AD_SHA256:
        raise SystemExit(
            f"{path.name} has sha256 {found}, expected {H5AD_SHA256}. Take "
            "dataset/test/ts_lung_subset.h5ad from popv-0.4.1.tar.gz on PyPI."
        )
    cells = anndata.read_h5ad(path)
    sizes = cells.obs["cell_type"].value_counts()
    return cells[cells.obs["cell_type"].isin(sizes.index[sizes >= FEWEST_CELLS])].copy()


def variable_genes(cells: anndata.AnnData, totals: np.ndarray) -> np.ndarray:
    """Return the columns of the genes that vary most, by name; labels are not looked at.

    Genes without a name of their own ("ENSG…", or a shared name with "_ENSG…") are left out.
    """
    X = cells.X.multiply((1e4 / totals)[:, None]).tocsr().log1p()
    variance = np.asarray(X.power(2).mean(axis=0) - np.square(X.mean(axis=0))).ravel()
    names = cells.var_names.astype(str)
    variance[names.str.contains("ENSG")] = -1
    kept = np.argsort(-variance, kind="stable")[:N_GENES]
    return kept[np.argsort(names[kept])]


def compact_arrays(cells: anndata.AnnData) -> dict[str, np.ndarray]:
    """Return the arrays of the bundled file: counts, so that nothing is rounded."""
    totals = np.asarray(cells.X.sum(axis=1, dtype=np.float64)).ravel()
    genes = variable_genes(cells, totals)
    counts = cells.X[:, genes].toarray()
    if not np.array_equal(counts, counts.astype("<u4")):
        raise SystemExit("X holds no counts: some values are not whole numbers.")
    types, codes = np.unique(cells.obs["cell_type"].astype(str), return_inverse=True)
    first = cells.obs.groupby(cells.obs["cell_type"].astype(str)).first().loc[types]
    return {
        "counts": counts.astype("<u4"),
        "totals": totals.astype("<u4"),
        "genes": cells.var_names[genes].to_numpy(dtype="U"),
        "codes": codes.astype("u1"),
        "cell_types": types.astype("U"),
        "cl_ids": first["cell_type_ontology_term_id"].to_numpy(dtype="U"),
        "compartments": first["compartment"].to_numpy(dtype="U"),
        "smart_seq2": np.flatnonzero(cells.obs["assay"] == "Smart-seq2").astype("<u2"),
    }


def read_obo(path: Path) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the names and the parents of all terms of an OBO file."""
    text = path.read_text(encoding="utf-8")
    if RELEASE not in text.split("[Term]")[0]:
        raise SystemExit(f"{path.name} is not release {RELEASE} of the Cell Ontology.")
    names, parents = {}, {}
    for term in text.split("[Term]")[1:]:
        lines = term.split("[Typedef]")[0].strip().splitlines()
        fields = [line.split(" ! ")[0].split(": ", 1) for line in lines if ": " in line]
        own = dict(fields)["id"]
        names[own] = dict(fields)["name"]
        parents[own] = [value.split()[0] for key, value in fields if key == "is_a"]
    return names, parents


def ancestor_table(types: np.ndarray, cl_ids: np.ndarray, obo: Path) -> pd.DataFrame:
    """Return one row per type and one column per ancestor that some have and others have not.

    A type's own term is no ancestor of it, but counts where it stands above another type.
    """
    names, parents = read_obo(obo)

    def above(term: str) -> set[str]:
        return {term}.union(*(above(parent) for parent in parents.get(term, ())))

    lines = [above(term) for term in cl_ids]
    strict = set().union(*(line - {term} for line, term in zip(lines, cl_ids)))
    columns = sorted(
        term for term in strict if term in names and not all(term in line for line in lines)
    )
    rows = [[int(term in line) for term in columns] for line in lines]
    table = pd.DataFrame(rows, index=types, columns=[names[term] for term in columns])
    return table.rename_axis("cell_type")


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as a compressed .npz with fixed dates, so equal input gives equal bytes."""
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, buffer.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    os.replace(partial, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("h5ad", type=Path, help="ts_lung_subset.h5ad of popv 0.4.1")
    parser.add_argument("obo", type=Path, help=f"cl-basic.obo, release {RELEASE}")
    parser.add_argument("--out", type=Path, default=TARGET, help="folder to write to")
    options = parser.parse_args()
    arrays = compact_arrays(read_cells(options.h5ad))
    table = ancestor_table(arrays["cell_types"], arrays["cl_ids"], options.obo)
    write_npz(options.out / "lung_tabula_sapiens.npz", arrays)
    partial = options.out / "lung_attributes.partial"
    table.to_csv(partial, lineterminator="\n")
    os.replace(partial, options.out / "lung_attributes.csv")
    print(f"{arrays['counts'].shape} counts, {table.shape} ancestors in {options.out}")


if __name__ == "__main__":
    main()
