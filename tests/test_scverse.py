"""AnnData goes in and comes out: selectors, files and `select_genes` agree with arrays."""

import functools
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("anndata")
pytest.importorskip("typer")
import anndata
import pandas as pd
from typer.testing import CliRunner

from semfs import SemFS, SemFSCV
from semfs.baselines import MCFS, LassoSelector, Markers, VarianceSelector
from semfs.cli import app
from semfs.io.anndata import warn_if_scaled
from semfs.rows import open_blocks
from semfs.scverse import annotate, select_genes, view
from semfs.validation import ParameterError, ParameterWarning

TYPES = np.repeat(["B cell", "T cell", "NK cell", "monocyte"], 15)
SYMBOLS = [f"GENE{j}" for j in range(12)]
NAMES = [f"ENSG{j:03}" for j in range(12)]
TABLE = pd.DataFrame(
    {"lymphocyte": [1.0, 1, 1, 0], "cytotoxic": [0.0, 0.5, 1, 0], "antigen": [1.0, 0, 0, 1]},
    index=["B cell", "T cell", "NK cell", "monocyte"],
)


@functools.cache
def expression():
    """Log-normalized expression (60, 12): four genes separate the types."""
    rng = np.random.default_rng(0)
    means = np.vstack([3 * np.eye(4, 12)[c] + 0.4 for c in range(4)])
    counts = rng.poisson(np.repeat(means, 15, axis=0))
    values = np.log1p(counts * rng.uniform(0.9, 1.1, (60, 1))).astype(np.float32)
    values.flags.writeable = False  # it is shared by all tests
    return values


HVG = np.array([5, 0, 2, 1, 7, 9, 3, 8])  # the genes of X, not in the order of raw


def cells(form=sp.csr_matrix):
    """The usual state: all genes in raw, variable ones in X, counts in a layer."""
    obs = pd.DataFrame({"cell_type": pd.Categorical(TYPES)}, index=[f"c{i}" for i in range(60)])
    out = anndata.AnnData(
        form(expression()), obs, pd.DataFrame({"symbol": SYMBOLS}, index=NAMES)
    )
    out.raw = out
    out = out[:, HVG].copy()
    out.layers["double"] = form(2 * expression()[:, HVG])
    out.layers["counts"] = form(np.rint(40 * expression()[:, HVG]))
    out.obsm["X_pca"] = expression()[:, :3]
    return out


def read_back(path):
    """What anndata reads, checked: every part has the right size, and it can be cut."""
    with warnings.catch_warnings(action="error"):
        out = anndata.read_h5ad(path)
    selected = out.var["semfs_selected"].to_numpy()
    assert selected.dtype == bool
    assert out[:, selected].to_memory().shape == (out.n_obs, selected.sum())
    assert out.obsm["X_pca"].shape == (out.n_obs, 3)
    return out


def backed(adata, folder):
    adata.write_h5ad(folder / "backed.h5ad")
    return anndata.read_h5ad(folder / "backed.h5ad", backed="r")


FORMS = {"dense": np.asarray, "csr": sp.csr_matrix, "csc": sp.csc_matrix}


@pytest.fixture(params=[*FORMS, *(f"backed {form}" for form in FORMS)])
def adata(request, tmp_path):
    kind = request.param.split()[-1]
    out = cells(FORMS[kind])
    return backed(out, tmp_path) if "backed" in request.param else out


# ---- selectors ------------------------------------------------------------------------


def test_semfs_takes_anndata_as_it_takes_arrays(adata):
    plain = SemFS(3, TABLE).fit(expression()[:, HVG], TYPES)
    selector = SemFS(3, TABLE).fit(adata, "cell_type")
    assert_array_equal(selector.order_, plain.order_)
    assert selector.feature_names_in_.tolist() == adata.var_names.tolist()
    with warnings.catch_warnings(action="error"):
        assert_array_equal(selector.predict(adata), plain.predict(expression()[:, HVG]))
        found = selector.predict_attributes(adata)
    np.testing.assert_allclose(
        found, plain.predict_attributes(expression()[:, HVG]), rtol=1e-5, atol=1e-7
    )
    chosen = selector.transform(adata)
    assert isinstance(chosen, anndata.AnnData)
    assert chosen.var_names.tolist() == selector.get_feature_names_out().tolist()
    explained = selector.explain(adata, "cell_type", n_bootstraps=5)
    expected = plain.explain(expression()[:, HVG], TYPES, n_bootstraps=5)
    assert explained.stability.shape == expected.stability.shape


