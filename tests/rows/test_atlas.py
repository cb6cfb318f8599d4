"""Cells in sparse files, by rows or by columns: the genes of the same counts in memory."""

import gzip
import pickle
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose
from scipy.io import mmread, mmwrite
from sklearn.base import clone

import semfs.io.safety
from semfs import SemFS
from semfs.arrays import draw_rows
from semfs.io.mtx import mtx_reader
from semfs.io.safety import FileError
from semfs.io.sparse import SparseReader
from semfs.labels import LEFT_OUT, Labels
from semfs.rows import open_blocks
from semfs.rows.plan import PART_BLOCKS
from semfs.rows.sums import PASS_ROWS

pd = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")
anndata = pytest.importorskip("anndata")
zarr = pytest.importorskip("zarr")
numcodecs = pytest.importorskip("numcodecs")
pytest.importorskip("pyarrow")

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
N, D, K = 300, 40, 12
NAMES = [f"g{j}" for j in range(D)]


class Cells(NamedTuple):
    counts: np.ndarray  # (N, D)
    codes: np.ndarray  # (N,)
    types: np.ndarray  # (N,), names of the codes


@cache
def cells():
    """Counts of six types of cells that differ in a fifth of the genes."""
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 6, N)
    means = rng.gamma(0.5, 1.0, D) * np.where(rng.random((6, D)) < 0.2, 8.0, 1.0)
    depth = rng.gamma(4.0, 0.25, (N, 1))
    counts = rng.poisson(means[codes] * depth).astype(np.float32)
    return Cells(counts, codes, np.array([f"type {code}" for code in codes]))


def log1p(X):
    """What sc.pp.normalize_total(target_sum=1e4) and sc.pp.log1p do."""
    totals = X.sum(axis=1, keepdims=True)
    return np.log1p(1e4 * X / np.where(totals == 0, 1, totals))


@cache
def fitted_in_memory(normalize=None):
    X = cells().counts
    if normalize is not None:
        X = log1p(X.astype(np.float64))
    return SemFS(K).fit(X, cells().types)


def expected_order(normalize=None):
    return fitted_in_memory(normalize).order_[:K].tolist()


