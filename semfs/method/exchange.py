"""Exchange refinement: swap selected features for others as long as J decreases."""

from __future__ import annotations

import numpy as np
from scipy.linalg import cho_factor, cho_solve, pinvh

from semfs._typing import Float64, Indices
from semfs.method.cholesky import RELATIVE_PIVOT_TOL
from semfs.method.columns import NearCopies
from semfs.method.quadratic import Quadratic
from semfs.method.search import Search

#: A swap must lower J by more than this fraction of q, the J of no feature: less is rounding.
SMALLEST_DECREASE = 1e-10


def exchange(search: Search, n_swaps: int) -> list[int]:
    """Return the selected features after at most ``n_swaps`` swaps.

    The best swap is made until no swap lowers J. From this local optimum, each selected feature
    in turn is replaced by the next best one, even if J increases, in case further swaps then
    lead to a lower J.
    """
    features, budget = _best_swaps(search, list(search.selected), n_swaps)
    place = 0
    while place < len(features) and budget > 0:
        trial = list(features)
        decreases = _swap_decreases(search, features)[:, place]
        j = int(np.argmax(decreases))
        # -inf: no feature may take this place.
        if np.isfinite(decreases[j]):
            trial[place] = j
            trial, budget = _best_swaps(search, trial, budget - 1)
        # J = q − F: the larger F is the lower J. After a success all places are tried anew,
        # because the best replacement depends on the other features.
        if _fit(search, trial) > _fit(search, features) + SMALLEST_DECREASE * search.q:
            features = trial
            place = 0
        else:
            place += 1
    return features


def _best_swaps(
    search: Search,
    features: list[int],
    budget: int,
) -> tuple[list[int], int]:
    """Make the best swap until none lowers J. Return the features and the swaps left."""
    while budget > 0:
        decreases = _swap_decreases(search, features)
        j, place = np.unravel_index(int(np.argmax(decreases)), decreases.shape)
        if not decreases[j, place] > SMALLEST_DECREASE * search.q:
            break
        features[place] = int(j)
        budget -= 1
    return features, budget


def _swap_decreases(search: Search, features: list[int]) -> Float64:
    """Return the decrease of J (d, k) if feature j replaces the i-th selected feature.

    It is -inf for swaps that are not allowed.
    """
    selected = np.array(features)
    total = np.zeros((len(search.allowed), len(features)))
    for quadratic, cache in zip(search.quadratics, search.caches):
        total += _swap_decreases_of(quadratic, cache.stacked(features), selected)
    total[~search.allowed] = -np.inf
    total[selected] = -np.inf
    # Features that the user demands stay.
    total[:, search.forced[selected]] = -np.inf
    if search.copies is not None:
        _forbid_copies(total, selected, search.copies)
    return total


def _forbid_copies(
    decreases: Float64,
    selected: Indices,
    copies: NearCopies,
) -> None:
    """Set decreases (d, k) to -inf for swaps that add a near copy of a selected feature."""
    for place, feature in enumerate(selected.tolist()):
        # A copy may replace the feature that it copies: then only one of the two is selected.
        others = np.arange(len(selected)) != place
        decreases[np.ix_(copies.of(feature), others)] = -np.inf


def _swap_decreases_of(
    quadratic: Quadratic,
    G_S: Float64,
    selected: Indices,
) -> Float64:
    """Return the decrease (d, k) of one J, given Gram columns (d, k) of selected features.

    With P = (G_SS + γI)⁻¹, W = P B_S, C = G_·S P, residuals R = B − G_·S W and pivots
    δ = diag(G) + γ − diag(C G_S·): leaving the i-th feature out lowers F by ‖W_i‖²/P_ii, and
    changes the residuals to R_j + C_ji W_i/P_ii and the pivots to δ_j + C_ji²/P_ii. Feature j
    then raises F by its new gain.
    """
    P = _inverse(G_S[selected] + quadratic.gamma * np.eye(len(selected)))
    W = P @ quadratic.B[selected]
    C = G_S @ P
    R = quadratic.B - G_S @ W
    pivots = quadratic.diag + quadratic.gamma
    smallest = RELATIVE_PIVOT_TOL * pivots
    delta = pivots - np.einsum("ij,ij->i", C, G_S)
    # P_ii is 0 for a selected column of zeros (possible if γ = 0): W_i and C_ji are 0, too,
    # and leaving it out changes nothing.
    inverse_diag = np.where(np.diag(P) > 0.0, np.diag(P), np.inf)
    loss = np.einsum("ij,ij->i", W, W) / inverse_diag
    squared_norms = np.einsum("ij,ij->i", R, R)[:, None]
    # ‖R_j + c W_i‖² = ‖R_j‖² + 2c R_j·W_i + c²‖W_i‖² with c = C_ji/P_ii; the last term is
    # c C_ji ‖W_i‖²/P_ii, and ‖W_i‖²/P_ii is the loss.
    squared_norms = squared_norms + (C / inverse_diag) * (2.0 * R @ W.T + C * loss)
    new_pivots = delta[:, None] + C**2 / inverse_diag
    # A smaller pivot is rounding error: feature j is a combination of the ones that stay.
    independent = new_pivots > smallest[:, None]
    gains = np.zeros_like(new_pivots)
    np.divide(squared_norms, new_pivots, out=gains, where=independent)
    return gains - loss


def _fit(search: Search, features: list[int]) -> float:
    """Return F(S) = tr(B_S'(G_SS + γI)⁻¹B_S), summed over the quadratics."""
    selected = np.array(features)
    total = 0.0
    for quadratic, cache in zip(search.quadratics, search.caches):
        G_SS = cache.stacked(features)[selected]
        B_S = quadratic.B[selected]
        inverse = _inverse(G_SS + quadratic.gamma * np.eye(len(selected)))
        total += float(np.sum(B_S * (inverse @ B_S)))
    return total


def _inverse(K: Float64) -> Float64:
    """Return the inverse of a positive definite matrix (k, k), singular only if γ = 0."""
    try:
        return cho_solve(cho_factor(K), np.eye(len(K)))
    except np.linalg.LinAlgError:
        # B_S = X_S'T lies in the range of K, so that F is the same for every solution.
        return pinvh(K)
