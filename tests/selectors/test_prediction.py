"""Calibration between seen and unseen classes, samples together, probabilities, refusals."""

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from semfs import Moments, SemFS, load, save
from semfs.datasets import load_sample
from semfs.method.class_means import MeanModel
from semfs.rows import open_blocks
from semfs.selectors.calibration_sample import CalibrationSample
from semfs.selectors.certainty import quantile
from semfs.selectors.classifier import largest_columns
from semfs.selectors.together import KeptBlocks

C, U, M, D = 24, 8, 6, 20  # seen classes, unseen classes, attributes, features


@pytest.fixture(scope="module")
def problem():
    """Means nearly linear in the attributes; samples to fit, of seen and of unseen classes."""
    rng = np.random.default_rng(0)
    A = rng.standard_normal((C + U, M))
    means = 0.5 * A @ rng.standard_normal((M, D)) + 0.8 * rng.standard_normal((C + U, D))

    def samples(classes, n):
        y = np.repeat(classes, n)
        return means[y] + rng.standard_normal((len(y), D)), y

    seen, unseen = np.arange(C), np.arange(C, C + U)
    return A, samples(seen, 40), samples(seen, 20), samples(unseen, 30)


@pytest.fixture(scope="module")
def fitted(problem):
    A, train, _, _ = problem
    return SemFS(12, A).fit(*train)


def new_table(problem):
    A = problem[0]
    return {label: A[label] for label in range(C, C + U)}


def seen_table(problem):
    A = problem[0]
    return {label: A[label] for label in range(C)}


def frame_of(X, names=None):
    pandas = pytest.importorskip("pandas")
    return pandas.DataFrame(X, columns=names or [f"g{j}" for j in range(X.shape[1])])


def harmonic(seen_right, unseen_right):
    """The harmonic mean of two accuracies."""
    a, b = np.mean(seen_right), np.mean(unseen_right)
    return 2 * a * b / (a + b)


# ---- calibration ------------------------------------------------------------------------


def test_the_bias_is_subtracted_only_where_seen_and_unseen_classes_compete(problem, fitted):
    X = problem[3][0]
    raw = fitted._predictor()
    Z = X[:, fitted.get_support()]
    table = fitted.candidate_classes(None)
    assert fitted.bias_ > 0
    expected = raw.scores(Z, table)
    expected[:, :C] -= fitted.bias_
    assert_allclose(fitted.decision_function(X), expected)
    for alone in (seen_table(problem), new_table(problem)):
        found = fitted.decision_function(X, alone)
        assert_allclose(found, raw.scores(Z, fitted.candidate_classes(alone)))


def test_calibration_raises_the_harmonic_mean_on_cells():
    lung = load_sample()
    X, y, X_unseen, y_unseen = lung.split()
    test = np.arange(len(y)) % 3 == 0
    selector = SemFS(50, lung.attributes).fit(X[~test], y[~test])
    found = [selector.predict(Z) for Z in (X[test], X_unseen)]
    table = selector.candidate_classes(None)
    raw = []
    for Z in (X[test], X_unseen):
        selected = np.asarray(Z[:, selector.get_support()], dtype=float)
        scores = selector._predictor().scores(selected, table)
        raw.append(table.classes[scores.argmax(axis=1)])
    before = harmonic(raw[0] == y[test], raw[1] == y_unseen)
    assert harmonic(found[0] == y[test], found[1] == y_unseen) > 1.1 * before


def test_simulated_samples_give_nearly_the_same_bias(problem, fitted):
    A, train, _, _ = problem
    without = SemFS(12, A).fit_moments(Moments.from_data(*train).compact())
    assert without.calibration_sample_ == {}
    assert without.bias_ == pytest.approx(fitted.bias_, abs=2.0)


def test_calibration_does_not_depend_on_the_order_or_repetition_of_samples(problem, fitted):
    A, (X, y), _, _ = problem
    order = np.random.default_rng(1).permutation(len(y))
    assert SemFS(12, A).fit(X[order], y[order]).bias_ == pytest.approx(fitted.bias_)
    weights = 1.0 + np.arange(len(y)) % 2
    twice = np.repeat(np.arange(len(y)), weights.astype(int))
    weighted = SemFS(12, A).fit(X, y, sample_weight=weights)
    repeated = SemFS(12, A).fit(X[twice], y[twice])
    assert weighted.bias_ == pytest.approx(repeated.bias_)
    assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X))


def test_two_seen_classes_leave_nothing_to_calibrate_by(problem):
    A, (X, y), _, (Xu, _) = problem
    selector = SemFS(12, A).fit(X[y < 2], y[y < 2])
    assert selector.bias_ == 0.0
    assert selector.predict_proba(Xu).shape == (len(Xu), C + U)
    assert len(selector.predict_together(Xu)) == len(Xu)


