"""One file, one answer: `fit`, `select` and loaders agree on the same data in any format."""

import warnings
from functools import cache, partial

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.preprocessing import StandardScaler

from problems import make_problem
from semfs import SemFS
from semfs.datasets import load_table
from semfs.io.safety import FileError
from semfs.rows import open_blocks
from semfs.select import select_features

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pytest.importorskip("pyarrow")
h5py = pytest.importorskip("h5py")
anndata = pytest.importorskip("anndata")
zarr = pytest.importorskip("zarr")

X, CODES, TABLE = make_problem(n=120, d=9, C=5)
NAMES = [f"g{j}" for j in range(9)]
KINDS = np.array(["ant", "bee", "cat", "dog", "eel"])[CODES]
TEXTS = pd.DataFrame(TABLE, index=["ant", "bee", "cat", "dog", "eel"])


@cache
def expected_order():
    return SemFS(4, TEXTS).fit(X, KINDS).order_.tolist()


@cache
def fit_to_scaled():
    return SemFS(4, TEXTS).fit(StandardScaler().fit_transform(X), KINDS)


def frame(labels=KINDS):
    return pd.DataFrame(X, columns=NAMES).assign(kind=labels, note="some, text")


def text(folder, ending, labels=KINDS, **how):
    path = folder / f"data{ending}"
    frame(labels).to_csv(path, **({"sep": "\t" if "tsv" in ending else ","} | how))
    return path, "kind"


def binary(folder, labels=KINDS, *, write, ending, **options):
    write(frame(labels), folder / f"data.{ending}", **options)
    return folder / f"data.{ending}", "kind"


excel = partial(binary, write=pd.DataFrame.to_excel, ending="xlsx")
parquet = partial(binary, write=pd.DataFrame.to_parquet, ending="parquet")
feather = partial(binary, write=pd.DataFrame.to_feather, ending="feather")


def parquet_folder(folder, labels=KINDS):
    (folder / "data").mkdir()
    for part, rows in enumerate(np.array_split(np.arange(120), 3)):
        frame(labels).iloc[rows].to_parquet(folder / "data" / f"{part}.parquet")
    return folder / "data", "kind"


def npy(folder, labels=KINDS):
    np.save(folder / "data.npy", X)
    np.save(folder / "labels.npy", np.asarray(labels))
    return folder / "data.npy", str(folder / "labels.npy")


def npz(folder, save=np.savez, **arrays):
    save(folder / "data.npz", **({"X": X, "y": KINDS, "feature_names": NAMES} | arrays))
    return folder / "data.npz", "y"


def sparse_npz(folder):
    S = sp.csr_array(X)
    parts = {"X_data": S.data, "X_indices": S.indices, "X_indptr": S.indptr}
    np.savez(folder / "data.npz", X_shape=S.shape, y=KINDS, **parts)
    return folder / "data.npz", "y"


def hdf5(folder):
    with h5py.File(folder / "data.h5", "w") as file:
        file["X"], file["kind"] = X, KINDS.astype(object)
    return folder / "data.h5", "kind"


def zarr_group(folder):
    group = zarr.open_group(folder / "data.zarr", mode="w")
    group.create_array("X", data=X, chunks=(50, 4))
    group.create_array("kind", data=CODES)
    return folder / "data.zarr", "kind"


def h5ad(folder, form=np.asarray, labels=KINDS):
    obs = pd.DataFrame({"kind": labels, "note": "text"}, index=map(str, range(120)))
    cells = anndata.AnnData(form(X), obs, pd.DataFrame(index=NAMES))
    cells.layers["double"] = form(2 * X)
    cells.raw = cells
    cells.write_h5ad(folder / "data.h5ad")
    return folder / "data.h5ad", "kind"


