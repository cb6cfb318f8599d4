"""The paper's main comparison, for the page *Reproducing the paper*.

Runs `semfs reproduce clustering` (or continues it) and writes
benchmarks/results/reproduce.json: one row per data set, class split and method, with ACC and
NMI averaged over k.

    python benchmarks/bench_reproduce.py --data DATA --run RUN --splits 5
    python benchmarks/bench_reproduce.py --small    # the bundled cells, nothing written
"""

from __future__ import annotations

import argparse
import tempfile
from collections import defaultdict
from typing import Any

from record import write_results

from semfs.lab import Store
from semfs.lab.comparison import METRICS, standings
from semfs.lab.paper import Study, reproduce


def exported(run: Any, names: list[str]) -> dict[str, Any]:
    """What the page needs of a run directory; of the data sets named, if any."""
    store = Store(run, create=False)
    groups: dict[tuple[str, str], list] = defaultdict(list)
    for row in store.rows():
        if names and not row["dataset"].startswith(tuple(names)):
            continue
        groups[row["dataset"], row["split"]].append(row)
    rows = []
    for (dataset, split), part in groups.items():
        scores: dict[str, dict[str, float]] = defaultdict(dict)
        for metric in METRICS:
            found = standings(part, metric)
            for standing in [*found.ranked, *found.oracles]:
                scores[standing.label][metric] = round(standing.mean, 4)
        place = {"dataset": dataset, "split": split}
        rows += [place | {"label": label} | values for label, values in scores.items()]
    return {"versions": store.info()["versions"], "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", help="folder of data sets")
    parser.add_argument("--dataset", default="", help="only these, with commas")
    parser.add_argument("--splits", type=int, default=5)
    parser.add_argument("--run", help="run directory; continued if it exists")
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    names = [name for name in options.dataset.split(",") if name]
    command = f"semfs reproduce clustering --data DATA --splits {options.splits}"
    command += f" --dataset {options.dataset}" if names else ""
    study = Study(["clustering"], options.data, names, splits=options.splits)
    if options.small:
        study = Study(
            ["clustering"], datasets=["lining"], methods=["semfs", "variance"], fast=True
        )
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or folder
        done = reproduce(study, run, command=command, verbose=True)
        found = exported(run, names)
    print(f"{len(found['rows'])} rows, {len(done.failures)} jobs failed")
    if not options.small:
        write_results("reproduce", found, command)


if __name__ == "__main__":
    main()
