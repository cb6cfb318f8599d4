"""`semfs select` with what people have: gene lists, odd labels, raw counts, other formats."""

import json

import numpy as np
import pytest
import scipy.io
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

from semfs import SemFS

pd = pytest.importorskip("pandas")
anndata = pytest.importorskip("anndata")
pytest.importorskip("typer")

TYPES = ["B cell", "CD4-positive, alpha-beta T cell", "macrophage"]
GENES = [f"G{j}" for j in range(8)] + ["MT-1", "MT-2", "IG, heavy", "CST3"]


def expression():
    """Log-normalized values (60, 12) of three types, each with two marker genes."""
    rng = np.random.default_rng(0)
    types = np.arange(60) % 3
    d = len(GENES)
    means = 0.4 + 4 * np.eye(3, d)[types] + 2 * np.eye(3, d, 8)[types]
    return np.log1p(rng.poisson(means) * rng.uniform(0.9, 1.1, (60, 1))).astype(np.float32)


@pytest.fixture
def cells():
    obs = pd.DataFrame({"type": pd.Categorical(np.array(TYPES)[np.arange(60) % 3])})
    obs.index = [f"cell{i}" for i in range(60)]
    return anndata.AnnData(expression(), obs, pd.DataFrame(index=GENES))


@pytest.fixture
def select(tmp_path, invoke, monkeypatch):
    """Write cells, select in the file, and return what was printed and written."""
    monkeypatch.chdir(tmp_path)

    def run(cells, *options, out="out.csv", code=0):
        path = tmp_path / "cells.h5ad"
        path.unlink(missing_ok=True)  # HDF5 refuses to write into what may still be open
        cells.write_h5ad(path)
        done = invoke(
            "select", "cells.h5ad", "-l", "type", "-k", 3, "-o", out, *options, code=code
        )
        features = tmp_path / "out.features.csv"
        done.features = pd.read_csv(features) if features.exists() else None
        return done

    return run


def chosen(done):
    return set(done.features["feature"][done.features["selected"]])


# ---- lists of genes -------------------------------------------------------------------


@pytest.mark.parametrize(
    "value, expected",
    [
        ("G5,G6", {"G5", "G6"}),
        ("IG, heavy,G5", {"IG, heavy", "G5"}),
        ("re:^MT-", {"MT-1", "MT-2"}),
        ("panel.txt", {"G5", "IG, heavy"}),
        ("header.txt", {"G5", "IG, heavy"}),
    ],
)
def test_genes_come_from_lists_patterns_and_files(value, expected, cells, select, tmp_path):
    (tmp_path / "panel.txt").write_text("G5\nIG, heavy\n\n")
    (tmp_path / "header.txt").write_text("gene\nG5\nIG, heavy\n")
    assert expected <= chosen(select(cells, "--include", value))
    assert not expected & chosen(select(cells, "--exclude", value))
    candidates = select(cells, "--candidates", value, "-k", len(expected))
    assert chosen(candidates) == expected
    left_out = candidates.features[~candidates.features["feature"].isin(expected)]
    assert left_out["score"].isna().all()  # not -inf
    assert set(left_out["reason"]) == {"not a candidate"}