def in_small_parts(source, part_bytes=5000):
    """The same source, read in parts of so many bytes."""
    plan = replace(source.plan, block_bytes=part_bytes // PART_BLOCKS)
    return replace(source, plan=plan)


def h5ad(folder, form, ending="h5ad", **options):
    adata = anndata.AnnData(form(cells().counts), pd.DataFrame({"kind": cells().types}), None)
    adata.var_names = NAMES
    path = folder / f"a.{ending}"
    write = adata.write_zarr if ending == "zarr" else adata.write_h5ad
    write(path, **options)
    return path, "kind"


def cellranger(folder):
    S = sp.csr_array(cells().counts.astype(np.int32))
    (folder / "y.txt").write_text("\n".join(cells().types))
    with h5py.File(folder / "a.h5", "w") as file:
        group = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group.create_dataset(name, data=getattr(S, name), compression="gzip")
        group["shape"], group["features/name"] = [D, N], np.array(NAMES, dtype="S")
    return folder / "a.h5", str(folder / "y.txt")


def mtx(folder, packed=False):
    np.save(folder / "y.npy", cells().types)
    mmwrite(folder / "matrix.mtx", sp.csc_array(cells().counts.T.astype(int)).tocoo())
    (folder / "features.tsv").write_text("".join(f"id\t{name}\tGene\n" for name in NAMES))
    if packed:
        text = (folder / "matrix.mtx").read_bytes()
        (folder / "matrix.mtx.gz").write_bytes(gzip.compress(text))
    return folder / ("matrix.mtx.gz" if packed else "matrix.mtx"), str(folder / "y.npy")


def blocks(folder):
    S = sp.csr_array(cells().counts)
    return [(S[a : a + 70], cells().types[a : a + 70]) for a in range(0, N, 70)], None


WAYS = {
    "dense": lambda f: (cells().counts, cells().types),
    "csr": lambda f: (sp.csr_array(cells().counts), cells().types),
    "csc": lambda f: (sp.csc_matrix(cells().counts), cells().types),
    "h5ad": lambda f: h5ad(f, np.asarray),
    "h5ad csr": lambda f: h5ad(f, sp.csr_matrix),
    "h5ad csr gzip": lambda f: h5ad(f, sp.csr_matrix, compression="gzip"),
    "h5ad csc": lambda f: h5ad(f, sp.csc_matrix),
    "h5ad csc gzip": lambda f: h5ad(f, sp.csc_matrix, compression="gzip"),
    "h5ad csc lzf": lambda f: h5ad(f, sp.csc_matrix, compression="lzf"),
    "zarr": lambda f: h5ad(f, sp.csr_matrix, "zarr"),
    "10x": cellranger,
    "mtx": mtx,
    "mtx.gz": lambda f: mtx(f, packed=True),
    "blocks": blocks,
}


@pytest.mark.parametrize("normalize", [None, "log1p"])
@pytest.mark.parametrize("way", WAYS)
def test_cells_in_any_form_give_the_genes_of_the_dense_matrix(way, normalize, tmp_path):
    data, y = WAYS[way](tmp_path)
    expected = expected_order(normalize)
    streamed = in_small_parts(open_blocks(data, y, passes="few", normalize=normalize))
    assert SemFS(K).fit(streamed).order_[:K].tolist() == expected
    loaded = SemFS(K).fit(open_blocks(data, y, normalize=normalize))
    assert loaded.order_[:K].tolist() == expected
    if way not in ("dense", "csr", "csc", "blocks"):
        assert loaded.feature_names_in_.tolist() == NAMES


@pytest.mark.parametrize("normalize", [None, "log1p"])
@pytest.mark.parametrize("way", ["csr", "csc", "h5ad csr", "h5ad csc", "mtx.gz"])
def test_cells_without_a_label_are_used_as_in_memory_and_never_loaded(
    way, normalize, tmp_path, monkeypatch
):
    labels = np.where(cells().codes < 4, cells().types, None)
    X = cells().counts
    if normalize is not None:
        X = log1p(X.astype(np.float64))
    expected = SemFS(K).fit(X, labels)
    monkeypatch.setattr(SparseReader, "load", None)
    # the projections of fifty cells at a time fit into the memory
    options = {"passes": "few", "normalize": normalize, "memory": 8 * 32 * 50}
    source = in_small_parts(open_blocks(WAYS[way](tmp_path)[0], labels, **options))
    found = SemFS(K).fit(source)
    assert found.order_.tolist() == expected.order_.tolist()
    assert found.unlabeled_labels_.tolist() == expected.unlabeled_labels_.tolist()
    assert found.knowledge_ == expected.knowledge_


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_weights_and_missing_labels_count_as_they_do_in_memory(form):
    labels = cells().types.astype(object)
    labels[::7] = None
    w = np.random.default_rng(1).random(N)
    check_weighted_fit(form, cells().counts, labels, w)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_weights_count_as_they_do_in_memory_in_more_than_one_step_of_a_pass(form):
    repeats = PASS_ROWS // N + 2
    counts = np.tile(cells().counts, (repeats, 1))
    w = np.random.default_rng(1).random(len(counts))
    check_weighted_fit(form, counts, np.tile(cells().types, repeats), w)


def check_weighted_fit(form, counts, labels, w):
    options = {"class_weight": {"type 1": 3.0}}
    expected = SemFS(K, **options).fit(counts, labels, w)
    source = open_blocks(form(counts), labels, sample_weight=w, passes="few")
    found = SemFS(K, **options).fit(in_small_parts(source))
    assert found.order_[:K].tolist() == expected.order_[:K].tolist()
    assert_allclose(found.scores_, expected.scores_, rtol=1e-5)


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_samples_that_are_left_out_may_hold_anything(form):
    counts = cells().counts.copy()
    labels = Labels.of(cells().types)
    codes = labels.codes.copy()
    codes[::5] = LEFT_OUT
    kept = codes >= 0
    expected = SemFS(K).fit(counts[kept], cells().types[kept])
    counts[::5, 3] = np.nan
    source = open_blocks(form(counts), cells().types, passes="few")
    source = in_small_parts(source.with_labels(Labels(labels.classes, codes)))
    found = SemFS(K).fit(source)
    assert found.order_[:K].tolist() == expected.order_[:K].tolist()
    assert_allclose(found.scores_, expected.scores_, rtol=1e-5)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array, sp.csc_array])