def test_a_saved_selector_and_its_first_features_are_calibrated_alike(
    problem, fitted, tmp_path
):
    X = problem[3][0]
    back = load(save(fitted, tmp_path / "selector.npz"))
    assert back.bias_ == pytest.approx(fitted.bias_)
    assert_array_equal(back.predict_together(X), fitted.predict_together(X))
    assert_allclose(back.predict_proba(X), fitted.predict_proba(X))
    few = fitted._get_fitted().top(5).calibrated_model
    again = SemFS(5, problem[0]).fit(*problem[1])
    # the samples that are kept are not the same
    assert few.bias == pytest.approx(again.bias_, abs=1.5)


def test_a_sample_keeps_features_and_classes_of_sparse_rows(problem):
    A, (X, y), _, _ = problem
    X = np.where(np.abs(X) > 1, X, 0.0)
    dense = SemFS(6, A).fit(X, y)
    sparse = SemFS(6, A).fit(sp.csr_array(X), y)
    assert sparse.bias_ == pytest.approx(dense.bias_)
    kept = sparse.calibration_sample_
    assert kept["features"].shape == (20 * C, 6)
    assert_array_equal(np.bincount(kept["codes"]), 20)
    assert_array_equal(kept["counts"], 40)


def test_a_refitted_model_of_all_classes_is_the_model_itself(problem):
    A, (X, y), _, _ = problem
    means = Moments.from_data(X, y).means
    model = MeanModel.fit(A[:C], means)
    again = model.refit(A[:C], means)
    assert_allclose(again.predict(A[C:]), model.predict(A[C:]))
    assert_allclose(again.errors, model.errors)


# ---- together ---------------------------------------------------------------------------


def test_samples_that_are_predicted_together_help_each_other(problem, fitted):
    X, y = problem[3]
    table = new_table(problem)
    alone = np.mean(fitted.predict(X, table) == y)
    together = np.mean(fitted.predict_together(X, table) == y)
    assert together > 1.05 * alone


def test_classes_described_alike_are_tied_and_the_first_wins(problem, fitted):
    A = problem[0].copy()
    X, _ = problem[3]
    table = {label: A[label] for label in range(C, C + U)}
    table |= {f"copy of {label}": A[label] for label in range(C, C + U)}
    rng = np.random.default_rng(0)
    expected = fitted.predict_together(X, table)
    assert all(isinstance(label, int) for label in expected.tolist())
    for _ in range(10):
        order = rng.permutation(len(X))
        assert_array_equal(fitted.predict_together(X[order], table), expected[order])
    proba = fitted.predict_proba(X, table, together=True)
    assert_array_equal(proba[:, :U], proba[:, U:])


#: Every way to ask for classes or probabilities.
QUESTIONS = {
    "predict": lambda selector, X: selector.predict(X),
    "together": lambda selector, X: selector.predict_together(X),
    "scores": lambda selector, X: selector.decision_function(X),
    "proba": lambda selector, X: selector.predict_proba(X),
    "proba together": lambda selector, X: selector.predict_proba(X, together=True),
    "unknown": lambda selector, X: selector.predict(X, unknown=-1, unknown_rate=0.2),
    "unknown together": lambda selector, X: selector.predict_together(
        X, unknown=-1, unknown_rate=0.2
    ),
}


def assert_same_answer(found, expected):
    """Labels are equal, and numbers up to the rounding of sums in another order."""
    found = np.asarray(found)
    if expected.dtype.kind == "f":
        assert_allclose(found, expected, rtol=1e-6, atol=1e-9)
    else:
        assert_array_equal(found, expected)


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_order_of_samples_does_not_matter(problem, fitted, question):
    X = np.concatenate([problem[2][0], problem[3][0]])
    order = np.random.default_rng(0).permutation(len(X))
    ask = QUESTIONS[question]
    assert_same_answer(ask(fitted, X[order]), ask(fitted, X)[order])


def test_seen_classes_keep_their_means(problem, fitted):
    X = np.concatenate([problem[2][0], problem[3][0]])
    model = fitted._get_fitted().calibrated_model
    table = fitted.candidate_classes(None)
    Z = X[:, fitted.get_support()]
    block = (model.predictor.whiten(Z), model.scores(Z, table))
    mixture = model.mixture(table).fit([block])
    assert_allclose(mixture.means[:C], model.predictor.whiten(fitted.class_means_))