@pytest.mark.parametrize(
    "selector",
    [
        SemFSCV(3, attributes=TABLE, n_repeats=2),
        SemFSCV(3, attributes=TABLE, n_repeats=2, include=[NAMES[7]]),
        VarianceSelector(3),
        MCFS(3),
        LassoSelector(3, attributes=TABLE),
        Markers(3),
    ],
    ids=lambda selector: type(selector).__name__,
)
def test_other_selectors_take_anndata(selector, adata):
    names = pd.DataFrame(expression()[:, HVG], columns=adata.var_names)
    order = selector.fit(names, TYPES).order_
    selector.fit(adata, "cell_type")
    assert_array_equal(selector.order_[:3], order[:3])
    assert selector.transform(adata).shape == (60, 3)
    assert selector.get_feature_names_out().tolist() == list(
        selector.transform(adata).var_names
    )


def test_dense_methods_refuse_what_does_not_fit_into_memory(monkeypatch):
    monkeypatch.setattr("semfs.selectors.inputs.matrix.memory_limit", lambda: 100)
    with pytest.raises(ValueError, match=r"MCFS needs dense data, which would take 1\.9 kB"):
        MCFS(3).fit(cells())


def test_views_take_layers_raw_and_symbols(adata):
    raw = view(adata, use_raw=True, gene_symbols="symbol")
    selector = SemFS(3, TABLE).fit(raw, "cell_type")
    expected = SemFS(3, TABLE).fit(expression(), TYPES)
    assert_array_equal(selector.order_, expected.order_)
    assert set(selector.get_feature_names_out()) <= set(SYMBOLS)
    assert_array_equal(selector.predict(raw), expected.predict(expression()))
    assert selector.transform(raw).var["symbol"].tolist() == list(
        selector.get_feature_names_out()
    )
    doubled = VarianceSelector(3).fit(view(adata, layer="double"))
    np.testing.assert_allclose(
        doubled.scores_, 4 * VarianceSelector(3).fit(adata).scores_, 1e-5
    )


@pytest.mark.parametrize(
    "options, message",
    [
        ({"layer": "nothing"}, "no layer 'nothing'; layers: double, counts, raw"),
        ({"layer": "double", "use_raw": True}, "or use_raw=True, not both"),
        ({"gene_symbols": "nothing"}, "var has no column 'nothing'; found: symbol"),
    ],
)
def test_views_name_what_is_there(options, message):
    with pytest.raises(ValueError, match=message):
        view(cells(), **options)


def test_a_view_needs_raw_to_take_it():
    plain = cells()
    del plain.raw
    with pytest.raises(ValueError, match="no raw; layers: double, counts"):
        view(plain, use_raw=True)


def test_symbols_that_are_missing_or_double_are_made_distinct():
    adata = cells()
    adata.var["symbol"] = ["A", "A", None, "B", "C", "D", "E", "F"]
    names = view(adata, gene_symbols="symbol").names
    assert names[:4] == ["A", "A-1", adata.var_names[2], "B"]


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_new_cells_are_matched_by_gene_name(form):
    adata = cells(form)
    selector = SemFS(3, TABLE).fit(adata, "cell_type")
    other = adata[:, ::-1].copy()
    assert_array_equal(selector.predict(other), selector.predict(adata))
    fewer = selector.transform(adata)  # genes that were not chosen need not be there
    assert_array_equal(selector.predict(fewer), selector.predict(adata))
    with pytest.raises(
        ValueError, match="missing_features: X lacks 1 of 3 selected features: ENSG000"
    ):
        selector.predict(fewer[:, 1:])
    with pytest.raises(ValueError, match="X lacks 1 of the features"):
        selector.transform(fewer[:, 1:])
    nameless = SemFS(3, TABLE).fit(expression()[:, HVG], TYPES)
    assert_array_equal(nameless.transform(adata).var_names, fewer.var_names)
    with pytest.raises(
        ValueError, match="X has 3 features, but the selector was fitted with 8"
    ):
        nameless.transform(fewer)


@pytest.mark.parametrize(
    "selector", [SemFS(3, TABLE), SemFSCV(3, attributes=TABLE, n_repeats=2)]
)
def test_unlabeled_cells_come_as_missing_types_or_as_anndata(selector):
    adata, hidden = cells(), np.arange(60) % 5 == 0
    adata.obs.loc[hidden, "cell_type"] = None
    selector.fit(adata, "cell_type")
    order = selector.order_
    labeled, rest = adata[~hidden], adata[hidden].copy()[:, ::-1]
    selector.fit(labeled, "cell_type", X_unlabeled=rest)
    assert_array_equal(selector.order_, order)
    plain = selector.fit(
        expression()[~hidden][:, HVG], TYPES[~hidden], X_unlabeled=expression()[hidden][:, HVG]
    )
    assert_array_equal(plain.order_, order)


