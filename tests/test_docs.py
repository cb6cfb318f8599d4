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
PAGES = sorted(path.name for path in DOCS.glob("*.md")) if DOCS.exists() else []
ELSEWHERE = ["big-data.md"]  # tests/test_big_data_page.py
WITH_CODE = [
    name
    for name in PAGES
    if "```python" in (DOCS / name).read_text("utf-8") and name not in ELSEWHERE
]


def load_module(name):
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_command(line):
    words = shlex.split(line)
    assert words[0] == "semfs"
    done = CliRunner().invoke(app, words[1:])
    assert done.exit_code == 0, f"{line}\n{done.output}"


def run_page(path, scope, *, commands=False):
    for number, block in enumerate(BLOCK.finditer(path.read_text("utf-8"))):
        code = block["python"] or block["hidden"]
        if code:
            exec(compile(code, f"{path.name}, block {number}", "exec"), scope)
        elif commands:
            for line in block["console"].splitlines():
                if line.startswith("$ semfs"):
                    run_command(line[2:])


@pytest.mark.filterwarnings("ignore")  # pages may show what warns
@pytest.mark.parametrize("name", WITH_CODE)
def test_the_code_of_every_page_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run_page(DOCS / name, {}, commands=name == "get-started.md")


def test_the_reference_of_the_command_line_is_fresh():
    found = load_module("cli_reference").reference()
    assert (DOCS / "cli.md").read_text("utf-8") == found, "run: make cli-docs"


def commands_in_pages():
    if not DOCS.exists():
        return []
    pages = [DOCS / name for name in PAGES] + [ROOT / "README.md"]
    text = "\n".join(path.read_text("utf-8") for path in pages)
    return sorted(set(re.findall(r"^\s*\$ (semfs [^\n\[]+)$", text, flags=re.MULTILINE)))


@pytest.mark.parametrize("line", commands_in_pages())
def test_every_command_in_the_pages_is_one_that_exists(line):
    _, name, *arguments = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    context = command.make_context(name, arguments)  # raises on a wrong option
    assert context.params


def test_there_are_commands_to_check():
    assert len(commands_in_pages()) >= 10


def test_every_public_name_is_in_the_api_reference():
    text = (DOCS / "api.rst").read_text("utf-8")
    for module in ("baselines", "evaluation"):
        names = importlib.import_module(f"semfs.{module}").__all__
        assert [name for name in names if f"   {name}\n" not in text] == [], module
    for name in semfs.__all__:
        assert f"   {name}\n" in text or f".. data:: {name}" in text, name


def test_every_module_is_in_the_table_of_the_inside_page():
    module_table = load_module("module_table")
    found = re.findall(r"\| `(\w+)` \| (.*) \|", module_table.module_table())
    assert all(sentence for _, sentence in found)
    placed = {name for names in module_table.LAYERS.values() for name in names.split()}
    assert {name for name, _ in found} <= placed


def test_tables_of_a_full_run_are_shown_and_escaped():
    reproduced = load_module("reproduced").reproduced
    table = {
        "title": "ACC",
        "columns": ["method", "5"],
        "rows": [["a|b", 0.51234], ["c", None]],
    }
    page = reproduced({"tables": [table], "command": "semfs reproduce all"})
    assert "| a\\|b | 0.512 |" in page
    assert "| c | – |" in page


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
