"""Missing values of X: named, or filled with class means."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from problems import make_problem
from semfs import SemFS, SemFSCV, load, save
from semfs.method.moments import Moments
from semfs.selectors.inputs.missing import fill_with_means


def with_gaps(X, share=0.2, seed=0):
    rng = np.random.default_rng(seed)
    X = X.copy()
    X[rng.random(X.shape) < share] = np.nan
    return X


def filled_by_hand(X, y, weights=None):
    """The oracle: M + (x - M) / sqrt(p) where x was observed, M elsewhere, in plain loops."""
    weights = np.ones(len(X)) if weights is None else weights
    out = np.empty(X.shape)
    for j in range(X.shape[1]):
        seen = ~np.isnan(X[:, j])
        share = weights[seen].sum() / weights.sum()
        for c in np.unique(y):
            rows = np.flatnonzero(y == c)
            known = rows[seen[rows]]
            mean = np.average(X[known, j], weights=weights[known])
            out[rows, j] = mean
            out[known, j] += (X[known, j] - mean) / np.sqrt(share)
    return out


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("options", [{}, {"solver": "alternating"}, {"n_swaps": 5}])
def test_a_fit_with_gaps_equals_one_on_data_filled_by_hand(weighted, options):
    X, y, A = make_problem(n=200, d=12)
    weights = np.random.default_rng(1).uniform(0.5, 2.0, len(X)) if weighted else None
    gaps = with_gaps(X)
    found = SemFS(5, attributes=A, missing_values="class-mean", **options)
    found.fit(gaps, y, sample_weight=weights)
    expected = SemFS(5, attributes=A, **options)
    expected.fit(filled_by_hand(gaps, y, weights), y, sample_weight=weights)
    assert_array_equal(found.order_, expected.order_)
    assert_allclose(found.scores_, expected.scores_, rtol=1e-9)
    assert_allclose(found.coef_, expected.coef_, rtol=1e-7, atol=1e-10)
    assert_allclose(found.within_, expected.within_, rtol=1e-7, atol=1e-10)


def test_class_means_and_scatter_are_those_of_the_values_observed():
    X, y, _ = make_problem(n=300, d=6)
    gaps = with_gaps(X, 0.3)
    selector = SemFS(6, missing_values="class-mean").fit(gaps, y)
    frame = pd.DataFrame(gaps)
    assert_allclose(selector.class_means_, frame.groupby(y).mean(), rtol=1e-10)
    residuals = frame - frame.groupby(y).transform("mean")
    # a sum of squares over the values observed, divided by their share
    expected = (residuals**2).sum() / frame.notna().mean() / len(frame)
    assert_allclose(np.diag(selector.within_), expected, rtol=1e-10)
    assert np.linalg.eigvalsh(selector.within_).min() > 0


def test_without_gaps_nothing_changes():
    X, y, A = make_problem()
    plain = SemFS(4, attributes=A).fit(X, y)
    filled = SemFS(4, attributes=A, missing_values="class-mean").fit(X, y)
    assert_array_equal(plain.scores_, filled.scores_)
    assert filled._training_moments.rows.X is X


def test_a_feature_without_a_value_in_a_class_is_refused_by_name():
    X, y, _ = make_problem(d=4)
    frame = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    frame.loc[y == 1, "b"] = np.nan
    with pytest.raises(ValueError, match=r"missing_values.*There is none for: b \(class 1\)"):
        SemFS(2, missing_values="class-mean").fit(frame, y)
    # a class of weight 0 does not count
    SemFS(2, missing_values="class-mean").fit(frame, y, sample_weight=(y != 1) * 1.0)


def test_infinity_is_no_gap():
    X, y, _ = make_problem()
    X[3, 2] = np.inf
    X[4, 2] = np.nan
    with pytest.raises(ValueError, match="infinity"):
        SemFS(2, missing_values="class-mean").fit(X, y)


def test_gaps_of_unlabeled_samples_are_filled_with_their_means():
    X, y, _ = make_problem(n=200, d=8, C=6)
    gaps = with_gaps(X, 0.1)
    seen = y < 4
    marked = np.where(seen, y, -1)
    selector = SemFS(4, missing_values="class-mean").fit(gaps, marked)
    beside = SemFS(4, missing_values="class-mean")
    beside.fit(gaps[seen], y[seen], X_unlabeled=gaps[~seen])
    assert_allclose(selector.scores_, beside.scores_)
    by_hand = np.where(np.isnan(gaps), np.nanmean(gaps[~seen], axis=0), gaps)[~seen]
    expected = SemFS(4).fit(filled_by_hand(gaps[seen], y[seen]), y[seen], X_unlabeled=by_hand)
    assert_allclose(selector.scores_, expected.scores_, rtol=1e-9)


def test_files_with_gaps(tmp_path):
    X, y, _ = make_problem(n=60, d=4)
    frame = pd.DataFrame(with_gaps(X, 0.1), columns=list("abcd"))
    frame.assign(kind=y).to_csv(tmp_path / "gaps.csv", index=False)
    found = SemFS(2, missing_values="class-mean").fit(tmp_path / "gaps.csv", "kind")
    expected = SemFS(2, missing_values="class-mean").fit(frame, y)
    assert_allclose(found.scores_, expected.scores_)
    with pytest.raises(ValueError) as caught:
        SemFS(2).fit(tmp_path / "gaps.csv", "kind")
    for name, count in frame.isna().sum().items():
        assert f"'{name}' ({count})" in str(caught.value)
    n_gaps = int(frame.isna().sum().sum())
    assert f"There are {n_gaps} in 4 columns" in str(caught.value)


def test_beyond_memory_and_in_parts_gaps_are_refused(tmp_path):
    from semfs.rows import open_blocks

    X, y, _ = make_problem()
    selector = SemFS(2, missing_values="class-mean")
    source = open_blocks(X, y, memory=2000)
    with pytest.raises(ValueError, match=r"missing_values.*memory"):
        selector.fit(source)
    with pytest.raises(ValueError, match=r"missing_values.*Use fit"):
        selector.partial_fit(X, y)
    with pytest.raises(ValueError, match=r"missing_values.*dense"):
        selector.fit(sp.csr_array(X), y)


def test_a_search_over_folds_fills_gaps():
    X, y, _ = make_problem(n=300, C=8)
    gaps = with_gaps(X, 0.1)
    search = SemFSCV(3, param_grid={"gamma": [1.0, 10.0]}, missing_values="class-mean")
    search.fit(gaps, y)
    expected = SemFSCV(3, param_grid={"gamma": [1.0, 10.0]}).fit(filled_by_hand(gaps, y), y)
    assert search.best_params_ == expected.best_params_
    assert_allclose(search.scores_, expected.scores_, rtol=1e-9)


@pytest.fixture(scope="module")
def learned():
    """A selector that filled gaps, new samples with gaps, and the same filled by hand."""
    X, y, A = make_problem(n=200, d=8, m=4)
    names = [f"s{j}" for j in range(8)]
    seen = pd.DataFrame(with_gaps(X, 0.1), columns=names)
    selector = SemFS(3, attributes=A, missing_values="class-mean").fit(seen, y)
    new = pd.DataFrame(with_gaps(X[:40], 0.2, seed=1), columns=names)
    # gaps of the fit have the means of their classes
    values = seen.fillna(seen.groupby(y).transform("mean")).mean()
    return selector, new, new.fillna(values)


FILLED = ["transform", "predict", "predict_proba", "predict_together", "decision_function"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("question", [*FILLED, "predict_attributes", "predict_top"])
@pytest.mark.parametrize("form", ["frame", "array", "file", "loaded", "dask"])
def test_gaps_of_new_samples_are_filled_with_the_means_of_the_fit(
    learned, question, form, tmp_path
):
    selector, new, filled = learned
    samples = new
    if form == "array":
        samples = new.to_numpy()
    if form == "file":
        new.to_csv(tmp_path / "new.csv", index=False)
        samples = tmp_path / "new.csv"
    if form == "dask":
        samples = pytest.importorskip("dask.array").from_array(new.to_numpy(), chunks=(15, 8))
    if form == "loaded":
        selector = load(save(selector, tmp_path / "panel.npz"))
    found = getattr(selector, question)(samples)
    expected = getattr(selector, question)(filled)
    if not isinstance(found, tuple):
        found, expected = (found,), (expected,)
    for one, other in zip(found, expected):
        if np.asarray(other).dtype.kind == "f":
            assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-6)
        else:
            assert_array_equal(np.asarray(one), np.asarray(other))


@pytest.mark.parametrize("package", ["pandas", "polars"])
def test_frames_that_transform_returns_have_no_gaps(learned, package):
    pytest.importorskip(package)
    selector, new, filled = learned
    framed = clone(selector).set_output(transform=package)
    framed.__dict__.update({k: v for k, v in vars(selector).items() if k.endswith("_")})
    found = framed.transform(new)
    assert_allclose(found.to_numpy(), filled[selector.get_feature_names_out()])


def test_a_warning_counts_what_was_filled(learned):
    selector, _new, filled = learned
    rows = filled.copy()
    first, second, third = selector.get_feature_names_out()
    rows.loc[3, first] = np.nan
    rows.loc[5, [first, second, third]] = np.nan
    with pytest.warns(UserWarning, match="4 missing values of selected features, in 2 sampl"):
        selector.predict(rows)
    with pytest.warns(UserWarning, match="1 sample has no value for any selected feature"):
        selector.predict(rows)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        selector.predict(filled)


def test_infinity_of_new_samples_is_no_gap(learned):
    selector, _new, filled = learned
    rows = filled.copy()
    rows.loc[3, selector.get_feature_names_out()[0]] = np.inf
    with pytest.raises(ValueError, match="infinity"):
        selector.predict(rows)


def test_a_shorter_selection_and_an_older_file_keep_to_what_they_know(learned, tmp_path):
    selector, new, _ = learned
    shorter = selector._get_fitted().top(2)
    kept = np.isin(selector.get_support(indices=True), shorter.selected)
    assert_array_equal(shorter.fill_values, selector.fill_values_[kept])
    older = load(save(selector, tmp_path / "panel.npz"))
    # files of earlier versions have no such attribute
    del older.fill_values_
    assert len(older.predict(new.fillna(0.0))) == len(new)
    with pytest.raises(ValueError, match="NaN"):
        older.predict(new)


def test_without_gaps_in_mind_a_fit_learns_no_values():
    X, y, _ = make_problem()
    selector = SemFS(3).fit(X, y)
    assert selector.fill_values_.shape == (0,)
    with pytest.raises(ValueError, match="NaN"):
        selector.predict(with_gaps(X, 0.1))


def test_all_columns_with_gaps_are_named_at_once():
    X, y, _ = make_problem(n=50, d=5)
    frame = pd.DataFrame(X, columns=list("abcde"))
    frame.iloc[[3, 4, 9], 1] = np.nan
    frame.iloc[7, 4] = np.nan
    with pytest.raises(ValueError, match=r"In total, 4 in 2 columns: 'b' \(3\), 'e' \(1\)"):
        SemFS(2).fit(frame, y)
    with pytest.raises(ValueError, match=r"In total, 4 in 2 columns: 1 \(3\), 4 \(1\)"):
        SemFS(2).fit(frame.to_numpy(), y)
    with pytest.raises(ValueError, match=r"In total, 4 in 2 columns"):
        Moments.from_data(frame.to_numpy(), y)


def test_samples_of_weight_zero_have_no_part_in_the_means_of_gaps():
    X = np.array([[1.0, np.nan], [3.0, np.nan], [100.0, np.nan], [np.nan, np.nan]])
    weights = np.array([1.0, 3.0, 0.0, 1.0])
    filled = fill_with_means(X, np.array([7.0, 8.0]), weights)
    assert filled[3].tolist() == [2.5, 8.0]
    assert filled[:3, 0].tolist() == [1.0, 3.0, 100.0]


def test_an_ignored_sample_changes_nothing_where_gaps_are_filled():
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2, -1], 30)
    X = rng.normal(size=(120, 8)) + 2.0 * rng.normal(size=(4, 8))[y]
    X[::9, 2] = np.nan
    with_outlier = np.vstack([X, np.full((1, 8), 1e3)])
    labels = np.append(y, -1)
    weights = np.append(np.ones(120), 0.0)
    parameters = {"missing_values": "class-mean", "n_new_classes": 2}
    expected = SemFS(4, **parameters).fit(X, y, sample_weight=np.ones(120))
    found = SemFS(4, **parameters).fit(with_outlier, labels, sample_weight=weights)
    assert found.order_[:4].tolist() == expected.order_[:4].tolist()
    assert_allclose(found.scores_, expected.scores_)


@pytest.fixture(scope="module")
def sensors():
    """Samples as a frame, a selector of three named columns, and one that is not selected."""
    X, y, table = make_problem(d=8, m=4)
    frame = pd.DataFrame(X, columns=[f"s{j}" for j in range(8)])
    selector = SemFS(3, attributes=table).fit(frame, y)
    other = frame.columns[~selector.get_support()][0]
    return frame, selector, other


QUESTIONS = ["transform", "predict", "predict_proba", "decision_function", "predict_attributes"]


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("form", ["pandas", "polars", "array", "sparse"])
@pytest.mark.parametrize("gap", [np.nan, np.inf])
def test_gaps_in_features_that_are_not_selected_do_not_matter(sensors, question, form, gap):
    frame, selector, other = sensors
    broken = frame.copy()
    broken.loc[4, other] = gap
    samples = {
        "pandas": broken,
        "array": broken.to_numpy(),
        "sparse": sp.csr_array(broken.to_numpy()),
    }
    if form == "polars":
        samples["polars"] = pytest.importorskip("polars").from_pandas(broken)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "X does not have valid feature names")
        found = getattr(selector, question)(samples[form])
    if sp.issparse(found):
        found = found.toarray()
    expected = getattr(selector, question)(frame)
    if expected.dtype.kind == "f":
        assert_allclose(found, expected)
    else:
        assert_array_equal(found, expected)


@pytest.mark.parametrize("question", QUESTIONS)
def test_gaps_in_selected_features_are_refused_with_advice_that_can_be_followed(
    sensors, question, tmp_path
):
    frame, selector, other = sensors
    selected = selector.get_feature_names_out()[0]
    broken = frame.copy()
    broken.loc[6, selected] = np.nan
    broken.loc[2, other] = np.nan
    broken.to_csv(tmp_path / "broken.csv", index=False)
    place = frame.columns.get_loc(selected)
    with pytest.raises(ValueError, match=rf"row 6\b.* column {place} \('{selected}'\)") as said:
        getattr(selector, question)(broken)
    assert "missing_features" in str(said.value)
    assert "missing_values" not in str(said.value)
    with pytest.raises(
        ValueError, match=rf"column '{selected}', row 7\. There are 1 in 1 column"
    ) as said:
        getattr(selector, question)(tmp_path / "broken.csv")
    assert "missing_features" in str(said.value)
    assert "impute" not in str(said.value)


@pytest.mark.parametrize("question", QUESTIONS)
@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_of_a_file_only_the_selected_columns_are_needed(sensors, question, ending, tmp_path):
    frame, selector, other = sensors
    broken = frame.copy()
    broken.loc[4, other] = np.nan
    others = [name for name in frame.columns[~selector.get_support()] if name != other]
    broken = broken.drop(columns=others[0])
    path = tmp_path / f"broken{ending}"
    if ending == ".csv":
        # a word among numbers is refused only where numbers are needed
        broken[others[1]] = broken[others[1]].astype(object)
        broken.loc[3, others[1]] = "n.m."
        broken.to_csv(path, index=False)
    else:
        broken.to_parquet(path)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "ignored non-numeric columns")
        found = getattr(selector, question)(path)
    expected = getattr(selector, question)(frame)
    if expected.dtype.kind == "f":
        assert_allclose(found, expected, rtol=1e-6)
    else:
        assert_array_equal(found, expected)


def test_a_frame_of_the_selected_columns_alone_is_enough_where_features_may_be_missing(sensors):
    frame, selector, _ = sensors
    alone = frame[selector.get_feature_names_out()[::-1]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = selector.predict(alone, missing_features="ignore")
    assert_array_equal(found, selector.predict(frame))
    with pytest.raises(ValueError, match="feature names should match"):
        selector.predict(alone)
