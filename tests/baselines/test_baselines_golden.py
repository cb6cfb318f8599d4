"""The baselines give the numbers of the original programs (see tests/golden/README.md)."""

from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.datasets import load_digits
from sklearn.linear_model import Lasso, MultiTaskLasso

from semfs.baselines import FSASL, L20ALM, MCFS, LassoSelector, WkNN, mcfs
from semfs.baselines.base import standardize_columns
from semfs.baselines.l20alm import RidgeSystem

GOLDEN = np.load(Path(__file__).parents[1] / "golden" / "baselines.npz")
RELEVANT = {0, 3, 7, 11, 16}  # the columns of synth60 that depend on the class
ATTRIBUTES = np.array([[1.0, 0.0], [0.0, 1.0], [0.5, 0.5]])


def toy12():
    i = np.arange(12)
    y = i // 4
    columns = [
        2 * (y == 0) + 0.1 * np.sin(i + 1),
        2 * (y == 1) + 0.1 * np.cos(2 * i + 1),
        2 * (y == 2) + 0.1 * np.sin(3 * i + 2),
        0.5 * np.sin(5 * i + 1),
        0.5 * np.cos(7 * i + 3),
        1.8 * (y == 0) + 0.3 * np.cos(11 * i),
    ]
    return np.round(np.column_stack(columns), 4), y


def digits300():
    X, y = load_digits(return_X_y=True)
    return X[:300], y[:300]


def data(name):
    if name == "synth60":
        return GOLDEN["synth60__X"], GOLDEN["synth60__y"]
    return {"toy12": toy12, "digits300": digits300}[name]()


def keys(prefix):
    """Names of the golden arrays of one method, without the prefix."""
    return [k.removeprefix(prefix) for k in GOLDEN.files if k.startswith(prefix)]


@pytest.mark.parametrize("weight", ["heat", "binary"])
@pytest.mark.parametrize("name", ["toy12", "synth60"])
def test_mcfs_graph_is_the_original_graph(name, weight):
    X, _ = data(name)
    width = mcfs.mean_distance(X, np.random.RandomState(0)) if weight == "heat" else None
    W = mcfs.neighbor_graph(*mcfs.nearest_neighbors(X, 5), width)
    assert_allclose(W.toarray(), GOLDEN[f"mcfs__{name}__{weight}__graph"], atol=1e-9)


@pytest.mark.parametrize(
    "weight, expected", [("heat", [0.739311, 0.353217]), ("binary", [0.601896, 0.152031])]
)
def test_mcfs_embedding_is_the_original_up_to_sign(weight, expected):
    selector = MCFS(3, n_components=2, weight=weight).fit(toy12()[0])
    assert selector.heat_width_ in (None, pytest.approx(2.381053, abs=1e-6))
    assert_allclose(selector.eigenvalues_, expected, atol=1e-6)
    golden = GOLDEN[f"mcfs__toy12__{weight}__embedding"]
    assert_allclose(np.abs(selector.embedding_), np.abs(golden), atol=1e-8)


@pytest.mark.parametrize("key", [k for k in keys("mcfs__") if "beta_card" in k])
def test_mcfs_regression_on_the_stored_embedding_gives_the_stored_coefficients(key):
    name, weight, _ = key.split("__")
    m = int(key.split("card")[1])
    X, _ = data(name)
    embedding = GOLDEN[f"mcfs__{name}__{weight}__embedding"]
    beta = mcfs.lars_coefficients(X, embedding, m)
    assert_allclose(beta, GOLDEN[f"mcfs__{key}"], atol=1e-9)
    ranking = np.argsort(-np.abs(beta).max(axis=1), kind="stable")[:m]
    assert_array_equal(ranking, GOLDEN[f"mcfs__{name}__{weight}__selected_card{m}"])


def test_mcfs_on_synth60_selects_the_stored_set_although_its_graph_is_in_two_pieces():
    X, _ = data("synth60")
    with pytest.warns(UserWarning, match="2 components"):
        selector = MCFS(5, n_components=3).fit(X)
    assert set(selector.order_[:5].tolist()) == {0, 3, 6, 7, 11}


@pytest.mark.parametrize("key", [k for k in keys("fsasl__") if k.endswith("score")])
def test_fsasl_reference_scores(key):
    name, iters, params, _ = key.split("__")
    stem = f"fsasl__{name}__{iters}__{params}__"
    _, lambda2, lambda3, ratio = GOLDEN[stem + "lambda1_lambda2_lambda3_ratio"]
    T = int(iters.removeprefix("iters"))
    weights = {"lambda2": lambda2, "lambda3": lambda3, "ratio": ratio}
    selector = FSASL(3, n_components=3, max_iter=T, inner="reference", **weights)
    selector.fit(data(name)[0])
    # below 5 rounds the stopping step of the original's inner solver flips with rounding
    assert_allclose(selector.scores_, GOLDEN[stem + "score"], atol=1e-9 if T >= 5 else 2e-3)
    assert_allclose(selector.objective_, GOLDEN[stem + "obj"], rtol=1e-8 if T >= 5 else 1e-2)


