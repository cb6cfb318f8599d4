"""Where the benchmarks write what they found, and what made it."""

from __future__ import annotations

import datetime
import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "scipy", "scikit-learn")


def measured_apart(name: str, *options: str) -> dict[str, Any]:
    """What this script prints for ``--one NAME``, in a process (and peak memory) of its own."""
    command = [sys.executable, sys.argv[0], "--one", name, *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name} failed: {done.stderr.strip().splitlines()[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def write_results(name: str, found: dict[str, Any], command: str | None = None) -> Path:
    """Write results/NAME.json, whole or not at all, with command, date and versions."""
    import semfs

    versions = {"semfs": semfs.__version__, "python": platform.python_version()}
    made = {
        "command": command or f"python benchmarks/{Path(sys.argv[0]).name}",
        "date": datetime.date.today().isoformat(),
        "versions": versions | {package: version(package) for package in PACKAGES},
    }
    path = RESULTS / f"{name}.json"
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(made | found, indent=1) + "\n", encoding="utf-8")
    return partial.replace(path)


def read_results(name: str) -> dict[str, Any]:
    """Return results/NAME.json, or nothing where it was not written."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
