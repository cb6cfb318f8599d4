"""The documentation tells the truth: its code runs, its generated pages are fresh."""

import ast
import importlib
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("typer")
import typer
from index_readme import for_index
from typer.testing import CliRunner

import semfs
from semfs.cli import app

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="the sdist has no docs")

# A page's blocks run in order and share their names. Hidden ones prepare what a page assumes; a
# `none` block is what the block before it prints.
BLOCK = re.compile(
    r"^```(?P<kind>python|console|none)\n(?P<text>.*?)^```|^<!-- python\n(?P<hidden>.*?)^-->",
    flags=re.DOTALL | re.MULTILINE,
)
QUICK = {
    "evaluate": ["-k", "5", "--repeats", "1", "--splits", "1", "-j", "1"],
    "panel": ["--bootstraps", "3"],
}
#: Pages whose commands run, too: their blocks make the files that these need.
WITH_COMMANDS = {"get-started.md", "annotate.md", "gene-panel.md", "sensors.md", "own.md"}
PAGES = {path.name: path.read_text("utf-8") for path in sorted(DOCS.glob("*.md"))}
WITH_CODE = {name for name, text in PAGES.items() if "```python" in text}


def _unwrapped(text):
    """Commands that go on after a backslash at the end of a line, each on one line."""
    return re.sub(r" *\\\n *", " ", text)


COMMANDS = sorted(
    set(
        re.findall(
            r"^\s*\$ (semfs [^\n\[]+)$", _unwrapped("\n".join(PAGES.values())), re.MULTILINE
        )
    )
)


def load_module(name):
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(DOCS)
        return importlib.import_module(name)


def run_commands(text):
    for line in _unwrapped(text).splitlines():
        if line.startswith("$ semfs"):
            if "cl" in (arguments := shlex.split(line)[2:]):
                pytest.importorskip("cellxgene_ontology_guide")
            done = CliRunner().invoke(app, arguments + QUICK.get(arguments[0], []))
            assert done.exit_code == 0, f"{line}\n{done.output}"
            print(done.stdout)


@pytest.mark.filterwarnings("ignore")  # pages may show what warns
@pytest.mark.parametrize("name", sorted(WITH_CODE - {"dask.md"}))  # it has its own test
def test_the_code_of_every_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    scope, printed = {}, ""
    for number, block in enumerate(BLOCK.finditer(PAGES[name])):
        if block["kind"] == "none":
            assert printed.split() == block["text"].split(), f"{name}, block {number}"
        elif block["kind"] != "console":
            code = block["text"] or block["hidden"]
            exec(compile(code, f"{name}, block {number}", "exec"), scope)
        elif name in WITH_COMMANDS:
            run_commands(block["text"])
        printed = capsys.readouterr().out


