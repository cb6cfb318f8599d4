"""Time and memory of the baselines at the size of SUN: n = 14,140, d = 4,096, 707 classes.

    python benchmarks/bench_baselines.py                    # everything, some 15 minutes
    python benchmarks/bench_baselines.py --only mcfs,wknn   # some of the methods
    python benchmarks/bench_baselines.py --show             # the table of the last full run
    python benchmarks/bench_baselines.py --small            # seconds: does it run at all
    python benchmarks/bench_baselines.py --digits           # accuracy on digits (digits.json)

Each method runs in a process of its own on the same file of made-up data: float32, three
quarters zeros as after a ReLU, with class structure. Prints a table and writes
``benchmarks/results/baselines.json`` (full size only).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from record import read_results, write_results

# name on the command line -> (class, options); all rank for k = 50
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "random": ("RandomSelector", {"random_state": 0}),
    "variance": ("VarianceSelector", {}),
    "markers": ("Markers", {}),
    "mcfs": ("MCFS", {}),
    "mcfs-50": ("MCFS", {"n_components": 50}),
    "mcfs-707": ("MCFS", {"n_components": 707}),
    "fsasl": ("FSASL", {"n_components": 50, "max_samples": 2000, "n_iter_no_change": 3}),
    "lasso": ("LassoSelector", {"lam": 1.0}),
    "lasso-l21": ("LassoSelector", {"lam": 10.0, "penalty": "l21"}),
    "l20alm": ("L20ALM", {}),
    # all 1,000 steps; the default lambda0 takes 4,096 weights to 0 in the first few
    "wknn": ("WkNN", {"batch_size": 512, "lambda0": 0.0, "lambda1": 1e-5, "lambda2": 0.0}),
}
LIMIT_SECONDS = {"random": 1.0, "variance": 1.0}  # all others: ten minutes
LIMIT_GIGABYTES = 6.0
SIZE = {"n_classes": 707, "per_class": 20, "d": 4096}
SMALL = {"n_classes": 40, "per_class": 10, "d": 256}


def make_data(n_classes: int, per_class: int, d: int, seed: int = 0) -> tuple[Any, Any]:
    """Return X (n, d) float32, about three quarters zeros, and y (n,)."""
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n_classes, 60), dtype=np.float32)
    means = latent @ rng.standard_normal((60, d), dtype=np.float32) / np.sqrt(60)
    y = np.repeat(np.arange(n_classes), per_class)
    X = means[y].astype(np.float32)
    X += np.float32(1.6) * rng.standard_normal(X.shape, dtype=np.float32) - np.float32(1.3)
    np.maximum(X, 0, out=X)
    X *= rng.uniform(0.2, 3.0, d).astype(np.float32)
    return X, y


def run_one(case: str, data: str, small: bool) -> dict[str, Any]:
    """Fit one method in this process; return seconds and memory."""
    import semfs.baselines

    name, options = CASES[case]
    options = dict(options, n_features_to_select=50)
    if small and "max_iter" not in options and case in ("wknn", "fsasl"):
        options["max_iter"] = 20
    X = np.load(Path(data) / "X.npy")
    y = np.load(Path(data) / "y.npy")
    selector = getattr(semfs.baselines, name)(**options)
    before = _memory("VmRSS")
    start, cpu_start = time.perf_counter(), time.process_time()
    selector.fit(X, y)
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu_start
    peak = _memory("VmHWM")
    return {
        "case": case,
        "method": name,
        "options": CASES[case][1],
        "seconds": round(seconds, 2),
        "cpu_seconds": round(cpu, 2),  # tells a busy machine from a slow method
        "extra_gigabytes": round((peak - before) / 1e9, 2),
        "peak_gigabytes": round(peak / 1e9, 2),
        "n_iter": int(getattr(selector, "n_iter_", 0)) or None,
        "first_features": selector.order_[:5].tolist(),
    }


def _memory(field: str) -> int:
    """Return VmRSS (now) or VmHWM (highest) of this process in bytes.

    Not ``ru_maxrss``: on Linux a child inherits the peak of the process that started it.
    """
    status = Path("/proc/self/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024


def run_all(cases: list[str], small: bool, threads: int) -> None:
    """Run each case in a fresh process; print and save its row as it comes."""
    threads_env = {f"{name}_NUM_THREADS": str(threads) for name in ("OPENBLAS", "OMP", "MKL")}
    path = os.pathsep.join(filter(None, [str(Path.cwd()), os.environ.get("PYTHONPATH")]))
    env = dict(os.environ, PYTHONPATH=path, **threads_env)
    print_head()
    with tempfile.TemporaryDirectory(prefix="semfs-baselines-") as data:
        X, y = make_data(**(SMALL if small else SIZE))
        np.save(Path(data) / "X.npy", X)
        np.save(Path(data) / "y.npy", y)
        del X, y
        for case in cases:
            command = [sys.executable, __file__, "--child", case, "--data", data]
            done = subprocess.run(
                command + ["--small"] * small, env=env, stdout=subprocess.PIPE, check=False
            )
            if done.returncode:
                raise SystemExit(f"{case} failed, see above")
            row = json.loads(done.stdout)
            if not small:
                save(row, threads)
            print(_line(row), flush=True)


def print_head() -> None:
    print(
        f"{'method':<16}{'seconds':>9}{'CPU s':>9}{'extra GB':>10}{'peak GB':>9}{'iter':>6}"
        "  options"
    )


def show() -> None:
    """Print the table of the last full run."""
    rows = read_results("baselines").get("rows")
    if not rows:
        print("Baselines: no full run yet (make bench-long)")
        return
    n, d, classes = rows[0]["n_d_classes"]
    print(f"Baselines at n = {n:,}, d = {d:,}, {classes} classes (last make bench-long)")
    print_head()
    for row in rows:
        print(_line(row))


def _line(row: dict[str, Any]) -> str:
    options = ", ".join(f"{k}={v!r}" for k, v in row["options"].items()) or "defaults"
    limit = LIMIT_SECONDS.get(row["case"], 600.0)
    over = row["seconds"] > limit or row["peak_gigabytes"] > LIMIT_GIGABYTES
    return (
        f"{row['method']:<16}{row['seconds']:>9.2f}{row['cpu_seconds']:>9.2f}"
        f"{row['extra_gigabytes']:>10.2f}"
        f"{row['peak_gigabytes']:>9.2f}{row['n_iter'] or '':>6}  {options}"
        f"{'  OVER THE LIMIT' if over else ''}"
    )


def save(row: dict[str, Any], threads: int) -> None:
    """Write a row among those of the other cases, whole or not at all."""
    size = [SIZE["n_classes"] * SIZE["per_class"], SIZE["d"], SIZE["n_classes"]]
    row |= {"n_d_classes": size, "threads": threads}
    known = read_results("baselines").get("rows", [])
    by_case = {r["case"]: r for r in known if r["n_d_classes"] == size} | {row["case"]: row}
    rows = [by_case[case] for case in CASES if case in by_case]
    write_results("baselines", {"rows": rows})


def digits() -> None:
    """Write the mean 5-fold accuracy of a ridge classifier on 10 of the 64 pixels."""
    import semfs.baselines as b

    unsupervised = {"n_components": 10}
    cases: list[tuple[type, dict[str, Any]]] = [
        (b.VarianceSelector, {}),
        (b.Markers, {}),
        (b.MCFS, unsupervised),
        (b.FSASL, unsupervised),
        (b.LassoSelector, {}),
        (b.LassoSelector, {"lam": 10.0, "penalty": "l21"}),
        (b.L20ALM, {}),
        (b.L20ALM, {"standardize": False}),
        (b.WkNN, {}),
    ]
    draws = [_digits_accuracy(b.RandomSelector(10, random_state=seed)) for seed in range(20)]
    mean, spread = float(np.mean(draws)), float(np.std(draws))
    rows = [{"method": "RandomSelector", "options": {}, "accuracy": mean, "spread": spread}]
    for method, options in cases:
        row = {"method": method.__name__, "options": options}
        rows.append(row | {"accuracy": _digits_accuracy(method(10, **options))})
        print(rows[-1], flush=True)
    write_results("digits", {"rows": rows}, "python benchmarks/bench_baselines.py --digits")


def _digits_accuracy(selector: Any) -> float:
    from sklearn.datasets import load_digits
    from sklearn.linear_model import RidgeClassifier
    from sklearn.model_selection import cross_val_score
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    X, y = load_digits(return_X_y=True)
    model = make_pipeline(selector, StandardScaler(), RidgeClassifier())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return float(cross_val_score(model, X, y, cv=5).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--small", action="store_true", help="400 × 256, a few seconds")
    parser.add_argument("--only", help=f"comma-separated, of: {', '.join(CASES)}")
    parser.add_argument("--show", action="store_true", help="print the last full run")
    parser.add_argument("--digits", action="store_true", help="accuracy on digits instead")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--data", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(run_one(args.child, args.data, args.small)))
        return
    if args.show or args.digits:
        show() if args.show else digits()
        return
    cases = args.only.split(",") if args.only else [c for c in CASES if c != "mcfs-707"]
    unknown = [c for c in cases if c not in CASES]
    if unknown:
        raise SystemExit(f"Unknown: {', '.join(unknown)}. Choose from {', '.join(CASES)}.")
    run_all(cases, args.small, args.threads)


if __name__ == "__main__":
    main()
