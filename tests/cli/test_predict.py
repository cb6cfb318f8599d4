"""`semfs predict`: select, save, name the samples of another file, in a table or .h5ad."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

pytest.importorskip("typer")
pytest.importorskip("pyarrow")
import pandas as pd
from typer.testing import CliRunner

from semfs import load
from semfs.annotation import predict_file
from semfs.baselines import VarianceSelector
from semfs.cli import app
from semfs.datasets import load_sample


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Seen cells with labels, unseen cells without, descriptions of all, a saved selector."""
    folder = tmp_path_factory.mktemp("predict")
    lung = load_sample()
    X, y, Xu, yu = lung.split()
    names = list(lung.feature_names)
    pd.DataFrame(X, columns=names).assign(type=y).to_parquet(folder / "seen.parquet")
    pd.DataFrame(Xu, columns=names).to_parquet(folder / "new.parquet")
    lung.attributes.to_csv(folder / "types.csv")
    lung.attributes.loc[lung.unseen].to_csv(folder / "unseen.csv")
    arguments = ["--label", "type", "-a", folder / "types.csv", "-k", 40]
    arguments += ["-o", folder / "reduced.parquet", "--save", folder / "panel.npz"]
    done = run("select", folder / "seen.parquet", *arguments)
    assert done.exit_code == 0, done.output
    return folder, yu


def run(*arguments):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_two_commands_name_the_samples_of_a_file(files, tmp_path):
    folder, yu = files
    out = tmp_path / "named.csv"
    done = run("predict", folder / "panel.npz", folder / "new.parquet", "-o", out)
    assert done.exit_code == 0, done.output
    assert f"Assigned {len(yu)} samples" in done.output
    message = " ".join(done.output.split())
    assert "12 with samples in the fit and 7 that are only described (--table" in message
    assert "the same laboratory as the training samples, too many" in message
    table = pd.read_csv(out)
    selector = load(folder / "panel.npz")
    labels, shares = selector.predict_top(folder / "new.parquet")
    assert_array_equal(table["class"], labels[:, 0])
    n_unseen = (~table["class"].isin(selector.classes_)).sum()
    assert f"{n_unseen} of them were assigned to classes that are only described" in message
    assert_array_equal(table["second"], labels[:, 1])
    np.testing.assert_allclose(table["probability"], shares[:, 0], rtol=1e-6)


def test_options_choose_classes_samples_together_and_refusals(files, tmp_path):
    folder, yu = files
    out = tmp_path / "named.parquet"
    options = ["--table", folder / "unseen.csv", "--together", "-o", out]
    done = run("predict", folder / "panel.npz", folder / "new.parquet", *options)
    assert done.exit_code == 0, done.output
    assert "another laboratory" not in done.output
    found = pd.read_parquet(out)["class"]
    unseen = pd.read_csv(folder / "unseen.csv", index_col=0)
    assert set(found) <= set(unseen.index)
    expected = load(folder / "panel.npz").predict_together(folder / "new.parquet", unseen)
    assert_array_equal(found, expected)
    assert np.mean(found == yu) > 0.4
    done = run(
        "predict", folder / "panel.npz", folder / "new.parquet", "--unknown", 0.3, "-o", out
    )
    assert done.exit_code == 0, done.output
    n_unknown = (pd.read_parquet(out)["class"] == "unknown").sum()
    assert n_unknown > 0
    assert f"{n_unknown} samples are unknown" in done.output
    assert f"Assigned {len(yu) - n_unknown} samples" in done.output


@pytest.fixture(scope="module")
def mixed(files):
    """Seen cells with their labels among unseen cells without, as one file; the frames."""
    folder, _ = files
    seen = pd.read_parquet(folder / "seen.parquet").iloc[::4]
    new = pd.read_parquet(folder / "new.parquet").assign(type=None)
    cells = pd.concat([seen, new]).sample(frac=1, random_state=0).reset_index(drop=True)
    cells["donor"] = np.where(np.arange(len(cells)) % 3, "d1", "d2")
    cells.to_parquet(folder / "mixed.parquet")
    return cells


@pytest.mark.parametrize("together", [False, True])
def test_only_samples_without_a_label_are_named(files, mixed, tmp_path, together):
    folder, _ = files
    out = tmp_path / "named.csv"
    options = ["--label", "type", "-o", out, *(["--together"] if together else [])]
    done = run("predict", folder / "panel.npz", folder / "mixed.parquet", *options)
    assert done.exit_code == 0, done.output
    found = pd.read_csv(out)
    hidden = mixed["type"].isna().to_numpy()
    assert f"Assigned {hidden.sum()} samples" in done.output
    assert f"{(~hidden).sum()} samples kept their labels" in done.output
    assert_array_equal(found["class"][~hidden], mixed["type"][~hidden])
    assert found["probability"][~hidden].isna().all()
    assert found["second"][~hidden].isna().all()
    # as if they had been cut out by hand
    alone = mixed[hidden].drop(columns=["type", "donor"])
    selector = load(folder / "panel.npz")
    labels, shares = selector.predict_top(alone, together=together)
    assert_array_equal(found["class"][hidden], labels[:, 0])
    np.testing.assert_allclose(found["probability"][hidden], shares[:, 0], rtol=1e-6)