@pytest.mark.filterwarnings("ignore")
def test_the_code_of_the_page_on_dask_runs(tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    scope = {"__name__": "page"}
    text = PAGES["dask.md"]
    try:
        for block in BLOCK.finditer(text):
            code = block["hidden"] or (block["text"] if block["kind"] == "python" else "")
            code = code.replace("n_workers=2", "n_workers=2, processes=False")  # start quickly
            exec(compile(code, "dask.md", "exec"), scope)
        command = re.search(r"^```bash\n(.*?)^```", text, re.DOTALL | re.MULTILINE)[1]
        address = scope["client"].scheduler.address
        command = command.replace("tcp://scheduler:8786", address).replace("\\\n", " ")
        done = CliRunner().invoke(app, shlex.split(command)[1:])
        assert done.exit_code == 0, done.output
    finally:
        if "client" in scope:
            scope["client"].shutdown()
    assert (tmp_path / "reduced.npy").exists()


def test_the_reference_of_the_command_line_is_fresh():
    assert PAGES["cli.md"] == load_module("cli_reference").reference(), "run: make cli-docs"


def test_the_file_that_the_page_of_own_selectors_shows_is_the_one_that_runs():
    text = PAGES["own.md"]
    hidden = text.split("source = '''\n")[1].split("'''\nPath")[0]
    shown = text.split(":caption: my_methods.py\n")[1].split("```")[0]
    assert shown == hidden


def test_every_option_in_the_reference_has_its_values_and_default():
    rows = [
        line.split(" | ") for line in PAGES["cli.md"].splitlines() if line.startswith("| `")
    ]
    assert len(rows) > 100
    cells = {row[0].removeprefix("| "): row[1:3] for row in rows}
    assert all(len(row) == 4 and row[1] and row[2] for row in rows)
    assert cells["`--missing-features`"] == ["`error`, `ignore`", "`error`"]
    assert cells["`--together`"] == ["none", "off"]
    assert cells["`--bootstraps`"] == ["whole number", "`100`"]
    assert cells["`--table`, `-t`"] == ["path", "–"]
    assert cells["`--prompt`"] == ["text, several", "–"]
    assert cells["`SELECTOR`"] == ["path", "**required**"]


def test_every_command_in_the_pages_is_one_that_exists():
    assert len(COMMANDS) >= 10
    commands = typer.main.get_command(app).commands
    for _, name, *arguments in map(shlex.split, COMMANDS):
        assert commands[name].make_context(name, arguments).params  # raises on a wrong option


def test_every_public_name_is_in_the_api_reference():
    text = (DOCS / "api.rst").read_text("utf-8")
    modules = ("baselines", "evaluation", "attributes", "datasets", "scverse", "select")
    for module in (semfs, *(importlib.import_module(f"semfs.{name}") for name in modules)):
        missing = [name for name in module.__all__ if f"   {name}\n" not in text]
        # Constants have no page of their own.
        assert [name for name in missing if not name.isupper()] == [], module.__name__
    assert ".. data:: AS_PUBLISHED" in text


def test_every_module_is_described_for_maintainers():
    table = load_module("module_table").module_table()
    rows = re.findall(r"^\| `(\w+)` \| (.+) \| (.*)\|$", table, re.MULTILINE)
    package = ROOT / "semfs"
    files = {path.relative_to(package) for path in package.rglob("*.py")}
    on_disk = {path.parts[0].removesuffix(".py") for path in files} - {"__init__"}
    assert {name for name, _, _ in rows} == on_disk
    assert all(what.strip() for _, what, _ in rows)
    shown = {(name, file) for name, _, cell in rows for file in re.findall(r"`(\w+)`", cell)}
    inside = {(path.parts[0], path.stem) for path in files if len(path.parts) == 2}
    assert shown == {pair for pair in inside if not pair[1].startswith("_")}
    layout = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## How we write code")[0]
    missing = [name for name in on_disk if not re.search(rf"^    .*\b{name}\b", layout, re.M)]
    assert missing == []


def test_the_map_of_the_tests_names_every_test_file_and_module():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8").split("## Which test")[1]
    text = text.split("\n## ")[0]
    tests = {path.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("test_*.py")}
    assert [str(path) for path in sorted(tests) if path.stem not in text] == []
    package = ROOT / "semfs"
    names = {
        path.relative_to(package).parts[0].removesuffix(".py") for path in package.rglob("*.py")
    }
    assert [name for name in sorted(names - {"__init__"}) if f"`{name}" not in text] == []


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


def test_the_tables_of_the_readme_are_those_of_the_benchmarks():
    fresh = load_module("benchmark_tables").readme_with_tables()
    assert (ROOT / "README.md").read_text("utf-8") == fresh, (
        "run: python docs/benchmark_tables.py"
    )


def test_every_results_file_says_what_made_it():
    for path in RESULTS.glob("*.json"):
        assert {"command", "date", "versions"} <= json.loads(path.read_text("utf-8")).keys(), (
            path
        )


# What looks like a result: decimals, percentages, ratios, amounts of time and memory.
NUMBER = r"(?:\d[\d,.]*|half|two|three|four|five|six|seven|eight|nine|ten|twelve|twenty)"
UNIT = r"(?:%|percent|[kMG]B|m?s|min|seconds?|minutes?|hours?|times|×(?! d\b))"
AMOUNT = (
    rf"(?<![\w.]){NUMBER}(?:[ -]|(?<=\d)){UNIT}(?!\w)"
    r"|(?<![\w.])(?:half an? (?:minute|hour)|\d+ of \d+)"
    rf"|{NUMBER}-?fold\b|\btwice as\b|\borders? of magnitude\b|\bdouble[sd]\b"
)
FIGURE = re.compile(rf"(?<![\w.])\d[\d,]*\.\d+|(?<![\w.)/\]])\.\d|{AMOUNT}", re.IGNORECASE)
# Code, links and what a script wrote are no prose.
GENERATED_TEXT = re.compile(
    r"<!-- generated by docs/(?P<script>\S+) start -->.*?"
    r"<!-- generated by docs/(?P=script) end -->"
    r"|<!-- (?P<mark>knowledge|install|paper):start -->\n.*?<!-- (?P=mark):end -->",
    re.DOTALL,
)
NOT_PROSE = re.compile(
    r"^```.*?^```|(?<=\n\n)    .*?$|`[^`\n]+`|\]\([^)]*\)",
    re.DOTALL | re.MULTILINE,
)
#: Definitions, not results: versions, limits, parameters, the paper's settings.
ALLOWED = [
    "Python 3.11 to 3.14",  # before its beginning
    *("Python 3.11", "CC BY 4.0", "arXiv:1908.03464", "version 5 or 7.3"),
    *("scikit-learn 1.6", "scikit-learn (1.6", "scikit-learn 1.9"),
    *("95 % intervals", "at least 95 %", "at most 15 %", '0.5 for "some', "10 % to 100 %"),
    "use 0.5 rather than",
    *("below 256 MB", "up to 256 MB", "blocks of 32 MB", "(512 MB)", "γ = 0.1"),
    *("die four times", "first 10 of 50", "between 0.2 and 20", "(default 0.95)"),
    *("The 95 % interval of the paired", "version 0.1.", "four times as much"),
    "we hide other types twelve times",
    *("Five minutes to a first", "in five minutes", "about ten minutes"),
    *("| (none) | 0.95 |", "its 95 % interval", "the 95 % interval"),
]
# What the bundled data are; options; versions of other texts.
CATALOGUES = {"sample-data.md", "cli.md", "CHANGELOG.md", "CODE_OF_CONDUCT.md"}


def figures_typed_in(text):
    """What looks like a result in a text, but for what a script wrote, code and links."""
    prose = " ".join(NOT_PROSE.sub(" ", GENERATED_TEXT.sub(" ", text)).split())
    for definition in ALLOWED:
        prose = prose.replace(definition, "")
    return FIGURE.findall(prose)


def test_no_page_has_a_measured_figure_typed_by_hand():
    pages = {path.name: path.read_text("utf-8") for path in ROOT.glob("[RC]*.md")} | PAGES
    for path in [*DOCS.glob("*.rst"), *DOCS.glob("examples/*.rst")]:
        # sphinx-gallery writes its times beside the pages
        if path.name != "sg_execution_times.rst":
            pages[path.name] = path.read_text("utf-8")
    for name in pages.keys() - CATALOGUES:
        # What a generator wrote between its marks is not typed; another test compares it.
        found = figures_typed_in(pages[name])
        assert found == [], f"{name}: write it into a table of docs/benchmark_tables.py"


def test_marks_of_generated_text_name_a_script_that_writes_it():
    tables = {
        f"benchmark_tables.py:{name}" for name in load_module("benchmark_tables").tables()
    }
    known = tables | {"reproduced.py:"}
    for name, text in PAGES.items():
        scripts = {found["script"] for found in GENERATED_TEXT.finditer(text)}
        assert scripts - {None} <= known, name


def test_no_example_has_a_measured_figure_in_its_text():
    for path in sorted(DOCS.glob("examples/*.py")):
        code = path.read_text("utf-8")
        comments = re.findall(r"^#+ ?(.*)$", code, re.MULTILINE)
        text = "\n".join([ast.get_docstring(ast.parse(code)) or "", *comments])
        assert figures_typed_in(text) == [], path.name


def public_docstrings():
    """The docstrings of all that users import, by name."""
    found = {}
    for module in (
        "",
        ".attributes",
        ".baselines",
        ".datasets",
        ".evaluation",
        ".lab",
        ".scverse",
    ):
        room = importlib.import_module(f"semfs{module}")
        for name in room.__all__:
            thing = getattr(room, name)
            found[name] = getattr(thing, "__doc__", None) or ""
            if isinstance(thing, type):
                methods = (value for key, value in vars(thing).items() if key[0] != "_")
                found[name] += "\n".join(getattr(m, "__doc__", None) or "" for m in methods)
    return found


#: Limits that the code has, or intervals that it computes.
LIMITS = (
    "256 MB",
    "95 %",
    "to 1 %",
    "90 %",
    "512MB",
    "30 %",
    "50 × 10",
)


def test_no_public_docstring_has_a_measured_figure():
    docstrings = public_docstrings()
    assert len(docstrings) > 40
    for name, docstring in docstrings.items():
        text = " ".join(docstring.split())
        for limit in LIMITS:
            text = text.replace(limit, "")
        assert re.findall(AMOUNT, text, re.IGNORECASE) == [], name


@pytest.mark.parametrize(
    "text",
    [
        "an NMI of .53",
        "12 percent",
        "three-fold",
        "twice as fast",
        "two orders of magnitude",
        "a fit takes 5 s",
        "- a list\n    that goes on: 0.53",
        "<!-- problem:start -->\nNMI 0.53\n<!-- problem:end -->",
        "<!-- generated by me start -->\nNMI 0.53\n<!-- generated by me end -->",
    ],
)
def test_figures_are_found_wherever_they_hide(text):
    assert figures_typed_in(text)


@pytest.mark.parametrize("text", ["`0.53`", "[see](a.0.53.md)", "text\n\n    code = 0.53"])
def test_code_and_links_are_no_figures(text):
    assert figures_typed_in(text) == []


#: Ratios in words or digits, as changes of speed are described with.
RATIO = re.compile(
    r"\b(?:half|a (?:third|quarter|fifth|tenth)) (?:of )?(?:the |as )?(?:time|long|memory)"
    rf"|{NUMBER}(?: |-)?(?:times|x|×|-?fold) (?:as )?(?:fast|slow|less|more|large|small)\w*"
    rf"|{NUMBER} ?% (?:less|more|faster|slower)",
    re.IGNORECASE,
)
#: Durations, sizes and scores in what is no page: comments of the Makefile.
DURATION = re.compile(rf"{NUMBER}(?: an?)? (?:hours?|minutes?|seconds?)\b", re.IGNORECASE)


def test_neither_changelog_nor_makefile_has_measured_ratios_or_times():
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert RATIO.findall(changelog) == []
    makefile = (ROOT / "Makefile").read_text("utf-8")
    comments = re.findall(r"#+ (.*)$", makefile, re.MULTILINE)
    assert [c for c in comments if DURATION.search(c) or RATIO.search(c)] == []


def test_no_caption_of_a_picture_has_a_measured_figure():
    texts = [(ROOT / "README.md").read_text("utf-8"), *PAGES.values()]
    texts += [path.read_text("utf-8") for path in sorted(DOCS.glob("examples/*.py"))]
    captions = []
    for text in texts:
        captions += re.findall(r":alt: (.*)$|sphinx_gallery_\w*alt\w* *= *(.*)$", text, re.M)
        captions += [(alt, "") for alt in re.findall(r"!\[([^\]]*)\]", text)]
        # Lines in italics beside a picture.
        captions += [(line, "") for line in re.findall(r"^\*[^*]+\*$", text, re.M)]
    assert len(captions) > 10
    for caption in captions:
        words = " ".join(caption)
        for definition in ALLOWED:
            words = words.replace(definition, "")
        assert FIGURE.findall(words) == [], words


@pytest.mark.parametrize(
    "text",
    [
        "takes about half the time",
        "take a third of the time",
        "three times as fast",
        "2x faster",
    ]
    + ["12 % faster"],
)
def test_ratios_of_speed_are_found(text):
    assert RATIO.search(text)


def test_durations_are_found():
    for text in ("Dask (two hours)", "half an hour more than", "12 minutes"):
        assert DURATION.search(text), text


def test_the_table_of_the_readme_is_that_of_an_independent_script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT / "tools")
        expected = importlib.import_module("recompute_table").recomputed()
    text = (ROOT / "README.md").read_text("utf-8")
    block = text.split("<!-- knowledge:start -->")[1].split("<!-- knowledge:end -->")[0]
    shown = [line.strip("| ").split(" | ")[1:] for line in block.splitlines() if "." in line]
    shown = [[cell for cell in map(str.strip, cells) if cell.strip("| ")] for cells in shown]
    order = ["Markers", "labeled", "SemFS, labels", "SemFS, seen classes described"]
    order += [
        "SemFS, described",
        "few",
        "SemFS, few unlabeled",
        "unlabeled",
        "SemFS, unlabeled",
    ]
    assert shown == [expected[name] for name in order]


