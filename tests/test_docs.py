"""The documentation tells the truth: its code runs, its generated pages are fresh."""

import importlib.util
import re
import shlex
from pathlib import Path

import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
import typer
from typer.testing import CliRunner

import semfs
from semfs.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the sdist has no docs")

# A page's blocks run in order and share their names. Hidden ones prepare what a page assumes.
BLOCK = re.compile(
    r"^```python\n(?P<python>.*?)^```|^<!-- python\n(?P<hidden>.*?)^-->"
    r"|^```console\n(?P<console>.*?)^```",
    flags=re.DOTALL | re.MULTILINE,
)
PAGES = {path.name: path.read_text("utf-8") for path in sorted(DOCS.glob("*.md"))}
WITH_CODE = {name for name, text in PAGES.items() if "```python" in text}
COMMANDS = sorted(
    set(re.findall(r"^\s*\$ (semfs [^\n\[]+)$", "\n".join(PAGES.values()), re.MULTILINE))
)


def load_module(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_commands(text):
    for line in text.splitlines():
        if line.startswith("$ semfs"):
            done = CliRunner().invoke(app, shlex.split(line)[2:])
            assert done.exit_code == 0, f"{line}\n{done.output}"


@pytest.mark.filterwarnings("ignore")  # pages may show what warns
@pytest.mark.parametrize("name", sorted(WITH_CODE - {"big-data.md"}))  # it has its own test
def test_the_code_of_every_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope = {}
    for number, block in enumerate(BLOCK.finditer(PAGES[name])):
        if code := block["python"] or block["hidden"]:
            exec(compile(code, f"{name}, block {number}", "exec"), scope)
        elif name == "get-started.md":
            run_commands(block["console"])


def test_the_reference_of_the_command_line_is_fresh():
    assert PAGES["cli.md"] == load_module("cli_reference").reference(), "run: make cli-docs"


def test_every_command_in_the_pages_is_one_that_exists():
    assert len(COMMANDS) >= 10
    commands = typer.main.get_command(app).commands
    for _, name, *arguments in map(shlex.split, COMMANDS):
        assert commands[name].make_context(name, arguments).params  # raises on a wrong option


def test_every_public_name_is_in_the_api_reference():
    text = (DOCS / "api.rst").read_text("utf-8")
    for module in (semfs, semfs.baselines, semfs.evaluation):
        missing = [name for name in module.__all__ if f"   {name}\n" not in text]
        assert missing in ([], ["AS_PUBLISHED"]), module.__name__
    assert ".. data:: AS_PUBLISHED" in text


def test_every_room_is_described_for_maintainers():
    table = load_module("module_table")
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| .*\|$", table.module_table(), re.MULTILINE)
    assert [room for room, _ in rows] == table.rooms()
    layout = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## How we write code")[0]
    assert [
        room for room in table.rooms() if not re.search(rf"^    .*\b{room}\b", layout, re.M)
    ] == []


def test_the_tables_of_a_run_are_sorted_with_spread_and_a_verdict():
    scores = {"SemFS": (0.5, 0.7), "SemFS (labels)": (0.4, 0.5)}
    scores |= {"a|b": (0.6, 0.9), "a|b (oracle)": (1.0, 1.0)}
    rows = [
        {"dataset": "toy", "split": str(i), "label": label, "acc": value, "nmi": value}
        for label, values in scores.items()
        for i, value in enumerate(values)
    ]
    page = load_module("reproduced").reproduced({"rows": rows, "command": "semfs"})
    lines = [line for line in page.splitlines() if " ± 0." in line]
    assert lines[0].startswith("| a\\|b | **0.750 ± 0.212** | **0.750 ± 0.212** |")
    order = ["| SemFS", "| SemFS (labels)", "| a\\|b (oracle)"]
    assert [line.split(" | ")[0] for line in lines[1:]] == order
    assert "First in 0 of 2 comparisons" in page
    assert "SemFS is above SemFS (labels) in 2 of 2: toy ACC +0.150 (" in page
    assert "adds +0.250 on average" in page


@pytest.mark.parametrize(
    ("link", "message"),
    [("other.html", None), ("other.html#here", None), ("https://example.org/x", None)]
    + [("none.html", "no file"), ("other.html#there", "no anchor"), ("#gone", "no anchor")],
)
def test_broken_links_are_found(link, message, tmp_path):
    (tmp_path / "other.html").write_text('<p id="here">x</p>')
    (tmp_path / "index.html").write_text(f'<a href="{link}">x</a>')
    found = load_module("check_links").broken(tmp_path)
    assert found == ([] if message is None else [f"index.html: {message} {link}"])


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] in semfs.__version__


def test_the_table_of_the_readme_is_that_of_the_benchmark():
    fresh = load_module("benchmark_tables").readme_with_table()
    found = (ROOT / "README.md").read_text("utf-8")
    assert found == fresh, "run: python docs/benchmark_tables.py"