@pytest.mark.parametrize("labeled", [True, False])
def test_samples_are_drawn_by_row_number_wherever_the_data_are(form, labeled):
    labels = np.where(cells().codes < 4, cells().types, None)
    source = in_small_parts(open_blocks(form(cells().counts), labels, passes="few"))
    X, found = source.sample(20, labeled=labeled)
    rows = draw_rows((cells().codes < 4) == labeled, 20)
    assert (np.asarray(X.todense() if sp.issparse(X) else X) == cells().counts[rows]).all()
    assert found.array().tolist() == labels[rows].tolist()
    fewer, _ = source.sample(7, labeled=labeled)
    assert fewer.shape[0] == 7


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_progress_counts_what_was_read(form, capsys):
    source = in_small_parts(open_blocks(form(cells().counts), cells().types, passes="few"))
    source.sums(n_select=K, verbose=1)
    what = f"/{N} rows" if form is sp.csr_array else f"/{D} features"
    first = capsys.readouterr().err.splitlines()[0]
    assert first.startswith("class means ")
    assert what in first


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_values_stored_twice_add_up_and_the_matrix_given_stays_as_it_is(form):
    once = form(cells().counts)
    names = ("data", "indices", "indptr")
    twice = [np.repeat(once.data / 2, 2), np.repeat(once.indices, 2), once.indptr * 2]
    given = form(tuple(twice), shape=once.shape)
    for data in [(open_blocks(given, cells().types, passes="few"),), (given, cells().types)]:
        assert SemFS(K).fit(*data).order_[:K].tolist() == expected_order()
    for name, before in zip(names, twice):
        assert (getattr(given, name) == before).all()


@pytest.fixture
def read(monkeypatch):
    """First and last rows, or columns, of the parts that were read of a sparse matrix."""
    ranges = []
    part = SparseReader.part

    def watched(reader, first, last):
        ranges.append((first, last))
        return part(reader, first, last)

    monkeypatch.setattr(SparseReader, "part", watched)
    return ranges


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_a_fit_reads_the_file_twice_and_small_files_once_more(form, read):
    source = open_blocks(form(cells().counts), cells().types, passes="few")
    found = SemFS(K).fit(in_small_parts(source, 2000))
    columns = 0 if form is sp.csr_array else len(read) - len(set(read)) + K
    assert found.order_[:K].tolist() == expected_order()
    # class means; Gram columns, which a sample of the rows predicts; calibration sample, of
    # files that are not large
    n_passes = 2 if columns else 3
    most = n_passes * (D if columns else N) + columns
    assert sum(last - first for first, last in read) <= most


@pytest.mark.parametrize("case", ["weighted", "described", "sorted"])
def test_predicted_columns_never_change_the_answer(case, read):
    X = sp.csr_array(np.tile(cells().counts, (5, 1)))
    y = np.tile(cells().codes, 5)
    if case == "sorted":
        X = X[np.argsort(y)]
        y = np.sort(y)
    w = np.random.default_rng(1).random(5 * N) if case == "weighted" else None
    table = np.eye(9, 4) + np.eye(9, 4, -3) + 0.1 if case == "described" else None
    selector = SemFS(K, table, include=[3])
    expected = clone(selector).fit(X, y, w)
    source = in_small_parts(open_blocks(X, y, sample_weight=w, passes="few"), 2000)
    found = selector.fit(source)
    assert found.order_.tolist() == expected.order_.tolist()
    assert_allclose(found.scores_, expected.scores_, rtol=1e-5)
    # twice, and once more for the calibration sample
    assert sum(last - first for first, last in read) <= 3 * len(y)


