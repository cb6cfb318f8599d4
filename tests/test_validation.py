"""Checks of parameters: an error knows the parameter; features are found by name."""

import pickle
import warnings

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from sklearn.feature_selection import VarianceThreshold
from sklearn.pipeline import make_pipeline

from semfs import SemFS, SemFSCV
from semfs.feature_files import split_names
from semfs.feature_names import resolve_features
from semfs.validation import (
    ParameterError,
    ParameterTypeError,
    ParameterWarning,
    check_all_finite,
    check_integer,
    check_number,
    check_option,
    check_weights,
    class_weights,
    did_you_mean,
    listed,
)

NAMES = ["ACTB", "MT-1", "MT-2", "IG, heavy", "CD3D"]


@pytest.mark.parametrize(
    "error, kind, text",
    [
        (ParameterError("k", "must be 1."), ValueError, "k must be 1."),
        (ParameterTypeError("k", "must be 1."), TypeError, "k must be 1."),
        (ParameterWarning("k", ": too large."), UserWarning, "k: too large."),
    ],
)
def test_an_error_knows_its_parameter(error, kind, text):
    assert isinstance(error, kind)
    assert str(error) == text
    assert error.named("-k") == text.replace("k", "-k", 1)
    copied = pickle.loads(pickle.dumps(error))  # from a worker process
    assert (copied.name, copied.sentence, str(copied)) == (error.name, error.sentence, text)


@pytest.mark.parametrize(
    "check, arguments, error",
    [
        (check_option, ("red", ("direct",)), ParameterError),
        (check_option, (3, ("direct",)), ParameterError),
        (check_integer, (0, 1), ParameterError),
        (check_integer, (1.0, 1), ParameterTypeError),
        (check_integer, (True, 1), ParameterTypeError),
    ],
)
def test_checks_raise_errors_that_name_the_parameter(check, arguments, error):
    with pytest.raises(error) as caught:
        check("parameter", *arguments)
    assert caught.value.name == "parameter"
    assert str(caught.value).startswith("parameter must be ")


@pytest.mark.parametrize(
    "value, limits, error",
    [
        (-1, {"at_least": 0}, ParameterError),
        (0, {"above": 0}, ParameterError),
        (np.nan, {"at_least": 0}, ParameterError),
        (np.inf, {"above": 0}, ParameterError),
        ("1", {"at_least": 0}, ParameterTypeError),
        (True, {"at_least": 0}, ParameterTypeError),
    ],
)
def test_numbers_are_finite_and_within_limits(value, limits, error):
    with pytest.raises(error, match="gamma must be "):
        check_number("gamma", value, **limits)


def test_numbers_within_limits_pass():
    check_number("gamma", 0, at_least=0)
    check_number("gamma", np.float32(0.1), above=0)
    check_integer("k", np.int64(3), 1)
    check_option("solver", "direct", ("direct",))


def test_weights_name_their_parameter():
    with pytest.raises(ParameterError, match="must not be negative") as caught:
        check_weights([1, -1], 2)
    assert caught.value.name == "sample_weight"
    with pytest.raises(ParameterTypeError, match="must be None") as caught:
        class_weights(3, np.arange(2), np.ones(2))
    assert caught.value.name == "class_weight"


@pytest.mark.parametrize(
    "values, expected",
    [
        (None, []),
        ([], []),
        ([-1, 0], [4, 0]),
        (["CD3D", "ACTB", "CD3D"], [4, 0]),
        (["re:^MT-"], [1, 2]),
        (["re:T", 0], [0, 1, 2]),
        (["IG, heavy"], [3]),
        (["ACTB, IG, heavy,CD3D"], [0, 3, 4]),
    ],
)
def test_features_are_found_by_index_name_list_and_pattern(values, expected):
    assert_array_equal(resolve_features("include", values, NAMES), expected)


@pytest.mark.parametrize("make", [list, np.array])
def test_many_indices_keep_their_order_and_are_checked_like_few(make):
    assert_array_equal(resolve_features("candidates", make([5, 2, 5, 0]), None, 6), [5, 2, 0])
    assert_array_equal(resolve_features("candidates", make([3, -1]), None, 6), [3, 5])
    with pytest.raises(ParameterError, match="index 6 is out of range for 6 features"):
        resolve_features("candidates", make([1, 6]), None, 6)
    with pytest.raises(ParameterTypeError, match="must hold indices or names, got True"):
        resolve_features("candidates", [1, True], None, 6)


@pytest.mark.parametrize("header", ["", "Gene\n", "feature\n"])
def test_features_are_listed_in_files(header, tmp_path):
    path = tmp_path / "genes.txt"
    path.write_text(f"\ufeff{header}ACTB\n\n  IG, heavy \n", encoding="utf-8")
    assert_array_equal(resolve_features("include", [str(path)], NAMES), [0, 3])


def test_a_feature_is_not_mistaken_for_a_header_or_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ACTB").write_text("gene\n")
    assert_array_equal(resolve_features("include", ["ACTB"], ["gene", "ACTB"]), [1])
    (tmp_path / "list.txt").write_text("gene\n")
    assert_array_equal(resolve_features("include", ["list.txt"], ["gene", "ACTB"]), [0])


