"""The paper's experiments in small, and the command that runs and continues them."""

import shutil
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose
from selectors_of_users import SOURCE
from typer.testing import CliRunner

from semfs import SemFS
from semfs.baselines import L20ALM
from semfs.cli import app
from semfs.cli import paper as paper_command
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab import Store
from semfs.lab.compared_method import Size
from semfs.lab.comparison import curves
from semfs.lab.methods import METHODS, find_method
from semfs.lab.paper import EXPERIMENTS, Study, find_experiments
from semfs.lab.plan import plan
from semfs.lab.runner import Protocol, Runner
from semfs.lab.sources import sources_of
from semfs.lab.splits import SplitData, class_splits


@pytest.fixture(scope="module")
def sample() -> ZeroShotDataset:
    return load_sample("lining")


def make_runner(sample, fast=True):
    """A runner of two numbers of features on the split of the cells that line the lung."""
    splits = {"lining": class_splits(sample)}
    sizes = {("lining", "given"): Size(140, 6, fast)}
    return Runner({"lining": lambda: sample}, splits, Protocol((5, 20), 5, 0, fast), sizes)


def plan_jobs(sample, *names: str, methods=(), fast=True):
    """The jobs of experiments on the cells that line the lung."""
    return plan(find_experiments(names), make_runner(sample, fast), methods)[0]


# ---- what is planned -------------------------------------------------------------------------


def test_the_paper_has_these_experiments():
    names = "clustering labeled-ratio attributes-vs-labels alpha convergence "
    names += "preprocessing scaling"
    assert list(EXPERIMENTS) == names.split()
    assert find_experiments(["all"]) == list(EXPERIMENTS.values())


def test_clustering_compares_all_methods_at_defaults_and_baselines_on_the_papers_grid(sample):
    jobs = plan_jobs(sample, "clustering", fast=False)
    counts = Counter(job.label for job in jobs)
    plain = {label: n for label, n in counts.items() if not label.endswith("(oracle)")}
    assert set(plain.values()) == {1}
    assert list(plain) == [METHODS[name].label for name in EXPERIMENTS["clustering"].methods]
    grids = {"MCFS": 6, "FSASL": 25, "LASSO": 5, "L20ALM": 5, "WkNN": 5}
    assert all(counts[f"{name} (oracle)"] == n for name, n in grids.items())
    lasso = [job.params["lam"] for job in jobs if job.label == "LASSO (oracle)"]
    assert lasso == [0.01, 0.1, 1.0, 10.0, 100.0]


@pytest.mark.parametrize("method", ["lasso", "variance", "mcfs"])
def test_methods_that_record_no_objective_are_left_out_of_convergence(sample, method):
    runner = make_runner(sample)
    convergence = find_experiments(["convergence"])
    jobs, notes = plan(convergence, runner, [method, "semfs-published"])
    assert {job.method for job in jobs} == {"semfs-published"}
    (note,) = notes
    assert note.startswith(METHODS[method].label)
    assert "was left out" in note


def test_jobs_of_an_earlier_run_are_recognized(tmp_path):
    earlier = Path(__file__).parent / "data" / "run-of-0.1.sqlite"
    shutil.copy(earlier, tmp_path / "results.sqlite")
    study = Study(("clustering", "alpha"), methods=("semfs",), fast=True)
    sizes = {("toy", "random-0"): Size(60, 6, True)}
    runner = Runner({}, {}, study.protocol(), sizes)
    jobs, _ = plan(find_experiments(study.experiments), runner, study.methods)
    store = Store(tmp_path)
    assert len(jobs) == 4
    assert all(store.is_done(job) for job in jobs)
    store.pin("protocol", study.protocol().as_stored(), "")


# ---- what is measured ------------------------------------------------------------------------


def test_a_job_gives_what_one_would_compute_by_hand(sample):
    (job,) = plan_jobs(sample, "clustering", methods=["semfs"])
    result = make_runner(sample).compute(job)
    X, y, X_unseen, y_unseen = sample.split()
    selector = SemFS(20, attributes=sample.attributes).fit(X, y)
    assert result.features == sample.feature_names[selector.order_[:20]].tolist()
    starts = starting_rows(len(y_unseen), 4, 5, 0)
    accuracies, nmis = cluster_scores(X_unseen[:, selector.order_[:5]], y_unseen, starts=starts)
    assert_allclose(result.scores[5]["acc"], [accuracies.mean(), accuracies.std(ddof=1)])
    assert_allclose(result.scores[5]["nmi"], [nmis.mean(), nmis.std(ddof=1)])


