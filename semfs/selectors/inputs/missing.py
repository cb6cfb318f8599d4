"""Missing values of X: filled so that class means and scatter stay those of observed values.

The method needs class means and the scatter matrix alone. Class means are those of the values
observed. A gap that is filled with the mean of its class adds nothing to the scatter within
classes, so that a feature with few values would seem to vary little within them. Therefore
its deviations are divided by √p, p the share of the samples in which it was observed. With
D = diag(1/√p) the scatter within classes is D S D, which is positive semidefinite if S is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import scipy.sparse as sp

from semfs._typing import Float64, Floats, Indices, Mask
from semfs.feature_names import feature_name
from semfs.labels import LabelArray
from semfs.rows import MemoryRows, in_memory
from semfs.selectors.inputs.labeled import InMemory
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.validation import ParameterError, listed

if TYPE_CHECKING:
    from sklearn.base import BaseEstimator


def fills_gaps(estimator: BaseEstimator) -> bool:
    """Whether the estimator fills missing values of X instead of refusing them."""
    return getattr(estimator, "missing_values", "error") != "error"


def without_gaps(
    rows: InMemory,
    unlabeled: UnlabeledRows | None,
    classes: LabelArray,
    names: Sequence[str] | None,
) -> tuple[MemoryRows, UnlabeledRows | None]:
    """Return labeled samples, and unlabeled ones of X, with their missing values filled."""
    if not in_memory(rows) or sp.issparse(rows.X):
        message = ': "class-mean" needs dense numpy data. Convert X, or fill its gaps first.'
        raise ParameterError("missing_values", message)
    X = fill_with_class_means(rows.X, rows.codes, classes, rows.weights, names)
    filled = replace(rows, X=X)
    return filled, filled_unlabeled(unlabeled, filled)


def filled_unlabeled(unlabeled: UnlabeledRows | None, rows: MemoryRows) -> UnlabeledRows | None:
    """Return unlabeled samples without missing values; ``rows`` are the labeled ones."""
    if unlabeled is None or sp.issparse(unlabeled.X):
        return unlabeled
    default = np.average(rows.X, axis=0, weights=_weights_of(rows))
    X = fill_with_means(unlabeled.X, default, _weights_of(unlabeled))
    return replace(unlabeled, X=X)


def _weights_of(rows: MemoryRows | UnlabeledRows) -> Float64 | None:
    """Weights (n,) of samples; None if all weigh the same, or none weighs anything."""
    weights = rows.weights
    if weights is None or not np.any(weights):
        return None
    return weights


def fill_with_class_means(
    X: Floats,
    codes: Indices,
    classes: LabelArray,
    weights: Float64 | None = None,
    names: Sequence[str] | None = None,
) -> Floats:
    """Return X (n, d) without NaN: gaps are class means, other values keep their class mean.

    Deviations from the class mean are divided by the root of the observed share of their
    feature. A feature without any value in some class is refused, because nothing is known
    of it there. Without a gap X itself is returned.
    """
    infinite = np.flatnonzero(np.isinf(X).any(axis=0))
    if len(infinite):
        shown = listed([feature_name(j, names) for j in infinite.tolist()])
        message = f"contains infinity, which is not a missing value: {shown}."
        raise ParameterError("X", message)
    missing = np.isnan(X)
    features = np.flatnonzero(missing.any(axis=0))
    if not len(features):
        return X
    observed = ~missing[:, features]
    # zeros in the gaps leave sums as they are; NaN would spread to all of them
    values = np.where(observed, X[:, features], 0.0).astype(np.float64)
    if weights is None:
        weights = np.ones(len(X))
    means = _class_means(values, observed, codes, classes, weights, features, names)
    shares = weights @ observed / weights.sum()
    centers = means[codes]
    deviations = np.where(observed, values - centers, 0.0)
    # X belongs to the caller
    filled = X.copy()
    filled[:, features] = centers + deviations / np.sqrt(shares)
    return filled


def _class_means(
    values: Float64,
    observed: Mask,
    codes: Indices,
    classes: LabelArray,
    weights: Float64,
    features: Indices,
    names: Sequence[str] | None,
) -> Float64:
    """Means (C, g) of the values (n, g) that were observed; classes of weight 0 have zeros."""
    n_classes = len(classes)
    means = np.zeros((n_classes, len(features)))
    unknown: list[str] = []
    for code in range(n_classes):
        members = np.flatnonzero(codes == code)
        # the fit ignores samples of weight 0, so their gaps do no harm
        if not weights[members].any():
            continue
        totals = weights[members] @ observed[members]
        empty = features[totals == 0]
        for j in empty.tolist():
            unknown.append(f"{feature_name(j, names)} (class {classes[code]})")
        sums = weights[members] @ values[members]
        np.divide(sums, totals, out=means[code], where=totals > 0)
    if unknown:
        raise ParameterError(
            "missing_values",
            ': "class-mean" needs a value of each feature in each class. '
            f"There is none for: {listed(unknown)}. "
            "Leave out these features or these classes.",
        )
    return means


def fill_with_means(X: Floats, default: Float64, weights: Float64 | None = None) -> Floats:
    """Return X (n, d) of unlabeled samples without NaN: gaps are the means of their features.

    Samples of weight 0 have no part in the means. ``default`` (d,) stands for features of which
    X has no value.
    """
    missing = np.isnan(X)
    if not missing.any():
        return X
    if weights is None:
        weights = np.ones(len(X))
    observed = weights @ ~missing
    sums = weights @ np.where(missing, 0.0, X).astype(np.float64)
    means = default.copy()
    np.divide(sums, observed, out=means, where=observed > 0)
    return np.where(missing, means.astype(X.dtype), X)
