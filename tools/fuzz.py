"""Damaged files of every format: each must be read, or refused in one clear line.

    python tools/fuzz.py --format npz --count 10000 --seed 1
    python tools/fuzz.py --count 2000                       # of each format

A small healthy file is changed at random (mutation i depends on the seed and i alone) and given
to the public readers in a process of its own, with limits on memory and time. Counted are files
that were accepted, refused clearly (a ValueError or OSError of one line), and anything else:
other exceptions, crashes, hangs, memory used up. Those are kept in ``--keep`` (default: fuzz/).
"""

from __future__ import annotations

import argparse
import io
import multiprocessing
import resource
import sys
import tempfile
import warnings
import zipfile
from collections.abc import Callable
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
    import pandas

    data = anndata.AnnData(
        form(np.maximum(X, 0)), frame()[["kind"]].set_axis(map(str, range(12)))
    )
    data.obs["kind"] = pandas.Categorical(data.obs["kind"])
    data.write_h5ad(path)


def hdf5(path: Path, **options: Any) -> None:
    import h5py

    with h5py.File(path, "w") as file:
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
        "selector": (".npz", [selector, lambda p: selector(p, solver="alternating")]),
    }  # fmt: skip


def read(kind: str, path: Path) -> None:
    """Hand a file to everything public that reads this format."""
    import semfs
    from semfs.attributes import read_attributes
    from semfs.datasets import load_npz, read_features
    from semfs.rows import open_blocks

    if kind == "selector":
        semfs.load(path).get_support()
    elif kind in ("xlsx", "table"):
        read_attributes(path)
    elif kind == "mat":
        read_features(path)
    else:
        y = {"npz": "y", "npy": KINDS, "h5": "y"}.get(kind, "kind")
        source = open_blocks(path, y)
        if source.fits:
            source.load()
        for _ in source.blocks():
            pass
        if kind == "npz":
            load_npz(path)


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


def mutation(healthy: list[bytes], seed: int, i: int) -> bytes:
    rng = np.random.default_rng([seed, i])
    content = healthy[rng.integers(len(healthy))]
    inside = content.startswith(b"PK") and rng.integers(4)
    return damaged_member(content, rng) if inside else damaged(content, rng)


# ---- processes -------------------------------------------------------------------------------


def verdict(kind: str, path: Path) -> tuple[str, str]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read(kind, path)
    except (ValueError, OSError) as error:
        message = str(error)
        clear = message.strip() and "\n" not in message and len(message) < 1000
        return ("refused" if clear else "other"), f"{type(error).__name__}: {message}"
    except BaseException as error:
        return "other", f"{type(error).__name__}: {error}"
    return "accepted", ""


def work(kind: str, healthy: list[bytes], seed: int, span: range, pipe: Any) -> None:
    """Try some mutations; the parent hears of each."""
    folder = Path(tempfile.mkdtemp(prefix="semfs-fuzz-"))
    path = folder / f"data{seeds()[kind][0]}"
    path.write_bytes(healthy[0])
    read(kind, path)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for i in span:
        path.write_bytes(mutation(healthy, seed, i))
        found = verdict(kind, path)
        if 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) > GROWTH:
            found = ("other", "the process died (of memory)")
        pipe.send((i, *found))
    path.unlink()
    folder.rmdir()


def fuzz(kind: str, count: int, seed: int, keep: Path) -> dict[str, int]:
    """Try ``count`` mutations of a format and return how many ended how."""
    suffix, writers = seeds()[kind]
    healthy = []
    with tempfile.TemporaryDirectory() as folder:
        for i, write in enumerate(writers):
            path = Path(folder) / f"{i}{suffix}"
            write(path)
            read(kind, path)
            healthy.append(path.read_bytes())
    counts, done = {"accepted": 0, "refused": 0, "other": 0}, 0
    processes = multiprocessing.get_context("fork")
    while done < count:
        mine, theirs = processes.Pipe(duplex=False)
        arguments = (kind, healthy, seed, range(done, count), theirs)
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
                (keep / f"{kind}-{seed}-{i}{suffix}").write_bytes(mutation(healthy, seed, i))
                print(f"{kind} seed {seed} number {i}: {message[:400]}", file=sys.stderr)
            if message == "no answer" or message.startswith("the process died"):
                break
        worker.kill()
        worker.join()
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--format", choices=[*seeds(), "all"], default="all")
    parser.add_argument("--count", type=int, default=1000, help="files of each format")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path("fuzz"), help="folder for offenders")
    options = parser.parse_args()
    others = 0
    for kind in seeds() if options.format == "all" else [options.format]:
        counts = fuzz(kind, options.count, options.seed, options.keep)
        others += counts["other"]
        print(
            f"{kind}: {sum(counts.values())} tried, {counts['accepted']} accepted, "
            f"{counts['refused']} refused clearly, {counts['other']} anything else",
            flush=True,
        )
    return int(others > 0)


if __name__ == "__main__":
    sys.exit(main())
