"""The paper's experiments in small, methods of one's own, and the commands around them."""

import json
import shutil
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose
from scipy.sparse import csr_array
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from semfs import SemFS
from semfs.baselines import L20ALM, MCFS
from semfs.cli import app
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab import Store, methods, paper
from semfs.lab.methods import METHODS, Case, Method, rank, ranking_of
from semfs.lab.paper import EXPERIMENTS, class_splits, evaluate, find_data, find_experiments
from semfs.lab.report import curves


@pytest.fixture(scope="module")
def sample() -> ZeroShotDataset:
    return load_sample("blood")


def bench_of(sample, fast=True):
    splits = {"blood": class_splits(sample, None, 0)}
    sizes = {("blood", "given"): methods.Size(402, 6, fast)}
    protocol = paper.Protocol((5, 20), 5, 0, fast)
    return paper.Bench({"blood": lambda: sample}, splits, protocol, sizes)


def cells_of(sample, *names: str, methods=(), fast=True):
    return paper.plan(find_experiments(names), bench_of(sample, fast), methods)[0]


# ---- what is planned -------------------------------------------------------------------------


def test_the_paper_has_these_experiments():
    names = "clustering labeled-ratio attributes-vs-labels alpha convergence scaling"
    assert list(EXPERIMENTS) == names.split()
    assert find_experiments(["all"]) == list(EXPERIMENTS.values())


def test_clustering_compares_all_methods_at_defaults_and_baselines_on_the_papers_grid(sample):
    cells = cells_of(sample, "clustering", fast=False)
    counts = Counter(cell.label for cell in cells)
    plain = {label: n for label, n in counts.items() if not label.endswith("(oracle)")}
    assert set(plain.values()) == {1}
    assert list(plain) == [METHODS[name].label for name in EXPERIMENTS["clustering"].methods]
    grids = {"MCFS": 6, "FSASL": 25, "LASSO": 5, "L20ALM": 5, "WkNN": 5}
    assert all(counts[f"{name} (oracle)"] == n for name, n in grids.items())
    lasso = [cell.params["lam"] for cell in cells if cell.label == "LASSO (oracle)"]
    assert lasso == [0.01, 0.1, 1.0, 10.0, 100.0]


def test_cifar10_has_45_splits_of_two_seen_classes_and_fewer_are_the_first_of_them():
    classes = [f"c{i}" for i in range(10)]
    table = pd.DataFrame({"a": np.arange(10.0)}, index=classes)
    data = ZeroShotDataset("cifar10_small", np.zeros((20, 2)), classes * 2, table)
    splits = class_splits(data, None, seed=0)
    assert len(splits) == 45
    assert {len(unseen) for unseen in splits.values()} == {8}
    assert list(class_splits(data, 5, seed=0)) == list(splits)[:5]
    assert any(not name.startswith("c0+") for name in list(splits)[:5])
    other = ZeroShotDataset("things", data.X, data.y, table)
    found = class_splits(other, 3, 0)
    assert {n: len(u) for n, u in found.items()} == {f"random-{i}": 3 for i in range(3)}
    assert class_splits(other.with_unseen(["c1", "c4"]), 3, 0) == {"given": ["c1", "c4"]}