def test_cells_beyond_memory_are_predicted_in_blocks(monkeypatch, tmp_path):
    adata = backed(cells(), tmp_path)
    selector = SemFS(3, TABLE).fit(adata, "cell_type")
    expected = selector.predict(adata.to_memory())
    monkeypatch.setattr("semfs.io.reader.BLOCK_BYTES", 1000)
    assert_array_equal(selector.predict(adata), expected)
    assert_array_equal(selector.predict(tmp_path / "backed.h5ad"), expected)


@pytest.mark.filterwarnings("ignore:ignored non-numeric columns")
def test_files_and_lazy_frames_are_transformed_and_predicted(tmp_path):
    frame = pd.DataFrame(expression(), columns=NAMES)
    selector = SemFS(3, TABLE).fit(frame, TYPES)
    frame.insert(0, "type", TYPES)
    frame.to_csv(tmp_path / "cells.csv", index=False)
    np.save(tmp_path / "cells.npy", expression())
    sources = [tmp_path / "cells.npy", tmp_path / "cells.csv"]
    sources.append(pytest.importorskip("polars").from_pandas(frame).lazy())
    for source in sources:
        found = selector.transform(source)
        np.testing.assert_allclose(found, expression()[:, selector.support_], rtol=1e-6)
        assert_array_equal(selector.predict(source), selector.predict(frame[NAMES]))
    assert_array_equal(
        LassoSelector(3).fit(sources[2], "type").order_,
        LassoSelector(3).fit(expression(), TYPES).order_,
    )


# ---- counts ---------------------------------------------------------------------------


@pytest.mark.parametrize("fit", [SemFS(3).fit, VarianceSelector(3).fit])
def test_counts_are_noticed_once(fit, adata):
    with pytest.warns(UserWarning, match="raw counts") as caught:
        fit(view(adata, layer="counts"), "cell_type")
    assert len(caught) == 1
    assert "sc.pp.log1p" in str(caught[0].message)


def noise():
    return np.random.default_rng(1).normal(size=(60, 12))


def standardized():
    values = expression()
    return (values - values.mean(axis=0)) / values.std(axis=0)


OTHERS = {
    "logarithms": expression,
    "binary logarithms, negative": lambda: expression() / np.log(2) - 1,
    "presence": lambda: np.sign(expression()),
    "small whole numbers": lambda: np.rint(expression()),
    "embedding": lambda: 40 * noise(),
    "intensities": lambda: 100 + 20 * noise(),
    "infinite": lambda: np.where(expression() == expression().max(), np.inf, expression()),
}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_other_numbers_are_taken_as_they_are(make, form):
    with warnings.catch_warnings(record=True, action="always") as caught:
        source = open_blocks(anndata.AnnData(form(make())), TYPES)
        warn_if_scaled(source.reader)
    assert [str(warning.message) for warning in caught] == []


def test_standardized_cells_are_noticed():
    adata = cells(np.asarray)
    adata.X = standardized()[:, HVG]
    message = "layer: the cells look standardized .* Other matrices: double, counts, raw"
    with pytest.warns(UserWarning, match=message):
        select_genes(adata, "cell_type", 2)
    with warnings.catch_warnings(action="error"):
        select_genes(adata, "cell_type", 2, use_raw=True)


@pytest.mark.parametrize("form", [np.asarray, sp.csr_matrix])
def test_numbers_per_cell_without_logarithm_are_noticed_once(form):
    rng = np.random.default_rng(0)
    counts = rng.poisson(rng.lognormal(0, 2, 300), (60, 300))
    adata = anndata.AnnData(form(1e4 * counts / counts.sum(axis=1, keepdims=True)))
    with pytest.warns(
        UserWarning, match=r"values without a logarithm \(such as \d+\)"
    ) as caught:
        open_blocks(adata, TYPES)
    assert len(caught) == 1
    with warnings.catch_warnings(action="error"):  # the remedy that was named
        normal = open_blocks(adata, TYPES, normalize="log1p")
    expected = open_blocks(anndata.AnnData(form(counts)), TYPES, normalize="log1p")
    found, expected = (sp.csr_array(source.load()[0]) for source in (normal, expected))
    np.testing.assert_allclose(found.toarray(), expected.toarray(), rtol=1e-5)


def test_shallow_counts_are_noticed_by_their_range():
    values = np.ones((60, 12))
    values[3, 3] = 20
    with pytest.warns(UserWarning, match="such as 21"):
        SemFS(3).fit(anndata.AnnData(values + np.eye(60, 12)), TYPES)


# ---- select_genes ---------------------------------------------------------------------


def test_more_genes_than_there_are_is_a_warning_about_genes(adata):
    with pytest.warns(UserWarning, match=r"n_genes=5000 is greater .* All of them are kept"):
        select_genes(adata, "cell_type", 5000)
    assert adata.var["semfs_selected"].all()


