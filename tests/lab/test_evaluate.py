"""Comparing selectors on the unseen classes of a data set or file."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.io import mmwrite
from scipy.sparse import coo_array, csr_array
from sklearn.feature_selection import SelectKBest, f_regression
from typer.testing import CliRunner

from semfs import SemFS
from semfs.cli import app
from semfs.datasets import ZeroShotDataset, load_npz, load_sample
from semfs.lab.data import open_data
from semfs.lab.evaluate import evaluate
from semfs.lab.methods import find_method
from semfs.lab.report import write_report
from semfs.lab.restricted import restricted
from semfs.lab.splits import SplitData, splits_in_file


@pytest.fixture(scope="module")
def sample() -> ZeroShotDataset:
    return load_sample("lining")


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


# ---- data sets and selectors in Python -------------------------------------------------------


def test_ones_own_selectors_are_evaluated_on_the_classes_named(sample):
    data = ZeroShotDataset("own", sample.X[:, :40], sample.y, sample.attributes, sample.unseen)
    selectors = ["semfs", SelectKBest(), SelectKBest(), SemFS(gamma=1.0)]
    rows, summary = evaluate(data, selectors, ks=[5], n_repeats=2, n_jobs=1)
    assert summary.failures == []
    (note,) = summary.notes
    assert note.endswith("4 described, not used: found 6 seen classes, but 8 are needed.")
    # In the order given; each selector has a label of its own.
    labels = [row["label"] for row in rows]
    assert labels == ["SemFS", "SelectKBest", "SelectKBest #2", "SemFS(gamma=1.0)"]
    by_name = {row["method"]: row for row in rows}
    split = SplitData.of(data)
    selector = SemFS(5, attributes=sample.attributes, gamma=1.0).fit(split.X, split.y)
    assert by_name["SemFS(gamma=1.0)"]["features"] == split.names_of(selector.order_[:5])
    assert len({row["acc"] for row in rows if row["label"].startswith("Select")}) == 1


def test_classes_that_differ_only_in_case_or_spaces_are_noted(sample):
    y = sample.y.astype(object)
    first = np.flatnonzero(y == sample.seen[0])[:6]
    y[first] = sample.seen[0].upper()
    table = sample.attributes.copy()
    table.loc[sample.seen[0].upper()] = table.loc[sample.seen[0]]
    data = ZeroShotDataset("own", sample.X[:, :20], y.astype(str), table, sample.unseen)
    _, summary = evaluate(data, ["variance"], ks=[5], n_repeats=1, n_jobs=1)
    (note,) = [note for note in summary.notes if "case or spaces" in note]
    assert note.startswith("These labels differ only in case or spaces: ")


def test_all_methods_obey_candidates_exclusions_and_the_least_number_of_samples(sample):
    names = sample.feature_names.tolist()
    allowed = [name for name in names[:30] if name not in names[2:4]]
    rare = sample.seen[0]
    few = np.flatnonzero(sample.y == rare)[3:]
    kept = np.setdiff1d(np.arange(len(sample.y)), few)
    data = replace(sample, X=sample.X[kept], y=sample.y[kept])
    with pytest.warns(UserWarning, match=rf"fewer than 4 samples: {rare} \(3\)"):
        found = restricted(data, candidates=names[:30], exclude=names[2:4], min_cells=4)
    assert found.feature_names.tolist() == allowed
    assert rare not in found.classes
    assert rare not in found.attributes.index  # no method expects it
    by_hand = data.X[:, np.isin(names, allowed)][data.y != rare]
    assert_allclose(found.X, by_hand)
    rows, _ = evaluate(found, ["semfs", "variance"], ks=[5], n_repeats=1, n_jobs=1)
    for row in rows:
        assert set(row["features"]) <= set(allowed)
    with pytest.raises(ValueError, match="exclude leaves no feature"):
        restricted(sample, exclude=["re:."])
    with (
        pytest.warns(UserWarning, match="fewer than 100000"),
        pytest.raises(ValueError, match="min_cells is 100000, but no class"),
    ):
        restricted(sample, min_cells=100000)


def test_rules_of_a_panel_hold_for_semfs_at_every_size_and_for_no_other_method(sample):
    wanted = str(sample.feature_names[7])
    rules = {"include": [wanted], "min_per_class": 1}
    methods = ["semfs", "semfs-unlabeled", "random"]
    ks = [2, 15, 30]
    rows, summary = evaluate(sample, methods, ks=ks, n_repeats=2, n_jobs=1, rules=rules)
    # two features cannot mark every class
    of_semfs = [row for row in rows if row["method"] != "random"]
    assert {row["k"] for row in of_semfs} == {15, 30}
    assert all(wanted in row["features"] for row in of_semfs)
    # the panel of 15 is that of a fit for 15, and not the first 15 of 30
    first = next(row for row in of_semfs if row["method"] == "semfs" and row["k"] == 15)
    selector = SemFS(15, sample.attributes, target_attributes=None)
    selector.set_params(min_per_class=1, include=[7]).fit(*sample.split()[:2])
    assert sorted(first["features"]) == sorted(sample.feature_names[selector.order_[:15]])
    assert any("apply only to these methods: SemFS, SemFS, " in note for note in summary.notes)
    with pytest.raises(ValueError, match="not among the methods"):
        evaluate(sample, ["random"], ks=[5], rules=rules)


@pytest.mark.parametrize("option", ["--costs", "--budget", "--min-level"])
def test_rules_that_a_comparison_does_not_apply_are_refused_with_a_remedy(option):
    done = invoke("evaluate", "lining", option, 3)
    assert done.exit_code == 2
    assert f"{option} is not applied in a comparison" in done.stderr
    assert "--panel" in done.stderr


@pytest.fixture
def plates(sample):
    """The sample without and with the offsets of two plates; the plates."""
    rng = np.random.default_rng(0)
    plate = np.where(rng.random(len(sample.y)) < 0.4, "p1", "p2")
    X = np.asarray(sample.X, dtype=np.float64)
    shifted = X + (plate == "p1")[:, None] * rng.normal(scale=5.0, size=X.shape[1])
    return X, shifted, plate


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_offsets_of_batches_are_found_in_seen_samples_and_removed_from_all(
    sample, plates, form
):
    X, shifted, plate = plates
    given = csr_array(shifted) if form == "sparse" else shifted
    data = replace(sample, X=given, batch=plate)
    X_seen, _, X_unseen, y_unseen = data.split()
    expected = replace(sample, X=X).split()
    assert_array_equal(y_unseen, expected[3])
    # what is left is one shift of all samples, up to chance differences of the plates
    for found, other, tolerance in ((X_seen, expected[0], 0.2), (X_unseen, expected[2], 0.2)):
        rest = found - other
        assert np.abs(rest - rest.mean(axis=0)).mean() < tolerance
    # within each class and plate nothing changes
    unseen = np.isin(data.y, data.unseen)
    rows = (plate[unseen] == "p1") & (y_unseen == y_unseen[0])
    difference = X_unseen[rows] - shifted[unseen][rows]
    assert_allclose(difference, np.broadcast_to(difference[0], difference.shape), atol=1e-8)
    # the fit of SemFS finds the same offsets
    selector = SemFS(5, max_correlation=None).fit(
        shifted[~unseen], data.y[~unseen], batch=plate[~unseen]
    )
    offset = shifted[~unseen] - X_seen
    first = offset[plate[~unseen] == "p1"][0]
    assert_allclose(first[selector.get_support()], selector.batch_offsets_[0], rtol=1e-5)


def test_batches_that_no_seen_class_has_are_left_as_they_are(sample):
    unseen = np.isin(sample.y, sample.unseen)
    plate = np.where(unseen, "new", np.where(np.arange(len(unseen)) % 2, "a", "b"))
    _, _, X_unseen, _ = replace(sample, batch=plate).split()
    assert_array_equal(X_unseen, sample.split()[2])
    one = replace(sample, batch=np.full(len(unseen), "only")).split()[0]
    assert_array_equal(one, sample.split()[0])


def test_evaluate_removes_batches_for_all_methods(sample, plates, tmp_path):
    X, shifted, plate = plates
    names = sample.feature_names
    frame = pd.DataFrame(shifted, columns=names).assign(type=sample.y, plate=plate)
    frame.to_parquet(tmp_path / "cells.parquet")
    sample.attributes.to_csv(tmp_path / "types.csv")
    command = [
        "evaluate",
        tmp_path / "cells.parquet",
        "-l",
        "type",
        "-a",
        tmp_path / "types.csv",
    ]
    command += ["--unseen", sample.unseen[0], "--unseen", sample.unseen[1]]
    command += ["-m", "variance", "-k", "10", "--repeats", "2", "-j", "1", "--json"]
    done = invoke(*command, "--batch", "plate")
    assert done.exit_code == 0, done.output
    assert "differences between 2 batches were estimated" in " ".join(done.stderr.split())
    (row,) = json.loads(done.stdout)
    data = replace(sample, X=shifted, batch=plate).with_unseen(sample.unseen[:2])
    (expected,), _ = evaluate(data, ["variance"], ks=[10], n_repeats=2, n_jobs=1)
    assert row["features"] == expected["features"]
    assert row["acc"] == pytest.approx(expected["acc"])
    # plates are no longer what varies most
    left, _ = evaluate(replace(data, batch=None), ["variance"], ks=[10], n_repeats=2, n_jobs=1)
    clean, _ = evaluate(
        replace(data, X=X, batch=None), ["variance"], ks=[10], n_repeats=2, n_jobs=1
    )
    found = {name: set(of[0]["features"]) for name, of in (("left", left), ("clean", clean))}
    assert len(found["clean"] & set(row["features"])) > len(found["clean"] & found["left"])


def test_batches_that_are_the_classes_are_refused(sample):
    with pytest.raises(ValueError, match="divide the samples in the same way"):
        replace(sample, batch=sample.y).split()


def test_unseen_classes_of_few_samples_are_noted(sample):
    rare = sample.unseen[0]
    kept = np.setdiff1d(np.arange(len(sample.y)), np.flatnonzero(sample.y == rare)[2:])
    data = replace(sample, X=sample.X[kept], y=sample.y[kept])
    _, summary = evaluate(data, ["variance"], ks=[5], n_repeats=1, n_jobs=1)
    assert any(f"fewer than 5 samples: {rare} (2)" in note for note in summary.notes)


def test_names_of_scanpy_mean_the_same_methods():
    assert find_method("rank_genes_groups") is find_method("markers")
    assert find_method("highly_variable_genes") is find_method("hvg")


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
    monkeypatch.setattr("semfs.lab.compared_method.memory_limit", lambda: 1000)
    rows, summary = evaluate(data, ["lasso", "variance"], **options)
    assert [row["label"] for row in rows] == ["Variance"]
    assert summary.notes == [
        "LASSO was left out, because it needs dense samples and cells does not fit into "
        "memory in dense form."
    ]


def test_with_unlabeled_samples_all_methods_are_scored_on_the_other_half(sample):
    options = {"ks": [5], "n_repeats": 2, "n_jobs": 1}
    rows, summary = evaluate(sample, ["semfs-unlabeled", "variance"], **options)
    assert summary.failures == []
    assert any("For all methods, the other half is clustered." in n for n in summary.notes)
    by_method = {row["method"]: row for row in rows}
    plain, _ = evaluate(sample, ["variance"], **options)
    assert by_method["variance"]["features"] == plain[0]["features"]
    assert by_method["variance"]["acc"] != plain[0]["acc"]
    split = SplitData.of(sample).with_unlabeled_half(0)
    selector = SemFS(5, sample.attributes).fit(split.X, split.y, X_unlabeled=split.X_unlabeled)
    expected = split.names_of(selector.order_[:5])
    assert by_method["semfs-unlabeled"]["features"] == expected


def test_random_has_scores_but_no_list_of_features(sample):
    rows, _ = evaluate(sample, ["random"], n_splits=2, ks=[5], n_repeats=2, n_jobs=1)
    assert [row["features"] for row in rows] == [[], []]
    assert all(row["extra"]["random_draws"] for row in rows)
    assert rows[0]["acc"] != rows[1]["acc"]


def test_the_summary_has_the_facts_that_the_report_shows(sample):
    _, summary = evaluate(sample, ["variance"], ks=[5], n_repeats=1, n_jobs=1)
    facts = summary.info["datasets"][sample.name]
    assert (facts["n_seen"], facts["n_unseen"]) == (140, 309)
    assert facts["unseen"] == sample.unseen.tolist()
    assert summary.info["started"].startswith("20")


# ---- files -----------------------------------------------------------------------------------


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
    assert (first["split"], first["label"]) == ("random-0", "Variance")
    given = ["--unseen", '"f, g", a', "--unseen", "b"]
    rows = json.loads(invoke("evaluate", files / name, *own, *rest, *given).stdout)
    assert {row["split"] for row in rows} == {"given"}
    assert {len(row["features"]) for row in rows} == {2}


def test_own_class_splits_are_evaluated_in_one_call(files, tmp_path):
    path = files / "cells.npz"
    lists = [["a", "b"], ["c", "d"], ["e", "f, g"]]
    options = {"ks": [2], "n_repeats": 2, "n_jobs": 1}
    rows, summary = evaluate(path, ["variance"], splits=lists, **options)
    assert [row["split"] for row in rows] == ["listed-0", "listed-1", "listed-2"]
    facts = summary.info["datasets"]["cells"]["splits"]
    assert [split["unseen"] for split in facts.values()] == lists
    with pytest.raises(ValueError, match="not both"):
        evaluate(path, ["variance"], splits=lists, n_splits=2, **options)
    data = load_npz(path)
    apart = [evaluate(data.with_unseen(u), ["variance"], **options)[0] for u in lists]
    with pytest.raises(ValueError, match=r"two rows have data set .*splits=\[...\]"):
        write_report([row for rows in apart for row in rows], tmp_path / "page.html")
    with pytest.raises(ValueError, match=r"splits\[2\] has the same .* as splits\[0\]"):
        evaluate(path, ["variance"], splits=[*lists[:2], ["b", "a"]], **options)
    (tmp_path / "splits.txt").write_text('a, b\n\nc,d\ne,"f, g"\n', encoding="utf-8")
    rest = ["-m", "variance", "-k", 2, "--repeats", 2, "-j", 1]
    done = invoke("evaluate", path, *rest, "--unseen-file", tmp_path / "splits.txt")
    assert "3 class splits: 2 of 6 classes are unseen in each." in done.stdout
    done = invoke("evaluate", path, *rest, "--n-unseen", 3, "--splits", 2)
    assert "2 class splits: 3 of 6 classes are unseen in each." in done.stdout
    refused = invoke("evaluate", path, *rest, "--n-unseen", 5)
    assert "--n-unseen is 5" in refused.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b\n\nb, a\n", "splits.txt, line 3, has the same unseen classes as"),
        ("a,b\nc,zz\n", "splits.txt, line 2, names class 'zz', which has no samples."),
        ("a,b\nc,c\n", "splits.txt, line 2, names class 'c' more than once."),
        ("a\n", "splits.txt, line 1, has 5 seen and 1 unseen classes, but at least 2"),
        ("\n", "splits.txt is empty. For each split, write one line"),
    ],
)
def test_a_mistake_in_a_file_of_splits_is_named_with_its_line(files, tmp_path, text, message):
    (tmp_path / "splits.txt").write_text(text, encoding="utf-8")
    data = load_npz(files / "cells.npz")
    with pytest.raises(ValueError) as error:
        splits_in_file(data, tmp_path / "splits.txt")
    assert message in str(error.value)


def test_several_splits_in_an_npz_file_are_refused(tmp_path):
    path = tmp_path / "cells.npz"
    arrays = {"X": np.eye(6), "y": np.arange(6), "A": np.eye(6)}
    np.savez(path, **arrays, unseen=[[0, 1], [2, 3]])
    with pytest.raises(ValueError, match=r"unseen has shape \(2, 2\).*--unseen-file"):
        load_npz(path)
    np.savez(path, **arrays, unseen=[[0, 1]])
    assert load_npz(path).unseen.tolist() == [0, 1]


def test_numbers_of_features_that_are_left_out_are_noted_first(sample):
    _, summary = evaluate(sample, ["semfs"], ks=[5, 10**6], n_repeats=2, n_jobs=1)
    n_features = sample.X.shape[1]
    assert summary.notes[0] == (
        f"k = 1000000 left out, because {sample.name} has only {n_features} features."
    )


@pytest.mark.slow
def test_a_stopped_comparison_continues_in_its_run_directory(sample, tmp_path):
    options = {"ks": [5], "n_repeats": 2, "n_jobs": 1, "run_folder": tmp_path}
    first, _ = evaluate(sample, ["variance"], **options)
    methods = ["between", "variance", SelectKBest()]
    both, summary = evaluate(sample, methods, **options)
    assert (summary.n_before, summary.n_computed) == (1, 2)
    labels = ["Between-class variance", "Variance", "SelectKBest"]
    assert [row["label"] for row in both] == labels
    assert both[1] == first[0]
    again, summary = evaluate(sample, ["variance"], **options)
    assert (again, summary.n_computed) == (first, 0)
    # What was computed with other options is not shown as theirs.
    with pytest.raises(ValueError, match="n_repeats was 2, is now 3"):
        evaluate(sample, ["variance"], **options | {"n_repeats": 3})
    with pytest.raises(ValueError, match="scale was false, is now true"):
        evaluate(replace(sample, scale=True), ["variance"], **options)
    evaluate(sample, ["variance"], **options, n_splits=1)
    with pytest.raises(ValueError, match=r"unseen classes of .*, random-0 was"):
        evaluate(sample, ["variance"], **options, n_splits=1, n_unseen=2)
    with pytest.raises(ValueError, match="selector SelectKBest was"):
        evaluate(sample, [SelectKBest(f_regression)], **options)


def test_a_metric_that_is_a_function_is_answered_with_how_to_name_it():
    with pytest.raises(ValueError, match="pass 'my_metrics:invoke'"):
        evaluate("sample", ["variance"], metrics=[invoke])


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


def test_a_10x_folder_with_a_label_file_is_a_data_set(tmp_path):
    folder = tmp_path / "10x"
    folder.mkdir()
    counts = np.random.default_rng(0).poisson(3.0, (12, 5)) + 1
    mmwrite(folder / "matrix.mtx", coo_array(counts.T))
    (folder / "features.tsv").write_text("".join(f"id{j}\tg{j}\n" for j in range(5)))
    (folder / "barcodes.tsv").write_text("".join(f"cell{i}\n" for i in range(12)))
    types = ["a", "b", "c", "d"] * 3
    lines = [f"cell{i},{types[i]}\n" for i in reversed(range(12))]
    (tmp_path / "types.csv").write_text("".join(lines))
    label = str(tmp_path / "types.csv")
    data = open_data(folder, label, "labels", normalize="log1p")
    assert data.y.tolist() == types
    assert list(data.feature_names) == [f"g{j}" for j in range(5)]
    # One gene of high expression, as counts have.
    mmwrite(folder / "matrix.mtx", coo_array(counts.T * [[1], [1], [1], [1], [50]]))
    with pytest.warns(UserWarning, match="normalize: the cells hold raw counts"):
        open_data(folder, label, "labels")
