"""The command as a shell sees it: version, help, plain text in pipes, JSON for scripts."""

import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

pytest.importorskip("typer")
import typer

import semfs
from semfs import cli
from semfs.cli import app
from semfs.cli.console import visible
from semfs.cli.errors import OPTIONS, message_of
from semfs.validation import ParameterError, ParameterWarning

COMMANDS = typer.main.get_command(app).commands
ESCAPE = "\x1b"
unix = pytest.mark.skipif(sys.platform == "win32", reason="needs pseudo-terminals and signals")


def select(farm, *more, attributes="classes.csv"):
    table = ["--attributes", str(farm / attributes)] if attributes else []
    files = [str(farm / "rows.csv"), *table, "-o", str(farm / "out.csv")]
    return ["select", *files, "--label", "kind", "-k", "2", *more]


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_nothing_heavy(argument):
    code = (
        "import atexit, sys; heavy = {'numpy', 'sklearn', 'pandas', 'plotly', 'matplotlib'}\n"
        "atexit.register(lambda: print('loaded', heavy & set(sys.modules)))\n"
        f"sys.argv = ['semfs', {argument!r}]\n"
        "from semfs.__main__ import main; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.endswith("loaded set()\n"), done.stderr
    assert f"semfs {semfs.__version__}\n" in done.stdout or argument == "--help"


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_the_help_of_a_command_ends_with_an_example_and_names_no_flag_type(name, invoke):
    text = invoke(name, "--help").stdout
    assert f"semfs {name}" in text.split("Example: ")[1]
    assert "│" not in text.split("Example: ")[1]  # after the last panel
    assert "bool" not in text


def test_output_in_a_pipe_has_no_escape_codes(invoke):
    for arguments, code in (("", 2), ("--help", 0), ("datasets", 0), ("select x.csv", 2)):
        done = invoke(*arguments.split(), code=code)
        assert done.output
        assert ESCAPE not in done.output, arguments


def on_terminal(*arguments, **environment):
    """Run the command on a terminal of its own and return what it shows."""
    import pty

    master, slave = pty.openpty()
    command = [sys.executable, "-m", "semfs", *arguments]
    plain = {k: v for k, v in os.environ.items() if k not in ("FORCE_COLOR", "NO_COLOR")}
    env = plain | {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen(command, stdout=slave, stderr=slave, env=env)
    os.close(slave)
    text = b""
    try:
        while chunk := os.read(master, 65536):
            text += chunk
    except OSError:  # Linux, at the end
        pass
    process.wait()
    os.close(master)
    return text.decode(errors="replace")


@unix
def test_no_color_is_obeyed_and_escape_codes_in_names_do_not_reach_the_terminal(tmp_path):
    assert "\x1b[1;36m" in on_terminal("--help")
    hostile = "\x1b]0;title\x07\x1b[2J\x9b31m.csv"
    shown = on_terminal("select", str(tmp_path / hostile), NO_COLOR="1")
    assert r"\x1b]0;title\x07\x1b[2J\x9b31m.csv" in shown
    assert not {ESCAPE, "\x07", "\x9b"} & set(shown)  # no bold either
    assert visible("a\tb\n") == "a\tb\n"


def test_select_prints_json_that_scripts_can_read(farm, invoke):
    found = json.loads(invoke(*select(farm, "--json")).stdout)
    assert [row["rank"] for row in found["selected"]] == [1, 2]
    assert {row["feature"] for row in found["selected"]} <= {"wéight", "height", "speed"}
    assert (found["n_features"], found["n_rows"]) == (5, 60)
    assert found["classes"] == ["bée", "cow", "hen"]
    assert found["files"] == [str(farm / "out.csv"), str(farm / "out.features.csv")]


def test_a_wide_table_is_printed_in_full_on_a_narrow_screen_and_a_page_is_written(
    tmp_path, invoke
):
    numbers = ("-k", "5:50:5", "--repeats", "1", "--splits", "1", "-j", "1")
    page = tmp_path / "page.html"
    more = ("-m", "variance", *numbers, "--out", page)
    done = invoke("evaluate", "lining", *more, COLUMNS="60")
    assert "…" not in done.stdout
    assert len(done.stdout.splitlines()[2].split()) == 1 + 10 + 1  # method, ten k, mean
    assert "<html" in page.read_text("utf-8")


def test_samples_without_a_label_are_used_if_asked_for(farm, invoke):
    text = (farm / "rows.csv").read_text("utf-8").replace(",bée", ",")
    (farm / "rows.csv").write_text(text, "utf-8")
    done = invoke(*select(farm, "-k", "0.4"))
    assert "Selected 2 of 5 features on 40 samples of 2 classes." in done.stdout
    assert (
        "20 of 60 samples have no label. They are left out. With --unlabeled use" in done.stderr
    )
    assert "unlabeled" not in done.stdout
    done = invoke(*select(farm, "-k", "0.4", "--unlabeled", "use"))
    assert "Selected 2 of 5 features on 40 samples of 2 classes." in done.stdout
    assert ": 20 " in done.stdout.split("unlabeled")[1]  # what knowledge_ says of them
    assert "without a label" not in done.stderr


def test_what_fails_leaves_data_and_folder_alone(farm, invoke, monkeypatch):
    monkeypatch.chdir(farm)
    (farm / "classes.csv").rename("c.features.csv")
    (farm / "plain").touch()
    before = {path: path.read_bytes() for path in farm.iterdir()}
    for more, message in (
        ("--unseen hen,cov", "did you mean 'cow'"),
        ("-o rows.csv", "rows.csv would overwrite"),
        ("-o c.csv", "c.features.csv would overwrite"),
        ("--save c.features.csv", "c.features.csv would overwrite"),
        ("--save out.csv", "out.csv would overwrite"),
        ("-o plain", "plain is a file, but a folder"),
    ):
        done = invoke(*select(farm, *more.split(), attributes="c.features.csv"), code=2)
        assert message in done.stderr
    done = invoke("attributes", "rows.csv", "--ontology", "cl", "-o", "rows.csv", code=2)
    assert "rows.csv would overwrite" in done.stderr
    assert {path: path.read_bytes() for path in farm.iterdir()} == before


def test_evaluate_says_what_may_describe_classes_and_takes_labels_alone(farm, invoke):
    rows = ("evaluate", farm / "rows.csv", "-l", "kind")
    assert "or 'labels'" in invoke(*rows, code=2).stderr
    assert "--label" in invoke(*rows[:2], code=2).stderr
    text = (farm / "rows.csv").read_text("utf-8").replace(",bée", ",fox", 9)
    (farm / "rows.csv").write_text(text, "utf-8")
    more = ("-a", "labels", "-k", "2", "--repeats", "1", "-j", "1", "--unseen", "hen,cow")
    text = invoke(*rows, *more).stdout
    # one line in each table (ACC, NMI, ARI, k-NN), and no SemFS, unseen classes described
    assert text.count("SemFS") == 4
    (farm / "panel.txt").write_text("height\nspeed\n", "utf-8")
    own = ("--panel", farm / "panel.txt", "--out", farm / "page.html")
    done = invoke(*rows, *more, "--exclude", "noise", *own)
    note = "--include and --min-per-class apply to SemFS only"
    assert note in done.stderr
    assert note in (farm / "page.html").read_text("utf-8")
    frame = pytest.importorskip("pandas").read_csv(farm / "rows.csv")
    frame.assign(noise=1e4 * frame["noise"]).to_csv(farm / "rows.csv", index=False)
    assert "noise has 100% of the variance." in invoke(*rows, *more).stderr
    assert "variance" not in invoke(*rows, *more, "--scale").stderr


@pytest.mark.parametrize("kind", ["csv", "tsv", "parquet", "feather", "npy", "npz", "h5"])
@pytest.mark.parametrize("command", ["select", "evaluate"])
def test_a_file_is_called_as_it_was_given(kind, command, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / f"rows.{kind}").write_bytes(b"nonsense")
    done = invoke(command, f"rows.{kind}", "-l", "kind", "-a", "names", code=2)
    assert f"rows.{kind}" in done.stderr
    assert str(tmp_path) not in done.output


def test_warnings_are_one_line_in_the_words_of_the_command(farm, invoke):
    done = invoke(*select(farm, "-k", "99"))
    assert done.stderr.startswith("semfs: note: -k 99 is greater than")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("problem", "shown"),
    [
        (ParameterError("y", "has 2 labels."), "--label has 2 labels."),
        (ParameterError("random_state", "must be positive."), "--seed must be positive."),
        (
            ParameterError("include", ": no feature named 'y'."),
            "--include: no feature named 'y'.",
        ),
        (ParameterWarning("n_features_to_select", "is 9."), "-k is 9."),
        (ParameterError("step", "must be positive."), "step must be positive."),
        (ValueError("X has 3 rows but y has 2 labels."), "X has 3 rows but y has 2 labels."),
        (KeyError(), "KeyError"),
    ],
)
def test_only_the_parameter_at_fault_is_called_by_its_option(problem, shown):
    assert message_of(problem) == shown


@pytest.mark.parametrize(
    ("advice", "shown"),
    [
        ("use label_weight=1.", "use --label-weight 1."),
        (
            'Fill them with missing_values="class-mean", or',
            "Fill them with --impute class-mean, or",
        ),
        (
            "use own=True to add the term of each class itself.",
            "use --own to add the term of each class itself.",
        ),
        ("n_jobs=0.5, but", "--jobs 0.5, but"),
        # text of the user, calls and other names
        ("no column 'gamma=1'", "no column 'gamma=1'"),
        ("Use SemFS(gamma=1).", "Use SemFS(gamma=1)."),
        ("label_gamma=1, max_iter=3", "label_gamma=1, max_iter=3"),
    ],
)
def test_advice_is_given_in_options(advice, shown):
    assert message_of(ValueError(advice)) == shown


def test_every_option_that_stands_for_a_parameter_exists():
    known = {name for command in COMMANDS.values() for p in command.params for name in p.opts}
    assert {option.split()[0] for option in OPTIONS.values()} <= known


def test_columns_called_x_and_y_are_called_so(tmp_path, invoke):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(60, 4)), columns=["X", "y", "g1", "g2"])
    frame["X"] *= 1e4
    frame["kind"] = np.array(["a", "b", "c"])[np.arange(60) % 3]
    frame.to_csv(tmp_path / "rows.csv", index=False)
    files = (tmp_path / "rows.csv", "-o", tmp_path / "out.csv")
    done = invoke("select", *files, "-l", "kind", "-k", 2)
    (line,) = done.stderr.splitlines()
    assert "X has 100% of the variance" in line
    assert "DATA" not in line
    assert "--label" not in line
    assert "Best: X, " in done.stdout
    done = invoke("select", *files, "-l", "kind", "-k", 2, "--include", "Y", code=2)
    assert done.stderr == "semfs: error: --include: no feature named 'Y'; did you mean 'y'?\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("evaluate CUB", "CUB was not found"),
        ("evaluate smaple", "did you mean 'sample'?"),
        ("evaluate sample -k 5:x", "-k is '5:x'"),
        ("evaluate sample -k 0:5", "-k is '0:5'"),
        ("evaluate nowhere.npz", "no data set 'nowhere.npz'"),
        ("evaluate nowhere.csv --label kind", "'nowhere.csv' is not a file"),
        ("evaluate sample -m varience", "method 'varience'; did you mean 'variance'?"),
        ("evaluate sample --out page.pdf", "must end in .html"),
        (
            "evaluate sample --unseen a --splits 2",
            "--unseen names the unseen classes, but --splits draws",
        ),
        ("evaluate sample --unseen basofil", "did you mean 'basophil'?"),
        ("evaluate sample --unseen basophil", "18 seen and 1 unseen classes"),
        # refused before the data are opened: there is no such file
        ("select nowhere.csv -l kind -o out.txt", "--out: out.txt must end in .csv, "),
        ("evaluate sample --splits 0", "--splits must be at least 1, got 0."),
        ("attributes cat", "Give --out FILE, or --template FILE"),
        ("attributes cat --template t.csv", "--template also needs --ontology"),
        ("attributes -o t.csv", "Give either class names or --markers FILE"),
        (
            "attributes cat --markers m.csv -o t.csv",
            "Give either class names or --markers FILE",
        ),
        ("attributes , -o t.csv", "NAMES is empty"),
        ("demo --genes 0", "--genes must be at least 1, got 0."),
        (f"demo --out {__file__}", "is a file, but a folder"),
        (f"evaluate sample --out {__file__}/page.html", "is a file, but a folder"),
        ("report nowhere", "nowhere"),
        ("report nowhere --out page.csv", "must end in .html"),
        ("reproduce everything --out run", "no experiment 'everything'"),
        ("reproduce alpha --out run --method x:y", "No module named 'x'"),
        ("reproduce alpha --out run --data nowhere", "not a directory"),
        (f"reproduce alpha --out {__file__}", "is a file, but a folder"),
    ],
)
def test_a_wrong_argument_is_explained(arguments, message, invoke, monkeypatch, tmp_path):
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (line,) = invoke(*arguments.split(), code=2).stderr.splitlines()
    assert line.startswith("semfs: error: ")
    assert message in line
    assert list(tmp_path.iterdir()) == []


