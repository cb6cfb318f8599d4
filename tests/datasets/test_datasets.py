"""ZeroShotDataset and the bundled samples."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from semfs.datasets import ZeroShotDataset, load_sample

pd = pytest.importorskip("pandas")


def farm(**changes):
    parts = {
        "name": "farm",
        "X": np.arange(12.0).reshape(6, 2),
        "y": ["cat", "ant", "hen", "cat", "cow", "ant"],
        "attributes": pd.DataFrame({"legs": [4, 6, 2, 4]}, index=["cat", "ant", "hen", "cow"]),
        "unseen": ["hen"],
    }
    return ZeroShotDataset(**(parts | changes))


# --- the container ---------------------------------------------------------------------


def test_split_parts_every_row_by_class():
    X_seen, y_seen, X_unseen, y_unseen = farm().split()
    assert_array_equal(y_seen, ["cat", "ant", "cat", "cow", "ant"])
    assert_array_equal(y_unseen, ["hen"])
    assert_array_equal(X_unseen, [[4.0, 5.0]])
    assert X_seen.shape == (5, 2)
    assert_array_equal(farm(scale=True).split()[2], X_unseen / X_seen.std(axis=0))


def test_gaps_are_filled_with_medians_of_seen_samples():
    X_seen, _, X_unseen, _ = farm().split()
    data = farm()
    X = np.array(data.X, dtype=float)
    seen = np.flatnonzero(np.isin(data.y, data.seen))
    unseen = np.flatnonzero(~np.isin(data.y, data.seen))
    X[[seen[0], unseen[0]], 1] = np.nan
    filled = replace(data, X=X, impute=True).split()
    median = np.median(X_seen[1:, 1])
    assert filled[0][0, 1] == median
    assert filled[2][0, 1] == median
    assert_array_equal(filled[0][1:], X_seen[1:])
    assert_array_equal(filled[2][1:], X_unseen[1:])


@pytest.mark.parametrize("form", ["csr_array", "csc_array", "coo_matrix"])
def test_sparse_x_stays_sparse_and_splits_like_dense(form):
    data = farm(X=getattr(sparse, form)(np.arange(12.0).reshape(6, 2)))
    for ours, dense in zip(data.split()[::2], farm().split()[::2]):
        assert sparse.issparse(ours)
        assert_array_equal(ours.toarray(), dense)


@pytest.mark.parametrize("labels", [[3, 1, 2], [(1, "a"), (1, "b"), (2, "a")], [True, False]])
def test_labels_of_any_hashable_type(labels):
    index = pd.Index(labels, tupleize_cols=False)
    table = pd.DataFrame({"a": range(len(labels))}, index=index)
    data = ZeroShotDataset("t", np.eye(len(labels)), labels, table, unseen=labels[1:2])
    assert data.unseen.tolist() == labels[1:2]
    assert data.split()[3].tolist() == labels[1:2]
    assert data.with_unseen(data.seen[:1]).unseen.tolist() == data.seen[:1].tolist()


def test_random_splits_are_reproducible_and_every_split_takes_each_choice_once():
    def draw(seed):
        return [tuple(s.unseen) for s in farm().random_splits(6, 2, random_state=seed)]

    assert draw(0) == draw(0) != draw(1)
    assert [len(set(unseen)) for unseen in draw(0)] == [2] * 6
    splits = list(farm().every_split(n_seen=2))
    assert len(splits) == len({tuple(split.seen) for split in splits}) == 6


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"X": np.zeros(6)}, r"X must have shape \(n_samples, n_features\), got shape \(6,\)"),
        ({"y": ["cat"]}, "X has 6 rows but y has 1 labels"),
        ({"y": ["cat", "ant", "hen", "cat", "cow", None]}, "missing labels"),
        ({"y": ["cat", "ant", "hen", "cat", "cow", "cwo"]}, "no row for class 'cwo'.*'cow'"),
        ({"attributes": {"cat": [1]}}, "attributes must be a pandas DataFrame.*got dict"),
        (
            {"attributes": pd.DataFrame({"a": [1, 2]}, index=["cat", "cat"])},
            "more than one row",
        ),
        ({"unseen": ["dog"]}, "unseen names class 'dog', which has no samples.*'ant'"),
        ({"unseen": ["hen", "hen"]}, "unseen names class 'hen' more than once"),
        (
            {"unseen": "hen"},
            r"unseen must be a list of class labels, got text. Write \['hen'\]",
        ),
        ({"unseen": ["cat", "ant", "hen", "cow"]}, "all 4 classes are unseen"),
        ({"feature_names": ["a"]}, "X has 2 columns, but there are 1 feature names"),
        ({"feature_names": ["a", "a"]}, "feature_names has 'a' more than once"),
    ],
)
def test_bad_parts_are_refused_with_advice(changes, message):
    with pytest.raises(ValueError, match=message):
        farm(**changes)


# --- the bundled cells -----------------------------------------------------------------


def test_lung_has_the_documented_shape_and_split():
    lung = load_sample()
    assert (lung.X.shape, lung.X.dtype) == ((964, 2000), np.float32)
    assert (len(lung.seen), len(lung.unseen)) == (12, 7)
    X_seen, _, X_unseen, _ = lung.split()
    assert (len(X_seen), len(X_unseen)) == (262, 702)
    assert np.unique(lung.y, return_counts=True)[1].min() == 8
    assert lung.feature_names.tolist() == sorted(set(lung.feature_names))
    assert not any("ENSG" in name for name in lung.feature_names)


def test_lung_attributes_are_ancestors_that_some_types_have():
    lung = load_sample()
    table = lung.attributes
    assert table.shape == (19, 56)
    assert table.index.tolist() == lung.classes.tolist()
    assert table.columns.is_unique
    assert set(np.unique(table)) == {0.0, 1.0}
    assert (table.nunique() == 2).all()
    assert not set(table.columns) & set(lung.classes)  # no type is told by its own name
    assert (table["T cell"] <= table["lymphocyte"]).all()  # who has a term has those above
    assert (table["lymphocyte"] <= table["leukocyte"]).all()
    immune = [lung.info["compartments"][name] == "immune" for name in table.index]
    assert_array_equal(table["leukocyte"], immune)


def test_lining_is_a_part_of_the_lung():
    lung = load_sample()
    lining = load_sample("lining")
    assert (lining.X.shape, lining.X.dtype) == ((449, 800), np.float32)
    assert (len(lining.seen), len(lining.unseen)) == (6, 4)
    assert set(lining.unseen) == set(lung.unseen) & set(lining.classes)
    X_seen, y_seen, X_unseen, y_unseen = lining.split()
    assert (len(X_seen), len(X_unseen)) == (140, 309)
    assert (set(y_seen), set(y_unseen)) == (set(lining.seen), set(lining.unseen))
    genes = [lung.feature_names.tolist().index(name) for name in lining.feature_names]
    cells = np.isin(lung.y, lining.classes)
    assert_array_equal(lining.X, lung.X[cells][:, genes])


def test_lining_attributes_separate_all_types_and_none_is_constant():
    lining = load_sample("lining")
    table = lining.attributes
    assert set(table.index) == set(lining.classes)
    assert not table.duplicated().any()
    assert (table.nunique() > 1).all()
    assert not table.T.duplicated().any()  # no fact is said twice
    assert set(np.unique(table)) == {0.0, 0.5, 1.0}
    assert not table.loc[lining.seen].duplicated().any()


def test_the_blood_cells_of_earlier_versions_are_refused_with_a_reason():
    with pytest.raises(ValueError, match=r"no open license.*lining"):
        load_sample("blood")