@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_chunks_of_zarr_that_are_cut_are_refused_and_missing_ones_are_zero(damage, tmp_path):
    path, _ = h5ad(tmp_path, sp.csr_matrix, "zarr")
    array = zarr.open(path / "X" / "data", mode="r+")
    codec = "blosc" if array.metadata.zarr_format == 2 else "zstd"
    array[:] = 0.0 if damage == "gone" else array[:]
    chunk = path / "X" / "data" / array.metadata.encode_chunk_key((0,))
    reader = open_blocks(path, cells().types).reader
    if damage == "gone":
        chunk.unlink(missing_ok=True)
        assert not reader.part(0, 9).data.any()
    else:
        chunk.write_bytes(numcodecs.get_codec({"id": codec}).encode(b"few"))
        with pytest.raises(FileError, match="a chunk holds 3 bytes"):
            reader.part(0, 9)


@pytest.mark.parametrize("part, said", [("data", "no.* readable Zarr"), ("indices", "missing")])
def test_damaged_zarr_is_named_when_it_is_opened(part, said, tmp_path):
    path, label = h5ad(tmp_path, sp.csr_matrix, "zarr")
    for chunk in (path / "X" / part).rglob("*0"):
        chunk.write_bytes(b"few") if part == "data" else chunk.unlink()
    with pytest.raises(FileError, match=rf"a\.zarr.*{said}.*copy or download it again"):
        open_blocks(path, label)


def test_gene_names_of_another_number_are_told_and_left_out(tmp_path):
    path, label = mtx(tmp_path)
    (tmp_path / "features.tsv").write_text("id\tg0\tGene\n")
    with pytest.warns(UserWarning, match=f"features.tsv has 1 lines, but {D} genes"):
        assert open_blocks(path, label).feature_names is None


def test_normalised_rows_of_a_file_are_transformed_and_predicted(tmp_path):
    path, label = h5ad(tmp_path, sp.csr_matrix)
    rows = open_blocks(path, label, normalize="log1p")
    found = SemFS(K).fit(rows)
    assert_allclose(
        found.transform(rows).toarray(), log1p(cells().counts)[:, found.get_support()], 1e-5
    )
    assert (found.predict(rows) == found.predict(sp.csr_array(log1p(cells().counts)))).all()


def test_columns_that_do_not_fit_are_fetched_in_several_passes():
    source = open_blocks(
        sp.csc_array(cells().counts), cells().types, passes="few", memory=4 * N * 5
    )
    assert SemFS(K).fit(source).order_[:K].tolist() == expected_order()


def test_counts_and_other_numbers_are_told_apart(tmp_path):
    path, label = h5ad(tmp_path, sp.csc_matrix)
    with pytest.warns(UserWarning, match=r"normalize: the cells hold raw counts .*log1p"):
        open_blocks(path, label)
    logs = anndata.AnnData(log1p(cells().counts), pd.DataFrame({"kind": cells().types}))
    with pytest.raises(
        ValueError, match=r"normalize expects counts, .* like logarithms, up to"
    ):
        open_blocks(logs, label, normalize="log1p")
    with pytest.raises(ValueError, match="normalize must be 'log1p'"):
        open_blocks(logs, label, normalize="log")
    for negative in (
        -cells().counts,
        sp.csr_array(-cells().counts),
        sp.csc_array(-cells().counts),
    ):
        with pytest.raises(ValueError, match="expects counts, but X has negative numbers"):
            SemFS(K).fit(open_blocks(negative, cells().types, normalize="log1p"))


@pytest.mark.parametrize("first_is_unlabeled", [False, True])
def test_values_that_are_not_finite_are_reported_with_their_row(first_is_unlabeled):
    counts = cells().counts.copy()
    counts[123, 4] = np.inf
    types = np.array(cells().types, dtype=object)
    if first_is_unlabeled:
        # rows that are left out are counted, too
        types[:100] = None
    source = open_blocks(sp.csr_array(counts), types, passes="few")
    with pytest.raises(ValueError, match=r"infinity.*row 123, column 4"):
        SemFS(K).fit(in_small_parts(source))


def rewritten(path, name, change):
    with h5py.File(path, "a") as file:
        values = change(file["X"][name][:])
        del file["X"][name]
        file["X"].create_dataset(name, data=values, compression="gzip")