def test_rivals_are_chosen_on_the_other_splits_or_on_all():
    evidence = load_module("evidence")
    # ACC, NMI and seen accuracy of two rivals on three splits; the second one was lucky once.
    steady = {"toy": [[0.5, 0.5, 0.0]] * 3}
    lucky = {"toy": [[0.4, 0.4, 0.0], [0.45, 0.45, 0.0], [0.9, 0.9, 0.0]]}
    scores = {
        ("raw", name): {data: np.array(rows) for data, rows in rival.items()}
        for name, rival in {"steady": steady, "lucky": lucky}.items()
    }
    others = evidence.best_rivals(scores, ["steady", "lucky"])["toy"][:, 0]
    assert others.tolist() == [0.4, 0.45, 0.5]
    every = evidence.best_rivals(scores, ["steady", "lucky"], on_all_splits=True)["toy"][:, 0]
    assert every.tolist() == [0.4, 0.45, 0.9]


def test_the_picture_of_the_leads_is_that_of_the_rows():
    found = json.loads((RESULTS / "knowledge.json").read_text("utf-8"))
    evidence = load_module("evidence")
    assert evidence.PICTURE.read_text("utf-8") == evidence.picture(found), (
        "run: python docs/benchmark_tables.py"
    )


def test_the_picture_of_the_reliability_is_that_of_the_results():
    found = json.loads((RESULTS / "predict.json").read_text("utf-8"))
    reliability = load_module("reliability")
    assert reliability.PICTURE.read_text("utf-8") == reliability.picture(found), (
        "run: python docs/benchmark_tables.py"
    )


