"""The store, the workers and the runner: nothing is lost, nothing is computed twice."""

from __future__ import annotations

import csv
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from semfs.lab import Display, merge, run
from semfs.lab.cells import Cell, Result
from semfs.lab.store import Store, StoreError
from semfs.lab.workers import Workers

ROOT = Path(__file__).resolve().parents[2]


def cell(i: int = 0, method: str = "square", **given) -> Cell:
    return Cell("toy", "numbers", "given", method, {"i": i}, labels=("Square",), **given)


def square(task: Cell) -> Result:
    i = task.params["i"]
    if i < 0 and not Path("allowed").exists():
        raise ValueError(f"{i} is negative")
    return Result({5: {"acc": (i * i, 0.0), "nmi": (i / 3, 0.1)}}, 0.5, ["a", "b"], {"i": i})


def die(task: Cell) -> Result:
    if task.params["i"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return square(task)


def chatter(task: Cell) -> Result:
    import warnings

    print("a library that prints", flush=True)
    warnings.warn("mind the gap", UserWarning, stacklevel=1)
    return square(task)


def threads(task: Cell) -> Result:
    import numpy as np
    from threadpoolctl import threadpool_info

    np.ones((2, 2)) @ np.ones((2, 2))
    counts = [pool["num_threads"] for pool in threadpool_info()]
    return Result({}, 0.0, extra={"threads": counts})


def nap(task: Cell) -> Result:
    time.sleep(60)
    return square(task)


# ---- cells and the store --------------------------------------------------------------------
def test_the_key_of_a_cell_depends_on_what_decides_its_numbers_only():
    same = Cell("toy", "numbers", "given", "square", {"i": 0.0}, labels=("Another name",))
    assert same.key == cell(0).key
    others = [cell(1), cell(0, "cube"), cell(0, seed=1), cell(0, setting={"ratio": 0.1})]
    assert len({c.key for c in [cell(0), *others]}) == 5


def test_the_key_of_a_cell_never_changes():
    """A changed key would make every existing run directory start again."""
    cell = Cell(
        "alpha", "sample", "given", "semfs", {"alpha": 0.1, "x": [1, None]}, {"r": 1.0}, 3
    )
    assert cell.key == "371e35de8d575d46b9271be8"


def test_cells_given_twice_are_computed_once_under_both_labels():
    a, b = cell(0), Cell("toy", "numbers", "given", "square", {"i": 0}, labels=("Other",))
    (only,) = merge([a, b, a])
    assert only.labels == ("Square", "Other")


def test_a_claim_is_exclusive_until_its_owner_is_dead(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    assert first.claim(cell())
    assert not second.claim(cell())
    assert not first.claim(cell())
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    second._db.execute("UPDATE cells SET pid = ?", (gone.pid,))
    assert second.claim(cell())


def test_a_claim_from_elsewhere_expires_with_its_heartbeat(tmp_path):
    first, second = Store(tmp_path), Store(tmp_path)
    first.claim(cell())
    first._db.execute("UPDATE cells SET host = 'elsewhere', pid = 1")
    assert not second.claim(cell())
    first._db.execute("UPDATE cells SET heartbeat = heartbeat - 1000")
    assert second.claim(cell())
    first.heartbeat()  # the first wakes up: too late
    assert not first.finish(cell(), square(cell(2)))
    assert second.finish(cell(), square(cell(3)))
    assert [row["acc"] for row in first.rows()] == [9.0]


def test_rows_are_flat_and_failures_are_told_apart(tmp_path):
    store = Store(tmp_path)
    for c in (cell(2), cell(-1)):
        store.claim(c)
    store.finish(cell(2), square(cell(2)), {"semfs": "1.2"})
    store.fail(cell(-1), "ValueError: no\nTraceback …")
    (row,) = store.rows()
    assert row == {
        "experiment": "toy",
        "dataset": "numbers",
        "split": "given",
        "method": "square",
        "seed": 0,
        "params": {"i": 2},
        "label": "Square",
        "k": 5,
        "acc": 4.0,
        "nmi": 2 / 3,
        "acc_sd": 0.0,
        "nmi_sd": 0.1,
        "seconds": 0.5,
        "features": ["a", "b"],
        "extra": {"i": 2},
        "semfs_version": "1.2",
    }
    (failure,) = store.failures()
    assert failure["error"].startswith("ValueError: no")


def test_an_oracle_row_is_the_best_of_its_grid_for_each_measure_apart():
    store = Store(None)
    points = {0: (0.5, 0.9), 1: (0.7, 0.2), 2: (0.6, 0.3)}
    for i, (acc, nmi) in points.items():
        point = Cell("toy", "d", "s", "m", {"i": i}, labels=("M (oracle)",))
        store.claim(point)
        store.finish(point, Result({5: {"acc": (acc, 0.0), "nmi": (nmi, 0.0)}}, 1.0))
    (row,) = store.rows()
    assert (row["acc"], row["nmi"], row["seconds"]) == (0.7, 0.9, 3.0)
    assert row["params"] == {"best_acc": {"i": 1}, "best_nmi": {"i": 0}, "n_grid": 3}
    assert len(store.rows(grid=True)) == 3


def test_the_best_of_an_unfinished_grid_is_not_shown():
    store = Store(None)
    points = [Cell("toy", "d", "s", "m", {"i": i}, labels=("M (oracle)",)) for i in range(3)]
    store.expect_grids(points)
    for i, point in enumerate(points[:2]):
        store.claim(point)
        store.finish(point, square(cell(i)))
    assert store.rows() == []
    store.claim(points[2])
    store.fail(points[2], "it never works")  # nor does a failed point hide the others
    assert [row["params"]["n_grid"] for row in store.rows()] == [2]


def test_the_csv_has_all_rows_in_an_order_that_does_not_depend_on_time(tmp_path):
    texts = []
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        store = Store(tmp_path / name)
        for i in order:
            store.claim(cell(i))
            store.finish(cell(i), square(cell(i)))
        store.to_csv(tmp_path / f"{name}.csv")
        texts.append((tmp_path / f"{name}.csv").read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    rows = list(csv.DictReader(texts[0].splitlines()))
    assert [float(row["acc"]) for row in rows] == [0.0, 1.0, 4.0]
    assert not list(tmp_path.glob(".*.csv*"))


def test_reading_a_directory_without_results_says_how_to_make_some(tmp_path):
    with pytest.raises(ValueError, match="semfs reproduce"):
        Store(tmp_path / "nothing", create=False)
    assert not (tmp_path / "nothing").exists()


def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path):
    (tmp_path / "results.sqlite").write_bytes(b"a diary, not a database " * 50)
    with pytest.raises(StoreError, match="not a semfs store"):
        Store(tmp_path)
    assert (tmp_path / "results.sqlite").read_bytes().startswith(b"a diary")


def test_what_must_stay_the_same_is_pinned(tmp_path):
    Store(tmp_path).pin("protocol", {"n_repeats": 20}, "Use another --out.")
    Store(tmp_path).pin("protocol", {"n_repeats": 20}, "Use another --out.")
    with pytest.raises(ValueError, match="Use another --out"):
        Store(tmp_path).pin("protocol", {"n_repeats": 5}, "Use another --out.")


# ---- a full disk ----------------------------------------------------------------------------
def big(task: Cell) -> Result:
    return Result({5: {"acc": (1.0, 0.0), "nmi": (1.0, 0.0)}}, 0.1, ["x" * 50_000])


def test_a_full_store_stops_the_run_with_advice_and_keeps_what_was_finished(tmp_path):
    store = Store(tmp_path)
    store._db.execute("PRAGMA max_page_count = 60")  # SQLite's own "disk is full"
    with pytest.raises(StoreError, match="Free some space") as error:
        run([cell(i) for i in range(30)], store, big, n_jobs=1)
    assert "\n" not in str(error.value)
    store.close()
    done = len(Store(tmp_path).rows())
    assert 0 < done < 30
    summary = run([cell(i) for i in range(30)], Store(tmp_path), big, n_jobs=1)
    assert (summary.n_before, summary.n_computed) == (done, 30 - done)


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root"
)
def test_a_full_file_system_corrupts_nothing(tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(small)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("mounting is not allowed here")
    try:
        store = Store(small / "run")
        with pytest.raises(StoreError, match="disk is full"):
            run([cell(i) for i in range(30)], store, big, n_jobs=1)
        store.close()
        again = Store(small / "run")
        assert again._db.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        done = len(again.rows())
        assert 0 < done < 30
        again.close()
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        summary = run([cell(i) for i in range(30)], Store(small / "run"), big, n_jobs=1)
        assert (summary.n_before, summary.n_computed) == (done, 30 - done)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# ---- running cells --------------------------------------------------------------------------
def test_a_run_continues_retries_what_failed_and_forces_what_is_asked(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = [cell(2), cell(-1), cell(3)]
    first = run(cells, Store(tmp_path), square, n_jobs=2)
    assert (first.n_before, first.n_computed) == (0, 2)
    ((failed, error),) = first.failures
    assert failed.params == {"i": -1}
    assert error.startswith("ValueError: -1 is negative\n")
    assert "in square" in error
    before = _finished_at(tmp_path)

    Path("allowed").touch()
    second = run(cells, Store(tmp_path), square, n_jobs=1)
    assert (second.n_before, second.n_computed, second.failures) == (2, 1, [])
    after = _finished_at(tmp_path)
    assert {k: after[k] for k in (cell(2).key, cell(3).key)} == {
        k: before[k] for k in (cell(2).key, cell(3).key)
    }

    store = Store(tmp_path)
    assert store.force([cell(2)]) == 1
    third = run(cells, store, square, n_jobs=1)
    assert (third.n_before, third.n_computed) == (2, 1)
    assert len(store.rows()) == 3


def test_a_worker_that_dies_costs_its_own_cell_only(tmp_path):
    summary = run([cell(i) for i in range(4)], Store(tmp_path), die, n_jobs=1)
    assert summary.n_computed == 3
    ((failed, error),) = summary.failures
    assert failed.params == {"i": 1}
    assert "signal 9" in error


def test_what_a_cell_prints_or_warns_does_not_get_in_the_way(tmp_path):
    store = Store(tmp_path)
    summary = run([cell(2)], store, chatter, n_jobs=1)
    assert summary.failures == []
    assert store.rows()[0]["extra"]["warnings"] == ["UserWarning: mind the gap"]


def test_every_worker_has_one_thread(tmp_path):
    store = Store(tmp_path)
    run([cell(2)], store, threads, n_jobs=1)
    (row,) = store.rows()
    assert row["k"] is None
    assert set(row["extra"]["threads"]) == {1}


def test_workers_end_with_their_parent_even_in_mid_task():
    code = (
        "import sys, test_experiments as t; from semfs.lab.workers import Workers;"
        "w = Workers(t.nap, 1); w.submit(t.cell()); (p,) = w._busy;"
        "print(p.process.pid, flush=True); w.collect(60)"
    )
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": path},
    )
    worker = int(parent.stdout.readline())
    time.sleep(0.5)
    parent.kill()
    parent.wait()
    assert _gone_within(worker, 5.0)


def test_progress_is_one_line_per_cell_when_nobody_watches(tmp_path, capfd):
    run([cell(2), cell(-1)], Store(tmp_path), square, n_jobs=1, display=Display())
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("[1/2] toy · numbers · given · Square:")
    assert "FAILED" in lines[1]
    assert "-1 is negative" in lines[1]


def test_zero_jobs_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        run([cell()], Store(None), square, n_jobs=0)


def test_cells_run_on_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        store = Store(tmp_path)
        study = OnCluster()
        address = cluster.scheduler_address
        summary = run([cell(i) for i in (2, 3, -1)], store, study, scheduler=address)
    assert summary.n_computed == 2
    assert [row["acc"] for row in store.rows()] == [4.0, 9.0]
    assert "negative" in store.failures()[0]["error"]


class OnCluster:
    """As a study of the paper: it loads data by name and is called with them."""

    def load(self, name: str) -> str:
        return name.upper()

    def __call__(self, task: Cell, data: str) -> Result:
        assert data == "NUMBERS"
        return square(task)


def test_without_dask_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"semfs\[dask\]"):
        run([cell()], Store(None), square, scheduler="tcp://nowhere:1")


# ---- the real command, interrupted ----------------------------------------------------------
COMMAND = [sys.executable, "-m", "semfs", "reproduce"]
SMALL = ["labeled-ratio", "alpha", "convergence", "--fast"]


def start(*arguments: str) -> subprocess.Popen:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as in a terminal
    )


