"""Jobs, the units of an experiment, and the store of their results: one SQLite file per run.

A run may be killed at any moment, and several processes may share a run directory:

- A result is committed in one transaction, so it is stored whole or not at all.
- Every record has a checksum, and the file holds the number of records, so a damaged record
  is never read as a result.
- A job under way is a locked byte of a second file. The operating system releases the lock
  when the process ends, however it ends.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import IO, Any, Self, TypeAlias

from semfs._typing import PathLike

FILE_NAME = "results.sqlite"
LOCK_FILE_NAME = "results.lock"

#: Measures of a clustering, in the order of tables and figures.
SCORE_NAMES = ("acc", "nmi")

#: Seconds to wait for another process that writes to the database. A commit takes
#: milliseconds; a minute allows for a slow disk and many processes.
BUSY_SECONDS = 60.0

#: Characters of SQLite's own message, and of a value, that an error message quotes.
QUOTED_MESSAGE = 200
QUOTED_VALUE = 60

_SCHEMA = (
    "CREATE TABLE IF NOT EXISTS records"
    " (name TEXT PRIMARY KEY, kind TEXT, value TEXT, time TEXT, checksum TEXT)"
)
_SELECT_RECORDS = "SELECT name, kind, value, time, checksum FROM records ORDER BY rowid"
_SELECT_DONE = "SELECT 1 FROM records WHERE name = ? AND kind = 'done'"
_INSERT_RECORD = "INSERT OR REPLACE INTO records VALUES (?, ?, ?, ?, ?)"

#: One flat dict, as reports and tables read it.
Row: TypeAlias = dict[str, Any]
#: A line of the database: name, kind ("done", "failed" or "info"), value, time, checksum.
Record: TypeAlias = tuple[Any, ...]


class StoreError(OSError):
    """The store cannot be read or written."""


class DamagedStore(StoreError):
    """The store does not hold what was written, or is not a store; see `Store.salvage`."""


@dataclass(frozen=True, eq=False)
class Job:
    """One fit of one method, identified by everything that determines its results.

    Parameters
    ----------
    experiment, dataset, split, method : str
        Names of the experiment, the data set, the class split and the method.
    params : mapping
        Parameters of the method, as JSON values.
    setting : mapping
        Other settings that the experiment varies, for example ``{"ratio": 0.1}``.
    seed : int
        Seed of all random draws.
    label : str
        Name of the method in tables and figures. The default is ``method``.
    """

    # The key of a job hashes these fields: renaming one would orphan all stored results.
    experiment: str
    dataset: str
    split: str
    method: str
    # Values that JSON can hold, so that the same job has the same key in every process.
    params: Mapping[str, Any] = field(default_factory=dict)
    setting: Mapping[str, Any] = field(default_factory=dict)
    seed: int = 0
    label: str = ""

    @cached_property
    def key(self) -> str:
        """Hash of the identifying values, which names the record of the job in the store."""
        return _checksum(_as_json(asdict(self)))

    @property
    def columns(self) -> Row:
        """The columns of a row or failure that describe the job."""
        return {
            "experiment": self.experiment,
            "dataset": self.dataset,
            "split": self.split,
            "method": self.method,
            "label": self.label or self.method,
            "params": {**self.params, **self.setting},
            "seed": self.seed,
        }


@dataclass(frozen=True)
class Result:
    """Result of a job.

    Parameters
    ----------
    scores : mapping
        Scores for each number of features k, as
        ``scores[k][measure] = (mean, standard deviation)``. It is empty if nothing was
        clustered.
    seconds : float
        Time of the fit.
    features : sequence of str
        Names of the selected features, best first.
    extra : mapping
        Further JSON values. ``features_by_k`` holds the features for each k if the features for
        a smaller k are not the first features for a larger k. ``recalls`` holds the recall of
        each class by zero-shot prediction, and the ``k`` of this prediction. ``sources`` holds
        digests of the files of a user's selector.
    """

    scores: Mapping[int, Mapping[str, tuple[float, float]]]
    seconds: float
    features: Sequence[str] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)


class Store:
    """Store of the results of a run, in a run directory or in memory.

    Parameters
    ----------
    run : path or None
        Run directory, in which ``results.sqlite`` holds the results. None keeps them in memory.
    create : bool, default=True
        Whether to create the directory and the file if they do not exist. If false, a missing
        file raises an error.

    Examples
    --------
    >>> store = Store(None)
    >>> job = Job("alpha", "sample", "given", "semfs", label="SemFS")
    >>> store.finish(job, Result({5: {"acc": (0.5, 0.1), "nmi": (0.4, 0.1)}}, seconds=0.2))
    >>> [(row["label"], row["k"], row["acc"]) for row in store.rows()]
    [('SemFS', 5, 0.5)]
    """

    def __init__(self, run: PathLike | None = None, *, create: bool = True) -> None:
        self.path = None if run is None else Path(run) / FILE_NAME
        self._locks: IO[bytes] | None = None
        if self.path is not None:
            self._check_path(self.path, create)
        with self._errors():
            self._db = _connect(str(self.path or ":memory:"))
            self._initialize()

    @staticmethod
    def _check_path(path: Path, create: bool) -> None:
        """Make the run directory, or check that it holds results."""
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.is_file() or path.stat().st_size == 0:
            raise ValueError(
                f"{path} is missing or empty, so this is not a run "
                "directory or nothing has been computed yet. Make a run "
                "directory with: semfs reproduce clustering --out "
                f"{path.parent}"
            )

    def _initialize(self) -> None:
        """Create the table in a new file; check the pages of an old one."""
        # A file without pages is one that SQLite has just created.
        n_pages = self._db.execute("PRAGMA page_count").fetchone()[0]
        if n_pages == 0:
            self._db.execute(_SCHEMA)
            return
        message = self._db.execute("PRAGMA integrity_check").fetchone()[0]
        if message != "ok":
            raise self._damaged(message)

    @classmethod
    def salvage(cls, run: PathLike, into: PathLike | None = None) -> Self:
        """Return a new store with the intact records of a damaged store.

        The damaged store is not changed. ``into`` is a new run directory, with which the run
        can be continued, or None for a store in memory. If no record is intact, an error is
        raised and nothing is written.
        """
        # Never write into a run that has results.
        if into is not None and (Path(into) / FILE_NAME).exists():
            raise ValueError(f"{into} already has a {FILE_NAME}. Choose a new directory.")
        path = Path(run).absolute() / FILE_NAME
        records = _intact_records(path)
        if not records:
            raise DamagedStore(
                f"{path} is damaged or not a semfs store, and none of its "
                "records is intact. Nothing was written. Give the "
                "directory of a run of `semfs reproduce`."
            )
        store = cls(into)
        for record in records:
            store._insert(record)
        return store

    def close(self) -> None:
        """Close the files and release the jobs that were claimed."""
        self._db.close()
        if self._locks is not None:
            self._locks.close()

    def claim(self, job: Job) -> bool:
        """Reserve a job for this process, or return False if another process has claimed it."""
        if self.path is None:
            return True
        # Opened late: a store that is only read leaves no lock file behind.
        if self._locks is None:
            self._locks = (self.path.parent / LOCK_FILE_NAME).open("ab")
        return _lock_byte(self._locks, _lock_position(job))

    def release(self, job: Job) -> None:
        """Release a job that was claimed."""
        if self._locks is not None:
            _unlock_byte(self._locks, _lock_position(job))

    def is_done(self, job: Job) -> bool:
        """Return whether the job has a result."""
        with self._errors():
            return self._db.execute(_SELECT_DONE, [job.key]).fetchone() is not None

    def finish(
        self,
        job: Job,
        result: Result,
        versions: Mapping[str, str] | None = None,
    ) -> None:
        """Commit the result of a job."""
        value = {
            "cell": asdict(job),  # the file format's name for a job, from earlier versions
            "result": asdict(result),
            "versions": versions or {},
        }
        self._put(job.key, "done", value)

    def fail(self, job: Job, error: str) -> None:
        """Record why a job failed, so that the next run tries it again."""
        self._put(job.key, "failed", {"cell": asdict(job), "error": error})

    def set_info(self, name: str, value: object) -> None:
        """Store a JSON value under a name."""
        self._put(name, "info", value)

    def pin(self, name: str, value: object, advice: str) -> None:
        """Store a value that must stay the same for all results of this run directory."""
        before = self.info().get(name)
        # The first run decides; later ones must agree.
        if before is None:
            self.set_info(name, value)
            return
        # Compared as JSON, because tuples come back as lists.
        if _as_json(before) != _as_json(value):
            differences = "; ".join(_differences(name, before, value))
            raise ValueError(f"{self.path} has other results: {differences}. {advice}")

    def rows(self) -> list[Row]:
        """Return one flat dict per finished job and number of features k, in stable order.

        The keys are experiment, dataset, split, method, label, params (with the setting of the
        experiment), k, acc, nmi, acc_sd, nmi_sd, seconds, seed, features, extra and
        semfs_version. A job without clustering scores gives one row in which k is None.
        """
        rows: list[Row] = []
        for job, value in self._values("done"):
            rows.extend(_rows_of(job, value))
        rows.sort(key=_row_order)
        return rows

    def extras(self, method: str) -> list[tuple[Job, Mapping[str, Any]]]:
        """Return the finished jobs of a method, each with the ``extra`` of its result."""
        return [
            (job, value["result"]["extra"])
            for job, value in self._values("done")
            if job.method == method
        ]

    def failures(self) -> list[Row]:
        """Return one dict per failed job, with the columns of the job and ``error``."""
        return [
            job.columns | {"error": value["error"]} for job, value in self._values("failed")
        ]

    def info(self) -> dict[str, Any]:
        """Return the facts about the run by name, such as command, started and datasets."""
        found = {}
        for name, kind, value, *_ in self._records():
            if kind == "info":
                found[name] = json.loads(value)
        return found

    def _values(
        self,
        wanted_kind: str,
    ) -> list[tuple[Job, dict[str, Any]]]:
        """Return the jobs of one kind of record, each with the value of its record."""
        found = []
        for _, kind, text, *_ in self._records():
            if kind == wanted_kind:
                value = json.loads(text)
                found.append((Job(**value["cell"]), value))
        return found

    def _records(self) -> list[Record]:
        """All records, after a check that none is missing or changed."""
        with self._errors(), self._db:
            # One transaction, so that count and records are of the same moment.
            self._db.execute("BEGIN")
            # user_version is a number in the file's header that SQLite leaves to applications.
            n_expected = self._db.execute("PRAGMA user_version").fetchone()[0]
            records = self._db.execute(_SELECT_RECORDS).fetchall()
        if len(records) != n_expected:
            raise self._damaged(f"it holds {len(records)} records instead of {n_expected}")
        n_changed = sum(not _is_intact(record) for record in records)
        if n_changed:
            raise self._damaged(f"{n_changed} of {len(records)} records were changed")
        return records

    def _put(self, name: str, kind: str, value: object) -> None:
        """Write a record, in place of one of the same name."""
        # The time is not used to sort or select; it tells when a result was computed.
        content = (name, kind, _as_json(value), datetime.now(UTC).isoformat())
        with self._errors():
            self._insert((*content, _checksum(repr(content))))

    def _insert(self, record: Record) -> None:
        """Write a record and the new number of records: both or neither."""
        with self._db:
            # IMMEDIATE takes the write lock before the count is read.
            self._db.execute("BEGIN IMMEDIATE")
            self._db.execute(_INSERT_RECORD, record)
            n_records = self._db.execute("SELECT count(*) FROM records").fetchone()[0]
            self._db.execute(f"PRAGMA user_version = {n_records}")

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into one sentence of advice."""
        try:
            yield
        except (sqlite3.Error, UnicodeError) as error:
            code = getattr(error, "sqlite_errorname", "")
            if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
                advice = (
                    "The disk is full or failing. Finished results are "
                    "safe. Free some space, and repeat the same command."
                )
            elif code.startswith(("SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_BUSY")):
                advice = "Check that the directory is writable and on a local disk."
            else:
                # Any other error comes from the contents of the file.
                raise self._damaged(str(error)) from error
            raise StoreError(f"{self.path}: {error}. {advice}") from error

    def _damaged(self, reason: str) -> DamagedStore:
        """Return the error for a file that is damaged or not ours, with what can be done."""
        run = None if self.path is None else self.path.parent
        reason = " ".join(reason.split())[:QUOTED_MESSAGE]
        return DamagedStore(
            f"{self.path} is damaged or not a semfs store ({reason}). "
            f"Save the intact records as a table with `semfs report {run} "
            "--csv FILE`, or as a new run directory with "
            f"semfs.lab.Store.salvage({str(run)!r}, NEW)."
        )


