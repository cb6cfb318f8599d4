"""The demo on the bundled lung cells, for the picture of README.md.

python benchmarks/bench_demo.py            # then: python docs/demo_picture.py
python benchmarks/bench_demo.py --small    # two class splits, nothing written
"""

from __future__ import annotations

import argparse
from typing import Any

from record import write_results

from semfs.lab.demo import Demo, run_demo

#: Class splits, and genes in the picture: those of ``semfs demo``.
N_SPLITS = 20
N_GENES = 20
#: Digits of scores that are kept.
DIGITS = 4


def exported(demo: Demo) -> dict[str, Any]:
    """What the picture needs of a demo: genes and scores, without lists of features."""
    rows = []
    for row in demo.rows:
        kept: dict[str, Any] = {name: row[name] for name in ("split", "label", "k")}
        kept |= {name: round(row[name], DIGITS) for name in ("acc", "nmi")}
        rows.append(kept)
    genes = [[name, round(share, DIGITS), attribute] for name, share, attribute in demo.genes]
    return {"data": demo.data.name, "genes": genes, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.small:
        print(f"{len(exported(run_demo(5, 2))['rows'])} rows")
        return
    found = exported(run_demo(N_GENES, N_SPLITS, verbose=True))
    print(write_results("demo", found, "python benchmarks/bench_demo.py"))


if __name__ == "__main__":
    main()
