"""Measures beside ACC and NMI, and those of the user."""

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from typer.testing import CliRunner

from semfs.cli import app
from semfs.datasets import load_sample
from semfs.evaluation import starting_rows
from semfs.evaluation.scores import run_kmeans
from semfs.lab.comparison import metrics_of
from semfs.lab.confusion import seen_confusion
from semfs.lab.evaluate import evaluate
from semfs.lab.report import write_for_print
from semfs.lab.sections import build_sections
from semfs.lab.splits import SplitData

MODULE = """
def spread(X, y):
    return float(X.var())

def broken(X, y):
    return float("nan")

def of_samples_alone(X):
    return 1.0

def of_three(X, y, clusters):
    return 1.0

def nothing_returned(X, y):
    pass

def with_options(X, y, p=2, *, scale=1.0):
    return 1.0

acc = spread
constant = 3
"""


@pytest.fixture
def own_module(tmp_path, monkeypatch):
    (tmp_path / "own_metrics_of_a_test.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return "own_metrics_of_a_test"


def run(**options):
    sample = load_sample()
    return evaluate(sample, ["variance", "random"], ks=[5], n_repeats=3, n_jobs=1, **options)


def test_ari_and_neighbors_are_those_of_scikit_learn_on_the_same_clusters():
    rows, summary = run()
    assert summary.failures == []
    row = next(row for row in rows if row["method"] == "variance")
    split = SplitData.of(load_sample())
    columns = [split.feature_names.tolist().index(name) for name in row["features"]]
    X = np.ascontiguousarray(split.X_unseen[:, columns], dtype=float)
    n_classes = len(set(split.y_unseen))
    starts = starting_rows(len(X), n_classes, 3, 0)
    found = [adjusted_rand_score(split.y_unseen, c) for c in run_kmeans(X, starts, n_classes)]
    assert row["ari"] == pytest.approx(np.mean(found))
    assert row["ari_sd"] == pytest.approx(np.std(found, ddof=1))
    confusion = seen_confusion(split.X[:, columns], split.y, split.seed(0))
    assert row["knn"] == pytest.approx(confusion.recalls[confusion.n_samples > 0].mean())


def test_random_features_have_all_measures_too():
    rows, _ = run()
    row = next(row for row in rows if row["method"] == "random")
    assert 0 < row["knn"] < 1
    assert row["knn_sd"] > 0
    assert list(metrics_of(rows)) == ["acc", "nmi", "ari", "knn", "zero_shot", "harmonic"]
    assert row["zero_shot_sd"] > 0
    assert row["harmonic_sd"] > 0


def test_ones_own_metric_is_a_column_of_the_rows(own_module):
    rows, summary = run(metrics=[f"{own_module}:spread"])
    assert summary.failures == []
    row = next(row for row in rows if row["method"] == "variance")
    split = SplitData.of(load_sample())
    columns = [split.feature_names.tolist().index(name) for name in row["features"]]
    assert row["spread"] == pytest.approx(float(split.X_unseen[:, columns].var()))
    assert metrics_of(rows)["spread"] == "spread"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", "The metric '.*:nothing' could not be loaded"),
        ("constant", "is not a function"),
        ("acc", "has the same name as a column"),
        ("of_samples_alone", r"takes \(X\), but it is called as metric\(X, y\)"),
        ("of_three", r"takes \(X, y, clusters\), but it is called as metric\(X, y\)"),
    ],
)
def test_metrics_that_cannot_be_used_are_refused_before_the_run(own_module, name, message):
    with pytest.raises(ValueError, match=message):
        run(metrics=[f"{own_module}:{name}"])


def test_a_metric_that_is_no_number_is_a_failure_of_its_job(own_module):
    rows, summary = run(metrics=[f"{own_module}:broken"])
    assert rows == []
    assert "returned nan. It must return a finite number" in summary.failures[0][1]


def test_a_metric_without_a_value_is_named_with_what_it_returned(own_module):
    _, summary = run(metrics=[f"{own_module}:nothing_returned"])
    assert "returned None. It must return a finite number" in summary.failures[0][1]


def test_arguments_with_defaults_are_no_obstacle(own_module):
    rows, summary = run(metrics=[f"{own_module}:with_options"])
    assert summary.failures == []
    assert {row["with_options"] for row in rows} == {1.0}


def test_the_command_prints_ones_own_metric(own_module):
    command = ["evaluate", "sample", "-m", "variance", "-k", "5", "--repeats", "1", "-j", "1"]
    done = CliRunner().invoke(app, [*command, "--metric", f"{own_module}:spread"])
    assert done.exit_code == 0, done.output
    for title in ("ACC on unseen", "ARI on unseen", "k-NN (seen classes)", "spread on unseen"):
        assert title in done.output


def test_the_page_and_its_tables_show_every_measure(own_module, tmp_path):
    rows, summary = run(metrics=[f"{own_module}:spread"])
    titles = list(metrics_of(rows).values())
    parts = build_sections(rows)
    drawn = {panel.y for part in parts for panel in part.panels}
    assert set(titles) <= drawn
    (table,) = (part.standings for part in parts if part.title == "Standings")
    assert {measure for _, measure in table} == set(titles)
    write_for_print(rows, tmp_path, info=summary.info)
    assert "spread" in (tmp_path / "standings.tex").read_text("utf-8")
    (by_k,) = tmp_path.glob("further-measures-*-by-k.tex")
    assert "spread" in by_k.read_text("utf-8")