def test_genes_are_noted_in_the_object(adata, tmp_path):
    assert select_genes(adata, "cell_type", 3, TABLE, class_weight="balanced") is None
    expected = SemFS(3, TABLE, class_weight="balanced").fit(expression()[:, HVG], TYPES)
    assert_array_equal(adata.var["semfs_selected"], expected.support_)
    assert_array_equal(adata.var["semfs_rank"], expected.ranking_)
    np.testing.assert_allclose(adata.var["semfs_score"], expected.scores_, rtol=1e-5, atol=1e-7)
    adata.to_memory().write_h5ad(tmp_path / "out.h5ad")
    uns = read_back(tmp_path / "out.h5ad").uns["semfs"]
    assert uns["params"]["class_weight"] == "balanced"
    assert uns["params"]["groupby"] == "cell_type"
    assert uns["classes"].tolist() == sorted(TABLE.index)
    assert uns["attributes"].tolist() == list(TABLE)
    assert len(uns["objective"]) == 3
    assert set(uns["versions"]) == {"semfs", "scikit-learn", "numpy", "python"}


def test_a_copy_is_returned_if_asked_for(adata):
    done = select_genes(adata, "cell_type", 2, layer="double", key_added="mine", copy=True)
    assert done.var["mine_selected"].sum() == 2
    assert done.uns["mine"]["params"]["layer"] == "double"
    assert "mine_rank" not in adata.var
    assert "mine" not in adata.uns


def test_genes_of_raw_are_noted_in_raw_and_where_they_are_shared(tmp_path):
    adata = cells()
    adata.var_names = [*adata.var_names[:-1], "unknown"]
    select_genes(
        adata, "cell_type", 3, TABLE, use_raw=True, gene_symbols="symbol", include=["GENE11"]
    )
    expected = SemFS(3, TABLE, include=[11]).fit(expression(), TYPES)
    assert_array_equal(adata.raw.var["semfs_rank"], expected.ranking_)
    assert_array_equal(adata.var["semfs_rank"][:-1], expected.ranking_[HVG[:-1]])
    assert np.isnan(adata.var["semfs_rank"].iloc[-1])
    assert not adata.var["semfs_selected"].iloc[-1]
    adata.write_h5ad(tmp_path / "out.h5ad")
    assert read_back(tmp_path / "out.h5ad").raw.var["semfs_selected"].sum() == 3


def test_types_are_described_by_an_ontology(tmp_path):
    pytest.importorskip("pronto")
    terms = ["\n[Term]\nid: X:0\nname: lymphocyte\n"]
    for number, name in enumerate(TABLE.index, start=1):
        parent = "" if name == "monocyte" else "is_a: X:0\n"
        terms.append(f"\n[Term]\nid: X:{number}\nname: {name}\n{parent}")
    terms.append("\n[Term]\nid: X:9\nname: plasma cell\nis_a: X:1\n")
    (tmp_path / "cells.obo").write_text("format-version: 1.2\n" + "".join(terms))
    adata = cells()
    adata.obs["cell_type"] = adata.obs["cell_type"].cat.add_categories("plasma cell")
    select_genes(adata, "cell_type", 3, tmp_path / "cells.obo")
    assert adata.uns["semfs"]["attributes"].tolist() == ["lymphocyte", "B cell"]
    assert "plasma cell" not in adata.uns["semfs"]["classes"]
    TABLE.to_csv(tmp_path / "cells.csv")
    select_genes(adata, "cell_type", 3, str(tmp_path / "cells.csv"))
    assert adata.uns["semfs"]["attributes"].tolist() == list(TABLE)


def test_select_genes_says_what_it_needs():
    with pytest.raises(ValueError, match="obs has no column 'nothing'; found: cell_type"):
        select_genes(cells(), "nothing", attributes="cl")
    with pytest.raises(TypeError, match="needs an AnnData object, got ndarray"):
        select_genes(expression(), "cell_type")


def test_select_genes_warns_of_cells_without_a_type_and_of_text_that_may_mean_none():
    adata = cells()
    adata.obs["cell_type"] = adata.obs["cell_type"].astype(object)
    adata.obs.iloc[::5, 0] = None
    message = (
        r"groupby: 12 of 60 samples have no label.*With unlabeled=.drop., they are left out"
    )
    with pytest.warns(ParameterWarning, match=message):
        select_genes(adata, "cell_type", 3)
    labeled = adata[adata.obs["cell_type"].notna()].copy()
    with warnings.catch_warnings(action="error"):
        select_genes(labeled, "cell_type", 3)
        select_genes(adata, "cell_type", 3, unlabeled="drop")
    ranks = [found.var["semfs_rank"].tolist() for found in (labeled, adata)]
    assert ranks[0] == ranks[1]
    with pytest.raises(ValueError, match="unlabeled must be 'use' or 'drop'"):
        select_genes(adata, "cell_type", 3, unlabeled="keep")
    labeled.obs.iloc[::8, 0] = "Unknown"
    message = r"used here as a class of its own: 'Unknown' \(6 cells\)\. .* text with None"
    with pytest.warns(ParameterWarning, match=message):
        select_genes(labeled, "cell_type", 3)
    assert "Unknown" in labeled.uns["semfs"]["classes"]


