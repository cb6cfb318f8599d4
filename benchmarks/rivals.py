"""Selectors that SemFS is compared with, each a function of samples that it may see.

Those of `semfs.baselines` at their defaults, and four that are a few lines each.
"""

from __future__ import annotations

import numpy as np
from class_splits import class_means
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
from sklearn.feature_selection import f_classif

from semfs.baselines import MCFS, LassoSelector, Markers

#: Relative duality gap of LASSO: smaller ones change coefficients in digits that no rank needs.
LASSO_TOL = 1e-3
#: LASSO is fitted to so many features, those of largest correlation with a class (sure
#: independence screening): with all 4,096 features of birds a fit takes minutes.
SCREENED = 1000
#: Principal components to find pseudo-labels in.
N_COMPONENTS = 32


def descending(scores: np.ndarray) -> np.ndarray:
    """Features by score, largest first."""
    return np.argsort(-np.nan_to_num(scores), kind="stable")


def random_order(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features in random order."""
    return np.random.default_rng(0).permutation(X.shape[1])


def variance(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features by variance."""
    return descending(X.var(axis=0, dtype=float))


def between_class_variance(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features by the variance of the class means."""
    return descending(class_means(X, y).var(axis=0))


def anova(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features by ANOVA's F."""
    return descending(f_classif(X, y)[0])


def markers(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features by one-vs-rest t statistics, the classes in turns."""
    return Markers(k).fit(X, y).order_


def lasso(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Features by coefficients of the LASSO on class labels, after screening."""
    Z = X - X.mean(axis=0)
    spread = Z.std(axis=0)
    targets = (y[:, None] == np.unique(y)).astype(X.dtype)
    targets -= targets.mean(axis=0)
    correlations = np.abs(targets.T @ Z) / np.where(spread > 0, spread, np.inf)
    correlations /= targets.std(axis=0)[:, None]
    screened = descending(correlations.max(axis=0))[:SCREENED]
    order = LassoSelector(k, tol=LASSO_TOL).fit(X[:, screened], y).order_
    return screened[order]


def mrmr(X: np.ndarray, y: np.ndarray, k: int) -> np.ndarray:
    """Minimum redundancy, maximum relevance: F over the mean correlation with those selected.

    The quotient form for continuous features (Zhao, Anand and Wang 2019).
    """
    relevance = np.nan_to_num(f_classif(X, y)[0])
    Z = X - X.mean(axis=0)
    norms = np.linalg.norm(Z, axis=0)
    Z = Z / np.where(norms > 0, norms, np.inf)
    order = [int(np.argmax(relevance))]
    total = np.zeros(X.shape[1])
    while len(order) < k:
        total += np.abs(Z[:, order[-1]] @ Z)
        redundancy = np.maximum(total / len(order), 1e-3)
        quotient = relevance / redundancy
        quotient[order] = -np.inf
        order.append(int(np.argmax(quotient)))
    return np.array(order)


def column_subset(X: np.ndarray, y: np.ndarray | None, k: int) -> np.ndarray:
    """Greedy column-subset selection: features that reconstruct all others best."""
    E = (X - X.mean(axis=0)).astype(float)
    R = E.T @ E
    pivots = np.diag(R).copy()
    floor = 1e-9 * pivots.max()
    gains = np.einsum("ij,ij->j", R, R)
    factors = np.zeros((len(R), 0))
    chosen: list[int] = []
    for _ in range(k):
        gain = np.where(pivots > floor, gains / np.maximum(pivots, floor), -1.0)
        gain[chosen] = -1.0
        j = int(np.argmax(gain))
        chosen.append(j)
        # column j of R without what the features before it explain, and the update of |R_j|²
        column = R[:, j] - factors @ factors[j]
        u = column / np.sqrt(max(pivots[j], floor))
        product = R @ u - factors @ (factors.T @ u)
        gains = gains - 2.0 * u * product + u**2 * (u @ u)
        pivots = pivots - u**2
        factors = np.column_stack([factors, u])
    return np.array(chosen)


def mcfs(X: np.ndarray, n_classes: int, k: int) -> np.ndarray:
    """Multi-cluster feature selection with the true number of classes."""
    return MCFS(k, n_components=n_classes).fit(X).order_


def pseudo_labels(X: np.ndarray, n_classes: int) -> np.ndarray:
    """Clusters (n,) of samples: K-means in principal components, the true number of classes."""
    p = min(N_COMPONENTS, *X.shape)
    Z = PCA(p, svd_solver="randomized", random_state=0).fit_transform(X)
    return KMeans(n_classes, n_init=10, random_state=0).fit(Z).labels_
