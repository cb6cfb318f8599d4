"""`batch`: what only a donor decides is not selected, wherever the samples are."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn import config_context
from sklearn.model_selection import cross_validate

from semfs import SemFS, SemFSCV, load, save
from semfs.rows import open_blocks
from semfs.selectors.batch_like import looks_like_batches, warn_of_batch_like_clusters
from semfs.validation import ParameterWarning


def make_donors(seed=0, n=600, d=12, C=6, U=2):
    """Six classes, the last two unlabeled, three donors; column 3 is high in donor 2 only.

    Donors do not have the same classes: donor 2 has most samples of classes 0 and 4.
    """
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    often = rng.random(n) < 0.7
    donor = np.where(often & np.isin(y, [0, 4]), 2, rng.integers(0, 3, n))
    X = rng.standard_normal((n, d)).astype(np.float32)
    X[:, :3] += 2.0 * rng.standard_normal((C, 3))[y]
    X[:, 3] += 12.0 * (donor == 2)
    labels = np.where(y >= C - U, -1, y)
    return X, y, labels, np.array(["a", "b", "c"])[donor]


def assert_same_fit(first, second):
    np.testing.assert_array_equal(first.order_, second.order_)
    np.testing.assert_allclose(first.scores_, second.scores_, rtol=1e-4)
    np.testing.assert_allclose(first.batch_offsets_, second.batch_offsets_, atol=1e-4)


def one_sided(n=240):
    """Samples whose class 0 comes mostly from donor b, where column 0 is 4 higher."""
    rng = np.random.default_rng(5)
    y = np.arange(n) % 4
    donor = np.where((y == 0) & (np.arange(n) % 20 > 0), 1, rng.integers(0, 2, n))
    X = rng.uniform(0.0, 0.5, (n, 6))
    X[np.arange(n), 1 + y] += 1.0
    X[y == 0, 0] += 1.0
    X[:, 0] += 4.0 * (donor == 1)
    return X, y, np.array(["a", "b"])[donor]


def fitted_to(how, X, y, donor, folder, k=2, **rules):
    """Fit a selector with rules to samples in memory, of a file, in parts, or of Dask."""
    selector = SemFS(k, max_correlation=None, **rules)
    if how == "memory":
        return selector.fit(X, y, batch=donor)
    if how == "file":
        np.save(folder / "X.npy", X)
        return selector.fit(open_blocks(folder / "X.npy", y, batch=donor))
    if how == "dask":
        array = pytest.importorskip("dask.array")
        return selector.fit(array.from_array(X, chunks=(60, 6)), y, batch=donor)
    for rows in (slice(0, 100), slice(100, None)):
        selector.partial_fit(X[rows], y[rows], batch=donor[rows])
    return selector


@pytest.mark.parametrize("how", ["memory", "file", "parts", "dask"])
def test_limits_of_the_level_use_what_is_measured(how, tmp_path):
    X, y, donor = one_sided()
    means = np.array([X[y == label].mean(axis=0) for label in range(4)])
    limit = means[:, 0].max() - 0.1
    free = fitted_to(how, X, y, donor, tmp_path, include=[0])
    # without its offset the largest mean of column 0 is below the limit
    assert free.class_means_[:, 0].max() < limit
    np.testing.assert_allclose(free.measured_means_, means[:, free.support_], rtol=1e-6)
    levels = free.explain(*(() if how == "memory" else (X, y)), batch=donor).means
    np.testing.assert_allclose(levels.iloc[0], means[:, 0], rtol=1e-6)
    limited = fitted_to(how, X, y, donor, tmp_path, max_level=limit)
    assert not limited.support_[0]
    assert "max_level" in limited.rules_[0]
    above = fitted_to(how, X, y, donor, tmp_path, k=1, min_level=limit - 0.1)
    assert above.get_support(indices=True).tolist() == [0]


@pytest.mark.parametrize("how", ["memory", "file", "parts"])
def test_the_capacity_counts_what_is_measured(how, tmp_path):
    X, y, donor = one_sided()
    means = np.array([X[y == label].mean(axis=0) for label in range(4)])
    selector = fitted_to(how, X, y, donor, tmp_path, capacity=float(means[:, 0].max()) - 0.1)
    used = means[:, selector.support_].sum(axis=1)
    assert used.max() <= means[:, 0].max() - 0.1
    assert f"{used.max():.4g}" in selector.rules_[0]


def test_without_batches_measured_means_are_the_class_means():
    X, y, _ = one_sided()
    for batch in (None, np.full(len(y), "a")):
        selector = SemFS(3).fit(X, y, batch=batch)
        np.testing.assert_array_equal(selector.measured_means_, selector.class_means_)
    assert "batch_variance" not in selector.explain().features


def test_measured_means_are_saved_and_reasons_are_of_what_is_measured(tmp_path):
    X, y, donor = one_sided()
    selector = SemFS(2, include=[0]).fit(X, y, batch=donor)
    loaded = load(save(selector, tmp_path / "a.npz"))
    np.testing.assert_array_equal(loaded.measured_means_, selector.measured_means_)
    found = selector.explain()
    means = np.array([X[y == label].mean(axis=0) for label in range(4)])
    centered = means[:, 0] - means[:, 0].mean()
    ratios = found.classes.iloc[0].to_numpy() / centered
    np.testing.assert_allclose(ratios, ratios[0])
    assert found.features["separates"].iloc[0] == "high in 0"


def test_an_offset_makes_no_marker_of_what_a_class_does_not_show():
    # Feature 0 is 2 in the samples of class 0 from donor a, and 0 in all others. Class 3 is of
    # donor b alone, whose offset -2 lifts its adjusted mean to 2.
    y = np.repeat([0, 0, 1, 2, 3], 20)
    donor = np.repeat(["a", "b", "a", "a", "b"], 20)
    X = np.random.default_rng(0).normal(scale=0.1, size=(100, 4))
    X[:20, 0] += 2.0
    X[y == 3, 1] += 2.0
    with pytest.warns(UserWarning, match="one batch"):
        selector = SemFS(2, include=[0, 1], min_per_class=0).fit(X, y, batch=donor)
    assert selector.class_means_[3, 0] > selector.class_means_[1, 0] + 1.0
    assert selector.marks_[:, 0].tolist() == [True, False, False, False]
    assert selector.marks_[3, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_column_of_one_donor_is_not_selected(sparse):
    X, y, labels, donor = make_donors()
    X = sp.csr_array(X) if sparse else X
    for target in (y, labels):
        # with more clusters than unseen classes, noise would separate some of them
        without = SemFS(3, n_new_classes=2).fit(X, target)
        corrected = SemFS(3, n_new_classes=2).fit(X, target, batch=donor)
        assert without.support_[3]
        assert corrected.get_support(indices=True).tolist() == [0, 1, 2]
    assert corrected.batches_.tolist() == ["a", "b", "c"]
    assert corrected.batch_offsets_.shape == (3, 3)


def test_fit_equals_that_of_corrected_samples():
    X, y, _, donor = make_donors(1)
    X = X.astype(np.float64)
    found = SemFS(12).fit(X, y, batch=donor)
    offsets = np.empty((3, 12))
    offsets[:, found.get_support(indices=True)] = found.batch_offsets_
    wanted = SemFS(12).fit(X - offsets[np.unique(donor, return_inverse=True)[1]], y)
    np.testing.assert_array_equal(found.order_, wanted.order_)
    np.testing.assert_allclose(found.coef_, wanted.coef_, atol=1e-9)
    np.testing.assert_allclose(found.within_, wanted.within_, atol=1e-9)
    np.testing.assert_allclose(found.class_means_, wanted.class_means_, atol=1e-9)


def test_unlabeled_samples_are_corrected_by_the_means_of_their_batches():
    X, _, labels, donor = make_donors(2)
    hidden = labels == -1
    shifted = X.astype(np.float64)
    means = {b: shifted[hidden & (donor == b)].mean(axis=0) for b in "abc"}
    overall = shifted[hidden].mean(axis=0)
    for i in np.flatnonzero(hidden):
        shifted[i] -= means[donor[i]] - overall
    one = np.full(hidden.sum(), "a")
    rows = shifted[hidden].astype(np.float32)
    kwargs = {"batch": donor[~hidden], "X_unlabeled": rows, "batch_unlabeled": one}
    by_hand = SemFS(4, n_new_classes=2).fit(X[~hidden], labels[~hidden], **kwargs)
    within = SemFS(4, n_new_classes=2).fit(X, labels, batch=donor)
    np.testing.assert_array_equal(within.order_[:4], by_hand.order_[:4])
    np.testing.assert_array_equal(within.unlabeled_labels_, by_hand.unlabeled_labels_)
    kwargs.update(X_unlabeled=X[hidden], batch_unlabeled=donor[hidden])
    beside = SemFS(4, n_new_classes=2).fit(X[~hidden], labels[~hidden], **kwargs)
    assert_same_fit(beside, within)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("passes", ["one", "few"])
def test_files_give_the_same_answer(sparse, passes):
    X, y, labels, donor = make_donors(3)
    data = sp.csr_array(X) if sparse else X
    for target in (y, labels):
        wanted = SemFS(4).fit(data, target, batch=donor)
        target = np.where(target == -1, np.nan, target)
        options = {"memory": 4096, "block_rows": 64, "passes": passes}
        if passes == "one":
            options["memory"] = 20_000
        source = open_blocks(data, target, batch=donor, **options)
        assert not source.fits_in_memory
        assert_same_fit(SemFS(4).fit(source), wanted)
        source = open_blocks(data, target, **options)
        assert_same_fit(SemFS(4).fit(source, batch=donor), wanted)


def test_csc_files_give_the_same_answer(tmp_path):
    anndata = pytest.importorskip("anndata")
    X, _, labels, donor = make_donors(4)
    obs = pd.DataFrame({"type": pd.Categorical(labels), "donor": donor})
    obs.index = [f"cell{i}" for i in range(len(obs))]
    obs["type"] = obs["type"].cat.remove_categories([-1])
    positive = np.maximum(X, 0.0)
    wanted = SemFS(4).fit(sp.csr_array(positive), labels, batch=donor)
    for form in (sp.csr_matrix, sp.csc_matrix):
        path = tmp_path / f"{form.__name__}.h5ad"
        adata = anndata.AnnData(form(positive), obs=obs)
        adata.write_h5ad(path)
        source = open_blocks(path, "type", batch="donor", memory=4096, block_rows=64)
        assert_same_fit(SemFS(4).fit(source), wanted)
        assert_same_fit(SemFS(4).fit(path, "type", batch="donor"), wanted)
        assert_same_fit(SemFS(4).fit(adata, "type", batch="donor"), wanted)


def test_column_of_a_table_is_no_feature(tmp_path):
    X, y, _, donor = make_donors(5)
    frame = pd.DataFrame(X, columns=[f"g{j}" for j in range(X.shape[1])])
    number = np.unique(donor, return_inverse=True)[1]
    wanted = SemFS(4).fit(frame, y, batch=number)
    frame["donor"] = number
    assert_same_fit(SemFS(4).fit(frame, y, batch="donor"), wanted)
    frame["type"] = [f"t{label}" for label in y]
    assert_same_fit(SemFS(4).fit(frame, "type", batch="donor"), wanted)
    assert_same_fit(SemFS(4).fit(open_blocks(frame, "type", batch="donor")), wanted)
    frame.to_csv(tmp_path / "cells.csv", index=False)
    found = SemFS(4).fit(tmp_path / "cells.csv", "type", batch="donor")
    assert found.n_features_in_ == 12
    assert_same_fit(found, wanted)
    with pytest.raises(ValueError, match="no column 'doner'; did you mean"):
        SemFS(4).fit(frame, y, batch="doner")


def test_dask_gives_the_same_answer():
    array = pytest.importorskip("dask.array")
    X, y, labels, donor = make_donors(6)
    for target in (y, labels):
        wanted = SemFS(4).fit(X, target, batch=donor)
        data = array.from_array(X, chunks=(100, 12))
        found = SemFS(4).fit(data, array.from_array(target, chunks=100), batch=donor)
        np.testing.assert_array_equal(found.order_, wanted.order_)
        lazy = array.from_array(donor, chunks=100)
        again = SemFS(4).fit(data, target, batch=lazy)
        np.testing.assert_array_equal(again.order_, wanted.order_)


def test_partial_fit_adds_up_and_is_saved(tmp_path):
    X, y, _, donor = make_donors(7)
    wanted = SemFS(4).fit(X, y, batch=donor)
    found = SemFS(4)
    order = np.argsort(donor, kind="stable")  # donor by donor
    for rows in np.array_split(order, 5):
        found = load(save(found, tmp_path / "partial.npz"))
        found.partial_fit(X[rows], y[rows], batch=donor[rows])
    assert_same_fit(found, wanted)
    with pytest.raises(ValueError, match="batch either in every call"):
        found.partial_fit(X, y)


@pytest.mark.parametrize("target", ["seen", "unlabeled"])
def test_one_batch_changes_no_bit(target):
    X, y, labels, _ = make_donors(8)
    y = y if target == "seen" else labels
    plain = SemFS(5).fit(X, y)
    constant = SemFS(5).fit(X, y, batch=np.full(len(y), "site"))
    for name in ("order_", "scores_", "coef_", "within_", "class_means_"):
        np.testing.assert_array_equal(getattr(plain, name), getattr(constant, name))
    assert constant.batch_offsets_.shape == (0, 5)


def test_weights_are_copies():
    X, y, _, donor = make_donors(9, n=200)
    times = np.random.default_rng(0).integers(0, 4, 200)
    weighted = SemFS(4).fit(X.astype(float), y, times.astype(float), batch=donor)
    rows = np.repeat(np.arange(200), times)
    copied = SemFS(4).fit(X[rows].astype(float), y[rows], batch=donor[rows])
    assert_same_fit(weighted, copied)


def test_batches_are_checked():
    X, y, _, donor = make_donors(10)
    with pytest.raises(ValueError, match=r"batch is missing .* for 1 of 600"):
        SemFS(3).fit(X, y, batch=np.where(np.arange(600) == 5, None, donor))
    with pytest.raises(ValueError, match="600 samples but batch has 599"):
        SemFS(3).fit(X, y, batch=donor[1:])
    with pytest.raises(ValueError, match="600 samples but batch has 599"):
        SemFS(3).fit(open_blocks(X, y, memory=4096), batch=donor[1:])
    with pytest.raises(ValueError, match="must be given together"):
        SemFS(3).fit(X, y, X_unlabeled=X, batch=donor)
    with pytest.raises(ValueError, match="divide the samples in the same way"):
        SemFS(3).fit(X, y, batch=y + 10)
    alone = np.where(y == 1, "a", donor)
    with pytest.warns(UserWarning, match=r"1 of 6 classes occur in one batch only: 1 \(a\)"):
        SemFS(3).fit(X, y, batch=alone)
    # later calls may bring the class in other batches
    with pytest.warns(UserWarning, match=r"in one batch only so far: 1 \(a\)"):
        SemFS(3).partial_fit(X, y, batch=alone)


def test_batches_are_sliced_in_folds_and_routed():
    X, y, _, donor = make_donors(11)
    with config_context(enable_metadata_routing=True):
        selector = SemFS(3).set_fit_request(batch=True)
        found = cross_validate(
            selector,
            X,
            y,
            params={"batch": donor},
            cv=3,
            scoring=lambda fitted, X, y: -float(fitted.support_[3]),
            return_estimator=True,
        )
    assert found["test_score"].tolist() == [0.0, 0.0, 0.0]
    assert all(len(fitted.batches_) == 3 for fitted in found["estimator"])


def test_folds_of_classes_remove_batches():
    X, y, _, donor = make_donors(12)
    options = {"param_grid": {"gamma": [1.0, 10.0]}, "cv": 3, "n_repeats": 1}
    found = SemFSCV(3, **options).fit(X, y, batch=donor)
    assert not found.support_[3]
    constant = SemFSCV(3, **options).fit(X, y, batch=np.zeros(600))
    plain = SemFSCV(3, **options).fit(X, y)
    np.testing.assert_array_equal(constant.order_, plain.order_)
    assert constant.best_score_ == plain.best_score_


def test_explanation_shows_the_share_of_the_batch():
    X, y, _, donor = make_donors(13)
    selector = SemFS(4, include=[3]).fit(X, y, batch=donor)
    explained = selector.explain(n_bootstraps=5)
    features = explained.features
    assert features["more_batch"].to_dict()["x3"]
    assert features["more_batch"].sum() == 1
    assert features.loc["x3", "batch_variance"] > 0.8
    assert "x3" in str(explained)
    assert "varies more with the batch" in str(explained)
    assert features.loc["x0", "frequency"] > 0.5
    other = selector.explain(X, y, batch=donor, n_bootstraps=0).features
    np.testing.assert_allclose(other["batch_variance"], features["batch_variance"])
    assert "batch_variance" not in SemFS(4).fit(X, y).explain(n_bootstraps=0).features


def test_predict_removes_offsets_of_known_batches(tmp_path):
    rng = np.random.default_rng(0)
    y, donor = rng.integers(0, 4, 400), rng.integers(0, 3, 400)
    # donors raise the columns that classes do
    X = rng.standard_normal((400, 6)) + 4.0 * np.eye(4, 6)[y] + 6.0 * np.eye(3, 6)[donor]
    selector = SemFS(4).fit(X, y, batch=donor)
    with_batch = np.mean(selector.predict(X, batch=donor) == y)
    assert with_batch > 0.9
    assert with_batch > np.mean(selector.predict(X) == y) + 0.2
    loaded = load(save(selector, tmp_path / "selector.npz"))
    np.testing.assert_array_equal(
        loaded.predict(X, batch=donor), selector.predict(X, batch=donor)
    )
    unknown = selector.predict(X, batch=np.full(400, 9))
    np.testing.assert_array_equal(unknown, selector.predict(X))
    scores = selector.decision_function(X, batch=donor)
    np.testing.assert_array_equal(scores.argmax(axis=1), selector.predict(X, batch=donor))
    with pytest.raises(ValueError, match="batch has 399"):
        selector.predict(X, batch=donor[1:])


def clusters_and_donors(share_followed, seed=0, n=300):
    """Clusters 0 to 3 of samples, and donors 0 and 1: that of its cluster, or any."""
    rng = np.random.default_rng(seed)
    clusters = rng.integers(0, 4, n)
    follows = rng.random(n) < share_followed
    return clusters, np.where(follows, clusters % 2, rng.integers(0, 2, n))


def test_clusters_that_follow_a_column_of_batches_are_named():
    clusters, donor = clusters_and_donors(0.9)
    columns = {"plate": np.zeros(300, int), "donor_id": donor}
    with pytest.warns(ParameterWarning, match="follow 'donor_id'.*for 9[0-9]%") as caught:
        warn_of_batch_like_clusters("batch_key", clusters, columns)
    assert caught[0].message.name == "batch_key"


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_clusters_of_their_own_are_not_called_batches(share, recwarn):
    clusters, donor = clusters_and_donors(share)
    ignored = np.full(300, -1)  # no sample has a value, or a cluster
    each = np.arange(300)  # a value of its own for each sample is no batch
    for columns in ({"donor": donor}, {"donor": ignored}, {"donor": each}):
        warn_of_batch_like_clusters("batch", clusters, columns)
    warn_of_batch_like_clusters("batch", ignored, {"donor": donor})
    assert not recwarn.list


@pytest.mark.parametrize(
    ("name", "expected"),
    [("donor_id", True), ("Batch", True), ("orig.ident", True), ("type", False), ("", False)],
)
def test_names_of_columns_tell_batches(name, expected):
    assert looks_like_batches(name) is expected
