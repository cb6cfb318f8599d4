"""X_unlabeled with other features, in another order, or on another scale."""

import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from problems import make_problem
from semfs import SemFS


@pytest.fixture
def frames():
    X, y, _ = make_problem(n=240, d=10, C=8)
    frame = pd.DataFrame(X, columns=[f"gene{j}" for j in range(10)])
    seen = y < 5
    return frame[seen], y[seen], frame[~seen]


def test_features_in_another_order_are_found_by_name(frames):
    X, y, unlabeled = frames
    expected = SemFS(4).fit(X, y, X_unlabeled=unlabeled)
    others = unlabeled[unlabeled.columns[::-1]].assign(further=1.0)
    found = SemFS(4).fit(X, y, X_unlabeled=others)
    assert_allclose(found.scores_, expected.scores_)


def test_files_in_another_order_are_found_by_name(frames, tmp_path):
    X, y, unlabeled = frames
    expected = SemFS(4).fit(X, y, X_unlabeled=unlabeled)
    unlabeled[unlabeled.columns[::-1]].to_csv(tmp_path / "new.csv", index=False)
    found = SemFS(4).fit(X, y, X_unlabeled=tmp_path / "new.csv")
    assert_allclose(found.scores_, expected.scores_)


@pytest.mark.parametrize("sparse", [False, True])
def test_features_that_are_lacking_count_for_the_seen_classes_alone(frames, sparse):
    X, y, unlabeled = frames
    lacking = ["gene3", "gene7"]
    fewer = unlabeled.drop(columns=lacking)
    if sparse:
        anndata = pytest.importorskip("anndata")
        fewer = anndata.AnnData(
            sp.csr_matrix(fewer.to_numpy()), var=pd.DataFrame(index=fewer.columns)
        )
    with pytest.warns(UserWarning, match="lacks 2 of 10 features: gene3, gene7"):
        found = SemFS(4).fit(X, y, X_unlabeled=fewer)
    # the clusters are those of data without these features
    without = SemFS(4).fit(
        X.drop(columns=lacking), y, X_unlabeled=unlabeled.drop(columns=lacking)
    )
    assert_array_equal(found.unlabeled_labels_, without.unlabeled_labels_)
    # included, they can be selected, whatever the unlabeled samples say
    with pytest.warns(UserWarning, match="lacks"):
        included = SemFS(4, include=lacking).fit(X, y, X_unlabeled=fewer)
    assert set(lacking) <= set(included.get_feature_names_out())


def test_samples_of_x_and_others_that_lack_features_are_treated_alike(frames):
    """A feature that only some of the unlabeled samples have must not separate them."""
    X, y, unlabeled = frames
    half = len(unlabeled) // 2
    first, second = unlabeled.iloc[:half], unlabeled.iloc[half:].drop(columns="gene3")
    first = first.assign(gene3=first["gene3"] + 1000.0)
    both = pd.concat([X, first])
    labels = np.concatenate([y, np.full(half, -1)])
    with pytest.warns(UserWarning, match="lacks 1"):
        found = SemFS(4).fit(both, labels, X_unlabeled=second)
    expected = SemFS(4).fit(
        X.drop(columns="gene3"), y, X_unlabeled=unlabeled.drop(columns="gene3")
    )
    assert_array_equal(found.unlabeled_labels_, expected.unlabeled_labels_)


def test_without_a_common_name_or_without_names_it_is_refused(frames):
    X, y, unlabeled = frames
    with pytest.raises(ValueError, match="X_unlabeled has none of the 10 features"):
        SemFS(4).fit(X, y, X_unlabeled=unlabeled.add_prefix("other_"))
    with pytest.raises(ValueError, match="X_unlabeled has 9 features"):
        SemFS(4).fit(X, y, X_unlabeled=unlabeled.to_numpy()[:, 1:])


def test_unlabeled_samples_that_bypass_the_scaler_are_noticed():
    X, y = load_digits(return_X_y=True)
    new = y >= 7
    plain = make_pipeline(StandardScaler(), SemFS(10))
    with pytest.warns(UserWarning, match=r"another scale.*transform_input"):
        plain.fit(X[~new], y[~new], semfs__X_unlabeled=X[new])
    with sklearn.config_context(enable_metadata_routing=True), warnings.catch_warnings():
        warnings.simplefilter("error")
        routed = Pipeline(
            [
                ("scale", StandardScaler()),
                ("select", SemFS(10).set_fit_request(X_unlabeled=True)),
            ],
            transform_input=["X_unlabeled"],
        )
        routed.fit(X[~new], y[~new], X_unlabeled=X[new])
    assert routed["select"].n_new_classes_ < 10


def test_unlabeled_samples_of_other_classes_are_on_the_same_scale(frames):
    X, y, unlabeled = frames
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SemFS(4).fit(X, y, X_unlabeled=unlabeled)
    with pytest.warns(UserWarning, match="another scale"):
        SemFS(4).fit(X, y, X_unlabeled=50.0 * unlabeled)
