"""Methods by name, selectors of users, and how a selector becomes lists of features."""

import sys
import warnings
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose
from selectors_of_users import SOURCE
from sklearn.base import BaseEstimator
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_selection import RFE, SelectFromModel, SelectKBest
from sklearn.linear_model import LogisticRegression

from semfs import SemFS
from semfs.baselines import MCFS, RandomSelector
from semfs.datasets import ZeroShotDataset, load_sample
from semfs.evaluation import cluster_scores, starting_rows
from semfs.lab.compared_method import Method
from semfs.lab.fitting import fit_selector, prepare, ranking_of
from semfs.lab.hvg import HighlyVariableGenes
from semfs.lab.methods import METHODS, find_method, panel_method
from semfs.lab.scoring import score_random_draws
from semfs.lab.splits import SplitData, synthetic_data


@pytest.fixture(scope="module")
def sample() -> ZeroShotDataset:
    return load_sample("lining")


@pytest.fixture
def user_module(tmp_path, monkeypatch):
    """A working directory with the module ``own_methods``."""
    (tmp_path / "own_methods.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "own_methods", raising=False)
    return tmp_path


def select(method, split, ks, **params):
    """Features for each k, and the fitted selector."""
    selector, samples = prepare(method, params, split, ks)
    return fit_selector(selector, samples, ks, method.uses_unlabeled)


# ---- rankings --------------------------------------------------------------------------------


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


@pytest.mark.parametrize(
    ("fitted", "message"),
    [
        (
            {"scores_": np.ones(4)},
            "scores_ has 4 values, but the selector was fitted to 6 features",
        ),
        ({"scores_": np.full(6, np.nan)}, "scores_ has no finite value"),
        ({"feature_importances_": np.full(6, np.inf)}, "_importances_ has no finite value"),
        ({"ranking_": np.arange(5)}, "ranking_ has 5 values"),
        ({"order_": np.array([0, 9])}, "order_ must hold different column numbers"),
        ({"order_": np.array([1, 1])}, "order_ must hold different column numbers"),
        ({"order_": np.array([0.5, 1.0])}, "order_ must hold different column numbers"),
    ],
)
def test_a_ranking_that_does_not_rank_the_features_names_its_method(fitted, message):
    class Own(BaseEstimator):
        def fit(self, X, y):
            vars(self).update(fitted)
            return self

    split = synthetic_data(30, 6, seed=0, n_classes=3)
    with pytest.raises(ValueError, match=f"Own: .*{message}"):
        select(Method("own", "Own", Own), split, (2,))


def test_a_class_without_parameters_is_told_what_to_inherit_from():
    class Bare:
        def fit(self, X, y):
            self.scores_ = np.ones(X.shape[1])

    with pytest.raises(ValueError, match=r"inherit from sklearn\.base\.BaseEstimator"):
        find_method(Bare())


def test_settings_and_solver_of_the_paper_are_varied_one_at_a_time(sample):
    split = SplitData.of(sample)
    fitted = {
        name: select(METHODS[name], split, (3,), **METHODS[name].params(None))[1]
        for name in ("semfs", "semfs-published", "semfs-eq4", "semfs-alternating")
    }
    published, eq4 = (fitted[name].get_params() for name in ("semfs-published", "semfs-eq4"))
    assert {name for name in eq4 if repr(eq4[name]) != repr(published[name])} == {"solver"}
    assert eq4["solver"] == "direct"
    # Algorithm 1 does not use descriptions of unseen classes, whatever target_attributes is.
    ours, alternating = (fitted[name].get_params() for name in ("semfs", "semfs-alternating"))
    differing = {name for name in ours if repr(ours[name]) != repr(alternating[name])}
    assert differing == {"solver", "target_attributes"}
    assert "unseen classes" not in fitted["semfs-alternating"].knowledge_


def test_a_selector_without_a_ranking_is_fitted_again_for_each_k():
    split = synthetic_data(60, 6, seed=0, n_classes=3)
    rfe = RFE(LogisticRegression())
    features_by_k, _ = select(Method("rfe", "RFE", rfe), split, (2, 3))
    for k in (2, 3):
        chosen = RFE(LogisticRegression(), n_features_to_select=k).fit(split.X, split.y)
        assert features_by_k[k].tolist() == np.flatnonzero(chosen.get_support()).tolist()
    vague = Method("vague", "Vague", SelectFromModel(LogisticRegression()))
    with pytest.raises(ValueError, match=r"selected \d features when 5 were asked for"):
        select(vague, split, (5,))


def test_the_heat_width_of_mcfs_is_tuned_in_units_of_its_own_default(sample):
    split = SplitData.of(sample)
    automatic = MCFS(5).fit(split.X)
    _, fitted = select(METHODS["mcfs"], split, (5,), heat_width_factor=0.1)
    assert_allclose(fitted.heat_width_, 0.1 * automatic.heat_width_, rtol=1e-5)


# ---- methods by name -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name, message",
    [
        ("mcsf", "no method 'mcsf'"),
        ("no_such_module:A", "No module named 'no_such_module'"),
        ("own_methods:Absent", "no attribute 'Absent'"),
        ("own_methods:number", "not a scikit-learn selector"),
    ],
)
def test_a_method_that_cannot_be_found_is_explained(user_module, name, message):
    with pytest.raises(ValueError, match=message):
        find_method(name)


