"""Leave-one-out kernel vote of WkNN: loss, closed-form gradient, projected descent.

The formulas are in docs/baselines.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from scipy.linalg import get_blas_funcs

__all__ = ["Descent", "class_balanced_batches", "descend", "loss_and_slope", "vote_gradient"]

SMALLEST_STEP_NORM = 0.01  # floor of the gradient norm in the step, as in the original


@dataclass(frozen=True)
class Descent:
    """Result of `descend`: weights (d,), last loss slope (d,), objective after each step."""

    weights: np.ndarray
    slope: np.ndarray
    objective: np.ndarray


def descend(
    X: np.ndarray,
    T: np.ndarray,
    *,
    batches: Iterator[np.ndarray | None],
    kernel: str,
    loss: str,
    delta: float,
    penalties: tuple[float, float, float],
    sharpness: float,
    learning_rates: np.ndarray,
    report: Callable[[str], None],
) -> Descent:
    """Minimise J(w) over w ≥ 0 from w = 1/d, one step per learning rate.

    Parameters
    ----------
    X : ndarray of shape (n, d)
        Standardised columns.
    T : ndarray of shape (n, c)
        Targets.
    batches : iterator
        Rows of each step, None for all of them.
    """
    d = X.shape[1]
    w = np.full(d, 1.0 / d)
    slope = np.zeros(d)
    objective: list[float] = []
    for eta in learning_rates:
        rows = next(batches)
        x, t = (X, T) if rows is None else (X[rows], T[rows])
        value, new_slope = vote_gradient(x, t, w, kernel=kernel, loss=loss, delta=delta)
        # one batch says little about a feature: its slope is averaged over some twenty
        slope = new_slope if rows is None else 0.95 * slope + 0.05 * new_slope
        penalty, penalty_gradient = _penalty(w, penalties, sharpness)
        w = _normalised_step(w, new_slope + penalty_gradient, eta)
        objective.append(value + penalty)
        report(f"loss {value:.6f}, {np.count_nonzero(w)} weights")
        if not w.any():  # penalties only push down: 0 is final, and keeps this slope
            break
    return Descent(w, slope, np.array(objective))


def _penalty(
    w: np.ndarray, penalties: tuple[float, float, float], a: float
) -> tuple[float, np.ndarray]:
    """Return ``λ0 Σ 2(σ(aw)-½) + λ1 Σ w + λ2 Σ w²`` and its gradient."""
    lambda0, lambda1, lambda2 = penalties
    sigma = 1.0 / (1.0 + np.exp(-a * w))  # a·w ≥ 0: no overflow
    value = 2 * lambda0 * (sigma - 0.5).sum() + lambda1 * w.sum() + lambda2 * (w**2).sum()
    return float(value), 2 * lambda0 * a * sigma * (1 - sigma) + lambda1 + 2 * lambda2 * w


def _normalised_step(w: np.ndarray, gradient: np.ndarray, eta: float) -> np.ndarray:
    """Step along the gradient, normalised by the part that projection keeps."""
    lost = np.minimum(w - eta * gradient, 0.0).sum() / eta
    norm = max(np.abs(gradient).sum() + lost, SMALLEST_STEP_NORM)
    return np.maximum(w - eta * gradient / norm, 0.0)


def vote_gradient(
    X: np.ndarray, T: np.ndarray, w: np.ndarray, *, kernel: str, loss: str, delta: float
) -> tuple[float, np.ndarray]:
    """Return the mean loss of the vote of all other rows, and its gradient in w.

    The large products run in the dtype of X; sums over features and samples in float64.
    The kernel weights are a softmax with the row maximum taken out, so they never
    underflow to 0/0 as the original's do.
    """
    n = X.shape[0]
    D = _weighted_distances(X, w)
    smallest = 1e-14 if D.dtype == np.float32 else 1e-300
    clamped = np.less(D, smallest)
    np.maximum(D, smallest, out=D)
    if kernel == "exp":
        np.sqrt(D, out=D)
    P = _softmax_of_negative(D)
    Y_hat = P @ T
    value, g = loss_and_slope(T, Y_hat, loss, delta)
    g = (g / n).astype(X.dtype)
    M = g @ T.T
    M -= np.einsum("ij,ij->i", g, Y_hat)[:, None]
    M *= P
    if kernel == "exp":
        M /= 2.0 * D  # D holds √D here
    M[clamped] = 0.0
    np.fill_diagonal(M, 0.0)
    np.negative(M, out=M)
    return value, _weighted_square_differences(X, M)


def _weighted_square_differences(X: np.ndarray, M: np.ndarray) -> np.ndarray:
    """Return ``Σ_ij M_ij (x_if - x_jf)²`` for each column f; M (n, n) has a zero diagonal.

    That is ``x_f' L x_f`` with the Laplacian L of ``M + Mᵀ``. A triangular L (its upper half
    twice) gives the same, and its product with X takes half the time of a full one.
    """
    M += M.T
    L = np.triu(M, 1)
    L *= -2.0
    L[np.diag_indices_from(L)] = M.sum(axis=0, dtype=np.float64)
    (trmm,) = get_blas_funcs(("trmm",), (L, X))
    LX = trmm(1.0, L.T, X.T, side=1, lower=1).T  # BLAS works by columns: transposes
    total = np.zeros(X.shape[1])
    for start in range(0, len(X), 64):  # short sums in the dtype of X, added in float64
        rows = slice(start, start + 64)
        total += np.einsum("ij,ij->j", X[rows], LX[rows])
    return total


def _weighted_distances(X: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Return D (n, n), ``D_ij = Σ_f w_f (x_if - x_jf)²``."""
    used = w > 0
    if used.sum() < 0.5 * len(w):  # a sparse w makes this product cheaper
        X, w = X[:, used], w[used]
    scaled = X * np.sqrt(w).astype(X.dtype)
    norms = np.einsum("ij,ij->i", scaled, scaled)
    D = scaled @ scaled.T
    D *= -2.0
    D += norms[:, None]
    D += norms
    return D


