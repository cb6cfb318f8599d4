"""What commands say about gaps, infinity, broken numbers and options given twice."""

import json

import numpy as np
import pytest

import semfs

pd = pytest.importorskip("pandas")
pytest.importorskip("typer")
pytest.importorskip("pyarrow")


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A table of 60 samples of three states, in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    y = np.arange(60) % 3
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(3, 5))[y] + rng.normal(size=(60, 5))
    frame = pd.DataFrame(Z, columns=list("abcde"))
    frame["kind"] = np.array(["on", "off", "idle"])[y]
    return frame


def write(frame, name="machine.csv"):
    frame.to_csv(name, index=False)


SELECT = ("select", "machine.csv", "-l", "kind", "-k", 2, "-o", "small.csv")


# ---- gaps -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "impute, filling", [("median", "the median"), ("class-mean", "the mean")]
)
def test_filled_gaps_are_counted(impute, filling, machine, invoke):
    machine.loc[:9, "a"] = np.nan
    machine.loc[:39, "b"] = np.nan
    write(machine)
    stdout = invoke(*SELECT, "--impute", impute).stdout
    assert f"missing values: 50 empty cells of 2 features filled with {filling}" in stdout
    assert "; b is empty in 67% of the samples" in stdout
    write(machine.drop(columns=["a", "b"]))
    assert "missing values" not in invoke(*SELECT, "--impute", impute).stdout


def test_a_feature_without_a_value_in_a_class_is_named(machine, invoke):
    machine.loc[machine["kind"] == "off", "c"] = np.nan
    write(machine)
    options = ("--impute", "median", "--bootstraps", 0, "-o", "panel.html")
    stdout = invoke("panel", "machine.csv", "-l", "kind", "-k", 2, *options).stdout
    assert "c has no value in class off" in stdout
    with open("panel.html", encoding="utf-8") as page:
        assert "c has no value in class off" in page.read()
    refused = invoke(*SELECT, "--impute", "class-mean", code=2).stderr
    assert "There is none for: c (class off)" in refused
    assert "--impute median" in refused


WRITERS = {
    ".csv": lambda frame, path: frame.to_csv(path, index=False),
    ".tsv": lambda frame, path: frame.to_csv(path, index=False, sep="\t"),
    ".xlsx": lambda frame, path: frame.to_excel(path, index=False),
    ".parquet": lambda frame, path: frame.to_parquet(path, index=False),
}


@pytest.fixture
def reading(machine, invoke):
    """The selected features, and one sample without one of them and one that is not."""
    machine.loc[:3, "a"] = np.nan
    write(machine)
    invoke(*SELECT, "--impute", "median", "--save", "panel.npz")
    selected = list(semfs.load("panel.npz").get_feature_names_out())
    other = next(name for name in "abcde" if name not in selected)
    one = machine.drop(columns="kind").iloc[[30]].assign(time="noon", note=None)
    one[[selected[0], other]] = np.nan
    return selected, one


@pytest.mark.parametrize("ending", WRITERS)
@pytest.mark.parametrize("command", ["predict", "transform"])
def test_a_column_without_any_value_is_a_gap(command, ending, reading, invoke):
    selected, one = reading
    WRITERS[ending](one, f"one{ending}")
    done = invoke(command, "panel.npz", f"one{ending}", "-o", "out.csv")
    stderr = " ".join(done.stderr.split())
    assert "1 missing value of selected features, in 1 sample, filled" in stderr
    assert "non-numeric columns: 'time'." in stderr
    if command == "transform":
        found = pd.read_csv("out.csv")
        # what the selector does not know is kept as it is
        assert [*found.columns.drop(selected)] == ["time", "note"]
        fill = semfs.load("panel.npz").fill_values_
        np.testing.assert_allclose(found[selected[0]], fill[0])
        np.testing.assert_allclose(found[selected[1]], one[selected[1]])


@pytest.mark.parametrize("ending", [".csv", ".xlsx"])
def test_without_imputation_a_column_without_any_value_is_refused_as_a_gap(
    ending, machine, reading, invoke
):
    write(machine.dropna())
    invoke(*SELECT, "--save", "panel.npz")
    selected = list(semfs.load("panel.npz").get_feature_names_out())
    one = reading[1].assign(**dict.fromkeys("abcde", 1.0))
    one[selected[0]] = None
    WRITERS[ending](one, f"one{ending}")
    refused = invoke("predict", "panel.npz", f"one{ending}", code=2).stderr
    assert f"no value in column '{selected[0]}', row 1" in refused
    invoke("transform", "panel.npz", f"one{ending}", "-o", "out.csv")
    assert pd.read_csv("out.csv")[selected[0]].isna().all()


