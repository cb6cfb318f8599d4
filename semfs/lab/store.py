"""The result store of a run: one SQLite file, one row per cell, nothing ever half-written.

A process
claims a cell before it computes it and commits the result in one transaction, so a run may
be killed at any moment, and several processes may share a run directory (on a local disk:
SQLite's write-ahead log needs shared memory).
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import socket
import sqlite3
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from pathlib import Path
from typing import Any

from semfs.lab.cells import Cell, Result, as_json

__all__ = ["Store", "StoreError"]

FILE_NAME = "results.sqlite"
HEARTBEAT_SECONDS = 5.0
STALE_SECONDS = 60.0  # a claim without a heartbeat for so long belongs to a dead process
ORACLE = " (oracle)"  # ending of the labels whose cells are the points of a grid

_SCHEMA = """
CREATE TABLE IF NOT EXISTS cells (
    key TEXT PRIMARY KEY, experiment TEXT, dataset TEXT, split TEXT, method TEXT,
    params TEXT, setting TEXT, seed INTEGER, labels TEXT,
    status TEXT, owner TEXT, pid INTEGER, host TEXT, heartbeat REAL, attempts INTEGER,
    seconds REAL, error TEXT, features TEXT, extra TEXT, versions TEXT, finished_at TEXT
);
CREATE TABLE IF NOT EXISTS scores (
    key TEXT, k INTEGER, metric TEXT, mean REAL, sd REAL, PRIMARY KEY (key, k, metric)
);
CREATE TABLE IF NOT EXISTS info (name TEXT PRIMARY KEY, value TEXT);
"""

_JSON_COLUMNS = ["params", "features", "extra"]
_COLUMNS = ["experiment", "dataset", "split", "method", "label", "k", "acc", "acc_sd", "nmi"]
_COLUMNS += ["nmi_sd", "seconds", "seed", *_JSON_COLUMNS, "semfs_version"]


_METRICS = ("acc", "nmi")
Scores = dict[
    int | None, dict[str, tuple[float | None, float | None]]
]  # k -> metric -> mean, sd


class StoreError(OSError):
    """The store cannot be read or written."""


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
    >>> from semfs.lab.cells import Cell, Result
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
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        self.opened_at = _now()
        self._last_heartbeat = 0.0
        if self.path is not None and not create and not self.path.is_file():
            raise ValueError(
                f"{run} has no {FILE_NAME}: it is not a run directory, or nothing has been "
                f"computed yet. Make one with: semfs reproduce clustering --out {run}"
            )
        with self._errors():
            if self.path is not None and create:
                self.path.parent.mkdir(parents=True, exist_ok=True)
            # Transactions are begun explicitly; others wait for them instead of failing.
            self._db = sqlite3.connect(
                str(self.path or ":memory:"), timeout=60.0, isolation_level=None
            )
            self._db.row_factory = sqlite3.Row
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=FULL")  # a power cut loses nothing committed
            if create:
                self._db.executescript(_SCHEMA)

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
            row = self._one("SELECT * FROM cells WHERE key = ?", cell.key)
            if row is not None and not self._is_free(row):
                return False
            self._db.execute(
                "INSERT INTO cells (key, experiment, dataset, split, method, params, setting,"
                " seed, labels, status, owner, pid, host, heartbeat, attempts)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, 'running', ?, ?, ?, ?, 1)"
                " ON CONFLICT (key) DO UPDATE SET labels = excluded.labels,"
                " status = 'running', owner = excluded.owner, pid = excluded.pid,"
                " host = excluded.host, heartbeat = excluded.heartbeat,"
                " attempts = attempts + 1",
                (cell.key, cell.experiment, cell.dataset, cell.split, cell.method)
                + (
                    as_json(cell.params),
                    as_json(cell.setting),
                    cell.seed,
                    as_json(list(cell.labels)),
                )
                + (self.owner, os.getpid(), socket.gethostname(), time.time()),
            )
        return True

    def finish(
        self, cell: Cell, result: Result, versions: Mapping[str, str] | None = None
    ) -> bool:
        """Commit a result; False (and nothing written) if the claim was lost meanwhile."""
        values = (result.seconds, as_json(list(result.features)), as_json(result.extra))
        with self._transaction():
            changed = self._db.execute(
                "UPDATE cells SET status = 'done', seconds = ?, features = ?, extra = ?,"
                " versions = ?, error = NULL, finished_at = ?"
                " WHERE key = ? AND status = 'running' AND owner = ?",
                (*values, as_json(versions or {}), _now(), cell.key, self.owner),
            ).rowcount
            if changed:
                self._db.execute("DELETE FROM scores WHERE key = ?", (cell.key,))
                self._db.executemany(
                    "INSERT INTO scores VALUES (?, ?, ?, ?, ?)",
                    [
                        (cell.key, int(k), metric, mean, sd)
                        for k, metrics in result.scores.items()
                        for metric, (mean, sd) in metrics.items()
                    ],
                )
        return bool(changed)

    def fail(self, cell: Cell, error: str, versions: Mapping[str, str] | None = None) -> None:
        """Record why a cell failed; the next run tries it again."""
        self._write(
            "UPDATE cells SET status = 'failed', error = ?, versions = ?, finished_at = ?"
            " WHERE key = ? AND status = 'running' AND owner = ?",
            (error, as_json(versions or {}), _now(), cell.key, self.owner),
        )

    def heartbeat(self) -> None:
        """Say that this process still works on what it has claimed; cheap to call often."""
        if time.time() - self._last_heartbeat >= HEARTBEAT_SECONDS:
            self._last_heartbeat = time.time()
            self._write(
                "UPDATE cells SET heartbeat = ? WHERE status = 'running' AND owner = ?",
                (self._last_heartbeat, self.owner),
            )

    def release(self) -> None:
        """Give back what this process has claimed and not finished."""
        self._write(
            "UPDATE cells SET status = 'interrupted' WHERE status = 'running' AND owner = ?",
            (self.owner,),
        )

    def force(self, cells: Iterable[Cell]) -> int:
        """Mark finished cells to be computed again; return how many were."""
        with self._transaction():
            return sum(
                self._db.execute(
                    "UPDATE cells SET status = 'stale' WHERE key = ? AND status = 'done'",
                    (cell.key,),
                ).rowcount
                for cell in cells
            )

    def relabel(self, cells: Iterable[Cell]) -> None:
        """Give the cells already stored the labels they have now."""
        stored = dict(self._db.execute("SELECT key, labels FROM cells").fetchall())
        news = [(as_json(list(c.labels)), c.key) for c in cells if c.key in stored]
        news = [(labels, key) for labels, key in news if stored[key] != labels]
        if news:
            with self._transaction():
                self._db.executemany("UPDATE cells SET labels = ? WHERE key = ?", news)

    def expect_grids(self, cells: Iterable[Cell]) -> None:
        """Note how many points each grid has: the best of a part of it is not an oracle's."""
        labels = {(c.dataset, c.split, c.key): c.labels for c in cells}
        counts = Counter(
            (dataset, split, label)
            for (dataset, split, _), names in labels.items()
            for label in names
            if label.endswith(ORACLE)
        )
        sizes = {label: n for (_, _, label), n in sorted(counts.items())}
        self.set_info("grid sizes", self.info().get("grid sizes", {}) | sizes)

    def set_info(self, name: str, value: Any) -> None:
        """Store a JSON value under a name."""
        self._write("INSERT OR REPLACE INTO info VALUES (?, ?)", (name, as_json(value)))

    def pin(self, name: str, value: Any, advice: str) -> None:
        """Store a value that must stay the same for all results of this run directory."""
        with self._transaction():
            row = self._one("SELECT value FROM info WHERE name = ?", name)
            if row is None:
                self._db.execute("INSERT INTO info VALUES (?, ?)", (name, as_json(value)))
        if row is not None and row["value"] != as_json(value):
            raise ValueError(
                f"{self.path} was made with {name} = {_clip(row['value'])}, now it is "
                f"{_clip(as_json(value))}. {advice}"
            )

    # ---- reading ----------------------------------------------------------------------

    def statuses(self) -> dict[str, str]:
        """Return the status of each cell by key."""
        with self._errors():
            return dict(self._db.execute("SELECT key, status FROM cells").fetchall())

    def rows(self, *, grid: bool = False) -> list[dict[str, Any]]:
        """Return one flat dict per finished cell and number of features k, in stable order.

        Keys: experiment, dataset, split, method, label, params (with the setting of the
        experiment), k, acc, nmi, acc_sd, nmi_sd, seconds, seed, features, extra,
        semfs_version. A cell without clustering scores gives one row whose k is None.

        Parameters
        ----------
        grid : bool, default=False
            How to show the points of a parameter grid, whose label ends in "(oracle)". By
            default as one row per k once the grid is complete (see `expect_grids`): the best
            mean of its points, for each metric separately (``params`` says which). True gives
            every point its own row.
        """
        scores = self._scores()
        done = self._select("WHERE status = 'done'")
        rows = [row for cell in done for row in _rows_of(cell, scores.get(cell["key"], {}))]
        points = [row for row in rows if row["label"].endswith(ORACLE)]
        if not grid:
            rows = [row for row in rows if not row["label"].endswith(ORACLE)]
            rows += self._oracles(points)
        return sorted(rows, key=_row_order)

    def _oracles(self, points: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The best of each complete grid; points that failed do not hold it up."""
        wanted: dict[str, int] = self.info().get("grid sizes", {})
        failed = Counter(_grid_of(row) for row in self.failures())
        groups: dict[tuple, list[dict[str, Any]]] = {}
        for row in points:
            groups.setdefault((*_grid_of(row), row["k"]), []).append(row)
        return [
            _best_of(group)
            for (*grid, _), group in groups.items()
            if len(group) + failed[tuple(grid)] >= wanted.get(group[0]["label"], 0)
        ]

    def failures(self) -> list[dict[str, Any]]:
        """Return one dict per failed cell: its identity, ``label`` and ``error``."""
        found = self._select("WHERE status = 'failed'")
        return [_identity(cell) | {"error": cell["error"]} for cell in found]

    def info(self) -> dict[str, Any]:
        """Return what is known of the run: command, started, datasets by name, …"""
        with self._errors():
            pairs = self._db.execute("SELECT name, value FROM info ORDER BY name").fetchall()
        values = {name: json.loads(value) for name, value in pairs}
        prefix = "dataset:"
        names = [name for name in values if name.startswith(prefix)]
        datasets = {name.removeprefix(prefix): values.pop(name) for name in names}
        return values | {"datasets": datasets}

    def to_csv(self, path: Any) -> None:
        """Write all finished rows, grid points included, as CSV; the file appears whole."""
        path = Path(path)
        beside = path.with_name(f".{path.name}.{os.getpid()}")
        try:
            with beside.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, _COLUMNS)
                writer.writeheader()
                for row in self.rows(grid=True):
                    writer.writerow(row | {n: as_json(row[n]) for n in _JSON_COLUMNS})
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)

    def _select(self, where: str) -> list[sqlite3.Row]:
        order = "experiment, dataset, split, method, setting, params, seed"
        with self._errors():
            return self._db.execute(f"SELECT * FROM cells {where} ORDER BY {order}").fetchall()

    def _scores(self) -> dict[str, Scores]:
        found: dict[str, Scores] = {}
        with self._errors():
            for key, k, metric, mean, sd in self._db.execute("SELECT * FROM scores"):
                found.setdefault(key, {}).setdefault(k, {})[metric] = (mean, sd)
        return found

    # ---- the database -----------------------------------------------------------------

    def _is_free(self, row: sqlite3.Row) -> bool:
        if row["status"] == "failed":
            return row["finished_at"] < self.opened_at
        if row["status"] == "running":
            return row["owner"] != self.owner and _is_dead(row)
        return row["status"] != "done"

    def _one(self, sql: str, *values: Any) -> sqlite3.Row | None:
        return self._db.execute(sql, values).fetchone()

    def _write(self, sql: str, values: Sequence[Any]) -> None:
        with self._transaction():
            self._db.execute(sql, values)

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
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
        except sqlite3.Error as error:
            raise StoreError(self._advice(error)) from error

    def _advice(self, error: sqlite3.Error) -> str:
        name, what = getattr(error, "sqlite_errorname", ""), f"{self.path}: {error}"
        if name.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            return (
                f"{what}. The disk is full or failing; what was finished before is safe. "
                "Free some space and give the same command again."
            )
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")):
            return f"{what}. It is damaged or not a semfs store: use another run directory."
        return f"{what}. Check that the directory can be written and is on a local disk."


def _rows_of(cell: sqlite3.Row, scores: Scores) -> Iterator[dict[str, Any]]:
    extra = json.loads(cell["extra"])
    features, by_k = json.loads(cell["features"]), extra.pop("features_by_k", {})
    for label in json.loads(cell["labels"]) or [cell["method"]]:
        ks: list[Any] = sorted(scores) or [None]
        for k in ks:
            acc, nmi = (scores.get(k, {}).get(name, (None, None)) for name in _METRICS)
            yield _identity(cell) | {
                "label": label,
                "k": k,
                "acc": acc[0],
                "nmi": nmi[0],
                "acc_sd": acc[1],
                "nmi_sd": nmi[1],
                "seconds": cell["seconds"],
                "features": by_k.get(str(k), features),
                "extra": extra,
                "semfs_version": json.loads(cell["versions"]).get("semfs"),
            }


def _grid_of(row: dict[str, Any]) -> tuple:
    names = ("experiment", "dataset", "split", "seed", "method", "label")
    return tuple(row[name] for name in names)


def _best_of(group: list[dict[str, Any]]) -> dict[str, Any]:
    best = {metric: max(group, key=itemgetter(metric)) for metric in _METRICS}
    row = dict(best["acc"])
    for metric, winner in best.items():
        row[metric], row[f"{metric}_sd"] = winner[metric], winner[f"{metric}_sd"]
    row["params"] = {f"best_{metric}": winner["params"] for metric, winner in best.items()}
    row["params"]["n_grid"] = len(group)
    row["seconds"] = sum(point["seconds"] for point in group)  # what the search costs
    row["extra"] = {"oracle": True, "n_grid": len(group)}
    return row


def _row_order(row: dict[str, Any]) -> tuple:
    names = ("experiment", "dataset", "split", "method", "label")
    place = -1 if row["k"] is None else row["k"]
    return (*(row[n] for n in names), as_json(row["params"]), row["seed"], place)


def _identity(cell: sqlite3.Row) -> dict[str, Any]:
    values = {name: cell[name] for name in ("experiment", "dataset", "split", "method", "seed")}
    values["params"] = json.loads(cell["params"]) | json.loads(cell["setting"])
    labels = json.loads(cell["labels"])
    return values | {"label": labels[0] if labels else cell["method"]}


def _is_dead(row: sqlite3.Row) -> bool:
    """Whether the process that claimed the row is gone: at once here, by silence elsewhere."""
    if time.time() - row["heartbeat"] > STALE_SECONDS:
        return True
    if row["host"] != socket.gethostname() or os.name == "nt":
        return False
    try:
        os.kill(row["pid"], 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # alive, and another user's
        return False
    return False


def _clip(text: str, length: int = 60) -> str:
    return text if len(text) <= length else text[:length] + "…"


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
