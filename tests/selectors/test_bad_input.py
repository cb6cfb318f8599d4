"""Every kind of bad input to SemFS ends in one clear line."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from problems import make_problem
from semfs import SemFS, SemFSCV
from semfs.baselines import L20ALM
from semfs.evaluation import cluster_scores
from semfs.validation import ParameterError, ParameterWarning

pd = pytest.importorskip("pandas")
X, Y, A = make_problem(d=6)
NAMES = np.array(["ant", "bee", "cat", "dog"])[Y]


def table(**changes):
    rows = {"ant": [1.0, 0.0], "bee": [0.0, 1.0], "cat": [1.0, 1.0], "dog": [0.0, 0.0]}
    return {**rows, **changes}


def with_value(bad):
    broken = X.copy()
    broken[3, 2] = bad
    return broken


FRAME = pd.DataFrame(with_value(np.nan), [f"r{i}" for i in range(60)], list("abcdef"))


def without(label):
    return {key: row for key, row in table().items() if key != label}


MISSPELT = {**without("cat"), "cats": [1, 2]}
OPTIONS = {
    "no row of a class": ({"attributes": without("cat")}, ValueError, "no row for class 'cat'"),
    "class misspelt": ({"attributes": MISSPELT}, ValueError, "did you mean 'cats'"),
    "NaN in table": (
        {"attributes": table(cat=[np.nan, 1.0])},
        ValueError,
        "no value .NaN. for",
    ),
    "infinity in table": (
        {"attributes": table(cat=[np.inf, 1.0])},
        ValueError,
        "is infinite for class 'cat' in column 'a0'. Correct the value",
    ),
    "ragged mapping": ({"attributes": table(cat=[1.0])}, ValueError, "same length"),
    "array table, text labels": ({"attributes": A}, ValueError, "integer label"),
    "k = 0": ({"n_features_to_select": 0}, ValueError, "at least 1, got 0"),
    "wrong solver": ({"solver": "magic"}, ValueError, "'direct' or 'alternating', got 'magic'"),
    "wrong penalty_scale": ({"penalty_scale": "x"}, ValueError, "'gram' or 'none', got 'x'"),
    "wrong step": ({"step": "big"}, ValueError, "'lipschitz' or 'exact'"),
    "step 0": ({"step": 0.0}, ValueError, "above 0"),
    "alpha < 0": ({"alpha": -1}, ValueError, "alpha must be a number of at least 0"),
    "gamma NaN": ({"gamma": np.nan}, ValueError, "gamma must be"),
    "gamma text": ({"gamma": "1"}, TypeError, "gamma must be"),
    "gamma 0": ({"gamma": 0, "solver": "alternating"}, ValueError, "gamma must be positive"),
    "max_iter 0": ({"max_iter": 0}, ValueError, "max_iter must be at least 1"),
    "n_swaps half": ({"n_swaps": 0.5}, TypeError, "n_swaps must be a whole number"),
    "class_weight text": ({"class_weight": "heavy"}, ValueError, '"balanced" or a mapping'),
    "share above 1": ({"n_features_to_select": 1.5}, TypeError, "whole number"),
    "share of 1": ({"n_features_to_select": 1.0}, TypeError, "a share of the features below 1"),
    "k is None": ({"n_features_to_select": None}, ValueError, "SemFSCV"),
    "k is auto": ({"n_features_to_select": "auto"}, TypeError, "SemFSCV"),
    "names without names": ({"include": ["hue"]}, ValueError, "X has no feature names"),
    "no table": ({"attributes": "cl"}, TypeError, "attributes_of"),
    "class_weight a list": ({"class_weight": [1, 2]}, TypeError, "mapping"),
    "class_weight < 0": ({"class_weight": {"ant": -1}}, ValueError, "non-negative"),
    "include unknown": (
        {"include": ["CD8A"]},
        ValueError,
        "no feature named 'CD8A', because X has no feature names",
    ),
    "include out of range": ({"include": [6]}, ValueError, "index 6 is out of range"),
    "include too many": ({"include": [1, 2, 3, 4]}, ValueError, "more than"),
    "in both": (
        {"include": [1], "exclude": [1]},
        ValueError,
        "feature 'x1' is also excluded",
    ),
    "exclude all": ({"exclude": range(6)}, ValueError, "no feature is left"),
    "s_init": ({"s_init": [1.0], "solver": "alternating"}, ValueError, "s_init must hold 6"),
}
CASES = {
    "NaN in X": (with_value(np.nan), NAMES, {}, ValueError, "NaN.* row 3 .*column 2,"),
    "NaN in frame": (FRAME, NAMES, {}, ValueError, r"NaN.* row 3 \('r3'\), column 2 \('c'\)"),
    "infinity in X": (with_value(np.inf), NAMES, {}, ValueError, "infinity"),
    "NaN in sparse X": (sp.csr_array(with_value(np.nan)), NAMES, {}, ValueError, "NaN"),
    "y too short": (X, NAMES[:-1], {}, ValueError, "60 rows but y has 59 labels"),
    "X of objects": (
        [[object()]] * 60,
        NAMES,
        {},
        TypeError,
        "must be a string or a real number",
    ),
    "one class": (X, ["ant"] * 60, {}, ValueError, "only one class \\('ant'\\)"),
    "continuous y": (X, Y + 0.5 * X[:, 0], {}, ValueError, "Unknown label type: continuous"),
    "mixed labels": (X, [1, *NAMES[1:].tolist()], {}, ValueError, "different types"),
    "array table short": (X, Y, {"attributes": A[:3]}, ValueError, "for class 3.*3 rows"),
    "no label at all": (X, np.full(len(Y), -1), {}, ValueError, "no sample has a label"),
    "all labels NaN": (X, np.full(len(Y), np.nan), {}, ValueError, "all 60 values of y are"),
} | {name: (X, NAMES, *wrong) for name, wrong in OPTIONS.items()}


@pytest.mark.parametrize("case", CASES)
def test_bad_input_is_one_clear_line(case):
    data, labels, options, error, message = CASES[case]
    with pytest.raises(error, match=message):
        SemFS(**{"n_features_to_select": 3, **options}).fit(data, labels)


def test_a_refused_block_is_not_half_added():
    selector = SemFS(3, attributes=table()).partial_fit(X, NAMES)
    before = selector.moments_
    for labels in (["cow"] * 60, NAMES[:-1]):
        with pytest.raises(ValueError):
            selector.partial_fit(X, labels)
    with pytest.raises(ValueError, match="NaN"):
        selector.partial_fit(with_value(np.nan), NAMES)
    assert selector.moments_ is before


@pytest.mark.parametrize("n", [60, 6], ids=["d by d", "few rows"])
def test_a_penalty_lost_in_rounding_is_named(n):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(n, 8)), np.arange(n) % 3
    X[:, 6] = X[:, 0]
    selector = SemFS(3, solver="alternating", gamma=1e-30, penalty_scale="none")
    with pytest.raises(ValueError, match=r"gamma is smaller than.*Use a larger gamma"):
        selector.fit(X, y)
    assert len(selector.set_params(solver="direct").fit(X, y).get_feature_names_out()) == 3


@pytest.mark.parametrize(
    ("fit", "match"),
    [
        (lambda: SemFS(3).fit(X, Y, np.ones(3)), "one weight per row"),
        (lambda: SemFS(3).fit(X, Y, -np.ones(60)), "must not be negative"),
        (lambda: SemFS(3).fit(X, Y, np.zeros(60)), "zero for every sample"),
        (lambda: SemFS(3).fit(X, Y, np.full(60, np.nan)), "NaN"),
        (lambda: SemFS(3).fit(X, Y, np.ones((60, 2))), "one weight per row"),
        (lambda: SemFS(3).fit(X, Y, np.full(60, 1e-200)), "Use weights near 1"),
        (lambda: SemFS(3).fit(np.ones_like(X), Y), "nothing to rank"),
        (lambda: SemFSCV(3).fit(np.ones_like(X), Y), "nothing to rank"),
        (lambda: SemFSCV(3).fit(X, np.zeros(60, dtype=int)), "only one class"),
        (lambda: SemFS(3).fit(X, Y, X_unlabeled=X * 1e160), "Pass both in the same units"),
        (lambda: SemFS(3).fit(X * 1e-200, Y, X_unlabeled=X), "Rescale"),
        (lambda: SemFS(3).fit([(X * 1e-30, Y)], X_unlabeled=np.float32(X * 1e-30)), "Rescale"),
        (lambda: SemFS(3).transform(X), "not fitted yet"),
        (
            lambda: L20ALM(3, attributes=A * 1e-170).fit(X, Y),
            "largest attribute is .* too small",
        ),
    ],
)
def test_weights_and_numbers_that_nothing_can_be_fitted_to_are_refused(fit, match):
    with pytest.raises(ValueError, match=match):
        fit()


@pytest.mark.usefixtures("small_data_as_large")
def test_a_large_alpha_ranks_float32_as_float64():
    for alpha in (1e20, 1e38):
        single = SemFS(3, A, alpha=alpha).fit(X.astype(np.float32), Y).order_
        assert single.tolist() == SemFS(3, A, alpha=alpha).fit(X, Y).order_.tolist()


# ---- found by tools/fuzz_api.py -----------------------------------------------------------


def test_missing_values_of_lists_are_named():
    X, y, _ = make_problem(n=20, d=4)
    rows = X.tolist()
    rows[3][2] = float("nan")
    with pytest.raises(ValueError, match="First such value: row 3"):
        SemFS(2).fit(rows, y)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_sums_of_huge_numbers_do_not_warn():
    X, y, _ = make_problem(n=40, d=4)
    huge = 1e307 * np.clip(X, -9, 9)
    with pytest.raises(ValueError, match="Rescale"):
        SemFS(2).fit(huge, y)
    with pytest.raises(ValueError):
        SemFS(2).fit(X, y, X_unlabeled=huge)
    selector = SemFS(2).fit(1e-60 * X, y)
    with pytest.raises(ValueError, match="same units as for fit"):
        selector.predict_attributes(1e300 * np.clip(X, -9, 9))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_unlabeled_samples_that_hardly_differ_are_not_used():
    X, y, _ = make_problem(n=60, d=6)
    selector = SemFS(2).fit(X, y, X_unlabeled=1e-160 * X)
    assert np.isfinite(selector.scores_).all()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_clusters_do_not_depend_on_the_unit():
    X, y, _ = make_problem(n=60, d=4)
    expected = cluster_scores(X, y, n_repeats=3)
    for unit in (1e250, 1e-250):
        assert_allclose(cluster_scores(unit * X, y, n_repeats=3), expected)


def test_descriptions_mean_nothing_to_a_selector_of_labels():
    X, y, A = make_problem(n=60, d=6, C=3, m=3)
    selector = SemFS(2).fit(X, y)
    with pytest.raises(ValueError, match="class_table needs a selector that was fitted to"):
        selector.predict(X, A)
    assert len(selector.predict(X, selector.class_table_)) == len(X)


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("solver", ["direct", "alternating"])
@pytest.mark.parametrize("name", ["alpha", "label_weight"])
def test_weights_of_terms_beyond_every_use_are_refused(solver, name):
    X, y, A = make_problem()
    with pytest.raises(ValueError, match=f"{name} must be at most 1e\\+40, got 1e\\+300"):
        SemFS(3, attributes=A, solver=solver, **{name: 1e300}).fit(X, y)
    selector = SemFS(3, attributes=A, solver=solver, **{name: 1e40}).fit(X, y)
    assert np.isfinite(selector.scores_).all()


def test_the_only_feature_that_varies_may_be_excluded():
    X = np.zeros((6, 2))
    X[:, 0] = np.arange(6)
    selector = SemFS(1, exclude=[0]).fit(X, [0, 1, 2, 0, 1, 2])
    assert selector.get_support().tolist() == [False, True]
    assert selector.rules_ == ["exclude: 1 feature ruled out."]


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_rule_that_forbids_a_perfect_fit_is_told_without_a_share():
    y = np.repeat([0, 1], 10)
    X = np.column_stack([y.astype(float), np.random.default_rng(0).normal(size=20)])
    selector = SemFS(1, include=[1], gamma=0.0, max_correlation=1.0).fit(X, y)
    assert "Without this rule the fit would be nearly perfect." in selector.rules_[0]


@pytest.mark.parametrize("method", ["predict", "predict_proba", "decision_function"])
@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_samples_infinitely_far_from_all_classes_are_refused(method):
    X, y, A = make_problem()
    selector = SemFS(3, attributes=A).fit(X, y)
    with pytest.raises(ValueError, match="in the same units as for fit"):
        getattr(selector, method)(1e200 * X)


def test_columns_of_one_name_are_refused_by_name():
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_problem()
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "a"])
    with pytest.raises(ValueError, match="several columns with the same name: 'a'"):
        SemFS(2).fit(frame, y)
    selector = SemFS(2).fit(frame.set_axis(["a", "b", "c"], axis=1), y)
    for missing in ("error", "ignore"):
        with pytest.raises(ValueError, match="several columns with the same name: 'a'"):
            selector.predict(frame, missing_features=missing)


def test_columns_of_one_name_are_refused_in_dask():
    dataframe = pytest.importorskip("dask.dataframe")
    pandas = pytest.importorskip("pandas")
    X, y, _ = make_problem()
    frame = pandas.DataFrame(X[:, :3], columns=["a", "b", "a"]).assign(kind=y)
    with pytest.raises(ValueError, match="several columns with the same name: 'a'"):
        SemFS(2).fit(dataframe.from_pandas(frame, npartitions=2), "kind")


def test_attributes_out_of_the_range_of_float32_samples_are_refused():
    X, y, A = make_problem()
    SemFS(2, attributes=1e-40 * A).fit(X.astype(np.float64), y)
    with pytest.raises(
        ValueError, match=r"attributes has numbers of size \S+e-\d+, .* Rescale"
    ):
        SemFS(2, attributes=1e-40 * A).fit(X.astype(np.float32), y)


# ---- tables of another layout ----------------------------------------------------------------


@pytest.fixture
def numbered():
    """Samples of classes 0 to 7, and an array (12, 20) that describes twelve classes."""
    rng = np.random.default_rng(0)
    A = rng.normal(size=(12, 20))
    y = np.arange(80) % 8
    return A[y, :6] + rng.normal(size=(80, 6)), y, A


def test_a_table_with_a_row_per_sample_is_refused(numbered):
    X, y, A = numbered
    message = (
        "attributes has 80 rows, as many as there are samples. Only 8 of these rows differ."
    )
    for per_sample in (A[y], pd.DataFrame(A[y])):
        with pytest.raises(ParameterError, match=message):
            SemFS(2, attributes=per_sample).fit(X, y)
    own = np.random.default_rng(1).normal(size=(80, 20))
    with pytest.warns(ParameterWarning, match="80 rows, as many as there are samples"):
        SemFS(2, attributes=own).fit(X, y)


def test_a_transposed_table_is_noticed(numbered):
    X, y, A = numbered
    message = (
        "has 20 rows and 12 columns, but the largest label in y is 7. .* transpose the table"
    )
    with pytest.warns(ParameterWarning, match=message):
        SemFS(2, attributes=A.T).fit(X, y)


@pytest.mark.filterwarnings("error")
def test_tables_of_many_classes_are_taken_as_they_are(numbered):
    X, y, A = numbered
    SemFS(2, attributes=A).fit(X, y)
    of_many = np.random.default_rng(1).normal(size=(100, 5))
    SemFS(2, attributes=of_many).fit(X, y)
    # Whoever writes labels means them.
    SemFS(2, attributes=dict(enumerate(A.T))).fit(X, y)


def test_an_array_of_unseen_classes_alone_is_answered_with_the_form_that_has_labels(numbered):
    X, y, A = numbered
    selector = SemFS(2, attributes=A).fit(X, y)
    with pytest.raises(ValueError, match="Row r of an array belongs to the integer label r; "):
        selector.predict(X, A[8:])
    assert set(selector.predict(X, {label: A[label] for label in range(8, 12)})) <= {
        8,
        9,
        10,
        11,
    }


def test_a_word_among_numbers_of_a_frame_is_refused_with_its_place():
    words = pd.DataFrame(X, columns=list("abcdef"))
    words["c"] = words["c"].astype(object)
    words.loc[3, "c"] = "n.m."
    wanted = r"column 'c' holds numbers, but 'n\.m\.' in row 3, counting from 0 \(1 of 60"
    with pytest.raises(ValueError, match=wanted):
        SemFS(2).fit(words, NAMES)


def test_columns_of_text_alone_are_left_out_with_a_warning():
    texts = pd.DataFrame(X, columns=list("abcdef")).assign(note="n.m.")
    texts["seen"] = pd.Timestamp("2026-01-01")
    with pytest.warns(UserWarning, match="ignored non-numeric columns of X: 'note', 'seen'"):
        selector = SemFS(2).fit(texts, NAMES)
    assert selector.n_features_in_ == 6