def test_data_sets_are_the_npz_files_with_x_y_and_a(tmp_path):
    arrays = {"X": np.eye(4), "y": [0, 1, 2, 3], "A": np.eye(4)}
    np.savez(tmp_path / "farm.npz", **arrays)
    np.savez(tmp_path / "zoo.npz", **arrays)
    np.savez(tmp_path / "vectors.npz", A=np.eye(3))
    (tmp_path / "broken.npz").write_text("not a zip file")
    assert list(find_data(tmp_path)) == ["farm", "zoo"]
    assert list(find_data(tmp_path, ["ZO", "blood"])) == ["zoo", "blood"]
    assert list(find_data(None)) == ["sample"]
    with pytest.raises(ValueError, match=r"no data set 'sun'. Found: farm, zoo"):
        find_data(tmp_path, ["sun"])
    with pytest.raises(ValueError, match="not a directory"):
        find_data(tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no data set"):
        find_data(tmp_path / "empty")


def test_benchmarks_are_found_by_name_or_said_to_be_absent(tmp_path, monkeypatch):
    (tmp_path / "CUB").mkdir()
    (tmp_path / "aPY_annotations").mkdir()
    names = "apascal_train apascal_test ayahoo_test attribute_names class_names"
    files = [f"aPY_annotations/{name}.txt" for name in names.split()]
    for name in [*files, "CUB/res101.mat", "CUB/att_splits.mat"]:
        (tmp_path / name).touch()
    assert list(find_data(tmp_path)) == ["CUB"]
    monkeypatch.setenv("SEMFS_DATA", str(tmp_path))
    for name, said in {
        "cub": r"CUB.*att_splits.mat",  # found, and empty
        "awa2": "AWA2 was not found",
        "smaple": "did you mean 'sample'",
        "aPY": r"was found in .*features must be computed",
    }.items():
        with pytest.raises(ValueError, match=said):
            paper.open_data(name)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """The same small data as h5ad, CSV, Parquet and NPZ, with a class table."""
    anndata = pytest.importorskip("anndata")
    folder = tmp_path_factory.mktemp("own")
    rng = np.random.RandomState(0)
    names = [*"abcde", "f, g"]
    y = np.array(names * 10)
    X = rng.normal(size=(60, 8)) + 3 * (np.arange(8) == np.arange(60)[:, None] % 6)
    columns = [f"g{j}" for j in range(8)]
    pd.DataFrame(np.eye(6), index=names).to_csv(folder / "types.csv")
    frame = pd.DataFrame(X, columns=columns).assign(kind=y)
    frame.to_csv(folder / "cells.csv", index=False)
    frame.to_parquet(folder / "cells.parquet")
    obs = pd.DataFrame({"kind": y}, index=[f"c{i}" for i in range(60)])
    var = pd.DataFrame(index=columns)
    anndata.AnnData(csr_array(X), obs, var).write_h5ad(folder / "cells.h5ad")
    codes = np.array([names.index(label) for label in y])
    arrays = {"X": X, "y": codes, "A": np.eye(6), "classes": names, "feature_names": columns}
    np.savez(folder / "cells.npz", **arrays)
    return folder


@pytest.mark.parametrize("name", ["cells.h5ad", "cells.csv", "cells.parquet", "cells.npz"])
def test_evaluate_takes_ones_own_files_of_every_kind(files, name):
    own = [] if name.endswith("npz") else ["--label", "kind", "-a", files / "types.csv"]
    rest = ["-m", "variance,markers", "-k", "2", "--repeats", 2, "-j", 1, "--json"]
    (first, *_) = json.loads(invoke("evaluate", files / name, *own, *rest).stdout)
    assert (first["split"], first["label"]) == ("random-0", "Markers per class")
    given = ["--unseen", '"f, g", a', "--unseen", "b"]
    rows = json.loads(invoke("evaluate", files / name, *own, *rest, *given).stdout)
    assert {row["split"] for row in rows} == {"given"}
    assert {len(row["features"]) for row in rows} == {2}


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("form", [np.asarray, csr_array])
@pytest.mark.parametrize("kind", ["h5ad", "npz"])
def test_a_value_that_is_no_number_is_named_by_column_and_row(
    files, kind, form, value, tmp_path, monkeypatch
):
    anndata = pytest.importorskip("anndata")
    monkeypatch.chdir(tmp_path)
    arrays = dict(np.load(files / "cells.npz"))
    arrays["X"][[7, 11], 3] = value
    X, own = form(arrays.pop("X")), []
    if kind == "h5ad":
        adata = anndata.read_h5ad(files / "cells.h5ad")
        adata.X = X
        adata.write_h5ad("cells.h5ad")
        own = ["--label", "kind", "-a", files / "types.csv"]
    elif form is csr_array:
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape}
        np.savez("cells.npz", **arrays, **{f"X_{name}": part for name, part in parts.items()})
    else:
        np.savez("cells.npz", **arrays, X=X)
    done = invoke("evaluate", f"cells.{kind}", *own, "-m", "variance", "-k", 2, "-j", 1)
    (line,) = done.stderr.splitlines()
    word = "NaN" if np.isnan(value) else "infinity"
    assert (done.exit_code, f"cells.{kind} contains {word}" in line) == (2, True), line
    assert "row 7 of the rows in use, column 3 ('g3'), counting from 0" in line