FORMATS = {
    "csv": lambda f: text(f, ".csv"),
    "tsv": lambda f: text(f, ".tsv"),
    "csv.gz": lambda f: text(f, ".csv.gz"),
    "csv with decimal commas": lambda f: text(f, ".csv", sep=";", decimal=","),
    "excel": excel,
    "parquet with a text column": parquet,
    "parquet in row groups": lambda f: parquet(f, row_group_size=7),
    "parquet folder": parquet_folder,
    "feather": feather,
    "npy": npy,
    "npz": npz,
    "compressed npz": lambda f: npz(f, np.savez_compressed),
    "sparse npz": sparse_npz,
    "npz with ids": lambda f: npz(f, y=CODES, classes=TEXTS.index.to_numpy().astype(str)),
    "hdf5": hdf5,
    "zarr": zarr_group,
    "h5ad": h5ad,
    "h5ad csr": lambda f: h5ad(f, sp.csr_matrix),
    "h5ad csc": lambda f: h5ad(f, sp.csc_matrix),
    "h5ad categories": lambda f: h5ad(f, labels=pd.Categorical(KINDS)),
    "integer labels in csv": lambda f: text(f, ".csv", CODES),
}
# Small limits make small files be read as large ones are.
LIMITS = {"in memory": {}, "in blocks": {"memory": 4000, "block_rows": 17}}


def table_for(source):
    """The class table with labels as text, whatever the file has."""
    numbers = not isinstance(source.labels.classes[0], str)
    return pd.DataFrame(TABLE, index=list("01234")) if numbers else TEXTS


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("limits", LIMITS)
@pytest.mark.parametrize("name", FORMATS)
def test_fit_and_select_give_the_order_of_the_fit_in_memory(name, limits, tmp_path):
    path, label = FORMATS[name](tmp_path)
    source = open_blocks(path, label, **LIMITS[limits])
    source.reader.block_bytes = 2048
    table = table_for(source)
    assert source.fits_in_memory == (limits == "in memory")
    data = (path, label) if limits == "in memory" else (source,)
    fitted = SemFS(4, table).fit(*data)
    assert fitted.order_.tolist() == expected_order()
    if source.feature_names is not None:
        assert fitted.feature_names_in_.tolist() == NAMES
    done = select_features(source, SemFS(4, table), tmp_path / "out")
    assert done.selector.order_.tolist() == expected_order()
    assert done.n_rows == 120
    assert sorted(done.features["column"][:4]) == sorted(expected_order()[:4])
    scaled = select_features(source, SemFS(4, table), tmp_path / "out", scale=True).selector
    assert scaled.order_.tolist() == fit_to_scaled().order_.tolist() != expected_order()
    Z = StandardScaler().fit_transform(X)  # predictions are of X itself
    assert_allclose(
        scaled.predict_attributes(X), fit_to_scaled().predict_attributes(Z), rtol=1e-6
    )


def missing(labels=KINDS):
    out = np.array(labels, dtype=object)
    out[:20] = None
    return out


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "write",
    [
        lambda f: h5ad(f, labels=missing()),
        lambda f: h5ad(f, sp.csr_matrix, labels=pd.Categorical(missing())),
        lambda f: parquet(f, missing()),
        lambda f: text(f, ".csv", missing()),
        lambda f: feather(f, missing()),
        lambda f: excel(f, missing()),
        lambda f: npz(f, y=np.where(np.arange(120) < 20, -1, CODES), classes=list(TEXTS.index)),
    ],
    ids=["h5ad", "h5ad categories", "parquet", "csv", "feather", "excel", "npz"],
)
def test_rows_without_a_label_are_unlabeled(write, tmp_path):
    path, label = write(tmp_path)
    marked = missing()
    marked[:20] = -1
    expected = SemFS(4, TEXTS).fit(X, marked).order_.tolist()
    assert SemFS(4, TEXTS).fit(X, missing()).order_.tolist() == expected
    assert SemFS(4, TEXTS).fit(path, label).order_.tolist() == expected
    done = select_features(open_blocks(path, label), SemFS(4, TEXTS), tmp_path / "out")
    assert done.selector.order_.tolist() == expected
    assert done.n_rows == 100


def test_columns_without_numbers_are_left_out_and_named(tmp_path):
    path, label = parquet(tmp_path)
    with pytest.warns(UserWarning, match="non-numeric columns: 'note'"):
        SemFS(4).fit(path, label)
    with warnings.catch_warnings(action="error"):
        SemFS(4).fit(open_blocks(path, label, drop=["note"]))
    with pytest.raises(
        ValueError, match=r"no labels given.*label column \(found: 'g0'.*or an array"
    ):
        open_blocks(path)


