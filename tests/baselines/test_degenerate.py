"""Whatever the data: finite scores, or one line that says what is wrong."""

import warnings

import numpy as np
import pytest

from semfs import baselines

SIZES = [1e-150, 1e-8, 1e-3, 1.0, 1e3, 1e8, 1e150]
NUMBERS = ["heat_width", "lambda0", "lambda1", "lambda2", "lambda3", "lam", "learning_rate"]
OPTIONS = dict.fromkeys([*NUMBERS, "huber_delta", "attributes", "mu"], SIZES) | {
    "n_components": [1, 20],
    "n_neighbors": [1, 50],
    "weight": ["binary"],
    "ratio": [1e-9, 0.5, 2.0],
    "inner": ["reference"],
    "rho": [1.0, 2.0, 1e150],
    "max_samples": [2, 5],
    "penalty": ["l21"],
    "fit_intercept": [False],
    "standardize": [False],
    "tol": [0.0, 1e-4],
    "init": ["ridge", "random"],
    "kernel": ["exp"],
    "loss": ["mae", "huber", "ce"],
    "batch_size": [2, 4],
}


def random_selector(rng, n_classes):
    """Return a selector with some parameters far from their defaults."""
    kind = getattr(baselines, baselines.__all__[rng.integers(len(baselines.__all__))])
    selector = kind(int(rng.integers(1, 8)))
    defaults = selector.get_params()
    chosen = {n: OPTIONS[n] for n, v in defaults.items() if n in OPTIONS and v != "initial"}
    chosen = {n: v[rng.integers(len(v))] for n, v in chosen.items() if rng.random() < 0.4}
    if "attributes" in chosen:
        chosen["attributes"] *= rng.normal(size=(n_classes, rng.integers(1, 4)))
    if "max_iter" in defaults:
        chosen["max_iter"] = int(rng.choice([1, 5, 30]))
    return selector.set_params(**chosen)


def random_data(rng):
    """Return X and y with constant columns, duplicate rows, tiny classes, any scale."""
    n, d = rng.choice([1, 2, 3, 5, 7, 10, 15, 30]), rng.integers(1, 12)
    X = rng.normal(size=(n, d)) if rng.random() < 0.6 else rng.integers(-2, 3, (n, d)) * 1.0
    X *= 10.0 ** rng.choice([0, 0, rng.uniform(-9, 9), rng.uniform(-150, 150)])
    X *= 10.0 ** (rng.uniform(-150, 150, d) * (rng.random() < 0.2))
    X += 10.0 ** rng.uniform(-5, 15) * (rng.random() < 0.2)
    X[:, rng.random(d) < rng.choice([0.0, 0.0, 0.3, 0.9])] = rng.normal()
    X = X[rng.integers(n, size=n)] if rng.random() < 0.3 else X
    if rng.random() < 0.05:
        X[rng.integers(n), rng.integers(d)] = rng.choice([np.nan, np.inf, -np.inf])
    if np.abs(X).max() < 1e35 and rng.random() < 0.3:
        X = X.astype(np.float32)
    return X, rng.integers(rng.integers(1, n + 1), size=n)


@pytest.mark.parametrize("seed", range(100))
def test_degenerate_problems_give_finite_scores_or_one_clear_line(seed):
    rng = np.random.default_rng(seed)
    X, y = random_data(rng)
    selector = random_selector(rng, y.max() + 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            selector.fit(X, y)
        except (ValueError, TypeError) as error:
            line, *rest = str(error).splitlines()
            assert len(line) > 20
            assert not rest or line.startswith("Input X contains")  # scikit-learn's own
            return
    assert np.isfinite(selector.scores_[~np.isneginf(selector.scores_)]).all()
    assert sorted(selector.order_.tolist()) == list(range(X.shape[1]))
    fitted = {k: v for k, v in vars(selector).items() if k.endswith("_") and v is not None}
    broken = [k for k, v in fitted.items() if k != "scores_" and not np.isfinite(v).all()]
    assert broken == []