@unix
@pytest.mark.parametrize("seconds", [0.05, 0.2, 0.6])
def test_an_interrupt_while_packages_load_shows_no_traceback(seconds):
    first = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL); print(1, flush=True)"
    code = f"{first}; from semfs.__main__ import main; main()"
    command = [sys.executable, "-c", code, "evaluate", "sample"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = subprocess.Popen(command, text=True, **pipes)
    process.stdout.readline()
    time.sleep(seconds)
    while process.poll() is None:  # a package that loads may lose the first
        process.send_signal(signal.SIGINT)
        time.sleep(0.4)
    assert process.returncode in (130, -signal.SIGINT)  # the latter before we are loaded
    assert "Traceback" not in process.communicate()[1]


@pytest.mark.parametrize("error", [ImportError, RuntimeError])
def test_an_interrupt_that_a_package_turns_into_an_error_is_one(monkeypatch, invoke, error):
    def load(*_, **__):
        with pytest.raises(KeyboardInterrupt):
            cli._interrupt(signal.SIGINT, None)
        raise error("numpy failed to import")

    monkeypatch.setattr(cli, "_interrupts", [])
    monkeypatch.setattr("semfs.lab.data.open_data", load)
    assert invoke("evaluate", "sample", code=130).stderr == "semfs: error: interrupted\n"


def test_evaluate_fills_gaps_when_asked(farm, invoke):
    text = (farm / "rows.csv").read_text("utf-8").replace(",bée", ",fox", 9)
    (farm / "rows.csv").write_text(text, "utf-8")
    frame = pytest.importorskip("pandas").read_csv(farm / "rows.csv")
    frame.loc[[0, 3], "noise"] = np.nan
    frame.to_csv(farm / "rows.csv", index=False)
    rows = ("evaluate", farm / "rows.csv", "-l", "kind", "-a", "labels", "-k", "2")
    more = ("--repeats", "1", "-j", "1", "--unseen", "hen,cow")
    assert "no value in column 'noise'" in invoke(*rows, *more, code=2).stderr
    assert "ACC" in invoke(*rows, *more, "--impute", "median").stdout
    assert "only to files" in invoke("evaluate", "lining", "--impute", "median", code=2).stderr


def test_evaluate_writes_its_tables_for_latex(tmp_path, invoke):
    command = ("evaluate", "lining", "-m", "variance", "-k", "5", "--repeats", "1", "-j", "1")
    done = invoke(*command, "--latex", tmp_path)
    assert "standings.tex" in done.stdout
    assert "k-NN" in (tmp_path / "standings.tex").read_text("utf-8")
    assert "standings.tex (replaced)" in invoke(*command, "--latex", tmp_path).stdout
