"""Running cells: in parallel, resumable, killable; nothing is computed twice."""

import os
import random
import re
import signal
import sqlite3
import subprocess
import sys
import time
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
    """Dies, prints, tells its threads."""
    if task.params["i"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print("a library that prints", flush=True)
    np.ones((2, 2)) @ np.ones((2, 2))
    return Result(
        {}, 0.0, extra={"threads": [pool["num_threads"] for pool in threadpool_info()]}
    )


def nap(task):
    Path(os.environ["NAPPING"]).write_text(str(os.getpid()))
    time.sleep(60)


def big(task):
    return Result({5: {"acc": (1.0, 0.0), "nmi": (1.0, 0.0)}}, 0.1, ["x" * 50_000])


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
    store.force([cell(2)])
    third = run(cells, store, careful, n_jobs=1)
    assert (third.n_before, third.n_computed) == (2, 1)
    assert len(store.rows()) == 3


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_worker_that_dies_or_prints_costs_its_own_cell_only(tmp_path, n_jobs):
    store = Store(tmp_path)
    summary = run([cell(i) for i in range(3)], store, unruly, n_jobs=n_jobs)
    ((failed, error),) = summary.failures
    assert failed.params == {"i": 1}
    assert "SIGKILL" in error
    rows = store.rows()
    assert [row["k"] for row in rows] == [None, None]
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


def test_zero_jobs_are_refused_and_functions_of_a_notebook_can_be_sent():
    with pytest.raises(ValueError, match="at least 1"):
        run([cell()], Store(None), square, n_jobs=0)
    for n_jobs in (1, 2):
        assert run([cell()], Store(None), lambda task: square(task), n_jobs=n_jobs).n_computed


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


# ---- the real command, interrupted ----------------------------------------------------------
SMALL = ["labeled-ratio", "alpha", "convergence", "--fast", "--dataset", "blood"]


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


@pytest.mark.skipif(os.name == "nt", reason="POSIX signals")
def test_ctrl_c_ends_the_command_within_seconds_and_says_how_to_continue(tmp_path):
    command = ["clustering", "--method", "fsasl", "--dataset", "blood", "--jobs", "2"]
    process = start(*command, "--out", str(tmp_path))
    workers: list[int] = []
    while len(workers) < 3:  # one of the three keeps count of joblib's resources
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
        listing = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
        found = subprocess.run(listing, capture_output=True)
        workers = [int(word) for word in found.stdout.split()]
    time.sleep(0.5)
    pressed = time.monotonic()
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, err = process.communicate(timeout=30)
    assert time.monotonic() - pressed < 3.0
    assert process.returncode == 130
    assert "the same command continues" in err
    assert "Traceback" not in err
    assert all(_gone_within(pid, 1.0) for pid in workers)


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
