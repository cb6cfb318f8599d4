import subprocess
import sys

import pytest
from numpy.testing import assert_allclose
from report_rows import EVIL, NASTY, all_rows, row

from semfs.lab.comparison import curves

pytest.importorskip("matplotlib")
from semfs.lab.plots import FIGURES, draw_curves, plot_clustering, plot_scaling, save_figure


def rows_of(experiment):
    return [r for r in all_rows() if r["experiment"] == experiment]


@pytest.mark.parametrize("experiment", FIGURES)
@pytest.mark.parametrize(
    "kind, start", [("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")]
)
def test_every_experiment_has_a_figure_in_every_format(experiment, kind, start, tmp_path):
    path = save_figure(FIGURES[experiment](rows_of(experiment)), tmp_path / f"figure.{kind}")
    assert path.read_bytes().startswith(start)
    assert [file.name for file in tmp_path.iterdir()] == [f"figure.{kind}"]


def test_clustering_has_a_column_per_data_set_and_a_line_per_method():
    rows = rows_of("clustering")
    figure = plot_clustering(rows)
    assert [ax.get_title() for ax in figure.axes] == ["apy", "animals31", "cifar10", "", "", ""]
    assert [ax.get_ylabel() for ax in figure.axes] == ["ACC"] * 3 + ["NMI"] * 3
    cifar = curves([r for r in rows if r["dataset"] == "cifar10"], "nmi")
    drawn = {line.get_label(): line for line in figure.axes[5].lines}
    assert set(drawn) == set(cifar)
    assert_allclose(drawn["MCFS"].get_ydata(), [point.mean for point in cifar["MCFS"]])


def test_a_method_and_its_oracle_share_the_colour_but_not_the_line():
    drawn = {
        line.get_label(): line for line in plot_clustering(rows_of("clustering")).axes[0].lines
    }
    fixed, oracle = drawn["MCFS"], drawn["MCFS (oracle)"]
    assert fixed.get_color() == oracle.get_color()
    assert fixed.get_linestyle() != oracle.get_linestyle()


def test_alpha_is_drawn_on_a_logarithmic_axis():
    assert FIGURES["alpha"](rows_of("alpha")).axes[0].get_xscale() == "log"


def test_scaling_without_a_sweep_of_features_shows_one_panel():
    rows = [row("SemFS", 0.0, seconds=n / 1000, extra={"n": n, "d": 10}) for n in (100, 200)]
    assert [ax.get_visible() for ax in plot_scaling(rows).axes] == [True, False]


@pytest.mark.parametrize("name", [*NASTY, "_hidden", "$\\frac{$"])
def test_any_name_can_be_drawn_as_it_is(name, tmp_path):
    figure = plot_clustering([row(name, 0.5, k=k, dataset=name) for k in (5, 10)])
    (text,) = figure.legends[0].get_texts()
    assert text.get_text().strip().replace("\\$", "$") == name
    save_figure(figure, tmp_path / "figure.svg")


def test_svg_holds_no_script(tmp_path):
    rows = [row(EVIL, 0.5, dataset=EVIL)]
    assert b"<script" not in save_figure(plot_clustering(rows), tmp_path / "f.svg").read_bytes()


def test_figures_are_the_same_bytes_every_time(tmp_path):
    rows = rows_of("alpha")
    paths = [
        save_figure(FIGURES["alpha"](rows), tmp_path / name) for name in ("a.svg", "b.svg")
    ]
    assert paths[0].read_bytes() == paths[1].read_bytes()


def test_other_formats_are_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(ValueError, match=r"Use \.svg"):
        save_figure(plot_clustering([row("SemFS", 0.5)]), tmp_path / "figure.doc")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("experiment", sorted(set(FIGURES) - {"scaling"}))
def test_no_rows_are_refused(experiment):
    with pytest.raises(ValueError, match="no rows to draw"):
        FIGURES[experiment]([])


def test_own_axes_can_be_used():
    from matplotlib.figure import Figure

    ax = Figure().subplots()
    draw_curves(
        ax, [row("SemFS", 0.4, split=s, k=k) for s in "01" for k in (5, 10)], spread=True
    )
    assert ax.get_ylabel() == "ACC"
    assert len(ax.lines) == 1


def test_importing_the_module_does_not_import_matplotlib():
    code = "import sys, semfs.lab.plots; sys.exit('matplotlib' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