@pytest.mark.parametrize(
    "name, change, message",
    [
        (
            "indices",
            lambda v: np.where(np.arange(len(v)) == 5, 10**6, v),
            "index 1000000 is out of range",
        ),
        ("indptr", lambda v: v[::-1].copy(), "expected"),
        ("indptr", lambda v: v[:-1], "expected"),
        ("data", lambda v: v[:-1], "`data` has .* entries, but `indptr` ends at"),
        ("data", lambda v: np.where(np.arange(len(v)) == 5, np.nan, v), "NaN"),
    ],
)
@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csc_matrix])
def test_broken_sparse_matrices_are_refused(form, name, change, message, tmp_path):
    path, label = h5ad(tmp_path, form)
    rewritten(path, name, change)
    with pytest.raises(ValueError, match=message):
        SemFS(K).fit(open_blocks(path, label, passes="few"))


def test_a_chunk_that_expands_further_than_it_says_is_refused(tmp_path):
    import zlib

    path, label = h5ad(tmp_path, sp.csr_matrix)
    rewritten(path, "data", lambda values: values)
    with h5py.File(path, "a") as file:
        file["X/data"].id.write_direct_chunk((0,), zlib.compress(bytes(10)))
    with pytest.raises(FileError, match="10 bytes"):
        SemFS(K).fit(open_blocks(path, label, passes="few"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("array real general\n1 1\n1\n", "sparse matrix .* got 'array real general'"),
        ("coordinate real symmetric\n3 3 1\n1 1 1\n", "got 'coordinate real symmetric'"),
        ("2 3 1\n9 1 1\n", r"line 3: Row index out of bounds. Each line has a gene \(1 to 2"),
        ("2 3 1\n1 -1 1\n", "line 3: Column index out of bounds"),
        ("2 3 2\n1 3 1\n", "2 entries were announced, but there are only 1"),
        ("2 3 1\n1 3 1\n1 3 1\n", "1 entries were announced, but there are more"),
        ("2 3 2\n1 1 1\n1 nan 1\n", "line 4: 'n' is not part of a number"),
        ("2 3 2\n1 1 1\n1 2 1e39\n", "line 4: the number is too large"),
        ("2 3 1\n1 1", "line 3: Invalid floating-point value"),
        ("2 3 1000000000\n1 1 1", "a matrix of 1000000000 values claims"),
    ],
)
def test_broken_matrix_market_files_are_explained(text, message, tmp_path):
    kind = "" if "general" in text or "symmetric" in text else "coordinate integer general\n"
    (tmp_path / "a.mtx").write_text(f"%%MatrixMarket matrix {kind}{text}")
    with pytest.raises(ValueError, match=message):
        open_blocks(tmp_path / "a.mtx", ["a", "b", "b"])


@pytest.mark.parametrize("field", ["real", "integer", "pattern"])
@pytest.mark.parametrize("form", [sp.csc_array, sp.csr_array])  # by cell, or by gene
def test_matrix_market_files_hold_what_scipy_reads(form, field, tmp_path, monkeypatch):
    path, packed = mtx(tmp_path)[0], mtx(tmp_path, packed=True)[0]
    mmwrite(path, form(cells().counts.T / (8 if field == "real" else 1)).tocoo(), "note", field)
    expected = mmread(path, spmatrix=False).T.toarray()
    odd = path.read_bytes().replace(b"\n1 ", b"\n\n  1\t").rstrip() + b"  "
    packed.write_bytes(gzip.compress(odd))
    pickled = pickle.dumps(mtx_reader(packed, 1000))
    for found in (mtx_reader(path, 1000), pickle.loads(pickled)):
        assert (found.load().toarray() == expected).all()
    if form is sp.csr_array:
        monkeypatch.setattr(semfs.io.safety, "memory_limit", lambda: 10_000)
        with pytest.raises(FileError, match=r"not sorted by cell.* but the first 3 by"):
            mtx_reader(path, 1000)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs Linux")
def test_a_full_disk_is_called_so(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: open("/dev/full", "w+b"))  # noqa: SIM115
    with pytest.raises(
        FileError, match=r"unpacked to .*, but that disk is full\. Free some space"
    ):
        open_blocks(*mtx(tmp_path))
