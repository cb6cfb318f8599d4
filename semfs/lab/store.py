"""Cells, the units of an experiment, and the store of their results: one SQLite file per run.

A result is committed in one transaction, so a run may be killed at any moment. Every record
carries a checksum: what was damaged is never read as a result. A cell under way is a locked
byte of the file beside it, so that processes can share a run; locks end with their process.
"""

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

FILE_NAME = "results.sqlite"
LOCKS = "results.lock"
_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS records"
    " (name TEXT PRIMARY KEY, kind TEXT, value TEXT, time TEXT, checksum TEXT)"
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

    ``params`` are the method's, as JSON values; ``setting`` is what the experiment varies
    besides, for example ``{"ratio": 0.1}``; ``label`` is shown instead of the method's name.
    """

    experiment: str
    dataset: str
    split: str
    method: str
    params: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of the identifying values."""
        return _checksum(_as_json(vars(self)))

    @property
    def place(self) -> Row:
        """What rows and failures say of the cell."""
        names = ("experiment", "dataset", "split", "method", "seed")
        own = {"label": self.label or self.method, "params": {**self.params, **self.setting}}
        return {name: getattr(self, name) for name in names} | own


@dataclass(frozen=True)
class Result:
    """What a cell yields: ``scores[k][metric] = (mean, sd)``, fit time, features by name."""

    scores: Mapping[int, Mapping[str, tuple[float, float]]]
    seconds: float
    features: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # features_by_k, if not nested


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
    >>> store, cell = Store(None), Cell("alpha", "sample", "given", "semfs", label="SemFS")
    >>> store.finish(cell, Result({5: {"acc": (0.5, 0.1), "nmi": (0.4, 0.1)}}, seconds=0.2))
    >>> [(row["label"], row["k"], row["acc"]) for row in store.rows()]
    [('SemFS', 5, 0.5)]
    """

    def __init__(self, run: Any = None, *, create: bool = True) -> None:
        self.path = None if run is None else Path(run) / FILE_NAME
        self._locks: Any = None
        if self.path is not None and create:
            self.path.parent.mkdir(parents=True, exist_ok=True)
        elif self.path is not None and not (self.path.is_file() and self.path.stat().st_size):
            raise ValueError(
                f"{self.path} is missing or empty: not a run directory, or nothing has been "
                f"computed yet. Make one with: semfs reproduce clustering --out {run}"
            )
        with self._errors():
            self._db = _connect(str(self.path or ":memory:"))
            if not self._db.execute("PRAGMA page_count").fetchone()[0]:
                self._db.execute(_SCHEMA)
            elif (found := self._db.execute("PRAGMA integrity_check").fetchone()[0]) != "ok":
                raise self._damaged(found)

    @classmethod
    def salvage(cls, run: Any, into: Any = None) -> Self:
        """Return a store of what is undamaged in a damaged one, which is left as it is.

        ``into`` is a new run directory, with which the run can be continued, or None: memory.
        """
        if into is not None and (Path(into) / FILE_NAME).exists():
            raise ValueError(f"{into} already has a {FILE_NAME}. Name a new directory.")
        found: dict[str, Record] = {}
        for order in ("ASC", "DESC"):  # from both ends up to what cannot be read
            with contextlib.suppress(sqlite3.Error, UnicodeError):
                source = _connect(f"{(Path(run).absolute() / FILE_NAME).as_uri()}?mode=ro")
                with contextlib.closing(source):
                    for record in source.execute(f"{_RECORDS} {order}"):
                        if record[-1] == _checksum(repr(record[:-1])):
                            found[record[0]] = record
        store = cls(into)
        for record in found.values():
            store._insert(record)
        return store

    def close(self) -> None:
        """Close the files; what was claimed is free."""
        self._db.close()
        if self._locks is not None:
            self._locks.close()

    def claim(self, cell: Cell) -> bool:
        """Reserve a cell for this process, until `release`; False if another one is at it."""
        if self.path is None:
            return True
        self._locks = self._locks or (self.path.parent / LOCKS).open("ab")
        return _lock(self._locks, int(cell.key[:12], 16))

    def release(self, cell: Cell) -> None:
        """Give back a cell that was claimed."""
        if self._locks is not None:
            _lock(self._locks, int(cell.key[:12], 16), release=True)

    def is_done(self, cell: Cell) -> bool:
        """Whether a cell is finished."""
        with self._errors():
            sql = "SELECT 1 FROM records WHERE name = ? AND kind = 'done'"
            return self._db.execute(sql, [cell.key]).fetchone() is not None

    def finish(self, cell: Cell, result: Result, versions: Mapping | None = None) -> None:
        """Commit a result."""
        value = {"cell": asdict(cell), "result": asdict(result), "versions": versions or {}}
        self._put(cell.key, "done", value)

    def fail(self, cell: Cell, error: str) -> None:
        """Record why a cell failed; the next run tries it again."""
        self._put(cell.key, "failed", {"cell": asdict(cell), "error": error})

    def set_info(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        self._put(name, "info", value)

    def pin(self, name: str, value: Any, advice: str) -> None:
        """Store a value that must stay the same for all results of this run directory."""
        now, before = _as_json(value), self.info().get(name)
        if before is None:
            self.set_info(name, value)
        elif _as_json(before) != now:
            raise ValueError(
                f"{self.path} was made with {name} = {_as_json(before)[:60]}, now it is "
                f"{now[:60]}. {advice}"
            )

    def rows(self) -> list[Row]:
        """Return one flat dict per finished cell and number of features k, in stable order.

        Keys: experiment, dataset, split, method, label, params (with the setting of the
        experiment), k, acc, nmi, acc_sd, nmi_sd, seconds, seed, features, extra,
        semfs_version. A cell without clustering scores gives one row whose k is None.
        """
        rows: list[Row] = []
        for cell, value in self._values("done"):
            result, version = value["result"], value["versions"].get("semfs")
            extra = dict(result["extra"])
            by_k = extra.pop("features_by_k", {})
            more = {"seconds": result["seconds"], "extra": extra, "semfs_version": version}
            for k, scores in result["scores"].items() or [(None, {})]:
                row = cell.place | more | {"k": None if k is None else int(k)}
                row["features"] = by_k.get(k) or result["features"][: row["k"]]
                for metric in ("acc", "nmi"):
                    row[metric], row[f"{metric}_sd"] = scores.get(metric, (None, None))
                rows.append(row)
        rows.sort(key=lambda row: (_as_json(row["params"]), row["seed"], row["k"] or 0))
        return sorted(rows, key=itemgetter("experiment", "dataset", "split", "method", "label"))

    def failures(self) -> list[Row]:
        """Return one dict per failed cell: its identity and ``error``."""
        found = self._values("failed")
        return [cell.place | {"error": value["error"]} for cell, value in found]

    def info(self) -> dict[str, Any]:
        """Return what is known of the run: command, started, datasets by name, …"""
        records = self._records()
        return {name: json.loads(value) for name, kind, value, *_ in records if kind == "info"}

    def _values(self, wanted: str) -> list[tuple[Cell, dict[str, Any]]]:
        values = [json.loads(value) for _, kind, value, *_ in self._records() if kind == wanted]
        return [(Cell(**value["cell"]), value) for value in values]

    def _records(self) -> list[Record]:
        """All records there should be, each checked against its checksum."""
        with self._errors(), self._db:
            self._db.execute("BEGIN")  # both are of the same moment
            expected = self._db.execute("PRAGMA user_version").fetchone()[0]
            records = self._db.execute(_RECORDS).fetchall()
        if len(records) != expected:
            raise self._damaged(f"{len(records)} of {expected} records are there")
        if bad := sum(record[-1] != _checksum(repr(record[:-1])) for record in records):
            raise self._damaged(f"{bad} of {len(records)} records are not what was written")
        return records

    def _put(self, name: str, kind: str, value: Any) -> None:
        record = (name, kind, _as_json(value), datetime.now(UTC).isoformat())
        with self._errors():
            self._insert((*record, _checksum(repr(record))))

    def _insert(self, record: Record) -> None:
        with self._db:  # a record, and how many there are: both or neither
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute("INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)", record)
            found = self._db.execute("SELECT count(*) FROM records").fetchone()[0]
            self._db.execute(f"PRAGMA user_version = {found}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into one sentence of advice."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            name = getattr(error, "sqlite_errorname", "")
            if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                advice = "The disk is full or failing; what was finished before is safe. "
                advice += "Free some space and give the same command again."
            elif name.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY")):
                advice = "Check that the directory can be written and is on a local disk."
            else:
                raise self._damaged(str(error)) from error
            raise StoreError(f"{self.path}: {error}. {advice}") from error

    def _damaged(self, found: str) -> DamagedStore:
        run, found = self.path.parent if self.path else None, " ".join(found.split())[:200]
        return DamagedStore(
            f"{self.path} is damaged or not a semfs store ({found}). Save "
            f"what is intact as a table with `semfs report {run} --csv FILE`, or as a new run "
            f"directory with semfs.lab.Store.salvage({str(run)!r}, NEW)."
        )


def _connect(path: str) -> sqlite3.Connection:
    """Open a database; every statement is a transaction."""
    db = sqlite3.connect(path, timeout=60.0, isolation_level=None, uri=True)
    db.text_factory = lambda data: data.decode("utf-8", "replace")  # checksums find it
    return db


def _as_json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _lock(file: Any, place: int, release: bool = False) -> bool:
    """Lock one byte of a file, or release it; False if another process has it."""
    try:
        if os.name == "nt":
            import msvcrt

            file.seek(place)
            how = msvcrt.LK_UNLCK if release else msvcrt.LK_NBLCK  # type: ignore[attr-defined]
            msvcrt.locking(file.fileno(), how, 1)  # type: ignore[attr-defined]
        else:
            import fcntl

            how = fcntl.LOCK_UN if release else fcntl.LOCK_EX | fcntl.LOCK_NB
            fcntl.lockf(file, how, 1, place)
    except (BlockingIOError, PermissionError):
        return False
    return True


def _checksum(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]
