"""Tasks on a Dask cluster: what workers compute, and how results are collected."""

from __future__ import annotations

import copy
import functools
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from semfs.arrays import as_matrix, batches
from semfs.io.sparse import array_reader
from semfs.labels import Labels
from semfs.rows.opening import source_of
from semfs.rows.plan import ReadPlan
from semfs.rows.threads import libraries
from semfs.system import import_optional

if TYPE_CHECKING:
    from semfs._typing import Floats, LabelsLike, Matrix
    from semfs.rows.blocks import BlockSource

#: Objects of Dask, which is imported only if it is used.
Delayed: TypeAlias = Any
Future: TypeAlias = Any
Client: TypeAlias = Any

# Sums of this many parts are added up by one task: few results wait for each other, and the
# tree is three levels deep for 64 parts.
FAN_IN = 4
# Seconds to wait for a scheduler to answer, and for any worker to come.
SCHEDULER_PATIENCE = 20.0
WORKER_PATIENCE = 60.0
# Seconds between looks at the workers.
POLL_SECONDS = 2.0
OUT_OF_MEMORY = (
    "Usually they ran out of memory. Use smaller chunks or workers with more memory, and read "
    "their logs."
)


class ClusterError(ConnectionError):
    """Raised if the cluster could not finish. The message says why and what to do."""


def call_chunk_method(
    X: Matrix,
    y: LabelsLike | Labels,
    weights: Floats | None,
    method: str,
    options: dict[str, Any],
) -> Any:
    """Return the contribution of a chunk of a Dask array, or None if it has no rows."""
    n = X.shape[0]
    # filtering may leave chunks without rows, which have no sums
    if not n:
        return None
    if weights is not None:
        weights = np.asarray(weights, dtype=np.float64).reshape(-1)
    reader = array_reader(as_matrix(X))
    # the chunk is in memory: it is one block
    plan = ReadPlan(block_rows=n)
    source = source_of(reader, Labels.of(y), weights, plan=plan)
    return call_method(source, method, options)


def call_method(
    source: BlockSource,
    method: str,
    options: dict[str, Any],
) -> Any:
    """Return the contribution of a part, with one BLAS thread as tasks run in parallel."""
    with libraries().limit(limits=1, user_api="blas"):
        return getattr(source, method)(**options)


def added(parts: Sequence[Any]) -> Any:
    """Return the sum of the contributions, or None if there are none."""
    found = [part for part in parts if part is not None]
    if len(found) <= 1:
        return found[0] if found else None
    # in a copy, because Dask may need the first one again
    total = copy.deepcopy(found[0])
    return functools.reduce(operator.iadd, found[1:], total)


# ---- computing ------------------------------------------------------------------------


def connect(
    address: str,
    *,
    seconds: float = SCHEDULER_PATIENCE,
) -> Client:
    """Return a client of the scheduler at an address such as ``tcp://host:8786``.

    Raise if there is no answer within ``seconds``.
    """
    distributed = import_optional("distributed", "dask", what="A cluster")
    try:
        # A client of a protocol that does not exist would stay Dask's scheduler.
        protocol, _ = distributed.comm.parse_address(address)
        distributed.comm.registry.get_backend(protocol)
        return distributed.Client(address, timeout=seconds)
    except (OSError, TimeoutError, ValueError) as error:
        reason = error or "timeout"
        raise ClusterError(
            f"no scheduler answers at {address} ({reason}). Start one with: dask scheduler"
        ) from error


def compute_list(tasks: list[Delayed], client: Client) -> list[Any]:
    """Return the results of tasks, in their order."""
    return compute(import_optional("dask").delayed(list)(tasks), client)


def compute(task: Delayed, client: Client) -> Any:
    """Return the result of a task, from a client or from the scheduler that Dask would use."""
    import dask

    if client is None:
        get = dask.base.get_scheduler(collections=[task])
        client = getattr(get, "__self__", None)  # a distributed.Client, if one is active
    if client is None or not hasattr(client, "compute"):
        return dask.compute(task)[0]
    return _wait_for(client, client.compute(task))


def _wait_for(client: Client, future: Future) -> Any:
    """Return the result of a future. Errors say what happened to the workers."""
    from distributed import KilledWorker, wait

    # workers that were lost are another case than workers that never came
    had_workers = bool(client.nthreads())
    seconds_alone = 0.0
    while True:
        try:
            wait(future, timeout=POLL_SECONDS)
            return future.result()
        except KilledWorker as error:
            last = getattr(error.last_worker, "address", error.last_worker)
            raise ClusterError(
                "the computation of a part of the data was given up "
                f"after its workers died {error.allowed_failures + 1} "
                f"times, the last one at {last}. {OUT_OF_MEMORY}"
            ) from None
        except TimeoutError:
            closed = client.status != "running"
        if closed or not client.nthreads():
            seconds_alone += POLL_SECONDS
        else:
            seconds_alone = 0.0
        if closed or seconds_alone >= WORKER_PATIENCE:
            future.cancel()
            advice = "Start workers with: dask worker SCHEDULER-ADDRESS"
            if had_workers:
                advice = OUT_OF_MEMORY
            raise ClusterError(
                f"the cluster has had no worker for {seconds_alone:.0f} s. {advice}"
            )


def sum_of(tasks: list[Delayed], client: Client) -> Any:
    """Return the sum of the results of tasks, added as a tree, or None if all are None."""
    add = import_optional("dask").delayed(added, pure=False)
    level = tasks
    while True:
        level = [add(level[group]) for group in batches(len(level), FAN_IN)]
        if len(level) == 1:
            return compute(level[0], client)
