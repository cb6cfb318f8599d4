"""What a fit beyond memory will cost: passes, bytes, memory and seconds, before it is run.

Rates are measured on this machine in about a second; the rest is arithmetic.
"""

from __future__ import annotations

import math
import os
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from semfs.rows.blocks import MEMORY, PRODUCT_BLOCK_BYTES, file_reader
from semfs.rows.cluster import FAN_IN
from semfs.rows.memory import column_products
from semfs.rows.passes import expected_fetches
from semfs.rows.readers import BLOCK_BYTES, RING, FileReader
from semfs.rows.sums import Accumulator

__all__ = ["Plan", "Rates", "Stage", "measure_rates", "plan", "shape_of"]

#: 10 Gbit/s, the usual network of a cluster.
NETWORK = 1.25e9
# Python, numpy, scipy and scikit-learn themselves.
INTERPRETER = 180e6


@dataclass(frozen=True)
class Rates:
    """Bytes per second, and multiplications per second of X'X (half of them by symmetry).

    ``products`` includes what else is done with a block when the d × d matrix is formed.
    """

    read: float
    sums: float
    columns: float
    products: float
    network: float = NETWORK


@dataclass(frozen=True)
class Stage:
    """One stage of a fit."""

    name: str
    passes: int
    bytes_read: float
    bytes_sent: float
    seconds: float


@dataclass(frozen=True)
class Plan:
    """The stages of a fit on a number of workers, and the memory one of them needs."""

    shape: tuple[int, int]
    passes: str
    workers: int
    stages: list[Stage]
    memory: float

    @property
    def seconds(self) -> float:
        """Time of all stages."""
        return sum(stage.seconds for stage in self.stages)


def plan(
    n: int,
    d: int,
    itemsize: int,
    k: int,
    rates: Rates,
    *,
    n_classes: int = 100,
    workers: int = 1,
    passes: str = "one",
) -> Plan:
    """Return the cost of choosing k of d features on n rows.

    Parameters
    ----------
    n, d, itemsize : int
        Rows, columns and bytes per number.
    k : int
        Features to select.
    rates : Rates
        Of one worker.
    n_classes : int, default=100
        Seen classes.
    workers : int, default=1
        Workers, each with these rates.
    passes : {"one", "few"}, default="one"
        One pass with the d × d matrix, or a few for Gram columns.

    Examples
    --------
    >>> rates = Rates(read=1e9, sums=4e9, columns=2e9, products=5e10)
    >>> cost = plan(10**8, 4096, 4, 50, rates, workers=16)
    >>> [stage.name for stage in cost.stages]
    ['scatter matrix', 'add up over workers', 'solve']
    >>> round(cost.seconds / 60)
    35
    """
    size = float(n) * d * itemsize
    solve = Stage("solve", 0, 0.0, 0.0, 8.0 * k * d * (0.5 * k + n_classes) / rates.sums)
    small = 8.0 * d * (3 * n_classes + 3 * k)
    if passes == "one":
        work = n * d * d / rates.products
        first = Stage("scatter matrix", 1, size, 0.0, max(size / rates.read, work) / workers)
        sent = 8.0 * d * d + 8.0 * n_classes * d
        memory = 8.0 * d * d + (RING + 1) * min(PRODUCT_BLOCK_BYTES, size) + small
        stages = [first]
    else:
        fetches = expected_fetches(k)
        light = max(size / rates.read, size / rates.sums) / workers
        heavy = max(size / rates.read, size / rates.columns) / workers
        sent = 8.0 * d * (n_classes + 64 * fetches)
        memory = (RING + 1) * min(BLOCK_BYTES, size) + small + 8.0 * d * 64 * fetches
        stages = [
            Stage("class means", 1, size, 0.0, light),
            Stage("Gram columns", fetches, fetches * size, 0.0, fetches * heavy),
        ]
    if workers > 1:
        levels = math.ceil(math.log(workers, FAN_IN))
        seconds = levels * (FAN_IN - 1) * sent / rates.network
        stages.append(Stage("add up over workers", 0, 0.0, (workers - 1) * sent, seconds))
    return Plan((n, d), passes, workers, [*stages, solve], INTERPRETER + memory)


def cheaper(n: int, d: int, itemsize: int, k: int, rates: Rates, **options: Any) -> Plan:
    """Return the cheaper of one pass and a few passes; without room for d × d, the latter."""
    few = plan(n, d, itemsize, k, rates, passes="few", **options)
    if 8 * d * d > MEMORY or n < d:
        return few
    return min(few, plan(n, d, itemsize, k, rates, **options), key=lambda p: p.seconds)


# ---- measuring ----------------------------------------------------------------------


def measure_rates(path: Any = None, *, d: int = 4096) -> Rates:
    """Measure this machine for one or two seconds; reading is measured on the file itself."""
    d = min(max(d, 256), 4096)
    rng = np.random.default_rng(0)
    X = rng.standard_normal((PRODUCT_BLOCK_BYTES // (4 * d), d), dtype=np.float32)
    labels, columns, mean = np.arange(len(X)) % 32, np.arange(48), np.zeros(d)
    light, heavy = Accumulator(d, matrix=False), Accumulator(d)
    return Rates(
        read=_read_rate(path),
        sums=X.nbytes / _best(lambda: light.add(X, labels)),
        columns=X.nbytes / _best(lambda: column_products(X, columns, mean, None)),
        products=len(X) * d * d / _best(lambda: heavy.add(X, labels)),
    )


def _best(function: Callable[[], Any], seconds: float = 0.25) -> float:
    begin, best = time.perf_counter(), math.inf
    while best is math.inf or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        function()
        best = min(best, time.perf_counter() - start)
    return best


def _read_rate(path: Any, limit: int = 128 * 2**20) -> float:
    """Bytes per second of the disk, past the page cache where the system allows it."""
    files = [Path(path)] if path else []
    if files and files[0].is_dir():
        files = sorted(f for f in files[0].rglob("*") if f.is_file())
    done, begin = 0, time.perf_counter()
    buffer = bytearray(2**23)
    for file in files:
        with file.open("rb", buffering=0) as stream:
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(stream.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            stream.seek(max(0, file.stat().st_size - limit) // 2)
            while done < limit and (got := stream.readinto(buffer)):
                done += got
    if done < 2**20:
        return 1e9  # too little to measure: a common solid-state disk
    return done / (time.perf_counter() - begin)


def shape_of(data: str) -> tuple[int, int, int]:
    """Return rows, columns and bytes per number of a file, or of a text such as 10000x512.

    Examples
    --------
    >>> shape_of("1e8x4096"), shape_of("400000x4096:float64")
    ((100000000, 4096, 4), (400000, 4096, 8))
    """
    text = re.fullmatch(r"([\d.e_]+)[x×,]([\d.e_]+)(?::(\w+))?", data.lower())
    if text and not Path(data).exists():
        n, d = (int(float(number.replace("_", ""))) for number in text.groups()[:2])
        return n, d, np.dtype(text[3] or "float32").itemsize
    reader = file_reader(Path(data))
    stored = reader.stored.itemsize if isinstance(reader, FileReader) else None
    assert reader.n_rows is not None
    return reader.n_rows, reader.n_features, stored or reader.dtype.itemsize