def _differences(name: str, before: object, now: object) -> list[str]:
    """Return what differs between two values, in words; of mappings, the entries that differ.

    >>> _differences("protocol", {"seed": 0, "fast": True}, {"seed": 1, "fast": True})
    ['seed was 0, is now 1']
    """
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        entries = {**before, **now}
        pairs = {entry: (before.get(entry), now.get(entry)) for entry in entries}
    else:
        pairs = {name: (before, now)}
    found = []
    for entry, values in pairs.items():
        text_before, text_now = (_as_json(value) for value in values)
        if text_before != text_now:
            found.append(f"{entry} was {_quoted(text_before)}, is now {_quoted(text_now)}")
    return found


def _quoted(text: str) -> str:
    """Return a value for a message; a long one with its end left out."""
    return text if len(text) <= QUOTED_VALUE else f"{text[:QUOTED_VALUE]}…"


def _rows_of(job: Job, value: Mapping[str, Any]) -> list[Row]:
    """Return the rows of one finished job, one per number of features k."""
    result = value["result"]
    extra = dict(result["extra"])
    features_by_k = extra.pop("features_by_k", {})
    recalls = extra.pop("recalls", {})
    common = job.columns | {
        "seconds": result["seconds"],
        "extra": extra,
        "semfs_version": value["versions"].get("semfs"),
    }
    scores_by_k = result["scores"]
    # Timings and fits without unseen samples have no scores, but a row all the same.
    if not scores_by_k:
        return [common | _score_columns(None, {}) | {"features": result["features"]}]
    rows = []
    for k, scores in scores_by_k.items():  # JSON has text as keys
        features = features_by_k.get(k) or result["features"][: int(k)]
        row = common | _score_columns(int(k), scores) | {"features": features}
        # Recalls of classes are those of one k.
        if recalls and recalls["k"] == int(k):
            row["extra"] = extra | {"recalls": recalls}
        rows.append(row)
    return rows


