"""The demo tells its story on the bundled cells."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")
pytest.importorskip("typer")
from matplotlib import image
from typer.testing import CliRunner

from semfs.cli import app
from semfs.lab.demo import LINES, OURS, run_demo
from semfs.lab.sections import colors


@pytest.fixture(scope="module")
def demo():
    return run_demo(10, 2)


@pytest.mark.slow
def test_the_demo_prints_genes_scores_and_leads_and_writes_a_page_and_a_picture(tmp_path):
    done = CliRunner().invoke(app, ["demo", "--splits", "1", "--out", str(tmp_path / "new")])
    assert done.exit_code == 0, done.output
    for text in ("Never labeled", "Selected genes", "NMI on unseen classes", "Lead of", *LINES):
        assert text in done.output
    page = (tmp_path / "new" / "report.html").read_text()
    assert "S100A9" in page
    assert "Selected genes by cell type" in page
    picture = image.imread(tmp_path / "new" / "demo.png")[..., :3]
    picture = (255 * picture).round().astype(int)
    curves, dots = np.split(picture, [int(0.4 * picture.shape[1])], axis=1)
    ours = [int(colors(LINES)[OURS][i : i + 2], 16) for i in (1, 3, 5)]
    assert (curves == ours).all(axis=2).any()
    assert (dots == ours).all(axis=2).any()  # names of the types that were never labeled
    assert len(np.unique(dots.reshape(-1, 3), axis=0)) > 100  # shades of expression


def test_every_line_is_scored_on_every_split_and_k(demo):
    assert len(demo.rows) == 2 * len(LINES) * 4
    assert {row["k"] for row in demo.rows} == {5, 10, 20, 50}
    for row in demo.rows:
        if row["label"] in ("All genes (reference)", "Random"):
            assert row["features"] == []
        else:
            assert len(row["features"]) == row["k"]


def test_few_genes_beat_chance_and_all_genes_are_the_same_for_every_k(demo):
    def mean(label):
        values = [row["nmi"] for row in demo.rows if row["label"] == label]
        return sum(values) / len(values)

    assert mean(OURS) > mean("Variance") > mean("Random")
    everything = [r["nmi"] for r in demo.rows if r["label"] == "All genes (reference)"]
    assert len(set(everything)) == 2


def test_selected_genes_are_named_with_the_attribute_they_mark(demo):
    assert demo.genes[0][0] == "S100A4"
    assert demo.genes[0][2] == "+ motile cell"
    assert sum(share for _, share, _ in demo.genes) == pytest.approx(1.0)


def test_the_dot_plot_shows_means_and_shares_of_all_types(demo):
    means, shares, types = demo.expression()
    assert means.shape == shares.shape == (19, 10)
    assert types[12:] == demo.data.unseen.tolist()
    cells = demo.data.X[demo.data.y == types[0]]
    gene = demo.data.feature_names.tolist().index(demo.genes[0][0])
    assert means[0, 0] == pytest.approx(cells[:, gene].mean())
    assert shares[0, 0] == pytest.approx((cells[:, gene] > 0).mean())
