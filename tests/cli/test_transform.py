"""`semfs transform`: the selected features of another file, by a saved selector."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
import pandas as pd
from typer.testing import CliRunner

from problems import make_problem
from semfs import SemFS, save
from semfs.baselines import VarianceSelector
from semfs.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    """A selector of three named features, its file, and new samples with all features."""
    X, y, _ = make_problem(d=8, m=4)
    names = [f"s{j}" for j in range(8)]
    selector = SemFS(3).fit(pd.DataFrame(X, columns=names), y)
    path = save(selector, tmp_path_factory.mktemp("transform") / "cut.npz")
    rng = np.random.default_rng(1)
    new = pd.DataFrame(rng.normal(size=(12, 8)), columns=names)
    return selector, path, new


READ = {
    ".csv": pd.read_csv,
    ".tsv": lambda path: pd.read_csv(path, sep="\t"),
    ".parquet": pd.read_parquet,
    ".feather": pd.read_feather,
    ".xlsx": pd.read_excel,
}


@pytest.mark.parametrize("ending", READ)
def test_tables_keep_text_and_the_selected_columns_in_the_order_of_the_fit(
    fitted, tmp_path, ending
):
    selector, path, new = fitted
    # another order, a column fewer, one more of text, and a gap where nothing is selected
    other, *_ = new.columns[~selector.get_support()]
    gone = new.columns[~selector.get_support()][1]
    table = new[new.columns[::-1]].drop(columns=gone).assign(place="north")
    table.loc[3, other] = np.nan
    table.to_csv(tmp_path / "new.csv", index=False)
    out = tmp_path / f"cut{ending}"
    done = run("transform", path, tmp_path / "new.csv", "-o", out)
    assert done.exit_code == 0, done.output
    assert "Kept 3 of 8 features of 12 samples." in done.output
    found = READ[ending](out)
    names = selector.get_feature_names_out().tolist()
    assert found.columns.tolist() == [*names, "place"]
    assert_allclose(found[names], new[names])
    assert (found["place"] == "north").all()


def test_arrays_are_what_transform_returns(fitted, tmp_path):
    selector, path, new = fitted
    new.iloc[:, ::-1].to_parquet(tmp_path / "new.parquet")
    for ending in (".npy", ".npz"):
        done = run("transform", path, tmp_path / "new.parquet", "-o", tmp_path / f"cut{ending}")
        assert done.exit_code == 0, done.output
    assert_allclose(np.load(tmp_path / "cut.npy"), selector.transform(new))
    with np.load(tmp_path / "cut.npz") as arrays:
        assert_allclose(arrays["X"], selector.transform(new))
        assert_array_equal(arrays["feature_names"], selector.get_feature_names_out())
        assert "y" not in arrays


def test_labels_are_kept_where_they_are_asked_for(fitted, tmp_path):
    _, path, new = fitted
    new.assign(kind=np.arange(12)).to_csv(tmp_path / "new.csv", index=False)
    run("transform", path, tmp_path / "new.csv", "-o", tmp_path / "without.csv")
    assert "kind" not in pd.read_csv(tmp_path / "without.csv").columns
    done = run("transform", path, tmp_path / "new.csv", "-l", "kind", "-o", tmp_path / "a.csv")
    assert done.exit_code == 0, done.output
    assert_array_equal(pd.read_csv(tmp_path / "a.csv")["kind"], np.arange(12))


def test_an_h5ad_file_keeps_its_annotations_and_the_selected_genes(fitted, tmp_path):
    anndata = pytest.importorskip("anndata")
    selector, path, new = fitted
    cells = anndata.AnnData(new[new.columns[::-1]].assign(further=1.0))
    cells.obs["donor"] = "d1"
    cells.write_h5ad(tmp_path / "new.h5ad")
    out = tmp_path / "cut.h5ad"
    done = run("transform", path, tmp_path / "new.h5ad", "-o", out)
    assert done.exit_code == 0, done.output
    found = anndata.read_h5ad(out)
    names = selector.get_feature_names_out()
    assert_array_equal(found.var_names, names)
    assert_allclose(found.X, new[names])
    assert (found.obs["donor"] == "d1").all()
    assert_array_equal(found.var["semfs_rank"], selector.ranking_[selector.get_support()])
    done = run("transform", path, tmp_path / "new.h5ad", "-o", tmp_path / "cut.csv")
    assert done.exit_code == 0, done.output
    assert pd.read_csv(tmp_path / "cut.csv").columns.tolist() == ["sample", *names]


def test_gaps_in_selected_features_stay_gaps(fitted, tmp_path):
    selector, path, new = fitted
    name = selector.get_feature_names_out()[0]
    gaps = new.copy()
    gaps.loc[4, name] = np.nan
    gaps.to_csv(tmp_path / "new.csv", index=False)
    for ending in (".csv", ".npy"):
        done = run("transform", path, tmp_path / "new.csv", "-o", tmp_path / f"cut{ending}")
        assert done.exit_code == 0, done.output
    assert_array_equal(np.isnan(pd.read_csv(tmp_path / "cut.csv")[name]), np.arange(12) == 4)
    assert np.isnan(np.load(tmp_path / "cut.npy")[4, 0])


def test_an_empty_column_of_an_unselected_feature_is_left_out(fitted, tmp_path):
    selector, path, new = fitted
    other = new.columns[~selector.get_support()][0]
    table = new.assign(place="north", remark=np.nan)
    table[other] = np.nan
    table.to_csv(tmp_path / "new.csv", index=False)
    done = run("transform", path, tmp_path / "new.csv", "-o", tmp_path / "cut.csv")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "cut.csv")
    # an empty column that is not a feature is kept, as text is
    assert found.columns.tolist() == [*selector.get_feature_names_out(), "place", "remark"]


def test_a_baseline_and_data_without_names_are_cut_as_well(fitted, tmp_path):
    _, _, new = fitted
    selector = VarianceSelector(2).fit(new.to_numpy())
    save(selector, tmp_path / "plain.npz")
    np.save(tmp_path / "new.npy", new.to_numpy())
    done = run(
        "transform", tmp_path / "plain.npz", tmp_path / "new.npy", "-o", tmp_path / "c.npy"
    )
    assert done.exit_code == 0, done.output
    assert_allclose(np.load(tmp_path / "c.npy"), selector.transform(new.to_numpy()))
    np.save(tmp_path / "narrow.npy", new.to_numpy()[:, :5])
    done = run("transform", tmp_path / "plain.npz", tmp_path / "narrow.npy", "-o", "c.npy")
    assert done.exit_code == 2
    assert "has 5 features, but the selector was fitted with 8" in " ".join(done.output.split())


def test_wrong_files_are_one_line_and_nothing_is_written(fitted, tmp_path):
    selector, path, new = fitted
    name = selector.get_feature_names_out()[1]
    data = tmp_path / "new.csv"
    new.drop(columns=name).to_csv(data, index=False)
    save(SemFS(3), tmp_path / "unfitted.npz")
    cases = [
        (path, data, "cut.csv", f"lacks 1 of 3 selected features: {name}."),
        (path, data, "cut.docx", "--out: "),
        (path, data, "cut", "must end in .csv"),
        (path, data, "new.csv", "would overwrite an input"),
        (path, data, "cut.h5ad", "a table cannot be written as .h5ad"),
        (tmp_path / "unfitted.npz", data, "cut.csv", "not fitted"),
        (data, data, "cut.csv", "new.csv"),
    ]
    for selector_path, data_path, out, message in cases:
        done = run("transform", selector_path, data_path, "-o", tmp_path / out)
        assert done.exit_code == 2, done.output
        assert message in " ".join(done.output.split()), done.output
    assert {file.name for file in tmp_path.iterdir()} == {"new.csv", "unfitted.npz"}