def test_types_that_differ_only_in_case_or_spaces_are_named_once():
    adata = cells()
    types = np.array(TYPES, dtype=object)
    types[:5] = str(types[0]).upper() + " "
    adata.obs["cell_type"] = types
    with pytest.warns(ParameterWarning, match="differ only in case or spaces: ") as found:
        select_genes(adata, "cell_type", 3)
    similar = [str(warning.message) for warning in found if "only in case" in str(warning)]
    assert len(similar) == 1
    assert "If they are the same class, rename one" in similar[0]
    with pytest.warns(ParameterWarning, match="^y: these labels differ only in case"):
        SemFSCV(3, n_repeats=1).fit(expression(), types)


def test_genes_of_raw_with_other_names_are_not_written_as_nan():
    adata = cells()
    adata.var_names = adata.var["symbol"]
    with pytest.warns(
        UserWarning, match="gene_symbols: no gene in raw.var has the name of a gene"
    ):
        select_genes(adata, "cell_type", 3, use_raw=True)
    assert "semfs_rank" not in adata.var
    select_genes(adata, "cell_type", 3, use_raw=True, gene_symbols="symbol")
    assert_array_equal(adata.var["semfs_rank"], adata.raw.var["semfs_rank"].iloc[HVG])


def test_clusters_that_follow_donors_are_noticed(recwarn):
    rng = np.random.default_rng(0)
    types = np.repeat(["B", "T", None, None], 40)
    donor = np.repeat(["d1", "d2"], 20)[np.arange(160) % 40]
    X = rng.normal(5.0, 0.5, (160, 20))
    X[types == "B", 0] += 4.0
    X[(types == None) & (donor == "d2"), 1:4] += 4.0  # noqa: E711
    cells = anndata.AnnData(np.maximum(X, 0.0), {"type": types, "donor_id": donor})
    with pytest.warns(UserWarning, match="batch_key: the clusters .* follow 'donor_id'"):
        select_genes(cells, "type", n_genes=3)
    recwarn.clear()
    select_genes(cells, "type", n_genes=3, batch_key="donor_id")
    assert not any("follow" in str(warning.message) for warning in recwarn)


def test_rare_types_are_named_or_left_out():
    adata = cells()[12:].copy()  # three B cells
    with pytest.warns(UserWarning, match=r"1 class .* 5 samples: B cell \(3\)") as found:
        select_genes(adata, "cell_type", 3)
    (text,) = [str(warning.message) for warning in found if "B cell" in str(warning.message)]
    assert "Use min_cells=5 to leave them out" in text
    assert "predict then assigns their samples to other classes" in text
    assert "B cell" in adata.uns["semfs"]["classes"]
    with pytest.warns(
        UserWarning,
        match=r"B cell \(3\)\. Their samples and descriptions are not used.*To use the desc",
    ):
        select_genes(adata, "cell_type", 3, min_cells=4)
    assert "B cell" not in adata.uns["semfs"]["classes"]
    assert adata.uns["semfs"]["params"]["min_cells"] == 4


def test_rare_types_are_described_unseen_ones_only_if_asked_for():
    adata = cells()[12:].copy()  # three B cells
    with pytest.warns(UserWarning, match="fewer than 4 samples"):
        select_genes(adata, "cell_type", 3, TABLE, min_cells=4)
    assert "unseen classes" not in adata.uns["semfs"]["knowledge"]
    with warnings.catch_warnings(action="error", category=UserWarning):
        select_genes(adata, "cell_type", 3, TABLE, min_cells=4, unseen=["B cell"])
    assert "B cell" not in adata.uns["semfs"]["classes"]
    assert "one class" in adata.uns["semfs"]["knowledge"]["unseen classes"]
    with pytest.raises(ValueError, match=r"unseen: class 'B cel' .* did you mean 'B cell'"):
        select_genes(adata, "cell_type", 3, TABLE, unseen=["B cel"])


# ---- files ----------------------------------------------------------------------------


def select(folder, *options):
    TABLE.to_csv(folder / "types.csv")
    arguments = f"select {folder}/in.h5ad -l cell_type -a {folder}/types.csv -k 3".split()
    done = CliRunner().invoke(app, [*arguments, "-o", str(folder / "out.h5ad"), *options])
    assert done.exit_code == 0, done.output
    return read_back(folder / "out.h5ad")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("layer", [None, "double", "raw"])
