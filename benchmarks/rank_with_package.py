"""The ranking of SemFS in another copy of the package, at the defaults of that copy.

    PYTHONPATH=COPY python benchmarks/rank_with_package.py COPY SPLIT.npz ORDER.npy

SPLIT.npz holds samples X (n, d) of seen classes y (n,), class attributes A (C, m), and, where
unlabeled samples are told, Xu (n_unlabeled, d). ORDER.npy gets the features, best first.
`another_package` runs it: two versions of a package cannot be imported by one process.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np


def another_package(
    package: Path,
    n_features: int,
    X: np.ndarray,
    y: np.ndarray,
    A: np.ndarray,
    X_unlabeled: np.ndarray | None = None,
) -> np.ndarray:
    """Return the order (d,) of the features by SemFS in the folder that holds its package."""
    package = package.resolve()
    arrays = {"X": X, "y": y, "A": A, "n_features": np.array(n_features)}
    if X_unlabeled is not None:
        arrays["Xu"] = X_unlabeled
    environment = os.environ | {"PYTHONPATH": str(package), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        split = Path(folder, "split.npz")
        order = Path(folder, "order.npy")
        np.savez(split, **arrays)
        command = [sys.executable, __file__, str(package), str(split), str(order)]
        subprocess.run(command, env=environment, check=True)
        return np.load(order)


def main() -> None:
    """Fit, and write the order."""
    import semfs

    package, split, order = map(Path, sys.argv[1:])
    if not Path(semfs.__file__).is_relative_to(package):
        raise SystemExit(f"semfs was imported from {semfs.__file__}, not from {package}")
    warnings.simplefilter("ignore")
    with np.load(split) as stored:
        selector = semfs.SemFS(int(stored["n_features"]), attributes=stored["A"])
        selector.fit(stored["X"], stored["y"], X_unlabeled=stored.get("Xu"))
    np.save(order, selector.order_)


if __name__ == "__main__":
    main()
