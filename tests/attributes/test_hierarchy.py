"""Annotation levels as descriptions, and several sources with the same weight."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from semfs import SemFS
from semfs.attributes import attributes_from_hierarchy, combine_attributes

pd = pytest.importorskip("pandas")


@pytest.fixture
def obs():
    types = ["T cell", "B cell", "club cell", "T cell", "fibroblast", None]
    return pd.DataFrame(
        {
            "compartment": ["immune", "immune", "epithelial", "immune", "stroma", "immune"],
            "lineage": ["lymphoid", "lymphoid", "airway", "lymphoid", None, "myeloid"],
            "type": pd.Categorical(types),
        }
    )


def test_levels_become_nested_indicators(obs):
    table = attributes_from_hierarchy(obs)
    assert table.index.tolist() == ["T cell", "B cell", "club cell", "fibroblast"]
    assert table.columns.tolist() == [
        *("compartment: immune", "compartment: epithelial", "compartment: stroma"),
        *("lineage: lymphoid", "lineage: airway"),
    ]
    assert table.loc["fibroblast"].tolist() == [0, 0, 1, 0, 0]  # no lineage
    assert table.loc["T cell"].tolist() == [1, 0, 0, 1, 0]


def test_levels_that_are_not_nested_are_refused_by_name(obs):
    obs.loc[3, "lineage"] = "airway"
    with pytest.raises(ValueError, match="T cell is in lymphoid and airway"):
        attributes_from_hierarchy(obs)


def test_one_column_is_no_hierarchy(obs):
    with pytest.raises(ValueError, match="at least two"):
        attributes_from_hierarchy(obs[["type"]])
    with pytest.raises(ValueError, match="is empty"):
        attributes_from_hierarchy(obs.assign(type=None))


def sizes(table, names):
    values = table[names].to_numpy()
    return ((values - values.mean(axis=0)) ** 2).sum()


def test_every_source_weighs_alike():
    rng = np.random.default_rng(0)
    classes = ["a", "b", "c", "d"]
    wide = pd.DataFrame(1000 * rng.normal(size=(4, 30)), classes)
    narrow = pd.DataFrame(rng.normal(size=(4, 2)), classes[::-1], ["x", "y"])
    found = combine_attributes([wide, narrow])
    assert_allclose(sizes(found, ["x", "y"]), 1.0)
    assert_allclose(sizes(found, [str(j) for j in range(30)]), 1.0)
    expected = narrow.loc["b", "x"] / np.sqrt(sizes(narrow, ["x", "y"]))
    assert_allclose(found.loc["b", "x"], expected)


def test_equal_names_get_the_number_of_their_table():
    found = combine_attributes([{"a": [1.0], "b": [2.0]}, {"a": [3.0], "b": [0.0]}])
    assert found.columns.tolist() == ["a0", "a0 (2)"]


def test_only_common_classes_are_described():
    first = {"a": [1.0], "b": [2.0], "c": [0.0]}
    second = {"c": [1.0], "a": [0.0]}
    assert combine_attributes([first, second]).index.tolist() == ["a", "c"]
    with pytest.raises(ValueError, match="no row for class 'b'"):
        combine_attributes([first, second], ["a", "b"])
    with pytest.raises(ValueError, match="no class in common"):
        combine_attributes([first, {"z": [1.0]}])
    with pytest.raises(ValueError, match="at least one"):
        combine_attributes([])


def test_a_table_that_says_nothing_does_not_disturb():
    found = combine_attributes([{"a": [1.0], "b": [1.0]}, {"a": [1.0], "b": [0.0]}])
    assert np.isfinite(found.to_numpy()).all()


# ---- the command ----------------------------------------------------------------------


@pytest.fixture
def plants(tmp_path, monkeypatch):
    """A table with two levels above the label, one of them of numbers."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat(["oak", "elm", "fir", "yew"], 15)
    frame = pd.DataFrame(rng.normal(size=(60, 5)), columns=list("vwxyz"))
    frame.loc[y == "oak", "v"] += 4
    frame.loc[np.isin(y, ["fir", "yew"]), "w"] += 4
    frame["zone"] = np.where(np.isin(y, ["oak", "fir"]), 1, 2)
    frame["leaf"] = np.where(np.isin(y, ["fir", "yew"]), "needle", "broad")
    frame["tree"] = y
    frame.to_csv("plants.csv", index=False)
    pd.DataFrame({"height": [30, 20, 50, 10]}, ["oak", "elm", "fir", "yew"]).to_csv("tall.csv")
    return frame


def test_columns_of_the_data_describe_classes(plants, invoke):
    invoke("select", "plants.csv", "-l", "tree", "-a", "zone,leaf", "-k", 2, "-o", "o.csv")
    table = pd.read_csv("o.features.csv")
    assert set(table["feature"]) == set("vwxyz")  # levels are no features
    levels = plants[["zone", "leaf", "tree"]]
    expected = SemFS(2, attributes_from_hierarchy(levels)).fit(
        plants[list("vwxyz")], levels.tree
    )
    assert_array_equal(
        table["feature"][:2],
        expected.get_feature_names_out()[np.argsort(expected.ranking_[expected.support_])],
    )


def test_a_column_with_a_comma_in_its_name_is_quoted(plants, invoke):
    renamed = plants.rename(columns={"zone": "zone, old"})
    renamed.to_csv("plants.csv", index=False)
    options = ("-l", "tree", "-k", 2, "-o", "o.csv")
    done = invoke("select", "plants.csv", "-a", '"zone, old", leaf', *options)
    assert "4 classes, 4 attributes" in done.stdout
    done = invoke("select", "plants.csv", "-a", "zone, old", *options, code=2)
    assert "zone does not exist" in done.stderr


def test_several_sources_are_combined(plants, invoke):
    options = ("-l", "tree", "-k", 2, "-o", "o.csv")
    done = invoke("select", "plants.csv", "-a", "tall.csv,leaf,labels", *options)
    assert "4 classes, 7 attributes" in done.stdout
    options = ("-l", "tree", "-m", "semfs", "-k", 2, "--repeats", 1, "--splits", 1, "-j", 1)
    done = invoke("evaluate", "plants.csv", "-a", "tall.csv,leaf", *options)
    assert "SemFS" in done.stdout


def test_what_is_no_column_is_refused(plants, invoke):
    options = ("-l", "tree", "-k", 2, "-o", "o.csv")
    done = invoke("select", "plants.csv", "-a", "leaf,nosuch", *options, code=2)
    assert "nosuch does not exist" in done.stderr
    done = invoke("select", "plants.csv", "-a", "laef", *options, code=2)
    assert "did you mean 'leaf'" in done.stderr
