"""Features selected in a file: the reduced data, the ranked table, and all rows kept."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse

from semfs import SemFS
from semfs.datasets import load_sample
from semfs.rows import open_blocks
from semfs.select import select_features

pd = pytest.importorskip("pandas")
anndata = pytest.importorskip("anndata")
pytest.importorskip("pyarrow")
pytest.importorskip("h5py")

pytestmark = pytest.mark.filterwarnings("ignore:ignored non-numeric columns")
LABEL = "cell typé (bulk)"
BLOCK_BYTES = 2**17


@pytest.fixture(scope="module")
def sample():
    return load_sample("lining")


@pytest.fixture(scope="module")
def expected(sample):
    """The library call."""
    X, y, _, _ = sample.split()
    return SemFS(20, attributes=sample.attributes).fit(X, y)


@pytest.fixture(scope="module")
def files(sample, tmp_path_factory):
    """The sample as people have it: messy but legal."""
    folder = tmp_path_factory.mktemp("messy")
    frame = pd.DataFrame(sample.X, columns=sample.feature_names)
    frame = frame.rename(columns={"SLPI": "SLPI, a gene\nwith a past", "VWF": " ЛИЗ β "})
    frame.insert(3, LABEL, pd.Categorical(sample.y, categories=[*sample.classes, "unused"]))
    frame["note"] = 'said "yes, 1"\n'
    frame["when"] = pd.Timestamp("2026-01-01")
    frame.index = [f"cell {i}" for i in range(len(frame))]
    frame.to_csv(folder / "pandas.csv")
    frame.to_parquet(folder / "pandas.parquet")
    frame.to_feather(folder / "pandas.feather")
    np.save(folder / "X.npy", sample.X)
    np.save(folder / "y.npy", sample.y)
    np.savez_compressed(
        folder / "all.npz",
        X=sample.X,
        y=[list(sample.attributes.index).index(label) for label in sample.y],
        A=sample.attributes.to_numpy(),
        classes=np.array(sample.attributes.index, dtype=str),
        feature_names=sample.feature_names.astype(str),
    )
    return folder


def rank(
    path,
    out,
    label,
    sample,
    *,
    key=None,
    drop=(),
    include=None,
    exclude=None,
    memory=None,
    **options,
):
    source = open_blocks(path, label, key=key, drop=drop, memory=memory)
    if memory is not None:
        # read and written in several blocks
        source = replace(source, plan=replace(source.plan, block_bytes=BLOCK_BYTES))
        source.reader.block_bytes = BLOCK_BYTES
        assert source.reader.usual_step < source.n_rows
    selector = SemFS(20, sample.attributes, include=include, exclude=exclude)
    return select_features(source, selector, out, unseen=sample.unseen, **options)


@pytest.fixture(params=["in memory", "on disk"])
def memory(request):
    """Bytes for blocks: with a small limit, small files are read as large ones are."""
    return None if request.param == "in memory" else 2**16


READ = {".csv": pd.read_csv, ".parquet": pd.read_parquet, ".feather": pd.read_feather}


@pytest.mark.parametrize("name", ["pandas.csv", "pandas.parquet", "pandas.feather"])
def test_tables_keep_labels_texts_and_names(files, sample, expected, tmp_path, name, memory):
    out = tmp_path / f"out{Path(name).suffix}"
    done = rank(files / name, out, LABEL, sample, memory=memory)
    assert_array_equal(done.selector.order_, expected.order_)
    reduced = READ[out.suffix](out)
    names = done.features["feature"][done.features["selected"]]
    assert set(names) <= set(reduced.columns)
    assert {LABEL, "note", "when"} <= set(reduced.columns)
    assert_array_equal(reduced[LABEL].astype(str), sample.y)
    column = reduced["SLPI, a gene\nwith a past"].to_numpy()
    np.testing.assert_allclose(column, sample.X[:, sample.feature_names == "SLPI"].ravel())


def test_npy_and_npz_are_reduced(files, sample, expected, tmp_path, memory):
    label = str(files / "y.npy")
    done = rank(files / "X.npy", tmp_path / "r.npy", label, sample, memory=memory)
    assert_array_equal(done.selector.order_, expected.order_)
    assert_array_equal(np.load(tmp_path / "r.npy"), sample.X[:, expected.support_])
    rank(files / "X.npy", tmp_path / "r.csv", label, sample, memory=memory)
    reduced = pd.read_csv(tmp_path / "r.csv")
    assert_array_equal(reduced["label"], sample.y)
    rank(files / "X.npy", tmp_path / "y.npz", label, sample, memory=memory)
    assert_array_equal(np.load(tmp_path / "y.npz")["y"], sample.y)
    rank(files / "all.npz", tmp_path / "r.npz", None, sample, memory=memory)
    with np.load(tmp_path / "r.npz") as reduced:
        assert_array_equal(reduced["X"], sample.X[:, expected.support_])
        assert set(reduced["feature_names"]) == set(sample.feature_names[expected.support_])
        assert {"y", "A", "classes"} <= set(reduced)


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_h5ad_is_annotated_or_reduced(sample, expected, tmp_path, form, memory):
    anndata = pytest.importorskip("anndata")
    X = sample.X if form == "dense" else getattr(sparse, f"{form}_matrix")(sample.X)
    obs = pd.DataFrame({"type": pd.Categorical(sample.y)}, index=map(str, range(449)))
    cells = anndata.AnnData(X, obs, pd.DataFrame(index=sample.feature_names.astype(str)))
    cells.uns["mine"] = {"kept": 1}
    cells.layers["double"] = X * 2
    cells.write_h5ad(tmp_path / "c.h5ad")
    for layer in (None, "double"):
        paths = (tmp_path / "c.h5ad", tmp_path / "o.h5ad")
        done = rank(*paths, "type", sample, key=layer, memory=memory)
        assert_array_equal(done.selector.order_[:20], expected.order_[:20])
    back = anndata.read_h5ad(tmp_path / "o.h5ad")
    assert back.shape == cells.shape
    assert_array_equal(back.var["semfs_selected"], expected.support_)
    assert_array_equal(back.var["semfs_rank"], expected.ranking_)
    assert back.var["semfs_score"].idxmax() == sample.feature_names[expected.order_[0]]
    assert back.uns["semfs"]["params"]["n_features_to_select"] == 20
    assert back.uns["mine"]["kept"] == 1
    with pytest.raises(ValueError, match="would overwrite an input"):
        rank(tmp_path / "o.h5ad", tmp_path / "o.h5ad", "type", sample)
    with pytest.raises(ValueError, match=r"no labels given\. .* obs column \(found: type\)"):
        open_blocks(tmp_path / "c.h5ad")
    with pytest.raises(ValueError, match="has no raw; layers: double"):
        open_blocks(tmp_path / "c.h5ad", "type", key="raw")
    rank(tmp_path / "c.h5ad", tmp_path / "s.h5ad", "type", sample, subset=True)
    assert anndata.read_h5ad(tmp_path / "s.h5ad").shape == (449, 20)
    other = open_blocks(pd.DataFrame({"a": [1, 2], "y": [0, 1]}), "y")
    with pytest.raises(
        ValueError, match=r"a table cannot be written as \.h5ad\. Choose one of \.csv"
    ):
        select_features(other, SemFS(1), tmp_path / "x.h5ad")


def test_all_rows_are_in_the_reduced_data(sample, tmp_path):
    frame = pd.DataFrame(sample.X[:, :30], columns=sample.feature_names[:30])
    frame["y"] = pd.Series(sample.y).where(np.arange(449) % 7 > 0)
    frame.to_parquet(tmp_path / "a.parquet")
    selector = SemFS(5, sample.attributes)
    source = open_blocks(tmp_path / "a.parquet", "y")
    done = select_features(source, selector, tmp_path / "o.parquet", unseen=sample.unseen[:1])
    used = frame["y"].notna() & (frame["y"] != sample.unseen[0])
    assert done.n_rows == used.sum()
    assert sample.unseen[0] not in selector.classes_
    assert len(pd.read_parquet(tmp_path / "o.parquet")) == 449


def test_include_exclude_and_drop_by_name(files, sample, tmp_path):
    done = rank(
        files / "pandas.parquet", tmp_path / "o", LABEL, sample,
        include=[" ЛИЗ β "], exclude=["SFTPC"], drop=["CAPS"],
    )  # fmt: skip
    assert done.features["feature"].iloc[0] == " ЛИЗ β "
    assert not done.features.set_index("feature").loc["SFTPC", "selected"]
    assert "CAPS" not in set(done.features["feature"])
    with pytest.raises(
        ValueError, match="include: no feature named 'SFTPX'; did you mean 'SFTPD'"
    ):
        rank(files / "pandas.parquet", tmp_path / "p", LABEL, sample, include=["SFTPX"])


def test_a_failed_write_leaves_nothing_half_written(files, sample, tmp_path, monkeypatch):
    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr("semfs.select.selection.write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        rank(files / "pandas.parquet", tmp_path / "o.csv", LABEL, sample)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty"),
        ("y,a\n", "only a header and no rows"),
        ("y,a,a\nx,1,2\n", "two columns named 'a'"),
        ("y,a\nx,1\nz,\nx,3\n", "no value in column 'a', row 2"),
        ("y,a\nx,1\nz,2\nx,3\nz,oops\n", "column 'a' holds numbers, but row 4 has 'oops'"),
        (
            "y;a\nx;1,5\nz;2,5\nx;3.5\nz;4,5\n",
            "but row 3 has '3.5'.* 1.5 or as 1,5, but not both",
        ),
        ("y,a\nx,1,7\nz,2\n", "not a readable"),
        ("y,b\nx,text\nz,more\n", "has no column of numbers"),
        ("y,a\nx,1\nw,2\n", "no row for class 'w'"),
        ("y,a\nx,1\nz,inf\n", "inf in column 'a', row 2"),
    ],
)
def test_broken_csv_is_explained(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    selector = SemFS(1, {"x": [0.0], "z": [1.0]})
    with pytest.raises(ValueError, match=message) as caught:
        select_features(open_blocks(tmp_path / "t.csv", "y"), selector, tmp_path / "o.csv")
    assert "damaged" not in str(caught.value)
    assert not (tmp_path / "o.csv").exists()


IDS = [f"ENSG0000011988{j}.{10 + j}" for j in range(5)]


def problem_with_ids(names=IDS):
    rng = np.random.default_rng(0)
    y = np.arange(60) % 3
    X = rng.normal(size=(60, 5)) + 4.0 * np.eye(3, 5)[y]
    return pd.DataFrame(X, columns=names), y


@pytest.mark.parametrize("version", ["", ".3"])
def test_ensembl_ids_are_found_whatever_their_version(version, tmp_path):
    X, y = problem_with_ids()
    other = [name.partition(".")[0] + version for name in IDS]
    selector = SemFS(2, include=[other[4]], candidates=other[1:]).fit(X, y)
    assert selector.support_[4]
    assert not selector.support_[0]
    (tmp_path / "ids.txt").write_text("\n".join([*other[:2], "ENSG00000999999"]))
    with pytest.warns(UserWarning, match="1 of 3 names"):
        found = SemFS(2, candidates=[str(tmp_path / "ids.txt")]).fit(X, y)
    assert found.get_support(indices=True).tolist() == [0, 1]
    renamed = X.set_axis(other, axis=1)[other[::-1]]
    expected = selector.predict(X).tolist()
    # frames of all features must have the names of the fit, as in scikit-learn
    assert selector.predict(renamed, missing_features="ignore").tolist() == expected
    for options in ({}, {"missing_features": "ignore"}):
        renamed.to_csv(tmp_path / "new.csv", index=False)
        assert selector.predict(tmp_path / "new.csv", **options).tolist() == expected
    cells = anndata.AnnData(renamed)
    assert selector.predict(cells).tolist() == expected


def test_ensembl_ids_of_two_versions_are_ambiguous_and_no_other_id_is_suggested():
    X, y = problem_with_ids(["ENSG00000119888.1", "ENSG00000119888.2", *IDS[1:4]])
    message = "no feature named 'ENSG00000119888'; the data have 'ENSG00000119888.1', 'ENSG0"
    with pytest.raises(ValueError, match=message):
        SemFS(2, include=["ENSG00000119888"]).fit(X, y)
    assert SemFS(2, include=["ENSG00000119888.2"]).fit(X, y).support_[1]
    with pytest.raises(ValueError, match=r"no feature named 'ENSG00000119885'\. Check the id"):
        SemFS(2, include=["ENSG00000119885"]).fit(X, y)
    selector = SemFS(2, include=["ENSG00000119888.2"]).fit(X, y)
    with pytest.raises(ValueError, match="lacks 1 of"):
        selector.predict(
            X.set_axis(["ENSG00000119888.1", "ENSG00000119888.3", *IDS[1:4]], axis=1)
        )


def test_all_unknown_names_of_a_list_are_named_at_once():
    X, y = problem_with_ids(["EPCAM", "PTPRC", "CD3D", "CD19", "VWF"])
    message = (
        r"no features named 'EPCM', 'CD45'\. The first name is 'EPCM'; did you mean 'EPCAM'"
    )
    with pytest.raises(ValueError, match=message):
        SemFS(2, include=["EPCM,CD45"]).fit(X, y)
