"""Every kind of bad input to SemFS ends in one clear line."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp

from problems import make_problem
from semfs import SemFS

X, Y, A = make_problem(d=6)
NAMES = np.array(["ant", "bee", "cat", "dog"])[Y]


def table(**changes):
    rows = {"ant": [1.0, 0.0], "bee": [0.0, 1.0], "cat": [1.0, 1.0], "dog": [0.0, 0.0]}
    return {**rows, **changes}


def with_value(bad):
    broken = X.copy()
    broken[3, 2] = bad
    return broken


def without(label):
    return {key: row for key, row in table().items() if key != label}


CASES = {
    "NaN in X": (with_value(np.nan), NAMES, {}, ValueError, "NaN"),
    "infinity in X": (with_value(np.inf), NAMES, {}, ValueError, "infinity"),
    "NaN in sparse X": (sp.csr_array(with_value(np.nan)), NAMES, {}, ValueError, "NaN"),
    "text in X": (np.full((60, 2), "a"), NAMES, {}, ValueError, "could not convert"),
    "empty X": (X[:0], NAMES[:0], {}, ValueError, "0 sample"),
    "no columns": (X[:, :0], NAMES, {}, ValueError, "0 feature"),
    "1-d X": (X[:, 0], NAMES, {}, ValueError, "Expected 2D array"),
    "complex X": (X + 1j, NAMES, {}, ValueError, "Complex data not supported"),
    "y too short": (X, NAMES[:-1], {}, ValueError, "60 rows but y has 59 labels"),
    "y missing": (X, None, {}, ValueError, "requires y to be passed"),
    "2-d y": (X, np.column_stack([Y, Y]), {}, ValueError, "1d array"),
    "one class": (X, ["ant"] * 60, {}, ValueError, "only one class \\('ant'\\)"),
    "continuous y": (X, Y + 0.5 * X[:, 0], {}, ValueError, "Unknown label type: continuous"),
    "mixed labels": (X, [1, *NAMES[1:].tolist()], {}, ValueError, "different types"),
    "class without a row": (
        X, NAMES, {"attributes": without("cat")}, ValueError, "no row for class 'cat'",
    ),
    "class misspelt": (
        X, NAMES, {"attributes": {**without("cat"), "cats": [1, 2]}}, ValueError,
        "did you mean 'cats'",
    ),
    "NaN in table": (
        X, NAMES, {"attributes": table(cat=[np.nan, 1.0])}, ValueError, "NaN or infinity",
    ),
    "infinity in table": (
        X, NAMES, {"attributes": table(cat=[np.inf, 1.0])}, ValueError, "NaN or infinity",
    ),
    "ragged mapping": (X, NAMES, {"attributes": table(cat=[1.0])}, ValueError, "same length"),
    "ragged list": (X, Y, {"attributes": [[1], [1, 2], [3], [4]]}, ValueError, "same length"),
    "text table": (
        X, NAMES, {"attributes": table(cat=["big", "furry"])}, ValueError, "must be numeric",
    ),
    "text frame": (
        X, NAMES, {"attributes": pd.DataFrame({"a": list("wxyz")}, index=list(table()))},
        ValueError, "must be numeric",
    ),
    "empty mapping": (X, NAMES, {"attributes": {}}, ValueError, "same length per class"),
    "table without columns": (
        X, NAMES, {"attributes": pd.DataFrame(index=list(table()))}, ValueError,
        "same length per class",
    ),
    "1-d table": (X, Y, {"attributes": [1.0, 2.0, 3.0]}, ValueError, "same length per class"),
    "duplicate rows": (
        X, NAMES,
        {"attributes": pd.DataFrame(np.eye(5), index=["ant", "bee", "cat", "dog", "cat"])},
        ValueError, "more than one row for class 'cat'",
    ),
    "array table, text labels": (X, NAMES, {"attributes": A}, ValueError, "integer label"),
    "array table too short": (
        X, Y, {"attributes": A[:3]}, ValueError, "no row for class 3.*3 rows",
    ),
    "array table, negative label": (
        X, Y - 2, {"attributes": A}, ValueError, "no row for class -2",
    ),
    "no label at all": (X, np.full(len(Y), -1), {}, ValueError, "no row has a label"),
    "all labels NaN": (X, np.full(len(Y), np.nan), {}, ValueError, "all 60 values of y are"),
    "all labels None": (X, [None] * len(Y), {}, ValueError, "all 60 values of y are"),
    "k = 0": (X, NAMES, {"n_features_to_select": 0}, ValueError, "at least 1, got 0"),
    "k < 0": (X, NAMES, {"n_features_to_select": -3}, ValueError, "at least 1, got -3"),
    "k a fraction": (X, NAMES, {"n_features_to_select": 2.5}, TypeError, "whole number"),
    "k a word": (X, NAMES, {"n_features_to_select": "all"}, TypeError, "whole number"),
    "wrong solver": (
        X, NAMES, {"solver": "magic"}, ValueError, "'direct' or 'alternating', got 'magic'",
    ),
    "wrong penalty_scale": (
        X, NAMES, {"penalty_scale": "x"}, ValueError, "'gram' or 'none', got 'x'",
    ),
    "wrong step": (X, NAMES, {"step": "big"}, ValueError, "'lipschitz' or 'exact'"),
    "step 0": (X, NAMES, {"step": 0.0}, ValueError, "above 0"),
    "alpha < 0": (X, NAMES, {"alpha": -1}, ValueError, "alpha must be a number of at least 0"),
    "gamma NaN": (X, NAMES, {"gamma": np.nan}, ValueError, "gamma must be"),
    "gamma text": (X, NAMES, {"gamma": "1"}, TypeError, "gamma must be"),
    "gamma 0, alternating": (
        X, NAMES, {"gamma": 0, "solver": "alternating"}, ValueError, "gamma must be positive",
    ),
    "max_iter 0": (X, NAMES, {"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    "n_swaps half": (X, NAMES, {"n_swaps": 0.5}, TypeError, "n_swaps must be a whole number"),
    "wrong class_weight": (
        X, NAMES, {"class_weight": "heavy"}, ValueError, "class_weight must be 'balanced'",
    ),
    "class_weight a list": (X, NAMES, {"class_weight": [1, 2]}, TypeError, "mapping"),
    "class_weight < 0": (
        X, NAMES, {"class_weight": {"ant": -1}}, ValueError, "non-negative",
    ),
    "include unknown": (X, NAMES, {"include": ["CD8A"]}, ValueError, "no feature named 'CD8A'"),
    "include out of range": (X, NAMES, {"include": [6]}, ValueError, "index 6 is out of range"),
    "include a string": (X, NAMES, {"include": "CD8A"}, TypeError, "must be a list"),
    "include too many": (
        X, NAMES, {"include": [1, 2, 3], "n_features_to_select": 2}, ValueError, "more than",
    ),
    "exclude a float": (X, NAMES, {"exclude": [1.5]}, TypeError, "indices or names"),
    "include and exclude": (
        X, NAMES, {"include": [1], "exclude": [1]}, ValueError, "in include and in exclude",
    ),
    "exclude all": (X, NAMES, {"exclude": range(6)}, ValueError, "nothing is left"),
    "s_init wrong": (
        X, NAMES, {"s_init": [1.0], "solver": "alternating"}, ValueError, "s_init must hold 6",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_line(case):
    data, labels, options, error, message = CASES[case]
    with pytest.raises(error, match=message):
        SemFS(**{"n_features_to_select": 3, **options}).fit(data, labels)


@pytest.mark.parametrize(
    "weights, message",
    [
        (np.ones(3), "one weight per row"),
        (-np.ones(60), "must not be negative"),
        (np.zeros(60), "zero for every row"),
        (np.full(60, np.nan), "NaN"),
        (np.ones((60, 2)), "one weight per row"),
    ],
)
def test_bad_weights_are_refused(weights, message):
    with pytest.raises(ValueError, match=message):
        SemFS(3).fit(X, NAMES, sample_weight=weights)


def test_a_refused_block_is_not_half_added():
    selector = SemFS(3, attributes=table()).partial_fit(X, NAMES)
    before = selector.moments_
    for labels in (["cow"] * 60, NAMES[:-1]):
        with pytest.raises(ValueError):
            selector.partial_fit(X, labels)
    with pytest.raises(ValueError, match="NaN"):
        selector.partial_fit(with_value(np.nan), NAMES)
    assert selector.moments_ is before


def test_columns_that_are_all_constant_still_give_a_ranking():
    selector = SemFS(2).fit(np.ones((8, 3)), [0, 1] * 4)
    assert selector.order_.tolist() == [0, 1, 2]
    assert selector.get_support().sum() == 2


def test_transform_checks_its_input_too():
    selector = SemFS(3).fit(X, NAMES)
    with pytest.raises(ValueError, match="6 features"):
        selector.transform(X[:, :4])
    with pytest.raises(ValueError, match="NaN"):
        selector.transform(with_value(np.nan))


@pytest.mark.parametrize("n", [60, 6], ids=["d by d", "few rows"])
def test_a_penalty_lost_in_rounding_is_named(n):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 8)), np.arange(n) % 3
    X[:, 6] = X[:, 0]
    selector = SemFS(3, solver="alternating", gamma=1e-30, penalty_scale="none")
    with pytest.raises(ValueError, match=r"gamma is too small.*Use a larger gamma"):
        selector.fit(X, y)
    assert len(selector.set_params(solver="direct").fit(X, y).get_feature_names_out()) == 3