def _score_columns(
    k: int | None,
    scores: Mapping[str, Sequence[float]],
) -> Row:
    """Return the columns k, acc, acc_sd, nmi, nmi_sd, and those of further measures.

    None where there is no score.
    """
    columns: Row = {"k": k}
    for name in dict.fromkeys([*SCORE_NAMES, *scores]):
        mean, sd = scores.get(name, (None, None))
        columns[name] = mean
        columns[f"{name}_sd"] = sd
    return columns


def _row_order(row: Row) -> tuple[Any, ...]:
    """Sort key that depends on the contents of a row, not on when it was computed."""
    return (
        row["experiment"],
        row["dataset"],
        row["split"],
        row["method"],
        row["label"],
        _as_json(row["params"]),
        row["seed"],
        row["k"] or 0,
    )


def _intact_records(path: Path) -> list[Record]:
    """Return the records of a damaged file whose checksum is right.

    SQLite stops at the first page it cannot read, so we read from both ends.
    """
    found: dict[str, Record] = {}
    for order in ("ASC", "DESC"):
        with contextlib.suppress(sqlite3.Error, UnicodeError):
            source = _connect(f"{path.as_uri()}?mode=ro")
            with contextlib.closing(source):
                for record in source.execute(f"{_SELECT_RECORDS} {order}"):
                    if _is_intact(record):
                        found[record[0]] = record
    return list(found.values())


