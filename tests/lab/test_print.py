"""What `semfs report --latex` writes: tables for booktabs, and the figures of the page."""

import re
from xml.etree import ElementTree

import pytest
from report_rows import NASTY, all_rows, row, rows_of

pytest.importorskip("jinja2")
pytest.importorskip("matplotlib")
from typer.testing import CliRunner

from semfs.cli import app
from semfs.lab import Job, Result, Store
from semfs.lab.figures import draw_panel
from semfs.lab.latex import as_latex, escaped
from semfs.lab.report import sections_of_page, write_for_print
from semfs.lab.sections import Panel, build_sections, forest_panel

SVG = "{http://www.w3.org/2000/svg}"


def entries_of(text):
    """The entries of a table, split as LaTeX splits them."""
    lines = [line for line in text.splitlines() if line.endswith(r"\\")]
    return [re.split(r"(?<!\\) & ", line.removesuffix(r" \\")) for line in lines]


def test_every_table_and_every_figure_of_the_page_is_written(tmp_path):
    rows = all_rows()
    paths = write_for_print(rows, tmp_path, info={"protocol": {}}, figures="svg")
    names = {path.name for path in paths}
    assert {"summary.tex", "standings.tex", "the-paper-s-claims.tex"} <= names
    parts = sections_of_page(rows, {"protocol": {}})
    n_panels = sum(len(part.panels) for part in parts)
    assert sum(path.suffix == ".svg" for path in paths) == n_panels > 5
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_table_has_the_numbers_of_the_page(tmp_path):
    rows = rows_of({"A_1": [0.50, 0.51, 0.53], "B": [0.40, 0.41, 0.42]})
    write_for_print(rows, tmp_path)
    columns, first, second, *_ = entries_of((tmp_path / "standings.tex").read_text("utf-8"))
    assert columns[:4] == ["data set", "measure", "method", r"mean $\pm$ sd"]
    assert first[2:4] == [r"A\_1", r"0.513 $\pm$ 0.015"]
    assert first[4] == "+0.103"
    assert second[4] == "$-$0.103"


def test_oracles_are_sorted_and_explained(tmp_path):
    rows = rows_of({"A": [0.5, 0.6], "B (oracle)": [0.6, 0.6], "C (oracle)": [0.7, 0.8]})
    write_for_print(rows, tmp_path)
    text = (tmp_path / "standings.tex").read_text("utf-8")
    methods = [line[2] for line in entries_of(text)[1:4]]
    assert methods == ["A", "C (oracle)", "B (oracle)"]
    assert "% (oracle): parameters chosen with the labels of the unseen classes" in text
    assert "standard deviation over the class splits" in text


def test_a_table_by_number_of_features_has_the_points_of_the_curves(tmp_path):
    rows = rows_of({"A": [0.5, 0.6], "B": [0.3, 0.4]})
    write_for_print(rows, tmp_path)
    (path,) = tmp_path.glob("clustering-*-by-k.tex")
    columns, first, *_ = entries_of(path.read_text("utf-8"))
    assert columns[:2] == ["measure", "method"]
    assert columns[2].startswith("k = ")
    assert first[:3] == ["ACC", "A", r"0.550 $\pm$ 0.071"]


@pytest.mark.parametrize("name", [*NASTY, "50 % of a_b", "a\nb", "~^", "\x1b[2J"])
def test_hostile_names_are_text_to_latex(name):
    table = as_latex(["method", "NMI"], [[name, 0.5], ["B", None]])
    assert len(entries_of(table)) == 3
    assert all(len(line) == 2 for line in entries_of(table))
    text = escaped(name)
    bare = re.sub(
        r"\\[{}$&#_%]|\$-\$|\$\\pm\$|\$\\alpha\$|\\text[a-z]+\{\}|\\dots\{\}", "", text
    )
    assert not set(bare) & set("\\{}$&#_%^~<>\n\x1b")