@pytest.mark.parametrize(
    "value, message",
    [
        ("G5,G99", "--include: no feature named 'G99'. Check the spelling."),
        ("g5", "--include: no feature named 'g5'; did you mean 'G5'?"),
        ("re:^XX", "--include: the pattern 're:^XX' matches none of the 12 feature names."),
        ("re:(", "--include: 're:(' is not a valid regular expression"),
        ("empty.txt", "--include: empty.txt is empty. Give one feature name per line."),
        ("binary.txt", "--include: binary.txt is not a text file in UTF-8."),
    ],
)
def test_lists_that_cannot_be_meant_are_refused(value, message, cells, select, tmp_path):
    (tmp_path / "empty.txt").touch()
    (tmp_path / "binary.txt").write_bytes(b"\xff\xfe\x00")
    done = select(cells, "--include", value, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("option", ["--include", "--exclude", "--candidates"])
def test_a_gene_of_another_kind_of_name_points_to_the_column_of_var(option, cells, select):
    symbols = list(cells.var_names)
    cells.var["symbol"] = symbols
    cells.var_names = [f"ENSG{i:011d}" for i in range(len(symbols))]
    cells.raw = cells
    done = select(cells, option, "CST3", "--layer", "raw", code=2)
    assert f"{option}: no feature named 'CST3'. The data use Ensembl ids" in done.stderr
    assert "The column 'symbol' of var contains it. Use --gene-symbols symbol." in done.stderr
    select(cells, option, "G1,G2,CST3", "--layer", "raw", "--gene-symbols", "symbol")
    done = select(cells, option, "re:^MT-", code=2)
    assert "Use --gene-symbols symbol." in done.stderr


def test_an_ensembl_id_among_symbols_is_refused_as_such(cells, select):
    done = select(cells, "--include", "ENSG00000101439", code=2)
    assert "It is an Ensembl id, but the data use other names (G0, G1, G2" in done.stderr
    assert "No column of var contains it." in done.stderr
    cells.var["gene_ids"] = [f"ENSG{i:011d}" for i in range(101439 - 11, 101440)]
    done = select(cells, "--include", "ENSG00000101439", code=2)
    assert "Use --gene-symbols gene_ids." in done.stderr
    with pytest.raises(ValueError, match="set gene_symbols to the column of var"):
        SemFS(3, include=["ENSG00000101439"]).fit(cells, "type")


@pytest.mark.parametrize(
    "options, message",
    [
        (["--label", "tipe"], "has no obs column 'tipe'"),
        (["--batch", "doner"], "has no obs column 'doner'"),
        (["--exclude", "re:^XX"], "--exclude: the pattern 're:^XX' matches none"),
        (["--groups", "gruppe"], "gruppe"),
    ],
)
def test_misspelt_names_are_found_before_cells_and_descriptions_are_read(
    options, message, cells, select, monkeypatch
):
    def read_cells(*_):
        raise AssertionError("cells were read")

    def read_descriptions(*_):
        raise AssertionError("descriptions were read")

    monkeypatch.setattr("semfs.io.sparse.SparseReader.part", read_cells)
    monkeypatch.setattr("semfs.cli.selection.descriptions_of", read_descriptions)
    cells.X = sp.csr_matrix(cells.X)
    done = select(cells, *options, code=2)
    assert message in done.stderr


def test_columns_to_drop_come_in_the_same_forms(farm, invoke):
    (farm / "drop.txt").write_text("color\nnoise\n")
    files = (farm / "rows.csv", "-l", "kind", "-k", 1, "-o", farm / "out.csv")
    for value in ("color,noise", "re:o[ri]", farm / "drop.txt"):
        found = json.loads(invoke("select", *files, "--drop", value, "--json").stdout)
        assert found["n_features"] == 3
    done = invoke("evaluate", farm / "rows.csv", "-l", "kind", "--drop", "color,nose", code=2)
    assert "--drop: no feature named 'nose'; did you mean 'noise'?" in done.stderr


def test_patterns_work_in_python_as_well(cells):
    selector = SemFS(3, include=["re:^MT-"]).fit(cells, "type")
    assert {"MT-1", "MT-2"} <= set(selector.get_feature_names_out())


# ---- labels ---------------------------------------------------------------------------


def test_labels_alone_are_the_default(cells, select):
    done = select(cells)
    assert done.features["column"].tolist() == SemFS(3).fit(cells, "type").order_.tolist()


def test_classes_may_have_commas_in_their_names(cells, select):
    done = select(cells, "--unseen", f"{TYPES[1]},macrophage", code=2)
    assert "only one class" in done.stderr  # both were recognized
    done = select(cells, "--unseen", "tv", code=2)
    assert "--unseen: class 'tv' does not occur in the data. Classes: B cell, " in done.stderr
    done = select(cells, "--unseen", "macrophages", code=2)
    assert "did you mean 'macrophage'?" in done.stderr


def test_labels_that_mean_none_are_named(cells, select):
    cells.obs["type"] = cells.obs["type"].cat.rename_categories({"macrophage": "Unknown"})
    done = select(cells, "--unlabeled-names", "Unknown,doublet")
    assert "on 40 samples of 2 classes." in done.stdout
    assert (
        "20 of 60 samples have no label. They are left out. With --unlabeled use" in done.stderr
    )
    done = select(cells, "--unlabeled-names", "unknown", "--unlabeled", "use")
    assert "unlabeled" in done.stdout
    done = select(cells)
    assert "semfs: warning: cells.h5ad: type has text that means 'no label'" in done.stderr
    assert "--unlabeled-names on the command line" in done.stderr
    assert "'Unknown' (20 samples)" in done.stderr
    # What is named replaces the usual text.
    done = select(cells, "--unlabeled-names", "doublet")
    assert "on 60 samples of 3 classes." in done.stdout
    assert "no label" not in done.stderr


def test_labels_that_mean_none_need_no_description(cells, select, tmp_path):
    cells.obs["type"] = cells.obs["type"].cat.rename_categories({"macrophage": "doublet"})
    ontology = tmp_path / "cells.obo"
    terms = [("C:0", "cell", ""), ("C:1", TYPES[0], "C:0"), ("C:2", "T cell", "C:0")]
    terms.append(("C:3", TYPES[1], "C:2"))
    lines = ["format-version: 1.2"]
    for id_, name, parent in terms:
        lines += ["", "[Term]", f"id: {id_}", f"name: {name}"]
        if parent:
            lines.append(f"is_a: {parent}")
    ontology.write_text("\n".join(lines) + "\n")
    options = ("-a", str(ontology), "--unlabeled-names", "doublet")
    done = select(cells, *options)
    assert "on 40 samples of 2 classes." in done.stdout


def test_a_wildcard_is_answered_with_the_prefix_of_patterns(cells, select):
    done = select(cells, "--exclude", "MT-*", code=2)
    assert (
        "no feature named 'MT-*'. Write a pattern as a regular expression after 're:'"
        in done.stderr
    )


def test_the_warning_of_raw_counts_names_the_option(cells, select):
    cells.X = np.rint(np.expm1(cells.X) * 20)
    done = select(cells)
    assert "semfs: warning: --normalize: the cells hold raw counts" in done.stderr
    assert "raw counts" not in select(cells, "--normalize", "log1p").stderr


def test_classes_that_are_described_alike_are_named(cells, select, tmp_path):
    table = pd.DataFrame({"lymphocyte": [1, 1, 0], "large": [0, 0, 1]}, index=TYPES)
    table.to_csv(tmp_path / "types.csv")
    done = select(cells, "-a", "types.csv", "--label-weight", 0)
    alike = f"--attributes: some classes have the same description ({TYPES[0]} = {TYPES[1]})"
    assert alike in done.stderr
    assert done.stderr.count("same description") == 1
    done = select(cells, "-a", "types.csv")
    assert "same description" not in done.stderr
    assert f"alike: {TYPES[0]} = {TYPES[1]}: separated only by their labels" in done.stdout
    done = select(cells, "-a", "types.csv", "--label-weight", 0, "--unseen", TYPES[1])
    assert "alike" not in done.stderr
    done = select(cells, "-a", "types.csv", "--label-weight", 1)
    expected = SemFS(3, table, label_weight=1.0).fit(cells, "type")
    assert done.features["column"].tolist() == expected.order_.tolist()


def test_rare_types_are_named_and_left_out_if_asked_for(cells, select):
    rare = cells[[*range(0, 60, 3), *range(1, 60, 3), 2, 5]].copy()
    done = select(rare)
    assert "1 class with fewer than 5 samples: macrophage (2)." in done.stderr
    assert "of 3 classes" in done.stdout
    done = select(rare, "--min-cells", 3)
    assert "macrophage (2). Their samples and descriptions are not used" in done.stderr
    assert "name the class with --unseen CLASS." in done.stderr
    assert "of 2 classes" in done.stdout
    # a class that is named as unseen is not called rare as well
    done = select(rare, "--min-cells", 3, "--unseen", "macrophage")
    assert "macrophage" not in done.stderr
    assert "of 2 classes" in done.stdout
    assert "--min-cells must be at least 1" in select(rare, "--min-cells", 0, code=2).stderr


def test_unlabeled_cells_come_from_a_second_file(cells, select, tmp_path):
    labeled = cells[np.arange(60) % 3 < 2].copy()
    second = cells[np.arange(60) % 3 == 2, ::-1].copy()  # other order of genes
    second.write_h5ad(tmp_path / "more.h5ad")
    done = select(labeled, "--unlabeled-file", "more.h5ad")
    expected = SemFS(3).fit(labeled, "type", X_unlabeled=cells[np.arange(60) % 3 == 2].X)
    assert done.features["column"].tolist() == expected.order_.tolist()
    assert "unlabeled" in done.stdout
    second[:, 3:].copy().write_h5ad(tmp_path / "more.h5ad")
    done = select(labeled, "--unlabeled-file", "more.h5ad")
    missing = "--unlabeled-file lacks 3 of 12 features: MT-2, IG, heavy, CST3."
    assert missing in done.stderr


def donor_cells(cells):
    """Cells whose third type is unlabeled; there, G0 and two others are a donor's."""
    cells = cells.copy()
    types = np.arange(60) % 3
    donor = np.arange(60) // 3 % 2
    unlabeled = types == 2
    cells.X[np.ix_(unlabeled & (donor == 1), range(3))] += 5.0
    cells.obs["donor_id"] = np.array(["TSP1", "TSP2"])[donor]
    cells.obs.loc[unlabeled, "type"] = None
    return cells


def test_clusters_that_follow_donors_are_noticed(cells, select, tmp_path):
    cells = donor_cells(cells)
    found = "--batch: the clusters of unlabeled samples follow 'donor_id'"
    assert found in select(cells, "--unlabeled", "use").stderr
    assert found not in select(cells, "--unlabeled", "use", "--batch", "donor_id").stderr
    assert found not in select(cells).stderr  # no clusters
    unlabeled = cells.obs["type"].isna().to_numpy()
    cells[unlabeled].copy().write_h5ad(tmp_path / "more.h5ad")
    labeled = cells[~unlabeled].copy()
    assert found in select(labeled, "--unlabeled-file", "more.h5ad").stderr


def test_unlabeled_samples_are_scaled_and_normalized_as_the_others_are(cells, select, tmp_path):
    counts = cells.copy()
    counts.X = np.rint(np.expm1(cells.X) * 20)
    labeled = counts[np.arange(60) % 3 < 2].copy()
    second = counts[np.arange(60) % 3 == 2].copy()
    second.write_h5ad(tmp_path / "more.h5ad")
    done = select(labeled, "--unlabeled-file", "more.h5ad", "--normalize", "log1p", "--scale")

    def prepared(X, deviation=None):
        X = np.log1p(1e4 * X / X.sum(axis=1, keepdims=True))
        return X / (X.std(axis=0) if deviation is None else deviation)

    logs = np.log1p(1e4 * labeled.X / labeled.X.sum(axis=1, keepdims=True))
    deviation = logs.std(axis=0)
    selector = SemFS(3).fit(
        logs / deviation, labeled.obs["type"], X_unlabeled=prepared(second.X, deviation)
    )
    assert done.features["column"].tolist()[:3] == selector.order_[:3].tolist()


# ---- matrices -------------------------------------------------------------------------


def raw_with_ids(cells):
    """Cells whose raw has ids as names, and symbols in a column."""
    whole = cells.copy()
    whole.var["symbol"] = GENES
    whole.var_names = [f"ENSG{j:03}" for j in range(len(GENES))]
    out = cells[:, :10].copy()
    out.raw = whole
    return out


def test_results_for_raw_are_never_written_as_columns_of_nan(cells, select, tmp_path):
    done = select(raw_with_ids(cells), "--layer", "raw", out="out.h5ad")
    assert "--gene-symbols: no gene in raw.var has the name of a gene in var" in done.stderr
    out = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert "semfs_rank" not in out.var
    assert out.raw.var["semfs_selected"].sum() == 3
    done = select(
        raw_with_ids(cells), "--layer", "raw", "--gene-symbols", "symbol", out="out.h5ad"
    )
    out = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert done.stderr == ""
    assert out.var["semfs_rank"].notna().all()
    assert set(done.features["feature"]) == set(GENES)
    expected = SemFS(3).fit(cells, "type").ranking_
    assert_array_equal(out.raw.var["semfs_rank"], expected)
    assert_array_equal(out.var["semfs_rank"], expected[:10])


def test_ids_are_matched_where_symbols_are_not(cells, select, tmp_path):
    cells = cells.copy()
    cells.var["symbol"] = [f"symbol {j}" for j in range(len(GENES))]
    cells.raw = cells
    select(cells, "--layer", "raw", "--gene-symbols", "symbol", out="out.h5ad")
    out = anndata.read_h5ad(tmp_path / "out.h5ad")
    assert_array_equal(out.var["semfs_rank"], out.raw.var["semfs_rank"])


def test_gene_symbols_need_a_table_of_genes(farm, invoke):
    files = (farm / "rows.csv", "-l", "kind", "-o", farm / "out.csv")
    done = invoke("select", *files, "--gene-symbols", "symbol", code=2)
    assert "--gene-symbols is 'symbol', but only .h5ad and .zarr files" in done.stderr


def test_standardized_cells_are_noticed(cells, select):
    logs = cells.X.copy()
    cells.raw = cells.copy()
    cells.X = (logs - logs.mean(axis=0)) / logs.std(axis=0)
    done = select(cells)
    assert "--layer: the cells look standardized" in done.stderr
    assert "Other matrices: raw" in done.stderr
    assert "standardized" not in select(cells, "--layer", "raw").stderr


# ---- rules of a panel -----------------------------------------------------------------


def test_rules_by_columns_of_var_and_by_files(cells, select, tmp_path):
    cells.var["probe"] = [f"p{j // 2}" for j in range(12)]
    cells.var["price"] = np.linspace(1.0, 2.0, 12)
    rows = [f"{name};{j // 2}" for j, name in enumerate(cells.var_names)]
    (tmp_path / "pairs.csv").write_text("gene;sensor\n" + "\n".join(rows))
    by_column = chosen(select(cells, "--groups", "probe", "-k", 2))
    assert len(by_column) == 4
    assert chosen(select(cells, "--groups", "pairs.csv", "-k", 2)) == by_column
    without = chosen(select(cells, "--groups", "pairs.csv", "-k", 2, "--exclude", "3,4"))
    left_out = set(cells.var_names[cells.var["probe"].isin(["p3", "p4"])])
    assert len(without) == 4
    assert left_out.isdisjoint(without)
    bought = select(cells, "--costs", "price", "--budget", 5.0)
    prices = cells.var["price"][list(chosen(bought))]
    assert prices.sum() <= 5.0
    assert "of 5 spent on" in bought.stdout


def test_rules_that_are_wrong_name_their_option(cells, select):
    assert "--min-per-class is 99" in select(cells, "--min-per-class", 99, code=2).stderr
    assert "--capacity of 'every class'" in select(cells, "--capacity", "much", code=2).stderr
    done = select(cells, "--max-level", -1e9, code=2)
    assert "--max-level leaves no feature to select from" in done.stderr


# ---- what is written ------------------------------------------------------------------


def test_the_result_says_how_to_repeat_it(cells, select, tmp_path, monkeypatch):
    # The runner of commands does not set the words that were typed.
    monkeypatch.setattr("sys.argv", ["semfs", "select", "cells.h5ad"])
    cells.layers["counts"] = np.rint(np.expm1(cells.X) * 20)
    options = ("--layer", "counts", "--normalize", "log1p", "--include", "re:^MT-")
    select(cells, *options, "--candidates", "re:^G", "--scale", out="out.h5ad")
    uns = anndata.read_h5ad(tmp_path / "out.h5ad").uns["semfs"]
    params = uns["params"]
    assert params["layer"] == "counts"
    assert params["normalize"] == "log1p"
    assert params["include"].tolist() == ["re:^MT-"]
    assert params["include_indices"].tolist() == ["8", "9"]
    assert params["candidates"].tolist() == ["re:^G"]
    assert params["scale"]
    assert params["data"] == "cells.h5ad"
    assert params["label"] == "type"
    assert params["attributes_from"] == "labels"
    assert params["command"] == "semfs select cells.h5ad"
    assert uns["knowledge"]
    assert {"semfs", "numpy", "scikit-learn", "python"} <= set(uns["versions"])


def test_the_feature_table_gives_reasons(cells, select):
    cells.X[:, 4] = 1.0
    features = select(cells, "--exclude", "G5").features.set_index("feature")
    assert features.loc["G4", "reason"] == "constant"
    assert features.loc["G5", "reason"] == "excluded"
    assert np.isnan(features.loc["G4", "score"])
    assert features["reason"].iloc[:3].str.startswith("varies with + ").all()
    assert features["reason"].iloc[:3].str.contains("high in ").all()


def test_excel_files_are_written(cells, select, tmp_path):
    pytest.importorskip("openpyxl")
    done = select(cells, out="out.xlsx")
    reduced = pd.read_excel(tmp_path / "out.xlsx")
    assert_array_equal(reduced["type"], cells.obs["type"])
    assert reduced["sample"].tolist() == cells.obs_names.tolist()
    names = [name for name in reduced.columns if name not in ("type", "sample")]
    assert set(names) == chosen(done)
    assert_allclose(reduced[names], cells[:, names].X, rtol=1e-6)


def test_other_formats_are_refused_with_a_list(cells, select):
    done = select(cells, out="out.docx", code=2)
    assert "out.docx must end in .csv, .tsv, .parquet" in done.stderr


def write_mtx(cells, folder):
    scipy.io.mmwrite(folder / "matrix.mtx", sp.coo_array(cells.X.T))
    (folder / "genes.tsv").write_text("".join(f"{name}\n" for name in cells.var_names))
    lines = "".join(f"{label}\n" for label in cells.obs["type"])
    (folder / "labels.txt").write_text(lines)
    return "matrix.mtx", "labels.txt"


def write_zarr(cells, folder):
    pytest.importorskip("zarr")
    cells.write_zarr(folder / "cells.zarr")
    return "cells.zarr", "type"


def write_10x(cells, folder):
    """As Cell Ranger writes it: genes × cells by columns, in the group "matrix"."""
    h5py = pytest.importorskip("h5py")
    stored = sp.csc_array(cells.X.T)
    with h5py.File(folder / "cells.h5", "w") as file:
        group = file.create_group("matrix")
        for name in ("data", "indices", "indptr"):
            group[name] = getattr(stored, name)
        group["shape"] = stored.shape
        group["features/name"] = [name.encode() for name in cells.var_names]
        group["barcodes"] = [name.encode() for name in cells.obs_names]
    lines = "".join(f"{label}\n" for label in cells.obs["type"])
    (folder / "labels.txt").write_text(lines)
    return "cells.h5", "labels.txt"


@pytest.mark.parametrize("write", [write_zarr, write_mtx, write_10x])
@pytest.mark.parametrize("subset", [False, True])
def test_other_cells_are_written_as_h5ad(write, subset, cells, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name, label = write(cells, tmp_path)
    options = ["--subset"] if subset else []
    invoke("select", name, "-l", label, "-k", 3, "-o", "out.h5ad", *options)
    out = anndata.read_h5ad(tmp_path / "out.h5ad")
    expected = SemFS(3).fit(cells.X, cells.obs["type"])
    assert out.shape == (60, 3 if subset else 12)
    assert_array_equal(out.var["semfs_selected"].sum(), 3)
    ranks = expected.ranking_[expected.support_] if subset else expected.ranking_
    assert_array_equal(out.var["semfs_rank"], ranks)
    values = out.X.toarray() if sp.issparse(out.X) else out.X
    columns = expected.support_ if subset else slice(None)
    assert_allclose(values, cells.X[:, columns], rtol=1e-5)
    assert "semfs" in out.uns


@pytest.mark.parametrize("left_out", ["rare", "no label"])
def test_labels_that_are_not_used_are_still_written(left_out, cells, invoke, tmp_path):
    """The reduced data keep the labels of the label file, whatever the selection uses."""
    labels = cells.obs["type"].astype(str).to_list()
    labels[:3] = ["rare type"] * 3
    cells.obs["type"] = labels
    name, label = write_10x(cells, tmp_path)
    options = {"rare": ["--min-cells", 4], "no label": ["--unlabeled-names", "rare type"]}
    out = tmp_path / "out.h5ad"
    paths = [tmp_path / name, "-l", tmp_path / label, "-o", out]
    done = invoke("select", *paths, "-k", 3, *options[left_out])
    assert "57 samples" in done.stdout
    assert anndata.read_h5ad(out).obs["label"].astype(str).to_list() == labels


def test_files_that_are_replaced_are_named(cells, select):
    assert "replaced" not in select(cells).stdout
    assert select(cells).stdout.count("(replaced)") == 2


def test_the_demo_says_what_it_replaces(invoke, tmp_path, monkeypatch):
    def stop(*_, **__):
        raise ValueError("stop here")

    monkeypatch.setattr("semfs.lab.demo.run_demo", stop)
    (tmp_path / "report.html").write_text("of another command")
    done = invoke("demo", "--out", tmp_path, code=2)
    assert f"{tmp_path / 'report.html'} exists and will be replaced." in done.stderr
    assert "demo.png" not in done.stderr


def test_sizes_of_an_evaluation_may_be_shares(invoke):
    options = ("-m", "variance", "--repeats", 1, "--splits", 1, "-j", 1, "--json")
    rows = json.loads(invoke("evaluate", "lining", "-k", "0.01,20", *options).stdout)
    assert {row["k"] for row in rows} == {8, 20}
    assert "-k is '1.5'" in invoke("evaluate", "lining", "-k", "1.5", code=2).stderr


def test_a_mapping_to_an_ontology_is_begun(cells, invoke, tmp_path, monkeypatch):
    pytest.importorskip("pronto")
    ontology = pytest.importorskip("semfs.attributes.ontology")
    if not hasattr(ontology, "mapping_template"):
        pytest.skip("comes with another branch")
    monkeypatch.chdir(tmp_path)
    cells.write_h5ad("cells.h5ad")
    terms = [f"\n[Term]\nid: X:{i}\nname: {name}\n" for i, name in enumerate(TYPES)]
    (tmp_path / "cells.obo").write_text("format-version: 1.2\n" + "".join(terms))
    options = ("-l", "type", "--ontology", "cells.obo", "--template", "map.csv")
    invoke("attributes", "cells.h5ad", *options)
    # It is no table yet, and the error says how it becomes one.
    select = ("select", "cells.h5ad", "-l", "type", "-k", 3, "-o", "out.h5ad")
    done = invoke(*select, "-a", "map.csv", code=2)
    assert "semfs attributes map.csv --ontology cl -o TABLE.csv" in done.stderr
    table = pd.read_csv(tmp_path / "map.csv", dtype=str)
    assert set(table["label"]) == set(TYPES)


def test_labels_of_counts_are_read_without_a_warning_of_counts(cells, invoke, tmp_path):
    pytest.importorskip("pronto")
    cells.X = np.rint(np.expm1(cells.X) * 20)
    cells.write_h5ad(tmp_path / "cells.h5ad")
    ontology = tmp_path / "cells.obo"
    ontology.write_text("format-version: 1.2\n\n[Term]\nid: X:1\nname: cell\n")
    template = ("--ontology", ontology, "--template", tmp_path / "map.csv")
    done = invoke("attributes", tmp_path / "cells.h5ad", "-l", "type", *template)
    assert done.stderr == ""
    assert set(pd.read_csv(tmp_path / "map.csv", dtype=str)["label"]) == set(TYPES)


# ---- missing values, other features -----------------------------------------------------


@pytest.fixture
def gaps(tmp_path):
    """A table with gaps in two columns; the first feature separates the classes."""
    rng = np.random.default_rng(0)
    y = np.repeat(["ant", "bee", "cow"], 20)
    X = rng.normal(size=(60, 4))
    X[:, 0] += 5.0 * np.unique(y, return_inverse=True)[1]
    frame = pd.DataFrame(X, columns=["height", "b", "c", "d"])
    frame.loc[::7, "height"] = np.nan
    frame.loc[[3, 5], "d"] = np.nan
    frame.insert(0, "kind", y)
    path = tmp_path / "gaps.csv"
    frame.to_csv(path, index=False)
    return path


def test_all_columns_with_gaps_are_told_at_once(gaps, invoke):
    arguments = ("--label", "kind", "-k", 1, "-o", gaps.with_name("out.csv"))
    done = invoke("select", gaps, *arguments, code=2)
    assert "There are 11 in 2 columns: 'height' (9), 'd' (2)" in " ".join(done.stderr.split())
    assert "--impute" in done.stderr


@pytest.mark.parametrize("impute", ["median", "class-mean"])
@pytest.mark.parametrize("further", [(), ("--scale",)])
def test_gaps_are_filled_for_the_fit_and_in_the_file(gaps, invoke, impute, further):
    out = gaps.with_name("out.csv")
    arguments = ("--label", "kind", "-k", "1", "-o", out, "--impute", impute)
    invoke("select", gaps, *arguments, *further)
    reduced = pd.read_csv(out)
    assert list(reduced.columns) == ["kind", "height"]
    before = pd.read_csv(gaps)["height"]
    was_gap = before.isna()
    assert was_gap.sum() == 9
    # one value for all of them, whatever their class: that of the fit
    assert reduced["height"][was_gap].nunique(dropna=False) == 1
    assert reduced["height"].notna().all()
    assert_array_equal(reduced["height"][~was_gap], before[~was_gap])


def test_an_unlabeled_file_may_have_other_features(gaps, invoke, tmp_path):
    table = pd.read_csv(gaps).dropna(axis=1)
    labeled = tmp_path / "labeled.csv"
    table.to_csv(labeled, index=False)
    others = tmp_path / "others.csv"
    table[["c", "b"]].assign(further=1.0).to_csv(others, index=False)
    arguments = ("--label", "kind", "-k", "1", "-o", tmp_path / "out.csv")
    done = invoke("select", labeled, *arguments, "--unlabeled-file", others)
    assert "unlabeled samples" in done.stdout
    table[["c"]].to_csv(others, index=False)
    done = invoke("select", labeled, *arguments, "--unlabeled-file", others)
    assert "--unlabeled-file lacks 1 of 2 features: b" in " ".join(done.stderr.split())


# ---- batches --------------------------------------------------------------------------


def test_gene_of_a_donor_is_not_selected_with_batch(cells, select, tmp_path):
    donor = np.arange(60) % 2
    often = np.arange(60) % 3 == 2
    donor[often & (np.arange(60) % 4 > 0)] = 1  # most macrophages are of one donor
    cells.obs["donor"] = np.array(["d1", "d2"])[donor]
    cells.X[:, 7] += 9.0 * donor.astype(np.float32)
    assert "G7" in chosen(select(cells))
    assert "G7" not in chosen(select(cells, "--batch", "donor"))
    cells[:30].write_h5ad(tmp_path / "more.h5ad")
    done = select(cells, "--batch", "donor", "--unlabeled-file", "more.h5ad")
    assert "G7" not in chosen(done)
    select(cells, "--batch", "doner", code=2)


def test_select_genes_takes_a_batch_key(cells):
    from semfs.scverse import select_genes

    donor = np.where(np.arange(60) % 2, "d1", "d2")
    cells.obs["donor"] = donor
    select_genes(cells, "type", n_genes=3, batch_key="donor")
    wanted = SemFS(3).fit(cells.X, cells.obs["type"], batch=donor)
    assert_array_equal(cells.var["semfs_selected"], wanted.support_)
    assert cells.uns["semfs"]["params"]["batch_key"] == "donor"


def test_labels_that_name_samples_are_refused(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(30, 3)), columns=list("abc"))
    frame["serial"] = [f"S{i}" for i in range(30)]
    frame["kind"] = ["on", "off", "idle"] * 10
    frame.to_csv("machine.csv", index=False)
    done = invoke("select", "machine.csv", "-l", "serial", "-k", 2, code=2)
    assert "--label serial: all 30 labels differ" in done.stderr
    assert not (tmp_path / "selected").exists()
    invoke("select", "machine.csv", "-l", "kind", "-k", 2)


def test_a_price_list_of_the_candidates_only(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 5)), columns=list("abcde"))
    frame["kind"] = ["on", "off", "idle"] * 20
    frame.to_csv("machine.csv", index=False)
    (tmp_path / "prices.csv").write_text("name,price\na,4\nb,3\nz,2\nd,\n")
    rules = ("-l", "kind", "--costs", "prices.csv", "--budget", 5, "--bootstraps", 0)
    done = invoke("panel", "machine.csv", *rules, "--candidates", "a,b")
    assert "5 spent on 1 feature;" in done.stdout
    assert done.stderr.count("--costs: 1 of 3 names in the price list") == 1
    refused = invoke("panel", "machine.csv", *rules, code=2).stderr
    assert (
        "--costs has no price for 3 of the 5 features that may be selected: c, d, e." in refused
    )