@pytest.mark.parametrize("question", QUESTIONS)
def test_the_same_answer_from_memory_file_and_dask(problem, fitted, tmp_path, question):
    pytest.importorskip("pyarrow")
    X = np.concatenate([problem[2][0], problem[3][0]])
    frame = frame_of(X)
    A, (Z, y), _, _ = problem
    named = SemFS(12, A).fit(frame_of(Z), y)
    path = tmp_path / "new.parquet"
    frame.to_parquet(path)
    ask = QUESTIONS[question]
    expected = ask(named, frame)
    if question.startswith("unknown"):
        assert (expected == -1).any()
    assert_same_answer(ask(named, path), expected)
    array = pytest.importorskip("dask.array")
    assert_same_answer(ask(fitted, array.from_array(X, chunks=(37, 7))), expected)
    frames = pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)
    assert_same_answer(ask(named, frames), expected)


def test_samples_beyond_memory_are_kept_in_a_file():
    rng = np.random.default_rng(0)
    blocks = [(rng.random((r, 3)), rng.random((r, 2))) for r in (4, 1, 5)]
    kept = KeptBlocks(memory=8 * 5 * 4)
    for W, L in blocks:
        kept.append(W, L)
    assert kept.file is not None
    for _ in range(2):
        for (W, L), (V, K) in zip(kept, blocks, strict=True):
            assert_array_equal(W, V)
            assert_array_equal(L, K)


def test_samples_are_predicted_alone_where_folds_say_so(problem, fitted, monkeypatch):
    X = problem[3][0]
    model = fitted._get_fitted().calibrated_model
    assert model.trial.gain > 0
    monkeypatch.setitem(model.trial.__dict__, "gain", -0.2)
    table = new_table(problem)
    assert_array_equal(fitted.predict_together(X, table), fitted.predict(X, table))


# ---- probabilities and refusals -----------------------------------------------------------


def test_probabilities_are_calibrated_on_unseen_classes(problem, fitted):
    X, y = problem[3]
    table = new_table(problem)
    P = fitted.predict_proba(X, table)
    assert_allclose(P.sum(axis=1), 1.0)
    assert_array_equal(P.argmax(axis=1) + C, fitted.predict(X, table))
    assert abs(P.max(axis=1).mean() - np.mean(P.argmax(axis=1) + C == y)) < 0.12


def test_the_best_classes_come_first(problem, fitted):
    X = problem[3][0]
    for together in (False, True):
        P = fitted.predict_proba(X, together=together)
        labels, shares = fitted.predict_top(X, n=3, together=together)
        assert_array_equal(labels[:, 0], P.argmax(axis=1))
        assert_allclose(shares, -np.sort(-P, axis=1)[:, :3])


@pytest.mark.parametrize("n", [1, 2, 5, 6, 8])
def test_the_best_of_several_classes_are_those_of_a_stable_sort(n):
    values = np.random.default_rng(0).integers(0, 4, (50, 8)).astype(float)  # with ties
    before = values.copy()
    expected = np.argsort(-values, axis=1, kind="stable")[:, :n]
    assert_array_equal(largest_columns(values, n), expected)
    assert_array_equal(values, before)


def test_scores_of_a_table_are_log_likelihoods_minus_the_bias(problem, fitted):
    X = problem[3][0]
    model = fitted._get_fitted().calibrated_model
    Z = X[:, fitted.get_support()]
    of_seen = model.scores(Z, fitted.candidate_classes(seen_table(problem)))
    of_unseen = model.scores(Z, fitted.candidate_classes(new_table(problem)))
    both = fitted.decision_function(X)
    assert_allclose(both, np.hstack([of_seen - fitted.bias_, of_unseen]))


@pytest.mark.parametrize("rate", [0.05, 0.2])
def test_samples_of_seen_classes_are_refused_at_the_rate_that_was_set(problem, fitted, rate):
    X = problem[2][0]
    for table in (None, seen_table(problem)):
        found = fitted.predict(X, table, unknown="none", unknown_rate=rate)
        assert 0.5 * rate < np.mean(found == "none") < 2 * rate
    assert "none" not in fitted.predict(X)


def test_samples_far_from_all_classes_are_unknown(problem, fitted):
    far = 30.0 + problem[2][0][:10]
    assert_array_equal(fitted.predict(far, unknown=-1), -1)
    assert_array_equal(fitted.predict_together(far, unknown=-1), -1)
    labels, _ = fitted.predict_top(far, unknown=-1)
    assert_array_equal(labels[:, 0], -1)
    assert (labels[:, 1] >= 0).all()


