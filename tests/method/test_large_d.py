"""Many columns: no d × d matrix anywhere, and sparse data stay sparse."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import semfs.rows.sums
from problems import make_words
from semfs import SemFS
from semfs.rows import open_blocks


def blocks_of(X, y, rows):
    return lambda: ((X[a : a + rows], y[a : a + rows]) for a in range(0, X.shape[0], rows))


def test_a_small_cut_gives_the_dense_answer():
    X, y = make_words(3000, 600, density=0.02)
    dense = SemFS(30).fit(X.toarray(), y)
    for found in (
        SemFS(30).fit(X, y),
        SemFS(30).fit(open_blocks(blocks_of(X, y, 700), passes="few")),
        SemFS(30).fit(open_blocks(blocks_of(X, y, 700), passes="one")),
    ):
        assert found.order_[:30].tolist() == dense.order_[:30].tolist()
        assert_allclose(found.scores_, dense.scores_, rtol=1e-4)


def test_sparse_blocks_are_never_made_dense(monkeypatch):
    X, y = make_words(2000, 5000)
    expected = SemFS(20).fit(X, y).order_[:20].tolist()
    shapes = []
    original = sp.csr_array.toarray

    def watched(self, *args, **kwargs):
        shapes.append(self.shape)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(sp.csr_array, "toarray", watched)
    selector = SemFS(20).fit(open_blocks(blocks_of(X, y, 500), memory="20MB"))
    assert selector.order_[:20].tolist() == expected
    assert shapes
    assert max(min(shape) for shape in shapes) <= 128  # class sums, chosen columns


def test_columns_beyond_the_budget_are_fetched_by_passes_over_a_dense_file(tmp_path):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, 400)
    X = (rng.normal(size=(400, 3000)) + 2 * rng.normal(size=(5, 3000))[y]).astype(np.float32)
    np.save(tmp_path / "X.npy", X)
    source = open_blocks(tmp_path / "X.npy", y, memory="8MB")  # d × d would take 72 MB
    assert not source.forms_matrix(15)
    assert not source.fits_in_memory
    selector = SemFS(15).fit(open_blocks(tmp_path / "X.npy", y, memory="8MB", block_rows=50))
    assert selector.order_[:15].tolist() == SemFS(15).fit(X, y).order_[:15].tolist()


def test_what_cannot_be_done_is_said_with_what_to_do():
    X, y = make_words(400, 3000)
    with pytest.raises(ValueError, match=r'alternating" needs this matrix.*solver="direct"'):
        SemFS(5, solver="alternating").fit(open_blocks(blocks_of(X, y, 100), memory="8MB"))
    with pytest.raises(ValueError, match="can be read only once"):
        SemFS(5).fit(open_blocks(blocks_of(X, y, 100)(), memory="8MB"))


def test_alternating_refuses_a_matrix_larger_than_memory(monkeypatch):
    monkeypatch.setattr(semfs.rows.sums, "memory_limit", lambda: 10**6)
    X, y = make_words(900, 800)
    with pytest.raises(ValueError, match=r"scatter matrix of 800 features.*direct"):
        SemFS(5, solver="alternating").fit(X, y)
    SemFS(5).fit(X, y)