def test_selectors_of_others_get_classes_as_numbers_and_those_with_attributes_labels(
    sample, user_module
):
    split = SplitData.of(sample)
    assert split.y.dtype.kind == "U"
    method = find_method("own_methods:NeedsNumbers")
    features_by_k, _ = select(method, split, (5,))
    codes = np.unique(split.y, return_inverse=True)[1]
    order = np.argsort(-np.abs(split.X.T @ codes.astype(float)), kind="stable")
    assert features_by_k[5].tolist() == order[:5].tolist()
    _, samples = prepare(find_method("own_methods:Reversed"), {}, split, (5,))
    assert samples.y is split.y
    _, samples = prepare(METHODS["markers"], {}, split, (5,))
    assert samples.y is split.y


def test_a_panel_is_a_method_of_given_features_as_far_as_they_go(sample):
    split = SplitData.of(sample)
    names = split.names_of(np.array([7, 3, 11]))
    features_by_k, _ = select(panel_method("Mine", names), split, (2, 3, 5))
    assert {k: f.tolist() for k, f in features_by_k.items()} == {2: [7, 3], 3: [7, 3, 11]}
    typo = [names[0], f"{names[1]}x"]
    with pytest.raises(ValueError, match="1 of 2 features of the panel are not in the data"):
        select(panel_method("Mine", typo), split, (2,))


# ---- unlabeled samples -----------------------------------------------------------------------


def test_semfs_unlabeled_is_fitted_with_the_half_that_is_not_clustered(sample):
    split = SplitData.of(sample).with_unlabeled_half(0)
    features_by_k, fitted = select(METHODS["semfs-unlabeled"], split, (5, 20))
    selector = SemFS(20, sample.attributes).fit(split.X, split.y, X_unlabeled=split.X_unlabeled)
    assert features_by_k[20].tolist() == selector.order_[:20].tolist()
    assert len(fitted.unlabeled_labels_) == len(split.X_unlabeled)


# ---- Random ----------------------------------------------------------------------------------


def test_random_draws_new_features_for_every_run_and_split(sample):
    split = SplitData.of(sample, "random-0")
    scores = score_random_draws(split, RandomSelector(), (5,), 3, seed=0)
    draws = np.random.RandomState(split.seed(0)).randint(2**31 - 1, size=3)
    starts = starting_rows(len(split.y_unseen), 4, 3, 0)
    accuracies = []
    for i, draw in enumerate(draws):
        features = RandomSelector(random_state=int(draw)).fit(split.X).order_[:5]
        X = split.X_unseen[:, features]
        accuracies.append(cluster_scores(X, split.y_unseen, starts=starts[[i]])[0][0])
    assert_allclose(scores[5]["acc"], [np.mean(accuracies), np.std(accuracies, ddof=1)])
    other = SplitData.of(sample, "random-1")
    assert score_random_draws(other, RandomSelector(), (5,), 3, seed=0) != scores


# ---- highly variable genes -------------------------------------------------------------------


def log_counts(n=300, d=120):
    """Logarithms of counts of genes with various means, one constant, one alone in its bin."""
    rng = np.random.RandomState(0)
    counts = rng.poisson(rng.gamma(1.0, rng.uniform(0.2, 6.0, size=d), size=(n, d)))
    counts[:, 0] = 0
    counts[:, 1] = rng.poisson(400.0, size=n)
    return np.log1p(counts.astype(np.float64))


def test_highly_variable_genes_are_those_of_scanpy():
    scanpy = pytest.importorskip("scanpy")
    anndata = pytest.importorskip("anndata")
    X = log_counts()
    adata = anndata.AnnData(X)
    expected = scanpy.pp.highly_variable_genes(adata, flavor="seurat", inplace=False)
    found = HighlyVariableGenes().fit(X)
    normalized = expected["dispersions_norm"].to_numpy(dtype=float)
    varying = np.isfinite(normalized)
    assert varying.sum() == X.shape[1] - 1
    assert_allclose(found.scores_[varying], normalized[varying], rtol=1e-5)
    assert np.isneginf(found.scores_[~varying]).all()


def test_highly_variable_genes_of_sparse_and_dense_cells_are_the_same():
    sparse = pytest.importorskip("scipy.sparse")
    X = log_counts()
    dense = HighlyVariableGenes(10).fit(X)
    assert_allclose(HighlyVariableGenes().fit(sparse.csr_array(X)).scores_, dense.scores_)
    assert np.flatnonzero(dense.get_support()).tolist() == sorted(dense.order_[:10])
    assert dense.order_[-1] == 0  # does not vary
    assert dense.scores_[1] == 1.0  # alone in its bin


@pytest.mark.parametrize("change", [lambda X: X - 1.0, np.expm1])
def test_highly_variable_genes_need_logarithms(change):
    with pytest.raises(ValueError, match="need logarithms of normalized counts"):
        HighlyVariableGenes().fit(change(log_counts()))


class Talkative(BaseEstimator):
    """Prints its progress by default, as some packages do; does not rank features."""

    def __init__(self, k=1, verbose=1):
        self.k = k
        self.verbose = verbose

    def fit(self, X, y):
        if self.verbose:
            print("step 1")
        warnings.warn("a feature is constant", UserWarning, stacklevel=1)
        self.n_features_ = X.shape[1]
        return self

    def get_support(self):
        return np.arange(self.n_features_) < self.k


def test_selectors_of_others_are_quiet(capsys):
    X = np.eye(4)
    y = np.array([0, 0, 1, 1])
    split = SplitData(X, y, None, X, y, np.array(["a", "b", "c", "d"]))
    method = find_method(Talkative())
    quiet = replace(method, selector=Talkative)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found, _ = fit_selector(*prepare(quiet, {}, split, [1, 2]), [1, 2])
    assert found[2].tolist() == [0, 1]
    assert capsys.readouterr().out == ""
    # whoever asks for it by an instance gets it
    with warnings.catch_warnings(action="ignore"):
        fit_selector(*prepare(method, {}, split, [1]), [1])
    assert "step 1" in capsys.readouterr().out