def test_an_unknown_label_must_not_be_a_class(problem, fitted):
    with pytest.raises(ValueError, match="unknown is 3, which is one of the classes"):
        fitted.predict(problem[2][0], unknown=3)
    with pytest.raises(ValueError, match="unknown_rate must be a share"):
        fitted.predict(problem[2][0], unknown=-1, unknown_rate=5)


def test_quantiles_count_weights():
    assert quantile(np.array([3.0, 1.0, 2.0]), np.array([1.0, 1.0, 8.0]), 0.5) == 2.0
    assert quantile(np.zeros(0), np.zeros(0), 0.5) == -np.inf


# ---- missing features ---------------------------------------------------------------------


def test_missing_features_are_left_out_of_the_decision(problem, tmp_path):
    pytest.importorskip("pyarrow")
    A, (X, y), _, (Xu, yu) = problem
    selector = SemFS(12, A).fit(frame_of(X), y)
    lost = selector.get_feature_names_out()[:3].tolist()
    without = frame_of(Xu).drop(columns=lost)
    with pytest.raises(ValueError, match=lost[0]):
        selector.predict(without)
    with pytest.warns(UserWarning, match=f"X lacks 3 of 12 selected .*{lost[0]}"):
        found = selector.predict(without, new_table(problem), missing_features="ignore")
    alone = np.mean(selector.predict(frame_of(Xu), new_table(problem)) == yu)
    assert np.mean(found == yu) > 0.6 * alone
    path = tmp_path / "without.parquet"
    without.to_parquet(path)
    with pytest.warns(UserWarning, match="X lacks 3"):
        again = selector.predict(path, new_table(problem), missing_features="ignore")
    assert_array_equal(again, found)


def test_a_model_of_fewer_features_is_that_of_a_fit_to_them(problem, fitted):
    model = fitted._get_fitted().calibrated_model
    kept = np.arange(12) >= 3
    Z = problem[3][0][:, fitted.get_support()][:, kept]
    table = fitted.candidate_classes(None)
    found = model.keep_features(kept).predictor.scores(Z, table)
    columns = np.flatnonzero(fitted.get_support())[kept]
    A, (X, y), _, _ = problem
    direct = SemFS(9, A).fit(X[:, columns], y)
    assert_allclose(found, direct._predictor().scores(Z, table))


def test_no_selected_feature_at_all_is_refused(problem):
    A, (X, y), _, _ = problem
    selector = SemFS(5, A).fit(frame_of(X), y)
    other = frame_of(X, [f"h{j}" for j in range(D)])
    with pytest.raises(ValueError, match="none of the 5 selected features"):
        selector.predict(other, missing_features="ignore")