def test_names_of_no_label_are_named_too(files, mixed, tmp_path):
    folder, _ = files
    cells = mixed.assign(type=mixed["type"].fillna("doublet"))
    cells.to_parquet(tmp_path / "cells.parquet")
    out = tmp_path / "named.csv"
    arguments = ["predict", folder / "panel.npz", tmp_path / "cells.parquet", "-o", out]
    done = run(*arguments, "--label", "type")
    assert done.exit_code == 2
    message = " ".join(done.output.split())
    assert f"--label: each of the {len(cells)} samples has a label" in message
    done = run(*arguments, "--label", "type", "--unlabeled-names", "Doublet,other")
    assert done.exit_code == 0, done.output
    assert "doublet" not in set(pd.read_csv(out)["class"])


def test_offsets_of_batches_are_removed(files, mixed, tmp_path):
    folder, _ = files
    panel = tmp_path / "batches.npz"
    options = ["--label", "type", "-a", folder / "types.csv", "-k", 20, "--batch", "donor"]
    options += ["-o", tmp_path / "reduced.parquet", "--save", panel]
    done = run("select", folder / "mixed.parquet", *options)
    assert done.exit_code == 0, done.output
    arguments = ["predict", panel, folder / "mixed.parquet", "-o", tmp_path / "named.csv"]
    done = run(*arguments)
    assert done.exit_code == 0, done.output
    message = " ".join(done.output.split())
    assert "--batch: the selector was fitted with 2 batches (d1, d2)" in message
    done = run(*arguments, "--batch", "donor")
    assert done.exit_code == 0, done.output
    assert "was fitted" not in done.output
    found = pd.read_csv(tmp_path / "named.csv")
    expected = load(panel).predict_top(mixed.drop(columns=["type"]), batch="donor")
    assert_array_equal(found["class"], expected[0][:, 0])
    np.testing.assert_allclose(found["probability"], expected[1][:, 0], rtol=1e-6)
    # batches that were not fitted are said to change nothing
    mixed.assign(donor="d9").to_parquet(tmp_path / "other.parquet")
    arguments[2] = tmp_path / "other.parquet"
    done = run(*arguments, "--batch", "donor")
    assert "but these samples have only other batches (d9)" in " ".join(done.output.split())


def test_an_h5ad_file_is_annotated(files, tmp_path):
    anndata = pytest.importorskip("anndata")
    folder, _ = files
    frame = pd.read_parquet(folder / "new.parquet")
    frame.index = [f"cell {i}" for i in range(len(frame))]
    cells = anndata.AnnData(frame)
    cells.obs["donor"] = "d1"
    cells.write_h5ad(tmp_path / "new.h5ad")
    out = tmp_path / "annotated.h5ad"
    done = run("predict", folder / "panel.npz", tmp_path / "new.h5ad", "-o", out)
    assert done.exit_code == 0, done.output
    found = anndata.read_h5ad(out)
    expected = load(folder / "panel.npz").predict(folder / "new.parquet")
    assert_array_equal(found.obs["semfs_class"].astype(str), expected)
    assert found.obs["semfs_probability"].between(0, 1).all()
    assert_array_equal(found.obs["donor"], "d1")
    assert_array_equal(found.X, cells.X)


def test_labels_of_an_h5ad_file_stay(files, mixed, tmp_path):
    anndata = pytest.importorskip("anndata")
    folder, _ = files
    genes = mixed.drop(columns=["type", "donor"])
    genes.index = [f"cell {i}" for i in range(len(genes))]
    obs = pd.DataFrame({"type": pd.Categorical(mixed["type"])}, index=genes.index)
    anndata.AnnData(genes, obs=obs).write_h5ad(tmp_path / "cells.h5ad")
    out = tmp_path / "annotated.h5ad"
    arguments = ["--label", "type", "-o", out]
    done = run("predict", folder / "panel.npz", tmp_path / "cells.h5ad", *arguments)
    assert done.exit_code == 0, done.output
    found = anndata.read_h5ad(out).obs
    given = mixed["type"].notna().to_numpy()
    assert_array_equal(found["semfs_class"][given].astype(str), mixed["type"][given])
    assert_array_equal(found["semfs_probability"].isna(), given)
    assert_array_equal(found["semfs_second"].isna(), given)
    expected = load(folder / "panel.npz").predict(genes[~given])
    assert_array_equal(found["semfs_class"][~given].astype(str), expected)


