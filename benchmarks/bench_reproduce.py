"""The paper's experiments on the data at hand, for the page *Reproducing the paper*.

Runs the stages of benchmarks/reproduce.toml one after the other into a run directory, or
continues them, and writes benchmarks/results/reproduce.json from what is finished. The times
of the experiment "scaling" need an idle machine and are taken by ``--scaling`` alone.

    python benchmarks/bench_reproduce.py --data DATA --run RUN
    python benchmarks/bench_reproduce.py --run RUN --scaling    # the times only
    python benchmarks/bench_reproduce.py --run RUN --export     # writes what is finished
    python benchmarks/bench_reproduce.py --small    # the bundled cells, nothing written
"""

from __future__ import annotations

import argparse
import tempfile
import tomllib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from record import write_results

from semfs.lab import Store
from semfs.lab.paper import EXPERIMENTS, Study, reproduce
from semfs.lab.plan import Experiment

PLAN = tomllib.loads(Path(__file__).with_name("reproduce.toml").read_text("utf-8"))
COMMAND = "python benchmarks/bench_reproduce.py --data DATA --run RUN"

#: Entries of a stage that replace those of its experiment.
REPLACED = ("methods", "settings", "draws")

#: Entries of the settings of a job that a row keeps.
VARIED = ("ratio", "alpha", "targets", "preprocessing", "n", "d")

#: Digits of scores and times that are kept.
DIGITS = 4


def prepare_data(source: Path, target: Path) -> None:
    """Write the data sets of the plan as ``.npz`` files; those that exist stay."""
    target.mkdir(parents=True, exist_ok=True)
    for name, recipe in PLAN["data"].items():
        path = target / f"{name}.npz"
        if path.exists():
            continue
        with np.load(source / recipe["file"]) as arrays:
            kept = _prepared(arrays, recipe)
        partial = path.with_suffix(".part.npz")
        np.savez(partial, **kept)
        partial.replace(path)


def _prepared(arrays: Mapping[str, Any], recipe: Mapping[str, Any]) -> dict[str, Any]:
    """The arrays of a data set, changed as the plan says."""
    kept = {name: arrays[name] for name in ("X", "y", "A", "classes")}
    n_features = recipe.get("n_features")
    kept["X"] = kept["X"][:, :n_features]
    if "unseen" in recipe:
        kept["unseen"] = arrays[recipe["unseen"]]
    if "drop_attributes" in recipe:
        kept["A"] = kept["A"][:, ~arrays[recipe["drop_attributes"]]]
    return kept


def experiment_of(stage: Mapping[str, Any]) -> Experiment:
    """The experiment of a stage, with the stage's entries in place of its own."""
    entries = {name: stage[name] for name in REPLACED if name in stage}
    return replace(
        EXPERIMENTS[stage["experiment"]],
        oracle=stage.get("grids", False),
        **entries,
    )


def run_stages(data: Path, run: Path, n_jobs: int) -> None:
    """Run or continue all stages."""
    for number, stage in enumerate(PLAN["stages"], start=1):
        print(f"stage {number} of {len(PLAN['stages'])}: {stage}", flush=True)
        study = Study(
            [experiment_of(stage)],
            data,
            stage["datasets"],
            splits=stage["splits"],
            ks=tuple(PLAN["ks"]),
        )
        done = reproduce(study, run, n_jobs=n_jobs, command=COMMAND)
        print(f"{done.n_computed} computed, {len(done.failures)} failed", flush=True)
        for job, error in done.failures:
            print(job.method, job.dataset, job.split, error.splitlines()[0], flush=True)


def run_scaling(run: Path) -> None:
    """Take the times on made data."""
    study = Study([EXPERIMENTS["scaling"]], ks=tuple(PLAN["ks"]))
    reproduce(study, run, command=COMMAND, verbose=True)


def exported(run: Path) -> dict[str, Any]:
    """What the page needs of a run directory: its rows without lists of features."""
    store = Store(run, create=False)
    facts = store.info().get("datasets", {})
    sizes = ("n_seen", "n_unseen", "n_features", "n_attributes")
    datasets = {
        name: {size: of_data[size] for size in sizes}
        | {"seen": len(of_data["seen"]), "unseen": len(of_data["unseen"])}
        for name, of_data in facts.items()
    }
    return {"datasets": datasets, "rows": [_kept(row) for row in store.rows()]}


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the store, as the page needs it."""
    kept = {
        "experiment": row["experiment"],
        "dataset": row["dataset"],
        "split": row["split"],
        "method": row["label"],
        "k": row["k"],
    }
    for name in ("acc", "nmi"):
        if row[name] is not None:
            kept[name] = round(row[name], DIGITS)
    params = row["params"]
    kept |= {name: params[name] for name in VARIED if name in params}
    if params.get("ratio", 1.0) < 1.0:
        kept["draw"] = row["seed"]
    seconds = row["extra"].get("cpu_seconds", row["seconds"])
    if row["experiment"] == "scaling":
        seconds = row["seconds"]
    kept["seconds"] = round(seconds, DIGITS)
    for name in ("max_rows", "max_samples", "batch_size"):
        if name in params:
            kept[name] = params[name]
    if "objective" in row["extra"] and row["k"] == max(PLAN["ks"]):
        kept["objective"] = [float(f"{J:.6g}") for J in row["extra"]["objective"]]
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--run", type=Path, help="run directory; continued if it exists")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument("--scaling", action="store_true", help="the times on made data only")
    parser.add_argument("--export", action="store_true", help="write what is finished")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        study = Study(
            ["clustering"], datasets=["lining"], methods=["semfs", "variance"], fast=True
        )
        with tempfile.TemporaryDirectory() as folder:
            reproduce(study, folder, verbose=True)
            print(f"{len(exported(Path(folder))['rows'])} rows")
        return
    if options.run is None:
        parser.error("--run is missing: a folder for the results")
    if options.scaling:
        run_scaling(options.run)
    elif not options.export:
        if options.data is None:
            parser.error("--data is missing: the folder with the files that the plan names")
        data = options.run / "data"
        prepare_data(options.data, data)
        run_stages(data, options.run, options.jobs)
    if not options.scaling:
        print(write_results("reproduce", exported(options.run), COMMAND))


if __name__ == "__main__":
    main()