@pytest.mark.parametrize("subset", [False, True])
def test_files_come_back_as_anndata_reads_them(form, layer, subset, tmp_path):
    cells(FORMS[form]).write_h5ad(tmp_path / "in.h5ad")
    options = [] if layer is None else ["--layer", layer]
    out = select(tmp_path, *options, *(["--subset"] if subset else []))
    genes = np.arange(12) if layer == "raw" else HVG
    factor = 2 if layer == "double" else 1
    expected = SemFS(3, TABLE).fit(factor * expression()[:, genes], TYPES)
    ranks = pd.Series(expected.ranking_, index=np.array(NAMES)[genes])
    names = ranks.index[expected.support_] if subset else np.array(NAMES)[HVG]
    assert out.var_names.tolist() == list(names)
    assert_array_equal(out.var["semfs_rank"], ranks[out.var_names])
    assert out.uns["semfs"]["classes"].tolist() == sorted(TABLE.index)
    assert out.uns["semfs"]["params"]["n_features_to_select"] == 3
    values = out.X.toarray() if sp.issparse(out.X) else out.X
    assert_array_equal(values, pd.DataFrame(expression(), columns=NAMES)[out.var_names])
    if layer == "raw" and not subset:
        assert_array_equal(out.raw.var["semfs_rank"], ranks)


def test_scanpy_works_on_what_is_written(tmp_path):
    sc = pytest.importorskip("scanpy")
    cells().write_h5ad(tmp_path / "in.h5ad")
    for options in ([], ["--layer", "raw"], ["--layer", "raw", "--subset"], ["--subset"]):
        select(tmp_path, *options)
        out = sc.read_h5ad(tmp_path / "out.h5ad")
        sc.pp.filter_cells(out, min_genes=1)
        sc.pp.normalize_total(out)
        sc.pp.scale(out)
        sc.pp.pca(out, n_comps=2, mask_var="semfs_selected")
        assert out.obsm["X_pca"].shape == (out.n_obs, 2)


def test_a_view_normalizes_counts_in_fit_and_predict():
    adata = cells()
    counts = adata.copy()
    counts.X = np.rint(np.expm1(np.abs(adata.X.toarray())) * 5 + 1)
    logs = counts.copy()
    logs.X = np.log1p(1e4 * counts.X / counts.X.sum(axis=1, keepdims=True))
    expected = SemFS(3).fit(logs, "cell_type")
    found = SemFS(3).fit(view(counts, normalize="log1p"), "cell_type")
    assert_allclose(found.scores_, expected.scores_, rtol=1e-5)  # float32
    assert found.preprocessing_["normalize"] == "log1p"
    answer = expected.predict(logs)
    assert found.predict(counts).tolist() == answer.tolist()  # remembered
    # a selector of normalized values can be given counts as well
    assert expected.predict(view(counts, normalize="log1p")).tolist() == answer.tolist()
    with pytest.raises(ValueError, match="normalize"):
        view(counts, normalize="sqrt")


def logs_and_counts():
    """Counts of cells, and their logarithms as the fit computes them."""
    counts = cells()
    counts.X = np.rint(np.expm1(np.abs(counts.X.toarray())) * 5 + 1)
    logs = counts.copy()
    logs.X = np.log1p(1e4 * counts.X / counts.X.sum(axis=1, keepdims=True))
    return logs, counts


def stored(adata, kind, folder):
    """The cells as an object, a file or a table."""
    if kind == "object":
        return adata
    path = folder / f"cells.{kind}"
    if kind == "h5ad":
        adata.write_h5ad(path)
    else:
        pd.DataFrame(adata.X, columns=adata.var_names).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", ["object", "h5ad", "csv"])
def test_logarithms_are_not_normalized_once_more(kind, tmp_path):
    logs, counts = logs_and_counts()
    selector = SemFS(3).fit(view(counts, normalize="log1p"), "cell_type")
    message = r"normalize: the fit log-normalized counts, but .* logarithms.*normalize=\"none\""
    data = stored(logs, kind, tmp_path)
    with pytest.raises(ParameterError, match=message):
        selector.predict(data)
    logs.X = logs.X - logs.X.mean(axis=0)
    with pytest.raises(ParameterError, match=r"not counts .some are negative"):
        selector.predict(logs)


@pytest.mark.parametrize("kind", ["object", "h5ad"])
@pytest.mark.parametrize("fit", ["memory", "parts"])
def test_counts_are_not_named_by_a_selector_of_logarithms(fit, kind, tmp_path):
    logs, counts = logs_and_counts()
    if fit == "memory":
        selector = SemFS(3).fit(logs, "cell_type")
    else:
        frame = pd.DataFrame(logs.X, columns=logs.var_names)
        selector = SemFS(3).partial_fit(frame, np.asarray(logs.obs["cell_type"]))
    expected = selector.predict(logs).tolist()
    data = stored(counts, kind, tmp_path)
    message = r"normalize: the fit used log-normalized values, but .* raw counts .*log1p.*none"
    for predict in (selector.predict, selector.predict_proba, selector.predict_together):
        with pytest.raises(ParameterError, match=message):
            predict(data)
    with pytest.raises(ParameterError, match=message):
        annotate(counts, selector)
    assert "semfs_class" not in counts.obs
    annotate(counts, selector, normalize="log1p")
    assert counts.obs["semfs_class"].tolist() == expected
    annotate(counts, selector, normalize="none")


