"""Jobs and their store: nothing is lost, and what was damaged is never read as a result."""

import csv
import random
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from lab_jobs import make_job, square
from typer.testing import CliRunner

from semfs.cli import app
from semfs.lab import Job, Store
from semfs.lab.report import write_csv
from semfs.lab.store import DamagedStore, StoreError

#: A run of version 0.1, when a job was called a cell: four results and a failure.
EARLIER_RUN = Path(__file__).parent / "data" / "run-of-0.1.sqlite"


def filled(run, order=(0, 1, 2)):
    store = Store(run)
    for i in order:
        store.finish(make_job(i), square(make_job(i)), {"semfs": "1.2"})
    return store


def test_the_key_of_a_job_depends_on_all_its_values():
    jobs = [
        make_job(0),
        make_job(1),
        make_job(0, "cube"),
        make_job(0, seed=1),
        make_job(0, setting={"ratio": 0.1}),
    ]
    assert len({job.key for job in jobs}) == 5


def test_the_key_of_a_job_never_changes_so_that_old_runs_can_be_continued():
    job = Job("a", "b", "c", "d", {"x": 1.0, "y": [1, 2]}, {"ratio": 0.1}, 3, "L")
    assert job.key == "ff5eaabc09319c46dc2fd914"


def test_a_run_of_an_earlier_version_is_read(tmp_path):
    shutil.copy(EARLIER_RUN, tmp_path / "results.sqlite")
    with closing(Store(tmp_path, create=False)) as store:
        rows = store.rows()
        (failure,) = store.failures()
        info = store.info()
    assert [row["params"].get("alpha") for row in rows] == [0.001, 1.0, 1000.0, None]
    assert {(row["dataset"], row["split"], row["k"]) for row in rows} == {
        ("toy", "random-0", 5)
    }
    assert [row["acc"] for row in rows] == pytest.approx([0.55] * 4)
    assert (failure["method"], failure["error"][:14]) == ("wknn", "ValueError: no")
    assert info["command"] == "semfs reproduce clustering alpha"
    assert info["protocol"] == {"ks": [5, 20, 50], "n_repeats": 5, "seed": 0, "fast": True}


def test_rows_are_flat_and_failures_are_separate(tmp_path):
    store = filled(tmp_path, [2])
    store.fail(make_job(-1), "ValueError: no\nTraceback …")
    (row,) = store.rows()
    place = {"experiment": "toy", "dataset": "numbers", "split": "given", "method": "square"}
    scores = {"k": 5, "acc": 4.0, "nmi": 2 / 3, "acc_sd": 0.0, "nmi_sd": 0.1, "seconds": 0.5}
    rest = {"features": ["a", "b"], "extra": {"i": 2}, "semfs_version": "1.2"}
    assert row == place | scores | rest | {"seed": 0, "params": {"i": 2}, "label": "Square"}
    (failure,) = store.failures()
    assert failure["error"].startswith("ValueError: no")
    assert [store.is_done(make_job(i)) for i in (2, -1, 5)] == [True, False, False]


def test_rows_and_csv_come_in_an_order_that_does_not_depend_on_time(tmp_path):
    texts = []
    for name, order in (("a", [0, 1, 2]), ("b", [2, 0, 1])):
        path = write_csv(filled(tmp_path / name, order).rows(), tmp_path / f"{name}.csv")
        texts.append(path.read_text(encoding="utf-8"))
    assert texts[0] == texts[1]
    rows = list(csv.DictReader(texts[0].splitlines()))
    assert [float(row["acc"]) for row in rows] == [0.0, 1.0, 4.0]
    assert not list(tmp_path.glob(".*"))


def test_reading_a_directory_without_results_says_how_to_make_some(tmp_path):
    with pytest.raises(ValueError, match="semfs reproduce"):
        Store(tmp_path / "nothing", create=False)
    assert not (tmp_path / "nothing").exists()


def test_a_store_that_cannot_be_written_says_where_to_look(tmp_path):
    (tmp_path / "results.sqlite").mkdir()
    with pytest.raises(StoreError, match="is writable"):
        Store(tmp_path)