def test_evaluate_normalizes_counts_as_select_does(files, tmp_path):
    arrays = dict(np.load(files / "cells.npz"))
    counts = np.rint(np.exp(arrays.pop("X")))
    per_row = 1e4 * counts / counts.sum(axis=1, keepdims=True)
    np.savez(tmp_path / "counts.npz", X=counts, **arrays)
    np.savez(tmp_path / "logs.npz", X=np.log1p(per_row), **arrays)
    rest = ["-m", "variance", "-k", "2", "--repeats", 2, "-j", 1, "--json"]
    found = [
        json.loads(invoke("evaluate", tmp_path / name, *rest, *more).stdout)
        for name, more in (("counts.npz", ["--normalize", "log1p"]), ("logs.npz", []))
    ]
    assert [row["features"] for row in found[0]] == [row["features"] for row in found[1]]
    assert [row["nmi"] for row in found[0]] == [row["nmi"] for row in found[1]]


# ---- what is measured ------------------------------------------------------------------------


def test_a_cell_gives_what_one_would_compute_by_hand(sample):
    (cell,) = cells_of(sample, "clustering", methods=["semfs"])
    result = bench_of(sample)(cell)
    X, y, X_unseen, y_unseen = sample.split()
    selector = SemFS(20, attributes=sample.attributes).fit(X, y)
    assert result.features == sample.feature_names[selector.order_[:20]].tolist()
    starts = starting_rows(len(y_unseen), 4, 5, 0)
    accuracies, nmis = cluster_scores(X_unseen[:, selector.order_[:5]], y_unseen, starts=starts)
    assert_allclose(result.scores[5]["acc"], [accuracies.mean(), accuracies.std(ddof=1)])
    assert_allclose(result.scores[5]["nmi"], [nmis.mean(), nmis.std(ddof=1)])


@pytest.mark.slow
def test_l20alm_is_solved_for_each_k_and_says_which_features(sample):
    (cell, *_) = cells_of(sample, "clustering", methods=["l20alm"])
    result = bench_of(sample)(cell)
    X, y, _, _ = sample.split()
    found = L20ALM().path(X, y, (5, 20))
    names = sample.feature_names
    assert result.extra["features_by_k"] == {
        "5": names[found[0].order_[:5]].tolist(),
        "20": names[found[1].order_[:20]].tolist(),
    }


def test_the_heat_width_of_mcfs_is_tuned_in_units_of_its_own_default(sample):
    case = Case.of(sample)
    own = MCFS(5).fit(case.X)
    found = rank(METHODS["mcfs"], {"heat_width_factor": 0.1}, case, (5,))
    assert_allclose(found.selector.heat_width_, 0.1 * own.heat_width_, rtol=1e-5)


