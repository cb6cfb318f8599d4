"""The files that commands write: endings are checked before any work is done."""

import numpy as np
import pytest

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
import pandas as pd
from typer.testing import CliRunner

from problems import make_problem
from semfs import SemFS, load, save
from semfs.cli import app


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A folder with labeled samples, new samples and a selector; the frame of new samples."""
    folder = tmp_path_factory.mktemp("outputs")
    X, y, _ = make_problem(d=8, m=4)
    names = [f"s{j}" for j in range(8)]
    frame = pd.DataFrame(X, columns=names)
    frame.assign(kind=y).to_csv(folder / "seen.csv", index=False)
    save(SemFS(3).fit(frame, y), folder / "cut.npz")
    new = pd.DataFrame(np.random.default_rng(1).normal(size=(12, 8)), columns=names)
    new.to_csv(folder / "new.csv", index=False)
    return folder, new


# Files that do not exist show that the ending is looked at first.
WRONG = [
    ["predict", "none.npz", "none.csv", "-o", "out.docx"],
    ["transform", "none.npz", "none.csv", "-o", "out.docx"],
    ["select", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["panel", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["panel", "none.csv", "--label", "kind", "--reduced", "out.docx"],
    ["attributes", "none.csv", "--ontology", "none.obo", "-o", "out.docx"],
    ["attributes", "none.csv", "--ontology", "none.obo", "--template", "out.docx"],
    ["evaluate", "none.csv", "--label", "kind", "-o", "out.docx"],
    ["report", "none", "-o", "out.docx"],
    ["report", "none", "--csv", "out.docx"],
]


@pytest.mark.parametrize("arguments", WRONG, ids=lambda found: f"{found[0]} {found[-2]}")
def test_an_ending_that_cannot_be_written_is_refused_before_files_are_read(
    arguments, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    message = " ".join(done.output.split())
    assert "out.docx" in message
    assert "end in" in message or "ends in" in message
    assert not list(tmp_path.iterdir())


def test_subset_of_a_table_is_refused_before_descriptions_are_read(lab, tmp_path):
    folder, _ = lab
    options = ["--label", "kind", "-a", folder / "seen.csv", "--subset"]
    done = run("select", folder / "seen.csv", *options, "-o", tmp_path / "out.csv")
    assert done.exit_code == 2
    assert "--subset applies only to .h5ad files" in " ".join(done.output.split())


READ = {".feather": pd.read_feather, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}


@pytest.mark.parametrize("ending", READ)
def test_predictions_are_written_in_every_format_that_the_help_names(lab, tmp_path, ending):
    folder, new = lab
    out = tmp_path / f"named{ending}"
    done = run("predict", folder / "cut.npz", folder / "new.csv", "-o", out)
    assert done.exit_code == 0, done.output
    found = READ[ending](out)
    assert len(found) == len(new)
    assert {"class", "probability"} <= set(found.columns)


def test_a_misspelt_method_is_noticed_before_the_data_are_read(tmp_path):
    done = run("evaluate", tmp_path / "none.csv", "--label", "kind", "-m", "semfs,varianse")
    assert done.exit_code == 2
    assert "no method 'varianse'; did you mean 'variance'?" in " ".join(done.output.split())
    done = run("evaluate", tmp_path / "none.csv", "--label", "kind", "--metric", "none:at_all")
    assert "The metric 'none:at_all' could not be loaded" in " ".join(done.output.split())


# ---- names of samples ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def named(lab):
    """The folder with further files whose samples have ids; the ids."""
    folder, new = lab
    ids = [f"{n:03d}" for n in range(7, 7 + len(new))]
    with_ids = new.assign(patient=ids, site="north", box=np.arange(len(new)) // 2)
    with_ids.to_csv(folder / "ids.csv", index=False)
    new.set_axis(ids).to_parquet(folder / "index.parquet")
    new.set_axis(ids).rename_axis("patient").to_parquet(folder / "named.parquet")
    return folder, ids


@pytest.mark.parametrize("ending", [".csv", ".parquet", ".xlsx", ".npz"])
def test_transform_writes_the_column_of_ids_as_it_is(named, tmp_path, ending):
    folder, ids = named
    out = tmp_path / f"cut{ending}"
    done = run(
        "transform", folder / "cut.npz", folder / "ids.csv", "--id", "patient", "-o", out
    )
    assert done.exit_code == 0, done.output
    if ending == ".npz":
        with np.load(out) as arrays:
            found = arrays["patient"].tolist()
    else:
        read = {".csv": pd.read_csv, ".xlsx": pd.read_excel, ".parquet": pd.read_parquet}
        options = {} if ending == ".parquet" else {"dtype": str}
        found = read[ending](out, **options)["patient"].tolist()
    assert found == ids


def test_predictions_have_the_ids_as_their_first_column(named, tmp_path):
    folder, ids = named
    out = tmp_path / "named.csv"
    done = run("predict", folder / "cut.npz", folder / "ids.csv", "--id", "patient", "-o", out)
    assert done.exit_code == 0, done.output
    found = pd.read_csv(out, dtype={"patient": str})
    assert found.columns[0] == "patient"
    assert found["patient"].tolist() == ids


def test_ids_that_are_numbers_are_no_feature_of_select(lab, tmp_path):
    folder, _ = lab
    seen = pd.read_csv(folder / "seen.csv")
    seen.insert(0, "chip", 1000 + 7 * np.arange(len(seen)))
    seen.to_csv(tmp_path / "chips.csv", index=False)
    out = tmp_path / "cut.csv"
    options = ["--label", "kind", "-k", 3, "--id", "chip", "-o", out]
    done = run("select", tmp_path / "chips.csv", *options)
    assert done.exit_code == 0, done.output
    assert "Selected 3 of 8 features" in done.output
    found = pd.read_csv(out)
    assert found["chip"].tolist() == seen["chip"].tolist()
    assert found.shape[1] == 5


def test_an_index_of_pandas_stays_with_its_rows(named, tmp_path):
    folder, ids = named
    for name, column in (("index", "sample"), ("named", "patient")):
        table = tmp_path / "cut.csv"
        run("transform", folder / "cut.npz", folder / f"{name}.parquet", "-o", table)
        found = pd.read_csv(table, dtype={column: str})
        assert found.columns[0] == column
        assert found[column].tolist() == ids
        frame = tmp_path / "cut.parquet"
        run("transform", folder / "cut.npz", folder / f"{name}.parquet", "-o", frame)
        assert pd.read_parquet(frame).index.tolist() == ids
        run("predict", folder / "cut.npz", folder / f"{name}.parquet", "-o", table)
        found = pd.read_csv(table, dtype={column: str})
        assert found[column].tolist() == ids


def test_obs_names_or_a_column_of_obs_are_in_tables(named, tmp_path):
    anndata = pytest.importorskip("anndata")
    folder, ids = named
    new = pd.read_csv(folder / "new.csv").set_axis([f"cell{name}" for name in ids])
    cells = anndata.AnnData(new, obs=pd.DataFrame({"barcode": ids}, index=new.index))
    cells.write_h5ad(tmp_path / "cells.h5ad")
    out = tmp_path / "cut.csv"
    arguments = ["transform", folder / "cut.npz", tmp_path / "cells.h5ad", "-o", out]
    assert run(*arguments).exit_code == 0
    found = pd.read_csv(out)
    assert found["sample"].tolist() == new.index.tolist()
    assert run(*arguments, "--id", "barcode").exit_code == 0
    found = pd.read_csv(out, dtype={"barcode": str})
    assert found.columns[0] == "barcode"
    assert found["barcode"].tolist() == ids
    # the reduced table is read again, with the names in the first column
    cut = pd.DataFrame({"s0": [1.0, 2.0]}, index=["a", "b"])
    cut.to_csv(tmp_path / "two.csv", index_label="sample")
    from semfs.io.registry import open_reader

    assert open_reader(tmp_path / "two.csv", ())[0].row_names == ["a", "b"]


@pytest.mark.parametrize(
    ("column", "out", "message"),
    [
        ("site", "a.csv", "'site' has 1 different id for 12 samples; repeated: north."),
        ("box", "a.csv", "'box' has 6 different ids for 12 samples; repeated: 0, 1,"),
        ("patiend", "a.csv", "no column 'patiend'; did you mean 'patient'?"),
        ("patient", "a.npy", "--id: "),
    ],
)
@pytest.mark.parametrize("command", ["transform", "predict"])
def test_ids_that_name_no_sample_are_refused(named, tmp_path, command, column, out, message):
    folder, _ = named
    arguments = [command, folder / "cut.npz", folder / "ids.csv", "--id", column]
    done = run(*arguments, "-o", tmp_path / out)
    assert done.exit_code == 2
    shown = " ".join(done.output.split())
    if command == "predict" and out.endswith(".npy"):
        message = "must end in .csv"
    assert message in shown
    assert not list(tmp_path.iterdir())


def test_a_sample_without_an_id_is_named_by_its_row(named, tmp_path):
    folder, _ = named
    table = pd.read_csv(folder / "ids.csv", dtype={"patient": str})
    table.loc[4, "patient"] = None
    table.to_csv(tmp_path / "gap.csv", index=False)
    done = run("predict", folder / "cut.npz", tmp_path / "gap.csv", "--id", "patient")
    assert "'patient' has no id for 1 of 12 samples, the first one in row 5" in " ".join(
        done.output.split()
    )


def test_equal_text_in_the_first_column_names_no_samples(lab, tmp_path):
    folder, new = lab
    new.assign(place="north")[["place", *new.columns]].to_csv(tmp_path / "p.csv", index=False)
    out = tmp_path / "named.csv"
    assert run("predict", folder / "cut.npz", tmp_path / "p.csv", "-o", out).exit_code == 0
    assert pd.read_csv(out)["sample"].tolist() == list(range(len(new)))


# ---- missing values -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def gaps(lab):
    """Commands that impute, and what they fill: the frame of seen samples, and new ones."""
    folder, new = lab
    seen = pd.read_csv(folder / "seen.csv")
    rng = np.random.default_rng(3)
    features = list(new.columns)
    for frame in (seen, new := new.copy()):
        frame[features] = frame[features].mask(rng.random(frame[features].shape) < 0.1)
    seen.to_csv(folder / "seen-gaps.csv", index=False)
    new.to_csv(folder / "new-gaps.csv", index=False)
    new.to_parquet(folder / "new-gaps.parquet")
    return folder, seen, new


@pytest.mark.parametrize("options", [[], ["--scale"]])
@pytest.mark.parametrize("impute", ["median", "class-mean"])
def test_gaps_are_filled_with_the_values_of_the_fit_in_every_command(
    gaps, tmp_path, impute, options
):
    folder, seen, new = gaps
    panel, out = tmp_path / "panel.npz", tmp_path / "reduced.csv"
    arguments = ["--label", "kind", "-k", 3, "--impute", impute, *options]
    arguments += ["-o", out, "--save", panel]
    done = run("select", folder / "seen-gaps.csv", *arguments)
    assert done.exit_code == 0, done.output
    features = seen.drop(columns="kind")
    values = features.median()
    if impute == "class-mean":
        values = features.fillna(features.groupby(seen["kind"]).transform("mean")).mean()
    selector = load(panel)
    names = list(selector.get_feature_names_out())
    np.testing.assert_allclose(selector.fill_values_, values[names], rtol=1e-5)
    reduced = pd.read_csv(out)
    np.testing.assert_allclose(reduced[names], features.fillna(values)[names], rtol=1e-5)
    expected = new.fillna(values)
    n_gaps = int(new[names].isna().sum().sum())
    for ending in (".csv", ".parquet"):
        table = tmp_path / f"cut{ending}"
        done = run("transform", panel, folder / f"new-gaps{ending}", "-o", table)
        assert done.exit_code == 0, done.output
        assert f"{n_gaps} missing values of selected" in " ".join(done.output.split())
        found = pd.read_csv(table) if ending == ".csv" else pd.read_parquet(table)
        np.testing.assert_allclose(found[names], expected[names], rtol=1e-5)
    matrix = tmp_path / "cut.npy"
    assert run("transform", panel, folder / "new-gaps.csv", "-o", matrix).exit_code == 0
    np.testing.assert_allclose(np.load(matrix), expected[names], rtol=1e-5)
    done = run("predict", panel, folder / "new-gaps.csv", "-o", tmp_path / "named.csv")
    assert done.exit_code == 0, done.output
    assert f"{n_gaps} missing values of selected" in " ".join(done.output.split())
    found = pd.read_csv(tmp_path / "named.csv")
    labels, shares = selector.predict_top(expected)
    np.testing.assert_array_equal(found["class"], labels[:, 0])
    np.testing.assert_allclose(found["probability"], shares[:, 0], rtol=1e-5)


def test_annotate_fills_gaps_as_the_fit_did(gaps):
    anndata = pytest.importorskip("anndata")
    from semfs.scverse import annotate

    _folder, seen, new = gaps
    features = seen.drop(columns="kind")
    selector = SemFS(3, missing_values="class-mean").fit(features, seen["kind"])
    cells = anndata.AnnData(new)
    with pytest.warns(UserWarning, match="missing values of selected features"):
        annotate(cells, selector)
    expected = selector.predict(new)
    assert cells.obs["semfs_class"].tolist() == [str(label) for label in expected]
