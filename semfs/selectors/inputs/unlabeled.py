"""Unlabeled samples that are passed in addition to X, in memory or beyond.

Their features must be those of X. If both have names, they are matched by name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import check_array

from semfs._typing import DataLike, Mask, Matrix
from semfs.io.registry import is_frame
from semfs.labels import UNLABELED, Labels
from semfs.rows import (
    BlockSource,
    OutOfCoreRows,
    Preprocessing,
    beyond_memory,
    in_blocks,
    open_unlabeled,
)
from semfs.rows.dask_data import unlabeled_dask_rows
from semfs.selectors.inputs.features import check_unlabeled_features
from semfs.selectors.inputs.kind import Kind, classify
from semfs.selectors.inputs.matrix import FLOATS, without_text_columns
from semfs.selectors.inputs.missing import fills_gaps
from semfs.selectors.inputs.nonfinite import place_of_nan
from semfs.selectors.inputs.unlabeled_rows import UnlabeledRows
from semfs.validation import ParameterError, ParameterWarning, listed, warn_user


def unlabeled_source(
    estimator: Any, X_unlabeled: DataLike, preprocessing: Preprocessing
) -> UnlabeledRows | OutOfCoreRows | None:
    """Return X_unlabeled as samples in memory, or as a source beyond memory."""
    if X_unlabeled is None:
        return None
    kind = classify(X_unlabeled)
    if kind is Kind.MATRIX:
        X = without_text_columns(X_unlabeled)
        names = [str(name) for name in X.columns] if is_frame(X) else None
        return _unlabeled_in_memory(estimator, X, names, fills_gaps(estimator))
    source: OutOfCoreRows
    if kind is Kind.DASK:
        source = unlabeled_dask_rows(X_unlabeled)
    elif beyond_memory(X_unlabeled) and not in_blocks(X_unlabeled):
        # labels that it may have must not be used
        source = _without_labels(X_unlabeled)
    else:
        opened = X_unlabeled
        if in_blocks(opened):
            given = opened.preprocessing
            if given.scale is not None or given.fill is not None:
                preprocessing = given
        else:
            gaps = fills_gaps(estimator)
            opened = open_unlabeled(X_unlabeled, preprocessing, keep_missing=gaps)
        # as for X: what is small is loaded
        if opened.fits_in_memory and opened.n_rows is not None:
            return _loaded_unlabeled(estimator, opened, preprocessing)
        source = _without_labels(_preprocessed_as(opened, preprocessing))
    check_unlabeled_features(estimator, source.n_features, source.feature_names)
    return source


def _loaded_unlabeled(
    estimator: Any, source: BlockSource, preprocessing: Preprocessing
) -> UnlabeledRows:
    """Load X_unlabeled from a file that fits into memory, preprocessed like X."""
    # counts are normalized by all features of their file; other steps are for those of X
    counts = Preprocessing(normalize=source.preprocessing.normalize)
    keep_missing = fills_gaps(estimator) or preprocessing.fill is not None
    found = _unlabeled_in_memory(
        estimator, counts.apply(source.reader.load()), source.feature_names, keep_missing
    )
    return replace(found, X=replace(preprocessing, normalize=None).apply(found.X))


def _preprocessed_as(source: BlockSource, preprocessing: Preprocessing) -> BlockSource:
    """Return the source with the preprocessing of the fit, except normalization of counts."""
    steps = replace(preprocessing, normalize=source.preprocessing.normalize)
    return replace(source, preprocessing=steps)


def _unlabeled_in_memory(
    estimator: Any, X: DataLike, names: Sequence[str] | None, keep_missing: bool
) -> UnlabeledRows:
    """Return unlabeled samples with the features of X in the order of X, matched by name.

    Features that they lack are filled with zeros and named in a warning.
    """
    what = "X_unlabeled"
    with place_of_nan(X, names, what), np.errstate(invalid="ignore"):
        finite: Any = "allow-nan" if keep_missing else True
        checked = check_array(
            X, accept_sparse="csr", dtype=FLOATS, input_name=what, ensure_all_finite=finite
        )
    batches = np.zeros(checked.shape[0], dtype=np.intp)
    known = getattr(estimator, "feature_names_in_", None)
    if names is None or known is None or list(names) == list(known):
        check_unlabeled_features(estimator, checked.shape[1], names)
        return UnlabeledRows(checked, batches)
    place_of = {name: place for place, name in enumerate(names)}
    places = np.array([place_of.get(name, -1) for name in known], dtype=np.intp)
    present = places >= 0
    if not present.any():
        message = (
            f"has none of the {len(known)} features of X, such as "
            f"{known[0]!r}. Use the same feature names as in X."
        )
        raise ParameterError(what, message)
    if present.all():
        return UnlabeledRows(checked[:, places], batches)
    lacking = [str(name) for name in np.asarray(known)[~present]]
    warn_user(
        ParameterWarning(
            what,
            f"lacks {len(lacking)} of {len(known)} features: {listed(lacking)}. Only "
            "the labeled samples are used for these features.",
        )
    )
    X = _spread(checked[:, places[present]], present)
    return UnlabeledRows(X, batches, present=present)


def _spread(X: Any, present: Mask) -> Matrix:
    """Expand X (n, g) to (n, d): its columns where ``present`` (d,) is true, else zeros."""
    if sp.issparse(X):
        # column g of X becomes the g-th column that is present; values and rows stay
        indices = np.flatnonzero(present)[X.indices]  # X is CSR
        return sp.csr_array((X.data, indices, X.indptr), shape=(X.shape[0], len(present)))
    out = np.zeros((len(X), len(present)), dtype=X.dtype)
    out[:, present] = X
    return out


def _without_labels(source: OutOfCoreRows) -> OutOfCoreRows:
    """Return the same samples without labels."""
    n = source.n_rows
    if n is None:
        known = source.labels_known().labels
        assert known is not None
        n = len(known)
    return source.with_labels(Labels([], np.full(n, UNLABELED, dtype=np.int32)))


def join_unlabeled(
    first: UnlabeledRows | None, second: UnlabeledRows | None
) -> UnlabeledRows | None:
    """Return the unlabeled samples of X, followed by those of X_unlabeled."""
    if first is None or second is None:
        return second if first is None else first
    if sp.issparse(first.X):
        X = sp.vstack([first.X, sp.csr_array(second.X)], format="csr")
    else:
        X_second: Any = second.X
        if sp.issparse(X_second):
            X_second = X_second.toarray()
        X = np.concatenate([first.X, X_second])
    weights = first.weights
    if weights is not None:
        # X_unlabeled has no weights: each of its samples counts once
        weights = np.append(weights, np.ones(second.n_rows))
    if second.present is not None:
        # the same for all of them, so that it cannot separate one part from the other
        X = Preprocessing(scale=second.present.astype(np.float64)).apply(X)
    batches = np.append(first.batches, second.batches)
    return UnlabeledRows(X, batches, weights, second.present)
