"""The paper's experiments on the data at hand, for the page *Reproducing the paper*.

Runs the stages of benchmarks/reproduce.toml one after the other into a run directory, or
continues them, and writes benchmarks/results/reproduce.json from what is finished. The times
of the experiment "scaling" need an idle machine and are taken by ``--scaling`` alone.

    python benchmarks/bench_reproduce.py --data DATA --run RUN
    python benchmarks/bench_reproduce.py --run RUN --scaling    # the times only
    python benchmarks/bench_reproduce.py --run RUN --export     # the file, page and figures
    python benchmarks/bench_reproduce.py --data DATA --run OTHER --check
    python benchmarks/bench_reproduce.py --small    # the bundled cells, nothing written

Jobs whose rows the file holds are not run again, so the command continues where an earlier
one ended, also in a new run directory; ``--again METHOD`` computes those of a method again.
What a run has computed replaces what the file holds of the same experiment, data set, split,
method and setting; other rows stay. ``parts`` of the file says which run each row is from.
``--stages`` runs some of the stages only.
``--check`` computes some of the stored rows again, in a run directory of its own, and records
by how much they differ.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from record import read_results, write_results

from semfs.lab import Store
from semfs.lab.compared_method import Size
from semfs.lab.methods import METHODS
from semfs.lab.paper import EXPERIMENTS, Study, reproduce
from semfs.lab.plan import ORACLE, Experiment
from semfs.lab.store import Job

PLAN = tomllib.loads(Path(__file__).with_name("reproduce.toml").read_text("utf-8"))
COMMAND = "python benchmarks/bench_reproduce.py --data DATA --run RUN"

PAGE_SCRIPT = Path(__file__).parents[1] / "docs" / "reproduced.py"

#: Methods and number of splits of each data set that ``--check`` computes again.
CHECKED = ("semfs", "semfs-described", "semfs-c", "semfs-labels", "semfs-published")
CHECKED_SPLITS = 2

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


def run_stages(
    data: Path,
    run: Path,
    n_jobs: int,
    old: Mapping[str, Any],
    again: Container[str] = (),
    plan: Mapping[str, Any] = PLAN,
    numbers: Container[int] = (),
) -> None:
    """Run or continue all stages of a plan, but for jobs whose rows ``old`` holds.

    Jobs of the methods ``again`` are run although it holds them. ``numbers`` are those of the
    stages to run, from 1 on; by default all are run.
    """
    n_known = Counter((*_identity(row), row["k"]) for row in old.get("rows", ()))

    def is_known(job: Job) -> bool:
        if job.method in again:
            return False
        # The points of a grid have the same identity: they are known if all of them are.
        n_points = _grid_size(job.method) if job.label.endswith(ORACLE) else 1
        identity = _identity_of_job(job)
        return all(n_known[(*identity, k)] >= n_points for k in plan["ks"])

    for number, stage in enumerate(plan["stages"], start=1):
        if numbers and number not in numbers:
            continue
        print(f"stage {number} of {len(plan['stages'])}: {stage}", flush=True)
        study = Study(
            [experiment_of(stage)],
            data,
            stage["datasets"],
            splits=stage["splits"],
            ks=tuple(plan["ks"]),
        )
        done = reproduce(study, run, n_jobs=n_jobs, command=COMMAND, is_known=is_known)
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
    info = store.info()
    facts = info.get("datasets", {})
    sizes = ("n_seen", "n_unseen", "n_features", "n_attributes")
    datasets = {
        name: {size: of_data[size] for size in sizes}
        | {"seen": len(of_data["seen"]), "unseen": len(of_data["unseen"])}
        for name, of_data in facts.items()
    }
    part = {"started": info["started"], "versions": info["versions"]}
    rows = [_kept(row) | {"part": 0} for row in with_whole_grids(store.rows())]
    return {"datasets": datasets, "parts": [part], "rows": rows}


def with_whole_grids(rows: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Leave out the points of grids that are not finished.

    The best of a part of a grid would be a weaker rival than the best of all of it.
    """
    rows = list(rows)
    points: dict[tuple[Any, ...], set[str]] = defaultdict(set)
    for row in rows:
        points[_identity(_described(row))].add(json.dumps(row["params"], sort_keys=True))
    return [
        row
        for row in rows
        if not row["label"].endswith(ORACLE)
        or len(points[_identity(_described(row))]) >= _grid_size(row["method"])
    ]


def _grid_size(method: str) -> int:
    """The number of points of the paper's grid of a method."""
    any_size = Size(n_samples=1, n_classes=2)
    return len(METHODS[method].grid(any_size))


