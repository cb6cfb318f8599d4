"""Cells, the units of an experiment, and the store of their results: one SQLite file per run.

A process claims a cell before it computes it and commits the result in one transaction, so a
run may be killed at any moment and several processes may share a run directory. Every record
carries a checksum, and the file the sum of them all: what was damaged is never read as a
result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import socket
import sqlite3
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

__all__ = ["Cell", "DamagedStore", "Result", "Store", "StoreError", "result_rows"]

FILE_NAME = "results.sqlite"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # a claim without a heartbeat for so long belongs to a dead process
METRICS = ("acc", "nmi")

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS records"
    " (name TEXT PRIMARY KEY, kind TEXT, value TEXT, time TEXT, checksum TEXT)",
    "CREATE TABLE IF NOT EXISTS claims"
    " (key TEXT PRIMARY KEY, owner TEXT, host TEXT, pid INTEGER, beat REAL)",
)
_RECORDS = "SELECT name, kind, value, time, checksum FROM records ORDER BY rowid"

Row = dict[str, Any]
Record = tuple[Any, ...]  # name, kind ("done", "failed" or "info"), value, time, checksum


class StoreError(OSError):
    """The store cannot be read or written."""


class DamagedStore(StoreError):
    """The store holds something else than was written, or is none; see `Store.salvage`."""


@dataclass(frozen=True, eq=False)
class Cell:
    """One fit, identified by everything that decides its numbers.

    Parameters
    ----------
    experiment, dataset, split, method : str
    params : mapping
        Parameters of the method, as JSON values.
    setting : mapping
        What the experiment varies besides the method, for example ``{"ratio": 0.1}``.
    seed : int
    labels : sequence of str
        Names shown in tables and figures; they are not part of the identity.

    Examples
    --------
    >>> a = Cell("alpha", "sample", "given", "semfs", {"alpha": 1, "gamma": 0.5})
    >>> b = Cell("alpha", "sample", "given", "semfs", {"gamma": 0.5, "alpha": 1.0})
    >>> a.key == b.key
    True
    """

    experiment: str
    dataset: str
    split: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    labels: Sequence[str] = ()

    @cached_property
    def key(self) -> str:
        """Hash of the identifying values; 1 and 1.0, and any order of names, are the same."""
        names = ("experiment", "dataset", "split", "method", "params", "setting", "seed")
        identity = {name: _canonical(getattr(self, name)) for name in names}
        return _digest(_as_json(identity))


@dataclass(frozen=True)
class Result:
    """What a cell yields: ``scores[k][metric] = (mean, sd)``, fit time, features by name.

    ``extra["features_by_k"]`` names the features of each k where they are not nested.
    """

    scores: Mapping[int, Mapping[str, tuple[float, float]]]
    seconds: float
    features: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


def result_rows(cell: Cell, result: Result, version: str | None = None) -> list[Row]:
    """Return one flat dict per label of the cell and number of features k.

    Keys: experiment, dataset, split, method, label, params (with the setting of the
    experiment), k, acc, nmi, acc_sd, nmi_sd, seconds, seed, features, extra, semfs_version.
    A cell without clustering scores gives one row whose k is None.
    """
    extra = dict(result.extra)
    by_k = extra.pop("features_by_k", {})
    rows = []
    by_k_scores: list[tuple[int | None, Any]] = [*sorted(result.scores.items())]
    for label in cell.labels or [cell.method]:
        for k, scores in by_k_scores or [(None, {})]:
            row = _identity(cell) | {"label": label, "k": k, "seconds": result.seconds}
            for metric in METRICS:
                row[metric], row[f"{metric}_sd"] = scores.get(metric, (None, None))
            row["features"] = by_k.get(str(k)) or list(result.features[:k])
            rows.append(row | {"extra": extra, "semfs_version": version})
    return rows


class Store:
    """Results of a run directory (or of memory, for ``run=None``).

    Parameters
    ----------
    run : path or None
        Run directory; the results are in ``run/results.sqlite``.
    create : bool, default=True
        Make the directory and the file if they do not exist; otherwise that is an error.

    Examples
    --------
    >>> store, cell = Store(None), Cell("alpha", "sample", "given", "semfs", labels=["SemFS"])
    >>> store.claim(cell)
    True
    >>> store.finish(cell, Result({5: {"acc": (0.5, 0.1), "nmi": (0.4, 0.1)}}, seconds=0.2))
    True
    >>> [(row["label"], row["k"], row["acc"]) for row in store.rows()]
    [('SemFS', 5, 0.5)]
    """

    def __init__(self, run: Any = None, *, create: bool = True) -> None:
        self.path = None if run is None else Path(run) / FILE_NAME
        self.owner = uuid.uuid4().hex
        self.opened_at = _now()
        self._last_heartbeat = 0.0
        if self.path is not None and not create and not _has_bytes(self.path):
            raise ValueError(
                f"{run} has no {FILE_NAME}: it is not a run directory, or nothing has been "
                f"computed yet. Make one with: semfs reproduce clustering --out {run}"
            )
        if self.path is not None and create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        with self._errors():
            self._db = _connect(str(self.path or ":memory:"))
            if not self._db.execute("PRAGMA page_count").fetchone()[0]:
                with self._transaction():
                    for table in _SCHEMA:
                        self._db.execute(table)
            elif (found := self._db.execute("PRAGMA quick_check").fetchone()[0]) != "ok":
                raise self._damaged(found)

    @classmethod
    def salvage(cls, run: Any, into: Any = None) -> Store:
        """Return a store of what is undamaged in a damaged one, which is left as it is.

        Parameters
        ----------
        run : path
            Run directory with the damaged store.
        into : path, optional
            A new run directory, with which the run can be continued; by default memory.
        """
        if into is not None and (Path(into) / FILE_NAME).exists():
            raise ValueError(f"{into} already has a {FILE_NAME}. Name a new directory.")
        found: dict[str, Record] = {}
        for order in ("ASC", "DESC"):  # from both ends up to what cannot be read
            with contextlib.suppress(sqlite3.Error, UnicodeError):
                source = _connect(f"{(Path(run).absolute() / FILE_NAME).as_uri()}?mode=ro")
                with contextlib.closing(source):
                    for record in source.execute(f"{_RECORDS} {order}"):
                        if record[-1] == _checksum(record[:-1]):
                            found[record[0]] = record
        store = cls(into)
        with store._transaction():
            for name, kind, value, at, _ in found.values():
                store._put(name, kind, value, at)
        return store

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    # ---- writing ----------------------------------------------------------------------

    def claim(self, cell: Cell) -> bool:
        """Reserve a cell for this process; False if it is done or someone else's.

        A cell that failed since this store was opened is left alone: it is retried by the
        next run, not by this one.
        """
        with self._transaction():
            row = self._one("SELECT kind, time FROM records WHERE name = ?", cell.key)
            if row is not None and (row[0] == "done" or str(row[1]) >= self.opened_at):
                return False
            if cell.key in self.claimed():
                return False
            self._db.execute(
                "INSERT OR REPLACE INTO claims VALUES (?, ?, ?, ?, ?)",
                (cell.key, self.owner, socket.gethostname(), os.getpid(), time.time()),
            )
        return True

    def finish(
        self, cell: Cell, result: Result, versions: Mapping[str, str] | None = None
    ) -> bool:
        """Commit a result; False (and nothing written) if the claim was lost meanwhile."""
        value = {"cell": asdict(cell), "result": asdict(result), "versions": versions or {}}
        return self._commit(cell, "done", value)

    def fail(self, cell: Cell, error: str) -> None:
        """Record why a cell failed; the next run tries it again."""
        self._commit(cell, "failed", {"cell": asdict(cell), "error": error})

    def heartbeat(self) -> None:
        """Say that this process still works on what it has claimed; cheap to call often."""
        if time.time() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.time()
            with self._transaction():
                update = "UPDATE claims SET beat = ? WHERE owner = ?"
                self._db.execute(update, (self._last_heartbeat, self.owner))

    def release(self) -> None:
        """Give back what this process has claimed and not finished."""
        with self._transaction():
            self._db.execute("DELETE FROM claims WHERE owner = ?", (self.owner,))

    def force(self, cells: Iterable[Cell]) -> int:
        """Forget finished cells, so that they are computed again; return how many."""
        finished = {name for name, kind, *_ in self._records() if kind == "done"}
        keys = finished & {cell.key for cell in cells}
        with self._transaction():
            for key in keys:
                self._drop(key)
        return len(keys)

    def relabel(self, cells: Iterable[Cell]) -> None:
        """Give the cells already stored the labels they have now."""
        labels = {cell.key: list(cell.labels) for cell in cells}
        records = [record for record in self._records() if record[0] in labels]
        with self._transaction():
            for key, kind, text, at, _ in records:
                value = json.loads(text)
                if value["cell"]["labels"] != labels[key]:
                    value["cell"]["labels"] = labels[key]
                    self._put(key, kind, _as_json(value), at)

    def set_info(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        with self._transaction():
            self._put(name, "info", _as_json(value), _now())

    def pin(self, name: str, value: Any, advice: str) -> None:
        """Store a value that must stay the same for all results of this run directory."""
        now, before = _as_json(value), self.info().get(name)
        if before is None:
            self.set_info(name, value)
        elif _as_json(before) != now:
            raise ValueError(
                f"{self.path} was made with {name} = {_clip(_as_json(before))}, now it is "
                f"{_clip(now)}. {advice}"
            )

    # ---- reading ----------------------------------------------------------------------

    def statuses(self) -> dict[str, str]:
        """Return "done" or "failed" for each finished cell, by key."""
        return {name: kind for name, kind, *_ in self._records() if kind != "info"}

    def claimed(self) -> set[str]:
        """Return the keys of the cells that a living process is at."""
        with self._errors():
            rows = self._db.execute(
                "SELECT key, host, CAST(pid AS INTEGER) FROM claims WHERE beat > ?",
                (time.time() - STALE_SECONDS,),
            ).fetchall()
        here = socket.gethostname()
        return {key for key, host, pid in rows if host != here or _is_alive(pid)}

    def rows(self) -> list[Row]:
        """Return the rows of all finished cells (see `result_rows`), in stable order."""
        rows: list[Row] = []
        for cell, value in self._values("done"):
            scores = {int(k): found for k, found in value["result"]["scores"].items()}
            result = Result(**(value["result"] | {"scores": scores}))
            rows += result_rows(cell, result, value["versions"].get("semfs"))
        return sorted(rows, key=_row_order)

    def failures(self) -> list[Row]:
        """Return one dict per failed cell: its identity, ``label`` and ``error``."""
        return [
            _identity(cell) | {"label": [*cell.labels, cell.method][0], "error": value["error"]}
            for cell, value in self._values("failed")
        ]

    def info(self) -> dict[str, Any]:
        """Return what is known of the run: command, started, datasets by name, …"""
        records = self._records()
        return {name: json.loads(value) for name, kind, value, *_ in records if kind == "info"}

    def _values(self, wanted: str) -> list[tuple[Cell, dict[str, Any]]]:
        values = [json.loads(value) for _, kind, value, *_ in self._records() if kind == wanted]
        return [(Cell(**value["cell"]), value) for value in values]

    def _records(self) -> list[Record]:
        """All records, each checked against its checksum, and none of them missing."""
        with self._transaction("BEGIN"):
            records = self._db.execute(_RECORDS).fetchall()
            (seal,) = self._db.execute("PRAGMA user_version").fetchone()
        bad = sum(record[-1] != _checksum(record[:-1]) for record in records)
        if bad:
            raise self._damaged(f"{bad} of {len(records)} records are not what was written")
        for record in records:
            seal ^= _share(record[-1])
        if seal:
            raise self._damaged("records are missing")
        return records

    # ---- the database -----------------------------------------------------------------

    def _commit(self, cell: Cell, kind: str, value: Any) -> bool:
        with self._transaction():
            mine = "DELETE FROM claims WHERE key = ? AND owner = ?"
            if not self._db.execute(mine, (cell.key, self.owner)).rowcount:
                return False
            self._put(cell.key, kind, _as_json(value), _now())
        return True

    def _put(self, name: str, kind: str, value: str, at: str) -> None:
        self._drop(name)
        record = (name, kind, value, at)
        checksum = _checksum(record)
        self._db.execute("INSERT INTO records VALUES (?, ?, ?, ?, ?)", (*record, checksum))
        self._seal(checksum)

    def _drop(self, name: str) -> None:
        row = self._one("SELECT checksum FROM records WHERE name = ?", name)
        if row is not None:
            self._db.execute("DELETE FROM records WHERE name = ?", (name,))
            self._seal(row[0])

    def _seal(self, checksum: str) -> None:
        """Add a record to the sum of all, or take it away, in the file's own header."""
        (seal,) = self._db.execute("PRAGMA user_version").fetchone()
        self._db.execute(f"PRAGMA user_version = {seal ^ _share(checksum)}")

    def _one(self, sql: str, *values: Any) -> Any:
        return self._db.execute(sql, values).fetchone()

    @contextlib.contextmanager
    def _transaction(self, begin: str = "BEGIN IMMEDIATE") -> Iterator[None]:
        with self._errors():
            self._db.execute(begin)
            try:
                yield
                self._db.execute("COMMIT")
            except BaseException:  # Ctrl-C as well
                with contextlib.suppress(sqlite3.Error):  # a full disk has rolled back itself
                    self._db.execute("ROLLBACK")
                raise

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into one sentence of advice."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            raise self._explained(error) from error

    def _explained(self, error: Exception) -> StoreError:
        name, what = getattr(error, "sqlite_errorname", ""), f"{self.path}: {error}"
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return StoreError(
                f"{what}. The disk is full or failing; what was finished before is safe. "
                "Free some space and give the same command again."
            )
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY")):
            return StoreError(
                f"{what}. Check that the directory can be written and is on a local disk."
            )
        return self._damaged(str(error))

    def _damaged(self, found: str) -> DamagedStore:
        run = self.path.parent if self.path else None
        return DamagedStore(
            f"{self.path} is damaged or not a semfs store ({' '.join(found.split())}). Save "
            f"what is intact as a table with `semfs report {run} --csv FILE`, or as a new run "
            f"directory with semfs.lab.Store.salvage({str(run)!r}, NEW)."
        )


