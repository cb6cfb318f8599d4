"""Given panels, recalls, confusions, and what is lost when features fail."""

import re

import numpy as np
import pytest
from numpy.testing import assert_allclose

from semfs.datasets import load_sample
from semfs.evaluation import cluster_scores
from semfs.io.safety import FileError
from semfs.lab.confusion import seen_confusion, unseen_confusion
from semfs.lab.details import details_of, robustness
from semfs.lab.evaluate import evaluate
from semfs.lab.methods import panel_method
from semfs.lab.panels import read_panel
from semfs.lab.splits import SplitData

pytest.importorskip("pandas")
GENES = ["CD3D", "CD19", "IGHV, heavy", "LYZ"]


@pytest.mark.parametrize(
    ("text", "found", "missing"),
    [
        ("LYZ\nCD19\n", ["LYZ", "CD19"], []),
        ("\ufeffgene\r\nLYZ\r\n\r\nCD19\r\nLYZ\r\n", ["LYZ", "CD19"], []),
        ("rank;gene;price\n1;LYZ;3\n2;NKG7;4\n", ["LYZ"], ["NKG7"]),
        ("rank\tgene\n1\tLYZ\n2\tCD19\n", ["LYZ", "CD19"], []),
        ("IGHV, heavy\nLYZ\n", ["IGHV, heavy", "LYZ"], []),
        # what `semfs select` writes names all features
        ("rank,feature,selected\n1,LYZ,True\n2,CD19,False\n", ["LYZ"], []),
        # one gene of the panel is not in the data, nor is a gene that was not selected
        ("feature,selected\nLYZ,True\nNKG7,true\nXYZ,false\n", ["LYZ"], ["NKG7"]),
        # a table may use the word for something else
        ("feature,selected\nLYZ,2024\nCD19,2025\n", ["LYZ", "CD19"], []),
        ('rank,gene\n1,"IGHV, heavy"\n2,LYZ\n', ["IGHV, heavy", "LYZ"], []),
    ],
)
def test_panels_are_read_as_people_write_them(tmp_path, text, found, missing):
    path = tmp_path / "panel.csv"
    path.write_bytes(text.encode())
    assert read_panel(path, GENES) == (found, missing)


def test_a_panel_of_other_names_is_refused(tmp_path):
    path = tmp_path / "ids.txt"
    path.write_text("ENSG1\nENSG2\n")
    with pytest.raises(FileError, match="none of its 2 names, such as"):
        read_panel(path, GENES)
    path.write_text("\n")
    with pytest.raises(FileError, match="is empty"):
        read_panel(path, GENES)


def separable():
    """Three unseen classes by two features; the third is noise, the fourth a copy."""
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 30)
    X = rng.normal(size=(90, 4))
    X[y == 1, 0] += 30
    X[y == 2, 1] += 30
    X[:, 3] = X[:, 1]
    names = np.array(["a", "b", "noise", "copy"], dtype=object)
    return SplitData(X, y, {0: [0.0], 1: [1.0], 2: [2.0]}, X, y, names)


def test_the_feature_that_hurts_most_is_named():
    found = robustness(separable(), np.arange(4), seed=0)
    assert found.worst_feature == "a"  # b has a copy, noise is nothing
    assert found.worst_loss > 0.1
    assert found.losses[1] < found.losses[3]
    assert 5 not in found.losses  # there are four features
    assert robustness(separable(), np.arange(1), seed=0) is None


def test_groups_fail_as_a_whole():
    data = separable()
    groups = {"b": "device", "copy": "device"}
    found = robustness(data, np.arange(4), 0, groups)
    assert found.of_groups
    assert 3 not in found.losses  # a, noise and the device
    # one by one, b and its copy replace each other
    assert robustness(data, np.array([1, 2, 3]), 0).worst_loss < 0.05
    together = robustness(data, np.array([1, 2, 3]), 0, groups)
    assert together.worst_feature == "device"
    assert together.worst_loss > 0.3
    assert robustness(data, np.array([1, 3]), 0, groups) is None


def test_losses_are_seeded_and_paired():
    first = robustness(separable(), np.arange(4), seed=0)
    again = robustness(separable(), np.arange(4), seed=0)
    assert first.losses == again.losses
    same = robustness(separable(), np.array([1, 3]), seed=0)
    assert same.losses[1] == pytest.approx(0, abs=0.05)  # a copy replaces the other


