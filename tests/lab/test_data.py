"""Data sets by name, from folders and from files, and their class splits."""

from collections import Counter

import numpy as np
import pandas as pd
import pytest

from semfs.datasets import ZeroShotDataset, load_sample
from semfs.lab.data import find_data, open_data
from semfs.lab.splits import (
    SplitData,
    class_splits,
    listed_splits,
    random_splits,
    synthetic_data,
)


@pytest.fixture(scope="module")
def sample() -> ZeroShotDataset:
    return load_sample("lining")


def ten_classes(name, unseen=()):
    """A data set with two samples of each of ten classes."""
    classes = [f"c{i}" for i in range(10)]
    table = pd.DataFrame({"a": np.arange(10.0)}, index=classes)
    return ZeroShotDataset(name, np.zeros((20, 2)), classes * 2, table, unseen)


# ---- class splits ----------------------------------------------------------------------------


def test_listed_splits_have_names_and_random_ones_as_many_unseen_classes_as_asked_for():
    data = load_sample()
    classes = data.classes.tolist()
    lists = [classes[:2], classes[3:6]]
    splits = listed_splits(data, lists)
    assert splits == {"listed-0": lists[0], "listed-1": lists[1]}
    with pytest.raises(ValueError, match=r"splits\[1\] has .* 1 unseen"):
        listed_splits(data, [classes[:2], classes[:1]])
    with pytest.raises(ValueError, match="list of lists"):
        listed_splits(data, [])
    drawn = random_splits(data, 3, 0, n_unseen=4)
    assert {len(unseen) for unseen in drawn.values()} == {4}
    with pytest.raises(ValueError, match=f"Use {len(classes) - 2} or less"):
        random_splits(data, 1, 0, n_unseen=len(classes))


def test_cifar10_has_45_splits_of_two_seen_classes_and_fewer_are_the_first_of_them():
    data = ten_classes("cifar10_small")
    splits = class_splits(data)
    assert len(splits) == 45
    assert {len(unseen) for unseen in splits.values()} == {8}
    assert list(class_splits(data, 5)) == list(splits)[:5]
    assert list(class_splits(data, fast=True)) == list(splits)[:2]
    assert any(not name.startswith("c0+") for name in list(splits)[:5])


def test_a_data_set_without_a_split_has_random_ones():
    data = ten_classes("things")
    sizes = {name: len(unseen) for name, unseen in class_splits(data, 3).items()}
    assert sizes == {"random-0": 3, "random-1": 3, "random-2": 3}
    assert len(class_splits(data)) == 5
    assert len(class_splits(data, fast=True)) == 2


def test_a_data_set_with_a_split_has_that_one_and_as_many_random_ones_as_asked_for():
    data = ten_classes("things", ["c1", "c4"])
    assert class_splits(data) == {"given": ["c1", "c4"]}
    assert class_splits(data, fast=True) == {"given": ["c1", "c4"]}
    assert class_splits(data, 1) == {"given": ["c1", "c4"]}
    splits = class_splits(data, 3)
    assert list(splits) == ["given", "random-0", "random-1"]
    assert {len(unseen) for unseen in splits.values()} == {2}
    assert list(class_splits(data, 5).items())[:3] == list(splits.items())


# ---- samples of a split ----------------------------------------------------------------------