def test_counts_are_named_by_a_selector_of_counts():
    _, counts = logs_and_counts()
    with pytest.warns(UserWarning, match="raw counts"):
        selector = SemFS(3).fit(counts, "cell_type")
    with pytest.warns(UserWarning, match="raw counts"):
        found = selector.predict(counts)
    assert len(found) == counts.n_obs


def test_the_user_says_how_new_cells_are_normalized():
    logs, counts = logs_and_counts()
    selector = SemFS(3).fit(view(counts, normalize="log1p"), "cell_type")
    expected = selector.predict(counts)
    assert selector.predict(view(logs, normalize="none")).tolist() == expected.tolist()
    annotate(logs, selector, normalize="none")
    assert logs.obs["semfs_class"].tolist() == expected.tolist()
    with pytest.raises(ParameterError, match="normalize"):
        annotate(logs, selector)
    # counts that a correction made fractional look like logarithms
    counts.X = counts.X * 0.9
    annotate(counts, selector, normalize="log1p")
    assert counts.obs["semfs_class"].tolist() == expected.tolist()


def test_standardized_cells_are_noticed_in_predictions():
    adata = cells()
    adata.X = np.abs(adata.X.toarray())
    selector = SemFS(3).fit(adata, "cell_type")
    scaled = adata.copy()
    scaled.layers["log"] = adata.X
    scaled.X = (adata.X - adata.X.mean(axis=0)) / adata.X.std(axis=0)
    message = "layer: the cells look standardized .* the training samples were not.*, log"
    with pytest.warns(ParameterWarning, match=message):
        selector.predict(scaled)
    with pytest.warns(ParameterWarning, match=message):
        annotate(scaled, selector)
    with warnings.catch_warnings(record=True, action="always") as caught:
        annotate(scaled, selector, layer="log")
        SemFS(3).fit(scaled, "cell_type").predict(scaled)
    assert not any("the training samples" in str(warning.message) for warning in caught)


def test_a_column_with_the_names_of_the_fit_is_named():
    adata = cells()
    selector = SemFS(3).fit(adata, "cell_type")
    expected = selector.predict(adata).tolist()
    adata.var["symbol"] = adata.var_names
    adata.var["length"] = 1.5
    adata.var_names = [f"ENSG{i}" for i in range(adata.n_vars)]
    message = (
        r"none of the 3 selected .*ENSG0.*'symbol' of var contains 3.*gene_symbols=\"symbol\""
    )
    for missing in ("error", "ignore"):
        with pytest.raises(ParameterError, match=message):
            annotate(adata, selector, missing_features=missing)
    annotate(adata, selector, gene_symbols="symbol")
    assert adata.obs["semfs_class"].tolist() == expected


# ---- annotate ---------------------------------------------------------------------------


def annotated_cells(**options):
    """Cells of the lung sample whose types are unseen, annotated."""
    from semfs.datasets import load_sample

    lung = load_sample()
    X, y, X_unseen, y_unseen = lung.split()
    genes = pd.DataFrame(index=lung.feature_names)
    atlas = anndata.AnnData(X, obs=pd.DataFrame({"type": y}), var=genes)
    selector = SemFS(40, lung.attributes).fit(atlas, "type")
    cells = anndata.AnnData(X_unseen, var=genes)
    lost = options.pop("lost", 0)
    kept = ~cells.var_names.isin(selector.get_feature_names_out()[:lost])
    cells = cells[:, kept].copy()
    return selector, lung, cells, y_unseen


def test_annotate_adds_types_and_probabilities():
    selector, lung, cells, _ = annotated_cells()
    assert annotate(cells, selector) is None
    assert_array_equal(cells.obs["semfs_class"].astype(str), selector.predict(cells))
    annotate(cells, selector, together=True, key_added="joint")
    assert_array_equal(cells.obs["joint_class"].astype(str), selector.predict_together(cells))
    assert cells.obs["semfs_probability"].between(0, 1).all()
    assert not (cells.obs["semfs_class"].astype(str) == cells.obs["semfs_second"]).any()
    table = lung.attributes.loc[lung.unseen]
    other = annotate(cells, selector, table, together=False, key_added="new", copy=True)
    assert "new_class" not in cells.obs
    assert_array_equal(other.obs["new_class"].astype(str), selector.predict(cells, table))


