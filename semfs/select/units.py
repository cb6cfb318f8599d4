"""Preprocessing of features before a fit: filling of missing values, and standardization."""

from __future__ import annotations

import warnings
from dataclasses import replace

import numpy as np

from semfs.io.write import feature_names
from semfs.rows import BlockSource
from semfs.validation import ParameterError, listed

#: Samples whose medians stand for missing values; more of them hardly change a median.
MEDIAN_ROWS = 20_000


def filled_with_medians(source: BlockSource) -> BlockSource:
    """Return the source with missing values replaced by the median of the feature."""
    X, _ = source.labels_known().sample(MEDIAN_ROWS, labeled=True)
    if not isinstance(X, np.ndarray):
        return source  # what is not stored in sparse data is 0, not missing
    unknown = np.flatnonzero(np.isnan(X).all(axis=0))
    if len(unknown):
        shown = listed(feature_names(source)[unknown].tolist())
        message = f": no sample has a value of {shown}. Drop them."
        raise ParameterError("impute", message)
    medians = np.nanmedian(X, axis=0)
    return replace(source, preprocessing=replace(source.preprocessing, fill=medians))


def standardized_with_gaps(source: BlockSource) -> BlockSource:
    """Return the source with features scaled to standard deviation 1 of observed values."""
    X, labels, _ = source.load()
    if not isinstance(X, np.ndarray):
        return source.standardized()
    with warnings.catch_warnings():
        # the fit refuses features without any value, with their names
        warnings.simplefilter("ignore", RuntimeWarning)
        spread = np.nanstd(X[labels.codes >= 0], axis=0, dtype=np.float64)
    # constant features stay as they are; the fit does not select them
    scale = 1.0 / np.where(spread > 0.0, spread, 1.0)
    return replace(source, preprocessing=replace(source.preprocessing, scale=scale))
