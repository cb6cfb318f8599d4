"""Cells of a large compressed file get names, alone and together, into a table or a copy.

    python benchmarks/bench_annotate.py                # 10⁶ cells × 20,000 genes
    python benchmarks/bench_annotate.py --cells 50000  # a quick look

The counts are those of bench_atlas.py (gzip, `.h5ad`, by cells). 80 of the 100 types are seen
in 20,000 other cells, which 50 genes are selected on; all 100 types compete. Descriptions are
30 random projections of the mean profiles of the types. The unit is reading the matrix once
with h5py, decompressed and in chunks. Every measurement is a process of its own and begins with
the file dropped from the page cache; the order alternates over the runs, and ratios are within
a run. Writes benchmarks/results/annotate.json; the data are deleted.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import json
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_atlas
import numpy as np
from bench_atlas import TYPES, K, read_once, write
from bench_streaming import forget, peak_mb
from record import measured_apart, write_results

N_SEEN = 80  # types with labeled cells
N_ATTRIBUTES = 30
ATLAS_CELLS = 20_000
COUNTS_PER_CELL = 1e4  # what `normalize="log1p"` brings cells to


def descriptions(d: int) -> Any:
    """A table (100, 30) of the types: random projections of their mean profiles."""
    import pandas as pd

    cells, kinds = bench_atlas.pool(d)
    counts = np.asarray(cells.sum(axis=1)).ravel()
    logged = cells.multiply(COUNTS_PER_CELL / counts[:, None]).tocsr()
    logged.data = np.log1p(logged.data)
    means = np.stack([logged[kinds == kind].mean(axis=0) for kind in range(TYPES)])
    directions = np.random.default_rng(2).standard_normal((d, N_ATTRIBUTES))
    names = [f"type {kind:02}" for kind in range(TYPES)]
    values = means.reshape(TYPES, d) @ directions
    return pd.DataFrame(values, names, [f"direction {j}" for j in range(N_ATTRIBUTES)])


def prepare(place: Path, n: int, d: int) -> None:
    """Write the cells to be named, and a selector that was fitted to others."""
    import semfs
    from semfs.rows import open_blocks

    # made once for two files and the descriptions
    bench_atlas.pool = functools.cache(bench_atlas.pool)
    atlas = place / "atlas.h5ad"
    labels = write(atlas, "csr-gzip", ATLAS_CELLS, d).astype(object)
    labels[np.isin(labels, [f"type {kind:02}" for kind in range(N_SEEN, TYPES)])] = None
    source = open_blocks(atlas, labels, normalize="log1p")
    semfs.save(semfs.SemFS(K, descriptions(d)).fit(source), place / "panel.npz")
    atlas.unlink()
    write(place / "cells.h5ad", "csr-gzip", n, d)


# ---- what is measured ----------------------------------------------------------------------


def name_file(place: Path, out: str, *, together: bool) -> None:
    """What `semfs predict` does."""
    import semfs
    from semfs.annotation import predict_file

    selector = semfs.load(place / "panel.npz")
    predict_file(selector, place / "cells.h5ad", place / out, together=together)


def name_backed(place: Path) -> None:
    """What a notebook does with an object whose matrix stays in the file."""
    import anndata

    import semfs
    from semfs.scverse import annotate

    cells = anndata.read_h5ad(place / "cells.h5ad", backed="r")
    annotate(cells, semfs.load(place / "panel.npz"), together=True)


MEASURED: dict[str, Callable[[Path], None]] = {
    "read once": lambda place: read_once(place / "cells.h5ad"),
    "alone, to .csv": lambda place: name_file(place, "alone.csv", together=False),
    "together, to .csv": lambda place: name_file(place, "together.csv", together=True),
    "alone, to .h5ad": lambda place: name_file(place, "alone.h5ad", together=False),
    "together, to .h5ad": lambda place: name_file(place, "together.h5ad", together=True),
    "annotate, backed": name_backed,
}


def measure(what: str, place: Path) -> dict[str, float]:
    """Wall and CPU seconds and peak memory of one way."""
    warnings.simplefilter("ignore")
    for name in ("semfs.annotation", "semfs.scverse", "h5py", "anndata", "pandas"):
        importlib.import_module(name)  # imports are not measured
    forget(place / "cells.h5ad")
    start = time.perf_counter()
    cpu = time.process_time()
    MEASURED[what](place)
    seconds = time.perf_counter() - start
    cpu = time.process_time() - cpu
    # copies are as large as the data: only one at a time
    for out in place.glob("[at]*.h5ad"):
        out.unlink()
    return {"seconds": seconds, "cpu": cpu, "peak_mb": peak_mb()}


def run(n: int, d: int, folder: Path, runs: int) -> dict[str, Any]:
    """Make the data, measure each way so often, and delete the data."""
    with tempfile.TemporaryDirectory(prefix="semfs-annotate-", dir=folder) as name:
        place = Path(name)
        start = time.perf_counter()
        prepare(place, n, d)
        made = time.perf_counter() - start
        size = (place / "cells.h5ad").stat().st_size / 1e9
        print(f"{n:,} cells, {size:.2f} GB, made in {made:.0f} s", flush=True)
        found: list[dict[str, dict[str, float]]] = []
        for number in range(runs):
            order = list(MEASURED) if number % 2 == 0 else list(MEASURED)[::-1]
            found.append({what: measured_apart(what, "--dir", name) for what in order})
    ways = {}
    for what in MEASURED:
        ratios = [of_run[what]["seconds"] / of_run["read once"]["seconds"] for of_run in found]
        cpu = [of_run[what]["cpu"] / of_run["read once"]["cpu"] for of_run in found]
        way = {
            "seconds": float(np.median([of_run[what]["seconds"] for of_run in found])),
            "ratio": float(np.median(ratios)),
            "ratios": ratios,
            "cpu": float(np.median([of_run[what]["cpu"] for of_run in found])),
            "cpu_ratio": float(np.median(cpu)),
            "peak_mb": max(of_run[what]["peak_mb"] for of_run in found),
        }
        ways[what] = way
        print(
            f"  {what:20}{way['seconds']:9.1f} s{way['ratio']:8.2f} x "
            f"({min(ratios):.2f} to {max(ratios):.2f}){way['cpu']:9.1f} cpu s"
            f"{way['cpu_ratio']:8.2f} x{way['peak_mb']:8.0f} MB",
            flush=True,
        )
    return {"cells": n, "genes": d, "k": K, "types": TYPES, "file_gb": size, "ways": ways}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, default=1_000_000)
    parser.add_argument("--genes", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=1, help="the spread is shown")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--no-write", action="store_true", help="only print")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.dir)))
        return
    found = run(options.cells, options.genes, options.dir, options.runs)
    if not options.no_write:
        command = " ".join(["python benchmarks/bench_annotate.py", *sys.argv[1:]])
        write_results("annotate", found, command)


if __name__ == "__main__":
    main()