def test_annotate_writes_into_the_object_of_a_view():
    adata = cells()
    adata.X = standardized()[:, HVG]
    selector = SemFS(3).fit(view(adata, use_raw=True), "cell_type")
    expected = selector.predict(view(adata, use_raw=True))
    assert annotate(view(adata, use_raw=True), selector) is None
    assert adata.obs["semfs_class"].tolist() == expected.tolist()
    del adata.obs["semfs_class"]
    other = annotate(view(adata, use_raw=True), selector, copy=True)
    assert other.obs["semfs_class"].tolist() == expected.tolist()
    assert "semfs_class" not in adata.obs
    with pytest.raises(ParameterError, match="layer is for AnnData objects"):
        annotate(view(adata, use_raw=True), selector, layer="double")
    with pytest.raises(TypeError, match="annotate needs an AnnData object, got ndarray"):
        annotate(np.zeros((2, 2)), selector)


def warnings_of(function):
    """The warnings of a call, as one text."""
    with warnings.catch_warnings(record=True, action="always") as caught:
        function()
    return "\n".join(str(warning.message) for warning in caught)


def test_many_cells_of_unseen_types_and_low_probabilities_are_noticed():
    selector, lung, cells, _ = annotated_cells()
    found = warnings_of(lambda: annotate(cells, selector))
    n_unseen = int(cells.obs["semfs_class"].isin(lung.unseen).sum())
    expected = f"table: {n_unseen} of {len(cells)} samples got one of the 7 unseen classes"
    assert expected in found
    cells.X = np.tile(cells.X.mean(axis=0), (len(cells), 1))
    found = warnings_of(lambda: annotate(cells, selector))
    mean = cells.obs["semfs_probability"].mean()
    assert f"the mean probability of the names is {mean:.2f}" in found
    # all are meant to be unseen, or none can be
    for labels in (lung.unseen, lung.seen):
        table = lung.attributes.loc[labels]
        found = warnings_of(lambda: annotate(cells, selector, table))  # noqa: B023
        assert "unseen classes, which" not in found


def test_many_unknown_cells_are_noticed():
    selector, lung, cells, _ = annotated_cells()
    rate = 0.02
    cells.X = cells.X + 3.0
    found = warnings_of(lambda: annotate(cells, selector, unknown_rate=rate))
    share = (cells.obs["semfs_class"] == "unknown").mean()
    assert share > 3 * rate
    assert (
        f"unknown_rate: {share:.0%} of the samples are 'unknown', but the rate was set to 2%"
        in found
    )
    X = lung.split()[0]
    atlas = anndata.AnnData(X, var=cells.var)
    assert "unknown_rate" not in warnings_of(
        lambda: annotate(atlas, selector, lung.attributes.loc[lung.seen], unknown_rate=rate)
    )


@pytest.mark.parametrize("together", [False, True])
def test_annotate_names_only_cells_without_a_type(together):
    from semfs.datasets import load_sample

    lung = load_sample()
    hidden = np.isin(lung.y, lung.unseen)
    obs = pd.DataFrame({"type": pd.Categorical(np.where(hidden, None, lung.y))})
    obs["donor"] = np.where(np.arange(len(obs)) % 2, "d1", "d2")
    cells = anndata.AnnData(lung.X, obs=obs, var=pd.DataFrame(index=lung.feature_names))
    selector = SemFS(40, lung.attributes).fit(cells[~hidden], "type", batch="donor")
    annotate(cells, selector, together=together, groupby="type", batch_key="donor")
    assert_array_equal(cells.obs["semfs_class"][~hidden].astype(str), lung.y[~hidden])
    assert_array_equal(cells.obs["semfs_probability"].isna(), ~hidden)
    cut = cells[hidden]
    wanted, _ = selector.predict_top(cut, together=together, batch=cut.obs["donor"])
    assert_array_equal(cells.obs["semfs_class"][hidden].astype(str), wanted[:, 0])
    with pytest.warns(UserWarning, match="batch_key: the selector was fitted with 2 batches"):
        annotate(cells, selector, together=together, groupby="type")


def test_annotate_leaves_out_genes_that_are_missing():
    selector, lung, cells, types = annotated_cells(lost=4)
    table = lung.attributes.loc[lung.unseen]
    with pytest.warns(UserWarning, match="X lacks 4 of 40 selected features"):
        annotate(cells, selector, table)
    assert np.mean(cells.obs["semfs_class"].astype(str) == types) > 0.4
    with pytest.raises(ValueError, match=r"X lacks 4 of 40 selected features.*ignore"):
        annotate(cells, selector, missing_features="error")


def test_a_misspelt_parameter_of_select_genes_is_named():
    with pytest.raises(TypeError, match="no parameter 'n_gene'; did you mean 'n_genes'"):
        select_genes(cells(), "type", n_gene=3)
