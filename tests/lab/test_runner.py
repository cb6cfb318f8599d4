"""Running cells: in parallel, resumable, killable; nothing is computed twice."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np
import pytest
from test_store import cell, square
from threadpoolctl import threadpool_info

from semfs.lab import Result, Store, run
from semfs.lab.store import StoreError

ROOT = Path(__file__).resolve().parents[2]
HERE = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "lab")])


def careful(task):
    if task.params["i"] < 0 and not Path("allowed").exists():
        raise ValueError(f"{task.params['i']} is negative")
    return square(task)


def unruly(task):
    """Dies, prints, warns, tells its threads."""
    if task.params["i"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print("a library that prints", flush=True)
    warnings.warn("mind the gap", UserWarning, stacklevel=1)
    np.ones((2, 2)) @ np.ones((2, 2))
    return Result(
        {}, 0.0, extra={"threads": [pool["num_threads"] for pool in threadpool_info()]}
    )


def nap(task):
    Path(os.environ["NAPPING"]).write_text(str(os.getpid()))
    time.sleep(60)


def big(task):
    return Result({5: {"acc": (1.0, 0.0), "nmi": (1.0, 0.0)}}, 0.1, ["x" * 50_000])


class OnCluster:
    """As a bench of the paper: it loads data by name and is called with them."""

    def load(self, name):
        return name.upper()

    def __call__(self, task, data):
        assert data == "NUMBERS"
        return careful(task)


def test_a_run_continues_retries_what_failed_and_forces_what_is_asked(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    cells = [cell(2), cell(-1), cell(3)]
    first = run(cells, Store(tmp_path), careful, n_jobs=2, verbose=True)
    assert (first.n_before, first.n_computed) == (0, 2)
    ((failed, error),) = first.failures
    assert failed.params == {"i": -1}
    assert error.startswith("ValueError: -1 is negative\n")
    assert "in careful" in error
    assert re.match(r"cells 1/3.* toy · numbers · given · Square", capfd.readouterr().err)
    before = _finished_at(tmp_path)

    Path("allowed").touch()
    second = run(cells, Store(tmp_path), careful, n_jobs=1)
    assert (second.n_before, second.n_computed, second.failures) == (2, 1, [])
    assert before.items() <= _finished_at(tmp_path).items()

    store = Store(tmp_path)
    assert store.force([cell(2)]) == 1
    third = run(cells, store, careful, n_jobs=1)
    assert (third.n_before, third.n_computed) == (2, 1)
    assert len(store.rows()) == 3


def test_a_worker_that_dies_prints_or_warns_costs_its_own_cell_only(tmp_path):
    store = Store(tmp_path)
    summary = run([cell(i) for i in range(3)], store, unruly, n_jobs=1)
    ((failed, error),) = summary.failures
    assert failed.params == {"i": 1}
    assert "signal 9" in error
    rows = store.rows()
    assert [row["k"] for row in rows] == [None, None]
    assert rows[0]["extra"]["warnings"] == ["UserWarning: mind the gap"]
    assert set(rows[0]["extra"]["threads"]) == {1}


def test_workers_end_with_their_parent_even_in_mid_task(tmp_path):
    code = "import test_runner as t; t.run([t.cell()], t.Store(None), t.nap, n_jobs=2)"
    pid = tmp_path / "pid"
    environment = os.environ | {"PYTHONPATH": HERE, "NAPPING": str(pid)}
    parent = subprocess.Popen([sys.executable, "-c", code], env=environment)
    while not (pid.exists() and pid.read_text()):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.wait()
    assert _gone_within(int(pid.read_text()), 5.0)


def test_zero_jobs_and_functions_that_cannot_be_sent_are_refused():
    with pytest.raises(ValueError, match="at least 1"):
        run([cell()], Store(None), square, n_jobs=0)
    with pytest.raises((AttributeError, TypeError, ValueError)):
        run([cell()], Store(None), lambda task: task, n_jobs=2)
    assert run([cell()], Store(None), lambda task: square(task), n_jobs=1).n_computed == 1


def test_cells_run_on_a_dask_cluster(tmp_path):
    distributed = pytest.importorskip("distributed")
    store = Store(tmp_path)
    with distributed.LocalCluster(
        n_workers=1, threads_per_worker=2, processes=False, dashboard_address=None
    ) as cluster:
        address = cluster.scheduler_address
        summary = run([cell(i) for i in (2, 3, -1)], store, OnCluster(), scheduler=address)
    assert summary.n_computed == 2
    assert [row["acc"] for row in store.rows()] == [4.0, 9.0]
    assert "negative" in store.failures()[0]["error"]


def test_without_dask_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(ImportError, match=r"semfs\[dask\]"):
        run([cell()], Store(None), square, scheduler="tcp://nowhere:1")


# ---- a full disk ----------------------------------------------------------------------------
def test_a_full_store_stops_the_run_with_advice_and_keeps_what_was_finished(tmp_path):
    store = Store(tmp_path)
    store._db.execute("PRAGMA max_page_count = 60")  # SQLite's own "disk is full"
    with pytest.raises(StoreError, match="Free some space") as error:
        run([cell(i) for i in range(6)], store, big, n_jobs=1)
    assert "\n" not in str(error.value)
    store.close()
    done = len(Store(tmp_path).rows())
    assert 0 < done < 6
    summary = run([cell(i) for i in range(6)], Store(tmp_path), big, n_jobs=1)
    assert (summary.n_before, summary.n_computed) == (done, 6 - done)


@pytest.mark.slow
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
        done = len(Store(small / "run").rows())  # checked as a whole
        assert 0 < done < 30
        subprocess.run(["mount", "-o", "remount,size=20m", str(small)], check=True)
        summary = run([cell(i) for i in range(30)], Store(small / "run"), big, n_jobs=1)
        assert (summary.n_before, summary.n_computed) == (done, 30 - done)
    finally:
        subprocess.run(["umount", "-l", str(small)], check=True)


# ---- the real command, interrupted ----------------------------------------------------------
SMALL = ["labeled-ratio", "alpha", "convergence", "--fast"]


def start(*arguments):
    return subprocess.Popen(
        [sys.executable, "-m", "semfs", "reproduce", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a process group of its own, as in a terminal
    )


def finish(process):
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, err
    return out + err


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    run_folder = tmp_path_factory.mktemp("uninterrupted")
    finish(start(*SMALL, "--out", str(run_folder), "--jobs", "1"))
    return _comparable(run_folder)


@pytest.mark.slow
def test_a_run_killed_ten_times_ends_with_the_rows_of_an_uninterrupted_one(
    tmp_path, uninterrupted
):
    rng = random.Random(0)
    known = {}
    for _ in range(10):
        process = start(*SMALL, "--out", str(tmp_path), "--jobs", "2")
        # a new cell in every second start at most: no machine is too fast for ten kills
        goal = len(known) + rng.randint(0, 1)
        while process.poll() is None and len(_finished_at(tmp_path)) < goal:
            time.sleep(0.005)
        time.sleep(rng.uniform(0, 0.3) if goal == len(known) else 0)
        process.kill()
        process.communicate()
        now = _finished_at(tmp_path)
        assert known.items() <= now.items()  # no finished cell was lost or computed again
        known = now
        if known:
            Store(tmp_path, create=False).rows()  # and none is damaged
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
    computed = [int(re.search(r"(\d+) computed", finish(process))[1]) for process in both]
    assert _comparable(tmp_path) == uninterrupted
    assert sum(computed) == len(_finished_at(tmp_path))
    assert min(computed) > 0


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_the_command_within_two_seconds_and_says_how_to_continue(tmp_path):
    process = start("clustering", "--method", "fsasl", "--out", str(tmp_path), "--jobs", "2")
    while len(_query(tmp_path, "SELECT key FROM claims")) < 2:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)
    time.sleep(0.5)
    found = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(process.pid)], capture_output=True
    )
    workers = [int(word) for word in found.stdout.split()]
    assert len(workers) == 2
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - pressed < 2.0
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert all(_gone_within(pid, 1.0) for pid in workers)
    assert _query(tmp_path, "SELECT key FROM claims") == []


# ---- helpers --------------------------------------------------------------------------------
def _comparable(run_folder):
    """All rows but for the time they took."""
    rows = Store(run_folder, create=False).rows()
    return [{n: v for n, v in row.items() if n != "seconds"} for row in rows]


def _query(run_folder, sql):
    if not (run_folder / "results.sqlite").exists():
        return []
    database = sqlite3.connect(run_folder / "results.sqlite", timeout=60)
    try:
        return database.execute(sql).fetchall()
    except sqlite3.OperationalError:  # the tables are not there yet
        return []
    finally:
        database.close()


def _finished_at(run_folder):
    return dict(_query(run_folder, "SELECT name, time FROM records WHERE kind = 'done'"))


def _gone_within(pid, seconds):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        state = Path(f"/proc/{pid}/stat")
        try:
            os.kill(pid, 0)
            if state.exists() and state.read_text().rpartition(")")[2].split()[0] == "Z":
                return True  # dead, waiting for a reaper
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.05)
    return False