def test_fsasl_scores_on_toy12_with_exact_codes():
    selector = FSASL(3, n_components=3).fit(toy12()[0])
    scores = [0.171424, 0.218454, 0.216488, 0, 0.000003, 0.047338]
    assert_allclose(selector.scores_, scores, atol=1e-6)
    assert selector.mu_ == pytest.approx(14.306531, abs=1e-6)


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("key", keys("lasso__"))
def test_lasso_coefficients_are_those_of_slep(key):
    name, target, lam = key.split("_")
    attributes = ATTRIBUTES if target == "Ys" else None
    options = {"attributes": attributes, "fit_intercept": False, "standardize": False}
    selector = LassoSelector(3, lam=float(lam.replace("p", ".")), **options).fit(*data(name))
    # SLEP itself stops some 1e-5 short of the optimum
    assert_allclose(selector.coef_, GOLDEN[f"lasso__{key}"], atol=2e-5)


@pytest.mark.parametrize("penalty, model", [("l1", Lasso), ("l21", MultiTaskLasso)])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_lasso_agrees_with_scikit_learn(penalty, model, fit_intercept):
    X, y = digits300()
    options = {"fit_intercept": fit_intercept, "max_iter": 100_000, "tol": 1e-12}
    selector = LassoSelector(5, lam=5.0, penalty=penalty, standardize=False, **options)
    selector.fit(X, y)
    oracle = model(alpha=5.0 / 300, **options).fit(X, np.eye(10)[y])
    assert_allclose(selector.coef_, oracle.coef_.T, atol=1e-8)
    assert_allclose(selector.intercept_, oracle.intercept_, atol=1e-7)


@pytest.mark.parametrize("stem", [k[: -len("obj")] for k in keys("l20alm__") if "obj" in k])
def test_l20alm_traces_from_the_stored_random_starts(stem):
    names = ["mu", "rho", "T", "k", "V0", "E0", "b", "obj", "selected"]
    stored = {name: GOLDEN[f"l20alm__{stem}{name}"] for name in names}
    X, y = data(stem.split("__")[0])
    numbers = {name: float(stored[name]) for name in ("mu", "rho")}
    start = {"init": (stored["V0"], stored["E0"]), "max_iter": int(stored["T"])}
    selector = L20ALM(int(stored["k"]), tol=0, standardize=False, **numbers, **start).fit(X, y)
    assert_allclose(selector.objective_, stored["obj"], rtol=1e-6)
    b = X.mean(axis=0) @ selector.coef_ + selector.intercept_
    assert_allclose(b, stored["b"], atol=1e-6)
    assert_array_equal(np.flatnonzero(selector.get_support()), stored["selected"])


@pytest.mark.parametrize(
    "name, k, standardize, selected, objective",
    [
        ("toy12", 2, False, [1, 2], 0.869673),
        ("toy12", 3, False, [0, 1, 4], 0.544392),
        ("toy12", 4, False, [0, 1, 2, 4], 0.396821),
        ("toy12", 3, True, [0, 1, 2], 0.483082),
        ("synth60", 5, False, sorted(RELEVANT), 13.308803),
        ("digits300", 10, True, [13, 18, 20, 26, 27, 29, 38, 44, 45, 54], 224.7329),
    ],
)
def test_l20alm_from_the_zero_start(name, k, standardize, selected, objective):
    selector = L20ALM(k, tol=0, standardize=standardize).fit(*data(name))
    assert np.flatnonzero(selector.get_support()).tolist() == selected
    assert selector.objective_[-1] == pytest.approx(objective, rel=1e-5)


def test_l20alm_solves_the_same_system_by_woodbury_when_samples_are_few():
    Z, _, _ = standardize_columns(data("synth60")[0][:15])  # 15 samples, 20 features
    rng = np.random.default_rng(0)
    B, R = rng.normal(size=(20, 3)), rng.normal(size=(15, 3))
    direct = np.linalg.solve(np.eye(20) + Z.T @ Z, B + Z.T @ R)
    W, ZW = RidgeSystem(Z).solve(B, Z @ B, R)
    assert_allclose(W, direct, atol=1e-10)
    assert_allclose(ZW, Z @ direct, atol=1e-10)


WKNN = {
    "A": {"kernel": "rbf", "loss": "mse"},
    "B": {"kernel": "exp", "loss": "ce", "lambda0": 0, "lambda1": 0, "lambda2": 0},
    "C": {"kernel": "exp", "loss": "mse", "lambda0": 0, "lambda1": 0.01, "lambda2": 0},
    "D": {"kernel": "rbf", "loss": "mae", "lambda0": 0.01, "lambda1": 0, "lambda2": 0},
    "E": {"loss": "huber", "lambda0": 0, "lambda1": 0, "lambda2": 0.1, "huber_delta": 0.3},
}


def long_ones_are_slow(key):
    long = key.endswith("1000") and "synth60__onehot__C" not in key
    return pytest.param(key, marks=pytest.mark.slow if long else ())


@pytest.mark.parametrize("key", [*map(long_ones_are_slow, keys("wknn__"))])
def test_wknn_weights_are_those_of_the_original(key):
    name, target, config, steps = key.split("__")
    attributes = None if target == "onehot" else np.array([[1.0], [0.0], [0.0]])
    selector = WkNN(3, attributes=attributes, max_iter=int(steps), **WKNN[config])
    selector.fit(*data(name))
    assert_allclose(selector.weights_, GOLDEN[f"wknn__{key}"], atol=1e-6)
    assert_allclose(selector.scores_, GOLDEN[f"wknn__{key}"], atol=1e-6)