def test_transform_warns_of_other_units_if_it_fills_gaps(machine, reading, invoke):
    features = list("abcde")
    machine[features] = machine[features] * 1.8 + 320
    machine.loc[3, "a"] = np.nan
    write(machine, "other.csv")
    for command in ("predict", "transform"):
        done = invoke(command, "panel.npz", "other.csv", "-o", "out.csv")
        assert "seem to have other units" in " ".join(done.stderr.split())
    machine[features] = (machine[features] - 320) / 1.8
    write(machine, "same.csv")
    done = invoke("transform", "panel.npz", "same.csv", "-o", "out.csv")
    assert "other units" not in done.stderr


# ---- infinity and broken numbers ------------------------------------------------------


@pytest.mark.parametrize("options", [(), ("--impute", "median"), ("--impute", "class-mean")])
def test_infinity_is_not_to_be_imputed(options, machine, invoke):
    machine.loc[3, "b"] = np.inf
    write(machine)
    refused = invoke(*SELECT, *options, code=2).stderr
    assert "inf in column 'b', row 4" in refused
    assert "Replace it with the right value" in refused
    assert "--impute" not in refused


def test_infinity_in_python_is_not_to_be_imputed(machine):
    X = machine[list("abcde")].to_numpy()
    X[3, 1] = np.inf
    for missing in ("error", "class-mean"):
        with pytest.raises(ValueError, match="Replace it with the right value") as error:
            semfs.SemFS(2, missing_values=missing).fit(X, machine["kind"])
        assert 'missing_values="class-mean"' not in str(error.value)


@pytest.mark.parametrize("impute", [(), ("--impute", "median")])
def test_transform_warns_of_infinity(impute, machine, invoke):
    write(machine)
    invoke(*SELECT, *impute, "--save", "panel.npz")
    selected = [name for name in pd.read_csv("small.csv").columns if name != "kind"]
    machine.loc[3, selected[0]] = np.inf
    write(machine, "new.csv")
    done = invoke("transform", "panel.npz", "new.csv", "-o", "reduced.csv")
    assert "1 infinite value of selected features written as in new.csv" in done.stderr
    assert np.isinf(pd.read_csv("reduced.csv")[selected[0]][3])


def test_ignored_columns_that_look_like_numbers_show_a_cell(machine, invoke):
    machine["press"] = [f"310.{j:03d},4" for j in range(60)]
    machine["load"] = ["error" if j % 3 else f"{j / 8}" for j in range(60)]
    machine["id"] = [f"M{j}" for j in range(60)]
    machine["day"] = "2026-01-05"
    machine.to_csv("machine.csv", index=False, sep=";", decimal=",")
    stderr = " ".join(invoke(*SELECT).stderr.split())
    assert "ignored non-numeric columns: 'id', 'day'." in stderr
    assert (
        "Column 'press' looks numeric but was ignored, because row 1 holds '310.000,4'."
        in stderr
    )
    assert "Column 'load' looks numeric but was ignored, because row" in stderr
    assert "--drop NAME" in stderr


# ---- options --------------------------------------------------------------------------


def test_prices_without_a_budget_are_on_the_page(machine, invoke):
    write(machine)
    with open("prices.csv", "w", encoding="utf-8") as file:
        file.write(
            "sensor;price\n" + "\n".join(f"{name};{j + 1},75" for j, name in enumerate("abcde"))
        )
    options = ("--costs", "prices.csv", "--bootstraps", 0, "-o", "panel.html")
    invoke("panel", "machine.csv", "-l", "kind", "-k", 2, *options)
    listed = pd.read_csv("panel.csv")
    assert listed["cost"].tolist() == ["abcde".index(name) + 1.75 for name in listed["feature"]]


def test_more_features_than_there_are_is_one_behavior(machine, invoke):
    write(machine)
    told = "-k 70 is greater than the number of features (5). All of them are kept."
    assert told in invoke(*SELECT, "-k", 70).stderr
    rows = pd.concat([machine, machine.replace({"kind": {"on": "x", "off": "y", "idle": "z"}})])
    write(rows)
    options = ("-m", "variance", "-k", "2,70", "--splits", 1, "--repeats", 1, "-j", 1, "--json")
    done = invoke("evaluate", "machine.csv", "-l", "kind", "-a", "labels", *options)
    assert told in done.stderr
    assert {row["k"] for row in json.loads(done.stdout)} == {2, 5}