def test_true_and_false_are_numbers_in_every_table(tmp_path):
    flags = frame().assign(flag=CODES > 2).drop(columns="note")
    flags.to_csv(tmp_path / "data.csv", index=False)
    for data in (flags, tmp_path / "data.csv"):
        assert_array_equal(open_blocks(data, "kind").load()[0][:, -1], CODES > 2)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_frames_with_the_name_of_the_label_column_are_tables():
    plain, lazy = frame(), pl.from_pandas(frame()).lazy()
    for data in (plain, lazy.collect(), lazy):
        found = SemFS(4, TEXTS).fit(data, "kind")
        assert found.order_.tolist() == expected_order()
        assert found.feature_names_in_.tolist() == NAMES
    assert SemFS(4, TEXTS).fit(lazy.select(NAMES), KINDS).order_.tolist() == expected_order()


@pytest.mark.parametrize("limit", [{}, {"block_rows": 17}])
def test_partial_fit_takes_files_too(limit, tmp_path):
    path, rest = tmp_path / "data.npy", tmp_path / "rest.npy"
    np.save(rest, X[60:])
    np.save(path, X[:60])
    selector = SemFS(4, TEXTS).partial_fit(open_blocks(path, KINDS[:60], **limit), None)
    selector.partial_fit(open_blocks(rest, KINDS[60:], **limit), None)
    assert selector.order_.tolist() == expected_order()
    np.save(rest, X[60:, 1:])
    with pytest.raises(ValueError, match="8 features, but SemFS is expecting 9"):
        selector.partial_fit(open_blocks(rest, KINDS[60:]), None)


@pytest.mark.parametrize("layer", [None, "double", "raw"])
def test_layers_of_anndata_in_a_file_backed_and_in_memory(layer, tmp_path):
    path, _ = h5ad(tmp_path, sp.csr_matrix)
    factor = 2.0 if layer == "double" else 1.0
    for data in (path, anndata.read_h5ad(path), anndata.read_h5ad(path, backed="r")):
        source = open_blocks(data, "kind", key=layer)
        assert source.feature_names == NAMES
        assert_array_equal(source.reader.load().toarray(), factor * X)
    view = anndata.read_h5ad(path)[:60]
    assert_array_equal(open_blocks(view, "kind", key=layer).load()[1].array(), KINDS[:60])
    with pytest.raises(ValueError, match="no column 'nothing'"):
        open_blocks(view, "nothing")


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_an_anndata_file_is_a_data_set(form, tmp_path):
    path, label = h5ad(tmp_path, form, labels=missing())
    with pytest.warns(UserWarning, match="unlabeled samples were left out"):
        data = load_table(path, label, TEXTS, layer="double", unseen=["dog"])
    labeled = pd.notna(missing())
    assert sp.issparse(data.X) == (form is sp.csr_matrix)
    assert_array_equal(data.X.toarray() if sp.issparse(data.X) else data.X, 2 * X[labeled])
    assert_array_equal(data.y, KINDS[labeled])
    assert (data.name, data.unseen.tolist()) == ("data", ["dog"])
    assert list(data.feature_names) == NAMES


def test_integer_text_and_float_labels_are_one_class(tmp_path):
    for labels in (CODES, CODES.astype(str), CODES.astype(float)):
        path, label = parquet(tmp_path, labels)
        by_number = pd.DataFrame(TABLE)
        by_text = by_number.set_index(by_number.index.astype(str))
        for table in (by_number, by_text):
            found = SemFS(4, table).fit(open_blocks(path, label, drop=["note"]))
            assert found.order_.tolist() == expected_order()