def test_the_page_names_each_method_that_is_ahead():
    found = json.loads((RESULTS / "predict.json").read_text("utf-8"))
    sentence = load_module("reliability")._ahead_sentence(found)
    alone, together = sentence.split("SemFS predicts samples together")
    data = found["confirming"]["data"]
    for name, row in data.items():
        best = max(row["ESZSL, same features"], row["SAE, same features"])
        best = max(best, row["nearest mean, all features"])
        assert (name in alone) == (best > row["alone"])
        assert (name in together) == (best > row["together"])


def test_calibration_errors_are_those_of_the_bins_that_are_drawn():
    found = json.loads((RESULTS / "predict.json").read_text("utf-8"))
    for row in found["confirming"]["data"].values():
        for suffix in ("", " together"):
            bins = row[f"reliability{suffix}"]
            assert sum(share for share, _, _ in bins) == pytest.approx(1, abs=1e-3)
            # of all splits together, over- and underconfidence of single splits cancel
            pooled = sum(abs(right - certainty) for _, certainty, right in bins)
            assert 0 < pooled <= row[f"ECE{suffix}"] + 1e-3


def test_large_calibration_errors_are_named():
    row = {"ECE": 0.02, "ECE together": 0.158}
    found = {"confirming": {"data": {"lung": row}, "over data": row}}
    text = load_module("reliability")._errors_sentence(found)
    assert "exceeds 0.10 on lung (0.158)" in text
    assert text.count("exceeds") == 1


