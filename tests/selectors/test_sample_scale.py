"""New samples in other units than those of the fit: when predictions warn, and when not."""

import warnings

import numpy as np
import pytest

from semfs import SemFS
from semfs.selectors.sample_scale import ScaleWatch

OFF = "seem to have other units"
#: Means, and standard deviations within classes, of three features of each kind.
KINDS = {"temp": (60.0, 8.0), "press": (310000.0, 9000.0), "vib": (3.0, 1.0)}


def machine(n_classes=12, n=240, seed=0):
    """Samples (n, 9) of three kinds of sensors, their classes and descriptions."""
    rng = np.random.default_rng(seed)
    table = rng.normal(size=(n_classes, 4))
    y = np.arange(n) % n_classes
    Z = table[y] @ rng.normal(size=(4, 9)) + rng.normal(size=(n, 9))
    mean = np.repeat([mean for mean, _ in KINDS.values()], 3)
    scale = np.repeat([scale for _, scale in KINDS.values()], 3)
    return mean + scale * Z, y, table


def names():
    return [f"{kind}{j}" for kind in KINDS for j in range(3)]


@pytest.fixture(scope="module")
def fitted():
    X, y, table = machine()
    is_seen = y < 10
    return SemFS(8, attributes=table).fit(X[is_seen] / X.std(axis=0), y[is_seen])


def new_samples(y_is=lambda y: y >= 10):
    X, y, _ = machine()
    return X[y_is(y)]


def unit():
    return machine()[0].std(axis=0)


def fahrenheit(X):
    X = X.copy()
    X[:, :3] = X[:, :3] * 9 / 5 + 32
    return X


def bar(X):
    X = X.copy()
    X[:, 3:6] /= 1e5
    return X


def standardized(X):
    return (X - X.mean(axis=0)) / X.std(axis=0)


@pytest.mark.parametrize("change", [fahrenheit, bar, standardized])
@pytest.mark.parametrize(
    "method",
    ["predict", "predict_proba", "predict_top", "predict_together", "predict_attributes"],
)
def test_values_in_other_units_are_noticed(method, change, fitted):
    with pytest.warns(UserWarning, match=OFF):
        getattr(fitted, method)(change(new_samples()) / unit())


def test_the_warning_names_the_features_and_what_to_do():
    pd = pytest.importorskip("pandas")
    X, y, table = machine()
    frame = pd.DataFrame(X, columns=names())
    selector = SemFS(9, attributes=table).fit(frame[y < 10], y[y < 10])
    with pytest.warns(UserWarning, match=OFF) as found:
        selector.predict(pd.DataFrame(bar(new_samples()), columns=names()))
    text = str(found[0].message)
    assert text.startswith("3 of 9 selected features")
    mean = bar(new_samples())[:, 3].mean()
    assert f"press0: mean {mean:.4g} in the new samples, but class means from " in text
    assert "in the same units" in text
    assert "--unknown 0.05" in text


@pytest.mark.parametrize("n_classes", [2, 3, 4, 6, 10])
@pytest.mark.parametrize("n", [1, 5, 100])
def test_samples_of_a_single_unseen_class_are_no_other_unit(n_classes, n):
    for seed in range(4):
        X, y, _ = machine(12, 1200, seed)
        X = X / X.std(axis=0)
        selector = SemFS(6).fit(X[y < n_classes], y[y < n_classes])
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for label in range(n_classes, 12):
                selector.predict(X[y == label][:n])


def test_samples_of_another_place_are_no_other_unit(fitted):
    shift = np.random.default_rng(0).normal(size=9)
    shifted = (new_samples(lambda y: y >= 0) / unit() + 0.7 * shift) * 1.3
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(new_samples() / unit() + 0.7 * shift)
        fitted.predict(np.clip(shifted, shifted.mean(axis=0) - 4, shifted.mean(axis=0) + 4))


def test_a_few_broken_values_are_no_other_unit(fitted):
    X = new_samples() / unit()
    X[:5] = 1e9
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted.predict(X)


def watched(Z, n_classes=10, n_features=6):
    """Return whether samples are off the scale of means from 1 to 3 and a deviation of 1."""
    means = np.linspace(-1.0, 1.0, n_classes)[:, None] * np.ones(n_features)
    watch = ScaleWatch(means, np.ones(n_features), [f"f{j}" for j in range(n_features)])
    for block in np.array_split(Z, 3):
        watch.add(block)
    return watch.off_scale()


def test_values_about_0_that_are_far_smaller_are_noticed():
    Z = np.random.default_rng(0).normal(size=(60, 6))
    assert not watched(Z).any()
    assert watched(Z / 100).all()
    # genes that this class does not have, beside others
    assert not watched(Z * [0.0, 0.0, 0.01, 0.0, 1.0, 1.0]).any()
    assert not watched(Z[:10] / 100).any()


def test_one_far_feature_is_enough_only_with_many_samples_and_classes():
    Z = np.random.default_rng(0).normal(size=(60, 6))
    Z[:, 2] += 8.0
    assert watched(Z).tolist() == [False, False, True, False, False, False]
    assert not watched(Z[:3]).any()
    assert not watched(Z, n_classes=3).any()
    Z[:, 2] += 100.0
    assert watched(Z[:3]).sum() == 1
    assert watched(Z, n_classes=3).sum() == 1


def test_blocks_of_a_file_are_one_set_of_samples(tmp_path, monkeypatch):
    pd = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    X, y, table = machine()
    frame = pd.DataFrame(X, columns=names())
    selector = SemFS(9, attributes=table).fit(frame[y < 10], y[y < 10])
    path = tmp_path / "new.csv"
    # more than half of all samples, but not of each block
    mixed = np.vstack([new_samples(), bar(new_samples()), bar(new_samples())])
    monkeypatch.setattr("semfs.io.reader.BLOCK_BYTES", 2000)
    for samples, n_warnings in ((new_samples(), 0), (mixed, 1)):
        pd.DataFrame(samples, columns=names()).to_csv(path, index=False)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            selector.predict(path)
        assert len([w for w in found if OFF in str(w.message)]) == n_warnings
