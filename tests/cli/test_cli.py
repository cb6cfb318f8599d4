"""The command as a shell sees it: version, help, plain text in pipes, JSON for scripts."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("typer")
import typer
from typer.testing import CliRunner

import semfs
from semfs import load
from semfs.cli import app

COMMANDS = typer.main.get_command(app).commands
ESCAPE = "\x1b"


def run(*arguments, **environment):
    """Run the command in a process of its own, with its output in a pipe."""
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
    return subprocess.run(
        [sys.executable, "-m", "semfs", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=plain | {"PYTHONIOENCODING": "utf-8"} | environment,
        check=False,
    )


def parsed(*arguments):
    done = CliRunner().invoke(app, list(arguments))
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


@pytest.fixture
def farm(tmp_path):
    """A table of rows, a table of classes, and the folder they are in."""
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    kind = np.array(["cow", "hen", "bée"])[np.arange(60) % 3]
    X = rng.normal(size=(60, 5)) + 3.0 * np.eye(3, 5)[np.arange(60) % 3]
    columns = ["wéight", "height", "speed", "colour", "noise"]
    pd.DataFrame(X, columns=columns).assign(kind=kind).to_csv(
        tmp_path / "rows.csv", index=False
    )
    table = pd.DataFrame({"legs": [4, 2, 6], "flies": [0, 0, 1]}, index=["cow", "hen", "bée"])
    table.to_csv(tmp_path / "classes.csv")
    return tmp_path


def select(farm, *more):
    files = ["--attributes", str(farm / "classes.csv"), "-o", str(farm / "out.csv")]
    return [
        "select",
        str(farm / "rows.csv"),
        "--label",
        "kind",
        "-k",
        "2",
        *files,
        *more,
    ]


def test_the_version_is_printed():
    done = CliRunner().invoke(app, ["--version"])
    assert (done.exit_code, done.stdout.strip()) == (0, f"semfs {semfs.__version__}")


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_explains_itself_with_an_example(name):
    done = CliRunner().invoke(app, [name, "--help"])
    assert done.exit_code == 0
    assert f"semfs {name}" in done.stdout.split("Example")[1]


def test_output_in_a_pipe_has_no_escape_codes():
    for arguments in ([], ["--help"], ["datasets"], ["select", "none.csv"]):
        done = run(*arguments)
        assert done.stdout + done.stderr
        assert ESCAPE not in done.stdout + done.stderr, arguments


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_no_color_is_obeyed_on_a_terminal():
    import pty

    def on_terminal(**environment):
        master, slave = pty.openpty()
        env = {k: v for k, v in os.environ.items() if k != "NO_COLOR"}
        command = [sys.executable, "-m", "semfs", "--help"]
        env |= {"TERM": "xterm-256color", **environment}
        process = subprocess.Popen(command, stdout=slave, stderr=slave, env=env)
        os.close(slave)
        text = b""
        while True:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                break
            if not chunk:
                break
            text += chunk
        process.wait()
        os.close(master)
        return text.decode(errors="replace")

    coloured = "\x1b[1;36m"
    assert coloured in on_terminal()
    plain = on_terminal(NO_COLOR="1")
    assert "semfs" in plain
    assert ESCAPE not in plain  # no bold either


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shell_completion_can_be_installed(shell):
    done = run(
        _SEMFS_COMPLETE=f"source_{shell}", _TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"
    )
    assert "semfs" in done.stdout, done.stderr
    assert "complet" in done.stdout


def test_select_prints_json_that_scripts_can_read(farm):
    found = parsed(*select(farm, "--json"))
    assert [row["rank"] for row in found["selected"]] == [1, 2]
    assert {row["feature"] for row in found["selected"]} <= {"wéight", "height", "speed"}
    assert found["n_features"] == 5
    assert found["n_rows"] == 60
    assert found["classes"] == ["bée", "cow", "hen"]
    assert [os.path.basename(path) for path in found["files"]] == [
        "out.csv",
        "out.features.csv",
    ]


def test_select_keeps_the_selector_with_the_names_of_the_file(farm):
    pd = pytest.importorskip("pandas")
    saved = farm / "panel.npz"
    done = CliRunner().invoke(app, select(farm, "--save", str(saved)))
    assert done.exit_code == 0, done.output
    assert f"Wrote {saved}" in done.output
    frame = pd.read_csv(farm / "rows.csv").drop(columns="kind")
    reduced = pd.read_csv(farm / "out.csv")
    picked = load(saved).set_output(transform="pandas").transform(frame)
    pd.testing.assert_frame_equal(picked, reduced[picked.columns])


def test_a_selector_of_a_file_without_names_takes_plain_arrays(tmp_path):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(30, 4)), np.arange(30) % 3
    np.savez(tmp_path / "data.npz", X=X, y=y, A=np.eye(3))
    arguments = ["-k", "2", "-o", str(tmp_path / "out.npz"), "--save", str(tmp_path / "s.npz")]
    done = CliRunner().invoke(app, ["select", str(tmp_path / "data.npz"), *arguments])
    assert done.exit_code == 0, done.output
    back = load(tmp_path / "s.npz")
    assert not hasattr(back, "feature_names_in_")
    assert back.transform(X).shape == (30, 2)


def test_datasets_and_evaluate_print_json_too():
    known = parsed("datasets", "--json")
    assert known[0]["name"] == "sample"
    assert {"loader", "source", "licence", "found"} <= set(known[0])
    rows = parsed("evaluate", "sample", "-m", "variance", "-k", "5", "--repeats", "2", "--json")
    assert rows[0]["method"] == "variance"


def test_a_wide_table_is_printed_in_full_on_a_narrow_screen():
    numbers = ("-k", "5:50:5", "--repeats", "1", "--splits", "1", "-j", "1")
    done = run("evaluate", "sample", "-m", "variance", *numbers, COLUMNS="60")
    assert done.returncode == 0, done.stderr
    assert "…" not in done.stdout
    assert len(done.stdout.splitlines()[2].split()) == 1 + 10 + 1  # method, ten k, mean


def test_class_labels_serve_where_there_is_no_table(farm):
    files = ["--label", "kind", "-k", "2", "-o", str(farm / "out.csv")]
    done = CliRunner().invoke(app, ["select", str(farm / "rows.csv"), *files])
    assert done.exit_code == 2
    assert "--attributes labels" in done.output
    done = CliRunner().invoke(
        app, ["select", str(farm / "rows.csv"), *files, "--attributes", "labels"]
    )
    assert done.exit_code == 0, done.output
    best = done.output.split("best: ")[1].splitlines()[0].split(", ")
    assert len(best) == 2
    assert set(best) <= {"wéight", "height", "speed"}


def test_warnings_are_one_line_without_a_place_in_the_code(farm):
    done = run(*select(farm, "-k", "99"))
    assert done.returncode == 0
    assert done.stderr.startswith("semfs: n_features_to_select=99")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "message"), [("CUB", "CUB was not found"), ("smaple", "did you mean 'sample'?")]
)
def test_a_data_set_that_is_not_there_is_explained(name, message, monkeypatch, tmp_path):
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    done = CliRunner().invoke(app, ["evaluate", name])
    assert done.exit_code == 2
    assert message in done.output


def test_python_m_semfs_is_the_command():
    done = subprocess.run(
        [sys.executable, "-m", "semfs", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout == f"semfs {semfs.__version__}\n"


def test_errors_go_to_standard_error_in_one_line_with_exit_code_2(tmp_path):
    done = run("select", str(tmp_path / "none.csv"), "--json")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("semfs: ")
    assert done.stderr.count("\n") == 1
