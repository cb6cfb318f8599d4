"""Running jobs: in parallel, resumable, killable, shared; nothing is computed twice."""

import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from lab_jobs import make_job, square
from threadpoolctl import threadpool_info

from semfs.lab import Result, Store, run
from semfs.lab.parallel import _interrupt_deferred

ROOT = Path(__file__).resolve().parents[2]
HERE = os.pathsep.join([str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "lab")])
PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
unix = pytest.mark.skipif(os.name == "nt", reason="POSIX signals and limits")


def python(code, *arguments, **environment):
    """A process that knows this file as ``t``."""
    command = [sys.executable, "-c", f"import test_parallel as t; {code}", *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": HERE} | environment
    return subprocess.Popen(command, env=environment, **PIPES)


def careful(task):
    if task.params["i"] < 0 and not Path("allowed").exists():
        raise ValueError(f"{task.params['i']} is negative")
    return square(task)


def unruly(task):
    """Dies, prints, returns its number of threads."""
    if task.params["i"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    print("a library that prints", flush=True)
    np.ones((2, 2)) @ np.ones((2, 2))
    threads = [pool["num_threads"] for pool in threadpool_info()]
    return Result({}, 0.0, extra={"threads": threads})


def nap(task):
    Path(os.environ["NAPPING"]).write_text(str(os.getpid()))
    time.sleep(60)


def big(task):
    return Result({5: {"acc": (1.0, 0.0), "nmi": (1.0, 0.0)}}, 0.1, ["x" * 50_000])


def logged(task):
    with Path(os.environ["LOG"]).open("a") as file:
        file.write(f"{task.params['i']} {os.getppid()}\n")
    time.sleep(0.15)
    return square(task)


def share(folder):
    """Work at the jobs of a run when another process is ready to do so, too."""
    (folder / f"ready-{os.getpid()}").touch()
    while len(list(folder.glob("ready-*"))) < 2:
        time.sleep(0.02)
    print(run([make_job(i) for i in range(12)], Store(folder), logged, n_jobs=1).n_computed)


def test_a_run_continues_and_retries_what_failed(tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    jobs = [make_job(2), make_job(-1), make_job(3)]
    first = run(jobs, Store(tmp_path), careful, n_jobs=2, verbose=True)
    assert (first.n_before, first.n_computed) == (0, 2)
    ((failed, error),) = first.failures
    assert failed.params == {"i": -1}
    assert error.startswith("ValueError: -1 is negative\n")
    assert "in careful" in error
    assert re.match(r"jobs 1/3.* toy · numbers · given · Square", capfd.readouterr().err)
    before = _finished_at(tmp_path)

    Path("allowed").touch()
    second = run(jobs, Store(tmp_path), careful, n_jobs=1)
    assert (second.n_before, second.n_computed, second.failures) == (2, 1, [])
    assert before.items() <= _finished_at(tmp_path).items()
    assert len(Store(tmp_path).rows()) == 3


@pytest.mark.slow
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_worker_that_dies_or_prints_costs_its_own_job_only(tmp_path, n_jobs):
    store = Store(tmp_path)
    summary = run([make_job(i) for i in range(3)], store, unruly, n_jobs=n_jobs)
    ((failed, error),) = summary.failures
    assert failed.params == {"i": 1}
    assert "SIGKILL" in error
    rows = store.rows()
    assert [row["k"] for row in rows] == [None, None]
    assert set(rows[0]["extra"]["threads"]) == {1}


@pytest.mark.slow
def test_workers_end_with_their_parent_even_in_mid_task(tmp_path):
    pid = tmp_path / "pid"
    parent = python("t.run([t.make_job()], t.Store(None), t.nap, n_jobs=2)", NAPPING=str(pid))
    while not (pid.exists() and pid.read_text()):
        assert parent.poll() is None
        time.sleep(0.05)
    parent.kill()
    parent.communicate()
    assert _gone_within(int(pid.read_text()), 5.0)


def test_zero_jobs_are_refused_and_functions_of_a_notebook_can_be_sent():
    with pytest.raises(ValueError, match="at least 1"):
        run([make_job()], Store(None), square, n_jobs=0)
    for n_jobs in (1, 2):
        assert run(
            [make_job()], Store(None), lambda task: square(task), n_jobs=n_jobs
        ).n_computed


@unix
@pytest.mark.slow
def test_a_full_disk_stops_the_run_with_one_line_and_keeps_what_was_finished(tmp_path):
    code = (
        "import resource, sys; from semfs.cli import _command, app\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (250_000, 250_000))\n"
        "jobs = t.map(t.make_job, range(8))\n"
        "def fill(out: str): t.run(jobs, t.Store(out), t.big, n_jobs=1)\n"
        "app.command()(_command(fill)); app(['fill', sys.argv[1]])"
    )
    process = python(f"t.map = map; {code}", tmp_path)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert err.startswith(f"semfs: error: {tmp_path}")
    assert (err.count("\n"), "Free some space" in err) == (1, True)
    done = len(Store(tmp_path).rows())
    assert 0 < done < 8
    summary = run([make_job(i) for i in range(8)], Store(tmp_path), big, n_jobs=1)
    assert (summary.n_before, summary.n_computed) == (done, 8 - done)


def start(*arguments):
    command = [sys.executable, "-m", "semfs", *arguments]
    # a process group of its own, as in a terminal
    return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **PIPES)


@pytest.mark.slow
def test_a_command_killed_five_times_ends_with_the_rows_of_an_uninterrupted_one(tmp_path):
    command = [
        "reproduce",
        "alpha",
        "labeled-ratio",
        "--method",
        "semfs",
        "--dataset",
        "lining",
    ]
    command += ["--fast", "--jobs", "2", "--out"]
    known = {}
    for number in range(5):
        process = start(*command, str(tmp_path / "killed"))
        while process.poll() is None and len(_finished_at(tmp_path / "killed")) <= number:
            time.sleep(0.005)
        process.kill()
        process.communicate()
        now = _finished_at(tmp_path / "killed")
        assert known.items() <= now.items()  # no finished job was lost or computed again
        known = now
    for name in ("killed", "whole"):
        process = start(*command, str(tmp_path / name))
        out, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert name == "whole" or f"{len(known)} finished before" in out
    assert known.items() <= _finished_at(tmp_path / "killed").items()
    assert _comparable(tmp_path / "killed") == _comparable(tmp_path / "whole")


@pytest.mark.slow
@unix
@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("demo", ""),
        ("reproduce clustering --method fsasl --dataset lining --jobs 2", ". .* the run."),
    ],
)
def test_ctrl_c_ends_a_command_within_seconds_with_one_line(tmp_path, command, message):
    process = start(*command.split(), "--out", str(tmp_path))
    workers: list[int] = []
    while len(workers) < 3:  # one of the three keeps count of joblib's resources
        assert process.poll() is None, process.communicate()
        time.sleep(0.2)
        listing = ["ps", "-o", "pid=", "--ppid", str(process.pid)]
        found = subprocess.run(listing, capture_output=True)
        workers = [int(word) for word in found.stdout.split()]
    time.sleep(1.0)
    os.killpg(process.pid, signal.SIGINT)  # what a terminal does
    _, err = process.communicate(timeout=10)
    assert process.returncode == 130
    assert re.fullmatch(
        rf"semfs: error: interrupted{message}\n", err.splitlines(keepends=True)[-1]
    )
    assert "resource_tracker" not in err
    assert "Traceback" not in err
    assert all(_gone_within(pid, 1.0) for pid in workers)