def _softmax_of_negative(D: np.ndarray) -> np.ndarray:
    """Return P (n, n): rows of exp(-D) without the diagonal, summing to 1."""
    P = -D
    np.fill_diagonal(P, -np.inf)
    P -= P.max(axis=1, keepdims=True)
    np.exp(P, out=P)
    P /= P.sum(axis=1, keepdims=True)
    return P


def loss_and_slope(
    T: np.ndarray, Y_hat: np.ndarray, loss: str, delta: float
) -> tuple[float, np.ndarray]:
    """Return the mean over rows of ℓ(t_i, ŷ_i) and ∂ℓ/∂ŷ, shape (n, c)."""
    e = np.asarray(T, dtype=np.float64) - Y_hat
    size = np.abs(e)
    if loss == "mse":
        values, slope = e**2, -2.0 * e
    elif loss == "mae":
        values, slope = size, -np.sign(e)
    elif loss == "huber":
        values = np.where(size <= delta, 0.5 * e**2, delta * size - 0.5 * delta**2)
        slope = -np.clip(e, -delta, delta)
    else:  # cross-entropy; with several columns only the true class counts
        share = T if T.shape[1] > 1 else 1.0
        likelihood = np.maximum(1.0 - size, 1e-12)
        values = -share * np.log(likelihood)
        slope = -share * np.sign(e) / likelihood
    return float(values.sum() / len(e)), slope


def class_balanced_batches(
    codes: np.ndarray, batch_size: int, rng: np.random.RandomState, per_class: int = 8
) -> Iterator[np.ndarray]:
    """Yield row indices of random classes with about ``per_class`` rows of each, for ever.

    Every row needs siblings in its batch, or the vote carries no signal.
    """
    members = [np.flatnonzero(codes == c) for c in range(codes.max() + 1)]
    n_classes = min(len(members), max(2, batch_size // per_class))
    per_class = max(2, batch_size // n_classes)
    while True:
        chosen = rng.choice(len(members), n_classes, replace=False)
        yield np.concatenate(
            [
                rng.choice(members[c], min(per_class, len(members[c])), replace=False)
                for c in chosen
            ]
        )
