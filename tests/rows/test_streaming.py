"""Data beyond memory: every way to read them gives the order of the in-memory fit."""

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

import semfs.io.reader as readers_module
from problems import DATASETS, make_problem
from semfs import AS_PUBLISHED, Moments, SemFS
from semfs.rows import open_blocks
from semfs.rows.sums import PANEL, Accumulator
from semfs.selectors.inputs.kind import Kind, classify

K = 12


@pytest.fixture(params=DATASETS, scope="module")
def data(request):
    X, y = DATASETS[request.param]()
    return X, y, SemFS(K).fit(X, y).order_.tolist()


def pairs(X, y, rows=1000):
    return [(X[a : a + rows], y[a : a + rows]) for a in range(0, X.shape[0], rows)]


def as_npy(X, y, folder, **options):
    np.save(folder / "X.npy", X)
    return open_blocks(folder / "X.npy", y, **({"passes": "one", "block_rows": 1000} | options))


def as_memmap(X, y, folder):
    np.save(folder / "X.npy", np.vstack([X[:7], X]))
    mapped = np.load(folder / "X.npy", mmap_mode="r")
    return open_blocks(mapped[7:], y, passes="one", block_rows=999)


def as_parquet_folder(X, y, folder):
    pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    names = [f"f{i}" for i in range(X.shape[1])]
    for part, rows in enumerate(np.array_split(np.arange(len(X)), 3)):
        columns = {name: X[rows, i] for i, name in enumerate(names)}
        table = pa.table(columns | {"kind": [str(label) for label in y[rows]]})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=150)
    return open_blocks(folder, "kind", passes="one", block_rows=400)


WAYS = {
    "list": lambda X, y, _: open_blocks(pairs(X, y), passes="one"),
    "generator": lambda X, y, _: open_blocks(iter(pairs(X, y))),
    "function": lambda X, y, _: open_blocks(lambda: iter(pairs(X, y)), passes="few"),
    "npy": as_npy,
    "npy, few passes": lambda *a: as_npy(*a, passes="few"),
    "npy, loaded": lambda *a: as_npy(*a, passes="auto", block_rows=None),
    "npy by columns": lambda X, *a: as_npy(np.asfortranarray(X), *a),
    "memmap": as_memmap,
    "parquet folder": as_parquet_folder,
}


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("way", WAYS)
def test_every_way_to_read_gives_the_order_of_the_fit_in_memory(way, data, tmp_path):
    X, y, expected = data
    selector = SemFS(K).fit(WAYS[way](X, y, tmp_path))
    assert selector.order_.tolist() == expected


@pytest.mark.parametrize("passes, unit", [("one", 1.0), ("few", 1e-40), ("few", 1e40)])
@pytest.mark.parametrize("more", [{}, {"solver": "alternating"}, AS_PUBLISHED])
def test_streamed_fits_equal_the_fit_in_memory_in_all_they_report(tmp_path, passes, unit, more):
    X, y, A = make_problem(n=700, d=30, C=5)
    X *= unit
    weights = np.random.default_rng(0).random(700)
    options = {"attributes": A, "class_weight": "balanced", "exclude": [3]} | more
    np.save(tmp_path / "X.npy", X)
    source = open_blocks(
        tmp_path / "X.npy", y, sample_weight=weights, passes=passes, block_rows=64
    )
    streamed, expected = SemFS(8, **options).fit(source), SemFS(8, **options).fit(X, y, weights)
    assert streamed.order_.tolist() == expected.order_.tolist()
    for name in ("scores_", "coef_", "intercept_", "objective_"):
        found, wanted = getattr(streamed, name), getattr(expected, name)
        atol = 1e-10 * np.abs(wanted[np.isfinite(wanted)]).max()
        assert_allclose(found, wanted, rtol=1e-8, atol=atol)


def test_fit_takes_iterators_and_large_memmaps_as_they_are(tmp_path, monkeypatch):
    X, y, _ = make_problem(n=300, d=9)
    expected = SemFS(4).fit(X, y).order_.tolist()
    np.save(tmp_path / "X.npy", X)
    assert SemFS(4).fit(iter(pairs(X, y, 50))).order_.tolist() == expected
    monkeypatch.setattr(readers_module, "MEMORY", 4096)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    assert classify(mapped, y) is Kind.MAPPED
    assert SemFS(4).fit(mapped, y).order_.tolist() == expected