@unix
def test_ctrl_c_while_workers_start_is_not_lost_and_does_not_reach_them():
    children = []
    # A shell starts background processes with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            _start_child_and_interrupt(children)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
    [child] = children
    assert child.poll() is None
    child.communicate(b"\n")
    assert child.returncode == 0
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def _start_child_and_interrupt(children):
    code = "print(1, flush=True); input()"
    with _interrupt_deferred():
        child = subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1)
        children.append(child)
        child.stdout.read(1)  # it has started
        child.send_signal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)


def _comparable(run_folder):
    """All rows but for the time they took."""
    rows = Store(run_folder, create=False).rows()
    for row in rows:
        row.pop("seconds", None)
        row.get("extra", {}).pop("cpu_seconds", None)  # times differ between two runs
    return rows


def _finished_at(run_folder):
    path = run_folder / "results.sqlite"
    sql = "SELECT name, time FROM records WHERE kind = 'done'"
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", timeout=60, uri=True)) as db:
            return dict(db.execute(sql).fetchall())
    except sqlite3.OperationalError:  # the file or its table is not there yet
        return {}


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


@pytest.mark.slow
@pytest.mark.parametrize("kill", [False, True])
def test_two_processes_share_a_run_and_one_takes_over_from_one_that_was_killed(tmp_path, kill):
    log = tmp_path / "log"
    code = "import sys; from pathlib import Path; t.share(Path(sys.argv[1]))"
    both = [python(code, tmp_path, LOG=str(log)) for _ in range(2)]
    while kill and len(_finished_at(tmp_path)) < 3:
        time.sleep(0.02)
    if kill:
        both[0].kill()
    printed, errors = zip(*(process.communicate(timeout=60) for process in both))
    found = sorted(row["params"]["i"] for row in Store(tmp_path).rows())
    assert found == list(range(12)), errors
    begun = [line.split() for line in log.read_text().splitlines()]
    twice = [i for i, n in Counter(i for i, _ in begun).items() if n > 1]
    if kill:
        assert len(twice) <= 1  # what the killed one was at
        assert begun[-1][1] == str(both[1].pid)
    else:
        assert twice == []
        assert sum(map(int, printed)) == 12
        assert min(map(int, printed)) > 0
