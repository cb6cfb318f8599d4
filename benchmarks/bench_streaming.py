"""Beyond memory: a 6.6 GB file, and many sparse columns.

    python benchmarks/bench_streaming.py --dir /scratch          # all parts, about six minutes
    python benchmarks/bench_streaming.py --parts sparse           # some of them
    python benchmarks/bench_streaming.py --small                 # a quick look

*passes*: n = 400,000, d = 4,096 float32. The unit is reading the file once and multiplying
each block with itself, G += X_b.T @ X_b, in plain numpy. *sparse*: 100,000 × 50,000 with 0.1 %
non-zeros. Every measurement
is a process of its own and begins with the file dropped from the page cache. Writes its parts
of benchmarks/results/streaming.json; the data are deleted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from record import measured_apart, read_results, write_results

SIZES = {"full": (400_000, 4_096, 200), "small": (80_000, 1_024, 50)}
SPARSE = {"full": (100_000, 50_000), "small": (10_000, 5_000)}
BLOCK = 4_096
K = 50


def write_data(folder: Path, n: int, d: int, C: int) -> None:
    """Classes whose means depend on attributes, block by block."""
    rng = np.random.default_rng(0)
    A = rng.random((C, 30))
    means = (0.3 * A @ rng.standard_normal((30, d)) + 2.0).astype(np.float32)
    y = rng.integers(0, C, n)
    np.save(folder / "y.npy", y)
    np.save(folder / "A.npy", A)
    columns = ",".join(f"a{i}" for i in range(A.shape[1]))
    lines = [f"{c}," + ",".join(map(repr, row)) for c, row in enumerate(A.tolist())]
    (folder / "A.csv").write_text("\n".join([f"class,{columns}", *lines]))
    header = {"descr": "<f4", "fortran_order": False, "shape": (n, d)}
    with (folder / "X.npy").open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for start in range(0, n, BLOCK):
            labels = y[start : start + BLOCK]
            X = rng.standard_normal((len(labels), d), dtype=np.float32)
            X += means[labels]
            X.tofile(file)


def forget(path: Path) -> None:
    """Drop a file from the page cache, where the system can."""
    if hasattr(os, "posix_fadvise"):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def read_only(folder: Path) -> None:
    header = np.load(folder / "X.npy", mmap_mode="r")
    buffer = np.empty((BLOCK, header.shape[1]), header.dtype)
    with (folder / "X.npy").open("rb", buffering=0) as file:
        file.seek(header.offset)
        while file.readinto(memoryview(buffer.reshape(-1).view(np.uint8))):
            pass


def plain(folder: Path) -> None:
    """Read once, G += X_b'X_b."""
    header = np.load(folder / "X.npy", mmap_mode="r")
    n, d = header.shape
    G = np.zeros((d, d), dtype=np.float32)
    with (folder / "X.npy").open("rb") as file:
        file.seek(header.offset)
        for start in range(0, n, BLOCK):
            rows = min(BLOCK, n - start)
            X = np.fromfile(file, np.float32, rows * d).reshape(rows, d)
            G += X.T @ X


def semfs_fit(folder: Path, **options) -> list[int]:
    from semfs import SemFS
    from semfs.rows import open_blocks

    y, A = np.load(folder / "y.npy"), np.load(folder / "A.npy")
    source = open_blocks(folder / "X.npy", y, **options)
    return SemFS(K, attributes=A).fit(source).order_[:K].tolist()


def sparse_fit(folder: Path) -> list[int]:
    """Choose 100 of the words; a small cut must give what the same rows give when dense."""
    import scipy.sparse as sp

    from semfs import SemFS

    X, y = sp.csr_array(sp.load_npz(folder / "sparse.npz")), np.load(folder / "words.npy")
    start = time.perf_counter()
    order = SemFS(100).fit(X, y).order_
    seconds, peak = time.perf_counter() - start, peak_mb()
    cut, labels = X[:5000][:, np.sort(order[:1000])], y[:5000]
    dense = SemFS(100).fit(cut.toarray(), labels).order_[:100].tolist()
    same = SemFS(100).fit(cut, labels).order_[:100].tolist() == dense
    return [seconds, peak, X.nnz, same]


