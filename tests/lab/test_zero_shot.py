"""Zero-shot prediction with the features of any method."""

import csv
import json

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array

from semfs import SemFS
from semfs.attributes import AttributeTable
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.lab.confusion import Confusion, held_out_samples, seen_confusion
from semfs.lab.detail_sections import detail_sections
from semfs.lab.evaluate import evaluate
from semfs.lab.report import write_csv
from semfs.lab.splits import SplitData
from semfs.lab.zero_shot import ZeroShot, is_described, zero_shot


def described(n_seen=12, n_unseen=4, per_class=20, n_noise=3):
    """Classes whose means are their attributes, beside features that are noise."""
    rng = np.random.default_rng(0)
    C = n_seen + n_unseen
    A = rng.normal(size=(C, 5))
    y = np.repeat(np.arange(C), per_class)
    X = np.hstack([8 * A[y] + rng.normal(size=(len(y), 5)), rng.normal(size=(len(y), n_noise))])
    data = ZeroShotDataset("toy", X, y, pd.DataFrame(A), np.arange(n_seen, C))
    return SplitData.of(data)


def test_features_that_follow_the_descriptions_predict_unseen_classes():
    split = described()
    good = zero_shot(split, np.arange(5), 0)
    assert good.accuracy > 0.9
    assert good.harmonic_mean > 0.8
    noise = zero_shot(split, np.array([5, 6, 7]), 0)
    assert noise.accuracy < 0.5
    assert noise.harmonic_mean < 0.3


def test_every_unseen_and_every_held_out_sample_is_counted_once():
    split = described()
    found = zero_shot(split, np.arange(5), 0)
    assert found.unseen.n_samples.tolist() == [20] * 4
    assert found.everything.n_samples.tolist() == [6] * 12 + [20] * 4
    assert found.is_unseen.tolist() == [False] * 12 + [True] * 4
    neighbors = seen_confusion(split.X[:, :5], split.y, split.seed(0))
    assert neighbors.n_samples.tolist() == [6] * 12
    assert found.everything.classes == [str(label) for label in range(16)]


def test_predictions_are_those_of_semfs_with_these_features():
    data = load_sample("lining")
    split = SplitData.of(data)
    features = np.array([3, 40, 17, 100, 8, 61])
    found = zero_shot(split, features, 0)
    codes = pd.factorize(split.y, sort=True)[0]
    held_out = held_out_samples(codes, split.seed(0))
    frame = pd.DataFrame(split.X, columns=split.feature_names)
    selector = SemFS(
        6, data.attributes, candidates=split.names_of(features), max_correlation=None
    ).fit(frame[~held_out], split.y[~held_out])
    unseen = pd.DataFrame(split.X_unseen, columns=split.feature_names)
    labels = selector.predict(unseen, data.attributes.loc[np.unique(split.y_unseen)])
    recalls = [np.mean(labels[split.y_unseen == c] == c) for c in np.unique(split.y_unseen)]
    assert_allclose(found.unseen.recalls, recalls)
    assert found.accuracy == pytest.approx(np.mean(recalls))


def test_sparse_samples_and_classes_of_one_sample_can_be_predicted():
    split = described()
    dense = zero_shot(split, np.arange(5), 0)
    sparse = SplitData(
        csr_array(split.X),
        split.y,
        split.attributes,
        csr_array(split.X_unseen),
        split.y_unseen,
        split.feature_names,
    )
    assert_allclose(zero_shot(sparse, np.arange(5), 0).unseen.table, dense.unseen.table)
    single = split.keep_samples(np.flatnonzero((split.y > 0) | (np.arange(len(split.y)) == 0)))
    found = zero_shot(single, np.arange(5), 0)
    assert found.everything.n_samples[0] == 0
    assert 0 < found.seen_accuracy <= 1  # a class without held-out samples does not count
    assert "0" not in found.recalls()["seen"]


