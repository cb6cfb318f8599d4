"""`semfs select`, `attributes` and `datasets`: files in and out, one line for what is wrong."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from typer.testing import CliRunner

from semfs import SemFS, load
from semfs.cli import app
from semfs.datasets import load_sample

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("h5py")

LABEL = "cell typé (bulk)"


@pytest.fixture(scope="module")
def sample():
    return load_sample("lining")


@pytest.fixture(scope="module")
def files(sample, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    frame = pd.DataFrame(sample.X, columns=sample.feature_names)
    frame[LABEL] = sample.y
    frame.to_csv(folder / "pandas.csv")
    frame.to_parquet(folder / "pandas.parquet")
    sample.attributes.to_csv(folder / "types.csv")
    np.save(folder / "X.npy", sample.X)
    np.save(folder / "y.npy", sample.y)
    ids = [list(sample.attributes.index).index(label) for label in sample.y]
    classes = np.array(sample.attributes.index, dtype=str)
    A, unseen = sample.attributes.to_numpy(), np.array(sample.unseen, dtype=str)
    np.savez(folder / "all.npz", X=sample.X, y=ids, A=A, classes=classes, unseen=unseen)
    return folder


# --- the command -----------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_command_writes_table_and_data_and_nothing_else(files, sample, tmp_path):
    unseen = [part for label in sample.unseen for part in ("--unseen", label)]
    result = run(
        "select", files / "pandas.csv", "--label", LABEL, "--attributes", files / "types.csv",
        "-k", 20, "-o", tmp_path / "out.csv", *unseen,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "Selected 20 of 800 features on 140 samples of 6 classes." in result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.features.csv"]
    table = pd.read_csv(tmp_path / "out.features.csv")
    assert list(table.columns) == ["rank", "feature", "score", "selected", "column", "reason"]
    X, y, _, _ = sample.split()
    assert_array_equal(table["column"], SemFS(20, sample.attributes).fit(X, y).order_)


def test_npz_brings_its_attributes_and_unseen_classes(files, sample, tmp_path):
    saved = tmp_path / "selector.npz"
    result = run("select", files / "all.npz", "-k", 9, "-o", tmp_path / "o", "--save", saved)
    assert result.exit_code == 0, result.output
    assert "Selected 9 of 800 features on 140 samples of 6 classes." in result.output
    assert set(load(saved).classes_).isdisjoint(sample.unseen)
    result = run("select", files / "all.npz", "-a", "labels", "-o", tmp_path / "p", "--json")
    assert json.loads(result.stdout)["n_rows"] == 140


@pytest.mark.parametrize(
    "change, message",
    [
        ({"data": "nowhere.csv"}, "nowhere.csv does not exist"),
        ({"label": "cell type (bulk)"}, "did you mean 'cell typé (bulk)'"),
        ({"attributes": "label"}, "does not exist; did you mean 'labels'?"),
        ({"out": "out.docx"}, "must end in"),
        (
            {"extra": "--unseen B"},
            "semfs: error: --unseen: class 'B' does not occur in the data. Classes: ",
        ),
        (
            {"extra": "--include SFTPX"},
            "--include: no feature named 'SFTPX'; did you mean 'SFTPD'",
        ),
        (
            {"extra": "--include SFTPC --exclude SFTPC"},
            "'SFTPC' is in both --include and --exclude",
        ),
        ({"extra": "-k 0"}, "semfs: error: -k must be at least 1, got 0."),
        ({"extra": "--gamma -1"}, "semfs: error: --gamma must be"),
        ({"extra": "--drop nothing"}, "has no column 'nothing'"),
        ({"extra": "--layer log"}, "holds only one matrix"),
        ({"extra": "--subset"}, "semfs: error: --subset applies only to .h5ad files"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_leaves_nothing(files, tmp_path, change, message):
    choice = {"data": "pandas.parquet", "label": LABEL, "attributes": "types.csv"}
    choice |= {"out": "out.csv", "extra": ""} | change
    arguments = ["select", files / choice["data"], "-k", 5, "-o", tmp_path / choice["out"]]
    arguments += ["--label", choice["label"], *choice["extra"].split()]
    attributes = files / choice["attributes"]
    arguments += ["--attributes", attributes if attributes.exists() else choice["attributes"]]
    result = run(*arguments)
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert not list(tmp_path.iterdir())


# --- the other commands ------------------------------------------------------------------


def test_attributes_are_made_from_names_markers_and_ontologies(tmp_path):
    pytest.importorskip("pronto")
    (tmp_path / "v.txt").write_text("cat 1 0\ndog 0.9 0.1\ntruck 0 1\n")
    (tmp_path / "m.csv").write_text("type,gene\nT,CD3D\nB,CD19\n")
    terms = "\n[Term]\nid: F:1\nname: bird\n\n[Term]\nid: F:2\nname: hen\nis_a: F:1\n"
    other = "\n[Term]\nid: F:3\nname: cow\n"
    (tmp_path / "farm.obo").write_text(f"format-version: 1.2\n{terms}{other}")
    (tmp_path / "names.csv").write_text("Henry,hen\nBessy,F:3\n")
    made = {
        "v": ["cat,dog,truck", "-e", tmp_path / "v.txt"],
        "m": ["--markers", tmp_path / "m.csv"],
        "o": [tmp_path / "names.csv", "--ontology", tmp_path / "farm.obo"],
        "own": ["hen,cow", "--ontology", tmp_path / "farm.obo", "--own"],
    }
    tables = {}
    for name, arguments in made.items():
        result = run("attributes", *arguments, "-o", tmp_path / f"made-{name}.csv")
        assert result.exit_code == 0, result.output
        assert result.output.count("nearest classes: ") == 1
        tables[name] = pd.read_csv(tmp_path / f"made-{name}.csv", index_col=0)
    assert tables["v"].loc["dog"].tolist() == [0.9, 0.1]
    assert tables["m"].loc["T"].to_dict() == {"CD3D": 1, "CD19": 0}
    assert tables["o"]["bird"].to_dict() == {"Henry": 1, "Bessy": 0}
    assert tables["own"].columns.tolist() == ["bird", "hen", "cow"]
    # types with the same ancestors are alike, unless each has its own term
    twins = ["hen,duck,cow", "--ontology", tmp_path / "farm.obo", "-o", tmp_path / "twins.csv"]
    (tmp_path / "farm.obo").write_text(
        f"format-version: 1.2\n{terms}{other}\n[Term]\nid: F:4\nname: duck\nis_a: F:1\n"
    )
    assert "hen = duck. With --own, each also has" in run("attributes", *twins).output
    assert "--own" not in run("attributes", *twins, "--own").output


def test_datasets_command_says_what_is_there_and_how_to_get_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CUB").mkdir()
    for name in ("res101.mat", "att_splits.mat"):
        (tmp_path / "CUB" / name).touch()
    result = run("datasets")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert next(line for line in lines if line.startswith("sample")).endswith("[bundled]")
    assert f"found in {tmp_path / 'CUB'}" in result.output
    assert "load_xlsa17" in result.output
    assert "get it:" in result.output
    assert str(tmp_path) in lines[-1]


# --- memory ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_memory_stays_bounded_on_a_file_larger_than_the_limit(tmp_path):
    n, d = 150_000, 1024  # 0.6 GB
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, n)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X[:, 3] += y
    columns = {f"x{j}": X[:, j] for j in range(d)} | {"y": y}
    pa.parquet.write_table(pa.table(columns), tmp_path / "X.parquet")
    del X, columns
    pd.DataFrame({"a": range(5)}).to_csv(tmp_path / "t.csv")
    code = (
        "from pathlib import Path; from semfs.cli import app\n"
        "try:\n    app()\n"
        "finally:\n    text = Path('/proc/self/status').read_text()\n"
        "    print(int(text.split('VmHWM:')[1].split()[0]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "select", str(tmp_path / "X.parquet"), "--label", "y",
         "--attributes", str(tmp_path / "t.csv"), "-k", "5", "-o", str(tmp_path / "out")],
        capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Best: x3," in done.stdout
    assert int(done.stdout.split()[-1]) < 520