def _is_intact(record: Record) -> bool:
    """Return whether the checksum of a record is that of its contents."""
    *content, checksum = record
    return bool(checksum == _checksum(repr(tuple(content))))


def _connect(path: str) -> sqlite3.Connection:
    """Open a database in which every statement is a transaction unless we begin one."""
    db = sqlite3.connect(
        path,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        uri=True,
    )
    # Bytes that are not UTF-8 must reach the checksum, which then finds the damage.
    db.text_factory = lambda data: data.decode("utf-8", "replace")
    return db


def _as_json(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _checksum(text: str) -> str:
    """Return the first 96 bits of SHA-256, in hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def _lock_position(job: Job) -> int:
    """The byte of the lock file that stands for a job; 48 bits make collisions unlikely."""
    return int(job.key[:12], 16)


if os.name == "nt":
    import msvcrt

    def _lock_byte(file: IO[bytes], position: int) -> bool:
        """Lock one byte of a file; False if another process has locked it."""
        file.seek(position)
        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock_byte(file: IO[bytes], position: int) -> None:
        """Release a byte that this process has locked."""
        file.seek(position)
        with contextlib.suppress(BlockingIOError, PermissionError):
            msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)  # type: ignore[attr-defined]

else:
    import fcntl

    def _lock_byte(file: IO[bytes], position: int) -> bool:
        """Lock one byte of a file; False if another process has locked it."""
        try:
            # Bytes beyond the end of a file can be locked, too: the file stays empty.
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, position)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def _unlock_byte(file: IO[bytes], position: int) -> None:
        """Release a byte that this process has locked."""
        fcntl.lockf(file, fcntl.LOCK_UN, 1, position)