def test_class_descriptions_given_twice_are_refused(machine, invoke):
    write(machine)
    done = invoke(*SELECT, "--attributes", "a.csv", "-a", "b.csv", code=2)
    assert "--attributes is given twice" in done.stderr


def test_a_table_of_classes_without_names_in_front_is_explained(machine, invoke):
    write(machine)
    with open("states.csv", "w", encoding="utf-8") as file:
        file.write("hot,state\n0.0,on\n0.0,off\n1.0,idle\n")
    refused = invoke(*SELECT, "-a", "states.csv", code=2).stderr
    assert "The first column must hold the name of each class exactly once" in refused


def test_two_limits_are_blamed_together(machine, invoke):
    machine[list("abc")] += 100
    machine[list("de")] -= 100
    write(machine)
    refused = invoke(*SELECT, "--min-level", -20, "--max-level", 20, code=2).stderr
    assert "--min-level and the limit above leave no feature to select from" in refused
    refused = invoke(*SELECT, "--max-level", -500, code=2).stderr
    assert "--max-level leaves no feature" in refused


def test_the_warning_about_units_names_the_option(machine, invoke):
    machine["a"] *= 1e6
    write(machine)
    assert "--scale" in invoke(*SELECT).stderr


def test_columns_with_gaps_are_left_out_by_drop(machine, invoke):
    machine.loc[3, "b"] = np.nan
    write(machine)
    assert "--drop NAME" in invoke(*SELECT, code=2).stderr


# ---- labels and groups ----------------------------------------------------------------


def test_a_measurement_is_no_label(machine, invoke):
    machine["load"] = np.r_[np.arange(40) / 8, np.full(20, 9.5)]
    write(machine)
    options = ("-k", 2, "-o", "small.csv")
    refused = invoke("select", "machine.csv", "-l", "load", *options, code=2).stderr
    refused = " ".join(refused.split())
    assert "--label load: 60 labels have 41 different values" in refused
    assert "Give the column that holds the classes" in refused
    assert "--min-cells 3" in refused
    # half of the samples have another class
    machine["lot"] = [f"lot {j // 2}" for j in range(60)]
    write(machine)
    invoke("select", "machine.csv", "-l", "lot", "--drop", "kind", *options)
    # small classes can be left out
    more = ("--drop", "kind", "--drop", "lot", "--min-cells", 3)
    machine["load"] = [f"c{min(j, 30) if j < 50 else 31 + j % 2}" for j in range(60)]
    write(machine)
    done = invoke("select", "machine.csv", "-l", "load", *more, *options)
    assert "of 3 classes" in done.stdout


def test_an_excluded_feature_and_its_whole_group(machine, invoke, tmp_path):
    write(machine)
    rows = ["feature,device", "a,left", "b,left", "c,right", "d,right", "e,top"]
    (tmp_path / "groups.csv").write_text("\n".join(rows))
    arguments = (*SELECT, "--groups", "groups.csv")
    refused = invoke(*arguments, "--exclude", "b,c", code=2).stderr
    refused = " ".join(refused.split())
    assert "-k is 2, but the rules leave 1 group to select from." in refused
    assert "concerns 2 groups, such as 'left' for 'b'" in refused
    assert "--drop NAME" in refused
    # groups that are excluded as a whole need no such advice
    refused = invoke(*arguments, "--exclude", "left,right", code=2).stderr
    assert "whole group" not in refused
    # a table of groups may name columns that are dropped
    invoke(*arguments, "--drop", "b,c")
    assert pd.read_csv("small.csv").columns.isin(["a", "d", "e", "kind"]).all()
    rows = ["feature,cost", "a,1", "b,1", "c,1", "d,1", "e,1"]
    (tmp_path / "costs.csv").write_text("\n".join(rows))
    invoke(*arguments, "--drop", "b,c", "--costs", "costs.csv", "--budget", 3)
    # other unknown names are still refused
    (tmp_path / "groups.csv").write_text("feature,device\na,left\nbb,left")
    refused = invoke(*arguments, "--drop", "c", code=2).stderr
    assert "no feature named 'bb'" in refused
