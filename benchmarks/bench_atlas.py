"""A single-cell atlas on a laptop: genes chosen in a compressed file that memory cannot hold.

    python benchmarks/bench_atlas.py                                  # 10⁶ cells × 20,000 genes
    python benchmarks/bench_atlas.py --cells 50000                    # a quick look
    python benchmarks/bench_atlas.py --format csc-gzip --format zarr  # other files

Counts are negative binomial (Poisson, with a Gamma-distributed depth of each cell), of 100
types with marker genes, 4 % of them non-zero; cells are drawn from a pool of 20,000. The
unit is reading the file once with h5py or zarr, decompressed and in chunks, or with scipy's
mmread if it is text (the only one that takes memory for all of it). Every
measurement is a process of its own and begins with the file dropped from the page cache. What
scanpy's highly_variable_genes takes is measured on as many cells as --scanpy says. Writes
benchmarks/results/atlas.json, where rows of formats that --format leaves out stay as they are;
the data are deleted.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import importlib
import importlib.metadata
import json
import platform
import shutil
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import scipy.io
import scipy.sparse as sp
from bench_streaming import forget, peak_mb
from record import measured_apart

RESULTS = Path(__file__).parent / "results" / "atlas.json"
FORMATS = {
    "csr-gzip": "atlas.h5ad",
    "csr-lzf": "atlas.h5ad",
    "csr-none": "atlas.h5ad",
    "csc-gzip": "atlas.h5ad",
    "csc-lzf": "atlas.h5ad",
    "zarr": "atlas.zarr",
    "10x": "atlas.h5",
    "mtx.gz": "matrix.mtx.gz",
}
MEASURED_FORMATS = ("csr-gzip", "csc-gzip", "csr-lzf", "zarr", "10x", "mtx.gz")
POOL, TYPES, DEPTH, K = 20_000, 100, 1_000, 50
CHUNK = 2**15  # values, as h5py chooses for data of this size
STEP = 4_096  # cells, or genes, written at a time


# ---- the data -------------------------------------------------------------------------------


def pool(d: int) -> tuple[sp.csr_array, np.ndarray]:
    """Cells to draw from, and their types."""
    rng = np.random.default_rng(0)
    usual, y = rng.gamma(0.35, 1.0, d) + 1e-4, rng.integers(0, TYPES, POOL)
    parts = []
    for kind in range(TYPES):
        share = usual * np.where(rng.random(d) < 0.02, rng.gamma(2.0, 4.0, d), 1.0)
        cells = np.flatnonzero(y == kind)
        depth = rng.poisson(rng.gamma(4.0, DEPTH * d / 20_000 / 4.0, len(cells))) + 10
        steps = np.cumsum(share / share.sum())
        gene = np.searchsorted(steps, rng.random(depth.sum())).clip(max=d - 1)
        parts.append((np.repeat(cells, depth), gene))
    rows, genes = (np.concatenate(values) for values in zip(*parts))
    ones = np.ones(len(rows), dtype=np.float32)
    return sp.coo_array((ones, (rows, genes)), shape=(POOL, d)).tocsr(), y


class Appended:
    """A one-dimensional HDF5 data set that grows; gzip runs in threads."""

    def __init__(self, group: Any, name: str, size: int, dtype: Any, compression: str | None):
        options = (
            {} if compression is None else {"compression": compression, "chunks": (CHUNK,)}
        )
        self.set = group.create_dataset(name, (size,), dtype, **options)
        self.fast, self.at, self.rest = compression == "gzip", 0, np.zeros(0, dtype)

    def add(self, values: np.ndarray, *, last: bool = False) -> None:
        if not self.fast:
            self.set[self.at : self.at + len(values)] = values
            self.at += len(values)
            return
        values = np.concatenate([self.rest, values.astype(self.set.dtype)])
        full = len(values) // CHUNK * CHUNK
        if last:
            full, values = len(values), np.pad(values, (0, -len(values) % CHUNK))
        chunks = [values[a : a + CHUNK].tobytes() for a in range(0, full, CHUNK)]
        with ThreadPoolExecutor(2) as threads:
            for packed in threads.map(lambda chunk: zlib.compress(chunk, 4), chunks):
                self.set.id.write_direct_chunk((self.at,), packed)
                self.at += CHUNK
        self.rest = values[full:].copy()


def write(path: Path, form: str, n: int, d: int) -> np.ndarray:
    """Write the atlas in a format, block by block; return the type of each cell."""
    cells, kinds = pool(d)
    drawn = np.random.default_rng(1).integers(0, POOL, n)
    labels = np.array([f"type {kind:02}" for kind in range(TYPES)])[kinds[drawn]]
    by_genes = form.startswith("csc")
    lengths = np.diff(cells.indptr)[drawn]
    if by_genes:
        times = np.bincount(drawn, minlength=POOL).astype(np.float64)
        lengths = np.rint((cells != 0).T @ times).astype(np.int64)
    indptr = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])

    def blocks():
        for a in range(0, d if by_genes else n, STEP if not by_genes else 64):
            if by_genes:
                yield cells[:, a : a + 64][drawn].tocsc()
            else:
                yield cells[drawn[a : a + STEP]]

    if form == "mtx.gz":
        _write_mtx(path, blocks(), n, d, int(indptr[-1]))
    elif form == "zarr":
        _write_zarr(path, blocks(), indptr, labels, (n, d))
    else:
        _write_hdf5(path, form, blocks(), indptr, labels, (n, d))
    np.save(path.with_name("labels.npy"), labels)
    return labels


def _write_hdf5(path: Path, form: str, blocks: Any, indptr: Any, labels: Any, shape: Any):
    import anndata.io
    import h5py

    kind, _, compression = form.partition("-")
    with h5py.File(path, "w") as file:
        group = file.create_group("matrix" if form == "10x" else "X")
        options = {"gzip": "gzip", "lzf": "lzf", "": "gzip"}.get(compression)
        size, counts = int(indptr[-1]), np.int32 if form == "10x" else np.float32
        data = Appended(group, "data", size, counts, options)
        indices = Appended(group, "indices", size, np.int32, options)
        for block in blocks:
            data.add(block.data)
            indices.add(block.indices)
        data.add(np.zeros(0), last=True)
        indices.add(np.zeros(0), last=True)
        group["indptr"] = indptr
        if form == "10x":
            group["shape"] = np.array(shape[::-1])
            group["features/name"] = np.array([f"g{j}" for j in range(shape[1])], dtype="S")
        else:
            group.attrs.update({"encoding-type": f"{kind}_matrix", "encoding-version": "0.1.0"})
            group.attrs["shape"] = np.array(shape)
            _write_frames(file, anndata.io, labels, shape)


def _write_zarr(path: Path, blocks: Any, indptr: Any, labels: Any, shape: Any) -> None:
    import anndata.io
    import zarr

    file = zarr.open_group(path, mode="w", zarr_format=3)
    group = file.create_group("X")
    options = {"shape": (int(indptr[-1]),), "chunks": (CHUNK * 8,)}
    data = group.create_array("data", dtype="f4", **options)
    indices = group.create_array("indices", dtype="i4", **options)
    at = 0
    for block in blocks:
        data[at : at + block.nnz], indices[at : at + block.nnz] = block.data, block.indices
        at += block.nnz
    group.create_array("indptr", data=indptr)
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0"})
    group.attrs["shape"] = [int(size) for size in shape]
    _write_frames(file, anndata.io, labels, shape)


def _write_frames(file: Any, io: Any, labels: np.ndarray, shape: tuple[int, int]) -> None:
    import pandas as pd

    index = pd.RangeIndex(shape[0]).astype(str)
    io.write_elem(file, "obs", pd.DataFrame({"cell_type": pd.Categorical(labels)}, index=index))
    io.write_elem(file, "var", pd.DataFrame(index=[f"g{j}" for j in range(shape[1])]))
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})


def _write_mtx(path: Path, blocks: Any, n: int, d: int, size: int) -> None:
    import pandas as pd

    with gzip.open(path, "wt", compresslevel=1) as file:
        file.write(f"%%MatrixMarket matrix coordinate integer general\n{d} {n} {size}\n")
        first = 1
        for block in blocks:
            rows = np.repeat(np.arange(first, first + block.shape[0]), np.diff(block.indptr))
            columns = {"g": block.indices + 1, "c": rows, "v": block.data.astype(int)}
            pd.DataFrame(columns).to_csv(file, sep=" ", header=False, index=False)
            first += block.shape[0]


# ---- what is measured ----------------------------------------------------------------------


def read_once(path: Path) -> None:
    if path.suffix == ".gz":
        scipy.io.mmread(path, spmatrix=False)
        return
    import h5py
    import zarr

    file = zarr.open(path, mode="r") if path.is_dir() else h5py.File(path, "r")
    group = file["matrix" if "matrix" in file else "X"]
    for name in ("data", "indices"):
        for a in range(0, group[name].shape[0], 2**22):
            group[name][a : a + 2**22]


def fit(path: Path, *, selector: str = "SemFS", n_new: int = 0, **options: Any) -> list[int]:
    """Genes chosen where the last ``n_new`` types have no labels."""
    import semfs
    from semfs.rows import open_blocks

    y: Any = "cell_type"
    if n_new or path.suffix not in (".h5ad", ".zarr"):
        y = np.load(path.with_name("labels.npy")).astype(object)
        y[np.isin(y, [f"type {TYPES - 1 - i:02}" for i in range(n_new)])] = None
    found = getattr(semfs, selector)(K).fit(open_blocks(path, y, **options))
    return found.order_[:K].tolist()


def scanpy(path: Path) -> list[int]:
    import scanpy as sc

    cells = sc.read_h5ad(path)
    sc.pp.normalize_total(cells, target_sum=1e4)
    sc.pp.log1p(cells)
    sc.pp.highly_variable_genes(cells, n_top_genes=K)
    return np.flatnonzero(cells.var["highly_variable"]).tolist()


MEASURED = {
    "read once": read_once,
    "semfs": fit,
    "semfs, log1p": lambda path: fit(path, normalize="log1p"),
    "10 types unlabeled": lambda path: fit(path, n_new=10, normalize="log1p"),
    "SemFSCV, log1p": lambda path: fit(path, selector="SemFSCV", normalize="log1p"),
    "scanpy HVG": scanpy,
}


def measure(what: str, path: Path) -> dict:
    warnings.simplefilter("ignore")
    for name in ("semfs.rows", "h5py", "zarr", "anndata.io"):  # imports are not measured
        importlib.import_module(name)

    for file in [path] if path.is_file() else [f for f in path.rglob("*") if f.is_file()]:
        forget(file)
    start, cpu = time.perf_counter(), time.process_time()
    genes = MEASURED[what](path)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    return {"seconds": seconds, "cpu": cpu, "peak_mb": peak_mb(), "genes": genes}


def run(form: str, whats: list[str], n: int, d: int, folder: Path, runs: int) -> list[dict]:
    """Write the atlas in one format, measure so often, delete it."""
    place = Path(tempfile.mkdtemp(prefix="semfs-atlas-", dir=folder))
    rows: list[dict] = []
    try:
        path, start = place / FORMATS[form], time.perf_counter()
        write(path, form, n, d)
        made = time.perf_counter() - start
        size = sum(file.stat().st_size for file in place.rglob("*") if file.is_file())
        print(f"{form}: {n:,} cells, {size / 1e9:.2f} GB, written in {made:.0f} s", flush=True)
        found = [[measured_apart(w, "--dir", str(path)) for w in whats] for _ in range(runs)]
        for what, of_runs in zip(whats, zip(*found)):
            row = {"format": form, "what": what, "cells": n, "file_gb": size / 1e9}
            # the run of median time stands for all; ratios are within a run
            row |= sorted(of_runs, key=lambda one: one["seconds"])[runs // 2]
            row["ratios"] = [o["seconds"] / f[0]["seconds"] for o, f in zip(of_runs, found)]
            row["ratio"] = float(np.median(row["ratios"]))
            rows.append(row)
            low, high = min(row["ratios"]), max(row["ratios"])
            print(
                f"  {what:16}{row['seconds']:9.1f} s{row['ratio']:8.2f} x "
                f"({low:.2f} to {high:.2f}){row['cpu']:9.1f} cpu s{row['peak_mb']:8.0f} MB",
                flush=True,
            )
    finally:
        shutil.rmtree(place)
    return rows


def installed_versions(names: Iterable[str]) -> dict[str, str]:
    """Return the versions of those packages that are installed."""
    found = {}
    for name in names:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def not_measured(earlier: dict[str, Any], rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the earlier rows of files that are not in rows, with the semfs of their time."""
    measured = {(row["format"], row["cells"]) for row in rows}
    version = earlier["versions"]["semfs"]
    return [
        {"semfs": version} | row
        for row in earlier["rows"]
        if (row["format"], row["cells"]) not in measured
    ]


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--genes", type=int, default=20_000)
    parser.add_argument("--format", action="append", choices=list(FORMATS))
    parser.add_argument("--runs", type=int, default=1, help="the spread is shown")
    parser.add_argument("--scanpy", type=int, default=100_000, help="cells; 0: without it")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--write", type=Path, default=RESULTS, help="the results go here")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.dir)))
        return
    rows = []
    for form in options.format or MEASURED_FORMATS:
        whats = ["read once", "semfs", "semfs, log1p"]
        if form == "csr-gzip":
            whats += ["10 types unlabeled", "SemFSCV, log1p"]
        n = options.cells // (10 if form == "mtx.gz" else 1)  # text takes long to write
        rows += run(form, whats, n, options.genes, options.dir, options.runs)
    if options.scanpy:
        n = min(options.scanpy, options.cells)
        whats = ["read once", "semfs, log1p", "scanpy HVG"]
        rows += run("csr-gzip", whats, n, options.genes, options.dir, options.runs)
    names = ("semfs", "numpy", "scipy", "h5py", "zarr", "anndata", "scanpy")
    document = {
        "command": "python benchmarks/bench_atlas.py " + " ".join(sys.argv[1:]),
        "date": datetime.date.today().isoformat(),
        "versions": installed_versions(names) | {"python": platform.python_version()},
        "cells": options.cells,
        "genes": options.genes,
        "types": TYPES,
        "k": K,
        "rows": rows,
    }
    for row in rows:
        row["semfs"] = document["versions"]["semfs"]
    if options.format and options.write.exists():
        earlier = json.loads(options.write.read_text())
        document["rows"] = rows + not_measured(earlier, rows)
    options.write.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
