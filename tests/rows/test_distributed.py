"""Dask: the same answer from chunks, also when workers die; a clear error when all do."""

import os
import signal
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from problems import make_problem
from semfs import AS_PUBLISHED, Moments, SemFS
from semfs.rows import open_blocks

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from test_streaming import DATASETS, K  # noqa: E402

import semfs.rows.cluster as module  # noqa: E402
from semfs.rows import blocks  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::ResourceWarning")


def local_cluster(n_workers):
    options = {"processes": True, "dashboard_address": None, "memory_limit": None}
    return distributed.LocalCluster(n_workers=n_workers, threads_per_worker=1, **options)


@pytest.fixture(scope="module")
def client():
    with local_cluster(2) as cluster, distributed.Client(cluster) as client:
        yield client


@pytest.fixture(params=DATASETS)
def data(request):
    X, y = DATASETS[request.param]()
    return X, y, SemFS(K).fit(X, y).order_.tolist()


def awkward(X):
    """Chunks of very different sizes, also across columns."""
    n, d = X.shape
    rows = (1, n // 3, 2, n // 5, n - 3 - n // 3 - n // 5)
    return da.from_array(X, chunks=(rows, (d // 3, d - d // 3)))


def test_an_array_with_awkward_chunks_gives_the_order_of_the_fit_in_memory(data):
    X, y, expected = data
    for labels in (y, da.from_array(y, chunks=97)):
        assert SemFS(K).fit(awkward(X), labels).order_.tolist() == expected


def test_chunks_of_unknown_length_are_fine():
    X, y, _ = make_problem(n=300)
    keep = X[:, 0] > 0
    chunked = da.from_array(X, chunks=(70, 5))
    mask = chunked[:, 0] > 0
    expected = SemFS(4).fit(X[keep], y[keep]).order_.tolist()
    assert SemFS(4).fit(chunked[mask], y[keep]).order_.tolist() == expected
    labels = da.from_array(y, chunks=70)[mask]
    assert SemFS(4).fit(chunked[mask], labels).order_.tolist() == expected


@pytest.mark.parametrize("memory", [100, 2**20])
def test_sparse_blocks_give_the_order_of_the_fit_in_memory(memory, client, monkeypatch):
    X, y, _ = make_problem(n=300, d=30)
    X = np.where(X > 0.5, X, 0.0)

    def rows(X):
        blocks = da.from_array(X, chunks=(70, 30)).map_blocks(sp.csr_array)
        return replace(module.dask_rows(blocks, y), memory=memory)

    assert SemFS(6).fit(rows(X)).order_[:6].tolist() == SemFS(6).fit(X, y).order_[:6].tolist()
    if memory == 100:  # few rows foretell what will be asked for: class means are known anyway
        monkeypatch.setattr(module, "SAMPLE", 10)
        M = Moments.from_data(X, y)
        means = Moments.from_sums(*rows(M.means[M.rows.codes]).sums(n_select=6))
        assert len(means.rows.preview.codes) < 60
        assert_allclose(means.within_estimate(np.arange(30)), 0.0, atol=1e-9)


def test_pilots_on_workers_spare_a_second_reading(monkeypatch):
    X, y, _ = make_problem(n=3000, d=30)
    X, read, part = sp.csr_array(np.where(X > 0.5, X, 0.0)), [], blocks.SparseReader.part
    for name, value in {"PART_BYTES": 5000, "EVERY": 5, "ENOUGH": 20}.items():
        monkeypatch.setattr(blocks, name, value)
    monkeypatch.setattr(module, "RANGE_ROWS_PER_FEATURE", 0)
    monkeypatch.setattr(
        blocks.SparseReader, "part", lambda *a: read.append(a[2] - a[1]) or part(*a)
    )
    source = open_blocks(X, y, passes="few", block_rows=200)
    with distributed.Client(processes=False, dashboard_address=None) as client:  # in here
        rows = module.on_cluster(source, client)
        assert len(rows.parts) > 1
        found = SemFS(6).fit(rows)
    assert found.order_.tolist() == SemFS(6).fit(X, y).order_.tolist()
    assert sum(read) < 1.5 * len(y)


@pytest.mark.parametrize("class_weight", ["balanced", {1: 3.0}])
def test_weights_work_on_chunks(class_weight):
    X, y, _ = make_problem(n=300)
    w = np.random.default_rng(0).random(300)
    expected = SemFS(4, class_weight=class_weight).fit(X, y, w)
    found = SemFS(4, class_weight=class_weight).fit(awkward(X), y, w)
    assert_allclose(found.scores_, expected.scores_)


@pytest.mark.parametrize("options", [{"solver": "alternating"}, AS_PUBLISHED])
def test_the_alternating_solver_runs_on_chunks(options):
    X, y, A = make_problem(n=300)
    expected = SemFS(4, A, **options).fit(X, y)
    assert_allclose(SemFS(4, A, **options).fit(awkward(X), y).scores_, expected.scores_)


def test_a_value_that_is_missing_on_a_worker_is_the_error_of_the_fit_in_memory(client):
    X, y, _ = make_problem(n=300)
    X[170, 2] = np.nan
    for data in (X, awkward(X)):
        with pytest.raises(ValueError, match=r"X contains NaN"):
            SemFS(4).fit(data, y)


def test_without_room_for_the_matrix_columns_are_fetched():
    X, y, _ = make_problem(n=300, d=30)
    expected = SemFS(4).fit(X, y)
    small = replace(module.dask_rows(awkward(X), y), memory=100)
    moments = Moments.from_sums(*small.sums(n_select=4))
    assert moments.scatter_matrix is None
    assert_allclose(SemFS(4).fit_moments(moments).scores_, expected.scores_)
    with pytest.raises(ValueError, match='Use solver="direct"'):
        small.sums(n_select=None)


def test_a_cluster_gives_the_order_of_the_fit_in_memory(client, data, tmp_path, monkeypatch):
    monkeypatch.setattr(module, "RANGE_ROWS_PER_FEATURE", 0)  # many parts, however few rows
    X, y, expected = data
    assert SemFS(K).fit(awkward(X), y).order_.tolist() == expected
    np.save(tmp_path / "X.npy", X)
    source = open_blocks(tmp_path / "X.npy", y, block_rows=200)
    rows = module.on_cluster(source, client)
    assert len(rows.parts) > 1
    assert SemFS(K).fit(rows).order_.tolist() == expected
    small = open_blocks(tmp_path / "X.npy", y)
    assert module.on_cluster(small, client) is small


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_select_command_runs_on_a_cluster(client, tmp_path, monkeypatch, in_memory):
    testing = pytest.importorskip("typer.testing")
    pd = pytest.importorskip("pandas")
    from semfs.cli import app
    from semfs.io import reader

    if not in_memory:
        monkeypatch.setattr(reader, "MEMORY", 0)
    monkeypatch.setattr(module, "SCHEDULER_PATIENCE", 2.0)
    X, y, A = make_problem(n=1000, d=20, C=6)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    pd.DataFrame(A, columns=["a", "b", "c"]).to_csv(tmp_path / "A.csv")
    files = [str(tmp_path / name) for name in ("X.npy", "y.npy", "A.csv", "out.npy")]
    options = ["-l", files[1], "-a", files[2], "-k", "5", "-o", files[3]]
    address = client.scheduler.address
    runner = testing.CliRunner()
    done = runner.invoke(app, ["select", files[0], *options, "--scheduler", address])
    assert done.exit_code == 0, done.output
    expected = SemFS(5, attributes=A).fit(X, y)
    assert_allclose(np.load(files[3]), X[:, expected.get_support()])
    nowhere = ["--scheduler", "tcp://127.0.0.1:9"]
    lost = runner.invoke(app, ["select", files[0], *options, *nowhere])
    assert lost.exit_code == 2
    assert "no scheduler answers" in lost.output


def die(block):
    if block.shape[0] > 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return block


def die_once(block, flag):
    if block.shape[0] == 0 or os.path.exists(flag):
        return block
    open(flag, "w").close()
    return die(block)


def slow(block):
    time.sleep(0.2)
    return block


def chunked(X, function, **options):
    return da.from_array(X, chunks=(100, -1)).map_blocks(
        function, dtype=X.dtype, meta=np.empty((0, 0), X.dtype), **options
    )


def test_a_fit_survives_a_worker_that_kills_itself(client, tmp_path):
    X, y, _ = make_problem(n=1000, d=60)
    flag = str(tmp_path / "died")
    selector = SemFS(5).fit(chunked(X, die_once, flag=flag), y)
    assert os.path.exists(flag)
    assert selector.order_.tolist() == SemFS(5).fit(X, y).order_.tolist()


@pytest.mark.slow
def test_a_fit_survives_a_worker_killed_from_outside():
    X, y, _ = make_problem(n=2000, d=30)
    with local_cluster(2) as cluster, distributed.Client(cluster) as client:
        client.wait_for_workers(2, timeout=60)
        victim = next(iter(client.run(os.getpid).values()))
        killer = threading.Timer(1.0, os.kill, (victim, signal.SIGKILL))
        killer.start()
        selector = SemFS(5).fit(chunked(X, slow), y)
        assert not killer.is_alive()
        client.wait_for_workers(2, timeout=60)  # closing waits long for one that is starting
    assert selector.order_.tolist() == SemFS(5).fit(X, y).order_.tolist()


@pytest.mark.slow
def test_a_worker_that_always_dies_is_a_clear_error_not_a_hang(monkeypatch):
    # Dask gives the part up after four deaths; or, when workers die so fast that they are not
    # started again, none is left.
    monkeypatch.setattr(module, "PATIENCE", 20.0)
    X, y, _ = make_problem(n=400)
    with (
        local_cluster(2) as cluster,
        distributed.Client(cluster),
        pytest.raises(module.ClusterError, match=r"(died 4 times|no worker).*smaller chunks"),
    ):
        SemFS(5).fit(chunked(X, die), y)


def test_a_cluster_without_workers_is_a_clear_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(module, "PATIENCE", 3.0)
    X, y, _ = make_problem(n=400)
    with (
        local_cluster(0) as cluster,
        distributed.Client(cluster),
        pytest.raises(module.ClusterError, match="no worker"),
    ):
        SemFS(5).fit(awkward(X), y)


def test_wrong_use_is_one_clear_line(monkeypatch):
    monkeypatch.setattr(module, "SCHEDULER_PATIENCE", 1.0)
    X, y, _ = make_problem(n=300)
    with pytest.raises(ValueError, match="300 rows but y has 299"):
        SemFS(5).fit(awkward(X), y[1:])
    with pytest.raises(ValueError, match="requires y"):
        SemFS(5).fit(awkward(X))
    with pytest.raises(ValueError, match="must be a matrix"):
        SemFS(5).fit(da.from_array(y), y)
    dd = pytest.importorskip("dask.dataframe")
    frame = dd.from_dask_array(awkward(X).compute_chunk_sizes())
    with pytest.raises(ValueError, match=r"frame.to_dask_array\(lengths=True\)"):
        SemFS(5).fit(frame, y)
    with pytest.raises(ValueError, match="each worker can read in part"):
        module.on_cluster(open_blocks([(X, y)]), None)
    with pytest.raises(module.ClusterError, match="no scheduler answers"):
        module.connect("tcp://127.0.0.1:9")
