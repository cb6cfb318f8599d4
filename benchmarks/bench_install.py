"""Time and size of the first run: fresh clone, empty environment, nothing cached by pip.

    python benchmarks/bench_install.py      # needs git, make, a network; some minutes

Measures `make demo` (its lean installation, then the demo itself) and `make install` (all
extras, documentation and test tools, for `make test`), each in a clone of its own, and writes
benchmarks/results/install.json, which README shows.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from pathlib import Path

from record import write_results

ROOT = Path(__file__).parents[1]


def make(target: str, clone: Path) -> float:
    """Return the seconds that a target takes."""
    hidden = ("PYTHONPATH", "VIRTUAL_ENV", "MAKEFLAGS", "MAKELEVEL")
    env = {name: value for name, value in os.environ.items() if name not in hidden}
    started = time.perf_counter()
    subprocess.run(["make", target], cwd=clone, env=env | {"PIP_NO_CACHE_DIR": "1"}, check=True)
    return time.perf_counter() - started


def megabytes(folder: Path) -> float:
    """Return the size of the files in a folder."""
    paths = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return 1e-6 * sum(path.stat().st_size for path in paths)


def main() -> None:
    """Measure, print, write."""
    rows = []
    with tempfile.TemporaryDirectory(prefix="semfs-install-") as folder:
        for what, targets in {"demo": (".venv/.lean", "demo"), "all": ("install",)}.items():
            clone = Path(folder) / what
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
            for target in targets:
                seconds = make(target, clone)
                size = megabytes(clone / ".venv")
                rows.append({"target": target, "seconds": seconds, "megabytes": size})
                print(f"make {target}: {seconds:.0f} s, .venv has {size:.0f} MB", flush=True)
    write_results("install", {"rows": rows})


if __name__ == "__main__":
    main()
