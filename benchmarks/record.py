"""Where the benchmarks write what they found, and what made it."""

from __future__ import annotations

import datetime
import json
import platform
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("numpy", "scipy", "scikit-learn")


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