@pytest.mark.parametrize("claimed", [".npy", ".npz", ".parquet", ".h5ad", ".h5", ".feather"])
@pytest.mark.parametrize(
    "really", [npy, npz, parquet, h5ad, feather, lambda f: text(f, ".csv")]
)
def test_a_healthy_file_of_another_format_is_not_called_damaged(claimed, really, tmp_path):
    path, _ = really(tmp_path)
    if path.suffix == claimed or {path.suffix, claimed} == {".h5ad", ".h5"}:
        return
    wrong = path.rename(tmp_path / f"wrong{claimed}")
    with pytest.raises(FileError, match="looks like") as caught:
        open_blocks(wrong, "y")
    assert "damaged" not in str(caught.value)


def test_links_to_other_files_are_not_followed(tmp_path):
    with h5py.File(tmp_path / "secret.h5", "w") as file:
        file["X"] = X
    for ending in ("h5", "h5ad"):
        with h5py.File(tmp_path / f"a.{ending}", "w") as file:
            file["X"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "X")
            file["y"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "X")
            obs = file.create_group("obs")
            obs["y"] = h5py.ExternalLink(str(tmp_path / "secret.h5"), "X")
        with pytest.raises(FileError, match="not followed"):
            open_blocks(tmp_path / f"a.{ending}", "y")


def test_arrays_in_hdf5_are_chosen_by_key_and_may_be_open(tmp_path):
    path, _ = hdf5(tmp_path)
    with h5py.File(path, "a") as file:
        file["more/Z"] = X + 1
        file["Y"] = X + 2
        assert_array_equal(open_blocks(file["Y"], KINDS).load()[0], X + 2)
    assert_array_equal(open_blocks(path, KINDS, key="more/Z").load()[0], X + 1)
    with pytest.raises(FileError, match="more is not a matrix"):
        open_blocks(path, KINDS, key="more")
    with h5py.File(path, "a") as file:
        del file["X"]
        file["Z"] = X
    with pytest.raises(
        FileError, match=r"holds Y, Z, kind, more\. Specify the matrix with key=NAME"
    ):
        open_blocks(path, KINDS)
    np.savez(tmp_path / "data.npz", Q=X)
    assert_array_equal(open_blocks(tmp_path / "data.npz", KINDS, key="Q").load()[0], X)


def test_labels_may_be_lines_of_a_text_file(tmp_path):
    path, _ = npy(tmp_path)
    (tmp_path / "y.txt").write_text("\n".join(KINDS) + "\n")
    assert (
        SemFS(4, TEXTS).fit(path, str(tmp_path / "y.txt")).order_.tolist() == expected_order()
    )
    np.save(tmp_path / "wide.npy", X)
    with pytest.raises(FileError, match="one label per row was expected"):
        open_blocks(path, str(tmp_path / "wide.npy"))


@pytest.mark.filterwarnings("ignore")
def test_columns_as_old_anndata_wrote_them_are_read(tmp_path):
    path, label = h5ad(tmp_path)
    with h5py.File(path, "a") as file:
        del file["obs/kind"]
        file["obs/kind"] = CODES.astype(np.int8)
        file["obs/__categories/kind"] = list(TEXTS.index)
        file["obs/kind"].attrs["categories"] = file["obs/__categories/kind"].ref
        file["obs"].attrs["encoding-version"] = "0.1.0"
    assert_array_equal(open_blocks(path, label).load()[1].array(), KINDS)


def test_broken_h5ad_is_explained(tmp_path):
    path, label = h5ad(tmp_path, sp.csr_matrix)
    with h5py.File(path, "a") as file:
        del file["obs"]
    with pytest.raises(FileError, match="no group 'obs'"):
        open_blocks(path, label)
    with pytest.raises(FileError, match=r"no layers/none; layers: double, raw"):
        open_blocks(path, KINDS, key="none")


def test_zarr_may_leave_chunks_of_zeros_out(tmp_path):
    anndata = pytest.importorskip("anndata")
    X = sp.csr_matrix(np.arange(1.0, 13.0)[:, None])
    path = tmp_path / "cells.zarr"
    cells = anndata.AnnData(X)
    cells.obs["kind"] = np.repeat(["a", "b"], 6)
    cells.write_zarr(path)
    assert zarr.open(path)["X/indices"].nchunks_initialized == 0
    selector = SemFS(1).fit(path, "kind")
    assert_allclose(selector.class_means_[:, 0], [3.5, 9.5])