def test_figures_show_the_points_of_the_panel():
    panel = Panel("t", "k", "NMI", {"SemFS": [(5, 0.4, 0.1, ""), (10, 0.5, None, "")]})
    (ax,) = draw_panel(panel, {"SemFS": "#e0245e"}).axes
    assert ax.lines[0].get_xydata().tolist() == [[5, 0.4], [10, 0.5]]
    band = ax.collections[0].get_paths()[0].vertices[:, 1]
    assert (band.min(), band.max()) == (pytest.approx(0.3), pytest.approx(0.5))


def test_a_forest_plot_has_a_line_at_zero_and_hollow_points_where_zero_is_possible():
    rows = rows_of({"SemFS": [0.5, 0.6, 0.7], "near": [0.4, 0.7, 0.6], "far": [0.1, 0.2, 0.3]})
    part = next(part for part in build_sections(rows) if part.title == "Leads")
    (ax,) = draw_panel(part.panels[0], {}).axes
    names = [text.get_text() for text in ax.get_yticklabels()]
    points = [line for line in ax.lines if line.get_marker() == "o"]
    hollow = {n: p.get_markerfacecolor() == "white" for n, p in zip(names, points)}
    assert hollow == {"near": True, "far": False}
    assert any(list(line.get_xdata()) == [0, 0] for line in ax.lines)


def test_one_split_makes_points_without_intervals(tmp_path):
    rows = rows_of({"SemFS": [0.5], "B": [0.4]})
    paths = write_for_print(rows, tmp_path, figures="pdf")
    assert [path for path in paths if path.read_bytes().startswith(b"%PDF")]
    assert forest_panel("t", "x", {}).series == {}


def test_names_in_figures_are_text(tmp_path):
    rows = [row(name, 0.5, dataset=NASTY[0], k=k) for name in NASTY for k in (5, 10)]
    paths = write_for_print(rows, tmp_path, figures="svg")
    for path in paths:
        if path.suffix == ".svg":
            tree = ElementTree.parse(path)
            assert not list(tree.iter(f"{SVG}script"))


def test_the_command_writes_tables_and_figures_and_says_which(tmp_path):
    run, folder = tmp_path / "run", tmp_path / "paper"
    store = Store(run)
    for method, label, acc in (("semfs", "SemFS", 0.6), ("mcfs", "MCFS", 0.5)):
        for split in ("0", "1", "2"):
            job = Job("clustering", "toy", split, method, label=label)
            scores = {k: {"acc": (acc + k / 1000, 0.1), "nmi": (acc, 0.1)} for k in (5, 10)}
            store.finish(job, Result(scores, 0.1, ["a", "b"]))

    def invoke(*arguments):
        return CliRunner().invoke(app, ["report", str(run), *map(str, arguments)])

    done = invoke("--latex", folder, "--figures", "pdf")
    assert done.exit_code == 0, done.output
    assert "standings.tex" in done.output
    assert len(list(folder.glob("figure-*.pdf"))) == 4
    assert not (run / "report.html").exists()
    assert "(replaced)" in invoke("--latex", folder).output
    alone = invoke("--figures", "svg")
    assert alone.exit_code == 0, alone.output
    assert len(list((run / "figures").iterdir())) == 4
    assert not (run / "report.html").exists()


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [("--figures", "png", "is not one of"), ("--csv", "rows.xlsx", "must end in .csv")],
)
def test_formats_that_cannot_be_written_are_refused_before_the_run_is_read(
    tmp_path, option, value, message
):
    done = CliRunner().invoke(app, ["report", str(tmp_path / "no-run"), option, value])
    assert done.exit_code == 2
    assert message in " ".join(done.output.split())


def test_evaluate_writes_its_figures_beside_the_page(tmp_path):
    page = tmp_path / "page.html"
    command = ["evaluate", "sample", "-m", "semfs,variance", "-k", "5", "--repeats", "1"]
    command += ["--splits", "3", "-j", "1", "--figures", "svg", "-o", str(page)]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    figures = list((tmp_path / "figures").iterdir())
    assert page.exists()
    assert figures
    assert {path.suffix for path in figures} == {".svg"}
    assert f"Wrote {figures[0]}" in "".join(done.output.split("\n"))
