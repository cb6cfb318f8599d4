"""Sets the features of an estimator, and checks that other samples have the same."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from semfs.rows import OutOfCoreRows


def set_features(estimator: Any, n_features: int, names: Sequence[str] | None) -> None:
    """Set the number of features, and their names if there are any."""
    estimator.n_features_in_ = n_features
    # names of an earlier fit must not stay beside a new number
    estimator.__dict__.pop("feature_names_in_", None)
    if names is not None:
        estimator.feature_names_in_ = np.asarray(names, dtype=object)


def check_features(estimator: Any, source: OutOfCoreRows, *, reset: bool) -> None:
    """Set the features of an estimator from a source, or check that they are the same."""
    d = source.n_features
    if not reset:
        if d != estimator.n_features_in_:
            known = estimator.n_features_in_
            raise ValueError(
                f"X has {d} features, but earlier calls had {known}. Pass the same features."
            )
        return
    set_features(estimator, d, source.feature_names)


def check_unlabeled_features(
    estimator: Any, n_features: int, names: Sequence[str] | None
) -> None:
    """Raise unless X_unlabeled has the features of X, in their order."""
    known = getattr(estimator, "feature_names_in_", None)
    d = estimator.n_features_in_
    # without names only their number can be compared
    same_names = names is None or known is None or list(names) == list(known)
    if n_features != d or not same_names:
        raise ValueError(
            f"X_unlabeled has {n_features} features, which are not the "
            f"{d} features of X in the same order. Pass the same "
            "features, or pass both as data frames, AnnData objects, or "
            "files that fit into memory: features are then matched by "
            "name, in any order."
        )