def finish(process: subprocess.Popen) -> str:
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out + err


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory) -> list[dict]:
    run_folder = tmp_path_factory.mktemp("uninterrupted")
    finish(start(*SMALL, "--out", str(run_folder), "--jobs", "1"))
    return _comparable(run_folder)


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_rows_of_an_uninterrupted_one(
    tmp_path, uninterrupted
):
    rng = random.Random(0)
    known: dict[str, str] = {}
    for _ in range(10):
        process = start(*SMALL, "--out", str(tmp_path), "--jobs", "2")
        # a new cell in every second start at most: no machine is too fast for ten kills
        goal = len(known) + rng.randint(0, 1)
        while process.poll() is None and len(_finished_at(tmp_path)) < goal:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3) if goal == len(known) else 0)
        process.kill()
        process.communicate()
        database = sqlite3.connect(tmp_path / "results.sqlite")
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        database.close()
        now = _finished_at(tmp_path)
        assert known.items() <= now.items()  # no finished cell was lost or computed again
        known = now
        assert process.returncode == -signal.SIGKILL, "it ended before it could be killed"
    text = finish(start(*SMALL, "--out", str(tmp_path), "--jobs", "2"))
    assert f"{len(known)} finished before" in text
    end = _finished_at(tmp_path)
    assert known.items() <= end.items()
    assert 0 < len(known) < len(end)  # it was killed in the middle
    assert _comparable(tmp_path) == uninterrupted


