"""Many columns: no d × d matrix anywhere, and sparse data stay sparse."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import semfs.rows.memory
from problems import make_words
from semfs import Moments, SemFS
from semfs.rows import open_blocks

ROOT = Path(__file__).parents[2]


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
    assert not source.wants_matrix(15)
    assert not source.fits or source.nbytes < 4_000_000
    selector = SemFS(15).fit(open_blocks(tmp_path / "X.npy", y, memory="8MB", block_rows=50))
    assert selector.order_[:15].tolist() == SemFS(15).fit(X, y).order_[:15].tolist()


def test_what_cannot_be_done_is_said_with_what_to_do():
    X, y = make_words(400, 3000)
    with pytest.raises(ValueError, match=r'alternating" needs it.*solver="direct"'):
        SemFS(5, solver="alternating").fit(open_blocks(blocks_of(X, y, 100), memory="8MB"))
    with pytest.raises(ValueError, match="can be read only once"):
        SemFS(5).fit(open_blocks(blocks_of(X, y, 100)(), memory="8MB"))


def test_alternating_refuses_a_matrix_larger_than_memory(monkeypatch):
    monkeypatch.setattr(semfs.rows.memory, "memory_limit", lambda: 10**6)
    X, y = make_words(900, 800)
    with pytest.raises(ValueError, match=r"scatter matrix of 800 features.*direct"):
        SemFS(5, solver="alternating").fit(X, y)
    SemFS(5).fit(X, y)


def test_sums_of_sparse_moments_with_many_columns_keep_their_rows():
    X, y = make_words(600, 20_000)
    total = Moments.from_blocks(blocks_of(X, y, 200)())
    assert sp.issparse(total.rows.X)


FULL = """
import time, sys
from pathlib import Path
import numpy as np
sys.path.insert(0, "tests")
from problems import make_words
from semfs import SemFS
X, y = make_words(100_000, 50_000)
begin = time.perf_counter()
selector = SemFS(100).fit(X, y)
seconds = time.perf_counter() - begin
status = Path("/proc/self/status").read_text()
print(X.nnz, seconds, status.split("VmHWM:")[1].split()[0])
columns = np.sort(selector.order_[:1000])
cut, labels = X[:5000][:, columns], y[:5000]
dense = SemFS(100).fit(cut.toarray(), labels).order_[:100]
assert (SemFS(100).fit(cut, labels).order_[:100] == dense).all(), "differs from dense"
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
def test_100_000_rows_of_50_000_columns_take_less_than_2_gb_and_two_minutes():
    done = subprocess.run(
        [sys.executable, "-c", FULL], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    _, seconds, peak = map(float, done.stdout.split())
    print(f"{seconds:.1f} s, {1024 * peak / 1e9:.2f} GB")
    assert seconds < 120
    assert 1024 * peak < 2e9
