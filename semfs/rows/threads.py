"""Threads for reading ahead and for sums, within the user's limits for BLAS."""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import numpy as np
from threadpoolctl import ThreadpoolController

from semfs.arrays import batches

Item = TypeVar("Item")
Result = TypeVar("Result")

# Elements of a matrix from which threads pay: they take longer to start than smaller sums.
PARALLEL_SIZE = 2**20
# Sums are limited by memory bandwidth, which this many threads use up.
MAX_SUM_THREADS = 8
NAME = "semfs-reader"
_END = object()


@functools.cache
def libraries() -> ThreadpoolController:
    """Return the native libraries that use threads. Finding them takes milliseconds."""
    return ThreadpoolController()


def n_threads() -> int:
    """Return how many threads BLAS may use, to respect limits set by the user."""
    limits = [pool["num_threads"] for pool in libraries().info() if pool["user_api"] == "blas"]
    return max(1, min([*limits, os.cpu_count() or 1]))


def in_threads(function: Callable[[slice], Result], n: int, size: int) -> list[Result]:
    """Call a function of slices that cover range(n), in threads if ``size`` is large enough."""
    workers = min(MAX_SUM_THREADS, n_threads()) if size >= PARALLEL_SIZE else 1
    step = max(1, -(-n // workers))

    def quiet(part: slice) -> Result:
        # callers look for values that are not finite, and name them
        with np.errstate(all="ignore"):
            return function(part)

    if workers == 1:
        # a thread takes longer to start than small sums do
        return [quiet(part) for part in batches(n, step)]
    with ThreadPoolExecutor(workers) as pool:
        return list(pool.map(quiet, batches(n, step)))


def each_in_threads(function: Callable[[Item], None], items: Iterable[Item]) -> None:
    """Call function(item) for all items, in as many threads as BLAS may use."""

    def quiet(item: Item) -> None:
        with np.errstate(all="ignore"):
            function(item)

    with ThreadPoolExecutor(min(MAX_SUM_THREADS, n_threads())) as pool:
        list(pool.map(quiet, items))


def map_ahead(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int
) -> Iterator[Result]:
    """Yield function(item) in order, while threads compute the next results.

    At most ``workers`` results are waiting at a time, which limits memory.
    """
    waiting: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(workers, thread_name_prefix=NAME) as pool:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) > workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def prefetch(items: Iterable[Item]) -> Iterator[Item]:
    """Yield the items, while a thread gets the next one."""
    iterator = iter(items)
    with ThreadPoolExecutor(1, thread_name_prefix=NAME) as pool:
        coming = pool.submit(next, iterator, _END)
        while (item := coming.result()) is not _END:
            coming = pool.submit(next, iterator, _END)
            yield item  # type: ignore[misc]  # next returns an item, or _END