def test_confusions_count_every_sample_once():
    split = separable()
    starts = np.array([[0, 30, 60], [1, 31, 61]])
    unseen = unseen_confusion(split.X_unseen[:, :2], split.y_unseen, starts)
    accuracies, _ = cluster_scores(split.X_unseen[:, :2], split.y_unseen, starts=starts)
    assert_allclose(np.diag(unseen.table).sum() / 90, accuracies.mean())
    assert unseen.n_samples.tolist() == [30, 30, 30]
    seen = seen_confusion(split.X[:, :2], split.y, 0)
    assert seen.n_samples.tolist() == [9, 9, 9]  # a third is held out
    assert seen.recalls.tolist() == [1, 1, 1]
    blind = seen_confusion(split.X[:, [2]], split.y, 0)
    assert blind.recalls.mean() < 0.7


def test_a_class_of_one_sample_has_none_to_hold_out():
    split = separable()
    y = split.y.copy()
    y[0] = 7
    assert seen_confusion(split.X, y, 0).n_samples.tolist()[-1] == 0


def test_details_are_those_of_each_method_and_split():
    data = load_sample("lining")
    panel = panel_method("mine", list(data.feature_names[:6]))
    rows, summary = evaluate(
        data, ["variance", "random", panel], ks=[3, 6], n_repeats=2, n_jobs=1, details=True
    )
    found = {details.label: details for details in summary.details}
    assert set(found) == {"Variance", "mine"}  # random draws are no panel
    assert found["mine"].k == 6
    row = next(row for row in rows if row["label"] == "mine" and row["k"] == 6)
    recognized = np.diag(found["mine"].unseen.table).sum()
    assert_allclose(recognized / found["mine"].unseen.n_samples.sum(), row["acc"])
    assert details_of(data, {}, []) == []


def test_the_command_judges_panels(tmp_path, invoke, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    names = load_sample("lining").feature_names
    (tmp_path / "mine.txt").write_text("\n".join([*names[:7], "NOSUCH"]))
    options = ("-m", "variance", "-k", 5, "--repeats", 1, "-j", 1, "-o", "page.html")
    done = invoke("evaluate", "lining", "--panel", "mine.txt", *options)
    assert "mine" in done.stdout
    assert " 7 " in done.stdout  # the whole panel, too
    assert "1 of 8 features are not in the data and were left out: NOSUCH" in done.stderr
    assert "Scores at 7 features: the data have 7 features of mine" in done.stderr
    assert "No score of mine" not in done.stderr
    text = (tmp_path / "page.html").read_text("utf-8")
    for title in ("Recall of each class", "When features fail", "Confusions: mine"):
        assert f">{title}</h2>" in text
    assert "Scores at 7 features" in text
    larger = invoke("evaluate", "lining", "--panel", "mine.txt", *options, "-k", "5,7,9,10")
    assert "Scores at 7 features" not in larger.stderr
    assert "No score of mine at 9, 10: it has only 7 features" in larger.stderr
    done = invoke("evaluate", "lining", "--panel", "none.txt", *options, code=2)
    assert "none.txt" in done.stderr


def test_the_command_compares_panels_at_whole_groups_and_lets_groups_fail(
    tmp_path, invoke, monkeypatch
):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    names = [str(name) for name in load_sample("lining").feature_names[:8]]
    rows = [f"{name},d{j // 4}" for j, name in enumerate(names)]
    (tmp_path / "devices.csv").write_text("\n".join(["gene,device", *rows]))
    (tmp_path / "mine.txt").write_text("\n".join(names))
    options = ("-m", "variance", "-k", "2,4,6", "--repeats", 1, "-j", 1, "--groups")
    files = ("evaluate", "lining", "--panel", "mine.txt", "-o", "page.html")
    done = invoke(*files, *options, "devices.csv")
    header = next(line for line in done.stdout.splitlines() if " method " in line)
    assert re.findall(r"\d+", header) == ["4", "8"]
    text = (tmp_path / "page.html").read_text("utf-8")
    assert ">When groups fail</h2>" in text
    assert "worst single group" in text
    assert "regardless of groups and costs" in text
    (tmp_path / "others.csv").write_text("a,b\nc,d\n")
    refused = invoke(*files, *options, "others.csv", code=2)
    assert "--groups: none of the 1 names" in refused.stderr
