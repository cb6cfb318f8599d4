"""Labels beside attributes, unlabeled samples, descriptions of unseen classes, predictions."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone

from problems import make_problem
from semfs import Moments, SemFS, SemFSCV
from semfs.attributes import AttributeTable
from semfs.method.class_means import MeanModel
from semfs.method.objective import Objective
from semfs.rows import MemoryRows, open_blocks
from semfs.selectors.cluster_moments import clusters_beyond_memory
from semfs.selectors.clusters import LARGEST_SAMPLE, SampleSizes, cluster_unlabeled
from semfs.selectors.inputs.unlabeled_rows import UnlabeledStream
from semfs.selectors.prediction import ClassPredictor
from semfs.selectors.same_space import same_space
from semfs.validation import ParameterWarning

FITTED = ("order_", "scores_", "coef_", "intercept_", "objective_", "support_")


def assert_same_fit(a, b):
    for name in FITTED:
        assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)


def described_problem(seed=0, C=24, U=6, n_per_class=12, d=20, m=5, noise=1.0):
    """Class means are linear in the attributes; the last U classes are yet to come."""
    rng = np.random.default_rng(seed)
    A, map_ = rng.standard_normal((C, m)), rng.standard_normal((m, d))
    y = np.repeat(np.arange(C - U), n_per_class)
    X = (A @ map_)[y] + noise * rng.standard_normal((len(y), d))
    return X, y, A, map_


# ---- label_weight ---------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["direct", "alternating"])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_label_weight_is_an_indicator_of_each_class_beside_its_attributes(
    solver, fit_intercept
):
    X, y, A = make_problem(C=5)
    options = {"solver": solver, "fit_intercept": fit_intercept}
    # labels of weight 0.5 have half of the table's squares about the mean
    squared_weight = 0.5 * ((A - A.mean(axis=0)) ** 2).sum() / (5 - 1)
    indicators = np.sqrt(squared_weight) * np.eye(5)
    mixed = SemFS(5, A, label_weight=0.5, **options).fit(X, y)
    wide = SemFS(5, np.hstack([A, indicators]), label_weight=0.0, **options).fit(X, y)
    assert_array_equal(mixed.order_, wide.order_)
    assert_allclose(mixed.objective_, wide.objective_)
    assert_allclose(mixed.coef_, wide.coef_[:, : A.shape[1]], atol=1e-8)
    assert mixed.predict_attributes(X).shape == (len(X), A.shape[1])
    assert_array_equal(mixed.predict(X).shape, y.shape)


def test_classes_described_alike_are_separated_by_their_labels():
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(4), 50)
    X = 0.5 * rng.standard_normal((200, 6))
    X[:, 2] += y // 2  # what the table describes
    X[:, 4] += 0.9 * (y % 2)  # what only labels know
    table = {0: [0.0, 1.0], 1: [0.0, 1.0], 2: [1.0, -0.0], 3: [1.0, 0.0]}
    with pytest.warns(UserWarning, match=r"same description \(0 = 1, 2 = 3\).*label_weight=1"):
        described = SemFS(2, table, label_weight=0.0).fit(X, y)
    assert "classes described alike" not in described.knowledge_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        mixed = SemFS(2, table).fit(X, y)
    note = "0 = 1, 2 = 3: separated only by their labels"
    assert mixed.knowledge_["classes described alike"] == note
    assert mixed.order_[:2].tolist() == [2, 4]


def test_classes_all_described_alike_leave_the_labels():
    X, y, _ = make_problem()
    with pytest.warns(UserWarning, match="same for all seen classes"):
        alike = SemFS(4, np.ones((4, 3))).fit(X, y)
    assert_array_equal(alike.order_, SemFS(4).fit(X, y).order_)


# ---- unlabeled rows ------------------------------------------------------------------


def unlabeled_problem():
    X, y, A = make_problem(n=80, C=4, d=10)
    hidden = np.arange(80) % 3 == 0
    return X, np.where(hidden, -1, y), A, hidden


def corners(n_seen=8, n_new=4, per_class=40, d=30, noise=0.5, seed=0):
    """Classes in random places of a ten-dimensional space; the last ones have no labels."""
    rng = np.random.default_rng(seed)
    places = np.zeros((n_seen + n_new, d))
    places[:, :10] = 3.0 * rng.standard_normal((n_seen + n_new, 10))
    y = np.repeat(np.arange(n_seen + n_new), per_class)
    X = places[y] + noise * rng.standard_normal((len(y), d))
    seen = y < n_seen
    return X[seen], y[seen], X[~seen], y[~seen]


def test_new_classes_and_their_number_are_found():
    X, y, X_new, y_new = corners()
    selector = SemFS(5).fit(X, y, X_unlabeled=X_new)
    assert selector.n_new_classes_ == 4
    pairs = set(zip(y_new.tolist(), selector.unlabeled_labels_.tolist()))
    assert len(pairs) == 4
    # 160 samples of 4 clusters weigh 160 / (13 * 4) times as much as the seen classes
    assert selector.knowledge_["unlabeled samples"] == (
        "160 samples, grouped into 4 clusters, which carry 75 % of the weight; "
        "the 8 seen classes carry 25 %, so the selection mainly serves the clusters"
    )
    assert SemFS(5, n_new_classes=7).fit(X, y, X_unlabeled=X_new).n_new_classes_ == 7


@pytest.mark.parametrize("power", [-300, 300])
def test_new_classes_are_the_same_in_other_units(power):
    X, y, X_new, _ = corners()
    unit = 2.0**power
    plain = SemFS(5).fit(X, y, X_unlabeled=X_new)
    other = SemFS(5).fit(X * unit, y, X_unlabeled=X_new * unit)
    assert_array_equal(other.unlabeled_labels_, plain.unlabeled_labels_)
    assert_array_equal(other.order_, plain.order_)


def test_rows_apart_weigh_1_beside_weighted_ones():
    X, y, X_new, _ = corners()
    weights = np.random.default_rng(0).random(len(y))
    everything = np.vstack([X, X_new]), np.append(y, np.full(len(X_new), -1))
    apart = SemFS(5).fit(X, y, weights, X_unlabeled=X_new)
    together = SemFS(5).fit(*everything, np.append(weights, np.ones(len(X_new))))
    assert_allclose(apart.scores_, together.scores_)


def test_clusters_point_at_what_the_new_classes_differ_in():
    X, y, X_new, y_new = corners()
    X[:, 20:22] = np.random.default_rng(1).standard_normal((len(X), 2))
    X_new[:, 20:22] += 8.0 * np.c_[y_new == 9, y_new == 10]  # seen classes do not differ there
    assert not {20, 21} & set(SemFS(4).fit(X, y).order_[:4].tolist())
    assert {20, 21} & set(SemFS(4).fit(X, y, X_unlabeled=X_new).order_[:4].tolist())


def test_too_few_unlabeled_rows_are_not_used_and_a_remedy_is_named():
    X, y, X_new, _ = corners()
    with pytest.warns(UserWarning, match="too few to cluster. Pass at least 10"):
        selector = SemFS(5).fit(X, y, X_unlabeled=X_new[:6])
    assert_same_fit(selector, SemFS(5).fit(X, y))
    assert selector.n_new_classes_ == 0
    assert selector.unused_ == ["unlabeled samples"]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_the_samples_does_not_matter(seed):
    X, y, X_new, _ = corners(noise=3.0)  # clusters overlap, and K-means depends on its start
    expected = SemFS(8).fit(X, y, X_unlabeled=X_new)
    rng = np.random.default_rng(seed)
    rows, rows_new = rng.permutation(len(X)), rng.permutation(len(X_new))
    found = SemFS(8).fit(X[rows], y[rows], X_unlabeled=X_new[rows_new])
    assert_array_equal(found.unlabeled_labels_, expected.unlabeled_labels_[rows_new])
    assert_array_equal(found.order_[:8], expected.order_[:8])


def test_unlabeled_samples_of_weight_0_are_ignored():
    X, y, X_new, _ = corners()
    far = 100.0 * np.random.default_rng(1).standard_normal((60, X.shape[1]))
    labels = np.append(y, np.full(len(X_new) + 60, -1))
    weights = np.append(np.ones(len(y) + len(X_new)), np.zeros(60))
    found = SemFS(5).fit(np.vstack([X, X_new, far]), labels, weights)
    expected = SemFS(5).fit(X, y, X_unlabeled=X_new)
    assert_array_equal(found.unlabeled_labels_[:160], expected.unlabeled_labels_)
    assert (found.unlabeled_labels_[160:] == -1).all()
    assert found.knowledge_ == expected.knowledge_
    assert_allclose(found.scores_, expected.scores_)


def with_ignored_samples(X, y, labels_of_ignored):
    """Samples in random order, among them far ones of weight 0; and the weights."""
    rng = np.random.default_rng(1)
    far = 50.0 * rng.standard_normal((len(labels_of_ignored), X.shape[1]))
    order = rng.permutation(len(y) + len(far))
    weights = np.append(np.ones(len(y)), np.zeros(len(far)))[order]
    return np.vstack([X, far])[order], np.append(y, labels_of_ignored)[order], weights


@pytest.mark.parametrize("form", ["memory", "blocks", "dask"])
@pytest.mark.parametrize("seen", [True, False], ids=["seen", "unlabeled"])
def test_samples_of_weight_0_have_no_part_in_the_clusters(form, seen, tmp_path):
    X, y, X_new, _ = corners()
    X = np.vstack([X, X_new])
    y = np.append(y, np.full(len(X_new), -1))
    expected = SemFS(5).fit(X, y)
    ignored = np.arange(30) % 3 if seen else np.full(30, -1)
    Z, labels, weights = with_ignored_samples(X, y, ignored)
    if form == "memory":
        found = SemFS(5).fit(Z, labels, weights)
    elif form == "blocks":
        np.save(tmp_path / "X.npy", Z)
        source = open_blocks(
            tmp_path / "X.npy", labels, sample_weight=weights, block_rows=17, passes="few"
        )
        found = SemFS(5).fit(source)
    else:
        da = pytest.importorskip("dask.array")
        found = SemFS(5).fit(da.from_array(Z, chunks=(23, Z.shape[1])), labels, weights)
    assert found.n_new_classes_ == expected.n_new_classes_
    assert_array_equal(found.support_, expected.support_)
    assert_allclose(found.scores_, expected.scores_, rtol=1e-6)


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", ["blocks", "dask"])
def test_unlabeled_samples_beyond_memory_must_be_finite(value, form, tmp_path):
    X, y, X_new, _ = corners()
    X = np.vstack([X, X_new])
    y = np.append(y, np.full(len(X_new), -1))
    X[-3, 2] = value
    np.save(tmp_path / "X.npy", X)
    samples = open_blocks(tmp_path / "X.npy", y, block_rows=17)
    arguments = (samples,)
    if form == "dask":
        da = pytest.importorskip("dask.array")
        arguments = (da.from_array(X, chunks=(23, X.shape[1])), y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        message = "unlabeled samples contain (NaN|infinity): 1 values in columns 2"
        with pytest.raises(ValueError, match=message):
            SemFS(5).fit(*arguments)


def test_unlabeled_samples_that_all_have_weight_0_are_too_few():
    X, y, X_new, _ = corners()
    labels = np.append(y, np.full(len(X_new), -1))
    weights = np.append(np.ones(len(y)), np.zeros(len(X_new)))
    with pytest.warns(UserWarning, match="0 samples are too few to cluster"):
        SemFS(5).fit(np.vstack([X, X_new]), labels, weights)


def test_seen_classes_of_one_sample_each_say_nothing_about_distances():
    rng = np.random.default_rng(0)
    X, X_new = rng.standard_normal((6, 10)), rng.standard_normal((60, 10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = SemFS(3).fit(X, np.arange(6), X_unlabeled=X_new)
    assert found.n_new_classes_ >= 2


def test_unlabeled_samples_that_do_not_differ_are_not_used():
    X, y, _, _ = corners()
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        found = SemFS(3).fit(X, y, X_unlabeled=np.repeat(X[:1], 50, axis=0))
    assert "50 samples, not used" in found.knowledge_["unlabeled samples"]
    assert found.unused_ == ["unlabeled samples"]
    assert found.n_new_classes_ == 0
    assert_same_fit(found, SemFS(3).fit(X, y))


@pytest.mark.parametrize("streamed", [False, True])
def test_one_outlier_does_not_swallow_the_clusters(streamed):
    X, y, X_new, _ = corners()
    outlier = np.full((1, X.shape[1]), 1e12)
    expected = SemFS(5).fit(X, y, X_unlabeled=X_new)
    more = np.vstack([X_new, outlier])
    found = SemFS(5).fit(X, y, X_unlabeled=[(more, None)] if streamed else more)
    assert found.n_new_classes_ == expected.n_new_classes_
    assert_array_equal(found.order_[:5], expected.order_[:5])
    assert found.unlabeled_labels_[-1] == -1
    assert "1 ignored because" in found.knowledge_["unlabeled samples"]


def test_minus_one_none_nan_and_na_mark_rows_without_a_label():
    pd = pytest.importorskip("pandas")
    X, y, A, hidden = unlabeled_problem()
    table = dict(zip("abcd", A))
    words = np.array([None if h else "abcd"[c] for c, h in zip(y, hidden)], dtype=object)
    expected = SemFS(5, table).fit(X[~hidden], words[~hidden], X_unlabeled=X[hidden])
    minus_one = np.where(hidden, -1, words)
    kinds = [words, minus_one, list(words), list(minus_one), pd.Series(words)]
    kinds += [pd.Series(words).astype("category"), pd.Series(words, dtype="string")]
    for labels in kinds:
        selector = SemFS(5, table).fit(X, labels)
        assert selector.classes_.tolist() == list("abcd")
        assert_array_equal(selector.order_, expected.order_)
    for numbers in (np.where(hidden, np.nan, y), np.where(hidden, -1.0, y)):
        assert_array_equal(SemFS(5, A).fit(X, numbers).order_, expected.order_)


@pytest.mark.parametrize("make", [SemFS, SemFSCV])
def test_unlabeled_rows_are_checked_as_others_are(make):
    X, y, A, hidden = unlabeled_problem()
    with pytest.raises(ValueError, match="features"):
        make(5, A).fit(X, y, X_unlabeled=X[:, :3])
    broken = X.copy()
    broken[np.argmax(hidden), 2] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        make(5, A).fit(broken, y)
    with pytest.raises(ValueError, match="NaN"):
        make(5, A).fit(X[~hidden], y[~hidden], X_unlabeled=broken)


def test_what_does_not_go_with_unlabeled_rows_is_refused():
    X, y, A, _ = unlabeled_problem()
    few = [(X[:, :3], None)]
    for refused, message in (
        (lambda: SemFS(5, A, solver="alternating").fit(X, y), 'solver="direct"'),
        (lambda: SemFS(5, A, label_weight=-1).fit(X, y), "label_weight"),
        (lambda: SemFS(5).partial_fit(X, y), "only labeled samples"),
        (lambda: SemFS(5).fit_moments(Moments.from_data(X, y)), "-1, which means unlabeled"),
        (lambda: SemFS(5).fit(iter([(X, y)])), "can be read only once"),
        (lambda: SemFS(5).fit([(X, y)], X_unlabeled=X), "Put all unlabeled samples"),
        (
            lambda: SemFS(5).fit(X, abs(y), X_unlabeled=few),
            "3 features, which are not the 10 features of",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            refused()


# ---- unlabeled rows beyond memory ----------------------------------------------------


def as_npy(X, y, folder, **options):
    np.save(folder / "X.npy", X)
    return open_blocks(folder / "X.npy", y, block_rows=33, **options)


def in_pairs(X, y):
    return [(X[a : a + 37], y[a : a + 37]) for a in range(0, len(X), 37)]


def as_dask(X, y=None):
    array = pytest.importorskip("dask.array")
    X = array.from_array(X, chunks=(70, X.shape[1]))
    return (X,) if y is None else (X, array.from_array(y, chunks=90))


STREAMS = {
    "npy, one pass": lambda X, y, folder: (as_npy(X, y, folder, passes="one"),),
    "npy, few passes": lambda X, y, folder: (as_npy(X, y, folder, passes="few"),),
    "list of blocks": lambda X, y, folder: (in_pairs(X, y),),
    "marks in blocks": lambda X, y, folder: (in_pairs(X, [-1 if c is None else c for c in y]),),
    "function": lambda X, y, folder: (open_blocks(lambda: iter(in_pairs(X, y)), passes="few"),),
    "Dask array": lambda X, y, folder: as_dask(X, y),
}


@pytest.mark.parametrize("way", STREAMS)
def test_rows_without_a_label_in_a_stream_are_used_as_in_memory(way, tmp_path):
    X, y, X_new, _ = corners(n_seen=6, n_new=3, per_class=20, d=20)
    X, labels = np.vstack([X, X_new]), np.array([*y, *[None] * len(X_new)], dtype=object)
    order = np.random.default_rng(0).permutation(len(X))
    X, labels = X[order], labels[order]
    expected, found = SemFS(5).fit(X, labels), SemFS(5).fit(*STREAMS[way](X, labels, tmp_path))
    assert_array_equal(found.order_, expected.order_)
    assert found.knowledge_ == expected.knowledge_
    assert found.n_new_classes_ == expected.n_new_classes_
    if way != "Dask array":
        assert_array_equal(found.unlabeled_labels_, expected.unlabeled_labels_)


@pytest.mark.parametrize("kind", ["npy", "list of blocks", "Dask array", "array"])
@pytest.mark.parametrize("seen", ["in memory", "npy"])
def test_rows_apart_may_be_beyond_memory(kind, seen, tmp_path):
    X, y, X_new, _ = corners(n_seen=6, n_new=3, per_class=20, d=20)
    (tmp_path / "new").mkdir()
    apart = {
        "npy": lambda: as_npy(X_new, np.arange(len(X_new)), tmp_path / "new"),
        "list of blocks": lambda: in_pairs(X_new, np.zeros(len(X_new))),
        "Dask array": lambda: as_dask(X_new)[0],
        "array": lambda: X_new,
    }[kind]()
    data = (X, y) if seen == "in memory" else (as_npy(X, y, tmp_path), None)
    expected = SemFS(5).fit(X, y, X_unlabeled=X_new)
    found = SemFS(5).fit(*data, X_unlabeled=apart)
    assert_array_equal(found.order_, expected.order_)
    assert found.knowledge_ == expected.knowledge_


def test_the_number_of_new_classes_is_found_in_some_of_sorted_samples():
    X, y, X_new, _ = corners()
    # the first 80 samples alone are of two classes
    clusters, _ = cluster_unlabeled(X, y, X_new, sizes=SampleSizes(number=80))
    assert 4 <= len(clusters.centers) <= 5


def test_problems_over_the_same_rows_share_gram_columns(monkeypatch):
    asked, columns = [], MemoryRows.gram_columns
    monkeypatch.setattr(
        MemoryRows, "gram_columns", lambda *a, **k: asked.append(a) or columns(*a, **k)
    )
    X, y, A, _ = described_problem()
    assert ", used" in SemFS(9, A).fit(X, y).knowledge_["unseen classes"]
    assert len(asked) == 1


def test_a_sample_of_the_unlabeled_samples_finds_the_clusters_of_all(tmp_path):
    X, y, X_new, y_new = corners()
    seen = as_npy(X, y, tmp_path)
    rows = open_blocks(in_pairs(X_new, [None] * len(X_new))).labels_known()
    stream = UnlabeledStream(rows, seen, {"n_select": 5})
    sizes = SampleSizes(components=80, clustered=80)
    moments, labels, centers = clusters_beyond_memory(None, stream, 4, sizes)
    assert len(set(zip(y_new.tolist(), labels.tolist()))) == 4
    assert_allclose(moments.counts, 40.0)
    assert len(centers) == 4
    _, in_memory = cluster_unlabeled(X, y, X_new, 4, sizes)
    assert len(set(zip(y_new.tolist(), in_memory.tolist()))) == 4


def test_a_search_chooses_on_a_sample_and_fits_all_rows(tmp_path):
    X, y, X_new, _ = corners()
    search = SemFSCV(5, param_grid={"gamma": [1.0, 10.0]}, cv=2, n_repeats=1)
    expected = clone(search).fit(X, y, X_unlabeled=X_new)
    found = clone(search).fit(as_npy(X, y, tmp_path), X_unlabeled=X_new)
    assert found.best_score_ == expected.best_score_
    assert_array_equal(found.order_, expected.order_)
    X, y, _, _ = corners(per_class=LARGEST_SAMPLE // 8 + 100)
    np.save(tmp_path / "X.npy", X)
    fewer = clone(search).fit(open_blocks(tmp_path / "X.npy", y))
    assert_array_equal(fewer.order_, SemFS(5, **fewer.best_params_).fit(X, y).order_)


# ---- descriptions of unseen classes -----------------------------------------------------


def test_target_classes_have_predicted_means_and_the_seen_scatter():
    X, y, A, map_ = described_problem()
    moments = Moments.from_data(X, y)
    means = A[18:] @ map_
    options = {"alpha": 0.5, "fit_intercept": True}
    shares = np.full(6, len(y) / 6)
    target = Objective.of_means(moments, means, shares, np.eye(6), **options).quadratic()
    within = X - moments.means[y]
    between = means - means.mean(axis=0)
    share = len(y) / 6
    G = within.T @ within + 1.5 * share * between.T @ between
    assert_allclose(target.columns(np.arange(20)), G)
    assert_allclose(target.diag, np.diag(G))
    assert_allclose(target.B, 1.5 * share * between.T)
    whole = Objective.of_means(moments, means, shares, np.eye(6), **options)
    assert_allclose(whole.gram(), G)
    assert_allclose(target.q, 1.5 * share * (np.eye(6) - 1 / 6).trace())
    assert_allclose(target.scaled_by(4.0).B, 2.0 * target.B)


def test_good_descriptions_are_used_and_point_at_what_the_new_classes_differ_in():
    X, y, A, map_ = described_problem(noise=0.5)
    # the new classes differ in attribute 0 only, which columns 0 and 1 alone carry
    A[18:, 1:] = 0.0
    map_[0] = 0.0
    map_[0, :2] = 0.3
    X = (A @ map_)[y] + 0.5 * np.random.default_rng(3).standard_normal(X.shape)
    plain = SemFS(2, A[:18]).fit(X, y)
    aimed = SemFS(2, A[:18], target_attributes={c: A[c] for c in range(18, 24)}).fit(X, y)
    assert aimed.target_r2_ > 0.5
    assert aimed.knowledge_["unseen classes"].startswith("6 described, used")
    assert aimed.new_table_.classes.tolist() == list(range(18, 24))
    assert_same_fit(aimed, SemFS(2, A).fit(X, y))  # the rows of the table that y does not have
    assert not {0, 1} & set(plain.order_[:2].tolist())
    assert {0, 1} & set(aimed.order_[:2].tolist())


def test_descriptions_that_predict_nothing_are_not_used():
    X, y, A, _ = described_problem()
    noise = np.random.default_rng(9).standard_normal(A.shape)
    selector = SemFS(4, noise, target_attributes=noise)
    with pytest.warns(UserWarning, match="not used: descriptions explain"):
        selector.fit(X, y)
    assert selector.target_r2_ < 0.02
    assert_same_fit(selector, SemFS(4, noise, target_attributes=None).fit(X, y))


def test_descriptions_are_not_used_with_few_seen_classes():
    X, y, A, _ = described_problem()
    few = y < 4
    with pytest.warns(UserWarning, match="found 4 seen classes, but 8 are needed"):
        selector = SemFS(4, A, target_attributes=A).fit(X[few], y[few])
    assert_same_fit(selector, SemFS(4, A[:4]).fit(X[few], y[few]))
    quiet = SemFS(4, A).fit(X[few], y[few])
    assert "not used: found 4 seen classes" in quiet.knowledge_["unseen classes"]
    assert quiet.unused_ == ["unseen classes"]
    assert SemFS(4, A).fit(X, y).unused_ == []


@pytest.mark.parametrize(
    "attributes, target, message",
    [
        (None, np.eye(24), "needs attributes"),
        ("A", np.ones((24, 3)), "same attributes"),
        ("A", {0: [0.0] * 5, 1: [1.0] * 5}, "0 unseen classes"),
    ],
)
def test_target_tables_that_do_not_fit_are_refused(attributes, target, message):
    X, y, A, _ = described_problem()
    table = A if attributes == "A" else attributes
    with pytest.raises(ValueError, match=message):
        SemFS(4, table, target_attributes=target).fit(X, y)
    with pytest.raises(ValueError, match='needs solver="direct"'):
        SemFS(4, A, target_attributes=A, solver="alternating").fit(X, y)


def test_rows_go_to_the_class_in_their_direction_not_to_one_near_the_center():
    turn = np.arange(12) * np.pi / 6
    A = np.c_[np.cos(turn), np.sin(turn)]
    classes, new = np.arange(12), np.array([[0.1, 0.0], [0.0, 3.0]])
    seen = AttributeTable(A, classes, ["a", "b"])
    predictor = ClassPredictor(seen, 5.0 * A, np.eye(2))
    scores = predictor.scores(
        np.array([[0.0, 5.0]]), AttributeTable(new, classes[:2] + 12, ["a", "b"])
    )
    assert scores.argmax() == 1


# ---- prediction ------------------------------------------------------------------------


@pytest.mark.parametrize("difference", [0.0, 1e-12, 1e-9])
@pytest.mark.parametrize("k", [2, 4])
def test_scores_are_finite_where_seen_classes_are_described_alike(difference, k):
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1], 50)
    X = rng.standard_normal((100, 5)) + 3.0 * y[:, None]
    table = {0: [1.0, 0.0], 1: [1.0 + difference, 0.0], 2: [0.0, 1.0]}
    selector = SemFS(k, table, label_weight=1.0).fit(X, y)
    assert np.isfinite(selector.decision_function(X)).all()
    assert (selector.predict(X) == y).mean() > 0.9


def predicting_problem():
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(1)
    A = rng.standard_normal((12, 5))
    y = rng.integers(0, 12, 600)
    X = (A @ rng.standard_normal((5, 20)))[y] + 1.5 * rng.standard_normal((600, 20))
    X += 2.0 * rng.standard_normal((12, 20))[y]
    table = pd.DataFrame(A, index=[f"c{i:02}" for i in range(12)], columns=list("abcde"))
    return X, table.index.to_numpy()[y], table


def test_a_seen_class_is_recognized_by_its_label_however_its_description_is_rounded():
    X, y, table = predicting_problem()
    selector = SemFS(10, table).fit(X, y)
    expected = selector.decision_function(X, class_table=table)
    for rounded in (table.astype("float32"), table.round(5), table[list("edcba")]):
        assert_array_equal(selector.decision_function(X, class_table=rounded), expected)


def test_a_seen_label_with_another_description_is_refused():
    X, y, table = predicting_problem()
    selector = SemFS(10, table).fit(X, y)
    other = table.copy()
    other.loc["c03", "b"] += 1.0
    with pytest.raises(ValueError, match="describes the seen class 'c03' by 'b' = "):
        selector.predict(X, class_table=other)


@pytest.mark.parametrize("names", [range(5), [f"a{j}" for j in range(5)], list("abcde")])
def test_tables_of_the_same_attribute_names_are_aligned_by_name(names):
    X, y, table = predicting_problem()
    table.columns = list(names)
    selector = SemFS(10, table.iloc[:9]).fit(X[y < "c09"], y[y < "c09"])
    unseen = table.iloc[9:]
    backward = unseen[unseen.columns[::-1]]
    expected = selector.decision_function(X, class_table=unseen)
    assert_array_equal(selector.decision_function(X, class_table=backward), expected)


def test_as_many_attributes_as_features_are_the_features_only_by_name():
    selected = np.array([2, 0])
    assert same_space(None, 3, ["a0", "a1", "a2"], selected) is None
    assert same_space(["u", "v", "w"], 3, ["a", "b", "c"], selected) is None
    assert same_space(["u", "v", "w"], 3, ["u", "u", "w"], selected) is None
    assert same_space(["u", "v", "w"], 3, ["w", "v", "u"], selected).tolist() == [0, 2]
    assert same_space(None, 3, ["x0", "x1", "x2"], selected).tolist() == [2, 0]


def test_the_order_of_unrelated_attributes_does_not_matter():
    rng = np.random.default_rng(0)
    A = rng.standard_normal((12, 5))
    y = np.concatenate([np.arange(9), rng.integers(0, 9, 150)])
    X = (A @ rng.standard_normal((5, 5)))[y] + 0.7 * rng.standard_normal((len(y), 5))
    forward, backward = (SemFS(4, table).fit(X, y) for table in (A, A[:, ::-1]))
    assert_allclose(forward.decision_function(X), backward.decision_function(X), atol=1e-6)


def test_the_model_of_class_means_is_fitted_once_per_predictor(monkeypatch):
    fits = []
    fit = MeanModel.fit
    monkeypatch.setattr(MeanModel, "fit", lambda *args: fits.append(args) or fit(*args))
    A = np.random.default_rng(0).standard_normal((12, 2))
    names = np.array(["a", "b"])
    predictor = ClassPredictor(
        AttributeTable(A[:9], np.arange(9), names), 5.0 * A[:9], np.eye(2)
    )
    for _ in range(3):
        predictor.scores(A, AttributeTable(A, np.arange(12), names))
    assert len(fits) == 1


@pytest.mark.parametrize("kind", ["npy", "csr", "csc", "Dask array"])
def test_far_samples_are_left_out_and_clusters_are_those_of_memory(kind, tmp_path):
    X, y, X_new, _ = corners()
    # more samples than a step draws, so that the draws must be the same too
    rng = np.random.default_rng(1)
    X, y = np.tile(X, (8, 1)), np.tile(y, 8)
    X = X + rng.normal(0, 0.1, X.shape)
    X_new = np.tile(X_new, (16, 1))
    X_new = X_new + rng.normal(0, 0.1, X_new.shape)
    assert min(len(X), len(X_new)) > 2000
    far = np.zeros((2, X.shape[1]))
    far[:, 0] = 1e9
    X_new = np.vstack([X_new[:10], far, X_new[10:]])
    data = np.vstack([X, X_new])
    labels = np.array([*y, *[None] * len(X_new)], dtype=object)
    expected = SemFS(5).fit(data, labels)
    assert expected.unlabeled_labels_[10:12].tolist() == [-1, -1]
    found = SemFS(5).fit(*beyond_memory(kind, data, labels, tmp_path))
    assert found.knowledge_ == expected.knowledge_
    assert_array_equal(found.order_[:5], expected.order_[:5])
    assert_array_equal(found.unlabeled_labels_, expected.unlabeled_labels_)


def beyond_memory(kind, X, labels, folder):
    """The same samples as `fit` takes them from a file that is not loaded, or from Dask."""
    if kind == "Dask array":
        return as_dask(X, labels)
    if kind == "npy":
        np.save(folder / "X.npy", X)
        return (open_blocks(folder / "X.npy", labels, memory=8 * X.nbytes, passes="few"),)
    anndata = pytest.importorskip("anndata")
    matrix = sp.csr_matrix(X) if kind == "csr" else sp.csc_matrix(X)
    anndata.AnnData(matrix).write_h5ad(folder / "X.h5ad")
    return (open_blocks(folder / "X.h5ad", labels, memory=8 * X.nbytes, passes="few"),)


def test_keys_of_earlier_releases_are_understood():
    X, y, A, _ = described_problem()
    notes = SemFS(3, A).fit(X, y).knowledge_
    assert notes["classes to come"] == notes["unseen classes"]
    with pytest.raises(KeyError):
        notes["unlabelled rows"]  # there were none


def _with_missing(y, missing):
    """Labels of which each ninth is missing."""
    found = np.array(y, dtype=object)
    found[::9] = missing
    return found


MISSING = {"None": None, "NaN": np.nan, "NA": pd.NA}


@pytest.mark.parametrize("missing", MISSING)
@pytest.mark.parametrize("make", [lambda: SemFS(3), lambda: SemFSCV(3)], ids=["SemFS", "CV"])
def test_missing_labels_are_said_to_be_taken_for_unlabeled_samples(missing, make):
    X, y, _ = make_problem(n=180, C=8)
    names = np.array([f"kind {label}" for label in y])
    labels = _with_missing(names, MISSING[missing])
    with pytest.warns(
        ParameterWarning, match="y has no label .* for 20 of 180 samples"
    ) as seen:
        make().fit(X, labels)
    said = [str(warning.message) for warning in seen if "no label" in str(warning.message)]
    assert len(said) == 1
    assert "drop these samples" in said[0]
    assert "X_unlabeled" in said[0]


@pytest.mark.parametrize("form", ["column", "series", "csv"])
def test_missing_labels_are_found_wherever_labels_are(form, tmp_path):
    X, y, _ = make_problem(n=180, C=8)
    frame = pd.DataFrame(X, columns=list("abcdefghijklmnopqrst")[: X.shape[1]])
    labels = pd.Series(np.where(np.arange(180) % 9 == 0, np.nan, y))
    table = frame.assign(kind=labels)
    table.to_csv(tmp_path / "data.csv", index=False)
    samples = {
        "series": (frame, labels),
        "column": (table, "kind"),
        "csv": (tmp_path / "data.csv", "kind"),
    }
    with pytest.warns(ParameterWarning, match="for 20 of 180 samples"):
        SemFS(3).fit(*samples[form])


def test_samples_that_are_marked_as_unlabeled_need_no_warning():
    X, y, _ = make_problem(n=180, C=8)
    texts = _with_missing([f"kind {label}" for label in y], -1)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ParameterWarning)
        SemFS(3).fit(X, _with_missing(y, -1).astype(int))
        SemFS(3).fit(X, texts)
        SemFS(3).fit(X, y, X_unlabeled=X[::9])
        SemFS(3).fit(open_blocks(X, _with_missing(y, np.nan).astype(float)))