def test_the_picture_of_the_demo_shows_the_stored_scores(tmp_path):
    image = pytest.importorskip("PIL.Image")
    matplotlib = pytest.importorskip("matplotlib")
    picture = load_module("demo_picture")
    found = picture.stored()
    fresh = "run: python docs/demo_picture.py"
    assert picture.shown_digest(picture.PICTURE) == picture.digest(found), fresh
    with image.open(picture.PICTURE) as committed:
        made_by_this = committed.info["Software"].startswith(
            f"Matplotlib version{matplotlib.__version__},"
        )
        pixels = committed.convert("RGB").tobytes()
    # Other versions place some pixels differently.
    if made_by_this:
        picture.write_to(tmp_path / "demo.png", found)
        with image.open(tmp_path / "demo.png") as drawn:
            assert drawn.convert("RGB").tobytes() == pixels, fresh


def test_the_caption_of_the_demo_names_the_number_of_splits_and_types():
    picture = load_module("demo_picture")
    splits = len({row["split"] for row in picture.stored()["rows"]})
    types = len(set(picture.demo_of(picture.stored()).data.y))
    words = f"over {splits} random splits of {types} lung cell types"
    assert words in (ROOT / "README.md").read_text("utf-8")


def test_the_stored_scores_of_the_demo_are_those_of_the_code_as_it_is():
    from semfs.lab.demo import KS, LINES, run_demo

    found = load_module("demo_picture").stored()
    assert len(found["rows"]) == 20 * len(LINES) * len(KS)
    demo = run_demo(len(found["genes"]), 2)
    assert [gene[0] for gene in demo.genes] == [gene[0] for gene in found["genes"]]
    rows = {(row["split"], row["label"], row["k"]): row for row in found["rows"]}
    for line in LINES:
        gaps = [
            row[metric] - rows[row["split"], line, row["k"]][metric]
            for row in demo.rows
            for metric in ("acc", "nmi")
            if row["label"] == line
        ]
        # K-means differs a little between processors.
        assert abs(sum(gaps) / len(gaps)) < 0.01, (
            f"{line}; run: python benchmarks/bench_demo.py"
        )


