"""The fuzz of tools/fuzz.py and tools/fuzz_api.py, and the kills of tools/kill.py, in small."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("anndata")
pytest.importorskip("openpyxl")
fuzz = pytest.importorskip("fuzz")
fuzz_api = pytest.importorskip("fuzz_api")

pytestmark = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs Linux")
ROOT = Path(__file__).parents[1]


def output_of(*command):
    done = subprocess.run(
        [sys.executable, *command], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("number", range(100))
def test_hard_problems_give_finite_scores_or_one_clear_line(number, tmp_path):
    path = tmp_path / "problem.txt"
    path.write_bytes(fuzz.mutation("problems", [], 1, number))
    how, message = fuzz.verdict("problems", path)
    assert how in ("accepted", "refused"), message


@pytest.mark.parametrize("number", range(60))
def test_calls_with_hostile_data_are_answered_or_refused_clearly(number, tmp_path):
    for i in range(3 * number, 3 * number + 3):
        kind, message = fuzz_api.verdict(i, 0, tmp_path)
        assert kind in ("answered", "refused"), f"call {i}: {message}"


@pytest.mark.slow
def test_damaged_files_of_every_format_are_read_or_refused_clearly(tmp_path):
    said = output_of("tools/fuzz.py", "--count", "100", "--keep", str(tmp_path))
    assert said.count("100 tried") == said.count(" 0 anything else") == len(fuzz.seeds())


@pytest.mark.slow
def test_a_killed_run_loses_nothing():
    said = output_of("tools/kill.py", "--kills", "10")
    assert "10 kills" in said
    assert "0 runs that failed, 0 rows lost, 0 rows changed" in said