MEASURED = {
    "read once": read_only,
    "read once, X'X (numpy)": plain,
    "semfs, as it comes": semfs_fit,
    "semfs, one pass (d x d)": lambda folder: semfs_fit(folder, passes="one"),
    "semfs, a few passes": lambda folder: semfs_fit(folder, passes="few"),
    "read once, X'X (numpy), again": plain,
}


def measure(name: str, folder: Path) -> dict:
    import semfs.rows  # noqa: F401  (imports are not what is measured)

    if name == "sparse":
        return {"what": name, "order": sparse_fit(folder)}
    forget(folder / "X.npy")
    start, cpu = time.perf_counter(), time.process_time()
    order = MEASURED[name](folder)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    found = {"what": name, "seconds": seconds, "cpu": cpu, "peak_mb": peak_mb()}
    return found | {"order": order}


def peak_mb() -> float:
    """Peak resident memory of this process alone (getrusage would count its parent's)."""
    status = Path("/proc/self/status")
    if status.exists():
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


# ---- the parts ----------------------------------------------------------------------


def passes(folder: Path, size: str) -> dict:
    """Passes over the file against plain numpy."""
    n, d, C = SIZES[size]
    print(f"n = {n:,}, d = {d:,} float32: {4 * n * d / 1e9:.1f} GB; k = {K}, {C} classes")
    print(f"{'':32}{'seconds':>9}{'ratio':>7}{'cpu s':>8}{'peak MB':>9}{'MB/s':>7}", flush=True)
    found = []
    for name in MEASURED:
        found.append(measured_apart(name, "--dir", str(folder)))
        print(f"  {name}: {found[-1]['seconds']:.1f} s", file=sys.stderr, flush=True)
    units = [r["seconds"] for r in found if r["what"].startswith("read once, X'X")]
    orders = [r.pop("order") for r in found]
    for row in found:
        row["ratio"] = row["seconds"] / (sum(units) / len(units))
        print(
            f"{row['what']:32}{row['seconds']:9.1f}{row['ratio']:7.2f}{row['cpu']:8.1f}"
            f"{row['peak_mb']:9.0f}{4e-6 * n * d / row['seconds']:7.0f}"
        )
    chosen = [order for order in orders if order]
    same = all(order == chosen[0] for order in chosen)
    print("same 50 features in the same order:", same)
    return {"n": n, "d": d, "classes": C, "k": K, "rows": found, "same_order": same}


def sparse(folder: Path, size: str) -> dict:
    """100 of 50,000 sparse columns."""
    import scipy.sparse as sp

    sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
    from problems import make_words

    n, d = SPARSE[size]
    X, y = make_words(n, d)
    sp.save_npz(folder / "sparse.npz", sp.csr_matrix(X), compressed=False)
    np.save(folder / "words.npy", y)
    del X
    seconds, peak, nnz, same = measured_apart("sparse", "--dir", str(folder))["order"]
    print(f"sparse {n:,} × {d:,}, {nnz:,} non-zeros, k = 100: {seconds:.1f} s, {peak:.0f} MB")
    print("equal to the dense answer on a cut:", same)
    found = {"n": n, "d": d, "k": 100, "nnz": nnz, "seconds": seconds, "peak_mb": peak}
    return found | {"same_as_dense": same}


PARTS = {"passes": passes, "sparse": sparse}


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.one, options.dir)))
        return
    size = "small" if options.small else "full"
    n, d, C = SIZES[size]
    if shutil.disk_usage(options.dir).free < 1.3 * 4 * n * d:
        raise SystemExit(f"{options.dir} has no room for {4e-9 * n * d:.1f} GB; --dir?")
    folder = Path(tempfile.mkdtemp(prefix="semfs-bench-", dir=options.dir))
    wanted = options.parts.split(",")
    try:
        if wanted != ["sparse"]:
            write_data(folder, n, d, C)
        for part in wanted:
            found = PARTS[part](folder, size)
            if size == "full":
                write_part(part, found)
    finally:
        shutil.rmtree(folder)


def write_part(part: str, found: dict) -> None:
    known = read_results("streaming")
    write_results("streaming", {p: known[p] for p in PARTS if p in known} | {part: found})


if __name__ == "__main__":
    main()
