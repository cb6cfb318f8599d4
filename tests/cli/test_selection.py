"""`semfs select`: files by the usual tools give the answer of the library call, names kept."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy import sparse
from typer.testing import CliRunner

import semfs.datasets.h5ad
import semfs.datasets.sources
import semfs.rows.readers
from semfs import SemFS
from semfs.cli import app
from semfs.cli.select import select_file
from semfs.datasets import load_h5ad, load_sample, load_table

pd = pytest.importorskip("pandas")
pa = pytest.importorskip("pyarrow")
pytest.importorskip("pyarrow.parquet")
pytest.importorskip("h5py")

LABEL = "cell typé (bulk)"


@pytest.fixture(scope="module")
def sample():
    return load_sample("blood")


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
    frame = frame.rename(columns={"CST3": "CST3, a gene\nwith a past", "LYZ": " ЛИЗ β "})
    frame.insert(3, LABEL, pd.Categorical(sample.y, categories=[*sample.classes, "unused"]))
    frame["note"] = 'said "yes, 1"\n'
    frame["when"] = pd.Timestamp("2026-01-01")
    frame.index = [f"cell {i}" for i in range(len(frame))]
    frame.to_csv(folder / "pandas.csv")
    frame.to_parquet(folder / "pandas.parquet")
    sample.attributes.to_csv(folder / "types.csv")
    np.save(folder / "X.npy", sample.X)
    np.save(folder / "y.npy", sample.y)
    ids = {label: i for i, label in enumerate(sample.attributes.index)}
    np.savez_compressed(
        folder / "all.npz",
        X=sample.X,
        y=[ids[label] for label in sample.y],
        A=sample.attributes.to_numpy(),
        classes=np.array(sample.attributes.index, dtype=str),
        feature_names=sample.feature_names.astype(str),
    )
    return folder


def rank(path, out, label, sample, **changes):
    arguments = {"attributes": path.parent / "types.csv", "unseen": list(sample.unseen)}
    return select_file(path, out, label=label, n_features_to_select=20, **(arguments | changes))


@pytest.fixture(params=["in memory", "on disk"])
def place(request, monkeypatch):
    """Small limits send small files down the road of large ones."""
    if request.param == "on disk":
        monkeypatch.setattr(semfs.datasets.sources, "IN_MEMORY_BYTES", 1000)
        for module in (semfs.rows.readers, semfs.datasets.sources):
            monkeypatch.setattr(module, "BLOCK_BYTES", 2**17)
    return request.param


# --- the same answer -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pandas.csv", "pandas.parquet"])
def test_tables_give_the_answer_of_the_library(files, sample, expected, tmp_path, name, place):
    done = rank(files / name, tmp_path / f"out{Path(name).suffix}", LABEL, sample)
    assert_array_equal(done.selector.order_, expected.order_)
    read = pd.read_csv if name.endswith("csv") else pd.read_parquet
    reduced = read(tmp_path / f"out{Path(name).suffix}")
    names = done.features["feature"][done.features["selected"]]
    assert set(names) <= set(reduced.columns)
    assert {LABEL, "note", "when"} <= set(reduced.columns)
    assert_array_equal(reduced[LABEL].astype(str), sample.y)
    assert "CST3, a gene\nwith a past" in set(names)
    column = reduced["CST3, a gene\nwith a past"].to_numpy()
    np.testing.assert_allclose(column, sample.X[:, sample.feature_names == "CST3"].ravel())


def test_polars_tables_give_the_answer_of_the_library(files, sample, expected, tmp_path):
    pl = pytest.importorskip("polars")
    frame = pl.read_parquet(files / "pandas.parquet")
    frame.write_parquet(tmp_path / "p.parquet")
    frame.write_csv(tmp_path / "p.csv")
    for name in ("p.parquet", "p.csv"):
        done = rank(
            tmp_path / name, tmp_path / "out", LABEL, sample, attributes=files / "types.csv"
        )
        assert_array_equal(done.selector.order_, expected.order_)


def test_npy_and_npz_give_the_answer_of_the_library(files, sample, expected, tmp_path, place):
    done = rank(files / "X.npy", tmp_path / "r.npy", str(files / "y.npy"), sample)
    assert_array_equal(done.selector.order_, expected.order_)
    assert_array_equal(np.load(tmp_path / "r.npy"), sample.X[:, expected.support_])
    done = rank(files / "all.npz", tmp_path / "r.npz", None, sample, attributes=None)
    assert_array_equal(done.selector.order_, expected.order_)
    with np.load(tmp_path / "r.npz") as reduced:
        assert_array_equal(reduced["X"], sample.X[:, expected.support_])
        assert set(reduced["feature_names"]) == set(sample.feature_names[expected.support_])
        assert {"y", "A", "classes"} <= set(reduced)


@pytest.mark.parametrize("form", ["dense", "csr", "csc"])
def test_h5ad_gives_the_answer_and_is_annotated(sample, expected, tmp_path, form, place):
    anndata = pytest.importorskip("anndata")
    X = sample.X if form == "dense" else getattr(sparse, f"{form}_matrix")(sample.X)
    obs = pd.DataFrame({"type": pd.Categorical(sample.y)}, index=map(str, range(700)))
    cells = anndata.AnnData(X, obs, pd.DataFrame(index=sample.feature_names.astype(str)))
    cells.uns["mine"] = {"kept": 1}
    cells.layers["double"] = X * 2
    cells.write_h5ad(tmp_path / "c.h5ad")
    sample.attributes.to_csv(tmp_path / "types.csv")
    for layer in (None, "double"):
        done = rank(tmp_path / "c.h5ad", tmp_path / "o.h5ad", "type", sample, layer=layer)
        assert_array_equal(done.selector.order_[:20], expected.order_[:20])
    back = anndata.read_h5ad(tmp_path / "o.h5ad")
    assert back.shape == cells.shape
    assert_array_equal(back.var["semfs_selected"], expected.support_)
    assert_array_equal(back.var["semfs_rank"], expected.ranking_)
    assert back.var["semfs_score"].idxmax() == sample.feature_names[expected.order_[0]]
    assert json.loads(back.uns["semfs"]["params"])["n_features_to_select"] == 20
    assert back.uns["mine"]["kept"] == 1
    again = rank(tmp_path / "o.h5ad", tmp_path / "o.h5ad", "type", sample)  # in place, twice
    assert_array_equal(again.selector.support_, expected.support_)
    rank(tmp_path / "c.h5ad", tmp_path / "s.h5ad", "type", sample, subset=True)
    assert anndata.read_h5ad(tmp_path / "s.h5ad").shape == (700, 20)


def test_h5ad_loads_with_names_layer_and_unseen_flag(sample, tmp_path):
    anndata = pytest.importorskip("anndata")
    obs = pd.DataFrame(
        {
            "type": pd.Series(sample.y).where(np.arange(700) > 4, None).to_numpy(),
            "Unseen": np.isin(sample.y, sample.unseen),
        },
        index=map(str, range(700)),
    )
    var = pd.DataFrame(index=["twice", "twice", *sample.feature_names[2:]])
    cells = anndata.AnnData(sparse.csr_matrix(sample.X), obs, var)
    cells.write_h5ad(tmp_path / "c.h5ad", compression="gzip")
    with pytest.warns(UserWarning, match="5 cells without a label"):
        data = load_h5ad(tmp_path / "c.h5ad", "type", sample.attributes, unseen="Unseen")
    assert sparse.issparse(data.X)
    assert_array_equal(data.X.toarray(), sample.X[5:])
    assert set(data.unseen) == set(sample.unseen)
    assert data.feature_names[:2].tolist() == ["twice", "twice-1"]


def test_twenty_thousand_columns(tmp_path):
    rng = np.random.default_rng(0)
    y = np.repeat(["a", "b", "c", "d"], 10)
    X = rng.normal(size=(40, 20_000)).astype(np.float32)
    X[:, 17] += 9 * (y == "a")
    X[:, 19_999] += 9 * (y == "b")
    frame = pd.DataFrame(X, columns=[f"gène {j}" for j in range(20_000)])
    frame["label"] = y
    polars = pytest.importorskip("polars")
    polars.from_pandas(frame).write_parquet(tmp_path / "wide.parquet")
    frame.to_csv(tmp_path / "wide.csv", index=False)
    table = pd.DataFrame({"p": [1, 0, 0, 0], "q": [0, 1, 0, 0]}, index=list("abcd"))
    for name in ("wide.parquet", "wide.csv"):
        done = select_file(
            tmp_path / name, tmp_path / "o", label="label", attributes=table,
            n_features_to_select=2,
        )  # fmt: skip
        assert set(done.features["feature"][:2]) == {"gène 17", "gène 19999"}


def test_rows_without_label_are_not_used_but_are_reduced(sample, tmp_path):
    frame = pd.DataFrame(sample.X[:, :30], columns=sample.feature_names[:30])
    frame["y"] = pd.Series(sample.y).where(np.arange(700) % 7 > 0)
    frame.to_parquet(tmp_path / "a.parquet")
    done = select_file(
        tmp_path / "a.parquet", tmp_path / "o.parquet", label="y",
        attributes=sample.attributes, n_features_to_select=5,
    )  # fmt: skip
    used = frame["y"].notna().to_numpy()
    assert done.n_rows == used.sum()
    alone = SemFS(5, attributes=sample.attributes).fit(sample.X[used, :30], sample.y[used])
    assert_array_equal(done.selector.order_, alone.order_)
    assert len(pd.read_parquet(tmp_path / "o.parquet")) == 700


def test_whole_number_labels_match_text_labels_of_the_table(tmp_path):
    frame = pd.DataFrame({"a": [0.0, 1, 5, 6], "b": [1.0, 0, 0, 1], "y": [1, 1, 2, 2]})
    frame.to_parquet(tmp_path / "a.parquet")
    done = select_file(
        tmp_path / "a.parquet", tmp_path / "o", label="y",
        attributes={"1": [0.0], "2": [1.0]}, n_features_to_select=1,
    )  # fmt: skip
    assert done.features["feature"].iloc[0] == "a"


def test_include_exclude_and_drop_by_name(files, sample, tmp_path):
    done = rank(
        files / "pandas.parquet", tmp_path / "o", LABEL, sample,
        include=[" ЛИЗ β "], exclude=["NKG7"], drop=["CD3D"],
    )  # fmt: skip
    assert done.features["feature"].iloc[0] == " ЛИЗ β "
    assert not done.features.set_index("feature").loc["NKG7", "selected"]
    assert "CD3D" not in set(done.features["feature"])


# --- the command -----------------------------------------------------------------------


def run(*arguments):
    return CliRunner().invoke(app, [str(a) for a in arguments])


def test_command_writes_table_and_data_and_nothing_else(files, sample, expected, tmp_path):
    unseen = [part for label in sample.unseen for part in ("--unseen", label)]
    result = run(
        "select", files / "pandas.csv", "--label", LABEL, "--attributes", files / "types.csv",
        "-k", 20, "-o", tmp_path / "out.csv", *unseen,
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    assert "20 of 765 features chosen on 402 rows of 6 classes" in result.output
    assert sorted(p.name for p in tmp_path.iterdir()) == ["out.csv", "out.features.csv"]
    table = pd.read_csv(tmp_path / "out.features.csv")
    assert list(table.columns) == ["rank", "feature", "score", "selected", "column"]
    assert_array_equal(table["column"], expected.order_)


@pytest.mark.parametrize(
    "change, message",
    [
        ({"data": "nowhere.csv"}, "nowhere.csv does not exist"),
        ({"label": "cell type (bulk)"}, "did you mean 'cell typé (bulk)'"),
        ({"label": None}, "needs --label"),
        ({"attributes": "nowhere.csv"}, "does not exist"),
        ({"attributes": None}, "has no class attributes"),
        ({"out": "out.docx"}, "reduced data are written as"),
        ({"k": "0"}, "n_features_to_select must be at least 1"),
        ({"extra": ["--unseen", "B cell"]}, "unseen class 'B cell' does not occur"),
        ({"extra": ["--include", "NKG8"]}, "no feature 'NKG8'; did you mean 'NKG7'"),
        ({"extra": ["--drop", "nothing"]}, "has no column 'nothing'"),
    ],
)
def test_bad_input_is_one_line_exit_2_and_leaves_nothing(files, tmp_path, change, message):
    choice = {
        "data": files / "pandas.parquet",
        "label": LABEL,
        "attributes": files / "types.csv",
        "out": tmp_path / "out.csv",
        "k": "5",
        "extra": [],
    } | change
    if "out" in change:
        choice["out"] = tmp_path / change["out"]
    arguments = ["select", choice["data"], "-k", choice["k"], "-o", choice["out"]]
    for option in ("label", "attributes"):
        if choice[option] is not None:
            arguments += [f"--{option}", choice[option]]
    result = run(*arguments, *choice["extra"])
    assert result.exit_code == 2
    assert message in result.output
    assert result.output.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_nothing_half_written(files, sample, tmp_path, monkeypatch):
    import semfs.cli.select

    def fail(*_):
        raise OSError("disk full")

    monkeypatch.setattr(semfs.cli.select, "write_table", fail)
    with pytest.raises(OSError, match="disk full"):
        rank(files / "pandas.parquet", tmp_path / "o.csv", LABEL, sample)
    assert not list(tmp_path.iterdir())


def test_output_may_not_be_the_input(files, sample):
    with pytest.raises(ValueError, match="is the data file itself"):
        rank(files / "pandas.csv", files / "pandas.csv", LABEL, sample)


@pytest.mark.parametrize(
    "content, message",
    [
        ("", "is empty"),
        ("y,a\n", "no labelled row|not a readable"),
        ("y,a,a\nx,1,2\n", "two columns named 'a'"),
        ("y,a\nx,1\nz,\nx,3\n", "no value in column 'a', row 2"),
        ("y,a\nx,1\nz,2\nx,3\nz,oops\n", "column 'a' holds 'oops' in row 4 among numbers"),
        ("y,a\nx,1,7\nz,2\n", "not a readable"),
        ("y,b\nx,text\nz,more\n", "has no column of numbers"),
        ("y,a\nx,1\nw,2\n", "no row for class 'w'"),
        ("y,a\nx,1\nz,inf\n", "nfinity"),
    ],
)
def test_broken_csv_is_explained(tmp_path, content, message):
    (tmp_path / "t.csv").write_text(content)
    table = {"x": [0.0], "z": [1.0]}
    with pytest.raises(ValueError, match=message) as caught:
        select_file(
            tmp_path / "t.csv",
            tmp_path / "o.csv",
            label="y",
            attributes=table,
            n_features_to_select=1,
        )
    assert not (tmp_path / "o.csv").exists()
    assert (
        "t.csv" in str(caught.value)
        or "nfinity" in str(caught.value)
        or "row for" in str(caught.value)
    )


@pytest.mark.parametrize("ending", ["parquet", "h5ad", "npz", "npy"])
@pytest.mark.parametrize("kind", ["truncated", "garbage", "empty"])
def test_broken_binary_files_are_one_line(files, sample, tmp_path, ending, kind):
    path = tmp_path / f"t.{ending}"
    if ending == "h5ad":
        anndata = pytest.importorskip("anndata")
        obs = pd.DataFrame({"y": sample.y}, index=map(str, range(700)))
        anndata.AnnData(sample.X, obs).write_h5ad(path)
        data = path.read_bytes()
    else:
        source = {"parquet": "pandas.parquet", "npz": "all.npz", "npy": "X.npy"}[ending]
        data = (files / source).read_bytes()
    content = {"truncated": data[: len(data) // 3], "garbage": b"\x93NUMPY" * 99, "empty": b""}
    path.write_bytes(content[kind])
    label = {"npy": files / "y.npy", "h5ad": "y", "parquet": LABEL, "npz": "y"}[ending]
    result = run(
        "select",
        path,
        "--label",
        label,
        "--attributes",
        files / "types.csv",
        "-o",
        tmp_path / "o",
    )
    assert result.exit_code == 2
    assert f"t.{ending}" in result.output
    assert result.output.count("\n") == 1


def test_load_table_leaves_out_text_and_index_columns(files, sample):
    data = load_table(files / "pandas.csv", LABEL, sample.attributes, unseen=sample.unseen)
    assert data.X.shape == (700, 765)
    assert data.info["left_out"] == ["", "note", "when"]
    assert_array_equal(data.y, sample.y)
    np.testing.assert_allclose(data.X, sample.X, rtol=1e-6)


# --- the other commands ------------------------------------------------------------------


def test_attributes_command_writes_a_table(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMFS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "v.txt").write_text("cat 1 0\ndog 0.9 0.1\ntruck 0 1\n")
    vectors = tmp_path / "v.txt"
    result = run("attributes", "cat,dog,truck", "-o", tmp_path / "t.csv", "-e", vectors)
    assert result.exit_code == 0, result.output
    assert "3 classes × 2 attributes" in result.output
    assert pd.read_csv(tmp_path / "t.csv", index_col=0).loc["dog"].tolist() == [0.9, 0.1]
    bad = run("attributes", "cat,zebra", "-o", tmp_path / "u.csv", "-e", tmp_path / "v.txt")
    assert bad.exit_code == 2
    assert not (tmp_path / "u.csv").exists()


def test_datasets_command_says_what_is_there_and_how_to_get_the_rest(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "CUB").mkdir()
    for name in ("res101.mat", "att_splits.mat"):
        (tmp_path / "CUB" / name).touch()
    result = run("datasets")
    assert result.exit_code == 0
    lines = result.output.splitlines()
    assert next(line for line in lines if line.startswith("sample")).endswith("[bundled]")
    assert f"found in {tmp_path / 'CUB'}" in result.output
    assert "load_xlsa17" in result.output
    assert "get it:" in result.output
    assert str(tmp_path) in lines[-1]


# --- memory ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs Linux's /proc")
@pytest.mark.parametrize("ending", ["npy", "parquet"])
def test_memory_stays_bounded_on_a_file_larger_than_the_limit(tmp_path, ending):
    n, d = 150_000, 1024  # 0.6 GB
    rng = np.random.default_rng(0)
    y = rng.integers(0, 5, n)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X[:, 3] += y
    if ending == "npy":
        np.save(tmp_path / "X.npy", X)
        np.save(tmp_path / "y.npy", y)
        label = str(tmp_path / "y.npy")
    else:
        columns = {f"x{j}": X[:, j] for j in range(d)} | {"y": y}
        pa.parquet.write_table(pa.table(columns), tmp_path / "X.parquet")
        label = "y"
    del X
    pd.DataFrame({"a": range(5)}).to_csv(tmp_path / "t.csv")
    code = (
        "from pathlib import Path; from semfs.cli import app\n"
        "try:\n    app()\n"
        "finally:\n    text = Path('/proc/self/status').read_text()\n"
        "    print(int(text.split('VmHWM:')[1].split()[0]) // 1024)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "select", str(tmp_path / f"X.{ending}"), "--label", label,
         "--attributes", str(tmp_path / "t.csv"), "-k", "5", "-o", str(tmp_path / "out")],
        capture_output=True, text=True, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "best: x3," in done.stdout
    assert int(done.stdout.split()[-1]) < 520
