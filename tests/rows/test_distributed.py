"""Dask: the same answer from chunks, also when workers die; a clear error when all do."""

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose

from problems import DATASETS, make_problem
from semfs import AS_PUBLISHED, Moments, SemFS
from semfs.io.sparse import SparseReader
from semfs.rows import open_blocks

dask = pytest.importorskip("dask")
da = pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from semfs.rows import dask_data, workers  # noqa: E402
from semfs.rows.cluster import on_cluster  # noqa: E402

K = 12

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


def sparse_chunks(X, y, memory):
    chunks = da.from_array(X, chunks=(70, 30)).map_blocks(sp.csr_array)
    return dask_data.dask_rows(chunks, y, memory=memory)


@pytest.mark.parametrize("memory", [100, 2**20])
def test_sparse_blocks_give_the_order_of_the_fit_in_memory(memory, client):
    X, y, _ = make_problem(n=300, d=30)
    X = np.where(X > 0.5, X, 0.0)
    found = SemFS(6).fit(sparse_chunks(X, y, memory))
    assert found.order_[:6].tolist() == SemFS(6).fit(X, y).order_[:6].tolist()


def test_a_sample_of_sparse_blocks_is_drawn_from_each_of_them():
    X, y, _ = make_problem(n=300, d=30)
    X = np.where(X > 0.5, X, 0.0)
    in_memory = Moments.from_data(X, y)
    # all samples at the mean of their class: whatever is drawn, nothing varies within classes
    rows = sparse_chunks(in_memory.means[in_memory.rows.codes], y, memory=100)
    sums = rows.accumulate(matrix=False, precise=False, n_sampled=10)
    sample = sums.sample()
    assert 10 <= len(sample.codes) <= 10 + len(rows.bounds)
    weights = np.bincount(sample.codes, sample.weights, minlength=len(in_memory.classes))
    drawn = np.unique(sample.codes)
    assert (weights[drawn] > 0).all()
    means = Moments.from_sums(*rows.sums(n_select=6))
    assert_allclose(means.within_estimate(np.arange(30)), 0.0, atol=1e-9)


def test_workers_read_ranges_of_a_sparse_file_twice(monkeypatch):
    X, y, _ = make_problem(n=3000, d=30)
    X = sp.csr_array(np.where(X > 0.5, X, 0.0))
    n_read = []
    part = SparseReader.part

    def watched(reader, first, last):
        n_read.append(last - first)
        return part(reader, first, last)

    monkeypatch.setattr(SparseReader, "part", watched)
    source = open_blocks(X, y, passes="few", block_rows=200)
    with distributed.Client(processes=False, dashboard_address=None) as client:
        rows = on_cluster(source, client, min_rows=1)
        assert len(rows.bounds) > 1
        found = SemFS(6).fit(rows)
    assert found.order_.tolist() == SemFS(6).fit(X, y).order_.tolist()
    assert sum(n_read) <= 2 * len(y)


@pytest.mark.parametrize("kind", ["dense chunks", "sparse chunks", "file"])
def test_unlabeled_samples_are_clustered_as_in_memory(kind, client, tmp_path):
    X, codes, _ = make_problem(n=400, d=12, C=6)
    X = np.where(X > 0.0, X, 0.0)
    y = np.where(codes < 4, codes.astype(float), np.nan)
    expected = SemFS(5, n_new_classes=2).fit(X, y)
    if kind == "file":
        np.save(tmp_path / "X.npy", X)
        source = open_blocks(tmp_path / "X.npy", y, block_rows=50)
        rows = on_cluster(source, client, min_rows=1)
        assert len(rows.bounds) > 1
    else:
        chunks = da.from_array(X, chunks=(90, 12))
        if kind == "sparse chunks":
            chunks = chunks.map_blocks(sp.csr_array)
        rows = dask_data.dask_rows(chunks, y)
    found = SemFS(5, n_new_classes=2).fit(rows)
    assert found.order_.tolist() == expected.order_.tolist()
    assert found.unlabeled_labels_.tolist() == expected.unlabeled_labels_.tolist()


def dask_frame(X, y):
    pd = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    frame.insert(2, "kind", [f"class {label}" for label in y])
    return frame, dd.from_pandas(frame, npartitions=4)


@pytest.mark.parametrize("labels", ["name", "series", "array"])
def test_data_frames_give_the_order_of_the_fit_in_memory(labels):
    X, y, _ = make_problem(n=300)
    frame, chunked = dask_frame(X, y)
    if labels == "name":
        rows = dask_data.dask_rows(chunked, "kind")
    else:
        given = chunked["kind"] if labels == "series" else frame["kind"].to_numpy()
        with pytest.warns(UserWarning, match="Ignored non-numeric columns: kind"):
            rows = dask_data.dask_rows(chunked, given)
    expected = SemFS(4).fit(X, y)
    found = SemFS(4).fit(rows)
    assert found.order_.tolist() == expected.order_.tolist()
    assert_allclose(found.scores_, expected.scores_)
    assert found.feature_names_in_.tolist() == [f"f{j}" for j in range(X.shape[1])]
    assert found.classes_.tolist() == [f"class {c}" for c in range(4)]


