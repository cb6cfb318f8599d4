"""Unlabeled samples in other units than labeled ones: when a fit warns, and when not."""

import warnings

import numpy as np
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from semfs import SemFS
from semfs.datasets import load_sample

UNITS = "seem to be in other units"
SCALE = "seem to be on another scale"
N_CHANNELS = 60


def machine(n_classes=12, n_seen=9, seed=0):
    """Return labeled samples of sensors (n, 60), their classes, and unlabeled samples.

    The first six channels are temperatures, the last 20 vibrations about 0.
    """
    rng = np.random.default_rng(seed)
    y = np.arange(40 * n_classes) % n_classes
    centers = rng.normal(size=(n_classes, N_CHANNELS))
    Z = centers[y] + rng.normal(size=(len(y), N_CHANNELS))
    X = Z + 5.0
    X[:, :6] = 20.0 + 2.0 * Z[:, :6]
    X[:, 40:] = Z[:, 40:]
    is_seen = y < n_seen
    return X[is_seen], y[is_seen], X[~is_seen]


def scale_warnings(X, y, unlabeled, **params):
    """Return the warnings of a fit about units and scales."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        SemFS(5, **params).fit(X, y, X_unlabeled=unlabeled)
    texts = [str(warning.message) for warning in found]
    return [text for text in texts if UNITS in text or SCALE in text]


def changed(Z, channels, factor=1.0, offset=0.0):
    Z = Z.copy()
    Z[:, channels] = factor * Z[:, channels] + offset
    return Z


CASES = {
    "one channel in mg": (slice(10, 11), 1000.0, 0.0, 1),
    "all temperatures in Fahrenheit": (slice(0, 6), 1.8, 32.0, 6),
    "15 channels about 0 times 9.81": (slice(40, 55), 9.81, 0.0, None),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seed", range(3))
def test_features_in_other_units_are_named(case, seed):
    channels, factor, offset, n_expected = CASES[case]
    X, y, unlabeled = machine(seed=seed)
    assert not scale_warnings(X, y, unlabeled)
    (text,) = scale_warnings(X, y, changed(unlabeled, channels, factor, offset))
    assert UNITS in text
    assert "in the units of X" in text
    n_found = int(text.split(" of ")[0])
    named = [int(part.split(":")[0]) for part in text.split("x")[1:] if part[0].isdigit()]
    assert named
    assert set(named) <= set(range(N_CHANNELS)[channels])
    if n_expected:
        assert n_found == n_expected


def test_the_message_has_the_numbers():
    X, y, unlabeled = machine()
    (text,) = scale_warnings(X, y, changed(unlabeled, 10, 1000.0))
    means = [X[y == label, 10].mean() for label in range(9)]
    mean = 1000 * unlabeled[:, 10].mean()
    assert f"x10: mean {mean:.4g}, class means {min(means):.4g} to {max(means):.4g}" in text
    assert f"standard deviation {1000 * unlabeled[:, 10].std():.4g}" in text


def test_features_that_cannot_be_selected_are_not_compared():
    X, y, unlabeled = machine()
    assert not scale_warnings(X, y, changed(unlabeled, 10, 1000.0), exclude=["x10"])


@pytest.mark.parametrize("seed", range(10))
def test_unseen_classes_of_sensors_are_no_other_unit(seed):
    X, y, unlabeled = machine(seed=seed)
    assert not scale_warnings(X, y, unlabeled)
    assert not scale_warnings(*machine(10, 9, seed))
    assert not scale_warnings(*machine(8, 4, seed))
    assert not scale_warnings(*machine(6, 2, seed))


@pytest.mark.parametrize("seed", range(10))
def test_unseen_cell_types_are_no_other_unit(seed):
    data = load_sample()
    X = np.asarray(data.X.toarray() if hasattr(data.X, "toarray") else data.X)
    types = np.random.default_rng(seed).permutation(np.unique(data.y))
    unseen = np.isin(data.y, types[:5])
    assert not scale_warnings(X[~unseen], data.y[~unseen], X[unseen])


def test_genes_that_only_an_unseen_type_expresses_are_no_other_unit():
    rng = np.random.default_rng(0)
    y = np.arange(400) % 10
    X = rng.normal(3.0, 1.0, (400, 200)) + rng.normal(size=(10, 200))[y]
    # rarely above 0 in seen types, and never in ten of the genes
    X[:, 100:] = np.where(rng.random((400, 100)) < 0.02, 0.5, 0.0)
    X[:, 190:] = 0.0
    is_seen = y < 9
    X[~is_seen, 100:] = rng.normal(5.0, 1.0, (40, 100))
    assert not scale_warnings(X[is_seen], y[is_seen], X[~is_seen])
    assert scale_warnings(X[is_seen], y[is_seen], changed(X[~is_seen], 7, 1000.0))


@pytest.mark.parametrize("kind", ["cells", "sensors"])
def test_raw_samples_beside_standardized_ones_are_noticed(kind):
    X, y, unlabeled = machine()
    if kind == "cells":
        X, y, unlabeled, _ = load_sample().split()
    pipeline = make_pipeline(StandardScaler(), SemFS(5))
    with pytest.warns(UserWarning, match=SCALE):
        pipeline.fit(X, y, semfs__X_unlabeled=unlabeled)
    scaler = StandardScaler().fit(X)
    assert not scale_warnings(scaler.transform(X), y, scaler.transform(unlabeled))
    alone = StandardScaler().fit_transform(unlabeled)
    (text,) = scale_warnings(X, y, alone)
    assert SCALE in text


def test_samples_that_are_three_times_as_large_are_noticed():
    X, y, unlabeled = machine()
    (text,) = scale_warnings(X, y, 3.0 * unlabeled)
    assert SCALE in text
    X, y, unlabeled, _ = load_sample().split()
    assert scale_warnings(X, y, 3.0 * unlabeled)
