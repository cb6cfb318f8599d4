"""Markers: Welch's t of each class against the rest, features taken in turns."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import ttest_ind

from semfs.baselines import Markers
from semfs.baselines.simple import welch_statistics


def cells(seed=0, n=60, d=15, n_classes=4):
    """Counts, many of them 0, with classes of uneven size; the last column is constant."""
    rng = np.random.default_rng(seed)
    y = np.sort(rng.integers(0, n_classes, n) * rng.integers(0, 2, n))
    X = rng.poisson(rng.uniform(0.2, 3.0, size=(n_classes, d))[y]).astype(float)
    X[:, -1] = 2.0
    return X, np.array(["b", "a", "d", "c"])[y]


def in_turns(X, y):
    """The definition, written out."""
    tops = []
    for label in sorted(set(y.tolist())):
        t = ttest_ind(X[y == label], X[y != label], equal_var=False).statistic
        tops.append(np.argsort(-t, kind="stable").tolist())
    taken = []
    for place in range(X.shape[1]):
        for top in tops:
            if top[place] not in taken:
                taken.append(top[place])
    return taken


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("kind", [np.asarray, sp.csr_array, sp.csc_array])
def test_classes_take_turns_in_sorted_order(kind, seed):
    X, y = cells(seed)
    fitted = Markers(5).fit(kind(X), y)
    assert fitted.order_.tolist() == [*in_turns(X[:, :-1], y), 14]
    assert_array_equal(fitted.classes_, ["a", "b", "c", "d"])


@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_statistics_are_welchs_also_beside_a_large_offset(offset):
    X, y = cells()
    _, codes = np.unique(y, return_inverse=True)
    found = welch_statistics(X[:, :-1] + offset, codes)
    for c in range(4):
        expected = ttest_ind(X[codes == c, :-1], X[codes != c, :-1], equal_var=False).statistic
        assert_allclose(found[c], expected, rtol=1e-9)


def test_scores_are_finite_and_fall_along_the_order():
    X, y = cells()
    X[:, 0] = y == "a"  # no variance on either side
    fitted = Markers(5).fit(X, y)
    assert fitted.order_[0] == 0
    assert (np.diff(fitted.scores_[fitted.order_[:-1]]) < 0).all()
    assert fitted.scores_.max() == 1.0
    assert np.isfinite(fitted.statistics_).all()