# ---- damage ---------------------------------------------------------------------------------
def test_a_file_that_is_no_store_is_refused_and_left_alone(tmp_path):
    (tmp_path / "results.sqlite").write_bytes(b"a diary, not a database " * 50)
    with pytest.raises(DamagedStore, match="not a semfs store"):
        Store(tmp_path)
    assert (tmp_path / "results.sqlite").read_bytes().startswith(b"a diary")


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE records SET value = replace(value, '4', '5') WHERE kind = 'done'",
        "UPDATE records SET kind = 'failed' WHERE kind = 'done'",
        "DROP TABLE records",
        "DELETE FROM records WHERE rowid = 2",
    ],
)
def test_changed_records_are_noticed(tmp_path, damage):
    store = filled(tmp_path)
    store._db.execute(damage)
    with pytest.raises(DamagedStore, match="is damaged or not") as error:
        store.rows()
    assert "Store.salvage(" in str(error.value)
    assert "\n" not in str(error.value)


def test_the_undamaged_part_becomes_a_run_that_can_be_continued(tmp_path):
    store = filled(tmp_path / "old", range(20))
    whole = store.rows()
    store._db.execute("UPDATE records SET value = 'x' || value WHERE rowid IN (3, 9)")
    store.close()
    saved = Store.salvage(tmp_path / "old", tmp_path / "new")
    assert len(saved.rows()) == 18
    assert all(row in whole for row in saved.rows())
    with pytest.raises(ValueError, match="Choose a new directory"):
        Store.salvage(tmp_path / "old", tmp_path / "new")
    assert len(Store.salvage(tmp_path / "old").rows()) == 18
    with pytest.raises(DamagedStore):
        Store(tmp_path / "old").rows()  # as it was


def salvaged_rows(run):
    """Rows of the intact records, of which there may be none."""
    try:
        return Store.salvage(run).rows()
    except DamagedStore:
        return []


def test_a_file_without_an_intact_record_is_refused_and_nothing_is_written(tmp_path):
    (tmp_path / "results.sqlite").write_bytes(b"a diary, not a database " * 50)
    with pytest.raises(DamagedStore, match="Nothing was written"):
        Store.salvage(tmp_path, tmp_path / "new")
    done = CliRunner().invoke(app, ["report", str(tmp_path), "--csv", str(tmp_path / "t.csv")])
    assert done.exit_code == 2
    assert "none of its records is intact" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["results.sqlite"]


def test_mutated_stores_give_the_same_rows_or_that_one_error(tmp_path):
    store = filled(tmp_path / "good", range(6))
    store.set_info("command", "semfs")
    expected = store.rows(), store.info()
    store.close()
    data = (tmp_path / "good" / "results.sqlite").read_bytes()
    path = tmp_path / "bad" / "results.sqlite"
    path.parent.mkdir()
    rng = random.Random(0)
    refused = 0
    for _ in range(200):
        mutated = bytearray(data)
        for _ in range(rng.choice([1, 1, 4, 30])):
            mutated[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(mutated)
        said = ""
        try:
            found = Store(path.parent, create=False)
            assert (found.rows(), found.info()) == expected
        except DamagedStore as error:
            said = str(error)
        refused += bool(said)
        assert not said or str(path) in said
        assert all(row in expected[0] for row in salvaged_rows(path.parent))
        for left in path.parent.iterdir():
            left.unlink()
    assert 20 < refused < 180


def test_a_store_can_be_made_by_several_at_the_same_moment(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for i in range(20):
            barrier = threading.Barrier(8)

            def make(n, folder=tmp_path / str(i), barrier=barrier):
                barrier.wait()
                with closing(Store(folder)) as store:
                    store.set_info(f"maker {n}", n)

            list(pool.map(make, range(8)))
            with closing(Store(tmp_path / str(i), create=False)) as store:
                assert store.info() == {f"maker {n}": n for n in range(8)}