def test_a_mean_that_drifts_far_costs_no_digits():
    rng = np.random.default_rng(0)
    drift = np.linspace(0, 3e4, 40)
    blocks = [(rng.normal(size=(100, 5)) + shift).astype(np.float32) for shift in drift]
    sums = Accumulator(5)
    for block in blocks:
        sums.add(block, np.arange(100) % 3)
    X = np.concatenate(blocks).astype(np.float64)
    exact = (X - X.mean(axis=0)).T @ (X - X.mean(axis=0))
    assert_allclose(sums.result()[-1], exact, rtol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_matrices_wider_than_a_panel_are_summed_and_mirrored(kind):
    d = PANEL + 77
    X, y, _ = make_problem(n=200, d=d)
    data = sp.csr_array(X) if kind == "sparse" else X
    sums = Accumulator(d)
    for a in range(0, 150, 50):
        sums.add(data[a : a + 50], y[a : a + 50])
    rest = Accumulator(d)
    rest.add(data[150:], y[150:])
    sums += rest
    assert_allclose(
        Moments.from_sums(sums).scatter(), Moments.from_data(X, y).scatter(), atol=1e-9
    )


@pytest.mark.parametrize("solver", ["direct", "alternating"])
def test_a_sparse_column_whose_spread_is_lost_ranks_last_and_is_named(solver):
    X, y, _ = make_problem(n=400, d=9)
    X[:, 3] += 1e9
    for data in (sp.csr_array(X), sp.csc_array(X), pairs(sp.csr_array(X), y, 90)):
        with pytest.warns(UserWarning, match="column 3 of sparse X.*Make X dense"):
            fitted = SemFS(4, solver=solver).fit(data, None if isinstance(data, list) else y)
        assert np.flatnonzero(np.isinf(fitted.scores_)).tolist() == [3]


def test_block_sizes_follow_the_memory_budget(tmp_path):
    np.save(tmp_path / "X.npy", np.zeros((10, 1000), dtype=np.float32))
    y = np.arange(10)
    for memory in ("16MB", "64MiB", 10**9):
        source = open_blocks(tmp_path / "X.npy", y, memory=memory)
        for matrix in (True, False):
            buffers = 4 * source.rows_per_block(matrix=matrix) * 4000
            assert buffers + 8e6 * matrix <= source.plan.memory


def test_wrong_values_are_reported_with_their_rows(tmp_path):
    X, y, _ = make_problem(n=100)
    X[60, 2] = np.inf
    with pytest.raises(ValueError, match=r"infinity.*\(in rows 40 to 79\)"):
        SemFS(3).fit(as_npy(X, y, tmp_path, block_rows=40))


@pytest.mark.parametrize(
    "wrong, message",
    [
        (lambda X, y: ("Y.npy", y), "does not exist"),
        (lambda X, y: ("X.npy", y[1:]), "100 rows but y has 99"),
        (lambda X, y: ("X.npy", None), "no labels given. Pass y"),
        (lambda X, y: ("X.docx", y), "unknown format"),
        (lambda X, y: ("y.npy", y), "a matrix of numbers"),
        (lambda X, y: ([(X, y), (X[:, 1:], y)], None), "columns, but earlier blocks had"),
        (lambda X, y: (iter([X, y]), None), "pairs"),
        (lambda X, y: (iter([]), None), "no blocks"),
        (lambda X, y: (int, None), r"\(X, y\) pairs, got int"),
        (lambda X, y: ([(X, [None, 1])], None), "100 rows but 2 labels"),
        (lambda X, y: ([(X, 3)], None), "one label per row, got int"),
        (lambda X, y: (open_blocks([(X, y)], y), None), "Leave out y"),
        (lambda X, y: (open_blocks(3, y), None), "cannot read samples"),
        (lambda X, y: (open_blocks(X, y), y), "not to fit"),
        (lambda X, y: (open_blocks(X, y, sample_weight=[1.0]), None), "weight has shape"),
        (lambda X, y: (open_blocks([(X, y)], sample_weight=y), None), "of rows is known"),
        (lambda X, y: (open_blocks(X, y, block_rows=0.5), None), "block_rows must be a whole"),
        (
            lambda X, y: (open_blocks(X, y, memory=np.nan), None),
            "memory must be a number of bytes",
        ),
        (lambda X, y: (open_blocks(X, y, passes=X), None), "'auto' or 'one' or 'few'"),
    ],
)
def test_wrong_use_is_one_clear_line(wrong, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    X, y, _ = make_problem(n=100)
    np.save("X.npy", X)
    np.save("y.npy", y)
    (tmp_path / "X.docx").write_text("1 2")
    with pytest.raises((ValueError, TypeError, FileNotFoundError), match=message):
        SemFS(3).fit(*wrong(X, y))


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_files_that_cannot_be_scaled_are_refused_without_noise():
    unlabeled = open_blocks(np.eye(4), [np.nan] * 4)
    with pytest.raises(ValueError, match=r"no labeled samples|only one class|at least two"):
        unlabeled.standardized()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_blocks_whose_means_are_too_far_apart_are_refused_without_noise():
    blocks = [(np.zeros((4, 2)), [0, 1, 0, 1]), (np.full((4, 2), 1e200), [0, 1, 0, 1])]
    with pytest.raises(ValueError, match="squares overflow"):
        SemFS(1).fit(blocks)
