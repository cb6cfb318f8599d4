"""Small seeded problems and the paper's formulas written out, the oracles of the tests."""

import numpy as np
import scipy.sparse as sp
from sklearn.datasets import load_digits

from semfs import Moments
from semfs.arrays import as_matrix
from semfs.datasets import load_sample
from semfs.method.objective import Objective

#: What changed the defaults of SemFS in 2026, switched off: selections as before.
OLD_DEFAULTS = {
    "gamma": 10.0,
    "penalty_scale": "gram",
    "label_weight": 0.0,
    "max_correlation": None,
}


def make_problem(seed=0, n=60, d=12, C=4, m=3, offset=0.0):
    """Rows whose class means depend linearly on the class attributes, plus noise."""
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(C), rng.integers(0, C, n - C)])
    rng.shuffle(y)
    A = rng.standard_normal((C, m))
    X = rng.standard_normal((n, d)) + (A @ rng.standard_normal((m, d)))[y] + offset
    return X, y, A


def make_objective(X, y, A, **options):
    """J of the classes of X and y with targets A."""
    return Objective.from_moments(Moments.from_data(X, y), A, **options)


def make_described_problem(seed=0, C=24, U=6, n_per_class=12, d=20, m=5, noise=1.0):
    """Class means are linear in the attributes A (C, m); the last U classes are unseen."""
    rng = np.random.default_rng(seed)
    A = rng.standard_normal((C, m))
    loadings = rng.standard_normal((m, d))
    y = np.repeat(np.arange(C - U), n_per_class)
    X = (A @ loadings)[y] + noise * rng.standard_normal((len(y), d))
    return X, y, A


def make_farm(seed=0):
    """A frame of 60 animals with their kind, and one that describes the three kinds.

    The first three columns separate the kinds; names are not ASCII on purpose.
    """
    import pandas as pd

    kinds = ["cow", "hen", "bée"]
    codes = np.arange(60) % 3
    X = np.random.default_rng(seed).normal(size=(60, 5)) + 3.0 * np.eye(3, 5)[codes]
    rows = pd.DataFrame(X, columns=["wéight", "height", "speed", "color", "noise"])
    classes = pd.DataFrame({"legs": [4, 2, 6], "flies": [0, 0, 1]}, index=kinds)
    return rows.assign(kind=np.array(kinds)[codes]), classes


def make_words(n, d, density=0.001, C=20, seed=0):
    """Rows with few words, drawn by popularity; some words belong to a class."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, C, n)
    per_row = max(2, int(density * d))
    popularity = 1.0 / np.arange(1, d + 1) ** 0.7
    words = rng.choice(d, size=(n, per_row), p=popularity / popularity.sum())
    n_topical = min(40, d // (2 * C))  # words of each class
    topical = rng.permutation(d)[: C * n_topical].reshape(C, n_topical)
    changed = rng.random((n, per_row)) < 0.2
    which = rng.integers(0, n_topical, changed.sum())
    words[changed] = topical[y[np.nonzero(changed)[0]], which]
    values = rng.random((n, per_row)).astype(np.float32) + 0.1
    index = (np.repeat(np.arange(n), per_row), words.ravel())
    return sp.csr_array((values.ravel(), index), shape=(n, d)), y


def spread(X, y):
    """X̄: every row replaced by its class mean."""
    means = np.stack([X[y == c].mean(axis=0) for c in range(y.max() + 1)])
    return means[y]


def paper_objective(X, y, A, W, s, alpha, gamma):
    """Eq. 5 with explicit X̄ and Y_s."""
    Y, XW, XbarW = A[y], (X * s) @ W, (spread(X, y) * s) @ W
    return ((Y - XW) ** 2).sum() + alpha * ((Y - XbarW) ** 2).sum() + gamma * (W**2).sum()


def paper_gram(X, y, alpha):
    Xbar = spread(X, y)
    return X.T @ X + alpha * Xbar.T @ Xbar


def paper_B(X, y, A, alpha):
    return (X + alpha * spread(X, y)).T @ A[y]


def naive_greedy(X, y, A, k, alpha, gamma):
    """Forward selection that refits every candidate from scratch: (features, J after each)."""
    G, B = paper_gram(X, y, alpha), paper_B(X, y, A, alpha)
    q = (1 + alpha) * (A[y] ** 2).sum()
    chosen, values = [], []
    for _ in range(k):
        fits = {
            j: fit_of(G, B, [*chosen, j], gamma) for j in range(X.shape[1]) if j not in chosen
        }
        best = max(fits, key=fits.get)
        chosen.append(best)
        values.append(q - fits[best])
    return chosen, values


def fit_of(G, B, S, gamma):
    """F(S) = tr(B_S'(G_SS + γI)⁻¹B_S)."""
    S = list(S)
    return float(
        np.trace(B[S].T @ np.linalg.solve(G[np.ix_(S, S)] + gamma * np.eye(len(S)), B[S]))
    )


def lining_sample():
    """The labeled cells in float64: some of 800 genes are so alike that float32 fails."""
    X, y, _, _ = load_sample("lining").split()
    return np.ascontiguousarray(as_matrix(X), dtype=np.float64), np.asarray(y)


def digits():
    X, y = load_digits(return_X_y=True)
    return X.astype(np.float32), y


def far_from_zero():
    """Columns 10,000 standard deviations from zero, in float32."""
    X, y, _ = make_problem(3, n=4000, d=25, C=6)
    return (X + 1e4).astype(np.float32), y


#: Data sets for which all ways to read samples must give the same order of features.
DATASETS = {"sample": lining_sample, "digits": digits, "far away": far_from_zero}
