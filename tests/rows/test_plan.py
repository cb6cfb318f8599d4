"""Plans to read data: block sizes, and whether the scatter matrix is formed."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from semfs.arrays import draw_rows
from semfs.rows import Preprocessing
from semfs.rows.plan import ReadPlan
from semfs.rows.threads import map_ahead, prefetch

MIB = 2**20


@pytest.mark.parametrize("memory", [16 * MIB, 64 * MIB, 1000 * MIB])
@pytest.mark.parametrize("matrix", [True, False])
def test_four_blocks_and_the_matrix_fit_into_the_memory(memory, matrix):
    rows = ReadPlan(memory=memory).rows_per_block(1000, row_bytes=4000, matrix=matrix)
    assert 4 * rows * 4000 + 8_000_000 * matrix <= memory


def test_blocks_are_not_longer_than_needed_and_twice_as_long_for_products():
    plan = ReadPlan(memory=2**40, block_bytes=MIB)
    assert plan.rows_per_block(100, row_bytes=1024, matrix=False) == 1024
    assert plan.rows_per_block(100, row_bytes=1024, matrix=True) == 2048


def test_however_little_memory_there_is_a_block_has_a_megabyte_or_one_row():
    plan = ReadPlan(memory=1)
    assert plan.rows_per_block(100, row_bytes=1024, matrix=True) == 1024
    assert plan.rows_per_block(100, row_bytes=2**30, matrix=True) == 1


def test_blocks_end_where_stored_chunks_end_if_these_fit():
    plan = ReadPlan(memory=64 * MIB, block_bytes=MIB)
    size = {"row_bytes": 1024, "matrix": False}
    assert plan.rows_per_block(100, chunk_rows=300, **size) == 900
    assert plan.rows_per_block(100, chunk_rows=5000, **size) == 5000  # 5 MB fit
    assert plan.rows_per_block(100, chunk_rows=10**6, **size) == 1024  # 1 GB does not


def test_rows_of_a_block_can_be_set():
    plan = ReadPlan(memory=1, block_rows=77)
    assert plan.rows_per_block(10**6, row_bytes=10**9, matrix=True) == 77


@pytest.mark.parametrize(
    "changes, formed",
    [
        ({}, True),
        ({"n_features": 5000}, False),  # X'X takes longer than another pass
        ({"n_features": 5000, "n_select": 5000}, True),  # but not than eighty
        ({"n_rows": 99}, False),  # fewer samples than features
        ({"n_rows": None}, True),
        ({"sparse": True}, False),
        ({"sparse": True, "rereadable": False}, True),  # nothing else is possible
        ({"sparse": True, "n_select": None}, True),  # the solver needs it
        ({"passes": "few"}, False),
        ({"passes": "few", "n_select": None}, True),
        ({"passes": "one", "sparse": True}, True),
        ({"memory": 8 * 100**2 - 1}, False),  # no room
    ],
)
def test_the_matrix_is_formed_if_it_must_be_or_takes_less_time(changes, formed):
    options = {"n_features": 100, "n_rows": 10**6, "n_select": 20, "sparse": False}
    plan = {"memory": 512 * MIB, "passes": "auto"}
    for name, value in changes.items():
        (plan if name in plan else options)[name] = value
    d = options.pop("n_features")
    assert ReadPlan(**plan).forms_matrix(d, **options) == formed


def test_small_data_are_loaded_unless_the_user_said_how_to_read_them():
    assert ReadPlan(memory=1000).loads(5, row_bytes=100)
    assert not ReadPlan(memory=1000).loads(6, row_bytes=100)
    assert not ReadPlan(memory=1000).loads(None, row_bytes=100)
    assert not ReadPlan(memory=1000, block_rows=2).loads(5, row_bytes=100)
    assert not ReadPlan(memory=1000, passes="few").loads(5, row_bytes=100)


# ---- preprocessing --------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_counts_are_normalized_and_scaled_by_columns(form, dtype):
    counts = np.random.default_rng(0).poisson(1.0, (7, 5)).astype(dtype)
    counts[3] = 0.0
    scale = np.arange(1.0, 6.0)
    totals = np.maximum(counts.sum(axis=1), 1.0)
    expected = np.log1p(1e4 * counts / totals[:, None]) * scale
    preprocessing = Preprocessing(normalize="log1p", scale=scale)
    columns = slice(1, 4)
    found = preprocessing.apply(form(counts[:, columns]), columns, counts.sum(axis=1))
    assert found.dtype == dtype
    dense = found.toarray() if sp.issparse(found) else found
    assert_allclose(dense, expected[:, columns], rtol=1e-5)
    if form is not sp.csc_array:  # whole rows have their own sums
        whole = preprocessing.apply(form(counts))
        dense = whole.toarray() if sp.issparse(whole) else whole
        assert_allclose(dense, expected, rtol=1e-5)


def test_without_preprocessing_data_stay_as_they_are():
    X = np.ones((3, 2))
    assert not Preprocessing().active
    assert Preprocessing().apply(X) is X


# ---- draws and threads ----------------------------------------------------------------


def test_a_smaller_draw_is_part_of_a_larger_one():
    mask = np.random.default_rng(0).random(500) < 0.5
    small = draw_rows(mask, 20)
    large = draw_rows(mask, 100)
    assert len(set(small.tolist())) == 20
    assert set(small.tolist()) <= set(large.tolist())
    assert mask[large].all()
    assert (np.diff(large) > 0).all()
    assert draw_rows(mask, 10**6).tolist() == np.flatnonzero(mask).tolist()


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("workers", [1, 3])
def test_threads_keep_the_order_and_do_not_run_far_ahead(n, workers):
    begun = []

    def square(number):
        begun.append(number)
        return number**2

    found = []
    for value in map_ahead(square, range(n), workers):
        found.append(value)
        assert len(begun) <= len(found) + workers
    assert found == [number**2 for number in range(n)]
    assert list(prefetch(iter(range(n)))) == list(range(n))


def test_an_error_in_a_thread_reaches_the_caller():
    def fail(number):
        raise ValueError(f"at {number}")

    with pytest.raises(ValueError, match="at 0"):
        list(map_ahead(fail, range(3), 2))
