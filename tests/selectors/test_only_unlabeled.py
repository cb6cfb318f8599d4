"""Features that are constant in the seen classes, but not in the unlabeled samples.

A gene that only an unseen type expresses is such a feature.
"""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from semfs import SemFS, SemFSCV, load, save
from semfs.rows import open_blocks
from semfs.select.selection import fit_features
from semfs.selectors.explaining import CLUSTERS_ONLY

ONLY = 5  # varies in the unlabeled samples only
NOWHERE = [6, 7]  # constant in both, with one value or two
UNKNOWN = -9


def samples(value=0.0, n=30):
    """Samples X (3 n, 8) of three classes, y, and unlabeled samples Z (4 n, 8) of two."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(3), n)
    X = rng.standard_normal((3 * n, 8))
    X[:, 0] += 3 * y
    Z = rng.standard_normal((4 * n, 8))
    Z[:, 0] += 1
    X[:, ONLY] = value
    Z[:, ONLY] = value + np.repeat([0.0, 8.0], 2 * n)
    X[:, NOWHERE] = Z[:, NOWHERE] = [0.1, 0.7]
    Z[:, NOWHERE[1]] = 0.3
    return X, y, Z


KINDS = {
    "dense": np.array,
    "float32": lambda X: X.astype(np.float32),
    "CSR": sp.csr_array,
    "CSC": sp.csc_array,
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e5])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("gamma", [0.0, 1e-9, 2.0])
def test_it_competes_by_what_it_says_about_the_clusters(kind, value, fit_intercept, gamma):
    X, y, Z = samples(value)
    options = {"gamma": gamma, "fit_intercept": fit_intercept}
    for n_swaps in (0, 3):
        selector = SemFS(3, n_swaps=n_swaps, **options).fit(kind(X), y, X_unlabeled=kind(Z))
        assert selector.order_[0] == ONLY
        assert np.isneginf(selector.scores_[NOWHERE]).all()
        assert_array_equal(np.sort(selector.order_[-2:]), NOWHERE)
        # it says nothing about the seen classes
        assert_array_equal(selector.coef_[ONLY], 0.0)


def test_its_gain_is_that_of_a_feature_that_hardly_varies_in_the_seen_classes():
    X, y, Z = samples()
    found = SemFS(3).fit(X, y, X_unlabeled=Z)
    X[0, ONLY] = 1e-9
    expected = SemFS(3).fit(X, y, X_unlabeled=Z)
    assert_array_equal(found.order_, expected.order_)
    assert_allclose(found.scores_[:6], expected.scores_[:6], rtol=1e-6)


def test_without_unlabeled_samples_it_is_constant():
    X, y, _ = samples()
    assert np.isneginf(SemFS(3).fit(X, y).scores_[ONLY])


def test_unlabeled_samples_that_are_not_used_reveal_nothing():
    X, y, Z = samples()
    with pytest.warns(UserWarning, match="too few to cluster"):
        selector = SemFS(3).fit(X, y, X_unlabeled=Z[-5:])
    assert np.isneginf(selector.scores_[ONLY])


def test_files_and_dask_select_it_too(tmp_path):
    X, y, Z = samples(n=60)
    expected = SemFS(3).fit(X, y, X_unlabeled=Z)
    both = np.vstack([X, Z])
    labels = np.concatenate([y, np.full(len(Z), -1)])
    np.save(tmp_path / "both.npy", both)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Z.npy", Z)
    in_file = SemFS(3).fit(open_blocks(tmp_path / "both.npy", labels, block_rows=50))
    two_files = SemFS(3).fit(
        open_blocks(tmp_path / "X.npy", y, memory=9000),
        X_unlabeled=open_blocks(tmp_path / "Z.npy", np.full(len(Z), -1), memory=9000),
    )
    found = [in_file, two_files]
    da = pytest.importorskip("dask.array")
    found.append(
        SemFS(3).fit(
            da.from_array(X, chunks=(50, 8)), y, X_unlabeled=da.from_array(Z, chunks=(70, 8))
        )
    )
    for selector in found:
        assert_array_equal(np.isneginf(selector.scores_), np.isneginf(expected.scores_))
        assert selector.order_[0] == ONLY
        assert selector.within_[ONLY - 5 :].max() < 2.0
        assert_array_equal(selector.predict(X), expected.predict(X))


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_batches_do_not_hide_it(kind):
    X, y, Z = samples()
    batch = np.arange(len(X)) % 2
    batch_unlabeled = np.arange(len(Z)) % 2
    shift = np.abs(np.random.default_rng(1).standard_normal((2, 8)))
    selector = SemFS(3).fit(
        kind(X + shift[batch]),
        y,
        X_unlabeled=kind(Z + shift[batch_unlabeled]),
        batch=batch,
        batch_unlabeled=batch_unlabeled,
    )
    assert selector.order_[0] == ONLY
    assert np.isneginf(selector.scores_[NOWHERE]).all()


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize("value", [0.0, 0.1, 1e5])
def test_predictions_of_seen_classes_are_those_without_it(kind, value):
    X, y, Z = samples(value)
    selector = SemFS(3).fit(kind(X), y, X_unlabeled=kind(Z))
    without = SemFS(2, candidates=selector.order_[1:3]).fit(kind(X), y)
    differences = [
        scores - scores[:, :1]
        for scores in (selector.decision_function(kind(X)), without.decision_function(kind(X)))
    ]
    assert_allclose(*differences, rtol=1e-5, atol=1e-5)
    assert_array_equal(selector.predict(kind(X)), without.predict(kind(X)))
    assert_allclose(selector.class_means_[:, 2], np.float32(value), rtol=1e-6)
    # that no seen class has such values is a reason to refuse a sample
    unknown = selector.predict(kind(Z), unknown=UNKNOWN) == UNKNOWN
    assert unknown[60:].all()
    assert unknown[:60].mean() < 0.2


@pytest.mark.parametrize("unit", [1e-6, 1e6])
def test_predictions_do_not_depend_on_its_unit(unit):
    X, y, Z = samples()
    Z[:, ONLY] += np.abs(np.random.default_rng(2).standard_normal(len(Z)))
    plain = SemFS(3).fit(X, y, X_unlabeled=Z)
    scale = np.ones(8)
    scale[ONLY] = unit
    in_unit = plain._get_fitted().scaled(1.0 / scale)
    predicted = in_unit.calibrated_model.scores(
        (Z * scale)[:, in_unit.selected], plain.class_table_
    )
    assert_allclose(predicted, plain.decision_function(Z), rtol=1e-6)
    variance = plain.within_[-1, -1]  # that within the clusters
    clusters = pd.Series(Z[:, ONLY]).groupby(plain.unlabeled_labels_)
    expected = (clusters.var(ddof=0) * clusters.size()).sum() / len(Z)
    assert variance == pytest.approx(expected)


def test_saved_selectors_predict_alike(tmp_path):
    X, y, Z = samples()
    selector = SemFS(3).fit(X, y, X_unlabeled=Z)
    save(selector, tmp_path / "selector.npz")
    back = load(tmp_path / "selector.npz")
    assert_array_equal(back.decision_function(Z), selector.decision_function(Z))


def test_explanations_say_what_it_is_selected_for():
    X, y, Z = samples(0.1)
    explanation = SemFS(3).fit(X, y, X_unlabeled=Z).explain(n_bootstraps=4)
    row = explanation.features.loc[f"x{ONLY}"]
    assert row["separates"] == CLUSTERS_ONLY
    assert row["carries"] == "no attribute"
    # bootstraps have no unlabeled samples
    assert np.isnan(row["frequency"])
    assert not explanation.classes.loc[f"x{ONLY}"].any()
    assert not explanation.markers.loc[f"x{ONLY}"].any()


def test_rules_of_a_panel_let_it_enter():
    X, y, Z = samples(0.1)
    groups = ["a", "b", "c", "d", "e", "own", "f", "g"]
    for rules in ({"groups": groups}, {"costs": np.ones(8), "budget": 3.0}, {"capacity": 50.0}):
        selector = SemFS(3, **rules).fit(np.abs(X), y, X_unlabeled=np.abs(Z))
        assert selector.order_[0] == ONLY
        assert np.isnan(selector.explain(n_bootstraps=3).features["frequency"].iloc[0])
        assert not selector.marks_[:, np.flatnonzero(selector.support_) == ONLY].any()


def test_cross_validation_selects_it_in_the_last_fit():
    X, y, Z = samples()
    selector = SemFSCV(3, param_grid={"gamma": [2.0]}, cv=3)
    assert selector.fit(X, y, X_unlabeled=Z).order_[0] == ONLY


@pytest.mark.parametrize("separate", [False, True])
@pytest.mark.parametrize("unit", [1e-4, 1.0, 1e4])
def test_scaling_divides_it_by_its_spread_in_the_unlabeled_samples(tmp_path, separate, unit):
    X, y, Z = samples()
    X[:, ONLY] *= unit
    Z[:, ONLY] *= unit
    names = [f"x{j}" for j in range(8)]
    labels = y if separate else np.concatenate([y, np.full(len(Z), -1)])
    frame = pd.DataFrame(X if separate else np.vstack([X, Z]), columns=names)
    frame.to_csv(tmp_path / "X.csv", index=False)
    pd.DataFrame(Z, columns=names).iloc[:, ::-1].to_csv(tmp_path / "Z.csv", index=False)
    unlabeled = None
    if separate:
        unlabeled = open_blocks(tmp_path / "Z.csv", np.full(len(Z), -1))
    source = open_blocks(tmp_path / "X.csv", labels)
    selector = fit_features(source, SemFS(3), scale=True, X_unlabeled=unlabeled).selector
    assert selector.order_[0] == ONLY
    scale = np.ones(8)
    spread = X.std(axis=0)
    scale[:ONLY] = spread[:ONLY]
    scale[ONLY] = Z[:, ONLY].std()
    expected = SemFS(3).fit(X / scale, y, X_unlabeled=Z / scale)
    assert_allclose(selector.scores_[:6], expected.scores_[:6], rtol=1e-6)
    assert_array_equal(selector.predict(X), expected.predict(X / scale))
