"""WkNN: feature weights learned by leave-one-out kernel votes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy.special import softmax
from sklearn.metrics.pairwise import euclidean_distances
from sklearn.utils import check_random_state

from semfs._typing import AttributesLike, Float64, Floats, Indices, RandomState
from semfs.baselines.base import Baseline, Training, break_ties, standardize_columns
from semfs.constraints import Above, AtLeast, OneOf, WholeNumber
from semfs.validation import warn_user

#: Samples up to which all pairs are compared in every step, and samples per step above that.
LARGEST_FULL_BATCH = 4000
DEFAULT_BATCH = 512
#: Samples of each class in a batch.
PER_CLASS = 8
#: Share of the slope of the last batch in the running mean: it spans some twenty batches.
BATCH_SHARE = 0.05
#: a, how sharply the λ0 term counts positive weights, as in the original.
SHARPNESS = 100.0
#: Floor of the gradient norm in the step, as in the original.
SMALLEST_STEP_NORM = 0.01


@dataclass(eq=False, repr=False, kw_only=True)
class WkNN(Baseline):
    """Weighted nearest neighbors (Bugata and Drotár, Knowledge-Based Systems 2019).

    The target of each sample is predicted from all other samples with kernel weights. The
    feature weights in the kernel's distance are learned::

        D_ij = Σ_f w_f (x_if - x_jf)²,    K = exp(-D) or exp(-√D)
        ŷ_i = Σ_{j≠i} K_ij t_j / Σ_{j≠i} K_ij
        min_{w ≥ 0}  (1/n) Σ_i ℓ(t_i, ŷ_i) + λ0 Σ_f 2(σ(100 w_f) - ½) + λ1 Σ_f w_f + λ2 Σ_f w_f²

    Columns are standardized. The weights w are found by projected gradient steps of normalized
    length, starting from ``w = 1/d``. They are the scores of the features.

    Parameters
    ----------
    n_features_to_select, attributes, random_state
        Common parameters; see `semfs.baselines`.
    kernel : {"rbf", "exp"}, default="rbf"
        "rbf" is ``exp(-D)``, and "exp" is ``exp(-√D)``.
    loss : {"mse", "mae", "huber", "ce"}, default="mse"
        The loss ℓ: squared error, absolute error, Huber loss or cross-entropy. "ce" needs
        targets between 0 and 1.
    lambda0, lambda1, lambda2 : float, default=1e-3
        Weights of the three penalties. With thousands of features and many classes, set
        ``lambda0`` to 0.
    learning_rate : float, default=0.1
        Length of the gradient steps.
    max_iter : int, default=1000
        Maximum number of gradient steps.
    batch_size : int or None, default=None
        Number of samples per step: 8 from each of several random classes. If it is smaller than
        the number of samples, the learning rate gradually decreases to a tenth. None uses all
        samples if there are at most 4,000, otherwise 512.
    huber_delta : float, default=1.0
        Residual at which the Huber loss changes from quadratic to linear.

    Attributes
    ----------
    weights_, scores_ : ndarray of shape (d,)
        The weights w. In ``scores_``, features with weight 0 have tiny negative values that
        rank them by the slope of the loss.
    objective_ : ndarray of shape (n_rounds,)
        Objective before each step, computed on the samples of that step.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> WkNN(2, max_iter=50).fit(X, y).get_support()
    array([False, False,  True,  True])
    """

    attributes: AttributesLike | None = None
    kernel: str = "rbf"
    loss: str = "mse"
    lambda0: float = 1e-3
    lambda1: float = 1e-3
    lambda2: float = 1e-3
    learning_rate: float = 0.1
    max_iter: int = 1000
    batch_size: int | None = None
    huber_delta: float = 1.0
    random_state: RandomState = 0

    _supervised = True
    _unit_free = True
    _constraints = {
        "kernel": OneOf("rbf", "exp"),
        "loss": OneOf("mse", "mae", "huber", "ce"),
        "lambda0": AtLeast(0),
        "lambda1": AtLeast(0),
        "lambda2": AtLeast(0),
        "learning_rate": Above(0),
        "huber_delta": Above(0),
        "max_iter": WholeNumber(1),
        "batch_size": WholeNumber(2),
    }

    def _scores(self, data: Training) -> Float64:
        """Return the weights, with tiny negative scores for features of weight 0."""
        table = data.table
        if self.loss == "ce" and (table.min() < 0 or table.max() > 1):
            raise ValueError(
                "loss='ce' needs attributes between 0 and 1, found values from "
                f"{table.min():g} to {table.max():g}. Rescale them, or use loss='mse'."
            )
        X, _, _ = standardize_columns(data.X)
        slope = self._descend(X, data)
        self.n_iter_ = len(self.objective_)
        if not self.weights_.any():
            warn_user(
                f"All weights became 0 after {self.n_iter_} of "
                f"{self.max_iter} steps, because the penalties are large. "
                "Features are ranked by the last gradient of the loss "
                "instead. Lower the penalties, starting with lambda0."
            )
        return break_ties(self.weights_, -slope)

    def _descend(self, X: Floats, data: Training) -> Float64:
        """Minimize J(w) over w ≥ 0 from w = 1/d, and return the last slope (d,) of the loss."""
        T = data.T.astype(X.dtype)
        w = np.full(X.shape[1], 1.0 / X.shape[1])
        slope = np.zeros_like(w)
        objective = []
        for eta, rows in self._steps(data.codes):
            value, new_slope = vote_gradient(
                X[rows],
                T[rows],
                w,
                kernel=self.kernel,
                loss=self.loss,
                delta=self.huber_delta,
            )
            # One batch says little about a feature: its slope is averaged over several.
            share = 1.0 if isinstance(rows, slice) else BATCH_SHARE
            slope = (1.0 - share) * slope + share * new_slope
            penalty, penalty_gradient = self._penalty(w)
            gradient = new_slope + penalty_gradient
            # The step is normalized by the part of the gradient that the projection keeps.
            lost = np.minimum(w - eta * gradient, 0.0).sum() / eta
            norm = max(np.abs(gradient).sum() + lost, SMALLEST_STEP_NORM)
            w = np.maximum(w - eta * gradient / norm, 0.0)
            objective.append(value + penalty)
            if not (w > 0).any():  # penalties only push down: 0 is final, and so is NaN
                break
        self.weights_ = w
        self.objective_ = np.array(objective)
        return slope

    def _steps(self, codes: Indices) -> Iterator[tuple[float, Indices | slice]]:
        """Yield the learning rate and the rows of each step."""
        n_samples = len(codes)
        batch_size = self.batch_size
        if batch_size is None:
            batch_size = n_samples if n_samples <= LARGEST_FULL_BATCH else DEFAULT_BATCH
        if batch_size >= n_samples:
            for _ in range(self.max_iter):
                yield self.learning_rate, slice(None)
            return
        rates = self.learning_rate * np.linspace(1.0, 0.1, self.max_iter)
        rng = check_random_state(self.random_state)
        yield from zip(rates, _class_balanced_batches(codes, batch_size, rng))

    def _penalty(self, w: Float64) -> tuple[float, Float64]:
        """Return ``λ0 Σ 2(σ(aw)-½) + λ1 Σ w + λ2 Σ w²`` and its gradient."""
        sigma = 1.0 / (1.0 + np.exp(-SHARPNESS * w))  # a·w ≥ 0: no overflow
        count = (2 * sigma - 1).sum()  # smoothed number of positive weights
        size = w.sum()
        squares = (w**2).sum()
        value = self.lambda0 * count + self.lambda1 * size + self.lambda2 * squares
        gradient = 2 * self.lambda0 * SHARPNESS * sigma * (1 - sigma)
        return float(value), gradient + self.lambda1 + 2 * self.lambda2 * w


def vote_gradient(
    X: Floats, T: Floats, w: Float64, *, kernel: str, loss: str, delta: float
) -> tuple[float, Float64]:
    """Return the mean loss if all other rows vote on each row, and its gradient in w."""
    used = w > 0
    weighted = X[:, used] * np.sqrt(w[used]).astype(X.dtype)
    D = euclidean_distances(weighted, squared=True)
    smallest = 1e-14 if D.dtype == np.float32 else 1e-300
    clamped = np.less(D, smallest)
    np.maximum(D, smallest, out=D)
    if kernel == "exp":
        np.sqrt(D, out=D)
    np.fill_diagonal(D, np.inf)  # no vote for oneself
    P = softmax(-D, axis=1)  # never underflows to 0/0 as the original does
    Y_hat = P @ T
    value, g = loss_and_slope(T, Y_hat, loss, delta)
    g = (g / len(X)).astype(X.dtype)
    M = P * (np.einsum("ij,ij->i", g, Y_hat)[:, None] - g @ T.T)
    if kernel == "exp":
        M /= 2.0 * D  # D holds √D here
    M[clamped] = 0.0
    # Σ_ij M_ij (x_if - x_jf)² = x_f' L x_f with the Laplacian L of M + Mᵀ
    M = M + M.T
    degrees = M.sum(axis=0, dtype=np.float64).astype(X.dtype)
    LX = degrees[:, None] * X - M @ X
    return value, (X * LX).sum(axis=0, dtype=np.float64)


def loss_and_slope(T: Floats, Y_hat: Floats, loss: str, delta: float) -> tuple[float, Float64]:
    """Return the mean over rows of ℓ(t_i, ŷ_i) and ∂ℓ/∂ŷ, shape (n, c)."""
    e = np.asarray(T, dtype=np.float64) - Y_hat
    size = np.abs(e)
    if loss == "mse":
        values = e**2
        slope = -2.0 * e
    elif loss == "mae":
        values = size
        slope = -np.sign(e)
    elif loss == "huber":
        values = np.where(size <= delta, 0.5 * e**2, delta * (size - 0.5 * delta))
        slope = -np.clip(e, -delta, delta)
    else:  # cross-entropy; with several columns only the true class counts
        targets = np.asarray(T, dtype=np.float64)
        share = targets if T.shape[1] > 1 else np.ones(T.shape)
        likelihood = np.maximum(1.0 - size, 1e-12)
        values = -share * np.log(likelihood)
        slope = -share * np.sign(e) / likelihood
    return float(values.sum() / len(e)), slope


def _class_balanced_batches(
    codes: Indices, batch_size: int, rng: np.random.RandomState
) -> Iterator[Indices]:
    """Yield rows that vote on each other: about `PER_CLASS` rows of each of some classes."""
    members = [np.flatnonzero(codes == c) for c in range(codes.max() + 1)]
    n_classes = min(len(members), max(2, batch_size // PER_CLASS))
    per_class = max(2, batch_size // n_classes)
    while True:
        chosen = rng.permutation(len(members))[:n_classes]
        yield np.concatenate([rng.permutation(members[c])[:per_class] for c in chosen])