def test_a_share_of_each_class_is_drawn_anew_with_every_seed(sample):
    split = SplitData.of(sample)
    half = split.with_ratio(0.5, 0)
    other = split.with_ratio(0.5, 1)
    counts = Counter(split.y.tolist())
    assert Counter(half.y.tolist()) == {label: -(-n // 2) for label, n in counts.items()}
    assert not np.array_equal(half.X, other.X)
    assert split.with_ratio(1.0, 0) is split
    tenth = split.with_ratio(0.001, 0)
    assert set(Counter(tenth.y.tolist()).values()) == {2}


def test_half_of_each_unseen_class_may_be_seen_unlabeled_and_the_other_is_clustered(sample):
    split = SplitData.of(sample)
    halved = split.with_unlabeled_half(0)
    counts = Counter(split.y_unseen.tolist())
    clustered = Counter(halved.y_unseen.tolist())
    assert clustered == {label: -(-n // 2) for label, n in counts.items()}
    assert len(halved.X_unlabeled) == len(split.y_unseen) - len(halved.y_unseen)
    both = np.vstack([halved.X_unseen, halved.X_unlabeled])
    assert_same_rows(both, split.X_unseen)
    again = split.with_unlabeled_half(0)
    np.testing.assert_array_equal(again.X_unlabeled, halved.X_unlabeled)
    other_split = SplitData.of(sample, "random-0").with_unlabeled_half(0)
    assert not np.array_equal(other_split.X_unlabeled, halved.X_unlabeled)


def assert_same_rows(A, B):
    np.testing.assert_array_equal(A[np.lexsort(A.T)], B[np.lexsort(B.T)])


def test_synthetic_data_have_the_size_asked_for_and_no_unseen_samples():
    split = synthetic_data(60, 6, seed=0, n_classes=3)
    assert split.X.shape == (60, 6)
    assert Counter(split.y.tolist()) == {0: 20, 1: 20, 2: 20}
    assert len(split.y_unseen) == 0


# ---- data sets by name -----------------------------------------------------------------------


def test_data_sets_are_the_npz_files_with_x_y_and_a(tmp_path):
    arrays = {"X": np.eye(4), "y": [0, 1, 2, 3], "A": np.eye(4)}
    np.savez(tmp_path / "farm.npz", **arrays)
    np.savez(tmp_path / "zoo.npz", **arrays)
    np.savez(tmp_path / "vectors.npz", A=np.eye(3))
    (tmp_path / "broken.npz").write_text("not a zip file")
    assert list(find_data(tmp_path)) == ["farm", "zoo"]
    assert list(find_data(tmp_path, ["ZO", "lining"])) == ["zoo", "lining"]
    assert list(find_data(None)) == ["sample"]
    with pytest.raises(ValueError, match=r"no data set 'sun'. Found: farm, zoo"):
        find_data(tmp_path, ["sun"])
    with pytest.raises(ValueError, match="not a directory"):
        find_data(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no data set"):
        find_data(tmp_path / "empty")


def test_a_folder_of_tables_is_refused_with_the_format_that_is_expected(tmp_path):
    pd.DataFrame({"a": [1.0]}).to_csv(tmp_path / "cells.csv")
    with pytest.raises(ValueError, match="holds no data set") as error:
        find_data(tmp_path)
    message = str(error.value)
    assert "arrays 'X' (samples × features), 'y' (number of the class" in message
    assert "'A' (classes × attributes)" in message
    assert f"semfs evaluate {tmp_path / 'cells.csv'} --label" in message


def test_options_of_files_are_refused_for_names():
    with pytest.raises(ValueError, match=r"'foo' is not a file, .* Known data sets: sample"):
        open_data("foo", label="kind")


def test_benchmarks_are_found_by_name_or_said_to_be_absent(tmp_path, monkeypatch):
    (tmp_path / "CUB").mkdir()
    (tmp_path / "aPY_annotations").mkdir()
    names = "apascal_train apascal_test ayahoo_test attribute_names class_names"
    files = [f"aPY_annotations/{name}.txt" for name in names.split()]
    for name in [*files, "CUB/res101.mat", "CUB/att_splits.mat"]:
        (tmp_path / name).touch()
    assert list(find_data(tmp_path)) == ["CUB"]
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    for name, said in {
        "cub": r"CUB.*att_splits.mat",  # found, and empty
        "awa2": "AWA2 was not found",
        "smaple": "did you mean 'sample'",
        "aPY": r"was found in .*features must be computed",
    }.items():
        with pytest.raises(ValueError, match=said):
            open_data(name)
