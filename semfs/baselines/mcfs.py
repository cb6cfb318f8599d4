"""MCFS: features that explain a spectral embedding of the samples."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from sklearn.utils import check_random_state

from semfs.baselines.base import Baseline, Training
from semfs.baselines.graph import (
    mean_distance,
    nearest_neighbors,
    neighbor_graph,
    spectral_embedding,
)
from semfs.progress import Progress
from semfs.validation import check_integer, check_number, check_option

__all__ = ["MCFS", "lars_coefficients", "lars_to_cardinality"]

RIDGE = 1e-3  # added to the Gram matrix in the direction solve only


class MCFS(Baseline):
    """Multi-Cluster Feature Selection (Cai, Zhang and He, KDD 2010).

    1. A nearest-neighbour graph W on the rows of X; the K smoothest non-trivial solutions
       of ``(D - W) y = λ D y`` embed the samples.
    2. Each coordinate is explained by ``n_features_to_select`` features,
       ``min_a ‖y_q - Xa‖²  s.t.  card(a) = k``, on the LARS-lasso path.
    3. ``score_j = max_q |a_qj|`` over the coefficient vectors at unit length.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Also the cardinality k of the regressions: scores depend on it.
    n_components : int, default=5
        Number K of embedding coordinates; the number of clusters if you know it.
    n_neighbors : int, default=5
    weight : {"heat", "binary"}, default="heat"
        Edge weights ``exp(-distance²/(2 width²))``, or 1.
    heat_width : float or None, default=None
        None is the mean of all n² distances (of 3,000 random rows above 3,000).
    random_state : int, RandomState or None, default=0
    verbose : int, default=0

    Attributes
    ----------
    scores_, order_, ranking_ : ndarray of shape (d,)
        Scores as above, and the ranking by them.
    embedding_ : ndarray of shape (n, K)
    eigenvalues_ : ndarray of shape (K,)
        Of ``D^-1/2 W D^-1/2``; 1 once per component of the graph beyond the first.
    coef_ : ndarray of shape (d, K)
        Unit-length regression coefficients.
    heat_width_ : float or None

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from semfs.baselines import MCFS
    >>> X = load_digits().data[:300]
    >>> MCFS(10, n_components=10).fit(X).transform(X).shape
    (300, 10)
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        n_components: int = 5,
        n_neighbors: int = 5,
        weight: str = "heat",
        heat_width: float | None = None,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_components = n_components
        self.n_neighbors = n_neighbors
        self.weight = weight
        self.heat_width = heat_width
        self.random_state = random_state
        self.verbose = verbose

    def _scores(self, data: Training) -> np.ndarray:
        X = data.varying
        width = None if self.weight == "binary" else self.heat_width
        if self.weight == "heat" and width is None:
            width = mean_distance(X, check_random_state(self.random_state))
        self.heat_width_ = width
        W = neighbor_graph(*nearest_neighbors(X, self.n_neighbors), self.heat_width_)
        self.embedding_, self.eigenvalues_ = spectral_embedding(W, self.n_components)
        if self.embedding_.shape[1] == 0:
            raise ValueError(
                "The neighbour graph has no coordinate to explain. Raise n_neighbors (or "
                "heat_width, if you set it)."
            )
        k = self.n_features_to_select
        coef = lars_coefficients(X, self.embedding_, k, verbose=self.verbose)
        self.coef_ = data.spread(coef)
        return np.abs(coef).max(axis=1)

    def _check_parameters(self) -> None:
        check_option("weight", self.weight, ("heat", "binary"))
        check_integer("n_components", self.n_components, 1)
        check_integer("n_neighbors", self.n_neighbors, 1)
        if self.heat_width is not None:
            check_number("heat_width", self.heat_width, above=0)


def lars_coefficients(
    X: np.ndarray, embedding: np.ndarray, cardinality: int, *, verbose: int = 0
) -> np.ndarray:
    """Return unit-length coefficients (d, K) of each coordinate of an embedding (n, K)."""
    X = X.astype(np.float64)
    gram = X.T @ X
    # the path of cy is c times that of y: the extremes of a heat kernel do not overflow
    scale = np.abs(embedding).max(axis=0)
    scaled = embedding / np.where(scale > 0, scale, 1.0)
    beta = X.T @ scaled
    with Progress("MCFS coordinates", beta.shape[1], verbose) as progress:
        for column in beta.T:
            column[:] = lars_to_cardinality(gram, column, cardinality)
            progress.step()
    norms = np.linalg.norm(beta, axis=0)
    return beta / np.where(norms > 0, norms, 1.0)


def lars_to_cardinality(
    gram: np.ndarray, correlation: np.ndarray, cardinality: int
) -> np.ndarray:
    """Return β (d,) where the lasso path first has ``cardinality`` non-zero entries.

    From XᵀX (d, d) and Xᵀy (d,). If the path ends earlier, its end is returned. As in the
    original a ridge enters the direction solve, and that alone: scikit-learn's
    ``lars_path_gram`` does not give its numbers.
    """
    m = min(cardinality, len(correlation))
    c = np.array(correlation, dtype=np.float64)
    beta = np.zeros(len(c))
    inactive = np.ones(len(c), dtype=bool)
    active: list[int] = []
    smallest = 1e-12 * np.abs(c).max()
    removed = False
    for _ in range(20 * m + 100):  # removals may prolong the path, never endlessly
        C = np.abs(c[inactive]).max() if inactive.any() else np.abs(c).max()
        if smallest >= C:
            break
        if not removed:
            j = int(np.argmax(np.where(inactive, np.abs(c), -1.0)))
            active.append(j)
            inactive[j] = False
        rows = gram[active]
        sign = np.sign(c[active])
        try:
            h = cho_solve(cho_factor(rows[:, active] + RIDGE * np.eye(len(active))), sign)
        except LinAlgError:  # duplicates so large that the ridge is lost in rounding
            break
        alpha = (sign @ h) ** -0.5
        w = alpha * h
        a = w @ rows
        # until an inactive feature catches up, or an active one is back at zero
        ahead = _positive(C - c, alpha - a), _positive(C + c, alpha + a)
        to_zero = _positive(-beta[active], w)
        gamma = np.min(ahead, initial=C / alpha, where=inactive)
        removed = bool(to_zero.min() < gamma)
        gamma = min(gamma, to_zero.min())
        beta[active] += gamma * w
        c -= gamma * a
        if removed:
            j = active.pop(int(np.argmin(to_zero)))
            beta[j] = 0.0
            inactive[j] = True
        elif len(active) == m:
            break
    return beta


def _positive(numerator: np.ndarray, denominator: np.ndarray) -> np.ndarray:
    """Return the ratios, with those that are not strictly positive set to infinity."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = numerator / denominator
    return np.where(ratio > 0, ratio, np.inf)
