"""The files that commands write: endings are checked before any work is done."""

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
import pandas as pd
from typer.testing import CliRunner

from problems import make_problem
from semfs import SemFS, save
from semfs.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with labeled samples, new samples and a selector; the frame of new samples."""
    folder = tmp_path_factory.mktemp("outputs")
    X, y, _ = make_problem(d=8, m=4)
    names = [f"s{j}" for j in range(8)]
    frame = pd.DataFrame(X, columns=names)
    frame.assign(kind=y).to_csv(folder / "seen.csv", index=False)
    save(SemFS(3).fit(frame, y), folder / "cut.npz")
    new = pd.DataFrame(np.random.default_rng(1).normal(size=(12, 8)), columns=names)
    new.to_csv(folder / "new.csv", index=False)
    return folder, new


# Files that do not exist show that the ending is looked at first.
WRONG = [
    ["predict", "none.npz", "none.csv", "-o", "out.docx"],
    ["transform", "none.npz", "none.csv", "-o", "out.docx"],
    ["select", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["panel", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["panel", "none.csv", "--label", "kind", "--reduced", "out.docx"],
    ["attributes", "none.csv", "--ontology", "none.obo", "-o", "out.docx"],
    ["attributes", "none.csv", "--ontology", "none.obo", "--template", "out.docx"],
    ["evaluate", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["report", "none", "-o", "out.docx"],
    ["report", "none", "--csv", "out.docx"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda found: f"{found[0]} {found[-2]}")
def test_an_ending_that_cannot_be_written_is_refused_before_files_are_read(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    message = " ".join(done.output.split())
    assert "out.docx" in message
    assert "end in" in message or "ends in" in message
    assert not list(tmp_path.iterdir())


def test_subset_of_a_table_is_refused_before_descriptions_are_read(lab, tmp_path):
    folder, _ = lab
    options = ["--label", "kind", "-a", folder / "seen.csv", "--subset"]
    done = run("select", folder / "seen.csv", *options, "-o", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert "--subset is for .h5ad files" in " ".join(done.output.split())


READ = {".feather": pd.read_feather, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}


@pytest.mark.parametrize("ending", READ)
def test_predictions_are_written_in_every_format_that_the_help_names(lab, tmp_path, ending):
    folder, new = lab
    out = tmp_path / f"named{ending}"
    done = run("predict", folder / "cut.npz", folder / "new.csv", "-o", out)
    assert done.exit_code == 0, done.output
    found = READ[ending](out)
    assert len(found) == len(new)
    assert {"class", "probability"} <= set(found.columns)


def test_a_misspelt_method_is_noticed_before_the_data_are_read(tmp_path):
    done = run("evaluate", tmp_path / "none.csv", "--label", "kind", "-m", "semfs,varianse")
    assert done.exit_code == 2
    assert "no method 'varianse'; did you mean 'variance'?" in " ".join(done.output.split())
    done = run("evaluate", tmp_path / "none.csv", "--label", "kind", "--metric", "none:at_all")
    assert "The metric 'none:at_all' could not be loaded" in " ".join(done.output.split())