def test_names_of_groups_stand_for_their_features_unless_a_feature_has_the_name(tmp_path):
    names = ["s1_a", "s1_b", "s2", "s2_b"]
    groups = {"s1": [0, 1], "s2": [2, 3]}
    list_of_groups = tmp_path / "bought.txt"
    list_of_groups.write_text("s1\ns2_b\n")
    for values, expected in [
        (["s1"], [0, 1]),
        (["s2"], [2]),  # also a feature
        (["s2_b,s1"], [3, 0, 1]),
        ([str(list_of_groups)], [0, 1, 3]),
    ]:
        assert_array_equal(resolve_features("exclude", values, names, 4, groups), expected)
    with pytest.raises(ParameterError, match="no feature named 's3'"):
        resolve_features("exclude", ["s3"], names, 4, groups)


def test_features_without_names_are_numbered():
    assert_array_equal(resolve_features("include", ["x2", 0], None, 3), [2, 0])
    grouped = resolve_features("include", ["x2", "s1"], None, 3, {"s1": [0, 1]})
    assert_array_equal(grouped, [2, 0, 1])
    with pytest.raises(ParameterError, match="index 3 is out of range for 3 features"):
        resolve_features("include", ["x3"], None, 3)
    with pytest.raises(ParameterError, match="'hue', because X has no feature names"):
        resolve_features("include", ["hue"], None, 3)


@pytest.mark.parametrize(
    "values, message",
    [
        ("re:^MT-", r"include must be a list of features, .* Write \['re:\^MT-'\]"),
        ([1.5], "include must hold indices or names"),
        ([True], "include must hold indices or names"),
    ],
)
def test_features_of_wrong_types_are_refused(values, message):
    with pytest.raises(ParameterTypeError, match=message):
        resolve_features("include", values, NAMES)


@pytest.mark.parametrize(
    "text, column",
    [
        (
            'rank,gene,reason,substitutes\n1,MT-1,"low, in T cells",ACTB\n2,CD3D,high,\n',
            "'gene'",
        ),
        ("probe;symbol\np1;CD3D\np2;MT-1\n", "'symbol'"),
        ("1\tCD3D\n2\tMT-1\n", "2"),
        # of what `semfs select` writes, the selected features
        ("rank,feature,selected\n1,CD3D,True\n2,MT-1,True\n3,ACTB,False\n", "'feature'"),
    ],
)
@pytest.mark.parametrize("parameter", ["include", "exclude", "candidates"])
def test_a_table_may_be_given_where_a_list_is_expected(tmp_path, parameter, text, column):
    path = tmp_path / "panel.csv"
    path.write_text(text)
    message = rf"{parameter}: .*panel.csv is a table. The 2 names in its column {column} are"
    with pytest.warns(ParameterWarning, match=message):
        found = resolve_features(parameter, [str(path)], NAMES)
    assert sorted(found.tolist()) == [1, 4]


def test_a_row_of_a_table_without_header_is_not_lost(tmp_path):
    path = tmp_path / "panel.csv"
    path.write_text("1,GONE\n2,CD3D\n3,MT-1\n")
    with (
        pytest.warns(ParameterWarning, match="The 3 names in its column 2 are used"),
        pytest.raises(ParameterError, match="no feature named 'GONE'"),
    ):
        resolve_features("include", [str(path)], NAMES)
    path.write_text("IG, heavy\nCD3D\n")
    assert resolve_features("include", [str(path)], NAMES).tolist() == [3, 4]


def test_unknown_names_of_a_list_are_all_named_and_similar_ones_suggested(tmp_path):
    unknown = [f"OTHER{i}" for i in range(18)]
    path = tmp_path / "probes.txt"
    path.write_text("\n".join(["ACTB", "Cd3d", *unknown, "mt-1"]))
    with pytest.warns(ParameterWarning) as found:
        resolve_features("candidates", [str(path)], NAMES)
    message = str(found[0].message)
    assert "20 of 21 names" in message
    assert ", ".join(["Cd3d", *unknown, "mt-1"]) in message
    assert message.endswith("Similar features of the data: MT-1, CD3D.")


def test_names_with_commas_stay_whole_where_they_are_known():
    known = ["CD4-positive, alpha-beta T cell", "B cell"]
    text = "B cell, CD4-positive, alpha-beta T cell,tv"
    assert split_names(text, known) == ["B cell", known[0], "tv"]
    assert split_names(" , ,", known) == []


def test_similar_words_are_suggested_whatever_their_case():
    assert did_you_mean("Cd3d", NAMES) == "; did you mean 'CD3D'?"
    assert did_you_mean("nothing", NAMES) == ""
    assert listed([1, 2, 3], 3) == "1, 2, 3"


@pytest.mark.parametrize("values", [[np.inf, -np.inf], [np.inf, np.nan]])
def test_infinities_of_both_signs_are_refused_without_a_runtime_warning(values):
    X = np.ones((4, 3))
    X[0, :2] = values
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        with pytest.raises(ValueError, match="contains"):
            check_all_finite(X)


# ---- warnings ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "selector",
    [SemFS(2), SemFSCV(2), make_pipeline(VarianceThreshold(), SemFS(2))],
    ids=["SemFS", "SemFSCV", "in a pipeline"],
)
def test_a_warning_names_the_line_of_the_user_that_led_to_it(selector, problem):
    X, y, _ = problem
    X[:, 0] *= 1000.0
    with pytest.warns(UserWarning, match="will dominate the selection") as caught:
        selector.fit(X, y)
    assert {warning.filename for warning in caught} == {__file__}