def merged(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of a run, and those of the file that the run has not computed.

    The points of a method's grid count as one: the run replaces all of them, or none.
    """
    if not old:
        return dict(new)
    parts = [*_parts(old), *new["parts"]]
    computed = {_identity(row) for row in new["rows"]}
    stay = [row for row in old["rows"] if _identity(row) not in computed]
    offset = len(parts) - len(new["parts"])
    rows = [row | {"part": row.get("part", 0)} for row in stay]
    rows += [row | {"part": row["part"] + offset} for row in new["rows"]]
    found: dict[str, Any] = {"datasets": {**old["datasets"], **new["datasets"]}}
    if "check" in old:
        found["check"] = old["check"]
    return found | _with_used_parts(parts, rows)


def _parts(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The parts of a results file; one that names none is from a single run."""
    if "parts" in found:
        return found["parts"]
    return [{"exported": found["date"], "versions": found["versions"]}]


def _with_used_parts(
    parts: list[Mapping[str, Any]], rows: list[dict[str, Any]]
) -> dict[str, Any]:
    """Leave out the parts that no row is from, and count the rows of the others."""
    used = sorted({row["part"] for row in rows})
    number = {part: i for i, part in enumerate(used)}
    for row in rows:
        row["part"] = number[row["part"]]
    counts = [sum(row["part"] == i for row in rows) for i in range(len(used))]
    kept = [{**parts[part], "rows": count} for part, count in zip(used, counts)]
    return {"parts": kept, "rows": rows}


def _identity(row: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a row is about, but for k: these rows are computed together."""
    place = tuple(row[name] for name in ("experiment", "dataset", "split", "method"))
    if row["experiment"] == "clustering":
        return place
    return (*place, *(row.get(name) for name in (*VARIED, "draw")))


def _identity_of_job(job: Job) -> tuple[Any, ...]:
    """What the rows of a job are about, as `_identity` says it of a row."""
    return _identity(_described(job.columns))


def checked(old: Mapping[str, Any], data: Path, run: Path) -> dict[str, Any]:
    """Compute some of the stored rows again, with the code as it is, and compare."""
    prepare_data(data, run / "data")
    experiment = replace(EXPERIMENTS["clustering"], methods=CHECKED, oracle=False)
    study = Study(
        [experiment],
        run / "data",
        list(PLAN["data"]),
        splits=CHECKED_SPLITS,
        ks=tuple(PLAN["ks"]),
    )
    reproduce(study, run, n_jobs=1, command=COMMAND)
    found = exported(run)
    again = {(*_identity(row), row["k"]): row for row in found["rows"]}
    pairs = [
        (row, again[key])
        for row in old["rows"]
        if row.get("part", 0) == 0 and (key := (*_identity(row), row["k"])) in again
    ]
    largest = {
        name: round(max(abs(a[name] - b[name]) for a, b in pairs), DIGITS)
        for name in ("acc", "nmi")
    }
    return {
        "started": found["parts"][0]["started"],
        "methods": sorted({row["method"] for row, _ in pairs}),
        "places": len({(row["dataset"], row["split"]) for row, _ in pairs}),
        "rows": len(pairs),
        "equal": sum(all(a[name] == b[name] for name in largest) for a, b in pairs),
        "largest": largest,
    }


def _described(row: Mapping[str, Any]) -> dict[str, Any]:
    """What a row of the store is about: its job and what the experiment varies."""
    params = row["params"]
    described = {
        "experiment": row["experiment"],
        "dataset": row["dataset"],
        "split": row["split"],
        "method": row["label"],
    }
    described |= {name: params[name] for name in VARIED if name in params}
    if params.get("ratio", 1.0) < 1.0:
        described["draw"] = row["seed"]
    return described


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the store, as the page needs it."""
    kept = _described(row) | {"k": row["k"]}
    for name in ("acc", "nmi"):
        if row[name] is not None:
            kept[name] = round(row[name], DIGITS)
    seconds = row["extra"].get("cpu_seconds", row["seconds"])
    if row["experiment"] == "scaling":
        seconds = row["seconds"]
    kept["seconds"] = round(seconds, DIGITS)
    params = row["params"]
    for name in ("max_rows", "max_samples", "batch_size"):
        if name in params:
            kept[name] = params[name]
    if "objective" in row["extra"] and row["k"] == max(PLAN["ks"]):
        # All digits: an iteration of the published algorithm changes the tenth of them.
        kept["objective"] = row["extra"]["objective"]
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="folder of data sets")
    parser.add_argument("--run", type=Path, help="run directory; continued if it exists")
    parser.add_argument("--jobs", type=int, default=1, help="worker processes")
    parser.add_argument(
        "--again", nargs="+", default=(), metavar="METHOD", help="methods to compute again"
    )
    parser.add_argument(
        "--stages", nargs="+", type=int, default=(), metavar="N", help="run these stages only"
    )
    parser.add_argument("--scaling", action="store_true", help="the times on made data only")
    parser.add_argument("--export", action="store_true", help="write what is finished")
    parser.add_argument("--check", action="store_true", help="compute stored rows again")
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
    needs_data = not (options.scaling or options.export)
    if needs_data and options.data is None:
        parser.error("--data is missing: the folder with the files that the plan names")
    old = read_results("reproduce")
    if options.check:
        check = checked(old, options.data, options.run)
        print(check)
        print(write_results("reproduce", {**_without_header(old), "check": check}, COMMAND))
        return
    if options.scaling:
        run_scaling(options.run)
    elif needs_data:
        data = options.run / "data"
        prepare_data(options.data, data)
        run_stages(data, options.run, options.jobs, old, options.again, numbers=options.stages)
    if not options.scaling:
        print(write_results("reproduce", merged(old, exported(options.run)), COMMAND))
        # The page and its figures show these rows.
        subprocess.run([sys.executable, PAGE_SCRIPT], check=True)


def _without_header(found: Mapping[str, Any]) -> dict[str, Any]:
    """A results file without what `write_results` adds, and with the parts that it is from."""
    header = ("command", "date", "versions", "parts")
    rest = {name: value for name, value in found.items() if name not in header}
    return {"parts": _parts(found)} | rest


if __name__ == "__main__":
    main()