@pytest.mark.slow
def test_two_processes_on_one_run_directory_share_the_work(tmp_path, uninterrupted):
    both = [start(*SMALL, "--out", str(tmp_path), "--jobs", "1") for _ in range(2)]
    for process in both:
        finish(process)
    assert _comparable(tmp_path) == uninterrupted
    database = sqlite3.connect(tmp_path / "results.sqlite")
    assert database.execute("SELECT DISTINCT status, attempts FROM cells").fetchall() == [
        ("done", 1)
    ]
    assert len(database.execute("SELECT DISTINCT owner FROM cells").fetchall()) == 2


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_the_command_within_two_seconds_and_says_how_to_continue(tmp_path):
    process = start("clustering", "--method", "fsasl", "--out", str(tmp_path), "--jobs", "2")
    while len(_running(tmp_path)) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.5)
    workers = _children(process.pid)
    assert len(workers) == 2
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - pressed < 2.0
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert all(_gone_within(pid, 1.0) for pid in workers)
    assert _running(tmp_path) == []


# ---- helpers --------------------------------------------------------------------------------
def _comparable(run_folder: Path) -> list[dict]:
    """All rows but for the time they took."""
    store = Store(run_folder, create=False)
    return [{n: v for n, v in row.items() if n != "seconds"} for row in store.rows(grid=True)]


def _query(run_folder: Path, sql: str) -> list:
    if not (run_folder / "results.sqlite").exists():
        return []
    database = sqlite3.connect(run_folder / "results.sqlite", timeout=60)
    try:
        return database.execute(sql).fetchall()
    except sqlite3.OperationalError:  # the tables are not there yet
        return []
    finally:
        database.close()


def _finished_at(run_folder: Path) -> dict[str, str]:
    return dict(_query(run_folder, "SELECT key, finished_at FROM cells WHERE status = 'done'"))


def _running(run_folder: Path) -> list:
    return _query(run_folder, "SELECT key FROM cells WHERE status = 'running'")


def _children(pid: int) -> list[int]:
    found = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True)
    return [int(word) for word in found.stdout.split()]


def _gone_within(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        if Path(f"/proc/{pid}/stat").exists():
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            if state == "Z":  # dead, waiting for a reaper
                return True
        time.sleep(0.05)
    return False


def test_workers_report_a_function_that_cannot_be_sent():
    with pytest.raises((AttributeError, TypeError, ValueError)):
        Workers(lambda task: task, 1)
