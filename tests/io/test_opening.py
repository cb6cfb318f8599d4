"""Files are opened once, labels are found by default, and readers travel to other processes."""

import os
import pickle

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_array_equal

from semfs import SemFS
from semfs.io.registry import open_reader
from semfs.io.tables import TableReader, read_columns
from semfs.io.tenx import unique_names

pd = pytest.importorskip("pandas")
h5py = pytest.importorskip("h5py")
anndata = pytest.importorskip("anndata")

KINDS = np.repeat(["ant", "bee", "cat"], 10)


def features():
    return (
        np.random.default_rng(0).normal(size=(30, 6))
        + 3 * np.eye(3, 6)[np.repeat([0, 1, 2], 10)]
    )


@pytest.fixture
def opened(monkeypatch):
    """Paths that h5py opens; `.file` of an object makes an h5py.File of an id instead."""
    paths = []
    original = h5py.File.__init__

    def counting(self, name, *args, **options):
        if isinstance(name, (str, os.PathLike)):
            paths.append(str(name))
        original(self, name, *args, **options)

    monkeypatch.setattr(h5py.File, "__init__", counting)
    return paths


def write_h5ad(path, form):
    obs = pd.DataFrame({"kind": pd.Categorical(KINDS)}, index=map(str, range(30)))
    cells = anndata.AnnData(form(features()), obs, pd.DataFrame(index=list("abcdef")))
    cells.write_h5ad(path)
    return path


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_an_h5ad_file_is_opened_once_in_a_fit(form, tmp_path, opened):
    path = write_h5ad(tmp_path / "a.h5ad", form)
    opened.clear()
    SemFS(2).fit(path, "kind")
    assert opened == [str(path)]


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix, sp.csc_matrix])
def test_a_reader_holds_its_file_open_and_opens_it_again_after_pickling(form, tmp_path, opened):
    path = write_h5ad(tmp_path / "a.h5ad", form)
    opened.clear()
    reader, labels = open_reader(path, "kind")
    assert_array_equal(labels.array(), KINDS)
    assert reader.row_names == [str(i) for i in range(30)]
    for _ in range(2):  # passes over the rows
        for _, X, _ in reader.blocks(0, None, 7):
            assert X.shape[1] == 6
    assert opened == [str(path)]
    copy = pickle.loads(pickle.dumps(reader))
    found = copy.load()
    assert_array_equal(found.toarray() if sp.issparse(found) else found, features())
    assert opened == [str(path)] * 2


def test_a_refused_file_is_closed(tmp_path):
    path = write_h5ad(tmp_path / "a.h5ad", np.asarray)
    with pytest.raises(ValueError, match="no obs column") as caught:
        open_reader(path, "nothing")
    with h5py.File(path, "a") as file:  # fails while it is open for reading
        file["note"] = 1
    del caught


def test_labels_are_the_array_y_by_default(tmp_path):
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["X"] = features()
        file["y"] = KINDS.astype(object)
    np.savez(tmp_path / "a.npz", X=features(), y=KINDS)
    paths = [tmp_path / "a.h5", tmp_path / "a.npz"]
    zarr = pytest.importorskip("zarr")
    group = zarr.open_group(tmp_path / "a.zarr", mode="w")
    group.create_array("X", data=features())
    group.create_array("y", data=np.repeat([0, 1, 2], 10))
    for path in paths:
        assert_array_equal(open_reader(path)[1].array(), KINDS)
    assert_array_equal(open_reader(tmp_path / "a.zarr")[1].array(), np.repeat([0, 1, 2], 10))
    with h5py.File(tmp_path / "a.h5", "a") as file:
        del file["y"]
    with pytest.raises(ValueError, match=r"a\.h5: no labels given. Pass y"):
        open_reader(tmp_path / "a.h5")


@pytest.mark.parametrize("form", [sp.csr_array, sp.csc_array])
def test_row_sums_of_a_sparse_reader_are_those_of_the_matrix(form):
    X = np.maximum(features(), 0)
    reader, _ = open_reader(form(X), KINDS)
    np.testing.assert_allclose(reader.row_sums(), X.sum(axis=1))
    assert reader.row_sums() is reader.row_sums()


def test_repeated_names_are_made_unique_as_anndata_does_it():
    names = ["a", "b", "a", "a-1", "a", "b"]
    expected = anndata.utils.make_index_unique(pd.Index(names)).tolist()
    assert unique_names(names) == expected == ["a", "b", "a-2", "a-1", "a-3", "b-1"]


def test_small_tables_are_returned_by_columns(tmp_path):
    frame = pd.DataFrame({"legs": [4, 2], "flies": ["no", None]}, index=["007", "NA"])
    frame.index.name = "class"
    frame.to_csv(tmp_path / "a.csv", sep=";")
    frame.to_excel(tmp_path / "a.xlsx")
    frame.to_parquet(tmp_path / "a.parquet")
    text = {"class": ["007", "NA"], "legs": ["4", "2"], "flies": ["no", ""]}
    assert read_columns(tmp_path / "a.csv") == text
    assert read_columns(tmp_path / "a.xlsx") == text | {"legs": [4, 2]}
    assert read_columns(tmp_path / "a.parquet")["class"] == ["007", "NA"]
    assert list(read_columns(tmp_path / "a.parquet")) == list(text)
    for content, message in {
        "": "it is empty",
        "a,a\n1,2\n": "two columns named 'a'",
        "a,b\n1,2\n3\n": "a row has 1 cells, but the header has 2",
    }.items():
        (tmp_path / "b.csv").write_text(content)
        with pytest.raises(ValueError, match=message):
            read_columns(tmp_path / "b.csv")


@pytest.mark.parametrize("block_bytes, shared", [(None, True), (1000, True), (200, False)])
def test_row_groups_of_any_size_are_read_in_small_blocks(block_bytes, shared, tmp_path):
    pytest.importorskip("pyarrow")
    frame = pd.DataFrame(features(), columns=list("abcdef")).assign(kind=KINDS)
    frame.to_parquet(tmp_path / "a.parquet", row_group_size=20)
    reader = TableReader(tmp_path / "a.parquet", "kind", block_bytes=block_bytes)
    assert reader.shared == shared  # others are copied to a temporary file, by columns
    reader = pickle.loads(pickle.dumps(reader))
    assert_array_equal(reader.load(), features())
    blocks = [X for _, X, _ in reader.blocks(3, 28, 4)]
    assert max(len(X) for X in blocks) <= 4
    assert_array_equal(np.concatenate(blocks), features()[3:28])
