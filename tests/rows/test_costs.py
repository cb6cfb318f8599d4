"""The cost model: arithmetic that holds, and a command that prints it."""

import numpy as np
import pytest

from problems import make_problem
from semfs import SemFS
from semfs.cli.plan import Rates, cheaper, measure_rates, plan, shape_of
from semfs.rows import open_blocks
from semfs.rows.passes import SourceRows, expected_fetches

FAST_DISK = Rates(read=5e9, sums=2e9, columns=2e9, products=3e10)
SLOW_DISK = Rates(read=5e7, sums=2e9, columns=2e9, products=3e10)


def test_a_slow_disk_is_read_once_and_a_fast_one_a_few_times():
    assert cheaper(10**6, 4096, 4, 50, SLOW_DISK).passes == "one"
    assert cheaper(10**6, 4096, 4, 50, FAST_DISK).passes == "few"
    assert cheaper(10**6, 50_000, 4, 50, SLOW_DISK).passes == "few"  # no room for d × d


def test_time_falls_with_workers_until_adding_up_takes_over():
    seconds = [plan(10**7, 4096, 4, 50, FAST_DISK, workers=w).seconds for w in (1, 4, 16)]
    assert seconds[0] > 3.5 * seconds[1] > 3.5 * 3.5 * seconds[2]
    cost = plan(10**7, 4096, 4, 50, FAST_DISK, workers=16)
    assert cost.stages[1].bytes_sent == pytest.approx(15 * 8 * 4096 * (4096 + 100))


def test_the_number_of_passes_is_about_right():
    counted = []

    class Counting(SourceRows):
        def columns(self, *args, **kwargs):
            counted.append(1)
            return super().columns(*args, **kwargs)

    rng = np.random.default_rng(0)
    y = rng.integers(0, 30, 2000)
    X = rng.normal(size=(2000, 600)) + rng.normal(size=(30, 600))[y]
    source = open_blocks(lambda: iter([(X, y)]), passes="few")
    SemFS(50).fit(Counting(source))
    assert abs(len(counted) - expected_fetches(50)) <= 2


def test_shapes_are_read_from_files_and_texts(tmp_path):
    X, _, _ = make_problem(n=30, d=7)
    np.save(tmp_path / "X.npy", X.astype(np.float16))
    assert shape_of(str(tmp_path / "X.npy")) == (30, 7, 2)
    assert shape_of("1e8x4096") == (10**8, 4096, 4)
    with pytest.raises(FileNotFoundError):
        shape_of("missing.npy")


def test_rates_are_measured_on_this_machine(tmp_path):
    np.save(tmp_path / "X.npy", np.ones((2000, 1000)))
    rates = measure_rates(tmp_path / "X.npy", d=1000)
    assert all(1e6 < rate < 1e14 for rate in (rates.read, rates.sums, rates.columns))
    assert 1e8 < rates.products < 1e16


def test_the_plan_command_prints_stages_here_and_on_a_cluster(tmp_path):
    testing = pytest.importorskip("typer.testing")
    from semfs.cli import app

    np.save(tmp_path / "X.npy", np.ones((500, 40), dtype=np.float32))
    runner = testing.CliRunner()
    done = runner.invoke(app, ["plan", str(tmp_path / "X.npy"), "-k", "5", "--workers", "4"])
    assert done.exit_code == 0, done.output
    for text in ("500 rows × 40 columns", "this machine:", "4 workers like it", "solve"):
        assert text in done.output
    wrong = runner.invoke(app, ["plan", "missing.npy"])
    assert wrong.exit_code == 2
    assert "does not exist" in wrong.output
