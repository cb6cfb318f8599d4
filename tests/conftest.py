"""Fixtures that tests of several modules share; what they are made of is in `problems`."""

import pytest

from problems import make_described_problem, make_farm, make_problem


@pytest.fixture
def problem():
    """Samples X (60, 12) of four classes, their labels y, and attributes A (4, 3)."""
    return make_problem()


@pytest.fixture
def described_problem():
    """Samples of ten classes and a table that describes twelve, two of them unseen."""
    return make_described_problem()


@pytest.fixture
def small_data_as_large(monkeypatch):
    """Products of float32 data of few values are taken in float32, as those of larger data."""
    monkeypatch.setattr("semfs.method.moments.Moments.is_small", False)


@pytest.fixture(scope="session")
def lining():
    """The smaller bundled data set, a `ZeroShotDataset`."""
    from semfs.datasets import load_sample

    return load_sample("lining")


@pytest.fixture
def farm(tmp_path):
    """A folder with rows.csv (60 samples of three classes) and classes.csv (attributes)."""
    pytest.importorskip("pandas")
    rows, classes = make_farm()
    rows.to_csv(tmp_path / "rows.csv", index=False)
    classes.to_csv(tmp_path / "classes.csv")
    return tmp_path


@pytest.fixture
def invoke():
    """Run a command in this process; ``code`` is the exit code that is expected."""
    pytest.importorskip("typer")
    from typer.testing import CliRunner

    from semfs.cli import app

    def run(*arguments, code=0, **environment):
        runner = CliRunner(env=environment)
        done = runner.invoke(app, [str(argument) for argument in arguments])
        assert done.exit_code == code, done.output
        return done

    return run