def test_missing_features_are_refused_or_ignored(files, tmp_path):
    folder, _ = files
    selector = load(folder / "panel.npz")
    lost = selector.get_feature_names_out()[0]
    path = tmp_path / "without.parquet"
    pd.read_parquet(folder / "new.parquet").drop(columns=lost).to_parquet(path)
    out = tmp_path / "named.csv"
    done = run("predict", folder / "panel.npz", path, "-o", out)
    assert done.exit_code == 2
    message = " ".join(done.output.split())
    assert f"--missing-features: X lacks 1 of 40 selected features: {lost}." in message
    assert '"ignore"' in message
    assert not out.exists()
    done = run("predict", folder / "panel.npz", path, "--missing-features", "ignore", "-o", out)
    assert done.exit_code == 0, done.output
    assert "lacks 1 of 40" in done.output
    assert out.exists()


def test_bad_input_is_one_line(files, tmp_path):
    from semfs import save

    folder, _ = files
    data = folder / "new.parquet"
    done = run("predict", folder / "panel.npz", data, "-o", tmp_path / "named.txt")
    assert done.exit_code == 2
    assert "--out" in done.output
    done = run("predict", folder / "panel.npz", data, "-o", tmp_path / "named.h5ad")
    assert done.exit_code == 2
    assert "the data are not .h5ad" in done.output
    other = save(VarianceSelector(2).fit(np.eye(3), [0, 1, 2]), tmp_path / "variance.npz")
    done = run("predict", other, data, "-o", tmp_path / "named.csv")
    assert done.exit_code == 2
    assert "cannot predict classes" in done.output
    with pytest.raises(ValueError, match="must end in"):
        predict_file(load(folder / "panel.npz"), data, tmp_path / "named")


@pytest.fixture(scope="module")
def counted(files):
    """A selector that normalized its counts; new cells as counts and, by id, as logarithms."""
    folder, _ = files
    pytest.importorskip("h5py")
    anndata = pytest.importorskip("anndata")
    lung = load_sample()
    counts = np.rint(np.expm1(lung.X))
    logs = np.log1p(1e4 * counts / counts.sum(axis=1, keepdims=True))
    genes = pd.DataFrame(index=list(lung.feature_names))
    ids = pd.DataFrame({"symbol": genes.index}, index=[f"ENSG{i}" for i in range(len(genes))])
    obs = pd.DataFrame({"type": lung.y}, index=[f"c{i}" for i in range(len(lung.y))])
    anndata.AnnData(counts, obs, genes).write_h5ad(folder / "counts.h5ad")
    anndata.AnnData(logs, obs, genes).write_h5ad(folder / "logs.h5ad")
    anndata.AnnData(logs, obs, ids).write_h5ad(folder / "ids.h5ad")
    arguments = ["--label", "type", "--normalize", "log1p", "-k", 10]
    arguments += ["-o", folder / "few.csv", "--save", folder / "few.npz"]
    done = run("select", folder / "counts.h5ad", *arguments)
    assert done.exit_code == 0, done.output
    return folder


def test_logarithms_need_another_normalization(counted, tmp_path):
    arguments = ["predict", counted / "few.npz", counted / "logs.h5ad", "-o"]
    done = run(*arguments, tmp_path / "logs.csv")
    assert done.exit_code == 2
    assert "use --normalize none to leave them as they are" in " ".join(done.output.split())
    assert not (tmp_path / "logs.csv").exists()
    done = run(*arguments, tmp_path / "logs.csv", "--normalize", "none")
    assert done.exit_code == 0, done.output
    found = pd.read_csv(tmp_path / "logs.csv")
    expected = load(counted / "few.npz").predict(counted / "counts.h5ad")
    assert_array_equal(found["class"], expected)


@pytest.mark.parametrize("command", ["predict", "transform"])
def test_genes_are_found_by_a_column_of_var(counted, tmp_path, command):
    out = tmp_path / "out.csv"
    arguments = [command, counted / "few.npz", counted / "ids.h5ad", "-o", out]
    arguments += ["--normalize", "none"] if command == "predict" else []
    done = run(*arguments)
    message = " ".join(done.output.split())
    assert done.exit_code == 2
    assert "X has none of the 10 selected features" in message
    assert "Use --gene-symbols symbol" in message
    done = run(*arguments, "--gene-symbols", "symbol")
    assert done.exit_code == 0, done.output
