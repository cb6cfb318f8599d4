"""Panels of semfs and of spapros of the same size, judged by spapros' own evaluator.

    python -m venv spapros
    spapros/bin/pip install spapros 'numpy<2.4'     # its selector needs np.in1d
    python benchmarks/bench_spapros.py ts_lung_subset.h5ad --spapros spapros/bin/python

The file is in the source distribution of popv 0.4.1 (dataset/test/ts_lung_subset.h5ad). Cell
types of too few cells are left out, counts are normalized, and the most variable genes are
kept (scanpy). All panels are selected among these genes, on these cells. The evaluator's
scheme is "quick": forests for each type, overlap of neighbors with those among all genes, and
correlation between the genes of the panel. Writes benchmarks/results/spapros.json.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

#: Genes of a panel, as in most imaging panels that spapros was made for.
N_GENES = 50
#: Genes to select from: spapros recommends highly variable ones.
N_VARIABLE = 1500
#: Cells of a type. The evaluator trains and tests a forest for each type.
FEWEST_CELLS = 10
#: Our panels, by the options of `select_genes`. spapros looks for two markers by default.
OURS: dict[str, dict[str, Any]] = {
    "SemFS, labels": {},
    "SemFS, Cell Ontology": {"attributes": "cl"},
    "SemFS, Cell Ontology, two markers of each type": {"attributes": "cl", "min_per_class": 2},
}


# ---- in the environment of spapros ----------------------------------------------------


def prepare(data: Path, label: str, n_variable: int, fewest: int, target: Path) -> None:
    """Write the cells that all panels are selected and judged on."""
    import anndata
    import scanpy

    cells = anndata.read_h5ad(data)
    counts = cells.obs[label].value_counts()
    enough = cells.obs[label].isin(counts.index[counts >= fewest])
    kept = cells[enough].copy()
    prepared = anndata.AnnData(kept.X, obs=kept.obs[[label]].copy())
    prepared.obs[label] = prepared.obs[label].astype(str)
    prepared.var_names = kept.var_names.astype(str)
    prepared.var_names_make_unique()
    scanpy.pp.normalize_total(prepared, target_sum=1e4)
    scanpy.pp.log1p(prepared)
    scanpy.pp.highly_variable_genes(prepared, n_top_genes=n_variable)
    prepared = prepared[:, prepared.var["highly_variable"]].copy()
    prepared.uns.clear()
    prepared.write_h5ad(target)


def select_with_spapros(data: Path, label: str, n_genes: int) -> dict[str, Any]:
    """The panel of spapros with its default settings."""
    import anndata
    import spapros

    cells = anndata.read_h5ad(data)
    start = time.perf_counter()
    selector = spapros.se.ProbesetSelector(
        cells, n=n_genes, celltype_key=label, verbosity=0, save_dir=None, n_jobs=1
    )
    selector.select_probeset()
    seconds = time.perf_counter() - start
    chosen = selector.probeset["selection"]
    return {"seconds": seconds, "genes": selector.probeset.index[chosen].tolist()}


def judge(data: Path, label: str, genes: list[str]) -> dict[str, float]:
    """What the evaluator of spapros says about one panel."""
    import anndata
    import spapros

    evaluator = spapros.ev.ProbesetEvaluator(
        anndata.read_h5ad(data),
        celltype_key=label,
        scheme="quick",
        results_dir=None,
        verbosity=0,
        n_jobs=1,
    )
    evaluator.evaluate_probeset(genes, set_id="panel")
    row = evaluator.summary_results.loc["panel"]
    return {str(name): float(value) for name, value in row.items()}


def versions() -> dict[str, str]:
    """Versions of what the panels are selected with and judged by."""
    from importlib.metadata import version

    return {name: version(name) for name in ("spapros", "scanpy", "numpy", "xgboost")}


def there(task: dict[str, Any]) -> object:
    """Do one task in the environment of spapros."""
    data = Path(task["data"])
    label = task["label"]
    if task["what"] == "prepare":
        target = Path(task["target"])
        prepare(data, label, task["n_variable"], task["fewest"], target)
        return versions()
    if task["what"] == "select":
        return select_with_spapros(data, label, task["n_genes"])
    return judge(data, label, task["genes"])


# ---- in ours ---------------------------------------------------------------------------


def ask(python: Path, **task: object) -> Any:
    """Have a task done in the environment of spapros, and return its answer."""
    command = [str(python), __file__, "--task", json.dumps(task)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    # spapros prints remarks of its own before the answer.
    return json.loads(done.stdout.splitlines()[-1])


def our_panel(data: Path, label: str, n_genes: int, **options: Any) -> dict[str, Any]:
    """A panel of SemFS."""
    import anndata

    from semfs.scverse import select_genes

    cells = anndata.read_h5ad(data)
    start = time.perf_counter()
    select_genes(cells, label, n_genes, **options)
    seconds = time.perf_counter() - start
    ranks = cells.var["semfs_rank"][cells.var["semfs_selected"]]
    return {"seconds": seconds, "genes": ranks.sort_values().index.tolist()}


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """All panels, each with its scores."""
    import anndata
    import numpy as np

    label = options.label
    cells = folder / "cells.h5ad"
    found_versions = ask(
        options.spapros,
        what="prepare",
        data=str(options.data),
        label=label,
        n_variable=options.genes,
        fewest=options.min_cells,
        target=str(cells),
    )
    prepared = anndata.read_h5ad(cells)
    panels = {name: our_panel(cells, label, options.k, **how) for name, how in OURS.items()}
    same = {"data": str(cells), "label": label}
    panels["spapros"] = ask(options.spapros, what="select", n_genes=options.k, **same)
    rng = np.random.default_rng(0)
    drawn = rng.choice(prepared.var_names, options.k, replace=False)
    panels["random genes"] = {"seconds": None, "genes": drawn.tolist()}
    for name, panel in panels.items():
        panel["scores"] = ask(options.spapros, what="judge", genes=panel["genes"], **same)
        print(name, len(panel["genes"]), panel["seconds"], panel["scores"], flush=True)
    return {
        "data": options.data.name,
        "n_cells": prepared.n_obs,
        "n_types": int(prepared.obs[label].nunique()),
        "n_candidates": prepared.n_vars,
        "fewest_cells": options.min_cells,
        "n_genes": options.k,
        "spapros_versions": found_versions,
        "panels": panels,
    }


def main() -> None:
    """Compare the panels, and write results/spapros.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, nargs="?", help="raw counts, .h5ad")
    parser.add_argument("--label", default="cell_type")
    parser.add_argument("--spapros", type=Path, help="Python of spapros' environment")
    parser.add_argument("-k", type=int, default=N_GENES)
    parser.add_argument("--genes", type=int, default=N_VARIABLE)
    parser.add_argument("--min-cells", type=int, default=FEWEST_CELLS)
    parser.add_argument("--task", help=argparse.SUPPRESS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.task is not None:
        print(json.dumps(there(json.loads(options.task))))
        return
    from record import write_results

    with tempfile.TemporaryDirectory() as folder:
        found = compare(options, Path(folder))
    command = (
        f"python benchmarks/bench_spapros.py {options.data.name} --spapros PYTHON "
        f"-k {options.k} --genes {options.genes} --min-cells {options.min_cells}"
    )
    print(write_results("spapros", found, command))


if __name__ == "__main__":
    main()