def test_a_share_of_each_class_is_drawn_anew_with_every_seed(sample):
    case = Case.of(sample)
    half, other = case.with_ratio(0.5, 0), case.with_ratio(0.5, 1)
    counts = Counter(case.y.tolist())
    assert Counter(half.y.tolist()) == {label: -(-n // 2) for label, n in counts.items()}
    assert not np.array_equal(half.X, other.X)
    assert case.with_ratio(1.0, 0) is case
    tenth = case.with_ratio(0.001, 0)
    assert set(Counter(tenth.y.tolist()).values()) == {2}


# ---- methods of one's own --------------------------------------------------------------------

OWN = '''
import numpy as np
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin, RFE
from sklearn.linear_model import Perceptron


class Reversed(SelectorMixin, BaseEstimator):
    """Ranks the last column first."""

    def __init__(self, n_features_to_select=3, attributes=None):
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes

    def fit(self, X, y):
        assert self.attributes is not None, "no class table was passed on"
        self.order_ = np.arange(X.shape[1])[::-1]
        return self

    def _get_support_mask(self):
        return np.isin(np.arange(len(self.order_)), self.order_[: self.n_features_to_select])


class Broken(Reversed):
    def fit(self, X, y):
        raise RuntimeError("it never works")


number = 5
'''


@pytest.fixture
def own(tmp_path, monkeypatch) -> Path:
    (tmp_path / "own_methods.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)
    return tmp_path


def test_the_ranking_of_a_selector_is_its_order_ranking_or_scores():
    X, y = np.random.RandomState(0).normal(size=(60, 6)), np.arange(60) % 3
    best = SelectKBest(k=2).fit(X, y)
    assert_allclose(ranking_of(best), np.argsort(-best.scores_, kind="stable"))
    one_by_one = RFE(LogisticRegression(), n_features_to_select=1).fit(X, y)
    assert_allclose(one_by_one.ranking_[ranking_of(one_by_one)], np.arange(1, 7))
    ties = RFE(LogisticRegression(), n_features_to_select=3).fit(X, y)
    assert ranking_of(ties) is None
    forest = RandomForestClassifier(5, random_state=0).fit(X, y)
    assert ranking_of(forest)[0] == forest.feature_importances_.argmax()


def test_a_selector_without_a_ranking_is_fitted_again_for_each_k():
    case = methods.scaling_data(60, 6, seed=0, n_classes=3)
    rfe = RFE(LogisticRegression())
    found = rank(Method("rfe", "RFE", rfe), {}, case, (2, 3))
    for k in (2, 3):
        chosen = RFE(LogisticRegression(), n_features_to_select=k).fit(case.X, case.y)
        assert found.by_k[k].tolist() == np.flatnonzero(chosen.get_support()).tolist()
    vague = Method("vague", "Vague", SelectFromModel(LogisticRegression()))
    with pytest.raises(ValueError, match=r"chose \d features when 5 were asked for"):
        rank(vague, {}, case, (5,))


# ---- one's own data --------------------------------------------------------------------------


def test_ones_own_selectors_are_evaluated_on_the_classes_named(sample):
    data = ZeroShotDataset("own", sample.X[:, :40], sample.y, sample.attributes, sample.unseen)
    selectors = ["semfs", SelectKBest(), SelectKBest(), SemFS(gamma=1.0)]
    rows, summary = evaluate(data, selectors, ks=[5], n_repeats=2, n_jobs=1)
    assert summary.failures == []
    (note,) = summary.notes
    assert note.endswith("4 described, not used: 6 seen classes; 8 are needed.")
    labels = [row["label"] for row in rows]
    assert labels == ["SelectKBest", "SelectKBest #2", "SemFS", "SemFS"]
    by_name = {row["method"]: row for row in rows}
    case = Case.of(data)
    selector = SemFS(5, attributes=sample.attributes, gamma=1.0).fit(case.X, case.y)
    assert by_name["SemFS"]["features"] == case.names(selector.order_[:5])
    assert len({row["acc"] for row in rows if row["label"].startswith("Select")}) == 1


def test_without_named_classes_there_are_random_splits_of_the_classes():
    X, y = np.random.RandomState(0).normal(size=(80, 4)), np.arange(80) % 8
    data = ZeroShotDataset("toy", X, y, pd.DataFrame(np.eye(8)))
    rows, _ = evaluate(data, ["variance"], n_splits=2, ks=[2], n_repeats=1, n_jobs=1)
    assert [row["split"] for row in rows] == ["random-0", "random-1"]
    with pytest.raises(ValueError, match="needs 2 seen and 2 unseen"):
        evaluate(ZeroShotDataset("toy", X, y % 3, pd.DataFrame(np.eye(3))), ["variance"])


def test_sparse_rows_become_dense_for_methods_that_need_it_if_they_fit(sample, monkeypatch):
    data = replace(sample, name="cells", X=csr_array(sample.X))
    options = {"ks": [5], "n_repeats": 2, "n_jobs": 1}
    rows, summary = evaluate(data, ["lasso", "variance"], **options)
    assert (len(rows), summary.notes, summary.failures) == (2, [], [])
    monkeypatch.setattr("semfs.lab.methods.memory_limit", lambda: 1000)
    rows, summary = evaluate(data, ["lasso", "variance"], **options)
    assert [row["label"] for row in rows] == ["Variance"]
    assert summary.notes == ["LASSO needs dense rows, too many of them in cells: left out."]


@pytest.mark.parametrize(
    "name, message",
    [
        ("mcsf", "no method 'mcsf'"),
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("own_methods:Absent", "no attribute 'Absent'"),
        ("own_methods:number", "no scikit-learn selector"),
    ],
)
def test_a_method_that_cannot_be_found_is_explained(own, name, message):
    with pytest.raises(ValueError, match=message):
        methods.find_method(name)


# ---- the commands ----------------------------------------------------------------------------


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """A folder with a small data set that takes the place of aPY."""
    folder = tmp_path_factory.mktemp("data")
    X = np.random.RandomState(0).normal(size=(80, 12))
    np.savez(folder / "apy_toy.npz", X=X, y=np.arange(80) % 8, A=np.eye(8))
    return folder


def test_a_failure_is_shown_recorded_and_retried_and_methods_of_ones_own_join(own, toy):
    command = ["reproduce", "clustering", "--out", "run", "--fast", "--splits", 1, "-j", 1]
    command += ["--data", toy, "--method", "own_methods:Broken,own_methods:Reversed"]
    result = invoke(*command)
    assert result.exit_code == 1
    assert "RuntimeError: it never works" in result.stderr
    assert "2 jobs: 0 finished before, 1 computed" in result.stdout
    store = Store("run", create=False)
    assert len(store.failures()) == 1
    assert store.rows()[0]["features"] == [f"x{j}" for j in (11, 10, 9, 8, 7)]

    mended = OWN.replace("raise RuntimeError(", "Reversed.fit(self, X, y); return self; (")
    (own / "own_methods.py").write_text(mended)
    result = invoke(*command)
    assert result.exit_code == 0, result.stderr
    assert "2 jobs: 1 finished before, 1 computed" in result.stdout


def test_a_run_is_continued_with_the_same_settings_and_data_only(toy, tmp_path):
    data = shutil.copytree(toy, tmp_path / "data")
    common = ["reproduce", "alpha", "--data", data, "--out", tmp_path / "run", "-j", 1]
    fast = ["--fast", "--splits", 1, "--method", "semfs"]
    first = invoke(*common, *fast)
    assert "3 jobs: 0 finished before, 3 computed" in first.stdout, first.stderr
    absent = "Data sets of the paper that are absent: SUN, CIFAR10."
    assert absent in first.stdout
    assert Store(tmp_path / "run").info()["notes"] == [absent]
    assert "3 jobs: 3 finished before, 0 computed" in invoke(*common, *fast).stdout
    for more, said in (
        (["--method", "semfs"], "Use another --out"),
        (["--fast", "--method", "variance"], "Variance has no parameter that alpha varies"),
    ):
        result = invoke(*common, *more)
        assert (result.exit_code, said in result.stderr) == (2, True)
    np.savez(data / "apy_toy.npz", X=np.eye(8), y=range(8), A=np.eye(8))
    result = invoke(*common, *fast)
    assert (result.exit_code, "contents have changed" in result.stderr) == (2, True)


@pytest.mark.slow
def test_every_experiment_runs_in_small(tmp_path):
    done = invoke("reproduce", "all", "--fast", "--dataset", "blood", "--out", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert f"semfs report {tmp_path}" in done.stdout
    store = Store(tmp_path, create=False)
    rows, info = store.rows(), store.info()
    assert store.failures() == []
    of = {name: [r for r in rows if r["experiment"] == name] for name in EXPERIMENTS}
    assert {r["k"] for r in of["clustering"]} == {5, 20, 50}
    assert {r["params"]["ratio"] for r in of["labeled-ratio"]} == {0.1, 0.5, 1.0}
    targets = Counter(r["params"]["targets"] for r in of["attributes-vs-labels"])
    assert targets["attributes"] == targets["labels"]
    assert {r["params"]["alpha"] for r in of["alpha"]} == {1e-3, 1.0, 1e3}
    for row in of["convergence"]:
        assert np.all(np.diff(row["extra"]["objective"]) <= 1e-9)
    sizes = {(r["params"]["n"], r["params"]["d"]) for r in of["scaling"]}
    assert sizes == {(300, 200), (600, 200), (300, 100)}
    assert all(r["seconds"] > 0 for r in of["scaling"])
    for metric in ("acc", "nmi"):  # an oracle is never worse than a default on its grid
        found = curves(of["clustering"], metric)
        for name in ("MCFS", "FSASL", "LASSO", "L20ALM"):
            for oracle, default in zip(found[f"{name} (oracle)"], found[name]):
                assert oracle.mean >= default.mean
    assert info["versions"]["semfs"]
    facts = info["datasets"]["blood"]
    assert (facts["n_seen"], facts["n_unseen"], len(facts["seen"])) == (402, 298, 6)
    assert (facts["n_features"], facts["n_attributes"]) == (765, 20)
