"""Preprocessing of features before a fit: filling of missing values, and standardization."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from semfs._typing import Float64, Indices, Matrix
from semfs.io.write import feature_names
from semfs.labels import UNLABELED, Labels
from semfs.rows import BlockSource, in_blocks
from semfs.rows.blocks import CONSTANT_SPREAD
from semfs.validation import ParameterError, listed

#: Samples whose medians stand for missing values; more of them hardly change a median.
MEDIAN_ROWS = 20_000
#: Unlabeled samples whose spread is the unit of features that are constant in labeled ones.
SPREAD_ROWS = 20_000


def filled_with_medians(source: BlockSource) -> BlockSource:
    """Return the source with missing values replaced by the median of the feature."""
    X, _ = source.labels_known().sample(MEDIAN_ROWS, labeled=True)
    if not isinstance(X, np.ndarray):
        return source  # what is not stored in sparse data is 0, not missing
    unknown = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(unknown):
        shown = listed(feature_names(source)[unknown].tolist())
        message = f": no sample has a value for {shown}. Drop these features."
        raise ParameterError("impute", message)
    medians = np.nanmedian(X, axis=0)
    return replace(source, preprocessing=replace(source.preprocessing, fill=medians))


def standardized(
    source: BlockSource, X_unlabeled: Matrix | BlockSource | None, *, with_gaps: bool
) -> BlockSource:
    """Return the source with features scaled to standard deviation 1 of labeled samples.

    A feature that is constant in these is scaled to standard deviation 1 of the unlabeled
    samples, which are those of the source and ``X_unlabeled``, or a random part of them. If it
    is constant there, too, it stays as it is. ``with_gaps``, values may be missing.
    """
    if with_gaps:
        scaled = _standardized_with_gaps(source)
    else:
        scaled = source.standardized()
    scale = scaled.preprocessing.scale
    assert scale is not None
    # the scale of a constant feature is 1, and hardly ever that of another one
    unscaled = scale == 1.0
    if unscaled.any():
        spread = _spread_of_unlabeled(source, X_unlabeled)
        known = unscaled & (spread > 0.0)
        scale = np.where(known, 1.0 / np.where(known, spread, 1.0), scale)
    return replace(source, preprocessing=replace(source.preprocessing, scale=scale))


def _standardized_with_gaps(source: BlockSource) -> BlockSource:
    """Return the source with features scaled to standard deviation 1 of observed values."""
    X, labels, _ = source.load()
    if not isinstance(X, np.ndarray):
        return source.standardized()
    mean, variance = _mean_and_variance(X[labels.codes >= 0])
    spread = _without_noise(np.sqrt(variance), mean)
    scale = 1.0 / np.where(spread > 0.0, spread, 1.0)
    return replace(source, preprocessing=replace(source.preprocessing, scale=scale))


def _spread_of_unlabeled(
    source: BlockSource, X_unlabeled: Matrix | BlockSource | None
) -> Float64:
    """Return the standard deviation (d,) of features in unlabeled samples; 0 if unknown."""
    d = source.n_features
    parts = [source.sample(SPREAD_ROWS, labeled=False)[0]]
    present = np.ones(d, dtype=bool)
    if in_blocks(X_unlabeled):
        X, places = _sample_of_file(source, X_unlabeled)
        present = places >= 0
        parts.append(X[:, places])
    elif X_unlabeled is not None:
        parts.append(X_unlabeled)
    sizes = [X.shape[0] for X in parts if X.shape[0]]
    if not sizes:
        return np.zeros(d)
    found = [_mean_and_variance(X) for X in parts if X.shape[0]]
    means = np.stack([mean for mean, _ in found])
    variances = np.stack([variance for _, variance in found])
    shares = np.array(sizes) / sum(sizes)
    mean = shares @ means
    # of all samples together: within parts, and between their means
    variance = shares @ (variances + (means - mean) ** 2)
    # a feature that some samples lack cannot be selected for their clusters
    return np.where(present, _without_noise(np.sqrt(variance), mean), 0.0)


def _sample_of_file(source: BlockSource, unlabeled: BlockSource) -> tuple[Matrix, Indices]:
    """Return samples of another file, and where it has the features of the source, or -1."""
    n = unlabeled.n_rows
    if n is None:
        known = unlabeled.labels_known().labels
        assert known is not None
        n = len(known)
    marks = np.full(n, UNLABELED, dtype=np.int32)
    nameless = unlabeled.with_labels(Labels([], marks))
    X, _ = nameless.sample(SPREAD_ROWS, labeled=False)
    wanted = source.feature_names
    found = unlabeled.feature_names
    if wanted is None or found is None:
        return X, np.arange(source.n_features)
    place = {name: j for j, name in enumerate(found)}
    places = [place.get(name, -1) for name in wanted]
    return X, np.array(places, dtype=np.intp)


def _mean_and_variance(X: Matrix) -> tuple[Float64, Float64]:
    """Return mean and variance (d,) of observed values; NaN where there is none."""
    if not isinstance(X, np.ndarray):
        mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
        squares = np.asarray(X.multiply(X).mean(axis=0), dtype=np.float64)
        return mean, np.maximum(squares.ravel() - mean**2, 0.0)
    with warnings.catch_warnings():
        # the fit refuses features without any value, with their names
        warnings.simplefilter("ignore", RuntimeWarning)
        mean = np.nanmean(X, axis=0, dtype=np.float64)
        return mean, np.nanvar(X, axis=0, dtype=np.float64)


def _without_noise(spread: Float64, mean: Float64) -> Float64:
    """Return standard deviations (d,), with 0 in place of rounding errors of a constant."""
    return np.where(spread > CONSTANT_SPREAD * np.abs(mean), spread, 0.0)