def test_two_seen_classes_and_a_single_feature_are_enough():
    split = described(n_seen=2, n_unseen=2)
    found = zero_shot(split, np.array([0]), 0)
    assert 0 <= found.accuracy <= 1
    assert 0 <= found.harmonic_mean <= 1


def test_the_harmonic_mean_is_zero_if_one_kind_is_never_right():
    nothing = Confusion(["a", "b"], np.array([[2.0, 0.0], [3.0, 0.0]]))
    found = ZeroShot(nothing, nothing, np.array([False, True]))
    assert (found.seen_accuracy, found.unseen_accuracy) == (1, 0)
    assert found.harmonic_mean == 0
    assert found.recalls() == {"seen": {"a": 1.0}, "unseen": {"b": 0.0}}


def test_labels_alone_do_not_describe_unseen_classes():
    assert not is_described(pd.DataFrame(np.eye(4)))
    assert is_described({"a": [1.0], "b": [2.0]})
    rng = np.random.default_rng(0)
    y = np.arange(80) % 8
    data = ZeroShotDataset("toy", rng.normal(size=(80, 4)), y, pd.DataFrame(np.eye(8)))
    options = {"ks": [2], "n_repeats": 1, "n_jobs": 1, "n_splits": 1, "details": True}
    (row,), summary = evaluate(data, ["variance"], **options)
    assert "zero_shot" not in row
    assert "recalls" not in row["extra"]
    assert summary.details[0].zero_shot is None
    titles = [section.title for section in detail_sections(summary.details)]
    assert not any("Zero-shot" in title or "Predicted" in title for title in titles)


def test_rows_files_and_pages_have_the_results(tmp_path):
    data = load_sample("lining")
    options = {"ks": [3, 6], "n_repeats": 2, "n_jobs": 1, "details": True}
    rows, summary = evaluate(data, ["variance", "random"], **options)
    few, many, *_ = (row for row in rows if row["method"] == "variance")
    (details,) = summary.details
    found = details.zero_shot
    assert many["zero_shot"] == pytest.approx(found.accuracy)
    assert many["harmonic"] == pytest.approx(found.harmonic_mean)
    assert "recalls" not in few["extra"]
    recalls = many["extra"]["recalls"]
    assert recalls["k"] == 6
    assert set(recalls["unseen"]) == {str(label) for label in data.unseen}
    assert np.mean(list(recalls["unseen"].values())) == pytest.approx(found.unseen_accuracy)

    with write_csv(rows, tmp_path / "rows.csv").open(newline="", encoding="utf-8") as file:
        written = list(csv.DictReader(file))
    line = next(row for row in written if row["method"] == "variance" and row["k"] == "6")
    assert float(line["zero_shot"]) == many["zero_shot"]
    assert float(line["knn"]) == many["knn"]
    assert json.loads(line["extra"])["recalls"] == recalls

    sections = {section.title: section for section in detail_sections(summary.details)}
    table = sections["Zero-shot prediction"].table
    assert table.rows[0][:2] == ["Variance", pytest.approx(found.accuracy)]
    every = sections["Predicted classes: Variance"].panels[1]
    assert len(every.series) == len(AttributeTable.from_any(data.attributes).classes)
    assert "Variance, predicted" in sections["Recall of each class"].table.columns


def test_the_page_shows_zero_shot_prediction(tmp_path, invoke, monkeypatch):
    pytest.importorskip("plotly")
    monkeypatch.chdir(tmp_path)
    options = ("-m", "variance", "-k", 5, "--repeats", 1, "-j", 1, "-o", "page.html")
    done = invoke("evaluate", "lining", *options)
    printed = " ".join(done.stdout.split())  # titles of narrow tables are wrapped
    assert "zero-shot accuracy on unseen classes" in printed
    assert "harmonic mean (seen and unseen classes compete)" in printed
    text = (tmp_path / "page.html").read_text("utf-8")
    assert "<strong>Zero-shot accuracy</strong>" in text
    for title in ("Zero-shot accuracy: ", "Zero-shot prediction", "Predicted classes: Var"):
        assert f">{title}" in text