def test_prices_of_groups_with_and_without_header(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    frame["kind"] = ["on", "off", "idle"] * 20
    frame.to_csv("machine.csv", index=False)
    (tmp_path / "groups.csv").write_text("a,left\nb,left\nc,right\nd,right\n")
    arguments = ("select", "machine.csv", "-l", "kind", "--budget", 5, "--costs", "costs.csv")
    for header in ("", "device,price\n"):
        (tmp_path / "costs.csv").write_text(header + "left,4\nright,9\n")
        done = invoke(*arguments, "--groups", "groups.csv", "-o", "small.csv")
        assert "4 of 5 spent on 1 group;" in done.stdout
        assert pd.read_csv("small.csv").columns.tolist() == ["a", "b", "kind"]
        table = pd.read_csv("small.features.csv", index_col="feature")
        assert table["group"].to_dict() == {
            "a": "left",
            "b": "left",
            "c": "right",
            "d": "right",
        }
    refused = invoke(*arguments, code=2).stderr
    assert "--costs: none of the" in refused
    assert "or, with --groups, of groups" in refused


def test_the_column_of_prices_and_of_groups_is_named(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(np.random.default_rng(0).normal(size=(60, 4)), columns=list("abcd"))
    frame["kind"] = ["on", "off", "idle"] * 20
    frame.to_csv("machine.csv", index=False)
    rows = [
        "feature;place;device",
        "a;hall;left",
        "b;hall;left",
        "c;hall;right",
        "d;hall;right",
    ]
    (tmp_path / "groups.csv").write_text("\n".join(rows))
    (tmp_path / "costs.csv").write_text("device;qty;Preis\nleft;9;1022,91\nright;1;2000\n")
    arguments = ("select", "machine.csv", "-l", "kind", "--groups", "groups.csv")
    done = invoke(*arguments, "--costs", "costs.csv", "--budget", 1500, "-o", "small.csv")
    assert "--groups: column 'device' of groups.csv is used: 4 rows, 2 groups." in done.stderr
    used = "--costs: column 'Preis' of costs.csv is used: 2 rows, 1022.91 to 2000."
    assert used in done.stderr
    assert "1022.91 of 1500 spent on 1 group;" in done.stdout


def test_a_class_table_is_no_column_of_the_data(tmp_path, invoke, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    y = np.repeat([0, 1, 2], 10)
    np.savez("rows.npz", X=rng.normal(size=(30, 5)), y=y, A=rng.normal(size=(3, 2)))
    refused = invoke("select", "rows.npz", "-k", 2, "-a", "A", code=2).stderr
    assert "(array A), omit --attributes" in refused
    invoke("select", "rows.npz", "-k", 2)