def test_features_may_be_in_another_order_if_some_may_be_missing(problem):
    A, (X, y), _, (Xu, _) = problem
    selector = SemFS(5, A).fit(frame_of(X), y)
    frame = frame_of(Xu)
    expected = selector.decision_function(frame)
    reversed_order = frame[list(frame.columns)[::-1]].assign(other=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = selector.decision_function(reversed_order, missing_features="ignore")
    assert_allclose(found, expected)


@pytest.mark.parametrize("method", ["predict", "decision_function", "predict_attributes"])
def test_predictions_of_dask_can_be_sent_to_workers(problem, method):
    da = pytest.importorskip("dask.array")
    cloudpickle = pytest.importorskip("cloudpickle")
    A, (X, y), _, (Xu, _) = problem
    selector = SemFS(5, A).fit(X, y)
    found = getattr(selector, method)(da.from_array(Xu, chunks=(20, Xu.shape[1])))
    # a cluster of other processes gets the graph as bytes
    graph = cloudpickle.loads(cloudpickle.dumps(dict(found.dask)))
    assert set(graph) == set(found.dask)
    assert_array_equal(found.compute(scheduler="synchronous"), getattr(selector, method)(Xu))


def test_data_with_all_features_give_no_warning(problem):
    A, (X, y), _, (Xu, _) = problem
    selector = SemFS(5, A).fit(frame_of(X), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = selector.predict(frame_of(Xu), missing_features="ignore")
    assert_array_equal(found, selector.predict(frame_of(Xu)))


# ---- attributes that may be the features --------------------------------------------------


def test_attributes_that_repeat_the_features_are_recognized_without_names():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((30, 32))
    y = np.repeat(np.arange(20), 10)
    X = A[y] + 0.5 * rng.standard_normal((200, 32))
    repeating = SemFS(16, A).fit(X, y)
    assert repeating._predictor()._mean_model.slope > 0.5


def test_unrelated_columns_are_never_taken_for_the_features():
    for seed in range(20):
        rng = np.random.default_rng(seed)
        d = 5 if seed % 2 else 20
        A = rng.standard_normal((14, d))
        y = np.repeat(np.arange(10), 12)
        X = (A @ rng.standard_normal((d, d)))[y] + rng.standard_normal((120, d))
        found = SemFS(d, A).fit(X, y)
        assert found._predictor()._mean_model.slope == 0.0


def test_simulated_samples_have_the_means_and_covariance_they_were_given():
    means = np.array([[0.0, 0.0], [10.0, -5.0]])
    within = np.array([[2.0, 1.0], [1.0, 3.0]])
    sample = CalibrationSample.simulated(np.tile(means, (1, 1)), within)
    assert not sample.is_real
    for label in (0, 1):
        assert_allclose(sample.Z[sample.codes == label].mean(axis=0), means[label], atol=1.5)


@pytest.mark.filterwarnings("error")
def test_a_fit_to_sums_is_calibrated_without_noise(problem):
    A, (X, y), (X_new, _), _ = problem
    selector = SemFS(6, A).fit_moments(Moments.from_data(X, y))
    P = selector.predict_proba(X_new)
    assert_allclose(P.sum(axis=1), 1.0)


@pytest.mark.parametrize("together", [False, True])
def test_some_rows_are_predicted_as_if_there_were_no_others(problem, fitted, together):
    X = np.vstack([problem[2][0], problem[3][0]])
    rows = np.zeros(len(X), dtype=bool)
    rows[len(problem[2][0]) :: 2] = True
    labels, shares = fitted.predict_top(X, rows=rows, together=together)
    expected = fitted.predict_top(X[rows], together=together)
    assert_array_equal(labels, expected[0])
    assert_allclose(shares, expected[1])
    with pytest.raises(
        ValueError, match="rows has 3 values, which is not the number of rows of X"
    ):
        fitted.predict_top(X, rows=[True, False, True])
    with pytest.raises(ValueError, match=r"rows has .* which is not the number of rows of X"):
        fitted.predict_top(X[:-1], rows=rows)


# ---- samples beyond memory --------------------------------------------------------------


@pytest.mark.parametrize("kind", ["npy", "csr", "csc"])
@pytest.mark.parametrize("block_rows", [37, 500])
def test_files_are_calibrated_on_the_samples_of_a_fit_in_memory(
    problem, tmp_path, kind, block_rows
):
    A, (X, y), (X_new, _), _ = problem
    X = np.vstack([np.exp(X), np.exp(X[:9])])  # some samples twice
    y = np.append(y, y[:9])
    weights = np.random.default_rng(0).integers(0, 3, len(y)).astype(float)
    path = tmp_path / ("X.npy" if kind == "npy" else "X.h5ad")
    if kind == "npy":
        np.save(path, X)
    else:
        anndata = pytest.importorskip("anndata")
        matrix = sp.csc_matrix(X) if kind == "csc" else sp.csr_matrix(X)
        anndata.AnnData(matrix).write_h5ad(path)
    source = open_blocks(path, y, sample_weight=weights, block_rows=block_rows, memory=40_000)
    assert not source.fits_in_memory
    from_file = SemFS(12, A).fit(source)
    expected = SemFS(12, A).fit(X, y, sample_weight=weights)
    for name, values in expected.calibration_sample_.items():
        assert_allclose(from_file.calibration_sample_[name], values)
    assert from_file.bias_ == pytest.approx(expected.bias_)
    assert_array_equal(from_file.predict(np.exp(X_new)), expected.predict(np.exp(X_new)))


def test_files_with_batches_are_calibrated_without_their_offsets(problem, tmp_path):
    A, (X, y), _, _ = problem
    batch = np.arange(len(y)) % 3
    shift = 5.0 * np.random.default_rng(0).standard_normal((3, D))
    np.save(tmp_path / "X.npy", X + shift[batch])
    source = open_blocks(tmp_path / "X.npy", y, block_rows=64, memory=40_000)
    selector = SemFS(12, A).fit(source, batch=batch)
    sample = selector.calibration_sample_
    assert_array_equal(sample["counts"], 40.0)
    distance = sample["features"] - selector.class_means_[sample["codes"]]
    # the offsets would add 5 standard deviations
    assert distance.std() < 1.2


def test_sums_and_data_of_several_calls_have_no_samples_to_read(problem, tmp_path):
    A, (X, y), _, _ = problem
    np.save(tmp_path / "X.npy", X)
    source = open_blocks(tmp_path / "X.npy", y, block_rows=64, memory=40_000)
    assert SemFS(12, A).partial_fit(source, None).calibration_sample_ == {}
    assert SemFS(12, A).fit_moments(Moments.from_data(X, y).compact()).calibration_sample_ == {}
