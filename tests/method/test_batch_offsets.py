"""Offsets of batches, and moments from which they are removed, against corrected samples."""

import numpy as np
import pytest
import scipy.sparse as sp

from semfs import Moments
from semfs.labels import Labels
from semfs.method.batches import (
    OffsetMatrix,
    Pairs,
    batch_labels,
    batch_offsets,
    pair_labels,
    remove_batches,
    stacked_offset_matrices,
)
from semfs.rows import open_blocks


def make_batches(seed=0, n=200, d=9, C=4, B=3, shift=3.0):
    """Samples, classes, batches and weights; classes and batches are unbalanced."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    batch = np.where(rng.random(n) < 0.5, y % B, rng.integers(0, B, n))
    X = rng.standard_normal((n, d)) + rng.standard_normal((C, d))[y]
    X += shift * rng.standard_normal((B, d))[batch]
    return X, y, batch, rng.uniform(0.5, 2.0, n)


def additive_offsets(X, y, batch, weights=None):
    """Offsets (B, d) by least squares on the samples themselves."""
    w = np.ones(len(y)) if weights is None else weights
    C = y.max() + 1
    design = np.zeros((len(y), C + batch.max() + 1))
    design[np.arange(len(y)), y] = 1.0
    design[np.arange(len(y)), C + batch] = 1.0
    root = np.sqrt(w)[:, None]
    offsets = np.linalg.lstsq(root * design, root * X, rcond=None)[0][C:]
    n_batch = np.bincount(batch, w)
    return offsets - n_batch @ offsets / n_batch.sum()


def pair_moments(X, y, batch, weights=None):
    labels = pair_labels(Labels.of(y), batch_labels(batch, len(y)))
    codes = labels.codes.astype(np.intp)
    return Moments.from_checked(X, codes, labels.class_array(), weights)


def assert_same_moments(found, wanted, rtol=1e-9):
    scale = np.abs(wanted.scatter()).max()
    columns = np.array([4, 1])
    assert found.classes.tolist() == wanted.classes.tolist()
    np.testing.assert_allclose(found.counts, wanted.counts)
    np.testing.assert_allclose(found.means, wanted.means, atol=rtol)
    np.testing.assert_allclose(found.scatter_diag, wanted.scatter_diag, rtol=rtol)
    np.testing.assert_allclose(found.scatter(), wanted.scatter(), atol=rtol * scale)
    np.testing.assert_allclose(
        found.scatter_columns(columns), wanted.scatter_columns(columns), atol=rtol * scale
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_offsets_are_those_of_least_squares(weighted):
    X, y, batch, weights = make_batches()
    weights = weights if weighted else None
    found = remove_batches(pair_moments(X, y, batch, weights)).rows.offsets
    np.testing.assert_allclose(found, additive_offsets(X, y, batch, weights), atol=1e-11)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_moments_equal_those_of_corrected_samples(sparse, weighted):
    X, y, batch, weights = make_batches(1)
    weights = weights if weighted else None
    if sparse:
        X = np.where(X > 0.5, X, 0.0)
    corrected = X - additive_offsets(X, y, batch, weights)[batch]
    wanted = Moments.from_data(corrected, y, sample_weight=weights)
    found = remove_batches(pair_moments(sp.csr_array(X) if sparse else X, y, batch, weights))
    assert_same_moments(found, wanted)
    features = np.arange(X.shape[1])
    np.testing.assert_allclose(
        found.within_estimate(features), wanted.within_estimate(features), rtol=1e-8
    )


def test_moments_of_parts_add_up():
    X, y, batch, _ = make_batches(2)
    wanted = Moments.from_data(X - additive_offsets(X, y, batch)[batch], y)
    parts = [
        pair_moments(X[rows], y[rows], batch[rows]) for rows in np.split(np.arange(200), 4)
    ]
    added = parts[0] + parts[1] + parts[2] + parts[3]
    assert_same_moments(remove_batches(added), wanted)
    assert_same_moments(remove_batches(added.compact()), wanted)


@pytest.mark.parametrize("passes", ["one", "few"])
@pytest.mark.parametrize("sparse", [False, True])
def test_moments_of_files_equal_those_of_corrected_samples(passes, sparse):
    X, y, batch, weights = make_batches(3)
    if sparse:
        X = np.where(X > 0.5, X, 0.0)
    wanted = Moments.from_data(
        X - additive_offsets(X, y, batch, weights)[batch], y, sample_weight=weights
    )
    labels = pair_labels(Labels.of(y), batch_labels(batch, len(y)))
    data = sp.csr_array(X) if sparse else X
    source = open_blocks(data, y, sample_weight=weights, block_rows=32, passes=passes)
    sums, rows = source.with_labels(labels).sums(n_select=3)
    assert (rows is None) == (passes == "one")
    assert_same_moments(remove_batches(Moments.from_sums(sums, rows)), wanted)


def test_one_batch_changes_nothing():
    X, y, _, _ = make_batches(4)
    plain = Moments.from_data(X, y)
    found = remove_batches(pair_moments(X, y, np.full(len(y), "a")))
    assert found.classes.tolist() == plain.classes.tolist()
    assert np.array_equal(found.means, plain.means)
    assert np.array_equal(found.scatter_diag, plain.scatter_diag)


def test_offsets_of_batches_that_share_no_class_are_relative_to_their_classes():
    """Classes 0 and 1 in batches 0 and 1, class 2 in batches 2 and 3 only."""
    counts = np.array([5.0, 3.0, 2.0, 4.0, 6.0, 2.0])
    class_of = np.array([0, 0, 1, 1, 2, 2])
    batch_of = np.array([0, 1, 0, 1, 2, 3])
    class_effects = np.array([1.0, 2.0, 50.0])
    offsets = np.array([0.0, 3.0, 0.0, 1.0])
    means = (class_effects[class_of] + offsets[batch_of])[:, None]
    found = batch_offsets(counts, means, class_of, batch_of)[:, 0]
    np.testing.assert_allclose(np.diff(found)[[0, 2]], [3.0, 1.0])
    n_batch = np.bincount(batch_of, counts)
    np.testing.assert_allclose(n_batch[:2] @ found[:2], 0.0, atol=1e-12)
    np.testing.assert_allclose(n_batch[2:] @ found[2:], 0.0, atol=1e-12)


def test_column_that_only_the_batch_decides_is_constant():
    X, y, batch, _ = make_batches(5)
    X[:, 2] = np.array([0.1, 7.3, -2.0])[batch]
    found = remove_batches(pair_moments(X, y, batch))
    assert found.constant()[2]
    assert not found.constant()[[0, 1, 3]].any()


def test_shares_of_variance():
    """Crossed classes and batches without noise: shares add up to 1."""
    y, batch = np.repeat([0, 1], 4), np.tile([0, 1], 4)
    X = np.stack([3.0 * y + batch, y + 3.0 * batch], axis=1)
    found = remove_batches(pair_moments(X, y, batch))
    of_class, of_batch = found.rows.variance_shares(np.array([0, 1]))
    np.testing.assert_allclose(of_class, [0.9, 0.1])
    np.testing.assert_allclose(of_batch, [0.1, 0.9])


def test_pairs_of_labels():
    labels = pair_labels(Labels.of(["b", None, "a", "b"]), Labels.of([1, 1, 2, 2]))
    assert labels.classes == [("b", 1), ("b", 2), ("a", 2)]
    assert labels.codes.tolist() == [0, -1, 2, 1]
    pairs = Pairs.from_labels(labels.class_array())
    assert pairs.classes.tolist() == ["a", "b"]
    assert pairs.class_of.tolist() == [1, 1, 0]
    assert pairs.batch_of.tolist() == [0, 1, 1]


@pytest.mark.parametrize("sparse", [False, True])
def test_matrix_minus_offsets_is_never_formed(sparse):
    X, _, batch, _ = make_batches(6)
    offsets = np.random.default_rng(0).standard_normal((3, X.shape[1]))
    dense = X - offsets[batch]
    matrix = OffsetMatrix(sp.csr_array(X) if sparse else X, batch, offsets)
    D = np.random.default_rng(1).standard_normal((X.shape[1], 2))
    rows = np.array([3, 10, 50])
    np.testing.assert_allclose(matrix @ D, dense @ D)
    np.testing.assert_allclose(matrix.transposed_product(dense @ D), dense.T @ (dense @ D))
    np.testing.assert_allclose(matrix.mean(), dense.mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(matrix[rows].toarray(), dense[rows])
    both = stacked_offset_matrices([matrix[:5], matrix[rows]])
    np.testing.assert_allclose(both.toarray(), np.concatenate([dense[:5], dense[rows]]))
