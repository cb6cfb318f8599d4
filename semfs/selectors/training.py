"""What a selector is fitted to: moments of labelled rows, and rows without a label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.utils import assert_all_finite

from semfs.attributes import as_attribute_table
from semfs.method.moments import Moments
from semfs.rows import Rows, as_source, is_foreign
from semfs.validation import feature_indices, is_missing

__all__ = [
    "FeatureLimits",
    "TrainingData",
    "check_labelled",
    "check_two_classes",
    "rows_beyond_memory",
    "split_labels",
]

#: scikit-learn's mark of a row without a label; None, NaN and NA say the same.
UNLABELED = -1


@dataclass(frozen=True)
class TrainingData:
    """Labelled rows ``X`` (None if they are not in memory) and their moments; and rows
    without a label (None if there are none)."""

    X: Any
    moments: Moments
    unlabeled: Rows | None

    @classmethod
    def of_rows(
        cls,
        X: Any,
        codes: np.ndarray,
        classes: np.ndarray,
        weights: np.ndarray | None,
        *,
        hidden: np.ndarray | None = None,
        X_unlabeled: Any = None,
    ) -> TrainingData:
        """Return checked rows, those ``hidden`` (a mask) and ``X_unlabeled`` without labels."""
        apart = []
        if (hidden is not None or X_unlabeled is not None) and is_foreign(X):
            raise ValueError("unlabelled rows need numpy or sparse X. Convert X, or drop them.")
        if hidden is not None:
            assert_all_finite(X[hidden], input_name="X")
            apart.append((X[hidden], None if weights is None else weights[hidden]))
            X, codes = X[~hidden], codes[~hidden]
            weights = None if weights is None else weights[~hidden]
        if X_unlabeled is not None:
            apart.append((X_unlabeled, None))
        moments = Moments.from_checked(X, codes, classes, weights)
        return cls(X, moments, _stacked(apart) if apart else None)


def _stacked(parts: list[tuple[Any, np.ndarray | None]]) -> Rows:
    """Rows of one class that stands for no class, sparse if the first part is."""
    sparse = sp.issparse(parts[0][0])
    matrices = [sp.csr_array(X) if sparse else _dense(X) for X, _ in parts]
    X = (sp.vstack if sparse else np.concatenate)(matrices)
    weights = None
    if any(w is not None for _, w in parts):
        weights = np.concatenate([np.ones(X.shape[0]) if w is None else w for X, w in parts])
    return Rows(X, np.zeros(X.shape[0], dtype=np.intp), weights)


def _dense(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else X


@dataclass(frozen=True)
class FeatureLimits:
    """Constant columns (a mask), and indices of features to include and to exclude."""

    constant: np.ndarray
    include: np.ndarray
    exclude: np.ndarray

    @classmethod
    def of(cls, moments: Moments, include: Any, exclude: Any, names: Any) -> FeatureLimits:
        """Return the limits of features given by index or name."""
        d = moments.n_features
        return cls(
            moments.constant(),
            feature_indices("include", include, d, names),
            feature_indices("exclude", exclude, d, names),
        )

    @property
    def candidates(self) -> np.ndarray:
        """Mask (d,) of the features that may be chosen."""
        allowed = ~self.constant
        allowed[self.exclude] = False
        allowed[self.include] = True
        return allowed


def check_two_classes(moments: Moments) -> None:
    """Raise unless there are rows of at least two classes."""
    if len(moments.classes) < 2:
        raise ValueError(
            f"y has only one class ({moments.classes.tolist()[0]!r}). SemFS compares "
            "classes: pass rows of at least two."
        )


# ---- labels ---------------------------------------------------------------------------


def split_labels(y: Any, attributes: Any = None) -> tuple[Any, np.ndarray | None]:
    """Return y with a stand-in where a label is missing, and a mask (n,) of these rows.

    The mask is None if no label is missing. -1, None, NaN and NA mark missing labels; -1 does
    not if ``attributes`` describes a class of that name.

    Examples
    --------
    >>> split_labels([3, -1, None])
    ([3, 3, 3], array([False,  True,  True]))
    >>> split_labels(["ant", "bee"])
    (['ant', 'bee'], None)
    """
    values = y.to_numpy() if hasattr(y, "to_numpy") else y
    if not isinstance(values, (list, tuple)):
        values = np.asarray(values)
        if values.ndim != 1 or values.dtype.kind not in "ifO":
            return y, None
    if isinstance(values, np.ndarray) and values.dtype.kind in "if":
        hidden, marked = np.isnan(values), values == UNLABELED
    else:
        hidden = np.array([is_missing(v) for v in values], dtype=bool)
        marked = np.array([_is_mark(v) for v in values], dtype=bool)
    if marked.any() and not _describes(attributes, UNLABELED):
        hidden |= marked
    if not hidden.any():
        return y, None
    if hidden.all():
        raise ValueError("no row has a label: y holds only marks for missing ones.")
    if isinstance(values, np.ndarray):
        values = values.copy()
        values[hidden] = values[~hidden][0]
        return values, hidden
    first = values[int(np.argmin(hidden))]
    return [first if missing else v for v, missing in zip(values, hidden)], hidden


def _is_mark(value: Any) -> bool:
    number = isinstance(value, (int, float, np.integer, np.floating))
    return number and not isinstance(value, bool) and bool(value == UNLABELED)


def _describes(attributes: Any, label: Any) -> bool:
    """Whether the attribute table describes a class of this label."""
    if attributes is None or isinstance(attributes, (np.ndarray, list, tuple)):
        return False
    return label in as_attribute_table(attributes).classes.tolist()


def check_labelled(classes: np.ndarray, attributes: Any) -> None:
    """Raise if sums over rows include unlabelled ones: they cannot be taken apart again."""
    if any(map(_is_mark, classes)) and not _describes(attributes, UNLABELED):
        raise ValueError(
            f"some rows have the label {UNLABELED}, which means unlabelled. They need X in "
            "memory: load it and use fit, or leave these rows out."
        )


# ---- rows beyond memory ---------------------------------------------------------------


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