def test_columns_of_dask_data_are_taken_lazily_and_by_name():
    X, y, _ = make_problem(n=300)
    frame, chunked = dask_frame(X, y)
    names = [f"f{j}" for j in range(X.shape[1])]
    columns = np.array([1, 4, 7])
    array = dask_data.lazy_columns(awkward(X), columns)
    assert dask_data.is_dask(array)
    assert_allclose(array.compute(), X[:, columns])
    turned = chunked[list(chunked.columns[::-1])]
    found = dask_data.lazy_columns(turned, columns, names)
    assert dask_data.is_dask(found)
    assert found.compute().equals(frame[["f1", "f4", "f7"]])
    with pytest.raises(ValueError, match=r"lacks 1 of the features .* 'g'"):
        dask_data.lazy_columns(chunked, np.array([0]), ["g"])
    sums = dask_data.lazy_rows(turned, lambda X: X.sum(axis=1), dtype=float, names=names)
    assert_allclose(sums.compute(), X.sum(axis=1))
    pairs = dask_data.lazy_rows(awkward(X), lambda X: X[:, :2], dtype=float, width=2)
    assert_allclose(pairs.compute(), X[:, :2])


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
    small = dask_data.dask_rows(awkward(X), y, memory=100)
    moments = Moments.from_sums(*small.sums(n_select=4))
    assert moments.scatter_matrix is None
    assert_allclose(SemFS(4).fit_moments(moments).scores_, expected.scores_)
    with pytest.raises(ValueError, match='Use solver="direct"'):
        small.sums(n_select=None)


def test_a_cluster_gives_the_order_of_the_fit_in_memory(client, data, tmp_path):
    X, y, expected = data
    assert SemFS(K).fit(awkward(X), y).order_.tolist() == expected
    np.save(tmp_path / "X.npy", X)
    source = open_blocks(tmp_path / "X.npy", y, block_rows=50)
    rows = on_cluster(source, client, min_rows=1)
    assert len(rows.bounds) > 1
    assert SemFS(K).fit(rows).order_.tolist() == expected
    small = open_blocks(tmp_path / "X.npy", y)
    assert on_cluster(small, client) is small


@pytest.mark.parametrize("in_memory", [True, False])
def test_the_select_command_runs_on_a_cluster(client, tmp_path, monkeypatch, in_memory):
    testing = pytest.importorskip("typer.testing")
    pd = pytest.importorskip("pandas")
    from semfs.cli import app
    from semfs.io import reader

    if not in_memory:
        monkeypatch.setattr(reader, "MEMORY", 0)
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
    # no such protocol: refused at once
    nowhere = ["--scheduler", "nowhere://127.0.0.1:9"]
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
    monkeypatch.setattr(workers, "WORKER_PATIENCE", 20.0)
    X, y, _ = make_problem(n=400)
    with (
        local_cluster(2) as cluster,
        distributed.Client(cluster),
        pytest.raises(workers.ClusterError, match=r"(died 4 times|no worker).*smaller chunks"),
    ):
        SemFS(5).fit(chunked(X, die), y)


@pytest.mark.slow
def test_a_cluster_without_workers_is_a_clear_error_not_a_hang(monkeypatch):
    monkeypatch.setattr(workers, "WORKER_PATIENCE", 3.0)
    X, y, _ = make_problem(n=400)
    with (
        local_cluster(0) as cluster,
        distributed.Client(cluster),
        pytest.raises(workers.ClusterError, match="no worker"),
    ):
        SemFS(5).fit(awkward(X), y)


def test_wrong_use_is_one_clear_line():
    X, y, _ = make_problem(n=300)
    with pytest.raises(ValueError, match="300 rows, but y has 299"):
        SemFS(5).fit(awkward(X), y[1:])
    with pytest.raises(ValueError, match="requires y"):
        SemFS(5).fit(awkward(X))
    with pytest.raises(ValueError, match="must be a matrix"):
        SemFS(5).fit(da.from_array(y), y)
    _, frame = dask_frame(X, y)
    with pytest.raises(ValueError, match="no column 'type' with the labels"):
        SemFS(5).fit(frame, "type")
    with pytest.raises(ValueError, match="no column of numbers"):
        SemFS(5).fit(frame[["kind"]], y)
    with pytest.raises(ValueError, match="each worker must be able to read a part"):
        on_cluster(open_blocks([(X, y)]), None)
    with pytest.raises(workers.ClusterError, match="no scheduler answers"):
        workers.connect("tcp://127.0.0.1:9", seconds=1.0)


def test_a_client_of_an_unknown_protocol_does_not_become_dasks_scheduler():
    before = dask.config.get("scheduler", None)
    with pytest.raises(workers.ClusterError, match="unknown address scheme"):
        workers.connect("nosuch://host:1", seconds=1.0)
    assert dask.config.get("scheduler", None) == before
    assert da.ones(5).sum().compute() == 5