def test_the_drawing_of_the_idea_is_that_of_its_script():
    concept = load_module("concept")
    for layout in (concept.WIDE, concept.PHONE):
        drawing = (concept.IMAGES / layout.file).read_text("utf-8")
        assert drawing == concept.picture(layout), "run: python docs/concept.py"


def test_an_atlas_is_compared_with_reading_it_in_time_and_in_cpu():
    found = json.loads((RESULTS / "atlas.json").read_text("utf-8"))
    text = load_module("benchmark_tables").atlas_table(found)
    row = next(row for row in found["rows"] if row["what"] == "semfs")
    unit = next(r for r in found["rows"] if r["what"] == "read once")
    assert unit["format"] == row["format"]
    assert f"| {row['cpu']:.0f} | {row['cpu'] / unit['cpu']:.2f} |" in text


def test_the_short_answer_about_other_libraries_follows_from_the_rows():
    found = json.loads((RESULTS / "peers.json").read_text("utf-8"))
    text = " ".join(PAGES["how-we-compare.md"].split())
    rows = {(row["dataset"], row["k"], row["method"]): row for row in found["rows"]}
    peers = {method for *_, method in rows if not method.startswith("SemFS")}
    bundled = "lung_tabula_sapiens"

    assert "scGeneFit are level with SemFS on both data sets" in text
    assert "their means are higher on the bundled cells" in text
    for peer in ("scanpy, rank_genes_groups", "scGeneFit"):
        for data in ("human lung", bundled):
            _, low, high = rows[data, 20, peer]["our_lead"]["nmi"]
            assert low <= 0 <= high
        for measure in ("nmi", "acc"):
            assert rows[bundled, 20, peer]["our_lead"][measure][0] < 0

    assert "the lead in NMI over every method is larger with 20 genes than with 50" in text
    assert "On the bundled cells, the same holds for some methods" in text
    n_falling = {}
    for data in ("human lung", bundled):
        leads = [
            [rows[data, k, peer]["our_lead"]["nmi"][0] for k in (20, 50)] for peer in peers
        ]
        n_falling[data] = sum(few > many for few, many in leads)
    assert n_falling["human lung"] == len(peers)
    assert 0 < n_falling[bundled] < len(peers)

    assert "nearest neighbors do better with the panel from labels alone" in text
    for k in (20, 50):
        assert rows["human lung", k, "SemFS, labels only"]["our_lead"]["knn"][2] < 0


