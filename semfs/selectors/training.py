"""What a selector is fitted to: checked rows in memory or beyond it, as moments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from semfs.attributes import as_attribute_table
from semfs.method.moments import Moments
from semfs.method.objective import SAFE_RELATIVE_PENALTY
from semfs.rows import Plain, as_plain, as_source, is_foreign
from semfs.rows.devices import as_numpy
from semfs.selectors.base import check_n_features_to_select, validated
from semfs.selectors.unlabeled import UNLABELED, unlabeled_rows
from semfs.validation import check_weights, class_weights, label_array

__all__ = [
    "TrainingData",
    "refuse_unlabeled",
    "rows_beyond_memory",
    "streamed",
    "training_data",
]


@dataclass(frozen=True)
class TrainingData:
    """Labelled rows ``X`` (None if they are not in memory), their moments, and those of
    unlabelled rows (None if there are none)."""

    X: Any
    moments: Moments
    unlabeled: Moments | None


def training_data(
    selector: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    reset: bool = True,
    X_unlabeled: Any = None,
) -> TrainingData:
    """Validate rows in memory for a selector; finiteness shows in the moments."""
    X = as_plain(X, y)
    y, sample_weight = as_numpy(X.y), as_numpy(sample_weight)
    hidden = _hidden_rows(selector, y)
    X, classes, codes = selector._check_training_data(
        X,
        y if hidden is None else _with_stand_ins(y, hidden),
        accept_sparse=True,
        ensure_all_finite=False,
        reset=reset,
    )
    weights = check_weights(sample_weight, X.shape[0])
    parts = []
    if hidden is not None:
        _check_on_host(X)
        parts.append(_without_labels(X[hidden], None if weights is None else weights[hidden]))
        X, codes = X[~hidden], codes[~hidden]
        weights = None if weights is None else weights[~hidden]
    if X_unlabeled is not None:
        _check_on_host(X)
        parts.append(_without_labels(_check_more_rows(selector, X_unlabeled)))
    weights = _row_weights(selector.class_weight, codes, classes, weights)
    unlabeled = parts[0] + parts[1] if len(parts) == 2 else next(iter(parts), None)
    return TrainingData(X, Moments.from_checked(X, codes, classes, weights), unlabeled)


def rows_beyond_memory(X: Any, y: Any, sample_weight: Any) -> Any:
    """Data that must not be held whole, as rows to pass over; None for arrays and frames."""
    if hasattr(X, "of_classes"):  # rows already
        if y is not None or sample_weight is not None:
            raise ValueError("Pass labels and weights to open_blocks, not to fit.")
        return X
    if hasattr(X, "__dask_graph__"):
        from semfs.rows.cluster import dask_rows

        return dask_rows(X, y, sample_weight)
    return as_source(X, y, sample_weight)


def streamed(
    selector: Any, rows: Any, *, n_features: int | None = None, X_unlabeled: Any = None
) -> TrainingData:
    """Moments of rows that stay on disk or on a cluster, or are loaded if there are few.

    ``n_features`` is how many columns they must have.
    """
    check_n_features_to_select(selector.n_features_to_select)
    if n_features not in (None, rows.n_features):
        raise ValueError(f"X has {rows.n_features} features, those before had {n_features}.")
    if selector.attributes is not None:
        rows = rows.matched(as_attribute_table(selector.attributes).classes.tolist())
    if rows.fits:
        X, y, weights = rows.load()
        X = Plain(X, y, rows.feature_names)
        loaded = training_data(selector, X, y, weights, X_unlabeled=X_unlabeled)
        data = TrainingData(None, loaded.moments, loaded.unlabeled)
    elif X_unlabeled is not None:
        raise ValueError("X_unlabeled needs X in memory. Load X, or leave it out.")
    else:
        data = TrainingData(None, _sum_up(selector, rows), None)
        refuse_unlabeled(selector, data.moments.classes)
    selector.n_features_in_ = rows.n_features
    selector.__dict__.pop("feature_names_in_", None)
    if rows.feature_names is not None:
        selector.feature_names_in_ = np.asarray(rows.feature_names, dtype=object)
    return data


def _sum_up(selector: Any, rows: Any) -> Moments:
    class_weight = selector.class_weight
    if class_weight is not None:

        def factors(totals: dict[Any, float]) -> dict[Any, float] | None:
            """Weight of each class, from the total weight of its rows unless it is given."""
            if isinstance(class_weight, Mapping):
                totals = dict.fromkeys(class_weight, 1.0)
            counts = np.array(list(totals.values()))
            weights = class_weights(class_weight, label_array(list(totals)), counts)
            return None if weights is None else dict(zip(totals, weights.tolist()))

        rows = rows.weighted(factors, balanced=isinstance(class_weight, str))
    direct = selector.solver == "direct"
    sums = rows.sums(
        n_select=min(selector.n_features_to_select, rows.n_features) if direct else None,
        precise=selector.penalty_scale != "gram" or selector.gamma < SAFE_RELATIVE_PENALTY,
        verbose=selector.verbose,
    )
    return Moments.from_sums(*sums)


def _row_weights(
    class_weight: Any, codes: np.ndarray, classes: np.ndarray, weights: np.ndarray | None
) -> np.ndarray | None:
    counts = np.bincount(codes, weights, minlength=len(classes)).astype(np.float64)
    of_classes = class_weights(class_weight, classes, counts)
    if of_classes is None:
        return weights
    return of_classes[codes] * (1.0 if weights is None else weights)


# ---- unlabelled rows ------------------------------------------------------------------


def refuse_unlabeled(selector: Any, classes: np.ndarray) -> None:
    """Raise if summed-up moments have unlabelled rows: they cannot be taken apart again."""
    if unlabeled_rows(classes) is not None and not _is_class(selector, UNLABELED):
        raise ValueError(
            f"some rows have the label {UNLABELED}, which means unlabelled. They need X in "
            "memory: load it and use fit, or leave these rows out."
        )


def _hidden_rows(selector: Any, y: Any) -> np.ndarray | None:
    """Mask (n,) of the rows without a label, or None."""
    hidden = unlabeled_rows(y)
    if hidden is None or _is_class(selector, UNLABELED):
        return None
    if hidden.all():
        raise ValueError(
            f"y is {UNLABELED} for every row, which means unlabelled. Label some rows."
        )
    return hidden


def _is_class(selector: Any, label: Any) -> bool:
    """Whether the attribute table describes a class of this label."""
    table = selector.attributes
    if table is None or isinstance(table, (np.ndarray, list, tuple)):
        return False
    return label in as_attribute_table(table).classes.tolist()


def _with_stand_ins(y: Any, hidden: np.ndarray) -> Any:
    """Labels with the first one in place of those that are missing; they are not used."""
    y = y.to_numpy() if hasattr(y, "to_numpy") else y
    if isinstance(y, (list, tuple)):
        first = next(v for v, missing in zip(y, hidden) if not missing)
        return [first if missing else v for v, missing in zip(y, hidden)]
    y = np.array(y)
    y[hidden] = y[~hidden][0]
    return y


def _without_labels(X: Any, weights: np.ndarray | None = None) -> Moments:
    codes = np.zeros(X.shape[0], dtype=np.intp)
    return Moments.from_checked(X, codes, np.array([UNLABELED]), weights)


def _check_more_rows(selector: Any, X: Any) -> Any:
    types = [np.float64, np.float32]
    return validated(selector, X, accept_sparse="csr", dtype=types, reset=False)


def _check_on_host(X: Any) -> None:
    if is_foreign(X):
        raise ValueError("unlabelled rows need numpy or sparse X. Convert X, or drop them.")
