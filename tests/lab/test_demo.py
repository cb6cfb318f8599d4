"""The demo tells its story on the bundled cells."""

import pytest

pytest.importorskip("typer")
from typer.testing import CliRunner

from semfs.cli import app
from semfs.datasets import load_sample
from semfs.lab.demo import METHODS, chosen_genes, run_demo


def test_the_demo_prints_genes_and_scores_and_writes_a_page_and_a_picture(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--splits", "2", "--out", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    for text in ("Never labelled", "Genes chosen", "ACC on unseen classes", "SemFS", "Random"):
        assert text in done.output
    page = (tmp_path / "new" / "report.html").read_text()
    assert "CST3" in page
    assert (tmp_path / "new" / "demo.png").read_bytes().startswith(b"\x89PNG")


def test_every_method_is_scored_on_every_split_and_k():
    found = run_demo(5, 2)
    assert len(found.rows) == 2 * len(METHODS)
    assert {row["k"] for row in found.rows} == {5}
    assert all(0 <= row["nmi"] <= row["acc"] + 1 <= 2 for row in found.rows)
    assert all(len(row["features"]) == 5 for row in found.rows)


def test_on_average_semfs_beats_random_variance_and_anova_on_the_cells():
    rows = run_demo(10, 6).rows

    def mean(method):
        values = [row["acc"] for row in rows if row["method"] == method and row["k"] == 10]
        return sum(values) / len(values)

    assert mean("semfs") > max(mean("variance"), mean("anova")) > mean("random")


def test_chosen_genes_are_named_with_what_they_speak_of():
    genes = chosen_genes(load_sample("blood"), 10)
    assert genes[0].name == "CST3"
    assert genes[0].attribute == "+ myeloid"
    assert sum(gene.share for gene in genes) == pytest.approx(1.0)
