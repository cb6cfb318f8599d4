"""WkNN: feature weights of a leave-one-out kernel vote."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from semfs.baselines.fitting import (
    break_ties,
    check_enough,
    last_if_constant,
    standardize_columns,
)
from semfs.baselines.supervision import SupervisedSelector
from semfs.baselines.voting import Descent, class_balanced_batches, descend
from semfs.progress import Progress
from semfs.selectors.base import constant_columns
from semfs.validation import check_integer, check_number, check_option

__all__ = ["WkNN"]

LARGEST_FULL_BATCH = 4000  # samples up to which all pairs are compared in every step
DEFAULT_BATCH = 512  # rows per step above that


class WkNN(SupervisedSelector):
    """Weighted nearest neighbours (Bugata and Drotár, Knowledge-Based Systems 2019).

    Every other sample votes with a kernel weight, and the feature weights in the distance
    are learned (there is no number of neighbours)::

        D_ij = Σ_f w_f (x_if - x_jf)²,    K = exp(-D) or exp(-√D)
        ŷ_i = Σ_{j≠i} K_ij t_j / Σ_{j≠i} K_ij
        min_{w ≥ 0}  (1/n) Σ_i ℓ(t_i, ŷ_i) + λ0 Σ_f 2(σ(a w_f) - ½) + λ1 Σ_f w_f + λ2 Σ_f w_f²

    on standardised columns, by projected gradient steps of normalised length from
    ``w = 1/d``. ``score = w``.

    Parameters
    ----------
    n_features_to_select : int, default=50
        Does not change the scores.
    attributes : None, DataFrame, mapping or array, default=None
        One row of numbers per class, see :func:`semfs.attributes.align_attributes`. None
        takes the labels themselves, one-hot.
    kernel : {"rbf", "exp"}, default="rbf"
        ``exp(-D)`` or ``exp(-√D)``.
    loss : {"mse", "mae", "huber", "ce"}, default="mse"
        "ce" needs targets between 0 and 1.
    lambda0, lambda1, lambda2 : float, default=1e-3
    learning_rate : float, default=0.1
    max_iter : int, default=1000
    batch_size : int or None, default=None
        Rows per step. None takes all rows up to 4,000 samples and 512 above (with a
        warning). Mini-batches hold about 8 rows of each of ``batch_size / 8`` random
        classes, and the learning rate falls linearly to a tenth.
    slope : float, default=100.0
        a, how sharply the λ0 term counts positive weights.
    huber_delta : float, default=1.0
        Where "huber" turns from quadratic to linear.
    random_state : int, RandomState or None, default=0
        For mini-batches.
    verbose : bool or int, default=0

    Attributes
    ----------
    scores_ : ndarray of shape (d,)
        Weights; tiny negative scores rank the features of weight 0 by the last gradient of
        the loss (most negative first); ``-inf`` for constant columns.
    order_, ranking_ : ndarray of shape (d,)
        Feature indices, best first; position of each feature, 1 = best.
    weights_ : ndarray of shape (d,)
        w itself.
    objective_ : ndarray of shape (n_steps,)
        Objective before each step, on its batch.
    n_iter_ : int
    classes_ : ndarray of shape (C,)

    Notes
    -----
    Defaults and steps are those of the authors' program (Euclidean metric, plain gradient).
    Differences: the gradient is written in closed form; the vote is a softmax with the row
    maximum taken out, where the original divides 0 by 0 and aborts once weights grow;
    constant columns take part (they change the start 1/d and the step length) but rank
    last; features of weight 0 are ranked too, the original never returns them (with
    thousands of features and many classes the default ``lambda0`` takes all weights to 0
    within a few steps, here with a warning: set it to 0 there); mini-batches
    are an addition for large n. A float32 X is computed in float32 (as the original does by
    default), with weights and gradient sums in float64.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from semfs.baselines import WkNN
    >>> X, y = load_iris(return_X_y=True)
    >>> WkNN(2, max_iter=50).fit(X, y).get_support()
    array([False, False,  True,  True])
    """

    def __init__(
        self,
        n_features_to_select: int = 50,
        *,
        attributes: Any = None,
        kernel: str = "rbf",
        loss: str = "mse",
        lambda0: float = 1e-3,
        lambda1: float = 1e-3,
        lambda2: float = 1e-3,
        learning_rate: float = 0.1,
        max_iter: int = 1000,
        batch_size: int | None = None,
        slope: float = 100.0,
        huber_delta: float = 1.0,
        random_state: Any = 0,
        verbose: int = 0,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.attributes = attributes
        self.kernel = kernel
        self.loss = loss
        self.lambda0 = lambda0
        self.lambda1 = lambda1
        self.lambda2 = lambda2
        self.learning_rate = learning_rate
        self.max_iter = max_iter
        self.batch_size = batch_size
        self.slope = slope
        self.huber_delta = huber_delta
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any) -> WkNN:
        """Learn weights for the features of X (n, d) from labels y (n,)."""
        with self._all_or_nothing():
            X, codes, T = self._check_supervision(X, y)
            self._check_parameters(T)
            constant = constant_columns(X)
            check_enough("WkNN", X, constant)
            batch_size = self._batch_size(X.shape[0])
            result = self._descend(standardize_columns(X)[0], T, codes, batch_size)
            self._warn_if_all_zero(result)
            self.weights_ = result.weights
            self.objective_ = result.objective
            self.n_iter_ = len(result.objective)
            scores = break_ties(result.weights, -result.slope)
            self._set_ranking(last_if_constant(scores, constant))
        return self

    def _descend(
        self, Z: np.ndarray, T: np.ndarray, codes: np.ndarray, batch_size: int | None
    ) -> Descent:
        rates = np.full(self.max_iter, float(self.learning_rate))
        batches: Any = itertools.repeat(None)
        if batch_size is not None:
            rng = check_random_state(self.random_state)
            batches = class_balanced_batches(codes, batch_size, rng)
            rates *= np.linspace(1.0, 0.1, self.max_iter)
        with Progress("WkNN", self.max_iter, self.verbose) as progress:
            return descend(
                Z,
                T.astype(Z.dtype),
                batches=batches,
                kernel=self.kernel,
                loss=self.loss,
                delta=self.huber_delta,
                penalties=(self.lambda0, self.lambda1, self.lambda2),
                sharpness=self.slope,
                learning_rates=rates,
                report=progress.step,
            )

    def _warn_if_all_zero(self, result: Descent) -> None:
        if not result.weights.any():
            warnings.warn(
                f"The penalties drove all weights to 0 in {len(result.objective)} of "
                f"{self.max_iter} steps; features are ranked by the last slope of the loss. "
                "Lower lambda0 first: with many features, which start at 1/d, it outweighs "
                "any loss.",
                UserWarning,
                stacklevel=3,
            )

    def _batch_size(self, n: int) -> int | None:
        if self.batch_size is not None:
            return None if self.batch_size >= n else self.batch_size
        if n <= LARGEST_FULL_BATCH:
            return None
        warnings.warn(
            f"WkNN compares all pairs of samples in every step, too slow for {n} of them: "
            f"using class-balanced mini-batches of {DEFAULT_BATCH}. Pass "
            f"batch_size={DEFAULT_BATCH} to agree, or batch_size={n} for all pairs.",
            UserWarning,
            stacklevel=3,
        )
        return DEFAULT_BATCH

    def _check_parameters(self, T: np.ndarray) -> None:
        check_option("kernel", self.kernel, ("rbf", "exp"))
        check_option("loss", self.loss, ("mse", "mae", "huber", "ce"))
        for name in ("lambda0", "lambda1", "lambda2", "slope"):
            check_number(name, getattr(self, name), at_least=0)
        for name in ("learning_rate", "huber_delta"):
            check_number(name, getattr(self, name), above=0)
        check_integer("max_iter", self.max_iter, 1)
        if self.batch_size is not None:
            check_integer("batch_size", self.batch_size, 2)
        if self.loss == "ce" and (T.min() < 0 or T.max() > 1):
            raise ValueError(
                "loss='ce' needs attributes between 0 and 1, found values from "
                f"{T.min():g} to {T.max():g}. Rescale them, or use loss='mse'."
            )