def test_times_that_fall_with_the_size_are_called_disturbed():
    sentence = load_module("benchmark_tables").growth_sentence
    grown = {"exponent": 0.65, "points": [[1000, 1.0], [2000, 3.0], [4000, 2.0]]}
    assert "disturbed" in sentence("n", grown)
    grown["points"][-1][1] = 6.0
    assert "n^1.00 in the last step" in sentence("n", grown)


def test_the_power_of_the_growth_is_that_of_the_last_step():
    power = load_module("benchmark_tables").last_power([[1, 5.0], [10, 6.0], [100, 600.0]])
    assert power == pytest.approx(2.0)


@pytest.mark.parametrize("text", ["", "| a |\n|---|\n", "| a |\n|---|\n\nbelow\n"])
def test_an_empty_table_is_an_error_of_the_docs_build(text):
    tables = load_module("benchmark_tables")
    with pytest.raises(ValueError, match="empty table"):
        tables._text("knowledge", lambda found: text)


def test_a_table_without_its_results_is_an_error_of_the_docs_build():
    with pytest.raises(ValueError, match="missing"):
        load_module("benchmark_tables")._text("no_such_results", str)


def test_every_table_is_on_a_page_and_is_that_of_the_results():
    tables = load_module("benchmark_tables")
    made = tables.tables()
    shown = [found["name"] for text in PAGES.values() for found in tables.MARKED.finditer(text)]
    assert sorted(shown) == sorted(set(made) - {"install"})  # README has it
    for name, text in PAGES.items():
        assert text == tables.with_tables(text, made), (
            f"{name}; run: python docs/benchmark_tables.py"
        )
        # A page that leaves its tables to the build has none in the repository.
        assert "{include} generated/" not in text


def test_every_page_is_in_the_navigation():
    linked = re.findall(r"^```\{toctree\}\n(.*?)^```", "\n".join(PAGES.values()), re.S | re.M)
    entries = set(re.findall(r"^([\w/-]+)$", "\n".join(linked), re.M))
    pages = {name.removesuffix(".md") for name in PAGES} - {"index"}
    assert pages - entries == set()


#: Quotations in headings of the page of questions; … stands for what differs.
QUOTED = re.findall(r'^### "(.+)"$', PAGES.get("faq.md", ""), re.MULTILINE)


def message_texts():
    """All texts of the package, with a line break for what is filled in."""
    texts = []
    for path in (ROOT / "semfs").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [getattr(part, "value", "\n") for part in node.values]
                texts.append("".join(p if isinstance(p, str) else "\n" for p in parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                texts.append(node.value)
    return texts


def test_the_page_of_questions_quotes_messages_that_exist():
    assert len(QUOTED) >= 10
    texts = message_texts()
    for quoted in QUOTED:
        pattern = re.compile("\n".join(re.escape(part) for part in quoted.split("…")))
        assert any(pattern.search(text) for text in texts), quoted


def test_every_cell_of_the_evidence_was_measured():
    found = json.loads((RESULTS / "knowledge.json").read_text("utf-8"))
    rows = [dict(zip(found["head"], row, strict=True)) for row in found["rows"]]
    raw = {
        (row["dataset"], row["split"], row["method"], row["k"])
        for row in rows
        if row["columns"] == "raw"
    }
    parts = [{key[i] for key in raw} for i in range(4)]
    assert len(raw) == len(parts[0]) * len(parts[1]) * len(parts[2]) * len(parts[3])
    assert len(parts[1]) == 10
    assert all(0.0 <= row[s] <= 1.0 for row in rows for s in ("acc", "nmi", "seen_knn"))


@pytest.mark.parametrize("source", [None, "https://example.org/semfs/"])
def test_the_readme_of_the_package_has_no_dead_link(source):
    text = for_index((ROOT / "README.md").read_text("utf-8"), source)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    assert [target for target in targets if not re.match(r"https?:|#", target)] == []
    assert ("![" in text) == (source is not None)
    assert "Limitations" in text  # the text of a link stays
    assert re.search(r"\((more|measured|method|benchmarks)\)", text) is None
