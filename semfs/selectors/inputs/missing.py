"""Missing values of X are filled so that class means and scatter are those of observed values.

The method needs only class means and the scatter matrix. A gap is filled with the mean of the
observed values in its class, so class means do not change. But filled gaps add nothing to the
scatter within classes, so a feature with few values would seem to vary little. Therefore
deviations of a feature from class means are divided by √p, where p is the share of samples in
which it was observed. With D = diag(1/√p), the scatter within classes becomes D S D, which is
positive semidefinite if S is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import scipy.sparse as sp

from semfs._typing import Float64, Floats, Indices, Mask
from semfs.feature_names import feature_name
from semfs.labels import LabelArray
from semfs.rows import MemoryRows, in_memory
from semfs.selectors.inputs.labeled import InMemory
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.validation import ParameterError, listed


def fills_gaps(estimator: object) -> bool:
    """Return whether the estimator fills missing values of X instead of raising an error."""
    return getattr(estimator, "missing_values", "error") != "error"


def without_gaps(
    rows: InMemory,
    unlabeled: UnlabeledRows | None,
    classes: LabelArray,
    names: Sequence[str] | None,
) -> tuple[MemoryRows, UnlabeledRows | None]:
    """Return labeled and unlabeled samples of X, with missing values filled."""
    if not in_memory(rows) or sp.issparse(rows.X):
        message = ': "class-mean" needs dense NumPy data. Convert X, or fill its gaps first.'
        raise ParameterError("missing_values", message)
    X = fill_with_class_means(rows.X, rows.codes, classes, rows.weights, names)
    filled = replace(rows, X=X)
    return filled, filled_unlabeled(unlabeled, filled)


def filled_unlabeled(unlabeled: UnlabeledRows | None, rows: MemoryRows) -> UnlabeledRows | None:
    """Return unlabeled samples with missing values filled. ``rows`` are the labeled samples."""
    if unlabeled is None or sp.issparse(unlabeled.X):
        return unlabeled
    default = np.average(rows.X, axis=0, weights=_weights_of(rows))
    X = fill_with_means(unlabeled.X, default, _weights_of(unlabeled))
    return replace(unlabeled, X=X)


def _weights_of(rows: MemoryRows | UnlabeledRows) -> Float64 | None:
    """Return sample weights (n,), or None if all are equal or all are zero."""
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
    """Return X (n, d) with gaps filled by class means, and rescaled deviations.

    Deviations from the class mean are divided by the square root of the observed share of the
    feature, which keeps class means. Raise if a feature has no value in some class. If there
    are no gaps, X itself is returned.
    """
    infinite = np.flatnonzero(np.isinf(X).any(axis=0))
    if len(infinite):
        shown = listed([feature_name(j, names) for j in infinite.tolist()])
        message = (
            f"contains infinity, which is not a missing value: {shown}. "
            "Replace it with the right value, or with NaN if there is "
            "none."
        )
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
    """Return the means (C, g) of observed values (n, g). Classes of weight 0 have zeros."""
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
            ': "class-mean" needs a value for each feature in each '
            f"class. There is none for: {listed(unknown)}. Leave out "
            "these features or these classes, or fill gaps with medians: "
            'impute="median" for files, SimpleImputer for arrays.',
        )
    return means


def fill_with_means(X: Floats, default: Float64, weights: Float64 | None = None) -> Floats:
    """Return unlabeled samples X (n, d) with gaps filled by the means of their features.

    Samples of weight 0 do not contribute to the means. If X has no value of a feature,
    ``default`` (d,) is used.
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