# ---- helpers --------------------------------------------------------------------------------


def _has_bytes(path: Path) -> bool:
    return path.is_file() and path.stat().st_size > 0


def _connect(path: str) -> sqlite3.Connection:
    """Open a database: transactions are begun explicitly, others wait for them."""
    uri = path.startswith("file:")
    db = sqlite3.connect(path, timeout=60.0, isolation_level=None, uri=uri)
    db.text_factory = lambda data: data.decode("utf-8", "replace")  # checksums find it
    return db


def _canonical(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(name): _canonical(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=_plain)


def _plain(value: Any) -> Any:
    """Numbers and arrays of NumPy, and other mappings, as JSON has them."""
    if isinstance(value, Mapping):
        return dict(value)
    return value.tolist() if hasattr(value, "tolist") else str(value)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _checksum(record: Record) -> str:
    return _digest(repr(record))


def _share(checksum: str) -> int:
    """What a record adds to the sum of all: 31 bits, combined by exclusive or."""
    return int(_digest(str(checksum))[:8], 16) & 0x7FFFFFFF


def _row_order(row: Row) -> tuple:
    names = ("experiment", "dataset", "split", "method", "label")
    place = -1 if row["k"] is None else row["k"]
    return (*(row[n] for n in names), _as_json(row["params"]), row["seed"], place)


def _identity(cell: Cell) -> Row:
    names = ("experiment", "dataset", "split", "method", "seed")
    values = {name: getattr(cell, name) for name in names}
    return values | {"params": {**cell.params, **cell.setting}}


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 would end it; the heartbeat must do
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def _clip(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
