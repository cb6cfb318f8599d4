"""Our panel and spapros' panel of the same size, judged by spapros' own evaluator.

spapros needs an environment of its own (numpy < 2.4): ``python -m venv spapros``, then
``spapros/bin/pip install spapros 'numpy<2.4'``. Run this with our Python and name the other:
``python benchmarks/bench_spapros.py cells.h5ad --spapros spapros/bin/python``. Both panels are
selected among the same genes, on the same cells; the evaluator's scheme is "quick".
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

#: Genes of a panel, as in most imaging panels that spapros was made for.
N_GENES = 50


def our_panel(data: Path, label: str, n_genes: int) -> dict[str, Any]:
    """Select with SemFS, types described by the Cell Ontology and told by their labels."""
    import anndata

    from semfs.scverse import select_genes

    cells = anndata.read_h5ad(data)
    start = time.perf_counter()
    select_genes(cells, label, n_genes, attributes="cl")
    seconds = time.perf_counter() - start
    ranks = cells.var["semfs_rank"][cells.var["semfs_selected"]]
    return {"seconds": seconds, "genes": ranks.sort_values().index.tolist()}


def spapros_part(data: Path, label: str, n_genes: int, ours: list[str]) -> dict[str, Any]:
    """Select with spapros, and judge both panels (runs in spapros' environment)."""
    import anndata
    import numpy
    import spapros

    cells = anndata.read_h5ad(data)
    # ProbesetSelector looks for candidates in this column; all genes may be selected by us.
    cells.var["highly_variable"] = True
    start = time.perf_counter()
    selector = spapros.se.ProbesetSelector(
        cells, n=n_genes, celltype_key=label, verbosity=0, save_dir=None
    )
    selector.select_probeset()
    seconds = time.perf_counter() - start
    theirs = selector.probeset.index[selector.probeset["selection"]].tolist()
    panels = {"semfs": ours, "spapros": theirs}
    evaluator = spapros.ev.ProbesetEvaluator(
        cells, celltype_key=label, scheme="quick", results_dir=None, verbosity=0
    )
    for name, genes in panels.items():
        evaluator.evaluate_probeset(genes, set_id=name)
    summary = evaluator.summary_results
    return {
        "seconds": seconds,
        "genes": theirs,
        "scores": {name: summary.loc[name].to_dict() for name in panels},
        "versions": {"spapros": spapros.__version__, "numpy": numpy.__version__},
    }


def main() -> None:
    """Run both, and write results/spapros.json."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path, help="log-normalized cells, .h5ad")
    parser.add_argument("--label", default="cell_type")
    parser.add_argument("--spapros", type=Path, help="Python of spapros' environment")
    parser.add_argument("-k", type=int, default=N_GENES)
    parser.add_argument("--ours", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ours is not None:  # in spapros' environment
        ours = json.loads(options.ours.read_text())
        found = spapros_part(options.data, options.label, options.k, ours)
        print(json.dumps(found))
        return
    from record import write_results

    ours = our_panel(options.data, options.label, options.k)
    with tempfile.TemporaryDirectory() as folder:
        genes = Path(folder) / "genes.json"
        genes.write_text(json.dumps(ours["genes"]))
        command = [str(options.spapros), __file__, str(options.data), "--label", options.label]
        command += ["-k", str(options.k), "--ours", str(genes)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    theirs = json.loads(done.stdout.splitlines()[-1])
    scores = theirs.pop("scores")
    found = {
        "data": options.data.name,
        "n_genes": options.k,
        "spapros_versions": theirs.pop("versions"),
        "panels": {
            "semfs": ours | {"scores": scores["semfs"]},
            "spapros": theirs | {"scores": scores["spapros"]},
        },
    }
    command = f"python benchmarks/bench_spapros.py {options.data.name} --spapros …"
    print(write_results("spapros", found, command))
    for name, values in scores.items():
        print(name, values)


if __name__ == "__main__":
    main()
