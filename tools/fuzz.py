"""Damaged files of every format, and hard problems: each is read, or refused in one clear line.

    python tools/fuzz.py --format npz --count 10000 --seed 1
    python tools/fuzz.py --count 2000                       # of each format

A small healthy file is changed at random (mutation i depends on the seed and i alone) and given
to the public readers in a process of its own, with limits on memory and time. Counted are files
that were accepted, refused clearly (a ValueError or OSError of one line), and anything else:
other exceptions, crashes, hangs, memory used up. Those are kept in ``--keep`` (default: fuzz/).
A changed "store" must give the rows that were written, if any. "problems" are fits of selectors
with extreme data and parameters: they must end in finite scores.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import importlib.metadata
import io
import json
import multiprocessing
import resource
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

MEMORY = 2 * 2**30  # of address space, beyond that of a healthy file
GROWTH = 2**30  # of memory that is in use
SECONDS = 30.0
NAMES = ["ant", "bee", "cat", "dog"]
RNG = np.random.default_rng(0)
X, CODES = RNG.normal(size=(12, 5)), np.arange(12) % 4
KINDS = np.array(NAMES)[CODES]


# ---- healthy files, and who reads them -----------------------------------------------------


def frame() -> Any:
    import pandas

    columns = [f"g{j}" for j in range(X.shape[1])]
    return pandas.DataFrame(X, columns=columns).assign(kind=KINDS)


def table() -> Any:
    return frame().iloc[:4, :3].set_axis(NAMES)


def data_set(save: Callable, path: Path, **arrays: Any) -> None:
    save(path, **({"X": X, "y": CODES, "A": X[:4, :2], "classes": NAMES} | arrays))


def sparse_set(path: Path) -> None:
    import scipy.sparse as sp

    S = sp.csr_array(np.maximum(X, 0))
    parts = {"X_data": S.data, "X_indices": S.indices, "X_indptr": S.indptr, "X_shape": S.shape}
    np.savez(path, y=KINDS, A=X[:4, :2], classes=NAMES, **parts)


def cells(path: Path, form: Callable) -> None:
    import anndata
    import h5py
    import pandas

    data = anndata.AnnData(
        form(np.maximum(X, 0)), frame()[["kind"]].set_axis(map(str, range(12)))
    )
    data.obs["kind"] = pandas.Categorical(data.obs["kind"])
    data.write_h5ad(path.with_suffix(".full"))
    with h5py.File(path.with_suffix(".full")) as full, h5py.File(path, "w") as small:
        for name in ("X", "obs", "var"):  # what is read; the other groups are empty
            full.copy(name, small)


def hdf5(path: Path, userblock_size: int = 0, **options: Any) -> None:
    import h5py

    with h5py.File(path, "w", userblock_size=userblock_size) as file:
        file.create_dataset("X", data=X, **options)
        file["y"] = KINDS.astype(object)


def mat(path: Path, compressed: bool) -> None:
    from scipy.io import savemat

    savemat(
        path, {"features": X, "names": np.array(NAMES, dtype=object)}, do_compression=compressed
    )


def selector(path: Path, **options: Any) -> None:
    import semfs

    semfs.save(
        semfs.SemFS(2, attributes=table(), **options).fit(frame().iloc[:, :5], KINDS), path
    )


def filled(run: Path | None) -> Any:
    """A store with six results of a run, a failure and a note."""
    from semfs.lab import Job, Result, Store

    store = Store(run)
    for i in range(7):
        job = Job("toy", "numbers", "given", "square", {"i": i})
        if i < 6:
            scores = {k: {"acc": (i / 3, 0.1), "nmi": (i / 7, 0.0)} for k in (5, 20)}
            store.finish(job, Result(scores, 0.5, ["a", "b"]), {"semfs": "1"})
        else:
            store.fail(job, "ValueError: no")
    store.set_info("command", "semfs")
    return store


def contents(store: Any) -> tuple:
    return store.rows(), store.failures(), store.info()


def seeds() -> dict[str, tuple[str, list[Callable[[Path], Any]]]]:
    """Ending and writers of healthy files of each format."""
    import scipy.sparse as sp

    def parquet(path: Path) -> None:
        frame().to_parquet(path, row_group_size=5)

    return {
        "npz": (".npz", [lambda p: data_set(np.savez, p), sparse_set,
                         lambda p: data_set(np.savez_compressed, p, y=KINDS)]),
        "npy": (".npy", [lambda p: np.save(p, X), lambda p: np.save(p, X.T.astype("f2").T)]),
        "csv": (".csv", [lambda p: frame().to_csv(p), lambda p: frame().to_csv(p, sep=";")]),
        "table": (".csv", [lambda p: table().to_csv(p)]),
        "xlsx": (".xlsx", [lambda p: table().to_excel(p)]),
        "parquet": (".parquet", [parquet, lambda p: frame().to_parquet(p, compression=None)]),
        "feather": (".feather", [lambda p: frame().to_feather(p),
                                 lambda p: frame().to_feather(p, compression="uncompressed")]),
        "h5ad": (".h5ad", [lambda p: cells(p, np.asarray), lambda p: cells(p, sp.csr_matrix),
                           lambda p: cells(p, sp.csc_matrix)]),
        "h5": (".h5", [hdf5, lambda p: hdf5(p, chunks=(5, 2), compression="gzip")]),
        "mat": (".mat", [lambda p: mat(p, True), lambda p: mat(p, False)]),
        "mat73": (".mat", [lambda p: hdf5(p, 512), lambda p: hdf5(p, 512, chunks=(5, 2))]),
        "selector": (".npz", [selector, lambda p: selector(p, solver="alternating")]),
        "store": (".sqlite", [lambda p: filled(p.parent).close()]),
        "problems": (".txt", [lambda p: p.write_text("0 0")]),
    }  # fmt: skip


def read(kind: str, path: Path) -> None:
    """Hand a file to everything public that reads this format."""
    import semfs
    from semfs.attributes import read_attributes
    from semfs.datasets import load_npz, read_features
    from semfs.lab import Store
    from semfs.rows import open_blocks

    if kind == "problems":
        seed, i = map(int, path.read_text().split())
        fit(np.random.default_rng([seed, i]))
    elif kind == "store":
        with contextlib.closing(Store(path.parent, create=False)) as store:
            if contents(store) != contents(filled(None)):
                raise AssertionError("the store has something else than was written")
    elif kind == "selector":
        semfs.load(path).get_support()
    elif kind in ("xlsx", "table"):
        read_attributes(path)
    elif kind in ("mat", "mat73"):
        read_features(path)
    else:
        y = {"npz": "y", "npy": KINDS, "h5": "y"}.get(kind, "kind")
        source = open_blocks(path, y)
        if source.fits_in_memory:
            source.load()
        for _ in source.blocks():
            pass
        if kind == "npz":
            load_npz(path)


# ---- problems ------------------------------------------------------------------------------

SIZES = [1e-160, 1e-8, 1e-3, 1.0, 1e3, 1e8, 1e160]
NUMBERS = ["alpha", "gamma", "label_weight", "heat_width", "lambda0", "lambda1", "lambda2"]
NUMBERS += ["lambda3", "lam", "learning_rate", "huber_delta"]
OPTIONS: dict[str, list[Any]] = dict.fromkeys(NUMBERS, SIZES) | {
    "attributes": SIZES,
    "penalty_scale": ["none"],
    "solver": ["alternating"],
    "class_weight": [None],
    "fit_intercept": [False],
    "step": ["exact", 1e-3],
    "n_inner": [3],
    "n_swaps": [2],
    "cv": [2],
    "n_repeats": [1],
    "n_components": [1, 20],
    "n_neighbors": [1, 50],
    "weight": ["binary"],
    "ratio": [1e-9, 0.5, 0.99],
    "inner": ["reference"],
    "rho": [1.0, 2.0, 1e160],
    "max_samples": [2, 5],
    "penalty": ["l21"],
    "standardize": [False],
    "tol": [0.0, 1e-4],
    "init": ["ridge", "random"],
    "kernel": ["exp"],
    "loss": ["mae", "huber", "ce"],
    "batch_size": [2, 4],
}


def random_selector(rng: np.random.Generator, n_classes: int) -> Any:
    """A selector with some parameters far from their defaults."""
    from semfs import SemFS, SemFSCV, baselines

    others = [getattr(baselines, name) for name in baselines.__all__]
    kinds = [SemFS] * len(others) + [SemFSCV] * 2 + others
    selector = kinds[rng.integers(len(kinds))](int(rng.integers(1, 8)))
    known = selector.get_params()
    chosen = {n: v for n, v in OPTIONS.items() if n in known and rng.random() < 0.3}
    chosen = {n: v[rng.integers(len(v))] for n, v in chosen.items()}
    if "attributes" in chosen:
        table = rng.normal(size=(n_classes + rng.integers(3), rng.integers(1, 4)))
        chosen["attributes"] *= table * (rng.random() > 0.1)
    if "max_iter" in known:
        chosen["max_iter"] = int(rng.choice([1, 5, 30]))
    return selector.set_params(**chosen)


def random_data(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """X and y with constant columns, duplicate rows, tiny classes, any scale."""
    n, d = rng.choice([1, 2, 3, 5, 7, 10, 15, 30]), rng.integers(1, 12)
    X = rng.normal(size=(n, d)) if rng.random() < 0.6 else rng.integers(-2, 3, (n, d)) * 1.0
    X *= 10.0 ** rng.choice([0, 0, rng.uniform(-9, 9), rng.uniform(-160, 160)])
    X *= 10.0 ** (rng.uniform(-150, 150, d) * (rng.random() < 0.2))
    X += 10.0 ** rng.uniform(-5, 15) * (rng.random() < 0.2)
    X[:, rng.random(d) < rng.choice([0.0, 0.0, 0.3, 1.0])] = rng.normal()
    X = X[rng.integers(n, size=n)] if rng.random() < 0.3 else X
    if rng.random() < 0.05:
        X[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    if np.abs(X).max() < 1e35 and rng.random() < 0.3:
        X = X.astype(np.float32)
    y = rng.integers(rng.integers(1, n + 1), size=n)
    return X, np.where(rng.random(n) < 0.2, -1, y) if rng.random() < 0.1 else y


def fit(rng: np.random.Generator) -> None:
    """Fit a random problem; what it learned must be finite, and an order of the features."""
    X, y = random_data(rng)
    selector = random_selector(rng, int(y.max()) + 1).fit(X, y)
    scores = selector.scores_
    found = {k: v for k, v in vars(selector).items() if k.endswith("_") and k != "scores_"}
    numbers = {k: v for k, v in found.items() if isinstance(v, (float, np.ndarray))}
    broken = [k for k, v in numbers.items() if np.asarray(v).dtype.kind == "f"
              and k not in UNDEFINED and not np.isfinite(v).all()]  # fmt: skip
    if not np.isfinite(scores[~np.isneginf(scores)]).all() or broken:
        raise AssertionError(f"{selector} has {broken or 'scores_'} that are not finite")
    if sorted(selector.order_.tolist()) != list(range(X.shape[1])):
        raise AssertionError(f"{selector} has the order {selector.order_.tolist()}")


UNDEFINED = {"best_score_", "target_r2_"}  # nan without folds, or targets

# ---- damage ----------------------------------------------------------------------------------

HUGE = [0, 1, 2**31 - 1, 2**32 - 1, 2**40, 2**62, 2**63, 2**64 - 1]
TEXTS = [b"9" * 19, b"-1", b"1e999", b"NaN", b"{}", b'"', b"\n", b",,,,", b"\x00", b"\xff\xfe"]


def damaged(content: bytes, rng: np.random.Generator) -> bytes:
    """Content with one to three things changed, anywhere."""
    data = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        at, length = int(rng.integers(len(data) + 1)), int(rng.integers(1, 17))
        change = rng.integers(7)
        if change == 0:
            for place in rng.integers(len(data) + 1, size=length) - 1:
                data[place : place + 1] = rng.bytes(1)
        elif change == 1:
            data[at : at + length] = rng.bytes(length)
        elif change == 2:
            del data[at : at + length * int(rng.integers(1, 64))]
        elif change == 3:
            data[at:at] = data[at : at + 64 * length]
        elif change == 4:
            size = int(rng.choice([1, 2, 4, 8]))
            number = int(rng.choice(np.array(HUGE, dtype=object))) % 2 ** (8 * size)
            order: Any = ["little", "big"][rng.integers(2)]
            data[at : at + size] = number.to_bytes(size, order)
        elif change == 5:
            text = TEXTS[rng.integers(len(TEXTS))]
            digits = [i for i, byte in enumerate(data) if 48 <= byte <= 57]
            at = digits[rng.integers(len(digits))] if digits and rng.integers(2) else at
            data[at : at + int(rng.integers(3))] = text
        else:
            del data[at:]
    return bytes(data)


def damaged_member(content: bytes, rng: np.random.Generator) -> bytes:
    """A zip archive in which one member is damaged, with the right checksum."""
    out = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(out, "w") as new:
        victim = rng.integers(len(old.infolist()))
        for place, item in enumerate(old.infolist()):
            member = old.read(item)
            member = damaged(member, rng) if place == victim else member
            new.writestr(item.filename, member, item.compress_type)
    return out.getvalue()


def mutation(kind: str, healthy: list[bytes], seed: int, i: int) -> bytes:
    if kind == "problems":
        return f"{seed} {i}".encode()
    rng = np.random.default_rng([seed, i])
    found = content = healthy[rng.integers(len(healthy))]
    while found == content:
        inside = content.startswith(b"PK") and rng.integers(4)
        found = damaged_member(content, rng) if inside else damaged(content, rng)
    return found


# ---- processes -------------------------------------------------------------------------------


def verdict(kind: str, path: Path) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(kind, path)
    except (ValueError, OSError) as error:
        message = str(error)
        line, *rest = message.splitlines() or [""]
        clear = len(line) > 20 and (not rest or line.startswith("Input X contains"))
        clear = clear and len(message) < 1000 and (kind != "store" or str(path) in message)
        return ("refused" if clear else "other"), f"{type(error).__name__}: {message}"
    except BaseException as error:
        return "other", f"{type(error).__name__}: {error}"
    return "accepted", ""


def work(
    kind: str, path: Path, healthy: list[bytes], seed: int, span: range, pipe: Any
) -> None:
    """Try some mutations as this file; the parent hears of each."""
    from semfs.io import probe

    probe.SECONDS = 0.5  # these files are small
    importlib.metadata.version = functools.cache(importlib.metadata.version)  # AnnData asks
    path.write_bytes(healthy[0])
    verdict(kind, path)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in span:
        path.write_bytes(mutation(kind, healthy, seed, i))
        found = verdict(kind, path)
        if 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) > GROWTH:
            found = ("other", "the process died (of memory)")
        pipe.send((i, *found))


def fuzz(kind: str, count: int, seed: int, keep: Path, folder: Path) -> dict[str, int]:
    """Try ``count`` mutations of a format and return how many ended how."""
    suffix, writers = seeds()[kind]
    healthy = []
    for i, write in enumerate(writers):
        path = folder / f"{kind}{i}" / f"results{suffix}"
        path.parent.mkdir()
        write(path)
        if kind != "problems":
            read(kind, path)  # imports what it needs, before there are processes
        healthy.append(path.read_bytes())
    counts, done = {"accepted": 0, "refused": 0, "other": 0}, 0
    processes = multiprocessing.get_context("fork")
    while done < count:
        mine, theirs = processes.Pipe(duplex=False)
        arguments = (kind, path, healthy, seed, range(done, count), theirs)
        worker = processes.Process(target=work, args=arguments, daemon=True)
        worker.start()
        theirs.close()
        while done < count:
            try:
                found = mine.recv() if mine.poll(SECONDS) else (done, "other", "no answer")
            except EOFError:
                worker.join()
                found = (done, "other", f"the process died ({worker.exitcode})")
            i, how, message = found
            counts[how] += 1
            done = i + 1
            if how == "other":
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{kind}-{seed}-{i}{suffix}").write_bytes(
                    mutation(kind, healthy, seed, i)
                )
                print(f"{kind} seed {seed} number {i}: {message[:400]}", file=sys.stderr)
            if message == "no answer" or message.startswith("the process died"):
                break
        worker.kill()
        worker.join()
    return counts


def add_to(out: Path, kind: str, seed: int, counts: dict[str, int]) -> None:
    """Write counts into a results file, by format and seed."""
    found = json.loads(out.read_text()) if out.exists() else {}
    found["command"] = "python tools/fuzz.py --format FORMAT --seed SEED --count TRIED"
    now = {"tried": sum(counts.values()), **counts, "date": f"{date.today()}"}
    found.setdefault("formats", {}).setdefault(kind, {})[str(seed)] = now
    out.write_text(json.dumps(found, indent=1) + "\n")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=[*seeds(), "all"], default="all")
    parser.add_argument("--count", type=int, default=1000, help="files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz"), help="folder for offenders")
    parser.add_argument("--out", type=Path, help="results file, to which the counts are added")
    options = parser.parse_args()
    others = 0
    for kind in seeds() if options.format == "all" else [options.format]:
        with tempfile.TemporaryDirectory(prefix="semfs-fuzz-") as folder:
            counts = fuzz(kind, options.count, options.seed, options.keep, Path(folder))
        others += counts["other"]
        print(
            f"{kind}, seed {options.seed}: {sum(counts.values())} tried, "
            f"{counts['accepted']} accepted, {counts['refused']} refused clearly, "
            f"{counts['other']} anything else",
            flush=True,
        )
        if options.out:
            add_to(options.out, kind, options.seed, counts)
    return int(others > 0)


if __name__ == "__main__":
    sys.exit(main())