@pytest.mark.slow
def test_l20alm_is_solved_for_each_k_and_says_which_features(sample):
    (job, *_) = plan_jobs(sample, "clustering", methods=["l20alm"])
    result = make_runner(sample).compute(job)
    X, y, _, _ = sample.split()
    found = L20ALM().path(X, y, (5, 20))
    names = sample.feature_names
    assert result.extra["features_by_k"] == {
        "5": names[found[0].order_[:5]].tolist(),
        "20": names[found[1].order_[:20]].tolist(),
    }


# ---- the command -----------------------------------------------------------------------------


def invoke(*arguments: object):
    return CliRunner().invoke(app, [str(a) for a in arguments])


@pytest.fixture
def user_module(tmp_path, monkeypatch) -> Path:
    """A working directory with the module ``own_methods``."""
    (tmp_path / "own_methods.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)
    return tmp_path


@pytest.fixture(scope="module")
def toy(tmp_path_factory) -> Path:
    """A folder with a small data set that takes the place of aPY."""
    folder = tmp_path_factory.mktemp("data")
    X = np.random.RandomState(0).normal(size=(80, 12))
    np.savez(folder / "apy_toy.npz", X=X, y=np.arange(80) % 8, A=np.eye(8))
    return folder


@pytest.mark.slow
def test_a_failure_is_shown_recorded_and_retried_and_methods_of_ones_own_join(user_module, toy):
    command = ["reproduce", "clustering", "--out", "run", "--fast", "--splits", 1, "-j", 1]
    command += ["--data", toy, "--method", "own_methods:Broken,own_methods:Reversed"]
    result = invoke(*command)
    assert result.exit_code == 1
    assert "RuntimeError: it never works" in result.stderr
    assert "2 jobs: 0 finished before, 1 computed" in result.stdout
    store = Store("run", create=False)
    assert len(store.failures()) == 1
    assert store.rows()[0]["features"] == [f"x{j}" for j in (11, 10, 9, 8, 7)]

    mended = SOURCE.replace("raise RuntimeError(", "Reversed.fit(self, X, y); return self; (")
    (user_module / "own_methods.py").write_text(mended)
    result = invoke(*command)
    assert result.exit_code == 0, result.stderr
    assert "own_methods.py has changed." in result.stdout
    assert "2 jobs: 0 finished before, 2 computed" in result.stdout


@pytest.mark.slow
def test_an_edited_selector_is_computed_again_and_no_other_method(user_module, toy):
    rules = user_module / "own_rules.py"
    rules.write_text("DIRECTION = -1\n")
    source = SOURCE.replace("[::-1]", "[::DIRECTION]")
    (user_module / "own_methods.py").write_text(f"from own_rules import DIRECTION\n{source}")
    command = ["reproduce", "clustering", "--out", "run", "--fast", "--splits", 1, "-j", 1]
    command += ["--data", toy, "--method", "variance,own_methods:Reversed"]
    assert "2 jobs: 0 finished before, 2 computed" in invoke(*command).stdout
    unchanged = invoke(*command).stdout
    assert "2 jobs: 2 finished before, 0 computed" in unchanged
    assert "has changed" not in unchanged

    rules.write_text("DIRECTION = 1\n")
    again = invoke(*command).stdout
    assert "2 jobs: 1 finished before, 1 computed" in again
    note = "own_rules.py has changed. Finished jobs of own_methods:Reversed that are computed"
    assert note in " ".join(again.split())
    rows = Store("run", create=False).rows()
    assert {row["features"][0] for row in rows if row["label"] == "Reversed"} == {"x0"}
    assert "2 jobs: 2 finished before, 0 computed" in invoke(*command).stdout


@pytest.mark.slow
def test_results_of_an_old_source_outside_the_command_are_kept_and_named(user_module, toy):
    command = ["--out", "run", "--fast", "--splits", 1, "-j", 1, "--data", toy]
    command += ["--method", "own_methods:Reversed"]
    assert invoke("reproduce", "clustering", *command).exit_code == 0
    (user_module / "own_methods.py").write_text(SOURCE.replace("[::-1]", "[::1]"))
    done = invoke("reproduce", "labeled-ratio", *command)
    assert done.exit_code == 0, done.stderr
    assert "keep the results of the old source until you run them again: 1." in done.stdout
    rows = Store("run", create=False).rows()
    first = {row["experiment"]: row["features"][0] for row in rows}
    assert first == {"clustering": "x11", "labeled-ratio": "x0"}


def test_sources_are_the_files_beside_a_module_that_it_imports(user_module):
    package = user_module / "own_package"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("from .core import Selector\n")
    (package / "core.py").write_text(
        "import numpy\nfrom semfs import SemFS\nclass Selector(SemFS):\n"
        "    def fit(self, X, y):\n        from .parts import rule\n"
    )
    (package / "parts" / "__init__.py").write_text("")
    (package / "parts" / "rule.py").write_text("from ...own_package import data\nimport own\n")
    (package / "data.py").write_text("this is not Python\n")
    (package / "unused.py").write_text("")
    (user_module / "own.py").write_text("import own_package.core\n")
    find_method("own_package.core:Selector")
    files = ["__init__", "core", "data", "parts/__init__", "parts/rule"]
    expected = ["own.py", *(f"own_package/{file}.py" for file in files)]
    assert list(sources_of("own_package.core:Selector")) == expected
    assert sources_of("semfs") == {}


def test_an_installed_package_is_identified_by_its_own_files():
    files = list(sources_of("sklearn.feature_selection:SelectKBest"))
    assert "sklearn/feature_selection/__init__.py" in files
    assert all(file.startswith("sklearn/") for file in files)


def test_own_numbers_of_features_and_metrics_are_evaluated(tmp_path):
    run = tmp_path / "run"
    study = ["reproduce", "clustering", "--dataset", "lining", "-m", "variance", "--fast"]
    wanted = ["-k", "3,7", "--metric", "sklearn.metrics:silhouette_score", "-o", run, "-j", 1]
    done = CliRunner().invoke(app, [str(word) for word in [*study, *wanted]])
    assert done.exit_code == 0, done.stderr
    rows = Store(run, create=False).rows()
    assert [row["k"] for row in rows] == [3, 7]
    assert all(-1.0 <= row["silhouette_score"] <= 1.0 for row in rows)
    # Those of the paper that are absent are no news to who runs own data.
    assert "absent" not in done.stdout
    refused = CliRunner().invoke(app, [*study, "-k", "0.1", "-o", str(tmp_path / "other")])
    assert refused.exit_code == 2
    assert "Give whole numbers" in refused.stderr


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
    changed = "fast was true, is now false; ks was [5, 20, 50], is now [5, 10, 15, 20"
    for options, message in (
        (["--method", "semfs"], "Use another --out"),
        (["--method", "semfs"], changed),
        ([*fast, "--seed", 1], "has other results: seed was 0, is now 1. Use another --out"),
        (["--fast", "--method", "variance"], "because it has no parameter that alpha varies"),
    ):
        result = invoke(*common, *options)
        assert (result.exit_code, message in result.stderr) == (2, True)
    np.savez(data / "apy_toy.npz", X=np.eye(8), y=range(8), A=np.eye(8))
    result = invoke(*common, *fast)
    assert (result.exit_code, "contents of the data have changed" in result.stderr) == (2, True)


def test_a_data_set_that_cannot_be_read_does_not_stop_the_others(toy, tmp_path):
    data = shutil.copytree(toy, tmp_path / "data")
    X = np.full((80, 12), np.nan)
    np.savez(data / "gaps.npz", X=X, y=np.arange(80) % 8, A=np.eye(8))
    command = ["reproduce", "clustering", "--data", data, "--out", tmp_path / "run", "--fast"]
    command += ["--splits", 1, "-j", 1, "-m", "variance"]
    done = invoke(*command)
    assert done.exit_code == 1
    assert "1 jobs: 0 finished before, 1 computed" in done.stdout
    assert "reading the data failed (clustering, gaps, all splits)" in done.stderr
    store = Store(tmp_path / "run", create=False)
    assert {row["dataset"] for row in store.rows()} == {"apy_toy"}
    assert any(note.startswith("gaps was left out: ") for note in store.info()["notes"])
    alone = invoke(*command, "--dataset", "gaps")
    assert (alone.exit_code, "NaN" in alone.stderr) == (2, True)


def test_baselines_run_without_grids_if_asked_for(toy, tmp_path):
    command = ["reproduce", "clustering", "--data", toy, "--out", tmp_path, "--splits", 1]
    done = invoke(*command, "-j", 1, "--fast", "-m", "lasso", "--no-grids")
    assert done.exit_code == 0, done.stderr
    assert {row["label"] for row in Store(tmp_path).rows()} == {"LASSO"}


def test_the_help_of_reproduce_names_all_experiments():
    text = paper_command.EXPERIMENTS
    assert text == f"Experiments: {', '.join(EXPERIMENTS)}, or all."


@pytest.mark.slow
def test_splits_of_a_data_set_that_names_one_are_that_one_and_random_ones(tmp_path):
    X = np.random.RandomState(0).normal(size=(80, 12))
    arrays = {"X": X, "y": np.arange(80) % 8, "A": np.eye(8), "unseen": [1, 4, 6]}
    np.savez(tmp_path / "apy_toy.npz", **arrays)
    command = ["reproduce", "clustering", "--data", tmp_path, "--out", tmp_path / "run"]
    command += ["--fast", "-m", "variance", "-j", 1]
    assert "1 jobs: 0 finished before" in invoke(*command).stdout
    assert "3 jobs: 1 finished before" in invoke(*command, "--splits", 3).stdout
    rows = Store(tmp_path / "run", create=False).rows()
    assert sorted({row["split"] for row in rows}) == ["given", "random-0", "random-1"]


def test_convergence_without_a_method_that_has_an_objective_says_which_to_use(tmp_path):
    done = invoke("reproduce", "convergence", "--fast", "-m", "lasso", "--out", tmp_path)
    assert done.exit_code == 2
    assert "LASSO was left out, because convergence shows the objective" in done.stderr
    assert "defaults: semfs-published, semfs-alternating." in done.stderr


def test_a_selector_of_the_user_without_objective_fails_with_a_reason(user_module, toy):
    command = ["reproduce", "convergence", "--fast", "--data", toy, "--splits", 1, "-j", 1]
    done = invoke(*command, "--out", "run", "-m", "own_methods:Iterative")
    assert done.exit_code == 1
    assert "Iterative has no objective_ after fit" in done.stderr


@pytest.mark.slow
def test_unlabeled_samples_need_a_run_of_their_own(toy, tmp_path):
    command = ["reproduce", "clustering", "--data", toy, "--out", tmp_path / "run"]
    command += ["--fast", "--splits", 1, "-j", 1, "-m"]
    done = invoke(*command, "variance,semfs-unlabeled")
    assert done.exit_code == 0, done.stderr
    assert "For all methods, the other half is clustered." in done.stdout
    assert Store(tmp_path / "run").info()["protocol"]["unlabeled_half"] is True
    done = invoke(*command, "variance")
    assert (done.exit_code, "Use another --out" in done.stderr) == (2, True)


@pytest.mark.slow
def test_every_experiment_runs_in_small(tmp_path):
    done = invoke("reproduce", "all", "--fast", "--dataset", "lining", "--out", tmp_path)
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
    facts = info["datasets"]["lining"]
    assert (facts["n_seen"], facts["n_unseen"], len(facts["seen"])) == (140, 309, 6)
    assert (facts["n_features"], facts["n_attributes"]) == (800, 16)


# ---- preprocessing ---------------------------------------------------------------------------


def test_preprocessing_is_fitted_to_the_seen_samples_alone(sample):
    split = SplitData.of(sample)
    standardized = split.with_preprocessing("standardized")
    assert_allclose(standardized.X.mean(axis=0), 0.0, atol=1e-5)
    assert np.abs(standardized.X_unseen.mean(axis=0)).max() > 0.1
    lengths = np.linalg.norm(split.with_preprocessing("unit rows").X_unseen, axis=1)
    assert_allclose(lengths, 1.0, rtol=1e-5)
    assert split.with_preprocessing("raw") is split
    with pytest.raises(ValueError, match="Known: raw, standardized"):
        split.with_preprocessing("whitened")
